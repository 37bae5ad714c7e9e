/*
 * The files that a profile leaves. In: words such as "trace=run.json.gz,table=run.txt,sort=device,active=3", from the
 * caller or from QUERN_PROFILE. Out: those files.
 *
 * A backslash takes the next character as it is; %p is the number of the process. Whatever can go wrong with a file is
 * found when the profile starts, before the work is done, unless the disk fills up later.
 * SPDX-License-Identifier: MIT
 */
#include "profile/bench/outputs.h"

#include "profile/sink.h"
#include "profile/trace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef enum output_key {
    TRACE,
    TENSORBOARD,
    FOLDED,
    TABLE,
    CSV,
    JSON,
    MARKDOWN,
    MEMORY,
    HINTS,
    HINTS_MOST,
    REPORT,
    STATUS,
    COMMAND,
    BY,
    FORMAT,
    SORT,
    ROWS,
    TRACE_MB,
    WAIT,
    WARMUP,
    ACTIVE,
    REPEAT,
    NODES,
    NVTX,
    COUNTERS,
    STALLS,
    KEYS
} output_key;
static const char *const keys[KEYS] = {[TRACE] = "trace",       [TENSORBOARD] = "tensorboard",
                                       [FOLDED] = "folded",     [TABLE] = "table",
                                       [CSV] = "csv",           [JSON] = "json",
                                       [MARKDOWN] = "markdown", [MEMORY] = "memory",
                                       [HINTS] = "hints",       [HINTS_MOST] = "hints_most",
                                       [REPORT] = "report",     [STATUS] = "status",
                                       [COMMAND] = "command",   [BY] = "by",
                                       [FORMAT] = "format",     [SORT] = "sort",
                                       [ROWS] = "rows",         [TRACE_MB] = "trace_mb",
                                       [WAIT] = "wait",         [WARMUP] = "warmup",
                                       [ACTIVE] = "active",     [REPEAT] = "repeat",
                                       [NODES] = "nodes",       [NVTX] = "nvtx",
                                       [COUNTERS] = "counters", [STALLS] = "stalls"};

struct profile_outputs {
    arena *memory;
    const char *words[KEYS]; /* NULL: not given */
    const char *trace_path;  /* with what TensorBoard wants */
    qn_table_options table;
    qn_hint_options hints;
};

/* ---- reading ---- */

/* The words up to the next comma, unescaped; *at goes behind it. */
static const char *next_part(profile_outputs *o, const char **at)
{
    text part = {0};
    for (; **at && **at != ','; (*at)++) {
        if (**at == '\\' && (*at)[1]) {
            (*at)++;
        } else if (**at == '%' && (*at)[1] == 'p') {
            text_print(&part, "%d", (int)getpid());
            (*at)++;
            continue;
        }
        text_add_bytes(&part, *at, 1);
    }
    if (**at) (*at)++;
    const char *words = arena_copy_text(o->memory, text_get(&part), part.length);
    text_free(&part);
    return words;
}

static qn_status read_words(profile_outputs *o, const char *words, qn_error *error)
{
    while (*words) {
        const char *part = next_part(o, &words), *equals = strchr(part, '=');
        if (!*part) continue;
        int key = 0, length = equals ? (int)(equals - part) : (int)strlen(part);
        while (key < KEYS && ((int)strlen(keys[key]) != length || strncmp(keys[key], part, (size_t)length))) key++;
        if (key == KEYS) {
            const char *near = suggest_name(arena_copy_text(o->memory, part, (size_t)length), keys, KEYS);
            if (near)
                return error_set(error, QN_BAD_CALL, "a profile's outputs have no `%.*s`; did you mean `%s`?", length,
                                 part, near);
            return error_set(error, QN_BAD_CALL,
                             "a profile's outputs have no `%.*s`; they are like trace=run.json.gz,table=run.txt",
                             length, part);
        }
        if (!equals || !equals[1])
            return error_set(error, QN_BAD_CALL, "`%s` of a profile's outputs needs a value: %s=...", keys[key],
                             keys[key]);
        o->words[key] = equals + 1;
    }
    return QN_OK;
}

static qn_status read_choice(const profile_outputs *o, output_key key, const char *const *choices, int count, int *out,
                             qn_error *error)
{
    if (!o->words[key]) return QN_OK;
    text all = {0};
    for (int i = 0; i < count; i++) {
        if (!strcmp(o->words[key], choices[i])) {
            *out = i;
            text_free(&all);
            return QN_OK;
        }
        text_print(&all, "%s%s", i ? ", " : "", choices[i]);
    }
    error_set(error, QN_BAD_CALL, "%s=%s: it is one of %s", keys[key], o->words[key], text_get(&all));
    text_free(&all);
    return QN_BAD_CALL;
}

static qn_status read_whole(const profile_outputs *o, output_key key, int least, int *out, qn_error *error)
{
    if (!o->words[key]) return QN_OK;
    char *end;
    errno = 0;
    long number = strtol(o->words[key], &end, 10);
    if (*end || errno || number < least || number > 1000000000)
        return error_set(error, QN_BAD_CALL, "%s=%s: it is a whole number from %d", keys[key], o->words[key], least);
    *out = (int)number;
    return QN_OK;
}

static qn_status read_all(qn_profile *p, profile_outputs *o, int *trace_mb, qn_error *error)
{
    static const char *const groupings[] = {"op", "shape", "kernel", "range"};
    static const char *const formats[] = {"text", "csv", "json", "markdown"};
    int by = 0, format = 0;
    QN_TRY(read_words(o, p->options.outputs, error));
    QN_TRY(read_choice(o, BY, groupings, COUNT(groupings), &by, error));
    QN_TRY(read_choice(o, FORMAT, formats, COUNT(formats), &format, error));
    o->table = (qn_table_options){.by = (qn_table_by)by, .format = (qn_table_format)format, .sort = o->words[SORT]};
    QN_TRY(read_whole(o, ROWS, -1, &o->table.rows, error));
    QN_TRY(read_whole(o, HINTS_MOST, 0, &o->hints.most, error));
    QN_TRY(read_whole(o, TRACE_MB, 1, trace_mb, error));
    QN_TRY(read_whole(o, WAIT, 0, &p->options.wait, error));
    QN_TRY(read_whole(o, WARMUP, 0, &p->options.warmup, error));
    QN_TRY(read_whole(o, ACTIVE, 0, &p->options.active, error));
    QN_TRY(read_whole(o, REPEAT, 0, &p->options.repeat, error));
    int nodes = p->options.graph_nodes, nvtx = p->options.nvtx;
    QN_TRY(read_whole(o, NODES, 0, &nodes, error));
    QN_TRY(read_whole(o, NVTX, 0, &nvtx, error));
    p->options.graph_nodes = nodes != 0;
    p->options.nvtx = nvtx != 0;
    return QN_OK;
}

/* `<worker>.<nanoseconds>.pt.trace.json`, where TensorBoard looks for it. */
static qn_status name_trace(const qn_profile *p, profile_outputs *o, qn_error *error)
{
    char host[128] = "host";
    o->trace_path = o->words[TRACE];
    if (!o->words[TENSORBOARD]) return QN_OK;
    if (o->words[TRACE])
        return error_set(error, QN_BAD_CALL, "a profile writes one trace: give trace= or tensorboard=, not both");
    QN_TRY(folder_make(o->words[TENSORBOARD], error));
    if (gethostname(host, sizeof(host) - 1)) snprintf(host, sizeof(host), "host");
    o->trace_path = arena_print(o->memory, "%s/%s_%d.%lld.pt.trace.json", o->words[TENSORBOARD], host, (int)getpid(),
                                (long long)p->start_ns);
    return QN_OK;
}

static void write_words(const char *path, const char *words)
{
    sink *to;
    if (sink_open(path, &to, NULL) != QN_OK) return;
    sink_add(to, words, strlen(words));
    (void)!sink_close(to, true, NULL);
}

static qn_status open_all(qn_profile *p, profile_outputs *o, qn_error *error)
{
    static const output_key files[] = {FOLDED, TABLE, CSV, JSON, MARKDOWN, MEMORY, HINTS, REPORT, STATUS};
    int trace_mb = 0;
    QN_TRY(read_all(p, o, &trace_mb, error));
    QN_TRY(table_sort_check(&o->table, error));
    QN_TRY(name_trace(p, o, error));
    for (int i = 0; i < COUNT(files); i++)
        if (o->words[files[i]]) QN_TRY(sink_probe(o->words[files[i]], error));
    if (o->trace_path) QN_TRY(trace_open(p, o->trace_path, (int64_t)trace_mb * 1000000, &p->trace, error));
    if (o->words[STATUS]) write_words(o->words[STATUS], "running\n");
    return QN_OK;
}

qn_status outputs_open(qn_profile *p, qn_error *error)
{
    if (!p->options.outputs || !*p->options.outputs) return QN_OK;
    arena *memory = arena_new();
    p->outputs = ARENA_NEW(memory, profile_outputs);
    p->outputs->memory = memory;
    return open_all(p, p->outputs, error);
}

/* ---- writing ---- */

static void write_to_sink(void *user, const char *words, size_t length)
{
    sink_add(user, words, length);
}

static qn_status write_one(const qn_profile *p, const profile_outputs *o, output_key key, qn_error *error)
{
    sink *to;
    if (key == FOLDED) return qn_profile_write_folded(p, o->words[key], error);
    if (key == REPORT)
        return qn_profile_report(p, o->words[key],
                                 &(qn_report_options){.command = o->words[COMMAND],
                                                      .trace_path = o->trace_path,
                                                      .counters_path = o->words[COUNTERS],
                                                      .stalls_path = o->words[STALLS]},
                                 error);
    qn_table_options table = o->table;
    bool tabular = key >= TABLE && key <= MARKDOWN;
    if (key > TABLE && tabular) table.format = (qn_table_format)(QN_TABLE_CSV + (key - CSV));
    QN_TRY(sink_open(o->words[key], &to, error));
    qn_status status = tabular         ? qn_profile_table(p, &table, write_to_sink, to, error)
                       : key == MEMORY ? qn_profile_memory(p, write_to_sink, to, error)
                                       : qn_profile_hints(p, &o->hints, write_to_sink, to, error);
    qn_status closed = sink_close(to, status == QN_OK, status == QN_OK ? error : NULL);
    return status == QN_OK ? closed : status;
}

/* For whoever started the process: what became of it, a word and a value a line. */
static void write_status(const qn_profile *p, const profile_outputs *o, qn_status status, const qn_error *error)
{
    text words = {0};
    int64_t kernels = 0;
    for (int i = 0; i < p->sum_count; i++)
        if (p->sums[i].kind == RECORD_LAUNCH || p->sums[i].kind == RECORD_KERNEL) kernels += p->sums[i].sum.calls;
    text_print(&words, "records %lld\nkernels %lld\ndropped %lld\nsteps %lld\n", (long long)p->records,
               (long long)kernels, (long long)p->lost, (long long)p->step);
    if (o->trace_path) text_print(&words, "trace %s\n", o->trace_path);
    if (status != QN_OK) text_print(&words, "error %s\n", error->message);
    write_words(o->words[STATUS], text_get(&words));
    text_free(&words);
}

qn_status outputs_write(qn_profile *p, qn_error *error)
{
    static const output_key files[] = {FOLDED, TABLE, CSV, JSON, MARKDOWN, MEMORY, HINTS, REPORT};
    profile_outputs *o = p->outputs;
    if (!o) return QN_OK;
    qn_error first;
    qn_status status = trace_close(p->trace, p, true, &first);
    p->trace = NULL;
    for (int i = 0; i < COUNT(files); i++) {
        qn_error inner;
        if (!o->words[files[i]]) continue;
        qn_status written = write_one(p, o, files[i], &inner);
        if (status != QN_OK || written == QN_OK) continue;
        status = written;
        first = inner;
    }
    if (o->words[STATUS]) write_status(p, o, status, &first);
    outputs_free(p);
    return status == QN_OK ? QN_OK : error_set(error, status, "%s", first.message);
}

void outputs_free(qn_profile *p)
{
    if (p->trace) (void)!trace_close(p->trace, p, false, NULL);
    if (p->outputs) arena_free(p->outputs->memory);
    p->trace = NULL;
    p->outputs = NULL;
}
