/*
 * NVRTC, NVIDIA's run-time compiler: CUDA C text to a cubin for one architecture, without headers and without a GPU.
 *
 * An `nvrtc` is cheap to make: the library is opened at the first use. All functions may be called from several
 * threads at once; compilations run in parallel.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_DEVICE_CUDA_NVRTC_H
#define QUERN_DEVICE_CUDA_NVRTC_H

#include "base/base.h"

#define NVRTC_OLDEST 1102     /* CUDA 11.2: the first that makes cubins and lists its architectures */
#define NVRTC_DEFAULT_ARCH 90 /* where no GPU says otherwise */

typedef struct nvrtc nvrtc;
nvrtc *nvrtc_new(void);
void nvrtc_free(nvrtc *n); /* NULL is fine */

/* Opens the library if that has not been done. QN_NO_DEVICE: it is missing or too old; the message says what to
 * install. */
qn_status nvrtc_ready(nvrtc *n, qn_error *error);
/* After nvrtc_ready: 1300 for CUDA 13.0; the file that was loaded; the architectures it knows. */
int nvrtc_version(const nvrtc *n);
const char *nvrtc_path(const nvrtc *n);
int nvrtc_arch_count(const nvrtc *n);
int nvrtc_arch_get(const nvrtc *n, int number);
bool nvrtc_knows(const nvrtc *n, int arch);

/* "sm_90a", "90a", "90", "compute_90", "9.0" to 90; false if it is none. */
bool arch_from_words(const char *words, int *arch);
/* 90 to "sm_90a": with the architecture's own instructions where it has any. */
void arch_name(int arch, char name[16]);

typedef struct nvrtc_options {
    int arch;                 /* 75, 80, 90, ... */
    bool ptx_only;            /* stop before machine code */
    bool line_info;           /* for profilers and `--annotate`; larger binaries */
    bool usage;               /* the assembler's report on registers and spills, into the log */
    const char *const *flags; /* more options of NVRTC, as they are */
    int flag_count;
    const char *const *header_names, *const *headers; /* what `#include` finds, and the texts */
    int header_count;
    const char *const *names; /* expressions such as "gemm<float, 16>"; their symbols come back in `symbols` */
    int name_count;
} nvrtc_options;

typedef struct nvrtc_output { /* {0} before; nvrtc_output_free after */
    text cubin;               /* empty with ptx_only */
    text ptx;
    text log;      /* warnings, and the report of `usage` */
    text *symbols; /* one per name */
    int symbol_count;
    int64_t time_ns;
} nvrtc_output;
void nvrtc_output_free(nvrtc_output *o);

/* `name` stands for the source in messages where no #line says better. A refused text is QN_FAILED; the message has the
 * compiler's words with file and line. Options at the start of a raw kernel's text (emit/raw/option.h) are followed. */
qn_status nvrtc_compile(nvrtc *n, const char *source, const char *name, const nvrtc_options *options,
                        nvrtc_output *output, qn_error *error);
/* "file.qn(12): error: words" to "file.qn:12: error: words", without the closing count. */
void nvrtc_messages(const char *log, text *out);
/* What a cubin depends on besides its source: version, architecture and options. For the key of the cache. */
void nvrtc_describe(const nvrtc *n, int arch, text *out);

#endif
