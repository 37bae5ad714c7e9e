/*
 * NVRTC behind a table of pointers. In: CUDA C text and an architecture. Out: a cubin, the PTX it was made from, and the
 * compiler's log.
 *
 * The text includes nothing, and `--minimal` leaves out what generated text never uses, which is a third of the time of
 * a small kernel. The library is opened at the first use, under a lock; after that nothing is shared between two
 * compilations, so they run side by side.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "device/cuda/nvrtc.h"
#include "device/cuda/cubin.h"
#include "emit/raw/option.h"
#include "device/cuda/api.h"

#include <ctype.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ARCHS 64
#define MAX_FLAGS 64
#define MOST_STATIC_SHARED 49152

struct nvrtc {
    pthread_mutex_t lock;
    atomic_bool ready;
    cuda_api api; /* NVRTC's part of it */
    int version;
    int archs[MAX_ARCHS], arch_count;
};

static const char *const flags[] = {"--minimal", "--std=c++17", "--device-as-default-execution-space"};

nvrtc *nvrtc_new(void)
{
    nvrtc *n = heap_new(sizeof(*n));
    pthread_mutex_init(&n->lock, NULL);
    return n;
}

void nvrtc_free(nvrtc *n)
{
    if (!n) return;
    cuda_api_close(&n->api);
    pthread_mutex_destroy(&n->lock);
    heap_free(n);
}

/* ---- opening ---- */

static qn_status open_library(nvrtc *n, qn_error *error)
{
    QN_TRY(cuda_api_open(&n->api, CUDA_LIBRARY_NVRTC, error));
    int major = 0, minor = 0, count = 0;
    (void)n->api.nvrtcVersion(&major, &minor);
    n->version = 100 * major + minor;
    if (n->version < NVRTC_OLDEST) {
        error_set(
            error, QN_NO_DEVICE,
            "NVRTC %d.%d (%s) is too old: install version %d.%d or newer, or set QUERN_CUDA_PATH to the folder of "
            "a newer CUDA toolkit",
            major, minor, nvrtc_path(n), NVRTC_OLDEST / 100, NVRTC_OLDEST % 100);
        cuda_api_close(&n->api);
        return QN_NO_DEVICE;
    }
    if (n->api.nvrtcGetNumSupportedArchs(&count) || count < 0 || count > MAX_ARCHS ||
        n->api.nvrtcGetSupportedArchs(n->archs))
        count = 0;
    n->arch_count = count;
    return QN_OK;
}

qn_status nvrtc_ready(nvrtc *n, qn_error *error)
{
    if (atomic_load_explicit(&n->ready, memory_order_acquire)) return QN_OK;
    lock_take(&n->lock);
    qn_status status = n->ready ? QN_OK : open_library(n, error);
    if (status == QN_OK) atomic_store_explicit(&n->ready, true, memory_order_release);
    lock_give(&n->lock);
    return status;
}

int nvrtc_version(const nvrtc *n)
{
    return n->version;
}

const char *nvrtc_path(const nvrtc *n)
{
    return n->api.paths[CUDA_LIBRARY_NVRTC];
}

int nvrtc_arch_count(const nvrtc *n)
{
    return n->arch_count;
}

int nvrtc_arch_get(const nvrtc *n, int number)
{
    return number >= 0 && number < n->arch_count ? n->archs[number] : 0;
}

bool nvrtc_knows(const nvrtc *n, int arch)
{
    for (int i = 0; i < n->arch_count; i++)
        if (n->archs[i] == arch) return true;
    return false;
}

/* ---- architectures ---- */

bool arch_from_words(const char *words, int *arch)
{
    if (!strncmp(words, "sm", 2))
        words += 2 + (words[2] == '_');
    else if (!strncmp(words, "compute_", 8))
        words += 8;
    int number = 0, digits = 0;
    bool point = false;
    for (; isdigit((unsigned char)*words) || (*words == '.' && digits && !point); words++) {
        if (*words == '.') {
            point = true;
            continue;
        }
        number = 10 * number + *words - '0';
        if (++digits > 3) return false;
    }
    if (*words == 'a' || *words == 'f') words++;
    if (*words || digits < 2 || number < 10) return false;
    *arch = number;
    return true;
}

void arch_name(int arch, char name[16])
{
    snprintf(name, 16, "sm_%d%s", arch, arch >= 90 ? "a" : "");
}

static qn_status unknown_arch(const nvrtc *n, int arch, qn_error *error)
{
    text list = {0};
    for (int i = 0; i < n->arch_count; i++) text_print(&list, "%s%d", i ? ", " : "", n->archs[i]);
    const char *advice = n->arch_count && arch > n->archs[n->arch_count - 1]
                             ? "install a newer NVRTC, or set QUERN_CUDA_PATH to a newer toolkit"
                             : "name one of these with --arch";
    qn_status status = error_set(error, QN_NO_DEVICE, "NVRTC %d.%d does not know architecture %d, but %s: %s",
                                 n->version / 100, n->version % 100, arch, text_get(&list), advice);
    text_free(&list);
    return status;
}

/* ---- compiling ---- */

void nvrtc_output_free(nvrtc_output *o)
{
    text_free(&o->cubin);
    text_free(&o->ptx);
    text_free(&o->log);
    for (int i = 0; i < o->symbol_count; i++) text_free(&o->symbols[i]);
    heap_free(o->symbols);
    *o = (nvrtc_output){0};
}

void nvrtc_messages(const char *log, text *out)
{
    for (const char *line = log; *line;) {
        size_t length = strcspn(line, "\n");
        const char *end = line + length, *open = NULL;
        for (const char *p = line; p < end && !open; p++) { /* "(12): " ends the name of the file */
            size_t digits = *p == '(' ? strspn(p + 1, "0123456789") : 0;
            if (digits && !strncmp(p + 1 + digits, "): ", 3)) open = p;
        }
        bool summary = strstr(line, " detected in the compilation of ") && strstr(line, " detected in the") < end;
        if (open) {
            size_t digits = strspn(open + 1, "0123456789");
            text_print(out, "%.*s:%.*s%.*s\n", (int)(open - line), line, (int)digits, open + 1,
                       (int)(end - open - 2 - (long)digits), open + 2 + digits);
        } else if (!summary && length) {
            text_print(out, "%.*s\n", (int)length, line);
        }
        line = end + (*end == '\n');
    }
}

typedef int size_function(void *program, size_t *size_bytes);
typedef int bytes_function(void *program, char *bytes);

/* The sizes of text results count their final NUL. */
static bool fetch(void *program, size_function *size, bytes_function *bytes, bool is_text, text *out)
{
    size_t count = 0;
    if (size(program, &count)) return false;
    if (!count) return true;
    char *memory = malloc(count);
    if (!memory) return false;
    bool good = bytes(program, memory) == 0;
    if (good) text_add_bytes(out, memory, is_text ? strnlen(memory, count) : count);
    heap_free(memory);
    return good;
}

/* Of a log with errors the messages that are errors: warnings of the same text only hide them. */
static void keep_errors(const char *words, text *out)
{
    bool keep = false, any = strstr(words, ": error") || strstr(words, "catastrophic error");
    for (const char *line = words; *line;) {
        size_t length = strcspn(line, "\n");
        char head[400];
        snprintf(head, sizeof(head), "%.*s", (int)MINIMUM(length, sizeof(head) - 1), line);
        if (strstr(head, ": error") || strstr(head, "catastrophic error"))
            keep = true;
        else if (strstr(head, ": warning") || strstr(head, ": remark") || !strncmp(head, "Remark: ", 8))
            keep = false;
        if (keep || !any) text_print(out, "%.*s\n", (int)length, line);
        line += length + (line[length] == '\n');
    }
}

static qn_status refused(const nvrtc *n, int code, const char *log, qn_error *error)
{
    text words = {0}, errors = {0};
    nvrtc_messages(log, &words);
    keep_errors(text_get(&words), &errors);
    if (strstr(text_get(&errors), "open source file"))
        text_add(&errors,
                 "a header is found in folders that are named: options (\"-I/usr/local/cuda/include\"); those of "
                 "the CUDA toolkit also where CUDA_HOME says it is\n");
    qn_status status = errors.length ? error_set(error, QN_FAILED, "NVRTC %d.%d refused the text:\n%s",
                                                 n->version / 100, n->version % 100, text_get(&errors))
                                     : error_set(error, QN_FAILED, "NVRTC %d.%d failed: %s", n->version / 100,
                                                 n->version % 100, n->api.nvrtcGetErrorString(code));
    text_free(&words);
    text_free(&errors);
    return status;
}

/* The assembler lets static shared memory pass that no driver loads. */
static qn_status check_shared(const text *cubin, qn_error *error)
{
    const char *symbol;
    cubin_usage usage;
    for (int i = 0; cubin->length && (symbol = cubin_symbol(cubin->data, cubin->length, i)); i++) {
        if (!cubin_read(cubin->data, cubin->length, symbol, &usage) || usage.shared_bytes <= MOST_STATIC_SHARED)
            continue;
        const char *phase = strstr(symbol, "_phase");
        return error_diagnose(error, QN_FAILED, E506, NULL, 0, 0,
                              "kernel `%.*s` declares %lld bytes of shared memory; at most %d are possible, and "
                              "more only as `extern __shared__` with `shared (...)`",
                              phase ? (int)(phase - symbol) : (int)strlen(symbol), symbol,
                              (long long)usage.shared_bytes, MOST_STATIC_SHARED);
    }
    return QN_OK;
}

/* Do two options set the same thing? Macros and folders are many. */
static bool same_option(const char *a, const char *b)
{
    if (!strcmp(a, b)) return true;
    a += strspn(a, "-");
    b += strspn(b, "-");
    size_t name = strcspn(a, "=");
    return a[name] && strncmp(a, "D", 1) != 0 && strncmp(a, "I", 1) != 0 && strncmp(a, "define", 6) != 0 &&
           strncmp(a, "include", 7) != 0 && !strncmp(a, b, name + 1);
}

/* The options at the start of a raw kernel's text: they replace what sets the same. */
static int own_options(const char *source, const char **list, int count, int most, arena *memory)
{
    raw_span option;
    while (raw_next_option(&source, &option)) {
        const char *words = arena_copy_text(memory, option.start, option.length);
        int kept = 0;
        for (int i = 0; i < count; i++)
            if (!same_option(words, list[i])) list[kept++] = list[i];
        count = kept;
        if (count < most) list[count++] = words;
    }
    return count;
}

static qn_status run(nvrtc *n, void *program, const char *source, const nvrtc_options *options, nvrtc_output *output,
                     qn_error *error)
{
    const cuda_api *api = &n->api;
    const char *list[MAX_FLAGS];
    int count = 0;
    char target[40], name[16];
    arch_name(options->arch, name);
    snprintf(target, sizeof(target), "--gpu-architecture=%s%s", options->ptx_only ? "compute_" : "sm_", name + 3);
    list[count++] = target;
    for (int i = 0; i < COUNT(flags); i++) list[count++] = flags[i];
    if (options->line_info) list[count++] = "--generate-line-info";
    if (options->usage && !options->ptx_only) list[count++] = "--ptxas-options=-v";
    for (int i = 0; i < options->flag_count; i++) {
        if (count == MAX_FLAGS)
            return error_set(error, QN_BAD_CALL, "%d options for the compiler: give at most %d", options->flag_count,
                             MAX_FLAGS - (count - i));
        list[count++] = options->flags[i];
    }
    arena *memory = arena_new();
    count = own_options(source, list, count, MAX_FLAGS, memory);
    int code = 0;
    for (int i = 0; i < options->name_count && !code; i++)
        code = api->nvrtcAddNameExpression(program, options->names[i]);
    if (!code) code = api->nvrtcCompileProgram(program, count, list);
    arena_free(memory);
    fetch(program, api->nvrtcGetProgramLogSize, api->nvrtcGetProgramLog, true, &output->log);
    if (code) return refused(n, code, text_get(&output->log), error);
    bool good = fetch(program, api->nvrtcGetPTXSize, api->nvrtcGetPTX, true, &output->ptx);
    if (!options->ptx_only)
        good &=
            fetch(program, api->nvrtcGetCUBINSize, api->nvrtcGetCUBIN, false, &output->cubin) && output->cubin.length;
    if (!good) return error_set(error, QN_FAILED, "NVRTC gave no code");
    QN_TRY(check_shared(&output->cubin, error));
    output->symbols = heap_array((size_t)MAXIMUM(options->name_count, 1), sizeof(text));
    output->symbol_count = options->name_count;
    for (int i = 0; i < options->name_count; i++) {
        const char *lowered = NULL;
        if (api->nvrtcGetLoweredName(program, options->names[i], &lowered) || !lowered)
            return error_set(error, QN_FAILED, "NVRTC gives no symbol for `%s`", options->names[i]);
        text_add(&output->symbols[i], lowered);
    }
    return QN_OK;
}

qn_status nvrtc_compile(nvrtc *n, const char *source, const char *name, const nvrtc_options *options,
                        nvrtc_output *output, qn_error *error)
{
    QN_TRY(nvrtc_ready(n, error));
    if (!nvrtc_knows(n, options->arch)) return unknown_arch(n, options->arch, error);
    int64_t start = clock_now_ns();
    void *program = NULL;
    int code = n->api.nvrtcCreateProgram(&program, source, name, options->header_count, options->headers,
                                         options->header_names);
    if (code) return refused(n, code, "", error);
    qn_status status = run(n, program, source, options, output, error);
    n->api.nvrtcDestroyProgram(&program);
    output->time_ns = clock_now_ns() - start;
    return status;
}

void nvrtc_describe(const nvrtc *n, int arch, text *out)
{
    char name[16];
    arch_name(arch, name);
    text_print(out, "NVRTC %d.%d for %s", n->version / 100, n->version % 100, name);
    for (int i = 0; i < COUNT(flags); i++) text_print(out, " %s", flags[i]);
    text_add(out, "\n");
}
