/*
 * What people type who know other tools, and what Quern has instead: tables of words that stand for a command, an option, a stage,
 * a verb of the cache, and of endings of files that are no sources. In: what nothing here is called; out: advice, or NULL.
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

static const habit stage_habits[] = {
    {"assembly assembler s disassembly machine", "`asm` is that of a processor, `sass` of a GPU"},
    {"cubin binary object elf", "--keep FOLDER leaves the binaries; `sass` and `asm` print them"},
    {"llvm bitcode nvvm",
     "there is no LLVM in between: `c` and `cuda` are what compilers are given, `ptx` and `asm` what they make"},
    {"ir mlir ttir ttgir triton hlo xla stablehlo jaxpr",
     "`tile` is the IR of a kernel, `graph` that of a tensor function"},
    {"all every everything", "--keep FOLDER of `quern run` leaves every stage there"},
    {"plan fused kernels fuse", "`fusion` is that"},
    {"source text code", "`c` is what the processor's compiler is given, `cuda` the GPU's"},
    {"parse syntax tree", "`ast` is that"},
};

static const habit cache_habits[] = {
    {"rm remove delete purge prune flush reset drop empty wipe", "`quern cache clear` is that"},
    {"ls show info size du stats status path dir where", "`quern cache list` is that"},
};

/* What a file is that is no source of Quern, by its ending. */
static const habit file_habits[] = {
    {"py ipynb", "a Python file: from Python, `import quern` (docs/pytorch.md); the source itself is a .qn file "
                 "(docs/from-pytorch.md)"},
    {"cu cuh ptx hip",
     "CUDA as it is goes into a .qn file: `cuda name(...) launch (...) block (256) \"\"\"source\"\"\"` "
     "(docs/from-cuda.md)"},
    {"c h cc cpp cxx hpp",
     "a C program uses the library: cc program.c $(quern flags) (docs/c-api.md); kernels are .qn files"},
    {"cl metal glsl comp wgsl",
     "shaders are of other languages: docs/from-cuda.md shows what stands for threads and blocks"},
    {"jl m f90 rs go mojo", "that is another language: docs/tutorial.md begins with a .qn file of six lines"},
    {"npy npz csv tsv pt pth safetensors", "an array, not a source: --in x=FILE gives it to a kernel"},
    {"json html svg", "something that Quern or another tool wrote, not a source"},
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

const char *stage_advice(const char *word)
{
    return advice_of(stage_habits, sizeof(stage_habits) / sizeof(stage_habits[0]), word);
}

const char *cache_advice(const char *word)
{
    return advice_of(cache_habits, sizeof(cache_habits) / sizeof(cache_habits[0]), word);
}

const char *file_advice(const char *path)
{
    const char *end = strrchr(path, '.');
    return end && end[1] ? advice_of(file_habits, sizeof(file_habits) / sizeof(file_habits[0]), end + 1) : NULL;
}

const char *option_advice(const char *word)
{
    return advice_of(option_habits, sizeof(option_habits) / sizeof(option_habits[0]), word);
}
