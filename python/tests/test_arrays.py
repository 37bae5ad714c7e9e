"""Arrays of CuPy and JAX themselves, where those are installed: no copies, results of the same library, streams, what is refused."""

import gc
import unittest

from .support import module, numpy

try:
    import cupy

    cupy.cuda.runtime.getDeviceCount()
except Exception as error:  # not installed, or no GPU
    cupy, why_not_cupy = None, f"CuPy cannot be used: {type(error).__name__}: {str(error)[:100]}"
else:
    why_not_cupy = ""
try:
    import jax
except ImportError:
    jax = None


@unittest.skipIf(cupy is None, why_not_cupy)
class Cupy(unittest.TestCase):
    def setUp(self):
        self.q = module()
        self.random = cupy.random.default_rng(1)

    def test_strides_types_and_results(self):
        base = self.random.standard_normal((20, 30)).astype(cupy.float32)
        for x in (base, base.T, base[3:9, 5:20:2], base[:1], base[:0], cupy.broadcast_to(base[0], (5, 30))):  # its exchange has no negative strides
            y = self.q.add(x, x)
            self.assertIs(type(y), cupy.ndarray)
            cupy.testing.assert_allclose(y, x + x)
            out = cupy.zeros(x.shape, cupy.float32)
            self.assertIs(self.q.add(x, x, out=out), out)
            cupy.testing.assert_allclose(out, x + x)
        for type_ in (cupy.float64, cupy.float16):
            self.assertEqual(self.q.add(base.astype(type_), base.astype(type_)).dtype, type_)
        p, s = self.q.two(base)
        cupy.testing.assert_allclose(p.sum(1), cupy.ones(20), rtol=1e-5)
        cupy.testing.assert_allclose(s[:, 0], (base * base).sum(1), rtol=1e-4)
        with self.assertRaises(TypeError):
            self.q.twice(cupy.zeros(3, cupy.complex64))
        with self.assertRaises(ValueError):
            self.q.add(base, numpy.zeros((20, 30), numpy.float32))

    def test_the_current_stream_is_used(self):
        """Work before and after on a stream that does not wait for the default one, kept busy so that what is out of order shows."""
        big = self.random.standard_normal((2048, 2048)).astype(cupy.float32)
        base = self.random.standard_normal((64, 128)).astype(cupy.float32)
        wanted = base
        for _ in range(5):
            wanted = 2 * wanted + 1
        self.q.add(base, base)
        cupy.cuda.Device().synchronize()
        for stream in [cupy.cuda.Stream(non_blocking=True) for _ in range(3)]:
            with stream:
                x = base
                for _ in range(5):
                    big @ big
                    x = self.q.add(x + 1, x)
                found = x * 1
            stream.synchronize()
            cupy.testing.assert_allclose(found, wanted, rtol=1e-5)

    def test_lifetimes(self):
        pool = cupy.get_default_memory_pool()
        x = cupy.ones((256, 256), cupy.float32)
        for _ in range(3):
            self.q.add(x, x)
        cupy.cuda.Device().synchronize()
        gc.collect()
        before = pool.used_bytes()
        for _ in range(200):
            self.q.add(x, x)
        cupy.cuda.Device().synchronize()
        gc.collect()
        self.assertEqual(pool.used_bytes(), before)


@unittest.skipIf(jax is None, "JAX is not installed")
class Jax(unittest.TestCase):
    def setUp(self):
        self.q = module()
        self.x = jax.random.normal(jax.random.key(1), (20, 30))

    def close(self, a, b):
        numpy.testing.assert_allclose(numpy.asarray(a, numpy.float32), numpy.asarray(b, numpy.float32), rtol=1e-5, atol=1e-6)

    def test_results_are_jaxs(self):
        for x in (self.x, self.x.T, self.x[3:9, 5:20:2], self.x[:1], self.x[:0]):
            y = self.q.add(x, x)
            self.assertIsInstance(y, jax.Array)
            self.assertEqual(y.devices(), x.devices())
            self.close(y, x + x)
        half = self.x.astype(jax.numpy.bfloat16)
        self.assertEqual(self.q.add(half, half).dtype, half.dtype)
        p, s = self.q.two(self.x)
        self.close(p, jax.nn.softmax(self.x, 1))
        self.close(s[:, 0], (self.x * self.x).sum(1))

    def test_results_are_fresh_and_in_order(self):
        """Many at once, and work of JAX's before and behind each."""
        made = [(self.q.add(self.x * i, self.x) * 2, i) for i in range(50)]
        for y, i in made:
            self.close(y, 2 * (i + 1) * self.x)
        add = jax.jit(lambda y: y @ y.T)
        self.close(add(self.q.add(self.x, self.x)), 4 * self.x @ self.x.T)

    def test_arrays_are_never_changed(self):
        before = numpy.array(self.x)
        with self.assertRaisesRegex(TypeError, "JAX's arrays cannot be changed"):
            self.q.add(self.x, self.x, out=self.x)
        with self.assertRaisesRegex(TypeError, "argument `y`: JAX's arrays cannot be changed"):
            self.q.axpy(self.x[0], self.x[1], 2.0)
        numpy.testing.assert_array_equal(before, self.x)

    def test_what_jax_has_not(self):
        """A traced array has no memory; 64 bits are an option of JAX's."""
        with self.assertRaises(Exception):
            jax.jit(lambda x: self.q.add(x, x))(self.x)
        with self.assertRaises(Exception):
            jax.grad(lambda x: self.q.add(x, x).sum())(self.x)


if __name__ == "__main__":
    unittest.main()
