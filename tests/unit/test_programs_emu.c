/*
 * The programs of tests/hazards, tests/programs and kernels/ on the checked `emu`: every tile kernel at some of the sizes
 * and types that `check` would choose, its CUDA text executed, against `ref`, without a finding. Then the proof that it is the text that runs: one operator of it
 * is changed, and the results no longer agree. Then asserts and prints.
 * SPDX-License-Identifier: MIT
 */
#include "batch.h"
#include "run/workbench/check.h"
#include "share.h"

#include <dirent.h>

enum { MOST_CASES = 3 }; /* of a kernel: each may compile another variant */

typedef struct job {
    qn_call *call, *reference;
    batch_kernel *kernel;
    char name[200];
} job;

static qn_context *context;
static batch kernels;
static qn_module *modules[64];
static int module_count;
static arena *memory;
static job jobs[1024];
static int job_count, compared, met;
static text printed;

static qn_call *prepare(const kernel_entry *entry, const check_case *c, qn_error *error)
{
    qn_call *call = NULL;
    qn_status status = qn_call_new(entry->module, entry->name, &call, error);
    for (int i = 0; i < c->count && status == QN_OK; i++)
        status = qn_call_set_text(call, c->names[i], c->values[i], error);
    if (status == QN_OK) status = qn_call_generate(call, 5, error);
    if (status == QN_OK) return call;
    qn_call_free(call);
    return NULL;
}

/* Sizes that the kernel itself refuses are not counted. */
static bool is_refusal(const qn_error *error)
{
    return error->status == QN_BAD_CALL || error->status == QN_BAD_SOURCE;
}

static void add_kernel(const kernel_entry *entry)
{
    check_cases cases = {0};
    qn_settings nothing = {0};
    check_choose(entry, &nothing, 1, memory, &cases);
    int added = 0;
    for (int i = 0; i < cases.count && added < MOST_CASES; i++) {
        const check_case *c = &cases.items[i];
        if (!c->on_devices || c->empty) continue;
        qn_error error;
        CHECK(job_count < COUNT(jobs));
        job *j = &jobs[job_count];
        *j = (job){.call = prepare(entry, c, &error)};
        if (j->call && call_bind(j->call, kernels.slot, false, &error) == QN_OK)
            j->kernel = batch_add(&kernels, j->call, &error);
        if (j->kernel) j->reference = prepare(entry, c, &error);
        text words = {0};
        check_describe(c, &words);
        snprintf(j->name, sizeof(j->name), "%s with %s", entry->name, text_get(&words));
        text_free(&words);
        if (j->reference) {
            job_count++;
            added++;
            continue;
        }
        qn_call_free(j->call);
        if (is_refusal(&error)) continue;
        printf("%s: %s\n", j->name, error.message);
        test_fail(__FILE__, __LINE__, "a kernel becomes text");
    }
}

static void add_file(const char *path)
{
    qn_error error;
    qn_module *m;
    if (qn_module_load_file(context, path, &m, &error) != QN_OK) {
        printf("%s\n", error.message);
        test_fail(__FILE__, __LINE__, "qn_module_load_file");
        return;
    }
    modules[module_count++] = m;
    for (int i = 0; i < m->kernel_count; i++)
        if (m->kernels[i].item->kind == AST_KERNEL && met++ % share_of("kernels on emu") == 0)
            add_kernel(&m->kernels[i]);
}

static void compare_job(const job *j)
{
    const kernel_entry *entry = j->call->kernel;
    for (int i = 0; i < entry->param_count; i++) {
        if (entry->params[i].kind != PARAM_OUT && entry->params[i].kind != PARAM_INOUT) continue;
        const array_view *actual = &j->call->arguments[i].view, *expected = &j->reference->arguments[i].view;
        double relative, absolute;
        tolerance_default(expected->elem, &relative, &absolute);
        comparison c = arrays_compare(actual, expected, 4 * relative, 4 * absolute);
        compared++;
        if (!c.wrong) continue;
        printf("%s: %s: element %lld is %.9g, ref has %.9g; %lld of %lld differ\n", j->name, entry->params[i].name,
               (long long)c.first, c.actual, c.expected, (long long)c.wrong, (long long)c.count);
        test_fail(__FILE__, __LINE__, "emu agrees with ref");
    }
}

static void run_jobs(void)
{
    for (int i = 0; i < job_count; i++) {
        job *j = &jobs[i];
        qn_error error;
        qn_status status = qn_call_run(j->reference, "ref", &error);
        if (status == QN_OK || status == QN_FINDING) status = batch_launch(&kernels, j->kernel, j->call, &error);
        if (status == QN_OK) {
            compare_job(j);
        } else {
            printf("%s: %s\n", j->name, error.message);
            test_fail(__FILE__, __LINE__, "it runs on emu");
        }
        qn_call_free(j->call);
        qn_call_free(j->reference);
    }
    job_count = 0;
}

static void run_folder(const char *folder)
{
    char path[512];
    struct dirent **list;
    snprintf(path, sizeof(path), "%s/%s", QUERN_ROOT, folder);
    int count = scandir(path, &list, NULL, alphasort);
    EXPECT(count > 3);
    memory = arena_new();
    batch_check(&kernels, true);
    for (int i = 0; i < count; i++) {
        const char *dot = strrchr(list[i]->d_name, '.');
        if (dot && !strcmp(dot, ".qn")) {
            snprintf(path, sizeof(path), "%s/%s/%s", QUERN_ROOT, folder, list[i]->d_name);
            add_file(path);
        }
        free(list[i]);
    }
    if (count > 0) free(list);
    EXPECT(batch_build(&kernels));
    run_jobs();
    batch_clear(&kernels);
    batch_check(&kernels, false);
    for (int i = 0; i < module_count; i++) qn_module_free(modules[i]);
    arena_free(memory);
    module_count = 0;
}

/* Elements that fall to different threads, and loops that each element leaves at its own trip. */
TEST(hazards)
{
    run_folder("tests/hazards");
    EXPECT(compared > 80 / share_of("kernels on emu"));
}

TEST(programs)
{
    run_folder("tests/programs");
}

TEST(kernels_of_the_folder)
{
    run_folder("kernels");
    printf("note: programs: %d outputs on emu against ref\n", compared);
    EXPECT(compared > 300 / share_of("kernels on emu"));
}

/* Rows for every kind of team: lanes of a warp, a block, a cluster of blocks, the whole grid, and rows that no team
 * can hold. `word`: a function of the prelude that shows that this is what ran. */
TEST(long_rows)
{
    static const struct {
        int64_t columns;
        const char *word;
    } rows[] = {{17, "lanes_fold"},
                {1000, NULL},
                {16384, "block_fold"},
                {98304, "cluster_barrier("},
                {262144, "cluster_barrier("},
                {524288, "grid_barrier("},
                {100003, NULL}};
    static const char source[] = "kernel soft(in float x[rows][cols], out float y[rows][cols]) launch (rows)\n"
                                 "{\n"
                                 "    int r = program(0);\n"
                                 "    tile float v = x[r][:];\n"
                                 "    tile float e = exp(v - max(v));\n"
                                 "    y[r][:] = e / sum(e);\n"
                                 "}\n";
    qn_error error;
    EXPECT(qn_module_load_text(context, "long.qn", source, &modules[0], &error) == QN_OK);
    for (int i = 0; i < COUNT(rows); i++) {
        job *j = &jobs[i];
        *j = (job){0};
        snprintf(j->name, sizeof(j->name), "a row of %lld", (long long)rows[i].columns);
        qn_call **calls[] = {&j->call, &j->reference};
        for (int c = 0; c < 2; c++) {
            CHECK(qn_call_new(modules[0], "soft", calls[c], &error) == QN_OK);
            EXPECT(qn_call_set_int(*calls[c], "rows", 2, &error) == QN_OK &&
                   qn_call_set_int(*calls[c], "cols", rows[i].columns, &error) == QN_OK &&
                   qn_call_generate(*calls[c], 3, &error) == QN_OK);
        }
        EXPECT(call_bind(j->call, kernels.slot, false, &error) == QN_OK);
        j->kernel = batch_add(&kernels, j->call, &error);
        CHECK(j->kernel);
        if (rows[i].word && !strstr(text_get(&j->kernel->source), rows[i].word)) {
            printf("%s: its text has no %s\n", j->name, rows[i].word);
            test_fail(__FILE__, __LINE__, "the team is the expected one");
        }
    }
    job_count = COUNT(rows);
    EXPECT(batch_build(&kernels));
    run_jobs();
    batch_clear(&kernels);
    qn_module_free(modules[0]);
}

/* ---- it is the text that runs ---- */

/* y = x * b - 3 and its maximum through the driver, from the text as it is or with one operator changed. */
static bool agrees_with_text(const char *from, const char *to)
{
    static const char source[] = "kernel line(in float x[n], in float b[n], out float y[n], out float s[1])\n"
                                 "    launch (1) { tile float t = x[:] * b[:] - 3; y[:] = t; s[0] = max(t); }\n";
    qn_module *m;
    qn_call *call;
    qn_error error;
    float x[37], b[37], most = -INFINITY;
    int64_t extent = COUNT(x);
    for (int i = 0; i < COUNT(x); i++) x[i] = (float)i, b[i] = (float)(i % 5) + 2;
    CHECK(qn_module_load_text(context, "line.qn", source, &m, &error) == QN_OK);
    CHECK(qn_call_new(m, "line", &call, &error) == QN_OK);
    CHECK(qn_call_set_memory(call, "x", x, QN_F32, 1, &extent, NULL, &error) == QN_OK);
    CHECK(qn_call_set_memory(call, "b", b, QN_F32, 1, &extent, NULL, &error) == QN_OK);
    CHECK(call_bind(call, kernels.slot, false, &error) == QN_OK);
    batch_kernel *k = batch_add(&kernels, call, &error);
    CHECK(k);
    /* Behind the comment with the source's line: what stands before has operators too. */
    char *body = strstr(k->source.data, "max(t); } */"), *at = body ? strstr(body, from) : NULL;
    EXPECT(at != NULL);
    if (at) memcpy(at, to, strlen(to));
    bool good = batch_build(&kernels) && batch_launch(&kernels, k, call, &error) == QN_OK;
    EXPECT(good);
    const float *y = call->arguments[2].view.data, *top = call->arguments[3].view.data;
    for (int i = 0; i < COUNT(x) && good; i++) {
        good = y[i] == x[i] * b[i] - 3;
        most = fmaxf(most, x[i] * b[i] - 3);
    }
    good = good && top[0] == most;
    qn_call_free(call);
    batch_clear(&kernels);
    qn_module_free(m);
    return good;
}

TEST(a_changed_operator_is_seen)
{
    EXPECT(agrees_with_text(" - 3.0f", " - 3.0f"));
    EXPECT(!agrees_with_text(" - 3.0f", " + 3.0f"));
    EXPECT(!agrees_with_text("[v] * v", "[v] + v"));
    EXPECT(!agrees_with_text("i0 + v < n", "i0 + v > n"));
}

/* Without the barriers of its text a kernel is told with the lines of both accesses, whatever pass they went to. */
TEST(a_missing_barrier_is_seen)
{
    static const char source[] =
        "kernel back(in float a[n], out float y[n], scratch float s[n], out float z[n]) launch (1)\n"
        "{\n"
        "    y[:] = 0;\n"
        "    s[:] = a[:] * 2;\n"
        "    z[:] = s[n - 1 : n : -1];\n"
        "    y[n - 1 : n : -1] = a[:];\n"
        "}\n";
    qn_module *m;
    qn_call *call;
    qn_error error;
    CHECK(qn_module_load_text(context, "race.qn", source, &m, &error) == QN_OK);
    CHECK(qn_call_new(m, "back", &call, &error) == QN_OK);
    CHECK(qn_call_set_int(call, "n", 100, &error) == QN_OK && qn_call_generate(call, 3, &error) == QN_OK);
    CHECK(call_bind(call, kernels.slot, false, &error) == QN_OK);
    batch_check(&kernels, true);
    batch_kernel *k = batch_add(&kernels, call, &error);
    CHECK(k);
    char *body = strstr(k->source.data, "__global__");
    int barriers = 0;
    static const char *const words[] = {"__syncthreads();", "__syncwarp(team_mask);"};
    for (int i = 0; i < COUNT(words); i++)
        for (char *at = body; at && (at = strstr(at, words[i])); barriers++) memset(at, ' ', strlen(words[i]));
    EXPECT(barriers == 1);
    EXPECT(batch_build(&kernels) && batch_launch(&kernels, k, call, &error) == QN_FINDING);
    EXPECT(strstr(error.message, "race.qn:3: global-memory race: write of") ||
           strstr(error.message, "race: race.qn:3"));
    EXPECT(strstr(error.message, "race.qn:4") && strstr(error.message, "race.qn:5") &&
           strstr(error.message, "race.qn:6"));
    EXPECT(!strstr(error.message, "race.qn:7"));
    qn_call_free(call);
    batch_clear(&kernels);
    batch_check(&kernels, false);
    qn_module_free(m);
}

/* ---- effects ---- */

static void collect(void *user, const char *line)
{
    (void)user;
    text_print(&printed, "%s\n", line);
}

static qn_status run_text(qn_context *where, const char *source, const char *kernel, int64_t n, qn_error *error)
{
    qn_module *m;
    qn_call *call = NULL;
    qn_status status = qn_module_load_text(where, "effects.qn", source, &m, error);
    if (status != QN_OK) return status;
    status = qn_call_new(m, kernel, &call, error);
    if (status == QN_OK) status = qn_call_set_int(call, "n", n, error);
    if (status == QN_OK) status = qn_call_run(call, "emu", error);
    qn_call_free(call);
    qn_module_free(m);
    return status;
}

TEST(asserts_and_prints)
{
    qn_context *own;
    qn_error error;
    qn_context_options options = {.print = collect};
    EXPECT(qn_context_open(&options, &own, &error) == QN_OK);
    static const char source[] = "kernel claims(out float y[n]) launch (n)\n"
                                 "{\n"
                                 "    int i = program(0);\n"
                                 "    assert(i < 3, \"too many\");\n"
                                 "    y[i] = 1;\n"
                                 "}\n"
                                 "kernel tells(out float y[n]) launch (n)\n"
                                 "{\n"
                                 "    int i = program(0);\n"
                                 "    print(\"i = {}\", i);\n"
                                 "    y[i] = 1;\n"
                                 "}\n";
    EXPECT(run_text(own, source, "claims", 3, &error) == QN_OK);
    EXPECT(run_text(own, source, "claims", 4, &error) == QN_FAILED);
    EXPECT(strstr(error.message, "effects.qn:4:") && strstr(error.message, "E507") &&
           strstr(error.message, "program 3") && strstr(error.message, "too many"));
    text_clear(&printed);
    EXPECT(run_text(own, source, "tells", 2, &error) == QN_OK);
    EXPECT_TEXT(text_get(&printed), "tells (program 0), line 10: i = 0\ntells (program 1), line 10: i = 1\n");
    text_free(&printed);
    qn_context_close(own);
}

/* Positions of a pass that is no loop are counted where there are none, too: no division by the extent. */
TEST(empty_axes)
{
    qn_context *own;
    qn_error error;
    EXPECT(qn_context_open(NULL, &own, &error) == QN_OK);
    static const char source[] = "kernel scanned(out bf16 y[31][n], out i64 at[n]) launch (1)\n"
                                 "{\n"
                                 "    tile bf16 v = cummin(bf16((iota(31)[:][] * 3 + iota(n)[][:]) % 13), axis = 1);\n"
                                 "    y[:][:] = v;\n"
                                 "    at[:] = argmin(v, axis = 0);\n"
                                 "}\n";
    EXPECT(run_text(own, source, "scanned", 0, &error) == QN_OK);
    EXPECT(run_text(own, source, "scanned", 5, &error) == QN_OK);
    qn_context_close(own);
}

TEST(open_context)
{
    qn_error error;
    EXPECT(qn_context_open(NULL, &context, &error) == QN_OK);
    EXPECT(batch_open(&kernels, context));
}

TEST(close_context)
{
    batch_close(&kernels);
    qn_context_close(context);
}

TEST_MAIN(CASE(open_context), CASE(hazards), CASE(programs), CASE(kernels_of_the_folder), CASE(long_rows),
          CASE(a_changed_operator_is_seen), CASE(a_missing_barrier_is_seen), CASE(asserts_and_prints), CASE(empty_axes),
          CASE(close_context))
