/*
 * Measuring. In: a context, a device, a size. Out: the ceilings of the device, or of the machine it runs on.
 * The measuring loops are a binary of the cpu device like any kernel, so they come from the cache after the first time.
 * SPDX-License-Identifier: MIT
 */
#include "device/ceilings.h"
#include "run/compile/cache.h"
#include "run/run.h"

#include <string.h>

typedef struct loops {
    const device_slot *slot;
    const char *source;
} loops;

static qn_status assemble(void *context, const char *path, qn_error *error)
{
    loops *l = context;
    return l->slot->driver->assemble(l->slot->device, l->source, path, error);
}

/* The library of the measuring loops of the processor. */
static qn_status find_loops(qn_context *context, int *slot, char *path, size_t path_size, qn_error *error)
{
    QN_TRY(context_slot(context, "cpu", slot, error)); /* ref runs on the same processor */
    const device_slot *s = &context->slots[*slot];
    text source = {0}, key = {0};
    ceilings_source(&source);
    s->driver->tool(s->device, &key);
    text_add(&key, text_get(&source));
    loops work = {s, text_get(&source)};
    bool found;
    lock_take(&context->lock);
    cache *kept = context_cache(context);
    lock_give(&context->lock); /* a compiler runs for seconds: nobody who only looks at the context waits for it */
    qn_status status =
        cache_get(kept, "measure", text_get(&key), key.length, assemble, &work, path, path_size, &found, error);
    text_free(&source);
    text_free(&key);
    return status;
}

qn_status qn_measure(qn_context *context, const char *device, size_t copy_bytes, qn_ceilings *out, qn_error *error)
{
    HEAP_ENTER(error);
    int slot;
    ceilings own;
    if (!context || !out) return error_set(error, QN_BAD_CALL, "qn_measure: an argument is NULL");
    if (device) QN_TRY(context_slot(context, device, &slot, error));
    if (device && context->slots[slot].driver->measure) {
        QN_TRY(context->slots[slot].driver->measure(context->slots[slot].device, copy_bytes, &own, error));
    } else {
        char path[4096];
        QN_TRY(find_loops(context, &slot, path, sizeof(path), error));
        qn_status status = ceilings_measure(path, slot_about(context, slot)->units, copy_bytes, &own, error);
        if (status && cache_lost(path)) {
            QN_TRY(find_loops(context, &slot, path, sizeof(path), error));
            status = ceilings_measure(path, slot_about(context, slot)->units, copy_bytes, &own, error);
        }
        QN_TRY(status);
    }
    *out = (qn_ceilings){.copy_gb_per_s = own.copy_gb_per_s,
                         .read_gb_per_s = own.read_gb_per_s,
                         .fma_one_gflop_per_s = own.fma_one_gflop_per_s,
                         .fma_all_gflop_per_s = own.fma_all_gflop_per_s,
                         .threads = slot_about(context, slot)->units};
    return QN_OK;
}

qn_status roofline_measure(qn_context *context, int slot, qn_roofline *out, qn_error *error)
{
    enum { ON_HOST = 256 << 20, ON_DEVICE = 1 << 30 };
    const device_slot *s = &context->slots[slot];
    memset(out, 0, sizeof(*out));
    if (s->driver->roofline) {
        QN_TRY(s->driver->roofline(s->device, ON_DEVICE, out, error));
    } else {
        char path[4096];
        QN_TRY(find_loops(context, &slot, path, sizeof(path), error));
        QN_TRY(ceilings_roofline(path, slot_about(context, slot)->units, ON_HOST, out, error));
        if (s->driver->adapt) QN_TRY(s->driver->adapt(s->device, path, error));
    }
    out->units = slot_about(context, slot)->units;
    snprintf(out->device, sizeof(out->device), "%s", slot_about(context, slot)->description);
    return QN_OK;
}
