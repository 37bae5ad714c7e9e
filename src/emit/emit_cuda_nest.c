/*
 * A group of passes as CUDA text. In: a group from nest_plan.c and the layouts. Out: one block of statements that all
 * threads of the team run together.
 *
 * Each pass evaluates all its sinks for one position before it writes anything, so a carried tile can be replaced by a
 * function of itself. Loops over rows have the same number of trips in all threads, because folds may hold barriers;
 * a thread without a row goes along under `row_guard`.
 * SPDX-License-Identifier: MIT
 */
#include "emit/emit_cuda_nest.h"

#include <inttypes.h>
#include <string.h>

void cput(cnest *n, int level, const char *format, ...)
{
    va_list list;
    emit_directive(n->e, n->line, &n->level[level]);
    va_start(list, format);
    text_print_list(&n->level[level], format, list);
    va_end(list);
    text_add(&n->level[level], "\n");
}

void add_lines(text *to, const char *lines, int depth)
{
    while (*lines) {
        size_t length = strcspn(lines, "\n");
        for (int i = 0; i < depth && length && *lines != '#'; i++) text_add(to, "    ");
        text_add_bytes(to, lines, length);
        text_add(to, "\n");
        lines += length + (lines[length] == '\n');
    }
}

place place_nowhere(void)
{
    place at;
    for (int i = 0; i < MAX_RANK; i++) at.axis[i] = NO_AXIS;
    return at;
}

int axis_level(const cnest *n, int axis)
{
    return n->role[axis] == ROLE_ROW ? LEVEL_ROW : n->role[axis] == ROLE_INNER ? LEVEL_CHUNK : LEVEL_ELEMENT;
}

const char *position_text(cnest *n, int axis)
{
    if (n->role[axis] == ROLE_VECTOR && n->layout->vector > 1) return arena_print(n->e->memory, "(i%d + v)", axis);
    return arena_print(n->e->memory, "i%d", axis);
}

/* ---- the shape of the loops ---- */

/* The product of the extents of some axes: a constant, or text. */
static const char *product_text(cnest *n, unsigned axes, int after)
{
    int64_t constant = 1;
    const char *factor = NULL;
    for (int axis = after + 1; axis < n->layout->loop_count; axis++) {
        if (!(axes >> axis & 1)) continue;
        int64_t dim = n->layout->loops[axis];
        if (dim >= 0)
            constant *= dim;
        else
            factor = emit_name(n->e, (value)-dim);
    }
    if (!factor) return arena_print(n->e->memory, "%" PRId64, constant);
    return constant == 1 ? factor : arena_print(n->e->memory, "%" PRId64 " * %s", constant, factor);
}

static int64_t product_number(const cnest *n, unsigned axes)
{
    int64_t constant = 1;
    for (int axis = 0; axis < n->layout->loop_count; axis++) {
        if (!(axes >> axis & 1)) continue;
        if (n->layout->loops[axis] < 0) return -1;
        constant *= n->layout->loops[axis];
    }
    return constant;
}

static unsigned inner_axes(const cnest *n)
{
    return ((1u << n->layout->loop_count) - 1) & ~n->layout->row_axes;
}

/* int where all positions fit, long otherwise */
static const char *index_type(cnest *n, unsigned axes)
{
    int64_t most = 1;
    for (int axis = 0; axis < n->layout->loop_count; axis++) {
        if (!(axes >> axis & 1)) continue;
        int64_t bound = dimension_bound(n->e, n->layout->loops[axis]);
        if (bound > (int64_t)1 << 29 || (most *= MAXIMUM(bound, 1)) > (int64_t)1 << 29) return "long";
    }
    return "int";
}

/* Coordinates of the axes of a set, from their flat index. Unsigned division by a constant is the short one. */
static void put_coordinates(cnest *n, text *to, unsigned axes, const char *flat)
{
    emitter *e = n->e;
    bool outermost = true;
    const char *type = index_type(n, axes);
    bool narrow = !strcmp(type, "int"), several = axes & (axes - 1);
    if (narrow && several) flat = arena_print(e->memory, "(unsigned)%s", flat);
    for (int axis = 0; axis < n->layout->loop_count; axis++) {
        if (!(axes >> axis & 1)) continue;
        const char *stride = product_text(n, axes, axis), *words = flat;
        const char *as = narrow ? "(unsigned)" : "";
        if (strcmp(stride, "1")) words = arena_print(e->memory, "%s / %s(%s)", flat, as, stride);
        int64_t dim = n->layout->loops[axis];
        if (!outermost && dim >= 0)
            words = arena_print(e->memory, "%s %% %s%" PRId64, words, as, dim);
        else if (!outermost)
            words = arena_print(e->memory, "%s %% %s%s", words, as, extent_text(e, dim));
        text_print(to, "const %s i%d = %s;\n", type, axis, words);
        outermost = false;
    }
}

static const char *threads_text(const cnest *n)
{
    return n->c->team.threads ? arena_print(n->e->memory, "%d", n->c->team.threads) : "threads";
}

static const char *inner_threads_text(const cnest *n)
{
    const pass_layout *l = n->layout;
    if (l->row_fast) return "part_threads";
    return l->inner_threads ? arena_print(n->e->memory, "%d", l->inner_threads) : threads_text(n);
}

/* Declares part (which row this thread takes of those done together) and part_thread, when there are rows. */
static void begin_rows(cnest *n)
{
    const pass_layout *l = n->layout;
    n->row_guard = n->lead = NULL;
    bool parts = l->inner_threads || l->row_fast;
    if (!n->has_rows) {
        if (n->c->team.threads != 1) n->lead = "thread == 0";
        return;
    }
    if (!parts) {
        if (n->c->team.threads != 1) n->lead = "thread == 0";
        return;
    }
    int64_t rows = product_number(n, l->row_axes);
    if (l->row_fast) {
        cput(n, LEVEL_GROUP, "const int part = thread %% %d, part_thread = thread / %d, part_threads = %s / %d;",
             l->inner_threads, l->inner_threads, threads_text(n), l->inner_threads);
        n->lead = "part_thread == 0";
        if (rows < 0 || rows % l->inner_threads) n->row_guard = "row_in";
    } else {
        cput(n, LEVEL_GROUP, "const int part = thread / %d, part_thread = thread %% %d;", l->inner_threads,
             l->inner_threads);
        n->lead = l->inner_threads > 1 ? "part_thread == 0" : NULL;
        if (rows < 0 || !n->c->team.threads || rows % (n->c->team.threads / l->inner_threads)) n->row_guard = "row_in";
    }
}

static text end_rows(cnest *n)
{
    emitter *e = n->e;
    const pass_layout *l = n->layout;
    text all = n->level[LEVEL_GROUP];
    n->level[LEVEL_GROUP] = (text){0};
    if (!n->has_rows) {
        text_add(&all, text_get(&n->level[LEVEL_ROW]));
        text_clear(&n->level[LEVEL_ROW]);
        return all;
    }
    const char *rows = product_text(n, l->row_axes, -1);
    const char *type = index_type(n, l->row_axes);
    text head = {0};
    if (l->inner_threads || l->row_fast) {
        const char *step = l->row_fast          ? arena_print(e->memory, "%d", l->inner_threads)
                           : n->c->team.threads ? arena_print(e->memory, "%d", n->c->team.threads / l->inner_threads)
                                                : arena_print(e->memory, "threads / %d", l->inner_threads);
        text_print(&all, "for (%s rows = 0; rows < %s; rows += %s) {\n", type, rows, step);
        text_print(&head, "const %s row = rows + part;\n", type);
        if (n->row_guard) text_print(&head, "const int row_in = row < %s;\n", rows);
    } else {
        text_print(&all, "for (%s row = 0; row < %s; row++) {\n", type, rows);
    }
    put_coordinates(n, &head, l->row_axes, "row");
    add_lines(&all, text_get(&head), 1);
    add_lines(&all, text_get(&n->level[LEVEL_ROW]), 1);
    text_add(&all, "}\n");
    text_free(&head);
    text_clear(&n->level[LEVEL_ROW]);
    return all;
}

/* Positions of one chunk, inside the loops over c and u. */
/* Many single elements of a row: their positions, if they were known to be those of the pass before, would be kept in
 * registers from pass to pass, beside the elements. */
static bool forgets_positions(const pass_layout *l)
{
    return l->vector == 1 && l->repeats >= 16 && !l->inner_threads && !l->row_fast;
}

void cuda_positions(cnest *n, text *to)
{
    emitter *e = n->e;
    const pass_layout *l = n->layout;
    unsigned axes = inner_axes(n);
    bool single = !(axes & (axes - 1));
    int axis = l->loop_count - 1;
    while (!(axes >> axis & 1)) axis--;
    const char *name = single ? arena_print(e->memory, "i%d", axis) : "p";
    const char *thread = l->inner_threads || l->row_fast ? "part_thread" : n->forgets ? "here" : "thread";
    const char *spread = n->forgets ? "apart" : inner_threads_text(n), *repeat = n->repeat;
    const char *first = l->repeats ? NULL : "c";
    const char *index = !strcmp(repeat, "0")
                            ? thread
                            : arena_print(e->memory, "%s * %s + %s", l->repeats ? repeat : n->slot, spread, thread);
    if (!l->repeats && !strcmp(n->slot, "0")) index = thread;
    const char *words = l->vector > 1 ? strchr(index, ' ') ? arena_print(e->memory, "(%s) * %d", index, l->vector)
                                                           : arena_print(e->memory, "%s * %d", index, l->vector)
                                      : index;
    if (first) words = arena_print(e->memory, "%s + %s", first, words);
    if (l->shifted) words = arena_print(e->memory, "%s - shift%d", words, l->number);
    text_print(to, "const %s %s = %s;\n", index_type(n, axes), name, words);
    if (!single) put_coordinates(n, to, axes, "p");
    const char *count = product_text(n, axes, -1);
    if (n->in)
        text_print(to, "const int in = %s;\n", n->all_there ? n->row_guard ? n->row_guard : "1" : n->chunk_guard);
    if (n->element_guard && n->all_there)
        text_add(to, "const int whole = 1;\n");
    else if (n->element_guard && l->shifted)
        text_print(to, "const int whole = %s >= 0 && %s <= %s(%s) - %d;\n", name, name,
                   strcmp(index_type(n, axes), "int") ? "" : "(int)", count, l->vector);
    else if (n->element_guard)
        text_print(to, "const int whole = %s + %d <= %s;\n", name, l->vector, count);
}

static void set_guards(cnest *n)
{
    emitter *e = n->e;
    const pass_layout *l = n->layout;
    unsigned axes = inner_axes(n);
    bool single = !(axes & (axes - 1));
    int axis = l->loop_count - 1;
    while (!(axes >> axis & 1)) axis--;
    const char *name = single ? arena_print(e->memory, "i%d", axis) : "p";
    int64_t count = product_number(n, axes);
    int inner = l->row_fast        ? n->c->team.threads / MAXIMUM(l->inner_threads, 1)
                : l->inner_threads ? l->inner_threads
                                   : n->c->team.threads;
    bool exact = count >= 0 && l->repeats && inner && (int64_t)l->repeats * inner * l->vector == count;
    const char *all = product_text(n, axes, -1);
    if (count < 0 && !strcmp(index_type(n, axes), "int")) all = arena_print(e->memory, "(int)(%s)", all);
    n->chunk_guard = exact ? n->row_guard : cjoin(e, n->row_guard, "&&", arena_print(e->memory, "%s < %s", name, all));
    bool even = count >= 0 ? count % l->vector == 0 : false;
    if (count < 0 && single) {
        int64_t divisor = facts_of(e->facts, (value)-l->loops[axis]).divisor;
        even = divisor % l->vector == 0;
    } else if (count < 0) {
        even = l->loops[axis] >= 0 ? l->loops[axis] % l->vector == 0
                                   : facts_of(e->facts, (value)-l->loops[axis]).divisor % l->vector == 0;
    }
    n->element_guard = even ? NULL : arena_print(e->memory, "%s + v < %s", name, product_text(n, axes, -1));
    if (!l->shifted) return;
    bool narrow = !strcmp(index_type(n, axes), "int");
    n->chunk_guard = arena_print(e->memory, "%s < %s && %s > -%d", name, all, name, l->vector);
    n->element_guard = narrow ? arena_print(e->memory, "(unsigned)(%s + v) < (unsigned)%s", name, all)
                              : arena_print(e->memory, "(unsigned long)(%s + v) < (unsigned long)(%s)", name, all);
}

/* ---- sinks ---- */

static bool is_kept_in_registers(const cnest *n, value v)
{
    int number = buffer_for(n->e, v);
    return !n->c->deciding && n->c->kept[number].kind == HOME_REGISTERS;
}

/* The value of a sink; *done: it is already where it should be. */
/* What a store writes: rounding to a 16-bit float just before is the store's own business. */
static value stored_value(const emitter *e, const sink *s)
{
    const tile_op *op = tile_def(e->k, s->v);
    if (s->kind != SINK_STORE || !value_is_virtual(e, s->v) || op->code != OP_CONVERT) return s->v;
    dtype from = tile_type_of(e->k, op->operands[0]).elem, to = tile_type_of(e->k, s->v).elem;
    return from == DT_F32 && (to == DT_F16 || to == DT_BF16) ? op->operands[0] : s->v;
}

static creg sink_value(cnest *n, const sink *s, place at, bool *done)
{
    emitter *e = n->e;
    *done = false;
    if (s->kind == SINK_KEEP) {
        const tile_op *op = tile_def(e->k, s->v);
        if (op->code == OP_LOAD && n->has_inner && is_kept_in_registers(n, s->v)) {
            caddress a = cuda_access(n, op, at);
            if (a.level == LEVEL_ELEMENT && a.early) {
                creg r = {NULL, LEVEL_ELEMENT, false};
                if (!home_comes_ahead(e, s->v))
                    r = cuda_load(n, s->v, a, s->v);
                else
                    ARENA_PUSH(e->memory, n->c->ahead, n->c->ahead_count, n->c->ahead_capacity, s->v);
                *done = true;
                if (!home_is_opened(e, buffer_for(e, s->v))) cuda_remember(n, s->v, at, r); /* else it is read there */
                return r;
            }
            creg r = cuda_load(n, s->v, a, 0);
            cuda_remember(n, s->v, at, r);
            return r;
        }
        if (op->code == OP_LOAD && n->c->deciding) {
            caddress a = cuda_access(n, op, at);
            home_note_ahead(n, s->v, op, &a);
        }
        return cuda_compute(n, s->v, at);
    }
    creg r = cuda_value(n, stored_value(e, s), at);
    if (s->kind == SINK_COPY && !r.truth && strchr(r.words, '[')) /* another sink may write that register */
        r = cuda_define(n, 0, tile_type_of(e->k, s->v).elem, r.level, r.words);
    return r;
}

static void write_kept(cnest *n, value v, place at, creg r)
{
    emitter *e = n->e;
    int level;
    const char *home = home_element(n, v, at, true, &level);
    if (home) {
        cput(n, level, "%s = %s;", home, creg_words(r));
        return;
    }
    caddress a = cuda_buffer(n, v, at);
    hazard_buffer(e, buffer_for(e, v), true);
    cuda_store(n, a, r);
}

static int sink_level(const cnest *n)
{
    return n->has_inner ? LEVEL_ELEMENT : LEVEL_ROW;
}

/* Does the pass write elements of this array more than once? Then element by element: a vector is stored after all elements. */
static bool writes_again(const cnest *n, const sink *s)
{
    for (int i = 0; i < n->pass->sink_count; i++) {
        const sink *o = &n->pass->sinks[i];
        if (o != s && (o->kind == SINK_STORE || o->kind == SINK_ATOMIC) &&
            o->op->attr.access.array == s->op->attr.access.array && !accesses_apart(n->e, o->op, s->op))
            return true;
    }
    return false;
}

static void write_sink(cnest *n, const sink *s, creg r, const cfold *fold)
{
    emitter *e = n->e;
    tile_type type = tile_type_of(e->k, s->v);
    place at = place_own(&type);
    switch (s->kind) {
    case SINK_STORE: {
        caddress to = cuda_access(n, s->op, at);
        n->c->stores_rows |= n->has_inner;
        if (writes_again(n, s)) to.width = 1;
        cuda_store(n, to, r);
        return;
    }
    case SINK_KEEP:
    case SINK_COPY: write_kept(n, s->result, at, r); return;
    case SINK_ATOMIC: {
        creg expected = {0};
        if (s->op->attr.atomic == ATOMIC_CAS)
            expected = cuda_value(n, s->op->operands[1], place_of_operand(e, s->op, 1, &at));
        const char *old = e->uses[s->result] ? fresh_name(e, s->result) : NULL;
        if (old) cput(n, sink_level(n), "%s %s = 0;", cuda_register_type(type.elem), old);
        cuda_atomic(n, cuda_access(n, s->op, at), s->op, r, expected, old);
        if (old) write_kept(n, s->result, at, (creg){old, sink_level(n), false});
        return;
    }
    case SINK_ASSERT: {
        const char *bad = arena_print(e->memory, "!(%s)", creg_words(r));
        for (int i = 1; i < s->op->operand_count; i++) {
            creg mask = cuda_value(n, s->op->operands[i], place_of_operand(e, s->op, i, &at));
            if (!mask.truth) bad = arena_print(e->memory, "%s && %s", bad, mask.words);
        }
        bad = cjoin(e, n->has_inner ? element_in(n) : n->row_guard, "&&", bad);
        cput(n, sink_level(n), "%s |= %s;", fold->name, bad);
        return;
    }
    case SINK_REDUCE: cuda_fold_add(n, fold, r); return;
    case SINK_SCALAR: cput(n, sink_level(n), "%s = %s;", emit_name(e, s->result), creg_words(r)); return;
    }
}

/* ---- passes ---- */

static void forget(cnest *n, int level)
{
    int kept = 0;
    for (int i = 0; i < n->memo_count; i++)
        if (!n->memos[i].result.truth && n->memos[i].result.level <= level) n->memos[kept++] = n->memos[i];
    n->memo_count = kept;
    kept = 0;
    for (int i = 0; i < n->name_count; i++)
        if (n->names[i].level <= level) n->names[kept++] = n->names[i];
    n->name_count = kept;
}

/* A long row whose loads all come before, or has none: a branch costs less than a choice for each element. */
bool fold_is_guarded(const cnest *n)
{
    return n->in && n->slotted && (!n->loads || strcmp(n->slot, "0") != 0);
}

/* Repeats in registers are written out; those in slots go in a loop, which makes a shorter text. Early loads of kept
 * tiles come before all else; others stand in front of their own chunk. */
static void put_split(cnest *n, text *to, const char *positions, const char *body, bool apart)
{
    enum { SLOTS_AT_ONCE = 6 };
    emitter *e = n->e;
    const char *stages[2] = {text_get(&n->early), body};
    for (int stage = 0; stage < (apart ? 2 : 1); stage++) {
        for (int part = 0; part < 2; part++) {
            int first = part ? n->split : 0, last = part ? n->layout->repeats : n->split, depth = 2;
            if (first == last) continue;
            add_lines(to, part ? arena_print(e->memory, "#pragma unroll %d\n", SLOTS_AT_ONCE) : "#pragma unroll\n", 0);
            add_lines(to, arena_print(e->memory, "for (int r = %d; r < %d; r++) {\n", first, last), 1);
            add_lines(to, positions, depth);
            add_lines(to, text_get(&n->arrays), depth);
            if (n->chunk_guard && !n->in) add_lines(to, arena_print(e->memory, "if (%s) {\n", n->chunk_guard), depth++);
            add_lines(to, stages[stage], depth);
            if (!apart) {
                if (n->copies) add_lines(to, "copy_commit();\ncopy_wait<0>();\n", depth);
                add_lines(to, body, depth);
            }
            if (n->chunk_guard && !n->in) add_lines(to, "}\n", --depth);
            add_lines(to, "}\n", 1);
        }
        if (apart && n->copies && !stage) add_lines(to, "copy_commit();\ncopy_wait<0>();\n", 1);
    }
}

static void put_element_loop(cnest *n, text *body, const char *elements)
{
    enum { SHORT_LOOSE = 256 };
    const pass_layout *l = n->layout;
    if (l->vector == 1) {
        text_add(body, fold_is_guarded(n) ? "{\n" : "");
        text_add(body, elements);
        text_add(body, fold_is_guarded(n) ? "}\n" : "");
        return;
    }
    /* Only the first and the last vector of a row have to be asked; short rows have few others. */
    if (n->loose && n->asks_inside && dimension_bound(n->e, l->loops[0]) > SHORT_LOOSE) {
        for (int all = 1; all >= 0; all--) {
            text_add(body, all ? "if (whole) {\n#pragma unroll\n" : "} else {\n#pragma unroll\n");
            text_print(body, "    for (int v = 0; v < %d; v++) {\n        const int inside = %s;\n", l->vector,
                       all ? "1" : n->element_guard);
            add_lines(body, elements, 2);
            text_add(body, "    }\n");
        }
        text_add(body, "}\n");
        return;
    }
    text_add(body, "#pragma unroll\n");
    text_print(body, "for (int v = 0; v < %d; v++) {\n", l->vector);
    if (n->loose) {
        if (n->asks_inside) text_print(body, "    const int inside = %s;\n", n->element_guard);
        add_lines(body, elements, 1);
    } else if (n->element_guard) {
        text_print(body, "    if (%s) {\n", n->element_guard);
        add_lines(body, elements, 2);
        text_add(body, "    }\n");
    } else {
        add_lines(body, elements, 1);
    }
    text_add(body, "}\n");
}

/* The elements of a chunk. Where a test holds for one position of the row, the other chunks go without it. */
static void put_elements(cnest *n, text *body)
{
    const char *elements = text_get(&n->level[LEVEL_ELEMENT]);
    if (!*elements) return;
    if (fold_is_guarded(n)) text_add(body, "if (in)\n");
    if (!n->hit) {
        put_element_loop(n, body, elements);
        return;
    }
    text without = {0}, lines = {0};
    for (const char *at = elements;;) {
        const char *next = strstr(at, n->hit);
        text_add_bytes(&without, at, next ? (size_t)(next - at) : strlen(at));
        if (!next) break;
        text_add(&without, "false;");
        at = next + strlen(n->hit);
    }
    text_print(body, "if ((unsigned)%s < %du) {\n", n->hit_rest, n->layout->vector);
    put_element_loop(n, &lines, elements);
    add_lines(body, text_get(&lines), 1);
    text_clear(&lines);
    text_add(body, "} else {\n");
    put_element_loop(n, &lines, text_get(&without));
    add_lines(body, text_get(&lines), 1);
    text_add(body, "}\n");
    text_free(&without);
    text_free(&lines);
}

/* The loads of some chunks, and what is done with them. */
static void put_stages(cnest *n, text *to, const text *body, const char *positions, bool chunks, int depth)
{
    emitter *e = n->e;
    const pass_layout *l = n->layout;
    add_lines(to, text_get(&n->arrays), depth);
    int inner = depth;
    const text *stages[2] = {&n->early, body};
    for (int stage = n->early_used ? 0 : 1; stage < 2; stage++) {
        if (!stages[stage]->length) continue;
        inner = depth;
        if (chunks) {
            add_lines(to, "#pragma unroll\n", 0);
            add_lines(to, arena_print(e->memory, "for (int u = 0; u < %d; u++) {\n", n->unroll), inner++);
            if (l->repeats)
                add_lines(to, n->unroll == l->repeats ? "const int r = u;\n" : "const int r = c + u;\n", inner);
        }
        if (chunks || stage == (n->early_used ? 0 : 1)) add_lines(to, positions, inner);
        bool branch = n->chunk_guard && !n->in && !(n->all_there && !n->row_guard);
        if (branch) add_lines(to, arena_print(e->memory, "if (%s) {\n", n->chunk_guard), inner++);
        add_lines(to, text_get(stages[stage]), inner);
        if (branch) add_lines(to, "}\n", --inner);
        if (chunks) add_lines(to, "}\n", --inner);
        if (n->copies && !stage) add_lines(to, "copy_commit();\ncopy_wait<0>();\n", depth);
    }
}

/* Sums of floats over rows of any length: those of some chunks are added up before they join the others, so that an error
 * grows with the number of such sums and not with that of elements. */
static void put_sums(cnest *n, text *to, bool begin, int depth)
{
    emitter *e = n->e;
    for (int i = 0; i < n->pass->sink_count; i++) {
        const cfold *f = &n->folds[i];
        if (!f->name || f->position || n->pass->sinks[i].kind != SINK_REDUCE ||
            n->pass->sinks[i].op->attr.fold != FOLD_SUM || !dtype_is_float(f->elem))
            continue;
        const char *line = begin ? arena_print(e->memory, "const %s before_%s = %s;\n%s = 0;\n",
                                               cuda_register_type(f->elem), f->name, f->name, f->name)
                                 : arena_print(e->memory, "%s = before_%s + %s;\n", f->name, f->name, f->name);
        add_lines(to, line, depth);
    }
}

/* The loops around the chunks of a pass, appended to the row. */
static void put_chunks(cnest *n)
{
    emitter *e = n->e;
    const pass_layout *l = n->layout;
    text *to = &n->level[LEVEL_ROW], body = {0}, positions = {0};
    n->forgets = forgets_positions(l);
    cuda_positions(n, &positions);
    text_add(&body, text_get(&n->level[LEVEL_CHUNK]));
    put_elements(n, &body);
    text_add(&body, text_get(&n->late));
    bool chunks = strcmp(n->slot, "0") != 0; /* several in flight */
    int depth = 1;
    text_add(to, "{\n");
    if (n->forgets)
        text_print(to,
                   "    int here = thread, apart = %s;\n"
                   "#ifndef QUERN_EMU\n"
                   "    asm volatile(\"\" : \"+r\"(here), \"+r\"(apart));\n"
                   "#endif\n",
                   inner_threads_text(n));
    if (n->slotted) {
        put_split(n, to, text_get(&positions), text_get(&body), chunks);
        text_add(to, "}\n");
        text_free(&body);
        text_free(&positions);
        return;
    }
    if (!l->repeats) {
        const char *step =
            arena_print(e->memory, "%s * %d", inner_threads_text(n), l->vector * (chunks ? n->unroll : 1));
        const char *count = product_text(n, inner_axes(n), -1);
        const char *type = index_type(n, inner_axes(n));
        if (l->shifted) count = arena_print(e->memory, "%s + shift%d", count, l->number);
        if (chunks && !l->shifted) { /* without tests as long as all of them are there: loads do not wait for those */
            text full = {0};
            n->all_there = true;
            cuda_positions(n, &full);
            add_lines(to, arena_print(e->memory, "%s c = 0;\n", type), depth);
            add_lines(to, arena_print(e->memory, "for (; c <= %s - %s; c += %s) {\n", count, step, step), depth++);
            put_sums(n, to, true, depth);
            put_stages(n, to, &body, text_get(&full), chunks, depth);
            put_sums(n, to, false, depth);
            add_lines(to, "}\n", --depth);
            n->all_there = false;
            text_free(&full);
            add_lines(to, arena_print(e->memory, "for (; c < %s; c += %s) {\n", count, step), depth++);
        } else {
            add_lines(to, arena_print(e->memory, "for (%s c = 0; c < %s; c += %s) {\n", type, count, step), depth++);
        }
    } else if (strcmp(n->repeat, "0") && !(chunks && n->unroll == l->repeats)) {
        /* A chunk with many loads keeps memory busy by itself; more of them at once would take the registers of others. */
        bool full = l->wide + l->narrow + l->windows > FULL_CHUNK && !e->cuda->live_registers;
        add_lines(to, full ? "#pragma unroll 1\n" : "#pragma unroll\n", 0);
        const char *loop = chunks
                               ? arena_print(e->memory, "for (int c = 0; c < %d; c += %d) {\n", l->repeats, n->unroll)
                               : arena_print(e->memory, "for (int r = 0; r < %d; r++) {\n", l->repeats);
        add_lines(to, loop, depth++);
    }
    put_stages(n, to, &body, text_get(&positions), chunks, depth);
    while (--depth) add_lines(to, "}\n", depth);
    text_add(to, "}\n");
    text_free(&body);
    text_free(&positions);
}

static void find_map(emitter *e, value v, const place *at, void *context)
{
    const tile_op *op = tile_def(e->k, v);
    (void)at;
    if (op && op->code == OP_MAP) *(bool *)context = true;
}

/* Bodies that are worth a branch around them. Others run for positions that do not exist, and do nothing there. A `map`
 * always is: it may loop, and need not end for such positions. */
static bool is_heavy(const cnest *n)
{
    enum { HEAVY_BODY = 150 };
    int weight = 0;
    bool maps = false;
    for (int i = 0; i < n->pass->sink_count; i++) {
        weight += sink_weight(n->e, &n->pass->sinks[i]);
        walk_sink(n->e, &n->pass->sinks[i], find_map, &maps);
    }
    return maps || weight > HEAVY_BODY;
}

static void begin_chunks(cnest *n)
{
    const pass_layout *l = n->layout;
    n->unroll = layout_unroll(n->e, l);
    bool several = n->unroll > 1 && l->repeats != 1;
    n->slot = several ? "u" : "0";
    n->repeat = l->repeats == 1 ? "0" : l->repeats ? "r" : several ? "u" : "0";
    n->early_used = n->copies = false;
    n->opened_count = n->split = 0;
    n->slotted = false;
    n->hit = NULL;
    set_guards(n);
    n->in = n->chunk_guard && (!n->element_guard || l->shifted) && !is_heavy(n) ? "in" : NULL;
    n->loose = l->shifted && n->in;
    n->asks_inside = false;
    n->loads = n->c->deciding || n->c->loads[n->e->pass_number].early || n->c->loads[n->e->pass_number].direct;
}

static void emit_pass(cnest *n)
{
    emitter *e = n->e;
    const pass_nest *pass = n->pass;
    cfold *folds = ARENA_ARRAY(e->memory, cfold, pass->sink_count);
    creg *values = ARENA_ARRAY(e->memory, creg, pass->sink_count);
    bool *done = ARENA_ARRAY(e->memory, bool, pass->sink_count);
    for (int i = 0; i < pass->sink_count; i++)
        if (pass->sinks[i].kind == SINK_REDUCE || pass->sinks[i].kind == SINK_ASSERT)
            folds[i] = cuda_fold_begin(n, &pass->sinks[i]);
    n->in = NULL;
    n->loose = false;
    n->folds = folds;
    windows_find(n);
    if (n->has_inner) begin_chunks(n);
    for (int i = 0; i < pass->sink_count; i++) {
        const sink *s = &pass->sinks[i];
        tile_type type = tile_type_of(e->k, s->v);
        n->line = s->op->line;
        done[i] = cuda_fold_pairs(n, &folds[i]);
        if (!done[i]) values[i] = sink_value(n, s, place_own(&type), &done[i]);
    }
    for (int i = 0; i < pass->sink_count; i++) {
        n->line = pass->sinks[i].op->line;
        if (!done[i]) write_sink(n, &pass->sinks[i], values[i], &folds[i]);
    }
    if (n->has_inner) put_chunks(n);
    text_clear(&n->level[LEVEL_CHUNK]);
    text_clear(&n->level[LEVEL_ELEMENT]);
    text_clear(&n->early);
    text_clear(&n->late);
    text_clear(&n->arrays);
    forget(n, LEVEL_ROW);
    cuda_folds_join(n, folds, pass->sink_count);
    for (int i = 0; i < pass->sink_count; i++) {
        n->line = pass->sinks[i].op->line;
        if (pass->sinks[i].kind == SINK_REDUCE || pass->sinks[i].kind == SINK_ASSERT) cuda_fold_end(n, &folds[i]);
    }
}

/* The axes that a fold keeps, when they are not the outer ones. */
static bool is_column_fold(const emitter *e, const group *g, unsigned *rows)
{
    if (g->pass_count != 1 || g->passes[0].sink_count != 1) return false;
    const sink *s = &g->passes[0].sinks[0];
    if (s->kind != SINK_REDUCE || s->fold_axis != NO_AXIS) return false;
    tile_type type = tile_type_of(e->k, s->v);
    place own = place_own(&type);
    *rows = 0;
    for (int i = 0; i < type.rank; i++)
        if (own.axis[i] != NO_AXIS && !(s->op->attr.axis_set >> i & 1)) *rows |= 1u << own.axis[i];
    return true;
}

static void take_layout(cnest *n, pass_layout *l)
{
    n->layout = l;
    n->has_rows = l->row_axes != 0;
    n->has_inner = l->row_axes != (1u << l->loop_count) - 1;
    int last = -1;
    for (int axis = 0; axis < l->loop_count; axis++) {
        n->role[axis] = l->row_axes >> axis & 1 ? ROLE_ROW : ROLE_INNER;
        if (n->role[axis] == ROLE_INNER) last = axis;
    }
    if (last >= 0) n->role[last] = ROLE_VECTOR;
}

cnest cuda_nest_of(emitter *e, pass_layout *l)
{
    cnest n = {.e = e, .c = e->cuda, .slot = "0", .repeat = l->repeats == 1 ? "0" : "r"};
    take_layout(&n, l);
    set_guards(&n);
    n.in = n.chunk_guard ? "in" : NULL;
    return n;
}

static void choose_layout(cnest *n, unsigned rows, bool column_fold)
{
    const pass_nest *pass = n->pass;
    bool fast = column_fold && pass->loop_count && rows >> (pass->loop_count - 1) & 1;
    take_layout(n, layout_find(n->e, pass->loops, pass->loop_count, rows, fast));
    if (!n->c->deciding) return;
    for (int i = 0; i < pass->sink_count; i++) {
        const sink *s = &pass->sinks[i];
        n->c->weight = MAXIMUM(n->c->weight, sink_weight(n->e, s));
        if (n->has_inner && (s->kind == SINK_REDUCE || s->kind == SINK_ASSERT)) n->c->any_fold = true;
    }
}

static void declare_results(emitter *e, const group *g)
{
    for (int p = 0; p < g->pass_count; p++) {
        for (int i = 0; i < g->passes[p].sink_count; i++) {
            const sink *s = &g->passes[p].sinks[i];
            put_line_comment(e, s->op);
            if (s->kind != SINK_SCALAR && s->kind != SINK_REDUCE) continue;
            tile_type type = tile_type_of(e->k, s->result);
            if (!type.rank) put(e, "%s %s;", cuda_register_type(type.elem), emit_name(e, s->result));
            online_declare(e, s->result);
        }
    }
}

/* How far the first element of the row lies behind a vector of its lead, before the first group that goes by it. */
static void put_shift(emitter *e, pass_layout *l)
{
    if (!l || !l->shifted || l->shift_put) return;
    l->shift_put = true;
    /* A row without elements is not shifted: nothing of its first vector is its own, and it may lie nowhere. */
    put(e, "const int shift%d = %s > 0 ? (int)((unsigned long)(%s) / %d %% %d) : 0; /* behind a whole vector */",
        l->number, extent_text(e, l->loops[0]), cuda_lead_pointer(e, l->lead),
        dtypes[e->k->params[l->lead->attr.access.array].elem].size_bytes, l->vector);
}

void cuda_group(emitter *e, const group *g)
{
    cnest n = {.e = e, .c = e->cuda, .group = g, .slot = "0", .repeat = "0"};
    n.c->group++;
    unsigned rows = (1u << g->outer) - 1;
    bool column_fold = is_column_fold(e, g, &rows);
    declare_results(e, g);
    pass_layout **layouts = ARENA_ARRAY(e->memory, pass_layout *, g->pass_count + 1);
    for (int p = 0; p < g->pass_count; p++) {
        n.pass = &g->passes[p];
        pass_layout *before = n.layout;
        choose_layout(&n, rows, column_fold);
        layouts[p] = n.layout;
        if (before && rows) layout_same_rows(before, n.layout);
        if (!p) begin_rows(&n);
        e->pass_number++;
        emit_pass(&n);
    }
    text body = end_rows(&n);
    hazard_commit(e);
    for (int p = 0; p < g->pass_count; p++) put_shift(e, layouts[p]);
    put(e, "{");
    add_lines(e->out, text_get(&body), e->depth + 1);
    put(e, "}");
    text_free(&body);
    for (int i = 0; i < LEVEL_COUNT; i++) text_free(&n.level[i]);
    text_free(&n.early);
    text_free(&n.late);
    text_free(&n.arrays);
}
