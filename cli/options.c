/*
 * Options: one table for all commands, so that an option means the same and has the same help everywhere; a command
 * names those it takes, and a second table has what some commands mean by a word. In come the words after the command,
 * out comes an `arguments`, or a complaint with a suggestion.
 * SPDX-License-Identifier: MIT
 */
#include "cli.h"

#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef enum option_kind { FLAG, WORD, LIST, WHOLE, REAL, COUNT, AMOUNT, DURATION } option_kind;

typedef struct option {
    const char *name;  /* without the dashes */
    const char *value; /* NULL for a flag */
    option_kind kind;
    size_t place; /* in `arguments` */
    const char *help;
} option;

#define PLACE(field) offsetof(arguments, field)
static const option options[] = {
    {"set", "NAME=VALUE", LIST, PLACE(settings),
     "an extent, a scalar, a constant or a type: 'n=1<<20', T=bf16, act=relu"},
    {"in", "NAME=FILE", LIST, PLACE(inputs),
     "an input array from a .npy file, or as text from a .csv (others are generated)"},
    {"out", "NAME=FILE", LIST, PLACE(outputs),
     "an output array to a .npy file, or as text to a .csv (others are summarised)"},
    {"device", "NAME", WORD, PLACE(device), "the device; `quern devices` lists them, gpu is cuda"},
    {"seed", "NUMBER", WHOLE, PLACE(seed), "of the generated inputs (0 if not given)"},
    {"time", NULL, FLAG, PLACE(time), "also print how long compiling, loading and the kernel took"},
    {"agree", NULL, FLAG, PLACE(agree),
     "also run it on ref, which may take long, and print how far the results differ"},
    {"check", NULL, FLAG, PLACE(check), "change nothing; name the files that are not in canonical form, exit 1 if any"},
    {"write", NULL, FLAG, PLACE(write), "put the result back into the files"},
    {"stage", "NAME", WORD, PLACE(stage), "what to print (default c); the stages are listed below"},
    {"mode", "NAME", WORD, PLACE(mode),
     "of a tensor function: fused (default), eager (one kernel for each op), strict (fused, rounding as eager)"},
    {"backward", NULL, FLAG, PLACE(backward),
     "of a tensor function: the gradient of its first result by its parameters"},
    {"dot", NULL, FLAG, PLACE(dot), "of a tensor function: a picture of its graph with the kernels as boxes, as SVG"},
    {"why", NULL, FLAG, PLACE(why), "why each compiled variant of the kernel exists"},
    {"times", NULL, FLAG, PLACE(times), "the time of each pass"},
    {"script", "FILE", WORD, PLACE(script), "read the commands from a file instead of the terminal"},
    {"json", "FILE", WORD, PLACE(json), "also write the results as JSON, one object per variant; - is stdout"},
    {"hints", NULL, FLAG, PLACE(hints), "after each table: what bounds each variant, and what to try"},
    {"csv", "FILE", WORD, PLACE(csv), "also write the results as CSV, one line per variant and point; - is stdout"},
    {"sweep", "NAME=RANGE", LIST, PLACE(sweeps),
     "at every value: n=2^10..2^28 doubles, n=1..9*3 multiplies, n=100..900+100 adds, BLOCK=64,256 lists"},
    {"plot", "FILE", WORD, PLACE(plot), "of a sweep: also draw GB/s and TFLOP/s against it, with the roof, as SVG"},
    {"against", "FILE", WORD, PLACE(against),
     "compare with the JSON of an earlier run, exit 1 if anything is SLOWER; cublas: time cuBLASLt's product beside "
     "ours"},
    {"force", NULL, FLAG, PLACE(force), "compare even if that was another machine, GPU or driver"},
    {"strict", NULL, FLAG, PLACE(strict), "with --against: exit 1 also if anything is AMBIGUOUS"},
    {"margin", "PERCENT", REAL, PLACE(margin_percent),
     "what counts as the same speed (default 1 in turns, 3 against an earlier run)"},
    {"seconds", "NUMBER", REAL, PLACE(seconds),
     "the most time to spend on timing one variant (default 1, at each point of a sweep 0.2)"},
    {"effort", "NAME", WORD, PLACE(effort), "quick: a sample of the candidates (default); full: all of them"},
    {"budget", "TIME", DURATION, PLACE(budget_s), "the most time to spend, such as 10s or 2m (default 30s)"},
    {"arch", "NAME", WORD, PLACE(arch),
     "the GPU to compile for, such as sm_80 (default: the one there is, else sm_90a)"},
    {"annotate", NULL, FLAG, PLACE(annotate), "instructions under the source lines they came from"},
    {"measure", NULL, FLAG, PLACE(measure),
     "measure the ceilings: memory, caches, arithmetic, matrix units, launches; they are kept"},
    {"steps", "NUMBER", WHOLE, PLACE(steps),
     "operations that one program may run before it counts as endless, R709 (default 20000000)"},
    {"runs", "NUMBER", COUNT, PLACE(runs), "how often to run it; each run is a step (default 10)"},
    {"schedule", "W,U,A,R", WORD, PLACE(schedule),
     "of steps: W unrecorded, U recorded and thrown away, A kept; all that R times"},
    {"edited", "FILE", WORD, PLACE(edited),
     "schedules to follow: what `show --stage schedule` printed, with other numbers in the lines of launches"},
    {"by", "NAME", WORD, PLACE(by), "rows of the table: op (default), shape, kernel, range"},
    {"sort", "COLUMN", WORD, PLACE(sort), "self_cpu, cpu, self_device, device, calls, memory, flops, name, ..."},
    {"rows", "NUMBER", AMOUNT, PLACE(rows), "the most rows to print (default 30)"},
    {"output", "FILE", WORD, PLACE(output), "the file to write; -o FILE is the same"},
    {"codec", "NAME", WORD, PLACE(codec), "compression of Parquet: none, snappy (default), zstd, gzip, lz4"},
    {"nulls", NULL, FLAG, PLACE(nulls), "write missing fields as nulls (else counts as 0, categories as -1)"},
    {"oracle", NULL, FLAG, PLACE(oracle), "of make: also a column PROBABILITY with the true click probability"},
    {"config", "FILE", WORD, PLACE(config), "the model as JSON; small, main and meta are built in (docs/train.md)"},
    {"data", "FILES", LIST, PLACE(data), "click logs or Parquet files; more may follow as words (default: made rows)"},
    {"metadata", "FILE", WORD, PLACE(metadata),
     "facts of the columns, by `quern data stats` (default: gathered from the data first)"},
    {"validate", "SHARE|FILE", LIST, PLACE(validation),
     "rows that are not trained on: a share of the data (default 0.1; 0: none), or files"},
    {"epochs", "NUMBER", AMOUNT, PLACE(epochs), "how often the data is gone through (default 1)"},
    {"batch", "NUMBER", AMOUNT, PLACE(batch), "rows of a step (default 2048)"},
    {"interaction", "NAME", WORD, PLACE(interaction),
     "dot (default): products of all pairs of rows; outer: of all numbers, as in the talk; cat: none"},
    {"optimizer", "NAME", WORD, PLACE(optimizer), "sgd, adagrad (default), adam, adamw, row_adagrad"},
    {"rate", "NUMBER", REAL, PLACE(rate), "the learning rate (default 0.05; sgd 0.1, adam and adamw 0.001)"},
    {"tables", "TYPE", WORD, PLACE(tables), "of the embedding tables: f32 (default), bf16"},
    {"map", "NAME", WORD, PLACE(map), "tokens to rows: exact (default), modulus"},
    {"tokens", "NUMBER", AMOUNT, PLACE(tokens), "of made rows: at most so many in each category (default 10k)"},
    {"resume", NULL, FLAG, PLACE(resume), "go on from the last checkpoint in the folder, to the very same numbers"},
    {"checkpoint", "STEPS", AMOUNT, PLACE(checkpoint_steps), "save after every so many steps (default: every minute)"},
    {"timeline", NULL, FLAG, PLACE(traced), "profile ten steps; the timeline lies beside TensorBoard's files"},
    {"format", "NAME", WORD, PLACE(format), "of the table: text (default), csv, json, markdown"},
    {"trace", "FILE", WORD, PLACE(trace),
     "a timeline for chrome://tracing and Perfetto, written while it runs; FILE.gz: compressed"},
    {"tensorboard", "FOLDER", WORD, PLACE(tensorboard), "the timeline where TensorBoard looks for it"},
    {"folded", "FILE", WORD, PLACE(folded), "stacks with their nanoseconds, for flame graphs"},
    {"report", "FILE", WORD, PLACE(report),
     "one HTML file with tables, plots, hints and sources that needs no network"},
    {"memory", NULL, FLAG, PLACE(memory), "also print the peak of memory and what was alive then"},
    {"nodes", NULL, FLAG, PLACE(nodes), "times of each kernel of a graph on a GPU, not of the graph as a whole"},
    {"nvtx", NULL, FLAG, PLACE(nvtx),
     "show ranges and launches to nsys and ncu, too, and the kept steps as their focus"},
    {"counters", NULL, FLAG, PLACE(counters),
     "also what the hardware counts in one launch of each kernel: throughputs, traffic, occupancy, stalls; on the cpu "
     "cycles and misses. A program after -- runs once more for it"},
    {"counters-json", "FILE", WORD, PLACE(counters_json), "keep all counters there, as JSON (implies --counters)"},
    {"stalls", NULL, FLAG, PLACE(stalls),
     "also where the warps of a kernel (by line) or tensor function (by kernel) wait on a GPU, and for what"},
    {"verbose", NULL, FLAG, PLACE(verbose), "show what is compiled"},
    {"keep", "FOLDER", WORD, PLACE(keep), "leave source, PTX, binary and all before them of what is compiled there"},
    {"threads", "NUMBER", COUNT, PLACE(threads), "threads of the cpu device (default: all this process may use)"},
    {"no-cache", NULL, FLAG, PLACE(no_cache), "compile afresh and keep nothing"},
    {"no-emu", NULL, FLAG, PLACE(no_emu), "do not run the kernels' CUDA text on the CPU"},
    {"no-raw", NULL, FLAG, PLACE(no_raw), "refuse raw kernels: they run code as it is written in the file"},
    {"help", NULL, FLAG, PLACE(help), "this text"},
};
static const int option_count = (int)(sizeof(options) / sizeof(options[0]));

/* What an option is to some commands, where that is not what it is to the others. */
typedef struct meaning {
    const char *commands, *name; /* commands: separated by blanks */
    const char *value, *help;
} meaning;
static const meaning meanings[] = {
    {"train", "out", "FOLDER", "where checkpoints go; of lora: the file of the adapter"},
    {"devices", "device", "NAME", "only this one"},
    {"train", "seed", "NUMBER", "of made rows, initial values and the order (0 if not given)"},
    {"data eval predict", "seed", "NUMBER", "of made rows (0 if not given)"},
    {"check", "json", "FILE", "also write the results as JSON, one object per kernel; - is stdout"},
    {"profile", "json", "FILE", "also write the table as JSON, one object per row; - is stdout"},
    {"devices", "json", "FILE", "also write the list as JSON, one object per device; - is stdout"},
    {"profile", "csv", "FILE", "also write the table as CSV, one line per row; - is stdout"},
    {"train", "steps", "NUMBER", "end after so many steps (default: when the epochs are over)"},
    {"data", "rows", "NUMBER", "of head: rows to print (default 5); of make: rows to make, such as 500k or 2M"},
    {"train eval predict", "rows", "NUMBER", "made rows, where no data is named, such as 200k (default 1M)"},
    {"check", "verbose", NULL, "a line for every case, and what is compiled"},
    {"data", "threads", "NUMBER", "threads that read and write (default: all this process may use)"},
};

bool has_word(const char *list, const char *name, size_t length)
{
    for (const char *at = list; *at;) {
        size_t word = strcspn(at, " ");
        if (word == length && !strncmp(at, name, length)) return true;
        at += word;
        at += strspn(at, " ");
    }
    return false;
}

static bool takes(const command *c, const option *o)
{
    return o->place == PLACE(help) || has_word(c->options, o->name, strlen(o->name));
}

static const option *find(const command *c, const char *name, size_t length)
{
    for (int i = 0; i < option_count; i++)
        if (has_word(options[i].name, name, length)) return takes(c, &options[i]) ? &options[i] : NULL;
    return NULL;
}

static meaning meaning_of(const command *c, const option *o)
{
    for (size_t i = 0; i < sizeof(meanings) / sizeof(meanings[0]); i++)
        if (!strcmp(meanings[i].name, o->name) && has_word(meanings[i].commands, c->name, strlen(c->name)))
            return meanings[i];
    return (meaning){c->name, o->name, o->value, o->help};
}

static bool complain_unknown(const command *c, const char *word, const char *name)
{
    const char *known[sizeof(options) / sizeof(options[0])];
    int count = 0;
    for (int i = 0; i < option_count; i++)
        if (takes(c, &options[i])) known[count++] = options[i].name;
    const char *near = nearest_word(name, known, count), *advice = option_advice(name);
    if (advice)
        complain("`quern %s` has no option %s: %s", c->name, word, advice);
    else if (near)
        complain("`quern %s` has no option %s; did you mean --%s?", c->name, word, near);
    else
        complain("`quern %s` has no option %s; `quern %s --help` lists its options", c->name, word, c->name);
    return false;
}

bool read_real(const char *words, double *number)
{
    char *end;
    *number = strtod(words, &end);
    return end != words && !*end;
}

static bool store(const option *o, const char *value, arguments *out)
{
    void *field = (char *)out + o->place;
    char *end = NULL;
    if (!value) value = ""; /* a flag's */
    errno = 0;
    switch (o->kind) {
    case FLAG: *(bool *)field = true; return true;
    case WORD:
        if (!strcmp(o->name, "device") && !strcmp(value, "gpu")) value = "cuda";
        *(const char **)field = value;
        return true;
    case LIST: {
        word_list *list = (word_list *)field;
        if (list->count == MOST_WORDS) return complain("too many --%s options: at most %d", o->name, MOST_WORDS), false;
        int name = (int)strcspn(value, "=");
        for (int i = 0; i < list->count; i++)
            if (value[name] && !strncmp(list->items[i], value, (size_t)name + 1))
                return complain("--%s gives `%.*s` twice: %s and %s", o->name, name, value, list->items[i], value),
                       false;
        list->items[list->count++] = value;
        return true;
    }
    case WHOLE:
        *(uint64_t *)field = strtoull(value, &end, 0);
        if (end == value || *end || errno || *value == '-')
            return complain("--%s takes a whole number from 0, not `%s`", o->name, value), false;
        return true;
    case REAL:
        *(double *)field = strtod(value, &end);
        if (end == value || *end || !(*(double *)field > 0) || *(double *)field > 1e6)
            return complain("--%s takes a number above 0, not `%s`", o->name, value), false;
        return true;
    case DURATION: {
        double unit = 1;
        *(double *)field = strtod(value, &end);
        if (end != value && !strcmp(end, "ms")) unit = 1e-3, end += 2;
        if (end != value && (!strcmp(end, "s") || !strcmp(end, "m"))) unit = *end == 'm' ? 60 : 1, end++;
        *(double *)field *= unit;
        if (end == value || *end || !(*(double *)field > 0) || *(double *)field > 1e6)
            return complain("--%s takes a time such as 500ms, 30s or 2m, not `%s`", o->name, value), false;
        return true;
    }
    case AMOUNT: {
        double amount = strtod(value, &end);
        double unit = *end == 'k' ? 1e3 : *end == 'M' ? 1e6 : *end == 'G' ? 1e9 : 1;
        if (end != value && unit > 1) end++;
        amount *= unit;
        if (end == value || *end || !(amount >= 1 && amount <= 1e12) || amount != (double)(int64_t)amount)
            return complain("--%s takes a whole number from 1, such as 100, 500k or 2M, not `%s`", o->name, value),
                   false;
        *(int64_t *)field = (int64_t)amount;
        return true;
    }
    case COUNT:
        *(int64_t *)field = strtoll(value, &end, 0);
        if (end == value || *end || errno || *(int64_t *)field < 1 || *(int64_t *)field > 4096)
            return complain("--%s takes a whole number from 1 to 4096, not `%s`", o->name, value), false;
        return true;
    }
    return false;
}

/* Results that go to stdout where no file is named. */
static bool is_stream(const option *o)
{
    return !strcmp(o->name, "json") || !strcmp(o->name, "csv");
}

static bool is_result(const option *o)
{
    static const char *const names[] = {"json", "csv", "plot", "trace", "folded", "report", "counters-json"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (!strcmp(o->name, names[i])) return true;
    return false;
}

/* A file of results whose ending promises something else. NULL: it does not. */
static const char *promised(const option *o, const char *path)
{
    static const struct {
        const char *name, *others, *kind;
    } kinds[] = {{"report", "pdf png jpg jpeg svg csv json xlsx md txt", "HTML: name it results.html"},
                 {"json", "html csv xlsx pdf svg png npy", "JSON: name it results.json"},
                 {"csv", "json html xlsx pdf svg png npy parquet", "CSV: name it results.csv"},
                 {"trace", "html csv pdf svg png nsys-rep ncu-rep qdrep", "a timeline as JSON: name it trace.json.gz"}};
    const char *end = strrchr(path, '.');
    for (size_t i = 0; end && i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (!strcmp(o->name, kinds[i].name) && has_word(kinds[i].others, end + 1, strlen(end + 1)))
            return kinds[i].kind;
    return NULL;
}

/* `--json kernels/gelu.qn`: the file to read stands where the file to write belongs. */
bool ends_in_source(const char *path)
{
    size_t length = strlen(path);
    return length > 3 && !strcmp(path + length - 3, ".qn");
}

/* `n = 5` in one word is n=5. */
static void close_up(char *words)
{
    char *equals = strchr(words, '='), *name_end = equals, *from = equals + 1;
    while (name_end > words && name_end[-1] == ' ') name_end--;
    from += strspn(from, " ");
    *name_end = '=';
    memmove(name_end + 1, from, strlen(from) + 1);
}

bool options_parse(const command *c, int count, char **words, arguments *out)
{
    bool only_words = false;
    memset(out, 0, sizeof(*out));
    out->typed = words;
    out->typed_count = count;
    for (int i = 0; i < count; i++) {
        const char *word = words[i];
        if (only_words || word[0] != '-' || !word[1]) {
            if (out->words.count == MOST_WORDS) return complain("too many words: at most %d", MOST_WORDS), false;
            out->words.items[out->words.count++] = word;
            continue;
        }
        if (!strcmp(word, "--")) {
            only_words = true;
            out->separated = true;
            out->separated_at = out->words.count;
            continue;
        }
        bool short_form = !strcmp(word, "-h") || !strcmp(word, "-o");
        const char *name = short_form ? word[1] == 'h' ? "help" : "output" : word + strspn(word, "-");
        size_t length = strcspn(name, "=");
        const option *o = find(c, name, length);
        if (!o || (word[1] != '-' && !short_form)) {
            char bare[64];
            snprintf(bare, sizeof(bare), "%.*s", (int)length, name);
            return complain_unknown(c, word, bare);
        }
        const char *value = name[length] == '=' ? name + length + 1 : NULL;
        if (!o->value && value) return complain("--%s takes no value", o->name), false;
        if (o->value && !value && is_stream(o) && (i + 1 == count || !strncmp(words[i + 1], "--", 2))) value = "-";
        if (o->value && !value) {
            if (i + 1 == count)
                return complain("--%s needs a value: --%s %s", o->name, o->name, meaning_of(c, o).value), false;
            value = words[++i];
        }
        if (value && is_result(o) && ends_in_source(value))
            return complain("--%s would write over %s: name the file of the results first, --%s results.%s", o->name,
                            value, o->name, o->name),
                   false;
        const char *kind = value ? promised(o, value) : NULL;
        if (kind) return complain("--%s %s would be %s", o->name, value, kind), false;
        if (o->kind == LIST && !strncmp(meaning_of(c, o).value, "NAME=", 5) && !strchr(value, '=')) {
            bool split = i + 1 < count && words[i + 1][0] != '-';
            return complain("--%s takes %s, not `%s`%s%s%s%s%s%s", o->name, meaning_of(c, o).value, value,
                            split ? ": --" : "", split ? o->name : "", split ? " " : "", split ? value : "",
                            split ? "=" : "", split ? words[i + 1] : ""),
                   false;
        }
        if (o->kind == LIST && value == words[i] && strchr(value, '=')) close_up(words[i]);
        if (!strcmp(o->name, "device")) /* CUDA and Cpu are names too */
            for (char *at = words[i] + (value - words[i]); *at; at++) *at = (char)tolower((unsigned char)*at);
        if (!store(o, value, out)) return false;
    }
    return true;
}

bool has_stages(const command *c)
{
    return find(c, "stage", strlen("stage")) != NULL;
}

void options_each(const command *c, option_visit *visit, void *user)
{
    for (int i = 0; i < option_count; i++) {
        meaning m = meaning_of(c, &options[i]);
        if (takes(c, &options[i])) visit(user, m.name, m.value, m.help);
    }
}

enum { HELP_INDENT = 24, HELP_WIDTH = 100 };

/* An option or a stage and what it is, in lines that fit. */
static void print_entry(const char *head, const char *words, int width, FILE *to)
{
    int column = fprintf(to, "  %-20s ", head);
    while (*words) {
        int length = (int)strcspn(words, " ");
        if (column > HELP_INDENT && column + 1 + length > width) column = fprintf(to, "\n%*s", HELP_INDENT - 1, "") - 1;
        column += fprintf(to, " %.*s", length, words);
        words += length;
        words += strspn(words, " ");
    }
    fprintf(to, "\n");
}

void options_help(const command *c, FILE *to)
{
    int width = terminal_width(to);
    if (width < 2 * HELP_INDENT || width > HELP_WIDTH) width = HELP_WIDTH;
    fprintf(to, "usage: quern %s\n\n%s", c->usage, c->about);
    fprintf(to, "\noptions:\n");
    for (int i = 0; i < option_count; i++) {
        meaning m = meaning_of(c, &options[i]);
        char head[64];
        if (!takes(c, &options[i])) continue;
        snprintf(head, sizeof(head), "--%s%s%s", m.name, m.value ? " " : "", m.value ? m.value : "");
        print_entry(head, m.help, width, to);
    }
    if (has_stages(c)) {
        fprintf(to, "\nstages:\n");
        for (int i = 0; i < qn_stage_count(); i++) {
            const char *summary = NULL, *name = qn_stage_name(i, &summary);
            print_entry(name, summary ? summary : "", width, to);
        }
    }
    fprintf(to, "\nexamples:\n%s", c->examples);
}
