#!/bin/sh
# What a terminal sees: tables that fit its width, colours there alone and not with NO_COLOR, progress on one line and
# little of it in a pipe, sweeps with times and paired sizes, verdicts in one direction.
# Usage: tests/scripts/terminal.sh BUILD_FOLDER
QUERN_CUDA_PATH=none
export QUERN_CUDA_PATH
. "$(dirname "$0")/../busy.sh" # quick
quern="$(cd "${1:-build}" && pwd)/quern"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export QUERN_CACHE="$work/cache"
cd "$work" || exit 1
passed=0
failed=0
holds() {
    what=$1
    shift
    if "$@"; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAILED: $what"
        cat out err
    fi
}
cat >file.qn <<'END'
kernel a(in float x[n][m], out float y[n][m])  launch (n) { y[program(0)][:] = x[program(0)][:]; }
kernel b(in float x[n][m], out float y[n][m])  launch (n) { y[program(0)][:] = 1 * x[program(0)][:]; }
bench copies (n = 8, m = 16) { a, b }
END
printf 'kernel k(in float x[n])  launch (1) { y[0] = x[0]; }\n' >wrong.qn
widest() { awk -v most="$1" '/^variant|^a |^b |^Name|^-|^k/ && length($0) > most { bad = 1 } END { exit bad }' out; }
COLUMNS=70 "$quern" bench file.qn --seconds 0.01 >out 2>err
holds "a table of at most 70" widest 70
holds "what is left out is told" grep -q 'left out to fit the terminal' out
holds "nothing but a line or two of progress in a pipe" test "$(wc -l <err)" -le 2
COLUMNS=90 "$quern" profile file.qn a --device cpu --runs 2 >out 2>err
holds "a profile of at most 90" widest 90
"$quern" bench file.qn --seconds 0.01 --sweep n,m=4..16 >out 2>err
holds "a sweep has times" grep -q '^copies on cpu: time' out
holds "paired sizes" test "$(grep -c '^ *16 *16 ' out)" = 2
holds "and only those" test "$(grep -c '^ *4 *16 ' out)" = 0
"$quern" bench file.qn --seconds 0.01 --sweep n=4..8 --plot x.png >out 2>err
holds "a plot that is no SVG is refused" grep -q 'a plot is SVG: name it something.svg, not `x.png`' err
"$quern" bench file.qn --seconds 0.01 --sweep n=4..8 --plot x.svg >out 2>err
cat >many.qn <<'END'
kernel copy(in float x[n], out float y[n], const int B = 64)  launch (cdiv(n, B)) { y[program(0) * B : B] = x[program(0) * B : B]; }
bench three (n = 64) { copy, copy(B = 32), copy(B = 16) }
bench four (n = 64) { copy, copy(B = 32), copy(B = 16), copy(B = 8) }
END
"$quern" bench many.qn three --seconds 0.01 --sweep n=64..128 --plot three.svg >out 2>err
"$quern" bench many.qn four --seconds 0.01 --sweep n=64..128 --plot four.svg >out 2>err
holds "three variants have bands" grep -q 'class="band"' three.svg
holds "four would hide each other: they have whiskers" sh -c "! grep -q 'class=\"band\"' four.svg && grep -q 'opacity=\"0.7\"' four.svg"
holds "a plot has a background of its own" grep -q 'svg { background: #fff; }' x.svg
holds "and is no wider than its window" grep -q 'svg:root { max-width: 100%; height: auto; }' x.svg
# Both directions of a verdict are numbers above 1; what too few samples cannot tell is said so.
cat >turns.qn <<'END'
kernel middle(in float x[n], out float y[n])  launch (1) { tile float v = x[:]; for (int i = 0; i < 40; i++) { v = sin(v); } y[:] = x[:] + 0 * v; }
kernel quick(in float x[n], out float y[n])  launch (1) { y[:] = x[:]; }
kernel long_one(in float x[n], out float y[n])  launch (1) { tile float v = x[:]; for (int i = 0; i < 1600; i++) { v = sin(v); } y[:] = x[:] + 0 * v; }
bench turns (n = 256) { middle, quick, long_one }
END
"$quern" bench turns.qn --seconds 0.02 >out 2>err
quick "faster is above 1" grep -qE '^quick .* ([2-9]|[0-9]{2,})\.[0-9]+x FASTER' out
quick "and so is slower" grep -qE '^long_one .* ([2-9]|[0-9]{2,})\.[0-9]+x SLOWER' out
"$quern" bench turns.qn --seconds 0.000001 >out 2>err
holds "too few samples are told" grep -qE '^(quick|long_one) .* too few samples' out
printf 'tensor layer(float x[B][D], float w[D][E])\n{\n    return gelu(x @ w);\n}\n' >layer.qn
"$quern" profile layer.qn layer --device cpu --runs 1 --by kernel --set B=8 --set D=8 --set E=8 >out 2>err
holds "kernels name what they are made of, and where" grep -q 'matmul+gelu layer.qn:3' out
"$quern" profile --counters -- "$quern" run file.qn a --device cpu --set n=3 --set m=4 >out 2>err
holds "a program runs twice for counters" grep -q 'runs twice: once to count its kernels' err
holds "counters of a program: $(cat out)" grep -q '^counters of one launch of a file.qn:' out
"$quern" profile --stalls -- "$quern" run file.qn a --device cpu --set n=3 --set m=4 >out 2>err
holds "stalls of a program are refused with what to do" grep -q 'error: --stalls samples a kernel .* FILE NAME --stalls' err
"$quern" check wrong.qn >out 2>err
holds "no colours in a pipe" sh -c '! grep -q "$(printf "\033")" out err'
if command -v script >/dev/null; then
    export TERM=xterm
    script -qec "$quern check wrong.qn" /dev/null >out 2>err </dev/null
    holds "colours of a diagnostic" grep -q "$(printf '\033\\[31merror E201:')" out
    holds "colours of its caret" grep -q "$(printf '\033\\[1;32m.*\\^')" out
    script -qec "$quern check many.qn --no-emu" /dev/null >out 2>err </dev/null
    holds "check tells how far it is" grep -q '\[1/1\] copy: 3 of [0-9]* cases' out
    NO_COLOR=1 script -qec "$quern check wrong.qn" /dev/null >out 2>err </dev/null
    holds "none with NO_COLOR" sh -c '! grep -q "$(printf "\033")" out'
    script -qec "stty cols 80; $quern bench file.qn --seconds 0.01" /dev/null >out 2>err </dev/null
    holds "progress counts and says what is left" grep -q '\[[0-9]*/9\] timing .* s left' out
    # Training says what it does before the first step, then one line that a narrow terminal does not break.
    script -qec "stty cols 40; $quern train dlrm --rows 40k --tokens 8 --batch 64 --device cpu --steps 500" /dev/null >out 2>err </dev/null
    tr '\r' '\n' <out | sed "s/$(printf '\033')\[K//" >lines
    holds "training says that it gathers, compiles, validates" sh -c 'grep -q "^gathering facts of the columns" lines && grep -qx "compiling the step" lines && grep -q "^validating" lines'
    holds "steps, time left, loss" grep -qE '^step [0-9]+/500, [0-9]+ s left, loss 0\.' lines
    holds "within 39 columns" awk '/^(step [0-9]*\/|gather|validating)/ && length($0) > 39 { bad = 1 } END { exit bad }' lines
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
