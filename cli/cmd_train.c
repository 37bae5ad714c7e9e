/*
 * `quern train dlrm`, `quern eval dlrm`, `quern predict`: a recommender from click logs to probabilities. In: the words and
 * options. Out: progress on stderr (one line on a terminal, a line now and then elsewhere), the result on stdout; the exit
 * status is 1 when the model did not learn. SPDX-License-Identifier: MIT
 */
#include "cli.h"

#include <quern/dlrm.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FIRST_WORD_S 2.0 /* where nobody looks */

static volatile int interrupted;

static void on_interrupt(int number)
{
    (void)number;
    if (interrupted) _exit(EXIT_INTERRUPTED); /* the second time: at once */
    interrupted = 1;
}

typedef struct teller {
    progress_line line;
    double begun_s, next_s;
} teller;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static teller teller_new(void)
{
    return (teller){.line.terminal = isatty(STDERR_FILENO), .begun_s = now_s(), .next_s = FIRST_WORD_S};
}

static const char *time_words(double s, char room[32])
{
    if (!(s >= 0) || s > 1e8)
        snprintf(room, 32, "?");
    else if (s < 100)
        snprintf(room, 32, "%.0f s", s);
    else if (s < 6000)
        snprintf(room, 32, "%.0f min", s / 60);
    else
        snprintf(room, 32, "%.1f h", s / 3600);
    return room;
}

/* What changes all the time: over the line before on a terminal, a few lines where nobody looks. */
static void show_line(teller *t, const char *words)
{
    double took = now_s() - t->begun_s;
    if (t->line.terminal) {
        write_progress(&t->line, words, strlen(words));
    } else if (took >= t->next_s) {
        t->next_s = took < 10 ? took + FIRST_WORD_S : took * 1.3;
        fprintf(stderr, "%s\n", words);
    }
}

/* Rows of one label alone have none. */
static const char *auc_words(double auc, int digits, char room[32])
{
    if (isnan(auc)) return "none";
    snprintf(room, 32, "%.*f", digits, auc);
    return room;
}

static void show_progress(void *user, const qn_dlrm_progress *p)
{
    teller *t = user;
    char room[32], words[256];
    if (p->note) {
        end_progress(&t->line);
        print_safely(stderr, "%s%s\n", p->warning ? "quern: warning: " : "", p->note);
        return;
    }
    if (p->validated) {
        end_progress(&t->line);
        fprintf(stderr, "step %" PRId64 ": validation log-loss %.4f (base rate %.4f), AUC %s, %.0f rows\n", p->step,
                p->valid.loss, p->base_entropy, auc_words(p->valid.auc, 4, room), p->valid.count);
        return;
    }
    int at = 0;
    if (p->doing) {
        at = snprintf(words, sizeof(words), "%s", p->doing);
        if (p->done >= 0)
            snprintf(words + at, sizeof(words) - (size_t)at, ", %.0f%%, %s left", 100 * p->done,
                     time_words(p->eta_seconds, room));
        show_line(t, words);
        return;
    }
    at = snprintf(words, sizeof(words), "step %" PRId64, p->step);
    if (p->steps > 0)
        at += snprintf(words + at, sizeof(words) - (size_t)at, "/%" PRId64 ", %s left", p->steps,
                       time_words(p->eta_seconds, room));
    snprintf(words + at, sizeof(words) - (size_t)at, ", loss %.4f, AUC %s, %.0f samples/s, epoch %" PRId64, p->loss,
             auc_words(p->auc, 4, room), p->samples_per_second,
             p->epoch + 1); /* what a narrow terminal lacks comes last */
    show_line(t, words);
}

/* ---- options ---- */

static bool choose(const char *option, const char *word, bool known, const char *choices)
{
    if (!word || known) return true;
    complain("--%s takes %s, not `%s`", option, choices, word);
    return false;
}

/* The files of --data, and those that follow it as words. `made` alone: none. */
typedef struct files {
    const char *items[MOST_WORDS];
    int count;
} files;

static void add_files(files *f, const word_list *from, int first)
{
    for (int i = first; i < from->count && f->count < MOST_WORDS; i++)
        if (strcmp(from->items[i], "made")) f->items[f->count++] = from->items[i];
}

static bool asks_for_made(const arguments *given, int first)
{
    for (int i = 0; i < given->data.count; i++)
        if (!strcmp(given->data.items[i], "made")) return true;
    for (int i = first; i < given->words.count; i++)
        if (!strcmp(given->words.items[i], "made")) return true;
    return false;
}

static bool fill_config(const arguments *given, qn_dlrm_config *c, int *exit_status)
{
    qn_error error;
    qn_optimizer_kind kind = c->optimizer;
    *exit_status = EXIT_WRONG_CALL;
    if (given->config && qn_dlrm_config_read(given->config, c, &error))
        return *exit_status = report_error(&error), false;
    if (!choose("interaction", given->interaction, qn_interaction_from_name(given->interaction, &c->interaction),
                "dot, outer or cat"))
        return false;
    bool known = qn_optimizer_from_name(given->optimizer, &kind);
    if (!choose("optimizer", given->optimizer, known, "sgd, adagrad, adam, adamw or row_adagrad")) return false;
    if (known) {
        c->optimizer = kind;
        if (!given->config) c->rate = kind == QN_SGD ? 0.1 : kind == QN_ADAM || kind == QN_ADAMW ? 0.001 : 0.05;
    }
    bool f32 = given->tables && !strcmp(given->tables, "f32"), bf16 = given->tables && !strcmp(given->tables, "bf16");
    if (!choose("tables", given->tables, f32 || bf16, "f32 or bf16")) return false;
    if (given->tables) c->table_type = bf16 ? QN_BF16 : QN_F32;
    bool exact = given->map && !strcmp(given->map, "exact"), modulus = given->map && !strcmp(given->map, "modulus");
    if (!choose("map", given->map, exact || modulus, "exact or modulus")) return false;
    if (given->map) c->map = modulus ? QN_MAP_MODULUS : QN_MAP_EXACT;
    if (given->rate > 0) c->rate = given->rate;
    if (given->batch) c->batch = given->batch;
    if (given->epochs) c->epochs = given->epochs;
    if ((given->epochs || given->steps) && given->config) c->batches_per_epoch = 0; /* of the talk's short tries */
    *exit_status = EXIT_OK;
    return true;
}

/* --validate 0.1, or files. */
static bool fill_validation(const arguments *given, qn_dlrm_options *o)
{
    if (given->validation.count == 1) {
        double share;
        if (read_real(given->validation.items[0], &share)) {
            if (!(share >= 0 && share < 1))
                return complain("--validate takes a share below 1, such as 0.1, or files, not `%s`",
                                given->validation.items[0]),
                       false;
            o->held_out = share > 0 ? share : -1;
            return true;
        }
    }
    o->validation_paths = given->validation.items;
    o->validation_path_count = given->validation.count;
    return true;
}

static const char *device_of(qn_context *context, const arguments *given, const qn_dlrm_config *c)
{
    qn_device_info info;
    qn_error error;
    if (given->device || !c || !*c->device) return choose_device(context, given);
    if (!qn_device_find(context, c->device, &info, &error) && info.available) return info.name;
    remark("the configuration's device %s is not there: training on %s", c->device, qn_device_best(context));
    return qn_device_best(context);
}

/* ---- results ---- */

static void print_unknown(const qn_dlrm_result *r)
{
    if (r->unknown_tokens) printf("unknown tokens    %" PRId64 "\n", r->unknown_tokens);
}

static int print_valid(const qn_dlrm_result *r)
{
    const qn_metrics *m = &r->valid;
    printf("log-loss          %.5f   (a constant prediction of the base rate: %.5f)\n", m->loss, r->base_entropy);
    bool one_label = m->positives <= 0 || m->positives >= 1;
    char room[32];
    printf("AUC               %s%s\n", auc_words(m->auc, 5, room),
           one_label ? ": it is of rows with clicks and without" : "");
    if (!isnan(r->oracle_auc))
        printf("of the true probabilities: log-loss %.5f, AUC %.5f\n", r->oracle_loss, r->oracle_auc);
    printf("clicks            %.4f of %.0f rows, predicted %.4f\n", m->positives, m->count, m->mean);
    if (one_label) {
        complain("all %.0f rows have the label %d: whether the model has learnt cannot be told by them", m->count,
                 m->positives > 0);
        return EXIT_FINDING;
    }
    if (r->constant) {
        complain("the model predicts the same for every row: it has not learnt. A smaller --rate, more --steps, and "
                 "counts that vary may help");
        return EXIT_FINDING;
    }
    if (m->loss > r->base_entropy) {
        complain("the log-loss is above that of a constant prediction: it has not learnt yet");
        return EXIT_FINDING;
    }
    return EXIT_OK;
}

static void print_trained(const qn_dlrm_result *r)
{
    printf("steps             %" PRId64 " (%" PRId64 " samples in this run, %.0f samples/s)\n", r->steps, r->samples,
           r->samples_per_second);
    printf("parameters        %" PRId64 "\n", r->parameters);
    if (r->samples)
        printf("training loss     %.5f\n", r->loss);
    else
        printf("nothing trained   the checkpoint has all the steps that were asked for; more: --steps or --epochs\n");
    print_unknown(r);
    if (*r->checkpoint) print_safely(stdout, "checkpoint        %s\n", r->checkpoint);
}

static bool is_dlrm(const command *self, const arguments *given)
{
    if (!strcmp(given->words.items[0], "dlrm")) return true;
    const char *models = strcmp(self->name, "train") ? "the model `dlrm`" : "the models `dlrm` and `lora`";
    complain("`quern %s` knows %s, not `%s`", self->name, models, given->words.items[0]);
    return false;
}

int command_train(const command *self, const arguments *given)
{
    if (!strcmp(given->words.items[0], "lora")) return train_lora(given);
    if (!is_dlrm(self, given)) return EXIT_WRONG_CALL;
    int status;
    qn_error error;
    qn_dlrm_config config = qn_dlrm_defaults();
    files data = {0};
    const char *out = given->outputs.count ? given->outputs.items[given->outputs.count - 1] : NULL;
    teller t = teller_new();
    if (!fill_config(given, &config, &status)) return status;
    add_files(&data, &given->data, 0);
    add_files(&data, &given->words, 1);
    if (asks_for_made(given, 1)) *config.train_path = *config.validation_path = *config.metadata_path = 0;
    qn_dlrm_options o = {.paths = data.items,
                         .path_count = data.count,
                         .made_rows = given->rows,
                         .made_limit = given->tokens,
                         .metadata = given->metadata,
                         .steps = (int64_t)given->steps,
                         .seed = given->seed,
                         .out = out,
                         .resume = given->resume,
                         .checkpoint_steps = given->checkpoint_steps,
                         .trace = given->traced,
                         .stop = &interrupted,
                         .progress = show_progress,
                         .user = &t};
    if (!fill_validation(given, &o)) return EXIT_WRONG_CALL;
    if (given->resume && !out)
        return complain("--resume needs the folder of the checkpoints: --out FOLDER"), EXIT_WRONG_CALL;
    qn_context *context = open_context(given, &status);
    if (!context) return status;
    o.device = device_of(context, given, &config);
    if (!o.device) return close_context(context), EXIT_WRONG_CALL;
    struct sigaction action = {.sa_handler = on_interrupt};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    qn_dlrm_result r;
    qn_status failed = qn_dlrm_train(context, &config, &o, &r, &error);
    end_progress(&t.line);
    if (failed) {
        status = report_error(&error);
        if (interrupted) status = EXIT_INTERRUPTED; /* while the facts of the columns were gathered */
    } else {
        print_trained(&r);
        status = r.valid.count > 0 ? print_valid(&r) : EXIT_OK;
        if (r.unsaved) {
            complain("the run was not saved to its end: %s",
                     *r.checkpoint ? "--resume goes on from that checkpoint" : "nothing of it is left");
            status = EXIT_FINDING;
        }
        if (r.stopped) {
            print_safely(stderr, "stopped at step %" PRId64 "%s\n", r.steps,
                         *r.checkpoint ? "; --resume goes on from there" : "; nothing was saved (--out)");
            status = EXIT_INTERRUPTED;
        }
    }
    close_context(context);
    return status;
}

/* ---- eval and predict ---- */

static bool open_use(const arguments *given, int first, teller *t, files *data, qn_dlrm_options *o,
                     qn_context **context, int *status)
{
    add_files(data, &given->data, 0);
    add_files(data, &given->words, first);
    *o = (qn_dlrm_options){.paths = data->items,
                           .path_count = data->count,
                           .made_rows = given->rows,
                           .made_limit = given->tokens,
                           .seed = given->seed,
                           .stop = &interrupted,
                           .progress = show_progress,
                           .user = t};
    if (!fill_validation(given, o)) return *status = EXIT_WRONG_CALL, false;
    if (o->validation_path_count) {
        complain("--validate takes a share here: the rows that training with it held out");
        return *status = EXIT_WRONG_CALL, false;
    }
    *context = open_context(given, status);
    if (!*context) return false;
    o->device = choose_device(*context, given);
    if (o->device) return true;
    close_context(*context);
    return *status = EXIT_WRONG_CALL, false;
}

int command_eval(const command *self, const arguments *given)
{
    if (!is_dlrm(self, given)) return EXIT_WRONG_CALL;
    int status;
    qn_error error;
    qn_context *context;
    files data = {0};
    qn_dlrm_options o;
    qn_dlrm_result r;
    teller t = teller_new();
    if (!open_use(given, 2, &t, &data, &o, &context, &status)) return status;
    qn_status failed = qn_dlrm_eval(context, given->words.items[1], &o, &r, &error);
    end_progress(&t.line);
    if (failed) {
        status = report_error(&error);
    } else {
        print_unknown(&r);
        status = print_valid(&r);
    }
    close_context(context);
    return status;
}

/* Probabilities as they come: lines, or numbers for a .npy file. */
typedef struct output {
    FILE *to;
    float *all;
    int64_t count, room;
    bool npy, failed;
} output;

static const char probability_head[] = "probability\n";

static bool take_probabilities(void *user, const float *p, int64_t count)
{
    output *o = user;
    if (interrupted) return false;
    if (!o->npy) {
        if (!o->count) fputs(probability_head, o->to);
        for (int64_t i = 0; i < count; i++) fprintf(o->to, "%.7g\n", p[i]);
        o->count += count;
        return !ferror(o->to);
    }
    if (o->count + count > o->room) {
        int64_t room = 2 * o->room + count;
        float *grown = realloc(o->all, sizeof(float) * (size_t)room);
        if (!grown) return !(o->failed = true);
        o->all = grown;
        o->room = room;
    }
    memcpy(o->all + o->count, p, sizeof(float) * (size_t)count);
    o->count += count;
    return true;
}

static bool ends_with(const char *word, const char *end)
{
    size_t a = strlen(word), b = strlen(end);
    return a >= b && !strcmp(word + a - b, end);
}

static int write_predictions(qn_context *context, const arguments *given, qn_dlrm_options *o, teller *t)
{
    qn_error error;
    whole_file all;
    bool to_file = given->output && strcmp(given->output, "-");
    output out = {.to = stdout, .npy = to_file && ends_with(given->output, ".npy")};
    if (to_file && !out.npy && !(out.to = whole_begin(&all, given->output))) return EXIT_WRONG_CALL;
    if (!to_file) o->progress = NULL; /* the probabilities show how far it is */
    qn_status failed = qn_dlrm_predict(context, given->words.items[0], o, take_probabilities, &out, &error);
    end_progress(&t->line);
    int status = failed ? report_error(&error) : EXIT_OK;
    if (!failed && !out.npy && !out.count) fputs(probability_head, out.to); /* of no rows */
    if (!failed && out.npy) {
        qn_array array = {.data = out.all, .type = QN_F32, .rank = 1, .extents = {out.count}, .strides = {1}};
        if (qn_npy_write(given->output, &array, &error)) status = report_error(&error);
    }
    if (to_file && !out.npy && !whole_end(&all, failed ? NULL : given->output) && !failed) status = EXIT_FINDING;
    if (to_file && status == EXIT_OK) print_safely(stdout, "%s: %" PRId64 " probabilities\n", given->output, out.count);
    free(out.all);
    return status;
}

int command_predict(const command *self, const arguments *given)
{
    (void)self;
    int status;
    qn_context *context;
    files data = {0};
    qn_dlrm_options o;
    struct sigaction action = {.sa_handler = on_interrupt};
    teller t = teller_new();
    if (!open_use(given, 1, &t, &data, &o, &context, &status)) return status;
    sigaction(SIGINT, &action, NULL);
    status = write_predictions(context, given, &o, &t);
    close_context(context);
    return status;
}

int command_export(const command *self, const arguments *given)
{
    qn_error error;
    if (!is_dlrm(self, given)) return EXIT_WRONG_CALL;
    if (!given->output) return complain("where to? quern export dlrm CHECKPOINT -o model.onnx"), EXIT_WRONG_CALL;
    if (qn_dlrm_export(given->words.items[1], given->output, &error)) return report_error(&error);
    print_safely(stdout, "%s: counts [N][dense], tokens [N][sparse] to probability [N]\n", given->output);
    return EXIT_OK;
}
