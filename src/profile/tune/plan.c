/*
 * The candidates of a kernel. In: its `tune` clauses, the size, what the caller has fixed. Out: every combination whose
 * conditions hold, the configuration that runs without tuning first, then the others spread evenly, so that any number
 * of them from the front is a fair sample of all.
 * SPDX-License-Identifier: MIT
 */
#include "profile/tune/tune.h"

#include "ir/scalar.h"

#include <math.h>
#include <string.h>

bool tune_is_fixed(const tuning *t, const char *name)
{
    for (int i = 0; i < t->options->settings.count; i++) {
        const char *item = t->options->settings.items[i];
        size_t length = strcspn(item, "=");
        if (strlen(name) == length && !strncmp(item, name, length)) return true;
    }
    return false;
}

static qn_status evaluate_whole(const tuning *t, const ast *expression, const bindings *known, int64_t *out,
                                qn_error *error)
{
    const bench *b = &t->bench;
    diagnostics d = {.memory = b->memory};
    binding value = {0};
    const char *unbound = NULL;
    bool good = lang_evaluate(b->module->file, expression, known, slot_about(b->context, b->slot)->units, &d, &value,
                              &unbound) &&
                !d.errors && (value.kind == BIND_INT || value.kind == BIND_BOOL);
    if (good) {
        *out = value.number.i;
        return QN_OK;
    }
    return error_set(error, QN_BAD_CALL, "%s:%d:%d: `tune` of kernel `%s` is not a whole number here%s%s%s",
                     b->module->path, expression->from.line, expression->from.column, t->entry->name,
                     unbound ? ": it needs `" : "", unbound ? unbound : "", unbound ? "`, set it" : "");
}

/* Knobs are names of how a device goes about it: one that it does not follow is left alone. */
static qn_status find_names(tuning *t, const bindings *known, tune_choice *choices, qn_error *error)
{
    const ast *item = t->entry->item;
    bool cpu = !target_find(t->bench.context->slots[t->bench.slot].driver->name)->threads;
    for (int c = 0; c < item->clauses.count; c++) {
        const ast *clause = item->clauses.items[c];
        for (int i = 0; i < clause->list.count && !strcmp(clause->word, "tune"); i++) {
            const ast *setting = clause->list.items[i];
            const binding *now = bindings_find(known, setting->name);
            if (tune_is_fixed(t, setting->name) && now &&
                now->kind == BIND_INT) /* part of what was timed all the same */
                t->fixed = arena_print(t->bench.memory, "%s %s=%lld", t->fixed ? t->fixed : "", setting->name,
                                       (long long)now->number.i);
            if (tune_is_fixed(t, setting->name) || (cpu && tile_knob_find(setting->name) != KNOB_COUNT)) continue;
            if (t->name_count == TUNE_MOST_NAMES)
                return error_set(error, QN_BAD_SOURCE, "kernel `%s` tunes more than %d names", t->entry->name,
                                 TUNE_MOST_NAMES);
            tune_choice *to = &choices[t->name_count];
            const ast *const *list =
                setting->is_set ? (const ast *const *)setting->list.items : (const ast *const *)&setting->left;
            int count = setting->is_set ? setting->list.count : 1;
            for (int k = 0; k < count && to->count < COUNT(to->values); k++)
                QN_TRY(evaluate_whole(t, list[k], known, &to->values[to->count++], error));
            t->names[t->name_count++] = setting->name;
        }
    }
    return QN_OK;
}

static bindings with_values(const tuning *t, const bindings *known, const int64_t *values)
{
    bindings all = {0};
    for (int i = 0; i < known->count; i++) bindings_set(t->bench.memory, &all, known->items[i]);
    for (int i = 0; i < t->name_count; i++)
        bindings_set(
            t->bench.memory, &all,
            (binding){
                .name = t->names[i], .kind = BIND_INT, .type = DT_I64, .untyped = true, .number = {.i = values[i]}});
    return all;
}

/* The `if` of every `tune` clause. */
static qn_status conditions_hold(const tuning *t, const bindings *known, const int64_t *values, bool *hold,
                                 qn_error *error)
{
    const ast *item = t->entry->item;
    *hold = true;
    bindings all = with_values(t, known, values);
    for (int c = 0; c < item->clauses.count && *hold; c++) {
        const ast *clause = item->clauses.items[c];
        int64_t number = 1;
        if (strcmp(clause->word, "tune") != 0 || !clause->left) continue;
        QN_TRY(evaluate_whole(t, clause->left, &all, &number, error));
        *hold = number != 0;
    }
    return QN_OK;
}

static candidate *add(tuning *t, const int64_t *values)
{
    candidate *c = &t->items[t->count++];
    *c = (candidate){.message = "", .median_ns = NAN, .low_ns = NAN, .high_ns = NAN};
    memcpy(c->values, values, sizeof(c->values));
    text words = {0};
    for (int i = 0; i < t->name_count; i++)
        text_print(&words, "%s%s=%lld", i ? " " : "", t->names[i], (long long)values[i]);
    if (t->fixed) text_add(&words, t->fixed);
    c->words = arena_copy_text(t->bench.memory, text_get(&words), words.length);
    text_free(&words);
    return c;
}

static int library_of(const tuning *t)
{
    for (int i = 0; i < t->name_count; i++)
        if (!strcmp(t->names[i], tile_knobs[KNOB_LIBRARY])) return i;
    return -1;
}

/* What the library computes has none of the kernel's own numbers: each of its ways is tried with those of the default. */
static bool is_of_library(const tuning *t, const int64_t *values, bool *again)
{
    int library = library_of(t);
    *again = false;
    if (library < 0 || !values[library]) return false;
    for (int i = 0; i < t->name_count; i++) *again |= i != library && values[i] != t->items[0].values[i];
    return true;
}

/* Ways of the library are tried before everything that the kernel could be, right behind the default. Returns how many come
 * first with it. */
static int put_library_first(tuning *t)
{
    bool unread;
    int to = 1;
    for (int i = 1; i < t->count; i++) {
        candidate one = t->items[i];
        if (!is_of_library(t, one.values, &unread)) continue;
        memmove(&t->items[to + 1], &t->items[to], sizeof(one) * (size_t)(i - to));
        t->items[to++] = one;
    }
    return to;
}

/* Everything but the first so many, in steps of about 0.62 of their number, which meets each once. */
static void spread_out(tuning *t, int first)
{
    int others = t->count - first, step = (int)(0.618 * others);
    if (others < 3) return;
    while (step < 1 || scalar_greatest_divisor(step, others) != 1) step++;
    candidate *old = ARENA_ARRAY(t->bench.memory, candidate, others);
    memcpy(old, t->items + first, sizeof(*old) * (size_t)others);
    for (int i = 0; i < others; i++) t->items[first + i] = old[(int64_t)(i + 1) * step % others];
}

qn_status tune_plan(tuning *t, qn_error *error)
{
    bench *b = &t->bench;
    bindings known = {0}, constants = {0}, extents = {0};
    tune_choice *choices = ARENA_ARRAY(b->memory, tune_choice, TUNE_MOST_NAMES);
    /* What the kernel is without tuning: its constants, and the names that conditions may use. */
    qn_call *call;
    bench_variant plain = {.kernel = t->entry->name};
    QN_TRY(plan_call(b, &plain, &b->at, &call, error));
    qn_status status = call_constants(call, &call->settings, slot_about(b->context, b->slot)->units, b->memory,
                                      &constants, &extents, error);
    if (status == QN_OK) {
        for (int i = 0; i < call->settings.count; i++) {
            binding item = call->settings.items[i];
            item.name = arena_copy_text(b->memory, item.name, strlen(item.name));
            bindings_set(b->memory, &known, item);
        }
        for (int i = 0; i < extents.count; i++) bindings_set(b->memory, &known, extents.items[i]);
        for (int i = 0; i < constants.count; i++) bindings_set(b->memory, &known, constants.items[i]);
    }
    qn_call_free(call);
    QN_TRY(status);
    QN_TRY(find_names(t, &known, choices, error));
    tune_add_schedules(t, choices);
    if (!t->name_count)
        return error_set(error, QN_BAD_CALL,
                         "there is nothing to tune in kernel `%s`: list candidates of its constants, such as `tune "
                         "(BLOCK in {256, 1024})`%s",
                         t->entry->name, clause_of(t->entry->item, "tune") ? ", or set fewer of them" : "");
    int64_t total = 1, values[TUNE_MOST_NAMES] = {0};
    for (int i = 0; i < t->name_count; i++) total *= MAXIMUM(choices[i].count, 1);
    if (total > TUNE_MOST_CANDIDATES)
        return error_set(error, QN_BAD_CALL, "kernel `%s` has %lld combinations to tune; fix some of them with --set",
                         t->entry->name, (long long)total);
    t->items = ARENA_ARRAY(b->memory, candidate, total + 1);
    for (int i = 0; i < t->name_count; i++) { /* a knob that is not set is 0: as the rule has it */
        const binding *now = bindings_find(&known, t->names[i]);
        values[i] = now && now->kind == BIND_INT ? now->number.i : 0;
    }
    add(t, values)->is_default = true;
    for (int64_t number = 0; number < total; number++) {
        int64_t rest = number;
        for (int i = t->name_count - 1; i >= 0; i--) {
            values[i] = choices[i].values[rest % choices[i].count];
            rest /= choices[i].count;
        }
        bool hold, again;
        (void)is_of_library(t, values, &again);
        if (again) continue;
        QN_TRY(conditions_hold(t, &known, values, &hold, error));
        if (hold && memcmp(values, t->items[0].values, sizeof(values)) != 0) add(t, values);
    }
    spread_out(t, put_library_first(t));
    return QN_OK;
}

static ast *node(const tuning *t, ast_kind kind, const char *name)
{
    ast *n = ARENA_NEW(t->bench.memory, ast);
    n->kind = kind;
    n->name = name;
    n->word = "";
    return n;
}

ast *tune_block(tuning *t, const int *numbers, int count)
{
    const ast *own = bench_of(t->bench.module->file, t->entry->name);
    ast *block = node(t, AST_BENCH, t->entry->name);
    if (own) block->clauses = own->clauses;
    for (int i = 0; i < MAXIMUM(count, 1); i++) {
        ast *variant = node(t, AST_VARIANT, t->entry->name);
        for (int k = 0; k < t->name_count && i < count; k++) {
            ast *setting = node(t, AST_SETTING, t->names[k]);
            setting->left = node(t, AST_NUMBER, NULL);
            setting->left->number.i = t->items[numbers[i]].values[k];
            setting->left->word = arena_print(t->bench.memory, "%lld", (long long)t->items[numbers[i]].values[k]);
            ARENA_PUSH(t->bench.memory, variant->list.items, variant->list.count, variant->list.capacity, setting);
        }
        ARENA_PUSH(t->bench.memory, block->list.items, block->list.count, block->list.capacity, variant);
    }
    return block;
}
