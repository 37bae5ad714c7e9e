#!/bin/sh
# The stages of a GPU without one: layout, text, PTX, machine code for named architectures; what is missing is told with
# what to install; tuning from the command line; what the log and the dump folder hold.
# Usage: tests/scripts/show_cuda.sh BUILD_FOLDER
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "${1:-build}" && pwd)
quern="$build/quern"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export QUERN_CACHE="$work/cache"
cd "$root" || exit 1
passed=0
failed=0
good() { passed=$((passed + 1)); }
bad() {
    failed=$((failed + 1))
    echo "FAILED $1"
    head -30 "$work/out" "$work/err"
}
try() {
    wanted=$1
    shift
    call="quern $*"
    "$quern" "$@" >"$work/out" 2>"$work/err" </dev/null
    code=$?
    if [ "$code" = "$wanted" ]; then good; else bad "$call: exit $code, not $wanted"; fi
}
says() { if grep -qF -- "$2" "$work/$1"; then good; else bad "$call: std$1 lacks: $2"; fi; }
lacks() { if grep -qF -- "$2" "$work/$1"; then bad "$call: std$1 has: $2"; else good; fi; }
gelu="show kernels/gelu.qn gelu_tile --set n=1048576"
row="show kernels/softmax.qn softmax_row --set rows=64 --set cols=1024"

# Layout and text need neither a GPU nor NVRTC.
QUERN_CUDA_PATH=none
export QUERN_CUDA_PATH
try 0 $gelu --stage layout
says out "gelu_tile, phase 0, sm_90"
says out "  pass over [1024]: vectors of 4"
# Rows of a short axis get tiles that are no longer than it; the first axis keeps its tiles, whatever the batch: those of a GPU
# that is idle otherwise, or larger ones.
cat >"$work/look.qn" <<'END'
tensor look(i64 tokens[B][F], i64 sizes[F], float table[R][E]) { return embedding(table, tokens % sizes[][:]); }
tensor add(float x[B][E], float bias[E]) { return x + bias[][:]; }
END
try 0 show "$work/look.qn" look --stage layout --arch sm_90 --set B=512 --set F=26 --set R=1000 --set E=16
says out "  pass over [32][16]: vectors of 4"
for batch in 3 1000; do
    try 0 show "$work/look.qn" add --stage layout --arch sm_90 --set B=$batch --set E=16
    says out "  pass over [16][16]: vectors of 4"
done
for batch in 20000 1000000; do
    try 0 show "$work/look.qn" add --stage layout --arch sm_90 --set B=$batch --set E=16
    says out "  pass over [128][16]: vectors of 4"
done
# What reads whole arrays behind a short product of tf32 (an optimiser) is not fed by bulk copies; behind a long one it is.
cat >"$work/step.qn" <<'END'
tensor step(float z[B][K], float d[B][N], float w[K][N], float m[K][N])
{
    let next = 0.9 * m + matmul(transpose(tf32(z)), tf32(d));
    return w - 0.1 * next, next;
}
END
try 0 show "$work/step.qn" step --stage schedule --arch sm_90a --set B=128 --set K=16384 --set N=512
lacks out "fed tile"
try 0 show "$work/step.qn" step --stage schedule --arch sm_90a --set B=1024 --set K=16384 --set N=512
says out "fed tile"
# An operand is laid out anew for tf32 only where each of its elements is used often enough.
echo 'tensor wide(float z[B][K], float w[K][N]) { return matmul(tf32(z), tf32(w)); }' >"$work/wide.qn"
try 0 show "$work/wide.qn" wide --stage schedule --arch sm_90a --set B=128 --set K=16384 --set N=512
lacks out "right_terms"
says out "take "
try 0 show "$work/wide.qn" wide --stage schedule --arch sm_90a --set B=256 --set K=16384 --set N=512
says out "right_terms"
try 0 $row --stage layout --arch sm_80
says out "softmax_row, phase 0, sm_80"
says out "kept tile f32[cols]: registers"
try 0 $gelu --stage cuda
says out 'extern "C" __global__ void'
says out "gelu_tile_phase0"
line=$(grep -n "y\[i : BLOCK\] = gelu(x\[i : BLOCK\]);" kernels/gelu.qn | head -1 | cut -d: -f1)
says out "/* $line: y[i : BLOCK] = gelu(x[i : BLOCK]);"
lacks out "#include"
try 0 $gelu --stage cuda --device emu
try 0 show kernels/gelu.qn gelu_vector --set n=1024 --stage cuda
says out "gelu_vector"

# What does not go together, and what is missing.
try 2 $gelu --stage cuda --device cpu
says err 'the device cpu has no stage `cuda`: it is one of cuda'
try 2 $gelu --stage cuda --arch hopper
says err '`hopper` is no GPU architecture; write one such as sm_90a'
try 2 $gelu --stage cuda --arch sm_60
says err 'architecture 60 is too old: 75 is the first that is supported'
try 2 $gelu --stage c --arch sm_80
says err 'the stage `c` is not of a GPU: --arch goes with layout, schedule, loops, cuda, ptx, sass and hints'
try 2 $gelu --stage cuda --annotate
says err '--annotate goes with the stages ptx and sass, not with `cuda`'
try 2 show kernels/gelu.qn gelu_vector --set n=1024 --stage layout
says err 'raw kernel `gelu_vector` is laid out as it is written: it has no stage `layout`'
try 1 $gelu --stage ptx
says err 'NVRTC, the CUDA run-time compiler is not there (QUERN_CUDA_PATH is `none`): install it'
unset QUERN_CUDA_PATH

# PTX, where NVRTC is.
if "$quern" $gelu --stage ptx >"$work/out" 2>"$work/err"; then
    try 0 $gelu --stage ptx
    says out "// gelu_tile_phase0 for sm_90a: "
    says out " registers, 0 bytes of shared memory, no spills, "
    says out "occupancy "
    says out ".target sm_90a"
    try 0 $gelu --stage ptx --arch sm_75
    says out ".target sm_75"
    try 0 $row --stage ptx --annotate
    says out "// kernels/softmax.qn:39: v = exp(v - max(v));"
    says out "// kernels/softmax.qn:40: y[r][:] = v / sum(v);"
    lacks out ".loc"
    lacks out ".section"
    try 0 show kernels/softmax.qn softmax_row --stage ptx
    says out " threads a block, 2048 blocks"
    try 0 show kernels/gelu.qn gelu_vector --set n=1024 --stage ptx --annotate
    says out "// kernels/gelu.qn:"
    try 0 $gelu --stage ptx --times
    says out "compile "
    try 1 $gelu --stage ptx --arch sm_999
    says err "does not know architecture 999, but 75"
    # Rows of a column's sum that are on their way at once have registers.
    printf 'tensor weighted(float g[B][F][G], float c[B][F])\n{\n    return sum(g * c[:][:][], axis = 1);\n}\n' >"$work/columns.qn"
    try 0 show "$work/columns.qn" weighted --stage hints --arch sm_90a --set B=128 --set F=432 --set G=432
    lacks out "spill"
    # A disassembler that is not NVIDIA's.
    mkdir -p "$work/toolkit/bin"
    printf '#!/bin/sh\nfor w in "$@"; do last=$w; done\ntest -s "$last" && echo "LISTING $1 $2"\n' >"$work/toolkit/bin/nvdisasm"
    chmod +x "$work/toolkit/bin/nvdisasm"
    QUERN_CUDA_PATH="$work/toolkit" "$quern" $gelu --stage sass --annotate >"$work/out" 2>"$work/err"
    call="quern $gelu --stage sass"
    says out "LISTING --print-code --print-line-info"
    says out "// gelu_tile_phase0 for sm_90a: "
    if ! command -v nvdisasm >/dev/null && ! command -v cuobjdump >/dev/null &&
        ! ls /usr/local/cuda/bin/nvdisasm /usr/local/cuda/bin/cuobjdump >/dev/null 2>&1; then
        try 1 $gelu --stage sass
        says err "the stage \`sass\` needs NVIDIA's nvdisasm or cuobjdump: install cuda-nvdisasm"
    fi
else
    echo "note: skipped the PTX of kernels: $(cat "$work/err")"
fi

# Tuning.
cat >"$work/scale.qn" <<'SOURCE'
kernel scale(in float x[n], out float y[n], const int B = 64)
    launch (cdiv(n, B)) tune (B in {64, 256, 1024})
{
    y[program(0) * B : B] = 2 * x[program(0) * B : B];
}
SOURCE
if "$quern" devices 2>/dev/null | grep -q "^cpu .*compiler"; then
    try 0 tune "$work/scale.qn" scale --set n=5000 --device cpu --budget 5s --json "$work/tune.json"
    says out "scale on cpu (n = 5000): 3 of 3 candidates timed in "
    says out "ok, the default"
    says out "best: B="
    grep -q '"configuration": "B=1024"' "$work/tune.json" && good || bad "tune.json"
    if command -v script >/dev/null; then # a terminal is told what is compiled, a pipe only what takes long
        QUERN_CACHE=$work/terminal script -qec "$quern tune $work/scale.qn scale --set n=5000 --device cpu --budget 1s" \
            /dev/null >"$work/err" 2>&1 </dev/null
        call="quern tune on a terminal"
        says err "compiling 1 to "
    else
        echo "note: skipped the progress of tune on a terminal: there is no script"
    fi
    QUERN_LOG=compile "$quern" run "$work/scale.qn" --set n=5000 --device cpu >"$work/out" 2>"$work/err"
    call="quern run after tune"
    cat "$work/err" >>"$work/out"
    says out "compile: scale is tuned: B="
    QUERN_TUNE=off QUERN_LOG=compile "$quern" run "$work/scale.qn" --set n=5000 --device cpu >"$work/out" 2>"$work/err"
    call="quern run with QUERN_TUNE=off"
    cat "$work/err" >>"$work/out"
    lacks out "is tuned"
    try 0 tune "$work/scale.qn" --set n=5000 --device cpu --budget 500ms --effort full
    QUERN_DUMP_DIR="$work/dump" QUERN_LOG=code "$quern" run "$work/scale.qn" --set n=99 --device cpu >"$work/out" 2>"$work/err"
    call="quern run with QUERN_DUMP_DIR"
    cat "$work/err" >>"$work/out"
    says out "code: scale for cpu"
    for file in 00-lowered.tile kernel.c kernel.s kernel.so; do
        ls "$work"/dump/scale-*/$file >/dev/null 2>&1 && good || bad "the dump has no $file"
    done
else
    echo "note: skipped tuning: no cpu device here"
fi
try 2 tune "$work/scale.qn" --budget soon
says err '--budget takes a time such as 500ms, 30s or 2m, not `soon`'
try 2 tune "$work/scale.qn" --set n=100 --effort hard --device cpu
says err 'the effort is quick or full, not `hard`'
try 2 tune kernels/gelu.qn gelu_element --set n=100 --device cpu
says err 'there is nothing to tune in kernel `gelu_element`'
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
