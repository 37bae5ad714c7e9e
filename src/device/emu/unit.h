/*
 * CUDA text to a loaded library: the header text in front, the system's C++ compiler, dlopen.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_DEVICE_EMU_UNIT_H
#define QUERN_DEVICE_EMU_UNIT_H

#include "device/cpu/compiler.h"
#include "device/emu/engine.h"

/* The files of text/, one after the other: the header. Made by the build. */
extern const unsigned char emu_text[];
extern const size_t emu_text_bytes;

/* The translation unit: the header, a #line, the very bytes of `source`, then an entry for every
 * `extern "C" __global__` function and a place for every `extern __shared__` array. */
void emu_unit_write(const char *source, text *out);

/* Everything a binary depends on besides its source. */
void emu_unit_describe(const compiler *c, bool checked, text *out);
qn_status emu_unit_compile(const compiler *c, const char *source, bool checked, const char *binary_path,
                           qn_error *error);
qn_status emu_unit_show(const compiler *c, const char *source, text *out, qn_error *error); /* assembler text */

typedef struct emu_library {
    void *handle;
    char *path;
    void *(*touch)(void);
    void *(*dynamic)(void); /* NULL: no dynamic shared memory */
    bool checked;
    uintptr_t first, end; /* its addresses */
} emu_library;
qn_status emu_library_open(const char *path, emu_library *out, qn_error *error);
void emu_library_close(emu_library *l);
emu_entry *emu_library_find(const emu_library *l, const char *kernel); /* NULL: there is no such kernel */
/* "file:line" of a code address, the innermost place that is not the header's; false: not known. */
bool emu_library_line(const emu_library *l, const void *place, text *out);

#endif
