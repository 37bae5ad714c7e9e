/*
 * Spaces, affine coordinates, and the one movement that is not a rearrangement of them: reshape.
 *
 * Reshape works on runs of axes with equal products. In a run the row-major position is an affine expression; each of
 * its terms belongs to the axis of the other shape that it steps through. A term that steps through two axes wants its
 * axis of the space cut there. Terms that carry from one axis into the next need quotients.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/index.h"

#include <string.h>

static void space_derive(space *s)
{
    s->axis_count = 0;
    for (int r = 0; r < s->root_count; r++) {
        if (s->roots[r] == 1) continue;
        int64_t end = s->roots[r];
        for (int c = s->cut_count[r]; c >= 0; c--) {
            int64_t unit = c ? s->cuts[r][c - 1] : 1;
            s->axes[s->axis_count++] = (space_axis){r, unit, unit ? end / unit : 0};
            end = unit;
        }
    }
}

void space_init(space *s, const int64_t *extents, int rank)
{
    CHECK(rank <= SPACE_ROOTS);
    memset(s, 0, sizeof(*s));
    s->root_count = rank;
    for (int r = 0; r < rank; r++) s->roots[r] = extents[r];
    space_derive(s);
}

bool space_cut(space *s, int axis, int64_t inner)
{
    const space_axis a = s->axes[axis];
    if (s->axis_count == SPACE_AXES || inner <= 1 || inner >= a.extent || a.extent % inner) return false;
    int at = 0, r = a.root;
    int64_t unit = a.unit * inner;
    while (at < s->cut_count[r] && s->cuts[r][at] < unit) at++;
    memmove(s->cuts[r] + at + 1, s->cuts[r] + at, sizeof(int64_t) * (size_t)(s->cut_count[r] - at));
    s->cuts[r][at] = unit;
    s->cut_count[r]++;
    space_derive(s);
    return true;
}

affine space_coordinate(const space *s, int root)
{
    affine a = {0};
    for (int i = 0; i < s->axis_count; i++)
        if (s->axes[i].root == root) a.factor[i] = s->axes[i].unit;
    return a;
}

int64_t space_count(const space *s, unsigned axes)
{
    int64_t count = 1;
    for (int i = 0; i < s->axis_count; i++)
        if (axes >> i & 1) count *= s->axes[i].extent;
    return count;
}

affine affine_constant(int64_t constant)
{
    return (affine){.constant = constant};
}

void affine_add(affine *to, const affine *from, int64_t times)
{
    to->constant += from->constant * times;
    for (int i = 0; i < SPACE_AXES + SPACE_ATOMS; i++) to->factor[i] += from->factor[i] * times;
}

bool affine_same(const affine *a, const affine *b)
{
    return !memcmp(a, b, sizeof(*a));
}

bool affine_has_atoms(const affine *a)
{
    for (int i = SPACE_AXES; i < SPACE_AXES + SPACE_ATOMS; i++)
        if (a->factor[i]) return true;
    return false;
}

bool index_map_same(const index_map *a, const index_map *b)
{
    return a->rank == b->rank && !memcmp(a->axes, b->axes, sizeof(affine) * (size_t)a->rank);
}

index_map index_map_root(const space *s, const int *roots, int rank)
{
    index_map m = {.rank = rank};
    for (int k = 0; k < rank; k++) m.axes[k] = space_coordinate(s, roots[k]);
    return m;
}

affine index_linear(const index_map *m, const shape *s, const int64_t *strides)
{
    affine sum = {0};
    int64_t row_major[GRAPH_RANK];
    strides_set_row_major(m->rank, s->extents, row_major);
    for (int k = m->rank - 1; k >= 0; k--) affine_add(&sum, &m->axes[k], strides ? strides[k] : row_major[k]);
    return sum;
}

bool index_is_dense(const space *s, const affine *linear, unsigned axes, int64_t count)
{
    if (linear->constant || affine_has_atoms(linear) || space_count(s, axes) != count) return false;
    for (int i = 0; i < s->axis_count; i++)
        if (!(axes >> i & 1) && linear->factor[i]) return false;
    int64_t next = 1;
    unsigned left = axes;
    while (left) {
        int found = -1;
        for (int i = 0; i < s->axis_count; i++)
            if (left >> i & 1 && linear->factor[i] == next) found = i;
        if (found < 0) return count == 0;
        next *= s->axes[found].extent;
        left &= ~(1u << found);
    }
    return true;
}

bool index_is_turned_dense(const space *s, const affine *linear, unsigned axes, int64_t count)
{
    affine forwards = *linear;
    for (int i = 0; i < s->axis_count; i++) {
        if (forwards.factor[i] >= 0) continue;
        forwards.constant += forwards.factor[i] * (s->axes[i].extent - 1);
        forwards.factor[i] = -forwards.factor[i];
    }
    return index_is_dense(s, &forwards, axes, count);
}

unsigned affine_axes(const affine *a, const unsigned *atom_axes)
{
    unsigned axes = 0;
    for (int i = 0; i < SPACE_AXES; i++)
        if (a->factor[i]) axes |= 1u << i;
    for (int i = 0; i < SPACE_ATOMS; i++)
        if (a->factor[SPACE_AXES + i]) axes |= atom_axes[i];
    return axes;
}

/* ---- reshape ---- */

/* Axes first..last-1 of a shape without its extents of 1. */
typedef struct run {
    int axes[GRAPH_RANK], count;
    int64_t product;
} run;

/* The terms of `linear` by axes of `r`, as digits of its extents; false: they do not separate. A term over two axes
 * asks for a cut. */
static bool separate(const space *s, const affine *linear, const shape *from, const run *r, index_map *out,
                     int *cut_axis, int64_t *cut_inner)
{
    int64_t reach[GRAPH_RANK] = {0}, constant = linear->constant;
    if (constant < 0 || affine_has_atoms(linear)) return false;
    int64_t units[GRAPH_RANK], unit = 1;
    for (int j = r->count - 1; j >= 0; j--) {
        units[j] = unit;
        unit *= from->extents[r->axes[j]];
        out->axes[r->axes[j]] = affine_constant(0);
    }
    for (int i = 0; i < s->axis_count; i++) {
        int64_t f = linear->factor[i], extent = s->axes[i].extent;
        if (!f) continue;
        if (f < 0) return false;
        int j = 0;
        while (units[j] > f) j++;
        if (f % units[j]) return false;
        int64_t end = units[j] * from->extents[r->axes[j]]; /* where the next outer axis begins */
        if (j && f * extent > end) {
            if (end % f || extent % (end / f)) return false;
            *cut_axis = i;
            *cut_inner = end / f;
            return false;
        }
        out->axes[r->axes[j]].factor[i] = f / units[j];
        reach[j] += f / units[j] * (extent - 1);
    }
    for (int j = 0; j < r->count; j++) {
        int64_t digit = constant / units[j];
        constant %= units[j];
        out->axes[r->axes[j]].constant = digit;
        if (reach[j] + digit >= from->extents[r->axes[j]]) return false;
    }
    return true;
}

/* (a - b) / divisor, if that is whole in every term. */
static bool divide_rest(const affine *a, const affine *b, int64_t divisor, affine *out)
{
    affine rest = *a;
    affine_add(&rest, b, -1);
    if (rest.constant % divisor) return false;
    rest.constant /= divisor;
    for (int i = 0; i < SPACE_AXES + SPACE_ATOMS; i++) {
        if (rest.factor[i] % divisor) return false;
        rest.factor[i] /= divisor;
    }
    *out = rest;
    return true;
}

/* How often a sum is in `linear`, if none of its axes is in what is left then; 0: it is not. */
static int64_t times_in(const space *s, const affine *linear, const affine *sum)
{
    int64_t times = 0;
    for (int i = 0; i < s->axis_count; i++) {
        if (!sum->factor[i]) continue;
        if (linear->factor[i] % sum->factor[i]) return 0;
        int64_t here = linear->factor[i] / sum->factor[i];
        if (times && here != times) return 0;
        times = here;
    }
    return times;
}

/* The part of `linear` below `extent`, where that is plain: remainders of the terms that never carry. Of sums that are known
 * to lie inside their extents not all terms together can be as large as each alone. */
static bool plain_digit(const space *s, const affine *linear, int64_t extent, const index_known *known, int known_count,
                        affine *out)
{
    int64_t low = 0, high = 0;
    if (affine_has_atoms(linear)) return false;
    affine left = *linear;
    *out = affine_constant(0);
    for (int i = 0; i < known_count; i++) {
        int64_t times = affine_has_atoms(&known[i].sum) ? 0 : times_in(s, &left, &known[i].sum) % extent;
        if (times <= 0) continue;
        affine_add(&left, &known[i].sum, -times);
        affine_add(out, &known[i].sum, times);
        high += times * (known[i].extent - 1);
    }
    for (int i = 0; i < s->axis_count; i++) {
        int64_t rest = left.factor[i] % extent, reach = rest * (s->axes[i].extent - 1);
        out->factor[i] += rest;
        *(reach < 0 ? &low : &high) += reach;
    }
    int64_t least = left.constant + low, turns = least / extent - (least % extent < 0);
    int64_t constant = left.constant - turns * extent;
    out->constant += constant;
    return constant + high < extent;
}

/* Digit by digit from the last: what is known to be one, else what plainly is. */
static bool separate_known(const space *s, const affine *linear, const shape *from, const run *r,
                           const index_known *known, int known_count, index_map *out)
{
    affine left = *linear;
    for (int j = r->count - 1; j > 0; j--) {
        int64_t extent = from->extents[r->axes[j]];
        affine digit, next;
        bool found = false;
        for (int i = 0; i < known_count && !found; i++) {
            if (known[i].extent > extent || !divide_rest(&left, &known[i].sum, extent, &next)) continue;
            digit = known[i].sum;
            found = true;
        }
        if (!found &&
            (!plain_digit(s, &left, extent, known, known_count, &digit) || !divide_rest(&left, &digit, extent, &next)))
            return false;
        out->axes[r->axes[j]] = digit;
        left = next;
    }
    out->axes[r->axes[0]] = left;
    return true;
}

static bool reshape_run(const space *s, const shape *to, const run *known, const index_map *m, const shape *from,
                        const run *wanted, index_map *out, bool may_cut, int *cut_axis, int64_t *cut_inner,
                        const index_known *sums, int sum_count, bool dense, index_quotient *quotient, void *context)
{
    if (known->count == 1 && wanted->count == 1) {
        out->axes[wanted->axes[0]] = m->axes[known->axes[0]];
        return true;
    }
    affine linear = {0};
    int64_t unit = 1;
    for (int j = known->count - 1; j >= 0; j--) {
        affine_add(&linear, &m->axes[known->axes[j]], unit);
        unit *= to->extents[known->axes[j]];
    }
    if (wanted->count == 1) {
        out->axes[wanted->axes[0]] = linear;
        return true;
    }
    if (separate(s, &linear, from, wanted, out, cut_axis, cut_inner)) return true;
    if (separate_known(s, &linear, from, wanted, sums, sum_count, out)) {
        *cut_axis = -1;
        return true;
    }
    if (dense && !affine_has_atoms(&linear)) {
        for (int j = 0; j < wanted->count; j++) out->axes[wanted->axes[j]] = affine_constant(0);
        out->axes[wanted->axes[wanted->count - 1]] = linear;
        *cut_axis = -1;
        return true;
    }
    if (*cut_axis >= 0 && may_cut) return false;
    *cut_axis = -1;
    unit = 1;
    for (int j = wanted->count - 1; j >= 0; j--) {
        int axis = wanted->axes[j];
        int64_t extent = from->extents[axis];
        int atom = quotient(context, &linear, unit, j ? extent : 0);
        if (atom < 0) return false;
        out->axes[axis] = affine_constant(0);
        out->axes[axis].factor[SPACE_AXES + atom] = 1;
        unit *= extent;
    }
    return true;
}

/* The next run: the fewest axes of both with equal products. */
static void next_runs(const shape *to, int *at_to, run *a, const shape *from, int *at_from, run *b)
{
    *a = *b = (run){.product = 1};
    for (;;) {
        while (*at_to < to->rank && to->extents[*at_to] == 1) ++*at_to;
        while (*at_from < from->rank && from->extents[*at_from] == 1) ++*at_from;
        bool begun = a->count && b->count;
        if (begun && a->product == b->product) return;
        bool more_to = *at_to < to->rank, more_from = *at_from < from->rank;
        if (!more_to && !more_from) return;
        if (more_to && (!more_from || !a->count || (b->count && a->product < b->product))) {
            a->product *= to->extents[*at_to];
            a->axes[a->count++] = (*at_to)++;
        } else {
            b->product *= from->extents[*at_from];
            b->axes[b->count++] = (*at_from)++;
        }
    }
}

bool index_reshape(const space *s, const shape *to, const index_map *m, const shape *from, index_map *out, bool may_cut,
                   int *cut_axis, int64_t *cut_inner, const index_known *known, int known_count, bool dense,
                   index_quotient *quotient, void *context)
{
    memset(out, 0, sizeof(*out));
    out->rank = from->rank;
    *cut_axis = -1;
    if (!shape_count(to)) return true; /* no element is ever asked for */
    /* Where another coordinate is computed, the array is read by its own axes, and none may be left. */
    for (int k = 0; k < m->rank; k++) dense &= !affine_has_atoms(&m->axes[k]);
    int at_to = 0, at_from = 0;
    for (;;) {
        run a, b;
        next_runs(to, &at_to, &a, from, &at_from, &b);
        if (!a.count) return true;
        if (!reshape_run(s, to, &a, m, from, &b, out, may_cut, cut_axis, cut_inner, known, known_count, dense, quotient,
                         context))
            return false;
    }
}
