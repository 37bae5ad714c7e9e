/*
 * `quern check`: kernels under the checking interpreter and every device against it. `quern show`: any stage of one
 * kernel. `quern debug`: one kernel, step by step.
 * SPDX-License-Identifier: MIT
 */
#include "cli.h"

#include <quern/profile.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static qn_settings settings_of(const arguments *given)
{
    return (qn_settings){given->settings.items, given->settings.count};
}

static bool settings_are_whole(const arguments *given)
{
    for (int i = 0; i < given->settings.count; i++)
        if (setting_name_length("set", given->settings.items[i]) < 0) return false;
    return true;
}

/* A word is a file if it looks like a path or there is a file of that name; else it is a kernel's name. */
static bool is_file(const char *word)
{
    return !strcmp(word, "-") || strpbrk(word, "./") || !access(word, F_OK);
}

/* Tells the file's warnings. Every setting must be known to some kernel of it: a wrong name is a wrong call, not a
 * finding. */
static bool file_is_ready(qn_context *context, const char *path, const char *kernel, const arguments *given,
                          int *exit_status)
{
    qn_error error;
    bool good = true;
    qn_module *module = open_module(context, path, exit_status);
    if (!module) return false;
    const char *warnings = kernel ? qn_kernel_warnings(module, kernel) : qn_module_warnings(module);
    write_safely(stderr, warnings, strlen(warnings));
    for (int i = 0; i < given->settings.count && good; i++) {
        char name[256];
        const char *words = given->settings.items[i], *value = strchr(words, '=') + 1;
        snprintf(name, sizeof(name), "%.*s", (int)(value - words - 1), words);
        int count = kernel ? 1 : qn_module_kernel_count(module);
        good = !count;
        for (int k = 0; k < count && !good; k++) {
            qn_call *call = NULL;
            const char *candidate = kernel ? kernel : qn_module_kernel_name(module, k); /* as spelled: tf32 f, grad(f) */
            good = qn_call_new(module, candidate, &call, &error) == QN_OK &&
                   qn_call_set_text(call, name, value, &error) == QN_OK;
            qn_call_free(call);
        }
        if (kernel && qn_kernel_param_count(module, kernel) < 0) good = true; /* check itself complains */
    }
    if (!good) *exit_status = report_error(&error);
    qn_module_free(module);
    return good;
}

/* Objects of a JSON list, as they come. */
typedef struct json_list {
    FILE *file;
    int count;
} json_list;

static void add_object(void *user, const char *text, size_t length)
{
    json_list *list = user;
    fputs(list->count++ ? ",\n  " : "\n  ", list->file);
    fwrite(text, 1, length, list->file);
}

int command_check(const command *self, const arguments *given)
{
    int status = EXIT_WRONG_CALL, files = given->words.count;
    const char *kernel = NULL;
    if (files > 1 && !is_file(given->words.items[files - 1])) kernel = given->words.items[--files];
    if (!settings_are_whole(given)) return EXIT_WRONG_CALL;
    arguments quiet = *given; /* of check, verbose is a line for every case */
    quiet.verbose = false;
    qn_context *context = open_context(&quiet, &status);
    if (!context) return status;
    status = EXIT_OK;
    choose_device(context, given);
    whole_file all;
    FILE *json = given->json ? whole_begin(&all, given->json) : NULL;
    if (given->json && !json) {
        close_context(context);
        return EXIT_WRONG_CALL;
    }
    json_list list = {.file = json};
    progress_line line = {.terminal = isatty(STDERR_FILENO)};
    if (json) fputs("[", json);
    for (int i = 0; i < files; i++) {
        qn_error error;
        qn_check_options options = {.kernel = kernel,
                                    .device = given->device,
                                    .settings = settings_of(given),
                                    .seed = given->seed,
                                    .verbose = given->verbose,
                                    .step_limit = given->steps > INT64_MAX ? INT64_MAX : (int64_t)given->steps,
                                    .no_emu = given->no_emu,
                                    .each = json ? add_object : NULL,
                                    .each_user = &list,
                                    .progress = write_progress,
                                    .progress_user = &line};
        int exit_status = EXIT_OK;
        if (!file_is_ready(context, given->words.items[i], kernel, given, &exit_status)) {
            status = exit_status > status ? exit_status : status;
            continue;
        }
        qn_status result = qn_check_file(context, given->words.items[i], &options, write_result, &line, &error);
        write_result(&line, "", 0);
        if (result == QN_FINDING) /* the text on stdout told it */
            exit_status = EXIT_FINDING;
        else if (result != QN_OK)
            exit_status = report_error(&error);
        fflush(stdout);
        if (exit_status > status) status = exit_status;
    }
    if (json) fputs("\n]\n", json);
    if (json && !whole_end(&all, given->json)) status = EXIT_FINDING;
    close_context(context);
    (void)self;
    return status;
}

/* SVG into a file or a pipe, a table on a terminal, where SVG could not be read. */
static int show_onnx(const arguments *given)
{
    qn_error error;
    if (given->words.count > 1 || given->stage || given->arch || given->settings.count || given->backward)
        return complain("a model is shown whole: no kernel, stage, setting or architecture can be chosen of it"),
               EXIT_WRONG_CALL;
    qn_status shown = qn_show_onnx(given->words.items[0], given->dot || !isatty(1), write_data, NULL, &error);
    return shown == QN_OK ? EXIT_OK : report_error(&error);
}

int command_show(const command *self, const arguments *given)
{
    int status = EXIT_WRONG_CALL;
    qn_error error;
    const char *end = strrchr(given->words.items[0], '.');
    if (end && !strcmp(end, ".onnx")) return show_onnx(given);
    if (!settings_are_whole(given)) return EXIT_WRONG_CALL;
    if (given->stage) {
        const char *names[64];
        int count = qn_stage_count() < 64 ? qn_stage_count() : 64;
        bool known = false;
        for (int i = 0; i < count; i++) {
            names[i] = qn_stage_name(i, NULL);
            known |= !strcmp(names[i], given->stage);
        }
        if (!known) {
            const char *near = nearest_word(given->stage, names, count), *advice = stage_advice(given->stage);
            if (advice)
                complain("there is no stage `%s`: %s", given->stage, advice);
            else if (near)
                complain("there is no stage `%s`; did you mean `%s`?", given->stage, near);
            else
                complain("there is no stage `%s`; `quern show --help` lists them", given->stage);
            return EXIT_WRONG_CALL;
        }
    }
    qn_context *context = open_context(given, &status);
    if (!context) return status;
    qn_module *module = open_module(context, given->words.items[0], &status);
    char room[512];
    const char *kernel = module ? choose_kernel(module, self, given, &status) : NULL;
    if (kernel && (given->mode || given->backward))
        kernel = spell_kernel(module, kernel, given, room, sizeof(room), &status);
    if (kernel) {
        qn_show_options options = {.stage = given->stage,
                                   .device = given->device,
                                   .arch = given->arch,
                                   .annotate = given->annotate,
                                   .settings = settings_of(given),
                                   .why = given->why,
                                   .times = given->times,
                                   .dot = given->dot,
                                   .bench_sizes = true,
                                   .told = tell_sizes};
        const char *path = given->words.items[0];
        qn_status shown = given->stage && !strcmp(given->stage, "hints")
                              ? qn_show_hints(context, path, kernel, &options, NULL, write_to_stdout, NULL, &error)
                              : qn_show(context, path, kernel, &options, write_data, NULL, &error);
        status = shown == QN_OK ? EXIT_OK : report_error(&error);
    }
    qn_module_free(module);
    close_context(context);
    return status;
}

typedef struct command_source {
    FILE *file;
    bool echo; /* a script's commands are shown, so that the transcript reads like a session */
} command_source;

static bool read_command(void *user, const char *prompt, char *line, size_t size)
{
    command_source *source = user;
    if (source->echo || isatty(STDIN_FILENO)) fputs(prompt, stdout);
    fflush(stdout);
    if (!fgets(line, (int)size, source->file)) {
        if (source->echo || isatty(STDIN_FILENO)) fputc('\n', stdout);
        return false;
    }
    line[strcspn(line, "\r\n")] = 0;
    if (source->echo) print_safely(stdout, "%s\n", line);
    return true;
}

int command_debug(const command *self, const arguments *given)
{
    int status = EXIT_WRONG_CALL;
    qn_error error;
    qn_module *module = NULL;
    qn_call *call = NULL;
    command_source source = {stdin, false};
    if (given->script) {
        source.file = open_for_reading(given->script);
        source.echo = true;
        if (!source.file) {
            complain("cannot open the script %s: %s", given->script, strerror(errno));
            return EXIT_WRONG_CALL;
        }
    }
    input_files *inputs = memory_or_exit(NULL, sizeof(*inputs));
    qn_context *context = open_context(given, &status);
    if (context) module = open_module(context, given->words.items[0], &status);
    const char *kernel = module ? choose_kernel(module, self, given, &status) : NULL;
    if (kernel) call = prepare_call(module, kernel, given, NULL, inputs, &status);
    if (call)
        status =
            qn_debug(call, read_command, write_to_stdout, &source, &error) == QN_OK ? EXIT_OK : report_error(&error);
    qn_call_free(call);
    input_files_free(inputs);
    free(inputs);
    qn_module_free(module);
    qn_context_close(context);
    if (given->script) fclose(source.file);
    return status;
}
