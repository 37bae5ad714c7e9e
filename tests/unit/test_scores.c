/*
 * Attention at the tensor level, forward and backward: the loops over blocks that fusion writes for it against the same
 * functions evaluated op by op in double: lengths that fill no block, cross-attention, heads of several widths, causal,
 * an additive bias, dropout, a mask that leaves rows without a score in their first block, heads that share keys, bf16. And
 * nothing of the size of the scores is in a plan.
 * SPDX-License-Identifier: MIT
 */
#include "tensor.h"

#include "device/cuda/cubin.h"
#include "device/cuda/nvrtc.h"
#include "emit/cuda/emit.h"
#include "fuse/fuse.h"
#include "leave_out.h"
#include "on_devices.h"
#include "passes/passes.h"
#include "share.h"

#include <math.h>
#include <quern/workbench.h>

#define context tensor_context
static qn_error error;
static const char *where = "ref";

typedef struct attention_case {
    const char *name;
    int batch, heads, groups; /* groups 0: as many as heads */
    int rows, columns, depth, width;
    bool causal, bias, mask;
    qn_dtype type;
    bool on_ref, on_emu;
    int keys; /* of the keys: a truth for each (1), one that is computed (2), a length for each batch (3), truths for each score (4) */
    int window;     /* only columns j > i - window; 0: all; negative: spelled by hand, in the type of the operands */
    double dropout; /* of the weights, spelled by hand; with keys: of those that are looked at, and causal is what is drawn */
} attention_case;

static const attention_case cases[] = {
    {"plain", 1, 2, 0, 70, 67, 16, 24, false, false, false, QN_F32, false, false, 0, 0, 0},
    {"causal", 2, 1, 0, 67, 67, 8, 8, true, false, false, QN_F32, false, true, 0, 0, 0},
    {"causal, more columns", 1, 1, 0, 33, 70, 8, 8, true, false, false, QN_F32, false, false, 0, 0, 0},
    {"causal, more rows", 1, 1, 0, 130, 66, 8, 8, true, false, false, QN_F32, false, false, 0, 0, 0},
    {"bias", 1, 3, 0, 65, 5, 4, 6, false, true, false, QN_F32, true, false, 0, 0, 0},
    {"mask", 1, 2, 0, 66, 130, 5, 3, false, false, true, QN_F32, false, false, 0, 0, 0},
    {"mask, bias, causal", 1, 1, 0, 70, 70, 8, 8, true, true, true, QN_F32, false, false, 0, 0, 0},
    {"grouped", 1, 4, 2, 40, 66, 16, 16, true, false, false, QN_F32, false, false, 0, 0, 0},
    {"halves", 1, 2, 0, 80, 70, 32, 32, true, false, false, QN_BF16, false, false, 0, 0, 0},
    {"matrix units", 1, 2, 0, 150, 200, 64, 128, false, false, false, QN_BF16, false, true, 0, 0, 0},
    {"matrix units, causal", 1, 1, 0, 200, 200, 128, 128, true, false, false, QN_BF16, false, true, 0, 0, 0},
    {"matrix units, one block", 1, 1, 0, 128, 70, 64, 64, false, false, false, QN_BF16, false, true, 0, 0, 0},
    {"matrix units, three groups", 1, 1, 0, 380, 40, 64, 64, true, false, false, QN_BF16, false, true, 0, 0, 0},
    {"matrix units, groups that end early", 1, 1, 0, 400, 410, 64, 64, true, false, false, QN_BF16, false, true, 0, 0, 0},
    {"matrix units, heads of 96", 1, 1, 0, 70, 150, 96, 96, false, false, false, QN_BF16, false, true, 0, 0, 0},
    {"matrix units, heads of 256", 1, 1, 0, 90, 90, 256, 192, true, false, false, QN_F16, false, true, 0, 0, 0},
    {"matrix units, grouped", 1, 4, 2, 70, 80, 64, 32, true, false, false, QN_BF16, false, true, 0, 0, 0},
    {"matrix units, bias", 1, 1, 0, 70, 136, 64, 32, false, true, false, QN_BF16, false, true, 0, 0, 0},
    {"matrix units, bias, odd", 1, 1, 0, 66, 35, 16, 16, false, true, false, QN_BF16, false, true, 0, 0, 0},
    {"window", 1, 1, 0, 150, 150, 8, 8, true, false, false, QN_F32, false, false, 0, 20, 0},
    {"matrix units, window", 1, 1, 0, 330, 330, 64, 64, true, false, false, QN_BF16, false, true, 0, 70, 0},
    {"matrix units, window by hand", 1, 1, 0, 330, 330, 64, 64, true, false, false, QN_BF16, false, true, 0, -70, 0},
    {"matrix units, keys", 2, 1, 0, 66, 140, 32, 32, false, false, false, QN_BF16, false, false, 1, 0, 0},
    {"matrix units, keys, odd", 1, 1, 0, 66, 137, 32, 32, false, false, false, QN_BF16, false, true, 1, 0, 0},
    {"matrix units, keys computed, causal", 2, 2, 0, 70, 135, 32, 32, true, false, false, QN_BF16, false, true, 2, 0,
     0},
    {"matrix units, lengths", 2, 1, 0, 66, 150, 32, 32, false, false, false, QN_BF16, false, true, 3, 0, 0},
    {"matrix units, mask of scores", 2, 2, 0, 35, 135, 32, 32, false, false, false, QN_BF16, false, true, 4, 0, 0},
    {"dropout, causal", 2, 1, 0, 67, 80, 8, 8, true, false, false, QN_F32, false, false, 0, 0, 0.25},
    {"matrix units, dropout", 1, 2, 0, 66, 140, 32, 32, false, false, false, QN_BF16, false, true, 0, 0, 0.3},
    {"matrix units, dropout and keys", 1, 2, 0, 66, 137, 32, 32, false, false, false, QN_BF16, false, true, 4, 0, 0.3},
    {"matrix units, dropout and keys, causal", 1, 1, 0, 66, 144, 32, 32, true, false, false, QN_BF16, false, true, 1, 0, 0.3},
    {"two numbers", 1, 1, 0, 2, 2, 2, 2, false, false, false, QN_F32, false, false, 0, 0, 0},
};

/* Numbers that bf16 has exactly, so that all types compute of the same. */
static qn_tensor numbers(qn_tape *on, qn_dtype type, qn_shape s, int seed)
{
    int64_t count = 1;
    for (int i = 0; i < s.rank; i++) count *= s.extents[i];
    double *x = malloc(sizeof(double) * (size_t)count);
    for (int64_t i = 0; i < count; i++) x[i] = (double)((i * 37 + seed * 101 + i / 7 * 13) % 33 - 16) / 16;
    float *y = malloc(sizeof(float) * (size_t)count);
    for (int64_t i = 0; i < count; i++) y[i] = (float)x[i];
    qn_tensor t = type == QN_F64 ? qn_from_memory(on, x, QN_F64, s) : qn_cast(qn_from_memory(on, y, QN_F32, s), type);
    free(x);
    free(y);
    return t;
}

/* Column j is looked at by row i; rows have their first one late. */
static qn_tensor mask_of(qn_tape *on, int rows, int columns)
{
    double *x = malloc(sizeof(double) * (size_t)(rows * columns));
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++)
            x[i * columns + j] =
                j == columns - 1 || (j + i) % 3 == 1 || j == i ? (i % 4 || j >= columns / 2 || j == i) : 0;
    qn_tensor t = qn_gt_scalar(qn_from_memory(on, x, QN_F64, QN_SHAPE(rows, columns)), 0.5);
    free(x);
    return t;
}

/* Which keys are looked at, of each batch; none of the first block's in the second one. */
static qn_tensor keys_of(const attention_case *c, qn_tape *on)
{
    int rows = c->keys == 4 ? c->rows : 1;
    if (c->keys == 3) {
        int32_t lengths[2] = {131, 3};
        qn_tensor j = qn_reshape(qn_arange(on, QN_I64, 0, c->columns, 1), QN_SHAPE(1, 1, 1, c->columns));
        return qn_lt(j, qn_cast(qn_from_memory(on, lengths, QN_I32, QN_SHAPE(2, 1, 1, 1)), QN_I64));
    }
    int64_t *x = malloc(sizeof(int64_t) * (size_t)(c->batch * rows * c->columns));
    for (int b = 0; b < c->batch; b++)
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < c->columns; j++)
                x[(b * rows + i) * c->columns + j] =
                    j == c->columns - 1 || (c->causal && !j) || ((i + j) % 3 && (!b || c->causal || j >= 130));
    qn_tensor t = qn_gt_scalar(qn_from_memory(on, x, QN_I64, QN_SHAPE(c->batch, 1, rows, c->columns)), 0);
    free(x);
    if (c->keys != 2) EXPECT(qn_eval(on, &t, 1, &error) == QN_OK);
    return t;
}

enum { RESULTS = 5 };

static qn_shape heads_of(const attention_case *c, int share, int rows, int depth)
{
    if (!c->groups) return QN_SHAPE(c->batch, c->heads, rows, depth);
    return QN_SHAPE(c->batch, c->groups, share, rows, depth);
}

/* Columns up to the row. */
static qn_tensor lower_of(qn_tape *on, const attention_case *c)
{
    return qn_le(qn_unsqueeze(qn_arange(on, QN_I64, 0, c->columns, 1), 0),
                 qn_unsqueeze(qn_arange(on, QN_I64, 0, c->rows, 1), 1));
}

/* The attention and the gradients of a weighted sum of it: for q, k, v and the bias. */
static int compute(const attention_case *c, qn_tape *on, qn_dtype type, qn_tensor *out)
{
    int groups = c->groups ? c->groups : c->heads, share = c->heads / groups;
    qn_tensor q = numbers(on, type, heads_of(c, share, c->rows, c->depth), 1);
    qn_tensor k = numbers(on, type, heads_of(c, 1, c->columns, c->depth), 2);
    qn_tensor v = numbers(on, type, heads_of(c, 1, c->columns, c->width), 3);
    qn_tensor bias = c->bias ? numbers(on, type, QN_SHAPE(c->rows, c->columns), 4) : QN_NONE;
    qn_tensor keys = qn_expand(k, heads_of(c, share, c->columns, c->depth));
    qn_tensor values = qn_expand(v, heads_of(c, share, c->columns, c->width));
    qn_tensor extra = bias;
    if (c->mask && c->bias)
        extra = qn_where(mask_of(on, c->rows, c->columns), bias,
                         qn_full(on, qn_tensor_dtype(bias), QN_SHAPE(c->rows, c->columns), -INFINITY));
    else if (c->mask)
        extra = mask_of(on, c->rows, c->columns);
    qn_tensor causal = QN_NONE;
    if (c->window) {
        int window = abs(c->window);
        qn_tensor i = qn_unsqueeze(qn_arange(on, QN_I64, 0, c->rows, 1), 1);
        qn_tensor j = qn_unsqueeze(qn_arange(on, QN_I64, 0, c->columns, 1), 0);
        extra = qn_gt(j, qn_sub_scalar(i, window));
        causal = lower_of(on, c);
    }
    if (c->keys) extra = keys_of(c, on);
    qn_tensor y;
    if (c->window < 0) {
        qn_tensor s = qn_mul_scalar(qn_matmul(q, qn_transpose(keys, -2, -1)), 1 / sqrt(c->depth));
        qn_tensor none = qn_full(on, type, qn_tensor_shape(s), -INFINITY);
        y = qn_matmul(qn_softmax(qn_where(qn_and(causal, extra), s, none), -1), values);
    } else if (c->dropout && c->keys) {
        qn_tensor s = qn_mul_scalar(qn_matmul(q, qn_transpose(keys, -2, -1)), 1 / sqrt(c->depth));
        qn_tensor drawn = qn_rand(on, QN_F32, qn_tensor_shape(s)), none = qn_full(on, type, qn_tensor_shape(s), 0);
        if (c->causal) drawn = qn_where(lower_of(on, c), drawn, qn_mul_scalar(drawn, 0));
        qn_tensor kept = qn_and(qn_ge_scalar(drawn, c->dropout), extra);
        y = qn_matmul(qn_where(kept, qn_softmax(s, -1), none), values);
    } else if (c->dropout) {
        qn_tensor s = qn_mul_scalar(qn_matmul(q, qn_transpose(keys, -2, -1)), 1 / sqrt(c->depth));
        if (c->causal) s = qn_where(lower_of(on, c), s, qn_full(on, type, qn_tensor_shape(s), -INFINITY));
        y = qn_matmul(qn_dropout(qn_softmax(s, -1), c->dropout), values);
    } else {
        y = qn_scaled_dot_product_attention(q, keys, values, extra, c->causal, 0);
    }
    qn_tensor w = numbers(on, type, heads_of(c, share, c->rows, c->width), 5);
    qn_tensor loss = qn_sum(qn_mul(w, y), QN_ALL, false), inputs[4] = {q, k, v, bias};
    out[0] = y;
    int wanted =
        c->bias && !c->on_emu ? 4 : 3; /* the gradient of a bias is the scores themselves, which are then stored */
    qn_grad(loss, inputs, wanted, out + 1);
    return wanted + 1;
}

static int64_t elements(qn_tensor t)
{
    qn_shape s = qn_tensor_shape(t);
    int64_t count = 1;
    for (int i = 0; i < s.rank; i++) count *= s.extents[i];
    return count;
}

static void agree(void)
{
    for (int i = 0; i < COUNT(cases); i += share_of_few("cases of attention")) {
        const attention_case *c = &cases[i];
        qn_tape *truth = NULL, *fast = NULL;
        if (strcmp(where, "ref") == 0 && !c->on_ref) continue; /* slow: one case of each kind of loop */
        if (strcmp(where, "emu") == 0 && !c->on_emu) continue;
        if (strcmp(where, "cpu") == 0 && c->on_emu) continue;
        if (qn_tape_new(context, "cpu", &truth, &error) || qn_tape_new(context, where, &fast, &error)) {
            printf("%s\n", error.message);
            EXPECT(!"tapes");
            return;
        }
        qn_tape_set_mode(truth, QN_EAGER);
        qn_tensor expected[RESULTS], got[RESULTS];
        int count = compute(c, truth, QN_F64, expected);
        EXPECT(compute(c, fast, c->type, got) == count);
        for (int r = 0; r < count; r++) {
            int64_t size = elements(expected[r]);
            double *a = malloc(sizeof(double) * (size_t)size), *b = malloc(sizeof(double) * (size_t)size), worst = 0,
                   most = 0;
            qn_status status = qn_tensor_read(expected[r], a, sizeof(double) * (size_t)size, &error);
            if (status == QN_OK)
                status = qn_tensor_read(qn_cast(got[r], QN_F64), b, sizeof(double) * (size_t)size, &error);
            if (status != QN_OK) printf("%s, %s: %s\n", where, c->name, error.message);
            EXPECT(status == QN_OK);
            for (int64_t k = 0; k < size && status == QN_OK; k++) {
                most = fmax(most, fabs(a[k]));
                if (!(fabs(a[k] - b[k]) <= worst)) worst = fabs(a[k] - b[k]);
            }
            double limit = (c->type == QN_BF16 || c->type == QN_F16 ? 2e-2 : 4e-6) * fmax(most, 1);
            if (!(worst <= limit)) printf("%s, %s, result %d: %g off\n", where, c->name, r, worst);
            EXPECT(worst <= limit);
            free(a);
            free(b);
        }
        qn_tape_free(truth);
        qn_tape_free(fast);
    }
}

/* Of plans for a CPU and a GPU, forward and backward: what is written is smaller than the scores. */
TEST(scores_are_not_stored)
{
    for (int gpu = 0; gpu < 2; gpu++)
        for (int i = 0; i < COUNT(cases); i += share_of_few("cases of attention")) {
            const attention_case *c = &cases[i];
            int64_t scores = (int64_t)c->batch * c->heads * c->rows * c->columns;
            if (scores < 4000) continue;
            tape_open();
            qn_tensor results[RESULTS];
            int count = compute(c, tape, c->type, results);
            graph *g = tape->graph;
            arena *memory = arena_new();
            fuse_leaf *leaves = ARENA_ARRAY(memory, fuse_leaf, g->node_count);
            for (int n = 1; n < g->node_count; n++) {
                const graph_node *x = graph_get(g, (node)n);
                leaves[n].given = x->code == GRAPH_LEAF;
                leaves[n].offset = x->attr.offset;
                memcpy(leaves[n].strides, x->attr.strides, sizeof(leaves[n].strides));
            }
            node wanted[RESULTS];
            int used = 0;
            for (int r = 0; r < count; r++) {
                if (c->bias && r == 4) continue; /* the bias's own gradient is a sum of all scores' */
                wanted[used++] = tape_slot_of(results[r])->node;
            }
            fuse_options options = {.mode = FUSE_FUSED, .gpu = gpu, .cuda_text = gpu, .units = 8, .scores_bytes = 1};
            fuse_plan *plan = NULL;
            qn_status status = fuse_plan_make(g, leaves, wanted, used, NULL, 0, &options, memory, &plan, &error);
            if (status != QN_OK) printf("%s\n", error.message);
            EXPECT(status == QN_OK);
            for (int k = 0; plan && k < plan->kernel_count; k++)
                for (int w = 0; w < plan->kernels[k].write_count; w++) {
                    const graph_node *x = graph_get(g, plan->kernels[k].writes[w]);
                    int64_t own = shape_count(&x->shape);
                    bool stored = own >= scores && dtype_is_float(x->elem) && x->shape.rank >= 4 &&
                                  x->shape.extents[x->shape.rank - 1] == c->columns &&
                                  x->shape.extents[x->shape.rank - 2] == c->rows;
                    if (stored) printf("%s: kernel %d stores scores\n", c->name, k);
                    EXPECT(!stored);
                }
            arena_free(memory);
            tape_close();
        }
}

/* The compiler's word on a kernel: no spills, no serialised products. */
static void compiles_well(nvrtc *compiler, const char *source, const char *name)
{
    nvrtc_output o = {0};
    cubin_usage usage = {0};
    qn_status status =
        nvrtc_compile(compiler, source, "online.cu", &(nvrtc_options){.arch = 90, .usage = true}, &o, &error);
    if (status != QN_OK) printf("%s\n", error.message);
    EXPECT(status == QN_OK && !strstr(text_get(&o.log), "C75"));
    EXPECT(cubin_read_log(text_get(&o.log), name, &usage) && usage.spill_bytes == 0); if (usage.spill_bytes) { printf("SPILL %s %d\n", name, (int)usage.spill_bytes); FILE *ff = fopen("/tmp/att/spill.cu", "w"); fputs(source, ff); fclose(ff); }
    nvrtc_output_free(&o);
}

/* Loops of 16-bit heads, forward and of the gradients, are the recipe `chained`: products of four warps. There are three
 * and a sum over rows: the gradients of keys and values share a loop where registers allow it. */
TEST(heads_run_on_the_matrix_units)
{
    nvrtc *compiler = nvrtc_new();
    bool compiles = nvrtc_ready(compiler, &error) == QN_OK;
    if (!compiles) printf("note: skipped the compiler's word: %s\n", error.message);
    for (int i = 0; i < COUNT(cases); i += share_of_few("cases of attention")) {
        const attention_case *c = &cases[i];
        if (strncmp(c->name, "matrix units", 12) != 0) continue;
        tape_open();
        qn_tensor results[RESULTS];
        int count = compute(c, tape, c->type, results);
        graph *g = tape->graph;
        arena *memory = arena_new();
        fuse_leaf *leaves = ARENA_ARRAY(memory, fuse_leaf, g->node_count);
        for (int n = 1; n < g->node_count; n++) {
            const graph_node *x = graph_get(g, (node)n);
            leaves[n].given = x->code == GRAPH_LEAF;
            memcpy(leaves[n].strides, x->attr.strides, sizeof(leaves[n].strides));
        }
        node wanted[RESULTS];
        for (int r = 0; r < count; r++) wanted[r] = tape_slot_of(results[r])->node;
        fuse_options options = {.mode = FUSE_FUSED, .gpu = true, .cuda_text = true, .units = 132, .arch = 90};
        fuse_plan *plan = NULL;
        EXPECT(fuse_plan_make(g, leaves, wanted, count, NULL, 0, &options, memory, &plan, &error) == QN_OK);
        int loops = 0;
        for (int n = 0; plan && n < plan->kernel_count; n++) {
            tile_kernel *k = plan->kernels[n].kernel;
            if (strncmp(plan->kernels[n].name, "online_", 7) != 0) continue;
            loops++;
            for (int p = 0; p < k->param_count; p++) {
                tile_facts *f = &k->params[p].facts;
                if (k->params[p].kind < PARAM_SCALAR)
                    f->bulk = f->last_unit = f->contiguous = f->aligned = f->small = true;
            }
            text source = {0};
            const char *why[2];
            loop_program program;
            EXPECT(passes_run(k, NULL, NULL, NULL, &error) == QN_OK);
            bool roles = loops_roles(k, 0, &(sched_machine){90, 132, 227 * 1024, false}, memory, &program, why);
            EXPECT(roles && program.chained);
            if (roles && program.chained) leave_out_each(&program, memory, c->name);
            EXPECT(emit_cuda(k, NULL, &source, NULL, &error) == QN_OK);
            EXPECT(strstr(text_get(&source), "(scores, matrix_at(fixed") || strstr(text_get(&source), "(scores, held["));
            /* Heads of 128 want the most registers. */
            if (compiles && (c->depth == 128 ||
                             ((c->keys == 1 || c->rows == 380) && !strcmp(plan->kernels[n].name, "online_rows"))))
                compiles_well(compiler, text_get(&source), arena_print(memory, "%s_phase0", plan->kernels[n].name));
            text_free(&source);
        }
        int usual = c->depth + c->width > 256 ? 4 : 3;
        bool more = c->bias || (c->dropout && c->keys); /* sums of rows are a loop of their own, too */
        if (!(more ? loops >= usual : loops == usual)) printf("%s: %d loops\n", c->name, loops);
        EXPECT(more ? loops >= usual : loops == usual);
        arena_free(memory);
        tape_close();
    }
    EXPECT(found == left_out);
    printf("note: %d nodes of loop programs left out, %d missed\n", left_out, found);
    nvrtc_free(compiler);
}

/* In the graph that a tape evaluates, values come late and earlier forms of nodes lie beside them: the statistics of a
 * softmax are computed with its output all the same, and the output once. */
TEST(statistics_come_with_the_output)
{
    const attention_case *c = NULL;
    qn_tape *fast = NULL;
    qn_plan *plan = NULL;
    qn_plan_facts facts = {0};
    qn_tensor results[RESULTS];
    for (int i = 0; i < COUNT(cases); i++)
        if (!strcmp(cases[i].name, "matrix units, one block")) c = &cases[i];
    if (qn_tape_new(context, "emu", &fast, &error)) {
        printf("note: skipped: %s\n", error.message);
        return;
    }
    qn_tensor in[4] = {numbers(fast, c->type, heads_of(c, 1, c->rows, c->depth), 1),
                       numbers(fast, c->type, heads_of(c, 1, c->columns, c->depth), 2),
                       numbers(fast, c->type, heads_of(c, 1, c->columns, c->width), 3),
                       numbers(fast, c->type, heads_of(c, 1, c->rows, c->width), 4)};
    EXPECT(qn_eval(fast, in, 4, &error) == QN_OK);
    EXPECT(qn_capture_begin(fast, &error) == QN_OK);
    results[0] = qn_scaled_dot_product_attention(in[0], in[1], in[2], QN_NONE, true, 0);
    qn_grad(qn_sum(qn_mul(in[3], results[0]), QN_ALL, false), in, 3, results + 1);
    EXPECT(qn_eval(fast, results, 4, &error) == QN_OK);
    EXPECT(qn_capture_end(fast, &plan, &error) == QN_OK);
    qn_plan_info(plan, &facts);
    EXPECT(facts.kernels == 5); /* forward, sums of rows, queries, keys with values, and the keys' turned */
    qn_plan_free(plan);
    qn_tape_free(fast);
}

static void add_words(void *user, const char *words, size_t length)
{
    text_add_bytes(user, words, length);
}

/* Forward, queries, keys with values: Philox runs in their loops, and the sums of rows come from the output. */
TEST(dropout_runs_on_the_matrix_units)
{
    static const char *const settings[] = {"B=1", "H=2", "L=512", "S=512", "E=64"};
    text out = {0};
    qn_show_options options = {.stage = "schedule", .arch = "sm_90a", .backward = true, .settings = {settings, 5}};
    EXPECT(qn_show(context, QUERN_ROOT "/tests/data/dropped.qn", "dropped", &options, add_words, &out, &error) == QN_OK);
    EXPECT(test_count(text_get(&out), "chained products") == 3);
    EXPECT(test_count(text_get(&out), "schedule ") == 4);
    text_free(&out);
    options.stage = "cuda"; /* a bit each, drawn while products run */
    EXPECT(qn_show(context, QUERN_ROOT "/tests/data/dropped.qn", "dropped", &options, add_words, &out, &error) == QN_OK);
    EXPECT(test_count(text_get(&out), " = philox_u32(") == test_count(text_get(&out), "_bits[word] = all;"));
    EXPECT(test_count(text_get(&out), "_bits[word] = all;") >= 3);
    text_free(&out);
}

/* Weights that are wanted themselves are stored, and right. */
static void weights_are_wanted(void)
{
    qn_tape *fast = NULL;
    if (qn_tape_new(context, where, &fast, &error)) return;
    qn_tensor q = numbers(fast, QN_F32, QN_SHAPE(9, 4), 1), k = numbers(fast, QN_F32, QN_SHAPE(7, 4), 2);
    qn_tensor p = qn_softmax(qn_matmul(q, qn_transpose(k, 0, 1)), -1), y = qn_matmul(p, k), both[] = {p, y};
    float weights[63], out[36];
    EXPECT(qn_eval(fast, both, 2, &error) == QN_OK);
    EXPECT(qn_tensor_read(p, weights, sizeof(weights), &error) == QN_OK);
    EXPECT(qn_tensor_read(y, out, sizeof(out), &error) == QN_OK);
    for (int i = 0; i < 9; i++) {
        float sum = 0;
        for (int j = 0; j < 7; j++) sum += weights[i * 7 + j];
        EXPECT(fabsf(sum - 1) < 1e-5f);
    }
    qn_tape_free(fast);
}

/* Weights that are kept by what they are themselves: all are equal and far below the limit, so nothing is kept. The loops
 * have them before they are divided, and there each is 1. */
static void weights_are_kept_by_themselves(void)
{
    enum { ROWS = 40, COLUMNS = 70, DEPTH = 32 };
    qn_tape *fast = NULL;
    float out[ROWS * DEPTH];
    if (qn_tape_new(context, where, &fast, &error)) return;
    qn_tensor q = qn_full(fast, QN_BF16, QN_SHAPE(1, ROWS, DEPTH), 0.25);
    qn_tensor k = qn_full(fast, QN_BF16, QN_SHAPE(1, COLUMNS, DEPTH), 1),
              v = numbers(fast, QN_BF16, QN_SHAPE(1, COLUMNS, DEPTH), 3);
    k = qn_add(k, qn_mul_scalar(v, 0)); /* no constant */
    qn_tensor p = qn_softmax(qn_matmul(q, qn_transpose(k, 1, 2)), -1);
    qn_tensor y = qn_cast(qn_matmul(qn_where(qn_gt_scalar(p, 0.5), p, qn_mul_scalar(p, 0)), v), QN_F32);
    qn_tensor z = qn_cast(qn_matmul(qn_where(qn_gt_scalar(p, 0.5), p, qn_scalar(fast, QN_BF16, 0)), v), QN_F32);
    qn_tensor both[] = {y, z};
    for (int i = 0; i < 2; i++) {
        int wrong = 0;
        EXPECT(qn_tensor_read(both[i], out, sizeof(out), &error) == QN_OK);
        for (int n = 0; n < ROWS * DEPTH; n++) wrong += out[n] != 0;
        EXPECT(!wrong);
    }
    qn_tape_free(fast);
}

ON_EVERY_DEVICE(agree)
ON_EVERY_DEVICE(weights_are_kept_by_themselves)
ON_EVERY_DEVICE(weights_are_wanted)

TEST(open_context)
{
    setenv("QUERN_SCORES_BYTES", "1", 1); /* small as they are, they are not to be stored */
    EXPECT(qn_context_open(&(qn_context_options){.threads = 2}, &context, &error) == QN_OK);
}

TEST_MAIN(CASE(open_context), CASE(scores_are_not_stored), CASE(heads_run_on_the_matrix_units),
          CASE(statistics_come_with_the_output), CASE(dropout_runs_on_the_matrix_units), CASE(on_devices_agree),
          CASE(on_devices_weights_are_wanted), CASE(on_devices_weights_are_kept_by_themselves))
