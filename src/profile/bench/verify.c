/*
 * Which variants are right. First in full at two small sizes, odd and even, against the reference variant under the
 * checking interpreter in double precision. Then at the bench's own size: each kernel against the interpreter on a
 * sample of its own programs, and each variant against the first one in full. Raw kernels have no IR, and kernels whose
 * programs need each other (phases, atomics) cannot be sampled: for these the second must do. A wrong variant is never
 * timed.
 *
 * What is discrete has no nearly: a float on the border of two bins is in one of them in float and in the other one in
 * double, and both are right. Such kernels are compared with the interpreter in their own precision.
 * SPDX-License-Identifier: MIT
 */
#include "profile/bench/bench.h"

#include <math.h>
#include <string.h>

enum { MOST_SAMPLES = 256 };
static const double sample_work = 3e7,
                    most_work = 4e8; /* element operations of the interpreter: a second or two at most */

static void tolerance_of(const bench *b, dtype elem, double *relative, double *absolute)
{
    *relative = dtype_tolerance(elem);
    *absolute = 0;
    if (!b->tolerance_given || !dtype_is_float(elem)) return;
    /* A tolerance is written for the bench's wider types: a 16-bit output is never asked for less than its own. */
    bool narrow = dtype_is_narrow(elem);
    *relative = narrow ? MAXIMUM(*relative, b->relative) : b->relative;
    *absolute = b->absolute;
}

/* Arrays of a GPU may have billions of elements, which the host would look at for seconds: of such an output, pieces
 * spread over all of it are compared. */
enum { WHOLE = 1 << 24, PIECES = 256, PIECE = 1 << 14 };

static void compare_array(const bench *b, const bench_array *array, const void *before, comparison *out)
{
    double relative, absolute;
    tolerance_of(b, array->elem, &relative, &absolute);
    if (before || array->count <= WHOLE || !b->context->slots[b->slot].driver->memory) {
        compare_elements(array->elem, array->first, array->expected, before, array->before ? 1 : 0, array->count,
                         relative, absolute, out);
        return;
    }
    size_t size = (size_t)dtypes[array->elem].size_bytes;
    *out = (comparison){.first_wrong = -1};
    for (int i = 0; i < PIECES; i++) {
        comparison one;
        int64_t start = i == PIECES - 1 ? array->count - PIECE : array->count / PIECES * i;
        compare_elements(array->elem, (char *)array->first + (size_t)start * size,
                         (char *)array->expected + (size_t)start * size, NULL, 0, PIECE, relative, absolute, &one);
        if (one.wrong && !out->wrong) {
            out->first_wrong = start + one.first_wrong;
            out->first_actual = one.first_actual;
            out->first_expected = one.first_expected;
        }
        out->wrong += one.wrong;
        out->compared += one.compared;
        out->max_error = MAXIMUM(out->max_error, one.max_error);
    }
}

static void element_print(const bench_array *array, int64_t number, text *out)
{
    text_add(out, array->name);
    for (int axis = 0; axis < array->rank; axis++) {
        int64_t below = 1;
        for (int k = axis + 1; k < array->rank; k++) below *= array->extents[k];
        text_print(out, "[%lld]", (long long)(number / below % MAXIMUM(array->extents[axis], 1)));
    }
}

/* Is this float the same number in float and in double: given, or a constant? */
static bool is_given(const tile_kernel *k, value v)
{
    for (const tile_op *op = k->values[v].op; op; op = k->values[v].op) {
        if (op->code == OP_LOAD || ops[op->code].class == CLASS_LEAF) return true;
        int size = dtypes[tile_type_of(k, v).elem].size_bytes;
        v = op->operands[0];
        bool widens = op->code == OP_CONVERT && size >= dtypes[tile_type_of(k, v).elem].size_bytes;
        if (!widens && op->code != OP_NEG && op->code != OP_ABS && ops[op->code].class != CLASS_SHAPE) return false;
    }
    return false;
}

/* Does a little difference of this op's floats make a whole one: is a number of another kind, a step or a remainder made of
 * them, or are computed ones compared? */
static void find_discrete(tile_kernel *k, tile_block *b, tile_op *op, void *context)
{
    bool *found = context;
    if (op->code == OP_BITCAST || !op->operand_count) return;
    bool steps = op->code == OP_FLOOR || op->code == OP_CEIL || op->code == OP_ROUND || op->code == OP_SIGN ||
                 op->code == OP_MOD || ops[op->code].class == CLASS_COMPARE;
    for (int a = 0; a < op->operand_count && steps; a++)
        *found |= dtype_is_float(tile_type_of(k, op->operands[a]).elem) && !is_given(k, op->operands[a]);
    for (int i = 0; i < op->result_count; i++) {
        if (!dtype_is_integer(tile_type_of(k, op->results[i]).elem)) continue;
        for (int a = 0; a < op->operand_count; a++)
            if (op->operands[a] && dtype_is_float(tile_type_of(k, op->operands[a]).elem)) *found |= !op->region_count;
    }
}

/* Whether the interpreter keeps double precision between the ops of this call. Not where that would be another answer:
 * integers come out, a step is made of computed floats, or the kernel promises how it rounds. A tensor function rounds
 * every op. */
static bool in_double(const qn_call *call)
{
    tile_kernel *k = call->instance->kernel;
    bool discrete = false;
    if (call_is_function(call) || k->precise) return false;
    for (int i = 0; i < k->param_count; i++)
        if (k->params[i].kind == PARAM_OUT || k->params[i].kind == PARAM_INOUT)
            discrete |= !dtype_is_float(k->params[i].elem);
    for (int i = 0; i < k->phase_count; i++) tile_walk(k, k->phases[i], find_discrete, &discrete);
    return !discrete;
}

static const char *precision_words(const qn_call *call)
{
    return in_double(call) ? "computed in double" : "rounded to its own types";
}

/* One output against what it should be; only where `expected` was written when sampled. */
static void compare_output(bench *b, bench_variant *v, const bench_array *array, bool sampled, const point *at,
                           const char *whom)
{
    static const char unwritten[8] = {(char)UNWRITTEN, (char)UNWRITTEN, (char)UNWRITTEN, (char)UNWRITTEN,
                                      (char)UNWRITTEN, (char)UNWRITTEN, (char)UNWRITTEN, (char)UNWRITTEN};
    comparison c;
    const void *before = !sampled ? NULL : array->before ? array->before : unwritten;
    compare_array(b, array, before, &c);
    if (c.compared && !(v->max_error >= c.max_error)) v->max_error = c.max_error;
    if (!c.wrong || v->status != VARIANT_OK) return;
    text place = {0}, size = {0}, allowed = {0};
    double relative, absolute;
    tolerance_of(b, array->elem, &relative, &absolute);
    element_print(array, c.first_wrong, &place);
    point_print(at, &size);
    if (dtype_is_float(array->elem))
        text_print(&allowed, "tolerance %.3g relative, %.3g absolute", relative, absolute);
    else
        text_print(&allowed, "tolerance 0: %s must be equal", array->elem == DT_BOOL ? "truths" : "integers");
    variant_end(b, v, VARIANT_WRONG, "%s is %.9g, the reference has %.9g (%s; %s); %lld of %lld elements differ, at %s",
                text_get(&place), c.first_actual, c.first_expected, whom, text_get(&allowed), (long long)c.wrong,
                (long long)c.compared, text_get(&size));
    text_free(&place);
    text_free(&size);
    text_free(&allowed);
}

static bool writes(const qn_call *call, const char *name)
{
    const parameter *p = entry_param(call->kernel, name, NULL);
    return p && (p->kind == PARAM_OUT || p->kind == PARAM_INOUT);
}

/* Every output that this call and the one it is compared with both have. */
static void compare_outputs(bench *b, bench_variant *v, const qn_call *call, const qn_call *other,
                            const bench_arrays *a, bool sampled, const point *at, const char *whom)
{
    for (int i = 0; i < a->count; i++)
        if (writes(call, a->items[i].name) && writes(other, a->items[i].name))
            compare_output(b, v, &a->items[i], sampled, at, whom);
}

/* Swaps the results of copy 0 into `expected`. */
static void keep_expected(bench_arrays *a)
{
    for (int i = 0; i < a->count; i++) {
        bench_array *array = &a->items[i];
        if (!array->writes) continue;
        void *result = array->first;
        array->first = array->expected;
        array->expected = result;
    }
}

/* Calls of all variants at one point, their arrays collected and filled. A variant that does not bind fails, unless the
 * size is not the bench's own: then it may refuse it, and has no call. */
static qn_status open_calls(bench *b, const point *at, qn_call **calls, bench_arrays *arrays, bool small,
                            qn_error *error)
{
    int filled_from = -1;
    for (int i = 0; i < b->variant_count; i++) {
        bench_variant *v = &b->variants[i];
        char why[256];
        calls[i] = NULL;
        if (v->status != VARIANT_OK) continue;
        qn_status status = plan_call(b, v, at, &calls[i], error);
        if (status == QN_OK) status = call_bind(calls[i], b->slot, true, error);
        if (status != QN_OK) {
            if (i == b->reference) return status;
            if (!small || status != QN_BAD_CALL) variant_end(b, v, VARIANT_FAILED, "%s", error->message);
            qn_call_free(calls[i]);
            calls[i] = NULL;
        } else if (!arrays_add(arrays, calls[i], why, sizeof(why))) {
            variant_end(b, v, VARIANT_SKIPPED, "%s", why);
        } else if (filled_from < 0) {
            filled_from = i;
        }
    }
    if (filled_from < 0) return QN_OK;
    QN_TRY(arrays_allocate(arrays, 1, error));
    return arrays_fill(b, arrays, calls[filled_from], error);
}

static void close_calls(bench *b, qn_call **calls)
{
    for (int i = 0; i < b->variant_count; i++) {
        qn_call_free(calls[i]);
        calls[i] = NULL;
    }
}

/* The reference under the checking interpreter: its results become what is expected. */
static qn_status run_reference(bench *b, qn_call *call, bench_arrays *arrays, qn_error *error)
{
    bench_variant *v = &b->variants[b->reference];
    interp_options interp = {.exact = in_double(call),
                             .check = true,
                             .order_seed = b->options->seed + 1,
                             .units = slot_about(b->context, b->ref_slot)->units};
    findings found = {0};
    launch_options options = {.interp = &interp, .found = &found};
    arrays_reset(arrays);
    QN_TRY(arrays_attach(arrays, call, 0, error));
    qn_mode mode = call->mode;
    call->mode = QN_EAGER; /* of a tensor function */
    qn_status status = call_launch(call, b->ref_slot, &options, error);
    call->mode = mode;
    if (found.count && v->status == VARIANT_OK)
        variant_end(b, v, VARIANT_WRONG, "line %d: R%d: %s", found.items[0].line, found.items[0].code,
                    found.items[0].message);
    findings_free(&found);
    if (status == QN_OK || status == QN_FINDING) keep_expected(arrays);
    return status == QN_FINDING ? QN_OK : status;
}

static void run_variant(bench *b, bench_variant *v, qn_call *call, bench_arrays *arrays)
{
    qn_error error;
    arrays_reset(arrays);
    qn_status status = arrays_attach(arrays, call, 0, &error);
    if (status == QN_OK) status = call_launch(call, b->slot, NULL, &error);
    if (status == QN_NO_DEVICE)
        variant_end(b, v, VARIANT_SKIPPED, "%s", error.message);
    else if (status != QN_OK)
        variant_end(b, v, VARIANT_FAILED, "%s", error.message);
}

static qn_status verify_size(bench *b, const point *at, qn_error *error)
{
    bench_arrays *arrays = ARENA_NEW(b->memory, bench_arrays);
    qn_call **calls = ARENA_ARRAY(b->memory, qn_call *, b->variant_count);
    qn_status status = open_calls(b, at, calls, arrays, true, error);
    if (status == QN_OK && b->variants[b->reference].status == VARIANT_OK)
        status = run_reference(b, calls[b->reference], arrays, error);
    for (int i = 0; i < b->variant_count && status == QN_OK; i++) {
        bench_variant *v = &b->variants[i];
        if (v->status != VARIANT_OK || !calls[i]) continue;
        if (!calls[b->reference]) { /* it could not even be prepared */
            variant_end(b, v, VARIANT_SKIPPED, "nothing to compare it with: the reference `%s` failed",
                        b->variants[b->reference].label);
            continue;
        }
        bench_say(b, "checking %s", v->label);
        run_variant(b, v, calls[i], arrays);
        if (v->status != VARIANT_OK) continue;
        const char *whom = arena_print(b->memory, "`%s` on ref, %s", b->variants[b->reference].label,
                                       precision_words(calls[b->reference]));
        compare_outputs(b, v, calls[i], calls[b->reference], arrays, false, at, whom);
    }
    close_calls(b, calls);
    arrays_free(arrays);
    return status;
}

qn_status verify_small(bench *b, qn_error *error)
{
    if (b->reference < 0 || b->ref_slot < 0)
        return QN_OK; /* raw kernels alone: compared with each other at full size */
    for (int odd = 1; odd >= 0; odd--) {
        point small;
        qn_status status = QN_OK;
        for (int attempt = 0; point_shrink(b, &b->at, odd, attempt, &small); attempt++) {
            status = verify_size(b, &small, error);
            if (status != QN_BAD_CALL) break; /* a size that an `assume` or a relation refuses: another one */
        }
        if (status != QN_OK && status != QN_BAD_CALL) {
            variant_end(b, &b->variants[b->reference], VARIANT_FAILED, "%s", error->message);
            return QN_OK;
        }
    }
    return QN_OK;
}

/* The first, the last, and others spread between them. */
static int choose_programs(double programs, double work, double most, int64_t *chosen)
{
    double affordable = most / MAXIMUM(work, 1);
    int count = (int)MINIMUM(MINIMUM(programs, MOST_SAMPLES), MAXIMUM(affordable, 1));
    int64_t total = (int64_t)programs;
    if (count >= total) {
        for (int i = 0; i < total; i++) chosen[i] = i;
        return (int)total;
    }
    /* One in each of `count` equal parts, so that no program is run twice (it may work in place). */
    int64_t part = total / count;
    for (int i = 0; i < count; i++)
        chosen[i] = i * part + (i ? (int64_t)((uint64_t)i * 2654435761u % (uint64_t)part) : 0);
    if (count > 1) chosen[count - 1] = total - 1;
    return count;
}

/* This kernel's own programs under the interpreter, into `expected`; false: it cannot be sampled. */
static bool sample_reference(bench *b, bench_variant *v, qn_error *error)
{
    launch_counts counts;
    int64_t chosen[MOST_SAMPLES];
    if (!v->call || !v->has_ir || b->ref_slot < 0 || b->ref_slot == b->slot) return false;
    launch_count(v->call->instance->kernel, &v->call->plan, slot_about(b->context, b->slot)->units, &counts);
    if (!counts.separable || counts.work > most_work || counts.programs < 1) return false;
    interp_options interp = {
        .exact = in_double(v->call), .only_programs = chosen, .units = slot_about(b->context, b->ref_slot)->units};
    findings found = {0};
    launch_options options = {.interp = &interp, .found = &found};
    bool far = b->context->slots[b->slot].driver->memory != NULL; /* a GPU waits while the interpreter works */
    interp.only_count = choose_programs(counts.programs, counts.work, far ? sample_work / 10 : sample_work, chosen);
    keep_expected(&b->arrays); /* the device's result waits in `expected` */
    arrays_reset(&b->arrays);
    qn_call *call = NULL;
    qn_status status = plan_call(b, v, &b->at, &call, error);
    if (status == QN_OK) status = arrays_attach(&b->arrays, call, 0, error);
    if (status == QN_OK) status = call_bind(call, b->ref_slot, false, error);
    /* A launch that asks for units() may have other programs on another device: then there is nothing to compare. */
    bool alike = status == QN_OK && !memcmp(call->plan.programs[0], v->call->plan.programs[0], sizeof(int64_t[3]));
    if (alike) status = call_launch(call, b->ref_slot, &options, error);
    qn_call_free(call);
    findings_free(&found);
    keep_expected(&b->arrays);
    if (status != QN_OK) variant_end(b, v, VARIANT_FAILED, "%s", error->message);
    return alike || status != QN_OK;
}

/* The first right variant's results at full size, for those that cannot be sampled. */
static bool save_first(bench_arrays *a, bench_arrays *first, qn_error *error)
{
    *first = *a;
    for (int i = 0; i < a->count; i++) {
        bench_array *array = &first->items[i];
        array->expected = NULL;
        if (!array->writes) continue;
        array->expected = memory_allocate(array->size_bytes + 64);
        if (!array->expected) return error_set(error, QN_NO_MEMORY, "no memory for the first variant's results"), false;
        memcpy(array->expected, array->first, array->size_bytes);
    }
    return true;
}

static void free_first(bench_arrays *first)
{
    for (int i = 0; i < first->count; i++) memory_free(first->items[i].expected);
    first->count = 0;
}

/* A variant that was to be the library's, and is not. */
static void end_without_library(bench *b, bench_variant *v)
{
    const char *why = "";
    if (v->status != VARIANT_OK || !v->asks_library || call_library(v->call, &why)) return;
    variant_end(b, v, VARIANT_SKIPPED, "the library does not compute it: %s", why);
}

/* All variants of a block compute the same: of the library's one is enough, or the reason why there is none. */
static void drop_peers(bench *b)
{
    const bench_variant *kept = NULL;
    int count = 0;
    for (int i = 0; i < b->variant_count; i++) {
        const bench_variant *v = &b->variants[i];
        if (v->peer && (!kept || (kept->status != VARIANT_OK && v->status == VARIANT_OK))) kept = v;
    }
    for (int i = 0; i < b->variant_count; i++) {
        const bench_variant *v = &b->variants[i];
        if (v->peer && v != kept)
            qn_call_free(v->call);
        else
            b->variants[count++] = *v;
    }
    b->variant_count = count;
}

qn_status verify_full(bench *b, qn_error *error)
{
    bench_arrays first = {0};
    const bench_variant *leader = NULL; /* the first that is right */
    qn_status status = QN_OK;
    qn_call **calls = ARENA_ARRAY(b->memory, qn_call *, b->variant_count);
    status = open_calls(b, &b->at, calls, &b->arrays, false, error);
    for (int i = 0; i < b->variant_count; i++) b->variants[i].call = calls[i];
    if (status != QN_OK && b->reference >= 0) {
        variant_end(b, &b->variants[b->reference], VARIANT_FAILED, "%s", error->message);
        for (int i = 0; i < b->variant_count; i++)
            if (b->variants[i].status == VARIANT_OK)
                variant_end(b, &b->variants[i], VARIANT_FAILED, "the reference could not be prepared");
        return QN_OK;
    }
    QN_TRY(status);
    for (int i = 0; i < b->variant_count && status == QN_OK; i++) {
        bench_variant *v = &b->variants[i];
        if (v->status != VARIANT_OK) continue;
        bench_say(b, "checking %s at full size", v->label);
        run_variant(b, v, v->call, &b->arrays);
        v->arm.time.first_ns = (double)v->call->timing.kernel_ns;
        end_without_library(b, v);
        if (v->status != VARIANT_OK) continue;
        if (!leader && !save_first(&b->arrays, &first, error)) status = QN_NO_MEMORY;
        if (sample_reference(b, v, error) && v->status == VARIANT_OK)
            compare_outputs(b, v, v->call, v->call, &b->arrays, true, &b->at,
                            arena_print(b->memory, "itself on ref, %s", precision_words(v->call)));
        if (!leader && v->status == VARIANT_OK) {
            leader = v;
        } else if (!leader) {
            free_first(&first);
        } else if (v->status == VARIANT_OK) {
            for (int k = 0; k < first.count; k++) first.items[k].first = b->arrays.items[k].first;
            compare_outputs(b, v, v->call, leader->call, &first, false, &b->at,
                            arena_print(b->memory, "`%s` on %s", leader->label, b->device));
        }
    }
    free_first(&first);
    drop_peers(b);
    return status;
}
