/*
 * Kernels of a recommender: gradients of the interaction, and the outer product; a part of test_dlrm, which has the context.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_DLRM_KERNELS_H
#define QUERN_TESTS_DLRM_KERNELS_H

/* ---- gradients of the interaction's kernels ---- */

enum { SAMPLES = 3, LOOKED = 6, ROW = 5, ALL_PAIRS = LOOKED * (LOOKED + 1) / 2, OUT = (ROW + ALL_PAIRS + 3) / 4 * 4 };

/* x [SAMPLES][ROW], t [SAMPLES][LOOKED][ROW] and d_z [SAMPLES][OUT] to d_x and d_t, in plain loops. */
static void interact_back(const float *x, const float *t, const float *d_z, float *d_x, float *d_t)
{
    for (int b = 0; b < SAMPLES; b++) {
        const float *rows[LOOKED + 1] = {x + b * ROW};
        float *d_rows[LOOKED + 1] = {d_x + b * ROW};
        for (int g = 0; g < LOOKED; g++) {
            rows[g + 1] = t + (b * LOOKED + g) * ROW;
            d_rows[g + 1] = d_t + (b * LOOKED + g) * ROW;
        }
        for (int g = 0; g <= LOOKED; g++)
            for (int e = 0; e < ROW; e++) d_rows[g][e] = g ? 0 : d_z[b * OUT + e];
        for (int i = 1; i <= LOOKED; i++)
            for (int j = 0; j < i; j++)
                for (int e = 0; e < ROW; e++) {
                    float d = d_z[b * OUT + ROW + i * (i - 1) / 2 + j];
                    d_rows[i][e] += d * rows[j][e];
                    d_rows[j][e] += d * rows[i][e];
                }
    }
}

static void check_interaction(const char *device, const char *kernel)
{
    qn_tape *tape;
    qn_module *module;
    qn_context *raw;
    float x[SAMPLES * ROW], t[SAMPLES * LOOKED * ROW], d_z[SAMPLES * OUT], d_x[SAMPLES * ROW],
        d_t[SAMPLES * LOOKED * ROW], found_x[SAMPLES * ROW], found_t[SAMPLES * LOOKED * ROW];
    EXPECT_OK(qn_context_open(&(qn_context_options){.allow_raw = true}, &raw, &error));
    EXPECT_OK(qn_module_load_file(raw, QUERN_ROOT "/kernels/dlrm.qn", &module, &error));
    EXPECT_OK(qn_tape_new(raw, device, &tape, &error));
    for (int i = 0; i < SAMPLES * ROW; i++) x[i] = (float)(i * 7 % 13) - 6;
    for (int i = 0; i < SAMPLES * LOOKED * ROW; i++) t[i] = (float)(i * 5 % 11) - 5;
    for (int i = 0; i < SAMPLES * OUT; i++) d_z[i] = (float)(i * 3 % 7) - 3;
    interact_back(x, t, d_z, d_x, d_t);
    qn_tensor in[] = {qn_from_memory(tape, x, QN_F32, QN_SHAPE(SAMPLES, ROW)),
                      qn_from_memory(tape, t, QN_F32, QN_SHAPE(SAMPLES, LOOKED, ROW))};
    qn_tensor z, d[2];
    qn_call_kernel(module, kernel, NULL, in, 2, &z, 1);
    qn_tensor weights = qn_from_memory(tape, d_z, QN_F32, QN_SHAPE(SAMPLES, OUT));
    qn_grad(qn_sum(qn_mul(z, weights), QN_ALL, false), in, 2, d);
    EXPECT_OK(qn_eval(tape, d, 2, &error));
    EXPECT_OK(qn_tensor_read(d[0], found_x, sizeof(found_x), &error));
    EXPECT_OK(qn_tensor_read(d[1], found_t, sizeof(found_t), &error));
    EXPECT(!memcmp(found_x, d_x, sizeof(d_x)) && !memcmp(found_t, d_t, sizeof(d_t))); /* whole numbers */
    qn_tape_free(tape);
    qn_module_free(module);
    qn_context_close(raw);
}

TEST(gradients_of_the_interaction)
{
    check_interaction("cpu", "interact");
    check_interaction("emu", "interact_warp");
}

/* ---- the outer product ---- */

typedef struct outer_case {
    int batch, width, out;
} outer_case;

static float small_number(int i, int of)
{
    return (float)(i * 7 % of - of / 2);
}

/* The sum of relu(z w), z the outer product of each row of t with itself; its gradients by t and w, in plain loops. */
static void outer_by_loops(const outer_case *c, const float *t, const float *w, float *d_t, float *d_w, double *loss)
{
    int n = c->width, h = c->out;
    memset(d_t, 0, sizeof(float) * (size_t)(c->batch * n));
    memset(d_w, 0, sizeof(float) * (size_t)(n * n * h));
    *loss = 0;
    for (int b = 0; b < c->batch; b++)
        for (int o = 0; o < h; o++) {
            const float *row = t + b * n;
            double y = 0;
            for (int k = 0; k < n * n; k++) y += (double)(row[k / n] * row[k % n] * w[k * h + o]);
            if (y <= 0) continue;
            *loss += y;
            for (int k = 0; k < n * n; k++) {
                d_w[k * h + o] += row[k / n] * row[k % n];
                d_t[b * n + k / n] += w[k * h + o] * row[k % n];
                d_t[b * n + k % n] += w[k * h + o] * row[k / n];
            }
        }
}

static void check_outer(const char *device, const outer_case *c)
{
    int64_t b = c->batch, n = c->width, h = c->out, t_bytes = b * n * 4, w_bytes = n * n * h * 4;
    float *t = malloc((size_t)t_bytes), *w = malloc((size_t)w_bytes), *d_t = malloc((size_t)t_bytes),
          *d_w = malloc((size_t)w_bytes), *found_t = malloc((size_t)t_bytes), *found_w = malloc((size_t)w_bytes), found;
    double loss;
    qn_tape *tape;
    qn_plan *plan;
    qn_plan_facts facts;
    for (int i = 0; i < b * n; i++) t[i] = small_number(i, 5);
    for (int i = 0; i < n * n * h; i++) w[i] = small_number(i, 3);
    outer_by_loops(c, t, w, d_t, d_w, &loss);
    open_context();
    EXPECT_OK(qn_tape_new(context, device, &tape, &error));
    qn_tape_set_tf32(tape, true);
    qn_tensor in[] = {qn_from_memory(tape, t, QN_F32, QN_SHAPE(b, n)),
                      qn_from_memory(tape, w, QN_F32, QN_SHAPE(n * n, h))};
    qn_tensor results[3];
    for (int gradients = 0; gradients < 2; gradients++) {
        EXPECT_OK(qn_capture_begin(tape, &error));
        qn_tensor z = qn_reshape(qn_mul(qn_unsqueeze(in[0], 2), qn_unsqueeze(in[0], 1)), QN_SHAPE(b, n * n));
        results[0] = qn_sum(qn_relu(qn_matmul(z, in[1])), QN_ALL, false);
        if (gradients) qn_grad(results[0], in, 2, results + 1);
        EXPECT_OK(qn_eval(tape, results, gradients ? 3 : 1, &error));
        EXPECT_OK(qn_capture_end(tape, &plan, &error));
        qn_plan_info(plan, &facts);
        EXPECT_OK(qn_plan_replay(plan, &error));
        EXPECT_OK(qn_tensor_read(results[0], &found, sizeof(found), &error));
        EXPECT(found == (float)loss); /* whole numbers */
        /* its gradient is, times either factor */
        EXPECT(facts.workspace_bytes < (gradients ? 3 : 1) * b * n * n * 4);
        qn_plan_free(plan);
    }
    EXPECT_OK(qn_tensor_read(results[1], found_t, (size_t)t_bytes, &error));
    EXPECT_OK(qn_tensor_read(results[2], found_w, (size_t)w_bytes, &error));
    EXPECT(!memcmp(found_t, d_t, (size_t)t_bytes));
    int wrong = 0; /* -0 is 0 */
    for (int i = 0; i < n * n * h; i++) wrong += found_w[i] != d_w[i];
    EXPECT(!wrong);
    qn_tape_free(tape);
    float *all[] = {t, w, d_t, d_w, found_t, found_w};
    for (int i = 0; i < 6; i++) free(all[i]);
}

/* The sum over rows of z times g, z being the left operand or the right one, with and without tf32. */
static void check_outer_sums(const outer_case *c, bool right, bool tf32)
{
    int64_t b = c->batch, n = c->width, h = c->out;
    float *t = malloc((size_t)(b * n * 4)), *g = malloc((size_t)(b * h * 4)), *found = malloc((size_t)(n * n * h * 4));
    qn_tape *tape;
    qn_plan *plan;
    qn_plan_facts facts;
    for (int i = 0; i < b * n; i++) t[i] = small_number(i, 5);
    for (int i = 0; i < b * h; i++) g[i] = small_number(i, 3);
    open_context();
    EXPECT_OK(qn_tape_new(context, "emu", &tape, &error));
    qn_tape_set_tf32(tape, tf32);
    qn_tensor x = qn_from_memory(tape, t, QN_F32, QN_SHAPE(b, n)), y = qn_from_memory(tape, g, QN_F32, QN_SHAPE(b, h));
    EXPECT_OK(qn_capture_begin(tape, &error));
    qn_tensor z = qn_reshape(qn_mul(qn_unsqueeze(x, 2), qn_unsqueeze(x, 1)), QN_SHAPE(b, n * n));
    qn_tensor sums = right ? qn_matmul(qn_transpose(y, 0, 1), z) : qn_matmul(qn_transpose(z, 0, 1), y);
    EXPECT_OK(qn_eval(tape, &sums, 1, &error));
    EXPECT_OK(qn_capture_end(tape, &plan, &error));
    qn_plan_info(plan, &facts);
    EXPECT(!facts.workspace_bytes);
    EXPECT_OK(qn_plan_replay(plan, &error));
    EXPECT_OK(qn_tensor_read(sums, found, (size_t)(n * n * h * 4), &error));
    int wrong = 0;
    for (int64_t k = 0; k < n * n; k++)
        for (int64_t o = 0; o < h; o++) {
            float sum = 0;
            for (int64_t r = 0; r < b; r++) sum += t[r * n + k / n] * t[r * n + k % n] * g[r * h + o];
            wrong += found[right ? o * n * n + k : k * h + o] != sum;
        }
    EXPECT(!wrong);
    qn_plan_free(plan);
    qn_tape_free(tape);
    free(t);
    free(g);
    free(found);
}

TEST(sums_of_outer_products)
{
    const outer_case c = {37, 18, 70};
    for (int i = 0; i < 4; i++) check_outer_sums(&c, i & 1, i & 2);
}

/* Beyond the end of a row of k there are zeros, which an infinite factor of the row must not be multiplied with. */
TEST(an_infinite_row_of_an_outer_product)
{
    enum { B = 33, D = 113, N = 40 };
    float *t = malloc(sizeof(float) * B * D), *w = malloc(sizeof(float) * D * D * N), found[B * N];
    qn_tape *tape;
    for (int i = 0; i < B * D; i++) t[i] = 1;
    for (int i = 0; i < D * D * N; i++) w[i] = 2;
    t[D * 2 - 1] = INFINITY; /* the last of row 1 */
    open_context();
    EXPECT_OK(qn_tape_new(context, "emu", &tape, &error));
    qn_tape_set_tf32(tape, true);
    qn_tensor x = qn_from_memory(tape, t, QN_F32, QN_SHAPE(B, D)), y = qn_from_memory(tape, w, QN_F32, QN_SHAPE(D * D, N));
    qn_tensor z = qn_reshape(qn_mul(qn_unsqueeze(x, 2), qn_unsqueeze(x, 1)), QN_SHAPE(B, D * D));
    qn_tensor sums = qn_matmul(z, y);
    EXPECT_OK(qn_tensor_read(sums, found, sizeof(found), &error));
    int wrong = 0;
    for (int i = 0; i < B * N; i++) wrong += found[i] != (i / N == 1 ? INFINITY : 2.0f * D * D);
    EXPECT(!wrong);
    qn_tape_free(tape);
    free(t);
    free(w);
}

TEST(the_outer_product_is_never_there)
{
    const outer_case cases[] = {{32, 24, 80}, {21, 33, 18}, {33, 113, 40}};
    for (int i = 0; i < 3; i++) {
        check_outer("cpu", &cases[i]);
        check_outer("emu", &cases[i]);
    }
}

#endif
