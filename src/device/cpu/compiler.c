/*
 * Finding and running the system's C compiler. In: C text. Out: a shared library beside the path that was asked for.
 *
 * Nothing is run to find it: the environment and PATH are looked at, and the program's file tells its identity, so that
 * a kernel from the cache starts no process. What is loaded must not change the host: no start-up files are linked
 * (-nostdlib), so nothing touches the floating-point state, and functions of the C library are resolved from the
 * process, or from libm and libc where the text asks for them.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "device/cpu/compiler.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#define HAS_CPUID 1
#endif

/* No -ffast-math: NaN, infinity and the order of sums mean what they say. */
static const char *const flags[] = {"-std=gnu11",
                                    "-O3",
                                    "-march=native",
                                    "-ffp-contract=fast",
                                    "-fno-math-errno",
                                    "-fno-trapping-math",
                                    "-fwrapv",
                                    "-fPIC",
                                    "-fno-asynchronous-unwind-tables",
                                    "-fno-stack-protector",
                                    "-w",
                                    "-x",
                                    "c"};

/* It joins two rounds of a loop around a loop of vectors: chains twice as long, which the processor no longer overlaps.
 * Other compilers do not know the flag. */
static const char gnu_flag[] = "-fno-loop-unroll-and-jam";

#define NAMING_LIMIT_S 10.0 /* for a program to say its name */

static bool is_gnu(const compiler *c)
{
    return strstr(c->name, "gcc") != NULL;
}

/* The program of a setting such as "gcc -m64": found on PATH, the other words kept. */
static bool use_setting(compiler *c, const char *setting)
{
    char program[512];
    size_t length = strcspn(setting, " \t");
    if (!length || length >= sizeof(program)) return false;
    memcpy(program, setting, length);
    program[length] = 0;
    if (!program_find(program, c->path, sizeof(c->path))) return false;
    size_t used = 0;
    for (const char *p = setting + length; *p;) {
        p += strspn(p, " \t");
        size_t word = strcspn(p, " \t");
        if (!word || used + word + 2 > sizeof(c->words)) break;
        memcpy(c->words + used, p, word);
        used += word;
        c->words[used++] = 0;
        p += word;
    }
    c->words[used] = 0;
    return true;
}

/* False: its file cannot be looked at, so nothing would tell it from another compiler in the cache. */
static bool name_it(compiler *c)
{
    struct stat about;
    if (!realpath(c->path, c->resolved) || stat(c->resolved, &about)) return false;
    c->size_bytes = (int64_t)about.st_size;
    c->date = about.st_mtim;
    const char *base = strrchr(c->resolved, '/');
    base = base ? base + 1 : c->resolved;
    snprintf(c->name, sizeof(c->name), "%.120s", base);
    if (strpbrk(base, "0123456789") && strncmp(base, "ccache", 6)) return true;
    const char *arguments[] = {c->path, "--version", NULL};
    text output = {0};
    int code = 1;
    if (process_run_for(arguments, NAMING_LIMIT_S, &output, &code, NULL) == QN_OK && code == 0 && output.length)
        snprintf(c->name, sizeof(c->name), "%.*s", (int)MINIMUM(strcspn(text_get(&output), "\n"), (size_t)120),
                 text_get(&output));
    text_free(&output);
    return true;
}

/* names: two variables of the environment, then programs. */
static void find(compiler *c, const char *const names[5])
{
    *c = (compiler){0};
    for (int i = 0; i < 5; i++) {
        const char *setting = i < 2 ? environment_get(names[i]) : names[i];
        if (!setting) continue;
        if (use_setting(c, setting) && name_it(c)) return;
        if (i < 2 && !c->wanted[0]) {
            snprintf(c->wanted, sizeof(c->wanted), "%s", setting);
            c->wanted_by = names[i];
        }
    }
    c->path[0] = 0;
}

void compiler_find(compiler *c)
{
    static const char *const names[] = {"QUERN_CC", "CC", "cc", "gcc", "clang"};
    find(c, names);
}

void compiler_find_cpp(compiler *c)
{
    static const char *const names[] = {"QUERN_CXX", "CXX", "c++", "g++", "clang++"};
    find(c, names);
}

void compiler_missing(const compiler *c, char *words, size_t size)
{
    if (c->wanted[0])
        snprintf(
            words, size,
            "no C compiler: `%.80s` of $%s cannot be run, nor are cc, gcc, clang; install gcc (apt-get install gcc) "
            "or use the device `ref`",
            c->wanted, c->wanted_by);
    else
        snprintf(words, size,
                 "no C compiler on PATH: install gcc (apt-get install gcc) or clang; the device `ref` still runs");
}

#ifdef HAS_CPUID
static uint64_t extended_state(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}
#endif

void processor_name(char *name, size_t size)
{
    snprintf(name, size, "unknown processor");
#ifdef HAS_CPUID
    uint32_t words[13] = {0};
    for (uint32_t i = 0; i < 3; i++)
        if (!__get_cpuid(0x80000002 + i, &words[4 * i], &words[4 * i + 1], &words[4 * i + 2], &words[4 * i + 3]))
            return;
    const char *start = (const char *)words;
    while (*start == ' ') start++;
    if (*start) snprintf(name, size, "%s", start);
#endif
}

int processor_vector_bytes(void)
{
#ifdef HAS_CPUID
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") ? 64 : __builtin_cpu_supports("avx2") ? 32 : 16;
#else
    return 16;
#endif
}

int processor_vector_registers(void)
{
#ifdef HAS_CPUID
    return processor_vector_bytes() == 64 ? 32 : 16;
#else
    return 32;
#endif
}

/* A line of what the system says of a cache of the first processor; false: nothing. */
static bool cache_says(int index, const char *what, char *line, int size)
{
    char path[96];
    snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, what);
    FILE *file = fopen(path, "r");
    bool good = file && fgets(line, size, file);
    if (file) fclose(file);
    return good;
}

/* All last caches of the processors that are on: a virtual machine's share, where sysconf has the whole package's. 0: not known. */
static size_t last_caches_bytes(void)
{
    char line[256];
    for (int index = 0; index < 8 && cache_says(index, "level", line, sizeof(line)); index++) {
        if (atoi(line) != 3 || !cache_says(index, "size", line, sizeof(line))) continue;
        size_t bytes = strtoul(line, NULL, 10) << 10; /* "32768K" */
        long on = sysconf(_SC_NPROCESSORS_ONLN), sharing = 0, first, last;
        if (!cache_says(index, "shared_cpu_list", line, sizeof(line))) return bytes;
        for (const char *at = line; *at >= '0' && *at <= '9'; at += *at == ',') { /* "0-7,64-71" */
            char *end;
            first = last = strtol(at, &end, 10);
            if (*end == '-') last = strtol(end + 1, &end, 10);
            sharing += last - first + 1;
            at = end;
        }
        return sharing > 0 && on > sharing ? bytes * (size_t)((on + sharing - 1) / sharing) : bytes;
    }
    return 0;
}

size_t processor_cache_bytes(int level)
{
    static const int names[] = {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE};
    static const size_t guesses[] = {32 << 10, 1 << 20, 32 << 20};
    CHECK(level >= 1 && level <= 3);
    size_t last = level == 3 ? last_caches_bytes() : 0;
    if (last) return last;
    long size = sysconf(names[level - 1]);
    return size > 0 ? (size_t)size : guesses[level - 1];
}

static void describe_processor(text *out)
{
    char name[128];
    processor_name(name, sizeof(name));
    text_print(out, "processor %s", name);
#ifdef HAS_CPUID
    /* Family and features, without the number of the core that is asked. */
    static const uint32_t leaves[][2] = {{1, 0}, {7, 0}, {7, 1}, {0x80000001, 0}};
    for (int i = 0; i < COUNT(leaves); i++) {
        uint32_t a = 0, b = 0, c = 0, d = 0;
        if (!__get_cpuid_count(leaves[i][0], leaves[i][1], &a, &b, &c, &d)) continue;
        if (leaves[i][0] == 1) {
            b = 0;
            if (c & (1u << 27)) text_print(out, " %llx", (unsigned long long)extended_state());
        }
        text_print(out, " %x.%x.%x.%x", a, b, c, d);
    }
#endif
    text_add(out, "\n");
}

void compiler_describe(const compiler *c, text *out)
{
    struct stat about; /* as it is now, for one that was replaced; else as it was found, never as nothing */
    bool known = stat(c->resolved, &about) == 0;
    struct timespec date = known ? about.st_mtim : c->date;
    text_print(out, "compiler %s, %lld bytes, date %lld.%09ld", c->resolved,
               (long long)(known ? about.st_size : c->size_bytes), (long long)date.tv_sec, date.tv_nsec);
    for (const char *word = c->words; *word; word += strlen(word) + 1) text_print(out, " %s", word);
    text_add(out, "\nflags");
    for (int i = 0; i < COUNT(flags); i++) text_print(out, " %s", flags[i]);
    if (is_gnu(c)) text_print(out, " %s", gnu_flag);
    text_add(out, "\n");
    describe_processor(out);
}

/* A compiler that made nothing and does not say why: tell what was run. */
static qn_status silent(const char *const *arguments, int code, qn_error *error)
{
    text words = {0};
    for (int i = 0; arguments[i]; i++) text_print(&words, "%s%s", i ? " " : "", arguments[i]);
    qn_status status =
        error_set(error, QN_FAILED, "the compiler %s and printed nothing%s; it was run as\n  %s\nwith exit status %d\n",
                  code ? "failed" : "made no file", code < 0 ? " (a signal ended it)" : "", text_get(&words), code);
    text_free(&words);
    return status;
}

qn_status compiler_finish(const compiler *c, const char *const *arguments, const char *source_path,
                          const char *binary_path, compiler_refused *refused, qn_error *error)
{
    text output = {0};
    int code = 1;
    qn_status status = process_run(arguments, &output, &code, error);
    struct stat made;
    bool wrong = status == QN_OK && (code || stat(binary_path, &made) || !made.st_size);
    if (wrong)
        status = text_get(&output)[strspn(text_get(&output), " \t\r\n")] ? refused(c, source_path, &output, error)
                                                                         : silent(arguments, code, error);
    text_free(&output);
    unlink(source_path);
    return status;
}

/* The first lines of what the compiler said, with the name of our temporary file taken out. */
static qn_status refused(const compiler *c, const char *path, const text *output, qn_error *error)
{
    text words = {0};
    int lines = 0;
    size_t length = strlen(path);
    for (const char *p = text_get(output); *p && lines < 12;) {
        if (!strncmp(p, path, length)) {
            text_add(&words, "generated C");
            p += length;
        }
        size_t rest = strcspn(p, "\n");
        text_add_bytes(&words, p, rest);
        text_add(&words, "\n");
        p += rest + (p[rest] == '\n');
        lines++;
    }
    qn_status status =
        error_set(error, QN_FAILED, "the C compiler (%s) refused the text:\n%s", c->name, text_get(&words));
    text_free(&words);
    return status;
}

static qn_status run(const compiler *c, const char *source, const char *binary_path, bool assembler, qn_error *error)
{
    if (!c->path[0]) {
        char words[512];
        compiler_missing(c, words, sizeof(words));
        return error_set(error, QN_NO_DEVICE, "%s", words);
    }
    char c_path[4200];
    snprintf(c_path, sizeof(c_path), "%s.c", binary_path);
    QN_TRY(file_write(c_path, source, strlen(source), error));
    const char *arguments[64];
    int count = 0;
    arguments[count++] = c->path;
    for (int i = 0; i < COUNT(flags); i++) arguments[count++] = flags[i];
    if (processor_vector_bytes() == 64) arguments[count++] = "-mprefer-vector-width=512";
    if (is_gnu(c)) arguments[count++] = gnu_flag;
    arguments[count++] = c_path;
    arguments[count++] = "-x";
    arguments[count++] = "none";
    for (const char *word = c->words; *word && count < 50; word += strlen(word) + 1) arguments[count++] = word;
    /* Headers, or the prelude's functions that stand on libm: name the libraries, for hosts that do not have them in
     * sight. Everything else needs no more than what any process has. */
    bool libraries = strstr(source, "#include") || strstr(source, "extern double sin(double)");
    compiler_end(arguments, count, assembler, libraries, binary_path);
    return compiler_finish(c, arguments, c_path, binary_path, refused, error);
}

qn_status compiler_run(const compiler *c, const char *source, const char *binary_path, qn_error *error)
{
    return run(c, source, binary_path, false, error);
}

static qn_status make_assembly(const compiler *c, const char *source, const char *path, qn_error *error)
{
    return run(c, source, path, true, error);
}

qn_status compiler_show(const compiler *c, const char *source, text *out, qn_error *error)
{
    return compiler_read(make_assembly, c, source, out, error);
}

int compiler_end(const char **arguments, int count, bool assembler, bool libraries, const char *binary_path)
{
    static const char *const library[] = {"-shared", "-nostdlib", "-lm", "-lc", "-lgcc"};
    if (assembler) arguments[count++] = "-S";
    for (int i = 0; i < (assembler ? 0 : libraries ? COUNT(library) : 2); i++) arguments[count++] = library[i];
    arguments[count++] = "-o";
    arguments[count++] = binary_path;
    arguments[count] = NULL;
    return count;
}

qn_status compiler_read(compiler_make *make, const compiler *c, const char *source, text *out, qn_error *error)
{
    char folder[2100], path[2200];
    int place;
    if (!folder_make_private("quern-asm", folder, sizeof(folder), &place))
        return error_set(error, QN_FAILED, "cannot make the folder %s", folder);
    snprintf(path, sizeof(path), "%s/kernel.s", folder);
    qn_status status = make(c, source, path, error);
    char *words = NULL;
    size_t size = 0;
    if (status == QN_OK) status = file_read(path, (size_t)64 << 20, &words, &size, error);
    if (status == QN_OK) text_add_bytes(out, words, size);
    heap_free(words);
    unlink(path); /* by its name: where no file can be opened the folder cannot be looked through */
    folder_remove_private(folder, place);
    return status;
}
