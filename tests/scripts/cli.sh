#!/bin/sh
# The command: help, exit codes, exact texts, suggestions, .npy round trips, JSON, no colours in pipes.
# Usage: tests/scripts/cli.sh BUILD_FOLDER
# The texts are those of a machine without a GPU.
QUERN_CUDA_PATH=none
export QUERN_CUDA_PATH
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "${1:-build}" && pwd)
quern="$build/quern"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export QUERN_CACHE="$work/cache"
cd "$root" || exit 1
[ -x "$quern" ] || { echo "there is no $quern"; echo "0 passed, 1 failed"; exit 1; }
passed=0
failed=0

# try EXIT_CODE ARGUMENTS...: runs the command; its output is in $work/out and $work/err.
try() {
    wanted=$1
    shift
    call="quern $*"
    "$quern" "$@" >"$work/out" 2>"$work/err" </dev/null
    code=$?
    if [ "$code" = "$wanted" ]; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAILED $call: exit $code, not $wanted"
        cat "$work/out" "$work/err"
    fi
}
# says FILE TEXT: the last command's out or err holds this text.
says() {
    if grep -qF -- "$2" "$work/$1"; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAILED $call: std$1 lacks: $2"
        cat "$work/$1"
    fi
}
# is FILE TEXT: it is exactly this text.
is() {
    if [ "$(cat "$work/$1")" = "$2" ]; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAILED $call: std$1 is not: $2"
        cat "$work/$1"
    fi
}
# holds NAME: the command after it must succeed.
holds() {
    name=$1
    shift
    if "$@" >"$work/log" 2>&1; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAILED $name"
        cat "$work/log"
    fi
}
. "$root/tests/busy.sh"

# help
try 0 --help
says out "usage: quern COMMAND"
try 0 --version
is out "quern 0.1.0"
try 2
says err "usage: quern COMMAND"
for command in run check bench profile show debug fmt devices cache help; do
    try 0 $command --help
    says out "usage: quern $command"
    says out "examples:"
    cp "$work/out" "$work/help"
    try 0 help $command
    holds "help $command is $command --help" cmp "$work/out" "$work/help"
    try 0 --help
    says out "  $command"
done
try 0 show --help
says out "  tile "
says out "  c "

# wrong calls
try 2 bensh kernels/gelu.qn
is err 'quern: error: there is no command `bensh`; did you mean `quern bench`?'
try 2 frobnicate
is err 'quern: error: there is no command `frobnicate`; `quern help` lists them'
try 2 help bnech
is err 'quern: error: there is no command `bnech`; did you mean `quern bench`?'
try 2 run kernels/gelu.qn gelu_tile --sed 7
is err 'quern: error: `quern run` has no option --sed; did you mean --seed?'
try 2 run kernels/gelu.qn gelu_tile --set n=4 --set n=5
try 2 run kernels/gelu.qn --stage tile
is err 'quern: error: `quern run` has no option --stage; `quern run --help` lists its options'
try 2 run kernels/gelu.qn gelu_tile --seed
is err 'quern: error: --seed needs a value: --seed NUMBER'
try 2 run kernels/gelu.qn gelu_tile --seed seven
is err 'quern: error: --seed takes a whole number from 0, not `seven`'
try 2 run kernels/gelu.qn gelu_tile --time=3
is err 'quern: error: --time takes no value'
try 2 --device cpu
says err 'options come after a command'
try 2 run
says err 'usage: quern run FILE'
try 2 run kernels/gelu.qn gelu_tile more
is err 'quern: error: `quern run` does not know what to do with `more` (usage: quern run FILE [NAME] [options])'
try 2 run kernels/gelu.qn gelu_tyle
is err 'quern: error: kernels/gelu.qn has no kernel `gelu_tyle`; did you mean `gelu_tile`?'
try 2 run kernels/gelu.qn zzzzzz
says err 'kernels/gelu.qn has no kernel `zzzzzz`; it has these:'
says err '  gelu_tile(in float x[], out float y[], const int BLOCK)'
try 2 run kernels/gelu.qn
says err 'name one: quern run kernels/gelu.qn'
try 2 run kernels/none.qn
says err 'kernels/none.qn'
try 2 run kernels/gelu.qn gelu_tile --set n=10 --device vulkan
says err 'there is no device `vulkan`; `quern devices` lists those there are'
try 2 run kernels/gelu.qn gelu_tile --set n=10 --device reff
is err 'quern: error: there is no device `reff`; did you mean `ref`?'
try 2 run kernels/gelu.qn gelu_tile --set n
is err 'quern: error: --set takes NAME=VALUE, not `n`'
try 2 run kernels/gelu.qn gelu_tile --set n=10 --set BLOK=4
says err 'E505'
says err 'BLOCK'
try 2 run kernels/gelu.qn gelu_tile --device ref
says err 'E505'
says err '--set n='
try 2 run kernels/attention.qn attention --device ref
says err 'for example: --set D=16'
says err '--set scale=16'
try 2 check kernels/gelu.qn --set m=3
says err 'E505'
try 2 check kernels/gelu.qn gelu_tyle
says err 'did you mean `gelu_tile`?'
try 2 run kernels/gelu.qn gelu_tile --set n=10 --out z=a.npy
says err '`gelu_tile` has no output `z`'
try 2 run kernels/gelu.qn gelu_tile --in x=none.npy
says err 'none.npy'
try 2 show kernels/gelu.qn gelu_tile --stage tyle
is err 'quern: error: there is no stage `tyle`; did you mean `tile`?'
try 2 cache lst
is err 'quern: error: `quern cache` knows list and clear, not `lst`; did you mean `list`?'
try 2 bench kernels/gelu.qn geluu
is err 'quern: error: kernels/gelu.qn has no bench `geluu`; did you mean `gelu`?'
try 2 fmt --check --write kernels/gelu.qn
says err 'contradict'

# run: .npy out and in again gives the same numbers; ref and cpu agree on the shape
try 0 run kernels/gelu.qn gelu_tile --set n=1001 --device ref --seed 7 --out y="$work/y.npy"
is out "y: written to $work/y.npy"
try 0 run kernels/square.qn square_multiply --in x="$work/y.npy" --device ref --out y="$work/z.npy"
try 0 run kernels/square.qn square_multiply --in x="$work/y.npy" --device ref
says out 'y: f32[1001]  min '
try 0 run kernels/gelu.qn gelu_tile --set n=1001 --device ref --seed 7 --out y="$work/y2.npy"
holds "the same seed gives the same numbers" cmp "$work/y.npy" "$work/y2.npy"
try 0 run kernels/gelu.qn gelu_tile --set n=1001 --device ref --seed 8 --out y="$work/y3.npy"
holds "another seed gives others" sh -c "! cmp -s '$work/y.npy' '$work/y3.npy'"
holds "square of a file" python3 - "$work/y.npy" "$work/z.npy" <<'PYTHON'
import struct, sys
def read(path):
    data = open(path, "rb").read()
    assert data[:6] == b"\x93NUMPY", data[:6]
    size = struct.unpack("<H", data[8:10])[0] if data[6] == 1 else struct.unpack("<I", data[8:12])[0]
    start = (10 if data[6] == 1 else 12) + size
    head = eval(data[start - size:start])
    assert head == {"descr": "<f4", "fortran_order": False, "shape": (1001,)}, head
    return struct.unpack("<1001f", data[start:])
x, y = read(sys.argv[1]), read(sys.argv[2])
assert any(v != 0 for v in x)
assert all(abs(a * a - b) <= 1e-6 * abs(b) for a, b in zip(x, y))
PYTHON
# a Fortran-order file is a permuted view: a copy of it is a transpose
python3 - "$work/f.npy" <<'PYTHON'
import struct, sys
head = b"{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }"
head += b" " * (63 - (10 + len(head)) % 64) + b"\n"
open(sys.argv[1], "wb").write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + struct.pack("<6f", 0, 1, 2, 3, 4, 5))
PYTHON
try 0 run kernels/transpose.qn copy --in x="$work/f.npy" --device ref
says out 'y: f32[2][3]  min 0  max 5  mean 2.5'
says out '  0 2 4 1 3 5'
try 0 run kernels/sum.qn sum_tree --set n=5 --device ref
says out 'y: f32  min '
try 0 run kernels/gelu.qn gelu_tile --set n=0 --device ref
says out 'y: f32[0]  empty'
try 0 run kernels/add.qn add --set n=12 --set T=bf16 --device ref --time
says out 'c: bf16[12]'
says out 'kernel '

# a tile IR dump goes back in
try 0 show kernels/gelu.qn gelu_tile --stage tile
cp "$work/out" "$work/gelu.tile"
try 0 run "$work/gelu.tile" --set n=1001 --device ref --seed 7 --out y="$work/y4.npy"
holds "the dump computes the same" cmp "$work/y.npy" "$work/y4.npy"

# findings
cat >"$work/wrong.qn" <<'QN'
kernel half(in float x[n], out float y[n]) launch (n / 2)
{
    y[program(0)] = x[program(0)];
}
QN
try 1 run "$work/wrong.qn" --set n=7 --device ref
says err 'R703'
try 1 check "$work/wrong.qn"
says out 'R703'
printf 'kernel broken(in float x[n]' >"$work/broken.qn"
try 1 run "$work/broken.qn"
says err 'error E1'
try 1 check "$work/broken.qn"
try 0 check kernels/sum.qn sum_tree

# notes: what was done otherwise than asked
sum="run kernels/sum.qn sum_tree --set n=5"
QUERN_CACHE=/dev/null/none try 0 $sum --device cpu
says err 'quern: note: the cache folder /dev/null/none cannot be written: compiled kernels are not kept'
QUERN_CACHE=/dev/null/none try 0 cache list
is out 'the cache folder /dev/null/none cannot be written: compiled kernels are not kept'
QUERN_CC=$work/none/cc try 0 $sum
says err "quern: note: \`$work/none/cc\` of \$QUERN_CC cannot be run and was not used"
QUERN_CC=$work/none/cc try 0 devices
says out "\`$work/none/cc\` of \$QUERN_CC cannot be run"
QUERN_CC=false try 1 $sum --no-cache
says err 'the compiler failed and printed nothing; it was run as'
says err 'with exit status 1'
QUERN_CC=true try 1 $sum --no-cache
says err 'the compiler made no file and printed nothing'
mkdir "$work/bare"
unset_path() { (PATH="$work/bare"; unset CC QUERN_CC; "$quern" "$@"); }
for call in "$sum" "check kernels/sum.qn sum_tree --set n=5" "bench kernels/sum.qn --set n=50 --seconds 0.01"; do
    unset_path $call >"$work/out" 2>"$work/err"
    says err 'quern: note: the device cpu is not there, ref is used (no C compiler'
done

# what this version does not run, and whose warnings are shown
cat >"$work/later.qn" <<'QN'
tensor twice(float x[n]) { return 2 * x; }
float half(float x) { int idle = 3; return x / 2; }
kernel clean(in float x[n], out float y[n]) launch (1) { y[:] = x[:]; }
kernel halves(in float x[n], out float y[n]) launch (1) { y[:] = half(x[:]); }
kernel sloppy(in float x[n], out float y[n]) launch (1) { int unused = 1; y[:] = x[:]; }
cuda gpu(in float x[n], out float y[n]) launch (1) block (1)
"""
"""
c broken(in float x[n], out float y[n])
"""
void broken(const float *x, float *y, long n)
{
    y[0] = nowhere;
}
"""
c some(in float x[n], out float y[n])
"""
void some(const float *x, float *y, long n) { y[0] = x[0]; }
"""
QN
try 2 debug "$work/later.qn" twice --set n=5
says err '`twice` is a tensor function: it has no programs to step through'
try 1 run "$work/later.qn" gpu --set n=5 --device cpu
says err 'raw kernel `gpu` is cuda text and runs on the devices cuda and emu, not on cpu'
try 0 bench kernels/square.qn square --device cpu --set n=1000 --seconds 0.01 --json "$work/raw.json"
says out 'skipped, raw text of other devices: square_thread, square_vector'
holds "skipped variants are in the JSON" grep -q '"skipped"' "$work/raw.json"
try 0 run kernels/square.qn square_multiply --device cpu --set n=100 --keep "$work/kept" --verbose
says err 'compile: square_multiply'
says err 'square_multiply_phase0'
holds "what was compiled is kept" sh -c "test -s '$work'/kept/square_multiply-*/kernel.c -a -s '$work'/kept/square_multiply-*/kernel.so"
if command -v c++ >/dev/null; then
    try 0 run kernels/square.qn square_blocks --device emu --set rows=20 --set cols=30 --agree --keep "$work/kept" --verbose
    says out 'y: f32[20][30]'
    says out 'agreement with ref: not compared, a raw kernel has no tile IR'
    says err 'square_blocks<16>((const float *)frame.words[0]'
    holds "the raw kernel is kept" sh -c "grep -q square_blocks '$work'/kept/square_blocks-*/kernel.cu"
    try 1 run "$work/later.qn" gpu --set n=5 --device emu
    says err 'error E508: the text of `cuda gpu` defines no function gpu'
fi
try 1 run "$work/later.qn" broken --set n=5
says err "$work/later.qn:13:12: error:"
try 0 run "$work/later.qn" clean --set n=5
is err ''
try 0 run "$work/later.qn" halves --set n=5
says err '`idle` is never used'
holds "no warning of another kernel" sh -c "! grep -q unused '$work/err'"
try 0 check "$work/later.qn" clean
is err ''
try 0 check "$work/later.qn"
says err '`unused` is never used'
says err '`idle` is never used'
says out 'twice: clean, '
says out 'gpu: skipped, a raw kernel is compared with the first variant of its bench'
# outputs that nothing wrote are zeros
try 0 run "$work/later.qn" some --set n=50000 --seed 3 --out y="$work/some.npy"
holds "zeros" python3 -c "import sys; d = open('$work/some.npy', 'rb').read()[-4 * 49999:]; assert not any(d)"
printf 'kernel k(out float y[n]) launch (1) { y[:] = 1; }\nbench b (n = 3) on gpu (n = 4) { k }\n' >"$work/on.qn"
try 1 check "$work/on.qn"
says err 'error E218: unknown device `gpu`'
says err 'devices are ref, cpu, cuda, emu'

# f4 and f8 files for narrower parameters: rounded to nearest even
python3 - "$work" <<'PYTHON'
import struct, sys
def write(name, kind, numbers):
    head = ("{'descr': '<%s', 'fortran_order': False, 'shape': (%d,), }" % (kind, len(numbers))).encode()
    head += b" " * (63 - (10 + len(head)) % 64) + b"\n"
    data = struct.pack("<%d%s" % (len(numbers), "f" if kind == "f4" else "d"), *numbers)
    open(sys.argv[1] + "/" + name, "wb").write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + data)
# 1 + 2^-8 and 1 + 3 * 2^-8 lie half-way between two bfloats
write("f4.npy", "f4", [1 + 2**-8, 1 + 3 * 2**-8, -3.0, 0.0, 2.0**-133, 5e30])
# half-way between two halves, one of them just above it, the least subnormal, half of it, too large
write("f8.npy", "f8", [1 + 2**-11, 1 + 2**-11 + 2**-40, 2.0**-24, 2.0**-25, 65504.0, 65520.0])
PYTHON
cat >"$work/same.qn" <<'QN'
kernel same(in T x[n], out T y[n]) launch (1) { y[:] = x[:]; }
kernel half(in f16 x[n], out f16 y[n]) launch (1) { y[:] = x[:]; }
QN
try 0 run "$work/same.qn" same --in x="$work/f4.npy" --set T=bf16 --device ref
is err "quern: note: x: f32 of $work/f4.npy rounded to bf16"
says out '  1 1.01562 -3 0 9.18355e-41 4.99137e+30'
try 0 run "$work/same.qn" half --in x="$work/f8.npy" --device cpu
is err "quern: note: x: f64 of $work/f8.npy rounded to f16"
says out '  1 1.00098 5.96046e-08 0 65504 inf'
try 0 run "$work/same.qn" same --in x="$work/f4.npy" --device ref
is err ''

# fmt
printf '/* a\r\n b\r\n*/\r\nkernel k(out float y[n])\r\n    launch (1)\r\n{\r\n    y[:] = 1;\r\n}\r\n' >"$work/dos.qn"
try 0 fmt "$work/dos.qn"
holds "no carriage returns" sh -c "! grep -q \"\$(printf '\\r')\" '$work/out'"
printf 'kernel   k( in float x[n],out float y[n] )launch(1){y[:]=x[:];} // copy\n' >"$work/ugly.qn"
try 1 fmt --check "$work/ugly.qn"
is out "$work/ugly.qn"
try 0 fmt "$work/ugly.qn"
cp "$work/out" "$work/pretty.qn"
says out '// copy'
try 0 fmt --check "$work/pretty.qn"
try 0 fmt --write "$work/ugly.qn"
holds "--write writes what fmt prints" cmp "$work/ugly.qn" "$work/pretty.qn"
try 0 fmt --check kernels/*.qn
try 1 fmt "$work/broken.qn"
try 2 fmt "$work/none.qn"

# debug from a script
printf 'break 3\ncontinue\nquit\n' >"$work/commands"
try 0 debug "$work/wrong.qn" --set n=7 --script "$work/commands"
says out 'continue'
try 2 debug "$work/wrong.qn" --set n=7 --script "$work/none"
printf 'print r + 1\nquit\n' >"$work/commands"
try 0 debug kernels/softmax.qn softmax_online --set rows=2 --set cols=5 --script "$work/commands"
says out 'expressions are not supported'
# the example of its help, as it is written there
mkdir "$work/example"
ln -s "$root/kernels" "$work/example/kernels"
"$quern" debug --help | sed -n '/^examples:/,$s/^  \(printf .*\|quern .*--script.*\)$/\1/p' >"$work/example/commands.sh"
holds "debug's example" sh -c "cd '$work/example' && [ \$(wc -l <commands.sh) = 2 ] && PATH='$build':\$PATH sh -e commands.sh >out"
holds "debug's example prints m" sh -c "[ \$(grep -c '^m = ' '$work/example/out') = 2 ]" 

# devices and cache
try 0 devices
says out 'ref '
says out 'cpu '
try 0 cache list
try 0 cache clear
says out 'removed '

# no colours in pipes, NO_COLOR or not
holds "no escape codes" sh -c "! grep -q \"\$(printf '\033')\" '$work/out' '$work/err'"
"$quern" run kernels/gelu.qn nothing 2>"$work/err"
holds "no escape codes in errors" sh -c "! grep -q \"\$(printf '\033')\" '$work/err'"

# on a terminal there are colours, unless NO_COLOR says no
holds "colours on a terminal" python3 - "$quern" <<'PYTHON'
import os, pty, sys
def output(**more):
    try:
        pid, terminal = pty.fork()
    except OSError:
        sys.exit(0)  # a machine without terminals has no colours to look at
    if pid == 0:
        environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
        environment.update({"TERM": "xterm", **more})
        os.execve(sys.argv[1], ["quern", "bensh"], environment)
    text = b""
    while True:
        try:
            block = os.read(terminal, 4096)
        except OSError:
            break
        if not block:
            break
        text += block
    os.waitpid(pid, 0)
    return text
assert b"\033[" in output(), output()
assert b"\033[" not in output(NO_COLOR="1"), output(NO_COLOR="1")
assert b"\033[" not in output(TERM="dumb"), output(TERM="dumb")
PYTHON

# the help is quick: 20 starts well under a second
start=$(date +%s%N)
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do "$quern" --help >/dev/null; done
each=$((($(date +%s%N) - start) / 20000))
echo "note: quern --help takes $each us"
grep -q __asan_init "$quern" || quick "quern --help under 10 ms" [ "$each" -lt 10000 ] # sanitized builds start slowly

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
