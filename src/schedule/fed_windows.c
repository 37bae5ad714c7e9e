/*
 * Operands that the copy engine gathers. In: an array with digits that a product takes as it lies in memory (fed_gather.c).
 * Out: its digits as channels, axes of places and images (sched_windows), or nothing: then warps gather it.
 *
 * What a convolution reads, its channels last: position m of a side counts through images (or there is one) and places, k through the elements
 * of a window and the channels of one. A guard ties an axis of places to the elements of the window that move along it; an
 * axis without padding has none, and then any pairing of places and elements leads to the same addresses: the one that has
 * elements least far apart, since the copy engine's offsets are short. Windows that are
 * walked backwards (gradients, transposed convolutions) begin at their last element.
 * SPDX-License-Identifier: MIT
 */
#include "ir/scalar.h"
#include "schedule/fed.h"

enum { ALIGNED_BYTES = 16, MOST_STEP = 8 };

/* How far corners and offsets may be, by the axes of places: the copy engine has 16 bits for all of one kind. */
static const int64_t corner_most[SCHED_MOST_PLACES] = {32767, 127, 15},
                     offset_most[SCHED_MOST_PLACES] = {65535, 255, 31};

/* The one digit that a guard counts with, from `first` on; -1: none, -2: several. */
static int digit_of_guard(const axis_digits *d, int guard, int first)
{
    int found = -1;
    for (int i = 0; i < d->count; i++)
        if (d->guard[guard][i]) found = found >= 0 || i < first ? -2 : i;
    return found;
}

/* An axis of places with padding. */
static bool tie(sched_window_axis *a, const param_digits *d, int guard, const axis_digits *places, int place,
                const axis_digits *k)
{
    int64_t step = places->guard[guard][place];
    int tap = digit_of_guard(k, guard, 0);
    if (a->stride || tap < -1 || tap == k->count - 1 || step < 1 || places->stride[place] % step) return false;
    a->step = (int)step;
    a->stride = places->stride[place] / step;
    a->extent = d->guard_extent[guard];
    a->first = d->guard_first[guard];
    a->digit = tap;
    a->apart = tap < 0 ? 0 : (int)k->guard[guard][tap];
    return tap < 0 || k->stride[tap] == a->apart * a->stride;
}

/* Without: what lies in the array is all that is walked. */
static bool walk_freely(sched_window_axis *a, const axis_digits *places, int place, const axis_digits *k, int tap)
{
    int64_t unit = places->stride[place];
    if (unit <= 0) return false;
    if (tap >= 0) unit = scalar_greatest_divisor(unit, k->stride[tap]);
    a->stride = unit;
    a->step = (int)(places->stride[place] / unit);
    a->digit = tap;
    a->apart = tap < 0 ? 0 : (int)(k->stride[tap] / unit);
    int64_t reach = tap < 0 ? 0 : (k->extent[tap] - 1) * (int64_t)abs(a->apart);
    a->extent = (a->count - 1) * a->step + reach + 1;
    a->first = a->apart < 0 ? reach : 0;
    return true;
}

/* The digit of k, of those that no axis has yet, that has most in common with the steps of a place's axis; -1: none has, and the
 * `left` axes that come after this one can have those that there are. */
static int nearest_tap(int64_t stride, const axis_digits *k, const bool *used, int left)
{
    int64_t common = 0;
    int best = -1, rest = 0;
    for (int tap = 0; tap + 1 < k->count; tap++) {
        if (used[tap]) continue;
        rest++;
        int64_t divisor = scalar_greatest_divisor(stride, k->stride[tap]);
        if (divisor > common) common = divisor, best = tap;
    }
    return best >= 0 && (stride / common <= MOST_STEP || rest > left) ? best : -1;
}

static bool fits(const sched_windows *x, const sched_window_axis *a, int aligned)
{
    int64_t most = corner_most[x->axis_count - 1], reach = (a->taps - 1) * (int64_t)abs(a->apart);
    int64_t lower = sched_window_lower(a), upper = sched_window_upper(a);
    return a->step <= MOST_STEP && a->stride > 0 && a->stride % aligned == 0 && a->extent > 0 && a->taps > 0 &&
           reach <= offset_most[x->axis_count - 1] && lower >= -most && lower <= most && upper >= -most &&
           upper <= most;
}

/* Axes that are read at one place a program: groups of channels at most. */
static bool find_group(sched_windows *x, const struct access *a, const param_digits *d)
{
    x->group_axis = -1;
    for (int axis = 0; axis < a->rank; axis++) {
        if (axis == x->k_axis || axis == x->tile_axis) continue;
        const axis_digits *g = &d->axes[axis];
        for (int n = 0; n < d->guard_count; n++)
            if (g->guard[n][0]) return false;
        if (x->group_axis >= 0 || g->count != 1 || g->stride[0] < 0) return false;
        x->group_axis = axis;
        x->group_stride = g->stride[0];
    }
    return true;
}

static bool find_windows(const schedule *s, const sched_operand *o, sched_windows *x)
{
    const struct access *access = &o->load->attr.access;
    const tile_param *p = &s->kernel->params[access->array];
    const param_digits *d = p->digits;
    const axis_digits *places = &d->axes[o->tile_axis], *k = &d->axes[o->k_axis];
    *x = (sched_windows){.k_axis = o->k_axis, .tile_axis = o->tile_axis, .origin = d->origin};
    int last = k->count - 1, aligned = ALIGNED_BYTES / dtypes[p->elem].size_bytes;
    if (last < 1 || k->stride[last] != 1 || k->extent[last] % s->choice.tile[2] || !find_group(x, access, d))
        return false;
    x->channels = k->extent[last];
    x->depth = 1;
    for (int i = 0; i <= last; i++) x->depth *= k->extent[i];
    for (int g = 0; g < d->guard_count; g++)
        if (k->guard[g][last]) return false;
    int images = places->extent[0] == 0; /* else there is one, and its first axis of places is the first digit */
    x->axis_count = places->count - images;
    x->image_stride = images ? places->stride[0] : 0;
    if (x->axis_count < 1 || x->axis_count > SCHED_MOST_PLACES || x->depth <= 0 || x->image_stride % aligned)
        return false;
    bool used[DIGITS_MOST] = {0};
    for (int g = 0; g < d->guard_count; g++) {
        int place = digit_of_guard(places, g, images);
        if (place < 0) return false;
        sched_window_axis *a = &x->axes[places->count - 1 - place];
        if (!tie(a, d, g, places, place, k)) return false;
        if (a->digit >= 0) {
            if (used[a->digit]) return false;
            used[a->digit] = true;
        }
    }
    for (int i = x->axis_count - 1; i >= 0; i--) { /* the farthest apart first */
        sched_window_axis *a = &x->axes[i];
        int place = places->count - 1 - i;
        a->count = places->extent[place];
        int tap = a->stride ? -1 : nearest_tap(places->stride[place], k, used, i);
        if (!a->stride && !walk_freely(a, places, place, k, tap)) return false;
        if (a->digit >= 0) used[a->digit] = true;
        a->taps = a->digit < 0 ? 1 : (int)k->extent[a->digit];
        x->origin -= a->first * a->stride;
        if (!fits(x, a, aligned)) return false;
    }
    for (int tap = 0; tap < last; tap++)
        if (!used[tap]) return false;
    return x->origin >= 0 && x->origin % aligned == 0;
}

void fed_choose_windows(fed_work *w)
{
    schedule *s = w->s;
    sched_operand *found = NULL;
    for (int i = 0; i < s->operand_count; i++) {
        if (s->operands[i].gathered && found) return;
        if (s->operands[i].gathered) found = &s->operands[i];
    }
    const tile_param *p = &s->kernel->params[s->gather.load->attr.access.array];
    sched_windows *x = ARENA_NEW(w->memory, sched_windows);
    bool as_it_lies = found && p->elem == tile_type_of(s->kernel, found->source).elem && fed_gather_is_plain(s);
    if (!as_it_lies || !s->gather.along_k || !p->facts.bulk || !find_windows(s, found, x)) return;
    found->gathered = false;
    found->along_k = true;
    found->windows = x;
    s->gather = (sched_gather){0};
}
