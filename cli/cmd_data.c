/*
 * `quern data`: click logs and Parquet files. convert writes Parquet, stats writes what a model must know of the columns,
 * head shows rows, make makes a data set with a known signal. In: the words and options. Out: files, and on stdout a few
 * lines about them; progress on stderr while it takes long; Ctrl-C leaves nothing half written.
 * SPDX-License-Identifier: MIT
 */
#include "cli.h"

#include <quern/data.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

/* A line on a terminal ten times a second; elsewhere nothing. */
typedef struct progress {
    const char *what;
    double start_s, shown_s;
    progress_line line;
} progress;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static progress progress_begin(const char *what)
{
    struct sigaction action = {.sa_handler = on_interrupt};
    sigaction(SIGINT, &action, NULL);
    double now = now_s();
    return (progress){what, now, now, {.terminal = isatty(STDERR_FILENO)}};
}

static bool show_progress(void *user, int64_t rows, int64_t of_all)
{
    progress *p = user;
    double now = now_s(), took = now - p->start_s;
    if (interrupted) return false;
    if (!p->line.terminal || now - p->shown_s < 0.1 || took < 0.5) return true;
    p->shown_s = now;
    char words[160];
    double rate = (double)rows / took;
    int at = snprintf(words, sizeof(words), "%s: %" PRId64 " rows, %.2f million rows/s", p->what, rows, rate * 1e-6);
    if (of_all > 0)
        at += snprintf(words + at, sizeof(words) - (size_t)at, ", %.0f%%, %.0f s left",
                       100.0 * (double)rows / (double)of_all, (double)(of_all - rows) / rate);
    write_progress(&p->line, words, (size_t)at);
    return true;
}

static double progress_end(progress *p)
{
    end_progress(&p->line);
    return now_s() - p->start_s;
}

/* "12.3 MB" */
static const char *size_of_file(const char *path, char room[32])
{
    struct stat about;
    double bytes = stat(path, &about) ? 0 : (double)about.st_size;
    const char *units[] = {"bytes", "kB", "MB", "GB", "TB"};
    int unit = 0;
    for (; bytes >= 1000 && unit < 4; unit++) bytes /= 1000;
    snprintf(room, 32, unit ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
    return room;
}

static int write_dataset(qn_dataset *d, const char *path, const char *what, const arguments *given)
{
    qn_error error;
    progress p = progress_begin(what);
    qn_write_options options = {.codec = given->codec,
                                .nulls = given->nulls,
                                .probabilities = given->oracle,
                                .progress = show_progress,
                                .user = &p};
    qn_status status = qn_dataset_write(d, path, &options, &error);
    double took = progress_end(&p);
    if (status) {
        int said = report_error(&error);
        return interrupted ? EXIT_INTERRUPTED : said;
    }
    int64_t rows = 0;
    char size[32];
    if (qn_dataset_rows(d, &rows, &error)) return report_error(&error);
    print_safely(stdout, "%s: %" PRId64 " rows, %s, %.1f s, %.2f million rows/s\n", pipe_shown(path), rows,
                 size_of_file(path, size), took, (double)rows / took * 1e-6);
    return EXIT_OK;
}

static qn_dataset *open_files(const arguments *given, int first, int count, int *exit_status)
{
    qn_error error;
    qn_dataset *d;
    qn_dataset_options options = {.threads = (int)given->threads};
    if (qn_dataset_open(given->words.items + first, count, &options, &d, &error)) {
        *exit_status = report_error(&error);
        return NULL;
    }
    return d;
}

/* A log that was named last by mistake would be written over. */
static bool is_log_name(const char *path)
{
    static const char *const ends[] = {".gz", ".tsv", ".csv", ".txt", ".log"};
    size_t length = strlen(path);
    for (int i = 0; i < (int)(sizeof(ends) / sizeof(ends[0])); i++)
        if (length >= strlen(ends[i]) && !strcmp(path + length - strlen(ends[i]), ends[i])) return true;
    return false;
}

static bool writes_parquet(const char *path)
{
    if (!is_log_name(path)) return true;
    complain("%s is named like a log, and what is written is Parquet: give the file to write another name, such as "
             "OUT.parquet (it stands last, or behind --output)",
             path);
    return false;
}

static int data_convert(const arguments *given)
{
    int status, files = given->words.count - 1;
    const char *out = given->output;
    if (!out && files > 1) out = given->words.items[files--];
    if (files < 1 || !out) {
        complain("usage: quern data convert IN... OUT.parquet: the last word, or --output, is the file to write");
        return EXIT_WRONG_CALL;
    }
    if (!writes_parquet(out)) return EXIT_WRONG_CALL;
    qn_dataset *d = open_files(given, 1, files, &status);
    if (!d) return status;
    status = write_dataset(d, out, "convert", given);
    qn_dataset_close(d);
    return status;
}

static int data_make(const arguments *given)
{
    qn_error error;
    qn_dataset *d;
    const char *out = given->output;
    if (!out && given->words.count == 2) out = given->words.items[1];
    if (!given->rows || !out || given->words.count > 2) {
        complain("usage: quern data make --rows N [--seed S] -o FILE.parquet");
        return EXIT_WRONG_CALL;
    }
    if (!writes_parquet(out)) return EXIT_WRONG_CALL;
    qn_make_options make = {.rows = given->rows, .seed = given->seed};
    qn_dataset_options options = {.threads = (int)given->threads};
    if (qn_dataset_make(&make, &options, &d, &error)) return report_error(&error);
    int status = write_dataset(d, out, "make", given);
    qn_dataset_close(d);
    return status;
}

static void print_metadata(const qn_metadata *m)
{
    printf("%" PRId64 " rows, click rate %.4f\n", m->rows, m->click_rate);
    printf("%-12s %12s %9s\n", "category", "tokens", "missing");
    for (int i = 0; i < m->sparse_count; i++)
        printf("SPARSE_%-5d %12" PRId64 " %8.1f%%\n", i, m->sparse[i].cardinality,
               100.0 * (double)m->sparse[i].missing / (double)m->rows);
    printf("%-12s %12s %9s %10s %10s %10s\n", "count", "mean", "missing", "deviation", "log mean", "log dev.");
    for (int i = 0; i < m->dense_count; i++)
        printf("DENSE_%-6d %12.3f %8.1f%% %10.3f %10.4f %10.4f\n", i, m->dense[i].mean,
               100.0 * (double)m->dense[i].missing / (double)m->rows, m->dense[i].deviation, m->dense[i].log_mean,
               m->dense[i].log_deviation);
}

static int data_stats(const arguments *given)
{
    int status = EXIT_OK;
    qn_error error;
    qn_metadata *m = NULL;
    if (given->words.count < 2) {
        complain("usage: quern data stats FILES... -o metadata.json");
        return EXIT_WRONG_CALL;
    }
    qn_dataset *d = open_files(given, 1, given->words.count - 1, &status);
    if (!d) return status;
    progress p = progress_begin("stats");
    qn_status failed = qn_metadata_gather(d, show_progress, &p, &m, &error);
    progress_end(&p);
    if (!failed && given->output) failed = qn_metadata_write(m, given->output, &error);
    if (failed) {
        status = report_error(&error);
        if (interrupted) status = EXIT_INTERRUPTED;
    } else
        print_metadata(m);
    qn_metadata_free(m);
    qn_dataset_close(d);
    return status;
}

static void print_rows(const qn_batch *b, const qn_schema *schema)
{
    for (int64_t r = 0; r < b->rows; r++) {
        printf("row %" PRId64 "\n", b->row_numbers[r]);
        if (schema->has_labels) printf("  label   %g\n", (double)b->labels[r]);
        if (schema->has_probabilities) printf("  true    %.6f\n", b->probabilities[r]);
        printf("  counts ");
        for (int i = 0; i < schema->dense_count; i++) {
            double value = (double)b->dense[r * schema->dense_count + i];
            if (isnan(value))
                printf(" -");
            else
                printf(" %g", value);
        }
        printf("\n  tokens ");
        for (int i = 0; i < schema->sparse_count; i++) {
            int64_t value = b->sparse[r * schema->sparse_count + i];
            if (i && i % 13 == 0) printf("\n         ");
            if (value == -1)
                printf(" -");
            else
                printf(" %08" PRIx64, (uint64_t)value);
        }
        printf("\n");
    }
}

static int data_head(const arguments *given)
{
    int64_t rows = given->rows ? given->rows : 5;
    int status = EXIT_OK;
    qn_error error;
    if (given->words.count < 2) {
        complain("usage: quern data head FILE [--rows N]");
        return EXIT_WRONG_CALL;
    }
    qn_dataset_options options = {.missing = QN_MISSING_NAN, .threads = (int)given->threads};
    qn_dataset *d;
    if (qn_dataset_open(given->words.items + 1, given->words.count - 1, &options, &d, &error))
        return report_error(&error);
    qn_schema schema = qn_dataset_schema(d);
    size_t count = 64, dense = (size_t)schema.dense_count + 1, sparse = (size_t)schema.sparse_count + 1;
    qn_batch b = {.labels = malloc(count * sizeof(float)),
                  .dense = malloc(count * dense * sizeof(float)),
                  .sparse = malloc(count * sparse * sizeof(int64_t)),
                  .probabilities = malloc(count * sizeof(double)),
                  .row_numbers = malloc(count * sizeof(int64_t)),
                  .rows = 1};
    bool room = b.labels && b.dense && b.sparse && b.probabilities && b.row_numbers;
    if (!room) complain("no memory"), status = EXIT_FINDING;
    while (room && rows && b.rows) {
        b.capacity = rows < (int64_t)count ? rows : (int64_t)count;
        if (qn_dataset_next(d, &b, &error)) {
            status = report_error(&error);
            break;
        }
        print_rows(&b, &schema);
        rows -= b.rows;
    }
    free(b.labels);
    free(b.dense);
    free(b.sparse);
    free(b.probabilities);
    free(b.row_numbers);
    qn_dataset_close(d);
    return status;
}

int command_data(const command *self, const arguments *given)
{
    static const struct {
        const char *name;
        int (*run)(const arguments *given);
    } parts[] = {{"convert", data_convert}, {"stats", data_stats}, {"head", data_head}, {"make", data_make}};
    const char *names[4], *word = given->words.items[0];
    for (int i = 0; i < 4; i++) {
        names[i] = parts[i].name;
        if (!strcmp(word, names[i])) return parts[i].run(given);
    }
    const char *near = nearest_word(word, names, 4);
    complain("`quern %s` does not know `%s`; %s%s", self->name, word,
             near ? "did you mean " : "it knows convert, stats, head and make", near ? near : "");
    return EXIT_WRONG_CALL;
}
