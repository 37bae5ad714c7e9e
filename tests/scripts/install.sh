#!/bin/sh
# Installs into a temporary prefix and links the small program of examples/link from outside the tree: with pkg-config,
# shared and static, and with a CMake project that finds the package.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0
flags="-std=c11 -Wall -Wextra -Werror"
sanitize=$(sed -n 's/^QUERN_SANITIZE:STRING=\(.*\)$/\1/p' "$build/CMakeCache.txt")
[ -n "$sanitize" ] && flags="$flags -fsanitize=$sanitize"

try() { # name, command...
    what=$1
    shift
    if "$@" >"$work/log" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED $what"
        cat "$work/log"
    fi
}
runs() { "$@" | grep -q '^Quern [0-9.]* runs on '; }

cp -r "$root/examples/link" "$work/link"
cd "$work" || exit 1
try "install" cmake --install "$build" --prefix "$work/prefix"
lib=$(dirname "$(find "$work/prefix" -name libquern.a)")
try "both libraries" test -f "$lib/libquern.so" -a -f "$lib/libquern.a"
for quern in "$work/prefix/bin/quern" "$build/quern"; do # as docs/tutorial.md writes it
    try "by the command's own words" sh -c "cc $flags link/main.c \$('$quern' flags) -o by_flags"
    try "which runs" runs ./by_flags
done
if command -v pkg-config >/dev/null; then
    # The file names the prefix it was configured for; this one overrides it, as a packager does.
    PKG_CONFIG_PATH="$lib/pkgconfig"
    export PKG_CONFIG_PATH
    options=$(pkg-config --define-variable=prefix="$work/prefix" --cflags --libs quern)
    try "shared through pkg-config" cc $flags link/main.c $options -Wl,-rpath,"$lib" -o shared
    try "shared runs" runs ./shared
    # As docs/c-api.md writes it.
    headers=$(pkg-config --define-variable=prefix="$work/prefix" --cflags quern)
    try "static by the library's path" cc $flags link/main.c $headers "$lib/libquern.a" -lm -ldl -lpthread -o static
    try "static runs" runs ./static
else
    echo "note: install: no pkg-config here, its part was left out"
fi
if [ -z "$sanitize" ]; then
    try "a CMake project configures" cmake -S link -B link-build -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix"
    try "and builds" cmake --build link-build
    try "and runs, shared" runs link-build/link_shared
    try "and runs, static" runs link-build/link_static
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
