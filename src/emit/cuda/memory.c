/*
 * Loads, stores and atomics of a pass, as CUDA text. In: an address (cuda/access.c) and a value. Out: statements at
 * the level they belong to: loads whose addresses need positions alone go early, several at once; whole vectors are
 * written late. A vector that reaches over an end is taken apart; an element outside its array is never touched.
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/nest.h"

#include <string.h>

const char *element_pointer(emitter *e, const caddress *a, bool element)
{
    const char *words = cjoin(e, a->pointer, "+", a->chunk);
    return element ? cjoin(e, words, "+", a->element) : words;
}

const char *address_fetch(emitter *e, const caddress *a, const char *pointer)
{
    return arena_print(e->memory, "%s(%s)", need(e, "read_%s", memory_name(a->elem)), pointer);
}

const char *or_zero(emitter *e, const char *condition, const char *words)
{
    return condition ? arena_print(e->memory, "%s ? %s : 0", condition, words) : words;
}

static void line_to(cnest *n, text *to, const char *words)
{
    emit_directive(n->e, n->line, to);
    text_add(to, words);
    text_add(to, "\n");
}

const char *edge_text(emitter *e, const caddress *a)
{
    need(e, "at_edge");
    return a->even == words_one ? "at_edge(whole)" : arena_print(e->memory, "%s && at_edge(whole)", a->even);
}

/* Is there more to ask than whether an element is the row's? */
static bool ok_beyond(const cnest *n, const caddress *a)
{
    bool far = dimension_bound(n->e->survey, n->view.layout->loops[0]) > (int64_t)1 << 29;
    return a->ok || a->element_ok || a->whole || far;
}

/* Vectors of a shifted row that do not lie as its lead does. */
static const char *uneven_text(cnest *n, const caddress *a, const char *name, const char *slot)
{
    emitter *e = n->e;
    const char *words = "else {", *chunk = element_pointer(e, a, false);
    for (int at = 0; at < n->view.layout->vector; at += a->width)
        words =
            arena_print(e->memory, "%s %s(%s[%s] + %d, %s + %d, i0 + %d, (int)%s, %s);", words,
                        need(e, "load_%sx%d%s_uneven", memory_name(a->elem), a->width, a->read_only ? "_constant" : ""),
                        name, slot, at, chunk, at, at, extent_text(e, n->view.layout->loops[0]), n->in ? n->in : "1");
    return arena_print(e->memory, "%s }", words);
}

/* Is there a load under a condition, without a branch? A branch would let each load wait for the one before. */
static bool has_read_if(const caddress *a)
{
    return a->global && a->read_only && a->elem != DT_BOOL && dtypes[a->elem].size_bytes >= 2 &&
           (dtype_is_float(a->elem) || dtypes[a->elem].size_bytes >= 4);
}

/* A vector whose elements lie in memory the other way round: loaded, then turned into `array`, or turned and stored. */
static void put_turned(text *to, const caddress *a, int at, const char *move, const char *array, bool load)
{
    text_print(to, "{ %s back[%d]; %s ", cuda_register_type(a->elem), a->width, load ? move : "");
    for (int k = 0; k < a->width; k++)
        if (load)
            text_print(to, "%s[%d] = back[%d]; ", array, at + k, a->width - 1 - k);
        else
            text_print(to, "back[%d] = %s[%d]; ", a->width - 1 - k, array, at + k);
    text_print(to, "%s}", load ? "" : move);
}

/* Loads of `unroll` chunks before anything else of the pass. */
static creg load_early(cnest *n, value named, const caddress *a, value into)
{
    emitter *e = n->e;
    int vector = n->view.layout->vector;
    const char *name, *slot;
    if (into && home_is_opened(e->survey, buffer_for(e->survey, into))) return home_load(n, a, into);
    if (into) {
        name = buffer_touch(e, buffer_for(e->survey, into));
        slot = n->repeat;
    } else {
        name = fresh_name(e, named);
        slot = n->slot;
        text_print(&n->arrays, "%s %s[%d][%d];\n", cuda_register_type(a->elem), name, n->unroll, vector);
    }
    n->early_used = true;
    const char *m = memory_name(a->elem), *chunk = element_pointer(e, a, false);
    const char *whole = a->whole;
    if (n->element_guard) whole = cjoin(e, whole, "&&", "whole");
    const char *ok = cjoin(e, n->in, "&&", a->ok);
    const char *inside = cjoin(e, ok, "&&", cjoin(e, a->element_ok, "&&", n->element_guard));
    const char *element = or_zero(e, inside, address_fetch(e, a, element_pointer(e, a, true)));
    if (a->width > 1) {
        bool loose = a->even && !a->element_ok; /* of the first and the last vector what is not the row's is read too */
        bool predicated = ok && (!whole || loose);
        if (loose)
            whole = edge_text(e, a);
        else if (a->even && a->even != words_one)
            whole = cjoin(e, whole, "&&", a->even);
        text vectors = {0};
        for (int at = 0; at < vector; at += a->width) {
            const char *skip = at ? arena_print(e->memory, " + %d", at) : "";
            if (a->back) {
                put_turned(&vectors, a, at,
                           arena_print(e->memory, "%s(back, %s - %d%s%s);",
                                       need(e, "load_%sx%d%s%s", m, a->width, a->read_only ? "_constant" : "",
                                            predicated ? "_if" : ""),
                                       chunk, at + a->width - 1, predicated ? ", " : "", predicated ? ok : ""),
                           arena_print(e->memory, "%s[%s]", name, slot), true);
                continue;
            }
            text_print(&vectors, "%s%s(%s[%s]%s, %s%s%s%s);", at ? " " : "",
                       need(e, "load_%sx%d%s%s", m, a->width, a->read_only ? "_constant" : "", predicated ? "_if" : ""),
                       name, slot, skip, chunk, skip, predicated ? ", " : "", predicated ? ok : "");
        }
        if (!whole) {
            line_to(n, &n->early, text_get(&vectors));
        } else {
            line_to(n, &n->early,
                    arena_print(e->memory, "if (%s) { %s }", loose ? whole : cjoin(e, ok, "&&", whole),
                                text_get(&vectors)));
            if (loose && !ok_beyond(n, a) && a->width * dtypes[a->elem].size_bytes == 16)
                line_to(n, &n->early, uneven_text(n, a, name, slot));
            else
                line_to(n, &n->early,
                        arena_print(e->memory, "else for (int v = 0; v < %d; v++) %s[%s][v] = %s;", vector, name, slot,
                                    element));
        }
        text_free(&vectors);
    } else if (vector > 1) {
        line_to(n, &n->early,
                arena_print(e->memory, "for (int v = 0; v < %d; v++) %s[%s][v] = %s;", vector, name, slot, element));
    } else {
        if (inside && has_read_if(a))
            element =
                arena_print(e->memory, "%s(%s, %s)", need(e, "read_if_%s", m), element_pointer(e, a, true), inside);
        line_to(n, &n->early, arena_print(e->memory, "%s[%s][0] = %s;", name, slot, element));
    }
    return (creg){arena_print(e->memory, "%s[%s][%s]", name, slot, vector > 1 ? "v" : "0"), LEVEL_ELEMENT, REG_ELEMENT};
}

/* A vector whose place is computed in its chunk (rows of a table by an index): whole, where nothing asks for its elements one
 * by one. */
static creg load_late(cnest *n, value named, const caddress *a)
{
    emitter *e = n->e;
    const char *name = fresh_name(e, named), *chunk = element_pointer(e, a, false), *ok = cjoin(e, n->in, "&&", a->ok);
    int vector = n->view.layout->vector;
    bool branch = ok && !a->global; /* loads under a condition are for global memory */
    cput(n, LEVEL_CHUNK, "%s %s[%d]%s;", cuda_register_type(a->elem), name, vector, branch ? " = {0}" : "");
    for (int at = 0; at < vector; at += a->width) {
        const char *load = need(e, "load_%sx%d%s%s", memory_name(a->elem), a->width, a->read_only ? "_constant" : "",
                                ok && !branch ? "_if" : "");
        if (branch)
            cput(n, LEVEL_CHUNK, "if (%s) %s(%s + %d, %s + %d);", ok, load, name, at, chunk, at);
        else
            cput(n, LEVEL_CHUNK, "%s(%s + %d, %s + %d%s%s);", load, name, at, chunk, at, ok ? ", " : "", ok ? ok : "");
    }
    return (creg){arena_print(e->memory, "%s[v]", name), LEVEL_ELEMENT, REG_ELEMENT};
}

creg cuda_load(cnest *n, value named, caddress a, value into)
{
    emitter *e = n->e;
    if (a.level == LEVEL_ELEMENT && a.early && n->view.has_inner) return load_early(n, named, &a, into);
    bool plain = !a.element_ok && !a.whole && !a.even && !n->element_guard && !into;
    if (a.level == LEVEL_ELEMENT && n->view.has_inner && a.width > 1 && plain) return load_late(n, named, &a);
    const char *condition = cjoin(e, a.ok, "&&", a.element_ok);
    if (a.level == LEVEL_ROW && n->row_guard) condition = cjoin(e, n->row_guard, "&&", condition);
    if (a.level > LEVEL_ROW) condition = cjoin(e, a.level == LEVEL_ELEMENT ? element_in(n) : n->in, "&&", condition);
    if (condition && a.level == LEVEL_ELEMENT && has_read_if(&a)) /* elements of a window under a pad */
        return cuda_define(n, named, a.elem, a.level,
                           arena_print(e->memory, "%s(%s, %s)", need(e, "read_if_%s", memory_name(a.elem)),
                                       element_pointer(e, &a, true), condition));
    return cuda_define(n, named, a.elem, a.level,
                       or_zero(e, condition, address_fetch(e, &a, element_pointer(e, &a, a.level == LEVEL_ELEMENT))));
}

const char *element_in(cnest *n)
{
    n->asks_inside = true;
    return n->loose ? "inside" : n->in;
}

const char *cuda_effect_guard(cnest *n, int level)
{
    if (level == LEVEL_ELEMENT) return element_in(n); /* or inside the branches of chunk and element */
    if (level > LEVEL_ROW) return n->in;
    return cjoin(n->e, n->lead, "&&", n->row_guard);
}

void cuda_store(cnest *n, caddress a, creg r)
{
    emitter *e = n->e;
    int level = cuda_sink_level(n), vector = n->view.has_inner ? n->view.layout->vector : 1;
    const char *m = memory_name(a.elem), *words = r.words;
    if (a.spreads) {
        store_spread(n, &a, words);
        return;
    }
    if (level < LEVEL_ELEMENT || a.width == 1) {
        const char *condition = cjoin(e, a.ok, "&&", a.element_ok);
        condition = cjoin(e, cuda_effect_guard(n, level), "&&", condition);
        cput(n, level, "%s%s(%s, %s);", condition ? arena_print(e->memory, "if (%s) ", condition) : "",
             need(e, "write_%s", m), element_pointer(e, &a, true), words);
        return;
    }
    const char *name = fresh_name(e, 0), *chunk = element_pointer(e, &a, false);
    cput(n, LEVEL_CHUNK, "%s %s[%d];", cuda_register_type(a.elem), name, vector);
    cput(n, LEVEL_ELEMENT, "%s[v] = %s;", name, words);
    const char *whole = n->element_guard ? cjoin(e, a.whole, "&&", "whole") : a.whole;
    const char *ok = cjoin(e, n->in, "&&", a.ok);
    whole = cjoin(e, whole, "&&", a.even);
    if (!a.global && !whole) whole = ok, ok = NULL; /* stores under a condition are for global memory */
    bool predicated = ok && !whole;
    text vectors = {0};
    for (int at = 0; at < vector; at += a.width) {
        const char *skip = at ? arena_print(e->memory, " + %d", at) : "";
        if (a.back) {
            put_turned(&vectors, &a, at,
                       arena_print(e->memory, "%s(%s - %d, back%s%s); ",
                                   need(e, "store_%sx%d%s", m, a.width, predicated ? "_if" : ""), chunk,
                                   at + a.width - 1, predicated ? ", " : "", predicated ? ok : ""),
                       name, false);
            continue;
        }
        text_print(&vectors, "%s%s(%s%s, %s%s%s%s);", at ? " " : "",
                   need(e, "store_%sx%d%s", m, a.width, predicated ? "_if" : ""), chunk, skip, name, skip,
                   predicated ? ", " : "", predicated ? ok : "");
    }
    if (!whole) {
        line_to(n, &n->late, text_get(&vectors));
    } else if (a.even && n->in) { /* without a branch but for the first and the last vector */
        text_clear(&vectors);
        const char *all = cjoin(e, cjoin(e, a.whole, "&&", "whole"), "&&", a.even == words_one ? NULL : a.even);
        for (int at = 0; at < vector; at += a.width)
            text_print(&vectors, "%s(%s + %d, %s + %d, %s && %s); ", need(e, "store_%sx%d_if", m, a.width), chunk, at,
                       name, at, ok, all);
        text_print(&vectors, "if (%s && !(%s)) for (int v = 0; v < %d; v++) if (%s) %s(%s, %s[v]);", ok, all, vector,
                   cjoin(e, a.element_ok, "&&", n->element_guard), need(e, "write_%s", m), element_pointer(e, &a, true),
                   name);
        line_to(n, &n->late, text_get(&vectors));
    } else {
        line_to(n, &n->late, arena_print(e->memory, "if (%s) { %s }", cjoin(e, ok, "&&", whole), text_get(&vectors)));
        const char *inside = cjoin(e, ok, "&&", cjoin(e, a.element_ok, "&&", n->element_guard));
        if (a.global || n->element_guard)
            line_to(n, &n->late,
                    arena_print(e->memory, "else for (int v = 0; v < %d; v++) if (%s) %s(%s, %s[v]);", vector,
                                inside ? inside : "1", need(e, "write_%s", m), element_pointer(e, &a, true), name));
    }
    text_free(&vectors);
}

void cuda_atomic(cnest *n, caddress a, const tile_op *op, creg r, creg expected, const char *old)
{
    emitter *e = n->e;
    int level = cuda_sink_level(n);
    const char *condition = cjoin(e, cuda_effect_guard(n, level), "&&", cjoin(e, a.ok, "&&", a.element_ok));
    bool compare = op->attr.atomic == ATOMIC_CAS;
    cput(n, level, "%s%s%s%s(%s, %s%s%s);", condition ? arena_print(e->memory, "if (%s) ", condition) : "",
         old ? old : "", old ? " = " : "", need(e, "atomic_%s_%s", atomic_names[op->attr.atomic], memory_name(a.elem)),
         element_pointer(e, &a, true), compare ? expected.words : "", compare ? ", " : "", r.words);
}
