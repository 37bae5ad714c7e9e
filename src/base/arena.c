/*
 * Arenas: blocks of memory that are freed together. In: sizes. Out: zeroed memory aligned to 16 bytes.
 * Blocks grow from 1 to 64 KiB, so that an arena of a few words costs a few words; what is larger gets a block of its own, and
 * very large ones ask for huge pages, since most of the cost of a growing graph would be the faults of small ones. When the system has no memory left it comes from the
 * reserve of heap.c: no caller checks.
 * SPDX-License-Identifier: MIT
 */
#include "base/base.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MAPPED_BYTES ((size_t)4 << 20) /* blocks from here on are mapped pages of their own */

typedef struct block {
    struct block *next;
    size_t size, used;
    size_t mapped_bytes; /* 0: on the heap */
    _Alignas(16) char data[];
} block;

struct arena {
    block *blocks;
    size_t used_bytes;
};

_Noreturn void base_check_failed(const char *condition, const char *file, int line)
{
    fprintf(stderr, "quern: internal error at %s:%d: %s\n", file, line, condition);
    abort();
}

static block *block_new(size_t capacity)
{
    size_t size = sizeof(block) + capacity;
    if (size < capacity) size = SIZE_MAX; /* which nobody has */
    heap_in_use((int64_t)MINIMUM(size, (size_t)INT64_MAX));
#if defined(MADV_HUGEPAGE) && !defined(__SANITIZE_ADDRESS__)
    if (size >= MAPPED_BYTES) {
        block *b = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (b != MAP_FAILED) {
            madvise(b, size, MADV_HUGEPAGE);
            b->mapped_bytes = size;
            return b;
        }
    }
#endif
    return heap_new(size);
}

static void block_free(block *b)
{
    heap_in_use(-(int64_t)(sizeof(block) + b->size));
    if (b->mapped_bytes)
        munmap(b, b->mapped_bytes);
    else
        heap_free(b);
}

arena *arena_new(void)
{
    return heap_new(sizeof(arena));
}

void arena_free(arena *a)
{
    if (!a) return;
    for (block *b = a->blocks; b;) {
        block *next = b->next;
        block_free(b);
        b = next;
    }
    heap_free(a);
}

void *arena_alloc(arena *a, size_t size_bytes)
{
    size_t size = (size_bytes + 15) & ~(size_t)15;
    if (size < size_bytes) size = SIZE_MAX & ~(size_t)15;
    block *b = a->blocks;
    if (!b || b->size - b->used < size) {
        size_t next = b ? MINIMUM(4 * b->size, (size_t)65536) : 1024;
        size_t usual = heap_is_short() ? MINIMUM(next, (size_t)4096) : next; /* of the reserve no more than is needed */
        size_t capacity = MAXIMUM(size, usual);
        b = block_new(capacity);
        b->size = capacity;
        b->next = a->blocks;
        a->blocks = b;
    }
    void *memory = b->data + b->used;
    b->used += size;
    a->used_bytes += size;
    return memory;
}

char *arena_copy_text(arena *a, const char *words, size_t length)
{
    char *copy = arena_alloc(a, length + 1);
    if (length) memcpy(copy, words, length);
    return copy;
}

char *arena_print(arena *a, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int length = plain_print_list(NULL, 0, format, list);
    va_end(list);
    CHECK(length >= 0);
    char *words = arena_alloc(a, (size_t)length + 1);
    va_start(list, format);
    plain_print_list(words, (size_t)length + 1, format, list);
    va_end(list);
    return words;
}

size_t arena_used_bytes(const arena *a)
{
    return a->used_bytes;
}

void *arena_grow(arena *a, const void *items, size_t count, int *capacity, size_t item_size)
{
    *capacity = *capacity ? *capacity * 2 : 8;
    void *grown = arena_alloc(a, (size_t)*capacity * item_size);
    if (count) memcpy(grown, items, count * item_size);
    return grown;
}
