/*
 * Opening what the options name: a context, a module, a kernel of it, a call with its inputs. Each function writes its
 * own complaint and sets the exit status, so that a command only has to stop.
 * SPDX-License-Identifier: MIT
 */
#include "cli.h"

#include <errno.h>
#include <quern/workbench.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>
#include <stdlib.h>
#include <string.h>

static void print_line(void *user, const char *line)
{
    write_safely(user, line, strlen(line));
    fputc('\n', user);
}

FILE *open_for_reading(const char *path)
{
    enum { WRITER_MS = 2000 }; /* a pipe by name waits for whoever writes to it, but not for ever */
    int number = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), reason = 0;
    struct stat about = {0};
    if (number < 0) return NULL;
    if (fstat(number, &about) || S_ISDIR(about.st_mode)) reason = EISDIR;
    char byte;
    ssize_t got = -1;
    if (S_ISFIFO(about.st_mode) && poll(&(struct pollfd){.fd = number, .events = POLLIN}, 1, WRITER_MS) == 0)
        got = read(number, &byte, 1); /* a writer that says nothing yet is waited for: with one there is no end */
    if (got == 0) reason = ETIMEDOUT;
    int flags = fcntl(number, F_GETFL);
    if (flags >= 0) (void)!fcntl(number, F_SETFL, flags & ~O_NONBLOCK);
    FILE *file = reason ? NULL : fdopen(number, "rb");
    if (file && got == 1) ungetc((unsigned char)byte, file);
    if (file) return file;
    if (!reason) reason = errno;
    close(number);
    errno = reason;
    return NULL;
}

char *read_whole_file(const char *path)
{
    const size_t most = (size_t)64 << 20;
    FILE *file = open_for_reading(path);
    char *all = NULL;
    size_t length = 0, capacity = 0, got;
    if (!file) return NULL;
    do {
        if (capacity < length + 2) all = memory_or_exit(all, capacity = 2 * capacity + 4096);
        got = fread(all + length, 1, capacity - length - 1, file);
        length += got;
    } while (got && length <= most);
    int reason = length > most ? EFBIG : ferror(file) ? EIO : memchr(all, 0, length) ? EILSEQ : 0;
    all[length] = 0;
    fclose(file);
    if (!reason) return all;
    free(all);
    errno = reason;
    return NULL;
}

const char *why_not_read(void)
{
    return errno == EILSEQ ? "it has bytes that are 0, so it is no text" : strerror(errno);
}

/* Schedules of the user's own, of --edited. */
static bool use_schedules(qn_context *context, const char *path, int *exit_status)
{
    qn_error error;
    if (!path) return true;
    char *words = read_whole_file(path);
    if (!words) {
        complain("cannot read %s: %s", path, why_not_read());
        *exit_status = EXIT_WRONG_CALL;
        return false;
    }
    bool good = qn_schedule_use(context, words, &error) == QN_OK;
    if (!good) *exit_status = report_error(&error);
    free(words);
    return good;
}

/* Settings of the environment that are not understood are not followed, which is said. */
static void tell_environment(void)
{
    static const struct {
        const char *name, *units, *meant;
    } numbers[] = {{"QUERN_CACHE_LIMIT", "kKmMgG", "a size such as 512M or 2G"},
                   {"QUERN_COMPILE_LIMIT", "", "a number of seconds, 0 for no limit"}};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        const char *words = getenv(numbers[i].name);
        if (!words || !*words) continue;
        char number[64];
        double value;
        size_t length = strlen(words);
        snprintf(number, sizeof(number), "%.*s", (int)(length - (strchr(numbers[i].units, words[length - 1]) != NULL)),
                 words);
        if (length >= sizeof(number) || !read_real(number, &value) || !(value >= 0 && value < HUGE_VAL))
            remark("%s=%s is not %s, and was not followed", numbers[i].name, words, numbers[i].meant);
    }
    static const struct {
        const char *name, *known; /* with spaces around each */
    } words[] = {
        {"QUERN_TUNE", " off on "}, {"QUERN_CODECS", " none "}, {"QUERN_PROFILE_DEVICE", " cupti events none "}};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        const char *word = getenv(words[i].name);
        char spaced[64];
        if (!word || !*word) continue;
        int length = snprintf(spaced, sizeof(spaced), " %s ", word);
        if (length >= (int)sizeof(spaced) || strchr(word, ' ') || !strstr(words[i].known, spaced))
            remark("%s=%s is none of the words that it knows (%.*s), and was not followed", words[i].name, word,
                   (int)strlen(words[i].known) - 2, words[i].known + 1);
    }
}

qn_context *open_context(const arguments *given, int *exit_status)
{
    qn_error error;
    qn_context *context = NULL;
    qn_context_options options = {.threads = (int)given->threads,
                                  .no_cache = given->no_cache,
                                  .allow_raw = !given->no_raw,
                                  .print = print_line,
                                  .user = stderr,
                                  .keep_folder = given->keep,
                                  .verbose = given->verbose};
    tell_environment();
    if (qn_context_open(&options, &context, &error) != QN_OK) {
        *exit_status = report_error(&error);
        return NULL;
    }
    if (!use_schedules(context, given->edited, exit_status)) {
        qn_context_close(context);
        return NULL;
    }
    qn_device_info info;
    if (!given->device || qn_device_find(context, given->device, &info, &error) == QN_OK) return context;
    const char *names[16];
    int count = qn_device_count(context) < 16 ? qn_device_count(context) : 16;
    for (int i = 0; i < count; i++) {
        qn_device_get(context, i, &info);
        names[i] = info.name;
    }
    const char *near = nearest_word(given->device, names, count);
    if (near)
        complain("there is no device `%s`; did you mean `%s`?", given->device, near);
    else
        complain("there is no device `%s`; `quern devices` lists those there are", given->device);
    *exit_status = EXIT_WRONG_CALL;
    qn_context_close(context);
    return NULL;
}

const char *wanted_device(const qn_context *context, const arguments *given, int *exit_status)
{
    qn_device_info info;
    qn_error error;
    const char *name = given->device ? given->device : qn_device_best(context);
    if (qn_device_find(context, name, &info, &error) != QN_OK) return *exit_status = report_error(&error), NULL;
    if (info.available) return name;
    complain("the device %s is not available: %s", name, info.description);
    *exit_status = EXIT_FINDING;
    return NULL;
}

const char *choose_device(const qn_context *context, const arguments *given)
{
    qn_device_info info;
    qn_error ignored;
    if (given->device) {
        if (qn_device_find(context, given->device, &info, &ignored) == QN_OK && info.note[0]) remark("%s", info.note);
        return given->device;
    }
    const char *name = qn_device_best(context);
    for (int i = 0; i < qn_device_count(context); i++) {
        qn_device_get(context, i, &info);
        bool chosen = !strcmp(info.name, name);
        if (chosen && info.note[0]) remark("%s", info.note);
        if (chosen) break;
        if (!info.available && !info.absent)
            remark("the device %s is not there, %s is used (%s)", info.name, name, info.description);
    }
    return name;
}

void close_context(qn_context *context)
{
    const char *note = context ? qn_cache_note(context) : "";
    const char *unused = qn_schedule_unused(context);
    if (*note) remark("%s", note);
    if (unused) remark("the edited schedule of `%s` was not followed: no kernel of that name was compiled", unused);
    qn_context_close(context);
}

qn_module *open_module(qn_context *context, const char *path, int *exit_status)
{
    qn_error error;
    qn_module *module = NULL;
    if (qn_module_load_file(context, path, &module, &error) != QN_OK) {
        *exit_status = report_error(&error);
        const char *advice = error.status == QN_BAD_SOURCE ? file_advice(path) : NULL;
        if (advice) remark("%s: %s", path, advice);
        return NULL;
    }
    return module;
}

static void list_kernels(const qn_module *module, FILE *to)
{
    static const char *const kinds[] = {"in ", "out ", "inout ", "", "const "};
    for (int i = 0; i < qn_module_kernel_count(module); i++) {
        const char *name = qn_module_kernel_name(module, i);
        int count = qn_kernel_param_count(module, name);
        fprintf(to, "  %s(", name);
        for (int p = 0; p < count; p++) {
            qn_param param;
            qn_error error;
            if (qn_kernel_param(module, name, p, &param, &error) != QN_OK) continue;
            if (!*param.type) continue; /* a tensor function's result */
            fprintf(to, "%s%s%s %s", p ? ", " : "", kinds[param.kind], param.type, param.name);
            if (param.any_rank) fprintf(to, "[...]");
            for (int axis = param.any_rank; axis < param.rank; axis++) fprintf(to, "[]");
        }
        fprintf(to, ")\n");
    }
}

const char *choose_kernel(const qn_module *module, const command *c, const arguments *given, int *exit_status)
{
    int count = qn_module_kernel_count(module);
    const char *path = given->words.items[0], *wanted = given->words.count > 1 ? given->words.items[1] : NULL;
    const char **names = memory_or_exit(NULL, ((size_t)count + 1) * sizeof(*names)), *chosen = NULL;
    for (int i = 0; i < count; i++) {
        names[i] = qn_module_kernel_name(module, i);
        if (wanted ? !strcmp(names[i], wanted) : count == 1) chosen = names[i];
    }
    qn_param unread;
    qn_error error;
    if (!chosen && wanted && qn_kernel_param(module, wanted, 0, &unread, &error) == QN_OK)
        chosen = wanted; /* with how its products are computed: `tf32 f` */
    if (!chosen) {
        const char *near = wanted ? nearest_word(wanted, names, count) : NULL;
        *exit_status = EXIT_WRONG_CALL;
        bool other = wanted && qn_kernel_param(module, wanted, 0, &unread, &error) != QN_OK &&
                     !strstr(error.message, "has no kernel"); /* a tensor function, a function, a constant */
        if (other)
            complain("%s", error.message);
        else if (!count)
            complain("%s holds no kernel", path);
        else if (near)
            complain("%s has no kernel `%s`; did you mean `%s`?", path, wanted, near);
        else if (wanted)
            complain("%s has no kernel `%s`; it has these:", path, wanted);
        else
            complain("%s has %d kernels; name one: quern %s %s %s", path, count, c->name, path, names[0]);
        if (count && !near && !other) list_kernels(module, stderr);
    } else {
        write_safely(stderr, qn_kernel_warnings(module, chosen), strlen(qn_kernel_warnings(module, chosen)));
    }
    free(names);
    return chosen;
}

const char *spell_kernel(const qn_module *module, const char *kernel, const arguments *given, char *room, size_t size,
                         int *exit_status)
{
    static const char *const modes[] = {"fused", "eager", "strict"};
    char gradient[256];
    bool known = !given->mode;
    qn_error error;
    qn_param ignored;
    const char *name = kernel + strcspn(kernel, "(");
    while (name > kernel && name[-1] != ' ') name--; /* before it words such as tf32 */
    int words = (int)(name - kernel);
    snprintf(gradient, sizeof(gradient), "grad(%.240s)", name);
    bool function = qn_kernel_param(module, gradient, 0, &ignored, &error) == QN_OK; /* only those have gradients */
    *exit_status = EXIT_WRONG_CALL;
    for (int i = 0; given->mode && i < 3; i++) known |= !strcmp(given->mode, modes[i]);
    if (!known) {
        const char *near = nearest_word(given->mode, modes, 3);
        complain("there is no mode `%s`; %s%s%s", given->mode,
                 near ? "did you mean `" : "the modes are fused, eager, strict", near ? near : "", near ? "`?" : "");
        return NULL;
    }
    if ((given->mode || given->backward) && !function) {
        complain("`%s` is a kernel: --%s is for tensor functions", kernel, given->mode ? "mode" : "backward");
        return NULL;
    }
    snprintf(room, size, "%s%s%.*s%s", given->mode ? given->mode : "", given->mode ? " " : "", words, kernel,
             given->backward ? gradient : name);
    return room;
}

int setting_name_length(const char *option, const char *words)
{
    const char *equals = strchr(words, '=');
    const char *comma = equals ? strchr(equals, ',') : NULL;
    if (comma && strchr(comma, '=') && !strcmp(option, "set") && !strpbrk(equals, "({")) {
        int length = (int)(comma - words);
        complain("--set takes one NAME=VALUE, not `%s`: --set %.*s --set %s", words, length, words,
                 comma + 1 + strspn(comma + 1, " "));
        return -1;
    }
    if (equals && equals != words && equals[1]) return (int)(equals - words);
    complain("--%s takes NAME=%s, not `%s`", option, strcmp(option, "set") ? "FILE" : "VALUE", words);
    return -1;
}

void input_files_free(input_files *inputs)
{
    for (int i = 0; i < inputs->count; i++) {
        qn_npy_free(&inputs->files[i]);
        free(inputs->converted[i]);
    }
    inputs->count = 0;
}

static bool name_of(const char *option, const char *words, char *name, size_t size, int *exit_status)
{
    int length = setting_name_length(option, words);
    *exit_status = EXIT_WRONG_CALL;
    if (length < 0) return false;
    if ((size_t)length >= size) return complain("the name in --%s %s is too long", option, words), false;
    memcpy(name, words, (size_t)length);
    name[length] = 0;
    return true;
}

/* The type that the parameter's declaration or --set gives it; false: open, or not an array of this kernel. *rank: its
 * axes, where it is one. */
static bool wanted_type(const qn_module *module, const char *kernel, const char *name, const arguments *given,
                        qn_dtype *type, int *rank)
{
    int count = qn_kernel_param_count(module, kernel);
    for (int i = 0; i < count; i++) {
        qn_param param;
        qn_error ignored;
        if (qn_kernel_param(module, kernel, i, &param, &ignored) != QN_OK || strcmp(param.name, name) != 0) continue;
        size_t length = strlen(param.type);
        const char *words = param.type;
        *rank = param.rank;
        for (int k = 0; k < given->settings.count; k++)
            if (!strncmp(given->settings.items[k], param.type, length) && given->settings.items[k][length] == '=')
                words = given->settings.items[k] + length + 1;
        return qn_dtype_from_name(words, type);
    }
    return false;
}

static bool bind(qn_module *module, const char *kernel, qn_call *call, const arguments *given, input_files *inputs,
                 int *exit_status)
{
    qn_error error;
    char name[256];
    for (int i = 0; i < given->settings.count; i++) {
        const char *words = given->settings.items[i];
        if (!name_of("set", words, name, sizeof(name), exit_status)) return false;
        if (qn_call_set_text(call, name, words + strlen(name) + 1, &error) != QN_OK) {
            *exit_status = report_error(&error);
            return false;
        }
    }
    for (int i = 0; i < given->inputs.count; i++) {
        const char *words = given->inputs.items[i];
        const char *path = words + strcspn(words, "=") + 1;
        if (!name_of("in", words, name, sizeof(name), exit_status)) return false;
        qn_npy *file = &inputs->files[inputs->count];
        qn_array *a = &file->array;
        int rank = 2;
        qn_dtype type = QN_F32;
        bool known = wanted_type(module, kernel, name, given, &type, &rank), table = is_table(path);
        if (table && !table_read(path, rank, a)) return false;
        if (!table && qn_npy_read(path, file, &error) != QN_OK) {
            *exit_status = report_error(&error);
            return false;
        }
        void **converted = &inputs->converted[inputs->count++];
        const int64_t *strides = a->strides;
        if (table || (known && converts(a->type, type))) {
            double misfit = 0;
            *converted = convert_array(a, type, &misfit);
            if (table) free(a->data);
            if (!*converted) {
                complain("%s: %.17g of %s is no %s", name, misfit, path, qn_dtype_name(type));
                return false;
            }
            if (!table)
                remark("%s: %s of %s %s %s", name, qn_dtype_name(a->type), path,
                       a->type <= QN_F64 && type != QN_F64 ? "rounded to" : "as", qn_dtype_name(type));
            a->data = *converted;
            a->type = type;
            strides = NULL;
        }
        if (qn_call_set_memory(call, name, a->data, a->type, a->rank, a->extents, strides, &error) != QN_OK) {
            *exit_status = report_error(&error);
            return false;
        }
    }
    return true;
}

/* Generic types are one capital letter and digits. Where no array and no setting binds one, it is f32. */
static bool is_generic(const char *type)
{
    return type[0] >= 'A' && type[0] <= 'Z' && !type[1 + strspn(type + 1, "0123456789")];
}

static bool is_given(const word_list *list, const char *name)
{
    size_t length = strlen(name);
    for (int i = 0; i < list->count; i++)
        if (!strncmp(list->items[i], name, length) && list->items[i][length] == '=') return true;
    return false;
}

static void default_types(const qn_module *module, const char *kernel, qn_call *call, const arguments *given)
{
    qn_error ignored;
    int count = qn_kernel_param_count(module, kernel);
    for (int i = 0; i < count; i++) {
        qn_param param, other;
        bool bound = false;
        if (qn_kernel_param(module, kernel, i, &param, &ignored) != QN_OK || !is_generic(param.type)) continue;
        for (int k = 0; k < count; k++)
            bound |= qn_kernel_param(module, kernel, k, &other, &ignored) == QN_OK && !strcmp(other.type, param.type) &&
                     is_given(&given->inputs, other.name);
        if (bound || is_given(&given->settings, param.type)) continue;
        if (qn_call_set_type(call, param.type, QN_F32, &ignored) != QN_OK) return;
    }
}

/* The first name in backquotes of "`n` is not given". */
static bool missing_name(const qn_error *error, char *name, size_t size)
{
    const char *open = strchr(error->message, '`'), *close = open ? strchr(open + 1, '`') : NULL;
    if (error->status != QN_BAD_CALL || !close || error->code != 505) return false;
    if ((size_t)(close - open) > size) return false;
    snprintf(name, size, "%.*s", (int)(close - open - 1), open + 1);
    return true;
}

/* Names everything that is missing, by trying: one example that would run. */
static void show_example(qn_module *module, const char *kernel, const arguments *given, qn_error error)
{
    qn_call *probe = NULL;
    input_files *inputs = memory_or_exit(NULL, sizeof(*inputs));
    char name[256], words[2048] = "for example:";
    int ignored, missing = 0;
    if (qn_call_new(module, kernel, &probe, &error) == QN_OK && bind(module, kernel, probe, given, inputs, &ignored)) {
        default_types(module, kernel, probe, given);
        for (int tries = 0; tries < 32 && qn_call_generate(probe, 0, &error) != QN_OK; tries++) {
            size_t used = strlen(words);
            if (!missing_name(&error, name, sizeof(name)) || qn_call_set_text(probe, name, "8", &error) != QN_OK) break;
            snprintf(words + used, sizeof(words) - used, " --set %s=16", name);
            missing++;
        }
    }
    if (missing) print_safely(stderr, "%s\n", words);
    qn_call_free(probe);
    input_files_free(inputs);
    free(inputs);
}

void tell_sizes(void *user, const char *words, size_t length)
{
    (void)user;
    remark("%.*s, of its bench; others with --set", (int)length, words);
}

qn_call *prepare_call(qn_module *module, const char *kernel, const arguments *given, const char *device,
                      input_files *inputs, int *exit_status)
{
    qn_error error;
    qn_call *call = NULL;
    if (qn_call_new(module, kernel, &call, &error) != QN_OK) {
        *exit_status = report_error(&error);
        return NULL;
    }
    if (!bind(module, kernel, call, given, inputs, exit_status)) goto failed;
    default_types(module, kernel, call, given);
    if (device && qn_call_take_bench(call, device, tell_sizes, NULL, &error) != QN_OK) {
        *exit_status = report_error(&error);
        goto failed;
    }
    if (qn_call_generate(call, given->seed, &error) != QN_OK) {
        *exit_status = report_error(&error);
        if (missing_name(&error, (char[256]){0}, 256)) show_example(module, kernel, given, error);
        goto failed;
    }
    return call;
failed:
    qn_call_free(call);
    return NULL;
}

FILE *whole_begin(whole_file *w, const char *path)
{
    struct stat about;
    char place[PATH_MAX];
    *w = (whole_file){0};
    bool there = !stat(path, &about), plain = !there || S_ISREG(about.st_mode);
    char *copy = strdup(there && plain && realpath(path, place) ? place : path);
    /* Better now than after the work. A plain file is made anew beside the old one. */
    if (!copy)
        errno = ENOMEM;
    else if (there && S_ISDIR(about.st_mode))
        errno = EISDIR;
    else if ((!there || !access(path, W_OK)) && (!plain || !access(dirname(copy), W_OK | X_OK)))
        w->to = open_memstream(&w->words, &w->length);
    if (!w->to) complain("cannot write %s: %s", path, strerror(errno));
    free(copy);
    return w->to;
}

bool whole_end(whole_file *w, const char *path)
{
    qn_error error;
    bool good = !ferror(w->to);
    good &= !fclose(w->to);
    if (!good && path) complain("cannot write %s: no memory for it", path);
    if (good && path && !(good = qn_file_write(path, w->words, w->length, &error) == QN_OK))
        complain("%s", error.message);
    free(w->words);
    return good;
}
