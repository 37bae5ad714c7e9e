/*
 * A check at work, for check.c (what is run), check_devices.c (on what else) and check_tell.c (what is
 * said about it).
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_RUN_WORKBENCH_CHECK_STATE_H
#define QUERN_RUN_WORKBENCH_CHECK_STATE_H

#include "run/workbench/check.h"

typedef struct checker {
    qn_context *context;
    qn_module *module;
    const qn_check_options *options;
    qn_write *write;
    void *user;
    int ref_slot;
    int number;                  /* of the kernel at hand, from 1 */
    int ahead;                   /* kernels of the module before this one are compiled */
    arena *memory;               /* of the kernel at hand */
    kernel_entry *entry, *truth; /* truth: who is right, the kernel itself unless it is raw */
    struct {
        int code, line;
    } seen[64]; /* findings already told */
    int seen_count;
    char told[16][256]; /* how failures begin that were told already */
    int told_count;
    int ran, skipped, compared, findings; /* of the kernel at hand */
    int as_cuda;                          /* cases whose text ran on emu without being asked for */
    text skip_reason;                     /* the first one */
    text refused; /* a case whose constants or types the source refuses, with its message; the first one */
    text broken;  /* diagnostics of the first case that does not compile */
    int broken_code;
    text assumed;   /* the first `assume` that refused a case, as it stands in the source */
    text told_text; /* everything said about the kernel, where `each` wants it */
    text misfit; /* a case of a tensor function at which shapes do not fit though nothing rules it out; the first one */
    text empty;  /* what was found with an empty array, in short */
    int empty_count;
    double **moved; /* of the case: how far its results move (shake_truth); made where it is asked for */
    bool warned;    /* what the compiler remarks about the kernel at hand was told */
    bool stopped, endless;
    bool ended;         /* nobody knows what is right: no summary */
    qn_error no_memory; /* the first that had none */
    int total_findings;
} checker;

/* One launch that is compared with the truth. */
typedef struct check_run {
    qn_call *call; /* NULL: it could not be prepared */
    int slot;
    bool strided, as_cuda;
    bool instrumented; /* with every access tested, on a GPU; compiled only */
    array_view *views; /* of strided ones, by parameter, with what to free and its size; NULL elsewhere */
    void **bases;
    size_t *sizes;
    qn_status status;
    qn_error error;
} check_run;

typedef struct check_runs { /* all of one case */
    check_run *items;
    int count;
} check_runs;

/* check_devices.c */
void check_runs_make(checker *c, const check_case *at, int number, check_runs *runs);
void check_runs_add_instrumented(checker *c, const check_case *at,
                                 check_runs *runs); /* what check_runs_compare will run first */
void check_runs_compile(qn_context *context, check_runs *runs,
                        int count); /* of several cases at once; nothing is launched */
void check_runs_compare(checker *c, const check_case *at, check_runs *runs, const array_view *truth);
void check_runs_free(check_runs *runs);

/* check.c: a call of the case with generated inputs */
qn_status checker_prepare(checker *c, kernel_entry *entry, const check_case *at, qn_call **out, qn_error *error);
/* Is this device compared, does the CUDA text run there beside it? */
bool checker_wants(const checker *c, int slot);
bool checker_wants_text(const checker *c, int slot);

/* check_tell.c */
void checker_say(checker *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
void checker_tell(checker *c, const check_case *at, const char *device, const char *words); /* a finding */
void checker_tell_failure(checker *c, const check_case *at, const char *device, const qn_error *error);
void checker_tell_findings(checker *c, const check_case *at, const findings *found, const tile_kernel *k);
void checker_skip(checker *c, const check_case *at, const qn_error *error);
void checker_summary(checker *c);
void checker_tell_each(checker *c);
const char *checker_called(const checker *c);

#endif
