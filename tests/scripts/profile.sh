#!/bin/sh
# profile: a kernel and programs from outside; every form of table and file; what can go wrong with options, programs,
# paths and disks: clear words, and nothing half-written under a final name.
# Usage: tests/scripts/profile.sh BUILD_FOLDER
# The texts are those of a machine without a GPU.
QUERN_CUDA_PATH=none
export QUERN_CUDA_PATH
. "$(dirname "$0")/../holds.sh"
export TMPDIR="$work"
# profile EXIT_CODE ARGUMENTS...
profile() {
    wanted=$1
    shift
    "$quern" profile "$@" >"$work/out" 2>"$work/err"
    code=$?
    holds "quern profile $*: exit $code, not $wanted: $(cat "$work/out" "$work/err")" [ "$code" = "$wanted" ]
}
says() { holds "std$1 lacks: $2: $(cat "$work/$1")" grep -qF -- "$2" "$work/$1"; }
silent() { holds "std$1 has: $2" sh -c '! grep -qF -- "$1" "$2"' - "$2" "$work/$1"; }
# Nothing but these files in the folder of outputs.
only() { holds "files are: $(ls "$work/files")" [ "$(ls "$work/files" | tr '\n' ' ')" = "$1" ]; }
mkdir "$work/files"
cd "$work/files" || exit 1
gelu="$root/kernels/gelu.qn"
run="run $gelu gelu_tile --set n=1000 --device cpu"

# A kernel and a tensor function, here.
profile 0 "$gelu" gelu_tile --set n=1000 --device cpu --runs 5 --trace a.json.gz --folded a.folded --csv a.csv --json b.json
says out "gelu_tile"
says out "Self CPU %"
says out "Self CPU time total: "
says out "Self device time total: "
holds "five calls: $(cat a.csv)" grep -q '^gelu_tile,.*,5,' a.csv
holds "gzip can read the trace" gzip -t a.json.gz
holds "the trace has the kernel" sh -c 'gzip -dc a.json.gz | grep -q "\"cat\":\"kernel\",\"name\":\"gelu_tile\""'
holds "five steps" sh -c '[ "$(gzip -dc a.json.gz | grep -c ProfilerStep#)" = 5 ]'
holds "stacks: $(cat a.folded)" grep -q '^main;gelu_tile [0-9]*$' a.folded
holds "JSON rows" grep -q '"name": "gelu_tile"' b.json
only "a.csv a.folded a.json.gz b.json "
profile 0 "$root/kernels/softmax.qn" softmax_fused --set rows=8 --set cols=100 --device cpu --by kernel --memory
says out "max_sub_exp_sum_div"
says out "memory of the host: at most"
profile 0 "$gelu" gelu_tile --set n=1000 --device cpu --schedule 1,1,2,2 --by range --format csv
holds "four steps are kept: $(cat "$work/out")" grep -q '^step,.*,4,' "$work/out"
silent out "hints"
profile 0 "$gelu" gelu_tile --set n=1000 --device cpu --format markdown --rows 1
says out "| Name | Self CPU % |"
profile 0 "$gelu" gelu_tile --set n=1000 --device cpu --format json
holds "JSON" sh -c 'head -c 1 "$1" | grep -q "\["' - "$work/out"
profile 0 "$gelu" gelu_tile --set n=1000 --device cpu --tensorboard board
holds "TensorBoard's name: $(ls board)" sh -c 'ls board | grep -q "^[^.]*_[0-9]*\.[0-9]*\.pt\.trace\.json$"'
rm -r board a.csv a.folded a.json.gz b.json

# A program, from outside.
profile 0 --by kernel --trace p.json -- "$quern" $run
says out "y: f32[1000]"
says out "gelu_tile"
holds "a whole trace" sh -c 'tail -c 3 p.json | grep -q "}"'
only "p.json "
rm p.json
profile 0 --trace 'of a, %p.json' -- "$quern" $run
only "of a, %p.json "
rm -- *.json
profile 3 -- sh -c "'$quern' $run; exit 3"
says out "gelu_tile"
profile 0 -- "$quern" devices --device cpu
says err "launched no kernel while it was profiled"
QUERN_PROFILE="table=$work/files/own.txt,by=kernel" "$quern" $run >/dev/null 2>&1
holds "QUERN_PROFILE alone" grep -q '^gelu_tile ' own.txt
rm own.txt

# What can go wrong.
profile 1 --trace p.json -- true
says err "ended without opening a context of Quern"
profile 2 -- ./no-such-program
says err "cannot run ./no-such-program: No such file or directory"
(
    while [ ! -s "$work/pid" ]; do sleep 0.1; done
    sleep 0.5
    kill -9 "$(cat "$work/pid")"
) &
profile 137 --trace p.json --folded p.folded -- sh -c "echo \$\$ >'$work/pid'; exec '$quern' run '$gelu' gelu_tile --set 'n=1<<24' --device ref"
says err "was ended by signal 9 (Killed) before its profile was written; nothing of it is left"
profile 2 --trace "$work/no/such/folder/p.json" -- true
says err "cannot write $work/no/such/folder/p.json: No such file or directory"
profile 2 --trace "$work/no/such/folder/p.json" "$gelu" gelu_tile --set n=1000 --device cpu
says err "cannot write $work/no/such/folder/p.json"
profile 2 --trace /dev/full "$gelu" gelu_tile --set n=1000 --device cpu
says err "cannot write /dev/full: No space left on device; nothing is left there"
says out "gelu_tile"
profile 1 --trace /dev/full -- "$quern" $run
says err "cannot write /dev/full: No space left on device"
profile 2 --sort self_cpuu "$gelu" gelu_tile --set n=1000 --device cpu
says err "did you mean \`self_cpu\`?"
profile 2 --by rows -- true
says err "it is one of op, shape, kernel, range"
profile 2 --schedule 1,2 "$gelu" gelu_tile --set n=1000
says err "--schedule takes steps as W,U,A or W,U,A,R"
profile 2 "$gelu" -- true
says err "a program stands after --"
profile 2 --trace a.json --tensorboard b -- true
says err "give trace= or tensorboard=, not both"
QUERN_PROFILE="trase=x" "$quern" $run >"$work/out" 2>"$work/err"
holds "wrong words in the environment: exit $?" grep -q 'QUERN_PROFILE: .*did you mean `trace`' "$work/err"
rmdir b 2>/dev/null
only ""
holds "no folder of ours is left: $(ls "$work")" sh -c '! ls "$1" | grep -q quern-profile' - "$work"

# Interrupted: what ran until then is written, and the program ends as it would have.
cat >"$work/long.sh" <<SH
"$quern" run "$gelu" gelu_tile --set n='1<<24' --device ref & child=\$!
sleep 1
kill -INT \$child
wait \$child
SH
QUERN_PROFILE="table=$work/files/cut.txt,trace=$work/files/cut.json" bash -m "$work/long.sh" >/dev/null 2>&1
holds "what ran until the signal: $(ls)" sh -c 'tail -c 3 cut.json | grep -q "}" && grep -q "Self CPU time total" cut.txt'
only "cut.json cut.txt "
rm cut.json cut.txt
cat >"$work/here.sh" <<SH
"$quern" profile "$gelu" gelu_tile --set n='1<<16' --device ref --runs 4096 --trace here.json >"$work/out" 2>"$work/err" & child=\$!
sleep 1
kill -INT \$child
wait \$child
SH
bash -m "$work/here.sh" >/dev/null 2>&1
says err "interrupted: the profile is of what ran until then"
says out "gelu_tile"
only "here.json "

# Ceilings that were measured and kept give the share of the roofline and what bounds a kernel.
profile 0 "$gelu" gelu_tile --set n='1<<16' --device cpu --by kernel
silent out "% of roofline"
holds "devices --measure" "$quern" devices --measure --device cpu
profile 0 "$gelu" gelu_tile --set n='1<<22' --device cpu --by kernel
says out "% of roofline"
holds "a share of the roofline and its bound" grep -qE '^gelu_tile .* [0-9.]+%  (memory|compute) ' "$work/out"

# Operations are those that were asked for, whatever tiles and padding a kernel computes with.
echo 'tensor conv(float x[N][C][H][W], float w[O][C][3][3]) { return conv2d(x, w, padding = 1); }
tensor product(float a[M][K], float b[K][N]) { return a @ b; }' >"$work/odd.qn"
profile 0 "$work/odd.qn" conv --set N=2 --set C=3 --set H=40 --set W=70 --set O=5 --device cpu --runs 1 --by kernel --format json
says out '"flops": 1512000'
profile 0 "$work/odd.qn" product --set M=33 --set K=70 --set N=47 --device cpu --runs 1 --by kernel --format json
says out '"flops": 217140'

finish
