#!/bin/sh
# Reports from outside: pages that are whole, of profiles and benches; paths that cannot be written, a full disk, Ctrl-C.
# Usage: tests/scripts/report.sh BUILD_FOLDER
QUERN_CUDA_PATH=none
export QUERN_CUDA_PATH
. "$(dirname "$0")/../holds.sh"
whole() { holds "$1 is a whole page" env QUERN_REPORT_CHECK="$1" "$build/tests/test_report"; }
has() { holds "$1 lacks: $2" grep -qF -- "$2" "$1"; }
nothing_half() { holds "nothing half-written is left" sh -c "! ls '$work' | grep -q '[.]part\$'"; }
# ends CODE COMMAND...: the exit status
ends() {
    wanted=$1
    shift
    "$@" >"$work/out" 2>"$work/err"
    code=$?
    holds "$*: exit $code, not $wanted: $(cat "$work/err")" [ "$code" = "$wanted" ]
}
says() { holds "stderr lacks: $1: $(cat "$work/err")" grep -qF -- "$1" "$work/err"; }

cat >"$work/two.qn" <<'QN'
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
kernel wrong(in float x[n], out float y[n], const int B = 64) launch (cdiv(n, B))
{
    int i = program(0) * B;
    y[i : B] = 3 * x[i : B];
}
bench sweep (n in {1000, 20000}) { twice, sum_of_two, wrong }
QN

# a profile of a program, through the environment
QUERN_PROFILE="report=$work/run.html,command=a run" ends 0 "$quern" run "$work/two.qn" twice --set n=100000 --device cpu
whole "$work/run.html"
has "$work/run.html" 'a run'
has "$work/run.html" 'y[i : B] = 2 * x[i : B];'
nothing_half
QUERN_PROFILE="report=$work/no/such/run.html" ends 2 "$quern" run "$work/two.qn" twice --set n=1000 --device cpu
says 'cannot write'
holds "no folder was made" sh -c "! ls '$work/no'"
if [ -c /dev/full ]; then
    QUERN_PROFILE="report=/dev/full" ends 0 "$quern" run "$work/two.qn" twice --set n=1000 --device cpu
    says 'No space left'
    holds "/dev/full is a device still" [ -c /dev/full ]
fi
# on ref there are no ceilings and no C: the page says so
QUERN_PROFILE="report=$work/ref.html" ends 0 "$quern" run "$work/two.qn" twice --set n=100 --device ref
whole "$work/ref.html"
has "$work/ref.html" 'tile IR'

# a bench
ends 1 "$quern" bench "$work/two.qn" --device cpu --seconds 0.02 --report "$work/bench.html"
whole "$work/bench.html"
for words in 'is the fastest' 'Distribution of the samples' 'against the first' 'times as fast' 'All rows: ' 'y[i : B] = x[i : B] + x[i : B];' \
    'quern bench' '2 variants are wrong or failed' 'Sweeps' 'Roofline of cpu'; do
    has "$work/bench.html" "$words"
done
holds "a finished run says nothing else" sh -c "! grep -q 'not finished' '$work/bench.html'"
ends 2 "$quern" bench "$work/two.qn" --device cpu --report "$work/no/such/bench.html"
says 'cannot write'
holds "nothing was timed" sh -c "! grep -q timing '$work/err'"
if [ -c /dev/full ]; then
    ends 2 "$quern" bench "$work/two.qn" --device cpu --seconds 0.02 --report /dev/full
    says 'No space left'
fi
nothing_half

# Ctrl-C: what was measured or recorded until then
# interrupted FILE WORDS COMMAND...: sends SIGINT once FILE (or stdout) has WORDS
interrupted() {
    file=$1
    words=$2
    shift 2
    : >"$work/err"
    "$@" >"$work/out" 2>"$work/err" &
    child=$!
    for turn in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do
        grep -qF -- "$words" "$file" 2>/dev/null && break
        sleep 0.2
    done
    kill -INT $child
    wait $child
    code=$?
    holds "$*: exit $code after Ctrl-C" [ "$code" != 0 ]
}
interrupted "$work/part.html" 'n = 1000)' env --default-signal=INT "$quern" bench "$work/two.qn" sweep --device cpu \
    --seconds 2 --report "$work/part.html"
whole "$work/part.html"
has "$work/part.html" 'The run is not finished'
holds "Ctrl-C ends with 130, not $code" [ "$code" = 130 ]
says "quern: interrupted: $work/part.html has what was finished before"
interrupted "$work/err" 'timing' env --default-signal=INT QUERN_PROFILE="report=$work/stopped.html" "$quern" bench \
    "$work/two.qn" sweep --device cpu --seconds 9
whole "$work/stopped.html"
has "$work/stopped.html" 'The run was interrupted'
nothing_half

# A variant that cannot run here is named once, however many points a sweep has.
cat >"$work/skipped.qn" <<'QN'
kernel twice(in float x[n], out float y[n], const int B = 64) launch (cdiv(n, B)) { y[program(0) * B : B] = 2 * x[program(0) * B : B]; }
cuda by_hand(in float x[n], out float y[n]) launch (cdiv(n, 64)) block (64)
"""
__global__ void by_hand(const float *x, float *y, int n) { int i = blockIdx.x * 64 + threadIdx.x; if (i < n) y[i] = 2 * x[i]; }
"""
bench twice (n = 64) { twice, by_hand }
QN
"$quern" bench "$work/skipped.qn" --device cpu --sweep n=64,128,256 --seconds 0.001 --report "$work/skipped.html" >"$work/out" 2>"$work/err"
has "$work/skipped.html" 'Skipped: by_hand.'

finish
