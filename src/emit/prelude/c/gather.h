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
/* Counts through the digits of an axis; 1: the places lie side by side. */
OUTLINE int gather_count(const gather_axis *x, long guards, const long *first, long from, long count, gather_table *to)
{
    long digit[GATHER_DIGITS], rest = x->start + from, place = 0, sums[GATHER_GUARDS], last = x->count - 1;
    int side_by_side = 1;
    for (long d = last; d > 0; d--) {
        digit[d] = rest % x->extent[d];
        rest /= x->extent[d];
    }
    digit[0] = rest;
    for (long g = 0; g < guards; g++) sums[g] = first ? first[g] : 0;
    for (long d = 0; d <= last; d++) {
        place += digit[d] * x->stride[d];
        for (long g = 0; g < guards; g++) sums[g] += digit[d] * x->guard[g][d];
    }
    for (long i = 0; i < count; i++) {
        to[i].at = place;
        side_by_side &= place == to[0].at + i;
        for (long g = 0; g < guards; g++) to[i].guard[g] = (int)sums[g];
        for (long d = last;; d--) {
            place += x->stride[d];
            for (long g = 0; g < guards; g++) sums[g] += x->guard[g][d];
            if (!d || ++digit[d] < x->extent[d]) break;
            digit[d] = 0;
            place -= x->stride[d] * x->extent[d];
            for (long g = 0; g < guards; g++) sums[g] -= x->guard[g][d] * x->extent[d];
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
    *to = (gather_lanes){0};
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
INLINE int gather_has(const gather_view *v, const int *line, const int *depth)
{
    for (long g = 0; g < v->guards; g++)
        if ((unsigned long)(line[g] + depth[g]) >= (unsigned long)v->extent[g]) return 0;
    return 1;
}

//@ part gather_some_f32
//@ needs gather_run
/* to, which is 0 there, with from[j] where bit j is set, of sixteen. */
INLINE f32x16 gather_some_f32(f32x16 to, const float *from, unsigned short mask)
{
#ifdef __AVX512F__
    return (f32x16)__builtin_ia32_loadups512_mask(from, to, mask);
#else
    for (unsigned rest = mask; rest; rest &= rest - 1) to[__builtin_ctz(rest)] = from[__builtin_ctz(rest)];
    return to;
#endif
}

//@ part gather_some_f64
//@ needs gather_run dot_take_f64
INLINE f64x16 gather_some_f64(f64x16 to, const double *from, unsigned short mask)
{
    for (unsigned rest = mask; rest; rest &= rest - 1) to[__builtin_ctz(rest)] = from[__builtin_ctz(rest)];
    return to;
}

//@ part gather_some_$t
//@ for f16 bf16
//@ needs gather_run dot_take_$t $t_to_f32x16
INLINE f32x16 gather_some_$t(f32x16 to, const unsigned short *from, unsigned short mask)
{
#if defined(__AVX512BW__) && defined(__AVX512VL__)
    typedef short lanes __attribute__((vector_size(32)));
    u16x16 some = (u16x16)__builtin_ia32_loaddquhi256_mask((const void *)from, (lanes){0}, mask);
    return (f32x16)((i32x16)to | (i32x16)$t_to_f32x16(some));
#else
    for (unsigned rest = mask; rest; rest &= rest - 1) to[__builtin_ctz(rest)] = dot_take_$t(from[__builtin_ctz(rest)]);
    return to;
#endif
}

//@ part gather_some_f8e4m3
//@ needs gather_run dot_take_f8e4m3
INLINE f32x16 gather_some_f8e4m3(f32x16 to, const unsigned char *from, unsigned short mask)
{
    for (unsigned rest = mask; rest; rest &= rest - 1) to[__builtin_ctz(rest)] = dot_take_f8e4m3(from[__builtin_ctz(rest)]);
    return to;
}

//@ part gather_pack_$t
//@ for f32 f64 f16 bf16 f8e4m3
//@ needs gather_some_$t dot_rows_$k dot_thin_$t
OUTLINE void gather_pack_a_$t($a *to, const gather_view *v, const gather_table *lines, long m, const gather_table *depth, long k, int unit)
{
    int low[GATHER_GUARDS], high[GATHER_GUARDS];
    gather_reach(depth, v->guards, k, low, high);
    for (long i = 0; i < m; i++, to += DOT_$k_STRIDE) {
        const $c *row = (const $c *)v->base + lines[i].at;
        int inside = gather_inside(v, lines[i].guard, low, high);
        if (inside == 1 && unit) {
            dot_pack_row_$t(to, row + depth[0].at, 1, k);
            continue;
        }
        for (long p = 0; p < k; p++) {
            int has = inside == 1 || (inside && gather_has(v, lines[i].guard, depth[p].guard));
            to[p] = has ? dot_take_$t(row[depth[p].at]) : 0;
            ONE_BY_ONE;
        }
    }
}
/* Sixteen columns of a panel at all depths, or fewer: what is missing is zero. */
OUTLINE void gather_pack_columns_$t($a *to, long width, const gather_view *v, const gather_table *lines, long n, const gather_table *depth, long k, long period)
{
    gather_run runs[16];
    gather_lanes kept[GATHER_PERIOD], *lanes = kept;
    long count = gather_runs(v->guards, lines, n, runs), slot = 0, known = 0;
    int side_by_side = 1;
    for (long r = 0; r < count; r++) side_by_side &= runs[r].step == 1;
    for (long p = 0, end; p < k; p = end) {
        int turns = period <= GATHER_PERIOD; /* what is found out stays */
        lanes = &kept[turns ? slot : 0];
        if (!turns || known <= slot) gather_live(v, runs, count, depth[p].guard, lanes), known++;
        if (++slot == period) slot = 0;
        end = turns ? p + 1 : p + depth[p].alike < k ? p + depth[p].alike : k;
        const $c *from = (const $c *)v->base;
        if (side_by_side && lanes->count == 1 && lanes->mask[0] == 0xffff)
            for (long q = p; q < end; q++, to += width) dot_take16_$t(to, from + depth[q].at + lanes->at[0]);
        else if (side_by_side && lanes->count < 2)
            for (long q = p; q < end; q++, to += width)
                *($kx16_u *)to = gather_some_$t(($kx16){0}, from + depth[q].at + lanes->at[0], lanes->mask[0]);
        else if (side_by_side && lanes->count == 2) {
            const $c *one = from + lanes->at[0], *other = from + lanes->at[1];
            unsigned short mask = lanes->mask[0], rest = lanes->mask[1];
            for (long q = p; q < end; q++, to += width)
                *($kx16_u *)to = gather_some_$t(gather_some_$t(($kx16){0}, one + depth[q].at, mask), other + depth[q].at, rest);
        } else if (side_by_side)
            for (long q = p; q < end; q++, to += width) {
                $kx16 some = {0};
                for (long r = 0; r < lanes->count; r++)
                    some = gather_some_$t(some, from + depth[q].at + lanes->at[r], lanes->mask[r]);
                *($kx16_u *)to = some;
            }
        else
            for (long q = p; q < end; q++, to += width) {
                *($kx16_u *)to = ($kx16){0};
                for (long r = 0; r < lanes->count; r++)
                    for (unsigned rest = lanes->mask[r]; rest; rest &= rest - 1) {
                        long l = __builtin_ctz(rest);
                        to[l] = dot_take_$t(from[depth[q].at + lanes->at[r] + l * lanes->step[r]]);
                    }
            }
    }
}
/* A panel of at most COLUMNS, or of half as many when that is enough. */
OUTLINE void gather_pack_b_$t($a *to, const gather_view *v, const gather_table *lines, long n, const gather_table *depth, long k, long period)
{
    if (n > DOT_$k_COLUMNS) n = DOT_$k_COLUMNS;
    long width = n <= DOT_$k_COLUMNS / 2 ? DOT_$k_COLUMNS / 2 : DOT_$k_COLUMNS;
    for (long j = 0; j < width; j += 16)
        if (j < n)
            gather_pack_columns_$t(to + j, width, v, lines + j, n - j < 16 ? n - j : 16, depth, k, period);
        else
            for (long p = 0; p < k; p++) *($kx16_u *)(to + p * width + j) = ($kx16){0};
}

//@ part gather_strip_$t
//@ for f32 f64 f16 bf16 f8e4m3
//@ needs gather_pack_$t dot_panel_$k
/* As dot_strip: at most DOT_M rows from `top` on. */
OUTLINE void gather_strip_$t(const gather_view *a, const gather_view *b, long top, int fresh, $a *c, long c_row, $a *out, long out_row, long m, long n, long k, char *scratch)
{
    enum { WIDE = DOT_$k_COLUMNS };
    long pieces = (k + DOT_K - 1) / DOT_K, depth = ((k + pieces - 1) / pieces + 15) / 16 * 16, kc;
    $a *edge = ($a *)scratch, *panel = edge + DOT_ROWS * WIDE, *rows_a = panel + DOT_K * WIDE;
    gather_table *lines_a = (gather_table *)(rows_a + (m + DOT_ROWS) * DOT_$k_STRIDE), *lines_b = lines_a + m;
    gather_table *depth_a = lines_b + n, *depth_b = depth_a + DOT_K;
    long period = gather_period(&b->depth, b->guards);
    for (long i = 0; i < DOT_ROWS * DOT_$k_STRIDE; i += DOT_$k_LANES) /* what kernels read beyond the last row */
        *(dot_$kv *)(rows_a + m * DOT_$k_STRIDE + i) = (dot_$kv){0};
    gather_count(&a->line, a->guards, a->first, top, m, lines_a);
    gather_count(&b->line, b->guards, b->first, 0, n, lines_b);
    for (long p0 = 0; p0 < k; p0 += kc) {
        kc = k - p0 < depth ? k - p0 : depth;
        int last = p0 + kc == k, unit = gather_count(&a->depth, a->guards, 0, p0, kc, depth_a);
        gather_count(&b->depth, b->guards, 0, p0, kc, depth_b);
        long kept = gather_keep(a, lines_a, m, depth_a, b, lines_b, n, depth_b, kc);
        gather_pack_a_$t(rows_a, a, lines_a, m, depth_a, kept, unit && kept == kc);
        dot_ahead_$k ahead = {0};
        for (long j = 0; j < n; j += WIDE) {
            int low[GATHER_GUARDS], high[GATHER_GUARDS], done;
            long wide = n - j < WIDE ? n - j : WIDE, from = 0;
            dot_sums_$k sums = {fresh && !p0 ? 0 : c + j, c_row, c + j, c_row};
            gather_reach(lines_b + j, b->guards, wide, low, high);
            do {
                long to = gather_steps(b, low, high, depth_b, kept, &from), next = to;
                gather_steps(b, low, high, depth_b, kept, &next);
                done = next == kept;
                if (done && last) sums.to = out + j, sums.to_row = out_row;
                int whole = to - from == kc;
                gather_pack_b_$t(panel, b, lines_b + j, wide, depth_b + from, to - from, whole ? period : GATHER_PERIOD + 1);
                dot_panel_$k(rows_a + from, panel, sums, m, wide, to - from, edge, &ahead);
                sums.from = c + j;
                from = next;
            } while (!done);
        }
    }
}

//@ part gather_lines_$t
//@ for f32 f64
//@ needs gather_run dot_rows_$t
/* Rows of A as lanes, and columns of B as they lie: sums[i][lanes] += x[i] * weights[lanes], of the columns that are inside at
 * a step of depth and no others. Nothing of B is packed. */
INLINE void gather_rows_$t(const int rows, $a *sums, const $a *x, const $a *weights, long up, long k)
{
    dot_$kv s[16];
    UNROLL for (int i = 0; i < rows; i++) s[i] = *(dot_$kv_u *)(sums + i * DOT_$k_LANES);
    for (long p = 0; p < k; p++, x += up, weights += DOT_$k_LANES) {
        dot_$kv y = *(const dot_$kv_u *)weights;
        UNROLL for (int i = 0; i < rows; i++) s[i] += (x[i] - (dot_$kv){0}) * y;
    }
    UNROLL for (int i = 0; i < rows; i++) *(dot_$kv_u *)(sums + i * DOT_$k_LANES) = s[i];
}
typedef struct gather_piece_$t {
    const $a *x;
    long first, count;
} gather_piece_$t;
OUTLINE void gather_pieces_$t($a *sums, const gather_piece_$t *pieces, long count, const $a *weights, long up, long k)
{
    enum { MOST = DOT_VECTORS * 4 };
    for (long r = 0; r < count; r++) {
        $a *to = sums + pieces[r].first * DOT_$k_LANES;
        const $a *x = pieces[r].x;
        long left = pieces[r].count;
        for (; left >= MOST; left -= MOST, x += MOST, to += MOST * DOT_$k_LANES) gather_rows_$t(MOST, to, x, weights, up, k);
        if (left >= MOST / 2) {
            gather_rows_$t(MOST / 2, to, x, weights, up, k);
            left -= MOST / 2, x += MOST / 2, to += MOST / 2 * DOT_$k_LANES;
        }
        if (left >= MOST / 4) {
            gather_rows_$t(MOST / 4, to, x, weights, up, k);
            left -= MOST / 4, x += MOST / 4, to += MOST / 4 * DOT_$k_LANES;
        }
        for (; left > 0; left--, x++, to += DOT_$k_LANES) gather_rows_$t(1, to, x, weights, up, k);
    }
}
/* 1: done so; 0: not for this product. Worth it where guards keep much away, steps of depth with the same guards follow each
 * other, and lines lie side by side. As gather_strip otherwise. */
OUTLINE int gather_lines_$t(const gather_view *a, const gather_view *b, long top, int fresh, $a *c, long c_row, $a *out, long out_row, long m, long n, long k, char *scratch)
{
    enum { LANES = DOT_$k_LANES, SAMPLES = 16, LEAST_ALIKE = 16 };
    long panels = (m + LANES - 1) / LANES, alike = 1, inside = 0, first, kc;
    $a *sums = ($a *)scratch, *weights = sums + panels * n * LANES;
    gather_run *runs = (gather_run *)(weights + DOT_K * LANES);
    gather_piece_$t *pieces = (gather_piece_$t *)(runs + n);
    gather_table *lines_a = (gather_table *)(pieces + n), *lines_b = lines_a + m, *depth_a = lines_b + n, *depth_b = depth_a + DOT_K;
    for (long d = b->depth.count, guarded = 0; d-- > 1 && !guarded;) {
        for (long g = 0; g < b->guards; g++) guarded |= b->depth.guard[g][d] != 0;
        if (!guarded) alike *= b->depth.extent[d];
    }
    if (alike < LEAST_ALIKE || m < LANES || n > 1024) return 0; /* the room is for so many */
    gather_count(&b->line, b->guards, b->first, 0, n, lines_b);
    long count = gather_runs(b->guards, lines_b, n, runs);
    for (long r = 0; r < count; r++)
        if (runs[r].step != 1) return 0;
    for (long i = 0; i < SAMPLES; i++) {
        gather_count(&b->depth, b->guards, 0, i * k / SAMPLES, 1, depth_b);
        for (long r = 0; r < count; r++) inside += gather_within(b, &runs[r], depth_b->guard, &first);
    }
    if (4 * inside > 3 * n * SAMPLES) return 0;
    gather_count(&a->line, a->guards, a->first, top, m, lines_a);
    for (long i = 0; i < panels * n * LANES; i += LANES) *(dot_$kv_u *)(sums + i) = (dot_$kv){0};
    for (long p0 = 0; p0 < k; p0 += kc) {
        kc = k - p0 < DOT_K ? k - p0 : DOT_K;
        gather_count(&a->depth, a->guards, 0, p0, kc, depth_a);
        gather_count(&b->depth, b->guards, 0, p0, kc, depth_b);
        long kept = gather_keep(a, lines_a, m, depth_a, b, lines_b, n, depth_b, kc);
        for (long p = 0, steps; p < kept; p += steps) {
            long some = 0, up = p + 1 < kept ? depth_b[p + 1].at - depth_b[p].at : 0;
            for (steps = 1; steps < depth_b[p].alike && depth_b[p + steps].at == depth_b[p].at + steps * up; steps++);
            for (long r = 0; r < count; r++) {
                long within = gather_within(b, &runs[r], depth_b[p].guard, &first);
                if (within) pieces[some++] = (gather_piece_$t){(const $a *)b->base + depth_b[p].at + runs[r].at + runs[r].lane + first, runs[r].lane + first, within};
            }
            for (long i = 0; i < m && some; i += LANES) {
                for (long q = 0; q < steps; q++)
                    for (long l = 0; l < LANES; l++) {
                        int has = i + l < m && gather_has(a, lines_a[i + l].guard, depth_a[p + q].guard);
                        weights[q * LANES + l] = has ? ((const $a *)a->base)[lines_a[i + l].at + depth_a[p + q].at] : 0;
                        ONE_BY_ONE;
                    }
                gather_pieces_$t(sums + i * n, pieces, some, weights, up, steps);
            }
        }
    }
    for (long i = 0; i < m; i++)
        for (long j = 0; j < n; j++) {
            out[i * out_row + j] = sums[i / LANES * LANES * n + j * LANES + i % LANES] + (fresh ? 0 : c[i * c_row + j]);
            ONE_BY_ONE;
        }
    return 1;
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
