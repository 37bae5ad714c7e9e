#!/bin/sh
# The examples of docs/measuring.md: each builds, runs, and prints what the page says it shows; bench --hints and show
# --stage hints speak on the command line.
. "$(dirname "$0")/../holds.sh"

says() { # says NAME WORDS: in what the last command printed
    holds "$1 says: $2" grep -q -e "$2" "$work/kept"
}
# A library with a sanitizer needs programs with it.
sanitize=$(sed -n 's/^QUERN_SANITIZE:STRING=\(.*\)$/\1/p' "$build/CMakeCache.txt")
for name in sleep warmup asynchronous caches timeline; do
    holds "$name.c builds" cc -std=gnu11 -Wall -Wextra -Werror -O2 ${sanitize:+-fsanitize=$sanitize} -Iinclude "examples/measuring/$name.c" -L"$build" \
        -Wl,-rpath,"$build" -lquern -lm -o "$work/$name"
    "$work/$name" "$work" >"$work/kept" 2>&1
    code=$?
    # The sleep's exit code says whether it was read as it is, and a busy machine wakes it late.
    if [ $name = sleep ]; then quick "$name.c: $(cat "$work/kept")" [ $code = 0 ]; else
        holds "$name.c: $(cat "$work/kept")" [ $code = 0 ]
    fi
    holds "docs/measuring.md names $name.c" grep -q "examples/measuring/$name.c" docs/measuring.md
    case $name in
    sleep) says sleep 'a sleep of 50 ms: [5-9][0-9]' ;;
    warmup) says warmup 'first call' ;;
    asynchronous) says asynchronous 'wall clock and a wait' ;;
    caches) says caches 'times the cold one' ;;
    timeline)
        says timeline 'loss printed every step: .* ms a step'
        for trace in each_step at_the_end; do holds "$trace.json" grep -q '"print the loss"\|"step"' "$work/$trace.json"; done
        ;;
    esac
done
holds "bench --hints" "$build/quern" bench examples/measuring/roofline.qn add_one --set n=4194304 --seconds 0.1 --device cpu --hints
cp "$work/log" "$work/kept"
says "bench --hints" 'of limit'
holds "show --stage hints" "$build/quern" show bench/hints.qn uncoalesced --stage hints --arch sm_90a --set n=65536 --set m=2097152
cp "$work/log" "$work/kept"
says "show --stage hints" '(bench/hints.qn:9) - up to'
says "show --stage hints" '^    try: '
holds "a fair kernel is not spoken of" "$build/quern" show tests/hints/quiet.qn add_one --stage hints --arch sm_90a --set 'n=1<<28'
cp "$work/log" "$work/kept"
holds "... at all" test ! -s "$work/kept"
# Every rule has its section.
for rule in $(sed -n 's/^RULE(\([a-z0-9_]*\),.*/\1/p' src/profile/hints/hints.def); do
    holds "docs/hints.md explains $rule" grep -q "^### \`$rule\`" docs/hints.md
done
finish && [ "$passed" -gt 30 ]
