#!/bin/sh
# Commands and examples in which an allocation, a file operation or a child process fails: a sample of what
# tests/faults/driver.c could try, another one every day of the year. QUERN_FAULT_SECONDS: more of it (tools/nightly);
# QUERN_FAULT_SEED: another sample.
# The driver of a GPU is not ours: without memory it may end the process.
QUERN_CUDA_PATH=none
export QUERN_CUDA_PATH
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "${1:-$root/build}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Under a sanitizer the shim's malloc stands before the sanitizer's, and what leaks is a status of its own.
ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0:allocator_may_return_null=1:exitcode=99
LSAN_OPTIONS=${LSAN_OPTIONS:+$LSAN_OPTIONS:}suppressions=$root/tests/faults/leaks.txt:print_suppressions=0
export ASAN_OPTIONS LSAN_OPTIONS
"$build/tests/fault_driver" --quern "$build/quern" --root "$root" --built "$build/tests" \
    --shim "$build/tests/libfault_shim.so" --work "$work" --list "$root/tests/faults/commands.txt" \
    --seconds "${QUERN_FAULT_SECONDS:-15}" --seed "${QUERN_FAULT_SEED:-$(date +%j | sed 's/^0*//')}"
