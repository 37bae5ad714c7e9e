"""How a call on a GPU is timed, for every script that measures PyTorch beside Quern."""


def event_sampler(torch, function, sets, sample_ns):
    """Warms up, and gives a function that takes one sample: the ns of one call, from two events around so many calls in
    turn on the sets of arguments that they take about sample_ns, three or more."""
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def sample(calls):
        first.record()
        for i in range(calls):
            function(*sets[i % len(sets)])
        last.record()
        last.synchronize()
        return first.elapsed_time(last) * 1e6 / calls

    for arguments in sets:
        function(*arguments)
    torch.cuda.synchronize()
    one = sample(2 * len(sets))
    calls = int(min(max(sample_ns / one, 3, len(sets)), 400))
    sample(calls)
    return lambda: sample(calls)
