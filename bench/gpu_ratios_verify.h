/*
 * What the results of gpu_ratios.c should be, computed in double; a part of it.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_BENCH_GPU_RATIOS_VERIFY_H
#define QUERN_BENCH_GPU_RATIOS_VERIFY_H

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

#endif
