/*
 * What a launch of CUDA text takes of a multiprocessor, known before it runs: for records, tables and hints.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_DEVICE_CUDA_FACTS_H
#define QUERN_DEVICE_CUDA_FACTS_H

#include "base/record.h"
#include "device/cuda/cubin.h"
#include "emit/cuda/emit.h"

/* Threads, registers, shared memory, occupancy and waves of the launch's largest phase. layout NULL: a raw kernel.
 * usages: by phase; NULL: nobody knows (emu), and then occupancy and waves stay unknown. */
void cuda_facts_of(const tile_kernel *k, const cuda_layout *layout, const cuda_target *target, const launch_plan *plan,
                   const cubin_usage *usages, record_facts *out);

#endif
