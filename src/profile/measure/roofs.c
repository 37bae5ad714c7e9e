/*
 * How near a kernel comes to what the machine can. In: what is known of a launch, its time, measured ceilings. Out: the
 * largest of the shares that it reaches of the memory's bandwidth, of the multiply-adds, and, where it is faster than
 * those alone could be, of the tensor cores, or of a processor's instructions for products, for its narrowest type.
 * SPDX-License-Identifier: MIT
 */
#include "profile/measure/roofs.h"

#include <math.h>
#include <string.h>

static double dot_peak(const qn_roofline *r, const char *shapes)
{
    if (!shapes) return r->dot_tf32_gflop_per_s;
    if (strstr(shapes, " f8")) return r->dot_f8_gflop_per_s;
    if (strstr(shapes, " i8[") || strstr(shapes, " u8[")) return r->dot_i8_gflop_per_s;
    if (strstr(shapes, " bf16[")) return r->dot_bf16_gflop_per_s;
    if (strstr(shapes, " f16[")) return r->dot_f16_gflop_per_s;
    return r->dot_tf32_gflop_per_s;
}

double compute_share(const qn_roofline *r, const char *shapes, double gflop_per_s, const char **bound)
{
    bool wide = shapes && strstr(shapes, " f64[") && r->fma_f64_gflop_per_s > 0;
    double peak = wide ? r->fma_f64_gflop_per_s : r->fma_f32_gflop_per_s, dots = dot_peak(r, shapes);
    bool by_dots = gflop_per_s > peak && dots > peak;
    *bound = !by_dots ? "compute" : r->dot_tf32_gflop_per_s > 0 ? "tensor cores" : "products";
    return peak > 0 ? gflop_per_s / (by_dots ? dots : peak) : NAN;
}

double roof_share(const qn_roofline *r, const record_facts *f, double time_ns, const char **bound)
{
    *bound = NULL;
    if (!f || !(time_ns > 0)) return NAN;
    const char *by;
    double bytes = f->read_bytes + f->written_bytes;
    double bandwidth = f->read_bytes > 0.95 * bytes && r->read_gb_per_s > 0 ? r->read_gb_per_s : r->copy_gb_per_s;
    double memory = bandwidth > 0 ? bytes / time_ns / bandwidth : NAN;
    double compute = compute_share(r, f->shapes, f->flops / time_ns, &by);
    bool by_compute = compute > memory || isnan(memory);
    double share = by_compute ? compute : memory;
    if (isfinite(share)) *bound = by_compute ? by : "memory";
    return share;
}

bool limit_is_products(const char *limit)
{
    return !strcmp(limit, "tensor cores") || !strcmp(limit, "products");
}

bool share_is_above(double share)
{
    return share >= 1.005;
}

const char above_words[] =
    "more than 100%: a limit was measured while the machine was busy with other work, or a large part "
    "of what this counts as moved is never touched";

const char *limit_words(double share, const char *limit)
{
    static const struct {
        const char *limit, *above;
    } words[] = {
        {"memory", "memory (in cache)"}, /* a profile's calls follow each other on the same arrays */
        {"copy", "copy (measured low, or bytes untouched)"}, /* a bench's arrays are cold */
        {"read", "read (measured low, or bytes untouched)"},
        {"fma", "fma (limit measured low)"},
        {"compute", "compute (limit measured low)"},
        {"tensor cores", "tensor cores (limit measured low)"},
        {"products", "products (limit measured low)"},
    };
    if (!limit || !share_is_above(share)) return limit;
    for (int i = 0; i < COUNT(words); i++)
        if (!strcmp(words[i].limit, limit)) return words[i].above;
    return limit;
}

qn_roofline roofline_from(const qn_ceilings *c)
{
    return (qn_roofline){.read_gb_per_s = c->read_gb_per_s,
                         .copy_gb_per_s = c->copy_gb_per_s,
                         .fma_f32_gflop_per_s = c->fma_all_gflop_per_s,
                         .fma_one_gflop_per_s = c->fma_one_gflop_per_s,
                         .units = c->threads};
}
