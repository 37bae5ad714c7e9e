#!/bin/sh
# The quick part of `make sanitize`: a few test programs under the address and undefined-behaviour sanitizers. They are
# those that read what users write (source, IR text, .npy, arguments) and those that hold memory (interpreter, pool, API).
# Usage: tests/scripts/sanitize.sh BUILD_FOLDER; the instrumented build stays in BUILD_FOLDER/quick-sanitize.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "${1:-build}" && pwd)
sanitize=$(sed -n 's/^QUERN_SANITIZE:STRING=\(.*\)$/\1/p' "$build/CMakeCache.txt")
if [ -n "$sanitize" ]; then
    echo "note: sanitize: this build is sanitized already ($sanitize)"
    echo "0 passed, 0 failed"
    exit 0
fi
tests="test_base test_dtype test_parse test_errors test_format test_fuzz_corpus test_lower test_tile test_interp test_interp_programs
test_findings test_wrong test_debug test_npy test_pool test_api"
quick=$build/quick-sanitize
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
QUERN_CACHE=$work/cache
QUERN_CC="${QUERN_CC:-${CC:-cc}} -O1"
QUERN_FUZZ=10
ASAN_OPTIONS=detect_leaks=1:intercept_tls_get_addr=0
UBSAN_OPTIONS=print_stacktrace=1
export QUERN_CACHE QUERN_CC ASAN_OPTIONS UBSAN_OPTIONS QUERN_FUZZ
# Neither optimised (build type None) nor with debug information: that is three quarters of the compile time; of the rest
# a third is messages of undefined behaviour and checks of memory in line, where the compiler can do without: it traps, and
# calls. A failure here is looked at with `make sanitize`.
flags=-g0
for flag in "--param=asan-instrumentation-with-call-threshold=0" -fsanitize-undefined-trap-on-error; do
    echo 'int x;' | ${CC:-cc} -fsanitize=address,undefined "$flag" -Werror -xc - -c -o /dev/null 2>/dev/null && flags="$flags $flag"
done
test -f "$quick/build.ninja" || cmake -S "$root" -B "$quick" -G Ninja -DQUERN_SANITIZE=address,undefined \
    -DCMAKE_BUILD_TYPE=None -DCMAKE_C_FLAGS="$flags" >"$work/log" 2>&1 || cat "$work/log"
if ! ninja -C "$quick" -j "${QUERN_TEST_JOBS:-2}" $tests >"$work/log" 2>&1; then
    tail -30 "$work/log"
    echo "the sanitized build failed"
    echo "0 passed, 1 failed"
    exit 1
fi
passed=0
failed=0
for test in $tests; do
    if "$quick/tests/$test" >"$work/log" 2>&1 && grep -q '^[1-9][0-9]* passed, 0 failed' "$work/log"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        tail -40 "$work/log"
        echo "FAILED $test under the sanitizers"
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
