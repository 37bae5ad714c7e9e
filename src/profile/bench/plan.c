/*
 * From the text of a bench block to points and calls. In: the block's settings, its `on` clause for the device, the
 * caller's settings, in this order of growing weight. Out: every combination of the values of the sets, each value
 * evaluated (later settings may use earlier ones), and a call of each variant with the settings that its kernel has.
 * SPDX-License-Identifier: MIT
 */
#include "profile/bench/bench.h"

#include <math.h>
#include <string.h>

static bool entry_has(const kernel_entry *entry, const char *name)
{
    for (int i = 0; i < entry->name_count; i++)
        if (!strcmp(entry->names[i], name)) return true;
    return false;
}

static plan_setting *plan_find(plan *p, const char *name, size_t length)
{
    for (int i = 0; i < p->count; i++)
        if (strlen(p->items[i].name) == length && !strncmp(p->items[i].name, name, length)) return &p->items[i];
    return NULL;
}

static qn_status too_many(const bench *b, qn_error *error)
{
    return error_set(error, QN_BAD_SOURCE, "bench `%s` has too many settings: at most %d", b->block->name,
                     COUNT(((plan *)0)->items));
}

static qn_status plan_add_clause(bench *b, plan *out, const ast *clause, qn_error *error)
{
    for (int i = 0; i < clause->list.count; i++) {
        const ast *setting = clause->list.items[i];
        plan_setting *s = plan_find(out, setting->name, strlen(setting->name));
        if (!s) {
            if (out->count == COUNT(out->items)) return too_many(b, error);
            s = &out->items[out->count++];
        }
        *s = (plan_setting){.name = setting->name};
        if (setting->is_set) {
            s->choices = (const ast *const *)setting->list.items;
            s->choice_count = setting->list.count;
        } else {
            s->choices = (const ast *const *)&setting->left;
            s->choice_count = 1;
        }
    }
    return QN_OK;
}

/* Every name that the block sets or that one of its kernels knows. */
static int block_names(const qn_module *module, const ast *block, const char **names, int most)
{
    int count = 0;
    for (int c = 0; c < block->clauses.count; c++) {
        const ast *clause = block->clauses.items[c];
        if (strcmp(clause->word, "settings") != 0 && strcmp(clause->word, "on") != 0) continue;
        for (int i = 0; i < clause->list.count && count < most; i++) names[count++] = clause->list.items[i]->name;
    }
    for (int v = 0; v < block->list.count; v++) {
        const kernel_entry *entry = module_find(module, block->list.items[v]->name, NULL);
        for (int i = 0; entry && i < entry->name_count && count < most; i++) names[count++] = entry->names[i];
    }
    return count;
}

static bool listed(const char *name, size_t length, const char *const *names, int count)
{
    for (int i = 0; i < count; i++)
        if (strlen(names[i]) == length && !strncmp(names[i], name, length)) return true;
    return false;
}

/* Is the name of "name=..." known to some block? */
static qn_status check_name(const char *item, const char *const *names, int count, qn_error *error)
{
    char name[256];
    if (listed(item, strcspn(item, ",="), names, count)) return QN_OK;
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(item, ",="), item);
    const char *near = suggest_name(name, names, count);
    return error_set(error, QN_BAD_CALL, "no kernel of these benches has a setting `%s`%s%s%s", name,
                     near ? "; did you mean `" : "", near ? near : "", near ? "`?" : "");
}

static bool setting_is_swept(arena *memory, const char *setting, const char *sweep)
{
    return sweep_has(sweep, arena_copy_text(memory, setting, strcspn(setting, "=")));
}

qn_status plan_check_caller(const bench *b, qn_error *error)
{
    const char *names[2048];
    int count = 0;
    const ast_file *file = b->module->file;
    for (int i = 0; i < file->items.count; i++) {
        const ast *item = file->items.items[i];
        if (item->kind != AST_BENCH || (b->options->bench && strcmp(item->name, b->options->bench) != 0)) continue;
        count += block_names(b->module, item, names + count, COUNT(names) - count);
    }
    for (int i = 0; i < b->options->settings.count; i++) {
        const char *item = b->options->settings.items[i], *equals = strchr(item, '=');
        if (!equals || equals == item || !equals[1])
            return error_set(error, QN_BAD_CALL, "a setting is NAME=VALUE, not `%s`", item);
        QN_TRY(check_name(item, names, count, error));
    }
    arena *memory = arena_new();
    qn_status status = QN_OK;
    for (int i = 0; i < b->options->sweeps.count && status == QN_OK; i++) {
        const char *item = b->options->sweeps.items[i], *const * words;
        int values;
        status = sweep_read(memory, item, &words, &values, error);
        for (const char *at = item; status == QN_OK && *at != '='; at += *at == ',') {
            status = check_name(at, names, count, error);
            at += strcspn(at, ",=");
        }
        for (int k = 0; k < b->options->settings.count && status == QN_OK; k++)
            if (setting_is_swept(memory, b->options->settings.items[k], item))
                status = error_set(error, QN_BAD_CALL, "`%.*s` is both set and swept",
                                   (int)strcspn(b->options->settings.items[k], "="), b->options->settings.items[k]);
    }
    arena_free(memory);
    return status;
}

/* The setting of that name, made where there is none; NULL: there are too many. */
static plan_setting *plan_setting_of(bench *b, plan *out, const char *name, size_t length)
{
    plan_setting *s = plan_find(out, name, length);
    if (s || out->count == COUNT(out->items)) return s;
    s = &out->items[out->count++];
    s->name = arena_copy_text(b->memory, name, length);
    return s;
}

/* What the caller set, where this block knows the name; another block of the file may know the rest. */
static qn_status plan_add_caller(bench *b, plan *out, qn_error *error)
{
    const char *names[512];
    int count = block_names(b->module, b->block, names, COUNT(names));
    for (int i = 0; i < b->options->settings.count; i++) {
        const char *item = b->options->settings.items[i], *equals = strchr(item, '=');
        size_t length = (size_t)(equals - item);
        if (!listed(item, length, names, count)) continue;
        plan_setting *s = plan_setting_of(b, out, item, length);
        if (!s) return too_many(b, error);
        s->choice_count = 1;
        s->words = equals + 1;
    }
    return QN_OK;
}

/* What the caller sweeps, likewise. */
static qn_status plan_add_sweeps(bench *b, plan *out, qn_error *error)
{
    const char *names[512];
    int count = block_names(b->module, b->block, names, COUNT(names));
    for (int i = 0; i < b->options->sweeps.count; i++) {
        const char *item = b->options->sweeps.items[i];
        const plan_setting *leader = NULL;
        for (const char *at = item; *at != '='; at += *at == ',') {
            size_t length = strcspn(at, ",=");
            const char *name = at;
            at += length;
            if (!listed(name, length, names, count)) continue;
            plan_setting *s = plan_setting_of(b, out, name, length);
            if (!s) return too_many(b, error);
            s->words = NULL;
            QN_TRY(sweep_read(b->memory, item, &s->swept, &s->choice_count, error));
            if (leader) s->choice_count = 1; /* it turns with its leader */
            if (leader) s->leader = 1 + (int)(leader - out->items);
            if (!leader) leader = s;
        }
    }
    return QN_OK;
}

qn_status bench_plan_make(bench *b, plan *out, qn_error *error)
{
    *out = (plan){0};
    for (int i = 0; i < b->block->clauses.count; i++) {
        const ast *clause = b->block->clauses.items[i];
        if (!strcmp(clause->word, "settings")) QN_TRY(plan_add_clause(b, out, clause, error));
    }
    for (int i = 0; i < b->block->clauses.count; i++) {
        const ast *clause = b->block->clauses.items[i];
        if (!strcmp(clause->word, "on") && !strcmp(clause->name, b->device))
            QN_TRY(plan_add_clause(b, out, clause, error));
    }
    QN_TRY(plan_add_caller(b, out, error));
    return plan_add_sweeps(b, out, error);
}

int64_t plan_points(const plan *p)
{
    int64_t count = 1;
    for (int i = 0; i < p->count; i++) count *= p->items[i].choice_count;
    return count;
}

static const char *value_words(bench *b, const binding *value)
{
    text words = {0};
    switch (value->kind) {
    case BIND_TYPE: text_add(&words, dtypes[value->type].text); break;
    case BIND_INT: text_print(&words, "%lld", (long long)value->number.i); break;
    case BIND_BOOL: text_add(&words, value->number.i ? "true" : "false"); break;
    case BIND_FLOAT: text_add_double(&words, value->number.f); break;
    case BIND_FUNCTION: text_add(&words, value->function); break;
    }
    const char *copy = arena_copy_text(b->memory, text_get(&words), words.length);
    text_free(&words);
    return copy;
}

/* One expression over the settings before it, or a type. A name that is bound to nothing stands for a function. */
static qn_status evaluate(bench *b, const ast_file *file, const ast *expression, const bindings *known,
                          const char *name, binding *out, qn_error *error)
{
    diagnostics d = {.memory = b->memory};
    const char *unbound = NULL;
    int units = slot_about(b->context, b->slot)->units;
    if (expression->kind == AST_TYPE_NAME && dtype_from_text(expression->word, &out->type)) {
        out->kind = BIND_TYPE;
        return QN_OK;
    }
    if (lang_evaluate(file, expression, known, units, &d, out, &unbound) && !d.errors) return QN_OK;
    if (!d.errors && expression->kind == AST_NAME) {
        *out = (binding){.kind = BIND_FUNCTION, .function = expression->name};
        return QN_OK;
    }
    if (d.errors) return diagnostics_error(&d, file, QN_BAD_SOURCE, error);
    return error_set(error, QN_BAD_SOURCE,
                     "%s:%d:%d: setting `%s` of bench `%s` needs `%s`, which is not set before it", file->path,
                     expression->at.line, expression->at.column, name, b->block->name, unbound ? unbound : "?");
}

static qn_status evaluate_words(bench *b, const char *words, const bindings *known, const char *name, binding *out,
                                qn_error *error)
{
    diagnostics d = {.memory = b->memory};
    dtype type;
    if (dtype_from_text(words, &type)) {
        *out = (binding){.kind = BIND_TYPE, .type = type};
        return QN_OK;
    }
    const char *line = arena_print(b->memory, "const double setting = %s;", lang_setting(b->memory, words));
    ast_file *file = lang_parse(b->memory, "--set", line, strlen(line), &d);
    if (d.errors || file->items.count != 1 || file->items.items[0]->kind != AST_CONSTANT)
        return error_set(error, QN_BAD_CALL, "`%s` in `%s=%s` is neither a number, a type nor a name", words, name,
                         words);
    return evaluate(b, file, file->items.items[0]->left, known, name, out, error);
}

static void point_set(bench *b, point *out, bindings *known, const char *name, binding value)
{
    value.name = name;
    bindings_set(b->memory, known, value);
    out->items[out->count++] = (point_setting){.name = name, .words = value_words(b, &value), .value = value};
}

qn_status plan_point(bench *b, const plan *p, int64_t number, point *out, qn_error *error)
{
    bindings known = {0};
    int64_t choices[64];
    for (int i = p->count - 1; i >= 0; i--) { /* the last set turns fastest */
        choices[i] = number % p->items[i].choice_count;
        number /= p->items[i].choice_count;
    }
    *out = (point){0};
    for (int i = 0; i < p->count; i++) {
        const plan_setting *s = &p->items[i];
        binding value = {0};
        if (s->words || s->swept)
            QN_TRY(evaluate_words(b, s->swept ? s->swept[choices[s->leader ? s->leader - 1 : i]] : s->words, &known,
                                  s->name, &value, error));
        else
            QN_TRY(evaluate(b, b->module->file, s->choices[choices[i]], &known, s->name, &value, error));
        point_set(b, out, &known, s->name, value);
    }
    return QN_OK;
}

static const char *variant_label(bench *b, const ast *variant)
{
    text label = {0};
    if (variant->word && *variant->word) text_print(&label, "%s ", variant->word);
    text_add(&label, variant->name);
    for (int i = 0; i < variant->list.count; i++) {
        text_print(&label, "%s%s = ", i ? ", " : "(", variant->list.items[i]->name);
        if (variant->list.items[i]->left) lang_format_expression(variant->list.items[i]->left, &label);
    }
    if (variant->list.count) text_add(&label, ")");
    const char *copy = arena_copy_text(b->memory, text_get(&label), label.length);
    text_free(&label);
    return copy;
}

/* Results of tensor functions are the `out`s of the first kernel, in order. */
static void name_results(bench *b)
{
    const char *names[MAX_PARAMS]; /* a kernel has no more */
    int count = 0;
    for (int i = 0; i < b->variant_count && !count; i++) {
        const kernel_entry *entry = b->variants[i].is_function || b->variants[i].status == VARIANT_FAILED
                                        ? NULL
                                        : module_find(b->module, b->variants[i].kernel, NULL);
        for (int p = 0; entry && p < entry->param_count; p++)
            if (entry->params[p].kind == PARAM_OUT) names[count++] = entry->params[p].name;
    }
    for (int i = 0; i < b->variant_count && count; i++) {
        bench_variant *v = &b->variants[i];
        kernel_entry *entry = v->is_function ? module_find(b->module, v->kernel, NULL) : NULL;
        if (entry) v->renamed = function_renamed(entry, names, count);
    }
}

/* Do the settings of a variant leave it to the library? */
static bool asks_library(const ast *variant)
{
    for (int i = 0; i < variant->list.count; i++) {
        const ast *s = variant->list.items[i];
        if (!strcmp(s->name, tile_knobs[KNOB_LIBRARY]) && s->left && s->left->kind == AST_NUMBER)
            return s->left->number.i > 0;
    }
    return false;
}

/* The same variant by the library. */
static const ast *peer_of(bench *b, const ast *variant)
{
    ast *peer = ARENA_NEW(b->memory, ast), *setting = ARENA_NEW(b->memory, ast);
    *peer = *variant;
    peer->list = (ast_list){0};
    for (int i = 0; i < variant->list.count; i++)
        ARENA_PUSH(b->memory, peer->list.items, peer->list.count, peer->list.capacity, variant->list.items[i]);
    *setting = (ast){.kind = AST_SETTING, .name = tile_knobs[KNOB_LIBRARY], .word = ""};
    setting->left = ARENA_NEW(b->memory, ast);
    *setting->left = (ast){.kind = AST_NUMBER, .word = "1", .number = {.i = 1}};
    ARENA_PUSH(b->memory, peer->list.items, peer->list.count, peer->list.capacity, setting);
    return peer;
}

void plan_variants(bench *b)
{
    int own = b->block->list.count;
    b->variant_count = b->against_library ? 2 * own : own;
    b->variants = ARENA_ARRAY(b->memory, bench_variant, b->variant_count + 1);
    b->reference = -1;
    for (int i = 0; i < b->variant_count; i++) {
        const ast *written = b->block->list.items[i % own], *item = ast_find(b->module->file, written->name);
        if (i >= own) written = peer_of(b, written);
        bench_variant *v = &b->variants[i];
        *v = (bench_variant){.kernel = written->name,
                             .label = variant_label(b, written),
                             .settings = written->list,
                             .message = "",
                             .max_error = NAN,
                             .flops = NAN,
                             .hot_ns = NAN,
                             .baseline_ns = NAN,
                             .asks_library = i >= own || asks_library(written),
                             .peer = i >= own,
                             .arm.time = time_unknown()};
        v->has_ir = item && item->kind == AST_KERNEL;
        v->is_function = item && item->kind == AST_TENSOR;
        if (v->is_function && written->word && *written->word)
            v->kernel = arena_print(b->memory, "%s %s", written->word, written->name);
        if (!item)
            variant_end(b, v, VARIANT_FAILED, "the file has no kernel `%s`", written->name);
        else if (item->kind != AST_TENSOR && written->word && *written->word)
            variant_end(b, v, VARIANT_FAILED, "`%s` is for tensor functions, and `%s` is a kernel", written->word,
                        written->name);
        else if (item->kind == AST_RAW && !raw_runs_on(item->word, b->context->slots[b->slot].driver->name)) {
            bool cuda = !strcmp(item->word, "cuda");
            v->elsewhere = true;
            variant_end(b, v, VARIANT_SKIPPED, "%s text runs on %s only, and this is %s", cuda ? "cuda" : "C",
                        cuda ? "cuda and emu" : "the cpu device", b->device);
        } else if (item->kind != AST_KERNEL && item->kind != AST_RAW && item->kind != AST_TENSOR)
            variant_end(b, v, VARIANT_FAILED, "`%s` is not a kernel", written->name);
        else if (b->reference < 0 && v->has_ir)
            b->reference = i;
    }
    for (int i = 0; i < b->variant_count && b->reference < 0; i++) /* tensor functions alone */
        if (b->variants[i].is_function && b->variants[i].status == VARIANT_OK) b->reference = i;
    name_results(b);
}

qn_status plan_call(bench *b, const bench_variant *v, const point *at, qn_call **out, qn_error *error)
{
    bindings known = {0};
    QN_TRY(qn_call_new(b->module, v->kernel, out, error));
    if (v->renamed) (*out)->kernel = v->renamed;
    qn_status status = QN_OK;
    for (int i = 0; i < at->count && status == QN_OK; i++) {
        binding value = at->items[i].value;
        bindings_set(b->memory, &known, value);
        if (entry_has((*out)->kernel, at->items[i].name))
            status = qn_call_set_text(*out, at->items[i].name, at->items[i].words, error);
    }
    for (int i = 0; i < v->settings.count && status == QN_OK; i++) {
        const ast *setting = v->settings.items[i];
        binding value = {0};
        if (!setting->left)
            status = error_set(error, QN_BAD_SOURCE, "a variant takes values, not sets: `%s`", setting->name);
        else
            status = evaluate(b, b->module->file, setting->left, &known, setting->name, &value, error);
        if (status == QN_OK) status = qn_call_set_text(*out, setting->name, value_words(b, &value), error);
    }
    if (status != QN_OK) {
        qn_call_free(*out);
        *out = NULL;
    }
    return status;
}

void point_print(const point *at, text *out)
{
    for (int i = 0; i < at->count; i++)
        text_print(out, "%s%s = %s", i ? ", " : "", at->items[i].name, at->items[i].words);
}

/* Extents may shrink; so may constants that are large. Scalars and small constants mean something by their value. */
static bool may_shrink(const bench *b, const point_setting *s)
{
    if (s->value.kind != BIND_INT) return false;
    for (int i = 0; i < b->variant_count; i++) {
        if (b->variants[i].status == VARIANT_SKIPPED) continue;
        const kernel_entry *entry = module_find(b->module, b->variants[i].kernel, NULL);
        const parameter *p = entry ? entry_param(entry, s->name, NULL) : NULL;
        if (p && (!p->constant || s->value.number.i <= 1024)) return false;
    }
    return true;
}

/* The small sizes are moved to where the `assume`s of every variant hold. */
static void obey_assumes(const bench *b, const point *from, point *at)
{
    bindings sizes = {0};
    bool movable[COUNT(at->items)] = {false};
    for (int i = 0; i < at->count; i++) {
        binding value = at->items[i].value;
        value.name = at->items[i].name;
        bindings_set(b->memory, &sizes, value);
        movable[i] = may_shrink(b, &from->items[i]);
    }
    for (int i = 0; i < b->variant_count; i++) {
        const kernel_entry *entry = module_find(b->module, b->variants[i].kernel, NULL);
        if (entry && entry->item && b->variants[i].status != VARIANT_SKIPPED)
            assume_fit(b->module->file, entry->item, &sizes, movable, slot_about(b->context, b->slot)->units,
                       b->memory);
    }
    for (int i = 0; i < at->count; i++) {
        if (!movable[i]) continue;
        at->items[i].value.number.i = sizes.items[i].number.i;
        at->items[i].words = arena_print(b->memory, "%lld", (long long)sizes.items[i].number.i);
    }
}

bool point_shrink(const bench *b, const point *from, bool odd, int attempt, point *out)
{
    /* By how many extents there are: few may be long enough for several blocks, many must be short. */
    static const int64_t sizes[2][4][4] = {{{16384}, {32, 2048}, {32, 64, 48}, {8, 16, 32, 16}},
                                           {{4099}, {19, 1031}, {17, 33, 41}, {3, 5, 9, 17}}};
    static const int64_t factors[] = {1, 2, 4, 16}; /* an `assume` or a relation may ask for larger ones */
    int movable = 0;
    if (attempt >= COUNT(factors)) return false;
    *out = *from;
    for (int i = 0; i < from->count; i++) movable += may_shrink(b, &from->items[i]);
    const int64_t *row = sizes[odd][movable > 4 ? 3 : movable < 1 ? 0 : movable - 1];
    for (int i = 0, position = 0; i < from->count; i++) {
        point_setting *s = &out->items[i];
        if (!may_shrink(b, s)) continue;
        int64_t size = row[position < 4 ? position : 3];
        position++;
        size = odd ? size + attempt : size * factors[attempt];
        if (size >= s->value.number.i) continue;
        s->value.number.i = size;
    }
    obey_assumes(b, from, out);
    return true;
}
