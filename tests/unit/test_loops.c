/*
 * Loop programs: their order holds, and each node that it rests on is missed by loops/check.c when it is left out. And the
 * ways that kernels take: how many phases of kernels/ have a loop program, with roles or of a spread, and how many have none.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "test.h"

#include "launch_of.h"

#include "loops/loops.h"
#include "run/run.h"

#include <glob.h>

/* What a program's order rests on. OUT_WAIT and OUT_SEND count where copies leave by themselves (number[1]). */
static bool orders(const loop_node *n)
{
    switch (n->code) {
    case LOOP_WAIT:
    case LOOP_EXPECT:
    case LOOP_BULK_IN:
    case LOOP_RING_NEXT:
    case LOOP_FILLED:
    case LOOP_FILLED_LAST:
    case LOOP_RELEASE:
    case LOOP_TURN:
    case LOOP_TURN_WAIT:
    case LOOP_TURN_END:
    case LOOP_IN_ASK:
    case LOOP_IN_WAIT:
    case LOOP_OUT_END: return true;
    case LOOP_OUT_WAIT: return n->number[1] != 0;
    default: return false;
    }
}

static void collect(loop_node **from, loop_node ***list, int *count, int most)
{
    for (loop_node **n = from; *n; n = &(*n)->next) {
        if (orders(*n) && *count < most) list[(*count)++] = n;
        collect(&(*n)->body, list, count, most);
    }
}

static int left_out, found;

static void check_program(const schedule *s, arena *memory, const char *label)
{
    loop_program program = loops_build(s, memory);
    loop_node **places[64];
    int count = 0;
    text why = {0};
    bool good = loops_check(&program, memory, &why);
    if (!good) printf("%s: %s\n", label, text_get(&why));
    EXPECT(good);
    collect(&program.first, places, &count, COUNT(places));
    EXPECT(count > 6);
    for (int i = 0; i < count; i++) {
        loop_node *kept = *places[i];
        *places[i] = kept->next;
        text_clear(&why);
        bool missed = !loops_check(&program, memory, &why) && why.length;
        if (!missed) printf("%s: nobody misses node %d, %s %d\n", label, i, loop_names[kept->code], kept->number[0]);
        EXPECT(missed);
        left_out++;
        found += missed;
        *places[i] = kept;
    }
    text_free(&why);
}

TEST(each_node_is_missed)
{
    static const struct {
        const char *file, *kernel, *settings;
        bool turns;
    } rows[] = {{QUERN_ROOT "/kernels/matmul.qn", "matmul_tiled", "T=bf16 M=4096 N=4096 K=4096", false},
                {QUERN_ROOT "/kernels/matmul.qn", "matmul_tiled", "T=bf16 M=2048 N=2048 K=512 BM=64 BN=256", false},
                {QUERN_ROOT "/kernels/matmul.qn", "matmul_tiled", "T=f16 M=72 N=264 K=384", false},
                {QUERN_ROOT "/tests/data/fed.qn", "epilogue", "T=bf16 M=66 N=136 K=72", false},
                {QUERN_ROOT "/tests/data/fed.qn", "converted", "M=128 N=64 K=256", false},
                {QUERN_ROOT "/tests/data/fed.qn", "taking_turns", "T=bf16 M=65 N=72 K=136", true}};
    cuda_target target = cuda_target_default(90);
    for (int i = 0; i < COUNT(rows); i++) {
        launch_of l = launch_make(rows[i].file, rows[i].kernel, rows[i].settings, &target);
        const char *why = NULL;
        if (l.kernel)
            l.kernel->knobs[KNOB_TURNS] = rows[i].turns; /* a wish of `tune`, which is no setting of a kernel */
        const sched_machine machine = {target.arch, target.multiprocessors, target.shared_bytes, target.checked};
        const schedule *s = l.kernel ? schedule_phase(l.kernel, 0, &machine, l.memory, &why) : NULL;
        EXPECT(s && s->choice.turns == rows[i].turns);
        if (s) check_program(s, l.memory, rows[i].settings);
        launch_free(&l);
    }
    EXPECT(left_out > 20 && found == left_out);
    printf("note: %d nodes of loop programs left out, %d missed\n", left_out, found);
}

static void add_words(void *user, const char *words, size_t length)
{
    text_add_bytes(user, words, length);
}

/* At the sizes of their benches, in 16 bits where they take any type. */
TEST(which_way_kernels_go)
{
    qn_context *context = NULL;
    qn_error error;
    glob_t found;
    int fed = 0, chained = 0, spread = 0, unfed = 0, barriers = 0, passes = 0;
    text out = {0};
    EXPECT(qn_context_open(&(qn_context_options){.no_cache = true, .threads = 1}, &context, &error) == QN_OK);
    EXPECT(glob(QUERN_ROOT "/kernels/*.qn", 0, NULL, &found) == 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        qn_module *module;
        EXPECT(qn_module_load_file(context, found.gl_pathv[i], &module, &error) == QN_OK);
        for (int k = 0; k < module->kernel_count; k++) {
            static const char *const types[][1] = {{"T=bf16"}};
            qn_show_options options = {.stage = "loops", .arch = "sm_90a", .settings = {types[0], 1}};
            text_clear(&out);
            qn_status status =
                qn_show(context, found.gl_pathv[i], module->kernels[k].name, &options, add_words, &out, &error);
            if (status != QN_OK) options.settings.count = 0;
            if (status != QN_OK) text_clear(&out);
            if (status != QN_OK && qn_show(context, found.gl_pathv[i], module->kernels[k].name, &options, add_words,
                                           &out, &error) != QN_OK)
                continue; /* raw, or with no size of its own */
            const char *words = text_get(&out);
            int here = test_count(words, ": spread over threads"), launches = test_count(words, "launch of phase");
            spread += here;
            barriers += test_count(words, " barrier\n");
            passes += test_count(words, " pass [");
            if (here) EXPECT(strstr(words, "  group {") || strstr(words, "let ") || strstr(words, "store "));
            unfed += test_count(words, "is not fed: ") + test_count(words, "are not chained: ");
            chained += test_count(words, ": chained products");
            fed += launches - here - test_count(words, ": chained products");
        }
        qn_module_free(module);
    }
    globfree(&found);
    text_free(&out);
    qn_context_close(context);
    EXPECT(fed > 0 && spread > 60 && passes > spread && barriers > 5);
    EXPECT(chained <= 1); /* what has no loop program: it may become fewer, not more */
    printf("note: ways: of %d launches of kernels/, all chosen before any text, %d have a loop program (%d fed, %d "
           "spreads; %d of those products), %d "
           "chained products none; %d passes, %d barriers\n",
           fed + chained + spread, fed + spread, fed, spread, unfed, chained, passes, barriers);
}

TEST_MAIN(CASE(each_node_is_missed), CASE(which_way_kernels_go))
