/*
 * Which attributes an op writes in the text form, in the order they are written. Shared by print.c and read.c, so that
 * what is printed is what is read; docs/tile-ir.md shows each one.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_IR_FORM_H
#define QUERN_IR_FORM_H

#include "ir/tile.h"

enum {
    FORM_NUMBER = 1,      /* before the operands: a constant */
    FORM_PARAM = 2,       /* the name of parameter attr.index */
    FORM_INDEX = 4,       /* attr.index as it is */
    FORM_FOLD = 8,        /* sum, prod, ... */
    FORM_ATOMIC = 16,     /* add, min, ... */
    FORM_WORDS = 32,      /* a quoted text, or nothing */
    FORM_COUNT = 64,      /* show N */
    FORM_ACCESS = 128,    /* array[index, ...] = values mask masks, in the place of the operands */
    FORM_AXIS = 256,      /* after the operands: axis attr.index */
    FORM_AXIS_0 = 512,    /* axis attr.axes[0] */
    FORM_AXIS_SET = 1024, /* axes (0, 2) */
    FORM_AXES = 2048      /* order (1, 0) */
};

static inline unsigned form_of(op_code code)
{
    switch (code) {
    case OP_CONST: return FORM_NUMBER;
    case OP_ARG:
    case OP_DEFAULT: return FORM_PARAM;
    case OP_PROGRAM:
    case OP_PROGRAMS:
    case OP_PHILOX:
    case OP_LAUNCH: return FORM_INDEX;
    case OP_IOTA:
    case OP_BOUND: return FORM_AXIS;
    case OP_SCAN: return FORM_FOLD | FORM_AXIS;
    case OP_REDUCE: return FORM_FOLD | FORM_AXIS_SET;
    case OP_PERMUTE: return FORM_AXES;
    case OP_LOAD:
    case OP_STORE: return FORM_ACCESS;
    case OP_ATOMIC: return FORM_ATOMIC | FORM_ACCESS;
    case OP_PRINT: return FORM_WORDS | FORM_COUNT;
    case OP_ASSERT:
    case OP_ASSUME: return FORM_WORDS;
    case OP_EXTENT: return FORM_PARAM | FORM_WORDS | FORM_AXIS_0;
    default: return 0;
    }
}

/* One word per bit of tile_op.flags, lowest first, and per kind of parameter. */
static const char *const form_flag_names[] = {"assign", "implicit", "index", "precise", "down", "ordered"};
static const char *const form_param_kinds[] = {"in", "out", "inout", "scratch", "scalar", "extent"};

/* The word between two regions of an op. */
static inline const char *form_second_region(op_code code)
{
    return code == OP_WHILE ? "do" : "else";
}

/* A name that is written without quotes: a letter or underscore, then letters, digits, underscores. */
static inline bool form_is_name(const char *words)
{
    if (!words || !*words) return false;
    for (const char *p = words; *p; p++) {
        bool letter = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || *p == '_';
        if (!letter && !(p > words && *p >= '0' && *p <= '9')) return false;
    }
    return true;
}

/* A constant; its type stands elsewhere on the line. */
static inline void form_print_number(dtype elem, number n, text *out)
{
    if (dtype_is_float(elem))
        text_add_double(out, n.f);
    else if (elem == DT_BOOL)
        text_add(out, n.i ? "true" : "false");
    else if (elem == DT_U64)
        text_print(out, "%llu", (unsigned long long)n.i);
    else
        text_print(out, "%lld", (long long)n.i);
}

#endif
