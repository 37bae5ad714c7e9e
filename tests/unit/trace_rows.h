/*
 * Profiles of small programs: shared by test_trace.c and test_trace_tables.c.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_TRACE_ROWS_H
#define QUERN_TESTS_TRACE_ROWS_H

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

TEST(open_context)
{
    snprintf(folder, sizeof(folder), "/tmp/quern-test-trace-XXXXXX");
    EXPECT(mkdtemp(folder) != NULL);
    EXPECT(qn_context_open(&(qn_context_options){.threads = 2}, &context, &error) == QN_OK);
}

TEST(close_context)
{
    int code;
    qn_context_close(context);
    EXPECT(process_run((const char *const[]){"rm", "-r", folder, NULL}, NULL, &code, &error) == QN_OK);
}

#endif
