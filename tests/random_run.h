/*
 * Random graphs on devices: drawn, run in a way (a device and a mode), compared, and where they fail made smaller and
 * printed as text. QUERN_GRAPHS=COUNT tries more, QUERN_GRAPH_OPS=60 larger ones, QUERN_GRAPH_SEED=N starts elsewhere;
 * QUERN_GRAPH_SIZES=3 makes what is large small (fuse/sizes.h); QUERN_GRAPH=FILE runs a text everywhere instead and prints what each device gives.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_RANDOM_RUN_H
#define QUERN_TESTS_RANDOM_RUN_H

#include "fuse/sizes.h"
#include "graph_run.h"
#include "share.h"
#include "test.h"

#include <quern/device.h>
#include <setjmp.h>
#include <signal.h>

static qn_context *context;

static inline bool has_device(const char *name)
{
    qn_tape *tape;
    qn_error error;
    if (!context && qn_context_open(NULL, &context, &error)) {
        printf("%s\n", error.message);
        exit(1);
    }
    if (qn_tape_new(context, name, &tape, &error)) return false;
    qn_tape_free(tape);
    return true;
}

typedef struct way {
    const char *device;
    qn_mode mode;
    bool same_bits; /* strict against eager, no interpreter */
} way;

/* One of our own checks ends a run like a wrong value does, so that its graph can be made smaller too. What the run
 * held is lost, and its context with it. */
static sigjmp_buf at_check;

static inline void at_abort(int signal_number)
{
    siglongjmp(at_check, signal_number);
}

static const char *const modes[] = {"fused", "eager", "strict"};

static inline bool passes(const graph_case *c, void *at, text *words)
{
    const way *w = at;
    signal(SIGABRT, at_abort);
    if (sigsetjmp(at_check, 1)) {
        text_add(words, "an internal check failed\n");
        context = NULL;
        has_device("ref");
        return false;
    }
    return w->same_bits ? case_strict(c, context, w->device, words)
                        : case_agrees(c, context, w->device, w->mode, words);
}

static inline void check(const graph_case *c, way w, uint64_t seed)
{
    text words = {0}, smaller = {0};
    if (!passes(c, &w, &words)) {
        printf("seed %llu, %s %s: %s", (unsigned long long)seed, w.device,
               w.same_bits ? "strict against eager" : modes[w.mode], text_get(&words));
        fflush(stdout);
        text_clear(&words);
        case_shrink(c, passes, &w, &smaller, &words);
        printf("%s%s", text_get(&smaller), text_get(&words));
        test_fail(__FILE__, __LINE__, "a random graph");
    }
    text_free(&words);
    text_free(&smaller);
}

/* Graph number i of the run, as its text reads. */
static inline random_graph *draw(int i, int most_ops, dtype type, graph_case *c, uint64_t *seed)
{
    int first = number_from("QUERN_GRAPH_SEED", 1);
    random_options options = {MINIMUM(5, most_ops), most_ops, type, (first + i) % (most_ops > 20 ? 2 : 4) == 0,
                              number_from("QUERN_GRAPH_SIZES", 1) > 1};
    *seed = (uint64_t)(first + i);
    random_graph *r = random_graph_make(*seed, &options);
    *c = case_reread(&(graph_case){r->g, r->roots, r->root_count}, r->memory);
    return r;
}

enum { MOST_FAILURES = 3 };

static inline void run_all(way w, int count, int most_ops, dtype type)
{
    if (environment_get("QUERN_GRAPH")) return;
    if (!has_device(w.device)) {
        printf("note: skipped: random graphs on %s, which is not there\n", w.device);
        return;
    }
    fuse_size_root = number_from("QUERN_GRAPH_SIZES", 1);
    for (int i = 0; i < count && test_failures_of_case < MOST_FAILURES; i++) {
        graph_case c;
        uint64_t seed;
        random_graph *r = draw(i, most_ops, type, &c, &seed);
        check(&c, w, seed);
        random_graph_free(r);
    }
}

static inline void replay(const char *path)
{
    char *data = NULL;
    size_t size = 0;
    qn_error error;
    arena *memory = arena_new();
    graph *g = graph_new(memory);
    node *roots;
    int count;
    if (file_read(path, 1 << 24, &data, &size, &error) || graph_read(g, path, data, size, &roots, &count, &error)) {
        printf("%s\n", error.message);
    } else {
        graph_case c = {g, roots, count};
        static const way ways[] = {{"ref", QN_EAGER, false}, {"ref", QN_FUSED, false}, {"ref", QN_STRICT, true},
                                   {"cpu", QN_EAGER, false}, {"cpu", QN_FUSED, false}, {"cpu", QN_STRICT, true},
                                   {"emu", QN_FUSED, false}, {"emu", QN_STRICT, true}, {"cuda", QN_FUSED, false},
                                   {"cuda", QN_STRICT, true}};
        for (int i = 0; i < COUNT(ways); i++) {
            text words = {0};
            if (!has_device(ways[i].device)) continue;
            bool good = passes(&c, (void *)&ways[i], &words);
            printf("%s %s%s: %s%s", ways[i].device, modes[ways[i].mode], ways[i].same_bits ? " against eager" : "",
                   good ? "good\n" : "", text_get(&words));
            text_free(&words);
        }
    }
    free(data);
    arena_free(memory);
}

#endif
