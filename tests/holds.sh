# What script tests have in common, for those that begin with `. "$(dirname "$0")/../holds.sh"`: $root, $build (the first
# argument), $quern, a folder $work that goes in the end, a cache of their own, counts, and the line at the end.
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "${1:-build}" && pwd)
quern="$build/quern"
[ -x "$quern" ] || { echo "there is no $quern"; echo "0 passed, 1 failed"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export QUERN_CACHE="$work/cache"
cd "$root" || exit 1
passed=0
failed=0
# holds NAME COMMAND...: the command succeeds
holds() {
    held=$1
    shift
    if "$@" >"$work/log" 2>&1; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAILED $held"
        cat "$work/log"
    fi
}
. "$root/tests/busy.sh" # quick
finish() {
    echo "$passed passed, $failed failed"
    [ "$failed" = 0 ]
}
