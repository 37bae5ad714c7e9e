/*
 * The device's side of profiles, on the driver and the CUPTI in tests/fake: what is known of launches before they run,
 * which launch each record of the device belongs to, graphs, phases, clocks, events where CUPTI refuses.
 * SPDX-License-Identifier: MIT
 */
#include "profile/report/report.h"
#include "profile/measure/counters.h"
#include "profile/measure/cupti.h"
#include "profile/session.h"
#include "fake/open.h"

#include <dlfcn.h>
#include <math.h>
#include <quern/device.h>
#include <quern/nn.h>
#include <quern/tensor.h>
#include <quern/workbench.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char twice[] = "kernel twice(in float x[n], out float y[n], const int B = 64) launch (cdiv(n, B))\n"
                            "{ y[program(0) * B : B] = 2 * x[program(0) * B : B]; }\n";

static qn_error error;
static qn_context *context;
static qn_module *module;
static char cache_folder[64];

#define OK(call)                           \
    do {                                   \
        if ((call) != QN_OK) {             \
            printf("%s\n", error.message); \
            EXPECT(!"success of " #call);  \
        }                                  \
    } while (0)

TEST(open_fake)
{
    fake_take();
    snprintf(cache_folder, sizeof(cache_folder), "/tmp/quern-test-profile-XXXXXX");
    EXPECT(mkdtemp(cache_folder) != NULL);
    OK(qn_context_open(&(qn_context_options){.cache_folder = cache_folder}, &context, &error));
    OK(qn_module_load_text(context, "twice.qn", twice, &module, &error));
}

static const record_facts *facts_of(const qn_profile *p, const char *kernel)
{
    for (int64_t i = 0; i < p->kept_count; i++) {
        const record_facts *f = record_facts_of(&p->kept[i]);
        if (f && (!kernel || !strcmp(f->kernel, kernel))) return f;
    }
    return NULL;
}

TEST(facts_of_a_launch)
{
    static float x[1000], y[1000];
    int64_t n = 1000;
    qn_call *call = NULL;
    qn_profile *p = NULL;
    OK(qn_call_new(module, "twice", &call, &error));
    OK(qn_call_set_memory(call, "x", x, QN_F32, 1, &n, NULL, &error));
    OK(qn_call_set_memory(call, "y", y, QN_F32, 1, &n, NULL, &error));
    OK(qn_profile_start(context, NULL, &p, &error));
    OK(qn_call_run(call, "cuda", &error));
    OK(qn_profile_stop(p, &error));
    const record_facts *f = facts_of(p, "twice");
    EXPECT(f && !strcmp(f->device, "cuda") && f->programs == 16 && f->read_bytes == 4000 && f->written_bytes == 4000);
    /* The fake: 4 multiprocessors of an H200, every function with 32 registers and no static shared memory. */
    EXPECT(f && f->registers == 32 && f->threads >= 32 && f->threads % 32 == 0 && f->spill_bytes == 0);
    EXPECT(f && f->blocks_per_unit > 0 && f->occupancy > 0 && f->occupancy <= 1 && f->limit);
    EXPECT(f && f->occupancy == (double)f->blocks_per_unit * f->threads / 2048);
    EXPECT(f && f->waves > 0 && f->waves <= 16.0 / (4 * f->blocks_per_unit));
    EXPECT(f && !f->ops && isnan(f->unfused_bytes));
    uint64_t identity = 0;
    for (int64_t i = 0; i < p->kept_count; i++)
        if (p->kept[i].kind == RECORD_LAUNCH) identity = p->kept[i].identity;
    EXPECT(identity != 0);
    qn_profile_free(p);
    qn_call_free(call);
}

TEST(facts_of_fusion)
{
    float x[600];
    qn_tape *tape = NULL;
    qn_profile *p = NULL;
    for (int i = 0; i < 600; i++) x[i] = (float)i / 600;
    OK(qn_tape_new(context, "cpu", &tape, &error));
    qn_tensor a = qn_from_memory(tape, x, QN_F32, QN_SHAPE(20, 30));
    OK(qn_profile_start(context, NULL, &p, &error));
    qn_tensor b = qn_gelu(qn_mul(qn_add(a, a), a));
    OK(qn_eval(tape, &b, 1, &error));
    OK(qn_profile_stop(p, &error));
    const record_facts *f = facts_of(p, NULL);
    EXPECT(f && f->ops && strstr(f->ops, "gelu") && strstr(f->ops, "mul"));
    EXPECT(f && f->read_bytes == 2400 && f->written_bytes == 2400);
    EXPECT(f && f->unfused_bytes > f->read_bytes + f->written_bytes && f->flops >= 600);
    EXPECT(f && f->file && strstr(f->file, "test_device_profile") && f->line > 0);
    qn_profile_free(p);
    qn_tape_free(tape);
}

/* A replay on a GPU is one launch, whose facts have those of its kernels. */
TEST(facts_of_replays)
{
    float x[600] = {1};
    qn_tape *tape = NULL;
    qn_profile *p = NULL;
    qn_plan *plan = NULL;
    OK(qn_tape_new(context, "cuda", &tape, &error));
    qn_tensor a = qn_variable(qn_from_memory(tape, x, QN_F32, QN_SHAPE(20, 30)));
    OK(qn_eval(tape, &a, 1, &error));
    OK(qn_capture_begin(tape, &error));
    qn_tensor b = qn_sum(qn_exp(a), QN_ALL, false);
    qn_assign(a, qn_mul(a, b));
    OK(qn_eval(tape, &b, 1, &error));
    OK(qn_capture_end(tape, &plan, &error));
    OK(qn_profile_start(context, NULL, &p, &error));
    for (int i = 0; i < 3; i++) OK(qn_plan_replay(plan, &error));
    OK(qn_profile_stop(p, &error));
    int launches = 0;
    for (int64_t i = 0; i < p->kept_count; i++) {
        const record_facts *f = record_facts_of(&p->kept[i]);
        if (!f) continue;
        launches++;
        EXPECT(!strcmp(f->kernel, "graph") && f->part_count > 0 && f->parts[0]->ops);
        EXPECT(f->read_bytes >= 2400 && f == facts_of(p, NULL));
    }
    EXPECT(launches == 3);
    qn_profile_free(p);
    qn_plan_free(plan);
    qn_tape_free(tape);
}

/* ---- records of the device ---- */

static void (*fake_cupti_plant)(const void *record, size_t size);
static void (*fake_cupti_drop)(size_t count);
static void (*fake_cupti_shift)(int64_t ns);
static int (*fake_cupti_sessions)(void);

TEST(open_fake_cupti)
{
    char path[4200];
    snprintf(path, sizeof(path), "%s/libcupti.so.13", getenv("QUERN_CUDA_PATH"));
    void *library = dlopen(path, RTLD_NOW);
    EXPECT(library != NULL);
    if (!library) exit(1);
    fake_find(library, "fake_cupti_plant", &fake_cupti_plant);
    fake_find(library, "fake_cupti_drop", &fake_cupti_drop);
    fake_find(library, "fake_cupti_shift", &fake_cupti_shift);
    fake_find(library, "fake_cupti_sessions", &fake_cupti_sessions);
}

enum { N = 1000 };
static float x[N], y[N];

static qn_call *twice_call(void)
{
    int64_t n = N;
    qn_call *call = NULL;
    OK(qn_call_new(module, "twice", &call, &error));
    OK(qn_call_set_memory(call, "x", x, QN_F32, 1, &n, NULL, &error));
    OK(qn_call_set_memory(call, "y", y, QN_F32, 1, &n, NULL, &error));
    OK(qn_call_run(call, "cuda", &error));
    return call;
}

static qn_profile *start(const qn_profile_options *options)
{
    qn_profile *p = NULL;
    OK(qn_profile_start(context, options, &p, &error));
    return p;
}

static const record *host_of(const qn_profile *p, uint64_t identity)
{
    for (int64_t i = 0; identity && i < p->kept_count; i++)
        if (p->kept[i].identity == identity) return &p->kept[i];
    return NULL;
}

static int count_kind(const qn_profile *p, device_record_kind kind)
{
    int count = 0;
    for (int64_t i = 0; i < p->device_count; i++) count += p->device_kept[i].kind == kind;
    return count;
}

/* Every record of the device lies in its host's record (the fake does all at once) and knows it. */
static void check_ties(const qn_profile *p)
{
    for (int64_t i = 0; i < p->device_count; i++) {
        const device_record *d = &p->device_kept[i];
        const record *host = host_of(p, d->identity);
        EXPECT(host != NULL);
        if (!host) continue;
        EXPECT(d->start_ns >= host->start_ns - 50000 && d->end_ns <= host->end_ns + 50000 && d->end_ns >= d->start_ns);
        if (d->kind == DEVICE_KERNEL)
            EXPECT(d->facts == record_facts_of(host) && !strcmp(d->name, "twice") && d->registers == 32 &&
                   d->grid[0] > 0 && d->block[0] == (uint32_t)d->facts->threads);
        if (d->kind == DEVICE_COPY) EXPECT(host->kind == RECORD_COPY && d->bytes == host->a);
    }
}

TEST(records_of_cupti)
{
    qn_profile_sum sum;
    qn_call *call = twice_call();
    qn_profile *p = start(NULL);
    for (int i = 0; i < 3; i++) OK(qn_call_run(call, "cuda", &error));
    OK(qn_profile_stop(p, &error));
    EXPECT(p->device_source && !strcmp(p->device_source, "CUPTI activity") && !p->device_reason);
    EXPECT(count_kind(p, DEVICE_KERNEL) == 3 && count_kind(p, DEVICE_COPY) == 9 && p->device_lost == 0);
    check_ties(p);
    EXPECT(qn_profile_find(p, "twice", &sum) && sum.device_ns > 0 && sum.device_ns <= sum.total_ns);
    EXPECT(qn_profile_find(p, "copy to the device", &sum) && sum.calls == 6 && sum.device_ns > 0);
    EXPECT(p->device_overhead_share >= 0 && p->device_overhead_share < 1);
    qn_profile_free(p);
    qn_call_free(call);
}

/* Records come when everything is over; what counts is when the launch was made. */
TEST(phases_of_launches)
{
    qn_profile_sum sum;
    qn_call *call = twice_call();
    qn_profile *p = start(&(qn_profile_options){.wait = 1, .warmup = 1, .active = 2, .repeat = 1});
    for (int step = 0; step < 6; step++) {
        for (int i = 0; i <= step; i++) OK(qn_call_run(call, "cuda", &error));
        qn_profile_step(p);
    }
    OK(qn_profile_stop(p, &error));
    EXPECT(count_kind(p, DEVICE_KERNEL) == 3 + 4);
    EXPECT(qn_profile_find(p, "twice", &sum) && sum.calls == 3 + 4);
    check_ties(p);
    qn_profile_free(p);
    qn_call_free(call);
}

static int64_t seen_at_ready;
static void count_at_ready(void *user, qn_profile *p)
{
    seen_at_ready = p->device_count;
}

TEST(ready_has_the_device)
{
    qn_call *call = twice_call();
    qn_profile *p = start(&(qn_profile_options){.active = 2, .repeat = 1, .ready = count_at_ready});
    for (int step = 0; step < 3; step++) {
        OK(qn_call_run(call, "cuda", &error));
        qn_profile_step(p);
    }
    OK(qn_profile_stop(p, &error));
    EXPECT(seen_at_ready == 8 && p->device_count == 8); /* two copies in, a kernel, a copy out; twice */
    qn_profile_free(p);
    qn_call_free(call);
}

TEST(another_clock)
{
    qn_call *call = twice_call();
    fake_cupti_shift(-5000000000000);
    qn_profile *p = start(NULL);
    OK(qn_call_run(call, "cuda", &error));
    OK(qn_profile_stop(p, &error));
    EXPECT(count_kind(p, DEVICE_KERNEL) == 1);
    check_ties(p);
    fake_cupti_shift(0);
    qn_profile_free(p);
    qn_call_free(call);
}

/* Two launches of another library, one of which has no times; records that CUPTI had no room for. */
TEST(foreign_and_lost)
{
    struct {
        cupti_kernel k;
        uint8_t rest[216 - sizeof(cupti_kernel)];
    } foreign = {.k = {.kind = CUPTI_KERNEL, .correlation = 4000000, .name = "gemm_of_others"}};
    qn_call *call = twice_call();
    qn_profile *p = start(NULL);
    OK(qn_call_run(call, "cuda", &error));
    fake_cupti_plant(&foreign, sizeof(foreign));
    foreign.k.start_ns = (uint64_t)record_clock_ns();
    foreign.k.end_ns = foreign.k.start_ns + 1000;
    fake_cupti_plant(&foreign, sizeof(foreign));
    fake_cupti_drop(5);
    OK(qn_profile_stop(p, &error));
    EXPECT(count_kind(p, DEVICE_KERNEL) == 2 && p->device_lost == 6);
    bool found = false;
    for (int64_t i = 0; i < p->device_count; i++)
        if (!strcmp(p->device_kept[i].name, "gemm_of_others"))
            found = !p->device_kept[i].identity && !p->device_kept[i].facts;
    EXPECT(found);
    qn_profile_free(p);
    qn_call_free(call);
}

static qn_profile *profile_of_replays(bool nodes, int count)
{
    float start_values[600] = {1};
    qn_tape *tape = NULL;
    qn_plan *plan = NULL;
    OK(qn_tape_new(context, "cuda", &tape, &error));
    qn_tensor a = qn_variable(qn_from_memory(tape, start_values, QN_F32, QN_SHAPE(20, 30)));
    OK(qn_eval(tape, &a, 1, &error));
    OK(qn_capture_begin(tape, &error));
    qn_tensor b = qn_sum(qn_exp(a), QN_ALL, false);
    qn_assign(a, qn_mul(a, b));
    OK(qn_eval(tape, &b, 1, &error));
    OK(qn_capture_end(tape, &plan, &error));
    qn_profile *p = start(&(qn_profile_options){.graph_nodes = nodes});
    for (int i = 0; i < count; i++) OK(qn_plan_replay(plan, &error));
    OK(qn_profile_stop(p, &error));
    qn_plan_free(plan);
    qn_tape_free(tape);
    return p;
}

TEST(graphs_as_one)
{
    qn_profile *p = profile_of_replays(false, 4);
    EXPECT(count_kind(p, DEVICE_GRAPH) == 4 && count_kind(p, DEVICE_KERNEL) == 0);
    for (int64_t i = 0; i < p->device_count; i++) {
        const record *host = host_of(p, p->device_kept[i].identity);
        EXPECT(host && p->device_kept[i].facts && p->device_kept[i].facts == record_facts_of(host));
    }
    qn_profile_free(p);
}

TEST(graphs_by_kernel)
{
    qn_profile *p = profile_of_replays(true, 4);
    const record *host = p->device_count ? host_of(p, p->device_kept[0].identity) : NULL;
    const record_facts *whole = host ? record_facts_of(host) : NULL;
    EXPECT(whole && whole->part_count >= 2 && count_kind(p, DEVICE_GRAPH) == 0);
    int seen[16] = {0}, kernels = 0;
    for (int64_t i = 0; i < p->device_count && whole; i++) {
        const device_record *d = &p->device_kept[i];
        if (d->kind != DEVICE_KERNEL) continue;
        int part = 0;
        while (part < whole->part_count && whole->parts[part] != d->facts) part++;
        EXPECT(part < whole->part_count && d->graph && !strcmp(d->name, whole->parts[part]->kernel));
        if (part < COUNT(seen)) seen[part]++;
        kernels++;
    }
    for (int i = 0; whole && i < whole->part_count; i++) EXPECT(seen[i] >= 4 && seen[i] % 4 == 0);
    EXPECT(kernels >= 4 * 2);
    qn_profile_free(p);
}

/* Times come from events, and the profile says why. */
static void check_events(const char *words)
{
    qn_profile_sum sum;
    qn_call *call = twice_call();
    qn_profile *p = start(NULL);
    for (int i = 0; i < 3; i++) OK(qn_call_run(call, "cuda", &error));
    OK(qn_profile_stop(p, &error));
    EXPECT(p->device_source && !strcmp(p->device_source, "CUDA events"));
    EXPECT(p->device_reason && strstr(p->device_reason, words));
    EXPECT(count_kind(p, DEVICE_KERNEL) == 3 && count_kind(p, DEVICE_COPY) == 9);
    for (int64_t i = 0; i < p->device_count; i++) {
        const record *host = host_of(p, p->device_kept[i].identity);
        EXPECT(host && p->device_kept[i].start_ns >= host->start_ns - 200000 &&
               p->device_kept[i].end_ns <= host->end_ns + 200000);
        if (p->device_kept[i].kind == DEVICE_KERNEL)
            EXPECT(host && p->device_kept[i].facts == record_facts_of(host) && p->device_kept[i].facts);
    }
    EXPECT(qn_profile_find(p, "twice", &sum) && sum.device_ns > 0);
    EXPECT(isnan(p->device_overhead_share));
    qn_profile_free(p);
    qn_call_free(call);
}

TEST(events_instead)
{
    setenv("FAKE_CUPTI_REFUSE", "39", 1);
    check_events("another tool");
    setenv("FAKE_CUPTI_REFUSE", "35", 1);
    check_events("CAP_SYS_ADMIN");
    unsetenv("FAKE_CUPTI_REFUSE");
    setenv("QUERN_PROFILE_DEVICE", "events", 1);
    check_events("QUERN_PROFILE_DEVICE");
    qn_profile *p = profile_of_replays(false, 2);
    EXPECT(count_kind(p, DEVICE_GRAPH) == 2 && p->device_count == 2);
    qn_profile_free(p);
    setenv("QUERN_PROFILE_DEVICE", "none", 1);
    qn_call *call = twice_call();
    p = start(NULL);
    OK(qn_call_run(call, "cuda", &error));
    OK(qn_profile_stop(p, &error));
    EXPECT(p->device_count == 0 && !p->device_source && p->device_reason);
    qn_profile_free(p);
    qn_call_free(call);
    unsetenv("QUERN_PROFILE_DEVICE");
}

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
            EXPECT(one->source && strstr(one->source, "test_device_profile.c:"));
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

TEST(close_all)
{
    char command[128];
    qn_module_free(module);
    qn_context_close(context);
    snprintf(command, sizeof(command), "rm -rf %s", cache_folder);
    EXPECT(system(command) == 0);
}

TEST_MAIN(CASE(open_fake), CASE(facts_of_a_launch), CASE(facts_of_fusion), CASE(facts_of_replays),
          CASE(open_fake_cupti), CASE(records_of_cupti), CASE(phases_of_launches), CASE(ready_has_the_device),
          CASE(another_clock), CASE(foreign_and_lost), CASE(graphs_as_one), CASE(graphs_by_kernel),
          CASE(events_instead), CASE(counters_of_a_gpu), CASE(samples_of_stalls), CASE(counters_of_the_cpu),
          CASE(counters_of_a_program), CASE(counters_and_samples_of_a_function), CASE(graphs_open_as_kernels),
          CASE(graphs_open_in_a_report), CASE(marks_of_nvtx), CASE(close_all))
