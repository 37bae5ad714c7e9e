#!/bin/sh
# Fused plans need no more memory than one kernel for each op, forward and backward, of every tensor function in kernels/ at the
# sizes of its bench, as planned for a GPU; or no more than 16 MB, below which nothing is done about it.
# Usage: tests/scripts/memory.sh BUILD_FOLDER
. "$(dirname "$0")/../holds.sh"

# peak FILE NAME MODE OPTIONS...: of the plan, in bytes
peak() {
    file=$1 name=$2 mode=$3
    shift 3
    "$quern" show "$file" "$name" "$@" --device cuda --mode "$mode" --stage memory 2>"$work/err" |
        sed -n 's/.* peak \([0-9]*\) bytes.*/\1/p'
}
no_more() {
    fused=$(peak "$1" "$2" fused $3)
    eager=$(peak "$1" "$2" eager $3)
    echo "fused $fused bytes, eager $eager bytes"
    [ -n "$fused" ] && [ -n "$eager" ] || return 1
    [ "$fused" -le "$eager" ] || [ "$fused" -le 16777216 ]
}
checked=0
for file in kernels/*.qn; do
    for name in $(sed -n 's/^tensor \([a-z_0-9]*\)(.*/\1/p' "$file"); do
        for option in "" --backward; do
            [ -n "$(peak "$file" "$name" fused $option)" ] || continue # it has no sizes, or no gradient
            holds "$file $name $option: fused needs no more than eager" no_more "$file" "$name" "$option"
            checked=$((checked + 1))
        done
    done
done
holds "there are tensor functions with plans" [ "$checked" -ge 20 ]
finish
