/*
 * The epilogue of a fed product, as CUDA C: what it loads, the arithmetic on pairs of sums, and how results leave, by
 * elements, by rows or through shared memory. In: nodes of a loop program. Out: text.
 *
 * A chunk is 16 rows of a warp by 64 columns; a pair is two neighbours of a row, as the matrix units leave them.
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/loops_parts.h"

#include <inttypes.h>

/* ---- where an element is ---- */

static const char *place_text(emitter *e, sched_place at, int axis, const char *element)
{
    if (axis == at.row) return "row";
    return axis == at.column ? arena_print(e->memory, "(column%s)", element) : NULL;
}

/* An index along an axis of an array; element: what is added to the column of a pair. */
static const char *index_text(loop_printer *p, const tile_op *op, sched_place at, int axis, int operand,
                              const char *element)
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

/* What some axes of an array say of an element. */
typedef struct partial {
    const char *offset, *test, *guards[GUARDS_MOST]; /* NULL: nothing, always inside, nothing to a guard's sum */
} partial;

static const char *joined(emitter *e, const char *left, const char *word, const char *right)
{
    return !left ? right : right ? arena_print(e->memory, "%s%s%s", left, word, right) : left;
}

/* A position on an axis with digits. */
static void add_digits(emitter *e, int array, int axis, const char *index, partial *x)
{
    const tile_param *param = &e->k->params[array];
    const axis_digits *d = &param->digits->axes[axis];
    const char *position = arena_print(e->memory, "(%s)(%s)", param->facts.small ? "unsigned" : "long", index);
    const char *sum = digits_sum(e, d, d->stride, position);
    for (int g = 0; g < param->digits->guard_count; g++)
        x->guards[g] = joined(e, x->guards[g], " + ", digits_sum(e, d, d->guard[g], position));
    if (sum) x->offset = joined(e, x->offset, " + ", arena_print(e->memory, "(%s)", sum));
}

/* axes: of the array, those that are asked. */
static partial place_on(loop_printer *p, const tile_op *op, sched_place at, const char *which, unsigned axes)
{
    emitter *e = p->e;
    const struct access *a = &op->attr.access;
    const tile_param *param = &e->k->params[a->array];
    partial x = {0};
    for (int axis = 0, operand = a->first_index; axis < a->rank; axis++) {
        if (axes >> axis & 1) {
            const char *index = index_text(p, op, at, axis, operand, which);
            if (param->digits)
                add_digits(e, a->array, axis, index, &x);
            else
                x.offset = joined(e, x.offset, " + ",
                                  arena_print(e->memory, "%s * %s", index, stride_text(e, a->array, axis)));
            if (!a->safe[axis])
                x.test = joined(e, x.test, " && ",
                                arena_print(e->memory, "(unsigned long)%s < (unsigned long)%s", index,
                                            array_extent(e, a->array, axis)));
        }
        operand += a->kind[axis] == INDEX_SLICE ? 2 : 1;
    }
    return x;
}

static const char *pointer_to(emitter *e, int array, const char *offset)
{
    const tile_param *param = &e->k->params[array];
    const char *pointer = arena_print(e->memory, "%s_array", param->name);
    e->array_used[array] = true;
    if (param->digits && param->digits->origin)
        pointer = arena_print(e->memory, "%s + %" PRId64 "L", pointer, param->digits->origin);
    return joined(e, pointer, " + ", offset);
}

/* Do the sums of all guards, given as text, lie inside? */
static const char *guards_hold(emitter *e, int array, const char *test, const char *const *sums)
{
    const param_digits *d = e->k->params[array].digits;
    for (int g = 0; d && g < d->guard_count; g++) {
        const char *first = arena_print(e->memory, "%" PRId64 "L", d->guard_first[g]);
        test = joined(e, test, " && ",
                      arena_print(e->memory, "(unsigned long)(%s) < %" PRId64 "UL", joined(e, first, " + ", sums[g]),
                                  d->guard_extent[g]));
    }
    return test;
}

static element element_of(loop_printer *p, const tile_op *op, sched_place at, const char *which)
{
    emitter *e = p->e;
    const struct access *a = &op->attr.access;
    partial all = place_on(p, op, at, which, ~0u);
    element x = {pointer_to(e, a->array, all.offset), all.test};
    for (int i = op->operand_count - a->mask_count; i < op->operand_count; i++)
        x.test = joined(e, x.test, " && ", emit_name(e, op->operands[i]));
    x.test = guards_hold(e, a->array, x.test, all.guards);
    return x;
}

/* ---- loads ---- */

static bool follows_column(const schedule *s, const tile_op *op)
{
    return s->places[op->results[0]].column >= 0;
}

/* What a thread needs of a row or a column of the tile, as it lies in memory, so that nothing waits for it before the
 * products; packed: both of a pair of 16 bits in a word. */
static void print_ahead(loop_printer *p, const tile_op *op)
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
static void print_asked(loop_printer *p, const tile_op *op)
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

void print_load(loop_printer *p, const loop_node *n)
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
static void print_safe(loop_printer *p, const tile_op *op)
{
    emitter *e = p->e;
    const tile_param *param = &e->k->params[op->attr.access.array];
    const char *some = "1";
    for (int axis = 0; axis < param->rank; axis++)
        some = arena_print(e->memory, "%s && %s", some, array_extent(e, op->attr.access.array, axis));
    put(e, "const %s *const %s_safe = %s ? %s_array : (const %s *)frame.report;", cuda_memory_type(param->elem),
        param->name, some, param->name, cuda_memory_type(param->elem));
}

/* ---- arithmetic ---- */

void print_let(loop_printer *p, const loop_node *n)
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

/* ---- results ---- */

static const char *sums_of(const schedule *s)
{
    return s->apart ? "totals" : "sums";
}

void print_chunks(loop_printer *p, const loop_node *n)
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
    text_add(e->out, s->rolled ? "#pragma unroll 1\n" : "#pragma unroll\n");
    put(e, "for (int part = 0; part < %d; part++) {", rows_of_group(s) / 64 * chunks);
    open_brace(e);
    put(e, "const int first_row = warp_row + part / %d * 64, first_column = part %% %d * %d;", chunks, chunks, CHUNK);
    for (int i = 0; i < s->store_count; i++)
        if (s->stores[i].map >= 0 || s->stores[i].by_row)
            put(e, "%s out%d[32];", cuda_register_type(e->k->params[s->stores[i].op->attr.access.array].elem), i);
    print_nodes(p, n->body);
    if (s->rolled) { /* registers have no numbers: the next part comes to where the first was */
        int columns = s->choice.tile[1] / 2, count = rows_of_group(s) / 64 * columns - 32;
        text_add(e->out, "#pragma unroll\n");
        put(e, "for (int i = 0; i < %d; i++) %s[i / %d][i %% %d] = %s[(i + 32) / %d][(i + 32) %% %d];", count,
            sums_of(s), columns, columns, sums_of(s), columns, columns);
    }
    close_brace(e);
}

void print_pairs(loop_printer *p, const loop_node *n)
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

void print_elements(loop_printer *p, const loop_node *n, const loop_node *loads)
{
    emitter *e = p->e;
    int chunks = p->s->choice.tile[1] / CHUNK;
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int v = 0; v < 2; v++) {");
    open_brace(e);
    const char *place = p->s->rolled ? "0][" : arena_print(e->memory, "part / %d][part %% %d * 32 + ", chunks, chunks);
    put(e, "const %s %s = %s[%spair * 2 + v];", cuda_register_type(tile_type_of(e->k, p->s->sums).elem),
        emit_name(e, p->s->sums), sums_of(p->s), place);
    for (; loads && loads->code == LOOP_LOAD; loads = loads->next) {
        value v = loads->op->results[0];
        if (!follows_column(p->s, loads->op)) continue;
        put(e, "const %s %s = %s_pair[v];", cuda_register_type(tile_type_of(e->k, v).elem), emit_name(e, v),
            emit_name(e, v));
    }
    print_nodes(p, n->body);
    close_brace(e);
}

void print_store(loop_printer *p, const loop_node *n)
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

void print_out(loop_printer *p, const loop_node *n)
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

/* The axes of a stored array that follow the rows of the tile. */
static unsigned axes_of_rows(const schedule *s, const tile_op *op)
{
    const struct access *a = &op->attr.access;
    unsigned axes = 0;
    for (int axis = 0; axis < a->rank; axis++)
        if (a->kind[axis] == INDEX_SLICE && a->result_axis[axis] == s->places[op->operands[0]].row) axes |= 1u << axis;
    return axes;
}

/* Are rows more than a distance apart? */
static bool rows_have_digits(const tile_param *p, unsigned axes)
{
    for (int axis = 0; p->digits && axis < p->rank; axis++)
        if (axes >> axis & 1 && (p->digits->axes[axis].count > 1 || p->digits->guard_count)) return true;
    return false;
}

/* Each lane looks at one row: which of them are inside is a word of bits; a place that digits say is handed round as the warp
 * comes to its row. */
static partial put_rows(emitter *e, int number, const partial *rows, bool digits)
{
    partial passed = {.offset = rows->offset};
    put(e, "unsigned rows_in%d = ~0u;", number);
    if (digits) put(e, "long row_offset%d = 0;", number);
    for (int g = 0; g < GUARDS_MOST; g++)
        if (rows->guards[g]) put(e, "long row_guard%d_%d = 0;", number, g);
    put(e, "{");
    open_brace(e);
    put(e, "const int row = first_row + lane %% 16;");
    put(e, "(void)row;");
    if (rows->test) {
        put(e, "rows_in%d = __ballot_sync(~0u, %s);", number, rows->test);
        passed.test = arena_print(e->memory, "(rows_in%d >> line & 1)", number);
    }
    if (digits && rows->offset) put(e, "row_offset%d = %s;", number, rows->offset);
    for (int g = 0; g < GUARDS_MOST; g++) {
        if (!rows->guards[g]) continue;
        put(e, "row_guard%d_%d = %s;", number, g, rows->guards[g]);
        passed.guards[g] = arena_print(e->memory, "__shfl_sync(~0u, row_guard%d_%d, line)", number, g);
    }
    close_brace(e);
    if (digits) passed.offset = arena_print(e->memory, "__shfl_sync(~0u, row_offset%d, line)", number);
    return passed;
}

/* A row of the chunk after the other, 32 neighbours at a time; the swizzle as in print_out. What the columns say of a place
 * is found once for all rows: divisions among digits take longer than everything else. */
void print_out_rows(loop_printer *p, const loop_node *n)
{
    emitter *e = p->e;
    const sched_store *store = &p->s->stores[n->number[0]];
    int array = n->op->attr.access.array, number = n->number[0];
    const tile_param *param = &e->k->params[array];
    dtype elem = param->elem;
    int size = dtypes[elem].size_bytes;
    unsigned axes = axes_of_rows(p->s, n->op);
    sched_place at = p->s->places[n->op->operands[0]];
    partial rows = place_on(p, n->op, at, "", axes), columns = place_on(p, n->op, at, "", ~axes);
    const char *type = cuda_memory_type(elem);
    put(e, "__syncwarp();");
    rows = put_rows(e, number, &rows, rows_have_digits(param, axes));
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int half = 0; half < 2; half++) {");
    open_brace(e);
    put(e, "const int in_line = (half * 32 + lane) %% %d * %d, column = first_column + half * 32 + lane;", LINE / size,
        size);
    put(e,
        "const char *const from = out_room + warp * %" PRId64 " + turn * %" PRId64 " + %" PRId64 " + half * %" PRId64
        ";",
        p->s->out.stage_bytes, turn_bytes(p->s), store->offset, store->boxes > 1 ? store->box_bytes : 0);
    put(e, "%s *const to = %s;", type, pointer_to(e, array, columns.offset));
    put(e, "const bool column_in = %s;", columns.test ? columns.test : "true");
    for (int g = 0; g < GUARDS_MOST; g++) {
        if (!columns.guards[g]) continue;
        put(e, "const long column_guard%d = %s;", g, columns.guards[g]);
        rows.guards[g] = joined(e, arena_print(e->memory, "column_guard%d", g), " + ", rows.guards[g]);
    }
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int line = 0; line < 16; line++) {");
    open_brace(e);
    put(e, "const int row = first_row + line;");
    put(e, "(void)row;");
    put(e, "const long away = %s;", rows.offset ? rows.offset : "0");
    for (int g = 0; g < GUARDS_MOST; g++) {
        if (!rows.guards[g]) continue;
        put(e, "const long guard%d = %s;", g, rows.guards[g]);
        rows.guards[g] = arena_print(e->memory, "guard%d", g);
    }
    put(e, "const bool inside = %s;", guards_hold(e, array, joined(e, "column_in", " && ", rows.test), rows.guards));
    put(e, "const %s x = *(const %s *)(from + line * %d + ((in_line / 16 ^ line %% 8) * 16 + in_line %% 16));", type,
        type, LINE);
    put(e, "if (inside) to[away] = x;");
    close_brace(e);
    close_brace(e);
}

void print_out_send(loop_printer *p, const loop_node *n)
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
                store->offset + box * store->box_bytes, box_coordinates(p, op, added));
        }
    }
    put(e, "bulk_commit();");
    close_brace(e);
    if (s->out_buffers > 1) put(e, "turn ^= 1;");
}
