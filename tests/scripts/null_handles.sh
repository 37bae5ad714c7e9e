#!/bin/sh
# Every public function called as nobody should (tests/calls/calls.c): with nothing, and with whatever is there, is not or
# is wrong. The calls are made from the headers, so a new function cannot be forgotten.
# QUERN_CALL_ROUNDS: how often each (tools/nightly: more); QUERN_CALL_SEED: other choices.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export QUERN_CACHE="$work/cache"
# No GPU: every process would open its driver.
export CUDA_VISIBLE_DEVICES=-1 QUERN_CUDA_PATH=none
# Loaders are left as they are when a process of calls ends: their threads, too.
export TSAN_OPTIONS="${TSAN_OPTIONS:+$TSAN_OPTIONS:}report_thread_leaks=0"
sanitize=$(sed -n 's/^QUERN_SANITIZE:STRING=\(.*\)$/\1/p' "$build/CMakeCache.txt")
flags="-std=gnu11 -w -g"
[ -n "$sanitize" ] && flags="$flags -fsanitize=$sanitize"

# The declarations, macros that make several of them opened, one a line.
mkdir -p "$work/marked"
cp -r "$root/include/quern" "$work/marked/"
sed -i 's/^#define QN_API.*/#define QN_API QN_MARKED/' "$work/marked/quern/status.h"
for header in "$root"/include/quern/*.h; do echo "#include <quern/$(basename "$header")>"; done | grep -v sites.h >"$work/headers.h"
cc -E -P -DQN_NO_CALL_SITES -I"$work/marked" -x c "$work/headers.h" | tr '\n' ' ' | tr ';' '\n' |
    sed -n 's/.*QN_MARKED *//; T; s/__attribute__ *((warn_unused_result))//; s/^ *//; s/ *$//; s/  */ /g; s/ )/)/g; p' |
    grep '(.*)$' | sort -u >"$work/declared"
functions=$(wc -l <"$work/declared")
written=$(cat "$root"/include/quern/*.h | grep -c '^QN_API')
if [ "$functions" -lt "$written" ]; then
    echo "FAILED only $functions functions were found in the headers, which have $written lines of declarations"
    echo "0 passed, 1 failed"
    exit 1
fi
awk -f "$root/tests/calls/calls.awk" "$work/declared" >"$work/calls.h"
if ! cc $flags -I"$work" -I"$root/include" "$root/tests/calls/calls.c" -L"$build" -Wl,-rpath,"$build" -lquern -lm -o "$work/calls" >"$work/log" 2>&1; then
    echo "FAILED the calls do not compile"
    head -30 "$work/log"
    echo "0 passed, 1 failed"
    exit 1
fi
mkdir "$work/here" && cd "$work/here" || exit 1
rounds=20
if [ "${QUERN_SLOW:-1}" -ge 32 ]; then
    rounds=5
    echo "note: null_handles: 5 rounds and not 20 under the slower sanitizer"
fi
"$work/calls" "${QUERN_CALL_ROUNDS:-$rounds}" "${QUERN_CALL_SEED:-1}" ${QUERN_CALL_NAME:-}
