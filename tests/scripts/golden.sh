#!/bin/sh
# CUDA texts and launch shapes of a few kernels, one of each kind, as they were last looked at: tests/golden/NAME.expected
# holds the layout (team, threads, shared memory) and the kernel's own text, without the prelude. Whoever changes what is
# emitted sees what changed; QUERN_BLESS=1 writes the files anew, for a person to read before committing them.
# tools/texts does the same for all kernels and two builds.
# Usage: tests/scripts/golden.sh BUILD_FOLDER
root=$(cd "$(dirname "$0")/../.." && pwd)
quern=$(cd "${1:-build}" && pwd)/quern
QUERN_CACHE=$(mktemp -d)
export QUERN_CACHE
trap 'rm -rf "$QUERN_CACHE"' EXIT
cd "$root" || exit 1
passed=0
failed=0
while read -r name file kernel arch settings; do
    case $name in '' | '#'*) continue ;; esac
    actual=$QUERN_CACHE/$name
    {
        # shellcheck disable=SC2086
        "$quern" show "kernels/$file" "$kernel" --stage layout --arch "$arch" $settings
        # shellcheck disable=SC2086
        "$quern" show "kernels/$file" "$kernel" --stage cuda --arch "$arch" $settings | sed -n '/^extern "C"/,$p'
    } >"$actual" 2>&1
    [ -n "$QUERN_BLESS" ] && cp "$actual" "tests/golden/$name.expected"
    if diff "tests/golden/$name.expected" "$actual"; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAILED $name: $kernel of kernels/$file for $arch (QUERN_BLESS=1 tests/scripts/golden.sh, and read the difference)"
    fi
done <tests/golden/list

# What a product's tile was chosen from: one is taken, and none of the others is estimated to be faster; where bulk copies
# do not feed it there is a reason.
check() {
    if [ "$2" = 0 ]; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAILED $1"
    fi
}
choices() {
    "$quern" show tests/golden/linear.qn linear_gelu --stage choices --arch "$1" --set M=1024 --set N=1024 --set K=4096
}
choices sm_90a >"$QUERN_CACHE/choices"
grep -q '^taken: fed, tile ' "$QUERN_CACHE/choices" && grep -q '^launch of phase 0: fed tile=' "$QUERN_CACHE/choices"
check "choices name what was taken, and its schedule" $?
awk '/ us  tile/ { time = $1 == ">" ? $2 : $1; if ($1 == ">") { taken = time; count++ } if (least == "" || time + 0 < least) least = time + 0; all++ }
    END { exit !(count == 1 && all > 3 && taken + 0 == least) }' "$QUERN_CACHE/choices"
check "the tile that was taken is the one with the least estimate" $?
choices sm_80 | grep -q '^refused fed: '
check "a product that is not fed says why" $?
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
