/*
 * The blocks of a launch of `emu`; emu/engine.h has the idea.
 *
 * A host thread (worker) runs one group of blocks after another: a block, a cluster, or a whole cooperative grid.
 * Inside a group it runs a block until every thread of it waits or is done, then the next one. A thread that must wait
 * hands over to the next ready thread of its block, else to one that has not started, else to the worker's own stack
 * (run_group), which goes to the next block, or sees that nobody can go on and says who waits where.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "device/emu/switch.h"
#include "device/emu/worker.h"

#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define KEPT_CHUNKS 64 /* of stacks, between launches */

struct emu_engine {
    pthread_mutex_t lock; /* one launch at a time */
    pthread_mutex_t finding_lock;
    pool *pool;
    int threads;
    emu_worker *workers;
};

void emu_finding_add(emu_worker *w, const emu_finding *found)
{
    emu_launch *launch = w->launch;
    lock_take(&w->engine->finding_lock);
    emu_finding *same = NULL;
    for (int i = 0; i < launch->finding_count && !same; i++) {
        emu_finding *f = &launch->findings[i];
        if (f->place == found->place && f->other == found->other && f->at.line == found->at.line &&
            !strncmp(f->words, found->words, 16))
            same = f;
    }
    if (same) {
        same->times++;
    } else if (launch->finding_count < EMU_MAX_FINDINGS) {
        launch->findings[launch->finding_count] = *found;
        launch->findings[launch->finding_count++].times = 1;
    }
    lock_give(&w->engine->finding_lock);
}

/* ---- groups of blocks ---- */

typedef struct segment_search {
    uintptr_t address;
    char *data;
    size_t size_bytes;
} segment_search;

static int find_shared(struct dl_phdr_info *info, size_t size, void *context)
{
    segment_search *s = context;
    (void)size;
    bool ours = false;
    size_t bytes = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t first = info->dlpi_addr + p->p_vaddr;
        if (p->p_type == PT_LOAD) ours |= s->address >= first && s->address < first + p->p_memsz;
        if (p->p_type == PT_TLS) bytes = p->p_memsz;
    }
    if (!ours) return 0;
    s->data = info->dlpi_tls_data;
    s->size_bytes = bytes;
    return 1;
}

/* The pieces of this host thread's shared memory that the launch may use: all of it but unused dynamic memory. */
static bool find_pieces(emu_worker *w)
{
    const emu_launch *launch = w->launch;
    segment_search s = {.address = (uintptr_t)launch->library_address};
    dl_iterate_phdr(find_shared, &s);
    if (!s.data) { /* the loader makes it at the first touch, and ends the process where it cannot: ask before */
        void *probe = malloc(s.size_bytes + 4096);
        heap_free(probe);
        if (!probe) return false;
        launch->touch();
        dl_iterate_phdr(find_shared, &s);
        if (!s.data) s.size_bytes = 0;
    }
    w->shared = s.data;
    w->shared_size = s.size_bytes;
    char *end = s.data + s.size_bytes, *dynamic = launch->dynamic ? launch->dynamic() : NULL;
    w->dynamic = dynamic;
    w->piece_count = 0;
    if (!dynamic) {
        w->pieces[w->piece_count++] = (emu_piece){s.data, s.size_bytes};
        return true;
    }
    w->pieces[w->piece_count++] = (emu_piece){s.data, (size_t)(dynamic - s.data)};
    w->pieces[w->piece_count++] = (emu_piece){dynamic, launch->shared_bytes};
    if (dynamic + EMU_DYNAMIC_BYTES < end)
        w->pieces[w->piece_count++] =
            (emu_piece){dynamic + EMU_DYNAMIC_BYTES, (size_t)(end - dynamic) - EMU_DYNAMIC_BYTES};
    return true;
}

/* Shared memory holds anything at first: NaN shows it. */
static void shared_spoil(emu_worker *w, char *base)
{
    for (int i = 0; i < w->piece_count; i++)
        memset(base + (w->pieces[i].data - w->shared), 0xff, w->pieces[i].size_bytes);
}

static void shared_copy(emu_worker *w, char *to, const char *from)
{
    for (int i = 0; i < w->piece_count; i++) {
        size_t offset = (size_t)(w->pieces[i].data - w->shared);
        memcpy(to + offset, from + offset, w->pieces[i].size_bytes);
    }
}

static void block_enter(emu_worker *w, emu_block *b)
{
    if (w->inside == b) return;
    if (w->inside && w->inside->image) shared_copy(w, w->inside->image, w->shared);
    if (b->image) shared_copy(w, w->shared, b->image);
    w->inside = b;
}

static bool block_prepare(emu_worker *w, emu_block *b, int64_t number, bool alone)
{
    const emu_launch *launch = w->launch;
    emu_warp *warps = b->warps;
    uint32_t *together = b->together;
    emu_shadow *shadow = b->shadow;
    char *image = b->image;
    emu_background_reset(b, false);
    emu_background *background = b->background;
    *b = (emu_block){
        .worker = w, .warps = warps, .together = together, .shadow = shadow, .image = image, .background = background};
    const uint32_t *grid = launch->grid;
    b->index[0] = (uint32_t)(number % grid[0]);
    b->index[1] = (uint32_t)(number / grid[0] % grid[1]);
    b->index[2] = (uint32_t)(number / grid[0] / grid[1]);
    b->number = (int)(b - w->blocks);
    b->cluster = (int)(number / launch->cluster_blocks);
    b->cluster_rank = (int)(number % launch->cluster_blocks);
    b->thread_count = (int)(launch->block[0] * launch->block[1] * launch->block[2]);
    b->live = b->thread_count;
    b->epoch = b->first_epoch = ++w->epochs;
    int warp_count = (b->thread_count + EMU_WARP - 1) / EMU_WARP;
    if (!b->warps) b->warps = calloc(EMU_MAX_THREADS / EMU_WARP, sizeof(emu_warp));
    if (!b->warps) return false;
    if (launch->checked && !b->together)
        b->together = calloc(EMU_MAX_THREADS / EMU_WARP, EMU_WARP * EMU_WARP * sizeof(uint32_t));
    if (launch->checked && !b->shadow) b->shadow = emu_shadow_new(w->shared_size);
    if (launch->checked && (!b->together || !b->shadow)) return false;
    for (int i = 0; i < warp_count; i++) {
        b->warps[i].waiting = 0;
        b->warps[i].together = launch->checked ? b->together + (size_t)i * EMU_WARP * EMU_WARP : NULL;
    }
    if (alone) {
        shared_spoil(w, w->shared);
        return true;
    }
    if (!b->image) b->image = malloc(w->shared_size + 1);
    if (!b->image) return false;
    shared_spoil(w, b->image);
    return true;
}

/* Blocks first .. first+count-1 live at once. */
static void run_group(emu_worker *w, int64_t first, int count)
{
    w->inside = NULL;
    w->block_count = count;
    w->together++;
    for (int i = 0; i < count; i++)
        if (!block_prepare(w, &w->blocks[i], first + i, count == 1)) w->no_memory = w->stopping = true;
    for (bool alive = true; alive && !w->stopping;) {
        bool moved = false;
        alive = false;
        for (int i = 0; i < count && !w->stopping; i++) {
            emu_block *b = &w->blocks[i];
            while ((b->ready || b->started < b->thread_count) && !w->stopping) {
                block_enter(w, b);
                emu_thread *t = emu_pop_ready(b);
                if (!t) t = emu_thread_new(b);
                if (!t) {
                    w->no_memory = w->stopping = true;
                    break;
                }
                moved = true;
                emu_switch(&w->stack_pointer, t->stack_pointer);
                if (w->gave_way) break;
            }
            w->gave_way = false;
            alive |= b->live > 0;
        }
        if (alive && !moved && !w->stopping) {
            emu_report_stuck(w);
            w->stopping = true;
        }
    }
}

static void blocks_free(emu_worker *w)
{
    for (int i = 0; i < w->block_capacity; i++) {
        heap_free(w->blocks[i].warps);
        heap_free(w->blocks[i].together);
        heap_free(w->blocks[i].image);
        emu_background_reset(&w->blocks[i], true);
        emu_shadow_free(w->blocks[i].shadow);
    }
    heap_free(w->blocks);
    w->blocks = NULL;
    w->block_capacity = 0;
}

static void range_shadows_free(emu_worker *w)
{
    for (int i = 0; i < EMU_MAX_RANGES; i++) {
        emu_shadow_free(w->range_shadows[i]);
        w->range_shadows[i] = NULL;
        w->range_tried[i] = false;
    }
}

typedef struct job {
    emu_engine *engine;
    emu_launch *launch;
    int group_blocks;
    _Atomic bool no_memory;
} job;

static void work(void *context, int64_t first, int64_t last, int number)
{
    job *j = context;
    emu_worker *w = &j->engine->workers[number];
    w->engine = j->engine;
    w->launch = j->launch;
    w->stopping = w->no_memory = false;
    w->spins = 0;
    if (!find_pieces(w)) {
        j->no_memory = true;
        return;
    }
    /* Images, shadows and blocks have the size of this launch's shared memory. */
    if (w->block_capacity < j->group_blocks || w->blocks_shared_size != w->shared_size) {
        blocks_free(w);
        w->blocks = calloc((size_t)j->group_blocks, sizeof(emu_block));
        w->block_capacity = w->blocks ? j->group_blocks : 0;
        w->blocks_shared_size = w->shared_size;
        if (!w->blocks) w->no_memory = true;
    }
    for (int64_t g = first; g < last && !w->no_memory && !w->stopping && !j->launch->stopped; g++)
        run_group(w, g * j->group_blocks, j->group_blocks);
    /* Threads that were left in the middle: their stacks are nobody's. Very many: they would hold much memory. */
    if (w->stopping || w->chunk_count > KEPT_CHUNKS) emu_stacks_free(w);
    if (w->no_memory) j->no_memory = true;
}

qn_status emu_engine_run(emu_engine *e, emu_launch *launch, qn_error *error)
{
    int64_t blocks = (int64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
    int64_t threads = (int64_t)launch->block[0] * launch->block[1] * launch->block[2];
    if (threads > EMU_MAX_THREADS)
        return error_set(error, QN_BAD_CALL, "a block of %u x %u x %u = %lld threads: a block has at most %d threads",
                         launch->block[0], launch->block[1], launch->block[2], (long long)threads, EMU_MAX_THREADS);
    if (launch->shared_bytes > EMU_DYNAMIC_BYTES)
        return error_set(error, QN_BAD_CALL, "%llu bytes of shared memory: a block has at most %d",
                         (unsigned long long)launch->shared_bytes, EMU_DYNAMIC_BYTES);
    if (!blocks || !threads) return QN_OK;
    if (launch->cluster_blocks < 1) launch->cluster_blocks = 1;
    if (blocks % launch->cluster_blocks)
        return error_set(error, QN_BAD_CALL, "%lld blocks are not whole clusters of %d", (long long)blocks,
                         launch->cluster_blocks);
    CHECK(launch->range_count <= EMU_MAX_RANGES);
    lock_take(&e->lock);
    if (!e->pool) {
        e->pool = pool_new(e->threads);
        e->workers = heap_array((size_t)e->threads, sizeof(emu_worker));
    }
    job j = {.engine = e, .launch = launch, .group_blocks = launch->cooperative ? (int)blocks : launch->cluster_blocks};
    int64_t groups = blocks / j.group_blocks;
    /* Small launches are not worth waking anybody. */
    pool_run(e->pool, groups, blocks * threads < 4096 ? groups : 1, work, &j);
    for (int i = 0; i < e->threads; i++) range_shadows_free(&e->workers[i]);
    lock_give(&e->lock);
    if (j.no_memory)
        return error_set(error, QN_NO_MEMORY, "no memory for the stacks of %lld threads that live at once",
                         (long long)threads * j.group_blocks);
    return QN_OK;
}

emu_engine *emu_engine_new(int threads)
{
    emu_engine *e = heap_new(sizeof(*e));
    e->threads = MAXIMUM(threads, 1);
    pthread_mutex_init(&e->lock, NULL);
    pthread_mutex_init(&e->finding_lock, NULL);
    return e;
}

void emu_engine_free(emu_engine *e)
{
    if (!e) return;
    for (int i = 0; e->workers && i < e->threads; i++) {
        emu_stacks_free(&e->workers[i]);
        blocks_free(&e->workers[i]);
    }
    heap_free(e->workers);
    pool_free(e->pool);
    pthread_mutex_destroy(&e->lock);
    pthread_mutex_destroy(&e->finding_lock);
    heap_free(e);
}
