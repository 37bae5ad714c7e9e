"""A clock for the examples: medians of several samples, the GPU's own time where there is one."""

import statistics
import sys
import time

import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
quick = "--quick" in sys.argv  # small sizes, few samples: for a look, or a test


def median_us(function, samples=None):
    samples = samples or (3 if quick else 30)
    function()
    times = []
    for _ in range(samples):
        if device == "cuda":
            start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            for _ in range(10):
                function()
            stop.record()
            stop.synchronize()
            times.append(start.elapsed_time(stop) * 100)
        else:
            start = time.perf_counter()
            function()
            times.append((time.perf_counter() - start) * 1e6)
    return statistics.median(times)


def table(title, ways, wanted, tolerance=1e-3):
    """Each way's time, and whether it is right."""
    print(title)
    first = None
    for name, function in ways.items():
        try:
            result = function()
        except (ImportError, RuntimeError) as error:
            print(f"  {name:28s} not here: {str(error).splitlines()[0][:90]}")
            continue
        torch.testing.assert_close(result, wanted, rtol=tolerance, atol=tolerance)
        took = median_us(function)
        first = first or took
        print(f"  {name:28s} {took:10.1f} us   {first / took:5.2f}x")
