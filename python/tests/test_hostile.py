"""DLPack capsules and buffers that say what is not so: an exception each, never a crash."""

import array
import ctypes
import unittest

from .support import module


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("rank", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("extents", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("offset_bytes", ctypes.c_uint64)]


class Managed(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", Tensor)]


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
numbers = (ctypes.c_float * 64)(*range(64))


class Liar:
    """An object whose capsule is one of 4 floats, but for what is said otherwise."""

    def __init__(self, shape=(4,), strides=None, versioned=False, name=None, major=1, device=(1, 0), capsule=None, **said):
        self.extents = (ctypes.c_int64 * max(len(shape), 1))(*shape) if shape is not None else None
        self.steps = (ctypes.c_int64 * len(strides))(*strides) if strides else None
        t = Tensor(data=ctypes.addressof(numbers), device_type=1, rank=len(shape) if shape is not None else 1, code=2, bits=32, lanes=1)
        t.extents = ctypes.cast(self.extents, ctypes.POINTER(ctypes.c_int64)) if self.extents else None
        t.strides = ctypes.cast(self.steps, ctypes.POINTER(ctypes.c_int64)) if self.steps else None
        for key, value in said.items():
            setattr(t, key, value)
        self.held = Versioned(major=major, tensor=t) if versioned else Managed(tensor=t)
        self.name = name or (b"dltensor_versioned" if versioned else b"dltensor")
        self.device, self.capsule = device, capsule

    def __dlpack__(self, **_):
        if self.capsule is not None:
            return self.capsule() if callable(self.capsule) else self.capsule
        return new_capsule(ctypes.addressof(self.held), self.name, None)

    def __dlpack_device__(self):
        return self.device


class Hostile(unittest.TestCase):
    def setUp(self):
        self.q = module()

    def test_honest(self):
        for x in (Liar(), Liar(versioned=True), Liar(strides=(1,)), Liar(offset_bytes=8), Liar(device=()), Liar(device="x")):
            first = x.held.tensor.offset_bytes // 4
            self.assertEqual(list(memoryview(self.q.twice(x))), [2.0 * (first + i) for i in range(4)])
        self.assertEqual(len(memoryview(self.q.twice(Liar(shape=(0,), data=None)))), 0)

    def test_lies(self):
        def fails():
            raise RuntimeError("no")

        wrong = [dict(rank=-1), dict(rank=9), dict(rank=1000), dict(rank=-2**31), dict(shape=None), dict(shape=(-1,)),
                 dict(shape=(-2**63,)), dict(shape=(2**62, 2**62)), dict(shape=(2**63 - 1,), strides=(2**62,)), dict(data=None),
                 dict(device_type=99), dict(device_type=-1), dict(lanes=4), dict(lanes=0), dict(bits=3), dict(bits=0), dict(code=77),
                 dict(name=b"nothing"), dict(name=b"used_dltensor"), dict(versioned=True, major=2), dict(versioned=True, major=0),
                 dict(capsule=3), dict(capsule="x"), dict(capsule=fails), dict(shape=(2, 2)), dict(offset_bytes=2),
                 dict(code=5), dict(shape=(1,) * 8), dict(versioned=True, rank=-1), dict(versioned=True, shape=None)]
        for what in wrong:
            with self.subTest(what=what), self.assertRaises(Exception):
                self.q.twice(Liar(**what))
        keeper = Liar()
        once = new_capsule(ctypes.addressof(keeper.held), b"dltensor", None)
        self.q.twice(Liar(capsule=once))
        with self.assertRaises(TypeError):  # it is used
            self.q.twice(Liar(capsule=once))

    def test_outputs(self):
        x = array.array("f", range(4))
        for what in (dict(rank=-1), dict(shape=None), dict(data=None), dict(shape=(-4,)), dict(versioned=True, major=3)):
            with self.subTest(what=what), self.assertRaises(Exception):
                self.q.twice(x, out=Liar(**what))

    def test_buffers(self):
        x = array.array("f", range(4))
        view = memoryview(x)
        view.release()
        for wrong in (view, memoryview(b"abcdefg").cast("c"), memoryview(bytes(8))[::3], bytes(16), "words", object(), None):
            with self.subTest(wrong=wrong), self.assertRaises(Exception):
                self.q.axpy(x, wrong, 2.0)
        y = self.q.twice(x)
        with self.assertRaises(BufferError):  # nobody may change what is looked at
            held = memoryview(x)
            x.append(1.0)
        held.release()
        self.assertEqual(list(memoryview(y)), [0.0, 2.0, 4.0, 6.0])


if __name__ == "__main__":
    unittest.main()
