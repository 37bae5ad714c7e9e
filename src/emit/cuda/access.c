/*
 * Addresses inside a group of passes: bounds, offsets, digits, kept tiles.
 *
 * In: an access (or a kept tile) and its place in the loops. Out: an address, which cuda/memory.c loads from and stores
 * to. What does not differ between rows, chunks or elements is computed at its own level. Elements side by side that are
 * provably aligned move 16 bytes at once. In a checked build the axes that were proved inside are tested too, and reported.
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/nest.h"

#include <inttypes.h>
#include <string.h>

const char *cjoin(emitter *e, const char *a, const char *sign, const char *b)
{
    if (!a) return b;
    return b ? arena_print(e->memory, "%s %s %s", a, sign, b) : a;
}

static bool value_is_zero(const emitter *e, value v)
{
    number n;
    return tile_is_constant(e->k, v, &n) && n.i == 0;
}

static const char *from_start(emitter *e, value start, const char *at) /* starts that are 0 go */
{
    return value_is_zero(e, start) ? at : arena_print(e->memory, "%s + %s", emit_name(e, start), at);
}

/* ---- tests ---- */

static const char *range_text(emitter *e, const char *index, const char *extent)
{
    return arena_print(e->memory, "(unsigned long)(%s) < (unsigned long)%s", index, extent);
}

creg cuda_constraint(cnest *n, int axis, const constraint *c, value step)
{
    emitter *e = n->e;
    const char *start = emit_name(e, c->start);
    if (axis == NO_AXIS)
        return (creg){cuda_share(n, LEVEL_GROUP, "const int", range_text(e, start, constraint_extent(e, c))),
                      LEVEL_GROUP, REG_NAME};
    const char *at = position_text(n, axis);
    if (!is_one(e->survey, step)) at = arena_print(e->memory, "(long)%s * %s", at, emit_name(e, step));
    int level = axis_level(&n->view, axis);
    const char *words = range_text(e, from_start(e, c->start, at), constraint_extent(e, c));
    if (level <= LEVEL_ROW) return (creg){cuda_share(n, level, "const int", words), level, REG_NAME};
    return (creg){arena_print(e->memory, "(%s)", words), level, REG_WORDS};
}

/* ---- addresses ---- */

typedef struct cterms {
    const char *offset[LEVEL_COUNT];
    const char *ok[LEVEL_COUNT];
    const char *whole;
    const char *proved; /* tests of a checked build; after all others */
} cterms;

static void term(emitter *e, cterms *t, int level, const char *index, const char *stride)
{
    const char *words = stride == words_one ? index : arena_print(e->memory, "%s * %s", index, stride);
    t->offset[level] = cjoin(e, t->offset[level], "+", words);
}

static void test(emitter *e, cterms *t, creg r)
{
    t->ok[r.level] = cjoin(e, t->ok[r.level], "&&", r.words);
}

/* The test of a slice along the vector axis, for its elements one by one and all at once. */
static void test_vector(cnest *n, cterms *t, int axis, const constraint *c)
{
    emitter *e = n->e;
    int vector = n->view.layout->vector;
    const char *first = from_start(e, c->start, arena_print(e->memory, "i%d", axis));
    int64_t divisor = MINIMUM(power_of_two(facts_of(e->facts, c->start).divisor),
                              limit_divisor(e->survey, &(limit){c->start, c->kind, c->number}));
    if (divisor >= vector && !n->view.layout->shifted) { /* all or none */
        t->ok[LEVEL_CHUNK] = cjoin(e, t->ok[LEVEL_CHUNK], "&&",
                                   arena_print(e->memory, "(%s)", range_text(e, first, constraint_extent(e, c))));
        return;
    }
    t->ok[LEVEL_ELEMENT] =
        cjoin(e, t->ok[LEVEL_ELEMENT], "&&",
              arena_print(e->memory, "(%s)",
                          range_text(e, arena_print(e->memory, "%s + v", first), constraint_extent(e, c))));
    const char *low = facts_of(e->facts, c->start).low >= 0 ? NULL : arena_print(e->memory, "%s >= 0", first);
    const char *high = arena_print(e->memory, "%s + %d <= %s", first, vector, constraint_extent(e, c));
    t->whole = cjoin(e, t->whole, "&&", cjoin(e, low, "&&", high));
}

static caddress finish(cnest *n, const cterms *t, int level, dtype elem, const char *base)
{
    emitter *e = n->e;
    caddress a = {.elem = elem, .pointer = base, .whole = t->whole, .level = level};
    const char *type = arena_print(e->memory, "%s *const", memory_type(elem));
    if (t->offset[LEVEL_GROUP])
        a.pointer =
            cuda_share(n, LEVEL_GROUP, type, arena_print(e->memory, "%s + (%s)", a.pointer, t->offset[LEVEL_GROUP]));
    if (t->offset[LEVEL_ROW])
        a.pointer =
            cuda_share(n, LEVEL_ROW, type, arena_print(e->memory, "%s + (%s)", a.pointer, t->offset[LEVEL_ROW]));
    a.chunk = t->offset[LEVEL_CHUNK];
    a.element = t->offset[LEVEL_ELEMENT];
    for (int i = 0; i < LEVEL_ELEMENT; i++) a.ok = cjoin(e, a.ok, "&&", t->ok[i]);
    a.element_ok = t->ok[LEVEL_ELEMENT];
    if (level == LEVEL_ELEMENT)
        a.element_ok = cjoin(e, a.element_ok, "&&", t->proved);
    else
        a.ok = cjoin(e, a.ok, "&&", t->proved);
    return a;
}

/* An axis that is proved to be inside: only a checked build tests it. */
static void test_proved(cnest *n, cterms *t, const tile_op *op, const char *index, const constraint *c)
{
    emitter *e = n->e;
    if (!n->c->target->checked) return;
    const char *words = range_text(e, index, constraint_extent(e, c));
    t->proved = cjoin(e, t->proved, "&&",
                      arena_print(e->memory, "checked(%s, frame.report, %d, program0, program1, program2, %d)", words,
                                  op->line, op->attr.access.array));
}

/* The words of a chunk's first element of a digit (digit_look). */
static const char *digit_words(cnest *n, value v, const place *at)
{
    emitter *e = n->e;
    const tile_op *op = tile_def(e->k, v);
    if (op->code == OP_IOTA) return arena_print(e->memory, "(unsigned)i%d", at->axis[op->attr.index]);
    const char *of = digit_words(n, op->operands[0], at), *name = emit_name(e, digit_by(e->survey, op));
    const char *extent = cuda_share(n, LEVEL_GROUP, "const unsigned", /* an axis without elements has no digits */
                                    arena_print(e->memory, "%s > 0 ? (unsigned)%s : 1u", name, name));
    const char *part = cuda_share(n, LEVEL_GROUP, "const unsigned", arena_print(e->memory, "digit_by(%s)", extent));
    need(e, "digits");
    return arena_print(e->memory, "digits_%s(%s, %s, %s)", op->code == OP_DIV ? "above" : "below", of, extent, part);
}

/* An index that may be a tile. */
static void add_index(cnest *n, cterms *t, const tile_op *op, int axis, int operand, place at)
{
    emitter *e = n->e;
    const struct access *access = &op->attr.access;
    value v = op->operands[operand];
    dtype elem = tile_type_of(e->k, v).elem;
    creg r = cuda_value(n, v, place_of_operand(e->survey, op, operand, &at));
    constraint c = constraint_of_axis(e, v, access->array, axis);
    const char *wide = elem == DT_I64 || elem == DT_U64 ? r.words : arena_print(e->memory, "(long)%s", r.words);
    if (access->safe[axis]) {
        test_proved(n, t, op, wide, &c);
    } else {
        const char *words = range_text(e, wide, constraint_extent(e, &c));
        if (r.level <= LEVEL_ROW)
            words = cuda_share(n, r.level, "const int", words);
        else
            words = arena_print(e->memory, "(%s)", words);
        test(e, t, (creg){words, r.level, REG_NAME});
    }
    if (!value_is_zero(e, v)) term(e, t, r.level, wide, stride_text(e, access->array, axis));
}

const char *cuda_lead_pointer(emitter *e, const tile_op *op)
{
    const struct access *access = &op->attr.access;
    const tile_param *p = &e->k->params[access->array];
    const char *words = arena_print(e->memory, "%s_array", p->name);
    int operand = access->first_index;
    e->array_used[access->array] = true;
    for (int axis = 0; axis < access->rank; axis++) {
        value start = op->operands[operand];
        operand += access->kind[axis] == INDEX_SLICE ? 2 : 1;
        if (value_is_zero(e, start)) continue;
        const char *stride = stride_text(e, access->array, axis);
        words = arena_print(e->memory, "%s + (long)%s%s%s", words, emit_name(e, start),
                            stride == words_one ? "" : " * ", stride == words_one ? "" : stride);
    }
    return words;
}

/* The vectors of an access to a shifted row are whole where it lies as its lead does. */
static void know_shift(cnest *n, const tile_op *op, caddress *a, bool side_by_side)
{
    emitter *e = n->e;
    int size = dtypes[a->elem].size_bytes;
    a->width = side_by_side ? MINIMUM(16 / size, n->view.layout->vector) : 1;
    if (a->width == 1) return;
    a->even = words_one;
    if (op != n->view.layout->lead)
        a->even = cuda_share(n, LEVEL_GROUP, "const int",
                             arena_print(e->memory, "((unsigned long)(%s) - shift%d * %d) %% %d == 0", a->pointer,
                                         n->view.layout->number, size, a->width * size));
}

/* ---- arrays with digits ---- */

/* A position on an axis: what it adds to the place, and to the guards, at its level. */
static void add_digits(cnest *n, cterms *t, const param_digits *d, bool small, int axis, int level,
                       const char *position, const char **guards, int *guard_level)
{
    emitter *e = n->e;
    const char *type = small ? "unsigned" : "long"; /* division by a constant is short there */
    position = level <= LEVEL_ROW ? cuda_share(n, level, arena_print(e->memory, "const %s", type),
                                               arena_print(e->memory, "(%s)(%s)", type, position))
                                  : arena_print(e->memory, "(%s)(%s)", type, position);
    const char *sum = digits_sum(e, &d->axes[axis], d->axes[axis].stride, position);
    if (sum) t->offset[level] = cjoin(e, t->offset[level], "+", sum);
    for (int g = 0; g < d->guard_count; g++) {
        sum = digits_sum(e, &d->axes[axis], d->axes[axis].guard[g], position);
        if (!sum) continue;
        guards[g] = cjoin(e, guards[g], "+", sum);
        guard_level[g] = MAXIMUM(guard_level[g], level);
    }
}

static void test_guards(cnest *n, cterms *t, const param_digits *d, const char *const *guards, const int *level)
{
    emitter *e = n->e;
    for (int g = 0; g < d->guard_count; g++) {
        const char *sum = cjoin(e, guards[g], "+", arena_print(e->memory, "%" PRId64 "L", d->guard_first[g]));
        const char *extent = arena_print(e->memory, "%" PRId64 "L", d->guard_extent[g]);
        test(e, t, (creg){arena_print(e->memory, "(%s)", range_text(e, sum, extent)), level[g], REG_NAME});
    }
}

caddress cuda_access(cnest *n, const tile_op *op, place at)
{
    emitter *e = n->e;
    const struct access *access = &op->attr.access;
    const tile_param *p = &e->k->params[access->array];
    cterms t = {0};
    int operand = access->first_index, vector = n->view.layout ? n->view.layout->vector : 1;
    const param_digits *digits = p->digits;
    const char *guards[GUARDS_MOST] = {0};
    int guard_level[GUARDS_MOST] = {0};
    e->array_used[access->array] = true;
    if (digits && digits->origin) t.offset[LEVEL_GROUP] = arena_print(e->memory, "%" PRId64 "L", digits->origin);
    for (int axis = 0; axis < access->rank; axis++) {
        digit d;
        if (access_is_digit(&n->view, op, axis, operand, at, &d)) {
            place of_index = place_of_operand(e->survey, op, operand, &at);
            const char *stride = stride_text(e, access->array, axis),
                       *words = digit_words(n, op->operands[operand++], &of_index);
            term(e, &t, LEVEL_CHUNK, arena_print(e->memory, "(long)(%s)", words), stride);
            if (d.side_by_side && vector > 1) term(e, &t, LEVEL_ELEMENT, "v", stride);
            continue;
        }
        if (access->kind[axis] != INDEX_SLICE && digits) {
            CHECK(access->kind[axis] == INDEX_SCALAR);
            add_digits(n, &t, digits, p->facts.small, axis, LEVEL_GROUP, emit_name(e, op->operands[operand++]), guards,
                       guard_level);
            continue;
        }
        if (access->kind[axis] != INDEX_SLICE) {
            add_index(n, &t, op, axis, operand++, at);
            continue;
        }
        value start = op->operands[operand], step = op->operands[operand + 1];
        operand += 2;
        int loop = at.axis[access->result_axis[axis]];
        bool along = loop != NO_AXIS && n->view.role[loop] == ROLE_VECTOR;
        constraint c = constraint_of_axis(e, start, access->array, axis);
        if (access->safe[axis]) {
            const char *position = loop == NO_AXIS ? "0" : position_text(n, loop);
            const char *words =
                arena_print(e->memory, "%s + (long)%s * %s", emit_name(e, start), position, emit_name(e, step));
            test_proved(n, &t, op, words, &c);
        } else if (along && vector > 1 && is_one(e->survey, step)) {
            test_vector(n, &t, loop, &c);
        } else {
            test(e, &t, cuda_constraint(n, loop, &c, step));
        }
        if (digits) {
            const char *position = loop == NO_AXIS ? "0" : position_text(n, loop);
            int level = loop == NO_AXIS ? LEVEL_GROUP : axis_level(&n->view, loop);
            add_digits(n, &t, digits, p->facts.small, axis, level, from_start(e, start, position), guards, guard_level);
            continue;
        }
        if (value_is_zero(e, start) && loop == NO_AXIS) continue;
        const char *stride = stride_text(e, access->array, axis);
        if (!value_is_zero(e, start)) term(e, &t, LEVEL_GROUP, emit_name(e, start), stride);
        if (loop == NO_AXIS) continue;
        const char *by = is_one(e->survey, step) ? stride
                         : stride == words_one   ? emit_name(e, step)
                                                 : arena_print(e->memory, "%s * %s", emit_name(e, step), stride);
        const char *position = arena_print(e->memory, "%si%d", by == words_one ? "" : "(long)", loop);
        term(e, &t, along ? LEVEL_CHUNK : axis_level(&n->view, loop), position, by);
        if (along && vector > 1) term(e, &t, LEVEL_ELEMENT, "v", by);
    }
    for (int i = op->operand_count - access->mask_count; i < op->operand_count; i++)
        test(e, &t, cuda_value(n, op->operands[i], place_of_operand(e->survey, op, i, &at)));
    if (digits) test_guards(n, &t, digits, guards, guard_level);
    const access_view w = access_look(&n->view, op, at);
    caddress a = finish(n, &t, w.level, p->elem, arena_print(e->memory, "%s_array", p->name));
    a.early = !w.late;
    a.global = true;
    a.read_only = !e->survey->written[access->array];
    a.width = MINIMUM(w.width, vector);
    a.spreads = w.width == 1 && w.side_by_side && loops_store_spreads(&n->view, n->pass, op);
    a.back = w.back && a.width > 1;
    if (n->view.layout && n->view.layout->shifted) know_shift(n, op, &a, w.side_by_side);
    note_access(n, op, at, &a);
    return a;
}

caddress cuda_window_address(cnest *n, const tile_op *op, place at, value base)
{
    emitter *e = n->e;
    const struct access *access = &op->attr.access;
    const tile_param *p = &e->k->params[access->array];
    cterms t = {0};
    int operand = access->first_index, last = access->rank - 1;
    e->array_used[access->array] = true;
    for (int axis = 0; axis < last; axis++) {
        const char *stride = stride_text(e, access->array, axis);
        if (access->kind[axis] != INDEX_SLICE) {
            add_index(n, &t, op, axis, operand++, at);
            continue;
        }
        value start = op->operands[operand], step = op->operands[operand + 1];
        int loop = at.axis[access->result_axis[axis]];
        operand += 2;
        if (!value_is_zero(e, start)) term(e, &t, LEVEL_GROUP, emit_name(e, start), stride);
        constraint c = constraint_of_axis(e, start, access->array, axis);
        if (!access->safe[axis]) test(e, &t, cuda_constraint(n, loop, &c, step));
        if (loop == NO_AXIS) continue;
        const char *by =
            is_one(e->survey, step) ? stride : arena_print(e->memory, "%s * %s", emit_name(e, step), stride);
        term(e, &t, axis_level(&n->view, loop), arena_print(e->memory, "(long)i%d", loop), by);
    }
    int loop = at.axis[access->result_axis[last]];
    if (base) term(e, &t, LEVEL_GROUP, emit_name(e, base), words_one);
    term(e, &t, LEVEL_CHUNK, arena_print(e->memory, "(long)i%d", loop), emit_name(e, op->operands[operand + 1]));
    caddress a = finish(n, &t, LEVEL_ELEMENT, p->elem, arena_print(e->memory, "%s_array", p->name));
    a.early = a.global = a.read_only = true;
    a.width = 1;
    note_access(n, op, at, &a);
    return a;
}

/* The stride of an axis of a kept tile: row-major, rows padded where they are read across. */
static const char *buffer_stride(emitter *e, value v, int axis)
{
    tile_type type = tile_type_of(e->k, v);
    const kept *home = &e->cuda->spread->kept[buffer_for(e->survey, v)];
    int64_t constant = 1;
    const char *factor = NULL;
    for (int i = type.rank - 1; i > axis; i--) {
        if (type.dims[i] >= 0)
            constant *= type.dims[i] + (i == type.rank - 1 ? home->pad : 0);
        else
            factor = emit_name(e, (value)-type.dims[i]);
    }
    if (!factor) return constant == 1 ? words_one : arena_print(e->memory, "%" PRId64, constant);
    return constant == 1 ? factor : arena_print(e->memory, "%" PRId64 " * %s", constant, factor);
}

/* Elements of a kept tile that one instruction moves: a line of shared memory, in its order. */
static int buffer_width(const cnest *n, value v, const place *at, int vector)
{
    emitter *e = n->e;
    tile_type type = tile_type_of(e->k, v);
    const kept *home = &e->cuda->spread->kept[buffer_for(e->survey, v)];
    int loop = at->axis[0];
    bool line = type.rank == 1 && home->kind == HOME_SHARED;
    if (!line || loop == NO_AXIS || n->view.role[loop] != ROLE_VECTOR) return 1;
    if (n->view.layout->shifted) return 1; /* its vectors begin where those of memory do, in the middle of the tile's */
    return MINIMUM(vector, 16 / dtypes[type.elem].size_bytes);
}

caddress cuda_buffer(cnest *n, value v, place at)
{
    emitter *e = n->e;
    tile_type type = tile_type_of(e->k, v);
    int vector = n->view.layout ? n->view.layout->vector : 1;
    cterms t = {0};
    for (int axis = 0; axis < type.rank; axis++) {
        int loop = at.axis[axis];
        if (loop == NO_AXIS) continue;
        bool along = n->view.role[loop] == ROLE_VECTOR;
        const char *stride = buffer_stride(e, v, axis);
        term(e, &t, along ? LEVEL_CHUNK : axis_level(&n->view, loop), arena_print(e->memory, "i%d", loop), stride);
        if (along && vector > 1) term(e, &t, LEVEL_ELEMENT, "v", stride);
    }
    int number = buffer_for(e->survey, v);
    caddress a = finish(n, &t, tile_level(&n->view, &type, &at), type.elem, buffer_touch(e, number));
    a.width = buffer_width(n, v, &at, vector);
    note_tile(n, v, at);
    return a;
}
