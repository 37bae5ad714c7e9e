/*
 * Chained products as CUDA C. In: a loop program (loops/chained.c). Out: one __global__ function. One case for each kind of
 * node; nothing is chosen here.
 *
 * Names in the text: `call` the parameter, `frame` the rest of it; fixedN_room the lines of fixed operand N and later of
 * a result, ringN_room the stages of moving operand N, with the phases fullN and emptyN; `vectors` numbers of the step's
 * rows; `scores` and `more` the registers of the products of scores, sumsN and weightsN those of a sum and its left
 * operand.
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/chained_parts.h"

#include <inttypes.h>

enum { LINE = CHAINED_LINE, EIGHT_LINES = 8 * LINE };

/* ---- roles ---- */

static void print_body(chained_printer *p, const loop_node *n)
{
    p->e->depth++;
    chained_print_nodes(p, n);
    p->e->depth--;
}

static void print_role(chained_printer *p, const loop_node *n)
{
    emitter *e = p->e;
    int groups = p->c->groups;
    p->multiplies = n->number[0];
    if (p->multiplies)
        put(e, "} else { /* multiply */");
    else
        put(e, "if (warp >= %d) { /* fill */", groups * 4);
    e->depth++;
    if (groups > 1 && p->multiplies) put(e, "registers_more<%d>();", groups > 2 ? 160 : 240);
    if (groups > 1 && !p->multiplies) put(e, "registers_less<%d>();", groups > 2 ? 32 : 24);
    chained_print_nodes(p, n->body);
    e->depth--;
    if (p->multiplies) put(e, "}");
}

static void print_one(chained_printer *p, const loop_node *n)
{
    int warp = p->c->groups * 4;
    switch (n->number[0]) {
    case LOOPS_THREAD: put(p->e, "if (warp == %d && lane == 0) {", warp); break;
    case LOOPS_WARP: put(p->e, "if (warp == %d) {", warp); break;
    default: put(p->e, "if (lane == 0) {"); break;
    }
    print_body(p, n->body);
    put(p->e, "}");
}

static void print_places(chained_printer *p)
{
    emitter *e = p->e;
    const chained *c = p->c;
    put(e, "const int group = warp / 4, warp_row = warp * 16, row = warp_row + lane / 4;");
    for (int i = 0; i < c->operand_count; i++) {
        bool lines = false, turned = false;
        for (int m = 0; m < c->product_count; m++) lines |= c->products[m].moving == i;
        for (int s = 0; s < c->sum_count; s++) turned |= c->sums[s].moving == i;
        bool held = c->held && i == c->products[0].fixed;
        if (!c->operands[i].moves && !held)
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
}

/* ---- one node ---- */

static void print_if(chained_printer *p, const loop_node *n)
{
    emitter *e = p->e;
    if (n->op)
        put(e, "if (%s < %s) {", emit_name(e, n->op->operands[0]), emit_name(e, n->op->operands[1]));
    else if (n->operand)
        put(e, "if (%s) {", chained_positive(p, n->operand));
    else
        put(e, "if (masked) {");
    print_body(p, n->body);
    put(e, "} else {");
    print_body(p, n->other);
    put(e, "}");
}

static void print_carry(chained_printer *p, const loop_node *n)
{
    emitter *e = p->e;
    value v = n->op->regions[0]->args[1 + n->number[0]];
    const char *name = emit_name(e, v);
    put(e, "float %s[2];", name);
    put(e, "for (int h = 0; h < 2; h++) %s[h] = %s;", name, chained_element(p, n->op->operands[3 + n->number[0]]));
    p->rows[v] = true;
}

static void print_result(chained_printer *p, const loop_node *n)
{
    value v = n->op->results[n->number[0]];
    put(p->e, "float(&%s)[2] = %s;", emit_name(p->e, v), emit_name(p->e, n->op->regions[0]->args[1 + n->number[0]]));
    p->rows[v] = true;
}

static void print_yield(chained_printer *p, const loop_node *n)
{
    int i = n->number[0];
    const char *to = emit_name(p->e, p->c->loop->regions[0]->args[1 + i]), *from = emit_name(p->e, n->op->operands[i]);
    put(p->e, "%s[0] = %s[0], %s[1] = %s[1];", to, from, to, from);
}

static void print_scores_begin(chained_printer *p)
{
    emitter *e = p->e;
    const chained *c = p->c;
    put(e, "float scores[%d];", c->columns / 2);
    if (c->product_count > 1) put(e, "float more[%d];", c->columns / 2);
    for (int i = 0; i < c->sum_count; i++) put(e, "unsigned weights%d[%d];", i, c->columns / 4);
}

static void print_sums_of(chained_printer *p, bool zero)
{
    for (int i = 0; i < p->c->sum_count; i++) {
        int count = p->c->sums[i].width / 2;
        if (zero)
            put(p->e, "for (int x = 0; x < %d; x++) sums%d[x] = 0;", count, i);
        else
            put(p->e, "float sums%d[%d];", i, count);
    }
}

static void print_pack(chained_printer *p)
{
    emitter *e = p->e;
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int i = 0; i < %d; i++) weights0[i] = %s(scores[2 * i], scores[2 * i + 1]);", p->c->columns / 4,
        chained_pack_name(e, p->c->elem));
}

static void print_scale(chained_printer *p, const loop_node *n)
{
    emitter *e = p->e;
    const char *scale = emit_name(e, n->operand);
    put(e, "if (__any_sync(~0u, %s[0] != 1 || %s[1] != 1))", scale, scale);
    text_add(e->out, "#pragma unroll\n");
    put(e, "    for (int x = 0; x < %d; x++) sums0[x] *= %s[x / 2 %% 2];", p->c->sums[0].width / 2, scale);
}

static void print_node(chained_printer *p, const loop_node *n)
{
    emitter *e = p->e;
    switch (n->code) {
    case LOOP_ROLE: print_role(p, n); break;
    case LOOP_ONE: print_one(p, n); break;
    case LOOP_LET: chained_print_let(p, n); break;
    case LOOP_LOAD: chained_print_load(p, n); break;
    case LOOP_EXPECT:
        if (n->number[1] == LOOPS_FIXED)
            put(e, "phase_expect(fixed_full, %d);", n->number[0]);
        else
            put(e, "phase_expect(full%d + stage, %d);", n->number[1], n->number[0]);
        break;
    case LOOP_BULK_IN: chained_print_bulk_in(p, n); break;
    case LOOP_VECTORS_ASK: chained_print_vectors(p, true); break;
    case LOOP_VECTORS: chained_print_vectors(p, false); break;
    case LOOP_BARRIER:
        if (n->number[0] == LOOPS_WARP)
            put(e, "__syncwarp();");
        else
            put(e, "barrier_named(1 + group, 128); /* nobody reads the fixed operands' rooms any more */");
        break;
    case LOOP_PLACES: print_places(p); break;
    case LOOP_HELD: chained_print_held(p, n); break;
    case LOOP_CARRY: print_carry(p, n); break;
    case LOOP_SUMS_BEGIN: print_sums_of(p, false); break;
    case LOOP_SUMS_ZERO: print_sums_of(p, true); break;
    case LOOP_SCORES_BEGIN: print_scores_begin(p); break;
    case LOOP_IF: print_if(p, n); break;
    case LOOP_RING_BEGIN: chained_print_ring_begin(p, n); break;
    case LOOP_RING_NEXT: chained_print_ring_next(p, n); break;
    case LOOP_RANGE: chained_print_range(p); break;
    case LOOP_RANGE_END: chained_print_range_end(p, n); break;
    case LOOP_STEPS: chained_print_steps(p, n); break;
    case LOOP_WAIT: chained_print_wait(p, n); break;
    case LOOP_APART: chained_print_wait(p, n); break;
    case LOOP_WAIT_AHEAD: chained_print_wait_ahead(p, n); break;
    case LOOP_MATRIX: chained_print_matrix(p, n); break;
    case LOOP_MATRIX_WAIT: chained_print_matrix_wait(p, n); break;
    case LOOP_SUMS_ADD: put(e, p->c->folds || p->c->drained ? "add = 1;" : "before = stage, add = 1;"); break;
    case LOOP_RELEASE: chained_print_release(p, n); break;
    case LOOP_EDGES: chained_print_edges(p); break;
    case LOOP_TRUTHS: chained_print_truths(p, n); break;
    case LOOP_PASS: chained_print_pass(p, n); break;
    case LOOP_PAIRS: chained_print_pairs(p, n); break;
    case LOOP_FOLD_BEGIN: chained_print_fold_begin(p, n); break;
    case LOOP_FOLD: chained_print_fold(p, n); break;
    case LOOP_FOLD_JOIN: chained_print_fold_join(p, n); break;
    case LOOP_FOLD_END: chained_print_fold_end(p, n); break;
    case LOOP_KEEP: chained_print_keep(p, n); break;
    case LOOP_YIELD: print_yield(p, n); break;
    case LOOP_PACK: print_pack(p); break;
    case LOOP_SCALE: print_scale(p, n); break;
    case LOOP_RESULT: print_result(p, n); break;
    case LOOP_STORE: chained_print_row_store(p, n); break;
    case LOOP_OUT: chained_print_out(p, n); break;
    case LOOP_OUT_SEND: chained_print_out_send(p, n); break;
    case LOOP_OUT_END: put(e, "if (lane == 0) bulk_wait_read<0>();"); break;
    default: CHECK(!"a node of another program");
    }
}

void chained_print_nodes(chained_printer *p, const loop_node *n)
{
    for (; n; n = n->next) print_node(p, n);
}

/* ---- the function ---- */

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

/* Which program a block is. A block's number has 32 bits: a quotient of 64 is a function of a hundred instructions. */
static void print_programs(emitter *e, const chained *c, int axes)
{
    put(e, "const unsigned along = (unsigned)frame.programs[0];");
    if (c->falls && axes > 1) {
        put(e, "const unsigned across = (unsigned)(frame.programs[1] * frame.programs[2]);");
        put(e, "const unsigned first = blockIdx.x / (%d * along) * %d, rest = blockIdx.x - first * along;", c->beside,
            c->beside);
        put(e, "const unsigned beside = across - first < %d ? across - first : %d, place = first + rest %% beside;",
            c->beside, c->beside);
        put(e, "const long program0 = along - 1 - rest / beside;");
    } else {
        put(e, "const unsigned place = blockIdx.x / along;");
        put(e, "const long program0 = %sblockIdx.x %% along;", c->falls ? "along - 1 - " : "");
    }
    put(e, "const long program1 = %s, program2 = %s;",
        axes > 2   ? "place % (unsigned)frame.programs[1]"
        : axes > 1 ? "place"
                   : "0",
        axes > 2 ? "place / (unsigned)frame.programs[1]" : "0");
    put(e, "(void)place, (void)program1, (void)program2;");
}

void emit_cuda_chained(emitter *e, const loop_program *program, text *functions)
{
    const chained *c = program->chained;
    text body = {0};
    int count = e->k->value_count, axes = launch_axes(e->k, c->phase);
    chained_printer p = {.e = e, .c = c};
    e->cuda = ARENA_NEW(e->memory, cuda_state);
    e->phase = c->phase;
    e->line = 0;
    e->survey->uses = ARENA_ARRAY(e->memory, int, count);
    arrays_forget(e);
    p.rows = ARENA_ARRAY(e->memory, bool, count);
    p.truths = ARENA_ARRAY(e->memory, bool, count);
    p.end = emit_name(e, c->loop->operands[1]);
    e->out = &body;
    e->depth = 2;
    need(e, "phases");
    need(e, "roles");
    need(e, "matrix_at");
    if (c->vector_count) need(e, "pair_f32");
    chained_print_nodes(&p, program->first);

    e->out = functions;
    cuda_put_head(e, c->phase, c->operand_count + c->sum_count, c->threads, 1);
    print_rooms(&p);
    print_programs(e, c, axes);
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
