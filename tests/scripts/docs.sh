#!/bin/sh
# Runs every example of docs/language.md: a `qn` block must check clean, a `qn wrong E302` block must give that code.
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0
awk -v work="$work" '
    /^```qn/ { n++; file = sprintf("%s/%03d.qn", work, n); want = ($2 == "wrong") ? $3 : ""; print want > sprintf("%s/%03d.want", work, n); close(sprintf("%s/%03d.want", work, n)); inside = 1; line = NR; next }
    /^```/ { if (inside) { close(file); inside = 0 } next }
    inside { print > file }
' "$root/docs/language.md"
few=$(((${QUERN_SLOW:-1} + 3) / 4)) # under the slower sanitizer every eighth
[ "$few" = 1 ] || echo "note: docs: 1 of $few examples under a sanitizer"
met=0
for file in "$work"/*.qn; do
    met=$((met + 1))
    [ $((met % few)) = 0 ] || continue
    want=$(cat "${file%.qn}.want")
    "$build/quern" check "$file" >"$work/out" 2>&1
    code=$?
    if [ -n "$want" ]; then
        if [ $code != 0 ] && grep -q "error $want" "$work/out" && [ "$(grep -c ': error E' "$work/out")" = 1 ]; then
            passed=$((passed + 1))
            continue
        fi
    elif [ $code = 0 ]; then
        passed=$((passed + 1))
        continue
    fi
    failed=$((failed + 1))
    echo "an example of docs/language.md (expected: ${want:-clean}):"
    cat "$file" "$work/out"
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt $((20 / few)) ]
