/*
 * A libcublasLt with no GPU, beside the fake libcuda: the same calls and numbers, products by plain loops, done at once or
 * recorded where the fake driver records. It is as strict as the real one: what does not fit together is refused, a way that
 * wants aligned matrices is not suggested for others, and all of a workspace is written to while a product runs.
 * FAKE_CUBLASLT_WAYS: how many ways it knows of each product (3).
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "fake/state.h"
#include "ir/tile.h"

#include <stdlib.h>
#include <string.h>

enum { INVALID = 7, UNSUPPORTED = 15, MOST_WAYS = 3, ROUNDS_PARTS = MOST_WAYS, FIRST_WAY = 0xfa00 };

typedef struct fake_product {
    int compute, scale, turned[2], epilogue, bias_type;
    const void *bias;
} fake_product;

typedef struct fake_layout {
    int type;
    int64_t rows, columns, apart, next;
    int batch;
} fake_layout;

typedef struct fake_wish {
    uint64_t workspace_bytes;
    uint32_t aligned[4], reductions;
} fake_wish;

typedef struct fake_call { /* one product, as it is recorded */
    fake_product product;
    fake_layout a, b, d;
    const void *from[2];
    void *to, *workspace;
    size_t workspace_bytes;
    uint64_t way;
} fake_call;

static const struct {
    size_t workspace_bytes;
    uint32_t alignment;
} ways[MOST_WAYS + 1] = {{4096, 16}, {0, 1}, {1 << 16, 16}, {0, 1}};

static int way_count(void)
{
    const char *words = getenv("FAKE_CUBLASLT_WAYS");
    return words ? atoi(words) : MOST_WAYS;
}

FAKE(cublasLtGetProperty, int which, int *value)
{
    *value = which ? 4 - which : 13;
    return 0;
}

EXPORT const char *cublasLtGetStatusString(int result);
const char *cublasLtGetStatusString(int result)
{
    return result == INVALID       ? "CUBLAS_STATUS_INVALID_VALUE"
           : result == UNSUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED"
                                   : "CUBLAS_STATUS_EXECUTION_FAILED";
}

FAKE(cublasLtCreate, void **library)
{
    ASK();
    *library = calloc(1, 1);
    return *library ? 0 : 3;
}

FAKE(cublasLtDestroy, void *library)
{
    ASK();
    free(library);
    return 0;
}

FAKE(cublasLtMatmulDescCreate, void **out, int compute, int scale)
{
    ASK();
    fake_product *p = calloc(1, sizeof(*p));
    if (!p) return 3;
    *p = (fake_product){.compute = compute, .scale = scale, .epilogue = 1, .bias_type = -1};
    *out = p;
    return 0;
}

FAKE(cublasLtMatmulDescDestroy, void *product)
{
    ASK();
    free(product);
    return 0;
}

FAKE(cublasLtMatmulDescSetAttribute, void *product, int attribute, const void *value, size_t size_bytes)
{
    ASK();
    fake_product *p = product;
    void *to = attribute == CUBLAS_PRODUCT_TURN_A      ? (void *)&p->turned[0]
               : attribute == CUBLAS_PRODUCT_TURN_B    ? (void *)&p->turned[1]
               : attribute == CUBLAS_PRODUCT_EPILOGUE  ? (void *)&p->epilogue
               : attribute == CUBLAS_PRODUCT_BIAS_TYPE ? (void *)&p->bias_type
               : attribute == CUBLAS_PRODUCT_BIAS      ? (void *)&p->bias
                                                       : NULL;
    if (!to || size_bytes != (attribute == CUBLAS_PRODUCT_BIAS ? 8 : 4)) return INVALID;
    memcpy(to, value, size_bytes);
    return 0;
}

FAKE(cublasLtMatrixLayoutCreate, void **out, int type, uint64_t rows, uint64_t columns, int64_t apart)
{
    ASK();
    fake_layout *l = calloc(1, sizeof(*l));
    if (!l) return 3;
    *l = (fake_layout){.type = type, .rows = (int64_t)rows, .columns = (int64_t)columns, .apart = apart, .batch = 1};
    *out = l;
    return 0;
}

FAKE(cublasLtMatrixLayoutDestroy, void *layout)
{
    ASK();
    free(layout);
    return 0;
}

FAKE(cublasLtMatrixLayoutSetAttribute, void *layout, int attribute, const void *value, size_t size_bytes)
{
    ASK();
    fake_layout *l = layout;
    if (attribute == CUBLAS_LAYOUT_BATCH && size_bytes == 4)
        memcpy(&l->batch, value, 4);
    else if (attribute == CUBLAS_LAYOUT_NEXT && size_bytes == 8)
        memcpy(&l->next, value, 8);
    else
        return INVALID;
    return 0;
}

FAKE(cublasLtMatmulPreferenceCreate, void **out)
{
    ASK();
    fake_wish *w = calloc(1, sizeof(*w));
    if (!w) return 3;
    *w = (fake_wish){.aligned = {256, 256, 256, 256}, .reductions = 7};
    *out = w;
    return 0;
}

FAKE(cublasLtMatmulPreferenceDestroy, void *wish)
{
    ASK();
    free(wish);
    return 0;
}

FAKE(cublasLtMatmulPreferenceSetAttribute, void *wish, int attribute, const void *value, size_t size_bytes)
{
    ASK();
    fake_wish *w = wish;
    if (attribute == CUBLAS_WISH_WORKSPACE && size_bytes == 8)
        memcpy(&w->workspace_bytes, value, 8);
    else if (attribute == CUBLAS_WISH_REDUCTIONS && size_bytes == 4)
        memcpy(&w->reductions, value, 4);
    else if (attribute >= CUBLAS_WISH_ALIGNED_A && attribute <= CUBLAS_WISH_ALIGNED_D && size_bytes == 4)
        memcpy(&w->aligned[attribute - CUBLAS_WISH_ALIGNED_A], value, 4);
    else
        return INVALID;
    return 0;
}

static dtype own_type(int type)
{
    static const struct {
        int theirs;
        dtype own;
    } types[] = {{CUBLAS_F32, DT_F32}, {CUBLAS_F64, DT_F64},   {CUBLAS_F16, DT_F16},      {CUBLAS_I8, DT_I8},
                 {CUBLAS_I32, DT_I32}, {CUBLAS_BF16, DT_BF16}, {CUBLAS_F8E4M3, DT_F8E4M3}};
    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
        if (types[i].theirs == type) return types[i].own;
    return DT_BOOL;
}

static int64_t depth_of(const fake_call *c)
{
    return c->product.turned[0] ? c->a.rows : c->a.columns;
}

/* What fits together, and what of that the library knows. */
static int judge(const fake_call *c)
{
    const fake_product *p = &c->product;
    const fake_layout *layouts[] = {&c->a, &c->b, &c->d};
    int64_t rows = p->turned[0] ? c->a.columns : c->a.rows, columns = p->turned[1] ? c->b.rows : c->b.columns;
    if (rows != c->d.rows || columns != c->d.columns || depth_of(c) != (p->turned[1] ? c->b.columns : c->b.rows))
        return INVALID;
    for (int i = 0; i < 3; i++)
        if (layouts[i]->apart < layouts[i]->rows || layouts[i]->batch != c->d.batch ||
            own_type(layouts[i]->type) == DT_BOOL)
            return INVALID;
    if (p->epilogue == CUBLAS_EPILOGUE_BIAS && (!p->bias || p->bias_type != c->d.type)) return INVALID;
    if (p->epilogue != CUBLAS_EPILOGUE_BIAS && p->epilogue != 1) return UNSUPPORTED;
    bool halves = c->a.type == CUBLAS_BF16 || c->a.type == CUBLAS_F16, f8 = c->a.type == CUBLAS_F8E4M3;
    bool known = c->a.type == c->b.type;
    switch (p->compute) {
    case CUBLAS_COMPUTE_F64:
        known &= p->scale == CUBLAS_F64 && c->a.type == CUBLAS_F64 && c->d.type == CUBLAS_F64;
        break;
    case CUBLAS_COMPUTE_I32:
        known &= p->scale == CUBLAS_I32 && c->a.type == CUBLAS_I8 && c->d.type == CUBLAS_I32;
        break;
    case CUBLAS_COMPUTE_TF32:
        known &= p->scale == CUBLAS_F32 && c->a.type == CUBLAS_F32 && c->d.type == CUBLAS_F32;
        break;
    default:
        known &= p->compute == CUBLAS_COMPUTE_F32 && p->scale == CUBLAS_F32;
        known &= f8                        ? p->turned[0] && !p->turned[1]
                 : halves                  ? c->d.type == c->a.type || c->d.type == CUBLAS_F32
                 : c->a.type == CUBLAS_F32 ? c->d.type == CUBLAS_F32
                                           : false;
    }
    return known ? 0 : UNSUPPORTED;
}

FAKE(cublasLtMatmulAlgoGetHeuristic, void *library, void *product, void *a, void *b, void *c, void *d, void *preference,
     int wanted, cublas_way *out, int *count)
{
    ASK();
    const fake_wish *wish = preference;
    fake_call call = {
        .product = *(fake_product *)product, .a = *(fake_layout *)a, .b = *(fake_layout *)b, .d = *(fake_layout *)d};
    (void)library;
    *count = 0;
    int refused = c == d ? judge(&call) : INVALID;
    if (refused) return refused;
    if (wish->reductions & (CUBLAS_REDUCE_IN_PLACE | CUBLAS_REDUCE_RESULTS)) /* the fastest, but it rounds parts of k */
        out[(*count)++] = (cublas_way){.algorithm = {FIRST_WAY + ROUNDS_PARTS}};
    for (int i = 0; i < MOST_WAYS && i < way_count() && *count < wanted; i++) {
        bool fits = ways[i].workspace_bytes <= wish->workspace_bytes;
        for (int k = 0; k < 4; k++) fits &= wish->aligned[k] >= ways[i].alignment;
        if (!fits) continue;
        out[*count] = (cublas_way){.workspace_bytes = ways[i].workspace_bytes};
        out[(*count)++].algorithm[0] = FIRST_WAY + (uint64_t)i;
    }
    return *count ? 0 : UNSUPPORTED;
}

/* Element of a matrix of the batch, by the product's own rows and columns. */
static number element(const fake_call *c, int side, int64_t batch, int64_t row, int64_t column)
{
    const fake_layout *l = side ? &c->b : &c->a;
    dtype t = own_type(l->type);
    int64_t at = c->product.turned[side] ? column + row * l->apart : row + column * l->apart;
    number n = element_read(t, (const char *)c->from[side] + (batch * l->next + at) * dtypes[t].size_bytes);
    if (c->product.compute == CUBLAS_COMPUTE_TF32) {
        float x = (float)n.f;
        uint32_t bits;
        memcpy(&bits, &x, 4);
        bits = (bits + 0xfff + (bits >> 13 & 1)) & 0xffffe000;
        memcpy(&x, &bits, 4);
        n.f = x;
    }
    return n;
}

static int multiply(const void *state)
{
    const fake_call *c = state;
    dtype stored = own_type(c->d.type);
    if (c->workspace_bytes) memset(c->workspace, 0x5a, c->workspace_bytes);
    for (int64_t batch = 0; batch < c->d.batch; batch++)
        for (int64_t column = 0; column < c->d.columns; column++)
            for (int64_t row = 0; row < c->d.rows; row++) {
                number sum = {0};
                for (int64_t k = 0; k < depth_of(c); k++) {
                    number x = element(c, 0, batch, row, k), y = element(c, 1, batch, k, column);
                    sum.f += x.f * y.f;
                    sum.i += x.i * y.i;
                    if (c->way == ROUNDS_PARTS && k == depth_of(c) / 2) sum.f = round_to_dtype(stored, sum.f);
                }
                if (c->product.epilogue == CUBLAS_EPILOGUE_BIAS)
                    sum.f = (double)(float)sum.f +
                            element_read(stored, (const char *)c->product.bias + row * dtypes[stored].size_bytes).f;
                if (stored != DT_F64) sum.f = (float)sum.f;
                int64_t at = batch * c->d.next + row + column * c->d.apart;
                element_write(stored, (char *)c->to + at * dtypes[stored].size_bytes, sum);
            }
    if (c->workspace_bytes) memset(c->workspace, 0xa5, c->workspace_bytes);
    return 0;
}

FAKE(cublasLtMatmul, void *library, void *product, const void *alpha, const void *a, void *a_layout, const void *b,
     void *b_layout, const void *beta, const void *c, void *c_layout, void *d, void *d_layout, const void *algorithm,
     void *workspace, size_t workspace_bytes, void *stream)
{
    ASK();
    fake_call call = {.product = *(fake_product *)product,
                      .a = *(fake_layout *)a_layout,
                      .b = *(fake_layout *)b_layout,
                      .d = *(fake_layout *)d_layout,
                      .from = {a, b},
                      .to = d,
                      .workspace = workspace};
    const double zero = 0, one_f64 = 1;
    const float one = 1;
    const int32_t one_i32 = 1;
    const void *addresses[] = {a, b, d};
    const void *wanted = call.product.scale == CUBLAS_F64   ? (const void *)&one_f64
                         : call.product.scale == CUBLAS_I32 ? (const void *)&one_i32
                                                            : &one;
    size_t size = call.product.scale == CUBLAS_F64 ? 8 : 4;
    int refused = library && c == d && c_layout == d_layout ? judge(&call) : INVALID;
    if (refused) return refused;
    if (memcmp(alpha, wanted, size) != 0 || memcmp(beta, &zero, size) != 0) return UNSUPPORTED;
    memcpy(&call.way, algorithm, sizeof(call.way));
    call.way -= FIRST_WAY;
    if (call.way >= MOST_WAYS + 1 || workspace_bytes < ways[call.way].workspace_bytes) return INVALID;
    call.workspace_bytes = ways[call.way].workspace_bytes;
    if (call.workspace_bytes && (!workspace || (uintptr_t)workspace % 256)) return INVALID;
    for (int i = 0; i < 3; i++)
        if ((uintptr_t)addresses[i] % ways[call.way].alignment) return INVALID;
    if (call.product.epilogue == CUBLAS_EPILOGUE_BIAS && (uintptr_t)call.product.bias % ways[call.way].alignment)
        return INVALID;
    return fake_submit(stream, "fake_cublaslt_product", multiply, &call, sizeof(call));
}
