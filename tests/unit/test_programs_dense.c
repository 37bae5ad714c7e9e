/*
 * The programs of the language's appendix, A.5 and A.6 (matrix products, convolution, stencil, transpose), executed
 * under the checking interpreter like those of test_programs.c.
 * SPDX-License-Identifier: MIT
 */
#include "program.h"

typedef struct product {
    int m, k, n;
} product;
static const product products[] = {{1, 1, 1}, {5, 7, 3}, {8, 16, 4}, {9, 10, 33}, {33, 5, 12}};

/* Tile sizes for M, N and K that go through the list at different speeds. */
static int tile_at(int i, int speed)
{
    return tile_sizes[(i * speed + speed) % COUNT(tile_sizes)];
}

static void multiply(const double *a, const double *b, double *c, int m, int k, int n, bool transposed)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            c[i * n + j] = 0;
            for (int x = 0; x < k; x++) c[i * n + j] += a[i * k + x] * (transposed ? b[j * k + x] : b[x * n + j]);
        }
}

static void set_tiles(program *p, int i)
{
    set_int(p, "BM", tile_at(i, 1));
    set_int(p, "BN", tile_at(i, 2));
    set_int(p, "BK", tile_at(i, 3));
}

static void matmul_case(const char *kernel, dtype t, int i, const product *s)
{
    program *p = program_new("a05_matmul", kernel, t);
    if (!strcmp(kernel, "matmul_naive"))
        set_int(p, "BN", tile_at(i, 1));
    else
        set_tiles(p, i);
    if (!strcmp(kernel, "matmul_grouped")) set_int(p, "G", 1 + i % 3);
    if (!strcmp(kernel, "matmul_split")) set_int(p, "SPLIT", 1 + i % 4);
    grid *a = random_fill(ARRAY(p, "a", t, s->m, s->k), -1, 1), *b = random_fill(ARRAY(p, "b", t, s->k, s->n), -1, 1);
    grid *c = ARRAY(p, "c", strcmp(kernel, "matmul_split") ? t : DT_F32, s->m, s->n);
    double *want = NEW(p, s->m * s->n);
    multiply(a->v, b->v, want, s->m, s->k, s->n, false);
    if (program_run(p)) expect_array(p, c, want);
    program_free(p);
}

#define EACH_PRODUCT(i, s)                      \
    EACH_TYPE(t)                                \
    for (int i = 0; i < COUNT(tile_sizes); i++) \
        for (const product *s = products; s < products + COUNT(products); s++)

TEST(matmul)
{
    EACH_PRODUCT(i, s)
    {
        matmul_case("matmul_naive", (dtype)t, i, s);
        matmul_case("matmul", (dtype)t, i, s);
        matmul_case("matmul_grouped", (dtype)t, i, s);
        matmul_case("matmul_split", (dtype)t, i, s);
    }
}

TEST(matmul_abt)
{
    EACH_PRODUCT(i, s)
    {
        int batch = 2;
        program *p = program_new("a05_matmul", "matmul_abt", (dtype)t);
        set_tiles(p, i);
        grid *a = random_fill(ARRAY(p, "a", (dtype)t, batch, s->m, s->k), -1, 1),
             *b = random_fill(ARRAY(p, "b", (dtype)t, batch, s->n, s->k), -1, 1);
        grid *c = ARRAY(p, "c", (dtype)t, batch, s->m, s->n);
        double *want = NEW(p, batch * s->m * s->n);
        for (int z = 0; z < batch; z++)
            multiply(a->v + z * s->m * s->k, b->v + z * s->n * s->k, want + z * s->m * s->n, s->m, s->k, s->n, true);
        if (program_run(p)) expect_array(p, c, want);
        program_free(p);
    }
}

static double leaky(double x)
{
    return x >= 0 ? x : 0.01 * x;
}

TEST(linear_act)
{
    EACH_PRODUCT(i, s)
    {
        if (t == DT_F64) continue; /* float accumulator plus double bias narrows at the call of act */
        program *p = program_new("a05_matmul", "linear_act", (dtype)t);
        set_tiles(p, i);
        bool relu = i % 2;
        if (relu) set_function(p, "act", "relu");
        grid *x = random_fill(ARRAY(p, "x", (dtype)t, s->m, s->k), -1, 1),
             *w = random_fill(ARRAY(p, "w", (dtype)t, s->k, s->n), -1, 1);
        grid *bias = random_fill(ARRAY(p, "bias", (dtype)t, s->n), -1, 1), *y = ARRAY(p, "y", (dtype)t, s->m, s->n);
        double *want = NEW(p, s->m * s->n);
        multiply(x->v, w->v, want, s->m, s->k, s->n, false);
        for (int e = 0; e < s->m * s->n; e++) {
            double sum = want[e] + bias->v[e % s->n];
            want[e] = relu ? fmax(sum, 0) : leaky(sum);
        }
        if (program_run(p)) expect_array(p, y, want);
        program_free(p);
    }
}

TEST(lora)
{
    EACH_PRODUCT(i, s)
    {
        if (t == DT_F64) continue;
        int rank = 1 + i;
        program *p = program_new("a05_matmul", "lora", (dtype)t);
        set_tiles(p, i);
        set_float(p, "alpha", 0.5);
        grid *x = random_fill(ARRAY(p, "x", (dtype)t, s->m, s->k), -1, 1),
             *w = random_fill(ARRAY(p, "w", (dtype)t, s->k, s->n), -1, 1);
        grid *bias = random_fill(ARRAY(p, "bias", (dtype)t, s->n), -1, 1),
             *a = random_fill(ARRAY(p, "a", (dtype)t, s->k, rank), -1, 1);
        grid *b = random_fill(ARRAY(p, "b", (dtype)t, rank, s->n), -1, 1), *y = ARRAY(p, "y", (dtype)t, s->m, s->n);
        double *want = NEW(p, s->m * s->n), *low = NEW(p, s->m * rank), *extra = NEW(p, s->m * s->n);
        multiply(x->v, w->v, want, s->m, s->k, s->n, false);
        multiply(x->v, a->v, low, s->m, s->k, rank, false);
        multiply(low, b->v, extra, s->m, rank, s->n, false);
        for (int e = 0; e < s->m * s->n; e++) want[e] = fmax(want[e] + 0.5 * extra[e] + bias->v[e % s->n], 0);
        if (program_run(p)) expect_array(p, y, want);
        program_free(p);
    }
}

typedef struct picture {
    int batch, channels, height, width, outputs, rows, columns, stride, pad, dilation;
} picture;
static const picture pictures[] = {
    {1, 1, 3, 3, 1, 1, 1, 1, 0, 1}, {2, 3, 7, 6, 4, 3, 3, 1, 1, 1}, {1, 5, 8, 9, 3, 3, 2, 2, 1, 1},
    {2, 2, 9, 7, 5, 2, 3, 1, 2, 2}, {1, 4, 5, 5, 2, 5, 5, 1, 0, 1},
};

static void convolve(const picture *c, const double *x, const double *w, double *y, int p_count, int q_count)
{
    for (int b = 0; b < c->batch; b++)
        for (int o = 0; o < c->outputs; o++)
            for (int p = 0; p < p_count; p++)
                for (int q = 0; q < q_count; q++) {
                    double sum = 0;
                    for (int ch = 0; ch < c->channels; ch++)
                        for (int r = 0; r < c->rows; r++)
                            for (int s = 0; s < c->columns; s++) {
                                int h = p * c->stride - c->pad + r * c->dilation,
                                    u = q * c->stride - c->pad + s * c->dilation;
                                if (h < 0 || h >= c->height || u < 0 || u >= c->width) continue;
                                sum += x[((b * c->channels + ch) * c->height + h) * c->width + u] *
                                       w[((o * c->channels + ch) * c->rows + r) * c->columns + s];
                            }
                    y[((b * c->outputs + o) * p_count + p) * q_count + q] = sum;
                }
}

static void convolution_case(const char *kernel, dtype t, int i, const picture *c)
{
    program *p = program_new("a06_convolution", kernel, t);
    int rows = (c->height + 2 * c->pad - c->dilation * (c->rows - 1) - 1) / c->stride + 1;
    int columns = (c->width + 2 * c->pad - c->dilation * (c->columns - 1) - 1) / c->stride + 1;
    set_int(p, "STRIDE", c->stride);
    set_int(p, "PAD", c->pad);
    set_int(p, "DIL", c->dilation);
    set_int(p, "BO", tile_at(i, 1));
    if (!strcmp(kernel, "conv2d")) {
        set_int(p, "BQ", tile_at(i, 2));
        set_int(p, "BC", tile_at(i, 3));
    } else {
        set_int(p, "BM", tile_at(i, 2));
        set_int(p, "BK", tile_at(i, 3));
    }
    grid *x = random_fill(ARRAY(p, "x", t, c->batch, c->channels, c->height, c->width), -1, 1);
    grid *w = random_fill(ARRAY(p, "w", t, c->outputs, c->channels, c->rows, c->columns), -1, 1);
    grid *y = ARRAY(p, "y", t, c->batch, c->outputs, rows, columns);
    double *want = NEW(p, y->count);
    convolve(c, x->v, w->v, want, rows, columns);
    if (program_run(p)) expect_array(p, y, want);
    program_free(p);
}

TEST(convolution)
{
    EACH_TYPE(t) for (int i = 0; i < COUNT(tile_sizes); i++) for (int n = 0; n < COUNT(pictures); n++)
    {
        convolution_case("conv2d", (dtype)t, i, &pictures[n]);
        convolution_case("conv2d_gather", (dtype)t, i, &pictures[n]);
    }
}

TEST(blur)
{
    for (int i = 0; i < COUNT(tile_sizes); i++)
        for (const product *s = products; s < products + COUNT(products); s++) {
            int h = s->m, w = s->n;
            program *p = program_new("a06_convolution", "blur", DT_F32);
            set_int(p, "BH", tile_at(i, 1));
            set_int(p, "BW", tile_at(i, 3));
            grid *x = random_fill(ARRAY(p, "x", DT_F32, h, w), -1, 1), *y = ARRAY(p, "y", DT_F32, h, w);
            double *want = NEW(p, h * w);
            for (int a = 0; a < h; a++)
                for (int b = 0; b < w; b++)
                    for (int da = -1; da <= 1; da++)
                        for (int db = -1; db <= 1; db++)
                            if (a + da >= 0 && a + da < h && b + db >= 0 && b + db < w)
                                want[a * w + b] += x->v[(a + da) * w + b + db] / 9;
            if (program_run(p)) expect_array(p, y, want);
            program_free(p);
        }
}

TEST(transpose_tile)
{
    EACH_PRODUCT(i, s)
    {
        program *p = program_new("a06_convolution", "transpose_tile", (dtype)t);
        set_int(p, "B", tile_at(i, 1));
        grid *x = random_fill(ARRAY(p, "x", (dtype)t, s->m, s->n), -1, 1), *y = ARRAY(p, "y", (dtype)t, s->n, s->m);
        double *want = NEW(p, s->m * s->n);
        for (int a = 0; a < s->m; a++)
            for (int b = 0; b < s->n; b++) want[b * s->m + a] = x->v[a * s->n + b];
        if (program_run(p)) expect_array(p, y, want);
        program_free(p);
    }
}

TEST_MAIN(CASE(matmul), CASE(matmul_abt), CASE(linear_act), CASE(lora), CASE(convolution), CASE(blur),
          CASE(transpose_tile))
