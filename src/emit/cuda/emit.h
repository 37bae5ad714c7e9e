/*
 * Tile IR to CUDA C, and the shape of its launches. Pure: needs no device and no compiler.
 *
 * One tile program is run by a team of threads: some lanes of a warp, a block, a cluster of blocks, or the whole grid.
 * The same bytes go to NVRTC and to the emulator, which defines QUERN_EMU. The first half of this file is what the host
 * needs; the second what the emitter's own files share. docs/cuda.md explains the text.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_EMIT_CUDA_EMIT_H
#define QUERN_EMIT_CUDA_EMIT_H

#include "emit/emit.h"

/* What generated text and host agree on. A phase N of kernel NAME is `extern "C" __global__ void NAME_phaseN(frame)`.
 * The frame is one struct by value of 8-byte words, in order: the phase's tensor maps, if it has any (the struct is then
 * 64-byte aligned, and the parameter `const __grid_constant__`); for each parameter of the kernel, an array (in, out,
 * inout, scratch): pointer, `rank` extents, `rank` strides (elements); a scalar or an extent: one word (integers
 * sign-extended to i64, bool 0 or 1, floats as the bits of a double). Then the tail below. */
#define CUDA_ABI_VERSION 1
typedef struct cuda_report { /* filled by the first failing program; zero before the launch */
    int64_t failed;          /* CUDA_FAILED_*; set by an atomic exchange */
    int64_t line, program[3];
    int64_t array, index; /* CUDA_FAILED_BOUNDS: parameter number, and element offset */
} cuda_report;
enum { CUDA_FAILED_ASSERT = 1, CUDA_FAILED_BOUNDS = 2 };

typedef struct cuda_tail {
    int64_t programs[3]; /* of this phase */
    cuda_report *report;
    void *scratch; /* cuda_shape.scratch_bytes, 256-byte aligned; 0 if none */
    void *sync;    /* cuda_shape.sync_bytes, zeroed before the launch; 0 if none */
    void *print;   /* the device's print buffer, or 0 */
    int64_t units; /* multiprocessors */
} cuda_tail;

typedef struct cuda_target {
    int arch;            /* 75, 80, 86, 89, 90, 100, 120 */
    int multiprocessors; /* 0: those of the architecture's usual device */
    int shared_bytes;    /* a block may ask for (opt-in); 0 likewise */
    int registers;       /* of a multiprocessor; 0: 65536 */
    int64_t l2_bytes;
    bool checked;         /* every global access is tested against its array */
    bool line_directives; /* #line to the .qn file */
} cuda_target;
cuda_target cuda_target_default(int arch); /* 0: 90, the H200's numbers */

/* An array as the copy engine fetches boxes of it (sm_90). Axis 0 is the innermost: its elements lie one beside another.
 * An axis of the map is an axis of the array in steps: {axis 1, step 1}: as it is; {axis 2, step 1, count 64} and {axis
 * 2, step 64} are one axis of the array in pieces of 64. The array has a map where its fact `bulk` holds. */
enum { CUDA_MAP_AXES = 5, CUDA_MAP_WORDS = 16, CUDA_MOST_MAPS = 8 };
typedef struct cuda_map_axis {
    int axis;  /* of the array; -1: none, one element */
    int step;  /* elements of it */
    int count; /* the extent; 0: as many steps as the array has */
} cuda_map_axis;
typedef struct cuda_map {
    int param; /* the array's */
    int rank;
    cuda_map_axis axes[CUDA_MAP_AXES];
    int box[CUDA_MAP_AXES];              /* elements of a copy, 256 at most */
    int swizzle;                         /* 128, 64, 32: bytes of the box's line; 0: none */
    bool rounds;                         /* f32 is rounded to tf32 on its way */
    const struct sched_windows *windows; /* not NULL: an array with digits, box[0] channels of box[1] places a copy */
} cuda_map;

typedef struct cuda_shape {
    int64_t grid[3];      /* blocks; beyond 2^31 in [1] too; [0] is 0: the launch of the phase before does it */
    int threads;          /* of a block */
    int block[3];         /* the same on three axes, of raw kernels; all 0: `threads` on the first axis */
    int cluster;          /* blocks of a cluster; 1: none */
    int64_t shared_bytes; /* dynamic */
    bool cooperative;
    bool fewer;                        /* cooperative: it is right with any smaller number of blocks, too */
    int64_t scratch_bytes, sync_bytes; /* of the whole launch */
    bool ticket;                       /* sync is a ticket: zero once, and zero again after each launch */
} cuda_shape;

/* What decides the shape of each launch of a text, kept from its emission for as long as the program is loaded. */
typedef struct cuda_layout cuda_layout;

/* The whole translation unit: parts of the prelude, then the kernels. k has been through the pipeline. layout: may be
 * NULL; of a raw kernel it is left alone. */
qn_status emit_cuda(const tile_kernel *k, const cuda_target *target, text *out, cuda_layout **layout, qn_error *error);
int64_t cuda_walks(void); /* how often the ops of a phase were walked to make text, in this process */

/* The shape of one launch. cuda_shape_of is cheap and allocates nothing; cuda_layout_new emits the text and drops it, for
 * those who want the shape alone, cuda_geometry asks it for one shape. */
qn_status cuda_layout_new(const tile_kernel *k, const cuda_target *target, cuda_layout **out, qn_error *error);
void cuda_layout_free(cuda_layout *layout);
qn_status cuda_shape_of(const cuda_layout *layout, int phase, const launch_plan *plan, cuda_shape *out,
                        qn_error *error);
/* The tensor maps at the start of a phase's frame, in order; 0: none. The text's own list, good as long as the layout. */
int cuda_layout_maps(const cuda_layout *layout, int phase, const cuda_map **maps);
qn_status cuda_geometry(const tile_kernel *k, int phase, const launch_plan *plan, const array_view *arrays,
                        const cuda_target *target, cuda_shape *out, qn_error *error);

/* The facts that cuda and emu specialise on, into k->params[].facts; for driver.choose_facts. */
void cuda_choose_facts(tile_kernel *k, const array_view *arrays, const launch_plan *plan);

/* `show --stage layout`: team, threads, the layout of each pass, homes of kept values, conversions and hints. */
qn_status emit_layout_print(const tile_kernel *k, const cuda_target *target, text *out, qn_error *error);
/* `show --stage schedule`; loops: also the program that is built from it, `--stage loops`. */
qn_status emit_schedule_print(const tile_kernel *k, const cuda_target *target, bool loops, text *out, qn_error *error);

#endif
