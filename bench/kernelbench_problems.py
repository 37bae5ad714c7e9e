"""Problems of a folder and Quern's calls of them, for kernelbench.py and what stands beside it.

In: level1.qn ... with tensor functions k1, k2 ... and the PyTorch side (modules, or functions of level1.py). Out: a Problem with its
arrays, scalars and sizes, and calls of it through the C interface with the memory of PyTorch's tensors.
SPDX-License-Identifier: MIT
"""
import ast
import copy
import ctypes as C
import glob
import logging
import math
import os
import re
import runpy
import tempfile

import torch

LIMITS = {"large": (1 << 27, 3e11), "medium": (16 << 20, 4e9), "small": (1 << 19, 5e7)}  # numbers, operations
STRUCTURE = re.compile(r"kernel|stride|pad|dilation|group|channel|feature|classes|_dim$|^dim$|heads|^(C|O|S|P|G|HEADS)$")
DTYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 3, torch.int8: 4, torch.int16: 5,
          torch.int32: 6, torch.int64: 7, torch.uint8: 8, torch.bool: 12, torch.float8_e4m3fn: 13}
TYPES = {"float": torch.float32, "double": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16, "i32": torch.int32,
         "i64": torch.int64}


class Problem:
    """One function of one file, with the module beside it."""

    def __init__(self, folder, level, number):
        self.folder, self.level, self.number = folder, level, number
        self.functions, self.function = os.path.join(folder, f"level{level}.qn"), f"k{number}"
        found = glob.glob(os.path.join(folder, f"level{level}", f"{number}_*.py"))
        self.path = found[0] if found else None
        self.name = os.path.basename(found[0])[:-3] if found else f"k{number}"
        text = open(self.functions).read()
        head = re.search(r"^tensor k%d\((.*?)\)\s*(?:$|\{)" % number, text, re.M | re.S)
        self.head = head.group(1)
        self.arrays, self.scalars = [], []  # (name, extents), names
        self.types = {}
        for word in re.split(r",\s*", head.group(1)):
            m = re.match(r"(?:const )?(\w+) (\w+)((?:\[[^\]]*\])*)", word.strip())
            extents = re.findall(r"\[([^\]]*)\]", m.group(3))
            if extents:
                self.arrays.append((m.group(2), extents))
                self.types[m.group(2)] = TYPES.get(m.group(1), torch.float32)
            else:
                self.scalars.append(m.group(2))

        self.listed = None  # sizes by name, and how arrays are made: a function of level1.py
        listed = os.path.join(folder, f"level{level}.py")
        if not found and os.path.exists(listed):
            block = re.search(r"^bench k%d \((.*?)\)( on| input| \{)(.*)$" % number, text, re.M)
            self.listed, self.made, self.path = {}, {}, listed
            for word in block.group(1).split(", "):
                name, value = word.split(" = ")
                self.listed[name] = eval(value, {}, dict(self.listed))
            for name, kind, a, b in re.findall(r"(\w+) = (\w+)\(([-\d.]+), ([-\d.]+)\)", block.group(3)):
                self.made[name] = (kind, float(a), float(b))
            said = re.search(r"^// %d: (.*)$" % number, text, re.M)
            self.name = said.group(1) if said else re.sub(r"\s+", " ", text[head.end():].split(";")[0].strip(" {}\n"))

    def array(self, name, shape):
        kind, a, b = self.made.get(name, ("normal", 0.0, 1 / math.sqrt(math.prod(shape[1:]) or 1) if name[0] == "w" else 1.0))
        values = torch.randn(shape) * b + a if kind == "normal" else torch.rand(shape) * (b - a) + a
        return values.to(self.types[name])

    def module(self, changed):
        """The module's names, with some sizes changed as soon as they are given."""
        if self.listed:
            return {**self.listed, **changed}
        names = {"__name__": "problem"}
        for node in ast.parse(open(self.path).read()).body:
            exec(compile(ast.Module([node], []), self.path, "exec"), names)
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    for n in ast.walk(target):
                        if isinstance(n, ast.Name) and n.id in changed:
                            names[n.id] = changed[n.id]
        return names

    def build(self, changed, device):
        names = self.module(changed)
        if self.listed:
            functions = runpy.run_path(self.path)
            with torch.device(device):
                torch.manual_seed(self.number)
                shapes = [[eval(e.replace("/", "//"), {}, names) for e in extents] for _, extents in self.arrays]
                inputs = [self.array(name, shape) for (name, _), shape in zip(self.arrays, shapes)]
            return names, functions[f"k{self.number}"], inputs
        with torch.device(device):
            torch.manual_seed(self.number)
            model = names["Model"](*names["get_init_inputs"]())
            inputs = names["get_inputs"]()
        model = model.to(device)
        return names, model, [x.to(device) if torch.is_tensor(x) else x for x in inputs]

    def cost(self, changed):
        """Numbers and operations at these sizes, without computing anything."""
        logging.disable(logging.WARNING)  # it misses a package that is not asked for
        from torch.utils.flop_counter import FlopCounterMode
        _, model, inputs = self.build(changed, "meta")
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            out = model(*inputs)
        outs = [out] if torch.is_tensor(out) else [x for x in out if torch.is_tensor(x)]
        every = self.tensors(model, inputs) + outs
        return sum(x.numel() for x in every), counter.get_total_flops()

    def sizes(self, which):
        if which == "full":
            return {}
        most_numbers, most_operations = LIMITS[which]
        changed, fixed = {}, set()
        names = self.module({})
        while True:
            numbers, operations = self.cost(changed)
            if numbers <= most_numbers and operations <= most_operations:
                return changed
            best, best_size = None, 7
            for name, value in {**names, **changed}.items():
                size = value[0] if isinstance(value, tuple) and len(value) == 1 else value
                if name in fixed or name.startswith("__") or not isinstance(size, int) or isinstance(size, bool):
                    continue
                if STRUCTURE.search(name) and not re.search(r"_features$", name):
                    continue
                size = size * 4 if name.startswith("batch") else size  # what repeats goes first
                if size > best_size:
                    best, best_size = name, size
            if best is None:
                return changed
            value = changed.get(best, names[best])
            half = (value[0] // 2,) if isinstance(value, tuple) else value // 2
            try:
                self.cost({**changed, best: half})
                changed[best] = half
            except Exception:
                fixed.add(best)

    def values(self, names, inputs):
        """Numbers for the function's scalars, and the tensors for its arrays."""
        scalars = {n: names[n] for n in self.scalars if n in names}
        if self.listed:
            return scalars
        words = re.findall(r"def forward\(self, (.*?)\)", open(self.path).read(), re.S)[0].split(",")
        for word, x in zip(words, inputs):
            if not torch.is_tensor(x):
                scalars[word.split(":")[0].strip()] = x
        return scalars

    def tensors(self, model, inputs):
        parameters = [] if self.listed else [p for p in model.parameters() if p.dim()]
        return [x for x in inputs if torch.is_tensor(x)] + parameters

    def gradient(self, result, wanted):
        """The same function with its gradient: one more array in, what arrives at the result, and out the result and the
        gradients of the arrays named. Its file ends with the process."""
        made, kinds = copy.copy(self), {kind: word for word, kind in TYPES.items()}
        words = [name for name, _ in self.arrays] + [f"{name} = {name}" for name in self.scalars]
        arrives, shape = "arriving", [f"RESULT{k}" for k in range(result.dim())]
        head, call = self.head, f"{self.function}({', '.join(words)})"
        if result.dim():
            extents = "".join(f"[{e}]" for e in shape)
            head = re.sub(r"((?:, *\n? *(?:const )?\w+ \w+(?: = [^,\[\]]+)?)*)$",  # before scalars, which have defaults
                          lambda m: f", {kinds[result.dtype]} {arrives}{extents}" + m.group(1), head, count=1)
            words = [name for name, _ in self.arrays] + [arrives] + [f"{name} = {name}" for name in self.scalars]
        names = [f"d{i}" for i in range(len(wanted))]
        text = f"""
tensor loss_of_it({head}) {{ return {f"sum({call} * {arrives})" if result.dim() else call}; }}
tensor gradient_of_it({head})
{{
    let {names[0] if len(names) == 1 else f"({', '.join(names)})"} = grad(loss_of_it, {', '.join(wanted)})({', '.join(words)});
    return {call}, {', '.join(names)};
}}
"""
        made.file = tempfile.NamedTemporaryFile("w", suffix=".qn")
        made.file.write(open(self.functions).read() + text)
        made.file.flush()
        made.functions, made.function = made.file.name, "gradient_of_it"
        made.arrays = self.arrays + ([(arrives, shape)] if result.dim() else [])
        return made

    def settings(self, scalars, tensors):
        """--set words for the command: extents and scalars."""
        numbers = {}
        for (_, extents), t in zip(self.arrays, tensors):
            for name, size in zip(extents, t.shape):
                if re.match(r"[A-Za-z_]\w*$", name):
                    numbers[name] = size
        numbers.update({n: v for n, v in scalars.items() if n in self.scalars})
        return [word for n, v in numbers.items() for word in ("--set", f"{n}={v}")]


# ---- Quern through its C interface ----

class Quern:
    def __init__(self, library, device):
        self.q, self.device, self.error = C.CDLL(library), device.encode(), C.create_string_buffer(65536)
        self.context, self.stream = C.c_void_p(), C.c_void_p()
        self.ok(self.q.qn_context_open(None, C.byref(self.context), self.error), "open")
        if device == "cuda":
            torch.cuda.set_stream(torch.cuda.Stream())
            torch.zeros(1, device="cuda")
            current = C.c_void_p()
            C.CDLL("libcuda.so.1").cuCtxGetCurrent(C.byref(current))
            self.ok(self.q.qn_device_adopt(self.context, self.device, current, self.error), "adopt")
            native = C.c_void_p(torch.cuda.current_stream().cuda_stream)
            self.ok(self.q.qn_stream_wrap(self.context, self.device, native, C.byref(self.stream), self.error), "stream")

    def ok(self, status, what):
        if status:
            words = self.error.raw.replace(b"\0", b" ").strip()[:300].decode("utf8", "replace")
            raise RuntimeError(f"{what}: {words}")

    def bind(self, call, name, t, keep):
        rank = max(t.dim(), 1)
        shape, strides = (C.c_int64 * rank)(*t.shape), (C.c_int64 * rank)(*t.stride())
        if t.is_cuda:
            buffer = C.c_void_p()
            size = t.untyped_storage().nbytes() - t.storage_offset() * t.element_size()
            self.ok(self.q.qn_buffer_wrap_on(self.context, self.device, C.c_void_p(t.data_ptr()),
                                             C.c_size_t(max(size, 1)), None, None, C.byref(buffer), self.error), "wrap")
            self.ok(self.q.qn_call_set_buffer(call, name.encode(), buffer, C.c_size_t(0), DTYPES[t.dtype], t.dim(), shape,
                                              strides, self.error), name)
            keep.append(buffer)
        else:
            self.ok(self.q.qn_call_set_memory(call, name.encode(), C.c_void_p(t.data_ptr()), DTYPES[t.dtype], t.dim(),
                                              shape, strides, self.error), name)
        keep.append(t)

    def call(self, problem, mode, tensors, scalars, results):
        module, call, keep = C.c_void_p(), C.c_void_p(), []
        self.ok(self.q.qn_module_load_file(self.context, problem.functions.encode(), C.byref(module), self.error), "load")
        name = f"{mode} {problem.function}"
        self.ok(self.q.qn_call_new(module, name.encode(), C.byref(call), self.error), "call")
        for (array, _), t in zip(problem.arrays, tensors):
            self.bind(call, array, t.detach(), keep)
        for n, v in scalars.items():
            if n not in problem.scalars:
                continue
            if isinstance(v, float):
                self.ok(self.q.qn_call_set_float(call, n.encode(), C.c_double(v), self.error), n)
            else:
                self.ok(self.q.qn_call_set_int(call, n.encode(), C.c_int64(int(v)), self.error), n)
        for i, result in enumerate(results):
            self.bind(call, f"result{i}", result, keep)
        return call, keep

    def run(self, call):
        """On a GPU in PyTorch's stream, and not waited for."""
        if self.stream:
            self.ok(self.q.qn_call_launch(call, self.stream, self.error), "launch")
        else:
            self.ok(self.q.qn_call_run(call, self.device, self.error), "run")
