/*
 * The system's C compiler, as the CPU device uses it.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_DEVICE_CPU_COMPILER_H
#define QUERN_DEVICE_CPU_COMPILER_H

#include "base/base.h"
#include <limits.h>
#include <time.h>

typedef struct compiler {
    char path[1024];         /* of the program; empty: none was found */
    char resolved[PATH_MAX]; /* what the path points to in the end */
    char name[128];          /* for reading: "x86_64-linux-gnu-gcc-12", or the first line of --version */
    char words[512];         /* the rest of $QUERN_CC or $CC: more arguments, separated by NUL, ended by an empty one */
    char wanted[512];        /* what the environment asked for and was not found; or empty */
    const char *wanted_by;   /* the variable that asked */
    int64_t size_bytes;      /* of the program's file, when it was found */
    struct timespec date;
} compiler;

/* $QUERN_CC, $CC, cc, gcc, clang: the first that is there. Runs nothing unless the name has no version in it. */
void compiler_find(compiler *c);
void compiler_find_cpp(compiler *c); /* $QUERN_CXX, $CXX, c++, g++, clang++ */
/* The words that say that there is none and what to install. */
void compiler_missing(const compiler *c, char *words, size_t size);
/* Everything a binary depends on besides its source: program, its date and size, flags, processor. */
void compiler_describe(const compiler *c, text *out);
/* C text to a shared library, or to assembler text. */
qn_status compiler_run(const compiler *c, const char *source, const char *binary_path, qn_error *error);
qn_status compiler_show(const compiler *c, const char *source, text *out, qn_error *error);

/* Runs the arguments; the binary must be there afterwards, else `refused` words what the compiler said of the source, or
 * the failure says what was run. The source is removed. */
typedef qn_status compiler_refused(const compiler *c, const char *source_path, const text *output, qn_error *error);
qn_status compiler_finish(const compiler *c, const char *const *arguments, const char *source_path,
                          const char *binary_path, compiler_refused *refused, qn_error *error);

/* The end of a command line: a library, or the assembler's text; libraries: those of C and of mathematics. */
int compiler_end(const char **arguments, int count, bool assembler, bool libraries, const char *binary_path);
/* What `make` leaves at a path of its own, as text. */
typedef qn_status compiler_make(const compiler *c, const char *source, const char *path, qn_error *error);
qn_status compiler_read(compiler_make *make, const compiler *c, const char *source, text *out, qn_error *error);

/* The processor: its name, and the width in bytes and number of its vector registers. */
void processor_name(char *name, size_t size);
int processor_vector_bytes(void);
int processor_vector_registers(void);
size_t processor_cache_bytes(int level); /* data cache 1, 2 or 3 (the last there is); a guess where nothing says */

#endif
