/*
 * Values inside a loop nest. In: a value and its place in the loops. Out: the register that holds it, after the
 * statements that compute it were added at their level.
 *
 * Nothing is computed twice at one level: registers are remembered by value and place. Bounds that the loops already
 * guarantee are `truth`, and everything that only served to test them is not even computed.
 * SPDX-License-Identifier: MIT
 */
#include "emit/c/nest.h"

#include <string.h>

const char *fresh_name(emitter *e, value v)
{
    const char *name = v ? e->k->values[v].name : NULL;
    int number = ++e->serial;
    return name ? arena_print(e->memory, "%s_v%d", name, number) : arena_print(e->memory, "v%d", number);
}

bool level_is_vector(const nest *n, int level)
{
    return n->vector && level == n->loops;
}

void nest_remember(nest *n, value v, place at, reg r)
{
    memo entry = {v, at, r};
    ARENA_PUSH(n->e->memory, n->memos, n->memo_count, n->memo_capacity, entry);
}

reg nest_define(nest *n, value named, dtype t, int level, const char *words)
{
    reg r = {fresh_name(n->e, named), level, false};
    put_at(n, level, "const %s %s = %s;", level_is_vector(n, level) ? vector_c_type(t) : scalar_c_type(t), r.words,
           words);
    return r;
}

const char *nest_share(nest *n, int level, const char *type, const char *words)
{
    const char *name = names_find(&n->names, level, words);
    if (name) return name;
    name = fresh_name(n->e, 0);
    put_at(n, level, "%s %s = %s;", type, name, words);
    if (!level_is_vector(n, level)) names_add(n->e, &n->names, level, words, name);
    return name;
}

const char *as_vector(nest *n, dtype t, reg r)
{
    if (r.truth) return splat(n->e, DT_BOOL, "1");
    return level_is_vector(n, r.level) ? r.words : splat(n->e, t, r.words);
}

static const char *as_scalar(reg r)
{
    return r.truth ? "1" : r.words;
}

static reg compute_iota(nest *n, value v, const tile_op *op, place at)
{
    emitter *e = n->e;
    dtype t = tile_type_of(e->k, v).elem;
    int axis = at.axis[op->attr.index];
    if (axis == NO_AXIS) return (reg){"0", 0, false};
    if (!level_is_vector(n, axis + 1))
        return nest_define(n, v, t, axis + 1, arena_print(e->memory, "(%s)i%d", scalar_c_type(t), axis));
    return nest_define(n, v, t, axis + 1,
                       arena_print(e->memory, "%s() + (%s)%s", need(e, "iota_%sx16", register_name(t)),
                                   scalar_c_type(t), n->position));
}

static reg compute_bound(nest *n, const tile_op *op, place at)
{
    constraint c = constraint_of_bound(n->e, op);
    return constraint_test(n, at.axis[op->attr.index], &c, op->operands[1]);
}

/* A region of scalars, run for each lane (or once, where the operands are the same for all). */
static reg compute_map(nest *n, value v, const tile_op *op, place at)
{
    emitter *e = n->e;
    int level = 0;
    reg *operands = ARENA_ARRAY(e->memory, reg, op->operand_count + 1);
    for (int i = 0; i < op->operand_count; i++) {
        operands[i] = nest_value(n, op->operands[i], place_of_operand(e->survey, op, i, &at));
        level = MAXIMUM(level, operands[i].level);
    }
    bool vector = level_is_vector(n, level);
    const char **before = (const char **)e->value_text;
    const char **texts = ARENA_ARRAY(e->memory, const char *, e->k->value_count);
    if (before) memcpy(texts, before, sizeof(*texts) * (size_t)e->k->value_count);
    for (int i = 0; i < op->operand_count; i++) {
        bool lanes = level_is_vector(n, operands[i].level);
        dtype t = tile_type_of(e->k, op->operands[i]).elem;
        const char *element = lanes ? arena_print(e->memory, t == DT_BOOL ? "(%s[l] != 0)" : "%s[l]", operands[i].words)
                                    : as_scalar(operands[i]);
        texts[op->regions[0]->args[i]] = element;
    }
    reg *results = ARENA_ARRAY(e->memory, reg, op->result_count);
    for (int r = 0; r < op->result_count; r++) {
        dtype t = tile_type_of(e->k, op->results[r]).elem;
        results[r] = (reg){fresh_name(e, op->results[r]), level, false};
        put_at(n, level, vector ? "%s %s = {0};" : "%s %s;", vector ? vector_c_type(t) : scalar_c_type(t),
               results[r].words);
        place own = at;
        nest_remember(n, op->results[r], own, results[r]);
    }
    text body = {0}, *out = e->out;
    int depth = e->depth;
    e->out = &body;
    e->depth = vector ? 1 : 0;
    e->value_text = texts;
    put(e, "{");
    e->depth++;
    const tile_block *region = op->regions[0];
    int now = e->survey->time; /* of the group: what it reads and writes before and behind this lives at once */
    emit_block(e, op->regions[0]);
    e->survey->time = now;
    const tile_op *yield = region->ops[region->op_count - 1];
    for (int r = 0; r < op->result_count; r++) {
        dtype t = tile_type_of(e->k, op->results[r]).elem;
        const char *element = emit_name(e, yield->operands[r]);
        if (vector)
            put(e, t == DT_BOOL ? "%s[l] = -(%s);" : "%s[l] = %s;", results[r].words, element);
        else
            put(e, "%s = %s;", results[r].words, element);
    }
    e->depth--;
    put(e, "}");
    e->out = out;
    e->depth = depth;
    e->value_text = before;
    if (vector) put_at(n, level, "for (int l = 0; l < %s; l++)", n->partial ? "lanes" : "16");
    text_add(&n->level[level], text_get(&body));
    text_free(&body);
    for (int r = 0; r < op->result_count; r++)
        if (op->results[r] == v) return results[r];
    return results[0];
}

static reg compute_elementwise(nest *n, value v, const tile_op *op, place at)
{
    emitter *e = n->e;
    reg operands[3] = {{0}};
    int level = 0;
    CHECK(op->operand_count <= 3);
    for (int i = 0; i < op->operand_count; i++) {
        operands[i] = nest_value(n, op->operands[i], place_of_operand(e->survey, op, i, &at));
        level = MAXIMUM(level, operands[i].truth ? 0 : operands[i].level);
        if (op->code == OP_SELECT && i == 0 && operands[0].truth)
            return nest_value(n, op->operands[1], place_of_operand(e->survey, op, 1, &at));
    }
    if (tile_type_of(e->k, v).elem == DT_BOOL && (op->code == OP_AND || op->code == OP_OR)) {
        for (int i = 0; i < 2; i++)
            if (operands[i].truth) return op->code == OP_OR ? operands[i] : operands[1 - i];
    }
    bool vector = level_is_vector(n, level);
    dtype t = tile_type_of(e->k, v).elem;
    bool precise = e->k->precise || op->flags & F_PRECISE;
    if (op->code == OP_DIV && vector && dtype_is_float(t) && !precise && !level_is_vector(n, operands[1].level)) {
        const char *scale = nest_share(n, operands[1].level, arena_print(e->memory, "const %s", scalar_c_type(t)),
                                       arena_print(e->memory, "1 / %s", operands[1].words));
        return nest_define(n, v, t, level, arena_print(e->memory, "%s * %s", operands[0].words, scale));
    }
    if (op->code == OP_SELECT && vector && !level_is_vector(n, operands[0].level))
        return nest_define(n, v, t, level,
                           arena_print(e->memory, "%s ? %s : %s", operands[0].words, as_vector(n, t, operands[1]),
                                       as_vector(n, t, operands[2])));
    /* Arithmetic on a vector and a scalar of its type needs no splat. */
    bool mixed = op->code == OP_ADD || op->code == OP_SUB || op->code == OP_MUL || op->code == OP_DIV;
    mixed = mixed && dtype_is_float(t) && vector;
    const char *words[3] = {0};
    for (int i = 0; i < op->operand_count; i++) {
        dtype of = tile_type_of(e->k, op->operands[i]).elem;
        bool keep = mixed || (op->code == OP_PHILOX && i < 2);
        words[i] = vector && !keep ? as_vector(n, of, operands[i]) : as_scalar(operands[i]);
    }
    const char *result = expression(e, op, words, vector);
    if (result == words[0]) return operands[0]; /* a conversion that changes nothing in registers */
    return nest_define(n, v, t, level, result);
}

/* ---- comparisons of positions ---- */

/* Is the value `*base` + lane along the vectors? Positions and what is added to them; 64-bit lanes are not needed then.
 */
static bool is_affine(nest *n, value v, place at, int *ways, reg *base)
{
    emitter *e = n->e;
    const tile_op *op = value_is_virtual(e->survey, v) ? tile_def(e->k, v) : NULL;
    if (!op || tile_type_of(e->k, v).elem != DT_I64 || --*ways < 0) return false;
    switch (op->code) {
    case OP_IOTA:
        if (at.axis[op->attr.index] == NO_AXIS || !level_is_vector(n, at.axis[op->attr.index] + 1)) return false;
        *base = (reg){n->position, n->loops, false};
        return true;
    case OP_BROADCAST:
    case OP_RESHAPE:
    case OP_PERMUTE: return is_affine(n, op->operands[0], place_of_operand(e->survey, op, 0, &at), ways, base);
    case OP_ADD:
    case OP_SUB:
        for (int i = 0; i < (op->code == OP_ADD ? 2 : 1); i++) {
            place other = place_of_operand(e->survey, op, 1 - i, &at);
            if (!is_affine(n, op->operands[i], place_of_operand(e->survey, op, i, &at), ways, base)) continue;
            if (tile_type_of(e->k, op->operands[1 - i]).rank && place_level(&other, MAX_RANK) == n->loops) return false;
            reg term = nest_value(n, op->operands[1 - i], other);
            base->words = arena_print(e->memory, "%s %s %s", base->words, op->code == OP_ADD ? "+" : "-", term.words);
            return true;
        }
        return false;
    default: return false;
    }
}

/* base + lane against a value that is the same in all lanes: the lane against their difference. */
static bool compare_positions(nest *n, const tile_op *op, place at, reg *result)
{
    emitter *e = n->e;
    if (ops[op->code].class != CLASS_COMPARE || !n->vector) return false;
    for (int i = 0; i < 2; i++) {
        reg base;
        int ways = TILE_MOST_WAYS;
        place other = place_of_operand(e->survey, op, 1 - i, &at);
        if (place_level(&other, tile_type_of(e->k, op->operands[1 - i]).rank) == n->loops) continue;
        if (!is_affine(n, op->operands[i], place_of_operand(e->survey, op, i, &at), &ways, &base)) continue;
        static const op_code mirrored[] = {OP_GT, OP_GE, OP_LT, OP_LE, OP_EQ, OP_NE};
        op_code code = i ? mirrored[op->code - OP_LT] : op->code;
        reg limit = nest_value(n, op->operands[1 - i], other);
        e->needs_lanes = true;
        need(e, "first_mask");
        *result =
            nest_define(n, 0, DT_BOOL, n->loops,
                        arena_print(e->memory, "%s(%s(), %s(lane_of(%s, %s)))", need(e, "%s_i32x16", ops[code].text),
                                    need(e, "iota_i32x16"), need(e, "splat_i32x16"), limit.words, base.words));
        return true;
    }
    return false;
}

static reg compute_one_plus_tanh(nest *n, value v, const tile_op *op, int tanh, place at)
{
    emitter *e = n->e;
    place inner = place_of_operand(e->survey, op, tanh, &at);
    const tile_op *of = tile_def(e->k, op->operands[tanh]);
    reg x = nest_value(n, of->operands[0], place_of_operand(e->survey, of, 0, &inner));
    dtype t = tile_type_of(e->k, v).elem;
    const char *lanes = level_is_vector(n, x.level) ? "x16" : "";
    return nest_define(
        n, v, t, x.level,
        arena_print(e->memory, "2 * %s(%s + %s)", need(e, "sigmoid_%s%s", register_name(t), lanes), x.words, x.words));
}

reg nest_compute(nest *n, value v, place at)
{
    emitter *e = n->e;
    const tile_op *op = tile_def(e->k, v);
    reg r;
    int tanh;
    switch (op->code) {
    case OP_IOTA: r = compute_iota(n, v, op, at); break;
    case OP_BOUND: r = compute_bound(n, op, at); break;
    case OP_BROADCAST:
    case OP_RESHAPE:
    case OP_PERMUTE: r = nest_value(n, op->operands[0], place_of_operand(e->survey, op, 0, &at)); break;
    case OP_LOAD: {
        address a;
        if (!turned_load(n, op, at, &a)) {
            a = access_address(n, op, at);
            access_prefetch(n, op, &a);
        }
        r = address_load(n, v, a);
        break;
    }
    case OP_MAP: return compute_map(n, v, op, at);
    default:
        if (compare_positions(n, op, at, &r)) break;
        r = is_one_plus_tanh(e->survey, op, &tanh) ? compute_one_plus_tanh(n, v, op, tanh, at)
                                                   : compute_elementwise(n, v, op, at);
        break;
    }
    nest_remember(n, v, at, r);
    return r;
}

reg nest_value(nest *n, value v, place at)
{
    emitter *e = n->e;
    int rank = e->k->values[v].type.rank;
    if (!rank) return (reg){emit_name(e, v), 0, false};
    for (int i = n->memo_count - 1; i >= 0; i--)
        if (n->memos[i].v == v && place_same(&n->memos[i].at, &at, rank)) return n->memos[i].result;
    if (value_is_virtual(e->survey, v)) return nest_compute(n, v, at);
    reg r = address_load(n, v, buffer_address(n, v, at));
    nest_remember(n, v, at, r);
    return r;
}
