/*
 * Values inside a group of passes. In: a value and its place in the loops. Out: the register that holds it, after the
 * statements that compute it were added at their level.
 *
 * Nothing is computed twice at one level: registers are remembered by value and place. A kept tile is read from its
 * home: a register of this thread, or memory.
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/nest.h"

#include <inttypes.h>
#include <string.h>

void cuda_remember(cnest *n, value v, place at, creg r)
{
    creg *kept = ARENA_NEW(n->e->memory, creg);
    *kept = r;
    view_remember(&n->view, v, at, r.level, kept);
}

creg cuda_define(cnest *n, value named, dtype t, int level, const char *words)
{
    creg r = {fresh_name(n->e, named), level, REG_NAME};
    cput(n, level, "const %s %s = %s;", cuda_register_type(t), r.words, words);
    return r;
}

const char *cuda_share(cnest *n, int level, const char *type, const char *words)
{
    const char *name = names_find(&n->names, level, words);
    if (name) return name;
    name = fresh_name(n->e, 0);
    cput(n, level, "%s %s = %s;", type, name, words);
    names_add(n->e, &n->names, level, words, name);
    return name;
}

static creg compute_iota(cnest *n, value v, const tile_op *op, place at)
{
    dtype t = tile_type_of(n->e->k, v).elem;
    int axis = at.axis[op->attr.index];
    if (axis == NO_AXIS) return (creg){"0", LEVEL_GROUP, REG_NAME};
    return cuda_define(n, v, t, axis_level(&n->view, axis),
                       arena_print(n->e->memory, "(%s)%s", cuda_register_type(t), position_text(n, axis)));
}

static creg compute_bound(cnest *n, const tile_op *op, place at)
{
    constraint c = constraint_of_bound(n->e, op);
    return cuda_constraint(n, at.axis[op->attr.index], &c, op->operands[1]);
}

/* A region of scalars, run for each element. */
static creg compute_map(cnest *n, value v, const loop_node *node)
{
    const tile_op *op = node->op;
    place at = *node->at;
    emitter *e = n->e;
    int level = LEVEL_GROUP;
    const char **before = (const char **)e->value_text;
    const char **texts = ARENA_ARRAY(e->memory, const char *, e->k->value_count);
    for (int i = 0; i < op->operand_count; i++) {
        creg r = cuda_value(n, op->operands[i], place_of_operand(e->survey, op, i, &at));
        level = MAXIMUM(level, r.level);
        texts[op->regions[0]->args[i]] = r.words;
    }
    if (before)
        for (int i = 0; i < e->k->value_count; i++)
            if (!texts[i]) texts[i] = before[i];
    creg *results = ARENA_ARRAY(e->memory, creg, op->result_count);
    for (int r = 0; r < op->result_count; r++) {
        results[r] = (creg){fresh_name(e, op->results[r]), level, REG_NAME};
        cput(n, level, "%s %s;", cuda_register_type(tile_type_of(e->k, op->results[r]).elem), results[r].words);
        cuda_remember(n, op->results[r], at, results[r]);
    }
    text body = {0}, *out = e->out;
    int depth = e->depth;
    e->out = &body;
    e->depth = 0;
    e->value_text = texts;
    put(e, "{");
    e->depth++;
    print_spread_nodes(e, node->body);
    const tile_op *yield = op->regions[0]->ops[op->regions[0]->op_count - 1];
    for (int r = 0; r < op->result_count; r++) put(e, "%s = %s;", results[r].words, emit_name(e, yield->operands[r]));
    e->depth--;
    put(e, "}");
    e->out = out;
    e->depth = depth;
    e->value_text = before;
    text_add(&n->level[level], text_get(&body));
    text_free(&body);
    for (int r = 0; r < op->result_count; r++)
        if (op->results[r] == v) return results[r];
    return results[0];
}

static creg read_kept(cnest *n, value v, place at);

/* exponent * factor or exponent / factor: the exponent's own scale goes into the factor. */
static creg compute_scaled(cnest *n, value v, const tile_op *op, place at)
{
    emitter *e = n->e;
    value exponent = op->operands[0];
    const online *o = online_is_scaled(&n->view, v, op);
    creg by = cuda_value(n, op->operands[1], place_of_operand(e->survey, op, 1, &at));
    const char *factor = cuda_share(
        n, by.level, "const float",
        arena_print(e->memory, "%s_scale %s %s", emit_name(e, o->top), op->code == OP_MUL ? "*" : "/", by.words));
    creg r = read_kept(n, exponent, place_of_operand(e->survey, op, 0, &at));
    return cuda_define(n, v, DT_F32, r.level, arena_print(e->memory, "%s * %s", r.words, factor));
}

/* A position compared with a scalar: both as int, the scalar brought near enough that no answer changes, and once a
 * chunk relative to its first position. */
static creg compute_place_test(cnest *n, value v, const tile_op *op, place at)
{
    enum { FAR = 1 << 30 };
    static const char *const signs[2][6] = {{"<", "<=", ">", ">=", "==", "!="}, {">", ">=", "<", "<=", "==", "!="}};
    emitter *e = n->e;
    place_test test;
    CHECK(place_test_look(&n->view, op, at, &test));
    int axis = test.axis;
    const char *name = emit_name(e, test.other), *sign = signs[test.side][op->code - OP_LT];
    const char *near =
        cuda_share(n, LEVEL_GROUP, "const int",
                   arena_print(e->memory, "%s < 0 ? -1 : %s > %d ? %d : (int)%s", name, name, FAR, FAR, name));
    if (n->view.role[axis] != ROLE_VECTOR || n->view.layout->vector == 1)
        return cuda_define(n, v, DT_BOOL, axis_level(&n->view, axis),
                           arena_print(e->memory, "(int)i%d %s %s", axis, sign, near));
    const char *rest = cuda_share(n, LEVEL_CHUNK, "const int", arena_print(e->memory, "%s - (int)i%d", near, axis));
    const char *words = arena_print(e->memory, "v %s %s", sign, rest);
    creg out = cuda_define(n, v, DT_BOOL, LEVEL_ELEMENT, words);
    if (op->code == OP_EQ && (!n->hit_count || n->hit_rest == rest)) {
        size_t end = n->level[LEVEL_ELEMENT].length - 2, length = strlen(words); /* the statement ends with ";\n" */
        text_span hit = {end - length, length};
        n->hit_rest = rest;
        ARENA_PUSH(e->memory, n->hits, n->hit_count, n->hit_capacity, hit);
    }
    return out;
}

/* (x + below) / factor or its remainder: x, a scalar, by 64 bits once for all, what is left of it with the rest by 32. */
static creg compute_split_quotient(cnest *n, value v, const loop_node *node)
{
    emitter *e = n->e;
    const loop_element *q = node->element;
    int64_t by = (int64_t)q->factor;
    bool divides = node->op->code == OP_DIV;
    creg rest = cuda_value(n, q->below, *q->at);
    const char *name = emit_name(e, q->x);
    const char *left =
        cuda_share(n, LEVEL_GROUP, "const unsigned",
                   arena_print(e->memory, "(unsigned)%s(%s, %" PRId64 "L)", need(e, "mod_i64"), name, by));
    const char *words = arena_print(e->memory, "(long)((%s + (unsigned)%s) %s %" PRId64 "u)", left, rest.words,
                                    divides ? "/" : "%", by);
    if (divides)
        words = arena_print(e->memory, "%s + %s",
                            cuda_share(n, LEVEL_GROUP, "const long",
                                       arena_print(e->memory, "%s(%s, %" PRId64 "L)", need(e, "div_i64"), name, by)),
                            words);
    return cuda_define(n, v, DT_I64, rest.level, words);
}

static creg compute_elementwise(cnest *n, value v, const tile_op *op, place at)
{
    emitter *e = n->e;
    creg operands[3] = {{0}};
    int level = LEVEL_GROUP;
    CHECK(op->operand_count <= 3);
    for (int i = 0; i < op->operand_count; i++) {
        operands[i] = cuda_value(n, op->operands[i], place_of_operand(e->survey, op, i, &at));
        level = MAXIMUM(level, operands[i].level);
    }
    dtype t = tile_type_of(e->k, v).elem;
    bool precise = e->k->precise || op->flags & F_PRECISE;
    if (op->code == OP_DIV && dtype_is_float(t) && !precise && operands[1].level < level) {
        const char *scale =
            cuda_share(n, operands[1].level, arena_print(e->memory, "const %s", cuda_register_type(t)),
                       arena_print(e->memory, t == DT_F64 ? "1.0 / %s" : "1.0f / %s", operands[1].words));
        return cuda_define(n, v, t, level, arena_print(e->memory, "%s * %s", operands[0].words, scale));
    }
    const char *words[3] = {0};
    for (int i = 0; i < op->operand_count; i++) words[i] = operands[i].words;
    const char *result = cuda_expression(e, op, words);
    if (result == words[0]) return operands[0]; /* a conversion that changes nothing in registers */
    return cuda_define(n, v, t, level, result);
}

static creg compute_one_plus_tanh(cnest *n, value v, const tile_op *op, place at)
{
    emitter *e = n->e;
    int tanh;
    CHECK(is_one_plus_tanh(e->survey, op, &tanh));
    place inner = place_of_operand(e->survey, op, tanh, &at);
    const tile_op *of = tile_def(e->k, op->operands[tanh]);
    creg x = cuda_value(n, of->operands[0], place_of_operand(e->survey, of, 0, &inner));
    dtype t = tile_type_of(e->k, v).elem;
    return cuda_define(
        n, v, t, x.level,
        arena_print(e->memory, "2 * %s(%s + %s)", need(e, "sigmoid_%s", register_name(t)), x.words, x.words));
}

/* A kept tile from its home, as it was written. */
static creg read_kept(cnest *n, value v, place at)
{
    int level;
    const char *home = home_element(n, v, at, false, &level);
    return home ? (creg){home, level, REG_ELEMENT} : cuda_load(n, v, cuda_buffer(n, v, at), 0);
}

static creg compute(cnest *n, value v, const loop_node *node)
{
    const tile_op *op = node->op;
    const place at = *node->at;
    creg r;
    switch (op->code) {
    case OP_IOTA: return compute_iota(n, v, op, at);
    case OP_BOUND: return compute_bound(n, op, at);
    case OP_BROADCAST:
    case OP_RESHAPE:
    case OP_PERMUTE: return cuda_value(n, op->operands[0], place_of_operand(n->e->survey, op, 0, &at));
    case OP_LOAD: return window_load(n, op, at, &r) ? r : cuda_load(n, v, cuda_access(n, op, at), 0);
    default: break;
    }
    switch (node->number[1]) {
    case LOOPS_ONE_PLUS_TANH: return compute_one_plus_tanh(n, v, op, at);
    case LOOPS_SCALED: return compute_scaled(n, v, op, at);
    case LOOPS_PLACE_TEST: return compute_place_test(n, v, op, at);
    case LOOPS_SPLIT_QUOTIENT: return compute_split_quotient(n, v, node);
    case LOOPS_PADDED: return cuda_value(n, op->operands[1], place_of_operand(n->e->survey, op, 1, &at));
    default: return compute_elementwise(n, v, op, at);
    }
}

void print_value(cnest *n, const loop_node *node)
{
    value v = node->operand;
    if (node->code == LOOP_MAP)
        compute_map(n, v, node);
    else if (node->code == LOOP_READ)
        cuda_remember(n, v, *node->at, online_scaled(n, v, read_kept(n, v, *node->at)));
    else
        cuda_remember(n, v, *node->at, compute(n, v, node));
}

creg cuda_value(cnest *n, value v, place at)
{
    emitter *e = n->e;
    if (!e->k->values[v].type.rank) {
        number constant;
        return (creg){emit_name(e, v), LEVEL_GROUP, tile_is_constant(e->k, v, &constant) ? REG_WORDS : REG_NAME};
    }
    const met_value *met = view_met(&n->view, v, &at);
    CHECK(met);
    return *(const creg *)met->of;
}
