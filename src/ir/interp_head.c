/*
 * The host's part of a launch: binds extents and scalars, runs the head region, checks shapes and assumptions.
 *
 * In: what the caller gave. Out: a launch_plan with every scalar, the extents of every array and the counts of every
 * phase, or an error of the E5 family. An extent is bound by the first array that has it, or by name; a scalar
 * parameter with a default is never bound by an array, only checked against it.
 * SPDX-License-Identifier: MIT
 */
#include "ir/interp_state.h"

#include <stdlib.h>
#include <string.h>

static bool is_array(const tile_param *p)
{
    return p->kind != PARAM_SCALAR && p->kind != PARAM_EXTENT;
}

/* Outputs and scratch without memory get their extents here. */
static bool has_shape(const interp *s, int p)
{
    if (s->arrays[p].data) return true;
    param_kind kind = s->kernel->params[p].kind;
    for (int axis = 0; axis < s->arrays[p].rank; axis++)
        if (s->arrays[p].extents[axis]) return kind == PARAM_IN || kind == PARAM_INOUT;
    return false; /* an input whose extents are asked for, before there is memory */
}

static void bind(interp *s, int p, number n)
{
    if (dtype_is_float(s->kernel->params[p].elem)) {
        n.f = round_to_dtype(s->kernel->params[p].elem, n.f);
        memcpy(&s->head->scalars_bits[p], &n.f, sizeof(double));
    } else {
        s->head->scalars_bits[p] = integer_wrap(s->kernel->params[p].elem, n.i);
    }
    s->bound[p] = true;
}

static qn_status bind_extents(interp *s)
{
    const tile_kernel *k = s->kernel;
    for (int p = 0; p < k->param_count; p++) {
        const tile_param *param = &k->params[p];
        s->bound_by[p] = -1;
        if (!is_array(param) && s->given[p]) bind(s, p, s->numbers[p]);
    }
    for (int p = 0; p < k->param_count; p++) {
        const tile_param *param = &k->params[p];
        if (!is_array(param)) continue;
        if (s->arrays[p].rank != param->rank)
            return error_diagnose(s->error, QN_BAD_CALL, E501, NULL, 0, 0,
                                  "array `%s` has %d axes, the parameter has %d", param->name, s->arrays[p].rank,
                                  param->rank);
        if (s->arrays[p].elem != param->elem)
            return error_diagnose(s->error, QN_BAD_CALL, E501, NULL, 0, 0,
                                  "array `%s` holds %s, the parameter holds %s", param->name,
                                  dtypes[s->arrays[p].elem].text, dtypes[param->elem].text);
        for (int axis = 0; axis < param->rank; axis++) {
            int q = param->extent_param[axis];
            if (!has_shape(s, p)) {
                s->head->extents[p][axis] = -1;
                continue;
            }
            int64_t extent = s->head->extents[p][axis] = s->arrays[p].extents[axis];
            if (q < 0 || s->bound[q] || k->params[q].has_default) continue;
            bind(s, q, (number){.i = extent});
            s->bound_by[q] = p;
        }
    }
    return QN_OK;
}

/* Every bare extent name of every array has the value of its parameter. */
static qn_status check_extents(interp *s)
{
    const tile_kernel *k = s->kernel;
    for (int p = 0; p < k->param_count; p++) {
        const tile_param *param = &k->params[p];
        for (int axis = 0; is_array(param) && axis < param->rank; axis++) {
            int q = param->extent_param[axis];
            if (q < 0) continue;
            const char *name = k->params[q].name;
            int64_t *extent = &s->head->extents[p][axis];
            if (!s->bound[q])
                return error_diagnose(s->error, QN_BAD_CALL, E505, NULL, 0, 0,
                                      "extent `%s` of `%s` is not given: set it by name", name, param->name);
            int64_t expected = s->head->scalars_bits[q];
            if (expected < 0 || expected > LARGEST_EXTENT)
                return error_diagnose(
                    s->error, QN_BAD_CALL, E502, NULL, 0, 0,
                    "extent `%s` of `%s` is %lld: it must be from 0 to 2^47\n  check the sizes it is computed from",
                    name, param->name, (long long)expected);
            if (*extent < 0) *extent = expected;
            if (*extent == expected) continue;
            if (s->bound_by[q] >= 0)
                return error_diagnose(s->error, QN_BAD_CALL, E502, NULL, 0, 0, "`%s` is %lld in `%s` and %lld in `%s`",
                                      name, (long long)expected, k->params[s->bound_by[q]].name, (long long)*extent,
                                      param->name);
            return error_diagnose(s->error, QN_BAD_CALL, E502, NULL, 0, 0,
                                  "axis %d of `%s` has extent %lld, expected `%s` = %lld", axis, param->name,
                                  (long long)*extent, name, (long long)expected);
        }
    }
    return QN_OK;
}

static void fail(interp *s, qn_status status)
{
    s->stop = STOP_LAUNCH;
    s->status = status;
}

void interp_head_op(interp *s, const tile_op *op)
{
    const tile_kernel *k = s->kernel;
    CHECK(op->operand_count);
    const tile *t = interp_get(s, op->operands[0]);
    int at = op->attr.index;
    switch (op->code) {
    case OP_DEFAULT: {
        dtype elem = k->params[at].elem;
        if (!s->bound[at]) {
            number n = {0, 0};
            if (dtype_is_float(elem))
                n.f = t->cells[0].f;
            else
                n.i = t->cells[0].i;
            bind(s, at, n);
        }
        if (op->result_count)
            interp_set(s, op->results[0], tile_scalar(s, elem, (cell){.i = s->head->scalars_bits[at]}));
        break;
    }
    case OP_EXTENT: {
        int axis = op->attr.axes[0];
        int64_t *extent = &s->head->extents[at][axis], expected = t->cells[0].i;
        const char *name = k->params[at].name, *words = op->attr.words ? op->attr.words : "?";
        if (expected < 0 || expected > LARGEST_EXTENT)
            fail(
                s,
                error_diagnose(
                    s->error, QN_BAD_CALL, E502, NULL, 0, 0,
                    "the extent `%s` of `%s` is %lld: it must be from 0 to 2^47\n  check the sizes it is computed from",
                    words, name, (long long)expected));
        else if (*extent < 0)
            *extent = expected;
        else if (*extent != expected)
            fail(s, error_diagnose(s->error, QN_BAD_CALL, E502, NULL, 0, 0,
                                   "axis %d of `%s` has extent %lld, expected `%s` = %lld", axis, name,
                                   (long long)*extent, words, (long long)expected));
        break;
    }
    case OP_LAUNCH: {
        int64_t *counts = s->head->programs[at], all = 1;
        for (int axis = 0; axis < 3; axis++) {
            counts[axis] = axis < op->operand_count ? interp_integer(s, op->operands[axis]) : 1;
            if (counts[axis] >= 0 && !__builtin_mul_overflow(all, MAXIMUM(counts[axis], 1), &all) &&
                all <= LARGEST_LAUNCH)
                continue;
            if (k->raw_language && at != RAW_GRID)
                fail(s, error_diagnose(s->error, QN_BAD_CALL, E505, k->file ? k->file : k->name, op->line, op->column,
                                       "%s (%lld): it must be 0 or more\n  check the sizes it is computed from",
                                       at == RAW_BLOCK ? "block" : "shared", (long long)counts[axis]));
            else
                fail(s, error_diagnose(s->error, QN_BAD_CALL, E505, k->file ? k->file : k->name, op->line, op->column,
                                       "launch of %lld programs on axis %d: from 0 to 2^40 are possible in all\n"
                                       "  check the sizes that the launch is computed from",
                                       (long long)counts[axis], axis));
            break;
        }
        break;
    }
    default: CHECK(!"an op of the head");
    }
}

static qn_status run_head(interp *s)
{
    const tile_kernel *k = s->kernel;
    QN_TRY(bind_extents(s));
    interp_block(s, k->head);
    if (s->status != QN_OK) return s->status;
    QN_TRY(check_extents(s));
    for (int p = 0; p < k->param_count; p++) {
        const tile_param *param = &k->params[p];
        if (!is_array(param) && !s->bound[p])
            return error_diagnose(s->error, QN_BAD_CALL, E505, NULL, 0, 0, "%s `%s` is not given",
                                  param->kind == PARAM_EXTENT ? "extent" : "scalar", param->name);
        for (int axis = 0; is_array(param) && axis < param->rank; axis++) {
            if (s->head->extents[p][axis] >= 0) continue;
            return error_diagnose(s->error, QN_BAD_CALL, E505, NULL, 0, 0, "extent %d of `%s` is not given", axis,
                                  param->name);
        }
    }
    return QN_OK;
}

launch_plan launch_plan_new(arena *memory, int param_count)
{
    launch_plan plan = {.room = param_count + 1};
    plan.scalars_bits = ARENA_ARRAY(memory, int64_t, plan.room);
    plan.extents = arena_alloc(memory, sizeof(plan.extents[0]) * (size_t)plan.room);
    return plan;
}

qn_status interp_head(const tile_kernel *k, const bool *given, const number *numbers, const array_view *arrays,
                      int units, launch_plan *plan, qn_error *error)
{
    interp_options options = {.units = units};
    findings found = {0};
    interp s = {.kernel = k, .arrays = arrays, .options = &options, .found = &found, .error = error};
    s.given = given;
    s.numbers = numbers;
    s.head = plan;
    s.plan = plan;
    s.step_limit = 100000000;
    CHECK(k->param_count <= plan->room);
    memset(plan->scalars_bits, 0, sizeof(plan->scalars_bits[0]) * (size_t)plan->room);
    memset(plan->extents, 0, sizeof(plan->extents[0]) * (size_t)plan->room);
    memset(plan->programs, 0, sizeof(plan->programs));
    s.bound = heap_array((size_t)k->param_count + 1, sizeof(bool));
    s.bound_by = heap_array((size_t)k->param_count + 1, sizeof(int));
    s.slots = heap_array((size_t)k->value_count, sizeof(tile *));
    qn_status status = run_head(&s);
    tile_free_buffers(&s);
    heap_free(s.slots);
    heap_free(s.bound);
    heap_free(s.bound_by);
    findings_free(&found);
    return status;
}
