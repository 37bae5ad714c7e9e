/*
 * Products of four warps (wgmma) in `emu`. In: what a thread asks for. Out: its own part of the sums, when it waits.
 *
 * A product is one of four warps together, and so is a group of them: it runs once all four have asked for it, and it is
 * over for all of them when one of them has waited. It runs as late as it may, when the first thread waits: a room that was
 * filled again too early gives other numbers. A thread gets its part, of the 64 x n sums the rows lane / 4 and lane / 4 + 8
 * of its warp's 16 and of every 8 columns two, when it waits itself. In the checked mode the sums are NaN from the asking
 * on, so that who looks at them too early sees it.
 * SPDX-License-Identifier: MIT
 */
#include "device/emu/worker.h"
#include "ir/tile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { K_BYTES = 32, MOST_K = 32, ROWS = 64, TOGETHER = 4 * EMU_WARP };

typedef struct matrix_place { /* a descriptor, read */
    uint32_t first, leading, stride;
    int swizzle;
} matrix_place;

static matrix_place place_of(uint64_t descriptor)
{
    static const int swizzles[] = {0, 128, 64, 32};
    return (matrix_place){.first = (uint32_t)(descriptor & 0x3fff) << 4,
                          .leading = (uint32_t)(descriptor >> 16 & 0x3fff) << 4,
                          .stride = (uint32_t)(descriptor >> 32 & 0x3fff) << 4,
                          .swizzle = swizzles[descriptor >> 62]};
}

static int elem_bytes(int type)
{
    return type == EMU_TF32 ? 4 : type == EMU_BF16 || type == EMU_F16 ? 2 : 1;
}

/* The byte of element (line, k): a row of a, or a column of b. turned: lines of m or n instead of k. */
static uint32_t byte_of(const matrix_place *p, int line, int k, int size, bool turned)
{
    uint32_t width = (uint32_t)(p->swizzle ? p->swizzle : 16), at;
    if (turned) {
        uint32_t in_line = width / (uint32_t)size, l = (uint32_t)line;
        at = p->first + l / in_line * p->leading + l % in_line * (uint32_t)size + (uint32_t)(k / 8) * p->stride +
             (uint32_t)(k % 8) * width;
    } else {
        uint32_t byte = (uint32_t)(k * size);
        at = p->first + (uint32_t)(line / 8) * p->stride + (uint32_t)(line % 8) * width;
        at += p->swizzle ? byte : byte / 16 * p->leading + byte % 16;
    }
    uint32_t mask = p->swizzle == 128 ? 7 : p->swizzle == 64 ? 3 : p->swizzle == 32 ? 1 : 0;
    return at ^ ((at >> 7 & mask) << 4);
}

/* 4 bits of exponent (bias 7), 3 of mantissa, no infinity. */
static float e4m3_to_float(uint8_t bits)
{
    int exponent = bits >> 3 & 15, mantissa = bits & 7;
    float x = exponent ? ldexpf((float)(8 + mantissa), exponent - 10) : ldexpf((float)mantissa, -9);
    if ((bits & 0x7f) == 0x7f) x = NAN;
    return bits & 0x80 ? -x : x;
}

static float element_of(int type, const void *from)
{
    uint16_t half;
    uint32_t word;
    float real;
    switch (type) {
    case EMU_BF16:
        memcpy(&half, from, sizeof(half));
        word = (uint32_t)half << 16;
        memcpy(&real, &word, sizeof(real));
        return real;
    case EMU_F16: memcpy(&half, from, sizeof(half)); return (float)f16_to_double(half);
    case EMU_TF32: /* the low bits are not looked at */
        memcpy(&word, from, sizeof(word));
        word &= 0xffffe000u;
        memcpy(&real, &word, sizeof(real));
        return real;
    case EMU_E4M3: return e4m3_to_float(*(const uint8_t *)from);
    default: return *(const int8_t *)from;
    }
}

/* The thread's two rows of the left operand. */
static void read_left(int thread, const emu_product *p, const char *memory, float left[2][MOST_K])
{
    int size = elem_bytes(p->call.type), count = K_BYTES / size;
    int row = thread / EMU_WARP % 4 * 16 + thread % EMU_WARP / 4;
    matrix_place a = place_of(p->call.a);
    for (int half = 0; half < 2; half++)
        for (int k = 0; k < count; k++) {
            if (!p->call.registers) {
                left[half][k] = element_of(p->call.type, memory + byte_of(&a, row + 8 * half, k, size, p->call.turn_a));
                continue;
            }
            /* Register r of a lane: row r % 2, the half r / 2 of k; four bytes of it. */
            int in_half = k % (count / 2), lane = in_half * size / 4;
            const char *word = (const char *)&p->left[lane * 4 + half + (k >= count / 2 ? 2 : 0)];
            left[half][k] = element_of(p->call.type, word + in_half * size % 4);
        }
}

/* sums: before, and after. */
static void multiply(const emu_block *b, int thread, const emu_product *p, uint32_t *sums)
{
    const emu_matrix_call *c = &p->call;
    const char *memory = emu_block_memory(b);
    int size = elem_bytes(c->type), count = K_BYTES / size;
    float left[2][MOST_K];
    read_left(thread, p, memory, left);
    matrix_place place = place_of(c->b);
    for (int column = 0; column < c->n / 4; column++) {
        int n = column / 2 * 8 + thread % 4 * 2 + column % 2;
        float right[MOST_K];
        for (int k = 0; k < count; k++) right[k] = element_of(c->type, memory + byte_of(&place, n, k, size, c->turn_b));
        for (int half = 0; half < 2; half++) {
            int at = column / 2 * 4 + half * 2 + column % 2;
            if (c->type == EMU_S8) {
                int32_t sum = c->add ? (int32_t)sums[at] : 0;
                for (int k = 0; k < count; k++) sum += (int32_t)(left[half][k] * right[k]);
                memcpy(&sums[at], &sum, sizeof(sum));
            } else {
                float sum = 0;
                if (c->add) memcpy(&sum, &sums[at], sizeof(sum));
                for (int k = 0; k < count; k++) sum += left[half][k] * right[k];
                memcpy(&sums[at], &sum, sizeof(sum));
            }
        }
    }
}

static size_t sums_bytes(const emu_product *p)
{
    return (size_t)p->call.n / 2 * sizeof(uint32_t);
}

/* What a thread has asked for up to a group. The sums go from product to product; between groups they are kept, since the
 * thread may wait for one and not for the next. */
static void run_products(const emu_block *b, int thread, uint32_t last)
{
    emu_products *p = &b->background->products[thread];
    for (int i = 0; i < p->count && p->list[i].group && p->list[i].group <= last; i++) {
        emu_product *now = &p->list[i], *before = NULL;
        if (now->ran) continue;
        for (int o = 0; o < i; o++)
            if (p->list[o].call.sums == now->call.sums && p->list[o].result) before = &p->list[o];
        if (before && before->group == now->group) {
            now->result = before->result;
            before->result = NULL;
        } else {
            now->result = malloc(sums_bytes(now));
            CHECK(now->result);
            memcpy(now->result, before ? before->result : now->saved ? now->saved : now->call.sums, sums_bytes(now));
        }
        multiply(b, thread, now, now->result);
        now->ran = true;
    }
}

/* The first and last byte that an operand may touch. */
static void span_of(uint64_t descriptor, int lines, int type, bool turned, uint32_t *first, uint32_t *end)
{
    matrix_place p = place_of(descriptor);
    int size = elem_bytes(type);
    uint32_t last = byte_of(&p, lines - 1, K_BYTES / size - 1, size, turned);
    *first = p.first & ~(uint32_t)127;
    *end = (last | 127) + 1;
}

int emu_matrix_reads(const emu_block *b, uint32_t offset, uint32_t size_bytes)
{
    for (int t = 0; b->background && t < b->thread_count; t++) {
        const emu_products *products = &b->background->products[t];
        for (int i = 0; i < products->count; i++) {
            const emu_matrix_call *c = &products->list[i].call;
            uint32_t first, end;
            if (products->list[i].ran) continue;
            span_of(c->b, c->n, c->type, c->turn_b, &first, &end);
            if (first < offset + size_bytes && offset < end) return c->line;
            if (c->registers) continue;
            span_of(c->a, ROWS, c->type, c->turn_a, &first, &end);
            if (first < offset + size_bytes && offset < end) return c->line;
        }
    }
    return 0;
}

/* The sums are in the product's hands: kept aside, and NaN for everybody else. */
static void hide_sums(emu_product *p)
{
    size_t bytes = sums_bytes(p);
    p->saved = malloc(bytes);
    CHECK(p->saved);
    memcpy(p->saved, p->call.sums, bytes);
    memset(p->call.sums, 0xff, bytes);
}

EMU_ON_STACK static void check_operands(emu_thread *self, const emu_matrix_call *c)
{
    const emu_background *g = self->block->background;
    emu_place at = {c->file, c->line};
    for (int operand = c->registers ? 1 : 0; operand < 2; operand++) {
        uint32_t first, end;
        if (operand)
            span_of(c->b, c->n, c->type, c->turn_b, &first, &end);
        else
            span_of(c->a, ROWS, c->type, c->turn_a, &first, &end);
        if (end > self->worker->shared_size) {
            emu_failed(self, at, true, "a product of what is not shared memory: bytes %u to %u", first, end);
            return;
        }
        emu_check_fenced(self, first, end - first, "a product", at);
        for (int i = 0; i < g->in_count; i++)
            if (g->in[i].offset < end && first < g->in[i].offset + g->in[i].size_bytes) {
                emu_failed(self, at, false, "no wait: a product of shared memory that a copy still fills (line %d)",
                           g->in[i].at.line);
                break;
            }
    }
}

EMU_ON_STACK void emu_call_matrix(emu_thread *self, const emu_matrix_call *call)
{
    emu_products *p = &emu_background_of(self->block)->products[self->number];
    if (p->count == p->capacity) {
        int more = p->capacity ? p->capacity * 2 : 8;
        emu_product *grown = realloc(p->list, (size_t)more * sizeof(*grown));
        CHECK(grown);
        p->list = grown;
        p->capacity = more;
    }
    bool known = false;
    for (int i = 0; i < p->count; i++) known |= p->list[i].call.sums == call->sums;
    emu_product *next = &p->list[p->count++];
    *next = (emu_product){.call = *call};
    if (call->registers) memcpy(next->left, call->registers + (size_t)(self->lane & ~3u) * 4, sizeof(next->left));
    if (!self->worker->launch->checked) return;
    if (!p->fenced)
        emu_failed(self, (emu_place){call->file, call->line}, false,
                   "no fence: matrix_fence() stands between the use of sums and the next product");
    check_operands(self, call);
    if (!known) hide_sums(next);
}

/* Have all warps of the four asked for it? */
static bool is_whole(const emu_block *b, int first, uint32_t group)
{
    for (int t = first; t < first + TOGETHER && t < b->thread_count; t++)
        if (b->background->products[t].groups < group) return false;
    return true;
}

EMU_ON_STACK void emu_call_matrix_commit(emu_thread *self)
{
    emu_block *b = self->block;
    emu_products *p = &emu_background_of(b)->products[self->number];
    int first = (int)self->number / TOGETHER * TOGETHER;
    p->groups++;
    for (int i = 0; i < p->count; i++)
        if (!p->list[i].group) p->list[i].group = p->groups;
    for (int n = 0; n < TOGETHER; n++) {
        int number = first + (int)emu_turn(b, n, TOGETHER);
        emu_thread *t = number < b->thread_count ? b->threads[number] : NULL;
        if (!t || t->state != EMU_AT_MATRIX) continue;
        if (is_whole(b, first, b->background->products[number].awaited)) emu_push_ready(t);
    }
}

EMU_ON_STACK void emu_call_matrix_wait(emu_thread *self, int pending, const char *file, int line)
{
    emu_block *b = self->block;
    emu_products *p = &emu_background_of(b)->products[self->number];
    int done = 0, first = (int)self->number / TOGETHER * TOGETHER;
    if (pending == EMU_MATRIX_FENCE) {
        p->fenced = true;
        return;
    }
    p->awaited = p->groups > (uint32_t)pending ? p->groups - (uint32_t)pending : 0;
    if (!p->count || !p->list[0].group || p->list[0].group > p->awaited) return;
    self->place = (emu_place){file, line};
    while (!is_whole(b, first, p->awaited)) {
        self->state = EMU_AT_MATRIX;
        emu_wait(self);
    }
    for (int t = first; t < first + TOGETHER && t < b->thread_count; t++)
        if (b->threads[t]) run_products(b, t, p->awaited);
    for (; done < p->count && p->list[done].ran && p->list[done].group <= p->awaited; done++) {
        emu_product *now = &p->list[done];
        if (now->result) memcpy(now->call.sums, now->result, sums_bytes(now));
        heap_free(now->result);
        heap_free(now->saved);
    }
    p->count -= done;
    p->fenced = false;
    memmove(p->list, p->list + done, (size_t)p->count * sizeof(*p->list));
    for (int i = 0; i < p->count && self->worker->launch->checked; i++) {
        bool known = p->list[i].saved != NULL;
        for (int o = 0; o < i; o++) known |= p->list[o].call.sums == p->list[i].call.sums;
        if (!known) hide_sums(&p->list[i]);
    }
}
