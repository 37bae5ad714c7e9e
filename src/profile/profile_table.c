/*
 * Tables of a profile. In: rows (profile_rows.c). Out: the same, sorted, as text, CSV, JSON, Markdown or (of ranges, for
 * the report) HTML, with the columns and the last lines that users of PyTorch's profiler know.
 * A column in which no row has anything is left out of text and Markdown; CSV and JSON always have all of them.
 * SPDX-License-Identifier: MIT
 */
#include "profile/profile_table.h"
#include "profile/report/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- columns ---- */

typedef enum column_kind { WORDS, TIME, SHARE, NUMBER, SIZE, RATE } column_kind;
typedef struct column {
    const char *title, *key, *other; /* in text; in CSV and JSON, and to sort by; PyTorch's name, or NULL */
    column_kind kind;
} column;
enum {
    NAME,
    SELF_SHARE,
    SELF,
    TOTAL_SHARE,
    TOTAL,
    AVERAGE,
    DEVICE_SELF,
    DEVICE_SELF_SHARE,
    DEVICE_TOTAL,
    DEVICE_AVERAGE,
    ESTIMATED,
    CALLS,
    MEMORY,
    FLOPS,
    BYTES_RATE,
    FLOPS_RATE,
    ROOFLINE,
    BOUND,
    DEVICE,
    KIND,
    SHAPES,
    SOURCE,
    COLUMNS
};
static const column columns[COLUMNS] = {
    [NAME] = {"Name", "name", "key", WORDS},
    [SELF_SHARE] = {"Self CPU %", "self_cpu_percent", NULL, SHARE},
    [SELF] = {"Self CPU", "self_cpu", "self_cpu_time_total", TIME},
    [TOTAL_SHARE] = {"CPU total %", "cpu_percent", NULL, SHARE},
    [TOTAL] = {"CPU total", "cpu", "cpu_time_total", TIME},
    [AVERAGE] = {"CPU time avg", "cpu_average", "cpu_time", TIME},
    [DEVICE_SELF] = {"Self device", "self_device", "self_device_time_total", TIME},
    [DEVICE_SELF_SHARE] = {"Self device %", "self_device_percent", NULL, SHARE},
    [DEVICE_TOTAL] = {"Device total", "device", "device_time_total", TIME},
    [DEVICE_AVERAGE] = {"Device time avg", "device_average", "device_time", TIME},
    [ESTIMATED] = {"Estimated", "estimated_percent", NULL, SHARE},
    [CALLS] = {"# of Calls", "calls", "count", NUMBER},
    [MEMORY] = {"Memory", "memory", "self_device_memory_usage", SIZE},
    [FLOPS] = {"FLOPs", "flops", NULL, NUMBER},
    [BYTES_RATE] = {"GB/s", "gb_per_s", NULL, RATE},
    [FLOPS_RATE] = {"TFLOP/s", "tflop_per_s", NULL, RATE},
    [ROOFLINE] = {"% of roofline", "roofline_percent", NULL, SHARE},
    [BOUND] = {"Bound by", "bound", NULL, WORDS},
    [DEVICE] = {"Device", "device_name", NULL, WORDS},
    [KIND] = {"Kind", "kind", NULL, WORDS},
    [SHAPES] = {"Shapes", "shapes", NULL, WORDS},
    [SOURCE] = {"Kernel", "source", NULL, WORDS}, /* in text the other way round: see words_of */
};

static double share_of(int64_t part, int64_t whole)
{
    return whole ? 100 * (double)part / (double)whole : NAN;
}

/* NAN: nobody knows, or there is none. Times in nanoseconds, sizes in bytes. */
static double number_of(const view *v, const row *r, int column)
{
    double device_ns = (double)r->device_self_ns;
    if (!r->calls && column >= SELF_SHARE && column <= AVERAGE) return NAN; /* the host did nothing of that name */
    switch (column) {
    case SELF_SHARE: return share_of(r->self_ns, v->self_total_ns);
    case SELF: return (double)r->self_ns;
    case TOTAL_SHARE: return share_of(r->total_ns, v->self_total_ns);
    case TOTAL: return (double)r->total_ns;
    case AVERAGE: return r->calls ? (double)r->total_ns / (double)r->calls : NAN;
    case DEVICE_SELF: return r->device_self_ns ? device_ns : NAN;
    case DEVICE_SELF_SHARE: return r->device_self_ns ? share_of(r->device_self_ns, v->device_total_ns) : NAN;
    case DEVICE_TOTAL: return r->device_total_ns ? (double)r->device_total_ns : NAN;
    case DEVICE_AVERAGE: {
        int64_t calls = r->device_self_ns && r->device_calls ? r->device_calls : r->calls;
        return r->device_total_ns && calls ? (double)r->device_total_ns / (double)calls : NAN;
    }
    case ESTIMATED: return r->estimated_ns ? share_of(r->estimated_ns, r->device_total_ns) : NAN;
    case CALLS:
        if (!r->calls && !r->device_calls) return NAN; /* a range of a captured step, which nobody enters again */
        return (double)((v->options.by == QN_BY_KERNEL || !r->calls) && r->device_calls ? r->device_calls : r->calls);
    case MEMORY: return r->memory_bytes ? (double)r->memory_bytes : NAN;
    case FLOPS: return r->flops > 0 ? r->flops : NAN;
    case BYTES_RATE: return r->device_self_ns && r->bytes > 0 ? r->bytes / device_ns : NAN;
    case FLOPS_RATE: return r->device_self_ns && r->flops > 0 ? r->flops / device_ns * 1e-3 : NAN;
    case ROOFLINE: return 100 * r->roofline;
    default: return NAN;
    }
}

/* Rows of kernels are named in text by what people wrote: the operations of a fused one and their place, and its own
 * name stands at the end. CSV and JSON have the name in `name`. */
static bool is_named_by_source(const view *v, const row *r)
{
    bool text = v->options.format == QN_TABLE_TEXT || v->options.format == QN_TABLE_MARKDOWN;
    return text && v->options.by == QN_BY_KERNEL && r->source && r->fused;
}

static const char *words_of(const view *v, const row *r, int column)
{
    if (is_named_by_source(v, r)) column = column == NAME ? SOURCE : column == SOURCE ? NAME : column;
    return column == NAME     ? r->name
           : column == BOUND  ? limit_words(r->roofline, r->bound)
           : column == SOURCE ? r->source
           : column == DEVICE ? r->device
           : column == KIND   ? r->kind
                              : r->shapes;
}

static bool is_empty(const view *v, int column)
{
    bool shapes = v->options.by == QN_BY_OP_AND_SHAPE;
    if (column == SHAPES && !shapes) return true;
    if (column == KIND) return v->options.by != QN_BY_OP && v->options.by != QN_BY_OP_AND_SHAPE;
    for (int i = 0; i < v->row_count; i++) {
        if (columns[column].kind == WORDS ? words_of(v, &v->rows[i], column) != NULL
                                          : !isnan(number_of(v, &v->rows[i], column)))
            return false;
    }
    return column != NAME;
}

/* ---- sorting ---- */

static int sort_column(const view *v, qn_error *error)
{
    const char *wanted = v->options.sort;
    if (!wanted) return v->options.by == QN_BY_KERNEL ? DEVICE_SELF : v->options.by == QN_BY_RANGE ? TOTAL : SELF;
    if (!strncmp(wanted, "self_cuda", 9) || !strncmp(wanted, "cuda", 4)) /* PyTorch's older names */
        return strstr(wanted, "self") ? DEVICE_SELF : DEVICE_TOTAL;
    const char *names[COLUMNS];
    int count = 0;
    for (int i = 0; i < COLUMNS; i++) {
        if (!strcmp(wanted, columns[i].key) || (columns[i].other && !strcmp(wanted, columns[i].other))) return i;
        if (i != KIND && i != SHAPES && i != BOUND && i != SOURCE) names[count++] = columns[i].key;
    }
    const char *near = suggest_name(wanted, names, count);
    text all = {0};
    for (int i = 0; i < count; i++) text_print(&all, "%s%s", i ? ", " : "", names[i]);
    if (near)
        error_set(error, QN_BAD_CALL, "a profile's table has no column `%s` to sort by; did you mean `%s`?", wanted,
                  near);
    else
        error_set(error, QN_BAD_CALL, "a profile's table has no column `%s` to sort by; there are %s", wanted,
                  text_get(&all));
    text_free(&all);
    return -1;
}

qn_status table_sort_check(const qn_table_options *options, qn_error *error)
{
    return sort_column(&(view){.options = *options}, error) < 0 ? QN_BAD_CALL : QN_OK;
}

static bool goes_before(const view *v, const row *a, const row *b, int column)
{
    if (columns[column].kind == WORDS) {
        const char *x = words_of(v, a, column), *y = words_of(v, b, column);
        return strcmp(x ? x : "", y ? y : "") < 0;
    }
    double x = number_of(v, a, column), y = number_of(v, b, column);
    return isnan(y) ? !isnan(x) : x > y;
}

static void sort_rows(view *v, row *rows, row *room, int count, int column)
{
    if (count < 2) return;
    int half = count / 2, a = 0, b = half, to = 0;
    sort_rows(v, rows, room, half, column);
    sort_rows(v, rows + half, room, count - half, column);
    while (a < half && b < count) room[to++] = goes_before(v, &rows[b], &rows[a], column) ? rows[b++] : rows[a++];
    while (a < half) room[to++] = rows[a++];
    while (b < count) room[to++] = rows[b++];
    memcpy(rows, room, sizeof(row) * (size_t)count);
}

/* ---- text and Markdown ---- */

static void print_cell(const view *v, const row *r, int column, text *out)
{
    double x = number_of(v, r, column);
    const char *words = columns[column].kind == WORDS ? words_of(v, r, column) : NULL;
    if (columns[column].kind == WORDS)
        text_add(out, words ? words : "");
    else if (isnan(x))
        text_add(out, "--");
    else if (columns[column].kind == TIME)
        text_add_duration(out, x);
    else if (columns[column].kind == SHARE)
        text_print(out, "%.2f%%", x);
    else if (columns[column].kind == SIZE)
        text_add_size(out, x);
    else if (columns[column].kind == RATE)
        text_print(out, x < 10 ? "%.3f" : "%.1f", x);
    else
        text_print(out, x < 1e6 ? "%.0f" : "%.4g", x);
}

static int rows_shown(const view *v)
{
    int most = v->options.rows ? v->options.rows : 30;
    return most < 0 ? v->row_count : MINIMUM(most, v->row_count);
}

static void add_footer(const view *v, text *out)
{
    const qn_profile *p = v->profile;
    int left = v->row_count - rows_shown(v);
    if (left) text_print(out, "and %d more\n", left);
    text_add(out, "Self CPU time total: ");
    text_add_duration(out, (double)v->self_total_ns);
    text_add(out, "\n");
    if (v->device_total_ns) {
        text_add(out, "Self device time total: ");
        text_add_duration(out, (double)v->device_total_ns);
        if (p->device_source) text_print(out, " (%s)", p->device_source);
        text_add(out, "\n");
    }
    if (!is_empty(v, ESTIMATED))
        text_add(out,
                 "Estimated: the part of a row's device time that is of kernels which several operations or ranges "
                 "share; it is shared out by their bytes and FLOPs\n");
    if (p->device_reason) text_print(out, "Device times: %s\n", p->device_reason);
    if (p->lost + p->device_lost)
        text_print(out,
                   "%lld records were not kept: device totals of what encloses launches, and memory, are of those that "
                   "were\n",
                   (long long)(p->lost + p->device_lost));
}

/* What a narrow terminal does without. */
static const int first_to_go[] = {
    ESTIMATED, SHAPES,         KIND,       DEVICE, FLOPS,      AVERAGE,  TOTAL_SHARE,  MEMORY,           FLOPS_RATE,
    BOUND,     DEVICE_AVERAGE, SELF_SHARE, TOTAL,  BYTES_RATE, ROOFLINE, DEVICE_TOTAL, DEVICE_SELF_SHARE};

static void write_text(const view *v, text *out)
{
    int shown[COLUMNS], count = 0;
    table t;
    text cell = {0};
    for (int i = 0; i < COLUMNS; i++)
        if (!is_empty(v, i)) shown[count++] = i;
    table_open(&t, count);
    for (int i = 0; i < count; i++) {
        table_cell(&t, "%s", columns[shown[i]].title);
        t.left[i] = columns[shown[i]].kind == WORDS;
    }
    for (int k = 0; k < rows_shown(v); k++)
        for (int i = 0; i < count; i++) {
            text_clear(&cell);
            print_cell(v, &v->rows[k], shown[i], &cell);
            table_cell(&t, "%s", text_get(&cell));
        }
    const char *least[COUNT(first_to_go)];
    for (int i = 0; i < COUNT(first_to_go); i++) least[i] = columns[first_to_go[i]].title;
    int dropped = table_fit(&t, v->options.width, least, COUNT(least));
    table_print(&t, false, out);
    table_close(&t);
    text_free(&cell);
    if (dropped)
        text_print(out, "%d column%s left out to fit the terminal; --format csv has all\n", dropped,
                   dropped == 1 ? "" : "s");
    add_footer(v, out);
}

static void add_markdown_cell(const char *words, text *out)
{
    text_add(out, "| ");
    for (; *words; words++) {
        if (*words == '|') text_add(out, "\\");
        text_add_bytes(out, words, 1);
    }
    text_add(out, " ");
}

static void write_markdown(const view *v, text *out)
{
    text cell = {0}, rule = {0};
    for (int i = 0; i < COLUMNS; i++) {
        if (is_empty(v, i)) continue;
        add_markdown_cell(columns[i].title, out);
        text_add(&rule, columns[i].kind == WORDS ? "|---" : "|---:");
    }
    text_print(out, "|\n%s|\n", text_get(&rule));
    for (int k = 0; k < rows_shown(v); k++) {
        for (int i = 0; i < COLUMNS; i++) {
            if (is_empty(v, i)) continue;
            text_clear(&cell);
            print_cell(v, &v->rows[k], i, &cell);
            add_markdown_cell(text_get(&cell), out);
        }
        text_add(out, "|\n");
    }
    text_add(out, "\n");
    text_clear(&cell);
    add_footer(v, &cell);
    for (const char *line = text_get(&cell); *line; line += strcspn(line, "\n") + 1)
        text_print(out, "%.*s  \n", (int)strcspn(line, "\n"), line);
    text_free(&cell);
    text_free(&rule);
}

/* ---- CSV and JSON: every row, every column, plain numbers ---- */

static void add_csv_words(const char *words, text *out)
{
    bool quote = strpbrk(words, ",\"\n\r");
    if (quote) text_add(out, "\"");
    for (; *words; words++) {
        if (*words == '"') text_add(out, "\"");
        text_add_bytes(out, words, 1);
    }
    if (quote) text_add(out, "\"");
}

static const char *unit_of(column_kind kind)
{
    return kind == TIME ? "_ns" : kind == SIZE ? "_bytes" : "";
}

static void write_csv(const view *v, text *out)
{
    for (int i = 0; i < COLUMNS; i++) text_print(out, "%s%s%s", i ? "," : "", columns[i].key, unit_of(columns[i].kind));
    text_add(out, "\n");
    for (int k = 0; k < v->row_count; k++) {
        for (int i = 0; i < COLUMNS; i++) {
            const char *words = columns[i].kind == WORDS ? words_of(v, &v->rows[k], i) : NULL;
            double x = number_of(v, &v->rows[k], i);
            if (i) text_add(out, ",");
            if (words) add_csv_words(words, out);
            if (columns[i].kind != WORDS && !isnan(x)) text_print(out, "%.15g", x);
        }
        text_add(out, "\n");
    }
}

static void write_json(const view *v, text *out)
{
    json j = {0};
    for (int k = 0; k < v->row_count; k++) {
        json_open_object(&j);
        for (int i = 0; i < COLUMNS; i++) {
            char key[64];
            snprintf(key, sizeof(key), "%s%s", columns[i].key, unit_of(columns[i].kind));
            if (columns[i].kind == WORDS)
                json_text(&j, key, words_of(v, &v->rows[k], i));
            else
                json_number(&j, key, number_of(v, &v->rows[k], i));
        }
        json_close_object(&j);
    }
    text_add(out, json_finish(&j));
    json_free(&j);
}

/* ---- HTML ---- */

static void write_html(const view *v, text *out)
{
    const char *heads[COLUMNS];
    int shown[COLUMNS], count = 0;
    for (int i = 0; i < COLUMNS && v->row_count; i++) {
        if (is_empty(v, i)) continue;
        heads[count] = columns[i].title;
        shown[count++] = i;
    }
    if (!count) return;
    html_table_open(out, "ranges", heads, count);
    for (int k = 0; k < v->row_count; k++) {
        text_add(out, "<tr>");
        for (int i = 0; i < count; i++) {
            double x = number_of(v, &v->rows[k], shown[i]);
            switch (columns[shown[i]].kind) {
            case WORDS: html_cell_text(out, words_of(v, &v->rows[k], shown[i])); break;
            case TIME: html_cell_duration(out, x); break;
            case SIZE: html_cell_bytes(out, x); break;
            case SHARE: html_cell_number(out, x, "%.1f"); break;
            case RATE: html_cell_number(out, x, "%.3f"); break;
            case NUMBER: html_cell_number(out, x, "%.0f"); break;
            }
        }
        text_add(out, "</tr>\n");
    }
    html_table_close(out);
}

static qn_status make_table(const qn_profile *profile, view *v, void (*writer)(const view *, text *), text *out,
                            qn_error *error)
{
    qn_profile *p = (qn_profile *)profile;
    int column = sort_column(v, error);
    if (column < 0) return QN_BAD_CALL;
    nesting n;
    lock_take(&p->lock);
    qn_status status = nesting_make(p, &n, error);
    if (status == QN_OK) {
        v->memory = arena_new();
        table_make_rows(v, &n);
        table_add_devices(v);
        sort_rows(v, v->rows, ARENA_ARRAY(v->memory, row, v->row_count + 1), v->row_count, column);
        writer(v, out);
        arena_free(v->memory);
        nesting_free(&n);
    }
    lock_give(&p->lock);
    return status;
}

void report_range_table(const report_model *m, text *out)
{
    view v = {.profile = m->profile, .options = {.by = QN_BY_RANGE}};
    text table = {0};
    if (m->profile->sum_count && make_table(m->profile, &v, write_html, &table, NULL) == QN_OK && table.length) {
        html_open_section(
            out, "ranges-section", "Ranges",
            "What the program called its parts. On the device each kernel's time is of the range in which "
            "its operation was asked for, also where it ran later, in a graph, or with others in one kernel; "
            "self is without ranges inside.");
        text_add_bytes(out, table.data, table.length);
        html_close_section(out);
    }
    text_free(&table);
}

qn_status qn_profile_table(const qn_profile *profile, const qn_table_options *options, qn_write *write, void *user,
                           qn_error *error)
{
    HEAP_ENTER(error);
    if (!profile || !write) return error_set(error, QN_BAD_CALL, "qn_profile_table: an argument is NULL");
    static void (*const writers[])(const view *, text *) = {[QN_TABLE_TEXT] = write_text,
                                                            [QN_TABLE_CSV] = write_csv,
                                                            [QN_TABLE_JSON] = write_json,
                                                            [QN_TABLE_MARKDOWN] = write_markdown};
    view v = {.profile = profile};
    if (options) v.options = *options;
    if ((unsigned)v.options.format >= (unsigned)COUNT(writers) || (unsigned)v.options.by > QN_BY_RANGE)
        return error_set(error, QN_BAD_CALL, "qn_profile_table: there is no such format or grouping");
    text out = {0};
    qn_status status = make_table(profile, &v, writers[v.options.format], &out, error);
    if (status == QN_OK) write(user, text_get(&out), out.length);
    text_free(&out);
    return status;
}
