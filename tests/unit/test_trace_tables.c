/*
 * Tables of profiles in every form; folded stacks; peaks of memory; records of evaluations and replays.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "trace_rows.h"

/* ---- tables ---- */

static void gather(void *user, const char *words, size_t length)
{
    text_add_bytes(user, words, length);
}

static const char *table_of(qn_profile *p, qn_table_options options, text *out)
{
    text_clear(out);
    EXPECT(qn_profile_table(p, &options, gather, out, &error) == QN_OK);
    return text_get(out);
}

static const json_value *row_named(const json_value *rows, const char *name, const char *kind)
{
    for (int i = 0; i < rows->count; i++)
        if (!strcmp(json_get_words(&rows->items[i], "name"), name) &&
            !strcmp(json_get_words(&rows->items[i], "kind"), kind))
            return &rows->items[i];
    return NULL;
}

TEST(tables)
{
    qn_profile *p;
    text out = {0};
    bool good;
    EXPECT(qn_profile_start(NULL, NULL, &p, &error) == QN_OK);
    run_everything(p);
    EXPECT(qn_profile_stop(p, &error) == QN_OK);
    json_value rows = json_parse(table_of(p, (qn_table_options){.format = QN_TABLE_JSON}, &out), &good);
    EXPECT(good && rows.kind == '[');
    const json_value *outer = row_named(&rows, "outer", "range"), *launch = row_named(&rows, "soft\"max<4>", "launch");
    const json_value *inner = row_named(&rows, "inner", "range");
    EXPECT(outer && inner && launch);
    if (outer && inner && launch) {
        /* Two kernels of 2 us and a copy of 1 us, started inside both ranges. */
        EXPECT(json_get_number(outer, "device_ns") == 5000 && json_get_number(inner, "device_ns") == 5000);
        EXPECT(json_get_number(launch, "self_device_ns") == 4000 && json_get_number(launch, "calls") == 1);
        EXPECT(json_get_number(outer, "self_cpu_ns") < json_get_number(outer, "cpu_ns"));
        EXPECT(json_get_number(inner, "self_cpu_ns") + json_get_number(outer, "self_cpu_ns") +
                   json_get_number(launch, "cpu_ns") <=
               json_get_number(outer, "cpu_ns"));
        EXPECT(json_get_number(inner, "memory_bytes") == 5000 && json_get_number(outer, "memory_bytes") == 1000);
    }
    json_drop(&rows);
    rows = json_parse(table_of(p, (qn_table_options){.format = QN_TABLE_JSON, .by = QN_BY_KERNEL}, &out), &good);
    EXPECT(good && rows.count >= 2 && !row_named(&rows, "outer", "range"));
    EXPECT_TEXT(json_get_words(&rows.items[0], "name"), "soft\"max<4>"); /* the most device time */
    EXPECT(json_get_number(&rows.items[0], "calls") == 2 &&
           json_get_number(&rows.items[0], "device_average_ns") == 2000);
    json_drop(&rows);
    rows = json_parse(table_of(p, (qn_table_options){.format = QN_TABLE_JSON, .by = QN_BY_RANGE}, &out), &good);
    EXPECT(good && rows.count == 3 && row_named(&rows, "step", "step"));

    json_drop(&rows);
    const char *words = table_of(p, (qn_table_options){.by = QN_BY_OP_AND_SHAPE}, &out);
    EXPECT(strstr(words, "Self CPU %") && strstr(words, "CPU total") && strstr(words, "CPU time avg") &&
           strstr(words, "# of Calls") && strstr(words, "x f32[8]"));
    EXPECT(strstr(words, "\nSelf CPU time total: ") && strstr(words, "\nSelf device time total: 5.00 us"));
    words = table_of(p, (qn_table_options){.rows = 1, .sort = "name"}, &out);
    EXPECT(strstr(words, "\nand ") && !strstr(words, "\nouter"));
    words = table_of(p, (qn_table_options){.format = QN_TABLE_CSV, .sort = "cpu_time_total"}, &out);
    EXPECT(!strncmp(words, "name,self_cpu_percent,self_cpu_ns,cpu_percent,cpu_ns,", 52));
    EXPECT(strstr(words, "\n\"soft\"\"max<4>\","));
    words = table_of(p, (qn_table_options){.format = QN_TABLE_MARKDOWN}, &out);
    EXPECT(!strncmp(words, "| Name | Self CPU % |", 21) && strstr(words, "\n|---|---:|"));
    EXPECT(qn_profile_table(p, &(qn_table_options){.sort = "self_cpuu"}, gather, &out, &error) == QN_BAD_CALL);
    EXPECT_TEXT(error.message, "a profile's table has no column `self_cpuu` to sort by; did you mean `self_cpu`?");
    text_free(&out);
    qn_profile_free(p);
}

/* ---- stacks and memory ---- */

TEST(folded)
{
    qn_profile *p;
    EXPECT(qn_profile_start(NULL, NULL, &p, &error) == QN_OK);
    run_everything(p);
    EXPECT(qn_profile_stop(p, &error) == QN_OK);
    EXPECT(qn_profile_write_folded(p, path_of("run.folded"), &error) == QN_OK);
    char *words = contents(path_of("run.folded"));
    EXPECT(words && strstr(words, "main;outer;inner;soft\"max<4> "));
    EXPECT(words && strstr(words, "GPU 0;outer;inner;soft\"max<4> 4000\n"));
    /* All stacks of the thread together are the time of its outermost range. */
    int64_t sum = 0;
    for (const char *line = words; line && *line; line = strchr(line, '\n') + 1)
        if (!strncmp(line, "main;", 5)) {
            const char *end = strchr(line, '\n');
            while (end[-1] != ' ') end--;
            sum += atoll(end);
        }
    qn_profile_sum outer;
    EXPECT(qn_profile_find(p, "outer", &outer) && sum == outer.total_ns);
    free(words);
    qn_profile_free(p);
}

TEST(memory)
{
    qn_profile *p;
    memory_timeline timelines[MOST_PLACES];
    int count;
    text out = {0};
    EXPECT(qn_profile_start(NULL, NULL, &p, &error) == QN_OK);
    run_everything(p);
    EXPECT(qn_profile_stop(p, &error) == QN_OK);
    EXPECT(memory_timelines_make(p, timelines, &count, &error) == QN_OK && count == 1);
    const memory_timeline *t = &timelines[0];
    EXPECT(t->peak_bytes == 6000 && t->count == 4 && t->points[3].bytes == 0 && t->alive_count == 2);
    EXPECT(p->kept[t->alive[0]].a == 5000 && p->kept[t->alive[1]].a == 1000);
    memory_timelines_free(timelines, count);
    EXPECT(qn_profile_memory(p, gather, &out, &error) == QN_OK);
    EXPECT(strstr(text_get(&out), "memory of the host: at most 6.00 KB") && strstr(text_get(&out), "outer > inner"));
    text_free(&out);
    qn_profile_free(p);
}

/* Addresses that come and go, against a plain list. */
TEST(book_of_memory)
{
    memory_book book = {0};
    int64_t alive[97] = {0}, total = 0;
    uint32_t state = 1;
    int place;
    for (int i = 0; i < 20000; i++) {
        state = state * 1664525 + 1013904223;
        int at = (int)(state >> 8) % 97;
        record r = {.name = record_host_memory, .b = 4096 + 64 * at, .a = 1 + i % 50};
        r.kind = alive[at] ? RECORD_FREE : RECORD_ALLOCATE;
        int64_t expected = alive[at] ? -alive[at] : r.a;
        EXPECT(memory_book_add(&book, &r, i, &place) == expected);
        alive[at] = alive[at] ? 0 : r.a;
        total += expected;
        EXPECT(book.places[0].bytes == total);
    }
    record unknown = {.name = record_host_memory, .kind = RECORD_FREE, .a = 5, .b = 77};
    EXPECT(memory_book_add(&book, &unknown, 0, &place) == 0 && book.places[0].bytes == total);
    memory_book_free(&book);
}

/* ---- tensors ---- */

/* A layer, evaluated and captured; both leave their kernels with facts, in the operation that ran them. */
TEST(evaluations)
{
    enum { REPLAYS = 7 };
    qn_tape *tape;
    qn_profile *p;
    qn_plan *step;
    qn_plan_facts facts;
    text out = {0};
    bool good;
    char outputs[256];
    snprintf(outputs, sizeof(outputs), "trace=%s", path_of("eval.json"));
    EXPECT(qn_tape_new(context, "cpu", &tape, &error) == QN_OK);
    EXPECT(qn_profile_start(context, &(qn_profile_options){.outputs = outputs}, &p, &error) == QN_OK);
    qn_tensor x = qn_ones(tape, QN_F32, QN_SHAPE(64, 32)), w = qn_variable(qn_ones(tape, QN_F32, QN_SHAPE(32, 16)));
    qn_tensor y = qn_softmax(qn_matmul(x, w), 1);
    EXPECT(qn_eval(tape, &y, 1, &error) == QN_OK);
    EXPECT(qn_capture_begin(tape, &error) == QN_OK);
    qn_tensor z = qn_gelu(qn_matmul(x, w));
    EXPECT(qn_eval(tape, &z, 1, &error) == QN_OK);
    EXPECT(qn_capture_end(tape, &step, &error) == QN_OK);
    for (int i = 0; i < REPLAYS; i++) EXPECT(qn_plan_replay(step, &error) == QN_OK);
    qn_plan_info(step, &facts);
    EXPECT(qn_profile_stop(p, &error) == QN_OK);
    json_value rows = json_parse(table_of(p, (qn_table_options){.format = QN_TABLE_JSON}, &out), &good);
    const json_value *eval = row_named(&rows, "eval", "op"), *replay = row_named(&rows, "replay", "op");
    EXPECT(good && eval && replay && row_named(&rows, "plan", "op") && row_named(&rows, "fuse", "op"));
    EXPECT(replay && json_get_number(replay, "calls") == REPLAYS && json_get_number(replay, "device_ns") > 0);
    nesting n;
    int of_replay = 0, of_eval = 0;
    EXPECT(nesting_make(p, &n, &error) == QN_OK);
    for (int64_t i = 0; i < n.count; i++) {
        const record *r = &p->kept[i];
        if (r->kind != RECORD_KERNEL) continue;
        const record_facts *f = record_facts_of(r);
        EXPECT(f && f->ops && f->unfused_bytes >= f->read_bytes + f->written_bytes && !strcmp(f->device, "cpu"));
        int64_t up = n.parent[i];
        while (up >= 0 && p->kept[up].kind != RECORD_OP) up = n.parent[up];
        EXPECT(up >= 0);
        of_replay += up >= 0 && !strcmp(p->kept[up].name, "replay");
        of_eval += up >= 0 && !strcmp(p->kept[up].name, "eval");
        EXPECT(r->end_ns > r->start_ns);
    }
    EXPECT(of_replay == REPLAYS * facts.kernels && of_eval >= 1);
    nesting_free(&n);
    char *words = contents(path_of("eval.json"));
    story s = read_story(words);
    EXPECT(s.good && find_slice(&s, "replay", "cpu_op"));
    story_drop(&s);
    json_drop(&rows);
    free(words);
    text_free(&out);
    qn_plan_free(step);
    qn_profile_free(p);
    qn_tape_free(tape);
}

/* A captured step of 16 layers with and without a profile, in turns. The best times are compared: those that nothing
 * else on the machine disturbed. */
TEST(overhead_on_a_captured_step)
{
    enum { LAYERS = 16, WIDTH = 128, BATCH = 64, ROUNDS = 40, INSIDE = 8 };
    qn_tape *tape;
    qn_plan *step;
    EXPECT(qn_tape_new(context, "cpu", &tape, &error) == QN_OK);
    qn_tensor x = qn_randn(tape, QN_F32, QN_SHAPE(BATCH, WIDTH)), w[LAYERS];
    for (int i = 0; i < LAYERS; i++)
        w[i] = qn_variable(qn_mul_scalar(qn_randn(tape, QN_F32, QN_SHAPE(WIDTH, WIDTH)), 0.05));
    EXPECT(qn_capture_begin(tape, &error) == QN_OK);
    qn_tensor h = x;
    for (int i = 0; i < LAYERS; i++) h = qn_gelu(qn_matmul(h, w[i]));
    EXPECT(qn_eval(tape, &h, 1, &error) == QN_OK);
    EXPECT(qn_capture_end(tape, &step, &error) == QN_OK);
    int64_t best[2] = {INT64_MAX, INT64_MAX};
    for (int i = 0; i < 10; i++) EXPECT(qn_plan_replay(step, &error) == QN_OK);
    for (int round = 0; round < ROUNDS; round++) {
        for (int turn = 0; turn < 2; turn++) {
            bool on = (turn + round) % 2;
            qn_profile *p = NULL;
            if (on) EXPECT(qn_profile_start(context, &(qn_profile_options){.most_records = 4096}, &p, &error) == QN_OK);
            if (on) EXPECT(qn_plan_replay(step, &error) == QN_OK);
            for (int i = 0; i < INSIDE; i++) {
                int64_t start = clock_now_ns();
                EXPECT(qn_plan_replay(step, &error) == QN_OK);
                best[on] = MINIMUM(best[on], clock_now_ns() - start);
            }
            if (on) EXPECT(qn_profile_stop(p, &error) == QN_OK);
            qn_profile_free(p);
            if (!on) EXPECT(qn_plan_replay(step, &error) == QN_OK);
        }
    }
    double ratio = (double)best[1] / (double)best[0];
    printf("note: a captured step of %d layers takes %.0f us, %.3f times as long with a profile\n", LAYERS,
           (double)best[0] * 1e-3, ratio);
    EXPECT_QUICK(ratio < 1.1); /* 1.03 where the machine is quiet */
    qn_plan_free(step);
    qn_tape_free(tape);
}

TEST_MAIN(CASE(open_context), CASE(tables), CASE(folded), CASE(memory), CASE(book_of_memory), CASE(evaluations),
          CASE(overhead_on_a_captured_step), CASE(close_context))
