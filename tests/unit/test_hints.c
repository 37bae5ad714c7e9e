/*
 * Hints: each rule of hints.def has a case in which it must speak and one in which it must be silent. A rule without
 * both fails the last test.
 * SPDX-License-Identifier: MIT
 */
#include "device/cuda/nvrtc.h"
#include "profile/hints/hints.h"
#include "test.h"

#include <stdlib.h>

static bool spoke[HINT_RULES], kept_silent[HINT_RULES];

/* ---- one kernel ---- */

static const record_facts usual = {.kernel = "k",
                                   .device = "cuda",
                                   .shapes = "x f32[1048576], y f32[1048576]",
                                   .file = "k.qn",
                                   .line = 3,
                                   .programs = 1056,
                                   .read_bytes = 4e6,
                                   .written_bytes = 4e6,
                                   .unfused_bytes = NAN,
                                   .flops = 1e6,
                                   .threads = 256,
                                   .registers = 32,
                                   .blocks_per_unit = 8,
                                   .occupancy = 1,
                                   .waves = 1.0,
                                   .limit = "threads"};
static const hint_machine h200 = {.gpu = true,
                                  .units = 132,
                                  .copy_gb_per_s = 4000,
                                  .read_gb_per_s = 4300,
                                  .fma_gflop_per_s = 55000,
                                  .tensor_gflop_per_s = 400000};

static bool says(const hint_kernel *k, hint_rule rule, double *gain)
{
    arena *memory = arena_new();
    hint_input in = {.memory = memory, .wall_ns = NAN, .kernels = (hint_kernel *)k, .kernel_count = 1};
    hint_list list;
    bool found = false;
    hints_find(&in, &list);
    for (int i = 0; i < list.count; i++) {
        const hint *h = &list.items[i];
        EXPECT(h->what && *h->what && h->advice && *h->advice && h->evidence && *h->evidence);
        EXPECT(h->gain > 0 && h->gain <= 1 && h->line > 0 && h->file);
        if (h->number != rule) continue;
        found = true;
        if (gain) *gain = h->gain;
    }
    arena_free(memory);
    return found;
}

static hint_kernel kernel_with(const record_facts *f, const launch_look *look)
{
    return (hint_kernel){.facts = f,
                         .calls = 1,
                         .total_ns = NAN,
                         .median_ns = NAN,
                         .look = look,
                         .machine = h200,
                         .counters = {NAN, NAN, NAN, NAN}};
}

static void expect_kernel(hint_rule rule, const hint_kernel *loud, const hint_kernel *quiet)
{
    bool speaks = says(loud, rule, NULL), silent = !says(quiet, rule, NULL);
    if (!speaks || !silent) printf("rule %s: speaks %d, silent %d\n", hint_rules[rule].name, speaks, silent);
    EXPECT(speaks && silent);
    spoke[rule] |= speaks;
    kept_silent[rule] |= silent;
}

static void expect_facts(hint_rule rule, const record_facts *loud, const record_facts *quiet)
{
    hint_kernel a = kernel_with(loud, NULL), b = kernel_with(quiet, NULL);
    expect_kernel(rule, &a, &b);
}

TEST(grids)
{
    double gain;
    record_facts loud = usual, quiet = usual;
    loud.waves = 33.0 / (132 * 8);
    expect_facts(HINT_grid_too_small, &loud, &quiet);
    hint_kernel k = kernel_with(&loud, NULL);
    EXPECT(says(&k, HINT_grid_too_small, &gain));
    EXPECT_NEAR(gain, 0.75, 1e-9); /* 33 of 132 multiprocessors work */
    loud = usual;
    loud.waves = 1.25;
    quiet.waves = 2;
    expect_facts(HINT_tail_effect, &loud, &quiet);
    k = kernel_with(&loud, NULL);
    EXPECT(says(&k, HINT_tail_effect, &gain));
    EXPECT_NEAR(gain, 0.375, 1e-9); /* two waves take the time, 1.25 the work */
    quiet.waves = 20.25;
    expect_facts(HINT_tail_effect, &loud, &quiet);
}

TEST(occupancies)
{
    record_facts loud = usual, quiet = usual;
    loud.registers = 168;
    loud.blocks_per_unit = 1;
    loud.occupancy = 0.125;
    loud.waves = 3;
    loud.limit = "registers";
    expect_facts(HINT_occupancy_registers, &loud, &quiet);
    quiet = loud;
    quiet.limit = "shared memory";
    expect_facts(HINT_occupancy_registers, &loud, &quiet);
    quiet.shared_bytes = 120000;
    expect_facts(HINT_occupancy_shared, &quiet, &loud);
    /* Near the roof a low occupancy is enough: nothing is said. */
    hint_kernel a = kernel_with(&loud, NULL), b = a;
    b.total_ns = b.median_ns = 2100;
    expect_kernel(HINT_occupancy_registers, &a, &b);
    /* Counters replace theory. */
    loud.occupancy = 0.49;
    a = kernel_with(&loud, NULL);
    a.counters.occupancy = 0.1;
    b = kernel_with(&loud, NULL);
    expect_kernel(HINT_occupancy_registers, &a, &b);
    loud = usual;
    loud.spill_bytes = 400;
    expect_facts(HINT_spills, &loud, &usual);
}

TEST(accesses)
{
    launch_access strided = {ACCESS_LOAD, "x", 5, 4, 4, 128, 32, 32, 4, 1, 1e6, 0},
                  straight = {ACCESS_LOAD, "x", 5, 16, 16, 4, 128, 16, 16, 1, 1e6, 0},
                  narrow = {ACCESS_STORE, "y", 6, 2, 16, 2, 256, 16, 16, 1, 1e6, 0},
                  conflict = {ACCESS_TILE, "t", 7, 4, 4, 128, 32, 0, 0, 32, 1e6, 0},
                  free_tile = {ACCESS_TILE, "t", 7, 4, 4, 4, 32, 0, 0, 1, 1e6, 0},
                  crowd = {ACCESS_ATOMIC, "sum", 8, 4, 4, 0, 1, 1, 1, 1, 1e6, 1e6},
                  few = {ACCESS_ATOMIC, "sum", 8, 4, 4, 0, 1, 1, 1, 1, 1000, 1000};
    const struct {
        hint_rule rule;
        launch_access loud, quiet;
    } cases[] = {{HINT_uncoalesced, strided, straight},
                 {HINT_narrow, narrow, straight},
                 {HINT_bank_conflicts, conflict, free_tile},
                 {HINT_atomics, crowd, few}};
    for (int i = 0; i < COUNT(cases); i++) {
        launch_access loud = cases[i].loud, quiet = cases[i].quiet;
        launch_look a = {.accesses = &loud, .access_count = 1}, b = {.accesses = &quiet, .access_count = 1};
        hint_kernel k = kernel_with(&usual, &a), other = kernel_with(&usual, &b);
        expect_kernel(cases[i].rule, &k, &other);
    }
    launch_look look = {.accesses = &strided, .access_count = 1};
    hint_kernel k = kernel_with(&usual, &look);
    double gain;
    EXPECT(says(&k, HINT_uncoalesced, &gain));
    EXPECT_NEAR(gain, 0.875, 1e-9); /* 28 of 32 sectors for nothing */
    /* A part of a large array, 128 bytes apart: the roof is that of the part, or the time would look like the roof's. */
    record_facts large = usual;
    large.read_bytes = 5.4e8;
    look.touched_bytes = 3.3e7;
    hint_kernel timed = kernel_with(&large, &look);
    timed.total_ns = timed.median_ns = 87800;
    EXPECT(says(&timed, HINT_uncoalesced, NULL) && !says(&timed, HINT_low_intensity, NULL));
    k.counters.sector_share = 0.5;
    EXPECT(says(&k, HINT_uncoalesced, &gain));
    EXPECT_NEAR(gain, 0.5, 1e-9);
}

TEST(roofs)
{
    hint_kernel near = kernel_with(&usual, NULL), far;
    near.total_ns = near.median_ns = 2200; /* of 2000 */
    far = near;
    far.total_ns = far.median_ns = 20000;
    expect_kernel(HINT_low_intensity, &near, &far);
    launch_look look = {.team = "the whole chip on one row", .loaded_bytes = 1e9};
    hint_kernel slow = kernel_with(&usual, &look), quick = slow;
    slow.total_ns = slow.median_ns = 2e6;
    quick.total_ns = quick.median_ns = 4000;
    expect_kernel(HINT_far_below_roof, &slow, &quick);
    /* No hint promises more than the roof leaves. */
    record_facts small = usual;
    small.waves = 1.0 / 1056;
    hint_kernel k = kernel_with(&small, NULL);
    double gain;
    k.total_ns = k.median_ns = 4000;
    EXPECT(says(&k, HINT_grid_too_small, &gain));
    EXPECT_NEAR(gain, 0.5, 1e-9);
    record_facts product = usual;
    product.flops = 2e11;
    product.read_bytes = 64e6;
    launch_look full = {.full_product_line = 9, .product_flops = 2e11}, rounded = {.product_flops = 2e11},
                rough = {.product_flops = 2e11, .rough_array = "a", .rough_line = 9, .rough_stride_bytes = 4004};
    hint_kernel a = kernel_with(&product, &full), b = kernel_with(&product, &rounded),
                c = kernel_with(&product, &rough);
    expect_kernel(HINT_tf32_not_allowed, &a, &b);
    expect_kernel(HINT_stride_not_16, &c, &b);
}

/* ---- a run ---- */

typedef struct run {
    qn_profile profile;
    record records[512];
    device_record device[512];
    sum_entry sums[8];
} run;

static void run_open(run *r)
{
    memset(r, 0, sizeof(*r));
    r->profile.kept = r->records;
    r->profile.device_kept = r->device;
    r->profile.sums = r->sums;
    r->profile.start_ns = 1000000;
    r->profile.end_ns = 2000000;
}

static void add(run *r, record_kind kind, int64_t from_us, int64_t length_us, int64_t a, int64_t b)
{
    r->records[r->profile.kept_count++] = (record){.start_ns = 1000000 + from_us * 1000,
                                                   .end_ns = 1000000 + (from_us + length_us) * 1000,
                                                   .name = record_kinds[kind].text,
                                                   .kind = (uint16_t)kind,
                                                   .a = a,
                                                   .b = b};
}

static void add_device(run *r, const record_facts *f, int64_t from_ns, int64_t length_ns, uint32_t graph)
{
    r->device[r->profile.device_count++] = (device_record){.start_ns = 1000000 + from_ns,
                                                           .end_ns = 1000000 + from_ns + length_ns,
                                                           .name = f->kernel,
                                                           .facts = f,
                                                           .graph = graph,
                                                           .kind = DEVICE_KERNEL};
}

static bool named; /* the last hint that run_says found names a kernel */

static bool run_says(run *r, hint_rule rule, const hint_machine *machine, double *gain)
{
    arena *memory = arena_new();
    hint_input in;
    hint_list list;
    bool found = false;
    hints_from_profile(&r->profile, NULL, memory, &in);
    if (machine) in.machine = *machine;
    for (int i = 0; machine && i < in.kernel_count; i++) in.kernels[i].machine = *machine;
    hints_find(&in, &list);
    for (int i = 0; i < list.count; i++) {
        EXPECT(i == 0 || list.items[i - 1].gain_ns >= list.items[i].gain_ns);
        if (list.items[i].number != rule) continue;
        found = true;
        named = list.items[i].kernel != NULL;
        if (gain) *gain = list.items[i].gain;
    }
    text out = {0};
    hints_print(&list, 0, false, &out);
    EXPECT(!found || strstr(text_get(&out), hint_rules[rule].title));
    text_free(&out);
    arena_free(memory);
    return found;
}

static void expect_run(hint_rule rule, run *loud, run *quiet, const hint_machine *machine)
{
    bool speaks = run_says(loud, rule, machine, NULL), silent = !run_says(quiet, rule, machine, NULL);
    if (!speaks || !silent) printf("rule %s: speaks %d, silent %d\n", hint_rules[rule].name, speaks, silent);
    EXPECT(speaks && silent);
    spoke[rule] |= speaks;
    kept_silent[rule] |= silent;
}

static run loud, quiet;

TEST(launches_and_waits)
{
    double gain;
    run_open(&loud);
    run_open(&quiet);
    for (int i = 0; i < 100; i++) {
        add_device(&loud, &usual, i * 10000, 2000, 0); /* 2 us, then nothing for 8 */
        add_device(&quiet, &usual, i * 10000, 2000, 7);
    }
    expect_run(HINT_launch_bound, &loud, &quiet, NULL);
    EXPECT(run_says(&loud, HINT_launch_bound, NULL, &gain));
    EXPECT_NEAR(gain, 99 * 7000 / 1e6, 1e-6);
    run_open(&quiet);
    for (int i = 0; i < 100; i++) add_device(&quiet, &usual, i * 10000, 9500, 0);
    expect_run(HINT_launch_bound, &loud, &quiet, NULL);
    run_open(&loud);
    run_open(&quiet);
    for (int i = 0; i < 20; i++) {
        add_device(&loud, &usual, i * 50000, 20000, 0);
        add(&loud, RECORD_WAIT, i * 50 + 5, 16, 0, 0); /* ends after the kernel; 29 us later there is new work */
        add_device(&quiet, &usual, i * 50000, 49000, 0);
        add(&quiet, RECORD_WAIT, i * 50 + 5, 16, 0, 0); /* the device has more to do */
    }
    add(&loud, RECORD_RANGE, 0, 1000, 0, 0);
    loud.records[loud.profile.kept_count - 1].name = "print loss";
    expect_run(HINT_host_waits, &loud, &quiet, NULL);
    EXPECT(run_says(&loud, HINT_host_waits, NULL, &gain));
    EXPECT_NEAR(gain, 19 * 29 / 1000.0, 1e-6);
}

TEST(fusion_and_copies)
{
    record_facts first = usual, second = usual, other = usual;
    first.kernel = "add_one";
    second.kernel = "gelu";
    other.kernel = "sum";
    other.shapes = "a f32[7], b f32[1]";
    run_open(&loud);
    run_open(&quiet);
    for (int i = 0; i < 40; i++) {
        add(&loud, RECORD_KERNEL, i * 20, 18, (intptr_t)(i % 2 ? &second : &first), 0);
        add(&quiet, RECORD_KERNEL, i * 20, 18, (intptr_t)(i % 2 ? &other : &first), 0);
    }
    expect_run(HINT_missed_fusion, &loud, &quiet, NULL);
    /* A product, and what the tensor level made, one after the other in run after run: nothing to fuse. */
    record_facts product = second, made = first, made_too = second;
    product.product = true;
    made.ops = "add";
    made_too.ops = "gelu";
    const record_facts *const silent[][2] = {
        {&first, &product}, {&product, &second}, {&made, &made_too}, {&made, &second}};
    for (int kind = 0; kind < 4; kind++) {
        run_open(&quiet);
        for (int i = 0; i < 40; i++) add(&quiet, RECORD_KERNEL, i * 20, 18, (intptr_t)silent[kind][i % 2], 0);
        expect_run(HINT_missed_fusion, &loud, &quiet, NULL);
    }
    /* Three in turn, run after run: what one run ends with and the next begins with is no pair. */
    record_facts middle = other, last = usual;
    middle.kernel = "middle";
    last.kernel = "last";
    run_open(&quiet);
    for (int i = 0; i < 39; i++) {
        const record_facts *const turns[] = {&first, &middle, &last};
        add(&quiet, RECORD_KERNEL, i * 20, 18, (intptr_t)turns[i % 3], 0);
    }
    expect_run(HINT_missed_fusion, &loud, &quiet, NULL);
    double gain;
    EXPECT(run_says(&loud, HINT_missed_fusion, NULL, &gain));
    /* 20 pairs of 36 us of a millisecond; 8.4 of their 16 MB pass between them */
    EXPECT_NEAR(gain, 20 * 36 / 1000.0 * (2 * 4194304.0 / 16e6), 1e-3);
    run_open(&loud);
    run_open(&quiet);
    for (int i = 0; i < 10; i++) {
        add(&loud, RECORD_COPY, i * 90, 40, 400000, 0);
        add(&loud, RECORD_LAUNCH, i * 90 + 40, 10, (intptr_t)&usual, 0);
        add(&loud, RECORD_COPY, i * 90 + 50, 20, 400000, 1);
        add(&quiet, RECORD_LAUNCH, i * 90 + 40, 10, (intptr_t)&usual, 0);
    }
    add(&quiet, RECORD_COPY, 0, 30, 400000, 0);
    add(&quiet, RECORD_COPY, 950, 30, 400000, 1);
    expect_run(HINT_avoidable_copies, &loud, &quiet, NULL);
    run_open(&loud);
    run_open(&quiet);
    add(&loud, RECORD_COPY, 0, 400, 2 << 20, 0); /* 5 GB/s */
    add(&quiet, RECORD_COPY, 0, 80, 2 << 20, 0); /* 26 */
    expect_run(HINT_pageable, &loud, &quiet, NULL);
}

TEST(graphs)
{
    record_facts small = usual, large = usual, whole = usual;
    small.waves = 4.0 / 1056; /* four blocks */
    small.kernel = "small";
    large.read_bytes = 12e6;
    const record_facts *parts[] = {&small, &large};
    whole.parts = parts;
    whole.part_count = 2;
    whole.read_bytes = 16e6;
    whole.written_bytes = 8e6;
    run_open(&loud);
    for (int i = 0; i < 10; i++) {
        add_device(&loud, &whole, i * 100000, 90000, 3);
        loud.device[i].kind = DEVICE_GRAPH;
    }
    double gain;
    EXPECT(run_says(&loud, HINT_grid_too_small, &h200, &gain)); /* a third of the time, by bytes */
    EXPECT_NEAR(gain, 1 - 4 / 132.0, 1e-9);
}

TEST(clocks_and_compiles)
{
    hint_machine held = h200, free_clock = h200;
    held.promised_clock_mhz = free_clock.promised_clock_mhz = 1980;
    held.clock_mhz = 1400;
    held.clock_reason = "power cap";
    free_clock.clock_mhz = 1965;
    run_open(&loud);
    for (int i = 0; i < 10; i++) add_device(&loud, &usual, i * 100000, 95000, 0);
    spoke[HINT_power_capped] = run_says(&loud, HINT_power_capped, &held, NULL);
    kept_silent[HINT_power_capped] = !run_says(&loud, HINT_power_capped, &free_clock, NULL);
    EXPECT(spoke[HINT_power_capped] && kept_silent[HINT_power_capped]);
    run_open(&loud);
    run_open(&quiet);
    loud.sums[0] =
        (sum_entry){.sum = {.name = "k", .kind = "compile", .calls = 8, .total_ns = 400000}, .kind = RECORD_COMPILE};
    quiet.sums[0] = loud.sums[0];
    quiet.sums[0].sum.calls = 1;
    loud.profile.sum_count = quiet.profile.sum_count = 1;
    expect_run(HINT_recompiles, &loud, &quiet, NULL);
    run_open(&loud);
    loud.profile.sum_count = 1;
    loud.sums[0] = quiet.sums[0];
    quiet.sums[0].kind = RECORD_CACHE;
    expect_run(HINT_cold_cache, &loud, &quiet, NULL);
}

TEST(threads)
{
    record_facts one = usual, many = usual;
    one.device = many.device = "cpu";
    one.programs = 1;
    const hint_machine cpu = {.units = 4};
    run_open(&loud);
    run_open(&quiet);
    for (int i = 0; i < 10; i++) {
        add(&loud, RECORD_KERNEL, i * 100, 90, (intptr_t)&one, 0);
        add(&quiet, RECORD_KERNEL, i * 100, 90, (intptr_t)&many, 0);
        for (int t = 0; t < 4; t++) add(&quiet, RECORD_WORK, i * 100, 85, 100, t);
    }
    expect_run(HINT_threads_idle, &loud, &quiet, &cpu);
    EXPECT(run_says(&loud, HINT_threads_idle, &cpu, NULL) && named);
    /* A kernel of one program that is hardly there is not to blame for threads that others held. */
    run_open(&loud);
    add(&loud, RECORD_KERNEL, 0, 1, (intptr_t)&one, 0);
    for (int i = 1; i < 10; i++) {
        add(&loud, RECORD_KERNEL, i * 100, 90, (intptr_t)&many, 0);
        for (int t = 0; t < 2; t++) add(&loud, RECORD_WORK, i * 100, 85, 100, t);
    }
    EXPECT(run_says(&loud, HINT_threads_idle, &cpu, NULL) && !named);
}

/* ---- kernels that are only compiled ---- */

static void to_text(void *user, const char *words, size_t length)
{
    text_add_bytes(user, words, length);
}

static qn_context *context;

static bool compiled_says(hint_rule rule, const char *file, const char *kernel, const char *settings)
{
    qn_error error;
    const char *items[8];
    char words[200], path[512];
    int count = 0;
    text out = {0};
    snprintf(words, sizeof(words), "%s", settings);
    snprintf(path, sizeof(path), QUERN_ROOT "/%s", file);
    for (char *at = strtok(words, " "); at; at = strtok(NULL, " ")) items[count++] = at;
    qn_show_options options = {.arch = "sm_90a", .settings = {items, count}};
    qn_hint_options format = {.json = true};
    qn_status status = qn_show_hints(context, path, kernel, &options, &format, to_text, &out, &error);
    if (status != QN_OK) printf("%s %s: %s\n", file, kernel, error.message);
    EXPECT(status == QN_OK);
    char wanted[100];
    snprintf(wanted, sizeof(wanted), "\"rule\": \"%s\"", hint_rules[rule].name);
    bool found = strstr(text_get(&out), wanted);
    text_free(&out);
    return found;
}

TEST(compiled_kernels)
{
    qn_error error;
    nvrtc *compiler = nvrtc_new();
    bool usage = nvrtc_ready(compiler, &error) == QN_OK; /* registers and occupancy are known */
    nvrtc_free(compiler);
    if (!usage) printf("SKIPPED: rules about registers and waves: %s\n", error.message);
    EXPECT(qn_context_open(&(qn_context_options){.no_cache = true, .threads = 1, .allow_raw = true}, &context,
                           &error) == QN_OK);
    const char *planted = "bench/hints.qn", *more = "tests/hints/planted.qn", *quiet_file = "tests/hints/quiet.qn";
    const struct {
        hint_rule rule;
        bool needs_usage;
        const char *file, *kernel, *settings, *quiet_kernel, *quiet_settings;
    } cases[] = {
        {HINT_uncoalesced, false, planted, "uncoalesced", "n=4194304 m=134217728", "add_one", "n=4194304"},
        {HINT_bank_conflicts, false, planted, "bank_conflicts", "n=65536", "scan", "n=65536"},
        {HINT_spills, true, planted, "spills", "n=4194304", "add_one", "n=4194304"},
        {HINT_grid_too_small, true, planted, "tiny_grid", "n=4194304", "add_one", "n=268435456"},
        {HINT_tail_effect, true, planted, "tail", "n=495", "rows", "n=12672"},
        {HINT_occupancy_shared, true, planted, "shared_occupancy", "n=1024 warps=4", "product", "M=4096 N=4096 K=4096"},
        {HINT_occupancy_registers, true, planted, "register_occupancy", "n=4194304", "add_one", "n=4194304"},
        {HINT_atomics, false, planted, "atomics", "n=4194304", "total", "n=4194304"},
        {HINT_narrow, false, more, "narrow", "rows=8192", "add_one", "n=4194304"},
        {HINT_tf32_not_allowed, false, more, "product", "T=f32 M=4096 N=4096 K=4096", "product",
         "M=4096 N=4096 K=4096"},
        {HINT_stride_not_16, false, more, "product", "T=bf16 M=4095 N=4095 K=4095", "product", "M=4096 N=4096 K=4096"},
    };
    for (int i = 0; i < COUNT(cases); i++) {
        if (cases[i].needs_usage && !usage) continue;
        bool speaks = compiled_says(cases[i].rule, cases[i].file, cases[i].kernel, cases[i].settings);
        bool silent = !compiled_says(cases[i].rule, quiet_file, cases[i].quiet_kernel, cases[i].quiet_settings);
        if (!speaks || !silent) printf("%s: speaks %d, silent %d\n", cases[i].kernel, speaks, silent);
        EXPECT(speaks && silent);
    }
    qn_show_options sizes = {.arch = "sm_90a"};
    EXPECT(qn_show_hints(context, QUERN_ROOT "/bench/hints.qn", "atomics", &sizes, NULL, to_text, NULL, &error) ==
           QN_BAD_CALL);
    EXPECT(strstr(error.message, "--set"));
    sizes.stage = "hints";
    EXPECT(qn_show(context, QUERN_ROOT "/bench/hints.qn", "atomics", &sizes, to_text, NULL, &error) == QN_BAD_CALL);
    qn_context_close(context);
}

/* ---- the API ---- */

TEST(of_a_profile)
{
    qn_error error;
    qn_profile *p;
    text out = {0};
    EXPECT(qn_profile_start(NULL, NULL, &p, &error) == QN_OK);
    EXPECT(qn_profile_stop(p, &error) == QN_OK);
    EXPECT(qn_profile_hints(p, NULL, to_text, &out, &error) == QN_OK);
    EXPECT_TEXT(text_get(&out), ""); /* nothing to say: nothing is said */
    EXPECT(qn_profile_hints(p, &(qn_hint_options){.json = true}, to_text, &out, &error) == QN_OK);
    EXPECT_TEXT(text_get(&out), "[]\n");
    EXPECT(qn_profile_hints(NULL, NULL, to_text, &out, &error) == QN_BAD_CALL);
    text_free(&out);
    qn_profile_free(p);
}

TEST(shapes_as_words)
{
    shape_words w[4];
    EXPECT(shapes_read("x f32[3, 4], y bf16[4, 3] by [1, 4], s i64[]", w, 4) == 3);
    EXPECT(w[0].view.rank == 2 && w[0].view.strides[0] == 4 && w[0].view.strides[1] == 1 && shape_bytes(&w[0]) == 48);
    EXPECT(w[1].view.elem == DT_BF16 && w[1].view.strides[0] == 1 && w[1].view.strides[1] == 4);
    EXPECT(w[2].view.rank == 0 && shape_bytes(&w[2]) == 8);
    EXPECT(shapes_read("x f32[3, ", w, 4) == 0 && shapes_read(NULL, w, 4) == 0 && shapes_read("nonsense", w, 4) == 0);
}

/* The facts of a launch are enough to lay its text out again: here on emu, which runs the GPU's text. */
TEST(a_kernel_that_ran)
{
    static float x[64 * 2048], y[2048];
    const int64_t m = 64 * 2048, n = 2048;
    qn_error error;
    qn_module *module;
    qn_call *call;
    qn_profile *p;
    text out = {0};
    EXPECT(qn_context_open(&(qn_context_options){.no_cache = true, .allow_raw = true}, &context, &error) == QN_OK);
    EXPECT(qn_module_load_file(context, QUERN_ROOT "/bench/hints.qn", &module, &error) == QN_OK);
    EXPECT(qn_call_new(module, "uncoalesced", &call, &error) == QN_OK);
    EXPECT(qn_call_set_memory(call, "x", x, QN_F32, 1, &m, NULL, &error) == QN_OK);
    EXPECT(qn_call_set_memory(call, "y", y, QN_F32, 1, &n, NULL, &error) == QN_OK);
    EXPECT(qn_call_run(call, "emu", &error) == QN_OK);
    EXPECT(qn_profile_start(context, NULL, &p, &error) == QN_OK);
    for (int i = 0; i < 20; i++) EXPECT(qn_call_run(call, "emu", &error) == QN_OK);
    EXPECT(qn_profile_stop(p, &error) == QN_OK);
    EXPECT(qn_profile_hints(p, NULL, to_text, &out, &error) == QN_OK);
    if (!strstr(text_get(&out), "touches 32 sectors of 32 bytes where 4 would do"))
        printf("hints:\n%s\n", text_get(&out));
    EXPECT(strstr(text_get(&out), "touches 32 sectors of"));
    text_free(&out);
    qn_profile_free(p);
    qn_call_free(call);
    qn_module_free(module);
    qn_context_close(context);
}

TEST(every_rule_was_tried)
{
    for (int i = 0; i < HINT_RULES; i++) {
        if (!spoke[i] || !kept_silent[i]) printf("rule %s has no two cases\n", hint_rules[i].name);
        EXPECT(spoke[i] && kept_silent[i]);
    }
}

TEST_MAIN(CASE(grids), CASE(occupancies), CASE(accesses), CASE(roofs), CASE(launches_and_waits),
          CASE(fusion_and_copies), CASE(graphs), CASE(clocks_and_compiles), CASE(threads), CASE(compiled_kernels),
          CASE(of_a_profile), CASE(shapes_as_words), CASE(a_kernel_that_ran), CASE(every_rule_was_tried))
