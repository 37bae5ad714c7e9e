#!/bin/sh
# Holds the rules of the tree: a folder includes only folders before it, the command includes public headers only,
# no source file is over 600 lines, every source file opens with a comment and names its licence, no `_t` types of our own, and no diagnostic
# is written twice.
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
passed=0
failed=0
bad() {
    echo "$1"
    wrong=1
}
finish() {
    if [ "$wrong" = 0 ]; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAILED $1"
    fi
}

order="base ir target lang tensor fuse passes schedule loops emit device run profile data model"
wrong=0
grep -rnE "^ *# *include \"[a-z]*/" src --include="*.[ch]" | awk -v order="$order" '
    BEGIN { count = split(order, names, " "); for (i = 1; i <= count; i++) place[names[i]] = i }
    {
        split($0, part, "/"); folder = part[2]
        used = $0; sub(/.*include "/, "", used); sub(/\/.*/, "", used)
        if (!(used in place) || place[used] > place[folder]) print
    }' | grep . && bad "these include a folder that comes after their own"
for folder in src/*/; do
    case " $order " in *" $(basename "$folder") "*) ;; *) bad "$folder is not in the list of folders" ;; esac
done
listed=$(sed -n 's/^| `src\/\([a-z]*\)\/` .*/\1/p' README.md | tr '\n' ' ')
[ "$listed" = "$order " ] || bad "README.md lists the folders $listed, they are $order"
finish "include order"

wrong=0
for file in cli/*.[ch] examples/*.c bench/*.c; do
    [ -f "$file" ] || continue
    for used in $(sed -n 's/^ *# *include "\(.*\)"/\1/p' "$file"); do
        [ -f "$(dirname "$file")/$used" ] || bad "$file includes \"$used\": only <quern/...> and its own folder"
    done
done
finish "the command uses public headers"

wrong=0
find src cli include -name '*.[ch]' -o -name '*.def' -o -name '*.cuh' | xargs wc -l |
    awk '$2 != "total" && $1 > 600' | grep . && bad "files have at most 600 lines"
find tests bench examples -name '*.[ch]' -o -name '*.py' | xargs wc -l | awk '$2 != "total" && $1 > 600' | grep . &&
    bad "tests have at most 600 lines"
for file in include/quern/*.h; do
    lines=$(wc -l <"$file")
    [ "$lines" -gt 400 ] && bad "$file has $lines lines: public headers at most 400"
done
finish "file sizes"

wrong=0
find src cli include -name '*.[ch]' -exec awk '
    FNR == 1 { if (NR > 1 && !named) print file ": names no licence"; file = FILENAME; named = 0; if ($0 !~ /^\/\*/) print file ": opens with no comment" }
    FNR <= 40 && /SPDX-License-Identifier: MIT/ { named = 1 }
    END { if (!named) print file ": names no licence" }' {} + | grep . && bad "every file opens with what it is"
finish "file heads"

wrong=0
grep -rnE '^\} [a-z_]+_t;|typedef [^(]* [a-z_]+_t;' src cli include && bad "types of our own do not end in _t"
grep -rnE '\b(exit|abort) *\(' src --include='*.c' | grep -v 'src/base/arena.c' | grep -vE '"[^"]*(exit|abort) *\(' && bad "no exit or abort in src/"
grep -rniE '\b(TODO|FIXME|XXX)\b' src cli include kernels && bad "unfinished marks"
finish "words"

# A printer decides nothing and never asks its own text: what is to be known is known before it is printed. Raw kernels are
# the user's text, and parts of the prelude are found by their names.
wrong=0
grep -rnE '^ *# *include "(passes|schedule|target)/' src/emit --include='*.[ch]' &&
    bad "emit prints what loops/ has built: it includes neither passes nor schedule nor target"
grep -rnE '\b(str(str|cmp|ncmp|chr|rchr|casestr)|memmem|strpbrk) *\(' src/emit/*.c src/emit/*.h src/emit/c src/emit/cuda --include='*.[ch]' |
    grep -vE '^src/emit/(cuda/)?prelude[a-z_]*\.[ch]:' &&
    bad "emit compares or searches text that it wrote"
finish "printers do not read"

# Numbers as text go through src/base/number.c: the host program may have set a locale with a decimal comma. Texts of
# generated code (lines that begin with a quote) run where the locale is plain.
wrong=0
grep -rnE '\b(strto(d|f|ld)|atof|setlocale|localeconv|v?sn?printf_l) *\(' src cli --include='*.[ch]' |
    grep -vE '^(src/base/number\.c|cli/options\.c):' && bad "read numbers with number_parse"
grep -rnE '\bvsn?printf *\(' src --include='*.[ch]' | grep -vE '^src/base/number\.c:|:[0-9]+: *"' &&
    bad "print lists with plain_print_list"
grep -rnE 'scanf *\([^;]*%[0-9*]*l?[aefgAEFG]' src --include='*.[ch]' && bad "no scanf of floats"
find src -name '*.c' -exec awk '
    FNR == 1 { on = 0 }
    /^ *"/ && !on { next }
    /(^|[^a-z_])(sn|f|s|)printf *\(/ && !on { on = 1; words = ""; at = FNR }
    on { words = words $0 }
    on && /;/ { on = 0; if (words ~ /%[-+ #0-9.*]*l?[aefgAEFG]/) print FILENAME ":" at ": " words }' {} + |
    grep . && bad "print floats with plain_print or text_print"
finish "numbers without the locale"

# A mistake has one sentence, at one place: what two front ends, or two passes of one, find alike is a function of
# src/lang/fault.c. The fifth argument of diagnose() is the sentence.
wrong=0
find src -name '*.c' -exec awk '
    function strings(words,    at) {
        gsub(/" +"/, "", words)
        while (match(words, /"([^"\\]|\\.)*"/)) {
            at = substr(words, RSTART, RLENGTH)
            if (length(at) > 8) print code, at
            words = substr(words, RSTART + RLENGTH)
        }
    }
    function look(call,    i, c, depth, in_string, argument, words) {
        argument = 1; words = ""; depth = 0; in_string = 0
        for (i = 1; i <= length(call); i++) {
            c = substr(call, i, 1)
            if (in_string && c == "\\") { words = words c substr(call, ++i, 1); continue }
            if (c == "\"") in_string = !in_string
            if (!in_string && c == "(") depth++
            if (!in_string && (c == ")" && --depth < 0)) break
            if (!in_string && depth == 0 && c == ",") {
                if (argument == 2) code = words
                if (argument == 5) break
                argument++; words = ""
                continue
            }
            words = words c
        }
        if (argument == 5) strings(words)
    }
    FNR == 1 { on = 0 }
    !on && /(^|[^a-z_])diagnose\(/ { on = 1; call = ""; sub(/.*[^a-z_]diagnose\(|^diagnose\(/, "") }
    on { sub(/^ +/, " "); call = call $0 }
    on && /;$/ { on = 0; look(call) }' {} + | sort | uniq -d | grep . && bad "a sentence of a diagnostic stands at two places"
finish "diagnostics are written once"

# Words of others are made harmless in one place.
wrong=0
grep -rnE '&(amp|lt|gt|quot);' src --include='*.[ch]' | grep -v '^src/base/escape\.c:' && bad "escape with text_add_escaped and ESCAPE_PAGE"
finish "one escape for pages"

# JSON is written in one place.
wrong=0
grep -rnE '\\\\u%04x|ufffd' src cli --include='*.c' | grep -v '^src/base/json\.c:' && bad "write JSON with src/base/json.h"
grep -nE '\\"[a-z_]+\\": ' cli/*.c && bad "the library writes JSON, not the command"
finish "one writer of JSON"

# Strides are asked about in one place, so that all answers are the same for no elements, one, and odd addresses.
wrong=0
grep -rnE '^static [a-z0-9_]+ \*?(is|are|has)?_?(row_major|contiguous|aligned|dense|bulk)\(const (array_view|graph_node|tile_type)' \
    src --include='*.c' | grep -v '^src/ir/view\.c:' && bad "ask src/ir/view.h"
grep -rnE 'strides\[[a-z]+\] = (step|inner);' src --include='*.c' | grep -vE '^src/(ir/view|ir/npy|run/workbench/check_compare)\.c:' &&
    bad "set strides with strides_set_row_major"
finish "views are asked in one place"

# What a device can is a row of targets.def: names are compared nowhere else.
wrong=0
grep -rnE 'str(n?)cmp\([^;]*"(cpu|cuda|emu|ref)"' src --include='*.c' | grep -vE '^src/device/' |
    grep -vE '(raw_language|word|stage|wanted), "cuda"|self_cuda' && bad "ask src/target/target.h"
finish "devices by what they can"

# Comments name files that are there.
wrong=0
find . -path './build*' -prune -o -path './.git' -prune -o -type f -print | sed 's|.*/||' >"${TMPDIR:-/tmp}/quern-style.$$"
find src cli include -name '*.[ch]' -exec awk '
    FNR == 1 { on = 0 }
    /\/\*/ { on = 1 }
    on {
        words = $0
        while (match(words, /[-A-Za-z_0-9\/*]+\.(c|h|def|sh|md)([^A-Za-z_0-9.]|$)/)) {
            name = substr(words, RSTART, RLENGTH)
            words = substr(words, RSTART + RLENGTH)
            sub(/[^a-z]$/, "", name)
            sub(/.*\//, "", name)
            if (name !~ /[*]/) print name " in " FILENAME
        }
    }
    /\*\// { on = 0 }' {} + | sort -u |
    awk -v known="${TMPDIR:-/tmp}/quern-style.$$" '
        BEGIN { while ((getline name < known) > 0) there[name] = 1 }
        !($1 in there) && $1 !~ /^(math|float|cuda_fp16)\.h$/' | grep . && bad "these files are not there"
rm -f "${TMPDIR:-/tmp}/quern-style.$$"
finish "comments name files that exist"

# ... and functions, fields and variables: a word with an underscore in a comment stands in the code somewhere. Names in quotes are
# of generated text or of others.
wrong=0
find src cli tests bench python kernels \( -name '*.[ch]' -o -name '*.def' -o -name '*.cuh' -o -name '*.py' -o -name '*.qn' \) -exec awk '
    function words(line, what) {
        while (match(line, /[A-Za-z][A-Za-z0-9_]*/)) {
            name = substr(line, RSTART, RLENGTH)
            if (what == "code") there[name] = 1
            else if (name ~ /^[a-z][a-z0-9]*(_[a-z0-9]+)+$/) said[name] = FILENAME
            line = substr(line, RSTART + RLENGTH)
        }
    }
    FNR == 1 { on = 0; own = FILENAME ~ /^(src|cli)\/.*\.[ch]$/ && FILENAME !~ /prelude\/|emu\/text/ }
    !own { words($0, "code"); next }
    {
        rest = $0
        while (rest != "") {
            if (!on && match(rest, /"([^"\\]|\\.)*"/) && (!(at = index(rest, "/*")) || RSTART < at)) {
                at = RSTART + RLENGTH
                words(substr(rest, 1, at - 1), "code")
                rest = substr(rest, at)
            } else if (!on) {
                at = index(rest, "/*")
                words(at ? substr(rest, 1, at) : rest, "code")
                rest = at ? substr(rest, at + 2) : ""
                on = at > 0
            } else {
                at = index(rest, "*/")
                part = at ? substr(rest, 1, at) : rest
                gsub(/"[^"]*"|`[^`]*`|[-<>*.\/][a-z0-9_]+|[a-z0-9_]+[<*.\/>]/, " ", part)
                words(part, "comment")
                rest = at ? substr(rest, at + 2) : ""
                on = !at
            }
        }
    }
    END { for (name in said) if (!(name in there)) print name " in a comment of " said[name] }' {} + | grep . && bad "these are not in the code"
finish "comments name what exists"

# Every code of a diagnostic stands once in errors.def, with the words of the table in docs/language.md, and something
# says it; nobody writes a code as text, or looks for one in a message: qn_error has it.
wrong=0
sed -n 's/^ERROR(\([EWR]\), \([0-9]*\), "\(.*\)", "\(.*\)")$/| \1\2 | \3 | \4 |/p' src/base/errors.def | sed 's/|  |$/| |/' >"${TMPDIR:-/tmp}/quern-codes.$$"
grep -E '^\| [EWR][0-9]{3} ' docs/language.md | diff - "${TMPDIR:-/tmp}/quern-codes.$$" ||
    bad "the table of docs/language.md and src/base/errors.def differ"
grep -oE '^\| [EWR][0-9]{3}' "${TMPDIR:-/tmp}/quern-codes.$$" | sed 's/^| //' | while read -r code; do
    number=${code#?}
    grep -rqwE "$code" src --include='*.c' || grep -rqE "(report|again)\(s, $number," src/ir --include='*.c' ||
        grep -rqE "\b$number\b" src/ir/interp*.c || echo "$code is documented, and nothing says it"
done | grep . && bad "documented diagnostics exist"
rm -f "${TMPDIR:-/tmp}/quern-codes.$$"
grep -rnE '"(error )?[EWR][0-9]{3}[":]' src --include='*.c' | grep -vE ':[0-9]+: *(/\*|\*)' | grep . &&
    bad "codes of diagnostics are names: E101, not text"
grep -rnE 'strstr\([^;]*(message|error_words)' src cli --include='*.c' | grep -vE '^src/(base/error|run/workbench/check_tell|tensor/function_value)\.c:|has no kernel' |
    grep . && bad "a message is not searched: qn_error has the code and the place"
finish "codes of diagnostics"

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
