/*
 * Small products side by side. In: a plan's kernels and what has to run before what. Out: fewer kernels: where two small
 * products are ready at the same time, one launch computes both, so that a GPU which neither would fill alone waits for
 * one launch instead of two. In a network's backward pass the gradient of a layer's input goes with the gradient of the
 * weights of the layer after it.
 *
 * Programs 0 .. n-1 of the joint launch are those of the first kernel, the rest those of the second: the numbers of
 * programs are found again from one number. The most urgent kernel goes first: the one with the longest way to the end.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/memory.h"

#include <string.h>

#define MOST_ARGUMENTS 26
#define MOST_PARAMS 56
#define LONG_NS 1e5 /* of a product that is launched alone */
#define MOST_KERNELS 2048 /* of a plan: the search takes all pairs; a longer one has work enough */

/* ---- one kernel for two ---- */

/* Ops of `from` on their way into `to`: values and parameters have other numbers there. */
typedef struct import {
    tile_kernel *to;
    const tile_kernel *from;
    value *values; /* by value of from */
    int first_param, first_line;
    value counts[3];   /* of the launch, in the block being built */
    value programs[3]; /* the kernel's own numbers of the program */
} import;

static tile_type import_type(const import *m, tile_type type)
{
    for (int i = 0; i < type.rank; i++)
        if (type.dims[i] < 0) type.dims[i] = -(int64_t)m->values[-type.dims[i]];
    return type;
}

static value import_result(import *m, value v)
{
    value made = tile_value_new(m->to, import_type(m, tile_type_of(m->from, v)));
    m->to->values[made].name = m->from->values[v].name;
    return m->values[v] = made;
}

static value emit(tile_kernel *k, tile_block *b, op_code code, value x, value y)
{
    tile_op *op = tile_op_new(k, code, (value[]){x, y}, 2);
    value v = tile_result(k, op, scalar_type(code == OP_LT ? DT_BOOL : tile_type_of(k, x).elem));
    tile_append(k, b, op);
    return v;
}

static value integer(tile_kernel *k, tile_block *b, int64_t n)
{
    tile_op *op = tile_op_new(k, OP_CONST, NULL, 0);
    op->attr.number.i = n;
    value v = tile_result(k, op, scalar_type(DT_I64));
    tile_append(k, b, op);
    return v;
}

static value convert(tile_kernel *k, tile_block *b, value x, dtype elem)
{
    tile_op *op = tile_op_new(k, OP_CONVERT, &x, 1);
    value v = tile_result(k, op, scalar_type(elem));
    tile_append(k, b, op);
    return v;
}

/* The numbers of the program on the launch's axes, from the one number there is. Small launches: 32 bits hold them, and
 * divide faster. */
static void find_programs(import *m, tile_block *b, value program)
{
    tile_kernel *k = m->to;
    if (!m->counts[1]) {
        m->programs[0] = program;
        return;
    }
    value rest = convert(k, b, program, DT_U32);
    for (int axis = 0; axis < 3; axis++) {
        if (axis == 2 || !m->counts[axis + 1]) {
            m->programs[axis] = convert(k, b, rest, DT_I64);
            return;
        }
        value count = convert(k, b, m->counts[axis], DT_U32), quotient = emit(k, b, OP_DIV, rest, count);
        value back = emit(k, b, OP_MUL, quotient, count);
        m->programs[axis] = convert(k, b, emit(k, b, OP_SUB, rest, back), DT_I64);
        rest = quotient;
    }
}

static void import_block(import *m, const tile_block *from, tile_block *to);

static void import_op(import *m, const tile_op *op, tile_block *to)
{
    tile_kernel *k = m->to;
    if (op->code == OP_PROGRAM || op->code == OP_PROGRAMS) {
        value known = op->code == OP_PROGRAM ? m->programs[op->attr.index] : m->counts[op->attr.index];
        m->values[op->results[0]] = known ? known : integer(k, to, op->code == OP_PROGRAMS);
        return;
    }
    value *operands = ARENA_ARRAY(k->memory, value, op->operand_count + 1);
    for (int i = 0; i < op->operand_count; i++) operands[i] = m->values[op->operands[i]];
    tile_op *made = tile_op_new(k, op->code, operands, op->operand_count);
    made->flags = op->flags;
    made->attr = op->attr;
    made->line = op->line ? op->line + m->first_line : 0;
    made->column = op->column;
    if (ops[op->code].class == CLASS_MEMORY) made->attr.access.array += m->first_param;
    if (op->code == OP_ARG || op->code == OP_EXTENT || op->code == OP_DEFAULT) made->attr.index += m->first_param;
    made->region_count = op->region_count;
    for (int r = 0; r < op->region_count; r++) {
        made->regions[r] = tile_block_new(k);
        import_block(m, op->regions[r], made->regions[r]);
    }
    for (int i = 0; i < op->result_count; i++)
        m->values[op->results[i]] = tile_result(k, made, import_type(m, tile_type_of(m->from, op->results[i])));
    tile_append(k, to, made);
}

static void import_block(import *m, const tile_block *from, tile_block *to)
{
    for (int i = 0; i < from->arg_count; i++) {
        value arg = import_result(m, from->args[i]);
        value *args = ARENA_ARRAY(m->to->memory, value, to->arg_count + 1);
        if (to->arg_count) memcpy(args, to->args, sizeof(value) * (size_t)to->arg_count);
        args[to->arg_count++] = arg;
        to->args = args;
    }
    for (int i = 0; i < from->op_count; i++) import_op(m, from->ops[i], to);
}

/* The head's ops: all but the launch, or only those that compute its counts. Returns how many programs there are. */
static value import_head(import *m, tile_block *to, bool whole)
{
    const tile_op *launch = NULL;
    for (int i = 0; i < m->from->head->op_count; i++) {
        const tile_op *op = m->from->head->ops[i];
        if (op->code == OP_LAUNCH)
            launch = op;
        else if (whole || ops[op->code].pure)
            import_op(m, op, to);
    }
    CHECK(launch);
    value all = 0;
    for (int i = 0; i < launch->operand_count; i++) {
        m->counts[i] = m->values[launch->operands[i]];
        all = all ? emit(m->to, to, OP_MUL, all, m->counts[i]) : m->counts[i];
    }
    return all;
}

static void import_params(import *m, const char *prefix)
{
    m->first_param = m->to->param_count;
    for (int i = 0; i < m->from->param_count; i++) {
        tile_param p = m->from->params[i];
        p.name = arena_print(m->to->memory, "%s%s", prefix, p.name);
        for (int axis = 0; axis < MAX_RANK; axis++)
            if (axis < p.rank && p.extent_param[axis] >= 0) p.extent_param[axis] += m->first_param;
        tile_param_add(m->to, p);
    }
}

tile_kernel *fuse_join_kernels(arena *memory, const tile_kernel *a, const tile_kernel *b)
{
    tile_kernel *k = tile_kernel_new(memory, arena_print(memory, "%s_and_%s", a->name, b->name), NULL);
    const tile_kernel *parts[2] = {a, b};
import imports[2] = {{.to = k, .from = a }, {.to = k, .from = b, .first_line = a->source_line_count } };
    k->precise = a->precise;
    k->knobs[KNOB_WARPS] = a->knobs[KNOB_WARPS];
    k->source_line_count = a->source_line_count + b->source_line_count;
    k->source_lines = ARENA_ARRAY(memory, const char *, k->source_line_count + 1);
    value counts[2];
    for (int i = 0; i < 2; i++) {
        memcpy(k->source_lines + imports[i].first_line, parts[i]->source_lines,
               sizeof(char *) * (size_t)parts[i]->source_line_count);
        imports[i].values = ARENA_ARRAY(memory, value, parts[i]->value_count);
        import_params(&imports[i], i ? "b_" : "a_");
        counts[i] = import_head(&imports[i], k->head, true);
    }
    value all = emit(k, k->head, OP_ADD, counts[0], counts[1]);
    tile_append(k, k->head, tile_op_new(k, OP_LAUNCH, &all, 1));

    k->phase_count = 1;
    k->phases = ARENA_ARRAY(memory, tile_block *, 1);
    tile_block *phase = k->phases[0] = tile_block_new(k);
    tile_op *number = tile_op_new(k, OP_PROGRAM, NULL, 0);
    value program = tile_result(k, number, scalar_type(DT_I64));
    tile_append(k, phase, number);
    for (int i = 0; i < 2; i++) {
        memset(imports[i].values, 0, sizeof(value) * (size_t)parts[i]->value_count);
        counts[i] = import_head(&imports[i], phase, false);
    }
    value first = emit(k, phase, OP_LT, program, counts[0]);
    tile_op *branch = tile_op_new(k, OP_IF, &first, 1);
    branch->region_count = 2;
    for (int i = 0; i < 2; i++) {
        tile_block *body = branch->regions[i] = tile_block_new(k);
        find_programs(&imports[i], body, i ? emit(k, body, OP_SUB, program, counts[0]) : program);
        import_block(&imports[i], parts[i]->phases[0], body);
        tile_append(k, body, tile_op_new(k, OP_YIELD, NULL, 0));
    }
    tile_append(k, phase, branch);
    return k;
}

/* ---- which ---- */

/* Small: the one with few warps a program. That depends on its tiles alone, so that another batch gives the same texts;
 * but a product that runs for long gains nothing by a launch that is saved, and what waits for its partner would wait for it. */
static bool is_small_product(const graph *g, const fuse_kernel *k)
{
    if (k->cost.time_ns > LONG_NS) return false;
    if (!k->kernel || k->over || k->kernel->phase_count != 1 || !k->kernel->knobs[KNOB_WARPS]) return false;
    for (int p = 0; p < k->kernel->param_count; p++)
        if (k->kernel->params[p].kind == PARAM_SCRATCH) return false;
    for (int i = 0; i < k->node_count; i++)
        if (graph_get(g, k->nodes[i])->code == GRAPH_DOT) return true;
    return false;
}

static bool go_together(const fuse_kernel *a, const fuse_kernel *b)
{
    return a->kernel->knobs[KNOB_WARPS] == b->kernel->knobs[KNOB_WARPS] && a->kernel->precise == b->kernel->precise &&
           a->argument_count + b->argument_count <= MOST_ARGUMENTS &&
           a->kernel->param_count + b->kernel->param_count <= MOST_PARAMS;
}

static void *both(arena *memory, const void *a, int a_count, const void *b, int b_count, size_t size)
{
    char *list = arena_alloc(memory, size * (size_t)(a_count + b_count + 1));
    if (a_count) memcpy(list, a, size * (size_t)a_count);
    if (b_count) memcpy(list + size * (size_t)a_count, b, size * (size_t)b_count);
    return list;
}

static fuse_kernel joined(arena *memory, const fuse_kernel *a, const fuse_kernel *b)
{
    fuse_kernel k = *a;
    k.kernel = fuse_join_kernels(memory, a->kernel, b->kernel);
    k.name = k.kernel->name;
    k.arguments = both(memory, a->arguments, a->argument_count, b->arguments, b->argument_count, sizeof(fuse_argument));
    k.argument_count += b->argument_count;
    k.scalars = both(memory, a->scalars, a->scalar_count, b->scalars, b->scalar_count, sizeof(number));
    k.scalar_count += b->scalar_count;
    k.nodes = both(memory, a->nodes, a->node_count, b->nodes, b->node_count, sizeof(node));
    k.node_count += b->node_count;
    k.writes = both(memory, a->writes, a->write_count, b->writes, b->write_count, sizeof(node));
    k.write_count += b->write_count;
    k.read_bytes += b->read_bytes;
    k.written_bytes += b->written_bytes;
    k.flops += b->flops;
    k.saved_bytes += b->saved_bytes;
    k.cost.time_ns = MAXIMUM(a->cost.time_ns, b->cost.time_ns); /* they run at once */
    return k;
}

/* By kernel: the longest way from it to the end. Inputs stand before their users. */
static int *find_heights(const bool *before, int count, arena *scratch)
{
    int *heights = ARENA_ARRAY(scratch, int, count);
    for (bool changed = true; changed;) {
        changed = false;
        for (int a = count - 1; a >= 0; a--)
            for (int b = 0; b < count; b++)
                if (before[(size_t)a * (size_t)count + (size_t)b] && heights[a] <= heights[b]) {
                    heights[a] = heights[b] + 1;
                    changed = true;
                }
    }
    return heights;
}

/* The most urgent kernel that is ready and goes with `with` (-1: any); -1: none. */
static int next_ready(const fuse_plan *plan, const bool *before, const bool *done, const bool *small,
                      const int *heights, int with)
{
    int count = plan->kernel_count, best = -1;
    for (int i = 0; i < count; i++) {
        bool ready = !done[i] && i != with;
        for (int p = 0; p < count && ready; p++) ready = done[p] || !before[(size_t)p * (size_t)count + (size_t)i];
        if (ready && with >= 0) ready = small[i] && go_together(&plan->kernels[with], &plan->kernels[i]);
        if (ready && (best < 0 || heights[i] > heights[best])) best = i;
    }
    return best;
}

void fuse_side_by_side(fuse_plan *plan, const node *wanted, int wanted_count, const fuse_assign *assigns,
                       int assign_count)
{
    int count = plan->kernel_count, products = 0, made = 0;
    arena *scratch = arena_new();
    bool *small = ARENA_ARRAY(scratch, bool, count);
    for (int i = 0; i < count; i++) products += small[i] = is_small_product(plan->graph, &plan->kernels[i]);
    if (products < 2 || count > MOST_KERNELS) {
        arena_free(scratch);
        return;
    }
    const bool *before = fuse_before(plan, assigns, assign_count, scratch);
    const int *heights = find_heights(before, count, scratch);
    bool *done = ARENA_ARRAY(scratch, bool, count);
    int *place = ARENA_ARRAY(scratch, int, count);
    fuse_kernel *kernels = ARENA_ARRAY(plan->memory, fuse_kernel, count);
    for (int left = count; left > 0; made++) {
        int first = next_ready(plan, before, done, small, heights, -1), second = -1;
        CHECK(first >= 0);
        if (small[first]) second = next_ready(plan, before, done, small, heights, first);
        kernels[made] =
            second < 0 ? plan->kernels[first] : joined(plan->memory, &plan->kernels[first], &plan->kernels[second]);
        place[first] = made;
        done[first] = true;
        left--;
        if (second < 0) continue;
        place[second] = made;
        done[second] = true;
        left--;
    }
    fuse_plan apart = *plan;
    plan->kernels = kernels;
    plan->kernel_count = made;
    /* What waits for its partner keeps alive what it reads. */
    int64_t live = fuse_live_bytes(plan, wanted, wanted_count);
    bool costs = fuse_peak_matters(plan, live) && live > fuse_live_bytes(&apart, wanted, wanted_count);
    if (costs) *plan = apart;
    for (int i = 0; i < plan->boundary_count && !costs; i++) {
        fuse_boundary *b = &plan->boundaries[i];
        if (b->producer >= 0) b->producer = place[b->producer];
        if (b->consumer >= 0) b->consumer = place[b->consumer];
    }
    arena_free(scratch);
}
