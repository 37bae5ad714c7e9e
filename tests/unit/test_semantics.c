/*
 * What the appendix's programs do not show: leaving loops, functions of every kind, validity in every builtin, types
 * and conversions, atomics' results, random numbers. Executed under the checking interpreter against direct
 * computations. SPDX-License-Identifier: MIT
 */
#include "semantics.h"

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

TEST_MAIN(CASE(leave_loops), CASE(leave_kernels), CASE(count_down), CASE(carried_tiles), CASE(one_side),
          CASE(assigned_parameters), CASE(scalar_functions), CASE(tile_functions), CASE(masked_folds),
          CASE(masked_rows), CASE(partial_stores), CASE(moved_axes), CASE(strided_slices))
