#!/bin/sh
# The Python package: its extension is compiled against this build's library, its tests are run with the python3 that is
# there. Usage: tests/scripts/python.sh BUILD_FOLDER. Without Python 3.11 and its headers it is skipped, and told so; so are
# the tests of NumPy and torch where they are not installed.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "$1" && pwd)
python=${PYTHON:-python3}
skip() {
    echo "note: skipped the Python package: $1"
    echo "0 passed, 0 failed"
    exit 0
}
command -v "$python" >/dev/null 2>&1 || skip "there is no $python"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || skip "$("$python" -V 2>&1) is older than 3.11"
"$python" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' ||
    skip "Python's headers are not installed (python3-dev)"
case $(grep -s '^QUERN_SANITIZE:' "$build/CMakeCache.txt") in
*=?*) skip "the library is built with sanitizers, which python3 is not" ;;
esac
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp -r "$root/python/quern" "$root/python/tests" "$folder"
rm -f "$folder"/quern/*.so
(cd "$root/python" && QUERN_BUILD=$build "$python" -c 'import build_quern, sys; build_quern.build_extension(sys.argv[1])' "$folder/quern") || {
    echo "0 passed, 1 failed"
    exit 1
}
for name in numpy torch; do
    "$python" -c "import $name" 2>/dev/null || echo "note: skipped the Python tests with $name, which is not installed (make python installs it)"
done
cd "$folder" || exit 1
QUERN_FAKE_CUDA=$build/tests/fake QUERN_ROOT=$root QUERN_PYTHON=$folder PYTHONDONTWRITEBYTECODE=1 "$python" -m unittest discover -s tests -t . >"$folder/out" 2>&1
code=$?
[ $code = 0 ] || cat "$folder/out"
ran=$(sed -n 's/^Ran \([0-9]*\) tests.*/\1/p' "$folder/out")
skipped=$(sed -n 's/.*skipped=\([0-9]*\).*/\1/p' "$folder/out")
failed=$(grep -cE '^(FAIL|ERROR): ' "$folder/out")
[ $code = 0 ] || [ "$failed" != 0 ] || failed=1
echo "$((${ran:-0} - failed - ${skipped:-0})) passed, $failed failed"
exit $code
