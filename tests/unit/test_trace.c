/*
 * What profiles leave: traces whose nesting, arrows, counters and rows are rebuilt from the JSON by a reader of its own;
 * tables in every form; folded stacks; peaks of memory; records of evaluations and replays; limits, and files that
 * cannot be written.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "trace_rows.h"

static int files_in_folder(void)
{
    text list = {0};
    int code;
    EXPECT(process_run((const char *const[]){"ls", folder, NULL}, &list, &code, &error) == QN_OK);
    int count = 0;
    for (const char *p = text_get(&list); *p; p++) count += *p == '\n';
    text_free(&list);
    return count;
}

static int count_slices(const story *s, const char *name)
{
    int count = 0;
    for (int i = 0; i < s->count; i++) count += !strcmp(s->slices[i].name, name);
    return count;
}

static const char *parent_name(const story *s, const slice *x)
{
    return x && x->parent >= 0 ? s->slices[x->parent].name : "";
}

/* The innermost slice of a row at a time. */
static const slice *slice_at(const story *s, const json_value *arrow)
{
    const slice *found = NULL;
    double at = json_get_number(arrow, "ts");
    for (int i = 0; i < s->count; i++) {
        const slice *x = &s->slices[i];
        if (x->process == json_get_number(arrow, "pid") && x->row == json_get_number(arrow, "tid") &&
            x->start <= at + 1e-4 && at <= x->end + 1e-4 && (!found || x->start >= found->start))
            found = x;
    }
    return found;
}

/* Every end of an arrow has one beginning, in the slice of the launch; it ends in the slice it belongs to. */
static int check_arrows(const story *s)
{
    int arrows = 0;
    for (int i = 0; i < s->events->count; i++) {
        const json_value *end = &s->events->items[i], *start = NULL;
        if (strcmp(json_get_words(end, "ph"), "f")) continue;
        int starts = 0;
        for (int k = 0; k < s->events->count; k++) {
            const json_value *e = &s->events->items[k];
            if (strcmp(json_get_words(e, "ph"), "s") || json_get_number(e, "id") != json_get_number(end, "id"))
                continue;
            starts++;
            start = e;
        }
        EXPECT(starts == 1);
        EXPECT(!strcmp(json_get_words(end, "bp"), "e"));
        const slice *from = start ? slice_at(s, start) : NULL, *to = slice_at(s, end);
        EXPECT(from && to);
        if (!from || !to) continue;
        const json_value *a = json_get(from->event, "args"), *b = json_get(to->event, "args");
        EXPECT(json_get_number(a, "correlation") == json_get_number(end, "id"));
        EXPECT(json_get_number(b, "correlation") == json_get_number(end, "id"));
        EXPECT_TEXT(json_get_words(end, "cat"), "ac2g");
        EXPECT_TEXT(json_get_words(end, "name"), "ac2g");
        arrows++;
    }
    return arrows;
}

static bool has_name(const story *s, const char *what, double process, double row, const char *name)
{
    for (int i = 0; i < s->events->count; i++) {
        const json_value *e = &s->events->items[i];
        if (!strcmp(json_get_words(e, "name"), what) && json_get_number(e, "pid") == process &&
            (row < 0 || json_get_number(e, "tid") == row) && !strcmp(json_get_words(json_get(e, "args"), "name"), name))
            return true;
    }
    return false;
}

static void check_events(const story *read)
{
    const story s = *read;
    const slice *inner = find_slice(&s, "inner", "user_annotation"),
                *launch = find_slice(&s, "soft\"max<4>", "cuda_runtime");
    const slice *kernel = find_slice(&s, "soft\"max<4>", "kernel"), *copy = find_slice(&s, "copy in", "gpu_memcpy");
    EXPECT(inner && launch && kernel && copy);
    if (!inner || !launch || !kernel || !copy) return;
    EXPECT_TEXT(parent_name(&s, inner), "outer");
    EXPECT_TEXT(parent_name(&s, launch), "inner");
    EXPECT(launch->process == getpid() && kernel->process == 0 && kernel->row == 7);
    EXPECT(count_slices(&s, "ProfilerStep#0") == 1 && count_slices(&s, "ProfilerStep#1") == 1);
    EXPECT(check_arrows(&s) == 3);
    EXPECT(find_slice(&s, "inner", "gpu_user_annotation") && find_slice(&s, "outer", "gpu_user_annotation"));
    const json_value *a = json_get(kernel->event, "args"), *grid = json_get(a, "grid");
    EXPECT(grid && grid->count == 3 && grid->items[0].number == 8);
    EXPECT(json_get_number(a, "registers per thread") == 40 && json_get_number(a, "warps per SM") == 32);
    EXPECT(json_get_number(a, "est. achieved occupancy %") == 50);
    EXPECT(json_get_number(json_get(copy->event, "args"), "bytes") == 4096);
    EXPECT_NEAR(json_get_number(json_get(copy->event, "args"), "memory bandwidth (GB/s)"), 4.096, 1e-3);
    EXPECT(has_name(&s, "thread_name", getpid(), launch->row, "main") && has_name(&s, "thread_name", 0, 7, "stream 7"));
    double most = 0, last = -1, before = -1e18;
    int counters = 0;
    for (int i = 0; i < s.events->count; i++) {
        const json_value *e = &s.events->items[i];
        if (strcmp(json_get_words(e, "ph"), "C")) continue;
        last = json_get_number(json_get(e, "args"), "bytes");
        most = last > most ? last : most;
        EXPECT(json_get_number(e, "ts") >= before);
        before = json_get_number(e, "ts");
        counters++;
    }
    EXPECT(counters == 4 && most == 6000 && last == 0);
    EXPECT(json_get_number(&s.root, "baseTimeNanoseconds") > 1e18 && json_get_number(&s.root, "dropped records") == 0);
    EXPECT_TEXT(json_get_words(&s.root, "displayTimeUnit"), "ms");
}

static void check_story(const char *text)
{
    story s = read_story(text);
    EXPECT(s.good);
    if (s.good) check_events(&s);
    story_drop(&s);
}

/* While it runs and afterwards: the same story. */
TEST(traces)
{
    qn_profile *p;
    char outputs[256];
    snprintf(outputs, sizeof(outputs), "trace=%s", path_of("run.json"));
    EXPECT(qn_profile_start(NULL, &(qn_profile_options){.outputs = outputs}, &p, &error) == QN_OK);
    run_everything(p);
    EXPECT(files_in_folder() == 1); /* aside, under another name */
    EXPECT(access(path_of("run.json"), F_OK) != 0);
    EXPECT(qn_profile_stop(p, &error) == QN_OK);
    char *words = contents(path_of("run.json"));
    check_story(words);
    free(words);
    EXPECT(qn_profile_write_trace(p, path_of("after.json"), &error) == QN_OK);
    words = contents(path_of("after.json"));
    check_story(words);
    EXPECT(qn_profile_write_trace(p, path_of("after.json.gz"), &error) == QN_OK);
    text plain = {0};
    int code = -1;
    EXPECT(process_run((const char *const[]){"gzip", "-dc", path_of("after.json.gz"), NULL}, &plain, &code, &error) ==
           QN_OK);
    EXPECT(code == 0 && words && plain.length == strlen(words));
    check_story(text_get(&plain));
    text_free(&plain);
    free(words);
    qn_profile_free(p);
}

/* Threads that allocate at once: the counter is in order and right at every point. */
static void *allocates(void *unused)
{
    qn_error inner;
    (void)unused;
    for (int i = 0; i < 500; i++) {
        qn_buffer *b;
        EXPECT(qn_buffer_new(context, 64, &b, &inner) == QN_OK);
        qn_buffer_release(b);
    }
    return NULL;
}

TEST(counters_of_threads)
{
    qn_profile *p;
    pthread_t threads[3];
    char outputs[256];
    snprintf(outputs, sizeof(outputs), "trace=%s", path_of("threads.json"));
    EXPECT(qn_profile_start(NULL, &(qn_profile_options){.outputs = outputs}, &p, &error) == QN_OK);
    for (int i = 0; i < 3; i++) EXPECT(!pthread_create(&threads[i], NULL, allocates, NULL));
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    EXPECT(qn_profile_stop(p, &error) == QN_OK);
    char *words = contents(path_of("threads.json"));
    story s = read_story(words);
    EXPECT(s.good);
    double before = -1e18, last = -1;
    int counters = 0;
    for (int i = 0; s.good && i < s.events->count; i++) {
        const json_value *e = &s.events->items[i];
        if (strcmp(json_get_words(e, "ph"), "C")) continue;
        last = json_get_number(json_get(e, "args"), "bytes");
        EXPECT(last >= 0 && last <= 192 && json_get_number(e, "ts") >= before);
        before = json_get_number(e, "ts");
        counters++;
    }
    EXPECT(counters == 3000 && last == 0);
    story_drop(&s);
    free(words);
    qn_profile_free(p);
}

/* The file stays below its limit, is whole, and tells what is not in it. */
TEST(trace_has_a_limit)
{
    qn_profile *p;
    char outputs[256];
    struct stat about;
    snprintf(outputs, sizeof(outputs), "trace=%s,trace_mb=3", path_of("limit.json"));
    qn_profile_options options = {.outputs = outputs, .most_records = 1000, .ring_records = 1 << 17};
    EXPECT(qn_profile_start(NULL, &options, &p, &error) == QN_OK);
    for (int i = 0; i < 60000; i++) QN_RANGE("a range with a long name, so that the file is full before long")
        {
        }
    EXPECT(qn_profile_stop(p, &error) == QN_OK);
    EXPECT(!stat(path_of("limit.json"), &about) && about.st_size < 3000000 && about.st_size > 1500000);
    char *words = contents(path_of("limit.json"));
    story s = read_story(words);
    EXPECT(s.good && json_get_number(&s.root, "events left out") == 60000 - s.count && s.count < 30000);
    story_drop(&s);
    free(words);
    qn_profile_free(p);
}

/* ---- what can go wrong with files ---- */

TEST(files_that_fail)
{
    qn_profile *p;
    char outputs[600];
    int before = files_in_folder();
    char absent[3][200];
    const char *const kinds[] = {"trace", "folded", "table"};
    for (int i = 0; i < 3; i++) snprintf(absent[i], sizeof(absent[i]), "%s=%s", kinds[i], absent_path("a"));
    const char *const wrong[] = {absent[0],   absent[1], absent[2],      "sort=nothing", "by=rows",
                                 "rows=many", "trace",   "trase=a.json", "active=-1"};
    for (int i = 0; i < COUNT(wrong); i++) {
        EXPECT(qn_profile_start(NULL, &(qn_profile_options){.outputs = wrong[i]}, &p, &error) != QN_OK && !p);
        EXPECT(strlen(error.message) > 10);
    }
    EXPECT(strstr(error.message, "active=-1"));
    /* A disk that fills up: the other files are written, nothing is left of this one. */
    snprintf(outputs, sizeof(outputs), "trace=%s,table=%s", path_of("full.json"), path_of("full.txt"));
    EXPECT(qn_profile_start(NULL, &(qn_profile_options){.outputs = outputs}, &p, &error) == QN_OK);
    struct rlimit old, small;
    getrlimit(RLIMIT_FSIZE, &old);
    small = (struct rlimit){.rlim_cur = 20000, .rlim_max = old.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    for (int i = 0; i < 5000; i++) QN_RANGE("until the disk is full")
        {
        }
    setrlimit(RLIMIT_FSIZE, &small);
    EXPECT(qn_profile_stop(p, &error) == QN_BAD_FILE);
    setrlimit(RLIMIT_FSIZE, &old);
    EXPECT(strstr(error.message, "full.json: File too large; nothing is left there"));
    EXPECT(access(path_of("full.json"), F_OK) && !access(path_of("full.txt"), F_OK));
    EXPECT(files_in_folder() == before + 1);
    qn_profile_free(p);
    /* A profile that is freed while it runs leaves nothing. */
    snprintf(outputs, sizeof(outputs), "trace=%s", path_of("freed.json"));
    EXPECT(qn_profile_start(NULL, &(qn_profile_options){.outputs = outputs}, &p, &error) == QN_OK);
    qn_profile_free(p);
    EXPECT(files_in_folder() == before + 1);
}

/* A context that opens under QUERN_PROFILE is profiled; the files of the next one are numbered. */
TEST(environment)
{
    char outputs[600];
    qn_context *own;
    snprintf(outputs, sizeof(outputs), "table=%s,by=range,format=csv,wait=1,active=2", path_of("from.outside.csv"));
    EXPECT(!setenv("QUERN_PROFILE", outputs, 1));
    for (int round = 0; round < 2; round++) {
        EXPECT(qn_context_open(NULL, &own, &error) == QN_OK);
        for (int i = 0; i < 2 + round; i++) {
            QN_RANGE("of the environment")
            {
            }
            qn_profile_step(NULL);
        }
        qn_context_close(own);
    }
    char wanted[300];
    const char *absent = absent_path("a");
    snprintf(outputs, sizeof(outputs), "table=%s", absent);
    EXPECT(!setenv("QUERN_PROFILE", outputs, 1));
    EXPECT(qn_context_open(NULL, &own, &error) == QN_BAD_FILE && !own);
    snprintf(wanted, sizeof(wanted), "QUERN_PROFILE: cannot write %s.3: No such file or directory", absent);
    EXPECT_TEXT(error.message, wanted);
    unsetenv("QUERN_PROFILE");
    qn_profile_step(NULL); /* nothing to step */
    char *first = contents(path_of("from.outside.csv")), *second = contents(path_of("from.2.outside.csv"));
    EXPECT(first && strstr(first, "\nstep,") && strstr(first, "\nof the environment,"));
    EXPECT(second && strstr(second, "\nof the environment,"));
    free(first);
    free(second);
}

TEST(tensorboard)
{
    qn_profile *p;
    char outputs[256];
    snprintf(outputs, sizeof(outputs), "tensorboard=%s/board,wait=1,active=1,repeat=1", folder);
    EXPECT(qn_profile_start(NULL, &(qn_profile_options){.outputs = outputs}, &p, &error) == QN_OK);
    for (int i = 0; i < 4; i++) {
        QN_RANGE("step of the schedule")
        {
        }
        qn_profile_step(p);
    }
    EXPECT(qn_profile_stop(p, &error) == QN_OK);
    qn_profile_free(p);
    text list = {0};
    int code;
    char pattern[400];
    snprintf(pattern, sizeof(pattern), "cat %s/board/*_%d.*.pt.trace.json", folder, (int)getpid());
    EXPECT(process_run((const char *const[]){"sh", "-c", pattern, NULL}, &list, &code, &error) == QN_OK && !code);
    story s = read_story(text_get(&list));
    EXPECT(s.good && count_slices(&s, "step of the schedule") == 1 && count_slices(&s, "ProfilerStep#1") == 1);
    story_drop(&s);
    text_free(&list);
}

TEST_MAIN(CASE(open_context), CASE(traces), CASE(counters_of_threads), CASE(trace_has_a_limit), CASE(files_that_fail),
          CASE(environment), CASE(tensorboard), CASE(close_context))
