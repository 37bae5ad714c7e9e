/*
 * Random programs for barriers: one program stores to and loads from its arrays by slices, backwards, by strides,
 * gathers, rows and columns, in loops, branches and functions that each element leaves at its own trip. Their CUDA text
 * runs on `emu` in the checked mode and must agree with `ref` without a finding. Numbers are small integers, so that
 * every order of a sum gives the same. QUERN_RANDOM=COUNT runs more, QUERN_RANDOM_SEED=N starts elsewhere, QUERN_SECONDS=N
 * goes on for so long.
 * SPDX-License-Identifier: MIT
 */
#include "batch.h"
#include "run/workbench/check.h"
#include "share.h"

enum { AT_ONCE = 24, USUAL_COUNT = 24 };

typedef struct generator {
    uint64_t state;
    text out;
    int tiles, loops, depth;
} generator;

typedef struct program_of { /* one random program at one size */
    qn_module *module;
    qn_call *call, *reference;
    batch_kernel *kernel;
    uint64_t seed;
    int64_t n;
} program_of;

static qn_context *context;
static batch kernels;
static program_of programs[2 * AT_ONCE];
static int program_count;
static text sources[AT_ONCE];

static int pick(generator *g, int count)
{
    g->state = g->state * 6364136223846793005u + 1442695040888963407u;
    return (int)((g->state >> 33) % (uint64_t)count);
}

#define PICK(g, list) list[pick(g, COUNT(list))]

static const char *array_of(generator *g)
{
    static const char *const arrays[] = {"x", "y", "s"};
    return PICK(g, arrays);
}

static void write_row(generator *g, int depth);

static void write_number(generator *g)
{
    switch (pick(g, 5)) {
    case 0: text_print(&g->out, "%d", pick(g, 7) - 3); break;
    case 1: text_print(&g->out, "%s[%d]", array_of(g), pick(g, 8)); break;
    case 2: text_print(&g->out, "max(%s[:])", array_of(g)); break;
    case 3: text_print(&g->out, "clamp(sum(%s[0 : n : 2]), -9, 9)", array_of(g)); break;
    default: text_print(&g->out, "g[%d][%d]", pick(g, 12), pick(g, 12));
    }
}

/* A tile of n elements, all of which exist. */
static void write_row(generator *g, int depth)
{
    switch (pick(g, depth > 0 ? 11 : 6)) {
    case 0: text_print(&g->out, "%s[:]", array_of(g)); break;
    case 1: text_print(&g->out, "%s[n - 1 : n : -1]", array_of(g)); break;
    case 2: text_print(&g->out, "fill(%s[%d : n], 1.0)", array_of(g), pick(g, 9) - 4); break;
    case 3: text_print(&g->out, "fill(%s[%d : n : %d], 2.0)", array_of(g), pick(g, 3), 2 + pick(g, 2)); break;
    case 4: text_print(&g->out, "%s[(iota(n) * %d + %d) %% n]", array_of(g), 1 + pick(g, 5), pick(g, 7)); break;
    case 5:
        if (g->tiles)
            text_print(&g->out, "t%d", pick(g, g->tiles));
        else
            text_add(&g->out, "x[:]");
        break;
    case 6:
    case 7:
        text_add(&g->out, "(");
        write_row(g, depth - 1);
        text_add(&g->out, pick(g, 2) ? " + " : " - ");
        write_row(g, depth - 1);
        text_add(&g->out, ")");
        break;
    case 8:
        text_add(&g->out, "(");
        write_row(g, depth - 1);
        text_add(&g->out, " + ");
        write_number(g);
        text_add(&g->out, ")");
        break;
    case 9:
        text_add(&g->out, "cummax(");
        write_row(g, depth - 1);
        text_add(&g->out, ")");
        break;
    default:
        text_print(&g->out, "float(%s(i32(", pick(g, 2) ? "halvings" : "steps");
        write_row(g, depth - 1);
        text_add(&g->out, ")))");
    }
}

static void indent(generator *g)
{
    for (int i = 0; i <= g->depth; i++) text_add(&g->out, "    ");
}

static void write_store(generator *g)
{
    indent(g);
    text_add(&g->out, pick(g, 3) ? array_of(g) : "o"); /* o: is only ever written */
    switch (pick(g, 8)) {
    case 0:
    case 1: text_add(&g->out, "[:]"); break;
    case 2: text_add(&g->out, "[n - 1 : n : -1]"); break;
    case 3: text_print(&g->out, "[%d : n]", pick(g, 9) - 4); break;
    case 4: text_print(&g->out, "[%d : n : %d]", pick(g, 2), 2 + pick(g, 2)); break;
    case 5: text_print(&g->out, "[(iota(n) + %d) %% n]", pick(g, 9)); break;
    case 6: text_add(&g->out, "[n - 1 - iota(n)]"); break;
    default:
        text_print(&g->out, "[%d] = clamp(", pick(g, 8));
        write_number(g);
        text_add(&g->out, " + 1, -50, 50);\n");
        return;
    }
    text_add(&g->out, " = clamp(");
    write_row(g, 2);
    text_add(&g->out, ", -50, 50);\n");
}

static void write_square(generator *g)
{
    static const char *const list[] = {
        "g[:][:] = transpose(g[:][:]);",
        "g[:][:] = clamp(g[:][:] - max(g[:][:], axis = 1), -50, 50);",
        "g[:][:] = clamp(g[:][:] + min(g[:][:], axis = 0), -50, 50);",
        "g[3][:] = g[:][4];",
        "g[:][5] = clamp(g[2][:] + 1, -50, 50);",
        "g[0 : 12 : 2][:] = clamp(g[0 : 12 : 2][:] + 1, -50, 50);",
        "g[:][11 : 12 : -1] = g[:][:];",
        "r[:][:] = clamp(sum(g[:][:], axis = 1) + r[:][:], -50, 50);",
        "g[:][:] = clamp(g[:][:] + r[:][:], -50, 50);",
        "g[0 : 8][0 : 8] = clamp(dot(g[4 : 8][0 : 8], g[0 : 8][4 : 8]), -50, 50);",
    };
    indent(g);
    text_print(&g->out, "%s\n", PICK(g, list));
}

static void write_statements(generator *g, int count);

static void write_blocks(generator *g)
{
    int j = g->loops++, size = 4 << pick(g, 3), step = size / (1 + pick(g, 2));
    const char *to = array_of(g), *from = array_of(g);
    indent(g);
    text_print(
        &g->out,
        "for (int j%d = 0; j%d < n; j%d += %d) %s[j%d : %d] = clamp(fill(%s[j%d - %d : %d], 0.0) + 1, -50, 50);\n", j,
        j, j, step, to, j, size, from, j, pick(g, 3) * 4, size);
}

static void write_statements(generator *g, int count)
{
    int tiles = g->tiles;
    for (; count > 0; count--) {
        switch (pick(g, g->depth < 2 ? 12 : 7)) {
        case 0:
        case 1:
        case 2: write_store(g); break;
        case 3:
        case 4: write_square(g); break;
        case 5:
            indent(g);
            text_print(&g->out, "tile float t%d = ", g->tiles);
            write_row(g, 2);
            text_add(&g->out, ";\n");
            g->tiles++;
            break;
        case 6:
            if (pick(g, 2)) {
                write_blocks(g);
            } else {
                indent(g);
                text_print(&g->out, "atomic_add(%s[iota(n) / 2], 1.0);\n", array_of(g));
            }
            break;
        case 7:
        case 8: {
            int i = g->loops++;
            indent(g);
            text_print(&g->out, "for (int c%d = 0; c%d < %d; c%d++) {\n", i, i, 2 + pick(g, 3), i);
            g->depth++;
            write_statements(g, 1 + pick(g, 3));
            g->depth--;
            indent(g);
            text_add(&g->out, "}\n");
            break;
        }
        case 9:
        case 10:
            indent(g);
            text_add(&g->out, pick(g, 2) ? "if (k > 1) {\n" : "if (max(x[:]) > 2) {\n");
            g->depth++;
            write_statements(g, 1 + pick(g, 2));
            g->depth--;
            if (pick(g, 2)) {
                indent(g);
                text_add(&g->out, "} else {\n");
                g->depth++;
                write_statements(g, 1 + pick(g, 2));
                g->depth--;
            }
            indent(g);
            text_add(&g->out, "}\n");
            break;
        default: {
            int i = g->loops++;
            indent(g);
            text_print(&g->out, "int w%d = 0;\n", i);
            indent(g);
            text_print(&g->out, "while (w%d < 3 && min(%s[:]) < 40) {\n", i, array_of(g));
            g->depth++;
            write_statements(g, 1 + pick(g, 2));
            indent(g);
            text_print(&g->out, "w%d++;\n", i);
            g->depth--;
            indent(g);
            text_add(&g->out, "}\n");
        }
        }
    }
    g->tiles = tiles; /* those of this block are gone */
}

static void write_program(uint64_t seed, text *out)
{
    generator g = {.state = seed * 0x9e3779b97f4a7c15u + 4711};
    for (int i = 0; i < 8; i++) pick(&g, 2);
    text_add(&g.out,
             "int halvings(int x)\n{\n    int k = 0;\n    while (x > 1) { x = x / 2; k++; }\n    return k;\n}\n"
             "int steps(int x)\n{\n    int sum = 0;\n    for (int i = 0; i < x % 5; i++) sum += i;\n"
             "    return sum;\n}\n"
             "kernel random(inout float x[n], inout float y[n], scratch float s[n], inout float g[N][N],\n"
             "              inout float r[N][1], out float o[n] = 0, int k = 2, const int N = 12) launch (1)\n{\n"
             "    s[:] = x[:];\n");
    write_statements(&g, 4 + pick(&g, 5));
    text_add(&g.out, "    y[:] = y[:] + s[:];\n}\n");
    *out = g.out;
}

static qn_call *prepare(qn_module *m, int64_t n, qn_error *error)
{
    qn_call *call = NULL;
    if (qn_call_new(m, "random", &call, error) != QN_OK || qn_call_set_int(call, "n", n, error) != QN_OK ||
        qn_call_generate(call, 7, error) != QN_OK || call_bind(call, kernels.slot, false, error) != QN_OK) {
        qn_call_free(call);
        return NULL;
    }
    for (int i = 0; i < call->kernel->param_count; i++) {
        array_view *v = &call->arguments[i].view;
        if (call->kernel->params[i].kind != PARAM_INOUT) continue;
        int64_t count = 1;
        for (int axis = 0; axis < v->rank; axis++) count *= v->extents[axis];
        for (int64_t e = 0; e < count; e++) ((float *)v->data)[e] = (float)((e * 7 + i * 3) % 13 - 6);
    }
    return call;
}

static bool agree(const program_of *p)
{
    for (int i = 0; i < p->call->kernel->param_count; i++) {
        int kind = (int)p->call->kernel->params[i].kind;
        if (kind != PARAM_INOUT && kind != PARAM_OUT) continue;
        comparison c = arrays_compare(&p->call->arguments[i].view, &p->reference->arguments[i].view, 0, 0);
        if (!c.wrong) continue;
        printf("%s: element %lld is %g, ref has %g; %lld differ\n", p->call->kernel->params[i].name, (long long)c.first,
               c.actual, c.expected, (long long)c.wrong);
        return false;
    }
    return true;
}

/* AT_ONCE programs from this seed on, two sizes each. */
static int run_some(uint64_t first, int count)
{
    static const int64_t sizes[] = {8, 33, 64, 300, 1024, 100, 1500};
    int failures = 0;
    program_count = 0;
    batch_check(&kernels, true);
    for (int i = 0; i < count; i++) {
        uint64_t seed = first + (uint64_t)i;
        qn_module *m = NULL;
        qn_error error = {0};
        write_program(seed, &sources[i]);
        bool good = qn_module_load_text(context, "random.qn", text_get(&sources[i]), &m, &error) == QN_OK;
        for (int s = 0; s < 2 && good; s++) {
            program_of *p = &programs[program_count];
            *p =
                (program_of){.module = s ? NULL : m, .seed = seed, .n = sizes[(seed * 2 + (uint64_t)s) % COUNT(sizes)]};
            p->call = prepare(m, p->n, &error);
            p->reference = p->call ? prepare(m, p->n, &error) : NULL;
            p->kernel = p->reference ? batch_add(&kernels, p->call, &error) : NULL;
            good = p->kernel != NULL;
            if (good) program_count++;
        }
        if (good) continue;
        printf("seed %llu: %s\n%s", (unsigned long long)seed, error.message, text_get(&sources[i]));
        failures++;
    }
    EXPECT(batch_build(&kernels));
    for (int i = 0; i < program_count; i++) {
        program_of *p = &programs[i];
        qn_error error = {0};
        qn_status status = qn_call_run(p->reference, "ref", &error);
        if (status == QN_OK) status = batch_launch(&kernels, p->kernel, p->call, &error);
        if (status != QN_OK || !agree(p)) {
            printf("seed %llu, n = %lld: %s\n%s", (unsigned long long)p->seed, (long long)p->n, error.message,
                   text_get(&sources[p->seed - first]));
            failures++;
        }
    }
    for (int i = 0; i < program_count; i++) {
        qn_call_free(programs[i].call);
        qn_call_free(programs[i].reference);
    }
    batch_clear(&kernels);
    batch_check(&kernels, false);
    for (int i = 0; i < program_count; i++) qn_module_free(programs[i].module);
    for (int i = 0; i < count; i++) text_free(&sources[i]);
    return failures;
}

TEST(random_programs_in_the_checked_emu)
{
    qn_error error;
    const char *seed_words = getenv("QUERN_RANDOM_SEED"), *seconds_words = getenv("QUERN_SECONDS");
    int count = count_from("QUERN_RANDOM", "random programs", seconds_words ? INT32_MAX : USUAL_COUNT), done = 0;
    int failures = 0;
    uint64_t first = seed_words ? strtoull(seed_words, NULL, 10) : 1;
    int64_t end = seconds_words ? clock_now_ns() + atoi(seconds_words) * (int64_t)1000000000 : INT64_MAX;
    EXPECT(qn_context_open(NULL, &context, &error) == QN_OK);
    EXPECT(batch_open(&kernels, context));
    if (!getenv("QUERN_RANDOM") && !seconds_words) failures += run_some(200152, 1); /* a text that did not compile */
    while (done < count && failures < 3 && clock_now_ns() < end) {
        int some = MINIMUM(count - done, AT_ONCE);
        failures += run_some(first + (uint64_t)done, some);
        done += some;
    }
    EXPECT(failures == 0 && done > 0);
    printf("note: random: %d programs at two sizes on the checked emu against ref\n", done);
    batch_close(&kernels);
    qn_context_close(context);
}

TEST_MAIN(CASE(random_programs_in_the_checked_emu))
