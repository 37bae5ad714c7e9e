/*
 * The reference interpreter: the meaning of the tile IR, one program at a time.
 *
 * In: a kernel, its arrays and the plan of a launch. Out: the arrays as the kernel leaves them, and findings. Values
 * live in slots by number; running an op sets the slots of its results. Control flow runs regions in place. The parts:
 * interp_math.c (numbers), interp_elementwise.c, interp_tile.c (shapes), interp_fold.c, interp_memory.c, interp_shadow.c
 * (races and what was written), interp_check.c (NaN, integers, assignments), interp_print.c, interp_head.c (the host's part
 * of a launch). SPDX-License-Identifier: MIT
 */
#include "ir/interp_state.h"

#include <stdlib.h>
#include <string.h>

tile *interp_get(const interp *s, value v)
{
    CHECK(v && s->slots[v]);
    return s->slots[v];
}

void interp_set(interp *s, value v, tile *t)
{
    tile_drop(s, s->slots[v]);
    s->slots[v] = t;
    if (s->set_at) s->set_at[v] = ++s->ticks;
}

int64_t interp_set_time(const interp *state, value v)
{
    return state->set_at && state->slots[v] ? state->set_at[v] : 0;
}

int interp_phase(const interp *state)
{
    return state->phase;
}

int64_t interp_type_count(const tile_type *type)
{
    int64_t count = 1;
    for (int axis = 0; axis < type->rank; axis++) count *= type->dims[axis];
    return count;
}

tile_type interp_resolve(interp *s, value v)
{
    tile_type type = s->kernel->values[v].type;
    int64_t count = 1;
    for (int axis = 0; axis < type.rank; axis++) {
        if (type.dims[axis] < 0) {
            int64_t extent = interp_get(s, (value)-type.dims[axis])->one.i;
            type.dims[axis] = extent < 0 ? 0 : extent; /* a slice of negative length is empty */
        }
        if (__builtin_mul_overflow(count, type.dims[axis], &count)) count = INT64_MAX;
    }
    if (count > MAX_TILE_ELEMENTS) {
        interp_stop(s, "a tile of %lld elements is too large for the reference interpreter", (long long)count);
        for (int axis = 0; axis < type.rank; axis++) type.dims[axis] = 0;
    }
    return type;
}

void interp_stop(interp *s, const char *format, ...)
{
    if (s->stop == STOP_LAUNCH || s->quiet) return;
    s->stop = STOP_LAUNCH;
    if (s->asserted) return; /* the first failure is the one that is told */
    char words[400];
    va_list list;
    va_start(list, format);
    plain_print_list(words, sizeof(words), format, list);
    va_end(list);
    const tile_kernel *k = s->kernel;
    s->status = error_set(s->error, QN_FAILED, "%s:%d:%d: %s", k->file ? k->file : k->name, s->op ? s->op->line : 0,
                          s->op ? s->op->column : 0, words);
}

void interp_poisoned(interp *s, const char *place)
{
    char program[80];
    const tile_kernel *k = s->kernel;
    if (s->outside[0] && s->stop != STOP_LAUNCH && !s->quiet && !s->asserted) {
        s->stop = STOP_LAUNCH; /* what it read is nothing, and a kernel that fusion made has no mask for that */
        s->status = error_set(s->error, QN_FINDING, "%s:%d:%d: %s", k->file ? k->file : k->name,
                              s->op ? s->op->line : 0, s->op ? s->op->column : 0, s->outside);
        return;
    }
    interp_stop(s,
                "internal: a masked-off element reached %s in `%s` (program %s): this tile IR was edited so that its "
                "masks do not fit, or lowering is wrong",
                place, s->op ? ops[s->op->code].text : "?", interp_program_text(s, s->program, program));
}

int64_t interp_integer(interp *s, value v)
{
    tile *t = interp_get(s, v);
    if (t->poison && t->poison[0]) interp_poisoned(s, "a scalar operand");
    return t->cells[0].i;
}

static tile *constant(interp *s, const tile_op *op)
{
    dtype elem = tile_type_of(s->kernel, op->results[0]).elem;
    cell c;
    if (!dtype_is_float(elem)) {
        c.i = integer_wrap(elem, op->attr.number.i);
        return tile_scalar(s, elem, c);
    }
    c.f = s->exact ? op->attr.number.f : round_to_dtype(elem, op->attr.number.f);
    tile *t = tile_scalar(s, elem, c);
    if (s->check && has_nonfinite(t)) birth_table(s, t)[0] = (int32_t)op->results[0];
    return t;
}

static tile *argument(interp *s, const tile_op *op)
{
    int p = op->attr.index;
    const tile_param *param = &s->kernel->params[p];
    const launch_plan *plan = s->head ? s->head : s->plan;
    cell c;
    if (s->head && !s->bound[p]) {
        s->stop = STOP_LAUNCH;
        s->status =
            error_diagnose(s->error, QN_BAD_CALL, E505, NULL, 0, 0, "`%s` is not given: set it by name", param->name);
        c.i = 0;
    } else {
        c.i = plan->scalars_bits[p]; /* of floats the bits of the double: the union reads them as such */
    }
    tile *t = tile_scalar(s, param->elem, c);
    if (s->check && dtype_is_float(param->elem) && has_nonfinite(t)) birth_table(s, t)[0] = -(p + 1);
    return t;
}

static tile *integer(interp *s, int64_t i)
{
    return tile_scalar(s, DT_I64, (cell){.i = i});
}

/* The operands of the block's last op, each held once more. */
static void collect(interp *s, const tile_block *b, tile **to)
{
    const tile_op *last = b->ops[b->op_count - 1];
    for (int i = 0; i < last->operand_count; i++) to[i] = tile_keep(interp_get(s, last->operands[i]));
}

static void run_for(interp *s, const tile_op *op)
{
    const tile_block *body = op->regions[0];
    int count = op->result_count;
    int64_t i = interp_integer(s, op->operands[0]), limit = interp_integer(s, op->operands[1]),
            step = interp_integer(s, op->operands[2]);
    bool down = op->flags & F_DOWN;
    tile **carried = buffer_take(s, sizeof(tile *) * (size_t)(count + 1));
    for (int k = 0; k < count; k++) carried[k] = tile_keep(interp_get(s, op->operands[3 + k]));
    bool runs = down ? step < 0 : step > 0;
    if (!runs && s->check && !interp_again(s, 709, op))
        interp_report(s, 709, op, "the step %lld of the loop has the wrong sign: no iteration runs", (long long)step);
    dtype elem = tile_type_of(s->kernel, body->args[0]).elem;
    while (runs && s->stop == STOP_NONE && (down ? i > limit : i < limit)) {
        interp_set(s, body->args[0], tile_scalar(s, elem, (cell){.i = i}));
        for (int k = 0; k < count; k++) interp_set(s, body->args[k + 1], carried[k]);
        interp_block(s, body);
        if (s->stop != STOP_NONE) {
            buffer_give(s, carried);
            return;
        }
        collect(s, body, carried);
        if (__builtin_add_overflow(i, step, &i)) break;
    }
    for (int k = 0; k < count; k++) interp_set(s, op->results[k], carried[k]);
    buffer_give(s, carried);
}

static bool truth(interp *s, value v)
{
    tile *t = interp_get(s, v);
    if (t->poison && t->poison[0]) interp_poisoned(s, "a condition");
    return t->cells[0].i != 0;
}

static void run_while(interp *s, const tile_op *op)
{
    const tile_block *test = op->regions[0], *body = op->regions[1];
    int count = op->result_count;
    tile **carried = buffer_take(s, sizeof(tile *) * (size_t)(count + 1));
    for (int k = 0; k < count; k++) carried[k] = tile_keep(interp_get(s, op->operands[k]));
    for (;;) {
        for (int k = 0; k < count; k++) interp_set(s, test->args[k], tile_keep(carried[k]));
        interp_block(s, test);
        bool more = s->stop == STOP_NONE && truth(s, test->ops[test->op_count - 1]->operands[0]);
        if (!more || s->stop != STOP_NONE) break;
        for (int k = 0; k < count; k++) interp_set(s, body->args[k], carried[k]);
        interp_block(s, body);
        if (s->stop != STOP_NONE) {
            buffer_give(s, carried);
            return;
        }
        collect(s, body, carried);
    }
    for (int k = 0; k < count; k++) interp_set(s, op->results[k], carried[k]);
    buffer_give(s, carried);
}

static void run_if(interp *s, const tile_op *op)
{
    bool condition = truth(s, op->operands[0]);
    if (s->stop != STOP_NONE) return;
    const tile_block *taken = condition ? op->regions[0] : op->region_count > 1 ? op->regions[1] : NULL;
    if (!taken) return;
    interp_block(s, taken);
    if (s->stop != STOP_NONE || !op->result_count) return;
    const tile_op *yield = taken->ops[taken->op_count - 1];
    for (int k = 0; k < op->result_count; k++)
        interp_set(s, op->results[k], tile_keep(interp_get(s, yield->operands[k])));
}

static tile *element_of(interp *s, const tile *t, int64_t at)
{
    tile *one = tile_scalar(s, t->type.elem, t->cells[at]);
    if (birth_of(t, at)) birth_table(s, one)[0] = t->birth[at];
    return one;
}

static void run_map(interp *s, const tile_op *op)
{
    const tile_block *body = op->regions[0];
    const tile_op *yield = body->ops[body->op_count - 1];
    tile **operands = buffer_take(s, sizeof(tile *) * (size_t)(op->operand_count + 1));
    tile **results = buffer_take(s, sizeof(tile *) * (size_t)(op->result_count + 1));
    for (int k = 0; k < op->result_count; k++) {
        tile_type type = interp_resolve(s, op->results[k]);
        results[k] = tile_make(s, &type);
    }
    int64_t n = results[0]->count;
    bool poisoned = false;
    for (int k = 0; k < op->operand_count; k++) {
        tile *t = interp_get(s, op->operands[k]);
        operands[k] = t->count == n || t->count == 1 ? tile_keep(t) : tile_expand(s, t, &results[0]->type);
        poisoned |= operands[k]->poison != NULL;
    }
    for (int k = 0; poisoned && k < op->result_count; k++) {
        results[k]->poison = buffer_take(s, (size_t)n + 1);
        memset(results[k]->poison, 0, (size_t)n + 1);
    }
    for (int64_t j = 0; j < n && s->stop == STOP_NONE; j++) {
        bool skip = false;
        for (int k = 0; k < op->operand_count; k++) {
            int64_t at = operands[k]->count == n ? j : 0;
            skip |= operands[k]->poison && operands[k]->poison[at];
            interp_set(s, body->args[k], element_of(s, operands[k], at));
        }
        if (!skip) interp_block(s, body);
        for (int k = 0; k < op->result_count && s->stop == STOP_NONE; k++) {
            if (skip) {
                results[k]->poison[j] = 1;
                results[k]->cells[j].i = 0;
                continue;
            }
            const tile *one = interp_get(s, yield->operands[k]);
            results[k]->cells[j] = one->cells[0];
            if (birth_of(one, 0)) birth_table(s, results[k])[j] = one->birth[0];
        }
    }
    for (int k = 0; k < op->operand_count; k++) tile_drop(s, operands[k]);
    for (int k = 0; k < op->result_count; k++) interp_set(s, op->results[k], results[k]);
    buffer_give(s, operands);
    buffer_give(s, results);
}

static tile *run_leaf(interp *s, const tile_op *op)
{
    switch (op->code) {
    case OP_CONST: return constant(s, op);
    case OP_ARG: return argument(s, op);
    case OP_PROGRAM: return integer(s, s->program[op->attr.index]);
    case OP_PROGRAMS: return integer(s, s->plan->programs[s->phase][op->attr.index]);
    case OP_UNITS: return integer(s, s->options->units);
    default: return interp_shape(s, op); /* IOTA */
    }
}

static void run_op(interp *s, const tile_op *op)
{
    tile *r = NULL;
    switch (ops[op->code].class) {
    case CLASS_LEAF:
        if (s->slots[op->results[0]] && op->code != OP_IOTA) return; /* the same all through a program */
        r = run_leaf(s, op);
        break;
    case CLASS_UNARY:
    case CLASS_BINARY:
    case CLASS_COMPARE:
    case CLASS_TERNARY:
        if (interp_scalar(s, op)) return;
        r = interp_elementwise(s, op);
        break;
    case CLASS_SHAPE: r = interp_shape(s, op); break;
    case CLASS_FOLD:
        r = op->code == OP_REDUCE ? interp_reduce(s, op) : op->code == OP_SCAN ? interp_scan(s, op) : interp_dot(s, op);
        break;
    case CLASS_MEMORY:
        if (op->code == OP_LOAD)
            r = interp_load(s, op);
        else if (op->code == OP_ATOMIC)
            r = interp_atomic(s, op);
        else
            interp_store(s, op);
        break;
    case CLASS_CONTROL:
        if (op->code == OP_FOR)
            run_for(s, op);
        else if (op->code == OP_WHILE)
            run_while(s, op);
        else if (op->code == OP_IF)
            run_if(s, op);
        else if (op->code == OP_MAP)
            run_map(s, op);
        return; /* YIELD and CONDITION are read by the op that holds the region */
    case CLASS_EFFECT:
        if (op->code == OP_PRINT)
            interp_print_op(s, op);
        else
            interp_assert(s, op);
        return;
    case CLASS_HEAD: interp_head_op(s, op); return;
    }
    if (!r) return;
    if (op->result_count)
        interp_set(s, op->results[0], r);
    else
        tile_drop(s, r);
}

void interp_block(interp *s, const tile_block *b)
{
    for (int i = 0; i < b->op_count && s->stop == STOP_NONE; i++) {
        const tile_op *op = b->ops[i];
        s->op = op;
        if (++s->steps > s->step_limit) {
            if (s->check && !interp_again(s, 709, op))
                interp_report(s, 709, op, "the program ran %lld operations and did not end", (long long)s->step_limit);
            interp_stop(s, "error %s: the program ran %lld operations and did not end (does it wait for another?)",
                        error_code_text(R709), (long long)s->step_limit);
            if (s->error && s->status == QN_FAILED) s->error->code = R709;
            return;
        }
        if (s->options->hook && !s->head && !s->options->hook(s->options->hook_context, s, op, s->program)) {
            s->stop = STOP_LAUNCH;
            s->hook_stopped = true;
            return;
        }
        run_op(s, op);
    }
}

void interp_release_all(interp *s)
{
    for (int v = 0; v < s->kernel->value_count; v++) {
        tile_drop(s, s->slots[v]);
        s->slots[v] = NULL;
    }
}

bool interp_value(const interp *state, value v, interp_tile *out)
{
    interp *s = (interp *)state; /* only what it lends changes */
    const tile *t = v && v < (value)s->kernel->value_count ? s->slots[v] : NULL;
    if (!t) return false;
    buffer_give(s, s->shown[0]);
    buffer_give(s, s->shown[1]);
    number *elements = s->shown[0] = buffer_take(s, sizeof(number) * (size_t)t->count);
    s->shown[1] = NULL;
    bool is_float = dtype_is_float(t->type.elem);
    memset(elements, 0, sizeof(number) * (size_t)t->count);
    for (int64_t j = 0; j < t->count; j++) {
        if (is_float)
            elements[j].f = t->cells[j].f;
        else
            elements[j].i = t->cells[j].i;
    }
    if (t->poison) {
        uint8_t *valid = s->shown[1] = buffer_take(s, (size_t)t->count);
        for (int64_t j = 0; j < t->count; j++) valid[j] = !t->poison[j];
    }
    *out = (interp_tile){.type = t->type, .count = t->count, .elements = elements, .valid = s->shown[1]};
    return true;
}

static void fill_initial(const tile_param *param, const array_view *a)
{
    int size = dtypes[a->elem].size_bytes;
    int64_t index[MAX_RANK] = {0};
    for (int axis = 0; axis < a->rank; axis++)
        if (!a->extents[axis]) return;
    do {
        int64_t at = 0;
        for (int axis = 0; axis < a->rank; axis++) at += index[axis] * a->strides[axis];
        element_write(a->elem, (char *)a->data + at * size, param->initial);
    } while (shadow_next(a, index));
}

void interp_program_of(const interp *s, uint32_t serial, int64_t program[3])
{
    int64_t at = (int64_t)(serial - s->first_serial), linear = s->order ? s->order[at] : at;
    const int64_t *counts = s->plan->programs[s->phase];
    program[0] = linear % counts[0];
    program[1] = linear / counts[0] % counts[1];
    program[2] = linear / counts[0] / counts[1];
}

#define SHUFFLED_LIMIT ((int64_t)1 << 24) /* programs; a larger launch runs in order: the list would not fit memory */

static int64_t *shuffled(int64_t count, uint64_t seed)
{
    int64_t *order = malloc(sizeof(int64_t) * (size_t)(count + 1));
    if (!order) return NULL;
    for (int64_t i = 0; i < count; i++) order[i] = i;
    for (int64_t i = count - 1; i > 0; i--) {
        uint32_t words[4];
        philox_words(seed, 0, (uint64_t)i, words);
        int64_t other = (int64_t)(((uint64_t)words[0] << 32 | words[1]) % (uint64_t)(i + 1));
        int64_t held = order[i];
        order[i] = order[other];
        order[other] = held;
    }
    return order;
}

static void find_ordered(tile_kernel *k, tile_block *b, tile_op *op, void *context)
{
    (void)k, (void)b;
    if (op->code == OP_ATOMIC && op->flags & F_ORDERED) *(bool *)context = true;
}

static void run_phase(interp *s, int phase)
{
    const int64_t *counts = s->plan->programs[phase];
    int64_t total;
    s->phase = phase;
    if (__builtin_mul_overflow(counts[0], counts[1], &total) || __builtin_mul_overflow(total, counts[2], &total) ||
        total > UINT32_MAX - 1 - s->serial) {
        for (int i = 0; i < s->kernel->head->op_count; i++) { /* no op of a phase has run: the launch is the place */
            const tile_op *op = s->kernel->head->ops[i];
            if (op->code == OP_LAUNCH && op->attr.index == phase) s->op = op;
        }
        interp_stop(s, "a launch of %lld x %lld x %lld programs is too large for the reference interpreter",
                    (long long)counts[0], (long long)counts[1], (long long)counts[2]);
        return;
    }
    bool some = s->options->only_programs && phase == s->kernel->phase_count - 1;
    bool waits = false;
    tile_walk((tile_kernel *)s->kernel, s->kernel->phases[phase], find_ordered, &waits);
    bool shuffle = !some && !waits && s->options->order_seed && total <= SHUFFLED_LIMIT;
    heap_free(s->ordered);
    s->ordered = waits && s->check ? heap_array((size_t)total + 1, 1) : NULL;
    heap_free(s->shuffled);
    s->shuffled = shuffle ? shuffled(total, s->options->order_seed + (uint64_t)phase) : NULL;
    if (shuffle && !s->shuffled) interp_no_memory(s, sizeof(int64_t) * (size_t)total);
    s->order = some ? s->options->only_programs : s->shuffled;
    s->first_serial = s->serial + 1;
    int64_t count = some ? s->options->only_count : total;
    for (int64_t i = 0; i < count && s->stop != STOP_LAUNCH; i++) {
        s->serial = s->first_serial + (uint32_t)i;
        if (s->order && (s->order[i] < 0 || s->order[i] >= total)) continue;
        interp_program_of(s, s->serial, s->program);
        s->stop = STOP_NONE;
        s->steps = 0;
        interp_block(s, s->kernel->phases[phase]);
        interp_release_all(s);
    }
    s->order = NULL;
}

_Noreturn void interp_no_memory(interp *s, size_t size_bytes)
{
    const tile_kernel *k = s->kernel;
    CHECK(s->no_memory);
    s->status = error_set(s->error, QN_NO_MEMORY, "%s:%d:%d: no memory: the reference interpreter needs %zu bytes here",
                          k->file ? k->file : k->name, s->op ? s->op->line : 0, s->op ? s->op->column : 0, size_bytes);
    longjmp(*s->no_memory, 1);
}

/* Apart, so that nothing of the launch is held here when it ends in the middle: all that it has is in the state. */
static void run_launch(interp *s)
{
    const tile_kernel *k = s->kernel;
    jmp_buf end;
    s->no_memory = &end;
    if (setjmp(end)) return;
    for (int p = 0; p < k->param_count; p++)
        if (k->params[p].kind == PARAM_OUT && k->params[p].has_initial) fill_initial(&k->params[p], &s->arrays[p]);
    if (s->check) shadows_make(s);
    for (int phase = 0; phase < k->phase_count && s->stop != STOP_LAUNCH; phase++) run_phase(s, phase);
    if (s->check && s->status == QN_OK && !s->hook_stopped && !s->options->only_programs) shadow_unwritten(s);
}

qn_status interp_run(const tile_kernel *k, const array_view *arrays, const launch_plan *plan,
                     const interp_options *options, findings *found, qn_error *error)
{
    static const interp_options defaults = {.check = true};
    findings own = {0};
    if (!options) options = &defaults;
    interp s = {.kernel = k, .arrays = arrays, .plan = plan, .options = options, .found = found ? found : &own};
    s.error = error;
    s.exact = options->exact;
    s.check = options->check;
    s.step_limit = options->step_limit ? options->step_limit : 1000000000;
    s.slots = heap_array((size_t)k->value_count, sizeof(tile *));
    s.assigned = heap_array((size_t)k->value_count, 1);
    s.set_at = options->hook ? heap_array((size_t)k->value_count, sizeof(int64_t)) : NULL;
    run_launch(&s);
    shadows_free(&s);
    tile_free_buffers(&s);
    heap_free(s.shuffled);
    heap_free(s.ordered);
    heap_free(s.slots);
    heap_free(s.set_at);
    heap_free(s.assigned);
    findings_free(&own);
    return s.status;
}
