/*
 * Loop programs as CUDA C. In: a program (loops/loops.h). Out: one __global__ function. One case for each kind of node;
 * nothing is chosen here.
 *
 * Names in the text: `call` the parameter, `call.maps` its tensor maps, `frame` the rest of it; `warp`, `lane`; a_ring,
 * b_ring, out_room in shared memory; `full` and `empty` the phases of each stage; `stage`, `parity` of the role; `sums`
 * the registers of a product, `totals` those of all steps where they are summed up apart, `row` and `column` a pair's place in the tile.
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/fill.h"
#include "emit/cuda/loops_parts.h"

#include <inttypes.h>

void open_brace(emitter *e)
{
    e->depth++;
}

void close_brace(emitter *e)
{
    e->depth--;
    put(e, "}");
}

int rows_of_group(const schedule *s)
{
    return s->choice.turns ? s->choice.tile[0] : s->choice.tile[0] / s->choice.groups;
}

/* ---- loops ---- */

static void print_tiles(loop_printer *p, const loop_node *n)
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

const char *steps_text(emitter *e, const loop_node *n)
{
    const char *first = emit_name(e, n->op->operands[0]), *limit = emit_name(e, n->op->operands[1]);
    int each = n->number[1] ? n->number[0] * n->number[1] : n->number[0];
    return arena_print(e->memory, "%s < %s ? (int)((%s - %s + %d) / %d)%s : 1", first, limit, limit, first, each - 1,
                       each, n->number[1] > 1 ? arena_print(e->memory, " * %d", n->number[1]) : "");
}

/* A wait for a phase may be one ahead of it, not two: so the other group must have seen all its stages full. */
static void print_turn(loop_printer *p, const loop_node *n)
{
    emitter *e = p->e;
    put(e, "const int taken = done;");
    put(e, "done += %s;", steps_text(e, n));
    put(e, "mine ^= 1;");
    put(e, "if (mine) continue;");
    put(e, "stage = taken %% %d, parity = taken / %d & 1;", p->s->choice.stages, p->s->choice.stages);
}

static void print_steps(loop_printer *p, const loop_node *n)
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

static void print_role(loop_printer *p, const loop_node *n)
{
    emitter *e = p->e;
    const sched_role *role = n->number[0] ? &p->s->multiply : &p->s->fill;
    if (n->number[0])
        put(e, "else { /* %s */", role->name);
    else
        put(e, "if (warp >= %d) { /* %s */", role->first_warp, role->name);
    open_brace(e);
    if (!n->number[0] && sched_warps_fill(p->s)) put(e, "const int filler = warp - %d;", role->first_warp);
    if (!n->number[0] && sched_copies_ahead(p->s)) put(e, "int behind = 0;");
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

/* ---- one node ---- */

static void print_node(loop_printer *p, const loop_node *n, const loop_node *first)
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
    case LOOP_TAKE_BEGIN: print_take_begin(e, p->s, n); break;
    case LOOP_TAKE: print_take(e, p->s, n); break;
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
    default: CHECK(!"a node of another program");
    }
}

void print_nodes(loop_printer *p, const loop_node *n)
{
    for (const loop_node *first = n; n; n = n->next) print_node(p, n, first);
}

void cuda_put_head(emitter *e, int phase, int maps, int threads, int blocks)
{
    const char *name = e->k->name;
    e->depth = 0;
    put(e, "struct __align__(64) %s_phase%d_frame {", name, phase);
    if (maps) put(e, "    tensor_map maps[%d];", maps);
    put(e, "    %s_frame rest;", name);
    put(e, "};");
    put(e, "extern \"C\" __global__ void __launch_bounds__(%d, %d)", threads, blocks);
    put(e, "%s_phase%d(const __grid_constant__ %s_phase%d_frame call)", name, phase, name, phase);
    put(e, "{");
    e->depth = 1;
    put(e, "extern __shared__ __align__(1024) char shared_room[];");
    put(e, "const %s_frame &frame = call.rest;", name);
    need(e, "grid_begin");
    put(e, "grid_call();");
    cuda_put_arrays(e);
}

void cuda_put_body(emitter *e, text *functions, text *body)
{
    put(e, "    phases_ready();");
    put(e, "}");
    put(e, "__syncthreads();");
    put(e, "if (grid_begin() == 0) {");
    text_add(functions, text_get(body));
    put(e, "}");
    e->depth = 0;
    put(e, "}");
    put(e, "%s", "");
    text_free(body);
}

void emit_cuda_loops(emitter *e, const loop_program *program, text *functions)
{
    if (program->chained) {
        emit_cuda_chained(e, program, functions);
        return;
    }
    const schedule *s = program->schedule;
    loop_printer p = {e, s};
    text body = {0};
    cuda_state *c = ARENA_NEW(e->memory, cuda_state);
    int count = e->k->value_count, axes = launch_axes(e->k, s->phase);
    e->cuda = c;
    e->phase = s->phase;
    e->line = 0;
    e->survey->uses = ARENA_ARRAY(e->memory, int, count);
    arrays_forget(e);
    e->out = &body;
    e->depth = 2;
    need(e, "phases");
    need(e, "matrix_at");
    print_nodes(&p, program->first);

    e->out = functions;
    cuda_put_head(e, s->phase, s->map_count, s->threads, s->choice.blocks);
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
    if (s->map_count) {
        put(e, "if (threadIdx.x == 32) /* what a copy asks for first is its map */");
        put(e, "    for (int i = 0; i < %d; i++) map_prefetch(&call.maps[i]);", s->map_count);
    }
    put(e, "if (threadIdx.x == 0) {");
    put(e, "    for (int i = 0; i < %d; i++) phase_init(full + i, %d), phase_init(empty + i, %d);", s->choice.stages,
        sched_warps_fill(s) ? 1 + s->fill.warps : 1, s->choice.turns ? 1 : s->choice.groups);
    if (s->load_count) put(e, "    for (int i = 0; i < %d; i++) phase_init(in_full + i, 1);", s->in.stages);
    cuda_put_body(e, functions, &body);
}
