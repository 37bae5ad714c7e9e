#!/bin/sh
# docs/tutorial.md, followed to the letter: its files are written, its commands run in order, and every line that it shows
# of their output must be part of what they print. The `qn` blocks of the "coming from" pages must check clean. Every
# page of docs/ can be reached from README.md.
# Usage: tests/scripts/tutorial.sh BUILD_FOLDER
QUERN_CUDA_PATH=none
export QUERN_CUDA_PATH
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "${1:-build}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export QUERN_CACHE="$work/cache"
cd "$work" || exit 1
passed=0
failed=0
sanitize=$(sed -n 's/^QUERN_SANITIZE:STRING=\(.*\)$/\1/p' "$build/CMakeCache.txt")
{
    echo "set -e"
    echo "quern() { '$build/quern' \"\$@\"; }"
    [ -z "$sanitize" ] || echo "cc() { command cc -fsanitize=$sanitize \"\$@\"; }"
} >words.sh
# Blocks in order: files are written at once; commands and what they show become step_1.sh, step_1.txt, ...
awk '
    /^```(qn|c) / { file = $2; inside = 1; next }
    /^```sh/ { file = sprintf("step_%d.sh", ++step); inside = 1; next }
    /^```text/ { file = sprintf("step_%d.txt", step); inside = 1; next }
    /^```/ { if (inside) close(file); inside = 0; next }
    inside { print > file }
' "$root/docs/tutorial.md"
for step in 1 2 3 4 5 6; do
    cat words.sh step_$step.sh >all.sh
    if sh all.sh >out 2>&1; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAILED: step $step of docs/tutorial.md"
        cat out
    fi
    while IFS= read -r line; do
        if grep -qF -- "$line" out; then passed=$((passed + 1)); else
            failed=$((failed + 1))
            echo "FAILED: step $step of docs/tutorial.md does not print: $line"
            cat out
        fi
    done <step_$step.txt
done
for page in triton cuda pytorch; do
    rm -f ./*.qn
    awk '/^```qn/ { file = sprintf("%d.qn", ++n); inside = 1; next } /^```/ { inside = 0 } inside { print > file }' "$root/docs/from-$page.md"
    for file in *.qn; do
        if "$build/quern" check "$file" --no-emu >out 2>&1; then passed=$((passed + 1)); else
            failed=$((failed + 1))
            echo "FAILED: an example of docs/from-$page.md"
            cat "$file" out
        fi
    done
done
# Pages, by way of links.
cd "$root" || exit 1
echo README.md >"$work/seen"
cp "$work/seen" "$work/new"
while [ -s "$work/new" ]; do
    : >"$work/next"
    while read -r page; do
        grep -oE '\]\([A-Za-z0-9_./-]+\.md' "$page" | sed 's/^](//' | while read -r link; do
            target=$(cd "$(dirname "$page")" && realpath -m --relative-to="$root" "$link")
            [ -f "$target" ] && ! grep -qx "$target" "$work/seen" "$work/next" && echo "$target"
        done >>"$work/next"
    done <"$work/new"
    sort -u "$work/next" >"$work/new"
    cat "$work/new" >>"$work/seen"
done
for page in docs/*.md docs/studies/*.md; do
    if grep -qx "$page" "$work/seen"; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAILED: $page cannot be reached from README.md"
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
