/*
 * What the appendix's programs do not show, by type: assignments, gathers, products, integers of every width, conversions,
 * atomics' results, random numbers, constants. Executed under the checking interpreter against direct computations.
 * SPDX-License-Identifier: MIT
 */
#include "semantics.h"

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

TEST_MAIN(CASE(assignment_stores), CASE(paired_gathers), CASE(products), CASE(integers), CASE(small_types), CASE(casts),
          CASE(atomic_results), CASE(random_numbers), CASE(extents_and_constants))
