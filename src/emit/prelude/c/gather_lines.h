/*
 * Products of the prelude whose right operand is read as it lies, where guards keep much of it away (prelude/c/gather.h packs panels instead):
 * lines of the left one are lanes, and each step of depth goes over the lines of the right one that are inside. In: views as gather.h has
 * them. Out: c += a b, or no, where panels are better.
 * SPDX-License-Identifier: MIT
 */

//@ part gather_lines_$t
//@ for f32 f64
//@ needs gather_run dot_rows_$t dot_thin_$t
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
