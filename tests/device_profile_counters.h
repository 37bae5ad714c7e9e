/*
 * Counters, samples and marks of a GPU; a part of test_device_profile, which has the context and the fake driver.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_DEVICE_PROFILE_COUNTERS_H
#define QUERN_TESTS_DEVICE_PROFILE_COUNTERS_H

/* ---- counters ---- */

TEST(counters_of_a_gpu)
{
    qn_counters c;
    qn_call *call = twice_call();
    OK(qn_call_count(call, "cuda", &c, &error));
    EXPECT(c.launches == 2 && c.source && c.count > 20);
    /* Two kernels, the second with twice the values of the first: amounts add up, shares weigh by cycles elapsed. */
    EXPECT(qn_counters_find(&c, "DRAM read") == 3 * 4096 && strstr(c.source, "kernel by kernel"));
    EXPECT(qn_counters_find(&c, "L2 traffic") == 3 * 32 * 10); /* sectors of 32 bytes; the tenth metric */
    double mean = (1 * 1 + 2 * 2) / 3.0;
    EXPECT(fabs(qn_counters_find(&c, "compute throughput") - mean) < 1e-9);
    EXPECT(fabs(qn_counters_find(&c, "time") / (3 * 6 / (14 * mean) * 1e9) - 1) < 1e-9);
    EXPECT(!strcmp(c.items[0].name, "compute throughput") && !strcmp(c.items[1].name, "memory throughput"));
    EXPECT(isnan(qn_counters_find(&c, "stall: tensor pipe")) && isnan(qn_counters_find(&c, "no such counter")));
    for (int i = 0; i < c.count; i++) EXPECT(isnan(c.items[i].value) == (c.items[i].why != NULL));
    setenv("FAKE_CUPTI_RANGES", "none", 1); /* kernels are not found: around the launch, and said so */
    OK(qn_call_count(call, "cuda", &c, &error));
    EXPECT(qn_counters_find(&c, "DRAM read") == 4096 && strstr(c.source, "estimates"));
    EXPECT(qn_counters_find(&c, "time") == 7.0 / 14 * 1e9);
    unsetenv("FAKE_CUPTI_RANGES");
    setenv("FAKE_CUPTI_COUNTERS", "35", 1);
    EXPECT(qn_call_count(call, "cuda", &c, &error) == QN_NO_DEVICE);
    EXPECT(strstr(error.message, "CAP_SYS_ADMIN") && strstr(error.message, "NVreg_RestrictProfilingToAdminUsers"));
    unsetenv("FAKE_CUPTI_COUNTERS");
    EXPECT(qn_call_count(NULL, "cuda", &c, &error) == QN_BAD_CALL);
    qn_call_free(call);
}

/* The fake's binaries have no instructions to compare, so all samples are of no line. */
TEST(samples_of_stalls)
{
    qn_samples s;
    qn_call *call = twice_call();
    OK(qn_call_sample(call, "cuda", &s, &error));
    EXPECT(s.total == 100 && s.dropped == 2 && s.count == 1);
    EXPECT(s.count && s.items[0].line == 0 && !s.items[0].file && s.items[0].samples == 100);
    EXPECT(s.count && !strcmp(s.items[0].reason, "memory") && s.items[0].reason_samples == 75);
    EXPECT(qn_call_sample(call, "cpu", &s, &error) == QN_BAD_CALL && strstr(error.message, "on a GPU"));
    setenv("FAKE_CUPTI_COUNTERS", "35", 1);
    EXPECT(qn_call_sample(call, "cuda", &s, &error) == QN_NO_DEVICE && strstr(error.message, "CAP_SYS_ADMIN"));
    unsetenv("FAKE_CUPTI_COUNTERS");
    qn_call_free(call);
}

static void take_text(void *user, const char *words, size_t length)
{
    text_add_bytes(user, words, length);
}

/* A step that changes a variable: each kernel is counted once and the values are those of a run that nobody counts. */
static double trained(const char *device, bool counted, qn_counting **out)
{
    float start_of[600];
    double loss = 0;
    qn_tape *tape = NULL;
    qn_plan *plan = NULL;
    qn_counting *c = NULL;
    for (int i = 0; i < 600; i++) start_of[i] = (float)(i % 13) / 13;
    OK(qn_tape_new(context, device, &tape, &error));
    if (counted) OK(qn_counting_start(context, &c, &error));
    qn_tensor a = qn_variable(qn_from_memory(tape, start_of, QN_F32, QN_SHAPE(20, 30)));
    OK(qn_eval(tape, &a, 1, &error));
    OK(qn_capture_begin(tape, &error));
    qn_tensor b = qn_sum(qn_exp(a), QN_ALL, false);
    qn_assign(a, qn_sub(a, qn_mul_scalar(qn_softmax(a, 1), 0.5)));
    OK(qn_eval(tape, &b, 1, &error));
    OK(qn_capture_end(tape, &plan, &error));
    for (int i = 0; i < 4; i++) OK(qn_plan_replay(plan, &error));
    OK(qn_tensor_item(qn_sum(a, QN_ALL, false), &loss, &error));
    if (counted) OK(qn_counting_stop(c, &error));
    qn_plan_free(plan);
    qn_tape_free(tape);
    *out = c;
    return loss;
}

TEST(counters_of_a_program)
{
    static const char *const devices[] = {"cuda", "cpu"};
    for (int d = 0; d < 2; d++) {
        qn_counting *none = NULL, *c = NULL;
        setenv("FAKE_CUPTI_BEYOND", "yes", 1); /* shares of more than all */
        int sessions = fake_cupti_sessions();
        double alone = trained(devices[d], false, &none), loss = trained(devices[d], true, &c);
        unsetenv("FAKE_CUPTI_BEYOND");
        EXPECT(fake_cupti_sessions() - sessions == !d); /* one for all kernels: opening it takes longer than counting */
        EXPECT(alone == loss);
        EXPECT(qn_counting_count(c) >= 3);
        for (int i = 0; i < qn_counting_count(c); i++) {
            const qn_counted *one = qn_counting_get(c, i);
            EXPECT(one->counters.count > 5 && !strcmp(one->device, devices[d]) && one->source);
            EXPECT(one->source && strstr(one->source, "device_profile_counters.h:"));
            for (int k = 0; k < i; k++) {
                const qn_counted *other = qn_counting_get(c, k);
                EXPECT(strcmp(one->kernel, other->kernel) || strcmp(one->shapes, other->shapes));
            }
        }
        text words = {0}, json = {0};
        qn_counting_print(c, false, take_text, &words);
        qn_counting_print(c, true, take_text, &json);
        EXPECT(strstr(text_get(&words), "softmax") && strstr(text_get(&words), "its first launch with each shape"));
        EXPECT(d || (strstr(text_get(&words), "Compute") && strstr(text_get(&words), "Memory") &&
                     strstr(text_get(&words), "L1")));
        EXPECT(!!strstr(text_get(&words), "%*") == !d && !!strstr(text_get(&words), COUNTERS_BEYOND) == !d);
        EXPECT(strstr(text_get(&json), d ? "\"counter\": \"CPU time\"" : "\"counter\": \"compute throughput\""));
        text_free(&words);
        text_free(&json);
        EXPECT(!qn_counting_get(c, qn_counting_count(c)) && !qn_counting_get(NULL, 0));
        qn_counting_free(c);
    }
}

/* A function's kernels, its counters refused, and where its warps wait. */
TEST(counters_and_samples_of_a_function)
{
    static const char words[] = "tensor twice(float x[n]) { return 2 * x + 1; }\n";
    qn_module *functions = NULL;
    qn_call *call = NULL;
    qn_counting *c = NULL;
    int64_t n = N;
    OK(qn_module_load_text(context, "f.qn", words, &functions, &error));
    OK(qn_call_new(functions, "twice", &call, &error));
    OK(qn_call_set_memory(call, "x", x, QN_F32, 1, &n, NULL, &error));
    for (int i = 0; i < 4; i++) { /* planned, recorded, replayed */
        OK(qn_counting_start(context, &c, &error));
        EXPECT(qn_counting_start(context, &(qn_counting *){NULL}, &error) == QN_BAD_CALL);
        OK(qn_call_run(call, "cuda", &error));
        OK(qn_counting_stop(c, &error));
        int own = 0; /* recording also makes the state of random numbers */
        for (int k = 0; k < qn_counting_count(c); k++) {
            const qn_counted *one = qn_counting_get(c, k);
            own += one->source && strstr(one->source, "f.qn:1") &&
                   qn_counters_find(&one->counters, "DRAM read") == 3 * 4096;
        }
        EXPECT(own == 1);
        qn_counting_free(c);
    }
    setenv("FAKE_CUPTI_COUNTERS", "35", 1);
    OK(qn_counting_start(context, &c, &error));
    OK(qn_call_run(call, "cuda", &error));
    EXPECT(qn_counting_stop(c, &error) == QN_NO_DEVICE && strstr(error.message, "CAP_SYS_ADMIN"));
    text said = {0};
    qn_counting_print(c, false, take_text, &said);
    EXPECT(strstr(text_get(&said), "CAP_SYS_ADMIN"));
    text_free(&said);
    qn_counting_free(c);
    qn_samples s;
    EXPECT(qn_call_sample(call, "cuda", &s, &error) == QN_NO_DEVICE && strstr(error.message, "CAP_SYS_ADMIN"));
    unsetenv("FAKE_CUPTI_COUNTERS");
    qn_counters counters;
    EXPECT(qn_call_count(call, "cuda", &counters, &error) == QN_BAD_CALL && strstr(error.message, "qn_counting_start"));
    qn_call_free(call);
    qn_module_free(functions);
}

/* Without times of its kernels a graph opens as rows, each with its share. */
TEST(graphs_open_as_kernels)
{
    qn_profile *p = profile_of_replays(false, 3);
    text table = {0};
    OK(qn_profile_table(p, &(qn_table_options){.by = QN_BY_KERNEL}, take_text, &table, &error));
    EXPECT(strstr(text_get(&table), "exp") && strstr(text_get(&table), "test_device_profile.c:"));
    EXPECT(strstr(text_get(&table), "100.00%") && strstr(text_get(&table), "Estimated: "));
    text_clear(&table);
    OK(qn_profile_table(p, &(qn_table_options){.by = QN_BY_KERNEL, .format = QN_TABLE_CSV}, take_text, &table, &error));
    const char *line = strstr(text_get(&table), "\ngraph,");
    EXPECT(line != NULL);
    text_free(&table);
    qn_profile_free(p);
}

/* Also on the page: its kernels stand in the table, on the timeline one after the other, and have all of its time. */
TEST(graphs_open_in_a_report)
{
    qn_profile *p = profile_of_replays(false, 3);
    report_model m;
    model_build(&m, p, 100000);
    int64_t graphs_ns = 0, parts_ns = 0, slices_ns = 0;
    for (int64_t i = 0; i < p->device_count; i++)
        if (p->device_kept[i].kind == DEVICE_GRAPH) graphs_ns += p->device_kept[i].end_ns - p->device_kept[i].start_ns;
    for (int i = 0; i < m.kernel_count; i++) {
        EXPECT(strcmp(m.kernels[i].name, "graph") != 0);
        if (m.kernels[i].facts && m.kernels[i].facts->ops) parts_ns += m.kernels[i].total_ns;
    }
    for (int64_t i = 0; i < m.slice_count; i++)
        if (m.slices[i].kernel >= 0 && m.kernels[m.slices[i].kernel].facts->ops)
            slices_ns += m.slices[i].end_ns - m.slices[i].start_ns;
    EXPECT(graphs_ns > 0 && parts_ns >= graphs_ns && slices_ns == parts_ns && m.has_shares);
    model_free(&m);
    qn_profile_free(p);
}

TEST(counters_of_the_cpu)
{
    qn_counters c;
    qn_call *call = twice_call();
    OK(qn_call_count(call, "cpu", &c, &error));
    EXPECT(c.count == 8 && c.launches == 1);
    for (int i = 0; i < c.count; i++) EXPECT(isnan(c.items[i].value) == (c.items[i].why != NULL));
    if (!isnan(qn_counters_find(&c, "CPU time"))) EXPECT(qn_counters_find(&c, "CPU time") > 0);
    qn_call_free(call);
}

/* Last of the profiles: a tool stays attached. */
TEST(marks_of_nvtx)
{
    char path[4200];
    int64_t (*count)(const char *function) = NULL;
    const char *(*heard)(void) = NULL;
    qn_call *call = twice_call();
    snprintf(path, sizeof(path), "%s/libfake_nvtx.so", getenv("QUERN_CUDA_PATH"));
    setenv("NVTX_INJECTION64_PATH", path, 1);
    void *tool = dlopen(path, RTLD_NOW);
    EXPECT(tool != NULL);
    if (!tool) return;
    fake_find(tool, "fake_nvtx_heard", &heard);
    snprintf(path, sizeof(path), "%s/libcuda.so.1", getenv("QUERN_CUDA_PATH"));
    fake_find(dlopen(path, RTLD_NOW), "fake_count", &count);
    int64_t before = count("cuProfilerStart");
    qn_profile *p = start(&(qn_profile_options){.nvtx = true, .warmup = 1, .active = 1, .repeat = 1});
    qn_profile_step(p);
    QN_RANGE("outer") OK(qn_call_run(call, "cuda", &error));
    qn_profile_step(p);
    OK(qn_profile_stop(p, &error));
    EXPECT(!strcmp(heard(), "(outer(twice(copy to the device)(copy to the device)(copy from the device)))"));
    EXPECT(count("cuProfilerStart") == before + 1 && count("cuProfilerStop") == before + 1);
    qn_profile_free(p);
    OK(qn_call_run(call, "cuda", &error)); /* without a profile, too */
    EXPECT(strstr(heard(), ")(twice("));
    qn_call_free(call);
}

#endif
