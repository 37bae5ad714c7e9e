/*
 * The thread pool. In: a range and a function. Out: the function was called on pieces that cover the range once.
 *
 * One 32-bit gate says it all: an epoch (which job), whether the job is open, and how many workers are inside. A worker
 * enters an open gate with a compare-and-swap and leaves by subtracting one; the caller closes the gate when no piece
 * is left and waits until nobody is inside. A worker that wakes too late finds the gate closed, and nobody waits for
 * it. Pieces are guided: half of a fair share of what remains, so that the first are long and the last are small. Idle
 * workers spin for a few microseconds and then sleep on the gate (futex). Invariant: the job's fields change only while
 * the gate is closed and empty. SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "base/base.h"
#include "base/record.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define INSIDE 0x3ffu /* how many workers are inside */
#define OPEN 0x400u
#define EPOCH 0x800u
#define MOST_THREADS 1000
#define SPIN_NS 4000

typedef struct worker {
    pool *owner;
    int number;
    pthread_t thread;
} worker;

struct pool {
    _Alignas(64) _Atomic uint32_t gate;
    _Atomic int sleepers, joiner, stop;
    _Atomic bool is_short; /* a worker ran short of memory in this job: the caller did, then */
    _Alignas(64) _Atomic int64_t next;
    _Alignas(64) pthread_mutex_t callers;
    pool_work *work; /* the job */
    void *context;
    int64_t count, grain;
    int threads;
    worker *workers; /* threads - 1 of them; the caller is worker 0 */
};

static void futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
    syscall(SYS_futex, (uint32_t *)word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int count)
{
    syscall(SYS_futex, (uint32_t *)word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* True once the gate differs from `seen`; false after the spinning time. */
static bool spin_for_change(pool *p, uint32_t seen)
{
    int64_t end_ns = clock_now_ns() + SPIN_NS;
    do {
        for (int i = 0; i < 16; i++) {
            if (atomic_load_explicit(&p->gate, memory_order_relaxed) != seen) return true;
            relax();
        }
    } while (clock_now_ns() < end_ns);
    return false;
}

/* A piece that is given up for lack of memory is over like any other: others wait for it, and for what it uses. */
static void do_piece(pool_work *work, void *context, int64_t first, int64_t last, int number)
{
    HEAP_GUARD();
    work(context, first, last, number);
}

static void take_pieces(pool *p, int number, bool recorded)
{
    int64_t first = atomic_load_explicit(&p->next, memory_order_relaxed);
    while (first < p->count) {
        int64_t piece = (p->count - first) / (2 * p->threads);
        if (piece < p->grain) piece = p->grain;
        if (piece > p->count - first) piece = p->count - first;
        if (!atomic_compare_exchange_weak_explicit(&p->next, &first, first + piece, memory_order_relaxed,
                                                   memory_order_relaxed))
            continue;
        int64_t from = recorded ? record_begin() : 0;
        do_piece(p->work, p->context, first, first + piece, number);
        record_end(from, RECORD_WORK, "work", NULL, 0, piece, number);
        first = atomic_load_explicit(&p->next, memory_order_relaxed);
    }
}

static void *worker_main(void *argument)
{
    worker *self = argument;
    pool *p = self->owner;
    char name[32];
    snprintf(name, sizeof(name), "worker %d", self->number);
    (void)number_words_begin(); /* for good: what kernels print has a decimal point */
    record_name_thread(name);
    uint32_t served = 0; /* the epoch of the last job this worker saw; the first job has epoch 1 */
    while (!atomic_load(&p->stop)) {
        uint32_t gate = atomic_load_explicit(&p->gate, memory_order_acquire);
        if ((gate & OPEN) && gate / EPOCH != served) {
            if (!atomic_compare_exchange_weak_explicit(&p->gate, &gate, gate + 1, memory_order_acquire,
                                                       memory_order_relaxed))
                continue;
            served = gate / EPOCH;
            take_pieces(p, self->number, true);
            if (heap_take_short()) atomic_store(&p->is_short, true);
            uint32_t after = atomic_fetch_sub_explicit(&p->gate, 1, memory_order_seq_cst) - 1;
            if (!(after & (OPEN | INSIDE)) && atomic_load(&p->joiner)) futex_wake(&p->gate, INT_MAX);
            continue;
        }
        if (spin_for_change(p, gate)) continue;
        atomic_fetch_add(&p->sleepers, 1);
        if (!atomic_load(&p->stop) && atomic_load(&p->gate) == gate) futex_wait(&p->gate, gate);
        atomic_fetch_sub(&p->sleepers, 1);
    }
    return NULL;
}

pool *pool_new(int threads)
{
    threads = MINIMUM(MAXIMUM(threads, 1), MOST_THREADS);
    pool *p = heap_aligned(_Alignof(pool), sizeof(pool));
    *p = (pool){.threads = 1};
    p->workers = heap_array((size_t)threads, sizeof(worker));
    pthread_mutex_init(&p->callers, NULL);
    int started = 0;
    while (started < threads - 1) {
        worker *w = &p->workers[started];
        *w = (worker){.owner = p, .number = started + 1};
        if (pthread_create(&w->thread, NULL, worker_main, w)) break; /* fewer threads are slower, not wrong */
        started++;
    }
    p->threads = started + 1; /* workers read it only inside a job */
    return p;
}

void pool_free(pool *p)
{
    if (!p) return;
    atomic_store(&p->stop, 1);
    atomic_fetch_add(&p->gate, EPOCH);
    futex_wake(&p->gate, INT_MAX);
    for (int i = 0; i < p->threads - 1; i++) pthread_join(p->workers[i].thread, NULL);
    pthread_mutex_destroy(&p->callers);
    heap_free(p->workers);
    heap_free(p);
}

int pool_threads(const pool *p)
{
    return p->threads;
}

/* own_share: the caller's share goes into the record like the workers'. */
static void run(pool *p, int64_t count, int64_t grain, pool_work *work, void *context, bool own_share)
{
    if (count <= 0) return;
    if (grain < 1) grain = 1;
    lock_take(&p->callers);
    number_words before = number_words_begin();
    if (p->threads == 1 || count <= grain) {
        do_piece(work, context, 0, count, 0);
        number_words_end(before);
        lock_give(&p->callers);
        return;
    }
    p->work = work;
    p->context = context;
    p->count = count;
    p->grain = grain;
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    atomic_fetch_add(&p->gate, EPOCH + OPEN); /* publishes the fields above; the gate was closed and empty */
    if (atomic_load(&p->sleepers)) futex_wake(&p->gate, (int)MINIMUM((count - 1) / grain, p->threads - 1));
    take_pieces(p, 0, own_share);
    uint32_t gate = atomic_fetch_and(&p->gate, ~OPEN) & ~OPEN;
    while (gate & INSIDE) {
        if (!spin_for_change(p, gate)) {
            atomic_store(&p->joiner, 1);
            gate = atomic_load(&p->gate);
            if (gate & INSIDE) futex_wait(&p->gate, gate);
            atomic_store(&p->joiner, 0);
        }
        gate = atomic_load_explicit(&p->gate, memory_order_acquire);
    }
    if (atomic_exchange(&p->is_short, false)) heap_set_short();
    number_words_end(before);
    lock_give(&p->callers);
}

void pool_run(pool *p, int64_t count, int64_t grain, pool_work *work, void *context)
{
    run(p, count, grain, work, context, true);
}

/* ---- many jobs ---- */

typedef struct series {
    pool_job *jobs;
    int count, threads;
    bool seen; /* jobs note when they begin and end */
} series;

/* Until all items of a job are done, by whomever. */
static void wait_done(pool_job *j)
{
    for (int turn = 0; atomic_load_explicit(&j->done, memory_order_acquire) < j->count; turn++) {
        relax();
        if (turn % 4096 == 4095) sched_yield(); /* the one we wait for may need this core */
    }
}

/* Every worker goes through all jobs; one that comes late finds the first of them done. */
static void take_part(void *context, int64_t first, int64_t last, int worker)
{
    const series *s = context;
    (void)first, (void)last;
    for (int i = 0; i < s->count; i++) {
        pool_job *j = &s->jobs[i];
        int64_t at = atomic_load_explicit(&j->next, memory_order_relaxed);
        while (at < j->count) {
            int64_t piece = (j->count - at) / (2 * s->threads);
            piece = MINIMUM(MAXIMUM(piece, j->grain), j->count - at);
            if (!atomic_compare_exchange_weak_explicit(&j->next, &at, at + piece, memory_order_relaxed,
                                                       memory_order_relaxed))
                continue;
            if (s->seen && at == 0) atomic_store_explicit(&j->begun, record_now(), memory_order_relaxed);
            do_piece(j->work, j->context, at, at + piece, worker);
            if (s->seen) atomic_store_explicit(&j->ended, record_now(), memory_order_relaxed);
            atomic_fetch_add_explicit(&j->done, piece, memory_order_release);
            at = atomic_load_explicit(&j->next, memory_order_relaxed);
        }
        wait_done(j);
    }
}

/* One record a launch, which may be several jobs: from the first item that anybody took to the last that was done. */
static void record_launches(const pool_job *jobs, int count)
{
    int64_t from = 0, to = 0;
    for (int i = 0; i < count; i++) {
        const pool_job *j = &jobs[i];
        if (j->count > 0) {
            to = atomic_load(&j->ended);
            if (!from) from = atomic_load(&j->begun);
        }
        if (!j->facts) continue;
        if (from)
            record_span(from, MAXIMUM(to, from), RECORD_KERNEL, j->facts->kernel, j->facts->shapes, (intptr_t)j->facts,
                        0);
        from = 0;
    }
}

void pool_run_jobs(pool *p, pool_job *jobs, int count)
{
    int64_t from = count && jobs[count - 1].facts ? record_begin() : 0;
    series s = {.jobs = jobs, .count = count, .threads = p->threads, .seen = from != 0};
    for (int i = 0; i < count; i++) {
        atomic_store_explicit(&jobs[i].next, 0, memory_order_relaxed);
        atomic_store_explicit(&jobs[i].done, 0, memory_order_relaxed);
    }
    run(p, p->threads, 1, take_part, &s, !s.seen);
    if (!from) return;
    record_launches(jobs, count);
    record_end(from, RECORD_WORK, "work", NULL, 0, count, 0);
}
