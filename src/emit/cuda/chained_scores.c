/*
 * Arithmetic of chained products on registers. In: nodes of passes over a step's scores. Out: their text.
 *
 * `x` is an element of a thread's part of the scores or sums, `h` which of its two fixed rows it is in, `column` its
 * moving row, `place` that counted from the lane's first. A value with one number a fixed row is an array of two; one a moving row is read from the step's vectors,
 * two neighbours at once.
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/chained_parts.h"

#include <inttypes.h>
#include <math.h>

static const double log2_of_e = 1.44269504088896340736;

/* The test of some conditions; NULL: of none. Each side is one comparison: an element's place in the step is known as the
 * text is compiled, and the edges of a row are the same for all of its elements. */
static const char *mask_text(chained_printer *p, unsigned conditions)
{
    const chained *c = p->c;
    emitter *e = p->e;
    const char *bounds[2] = {NULL, NULL}, *words = NULL; /* where it ends, where it begins */
    for (int i = 0; i < c->condition_count; i++) {
        const chained_condition *q = &c->conditions[i];
        bool begins = !q->limit && (q->compare == OP_GT || q->compare == OP_GE);
        if (!(conditions >> i & 1)) continue;
        const char *one = arena_print(e->memory, q->limit ? "edge%d" : "edge%d + h * 8", i), **bound = &bounds[begins];
        *bound =
            *bound ? arena_print(e->memory, "%s(%s, %s)", need(e, begins ? "max_i32" : "min_i32"), *bound, one) : one;
    }
    for (int begins = 0; begins < 2; begins++) {
        const char *one = arena_print(e->memory, "place %s %s", begins ? ">=" : "<", bounds[begins]);
        if (bounds[begins]) words = words ? arena_print(e->memory, "%s && %s", words, one) : one;
    }
    return words;
}

/* Positions are small beside 2^31 (the copy engine takes no others). Counted from this lane's first place. */
void chained_print_edges(chained_printer *p)
{
    emitter *e = p->e;
    for (int i = 0; i < p->c->condition_count; i++) {
        const chained_condition *q = &p->c->conditions[i];
        const tile_op *limit = q->limit ? tile_def(e->k, q->limit) : NULL;
        if (limit && limit->code != OP_ARG) { /* a length from anywhere */
            const char *far = arena_print(e->memory, "%s - %s", emit_name(e, q->limit), emit_name(e, q->moving));
            put(e, "const int edge%d = (%s < 0 ? 0 : %s > %d ? %d : (int)(%s)) - lane %% 4 * 2;", i, far, far,
                p->c->columns, p->c->columns, far);
            continue;
        }
        int64_t more = q->more + (q->compare == OP_LE || q->compare == OP_GT);
        put(e, "const int edge%d = (int)(%s%s - %s) - lane %% 4 * 2;", i, emit_name(e, q->limit ? q->limit : q->fixed),
            q->limit ? "" : arena_print(e->memory, " + row + %" PRId64, more), emit_name(e, q->moving));
    }
}

static const char *float_text(emitter *e, double x)
{
    return cuda_number(e, DT_F32, (number){.f = x});
}

/* Where a score lies along one of its axes; NULL: the value is something else. */
static const char *where_text(chained_printer *p, value v)
{
    emitter *e = p->e;
    int axis;
    value start;
    int64_t more;
    if (!chained_is_place(p->c, v)) return NULL;
    chained_find_position(p->c, v, &axis, &start, &more);
    return arena_print(e->memory, "(%s + %s + %" PRId64 "L)", emit_name(e, start),
                       axis == (p->c->turned ? 0 : 1) ? "column" : "(row + h * 8)", more);
}

/* Of a value that a node of this pass declared, or that needs no name. */
static const char *virtual_element(chained_printer *p, value v)
{
    const tile_op *op = tile_def(p->e->k, v);
    const char *position = where_text(p, v);
    if (position) return position;
    if (op->code == OP_BROADCAST || op->code == OP_RESHAPE) return chained_element(p, op->operands[0]);
    return emit_name(p->e, v);
}

const char *chained_element(chained_printer *p, value v)
{
    emitter *e = p->e;
    const chained *c = p->c;
    if (v == c->products[0].dot->results[0] || (p->late && v == c->cut)) return "scores[x]";
    if (c->product_count > 1 && v == c->products[1].dot->results[0]) return "more[x]";
    if (p->truths[v])
        return arena_print(e->memory, p->draws ? "(%s_bits[word] >> x & 1)" : "(%s_bits[x / 32] >> x %% 32 & 1)",
                           emit_name(e, v));
    for (int i = 0; i < c->sum_count; i++)
        if (v == c->loop->results[c->sums[i].carried])
            return arena_print(e->memory, c->sums[i].factor == 1 ? "sums%d[x]" : "(sums%d[x] * %s)", i,
                               float_text(e, c->sums[i].factor));
    for (int i = 0; i < c->vector_count; i++)
        if (v == c->vectors[i]->results[0]) return arena_print(e->memory, "vector%d.at[x %% 2]", i);
    const tile_op *op = tile_def(e->k, v);
    switch (chained_kind_of(c, v)) {
    case CHAINED_SCALAR: return emit_name(e, v);
    case CHAINED_FIXED:
        if (where_text(p, v)) return where_text(p, v);
        if (chained_is_truth(c, v) || dtype_is_integer(tile_type_of(e->k, v).elem)) return virtual_element(p, v);
        if (p->rows[v] || !op) return arena_print(e->memory, "%s[h]", emit_name(e, v));
        return chained_element(p, op->operands[0]); /* a broadcast scalar */
    default: return virtual_element(p, v);
    }
}

const char *chained_positive(chained_printer *p, value v)
{
    const char *name = emit_name(p->e, v);
    return arena_print(p->e->memory, "%s > 0 && %s < %s", name, name, float_text(p->e, INFINITY));
}

const char *chained_pack_name(emitter *e, dtype elem)
{
    return need(e, "pack_%s", elem == DT_BF16 ? "bf16" : "f16");
}

/* ---- values ---- */

static void print_row(chained_printer *p, const tile_op *op, const char *const *operands)
{
    emitter *e = p->e;
    value v = op->results[0];
    const char *expression =
        op->code == OP_BROADCAST || op->code == OP_RESHAPE ? operands[0] : cuda_expression(e, op, operands);
    put(e, "%s %s[2];", cuda_register_type(tile_type_of(e->k, v).elem), emit_name(e, v));
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int h = 0; h < 2; h++) %s[h] = %s;", emit_name(e, v), expression);
    p->rows[v] = true;
}

void chained_print_let(chained_printer *p, const loop_node *n)
{
    emitter *e = p->e;
    const tile_op *op = n->op;
    const loop_element *element = n->element;
    loop_form form = (loop_form)n->number[0];
    value v = op->results[0];
    const char *name = emit_name(e, v), *type = cuda_register_type(tile_type_of(e->k, v).elem), *operands[3] = {0};
    if (form == LOOPS_SCALAR) {
        cuda_scalar_op(e, op);
        return;
    }
    if (form == LOOPS_POWER) {
        const char *mask = mask_text(p, element->conditions), *below = chained_element(p, element->below);
        const char *factor = float_text(e, element->factor);
        if (element->scalar) factor = arena_print(e->memory, "(%s * %s)", emit_name(e, element->scalar), factor);
        const char *power = arena_print(e->memory, "%s * %s - %s * %s", chained_element(p, element->x), factor, below,
                                        float_text(e, log2_of_e));
        if (mask) power = arena_print(e->memory, "%s ? %s : %s", mask, power, float_text(e, -INFINITY));
        put(e, "const float %s = %s(%s);", name, need(e, "ex2_approx"), power);
        return;
    }
    if (form == LOOPS_MASKED) {
        const char *mask = mask_text(p, element->conditions), *yes = chained_element(p, element->x);
        if (mask)
            put(e, "const %s %s = %s ? %s : %s;", type, name, mask, yes, chained_element(p, element->below));
        else
            put(e, "const %s %s = %s;", type, name, yes);
        return;
    }
    for (int i = 0; i < op->operand_count && i < 3; i++) operands[i] = chained_element(p, op->operands[i]);
    if (form == LOOPS_LAGGING) {
        int own = op->operands[1] == p->c->loop->regions[0]->args[1 + p->c->slack_carried];
        put(e, "float %s[2];", name);
        text_add(e->out, "#pragma unroll\n");
        put(e, "for (int h = 0; h < 2; h++) %s[h] = %s > %s + %d ? %s : %s;", name, operands[!own], operands[own],
            CHAINED_SLACK, operands[!own], operands[own]);
        p->rows[v] = true;
    } else if (form == LOOPS_ROW)
        print_row(p, op, operands);
    else if (form == LOOPS_QUOTIENT)
        put(e, "const float %s = %s * (1 / %s);", name, operands[0], operands[1]);
    else
        put(e, "const %s %s = %s;", type, name, form == LOOPS_SAME ? operands[0] : cuda_expression(e, op, operands));
}

const char *chained_row_pointer(chained_printer *p, const tile_op *op, const char *row, const char **test)
{
    emitter *e = p->e;
    const struct access *a = &op->attr.access;
    const char *name = e->k->params[a->array].name;
    const char *pointer = arena_print(e->memory, "%s_array", name);
    e->array_used[a->array] = true;
    for (int axis = 0, operand = a->first_index; axis < a->rank; axis++) {
        const char *index = emit_name(e, op->operands[operand]);
        if (a->kind[axis] == INDEX_SLICE) index = arena_print(e->memory, "(%s + %s)", index, row);
        operand += a->kind[axis] == INDEX_SLICE ? 2 : 1;
        pointer = arena_print(e->memory, "%s + %s * %s", pointer, index, stride_text(e, a->array, axis));
        if (!a->safe[axis])
            *test = arena_print(e->memory, "%s%s(unsigned long)%s < (unsigned long)%s", *test, **test ? " && " : "",
                                index, array_extent(e, a->array, axis));
    }
    return pointer;
}

/* A number of an array for this score, straight from there; of neighbours along memory both at once, which the compiler then
 * asks for once. Places outside are brought inside, without a branch: what is read there is masked, or of no row. */
static void print_table(chained_printer *p, const loop_node *n)
{
    emitter *e = p->e;
    const tile_op *op = n->op;
    const struct access *a = &op->attr.access;
    const tile_param *param = &e->k->params[a->array];
    const char *pointer = arena_print(e->memory, "%s_array", param->name), *name = emit_name(e, op->results[0]);
    bool pairs = n->number[0] == LOOPS_TABLE_PAIR, masked = n->number[1];
    e->array_used[a->array] = true;
    for (int axis = 0, operand = a->first_index; axis < a->rank; axis++) {
        value at = op->operands[operand];
        bool slice = a->kind[axis] == INDEX_SLICE, moves = at == p->c->loop->regions[0]->args[0];
        const char *index = emit_name(e, at);
        if (slice)
            index = arena_print(e->memory, "(%s + %s)", index,
                                !moves  ? "(row + h * 8)"
                                : pairs ? "(column - x % 2)"
                                        : "column");
        if (slice && (!moves || masked))
            index = arena_print(e->memory, "%s(%s, %s - %d)", need(e, "min_i64"), index,
                                array_extent(e, a->array, axis), moves && pairs ? 2 : 1);
        operand += slice ? 2 : 1;
        pointer = arena_print(e->memory, "%s + %s * %s", pointer, index, stride_text(e, a->array, axis));
    }
    const char *type = cuda_register_type(param->elem);
    if (!pairs) {
        put(e, "const %s %s = %s(%s);", type, name, need(e, "read_%s", memory_name(param->elem)), pointer);
        return;
    }
    put(e, "%s %s_pair[2];", type, name);
    put(e, "%s(%s_pair, %s);", need(e, "load_%sx2", memory_name(param->elem)), name, pointer);
    put(e, "const %s %s = %s_pair[x %% 2];", type, name, name);
}

void chained_print_load(chained_printer *p, const loop_node *n)
{
    emitter *e = p->e;
    if (n->number[0] >= LOOPS_TABLE) {
        print_table(p, n);
        return;
    }
    bool row = n->number[0] == LOOPS_ROW;
    value v = n->op->results[0];
    dtype elem = tile_type_of(e->k, v).elem;
    const char *test = "", *pointer = chained_row_pointer(p, n->op, row ? "row + h * 8" : "0", &test);
    const char *read = need(e, "read_%s", memory_name(elem));
    if (!*test) test = "true";
    if (!row) {
        put(e, "const %s %s = %s ? %s(%s) : 0;", cuda_register_type(elem), emit_name(e, v), test, read, pointer);
        return;
    }
    put(e, "float %s[2];", emit_name(e, v));
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int h = 0; h < 2; h++) %s[h] = %s ? %s(%s) : 0;", emit_name(e, v), test, read, pointer);
    p->rows[v] = true;
}

/* ---- passes over the scores ---- */

/* Eight at once: enough that none waits for itself. `x` is the bit of a word: of truths that stand the same one is taken. */
void chained_print_truths(chained_printer *p, const loop_node *n)
{
    emitter *e = p->e;
    value v = n->op->results[0];
    const loop_node *body = n->body;
    int count = p->c->columns / 2;
    p->truths[v] = false;
    put(e, "unsigned %s_bits[%d];", emit_name(e, v), (count + 31) / 32);
    put(e, "{");
    e->depth++;
    for (; body && body->code == LOOP_LET && body->number[0] == LOOPS_SCALAR; body = body->next)
        chained_print_let(p, body);
    for (; body && body->code == LOOP_EDGES; body = body->next) chained_print_edges(p);
    p->draws = true;
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int word = 0; word < %d; word++) {", (count + 31) / 32);
    e->depth++;
    put(e, "unsigned all = 0;");
    text_add(e->out, "#pragma unroll 1\n");
    put(e, "for (int part = 0; part < (word < %d ? 32 : %d); part += 8) {", count / 32, count % 32);
    e->depth++;
    put(e, "unsigned bits = 0;");
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int i = 0; i < 8; i++) {");
    e->depth++;
    put(e, "const int x = part + i, h = i / 2 %% 2, place = (word * 32 + part) * 2 + i / 4 * 8 + i %% 2;");
    put(e, "const int column = place + lane %% 4 * 2;");
    put(e, "(void)x, (void)h, (void)column;");
    chained_print_nodes(p, body);
    put(e, "bits |= (unsigned)(%s) << i;", chained_element(p, v));
    for (int depth = 0; depth < 4; depth++) {
        if (depth == 1) put(e, "all |= bits << part;");
        if (depth == 2) put(e, "%s_bits[word] = all;", emit_name(e, v));
        e->depth--;
        put(e, "}");
    }
    p->truths[v] = true;
    p->draws = false;
}

void chained_print_pass(chained_printer *p, const loop_node *n)
{
    emitter *e = p->e;
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int x = 0; x < %d; x++) {", p->c->columns / 2);
    e->depth++;
    put(e, "const int h = x / 2 %% 2, place = x / 4 * 8 + x %% 2, column = place + lane %% 4 * 2;");
    put(e, "(void)h, (void)column;");
    chained_print_nodes(p, n->body);
    e->depth--;
    put(e, "}");
}

/* Two chains a row: a step of one waits for the step before it, and a score alone would wait for its neighbour. */
void chained_print_fold_begin(chained_printer *p, const loop_node *n)
{
    const char *start = cuda_number(p->e, DT_F32, fold_identity(n->op->attr.fold, DT_F32));
    put(p->e, "float %s_parts[2][2] = {{%s, %s}, {%s, %s}};", emit_name(p->e, n->op->results[0]), start, start, start,
        start);
}

void chained_print_fold(chained_printer *p, const loop_node *n)
{
    emitter *e = p->e;
    const char *name = arena_print(e->memory, "%s_parts[h][x %% 2]", emit_name(e, n->op->results[0]));
    const char *mask = mask_text(p, n->element->conditions), *element = chained_element(p, n->element->x);
    if (n->number[0]) element = arena_print(e->memory, "(%s * %s)", element, emit_name(e, n->element->scalar));
    if (mask) element = arena_print(e->memory, "(%s ? %s : %s)", mask, element, float_text(e, -INFINITY));
    put(e, "%s = %s;", name, cuda_fold_step(e, n->op->attr.fold, DT_F32, name, element));
}

void chained_print_fold_join(chained_printer *p, const loop_node *n)
{
    emitter *e = p->e;
    const char *name = emit_name(e, n->op->results[0]), *parts[2][2];
    for (int i = 0; i < 4; i++) parts[i / 2][i % 2] = arena_print(e->memory, "%s_parts[%d][%d]", name, i / 2, i % 2);
    put(e, "float %s[2] = {%s, %s};", name, cuda_fold_step(e, n->op->attr.fold, DT_F32, parts[0][0], parts[0][1]),
        cuda_fold_step(e, n->op->attr.fold, DT_F32, parts[1][0], parts[1][1]));
    p->rows[n->op->results[0]] = true;
}

void chained_print_fold_end(chained_printer *p, const loop_node *n)
{
    emitter *e = p->e;
    const char *name = emit_name(e, n->operand), *mine = arena_print(e->memory, "%s[h]", name);
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int h = 0; h < 2; h++) {");
    for (int far = 1; far < 3; far++) {
        const char *other = arena_print(e->memory, "__shfl_xor_sync(~0u, %s[h], %d)", name, far);
        put(e, "    %s = %s;", mine, cuda_fold_step(e, (fold_kind)n->number[0], DT_F32, mine, other));
    }
    put(e, "}");
    if (!n->element) return;
    const char *factor = float_text(e, n->element->factor);
    if (n->element->factor != 1) put(e, "%s[0] *= %s, %s[1] *= %s;", name, factor, name, factor);
    if (!n->element->scalar) return;
    factor = emit_name(e, n->element->scalar);
    put(e, "if (%s) %s[0] *= %s, %s[1] *= %s;", chained_positive(p, n->element->scalar), name, factor, name, factor);
}

void chained_print_keep(chained_printer *p, const loop_node *n)
{
    if (n->number[0] == LOOPS_SCORES)
        put(p->e, "scores[x] = %s;", chained_element(p, n->operand));
    else
        put(p->e, "weight%d[side] = %s;", n->number[0], chained_element(p, n->operand));
}

/* Two neighbours at once: they share their vectors' pair and become one register. */
void chained_print_pairs(chained_printer *p, const loop_node *n)
{
    emitter *e = p->e;
    const chained *c = p->c;
    bool late = n->number[0];
    p->late = late;
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int pair = 0; pair < %d; pair++) {", c->columns / 4);
    e->depth++;
    for (int i = 0; i < c->vector_count; i++)
        put(e, "const pair_f32 vector%d = *(const pair_f32 *)(vectors + %d + pair / 2 * 8 + lane %% 4 * 2);", i,
            i * c->columns);
    for (int i = 0; i < c->sum_count; i++)
        if (c->sums[i].late == late) put(e, "float weight%d[2];", i);
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int side = 0; side < 2; side++) {");
    e->depth++;
    put(e,
        "const int x = pair * 2 + side, h = pair %% 2, place = pair / 2 * 8 + side, column = place + lane %% 4 * 2;");
    put(e, "(void)h, (void)column;");
    chained_print_nodes(p, n->body);
    e->depth--;
    put(e, "}");
    for (int i = 0; i < c->sum_count; i++)
        if (c->sums[i].late == late)
            put(e, "weights%d[pair] = %s(weight%d[0], weight%d[1]);", i, chained_pack_name(e, c->elem), i, i);
    e->depth--;
    put(e, "}");
    p->late = false;
}
