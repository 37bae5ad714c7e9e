/*
 * Hints of a benchmark's point. In: its variants, timed, and the ceilings of the same run. Out: for each variant the two
 * best hints about its kernel; nothing about those that are as fast as the machine allows.
 * SPDX-License-Identifier: MIT
 */
#include "profile/bench/bench.h"
#include "profile/measure/environment.h"
#include "profile/hints/hints.h"

#include <math.h>
#include <string.h>

static hint_machine machine_of_bench(const bench *b, const bench_variant *v)
{
    hint_machine m = machine_of(b->context, b->device);
    const device_slot *s = &b->context->slots[b->slot];
    device_health health;
    m.copy_gb_per_s = b->arrays.in_cache ? 0 : b->ceilings.copy_gb_per_s; /* the caches may do better than the memory */
    m.read_gb_per_s = b->arrays.in_cache ? 0 : b->ceilings.read_gb_per_s;
    m.fma_gflop_per_s = b->ceilings.fma_all_gflop_per_s;
    m.clock_mhz = v->arm.time.clock_mhz;
    if (s->driver->health && s->driver->health(s->device, &health)) m.promised_clock_mhz = health.most_clock_mhz;
    if (b->held) m.clock_reason = held_words(b->held);
    return m;
}

void variant_hints(const bench *b, const bench_variant *v, arena *memory, hint_list *list)
{
    qn_call *call = v->turns && v->turns[0] ? v->turns[0] : v->call;
    *list = (hint_list){0};
    if (v->status != VARIANT_OK || v->is_function || v->arm.time.sample_count == 0 || !call || !call->bound) return;
    const record_facts *facts = call_facts(call);
    if (!facts) return;
    double median_ns = v->arm.time.median_ns;
    hint_kernel *k = ARENA_NEW(memory, hint_kernel);
    hint_input *in = ARENA_NEW(memory, hint_input);
    *k = (hint_kernel){.facts = facts,
                       .calls = 1,
                       .total_ns = median_ns,
                       .median_ns = median_ns,
                       .look = look_again(b->context, facts, memory),
                       .machine = machine_of_bench(b, v),
                       .counters = counters_unknown()};
    *in = (hint_input){.memory = memory, .wall_ns = median_ns, .kernels = k, .kernel_count = 1, .machine = k->machine};
    hints_find(in, list);
}

void bench_hints(const bench *b, text *out)
{
    for (int i = 0; i < b->variant_count; i++) {
        arena *memory = arena_new();
        hint_list list;
        variant_hints(b, &b->variants[i], memory, &list);
        if (list.count) {
            text_print(out, "hints for %s:\n", b->variants[i].label);
            hints_print(&list, 2, b->options->colour, out);
            text_add(out, "\n");
        }
        arena_free(memory);
    }
}
