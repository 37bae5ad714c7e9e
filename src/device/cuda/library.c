/*
 * cuBLASLt as one more way to compute a product. In: a product of whole arrays and its numbers. Out: one call of the library.
 *
 * The library knows matrices column by column; ours mostly lie row by row. A result whose rows lie side by side is computed as
 * its transpose, from the transposes of the operands in the other order, so that every one of the four layouts of operands is
 * a flag and a distance and nothing is ever copied. What the library cannot walk (a matrix with a gap inside its lines, a
 * batch without one distance) is left to the kernel.
 * SPDX-License-Identifier: MIT
 */
#include "device/cuda/library.h"

#include "base/record.h"

#include <string.h>

enum { MOST_WORKSPACE_BYTES = 32 << 20, MOST_ALIGNMENT = 256, MOST_WAYS = 8, MOST_KEPT = 1024 };

/* A matrix as the library sees it: columns of `rows` elements side by side, a column every `apart`. */
typedef struct layout_numbers {
    int64_t rows, columns, apart, next;
    int type, turned;
} layout_numbers;

/* All that the choice of a way depends on; compared byte by byte. */
typedef struct problem {
    layout_numbers a, b, d;
    int64_t count;
    int compute, scale, with_bias, way;
    unsigned alignment[4]; /* of A, B, C, and of D with the row that is added to it */
} problem;

struct cuda_ways { /* of one problem, for the life of the device */
    cuda_ways *next;
    problem of;
    cublas_way chosen;
    const char *why; /* NULL: there is one */
};

struct cuda_matmul {
    const whole_product *product;
    whole_numbers numbers;
    problem problem;
    bool swapped; /* the library's A is our right operand */
    void *descriptor, *layouts[3];
    const void *a, *b;
    void *d;
    cublas_way chosen;
    const char *name;
};

/* ---- the library ---- */

qn_status cuda_library_open(cuda_device *d, qn_error *error)
{
    if (!d->library_tried) {
        d->library_tried = true;
        d->library_missing.status = cuda_api_open(&d->api, CUDA_LIBRARY_CUBLASLT, &d->library_missing);
        for (int i = 0; i < 3 && !d->library_missing.status; i++) d->api.cublasLtGetProperty(i, &d->library_version[i]);
    }
    if (d->library_missing.status && error) *error = d->library_missing;
    return d->library_missing.status;
}

void cuda_library_close(cuda_device *d)
{
    if (d->library && !d->lost) d->api.cublasLtDestroy(d->library);
    d->library = NULL;
    for (cuda_ways *w = d->ways, *next; w; w = next) {
        next = w->next;
        heap_free(w);
    }
    d->ways = NULL;
}

static const char *words_of(const cuda_device *d, int result)
{
    const char *words = d->api.cublasLtGetStatusString ? d->api.cublasLtGetStatusString(result) : NULL;
    return words ? words : "an error that it has no words for";
}

/* ---- what is multiplied ---- */

static bool type_of(dtype t, int *out)
{
    static const struct {
        dtype own;
        int theirs;
    } types[] = {{DT_F32, CUBLAS_F32}, {DT_F64, CUBLAS_F64},   {DT_F16, CUBLAS_F16},      {DT_I8, CUBLAS_I8},
                 {DT_I32, CUBLAS_I32}, {DT_BF16, CUBLAS_BF16}, {DT_F8E4M3, CUBLAS_F8E4M3}};
    for (int i = 0; i < COUNT(types); i++)
        if (types[i].own == t) {
            *out = types[i].theirs;
            return true;
        }
    return false;
}

/* Rows x columns with these strides, as it lies or turned. */
static bool lay_out(const whole_matrix *from, int64_t rows, int64_t columns, bool may_turn, layout_numbers *out)
{
    int64_t down = from->strides[0], across = from->strides[1];
    bool straight = down == 1 || rows == 1, turned = may_turn && (across == 1 || columns == 1);
    if (straight && turned) straight = rows > 1 || columns == 1; /* the way in which its elements lie side by side */
    if (!straight && !turned) return false;
    out->turned = !straight;
    out->rows = straight ? rows : columns;
    out->columns = straight ? columns : rows;
    out->apart = out->columns == 1 ? out->rows : straight ? across : down;
    out->next = from->next;
    int64_t most = INT32_MAX;
    return out->apart >= out->rows && out->rows <= most && out->columns <= most && out->apart <= most && out->next >= 0;
}

static whole_matrix flipped(const whole_matrix *m)
{
    return (whole_matrix){m->data, {m->strides[1], m->strides[0]}, m->next};
}

static const char *form(cuda_matmul *m)
{
    const whole_product *w = m->product;
    const whole_numbers *n = &m->numbers;
    problem *p = &m->problem;
    int64_t rows = n->extents[WHOLE_ROWS], columns = n->extents[WHOLE_COLUMNS], depth = n->extents[WHOLE_DEPTH];
    bool halves = w->elem == DT_F16 || w->elem == DT_BF16 || w->elem == DT_F8E4M3;
    int elem, stored;
    if (!type_of(w->elem, &elem) || !type_of(w->stored, &stored) || n->count > INT32_MAX)
        return "its types are not the library's";
    if (w->stored == DT_F8E4M3) return "the library stores the largest f8e4m3 where a result overflows, not NaN";
    p->compute = w->elem == DT_F64 ? CUBLAS_COMPUTE_F64 : w->elem == DT_I8 ? CUBLAS_COMPUTE_I32 : CUBLAS_COMPUTE_F32;
    p->scale = w->elem == DT_F64 ? CUBLAS_F64 : w->elem == DT_I8 ? CUBLAS_I32 : CUBLAS_F32;
    if (w->tf32) p->compute = CUBLAS_COMPUTE_TF32;
    bool sums = w->sum == (w->elem == DT_F64 ? DT_F64 : w->elem == DT_I8 ? DT_I32 : DT_F32);
    if (!sums || (!halves && w->stored != w->sum)) return "its types are not the library's";
    p->count = n->count;
    p->with_bias = w->bias >= 0;
    whole_matrix left = n->left, right = n->right, result = n->result;
    m->swapped = columns == 1 ? result.strides[0] != 1 : result.strides[1] == 1;
    if (p->with_bias && !m->swapped) return "its rows do not lie side by side: the library adds rows to those alone";
    if (m->swapped) {
        left = flipped(&n->right);
        right = flipped(&n->left);
        result = flipped(&n->result);
        int64_t other = rows;
        rows = columns;
        columns = other;
    }
    if (!lay_out(&result, rows, columns, false, &p->d) || !lay_out(&left, rows, depth, true, &p->a) ||
        !lay_out(&right, depth, columns, true, &p->b))
        return "a matrix has gaps inside of its lines";
    p->a.type = p->b.type = elem;
    p->d.type = stored;
    return NULL;
}

static unsigned alignment_of(const void *address)
{
    uintptr_t bits = (uintptr_t)address | MOST_ALIGNMENT;
    return (unsigned)(bits & (0 - bits));
}

/* Where the arrays lie now. */
static void place(cuda_matmul *m)
{
    const whole_numbers *n = &m->numbers;
    m->a = m->swapped ? n->right.data : n->left.data;
    m->b = m->swapped ? n->left.data : n->right.data;
    m->d = (void *)(uintptr_t)n->result.data;
    m->problem.alignment[0] = alignment_of(m->a);
    m->problem.alignment[1] = alignment_of(m->b);
    m->problem.alignment[2] = alignment_of(m->d);
    m->problem.alignment[3] = MINIMUM(alignment_of(m->d), alignment_of(n->bias));
}

/* ---- descriptors ---- */

static int describe_layout(cuda_device *d, const layout_numbers *from, int64_t count, void **out)
{
    int32_t batch = (int32_t)count;
    int result =
        d->api.cublasLtMatrixLayoutCreate(out, from->type, (uint64_t)from->rows, (uint64_t)from->columns, from->apart);
    if (result || count == 1) return result;
    result = d->api.cublasLtMatrixLayoutSetAttribute(*out, CUBLAS_LAYOUT_BATCH, &batch, sizeof(batch));
    return result ? result
                  : d->api.cublasLtMatrixLayoutSetAttribute(*out, CUBLAS_LAYOUT_NEXT, &from->next, sizeof(from->next));
}

static int set_bias(cuda_device *d, const cuda_matmul *m)
{
    return m->problem.with_bias ? d->api.cublasLtMatmulDescSetAttribute(m->descriptor, CUBLAS_PRODUCT_BIAS,
                                                                        &m->numbers.bias, sizeof(m->numbers.bias))
                                : 0;
}

static int describe(cuda_device *d, cuda_matmul *m)
{
    const problem *p = &m->problem;
    int result = d->api.cublasLtMatmulDescCreate(&m->descriptor, p->compute, p->scale);
    const struct {
        int attribute;
        int32_t value;
        bool wanted;
    } numbers[] = {{CUBLAS_PRODUCT_TURN_A, p->a.turned, true},
                   {CUBLAS_PRODUCT_TURN_B, p->b.turned, true},
                   {CUBLAS_PRODUCT_EPILOGUE, CUBLAS_EPILOGUE_BIAS, p->with_bias},
                   {CUBLAS_PRODUCT_BIAS_TYPE, p->d.type, p->with_bias}};
    for (int i = 0; i < COUNT(numbers) && !result; i++)
        if (numbers[i].wanted)
            result = d->api.cublasLtMatmulDescSetAttribute(m->descriptor, numbers[i].attribute, &numbers[i].value,
                                                           sizeof(numbers[i].value));
    const layout_numbers *layouts[] = {&p->a, &p->b, &p->d};
    for (int i = 0; i < COUNT(layouts) && !result; i++)
        result = describe_layout(d, layouts[i], p->count, &m->layouts[i]);
    return result ? result : set_bias(d, m);
}

static const char *ask(cuda_device *d, const cuda_matmul *m, cublas_way *out)
{
    const problem *p = &m->problem;
    const uint64_t workspace = MOST_WORKSPACE_BYTES;
    const uint32_t reductions = CUBLAS_REDUCE_SUMS; /* as with us a result is rounded once */
    cublas_way ways[MOST_WAYS];
    void *wish = NULL;
    int count = 0, result = d->api.cublasLtMatmulPreferenceCreate(&wish);
    if (!result)
        result =
            d->api.cublasLtMatmulPreferenceSetAttribute(wish, CUBLAS_WISH_WORKSPACE, &workspace, sizeof(workspace));
    if (!result)
        result =
            d->api.cublasLtMatmulPreferenceSetAttribute(wish, CUBLAS_WISH_REDUCTIONS, &reductions, sizeof(reductions));
    static const int aligned[] = {CUBLAS_WISH_ALIGNED_A, CUBLAS_WISH_ALIGNED_B, CUBLAS_WISH_ALIGNED_C,
                                  CUBLAS_WISH_ALIGNED_D};
    for (int i = 0; i < COUNT(aligned) && !result; i++) {
        const uint32_t bytes = p->alignment[i];
        result = d->api.cublasLtMatmulPreferenceSetAttribute(wish, aligned[i], &bytes, sizeof(bytes));
    }
    int most = MINIMUM(MAXIMUM(p->way, 1), MOST_WAYS);
    if (!result)
        result = d->api.cublasLtMatmulAlgoGetHeuristic(d->library, m->descriptor, m->layouts[0], m->layouts[1],
                                                       m->layouts[2], m->layouts[2], wish, most, ways, &count);
    if (wish) d->api.cublasLtMatmulPreferenceDestroy(wish);
    if (result || count < 1 || ways[0].state) return "cuBLASLt does not know this product";
    if (count < most || p->way > MOST_WAYS || ways[most - 1].state) return "cuBLASLt has fewer ways for this product";
    *out = ways[most - 1];
    return NULL;
}

/* The way for a problem: asked once, then kept. */
static const char *choose(cuda_device *d, cuda_matmul *m)
{
    cuda_ways *kept;
    int known = 0;
    lock_take(&d->lock);
    for (kept = d->ways; kept && memcmp(&kept->of, &m->problem, sizeof(problem)) != 0; kept = kept->next) known++;
    lock_give(&d->lock);
    if (!kept) {
        cublas_way way = {0};
        const char *why = ask(d, m, &way);
        if (known >= MOST_KEPT) {
            m->chosen = way;
            return why;
        }
        kept = heap_new(sizeof(*kept));
        *kept = (cuda_ways){.of = m->problem, .chosen = way, .why = why};
        lock_take(&d->lock);
        kept->next = d->ways;
        d->ways = kept;
        lock_give(&d->lock);
    }
    m->chosen = kept->chosen;
    return kept->why;
}

/* ---- launches ---- */

void cuda_matmul_free(cuda_device *d, cuda_matmul *m)
{
    if (!m) return;
    if (m->descriptor) d->api.cublasLtMatmulDescDestroy(m->descriptor);
    for (int i = 0; i < COUNT(m->layouts); i++)
        if (m->layouts[i]) d->api.cublasLtMatrixLayoutDestroy(m->layouts[i]);
    heap_free(m);
}

static qn_status start(cuda_device *d, qn_error *error)
{
    lock_take(&d->lock);
    int result = d->library ? 0 : d->api.cublasLtCreate(&d->library);
    lock_give(&d->lock);
    if (!result) return QN_OK;
    return error_set(error, QN_FAILED,
                     "cuBLASLt does not start on %s: %s; with QUERN_LIBRARY=never Quern does without it", d->name,
                     words_of(d, result));
}

qn_status cuda_matmul_prepare(cuda_device *d, const whole_product *w, int way, const array_view *arrays,
                              const launch_plan *plan, cuda_matmul **m, const char **why, qn_error *error)
{
    cuda_matmul *fresh = heap_new(sizeof(*fresh));
    int mode;
    cuda_matmul_free(d, *m);
    *m = NULL;
    fresh->product = w;
    fresh->problem.way = way;
    *why = whole_numbers_of(w, arrays, plan, &fresh->numbers);
    if (!*why) *why = form(fresh);
    if (*why) {
        cuda_matmul_free(d, fresh);
        return QN_OK;
    }
    place(fresh);
    cuda_relax(d, &mode);
    qn_status status = start(d, error);
    if (status == QN_OK) *why = describe(d, fresh) ? "cuBLASLt does not know these matrices" : choose(d, fresh);
    cuda_relaxed(d, mode);
    if (status != QN_OK || *why) {
        cuda_matmul_free(d, fresh);
        return status;
    }
    text name = {0};
    text_add(&name, "cublaslt ");
    whole_print(w, &fresh->numbers, &name);
    fresh->name = record_name(text_get(&name));
    text_free(&name);
    *m = fresh;
    return QN_OK;
}

bool cuda_matmul_move(cuda_device *d, cuda_matmul *m, const array_view *arrays)
{
    const whole_product *w = m->product;
    const problem before = m->problem;
    m->numbers.left.data = arrays[w->left.param].data;
    m->numbers.right.data = arrays[w->right.param].data;
    m->numbers.result.data = arrays[w->result.param].data;
    if (w->bias >= 0) m->numbers.bias = arrays[w->bias].data;
    place(m);
    if (set_bias(d, m)) return false;
    bool fits = true, found = true;
    for (int i = 0; i < COUNT(before.alignment); i++) fits &= m->problem.alignment[i] >= before.alignment[i];
    if (fits) {
        m->problem = before; /* what the way was chosen for: it allows all that is aligned as well or better */
    } else {
        int mode;
        cuda_relax(d, &mode);
        found = !choose(d, m);
        cuda_relaxed(d, mode);
    }
    return found;
}

size_t cuda_matmul_workspace(const cuda_matmul *m)
{
    return m->chosen.workspace_bytes;
}

const char *cuda_matmul_name(const cuda_matmul *m)
{
    return m->name;
}

const char *cuda_matmul_submit(cuda_device *d, const cuda_matmul *m, uint64_t workspace, void *stream)
{
    static const float one = 1;
    static const double one_f64 = 1, zero = 0; /* the bytes of all zeros are the same */
    static const int32_t one_i32 = 1;
    const void *factor = &one;
    if (m->problem.scale == CUBLAS_F64) factor = &one_f64;
    if (m->problem.scale == CUBLAS_I32) factor = &one_i32;
    int result = d->api.cublasLtMatmul(d->library, m->descriptor, factor, m->a, m->layouts[0], m->b, m->layouts[1],
                                       &zero, m->d, m->layouts[2], m->d, m->layouts[2], m->chosen.algorithm,
                                       (void *)(uintptr_t)workspace, m->chosen.workspace_bytes, stream);
    return result ? words_of(d, result) : NULL;
}
