/*
 * Loads, stores and atomics. In: an access and its operands. Out: for every element of the access where it lies in
 * memory, or why it is skipped; then the elements themselves.
 *
 * The addresses are built axis by axis: scalars move the base, slices add a table along their axis, index tiles add
 * per element. A masked element is skipped before an index is looked at; an element outside on a slice is skipped
 * silently; an index outside is R701.
 * SPDX-License-Identifier: MIT
 */
#include "ir/interp_state.h"

#include <math.h>
#include <string.h>

typedef struct addresses {
    tile_type shape; /* of the access */
    int64_t count;
    int64_t *memory; /* element offsets from the array's data */
    int64_t *places; /* positions in the shadow; the same buffer as memory where they agree; NULL if not wanted */
    uint8_t *skip;   /* 1: masked off or outside */
    int64_t *guards; /* of an array with digits: what each guard has added up to, element by element; NULL: none */
    uint8_t *absent; /* ... and whether one does not hold: there the array is 0 */
    bool unknown;    /* a mask has poison somewhere */
    bool may_meet;   /* two elements may lie at one place */
} addresses;

/* Masks hold together: one that is false decides even where another has no value. So poison is only marked here. */
enum { SKIP = 1, UNKNOWN = 2 };

static void apply_mask(interp *s, addresses *a, value v)
{
    tile *mask = interp_get(s, v);
    tile *full = mask->count == a->count || mask->count == 1 ? tile_keep(mask) : tile_expand(s, mask, &a->shape);
    int step = full->count != 1;
    for (int64_t j = 0; j < a->count; j++) {
        bool unknown = full->poison && full->poison[j * step];
        a->skip[j] |= unknown ? UNKNOWN : full->cells[j * step].i ? 0 : SKIP;
        a->unknown |= unknown;
    }
    tile_drop(s, full);
}

static void settle_masks(interp *s, addresses *a)
{
    for (int64_t j = 0; a->unknown && j < a->count; j++) {
        if (a->skip[j] == UNKNOWN) interp_poisoned(s, "a mask");
        a->skip[j] &= SKIP;
    }
}

int64_t digits_place(const param_digits *d, int axis, int64_t at, int64_t *guards)
{
    const axis_digits *x = &d->axes[axis];
    int64_t place = 0;
    for (int i = x->count - 1; i >= 0; i--) {
        int64_t digit = i ? at % x->extent[i] : at;
        at = i ? at / x->extent[i] : 0;
        place += digit * x->stride[i];
        for (int g = 0; g < d->guard_count; g++) guards[g] += digit * x->guard[g][i];
    }
    return place;
}

static void apply_position(addresses *a, const param_digits *d, int axis, int64_t at, int64_t stride, int64_t first,
                           int64_t last)
{
    int64_t guards[GUARDS_MOST] = {0}, place = d ? digits_place(d, axis, at, guards) : at * stride;
    for (int64_t j = first; j < last; j++) a->memory[j] += place;
    for (int g = 0; a->guards && g < d->guard_count; g++)
        for (int64_t j = first; j < last; j++) a->guards[g * a->count + j] += guards[g];
}

/* What a guard keeps away is no element to skip: it reads as 0. */
static void settle_guards(interp *s, addresses *a, const param_digits *d)
{
    if (!a->guards) return;
    a->absent = buffer_take(s, (size_t)a->count);
    memset(a->absent, 0, (size_t)a->count);
    for (int64_t j = 0; j < a->count; j++) {
        for (int g = 0; g < d->guard_count; g++) {
            int64_t sum = d->guard_first[g] + a->guards[g * a->count + j];
            a->absent[j] |= !a->skip[j] && (sum < 0 || sum >= d->guard_extent[g]);
        }
        a->skip[j] |= a->absent[j];
    }
}

static void apply_slice(addresses *a, const param_digits *d, int array_axis, int axis, int64_t start, int64_t step,
                        int64_t extent, int64_t stride, int64_t place_stride)
{
    int64_t length = a->shape.dims[axis], inner = 1;
    for (int k = axis + 1; k < a->shape.rank; k++) inner *= a->shape.dims[k];
    if (step == 0 && length > 1) a->may_meet = true;
    int64_t rounds = a->count ? a->count / (length * inner) : 0;
    for (int64_t e = 0; e < length && rounds; e++) {
        int64_t moved, at = 0;
        bool outside = __builtin_mul_overflow(e, step, &moved) || __builtin_add_overflow(start, moved, &at) || at < 0 ||
                       at >= extent;
        for (int64_t o = 0; o < rounds; o++) {
            int64_t first = (o * length + e) * inner;
            if (outside) {
                memset(a->skip + first, SKIP, (size_t)inner);
                continue;
            }
            apply_position(a, d, array_axis, at, stride, first, first + inner);
            if (a->places && a->places != a->memory)
                for (int64_t j = first; j < first + inner; j++) a->places[j] += at * place_stride;
        }
    }
}

static void report_outside(interp *s, const tile_op *op, int axis, int64_t index, int64_t extent)
{
    const char *name = s->kernel->params[op->attr.access.array].name;
    if (!s->outside[0])
        snprintf(s->outside, sizeof(s->outside), "%s: index %lld is outside axis %d of `%.60s`, whose extent is %lld",
                 error_code_text(R701), (long long)index, axis, name, (long long)extent);
    if (!s->check || s->quiet || interp_again(s, 701, op)) return;
    interp_report(s, 701, op, "index %lld is outside axis %d of `%s`, whose extent is %lld", (long long)index, axis,
                  name, (long long)extent);
}

static void apply_scalar(interp *s, const tile_op *op, addresses *a, const param_digits *d, int axis, int64_t index,
                         int64_t extent, int64_t stride, int64_t place_stride)
{
    if (index < 0 || index >= extent) {
        for (int64_t j = 0; j < a->count; j++) {
            if (a->skip[j]) continue;
            report_outside(s, op, axis, index, extent);
            break;
        }
        memset(a->skip, 1, (size_t)a->count);
        return;
    }
    apply_position(a, d, axis, index, stride, 0, a->count);
    if (a->places && a->places != a->memory)
        for (int64_t j = 0; j < a->count; j++) a->places[j] += index * place_stride;
}

static void apply_tile(interp *s, const tile_op *op, addresses *a, const param_digits *d, int axis, tile *t,
                       int64_t extent, int64_t stride, int64_t place_stride)
{
    tile *full = t->count == a->count ? tile_keep(t) : tile_expand(s, t, &a->shape);
    a->may_meet = true;
    for (int64_t j = 0; j < a->count; j++) {
        if (a->skip[j]) continue;
        if (full->poison && full->poison[j]) {
            interp_poisoned(s, "an index");
            break;
        }
        int64_t index = full->cells[j].i;
        if (index < 0 || index >= extent) {
            report_outside(s, op, axis, index, extent);
            a->skip[j] = 1;
            continue;
        }
        apply_position(a, d, axis, index, stride, j, j + 1);
        if (a->places && a->places != a->memory) a->places[j] += index * place_stride;
    }
    tile_drop(s, full);
}

static void addresses_free(interp *s, addresses *a)
{
    if (a->places != a->memory) buffer_give(s, a->places);
    buffer_give(s, a->memory);
    buffer_give(s, a->skip);
    buffer_give(s, a->guards);
    buffer_give(s, a->absent);
}

/* False: the launch stops; nothing is held. */
static bool addresses_make(interp *s, const tile_op *op, const tile_type *shape, addresses *a)
{
    const struct access *access = &op->attr.access;
    const array_view *array = &s->arrays[access->array];
    const param_digits *digits = s->kernel->params[access->array].digits;
    const shadow *known = s->shadows && s->shadows[access->array].tracked ? &s->shadows[access->array] : NULL;
    memset(a, 0, sizeof(*a));
    a->shape = *shape;
    a->count = interp_type_count(shape);
    size_t n = (size_t)a->count;
    a->memory = buffer_take(s, sizeof(int64_t) * n);
    memset(a->memory, 0, sizeof(int64_t) * n);
    a->skip = buffer_take(s, n);
    memset(a->skip, 0, n);
    for (size_t j = 0; digits && j < n; j++) a->memory[j] = digits->origin;
    if (digits && digits->guard_count) {
        a->guards = buffer_take(s, sizeof(int64_t) * n * (size_t)digits->guard_count);
        memset(a->guards, 0, sizeof(int64_t) * n * (size_t)digits->guard_count);
    }
    if (known) {
        a->places = known->same_as_memory ? a->memory : buffer_take(s, sizeof(int64_t) * n);
        for (size_t j = 0; j < n; j++) a->places[j] = known->base;
        a->may_meet = known->overlaps;
    }
    for (int k = op->operand_count - access->mask_count; k < op->operand_count; k++) apply_mask(s, a, op->operands[k]);
    for (int round = 0; round < 2 && s->stop == STOP_NONE;
         round++) { /* slices first: an index of an element outside does not count */
        int operand = access->first_index;
        for (int axis = 0; axis < access->rank && s->stop == STOP_NONE; axis++) {
            int64_t extent = array->extents[axis], stride = array->strides[axis];
            int64_t place_stride = known ? known->strides[axis] : 0;
            value v = op->operands[operand];
            if (access->kind[axis] == INDEX_SLICE) {
                operand += 2;
                if (round) continue;
                apply_slice(a, digits, axis, access->result_axis[axis], interp_integer(s, v),
                            interp_integer(s, op->operands[operand - 1]), extent, stride, place_stride);
            } else {
                operand++;
                if (!round) continue;
                tile *t = interp_get(s, v);
                if (t->type.rank) {
                    apply_tile(s, op, a, digits, axis, t, extent, stride, place_stride);
                } else if (t->poison && t->poison[0]) {
                    if (memchr(a->skip, 0, n)) interp_poisoned(s, "an index");
                } else {
                    apply_scalar(s, op, a, digits, axis, t->one.i, extent, stride, place_stride);
                }
            }
        }
        if (!round) settle_masks(s, a);
    }
    if (s->stop == STOP_NONE) {
        settle_guards(s, a, digits);
        return true;
    }
    addresses_free(s, a);
    return false;
}

/* The index on one array axis of element j of the access. */
static int64_t index_at(interp *s, const tile_op *op, const addresses *a, int axis, int operand, int64_t j)
{
    const struct access *access = &op->attr.access;
    if (access->kind[axis] == INDEX_SLICE) {
        int64_t inner = 1, length = a->shape.dims[access->result_axis[axis]];
        for (int k = access->result_axis[axis] + 1; k < a->shape.rank; k++) inner *= a->shape.dims[k];
        return interp_integer(s, op->operands[operand]) +
               j / inner % length * interp_integer(s, op->operands[operand + 1]);
    }
    tile *t = interp_get(s, op->operands[operand]);
    if (t->count == 1) return t->cells[0].i;
    int64_t at = 0, step = 1, rest = j;
    for (int k = a->shape.rank - 1; k >= 0; k--) {
        int64_t index = rest % a->shape.dims[k];
        rest /= a->shape.dims[k];
        if (t->type.dims[k] != 1) at += index * step;
        step *= t->type.dims[k];
    }
    return t->cells[at].i;
}

bool interp_touches(const interp *state, const tile_op *op, interp_touch *out)
{
    interp *s = (interp *)state; /* only buffers change hands */
    addresses a;
    if (ops[op->code].class != CLASS_MEMORY) return false;
    tile_type shape = op->code == OP_LOAD ? interp_resolve(s, op->results[0]) : interp_get(s, op->operands[0])->type;
    s->quiet = true;
    bool made = addresses_make(s, op, &shape, &a);
    s->quiet = false;
    if (!made) return false;
    memset(out, 0, sizeof(*out));
    const struct access *access = &op->attr.access;
    for (int64_t j = 0; j < a.count; j++) {
        if (a.skip[j]) {
            out->untouched++;
            continue;
        }
        int operand = access->first_index;
        for (int axis = 0; axis < access->rank; axis++) {
            int64_t index = index_at(s, op, &a, axis, operand, j);
            out->low[axis] = out->touched ? MINIMUM(out->low[axis], index) : index;
            out->high[axis] = out->touched ? MAXIMUM(out->high[axis], index) : index;
            operand += access->kind[axis] == INDEX_SLICE ? 2 : 1;
        }
        out->touched++;
    }
    addresses_free(s, &a);
    return true;
}

#define LOAD_AS(type, field)                                       \
    {                                                              \
        const type *from = array->data;                            \
        for (int64_t j = 0; j < a.count; j++)                      \
            if (!a.skip[j]) r->cells[j].field = from[a.memory[j]]; \
        break;                                                     \
    }

cell cell_read(dtype elem, const void *from)
{
    number n = element_read(elem, from);
    cell c;
    if (dtype_is_float(elem))
        c.f = n.f;
    else
        c.i = n.i;
    return c;
}

void cell_write(dtype elem, void *to, cell c)
{
    number n = {0, 0};
    if (dtype_is_float(elem))
        n.f = c.f;
    else
        n.i = c.i;
    element_write(elem, to, n);
}

static void load_births(interp *s, int array, const addresses *a, tile *r)
{
    const int32_t *known = shadow_births(s, array);
    int32_t *birth = birth_table(s, r);
    for (int64_t j = 0; j < a->count; j++) {
        if (a->skip[j] || isfinite(r->cells[j].f)) continue;
        int32_t stored = known ? known[a->places[j]] : 0;
        birth[j] = stored ? stored : -(array + 1);
    }
}

tile *interp_load(interp *s, const tile_op *op)
{
    addresses a;
    tile_type type = interp_resolve(s, op->results[0]);
    int param = op->attr.access.array;
    const array_view *array = &s->arrays[param];
    if (!addresses_make(s, op, &type, &a)) return NULL;
    tile *r = tile_make(s, &type);
    bool skips = a.count && memchr(a.skip, 1, (size_t)a.count);
    if (skips) memset(r->cells, 0, sizeof(cell) * (size_t)a.count);
    switch (array->elem) {
    case DT_F32: LOAD_AS(float, f)
    case DT_F64: LOAD_AS(double, f)
    case DT_I32: LOAD_AS(int32_t, i)
    case DT_I64: LOAD_AS(int64_t, i)
    case DT_U8: LOAD_AS(uint8_t, i)
    default: {
        int size = dtypes[array->elem].size_bytes;
        for (int64_t j = 0; j < a.count; j++)
            if (!a.skip[j]) r->cells[j] = cell_read(array->elem, (const char *)array->data + a.memory[j] * size);
    }
    }
    if (s->check) {
        if (a.places) shadow_read(s, op, param, a.count, a.places, a.skip);
        if (skips && type.rank) { /* a scalar outside reads 0 */
            r->poison = buffer_take(s, (size_t)a.count);
            memcpy(r->poison, a.skip, (size_t)a.count);
            for (int64_t j = 0; a.absent && j < a.count; j++) r->poison[j] &= !a.absent[j];
        }
        if (dtype_is_float(type.elem) && has_nonfinite(r)) load_births(s, param, &a, r);
    }
    addresses_free(s, &a);
    return r;
}

static bool poison_is_stored(const tile *t, const addresses *a)
{
    if (!t->poison) return false;
    for (int64_t j = 0; j < a->count; j++)
        if (!a->skip[j] && t->poison[t->count == 1 ? 0 : j]) return true;
    return false;
}

void interp_store(interp *s, const tile_op *op)
{
    addresses a;
    tile *t = interp_get(s, op->operands[0]);
    int param = op->attr.access.array;
    const array_view *array = &s->arrays[param];
    if (!addresses_make(s, op, &t->type, &a)) return;
    if (s->check && poison_is_stored(t, &a)) {
        interp_poisoned(s, "memory");
        addresses_free(s, &a);
        return;
    }
    int size = dtypes[array->elem].size_bytes;
    for (int64_t j = 0; j < a.count; j++)
        if (!a.skip[j]) cell_write(array->elem, (char *)array->data + a.memory[j] * size, t->cells[j]);
    if (s->check && a.places) {
        shadow_write(s, op, param, a.count, a.places, a.skip, a.may_meet);
        if (dtype_is_float(array->elem)) {
            shadow_set_births(s, param, a.count, a.places, a.skip, t);
            if (t->birth) check_stored(s, op, param, t, a.skip, a.places);
        }
    }
    addresses_free(s, &a);
}

cell cell_atomic(atomic_kind kind, dtype elem, cell old, cell x, cell expected)
{
    bool is_float = dtype_is_float(elem);
    cell r = old;
    switch (kind) {
    case ATOMIC_ADD: math_binary(OP_ADD, elem, 1, &old, 0, &x, 0, &r); break;
    case ATOMIC_MIN: math_binary(OP_MIN, elem, 1, &old, 0, &x, 0, &r); break;
    case ATOMIC_MAX: math_binary(OP_MAX, elem, 1, &old, 0, &x, 0, &r); break;
    case ATOMIC_AND: r.i = old.i & x.i; break;
    case ATOMIC_OR: r.i = old.i | x.i; break;
    case ATOMIC_XOR: r.i = old.i ^ x.i; break;
    case ATOMIC_EXCHANGE: r = x; break;
    case ATOMIC_CAS:
        if (is_float ? old.f == expected.f : old.i == expected.i) r = x;
        break;
    case ATOMIC_COUNT: break;
    }
    math_round(elem, 1, &r);
    return r;
}

tile *interp_atomic(interp *s, const tile_op *op)
{
    addresses a;
    tile *t = interp_get(s, op->operands[0]);
    tile *expected = op->attr.atomic == ATOMIC_CAS ? interp_get(s, op->operands[1]) : t;
    int param = op->attr.access.array;
    const array_view *array = &s->arrays[param];
    if (!addresses_make(s, op, &t->type, &a)) return NULL;
    if (s->check && (poison_is_stored(t, &a) || poison_is_stored(expected, &a))) {
        interp_poisoned(s, "an atomic");
        addresses_free(s, &a);
        return NULL;
    }
    tile_type type = t->type;
    type.elem = array->elem;
    tile *r = tile_make(s, &type);
    memset(r->cells, 0, sizeof(cell) * (size_t)a.count);
    int size = dtypes[array->elem].size_bytes, expected_step = expected->count == a.count;
    for (int64_t j = 0; j < a.count; j++) {
        if (a.skip[j]) continue;
        void *at = (char *)array->data + a.memory[j] * size;
        r->cells[j] = cell_read(array->elem, at);
        cell_write(
            array->elem, at,
            cell_atomic(op->attr.atomic, array->elem, r->cells[j], t->cells[j], expected->cells[j * expected_step]));
    }
    if (s->check && a.places) {
        shadow_atomic(s, op, param, a.count, a.places, a.skip);
        if (type.rank && memchr(a.skip, 1, (size_t)a.count)) {
            r->poison = buffer_take(s, (size_t)a.count);
            memcpy(r->poison, a.skip, (size_t)a.count);
        }
        if (dtype_is_float(array->elem)) {
            if (has_nonfinite(r)) load_births(s, param, &a, r);
            if (t->birth) check_stored(s, op, param, t, a.skip, a.places);
        }
    }
    addresses_free(s, &a);
    return r;
}
