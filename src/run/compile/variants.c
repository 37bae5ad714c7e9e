/*
 * Variants: an instance compiled for one device under the facts of a launch. In: a bound call. Out: the variant whose
 * facts are those of this launch, compiled now if there is none. At most eight per instance and device: the eighth
 * assumes nothing and serves every launch that fits none of the others, so a program can never compile without end.
 * SPDX-License-Identifier: MIT
 */
#include "run/workbench/texts.h"
#include "passes/passes.h"

#include <stdlib.h>
#include <string.h>

static const tile_facts unknown = {.size_class = -1};

void instance_free(instance *i, qn_context *context)
{
    for (int slot = 0; slot < context->slot_count; slot++)
        for (int n = 0; n < i->variant_count[slot]; n++) {
            variant *v = i->variants[slot][n];
            texts_retire(context, slot, v);
            context->slots[slot].driver->unload(v->program);
            arena_free(v->memory);
            heap_free(v);
        }
    text_free(&i->warnings);
    arena_free(i->memory);
    heap_free(i);
}

void drop_numbers(const qn_call *call, tile_facts *facts)
{
    const tile_kernel *k = call->instance->kernel;
    /* Numbers that fusion passes (how many parts a sum has) follow the sizes. */
    for (int i = 0; i < k->param_count && call->kernel->dump; i++) {
        if (k->params[i].kind != PARAM_SCALAR || call->instance->uses[i] & (EXTENT_OF_ARRAY | EXTENT_OF_TILE)) continue;
        facts[i].one = false;
        if (!(call->instance->uses[i] & EXTENT_OF_MASK)) facts[i].by16 = facts[i].by8 = facts[i].by4 = false;
    }
}

void launch_facts(const qn_call *call, tile_facts *facts)
{
    const device_slot *s = &call->context->slots[call->slot];
    const tile_kernel *k = call->instance->kernel;
    for (int i = 0; i < k->param_count; i++) facts[i] = unknown;
    if (!s->driver->choose_facts || k->raw_language) return; /* the text of a raw kernel is as it is */
    tile_param params[MAX_PARAMS];
    memcpy(params, k->params, sizeof(params[0]) * (size_t)k->param_count);
    tile_kernel probe = *k; /* the driver writes into its parameters only */
    probe.params = params;
    for (int i = 0; i < k->param_count; i++) params[i].facts = unknown;
    s->driver->choose_facts(s->device, &probe, call->views, &call->plan);
    for (int i = 0; i < k->param_count; i++) facts[i] = params[i].facts;
    extent_facts(k, call->instance->uses, &call->plan, facts);
    drop_numbers(call, facts);
}

static bool same_facts(const tile_facts *a, const tile_facts *b)
{
    return a->last_unit == b->last_unit && a->contiguous == b->contiguous && a->aligned == b->aligned &&
           a->bulk == b->bulk && a->backwards == b->backwards && a->small == b->small && a->streams == b->streams &&
           a->one == b->one && facts_divisor(a) == facts_divisor(b) && a->size_class == b->size_class;
}

static bool fits(const variant *v, const tile_facts *facts, int count)
{
    for (int i = 0; i < count; i++)
        if (!same_facts(&v->kernel->params[i].facts, &facts[i])) return false;
    return true;
}

void facts_print(const tile_kernel *k, const tile_facts *facts, text *out)
{
    const char *gap = "";
    for (int i = 0; i < k->param_count; i++) {
        const tile_facts *f = &facts[i];
        const struct {
            bool holds;
            const char *word;
        } words[] = {{f->contiguous, "contiguous"},
                     {f->last_unit && !f->contiguous, "last_unit"},
                     {f->aligned, "aligned"},
                     {f->bulk, "bulk"},
                     {f->backwards, "backwards"},
                     {f->small, "small"},
                     {f->streams, "streams"},
                     {f->one, "one"},
                     {f->by16, "by16"},
                     {f->by8, "by8"},
                     {f->by4, "by4"}};
        for (int w = 0; w < COUNT(words); w++) {
            if (!words[w].holds) continue;
            text_print(out, "%s%s.%s", gap, k->params[i].name, words[w].word);
            gap = " ";
        }
        if (k->params[i].kind < PARAM_SCALAR || f->size_class < 0) continue;
        text_print(out, "%s%s.class=%d", gap, k->params[i].name, f->size_class);
        gap = " ";
    }
}

/* One sentence: what made this variant necessary, next to the nearest earlier one. */
static char *explain(const instance *i, int slot, const char *facts, bool assumes_nothing, arena *memory)
{
    int count = i->variant_count[slot], nearest = -1, least = 0;
    if (!count) return arena_print(memory, "the first launch of these constants and types");
    if (assumes_nothing)
        return arena_print(
            memory, "there are %d variants already: this one assumes nothing and serves all other launches", count);
    for (int n = 0; n < count; n++) {
        int distance = facts_distance(facts, i->variants[slot][n]->facts_words);
        if (nearest >= 0 && distance >= least) continue;
        nearest = n;
        least = distance;
    }
    text words = {0};
    facts_differ(facts, i->variants[slot][nearest]->facts_words, &words);
    char *why = arena_print(memory, "unlike variant %d: %s", nearest + 1, text_get(&words));
    text_free(&words);
    return why;
}

/* A variant that some thread is compiling, with the context's lock released. */
typedef struct pending_variant {
    struct pending_variant *next;
    const instance *instance;
    int slot;
    bool checked;
    const tile_facts *facts;
} pending_variant;

/* How many of this instance are being compiled; *same: one of them is for these facts. */
static int pending_count(const qn_call *call, const tile_facts *facts, bool *same)
{
    int count = 0;
    *same = false;
    for (const pending_variant *p = call->context->pending; p; p = p->next) {
        if (p->instance != call->instance || p->slot != call->slot) continue;
        if (p->checked != call->context->slots[call->slot].checked) continue;
        bool equal = true;
        for (int i = 0; i < call->instance->kernel->param_count && equal; i++)
            equal = same_facts(&p->facts[i], &facts[i]);
        *same |= equal;
        count++;
    }
    return count;
}

/* Those whose accesses are tested, or are not, as the device has it now: either kind has one that serves all launches. */
static int kind_count(const qn_call *call)
{
    const instance *i = call->instance;
    int count = 0;
    for (int n = 0; n < i->variant_count[call->slot]; n++)
        count += i->variants[call->slot][n]->checked == call->context->slots[call->slot].checked;
    return count;
}

/* Puts a compiled variant into its table. The lock is held. */
static void add(qn_call *call, const tile_facts *facts, bool nothing, variant *v)
{
    instance *i = call->instance;
    int count = i->variant_count[call->slot];
    CHECK(count < COUNT(i->variants[call->slot]));
    text words = {0};
    facts_print(i->kernel, facts, &words);
    v->assumes_nothing = nothing;
    v->checked = call->context->slots[call->slot].checked;
    v->facts_words = arena_copy_text(v->memory, text_get(&words), words.length);
    v->why = explain(i, call->slot, v->facts_words, nothing, v->memory);
    text_free(&words);
    i->variants[call->slot][count] = v;
    i->variant_count[call->slot] = count + 1;
    const driver *d = call->context->slots[call->slot].driver;
    if (d->emit) why_record(call->context, call->kernel, d->name, i->key, v->facts_words);
    context_log(call->context, LOG_COMPILE, "compile: %s variant %d for {%s}: %s", call->kernel->name, count + 1,
                v->facts_words, v->why);
    call->timing.compile_ns = v->compile_ns;
    call->timing.load_ns = v->load_ns;
    call->timing.from_cache = v->from_cache;
}

static variant *find(const qn_call *call, const tile_facts *facts)
{
    const instance *i = call->instance;
    for (int n = 0; n < i->variant_count[call->slot]; n++) {
        variant *v = i->variants[call->slot][n];
        if (v->checked != call->context->slots[call->slot].checked) continue;
        if (v->assumes_nothing || !call->context->slots[call->slot].driver->emit ||
            fits(v, facts, i->kernel->param_count))
            return v;
    }
    return NULL;
}

qn_status variant_get(qn_call *call, variant **out, qn_error *error)
{
    instance *i = call->instance;
    qn_context *context = call->context;
    tile_facts facts[MAX_PARAMS] = {0};
    if (call->kernel->dump) QN_TRY(facts_check(call, call->kernel->dump, error));
    launch_facts(call, facts);
    lock_take(&context->lock);
    variant *found;
    int others = 0;
    for (bool same; !(found = find(call, facts)); pthread_cond_wait(&context->compiled, &context->lock)) {
        others = pending_count(call, facts, &same);
        /* With all places but the last taken or promised, see first whether one of the others serves. */
        bool full = others && others + kind_count(call) >= MAX_VARIANTS - 1;
        if (!same && !full) break;
    }
    qn_status status = QN_OK;
    if (!found) {
        bool nothing = kind_count(call) + others == MAX_VARIANTS - 1;
        for (int p = 0; p < i->kernel->param_count && nothing; p++) facts[p] = unknown;
        pending_variant mine = {.next = context->pending, .instance = i, .slot = call->slot, .facts = facts};
        mine.checked = context->slots[call->slot].checked;
        context->pending = &mine;
        if (context->slots[call->slot].driver->emit) (void)context_cache(context); /* opened under the lock */
        lock_give(&context->lock);
        status = variant_compile(context, call->slot, i, facts, &found, error);
        lock_take(&context->lock);
        pending_variant **at = &context->pending;
        while (*at != &mine) at = &(*at)->next;
        *at = mine.next;
        if (status == QN_OK) add(call, facts, nothing, found);
        pthread_cond_broadcast(&context->compiled);
    }
    lock_give(&context->lock);
    if (status == QN_OK) *out = found;
    return status;
}

qn_status facts_check(const qn_call *call, const tile_kernel *k, qn_error *error)
{
    for (int i = 0; i < k->param_count; i++) {
        const tile_facts *f = &k->params[i].facts;
        const array_view *v = &call->views[i];
        int64_t number = call->plan.scalars_bits[i];
        const char *broken = NULL;
        if (k->params[i].kind < PARAM_SCALAR) {
            if (f->contiguous && !view_is_row_major(v)) broken = "contiguous";
            if (f->last_unit && !view_has_unit_lines(v)) broken = "of unit stride on its last axis";
            if (f->aligned && !view_is_aligned(v, 64)) broken = "aligned to 64 bytes";
            bool bulk = k->params[i].digits ? (uintptr_t)v->data % 16 == 0 : view_is_bulk(v);
            if (f->bulk && !bulk) broken = "laid out for bulk copies (strides and address multiples of 16 bytes)";
            if (f->backwards && !view_is_backwards(v)) broken = "backwards in vectors of 16 bytes";
            int64_t reach = k->params[i].digits ? view_count(v) : view_span(v);
            if (f->small && reach >= (int64_t)1 << 31) broken = "within 2^31 elements of memory";
        } else {
            if (f->one && number != 1) broken = "one";
            if (number % facts_divisor(f))
                broken = f->by16 ? "divisible by 16" : f->by8 ? "divisible by 8" : "divisible by 4";
            if (f->size_class >= 0 && !size_class_holds(f->size_class, number)) broken = "in another size class";
        }
        if (broken)
            return entry_error(call->kernel, QN_BAD_CALL, E503, (place){0},
                               "dump it again for these arguments, or an earlier stage", error,
                               "this dump was specialised: it assumes that `%s` is %s", k->params[i].name, broken);
    }
    return QN_OK;
}
