/*
 * Raw kernels: the user's C or CUDA text, what can be read from it without compiling it, and the text that goes to a
 * compiler. Pure: needs no device and no compiler.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_EMIT_RAW_RAW_H
#define QUERN_EMIT_RAW_RAW_H

#include "emit/cuda/emit.h"
#include "emit/raw/option.h"

/* A function that a text declares or defines at the outermost level (namespaces and extern "C" aside). */
typedef struct raw_function {
    raw_span name;
    raw_span global;            /* the word __global__ of its declaration */
    raw_span bounds;            /* __launch_bounds__(...), whole */
    raw_span cluster;           /* __cluster_dims__(...), whole */
    raw_span template_names[8]; /* of its template parameters */
    int template_count;
    const char *parameters; /* behind the "(" of its parameter list */
    int order[64];          /* raw_check_signature: which parameter of the kernel each of its own is */
    bool loose[64];         /* that one is a pointer to wider words, or to what may be written */
    int order_count;
} raw_function;

/* The next function of the text from *at on, which then stands behind its parameter list; false: there is none. */
bool raw_next_function(const char **at, raw_function *out);

/* One parameter of a list: its type without qualifiers and name ("float *"), and its name. *at is left at the "," or
 * ")". is_const: what a pointer points to is not written. */
typedef struct raw_parameter {
    text type;
    raw_span name;
    bool is_const;
} raw_parameter;
void raw_read_parameter(const char **at, raw_parameter *out); /* out->type is appended to */
bool raw_is_name(char c);

/* Names that stand for others in a text: macros of constants, parameters of a template. */
typedef struct raw_names {
    const char *constants; /* "#define NAME value" lines, or NULL */
    const raw_function *function;
    const char *instance; /* "gemm<float, 16>", or NULL */
} raw_names;
void raw_substitute(const raw_names *names, raw_span words, text *out);

bool raw_type_of(const char *type, dtype *elem, bool *array); /* "float *" to f32, an array */
/* E508 unless a function of the kernel's name with the declared parameters is there. extra: program numbers of a C
 * function behind the parameters. */
qn_status raw_check_signature(const tile_kernel *k, int extra, raw_function *out, qn_error *error);
void raw_put_line(const tile_kernel *k, text *out);       /* #line to the user's file */
void raw_put_undefines(const char *constants, text *out); /* the macros end with the user's text */

/* raw/emit.c, raw/cuda.c: the whole translation unit. */
qn_status emit_raw_c(const tile_kernel *k, text *out, qn_error *error);
/* One kernel NAME_phase0 with the frame of every generated kernel, around the user's function. The compiler's options
 * stand in front, one `//option WORDS` a line: they are a part of what is compiled, so of the cache's key. */
qn_status emit_raw_cuda(const tile_kernel *k, const cuda_target *target, text *out, qn_error *error);
/* raw/prelude.c. own_half, own_brain, own_integers: the text includes the vendor's types. */
void raw_prelude(bool own_half, bool own_brain, bool own_integers, text *out);
/* For emu, in place of the vendor's headers of fragments and of groups. */
void raw_prelude_warps(bool has_fragments, bool has_groups, text *out);

/* Blocks, threads and shared memory as the head computed them: E506 with the numbers if no GPU, or not this one, can
 * run them. */
qn_status raw_cuda_shape(const tile_kernel *k, const launch_plan *plan, const cuda_target *target, cuda_shape *out,
                         qn_error *error);

#endif
