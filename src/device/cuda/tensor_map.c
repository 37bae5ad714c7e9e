/*
 * Encoding tensor maps; tensor_map.h has the idea. The rules checked here are the driver's: lines of unit stride, an
 * address and strides that are multiples of 16 bytes, boxes of at most 256 elements an axis, and a line of a swizzled
 * box of exactly as many bytes as the swizzle.
 * SPDX-License-Identifier: MIT
 */
#include "device/cuda/tensor_map.h"
#include "device/emu/engine.h"
#include "schedule/schedule.h"

#include <string.h>

enum { MOST_BOX = 256, STRIDE_BYTES = 16 };

/* Channels, axes of places, images; what may be was looked at when it was scheduled, but for the address. */
static bool windows_of(const cuda_map *map, const array_view *array, map_numbers *out)
{
    const sched_windows *x = map->windows;
    int64_t size = dtypes[array->elem].size_bytes, places = 1;
    out->windows = 1;
    out->rank = x->axis_count + 2;
    out->address += (uint64_t)(x->origin * size);
    out->extents[0] = (uint64_t)x->channels;
    if (x->group_axis >= 0 && array->extents[x->group_axis] > 1)
        out->extents[0] += (uint64_t)((array->extents[x->group_axis] - 1) * x->group_stride);
    out->strides[0] = (uint64_t)size;
    for (int i = 0; i < 2; i++) out->box[i] = (uint32_t)map->box[i];
    for (int i = 0; i < CUDA_MAP_AXES; i++) out->steps[i] = 1;
    for (int i = 0; i < x->axis_count; i++) {
        const sched_window_axis *a = &x->axes[i];
        out->extents[1 + i] = (uint64_t)a->extent;
        out->strides[1 + i] = (uint64_t)(a->stride * size);
        out->steps[1 + i] = (uint32_t)a->step;
        out->lower[i] = (int)sched_window_lower(a);
        out->upper[i] = (int)sched_window_upper(a);
        places *= a->count;
    }
    int64_t images = (array->extents[x->tile_axis] + places - 1) / places;
    out->extents[out->rank - 1] = (uint64_t)MAXIMUM(images, 1);
    out->strides[out->rank - 1] = images > 1 ? (uint64_t)(x->image_stride * size) : STRIDE_BYTES;
    return images < 2 || x->image_stride > 0;
}

qn_status map_numbers_of(const cuda_map *map, const array_view *array, map_numbers *out, qn_error *error)
{
    int64_t size = dtypes[array->elem].size_bytes;
    memset(out, 0, sizeof(*out)); /* compared byte by byte */
    out->address = (uint64_t)(uintptr_t)array->data;
    out->rank = map->rank;
    out->swizzle = map->swizzle;
    out->elem = array->elem;
    out->rounds = map->rounds && array->elem == DT_F32;
    bool good = map->rank >= 1 && map->rank <= CUDA_MAP_AXES && out->address % STRIDE_BYTES == 0;
    if (map->windows) good &= windows_of(map, array, out);
    for (int i = 0; i < map->rank && good && !map->windows; i++) {
        const cuda_map_axis *from = &map->axes[i];
        int64_t extent = from->count, stride = STRIDE_BYTES;
        if (from->axis >= 0 && from->axis < array->rank) {
            if (!extent) extent = (array->extents[from->axis] + from->step - 1) / from->step;
            stride = array->strides[from->axis] * from->step * size;
        }
        extent = MAXIMUM(extent, 1); /* nothing of an empty array is touched, but its map must be one */
        if (extent == 1) stride = i ? STRIDE_BYTES : size;
        good = i ? stride > 0 && stride % STRIDE_BYTES == 0 && stride < (int64_t)1 << 40 : stride == size;
        good &= extent <= (int64_t)1 << 32 && map->box[i] >= 1 && map->box[i] <= MOST_BOX;
        out->extents[i] = (uint64_t)extent;
        out->strides[i] = (uint64_t)stride;
        out->box[i] = (uint32_t)map->box[i];
    }
    int64_t line = (int64_t)map->box[0] * size;
    good &= line % STRIDE_BYTES == 0 && (!map->swizzle || line == map->swizzle);
    if (!good)
        return error_set(error, QN_FAILED,
                         "no tensor map for parameter %d: its strides or its address do not allow one", map->param);
    return QN_OK;
}

void map_for_emu(const map_numbers *numbers, int64_t *words)
{
    emu_map map = {.address = numbers->address,
                   .mark = EMU_MAP_MARK,
                   .elem_bytes = (uint16_t)dtypes[numbers->elem].size_bytes,
                   .rank = (uint8_t)numbers->rank,
                   .swizzle = (uint8_t)numbers->swizzle,
                   .rounds = numbers->rounds != 0,
                   .windows = numbers->windows != 0};
    for (int i = 0; i < numbers->rank; i++) {
        map.extents[i] = (int64_t)numbers->extents[i];
        if (i) map.strides[i - 1] = (int64_t)numbers->strides[i];
        map.box[i] = numbers->box[i];
    }
    for (int i = 0; numbers->windows && i < numbers->rank - 2; i++) {
        map.box[2 + i] = numbers->steps[1 + i];
        map.lower[i] = (int16_t)numbers->lower[i];
        map.upper[i] = (int16_t)numbers->upper[i];
    }
    _Static_assert(sizeof(map) <= CUDA_MAP_WORDS * sizeof(int64_t), "a map has 128 bytes");
    memset(words, 0, CUDA_MAP_WORDS * sizeof(int64_t));
    memcpy(words, &map, sizeof(map));
}

int map_for_driver(const cuda_api *api, const map_numbers *numbers, int64_t *words)
{
    static const int types[] = {
        [DT_BOOL] = 0, [DT_U8] = 0,  [DT_I8] = 0,  [DT_U16] = 1, [DT_I16] = 1, [DT_U32] = 2,  [DT_I32] = 3,
        [DT_U64] = 4,  [DT_I64] = 5, [DT_F16] = 6, [DT_F32] = 7, [DT_F64] = 8, [DT_BF16] = 9, [DT_F8E4M3] = 0};
    _Alignas(64) uint64_t map[CUDA_MAP_WORDS];
    uint32_t ones[CUDA_MAP_AXES] = {1, 1, 1, 1, 1};
    int swizzle = numbers->swizzle == 128 ? 3 : numbers->swizzle == 64 ? 2 : numbers->swizzle == 32 ? 1 : 0;
    enum { NO_INTERLEAVE = 0, L2_256_BYTES = 3, FILL_ZERO = 0, TF32 = 11 };
    int type = numbers->rounds ? TF32 : types[numbers->elem];
    if (numbers->windows) {
        int done = api->cuTensorMapEncodeIm2col(
            map, type, (unsigned)numbers->rank, (void *)(uintptr_t)numbers->address, numbers->extents,
            numbers->strides + 1, numbers->lower, numbers->upper, numbers->box[0], numbers->box[1], numbers->steps,
            NO_INTERLEAVE, swizzle, L2_256_BYTES, FILL_ZERO);
        memcpy(words, map, sizeof(map));
        return done;
    }
    int result =
        api->cuTensorMapEncodeTiled(map, type, (unsigned)numbers->rank, (void *)(uintptr_t)numbers->address,
                                    numbers->extents, numbers->strides + 1, numbers->box, ones, NO_INTERLEAVE, swizzle,
                                    L2_256_BYTES, FILL_ZERO);
    memcpy(words, map, sizeof(map));
    return result;
}
