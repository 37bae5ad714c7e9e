/*
 * Chrome JSON traces. In: host records (each thread's in the order of their ends), device records in any order. Out: one
 * event a record, an arrow from each launch to what it started, counters of memory, names of the rows.
 *
 * Rows: the host's threads are threads of the process; a device is a process of its own with a thread for each stream.
 * Readers sort by time and keep the order of the file where times are equal, so a slice stands before the arrow that
 * begins or ends in it. Slices of one row must nest: kernels of one stream that overlap (branches of a graph) get a row
 * beside it, and so do steps and the user's ranges on devices.
 * Times are microseconds with three digits from the beginning of the profile: whole nanoseconds since 1970 do not fit a
 * double.
 * SPDX-License-Identifier: MIT
 */
#include "profile/trace.h"

#include "profile/owners.h"
#include "profile/profile.h"
#include "profile/sink.h"
#include "run/run.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    FLUSH_BYTES = 1 << 15,
    END_BYTES = 1 << 20,
    MOST_LANES = 256,
    STREAMS = 10000,
    ROW_OF_STEPS = 1000000,
    ROWS_OF_RANGES = 2000000
};
static const int64_t usual_bytes = 200000000;

typedef struct lane {
    uint32_t device, stream;
    int beside; /* 0: the stream's own row */
    int row;    /* the stream's number, or a small one where that is a handle */
    int64_t end_ns;
} lane;

struct trace_writer {
    sink *to;
    text out;
    int64_t base_ns, most_bytes, left_out;
    int events, process;
    uint32_t thread_limit;  /* above all that were seen */
    uint32_t owner_threads; /* above those that have a row of ranges as their device saw them */
    bool steps, no_memory;  /* no_memory: counters are missing */
    lane lanes[MOST_LANES];
    int lane_count;
    memory_book book;
    record *memory; /* allocations that wait for their order; heap */
    int64_t memory_count, memory_capacity;
};

/* ---- words ---- */

static void add_time(text *out, int64_t time_ns)
{
    if (time_ns < 0) {
        text_add(out, "-");
        time_ns = -time_ns;
    }
    text_add_whole(out, time_ns / 1000);
    char part[4] = {'.', (char)('0' + time_ns / 100 % 10), (char)('0' + time_ns / 10 % 10), (char)('0' + time_ns % 10)};
    text_add_bytes(out, part, sizeof(part));
}

/* ", "key": number"; after the first key of args. */
static void add_argument(text *out, const char *key, int64_t number)
{
    text_print(out, "%s\"%s\":", out->data[out->length - 1] == '{' ? "" : ",", key);
    text_add_whole(out, number);
}

static void add_words(text *out, const char *key, const char *words)
{
    if (!words) return;
    text_print(out, "%s\"%s\":", out->data[out->length - 1] == '{' ? "" : ",", key);
    json_add_string(out, words);
}

static void add_number(text *out, const char *key, double number)
{
    if (!isfinite(number)) return;
    text_print(out, "%s\"%s\":%.6g", out->data[out->length - 1] == '{' ? "" : ",", key, number);
}

/* ---- events ---- */

static void flush(trace_writer *t)
{
    sink_add(t->to, text_get(&t->out), t->out.length);
    text_clear(&t->out);
}

/* False: the file is as large as it may be. */
static bool begin(trace_writer *t)
{
    if (t->out.length >= FLUSH_BYTES) flush(t);
    if (sink_bytes(t->to) + (int64_t)t->out.length + END_BYTES > t->most_bytes) {
        t->left_out++;
        return false;
    }
    text_add(&t->out, t->events++ ? ",\n" : "\n");
    return true;
}

static void add_place(trace_writer *t, int64_t process, int64_t row, int64_t time_ns)
{
    text_add(&t->out, ",\"pid\":");
    text_add_whole(&t->out, process);
    text_add(&t->out, ",\"tid\":");
    text_add_whole(&t->out, row);
    text_add(&t->out, ",\"ts\":");
    add_time(&t->out, time_ns - t->base_ns);
}

/* A slice up to its arguments, which the caller adds and ends with "}}". */
static bool begin_slice(trace_writer *t, const char *category, const char *name, int64_t process, int64_t row,
                        int64_t start_ns, int64_t end_ns)
{
    if (!begin(t)) return false;
    text_add(&t->out, "{\"ph\":\"X\",\"cat\":\"");
    text_add(&t->out, category);
    text_add(&t->out, "\",\"name\":");
    json_add_string(&t->out, name);
    add_place(t, process, row, start_ns);
    text_add(&t->out, ",\"dur\":");
    add_time(&t->out, end_ns - start_ns);
    text_add(&t->out, ",\"args\":{");
    return true;
}

static void add_arrow(trace_writer *t, bool ends, uint64_t identity, int64_t process, int64_t row, int64_t time_ns)
{
    if (!begin(t)) return;
    text_add(&t->out, ends ? "{\"ph\":\"f\",\"bp\":\"e\",\"id\":" : "{\"ph\":\"s\",\"id\":");
    text_add_whole(&t->out, (int64_t)identity);
    add_place(t, process, row, time_ns);
    text_add(&t->out, ",\"cat\":\"ac2g\",\"name\":\"ac2g\"}");
}

static void add_facts(trace_writer *t, const record_facts *f)
{
    if (!f) return;
    add_words(&t->out, "shapes", f->shapes);
    add_words(&t->out, "ops", f->ops);
    add_number(&t->out, "bytes", f->read_bytes + f->written_bytes);
    add_number(&t->out, "flops", f->flops);
}

/* ---- the host ---- */

static void hold_memory(trace_writer *t, const record *r)
{
    if (t->memory_count == t->memory_capacity) {
        int64_t capacity = t->memory_capacity ? 2 * t->memory_capacity : 256;
        record *grown = realloc(t->memory, sizeof(*grown) * (size_t)capacity);
        t->no_memory |= !grown;
        if (!grown) return;
        t->memory = grown;
        t->memory_capacity = capacity;
    }
    t->memory[t->memory_count++] = *r;
}

void trace_add(trace_writer *t, const record *r)
{
    const record_kind_info *kind = &record_kinds[r->kind];
    int64_t row = (int64_t)r->thread + 1;
    const char *category = kind->category;
    if (r->kind == RECORD_STEP) {
        char name[48];
        snprintf(name, sizeof(name), "ProfilerStep#%" PRId64, r->a);
        t->steps = true;
        if (begin_slice(t, category, name, t->process, ROW_OF_STEPS, r->start_ns, r->end_ns)) text_add(&t->out, "}}");
        return;
    }
    t->thread_limit = MAXIMUM(t->thread_limit, r->thread + 1);
    if (r->kind == RECORD_SHARE) return; /* at the end, with the others */
    if (r->kind == RECORD_ALLOCATE || r->kind == RECORD_FREE) {
        hold_memory(t, r);
        return;
    }
    if (!begin_slice(t, category, r->name, t->process, row, r->start_ns, r->end_ns)) return;
    bool starts = r->identity && (r->kind == RECORD_LAUNCH || r->kind == RECORD_COPY);
    if (r->identity) add_argument(&t->out, "External id", (int64_t)r->identity);
    if (starts) add_argument(&t->out, "correlation", (int64_t)r->identity);
    const record_facts *f = record_facts_of(r);
    if (f) {
        add_words(&t->out, "device", f->device);
        add_argument(&t->out, "programs", f->programs);
        add_facts(t, f);
    } else {
        add_words(&t->out, "shapes", r->detail);
        if (*kind->a && r->kind != RECORD_LAUNCH && r->kind != RECORD_KERNEL) add_argument(&t->out, kind->a, r->a);
    }
    text_add(&t->out, "}}");
    if (starts) add_arrow(t, false, r->identity, t->process, row, r->start_ns);
}

/* ---- memory ---- */

static int by_time(const void *a, const void *b)
{
    const record *x = a, *y = b;
    return x->start_ns < y->start_ns ? -1 : x->start_ns > y->start_ns;
}

static void add_memory(trace_writer *t, const record *r)
{
    int place;
    int64_t change = memory_book_add(&t->book, r, 0, &place);
    if (!change) return;
    int64_t total = t->book.places[place].bytes;
    bool host = strstr(r->name, "host");
    if (!begin(t)) return;
    text_add(&t->out, "{\"ph\":\"i\",\"s\":\"t\",\"name\":\"[memory]\"");
    add_place(t, t->process, (int64_t)r->thread + 1, r->start_ns);
    text_add(&t->out, ",\"args\":{");
    add_argument(&t->out, "Addr", r->b);
    add_argument(&t->out, "Bytes", change);
    add_argument(&t->out, "Total Allocated", total);
    add_argument(&t->out, "Total Reserved", t->book.places[place].peak_bytes);
    add_argument(&t->out, "Device Type", host ? 0 : 1);
    add_argument(&t->out, "Device Id", host ? -1 : 0);
    text_add(&t->out, "}}");
    if (!begin(t)) return;
    text_add(&t->out, "{\"ph\":\"C\",\"name\":");
    json_add_string(&t->out, r->name);
    add_place(t, t->process, 0, r->start_ns);
    text_add(&t->out, ",\"args\":{");
    add_argument(&t->out, "bytes", total);
    text_add(&t->out, "}}");
}

void trace_settle(trace_writer *t, int64_t until_ns)
{
    int64_t used = 0;
    if (!t->memory_count) return;
    qsort(t->memory, (size_t)t->memory_count, sizeof(record), by_time);
    while (used < t->memory_count && t->memory[used].start_ns < until_ns) add_memory(t, &t->memory[used++]);
    memmove(t->memory, t->memory + used, sizeof(record) * (size_t)(t->memory_count - used));
    t->memory_count -= used;
}

/* ---- devices ---- */

/* The row of a stream where this can stand: overlapping ones go beside it. */
static const lane *lane_for(trace_writer *t, const device_record *r)
{
    int beside = 0, row = r->stream < STREAMS ? (int)r->stream : STREAMS - 1 - t->lane_count;
    for (int i = 0; i < t->lane_count; i++) {
        lane *l = &t->lanes[i];
        if (l->device != r->device || l->stream != r->stream) continue;
        beside = l->beside + 1;
        row = l->row;
        if (l->end_ns > r->start_ns) continue;
        l->end_ns = r->end_ns;
        return l;
    }
    if (t->lane_count == MOST_LANES) return &t->lanes[MOST_LANES - 1];
    t->lanes[t->lane_count] =
        (lane){.device = r->device, .stream = r->stream, .beside = beside, .row = row, .end_ns = r->end_ns};
    return &t->lanes[t->lane_count++];
}

static int64_t row_of(const lane *l)
{
    return (int64_t)l->row + (int64_t)l->beside * STREAMS;
}

void trace_add_device(trace_writer *t, const device_record *r)
{
    static const char *const categories[] = {[DEVICE_KERNEL] = "kernel",
                                             [DEVICE_COPY] = "gpu_memcpy",
                                             [DEVICE_SET] = "gpu_memset",
                                             [DEVICE_GRAPH] = "kernel"};
    const lane *l = lane_for(t, r);
    int64_t row = row_of(l), time_ns = MAXIMUM(r->end_ns - r->start_ns, 1);
    if (!begin_slice(t, categories[r->kind], r->name, r->device, row, r->start_ns, r->end_ns)) return;
    text *out = &t->out;
    add_argument(out, "External id", (int64_t)r->identity);
    add_argument(out, "correlation", (int64_t)r->identity);
    add_argument(out, "device", r->device);
    add_argument(out, "stream", r->stream);
    if (r->graph) add_argument(out, "graph id", r->graph);
    if (r->graph) add_argument(out, "graph node id", r->node);
    if (r->kind == DEVICE_KERNEL) {
        text_print(out, ",\"grid\":[%u,%u,%u],\"block\":[%u,%u,%u]", r->grid[0], r->grid[1], r->grid[2], r->block[0],
                   r->block[1], r->block[2]);
        add_argument(out, "registers per thread", r->registers);
        add_argument(out, "shared memory", r->shared_bytes);
        add_argument(out, "local memory per thread", r->local_bytes);
        const record_facts *f = r->facts;
        if (f && f->blocks_per_unit) {
            add_argument(out, "blocks per SM", f->blocks_per_unit);
            add_argument(out, "warps per SM", (int64_t)f->blocks_per_unit * ((f->threads + 31) / 32));
        }
        if (f && isfinite(f->occupancy)) add_number(out, "est. achieved occupancy %", 100 * f->occupancy);
        add_facts(t, f);
    } else if (r->kind != DEVICE_GRAPH) {
        add_argument(out, "bytes", r->bytes);
        add_number(out, "memory bandwidth (GB/s)", (double)r->bytes / (double)time_ns);
    }
    text_add(out, "}}");
    if (r->identity) add_arrow(t, true, r->identity, r->device, row, r->start_ns);
}

/* ---- the user's ranges and operations, as devices saw them ---- */

static int64_t row_of_ranges(trace_writer *t, const owner_slice *s)
{
    if (s->on_host) {
        t->owner_threads = MAXIMUM(t->owner_threads, s->thread + 1);
        return ROWS_OF_RANGES + s->thread;
    }
    int i = 0;
    while (i + 1 < t->lane_count && (t->lanes[i].device != s->device || t->lanes[i].stream != s->stream)) i++;
    return ROWS_OF_RANGES + (t->lane_count ? t->lanes[i].row : 0);
}

/* Where work was called, at the time it ran: ranges, and in them operations. */
static void add_ranges(trace_writer *t, const qn_profile *p)
{
    nesting n;
    owner_slice *slices = NULL;
    int64_t count = 0;
    if (nesting_make(p, &n, NULL) != QN_OK) return;
    if (owners_timeline(p, &n, &slices, &count, NULL) != QN_OK) count = 0;
    for (int64_t i = 0; i < count; i++) {
        const owner_slice *s = &slices[i];
        int64_t row = row_of_ranges(t, s);
        if (!begin_slice(t, "gpu_user_annotation", s->name, s->on_host ? t->process : (int64_t)s->device, row,
                         s->start_ns, s->end_ns))
            continue;
        add_words(&t->out, "kernel", s->kernel);
        if (s->kernel) add_words(&t->out, "time", s->estimate ? "estimate: a share of its kernel" : "measured");
        text_add(&t->out, "}}");
    }
    heap_free(slices);
    nesting_free(&n);
}

/* ---- beginning and end ---- */

static void add_properties(text *out, const qn_context *context)
{
    int count = 0;
    text_add(out, "\"deviceProperties\":[");
    for (int i = 0; context && i < context->slot_count; i++) {
        const device_slot *s = &context->slots[i];
        if (!s->known || !s->about.available || !target_is_gpu(s->name)) continue;
        text_print(out, "%s{\"id\":%d,\"name\":", count ? "," : "", count);
        json_add_string(out, s->about.description);
        text_print(out, ",\"numSms\":%d,\"warpSize\":32}", s->about.units);
        count++;
    }
    text_add(out, "],\n");
}

qn_status trace_open(const qn_profile *p, const char *path, int64_t most_bytes, trace_writer **out, qn_error *error)
{
    trace_writer *t = calloc(1, sizeof(*t));
    *out = NULL;
    if (!t) return error_set(error, QN_NO_MEMORY, "no memory for a trace");
    qn_status status = sink_open(path, &t->to, error);
    if (status != QN_OK) {
        heap_free(t);
        return status;
    }
    t->base_ns = p->start_ns;
    t->process = process_number();
    t->most_bytes = MAXIMUM(most_bytes > 0 ? most_bytes : usual_bytes, 2 * END_BYTES);
    text_add(&t->out, "{\"schemaVersion\":1,\n");
    add_properties(&t->out, p->context);
    text_print(&t->out, "\"displayTimeUnit\":\"ms\",\n\"baseTimeNanoseconds\":%" PRId64 ",\n\"traceEvents\":[",
               t->base_ns);
    *out = t;
    return QN_OK;
}

static void name_row(trace_writer *t, const char *what, int64_t process, int64_t row, const char *words, int64_t number)
{
    text_add(&t->out, t->events++ ? ",\n" : "\n");
    text_print(&t->out, "{\"ph\":\"M\",\"name\":\"%s\"", what);
    add_place(t, process, row, t->base_ns);
    text_add(&t->out, ",\"args\":{");
    if (words)
        add_words(&t->out, strstr(what, "labels") ? "labels" : "name", words);
    else
        add_argument(&t->out, "sort_index", number);
    text_add(&t->out, "}}");
}

static void name_rows(trace_writer *t)
{
    char words[64];
    name_row(t, "process_name", t->process, 0, "quern", 0);
    name_row(t, "process_labels", t->process, 0, "CPU", 0);
    name_row(t, "process_sort_index", t->process, 0, NULL, 0);
    for (uint32_t i = 0; i < MINIMUM(t->thread_limit, 4096u); i++) {
        name_row(t, "thread_name", t->process, (int64_t)i + 1, record_thread_name(i), 0);
        name_row(t, "thread_sort_index", t->process, (int64_t)i + 1, NULL, (int64_t)i + 1);
    }
    if (t->steps) {
        name_row(t, "thread_name", t->process, ROW_OF_STEPS, "steps", 0);
        name_row(t, "thread_sort_index", t->process, ROW_OF_STEPS, NULL, 0);
    }
    for (uint32_t i = 0; i < MINIMUM(t->owner_threads, 4096u); i++) {
        snprintf(words, sizeof(words), "%.32s: what was called, when it ran", record_thread_name(i));
        name_row(t, "thread_name", t->process, ROWS_OF_RANGES + (int64_t)i, words, 0);
        name_row(t, "thread_sort_index", t->process, ROWS_OF_RANGES + (int64_t)i, NULL, (int64_t)i + 1);
    }
    for (int i = 0; i < t->lane_count; i++) {
        const lane *l = &t->lanes[i];
        bool first = true;
        for (int k = 0; k < i; k++) first &= t->lanes[k].device != l->device;
        if (first) {
            snprintf(words, sizeof(words), "GPU %u", l->device);
            name_row(t, "process_name", l->device, 0, "quern", 0);
            name_row(t, "process_labels", l->device, 0, words, 0);
            name_row(t, "process_sort_index", l->device, 0, NULL, (int64_t)l->device + 5000000);
        }
        snprintf(words, sizeof(words), l->beside ? "stream %u, beside" : "stream %u", l->stream);
        name_row(t, "thread_name", l->device, row_of(l), words, 0);
        name_row(t, "thread_sort_index", l->device, row_of(l), NULL, row_of(l) * 2 + 1);
        if (l->beside) continue;
        snprintf(words, sizeof(words), "stream %u, ranges", l->stream);
        name_row(t, "thread_name", l->device, ROWS_OF_RANGES + l->row, words, 0);
        name_row(t, "thread_sort_index", l->device, ROWS_OF_RANGES + l->row, NULL, row_of(l) * 2);
    }
}

static void add_end(trace_writer *t, const qn_profile *p)
{
    int64_t end_ns = p->end_ns ? p->end_ns : record_clock_ns();
    text_add(&t->out, t->events++ ? ",\n" : "\n");
    text_add(&t->out, "{\"ph\":\"i\",\"s\":\"g\",\"name\":\"Record Window End\"");
    add_place(t, t->process, 0, end_ns);
    text_print(&t->out,
               "}\n],\n\"traceName\":\"quern\",\n\"dropped records\":%" PRId64 ",\n\"events left out\":%" PRId64,
               p->lost, t->left_out);
    if (p->device_source) {
        text_add(&t->out, ",\n\"device times\":");
        json_add_string(&t->out, p->device_source);
    }
    if (p->device_reason) {
        text_add(&t->out, ",\n\"device times, why\":");
        json_add_string(&t->out, p->device_reason);
    }
    text_add(&t->out, "\n}\n");
}

qn_status trace_close(trace_writer *t, const qn_profile *p, bool whole, qn_error *error)
{
    if (!t) return QN_OK;
    if (whole) {
        trace_settle(t, INT64_MAX);
        add_ranges(t, p);
        name_rows(t);
        add_end(t, p);
        flush(t);
    }
    qn_status status = sink_close(t->to, whole, error);
    memory_book_free(&t->book);
    text_free(&t->out);
    heap_free(t->memory);
    heap_free(t);
    return status;
}

qn_status qn_profile_write_trace(const qn_profile *profile, const char *path, qn_error *error)
{
    HEAP_ENTER(error);
    if (!profile || !path) return error_set(error, QN_BAD_CALL, "qn_profile_write_trace: an argument is NULL");
    qn_profile *p = (qn_profile *)profile;
    trace_writer *t;
    lock_take(&p->lock);
    qn_status status = trace_open(p, path, 0, &t, error);
    if (status == QN_OK) {
        for (int64_t i = 0; i < p->kept_count; i++) trace_add(t, &p->kept[i]);
        for (int64_t i = 0; i < p->device_count; i++) trace_add_device(t, &p->device_kept[i]);
        status = trace_close(t, p, true, error);
    }
    lock_give(&p->lock);
    return status;
}
