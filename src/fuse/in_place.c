/*
 * Kernels that write over what they read. In: a kernel and two of its arrays. Out: the same kernel with one array for
 * both, if that computes the same: every load of the one names the very elements of the stores of the other (the same
 * index values over the same view), and comes before them. Programs write disjoint elements, so they then also read
 * disjoint ones, and no program reads what another has written.
 * Also the copy that ends an assignment which could not be computed in its home.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/memory.h"

#include <string.h>

#define DEEPEST_INDEX 16

static bool is_argument_array(const tile_param *p)
{
    return p->kind == PARAM_IN || p->kind == PARAM_OUT || p->kind == PARAM_INOUT;
}

static int argument_param(const tile_kernel *k, int argument)
{
    for (int p = 0; p < k->param_count; p++)
        if (is_argument_array(&k->params[p]) && !argument--) return p;
    CHECK(false);
}

param_kind fuse_argument_kind(const tile_kernel *k, int argument)
{
    return k->params[argument_param(k, argument)].kind;
}

static bool touches_memory(const tile_op *op)
{
    return op->code == OP_LOAD || op->code == OP_STORE || op->code == OP_ATOMIC;
}

typedef struct fold_search {
    bool folds, pointwise;
} fold_search;

static void note_fold(tile_kernel *k, tile_block *b, tile_op *op, void *context)
{
    fold_search *s = context;
    bool fold = ops[op->code].class == CLASS_FOLD && !(s->folds && (op->code == OP_REDUCE || op->code == OP_DOT));
    if (fold || op->code == OP_ATOMIC) s->pointwise = false;
}

bool fuse_is_pointwise(const tile_kernel *k, bool folds)
{
    fold_search s = {folds, k->phase_count == 1};
    if (s.pointwise) tile_walk((tile_kernel *)k, k->phases[0], note_fold, &s);
    return s.pointwise;
}

/* ---- the same elements ---- */

static bool same_value(const tile_kernel *k, value a, value b, int depth)
{
    if (a == b) return true;
    const tile_op *x = tile_def(k, a), *y = tile_def(k, b);
    if (!x || !y || depth > DEEPEST_INDEX || x->code != y->code || !ops[x->code].pure || x->region_count ||
        x->operand_count != y->operand_count || x->result_count != 1 || y->result_count != 1 ||
        ops[x->code].class == CLASS_FOLD || memcmp(&x->attr, &y->attr, sizeof(x->attr)) != 0)
        return false;
    tile_type left = tile_type_of(k, a), right = tile_type_of(k, b);
    if (!tile_type_same(&left, &right)) return false;
    for (int i = 0; i < x->operand_count; i++)
        if (!same_value(k, x->operands[i], y->operands[i], depth + 1)) return false;
    return true;
}

/* Where an op of an array stands; a block belongs to one phase. */
typedef struct access_site {
    tile_op *op;
    tile_block *block;
} access_site;

typedef struct access_search {
    int read, write; /* parameters */
    access_site load, store;
    bool fits;
} access_search;

static tile_type accessed_type(const tile_kernel *k, const tile_op *op)
{
    return tile_type_of(k, op->code == OP_LOAD ? op->results[0] : op->operands[0]);
}

static bool same_access(const tile_kernel *k, const tile_op *x, const tile_op *y)
{
    const access *a = &x->attr.access, *b = &y->attr.access;
    tile_type left = accessed_type(k, x), right = accessed_type(k, y);
    if (k->params[a->array].digits || k->params[b->array].digits) return false;
    if (!tile_type_same(&left, &right) || a->rank != b->rank || a->mask_count != b->mask_count ||
        x->operand_count - a->first_index != y->operand_count - b->first_index)
        return false;
    for (int axis = 0; axis < a->rank; axis++)
        if (a->kind[axis] != b->kind[axis] || a->kind[axis] == INDEX_TILE ||
            (a->kind[axis] == INDEX_SLICE && a->result_axis[axis] != b->result_axis[axis]))
            return false;
    for (int i = a->first_index, j = b->first_index; i < x->operand_count; i++, j++)
        if (!same_value(k, x->operands[i], y->operands[j], 0)) return false;
    return true;
}

static void note_access(tile_kernel *k, tile_block *b, tile_op *op, void *context)
{
    access_search *s = context;
    if (!touches_memory(op)) return;
    int array = op->attr.access.array;
    access_site site = {op, b};
    if (array == s->read) {
        if (op->code != OP_LOAD || s->store.op) s->fits = false;
        if (s->load.op && (s->load.block != b || !same_access(k, s->load.op, op))) s->fits = false;
        s->load = site;
    } else if (array == s->write) {
        if (op->code != OP_STORE || s->store.op) s->fits = false;
        s->store = site;
    }
}

static bool reads_what_it_writes(tile_kernel *k, int read, int write)
{
    access_search s = {.read = read, .write = write, .fits = true};
    for (int p = 0; p < k->phase_count; p++) tile_walk(k, k->phases[p], note_access, &s);
    return s.fits && s.load.op && s.store.op && s.load.block == s.store.block && same_access(k, s.load.op, s.store.op);
}

/* ---- one array for two ---- */

typedef struct param_move {
    int from, to; /* accesses of `from` become accesses of `to`; `from` is gone */
} param_move;

static int moved(const param_move *m, int param)
{
    if (param == m->from) param = m->to;
    return param > m->from ? param - 1 : param;
}

static void move_op(tile_kernel *k, tile_block *b, tile_op *op, void *context)
{
    const param_move *m = context;
    if (touches_memory(op)) op->attr.access.array = moved(m, op->attr.access.array);
    if (op->code == OP_ARG || op->code == OP_DEFAULT || op->code == OP_EXTENT)
        op->attr.index = moved(m, op->attr.index);
}

static void remove_extents(tile_block *head, int param)
{
    int kept = 0;
    for (int i = 0; i < head->op_count; i++)
        if (head->ops[i]->code != OP_EXTENT || head->ops[i]->attr.index != param) head->ops[kept++] = head->ops[i];
    head->op_count = kept;
}

static void merge_params(tile_kernel *k, int read, int write)
{
    param_move m = {write, read};
    remove_extents(k->head, write);
    tile_walk(k, k->head, move_op, &m);
    for (int p = 0; p < k->phase_count; p++) tile_walk(k, k->phases[p], move_op, &m);
    k->params[read].kind = PARAM_INOUT;
    memmove(k->params + write, k->params + write + 1, sizeof(tile_param) * (size_t)(k->param_count - write - 1));
    k->param_count--;
    for (int p = 0; p < k->param_count; p++)
        for (int axis = 0; axis < k->params[p].rank; axis++)
            if (k->params[p].extent_param[axis] > write) k->params[p].extent_param[axis]--;
}

static bool same_view(const fuse_argument *a, const fuse_argument *b)
{
    if (a->rank != b->rank || a->offset != b->offset) return false;
    for (int axis = 0; axis < a->rank; axis++)
        if (a->extents[axis] != b->extents[axis] || (a->extents[axis] > 1 && a->strides[axis] != b->strides[axis]))
            return false;
    return true;
}

/* Both arrays are one parameter: of in and out arrays of equal shape, if the accesses allow it. */
static bool merge_arrays(tile_kernel *k, int read, int write)
{
    int from = argument_param(k, read), to = argument_param(k, write);
    const tile_param *x = &k->params[from], *y = &k->params[to];
    if (x->kind != PARAM_IN || y->kind != PARAM_OUT || x->elem != y->elem || y->has_initial) return false;
    for (int axis = 0; axis < x->rank; axis++)
        if (x->extent_param[axis] < 0 || x->extent_param[axis] != y->extent_param[axis]) return false;
    if (!reads_what_it_writes(k, from, to)) return false;
    merge_params(k, from, to);
    return true;
}

bool fuse_in_place(arena *memory, fuse_kernel *kernel, int read, int write)
{
    if (!same_view(&kernel->arguments[read], &kernel->arguments[write])) return false;
    if (kernel->over && kernel->over_read == read && kernel->over_write == write)
        kernel->kernel = kernel->over;
    else if (!merge_arrays(kernel->kernel, read, write))
        return false;
    kernel->over = NULL;
    fuse_argument *arguments = ARENA_ARRAY(memory, fuse_argument, kernel->argument_count);
    int count = 0;
    for (int i = 0; i < kernel->argument_count; i++)
        if (i != write) arguments[count++] = kernel->arguments[i == read ? write : i];
    kernel->arguments = arguments;
    kernel->argument_count = count;
    return true;
}

/* ---- copies ---- */

tile_kernel *fuse_copy_text(arena *memory, dtype elem, int rank, int block)
{
    text words = {0};
    const char *type = dtypes[elem].text;
    text_add(&words, "kernel copy\n");
    for (int array = 0; array < 2; array++) {
        text_print(&words, "  param %s %s %s [", array ? "y" : "x", array ? "out" : "in", type);
        for (int axis = 0; axis < rank; axis++) text_print(&words, "%sn%d", axis ? ", " : "", axis);
        text_add(&words, "]\n");
    }
    for (int axis = 0; axis < rank; axis++) text_print(&words, "  param n%d extent i64\n", axis);
    text_add(&words, "head {\n");
    for (int axis = 0; axis < rank; axis++) text_print(&words, "  %%%d = arg n%d : i64\n", axis + 1, axis);
    int last = rank - 1;
    if (rank == 1) {
        text_print(&words, "  %%110 = const %d : i64\n  %%111 = const %d : i64\n", block - 1, block);
        text_add(&words, "  %112 = add %1, %110 : i64\n  %113 = div %112, %111 : i64\n  launch 0 %113\n}\n");
    } else { /* one program for each row of the last axis */
        text_add(&words, "  %110 = const 1 : i64\n");
        for (int axis = 0; axis < last; axis++)
            text_print(&words, "  %%%d = mul %%%d, %%%d : i64\n", 111 + axis, 110 + axis, axis + 1);
        text_print(&words, "  launch 0 %%%d\n}\n", 110 + last);
    }
    text_add(&words, "phase {\n  %140 = program 0 : i64\n  %141 = const 1 : i64\n  %142 = const 0 : i64\n");
    text index = {0};
    char tile[48];
    if (rank == 1) {
        text_print(&words, "  %%143 = const %d : i64\n  %%144 = mul %%140, %%143 : i64\n", block);
        text_add(&index, "%144:%141 @0");
        snprintf(tile, sizeof(tile), "%s[%d]", type, block);
    } else {
        int rest = 140; /* what is left of the program's number */
        for (int axis = last - 1; axis >= 0; axis--) {
            text_print(&words, "  %%%d = arg n%d : i64\n", 150 + axis, axis);
            text_print(&words, "  %%%d = mod %%%d, %%%d : i64\n", 170 + axis, rest, 150 + axis);
            text_print(&words, "  %%%d = div %%%d, %%%d : i64\n", 190 + axis, rest, 150 + axis);
            rest = 190 + axis;
        }
        for (int axis = 0; axis < last; axis++) text_print(&index, "%%%d, ", 170 + axis);
        text_print(&words, "  %%210 = arg n%d : i64\n", last);
        text_add(&index, "%142:%141 @0");
        snprintf(tile, sizeof(tile), "%s[%%210]", type);
    }
    text_print(&words, "  %%211 = load x[%s] : %s\n  store y[%s] = %%211\n}\n", text_get(&index), tile,
               text_get(&index));
    tile_kernel *k = NULL;
    CHECK(tile_read(memory, "copy", text_get(&words), words.length, &k, NULL) == QN_OK);
    text_free(&words);
    text_free(&index);
    return k;
}
