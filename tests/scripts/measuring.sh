#!/bin/sh
# The examples of docs/measuring.md: each builds, runs, and prints what the page says it shows; bench --hints and show
# --stage hints speak on the command line.
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0
cd "$root" || exit 1
export QUERN_CACHE="$work/cache"

try() {
    what=$1
    shift
    if "$@" >"$work/out" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED $what"
        tail -20 "$work/out"
    fi
}
says() { # says NAME WORDS: in what the last command printed
    try "$1 says: $2" grep -q -e "$2" "$work/kept"
}
for name in sleep warmup asynchronous caches timeline; do
    try "$name.c builds" cc -std=gnu11 -Wall -Wextra -Werror -O2 -Iinclude "examples/measuring/$name.c" -L"$build" \
        -Wl,-rpath,"$build" -lquern -lm -o "$work/$name"
    try "$name.c" "$work/$name" "$work"
    cp "$work/out" "$work/kept"
    try "docs/measuring.md names $name.c" grep -q "examples/measuring/$name.c" docs/measuring.md
    case $name in
    sleep) says sleep 'a sleep of 50 ms: 5[0-4]' ;;
    warmup) says warmup 'first call' ;;
    asynchronous) says asynchronous 'wall clock and a wait' ;;
    caches) says caches 'times the cold one' ;;
    timeline)
        says timeline 'loss printed every step: .* ms a step'
        for trace in each_step at_the_end; do try "$trace.json" grep -q '"print the loss"\|"step"' "$work/$trace.json"; done
        ;;
    esac
done
try "bench --hints" "$build/quern" bench examples/measuring/roofline.qn add_one --set n=4194304 --seconds 0.1 --device cpu --hints
cp "$work/out" "$work/kept"
says "bench --hints" 'of limit'
try "show --stage hints" "$build/quern" show bench/hints.qn uncoalesced --stage hints --arch sm_90a --set n=65536 --set m=2097152
cp "$work/out" "$work/kept"
says "show --stage hints" '(bench/hints.qn:9) - up to'
says "show --stage hints" '^    try: '
try "a fair kernel is not spoken of" "$build/quern" show tests/hints/quiet.qn add_one --stage hints --arch sm_90a --set 'n=1<<28'
try "... at all" test ! -s "$work/out"
# Every rule has its section.
for rule in $(sed -n 's/^RULE(\([a-z0-9_]*\),.*/\1/p' src/profile/hints.def); do
    try "docs/hints.md explains $rule" grep -q "^### \`$rule\`" docs/hints.md
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 30 ]
