/*
 * The command `quern`: finds the command by its name, parses its options, runs it. The table below is all that is said
 * about a command: its help is printed from it.
 * SPDX-License-Identifier: MIT
 */
#include "cli.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const command commands[] = {
    {"run", "run one kernel or tensor function, with inputs from files or generated", "run FILE [NAME] [options]", 1, 2,
     "Runs the kernel or tensor function NAME of FILE once. NAME may be left out when the file has one.\n"
     "FILE is a .qn file, or a tile IR dump as `quern show --stage tile` prints it.\n"
     "Numbers of another type than the parameter's are converted, with a note; fractions are never cut\n"
     "off. .csv, .tsv and .txt files are text: a line for each row.\n"
     "Inputs that no --in gives are generated from the seed, as the file's bench `input`\n"
     "clauses say; extents that no array gives come from --set.\n"
     "The results of a tensor function are called result0, result1, ...; of its gradient d_x for each\n"
     "float parameter x.\n",
     "set in out device mode backward seed time agree edited verbose keep threads no-cache no-raw",
     "  quern run kernels/gelu.qn gelu_tile --set n=1000 --time --agree\n"
     "      run on generated numbers; print the shape, range and first elements of y\n"
     "  quern run kernels/softmax.qn softmax_row --in x=a.npy --out y=b.npy --device ref\n"
     "      the softmax of the rows of a.npy by the checking interpreter, into b.npy\n"
     "  quern run kernels/softmax.qn softmax_fused --set rows=8 --set cols=100 --mode eager --out result0=c.npy\n"
     "      the same as array code, one kernel for each op, into c.npy\n",
     command_run},
    {"check", "find wrong indices, races, unwritten elements; compare the devices", "check FILE... [NAME] [options]", 1,
     MOST_WORDS,
     "Runs every kernel of the files (or only NAME) under the checking interpreter, over odd and\n"
     "even sizes of its own choosing, then compares the other devices with it. A finding names the\n"
     "source line, the programs and the element. Exit status 1 if there was any.\n"
     "Its CUDA text runs on the CPU at one size, watched for races, barriers and bounds (--no-emu leaves\n"
     "that out, --device emu runs it at all sizes).\n"
     "A tensor function is computed op by op by the interpreter and compared with the fused kernels of\n"
     "the other devices; one that gives a single number is checked with its gradient.\n",
     "set device seed steps json no-emu verbose keep threads no-cache no-raw",
     "  quern check kernels/*.qn\n"
     "      check all of the library\n"
     "  quern check kernels/matmul.qn matmul_tiled --set M=33 --set BM=16 --verbose\n"
     "      one kernel, with an extent and a constant fixed, a line for every case\n"
     "  cat my.qn | quern check - --json - | jq\n"
     "      from the standard input, the results as JSON to the standard output\n",
     command_check},
    {"bench", "check and time every variant of an operation", "bench FILE [NAME] [options]", 1, 2,
     "For every bench block of FILE (or only NAME): checks each variant against the reference, times\n"
     "the right ones in turn, and prints a table: median time, how well it is known, the 20 and 80\n"
     "percent quantiles, GB/s, GFLOP/s, percent of the ceiling measured in the same run, whether it is\n"
     "FASTER or SLOWER than the first, and the greatest error.\n"
     "A wrong variant is reported as wrong and never timed; then the exit status is 1.\n",
     "set sweep device report json csv plot against margin force strict seconds seed hints edited verbose keep threads "
     "no-cache no-raw",
     "  quern bench kernels/gelu.qn\n"
     "      all variants of GELU on the best device\n"
     "  quern bench kernels/softmax.qn softmax --set rows=1000 --json softmax.json\n"
     "      one block at another size, the results also as JSON\n"
     "  quern bench kernels/gelu.qn --sweep 'n=2^14..2^22*4' --plot gelu.svg --csv gelu.csv\n"
     "      a table with a row for every size, a picture and a file of it\n"
     "  quern bench kernels/softmax.qn softmax --set rows=1000 --against softmax.json\n"
     "      is anything slower than it was? then the exit status is 1\n"
     "  quern bench kernels/gelu.qn --report gelu.html\n"
     "      one file to look at: verdicts, distributions, roofline, sources\n",
     command_bench},
    {"profile", "see where the time of a kernel or of a program goes",
     "profile FILE [NAME] [options] | [options] -- PROGRAM ...", 1, MOST_WORDS,
     "Runs the kernel or tensor function NAME of FILE a few times (and before that, so that compiling is not\n"
     "counted), or any program that uses Quern, and prints where the time went: on the host and on the\n"
     "devices, by operation, shape, kernel or range, with the columns of PyTorch's profiler. Under the\n"
     "table stand the hints that would save most. With --schedule every run is inside the profile.\n"
     "A program is profiled through the environment (QUERN_PROFILE, docs/profile.md); its exit status\n"
     "becomes that of the command.\n",
     "set in device mode backward seed runs schedule edited by sort rows format memory counters counters-json stalls "
     "trace "
     "tensorboard "
     "folded report json csv nodes nvtx threads no-cache no-raw",
     "  quern profile kernels/softmax.qn softmax_fused --set rows=4096 --set cols=1024 --trace softmax.json.gz\n"
     "      ten runs; the table, and a timeline to open in chrome://tracing or ui.perfetto.dev\n"
     "  quern profile --by kernel --sort device --folded step.folded -- ./train --steps 100\n"
     "      a program: its kernels, and stacks for a flame graph\n"
     "  quern profile kernels/gelu.qn gelu_tile --report gelu.html\n"
     "      one file to look at: timeline, roofline, hints, sources\n",
     command_profile},
    {"tune", "find the fastest configuration of a kernel and keep it", "tune FILE [NAME] [options]", 1, 2,
     "Times the candidates that the kernel's `tune` clause lists, at the size of --set or of the file's\n"
     "bench: compiles them in parallel, rejects those that spill registers or give other results, times\n"
     "the rest in turn. Every timing is kept in the cache; later calls at sizes like it use the fastest\n"
     "for the constants that they do not set (QUERN_TUNE=off: they do not).\n",
     "set device effort budget json seed threads no-cache no-raw",
     "  quern tune kernels/matmul.qn matmul_tiled --set M=512 --set N=512 --set K=512 --budget 10s\n"
     "      the table of what was tried, the fastest first\n"
     "  quern tune kernels/matmul.qn matmul_tiled --set BN=128 --effort full --json tune.json\n"
     "      every candidate with that constant fixed, also as JSON\n",
     command_tune},
    {"show", "print any stage of a kernel or tensor function, from the syntax tree to assembly",
     "show FILE [NAME] [options]", 1, 2,
     "Prints one stage of the kernel NAME of FILE as it is compiled for a device. The stages of a GPU\n"
     "need none: --arch names the one to compile for. Sizes that are not given are those of its bench; with all\n"
     "of them known, the kernel is specialised as for a launch on contiguous arrays. Of a tensor function:\n"
     "its graph, what fusion made of it (the default), where intermediates lie, or the stage of each kernel\n"
     "that it becomes. Of an ONNX model: a table of its nodes on a terminal, else a picture.\n",
     "stage set device mode backward dot arch annotate why times no-cache no-raw",
     "  quern show kernels/gelu.qn gelu_tile\n"
     "      the C that the cpu device compiles\n"
     "  quern show kernels/gelu.qn gelu_tile --stage tile > gelu.tile; quern run gelu.tile --set n=100\n"
     "      the tile IR, then that IR fed back to be run\n"
     "  quern show kernels/softmax.qn softmax_row --stage ptx --arch sm_80 --annotate --set rows=64 --set cols=1024\n"
     "      what an A100 would run, line by line\n"
     "  quern show kernels/softmax.qn softmax_fused --backward; quern show kernels/softmax.qn softmax_fused --dot > "
     "g.svg\n"
     "      the kernels of its gradient, with what fusion saved; a picture of the graph\n"
     "  quern show model.onnx > model.svg\n"
     "      the graph of an ONNX model, from `quern export` or elsewhere\n",
     command_show},
    {"debug", "step through a kernel", "debug FILE [NAME] [options]", 1, 2,
     "Runs the kernel under the interpreter and stops where you say. At the prompt: break LINE,\n"
     "break program P, step, continue, print NAME, watch NAME, memory on, list, help, quit.\n",
     "set in script seed no-raw",
     "  quern debug kernels/softmax.qn softmax_online --set rows=2 --set cols=5\n"
     "      at the prompt: break 26, continue, print m, step, print m, quit\n"
     "  printf 'break 26\\ncontinue\\nprint m\\nstep\\nprint m\\nquit\\n' > commands.txt\n"
     "  quern debug kernels/softmax.qn softmax_online --set rows=2 --set cols=5 --script commands.txt\n"
     "      the same from a file of commands\n",
     command_debug},
    {"fmt", "print .qn files in canonical form", "fmt FILE... [--check | --write]", 1, MOST_WORDS,
     "Prints the files in canonical form, comments kept. FILE may be - for the standard input.\n", "check write",
     "  quern fmt my.qn\n"
     "      the canonical text on stdout\n"
     "  quern fmt --check kernels/*.qn\n"
     "      name the files that differ from it; exit status 1 if any does\n",
     command_fmt},
    {"devices", "list what there is to run on", "devices [options]", 0, 0,
     "Lists every device, or why it is not there and what to install.\n", "device measure json threads",
     "  quern devices\n"
     "      one line for each device\n"
     "  quern devices --measure\n"
     "      also measure what each can do at best (memory, caches, arithmetic, launches), and keep it\n",
     command_devices},
    {"data", "convert, describe, look at and make click logs", "data convert|stats|head|make ...", 1, MOST_WORDS,
     "convert IN... OUT   raw Criteo logs (tab-separated, plain or .gz: label, 13 counts, 26 hexadecimal\n"
     "                    categories, fields may be empty) or Parquet files, written as one Parquet file with\n"
     "                    the columns labels, DENSE_0.., SPARSE_0..\n"
     "stats FILES         the metadata that a model needs, as JSON to --output and as a table: tokens of each\n"
     "                    category, mean and deviation of each count and of log(1 + count)\n"
     "head FILES          the first rows\n"
     "make                a data set with skewed categories, missing fields and a known signal, the same on\n"
     "                    every machine, to try everything without a download\n"
     "FILES are files, folders or patterns such as 'day_*.gz'; what a file is, is seen from its bytes.\n",
     "output rows seed codec nulls oracle threads",
     "  quern data make --rows 1M --seed 1 -o made.parquet\n"
     "      a million rows, about a hundred megabytes\n"
     "  quern data convert day_0.gz day_0.parquet --codec zstd\n"
     "      a day of Criteo's logs, a fraction of its size and many times as fast to read\n"
     "  quern data stats day_0.parquet -o metadata.json\n"
     "      cardinalities, tokens, means\n"
     "  quern data head day_0.parquet --rows 2\n"
     "      two rows\n",
     command_data},
    {"train", "train a recommender on click logs; fine-tune with LoRA", "train dlrm [FILES] [options] | lora [options]",
     1, MOST_WORDS,
     "Trains DLRM, a recommender: counts through a perceptron, categories through embedding tables, their\n"
     "interaction through another perceptron, one probability of a click. Without --data on rows made on\n"
     "the spot with a known signal, so that it works offline. The step is compiled and recorded once, then\n"
     "replayed while a thread prepares the next batches. At the end, and after each epoch, log-loss and AUC\n"
     "on rows that were held out are printed, beside the log-loss of a constant prediction: exit status 1\n"
     "if the model is not better than that, or if the loss becomes NaN (the message then names the step, the\n"
     "first operation that made it, and the last good checkpoint). Ctrl-C saves and ends with 130.\n"
     "lora fine-tunes a small network with adapters of low rank on a generated task and shows what fusion saved\n"
     "in a step (docs/lora.md); it takes --steps, --batch, --rate, --seed, --device, and --out for the adapter's\n"
     "file.\n",
     "config data metadata validate epochs batch steps device interaction optimizer rate tables map out resume "
     "checkpoint timeline rows tokens seed threads no-cache",
     "  quern train dlrm\n"
     "      on a million made rows, on the best device\n"
     "  quern train dlrm --config main --data day_0.parquet --epochs 1 --batch 2048 --device cuda --out run\n"
     "      the talk's larger model on a day of Criteo's logs; `tensorboard --logdir run` shows it\n"
     "  quern train dlrm --data 'day_*.parquet' --validate day_23.parquet --out run --resume\n"
     "      go on where a run was stopped or killed\n"
     "  quern train dlrm --rows 200k --tokens 200 --epochs 2 --optimizer adam\n"
     "      a quick try\n"
     "  quern train lora --device cpu --out adapter.safetensors\n"
     "      fine-tuning, and the kernels and bytes of a step, fused and eager\n",
     command_train},
    {"eval", "log-loss and AUC of a trained recommender", "eval dlrm CHECKPOINT [FILES] [options]", 2, MOST_WORDS,
     "CHECKPOINT is a file, or the folder of a training run: its last one. Prints the exact log-loss and AUC on\n"
     "all rows of FILES (made rows without any); with --validate SHARE only on those that training with the\n"
     "same share held out. Exit status 1 if a constant prediction is as good.\n",
     "data validate device rows tokens seed threads no-cache",
     "  quern eval dlrm run day_23.parquet\n"
     "      the last checkpoint of a run on another day\n"
     "  quern eval dlrm run --validate 0.1\n"
     "      on the made rows that it was not trained on\n",
     command_eval},
    {"predict", "the probability of a click of each row", "predict CHECKPOINT [FILES] [options]", 1, MOST_WORDS,
     "CHECKPOINT is a file, or the folder of a training run: its last one. Writes one probability for each row of\n"
     "FILES, in their order: as CSV to stdout or to a file, as an array if its name ends in .npy.\n",
     "data output validate device rows tokens seed threads no-cache",
     "  quern predict run day_23.parquet -o clicks.npy\n"
     "      float32, one number for each row\n"
     "  quern predict run --rows 1000 | head\n"
     "      of made rows, as text\n",
     command_predict},
    {"export", "a trained recommender as ONNX", "export dlrm CHECKPOINT -o FILE", 2, 2,
     "CHECKPOINT is a file, or the folder of a training run: its last one. FILE has opset 17, the inputs `counts`\n"
     "(NaN where one is missing) and `tokens`, and the output `probability`; large tables go to FILE.data.\n",
     "output",
     "  quern export dlrm run -o model.onnx\n"
     "      for onnxruntime and all that reads ONNX\n",
     command_export},
    {"cache", "list or clear the compiled objects", "cache list|clear", 1, 1,
     "Compiled kernels are kept under $QUERN_CACHE, else $XDG_CACHE_HOME/quern, else ~/.cache/quern.\n", "",
     "  quern cache list\n"
     "      what is kept, with sizes\n"
     "  quern cache clear\n"
     "      remove it all\n",
     command_cache},
    {"flags", "what a C compiler must be told to find Quern", "flags", 0, 0,
     "Prints the folder of the headers, the library and what it needs, of the Quern that this command belongs\n"
     "to; `pkg-config --cflags --libs quern` says the same of an installed one.\n",
     "",
     "  cc examples/mlp.c $(quern flags) -o mlp\n"
     "      a program that uses Quern\n",
     command_flags},
    {"completion", "words for a shell to complete", "completion bash|zsh|fish", 1, 1,
     "Prints a script for the shell; `make install` puts it where shells look.\n", "",
     "  eval \"$(quern completion bash)\"\n"
     "      in this shell, now\n"
     "  quern completion fish > ~/.config/fish/completions/quern.fish\n"
     "      in every fish from now on\n",
     command_completion},
    {"man", "the manual as pages for man", "man [COMMAND]", 0, 1,
     "Prints the page of quern, or of one command, as man reads it; `make install` installs them.\n", "",
     "  quern man bench | man -l -\n"
     "      read one\n",
     command_man},
    {"version", "which Quern this is", "version", 0, 0, "Prints the version; --version, -V and -v are the same.\n", "",
     "  quern version\n"
     "      quern " QN_VERSION "\n",
     command_version},
    {"help", "explain a command", "help [COMMAND]", 0, 1, "The same as `quern COMMAND --help`.\n", "",
     "  quern help bench\n"
     "      what bench does, its options, an example\n",
     command_help},
};
const int command_count = (int)(sizeof(commands) / sizeof(commands[0]));

static void print_overview(FILE *to)
{
    fprintf(to,
            "quern %s: write array code and tile kernels once, check them, run them near the hardware's limit\n\n"
            "usage: quern COMMAND ...\n\n",
            qn_version());
    for (int i = 0; i < command_count; i++) fprintf(to, "  %-10s  %s\n", commands[i].name, commands[i].summary);
    fprintf(to,
            "\nexamples:\n"
            "  quern bench kernels/gelu.qn                         one operation, every variant, checked and timed\n"
            "  quern run kernels/gelu.qn gelu_tile --set n=1000    run one kernel on generated numbers\n"
            "\n`quern COMMAND --help` explains a command. Exit status: 0 success, 1 a finding or a failed check,\n"
            "2 a wrong call, 130 Ctrl-C.\n");
}

static const command *find_command(const char *name)
{
    const char *names[32];
    for (int i = 0; i < command_count; i++) {
        names[i] = commands[i].name;
        if (!strcmp(name, commands[i].name)) return &commands[i];
    }
    const char *near = nearest_word(name, names, command_count), *advice = command_advice(name);
    if (ends_in_source(name))
        complain("a command comes first: quern run %s, or check, bench, show (`quern help` lists them)", name);
    else if (advice)
        complain("there is no command `%s`: %s", name, advice);
    else if (near)
        complain("there is no command `%s`; did you mean `quern %s`?", name, near);
    else
        complain("there is no command `%s`; `quern help` lists them", name);
    return NULL;
}

int command_help(const command *self, const arguments *given)
{
    (void)self;
    if (!given->words.count) return print_overview(stdout), EXIT_OK;
    const command *c = find_command(given->words.items[0]);
    if (!c) return EXIT_WRONG_CALL;
    options_help(c, stdout);
    return EXIT_OK;
}

int command_version(const command *self, const arguments *given)
{
    (void)self, (void)given;
    return printf("quern %s\n", qn_version()), EXIT_OK;
}

static bool words_fit(const command *c, const arguments *given)
{
    if (given->words.count < c->least_words)
        return complain("usage: quern %s (see `quern %s --help`)", c->usage, c->name), false;
    const char *const *words = given->words.items;
    if (given->words.count > 1 && !given->separated && ends_in_source(words[1]) && !ends_in_source(words[0]) &&
        strcmp(words[0], "-") != 0 && access(words[0], F_OK))
        return complain("the file comes first: quern %s %s %s", c->name, words[1], words[0]), false;
    for (int i = 1; i < given->words.count && !given->separated; i++) {
        const char *word = given->words.items[i], *equals = strchr(word, '=');
        if (equals && equals != word && has_word(c->options, "set", 3)) {
            bool file = (is_table(equals) || strstr(equals, ".npy")) && has_word(c->options, "in", 2);
            return complain("`%s` needs an option before it: --%s %s", word, file ? "in" : "set", word), false;
        }
    }
    const char *extra = given->words.count > c->most_words ? words[c->most_words] : NULL;
    if (extra && has_word("cpu cuda gpu ref emu", extra, strlen(extra)) && has_word(c->options, "device", 6))
        return complain("`%s` needs an option before it: --device %s", extra, extra), false;
    if (extra)
        return complain("`quern %s` does not know what to do with `%s` (usage: quern %s)", c->name, extra, c->usage),
               false;
    return true;
}

/* ---- Ctrl-C, and other signals that end ---- */

static char last_words[600]; /* made before, since a signal's handler may not */

static void on_interrupt(int number)
{
    if (number == SIGINT) (void)!write(STDERR_FILENO, last_words, strlen(last_words));
    qn_clear_up();
    pipe_forget();
    signal(number, SIG_DFL);
    raise(number); /* a shell sees 130, and stops its loop */
}

/* Commands that save on Ctrl-C have a handler of their own later; so has a profile from the environment, which takes only
 * a signal that nobody handles. */
static void say_on_interrupt(const command *c, const arguments *given)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
    const char *file = given->report ? given->report : given->json ? given->json : NULL;
    bool kept = file && (!strcmp(c->name, "bench") || !strcmp(c->name, "tune"));
    snprintf(last_words, sizeof(last_words), "%squern: interrupted%s%.400s%s\n",
             isatty(STDERR_FILENO) ? "\r\033[K" : "", kept ? ": " : "", kept ? file : "",
             kept ? " has what was finished before" : "");
    for (int i = 0; i < 3; i++) {
        struct sigaction now;
        if (sigaction(ends[i], NULL, &now) || now.sa_handler != SIG_DFL) continue;
        if (getenv("QUERN_PROFILE") && ends[i] != SIGHUP) continue;
        now = (struct sigaction){.sa_handler = on_interrupt};
        sigaction(ends[i], &now, NULL);
    }
}

/* A stream that was closed is taken, so that no file is opened in its place and gets what is said there. What is written
 * to it still fails, and what is read from it still ends. */
static void hold_streams(void)
{
    for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; stream++)
        if (fcntl(stream, F_GETFD) < 0) (void)!open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

int main(int count, char **words)
{
    arguments given;
    hold_streams();
    if (count < 2) {
        print_overview(stderr);
        return EXIT_WRONG_CALL;
    }
    if (!strcmp(words[1], "--help") || !strcmp(words[1], "-h")) { /* before a command as behind it */
        const command *asked = count > 2 ? find_command(words[2]) : NULL;
        if (count > 2 && !asked) return EXIT_WRONG_CALL;
        return asked ? options_help(asked, stdout) : print_overview(stdout), EXIT_OK;
    }
    if (!strcmp(words[1], "--version") || !strcmp(words[1], "-V") || !strcmp(words[1], "-v"))
        return command_version(NULL, NULL);
    if (words[1][0] == '-') {
        complain("options come after a command: quern COMMAND %s (`quern help` lists the commands)", words[1]);
        return EXIT_WRONG_CALL;
    }
    const command *c = find_command(words[1]);
    if (!c || !options_parse(c, count - 2, words + 2, &given)) return EXIT_WRONG_CALL;
    if (given.help) return options_help(c, stdout), EXIT_OK;
    if (!words_fit(c, &given)) return EXIT_WRONG_CALL;
    pipe_out to_stdout;
    if (!pipe_begin(&to_stdout, &given)) return EXIT_WRONG_CALL;
    say_on_interrupt(c, &given);
    int status = c->run(c, &given);
    if (!pipe_end(&to_stdout) && status == EXIT_OK) status = EXIT_FINDING;
    if (fflush(stdout) || ferror(stdout)) {
        complain("the output could not be written");
        if (status == EXIT_OK) status = EXIT_FINDING;
    }
    return status;
}
