/*
 * The recorder: spans with their depth, instants, rings that drop and count, threads that end, one reader at a time,
 * and what a record costs on and off.
 * SPDX-License-Identifier: MIT
 */
#include "base/record.h"
#include "quiet.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

typedef struct taken {
    record items[4096];
    int count;
} taken;
static taken got;

static void take(void *user, const record *r)
{
    taken *t = user;
    if (t->count < COUNT(t->items)) t->items[t->count++] = *r;
}

static void drain(void)
{
    got.count = 0;
    record_drain(take, &got);
}

TEST(off_records_nothing)
{
    int64_t from = record_begin();
    EXPECT(from == 0);
    record_end(from, RECORD_RANGE, "off", NULL, 0, 0, 0);
    record_instant(RECORD_ALLOCATE, "off", 1, 2);
    drain();
    EXPECT(got.count == 0);
}

TEST(spans_nest)
{
    qn_error error;
    EXPECT(record_start(0, &error) == QN_OK);
    int64_t outer = record_begin(), inner = record_begin();
    record_end(inner, RECORD_LAUNCH, "inner", "f32[3]", 7, 11, 12);
    record_instant(RECORD_ALLOCATE, "pool", 64, 4096);
    record_end(outer, RECORD_OP, "outer", NULL, 7, 0, 0);
    record_stop();
    drain();
    EXPECT(got.count == 3);
    const record *i = &got.items[0], *at = &got.items[1], *o = &got.items[2];
    EXPECT(!strcmp(i->name, "inner") && !strcmp(o->name, "outer") && !strcmp(i->detail, "f32[3]"));
    EXPECT(i->depth == 1 && at->depth == 1 && o->depth == 0);
    EXPECT(i->identity == 7 && i->a == 11 && i->b == 12 && i->kind == RECORD_LAUNCH && o->kind == RECORD_OP);
    EXPECT(o->start_ns <= i->start_ns && i->end_ns <= o->end_ns && at->start_ns == at->end_ns);
    EXPECT(i->thread == o->thread);
}

/* Outer spans are read long after what is nested in them: both have the times of one clock. */
TEST(spans_nest_across_readings)
{
    enum { SPANS = 2000 };
    qn_error error;
    EXPECT(record_start(0, &error) == QN_OK);
    got.count = 0;
    for (int i = 0; i < SPANS; i++) {
        int64_t outer = record_begin(), inner = record_begin();
        record_end(inner, RECORD_LAUNCH, "inner", NULL, 0, i, 0);
        record_drain(take, &got);
        record_end(outer, RECORD_OP, "outer", NULL, 0, i, 0);
    }
    record_stop();
    record_drain(take, &got);
    EXPECT(got.count == 2 * SPANS);
    int wrong = 0;
    for (int i = 0; i + 1 < got.count; i += 2) {
        const record *in = &got.items[i], *out = &got.items[i + 1];
        wrong += in->a != out->a || in->start_ns < out->start_ns || in->end_ns > out->end_ns;
        wrong += i > 0 && out->start_ns < got.items[i - 1].end_ns;
    }
    EXPECT(wrong == 0);
}

/* Whatever the recorder counts in, what it gives out is the realtime clock. */
TEST(realtime)
{
    qn_error error;
    EXPECT(record_start(0, &error) == QN_OK);
    struct timespec wait = {.tv_nsec = 20000000};
    int64_t before = record_clock_ns(), from = record_begin();
    nanosleep(&wait, NULL);
    record_end(from, RECORD_RANGE, "sleep", NULL, 0, 0, 0);
    int64_t after = record_clock_ns();
    record_stop();
    drain();
    const record *r = &got.items[0];
    EXPECT(got.count == 1 && r->start_ns >= before - 20000 && r->end_ns <= after + 20000);
    EXPECT(r->end_ns - r->start_ns >= 19900000 && r->end_ns - r->start_ns <= after - before + 20000);
}

TEST(one_reader)
{
    qn_error error;
    EXPECT(record_start(0, &error) == QN_OK);
    EXPECT(record_start(0, &error) == QN_BAD_CALL);
    EXPECT(!strcmp(error.message, "a profile is being recorded already: stop it first"));
    record_stop();
    EXPECT(record_start(0, &error) == QN_OK);
    record_stop();
}

/* A span that was open when recording began or ended is not recorded, and does not spoil the depth of later ones. */
TEST(open_at_the_switch)
{
    qn_error error;
    int64_t before = record_begin();
    EXPECT(record_start(0, &error) == QN_OK);
    record_end(before, RECORD_RANGE, "before", NULL, 0, 0, 0);
    int64_t across = record_begin();
    record_stop();
    record_end(across, RECORD_RANGE, "across", NULL, 0, 0, 0);
    EXPECT(record_start(0, &error) == QN_OK);
    record_end(record_begin(), RECORD_RANGE, "after", NULL, 0, 0, 0);
    record_stop();
    drain();
    EXPECT(got.count == 1 && !strcmp(got.items[0].name, "after") && got.items[0].depth == 0);
}

static void *many(void *number)
{
    char name[32];
    snprintf(name, sizeof(name), "writer %d", (int)(intptr_t)number);
    record_name_thread(name);
    for (int i = 0; i < 1000; i++) record_end(record_begin(), RECORD_WORK, "work", NULL, 0, i, 0);
    return NULL;
}

TEST(full_rings_drop)
{
    qn_error error;
    EXPECT(record_start(256, &error) == QN_OK);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, many, (void *)(intptr_t)i);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    record_stop();
    drain();
    int64_t mine = 0, last[64] = {0};
    bool in_order = true;
    for (int i = 0; i < got.count; i++) {
        const record *r = &got.items[i];
        if (r->kind != RECORD_WORK || r->thread >= 64) continue;
        mine++;
        if (r->a && r->a != last[r->thread] + 1) in_order = false;
        last[r->thread] = r->a;
        EXPECT(!strncmp(record_thread_name(r->thread), "writer ", 7));
    }
    EXPECT(mine >= 4 * 256 && mine + record_dropped() == 4000);
    EXPECT(in_order);
}

TEST(names_are_kept_once)
{
    char words[] = "softmax_64";
    const char *first = record_name(words);
    words[0] = 'S';
    EXPECT(!strcmp(first, "softmax_64") && record_name("softmax_64") == first && record_name(words) != first);
    EXPECT(record_identity() != record_identity());
}

static double cost_ns(int times)
{
    int64_t from = record_clock_ns();
    for (int i = 0; i < times; i++) record_end(record_begin(), RECORD_RANGE, "cost", NULL, 0, i, 0);
    return (double)(record_clock_ns() - from) / times;
}

static double clock_cost_ns(int times)
{
    int64_t from = record_clock_ns();
    for (int i = 1; i < times; i++) record_clock_ns();
    return (double)(record_clock_ns() - from) / times;
}

TEST(cost)
{
    qn_error error;
    double off = 1e9, on = 1e9, clock = 1e9;
    /* The least of many short runs: whatever else the machine does, one of them is left alone. */
    for (int i = 0; i < 100; i++) off = MINIMUM(off, cost_ns(2000));
    for (int i = 0; i < 100; i++) clock = MINIMUM(clock, clock_cost_ns(2000));
    EXPECT(record_start(0, &error) == QN_OK);
    for (int i = 0; i < 100; i++) {
        record_drain(take, &got);
        on = MINIMUM(on, cost_ns(2000));
    }
    record_stop();
    drain();
    printf("note: record: %.1f ns on, of which %.1f for reading the clock twice; %.2f ns off\n", on, 2 * clock, off);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    EXPECT_QUICK(off < 5 && (on < 50 || on < 2 * clock + 20)); /* a virtual machine's clock may be slow */
#endif
}

TEST_MAIN(CASE(off_records_nothing), CASE(spans_nest), CASE(spans_nest_across_readings), CASE(realtime),
          CASE(one_reader), CASE(open_at_the_switch), CASE(full_rings_drop), CASE(names_are_kept_once), CASE(cost))
