/*
 * What a launch takes of a multiprocessor. In: a loaded program and a launch plan. Out: threads, registers, shared
 * memory, spills, blocks at once, occupancy and waves. A launch of several phases is described by its largest one, which
 * is nearly always where the time goes; spills are those of the worst.
 * SPDX-License-Identifier: MIT
 */
#include "device/cuda/facts.h"

#include "device/cuda/cuda.h"
#include "emit/raw/raw.h"

void cuda_facts_of(const tile_kernel *k, const cuda_layout *layout, const cuda_target *target, const launch_plan *plan,
                   const cubin_usage *usages, record_facts *out)
{
    int phases = layout ? k->phase_count : 1, largest = -1;
    int64_t most_blocks = 0, most = 0;
    cuda_shape shape = {0};
    for (int i = 0; i < phases; i++) {
        cuda_shape at = {0};
        qn_error ignored;
        if (usages) out->spill_bytes = MAXIMUM(out->spill_bytes, (int)usages[i].local_bytes);
        if ((layout ? cuda_shape_of(layout, i, plan, &at, &ignored) : raw_cuda_shape(k, plan, target, &at, &ignored)))
            continue;
        int64_t blocks = at.grid[0] * at.grid[1] * at.grid[2];
        if (blocks * at.threads <= most) continue;
        largest = i;
        shape = at;
        most_blocks = blocks;
        most = blocks * at.threads;
    }
    if (largest < 0) return;
    out->threads = shape.threads;
    out->shared_bytes = (int)shape.shared_bytes + (usages ? (int)usages[largest].shared_bytes : 0);
    if (!usages) return;
    occupancy o = occupancy_of(target->arch, &usages[largest], shape.threads, shape.shared_bytes);
    out->registers = usages[largest].registers;
    out->blocks_per_unit = o.blocks;
    out->occupancy = (double)o.warps / o.most_warps;
    out->limit = o.limit;
    if (o.blocks > 0) out->waves = (double)most_blocks / ((double)o.blocks * target->multiprocessors);
}

void cuda_facts(program *base, const launch_plan *plan, record_facts *out)
{
    const cuda_program *p = (const cuda_program *)base;
    cuda_device *d = p->device;
    cubin_usage usages[MAX_PHASES] = {0};
    bool pushed;
    qn_error ignored;
    if (cuda_enter(d, &pushed, &ignored) != QN_OK) return;
    int result = 0;
    for (int i = 0; i < p->phase_count && !result; i++) {
        int local = 0;
        result = d->api.cuFuncGetAttribute(&usages[i].registers, CUDA_FUNCTION_REGISTERS, p->phases[i].function);
        if (!result) result = d->api.cuFuncGetAttribute(&local, CUDA_FUNCTION_LOCAL_BYTES, p->phases[i].function);
        usages[i].local_bytes = local;
        usages[i].shared_bytes = p->phases[i].static_shared;
    }
    cuda_leave(d, pushed);
    cuda_facts_of(p->kernel, p->layout, &d->target, plan, result ? NULL : usages, out);
}
