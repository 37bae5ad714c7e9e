#!/bin/sh
# docs/ops.md is what tools/ops-table writes, and has a line for every op of ops.def.
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
passed=0
failed=0
check() {
    if [ "$2" = 0 ]; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAILED $1"
    fi
}
tools/ops-table | cmp -s - docs/ops.md
check "docs/ops.md is out of date: tools/ops-table >docs/ops.md" $?
[ "$(grep -c '^| `' docs/ops.md)" = "$(grep -c '^OP(' src/ir/ops.def)" ]
check "docs/ops.md has a line for every op" $?
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
