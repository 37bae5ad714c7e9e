/*
 * The device's side of profiles, on the driver in tests/fake: what is known of launches before they run.
 * SPDX-License-Identifier: MIT
 */
#include "profile/session.h"
#include "test.h"

#include <libgen.h>
#include <math.h>
#include <quern/device.h>
#include <quern/tensor.h>
#include <quern/workbench.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The leak checker cannot read threads that run on stacks of emu. */
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return 1;
}

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
    char folder[4096];
    ssize_t length = readlink("/proc/self/exe", folder, sizeof(folder) - 8);
    folder[length > 0 ? length : 0] = 0;
    strcat(dirname(folder), "/fake");
    setenv("QUERN_CUDA_PATH", folder, 1);
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

TEST(close_all)
{
    char command[128];
    qn_module_free(module);
    qn_context_close(context);
    snprintf(command, sizeof(command), "rm -rf %s", cache_folder);
    EXPECT(system(command) == 0);
}

TEST_MAIN(CASE(open_fake), CASE(facts_of_a_launch), CASE(facts_of_fusion), CASE(facts_of_replays), CASE(close_all))
