"""Which form of a program runs: Quern's (`quern`), Quern's with large products too (`products`), torch's own (`torch`), or that without Dynamo before it
(`alone`: a function of few operators, on CUDA). Measured, not guessed: at the first
call each form is run with the program's own tensors, forward and backward, in turns; the fastest stays. On the CPU each island is asked too
(`of_island`), when it runs first: what torch's operators do faster, node by node, is theirs. The answer is kept
in the cache folder (`torch.log`), so that the next process asks nobody.

Forms run on the same tensors, without the ones that the program changes: those are copied, and so are the states of the
generators of random numbers. Islands change nothing and draw nothing.
"""

import contextlib
import functools
import hashlib
import os
import platform
import time

import torch
import torch.autograd.forward_ad as forward_ad

try:
    import resource
except ImportError:  # not on every system
    resource = None

from . import _quern

DEVICES = ("cuda", "cpu")  # where forms are measured
TORCH_MUST_WIN_BY = {"cuda": 0.97, "cpu": 0.9}  # of the time: a tie is Quern's, and so is what a machine with other work cannot tell apart
ROUNDS, ROUND_SECONDS, MOST_CALLS = 5, {"cuda": 0.002, "cpu": 0.0005}, 20
MOST_SECONDS = {"cuda": float("inf"), "cpu": 0.02}  # of rounds; what takes longer is called as often as it must be
MOST_ROUNDS, DISTURBED = {"cuda": ROUNDS, "cpu": 20}, 4  # where other programs come between, and how much longer that may take
CLEARLY = 2.0  # so many times as slow is no noise where a call alone takes longer than a round
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


@functools.cache
def _processor():
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _cores():
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def _machine(on_gpu):
    if on_gpu:
        return [torch.cuda.get_device_name()]
    asked = sorted(f"{name}={value}" for name, value in os.environ.items() if name.startswith("QUERN_") and name != "QUERN_CACHE")
    return [_processor(), str(_cores()), str(torch.get_num_threads()), *asked]


def _key(words, inputs, on_gpu):
    """What the answer depends on: what runs, its tensors, the machine, both libraries."""
    words = [*words, torch.__version__]
    for x in inputs:
        if isinstance(x, torch.Tensor):
            words.append(f"{x.dtype} {tuple(map(str, x.shape))} {tuple(map(str, x.stride()))} {x.requires_grad}")
    words += _machine(on_gpu)
    words.append(str(os.stat(_quern.__file__).st_size))
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:24]


def key_of(gm, inputs, options):
    """Of a program."""
    on_gpu = any(isinstance(x, torch.Tensor) and x.is_cuda for x in inputs)
    return _key([gm.code, repr(sorted(options.items())), str(torch.is_grad_enabled())], inputs, on_gpu)


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


def in_the_way():
    """Does somebody watch each operator, or give it another meaning? Forms are not run then to see how long they take."""
    return torch._C._len_torch_dispatch_stack() > 0 or torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def _step(function, args, leaves, ones, fresh):
    made = function(*[x.clone() if i in fresh else x for i, x in enumerate(args)] if fresh else args)
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


def _clocked(call, count, wait=lambda: None):
    """Seconds of one of so many calls."""
    wait()
    start = time.perf_counter()
    for _ in range(count):
        call()
    wait()
    return (time.perf_counter() - start) / count


def _interruptions():
    """How often another program had one of our cores: what was timed then is no measure."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw if resource else 0


def _in_turns(run, names, device):
    """Least seconds of each; `run(name, count)` gives those of one of so many calls. All were called before. A slow form is called as seldom
    as that can be known."""
    undisturbed = set()

    def ask(name, count):
        before = _interruptions()
        seconds = run(name, count)
        if before == _interruptions():
            undisturbed.add(name)
        return seconds

    once = {name: ask(name, 1) for name in names}
    spent, slowest = sum(once.values()), max(once, key=once.get)
    if spent > MOST_SECONDS[device] and once[slowest] > CLEARLY * min(once.values()) and slowest in undisturbed:
        return once
    calls = {name: max(1, min(MOST_CALLS, int(ROUND_SECONDS[device] / max(once[name], 1e-9)))) for name in names}
    times = {name: [] for name in names}
    undisturbed.clear()
    for number in range(MOST_ROUNDS[device]):
        for name in names:
            times[name].append(ask(name, calls[name]))
            spent += times[name][-1] * calls[name]
        is_enough = spent > MOST_SECONDS[device] or number + 1 >= ROUNDS
        if is_enough and (len(undisturbed) == len(times) or spent > DISTURBED * MOST_SECONDS[device]):
            break
    return {name: min(each) if calls[name] > 1 else min(once[name], *each) for name, each in times.items()}


def measure(forms, args, changed):
    """forms: name -> what makes it run, and the function. Seconds of a step of each; nothing while it is postponed."""
    devices = sorted({x.device.index for x in args if isinstance(x, torch.Tensor) and x.is_cuda})

    def wait():
        for device in devices:
            torch.cuda.synchronize(device)

    with torch.random.fork_rng(devices=devices), _without_hooks():
        args = _stand_ins(args, changed)
        leaves = [x for x in args if isinstance(x, torch.Tensor) and x.requires_grad]
        fresh = {i for i in changed if isinstance(args[i], torch.Tensor) and args[i].requires_grad}  # autograd lets nobody change a leaf
        ones = []

        def run(name, count):
            select, function = forms[name]
            select()
            return _clocked(lambda: _step(function, args, leaves, ones, fresh), count, wait)

        for name in forms:
            run(name, 1)  # compiles
        return {} if postponed else _in_turns(run, forms, "cuda" if devices else "cpu")


def of_island(words, ours, torchs, args):
    """What one call of an island on the CPU gives, and which of two functions of these tensors shall give it from now on: `quern` or
    `torch`, and the times of both, none where it was known. Torch's must be as ours is, in all but rounding."""
    key = _key(words, args, False)
    known = recall(key)
    if known == "torch":
        return torchs(*args), known, {}
    made = ours(*args)
    if known:
        return made, known, {}
    try:
        theirs = torchs(*args)
    except Exception:  # it refuses what we do not: also then it is ours
        return made, "quern", {}
    if not _are_alike(made, theirs, args):
        return made, "quern", {}
    forms = {"quern": ours, "torch": torchs}
    times = _in_turns(lambda name, count: _clocked(lambda: forms[name](*args), count), forms, "cpu")
    form = best_of(times, device="cpu")
    remember(key, form, times)
    return (theirs if form == "torch" else made), form, times


def _are_alike(ours, theirs, args):
    """The same promises: types, extents, strides (where they mean something), memory of their own."""
    ours, theirs = (made if isinstance(made, (tuple, list)) else (made,) for made in (ours, theirs))
    taken = {x.untyped_storage().data_ptr() for x in args if isinstance(x, torch.Tensor)}
    for a, b in zip(ours, theirs, strict=True):
        steps = [(n, s, t) for n, s, t in zip(a.shape, a.stride(), b.stride()) if n > 1]
        place = b.untyped_storage().data_ptr()
        if (a.dtype, a.shape) != (b.dtype, b.shape) or any(s != t for _, s, t in steps) or place in taken:
            return False
        taken.add(place)
    return True


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


def best_of(times, guards=None, device="cuda"):
    """guards: what Dynamo takes before each call, where the program's function could be left alone; None: it cannot."""
    best = min((t, name) for name, t in times.items() if name != "torch")[1]
    must = TORCH_MUST_WIN_BY[device]
    if guards is not None and times["torch"] < must * (times[best] + guards):
        return "alone"
    return "torch" if times["torch"] < must * times[best] else best
