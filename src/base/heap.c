/*
 * Memory, and what happens when the system has none. In: sizes. Out: memory, always; and a word for whoever asks
 * whether there was enough.
 *
 * Nearly all memory of Quern is small: nodes, names, growing lists, in arenas and texts. Code that asks for it is not
 * made to check it. When the system refuses, it comes from a reserve that was mapped beforehand, and the thread notes
 * that it is short of memory; the work ends with QN_NO_MEMORY at the next place that asks (heap_status), on the way that
 * every other error takes, so that locks, files and half-made things are given back as they always are. What was made
 * from the reserve is as good as any other memory: a step that is over before anybody asks is right.
 * The reserve is untouched pages: room in the address space. It grows with what is in use, since the rest of a step may
 * need as much as its beginning. Sizes that the user chose (arrays, tiles) do not come from here: their callers check.
 * A step that needs more than the reserve is given up: what works on its own memory alone (heap_try) is left by a jump
 * and ends like any other error; anything else is left by a jump out of the public call, and since its objects may be
 * half changed the library answers no call from then on. The process of the user goes on in either case.
 * Invariant: when an outermost call of the library begins, there is a whole reserve, or the call is refused.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "base/base.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#define KNOW_ROOTS(at, bytes) __lsan_register_root_region(at, bytes)
#define FORGET_ROOTS(at, bytes) __lsan_unregister_root_region(at, bytes)
#else
#define KNOW_ROOTS(at, bytes) (void)(at), (void)(bytes)
#define FORGET_ROOTS(at, bytes) (void)(at), (void)(bytes)
#endif

#define FIRST_BYTES ((size_t)64 << 20) /* of the reserve; fewer where the address space is limited */
#define SMALLEST_BYTES ((size_t)4 << 20)
#define WORDS_BYTES \
    ((size_t)1 << 20) /* of the program itself: for the words of the message where nothing can be mapped */
#define SHARE 4       /* the reserve is at least this part of what is in use */
#define KEPT 4        /* a step that can be given up leaves this part of the reserve to those that cannot */
#define MOST_LOCKS 16 /* held by one thread at once */
#define SMALL_BYTES 1024

/* One mapping of the reserve. Its memory is handed out from the front and is whole again when all has come back. */
typedef struct chunk {
    struct chunk *next;
    size_t size_bytes, used_bytes;
    int live; /* pieces handed out */
} chunk;

typedef struct piece {
    _Alignas(16) size_t size_bytes;
} piece;

static struct {
    pthread_mutex_t lock;
    chunk *chunks;
    _Atomic size_t size_bytes; /* of all chunks */
    _Atomic int live;          /* pieces of all chunks: 0 nearly always */
    _Atomic size_t in_use_bytes;
    size_t most_bytes;    /* ever handed out at once */
    size_t allowed_bytes; /* to hand out at once; 0: all that is there */
} reserve = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Atomic bool is_stopped; /* a call was left in the middle of its changes */
static _Thread_local int depth; /* of public calls on this thread */
static _Thread_local bool is_short;
static _Thread_local heap_call *guard; /* the innermost place that this thread can jump back to */
static _Thread_local pthread_mutex_t *held[MOST_LOCKS];
static _Thread_local int held_count;

/* ---- the reserve ---- */

static bool chunk_add(size_t size_bytes)
{
    chunk *c = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (c == MAP_FAILED) return false;
    KNOW_ROOTS(c, size_bytes);
    *c = (chunk){.next = reserve.chunks, .size_bytes = size_bytes, .used_bytes = sizeof(chunk)};
    reserve.chunks = c;
    reserve.size_bytes += size_bytes;
    return true;
}

static size_t wanted_bytes(void)
{
    size_t wanted = MAXIMUM(FIRST_BYTES, atomic_load(&reserve.in_use_bytes) / SHARE);
    struct rlimit limit;
    if (!getrlimit(RLIMIT_AS, &limit) && limit.rlim_cur != RLIM_INFINITY)
        wanted = MINIMUM(wanted, MAXIMUM(SMALLEST_BYTES, (size_t)limit.rlim_cur / 16));
    return (wanted + 4095) / 4096 * 4096;
}

/* The first one, which is never refused. The lock is held. */
static void chunk_begin(void)
{
    static _Alignas(16) char room[WORDS_BYTES];
    chunk *c = (chunk *)room;
    if (c->size_bytes) return;
    *c = (chunk){.next = reserve.chunks, .size_bytes = sizeof(room), .used_bytes = sizeof(chunk)};
    reserve.chunks = c;
}

/* As much free room as is wanted, from chunks that are there and a new one. */
static bool refill(size_t need_bytes)
{
    chunk_begin();
    size_t wanted = MAXIMUM(wanted_bytes(), (need_bytes + 4096) & ~(size_t)4095), free_bytes = 0;
    for (const chunk *c = reserve.chunks; c; c = c->next) free_bytes += c->size_bytes - c->used_bytes;
    if (free_bytes + 4096 >= wanted) return true;
    return chunk_add(wanted) || free_bytes >= MAXIMUM(wanted / 2, need_bytes);
}

/* With `spare`, a part of it is left. */
static void *reserve_take(size_t size_bytes, bool spare)
{
    size_t need = (size_bytes + sizeof(piece) + 15) & ~(size_t)15;
    piece *p = NULL;
    if (need < size_bytes) return NULL;
    pthread_mutex_lock(&reserve.lock);
    chunk_begin();
    size_t used = 0, all = 0;
    for (const chunk *c = reserve.chunks; c; c = c->next) used += c->used_bytes, all += c->size_bytes;
    if (reserve.allowed_bytes) all = MINIMUM(all, reserve.allowed_bytes);
    if (spare) all -= all / KEPT;
    bool allowed = need <= all && used <= all - need;
    used = 0;
    for (chunk *c = reserve.chunks; c; c = c->next) {
        if (allowed && !p && c->size_bytes - c->used_bytes >= need) {
            p = (piece *)((char *)c + c->used_bytes);
            c->used_bytes += need;
            c->live++;
            reserve.live++;
        }
        used += c->used_bytes;
    }
    reserve.most_bytes = MAXIMUM(reserve.most_bytes, used);
    pthread_mutex_unlock(&reserve.lock);
    if (!p) return NULL;
    p->size_bytes = need - sizeof(piece);
    memset(p + 1, 0, p->size_bytes);
    return p + 1;
}

/* The chunk that a piece lies in, with the lock held; NULL: it is the system's. */
static chunk *chunk_of(const void *memory)
{
    const char *at = memory;
    for (chunk *c = reserve.chunks; c; c = c->next)
        if (at > (const char *)c && at < (const char *)c + c->size_bytes) return c;
    return NULL;
}

/* False: it is not of the reserve. */
static bool reserve_give(void *memory)
{
    if (!atomic_load_explicit(&reserve.live, memory_order_relaxed)) return false;
    pthread_mutex_lock(&reserve.lock);
    chunk *c = chunk_of(memory);
    if (c) {
        reserve.live--;
        if (!--c->live) c->used_bytes = sizeof(chunk);
    }
    pthread_mutex_unlock(&reserve.lock);
    return c != NULL;
}

/* Of memory that system or reserve gave. */
static size_t size_of(void *memory)
{
    size_t size_bytes = 0;
    if (atomic_load_explicit(&reserve.live, memory_order_relaxed)) {
        pthread_mutex_lock(&reserve.lock);
        if (chunk_of(memory)) size_bytes = ((piece *)memory)[-1].size_bytes;
        pthread_mutex_unlock(&reserve.lock);
    }
    return size_bytes ? size_bytes : malloc_usable_size(memory);
}

_Noreturn static void give_up(heap_call *to)
{
    while (held_count > to->held_count) pthread_mutex_unlock(held[--held_count]);
    guard = to;
    depth = to->depth;
    longjmp(to->back, 1);
}

static void *short_of(size_t size_bytes)
{
    is_short = true;
    /* What a lock protects may be half changed. */
    bool alone = guard && guard->is_step && held_count == guard->held_count;
    void *memory = reserve_take(size_bytes, alone);
    if (memory) return memory;
    if (alone) give_up(guard);
    heap_call *to = guard;
    while (to && to->is_step) to = to->outer;
    if (!to) base_check_failed("the reserve holds what a step needs", __FILE__, __LINE__);
    is_stopped = true;
    give_up(to);
}

/* ---- locks ---- */

void lock_take(pthread_mutex_t *lock)
{
    pthread_mutex_lock(lock);
    CHECK(held_count < MOST_LOCKS);
    held[held_count++] = lock;
}

void lock_give(pthread_mutex_t *lock)
{
    int i = held_count - 1;
    while (i > 0 && held[i] != lock) i--;
    if (i >= 0 && held[i] == lock) {
        held_count--;
        for (; i < held_count; i++) held[i] = held[i + 1];
    }
    pthread_mutex_unlock(lock);
}

/* ---- memory ---- */

void *heap_new(size_t size_bytes)
{
    /* A C library that keeps what a thread freed gives it to malloc, and not always to calloc; large blocks come zeroed. */
    void *memory = size_bytes <= SMALL_BYTES ? malloc(size_bytes ? size_bytes : 1) : calloc(1, size_bytes);
    if (!memory) return short_of(size_bytes);
    return size_bytes <= SMALL_BYTES ? memset(memory, 0, size_bytes) : memory;
}

void *heap_array(size_t count, size_t item_bytes)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, item_bytes, &bytes)) bytes = SIZE_MAX;
    return heap_new(bytes);
}

void *heap_resize(void *memory, size_t size_bytes)
{
    if (!memory) return heap_new(size_bytes);
    chunk *c = NULL;
    if (atomic_load_explicit(&reserve.live, memory_order_relaxed)) {
        pthread_mutex_lock(&reserve.lock);
        c = chunk_of(memory);
        pthread_mutex_unlock(&reserve.lock);
    }
    void *moved = c ? malloc(size_bytes) : realloc(memory, size_bytes);
    if (moved && !c) return moved;
    if (!moved) moved = short_of(size_bytes);
    memcpy(moved, memory, MINIMUM(size_bytes, size_of(memory)));
    heap_free(memory);
    return moved;
}

void *heap_aligned(size_t alignment, size_t size_bytes)
{
    void *memory = NULL;
    if (!posix_memalign(&memory, alignment, size_bytes)) return memset(memory, 0, size_bytes);
    uintptr_t at = (uintptr_t)short_of(size_bytes + alignment);
    return (void *)((at + alignment - 1) / alignment * alignment);
}

char *heap_copy_text(const char *words)
{
    size_t bytes = strlen(words) + 1;
    return memcpy(heap_new(bytes), words, bytes);
}

void heap_free(void *memory)
{
    if (memory && !reserve_give(memory)) free(memory);
}

void heap_in_use(int64_t change_bytes)
{
    size_t now = atomic_fetch_add(&reserve.in_use_bytes, (size_t)change_bytes) + (size_t)change_bytes;
    if (change_bytes < 0 || now / SHARE <= atomic_load_explicit(&reserve.size_bytes, memory_order_relaxed)) return;
    pthread_mutex_lock(&reserve.lock);
    (void)refill(0); /* without it the next outermost call is refused, not this one */
    pthread_mutex_unlock(&reserve.lock);
}

/* ---- calls ---- */

bool heap_begin(size_t need_bytes)
{
    if (depth) return true;
    is_short = false;
    if (is_stopped) return false;
    if (atomic_load_explicit(&reserve.size_bytes, memory_order_acquire) > need_bytes &&
        !atomic_load_explicit(&reserve.live, memory_order_relaxed))
        return true;
    pthread_mutex_lock(&reserve.lock);
    bool whole = refill(need_bytes);
    pthread_mutex_unlock(&reserve.lock);
    is_short = !whole;
    return whole;
}

void heap_guard(heap_call *call)
{
    call->is_step = false;
    call->outer = guard;
    call->depth = ++depth;
    call->held_count = held_count;
    guard = call;
}

bool heap_enter(heap_call *call)
{
    bool whole = heap_begin(0);
    heap_guard(call);
    return whole && !is_stopped;
}

void heap_leave(heap_call *call)
{
    depth = call->depth - 1;
    guard = call->outer;
}

qn_status heap_try(heap_step *step, void *context, qn_error *error)
{
    heap_call here = {.is_step = true, .outer = guard, .depth = depth, .held_count = held_count};
    guard = &here;
    if (setjmp(here.back)) {
        guard = here.outer;
        return heap_refuse(error);
    }
    qn_status status = step(context, error);
    guard = here.outer;
    return status ? status : heap_status(error);
}

qn_status heap_refuse(qn_error *error)
{
    if (is_stopped)
        return error_set(error, QN_NO_MEMORY,
                         "no memory: a call was left in the middle since the system gave no more; save what you have "
                         "and start the program again");
    return error_set(error, QN_NO_MEMORY, "no memory: the system gives no more; free some and call again");
}

bool heap_is_stopped(void)
{
    return is_stopped;
}

void heap_allow_reserve(size_t size_bytes)
{
    pthread_mutex_lock(&reserve.lock);
    reserve.allowed_bytes = size_bytes;
    for (const chunk *c = reserve.chunks; c && size_bytes; c = c->next) reserve.allowed_bytes += c->used_bytes;
    pthread_mutex_unlock(&reserve.lock);
    is_stopped = false;
}

bool heap_is_short(void)
{
    return is_short;
}

bool heap_take_short(void)
{
    bool was = is_short;
    is_short = false;
    return was;
}

void heap_set_short(void)
{
    is_short = true;
}

size_t heap_reserve_most_bytes(void)
{
    pthread_mutex_lock(&reserve.lock);
    size_t most = reserve.most_bytes;
    pthread_mutex_unlock(&reserve.lock);
    return most;
}

/* The library may be closed while the process goes on: what is still handed out belongs to objects that were not freed. */
__attribute__((destructor)) static void reserve_end(void)
{
    for (chunk **at = &reserve.chunks; *at;) {
        chunk *c = *at;
        if (c->live || c->size_bytes == WORDS_BYTES) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        reserve.size_bytes -= c->size_bytes;
        FORGET_ROOTS(c, c->size_bytes);
        munmap(c, c->size_bytes);
    }
}
