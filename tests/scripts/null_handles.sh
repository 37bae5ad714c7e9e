#!/bin/sh
# Every public function with NULL in the place of every handle, name and array, and zero for every number: a status with
# a message, an empty handle or nothing, never a crash. The calls are made from the headers, so a new function cannot be
# forgotten. Each call runs in a process of its own, four times: with nothing at all, without an error to fill, with a
# context, and with a context, tape, module, call and buffer that are there.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$root" || exit 1
export QUERN_CACHE="$work/cache"
sanitize=$(sed -n 's/^QUERN_SANITIZE:STRING=\(.*\)$/\1/p' "$build/CMakeCache.txt")
flags="-std=gnu11 -w -I$root/include"
[ -n "$sanitize" ] && flags="$flags -fsanitize=$sanitize"

make_calls() {
# One line for each declaration: macros, comments and line ends away, cut at semicolons.
sed 's://.*$::' "$header" | awk '
    /^[ \t]*#/ { macro = 1 }
    macro { macro = /\\$/; next }
    { line = line " " $0 }
    END {
        while ((start = index(line, "/*")) > 0) {
            rest = substr(line, start)
            line = substr(line, 1, start - 1) " " substr(rest, index(rest, "*/") + 2)
        }
        count = split(line, parts, ";")
        for (i = 1; i <= count; i++)
            if ((start = index(parts[i], "QN_API ")) > 0 && parts[i] ~ /\)[ ]*$/) print substr(parts[i], start + 7)
    }' | grep -v '##' >"$work/declared"
grep -oE 'F\([a-z0-9_]+\)' "$header" | grep -v 'F(name)' | sort -u |
    sed 's/F(\(.*\))/qn_tensor qn_\1(qn_tensor x)/' >>"$work/declared"

awk '
    {
        gsub(/QN_MUST_CHECK/, "")
        gsub(/[ \t]+/, " ")
        open = index($0, "(")
        head = substr($0, 1, open - 1)
        list = substr($0, open + 1)
        sub(/\) *$/, "", list)
        match(head, /qn_[a-z0-9_]+$/)
        name = substr(head, RSTART)
        is_status = head ~ /(^| )qn_status /
        count = split(list, params, ",")
        arguments = ""
        handles = 0
        for (i = 1; i <= count; i++) {
            p = params[i]
            if (p ~ /^ *void *$/) continue
            if (p ~ /qn_error \*/) word = "ERROR"
            else if (p ~ /qn_context \*[a-z_]*$/ && p !~ /\*\*/) word = "CONTEXT"
            else if (p ~ /qn_tape \*[a-z_]*$/) word = "TAPE"
            else if (p ~ /qn_module \*[a-z_]*$/) word = "MODULE"
            else if (p ~ /qn_call \*[a-z_]*$/) word = "CALL"
            else if (p ~ /qn_buffer \*[a-z_]*$/) word = "BUFFER"
            else if (p ~ /\*/) word = "0"
            else {
                sub(/[a-zA-Z_0-9]+ *$/, "", p)
                word = "(" p "){0}"
            }
            if (word != "ERROR" && (p ~ /\*/ || p ~ /qn_tensor/)) handles++
            arguments = arguments (arguments == "" ? "" : ", ") word
        }
        printf "static int call_%d(void) { ", NR
        if (is_status) printf "status = %s(%s); return %d; }\n", name, arguments, (handles > 0)
        else printf "(void)%s(%s); return 0; }\n", name, arguments
        table = table sprintf("    {\"%s\", call_%d},\n", name, NR)
    }
    END { print "static const struct { const char *name; int (*call)(void); } calls[] = {\n" table "};" }' \
    "$work/declared" >"$work/calls.h"
}

cat >"$work/all.c" <<'C'
#define QN_NO_CALL_SITES
#include <quern/quern.h>
#include HEADER
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static qn_error error, *ERROR = &error;
static qn_status status = QN_OK;
static qn_context *CONTEXT;
#ifdef QUERN_TENSOR_H
static qn_tape *TAPE;
#endif
static qn_module *MODULE;
static qn_call *CALL;
static qn_buffer *BUFFER;
#include "calls.h"
static int one(int number, int mode)
{
    alarm(60);
    if (mode >= 2 && qn_context_open(NULL, &CONTEXT, &error)) return 3;
    if (mode >= 3) {
        static const char text[] = "kernel k(in float x[n], out float y[n]) launch (n) { y[program(0)] = x[program(0)]; }";
#ifdef QUERN_TENSOR_H
        if (qn_tape_new(CONTEXT, "ref", &TAPE, &error)) return 3;
#endif
        if (qn_module_load_text(CONTEXT, "k.qn", text, &MODULE, &error) ||
            qn_call_new(MODULE, "k", &CALL, &error) || qn_buffer_new(CONTEXT, 64, &BUFFER, &error))
            return 3;
    }
    memset(&error, 0, sizeof(error));
    if (mode == 1) ERROR = NULL;
    int refuses = calls[number].call();
    if (mode > 1 || !refuses) return 0;
    if (status == QN_OK) return 1;
    return mode == 0 && (!error.message[0] || error.status != status) ? 2 : 0;
}
int main(void)
{
    static const char *const modes[] = {"nothing", "no error to fill", "a context", "everything but names"};
    int passed = 0, failed = 0, count = (int)(sizeof(calls) / sizeof(calls[0]));
    if (freopen("/dev/null", "r", stdin) == NULL) return 1;
    for (int mode = 0; mode < 4; mode++)
        for (int i = 0; i < count; i++) {
            fflush(stdout);
            pid_t child = fork();
            if (!child) _exit(one(i, mode));
            int state = 0;
            waitpid(child, &state, 0);
            const char *why = WIFSIGNALED(state) ? strsignal(WTERMSIG(state))
                              : WEXITSTATUS(state) == 1 ? "says that all is well"
                              : WEXITSTATUS(state) == 2 ? "gives no message, or another status in it"
                              : WEXITSTATUS(state) ? "ends otherwise" : NULL;
            if (why) printf("FAILED %s with %s: %s\n", calls[i].name, modes[mode], why);
            *(why ? &failed : &passed) += 1;
        }
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
C
passed=0
failed=0
functions=0
for header in include/quern/*.h; do
    name=$(basename "$header" .h)
    make_calls
    [ -s "$work/declared" ] || continue
    functions=$((functions + $(wc -l <"$work/declared")))
    if ! cc $flags -I"$work" -DHEADER="<quern/$name.h>" "$work/all.c" -L"$build" -Wl,-rpath,"$build" -lquern -o "$work/all" >"$work/log" 2>&1; then
        echo "FAILED the calls of $name.h do not compile"
        head -30 "$work/log"
        failed=$((failed + 1))
        continue
    fi
    # No GPU: every process would open its driver.
    CUDA_VISIBLE_DEVICES=-1 QUERN_CUDA_PATH=none "$work/all" >"$work/out"
    grep FAILED "$work/out"
    passed=$((passed + $(sed -n 's/^\([0-9]*\) passed.*/\1/p' "$work/out")))
    failed=$((failed + $(sed -n 's/.* \([0-9]*\) failed$/\1/p' "$work/out")))
done
if [ "$functions" -lt 300 ]; then
    echo "FAILED only $functions functions were found in the headers"
    failed=$((failed + 1))
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
