/*
 * A product of whole arrays in the numbers of one launch. In: a whole_product, arrays, a launch plan. Out: rows, columns, k,
 * how many products, and where their matrices lie; or what stands against it.
 *
 * That every element of the result is computed is not proved from the text of the index arithmetic, which may be in any
 * order the user likes: the host runs it for each program and marks the tiles. It is asked once for each shape.
 * SPDX-License-Identifier: MIT
 */
#include "ir/scalar.h"
#include "ir/whole.h"

enum { MOST_PROGRAMS = 1 << 17 };

typedef struct walk {
    const whole_product *w;
    const array_view *arrays;
    const launch_plan *plan;
    whole_numbers *out;
    int64_t *values;                  /* of scalars, by value */
    int batch[MAX_RANK], batch_count; /* axes of the result that are picked */
    uint8_t *seen;
    int64_t tiles[2], left; /* across each direction; tiles of the result that were not seen yet */
} walk;

static void run_scalars(const walk *x, const int64_t program[3])
{
    const whole_product *w = x->w;
    for (int i = 0; i < w->scalar_count; i++) {
        const tile_op *op = w->scalars[i];
        int64_t operands[3] = {0, 0, 0}, *to = &x->values[op->results[0]];
        for (int n = 0; n < op->operand_count; n++) operands[n] = x->values[op->operands[n]];
        switch (op->code) {
        case OP_CONST: *to = op->attr.number.i; break;
        case OP_ARG: *to = x->plan->scalars_bits[op->attr.index]; break;
        case OP_PROGRAM: *to = program[op->attr.index]; break;
        case OP_PROGRAMS: *to = x->plan->programs[0][op->attr.index]; break;
        default: scalar_of_op(w->kernel, op, operands, to);
        }
    }
}

/* The extent of each direction, the same for all arrays that have it. */
static const char *find_extents(walk *x)
{
    const whole_product *w = x->w;
    const whole_array *arrays[] = {&w->left, &w->right, &w->result};
    for (int direction = 0; direction < WHOLE_DIRECTIONS; direction++) {
        int64_t extent = -1;
        for (int i = 0; i < COUNT(arrays); i++) {
            bool has = direction == WHOLE_ROWS ? i != 1 : direction == WHOLE_COLUMNS ? i != 0 : i != 2;
            if (!has) continue;
            int axis = arrays[i]->axes[direction];
            int64_t own = axis < 0 ? 1 : x->arrays[arrays[i]->param].extents[axis];
            if (extent >= 0 && own != extent) return "its arrays have other extents than each other";
            extent = own;
        }
        if (extent < 1) return "there is nothing to multiply";
        x->out->extents[direction] = extent;
    }
    const array_view *bias = w->bias < 0 ? NULL : &x->arrays[w->bias];
    if (bias && (bias->extents[0] != x->out->extents[WHOLE_COLUMNS] || (bias->extents[0] > 1 && bias->strides[0] != 1)))
        return "the row that is added does not lie side by side";
    x->out->bias = bias ? bias->data : NULL;
    return NULL;
}

/* One program: all tests hold for every element, and its tile is one of the result's. */
static const char *mark(walk *x, const int64_t program[3])
{
    const whole_product *w = x->w;
    const int64_t *extents = x->out->extents;
    const array_view *c = &x->arrays[w->result.param];
    int64_t tile = 0;
    bool inside = true;
    run_scalars(x, program);
    for (int i = 0; i < x->batch_count; i++) {
        int64_t at = x->values[w->result.picked[x->batch[i]]], extent = c->extents[x->batch[i]];
        if (at < 0 || at >= extent) return NULL; /* a number of the caller's: any */
        tile = tile * extent + at;
    }
    for (int direction = 0; direction < 2; direction++) {
        int64_t start = x->values[w->starts[direction]], size = w->tile[direction];
        if (start % size) return "its tiles do not lie side by side";
        inside &= start >= 0 && start < extents[direction];
        if (inside) tile = tile * x->tiles[direction] + start / size;
    }
    if (!inside) return NULL;
    for (int i = 0; i < w->bound_count; i++)
        if (x->values[w->bounds[i].limit] < extents[w->bounds[i].direction])
            return "it leaves out a part of an operand";
    int64_t depth = w->limit ? x->values[w->limit] : 1, step = w->tile[WHOLE_DEPTH];
    if (depth < 1 || (depth + step - 1) / step * step < extents[WHOLE_DEPTH]) return "it leaves out a part of k";
    if (!(x->seen[tile >> 3] >> (tile & 7) & 1)) x->left--;
    x->seen[tile >> 3] |= (uint8_t)(1 << (tile & 7));
    return NULL;
}

static const char *cover(walk *x)
{
    const whole_product *w = x->w;
    const int64_t *programs = x->plan->programs[0];
    int64_t all = 1;
    for (int i = 0; i < x->batch_count; i++) all *= x->arrays[w->result.param].extents[x->batch[i]];
    x->out->count = all;
    for (int direction = 0; direction < 2; direction++) {
        x->tiles[direction] = (x->out->extents[direction] + w->tile[direction] - 1) / w->tile[direction];
        all *= x->tiles[direction];
    }
    if (programs[0] * programs[1] * programs[2] > MOST_PROGRAMS || all > MOST_PROGRAMS)
        return "it has too many programs to see that they are the whole result";
    x->left = all;
    x->seen = heap_array((size_t)all / 8 + 1, 1);
    const char *why = NULL;
    for (int64_t i = 0; i < programs[0] * programs[1] * programs[2] && !why; i++)
        why =
            mark(x, (const int64_t[3]){i % programs[0], i / programs[0] % programs[1], i / programs[0] / programs[1]});
    heap_free(x->seen);
    return why ? why : x->left ? "its programs are not the whole result" : NULL;
}

/* The matrices of one array: those picked by the same scalars as the result's lie one behind the other, at one distance. */
static const char *find_matrix(const walk *x, const whole_array *from, int rows, int columns, whole_matrix *out)
{
    const whole_product *w = x->w;
    const array_view *v = &x->arrays[from->param], *c = &x->arrays[w->result.param];
    const int directions[2] = {rows, columns};
    int64_t extents[MAX_RANK], strides[MAX_RANK] = {0}, count;
    bool known[MAX_RANK] = {false};
    out->data = v->data;
    for (int i = 0; i < 2; i++) {
        int axis = from->axes[directions[i]];
        out->strides[i] = axis < 0 || v->extents[axis] == 1 ? 0 : v->strides[axis];
    }
    for (int i = 0; i < x->batch_count; i++) {
        extents[i] = c->extents[x->batch[i]];
        for (int axis = 0; axis < v->rank; axis++) {
            if (known[axis] || !from->picked[axis] || from->picked[axis] != w->result.picked[x->batch[i]]) continue;
            if (v->extents[axis] != extents[i]) return "its arrays hold other numbers of matrices";
            strides[i] = v->strides[axis];
            known[axis] = true;
            break;
        }
    }
    for (int axis = 0; axis < v->rank; axis++)
        if (from->picked[axis] && !known[axis] && v->extents[axis] != 1) return "it takes some of the matrices alone";
    if (!strides_join(x->batch_count, extents, strides, &count, &out->next))
        return "its matrices do not lie at one distance";
    return NULL;
}

const char *whole_numbers_of(const whole_product *w, const array_view *arrays, const launch_plan *plan,
                             whole_numbers *out)
{
    walk x = {.w = w, .arrays = arrays, .plan = plan, .out = out};
    *out = (whole_numbers){0};
    for (int axis = 0; axis < arrays[w->result.param].rank; axis++)
        if (w->result.picked[axis]) x.batch[x.batch_count++] = axis;
    const char *why = find_extents(&x);
    if (!why) why = find_matrix(&x, &w->left, WHOLE_ROWS, WHOLE_DEPTH, &out->left);
    if (!why) why = find_matrix(&x, &w->right, WHOLE_DEPTH, WHOLE_COLUMNS, &out->right);
    if (!why) why = find_matrix(&x, &w->result, WHOLE_ROWS, WHOLE_COLUMNS, &out->result);
    if (why) return why;
    x.values = heap_array((size_t)w->kernel->value_count, sizeof(*x.values));
    why = cover(&x);
    heap_free(x.values);
    return why;
}

void whole_print(const whole_product *w, const whole_numbers *n, text *out)
{
    if (n->count > 1) text_print(out, "%lld x ", (long long)n->count);
    text_print(out, "%s %lldx%lldx%lld", w->tf32 ? "tf32" : dtypes[w->elem].text, (long long)n->extents[WHOLE_ROWS],
               (long long)n->extents[WHOLE_COLUMNS], (long long)n->extents[WHOLE_DEPTH]);
    if (w->stored != w->elem) text_print(out, " to %s", dtypes[w->stored].text);
    if (w->bias >= 0) text_add(out, ", with a bias");
}
