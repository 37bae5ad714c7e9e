#!/bin/sh
# Every `c program` of docs/tensor.md is compiled and run; a comment `prints: ...` in it says what comes out. Every call
# of the public headers of tensors is named in the guide, and every name in its tables is a call.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0
export QUERN_CACHE="$work/cache"
flags="-Wall -Wextra -Werror -I$root/include"
sanitize=$(sed -n 's/^QUERN_SANITIZE:STRING=\(.*\)$/\1/p' "$build/CMakeCache.txt")
[ -n "$sanitize" ] && flags="$flags -fsanitize=$sanitize"

good() { passed=$((passed + 1)); }
bad() {
    failed=$((failed + 1))
    echo "FAILED $1"
}

awk -v work="$work" '
    /^```c program/ { n++; file = sprintf("%s/%02d.c", work, n); inside = 1; next }
    /^```/ { if (inside) close(file); inside = 0; next }
    inside { print > file }
' "$root/docs/tensor.md"
for file in "$work"/*.c; do
    want=$(sed -n 's/.*prints: \(.*[^ ]\) *\*\/.*/\1/p' "$file")
    if ! cc -std=c11 $flags "$file" -L"$build" -Wl,-rpath,"$build" -lquern -o "${file%.c}" 2>"$work/log"; then
        cat "$work/log"
        bad "a program of docs/tensor.md does not compile"
    elif ! "${file%.c}" >"$work/out" 2>"$work/log"; then
        cat "$work/log"
        bad "a program of docs/tensor.md fails"
    elif [ -n "$want" ] && ! grep -qF "$want" "$work/out"; then
        cat "$work/out"
        bad "a program of docs/tensor.md does not print: $want"
    else
        good
    fi
done

# The names in the table against the headers' calls that make tensors.
sed -n '/^## Operations/,/^What differs/p' "$root/docs/tensor.md" | grep '^|' | tr -c 'a-z0-9_' '\n' | sort -u >"$work/named"
sed -n 's/^#define qn_\([a-z0-9_]*\)(\.\.\.).*/\1/p' "$root/include/quern/sites.h" "$root/include/quern/nn.h" |
    grep -vE '_scalar$|^(seed|assign|scope_end)$' | sort -u >"$work/calls"
missing=$(comm -13 "$work/named" "$work/calls")
[ -z "$missing" ] && good || bad "docs/tensor.md does not name: $missing"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
