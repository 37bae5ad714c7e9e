/*
 * The stage `hints`: what is known of a launch before it runs. In: a kernel with all its sizes, its CUDA text. Out, to
 * the taker: the launch's facts with what the compiled text takes of a multiprocessor (where NVRTC is installed; no GPU
 * is needed), and how its accesses lie.
 * SPDX-License-Identifier: MIT
 */
#include "device/cuda/cuda.h"
#include "device/cuda/facts.h"
#include "run/compile/facts.h"
#include "run/workbench/show.h"

#include <string.h>

/* By phase. False: there is no compiler. */
static bool usages_of(show_request *r, const tile_kernel *k, const char *source, cubin_usage *usages)
{
    nvrtc_output o = {0};
    qn_error ignored;
    bool known = show_compile(r, source, &o, &ignored) == QN_OK;
    for (int i = 0; known && i < (k->raw_language ? 1 : k->phase_count); i++) {
        char symbol[300];
        snprintf(symbol, sizeof(symbol), "%.250s_phase%d", k->name, i);
        known = cubin_read(o.cubin.data, o.cubin.length, symbol, &usages[i]);
        if (known && cubin_read_log(text_get(&o.log), symbol, &usages[i]))
            usages[i].local_bytes = MAXIMUM(usages[i].spill_bytes, 0);
    }
    nvrtc_output_free(&o);
    return known;
}

qn_status show_look(show_request *r, const tile_kernel *k, const char *source, qn_error *error)
{
    qn_call *call = r->call;
    if (!r->planned)
        return error_set(error, QN_BAD_CALL, "hints need the sizes of `%s`: give each with --set name=number", k->name);
    cubin_usage usages[MAX_PHASES] = {0};
    cuda_layout *layout = NULL;
    launch_look look;
    arena *memory = arena_new();
    call->slot = r->slot;
    const record_facts *kept = call_facts(call);
    CHECK(kept);
    record_facts facts = *kept;
    facts.device = "cuda";
    bool compiled = usages_of(r, k, source, usages);
    qn_status status = k->raw_language ? QN_OK : cuda_layout_new(k, &r->target, &layout, error);
    if (status == QN_OK) {
        cuda_facts_of(k, layout, &r->target, &call->plan, compiled ? usages : NULL, &facts);
        launch_look_make(k, &r->target, call->views, &call->plan, memory, &look);
        r->taker->take(r->taker->user, &facts, &look);
    }
    cuda_layout_free(layout);
    arena_free(memory);
    return status;
}
