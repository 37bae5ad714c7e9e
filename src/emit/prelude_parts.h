/*
 * The parts that the prelude is put together from, for the prelude's own files.
 *
 * A part is a template. `types` lists what it is instantiated for, and in name, needs and text a variable stands for
 * something of that type:
 *   $t the type itself   $c its C type     $v the C type of a value of it (f32x16, float)
 *   $i $j $u             signed integer of the same width: C type of a value, short name; unsigned short name
 *   $b bits   $p ps ss pd sd   $f the suffix f of C functions   $w operands of a scalar or vector instruction
 *   $R 2^(mantissa bits)   $M mantissa bits   $X exponent bias   $k $a what dot adds up in: short name, C type
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_EMIT_PRELUDE_PARTS_H
#define QUERN_EMIT_PRELUDE_PARTS_H

#include "emit/prelude.h"

typedef struct prelude_part {
    const char *name, *types, *needs, *text;
} prelude_part;

/* One prelude: what prelude_assemble needs to know of it. tables ends with NULL. variable: what a letter other than t
 * stands for when a part is instantiated for a type, NULL if it is no variable. other: text of names that are written by
 * rule; false: no such name. */
typedef struct prelude_set {
    const prelude_part *const *tables;
    const char *(*variable)(const char *type, char letter);
    bool (*other)(const char *name, text *needs, text *out);
} prelude_set;

/* Appends the named parts and all they need, each once, in a valid order. False: *unknown is a name of the list that
 * cannot be made. */
bool prelude_assemble(const prelude_set *set, const char *const *names, int count, text *out, const char **unknown);

/* Each ends with an empty part. */
extern const prelude_part prelude_core_parts[], prelude_memory_parts[], prelude_math_parts[], prelude_exp_parts[],
    prelude_activation_parts[], prelude_tanh_parts[], prelude_dot_parts[], prelude_gather_parts[];

/* convert_<from>_<to>, with or without x16; needs are appended to *needs. False: no such conversion. */
bool prelude_convert(const char *name, text *needs, text *out);

#endif
