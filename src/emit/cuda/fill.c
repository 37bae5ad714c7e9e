/*
 * Warps that gather an operand of a product, as CUDA C. In: nodes of a loop program and its schedule. Out: text.
 *
 * A place is a distance in memory and a sum for each guard; the place of an element is that of its line plus that of its
 * k. A warp fills line after line of the ring (128 bytes). A lane stays at two elements of one axis (`fixed`); the places
 * along the other axis (`walk`) are kept one a lane, and handed round as the warp comes to them. So an element costs an
 * addition, and an addition and a comparison for each guard; divisions are made once for a tile or a step.
 * The elements of a step are asked for in two halves (`raw`), each while the other is taken: loads that are waited for one
 * by one, with others asked for between, would all be waited for together, since a warp has few counters of its loads.
 * Elements that go to the ring as they lie in memory, 16 bytes at a time, are copied in the background instead, several
 * steps ahead.
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/fill.h"

#include <inttypes.h>

enum { NOWHERE = 1 << 30, FAR = 1 << 29, BOX_BYTES = 64 * SCHED_LINE_BYTES };

static const tile_param *gathered(const emitter *e, const schedule *s)
{
    return &e->k->params[s->gather.load->attr.access.array];
}

static int guards_of(const tile_param *p)
{
    return MAXIMUM(p->digits->guard_count, 1);
}

const char *fill_place_type(emitter *e, const schedule *s)
{
    const tile_param *p = gathered(e, s);
    return arena_print(e->memory, "gather_place<%d, %s>", guards_of(p), p->facts.small ? "int" : "long");
}

/* `name`(position): where an element lies as far as one axis says; `first`: what the guards begin with there. */
static void put_place_of(emitter *e, const schedule *s, const char *name, int axis, const char *const *first)
{
    const tile_param *p = gathered(e, s);
    const axis_digits *d = &p->digits->axes[axis];
    const char *type = p->facts.small ? "int" : "long", *position = "((unsigned)position)";
    if (!p->facts.small) position = "position";
    put(e, "const auto %s = [=](long position) {", name);
    put(e, "    %s at;", fill_place_type(e, s));
    const char *sum = digits_sum(e, d, d->stride, position);
    put(e, "    at.offset = (%s)(%s);", type, sum ? sum : "0");
    for (int g = 0; g < guards_of(p); g++) {
        sum = g < p->digits->guard_count ? digits_sum(e, d, d->guard[g], position) : NULL;
        put(e, "    at.guard[%d] = %s%s(int)(%s);", g, first ? first[g] : "", first ? " + " : "", sum ? sum : "0");
    }
    put(e, "    if (position >= %s) at.guard[0] = %d;", array_extent(e, s->gather.load->attr.access.array, axis), FAR);
    put(e, "    return at;");
    put(e, "};");
}

/* The array from where the scalar indices lead, and what they add to the guards. */
static void put_base(emitter *e, const schedule *s, const char **first)
{
    const struct access *a = &s->gather.load->attr.access;
    const tile_param *p = gathered(e, s);
    const param_digits *d = p->digits;
    const char *base = arena_print(e->memory, "%s_array", p->name);
    if (d->origin) base = arena_print(e->memory, "%s + %" PRId64 "L", base, d->origin);
    for (int g = 0; g < guards_of(p); g++)
        first[g] = arena_print(e->memory, "%" PRId64, g < d->guard_count ? d->guard_first[g] : 0);
    for (int axis = 0, operand = a->first_index; axis < a->rank; axis++) {
        const char *start = emit_name(e, s->gather.load->operands[operand]);
        operand += a->kind[axis] == INDEX_SLICE ? 2 : 1;
        if (a->kind[axis] == INDEX_SLICE) continue;
        const char *sum = digits_sum(e, &d->axes[axis], d->axes[axis].stride, start);
        if (sum) base = arena_print(e->memory, "%s + (%s)", base, sum);
        for (int g = 0; g < d->guard_count; g++) {
            sum = digits_sum(e, &d->axes[axis], d->axes[axis].guard[g], start);
            if (sum) first[g] = arena_print(e->memory, "%s + (int)(%s)", first[g], sum);
        }
    }
    put(e, "const %s *const gather_base = %s;", cuda_memory_type(p->elem), base);
}

const char *fill_start_of(emitter *e, const schedule *s, int wanted)
{
    const struct access *a = &s->gather.load->attr.access;
    for (int axis = 0, operand = a->first_index; axis < a->rank; axis++) {
        if (axis == wanted) return emit_name(e, s->gather.load->operands[operand]);
        operand += a->kind[axis] == INDEX_SLICE ? 2 : 1;
    }
    return "0";
}

/* Asks for one half of the elements of a step; walk, fixed: the places of that step. */
static void put_ask(emitter *e, const schedule *s, int half, const char *fixed, const char *walk)
{
    const sched_gather *g = &s->gather;
    int lines = g->rows / g->boxes;
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int line = 0; line < %d; line++) {", lines);
    put(e, "    const %s here = gather_pass(%s, line + %d);", fill_place_type(e, s), walk, half * lines);
    text_add(e->out, "#pragma unroll\n");
    put(e, "    for (int i = 0; i < %d; i++)", g->boxes * 2);
    put(e, "        gather_take(raw[%d][line * %d + i / 2][i %% 2], gather_base, %s[i / 2][i %% 2], here, gather_extents);",
        half, g->boxes, fixed);
    put(e, "}");
}

/* Where lines and k lie, as functions of their numbers. */
static void put_places(emitter *e, const schedule *s)
{
    const sched_gather *g = &s->gather;
    const tile_param *p = gathered(e, s);
    const char *first[GUARDS_MOST + 1];
    e->array_used[g->load->attr.access.array] = true;
    put_base(e, s, first);
    text extents = {0};
    for (int i = 0; i < guards_of(p); i++)
        text_print(&extents, "%s%" PRId64, i ? ", " : "", i < p->digits->guard_count ? p->digits->guard_extent[i] : 1);
    put(e, "const int gather_extents[%d] = {%s};", guards_of(p), text_get(&extents));
    text_free(&extents);
    put_place_of(e, s, "line_place", g->tile_axis, first);
    put_place_of(e, s, "k_place", g->k_axis, NULL);
}

void print_gather_begin(emitter *e, const schedule *s, const loop_node *n)
{
    const sched_gather *g = &s->gather;
    const char *type = fill_place_type(e, s), *start = fill_start_of(e, s, g->tile_axis);
    const char *from = emit_name(e, n->op->operands[0]), *limit = emit_name(e, n->op->operands[1]);
    need(e, sched_copies_ahead(s) ? "gather_copy" : "gather_take");
    put_places(e, s);
    if (!sched_copies_ahead(s)) put(e, "const long gather_start = %s < %s ? %s : %d;", from, limit, from, NOWHERE);
    if (g->rounds) {
        print_rounded_begin(e, s);
        return;
    }
    if (g->by_chunk) {
        put(e, "%s lines[%d];", type, g->rows);
        text_add(e->out, "#pragma unroll\n");
        put(e, "for (int row = 0; row < %d; row++)", g->rows);
        put(e, "    lines[row] = line_place(%s + filler * %d + row * 4 + lane / 8);", start, g->warp_lines);
        return;
    }
    if (g->along_k) {
        put(e, "%s fixed[1][2], fixed_next[1][2];", type);
        put(e, "for (int v = 0; v < 2; v++) fixed[0][v] = k_place(gather_start + lane * 2 + v);");
        put(e, "const %s walk = line_place(%s + filler * %d + lane %% %d);", type, start, g->warp_lines, g->warp_lines);
    } else {
        put(e, "%s fixed[%d][2];", type, g->boxes);
        text_add(e->out, "#pragma unroll\n");
        put(e, "for (int box = 0; box < %d; box++)", g->boxes);
        put(e, "    for (int v = 0; v < 2; v++) fixed[box][v] = line_place(%s + box * 64 + lane * 2 + v);", start);
        put(e, "%s walk = k_place(gather_start + filler * %d + lane %% %d), walk_next;", type, g->warp_lines,
            g->warp_lines);
    }
    put(e, "%s raw[2][%d][2];", dtypes[gathered(e, s)->elem].size_bytes == 2 ? "unsigned" : "float", g->rows);
    put_ask(e, s, 0, "fixed", "walk");
}

void print_gather_next(emitter *e, const schedule *s, const loop_node *n)
{
    const sched_gather *g = &s->gather;
    const char *k = fill_start_of(e, s, g->k_axis);
    if (g->by_chunk) {
        put(e, "const %s k_here = k_place(%s + lane %% 8 * 8);", fill_place_type(e, s), k);
        return;
    }
    if (g->along_k)
        put(e, "for (int v = 0; v < 2; v++) fixed_next[0][v] = k_place(%s + %d + lane * 2 + v);", k, n->number[0]);
    else
        put(e, "walk_next = k_place(%s + %d + filler * %d + lane %% %d);", k, n->number[0], g->warp_lines,
            g->warp_lines);
    put_ask(e, s, 1, "fixed", "walk");
}

/* ---- what is computed from an element ---- */

static const char *pair_name(emitter *e, value v)
{
    return arena_print(e->memory, "%s_pair[v]", emit_name(e, v));
}

static void put_pair(emitter *e, const fill_source *from, const tile_op *op)
{
    value v = op->results[0];
    dtype elem = tile_type_of(e->k, v).elem;
    const char *name = emit_name(e, v), *type = cuda_register_type(elem);
    bool rounds = op->code == OP_CONVERT && (elem == DT_BF16 || elem == DT_F16) &&
                  tile_type_of(e->k, op->operands[0]).elem == DT_F32;
    const tile_op *below = op->code == OP_SELECT ? sched_converted_load(e->k, op->operands[1]) : NULL;
    put(e, "%s %s_pair[2];", type, name);
    if (rounds) {
        const char *wide = emit_name(e, op->operands[0]);
        put(e, "const unsigned %s_both = %s(%s_pair[0], %s_pair[1]);", name, need(e, "pack_%s", memory_name(elem)),
            wide, wide);
        put(e, "%s(%s_pair, %s_both);", need(e, "unpack_%s", memory_name(elem)), name, name);
        return;
    }
    const char *words, *operands[3] = {0};
    for (int i = 0; i < op->operand_count && i < 3; i++)
        operands[i] =
            tile_type_of(e->k, op->operands[i]).rank ? pair_name(e, op->operands[i]) : emit_name(e, op->operands[i]);
    if (op == from->load)
        words = arena_print(e->memory, "%s((const %s *)&%s)", need(e, "read_%s", memory_name(elem)),
                            cuda_memory_type(elem), from->raw);
    else if (op->code == OP_BROADCAST)
        words = operands[0];
    else if (below == from->load) /* outside of its array it is zero by itself */
        words = operands[1];
    else
        words = cuda_expression(e, op, operands);
    put(e, "for (int v = 0; v < 2; v++) %s_pair[v] = %s;", name, words);
}

/* Is the value the load itself, as it lies in memory? */
static bool is_raw(const emitter *e, const schedule *s, value v)
{
    const tile_op *op = tile_def(e->k, v);
    if (op != s->gather.load && op->code == OP_SELECT) op = tile_def(e->k, op->operands[1]);
    return op == s->gather.load;
}

void fill_put_values(emitter *e, const schedule *s, const fill_source *from)
{
    const tile_block *blocks[2] = {s->kernel->phases[s->phase], s->walks[0].loops[0]->regions[0]};
    for (int b = 0; b < 2; b++) /* what stands before the loop, then what stands in it */
        for (int i = 0; i < blocks[b]->op_count; i++) {
            const tile_op *op = blocks[b]->ops[i];
            bool here = op->result_count == 1 && !op->region_count && from->needed[op->results[0]];
            if (here && tile_type_of(e->k, op->results[0]).rank) put_pair(e, from, op);
        }
}

static void put_arithmetic(emitter *e, const schedule *s, int half)
{
    bool computed = false;
    for (int n = 0; n < s->operand_count; n++)
        computed |= s->operands[n].gathered && !is_raw(e, s, s->operands[n].source);
    const fill_source from = {s->gather.load, s->gather.needed, arena_print(e->memory, "raw[%d][row][v]", half)};
    if (computed) fill_put_values(e, s, &from);
}

/* Four lines at a time, eight lanes each. */
static void put_chunks(emitter *e, const schedule *s)
{
    const sched_gather *g = &s->gather;
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int row = 0; row < %d; row++) {", g->rows);
    put(e, "    const int line = filler * %d + row * 4 + lane / 8;", g->warp_lines);
    for (int n = 0; n < s->operand_count; n++)
        if (s->operands[n].gathered)
            put(e,
                "    gather_copy(%s + stage * %" PRId64 " + line * %d + (lane %% 8 ^ line %% 8) * 16, gather_base, "
                "lines[row], k_here, gather_extents);",
                s->operands[n].ring.name, s->operands[n].ring.stage_bytes, SCHED_LINE_BYTES);
    put(e, "}");
}

/* Half of a step's elements, of which all have been asked for, into the ring. */
static void put_half(emitter *e, const schedule *s, int half)
{
    const sched_gather *g = &s->gather;
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int row = 0; row < %d; row++) {", g->rows);
    e->depth++;
    put_arithmetic(e, s, half);
    put(e, "const int box = row %% %d, line = filler * %d + %d + row / %d;", g->boxes, g->warp_lines,
        half * (g->rows / g->boxes), g->boxes);
    put(e, "const int to = box * %d + line * %d + ((lane / 4 ^ line %% 8) * 16 + lane %% 4 * 4);", BOX_BYTES,
        SCHED_LINE_BYTES);
    for (int n = 0; n < s->operand_count; n++) {
        const sched_operand *o = &s->operands[n];
        if (!o->gathered) continue;
        const char *name = emit_name(e, o->source), *word = arena_print(e->memory, "%s_both", name);
        const tile_op *op = tile_def(e->k, o->source);
        bool raw = is_raw(e, s, o->source);
        bool rounded = op->code == OP_CONVERT && tile_type_of(e->k, op->operands[0]).elem == DT_F32;
        if (raw) word = arena_print(e->memory, "(raw[%d][row][0] | raw[%d][row][1] << 16)", half, half);
        if (!raw && !rounded)
            word = arena_print(e->memory, "%s(%s_pair[0], %s_pair[1])", need(e, "pack_%s", s->matrix), name, name);
        put(e, "*(unsigned *)(%s + stage * %" PRId64 " + to) = %s;", o->ring.name, o->ring.stage_bytes, word);
    }
    e->depth--;
    put(e, "}");
}

void print_gather(emitter *e, const schedule *s)
{
    const sched_gather *g = &s->gather;
    if (g->rounds) {
        print_rounded(e, s);
        return;
    }
    if (g->by_chunk) {
        put_chunks(e, s);
        return;
    }
    put_half(e, s, 0);
    put_ask(e, s, 0, g->along_k ? "fixed_next" : "fixed", g->along_k ? "walk" : "walk_next");
    put_half(e, s, 1);
    if (g->along_k)
        put(e, "for (int v = 0; v < 2; v++) fixed[0][v] = fixed_next[0][v];");
    else
        put(e, "walk = walk_next;");
}

/* What was written is seen by the matrix units, and the stage so many steps ago (0: this one) is there. */
static void put_filled(emitter *e, const char *stage)
{
    need(e, "bulk_groups");
    put(e, "fence_async();");
    put(e, "__syncwarp();");
    put(e, "if (lane == 0) phase_arrive(full + %s);", stage);
}

void print_filled(emitter *e, const schedule *s)
{
    int lag = s->gather.lag, stages = s->choice.stages;
    if (!sched_copies_ahead(s)) {
        put_filled(e, "stage");
        return;
    }
    put(e, "copy_commit();");
    put(e, "if (behind == %d) {", lag);
    e->depth++;
    put(e, "copy_wait<%d>();", lag);
    put_filled(e, arena_print(e->memory, "(stage + %d) %% %d", stages - lag, stages));
    e->depth--;
    put(e, "} else {");
    put(e, "    behind++;");
    put(e, "}");
}

void print_filled_last(emitter *e, const schedule *s)
{
    int stages = s->choice.stages;
    put(e, "copy_wait<0>();");
    put(e, "for (; behind > 0; behind--) {");
    e->depth++;
    put_filled(e, arena_print(e->memory, "(stage + %d - behind) %% %d", stages, stages));
    e->depth--;
    put(e, "}");
}
