"""Which form of a program runs: Quern's (`quern`), Quern's with large products too (`products`), torch's own (`torch`), or that without Dynamo before it
(`alone`: a function of few operators). Measured, not guessed: at the first
call on CUDA each form is run with the program's own tensors, forward and backward, in turns; the fastest stays. The answer is kept
in the cache folder (`torch.log`), so that the next process asks nobody.

Forms run on the same tensors, without the ones that the program changes: those are copied, and so are the states of the
generators of random numbers.
"""

import contextlib
import hashlib
import os
import time

import torch

from . import _quern

TORCH_MUST_WIN_BY = 0.97  # of the time: a tie is Quern's
ROUNDS, ROUND_SECONDS, MOST_CALLS = 5, 0.002, 20
postponed = False  # by who compiles many programs side by side: forms are compiled, and measured at a later call


# ---- the record ----


def _path():
    folder = os.environ.get("QUERN_CACHE")
    if not folder:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        folder = os.path.join(base, "quern")
    return os.path.join(folder, "torch.log")


_known = None  # key: form


def _read():
    global _known
    _known = {}
    try:
        with open(_path()) as file:
            for line in file:
                words = line.split()
                if len(words) >= 2:
                    _known[words[0]] = words[1]
    except OSError:
        pass


def recall(key):
    if _known is None:
        _read()
    return _known.get(key)


def remember(key, form, times):
    _known[key] = form
    words = " ".join(f"{name}={seconds * 1e6:.1f}us" for name, seconds in times.items())
    try:
        with open(_path(), "a") as file:  # one write of one line: several processes do not mix theirs
            file.write(f"{key} {form} {words}\n")
    except OSError:
        pass


def key_of(gm, inputs, options):
    """What the answer depends on: the program, its tensors, the machine, both libraries."""
    words = [gm.code, repr(sorted(options.items())), torch.__version__, str(torch.is_grad_enabled())]
    for x in inputs:
        if isinstance(x, torch.Tensor):
            words.append(f"{x.dtype} {tuple(map(str, x.shape))} {tuple(map(str, x.stride()))} {x.requires_grad}")
    words.append(torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu")
    words.append(str(os.stat(_quern.__file__).st_size))
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:24]


# ---- measuring ----


def _stand_ins(args, changed):
    made = []
    for i, x in enumerate(args):
        if isinstance(x, torch.Tensor):
            wants = x.requires_grad and torch.is_grad_enabled()
            x = x.detach().clone() if i in changed else x.detach()
            x = x.requires_grad_() if wants else x
        made.append(x)
    return made


def _step(function, args, leaves, ones):
    made = function(*args)
    if not leaves:
        return
    wanted = [t for t in made if isinstance(t, torch.Tensor) and t.requires_grad]
    if wanted:
        if not ones:
            ones += [torch.ones_like(t) for t in wanted]
        torch.autograd.grad(wanted, leaves, ones, allow_unused=True)


def has_hooks():
    """Does somebody look at what autograd saves, as checkpoints do? They must see one run of one form."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


def _without_hooks():
    return torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x) if has_hooks() else contextlib.nullcontext()


def measure(forms, args, changed):
    """forms: name -> what makes it run, and the function. Seconds of a step of each; nothing while it is postponed."""
    devices = sorted({x.device.index for x in args if isinstance(x, torch.Tensor) and x.is_cuda})

    def wait():
        for device in devices:
            torch.cuda.synchronize(device)

    with torch.random.fork_rng(devices=devices), _without_hooks():
        args = _stand_ins(args, changed)
        leaves = [x for x in args if isinstance(x, torch.Tensor) and x.requires_grad]
        ones, times, calls = [], {name: [] for name in forms}, {}

        def run(name, count):
            select, function = forms[name]
            select()
            wait()
            start = time.perf_counter()
            for _ in range(count):
                _step(function, args, leaves, ones)
            wait()
            return (time.perf_counter() - start) / count

        for name in forms:
            run(name, 1)  # compiles
        if postponed:
            return {}
        for name in forms:
            calls[name] = max(1, min(MOST_CALLS, int(ROUND_SECONDS / run(name, 1))))
        for _ in range(ROUNDS):
            for name in forms:
                times[name].append(run(name, calls[name]))
    return {name: min(each) for name, each in times.items()}


def guards_seconds(device, with_gradient):
    """About what Dynamo asks before it calls a program, in seconds of this machine: with a gradient as much as six small operators (measured: 50 to
    80 us of a step where such an operator takes 11), without one as much as one and a half (10.7 us, where one takes 7.0)."""
    x = torch.ones(4, device=device, requires_grad=with_gradient)
    for _ in range(10):
        x + x
    start = time.perf_counter()
    for _ in range(40):
        x + x
    return (6 if with_gradient else 1.5) * (time.perf_counter() - start) / 40


def best_of(times, guards=None):
    """guards: what Dynamo takes before each call, where the program's function could be left alone; None: it cannot."""
    best = min((t, name) for name, t in times.items() if name != "torch")[1]
    if guards is not None and times["torch"] < TORCH_MUST_WIN_BY * (times[best] + guards):
        return "alone"
    return "torch" if times["torch"] < TORCH_MUST_WIN_BY * times[best] else best
