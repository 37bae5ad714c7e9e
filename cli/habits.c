/*
 * What people type who know other tools, and what Quern has instead: one table of words that stand for a command and one of
 * options, and what is meant by words without an option. In: what nothing here is called; out: advice, or NULL.
 * SPDX-License-Identifier: MIT
 */
#include "cli.h"

#include <string.h>

typedef struct habit {
    const char *words; /* separated by blanks */
    const char *advice;
} habit;

static const habit command_habits[] = {
    {"docs doc explain search apropos manual tutorial", "`quern help COMMAND` explains a command; docs/ has the pages, "
                                                        "docs/tutorial.md comes first"},
    {"list ls kernels functions", "`quern show FILE` lists what a file holds"},
    {"compile build make nvcc cc", "nothing is compiled beforehand: `quern run FILE NAME` does what is needed, "
                                   "`quern show FILE NAME --stage c` (cuda, ptx, sass) prints it"},
    {"test verify validate lint sanitize memcheck racecheck", "`quern check FILE` is that"},
    {"time timeit benchmark measure perf speed compare", "`quern bench FILE` is that"},
    {"trace prof nsys ncu nvprof", "`quern profile FILE NAME` or `quern profile -- ./program` is that"},
    {"exec execute launch start eval-kernel call", "`quern run FILE NAME` is that"},
    {"dump print emit asm ptx sass disassemble ir graph fusion", "`quern show FILE NAME --stage c` is that; "
                                                                 "`quern show --help` lists the stages"},
    {"format clang-format", "`quern fmt FILE` is that"},
    {"gdb cuda-gdb step", "`quern debug FILE NAME` is that"},
    {"info gpus nvidia-smi hardware", "`quern devices` is that"},
    {"autotune optimize optimise", "`quern tune FILE NAME` is that"},
    {"plot sweep", "`quern bench FILE --sweep n=2^10..2^20 --plot FILE.svg` is that"},
    {"grad backward", "`quern run FILE NAME --backward` is that, of a tensor function"},
    {"init new create", "a .qn file is all there is: docs/tutorial.md begins with one of six lines"},
    {"install upgrade", "`make install PREFIX=...` in the source tree is that"},
};

static const habit option_habits[] = {
    {"kernel name function entry func fn", "the name stands after the file: quern COMMAND FILE NAME"},
    {"gpu cuda", "--device cuda is that"},
    {"cpu", "--device cpu is that"},
    {"dtype type precision", "a generic type is set by its name: --set T=bf16"},
    {"half fp16 float16 bf16 bfloat16 fp32 float32", "a generic type is set by its name: --set T=bf16"},
    {"size sizes shape n N m M k K", "a size is set by its name: --set n=1000"},
    {"grid block blocks warps num_warps num_stages",
     "a constant is set by its name: --set BLOCK=256; the launch clause "
     "says how many programs there are"},
    {"input file data x", "--in NAME=FILE gives an array: --in x=x.npy"},
    {"output save o y", "--out NAME=FILE keeps an array: --out y=y.npy, or y=y.csv"},
    {"print dump show values", "`quern run` prints the first elements; --out y=y.csv writes all of them as text"},
    {"repeat repeats iterations iters reps warmup", "`quern bench` repeats as often as it takes: --seconds bounds it; "
                                                    "`quern profile` takes --runs"},
    {"grad gradient", "--backward is that, of a tensor function"},
    {"debug", "`quern debug FILE NAME` steps through a kernel; --verbose shows what is compiled"},
    {"random rand", "inputs are random unless --in gives them; --seed chooses them"},
    {"html", "--report FILE is that"},
    {"png svg figure", "--plot FILE.svg is that, of a sweep"},
    {"baseline compare", "--against FILE is that: the JSON of an earlier run"},
    {"O0 O1 O2 O3 Ofast fast-math use_fast_math", "everything is compiled with optimisation; there is nothing to set"},
    {"emit-ptx ptx sass asm cuda-text", "`quern show FILE NAME --stage ptx` is that"},
};

static const char *advice_of(const habit *list, int count, const char *word)
{
    for (int i = 0; i < count; i++)
        if (has_word(list[i].words, word, strlen(word))) return list[i].advice;
    return NULL;
}

const char *command_advice(const char *word)
{
    return advice_of(command_habits, sizeof(command_habits) / sizeof(command_habits[0]), word);
}

const char *option_advice(const char *word)
{
    return advice_of(option_habits, sizeof(option_habits) / sizeof(option_habits[0]), word);
}
