#!/bin/sh
# bench: the right are timed, the wrong and the failed are not; JSON has exactly its keys; settings and sets.
# Usage: tests/scripts/bench.sh BUILD_FOLDER
# The texts are those of a machine without a GPU.
QUERN_CUDA_PATH=none
export QUERN_CUDA_PATH
. "$(dirname "$0")/../holds.sh"
. "$(dirname "$0")/../busy.sh"
# bench EXIT_CODE ARGUMENTS...
bench() {
    wanted=$1
    shift
    "$quern" bench "$@" --seconds 0.02 >"$work/out" 2>"$work/err"
    code=$?
    holds "quern bench $*: exit $code, not $wanted: $(cat "$work/out" "$work/err")" [ "$code" = "$wanted" ]
}
says() { holds "std$1 lacks: $2: $(cat "$work/$1")" grep -qF -- "$2" "$work/$1"; }

cat >"$work/mix.qn" <<'QN'
kernel twice(in float x[n], out float y[n], const int B = 64) launch (cdiv(n, B))
{
    int i = program(0) * B;
    y[i : B] = 2 * x[i : B];
}
kernel sum_of_two(in float x[n], out float y[n], const int B = 64) launch (cdiv(n, B))
{
    int i = program(0) * B;
    y[i : B] = x[i : B] + x[i : B];
}
kernel almost(in float x[n], out float y[n], const int B = 64) launch (cdiv(n, B))
{
    int i = program(0) * B;
    y[i : B] = 2.001 * x[i : B];
}
kernel only_large(in float x[n], out float y[n], const int B = 64) launch (cdiv(n, B))
{
    int i = program(0) * B;
    float wrong = n > 50000 && program(0) == programs(0) - 1 ? 3 : 2;
    y[i : B] = wrong * x[i : B];
}
kernel stops(in float x[n], out float y[n]) launch (n)
{
    assert(program(0) < 3, "too far");
    y[program(0)] = 2 * x[program(0)];
}
tensor fused(float x[n]) { return 2 * x; }
c in_c(in float x[n], out float y[n])
"""
void in_c(const float *x, float *y, long n) { for (long i = 0; i < n; i++) y[i] = x[i] + x[i]; }
"""
c wrong_c(in float x[n], out float y[n])
"""
void wrong_c(const float *x, float *y, long n) { for (long i = 0; i < n - 1; i++) y[i] = x[i] + x[i]; }
"""
cuda in_cuda(in float x[n], out float y[n]) launch (cdiv(n, 256)) block (256)
"""
"""
kernel shift(inout float x[n], const int B = 64) launch (cdiv(n, B)) { int i = program(0) * B; x[i : B] = x[i : B] + 1; }
kernel shift_wrong(inout float x[n], const int B = 64) launch (cdiv(n, B)) { int i = program(0) * B; x[i : B] = x[i : B] + 2; }
bench right (n = 1 << 20) on cpu (n = 100003) { twice, twice(B = 1000), sum_of_two, in_c }
bench mixed (n = 100003) { twice, almost, only_large, stops, fused, in_c, wrong_c, in_cuda }
bench place (n = 10001) { shift, shift_wrong }
bench sets (n in {1000, 2000}, B in {32, 64}) bytes (8 * n) flops (3 * n) { twice }
bench cold (n = 20000) { twice, sum_of_two, twice(B = 4096) }
QN

bench 0 "$work/mix.qn" right --device cpu --json "$work/right.json"
says out 'right on cpu (n = 100003)'
says out 'twice(B = 1000)'
says out 'of limit'
bench 1 "$work/mix.qn" mixed --device cpu --json "$work/mixed.json"
says out 'almost wrong: '
says out 'the reference has'
says out '(`twice` on ref, computed in double; tolerance 1e-05 relative, 0 absolute)'
says out '(`twice` on cpu; tolerance 1e-05 relative, 0 absolute)'
says out 'stops failed: '
bench 1 "$work/mix.qn" place --device cpu --json "$work/place.json"
bench 0 "$work/mix.qn" sets --device cpu --json "$work/sets.json"
says out '(n = 2000, B = 32)'
bench 0 "$work/mix.qn" sets --device cpu --set n=500 --set B=16 --json "$work/set.json"
says out '(n = 500, B = 16)'
bench 0 "$work/mix.qn" sets --device ref --set n=500
bench 2 "$work/mix.qn" sets --set N=500
says err 'did you mean `n`?'
bench 2 "$work/mix.qn" stes
says err 'did you mean `sets`?'
printf 'kernel k(out float y[n]) launch (1) { y[:] = 1; }\n' >"$work/none.qn"
bench 2 "$work/none.qn"
says err 'has no bench block'
for wrong in nan -1 '0, nan'; do
    printf 'tensor f(float x[n]) { return x; }\nbench b (n = 3) tolerance (%s) { f }\n' "$wrong" >"$work/tolerance.qn"
    bench 1 "$work/tolerance.qn" --device cpu
    says err 'tolerance.qn:2: `tolerance` of bench `b` takes numbers from 0'
done
printf 'kernel k(out float y[n]) launch (1) { y[:] = 1; }\nbench none (n = 3) { }\n' >"$work/empty.qn"
bench 0 "$work/empty.qn"
says out 'none: no variants'
# the file for the results is opened before anything is timed
bench 2 "$work/mix.qn" right --json "$work/no/such/folder.json"
says err 'cannot write'
holds "nothing was timed" sh -c "! grep -q timing '$work/err'"
# arrays that fit the caches are timed cold: what is above the memory's limit has a remark
bench 0 "$work/mix.qn" cold --device cpu --json "$work/cold.json"
grep -q 'more than 100%' "$work/out" || holds "cold arrays stay below the limit" python3 - "$work/cold.json" <<'PYTHON'
import json, sys
rows = json.load(open(sys.argv[1]))
assert len(rows) == 3 and all(0 < row["percent_of_limit"] <= 105 for row in rows), rows
PYTHON

holds "JSON" python3 - "$work" <<'PYTHON'
import json, sys
keys = ["file", "bench", "variant", "device", "arguments", "median_ns", "interval_low_ns", "interval_high_ns", "least_ns",
        "low_ns", "high_ns", "most_ns", "first_ns", "samples", "warmup", "calls_per_sample", "mild_outliers",
        "severe_outliers", "converged", "two_peaks", "autocorrelation", "clock_mhz", "clock_low_mhz", "clock_high_mhz",
        "hot_ns", "bytes", "flops", "gb_per_s", "gflop_per_s", "percent_of_limit", "limit", "max_error", "verdict", "ratio",
        "ratio_low", "ratio_high", "baseline_verdict", "baseline_ratio", "baseline_ratio_low", "baseline_ratio_high",
        "baseline_ns", "status", "message", "copies", "in_cache", "machine", "processor", "gpu", "driver", "power_limit",
        "system", "version", "started", "throttling", "samples_ns"]
def load(name):
    rows = json.load(open(f"{sys.argv[1]}/{name}.json"))
    for row in rows:
        assert list(row) == keys, row
        assert row["status"] in ("ok", "wrong", "failed", "skipped"), row
        if row["status"] == "ok":
            assert row["low_ns"] <= row["median_ns"] <= row["high_ns"] and row["median_ns"] > 0, row
            assert row["samples"] >= 1 and row["message"] == "" and row["max_error"] is not None, row
            assert row["interval_low_ns"] <= row["median_ns"] <= row["interval_high_ns"], row
            assert len(row["samples_ns"]) == row["samples"] and min(row["samples_ns"]) == row["least_ns"], row
            assert row["machine"] and row["processor"] and row["version"] and row["clock_mhz"] > 100, row
            assert abs(row["gb_per_s"] - row["bytes"] / row["median_ns"]) < 1e-3 * row["gb_per_s"], row
            assert row["percent_of_limit"] is None or row["percent_of_limit"] > 0, row
        else:
            assert row["median_ns"] is None and row["samples"] == 0 and row["message"], row
    return {row["variant"]: row for row in rows}, rows
right, rows = load("right")
assert [row["status"] for row in rows] == ["ok"] * 4, rows
assert right["twice"]["bytes"] == 8 * 100003 and abs(right["twice"]["flops"] - 100003) < 100, right
assert right["in_c"]["flops"] is None
assert right["twice"]["arguments"] == "n = 100003" and right["twice"]["device"] == "cpu"
mixed, rows = load("mixed")
assert {name: row["status"] for name, row in mixed.items()} == {
    "twice": "ok", "almost": "wrong", "only_large": "wrong", "stops": "failed", "fused": "ok", "in_c": "ok",
    "wrong_c": "wrong", "in_cuda": "skipped"}, mixed
assert 4e-4 < mixed["almost"]["max_error"] < 6e-4, mixed["almost"]
place, rows = load("place")
assert place["shift"]["status"] == "ok" and place["shift_wrong"]["status"] == "wrong"
assert place["shift"]["bytes"] == 8 * 10001
sets, rows = load("sets")
assert [row["arguments"] for row in rows] == [f"n = {n}, B = {b}" for n in (1000, 2000) for b in (32, 64)], rows
assert rows[3]["bytes"] == 16000 and rows[3]["flops"] == 6000
PYTHON

# sweeps: one table, a row for each value; CSV and a picture; what is no sweep
bench 0 "$work/mix.qn" right --device cpu --sweep n=2^10..2^14*4 --csv "$work/sweep.csv" --plot "$work/sweep.svg" --json "$work/sweep.json"
says out 'right on cpu: GB/s'
says out '16384  '
says out 'fastest'
holds "CSV and SVG of a sweep" python3 - "$work" <<'PYTHON'
import csv, json, sys
import xml.dom.minidom
rows = list(csv.DictReader(open(f"{sys.argv[1]}/sweep.csv")))
assert [row["arguments"] for row in rows] == [f"n = {n}" for n in (1024, 4096, 16384) for _ in range(4)], rows
assert all(float(row["median_ns"]) > 0 and row["status"] == "ok" for row in rows)
assert rows[0]["verdict"] == "" and all(row["verdict"] for row in rows[1:4]), rows
assert len(json.load(open(f"{sys.argv[1]}/sweep.json"))) == 12
picture = xml.dom.minidom.parse(f"{sys.argv[1]}/sweep.svg")
assert len(picture.getElementsByTagName("circle")) >= 12
words = "".join(node.firstChild.data for node in picture.getElementsByTagName("text") if node.firstChild)
assert "GB/s" in words and "twice(B = 1000)" in words, words
PYTHON
bench 0 "$work/mix.qn" sets --device cpu --sweep n=100..300+100 --sweep B=16,32
says out '300'
for sweep in n n=x..y n=9..1 n=1..9*1 n=2^70..3 n=1..2,3; do bench 2 "$work/mix.qn" right --sweep "$sweep"; done
bench 2 "$work/mix.qn" right --sweep N=1..2
says err 'did you mean `n`?'
bench 2 "$work/mix.qn" right --set n=5 --sweep n=1..2
says err 'both set and swept'
bench 2 "$work/mix.qn" right --plot "$work/none.svg"
says err 'a plot needs a sweep'

# against an earlier run: compared on the same machine alone; a slower variant is exit status 1
bench 0 "$work/mix.qn" right --device cpu --json "$work/base.json"
# scaled FACTOR FILE: the times of an earlier run, longer by a factor
scaled() {
    python3 - "$work/base.json" "$1" >"$2" <<'PYTHON'
import json, sys
rows = json.load(open(sys.argv[1]))
for row in rows:
    row["clock_mhz"] = None
    for key in ("median_ns", "interval_low_ns", "interval_high_ns"):
        row[key] *= float(sys.argv[2])
json.dump(rows, sys.stdout)
PYTHON
}
# clear FILE: the comparison with a baseline is no longer ambiguous. Some samples that others held up for a hundred times as long make
# even this one so.
clear() {
    for try in 1 2 3; do
        "$quern" bench "$work/mix.qn" right --device cpu --against "$1" --seconds 0.02 2>&1 | grep -q AMBIGUOUS || return 0
    done
    machine_busy || return 0
    echo "note: skipped: a comparison with a baseline a hundred times as fast or slow is ambiguous, the machine is busy ($busy)"
    return 1
}
scaled 0.01 "$work/fast.json"
if clear "$work/fast.json"; then
    bench 1 "$work/mix.qn" right --device cpu --against "$work/fast.json"
    says out 'and baseline'
    says out 'SLOWER'
    says err 'slower than the baseline'
fi
scaled 100 "$work/slow.json"
if clear "$work/slow.json"; then
    bench 0 "$work/mix.qn" right --device cpu --against "$work/slow.json"
    says out 'FASTER'
fi
sed -E 's/"machine": "[^"]*"/"machine": "0123"/' "$work/slow.json" >"$work/other.json"
bench 2 "$work/mix.qn" right --device cpu --against "$work/other.json" --json "$work/untouched.json"
says err 'another machine'
says err '--force'
holds "nothing was written" [ ! -e "$work/untouched.json" ]
bench 0 "$work/mix.qn" right --device cpu --against "$work/other.json" --force
bench 2 "$work/mix.qn" right --against "$work/mix.qn"
says err 'not JSON'
echo '{"a": 1}' >"$work/odd.json"
bench 2 "$work/mix.qn" right --against "$work/odd.json"
says err 'is not the JSON of a bench'
bench 2 "$work/mix.qn" right --against "$work/absent.json"
# A baseline that has nothing of this run compares nothing: no success.
echo '[]' >"$work/empty.json"
bench 2 "$work/mix.qn" right --device cpu --against "$work/empty.json" --json "$work/untouched.json"
says err 'is empty, so nothing can be compared with it'
holds "nothing was written" [ ! -e "$work/untouched.json" ]
bench 2 "$work/mix.qn" right --device cpu --against "$work/right.json" --set n=5000 --force
says err 'has nothing of this run'
says err 'the baseline begins with `twice` of `right` on cpu (n = 100003), this run with `twice` of `right` on cpu (n = 5000)'

# What is discrete is compared in the kernel's own precision: on the border of two bins, float and double differ.
cat >"$work/bins.qn" <<'QN'
kernel bins(in float x[n], inout i32 y[m], const int B = 64) launch (cdiv(n, B))
{
    int i = program(0) * B;
    if (i < n) atomic_add(y[int(x[i : B] * 0.7 * 10)], 1);
}
kernel bins_off(in float x[n], inout i32 y[m], const int B = 64) launch (cdiv(n, B))
{
    int i = program(0) * B;
    if (i < n) atomic_add(y[int(x[i : B] * 0.7 * 10) + 1], 1);
}
kernel counts(in float x[n], out float y[n], const int B = 64) launch (cdiv(n, B))
{
    int i = program(0) * B;
    y[i : B] = float(int(x[i : B] * 0.7 * 10));
}
kernel steps(in float x[n], out float y[n], const int B = 64) launch (cdiv(n, B))
{
    int i = program(0) * B;
    y[i : B] = floor(x[i : B] * 0.7 * 10);
}
kernel rest(in float x[n], out float y[n], const int B = 64) launch (cdiv(n, B))
{
    int i = program(0) * B;
    y[i : B] = x[i : B] * 0.7 * 10 % 1.0;
}
kernel above(in float x[n], out float y[n], const int B = 64) launch (cdiv(n, B))
{
    int i = program(0) * B;
    y[i : B] = x[i : B] * 0.1 >= 0.3 ? 1 : 0;
}
bench bins (n = 4096, m = 30000) input (x = ramp(), y = constant(0)) { bins, bins(B = 256) }
bench off (n = 4096, m = 30000) input (x = ramp(), y = constant(0)) { bins, bins_off }
bench counts (n = 4096) input (x = ramp()) { counts, counts(B = 256) }
bench steps (n = 4096) input (x = ramp()) { steps }
bench rest (n = 4096) input (x = ramp()) { rest }
bench above (n = 4096) input (x = ramp()) { above }
QN
bench 0 "$work/bins.qn" bins --device cpu
for name in counts steps rest above; do bench 0 "$work/bins.qn" $name --device cpu; done
bench 1 "$work/bins.qn" off --device cpu
says out '(`bins` on ref, rounded to its own types; tolerance 0: integers must be equal)'

# A tensor function is recorded at its second launch: that is over before it is timed, on every copy of the arrays. Here on the
# driver that runs CUDA text in emu: however long it is timed, as many plans are made.
cat >"$work/step.qn" <<'QN'
tensor loss(float x[B][D], float w[D][D]) { return mse_loss(gelu(x @ w), x); }
tensor step(float x[B][D], float w[D][D]) { return w - 0.01 * grad(loss, w)(x, w); }
bench step (B = 4, D = 4) tolerance (1e-3, 1e-4) { step }
QN
if [ -d "$build/tests/fake" ]; then
    for seconds in 0.01 0.3; do
        QUERN_CUDA_PATH="$build/tests/fake" QUERN_LOG=graph "$quern" bench "$work/step.qn" --device cuda --seconds $seconds 2>&1 |
            grep -c '^graph: plan' >"$work/plans_$seconds"
    done
    holds "a function is recorded before it is timed: $(cat "$work"/plans_*)" cmp "$work/plans_0.01" "$work/plans_0.3"
    # One of many kernels has fewer calls ready: 64 of these would be more launches than a device keeps.
    cat >"$work/many.qn" <<'QN'
tensor many(float x[N]) { let y = x; for (int i = 0; i < 24; i++) y = relu(y - 0.5) + x; return y; }
bench many (N = 64) { eager many }
QN
    holds "a bench of many kernels" env QUERN_CUDA_PATH="$build/tests/fake" "$quern" bench "$work/many.qn" --device cuda --seconds 0.01
    # Benches that share a GPU: this one times when the other has ended.
    (flock 9; echo held >"$work/held"; while [ ! -e "$work/go" ]; do sleep 0.1; done) 9>"$work/turn" &
    while [ ! -e "$work/held" ]; do sleep 0.1; done
    (QUERN_GPU_LOCK=$work/turn QUERN_CUDA_PATH="$build/tests/fake" "$quern" bench "$work/many.qn" --device cuda --seconds 0.01 >"$work/waited" 2>&1; echo $? >"$work/ended") &
    sleep 3
    holds "a bench that did not wait for its turn: $(cat "$work/waited")" [ ! -e "$work/ended" ]
    : >"$work/go"
    wait
    holds "a bench after its turn has come: $(cat "$work/waited")" grep -qx 0 "$work/ended"
fi

# peers: without any of them the table has Quern alone
holds "peers" python3 bench/peers/run.py --quern "$quern" --only nothing
holds "peers explain themselves" python3 bench/peers/run.py --help
sed -n 's/^bench \([a-z_0-9]*\) .*/\1/p' bench/peers/table.qn >"$work/blocks"
sed -n 's/^    ("\([a-z_0-9]*\)", .*/\1/p' bench/peers/workloads.py >"$work/rows"
holds "every block of the peers' table has its row" cmp "$work/blocks" "$work/rows"

finish
