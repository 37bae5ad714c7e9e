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
says() { holds "$call: std$1 lacks: $2: $(cat "$1")" grep -qF -- "$2" "$1"; }
cat >file.qn <<'QN'
kernel copy(in float x[n], out float y[n], const int B = 64)  launch (cdiv(n, B))
{
    y[program(0) * B : B] = x[program(0) * B : B];
}
kernel same(in T x[n][m], out T y[n][m])  launch (n) { y[program(0)][:] = x[program(0)][:]; }
tensor twice(i64 x[n]) { return 2 * x; }
kernel next(in i32 x[n], out i32 y[n])  launch (1) { y[:] = x[:] + 1; }
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
