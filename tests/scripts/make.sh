#!/bin/sh
# `make` and tools/test themselves: plain `make` builds no tests, `make -j` says nothing to Ninja, tests are told one by one
# as they end and run as many at a time as asked for, and a test of times on a busy machine is skipped, not failed.
. "$(dirname "$0")/../holds.sh"

# A Ninja and a CMake that write down how they are called.
mkdir "$work/bin" "$work/made"
for tool in ninja cmake; do
    printf '#!/bin/sh\necho "%s $* flags:${MAKEFLAGS-}${MFLAGS-}" >>"$CALLS"\n' $tool >"$work/bin/$tool"
    chmod +x "$work/bin/$tool"
done
touch "$work/made/build.ninja"
CALLS=$work/calls
export CALLS
called() { # called GOALS...: into $work/calls
    : >"$CALLS"
    PATH="$work/bin:$PATH" make -j8 --no-print-directory "$@" BUILD="$work/made" >"$work/said" 2>&1
}
called
holds "plain make builds the product: $(cat "$CALLS")" grep -q "^ninja -C $work/made --quiet product flags:$" "$CALLS"
holds "and nothing else: $(cat "$CALLS")" [ "$(grep -c ^ninja "$CALLS")" = 1 ]
holds "and measures nothing" sh -c "! make -n BUILD='$work/made' | grep -q peers"
called tests
holds "make tests builds all: $(cat "$CALLS")" grep -q "^ninja -C $work/made --quiet all flags:$" "$CALLS"
called install
holds "make install installs: $(cat "$CALLS")" grep -q "^cmake --install $work/made flags:$" "$CALLS"
for goal in test nightly check-gpu check-report; do
    holds "make $goal builds the tests" sh -c "make -n $goal BUILD='$work/made' | grep -q 'ninja -C $work/made all'"
done
if [ -f "$build/build.ninja" ]; then
    ninja -C "$build" -t commands product >"$work/commands"
    holds "the product has the command" grep -q ' -o quern ' "$work/commands"
    holds "the product has no tests" sh -c "! grep -qE '$root/(tests|bench)/' '$work/commands'"
fi

# Four tests that wait for each other, and one that fails.
mkdir -p "$work/suite/tests" "$work/here"
for name in a b c d; do
    printf '#!/bin/sh\ntouch "%s/%s"\ni=0\nwhile [ "$(ls "%s" | wc -l)" -lt 4 ] && [ $i -lt 100 ]; do sleep 0.1; i=$((i + 1)); done\n[ $i -lt 100 ] && echo "1 passed, 0 failed"\n' \
        "$work/here" $name "$work/here" >"$work/suite/tests/test_alone_$name"
done
printf '#!/bin/sh\necho "ok     not this line"\necho "0 passed, 2 failed"\nexit 1\n' >"$work/suite/tests/test_other"
chmod +x "$work"/suite/tests/*
QUERN_TEST_JOBS=4 tools/test "$work/suite" test_alone_ >"$work/told" 2>&1
code=$?
holds "four at a time: $(cat "$work/told")" [ $code = 0 ]
for number in 1 2 3 4; do
    holds "[$number/4] is told: $(cat "$work/told")" grep -q "^\[$number/4\] ok     test_alone_[a-d]: 1 ([0-9]*s)$" "$work/told"
done
tools/test "$work/suite" test_other >"$work/told" 2>&1
code=$?
holds "a failure: $(cat "$work/told")" [ $code = 1 ]
holds "its line: $(cat "$work/told")" grep -q '^\[1/1\] FAILED test_other (exit 1, [0-9]*s)$' "$work/told"
holds "only ends are counted: $(cat "$work/told")" grep -q '^ok     not this line$' "$work/told"
QUERN_TEST_JOBS=many tools/test "$work/suite" test_other >"$work/told" 2>&1
code=$?
holds "a number that is none: $(cat "$work/told")" [ $code = 2 ]
holds "says so: $(cat "$work/told")" grep -q 'QUERN_TEST_JOBS is how many tests run at a time' "$work/told"

# Times on a busy machine.
said=$(
    QUERN_TEST_BUSY=1
    quick "too slow" false
)
holds "skipped loudly: $said" [ "$said" = "note: skipped: too slow: it does not hold, but the machine is busy (QUERN_TEST_BUSY says so)" ]
said=$(
    QUERN_TEST_BUSY=0
    quick "too slow" false
)
holds "failed on a quiet one: $said" [ "${said%%
*}" = "FAILED too slow" ]
cat >"$work/busy.c" <<'C'
#include "quiet.h"
TEST(slow) { EXPECT_QUICK(1 > 2); }
TEST_MAIN(CASE(slow))
C
holds "busy.c builds" cc -std=gnu11 -Itests "$work/busy.c" -o "$work/busy"
holds "a busy machine" sh -c "QUERN_TEST_BUSY=1 '$work/busy' | grep '^note: skipped: .*busy.c:2: 1 > 2 does not hold, but the machine is busy'"
holds "a busy machine fails nothing" env QUERN_TEST_BUSY=1 "$work/busy"
holds "a quiet machine does" sh -c "! QUERN_TEST_BUSY=0 '$work/busy'"
finish
