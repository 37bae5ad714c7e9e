/*
 * Batches ahead of time. Threads take numbers one after the other; batch n belongs into slot n modulo the slots, and is
 * filled once the batch before it in that slot was handed out and given back. The consumer takes slots in order. The
 * first failure or end, by number, ends the data; batches before it are still handed out.
 * Invariants, under the lock: given <= next_number <= given + slots (given: batches that came back); a slot is `ready`
 * only with the batch of the number in it.
 * SPDX-License-Identifier: MIT
 */
#include "run/run.h"

#define QN_NO_CALL_SITES
#include <quern/loader.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct slot {
    qn_loaded batch;
    qn_buffer *memory[QN_LOADER_FIELDS];
    bool ready;
    qn_status status;
    qn_error error;
} slot;

struct qn_loader {
    qn_loader_options options;
    size_t field_bytes[QN_LOADER_FIELDS];
    slot *slots;
    int slot_count, thread_count;
    pthread_t *threads;
    pthread_mutex_t lock;
    pthread_cond_t filled, freed;
    int64_t next_number; /* to be filled */
    int64_t taken;       /* the number of the batch that the consumer gets next */
    int64_t given;       /* batches below this came back */
    int64_t end;         /* no batch from this number on */
    bool closing;
    qn_loader_waits waits;
};

/* ---- in the background ---- */

static void *work(void *user)
{
    qn_loader *self = user;
    lock_take(&self->lock);
    for (;;) {
        while (!self->closing && self->next_number < self->end && self->next_number >= self->given + self->slot_count)
            pthread_cond_wait(&self->freed, &self->lock);
        if (self->closing || self->next_number >= self->end) break;
        int64_t number = self->next_number++;
        slot *s = &self->slots[number % self->slot_count];
        lock_give(&self->lock);
        s->batch.number = number;
        s->batch.rows = 0;
        s->error.message[0] = 0;
        for (int k = 0; k < self->options.field_count; k++) buffer_settle(s->memory[k]); /* the batch before it */
        s->status = self->options.fill(&s->batch, self->options.user, &s->error);
        lock_take(&self->lock);
        if ((s->status || s->batch.rows <= 0) && number < self->end) self->end = number;
        s->ready = true;
        pthread_cond_broadcast(&self->filled);
        if (number >= self->end) pthread_cond_broadcast(&self->freed); /* the others need not wait for room */
    }
    lock_give(&self->lock);
    return NULL;
}

/* ---- making ---- */

static qn_status check(const qn_loader_options *o, size_t *field_bytes, qn_error *error)
{
    if (!o->fill) return error_set(error, QN_BAD_CALL, "qn_loader_new: the function is NULL");
    if (o->field_count < 0 || o->field_count > QN_LOADER_FIELDS || o->threads < 0 || o->threads > 256 || o->slots < 0 ||
        o->first < 0)
        return error_set(error, QN_BAD_CALL, "qn_loader_new: %d fields, %d threads, %d slots from batch %lld",
                         o->field_count, o->threads, o->slots, (long long)o->first);
    for (int i = 0; i < o->field_count; i++) {
        const qn_field *f = &o->fields[i];
        size_t size = qn_dtype_size_bytes(f->type); /* none: no type */
        bool good = size && f->shape.rank >= 0 && f->shape.rank <= QN_TENSOR_RANK;
        for (int k = 0; good && k < f->shape.rank; k++)
            good = f->shape.extents[k] >= 0 && !__builtin_mul_overflow(size, (size_t)f->shape.extents[k], &size);
        if (!good) return error_set(error, QN_BAD_CALL, "qn_loader_new: field %d has no type or shape", i);
        field_bytes[i] = size;
    }
    return QN_OK;
}

static qn_status open_slots(qn_loader *self, qn_context *context, qn_error *error)
{
    for (int i = 0; i < self->slot_count; i++)
        for (int k = 0; k < self->options.field_count; k++) {
            slot *s = &self->slots[i];
            QN_TRY(self->options.device
                       ? buffer_new_locked(context, self->options.device, self->field_bytes[k], &s->memory[k], error)
                       : qn_buffer_new(context, self->field_bytes[k], &s->memory[k], error));
            s->batch.fields[k] = qn_buffer_data(s->memory[k]);
        }
    return QN_OK;
}

qn_status qn_loader_new(qn_context *context, const qn_loader_options *options, qn_loader **loader, qn_error *error)
{
    if (!context || !options || !loader) return error_set(error, QN_BAD_CALL, "qn_loader_new: an argument is NULL");
    *loader = NULL;
    size_t field_bytes[QN_LOADER_FIELDS] = {0};
    QN_TRY(check(options, field_bytes, error));
    qn_loader *self = heap_new(sizeof(*self));
    int threads = MAXIMUM(options->threads, 1);
    self->options = *options;
    memcpy(self->field_bytes, field_bytes, sizeof(field_bytes));
    /* one is with the consumer: with fewer than two nothing is ahead of time */
    self->slot_count = options->slots ? MAXIMUM(options->slots, 2) : threads + 2;
    self->slots = heap_array((size_t)self->slot_count, sizeof(slot));
    self->threads = heap_array((size_t)threads, sizeof(pthread_t));
    self->next_number = self->taken = self->given = options->first;
    self->end = INT64_MAX;
    pthread_mutex_init(&self->lock, NULL);
    pthread_cond_init(&self->filled, NULL);
    pthread_cond_init(&self->freed, NULL);
    qn_status status = open_slots(self, context, error);
    for (int i = 0; i < threads && !status; i++) {
        if (pthread_create(&self->threads[i], NULL, work, self))
            status = error_set(error, QN_FAILED, "qn_loader_new: no thread can be started");
        else
            self->thread_count++;
    }
    if (status) {
        qn_loader_free(self);
        return status;
    }
    *loader = self;
    return QN_OK;
}

void qn_loader_free(qn_loader *self)
{
    if (!self || heap_is_stopped()) return;
    lock_take(&self->lock);
    self->closing = true;
    pthread_cond_broadcast(&self->freed);
    lock_give(&self->lock);
    for (int i = 0; i < self->thread_count; i++) pthread_join(self->threads[i], NULL);
    for (int i = 0; i < self->slot_count; i++)
        for (int k = 0; k < QN_LOADER_FIELDS; k++) qn_buffer_release(self->slots[i].memory[k]);
    pthread_mutex_destroy(&self->lock);
    pthread_cond_destroy(&self->filled);
    pthread_cond_destroy(&self->freed);
    heap_free(self->threads);
    heap_free(self->slots);
    heap_free(self);
}

/* ---- taking ---- */

/* The batch that was handed out last comes back. */
static void give_back(qn_loader *self)
{
    if (self->given == self->taken) return;
    self->slots[self->given % self->slot_count].ready = false;
    self->given++;
    pthread_cond_broadcast(&self->freed);
}

static void await(qn_loader *self, const slot *s)
{
    if (s->ready && s->batch.number == self->taken) return;
    int64_t begun = clock_now_ns();
    while (!(s->ready && s->batch.number == self->taken)) pthread_cond_wait(&self->filled, &self->lock);
    self->waits.waits++;
    self->waits.wait_ns += clock_now_ns() - begun;
}

qn_status qn_loader_next(qn_loader *self, const qn_loaded **batch, qn_error *error)
{
    if (!self || !batch) return error_set(error, QN_BAD_CALL, "qn_loader_next: an argument is NULL");
    lock_take(&self->lock);
    give_back(self);
    slot *s = &self->slots[self->taken % self->slot_count];
    await(self, s); /* also the batch that ends the data: it is filled, and stays */
    qn_status status = s->status;
    *batch = &s->batch;
    if (status) {
        if (error) *error = s->error;
        if (error && !error->message[0]) error_set(error, status, "the function that fills batches failed");
        *batch = NULL;
    } else if (s->batch.rows > 0) {
        self->taken++;
        self->waits.batches++;
    }
    lock_give(&self->lock);
    return status;
}

qn_status qn_loader_feed(qn_loader *self, const qn_tensor *tensors, int64_t *rows, qn_error *error)
{
    const qn_loaded *batch;
    if (!self || !rows || (self->options.field_count && !tensors))
        return error_set(error, QN_BAD_CALL, "qn_loader_feed: an argument is NULL");
    *rows = 0;
    QN_TRY(qn_loader_next(self, &batch, error));
    for (int i = 0; i < self->options.field_count && batch->rows > 0; i++) {
        if (qn_tensor_dtype(tensors[i]) != self->options.fields[i].type)
            return error_set(error, QN_BAD_CALL, "qn_loader_feed: tensor %d is %s, its field %s", i,
                             qn_dtype_name(qn_tensor_dtype(tensors[i])), qn_dtype_name(self->options.fields[i].type));
        QN_TRY(qn_tensor_write(tensors[i], batch->fields[i], self->field_bytes[i], error));
    }
    *rows = batch->rows;
    return QN_OK;
}

int64_t qn_loader_position(const qn_loader *self)
{
    return self ? self->taken : 0;
}

qn_loader_waits qn_loader_statistics(const qn_loader *self)
{
    return self ? self->waits : (qn_loader_waits){0};
}
