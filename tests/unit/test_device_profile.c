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

#include "device_profile_counters.h"

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
