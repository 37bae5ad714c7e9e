/*
 * From CUDA text to C++ to a shared library. In: the bytes that NVRTC gets. Out: a file for dlopen.
 *
 * The text itself is not touched. What it does not say in C++ is added around it: the header in front; after it, for
 * each kernel, a function that calls it with arguments as the driver API has them, and for the arrays of dynamic shared
 * memory, whatever their types, one piece of thread-local memory by all their names. Optimising costs more than it
 * brings at the sizes of tests, hence -O1. The checked mode has the compiler announce every access (as for a race
 * detector, whose run time is not linked: the header has its functions), and lines.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "device/emu/unit.h"
#include "device/emu/worker.h"
#include "emit/raw/option.h"

#include <ctype.h>
#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const flags[] = {"-std=gnu++17",
                                    "-O1",
                                    "-march=native",
                                    "-ffp-contract=off",
                                    "-fno-math-errno",
                                    "-fno-trapping-math",
                                    "-fwrapv",
                                    "-fno-strict-aliasing",
                                    "-fno-exceptions",
                                    "-fno-rtti",
                                    "-fno-threadsafe-statics",
                                    "-fno-stack-protector",
                                    "-fno-asynchronous-unwind-tables",
                                    "-fvisibility=hidden",
                                    "-fPIC",
                                    "-fsanitize=alignment",
                                    "-Wl,-Bsymbolic-functions", /* its own handlers, not those of a sanitized program */
                                    "-w"};
#define MAX_DECLARED 1024
static const char generated_name[] = "generated CUDA"; /* in place of a file's, for what no #line of the text names */

/* Watched accesses tell of their addresses themselves. */
static const char *const checked_flags[] = {"-g1", "-fsanitize=thread", "-fno-sanitize=alignment",
                                            "-DQUERN_EMU_CHECKED"};
/* In a template gcc forgets that dynamic shared memory is not initialised at run time, and calls what would do it. */
static const char gcc_flag[] = "-fno-extern-tls-init";

static bool is_clang(const compiler *c)
{
    return strstr(c->name, "clang") || strstr(c->resolved, "clang");
}

/* ---- the text around ---- */

static bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* The next word or single character after blanks and comments; strings are one token. NULL at the end. */
static const char *next_token(const char *c, size_t *length)
{
    c = raw_skip_blank(c);
    if (!*c) return NULL;
    *length = 1;
    if (is_name(*c)) {
        while (is_name(c[*length])) ++*length;
    } else if (*c == '"' || *c == '\'') {
        while (c[*length] && c[*length] != *c) *length += c[*length] == '\\' && c[*length + 1] ? 2 : 1;
        if (c[*length]) ++*length;
    }
    return c;
}

static bool token_is(const char *token, size_t length, const char *word)
{
    return strlen(word) == length && !memcmp(token, word, length);
}

typedef struct word {
    const char *start;
    size_t length;
} word;

/* What a text declares that needs something after it. */
typedef struct declared {
    word name, space; /* space: the namespace around it, or empty */
} declared;

/* Reads one declaration from behind `extern`; *at is left at its end. */
static bool read_declared(const char **at, bool shared, word *name)
{
    bool seen = false, linkage = false;
    *name = (word){0};
    size_t length = 0;
    const char *t = *at;
    while ((t = next_token(t, &length)) && *t != ';' && *t != '{' && *t != '}' && *t != '=') {
        *at = t + length;
        if (token_is(t, length, "\"C\"")) linkage = true;
        if (token_is(t, length, shared ? "__shared__" : "__global__")) seen = true;
        if (*t == (shared ? '[' : '(') && name->length && name->start[0] != '_') return seen && (shared || linkage);
        if (*t == '(') { /* __align__(16), __launch_bounds__(256) */
            int depth = 1;
            const char *inner = *at;
            while (depth && (inner = next_token(inner, &length))) {
                depth += *inner == '(' ? 1 : *inner == ')' ? -1 : 0;
                inner += length;
            }
            if (!inner) return false;
            *at = inner;
        }
        if (is_name(*t)) *name = (word){t, length};
        t = *at;
    }
    return false;
}

/* Arrays declared `extern __shared__ ... NAME[]`, or kernels declared `extern "C" __global__ ... NAME(`. */
static int find_declared(const char *source, bool shared, declared *out, int most)
{
    int count = 0, depth = 0;
    size_t length = 0;
    word space = {0};
    int space_depth = 0;
    const char *at = source, *t;
    while ((t = next_token(at, &length))) {
        at = t + length;
        if (*t == '{') depth++;
        if (*t == '}' && --depth <= space_depth) space = (word){0};
        if (token_is(t, length, "namespace") && !space.length) {
            const char *name = next_token(at, &length);
            if (name && is_name(*name)) {
                space = (word){name, length};
                space_depth = depth;
                at = name + length;
            }
        }
        if (!token_is(t, length, "extern")) continue;
        declared found = {.space = space};
        bool fits = read_declared(&at, shared, &found.name);
        for (int i = 0; i < count && fits; i++)
            fits = out[i].name.length != found.name.length || out[i].space.start != space.start ||
                   memcmp(out[i].name.start, found.name.start, found.name.length);
        if (fits && count < most) out[count++] = found;
    }
    return count;
}

static void put_place(const char *symbol, text *out)
{
    text_print(out, "        \".globl %s\\n.hidden %s\\n.type %s, @object\\n.size %s, %d\\n%s:\\n\"\n", symbol, symbol,
               symbol, symbol, EMU_DYNAMIC_BYTES, symbol);
}

/* One piece of memory by all the names. Inside a namespace a name has two symbols: declared there, or in a function. */
static void put_dynamic(const declared *list, int count, text *out)
{
    text symbol = {0};
    text_add(out, "__asm__(\".section .tbss,\\\"awT\\\",@nobits\\n.balign 1024\\n\"\n");
    for (int i = 0; i < count; i++) {
        word name = list[i].name, space = list[i].space;
        text_clear(&symbol);
        text_print(&symbol, "_ZN%zu%.*s%zu%.*sE", space.length, (int)space.length, space.length ? space.start : "",
                   name.length, (int)name.length, name.start);
        if (space.length) put_place(text_get(&symbol), out);
        bool known = false;
        for (int o = 0; o < i && !known; o++)
            known = list[o].name.length == name.length && !memcmp(list[o].name.start, name.start, name.length);
        text_clear(&symbol);
        text_add_bytes(&symbol, name.start, name.length);
        if (!known) put_place(text_get(&symbol), out);
    }
    text_print(out, "        \".zero %d\\n.text\\n\");\n", EMU_DYNAMIC_BYTES);
    text_print(out,
               "EMU_EXPORT void *emu_dynamic()\n{\n    extern thread_local EMU_CONSTANT char emu_any[] "
               "__asm__(\"%s\");\n    return emu_any;\n}\n",
               text_get(&symbol));
    text_free(&symbol);
}

/* The text without the vendor's headers, which no host compiler reads: what they declare stands before it. */
static void put_source(const char *source, text *out)
{
    static const char *const headers[] = {"<cuda_fp16.h>", "<cuda_bf16.h>", "<mma.h>", "<cooperative_groups.h>",
                                          "<cooperative_groups/reduce.h>"};
    for (const char *line = source; *line;) {
        size_t length = strcspn(line, "\n");
        const char *c = line + strspn(line, " \t");
        bool drop = false;
        if (*c == '#') {
            c += 1 + strspn(c + 1, " \t");
            const char *name = strncmp(c, "include", 7) ? "" : c + 7 + strspn(c + 7, " \t");
            for (int i = 0; i < COUNT(headers); i++) drop |= !strncmp(name, headers[i], strlen(headers[i]));
        }
        if (!drop) text_add_bytes(out, line, length);
        if (line[length]) text_add(out, "\n");
        line += length + (line[length] == '\n');
    }
}

/* A raw kernel's own macros, behind the text of emu, whose words they may be: `-DN=16`. */
static void put_macros(const char *source, text *out)
{
    static const char *const known[][2] = {{"-D", "define"}, {"--define-macro=", "define"}, {"-U", "undef"}};
    raw_span option;
    while (raw_next_option(&source, &option))
        for (int i = 0; i < COUNT(known); i++) {
            size_t length = strlen(known[i][0]);
            if (option.length <= length || memcmp(option.start, known[i][0], length)) continue;
            const char *name = option.start + length, *end = option.start + option.length;
            const char *equals = memchr(name, '=', (size_t)(end - name));
            int name_length = (int)((equals ? equals : end) - name);
            text_print(out, "#%s %.*s", known[i][1], name_length, name);
            if (known[i][1][0] == 'd')
                text_print(out, " %.*s", equals ? (int)(end - equals) - 1 : 1, equals ? equals + 1 : "1");
            text_add(out, "\n");
            break;
        }
}

void emu_unit_write(const char *source, text *out)
{
    text_print(out, "#define EMU_STACK_BYTES %zuul\n#define EMU_THREAD_BYTES %d\n#line 1 \"emu\"\n", EMU_STACK_BYTES,
               EMU_THREAD_BYTES);
    text_add_bytes(out, (const char *)emu_text, emu_text_bytes);
    put_macros(source, out);
    text_print(out, "#line 1 \"%s\"\n", generated_name);
    put_source(source, out);
    text_add(out, "\n#undef asm\n#line 1 \"emu\"\n");
    declared *list = heap_array(MAX_DECLARED, sizeof(*list));
    int count = find_declared(source, false, list, MAX_DECLARED);
    for (int i = 0; i < count; i++)
        text_print(out, "QUERN_EMU_ENTRY(%.*s, %.*s::%.*s)\n", (int)list[i].name.length, list[i].name.start,
                   (int)list[i].space.length, list[i].space.length ? list[i].space.start : "", (int)list[i].name.length,
                   list[i].name.start);
    count = find_declared(source, true, list, MAX_DECLARED);
    if (count) put_dynamic(list, count, out);
    heap_free(list);
}

/* ---- compiling ---- */

void emu_unit_describe(const compiler *c, bool checked, text *out)
{
    compiler_describe(c, out);
    text_print(out, "emu %d, header", EMU_ABI_VERSION);
    text header = {0};
    emu_unit_write("", &header);
    char hex[33];
    hash_to_hex(hash_bytes(text_get(&header), header.length), hex);
    text_free(&header);
    text_print(out, " %s\nflags", hex);
    for (int i = 0; i < COUNT(flags); i++) text_print(out, " %s", flags[i]);
    if (!is_clang(c)) text_print(out, " %s", gcc_flag);
    for (int i = 0; checked && i < COUNT(checked_flags); i++) text_print(out, " %s", checked_flags[i]);
    text_add(out, "\n");
}

/* The first lines of what the compiler said; a name that is not known is named at once. */
static qn_status refused(const compiler *c, const char *path, const text *output, qn_error *error)
{
    text words = {0};
    size_t length = strlen(path);
    const char *end_mark = "was not declared in this scope", *all = text_get(output);
    const char *first = strstr(all, "error: ");
    size_t first_length = first ? strcspn(first, "\n") : 0;
    const char *unknown = first ? memmem(first, first_length, end_mark, strlen(end_mark)) : NULL;
    if (!unknown && first) {
        end_mark = "use of undeclared identifier";
        unknown = memmem(first, first_length, end_mark, strlen(end_mark));
    }
    if (unknown) { /* gcc: 'name' was not ...; clang: use of ... 'name' */
        const char *start = unknown, *quote = "\xe2\x80\x98";
        if (end_mark[0] == 'w') {
            while (start > all && start[-1] != '\n' && strncmp(start, quote, 3) && *start != '\'') start--;
            if (*start == '\'' && start > all) { /* the closing quote was met first */
                start--;
                while (start > all && *start != '\'' && *start != '\n') start--;
            }
        } else {
            start = strchr(unknown, '\'');
        }
        if (start) {
            start += !strncmp(start, quote, 3) ? 3 : 1;
            size_t used = 0;
            while (is_name(start[used])) used++;
            if (used) text_print(&words, "emu does not have `%.*s`\n", (int)used, start);
        }
    }
    int lines = 0;
    for (const char *p = all; *p && lines < 12; lines++) {
        if (!strncmp(p, path, length)) {
            text_add(&words, generated_name);
            p += length;
        }
        size_t rest = strcspn(p, "\n");
        text_add_bytes(&words, p, rest);
        text_add(&words, "\n");
        p += rest + (p[rest] == '\n');
    }
    const char *missing = strstr(all, "No such file or directory");
    if (!missing) missing = strstr(all, "file not found");
    if (missing)
        text_add(&words,
                 "emu has the usual names of CUDA, 16-bit floats, wmma and cooperative groups, and no other headers "
                 "of the toolkit: leave the include out, or run the kernel on a GPU\n");
    qn_status status =
        error_set(error, QN_FAILED, "the C++ compiler (%s) refused the text:\n%s", c->name, text_get(&words));
    text_free(&words);
    return status;
}

/* A folder of the CUDA toolkit's headers, or one in it: no host compiler reads them. */
static bool is_of_vendor(arena *memory, const char *folder, size_t length)
{
    static const char *const places[] = {"cuda_fp16.h", "../cuda_fp16.h"};
    for (int i = 0; i < COUNT(places); i++)
        if (!access(arena_print(memory, "%.*s/%s", (int)length, folder, places[i]), F_OK)) return true;
    return false;
}

/* Of a raw kernel's own options those that mean the same here: folders, the language (macros stand in the text). */
static int own_options(const char *source, const char **list, int count, int most, arena *memory)
{
    static const char *const known[][2] = {
        {"-I", "-I"}, {"--include-path=", "-I"}, {"-std=", "-std="}, {"--std=", "-std="}};
    raw_span option;
    while (count < most && raw_next_option(&source, &option))
        for (int i = 0; i < COUNT(known); i++) {
            size_t length = strlen(known[i][0]);
            if (option.length <= length || memcmp(option.start, known[i][0], length)) continue;
            if (known[i][1][1] == 'I' && is_of_vendor(memory, option.start + length, option.length - length)) break;
            list[count++] =
                arena_print(memory, "%s%.*s", known[i][1], (int)(option.length - length), option.start + length);
            break;
        }
    return count;
}

static qn_status compile(const compiler *c, const char *source, bool checked, bool assembler, const char *binary_path,
                         qn_error *error)
{
    if (!c->path[0])
        return error_set(error, QN_NO_DEVICE,
                         "no C++ compiler on PATH: install g++ (apt-get install g++) or set QUERN_CXX");
    char path[4200];
    snprintf(path, sizeof(path), "%s.cpp", binary_path);
    text unit = {0};
    emu_unit_write(source, &unit);
    qn_status status = file_write(path, text_get(&unit), unit.length, error);
    text_free(&unit);
    QN_TRY(status);
    const char *arguments[96];
    int count = 0;
    arena *memory = arena_new();
    arguments[count++] = c->path;
    for (int i = 0; i < COUNT(flags); i++) arguments[count++] = flags[i];
    if (!is_clang(c)) arguments[count++] = gcc_flag;
    for (int i = 0; checked && i < COUNT(checked_flags); i++) arguments[count++] = checked_flags[i];
    count = own_options(source, arguments, count, 64, memory);
    arguments[count++] = path;
    for (const char *w = c->words; *w && count < 80; w += strlen(w) + 1) arguments[count++] = w;
    compiler_end(arguments, count, assembler, true, binary_path);
    status = compiler_finish(c, arguments, path, binary_path, refused, error);
    arena_free(memory);
    return status;
}

qn_status emu_unit_compile(const compiler *c, const char *source, bool checked, const char *binary_path,
                           qn_error *error)
{
    return compile(c, source, checked, false, binary_path, error);
}

static qn_status make_assembly(const compiler *c, const char *source, const char *path, qn_error *error)
{
    return compile(c, source, false, true, path, error);
}

qn_status emu_unit_show(const compiler *c, const char *source, text *out, qn_error *error)
{
    return compiler_read(make_assembly, c, source, out, error);
}

/* ---- loading ---- */

static void *find_symbol(void *handle, const char *name, void *function, size_t size)
{
    void *address = dlsym(handle, name);
    memcpy(function, &address, size);
    return address;
}

static int find_extent(struct dl_phdr_info *info, size_t size, void *context)
{
    emu_library *l = context;
    (void)size;
    uintptr_t first = UINTPTR_MAX, end = 0, inside;
    memcpy(&inside, &l->touch, sizeof(inside));
    bool ours = false;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_LOAD) continue;
        uintptr_t start = info->dlpi_addr + p->p_vaddr, stop = start + p->p_memsz;
        ours |= inside >= start && inside < stop;
        first = MINIMUM(first, start);
        end = MAXIMUM(end, stop);
    }
    if (!ours) return 0;
    l->first = first;
    l->end = end;
    return 1;
}

qn_status emu_library_open(const char *path, emu_library *out, qn_error *error)
{
    *out = (emu_library){.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL)};
    if (!out->handle) {
        const char *why = dlerror();
        return error_set(error, QN_FAILED, "cannot load %s: %s", path, why ? why : "the loader gives no reason");
    }
    void (*bind)(const emu_calls *);
    if (!find_symbol(out->handle, "emu_bind", &bind, sizeof(bind)) ||
        !find_symbol(out->handle, "emu_touch", &out->touch, sizeof(out->touch))) {
        dlclose(out->handle);
        return error_set(error, QN_FAILED, "%s was not made by emu", path);
    }
    find_symbol(out->handle, "emu_dynamic", &out->dynamic, sizeof(out->dynamic));
    out->checked = dlsym(out->handle, "emu_is_checked") != NULL;
    bind(emu_engine_calls());
    out->path = heap_copy_text(path);
    dl_iterate_phdr(find_extent, out);
    return QN_OK;
}

void emu_library_close(emu_library *l)
{
    if (l->handle) dlclose(l->handle);
    heap_free(l->path);
    *l = (emu_library){0};
}

emu_entry *emu_library_find(const emu_library *l, const char *kernel)
{
    char name[400];
    emu_entry *entry = NULL;
    snprintf(name, sizeof(name), "emu_entry_%s", kernel);
    find_symbol(l->handle, name, &entry, sizeof(entry));
    return entry;
}

bool emu_library_line(const emu_library *l, const void *place, text *out)
{
    char address[32];
    /* The call's own instruction, not the one it returns to. */
    snprintf(address, sizeof(address), "0x%llx", (unsigned long long)((uintptr_t)place - l->first - 1));
    const char *arguments[] = {"addr2line", "-i", "-e", l->path, address, NULL};
    text output = {0};
    int code = 1;
    bool found = false;
    char program[512];
    if (program_find("addr2line", program, sizeof(program)) && process_run(arguments, &output, &code, NULL) == QN_OK &&
        !code) {
        /* From the innermost function outwards: the first line of a source, else of the generated text (its prelude). */
        for (int generated = 0; generated < 2 && !found; generated++)
            for (const char *p = text_get(&output); *p && !found;) {
                size_t length = strcspn(p, "\n");
                const char *extra = memmem(p, length, " (discriminator", 15);
                size_t used = extra ? (size_t)(extra - p) : length;
                const char *colon = memrchr(p, ':', used);
                if (colon && colon > p && colon[1] != '?' && colon[1] != '0') {
                    const char *start = colon;
                    while (start > p && start[-1] != '/') start--;
                    size_t name = (size_t)(colon - start);
                    bool header =
                        (name == 3 && !memcmp(start, "emu", 3)) || (name > 4 && !memcmp(colon - 4, ".cpp", 4));
                    bool ours = name == strlen(generated_name) && !memcmp(start, generated_name, name);
                    if (!header && ours == (generated == 1)) {
                        text_add_bytes(out, start, used - (size_t)(start - p));
                        found = true;
                    }
                }
                p += length + (p[length] == '\n');
            }
    }
    text_free(&output);
    return found;
}
