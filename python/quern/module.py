"""Modules and functions: what `quern.load` and `quern.compile` give.

A Function is called with tensors; the C side (`_quern.Callable`) does all of it, unless a gradient is wanted (autograd.py)
or torch.compile is tracing (library.py).
"""

import gc
import os
import sys

from . import _quern


def _never():
    return False


_compiling = _never  # torch.compiler.is_dynamo_compiling, once torch is there


def _transforming(name):
    """Inside torch.export or torch.vmap? Other transforms of torch.func would lose their way in an operator, and are refused."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    if torch.compiler.is_compiling():
        return True
    if not torch._C._are_functorch_transforms_active():
        return False
    functorch = torch._C._functorch
    if any(each.key() != functorch.TransformType.Vmap for each in functorch.get_interpreter_stack()):
        raise _quern.CallError(f"`{name}` has gradients for autograd, not for transforms of torch.func other than vmap: use torch.autograd")
    return True


def attach_torch():
    """Takes note of torch, if somebody imported it."""
    global _compiling
    if _compiling is _never and "torch" in sys.modules:
        compiler = getattr(sys.modules["torch"], "compiler", None)
        _compiling = getattr(compiler, "is_dynamo_compiling", _never)  # a constant to Dynamo, and nearly one to Python
    return _compiling is not _never


class Function(_quern.Direct):
    """A kernel or tensor function. Call it with its `in` and `inout` arrays and its scalars, in order or by name; constants,
    extents and types by name; `out=` gives its results (a tensor, or a tuple of them)."""

    def __init__(self, module, name):
        self.module = module
        self.name = name
        self.__name__ = name
        self._callable = module._module.callable(name)
        self._run = self._callable.run
        self._attach(self._callable)
        self.parameters = tuple(self._callable.params())
        """(name, kind, type, rank) of each parameter; results of tensor functions are `out`."""
        self._takes_numbers = any(p[1] == "scalar" for p in self.parameters)
        self._gradients = {}
        self._has_gradient = False  # or it was not asked yet
        self._plain_call = (self._callable, None, self, None)  # of autograd.py
        self._operator = None
        if attach_torch():
            self._register()

    def _call_slowly(self, args, keywords):
        """A call in Python: what Dynamo traces, and where the direct way ends when something is unusual."""
        if _compiling():
            return self._traced(args, keywords)
        try:
            result = self._run(args, keywords)
        except (RuntimeError, TypeError):
            if not _transforming(self.name):  # tensors without memory: the operator knows what to do
                raise
            return self._traced(args, keywords)
        return self._follow(args, keywords) if result is NotImplemented else result

    def _follow(self, args, keywords):
        """The call with autograd following it; later ones go there directly."""
        from .autograd import apply

        Function._follow = apply
        return apply(self, args, keywords)

    def _register(self):
        """Its operator for torch.compile, made before anything is traced."""
        from . import library

        self._operator = library.operator_of(self)

    def _traced(self, args, keywords):
        if self._operator is None:
            raise _quern.CallError(
                f"`{self.name}` was loaded before torch was imported: import torch first, or call it once outside torch.compile"
            )
        return self._operator(*args, **keywords)

    # ---- what it is ----

    def shapes(self, *arrays, **keywords):
        """Types and extents of the results for inputs given as ("f32", (2, 3)), or as tensors."""
        given = tuple(a if isinstance(a, (tuple, int, float)) or a is None else _outline(a) for a in arrays)
        return self._callable.shapes(given, keywords)

    # ---- looking inside ----

    def _show(self, stage, device=None, arch=None, backward=False, picture=False, settings=None):
        from .notebook import Words

        flags = (1 if backward else 0) | (2 if picture else 0)
        items = [f"{k}={v}" for k, v in (settings or {}).items()]
        return Words(_quern.show(self.module.path, self.name, device, stage, arch, items, flags, 0.0))

    def source(self, language="c", **settings):
        """The generated text: "c" or "cuda"; also every other stage of `quern show` ("tile", "layout", "sass", ...). Sizes, which
        a tensor function needs, by name: `source("cuda", m=64, n=1000)`."""
        return self._show(language, settings=settings)

    def ptx(self, arch=None, **settings):
        return self._show("ptx", arch=arch, settings=settings)

    def sass(self, arch=None, **settings):
        return self._show("sass", arch=arch, settings=settings)

    def schedule(self, **settings):
        """How it is mapped to the machine: the layout of a kernel, the fusion of a tensor function."""
        return self._show("fusion" if self.is_function else "layout", settings=settings)

    def explain(self, *args, **settings):
        """For arguments like these, or sizes by name: what fused and why not more (of a tensor function), then what bounds it on
        a GPU and what to try."""
        if args:
            settings = {**dict(self._callable.known(args, {})), **settings}
        from .notebook import Words

        text = self._show("fusion", settings=settings) if self.is_function else ""
        items = [f"{k}={v}" for k, v in settings.items()]
        return Words(text + _quern.hints(self.module.path, self.name, None, None, None, items, 0, 0.0))

    def graph(self, backward=False, **settings):
        """Of a tensor function: its graph with the kernels as boxes, as SVG text that a notebook shows."""
        from .notebook import Picture

        return Picture(self._show("graph", backward=backward, picture=True, settings=settings))

    @property
    def is_function(self):
        """A tensor function, which becomes several kernels; else one kernel."""
        return any(kind == "out" and type == "" for _, kind, type, _ in self.parameters) or not any(
            kind in ("out", "inout") for _, kind, _, _ in self.parameters
        )

    # ---- measuring ----

    def bench(self, *args, seconds=0.3, **keywords):
        """The time of a call with these arguments: a Timing."""
        from . import measure

        return measure.bench(self, args, keywords, seconds)

    def check(self, *args, **keywords):
        """Runs it under the checking interpreter too and compares: raises `quern.Finding` for what it finds, or gives the
        largest error."""
        from . import measure

        return measure.check(self, args, keywords)

    def tune(self, *args, seconds=30.0, **keywords):
        """Times the candidates of its `tune` clauses for arguments like these; later calls take the fastest."""
        from . import measure

        return measure.tune(self, args, keywords, seconds)

    def __copy__(self):
        return self

    def __deepcopy__(self, memory):
        """Nothing of it changes: a copy of a model that has one shares it."""
        return self

    def __reduce__(self):
        return _function_again, (self.module, self.name)

    def __repr__(self):
        words = ", ".join(
            f"{kind} {type} {name}" if type else f"{kind} {name}" for name, kind, type, _ in self.parameters
        )
        return f"<quern function {self.name}({words})>"

    def _repr_mimebundle_(self, include=None, exclude=None):
        from . import notebook

        return notebook.function_bundle(self)


def _call(self, *args, **keywords):
    return self._call_slowly(args, keywords)


def _name_call():
    """`Function.__call__` for those who look, Dynamo above all. Set as usual it would stand before the direct way from Python to C;
    so it goes into the dictionary of the class, where that can be had."""
    names = [each for each in gc.get_referents(Function.__dict__) if type(each) is dict]
    if len(names) == 1 and names[0].get("_follow") is Function._follow:
        _quern.name_call(Function, names[0], _call)
    else:
        Function.__call__ = _call


_name_call()


def _outline(tensor):
    return (str(tensor.dtype).rpartition(".")[2], tuple(int(n) for n in tensor.shape))


class Module:
    """The kernels and tensor functions of one file or text: attributes by name, `module["strict f"]` for modes and
    `module["scale<float>"]` for templates of CUDA text."""

    _text_language = "qn"

    def __init__(self, module, name, text, path=None):
        self._module = module
        self._name = name
        self._text = text
        self._path = path
        self._home = path and os.path.abspath(path)  # imports are looked up beside it
        self._functions = {}
        for each in module.names():
            if each.isidentifier() and not hasattr(type(self), each):
                setattr(self, each, self[each])

    def __getitem__(self, name):
        found = self._functions.get(name)
        if found is None:
            found = self._functions[name] = Function(self, name)
        return found

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except _quern.CallError as error:
            raise AttributeError(str(error)) from None

    def __dir__(self):
        return sorted(set(super().__dir__()) | set(self._module.names()))

    def __iter__(self):
        return iter(self._module.names())

    @property
    def text(self):
        return self._text

    @property
    def warnings(self):
        return self._module.warnings()

    @property
    def path(self):
        """The file; of a text, one that is made now and goes with the process."""
        if self._path is None:
            import atexit
            import tempfile

            handle, self._path = tempfile.mkstemp(suffix=".qn", prefix="quern-")
            with os.fdopen(handle, "w") as file:
                file.write(self._text)
            atexit.register(_remove, self._path)
        return self._path

    def __copy__(self):
        return self

    def __deepcopy__(self, memory):
        return self

    def __reduce__(self):
        """Its text goes along, and is compiled again where it arrives; what it imports stays beside its file."""
        return _module_again, (self._text, self._name, self._home)

    def __repr__(self):
        return f"<quern module {self._name}: {', '.join(self._module.names())}>"

    def _repr_mimebundle_(self, include=None, exclude=None):
        from . import notebook

        return notebook.module_bundle(self)


def _module_again(text, name, home):
    made = Module(_quern.load(home or name, text), name, text)
    made._home = home
    if home and _is_text_of(home, text):
        made._path = home
    return made


def _is_text_of(path, text):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read() == text
    except (OSError, ValueError):
        return False


def _function_again(module, name):
    return module[name]


def _remove(path):
    try:
        os.unlink(path)
    except OSError:
        pass


def compile(text, name="<text>"):
    """A module of the kernels and tensor functions in a text."""
    for what, value in (("text", text), ("name", name)):
        if not isinstance(value, str):
            raise TypeError(f"quern.compile: the {what} must be str, not {type(value).__name__}")
    return Module(_quern.load(name, text), name, text)


def load(path):
    """A module of the kernels and tensor functions in a .qn file."""
    path = os.fspath(path)
    with open(path, encoding="utf-8") as file:
        try:
            text = file.read()
        except UnicodeDecodeError as error:
            raise _quern.SourceError(f"{path}: it is no text in UTF-8 (byte {error.start}): quern.load takes .qn files") from None
    return Module(_quern.load(path, text), os.path.basename(path), text, path)
