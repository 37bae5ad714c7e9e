#!/bin/sh
# The layouts in src/profile/measure/cupti.h are those of CUPTI's own headers, field by field, where these are installed.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for folder in "${CUDA_HOME:-/usr/local/cuda}/include" "${CUDA_HOME:-/usr/local/cuda}/extras/CUPTI/include" \
    /usr/local/cuda*/include /usr/include; do
    [ -f "$folder/cupti_activity.h" ] && [ -f "$folder/cuda.h" ] && include=$folder && break
done
if [ -z "${include:-}" ]; then
    echo "skipped: CUPTI's headers are not installed"
    echo "0 passed, 0 failed"
    exit 0
fi
: >"$work/string" # cupti_profiler_host.h includes <string>, and needs nothing of it
cat >"$work/layout.c" <<'CODE'
#include <cuda.h>
#include <cupti_activity.h>
#include <cupti_target.h>
#include <cupti_profiler_target.h>
#include <cupti_profiler_host.h>
#include <cupti_range_profiler.h>
#include <cupti_pcsampling.h>
#include <stddef.h>
#include <stdio.h>
#include "profile/measure/counters.h"
#include "profile/measure/cupti.h"
#include "profile/measure/sampling.h"

static int passed, failed;
#define SAME(theirs, field, ours, own)                                                                  \
    do {                                                                                                \
        if (offsetof(theirs, field) == offsetof(ours, own) &&                                           \
            sizeof(((theirs *)0)->field) <= sizeof(((ours *)0)->own)) {                                 \
            passed++;                                                                                   \
        } else {                                                                                        \
            failed++;                                                                                   \
            printf("FAILED %s.%s at %zu, %s.%s at %zu\n", #theirs, #field, offsetof(theirs, field), #ours, #own, \
                   offsetof(ours, own));                                                                \
        }                                                                                               \
    } while (0)
#define NUMBER(theirs, own) ((theirs) == (int)(own) ? passed++ : (failed++, printf("FAILED %s\n", #theirs)))

#define KERNEL(field, own) SAME(CUpti_ActivityKernel9, field, cupti_kernel, own)
#define COPY(field, own) SAME(CUpti_ActivityMemcpy5, field, cupti_move, own)
#define SET(field, own) SAME(CUpti_ActivityMemset4, field, cupti_move, own)

#define SIZE(theirs, bytes) \
    ((size_t)(CUpti_##theirs##_Params_STRUCT_SIZE) == (bytes) ? passed++ : (failed++, printf("FAILED %s\n", #theirs)))
#define OUT(theirs, field, ours, own) SAME(CUpti_##theirs##_Params, field, ours, own)

int main(void)
{
    SIZE(Device_GetChipName, sizeof(cupti_chip));
    SIZE(Profiler_GetCounterAvailability, sizeof(cupti_availability));
    SIZE(Profiler_Host_Initialize, sizeof(cupti_host));
    SIZE(Profiler_Host_GetMetricProperties, SIZE_UP_TO(cupti_metric, type));
    SIZE(Profiler_Host_ConfigAddMetrics, sizeof(cupti_metrics));
    SIZE(Profiler_Host_GetConfigImageSize, SIZE_UP_TO(cupti_image, bytes));
    SIZE(Profiler_Host_GetConfigImage, sizeof(cupti_image));
    SIZE(Profiler_Host_EvaluateToGpuValues, sizeof(cupti_evaluate));
    SIZE(RangeProfiler_Enable, sizeof(cupti_range_enable));
    SIZE(RangeProfiler_GetCounterDataSize, sizeof(cupti_range_size));
    SIZE(RangeProfiler_CounterDataImage_Initialize, sizeof(cupti_image));
    SIZE(RangeProfiler_SetConfig, SIZE_UP_TO(cupti_range_config, target_level));
    SIZE(RangeProfiler_PushRange, sizeof(cupti_range_push));
    SIZE(RangeProfiler_Stop, SIZE_UP_TO(cupti_range_stop, all));
    SIZE(RangeProfiler_DecodeData, sizeof(cupti_range_decode));
    SIZE(RangeProfiler_GetCounterDataInfo, sizeof(cupti_range_info));
    OUT(RangeProfiler_GetCounterDataInfo, numTotalRanges, cupti_range_info, count);
    OUT(Profiler_Host_EvaluateToGpuValues, rangeIndex, cupti_evaluate, range);
    OUT(Device_GetChipName, pChipName, cupti_chip, name);
    OUT(Profiler_Host_Initialize, pHostObject, cupti_host, object);
    OUT(RangeProfiler_SetConfig, maxRangesPerPass, cupti_range_config, most_ranges);
    OUT(RangeProfiler_SetConfig, replayMode, cupti_range_config, replay);
    OUT(RangeProfiler_GetCounterDataSize, counterDataSize, cupti_range_size, bytes);
    OUT(Profiler_Host_EvaluateToGpuValues, pMetricValues, cupti_evaluate, values);
    SAME(CUpti_PCSamplingPCData, pcOffset, cupti_pc, offset);
    SAME(CUpti_PCSamplingPCData, functionName, cupti_pc, name);
    SAME(CUpti_PCSamplingPCData, stallReasonCount, cupti_pc, stall_count);
    SAME(CUpti_PCSamplingPCData, stallReason, cupti_pc, stalls);
    SAME(CUpti_PCSamplingData, collectNumPcs, cupti_pc_data, room);
    SAME(CUpti_PCSamplingData, droppedSamples, cupti_pc_data, dropped);
    SAME(CUpti_PCSamplingData, totalNumPcs, cupti_pc_data, count);
    SAME(CUpti_PCSamplingData, pPcData, cupti_pc_data, pcs);
    SAME(CUpti_PCSamplingConfigurationInfo, attributeData, cupti_pc_attribute, value);
    SAME(CUpti_GetSassToSourceCorrelationParams, lineNumber, cupti_pc_line, line);
    SAME(CUpti_GetSassToSourceCorrelationParams, pcOffset, cupti_pc_line, offset);
    SAME(CUpti_GetSassToSourceCorrelationParams, dirName, cupti_pc_line, folder);
    NUMBER(sizeof(CUpti_PCSamplingData), sizeof(cupti_pc_data));
    NUMBER(sizeof(CUpti_PCSamplingPCData), sizeof(cupti_pc));
    NUMBER(sizeof(CUpti_PCSamplingConfigurationInfo), sizeof(cupti_pc_attribute));
    NUMBER(CUpti_PCSamplingConfigurationInfoParamsSize, sizeof(cupti_pc_configuration));
    NUMBER(CUpti_PCSamplingGetStallReasonsParamsSize, sizeof(cupti_pc_reasons));
    NUMBER(CUPTI_AutoRange, 1);
    NUMBER(CUPTI_UserRange, 2);
    NUMBER(CUPTI_UserReplay, 3);
    NUMBER(CUPTI_PROFILER_TYPE_RANGE_PROFILER, 0);
    KERNEL(registersPerThread, registers);
    KERNEL(start, start_ns);
    KERNEL(end, end_ns);
    KERNEL(deviceId, device);
    KERNEL(streamId, stream);
    KERNEL(gridX, grid);
    KERNEL(blockX, block);
    KERNEL(staticSharedMemory, static_shared_bytes);
    KERNEL(dynamicSharedMemory, dynamic_shared_bytes);
    KERNEL(localMemoryPerThread, local_bytes);
    KERNEL(correlationId, correlation);
    KERNEL(name, name);
    KERNEL(graphNodeId, node);
    KERNEL(graphId, graph);
    COPY(copyKind, direction);
    COPY(bytes, bytes);
    COPY(start, start_ns);
    COPY(end, end_ns);
    COPY(deviceId, device);
    COPY(streamId, stream);
    COPY(correlationId, correlation);
    COPY(graphNodeId, node);
    COPY(graphId, graph);
    SET(bytes, bytes);
    SET(start, start_ns);
    SET(end, end_ns);
    SET(streamId, stream);
    SET(correlationId, correlation);
    SET(graphNodeId, node);
    SET(graphId, graph);
    SAME(CUpti_ActivityExternalCorrelation, externalKind, cupti_external, of);
    SAME(CUpti_ActivityExternalCorrelation, externalId, cupti_external, identity);
    SAME(CUpti_ActivityExternalCorrelation, correlationId, cupti_external, correlation);
    SAME(CUpti_ActivityGraphTrace, correlationId, cupti_graph, correlation);
    SAME(CUpti_ActivityGraphTrace, start, cupti_graph, start_ns);
    SAME(CUpti_ActivityGraphTrace, end, cupti_graph, end_ns);
    SAME(CUpti_ActivityGraphTrace, graphId, cupti_graph, graph);
    SAME(CUpti_ActivityGraphTrace, streamId, cupti_graph, stream);
    SAME(CUpti_ActivityOverhead2, start, cupti_overhead, start_ns);
    SAME(CUpti_ActivityOverhead2, end, cupti_overhead, end_ns);
    NUMBER(CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_COPY);
    NUMBER(CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_SET);
    NUMBER(CUPTI_ACTIVITY_KIND_DRIVER, CUPTI_DRIVER);
    NUMBER(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_KERNEL);
    NUMBER(CUPTI_ACTIVITY_KIND_OVERHEAD, CUPTI_OVERHEAD);
    NUMBER(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, CUPTI_EXTERNAL);
    NUMBER(CUPTI_ACTIVITY_KIND_GRAPH_TRACE, CUPTI_GRAPH);
    NUMBER(CUPTI_ACTIVITY_MEMCPY_KIND_HTOD, CUPTI_TO_DEVICE);
    NUMBER(CUPTI_ACTIVITY_MEMCPY_KIND_DTOH, CUPTI_TO_HOST);
    NUMBER(CUPTI_ACTIVITY_MEMCPY_KIND_DTOD, CUPTI_ON_DEVICE);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
CODE
cc -std=gnu11 -I"$root/src" -I"$root/include" -isystem "$include" -isystem "$work" "$work/layout.c" -o "$work/layout" && "$work/layout"
