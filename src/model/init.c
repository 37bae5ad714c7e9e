/*
 * Initial values of parameters. In: a distribution, the model's seed, the parameter's path. Out: a tensor that is not
 * computed yet. The numbers are drawn from a seed that only the two make, so that a layer that is added or left out
 * changes no other. Drawn in f32 (f64 keeps its digits), rounded once.
 * SPDX-License-Identifier: MIT
 */
#include "ir/graph_build.h"
#include "model/model.h"

#include <math.h>
#include <string.h>

qn_init qn_init_constant(double value)
{
    return (qn_init){.kind = QN_INIT_CONSTANT, .a = value};
}

qn_init qn_init_uniform(double low, double high)
{
    return (qn_init){.kind = QN_INIT_UNIFORM, .a = low, .b = high};
}

qn_init qn_init_normal(double mean, double deviation)
{
    return (qn_init){.kind = QN_INIT_NORMAL, .a = mean, .b = deviation};
}

qn_init qn_init_xavier_uniform(double gain)
{
    return (qn_init){.kind = QN_INIT_XAVIER_UNIFORM, .a = gain};
}

qn_init qn_init_xavier_normal(double gain)
{
    return (qn_init){.kind = QN_INIT_XAVIER_NORMAL, .a = gain};
}

qn_init qn_init_kaiming_uniform(double slope)
{
    return (qn_init){.kind = QN_INIT_KAIMING_UNIFORM, .a = slope};
}

qn_init qn_init_kaiming_normal(double slope)
{
    return (qn_init){.kind = QN_INIT_KAIMING_NORMAL, .a = slope};
}

static uint64_t seed_of(uint64_t seed, const char *path)
{
    text words = {0};
    text_print(&words, "%llu:%s", (unsigned long long)seed, path);
    uint64_t out = hash_bytes(words.data, words.length).low;
    text_free(&words);
    return out;
}

/* [in][out] of a matrix, [out][in][...] of more axes; 0: it has no fans. */
static void find_fans(qn_shape shape, qn_init *init)
{
    int64_t in = 0, out = 0, field = 1;
    for (int k = 2; k < shape.rank; k++) field *= shape.extents[k];
    if (shape.rank == 2) {
        in = shape.extents[0];
        out = shape.extents[1];
    } else if (shape.rank > 2) {
        in = shape.extents[1] * field;
        out = shape.extents[0] * field;
    }
    if (!init->fan_in) init->fan_in = in;
    if (!init->fan_out) init->fan_out = out;
}

/* The deviation of a distribution that looks at fans. */
static double deviation_of(const qn_init *init)
{
    if (init->kind == QN_INIT_XAVIER_UNIFORM || init->kind == QN_INIT_XAVIER_NORMAL)
        return init->a * sqrt(2 / (double)(init->fan_in + init->fan_out));
    return sqrt(2 / (1 + init->a * init->a)) / sqrt((double)init->fan_in);
}

/* low + (high - low) u, or mean + deviation z, in the type it is drawn in. */
static qn_tensor scaled(qn_tensor drawn, double factor, double term)
{
    qn_tensor product = qn_mul_scalar(drawn, factor), sum = qn_add_scalar(product, term);
    tape_forget(drawn);
    tape_forget(product);
    return sum;
}

qn_tensor model_initial(qn_tape *tape, uint64_t seed, const char *path, qn_dtype type, qn_shape shape, qn_init init)
{
    graph *g = tape->graph;
    if ((unsigned)init.kind > QN_INIT_KAIMING_NORMAL)
        return graph_fail(g, "parameter", "%d is no kind of initial value", (int)init.kind), tape_failed();
    struct shape extents = shape_from_public(shape);
    if (!graph_shape_fits(g, "parameter", &extents)) return tape_failed();
    if (init.kind == QN_INIT_CONSTANT) return qn_full(tape, type, shape, init.a);
    qn_dtype drawn_type = type == QN_F64 ? QN_F64 : QN_F32;
    bool looks = init.kind >= QN_INIT_XAVIER_UNIFORM;
    if (looks) find_fans(shape, &init);
    if (looks && (init.fan_in < 1 || (init.kind <= QN_INIT_XAVIER_NORMAL && init.fan_out < 1)))
        return graph_fail(g, "parameter", "the fans of `%s` cannot be told from its shape: set fan_in and fan_out",
                          path),
               (qn_tensor){0};
    bool normal =
        init.kind == QN_INIT_NORMAL || init.kind == QN_INIT_XAVIER_NORMAL || init.kind == QN_INIT_KAIMING_NORMAL;
    double deviation = looks ? deviation_of(&init) : init.b, half = looks ? deviation * sqrt(3) : 0;
    uint64_t own = seed_of(seed, path);
    qn_tensor x;
    if (normal)
        x = scaled(qn_randn_seeded(tape, own, drawn_type, shape), deviation, looks ? 0 : init.a);
    else
        x = scaled(qn_rand_seeded(tape, own, drawn_type, shape), looks ? 2 * half : init.b - init.a,
                   looks ? -half : init.a);
    if (drawn_type == type) return x;
    qn_tensor rounded = qn_cast(x, type);
    tape_forget(x);
    return rounded;
}
