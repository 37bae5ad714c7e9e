/*
 * A kernel's frame: parameters, the head that the host runs at a launch, one body per phase; raw kernels have
 * parameters, a head and text (lower_raw.c). In: the tree of a kernel and the constants of one instance. Out: verified tile IR, or
 * diagnostics.
 *
 * Parameters stand in the order of the source, without constants, and then every extent by first appearance: that is
 * also the order in which a raw function takes them.
 * SPDX-License-Identifier: MIT
 */
#include "lang/lower.h"

#include <string.h>

static param_kind kind_of(const ast *param)
{
    if (!strcmp(param->word, "in")) return PARAM_IN;
    if (!strcmp(param->word, "out")) return PARAM_OUT;
    if (!strcmp(param->word, "inout")) return PARAM_INOUT;
    if (!strcmp(param->word, "scratch")) return PARAM_SCRATCH;
    return param->is_tensor ? PARAM_IN : PARAM_SCALAR;
}

static void push_constants(walk *w)
{
    for (int i = 0; i < w->constants->count; i++) {
        const binding *b = &w->constants->items[i];
        symbol s = {.name = b->name};
        if (b->kind == BIND_TYPE) {
            s.kind = SYMBOL_TYPE;
            s.type = b->type;
        } else if (b->kind == BIND_FUNCTION) {
            s.kind = SYMBOL_FUNCTION;
            s.function = b->function;
            s.item = param_find(w->kernel, b->name);
            if (!s.item) continue;
        } else {
            s.kind = SYMBOL_TERM;
            s.term = term_of_constant(*b);
        }
        symbol_push(w, s);
    }
}

static bool add_param(walk *w, tile_param param, const ast *item)
{
    if (w->k->param_count >= MAX_PARAMS && !w->kernel->is_signature) {
        diagnose(w->d, E105, w->kernel->at, "split the kernel", "more than %d parameters and extents", MAX_PARAMS);
        return false;
    }
    for (int i = 0; i < MAX_RANK; i++) param.extent_param[i] = -1;
    param.facts.size_class = -1; /* nothing is promised yet */
    int index = tile_param_add(w->k, param);
    w->param_items[index] = item;
    symbol s = {.name = param.name, .kind = SYMBOL_SCALAR, .param = index};
    if (param.kind < PARAM_SCALAR) {
        s.kind = SYMBOL_ARRAY;
        s.array = ARENA_NEW(w->memory, array_ref);
        s.array->param = index;
        s.array->rank = param.rank;
        for (int i = 0; i < param.rank; i++) s.array->axis_of[i] = i;
    }
    symbol_push(w, s);
    return true;
}

static bool add_params(walk *w)
{
    const ast *kernel = w->kernel;
    for (int i = 0; i < kernel->list.count; i++) {
        const ast *item = kernel->list.items[i];
        if (param_is_constant(item)) continue;
        tile_param param = {.name = item->name,
                            .kind = kind_of(item),
                            .rank = item->list.count,
                            .line = item->at.line,
                            .column = item->at.column};
        if (!resolve_type(w, item->type, &param.elem)) return false;
        if (param.kind != PARAM_SCALAR && !strcmp(item->type->word, "int"))
            diagnose(w->d, E209, item->type->at, "write `i32` or `i64`", "`int` is not an element type in memory");
        if (param.rank > ARRAY_RANK) {
            diagnose(w->d, E105, item->at, "use fewer axes", "an array of more than %d axes", ARRAY_RANK);
            return false;
        }
        param.has_default = param.kind == PARAM_SCALAR && item->left;
        if (!add_param(w, param, item)) return false;
    }
    for (int i = 0; i < kernel->list.count; i++) {
        const ast *item = kernel->list.items[i];
        for (int k = 0; !param_is_constant(item) && k < item->list.count; k++) {
            const ast *name = item->list.items[k];
            if (name->kind != AST_NAME || symbol_find(w, name->name)) continue;
            const ast *other = ast_find(w->file, name->name);
            if (other && other->kind == AST_CONSTANT) continue;
            tile_param param = {.name = name->name,
                                .kind = PARAM_EXTENT,
                                .elem = DT_I64,
                                .line = name->at.line,
                                .column = name->at.column};
            if (!add_param(w, param, NULL)) return false;
        }
    }
    w->kernel_symbols = w->symbol_count;
    return true;
}

static void lower_initial(walk *w, int index)
{
    tile_param *param = &w->k->params[index];
    const ast *item = w->param_items[index];
    if (param->kind >= PARAM_SCALAR || !item || !item->left) return;
    if (param->kind != PARAM_OUT) {
        diagnose(w->d, E104, item->left->at, "only `out` arrays have an initial value",
                 "initial value of the `%s` array `%s`", item->word, param->name);
        return;
    }
    term t = lower_expression(w, item->left);
    if (!is_error(&t) && t.kind != TERM_CONSTANT) {
        diagnose(w->d, E217, item->left->at, "use a number or a `const` parameter",
                 "the initial value of `%s` is not a compile-time constant", param->name);
        return;
    }
    t = term_convert(w, &t, param->elem, item->left->at);
    if (is_error(&t)) return;
    param->has_initial = true;
    param->initial = t.constant.number;
}

static const char *source_of(walk *w, const ast *node)
{
    text words = {0};
    lang_format_expression(node, &words);
    const char *copy = arena_print(w->memory, "%s", text_get(&words));
    text_free(&words);
    return copy;
}

static void lower_extent(walk *w, int index, int axis)
{
    tile_param *param = &w->k->params[index];
    const ast *item = w->param_items[index];
    CHECK(item && item->list.items && axis < item->list.count);
    const ast *node = item->list.items[axis];
    symbol *s = node->kind == AST_NAME ? symbol_find(w, node->name) : NULL;
    if (s && s->kind == SYMBOL_SCALAR) {
        param->extent_param[axis] = s->param;
        if (w->k->params[s->param].kind == PARAM_EXTENT) return;
    }
    term t = lower_expression(w, node);
    t = term_index(w, &t, node->at);
    if (is_error(&t)) return;
    if (t.kind == TERM_CONSTANT && t.constant.number.i < 0) {
        diagnose(w->d, E314, node->at, "an extent is not negative", "extent %lld of `%s`",
                 (long long)t.constant.number.i, param->name);
        return;
    }
    value v = term_value(w, &t);
    w->at = node->at;
    tile_op *op = op_make(w, OP_EXTENT, &v, 1);
    op->attr.index = index;
    op->attr.axes[0] = axis;
    op->attr.words = source_of(w, node);
    op_append(w, op);
    w->k->params[index].extents[axis] = v;
}

bool lower_counts(walk *w, const ast_list *list, place at, launch *out)
{
    out->count = list->count;
    out->at = at;
    if (!list->count) {
        diagnose(w->d, E109, at, "add `launch (...)`", "kernel without `launch`");
        return false;
    }
    if (list->count > 3) {
        diagnose(w->d, E109, at, "use one to three counts", "`launch` of %d counts", list->count);
        return false;
    }
    bool good = true;
    for (int i = 0; i < list->count; i++) {
        term t = lower_expression(w, list->items[i]);
        t = term_convert(w, &t, DT_I64, list->items[i]->at);
        good = good && !is_error(&t) && !t.rank;
        out->counts[i] = t;
    }
    return good;
}

void lower_launch(walk *w, const launch *l, int phase)
{
    value counts[3];
    w->at = l->at;
    for (int i = 0; i < l->count; i++) counts[i] = term_value(w, &l->counts[i]);
    tile_op *op = op_make(w, OP_LAUNCH, counts, l->count);
    op->attr.index = phase;
    op_append(w, op);
}

static void reset_cons(walk *w)
{
    w->cons_count = 0;
    w->cons_barrier = 0;
    memset(w->cons_heads, 0, sizeof(w->cons_heads));
    w->entry_value_count = 0;
}

static void enter_head(walk *w)
{
    reset_cons(w);
    w->in_head = true;
    w->block = w->k->head;
}

static void lower_head(walk *w)
{
    enter_head(w);
    for (int i = 0; i < w->k->param_count; i++) {
        lower_initial(w, i);
        const ast *item = w->param_items[i];
        if (item && w->k->params[i].has_default) {
            w->at = item->at;
            head_value(w, i, w->at);
        }
    }
    for (int i = 0; i < w->k->param_count; i++)
        for (int axis = 0; axis < w->k->params[i].rank; axis++) lower_extent(w, i, axis);
}

/* A scalar parameter that the body assigns is a variable there, one for each program. */
static void copy_assigned(walk *w, const ast *node)
{
    if (!node) return;
    if (node->kind == AST_ASSIGN && node->left->kind == AST_NAME) {
        symbol *s = symbol_find(w, node->left->name);
        if (s && s->kind == SYMBOL_SCALAR && w->k->params[s->param].kind == PARAM_SCALAR) {
            const char *name = w->k->params[s->param].name;
            variable *v = variable_new(w, name, w->k->params[s->param].elem);
            v->now = term_of_value(w, build_argument(w, s->param));
            v->is_set = true;
            symbol_push(w, (symbol){.name = name, .kind = SYMBOL_VARIABLE, .variable = v});
        }
    }
    copy_assigned(w, node->body);
    copy_assigned(w, node->other);
    for (int i = 0; node->kind == AST_BLOCK && i < node->list.count; i++) copy_assigned(w, node->list.items[i]);
}

static void lower_phase(walk *w, const ast *phase, int index, const launch *l)
{
    tile_block *body = w->k->phases[index];
    reset_cons(w);
    w->in_head = false;
    w->block = w->phase_block = body;
    w->entry_count = 0;
    w->launch_count = l->count;
    memcpy(w->launch, l->counts, sizeof(l->counts));
    memset(w->extents, 0, sizeof(w->extents[0]) * (size_t)w->k->param_count);
    memset(w->arguments, 0, sizeof(w->arguments[0]) * (size_t)w->k->param_count);
    w->variable_count = 0;
    w->symbol_count = w->kernel_symbols;
    w->scope_first = 0;
    w->scope_end = -1;
    w->loop_count = w->loop_depth = 0;
    w->at_top = true;
    w->at = phase->at;
    target here = {0};
    here.live = variable_new(w, NULL, DT_BOOL);
    here.live->now = term_of_value(w, build_bool(w, true));
    here.live->is_set = here.live->follows = true;
    w->target = &here;
    copy_assigned(w, phase->body);
    lower_block(w, phase->body);
    w->target = NULL;
}

static void lower_phases(walk *w)
{
    const ast_list *phases = &w->kernel->phases;
    if (!phases->count || phases->count > MAX_PHASES) {
        diagnose(w->d, phases->count ? E105 : E109, w->kernel->at,
                 phases->count ? "split the kernel" : "add `launch (...)`",
                 phases->count ? "more than 16 phases" : "kernel without `launch`");
        return;
    }
    launch launches[MAX_PHASES] = {0};
    w->k->phase_count = phases->count;
    w->k->phases = ARENA_ARRAY(w->memory, tile_block *, phases->count);
    bool good = true;
    for (int i = 0; i < phases->count; i++) {
        const ast *phase = phases->items[i];
        w->k->phases[i] = tile_block_new(w->k);
        w->at = phase->at;
        good = lower_counts(w, &phase->list, phase->at, &launches[i]) && good;
    }
    for (int i = 0; i < phases->count; i++) lower_phase(w, phases->items[i], i, &launches[i]);
    enter_head(w);
    for (int i = 0; good && i < phases->count; i++) lower_launch(w, &launches[i], i);
}

static void copy_source(walk *w)
{
    const ast_file *file = w->file;
    tile_kernel *k = w->k;
    int count = file->line_count, at = 0;
    for (int i = 0; i < file->source_count; i++) count += file->sources[i]->line_count;
    k->source_lines = ARENA_ARRAY(w->memory, const char *, count + 1);
    k->imports = ARENA_ARRAY(w->memory, tile_import, file->source_count + 1);
    for (int f = -1; f < file->source_count; f++) {
        const ast_file *from = f < 0 ? file : file->sources[f];
        if (f >= 0) {
            const char *path = arena_copy_text(w->memory, from->path, strlen(from->path));
            k->imports[k->import_count++] = (tile_import){.first_line = at + 1, .path = path};
        }
        for (int i = 0; i < from->line_count; i++)
            k->source_lines[at++] = arena_copy_text(w->memory, from->lines[i], strlen(from->lines[i]));
    }
    k->source_line_count = count;
}

/* Lines of imported files have numbers of their own in the tree; in a kernel they follow those of its file. The head keeps
 * the tree's: what it refuses is a diagnostic. */
static void place_op(tile_kernel *k, tile_block *block, tile_op *op, void *context)
{
    const walk *w = context;
    int number = op->line / FOREIGN_LINES;
    if (number && number <= w->file->source_count)
        op->line = k->imports[number - 1].first_line + op->line % FOREIGN_LINES - 1;
    (void)block;
}

/* What the source asks of the host while it prepares a launch, and the host cannot do: told once, at its first op. */
static void refuse_in_head(tile_kernel *k, tile_block *block, tile_op *op, void *context)
{
    walk *w = context;
    place at = {.line = op->line, .column = op->column};
    (void)block;
    if (w->refused || tile_op_is_of_head(op)) return;
    w->refused = true;
    if (op->code == OP_LOAD)
        diagnose(w->d, E212, at, "give the number itself: a parameter such as `int count`",
                 "`%s` is not read when a launch is prepared", k->params[op->attr.access.array].name);
    else
        diagnose(w->d, E212, at, "compute it before, and give it as a parameter such as `int count`",
                 "%s does not run when a launch is prepared",
                 op->code == OP_FOR || op->code == OP_WHILE ? "a loop" : "this");
}

bool lang_lower(const ast_file *file, const ast *kernel, const bindings *constants, arena *memory, diagnostics *d,
                tile_kernel **out)
{
    int errors = d->errors;
    walk *w = ARENA_NEW(memory, walk);
    *w = (walk){.file = file, .kernel = kernel, .constants = constants, .memory = memory, .d = d, .scope_end = -1};
    w->k = tile_kernel_new(memory, kernel->name, file->path);
    for (int i = 0; i < kernel->clauses.count; i++) w->k->precise |= !strcmp(kernel->clauses.items[i]->word, "precise");
    copy_source(w);
    push_constants(w);
    int most = kernel->list.count; /* parameters and extents */
    for (int i = 0; i < kernel->list.count; i++) most += kernel->list.items[i]->list.count;
    w->param_items = ARENA_ARRAY(memory, const ast *, most + 1);
    w->head_values = ARENA_ARRAY(memory, value, most + 1);
    w->head_busy = ARENA_ARRAY(memory, bool, most + 1);
    w->extents = ARENA_ARRAY(memory, axis *, most + 1);
    w->arguments = ARENA_ARRAY(memory, value, most + 1);
    if (!add_params(w)) return false;
    lower_head(w);
    if (kernel->kind == AST_RAW)
        lower_raw(w);
    else
        lower_phases(w);
    tile_walk(w->k, w->k->head, refuse_in_head, w);
    if (d->errors > errors) return false;
    for (int i = 0; file->source_count && i < w->k->phase_count; i++) tile_walk(w->k, w->k->phases[i], place_op, w);
    qn_error error = {0};
    /* A signature is bound, never compiled: it may have more parameters than a kernel. */
    if (!kernel->is_signature && tile_verify(w->k, &error) != QN_OK)
        base_check_failed(error.message, __FILE__, __LINE__);
    *out = w->k;
    return true;
}
