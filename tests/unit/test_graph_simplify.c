/*
 * The rules of graph_simplify. Each has texts of graphs before and after it. For every case: the result is the text; the
 * values are those of the graph before, bit for bit unless the case is relaxed; without the rule the result is another
 * one; and without `relaxed` a relaxed case stays as it is. Every rule of the table has a case.
 * SPDX-License-Identifier: MIT
 */
#include "ir/graph_interp.h"
#include "ir/graph_simplify.h"
#include "test.h"

#include <stdlib.h>

enum { EXACT, RELAXED };

typedef struct rule_case {
    const char *rule;
    int relaxed;
    const char *before, *after;
} rule_case;

#define X "%1 = leaf 1 : f32[3, 4]\n"
#define I "%1 = leaf 1 : i32[3, 4]\n"

static const rule_case cases[] = {
    {"detach and keep of nothing", EXACT, X "%2 = detach %1 : f32[3, 4]\nreturn %2", X "return %1"},
    {"detach and keep of nothing", EXACT,
     X "%2 = keep %1 : f32[3, 4]\n%3 = detach %2 : f32[3, 4]\n%4 = keep %3 : f32[3, 4]\nreturn %4",
     X "%2 = keep %1 : f32[3, 4]\nreturn %2"},
    {"detach and keep of nothing", EXACT, /* a checkpoint that nothing is computed again from */
     X "%2 = exp %1 : f32[3, 4]\n%3 = keep 1 %2 : f32[3, 4]\n%4 = sin %3 : f32[3, 4]\nreturn %4",
     X "%2 = exp %1 : f32[3, 4]\n%3 = sin %2 : f32[3, 4]\nreturn %3"},
    {"fold constants", EXACT,
     "%1 = full 2 : f32[3]\n%2 = full 3 : f32[3]\n%3 = mul %1, %2 : f32[3]\n%4 = lt %3, %1 : bool[3]\nreturn %3, %4",
     "%1 = full 6 : f32[3]\n%2 = full false : bool[3]\nreturn %1, %2"},
    {"fold constants", EXACT, "%1 = full 300 : i32[3]\n%2 = convert %1 : u8[3]\nreturn %2",
     "%1 = full 44 : u8[3]\nreturn %1"},
    {"fold constants", RELAXED, "%1 = full 0 : f32[3]\n%2 = exp %1 : f32[3]\nreturn %2",
     "%1 = full 1 : f32[3]\nreturn %1"},
    {"iota of one", EXACT, "%1 = iota : i64[1]\nreturn %1", "%1 = full 0 : i64[1]\nreturn %1"},
    {"move of a constant", EXACT,
     "%1 = full 2.5 : f32[3, 1]\n%2 = expand %1 : f32[3, 4]\n%3 = permute %2 order (1, 0) : f32[4, 3]\n"
     "%4 = reshape %3 : f32[12]\n%5 = slice %4 start (11) step (-2) : f32[5]\n"
     "%6 = window %5 axis 0 size 2 stride 1 dilation 1 : f32[4, 2]\n"
     "%7 = pad %6 start (1, 1) step (1, 1) fill 2.5 : f32[6, 6]\nreturn %7",
     "%1 = full 2.5 : f32[6, 6]\nreturn %1"},
    {"move of a constant", EXACT, X "%2 = slice %1 start (0, 0) step (1, 1) : f32[0, 4]\nreturn %2",
     "%1 = full 0 : f32[0, 4]\nreturn %1"},
    {"join of constants", EXACT,
     "%1 = full 2 : f32[3]\n%2 = full 2 : f32[4]\n%3 = concat %1, %2 axis 0 : f32[7]\nreturn %3",
     "%1 = full 2 : f32[7]\nreturn %1"},
    {"fold of a constant", EXACT,
     "%1 = full 2 : f32[3, 4]\n%2 = reduce max %1 axes (1) : f32[3, 1]\n%3 = reduce argmin %1 axes (0) : i64[1, 4]\n"
     "%4 = scan min %1 axis 1 : f32[3, 4]\n%5 = full 7 : i8[20]\n%6 = reduce sum %5 axes (0) : i8[1]\n"
     "%7 = full 1 : f32[0, 2]\n%8 = reduce prod %7 axes (0) : f32[1, 2]\nreturn %2, %3, %4, %6, %8",
     "%1 = full 2 : f32[3, 4]\n%2 = full 2 : f32[3, 1]\n%3 = full 0 : i64[1, 4]\n%4 = full -116 : i8[1]\n"
     "%5 = full 1 : f32[1, 2]\nreturn %2, %3, %1, %4, %5"},
    {"fold of a constant", EXACT, "%1 = full 0 : f32[9]\n%2 = scan sum %1 axis 0 : f32[9]\nreturn %2",
     "%1 = full 0 : f32[9]\nreturn %1"},
    {"fold of a constant", EXACT, "%1 = full false : bool[0]\n%2 = reduce all %1 axes (0) : bool[1]\nreturn %2",
     "%1 = full true : bool[1]\nreturn %1"},
    {"fold of a constant", RELAXED, "%1 = full 0.5 : f32[3, 4]\n%2 = reduce sum %1 axes (0) : f32[1, 4]\nreturn %2",
     "%1 = full 1.5 : f32[1, 4]\nreturn %1"},
    {"order of operands", EXACT,
     X "%2 = leaf 2 : f32[3, 4]\n%3 = add %2, %1 : f32[3, 4]\n%4 = add %1, %2 : f32[3, 4]\n"
       "%5 = mul %3, %4 : f32[3, 4]\nreturn %5",
     X "%2 = leaf 2 : f32[3, 4]\n%3 = add %1, %2 : f32[3, 4]\n%4 = mul %3, %3 : f32[3, 4]\nreturn %4"},
    {"order of operands", EXACT, "%1 = full 2 : f32[3]\n%2 = leaf 1 : f32[3]\n%3 = mul %1, %2 : f32[3]\nreturn %3",
     "%1 = full 2 : f32[3]\n%2 = leaf 1 : f32[3]\n%3 = mul %2, %1 : f32[3]\nreturn %3"},
    {"order of operands", RELAXED, X "%2 = leaf 2 : f32[3, 4]\n%3 = max %2, %1 : f32[3, 4]\nreturn %3",
     X "%2 = leaf 2 : f32[3, 4]\n%3 = max %1, %2 : f32[3, 4]\nreturn %3"},
    {"x + 0, x - 0", EXACT,
     X "%2 = full 0 : f32[3, 4]\n%3 = sub %1, %2 : f32[3, 4]\n%4 = full -0 : f32[3, 4]\n"
       "%5 = add %4, %3 : f32[3, 4]\nreturn %5",
     X "return %1"},
    {"x + 0, x - 0", EXACT,
     I "%2 = full 0 : i32[3, 4]\n%3 = add %1, %2 : i32[3, 4]\n%4 = xor %3, %2 : i32[3, 4]\nreturn %4", I "return %1"},
    {"x + 0, x - 0", RELAXED, X "%2 = full 0 : f32[3, 4]\n%3 = add %1, %2 : f32[3, 4]\nreturn %3", X "return %1"},
    {"x * 1, x / 1", EXACT,
     X "%2 = full 1 : f32[3, 4]\n%3 = mul %1, %2 : f32[3, 4]\n%4 = div %3, %2 : f32[3, 4]\nreturn %4", X "return %1"},
    {"x * 0 of integers", EXACT, I "%2 = full 0 : i32[3, 4]\n%3 = mul %1, %2 : i32[3, 4]\nreturn %3",
     "%1 = full 0 : i32[3, 4]\nreturn %1"},
    {"x / 2^n", EXACT, X "%2 = full 8 : f32[3, 4]\n%3 = div %1, %2 : f32[3, 4]\nreturn %3",
     X "%2 = full 0.125 : f32[3, 4]\n%3 = mul %1, %2 : f32[3, 4]\nreturn %3"},
    {"x / 2^n", RELAXED, X "%2 = full 10 : f32[3, 4]\n%3 = div %1, %2 : f32[3, 4]\nreturn %3",
     X "%2 = full 0.10000000149011612 : f32[3, 4]\n%3 = mul %1, %2 : f32[3, 4]\nreturn %3"},
    {"x^n", EXACT, X "%2 = full 1 : f32[3, 4]\n%3 = pow %1, %2 : f32[3, 4]\nreturn %3", X "return %1"},
    {"x^n", RELAXED, X "%2 = full 3 : f32[3, 4]\n%3 = pow %1, %2 : f32[3, 4]\nreturn %3",
     X "%2 = mul %1, %1 : f32[3, 4]\n%3 = mul %1, %2 : f32[3, 4]\nreturn %3"},
    {"x^n", RELAXED, X "%2 = full -1 : f32[3, 4]\n%3 = pow %1, %2 : f32[3, 4]\nreturn %3",
     X "%2 = full 1 : f32[3, 4]\n%3 = div %2, %1 : f32[3, 4]\nreturn %3"},
    {"x^n", RELAXED,
     X "%2 = abs %1 : f32[3, 4]\n%3 = full 0.5 : f32[3, 4]\n%4 = pow %2, %3 : f32[3, 4]\n%5 = full -0.5 : f32[3, 4]\n"
       "%6 = pow %2, %5 : f32[3, 4]\n%7 = full 2 : f32[3, 4]\n%8 = pow %1, %7 : f32[3, 4]\nreturn %4, %6, %8",
     X "%2 = abs %1 : f32[3, 4]\n%3 = sqrt %2 : f32[3, 4]\n%4 = rsqrt %2 : f32[3, 4]\n"
       "%5 = mul %1, %1 : f32[3, 4]\nreturn %3, %4, %5"},
    {"the same twice", EXACT, X "%2 = neg %1 : f32[3, 4]\n%3 = neg %2 : f32[3, 4]\nreturn %3", X "return %1"},
    {"the same twice", EXACT,
     X "%2 = neg %1 : f32[3, 4]\n%3 = abs %2 : f32[3, 4]\n%4 = abs %3 : f32[3, 4]\n%5 = ceil %4 : f32[3, 4]\n"
       "%6 = round %5 : f32[3, 4]\n%7 = relu %6 : f32[3, 4]\n%8 = relu %7 : f32[3, 4]\nreturn %8",
     X "%2 = abs %1 : f32[3, 4]\n%3 = ceil %2 : f32[3, 4]\n%4 = relu %3 : f32[3, 4]\nreturn %4"},
    {"x - -y, x + -y", EXACT,
     X "%2 = leaf 2 : f32[3, 4]\n%3 = neg %2 : f32[3, 4]\n%4 = sub %1, %3 : f32[3, 4]\n%5 = neg %4 : f32[3, 4]\n"
       "%6 = add %5, %1 : f32[3, 4]\nreturn %6",
     X "%2 = leaf 2 : f32[3, 4]\n%3 = add %1, %2 : f32[3, 4]\n%4 = sub %1, %3 : f32[3, 4]\nreturn %4"},
    {"equal operands", EXACT, X "%2 = max %1, %1 : f32[3, 4]\nreturn %2", X "return %1"},
    {"equal operands", EXACT, I "%2 = sub %1, %1 : i32[3, 4]\nreturn %2", "%1 = full 0 : i32[3, 4]\nreturn %1"},
    {"select of one", EXACT,
     X "%2 = full true : bool[3, 4]\n%3 = neg %1 : f32[3, 4]\n%4 = select %2, %1, %3 : f32[3, 4]\n"
       "%5 = leaf 2 : bool[3, 4]\n%6 = select %5, %4, %4 : f32[3, 4]\nreturn %6",
     X "return %1"},
    {"select of one", EXACT,
     X "%2 = leaf 2 : bool[3, 4]\n%3 = not %2 : bool[3, 4]\n%4 = neg %1 : f32[3, 4]\n"
       "%5 = select %3, %1, %4 : f32[3, 4]\nreturn %5",
     X "%2 = leaf 2 : bool[3, 4]\n%3 = neg %1 : f32[3, 4]\n%4 = select %2, %3, %1 : f32[3, 4]\nreturn %4"},
    {"convert of convert", EXACT,
     "%1 = leaf 1 : bf16[5]\n%2 = convert %1 : f32[5]\n%3 = convert %2 : f64[5]\n%4 = convert %2 : bf16[5]\n"
     "%5 = convert %2 : i8[5]\nreturn %3, %4, %5",
     "%1 = leaf 1 : bf16[5]\n%2 = convert %1 : f64[5]\n%3 = convert %1 : i8[5]\nreturn %2, %1, %3"},
    {"convert of convert", EXACT, "%1 = leaf 1 : i8[5]\n%2 = convert %1 : f32[5]\n%3 = convert %2 : i32[5]\nreturn %3",
     "%1 = leaf 1 : i8[5]\n%2 = convert %1 : i32[5]\nreturn %2"},
    {"not of a comparison", EXACT,
     X "%2 = leaf 2 : f32[3, 4]\n%3 = eq %1, %2 : bool[3, 4]\n%4 = not %3 : bool[3, 4]\nreturn %4",
     X "%2 = leaf 2 : f32[3, 4]\n%3 = ne %1, %2 : bool[3, 4]\nreturn %3"},
    {"not of a comparison", EXACT,
     I "%2 = leaf 2 : i32[3, 4]\n%3 = lt %1, %2 : bool[3, 4]\n%4 = not %3 : bool[3, 4]\nreturn %4",
     I "%2 = leaf 2 : i32[3, 4]\n%3 = ge %1, %2 : bool[3, 4]\nreturn %3"},
    {"arithmetic before expand", EXACT,
     "%1 = leaf 1 : f32[3, 1]\n%2 = expand %1 : f32[3, 4]\n%3 = exp %2 : f32[3, 4]\n%4 = full 3 : f32[3, 4]\n"
     "%5 = mul %3, %4 : f32[3, 4]\nreturn %5",
     "%1 = leaf 1 : f32[3, 1]\n%2 = exp %1 : f32[3, 1]\n%3 = full 3 : f32[3, 1]\n%4 = mul %2, %3 : f32[3, 1]\n"
     "%5 = expand %4 : f32[3, 4]\nreturn %5"},
    {"permute of permute", EXACT,
     "%1 = leaf 1 : f32[2, 3, 4]\n%2 = permute %1 order (1, 2, 0) : f32[3, 4, 2]\n"
     "%3 = permute %2 order (1, 0, 2) : f32[4, 3, 2]\n%4 = permute %2 order (2, 0, 1) : f32[2, 3, 4]\nreturn %3, %4",
     "%1 = leaf 1 : f32[2, 3, 4]\n%2 = permute %1 order (2, 1, 0) : f32[4, 3, 2]\nreturn %2, %1"},
    {"permute of units", EXACT,
     "%1 = leaf 1 : f32[1, 3, 4]\n%2 = permute %1 order (1, 0, 2) : f32[3, 1, 4]\n%3 = reshape %2 : f32[12]\nreturn %3",
     "%1 = leaf 1 : f32[1, 3, 4]\n%2 = reshape %1 : f32[12]\nreturn %2"},
    {"permute of expand", EXACT,
     "%1 = leaf 1 : f32[3, 1]\n%2 = expand %1 : f32[3, 4]\n%3 = permute %2 order (1, 0) : f32[4, 3]\nreturn %3",
     "%1 = leaf 1 : f32[3, 1]\n%2 = reshape %1 : f32[1, 3]\n%3 = expand %2 : f32[4, 3]\nreturn %3"},
    {"expand of expand", EXACT,
     "%1 = leaf 1 : f32[1, 1]\n%2 = expand %1 : f32[3, 1]\n%3 = expand %2 : f32[3, 4]\nreturn %3",
     "%1 = leaf 1 : f32[1, 1]\n%2 = expand %1 : f32[3, 4]\nreturn %2"},
    {"slice of slice", EXACT,
     "%1 = leaf 1 : f32[20]\n%2 = slice %1 start (18) step (-2) : f32[9]\n%3 = slice %2 start (1) step (3) : f32[3]\n"
     "return %3",
     "%1 = leaf 1 : f32[20]\n%2 = slice %1 start (16) step (-6) : f32[3]\nreturn %2"},
    {"slice of expand", EXACT,
     "%1 = leaf 1 : f32[5, 1]\n%2 = expand %1 : f32[5, 4]\n%3 = slice %2 start (4, 1) step (-1, 2) : f32[2, 2]\n"
     "return %3",
     "%1 = leaf 1 : f32[5, 1]\n%2 = slice %1 start (4, 0) step (-1, 1) : f32[2, 1]\n%3 = expand %2 : f32[2, 2]\n"
     "return %3"},
    {"slice of pad", EXACT,
     "%1 = leaf 1 : f32[6]\n%2 = pad %1 start (2) step (1) fill 7 : f32[10]\n%3 = slice %2 start (3) step (2) : "
     "f32[3]\n"
     "%4 = slice %2 start (9) step (-1) : f32[2]\nreturn %3, %4",
     "%1 = leaf 1 : f32[6]\n%2 = slice %1 start (1) step (2) : f32[3]\n%3 = full 7 : f32[2]\nreturn %2, %3"},
    {"slice of concat", EXACT,
     "%1 = leaf 1 : f32[2, 6]\n%2 = leaf 2 : f32[2, 5]\n%3 = concat %1, %2 axis 1 : f32[2, 11]\n"
     "%4 = slice %3 start (1, 10) step (1, -2) : f32[1, 3]\nreturn %4",
     "%1 = leaf 1 : f32[2, 5]\n%2 = slice %1 start (1, 4) step (1, -2) : f32[1, 3]\nreturn %2"},
    {"slice of moved windows", EXACT,
     "%1 = leaf 1 : f32[4, 3]\n%2 = pad %1 start (2, 0) step (1, 1) fill 0 : f32[8, 3]\n%3 = reshape %2 : f32[24]\n"
     "%4 = window %3 axis 0 size 3 stride 3 dilation 4 : f32[6, 3]\n%5 = reduce sum %4 axes (1) : f32[6, 1]\n"
     "%6 = reshape %5 : f32[6]\n%7 = slice %6 start (1) step (1) : f32[4]\nreturn %7",
     "%1 = leaf 1 : f32[4, 3]\n%2 = pad %1 start (1, 0) step (1, 1) fill 0 : f32[6, 3]\n%3 = reshape %2 : f32[18]\n"
     "%4 = window %3 axis 0 size 3 stride 3 dilation 4 : f32[4, 3]\n%5 = reduce sum %4 axes (1) : f32[4, 1]\n"
     "%6 = reshape %5 : f32[4]\nreturn %6"},
    {"pad that only cuts", EXACT, "%1 = leaf 1 : f32[6]\n%2 = pad %1 start (-1) step (1) fill 0 : f32[3]\nreturn %2",
     "%1 = leaf 1 : f32[6]\n%2 = slice %1 start (1) step (1) : f32[3]\nreturn %2"},
    {"pad of pad", EXACT,
     "%1 = leaf 1 : f32[6]\n%2 = pad %1 start (1) step (2) fill 0 : f32[13]\n"
     "%3 = pad %2 start (2) step (1) fill 0 : f32[16]\nreturn %3",
     "%1 = leaf 1 : f32[6]\n%2 = pad %1 start (3) step (2) fill 0 : f32[16]\nreturn %2"},
    {"window of one", EXACT,
     "%1 = leaf 1 : f32[6, 2]\n%2 = window %1 axis 0 size 1 stride 2 dilation 3 : f32[3, 2, 1]\nreturn %2",
     "%1 = leaf 1 : f32[6, 2]\n%2 = slice %1 start (0, 0) step (2, 1) : f32[3, 2]\n%3 = reshape %2 : f32[3, 2, 1]\n"
     "return %3"},
    {"concat of concat", EXACT,
     "%1 = leaf 1 : f32[2]\n%2 = leaf 2 : f32[3]\n%3 = leaf 3 : f32[0]\n%4 = concat %1, %2 axis 0 : f32[5]\n"
     "%5 = concat %4, %3, %1 axis 0 : f32[7]\nreturn %5",
     "%1 = leaf 1 : f32[2]\n%2 = leaf 2 : f32[3]\n%3 = concat %1, %2, %1 axis 0 : f32[7]\nreturn %3"},
    {"concat of slices", EXACT,
     "%1 = leaf 1 : f32[7]\n%2 = slice %1 start (0) step (1) : f32[3]\n%3 = slice %1 start (3) step (1) : f32[4]\n"
     "%4 = concat %2, %3 axis 0 : f32[7]\nreturn %4",
     "%1 = leaf 1 : f32[7]\nreturn %1"},
    {"concat of slices", EXACT,
     "%1 = leaf 1 : f32[7]\n%2 = slice %1 start (6) step (1) : f32[1]\n%3 = slice %1 start (4) step (1) : f32[1]\n"
     "%4 = slice %1 start (2) step (-2) : f32[2]\n%5 = concat %2, %3, %4, %1 axis 0 : f32[11]\nreturn %5",
     "%1 = leaf 1 : f32[7]\n%2 = slice %1 start (6) step (-2) : f32[4]\n%3 = concat %2, %1 axis 0 : f32[11]\nreturn "
     "%3"},
    {"reduce of units", EXACT,
     "%1 = leaf 1 : f32[1, 5]\n%2 = reduce sum %1 axes (0, 1) : f32[1, 1]\n%3 = reduce max %1 axes (0) : f32[1, 5]\n"
     "%4 = reduce argmax %1 axes (0) : i64[1, 5]\nreturn %2, %3, %4",
     "%1 = leaf 1 : f32[1, 5]\n%2 = reduce sum %1 axes (1) : f32[1, 1]\n%3 = full 0 : i64[1, 5]\nreturn %2, %1, %3"},
    {"reduce of units", RELAXED, "%1 = leaf 1 : f32[1, 5]\n%2 = reduce sum %1 axes (0) : f32[1, 5]\nreturn %2",
     "%1 = leaf 1 : f32[1, 5]\nreturn %1"},
    {"reduce of expand", EXACT,
     "%1 = leaf 1 : f32[5, 1]\n%2 = expand %1 : f32[5, 4]\n%3 = reduce max %2 axes (0, 1) : f32[1, 1]\nreturn %3",
     "%1 = leaf 1 : f32[5, 1]\n%2 = reduce max %1 axes (0) : f32[1, 1]\nreturn %2"},
    {"reduce of expand", RELAXED,
     "%1 = leaf 1 : f32[5, 1]\n%2 = expand %1 : f32[5, 4]\n%3 = reduce sum %2 axes (0, 1) : f32[1, 1]\nreturn %3",
     "%1 = leaf 1 : f32[5, 1]\n%2 = full 4 : f32[1, 1]\n%3 = reduce sum %1 axes (0) : f32[1, 1]\n"
     "%4 = mul %3, %2 : f32[1, 1]\nreturn %4"},
    {"reduce of reduce", EXACT,
     X "%2 = reduce max %1 axes (1) : f32[3, 1]\n%3 = reduce max %2 axes (0) : f32[1, 1]\nreturn %3",
     X "%2 = reduce max %1 axes (0, 1) : f32[1, 1]\nreturn %2"},
    {"reduce of reduce", RELAXED,
     X "%2 = reduce sum %1 axes (1) : f32[3, 1]\n%3 = reduce sum %2 axes (0) : f32[1, 1]\nreturn %3",
     X "%2 = reduce sum %1 axes (0, 1) : f32[1, 1]\nreturn %2"},
    {"sum of multiples", RELAXED,
     X "%2 = leaf 2 : f32[3, 4]\n%3 = reduce sum %1 axes (1) : f32[3, 1]\n%4 = expand %3 : f32[3, 4]\n"
       "%5 = mul %1, %4 : f32[3, 4]\n%6 = sub %5, %2 : f32[3, 4]\n%7 = reduce sum %6 axes (1) : f32[3, 1]\nreturn %7",
     X "%2 = leaf 2 : f32[3, 4]\n%3 = reduce sum %1 axes (1) : f32[3, 1]\n%4 = mul %3, %3 : f32[3, 1]\n"
       "%5 = reduce sum %2 axes (1) : f32[3, 1]\n%6 = sub %4, %5 : f32[3, 1]\nreturn %6"},
    {"scan of one", EXACT, "%1 = leaf 1 : f32[3, 1]\n%2 = scan prod %1 axis 1 : f32[3, 1]\nreturn %2",
     "%1 = leaf 1 : f32[3, 1]\nreturn %1"},
    {"scan of one", RELAXED, "%1 = leaf 1 : f32[3, 1]\n%2 = scan sum %1 axis 1 : f32[3, 1]\nreturn %2",
     "%1 = leaf 1 : f32[3, 1]\nreturn %1"},
};

/* Storage k: 64 elements, of every type small numbers of both signs, -0 and fractions among them. */
static const void *numbers_of(void *context, const graph_node *leaf)
{
    arena *memory = context;
    int size = dtypes[leaf->elem].size_bytes;
    char *data = arena_alloc(memory, 64 * 8);
    for (int i = 0; i < 64; i++) {
        int whole = (i * 7 + (int)(uintptr_t)leaf->attr.storage * 3) % 11 - 5;
        number n = {.i = leaf->elem == DT_BOOL ? whole & 1 : integer_wrap(leaf->elem, whole),
                    .f = whole ? whole * 0.75 : -0.0};
        element_write(leaf->elem, data + i * size, n);
    }
    return data;
}

static bool same_values(graph *g, const node *a, const node *b, int count, bool exact, arena *memory)
{
    graph_memory where = {.find = numbers_of, .context = memory};
    graph_tensor *x = ARENA_ARRAY(memory, graph_tensor, count), *y = ARENA_ARRAY(memory, graph_tensor, count);
    qn_error error;
    if (graph_interpret(g, a, count, &where, false, memory, x, &error)) return false;
    if (graph_interpret(g, b, count, &where, false, memory, y, &error)) return false;
    for (int i = 0; i < count; i++) {
        if (x[i].elem != y[i].elem || !shape_same(&x[i].shape, &y[i].shape)) return false;
        for (int64_t j = 0; j < x[i].count; j++) {
            number p = x[i].elements[j], q = y[i].elements[j];
            bool same = exact ? !memcmp(&p, &q, sizeof(p)) : fabs(p.f - q.f) <= 1e-5 * (1 + fabs(p.f)) && p.i == q.i;
            if (!same && !(p.f != p.f && q.f != q.f) && p.f != q.f) return false;
            if (!same && exact) return false;
        }
    }
    return true;
}

/* The simplified graph as text, in `out`; checks the values against those before. */
static void simplified(const rule_case *c, const graph_rules *rules, text *out)
{
    arena *memory = arena_new();
    graph *g = graph_new(memory);
    node *roots, before[8];
    int count;
    qn_error error;
    text_clear(out);
    if (graph_read(g, c->rule, c->before, strlen(c->before), &roots, &count, &error)) {
        test_fail(__FILE__, __LINE__, error.message);
        arena_free(memory);
        return;
    }
    memcpy(before, roots, sizeof(node) * (size_t)count);
    graph_simplify(g, roots, count, rules);
    if (!same_values(g, before, roots, count, !rules->relaxed, memory)) test_fail(__FILE__, __LINE__, c->rule);
    graph_print(g, roots, count, out);
    arena_free(memory);
}

TEST(each_rule_does_what_it_says)
{
    text out = {0}, expected = {0};
    for (int i = 0; i < COUNT(cases); i++) {
        const rule_case *c = &cases[i];
        graph_rules rules = {.relaxed = c->relaxed};
        text_clear(&expected);
        text_print(&expected, "%s\n", c->after);
        simplified(c, &rules, &out);
        if (strcmp(text_get(&out), text_get(&expected))) printf("rule %s:\n", c->rule);
        EXPECT_TEXT(text_get(&out), text_get(&expected));
        rules.without = c->rule;
        simplified(c, &rules, &out);
        if (!strcmp(text_get(&out), text_get(&expected))) printf("rule %s is not needed by its case %d\n", c->rule, i);
        EXPECT(strcmp(text_get(&out), text_get(&expected)) != 0);
        if (!c->relaxed) continue;
        simplified(c, &(graph_rules){0}, &out);
        EXPECT(strcmp(text_get(&out), text_get(&expected)) != 0);
    }
    text_free(&out);
    text_free(&expected);
}

TEST(every_rule_has_a_case)
{
    for (int i = 0; i < graph_rule_count(); i++) {
        bool found = false, relaxed = false;
        for (int k = 0; k < COUNT(cases); k++) {
            if (strcmp(cases[k].rule, graph_rule_name(i))) continue;
            found = true;
            relaxed |= cases[k].relaxed;
        }
        if (!found || relaxed != graph_rule_relaxed(i)) test_fail(__FILE__, __LINE__, graph_rule_name(i));
    }
}

/* What must stay, although it looks as if it could go. */
TEST(what_must_stay_stays)
{
    static const char *const graphs[] = {
        X "%2 = again 1 %1 : f32[3, 4]\n%3 = keep 1 %2 : f32[3, 4]\nreturn %3\n",
        X "%2 = full 0 : f32[3, 4]\n%3 = mul %1, %2 : f32[3, 4]\nreturn %3\n",                    /* NaN */
        X "%2 = sub %1, %1 : f32[3, 4]\nreturn %2\n",                                             /* infinity */
        "%1 = full -1 : f32[2]\n%2 = sqrt %1 : f32[2]\nreturn %2\n",                              /* NaN */
        "%1 = leaf 1 : f32[5]\n%2 = convert %1 : bf16[5]\n%3 = convert %2 : f32[5]\nreturn %3\n", /* rounds */
        "%1 = leaf 1 : i16[5]\n%2 = convert %1 : f32[5]\n%3 = convert %2 : i8[5]\nreturn %3\n",   /* saturates */
        "%1 = leaf 1 : i32[5]\n%2 = convert %1 : f64[5]\n%3 = convert %2 : bf16[5]\nreturn %3\n", /* rounds once */
        X "%2 = leaf 2 : f32[3, 4]\n%3 = lt %1, %2 : bool[3, 4]\n%4 = not %3 : bool[3, 4]\nreturn %4\n",
        "%1 = leaf 1 : f32[6]\n%2 = pad %1 start (-1) step (1) fill 0 : f32[6]\n"
        "%3 = pad %2 start (1) step (1) fill 0 : f32[8]\nreturn %3\n",
        /* the inner sum is wanted too */
        X "%2 = reduce max %1 axes (1) : f32[3, 1]\n%3 = reduce max %2 axes (0) : f32[1, 1]\nreturn %2, %3\n",
        "%1 = leaf 1 : f32[7]\n%2 = slice %1 start (0) step (1) : f32[3]\n%3 = slice %1 start (4) step (1) : f32[3]\n"
        "%4 = concat %2, %3 axis 0 : f32[6]\nreturn %4\n",
        /* differences from a mean: their sum is what the rounding left, not what two large sums differ by */
        X "%2 = reduce sum %1 axes (1) : f32[3, 1]\n%3 = expand %2 : f32[3, 4]\n%4 = sub %1, %3 : f32[3, 4]\n"
          "%5 = reduce sum %4 axes (1) : f32[3, 1]\nreturn %5\n",
    };
    text out = {0};
    for (int i = 0; i < COUNT(graphs); i++) {
        rule_case c = {"nothing", RELAXED, graphs[i], graphs[i]};
        simplified(&c, &(graph_rules){.relaxed = true}, &out);
        EXPECT_TEXT(text_get(&out), graphs[i]);
    }
    text_free(&out);
}

/* Sites and labels go from a node to what stands for it. */
TEST(sites_stay)
{
    rule_case c = {"sites", EXACT,
                   "%1 = leaf 1 : f32[5, 1] ; a.c:1\n%2 = expand %1 : f32[5, 4] ; a.c:2\n"
                   "%3 = exp %2 : f32[5, 4] ; softmax a.c:3\nreturn %3",
                   NULL};
    text out = {0};
    simplified(&c, &(graph_rules){0}, &out);
    EXPECT_TEXT(text_get(&out), "%1 = leaf 1 : f32[5, 1] ; a.c:1\n%2 = exp %1 : f32[5, 1] ; softmax a.c:3\n"
                                "%3 = expand %2 : f32[5, 4] ; softmax a.c:3\nreturn %3\n");
    text_free(&out);
}

/* A chain of 20,000 ops costs no stack and little time. */
TEST(long_graphs)
{
    arena *memory = arena_new();
    graph *g = graph_new(memory);
    node x = graph_leaf(g, DT_F32, &(shape){1, {4}}, NULL, 0, NULL), start = x;
    for (int i = 0; i < 20000; i++) x = graph_unary(g, OP_NEG, x);
    graph_simplify(g, &x, 1, &(graph_rules){0});
    EXPECT(x == start);
    arena_free(memory);
}

/* Nor does a slice at the end of as many windows, each with an axis that it could be moved through. */
TEST(long_chains_of_windows)
{
    arena *memory = arena_new();
    graph *g = graph_new(memory);
    node x = graph_leaf(g, DT_F32, &(shape){2, {2, 4}}, NULL, 0, NULL);
    for (int i = 0; i < 20000; i++) {
        x = graph_pad(g, x, (int64_t[]){0, 0}, (int64_t[]){1, 1}, &(shape){2, {2, 5}}, (number){0});
        x = graph_reduce(g, FOLD_MAX, graph_window(g, x, 1, 2, 1, 1), 1u << 2);
        x = graph_reshape(g, x, &(shape){2, {2, 4}});
    }
    x = graph_slice(g, x, (int64_t[]){1, 0}, (int64_t[]){1, 1}, &(shape){2, {1, 4}});
    graph_simplify(g, &x, 1, &(graph_rules){0});
    EXPECT(graph_get(g, x)->code == GRAPH_SLICE);
    arena_free(memory);
}

TEST_MAIN(CASE(each_rule_does_what_it_says), CASE(every_rule_has_a_case), CASE(what_must_stay_stays), CASE(sites_stay),
          CASE(long_graphs), CASE(long_chains_of_windows))
