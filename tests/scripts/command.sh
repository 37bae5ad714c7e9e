#!/bin/sh
# One way for all commands: `-` is a stream, JSON of check and devices, versions, `gpu`, sizes of the bench, QUERN_LOG to
# stderr with its words checked, a program that profile is given without `--`.
# Usage: tests/scripts/command.sh BUILD_FOLDER
QUERN_CUDA_PATH=none
export QUERN_CUDA_PATH
build=$(cd "${1:-build}" && pwd)
quern="$build/quern"
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export QUERN_CACHE="$work/cache"
cd "$work" || exit 1
passed=0
failed=0
# try EXIT ARGUMENTS...: stdin is file.qn; the output is in out and err.
try() {
    wanted=$1
    shift
    call="quern $*"
    "$quern" "$@" >out 2>err <file.qn
    code=$?
    if [ "$code" = "$wanted" ]; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAILED $call: exit $code, not $wanted"
        cat out err
    fi
}
says() {
    if grep -qF -- "$2" "$1"; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAILED $call: $1 lacks: $2"
        cat "$1"
    fi
}
cat >file.qn <<'END'
kernel copy(in float x[n], out float y[n], const int B = 64)  launch (cdiv(n, B)) { y[program(0) * B : B] = x[program(0) * B : B]; }
bench copy (n = 1 << 30) on cpu (n = 300) { copy }
END
for word in version --version -v; do
    try 0 $word
    says out "quern "
done
try 0 check - --no-emu
says out "copy: clean, "
try 0 check - --no-emu --json -
says out '"file": "<stdin>", "kernel": "copy", "status": "clean"'
says err "copy: clean, "
try 0 run - --device cpu
says out "y: f32[300]"
says err "n = 300, of its bench; others with --set"
try 0 run - --device cpu --set n=7
says out "y: f32[7]"
try 2 run - --device ref
try 0 run - --device cpu --out y=-
says err 'y: written to the standard output'
says out "NUMPY"
try 0 profile file.qn copy --device cpu --runs 1
says err "n = 300, of its bench; others with --set"
# show, tune, run and profile take the sizes of the bench alike: those of the device.
cat >sizes.qn <<'END'
kernel copy(in float x[n], out float y[n], const int B = 64)  launch (cdiv(n, B))  tune (B in {64, 128}) { y[program(0) * B : B] = x[program(0) * B : B]; }
tensor twice(float x[n]) { return 2 * x; }
bench copy (n = 1 << 30) on cpu (n = 300) { copy }
bench twice (n = 1 << 30) on cpu (n = 300) { twice }
END
for words in "run sizes.qn copy" "run sizes.qn twice" "profile sizes.qn copy --runs 1" "profile sizes.qn twice --runs 1" \
    "show sizes.qn copy --stage c" "show sizes.qn copy --stage loops" "show sizes.qn twice --stage graph" \
    "show sizes.qn twice --stage fusion" "show sizes.qn twice --stage fusion --device cuda" "tune sizes.qn copy --budget 0.1s"; do
    try 0 $words
    case $words in *cuda | *loops) size=1073741824 ;; *) size=300 ;; esac
    cat out >>err
    says err "n = $size"
done
try 0 bench - --device cpu --seconds 0.01 --json -
[ "$(head -c 1 out)" = "[" ]
passed=$((passed + !$?)) failed=$((failed + $?))
try 2 bench - --json - --csv -
says err "only one of the files can be -"
try 0 devices --json -
says out '{"name": "cpu", "available": true'
try 1 run - --device gpu
says err "the device cuda is not available"
call="before its inputs are made (4 GB of random numbers)"
if grep -q "of its bench" err; then failed=$((failed + 1)) && echo "FAILED $call" && cat err; else passed=$((passed + 1)); fi
cp /bin/true program
try 2 profile ./program
says err "\`./program\` is a program: put -- before it, quern profile [options] -- ./program"
QUERN_LOG=fuson try 2 run - --device cpu
says err "QUERN_LOG has no \`fuson\`; it knows compile, cache, launch, code, graph, fusion, guards and all"
# A program of the library that gave no `print` sees its log on stderr.
cat >log.c <<'END'
#include <quern/try.h>
#include <quern/tensor.h>
int main(void)
{
    qn_error error;
    qn_context *context;
    qn_tape *tape;
    double value;
    QN_MUST(qn_context_open(NULL, &context, &error), error);
    QN_MUST(qn_tape_new(context, "cpu", &tape, &error), error);
    QN_MUST(qn_tensor_item(qn_exp(qn_scalar(tape, QN_F32, 0)), &value, &error), error);
    qn_tape_free(tape);
    qn_context_close(context);
    return value != 1;
}
END
flags=
sanitize=$(sed -n 's/^QUERN_SANITIZE:STRING=\(.*\)$/\1/p' "$build/CMakeCache.txt")
[ -n "$sanitize" ] && flags="-fsanitize=$sanitize"
call="a program with QUERN_LOG"
if cc $flags -I"$root/include" log.c "$build/libquern.a" -lm -ldl -lpthread -o logged && QUERN_LOG=fusion ./logged 2>err; then
    says err "kernel"
else
    failed=$((failed + 1))
    echo "FAILED $call"
    cat err
fi
# Manual pages and completion know every command and option.
holds() {
    what=$1
    shift
    if "$@" >log 2>&1; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAILED: $what"
        cat log
    fi
}
# Powers in settings as in sweeps; streams without a name; no result is written over a source.
printf 'kernel k(in float x[n], out float y[n], const int B = 64)  launch (cdiv(n, B)) { y[program(0) * B : B] = x[program(0) * B : B]; }\nbench k (n = 64) { k }\n' >power.qn
for words in '2^10' '2**10' '2 ^ 10' '1 << 10' 1024; do
    "$quern" run power.qn --set "n=$words" >out 2>&1
    holds "--set n=$words" grep -q '^y: f32\[1024\]' out
done
"$quern" run power.qn --set 'n=2^99' >out 2>&1
holds "a power that does not fit" grep -q 'is not a number' out
"$quern" bench power.qn --set 'n=2^8' --seconds 0.001 >out 2>&1
holds "powers of bench" grep -q 'k on cpu (n = 256)' out
"$quern" devices --json >out 2>err
holds "devices --json alone is stdout" grep -q '"name": "cpu"' out
"$quern" check power.qn --no-emu --json >out 2>err
holds "so is check --json" grep -q '"kernel": "k"' out
cp power.qn kept.qn
"$quern" bench --json power.qn k >out 2>&1
holds "a source is not written over" sh -c 'cmp -s power.qn kept.qn && grep -q "would write over power.qn" out'
sh "$root/tools/install-manual" "$quern" "$work/prefix" >out 2>&1
for command in $("$quern" help | sed -n 's/^  \([a-z]*\) .*/\1/p' | grep -v quern); do
    holds "a page of $command" test -s "prefix/share/man/man1/quern-$command.1"
done
for option in $("$quern" help bench | grep -oE '^  --[a-z-]+' | sed 's/^  --//'); do
    holds "the page of bench has $option" grep -qF -- "$(printf '%s' "--$option" | sed 's/-/\\-/g')" prefix/share/man/man1/quern-bench.1
done
# Each command's help is about that command, in lines that fit.
for command in $("$quern" help | sed -n 's/^  \([a-z]*\) .*/\1/p' | grep -v quern); do
    "$quern" help "$command" >out 2>&1
    sed -n '/^options:/,/^examples:/p' out >text
    holds "the options of $command are told for $command" sh -c '! grep -E "of (train|check|data|profile|bench|show|run|tune)[ :;,]" text'
    holds "and fit into 100 columns" sh -c 'test "$(awk "length > most { most = length } END { print most }" text)" -le 101'
done
COLUMNS=70 "$quern" help profile >out
holds "or into the terminal" sh -c 'test "$(sed -n "/^options:/,/^examples:/p" out | awk "length > most { most = length } END { print most }")" -le 70'
"$quern" version --help >out 2>&1
holds "version has its help" grep -q '^usage: quern version' out
holds "entries of a description are entries of its page" grep -qx '.fBhead FILES.fR' prefix/share/man/man1/quern-data.1
holds "the page of show lists the stages" grep -qx '.fBsass.fR' prefix/share/man/man1/quern-show.1
holds "pages know of Ctrl-C" grep -q '130: Ctrl' prefix/share/man/man1/quern-run.1
if command -v man >/dev/null && command -v groff >/dev/null; then
    MANWIDTH=80 man --warnings -l prefix/share/man/man1/quern-profile.1 >out 2>err
    holds "man finds nothing to remark" test -s out -a ! -s err
fi
# A folder that is called as a command is no answer where a command is asked for.
if command -v bash >/dev/null; then
    mkdir -p complete/bench "complete/my kernels"
    touch complete/bench.qn
    bash -c ". prefix/share/bash-completion/completions/quern; cd complete; ask() { COMP_WORDS=(\"\$@\"); COMP_CWORD=\$((\$# - 1)); _quern; printf '[%s]' \"\${COMPREPLY[@]}\"; echo; }
        ask quern be; ask quern bench f.qn --sw; ask quern bench ben; ask quern run my; ask quern help be
        ask quern show f.qn --stage sa; ask quern run f.qn --device e; ask quern cache c" >out 2>&1
    printf '%s\n' '[bench]' '[--sweep]' '[bench][bench.qn]' '[my kernels]' '[bench]' '[sass]' '[emu]' '[clear]' >wanted
    holds "bash completes: $(cat out)" sh -c 'sed 3s/.bench.qn..bench./[bench][bench.qn]/ out | cmp -s - wanted'
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
