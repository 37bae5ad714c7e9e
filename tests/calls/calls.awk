# From declarations, one a line ("qn_tensor qn_add(qn_tensor a, qn_tensor b)"), to C: for each function one call with
# nothing (NULL, zeros, and the handles that are there: TAPE, MODULE ...) and one whose arguments calls.c chooses.
# SPDX-License-Identifier: MIT
function chosen(type, name)
{
    if (type ~ /qn_error \*$/) return "ERROR"
    if (type ~ /\(\*/) return "choose_activation()"
    if (type == "const char *const *") return "choose_list()"
    if (type ~ /^(const )?char \*$/) return "choose_words()"
    if (type ~ /qn_tensor \*$/) return "choose_tensors()"
    if (type == "qn_bench_results *") return "NULL" # takes back what only a run of it gives
    if (type ~ /qn_[a-z_]+ \*$/) {
        gsub(/const |struct | \*/, "", type)
        if (type ~ /^qn_(write|deleter|forward|read_line|data_progress|dlrm_take|bench_function)$/) return "choose_" type "()"
        if (type ~ /^qn_(context|module|call|buffer|tape|stream|event|graph|plan|model|optimizer|dataset|metadata|safetensors|loader|meter|dlrm|profile|counting)$/)
            return "choose_handle(&the_" type ")"
        return "choose_struct(\"" type "\")"
    }
    if (type ~ /\*$/) return "choose_memory()"
    if (type == "qn_tensor") return "choose_tensor()"
    if (type == "qn_shape" || type == "qn_axes" || type == "qn_position" || type == "qn_init") return "choose_" type "()"
    if (name == "length") return "0" # what words have is not known here
    if (called == "qn_file_write" && name == "size_bytes") return "(size_t)choose_number() % sizeof(memory)" # all it is told
    if (type == "double") return "choose_double()"
    if (type == "bool" || type == "_Bool") return "choose_bool()"
    if (name ~ /count|rank|room/) return "(" type ")choose_count()"
    return "(" type ")choose_number()"
}
{
    gsub(/[ \t]+/, " ")
    open = index($0, "(")
    head = substr($0, 1, open - 1)
    list = substr($0, open + 1)
    sub(/\) *$/, "", list)
    match(head, /qn_[a-z0-9_]+$/)
    called = name = substr(head, RSTART)
    is_status = head ~ /(^| )qn_status /
    count = split(list, params, ",")
    nothing = ""
    hostile = ""
    handles = 0
    for (i = 1; i <= count; i++) {
        p = params[i]
        sub(/^ */, "", p)
        sub(/ *$/, "", p)
        if (p == "void") continue
        type = p
        match(type, /[a-zA-Z_0-9]+$/)
        if (RSTART) {
            parameter = substr(type, RSTART)
            type = substr(type, 1, RSTART - 1)
        }
        sub(/ *$/, "", type)
        word = "(" type "){0}"
        if (type ~ /qn_error \*$/) word = "ERROR"
        else if (type ~ /qn_context \*$/) word = "CONTEXT"
        else if (type ~ /qn_tape \*$/) word = "TAPE"
        else if (type ~ /qn_module \*$/) word = "MODULE"
        else if (type ~ /qn_call \*$/) word = "CALL"
        else if (type ~ /qn_buffer \*$/) word = "BUFFER"
        else if (p ~ /\*/) word = "0"
        if (word != "ERROR" && (p ~ /\*/ || type == "qn_tensor")) handles++
        comma = nothing == "" ? "" : ", "
        nothing = nothing comma word
        hostile = hostile comma chosen(type, parameter)
    }
    result = is_status ? "status = " : head ~ /(^| )qn_tensor / ? "result = " : "(void)"
    printf "static int nothing_%d(void) { %s%s(%s); return %d; }\n", NR, result, name, nothing, (is_status && handles > 0)
    printf "static int hostile_%d(void) { %s%s(%s); return %d; }\n", NR, result, name, hostile, is_status
    table = table sprintf("    {\"%s\", nothing_%d, hostile_%d},\n", name, NR, NR)
}
END { print "static const struct { const char *name; int (*nothing)(void), (*hostile)(void); } calls[] = {\n" table "};" }
