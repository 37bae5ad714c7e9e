/*
 * Rules about one kernel: its grid, its registers and shared memory, its operations and bytes. In: facts of the launch
 * (known before it runs), its time and counters where there are any. Out: hints. docs/hints.md explains each.
 * SPDX-License-Identifier: MIT
 */
#include "profile/hints/hints.h"
#include "profile/profile.h"
#include "profile/measure/roofs.h"

#include <math.h>
#include <string.h>

#define RULE_OF_KERNEL(name)                                                      \
    void rule_##name(const hint_input *in, const hint_kernel *k, hint_list *out); \
    void rule_##name(const hint_input *in, const hint_kernel *k, hint_list *out)

/* Share of the roof that it reaches; 0: not known. */
static double share_of_roof(const hint_kernel *k)
{
    double floor_ns = hint_floor_ns(k, NULL);
    return floor_ns > 0 && k->median_ns > 0 ? floor_ns / k->median_ns : 0;
}

/* Blocks of the launch, from its waves; NAN: not known. */
static double blocks_of(const hint_kernel *k)
{
    const record_facts *f = k->facts;
    if (!k->machine.gpu || !(f->waves > 0) || f->blocks_per_unit <= 0 || k->machine.units <= 0) return NAN;
    return round(f->waves * f->blocks_per_unit * k->machine.units);
}

#define CLIFF_NS 20000 /* below that launches and latencies are all there is */

static const char from_launch[] = "the shape of the launch and the registers and shared memory of the compiled kernel";

/* ---- the grid ---- */

RULE_OF_KERNEL(grid_too_small)
{
    const record_facts *f = k->facts;
    int units = k->machine.units;
    double blocks = blocks_of(k);
    if (!(f->waves < 1) || isnan(blocks)) return;
    if (blocks < units)
        hint_of_kernel(out, HINT_grid_too_small, k, 0, 1 - blocks / units, from_launch, NULL,
                       "%.0f block%s for %d multiprocessors (%.2f waves): %.0f%% of the device has nothing to do",
                       blocks, blocks == 1 ? "" : "s", units, f->waves, 100 * (1 - blocks / units));
    else if (share_of_roof(k) < 0.6) /* every multiprocessor works, with fewer warps than it could hold */
        hint_of_kernel(
            out, HINT_grid_too_small, k, 0, (1 - f->waves) / 2, from_launch, NULL,
            "%.0f blocks are %.2f waves: multiprocessors could hold %d blocks each and hold %.1f, too few to "
            "hide the memory's latency",
            blocks, f->waves, f->blocks_per_unit, blocks / units);
}

RULE_OF_KERNEL(tail_effect)
{
    const record_facts *f = k->facts;
    double whole = floor(f->waves), part = f->waves - whole, blocks = blocks_of(k);
    if (isnan(blocks) || whole < 1 || part < 0.01 || part > 0.9) return;
    double gain = (1 - part) / (whole + 1);
    if (gain < 0.1) return; /* many waves: blocks drift apart and fill the gap */
    hint_of_kernel(out, HINT_tail_effect, k, 0, gain, from_launch, NULL,
                   "%.0f blocks are %.2f waves of %d: the last wave takes as long as the others with %.0f%% of the "
                   "places empty",
                   blocks, f->waves, f->blocks_per_unit * k->machine.units, 100 * (1 - part));
}

/* ---- occupancy ---- */

/* Half of what a multiprocessor holds is enough for most; below that waiting for memory shows. */
static double occupancy_gain(const hint_kernel *k, double *occupancy)
{
    double achieved = k->counters.occupancy;
    *occupancy = isnan(achieved) ? k->facts->occupancy : fmin(achieved, k->facts->occupancy);
    if (!(*occupancy < 0.5) || share_of_roof(k) > 0.6) return 0;
    /* A product hides latency with steps on their way, not with warps: a few are right, unless it is seen to be slow. */
    if (k->look && k->look->product_flops > 0 && share_of_roof(k) == 0) return 0;
    return (1 - *occupancy / 0.5) / 2;
}

static const char *occupancy_evidence(const hint_input *in, const hint_kernel *k)
{
    if (isnan(k->counters.occupancy)) return from_launch;
    return arena_print(in->memory, "hardware counters: %.0f%% of the warps were there, %.0f%% are possible",
                       100 * k->counters.occupancy, 100 * k->facts->occupancy);
}

static bool limited_by(const hint_kernel *k, const char *what)
{
    return k->machine.gpu && k->facts->limit && !strcmp(k->facts->limit, what) && k->facts->blocks_per_unit > 0;
}

RULE_OF_KERNEL(occupancy_registers)
{
    const record_facts *f = k->facts;
    double occupancy, gain = occupancy_gain(k, &occupancy);
    if (!limited_by(k, "registers") || f->threads <= 0) return;
    int next = 65536 / ((f->blocks_per_unit + 1) * f->threads) / 8 * 8;
    hint_of_kernel(
        out, HINT_occupancy_registers, k, 0, gain, occupancy_evidence(in, k), NULL,
        "%d registers a thread, %d threads a block: a multiprocessor holds %d block%s, occupancy %.0f%%; one "
        "more would fit with %d registers",
        f->registers, f->threads, f->blocks_per_unit, f->blocks_per_unit == 1 ? "" : "s", 100 * occupancy, next);
}

RULE_OF_KERNEL(occupancy_shared)
{
    const record_facts *f = k->facts;
    double occupancy, gain = occupancy_gain(k, &occupancy);
    if (!limited_by(k, "shared memory")) return;
    int next = f->shared_bytes * f->blocks_per_unit / (f->blocks_per_unit + 1);
    hint_of_kernel(out, HINT_occupancy_shared, k, 0, gain, occupancy_evidence(in, k), NULL,
                   "%.1f KiB of shared memory a block: a multiprocessor holds %d block%s, occupancy %.0f%%; one more "
                   "would fit with %.1f KiB",
                   f->shared_bytes / 1024.0, f->blocks_per_unit, f->blocks_per_unit == 1 ? "" : "s", 100 * occupancy,
                   next / 1024.0);
}

RULE_OF_KERNEL(spills)
{
    const record_facts *f = k->facts;
    if (f->spill_bytes <= 0 || !k->machine.gpu) return;
    double blocks = blocks_of(k), useful = f->read_bytes + f->written_bytes;
    double spilled = (double)f->spill_bytes * f->threads * (isnan(blocks) ? (double)f->programs : blocks);
    double share = useful > 0 && spilled > 0 ? spilled / (spilled + useful) : 0.5;
    hint_of_kernel(out, HINT_spills, k, 0, share / 2, "the assembler's report of this kernel", NULL,
                   "%d bytes a thread do not fit in %d registers: %.3g MB stored and loaded again beside %.3g MB that "
                   "the kernel is for; about half of that hides in the first cache",
                   f->spill_bytes, f->registers, spilled * 1e-6, useful * 1e-6);
}

/* ---- the roofline ---- */

RULE_OF_KERNEL(low_intensity)
{
    const record_facts *f = k->facts;
    const hint_machine *m = &k->machine;
    double bytes = hint_bytes(k), share = share_of_roof(k);
    bool by_memory;
    if (!(m->fma_gflop_per_s > 0) || !(m->copy_gb_per_s > 0) || !(bytes > 0) || isnan(f->flops)) return;
    double ridge = m->fma_gflop_per_s / m->copy_gb_per_s, intensity = f->flops / bytes;
    (void)hint_floor_ns(k, &by_memory);
    if (!by_memory || intensity > ridge / 4 || share < 0.6) return; /* farther from the roof other rules have more */
    const char *evidence = "operations and bytes counted from the kernel, its time, measured ceilings";
    if (!isnan(k->counters.dram_bytes))
        evidence = arena_print(in->memory,
                               "hardware counters: %.3g MB of memory traffic, %.3g MB are counted from the "
                               "kernel; measured ceilings",
                               k->counters.dram_bytes * 1e-6, bytes * 1e-6);
    bool wide = f->shapes && (strstr(f->shapes, " f32[") || strstr(f->shapes, " f64["));
    /* Half the bytes in half-size numbers; else what fusing with a neighbour saves: one of the arrays. */
    hint_of_kernel(out, HINT_low_intensity, k, 0, (wide ? 0.5 : 0.33) * fmin(share, 1), evidence, NULL,
                   "%.2g operations for each byte where the device could do %.0f: %.0f%% of the bandwidth of %s is "
                   "reached, so only fewer bytes help",
                   intensity, ridge, 100 * share, limit_words(share, "memory"));
}

/* What the schedule knows of a kernel that is slow: how its threads were chosen, and how often it loads what it reads. */
RULE_OF_KERNEL(far_below_roof)
{
    double share = share_of_roof(k), bytes = hint_bytes(k);
    const launch_look *l = k->look;
    if (!(share > 0) || share >= 1.0 / 3 || k->median_ns < CLIFF_NS || !l || !l->team) return;
    const char *again = "";
    if (l->loaded_bytes > 2 * bytes && bytes > 0)
        again = arena_print(in->memory, "; each byte is loaded about %.0f times", l->loaded_bytes / bytes);
    hint_of_kernel(out, HINT_far_below_roof, k, 0, (1 - 3 * share) / 2,
                   "its time, bytes and operations beside measured ceilings; the layout's own note", NULL,
                   "it reaches %.0f%% of its roofline. Its threads: %s%s", 100 * share, l->team, again);
}

/* ---- products ---- */

RULE_OF_KERNEL(tf32_not_allowed)
{
    const launch_look *l = k->look;
    const hint_machine *m = &k->machine;
    if (!l || !l->full_product_line || !m->gpu || !(l->product_flops > 0)) return;
    /* Without measured ceilings: the ratio of the usual data sheets. */
    double ratio = m->tensor_gflop_per_s > 0 && m->fma_gflop_per_s > 0 ? m->tensor_gflop_per_s / m->fma_gflop_per_s : 6;
    double bytes = k->facts->read_bytes + k->facts->written_bytes;
    double fma = m->fma_gflop_per_s > 0 ? m->fma_gflop_per_s : 60e3,
           copy = m->copy_gb_per_s > 0 ? m->copy_gb_per_s : 3e3;
    double now = fmax(l->product_flops / fma, bytes / copy),
           then = fmax(l->product_flops / (fma * ratio), bytes / copy);
    hint_of_kernel(
        out, HINT_tf32_not_allowed, k, l->full_product_line, 1 - then / now,
        "the product's types; operations and bytes counted from the kernel", NULL,
        "%.3g GFLOP of f32 products run on the ordinary units; tensor cores do them about %.0f times as fast "
        "with operands rounded to tf32",
        l->product_flops * 1e-9, ratio);
}

RULE_OF_KERNEL(stride_not_16)
{
    const launch_look *l = k->look;
    if (!l || !l->rough_array || !k->machine.gpu) return;
    hint_of_kernel(
        out, HINT_stride_not_16, k, l->rough_line, 0.3, "the array's strides", NULL,
        "rows of `%s` are %lld bytes apart: %lld more would make them a multiple of 16, and whole rows could "
        "be copied in the background",
        l->rough_array, (long long)l->rough_stride_bytes, (long long)((16 - l->rough_stride_bytes % 16) % 16));
}
