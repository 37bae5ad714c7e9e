#!/bin/sh
# hints_ncu.sh BUILD: what Quern's hints and what Nsight Compute's rules say of the kernels of bench/hints.qn, one after
# the other. Needs a GPU, ncu, and the right to read its counters. Clocks are left alone; caches are flushed by ncu only.
build=${1:-build}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$build/bench_hints" >"$log" || exit 1
cp "$log" "${OUT:-/tmp}/hints_quern.txt" 2>/dev/null
grep -E '^==|^[0-9]+\.' "$log"
echo
echo "Nsight Compute:"
ncu --clock-control none --set full --kernel-id "::regex:.*_phase0:2" --page details "$build/bench_hints" --plain >"$log" 2>&1
cp "$log" "${OUT:-/tmp}/hints_ncu.txt" 2>/dev/null
# The name of each kernel, its duration, and the first sentence of each rule that has something to say.
awk '/_phase0.*\(/ { name = $1; sub(/_phase0.*/, "", name); print "== " name }
     /^ +Duration/ { print "   duration " $NF " " $(NF - 1) }
     /^ +(OPT|INF|WRN) / { line = $0; sub(/^ +/, "   ", line); print line; more = 1; next }
     more && /^ {10,}[^ -]/ { line = $0; sub(/^ +/, "       ", line); print line; next }
     { more = 0 }' "$log"
