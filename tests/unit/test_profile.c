/*
 * Profiles: what a run leaves in the sums and in the kept records, own time and nesting, schedules, limits, misuse.
 * SPDX-License-Identifier: MIT
 */
#include "profile/session.h"
#include "test.h"

#include <string.h>
#include <time.h>

static const char twice[] = "kernel twice(in float x[n], out float y[n], const int B = 64) launch (cdiv(n, B))\n"
                            "{ y[program(0) * B : B] = 2 * x[program(0) * B : B]; }\n";

static qn_context *context;
static qn_module *module;
static qn_error error;

static void sleep_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

static qn_call *call_of(float *x, float *y, int64_t n)
{
    qn_call *call = NULL;
    EXPECT(qn_call_new(module, "twice", &call, &error) == QN_OK);
    EXPECT(qn_call_set_memory(call, "x", x, QN_F32, 1, &n, NULL, &error) == QN_OK);
    EXPECT(qn_call_set_memory(call, "y", y, QN_F32, 1, &n, NULL, &error) == QN_OK);
    return call;
}

TEST(open_context)
{
    EXPECT(qn_context_open(&(qn_context_options){.no_cache = true, .threads = 2}, &context, &error) == QN_OK);
    EXPECT(qn_module_load_text(context, "twice.qn", twice, &module, &error) == QN_OK);
}

TEST(kernels_and_compiles)
{
    static float x[100000], y[100000];
    qn_profile *p;
    qn_profile_sum sum;
    qn_call *call = call_of(x, y, 100000);
    EXPECT(qn_profile_start(context, NULL, &p, &error) == QN_OK);
    for (int i = 0; i < 3; i++) EXPECT(qn_call_run(call, "cpu", &error) == QN_OK);
    qn_call_free(call);
    EXPECT(qn_profile_stop(p, &error) == QN_OK);
    bool kernels = false, compiles = false, work = false;
    for (int i = 0; i < qn_profile_sum_count(p); i++) {
        qn_profile_sum_get(p, i, &sum);
        if (!strcmp(sum.name, "twice") && !strcmp(sum.kind, "kernel"))
            kernels = sum.calls == 3 && sum.total_ns > 0 && sum.bytes == 3 * 800000 && sum.flops >= 3 * 100000 &&
                      sum.flops <= 3 * 1563 * 64 && !strcmp(sum.detail, "x f32[100000], y f32[100000]");
        if (!strcmp(sum.name, "twice") && !strcmp(sum.kind, "compile")) compiles = sum.calls == 1;
        if (!strcmp(sum.kind, "work")) work = sum.calls > 0;
        EXPECT(sum.self_ns <= sum.total_ns && sum.least_ns <= sum.most_ns);
    }
    EXPECT(kernels && compiles && work);
    const record_facts *facts = NULL;
    for (int64_t i = 0; i < p->kept_count; i++) {
        const record_facts *f = record_facts_of(&p->kept[i]);
        EXPECT(!f || !facts || f == facts); /* interned: one for all launches */
        if (f) facts = f;
    }
    EXPECT(facts && !strcmp(facts->device, "cpu") && facts->programs == 1563 && facts->line == 1);
    qn_profile_totals totals;
    qn_profile_get_totals(p, &totals);
    EXPECT(totals.dropped == 0 && totals.kept == totals.records && totals.end_ns > totals.start_ns);
    qn_profile_free(p);
}

TEST(own_time)
{
    qn_profile *p;
    qn_profile_sum outer, inner;
    EXPECT(qn_profile_start(NULL, NULL, &p, &error) == QN_OK);
    QN_RANGE("outer")
    {
        sleep_ms(4);
        QN_RANGE("inner") sleep_ms(8);
        QN_RANGE("inner") sleep_ms(8);
    }
    EXPECT(qn_profile_stop(p, &error) == QN_OK);
    EXPECT(qn_profile_find(p, "outer", &outer) && qn_profile_find(p, "inner", &inner));
    EXPECT(inner.calls == 2 && outer.calls == 1);
    EXPECT(inner.total_ns >= 16000000 && inner.self_ns == inner.total_ns);
    EXPECT(outer.self_ns == outer.total_ns - inner.total_ns && outer.self_ns >= 4000000);
    qn_profile_free(p);
}

static int cycles;
static int64_t seen;

static void ready(void *user, qn_profile *p)
{
    qn_profile_sum sum;
    cycles++;
    if (qn_profile_find(p, "work of a step", &sum)) seen = sum.calls;
}

TEST(schedule)
{
    qn_profile *p;
    qn_profile_sum sum;
    cycles = 0;
    qn_profile_options options = {.wait = 1, .warmup = 1, .active = 2, .repeat = 2, .ready = ready};
    EXPECT(qn_profile_start(NULL, &options, &p, &error) == QN_OK);
    for (int i = 0; i < 12; i++) {
        QN_RANGE("work of a step")
        {
        }
        qn_profile_step(p);
    }
    EXPECT(qn_profile_stop(p, &error) == QN_OK);
    EXPECT(cycles == 2 && seen == 4);
    EXPECT(qn_profile_find(p, "work of a step", &sum) && sum.calls == 4);
    EXPECT(qn_profile_find(p, "step", &sum) && sum.calls == 4);
    int64_t expected[] = {2, 3, 6, 7};
    int at = 0;
    for (int64_t i = 0; i < p->kept_count; i++)
        if (p->kept[i].kind == RECORD_STEP) EXPECT(at < 4 && p->kept[i].a == expected[at++]);
    EXPECT(at == 4);
    qn_profile_free(p);
}

TEST(limit_of_records)
{
    qn_profile *p;
    qn_profile_sum sum;
    qn_profile_totals totals;
    EXPECT(qn_profile_start(NULL, &(qn_profile_options){.most_records = 100}, &p, &error) == QN_OK);
    for (int i = 0; i < 1000; i++) QN_RANGE("many")
        {
        }
    EXPECT(qn_profile_stop(p, &error) == QN_OK);
    qn_profile_get_totals(p, &totals);
    EXPECT(totals.kept == 100 && totals.dropped == 900 && totals.records == 1000);
    EXPECT(qn_profile_find(p, "many", &sum) && sum.calls == 1000);
    qn_profile_free(p);
}

TEST(misuse)
{
    qn_profile *p, *second;
    EXPECT(qn_profile_start(NULL, NULL, &p, &error) == QN_OK);
    EXPECT(qn_profile_start(NULL, NULL, &second, &error) == QN_BAD_CALL && !second);
    EXPECT(!strcmp(error.message, "a profile is being recorded already: stop it first"));
    EXPECT(qn_profile_stop(p, &error) == QN_OK && qn_profile_stop(p, &error) == QN_OK);
    qn_profile_free(p);
    EXPECT(qn_profile_start(NULL, &(qn_profile_options){.wait = -1}, &p, &error) == QN_BAD_CALL);
    qn_range_pop(); /* nothing is open */
    qn_profile_step(NULL);
    qn_profile_free(NULL);
    EXPECT(qn_profile_stop(NULL, &error) == QN_BAD_CALL);
    for (int i = 0; i < 200; i++) qn_range_push("deep"); /* beyond what is kept: counted, not written */
    for (int i = 0; i < 200; i++) qn_range_pop();
}

TEST(close_context)
{
    qn_module_free(module);
    qn_context_close(context);
}

TEST_MAIN(CASE(open_context), CASE(kernels_and_compiles), CASE(own_time), CASE(schedule), CASE(limit_of_records),
          CASE(misuse), CASE(close_context))
