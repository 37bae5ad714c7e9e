"""Quern's profile, with the look of torch.profiler.

    with quern.profile(schedule=quern.profile.schedule(wait=1, warmup=1, active=3)) as prof:
        for batch in batches:
            step(batch)
            prof.step()
    print(prof.key_averages().table(sort_by="self_cuda_time_total", row_limit=10))
    prof.export_chrome_trace("trace.json")

It records what Quern does: kernels, copies, compiles, memory, and the user's ranges (`quern.profile.range("name")`). Where somebody
else holds CUPTI (torch.profiler, nsys), the GPU's times are read by events instead, and the table says so. torch.profiler itself sees
Quern's kernels without any of this.
"""

from . import _quern
from .notebook import Words

_BY = {"op": 0, "shape": 1, "kernel": 2, "range": 3}
_SORT = {"self_cuda_time_total": "self_device", "cuda_time_total": "device", "cpu_time_total": "cpu", "self_cpu_time_total": "self_cpu",
         "count": "calls", None: None}  # fmt: skip


class _Averages:
    def __init__(self, profile, by):
        self._profile, self._by = profile, by

    def table(self, sort_by=None, row_limit=30, format="text"):
        formats = {"text": 0, "csv": 1, "json": 2, "markdown": 3}
        return Words(self._profile._begun().table(_BY[self._by], formats[format], _SORT.get(sort_by, sort_by), row_limit))

    def __repr__(self):
        return str(self.table())


class profile:
    def __init__(self, *, schedule=None, on_trace_ready=None, activities=None, record_shapes=False, **others):
        if others:
            raise TypeError(f"quern.profile has no option {', '.join(others)}")
        if schedule is not None and not isinstance(schedule, dict):
            raise TypeError(f"quern.profile: schedule= is what quern.profile.schedule(wait=1, warmup=1, active=3) gives, not a {type(schedule).__name__}")
        self._schedule = schedule or {"wait": 0, "warmup": 0, "active": 0, "repeat": 0}
        self._ready = on_trace_ready
        self._by = "shape" if record_shapes else "op"
        self._profile = None
        self._stopped = False

    @staticmethod
    def schedule(*, wait=0, warmup=0, active=1, repeat=0):
        return {"wait": wait, "warmup": warmup, "active": active, "repeat": repeat}

    class range:
        """A range of the user's: `with quern.profile.range("load"):`."""

        def __init__(self, name):
            self.name = name

        def __enter__(self):
            _quern.range_push(self.name)
            return self

        def __exit__(self, *error):
            _quern.range_pop()

    def start(self):
        s = self._schedule
        ready = (lambda: self._ready(self)) if self._ready else None
        self._profile = _quern.profile_start(s["wait"], s["warmup"], s["active"], s["repeat"], ready)

    def stop(self):
        if self._profile is not None and not self._stopped:
            self._stopped = True
            self._profile.stop()

    def _begun(self):
        if self._profile is None:
            raise RuntimeError("quern.profile has recorded nothing yet: use it as `with quern.profile() as prof:`, or call start()")
        return self._profile

    def step(self):
        self._begun().step()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *error):
        self.stop()

    def key_averages(self, group_by_input_shape=False, by=None):
        return _Averages(self, by or ("shape" if group_by_input_shape else self._by))

    def hints(self):
        """What bounds the run, and what to try."""
        return self._begun().hints()

    def export_chrome_trace(self, path):
        self._begun().write("trace", str(path))

    def export_stacks(self, path, metric=None):
        self._begun().write("folded", str(path))

    def export_report(self, path):
        """One HTML file with everything."""
        self._begun().write("report", str(path))

    def _repr_mimebundle_(self, include=None, exclude=None):
        from html import escape

        text = self.key_averages().table()
        return {"text/plain": text, "text/html": f"<pre style='color:currentColor'>{escape(text)}</pre>"}
