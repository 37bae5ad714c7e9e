#!/bin/sh
# Every file in kernels/ checks clean: under the interpreter, at odd and even sizes, and every device against it.
# Usage: tests/scripts/kernels.sh BUILD_FOLDER
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "${1:-build}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
QUERN_CACHE="$work/cache"
QUERN="$build/quern"
export QUERN_CACHE QUERN work
cd "$root/kernels" || exit 1
[ -x "$QUERN" ] || { echo "there is no $QUERN"; echo "0 passed, 1 failed"; exit 1; }
few=$(((${QUERN_SLOW:-1} + 3) / 4)) # under the slower sanitizer every eighth file
[ "$few" = 1 ] || echo "note: kernels/: 1 of $few files under a sanitizer"
files=$(ls ./*.qn | awk -v few="$few" 'NR % few == 0')
echo "$files" | xargs -P 2 -I FILE sh -c '"$QUERN" check FILE --threads 1 --no-emu >"$work/FILE.log" 2>&1 && : >"$work/FILE.good"'
passed=0
failed=0
cases=0
for file in $files; do
    if [ -f "$work/$file.good" ]; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        grep -v ': clean, ' "$work/$file.log" | head -40
        echo "FAILED kernels/$file"
    fi
    for count in $(sed -n 's/.*, \([0-9]*\) cases on .*/\1/p' "$work/$file.log"); do cases=$((cases + count)); done
done
echo "note: kernels/ checked in $cases cases"
if [ "$passed" -lt $((10 / few)) ] || [ "$cases" -lt $((few == 1 ? 500 : 20)) ]; then
    failed=$((failed + 1))
    echo "FAILED only $passed files and $cases cases: too few"
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
