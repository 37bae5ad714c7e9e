/*
 * Random products, attentions and convolutions (transposed, grouped, gradients by the image) at the tensor level, against plain loops
 * in double. Data are small whole numbers, so that sums are exact in every order; what is rounded is compared with a
 * rounding to spare. A few on `emu`; on a GPU (QUERN_TEST_DEVICE=cuda) sizes at which the matrix units are taken.
 * QUERN_RANDOM=COUNT runs more of each, QUERN_RANDOM_SEED=N starts elsewhere, QUERN_RANDOM_LARGE takes a GPU's sizes. tools/check-gpu runs two hundred (QUERN_RANDOM_MATRIX=14: five hundred).
 * SPDX-License-Identifier: MIT
 */
#include "ir/tile.h"
#include "test.h"

#include <math.h>
#include <quern/nn.h>
#include <quern/tensor.h>
#include <stdlib.h>

#define MOST_WORK 1.5e8 /* of the plain loops: a fraction of a second */

static qn_context *context;
static const char *device = "emu";
static bool large;
static int count = 3;
static uint64_t seed = 1, state;

static int pick(int choices)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int)((state >> 33) % (uint64_t)choices);
}

#define PICK(list) list[pick(COUNT(list))]

typedef struct array {
    double *at;
    qn_tensor tensor;
    qn_dtype elem;
    int64_t count;
} array;

static int64_t elements_of(qn_shape s)
{
    int64_t n = 1;
    for (int i = 0; i < s.rank; i++) n *= s.extents[i];
    return n;
}

/* Whole numbers from -range to range over `unit`. */
static array numbers(qn_tape *tape, qn_dtype elem, qn_shape s, int range, double unit)
{
    array x = {.elem = elem, .count = elements_of(s)};
    size_t size = (size_t)dtypes[elem].size_bytes;
    x.at = malloc(sizeof(double) * (size_t)x.count + 1);
    char *data = malloc(size * (size_t)x.count + 1);
    for (int64_t i = 0; i < x.count; i++) {
        x.at[i] = (pick(2 * range + 1) - range) / unit;
        number n = dtype_is_float((dtype)elem) ? (number){.f = x.at[i]} : (number){.i = (int64_t)x.at[i]};
        element_write((dtype)elem, data + (size_t)i * size, n);
    }
    x.tensor = qn_from_memory(tape, data, elem, s);
    free(data);
    return x;
}

/* Compares and says what is wrong; the result's own rounding and `error` (relative to `scale`) are allowed. */
static void expect_near(const char *what, qn_tensor y, const double *want, int64_t size, double error)
{
    static const struct {
        qn_dtype elem;
        double unit;
    } units[] = {{QN_BF16, 0x1p-8}, {QN_F16, 0x1p-11}};
    qn_error failure = {0};
    if (large) printf("%s\n", what);
    qn_dtype elem = qn_tensor_dtype(y);
    for (int i = 0; i < COUNT(units); i++)
        if (elem == units[i].elem) error += 2 * units[i].unit;
    bool counted = elem == QN_I32;
    double *got = malloc(sizeof(double) * (size_t)size + 1);
    bool good = elements_of(qn_tensor_shape(y)) == size &&
                qn_tensor_read(qn_cast(y, QN_F64), got, sizeof(double) * (size_t)size, &failure) == QN_OK;
    if (!good) printf("%s: %s\n", what, failure.message);
    EXPECT(good);
    int64_t wrong = 0;
    for (int64_t i = 0; good && i < size; i++) {
        double off = fabs(got[i] - want[i]);
        if (!(counted ? off == 0 : off <= error * fmax(fabs(want[i]), 1)) && !wrong++)
            printf("%s: element %lld of %lld is %.9g, not %.9g\n", what, (long long)i, (long long)size, got[i],
                   want[i]);
    }
    if (wrong) printf("%s: %lld of %lld are wrong\n", what, (long long)wrong, (long long)size);
    EXPECT(!wrong);
    free(got);
}

static qn_tape *open_tape(void)
{
    qn_tape *tape;
    qn_error error;
    EXPECT(qn_tape_new(context, device, &tape, &error) == QN_OK);
    return tape;
}

/* An extent: anything, or at and around what tiles are made of. */
static int64_t extent(int most)
{
    static const int edges[] = {1,   7,   8,   16,  63,  64,  65,  127,  128,  129,
                                192, 256, 257, 320, 511, 512, 640, 1023, 1024, 1100};
    int64_t n = pick(2) ? PICK(edges) : 1 + pick(most);
    return n > most ? 1 + n % most : n;
}

/* ---- products ---- */

static void try_product(uint64_t number)
{
    static const qn_dtype types[] = {QN_BF16, QN_F16, QN_F32, QN_F32, QN_BF16, QN_I8};
    static const qn_products ways[] = {QN_PRODUCTS_ANY, QN_PRODUCTS_TERMS, QN_PRODUCTS_TF32, QN_PRODUCTS_FMA};
    state = number * 977 + 1;
    qn_tape *tape = open_tape();
    qn_dtype elem = PICK(types);
    qn_products way = elem == QN_F32 ? PICK(ways) : QN_PRODUCTS_ANY;
    int64_t batch = pick(4) ? 1 : 1 + pick(3), m = extent(large ? 800 : 140), n = extent(large ? 800 : 140),
            k = extent(large ? 640 : 150);
    bool left = pick(2), right = pick(2), bias = elem != QN_I8 && pick(2);
    qn_tape_set_products(tape, way);
    array a = numbers(tape, elem, left ? QN_SHAPE(batch, k, m) : QN_SHAPE(batch, m, k), 2, 1);
    array b = numbers(tape, elem, right ? QN_SHAPE(batch, n, k) : QN_SHAPE(batch, k, n), 2, 1);
    array c = numbers(tape, elem == QN_I8 ? QN_F32 : elem, QN_SHAPE(n), 3, 1);
    qn_tensor x = left ? qn_transpose(a.tensor, 1, 2) : a.tensor, w = right ? qn_transpose(b.tensor, 1, 2) : b.tensor;
    qn_tensor y = qn_matmul(x, w);
    if (bias) y = qn_relu(qn_add(y, c.tensor));
    double *want = calloc((size_t)(batch * m * n), sizeof(double));
    double *rows = malloc(sizeof(double) * (size_t)(k * n) + 1); /* b, rows of n */
    for (int64_t z = 0; z < batch; z++) {
        for (int64_t i = 0; i < k * n; i++) rows[i] = b.at[z * k * n + (right ? i % n * k + i / n : i)];
        for (int64_t i = 0; i < m; i++) {
            double *row = want + (z * m + i) * n;
            for (int64_t p = 0; p < k; p++) {
                double by = left ? a.at[(z * k + p) * m + i] : a.at[(z * m + i) * k + p];
                for (int64_t j = 0; j < n && by != 0; j++) row[j] += by * rows[p * n + j];
            }
            for (int64_t j = 0; j < n && bias; j++) row[j] = fmax(row[j] + c.at[j], 0);
        }
    }
    free(rows);
    char what[200];
    snprintf(what, sizeof(what), "product %d: %s way %d, %d of %dx%dx%d%s%s%s", (int)number, dtypes[elem].text,
             (int)way, (int)batch, (int)m, (int)n, (int)k, left ? ", a turned" : "", right ? ", b turned" : "",
             bias ? ", bias and relu" : "");
    expect_near(what, y, want, batch * m * n, 0);
    free(a.at), free(b.at), free(c.at), free(want);
    qn_tape_free(tape);
}

/* ---- attention ---- */

static void attend(const double *q, const double *k, const double *v, int64_t rows, int64_t columns, int64_t depth,
                   int window, bool causal, double *out)
{
    double *p = malloc(sizeof(double) * (size_t)columns);
    for (int64_t i = 0; i < rows; i++) {
        double most = -INFINITY, sum = 0;
        for (int64_t j = 0; j < columns; j++) {
            bool seen = (!causal || j <= i) && (!window || j > i - window);
            p[j] = seen ? 0 : -INFINITY;
            for (int64_t d = 0; d < depth && seen; d++)
                p[j] += q[i * depth + d] * k[j * depth + d] / sqrt((double)depth);
            most = fmax(most, p[j]);
        }
        for (int64_t j = 0; j < columns; j++) sum += p[j] = exp(p[j] - most);
        for (int64_t d = 0; d < depth; d++) {
            double y = 0;
            for (int64_t j = 0; j < columns; j++) y += p[j] * v[j * depth + d];
            out[i * depth + d] = y / sum;
        }
    }
    free(p);
}

static void try_attention(uint64_t number)
{
    static const int depths[] = {16, 32, 64, 64, 96, 128, 128, 192, 256};
    state = number * 1409 + 5;
    qn_tape *tape = open_tape();
    qn_dtype elem = pick(3) ? QN_BF16 : QN_F16;
    int64_t heads = 1 + pick(large ? 4 : 2), rows = extent(large ? 700 : 200), depth = PICK(depths);
    bool causal = pick(2), windowed = causal && pick(3) == 0;
    int64_t columns = causal ? rows : extent(large ? 700 : 200);
    int window = windowed ? 1 + pick((int)rows) : 0, share = pick(3) ? 1 : 2;
    heads = heads > share ? heads / share * share : share;
    array q = numbers(tape, elem, QN_SHAPE(1, heads / share, share, rows, depth), 8, 8);
    array k = numbers(tape, elem, QN_SHAPE(1, heads / share, 1, columns, depth), 8, 8);
    array v = numbers(tape, elem, QN_SHAPE(1, heads / share, 1, columns, depth), 8, 8);
    qn_tensor mask = QN_NONE;
    if (window) {
        qn_tensor i = qn_unsqueeze(qn_arange(tape, QN_I64, 0, rows, 1), 1),
                  j = qn_unsqueeze(qn_arange(tape, QN_I64, 0, columns, 1), 0);
        mask = qn_gt(j, qn_sub_scalar(i, window));
    }
    qn_shape shared = QN_SHAPE(1, heads / share, share, columns, depth);
    qn_tensor y = qn_scaled_dot_product_attention(q.tensor, qn_expand(k.tensor, shared), qn_expand(v.tensor, shared),
                                                  mask, causal, 0);
    double *want = malloc(sizeof(double) * (size_t)q.count + 1);
    for (int64_t h = 0; h < heads; h++)
        attend(q.at + h * rows * depth, k.at + h / share * columns * depth, v.at + h / share * columns * depth, rows,
               columns, depth, window, causal, want + h * rows * depth);
    char what[200];
    snprintf(what, sizeof(what), "attention %d: %s, %d heads (%d share) of %d, %d x %d%s, window %d", (int)number,
             dtypes[elem].text, (int)heads, share, (int)depth, (int)rows, (int)columns, causal ? ", causal" : "",
             window);
    expect_near(what, y, want, q.count, 6e-3); /* weights are rounded to 16 bits, too */
    free(q.at), free(k.at), free(v.at), free(want);
    qn_tape_free(tape);
}

/* ---- convolutions ---- */

typedef struct conv_case {
    int axes;
    bool transposed, gradient, last;
    int64_t images, channels, outputs, groups, in[3], out[3], size[3];
    qn_conv_options o;
} conv_case;

/* Of a plain convolution of `in`: adds x * w to y, or to x what comes back from y. */
static void convolve(const conv_case *c, double *x, const double *w, double *y, bool back)
{
    int64_t ins = c->in[0] * c->in[1] * c->in[2], outs = c->out[0] * c->out[1] * c->out[2];
    int64_t taps = c->size[0] * c->size[1] * c->size[2], each = c->channels / c->groups, more = c->outputs / c->groups;
    for (int64_t place = 0; place < outs; place++)
        for (int64_t tap = 0; tap < taps; tap++) {
            int64_t at = 0, rest_place = place, rest_tap = tap, unit = 1;
            bool inside = true;
            for (int i = 2; i >= 0; i--) {
                int64_t p = rest_place % c->out[i] * c->o.stride[i] - c->o.padding[i] +
                            rest_tap % c->size[i] * c->o.dilation[i];
                inside &= p >= 0 && p < c->in[i];
                at += p * unit;
                unit *= c->in[i];
                rest_place /= c->out[i];
                rest_tap /= c->size[i];
            }
            for (int64_t n = 0; n < c->images && inside; n++)
                for (int64_t out = 0; out < c->outputs; out++)
                    for (int64_t ch = 0; ch < each; ch++) {
                        double *from = &x[(n * c->channels + out / more * each + ch) * ins + at];
                        double *to = &y[(n * c->outputs + out) * outs + place], by = w[(out * each + ch) * taps + tap];
                        *(back ? from : to) += by * (back ? *to : *from);
                    }
        }
}

static qn_shape image_shape(const conv_case *c, int64_t channels, const int64_t *extents)
{
    qn_shape s = {2 + c->axes, {c->images, channels}};
    for (int i = 0; i < c->axes; i++) s.extents[2 + i] = extents[3 - c->axes + i];
    return s;
}

/* Channels last in memory, first where it is looked at; `from` is in the latter order. */
static array image(qn_tape *tape, qn_dtype elem, qn_shape s, bool last)
{
    if (!last) return numbers(tape, elem, s, 2, 1);
    qn_shape moved = s;
    for (int i = 1; i + 1 < s.rank; i++) moved.extents[i] = s.extents[i + 1];
    moved.extents[s.rank - 1] = s.extents[1];
    array x = numbers(tape, elem, moved, 2, 1);
    int64_t places = x.count / (s.extents[0] * s.extents[1]);
    double *first = malloc(sizeof(double) * (size_t)x.count + 1);
    for (int64_t i = 0; i < x.count; i++) {
        int64_t ch = i % s.extents[1], at = i / s.extents[1] % places, n = i / s.extents[1] / places;
        first[(n * s.extents[1] + ch) * places + at] = x.at[i];
    }
    free(x.at);
    x.at = first;
    for (int i = s.rank - 1; i > 1; i--) x.tensor = qn_transpose(x.tensor, i - 1, i);
    return x;
}

static conv_case choose_convolution(void)
{
    static const int channels[] = {3, 8, 16, 24, 64, 64, 128}, outputs[] = {5, 16, 40, 64, 72, 130};
    conv_case c = {.axes = 1 + pick(3), .transposed = pick(3) == 0, .gradient = pick(4) == 0, .last = pick(2)};
    c.images = 1 + pick(3);
    c.groups = pick(4) ? 1 : 2;
    c.channels = PICK(channels) / c.groups * c.groups;
    c.outputs = PICK(outputs) / c.groups * c.groups;
    if (!c.channels) c.channels = c.groups;
    for (int i = 0; i < 3; i++) {
        bool there = i >= 3 - c.axes;
        c.size[i] = there ? 1 + pick(4) : 1;
        c.o.stride[i] = there ? 1 + pick(3) : 1;
        c.o.dilation[i] = there ? 1 + pick(2) : 1;
        int64_t reach = (c.size[i] - 1) * c.o.dilation[i] + 1;
        c.o.padding[i] = there ? pick((int)reach) : 0;
        int64_t most = large ? (c.axes == 1 ? 900 : c.axes == 2 ? 30 : 10) : (c.axes == 1 ? 60 : c.axes == 2 ? 9 : 5);
        c.out[i] = there ? 2 + pick((int)most) : 1;
        c.in[i] = (c.out[i] - 1) * c.o.stride[i] + reach - 2 * c.o.padding[i]; /* as the transposed one wants it */
        if (c.in[i] < 1) {
            c.o.padding[i] = 0;
            c.in[i] = (c.out[i] - 1) * c.o.stride[i] + reach;
        }
    }
    c.o.groups = c.groups;
    return c;
}

/* Multiplications of the loops below. */
static double work_of(const conv_case *c)
{
    double work = (double)(c->images * c->outputs * c->channels / c->groups);
    for (int i = 0; i < 3; i++) work *= (double)(c->out[i] * c->size[i]);
    return work;
}

static void try_convolution(uint64_t number)
{
    state = number * 733 + 3;
    conv_case c = choose_convolution();
    while (work_of(&c) > MOST_WORK) c = choose_convolution();
    qn_tape *tape = open_tape();
    static const qn_dtype types[] = {QN_BF16, QN_BF16, QN_F16, QN_F32};
    qn_dtype elem = PICK(types);
    qn_tape_set_products(tape, QN_PRODUCTS_TERMS);
    qn_conv_options given = {.groups = c.groups};
    for (int i = 0; i < c.axes; i++) {
        given.stride[i] = c.o.stride[3 - c.axes + i];
        given.padding[i] = c.o.padding[3 - c.axes + i];
        given.dilation[i] = c.o.dilation[3 - c.axes + i];
    }
    qn_shape whole = image_shape(&c, c.channels, c.in), result = image_shape(&c, c.outputs, c.out);
    qn_shape weights = {2 + c.axes, {c.outputs, c.channels / c.groups}};
    for (int i = 0; i < c.axes; i++) weights.extents[2 + i] = c.size[3 - c.axes + i];
    bool back = c.transposed || c.gradient; /* what is given is of the result's shape */
    array x = image(tape, elem, back ? result : whole, c.last);
    array w = numbers(tape, elem, weights, 2, 1);
    qn_tensor y;
    if (c.transposed) {
        y = qn_conv_transpose(x.tensor, w.tensor, QN_NONE, &given);
    } else if (c.gradient) {
        qn_tensor place = qn_zeros(tape, elem, whole), forward = qn_conv(place, w.tensor, QN_NONE, &given);
        qn_grad_from(&forward, &x.tensor, 1, &place, 1, &y);
    } else {
        y = qn_conv(x.tensor, w.tensor, QN_NONE, &given);
    }
    int64_t size = elements_of(back ? whole : result);
    double *want = calloc((size_t)size, sizeof(double));
    convolve(&c, back ? want : x.at, w.at, back ? x.at : want, back);
    char what[300];
    snprintf(what, sizeof(what),
             "convolution %d: %s %d-D%s%s%s, %d x %d to %d, groups %d, in %dx%dx%d, size %dx%dx%d, stride %d %d %d, "
             "padding %d %d %d, dilation %d %d %d",
             (int)number, dtypes[elem].text, c.axes, c.transposed ? " transposed" : "",
             c.gradient && !c.transposed ? " gradient" : "", c.last ? " channels last" : "", (int)c.images,
             (int)c.channels, (int)c.outputs, (int)c.groups, (int)c.in[0], (int)c.in[1], (int)c.in[2], (int)c.size[0],
             (int)c.size[1], (int)c.size[2], (int)c.o.stride[0], (int)c.o.stride[1], (int)c.o.stride[2],
             (int)c.o.padding[0], (int)c.o.padding[1], (int)c.o.padding[2], (int)c.o.dilation[0], (int)c.o.dilation[1],
             (int)c.o.dilation[2]);
    expect_near(what, y, want, size, 0);
    free(x.at), free(w.at), free(want);
    qn_tape_free(tape);
}

TEST(products)
{
    for (int i = 0; i < count; i++) try_product(seed + (uint64_t)i);
}

TEST(attentions)
{
    for (int i = 0; i < count; i++) try_attention(seed + (uint64_t)i);
}

TEST(convolutions)
{
    for (int i = 0; i < count; i++) try_convolution(seed + (uint64_t)i);
}

TEST(open_context)
{
    qn_error error;
    const char *where = getenv("QUERN_TEST_DEVICE"), *more = getenv("QUERN_RANDOM"),
               *start = getenv("QUERN_RANDOM_SEED");
    if (where) device = where;
    if (more) count = atoi(more);
    if (start) seed = strtoull(start, NULL, 10);
    large = !strncmp(device, "cuda", 4) || getenv("QUERN_RANDOM_LARGE");
    setvbuf(stdout, NULL, _IOLBF, 0); /* what was tried last is seen where it does not end */
    EXPECT(qn_context_open(NULL, &context, &error) == QN_OK);
}

TEST(close_context)
{
    qn_context_close(context);
}

TEST_MAIN(CASE(open_context), CASE(products), CASE(attentions), CASE(convolutions), CASE(close_context))
