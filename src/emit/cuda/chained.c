/*
 * The recipe `chained` as CUDA C. In: its schedule (schedule/chained.h). Out: one __global__ function.
 *
 * Names in the text: `call` the parameter, `frame` the rest of it; fixedN_room the lines of fixed operand N and later of
 * a result, ringN_room the stages of moving operand N, with the phases fullN and emptyN; `vectors` numbers of the step's
 * rows; `scores` and `more` the registers of the products of scores, sumsN and weightsN those of a sum and its left
 * operand.
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/chained_parts.h"

#include <inttypes.h>

enum { LINE = CHAINED_LINE, EIGHT_LINES = 8 * LINE, LANES = 32 };

static int operand_bytes(const chained *c, int operand)
{
    const chained_operand *o = &c->operands[operand];
    return (o->moves ? c->columns : c->rows) * chained_boxes(o->depth) * LINE;
}

static const char *index_name(chained_printer *p, const tile_op *op, int axis)
{
    const struct access *a = &op->attr.access;
    int operand = a->first_index;
    for (int k = 0; k < axis; k++) operand += a->kind[k] == INDEX_SLICE ? 2 : 1;
    return emit_name(p->e, op->operands[operand]);
}

/* Coordinates of box `box` of rows, innermost first. */
static const char *box_place(chained_printer *p, const tile_op *op, const char *added, int box)
{
    emitter *e = p->e;
    int rank = op->attr.access.rank;
    const char *words = arena_print(e->memory, "%d, (int)(%s%s)", box * 64, index_name(p, op, rank - 2), added);
    for (int axis = rank - 3; axis >= 0; axis--)
        words = arena_print(e->memory, "%s, (int)%s", words, index_name(p, op, axis));
    return words;
}

/* The rows of an operand into its room, or a stage of its ring. */
static void print_copies(chained_printer *p, int operand, const char *room, const char *phase)
{
    emitter *e = p->e;
    const chained_operand *o = &p->c->operands[operand];
    int lines = o->moves ? p->c->columns : p->c->rows;
    for (int box = 0; box < chained_boxes(o->depth); box++)
        put(e, "%s(%s + %d, &call.maps[%d], %s, %s);", need(e, "bulk_in_%dd", o->load->attr.access.rank), room,
            box * lines * LINE, operand, phase, box_place(p, o->load, "", box));
}

/* ---- results ---- */

static void print_row_store(chained_printer *p, const tile_op *op)
{
    emitter *e = p->e;
    const char *test = "lane % 4 == 0", *pointer = chained_row_pointer(p, op, "row + h * 8", &test);
    chained_begin_pass(p);
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int h = 0; h < 2; h++)");
    put(e, "    if (%s) %s(%s, %s);", test, need(e, "write_%s", memory_name(e->k->params[op->attr.access.array].elem)),
        pointer, chained_element(p, op->operands[0]));
}

/* A sum through the room of fixed operand `operand` to its array, each warp for itself. */
static void print_sum_store(chained_printer *p, int number, int operand)
{
    emitter *e = p->e;
    const chained *c = p->c;
    const chained_sum *s = &c->sums[number];
    const tile_op *store = c->stores[s->store];
    const char *pack = chained_pack_name(e, c->elem);
    chained_begin_pass(p);
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int x = 0; x < %d; x++) {", s->width / 2);
    e->depth++;
    put(e, "const int h = x / 2 %% 2;");
    put(e, "(void)h;");
    put(e, "sums%d[x] = %s;", number, chained_element(p, store->operands[0]));
    e->depth--;
    put(e, "}");
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int i = 0; i < %d; i += 2) {", s->width / 8);
    need(e, "store_matrices");
    put(e, "    const float *d = sums%d + i * 4;", number);
    put(e, "    store_matrices(fixed%d_room + i / 8 * %d + (warp_row + lane %% 16) * %d +", operand, c->rows * LINE,
        LINE);
    put(e, "            (((i %% 8 + lane / 16) ^ lane %% 8) << 4),");
    put(e, "        %s(d[0], d[1]), %s(d[2], d[3]), %s(d[4], d[5]), %s(d[6], d[7]));", pack, pack, pack, pack);
    put(e, "}");
    need(e, "bulk_groups");
    put(e, "fence_async();");
    put(e, "__syncwarp();");
    put(e, "if (lane == 0) {");
    for (int box = 0; box < chained_boxes(s->width); box++)
        put(e, "    %s(&call.maps[%d], fixed%d_room + %d + warp_row * %d, %s);",
            need(e, "bulk_out_%dd", store->attr.access.rank), c->operand_count + number, operand, box * c->rows * LINE,
            LINE, box_place(p, store, " + warp_row", box));
    put(e, "    bulk_commit();");
    put(e, "}");
}

static void print_results(chained_printer *p)
{
    emitter *e = p->e;
    const chained *c = p->c;
    const tile_block *block = c->kernel->phases[c->phase];
    bool after = false;
    p->after = true;
    for (int i = 0; i < c->loop->result_count; i++) {
        bool sum = false;
        for (int s = 0; s < c->sum_count; s++) sum |= c->sums[s].carried == i;
        if (sum) continue;
        put(e, "float(&%s)[2] = %s;", emit_name(e, c->loop->results[i]),
            emit_name(e, c->loop->regions[0]->args[1 + i]));
        p->rows[c->loop->results[i]] = true;
        if (c->lane_sum && c->lane_carried == i) chained_print_exchange(p, c->loop->results[i], FOLD_SUM);
    }
    for (int i = 0; i < block->op_count; i++) {
        const tile_op *op = block->ops[i];
        after |= op == c->loop;
        if (!after || op == c->loop || !op->result_count) continue;
        chained_kind kind = chained_kind_of(c, op->results[0]);
        if (kind == CHAINED_SCALAR) cuda_scalar_op(e, (tile_op *)op);
        if (kind == CHAINED_FIXED) chained_print_row(p, op);
    }
    for (int i = 0; i < c->store_count; i++) {
        bool sum = false;
        for (int s = 0; s < c->sum_count; s++) sum |= c->sums[s].store == i;
        if (!sum) print_row_store(p, c->stores[i]);
    }
    put(e, "barrier_named(1 + group, 128); /* nobody reads the fixed operands' rooms any more */");
    int operand = 0;
    for (int i = 0; i < c->sum_count; i++) {
        while (c->operands[operand].moves) operand++;
        print_sum_store(p, i, operand++);
    }
    put(e, "if (lane == 0) bulk_wait_read<0>();");
}

/* ---- the function ---- */

static void print_scalars(chained_printer *p)
{
    const tile_block *block = p->c->kernel->phases[p->c->phase];
    for (int i = 0; i < block->op_count && block->ops[i] != p->c->loop; i++) {
        const tile_op *op = block->ops[i];
        bool scalar = op->result_count == 1 && !tile_type_of(p->e->k, op->results[0]).rank && op->code != OP_CONST;
        if (scalar && op->code == OP_LOAD) {
            const char *test = "", *pointer = chained_row_pointer(p, op, "0", &test);
            dtype elem = tile_type_of(p->e->k, op->results[0]).elem;
            put(p->e, "const %s %s = %s ? %s(%s) : 0;", cuda_register_type(elem), emit_name(p->e, op->results[0]),
                *test ? test : "true", need(p->e, "read_%s", memory_name(elem)), pointer);
        } else if (scalar) {
            cuda_scalar_op(p->e, (tile_op *)op);
        }
    }
}

/* Numbers of a step's rows: asked for before the stage is free, written to it by the lanes. */
static void print_vectors(chained_printer *p, bool ask)
{
    emitter *e = p->e;
    const chained *c = p->c;
    for (int i = 0; i < c->vector_count; i++) {
        const tile_op *op = c->vectors[i];
        for (int part = 0; part < (c->columns + LANES - 1) / LANES && ask; part++) {
            const char *test = "", *row = arena_print(e->memory, "lane + %d", part * LANES);
            const char *pointer = chained_row_pointer(p, op, row, &test);
            put(e, "const float next%d_%d = %s ? %s(%s) : 0;", i, part, *test ? test : "true",
                need(e, "read_%s", memory_name(e->k->params[op->attr.access.array].elem)), pointer);
        }
        for (int part = 0; part < (c->columns + LANES - 1) / LANES && !ask; part++) {
            bool half = (part + 1) * LANES > c->columns;
            put(e, "%svectors_room[stage * %d + %d + lane] = next%d_%d;", half ? "if (lane < 16) " : "",
                c->vector_count * c->columns, i * c->columns + part * LANES, i, part);
        }
    }
}

static void print_fill(chained_printer *p)
{
    emitter *e = p->e;
    const chained *c = p->c;
    const char *at = emit_name(e, c->loop->regions[0]->args[0]);
    int fixed_bytes = 0, first = c->products[0].moving;
    put(e, "if (warp >= %d) { /* fill */", c->groups * 4);
    e->depth++;
    if (c->groups > 1) put(e, "registers_less<%d>();", c->groups > 2 ? 32 : 24);
    put(e, c->vector_count ? "if (warp == %d) {" : "if (warp == %d && lane == 0) {", c->groups * 4);
    e->depth++;
    print_scalars(p);
    if (c->vector_count) put(e, "if (lane == 0) {");
    for (int i = 0; i < c->operand_count; i++)
        if (!c->operands[i].moves) fixed_bytes += operand_bytes(c, i);
    put(e, "phase_expect(fixed_full, %d);", fixed_bytes);
    for (int i = 0; i < c->operand_count; i++)
        if (!c->operands[i].moves) print_copies(p, i, arena_print(e->memory, "fixed%d_room", i), "fixed_full");
    if (c->vector_count) put(e, "}");
    put(e, "int stage = 0, parity = 1;");
    put(e, "for (long %s = %s; %s < %s; %s += %d) {", at, emit_name(e, c->loop->operands[0]), at,
        emit_name(e, c->loop->operands[1]), at, c->columns);
    e->depth++;
    if (c->vector_count) {
        print_vectors(p, true);
        put(e, "phase_wait(empty%d + stage, parity);", first);
        print_vectors(p, false);
        put(e, "__syncwarp();");
        put(e, "if (lane == 0) {");
        e->depth++;
    }
    for (int turn = 0; turn < c->operand_count; turn++) {
        int i = (first + turn) % c->operand_count; /* what a step needs first, first */
        if (!c->operands[i].moves) continue;
        if (turn || !c->vector_count) put(e, "phase_wait(empty%d + stage, parity);", i);
        put(e, "phase_expect(full%d + stage, %d);", i, operand_bytes(c, i));
        print_copies(p, i, arena_print(e->memory, "ring%d_room + stage * %d", i, operand_bytes(c, i)),
                     arena_print(e->memory, "full%d + stage", i));
    }
    if (c->vector_count) {
        e->depth--;
        put(e, "}");
    }
    put(e, "if (++stage == %d) stage = 0, parity ^= 1;", c->stages);
    e->depth--;
    put(e, "}");
    e->depth--;
    put(e, "}");
    e->depth--;
    put(e, "} else { /* multiply */");
}

static void print_multiply(chained_printer *p)
{
    emitter *e = p->e;
    const chained *c = p->c;
    e->depth++;
    if (c->groups > 1) put(e, "registers_more<%d>();", c->groups > 2 ? 160 : 240);
    print_scalars(p);
    put(e, "const int group = warp / 4, warp_row = warp * 16, row = warp_row + lane / 4;");
    for (int i = 0; i < c->operand_count; i++) {
        bool lines = false, turned = false;
        for (int m = 0; m < c->product_count; m++) lines |= c->products[m].moving == i;
        for (int s = 0; s < c->sum_count; s++) turned |= c->sums[s].moving == i;
        if (!c->operands[i].moves)
            put(e,
                "const unsigned long long fixed%d_place = matrix_descriptor<128>(fixed%d_room + group * %d, 16, %d);",
                i, i, 64 * LINE, EIGHT_LINES);
        if (c->operands[i].moves && lines)
            put(e, "const unsigned long long lines%d_place = matrix_descriptor<128>(ring%d_room, 16, %d);", i, i,
                EIGHT_LINES);
        if (turned)
            put(e, "const unsigned long long turned%d_place = matrix_descriptor<128>(ring%d_room, %d, %d);", i, i,
                c->columns * LINE, EIGHT_LINES);
    }
    chained_print_fixed(p);
    put(e, "phase_wait(fixed_full, 0);");
    chained_print_loop(p);
    print_results(p);
    e->depth--;
    put(e, "}");
}

static void print_rooms(chained_printer *p)
{
    emitter *e = p->e;
    const chained *c = p->c;
    int phases = 1;
    put(e, "unsigned long long *const fixed_full = (unsigned long long *)(shared_room + %" PRId64 ");",
        c->phases_offset);
    for (int i = 0; i < c->operand_count; i++) {
        const chained_operand *o = &c->operands[i];
        put(e, "char *const %s%d_room = shared_room + %" PRId64 ";", o->moves ? "ring" : "fixed", i, o->offset);
        if (!o->moves) continue;
        put(e, "unsigned long long *const full%d = fixed_full + %d, *const empty%d = full%d + %d;", i, phases, i, i,
            c->stages);
        phases += 2 * c->stages;
    }
    if (c->vector_count) put(e, "float *const vectors_room = (float *)(shared_room + %" PRId64 ");", c->vectors_offset);
    put(e, "const int warp = warp_number(), lane = threadIdx.x %% 32;");
}

/* Programs with more steps begin first. */
static bool falls(const chained *c)
{
    bool more = false;
    for (int i = 0; i < c->condition_count; i++)
        more |= !c->conditions[i].limit && (c->conditions[i].compare == OP_LT || c->conditions[i].compare == OP_LE);
    return more;
}

void emit_cuda_chained(emitter *e, const chained *c, text *functions)
{
    text body = {0};
    int count = e->k->value_count, axes = launch_axes(e->k, c->phase);
    chained_printer p = {.e = e, .c = c};
    e->cuda = ARENA_NEW(e->memory, cuda_state);
    e->phase = c->phase;
    e->line = 0;
    e->survey->uses = ARENA_ARRAY(e->memory, int, count);
    arrays_forget(e);
    p.known = ARENA_ARRAY(e->memory, bool, count);
    p.rows = ARENA_ARRAY(e->memory, bool, count);
    p.folded = ARENA_ARRAY(e->memory, bool, count);
    e->out = &body;
    e->depth = 2;
    need(e, "phases");
    need(e, "roles");
    need(e, "matrix_at");
    if (c->vector_count) need(e, "pair_f32");
    print_fill(&p);
    print_multiply(&p);

    e->out = functions;
    cuda_put_head(e, c->phase, c->operand_count + c->sum_count, c->threads, 1);
    print_rooms(&p);
    put(e, "const long program0 = %s;",
        falls(c) ? "frame.programs[0] - 1 - blockIdx.x % frame.programs[0]" : "blockIdx.x % frame.programs[0]");
    put(e, "const long program1 = %s, program2 = %s;",
        axes > 1 ? "blockIdx.x / frame.programs[0] % frame.programs[1]" : "0",
        axes > 2 ? "blockIdx.x / (frame.programs[0] * frame.programs[1])" : "0");
    put(e, "(void)program1, (void)program2;");
    need(e, "bulk_groups");
    put(e, "if (threadIdx.x == 32) /* what a copy asks for first is its map */");
    put(e, "    for (int i = 0; i < %d; i++) map_prefetch(&call.maps[i]);", c->operand_count + c->sum_count);
    put(e, "if (threadIdx.x == 0) {");
    put(e, "    phase_init(fixed_full, 1);");
    put(e, "    for (int i = 0; i < %d; i++) {", c->stages);
    for (int i = 0; i < c->operand_count; i++)
        if (c->operands[i].moves)
            put(e, "        phase_init(full%d + i, 1), phase_init(empty%d + i, %d);", i, i, c->groups);
    put(e, "    }");
    cuda_put_body(e, functions, &body);
}

/* Boxes of 64 elements of `lines` rows. */
static cuda_map map_of(const tile_op *op, int lines)
{
    const struct access *a = &op->attr.access;
    cuda_map m = {.param = a->array, .rank = a->rank, .swizzle = LINE};
    for (int at = 0; at < a->rank; at++) {
        m.axes[at] = (cuda_map_axis){.axis = a->rank - 1 - at, .step = 1};
        m.box[at] = at == 0 ? 64 : at == 1 ? lines : 1;
    }
    return m;
}

int cuda_chained_maps(const chained *c, cuda_map *maps)
{
    int count = 0;
    for (int i = 0; i < c->operand_count; i++)
        maps[count++] = map_of(c->operands[i].load, c->operands[i].moves ? c->columns : c->rows);
    for (int i = 0; i < c->sum_count; i++) maps[count++] = map_of(c->stores[c->sums[i].store], 16);
    return count;
}
