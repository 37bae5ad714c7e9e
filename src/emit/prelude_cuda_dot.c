/*
 * Products in the CUDA prelude. In and out: text templates, see prelude_cuda_parts.h.
 *
 * dot_plain_<m>: c[m][n] += a[m][k] * b[k][n] (or = with `clear`) by a team of threads, any strides, any sizes, operands
 * in any memory. Only positions from first up to last count; the elements of c outside add nothing (or are cleared).
 * SPDX-License-Identifier: MIT
 */
#include "emit/prelude_cuda_parts.h"

const prelude_part cuda_dot_parts[] = {
    {"dot_plain_$t", "f32 f64 f16 bf16 i8 u8", "read_$t",
     "INLINE void dot_plain_$t(const $m *a, long a_row, long a_column, const $m *b, long b_row, long b_column, $k *c,\n"
     "                         long c_row, long m, long n, long m_first, long m_last, long n_first, long n_last,\n"
     "                         long k_first, long k_last, bool clear, int thread, int threads)\n"
     "{\n"
     "    for (long i = thread; i < m * n; i += threads) {\n"
     "        const long row = i / n, column = i % n;\n"
     "        $k sum = clear ? 0 : c[row * c_row + column];\n"
     "        if (row >= m_first && row < m_last && column >= n_first && column < n_last) {\n"
     "            const $m *x = a + row * a_row, *y = b + column * b_column;\n"
     "            for (long p = k_first; p < k_last; p++)\n"
     "                sum += ($k)read_$t(x + p * a_column) * ($k)read_$t(y + p * b_row);\n"
     "        }\n"
     "        c[row * c_row + column] = sum;\n"
     "    }\n"
     "}\n"},
    {0},
};
