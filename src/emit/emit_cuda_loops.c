/*
 * Loop programs as CUDA C. In: a program (loops/loops.h). Out: one __global__ function. One case for each kind of node;
 * nothing is chosen here.
 *
 * Names in the text: `call` the parameter, `call.maps` its tensor maps, `frame` the rest of it; `warp`, `lane`; a_ring,
 * b_ring, out_room in shared memory; `full` and `empty` the phases of each stage; `stage`, `parity` of the role; `sums`
 * the registers of a product, `totals` those of all steps where they are summed up apart, `row` and `column` a pair's place in the tile.
 * SPDX-License-Identifier: MIT
 */
#include "emit/emit_cuda_fill.h"
#include "emit/emit_cuda_loops.h"
#include "emit/emit_cuda_nest.h"

#include <inttypes.h>

enum {
    LINE = SCHED_LINE_BYTES,
    EIGHT_LINES = 8 * SCHED_LINE_BYTES,
    GROUP_BYTES = 64 * SCHED_LINE_BYTES,
    CHUNK = 64,
    NOWHERE =
        1 << 30 /* outside of every array: what is fetched there is zero, so an empty k needs no case of its own */
};

typedef struct printer {
    emitter *e;
    const schedule *s;
} printer;

static void print_nodes(printer *p, const loop_node *n);

static void open_brace(emitter *e)
{
    e->depth++;
}

static void close_brace(emitter *e)
{
    e->depth--;
    put(e, "}");
}

static int rows_of_group(const schedule *s)
{
    return s->choice.turns ? s->choice.tile[0] : s->choice.tile[0] / s->choice.groups;
}

/* ---- where an element is ---- */

static const char *place_text(emitter *e, sched_place at, int axis, const char *element)
{
    if (axis == at.row) return "row";
    return axis == at.column ? arena_print(e->memory, "(column%s)", element) : NULL;
}

/* An index along an axis of an array; element: what is added to the column of a pair. */
static const char *index_text(printer *p, const tile_op *op, sched_place at, int axis, int operand, const char *element)
{
    emitter *e = p->e;
    const struct access *a = &op->attr.access;
    const char *start = emit_name(e, op->operands[operand]);
    if (a->kind[axis] != INDEX_SLICE) return arena_print(e->memory, "(long)%s", start);
    const char *place = place_text(e, at, a->result_axis[axis], element);
    if (!place) return arena_print(e->memory, "%s", start);
    number step;
    if (tile_is_constant(e->k, op->operands[operand + 1], &step) && step.i == 1)
        return arena_print(e->memory, "(%s + %s)", start, place);
    return arena_print(e->memory, "(%s + (long)%s * %s)", start, place, emit_name(e, op->operands[operand + 1]));
}

typedef struct element {
    const char *pointer, *test; /* test: NULL: always inside */
} element;

/* A position on an axis with digits: added to the pointer, which is returned, and to the guards. */
static const char *add_digits(emitter *e, int array, int axis, const char *index, const char *pointer,
                              const char **guards)
{
    const tile_param *param = &e->k->params[array];
    const axis_digits *d = &param->digits->axes[axis];
    const char *position = arena_print(e->memory, "(%s)(%s)", param->facts.small ? "unsigned" : "long", index);
    const char *sum = digits_sum(e, d, d->stride, position);
    for (int g = 0; g < param->digits->guard_count; g++) {
        const char *part = digits_sum(e, d, d->guard[g], position);
        if (part) guards[g] = guards[g] ? arena_print(e->memory, "%s + %s", guards[g], part) : part;
    }
    return sum ? arena_print(e->memory, "%s + (%s)", pointer, sum) : pointer;
}

static element element_of(printer *p, const tile_op *op, sched_place at, const char *which)
{
    emitter *e = p->e;
    const struct access *a = &op->attr.access;
    const char *name = e->k->params[a->array].name;
    element x = {.pointer = arena_print(e->memory, "%s_array", name)};
    const param_digits *d = e->k->params[a->array].digits;
    const char *guards[GUARDS_MOST] = {0};
    e->array_used[a->array] = true;
    if (d && d->origin) x.pointer = arena_print(e->memory, "%s + %" PRId64 "L", x.pointer, d->origin);
    for (int axis = 0, operand = a->first_index; axis < a->rank; axis++) {
        const char *index = index_text(p, op, at, axis, operand, which);
        if (d)
            x.pointer = add_digits(e, a->array, axis, index, x.pointer, guards);
        else
            x.pointer = arena_print(e->memory, "%s + %s * %s", x.pointer, index, stride_text(e, a->array, axis));
        if (!a->safe[axis])
            x.test = arena_print(e->memory, "%s%s(unsigned long)%s < (unsigned long)%s_extent%d", x.test ? x.test : "",
                                 x.test ? " && " : "", index, name, axis);
        operand += a->kind[axis] == INDEX_SLICE ? 2 : 1;
    }
    for (int i = op->operand_count - a->mask_count; i < op->operand_count; i++)
        x.test =
            arena_print(e->memory, "%s%s%s", x.test ? x.test : "", x.test ? " && " : "", emit_name(e, op->operands[i]));
    for (int g = 0; d && g < d->guard_count; g++)
        x.test = arena_print(e->memory, "%s%s(unsigned long)(%" PRId64 "L%s%s) < %" PRId64 "UL", x.test ? x.test : "",
                             x.test ? " && " : "", d->guard_first[g], guards[g] ? " + " : "",
                             guards[g] ? guards[g] : "", d->guard_extent[g]);
    return x;
}

/* ---- loads ---- */

static bool follows_column(const schedule *s, const tile_op *op)
{
    return s->places[op->results[0]].column >= 0;
}

/* What a thread needs of a row or a column of the tile, as it lies in memory, so that nothing waits for it before the
 * products; packed: both of a pair of 16 bits in a word. */
static void print_ahead(printer *p, const tile_op *op)
{
    emitter *e = p->e;
    const schedule *s = p->s;
    dtype elem = e->k->params[op->attr.access.array].elem;
    bool columns = follows_column(s, op);
    int words = columns && dtypes[elem].size_bytes == 4 ? 2 : 1;
    int count = columns ? s->choice.tile[1] / 8 * words : rows_of_group(s) / 32;
    element x = element_of(p, op, s->places[op->results[0]], "");
    put(e, "unsigned %s_ahead[%d];", emit_name(e, op->results[0]), count);
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int i = 0; i < %d; i++) {", count);
    open_brace(e);
    if (columns)
        put(e, "const int column = i / %d * 8 + lane %% 4 * 2%s;", words, words > 1 ? " + i % 2" : "");
    else
        put(e, "const int row = warp_row + i / 2 * 64 + i %% 2 * 8 + lane / 4;");
    put(e, "%s_ahead[i] = %s(%s, %s);", emit_name(e, op->results[0]),
        need(e, "ask_u%d", columns ? 32 : dtypes[elem].size_bytes * 8), x.pointer, x.test ? x.test : "1");
    close_brace(e);
}

/* An element of that, or a pair. */
static void print_asked(printer *p, const tile_op *op)
{
    emitter *e = p->e;
    dtype elem = e->k->params[op->attr.access.array].elem;
    int chunks = p->s->choice.tile[1] / CHUNK;
    bool wide = dtypes[elem].size_bytes == 4;
    const char *name = emit_name(e, op->results[0]);
    if (!follows_column(p->s, op)) {
        const char *word = arena_print(e->memory, "%s_ahead[part / %d * 2 + pair %% 2]", name, chunks);
        put(e, "const float %s = %s(%s%s);", name, wide ? need(e, "real_f32") : need(e, "%s_to_f32", memory_name(elem)),
            wide ? "(int)" : "(unsigned short)", word);
        return;
    }
    const char *at = arena_print(e->memory, "part %% %d * 8 + pair / 2", chunks);
    put(e, "float %s_pair[2];", name);
    if (wide)
        put(e, "for (int v = 0; v < 2; v++) %s_pair[v] = %s((int)%s_ahead[(%s) * 2 + v]);", name, need(e, "real_f32"),
            name, at);
    else
        put(e, "%s(%s_pair, %s_ahead[%s]);", need(e, "unpack_%s", memory_name(elem)), name, name, at);
}

static void print_load(printer *p, const loop_node *n)
{
    emitter *e = p->e;
    const tile_op *op = n->op;
    dtype elem = e->k->params[op->attr.access.array].elem;
    sched_place at = p->s->places[op->results[0]];
    const char *type = cuda_register_type(elem), *name = emit_name(e, op->results[0]);
    if (n->number[0] == LOOPS_ROOM) { /* the swizzle of print_out */
        put(e, "float %s_pair[2];", name);
        put(e, "%s(%s_pair, *(const unsigned *)(in_room + warp * %" PRId64 " + %" PRId64 " + part * %d +",
            need(e, "unpack_%s", memory_name(elem)), name, p->s->in.stage_bytes, p->s->loads[n->number[1]].offset,
            16 * LINE);
        put(e, "    (pair %% 2 * 8 + lane / 4) * %d + (pair / 2 ^ lane / 4) * 16 + lane %% 4 * 4));", LINE);
        return;
    }
    if (n->number[0] >= LOOPS_AHEAD) {
        (n->number[0] == LOOPS_AHEAD ? print_ahead : print_asked)(p, op);
        return;
    }
    const char *read = need(e, "read_%s", memory_name(elem));
    if (n->number[0] == LOOPS_ONE || !follows_column(p->s, op)) { /* of one element, or the same for both */
        element x = element_of(p, op, at, n->number[0] == LOOPS_ONE ? " + v" : "");
        put(e, "const %s %s = %s%s%s(%s)%s;", type, name, x.test ? x.test : "", x.test ? " ? " : "", read, x.pointer,
            x.test ? " : 0" : "");
        return;
    }
    element first = element_of(p, op, at, ""), second = element_of(p, op, at, " + 1");
    put(e, "%s %s_pair[2] = {0, 0};", type, name);
    if (n->number[0] == LOOPS_EACH) {
        put(e, "%s%s%s%s_pair[0] = %s(%s);", first.test ? "if (" : "", first.test ? first.test : "",
            first.test ? ") " : "", name, read, first.pointer);
        put(e, "%s%s%s%s_pair[1] = %s(%s);", second.test ? "if (" : "", second.test ? second.test : "",
            second.test ? ") " : "", name, read, second.pointer);
        return;
    }
    const char *both = need(e, "load_%sx2", memory_name(elem));
    if (!second.test) {
        put(e, "%s(%s_pair, %s);", both, name, first.pointer);
        return;
    }
    /* Without a branch all loads of a chunk are asked for before the first is waited for; a choice of two addresses
     * becomes one, so the offset is masked. They are plain loads, which stay between the stores of the chunk before and
     * their own: registers would not do for those of a whole tile. */
    put(e, "const bool %s_in = %s;", name, second.test);
    const char *array = e->k->params[op->attr.access.array].name;
    put(e, "%s(%s_pair, %s_safe + ((%s - %s_array) & -(long)%s_in));", both, name, array, first.pointer, array, name);
    put(e, "for (int v = 0; v < 2; v++) %s_pair[v] = %s_in ? %s_pair[v] : 0;", name, name, name);
    if (n->number[0] == LOOPS_PAIR)
        put(e, "if (!%s_in && %s) %s_pair[0] = %s(%s);", name, first.test, name, read, first.pointer);
}

/* Where a load that is outside may read instead: the array's first element, or if it has none, the report. */
static void print_safe(printer *p, const tile_op *op)
{
    emitter *e = p->e;
    const tile_param *param = &e->k->params[op->attr.access.array];
    const char *some = "1";
    for (int axis = 0; axis < param->rank; axis++)
        some = arena_print(e->memory, "%s && %s_extent%d", some, param->name, axis);
    put(e, "const %s *const %s_safe = %s ? %s_array : (const %s *)frame.report;", cuda_memory_type(param->elem),
        param->name, some, param->name, cuda_memory_type(param->elem));
}

/* ---- arithmetic ---- */

static void print_let(printer *p, const loop_node *n)
{
    emitter *e = p->e;
    const tile_op *op = n->op;
    value v = op->results[0];
    tile_type type = tile_type_of(e->k, v);
    const char *name = emit_name(e, v), *c = cuda_register_type(type.elem);
    sched_place at = p->s->places[v];
    if (!type.rank && op->code == OP_LOAD) {
        element x = element_of(p, op, at, "");
        put(e, "const %s %s = %s%s%s(%s)%s;", c, name, x.test ? x.test : "", x.test ? " ? " : "",
            need(e, "read_%s", memory_name(type.elem)), x.pointer, x.test ? " : 0" : "");
        return;
    }
    if (!type.rank) {
        cuda_scalar_op(e, (tile_op *)op);
        return;
    }
    const char *operands[3] = {0};
    for (int i = 0; i < op->operand_count && i < 3; i++) operands[i] = emit_name(e, op->operands[i]);
    const char *place = place_text(e, at, op->attr.index, " + v");
    switch (op->code) {
    case OP_BROADCAST:
    case OP_RESHAPE: put(e, "const %s %s = %s;", c, name, operands[0]); return;
    case OP_IOTA: put(e, "const %s %s = %s;", c, name, place ? place : "0"); return;
    case OP_BOUND:
        put(e, "const bool %s = (unsigned long)(%s + (long)%s * %s) < (unsigned long)%s;", name, operands[0],
            place ? place : "0", operands[1], operands[2]);
        return;
    case OP_GELU:
        if (n->number[0] && !e->k->precise && !(op->flags & F_PRECISE)) {
            put(e, "const %s %s = %s(%s);", c, name, need(e, "near_gelu_f32"), operands[0]);
            return;
        }
        /* fallthrough */
    default: put(e, "const %s %s = %s;", c, name, cuda_expression(e, op, operands)); return;
    }
}

/* ---- loops ---- */

static void print_tiles(printer *p, const loop_node *n)
{
    emitter *e = p->e;
    int axes = launch_axes(e->k, p->s->phase);
    put(e, "for (int tile = (int)blockIdx.x; tile < tiles; tile += (int)gridDim.x) {");
    open_brace(e);
    if (axes == 1) {
        put(e, "const long program0 = tile, program1 = 0, program2 = 0;");
    } else {
        put(e, "const int down = (int)frame.programs[0], across = (int)frame.programs[1];");
        put(e, "const int layer = %s, in_layer = tile - layer * down * across;",
            axes > 2 ? "tile / (down * across)" : "0");
        put(e, "const int first_row = in_layer / (%d * across) * %d, in_run = in_layer - first_row * across;",
            n->number[0], n->number[0]);
        put(e, "const int rows = down - first_row < %d ? down - first_row : %d;", n->number[0], n->number[0]);
        put(e, "const long program0 = first_row + in_run %% rows, program1 = in_run / rows, program2 = layer;");
    }
    put(e, "(void)program0, (void)program1, (void)program2;");
    print_nodes(p, n->body);
    close_brace(e);
}

static const char *steps_text(emitter *e, const loop_node *n)
{
    const char *first = emit_name(e, n->op->operands[0]), *limit = emit_name(e, n->op->operands[1]);
    int each = n->number[1] ? n->number[0] * n->number[1] : n->number[0];
    return arena_print(e->memory, "%s < %s ? (int)((%s - %s + %d) / %d)%s : 1", first, limit, limit, first, each - 1,
                       each, n->number[1] > 1 ? arena_print(e->memory, " * %d", n->number[1]) : "");
}

/* A wait for a phase may be one ahead of it, not two: so the other group must have seen all its stages full. */
static void print_turn(printer *p, const loop_node *n)
{
    emitter *e = p->e;
    put(e, "const int taken = done;");
    put(e, "done += %s;", steps_text(e, n));
    put(e, "mine ^= 1;");
    put(e, "if (mine) continue;");
    put(e, "stage = taken %% %d, parity = taken / %d & 1;", p->s->choice.stages, p->s->choice.stages);
}

static void print_steps(printer *p, const loop_node *n)
{
    emitter *e = p->e;
    const char *first = emit_name(e, n->op->operands[0]), *limit = emit_name(e, n->op->operands[1]);
    if (p->s->walk_count > 1) { /* each has its own steps */
        put(e, "{");
        open_brace(e);
    }
    put_line_comment(e, n->op);
    const char *nowhere = arena_print(e->memory, "%s < %s ? %s : %d", first, limit, first, NOWHERE);
    put(e, "const int steps = %s;", steps_text(e, n));
    put(e, "const long start = %s;", nowhere);
    text_add(e->out, "#pragma unroll 1\n");
    put(e, "for (int step = 0; step < steps; step++) {");
    open_brace(e);
    put(e, "const long %s = start + (long)step * %d;", emit_name(e, n->op->regions[0]->args[0]), n->number[0]);
    put(e, "(void)%s;", emit_name(e, n->op->regions[0]->args[0]));
    print_nodes(p, n->body);
    close_brace(e);
    if (p->s->walk_count > 1) close_brace(e);
}

static void print_role(printer *p, const loop_node *n)
{
    emitter *e = p->e;
    const sched_role *role = n->number[0] ? &p->s->multiply : &p->s->fill;
    if (n->number[0])
        put(e, "else { /* %s */", role->name);
    else
        put(e, "if (warp >= %d) { /* %s */", role->first_warp, role->name);
    open_brace(e);
    if (!n->number[0] && p->s->gather.load) put(e, "const int filler = warp - %d;", role->first_warp);
    if (!n->number[0] && p->s->gather.by_chunk) put(e, "int behind = 0;");
    need(e, "roles");
    if (role->registers) put(e, "registers_%s<%d>();", n->number[0] ? "more" : "less", role->registers);
    if (n->number[0] && p->s->out.stage_bytes) put(e, "int turn = 0;");
    if (n->number[0] && p->s->load_count) put(e, "int in_parity = 0;");
    if (n->number[0]) {
        bool turns = p->s->choice.turns;
        put(e, "const int group = warp / 4, warp_row = group * %d + warp %% 4 * 16;", turns ? 0 : rows_of_group(p->s));
        if (turns) put(e, "int mine = 1 - group, done = 0; /* steps of the programs before */");
        if (turns) put(e, "if (group == 1) barrier_named_arrive(1, 256);");
        for (int i = 0; i < p->s->operand_count; i++) {
            const sched_operand *o = &p->s->operands[i];
            put(e, "const unsigned long long place%d = matrix_descriptor<128>(%s%s, %d, %d);", i, o->ring.name,
                o->side || turns ? "" : arena_print(e->memory, " + group * %d", rows_of_group(p->s) / 64 * GROUP_BYTES),
                o->along_k ? 16 : GROUP_BYTES, EIGHT_LINES);
        }
    }
    print_nodes(p, n->body);
    close_brace(e);
}

/* ---- the ring ---- */

/* Coordinates of a box, innermost first; of the tile axes: what is added to the start. */
static const char *coordinates(printer *p, const tile_op *op, const char *const *added)
{
    emitter *e = p->e;
    const struct access *a = &op->attr.access;
    const char *words = "";
    for (int axis = 0, operand = a->first_index; axis < a->rank; axis++) {
        const char *index = emit_name(e, op->operands[operand]);
        if (added[axis]) index = arena_print(e->memory, "(%s + %s)", index, added[axis]);
        words = arena_print(e->memory, ", (int)%s%s", index, words);
        operand += a->kind[axis] == INDEX_SLICE ? 2 : 1;
    }
    return words;
}

/* What an axis of a load begins with. */
static const char *start_of(emitter *e, const tile_op *load, int wanted)
{
    const struct access *a = &load->attr.access;
    int operand = a->first_index;
    for (int axis = 0; axis < wanted; axis++) operand += a->kind[axis] == INDEX_SLICE ? 2 : 1;
    return emit_name(e, load->operands[operand]);
}

/* The first place of the tile and the element of the window that this k is of; beyond k an image that is not there. */
static void print_windows_in(printer *p, const loop_node *n)
{
    emitter *e = p->e;
    const sched_operand *o = &p->s->operands[n->number[1]];
    const sched_windows *x = o->windows;
    const axis_digits *k = &e->k->params[o->load->attr.access.array].digits->axes[x->k_axis];
    const char *coordinates = "", *offsets = "";
    int64_t places = 1;
    put(e, "const unsigned place%d_k = (unsigned)%s;", n->number[1], start_of(e, o->load, x->k_axis));
    put(e, "const unsigned place%d_at = (unsigned)%s;", n->number[1], start_of(e, o->load, x->tile_axis));
    for (int i = 0; i < x->axis_count; i++) {
        const sched_window_axis *a = &x->axes[i];
        coordinates = arena_print(e->memory, "%s, (int)(place%d_at / %" PRId64 " %% %" PRId64 ") * %d + %" PRId64,
                                  coordinates, n->number[1], places, a->count, a->step, sched_window_lower(a));
        places *= a->count;
        int64_t inner = 1;
        for (int digit = k->count - 1; digit > a->digit && a->digit >= 0; digit--) inner *= k->extent[digit];
        const char *tap =
            a->digit < 0 ? "0"
                         : arena_print(e->memory, "(int)(place%d_k / %" PRId64 " %% %d)", n->number[1], inner, a->taps);
        if (a->apart < 0) tap = arena_print(e->memory, "(%d - %s)", a->taps - 1, tap);
        offsets = arena_print(e->memory, "%s, %s * %d", offsets, tap, a->apart < 0 ? -a->apart : a->apart);
    }
    const char *group = "";
    if (x->group_axis >= 0)
        group = arena_print(e->memory, " + (int)%s * %" PRId64, start_of(e, o->load, x->group_axis), x->group_stride);
    put(e, "%s(%s + stage * %" PRId64 ", &call.maps[%d], full + stage,", need(e, "bulk_windows_%dd", x->axis_count + 2),
        o->ring.name, o->ring.stage_bytes, o->map);
    put(e,
        "    (int)(place%d_k %% %" PRId64 ")%s%s, place%d_k < %" PRId64 " ? (int)(place%d_at / %" PRId64 ") : %d%s);",
        n->number[1], x->channels, group, coordinates, n->number[1], x->depth, n->number[1], places, NOWHERE, offsets);
}

static void print_bulk_in(printer *p, const loop_node *n)
{
    emitter *e = p->e;
    const sched_operand *o = &p->s->operands[n->number[1]];
    if (o->windows) {
        print_windows_in(p, n);
        return;
    }
    const char *added[MAX_RANK] = {0};
    if (n->number[0]) added[o->tile_axis] = arena_print(e->memory, "%d", n->number[0] * o->box_size);
    put(e, "%s(%s + stage * %" PRId64 " + %" PRId64 ", &call.maps[%d], full + stage%s);",
        need(e, "bulk_in_%dd", o->load->attr.access.rank), o->ring.name, o->ring.stage_bytes,
        o->ring.stage_bytes / o->boxes * n->number[0], o->map, coordinates(p, n->op, added));
}

/* 32 bytes of k further on, in units of 16 bytes. */
static int step_of(const sched_operand *o)
{
    return (o->along_k ? 32 : 16 * LINE) / 16;
}

static void print_matrix(printer *p, const loop_node *n)
{
    emitter *e = p->e;
    const schedule *s = p->s;
    const char *first = n->number[0] == LOOPS_ADD         ? "1"
                        : n->number[0] == LOOPS_FROM_ZERO ? "q != 0"
                                                          : "q ? 1 : before >= 0";
    put(e, "matrix_fence();");
    const sched_walk *walk = &s->walks[n->number[1]];
    for (int i = walk->first_product; i < walk->first_product + walk->product_count; i++) {
        const sched_operand *a = &s->operands[s->products[i].left], *b = &s->operands[s->products[i].right];
        text_add(e->out, "#pragma unroll\n");
        put(e, "for (int q = 0; q < %d; q++)", LINE / 32);
        text_add(e->out, "#pragma unroll\n");
        put(e, "    for (int m = 0; m < %d; m++)", rows_of_group(s) / 64);
        const char *turns = s->turns ? arena_print(e->memory, "<%d, %d>", !a->along_k, !b->along_k) : "";
        put(e, "        %s%s(sums[m], matrix_at(place%d, stage * %d + m * %d + q * %d),",
            need(e, "wgmma_%s_n%d", s->matrix, s->choice.tile[1]), turns, s->products[i].left,
            (int)a->ring.stage_bytes / 16, GROUP_BYTES / 16, step_of(a));
        put(e, "            matrix_at(place%d, stage * %d + q * %d), %s);", s->products[i].right,
            (int)b->ring.stage_bytes / 16, step_of(b), i > walk->first_product ? "1" : first);
    }
    put(e, "matrix_commit();");
}

static void print_release(printer *p, const loop_node *n)
{
    emitter *e = p->e;
    if (n->number[0] == LOOPS_BEFORE) {
        put(e, "if (before >= 0) {");
        put(e, "    matrix_wait<1>();");
        put(e, "    if (threadIdx.x %% 128 == 0) phase_arrive(empty + before);");
        put(e, "}");
        put(e, "before = stage;");
        return;
    }
    put(e, "matrix_wait<0>();");
    for (int m = 0; m < rows_of_group(p->s) / 64; m++) put(e, "matrix_keep(sums[%d]);", m);
    if (n->number[0] == LOOPS_THIS)
        put(e, "if (threadIdx.x %% 128 == 0) phase_arrive(empty + stage);");
    else
        put(e, "if (before >= 0 && threadIdx.x %% 128 == 0) phase_arrive(empty + before);");
}

static void print_sums_begin(printer *p, const loop_node *n)
{
    emitter *e = p->e;
    int blocks = rows_of_group(p->s) / 64, count = p->s->choice.tile[1] / 2;
    const char *name = n->number[1] ? "totals" : "sums";
    const char *type = cuda_register_type(tile_type_of(e->k, p->s->sums).elem);
    put(e, "%s %s[%d][%d];", type, name, blocks, count);
    if (n->number[0])
        put(e, "for (int i = 0; i < %d; i++) %s[i / %d][i %% %d] = 0;", blocks * count, name, count, count);
    if (n->number[1])
        put(e, "%s sums[%d][%d];", type, blocks, count);
    else
        put(e, "int before = -1;");
}

static void print_add_sums(printer *p)
{
    int blocks = rows_of_group(p->s) / 64, count = p->s->choice.tile[1] / 2;
    text_add(p->e->out, "#pragma unroll\n");
    put(p->e, "for (int i = 0; i < %d; i++) totals[i / %d][i %% %d] += sums[i / %d][i %% %d];", blocks * count, count,
        count, count, count);
}

/* ---- tiles that the epilogue loads ---- */

static void print_in_ask(printer *p)
{
    emitter *e = p->e;
    const schedule *s = p->s;
    int chunks = s->choice.tile[1] / CHUNK, parts = rows_of_group(s) / 64 * chunks;
    put(e, "__syncwarp();");
    put(e, "if (lane == 0) {");
    open_brace(e);
    put(e, "phase_expect(in_full + warp, %" PRId64 ");", s->in.stage_bytes);
    put(e, "for (int part = 0; part < %d; part++) {", parts);
    open_brace(e);
    put(e, "const int first_row = warp_row + part / %d * 64, first_column = part %% %d * %d;", chunks, chunks, CHUNK);
    for (int i = 0; i < s->load_count; i++) {
        const tile_op *op = s->loads[i].op;
        const struct access *a = &op->attr.access;
        const char *added[MAX_RANK] = {0};
        for (int axis = 0; axis < a->rank; axis++)
            if (a->kind[axis] == INDEX_SLICE && a->result_axis[axis] == s->places[op->results[0]].row)
                added[axis] = "first_row";
        added[a->rank - 1] = "first_column";
        put(e, "%s(in_room + warp * %" PRId64 " + %" PRId64 " + part * %d, &call.maps[%d], in_full + warp%s);",
            need(e, "bulk_in_%dd", a->rank), s->in.stage_bytes, s->loads[i].offset, 16 * LINE, s->loads[i].map,
            coordinates(p, op, added));
    }
    close_brace(e);
    close_brace(e);
}

/* ---- results ---- */

static void print_chunks(printer *p, const loop_node *n)
{
    emitter *e = p->e;
    const schedule *s = p->s;
    int chunks = s->choice.tile[1] / CHUNK;
    bool *named = ARENA_ARRAY(e->memory, bool, e->k->param_count);
    for (const loop_node *load = n->body->body; load; load = load->next) {
        if (load->code != LOOP_LOAD || (load->number[0] != LOOPS_PAIR && load->number[0] != LOOPS_WHOLE) ||
            named[load->op->attr.access.array])
            continue;
        named[load->op->attr.access.array] = true;
        print_safe(p, load->op);
    }
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int part = 0; part < %d; part++) {", rows_of_group(s) / 64 * chunks);
    open_brace(e);
    put(e, "const int first_row = warp_row + part / %d * 64, first_column = part %% %d * %d;", chunks, chunks, CHUNK);
    for (int i = 0; i < s->store_count; i++)
        if (s->stores[i].map >= 0 || s->stores[i].by_row)
            put(e, "%s out%d[32];", cuda_register_type(e->k->params[s->stores[i].op->attr.access.array].elem), i);
    print_nodes(p, n->body);
    close_brace(e);
}

static void print_pairs(printer *p, const loop_node *n)
{
    emitter *e = p->e;
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int pair = 0; pair < 16; pair++) {");
    open_brace(e);
    put(e, "const int row = first_row + lane / 4 + pair %% 2 * 8;");
    put(e, "const int column = first_column + pair / 2 * 8 + lane %% 4 * 2;");
    put(e, "(void)row, (void)column;");
    print_nodes(p, n->body);
    close_brace(e);
}

static void print_elements(printer *p, const loop_node *n, const loop_node *loads)
{
    emitter *e = p->e;
    int chunks = p->s->choice.tile[1] / CHUNK;
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int v = 0; v < 2; v++) {");
    open_brace(e);
    put(e, "const %s %s = %s[part / %d][part %% %d * 32 + pair * 2 + v];",
        cuda_register_type(tile_type_of(e->k, p->s->sums).elem), emit_name(e, p->s->sums),
        p->s->apart ? "totals" : "sums", chunks, chunks);
    for (; loads && loads->code == LOOP_LOAD; loads = loads->next) {
        value v = loads->op->results[0];
        if (!follows_column(p->s, loads->op)) continue;
        put(e, "const %s %s = %s_pair[v];", cuda_register_type(tile_type_of(e->k, v).elem), emit_name(e, v),
            emit_name(e, v));
    }
    print_nodes(p, n->body);
    close_brace(e);
}

static void print_store(printer *p, const loop_node *n)
{
    emitter *e = p->e;
    dtype elem = e->k->params[n->op->attr.access.array].elem;
    element x = element_of(p, n->op, p->s->places[n->op->operands[0]], " + v");
    put(e, "%s%s%s%s(%s, %s);", x.test ? "if (" : "", x.test ? x.test : "", x.test ? ") " : "",
        need(e, "write_%s", memory_name(elem)), x.pointer, emit_name(e, n->operand));
}

static int64_t turn_bytes(const schedule *s)
{
    return s->out.stage_bytes / s->out_buffers;
}

static void print_out(printer *p, const loop_node *n)
{
    emitter *e = p->e;
    const sched_store *store = &p->s->stores[n->number[0]];
    const char *elem = memory_name(e->k->params[n->op->attr.access.array].elem);
    int number = n->number[0];
    put(e, "{");
    open_brace(e);
    put(e, "char *const to = out_room + warp * %" PRId64 " + turn * %" PRId64 " + %" PRId64 ";", p->s->out.stage_bytes,
        turn_bytes(p->s), store->offset);
    text_add(e->out, "#pragma unroll\n");
    if (store->boxes == 1) { /* 16-bit elements: four 8 x 8 matrices, 16 rows of 16 columns */
        const char *pack = need(e, "pack_%s", elem);
        need(e, "store_matrices");
        put(e, "for (int n = 0; n < 32; n += 8)");
        put(e, "    store_matrices(to + lane %% 16 * %d + ((n / 4 + lane / 16) ^ lane %% 8) * 16,", LINE);
        put(e, "        %s(out%d[n], out%d[n + 1]), %s(out%d[n + 2], out%d[n + 3]),", pack, number, number, pack,
            number, number);
        put(e, "        %s(out%d[n + 4], out%d[n + 5]), %s(out%d[n + 6], out%d[n + 7]));", pack, number, number, pack,
            number, number);
    } else {
        put(e, "for (int n = 0; n < 16; n++)");
        put(e, "    %s((%s *)(to + n / 8 * %" PRId64 " + (n %% 2 * 8 + lane / 4) * %d +", need(e, "store_%sx2", elem),
            cuda_memory_type(e->k->params[n->op->attr.access.array].elem), store->box_bytes, LINE);
        put(e, "        ((n / 2 %% 4 * 2 + lane %% 4 / 2) ^ lane / 4) * 16 + lane %% 2 * 8), out%d + n * 2);", number);
    }
    close_brace(e);
}

/* A row of the chunk after the other, 32 neighbours at a time; the swizzle as in print_out. */
static void print_out_rows(printer *p, const loop_node *n)
{
    emitter *e = p->e;
    const sched_store *store = &p->s->stores[n->number[0]];
    dtype elem = e->k->params[n->op->attr.access.array].elem;
    int size = dtypes[elem].size_bytes;
    put(e, "__syncwarp();");
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int half = 0; half < 2; half++) {");
    open_brace(e);
    put(e, "const int in_line = (half * 32 + lane) %% %d * %d, column = first_column + half * 32 + lane;", LINE / size,
        size);
    put(e,
        "const char *const from = out_room + warp * %" PRId64 " + turn * %" PRId64 " + %" PRId64 " + half * %" PRId64
        ";",
        p->s->out.stage_bytes, turn_bytes(p->s), store->offset, store->boxes > 1 ? store->box_bytes : 0);
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int line = 0; line < 16; line++) {");
    open_brace(e);
    put(e, "const int row = first_row + line;");
    element x = element_of(p, n->op, p->s->places[n->op->operands[0]], "");
    const char *type = cuda_memory_type(elem);
    put(e, "%s%s%s*(%s *)(%s) = *(const %s *)(from + line * %d + ((in_line / 16 ^ line %% 8) * 16 + in_line %% 16));",
        x.test ? "if (" : "", x.test ? x.test : "", x.test ? ") " : "", type, x.pointer, type, LINE);
    close_brace(e);
    close_brace(e);
}

static void print_out_send(printer *p, const loop_node *n)
{
    emitter *e = p->e;
    const schedule *s = p->s;
    if (!n->number[1]) {
        if (s->out_buffers > 1) put(e, "turn ^= 1;");
        return;
    }
    need(e, "bulk_groups");
    put(e, "fence_async();");
    put(e, "__syncwarp();");
    put(e, "if (lane == 0) {");
    open_brace(e);
    for (int i = 0; i < s->store_count; i++) {
        const sched_store *store = &s->stores[i];
        const tile_op *op = store->op;
        const struct access *a = &op->attr.access;
        if (store->map < 0) continue;
        for (int box = 0; box < store->boxes; box++) {
            const char *added[MAX_RANK] = {0};
            for (int axis = 0; axis < a->rank; axis++)
                if (a->kind[axis] == INDEX_SLICE && a->result_axis[axis] == s->places[op->operands[0]].row)
                    added[axis] = "first_row";
            added[a->rank - 1] = arena_print(e->memory, "first_column + %d", box * store->box_size);
            put(e, "%s(&call.maps[%d], out_room + warp * %" PRId64 " + turn * %" PRId64 " + %" PRId64 "%s);",
                need(e, "bulk_out_%dd", a->rank), store->map, s->out.stage_bytes, turn_bytes(s),
                store->offset + box * store->box_bytes, coordinates(p, op, added));
        }
    }
    put(e, "bulk_commit();");
    close_brace(e);
    if (s->out_buffers > 1) put(e, "turn ^= 1;");
}

/* ---- one node ---- */

static void print_node(printer *p, const loop_node *n, const loop_node *first)
{
    emitter *e = p->e;
    switch (n->code) {
    case LOOP_ROLE: print_role(p, n); break;
    case LOOP_ONE:
        put(e, "if (warp == %d && lane == 0) {", p->s->fill.first_warp);
        open_brace(e);
        print_nodes(p, n->body);
        close_brace(e);
        break;
    case LOOP_TILES: print_tiles(p, n); break;
    case LOOP_FOR:
        emit_for_head(e, n->op);
        open_brace(e);
        print_nodes(p, n->body);
        close_brace(e);
        break;
    case LOOP_STEPS: print_steps(p, n); break;
    case LOOP_TURN: print_turn(p, n); break;
    case LOOP_TURN_WAIT: put(e, "barrier_named(1 + group, 256);"); break;
    case LOOP_TURN_END: put(e, "if (tile + (int)gridDim.x < tiles) barrier_named_arrive(2 - group, 256);"); break;
    case LOOP_LET: print_let(p, n); break;
    case LOOP_RING_BEGIN: put(e, "int stage = 0, parity = %d;", n->number[0]); break;
    case LOOP_RING_NEXT: put(e, "if (++stage == %d) stage = 0, parity ^= 1;", n->number[0]); break;
    case LOOP_WAIT: put(e, "phase_wait(%s + stage, parity);", n->number[0] ? "empty" : "full"); break;
    case LOOP_EXPECT: put(e, "phase_expect(full + stage, %d);", n->number[0]); break;
    case LOOP_BULK_IN: print_bulk_in(p, n); break;
    case LOOP_GATHER_BEGIN: print_gather_begin(e, p->s, n); break;
    case LOOP_GATHER_NEXT: print_gather_next(e, p->s, n); break;
    case LOOP_GATHER: print_gather(e, p->s); break;
    case LOOP_FILLED: print_filled(e, p->s); break;
    case LOOP_FILLED_LAST: print_filled_last(e, p->s); break;
    case LOOP_SUMS_BEGIN: print_sums_begin(p, n); break;
    case LOOP_ADD_SUMS: print_add_sums(p); break;
    case LOOP_MATRIX: print_matrix(p, n); break;
    case LOOP_RELEASE: print_release(p, n); break;
    case LOOP_IN_ASK: print_in_ask(p); break;
    case LOOP_IN_WAIT:
        put(e, "phase_wait(in_full + warp, in_parity);");
        put(e, "in_parity ^= 1;");
        break;
    case LOOP_CHUNKS: print_chunks(p, n); break;
    case LOOP_PAIRS: print_pairs(p, n); break;
    case LOOP_LOAD: print_load(p, n); break;
    case LOOP_ELEMENTS: print_elements(p, n, first); break;
    case LOOP_KEEP: put(e, "out%d[pair * 2 + v] = %s;", n->number[0], emit_name(e, n->operand)); break;
    case LOOP_STORE: print_store(p, n); break;
    case LOOP_OUT_WAIT:
        if (n->number[1]) put(e, "if (lane == 0) bulk_wait_read<%d>();", n->number[0]);
        put(e, "__syncwarp();");
        break;
    case LOOP_OUT: print_out(p, n); break;
    case LOOP_OUT_ROWS: print_out_rows(p, n); break;
    case LOOP_OUT_SEND: print_out_send(p, n); break;
    case LOOP_OUT_END: put(e, "if (lane == 0) bulk_wait_read<0>();"); break;
    case LOOP_COUNT: break;
    }
}

static void print_nodes(printer *p, const loop_node *n)
{
    for (const loop_node *first = n; n; n = n->next) print_node(p, n, first);
}

void emit_cuda_loops(emitter *e, const loop_program *program, text *functions)
{
    const schedule *s = program->schedule;
    const char *name = e->k->name;
    printer p = {e, s};
    text body = {0};
    cuda_state *c = ARENA_NEW(e->memory, cuda_state);
    int count = e->k->value_count, axes = launch_axes(e->k, s->phase);
    e->cuda = c;
    e->phase = s->phase;
    e->line = 0;
    e->uses = ARENA_ARRAY(e->memory, int, count);
    e->array_used = ARENA_ARRAY(e->memory, bool, e->k->param_count + 1);
    e->out = &body;
    e->depth = 2;
    need(e, "phases");
    need(e, "matrix_at");
    print_nodes(&p, program->first);

    e->out = functions;
    e->depth = 0;
    put(e, "struct __align__(64) %s_phase%d_frame {", name, s->phase);
    put(e, "    tensor_map maps[%d];", s->map_count);
    put(e, "    %s_frame rest;", name);
    put(e, "};");
    put(e, "extern \"C\" __global__ void __launch_bounds__(%d, %d)", s->threads, s->choice.blocks);
    put(e, "%s_phase%d(const __grid_constant__ %s_phase%d_frame call)", name, s->phase, name, s->phase);
    put(e, "{");
    e->depth = 1;
    put(e, "extern __shared__ __align__(1024) char shared_room[];");
    put(e, "const %s_frame &frame = call.rest;", name);
    need(e, "grid_begin");
    put(e, "grid_call();");
    cuda_put_arrays(e, text_get(&body));
    for (int i = 0; i < s->operand_count; i++)
        if (!s->operands[i].walk)
            put(e, "char *const %s = shared_room + %" PRId64 ";", s->operands[i].ring.name, s->operands[i].ring.offset);
    if (s->load_count) put(e, "char *const in_room = shared_room + %" PRId64 ";", s->in.offset);
    if (s->out.stage_bytes) put(e, "char *const out_room = shared_room + %" PRId64 ";", s->out.offset);
    put(e,
        "unsigned long long *const full = (unsigned long long *)(shared_room + %" PRId64 "), *const empty = full + %d;",
        s->phases_offset, s->choice.stages);
    if (s->load_count) put(e, "unsigned long long *const in_full = empty + %d;", s->choice.stages);
    put(e, "const int warp = warp_number(), lane = threadIdx.x %% 32;");
    put(e, "const int tiles = (int)(frame.programs[0]%s%s);", axes > 1 ? " * frame.programs[1]" : "",
        axes > 2 ? " * frame.programs[2]" : "");
    need(e, "bulk_groups");
    put(e, "if (threadIdx.x == 32) /* what a copy asks for first is its map */");
    put(e, "    for (int i = 0; i < %d; i++) map_prefetch(&call.maps[i]);", s->map_count);
    put(e, "if (threadIdx.x == 0) {");
    put(e, "    for (int i = 0; i < %d; i++) phase_init(full + i, %d), phase_init(empty + i, %d);", s->choice.stages,
        s->gather.load ? 1 + s->fill.warps : 1, s->choice.turns ? 1 : s->choice.groups);
    if (s->load_count) put(e, "    for (int i = 0; i < %d; i++) phase_init(in_full + i, 1);", s->in.stages);
    put(e, "    phases_ready();");
    put(e, "}");
    put(e, "__syncthreads();");
    put(e, "if (grid_begin() == 0) {");
    text_add(functions, text_get(&body));
    put(e, "}");
    e->depth = 0;
    put(e, "}");
    put(e, "%s", "");
    text_free(&body);
}
