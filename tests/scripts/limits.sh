#!/bin/sh
# Large and endless programs: thousands of statements, branches and calls, counts that overflow, loops that never end.
# Each gives a right result or an error with a number, soon, in 2 GB of address space, and never a crash.
# Usage: tests/scripts/limits.sh BUILD_FOLDER
QUERN_CUDA_PATH=none
export QUERN_CUDA_PATH
build=$(cd "${1:-build}" && pwd)
quern="$build/quern"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export QUERN_CACHE="$work/cache"
cd "$work" || exit 1
[ -x "$quern" ] || { echo "there is no $quern"; echo "0 passed, 1 failed"; exit 1; }
passed=0
failed=0
memory=2000000 # kB; the address space of a sanitized build is no measure
{ (ulimit -v "$memory" && "$quern" help >/dev/null 2>&1) || memory=unlimited; } 2>/dev/null

# try EXIT_CODE TEXT ARGUMENTS...: the command ends so within 60 s, and says the text.
try() {
    wanted=$1
    words=$2
    shift 2
    (
        ulimit -v "$memory"
        timeout 60 "$quern" "$@" >out 2>&1 </dev/null
    )
    code=$?
    if [ "$code" = "$wanted" ] && grep -qF -- "$words" out; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAILED quern $*: exit $code, not $wanted, or it lacks: $words"
        cut -c1-200 out | tail -5
    fi
}
# lines COUNT TEXT: with @ counting from 0, # from 1 and ~ from 0 to 6 again and again.
lines() { awk -v n="$1" -v f="$2" 'BEGIN { for (i = 0; i < n; i++) { s = f; gsub(/@/, i, s); gsub(/#/, i + 1, s); gsub(/~/, i % 7, s); print s } }'; }
few=$(((${QUERN_SLOW:-1} + 3) / 4)) # shorter under the slower sanitizer
stages="c cuda"
[ "$few" = 1 ] || stages=c
[ "$few" = 1 ] || echo "note: limits: programs of 1/$few of the usual length, and their C alone, under a sanitizer"
scalar='kernel k(in i32 x[n], out i32 y[n]) launch (n) { i32 s = x[program(0)];'
tiles='kernel k(in float x[n], out float y[n], const int B = 64) launch (cdiv(n, B)) { int i = program(0) * B; tile float s = x[i : B];'
of_call='kernel k(in float x[n], out float y[n]) launch (n) { y[program(0)] = '

# ---- statements ----
{ echo "$tiles"; lines $((10000 / few)) 's = s * 0.~5 - x[i : B] * ~;'; echo 'y[i : B] = s; }'; } >statements.qn
{ echo "$scalar"; lines $((4000 / few)) 'if (s > @) s = s + 1;'; echo 'y[program(0)] = s; }'; } >branches.qn
{ echo "$scalar"; lines $((2000 / few)) 'i32 a@ = s + 1;'; lines $((2000 / few)) 'if (s > @) a@ = s;'; echo 'y[program(0)] = s + a7; }'; } >variables.qn
{ echo "$scalar"; lines $((4000 / few)) 'if (s == @) return; s = s + 1;'; echo 'y[program(0)] = s; }'; } >returns.qn
{ echo 'float f(float s) {'; lines $((4000 / few)) 'if (s > @) s = s + 1;'; echo "return s; } $tiles y[i : B] = f(s); }"; } >by_element.qn
{ echo 'kernel k(in float x[n], out float y[n], out float z[n], const int B = 64) launch (cdiv(n, B)) { int i = program(0) * B; tile float s = x[i : B];'
  lines 100 's = s * s + s;'; echo 'y[i : B] = s; z[i : B] = s / sum(s); }'; } >shared.qn
{ echo "$tiles"; lines $((90000 / few)) 's = s * 0.5 + @ * x[i : B];'; echo 'y[i : B] = s; }'; } >too_many.qn
for stage in $stages; do
    try 0 "y_array" show statements.qn --stage $stage
    try 0 "y_array" show branches.qn --stage $stage
    try 0 "y_array" show variables.qn --stage $stage
    try 0 "y_array" show by_element.qn --stage $stage
    try 0 "z_array" show shared.qn --stage $stage
done
try 1 "error E105: more than 400 jumps after each other" show returns.qn --stage c
[ "$few" != 1 ] || try 1 "more than 250000 operations" show too_many.qn --stage c
try 0 "y: i32[4]" run branches.qn k --set n=4 --device ref
try 0 "y: f32[4]" run statements.qn k --set n=4 --device ref

# ---- calls ----
{ lines 3000 'float g_@(float x) { return g_#(x); }' | sed 's/g_3000/g_0/'; echo "$of_call g_0(1); }"; } >mutual.qn
{ lines 5000 'float g_@(float x) { return g_#(x); }'; echo "float g_5000(float x) { return x; } $of_call g_0(1); }"; } >chain.qn
{ lines 150 'float g_@(float x) { return g_#(x); }'; echo "float g_150(float x) { return x; } $of_call g_0(x[program(0)]); }"; } >nested.qn
{ echo 'float g_0(float x) { return x + 1; }'; lines 60 'float g_#(float x) { return g_@(x) + g_@(x); }'; echo "$of_call g_60(x[program(0)]); }"; } >doubled.qn
{ echo 'float g_0(float x) { return x + 1; }'; lines 60 'float g_#(float x) { return g_@(g_@(g_@(x))); }'; echo "$of_call g_60(x[program(0)]); }"; } >inside.qn
{ lines 150 'float g_@(float x) { return g_#(x); }'; echo 'float g_150(float x) { return 2 * x; } tensor k(float x[n]) { return g_0(x); }'; } >tensor_nested.qn
try 1 "calls nested deeper than 200" check mutual.qn
try 1 "calls nested deeper than 200" check chain.qn
try 0 "y: f32[4]" run nested.qn k --set n=4 --device cpu
try 1 "expands to more than 100000 calls" check doubled.qn
try 1 "expands to more than 100000 calls" check inside.qn
try 0 "result0: f32[4]" run tensor_nested.qn k --set n=4 --device ref

# ---- loops ----
echo 'kernel k(out float y[n]) launch (n) { int i = 0; while (true) { i = i + 1; } y[program(0)] = 1; }' >endless.qn
echo 'kernel k(out float y[n]) launch (n) { float s = 0; for (int i = 0; i < 1 << 62; i++) s += 1; y[program(0)] = s; }' >long.qn
echo 'tensor k(float x[n]) { let h = x; for (int i = 0; i < 1000000000; i++) h = h + 1; return h; }' >unrolled.qn
echo 'tensor k(float x[n]) { let h = x; for (int i = 9223372036854775806; i <= 9223372036854775807; i++) h = h + 1; return h; }' >last.qn
ended=124
[ "${QUERN_SLOW:-1}" -ge 32 ] && ended=137 # the thread sanitizer keeps signals until a call that it knows, and there is none
for device in cpu emu; do # it really does not end: C and C++ compilers may not assume that it does
    (timeout -k 2 2 "$quern" run endless.qn k --set n=2 --device $device >out 2>&1)
    code=$?
    if [ "$code" = "$ended" ] || grep -qF "not available" out; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAILED an endless loop on $device: exit $code"
        cat out
    fi
done
try 1 "R709" check endless.qn
try 1 "R709" check long.qn
try 1 "more than 200000 statements" run unrolled.qn k --set n=4
try 0 "result0: f32[4]" run last.qn k --set n=4 --device ref

# ---- counts ----
echo 'kernel k(out float y[n]) launch (1 << 62, 1 << 62, 1 << 62) { y[program(0)] = 1; }' >launches.qn
echo 'kernel k(out float y[n], scratch float s[1 << 40][1 << 40]) launch (1) { y[:] = 1; }' >scratch.qn
echo 'kernel k(out float y[n], scratch float s[1 << 38]) launch (1) { s[0] = 1; y[:] = s[0]; }' >much.qn
sets='{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}'
{ echo "$of_call 1; } bench b ("; lines 20 "p@ in $sets,"; echo 'n = 4) { k }'; } >sets.qn
{ echo 'kernel k(out float y[n]'; lines 20 ', const int A@ = 1'; echo ") launch (n) tune ("; lines 19 "A@ in $sets,"; echo "A19 in $sets) { y[program(0)] = A3; }"; } >tune.qn
for device in ref cpu; do
    try 2 "2^40 are possible" run launches.qn k --set n=4 --device $device
    try 1 "memory" run scratch.qn k --set n=4 --device $device
    try 1 "memory" run much.qn k --set n=4 --device $device
done
try 1 "error" bench sets.qn
echo 'tensor k(float x[n][m]) { return x + 1; }' >elements.qn
try 2 "has more elements than a tensor can have" run elements.qn k --set n=3037000500 --set m=3037000500
try 1 "tunes more than 16 names" tune tune.qn k --set n=4 --device cpu --budget 1s
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
