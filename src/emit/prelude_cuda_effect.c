/*
 * Effects in the CUDA prelude: the report of a failure, a loop that may not end, and records of `print` for the host (see prelude_cuda.h).
 * In and out: text templates, see prelude_cuda_parts.h.
 * SPDX-License-Identifier: MIT
 */
#include "emit/prelude_cuda_parts.h"

const prelude_part cuda_effect_parts[] = {
    {"report_failure", "", "",
     "INLINE void report_failure(void *report, long kind, long line, long p0, long p1, long p2)\n"
     "{\n"
     "    long *const words = (long *)report;\n"
     "    if (atomicCAS((unsigned long long *)words, 0ull, (unsigned long long)kind)) return; /* not the first */\n"
     "    words[1] = line;\n"
     "    words[2] = p0, words[3] = p1, words[4] = p2;\n"
     "}\n"},
    {"go_on", "", "",
     "INLINE void go_on()\n"
     "{\n"
     "#ifdef QUERN_EMU\n"
     "    __asm__ volatile(\"\");\n"
     "#else\n"
     "    asm volatile(\"\");\n"
     "#endif\n"
     "}\n"},
    {"print_open", "", "",
     "/* Room for a record, its head filled; 0 if there is none. */\n"
     "INLINE long *print_open(void *ring, long words, long op, long p0, long p1, long p2)\n"
     "{\n"
     "    long *const head = (long *)ring;\n"
     "    const long at = (long)atomicAdd((unsigned long long *)(head + 1), (unsigned long long)words);\n"
     "    if (at + words > head[0]) return 0;\n"
     "    long *const to = head + 2 + at;\n"
     "    to[0] = words, to[1] = op;\n"
     "    to[2] = p0, to[3] = p1, to[4] = p2;\n"
     "    return to + 5;\n"
     "}\n"},
    {"print_word_$t", "f32 f64", "real_f64", "INLINE long print_word_$t($v x) { return bits_f64((double)x); }\n"},
    {"print_word_$t", CUDA_INTEGERS " bool", "", "INLINE long print_word_$t($v x) { return (long)x; }\n"},
    {"print_$t", CUDA_NUMBERS " bool", "print_word_$t read_$t",
     "INLINE long *print_$t(long *to, const $m *from, long count)\n"
     "{\n"
     "    for (long i = 0; i < count; i++) to[i] = print_word_$t(read_$t(from + i));\n"
     "    return to + count;\n"
     "}\n"},
    {"print_$t", "f16 bf16", "print_word_f32 read_$t",
     "INLINE long *print_$t(long *to, const $m *from, long count)\n"
     "{\n"
     "    for (long i = 0; i < count; i++) to[i] = print_word_f32(read_$t(from + i));\n"
     "    return to + count;\n"
     "}\n"},
    {0},
};
