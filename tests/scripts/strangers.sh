#!/bin/sh
# What people type in their first hour who know other tools: commands and options of theirs get advice, words in the wrong
# place are put right, files that are not there have a neighbour, arrays come and go as text and in NumPy's types.
# Usage: tests/scripts/strangers.sh BUILD_FOLDER
QUERN_CUDA_PATH=none
export QUERN_CUDA_PATH
. "$(dirname "$0")/../holds.sh"
cd "$work" || exit 1
# try EXIT_CODE ARGUMENTS...
try() {
    wanted=$1
    shift
    call="quern $*"
    "$quern" "$@" >out 2>err </dev/null
    code=$?
    holds "$call: exit $code, not $wanted: $(cat out err)" [ "$code" = "$wanted" ]
}
says() { holds "$call: $1 lacks: $2: $(cat "$1")" grep -qF -- "$2" "$1"; }
cat >file.qn <<'QN'
kernel copy(in float x[n], out float y[n], const int B = 64)  launch (cdiv(n, B))
{
    y[program(0) * B : B] = x[program(0) * B : B];
}
kernel same(in T x[n][m], out T y[n][m])  launch (n) { y[program(0)][:] = x[program(0)][:]; }
tensor twice(i64 x[n]) { return 2 * x; }
kernel next(in i32 x[n], out i32 y[n])  launch (1) { y[:] = x[:] + 1; }
bench copies (n = 1000) { copy }
QN

# Commands and options of others.
while IFS='|' read -r words advice; do
    try 2 $words
    says err "$advice"
done <<'END'
file.qn|a command comes first: quern run file.qn
compile file.qn|`quern run FILE NAME` does what is needed
test file.qn|`quern check FILE` is that
benchmark file.qn|`quern bench FILE` is that
ncu ./program|`quern profile -- ./program` is that
ls|`quern show FILE` lists what a file holds
docs softmax|docs/ has the pages
run copy file.qn|the file comes first: quern run file.qn copy
run file.qn copy n=5|`n=5` needs an option before it: --set n=5
run file.qn copy x=a.npy|`x=a.npy` needs an option before it: --in x=a.npy
run file.qn copy --set n 5|--set takes NAME=VALUE, not `n`: --set n=5
run file.qn copy --in a.npy|--in takes NAME=FILE, not `a.npy`
run file.qn copy --n 5|a size is set by its name: --set n=1000
run file.qn --kernel copy|the name stands after the file
run file.qn copy --gpu|--device cuda is that
run file.qn copy --dtype half|a generic type is set by its name: --set T=bf16
bench file.qn --repeat 9|--seconds bounds it
run file.q copy|cannot open file.q: No such file or directory; did you mean file.qn?
show fiel.qn copy|did you mean file.qn?
run file.qn copy --set n=5,B=8|--set takes one NAME=VALUE, not `n=5,B=8`: --set n=5 --set B=8
run file.qn copy --set n=1k|a thousand is 1000 or 1 << 10
run file.qn copy --set n=1_000|write the digits without `_`
run file.qn copy --set n=4 --out y=y.pt|--out writes .npy files, and text as .csv, .tsv or .txt, not .pt: --out y=y.npy
bench file.qn copy|has no bench `copy`; the kernel is timed in the bench `copies`
bench file.qn --report a.pdf|--report a.pdf would be HTML: name it results.html
bench file.qn --json a.csv|--json a.csv would be JSON: name it results.json
bench file.qn --csv a.xlsx|--csv a.xlsx would be CSV: name it results.csv
show file.qn copy --stage assembly|`asm` is that of a processor, `sass` of a GPU
show file.qn copy --stage llvm|there is no LLVM in between
show file.qn copy --stage ttir|`tile` is the IR of a kernel
devices cpu|`cpu` needs an option before it: --device cpu
cache rm|`quern cache clear` is that
cache du|`quern cache list` is that
-h nothing|there is no command `nothing`
predict nothere|there is no checkpoint in nothere
END
holds "nothing is written where nothing is predicted" [ ! -s out ]
echo "import torch" >model.py
try 1 run model.py
says err "from Python, \`import quern\`"
try 0 --help run
says out "usage: quern run"
try 0 run file.qn copy --set "n = 5" --device CPU
says out "y: f32[5]"
try 0 check file.qn copy --device=Cpu
says out "cases on ref, cpu"
for name in "tf32 twice" "fma twice"; do
    try 0 check file.qn "$name" --set n=4 --device ref --no-emu
done
try 0 show file.qn copy --stage cuda --arch sm90 --set n=64
export QUERN_CACHE_LIMIT=lots QUERN_COMPILE_LIMIT=5s
try 0 run file.qn copy --set n=4
says err "QUERN_CACHE_LIMIT=lots is not a size such as 512M or 2G, and was not followed"
says err "QUERN_COMPILE_LIMIT=5s is not a number of seconds, 0 for no limit, and was not followed"
export QUERN_CACHE_LIMIT=2GB QUERN_COMPILE_LIMIT=-1 QUERN_TUNE=never QUERN_CODECS=zlib QUERN_PROFILE_DEVICE="events none"
try 0 run file.qn copy --set n=4
for said in "CACHE_LIMIT=2GB is not a size" "COMPILE_LIMIT=-1 is not a number" "TUNE=never is none of the words that it knows (off on), and was not followed" \
    "CODECS=zlib is none" "PROFILE_DEVICE=events none is none"; do
    says err "QUERN_$said"
done
# What is said to be followed is, and the other way round.
export QUERN_CACHE_LIMIT=1.5g QUERN_COMPILE_LIMIT=1e-9
unset QUERN_TUNE QUERN_CODECS QUERN_PROFILE_DEVICE
try 1 run file.qn copy --set n=5 --device cpu --no-cache
says err "had not finished after 1e-09 s"
holds "no number that was followed is said not to be: $(cat err)" sh -c "! grep -q 'was not followed' err"
unset QUERN_CACHE_LIMIT QUERN_COMPILE_LIMIT
for folder in file.qn /dev/null file.qn/inside; do
    try 2 run file.qn copy --set n=4 --device ref --keep "$folder"
    says err "cannot make the folder ${folder%/inside}"
done
try 0 profile file.qn twice --set n=100
holds "nothing is compiled while a function is profiled: $(cat out)" sh -c "! grep -q 'compile kernels' out"

# Text with holes: a number that is missing does not move the ones behind it.
for words in '1,,2' ',1' ';1;2' '1,2,,' '1, ,2'; do
    echo "$words" >holes.csv
    try 2 run file.qn copy --in x=holes.csv --device ref
    says err "holes.csv:1: a field is empty: write nan for a number that is missing"
done
printf '1\t\t2\n' >holes.tsv
try 2 run file.qn copy --in x=holes.tsv --device ref
says err "holes.tsv:1: a field is empty"
for words in '1,2,' '1 ,  2' '1;2' ' 1  2 ' '1,2 # two'; do
    echo "$words" >whole.csv
    try 0 run file.qn copy --in x=whole.csv --device ref
    says out "y: f32[2]  min 1  max 2"
done
printf '1,2\0,3\n' >holes.csv
try 2 run file.qn copy --in x=holes.csv --device ref
says err "it has bytes that are 0, so it is no text"

# Programs as users of PyTorch, Triton, CUDA, NumPy, JAX, C, OpenCL, Julia, Halide, Rust and Metal would begin them: one look at
# the message says what to write, and where.
while IFS='~' read -r program advice; do
    printf '%s\n' "$program" >foreign.qn
    try 1 check foreign.qn --no-emu
    cat out err >both
    says both "$advice"
    holds "a caret for: $program" grep -qE '^ *\^~*$' both
done <<'END'
def softmax(x): return x.exp()~a kernel is `kernel name(
tensor f(float x[n][m]) { return x.softmax(dim=-1); }~functions are called by name: `softmax(x, ...)`
tensor f(float x[n][m]) { return torch.softmax(x, -1); }~write `softmax(...)`
tensor f(float x[n][m]) { return x.view(n * m); }~write `reshape(x, a, b)`
tensor f(float x[n][m]) { return x[:, 0]; }~one bracket for each axis
tensor f(float x[n][m]) { return F.relu(x); }~write `relu(...)`
tensor f(Tensor x) { return x * 2; }~a tensor is its element type and its extents
tensor f(float x[n]) { if x > 0: return x }~a condition is in parentheses
@triton.jit~there are no decorators
kernel f(in float x[n], out float y[n], constexpr int B = 64) launch (n) { }~write `const int N = 4;`
kernel f(in float x[n], out float y[n]) launch (n) { tile float v = load(x); }~read a slice
kernel f(in float x[n], out float y[n]) launch [n] { }~it is in parentheses: `launch (cdiv(n, BLOCK))`
__global__ void f(float *x) { }~CUDA as it is goes into
kernel f(float *x, int n) launch (n) { }~there are no pointers
kernel f(in float x[n], out float y[n]) <<<n, 256>>> { }~a launch counts programs
kernel f(in float x[n], out float y[n]) launch (n) { __shared__ float s[256]; }~a block of elements is a tile
kernel f(const float x[n], float y[n]) launch (n) { }~an array that is read is `in float x[n]`
kernel f(in float x[n], out float y[n]) launch (n) { __syncthreads(); }~a tile has no threads to wait for
kernel f(in float x[n], out float y[1]) launch (n) { atomicAdd(&y[0], x[0]); }~as in `atomic_add(y[i], v)`
tensor f(float x[n][m]) { return np.sum(x, axis=1); }~write `sum(...)`
tensor f(float x[n][m]) { return x.T; }~write `transpose(x)`
tensor f(float x[n][m], float y[m]) { return x + y; }~add an axis with `[]`
tensor f(float x[n]) { return x[::2]; }~every second of n elements is
tensor f(float x[n]) { return x[x > 0]; }~shapes do not depend on values
tensor f(float x[n]) { return x[1:]; }~a slice is `[start : length]`
tensor f(float x[n]) { return jnp.where(x > 0, x, 0); }~write `where(...)`
tensor f(float x[n]) { return jax.grad(f)(x); }~write `grad(...)`
tensor f(float x[n]) { return lambda y: y * 2; }~declare a function
tensor f(float x[n]) { return x.at[0].set(1); }~`where(arange(n) == k, v, x)` gives the array with another element
void f(float *x, int n) { for (int i = 0; i < n; i++) x[i] = 1; }~there are no pointers
#include <math.h>~there is no preprocessor
kernel f(in float x[n], out float y[n]) launch (1) { printf("%d", n); }~write `print("m = {}", m);`
kernel f(in float x[n], out float y[n]) launch (1) { return 0; }~results go to `out` arrays
struct point { float x; };~there are no structures
__kernel void f(__global float *x) { }~a kernel is `kernel name(
kernel f(in float x[n], out float y[n]) launch (n) { int i = get_global_id(0); }~its number is `program(0)`
kernel f(in float4 x[n], out float4 y[n]) launch (n) { }~there are no vector types
function f(x) return x end~a function of tensors is
tensor f(float x[n]) { return x .^ 2; }~operations are element by element as they are
kernel f(in float x[n], out float y[n]) launch (n) { y[end] = 1; }~the last element of `float x[n]` is `x[n - 1]`
Func blur; Var x, y;~how it is run is the compiler's business
kernel f(in float x[n], out float y[n]) launch (n) { y.vectorize(8); }~a slice is read in the widest pieces there are
kernel f(in float x[n], out float y[n]) launch (n) { let v: float = x[0]; }~the type comes first
fn f(x: f32) { x + 1.0 }~a function of tensors is
kernel f(device const float *x) launch (n) { }~there are no spaces of memory
kernel f(in float x[n], out float y[n]) launch (n) { auto v = x[0]; }~name the type
tensor f(float x[n][m]) { return x' * x; }~write `transpose(x)`
tensor f(float x[n][m]) { return layernorm(x); }~did you mean `layer_norm`?
tensor f(float x[n]) { return not (x > 0); }~write `!`
END

# Arrays as text, in and out.
printf '# a remark\n1, 2.5,nan\n\n3;4\t-inf\n' >a.csv
try 0 run file.qn same --in x=a.csv --device cpu --out y=b.csv
says out "y: written to b.csv"
printf '1,2.5,nan\n3,4,-inf\n' >wanted
holds "a table comes back: $(cat b.csv)" cmp b.csv wanted
try 0 run file.qn same --in x=b.csv --device cpu --set T=bf16 --out y=b.txt
printf '1 2.5 nan\n3 4 -inf\n' >wanted
holds "with blanks: $(cat b.txt)" cmp b.txt wanted
printf '0.1\n16777217\n-5e-324\n' >c.csv
try 0 run file.qn copy --in x=c.csv --device cpu --out y=d.csv
printf '0.100000001\n16777216\n-0\n' >wanted
holds "one column, as f32: $(cat d.csv)" cmp d.csv wanted
printf '9007199254740993\n' >w.csv
try 2 run file.qn copy --in x=w.csv --device cpu
says err "is a whole number of 2^53 or beyond"
while IFS='|' read -r text words; do
    printf "$text" >bad.csv
    try 2 run file.qn ${words%%:*} --in x=bad.csv --device cpu
    says err "${words#*:}"
done <<'END'
a,b\n1,2\n|same:bad.csv:1: `a` is not a number: take the line of names away, or put # before it
1,2\n3\n|same:bad.csv:2: 1 numbers, the lines before have 2
1,2\n3,4\n|copy:a parameter with one axis takes one line or one column
1.5\n|twice:x: 1.5 of bad.csv is no i64
3000000000\n|next:x: 3000000000 of bad.csv is no i32
END
holds "integers of text" sh -c "printf '7\n8\n' >e.csv && '$quern' run file.qn next --in x=e.csv --device cpu | grep -q '  8 9'"

# NumPy's types; what is no .npy file says what it is.
python3 - <<'PYTHON'
import struct
def write(name, kind, code, numbers):
    head = ("{'descr': '%s', 'fortran_order': False, 'shape': (%d,), }" % (kind, len(numbers))).encode()
    head += b" " * (63 - (10 + len(head)) % 64) + b"\n"
    open(name, "wb").write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + struct.pack("<%d%s" % (len(numbers), code), *numbers))
write("i8.npy", "<i8", "q", [1, -2, 1 << 40])
write("small.npy", "<i8", "q", [1, -2, 3])
write("u8.npy", "<u8", "Q", [1, (1 << 61) + 1])
write("f4.npy", "<f4", "f", [1.5])
open("z.npz", "wb").write(b"PK\3\4" + bytes(60))
PYTHON
try 0 run file.qn copy --in x=i8.npy --device cpu
says err "x: i64 of i8.npy as f32"
says out "  1 -2 1.09951e+12"
try 0 run file.qn next --in x=small.npy --device cpu
says out "  2 -1 4"
try 2 run file.qn next --in x=i8.npy --device cpu
says err "x: 1099511627776 of i8.npy is no i32"
try 0 run file.qn twice --in x=u8.npy --device cpu
says out "4611686018427387906" # no double holds it
try 2 run file.qn next --in x=f4.npy --device cpu
says err "E501"
try 2 run file.qn copy --in x=z.npz
says err "it is an archive (.npz, .pt): write one array with np.save"
finish
