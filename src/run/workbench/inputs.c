/*
 * Generated inputs. In: the `input` clauses of a bench (or the default by type), a seed and a parameter's name. Out:
 * the elements of its array. Element i depends on the seed, the name, the generator and i alone: not on strides,
 * threads or the machine, so every device and every view sees the same numbers. Philox gives the words: key = seed,
 * offset = hash of the name. SPDX-License-Identifier: MIT
 */
#include "run/run.h"
#include "ir/scalar.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 1024          /* elements made at a time */
#define PARALLEL_BLOCKS 256 /* fewer are not worth a thread */

typedef enum generator_kind {
    GEN_NORMAL,
    GEN_UNIFORM,
    GEN_INTEGERS,
    GEN_CONSTANT,
    GEN_RAMP,
    GEN_PERMUTATION,
    GEN_WHOLE /* of the type's range, extremes often; no clause names it */
} generator_kind;
static const struct {
    const char *name;
    int arguments;
} generators[] = {
    [GEN_NORMAL] = {"normal", 2},     [GEN_UNIFORM] = {"uniform", 2}, [GEN_INTEGERS] = {"integers", 2},
    [GEN_CONSTANT] = {"constant", 1}, [GEN_RAMP] = {"ramp", 0},       [GEN_PERMUTATION] = {"permutation", 0}};

const ast *bench_of(const ast_file *file, const char *kernel)
{
    return file ? map_get(file->benches, kernel) : NULL;
}

const ast *clause_of(const ast *item, const char *word)
{
    for (int i = 0; item && i < item->clauses.count; i++)
        if (item->clauses.items[i]->word && !strcmp(item->clauses.items[i]->word, word)) return item->clauses.items[i];
    return NULL;
}

/* A random 64-bit word scaled to 0 .. span-1. */
static uint64_t scaled(uint64_t word, uint64_t span)
{
    __extension__ typedef unsigned __int128 wide;
    return (uint64_t)(((wide)word * span) >> 64);
}

/* One array being filled. */
typedef struct job {
    generator_kind kind;
    double low, high; /* normal: mean and deviation; uniform: bounds; constant: the value */
    int64_t integer_low;
    uint64_t span; /* integers */
    uint64_t seed, offset;
    const array_view *view;
    int64_t count;
    const int64_t *order; /* permutation */
    bool contiguous;
} job;

/* log of x in (0, 1], good to about 1e-7 absolute: an atanh series on the mantissa. Plain arithmetic, so it vectorises.
 */
static inline float fast_log(float x)
{
    union {
        float f;
        int32_t i;
    } u = {x};
    int32_t exponent = (u.i - 0x3f3504f3) >> 23; /* mantissa in [sqrt(1/2), sqrt(2)) */
    u.i -= exponent * (1 << 23);
    float s = (u.f - 1) / (u.f + 1), z = s * s;
    return 2 * s * (1 + z * (1.f / 3 + z * (1.f / 5 + z * (1.f / 7 + z * (1.f / 9))))) + (float)exponent * 0.693147181f;
}

/* sin and cos of a quarter turn times t, |t| <= 1/2, by their series. */
static inline float quarter_sin(float t)
{
    float a = t * 1.57079633f, z = a * a;
    return a * (1 + z * (-1.f / 6 + z * (1.f / 120 + z * (-1.f / 5040))));
}

static inline float quarter_cos(float t)
{
    float a = t * 1.57079633f, z = a * a;
    return 1 + z * (-1.f / 2 + z * (1.f / 24 + z * (-1.f / 720 + z * (1.f / 40320))));
}

/* Box and Muller: two words give two normal numbers. */
static void normal_pairs(const uint32_t *words, double *out, double mean, double deviation)
{
    for (int i = 0; i < BLOCK; i += 2) {
        float u = ((float)(words[i] >> 8) + 0.5f) * (1.f / 16777216), radius = sqrtf(-2 * fast_log(u));
        uint32_t turn = words[i + 1], quarter = (turn + 0x20000000u) >> 30;
        float t = (float)(int32_t)(turn - (quarter << 30)) * (1.f / 1073741824);
        float s = quarter_sin(t), c = quarter_cos(t);
        float sine = quarter & 1 ? c : s, cosine = quarter & 1 ? -s : c;
        if (quarter & 2) {
            sine = -sine;
            cosine = -cosine;
        }
        out[i] = mean + deviation * (double)(radius * cosine);
        out[i + 1] = mean + deviation * (double)(radius * sine);
    }
}

static void *element_at(const job *j, int64_t index)
{
    const array_view *v = j->view;
    return j->contiguous ? (char *)v->data + index * dtypes[v->elem].size_bytes : view_element(v, index);
}

static void store_floats(const job *j, int64_t first, int64_t count, const double *from)
{
    dtype elem = j->view->elem;
    if (j->contiguous && elem == DT_F32) {
        float *to = element_at(j, first);
        for (int64_t i = 0; i < count; i++) to[i] = (float)from[i];
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        bool whole = dtype_is_integer(elem);
        number n = scalar_from_double(elem, whole ? floor(from[i] + (j->kind == GEN_NORMAL ? 0.5 : 0)) : from[i]);
        element_write(elem, element_at(j, first + i), n);
    }
}

static void store_integers(const job *j, int64_t first, int64_t count, const int64_t *from)
{
    dtype elem = j->view->elem;
    for (int64_t i = 0; i < count; i++) {
        number n = {.i = from[i], .f = (double)from[i]};
        if (elem == DT_BOOL)
            n.i = from[i] != 0;
        else if (!dtype_is_float(elem))
            n.i = integer_wrap(elem, from[i]);
        element_write(elem, element_at(j, first + i), n);
    }
}

/* The first numbers, and a quarter of the others, are those where arithmetic goes wrong first; the rest have any number
 * of bits. */
static int64_t any_integer(dtype elem, int64_t index, uint32_t word)
{
    int bits = 8 * dtypes[elem].size_bytes;
    bool is_signed = dtypes[elem].kind == KIND_INT;
    int64_t most = (int64_t)(UINT64_MAX >> (64 - bits + is_signed));
    const int64_t extremes[] = {most, is_signed ? -most - 1 : 0, is_signed ? -1 : 1, 1, 0};
    if (index < COUNT(extremes)) return extremes[index];
    if (word % 4 == 0) return extremes[(word >> 2) % COUNT(extremes)];
    uint64_t mixed = (uint64_t)word * 0x9e3779b97f4a7c15u;
    return integer_wrap(elem, (int64_t)mixed >> (word >> 8) % (uint32_t)bits);
}

/* Blocks first .. last-1 of the array. */
static void make_blocks(void *context, int64_t first, int64_t last, int worker)
{
    const job *j = context;
    uint32_t words[BLOCK];
    double floats[BLOCK];
    int64_t integers[BLOCK];
    for (int64_t block = first; block < last; block++) {
        int64_t start = block * BLOCK, count = MINIMUM(BLOCK, j->count - start);
        if (j->kind <= GEN_INTEGERS || j->kind == GEN_WHOLE)
            for (int i = 0; i < BLOCK; i += 4) philox_words(j->seed, j->offset, (uint64_t)(start + i) / 4, words + i);
        switch (j->kind) {
        case GEN_NORMAL: normal_pairs(words, floats, j->low, j->high); break;
        case GEN_UNIFORM:
            for (int i = 0; i < BLOCK; i++) floats[i] = j->low + (j->high - j->low) * ((words[i] + 0.5) * 0x1p-32);
            break;
        case GEN_INTEGERS:
            if (j->span <= UINT32_MAX) {
                for (int i = 0; i < BLOCK; i++)
                    integers[i] = (int64_t)((uint64_t)j->integer_low + ((words[i] * j->span) >> 32));
            } else {
                for (int i = 0; i < BLOCK; i++) { /* two words an element: its own and a second Philox stream */
                    uint32_t more[4];
                    philox_words(j->seed, ~j->offset, (uint64_t)(start + i), more);
                    uint64_t word = (uint64_t)words[i] << 32 | more[0];
                    integers[i] = (int64_t)((uint64_t)j->integer_low + scaled(word, j->span));
                }
            }
            break;
        case GEN_CONSTANT:
            for (int i = 0; i < BLOCK; i++) floats[i] = j->low;
            break;
        case GEN_RAMP:
            for (int i = 0; i < BLOCK; i++) integers[i] = start + i;
            break;
        case GEN_WHOLE:
            for (int i = 0; i < BLOCK; i++) integers[i] = any_integer(j->view->elem, start + i, words[i]);
            break;
        case GEN_PERMUTATION:
            for (int64_t i = 0; i < count; i++) integers[i] = j->order[start + i];
            break;
        }
        if (j->kind == GEN_NORMAL || j->kind == GEN_UNIFORM || j->kind == GEN_CONSTANT)
            store_floats(j, start, count, floats);
        else
            store_integers(j, start, count, integers);
    }
}

/* Fisher and Yates, from the end. */
static int64_t *shuffle(uint64_t seed, uint64_t offset, int64_t count)
{
    int64_t *order = malloc(sizeof(*order) * (size_t)MAXIMUM(count, 1));
    if (!order) return NULL;
    for (int64_t i = 0; i < count; i++) order[i] = i;
    for (int64_t i = count - 1; i > 0; i--) {
        uint32_t words[4];
        philox_words(seed, offset, (uint64_t)i, words);
        int64_t with = (int64_t)scaled((uint64_t)words[0] << 32 | words[1], (uint64_t)i + 1), swap = order[i];
        order[i] = order[with];
        order[with] = swap;
    }
    return order;
}

static qn_status clause_error(const ast_file *file, const ast *at, error_code code, const char *advice, qn_error *error,
                              const char *message)
{
    arena *memory = arena_new();
    diagnostics d = {.memory = memory};
    diagnose(&d, code, at->at, advice, "%s", message);
    diagnostics_error(&d, file, QN_BAD_CALL, error);
    arena_free(memory);
    return QN_BAD_CALL;
}

static qn_status evaluate(const ast_file *file, const ast *expression, const bindings *known, int units, binding *out,
                          qn_error *error)
{
    arena *memory = arena_new();
    diagnostics d = {.memory = memory};
    const char *unbound = NULL;
    qn_status status = QN_OK;
    if (!lang_evaluate(file, expression, known, units, &d, out, &unbound) || d.errors) {
        text words = {0};
        text_print(&words, "the input needs `%s`, which is not known here", unbound ? unbound : "");
        status = unbound ? clause_error(file, expression, E505, "use extents, constants and scalar parameters", error,
                                        text_get(&words))
                         : diagnostics_error(&d, file, QN_BAD_CALL, error);
        text_free(&words);
    }
    arena_free(memory);
    return status;
}

static double as_float(const binding *b)
{
    return b->kind == BIND_FLOAT ? b->number.f : (double)b->number.i;
}

static int64_t as_integer(const binding *b)
{
    return b->kind == BIND_FLOAT ? (int64_t)b->number.f : b->number.i;
}

/* The generator's kind and arguments into the job. */
static qn_status read_generator(const ast_file *file, const ast *expression, const bindings *known, int units, job *j,
                                qn_error *error)
{
    binding arguments[2] = {0};
    if (expression->kind != AST_CALL || !expression->left || expression->left->kind != AST_NAME) {
        QN_TRY(evaluate(file, expression, known, units, &arguments[0], error)); /* a bare number is constant(number) */
        j->kind = GEN_CONSTANT;
        j->low = as_float(&arguments[0]);
        return QN_OK;
    }
    const char *names[COUNT(generators)];
    int kind = -1;
    for (int i = 0; i < COUNT(generators); i++) {
        names[i] = generators[i].name;
        if (!strcmp(names[i], expression->left->name)) kind = i;
    }
    if (kind < 0) {
        char message[300], advice[300];
        const char *near = suggest_name(expression->left->name, names, COUNT(generators));
        snprintf(message, sizeof(message), "unknown generator `%s`", expression->left->name);
        if (near)
            snprintf(advice, sizeof(advice), "did you mean `%s`?", near);
        else
            snprintf(advice, sizeof(advice),
                     "the generators are normal, uniform, integers, constant, ramp, permutation");
        return clause_error(file, expression, E218, advice, error, message);
    }
    int count = expression->list.count, wanted = generators[kind].arguments;
    bool defaulted = count == 0 && (kind == GEN_NORMAL || kind == GEN_INTEGERS);
    if (count != wanted && !defaulted) {
        char message[200];
        snprintf(message, sizeof(message), "`%s` takes %d argument%s, got %d", names[kind], wanted,
                 wanted == 1 ? "" : "s", count);
        return clause_error(file, expression, E213, NULL, error, message);
    }
    for (int i = 0; i < count; i++)
        QN_TRY(evaluate(file, expression->list.items[i], known, units, &arguments[i], error));
    j->kind = (generator_kind)kind;
    if (defaulted) return QN_OK; /* the job holds the defaults */
    j->low = as_float(&arguments[0]);
    j->high = as_float(&arguments[1]);
    if (kind != GEN_INTEGERS) return QN_OK;
    int64_t low = as_integer(&arguments[0]), high = as_integer(&arguments[1]);
    j->integer_low = low;
    j->span = (uint64_t)high - (uint64_t)low;
    if (high > low || j->count == 0) return QN_OK;
    char message[200];
    snprintf(message, sizeof(message), "integers(%lld, %lld) is empty: the upper bound is excluded", (long long)low,
             (long long)high);
    return clause_error(file, expression, E510, "give an upper bound above the lower one", error, message);
}

static qn_status fill(const ast_file *file, const ast *generator, bool whole, const bindings *known, int units,
                      const char *name, uint64_t seed, const array_view *view, qn_error *error)
{
    hash128 hash = hash_bytes(name, strlen(name));
    job j = {.kind = dtype_is_float(view->elem) ? GEN_NORMAL : GEN_INTEGERS,
             .high = 1,
             .span = 2,
             .seed = seed,
             .offset = hash.low,
             .view = view,
             .count = view_count(view),
             .contiguous = view_is_row_major(view)};
    if (whole && dtype_is_integer(view->elem)) j.kind = GEN_WHOLE;
    if (generator) QN_TRY(read_generator(file, generator, known, units, &j, error));
    if (!j.count) return QN_OK;
    int64_t *order = NULL;
    if (j.kind == GEN_PERMUTATION) {
        j.order = order = shuffle(j.seed, j.offset, j.count);
        if (!order) return error_set(error, QN_NO_MEMORY, "no memory to generate `%s`", name);
    }
    int64_t blocks = (j.count + BLOCK - 1) / BLOCK;
    if (blocks < 2 * PARALLEL_BLOCKS) {
        make_blocks(&j, 0, blocks, 0);
    } else {
        pool *p = pool_new(cpu_count());
        pool_run(p, blocks, PARALLEL_BLOCKS, make_blocks, &j);
        pool_free(p);
    }
    heap_free(order);
    return QN_OK;
}

qn_status input_fill(const ast_file *file, const ast *generator, const bindings *known, int units, const char *name,
                     uint64_t seed, const array_view *view, qn_error *error)
{
    return fill(file, generator, false, known, units, name, seed, view, error);
}

void call_known(const qn_call *call, arena *memory, bindings *known)
{
    const instance *i = call->instance;
    for (int k = 0; k < i->constants.count; k++) bindings_set(memory, known, i->constants.items[k]);
    for (int p = 0; p < i->kernel->param_count; p++) {
        const tile_param *param = &i->kernel->params[p];
        if (param->kind < PARAM_SCALAR) continue;
        binding b = {.name = param->name, .type = param->elem};
        int64_t bits = call->plan.scalars_bits[p];
        if (dtype_is_float(param->elem)) {
            b.kind = BIND_FLOAT;
            memcpy(&b.number.f, &bits, sizeof(bits));
        } else {
            b.kind = param->elem == DT_BOOL ? BIND_BOOL : BIND_INT;
            b.number.i = bits;
        }
        bindings_set(memory, known, b);
    }
}

static qn_status generate(qn_call *call, uint64_t seed, bool whole, int slot, const bindings *known, qn_error *error)
{
    const tile_kernel *k = call->instance->kernel;
    const ast_file *file = call->kernel->module->file;
    const ast *clause = clause_of(bench_of(file, call->kernel->name), "input");
    int units = slot_about(call->context, slot)->units;
    for (int i = 0; i < k->param_count; i++) {
        if (k->params[i].kind != PARAM_IN && k->params[i].kind != PARAM_INOUT) continue;
        argument *a = &call->arguments[call->declared[i]];
        if (a->given) continue;
        const ast *generator = NULL;
        for (int s = 0; clause && s < clause->list.count; s++)
            if (!strcmp(clause->list.items[s]->name, k->params[i].name)) generator = clause->list.items[s]->left;
        QN_TRY(call_allocate(call, call->declared[i], &call->views[i], error));
        bool any = whole && dtype_is_integer(k->params[i].elem) &&
                   (call_is_function(call) ? call->instance->any[call->declared[i]] : integers_may_be_any(k, i));
        QN_TRY(fill(file, generator, any, known, units, k->params[i].name, seed, &call->views[i], error));
        a->generated = true;
    }
    return QN_OK;
}

qn_status call_generate(qn_call *call, uint64_t seed, bool whole, qn_error *error)
{
    for (int i = 0; i < call->argument_count; i++) call->arguments[i].generated = false;
    int slot = context_cheap_slot(call->context); /* no GPU is woken for this */
    QN_TRY(call_bind(call, slot, true, error));
    arena *memory = arena_new();
    bindings known = {0};
    call_known(call, memory, &known);
    qn_status status = generate(call, seed, whole, slot, &known, error);
    arena_free(memory);
    call_unbind(call);
    return status;
}

qn_status qn_call_generate(qn_call *call, uint64_t seed, qn_error *error)
{
    HEAP_ENTER(error);
    if (!call) return error_set(error, QN_BAD_CALL, "qn_call_generate: the call is NULL");
    return call_generate(call, seed, false, error);
}
