/*
 * Rules about accesses of one kernel: how the threads of a warp touch memory. In: what the layout says (launch_look),
 * or hardware counters where somebody read them. Out: hints at the line of the worst access.
 * SPDX-License-Identifier: MIT
 */
#include "profile/hints/hints.h"

#include <math.h>
#include <string.h>

#define RULE_OF_KERNEL(name)                                                      \
    void rule_##name(const hint_input *in, const hint_kernel *k, hint_list *out); \
    void rule_##name(const hint_input *in, const hint_kernel *k, hint_list *out)

static const char from_layout[] = "the layout of the compiled kernel and the arrays' strides";

static const char *verb(const launch_access *a)
{
    return a->kind == ACCESS_LOAD ? "loads" : a->kind == ACCESS_STORE ? "stores" : "updates";
}

/* Sectors of the whole launch: those of a warp, times how often warps do it. */
static double sectors_of(const launch_access *a, double of_warp)
{
    return of_warp * fmax(a->elements, 1) / MAXIMUM(a->at_once, 1);
}

RULE_OF_KERNEL(uncoalesced)
{
    const launch_access *worst = NULL;
    double touched = 0, least = 0, most = 0;
    for (int i = 0; k->look && i < k->look->access_count; i++) {
        const launch_access *a = &k->look->accesses[i];
        if (a->kind == ACCESS_TILE || !(a->sectors > 0)) continue;
        double all = sectors_of(a, a->sectors), enough = sectors_of(a, a->least_sectors);
        touched += all;
        least += enough;
        if (all - enough <= most) continue;
        most = all - enough;
        worst = a;
    }
    if (!worst || worst->sectors < 2 * worst->least_sectors) return;
    double gain = 1 - least / touched;
    const char *evidence = from_layout;
    if (!isnan(k->counters.sector_share)) {
        gain = 1 - k->counters.sector_share;
        evidence = arena_print(in->memory, "hardware counters: %.0f%% of the bytes that accesses moved were used",
                               100 * k->counters.sector_share);
    }
    hint_of_kernel(out, HINT_uncoalesced, k, worst->line, gain, evidence, NULL,
                   "a warp that %s `%s` touches %.0f sectors of 32 bytes where %.0f would do: neighbouring threads are "
                   "%lld bytes apart",
                   verb(worst), worst->array, worst->sectors, worst->least_sectors, (long long)worst->stride_bytes);
}

RULE_OF_KERNEL(narrow)
{
    const launch_access *worst = NULL;
    double narrow = 0, all = 0;
    for (int i = 0; k->look && i < k->look->access_count; i++) {
        const launch_access *a = &k->look->accesses[i];
        if (a->kind == ACCESS_TILE || a->kind == ACCESS_ATOMIC) continue;
        double instructions = fmax(a->elements, 1);
        all += instructions;
        if (a->bytes > 4 || a->possible_bytes < 2 * a->bytes || a->sectors >= 2 * a->least_sectors) continue;
        narrow += instructions * (1 - (double)a->bytes / a->possible_bytes);
        if (!worst || a->elements > worst->elements) worst = a;
    }
    if (!worst) return;
    /* Loads and stores are about a quarter of what a kernel issues. */
    hint_of_kernel(out, HINT_narrow, k, worst->line, narrow / all / 4, from_layout, NULL,
                   "a thread %s `%s` %d byte%s at a time and takes %d neighbouring ones: %d instructions where one "
                   "would do",
                   verb(worst), worst->array, worst->bytes, worst->bytes == 1 ? "" : "s", worst->possible_bytes,
                   worst->possible_bytes / worst->bytes);
}

RULE_OF_KERNEL(bank_conflicts)
{
    const launch_access *worst = NULL;
    double ways = 0, tiles = 0, least = 0, others = 0;
    for (int i = 0; k->look && i < k->look->access_count; i++) {
        const launch_access *a = &k->look->accesses[i];
        if (a->kind == ACCESS_TILE) {
            tiles += fmax(a->elements, 1) * a->ways;
            least += fmax(a->elements, 1);
            if (!worst || a->ways > worst->ways) worst = a;
        } else {
            others += fmax(a->elements, 1) * 4; /* memory is that much farther away */
        }
    }
    if (!worst || worst->ways < 2) return;
    ways = worst->ways;
    const char *evidence = from_layout;
    if (!isnan(k->counters.bank_conflicts)) {
        if (k->counters.bank_conflicts < 1) return;
        evidence = arena_print(in->memory, "hardware counters: %.3g conflicts in a launch", k->counters.bank_conflicts);
    }
    hint_of_kernel(
        out, HINT_bank_conflicts, k, worst->line, (tiles - least) / (tiles + others), evidence, NULL,
        "the threads of a warp touch the tile%s%s %lld bytes apart, %.0f of them in the same bank: each access "
        "takes %.0f turns",
        *worst->array ? " " : "", worst->array, (long long)worst->stride_bytes, ways, ways);
}

RULE_OF_KERNEL(atomics)
{
    /* Of one address, one after the other in the second cache; measured on an H200. */
    const double update_ns = 1.75;
    const launch_access *worst = NULL;
    for (int i = 0; k->look && i < k->look->access_count; i++) {
        const launch_access *a = &k->look->accesses[i];
        if (a->kind == ACCESS_ATOMIC && (!worst || a->per_address > worst->per_address)) worst = a;
    }
    if (!worst || worst->per_address < 4096 || !k->machine.gpu) return;
    double bytes = hint_bytes(k), serial_ns = worst->per_address * update_ns;
    double other_ns = k->machine.copy_gb_per_s > 0 ? bytes / k->machine.copy_gb_per_s : bytes / 3000;
    double gain = k->median_ns > 0 ? fmin(serial_ns / k->median_ns, 1) : serial_ns / (serial_ns + other_ns);
    hint_of_kernel(out, HINT_atomics, k, worst->line, gain * 0.9, "counted from the kernel and its launch", NULL,
                   "%.3g updates, %.3g of each address of `%s` on average: one after the other they take about %.3g us",
                   worst->elements, worst->per_address, worst->array, serial_ns * 1e-3);
}
