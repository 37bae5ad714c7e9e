/*
 * Finding hints. In: kernels with their facts and times, a run. Out: a list, best first. Each rule of hints.def is asked
 * about every kernel that matters, or once about the run; what it says is cut to what the roofline leaves, and dropped
 * when it is not worth a line.
 * SPDX-License-Identifier: MIT
 */
#include "profile/hints/hints.h"

#include "profile/measure/environment.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A kernel below this share of the device's time, a gain below these: not worth a line. */
static const double least_kernel_share = 0.02, least_gain = 0.05, least_run_gain = 0.01;
/* So near to the roof there is nothing to win but by moving fewer bytes. */
static const double near_roof = 0.9;

#define KERNEL(name) void rule_##name(const hint_input *in, const hint_kernel *k, hint_list *out);
#define RUN(name) void rule_##name(const hint_input *in, hint_list *out);
#define RULE(name, scope, title, advice) scope(name)
#include "profile/hints/hints.def"
#undef RULE
#undef KERNEL
#undef RUN

#define KERNEL(name) .scope = HINT_OF_KERNEL, .kernel = rule_##name
#define RUN(name) .scope = HINT_OF_RUN, .run = rule_##name
#define RULE(name, scope, title, advice) {#name, title, advice, scope(name)},
const hint_rule_info hint_rules[HINT_RULES] = {
#include "profile/hints/hints.def"
};
#undef RULE
#undef KERNEL
#undef RUN

hint_counters counters_unknown(void)
{
    return (hint_counters){NAN, NAN, NAN, NAN};
}

/* ---- adding ---- */

double hint_bytes(const hint_kernel *k)
{
    double bytes = k->facts->read_bytes + k->facts->written_bytes;
    return k->look && k->look->touched_bytes > 0 ? fmin(bytes, k->look->touched_bytes) : bytes;
}

double hint_floor_ns(const hint_kernel *k, bool *by_memory)
{
    const record_facts *f = k->facts;
    const hint_machine *m = &k->machine;
    double bytes = hint_bytes(k);
    double bandwidth = f->written_bytes < 0.05 * bytes ? m->read_gb_per_s : m->copy_gb_per_s;
    double peak = k->look && k->look->product_flops > 0 && !k->look->full_product_line && m->tensor_gflop_per_s > 0
                      ? m->tensor_gflop_per_s
                      : m->fma_gflop_per_s;
    double memory = bandwidth > 0 ? bytes / bandwidth : NAN, compute = peak > 0 ? f->flops / peak : NAN;
    if (by_memory) *by_memory = !(compute > memory);
    return fmax(memory, compute); /* of one that is NAN: the other */
}

static void push(hint_list *list, hint h)
{
    h.rule = hint_rules[h.number].name;
    h.title = hint_rules[h.number].title;
    h.gain_share = h.gain_ns / list->input->wall_ns;
    ARENA_PUSH(list->input->memory, list->items, list->count, list->capacity, h);
}

static const char *say(const hint_list *list, const char *format, va_list words)
{
    text t = {0};
    text_print_list(&t, format, words);
    const char *kept = arena_copy_text(list->input->memory, text_get(&t), t.length);
    text_free(&t);
    return kept;
}

void hint_of_kernel(hint_list *list, hint_rule rule, const hint_kernel *k, int line, double gain, const char *evidence,
                    const char *advice, const char *what, ...)
{
    double floor_ns = hint_floor_ns(k, NULL);
    bool fewer_bytes = rule == HINT_low_intensity; /* the only way below the roof */
    if (floor_ns > 0 && k->median_ns > 0 && !fewer_bytes) {
        double left = 1 - floor_ns / k->median_ns;
        if (left < 1 - near_roof) return;
        gain = fmin(gain, left);
    }
    if (!(gain >= least_gain)) return;
    double gain_ns = gain * k->total_ns;
    if (list->input->wall_ns > 0 && gain_ns < least_run_gain * list->input->wall_ns) return;
    va_list words;
    va_start(words, what);
    const record_facts *f = k->facts;
    push(list, (hint){.number = rule,
                      .of = k,
                      .kernel = f->kernel,
                      .device = f->device,
                      .shapes = f->shapes,
                      .file = f->file,
                      .line = line ? line : f->line,
                      .what = say(list, what, words),
                      .evidence = k->is_shared_out ? arena_print(list->input->memory,
                                                                 "%s; its time is a share of its graph's", evidence)
                                                   : evidence,
                      .advice = advice ? advice : hint_rules[rule].advice,
                      .gain = gain,
                      .gain_ns = gain_ns});
    va_end(words);
}

void hint_of_run(hint_list *list, hint_rule rule, const record_facts *at, double gain, const char *evidence,
                 const char *what, ...)
{
    if (!(gain >= least_run_gain)) return;
    va_list words;
    va_start(words, what);
    push(list, (hint){.number = rule,
                      .kernel = at ? at->kernel : NULL,
                      .device = at ? at->device : NULL,
                      .shapes = at ? at->shapes : NULL,
                      .file = at ? at->file : NULL,
                      .line = at ? at->line : 0,
                      .what = say(list, what, words),
                      .evidence = evidence,
                      .advice = hint_rules[rule].advice,
                      .gain = gain,
                      .gain_ns = gain * list->input->wall_ns});
    va_end(words);
}

/* ---- all rules ---- */

static int compare_hints(const void *left, const void *right)
{
    const hint *a = left, *b = right;
    double x = isnan(a->gain_ns) ? a->gain : a->gain_ns, y = isnan(b->gain_ns) ? b->gain : b->gain_ns;
    if (x != y) return x > y ? -1 : 1;
    return (int)a->number - (int)b->number;
}

void hints_find(const hint_input *in, hint_list *out)
{
    double device_ns = 0;
    *out = (hint_list){.input = in};
    for (int i = 0; i < in->kernel_count; i++)
        if (in->kernels[i].total_ns > 0) device_ns += in->kernels[i].total_ns;
    for (int r = 0; r < HINT_RULES; r++) {
        if (hint_rules[r].run && (in->profile || r == HINT_power_capped)) hint_rules[r].run(in, out);
        for (int i = 0; hint_rules[r].kernel && i < in->kernel_count; i++) {
            const hint_kernel *k = &in->kernels[i];
            if (in->kernel_count > 1 && k->total_ns < least_kernel_share * device_ns) continue;
            hint_rules[r].kernel(in, k, out);
        }
    }
    if (out->count) qsort(out->items, (size_t)out->count, sizeof(hint), compare_hints);
}

/* ---- the kernels of a profile ---- */

typedef struct timed { /* one launch on a device */
    const record_facts *facts;
    double time_ns;
} timed;

static int compare_timed(const void *left, const void *right)
{
    const timed *a = left, *b = right;
    if (a->facts != b->facts) return a->facts < b->facts ? -1 : 1;
    return a->time_ns < b->time_ns ? -1 : a->time_ns > b->time_ns;
}

static void add_share(hint_input *in, const record_facts *part, double share_ns, int64_t calls)
{
    for (int i = 0; i < in->kernel_count; i++)
        if (in->kernels[i].facts == part) {
            in->kernels[i].total_ns += share_ns;
            in->kernels[i].calls += calls;
            return;
        }
    hint_kernel k = {.facts = part,
                     .calls = calls,
                     .total_ns = share_ns,
                     .median_ns = NAN,
                     .is_shared_out = true,
                     .counters = counters_unknown()};
    ARENA_PUSH(in->memory, in->kernels, in->kernel_count, in->kernel_capacity, k);
}

/* The time of a graph that was only timed as a whole, shared out over its kernels by the bytes that each moves. */
static void share_out_graphs(const qn_profile *p, hint_input *in)
{
    timed *graphs = NULL;
    int count = 0, capacity = 0;
    int64_t calls[64] = {0};
    for (int64_t i = 0; i < p->device_count; i++) {
        const device_record *r = &p->device_kept[i];
        int at = 0;
        if (r->kind != DEVICE_GRAPH || !r->facts || !r->facts->part_count) continue;
        while (at < count && graphs[at].facts != r->facts) at++;
        if (at == COUNT(calls)) continue;
        if (at == count) ARENA_PUSH(in->memory, graphs, count, capacity, ((timed){r->facts, 0}));
        graphs[at].time_ns += (double)(r->end_ns - r->start_ns);
        calls[at]++;
    }
    for (int i = 0; i < count; i++) {
        const record_facts *f = graphs[i].facts;
        double bytes = f->read_bytes + f->written_bytes;
        for (int k = 0; k < f->part_count && bytes > 0; k++) {
            const record_facts *part = f->parts[k];
            add_share(in, part, graphs[i].time_ns * (part->read_bytes + part->written_bytes) / bytes, calls[i]);
        }
    }
}

static void gather_kernels(const qn_profile *p, hint_input *in)
{
    timed *all = NULL;
    int count = 0, capacity = 0;
    for (int64_t i = 0; i < p->device_count; i++) {
        const device_record *r = &p->device_kept[i];
        timed t = {r->facts, (double)(r->end_ns - r->start_ns)};
        if (r->kind == DEVICE_KERNEL && r->facts && !r->facts->part_count)
            ARENA_PUSH(in->memory, all, count, capacity, t);
    }
    for (int64_t i = 0; i < p->kept_count; i++) {
        const record *r = &p->kept[i];
        const record_facts *f = record_facts_of(r);
        /* Where the device told nothing, launches without times: the rules of compiled text still speak. */
        bool alone = r->kind == RECORD_LAUNCH && !p->device_count;
        timed t = {f, alone ? NAN : (double)(r->end_ns - r->start_ns)};
        if (f && !f->part_count && (r->kind == RECORD_KERNEL || alone)) ARENA_PUSH(in->memory, all, count, capacity, t);
    }
    if (count) qsort(all, (size_t)count, sizeof(*all), compare_timed);
    for (int i = 0, end; i < count; i = end) {
        hint_kernel k = {.facts = all[i].facts, .counters = counters_unknown()};
        for (end = i; end < count && all[end].facts == all[i].facts; end++) k.total_ns += all[end].time_ns;
        k.calls = end - i;
        k.median_ns = all[i + (end - i) / 2].time_ns;
        ARENA_PUSH(in->memory, in->kernels, in->kernel_count, in->kernel_capacity, k);
    }
}

/* Where steps were marked, what is kept is the time of the kept steps. */
static double wall_of(const qn_profile *p)
{
    double steps = 0;
    for (int64_t i = 0; i < p->kept_count; i++)
        if (p->kept[i].kind == RECORD_STEP) steps += (double)(p->kept[i].end_ns - p->kept[i].start_ns);
    if (steps > 0) return steps;
    int64_t end = p->end_ns ? p->end_ns : record_clock_ns();
    return (double)(end - p->start_ns);
}

/* ---- machines ---- */

hint_machine machine_of(qn_context *context, const char *device)
{
    hint_machine m = {0};
    qn_roofline kept;
    int slot;
    if (!context || !device || context_slot(context, device, &slot, NULL) != QN_OK) return m;
    m.gpu = target_is_gpu(device);
    m.units = slot_about(context, slot)->units;
    if (qn_roofline_find(context, device, &kept)) {
        m.copy_gb_per_s = kept.copy_gb_per_s;
        m.read_gb_per_s = kept.read_gb_per_s;
        m.fma_gflop_per_s = kept.fma_f32_gflop_per_s;
        m.tensor_gflop_per_s = kept.dot_tf32_gflop_per_s;
        m.link_gb_per_s = fmin(kept.host_to_device_gb_per_s, kept.device_to_host_gb_per_s);
    }
    return m;
}

static void use_ceilings(const qn_ceilings *from, hint_machine *to)
{
    to->copy_gb_per_s = from->copy_gb_per_s;
    to->read_gb_per_s = from->read_gb_per_s;
    to->fma_gflop_per_s = from->fma_all_gflop_per_s;
}

static hint_counters counters_read(const qn_counters *c)
{
    double read = qn_counters_find(c, "bytes used of sectors read");
    double written = qn_counters_find(c, "bytes used of sectors written");
    return (hint_counters){.occupancy = qn_counters_find(c, "occupancy achieved") / 100,
                           .dram_bytes = qn_counters_find(c, "DRAM read") + qn_counters_find(c, "DRAM written"),
                           .sector_share = fmin(read, written) / 100,
                           .bank_conflicts = qn_counters_find(c, "bank conflicts")};
}

void hints_from_profile(const qn_profile *profile, const qn_hint_options *options, arena *memory, hint_input *out)
{
    const qn_ceilings *ceilings = options ? options->ceilings : NULL;
    double most = -1;
    bool gpu = false;
    *out = (hint_input){.memory = memory, .profile = profile, .wall_ns = wall_of(profile)};
    gather_kernels(profile, out);
    share_out_graphs(profile, out);
    for (int i = 0; i < out->kernel_count; i++) {
        hint_kernel *k = &out->kernels[i];
        k->machine = machine_of(profile->context, k->facts->device);
        k->look = look_again(profile->context, k->facts, memory);
        gpu |= k->machine.gpu;
    }
    for (int i = 0; i < out->kernel_count; i++) {
        hint_kernel *k = &out->kernels[i];
        if (ceilings && k->machine.gpu == gpu) use_ceilings(ceilings, &k->machine);
        double time = isnan(k->total_ns) ? 0 : k->total_ns;
        if (time > most) out->machine = k->machine;
        most = fmax(most, time);
    }
    if (options && options->counters && out->kernel_count == 1)
        out->kernels[0].counters = counters_read(options->counters);
    if (profile->held_samples) {
        out->machine.clock_mhz = profile->held_clock_mhz / profile->held_samples;
        out->machine.promised_clock_mhz = profile->most_clock_mhz;
        out->machine.clock_reason = held_words(profile->held);
    }
}

void hints_of_profile(const qn_profile *profile, const qn_ceilings *ceilings, arena *memory, hint_list *out)
{
    hint_input *in = ARENA_NEW(memory, hint_input);
    hints_from_profile(profile, &(qn_hint_options){.ceilings = ceilings}, memory, in);
    hints_find(in, out);
}
