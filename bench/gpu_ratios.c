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

/* ---- what the results should be ---- */

static double *read_part(qn_buffer *buffer, const array *a, int64_t first, int64_t count)
{
    qn_error error;
    size_t size = qn_dtype_size_bytes(a->type);
    char *raw = malloc(size * (size_t)count);
    double *numbers = malloc(sizeof(double) * (size_t)count);
    if (!raw || !numbers) abort();
    TRY(qn_buffer_read(buffer, size * (size_t)first, raw, size * (size_t)count, stream, &error));
    for (int64_t i = 0; i < count; i++) {
        if (a->type == QN_F32) {
            float f;
            memcpy(&f, raw + 4 * i, 4);
            numbers[i] = f;
        } else {
            uint16_t half;
            memcpy(&half, raw + 2 * i, 2);
            uint32_t bits = (uint32_t)half << 16;
            float f;
            memcpy(&f, &bits, 4);
            numbers[i] = f;
        }
    }
    free(raw);
    return numbers;
}

static double difference(double actual, double expected, double scale)
{
    double off = fabs(actual - expected) / fmax(fabs(expected), scale);
    return isnan(off) ? INFINITY : off;
}

enum { PART = 4096 };

static int64_t count_of(const array *a)
{
    return (int64_t)(bytes_of(a) / qn_dtype_size_bytes(a->type));
}

static double verify_elements(const workload *w, qn_buffer *const *buffers, double expected(double, double))
{
    double worst = 0;
    bool two = w->arrays[2].name != NULL;
    const array *out = &w->arrays[two ? 2 : 1];
    int64_t places[] = {0, count_of(out) / 3, count_of(out) - PART};
    for (int p = 0; p < 3; p++) {
        double *x = read_part(buffers[0], &w->arrays[0], places[p], PART);
        double *z = two ? read_part(buffers[1], &w->arrays[1], places[p], PART) : NULL;
        double *y = read_part(buffers[two ? 2 : 1], out, places[p], PART);
        for (int i = 0; i < PART; i++) worst = fmax(worst, difference(y[i], expected(x[i], z ? z[i] : 0), 0.01));
        free(x), free(y), free(z);
    }
    return worst;
}

static double sum_of_two(double x, double z)
{
    return x + z;
}

static double square_of(double x, double z)
{
    (void)z;
    return x * x;
}

static double gelu_of(double x, double z)
{
    (void)z;
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static double verify_add(const workload *w, qn_buffer *const *buffers)
{
    return verify_elements(w, buffers, sum_of_two);
}

static double verify_square(const workload *w, qn_buffer *const *buffers)
{
    return verify_elements(w, buffers, square_of);
}

static double verify_gelu(const workload *w, qn_buffer *const *buffers)
{
    return verify_elements(w, buffers, gelu_of);
}

/* x = relu(x + bias + 0.5 y), in place: x before is made again from its seed. */
static double verify_act(const workload *w, qn_buffer *const *buffers)
{
    qn_error error;
    qn_buffer *before;
    double worst = 0;
    int64_t columns = w->arrays[0].extents[1], rows = w->arrays[0].extents[0], chosen[] = {0, rows / 2, rows - 1};
    TRY(qn_buffer_new_on(context, device, bytes_of(&w->arrays[0]), &before, &error));
    fill(before, &w->arrays[0], 1);
    double *bias = read_part(buffers[1], &w->arrays[1], 0, columns);
    for (int r = 0; r < 3; r++) {
        double *x = read_part(before, &w->arrays[0], chosen[r] * columns, columns);
        double *y = read_part(buffers[2], &w->arrays[2], chosen[r] * columns, columns);
        double *z = read_part(buffers[0], &w->arrays[0], chosen[r] * columns, columns);
        for (int64_t i = 0; i < columns; i++)
            worst = fmax(worst, difference(z[i], fmax(x[i] + bias[i] + 0.5 * y[i], 0), 0.1));
        free(x), free(y), free(z);
    }
    free(bias);
    qn_buffer_release(before);
    return worst;
}

static double verify_softmax(const workload *w, qn_buffer *const *buffers)
{
    double worst = 0;
    int64_t columns = w->arrays[0].extents[1], rows = w->arrays[0].extents[0], chosen[] = {0, rows / 2, rows - 1};
    for (int r = 0; r < 3; r++) {
        double *x = read_part(buffers[0], &w->arrays[0], chosen[r] * columns, columns), top = -INFINITY, sum = 0;
        double *y = read_part(buffers[1], &w->arrays[1], chosen[r] * columns, columns);
        for (int64_t i = 0; i < columns; i++) top = fmax(top, x[i]);
        for (int64_t i = 0; i < columns; i++) sum += exp(x[i] - top);
        for (int64_t i = 0; i < columns; i++)
            worst = fmax(worst, difference(y[i], exp(x[i] - top) / sum, 1.0 / (double)columns));
        free(x), free(y);
    }
    return worst;
}

static double verify_norm(const workload *w, qn_buffer *const *buffers)
{
    double worst = 0;
    int64_t columns = w->arrays[0].extents[1], rows = w->arrays[0].extents[0], chosen[] = {0, rows - 1};
    double *gain = read_part(buffers[1], &w->arrays[1], 0, columns);
    double *bias = read_part(buffers[2], &w->arrays[2], 0, columns);
    for (int r = 0; r < 2; r++) {
        double *x = read_part(buffers[0], &w->arrays[0], chosen[r] * columns, columns), mean = 0, variance = 0;
        double *y = read_part(buffers[3], &w->arrays[3], chosen[r] * columns, columns);
        for (int64_t i = 0; i < columns; i++) mean += x[i] / (double)columns;
        for (int64_t i = 0; i < columns; i++) variance += (x[i] - mean) * (x[i] - mean) / (double)columns;
        for (int64_t i = 0; i < columns; i++)
            worst = fmax(worst, difference(y[i], (x[i] - mean) / sqrt(variance + 1e-5) * gain[i] + bias[i], 1));
        free(x), free(y);
    }
    free(gain), free(bias);
    return worst;
}

/* Against the sum of part sums that the host reads in pieces. */
static double verify_sum(const workload *w, qn_buffer *const *buffers)
{
    static double known[2];
    static int64_t known_count[2];
    int64_t count = count_of(&w->arrays[0]), step = 1 << 24;
    int slot = count == known_count[0] ? 0 : count == known_count[1] ? 1 : -1;
    if (slot < 0) {
        slot = known_count[0] ? 1 : 0;
        known_count[slot] = count;
        known[slot] = 0;
        for (int64_t at = 0; at < count; at += step) {
            int64_t now = count - at < step ? count - at : step;
            double *x = read_part(buffers[0], &w->arrays[0], at, now);
            for (int64_t i = 0; i < now; i++) known[slot] += x[i];
            free(x);
        }
    }
    double *y = read_part(buffers[1], &w->arrays[1], 0, 1), off = difference(*y, known[slot], 1);
    free(y);
    return off;
}

static double verify_transpose(const workload *w, qn_buffer *const *buffers)
{
    double worst = 0;
    int64_t rows = w->arrays[0].extents[0], columns = w->arrays[0].extents[1], chosen[] = {0, columns / 3, columns - 1};
    for (int c = 0; c < 3; c++) {
        double *y = read_part(buffers[1], &w->arrays[1], chosen[c] * rows, rows);
        for (int64_t i = 0; i < rows; i += 511) {
            double *x = read_part(buffers[0], &w->arrays[0], i * columns + chosen[c], 1);
            worst = fmax(worst, *x == y[i] ? 0 : 1);
            free(x);
        }
        free(y);
    }
    return worst;
}

#define VECTOR(n, t) .type = t, .rank = 1, .extents = {n}
#define MATRIX(r, c, t) .type = t, .rank = 2, .extents = {r, c}
#define SOFTMAX(r, c, t, tname, size, tol, ...)                                                                \
    {                                                                                                          \
        .title = "softmax " #r "x" #c " " tname, .name = "softmax " #r "x" #c " " tname, .file = "softmax.qn", \
        .candidates = {__VA_ARGS__},                                                                           \
        .arrays = {{"x", MATRIX(r, c, t), true, 0, 1}, {"y", MATRIX(r, c, t), false, 0, 0}},                   \
        .bytes = 2.0 * size * r * c, .bar = 0.95, .tolerance = tol, .verify = verify_softmax                   \
    }
#define NORM(text, r, c, t, tname, size, limit, tol, ...)                                                   \
    {                                                                                                       \
        .title = "layer norm " text " " tname, .name = "layernorm " text " " tname, .file = "layernorm.qn", \
        .candidates = {__VA_ARGS__},                                                                        \
        .arrays = {{"x", MATRIX(r, c, t), true, 3, 2},                                                      \
                   {"gain", VECTOR(c, t), true, 1, 0.1},                                                    \
                   {"bias", VECTOR(c, t), true, 0, 0.1},                                                    \
                   {"y", MATRIX(r, c, t), false, 0, 0}},                                                    \
        .bytes = 2.0 * size * r * c, .bar = limit, .tolerance = tol, .verify = verify_norm                  \
    }
#define ACT(t, tname, size, limit, tol)                                                                             \
    {                                                                                                               \
        .title = "act(x+bias+y/2) 262144x1024 " tname, .name = "act 262144x1024 " tname, .file = "bias_act.qn",     \
        .candidates = {{"bias_act_row", ""}, {"bias_act", ""}, {"bias_act", "BM=1 BN=1024"}},                       \
        .arrays = {{"x", MATRIX(262144, 1024, t), true, 0, 1},                                                      \
                   {"bias", VECTOR(1024, t), true, 0, 1},                                                           \
                   {"y", MATRIX(262144, 1024, t), true, 0, 1}},                                                     \
        .bytes = 3.0 * size * 262144 * 1024, .bar = limit, .tolerance = tol, .in_place = true, .verify = verify_act \
    }

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

/* ---- starts, compiling, launching ---- */

static void judge(const char *title, const char *name, double value, double bar, const char *unit)
{
    printf("%-58s %9.3f %s (bar %.3g)%s\n", title, value, unit, bar, value > bar ? "  ABOVE" : "");
    below += value > bar;
    put_json(name, "", value, 0, value, bar);
    fflush(stdout);
}

/* From the start of a process to its first right result, with everything in the cache. */
static void measure_start(void)
{
    double best = 1e18;
    char path[1024];
    snprintf(path, sizeof(path), "%s/gelu.qn", kernels_folder);
    for (int run = 0; run < 4; run++) {
        fflush(NULL); /* or the child would write what waits here once more */
        double start = now_ns();
        pid_t child = fork();
        if (child < 0) return;
        if (child == 0) {
            if (!freopen("/dev/null", "w", stdout)) _exit(127);
            execl(quern_program, quern_program, "run", path, "gelu_tile", "--set", "n=100000", "--device", device,
                  (char *)NULL);
            _exit(127);
        }
        int status;
        waitpid(child, &status, 0);
        if (!WIFEXITED(status) || WEXITSTATUS(status)) {
            printf("    %s did not run\n", quern_program);
            return;
        }
        if (run) best = fmin(best, now_ns() - start); /* the first fills the cache */
    }
    judge("process start to first result, warm cache (s)", "startup", best * 1e-9, 0.5, "s");
}

/* A kernel of `file` under a name that nobody had before: NVRTC keeps what it compiled on the disk, too. */
static qn_module *load_afresh(const char *file, const char *kernel, char *name, size_t size)
{
    char path[1024];
    qn_error error;
    qn_module *module;
    snprintf(path, sizeof(path), "%s/%s", kernels_folder, file);
    snprintf(name, size, "%s_%llx", kernel, (unsigned long long)now_ns());
    FILE *from = fopen(path, "r");
    char *words = NULL, *text = NULL;
    size_t length = 0, used = 0;
    FILE *out = open_memstream(&text, &used);
    if (!from || !out || getdelim(&words, &length, 0, from) < 0) perror(path), exit(1);
    char *at = words, head[128];
    snprintf(head, sizeof(head), "kernel %s(", kernel);
    char *found = strstr(words, head);
    if (!found) fprintf(stderr, "%s: no %s\n", path, kernel), exit(1);
    fprintf(out, "%.*skernel %s(", (int)(found - at), at, name);
    char *end = strstr(found, "\n}"); /* what comes after it may name it again */
    fprintf(out, "%.*s\n}\n", (int)(end - found - (int)strlen(head)), found + strlen(head));
    fclose(out);
    fclose(from);
    TRY(qn_module_load_text(context, path, text, &module, &error));
    free(words);
    free(text);
    return module;
}

static void measure_compile(void)
{
    static const struct {
        const char *title, *name, *file, *kernel, *settings;
        double bar;
    } cases[] = {{NULL, NULL, "square.qn", "square_multiply", "n=1000", 0}, /* loads NVRTC */
                 {NULL, NULL, "layernorm.qn", "layer_norm", "T=f32 rows=64 cols=16384", 0},
                 {"cold compile, elementwise (ms)", "compile gelu", "gelu.qn", "gelu_tile", "n=100000", 60},
                 {"cold compile, row reduction (ms)", "compile softmax", "softmax.qn", "softmax_row",
                  "T=f32 rows=64 cols=16384", 120}};
    qn_error error;
    qn_context *kept = context;
    qn_context_options options = {.no_cache = true, .allow_raw = true};
    TRY(qn_context_open(&options, &context, &error));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        double best = 1e18;
        for (int round = 0; round < (cases[i].title ? 5 : 1); round++) {
            char name[128];
            qn_module *module = load_afresh(cases[i].file, cases[i].kernel, name, sizeof(name));
            qn_call *call;
            qn_timing timing;
            TRY(qn_call_new(module, name, &call, &error));
            set_all(call, cases[i].settings);
            TRY(qn_call_generate(call, 1, &error));
            TRY(qn_call_run(call, device, &error));
            qn_call_timing(call, &timing);
            best = fmin(best, (double)(timing.compile_ns + timing.load_ns) * 1e-6);
            qn_call_free(call);
            qn_module_free(module);
        }
        if (cases[i].title) judge(cases[i].title, cases[i].name, best, cases[i].bar, "ms");
    }
    qn_context_close(context);
    context = kept;
}

typedef struct bare_config {
    unsigned grid[3], block[3], shared_bytes;
    void *stream, *attributes;
    unsigned attribute_count;
} bare_config;

/* The driver's own call with a frame as large as ours, in this process and context. NAN: it cannot be made. */
static double bare_launch_us(int count)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *nvrtc = dlopen("libnvrtc.so.13", RTLD_NOW);
    const char
        *folder = getenv("QUERN_CUDA_PATH"),
        *text = "struct frame { long words[11]; }; extern \"C\" __global__ void bare(const __grid_constant__ frame f) "
                "{ float *x = (float *)f.words[0]; if (threadIdx.x < 64) x[threadIdx.x] += 1; }";
    char path[1024];
    static const char *const folders[] = {"/usr/local/cuda/lib64/libnvrtc.so.13",
                                          "/usr/local/cuda/lib64/libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so"};
    if (!nvrtc && folder) {
        snprintf(path, sizeof(path), "%s/libnvrtc.so.13", folder);
        nvrtc = dlopen(path, RTLD_NOW);
    }
    for (int i = 0; i < 3 && !nvrtc; i++) nvrtc = dlopen(folders[i], RTLD_NOW);
    if (!cuda || !nvrtc) return NAN;
    int (*create)(void **, const char *, const char *, int, const char *const *, const char *const *);
    int (*compile)(void *, int, const char *const *), (*size_of)(void *, size_t *), (*get)(void *, char *);
    int (*load_module)(void **, const void *), (*find)(void **, void *, const char *), (*make)(void **, unsigned);
    int (*launch)(const bare_config *, void *, void **, void **), (*wait)(void *), (*retain)(void **, int);
    int (*set)(void *), (*allocate)(uint64_t *, size_t), (*attribute)(int *, int, int);
    int (*end)(void *), (*unload)(void *), (*release)(uint64_t);
    *(void **)&create = dlsym(nvrtc, "nvrtcCreateProgram");
    *(void **)&compile = dlsym(nvrtc, "nvrtcCompileProgram");
    *(void **)&size_of = dlsym(nvrtc, "nvrtcGetCUBINSize");
    *(void **)&get = dlsym(nvrtc, "nvrtcGetCUBIN");
    *(void **)&load_module = dlsym(cuda, "cuModuleLoadData");
    *(void **)&find = dlsym(cuda, "cuModuleGetFunction");
    *(void **)&make = dlsym(cuda, "cuStreamCreate");
    *(void **)&launch = dlsym(cuda, "cuLaunchKernelEx");
    *(void **)&wait = dlsym(cuda, "cuStreamSynchronize");
    *(void **)&retain = dlsym(cuda, "cuDevicePrimaryCtxRetain");
    *(void **)&set = dlsym(cuda, "cuCtxSetCurrent");
    *(void **)&allocate = dlsym(cuda, "cuMemAlloc_v2");
    *(void **)&attribute = dlsym(cuda, "cuDeviceGetAttribute");
    *(void **)&end = dlsym(cuda, "cuStreamDestroy_v2");
    *(void **)&unload = dlsym(cuda, "cuModuleUnload");
    *(void **)&release = dlsym(cuda, "cuMemFree_v2");
    if (!create || !compile || !size_of || !get || !load_module || !find || !make || !launch || !wait || !retain ||
        !set || !allocate || !attribute || !end || !unload || !release)
        return NAN;
    void *program, *module, *function, *own, *handle;
    size_t size;
    int major = 9, minor = 0;
    char option[64];
    attribute(&major, 75, 0);
    attribute(&minor, 76, 0);
    snprintf(option, sizeof(option), "--gpu-architecture=sm_%d%d", major, minor);
    const char *const flags[] = {option};
    if (create(&program, text, "bare.cu", 0, NULL, NULL) || compile(program, 1, flags) || size_of(program, &size))
        return NAN;
    char *cubin = malloc(size);
    uint64_t frame[11] = {0};
    if (!cubin || get(program, cubin) || retain(&own, 0) || set(own) || load_module(&module, cubin) ||
        find(&function, module, "bare") || make(&handle, 1) || allocate(&frame[0], 4096))
        return NAN;
    free(cubin);
    bare_config config = {.grid = {1, 1, 1}, .block = {64, 1, 1}, .stream = handle};
    void *parameters[] = {frame};
    double best = 1e18;
    for (int round = 0; round < 7; round++) {
        double start = now_ns();
        for (int i = 0; i < count; i++) launch(&config, function, parameters, NULL);
        best = fmin(best, (now_ns() - start) / count);
        wait(handle);
    }
    end(handle); /* with a fourth stream in the process a node of a graph takes 0.12 us more */
    unload(module);
    release(frame[0]);
    return best * 1e-3;
}

/* The time of a node in a replayed graph of 1000 launches, each of which waits for the one before. */
static double node_us(qn_call *call)
{
    qn_error error;
    qn_graph *graph;
    const int nodes = 1000; /* fewer than the driver queues before it makes the host wait */
    double node = 1e18;
    TRY(qn_graph_begin(stream, &error));
    for (int i = 0; i < nodes; i++) TRY(qn_call_launch(call, stream, &error));
    TRY(qn_graph_end(stream, &graph, &error));
    for (int round = 0; round < 12; round++) {
        double ns;
        TRY(qn_event_record(events[0], stream, &error));
        TRY(qn_graph_launch(graph, stream, &error));
        TRY(qn_event_record(events[1], stream, &error));
        TRY(qn_event_elapsed(events[0], events[1], &ns, &error));
        if (round) node = fmin(node, ns / nodes);
    }
    qn_graph_free(graph);
    return node * 1e-3;
}

static void measure_launch(void)
{
    qn_error error;
    qn_call *call;
    qn_buffer *buffer;
    int64_t extent = 64;
    const int count = 500; /* fewer than the driver queues before it makes the host wait */
    TRY(qn_buffer_new_on(context, device, 4096, &buffer, &error));
    TRY(qn_call_new(helpers, "tiny", &call, &error));
    TRY(qn_call_set_buffer(call, "x", buffer, 0, QN_F32, 1, &extent, NULL, &error));
    TRY(qn_call_launch(call, stream, &error));
    TRY(qn_stream_wait(stream, &error));
    judge("a node of a replayed graph of 1000 (us)", "graph node", node_us(call), 0.6, "us");
    double best = 1e18, bare = 1e18;
    for (int turn = 0; turn < 3; turn++) {
        for (int round = 0; round < 7; round++) {
            double start = now_ns();
            for (int i = 0; i < count; i++) TRY(qn_call_launch(call, stream, &error));
            best = fmin(best, (now_ns() - start) / count);
            TRY(qn_stream_wait(stream, &error));
        }
        bare = fmin(bare, bare_launch_us(count));
    }
    printf("    launch from C %.2f us, bare driver call %.2f us\n", best * 1e-3, bare);
    if (bare < 1e6)
        judge("launch from C, of the bare driver call", "launch", best * 1e-3 / bare, 1.2, "times");
    else
        printf("    the bare driver call could not be made: nothing to compare with\n");
    qn_call_free(call);
    qn_buffer_release(buffer);
}

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
