/*
 * Bytes of a log. In: a file, plain or gzip. Out: its text, piece by piece.
 *
 * Expanding gzip is the slowest part of reading a log and cannot be split, so a thread does it ahead of the reader, into
 * a ring of blocks; short files are expanded by the reader itself. SPDX-License-Identifier: MIT
 */
#include "data/stream.h"
#include "data/codec.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES ((size_t)512 << 10)
#define BLOCK_COUNT 4
#define INPUT_BYTES ((size_t)256 << 10)
#define ALONE_BYTES ((int64_t)1 << 20) /* files below are not worth a thread */

typedef struct block {
    char *bytes;
    int64_t size; /* 0: the end; -1: a fault */
} block;

struct stream {
    const data_file *file;
    int64_t at; /* of the file */
    gunzip *expand;
    uint8_t *input;
    size_t input_at, input_size;
    bool output_left; /* zlib still holds expanded bytes */
    const char *fault;
    /* The ring: blocks [taken, made) are full. */
    bool threaded, stop;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    block blocks[BLOCK_COUNT];
    uint64_t made, taken;
    int64_t block_at; /* within the first full one */
};

static int64_t read_plain(stream *s, void *to, size_t room)
{
    int64_t size = MINIMUM((int64_t)room, s->file->size_bytes - s->at);
    if (size <= 0) return 0;
    if (!file_take(s->file, s->at, to, (size_t)size)) {
        s->fault = "the file became shorter while it was read, or cannot be read";
        return -1;
    }
    s->at += size;
    return size;
}

static int64_t read_gzip(stream *s, char *to, size_t room)
{
    size_t done = 0;
    while (done < room) {
        if (s->input_at == s->input_size && !s->output_left) {
            int64_t got = read_plain(s, s->input, INPUT_BYTES);
            if (got < 0) return -1;
            if (!got && !gunzip_at_end(s->expand)) {
                s->fault = "the gzip file is cut short: fetch it again";
                return done ? (int64_t)done : -1; /* first what there is, so that the line is known */
            }
            if (!got) break;
            s->input_at = 0;
            s->input_size = (size_t)got;
        }
        size_t in = s->input_size - s->input_at, out = room - done;
        if (!gunzip_some(s->expand, s->input + s->input_at, &in, to + done, &out)) {
            s->fault = "the gzip file is damaged: fetch it again";
            return done ? (int64_t)done : -1;
        }
        s->input_at += in;
        done += out;
        s->output_left = done == room;
    }
    return (int64_t)done;
}

static void *run_ahead(void *context)
{
    stream *s = context;
    for (bool more = true; more;) {
        lock_take(&s->lock);
        while (s->made - s->taken == BLOCK_COUNT && !s->stop) pthread_cond_wait(&s->moved, &s->lock);
        bool stop = s->stop;
        lock_give(&s->lock);
        if (stop) break;
        block *b = &s->blocks[s->made % BLOCK_COUNT];
        b->size = read_gzip(s, b->bytes, BLOCK_BYTES);
        more = b->size > 0;
        lock_take(&s->lock);
        s->made++;
        pthread_cond_signal(&s->moved);
        lock_give(&s->lock);
    }
    return NULL;
}

stream *stream_open(const data_file *file, bool gzip)
{
    stream *s = calloc(1, sizeof(*s));
    if (!s) return NULL;
    s->file = file;
    if (!gzip) return s;
    s->expand = gunzip_new();
    s->input = malloc(INPUT_BYTES);
    bool sound = s->expand && s->input;
    if (sound && file->size_bytes > ALONE_BYTES) {
        for (int i = 0; i < BLOCK_COUNT && sound; i++) sound = (s->blocks[i].bytes = malloc(BLOCK_BYTES)) != NULL;
        pthread_mutex_init(&s->lock, NULL);
        pthread_cond_init(&s->moved, NULL);
        s->threaded = sound && !pthread_create(&s->thread, NULL, run_ahead, s);
    }
    if (sound) return s;
    stream_close(s);
    return NULL;
}

void stream_close(stream *s)
{
    if (!s) return;
    if (s->threaded) {
        lock_take(&s->lock);
        s->stop = true;
        pthread_cond_signal(&s->moved);
        lock_give(&s->lock);
        pthread_join(s->thread, NULL);
    }
    for (int i = 0; i < BLOCK_COUNT; i++) free(s->blocks[i].bytes);
    gunzip_free(s->expand);
    free(s->input);
    free(s);
}

static int64_t take_block(stream *s, char *to, size_t room)
{
    lock_take(&s->lock);
    while (s->made == s->taken) pthread_cond_wait(&s->moved, &s->lock);
    lock_give(&s->lock);
    block *b = &s->blocks[s->taken % BLOCK_COUNT];
    if (b->size <= 0) return b->size; /* the last one stays */
    int64_t size = MINIMUM((int64_t)room, b->size - s->block_at);
    memcpy(to, b->bytes + s->block_at, (size_t)size);
    s->block_at += size;
    if (s->block_at < b->size) return size;
    s->block_at = 0;
    lock_take(&s->lock);
    s->taken++;
    pthread_cond_signal(&s->moved);
    lock_give(&s->lock);
    return size;
}

int64_t stream_read(stream *s, void *to, size_t room, const char **fault)
{
    int64_t size = s->threaded ? take_block(s, to, room) : s->expand ? read_gzip(s, to, room) : read_plain(s, to, room);
    if (size < 0) *fault = s->fault;
    return size;
}
