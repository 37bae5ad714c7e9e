/*
 * Results of the CUDA driver as statuses and texts. Some results mean that the context is gone for good (an illegal
 * address, a hardware fault): the device is then marked lost, and its text is what every later call gets at once. The
 * kernel to blame is the only one in flight, or one of those in flight; QUERN_SYNC=1 leaves only one.
 * SPDX-License-Identifier: MIT
 */
#include "device/cuda/cuda.h"

#include <string.h>

/* Does a context outlive this result? */
static bool is_fatal(int result)
{
    static const int fatal[] = {46, 214, 220, 226, 700, 702, 708, 709, 710, 714, 715, 716, 717, 718, 719, 721, 999};
    for (int i = 0; i < COUNT(fatal); i++)
        if (fatal[i] == result) return true;
    return false;
}

static const char *plain_words(int result)
{
    switch (result) {
    case CUDA_ILLEGAL_ADDRESS: return "an illegal address was read or written";
    case CUDA_MISALIGNED_ADDRESS: return "a misaligned address was read or written";
    case CUDA_LAUNCH_TIMEOUT: return "it ran longer than the system allows";
    case CUDA_LAUNCH_OUT_OF_RESOURCES: return "a block needs more registers or shared memory than there are";
    case CUDA_COOPERATIVE_TOO_LARGE: return "its blocks do not fit the GPU all at once";
    case CUDA_NO_BINARY_FOR_GPU: return "the binary is for another architecture";
    case CUDA_INVALID_IMAGE: return "the binary is damaged";
    default: return NULL;
    }
}

/* "kernel `a`", or "one of the kernels `a`, `b` (QUERN_SYNC=1 tells which)", or "". */
static void blame(const device_stream *s, text *out)
{
    if (!s || !s->pending) return;
    int count = (int)MINIMUM(s->pending, CUDA_RECENT);
    const char *names[CUDA_RECENT];
    int distinct = 0;
    for (int i = 0; i < count; i++) {
        const char *name = s->recent[(s->pending - 1 - i) % CUDA_RECENT];
        bool known = false;
        for (int k = 0; k < distinct; k++) known |= !strcmp(names[k], name);
        if (!known) names[distinct++] = name;
    }
    if (distinct == 1 && s->pending <= CUDA_RECENT) {
        text_print(out, "kernel `%s`", names[0]);
        return;
    }
    text_add(out, "one of the kernels in flight, the last of which are ");
    for (int i = 0; i < distinct; i++) text_print(out, "%s`%s`", i ? ", " : "", names[i]);
    text_add(out, " (QUERN_SYNC=1 tells which)");
}

static void lose(cuda_device *d, const char *words)
{
    if (atomic_exchange(&d->lost, true)) return;
    snprintf(d->lost_words, sizeof(d->lost_words), "%s", words);
}

qn_status cuda_failed(cuda_device *d, int result, const device_stream *s, const char *doing, qn_error *error)
{
    const char *name = NULL, *explained = NULL, *plain = plain_words(result);
    if (d->api.cuGetErrorName) d->api.cuGetErrorName(result, &name);
    if (d->api.cuGetErrorString) d->api.cuGetErrorString(result, &explained);
    text words = {0};
    blame(s, &words);
    if (words.length)
        text_print(&words, " failed on %s: %s", d->name, plain ? plain : explained ? explained : "");
    else
        text_print(&words, "%s failed on %s: %s", doing, d->name, plain ? plain : explained ? explained : "");
    text_print(&words, " (%s)", name ? name : "unknown result");
    if (is_fatal(result)) {
        lose(d, text_get(&words));
        if (s && s->pending)
            text_print(&words, "\nthe device is lost to this process; `quern check --device %s` finds the line",
                       d->name);
        else
            text_add(&words, "\nthe device is lost to this process");
    }
    qn_status status = result == CUDA_OUT_OF_MEMORY ? QN_NO_MEMORY : QN_FAILED;
    error_set(error, status, "%s", text_get(&words));
    text_free(&words);
    return status;
}

qn_status cuda_is_lost(const cuda_device *d, qn_error *error)
{
    if (!atomic_load(&((cuda_device *)d)->lost)) return QN_OK;
    return error_set(error, QN_NO_DEVICE,
                     "the device %s was lost: %s\nwhat is in host memory is safe; other devices go on", d->name,
                     d->lost_words);
}
