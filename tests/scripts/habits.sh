#!/bin/sh
# Forms of other languages that are accepted mean what the canonical form means: the same graph, the same tile IR, and
# `fmt` writes the canonical one. What is refused is in tests/errors (e110_*, e104_types, e201_habits, w603_slices).
# Usage: tests/scripts/habits.sh BUILD_FOLDER
root=$(cd "$(dirname "$0")/../.." && pwd)
quern="$(cd "${1:-build}" && pwd)/quern"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export QUERN_CACHE="$work/cache"
file="$root/tests/data/habits.qn"
passed=0
failed=0
result() {
    if [ "$1" = 0 ]; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAILED: $2"
    fi
}
# same STAGE NAME OTHER: both are one program, but for their names and places.
same() {
    for name in "$2" "$3"; do
        "$quern" show "$file" "$name" --stage "$1" >"$work/text" 2>&1 || cat "$work/text"
        sed 's/ *;.*//; s/^kernel [a-z_]*/kernel/' "$work/text" >"$work/$name"
    done
    [ -s "$work/$2" ] && cmp -s "$work/$2" "$work/$3"
    result $? "$2 and $3 differ"
}
same graph product_named product_sign
same graph chain_named chain_sign
same graph axes_named axes_placed
same tile tiles_named tiles_sign
same tile rows_named rows_placed
"$quern" fmt "$file" >"$work/once" && "$quern" fmt "$work/once" | cmp -s - "$work/once"
result $? "fmt is not done after one pass"
grep -qE 'sum\(x, 1\)|axis = \(|\+\+[ik]' "$work/once"
result $((!$?)) "fmt leaves a form that is not canonical"
grep -q 'x @ y @ x' "$work/once"
result $? "fmt lost a product"
# A file's own function of the name keeps its second argument.
cat >"$work/own.qn" <<'END'
float sum(float a, float b) { return a + b; }
tensor own(float x[n]) { return sum(x, 1); }
END
"$quern" check "$work/own.qn" >"$work/text" 2>&1 && grep -q 'own: clean' "$work/text"
result $? "a function of the file called sum"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
