/*
 * The matrix of tests/cases.def on `emu`: the CUDA text of every case, executed on the CPU, against `ref`. Shapes and
 * views as in test_matrix.c, but small: no row is so long that only speed would be tested. Two types run in the checked
 * mode, without a finding; with QUERN_CHECKED all do.
 * Prints how many cases ran.
 * SPDX-License-Identifier: MIT
 */
#include "batch.h"
#include "matrix.h"

static const shape shapes[] = {{0, 4, true},   {4, 0, false}, {1, 1, false},    {1, 7, true},    {3, 16, false},
                               {2, 17, false}, {5, 33, true}, {1, 1000, false}, {11, 100, true}, {1, 5003, true}};

typedef struct group_of {
    qn_module *module;
    matrix_case cases[GROUP];
    int count;
    dtype type;
    char name[24];
    char *a[2], *b[2]; /* ordinary and special data */
    text source;
} group_of;

typedef struct job {
    group_of *group;
    qn_call *call;
    batch_kernel *kernel;
    int shape, view;
    bool special;
} job;

static qn_context *context;
static batch kernels;
static group_of groups[128];
static int group_count, serial;
static job *jobs;
static int job_count, job_capacity;

static qn_call *bound_call(group_of *g, int shape_number, int view, bool special)
{
    qn_error error;
    qn_call *call;
    shape s = shapes[shape_number];
    int64_t extents[2] = {s.rows, s.columns}, length = s.rows * s.columns;
    if (qn_call_new(g->module, g->name, &call, &error) != QN_OK) return NULL;
    if (g->cases[0].class == CLASS_OF_MAP) {
        bind(call, "a", g->a[special], g->type, 1, &length, views[view]);
        bind(call, "b", g->b[special], g->type, 1, &length, views[view]);
    } else {
        bind(call, "x", g->a[special], g->type, 2, extents, views[view]);
    }
    return call;
}

static void add_job(group_of *g, int shape_number, int view, bool special)
{
    qn_error error;
    qn_call *call = bound_call(g, shape_number, view, special);
    batch_kernel *k = NULL;
    if (call && call_bind(call, kernels.slot, false, &error) == QN_OK) k = batch_add(&kernels, call, &error);
    if (!k) {
        printf("on emu: %s\n%s", error.message, text_get(&g->source));
        test_fail(__FILE__, __LINE__, "a kernel becomes text");
        qn_call_free(call);
        return;
    }
    if (job_count == job_capacity) {
        job_capacity = job_capacity ? 2 * job_capacity : 256;
        jobs = realloc(jobs, sizeof(*jobs) * (size_t)job_capacity);
    }
    jobs[job_count++] =
        (job){.group = g, .call = call, .kernel = k, .shape = shape_number, .view = view, .special = special};
}

static void add_group(const matrix_case *const *group, int count, dtype t)
{
    qn_error error;
    CHECK(group_count < COUNT(groups));
    group_of *g = &groups[group_count++];
    *g = (group_of){.count = count, .type = t};
    for (int i = 0; i < count; i++) g->cases[i] = *group[i];
    snprintf(g->name, sizeof(g->name), "group%d", serial++);
    write_kernel(&g->source, g->name, group, count, t);
    if (qn_module_load_text(context, "group.qn", text_get(&g->source), &g->module, &error) != QN_OK) {
        printf("%s\n%s", error.message, text_get(&g->source));
        test_fail(__FILE__, __LINE__, "qn_module_load_text");
        return;
    }
    size_t most = 5100 * 4;
    for (int round = 0; round < 2; round++) {
        g->a[round] = aligned_alloc(64, most * 8);
        g->b[round] = aligned_alloc(64, most * 8);
        random_state = 7 + (uint64_t)t;
        fill(g->a[round], t, (int64_t)most, group[0]->low, group[0]->high, round == 1);
        fill(g->b[round], t, (int64_t)most, group[0]->low, group[0]->high, round == 1);
    }
    for (int round = 0; round < (dtype_is_float(t) ? 2 : 1); round++)
        for (int i = 0; i < COUNT(shapes); i++) {
            if (round && shapes[i].columns > 1000) continue;
            if (group[0]->class == CLASS_OF_ROW && !shapes[i].columns) continue;
            if (t != DT_F32 && !shapes[i].every_type) continue;
            for (int v = 0; v < COUNT(views); v++) {
                if (v && (round || (t != DT_F32 && t != DT_BF16) || shapes[i].columns > 1000)) continue;
                add_job(g, i, v, round == 1);
            }
        }
}

static void run_job(job *j)
{
    qn_error error;
    group_of *g = j->group;
    qn_call *reference = bound_call(g, j->shape, j->view, j->special);
    qn_status status = reference ? qn_call_run(reference, "ref", &error) : QN_FAILED;
    if (status == QN_OK || status == QN_FINDING) status = batch_launch(&kernels, j->kernel, j->call, &error);
    if (status == QN_OK) {
        for (int k = 0; k < g->count; k++)
            compare(reference, j->call, &g->cases[k], k, g->type, shapes[j->shape],
                    j->special ? "special values" : views[j->view].name);
    } else {
        printf("%s, %lld x %lld, %s: %s\n%s", dtypes[g->type].text, (long long)shapes[j->shape].rows,
               (long long)shapes[j->shape].columns, views[j->view].name, error.message, text_get(&g->source));
        test_fail(__FILE__, __LINE__, "it runs on emu");
    }
    qn_call_free(reference);
}

static void run_whole_type(dtype t)
{
    batch_check(&kernels, t == DT_BF16 || t == DT_I64 || getenv("QUERN_CHECKED"));
    run_type(t, add_group);
    EXPECT(batch_build(&kernels));
    for (int i = 0; i < job_count; i++) {
        run_job(&jobs[i]);
        qn_call_free(jobs[i].call);
    }
    batch_clear(&kernels);
    for (int i = 0; i < group_count; i++) {
        qn_module_free(groups[i].module);
        for (int round = 0; round < 2; round++) {
            free(groups[i].a[round]);
            free(groups[i].b[round]);
        }
        text_free(&groups[i].source);
    }
    job_count = group_count = 0;
}

TEST_EVERY_TYPE(run_whole_type)

TEST(open_context)
{
    qn_error error;
    EXPECT(qn_context_open(NULL, &context, &error) == QN_OK);
    EXPECT(batch_open(&kernels, context));
}

TEST(report)
{
    printf("note: matrix: %lld cases on emu against ref\n", (long long)matrix_compared);
    EXPECT(matrix_compared > 5000 / (2 * share_of("groups of operations")));
    batch_close(&kernels);
    free(jobs);
    qn_context_close(context);
}

TEST_MAIN(CASE(open_context), CASE(matrix_F32), CASE(matrix_F64), CASE(matrix_F16), CASE(matrix_BF16), CASE(matrix_I8),
          CASE(matrix_I16), CASE(matrix_I32), CASE(matrix_I64), CASE(matrix_U8), CASE(matrix_U16), CASE(matrix_U32),
          CASE(matrix_U64), CASE(report))
