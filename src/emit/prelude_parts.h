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

/* Each ends with an empty part. */
extern const prelude_part prelude_core_parts[], prelude_memory_parts[], prelude_math_parts[], prelude_exp_parts[],
    prelude_activation_parts[], prelude_dot_parts[];

/* convert_<from>_<to>, with or without x16; needs are appended to *needs. False: no such conversion. */
bool prelude_convert(const char *name, text *needs, text *out);

#endif
