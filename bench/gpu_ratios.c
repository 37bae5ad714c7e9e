/*
 * The bars of the CUDA device as ratios of one run: every kernel that moves memory against the best copy of the same
 * bytes, timed the same way in turns with it; then starts, compiling, launching.
 *
 * Usage: build/bench_gpu [--quick] [--single] [--json FILE] [--kernels FOLDER] [--bench FOLDER] [--quern PROGRAM]
 * [--only WORD] [--scale N]. A sample is the time between two events around three or more launches in a row, so that
 * what one leaves in the L2 to be written is paid for by the next, as in a program; --single takes one launch after
 * coming to rest. Each launch takes the next of several sets of arrays where one set would fit the L2; a figure is the
 * median of the samples, which all kernels and copies of a row take in turns. Inputs are normal random numbers made on the device; results are compared with the host's.
 * bench/gpu_peers.py measures PyTorch on the same shapes, bench/gpu_table.py puts both into one table.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "ratios.h"

#include <dlfcn.h>
#include <math.h>
#include <quern/device.h>
#include <quern/workbench.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_SETS = 8, MOST_ARRAYS = 6, MOST_CANDIDATES = 8, MOST_SAMPLES = 64 };

static const char *device = "cuda", *kernels_folder = "kernels", *bench_folder = "bench",
                  *quern_program = "build/quern", *only;
static bool quick, single;
static qn_context *context;
static qn_stream *stream;
static qn_event *events[2];
static qn_module *helpers;
static FILE *json;
static int below, wrong, json_count;
static double l2_bytes = 60e6;
static int64_t scale = 1;

static qn_module *load(const char *folder, const char *name)
{
    char path[1024];
    qn_error error;
    qn_module *module;
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    TRY(qn_module_load_file(context, path, &module, &error));
    return module;
}

static void set_all(qn_call *call, const char *settings)
{
    char words[256];
    qn_error error;
    snprintf(words, sizeof(words), "%s", settings);
    for (char *p = strtok(words, " "); p; p = strtok(NULL, " ")) {
        char *value = strchr(p, '=');
        *value++ = 0;
        TRY(qn_call_set_text(call, p, value, &error));
    }
}

static double median(double *samples, int count)
{
    qsort(samples, (size_t)count, sizeof(*samples), by_value);
    return count % 2 ? samples[count / 2] : (samples[count / 2 - 1] + samples[count / 2]) / 2;
}

/* ---- one row of the table ---- */

typedef struct array {
    const char *name;
    qn_dtype type;
    int rank;
    int64_t extents[3];
    bool input;
    double mean, deviation;
} array;

typedef struct workload workload;
/* Compares what is on the device with a computation on the host; the largest relative error. */
typedef double verifier(const workload *w, qn_buffer *const *buffers);

typedef struct candidate {
    const char *kernel, *settings;
} candidate;

struct workload {
    const char *title, *name, *file; /* name: as gpu_peers.py has it */
    candidate candidates[MOST_CANDIDATES];
    array arrays[MOST_ARRAYS];
    double bytes;
    double bar, tolerance;
    bool in_place; /* results feed the next launch: verified on a fresh set */
    verifier *verify;
};

static size_t bytes_of(const array *a)
{
    size_t count = 1;
    for (int i = 0; i < a->rank; i++) count *= (size_t)a->extents[i];
    return count * qn_dtype_size_bytes(a->type);
}

static int array_count(const workload *w)
{
    int count = 0;
    while (count < MOST_ARRAYS && w->arrays[count].name) count++;
    return count;
}

static void fill(qn_buffer *buffer, const array *a, int seed)
{
    qn_error error;
    qn_call *call;
    int64_t count = (int64_t)(bytes_of(a) / qn_dtype_size_bytes(a->type));
    TRY(qn_call_new(helpers, "fill_normal", &call, &error));
    TRY(qn_call_set_buffer(call, "x", buffer, 0, a->type, 1, &count, NULL, &error));
    TRY(qn_call_set_int(call, "seed", seed, &error));
    TRY(qn_call_set_float(call, "mean", a->mean, &error));
    TRY(qn_call_set_float(call, "deviation", a->deviation, &error));
    TRY(qn_call_launch(call, stream, &error));
    TRY(qn_stream_wait(stream, &error));
    qn_call_free(call);
}

typedef struct timed {
    qn_call *calls[MOST_SETS]; /* NULL: a copy by the driver */
    qn_buffer *from[MOST_SETS], *to[MOST_SETS];
    size_t copy_bytes;
    int set_count, launches, sample_count;
    double samples[MOST_SAMPLES], ns;
} timed;

static void put(timed *t, int number)
{
    qn_error error;
    int set = number % t->set_count;
    if (t->calls[set])
        TRY(qn_call_launch(t->calls[set], stream, &error));
    else
        TRY(qn_buffer_copy(t->to[set], 0, t->from[set], 0, t->copy_bytes, stream, &error));
}

static double sample(timed *t, int launches)
{
    qn_error error;
    double ns;
    TRY(qn_event_record(events[0], stream, &error));
    for (int i = 0; i < launches; i++) put(t, i);
    TRY(qn_event_record(events[1], stream, &error));
    TRY(qn_event_elapsed(events[0], events[1], &ns, &error));
    return ns / launches;
}

static void time_all(timed *all, int count)
{
    int rounds = quick ? 15 : 31;
    for (int i = 0; i < count; i++) {
        qn_error error;
        double ns = sample(&all[i], 2 * all[i].set_count);
        TRY(qn_stream_wait(stream, &error));
        all[i].launches = single ? 1 : (int)fmin(fmax(2e6 / ns, fmax(3, all[i].set_count)), 400);
        sample(&all[i], all[i].launches); /* clocks up */
    }
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < count; i++) {
            qn_error error;
            if (single) TRY(qn_stream_wait(stream, &error));
            all[i].samples[all[i].sample_count++] = sample(&all[i], all[i].launches);
        }
    for (int i = 0; i < count; i++) all[i].ns = median(all[i].samples, all[i].sample_count);
}

static void put_json(const char *name, const char *kernel, double ns, double bytes, double ratio, double bar)
{
    if (!json) return;
    fprintf(json,
            "%s\n  {\"name\": \"%s\", \"kernel\": \"%s\", \"ns\": %.1f, \"bytes\": %.0f, \"ratio\": %.4f, "
            "\"bar\": %.3f}",
            json_count++ ? "," : "", name, kernel, ns, bytes, ratio, bar);
}

static void run_workload(const workload *w)
{
    qn_error error;
    if (only && !strstr(w->title, only)) return;
    int arrays = array_count(w), candidates = 0;
    double set_bytes = 0;
    for (int a = 0; a < arrays; a++) set_bytes += (double)bytes_of(&w->arrays[a]);
    int sets = (int)fmin(fmax(ceil(4 * l2_bytes / set_bytes), 1), MOST_SETS);
    qn_buffer *buffers[MOST_SETS][MOST_ARRAYS] = {{0}};
    for (int s = 0; s < sets; s++)
        for (int a = 0; a < arrays; a++) {
            TRY(qn_buffer_new_on(context, device, bytes_of(&w->arrays[a]), &buffers[s][a], &error));
            if (w->arrays[a].input) fill(buffers[s][a], &w->arrays[a], 10 * a + 1);
        }
    /* The copy of the same bytes: half is read, half written. */
    size_t half = (size_t)(w->bytes / 2) / 16 * 16;
    int copy_sets = (int)fmin(fmax(ceil(4 * l2_bytes / (2.0 * (double)half)), 1), MOST_SETS);
    timed *all = calloc(MOST_CANDIDATES + 2, sizeof(*all));
    timed *copies = all;
    int64_t floats = (int64_t)(half / 4);
    for (int c = 0; c < 2; c++) copies[c] = (timed){.set_count = copy_sets, .copy_bytes = half};
    for (int s = 0; s < copy_sets; s++) {
        qn_buffer *from, *to;
        TRY(qn_buffer_new_on(context, device, half, &from, &error));
        TRY(qn_buffer_new_on(context, device, half, &to, &error));
        array as = {.type = QN_F32, .rank = 1, .extents = {floats}, .deviation = 1};
        fill(from, &as, 3);
        for (int c = 0; c < 2; c++) copies[c].from[s] = from, copies[c].to[s] = to;
        TRY(qn_call_new(helpers, "copy_vector", &copies[1].calls[s], &error));
        TRY(qn_call_set_buffer(copies[1].calls[s], "x", from, 0, QN_F32, 1, &floats, NULL, &error));
        TRY(qn_call_set_buffer(copies[1].calls[s], "y", to, 0, QN_F32, 1, &floats, NULL, &error));
    }
    qn_module *module = load(strcmp(w->file, "gpu.qn") ? kernels_folder : bench_folder, w->file);
    const char *names[MOST_CANDIDATES];
    double errors[MOST_CANDIDATES];
    for (int c = 0; c < MOST_CANDIDATES && w->candidates[c].kernel; c++) {
        timed *t = &all[2 + candidates];
        *t = (timed){.set_count = sets};
        bool good = true;
        for (int s = 0; s < sets && good; s++) {
            TRY(qn_call_new(module, w->candidates[c].kernel, &t->calls[s], &error));
            set_all(t->calls[s], w->candidates[c].settings);
            for (int a = 0; a < arrays; a++) {
                const array *as = &w->arrays[a];
                TRY(qn_call_set_buffer(t->calls[s], as->name, buffers[s][a], 0, as->type, as->rank, as->extents, NULL,
                                       &error));
            }
            good = qn_call_launch(t->calls[s], stream, &error) == QN_OK && qn_stream_wait(stream, &error) == QN_OK;
            if (good && s == 0) {
                errors[candidates] = w->verify(w, buffers[0]);
                if (w->in_place) fill(buffers[0][0], &w->arrays[0], 1);
            }
        }
        if (!good) {
            printf("    %-40s failed: %s\n", w->candidates[c].kernel, error.message);
            for (int s = 0; s < sets; s++) qn_call_free(t->calls[s]);
            if (strstr(error.message, "lost")) exit(1);
            continue;
        }
        names[candidates++] = w->candidates[c].kernel;
    }
    time_all(all, 2 + candidates);
    double copy_ns = fmin(copies[0].ns, copies[1].ns), best = 1e18;
    int winner = -1;
    for (int c = 0; c < candidates; c++) {
        bool right = errors[c] <= w->tolerance;
        printf("    %-40s %9.2f us %7.1f GB/s  %.3f of copy, error %.1e%s\n", names[c], all[2 + c].ns * 1e-3,
               w->bytes / all[2 + c].ns, copy_ns * (w->bytes / (2.0 * (double)half)) / all[2 + c].ns, errors[c],
               right ? "" : "  WRONG");
        wrong += !right;
        if (right && all[2 + c].ns < best) best = all[2 + c].ns, winner = c;
    }
    double ratio = winner >= 0 ? copy_ns * (w->bytes / (2.0 * (double)half)) / best : 0;
    printf("%-34s %9.2f us %7.1f GB/s, copy %7.1f (driver %.1f, kernel %.1f): %.3f (bar %.2f)%s\n", w->title,
           best * 1e-3, w->bytes / best, 2.0 * (double)half / copy_ns, 2.0 * (double)half / copies[0].ns,
           2.0 * (double)half / copies[1].ns, ratio, w->bar, ratio < w->bar ? "  BELOW" : "");
    below += ratio < w->bar;
    put_json(w->name, winner >= 0 ? names[winner] : "", best, w->bytes, ratio, w->bar);
    fflush(stdout);
    for (int t = 1; t < 2 + candidates; t++)
        for (int s = 0; s < MOST_SETS; s++) qn_call_free(all[t].calls[s]);
    for (int s = 0; s < copy_sets; s++) qn_buffer_release(copies[0].from[s]), qn_buffer_release(copies[0].to[s]);
    for (int s = 0; s < sets; s++)
        for (int a = 0; a < arrays; a++) qn_buffer_release(buffers[s][a]);
    qn_module_free(module);
    free(all);
}

#include "gpu_ratios_verify.h"

static const workload workloads[] = {
    {.title = "vector add 2^26 f32",
     .name = "add 2^26 f32",
     .file = "add.qn",
     .candidates = {{"add", ""}, {"add", "BLOCK=2048"}},
     .arrays = {{"a", VECTOR(1 << 26, QN_F32), true, 0, 1},
                {"b", VECTOR(1 << 26, QN_F32), true, 0, 1},
                {"c", VECTOR(1 << 26, QN_F32), false, 0, 0}},
     .bytes = 12.0 * (1 << 26),
     .bar = 0.98,
     .tolerance = 1e-5,
     .verify = verify_add},
    {.title = "square 10000^2 f32",
     .name = "square 10000^2 f32",
     .file = "square.qn",
     .candidates = {{"square_multiply", ""}, {"square_multiply", "BLOCK=2048"}, {"square_vector", ""}},
     .arrays = {{"x", VECTOR(100000000, QN_F32), true, 0, 1}, {"y", VECTOR(100000000, QN_F32), false, 0, 0}},
     .bytes = 8e8,
     .bar = 0.98,
     .tolerance = 1e-5,
     .verify = verify_square},
    {.title = "GELU 16384^2 f32",
     .name = "gelu 16384^2 f32",
     .file = "gelu.qn",
     .candidates = {{"gelu_tile", ""}, {"gelu_builtin", ""}, {"gelu_builtin", "BLOCK=2048"}, {"gelu_vector", ""}},
     .arrays = {{"x", VECTOR(1 << 28, QN_F32), true, 0, 1}, {"y", VECTOR(1 << 28, QN_F32), false, 0, 0}},
     .bytes = 8.0 * (1 << 28),
     .bar = 0.98,
     .tolerance = 1e-4,
     .verify = verify_gelu},
    {.title = "GELU 16384^2 bf16",
     .name = "gelu 16384^2 bf16",
     .file = "gpu.qn",
     .candidates = {{"gelu", ""}, {"gelu", "BLOCK=2048"}},
     .arrays = {{"x", VECTOR(1 << 28, QN_BF16), true, 0, 1}, {"y", VECTOR(1 << 28, QN_BF16), false, 0, 0}},
     .bytes = 4.0 * (1 << 28),
     .bar = 0.96,
     .tolerance = 2e-2,
     .verify = verify_gelu},
    ACT(QN_F32, "f32", 4, 0.98, 1e-4),
    ACT(QN_BF16, "bf16", 2, 0.96, 4e-2),
    SOFTMAX(131072, 256, QN_F32, "f32", 4, 1e-4, {"softmax_row", ""}),
    SOFTMAX(65536, 1024, QN_F32, "f32", 4, 1e-4, {"softmax_row", ""}),
    SOFTMAX(16384, 16384, QN_F32, "f32", 4, 1e-4, {"softmax_row", ""}),
    SOFTMAX(8192, 65536, QN_F32, "f32", 4, 1e-4, {"softmax_row", ""}),
    SOFTMAX(1024, 262144, QN_F32, "f32", 4, 1e-4, {"softmax_row", ""}),
    SOFTMAX(16384, 16384, QN_BF16, "bf16", 2, 2e-2, {"softmax_row", ""}),
    NORM("8192x1024", 8192, 1024, QN_F32, "f32", 4, 0.75, 1e-4, {"layer_norm", ""}),
    NORM("65536x4096", 65536, 4096, QN_F32, "f32", 4, 0.95, 1e-4, {"layer_norm", ""}),
    NORM("16384x16384", 16384, 16384, QN_F32, "f32", 4, 0.95, 1e-4, {"layer_norm", ""}),
    NORM("65536x4096", 65536, 4096, QN_BF16, "bf16", 2, 0.95, 4e-2, {"layer_norm", ""}),
    NORM("(64,1024,4096)", 64, 4194304, QN_F32, "f32", 4, 0.66, 1e-4, {"layer_norm", ""}, {"layer_norm_split", ""},
         {"layer_norm_split", "STRIP=512"}),
    {.title = "sum 2^30 f32",
     .name = "sum 2^30 f32",
     .file = "sum.qn",
     .candidates = {{"sum_two_step", ""}, {"sum_two_step", "BLOCK=8192"}, {"sum_atomic", ""}, {"sum_parts", ""}},
     .arrays = {{"x", VECTOR(1 << 30, QN_F32), true, 0.5, 0.3}, {"y", .type = QN_F32, .rank = 0}},
     .bytes = 4.0 * (1 << 30),
     .bar = 1.04,
     .tolerance = 1e-4,
     .verify = verify_sum},
    {.title = "sum 2^26 f32",
     .name = "sum 2^26 f32",
     .file = "sum.qn",
     .candidates = {{"sum_two_step", ""}, {"sum_two_step", "BLOCK=8192"}, {"sum_atomic", ""}, {"sum_parts", ""}},
     .arrays = {{"x", VECTOR(1 << 26, QN_F32), true, 0.5, 0.3}, {"y", .type = QN_F32, .rank = 0}},
     .bytes = 4.0 * (1 << 26),
     .bar = 0,
     .tolerance = 1e-4,
     .verify = verify_sum},
    {.title = "transpose 8192^2 f32",
     .name = "transpose 8192^2 f32",
     .file = "transpose.qn",
     .candidates = {{"transpose_tile", ""}, {"transpose_tile", "B=32"}},
     .arrays = {{"x", MATRIX(8192, 8192, QN_F32), true, 0, 1}, {"y", MATRIX(8192, 8192, QN_F32), false, 0, 0}},
     .bytes = 8.0 * 8192 * 8192,
     .bar = 0.85,
     .tolerance = 0,
     .verify = verify_transpose},
};

/* The same with the first extent of the first array, wherever it occurs, divided: to try the program on small machines. */
static workload scaled(const workload *from)
{
    workload w = *from;
    int64_t whole = from->arrays[0].extents[0];
    double before = (double)count_of(&from->arrays[0]);
    for (int a = 0; a < array_count(from); a++)
        for (int axis = 0; axis < from->arrays[a].rank; axis++)
            if (from->arrays[a].extents[axis] == whole) w.arrays[a].extents[axis] = (whole + scale - 1) / scale;
    w.bytes *= (double)count_of(&w.arrays[0]) / before;
    return w;
}

#include "gpu_ratios_launch.h"

int main(int count, char **words)
{
    const char *json_path = NULL;
    for (int i = 1; i < count; i++) {
        const char *value = i + 1 < count ? words[i + 1] : "";
        if (!strcmp(words[i], "--quick"))
            quick = true;
        else if (!strcmp(words[i], "--single"))
            single = true;
        else if (!strcmp(words[i], "--json"))
            json_path = value, i++;
        else if (!strcmp(words[i], "--kernels"))
            kernels_folder = value, i++;
        else if (!strcmp(words[i], "--bench"))
            bench_folder = value, i++;
        else if (!strcmp(words[i], "--quern"))
            quern_program = value, i++;
        else if (!strcmp(words[i], "--only"))
            only = value, i++;
        else if (!strcmp(words[i], "--scale"))
            scale = atoll(value) > 0 ? atoll(value) : 1, l2_bytes = 1, i++;
        else if (!strcmp(words[i], "--device"))
            device = value, i++;
        else
            return fprintf(stderr,
                           "usage: bench_gpu [--quick] [--single] [--json FILE] [--kernels FOLDER] [--bench FOLDER] "
                           "[--quern PROGRAM] [--only WORD] [--scale N] [--device cuda]\n"),
                   2;
    }
    qn_error error;
    qn_context_options options = {.allow_raw = true};
    qn_device_info info;
    TRY(qn_context_open(&options, &context, &error));
    TRY(qn_device_find(context, device, &info, &error));
    if (!info.available) return fprintf(stderr, "%s: %s\n", device, info.description), 1;
    printf("%s\n", info.description);
    if (json_path && !(json = fopen(json_path, "w"))) return perror(json_path), 1;
    if (json) fprintf(json, "[\n  {\"device\": \"%s\"}", info.description), json_count = 1;
    if (!only || strstr("start", only)) measure_start();
    TRY(qn_stream_new(context, device, &stream, &error));
    for (int i = 0; i < 2; i++) TRY(qn_event_new(context, device, &events[i], &error));
    helpers = load(bench_folder, "gpu.qn");
    if (!only || strstr("launch", only)) measure_launch();
    if (!only || strstr("compile", only)) measure_compile();
    for (size_t i = 0; i < sizeof(workloads) / sizeof(workloads[0]); i++) {
        workload w = scaled(&workloads[i]);
        run_workload(&w);
    }
    qn_module_free(helpers);
    for (int i = 0; i < 2; i++) qn_event_free(events[i]);
    qn_stream_free(stream);
    qn_context_close(context);
    if (json) fprintf(json, "\n]\n"), fclose(json);
    printf("%d missed, %d wrong\n", below, wrong);
    return wrong ? 1 : 0;
}
