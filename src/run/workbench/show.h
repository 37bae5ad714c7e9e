/*
 * Inside `show`: what show.c (every device) and show_cuda.c (the stages of CUDA) share.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_RUN_WORKBENCH_SHOW_H
#define QUERN_RUN_WORKBENCH_SHOW_H

#include "base/record.h"
#include "emit/cuda/emit.h"
#include "run/workbench/accesses.h"

struct nvrtc_output;

typedef struct time_table {
    text out;
    int64_t total_ns;
} time_table;
void show_time(time_table *t, const char *name, const char *note, int64_t time_ns);

/* The stage `hints`: of each kernel what is known of its launch and of its text; whoever asks makes hints of it. All is
 * valid during the call only. */
typedef void show_take(void *user, const record_facts *facts, const launch_look *look);
typedef struct show_taker {
    show_take *take;
    void *user;
} show_taker;

typedef struct show_request {
    qn_call *call;
    int slot; /* of a device with this text, or of the cpu */
    const char *stage;
    bool annotate;
    cuda_target target; /* of the stages layout, cuda, ptx, sass */
    bool fused;         /* a kernel that fusion wrote: its call has arrays, and nothing was promised of it */
    bool planned;       /* all sizes are known: plan and views of the call are those of a launch */
    time_table times;
    const show_taker *taker; /* of the stage hints; NULL: nobody */
} show_request;

/* show.c: as qn_show, with the text in `out`; taker: of the stage hints, else NULL. */
qn_status show_file(qn_context *context, const char *path, const char *kernel, const qn_show_options *options,
                    const show_taker *taker, text *out, qn_error *error);
/* One stage of the request's call. */
qn_status show_call(show_request *r, bool times, text *out, qn_error *error);

/* show_cuda.c */
bool show_is_cuda(const char *stage);
/* The GPU to show it for: as named, else the one there is, else the usual. */
qn_status show_cuda_target(qn_context *context, const char *device, const char *arch, show_request *r, qn_error *error);
/* CUDA text with a #line in front of each line that came from the source. */
void show_put_lines(const char *source, const char *file, text *out);
/* PTX and cubin of a text, with line information if the request wants it annotated. */
qn_status show_compile(show_request *r, const char *source, struct nvrtc_output *o, qn_error *error);
/* The text of one stage of a kernel that went through the pipeline. */
qn_status show_cuda(show_request *r, const tile_kernel *k, text *out, qn_error *error);

/* show_library.c: whether the library of the device's maker computes it, and why. Nothing where there is no product. */
void show_library(const show_request *r, const tile_kernel *k, text *out);

/* show_look.c: the stage hints. */
qn_status show_look(show_request *r, const tile_kernel *k, const char *source, qn_error *error);

/* show_ptx.c: PTX with each block of instructions under the line of the source it came from. */
void show_annotated(const char *ptx, const tile_kernel *k, text *out);

#endif
