#!/bin/sh
# Tensor functions through the command: run in every mode, gradients, check, show in every stage, pictures, mistakes.
# Usage: tests/scripts/tensor.sh BUILD_FOLDER
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "${1:-build}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
QUERN_CACHE="$work/cache"
export QUERN_CACHE
quern="$build/quern"
passed=0
failed=0
cd "$root" || exit 1
[ -x "$quern" ] || { echo "there is no $quern"; echo "0 passed, 1 failed"; exit 1; }

good() { passed=$((passed + 1)); }
bad()
{
    failed=$((failed + 1))
    echo "FAILED $1"
    [ -s "$work/out" ] && sed 's/^/  | /' "$work/out" | head -30
    [ -s "$work/err" ] && sed 's/^/  ! /' "$work/err" | head -30
}
# try STATUS WORDS...: quern WORDS exits with STATUS
try()
{
    wanted=$1
    shift
    "$quern" "$@" >"$work/out" 2>"$work/err"
    status=$?
    last="quern $*"
    if [ "$status" = "$wanted" ]; then good; else bad "$last: exit status $status, expected $wanted"; fi
}
says() { if grep -qF -e "$2" "$work/$1"; then good; else bad "$last: no \`$2\` in $1"; fi; }
silent() { if grep -qF -e "$2" "$work/$1"; then bad "$last: \`$2\` in $1"; else good; fi; }
# count N PATTERN: so many lines of out have it
count()
{
    found=$(grep -c -e "$2" "$work/out")
    if [ "$found" = "$1" ]; then good; else bad "$last: $found lines with \`$2\`, expected $1"; fi
}

cat >"$work/f.qn" <<'QN'
float gelu_by_hand(float x) { return 0.5 * x * (1 + tanh(0.7978845608 * (x + 0.044715 * x * x * x))); }
tensor pointwise(float x[n]) { return gelu_by_hand(x); }
tensor rows(float x[m][n]) { let e = exp(x - max(x, axis = 1)); return e / sum(e, axis = 1); }
tensor loss(float x[m][k], float w[k][n], float b[n]) { return mean(square(gelu(linear(x, w, b)))); }
tensor several(float x[n], float s = 2, const int TIMES = 3)
{
    let y = x;
    for (int i = 0; i < TIMES; i++) y = y * s;
    return y, sum(y);
}
kernel twice(in float x[n], out float y[n], const int BLOCK = 64) launch (cdiv(n, BLOCK))
{
    int i = program(0) * BLOCK;
    y[i : BLOCK] = 2 * x[i : BLOCK];
}
tensor around(float x[n]) { return twice(exp(x)) + 1; }
tensor dropped(float x[n]) { return dropout(x, 0.5); }
bench sizes (m = 48, n = 32) { rows, eager rows, strict rows, fma rows, tf32 rows }
bench mixed (n = 5000) { twice, around }
QN
f="$work/f.qn"

# run: every mode gives the same numbers, results have names, gradients too
for mode in fused strict eager; do
    try 0 run "$f" rows --set m=3 --set n=5 --device cpu --mode $mode --out result0="$work/$mode.npy"
    try 0 run "$f" rows --set m=3 --set n=5 --device ref --mode $mode
    says out 'result0: f32[3][5]  min 0.0202738  max 0.750346  mean 0.2'
done
last="the results of strict and eager"
if cmp -s "$work/strict.npy" "$work/eager.npy"; then good; else bad "$last differ"; fi
try 0 run "$f" several --set n=4 --set s=3 --set TIMES=2 --device cpu
says out 'result0: f32[4]'
says out 'result1: f32  '
try 0 run "$f" loss --set m=3 --set k=4 --set n=5 --backward --device cpu --time --agree
says out 'd_x: f32[3][4]'
says out 'd_w: f32[4][5]'
says out 'd_b: f32[5]'
says out 'agreement with ref: d_x differs by at most'
# The time of the compiler is not the kernel's, and ref runs only when asked.
try 0 run "$f" loss --set m=3 --set k=4 --set n=5 --device cpu --time --no-cache
last="compiling is told apart: $(tail -1 "$work/out")"
if awk '/^compile / { if ($2 > 5 && $2 > $(NF - 1)) good = 1 } /agreement/ { bad = 1 } END { exit !good || bad }' "$work/out"; then good; else bad "$last"; fi
try 0 run "$f" loss --set m=3 --set k=4 --set n=5 --device cpu --time
try 0 run "$f" loss --set m=3 --set k=4 --set n=5 --device cpu --time
says out '(from the cache), load '
try 0 run "$f" around --set n=5 --device cpu
try 0 run "$f" dropped --set n=5 --device cpu
if command -v c++ >/dev/null; then
    try 0 run "$f" rows --set m=3 --set n=5 --device emu
    says out 'result0: f32[3][5]  min 0.0202738  max 0.750346  mean 0.2'
fi
try 0 run "$f" rows --set m=3
says err 'n = 32, of its bench'
try 2 run "$f" several --set s=3 --set TIMES=2
says err '`n` is not given'
says err 'for example: --set n=16'
try 2 run "$f" rows --set m=3 --set n=5 --mode lazy
says err 'there is no mode `lazy`'
try 2 run "$f" twice --set n=5 --mode eager
says err '`twice` is a kernel: --mode is for tensor functions'
try 0 show "$f" 'tf32 loss' --backward --stage fusion --set m=3 --set k=4 --set n=5
says out 'boundary '
try 2 run "$f" rows --set m=3 --set n=5 --out y="$work/y.npy"
says err '`rows` has no output `y`'
try 2 run "$f" rows --set m=3 --set n=5 --set q=1
says err 'tensor function `rows` has no setting `q`'

# check: against the interpreter, with the gradient of what is one number
try 0 check "$f" rows
says out 'rows: clean, '
silent out 'grad(rows)'
try 0 check "$f" several --set n=7
says out 'several: clean, '
printf 'tensor square_sum(float x[n]) { return sum(x * x); }\n' >"$work/one.qn"
try 0 check "$work/one.qn"
says out 'square_sum: clean, '
says out 'grad(square_sum): clean, '

# bench: modes beside kernels, results compared with the outputs of kernels
try 1 bench "$f" --device cpu --seconds 0.02
says out 'strict rows'
says out 'eager rows'
says out 'fma rows'
says out 'tf32 rows'
says out 'around wrong: y['

# show: sizes of the bench unless given, every stage forward and backward
try 0 show "$f" rows
says out '// m = 48, of its bench'
count 1 '^kernel '
says out 'boundary'
says out "$f:3"
try 0 show "$f" rows --mode eager
count 5 '^kernel '
try 0 show "$f" pointwise --set n=100
count 1 '^kernel '
try 0 show "$f" rows --stage graph
says out 'reduce max %1 axes (1) : f32[48, 1] ; max '
try 0 show "$f" loss --stage memory --backward
says out 'workspace'
try 0 show "$f" loss --stage graph --backward
says out 'dot'
for stage in tile c cuda; do
    try 0 show "$f" rows --stage $stage
    silent out '// kernel 1'
    try 0 show "$f" loss --stage $stage --backward
    says out '// kernel 0: '
done
try 0 show "$f" rows --stage tile
cp "$work/out" "$work/rows.tile"
try 0 run "$work/rows.tile" --set n0=3 --set n1=5 --device cpu # a kernel that fusion wrote runs by itself
try 0 show "$f" around
says out 'twice'
try 0 show "$f" rows --why
try 0 show "$f" loss --backward --dot
cp "$work/out" "$work/loss.svg"
last="the picture"
if python3 -c "import sys, xml.dom.minidom as d; s = d.parse(sys.argv[1]); assert len(s.getElementsByTagName('rect')) > 10" \
    "$work/loss.svg" 2>"$work/err"; then good; else bad "$last is no SVG"; fi
says out 'class="kernel"'
try 2 show "$f" twice --stage fusion
says err '`twice` is a kernel: the stage `fusion` is one of tensor functions'
try 2 show "$f" twice --backward
try 2 show "$f" rows --stage fuzion
says err 'did you mean `fusion`?'
try 2 debug "$f" rows --set m=3 --set n=5
says err '`rows` is a tensor function: it has no programs to step through'

# a mistake that only shapes show is told with its place
printf 'tensor f(float x[m][n], float y[n][m]) { return x + y; }\n' >"$work/bad.qn"
try 1 run "$work/bad.qn" --set m=2 --set n=3
says err 'bad.qn:1:51: error E302: extents differ on axis 0: 2, 3'
try 0 run "$work/bad.qn" --set m=3 --set n=3

# the library: the operations as array code
try 0 show kernels/softmax.qn softmax_fused --set rows=64 --set cols=1000
count 1 '^kernel '
try 0 show kernels/gelu.qn gelu_fused --set n=1000
count 1 '^kernel '
try 0 show kernels/layernorm.qn layer_norm_fused --set rows=64 --set cols=1000
count 1 '^kernel '
try 0 show kernels/cross_entropy.qn row_loss --set B=64 --set V=1000
count 1 '^kernel '
try 0 show kernels/matmul.qn linear_gelu --set M=64 --set N=64 --set K=64
count 1 '^kernel '
try 0 show kernels/bias_act.qn bias_act_fused --set M=64 --set N=64
count 1 '^kernel '

# extents beyond 64 bits are refused: 3 times this scale is 2 in 64 bits
echo 'tensor enlarged(float x[1][1][3][3]) { return upsample_nearest2d(x, scale = 6148914691236517206); }' >"$work/enlarged.qn"
try 1 run "$work/enlarged.qn" enlarged --device ref
says err 'the last axes of [1, 1, 3, 3] cannot become [-1, -1]'

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
