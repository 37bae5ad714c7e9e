#!/bin/sh
# Programs that were once wrong, refused or fatal, as they were found: each gives the right result, or an error in words.
# The same kinds by the hundred: test_axes, test_hazards' folder in test_programs_emu, test_fronts, test_deep, test_faults. What
# needs more than a file has a place of its own: hostile paths and caches in hostile.sh, thousands of statements and calls
# in limits.sh, the decimal comma in test_locale, planted cache entries in test_cache.
# Usage: tests/scripts/cases.sh BUILD_FOLDER
QUERN_CUDA_PATH=none
export QUERN_CUDA_PATH
. "$(dirname "$0")/../holds.sh"
cd "$root/tests/cases" || exit 1
has_emu=1
"$quern" devices --device emu | grep -q 'not available' && has_emu=
# try EXIT_CODE ARGUMENTS...
try() {
    wanted=$1
    shift
    timeout 60 "$quern" "$@" >"$work/out" 2>"$work/err" </dev/null
    code=$?
    holds "quern $*: exit $code, not $wanted: $(cat "$work/out" "$work/err")" [ "$code" = "$wanted" ]
}
says() { holds "std$1 lacks: $2: $(cat "$work/$1")" grep -qE -- "$2" "$work/$1"; }
# agrees FILE NAME SETTINGS...: cpu and emu give what ref gives. What is discrete must be equal: the last line has a zero.
agrees() {
    for device in cpu ${has_emu:+emu}; do
        try 0 run "$@" --agree --device $device
        says out '^agreement with ref: [a-z0-9]* differs by at most (0$|[0-9.]*e-0[6-9])'
    done
}
sizes="--set N=2 --set C=3 --set D=4 --set H=4 --set W=4"
agrees conv3d.qn conv3 --set N=3 --set C=2 --set D=5 --set H=5 --set W=5 --set O=4 --set KD=3 --set KH=3 --set KW=3
agrees literal_unit.qn d --set O=3 --set H=4
try 0 run literal_unit.qn by_call --set O=4 --set H=8
try 0 run literal_unit.qn in_kernel --set O=4 --set H=8
for function in mask masked twice; do
    try 0 run where_numbers.qn $function --set T=4 --device ref
    says out '^result0: f32\[4\]\[4\]'
done
try 0 run where_numbers.qn in_kernel --set n=4 --device ref
try 0 show padded_window.qn padded --set n=1000 --device cuda --stage cuda
holds "no element takes the whole grid" sh -c "! grep -q team_blocks '$work/out'"
agrees three_windows.qn at_once $sizes
try 0 run three_windows.qn differs $sizes
says out '^result0: f32  min 0  max 0  mean 0$'
agrees seven_axes.qn f --set A=3 --set B=2 --set C=4
try 0 run pool.qn mp --set N=2 --set C=64 --set H=29 --set W=34 --no-cache --time
holds "compiling is told apart: $(tail -1 "$work/out")" awk '/^compile/ { good = $2 > 5 } /agreement/ { exit 1 } END { exit !good }' "$work/out"
# The interpreter says that it is what takes so long; it is ended here.
if [ "${QUERN_SLOW:-1}" -ge 32 ]; then # the thread sanitizer's share (tools/test-sanitized)
    echo "note: skipped what a long run on ref says: the thread sanitizer keeps signals until a call that it knows"
else
    timeout $((QUERN_SLOW ? 20 : 2)) "$quern" run long_loop.qn long_loop --set n=2000000000 --device ref >"$work/out" 2>"$work/err"
    says err '^quern: ref interprets element by element'
fi
try 0 run deep_chain.qn t --set n=4
says out '^result0: f32\[4\]  min 1616'
agrees shift_scalars.qn k --set n=70
agrees shift_tiles.qn k --set n=70
agrees bitcast_bool.qn k --set n=70
# The CUDA texts with every race and barrier looked at.
if [ "$has_emu" ]; then
    try 0 check two_stores.qn
    says out 'its CUDA text on emu'
    agrees divergent_loop.qn scan --set n=100
    agrees divergent_loop.qn tiles --set n=100 --set m=9
    agrees divergent_scratch.qn back --set n=100
fi
# Without memory: an error, never zeros. Address space is no measure for a sanitized build.
if (ulimit -v 150000 && "$quern" help >/dev/null 2>&1); then
    for device in ref cpu; do
        (ulimit -v 150000 && "$quern" run much_memory.qn tb --set n=4 --device $device >"$work/out" 2>"$work/err")
        code=$?
        holds "no memory on $device is status 1, not $code" [ "$code" = 1 ]
        says err 'memory'
    done
fi
try 0 run evil.tile --set n=3 --no-raw
holds "the comment of a dump does not run" [ ! -e pwned ]
echo '[]' >"$work/empty.json"
try 2 bench against.qn --seconds 0.01 --device cpu --against "$work/empty.json"
says err 'is empty, so nothing can be compared with it'
try 1 check endless.qn
says out 'R709'
cat >"$work/deep.c" <<'END'
#include <quern/try.h>
#include <quern/tensor.h>
#include <stdio.h>
int main(void)
{
    qn_error error;
    qn_context *context;
    qn_tape *tape;
    float x[4] = {1, 2, 3, 4}, y[4];
    QN_MUST(qn_context_open(NULL, &context, &error), error);
    QN_MUST(qn_tape_new(context, "ref", &tape, &error), error);
    qn_tensor t = qn_from_memory(tape, x, QN_F32, QN_SHAPE(4)), by = qn_scalar(tape, QN_F32, 0.5), one = qn_scalar(tape, QN_F32, 1);
    for (int i = 0; i < 20000; i++) t = qn_add(qn_mul(t, by), one);
    QN_MUST(qn_tensor_read(t, y, sizeof(y), &error), error);
    printf("%g\n", y[3]);
    qn_tape_free(tape);
    qn_context_close(context);
    return 0;
}
END
sanitize=$(sed -n 's/^QUERN_SANITIZE:STRING=\(.*\)$/\1/p' "$build/CMakeCache.txt")
holds "a chain of 20,000 steps compiles" cc ${sanitize:+-fsanitize=$sanitize} -I"$root/include" "$work/deep.c" "$build/libquern.a" -lm -ldl -lpthread -o "$work/deep"
holds "... and runs" sh -c "timeout 60 '$work/deep' | grep -qx 2"
finish
