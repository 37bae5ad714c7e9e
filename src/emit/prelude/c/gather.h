/*
 * Products of the prelude whose operands are gathered: c += a b with panels that are packed element by element through
 * digits and guards, and the kernels of dot.h.
 * Where a line (a row of A, a column of B) and where a step of depth lies is counted once into tables; an element's place is
 * the sum of two entries. Sixteen lines that lie side by side and are inside all guards are copied as a vector; what no
 * guard lets through is zero.
 * SPDX-License-Identifier: MIT
 */

//@ part gather_view
//@ needs dot_sizes
enum { GATHER_GUARDS = 4, GATHER_DIGITS = 8, GATHER_PERIOD = 64, GATHER_GAP = 16 };
typedef struct gather_axis {
    long start, count, extent[GATHER_DIGITS], stride[GATHER_DIGITS], guard[GATHER_GUARDS][GATHER_DIGITS];
} gather_axis;
typedef struct gather_view {
    const void *base;
    long guards, first[GATHER_GUARDS], extent[GATHER_GUARDS];
    gather_axis line, depth;
} gather_view;
/* Where some positions of an axis lie, what they add to guards, and how many from here on add the same (of depths). */
typedef struct gather_table {
    long at;
    int guard[GATHER_GUARDS], alike;
} gather_table;
/* Counts through the digits of an axis, whose last one goes in even steps; 1: the places lie side by side. */
OUTLINE int gather_count(const gather_axis *x, long guards, const long *first, long from, long count, gather_table *to)
{
    long digit[GATHER_DIGITS], rest = x->start + from, place = 0, last = x->count - 1, stride = x->stride[last];
    int side_by_side = 1, sums[GATHER_GUARDS] = {0}, up[GATHER_GUARDS] = {0};
    for (long d = last; d > 0; d--) {
        digit[d] = rest % x->extent[d];
        rest /= x->extent[d];
    }
    digit[0] = rest;
    for (long g = 0; g < guards; g++) sums[g] = first ? (int)first[g] : 0, up[g] = (int)x->guard[g][last];
    for (long d = 0; d <= last; d++) {
        place += digit[d] * x->stride[d];
        for (long g = 0; g < guards; g++) sums[g] += (int)(digit[d] * x->guard[g][d]);
    }
    for (long i = 0, even; i < count; i += even) {
        even = last && x->extent[last] - digit[last] < count - i ? x->extent[last] - digit[last] : count - i;
        side_by_side &= place == to[0].at + i || !i;
        side_by_side &= even < 2 || stride == 1;
        for (long j = i; j < i + even; j++, place += stride) {
            to[j].at = place;
            UNROLL for (int g = 0; g < GATHER_GUARDS; g++) {
                to[j].guard[g] = sums[g];
                sums[g] += up[g];
            }
        }
        for (long d = last, steps = even;; d--, steps = 1) {
            if (d < last) {
                place += x->stride[d];
                for (long g = 0; g < guards; g++) sums[g] += (int)x->guard[g][d];
            }
            if (!d || (digit[d] += steps) < x->extent[d]) break;
            digit[d] = 0;
            place -= x->stride[d] * x->extent[d];
            for (long g = 0; g < guards; g++) sums[g] -= (int)(x->guard[g][d] * x->extent[d]);
        }
    }
    return side_by_side;
}
/* The least and the largest sum of each guard. */
INLINE void gather_reach(const gather_table *x, long guards, long count, int *low, int *high)
{
    for (long g = 0; g < guards; g++) {
        low[g] = high[g] = x[0].guard[g];
        for (long i = 1; i < count; i++) {
            int sum = x[i].guard[g];
            low[g] = sum < low[g] ? sum : low[g];
            high[g] = sum > high[g] ? sum : high[g];
        }
    }
}
/* 1: all of one axis are inside at a place of the other; 0: none is; -1: some may be. */
INLINE int gather_inside(const gather_view *v, const int *at, const int *low, const int *high)
{
    int all = 1;
    for (long g = 0; g < v->guards; g++) {
        if (at[g] + high[g] < 0 || at[g] + low[g] >= v->extent[g]) return 0;
        if (at[g] + low[g] < 0 || at[g] + high[g] >= v->extent[g]) all = -1;
    }
    return all;
}

//@ part gather_places
//@ needs gather_view
/* Where `count` positions of an axis lie: results are stored there. */
OUTLINE const long *gather_places(long *to, long count, const gather_axis *x)
{
    gather_table some[64];
    for (long from = 0; from < count; from += 64) {
        long n = count - from < 64 ? count - from : 64;
        gather_count(x, 0, 0, from, n, some);
        for (long i = 0; i < n; i++) to[from + i] = some[i].at;
    }
    return to;
}

//@ part gather_run
//@ needs gather_view
/* Neighbouring lines at one distance whose guards go up evenly: line j of sixteen lies at at + j * step. */
typedef struct gather_run {
    long lane, count, at, step;
    int guard[GATHER_GUARDS], up[GATHER_GUARDS];
} gather_run;
INLINE int gather_goes_on(const gather_run *x, const gather_table *line, long guards)
{
    int good = line->at == x->at + (x->lane + x->count) * x->step;
    for (long g = 0; g < guards; g++) good &= line->guard[g] == x->guard[g] + (int)x->count * x->up[g];
    return good;
}
OUTLINE long gather_runs(long guards, const gather_table *lines, long n, gather_run *runs)
{
    long count = 0;
    for (long j = 0; j < n; count++) {
        gather_run *x = &runs[count];
        *x = (gather_run){j, 1, 0, 1, {0}, {0}};
        long lane = j;
        for (long g = 0; g < guards; g++) x->guard[g] = lines[j].guard[g];
        int even = ++j < n;
        for (long g = 0; g < guards && even; g++) {
            x->up[g] = lines[j].guard[g] - lines[j - 1].guard[g];
            even &= x->up[g] >= 0;
        }
        if (even) x->step = lines[j].at - lines[j - 1].at;
        x->at = lines[lane].at - lane * x->step;
        for (; even && j < n && gather_goes_on(x, &lines[j], guards); j++) x->count++;
    }
    return count;
}
/* Which lines of a run are inside at a step of depth: their number, from the run's line *first on. */
INLINE long gather_within(const gather_view *v, const gather_run *x, const int *depth, long *first)
{
    long low = 0, high = x->count;
    for (long g = 0; g < v->guards; g++) {
        long sum = x->guard[g] + depth[g], up = x->up[g], below = -sum, above = v->extent[g] - sum;
        if (up > 1) below = (below + up - 1) / up, above = (above + up - 1) / up;
        if (!up && (unsigned long)sum >= (unsigned long)v->extent[g]) high = 0;
        if (up && below > low) low = below;
        if (up && above < high) high = above;
    }
    *first = low;
    return low < high ? high - low : 0;
}
/* The runs of which some line is inside. */
typedef struct gather_lanes {
    long count, at[16], step[16];
    unsigned short mask[16];
} gather_lanes;
OUTLINE void gather_live(const gather_view *v, const gather_run *runs, long count, const int *depth, gather_lanes *to)
{
    to->count = to->at[0] = to->at[1] = 0;
    to->mask[0] = to->mask[1] = 0;
    for (long r = 0; r < count; r++) {
        long first, inside = gather_within(v, &runs[r], depth, &first);
        if (!inside) continue;
        to->at[to->count] = runs[r].at;
        to->step[to->count] = runs[r].step;
        to->mask[to->count++] = (unsigned short)(((1u << inside) - 1) << (first + runs[r].lane));
    }
}
/* After so many steps of depth guards are as before. */
INLINE long gather_period(const gather_axis *x, long guards)
{
    long outer = x->count, period = 1;
    for (long g = 0; g < guards; g++)
        for (long d = 0; d < outer; d++)
            if (x->guard[g][d]) outer = d;
    for (long d = outer; d < x->count; d++) period = d && period <= GATHER_PERIOD ? period * x->extent[d] : GATHER_PERIOD + 1;
    return period;
}
/* Steps of depth at which no line of one side is inside add nothing: they are left out of both tables. */
OUTLINE long gather_keep(const gather_view *a, const gather_table *lines_a, long m, gather_table *depth_a,
                         const gather_view *b, const gather_table *lines_b, long n, gather_table *depth_b, long k)
{
    int low[2][GATHER_GUARDS], high[2][GATHER_GUARDS];
    long kept = 0;
    gather_reach(lines_a, a->guards, m, low[0], high[0]);
    gather_reach(lines_b, b->guards, n, low[1], high[1]);
    for (long p = 0; p < k; p++) {
        if (!gather_inside(a, depth_a[p].guard, low[0], high[0])) continue;
        if (!gather_inside(b, depth_b[p].guard, low[1], high[1])) continue;
        depth_a[kept] = depth_a[p];
        depth_b[kept++] = depth_b[p];
    }
    for (long p = kept; p-- > 0;) {
        int alike = p + 1 < kept;
        for (long g = 0; g < b->guards && alike; g++) alike = depth_b[p].guard[g] == depth_b[p + 1].guard[g];
        depth_b[p].alike = alike ? depth_b[p + 1].alike + 1 : 1;
    }
    return kept;
}
/* The next steps of depth at which some of the lines may be inside: from *from on, their end is returned. Few that are not
 * stand between. */
INLINE long gather_steps(const gather_view *v, const int *low, const int *high, const gather_table *depth, long k, long *from)
{
    long p = *from, end;
    while (p < k && !gather_inside(v, depth[p].guard, low, high)) p += depth[p].alike;
    *from = p;
    for (end = p; p < k && p - end < GATHER_GAP; p += depth[p].alike)
        if (gather_inside(v, depth[p].guard, low, high)) end = p + depth[p].alike;
    return end;
}
/* 1: at each step some line may be inside, as the first steps say after which guards are as before. */
INLINE int gather_meets(const gather_view *v, const int *low, const int *high, const gather_table *depth, long k, long period)
{
    for (long p = 0; p < k && p < period; p++)
        if (!gather_inside(v, depth[p].guard, low, high)) return 0;
    return period <= GATHER_PERIOD;
}
INLINE int gather_has(const gather_view *v, const int *line, const int *depth)
{
    for (long g = 0; g < v->guards; g++)
        if ((unsigned long)(line[g] + depth[g]) >= (unsigned long)v->extent[g]) return 0;
    return 1;
}

/* A step of depth for sixteen lines, as it comes from memory; `some`: where bit j is set, and zero elsewhere. Words are joined from as many
 * steps as they are deep. */

//@ part gather_step_f32
//@ needs gather_run dot_take_f32
typedef f32x16 gather_step_f32;
INLINE f32x16 gather_all_f32(const float *from) { return *(const f32x16_u *)from; }
INLINE f32x16 gather_some_f32(const float *from, unsigned short mask)
{
#ifdef __AVX512F__
    return (f32x16)__builtin_ia32_loadups512_mask(from, (f32x16){0}, mask);
#else
    f32x16 to = {0};
    if (mask == 0xffff) return gather_all_f32(from);
    for (unsigned rest = mask; rest; rest &= rest - 1) to[__builtin_ctz(rest)] = from[__builtin_ctz(rest)];
    return to;
#endif
}
INLINE f32x16 gather_both_f32(f32x16 one, f32x16 other) { return (f32x16)((i32x16)one | (i32x16)other); }
INLINE void gather_join_f32(float *to, f32x16 first, f32x16 second) { *(f32x16_u *)to = first; }
INLINE void gather_put_f32(float *to, const float *from, long half) { *to = *from; }
/* Every other element. */
INLINE int gather_other_f32(float *to, const float *from, long step, unsigned short mask)
{
#if defined(__AVX512F__) && defined(__BMI2__)
    if (step != 2) return 0;
    unsigned wide = __builtin_ia32_pdep_si(mask, 0x55555555u);
    f32x16 low = gather_some_f32(from, (unsigned short)wide), high = gather_some_f32(from + 16, (unsigned short)(wide >> 16));
    low = __builtin_shufflevector(low, high, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    *(f32x16_u *)to = gather_both_f32(*(f32x16_u *)to, low);
    return 1;
#else
    return 0;
#endif
}

//@ part gather_step_f64
//@ needs gather_run dot_take_f64
typedef f64x16 gather_step_f64;
INLINE f64x16 gather_all_f64(const double *from) { return *(const f64x16_u *)from; }
INLINE f64x16 gather_some_f64(const double *from, unsigned short mask)
{
    f64x16 to = {0};
    if (mask == 0xffff) return gather_all_f64(from);
    for (unsigned rest = mask; rest; rest &= rest - 1) to[__builtin_ctz(rest)] = from[__builtin_ctz(rest)];
    return to;
}
INLINE f64x16 gather_both_f64(f64x16 one, f64x16 other) { return one + other; }
INLINE void gather_join_f64(double *to, f64x16 first, f64x16 second) { *(f64x16_u *)to = first; }
INLINE void gather_put_f64(double *to, const double *from, long half) { *to = *from; }
INLINE int gather_other_f64(double *to, const double *from, long step, unsigned short mask) { return 0; }

//@ part gather_bits_$t
//@ for u8 u16
//@ needs gather_run
INLINE $tx16 gather_bits_$t(const $c *from, unsigned short mask)
{
#if defined(__AVX512BW__) && defined(__AVX512VL__)
    if (sizeof(*from) == 2) {
        typedef short lanes __attribute__((vector_size(32)));
        lanes some = __builtin_ia32_loaddquhi256_mask((const void *)from, (lanes){0}, mask);
        $tx16 to;
        __builtin_memcpy(&to, &some, sizeof(to));
        return to;
    }
#endif
    $tx16 to = {0};
    for (unsigned rest = mask; rest; rest &= rest - 1) to[__builtin_ctz(rest)] = from[__builtin_ctz(rest)];
    return to;
}

//@ part gather_step_$t
//@ for f16 f8e4m3
//@ needs gather_bits_$u dot_fill_$t $t_to_f32x16 load_$tx16
typedef f32x16 gather_step_$t;
INLINE f32x16 gather_all_$t(const $c *from) { return load_$tx16(from); }
INLINE f32x16 gather_some_$t(const $c *from, unsigned short mask) { return $t_to_f32x16(gather_bits_$u(from, mask)); }
INLINE f32x16 gather_both_$t(f32x16 one, f32x16 other) { return one + other; }
INLINE void gather_join_$t(float *to, f32x16 first, f32x16 second) { *(f32x16_u *)to = first; }
INLINE void gather_put_$t(float *to, const $c *from, long half) { *to = dot_take_$t(*from); }
INLINE int gather_other_$t(float *to, const $c *from, long step, unsigned short mask) { return 0; }

//@ part gather_step_bf16
//@ needs gather_bits_u16 dot_fill_bf16 load_bf16x16
typedef u16x16 gather_step_bf16;
INLINE u16x16 gather_all_bf16(const unsigned short *from) { return *(const u16x16_u *)from; }
INLINE u16x16 gather_some_bf16(const unsigned short *from, unsigned short mask) { return gather_bits_u16(from, mask); }
INLINE u16x16 gather_both_bf16(u16x16 one, u16x16 other) { return one | other; }
#if defined(__AVX512BF16__) && !defined(PRECISE)
INLINE void gather_join_bf16(int *to, u16x16 first, u16x16 second)
{
    *(i32x16_u *)to = __builtin_convertvector(first, i32x16) | __builtin_convertvector(second, i32x16) << 16;
}
INLINE void gather_put_bf16(int *to, const unsigned short *from, long half) { *to |= (int)((unsigned)*from << 16 * half); }
#else
INLINE void gather_join_bf16(float *to, u16x16 first, u16x16 second) { *(f32x16_u *)to = bf16_to_f32x16(first); }
INLINE void gather_put_bf16(float *to, const unsigned short *from, long half) { *to = dot_take_bf16(*from); }
#endif
INLINE int gather_other_bf16(void *to, const unsigned short *from, long step, unsigned short mask) { return 0; }

//@ part gather_pack_$t
//@ for f32 f64 f16 bf16 f8e4m3
//@ needs gather_step_$t dot_fill_$t dot_pack_$t dot_rows_$q
OUTLINE void gather_pack_a_$t($e *to, const gather_view *v, const gather_table *lines, long m, const gather_table *depth, long k, int unit)
{
    enum { DEEP = DOT_$q_DEEP };
    int low[GATHER_GUARDS], high[GATHER_GUARDS];
    gather_reach(depth, v->guards, k, low, high);
    for (long i = 0; i < m; i++, to += DOT_$q_STRIDE) {
        const $c *row = (const $c *)v->base + lines[i].at;
        int inside = gather_inside(v, lines[i].guard, low, high);
        if (inside == 1 && unit) {
            dot_pack_line_$t(to, row + depth[0].at, 1, k);
            continue;
        }
        for (long p = 0; p < k; p += DEEP) to[p / DEEP] = 0;
        if (inside == 1)
            for (long p = 0; p < k; p++) {
                gather_put_$t(to + p / DEEP, row + depth[p].at, p % DEEP);
                ONE_BY_ONE;
            }
        else if (inside)
            for (long p = 0; p < k; p++) {
                if (gather_has(v, lines[i].guard, depth[p].guard)) gather_put_$t(to + p / DEEP, row + depth[p].at, p % DEEP);
                ONE_BY_ONE;
            }
    }
}
/* Sixteen lines at one step: `runs` of them as vectors (0: one that has all lines), or a line at a time. */
INLINE gather_step_$t gather_vector_$t(const int runs, const gather_lanes *x, const $c *from)
{
    if (!runs) return gather_all_$t(from + x->at[0]);
    gather_step_$t some = gather_some_$t(from + x->at[0], x->mask[0]);
    if (runs == 1) return some;
    some = gather_both_$t(some, gather_some_$t(from + x->at[1], x->mask[1]));
    for (long r = 2; r < x->count && runs > 2; r++) some = gather_both_$t(some, gather_some_$t(from + x->at[r], x->mask[r]));
    return some;
}
INLINE void gather_word_$t(const int runs, $e *to, const $c *from, const gather_lanes *one, const gather_lanes *other, const gather_table *depth, long left)
{
    gather_step_$t first = gather_vector_$t(runs, one, from + depth[0].at), second = {0};
    if (DOT_$q_DEEP > 1 && left > 1) second = gather_vector_$t(runs, other, from + depth[1].at);
    gather_join_$t(to, first, second);
}
/* All words whose steps have the same lanes, then the next ones: what is inside stays in registers. Of a panel that is narrower than what is
 * written the rows come in their order, for each ends in the next one. */
INLINE void gather_vectors_$t(const int runs, $e *to, long width, const $c *from, const gather_lanes *lanes, long turn, const gather_table *depth, long k)
{
    enum { DEEP = DOT_$q_DEEP };
    long words = width < 16 ? (k + DEEP - 1) / DEEP : turn % DEEP ? turn : turn / DEEP;
    for (long s = 0; s < words; s++) {
        const gather_lanes one = lanes[s * DEEP % turn], other = lanes[(s * DEEP + 1) % turn];
        for (long p = s * DEEP; p < k; p += words * DEEP)
            gather_word_$t(runs, to + p / DEEP * width, from, &one, &other, depth + p, k - p);
    }
}
INLINE void gather_elements_$t($e *to, long width, const $c *base, const gather_lanes *lanes, long turn, const gather_table *depth, long k)
{
    enum { DEEP = DOT_$q_DEEP };
    for (long p = 0, slot = 0; p < k; p++, slot = slot + 1 < turn ? slot + 1 : 0) {
        $e *at = to + p / DEEP * width;
        if (p % DEEP == 0) __builtin_memset(at, 0, 16 * sizeof(*at));
        for (long r = 0; r < lanes[slot].count; r++) {
            long step = lanes[slot].step[r];
            unsigned short mask = lanes[slot].mask[r];
            const $c *from = base + depth[p].at + lanes[slot].at[r];
            if (gather_other_$t(at, from, step, mask)) continue;
            if (mask == 0xffff)
                UNROLL for (long l = 0; l < 16; l++) {
                    gather_put_$t(at + l, from + l * step, p % DEEP);
                    ONE_BY_ONE;
                }
            else
                for (unsigned rest = mask; rest; rest &= rest - 1) {
                    long l = __builtin_ctz(rest);
                    gather_put_$t(at + l, from + l * step, p % DEEP);
                }
        }
    }
}
/* Sixteen columns of a panel at all depths, or fewer: what is missing is zero. `low` and `high` are what the depths reach; what is inside at
 * a step is found out once where it comes again after `period` steps, and for all neighbours that are alike otherwise. */
OUTLINE void gather_pack_columns_$t($e *to, long width, const gather_view *v, const gather_table *lines, long n, const gather_table *depth, long k, long period, const int *low, const int *high)
{
    enum { DEEP = DOT_$q_DEEP };
    gather_run runs[16];
    gather_lanes lanes[GATHER_PERIOD];
    long count = gather_runs(v->guards, lines, n, runs);
    int vectors = 1, all = 1;
    for (long r = 0; r < count; r++) vectors &= runs[r].step == 1;
    for (long j = 0; j < n && all == 1; j++) all = gather_inside(v, lines[j].guard, low, high);
    for (long p = 0, end; p < k; to += (end - p + DEEP - 1) / DEEP * width, p = end) {
        long turn = 1, most = 0;
        int full = 1;
        end = k;
        if (all != 1 && period <= GATHER_PERIOD) {
            turn = period < k ? period : k;
        } else if (all != 1) {
            end = p + depth[p].alike < k ? p + depth[p].alike : k;
            if (end < k && (end - p) % DEEP) end = end - p > 1 ? end - 1 : end + 1, turn = end - p == 2 ? 2 : 1; /* whole words */
        }
        for (long s = 0; s < turn; s++) {
            gather_live(v, runs, count, depth[p + s].guard, &lanes[s]);
            most = lanes[s].count > most ? lanes[s].count : most;
            full &= lanes[s].count == 1 && lanes[s].mask[0] == 0xffff;
        }
        const $c *from = (const $c *)v->base;
        if (!vectors)
            gather_elements_$t(to, width, from, lanes, turn, depth + p, end - p);
        else if (full)
            gather_vectors_$t(0, to, width, from, lanes, turn, depth + p, end - p);
        else if (most < 2)
            gather_vectors_$t(1, to, width, from, lanes, turn, depth + p, end - p);
        else if (most == 2)
            gather_vectors_$t(2, to, width, from, lanes, turn, depth + p, end - p);
        else
            gather_vectors_$t(3, to, width, from, lanes, turn, depth + p, end - p);
    }
}
/* A panel of at most COLUMNS, or of half as many when that is enough. */
OUTLINE void gather_pack_b_$t($e *to, const gather_view *v, const gather_table *lines, long n, const gather_table *depth, long k, long period, const int *low, const int *high)
{
    if (n > DOT_$q_COLUMNS) n = DOT_$q_COLUMNS;
    long width = n <= DOT_$q_COLUMNS / 2 ? DOT_$q_COLUMNS / 2 : DOT_$q_COLUMNS;
    for (long j = 0; j < width; j += 16)
        if (j < n)
            gather_pack_columns_$t(to + j, width, v, lines + j, n - j < 16 ? n - j : 16, depth, k, period, low, high);
        else
            for (long p = 0; p < k; p += DOT_$q_DEEP) __builtin_memset(to + p / DOT_$q_DEEP * width + j, 0, 16 * sizeof(*to));
}

//@ part gather_strip_$t
//@ for f32 f64 f16 bf16 f8e4m3
//@ needs gather_pack_$t dot_panel_$q
/* As dot_strip: at most DOT_M rows from `top` on. */
OUTLINE void gather_strip_$t(const gather_view *a, const gather_view *b, long top, int fresh, $a *c, long c_row, $a *out, long out_row, long m, long n, long k, char *scratch)
{
    enum { WIDE = DOT_$q_COLUMNS, DEEP = DOT_$q_DEEP, MOST = DOT_K * DEEP };
    long pieces = (k + MOST - 1) / MOST, depth = ((k + pieces - 1) / pieces + 15) / 16 * 16, kc;
    $a *edge = ($a *)scratch;
    $e *panel = ($e *)(edge + DOT_ROWS * WIDE), *rows_a = panel + DOT_K * WIDE + 16; /* sixteen columns are written where it has fewer */
    gather_table *lines_a = (gather_table *)(rows_a + (m + DOT_ROWS) * DOT_$q_STRIDE), *lines_b = lines_a + m;
    gather_table *depth_a = lines_b + n, *depth_b = depth_a + MOST;
    for (long i = 0; i < DOT_ROWS * DOT_$q_STRIDE; i += DOT_$q_LANES) /* what kernels read beyond the last row */
        *(dot_words_$q *)(rows_a + m * DOT_$q_STRIDE + i) = (dot_words_$q){0};
    gather_count(&a->line, a->guards, a->first, top, m, lines_a);
    gather_count(&b->line, b->guards, b->first, 0, n, lines_b);
    for (long p0 = 0; p0 < k; p0 += kc) {
        kc = k - p0 < depth ? k - p0 : depth;
        int last = p0 + kc == k, unit = gather_count(&a->depth, a->guards, 0, p0, kc, depth_a);
        int low[GATHER_GUARDS], high[GATHER_GUARDS];
        gather_count(&b->depth, b->guards, 0, p0, kc, depth_b);
        long kept = gather_keep(a, lines_a, m, depth_a, b, lines_b, n, depth_b, kc);
        long period = kept == kc ? gather_period(&b->depth, b->guards) : GATHER_PERIOD + 1;
        gather_pack_a_$t(rows_a, a, lines_a, m, depth_a, kept, unit && kept == kc);
        gather_reach(depth_b, b->guards, kept, low, high);
        dot_ahead_$q ahead = {0};
        for (long j = 0; j < n; j += WIDE) {
            int low_b[GATHER_GUARDS], high_b[GATHER_GUARDS], done;
            long wide = n - j < WIDE ? n - j : WIDE, from = 0;
            dot_sums_$q sums = {fresh && !p0 ? 0 : c + j, c_row, c + j, c_row};
            gather_reach(lines_b + j, b->guards, wide, low_b, high_b);
            do {
                long to = kept, next = kept;
                if (!gather_meets(b, low_b, high_b, depth_b, kept, period)) {
                    to = gather_steps(b, low_b, high_b, depth_b, kept, &from), next = to;
                    gather_steps(b, low_b, high_b, depth_b, kept, &next);
                    from = from / DEEP * DEEP; /* whole words */
                    to = to % DEEP && to < kept ? to + 1 : to;
                }
                done = next == kept;
                if (done && last) sums.to = out + j, sums.to_row = out_row;
                int whole = to - from == kc;
                gather_pack_b_$t(panel, b, lines_b + j, wide, depth_b + from, to - from, whole ? period : GATHER_PERIOD + 1, low, high);
                dot_panel_$q(rows_a + from / DEEP, panel, sums, m, wide, (to - from + DEEP - 1) / DEEP, edge, &ahead);
                sums.from = c + j;
                from = next;
            } while (!done);
        }
    }
}

//@ part gather_strips_$t
//@ for f32 f64
//@ needs gather_strip_$t gather_lines_$t
OUTLINE void gather_strips_$t(const gather_view *a, const gather_view *b, int fresh, $a *c, long c_row, $a *out, long out_row, long m, long n, long k, char *scratch)
{
    for (long i = 0; i < m; i += DOT_M) {
        long rows = m - i < DOT_M ? m - i : DOT_M;
        if (!gather_lines_$t(a, b, i, fresh, c + i * c_row, c_row, out + i * out_row, out_row, rows, n, k, scratch))
            gather_strip_$t(a, b, i, fresh, c + i * c_row, c_row, out + i * out_row, out_row, rows, n, k, scratch);
    }
}

//@ part gather_strips_$t
//@ for f16 bf16 f8e4m3
//@ needs gather_strip_$t
OUTLINE void gather_strips_$t(const gather_view *a, const gather_view *b, int fresh, $a *c, long c_row, $a *out, long out_row, long m, long n, long k, char *scratch)
{
    for (long i = 0; i < m; i += DOT_M)
        gather_strip_$t(a, b, i, fresh, c + i * c_row, c_row, out + i * out_row, out_row, m - i < DOT_M ? m - i : DOT_M, n, k, scratch);
}

//@ part gather_dot_$t
//@ for f32 f64 f16 bf16 f8e4m3
//@ needs gather_strips_$t
/* c += a b */
INLINE void gather_dot_$t(const gather_view *a, const gather_view *b, $a *c, long c_row, long m, long n, long k, char *scratch)
{
    if (m > 0 && n > 0 && k > 0) gather_strips_$t(a, b, 0, c, c_row, c, c_row, m, n, k, scratch);
}

//@ part gather_dot_into_$t
//@ for f32 f64 f16 bf16 f8e4m3
//@ needs gather_strips_$t
/* out = a b, for k > 0. Sums that are not complete rest in c. */
INLINE void gather_dot_into_$t(const gather_view *a, const gather_view *b, $a *c, long c_row, $a *out, long out_row, long m, long n, long k, char *scratch)
{
    if (m > 0 && n > 0) gather_strips_$t(a, b, 1, c, c_row, out, out_row, m, n, k, scratch);
}
