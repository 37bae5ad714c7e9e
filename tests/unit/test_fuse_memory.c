/*
 * The memory plan of fusion: random plans are run over labelled memory, where every read must find the value that was
 * written for it; in-place reuse, assignments and the table are looked at one by one.
 * SPDX-License-Identifier: MIT
 */
#include "../test.h"
#include "fuse/memory.h"

#include <stdlib.h>

typedef struct bed {
    arena *memory;
    graph *g;
    fuse_plan plan;
    node inputs[64][4]; /* by kernel as it was added: what it reads, before arguments are merged */
    int input_count[64];
    node wanted[64];
    int wanted_count;
    fuse_assign assigns[16];
    int assign_count;
} bed;

static bed bed_new(void)
{
    bed b = {.memory = arena_new()};
    b.g = graph_new(b.memory);
    b.plan = (fuse_plan){.memory = b.memory, .graph = b.g};
    b.plan.kernels = ARENA_ARRAY(b.memory, fuse_kernel, 64);
    return b;
}

static node leaf(bed *b, int64_t count)
{
    return graph_leaf(b->g, DT_F32, &(shape){1, {count}}, NULL, 0, arena_alloc(b->memory, 1));
}

/* A kernel that adds its inputs element by element; shift: it reads input 0 from element 1 on. */
static tile_kernel *sum_text(bed *b, int inputs, int shift)
{
    text words = {0};
    text_add(&words, "kernel sum\n");
    for (int i = 0; i < inputs; i++) text_print(&words, "  param x%d in f32 [n]\n", i);
    text_add(&words, "  param y out f32 [n]\n  param n extent i64\nhead {\n  %1 = arg n : i64\n  launch 0 %1\n}\n"
                     "phase {\n  %2 = program 0 : i64\n  %3 = const 1 : i64\n");
    text_print(&words, "  %%4 = const %d : i64\n  %%5 = add %%2, %%4 : i64\n", shift);
    for (int i = 0; i < inputs; i++)
        text_print(&words, "  %%%d = load x%d[%s:%%3 @0] : f32[1]\n", 10 + i, i, i || !shift ? "%2" : "%5");
    int sum = 10;
    for (int i = 1; i < inputs; i++, sum = 20 + i - 1)
        text_print(&words, "  %%%d = add %%%d, %%%d : f32[1]\n", 20 + i, sum, 10 + i);
    text_print(&words, "  store y[%%2:%%3 @0] = %%%d\n}\n", sum);
    tile_kernel *k = NULL;
    qn_error error = {0};
    EXPECT(tile_read(b->memory, "test", text_get(&words), words.length, &k, &error) == QN_OK);
    if (!k) printf("%s\n%s", error.message, text_get(&words));
    text_free(&words);
    return k;
}

static node sum_of(bed *b, const node *inputs, int count, int shift)
{
    node n = inputs[0];
    for (int i = 1; i < count; i++) n = graph_binary(b->g, OP_ADD, n, inputs[i]);
    n = graph_same(b->g, GRAPH_AGAIN, n, b->plan.kernel_count + 1); /* a node of its own for each kernel */
    fuse_kernel *k = &b->plan.kernels[b->plan.kernel_count];
    int64_t extent = graph_get(b->g, n)->shape.extents[0];
    *k = (fuse_kernel){
        .name = "sum", .kernel = sum_text(b, count, shift), .argument_count = count + 1, .write_count = 1};
    k->arguments = ARENA_ARRAY(b->memory, fuse_argument, count + 1);
    k->writes = ARENA_ARRAY(b->memory, node, 1);
    k->writes[0] = n;
    for (int i = 0; i <= count; i++)
        k->arguments[i] =
            (fuse_argument){.base = i < count ? inputs[i] : n, .rank = 1, .extents = {extent}, .strides = {1}};
    for (int i = 0; i < count; i++) b->inputs[b->plan.kernel_count][i] = inputs[i];
    b->input_count[b->plan.kernel_count] = count;
    b->plan.kernel_count++;
    return n;
}

static void plan_memory(bed *b)
{
    fuse_memory(&b->plan, b->wanted, b->wanted_count, b->assigns, b->assign_count);
}

/* ---- labelled memory ---- */

typedef struct labels {
    node *workspace; /* by 4 bytes */
    node *own[512];  /* by node: leaves and results */
} labels;

static node *place_of(bed *b, labels *l, node n)
{
    while (b->plan.places[n].same_as) n = b->plan.places[n].same_as;
    if (graph_get(b->g, n)->code == GRAPH_LEAF || b->plan.places[n].offset_bytes < 0) {
        if (!l->own[n]) {
            l->own[n] = calloc((size_t)graph_size_bytes(b->g, n) / 4 + 1, sizeof(node));
            for (int64_t i = 0; i < graph_size_bytes(b->g, n) / 4; i++) l->own[n][i] = n;
        }
        return l->own[n];
    }
    EXPECT(b->plan.places[n].offset_bytes + graph_size_bytes(b->g, n) <= b->plan.workspace_bytes);
    EXPECT(b->plan.places[n].offset_bytes % 64 == 0);
    return l->workspace + b->plan.places[n].offset_bytes / 4;
}

static bool holds(bed *b, labels *l, node n)
{
    const node *at = place_of(b, l, n);
    for (int64_t i = 0; i < graph_size_bytes(b->g, n) / 4; i++)
        if (at[i] != n) return false;
    return true;
}

/* Runs the plan; every kernel is found by what it wrote when it was added. */
static bool run_labels(bed *b, const node *wrote)
{
    labels l = {.workspace = calloc((size_t)b->plan.workspace_bytes / 4 + 1, sizeof(node))};
    bool good = true;
    for (int i = 0; i < b->plan.kernel_count; i++) {
        const fuse_kernel *k = &b->plan.kernels[i];
        if (!k->write_count) { /* a copy to a home */
            good = good && holds(b, &l, k->arguments[0].base);
            node home = k->arguments[1].base, *to = place_of(b, &l, home);
            for (int64_t e = 0; e < graph_size_bytes(b->g, home) / 4; e++) to[e] = k->arguments[0].base;
            continue;
        }
        int original = 0;
        while (wrote[original] != k->writes[0]) original++;
        for (int r = 0; r < b->input_count[original]; r++) good = good && holds(b, &l, b->inputs[original][r]);
        node *to = place_of(b, &l, k->writes[0]);
        for (int64_t e = 0; e < graph_size_bytes(b->g, k->writes[0]) / 4; e++) to[e] = k->writes[0];
    }
    for (int i = 0; i < b->wanted_count; i++) good = good && holds(b, &l, b->wanted[i]);
    for (int i = 0; i < b->assign_count; i++)
        good = good && (place_of(b, &l, b->assigns[i].home)[0] == b->assigns[i].from);
    free(l.workspace);
    for (int i = 0; i < 512; i++) free(l.own[i]);
    return good;
}

TEST(random_plans)
{
    unsigned state = 12345;
    int in_place = 0, homes = 0, copies = 0;
    for (int round = 0; round < 400; round++) {
        bed b = bed_new();
        node nodes[64], wrote[64];
        int count = 0;
        for (int i = 0; i < 4; i++) nodes[count++] = leaf(&b, 64 + 100 * (i & 1));
        int kernels = 3 + (int)(rand_r(&state) % 14);
        for (int i = 0; i < kernels; i++) {
            node first = nodes[rand_r(&state) % (unsigned)count], inputs[3] = {first};
            int inputs_count = 1, wish = 1 + (int)(rand_r(&state) % 3);
            for (int n = 0; n < count && inputs_count < wish; n++) {
                node other = nodes[rand_r(&state) % (unsigned)count];
                bool used = !shape_same(&graph_get(b.g, other)->shape, &graph_get(b.g, first)->shape);
                for (int j = 0; j < inputs_count; j++) used |= inputs[j] == other;
                if (!used) inputs[inputs_count++] = other;
            }
            nodes[count++] = wrote[i] = sum_of(&b, inputs, inputs_count, rand_r(&state) % 4 == 0);
        }
        for (int i = 0; i < kernels; i++)
            if (rand_r(&state) % 5 == 0) b.wanted[b.wanted_count++] = wrote[i];
        for (int h = 0; h < 4; h++) {
            node from = wrote[rand_r(&state) % (unsigned)kernels];
            if (shape_same(&graph_get(b.g, from)->shape, &graph_get(b.g, nodes[h])->shape))
                b.assigns[b.assign_count++] = (fuse_assign){nodes[h], from};
        }
        plan_memory(&b);
        if (!run_labels(&b, wrote)) printf("round %d\n", round);
        EXPECT(run_labels(&b, wrote));
        for (int i = 0; i < kernels; i++) {
            node same = b.plan.places[wrote[i]].same_as;
            in_place += same && graph_get(b.g, same)->code != GRAPH_LEAF;
            homes += same && graph_get(b.g, same)->code == GRAPH_LEAF;
        }
        copies += b.plan.kernel_count - kernels;
        for (int i = 0; i < b.plan.kernel_count; i++) EXPECT(tile_verify(b.plan.kernels[i].kernel, NULL) == QN_OK);
        arena_free(b.memory);
    }
    EXPECT(in_place > 100 && homes > 100 && copies > 100);
}

TEST(chain_reuses_memory)
{
    bed b = bed_new();
    node x = leaf(&b, 1000), wrote[8];
    for (int i = 0; i < 8; i++) wrote[i] = x = sum_of(&b, (node[]){x, i ? wrote[0] : x}, i > 1 ? 2 : 1, 0);
    b.wanted[b.wanted_count++] = x;
    plan_memory(&b);
    EXPECT(b.plan.workspace_bytes == 2 * 4096); /* the first value, and one that is written over and over */
    EXPECT(b.plan.peak_bytes == 2 * 4096 + 4000);
    EXPECT(b.plan.places[x].offset_bytes == -1);
    text t = {0};
    fuse_print_memory(&b.plan, &t);
    EXPECT(strstr(text_get(&t), "workspace 8192 bytes, peak 12192 bytes"));
    EXPECT(strstr(text_get(&t), "in place of"));
    EXPECT(strstr(text_get(&t), "a result"));
    text_free(&t);
    arena_free(b.memory);
}

TEST(assignments)
{
    /* The new weight is computed first, an older kernel order would read it too late: reads of the old value move up. */
    bed b = bed_new();
    node w = leaf(&b, 100), step = leaf(&b, 100), wrote[2];
    wrote[0] = sum_of(&b, (node[]){w, step}, 2, 0);
    wrote[1] = sum_of(&b, (node[]){w}, 1, 0);
    b.wanted[b.wanted_count++] = wrote[1];
    b.assigns[b.assign_count++] = (fuse_assign){w, wrote[0]};
    plan_memory(&b);
    EXPECT(b.plan.kernel_count == 2);
    EXPECT(b.plan.kernels[1].writes[0] == wrote[0]);
    EXPECT(b.plan.places[wrote[0]].same_as == w);
    EXPECT(b.plan.kernels[1].argument_count == 2);
    EXPECT(fuse_argument_kind(b.plan.kernels[1].kernel, 0) == PARAM_INOUT);
    EXPECT(b.plan.workspace_bytes == 0);
    arena_free(b.memory);

    /* It reads its neighbours: not in place, a copy at the end. */
    b = bed_new();
    w = leaf(&b, 100);
    node next = sum_of(&b, (node[]){w}, 1, 1);
    b.assigns[b.assign_count++] = (fuse_assign){w, next};
    plan_memory(&b);
    EXPECT(b.plan.kernel_count == 2);
    EXPECT_TEXT(b.plan.kernels[1].name, "copy");
    EXPECT(b.plan.places[next].same_as == 0);
    arena_free(b.memory);

    /* The new value is read by what the old one is needed for: the old one is kept until the end. */
    b = bed_new();
    w = leaf(&b, 100);
    next = sum_of(&b, (node[]){w}, 1, 0);
    sum_of(&b, (node[]){next, w}, 2, 0);
    b.assigns[b.assign_count++] = (fuse_assign){w, next};
    plan_memory(&b);
    EXPECT(b.plan.kernel_count == 3);
    EXPECT(b.plan.places[next].same_as == 0);
    arena_free(b.memory);
}

TEST(copies_of_any_rank)
{
    arena *memory = arena_new();
    for (int rank = 1; rank <= MAX_RANK; rank++)
        EXPECT(tile_verify(fuse_copy_text(memory, DT_BF16, rank, 4096), NULL) == QN_OK);
    arena_free(memory);
}

TEST_MAIN(CASE(random_plans), CASE(chain_reuses_memory), CASE(assignments), CASE(copies_of_any_rank))
