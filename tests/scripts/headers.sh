#!/bin/sh
# The example at the top of every public header is compiled and run, as C11 and as C++17, and each header compiles alone.
# An example is the indented text after the line ` * Example`; lines that begin with `static` go before main.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0
cd "$root" || exit 1
export QUERN_CACHE="$work/cache"
flags="-Wall -Wextra -Werror -I$root/include"
sanitize=$(sed -n 's/^QUERN_SANITIZE:STRING=\(.*\)$/\1/p' "$build/CMakeCache.txt")
[ -n "$sanitize" ] && flags="$flags -fsanitize=$sanitize"
cpp=$(command -v c++)
if [ "${QUERN_SLOW:-1}" -ge 32 ]; then # the thread sanitizer's share (tools/test-sanitized): the library is the same
    echo "note: headers: as C alone under the slower sanitizer"
    cpp=
fi

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

for header in include/quern/*.h; do
    name=$(basename "$header" .h)
    awk '/^ \* Example/ { on = 1; next } on && /^ \*( *)$/ { exit } on && /^ \*     / { print substr($0, 8) }' "$header" >"$work/example"
    {
        echo "#include <quern/$name.h>"
        echo "#include <quern/quern.h>"
        echo "#include <stdio.h>"
        grep '^static' "$work/example"
        echo "int main(void)"
        echo "{"
        grep -v '^static' "$work/example"
        echo "    return 0;"
        echo "}"
    } >"$work/$name.c"
    cp "$work/$name.c" "$work/$name.cpp"
    lines=$(grep -c . "$work/example")
    try "$name.h has an example" test "$lines" -gt 3
    try "$name.h as C11" cc -std=c11 $flags "$work/$name.c" -L"$build" -Wl,-rpath,"$build" -lquern -o "$work/$name-c"
    try "$name.h runs" "$work/$name-c"
    if [ -n "$cpp" ]; then
        try "$name.h as C++17" c++ -std=c++17 $flags -Wno-missing-field-initializers "$work/$name.cpp" -L"$build" -Wl,-rpath,"$build" -lquern -o "$work/$name-cpp"
        try "$name.h runs from C++" "$work/$name-cpp"
    elif ! command -v c++ >/dev/null; then
        echo "note: headers: no C++ compiler here, C++17 was left out"
    fi
done
try "examples/first.c" cc -std=c11 $flags examples/first.c -L"$build" -Wl,-rpath,"$build" -lquern -o "$work/first"
try "examples/first.c prints" sh -c "\"$work/first\" | grep -q ': 2 4 6 8 10$'"
try "examples/raw.c" cc -std=c11 $flags examples/raw.c -L"$build" -Wl,-rpath,"$build" -lquern -o "$work/raw-example"
if command -v c++ >/dev/null; then
    try "examples/raw.c prints" sh -c "\"$work/raw-example\" | grep -q ': 1.5 3 4.5 6 7.5$'"
fi
try "examples/mlp.c" cc -std=c11 $flags examples/mlp.c -L"$build" -Wl,-rpath,"$build" -lquern -lm -o "$work/mlp"
if command -v cc >/dev/null; then
    try "examples/mlp.c reaches its loss" "$work/mlp"
fi
try "examples/train.c" cc -std=c11 $flags examples/train.c -L"$build" -Wl,-rpath,"$build" -lquern -lm -o "$work/train"
if command -v cc >/dev/null; then
    try "examples/train.c learns, and goes on to the same numbers" "$work/train" "$work/rings.safetensors"
fi
try "examples/lora.c" cc -std=c11 $flags examples/lora.c -L"$build" -Wl,-rpath,"$build" -lquern -lm -o "$work/lora-example"
if command -v cc >/dev/null; then
    try "examples/lora.c learns, keeps its base, and saves by fusion" "$work/lora-example" "$work/adapter.safetensors" cpu
fi
try "examples/models.c" cc -std=c11 $flags examples/models.c -L"$build" -Wl,-rpath,"$build" -lquern -lm -o "$work/models-example"
if command -v cc >/dev/null; then
    try "examples/models.c: four models learn" "$work/models-example" cpu
fi
sed -n '/^## Tensors/,/^## /{/^```c$/,/^```$/p}' README.md | sed '/^```/d' >"$work/heart"
sed 's/^    //' examples/mlp.c >"$work/mlp-lines"
try "the README shows lines of examples/mlp.c" sh -c "test -s \"$work/heart\" && ! grep -vxFf \"$work/mlp-lines\" \"$work/heart\""
# The program of README, as C and as C++.
sed -n '/^```c softmax.c$/,/^```$/p' README.md | sed '/^```/d' >"$work/softmax.c"
try "README's program" cc -std=c11 $flags "$work/softmax.c" -L"$build" -Wl,-rpath,"$build" -lquern -o "$work/softmax"
try "README's program gives a softmax" sh -c "'$work/softmax' | grep -qx '0.0900 0.2447 0.6652'"
if command -v c++ >/dev/null; then
    try "README's program is C++" c++ -std=c++17 $flags -x c++ "$work/softmax.c" -L"$build" -Wl,-rpath,"$build" -lquern -o "$work/softmax"
fi
# What docs/c-api.md shows of other languages runs as it stands there.
LD_LIBRARY_PATH="$build"
export LD_LIBRARY_PATH
for language in python rust; do
    awk -v fence="^\`\`\`$language\$" '$0 ~ fence { inside = 1; next } /^```/ { inside = 0 } inside' "$root/docs/c-api.md" >"$work/foreign.$language"
    try "docs/c-api.md has an example in $language" test -s "$work/foreign.$language"
done
if [ -z "$sanitize" ]; then # whose library has to be there first
    if command -v python3 >/dev/null; then try "the library from Python's ctypes" python3 "$work/foreign.python"; fi
    if command -v rustc >/dev/null; then
        try "the library from Rust" sh -c "rustc --crate-name twice '$work/foreign.rust' -L '$build' -o '$work/foreign' && '$work/foreign'"
    fi
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
