/*
 * Random programs: kernels written by a seeded generator, run under the checking interpreter and on the best device.
 * They must check clean and agree. Row kernels hold whole rows and mix reductions, scans and loops; block kernels read
 * slices that stick out, keep, fill and accumulate over blocks. Float comparisons are only made on inputs, which
 * are equal everywhere, so that a rounding difference cannot flip a branch.
 * A failure prints the seed and the program. QUERN_RANDOM=COUNT runs more (QUERN_RANDOM_EMU of those on the checked emu),
 * QUERN_RANDOM_SEED=N starts elsewhere.
 * SPDX-License-Identifier: MIT
 */
#include "run/run.h"
#include "share.h"
#include "test.h"

#include <quern/quern.h>
#include <stdlib.h>

typedef struct generator {
    uint64_t state;
    text out;
    int tiles, scalars; /* variables declared so far: t0.., s0.. */
    bool block;         /* block kernel: tiles are [BM][BN] */
} generator;

static int pick(generator *g, int count)
{
    g->state = g->state * 6364136223846793005u + 1442695040888963407u;
    return (int)((g->state >> 33) % (uint64_t)count);
}

/* An input access with the shape of the kernel's tiles. */
static void write_load(generator *g)
{
    if (!g->block) {
        static const char *const rows[] = {"a[r][:]", "b[:]", "float(c[r][:])", "a[(r + 1) % rows][:]",
                                           "float(iota(cols) % 5)"};
        text_add(&g->out, rows[pick(g, COUNT(rows))]);
        return;
    }
    static const char *const blocks[] = {"a[i : BM][j : BN]",
                                         "b[][j : BN]",
                                         "float(c[i : BM][j : BN])",
                                         "a[i - 1 : BM][j + 2 : BN]",
                                         "fill(a[i + 1 : BM][j - 3 : BN], 0.5)",
                                         "a[i : BM : 2][j : BN]",
                                         "float((j + iota(BN))[][:] % 3)"};
    text_add(&g->out, blocks[pick(g, COUNT(blocks))]);
}

static void write_condition(generator *g)
{
    if (!g->block) {
        static const char *const rows[] = {"a[r][:] > 0.1", "c[r][:] % 2 == 0", "iota(cols) < cols / 2",
                                           "b[:] < a[r][:]"};
        text_add(&g->out, rows[pick(g, COUNT(rows))]);
        return;
    }
    static const char *const blocks[] = {"a[i : BM][j : BN] > 0.1", "c[i : BM][j : BN] % 2 == 0",
                                         "(i + iota(BM))[:][] >= (j + iota(BN))[][:]"};
    text_add(&g->out, blocks[pick(g, COUNT(blocks))]);
}

static void write_tile(generator *g, int depth);

static void write_scalar(generator *g, int depth)
{
    switch (pick(g, depth > 0 ? 6 : 3)) {
    case 0: text_print(&g->out, "%d.%d", pick(g, 2), pick(g, 100)); break;
    case 1:
    case 2:
        if (g->scalars)
            text_print(&g->out, "s%d", pick(g, g->scalars));
        else
            text_add(&g->out, "0.75");
        break;
    case 3:
        text_add(&g->out, "tanh(sum(");
        write_tile(g, depth - 1);
        text_add(&g->out, ") / 64)");
        break;
    case 4:
        text_add(&g->out, pick(g, 2) ? "clamp(max(" : "clamp(min(");
        write_tile(g, depth - 1);
        text_add(&g->out, "), -2, 2)");
        break;
    default:
        text_add(&g->out, "(");
        write_scalar(g, depth - 1);
        text_add(&g->out, pick(g, 2) ? " + " : " * ");
        write_scalar(g, depth - 1);
        text_add(&g->out, ")");
    }
}

/* Values stay within a few units, so that errors do not grow. */
static void write_tile(generator *g, int depth)
{
    static const char *const functions[] = {"tanh", "sigmoid", "sin", "cos", "relu", "erf", "silu", "abs"};
    switch (pick(g, depth > 0 ? 9 : 2)) {
    case 0: write_load(g); break;
    case 1:
        if (g->tiles)
            text_print(&g->out, "t%d", pick(g, g->tiles));
        else
            write_load(g);
        break;
    case 2:
    case 3:
        text_print(&g->out, "%s(", functions[pick(g, COUNT(functions))]);
        write_tile(g, depth - 1);
        text_add(&g->out, ")");
        break;
    case 4:
    case 5: {
        static const char *const joins[] = {" + ", " - ", " * "};
        text_add(&g->out, "(");
        write_tile(g, depth - 1);
        text_add(&g->out, joins[pick(g, 3)]);
        write_tile(g, depth - 1);
        text_add(&g->out, ") * 0.5");
        break;
    }
    case 6:
        text_add(&g->out, pick(g, 2) ? "max(" : "min(");
        write_tile(g, depth - 1);
        text_add(&g->out, ", ");
        write_scalar(g, depth - 1);
        text_add(&g->out, ")");
        break;
    case 7:
        text_add(&g->out, "where(");
        write_condition(g);
        text_add(&g->out, ", ");
        write_tile(g, depth - 1);
        text_add(&g->out, ", ");
        write_tile(g, depth - 1);
        text_add(&g->out, ")");
        break;
    default:
        text_add(&g->out, "(");
        write_tile(g, depth - 1);
        text_add(&g->out, " - ");
        write_scalar(g, depth - 1);
        text_add(&g->out, ")");
    }
}

static void write_statements(generator *g)
{
    for (int n = 2 + pick(g, 4); n > 0; n--) {
        switch (pick(g, 7)) {
        case 0:
        case 1:
        case 2:
            text_print(&g->out, "    tile float t%d = ", g->tiles);
            write_tile(g, 3);
            text_add(&g->out, ";\n");
            g->tiles++;
            break;
        case 3:
            text_print(&g->out, "    float s%d = ", g->scalars);
            write_scalar(g, 3);
            text_add(&g->out, ";\n");
            g->scalars++;
            break;
        case 4:
            text_print(&g->out, "    tile float t%d = fill(keep(", g->tiles);
            write_tile(g, 1);
            text_add(&g->out, ", ");
            write_condition(g);
            text_add(&g->out, "), 0.25);\n");
            g->tiles++;
            break;
        case 5: { /* a carried tile and a carried scalar */
            int t = g->tiles++, s = g->scalars++;
            text_print(&g->out, "    tile float t%d%s = ", t, g->block ? "[BM][BN]" : "");
            g->tiles--;
            g->scalars--;
            write_tile(g, 1);
            g->tiles++;
            g->scalars++;
            text_print(&g->out,
                       ";\n    float s%d = 0.5;\n    for (int k%d = 0; k%d < %d; k%d++) {\n        t%d = tanh(t%d + ",
                       s, s, s, 1 + pick(g, 4), s, t, t);
            write_tile(g, 1);
            text_print(&g->out, ");\n        if (k%d %% 2 == 0) s%d = tanh(s%d + max(t%d) * 0.1);\n    }\n", s, s, s,
                       t);
            break;
        }
        default:
            if (g->block) {
                text_print(&g->out, "    tile float t%d = dot(%s) * 0.05;\n", g->tiles,
                           pick(g, 2) ? "a[i : BM][0 : 7], transpose(a[j : BN][0 : 7])"
                                      : "a[i : BM][0 : 7], tanh(transpose(a[j : BN][0 : 7]))");
            } else {
                text_print(&g->out, "    tile float t%d = tanh(%s(", g->tiles, pick(g, 2) ? "cumsum" : "cummax");
                write_tile(g, 1);
                text_add(&g->out, ") * 0.1);\n");
            }
            g->tiles++;
        }
    }
}

static void write_program(generator *g)
{
    g->block = pick(g, 2);
    text_add(&g->out, "kernel random(in float a[rows][cols], in float b[cols], in i32 c[rows][cols], out float "
                      "y[rows][cols], out float z[m][k]");
    if (g->block) {
        static const int sizes[] = {1, 3, 4, 8, 16, 20};
        text_print(&g->out,
                   ",\n              const int BM = %d, const int BN = %d, int m = cdiv(rows, BM), int k = cdiv(cols, "
                   "BN))\n    launch (m, k)\n{\n    int i = program(0) * BM, j = program(1) * BN;\n",
                   sizes[pick(g, 4)], sizes[pick(g, 6)]);
    } else {
        text_add(&g->out, ",\n              int m = rows, int k = 1)\n    launch (rows)\n{\n    int r = program(0);\n");
    }
    write_statements(g);
    text_print(&g->out, "    y%s = fill(like(y%s, 0.0), 0.0);\n    y%s = ", g->block ? "[i : BM][j : BN]" : "[r][:]",
               g->block ? "[i : BM][j : BN]" : "[r][:]", g->block ? "[i : BM][j : BN]" : "[r][:]");
    write_tile(g, 3);
    text_print(&g->out, ";\n    z[program(0)]%s = ", g->block ? "[program(1)]" : "[0]");
    write_scalar(g, 3);
    text_add(&g->out, ";\n}\n");
}

static bool close_enough(const qn_array *expected, const qn_array *actual, double *worst)
{
    int64_t count = expected->extents[0] * expected->extents[1];
    const float *e = expected->data, *a = actual->data;
    *worst = 0;
    for (int64_t i = 0; i < count; i++) {
        double difference = fabs((double)e[i] - a[i]);
        if (isnan(e[i]) != isnan(a[i])) return false;
        if (difference > *worst) *worst = difference;
    }
    return *worst <= 2e-4;
}

static bool run_seed(qn_context *context, const char *device, uint64_t seed)
{
    generator g = {.state = seed * 0x9e3779b97f4a7c15u + 12345};
    for (int i = 0; i < 8; i++) pick(&g, 2);
    write_program(&g);
    qn_error error;
    qn_module *module = NULL;
    bool good = qn_module_load_text(context, "random.qn", text_get(&g.out), &module, &error) == QN_OK;
    static const int64_t sizes[][2] = {{1, 1}, {3, 5}, {4, 16}, {7, 33}};
    for (int s = 0; good && s < COUNT(sizes); s++) {
        int64_t rows = sizes[s][0], columns = sizes[s][1];
        float a[7 * 33], b[33];
        int32_t c[7 * 33];
        for (int i = 0; i < 7 * 33; i++) a[i] = (float)(pick(&g, 2001) - 1000) / 700, c[i] = pick(&g, 9) - 4;
        for (int i = 0; i < 33; i++) b[i] = (float)(pick(&g, 2001) - 1000) / 700;
        qn_call *calls[2] = {NULL, NULL};
        for (int d = 0; good && d < 2; d++) {
            int64_t extents[2] = {rows, columns};
            good = qn_call_new(module, "random", &calls[d], &error) == QN_OK &&
                   qn_call_set_memory(calls[d], "a", a, QN_F32, 2, extents, NULL, &error) == QN_OK &&
                   qn_call_set_memory(calls[d], "b", b, QN_F32, 1, &columns, NULL, &error) == QN_OK &&
                   qn_call_set_memory(calls[d], "c", c, QN_I32, 2, extents, NULL, &error) == QN_OK &&
                   qn_call_run(calls[d], d ? device : "ref", &error) == QN_OK;
        }
        for (int k = 0; good && k < 2; k++) {
            qn_array expected, actual;
            double worst = 0;
            good = qn_call_get(calls[0], k ? "z" : "y", &expected, &error) == QN_OK &&
                   qn_call_get(calls[1], k ? "z" : "y", &actual, &error) == QN_OK;
            if (good && !close_enough(&expected, &actual, &worst)) {
                good = false;
                error_set(&error, QN_FINDING, "%s differs by %g at %lld x %lld", k ? "z" : "y", worst, (long long)rows,
                          (long long)columns);
            }
        }
        qn_call_free(calls[0]);
        qn_call_free(calls[1]);
    }
    if (!good) printf("seed %llu: %s\n%s", (unsigned long long)seed, error.message, text_get(&g.out));
    qn_module_free(module);
    text_free(&g.out);
    return good;
}

TEST(random_programs_agree)
{
    qn_context *context;
    qn_error error;
    EXPECT(qn_context_open(NULL, &context, &error) == QN_OK);
    const char *seed_words = getenv("QUERN_RANDOM_SEED");
    int count = count_from("QUERN_RANDOM", "random programs", 60), failures = 0;
    uint64_t first = seed_words ? strtoull(seed_words, NULL, 10) : 1;
    const char *device = getenv("QUERN_TEST_DEVICE") ? getenv("QUERN_TEST_DEVICE") : "cpu";
    for (int i = 0; i < count && failures < 3; i++)
        if (!run_seed(context, device, first + (uint64_t)i)) failures++;
    EXPECT(failures == 0 && count > 0);
    printf("note: random: %d programs on %s against ref\n", count, device);
    qn_context_close(context);
}

TEST(random_programs_agree_on_emu)
{
    qn_context *context;
    qn_error error;
    EXPECT(qn_context_open(NULL, &context, &error) == QN_OK);
    const char *seed_words = getenv("QUERN_RANDOM_SEED");
    int count = count_from("QUERN_RANDOM_EMU", "random programs", 12), failures = 0, slot;
    uint64_t first = seed_words ? strtoull(seed_words, NULL, 10) : 501;
    EXPECT(context_slot(context, "emu", &slot, &error) == QN_OK);
    context->slots[slot].driver->set_checked(context->slots[slot].device, true);
    context->slots[slot].checked = true;
    for (int i = 0; i < count && failures < 3; i++)
        if (!run_seed(context, "emu", first + (uint64_t)i)) failures++;
    EXPECT(failures == 0);
    printf("note: random: %d programs on the checked emu against ref\n", count);
    qn_context_close(context);
}

TEST_MAIN(CASE(random_programs_agree), CASE(random_programs_agree_on_emu))
