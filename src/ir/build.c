/*
 * Making and changing tile IR. In: a kernel and what to add. Out: the same kernel with it.
 * Invariants: a value's `op` points at the op that lists it among its results; all memory is the kernel's.
 * SPDX-License-Identifier: MIT
 */
#include "ir/tile.h"

#include <string.h>

tile_kernel *tile_kernel_new(arena *memory, const char *name, const char *file)
{
    tile_kernel *k = ARENA_NEW(memory, tile_kernel);
    k->memory = memory;
    k->name = name;
    k->file = file;
    k->value_capacity = 64;
    k->values = ARENA_ARRAY(memory, tile_value, k->value_capacity);
    k->value_count = 1;
    k->params = ARENA_ARRAY(memory, tile_param, 0); /* those without any are copied and looked through as others */
    k->head = tile_block_new(k);
    return k;
}

tile_block *tile_block_new(tile_kernel *k)
{
    return ARENA_NEW(k->memory, tile_block);
}

int tile_param_add(tile_kernel *k, tile_param param)
{
    tile_param *grown = ARENA_ARRAY(k->memory, tile_param, k->param_count + 1);
    memcpy(grown, k->params, sizeof(tile_param) * (size_t)k->param_count);
    grown[k->param_count] = param;
    k->params = grown;
    return k->param_count++;
}

value tile_value_new(tile_kernel *k, tile_type type)
{
    tile_value v = {.type = type};
    ARENA_PUSH(k->memory, k->values, k->value_count, k->value_capacity, v);
    return (value)(k->value_count - 1);
}

static value *value_list_with(tile_kernel *k, const value *list, int count, value last)
{
    value *grown = ARENA_ARRAY(k->memory, value, count + 1);
    if (count) memcpy(grown, list, sizeof(value) * (size_t)count);
    grown[count] = last;
    return grown;
}

value tile_block_arg(tile_kernel *k, tile_block *b, tile_type type)
{
    value v = tile_value_new(k, type);
    b->args = value_list_with(k, b->args, b->arg_count++, v);
    return v;
}

tile_op *tile_op_new(tile_kernel *k, op_code code, const value *operands, int operand_count)
{
    tile_op *op = ARENA_NEW(k->memory, tile_op);
    op->code = code;
    op->operand_count = operand_count;
    if (operand_count) {
        op->operands = ARENA_ARRAY(k->memory, value, operand_count);
        memcpy(op->operands, operands, sizeof(value) * (size_t)operand_count);
    }
    return op;
}

value tile_result(tile_kernel *k, tile_op *op, tile_type type)
{
    value v = tile_value_new(k, type);
    op->results = value_list_with(k, op->results, op->result_count++, v);
    k->values[v].op = op;
    return v;
}

void tile_alias_add(tile_kernel *k, value v, const char *name)
{
    for (int i = 0; i < k->alias_count; i++)
        if (k->aliases[i].v == v && !strcmp(k->aliases[i].name, name)) return;
    tile_alias alias = {name, v};
    ARENA_PUSH(k->memory, k->aliases, k->alias_count, k->alias_capacity, alias);
}

void tile_append(tile_kernel *k, tile_block *b, tile_op *op)
{
    ARENA_PUSH(k->memory, b->ops, b->op_count, b->op_capacity, op);
}

void tile_insert(tile_kernel *k, tile_block *b, int at, tile_op *op)
{
    tile_append(k, b, op);
    memmove(b->ops + at + 1, b->ops + at, sizeof(tile_op *) * (size_t)(b->op_count - 1 - at));
    b->ops[at] = op;
}

tile_type scalar_type(dtype elem)
{
    return (tile_type){.elem = elem};
}

bool tile_shape_same(const tile_type *a, const tile_type *b)
{
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i]) return false;
    return true;
}

bool tile_type_same(const tile_type *a, const tile_type *b)
{
    return a->elem == b->elem && tile_shape_same(a, b);
}

bool tile_broadcast(const tile_type *a, const tile_type *b, tile_type *out)
{
    dtype elem = a->elem; /* `out` may be one of the two */
    if (!a->rank || !b->rank) {
        *out = a->rank ? *a : *b;
        out->elem = elem;
        return true;
    }
    if (a->rank != b->rank) return false;
    tile_type joint = *a;
    for (int i = 0; i < a->rank; i++) {
        if (a->dims[i] == 1)
            joint.dims[i] = b->dims[i];
        else if (b->dims[i] != 1 && b->dims[i] != a->dims[i])
            return false;
    }
    *out = joint;
    return true;
}

bool tile_is_constant(const tile_kernel *k, value v, number *out)
{
    const tile_op *op = v ? tile_def(k, v) : NULL;
    if (!op || op->code != OP_CONST) return false;
    if (out) *out = op->attr.number;
    return true;
}

bool tile_reshape_only_units(const tile_type *from, const tile_type *to)
{
    int i = 0, j = 0;
    for (;;) {
        while (i < from->rank && from->dims[i] == 1) i++;
        while (j < to->rank && to->dims[j] == 1) j++;
        if (i == from->rank || j == to->rank) return i == from->rank && j == to->rank;
        if (from->dims[i++] != to->dims[j++]) return false;
    }
}

void tile_walk(tile_kernel *k, tile_block *b, tile_visit *visit, void *context)
{
    for (int i = 0; i < b->op_count; i++) {
        tile_op *op = b->ops[i];
        visit(k, b, op, context);
        for (int r = 0; r < op->region_count; r++) tile_walk(k, op->regions[r], visit, context);
    }
}

static value replaced(const value *to, value v)
{
    while (v && to[v]) v = to[v];
    return v;
}

static void replace_in_op(tile_kernel *k, tile_block *b, tile_op *op, void *context)
{
    const value *to = context;
    for (int i = 0; i < op->operand_count; i++) op->operands[i] = replaced(to, op->operands[i]);
}

void tile_replace_many(tile_kernel *k, const value *to)
{
    tile_walk(k, k->head, replace_in_op, (void *)to);
    for (int p = 0; p < k->phase_count; p++) tile_walk(k, k->phases[p], replace_in_op, (void *)to);
    for (int v = 1; v < k->value_count; v++) {
        tile_type *type = &k->values[v].type;
        for (int i = 0; i < type->rank; i++)
            if (type->dims[i] < 0) type->dims[i] = -(int64_t)replaced(to, (value)-type->dims[i]);
    }
    for (int p = 0; p < k->param_count; p++)
        for (int i = 0; i < k->params[p].rank; i++) k->params[p].extents[i] = replaced(to, k->params[p].extents[i]);
}

static void *copy_bytes(arena *memory, const void *from, size_t size_bytes)
{
    if (!size_bytes || !from) return NULL;
    void *to = arena_alloc(memory, size_bytes);
    memcpy(to, from, size_bytes);
    return to;
}

static tile_block *clone_block(tile_kernel *to, const tile_block *from)
{
    tile_block *b = tile_block_new(to);
    b->arg_count = from->arg_count;
    b->args = copy_bytes(to->memory, from->args, sizeof(value) * (size_t)from->arg_count);
    for (int i = 0; i < from->op_count; i++) {
        tile_op *op = copy_bytes(to->memory, from->ops[i], sizeof(tile_op));
        op->operands = copy_bytes(to->memory, op->operands, sizeof(value) * (size_t)op->operand_count);
        op->results = copy_bytes(to->memory, op->results, sizeof(value) * (size_t)op->result_count);
        if (op->attr.words) op->attr.words = arena_copy_text(to->memory, op->attr.words, strlen(op->attr.words));
        for (int r = 0; r < op->region_count; r++) op->regions[r] = clone_block(to, op->regions[r]);
        for (int r = 0; r < op->result_count; r++) to->values[op->results[r]].op = op;
        tile_append(to, b, op);
    }
    return b;
}

static const char *copy_words(arena *memory, const char *words)
{
    return words ? arena_copy_text(memory, words, strlen(words)) : NULL;
}

const char *tile_place(const tile_kernel *k, int *line)
{
    const char *path = k->file ? k->file : k->name;
    int first = 1;
    for (int i = 0; i < k->import_count && *line >= k->imports[i].first_line; i++) {
        path = k->imports[i].path;
        first = k->imports[i].first_line;
    }
    *line -= first - 1;
    return path;
}

/* Nothing of the copy lies in the memory of the kernel it was made from: a stored kernel outlives the plan. */
tile_kernel *tile_clone(const tile_kernel *k, arena *memory)
{
    tile_kernel *copy = copy_bytes(memory, k, sizeof(*k));
    copy->memory = memory;
    copy->name = arena_copy_text(memory, k->name, strlen(k->name));
    copy->file = copy_words(memory, k->file);
    copy->raw_language = copy_words(memory, k->raw_language);
    copy->raw_source = copy_words(memory, k->raw_source);
    copy->raw_constants = copy_words(memory, k->raw_constants);
    copy->raw_path = copy_words(memory, k->raw_path);
    copy->raw_instance = copy_words(memory, k->raw_instance);
    copy->raw_options = copy_words(memory, k->raw_options);
    copy->params = copy_bytes(memory, k->params, sizeof(tile_param) * (size_t)k->param_count);
    for (int p = 0; p < k->param_count; p++) {
        copy->params[p].name = arena_copy_text(memory, k->params[p].name, strlen(k->params[p].name));
        if (!k->params[p].digits) continue;
        param_digits *digits = ARENA_NEW(memory, param_digits);
        *digits = *k->params[p].digits;
        copy->params[p].digits = digits;
    }
    copy->value_capacity = k->value_count;
    copy->values = copy_bytes(memory, k->values, sizeof(tile_value) * (size_t)k->value_count);
    for (int v = 1; v < k->value_count; v++) {
        copy->values[v].op = NULL;
        copy->values[v].name = copy_words(memory, k->values[v].name);
    }
    copy->alias_capacity = k->alias_count;
    copy->aliases = copy_bytes(memory, k->aliases, sizeof(tile_alias) * (size_t)k->alias_count);
    for (int i = 0; i < k->alias_count; i++)
        copy->aliases[i].name = arena_copy_text(memory, k->aliases[i].name, strlen(k->aliases[i].name));
    copy->head = clone_block(copy, k->head);
    copy->phases = ARENA_ARRAY(memory, tile_block *, k->phase_count + 1);
    for (int p = 0; p < k->phase_count; p++) copy->phases[p] = clone_block(copy, k->phases[p]);
    copy->imports = copy_bytes(memory, k->imports, sizeof(tile_import) * (size_t)k->import_count);
    for (int i = 0; i < k->import_count; i++) copy->imports[i].path = copy_words(memory, k->imports[i].path);
    if (k->source_lines) {
        copy->source_lines = ARENA_ARRAY(memory, const char *, k->source_line_count + 1);
        for (int i = 0; i < k->source_line_count; i++)
            copy->source_lines[i] = arena_copy_text(memory, k->source_lines[i], strlen(k->source_lines[i]));
    }
    return copy;
}
