#!/bin/sh
# examples/mlp_study.c and docs/studies/mlp.md: the study runs small, every way of running a step gives the same loss, sweeps
# have their rows and their line, and under a profile each of the lecture's ranges has device time of its own.
. "$(dirname "$0")/../holds.sh"

study=$build/examples/mlp_study
loss() { # loss OPTIONS: the last word of what it prints, to five digits
    "$study" --device cpu --dim 32 --layers 3 --batch 16 --steps 2 --trials 1 "$@" | sed -n 's/.*, loss \(.*\)/\1/p' |
        awk '{ printf "%.4g\n", $1 }'
}
for optimizer in none adam; do
    fused=$(loss --optimizer $optimizer)
    holds "a loss with $optimizer" [ -n "$fused" ]
    for mode in eager captured; do
        holds "$mode with $optimizer: $fused" [ "$(loss --optimizer $optimizer --mode $mode)" = "$fused" ]
    done
done
holds "Adam changes the loss" [ "$(loss --optimizer adam)" != "$(loss --optimizer none)" ]

for size in d128 d256 d2048 d4096; do
    holds "$size, scaled down" "$study" --size $size --scale 64 --trials 1 --device cpu
    holds "docs/studies/mlp.md runs $size" grep -q -e "--size $size" docs/studies/mlp.md
done
holds "a sweep" "$study" --dim 16 --layers 1 --batch 8 --steps 1 --trials 1 --most 3 --sweep all --device cpu
cp "$work/log" "$work/kept"
for what in steps layers batch dim; do holds "the line of $what" grep -q "^$what: .* ms for each" "$work/kept"; done
holds "three rows each" [ "$(grep -c '^ *[123]x ' "$work/kept")" = 12 ]
holds "the loss of each step" sh -c "[ \$('$study' --dim 16 --layers 1 --batch 8 --steps 3 --trials 1 --print-loss --device cpu | grep -c '^step ') = 6 ]"

# Each range has its own device time, operation by operation, fused and replayed.
for mode in eager fused captured; do
    holds "profile of $mode" "$build/quern" profile --by range --csv "$work/$mode.csv" -- \
        "$study" --dim 32 --layers 4 --batch 16 --steps 2 --trials 1 --optimizer adam --mode $mode --device cpu
    for range in define_model define_input step_3 forward layer_3 backward optimizer; do
        holds "$mode: $range has device time" awk -F, -v range=$range '
            NR == 1 { for (i = 1; i <= NF; i++) if ($i == "device_ns") column = i }
            $1 == range && $column > 0 { found = 1 }
            END { exit !found }' "$work/$mode.csv"
    done
done
holds "an unknown size is refused" sh -c "! '$study' --size d5"
finish && [ "$passed" -gt 30 ]
