/*
 * `quern run`: one kernel, once. Inputs come from .npy files or tables of text or are generated, outputs go to
 * such files or are summarised on stdout.
 * SPDX-License-Identifier: MIT
 */
#include "cli.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *file_for(const arguments *given, const char *name)
{
    size_t length = strlen(name);
    for (int i = 0; i < given->outputs.count; i++)
        if (!strncmp(given->outputs.items[i], name, length) && given->outputs.items[i][length] == '=')
            return given->outputs.items[i] + length + 1;
    return NULL;
}

/* Every --out must name an array that the kernel writes: found before the kernel runs. */
static bool outputs_are_known(const qn_module *module, const char *kernel, const arguments *given)
{
    const char *names[64];
    int count = 0, params = qn_kernel_param_count(module, kernel);
    qn_error error;
    for (int i = 0; i < params && count < 64; i++) {
        qn_param param;
        if (qn_kernel_param(module, kernel, i, &param, &error) != QN_OK) continue;
        if (param.kind == QN_PARAM_OUT || param.kind == QN_PARAM_INOUT) names[count++] = param.name;
    }
    for (int i = 0; i < given->outputs.count; i++) {
        char name[256];
        int length = setting_name_length("out", given->outputs.items[i]);
        bool known = false;
        if (length < 0) return false;
        snprintf(name, sizeof(name), "%.*s", length, given->outputs.items[i]);
        for (int j = 0; j < count; j++) known |= !strcmp(names[j], name);
        const char *path = given->outputs.items[i] + length + 1, *slash = strrchr(path, '/');
        const char *end = strrchr(slash ? slash : path, '.');
        bool foreign = end && has_word("pt pth npz h5 hdf5 mat bin raw json parquet safetensors pkl png jpg xlsx",
                                       end + 1, strlen(end + 1));
        if (known && foreign)
            return complain("--out writes .npy files, and text as .csv, .tsv or .txt, not %s: --out %s=%.*s.npy", end,
                            name, (int)(end - path), path),
                   false;
        if (known) continue;
        const char *near = nearest_word(name, names, count);
        if (near)
            complain("`%s` has no output `%s`; did you mean `%s`?", kernel, name, near);
        else
            complain("`%s` has no output `%s`", kernel, name);
        return false;
    }
    return true;
}

static int give_outputs(const qn_module *module, const char *kernel, qn_call *call, const arguments *given)
{
    qn_error error;
    int params = qn_kernel_param_count(module, kernel);
    for (int i = 0; i < params; i++) {
        qn_param param;
        qn_array array;
        if (qn_kernel_param(module, kernel, i, &param, &error) != QN_OK) return report_error(&error);
        if (param.kind != QN_PARAM_OUT && param.kind != QN_PARAM_INOUT) continue;
        if (qn_call_get(call, param.name, &array, &error) != QN_OK) return report_error(&error);
        const char *path = file_for(given, param.name);
        if (!path)
            summarise_array(param.name, &array, stdout);
        else if (is_table(path) && !table_write(path, &array))
            return EXIT_FINDING;
        else if (!is_table(path) && qn_npy_write(path, &array, &error) != QN_OK)
            return report_error(&error);
        else
            print_safely(stdout, "%s: written to %s\n", param.name, pipe_shown(path));
    }
    return EXIT_OK;
}

static void tell_waiting(int signal_number)
{
    static const char words[] = "quern: ref interprets element by element and is still at it (Ctrl-C ends it)\n";
    (void)signal_number;
    (void)!write(STDERR_FILENO, words, sizeof(words) - 1);
}

/* Runs the call; where that is the interpreter, which may take long, it says so after a second. */
static qn_status run_on(qn_call *call, const char *device, qn_error *error)
{
    struct sigaction tell = {.sa_handler = tell_waiting, .sa_flags = SA_RESTART}, before;
    if (strcmp(device, "ref") != 0) return qn_call_run(call, device, error);
    sigaction(SIGALRM, &tell, &before);
    alarm(1);
    qn_status status = qn_call_run(call, device, error);
    alarm(0);
    sigaction(SIGALRM, &before, NULL);
    return status;
}

/* The largest difference from the reference interpreter, which runs the same call on the same inputs, however long that
 * takes: it was asked for. */
static void print_agreement(qn_module *module, const char *kernel, qn_call *call, const char *device,
                            const arguments *given)
{
    input_files *inputs = memory_or_exit(NULL, sizeof(*inputs));
    int ignored;
    qn_error error;
    int params = qn_kernel_param_count(module, kernel);
    qn_param param;
    qn_array mine, truth;
    qn_call *reference = prepare_call(module, kernel, given, device, inputs, &ignored);
    if (reference) {
        qn_status status = run_on(reference, "ref", &error);
        if (status == QN_OK || status == QN_FINDING) {
            printf("agreement with ref:");
            for (int i = 0; i < params; i++) {
                if (qn_kernel_param(module, kernel, i, &param, &error) != QN_OK) continue;
                if (param.kind != QN_PARAM_OUT && param.kind != QN_PARAM_INOUT) continue;
                if (qn_call_get(call, param.name, &mine, &error) != QN_OK ||
                    qn_call_get(reference, param.name, &truth, &error) != QN_OK)
                    continue;
                printf(" %s differs by at most %.3g", param.name, largest_difference(&mine, &truth));
            }
            printf("\n");
        } else if (status == QN_NO_DEVICE) {
            printf("agreement with ref: not compared, a raw kernel has no tile IR\n");
        } else {
            print_safely(stdout, "agreement with ref: %s\n", error.message);
        }
    }
    qn_call_free(reference);
    input_files_free(inputs);
    free(inputs);
}

static void print_timing(const qn_call *call)
{
    qn_timing timing;
    qn_call_timing(call, &timing);
    printf("compile %.3f ms%s, load %.3f ms, ", (double)timing.compile_ns * 1e-6,
           timing.from_cache ? " (from the cache)" : "", (double)timing.load_ns * 1e-6);
    if (timing.allocate_ns || timing.copy_in_ns || timing.copy_out_ns)
        printf("allocation %.3f ms, copy in %.3f ms, kernel %.3f ms, copy out %.3f ms\n",
               (double)timing.allocate_ns * 1e-6, (double)timing.copy_in_ns * 1e-6, (double)timing.kernel_ns * 1e-6,
               (double)timing.copy_out_ns * 1e-6);
    else
        printf("kernel %.3f ms\n", (double)timing.kernel_ns * 1e-6);
}

/* Where no device was asked for, a kernel that the best one cannot run (raw text of another) goes to the next. */
static qn_status run_somewhere(qn_context *context, qn_call *call, const arguments *given, const char **device,
                               qn_error *error)
{
    *device = choose_device(context, given);
    qn_status status = run_on(call, *device, error);
    for (int i = 0; status == QN_NO_DEVICE && !given->device && i < qn_device_count(context); i++) {
        qn_device_info info;
        qn_error unread;
        qn_device_get(context, i, &info);
        if (!info.available || !strcmp(info.name, *device) || qn_call_run(call, info.name, &unread) != QN_OK) continue;
        remark("it runs on %s", info.name);
        *device = info.name;
        status = QN_OK;
    }
    return status;
}

int command_run(const command *self, const arguments *given)
{
    int status = EXIT_WRONG_CALL;
    qn_error error;
    qn_module *module = NULL;
    qn_call *call = NULL;
    input_files *inputs = memory_or_exit(NULL, sizeof(*inputs));
    qn_context *context = open_context(given, &status);
    if (context) module = open_module(context, given->words.items[0], &status);
    char room[512];
    const char *kernel = module ? choose_kernel(module, self, given, &status) : NULL;
    if (kernel) kernel = spell_kernel(module, kernel, given, room, sizeof(room), &status);
    const char *device =
        kernel && outputs_are_known(module, kernel, given) ? wanted_device(context, given, &status) : NULL;
    if (device) call = prepare_call(module, kernel, given, device, inputs, &status);
    if (call) {
        if (run_somewhere(context, call, given, &device, &error) != QN_OK) {
            status = report_error(&error);
        } else {
            status = give_outputs(module, kernel, call, given);
            if (given->time) print_timing(call);
            if (given->agree && strcmp(device, "ref") != 0) print_agreement(module, kernel, call, device, given);
        }
    }
    qn_call_free(call);
    input_files_free(inputs);
    free(inputs);
    qn_module_free(module);
    close_context(context);
    return status;
}
