/*
 * The parts that the prelude is put together from. They stand in the files of prelude/ (prelude_read.c has the form).
 *
 * A part is a template. `types` lists what it is instantiated for, and in name, needs and text a variable stands for
 * something of that type; those of prelude/c:
 *   $t the type itself   $c its C type     $v the C type of a value of it (f32x16, float)
 *   $i $j $u             signed integer of the same width: C type of a value, short name; unsigned short name
 *   $b bits   $p ps ss pd sd   $f the suffix f of C functions   $w operands of a scalar or vector instruction
 *   $R 2^(mantissa bits)   $M mantissa bits   $X exponent bias   $k $a what dot adds up in: short name, C type
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_EMIT_PRELUDE_PARTS_H
#define QUERN_EMIT_PRELUDE_PARTS_H

#include "emit/prelude.h"

typedef struct prelude_span { /* words of an embedded file */
    const char *start;
    size_t length;
} prelude_span;

typedef struct prelude_part {
    prelude_span name, types, needs, text;
} prelude_part;

/* One prelude: what prelude_assemble needs to know of it. parts: of its files, found at the first call. variable: what a
 * letter other than t stands for when a part is instantiated for a type, NULL if it is no variable. other: text of names
 * that are written by rule; false: no such name. */
typedef struct prelude_set {
    const prelude_part *(*parts)(int *count);
    const char *(*variable)(const char *type, char letter);
    bool (*other)(const char *name, text *needs, text *out);
} prelude_set;

/* Appends the named parts and all they need, each once, in a valid order. False: *unknown is a name of the list that
 * cannot be made. */
bool prelude_assemble(const prelude_set *set, const char *const *names, int count, text *out, const char **unknown);

/* prelude_read.c: the parts of a text, and how many; the part of a name that is no template; and the next word of a list
 * of types or needs, which ends at `end`. */
int prelude_read(const char *text, prelude_part *parts, int most);
const prelude_part *prelude_find(const prelude_part *parts, int count, const char *name);
bool prelude_word(const char **at, const char *end, prelude_span *word);

/* The files of prelude/c, prelude/cuda and prelude/raw, each folder as one text; made by the build. */
extern const unsigned char prelude_c_files[], prelude_cuda_files[], prelude_raw_files[];
extern const size_t prelude_c_files_bytes, prelude_cuda_files_bytes, prelude_raw_files_bytes;
enum { PRELUDE_PARTS_MOST = 400 };

/* convert_<from>_<to>, with or without x16; needs are appended to *needs. False: no such conversion. */
bool prelude_convert(const char *name, text *needs, text *out);

#endif
