/*
 * What the appendix's programs do not show: leaving loops, functions of every kind, validity in every builtin, types
 * and conversions, atomics' results, random numbers. Executed under the checking interpreter against direct
 * computations. SPDX-License-Identifier: MIT
 */
#include "program.h"

static const int sizes[] = {1, 2, 5, 8, 13};
#define EACH_SIZE(n) for (int n##_index = 0, n; n##_index < COUNT(sizes) && ((n = sizes[n##_index]), 1); n##_index++)
#define EACH(i, n) for (int i = 0; i < (n); i++)

static program *start(const char *file, const char *kernel)
{
    return program_new(file, kernel, DT_F32);
}

static void finish(program *p, const grid *g, const double *want)
{
    if (program_run(p)) expect_array(p, g, want);
    program_free(p);
}

static int64_t floor_div(int64_t a, int64_t b)
{
    return b == 0 ? 0 : a / b - (a % b != 0 && (a < 0) != (b < 0));
}

TEST(leave_loops)
{
    EACH_SIZE(n)
    {
        program *p = start("semantics/control", "first_negative");
        grid *x = random_fill(ARRAY(p, "x", DT_F32, 4, n), -1, 4), *at = ARRAY(p, "at", DT_I64, 4),
             *before = ARRAY(p, "before", DT_F32, 4);
        double *want = NEW(p, 4), *total = NEW(p, 4);
        EACH(r, 4)
        {
            want[r] = -1;
            EACH(j, n)
            {
                if (x->v[r * n + j] < 0) {
                    want[r] = j;
                    break;
                }
                total[r] += x->v[r * n + j];
            }
        }
        if (program_run(p)) {
            expect_array(p, at, want);
            expect_array(p, before, total);
        }
        program_free(p);
        p = start("semantics/control", "odd_sum");
        x = random_integers(ARRAY(p, "x", DT_I32, n), 20);
        grid *y = array_new(p, "y", DT_I64, NULL, 0);
        want = NEW(p, 1);
        EACH(i, n) want[0] += (int)x->v[i] % 2 ? x->v[i] : 0;
        finish(p, y, want);
    }
}

static double early_want(int x, double y)
{
    if (x < 0) return y;
    if (x == 0) return 100;
    EACH(k, 10)
    {
        if (k == x) return 1000 + k;
        EACH(m, 3)
        {
            if (k * m > 12) return y;
            y += 1;
        }
    }
    return -5;
}

TEST(leave_kernels)
{
    int n = 16;
    program *p = start("semantics/control", "early");
    grid *x = ARRAY(p, "x", DT_I32, n), *y = ARRAY(p, "y", DT_I32, n);
    double *want = NEW(p, n);
    EACH(i, n)
    {
        x->v[i] = i - 3;
        y->v[i] = 10 * i;
        want[i] = early_want(i - 3, y->v[i]);
    }
    finish(p, y, want);
    p = start("semantics/control", "search");
    x = ARRAY(p, "x", DT_I64, n);
    y = ARRAY(p, "y", DT_I64, n);
    want = NEW(p, n);
    EACH(i, n)
    {
        x->v[i] = i;
        for (int v = i; v > 1; v = v % 2 ? 3 * v + 1 : v / 2) want[i]++;
    }
    finish(p, y, want);
}

TEST(count_down)
{
    program *p = start("semantics/control", "countdown");
    grid *y = ARRAY(p, "y", DT_I64, 8);
    double want[] = {741, 42, 0, 0, 15, 5, 6, 7};
    int c = 0;
    for (int i = 10; i > 0; i -= 3) c = 10 * c + i % 10;
    want[0] = c;
    c = 0;
    for (int i = -2; i <= 2; i++) c = 3 * c + i;
    want[2] = c;
    finish(p, y, want);
}

TEST(carried_tiles)
{
    EACH_SIZE(n) EACH(times, 5)
    {
        program *p = start("semantics/control", "swap_in_loop");
        set_int(p, "times", times);
        set_int(p, "B", 4);
        grid *x = random_fill(ARRAY(p, "x", DT_F32, n), -1, 1), *y = ARRAY(p, "y", DT_F32, n);
        double *want = NEW(p, n);
        EACH(i, n)
        {
            double a = x->v[i], b = -x->v[i];
            EACH(k, times)
            {
                double t = a;
                a = b;
                b = t + 1;
            }
            want[i] = times > 2 ? 2 * a + 10 * b : a + 30 * b;
        }
        finish(p, y, want);
    }
}

TEST(one_side)
{
    EACH_SIZE(n) for (int which = -1; which < 2; which++)
    {
        int b = 4;
        program *p = start("semantics/control", "pick");
        set_int(p, "which", which);
        set_int(p, "B", b);
        grid *x = random_fill(ARRAY(p, "x", DT_F32, n), -1, 1), *y = ARRAY(p, "y", DT_F32, n);
        double *want = NEW(p, n);
        EACH(i, n)
        {
            int first = i / b * b, at = i - which;
            double v = which == 0 ? x->v[i] : at >= 0 && at < n ? x->v[at] : which > 0 ? 7 : 9;
            want[i] = first > 0 && x->v[first - 1] > 0 ? v : v + 100;
        }
        finish(p, y, want);
    }
}

TEST(assigned_parameters)
{
    int n = 7;
    program *p = start("semantics/control", "own_copy");
    set_int(p, "left", 9);
    set_float(p, "by", 1.5);
    grid *y = ARRAY(p, "y", DT_I64, n);
    double *want = NEW(p, n);
    EACH(i, n)
    {
        int left = 9, taken = 0;
        for (; left > i; taken++) left -= 2;
        want[i] = taken * 1000 + left + 3;
    }
    finish(p, y, want);
}

static double piece(double x)
{
    if (x < -1) return -1;
    if (x > 1) return 1 + (x - 1) / 2;
    return x > 0.5 ? x + 10 : x;
}

static int64_t collatz(int64_t v, int64_t limit)
{
    for (int64_t steps = 0; steps < limit; steps++) {
        if (v <= 1) return steps;
        v = v % 2 ? 3 * v + 1 : v / 2;
    }
    return -1;
}

TEST(scalar_functions)
{
    EACH_SIZE(n) EACH_TILE(b)
    {
        program *p = start("semantics/functions", "by_element");
        set_int(p, "B", b);
        set_float(p, "a", 0.75);
        grid *x = random_fill(ARRAY(p, "x", DT_F32, n), -3, 3), *y = ARRAY(p, "y", DT_F32, n);
        double *want = NEW(p, n);
        EACH(i, n) want[i] = piece(x->v[i]) + piece(0.75) + 0.25;
        finish(p, y, want);

        p = start("semantics/functions", "ratios");
        set_int(p, "B", b);
        grid *c = ARRAY(p, "a", DT_I64, n), *d = ARRAY(p, "b", DT_I64, n), *z;
        y = ARRAY(p, "y", DT_I64, n);
        z = ARRAY(p, "z", DT_I64, n);
        want = NEW(p, n);
        double *other = NEW(p, n);
        EACH(i, n)
        {
            c->v[i] = (double)random_below(40) - 20;
            d->v[i] = (double)random_below(5) - 2;
            int64_t q = (int64_t)c->v[i], r = (int64_t)d->v[i];
            want[i] = r == 0 ? -1 : (double)floor_div(q, r);
            other[i] = r == 0 ? 77 : (double)(q - r * floor_div(q, r) + (r > 0 && floor_div(q, r) > 2 ? 100 : 0));
        }
        if (program_run(p)) {
            expect_array(p, y, want);
            expect_array(p, z, other);
        }
        program_free(p);

        p = start("semantics/functions", "by_region");
        set_int(p, "B", b);
        x = random_integers(ARRAY(p, "x", DT_I64, n), 60);
        y = ARRAY(p, "y", DT_I64, n);
        want = NEW(p, n);
        EACH(i, n)
        {
            int64_t v = (int64_t)x->v[i];
            want[i] = (double)(collatz(v, 50) + collatz(v, 200) + collatz(v + 1, 200) + collatz(7, 100));
        }
        finish(p, y, want);
    }
}

TEST(tile_functions)
{
    EACH_SIZE(cols) EACH_TILE(b) EACH(twice, 2)
    {
        int rows = 3;
        program *p = start("semantics/functions", "by_tile");
        set_int(p, "B", b);
        set_int(p, "twice", twice);
        grid *m = random_fill(ARRAY(p, "m", DT_F32, 2, rows, cols), -1, 1),
             *x = random_fill(ARRAY(p, "x", DT_F32, rows, cols), -1, 1), *y = ARRAY(p, "y", DT_F32, rows, cols);
        double *want = NEW(p, rows * cols), *scaled = NEW(p, 2 * rows * cols);
        EACH(r, rows)
        {
            double norm = 0;
            EACH(j, cols) norm += x->v[r * cols + j] * x->v[r * cols + j];
            EACH(j, cols)
            want[r * cols + j] = 2.5 * x->v[r * cols + j] + 1 + twice + sqrt(norm) + fabs(x->v[r * cols + j]) + 1;
        }
        EACH(e, 2 * rows * cols) scaled[e] = m->v[e] * (e < rows * cols ? 1 : 3);
        if (program_run(p)) {
            expect_array(p, y, want);
            expect_array(p, m, scaled);
        }
        program_free(p);
    }
}

/* The elements of x[-3 : B] that are greater than `above`, and their places. */
TEST(masked_folds)
{
    EACH_SIZE(n) EACH_TILE(b) for (double above = -1; above < 5; above += 2)
    {
        program *p = start("semantics/validity", "folds");
        set_int(p, "B", b);
        set_float(p, "above", above);
        grid *x = ARRAY(p, "x", DT_F32, n), *y = ARRAY(p, "y", DT_F32, 8), *z = ARRAY(p, "z", DT_I64, 6);
        EACH(i, n) x->v[i] = (double)random_below(7) - 2;
        double want[8] = {0, 1, -100, -7, -9, 0, 0, -8}, index[6] = {-1, -1, 0, 0, 1, 0};
        double best = -INFINITY, least = INFINITY, running = 0, top = -INFINITY;
        EACH(k, b)
        {
            int at = k - 3;
            bool inside = at >= 0 && at < n, kept = inside && x->v[at] > above;
            index[5] += inside * 100;
            want[6] += kept ? 0 : 0.5;
            if (!kept) continue;
            double v = x->v[at];
            want[0] += v;
            want[1] *= v;
            running += v;
            want[5] += running;
            top = fmax(top, v);
            want[6] += top;
            if (v > best) best = v, index[0] = k;
            if (v < least) least = v, index[1] = k;
            index[2]++;
            if (v > 2) index[3] = 1;
        }
        index[5] += b;
        if (index[2] > 0) {
            want[2] = best;
            want[3] = best;
            want[4] = want[0] / index[2];
            want[7] = least;
        }
        if (program_run(p)) {
            expect_array(p, y, want);
            expect_array(p, z, index);
        }
        program_free(p);
    }
}

TEST(masked_rows)
{
    EACH_SIZE(n) EACH_TILE(b)
    {
        int m = 7;
        program *p = start("semantics/validity", "rows");
        set_int(p, "BM", b);
        grid *x = random_fill(ARRAY(p, "x", DT_F32, m, n), -1, 1), *y = ARRAY(p, "y", DT_F32, m),
             *total = array_new(p, "total", DT_F32, NULL, 0);
        grid *turned = ARRAY(p, "turned", DT_F32, n, m);
        double *want = NEW(p, m), sum = 0, *turn = NEW(p, m * n);
        EACH(r, m)
        {
            EACH(c, n)
            {
                want[r] += exp(x->v[r * n + c]);
                turn[c * m + r] = x->v[r * n + c];
            }
            sum += log(want[r]) + 1 / want[r];
        }
        if (program_run(p)) {
            expect_array(p, y, want);
            expect_array(p, total, &sum);
            expect_array(p, turned, turn);
        }
        program_free(p);
    }
}

TEST(partial_stores)
{
    EACH_SIZE(n) EACH_TILE(b)
    {
        program *p = start("semantics/validity", "partial");
        set_int(p, "B", b);
        grid *x = random_fill(ARRAY(p, "x", DT_F32, n), -1, 1), *y = filled(ARRAY(p, "y", DT_F32, n), 5),
             *to = ARRAY(p, "to", DT_I64, n), *s = filled(ARRAY(p, "scattered", DT_F32, n), 6);
        double *want = NEW(p, n), *other = NEW(p, n);
        EACH(i, n) other[i] = 6;
        EACH(i, n)
        {
            to->v[i] = (i * 5 + 2) % n; /* elements that are not kept may meet others, or lie outside */
            if (n % 5 == 0) to->v[i] = n - 1 - i;
            if (x->v[i] > 0 && i % 3 == 0) to->v[i] = 1e6;
            want[i] = x->v[i] > 0 ? 2 * x->v[i] : 5;
            if (x->v[i] < 0) other[(int)to->v[i]] = x->v[i];
        }
        if (program_run(p)) {
            expect_array(p, y, want);
            expect_array(p, s, other);
        }
        program_free(p);
    }
}

TEST(moved_axes)
{
    for (int n = 3; n < 20; n += 4) {
        program *p = start("semantics/validity", "shapes");
        grid *x = random_fill(ARRAY(p, "x", DT_F32, n), -1, 1), *y = ARRAY(p, "y", DT_F32, 12),
             *z = ARRAY(p, "z", DT_F32, 3, 4);
        double want[12], other[12], column[4] = {0};
        EACH(e, 12) if (e + 2 < n) column[e % 4] += x->v[e + 2];
        EACH(e, 12)
        {
            int from = e % 3 * 4 + e / 3;
            want[e] = from + 2 < n ? x->v[from + 2] : -1;
            /* a column of sums exists wherever the reduction left it: its bound went with the axis */
            other[e] = (e + 2 < n ? x->v[e + 2] : 0.5) + column[e % 4] + e / 4 * 100;
        }
        EACH(j, 3)
        {
            other[j * 4 + 1] = 0;
            EACH(i, 2) EACH(k, 2)
            {
                int e = (i * 3 + j) * 2 + k;
                if (e + 2 < n) other[j * 4 + 1] += x->v[e + 2];
            }
        }
        if (program_run(p)) {
            expect_array(p, y, want);
            expect_array(p, z, other);
        }
        program_free(p);
    }
}

TEST(strided_slices)
{
    EACH_SIZE(n) EACH_TILE(b)
    {
        program *p = start("semantics/validity", "strides");
        set_int(p, "B", b);
        grid *x = random_fill(ARRAY(p, "x", DT_F32, n), -1, 1), *y = ARRAY(p, "y", DT_F32, n),
             *back = ARRAY(p, "back", DT_F32, n);
        double *want = NEW(p, n), *turned = NEW(p, n);
        EACH(e, n)
        {
            int i = e / b * b, k = e - i, one = 2 * i + 2 * k, two = i - 2 + 3 * k;
            turned[e] = x->v[n - 1 - e];
            want[e] = (one < n ? x->v[one] : 0) + (two >= 0 && two < n ? x->v[two] : 0);
        }
        if (program_run(p)) {
            expect_array(p, y, want);
            expect_array(p, back, turned);
        }
        program_free(p);
    }
}

TEST(assignment_stores)
{
    EACH_SIZE(n) for (int b = 2; b < 9; b += 3)
    {
        program *p = start("semantics/validity", "store_rule");
        set_int(p, "B", b);
        grid *x = random_fill(ARRAY(p, "x", DT_F32, n), -1, 3), *y = ARRAY(p, "y", DT_F32, b),
             *z = ARRAY(p, "z", DT_F32, b);
        double *want = NEW(p, b), *other = NEW(p, b);
        EACH(k, b)
        {
            want[k] = 1;
            for (int j = k; j < n; j += b) want[k] = fmax(want[k], x->v[j]);
            int at = n - 2 + k;
            other[k] = (k % 2 == 0 ? 10 + k + 0.5 : -1) + (at >= 0 && at < n);
        }
        if (program_run(p)) {
            expect_array(p, y, want);
            expect_array(p, z, other);
        }
        program_free(p);
    }
}

TEST(paired_gathers)
{
    EACH_SIZE(k) EACH_TILE(b)
    {
        int m = 6, n = 5;
        program *p = start("semantics/validity", "gathers");
        set_int(p, "B", b);
        grid *x = random_fill(ARRAY(p, "x", DT_F32, m, n), -1, 1), *r = random_integers(ARRAY(p, "r", DT_I64, k), m),
             *c = random_integers(ARRAY(p, "c", DT_I32, k), n);
        grid *pairs = ARRAY(p, "pairs", DT_F32, k), *block = ARRAY(p, "block", DT_F32, k, k),
             *picked = ARRAY(p, "picked", DT_F32, k, n);
        double *want[3] = {NEW(p, k), NEW(p, k * k), NEW(p, k * n)};
        EACH(i, k)
        {
            const double *row = x->v + (int)r->v[i] * n;
            want[0][i] = row[(int)c->v[i]];
            EACH(j, k) want[1][i * k + j] = row[(int)c->v[j]];
            EACH(j, n) want[2][i * n + j] = row[j];
        }
        tile_kernel *lowered;
        EXPECT(program_lower(p, &lowered));
        if (k <= b && program_run(p)) { /* with more programs along axis 1 they would race on `pairs` */
            expect_array(p, pairs, want[0]);
            expect_array(p, block, want[1]);
            expect_array(p, picked, want[2]);
        }
        program_free(p);
    }
}

TEST(products)
{
    EACH_SIZE(n) EACH_TILE(b)
    {
        int m = 5, k = n + 2;
        program *p = start("semantics/validity", "products");
        set_int(p, "B", b);
        grid *a = ARRAY(p, "a", DT_F32, m, k), *c = ARRAY(p, "b", DT_F32, k, n), *y = ARRAY(p, "y", DT_F32, m, n),
             *kept = ARRAY(p, "kept", DT_F32, m, n);
        grid *s = ARRAY(p, "p", DT_I8, m, k), *t = ARRAY(p, "q", DT_I8, k, n), *whole = ARRAY(p, "whole", DT_I32, m, n);
        grid *all[] = {a, c, s, t};
        EACH(g, 4)
        for (int64_t e = 0; e < all[g]->count; e++) all[g]->v[e] = (double)random_below(200) - 100; /* exact in tf32 */
        double *want[3] = {NEW(p, m * n), NEW(p, m * n), NEW(p, m * n)};
        EACH(i, m) EACH(j, n)
        {
            want[0][i * n + j] = 1;
            EACH(x, k)
            {
                double product = a->v[i * k + x] * c->v[x * n + j];
                want[0][i * n + j] += product;
                want[1][i * n + j] += a->v[i * k + x] > 0 ? product : 0;
                want[2][i * n + j] += s->v[i * k + x] * t->v[x * n + j];
            }
        }
        if (program_run(p)) {
            expect_array(p, y, want[0]);
            expect_array(p, kept, want[1]);
            expect_array(p, whole, want[2]);
        }
        program_free(p);
        p = start("semantics/validity", "batches");
        int z = 2;
        a = random_fill(ARRAY(p, "a", DT_F32, z, m, k), -1, 1);
        c = random_fill(ARRAY(p, "b", DT_F32, z, k, n), -1, 1);
        y = ARRAY(p, "y", DT_F32, z, m, n);
        double *batch = NEW(p, z * m * n);
        EACH(q, z)
        EACH(i, m)
        EACH(j, n) EACH(x, k) batch[(q * m + i) * n + j] += a->v[(q * m + i) * k + x] * c->v[(q * k + x) * n + j];
        finish(p, y, batch);
    }
}

TEST(integers)
{
    int n = 40;
    program *p = start("semantics/types", "integers");
    grid *a = ARRAY(p, "a", DT_I64, n), *b = ARRAY(p, "b", DT_I64, n), *y = ARRAY(p, "y", DT_I64, n, 12);
    double *want = NEW(p, n * 12);
    EACH(i, n)
    {
        a->v[i] = (double)random_below(1000) - 500;
        b->v[i] = (double)random_below(20) - 10;
        if (b->v[i] == 0) b->v[i] = 3;
        int64_t x = (int64_t)a->v[i], d = (int64_t)b->v[i], row[12] = {floor_div(x, d),
                                                                       x - d * floor_div(x, d),
                                                                       x * 8,
                                                                       floor_div(x, 2),
                                                                       (x & d) + (x | d) * 2 + (x ^ d) * 3,
                                                                       ~x};
        row[6] = (x > d ? x - d : d - x) + (x < 0 ? -x : x) + (d > 0) - (d < 0);
        row[7] = (int8_t)x + (int64_t)(uint8_t)x * 1000;
        row[8] = (uint32_t)x >> 1;
        row[9] = x < -2 ? -2 : x > 3 ? 3 : x;
        row[10] = ((x < 0 ? -x : x) + 2) / 3;
        row[11] = 0 + 3 + -4 + 2;
        EACH(k, 12) want[i * 12 + k] = (double)row[k];
    }
    finish(p, y, want);
}

TEST(small_types)
{
    EACH_SIZE(n)
    {
        program *p = start("semantics/types", "small");
        grid *a = random_integers(ARRAY(p, "a", DT_U8, n), 251), *b = ARRAY(p, "b", DT_I8, n),
             *t = random_integers(ARRAY(p, "t", DT_BOOL, n), 2);
        grid *y = ARRAY(p, "y", DT_I32, n), *z = ARRAY(p, "z", DT_BOOL, n), *w = ARRAY(p, "w", DT_U8, n);
        double *want[3] = {NEW(p, n), NEW(p, n), NEW(p, n)};
        EACH(i, n)
        {
            b->v[i] = (double)random_below(256) - 128;
            bool on = t->v[i] != 0;
            want[0][i] = a->v[i] * a->v[i] - b->v[i] + on + !on * 2;
            want[1][i] = (on && a->v[i] > 100) || ((b->v[i] < 0) != on);
            want[2][i] = a->v[i] > 250 ? a->v[i] : a->v[i] + 5;
        }
        filled(z, 0);
        if (program_run(p)) {
            expect_array(p, y, want[0]);
            expect_array(p, z, want[1]);
            expect_array(p, w, want[2]);
        }
        program_free(p);
    }
}

TEST(casts)
{
    static const double values[] = {0, -0.7, 3.99, -3.99, 300, -300, 1e6, 70000.5, 1e-3};
    int n = COUNT(values);
    program *p = start("semantics/types", "casts");
    grid *x = ARRAY(p, "x", DT_F64, n), *y = ARRAY(p, "y", DT_I64, n, 4), *z = ARRAY(p, "z", DT_F32, n),
         *d = ARRAY(p, "d", DT_F64, n), *bits = ARRAY(p, "bits", DT_U32, n);
    double *want = NEW(p, 4 * n), *single = NEW(p, n), *wide = NEW(p, n), *pattern = NEW(p, n);
    EACH(i, n)
    {
        x->v[i] = values[i];
        want[4 * i] = trunc(values[i]);
        want[4 * i + 1] = fmin(fmax(trunc(values[i]), -128), 127);
        want[4 * i + 2] = fmin(fmax(trunc(values[i]), 0), 65535);
        want[4 * i + 3] = values[i] != 0;
        single[i] = 0.1 * values[i] + (fabs(values[i]) >= 65520 ? NAN : 0);
        wide[i] = 0.1 * values[i] + 1.0 / 3;
        float f = (float)values[i];
        uint32_t u;
        memcpy(&u, &f, sizeof(u));
        pattern[i] = u;
    }
    x->v[6] = 1e4; /* beyond f16 the product with zero would be a NaN */
    x->v[7] = 700.5;
    EACH(i, n) if (i == 6 || i == 7)
    {
        double v = x->v[i];
        float f = (float)v;
        uint32_t u;
        memcpy(&u, &f, sizeof(u));
        want[4 * i] = trunc(v);
        want[4 * i + 2] = trunc(v);
        single[i] = 0.1 * v;
        wide[i] = 0.1 * v + 1.0 / 3;
        pattern[i] = u;
    }
    if (program_run(p)) {
        expect_array(p, y, want);
        expect_array(p, z, single);
        EACH(i, n) EXPECT_NEAR(d->v[i], wide[i], 1e-12 * fabs(wide[i]));
        expect_array(p, bits, pattern);
    }
    program_free(p);
}

TEST(atomic_results)
{
    EACH_SIZE(n)
    {
        program *p = start("semantics/types", "tickets");
        grid *x = random_integers(ARRAY(p, "x", DT_I32, n), 50), *slot = ARRAY(p, "slot", DT_I64, n),
             *next = ARRAY(p, "next", DT_I32, 4), *top = ARRAY(p, "top", DT_I32, 4);
        grid *flag = array_new(p, "flag", DT_I64, NULL, 0), *old = ARRAY(p, "old", DT_I64, 2);
        double count[4] = {0}, best[4] = {-1, -1, -1, -1}, expected_old[] = {0, 5}, expected_flag = 8;
        EACH(i, n)
        {
            int k = (int)x->v[i] % 4;
            count[k]++;
            best[k] = fmax(best[k], x->v[i]);
        }
        if (program_run(p)) {
            expect_array(p, next, count);
            expect_array(p, top, best);
            expect_array(p, flag, &expected_flag);
            expect_array(p, old, expected_old);
            EACH(i, n) EACH(j, i) EXPECT(slot->v[i] != slot->v[j] || (int)x->v[i] % 4 != (int)x->v[j] % 4);
        }
        program_free(p);
    }
}

TEST(random_numbers)
{
    EACH_SIZE(n) EACH_TILE(b)
    {
        program *p = start("semantics/types", "chance");
        set_int(p, "B", b);
        set_int(p, "seed", 42);
        set_int(p, "offset", 10);
        grid *words = ARRAY(p, "words", DT_U32, 4, n), *u = ARRAY(p, "u", DT_F32, n), *g = ARRAY(p, "g", DT_F32, n);
        double *want[3] = {NEW(p, 4 * n), NEW(p, n), NEW(p, n)};
        EACH(i, n)
        {
            uint32_t w[4];
            philox_words(42, 10, (uint64_t)i, w);
            EACH(k, 4) want[0][k * n + i] = w[k];
            philox_words(42, 2, (uint64_t)i, w);
            want[1][i] = (w[0] >> 8) * 0x1p-24;
            want[2][i] =
                sqrt(-2 * log(w[0] * 0x1p-32 + 0x1p-33)) * sin(2 * 3.14159265358979323846 * (w[1] * 0x1p-32 + 0x1p-33));
        }
        if (program_run(p)) {
            expect_array(p, words, want[0]);
            expect_array(p, u, want[1]);
            expect_array(p, g, want[2]);
        }
        program_free(p);
    }
}

TEST(extents_and_constants)
{
    EACH_SIZE(n)
    {
        program *p = start("semantics/types", "lengths");
        int h = n / 2 + 1, m = 2 * h;
        grid *x = random_fill(ARRAY(p, "x", DT_F32, n), -1, 1), *y = ARRAY(p, "y", DT_F32, m),
             *z = ARRAY(p, "z", DT_F32, h);
        double *want = NEW(p, m), *other = NEW(p, h), sum = 4.0 / 3;
        EACH(i, n / 2) sum += x->v[i];
        EACH(i, h) other[i] = sum;
        EACH(i, m) want[i] = m + i;
        if (program_run(p)) {
            expect_array(p, y, want);
            expect_array(p, z, other);
        }
        program_free(p);
    }
}

TEST_MAIN(CASE(leave_loops), CASE(leave_kernels), CASE(count_down), CASE(carried_tiles), CASE(one_side),
          CASE(assigned_parameters), CASE(scalar_functions), CASE(tile_functions), CASE(masked_folds),
          CASE(masked_rows), CASE(partial_stores), CASE(moved_axes), CASE(strided_slices), CASE(assignment_stores),
          CASE(paired_gathers), CASE(products), CASE(integers), CASE(small_types), CASE(casts), CASE(atomic_results),
          CASE(random_numbers), CASE(extents_and_constants))
