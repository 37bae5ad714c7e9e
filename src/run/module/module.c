/*
 * Modules. In: the text of a .qn file, or a tile IR dump. Out: its kernels with their parameters as written and every
 * name that a call may set. Nothing is lowered here: that happens per instance, when a call binds types and constants.
 * SPDX-License-Identifier: MIT
 */
#include "run/module/function.h"

#include <stdlib.h>
#include <string.h>

#define FILE_LIMIT_BYTES ((size_t)64 << 20) /* dumps may be larger than the 16 MiB of a .qn file */

/* A dump's first line is `kernel NAME ...` and its next begins a parameter or the head. */
static bool is_dump(const char *words)
{
    if (strncmp(words, "kernel ", 7)) return false;
    const char *next = strchr(words, '\n');
    if (!next) return false;
    next += 1 + strspn(next + 1, " \t");
    return !strncmp(next, "param ", 6) || !strncmp(next, "head {", 6);
}

void entry_add_name(kernel_entry *e, const char *name)
{
    for (int i = 0; i < e->name_count; i++)
        if (!strcmp(e->names[i], name)) return;
    ARENA_PUSH(e->module->memory, e->names, e->name_count, e->name_capacity, name);
}

static param_kind kind_of_word(const char *word)
{
    if (!strcmp(word, "in")) return PARAM_IN;
    if (!strcmp(word, "out")) return PARAM_OUT;
    if (!strcmp(word, "inout")) return PARAM_INOUT;
    if (!strcmp(word, "scratch")) return PARAM_SCRATCH;
    return PARAM_SCALAR;
}

static void entry_from_ast(kernel_entry *e, const ast *item)
{
    arena *memory = e->module->memory;
    e->name = item->name;
    e->spread = item_is_spread(item) ? 1 : -1; /* until a call says otherwise */
    item = lang_spread(memory, item, 1, NULL);
    e->item = item;
    /* A function's results, or those of its gradient, come behind. */
    int results =
        item->kind == AST_TENSOR ? MAXIMUM(item->list.count, function_result_count(e->module->file, item)) : 0;
    e->params = ARENA_ARRAY(memory, parameter, item->list.count + results + 1);
    for (int i = 0; i < item->list.count; i++) {
        const ast *a = item->list.items[i];
        parameter *p = &e->params[e->param_count++];
        const char *word = a->word ? a->word : "";
        p->name = a->name;
        p->type = a->type && a->type->word ? a->type->word : "";
        p->kind = item->kind == AST_TENSOR && a->is_tensor ? PARAM_IN : kind_of_word(word);
        p->constant = !strcmp(word, "const");
        p->function = a->is_function;
        p->generic = a->type && a->type->is_generic;
        p->rank = p->kind == PARAM_SCALAR ? -1 : a->list.count;
        p->at = a->at;
        if (!p->generic && !dtype_from_text(p->type, &p->elem)) p->elem = DT_F32; /* the checker has reported it */
        if (p->kind != PARAM_SCRATCH) entry_add_name(e, p->name);
    }
    for (int i = 0; i < item->list.count; i++) {
        const ast *a = item->list.items[i];
        if (a->type && a->type->is_generic) entry_add_name(e, a->type->word);
        for (int k = 0; k < a->list.count && e->params[i].kind != PARAM_SCALAR; k++) {
            const ast *extent = a->list.items[k];
            if (extent->kind != AST_NAME || entry_param(e, extent->name, NULL)) continue;
            const ast *other = ast_find(e->module->file, extent->name);
            if (!other || other->kind != AST_CONSTANT) entry_add_name(e, extent->name);
        }
    }
    const ast *tune = clause_of(item, "tune");
    for (int i = 0; tune && i < tune->list.count; i++) entry_add_name(e, tune->list.items[i]->name);
}

void entry_from_dump(kernel_entry *e, tile_kernel *k)
{
    e->name = k->name;
    e->dump = k;
    e->spread = -1;
    e->params = ARENA_ARRAY(e->module->memory, parameter, k->param_count + 1);
    for (int i = 0; i < k->param_count; i++) {
        const tile_param *from = &k->params[i];
        bool array = from->kind < PARAM_SCALAR;
        if (from->kind != PARAM_SCRATCH) entry_add_name(e, from->name);
        if (from->kind == PARAM_EXTENT) continue;
        e->params[e->param_count++] = (parameter){.name = from->name,
                                                  .type = dtypes[from->elem].text,
                                                  .kind = from->kind,
                                                  .elem = from->elem,
                                                  .rank = array ? from->rank : -1,
                                                  .at = {.line = from->line, .column = from->column}};
    }
}

/* A dump is a text that anybody may have edited: what it says is inside an array is tested until a pass proves it. */
static void forget_safe(tile_kernel *k, tile_block *block, tile_op *op, void *context)
{
    if (ops[op->code].class == CLASS_MEMORY) memset(op->attr.access.safe, 0, sizeof(op->attr.access.safe));
    (void)k, (void)block, (void)context;
}

static qn_status load_dump(qn_module *m, const char *words, size_t length, qn_error *error)
{
    tile_kernel *k;
    QN_TRY(tile_read(m->memory, m->path, words, length, &k, error));
    QN_TRY(tile_verify(k, error));
    if (k->param_count > MAX_PARAMS)
        return error_set(error, QN_BAD_SOURCE, "%s: kernel `%s` has %d parameters; the limit is %d", m->path, k->name,
                         k->param_count, MAX_PARAMS);
    for (int i = 0; i < k->phase_count; i++) tile_walk(k, k->phases[i], forget_safe, NULL);
    m->kernels = ARENA_NEW(m->memory, kernel_entry);
    m->kernel_count = 1;
    m->kernels[0].module = m;
    entry_from_dump(&m->kernels[0], k);
    return QN_OK;
}

typedef struct uses {
    const ast_file *file;
    const ast *items[256]; /* the kernel and the functions and constants it uses, each once */
    int count;
} uses;

static void find_uses(uses *u, const ast *node);

static void find_uses_list(uses *u, const ast_list *list)
{
    for (int i = 0; i < list->count; i++) find_uses(u, list->items[i]);
}

static void add_use(uses *u, const ast *item)
{
    for (int i = 0; i < u->count; i++)
        if (u->items[i] == item) return;
    if (u->count == COUNT(u->items)) return;
    u->items[u->count++] = item;
    find_uses(u, item);
}

static void find_uses(uses *u, const ast *node)
{
    if (!node) return;
    const ast *item = node->kind == AST_NAME ? ast_find(u->file, node->name) : NULL;
    if (item && item->kind == AST_FUNCTION) add_use(u, item);
    const ast *const parts[] = {node->left, node->right, node->third, node->body, node->other};
    for (int i = 0; i < COUNT(parts); i++) find_uses(u, parts[i]);
    find_uses_list(u, &node->list);
    find_uses_list(u, &node->clauses);
    find_uses_list(u, &node->phases);
}

static int compare_lines(const void *a, const void *b)
{
    const diagnostic *x = a, *y = b;
    if (x->at.line != y->at.line) return x->at.line < y->at.line ? -1 : 1;
    return x->at.column < y->at.column ? -1 : x->at.column > y->at.column;
}

/* The first of these that stands on this line or behind it. They are sorted: a file of 50,000 kernels may have as many
 * warnings, and each kernel looks for its own. */
static int first_at(const diagnostics *d, int line)
{
    int low = 0, high = d->count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (d->items[middle].at.line < line)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Of the file's warnings those that stand in the kernel or in a function that it uses. */
static void collect_warnings(qn_module *m, kernel_entry *e)
{
    if (!m->found.count) return;
    uses u = {.file = m->file};
    diagnostics own = {.memory = m->memory};
    add_use(&u, e->item);
    for (int k = 0; k < u.count; k++)
        for (int i = first_at(&m->found, u.items[k]->from.line);
             i < m->found.count && m->found.items[i].at.line <= u.items[k]->end_line; i++)
            ARENA_PUSH(m->memory, own.items, own.count, own.capacity, m->found.items[i]);
    if (own.count) diagnostics_print(&own, m->file, false, &e->warnings);
}

void entry_source(const kernel_entry *entry, text *out)
{
    const ast_file *file = entry->module->file;
    text_print(out, "%s\n", entry->name);
    if (!file) return;
    uses *u = heap_new(sizeof(*u));
    u->file = file;
    add_use(u, entry->item);
    for (int i = 0; i < file->items.count; i++)
        if (file->items.items[i]->kind == AST_CONSTANT) add_use(u, file->items.items[i]);
    for (int i = 0; i < u->count; i++)
        for (int line = u->items[i]->from.line; line <= u->items[i]->end_line && line <= file->line_count; line++)
            text_print(out, "%s\n", file->lines[line - 1]);
    heap_free(u);
}

static qn_status load_source(qn_module *m, const char *words, size_t length, qn_error *error)
{
    diagnostics d = {.memory = m->memory};
    m->file = lang_parse(m->memory, m->path, words, length, &d);
    if (!d.errors) lang_check(m->file, &d);
    if (d.count) qsort(d.items, (size_t)d.count, sizeof(*d.items), compare_lines);
    m->found = d;
    if (d.count) diagnostics_print(&d, m->file, false, &m->warnings);
    if (d.errors) return diagnostics_error(&d, m->file, QN_BAD_SOURCE, error);
    m->kernels = ARENA_ARRAY(m->memory, kernel_entry, m->file->items.count + 1);
    m->gradients = ARENA_ARRAY(m->memory, kernel_entry, m->file->items.count + 1);
    m->by_name = map_new(m->memory);
    for (int i = 0; i < m->file->items.count; i++) {
        const ast *item = m->file->items.items[i];
        if (item->kind != AST_KERNEL && item->kind != AST_RAW && item->kind != AST_TENSOR) continue;
        for (int gradient = 0; gradient < (item->kind == AST_TENSOR ? 2 : 1); gradient++) {
            kernel_entry *e = gradient ? &m->gradients[m->gradient_count++] : &m->kernels[m->kernel_count++];
            e->module = m;
            entry_from_ast(e, item);
            if (item->kind == AST_TENSOR) function_results(e, gradient);
            map_set(m->by_name, e->name, e);
            collect_warnings(m, e);
        }
    }
    return QN_OK;
}

typedef struct loading {
    qn_module *module;
    const char *words;
    size_t length;
} loading;

static qn_status load_step(void *context, qn_error *error)
{
    const loading *l = context;
    bool dump = !memchr(l->words, 0, l->length) && is_dump(l->words);
    return dump ? load_dump(l->module, l->words, l->length, error) : load_source(l->module, l->words, l->length, error);
}

static qn_status load(qn_context *context, const char *name, const char *words, size_t length, qn_module **out,
                      qn_error *error)
{
    qn_module *m = calloc(1, sizeof(*m));
    if (!m) return error_set(error, QN_NO_MEMORY, "no memory for a module");
    m->context = context;
    m->memory = arena_new();
    m->path = arena_copy_text(m->memory, name, strlen(name));
    qn_status status = heap_try(load_step, &(loading){m, words, length}, error);
    if (status) {
        qn_module_free(m);
        return status;
    }
    *out = m;
    return QN_OK;
}

/* The path `-`: the standard input, which is read once and kept with the context. */
static qn_status read_input(qn_context *context, qn_error *error)
{
    if (context->input) return QN_OK;
    size_t capacity = 1 << 16, length = 0, got;
    char *words = heap_new(capacity);
    while ((got = fread(words + length, 1, capacity - length - 1, stdin)) > 0) {
        length += got;
        if (length > FILE_LIMIT_BYTES) {
            heap_free(words);
            return error_set(error, QN_BAD_FILE, "the standard input has more than %zu bytes",
                             (size_t)FILE_LIMIT_BYTES);
        }
        if (capacity - length < 2) words = heap_resize(words, capacity *= 2);
    }
    words[length] = 0;
    context->input = words;
    context->input_bytes = length;
    return QN_OK;
}

qn_status qn_module_load_file(qn_context *context, const char *path, qn_module **module, qn_error *error)
{
    HEAP_ENTER(error);
    if (!context || !path || !module) return error_set(error, QN_BAD_CALL, "qn_module_load_file: an argument is NULL");
    *module = NULL;
    char *words;
    size_t length;
    if (!strcmp(path, "-")) {
        QN_TRY(read_input(context, error));
        return load(context, "<stdin>", context->input, context->input_bytes, module, error);
    }
    QN_TRY(file_read(path, FILE_LIMIT_BYTES, &words, &length, error));
    qn_status status = load(context, path, words, length, module, error);
    heap_free(words);
    return status;
}

qn_status qn_module_load_text(qn_context *context, const char *name, const char *words, qn_module **module,
                              qn_error *error)
{
    HEAP_ENTER(error);
    if (!context || !words || !module) return error_set(error, QN_BAD_CALL, "qn_module_load_text: an argument is NULL");
    *module = NULL;
    return load(context, name ? name : "text", words, strlen(words), module, error);
}

static void entry_free(kernel_entry *e)
{
    text_free(&e->warnings);
    for (instance *at = e->instances, *next; at; at = next) {
        next = at->next;
        instance_free(at, e->module->context);
    }
}

void qn_module_free(qn_module *module)
{
    if (!module || heap_is_stopped()) return;
    for (int i = 0; i < module->kernel_count; i++) entry_free(&module->kernels[i]);
    for (int i = 0; i < module->gradient_count; i++) entry_free(&module->gradients[i]);
    for (int i = 0; i < module->renamed_count; i++) entry_free(module->renamed[i]);
    text_free(&module->warnings);
    arena_free(module->memory);
    heap_free(module);
}

int qn_module_kernel_count(const qn_module *module)
{
    return module ? module->kernel_count : 0;
}

const char *qn_module_kernel_name(const qn_module *module, int number)
{
    return module && number >= 0 && number < module->kernel_count ? module->kernels[number].name : "";
}

const char *qn_module_warnings(const qn_module *module)
{
    return module ? text_get(&module->warnings) : "";
}

const char *qn_kernel_warnings(const qn_module *module, const char *kernel)
{
    const kernel_entry *e = module && kernel ? module_find(module, kernel, NULL) : NULL;
    return e ? text_get(&e->warnings) : "";
}

kernel_entry *module_find(const qn_module *module, const char *spelled, qn_error *error)
{
    qn_mode mode;
    qn_products products;
    const char *kernel = function_name(spelled, &mode, &products);
    kernel_entry *found = module->by_name ? map_get(module->by_name, kernel) : NULL;
    for (int i = 0; !module->by_name && i < module->kernel_count && !found; i++)
        if (!strcmp(module->kernels[i].name, kernel)) found = &module->kernels[i];
    if (found) return found;
    arena *memory = arena_new();
    const char **names = ARENA_ARRAY(memory, const char *, module->kernel_count + 1);
    for (int i = 0; i < module->kernel_count; i++) names[i] = module->kernels[i].name;
    const ast *other = module->file ? ast_find(module->file, kernel) : NULL;
    const char *near = suggest_name(kernel, names, module->kernel_count);
    if (other)
        error_set(error, QN_BAD_CALL, "%s: `%s` is not a kernel", module->path, kernel);
    else if (near)
        error_set(error, QN_BAD_CALL, "%s has no kernel `%s`; did you mean `%s`?", module->path, kernel, near);
    else
        error_set(error, QN_BAD_CALL, "%s has no kernel `%s`", module->path, kernel);
    arena_free(memory);
    return NULL;
}

const parameter *entry_param(const kernel_entry *entry, const char *name, int *number)
{
    for (int i = 0; i < entry->param_count; i++) {
        if (strcmp(entry->params[i].name, name)) continue;
        if (number) *number = i;
        return &entry->params[i];
    }
    return NULL;
}

qn_status entry_error(const kernel_entry *entry, qn_status status, error_code code, place at, const char *advice,
                      qn_error *error, const char *format, ...)
{
    if (!error) return status;
    arena *memory = arena_new();
    text words = {0};
    va_list list;
    va_start(list, format);
    text_print_list(&words, format, list);
    va_end(list);
    const qn_module *m = entry->module;
    if (m->file) {
        diagnostics d = {.memory = memory};
        diagnose(&d, code, at.line ? at : entry->item->at, advice, "%s", text_get(&words));
        diagnostics_error(&d, m->file, status, error);
    } else {
        error_diagnose(error, status, code, m->path, 0, 0, "%s\n%s%s%s", text_get(&words), advice ? "  " : "",
                       advice ? advice : "", advice ? "\n" : "");
    }
    text_free(&words);
    arena_free(memory);
    return status;
}

int qn_kernel_param_count(const qn_module *module, const char *kernel)
{
    kernel_entry *e = module && kernel ? module_find(module, kernel, NULL) : NULL;
    if (!e) return -1;
    int count = 0;
    for (int i = 0; i < e->param_count; i++) count += e->params[i].kind != PARAM_SCRATCH;
    return count;
}

qn_status qn_kernel_param(const qn_module *module, const char *kernel, int number, qn_param *param, qn_error *error)
{
    HEAP_ENTER(error);
    if (!module || !kernel || !param) return error_set(error, QN_BAD_CALL, "qn_kernel_param: an argument is NULL");
    kernel_entry *e = module_find(module, kernel, error);
    if (!e) return QN_BAD_CALL;
    int at = number;
    for (int i = 0; i < e->param_count && at >= 0; i++) {
        const parameter *p = &e->params[i];
        if (p->kind == PARAM_SCRATCH || at-- > 0) continue;
        static const qn_param_kind kinds[] = {[PARAM_IN] = QN_PARAM_IN,
                                              [PARAM_OUT] = QN_PARAM_OUT,
                                              [PARAM_INOUT] = QN_PARAM_INOUT,
                                              [PARAM_SCALAR] = QN_PARAM_SCALAR};
        *param = (qn_param){
            .name = p->name, .type = p->type, .kind = p->constant ? QN_PARAM_CONST : kinds[p->kind], .rank = p->rank};
        param->any_rank = e->spread >= 0 && i < e->item->list.count && e->item->list.items[i]->has_spread;
        return QN_OK;
    }
    return error_set(error, QN_BAD_CALL, "kernel `%s` has no parameter number %d", kernel, number);
}
