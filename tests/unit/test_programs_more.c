/*
 * The programs of the language's appendix, A.7 to A.9 (embeddings, attention, in place, random numbers, per-element
 * loops), executed under the checking interpreter like those of test_programs.c.
 * SPDX-License-Identifier: MIT
 */
#include "program.h"

static const int sizes[] = {1, 2, 7, 16, 33};
#define EACH_SIZE(n) for (int n##_index = 0, n; n##_index < COUNT(sizes) && ((n = sizes[n##_index]), 1); n##_index++)

TEST(embed)
{
    EACH_TYPE(t) EACH_TILE(bb) EACH_SIZE(rows)
    {
        int fields = 3, width = 5, col = 4, vocabulary = 20;
        int total = col + fields * width;
        program *p = program_new("a07_embeddings", "embed", (dtype)t);
        set_int(p, "BB", bb);
        set_int(p, "COL", col);
        grid *id = ARRAY(p, "id", DT_I64, rows, fields),
             *table = random_fill(ARRAY(p, "table", (dtype)t, vocabulary, width), -1, 1);
        grid *base = ARRAY(p, "base", DT_I64, fields), *size = ARRAY(p, "size", DT_I64, fields),
             *y = filled(ARRAY(p, "y", (dtype)t, rows, total), 0.5);
        for (int64_t i = 0; i < id->count; i++) id->v[i] = (double)random_below(100) - 1;
        for (int f = 0; f < fields; f++) {
            base->v[f] = 6 * f;
            size->v[f] = 6 + f;
        }
        double *want = NEW(p, rows * total);
        for (int i = 0; i < rows * total; i++) want[i] = 0.5;
        for (int r = 0; r < rows; r++)
            for (int f = 0; f < fields; f++)
                for (int e = 0; e < width; e++) {
                    int row = (int)base->v[f] + ((int)id->v[r * fields + f] + 1) % (int)size->v[f];
                    want[r * total + col + f * width + e] = table->v[row * width + e];
                }
        if (program_run(p)) expect_array(p, y, want);
        program_free(p);
    }
}

TEST(embed_exact)
{
    EACH_TILE(b) EACH_SIZE(n)
    {
        int count = 1 + n / 2;
        program *p = program_new("a07_embeddings", "embed_exact", DT_F32);
        set_int(p, "BLOCK", b);
        grid *id = ARRAY(p, "id", DT_I64, n), *token = ARRAY(p, "token", DT_I64, count),
             *row = ARRAY(p, "row", DT_I64, n);
        for (int i = 0; i < count; i++) token->v[i] = 3 * i + (double)random_below(3);
        for (int i = 0; i < n; i++) id->v[i] = (double)random_below(3 * count + 4) - 2;
        double *want = NEW(p, n);
        for (int i = 0; i < n; i++) {
            want[i] = -1;
            for (int k = 0; k < count; k++)
                if (token->v[k] == id->v[i]) want[i] = k;
        }
        if (program_run(p)) expect_array(p, row, want);
        program_free(p);
    }
}

TEST(embed_backward)
{
    EACH_TYPE(t) EACH_TILE(b) EACH_SIZE(n)
    {
        int vocabulary = 6, width = 5;
        if (t == DT_F64) continue; /* the table of gradients is float: a double narrows only by assignment */
        program *p = program_new("a07_embeddings", "embed_backward", (dtype)t);
        set_int(p, "BLOCK", b);
        grid *id = random_integers(ARRAY(p, "id", DT_I64, n), vocabulary),
             *dy = random_fill(ARRAY(p, "dy", (dtype)t, n, width), -1, 1);
        grid *table = ARRAY(p, "dtable", DT_F32, vocabulary, width);
        double *want = NEW(p, table->count);
        for (int i = 0; i < n; i++)
            for (int e = 0; e < width; e++) want[(int)id->v[i] * width + e] += dy->v[i * width + e];
        if (program_run(p)) expect_array(p, table, want);
        program_free(p);
    }
}

TEST(embed_bag)
{
    EACH_TYPE(t) EACH_SIZE(bags)
    {
        int vocabulary = 9, width = 4, count = 0;
        program *p = program_new("a07_embeddings", "embed_bag", (dtype)t);
        grid *start = ARRAY(p, "start", DT_I64, bags + 1);
        for (int i = 0; i < bags; i++) {
            start->v[i] = count;
            count += (int)random_below(4); /* empty bags too */
        }
        start->v[bags] = count;
        grid *id = random_integers(ARRAY(p, "id", DT_I64, count), vocabulary),
             *table = random_fill(ARRAY(p, "table", (dtype)t, vocabulary, width), -1, 1);
        grid *y = ARRAY(p, "y", (dtype)t, bags, width);
        double *want = NEW(p, y->count);
        for (int b = 0; b < bags; b++)
            for (int i = (int)start->v[b]; i < (int)start->v[b + 1]; i++)
                for (int e = 0; e < width; e++) want[b * width + e] += table->v[(int)id->v[i] * width + e];
        if (program_run(p)) expect_array(p, y, want);
        program_free(p);
    }
}

typedef struct heads {
    int batch, heads, length, keys, width;
} heads;
static const heads shapes[] = {{1, 1, 1, 1, 1}, {1, 2, 5, 7, 3}, {2, 1, 8, 8, 4}, {1, 1, 9, 12, 8}, {1, 1, 33, 17, 5}};

/* Probabilities, log-sum-exp and output of attention, and with g its gradients. */
typedef struct attention_result {
    double *o, *lse, *delta, *dq, *dk, *dv;
} attention_result;

static attention_result attend(program *p, const heads *s, const double *q, const double *k, const double *v,
                               const double *g, double scale, bool causal)
{
    int n = s->batch * s->heads, l = s->length, c = s->keys, d = s->width;
    attention_result r = {NEW(p, n * l * d), NEW(p, n * l),     NEW(p, n * l),
                          NEW(p, n * l * d), NEW(p, n * c * d), NEW(p, n * c * d)};
    double *probability = NEW(p, c);
    for (int z = 0; z < n; z++)
        for (int i = 0; i < l; i++) {
            double top = -INFINITY, sum = 0;
            const double *row = q + (z * l + i) * d, *grad = g ? g + (z * l + i) * d : NULL;
            double *out = r.o + (z * l + i) * d;
            for (int j = 0; j < c; j++) {
                probability[j] = 0;
                for (int e = 0; e < d; e++) probability[j] += scale * row[e] * k[(z * c + j) * d + e];
                if (causal && j > i) probability[j] = -INFINITY;
                top = fmax(top, probability[j]);
            }
            for (int j = 0; j < c; j++) sum += probability[j] = exp(probability[j] - top);
            r.lse[z * l + i] = top + log(sum);
            for (int j = 0; j < c; j++) {
                probability[j] /= sum;
                for (int e = 0; e < d; e++) out[e] += probability[j] * v[(z * c + j) * d + e];
            }
            if (!g) continue;
            for (int e = 0; e < d; e++) r.delta[z * l + i] += out[e] * grad[e];
            for (int j = 0; j < c; j++) {
                double dp = 0;
                for (int e = 0; e < d; e++) dp += grad[e] * v[(z * c + j) * d + e];
                double ds = scale * probability[j] * (dp - r.delta[z * l + i]);
                for (int e = 0; e < d; e++) {
                    r.dv[(z * c + j) * d + e] += probability[j] * grad[e];
                    r.dk[(z * c + j) * d + e] += ds * row[e];
                    r.dq[(z * l + i) * d + e] += ds * k[(z * c + j) * d + e];
                }
            }
        }
    return r;
}

static program *attention_program(const char *kernel, dtype t, int i, bool causal, bool scaled)
{
    program *p = program_new("a08_attention", kernel, t);
    set_int(p, "BM", tile_sizes[i]);
    if (!scaled) return p;
    set_int(p, "BN", tile_sizes[(2 * i + 1) % COUNT(tile_sizes)]);
    set_bool(p, "CAUSAL", causal);
    set_float(p, "scale", 0.5);
    return p;
}

static grid *heads_array(program *p, const char *name, dtype t, const heads *s, int length)
{
    return random_fill(ARRAY(p, name, t, s->batch, s->heads, length, s->width), -1, 1);
}

static grid *row_array(program *p, const char *name, const heads *s)
{
    return ARRAY(p, name, DT_F32, s->batch, s->heads, s->length);
}

#define EACH_ATTENTION(i, s, causal)                                   \
    EACH_TYPE(t)                                                       \
    for (int i = 0; i < COUNT(tile_sizes); i++)                        \
        for (const heads *s = shapes; s < shapes + COUNT(shapes); s++) \
            for (int causal = 0; causal < 2; causal++)

TEST(attention)
{
    EACH_ATTENTION(i, s, causal)
    {
        program *p = attention_program("attention", (dtype)t, i, causal, true);
        grid *q = heads_array(p, "q", (dtype)t, s, s->length), *k = heads_array(p, "k", (dtype)t, s, s->keys),
             *v = heads_array(p, "v", (dtype)t, s, s->keys);
        grid *o = ARRAY(p, "o", (dtype)t, s->batch, s->heads, s->length, s->width), *lse = row_array(p, "lse", s);
        attention_result want = attend(p, s, q->v, k->v, v->v, NULL, 0.5, causal);
        if (program_run(p)) {
            expect_array(p, o, want.o);
            expect_array(p, lse, want.lse);
        }
        program_free(p);
    }
}

TEST(attention_delta)
{
    EACH_TYPE(t)
    for (int i = 0; i < COUNT(tile_sizes); i++)
        for (const heads *s = shapes; s < shapes + COUNT(shapes); s++) {
            program *p = attention_program("attention_delta", (dtype)t, i, false, false);
            grid *o = heads_array(p, "o", (dtype)t, s, s->length), *g = heads_array(p, "g", (dtype)t, s, s->length),
                 *delta = row_array(p, "delta", s);
            double *want = NEW(p, delta->count);
            for (int64_t e = 0; e < o->count; e++) want[e / s->width] += o->v[e] * g->v[e];
            if (program_run(p)) expect_array(p, delta, want);
            program_free(p);
        }
}

TEST(attention_backward)
{
    EACH_ATTENTION(i, s, causal)
    {
        for (int side = 0; side < 2; side++) {
            program *p =
                attention_program(side ? "attention_backward_q" : "attention_backward_kv", (dtype)t, i, causal, true);
            grid *q = heads_array(p, "q", (dtype)t, s, s->length), *k = heads_array(p, "k", (dtype)t, s, s->keys),
                 *v = heads_array(p, "v", (dtype)t, s, s->keys);
            grid *g = heads_array(p, "g", (dtype)t, s, s->length), *lse = row_array(p, "lse", s),
                 *delta = row_array(p, "delta", s);
            attention_result want = attend(p, s, q->v, k->v, v->v, g->v, 0.5, causal);
            for (int64_t e = 0; e < lse->count; e++) {
                lse->v[e] = stored(DT_F32, want.lse[e]);
                delta->v[e] = stored(DT_F32, want.delta[e]);
            }
            grid *first =
                ARRAY(p, side ? "dq" : "dk", (dtype)t, s->batch, s->heads, side ? s->length : s->keys, s->width);
            grid *second = side ? NULL : ARRAY(p, "dv", (dtype)t, s->batch, s->heads, s->keys, s->width);
            if (program_run(p)) {
                expect_array(p, first, side ? want.dq : want.dk);
                if (second) expect_array(p, second, want.dv);
            }
            program_free(p);
        }
    }
}

TEST(rope)
{
    EACH_TYPE(t) EACH_TILE(bl) EACH_SIZE(length)
    {
        int batch = 2, count = 3, width = 6, half = width / 2;
        program *p = program_new("a08_attention", "rope", (dtype)t);
        set_int(p, "BL", bl);
        grid *x = random_fill(ARRAY(p, "x", (dtype)t, batch, length, count, width), -1, 1),
             *cosine = random_fill(ARRAY(p, "cosine", DT_F32, length, half), -1, 1);
        grid *sine = random_fill(ARRAY(p, "sine", DT_F32, length, half), -1, 1),
             *y = ARRAY(p, "y", (dtype)t, batch, length, count, width);
        double *want = NEW(p, y->count);
        for (int64_t e = 0; e < y->count; e += 2) {
            int64_t at = e / (count * width) % length, pair = e % width / 2;
            double c = cosine->v[at * half + pair], s = sine->v[at * half + pair];
            want[e] = x->v[e] * c - x->v[e + 1] * s;
            want[e + 1] = x->v[e] * s + x->v[e + 1] * c;
        }
        if (program_run(p)) expect_array(p, y, want);
        program_free(p);
    }
}

TEST(bias_act)
{
    EACH_TYPE(t) EACH_TILE(b) EACH_SIZE(n)
    {
        int m = 5;
        if (t == DT_F64) continue; /* act takes float */
        program *p = program_new("a09_inplace", "bias_act", (dtype)t);
        set_int(p, "BM", b);
        set_int(p, "BN", tile_sizes[(b_index + 2) % COUNT(tile_sizes)]);
        set_float(p, "m", 0.5);
        bool sigmoid = n % 2;
        if (sigmoid) set_function(p, "act", "sigmoid");
        grid *x = random_fill(ARRAY(p, "x", (dtype)t, m, n), -2, 2),
             *bias = random_fill(ARRAY(p, "bias", (dtype)t, n), -1, 1),
             *y = random_fill(ARRAY(p, "y", (dtype)t, m, n), -1, 1);
        double *want = NEW(p, m * n);
        for (int e = 0; e < m * n; e++) {
            double sum = x->v[e] + bias->v[e % n] + 0.5 * y->v[e];
            want[e] = sigmoid ? 1 / (1 + exp(-sum)) : fmax(sum, 0);
        }
        if (program_run(p)) expect_array(p, x, want);
        program_free(p);
    }
}

TEST(dropout)
{
    EACH_TYPE(t) EACH_TILE(b) EACH_SIZE(n)
    {
        program *p = program_new("a09_inplace", "dropout", (dtype)t);
        set_int(p, "BLOCK", b);
        set_float(p, "p", 0.4);
        set_int(p, "seed", 1234567);
        set_int(p, "offset", 9);
        grid *x = random_fill(ARRAY(p, "x", (dtype)t, n), -1, 1), *y = ARRAY(p, "y", (dtype)t, n);
        double *want = NEW(p, n);
        for (int i = 0; i < n; i++) {
            uint32_t words[4];
            philox_words(1234567, 9 / 4, (uint64_t)i, words);
            want[i] = (words[0] >> 8) * 0x1p-24 >= 0.4f ? x->v[i] / (1 - 0.4) : 0;
        }
        if (program_run(p)) expect_array(p, y, want);
        program_free(p);
    }
}

TEST(adam)
{
    EACH_TILE(b) EACH_SIZE(n)
    {
        program *p = program_new("a09_inplace", "adam", DT_F32);
        double rate = 0.01, b1 = 0.9, b2 = 0.99, eps = 1e-6, step = 3;
        set_int(p, "BLOCK", b);
        set_float(p, "rate", rate);
        set_float(p, "b1", b1);
        set_float(p, "b2", b2);
        set_float(p, "eps", eps);
        set_int(p, "step", (int64_t)step);
        grid *w = random_fill(ARRAY(p, "w", DT_F32, n), -1, 1), *g = random_fill(ARRAY(p, "g", DT_F32, n), -1, 1);
        grid *m = random_fill(ARRAY(p, "m", DT_F32, n), -1, 1), *v = random_fill(ARRAY(p, "v", DT_F32, n), 0.1, 1);
        double *want[3] = {NEW(p, n), NEW(p, n), NEW(p, n)};
        for (int i = 0; i < n; i++) {
            want[0][i] = b1 * m->v[i] + (1 - b1) * g->v[i];
            want[1][i] = b2 * v->v[i] + (1 - b2) * g->v[i] * g->v[i];
            want[2][i] =
                w->v[i] - rate * (want[0][i] / (1 - pow(b1, step))) / (sqrt(want[1][i] / (1 - pow(b2, step))) + eps);
        }
        if (program_run(p)) {
            expect_array(p, m, want[0]);
            expect_array(p, v, want[1]);
            expect_array(p, w, want[2]);
        }
        program_free(p);
    }
}

TEST(mandelbrot)
{
    EACH_TILE(b) EACH_SIZE(n)
    {
        int height = 5, limit = 12;
        program *p = program_new("a09_inplace", "mandelbrot", DT_F32);
        set_int(p, "BH", b);
        set_int(p, "BW", tile_sizes[(b_index + 3) % COUNT(tile_sizes)]);
        set_int(p, "limit", limit);
        grid *image = ARRAY(p, "image", DT_I32, height, n);
        double *want = NEW(p, height * n);
        for (int i = 0; i < height; i++)
            for (int j = 0; j < n; j++) { /* in float, as the kernel computes, so that the counts agree exactly */
                float cx = -2 + 3.0f * (float)j / (float)n, cy = -1.5f + 3.0f * (float)i / (float)height, x = 0, y = 0;
                int k = 0;
                while (k < limit && (float)(x * x) + (float)(y * y) <= 4) {
                    float next = (float)(x * x) - (float)(y * y) + cx;
                    y = 2 * x * y + cy;
                    x = next;
                    k++;
                }
                want[i * n + j] = k;
            }
        if (program_run(p)) expect_array(p, image, want);
        program_free(p);
    }
}

TEST_MAIN(CASE(embed), CASE(embed_exact), CASE(embed_backward), CASE(embed_bag), CASE(attention), CASE(attention_delta),
          CASE(attention_backward), CASE(rope), CASE(bias_act), CASE(dropout), CASE(adam), CASE(mandelbrot))
