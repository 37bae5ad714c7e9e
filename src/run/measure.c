/*
 * The public measuring call. In: a context and a size. Out: the ceilings of the machine the devices run on.
 * The measuring loops are a binary of the cpu device like any kernel, so they come from the cache after the first time.
 * SPDX-License-Identifier: MIT
 */
#include "device/ceilings.h"
#include "run/cache.h"
#include "run/run.h"

typedef struct loops {
    const device_slot *slot;
    const char *source;
} loops;

static qn_status assemble(void *context, const char *path, qn_error *error)
{
    loops *l = context;
    return l->slot->driver->assemble(l->slot->device, l->source, path, error);
}

qn_status qn_measure(qn_context *context, const char *device, size_t copy_bytes, qn_ceilings *out, qn_error *error)
{
    if (!context || !out) return error_set(error, QN_BAD_CALL, "qn_measure: an argument is NULL");
    int slot;
    if (device) QN_TRY(context_slot(context, device, &slot, error));
    if (device && context->slots[slot].driver->measure) {
        ceilings own;
        QN_TRY(context->slots[slot].driver->measure(context->slots[slot].device, copy_bytes, &own, error));
        *out = (qn_ceilings){.copy_gb_per_s = own.copy_gb_per_s,
                             .read_gb_per_s = own.read_gb_per_s,
                             .fma_one_gflop_per_s = own.fma_one_gflop_per_s,
                             .fma_all_gflop_per_s = own.fma_all_gflop_per_s,
                             .threads = slot_about(context, slot)->units};
        return QN_OK;
    }
    QN_TRY(context_slot(context, "cpu", &slot, error)); /* ref runs on the same processor */
    const device_slot *s = &context->slots[slot];
    text source = {0}, key = {0};
    ceilings_source(&source);
    s->driver->tool(s->device, &key);
    text_add(&key, text_get(&source));
    loops work = {s, text_get(&source)};
    char path[4096];
    bool found;
    pthread_mutex_lock(&context->lock);
    qn_status status = cache_get(context_cache(context), "measure", text_get(&key), key.length, assemble, &work, path,
                                 sizeof(path), &found, error);
    pthread_mutex_unlock(&context->lock);
    text_free(&source);
    text_free(&key);
    ceilings measured;
    if (status == QN_OK)
        status = ceilings_measure(path, slot_about(context, slot)->units, copy_bytes, &measured, error);
    if (status == QN_OK)
        *out = (qn_ceilings){.copy_gb_per_s = measured.copy_gb_per_s,
                             .read_gb_per_s = measured.read_gb_per_s,
                             .fma_one_gflop_per_s = measured.fma_one_gflop_per_s,
                             .fma_all_gflop_per_s = measured.fma_all_gflop_per_s,
                             .threads = slot_about(context, slot)->units};
    return status;
}
