"""What the tests share: torch and NumPy where they can be had, and a word about it where not."""

import os
import sys
import unittest

sys.path.insert(0, os.environ.get("QUERN_PYTHON") or os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import quern  # noqa: E402

try:
    import numpy
except ImportError:
    numpy = None
try:
    import torch
except ImportError:
    torch = None

if torch:
    from quern import backend, choice

    choice.DEVICES = ("cuda",)  # what is compared on the CPU is Quern's, however long that takes for so few elements
    backend.DEFAULTS["patience"] = float("inf")  # first calls are Quern's, and not torch's while kernels compile

needs_numpy = unittest.skipIf(numpy is None, "NumPy is not installed")
needs_torch = unittest.skipIf(torch is None, "torch is not installed")
needs_cuda = unittest.skipIf(torch is None or not torch.cuda.is_available(), "there is no CUDA device")

SOURCE = """
kernel twice(in T x[n], out T y[n], const int B = 64) launch (cdiv(n, B))
{ y[program(0) * B : B] = 2 * x[program(0) * B : B]; }

kernel many(in T x[n], out T y[n], const int B = 64) launch (cdiv(n, B))
    types (T in {f32, f64, i8, i16, i32, i64, u8, u16, u32, u64})
{ y[program(0) * B : B] = 2 * x[program(0) * B : B]; }

kernel axpy(in float x[n], inout float y[n], float a, const int B = 64) launch (cdiv(n, B))
{ y[program(0) * B : B] += a * x[program(0) * B : B]; }

kernel scaled(in float x[n], out float y[n], float s, const int B = 256)  launch (cdiv(n, B))  gradient (scaled_back)
{ y[program(0) * B : B] = s * x[program(0) * B : B]; }
tensor scaled_back(float d_y[n], float s) { let d_x = s * d_y; return d_x; }

tensor add(T a[m][n], T b[m][n]) { return a + b; }
tensor soft(T x[m][n], float s = 2) { return softmax(s * x, axis = 1); }
tensor lin(T x[m][k], T w[k][n], float s = 2) { return s * gelu(matmul(x, w)); }
tensor two(float x[m][n]) { return softmax(x, axis = 1), sum(x * x, axis = 1); }
tensor pick(float table[n][d], i64 index[m]) { return gather_rows(table, index); }
tensor gather_rows(float table[n][d], i64 index[m]) { return table[index][:]; }
"""

_module = None


def module():
    global _module
    if _module is None:
        _module = quern.compile(SOURCE, "tests.qn")
    return _module
