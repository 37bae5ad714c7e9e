#!/bin/sh
# The functions of bench/problems at the small sizes of their bench blocks: `check` compares `cpu`, and their CUDA text on the CPU, with
# the interpreter. Usage: tests/scripts/problems.sh BUILD_FOLDER [all]; without `all` (tools/nightly says it) those whose plans
# differ most: gathered products, windows of windows, interleaved results, norms over several axes, scans, cells, attention.
. "$(dirname "$0")/../holds.sh"

# settings FILE NAME: --set words for the sizes `on ref` of its bench block
settings() {
    sed -n "s/^bench $2 ([^)]*) on ref (\([^)]*\)).*/\1/p" "$1" | tr ',' '\n' | sed -n 's/^ *\([A-Za-z_]*\) = \(.*\)$/--set \1=\2/p'
}
checked=0
for level in 1 2 3 4 5 6 7; do
    file=bench/problems/level$level.qn
    every=$(sed -n 's/^bench \(k[0-9]*\) .*/\1/p' "$file")
    case $level in
    1) few="k50 k92" ;;
    2) few="k6 k62" ;;
    3) few="k9 k11" ;;
    4) few="k2 k31" ;;
    5) few="k2 k9" ;;
    6) few="k12 k40 k61" ;;
    7) few="k23" ;;
    esac
    [ "${2:-}" = all ] && few=$every
    for name in $few; do
        holds "level $level $name" timeout 60 "$quern" check "$file" "$name" $(settings "$file" "$name")
        checked=$((checked + 1))
    done
    for name in $(sed -n 's/^tensor \(k[0-9]*\)(.*/\1/p' "$file"); do
        echo "$every" | grep -qx "$name" || holds "level $level $name has a bench block" false
        grep -Eq "^def $name\(|(^| )$name( = |,)" "bench/problems/level$level.py" || holds "level$level.py has $name" false
    done
done
# on a CPU the order of rows, their first ones and additions by index are kernels in C
for pair in k18:sort_rows k19:select_rows k20:add_numbers; do
    holds "${pair%:*} on a CPU" sh -c "'$quern' show bench/problems/level4.qn ${pair%:*} --stage fusion --device cpu | grep -q ${pair#*:}"
done
# five sums of windows in rows of 502, all added up: a row of a tile is a row of these, and 55 addresses stay in registers
holds "tiles are no wider than rows" sh -c "'$quern' show bench/problems/level6.qn k57 --stage cuda --device cuda | grep -q '__launch_bounds__(128, 3) sum_mul_sum_mul_add_sum_more_phase0'"
# the gradient of a pool whose windows overlap: the largest of each window and what it hands back are written, not 16 numbers a window
# ... and of a convolution of each channel by itself: nothing lies side by side for a product of depth 1
for name in k42 k82; do
    holds "the gradient of $name is two kernels" sh -c "'$quern' show bench/problems/level1.qn $name --stage fusion --why --device cuda --backward | grep -q '^plan: 2 kernels'"
done
holds "there were functions" [ "$checked" -ge 10 ]
finish
