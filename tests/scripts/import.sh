#!/bin/sh
# `import`: names of another file under a name space, files that import files, errors in the file they are in, fmt, and
# that what was imported is the same as what is written out; `keep = false`; `linear` with weights [out][in].
# Usage: tests/scripts/import.sh BUILD_FOLDER
QUERN_CUDA_PATH=none
export QUERN_CUDA_PATH
quern="$(cd "${1:-build}" && pwd)/quern"
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export QUERN_CACHE="$work/cache"
cp -r "$root/tests/import/." "$work"
cd "$work" || exit 1
passed=0
failed=0
holds() {
    what=$1
    shift
    if "$@" >log 2>&1; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAILED: $what"
        cat log out
    fi
}
"$quern" check main.qn --no-emu >out 2>&1
holds "clean" test $? = 0
holds "three of its own" test "$(grep -c ': clean' out)" = 5
holds "not those of the other file" sh -c '! grep -q h__copy out'
"$quern" bench main.qn --device cpu --seconds 0.005 >out 2>&1
holds "what is imported is what is written out" test "$(grep -c ' ok$' out)" = 5
holds "fmt keeps it" "$quern" fmt --check main.qn lib/helpers.qn lib/inner.qn
sed -i 's/v - mean(v)/v - mean(w)/' lib/helpers.qn
"$quern" check main.qn centred >out 2>&1
holds "an error is where it is" grep -q '^lib/helpers.qn:[0-9]*:[0-9]*: error E201: unknown name `w`' out
# What is found when it runs, in an imported function and an imported kernel, on ref and on the CPU.
cat >far.qn <<'END'
// one line more
tile float reach(in float x[n], int i)
{
    assert(i < 2, "far");
    tile float v = x[i + 3 : 4];
    return v;
}
kernel outside(in float x[n], out float y[n])  launch (n)
{
    y[program(0)] = x[program(0) + 1];
}
END
cat >near.qn <<'END'
import "far.qn" as f;
kernel use(in float x[n], out float y[n])  launch (cdiv(n, 4))
{
    y[program(0) * 4 : 4] = f.reach(x, program(0));
}
END
"$quern" check near.qn f__outside --no-emu --set n=5 >out 2>&1
holds "a finding is where it is" grep -q '^far.qn:10:[0-9]*: R701' out
holds "with its line" grep -q 'y\[program(0)\] = x\[program(0) + 1\];' out
for device in ref cpu; do
    "$quern" run near.qn use --set n=64 --device $device >out 2>&1
    holds "an assert on $device is where it is: $(cat out)" grep -q 'far.qn:4:[0-9]*: error E507' out
done
"$quern" show near.qn use --stage c >out 2>&1
holds "the text quotes the imported line" grep -q 'tile float v = x\[i + 3 : 4\];' out
printf 'import "b.qn";\n' >a.qn
printf 'import "a.qn";\n' >b.qn
"$quern" check a.qn >out 2>&1
holds "a circle" grep -q 'imports itself' out
mkfifo pipe.qn
printf 'import "pipe.qn";\n' >waits.qn
timeout 20 "$quern" check waits.qn >out 2>&1
holds "a pipe is not waited for" grep -q 'is a pipe or a device, not a file' out
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
