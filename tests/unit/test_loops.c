/*
 * Loop programs: their order holds, and each node that it rests on is missed by loops/check.c when it is left out. And the
 * ways that kernels take: how many phases of kernels/ have a loop program, with roles or of a spread: none is without.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "test.h"

#include "launch_of.h"
#include "leave_out.h"

#include "run/run.h"

#include <glob.h>

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
                {QUERN_ROOT "/tests/data/fed.qn", "taking_turns", "T=bf16 M=65 N=72 K=136", true},
                {QUERN_ROOT "/kernels/attention.qn", "attention",
                 "T=bf16 B=1 H=1 L=256 S=256 D=64 CAUSAL=true BM=128 BN=16 scale=1", false},
                {QUERN_ROOT "/kernels/attention.qn", "attention", "T=f16 B=1 H=1 L=256 S=256 D=128 scale=1", false}};
    cuda_target target = cuda_target_default(90);
    for (int i = 0; i < COUNT(rows); i++) {
        launch_of l = launch_make(rows[i].file, rows[i].kernel, rows[i].settings, &target);
        const char *why[2];
        if (l.kernel)
            l.kernel->knobs[KNOB_TURNS] = rows[i].turns; /* a wish of `tune`, which is no setting of a kernel */
        const sched_machine machine = {target.arch, target.multiprocessors, target.shared_bytes, target.checked};
        loop_program program = {0};
        bool roles = l.kernel && loops_roles(l.kernel, 0, &machine, l.memory, &program, why);
        EXPECT(roles && (program.chained || program.schedule->choice.turns == rows[i].turns));
        if (roles) leave_out_each(&program, l.memory, rows[i].settings);
        launch_free(&l);
    }
    EXPECT(left_out > 60 && found == left_out);
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
    int fed = 0, chained = 0, spread = 0, unfed = 0, old = 0, barriers = 0, passes = 0;
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
            int pairs = test_count(words, ": chained products"), roles = test_count(words, "  role multiply {");
            chained += pairs;
            fed += launches - here - pairs;
            old += launches - here - roles;
        }
        qn_module_free(module);
    }
    globfree(&found);
    text_free(&out);
    qn_context_close(context);
    EXPECT(fed > 0 && spread > 60 && passes > spread && barriers > 5);
    EXPECT(old == 0 && chained > 0);
    printf("note: ways: of %d launches of kernels/ %d have a loop program (%d fed, %d chained, %d spreads; %d of those "
           "products), %d go the old way; %d passes, %d barriers\n",
           fed + chained + spread, fed + chained + spread - old, fed, chained, spread, unfed, old, passes, barriers);
}

TEST_MAIN(CASE(each_node_is_missed), CASE(which_way_kernels_go))
