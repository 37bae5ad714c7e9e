"""Raw text, looking inside, measuring, profiles, what notebooks show."""

import array
import unittest
import warnings

from .support import module, needs_torch, quern, torch

CUDA = """
template <typename T> __global__ void scale(const T *x, T *y, T s, int n)
{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = s * x[i]; }
__global__ void square(const float *x, float *y, int n)
{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = x[i] * x[i]; }
"""


class Text(unittest.TestCase):
    def test_cuda(self):
        try:
            k = quern.cuda(CUDA, functions=["square", "scale<float>"])
        except quern.DeviceError as error:
            self.skipTest(str(error))
        x, y = array.array("f", range(1000)), array.array("f", [0] * 1000)
        k.square(x, y, 1000, blocks=4, threads=256)
        self.assertEqual(y[:4].tolist(), [0, 1, 4, 9])
        k["scale<float>"](x, y, 3.0, 1000, blocks=(4, 1), threads=(256, 1))
        self.assertEqual(y[:4].tolist(), [0, 3, 6, 9])
        with self.assertRaisesRegex(TypeError, "say how it is launched"):
            k.square(x, y, 1000)
        with self.assertRaisesRegex(quern.SourceError, "has no kernel `cube`; it has scale, square"):
            quern.cuda(CUDA, functions=["cube"])
        with self.assertRaisesRegex(quern.Error, "1:3"):
            quern.cuda("__global__ void f(float *x) { x[0] = nothing; }")
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            quern.cuda(CUDA, options=["-O2", "-DSIZE=3"])
        self.assertIn("-O2", str(seen[0].message))

    def test_host_code_is_refused(self):
        source = "__global__ void f_kernel(const float *x, float *y, int n) {}\n"
        source += "torch::Tensor f(torch::Tensor x) { f_kernel<<<1, 256>>>(x, y, n); return y; }"
        with self.assertRaises(quern.SourceError) as caught:
            quern.cuda(source)
        self.assertIn("line 2", str(caught.exception))
        self.assertIn("k.f_kernel(x, y, n, blocks=(x.numel() + 255) // 256, threads=256)", str(caught.exception))

    def test_c(self):
        body = "void scale(const float *x, float *y, float s, long n) { for (long i = 0; i < n; i++) y[i] = s * x[i]; }"
        k = quern.c(body, "in float x[n], out float y[n], float s")
        self.assertEqual(list(memoryview(k(array.array("f", [1, 2, 3]), 2.0))), [2, 4, 6])
        with self.assertRaises(quern.SourceError):
            quern.c("int x;", "in float x[n]")


class Inside(unittest.TestCase):
    def test_stages(self):
        q = module()
        self.assertIn("twice", q.twice.source("c"))
        self.assertIn("__global__", q.twice.source("cuda"))
        self.assertIn("__global__", q.soft.source("cuda", m=64, n=100, T="f32"))
        self.assertIn("kernel 0", q.soft.schedule(m=64, n=100, T="f32"))
        self.assertIn("team", q.twice.schedule())
        self.assertIn("<svg", q.soft.graph(m=64, n=100, T="f32"))
        x = array.array("f", range(1000))
        self.assertEqual(dict(q.twice._callable.known((x,), {}))["n"], "1000")
        self.assertTrue(q.twice.explain(x) or True)

    def test_measuring(self):
        q, x = module(), array.array("f", range(1000))
        timing = q.twice.bench(x, seconds=0.02)
        self.assertGreater(timing.median_us, 0)
        self.assertIn("us", repr(timing))
        bundle = timing._repr_mimebundle_()
        self.assertIn("<table", bundle["text/html"])
        self.assertNotIn("<script", bundle["text/html"])
        self.assertIn("GB/s", bundle["text/html"].rpartition("</svg>")[2])  # of a kernel: how much of the bandwidth
        roofline = timing.roofline()
        self.assertTrue(roofline.copy_gb_per_s > 0 and roofline.gflop_per_s > 0)
        for each in (q, q.twice, q.soft.graph(m=64, n=100, T="f32")):
            self.assertIn("text/html", each._repr_mimebundle_())

    @needs_torch
    def test_notebooks_show_the_roofline_and_the_fusion(self):
        q = module()
        timing = q.soft.bench(torch.randn(64, 100), seconds=0.02)
        self.assertGreater(timing.flops, 64 * 100 * 3)
        html = timing._repr_mimebundle_()["text/html"]
        for part in ("<polyline", "<circle", "FLOP a byte", "currentColor"):
            self.assertIn(part, html)
        explained = quern.explain(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.1), torch.nn.GELU()), torch.randn(4, 8))
        html = explained._repr_mimebundle_()["text/html"]
        for part in ("island0", "random numbers are torch&#x27;s", "us a call"):
            self.assertIn(part, html)
        self.assertNotIn("<script", html)

    @needs_torch
    def test_check(self):
        q = module()
        self.assertLess(q.soft.check(torch.randn(5, 7)).largest_error, 1e-5)
        r = quern.compile("kernel reads_unset(in float x[n], out float y[n]) launch (1) { y[:] = x[:] / (x[:] - x[:]); }")
        with self.assertRaises(quern.Error):
            r.reads_unset.check(torch.ones(5))

    def test_profile(self):
        q, x = module(), array.array("f", range(1000))
        q.twice(x)
        with quern.profile() as prof:
            for _ in range(3):
                q.twice(x)
                prof.step()
            with quern.profile.range("mine"):
                q.twice(x)
        table = prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=10)
        self.assertIn("twice", table)
        self.assertIn("mine", table)
        self.assertRaises(TypeError, quern.profile, with_magic=True)
        ready = []
        schedule = quern.profile.schedule(wait=1, warmup=1, active=2, repeat=1)
        with quern.profile(schedule=schedule, on_trace_ready=lambda p: ready.append(p)) as prof:
            for _ in range(6):
                q.twice(x)
                prof.step()
        self.assertEqual(len(ready), 1)

    @needs_torch
    def test_torch_profiler(self):
        q, x = module(), torch.randn(4, 4)
        q.soft(x)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as prof:
            q.soft(x)
        self.assertIn("soft", [e.name for e in prof.events()])


if __name__ == "__main__":
    unittest.main()
