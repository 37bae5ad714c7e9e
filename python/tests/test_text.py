"""Raw text, looking inside, measuring, profiles, what notebooks show."""

import array
import json
import os
import tempfile
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
        with self.assertRaisesRegex(quern.Error, "1:3|<cuda>:1: error"):  # emu's compiler tells columns, NVRTC lines
            quern.cuda("__global__ void f(float *x) { x[0] = nothing; }")
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            quern.cuda(CUDA, options=["-O2", "-DSIZE=3"])
        self.assertIn("-O2", str(seen[0].message))

    def test_cuda_headers(self):
        """What people include, under the names that it has there."""
        half = "__global__ void f(const __half *x, __half *y, int n) { if (threadIdx.x < n) y[threadIdx.x] = __hadd(x[threadIdx.x], x[threadIdx.x]); }"
        wide = "__global__ void f(const __nv_bfloat16 *x, float *y, int n) { if (threadIdx.x < n) y[threadIdx.x] = __bfloat162float(x[threadIdx.x]); }"
        units = """using namespace nvcuda;
__global__ void f(const half *a, const half *b, float *c)
{
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> A;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> B;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> C;
    wmma::fill_fragment(C, 0.0f);
    wmma::load_matrix_sync(A, a, 16);
    wmma::load_matrix_sync(B, b, 16);
    wmma::mma_sync(C, A, B, C);
    wmma::store_matrix_sync(c, C, 16, wmma::mem_row_major);
}"""
        try:
            for header, text in (("cuda_fp16.h", half), ("cuda_bf16.h", wide), ("mma.h", units)):
                self.assertEqual(list(quern.cuda(f"#include <{header}>\n{text}")), ["f"])
        except quern.DeviceError as error:
            self.skipTest(str(error))
        except quern.Error as error:
            if "could not open source file" not in str(error):
                raise
            self.skipTest(f"{header} is not on this machine: {error}")

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
        for words in (q.twice.explain(x), q.soft.explain(m=64, n=100, T="f32")):
            self.assertTrue(words.strip())
            self.assertEqual(repr(words), words)  # lines, at the prompt and in a notebook
            self.assertIn("\n", words)
            self.assertEqual(words._repr_mimebundle_()["text/plain"], words)
            self.assertIn("<pre", words._repr_mimebundle_()["text/html"])
        self.assertEqual(repr(q.twice.source("c")), q.twice.source("c"))
        try:
            for function, settings in ((q.twice, {"T": "f32"}), (q.soft, {"m": 64, "n": 100, "T": "f32"})):
                self.assertIn(".entry", function.ptx(**settings))
        except quern.DeviceError as error:
            self.assertIn("NVRTC", str(error))

    def test_tuning(self):
        q = quern.compile("""kernel raised(in float x[n], out float y[n], const int B = 64) launch (cdiv(n, B)) tune (B in {64, 256})
{ y[program(0) * B : B] = exp(x[program(0) * B : B]); }""")
        x = array.array("f", [0.0, 1.0] * 1000)
        words = str(q.raised.tune(x, seconds=0.5))
        self.assertIn("best: B=", words)
        self.assertAlmostEqual(memoryview(q.raised(x))[1999], 2.718281828, places=5)

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
            self.assertNotIn("background:#fff", each._repr_mimebundle_()["text/html"].partition("<svg")[0])  # a frame of light in a dark page

    def test_fits_a_phone(self):
        from quern.notebook import bars, table

        self.assertIn("max-width:100%;height:auto", bars([10.0, 11.0]))
        self.assertIn("viewBox", bars([10.0, 11.0]))
        self.assertIn("softmax_<wbr>row", table(("name",), [("softmax_row",)]))
        self.assertIn("overflow-x:auto", table(("name",), []))

    def test_bars_of_samples(self):
        from quern.notebook import bars

        drawn = bars([10.0] * 50 + [11.0] * 40 + [12.0] * 9 + [90000.0])
        self.assertIn("12.00 us, 1 beyond", drawn)  # one pause of the system does not press the rest into one bar
        self.assertGreaterEqual(drawn.count("<rect"), 3)
        self.assertIn("display:block", drawn)
        self.assertNotIn("beyond", bars([5.0, 5.0, 5.0]))

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
        with tempfile.TemporaryDirectory() as folder:
            paths = [os.path.join(folder, name) for name in ("trace.json", "stacks.txt", "report.html")]
            prof.export_chrome_trace(paths[0])
            prof.export_stacks(paths[1])
            prof.export_report(paths[2])
            with open(paths[0]) as file:
                events = json.load(file)["traceEvents"]
            self.assertTrue(any("twice" in str(e.get("name")) for e in events))
            self.assertTrue(all(os.path.getsize(path) for path in paths))
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

    @unittest.skipUnless(os.environ.get("QUERN_FAKE_CUDA"), "only with a build of the repository, which has a driver without a GPU")
    def test_somebody_else_holds_cupti(self):
        """Times come by events then, and the table says why."""
        from .test_waiting import CUDA, run

        words = CUDA.partition("for turn in")[0] + """
x, y = Far([1] * 100, 100), Far([0] * 100, 100)
q.twice(x, out=y)
with quern.profile() as prof:
    q.twice(x, out=y)
print(prof.key_averages().table())
"""
        made = run(words, QUERN_CUDA_PATH=os.environ["QUERN_FAKE_CUDA"], FAKE_CUPTI_REFUSE="39")
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertIn("twice", made.stdout)
        self.assertIn("another tool is tracing this process", made.stdout + made.stderr)


if __name__ == "__main__":
    unittest.main()
