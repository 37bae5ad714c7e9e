/*
 * What profiles leave: traces whose nesting, arrows, counters and rows are rebuilt from the JSON by a reader of its own;
 * tables in every form; folded stacks; peaks of memory; records of evaluations and replays; limits, and files that
 * cannot be written.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "json.h"
#include "profile/nesting.h"
#include "quiet.h"

#include <quern/nn.h>
#include <quern/profile.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

static qn_context *context;
static qn_error error;
static char folder[64];

static char *path_of(const char *name)
{
    static char paths[4][256];
    static int turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

static char *contents(const char *path)
{
    char *data = NULL;
    size_t size;
    return file_read(path, (size_t)1 << 30, &data, &size, &error) == QN_OK ? data : NULL;
}

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

static void busy_us(int us)
{
    for (int64_t end = clock_now_ns() + us * 1000; clock_now_ns() < end;) continue;
}

/* ---- a trace, read back ---- */

typedef struct slice {
    const json_value *event;
    const char *name, *category;
    double process, row, start, end; /* microseconds */
    int parent;
} slice;

typedef struct story {
    json_value root;
    const json_value *events;
    slice *slices;
    int count;
    bool good;
} story;

static int by_place(const void *a, const void *b)
{
    const slice *x = a, *y = b;
    if (x->process != y->process) return x->process < y->process ? -1 : 1;
    if (x->row != y->row) return x->row < y->row ? -1 : 1;
    if (x->start != y->start) return x->start < y->start ? -1 : 1;
    if (x->end != y->end) return x->end > y->end ? -1 : 1;
    return x->event < y->event ? 1 : -1; /* what encloses is written later */
}

/* Slices by row, each with the slice around it; one that is neither inside nor outside another makes it bad. */
static story read_story(const char *text)
{
    story s = {0};
    s.root = json_parse(text ? text : "", &s.good);
    s.events = json_get(&s.root, "traceEvents");
    if (!s.good || !s.events) return s.good = false, s;
    s.slices = calloc((size_t)s.events->count + 1, sizeof(slice));
    for (int i = 0; i < s.events->count; i++) {
        const json_value *e = &s.events->items[i];
        if (strcmp(json_get_words(e, "ph"), "X")) continue;
        double start = json_get_number(e, "ts"), time = json_get_number(e, "dur");
        s.slices[s.count++] = (slice){.event = e,
                                      .name = json_get_words(e, "name"),
                                      .category = json_get_words(e, "cat"),
                                      .process = json_get_number(e, "pid"),
                                      .row = json_get_number(e, "tid"),
                                      .start = start,
                                      .end = start + time,
                                      .parent = -1};
        s.good &= time >= 0 && start > -1e299 && *json_get_words(e, "name") && json_get(e, "args");
    }
    qsort(s.slices, (size_t)s.count, sizeof(slice), by_place);
    for (int i = 0; i < s.count; i++) {
        slice *x = &s.slices[i];
        int up = i - 1;
        if (up >= 0 && (s.slices[up].process != x->process || s.slices[up].row != x->row)) up = -1;
        while (up >= 0 && s.slices[up].end <= x->start + 1e-4 && x->end > s.slices[up].end + 1e-4)
            up = s.slices[up].parent;
        x->parent = up;
        if (up >= 0 && x->end > s.slices[up].end + 1e-3) {
            printf("%s [%.3f, %.3f] overlaps %s [%.3f, %.3f]\n", x->name, x->start, x->end, s.slices[up].name,
                   s.slices[up].start, s.slices[up].end);
            s.good = false;
        }
    }
    return s;
}

static void story_drop(story *s)
{
    json_drop(&s->root);
    free(s->slices);
}

static const slice *find_slice(const story *s, const char *name, const char *category)
{
    for (int i = 0; i < s->count; i++)
        if (!strcmp(s->slices[i].name, name) && !strcmp(s->slices[i].category, category)) return &s->slices[i];
    return NULL;
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

/* ---- a run with everything in it ---- */

/* Kernels of a device that is not there: two of one launch side by side, as branches of a graph are, and a copy. */
static void tell_device(qn_profile *p, uint64_t launch, uint64_t copy)
{
    int64_t now = record_clock_ns();
    const record_facts *facts = record_facts_keep(&(record_facts){.kernel = "soft\"max<4>",
                                                                  .device = "cuda:0",
                                                                  .shapes = "x f32[8]",
                                                                  .threads = 256,
                                                                  .blocks_per_unit = 4,
                                                                  .occupancy = 0.5,
                                                                  .read_bytes = 1000,
                                                                  .written_bytes = 1000,
                                                                  .flops = 5000,
                                                                  .unfused_bytes = NAN,
                                                                  .waves = NAN});
    device_record k = {.start_ns = now,
                       .end_ns = now + 2000,
                       .name = facts->kernel,
                       .identity = launch,
                       .facts = facts,
                       .stream = 7,
                       .grid = {8, 1, 1},
                       .block = {256, 1, 1},
                       .registers = 40,
                       .kind = DEVICE_KERNEL};
    pthread_mutex_lock(&p->lock);
    session_add_device(p, &k);
    k.start_ns += 500;
    k.end_ns += 500;
    session_add_device(p, &k);
    device_record c = {.start_ns = now + 4000,
                       .end_ns = now + 5000,
                       .name = "copy in",
                       .identity = copy,
                       .stream = 7,
                       .bytes = 4096,
                       .kind = DEVICE_COPY};
    session_add_device(p, &c);
    pthread_mutex_unlock(&p->lock);
}

static void run_everything(qn_profile *p)
{
    qn_buffer *small, *large;
    uint64_t launch = record_identity(), copy = record_identity();
    record_name_thread("main");
    QN_RANGE("outer")
    {
        EXPECT(qn_buffer_new(context, 1000, &small, &error) == QN_OK);
        QN_RANGE("inner")
        {
            int64_t from = record_begin();
            busy_us(30);
            record_end(from, RECORD_LAUNCH, record_name("soft\"max<4>"), record_name("x f32[8]"), launch, 0, 0);
            from = record_begin();
            busy_us(10);
            record_end(from, RECORD_COPY, "copy to the device", NULL, copy, 4096, 0);
            EXPECT(qn_buffer_new(context, 5000, &large, &error) == QN_OK);
        }
        qn_buffer_release(large);
    }
    qn_profile_step(p);
    qn_buffer_release(small);
    tell_device(p, launch, copy);
    qn_profile_step(p);
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

TEST(open_context)
{
    snprintf(folder, sizeof(folder), "/tmp/quern-test-trace-XXXXXX");
    EXPECT(mkdtemp(folder) != NULL);
    EXPECT(qn_context_open(&(qn_context_options){.threads = 2}, &context, &error) == QN_OK);
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

TEST(close_context)
{
    int code;
    qn_context_close(context);
    EXPECT(process_run((const char *const[]){"rm", "-r", folder, NULL}, NULL, &code, &error) == QN_OK);
}

TEST_MAIN(CASE(open_context), CASE(traces), CASE(counters_of_threads), CASE(trace_has_a_limit), CASE(tables),
          CASE(folded), CASE(memory), CASE(book_of_memory), CASE(evaluations), CASE(overhead_on_a_captured_step),
          CASE(files_that_fail), CASE(environment), CASE(tensorboard), CASE(close_context))
