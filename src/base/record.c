/*
 * Rings of records, one a thread. In: spans and instants of any thread. Out: the same to one reader.
 *
 * A ring has one writer (its thread) and one reader; head and tail only grow, so neither waits for the other. A full
 * ring drops the new record and counts it. Rings of threads that ended stay until the process does: their records may
 * not have been read yet, and a later thread takes over an empty one.
 * The clock is the time stamp counter, turned into the realtime clock (that of the GPU's own tracing) by the reader:
 * each reading leaves an anchor, and times between two anchors are on the straight line between them.
 * SPDX-License-Identifier: MIT
 */
#include "base/record.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { USUAL_RECORDS = 65536, LEAST_RECORDS = 256 };

const record_kind_info record_kinds[RECORD_KINDS] = {
#define RECORD(name, text, category, a, b) [RECORD_##name] = {text, category, a, b},
#include "base/record.def"
#undef RECORD
};

const char record_host_memory[] = "memory of the host", record_device_memory[] = "memory of the device";

_Atomic unsigned char record_switches;

typedef struct ring {
    struct ring *next;
    record *items;
    uint64_t capacity; /* a power of two */
    _Atomic uint64_t head, tail;
    _Atomic int64_t dropped;
    _Atomic bool used; /* by a thread that lives */
    uint32_t thread;
    uint16_t depth;
    const char *name;
} ring;

typedef struct name_entry {
    struct name_entry *next;
    char words[];
} name_entry;

/* The same moment on both clocks. */
typedef struct anchor {
    int64_t tick, ns;
} anchor;

typedef struct facts_entry {
    struct facts_entry *next;
    record_facts facts;
} facts_entry;

static struct {
    pthread_mutex_t lock;
    _Atomic(ring *) rings;
    _Atomic uint64_t identities;
    int ring_records, threads;
    name_entry *names[1024];
    facts_entry *facts[256];
    pthread_key_t key;
    pthread_once_t once;
    _Atomic(const record_tracer *) tracer;
    _Atomic(const record_marks *) marks;
    _Atomic uint64_t traces;
    _Atomic bool ticks; /* records hold ticks, not nanoseconds */
    anchor *anchors;    /* of the reader; heap, in the order of time */
    int64_t anchor_count, anchor_capacity;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER, .once = PTHREAD_ONCE_INIT};

static _Thread_local ring *own;
static _Thread_local const char *own_name; /* given before there was a ring */
enum { MOST_INSIDE = 8 };
static _Thread_local uint64_t inside[MOST_INSIDE];
static _Thread_local int inside_count;

/* ---- the clock ---- */

/* Ticks of the time stamp counter where it runs at one rate whatever the processor does, which costs 10 ns; else
 * nanoseconds. The reader turns them into nanoseconds of the realtime clock. */
static bool has_ticks(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;
    return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d >> 8 & 1);
#else
    return false;
#endif
}

static inline int64_t ticks_now(void)
{
#if defined(__x86_64__)
    if (atomic_load_explicit(&state.ticks, memory_order_relaxed)) return (int64_t)__builtin_ia32_rdtsc();
#endif
    return record_clock_ns();
}

int64_t record_clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The moment that the reading of both clocks took least time for: whoever is interrupted in between tries again. */
static anchor anchor_now(void)
{
    anchor best = {0};
    int64_t shortest = INT64_MAX;
    for (int i = 0; i < 8; i++) {
        int64_t before = ticks_now(), ns = record_clock_ns(), after = ticks_now();
        if (after - before >= shortest) continue;
        shortest = after - before;
        best = (anchor){before + shortest / 2, ns};
    }
    return best;
}

/* One more anchor; the clocks' rates may differ from one to the next, but no time goes backwards. */
static void anchor_add(void)
{
    anchor a = anchor_now();
    if (state.anchor_count) {
        const anchor *last = &state.anchors[state.anchor_count - 1];
        if (a.tick <= last->tick) return;
        a.ns = MAXIMUM(a.ns, last->ns + 1);
    }
    if (state.anchor_count == state.anchor_capacity) {
        int64_t capacity = state.anchor_capacity ? 2 * state.anchor_capacity : 1024;
        anchor *grown = realloc(state.anchors, sizeof(*grown) * (size_t)capacity);
        if (!grown) return; /* the last two go on */
        state.anchors = grown;
        state.anchor_capacity = capacity;
    }
    state.anchors[state.anchor_count++] = a;
}

/* Between two anchors a tick has one time for ever, whenever it is asked for: what is nested stays nested, though the
 * outer span is read later than the inner one. */
static int64_t to_ns(int64_t tick)
{
    if (!atomic_load_explicit(&state.ticks, memory_order_relaxed) || state.anchor_count < 2) return tick;
    int64_t i = state.anchor_count - 2;
    while (i > 0 && state.anchors[i].tick > tick) i--;
    const anchor *a = &state.anchors[i], *b = a + 1;
    return a->ns + (int64_t)((double)(tick - a->tick) * ((double)(b->ns - a->ns) / (double)(b->tick - a->tick)));
}

/* ---- threads ---- */

static void thread_ends(void *of)
{
    atomic_store(&((ring *)of)->used, false);
}

static void make_key(void)
{
    pthread_key_create(&state.key, thread_ends);
}

static ring *ring_make(void)
{
    pthread_once(&state.once, make_key);
    lock_take(&state.lock);
    ring *r = atomic_load(&state.rings);
    while (r && (atomic_load(&r->used) || atomic_load(&r->head) != atomic_load(&r->tail))) r = r->next;
    if (!r) {
        r = calloc(1, sizeof(*r));
        uint64_t capacity = LEAST_RECORDS;
        while (capacity < (uint64_t)state.ring_records) capacity *= 2;
        if (r) r->items = calloc(capacity, sizeof(record));
        if (!r || !r->items) { /* without memory nothing is recorded */
            heap_free(r);
            lock_give(&state.lock);
            return NULL;
        }
        r->capacity = capacity;
        r->next = atomic_load(&state.rings);
        atomic_store(&state.rings, r);
    }
    r->thread = (uint32_t)state.threads++;
    r->name = own_name ? own_name : syscall(SYS_gettid) == getpid() ? "main" : NULL;
    r->depth = 0;
    atomic_store(&r->used, true);
    lock_give(&state.lock);
    pthread_setspecific(state.key, r);
    return own = r;
}

static ring *ring_own(void)
{
    return own ? own : ring_make();
}

/* ---- writing ---- */

static void put(ring *r, const record *of)
{
    uint64_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
    if (head - atomic_load_explicit(&r->tail, memory_order_acquire) >= r->capacity) {
        atomic_fetch_add_explicit(&r->dropped, 1, memory_order_relaxed);
        return;
    }
    r->items[head & (r->capacity - 1)] = *of;
    atomic_store_explicit(&r->head, head + 1, memory_order_release);
}

int64_t record_begin_slow(void)
{
    ring *r = ring_own();
    if (!r) return 0;
    r->depth++;
    return ticks_now();
}

void record_end_slow(int64_t from_ns, record_kind kind, const char *name, const char *detail, uint64_t identity,
                     int64_t a, int64_t b)
{
    ring *r = ring_own();
    if (!r) return;
    if (r->depth) r->depth--;
    if (!record_is_on()) return;
    put(r, &(record){.start_ns = from_ns,
                     .end_ns = ticks_now(),
                     .name = name,
                     .detail = detail,
                     .identity = identity,
                     .a = a,
                     .b = b,
                     .kind = (uint16_t)kind,
                     .depth = r->depth,
                     .thread = r->thread});
}

int64_t record_now(void)
{
    return ticks_now();
}

void record_span(int64_t from, int64_t to, record_kind kind, const char *name, const char *detail, int64_t a, int64_t b)
{
    ring *r = ring_own();
    if (!r || !record_is_on()) return;
    put(r, &(record){.start_ns = from,
                     .end_ns = to,
                     .name = name,
                     .detail = detail,
                     .a = a,
                     .b = b,
                     .kind = (uint16_t)kind,
                     .depth = r->depth,
                     .thread = r->thread});
}

void record_instant_slow(record_kind kind, const char *name, int64_t a, int64_t b)
{
    ring *r = ring_own();
    if (!r) return;
    int64_t now = ticks_now();
    put(r, &(record){.start_ns = now,
                     .end_ns = now,
                     .name = name,
                     .a = a,
                     .b = b,
                     .kind = (uint16_t)kind,
                     .depth = r->depth,
                     .thread = r->thread});
}

void record_share(uint64_t identity, const char *op, int64_t range, double weight)
{
    ring *r = ring_own();
    if (!r || !record_is_on()) return;
    int64_t now = ticks_now(), bits;
    memcpy(&bits, &weight, sizeof(bits));
    put(r, &(record){.start_ns = now,
                     .end_ns = now,
                     .name = op,
                     .identity = identity,
                     .a = range,
                     .b = bits,
                     .kind = RECORD_SHARE,
                     .depth = r->depth,
                     .thread = r->thread});
}

double record_share_weight(const record *r)
{
    double weight;
    memcpy(&weight, &r->b, sizeof(weight));
    return weight;
}

uint64_t record_identity(void)
{
    return atomic_fetch_add_explicit(&state.identities, 1, memory_order_relaxed) + 1;
}

void record_mark_by(const record_marks *marks)
{
    if (marks) atomic_store(&state.marks, marks);
    if (marks)
        atomic_fetch_or(&record_switches, RECORD_MARKS);
    else
        atomic_fetch_and(&record_switches, (unsigned char)~RECORD_MARKS);
}

void record_mark_slow(const char *name)
{
    const record_marks *marks = atomic_load(&state.marks);
    if (name)
        marks->push(name);
    else
        marks->pop();
}

uint64_t record_enter_slow(const char *name)
{
    uint64_t identity = record_identity();
    record_mark(name);
    if (inside_count < MOST_INSIDE) inside[inside_count] = identity;
    inside_count++;
    const record_tracer *tracer = atomic_load_explicit(&state.tracer, memory_order_acquire);
    if (tracer) tracer->enter(identity);
    return identity;
}

void record_leave_slow(uint64_t identity)
{
    (void)identity;
    if (inside_count > 0) inside_count--;
    const record_tracer *tracer = atomic_load_explicit(&state.tracer, memory_order_acquire);
    if (tracer) tracer->leave();
    record_mark(NULL);
}

uint64_t record_inside(void)
{
    return inside_count ? inside[MINIMUM(inside_count, MOST_INSIDE) - 1] : 0;
}

void record_trace_by(const record_tracer *tracer)
{
    if (tracer) atomic_fetch_add(&state.traces, 1);
    atomic_store_explicit(&state.tracer, tracer, memory_order_release);
}

uint64_t record_trace_number(void)
{
    return atomic_load_explicit(&state.tracer, memory_order_acquire) ? atomic_load(&state.traces) : 0;
}

const char *record_name(const char *words)
{
    if (!words) return NULL;
    name_entry **chain = &state.names[hash_bytes(words, strlen(words)).low % COUNT(state.names)];
    lock_take(&state.lock);
    name_entry *e = *chain;
    while (e && strcmp(e->words, words)) e = e->next;
    if (!e) {
        size_t size = strlen(words) + 1;
        e = malloc(sizeof(*e) + size);
        if (e) {
            memcpy(e->words, words, size);
            e->next = *chain;
            *chain = e;
        }
    }
    lock_give(&state.lock);
    return e ? e->words : "";
}

/* Words are interned first, so that equal facts are equal in their bytes. */
const record_facts *record_facts_keep(const record_facts *facts)
{
    record_facts f;
    memset(&f, 0, sizeof(f)); /* padding too */
    f.kernel = record_name(facts->kernel);
    f.device = record_name(facts->device);
    f.shapes = record_name(facts->shapes);
    f.ops = record_name(facts->ops);
    f.file = record_name(facts->file);
    f.limit = record_name(facts->limit);
    f.line = facts->line;
    f.product = facts->product;
    f.programs = facts->programs;
    f.read_bytes = facts->read_bytes;
    f.written_bytes = facts->written_bytes;
    f.unfused_bytes = facts->unfused_bytes;
    f.flops = facts->flops;
    f.threads = facts->threads;
    f.registers = facts->registers;
    f.shared_bytes = facts->shared_bytes;
    f.spill_bytes = facts->spill_bytes;
    f.blocks_per_unit = facts->blocks_per_unit;
    f.occupancy = facts->occupancy;
    f.waves = facts->waves;
    f.variant = facts->variant;
    f.part_count = facts->part_count;
    f.owner_count = facts->owner_count;
    size_t part_bytes = sizeof(facts->parts[0]) * (size_t)facts->part_count;
    size_t owner_bytes = sizeof(facts->owners[0]) * (size_t)facts->owner_count;
    uint64_t hash = hash_bytes(&f, sizeof(f)).low ^ (part_bytes ? hash_bytes(facts->parts, part_bytes).low : 0) ^
                    (owner_bytes ? hash_bytes(facts->owners, owner_bytes).low : 0);
    facts_entry **chain = &state.facts[hash % COUNT(state.facts)];
    lock_take(&state.lock);
    facts_entry *e = *chain;
    while (e) {
        f.parts = e->facts.part_count == f.part_count ? e->facts.parts : NULL; /* compared by what is in them */
        f.owners = e->facts.owner_count == f.owner_count ? e->facts.owners : NULL;
        if (!memcmp(&e->facts, &f, sizeof(f)) && (!part_bytes || !memcmp(f.parts, facts->parts, part_bytes)) &&
            (!owner_bytes || !memcmp(f.owners, facts->owners, owner_bytes)))
            break;
        e = e->next;
    }
    if (!e && (e = malloc(sizeof(*e) + part_bytes + owner_bytes))) {
        char *room = (char *)(e + 1);
        f.parts = part_bytes ? memcpy(room, facts->parts, part_bytes) : NULL;
        f.owners = owner_bytes ? memcpy(room + part_bytes, facts->owners, owner_bytes) : NULL;
        memcpy(&e->facts, &f, sizeof(f));
        e->next = *chain;
        *chain = e;
    }
    lock_give(&state.lock);
    return e ? &e->facts : NULL;
}

static int visit_facts(const void *variant, bool retire, const void *texts)
{
    int found = 0;
    lock_take(&state.lock);
    for (int i = 0; i < COUNT(state.facts); i++)
        for (facts_entry *e = state.facts[i]; e; e = e->next) {
            if (e->facts.variant != variant) continue;
            found++;
            if (!retire) continue;
            e->facts.variant = NULL;
            e->facts.texts = texts;
        }
    lock_give(&state.lock);
    return found;
}

bool record_facts_know(const void *variant)
{
    return variant && visit_facts(variant, false, NULL) > 0;
}

void record_facts_retire(const void *variant, const void *texts)
{
    if (variant) visit_facts(variant, true, texts);
}

void record_name_thread(const char *name)
{
    own_name = record_name(name);
    lock_take(&state.lock);
    if (own) own->name = own_name;
    lock_give(&state.lock);
}

/* ---- reading ---- */

qn_status record_start(int ring_records, qn_error *error)
{
    lock_take(&state.lock);
    bool busy = record_is_on();
    if (!busy) {
        state.ring_records = ring_records > 0 ? ring_records : USUAL_RECORDS;
        for (ring *r = atomic_load(&state.rings); r; r = r->next) {
            atomic_store(&r->tail, atomic_load(&r->head));
            atomic_store(&r->dropped, 0);
        }
        atomic_store(&state.ticks, has_ticks());
        state.anchor_count = 0;
        anchor_add();
        atomic_fetch_or(&record_switches, RECORD_WRITES);
    }
    lock_give(&state.lock);
    return busy ? error_set(error, QN_BAD_CALL, "a profile is being recorded already: stop it first") : QN_OK;
}

void record_stop(void)
{
    atomic_fetch_and(&record_switches, (unsigned char)~RECORD_WRITES);
}

int64_t record_drain(record_take *take, void *user)
{
    int64_t taken = 0;
    anchor_add();
    int64_t now = state.anchor_count ? state.anchors[state.anchor_count - 1].tick : INT64_MAX;
    for (ring *r = atomic_load(&state.rings); r; r = r->next) {
        uint64_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
        uint64_t head = atomic_load_explicit(&r->head, memory_order_acquire);
        for (; tail != head; tail++, taken++) {
            record of = r->items[tail & (r->capacity - 1)];
            if (of.end_ns > now) break; /* it ended since: for the next anchor */
            of.start_ns = to_ns(of.start_ns);
            of.end_ns = to_ns(of.end_ns);
            take(user, &of);
        }
        atomic_store_explicit(&r->tail, tail, memory_order_release);
    }
    return taken;
}

int64_t record_dropped(void)
{
    int64_t sum = 0;
    for (ring *r = atomic_load(&state.rings); r; r = r->next) sum += atomic_load(&r->dropped);
    return sum;
}

int record_thread_count(void)
{
    lock_take(&state.lock);
    int count = state.threads;
    lock_give(&state.lock);
    return count;
}

const char *record_thread_name(uint32_t thread)
{
    const char *name = NULL;
    lock_take(&state.lock);
    for (ring *r = atomic_load(&state.rings); r && !name; r = r->next)
        if (r->thread == thread) name = r->name;
    lock_give(&state.lock);
    if (name) return name;
    char words[32];
    snprintf(words, sizeof(words), "thread %u", thread);
    return record_name(words);
}
