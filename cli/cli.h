/*
 * The command `quern`: what its files share. It stands on the public headers alone.
 *
 * main.c holds the table of commands; options.c the one table of options and the parser; each cmd_*.c one or two
 * commands. A command gets its arguments parsed and answers with the exit status: 0 success, 1 a finding or a failed
 * check, 2 a wrong call. Results go to stdout, errors and progress to stderr.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_CLI_CLI_H
#define QUERN_CLI_CLI_H

#include <quern/device.h>
#include <quern/workbench.h>
#include <stdio.h>

enum { EXIT_OK = 0, EXIT_FINDING = 1, EXIT_WRONG_CALL = 2, EXIT_INTERRUPTED = 130 };

#define MOST_WORDS 256

typedef struct word_list {
    const char *items[MOST_WORDS];
    int count;
} word_list;

/* Every option of every command, parsed; a command reads those that it lists. */
typedef struct arguments {
    word_list words;                             /* what is not an option */
    word_list settings, inputs, outputs, sweeps; /* NAME=VALUE */
    const char *device, *stage, *script, *json, *effort, *arch, *keep, *mode, *csv, *plot, *against;
    uint64_t seed, steps;
    double seconds, budget_s, margin_percent;
    int64_t threads;
    const char *trace, *folded, *tensorboard, *by, *sort, *format, *schedule; /* of profile */
    const char *edited;                                                       /* of run, bench and profile */
    int64_t rows, runs;
    const char *report;                                                     /* an HTML file */
    const char *output, *codec;                                             /* of data */
    const char *config, *interaction, *optimizer, *tables, *map, *metadata; /* of train */
    word_list data, validation;
    int64_t batch, epochs, tokens, checkpoint_steps;
    double rate;
    bool resume, traced;
    bool nulls, oracle;
    char *const *typed; /* everything after the command's name, as it was typed */
    int typed_count;
    bool separated;                             /* there was a `--` */
    int separated_at;                           /* words before it */
    bool memory, nodes, nvtx, counters, stalls; /* of profile */
    const char *counters_json;
    bool help, time, agree, check, write, why, times, measure, verbose, no_cache, no_raw, no_emu, annotate, backward,
        dot, hints, force, strict;
} arguments;

typedef struct command {
    const char *name;
    const char *summary;         /* one line, for `quern help` */
    const char *usage;           /* what follows "usage: quern " */
    int least_words, most_words; /* besides options */
    const char *about;           /* what it does, whole lines */
    const char *options;         /* names of the options it takes, separated by blanks */
    const char *examples;        /* whole lines, each an example and what it does */
    int (*run)(const struct command *self, const arguments *given);
} command;
extern const command commands[];
extern const int command_count;

/* options.c */
/* One of the words in a list that blanks separate. */
bool has_word(const char *list, const char *name, size_t length);
bool ends_in_source(const char *path); /* .qn */
/* False: the complaint was written to stderr. */
bool options_parse(const command *c, int count, char **words, arguments *out);
void options_help(const command *c, FILE *to);
/* Every option that the command takes; value is NULL for a flag. */
typedef void option_visit(void *user, const char *name, const char *value, const char *help);
void options_each(const command *c, option_visit *visit, void *user);
bool has_stages(const command *c);                 /* it prints one, by its name */
bool read_real(const char *words, double *number); /* the whole word is one */

/* pipe.c: `-` in the place of a file that an option names is the standard output: the file is written aside and copied
 * there at the end, and everything else that the command says goes to stderr meanwhile. */
typedef struct pipe_out {
    int saved; /* the real standard output, or -1 */
    char path[64];
    char setting[320]; /* NAME=path, of --out */
} pipe_out;
bool pipe_begin(pipe_out *s, arguments *given); /* false with a complaint */
bool pipe_end(pipe_out *s);
const char *pipe_shown(const char *path); /* what to call it: the file aside is no name that anybody gave */
void pipe_forget(void); /* by the handler of a signal */

/* report.c: what every command says in the same way. */
int terminal_width(FILE *to);  /* in characters; COLUMNS where it is no terminal; 0: unknown */
bool colours_wanted(FILE *to); /* a terminal, NO_COLOR unset, TERM not dumb */
void complain(const char *format, ...) __attribute__((format(printf, 1, 2))); /* "quern: error: ..." on stderr */
void remark(const char *format, ...) __attribute__((format(printf, 1, 2)));   /* "quern: note: ..." on stderr */
int report_error(const qn_error *error); /* writes the message; gives the exit status that fits */
/* Grown (NULL: new, and zeroed). Without memory: the complaint, and the command ends with EXIT_FINDING. */
void *memory_or_exit(void *memory, size_t size_bytes);
/* "quern bench kernels/gelu.qn --report out.html", as it could be typed again. */
const char *typed_words(const command *c, const arguments *given, char *room, size_t size);
/* What a terminal would obey is escaped in all of these: names, paths and lines of files are in what is written. */
void paint(FILE *to, const char *text, size_t length); /* paint.c: diagnostics and verdicts in colour */
void write_safely(FILE *to, const char *text, size_t length);
void print_safely(FILE *to, const char *format, ...) __attribute__((format(printf, 2, 3)));
void write_to_stdout(void *user, const char *text, size_t length);
void write_data(void *user, const char *text,
                size_t length); /* for files and programs: as it is, unless on a terminal */
/* The word of the list nearest to `word`, or NULL if none is near. */
const char *nearest_word(const char *word, const char *const *list, int count);

/* Progress on stderr: on a terminal one line that is written over, elsewhere a line every few seconds. Both take a
 * progress_line as `user`. */
typedef struct progress_line {
    bool terminal, shown;
    double told_s; /* when the last line was written, if it is no terminal */
} progress_line;
void write_result(void *user, const char *text, size_t length); /* to stdout, the line taken away first */
void write_progress(void *user, const char *text, size_t length);
void end_progress(progress_line *line); /* the line is taken away */

/* session.c: opening things as the options say. Each complains by itself; false (NULL) ends the command. */
qn_context *open_context(const arguments *given, int *exit_status);
/* The device of --device, else the best; notes on stderr if a better one is not there or a setting was not followed. */
const char *choose_device(const qn_context *context, const arguments *given);
/* The same without a word; NULL, after a complaint, where it is not there: before inputs are made or read for it. */
const char *wanted_device(const qn_context *context, const arguments *given, int *exit_status);
FILE *open_for_reading(const char *path); /* no folder, no pipe that nobody writes to; NULL: errno says why not */
char *read_whole_file(const char *path);  /* on the heap; NULL: errno says why not */
const char *why_not_read(void); /* behind read_whole_file */
void close_context(qn_context *context);  /* after telling that nothing is kept, if the cache cannot be written */
qn_module *open_module(qn_context *context, const char *path, int *exit_status);
/* The kernel that the second word names, or the file's only one; else lists what there is. */
const char *choose_kernel(const qn_module *module, const command *c, const arguments *given, int *exit_status);
/* The name with the mode of --mode and --backward: "eager grad(f)"; NULL with a complaint. Lives in *room. */
const char *spell_kernel(const qn_module *module, const char *kernel, const arguments *given, char *room, size_t size,
                         int *exit_status);
/* A call with settings, --in arrays, sizes of its bench on this device (NULL: none), and generated inputs. *inputs is filled with what must outlive the call. */
typedef struct input_files {
    qn_npy files[MOST_WORDS];
    void *converted[MOST_WORDS]; /* the numbers in the parameter's type, where the file has another; or NULL */
    int count;
} input_files;
void tell_sizes(void *user, const char *words, size_t length); /* which sizes came from the bench */
qn_call *prepare_call(qn_module *module, const char *kernel, const arguments *given, const char *device,
                      input_files *inputs, int *exit_status);
void input_files_free(input_files *inputs);
/* "x=a.npy": the length of the name, or -1 with a complaint. */
int setting_name_length(const char *option, const char *words);

/* summary.c: one array in a few lines. */
void summarise_array(const char *name, const qn_array *array, FILE *to);
double element_as_double(const qn_array *array, const int64_t *index);
const char *element_at(const qn_array *array, const int64_t *index);
void print_element(const qn_array *array, const int64_t *index, int digits, FILE *to);
/* Over all elements of two arrays of one shape; a NaN that only one of them has is infinitely far. */
double largest_difference(const qn_array *a, const qn_array *b);

/* habits.c: what stands for a word of other tools; NULL: nothing is known of it. */
const char *command_advice(const char *word);
const char *option_advice(const char *word);
const char *stage_advice(const char *word);
const char *cache_advice(const char *word);
const char *file_advice(const char *path); /* of its ending */

/* convert.c: numbers of a file in the type of a parameter. */
bool converts(qn_dtype from, qn_dtype to);
/* Row-major, on the heap; nearest, ties to even. NULL: an integer type cannot hold *misfit. */
void *convert_array(const qn_array *array, qn_dtype to, double *misfit);

/* table.c: arrays as text. Both say themselves what is wrong. */
bool is_table(const char *path);
bool table_read(const char *path, int rank, qn_array *out); /* f64; free(data) */
bool table_write(const char *path, const qn_array *array);

/* session.c: a file that is whole or not there, printed piece by piece. NULL: it cannot be written there, and was complained of. */
typedef struct whole_file {
    FILE *to;
    char *words;
    size_t length;
} whole_file;
FILE *whole_begin(whole_file *w, const char *path);
bool whole_end(whole_file *w, const char *path); /* path NULL: nothing is written; false with a complaint */

/* cmd_*.c */
int command_bench(const command *self, const arguments *given);
int command_cache(const command *self, const arguments *given);
int command_check(const command *self, const arguments *given);
int command_completion(const command *self, const arguments *given);
int command_data(const command *self, const arguments *given);
int command_debug(const command *self, const arguments *given);
int command_devices(const command *self, const arguments *given);
int command_eval(const command *self, const arguments *given);
int command_export(const command *self, const arguments *given);
int command_flags(const command *self, const arguments *given);
int command_fmt(const command *self, const arguments *given);
int command_help(const command *self, const arguments *given);
int command_version(const command *self, const arguments *given);
int command_predict(const command *self, const arguments *given);
int command_man(const command *self, const arguments *given);
int command_profile(const command *self, const arguments *given);
int command_run(const command *self, const arguments *given);
int command_show(const command *self, const arguments *given);
int command_train(const command *self, const arguments *given);
int train_lora(const arguments *given); /* cmd_train_lora.c: `train lora` */
int command_tune(const command *self, const arguments *given);

#endif
