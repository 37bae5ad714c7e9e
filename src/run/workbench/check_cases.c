/*
 * Which cases `check` runs. In: a kernel as written. Out: sizes for every extent that needs one (odd, even, one, zero,
 * larger than the usual blocks), every type of its generic parameters, some candidates of `tune` and of its bench, and
 * a value for scalars and constants that have no default: the bench's, else a small one.
 * The choice depends on the kernel's text alone, so that a finding comes back.
 * SPDX-License-Identifier: MIT
 */
#include "run/workbench/check.h"

#include <stdlib.h>
#include <string.h>

#define MAX_NAMES 16

/* What must be chosen for one kernel. */
typedef struct choice {
    const kernel_entry *entry;
    arena *memory;
    const char *sizes[MAX_NAMES]; /* extents, and constants or scalars that are one, without a default */
    int size_count;
    const char *types[4]; /* generic type names */
    int type_count;
    bool indexes;    /* an integer input has no generator: its 0 and 1 may be indices, so no extent is one */
    bool integers;   /* an array of integers is read */
    check_case base; /* scalars and constants that are the same in every case */
} choice;

static bool is_fixed(const qn_settings *fixed, const char *name)
{
    size_t length = strlen(name);
    for (int i = 0; i < fixed->count; i++)
        if (!strncmp(fixed->items[i], name, length) && fixed->items[i][length] == '=') return true;
    return false;
}

static void put(check_case *c, const char *name, const char *words)
{
    for (int i = 0; i < c->count; i++)
        if (!strcmp(c->names[i], name)) {
            c->values[i] = words;
            return;
        }
    if (c->count == MAX_PARAMS) return;
    c->names[c->count] = name;
    c->values[c->count++] = words;
}

static const char *binding_words(const binding *b, arena *memory)
{
    switch (b->kind) {
    case BIND_TYPE: return dtypes[b->type].text;
    case BIND_FUNCTION: return b->function;
    case BIND_BOOL: return b->number.i ? "true" : "false";
    case BIND_INT: return arena_print(memory, "%lld", (long long)b->number.i);
    case BIND_FLOAT: return arena_print(memory, "%.17g", b->number.f);
    }
    return "0";
}

static const char *setting_words(const ast_file *file, const ast *setting, int units, arena *memory)
{
    const ast *expression = setting->is_set && setting->list.count ? setting->list.items[0] : setting->left;
    diagnostics d = {.memory = memory};
    binding b = {0};
    bindings nothing = {0};
    const char *unbound = NULL;
    if (!expression) return NULL;
    if (expression->kind == AST_NAME) { /* a function, or a constant of the file */
        const ast *item = ast_find(file, expression->name);
        if (!item || item->kind != AST_CONSTANT) return expression->name;
    }
    if (expression->kind == AST_TYPE_NAME) return expression->word;
    if (!lang_evaluate(file, expression, &nothing, units, &d, &b, &unbound) || d.errors) return NULL;
    return binding_words(&b, memory);
}

const char *check_bench_words(const ast_file *file, const char *kernel, const char *name, int units, arena *memory)
{
    const ast *bench = bench_of(file, kernel), *clause = clause_of(bench, "settings");
    for (int i = 0; clause && i < clause->list.count; i++)
        if (!strcmp(clause->list.items[i]->name, name))
            return setting_words(file, clause->list.items[i], units, memory);
    for (int v = 0; bench && v < bench->list.count; v++) {
        const ast *variant = bench->list.items[v];
        for (int i = 0; !strcmp(variant->name, kernel) && i < variant->list.count; i++)
            if (!strcmp(variant->list.items[i]->name, name))
                return setting_words(file, variant->list.items[i], units, memory);
    }
    return NULL;
}

const char *check_bench_words_on(const ast_file *file, const char *kernel, const char *name, const char *device,
                                 int units, arena *memory)
{
    const ast *bench = bench_of(file, kernel);
    for (int c = 0; bench && c < bench->clauses.count; c++) {
        const ast *clause = bench->clauses.items[c];
        if (strcmp(clause->word, "on") || strncmp(device, clause->name, strlen(clause->name))) continue;
        for (int i = 0; i < clause->list.count; i++)
            if (!strcmp(clause->list.items[i]->name, name))
                return setting_words(file, clause->list.items[i], units, memory);
    }
    return check_bench_words(file, kernel, name, units, memory);
}

static bool is_extent_name(const kernel_entry *e, const char *name)
{
    const ast *item = e->item;
    for (int i = 0; item && i < item->list.count; i++)
        for (int k = 0; e->params[i].kind != PARAM_SCALAR && k < item->list.items[i]->list.count; k++) {
            const ast *extent = item->list.items[i]->list.items[k];
            if (extent->kind == AST_NAME && !strcmp(extent->name, name)) return true;
        }
    return false;
}

static bool has_default(const kernel_entry *e, int param)
{
    if (e->item) return param < e->item->list.count && e->item->list.items[param]->left != NULL;
    for (int i = 0; i < e->dump->param_count; i++)
        if (!strcmp(e->dump->params[i].name, e->params[param].name)) return e->dump->params[i].has_default;
    return false;
}

static void add_size(choice *c, const char *name)
{
    for (int i = 0; i < c->size_count; i++)
        if (!strcmp(c->sizes[i], name)) return;
    if (c->size_count < MAX_NAMES) c->sizes[c->size_count++] = name;
}

static void gather(choice *c, const qn_settings *fixed, int units)
{
    const kernel_entry *e = c->entry;
    const ast_file *file = e->module->file;
    for (int i = 0; i < e->name_count; i++) {
        const char *name = e->names[i];
        int number;
        const parameter *p = entry_param(e, name, &number);
        if (is_fixed(fixed, name)) continue;
        if (p && p->rank >= 0) continue;
        bool generic = false;
        for (int k = 0; !p && k < e->param_count; k++)
            generic |= e->params[k].generic && !strcmp(e->params[k].type, name);
        if (generic) {
            if (c->type_count < COUNT(c->types)) c->types[c->type_count++] = name;
            continue;
        }
        if (!p) {
            const ast *tune = e->item ? clause_of(e->item, "tune") : NULL;
            bool knob = false;
            for (int k = 0; tune && k < tune->list.count; k++) knob |= !strcmp(tune->list.items[k]->name, name);
            if (!knob) add_size(c, name);
            continue;
        }
        if (has_default(e, number)) continue;
        bool integer = !p->function && (p->generic ? false : dtype_is_integer(p->elem));
        if (integer && is_extent_name(e, name)) {
            add_size(c, name);
            continue;
        }
        const char *words = file ? check_bench_words(file, e->name, name, units, c->memory) : NULL;
        if (!words) words = p->function ? "relu" : p->elem == DT_BOOL && !p->generic ? "true" : integer ? "2" : "0.5";
        put(&c->base, name, words);
    }
}

/* Does an integer input lack an `input` clause? */
static bool has_plain_indices(const kernel_entry *e)
{
    const ast *clause = clause_of(bench_of(e->module->file, e->name), "input");
    for (int i = 0; i < e->param_count; i++) {
        const parameter *p = &e->params[i];
        if (p->rank < 0 || p->generic || !dtype_is_integer(p->elem) || p->kind != PARAM_IN) continue;
        bool given = false;
        for (int s = 0; clause && s < clause->list.count; s++) given |= !strcmp(clause->list.items[s]->name, p->name);
        if (!given) return true;
    }
    return false;
}

static bool has_integers(const kernel_entry *e)
{
    for (int i = 0; i < e->param_count; i++) {
        const parameter *p = &e->params[i];
        bool is_read = p->rank >= 0 && (p->kind == PARAM_IN || p->kind == PARAM_INOUT);
        if (is_read && !p->generic && dtype_is_integer(p->elem)) return true;
    }
    return false;
}

static bool same_case(const check_case *a, const check_case *b)
{
    bool same = a->count == b->count && a->on_devices == b->on_devices && a->strided == b->strided &&
                a->whole == b->whole && a->as_cuda == b->as_cuda;
    for (int i = 0; same && i < a->count; i++)
        same = !strcmp(a->names[i], b->names[i]) && !strcmp(a->values[i], b->values[i]);
    return same;
}

/* Moves the case's sizes to where the kernel's `assume`s hold. */
static void obey_assumes(const choice *c, check_case *to, int units)
{
    bindings sizes = {0};
    bool movable[MAX_PARAMS] = {false};
    for (int n = 0; n < to->count; n++) {
        char *end;
        long long value = strtoll(to->values[n], &end, 10);
        if (*end || end == to->values[n]) continue;
        bindings_set(c->memory, &sizes,
                     (binding){.name = to->names[n], .kind = BIND_INT, .type = DT_I64, .number = {.i = value}});
        for (int s = 0; s < c->size_count; s++) movable[sizes.count - 1] |= !strcmp(c->sizes[s], to->names[n]);
    }
    int known = sizes.count;
    assume_fit(c->entry->module->file, c->entry->item, &sizes, movable, units, c->memory);
    for (int i = 0; i < known; i++)
        if (movable[i])
            put(to, sizes.items[i].name, arena_print(c->memory, "%lld", (long long)sizes.items[i].number.i));
    for (int n = 0; n < to->count && to->empty; n++)
        if (!strcmp(to->names[n], to->empty) && strcmp(to->values[n], "0")) to->empty = NULL;
}

static check_case *add_case(const choice *c, check_cases *out)
{
    ARENA_PUSH(c->memory, out->items, out->count, out->capacity, c->base);
    return &out->items[out->count - 1];
}

static void put_size(const choice *c, check_case *to, int number, int64_t size)
{
    if (c->indexes && size == 1) size = 2;
    put(to, c->sizes[number], arena_print(c->memory, "%lld", (long long)size));
    if (size == 0) to->empty = c->sizes[number];
}

static void put_types(const choice *c, check_case *to, const char *type)
{
    for (int i = 0; i < c->type_count; i++) put(to, c->types[i], type);
}

/* Sizes of the n-th extent in each pattern; small ones for kernels of many extents. */
static const int64_t sizes_of_one[] = {1, 3, 8, 17, 64, 100, 1024, 1025, 4999, 2, 16, 5, 7, 33};
static const int64_t sizes_of_two[][2] = {{1, 1},  {3, 5},   {8, 16}, {17, 33}, {5, 1100}, {64, 64},
                                          {33, 2}, {1, 100}, {7, 1},  {16, 3},  {100, 17}, {300, 7}};
static const int64_t sizes_of_three[][3] = {{1, 1, 1},      {3, 5, 7},    {8, 16, 8}, {17, 5, 33},
                                            {130, 70, 260}, {64, 64, 64}, {33, 1, 2}, {2, 100, 3}};
static const int64_t sizes_of_many[][8] = {
    {1, 1, 1, 1, 1, 1, 1, 1},         {3, 5, 2, 7, 3, 5, 2, 7},  {4, 8, 2, 4, 4, 8, 2, 4},
    {2, 3, 9, 7, 4, 3, 2, 5},         {5, 3, 17, 8, 2, 3, 5, 1}, {1, 2, 6, 8, 3, 2, 3, 2},
    {16, 16, 16, 16, 16, 16, 16, 16}, {8, 8, 8, 8, 8, 8, 8, 8},  {3, 1, 5, 5, 2, 3, 3, 1}};

static int pattern_count(int names)
{
    return names == 0   ? 1
           : names == 1 ? COUNT(sizes_of_one)
           : names == 2 ? COUNT(sizes_of_two)
           : names == 3 ? COUNT(sizes_of_three)
                        : COUNT(sizes_of_many);
}

static int64_t pattern_size(int names, int pattern, int number)
{
    if (names == 1) return sizes_of_one[pattern];
    if (names == 2) return sizes_of_two[pattern][number];
    if (names == 3) return sizes_of_three[pattern][number];
    return sizes_of_many[pattern][number % 8];
}

/* Of a tensor function, which is computed op by op: tensors of all sizes together stay small enough for an interpreter. */
#define MOST_TOGETHER ((int64_t)1 << 17)

static void put_pattern(const choice *c, check_case *to, int pattern)
{
    int64_t sizes[MAX_PARAMS], product = 1;
    int count = MINIMUM(c->size_count, (int)COUNT(sizes));
    for (int i = 0; i < count; i++) product *= sizes[i] = pattern_size(c->size_count, pattern, i);
    while (c->entry->item && c->entry->item->kind == AST_TENSOR && count <= 3 && product > MOST_TOGETHER) {
        int largest = 0;
        for (int i = 1; i < count; i++)
            if (sizes[i] > sizes[largest]) largest = i;
        product = product / sizes[largest] * (sizes[largest] / 2);
        sizes[largest] /= 2;
    }
    for (int i = 0; i < count; i++) put_size(c, to, i, sizes[i]);
}

/* The types that T ranges over: its `types` clause, else the floats. */
static int types_of(const choice *c, const char *types[DT_COUNT])
{
    static const char *const floats[] = {"f32", "bf16", "f64", "f16"};
    const ast *clause = c->entry->item ? clause_of(c->entry->item, "types") : NULL;
    int count = 0;
    for (int s = 0; clause && c->type_count && s < clause->list.count; s++) {
        const ast *setting = clause->list.items[s];
        if (strcmp(setting->name, c->types[0])) continue;
        for (int i = 0; i < setting->list.count && count < DT_COUNT; i++)
            if (setting->list.items[i]->word) types[count++] = setting->list.items[i]->word;
    }
    if (!count)
        for (; count < COUNT(floats); count++) types[count] = floats[count];
    return count;
}

/* The k-th candidate of each tuned constant, or a variant's settings; false when there is none. */
static bool put_tuned(const choice *c, check_case *to, int number, const qn_settings *fixed, int units)
{
    const ast_file *file = c->entry->module->file;
    const ast *tune = clause_of(c->entry->item, "tune");
    bool any = false;
    for (int s = 0; tune && number < 2 && s < tune->list.count; s++) {
        const ast *setting = tune->list.items[s];
        int count = setting->list.count;
        if (!count || is_fixed(fixed, setting->name) || !entry_param(c->entry, setting->name, NULL)) continue;
        ast one = *setting;
        one.list.items += number ? count - 1 : 0; /* the first of each, then the last of each */
        const char *words = setting_words(file, &one, units, c->memory);
        if (words) put(to, setting->name, words);
        any |= words != NULL;
    }
    if (number < 2) return any;
    const ast *bench = bench_of(file, c->entry->name);
    int at = 2;
    for (int v = 0; bench && v < bench->list.count; v++) {
        const ast *variant = bench->list.items[v];
        if (strcmp(variant->name, c->entry->name) || !variant->list.count || at++ != number) continue;
        for (int i = 0; i < variant->list.count; i++) {
            const char *words = setting_words(file, variant->list.items[i], units, c->memory);
            if (words && !is_fixed(fixed, variant->list.items[i]->name)) put(to, variant->list.items[i]->name, words);
        }
        return true;
    }
    return false;
}

void check_choose(const kernel_entry *entry, const qn_settings *fixed, int units, arena *memory, check_cases *out)
{
    choice c = {.entry = entry, .memory = memory};
    gather(&c, fixed, units);
    c.indexes = has_plain_indices(entry);
    c.integers = has_integers(entry);
    const char *types[DT_COUNT];
    int type_count = types_of(&c, types), patterns = pattern_count(c.size_count);
    /* Compiling costs more than running: the other devices see a choice of the sizes. */
    for (int i = 0; i < patterns; i++) {
        check_case *one = add_case(&c, out);
        put_types(&c, one, types[0]);
        put_pattern(&c, one, i);
        one->on_devices = patterns == 1 || (i > 0 && i < 5) || i == 7;
        one->strided = i == 1 || i == 3;
        one->whole = c.integers && i % 2 == 0 && i;
        one->as_cuda = i == MINIMUM(patterns, 4) - 1; /* odd, and more than a few threads */
    }
    for (int t = 1; c.type_count && t < type_count; t++)
        for (int i = 1; i < MINIMUM(patterns, 3); i++) {
            check_case *one = add_case(&c, out);
            put_types(&c, one, types[t]);
            put_pattern(&c, one, i);
            one->again = true;
            one->on_devices = i == 1 + t % 2;
            dtype elem;
            one->whole = i == 2 && dtype_from_text(types[t], &elem) && dtype_is_integer(elem);
        }
    if (c.integers && patterns == 1) {
        check_case *one = add_case(&c, out);
        put_types(&c, one, types[0]);
        one->whole = one->on_devices = true;
    }
    for (int k = 0; entry->item && k < 6; k++)
        for (int i = MINIMUM(patterns, 5) - 1; i >= 0 && i > MINIMUM(patterns, 5) - 3; i--) {
            check_case trial = c.base;
            if (!put_tuned(&c, &trial, k, fixed, units)) break;
            check_case *one = add_case(&c, out);
            *one = trial;
            put_types(&c, one, types[0]);
            put_pattern(&c, one, i);
            one->on_devices = i == MINIMUM(patterns, 5) - 1;
        }
    for (int z = 0, zeros = 0; z < c.size_count && zeros < 3; z++) {
        if (entry_param(entry, c.sizes[z], NULL)) continue; /* a constant extent is at least one */
        check_case *one = add_case(&c, out);
        put_types(&c, one, types[0]);
        put_pattern(&c, one, MINIMUM(patterns, 2) - 1);
        put_size(&c, one, z, 0);
        one->on_devices = zeros++ == 0;
    }
    int kept = 0;
    for (int i = 0; i < out->count; i++) { /* cases that an `assume` made alike are one */
        bool known = false;
        if (entry->item) obey_assumes(&c, &out->items[i], units);
        for (int k = 0; k < kept; k++) known |= same_case(&out->items[k], &out->items[i]);
        if (!known) out->items[kept++] = out->items[i];
    }
    out->count = kept;
}

void check_describe(const check_case *c, text *out)
{
    for (int i = 0; i < c->count; i++) text_print(out, "%s%s=%s", i ? " " : "", c->names[i], c->values[i]);
    if (c->whole) text_print(out, "%sintegers of any size", c->count ? ", " : "");
}
