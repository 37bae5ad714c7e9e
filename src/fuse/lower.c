/*
 * The frame of a kernel: kernel axes, parameters, head, phases, names. lower_term.c has what stands inside.
 * In: a trace and the outputs. Out: a verified tile kernel with what it is called with.
 * Invariants: every run-time extent is one value in each phase; strides and sizes are nowhere in the text.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/lower_parts.h"

#include <string.h>

/* ---- kernel axes ---- */

static void node_strides(const graph_node *x, const fuse_leaf *leaf, int64_t *strides, int64_t *offset)
{
    *offset = leaf->given ? leaf->offset : 0;
    strides_set_row_major(x->shape.rank, x->shape.extents, strides);
    if (leaf->given) memcpy(strides, leaf->strides, sizeof(int64_t) * (size_t)x->shape.rank);
}

affine lower_place(const lowering *l, node n, const index_map *m)
{
    const graph_node *x = graph_get(l->t->g, n);
    int64_t strides[GRAPH_RANK], offset;
    node_strides(x, &l->leaves[n], strides, &offset);
    affine place = index_linear(m, &x->shape, strides);
    place.constant += offset;
    return place;
}

/* Do all accesses of the node have this coordinate on axis k? Else one array serves them all if none of them takes it
 * for a kernel axis. */
static bool is_alike(const lowering *l, const term *x, int k)
{
    for (int i = 1; i < l->t->term_count; i++) {
        const term *y = &l->t->terms[i];
        if (y->kind == TERM_ACCESS && y->n == x->n && !affine_same(&y->map->axes[k], &x->map->axes[k])) return false;
    }
    return true;
}

bool lower_axis_is_inside(const lowering *l, const term *x, int k)
{
    const affine *a = &x->map->axes[k];
    const space *s = &l->t->space;
    int64_t high = 0;
    if (a->constant || affine_has_atoms(a) || l->whole) return false; /* whole axes: it need not be a stride */
    if (l->t->strip_axes && (affine_axes(a, l->t->atom_axes) & l->t->strip_axes || !is_alike(l, x, k))) return false;
    for (int i = 0; i < s->axis_count; i++) {
        if (a->factor[i] < 0) return false;
        high += a->factor[i] * (s->axes[i].extent - 1);
    }
    return high > 0 && high < graph_get(l->t->g, x->n)->shape.extents[k];
}

affine lower_inside_place(const lowering *l, const term *x)
{
    index_map inside = *x->map;
    for (int k = 0; k < inside.rank; k++)
        if (!lower_axis_is_inside(l, x, k)) inside.axes[k] = affine_constant(0);
    return lower_place(l, x->n, &inside);
}

/* Can axis `outer`, whose next inner axis is `inner`, go on counting where that ends? */
static bool form_joins(const space *s, const affine *form, int outer, int inner)
{
    return form->factor[outer] == form->factor[inner] * s->axes[inner].extent;
}

static bool terms_join(const lowering *l, int outer, int inner)
{
    const space *s = &l->t->space;
    for (int i = 1; i < l->t->term_count; i++) {
        const term *x = &l->t->terms[i];
        if (x->kind >= TERM_INDEX && x->kind <= TERM_QUOTIENT && !form_joins(s, &x->index, outer, inner)) return false;
        if (x->kind != TERM_ACCESS) continue;
        bool whole = !x->guarded; /* its place is one number; elements of a window differ from it by constants */
        for (int k = 0; k < x->map->rank; k++) whole &= !affine_has_atoms(&x->map->axes[k]);
        if (whole) {
            affine place = lower_place(l, x->n, x->map);
            if (!form_joins(s, &place, outer, inner)) return false;
            continue;
        }
        affine inside = lower_inside_place(l, x);
        if (!form_joins(s, &inside, outer, inner)) return false;
        for (int k = 0; k < x->map->rank; k++)
            if (!lower_axis_is_inside(l, x, k) && !form_joins(s, &x->map->axes[k], outer, inner)) return false;
    }
    return true;
}

static bool axes_join(const lowering *l, const lower_output *outputs, int output_count, int outer, int inner)
{
    for (int i = 0; i < output_count; i++) {
        affine place = index_linear(&outputs[i].map, &graph_get(l->t->g, outputs[i].n)->shape, NULL);
        if (!form_joins(&l->t->space, &place, outer, inner)) return false;
    }
    return terms_join(l, outer, inner);
}

static void collapse(lowering *l, const int *classes, const lower_output *outputs, int output_count)
{
    const space *s = &l->t->space;
    for (int n = 0; n < s->axis_count; n++) {
        int i = l->order[n], before = -1;
        for (int m = 0; m < n; m++)
            if (classes[l->order[m]] == classes[i]) before = l->order[m];
        bool whole = l->whole && (l->options->gpu || classes[i]); /* programs of a CPU need not be one axis */
        if (before >= 0 && (whole || axes_join(l, outputs, output_count, before, i))) {
            l->axis_of[i] = l->axis_of[before];
            l->extents[l->axis_of[i]] *= s->axes[i].extent;
        } else {
            l->axis_of[i] = l->axis_count++;
            l->extents[l->axis_of[i]] = s->axes[i].extent;
        }
        l->innermost[l->axis_of[i]] = i;
    }
}

static int param_add(lowering *l, tile_param param)
{
    param.facts.size_class = -1; /* nothing is known of it here */
    for (int i = 0; i < MAX_RANK && param.kind >= PARAM_SCALAR; i++) param.extent_param[i] = -1;
    if (l->k->param_count == LOWER_PARAMS) {
        l->why = "it would have too many parameters";
        return 0;
    }
    return tile_param_add(l->k, param);
}

lowering *lower_begin(const trace *t, const fuse_leaf *leaves, const fuse_options *options, const int *classes,
                      const lower_output *outputs, int output_count, const int *whole)
{
    lowering *l = ARENA_NEW(t->memory, lowering);
    l->memory = t->memory;
    l->t = t;
    l->leaves = leaves;
    l->options = options;
    l->k = tile_kernel_new(t->memory, "kernel", NULL);
    l->k->precise = options->mode != FUSE_FUSED;
    l->whole = whole != NULL;
    for (int i = 0; i < t->space.axis_count; i++) l->order[i] = whole ? whole[i] : i;
    collapse(l, classes, outputs, output_count);
    for (int i = 0; i < l->axis_count; i++) {
        tile_param extent = {.name = arena_print(l->memory, "n%d", i), .kind = PARAM_EXTENT, .elem = DT_I64};
        l->extent_param[i] = param_add(l, extent);
    }
    return l;
}

/* ---- ops ---- */

int lower_line(lowering *l, node n)
{
    if (!n) return 0;
    for (int i = 0; i < l->node_count; i++)
        if (l->nodes[i] == n) return i + 1;
    ARENA_PUSH(l->memory, l->nodes, l->node_count, l->node_capacity, n);
    return l->node_count;
}

void lower_note(lowering *l, tile_op *op, node n)
{
    op->line = lower_line(l, n);
    op->column = op->line ? 1 : 0;
}

value lower_op(lowering *l, tile_block *b, op_code code, dtype elem, const value *operands, int count, node n)
{
    tile_type type = count ? tile_type_of(l->k, operands[0]) : scalar_type(elem);
    for (int i = 1; i < count; i++) {
        tile_type other = tile_type_of(l->k, operands[i]), joint;
        CHECK(tile_broadcast(&type, &other, &joint));
        type = joint;
    }
    type.elem = elem;
    tile_op *op = tile_op_new(l->k, code, operands, count);
    lower_note(l, op, n);
    if (l->k->precise && dtype_is_float(count ? tile_type_of(l->k, operands[count - 1]).elem : DT_I64))
        op->flags |= F_PRECISE;
    value v = tile_result(l->k, op, type);
    tile_append(l->k, b, op);
    return v;
}

value lower_number(lowering *l, tile_block *b, dtype elem, number n)
{
    tile_op *op = tile_op_new(l->k, OP_CONST, NULL, 0);
    op->attr.number = dtype_is_float(elem) ? (number){.f = n.f} : (number){.i = n.i};
    value v = tile_result(l->k, op, scalar_type(elem));
    tile_append(l->k, b, op);
    return v;
}

value lower_integer(lowering *l, tile_block *b, int64_t n)
{
    return lower_number(l, b, DT_I64, (number){.i = n});
}

static value argument(lowering *l, tile_block *b, int param)
{
    tile_op *op = tile_op_new(l->k, OP_ARG, NULL, 0);
    op->attr.index = param;
    value v = tile_result(l->k, op, scalar_type(l->k->params[param].elem));
    l->k->values[v].name = l->k->params[param].name;
    tile_append(l->k, b, op);
    return v;
}

value lower_scalar_value(lowering *l, tile_block *b, int param)
{
    return argument(l, b, param);
}

int lower_number_param(lowering *l, dtype elem, number n)
{
    for (int p = 0; p < l->k->param_count; p++) {
        const tile_param *param = &l->k->params[p];
        if (param->kind == PARAM_SCALAR && param->elem == elem && !memcmp(&l->numbers[p], &n, sizeof(n))) return p;
    }
    tile_param scalar = {.name = arena_print(l->memory, "c%d", l->k->param_count), .kind = PARAM_SCALAR, .elem = elem};
    int p = param_add(l, scalar);
    l->numbers[p] = n;
    return p;
}

int lower_scalar(lowering *l, const char *name, int64_t n)
{
    int p = param_add(l, (tile_param){.name = name, .kind = PARAM_SCALAR, .elem = DT_I64});
    l->numbers[p] = (number){.i = n};
    return p;
}

value lower_program(lowering *l, int axis)
{
    tile_op *op = tile_op_new(l->k, OP_PROGRAM, NULL, 0);
    op->attr.index = axis;
    value v = tile_result(l->k, op, scalar_type(DT_I64));
    tile_append(l->k, l->phase, op);
    return v;
}

value lower_extent(lowering *l, int axis)
{
    return l->phase_extents[axis];
}

value lower_head_extent(lowering *l, int axis)
{
    if (!l->head_extents[axis]) l->head_extents[axis] = argument(l, l->k->head, l->extent_param[axis]);
    return l->head_extents[axis];
}

value lower_head_parts(lowering *l, int axis, int64_t block)
{
    tile_block *h = l->k->head;
    value n = lower_head_extent(l, axis);
    if (block == 1) return n;
    value size = lower_integer(l, h, block), rest = lower_integer(l, h, block - 1);
    value sum = lower_op(l, h, OP_ADD, DT_I64, (value[]){n, rest}, 2, 0);
    return lower_op(l, h, OP_DIV, DT_I64, (value[]){sum, size}, 2, 0);
}

lower_for lower_for_begin(lowering *l, value first, value limit, value step, const value *carried, int count)
{
    value operands[3 + LOWER_ARRAYS] = {first, limit, step};
    for (int i = 0; i < count; i++) operands[3 + i] = carried[i];
    lower_for loop = {.op = tile_op_new(l->k, OP_FOR, operands, 3 + count), .count = count};
    loop.body = loop.op->regions[0] = tile_block_new(l->k);
    loop.op->region_count = 1;
    loop.index = tile_block_arg(l->k, loop.body, scalar_type(DT_I64));
    for (int i = 0; i < count; i++) loop.carried[i] = tile_block_arg(l->k, loop.body, tile_type_of(l->k, carried[i]));
    return loop;
}

void lower_for_end(lowering *l, tile_block *b, lower_for *loop, const value *next, value *results)
{
    value given[LOWER_ARRAYS];
    for (int i = 0; i < loop->count; i++) {
        tile_type wanted = tile_type_of(l->k, loop->carried[i]), type = tile_type_of(l->k, next[i]);
        given[i] = next[i];
        if (tile_type_same(&wanted, &type)) continue;
        tile_op *op = tile_op_new(l->k, OP_BROADCAST, &next[i], 1);
        given[i] = tile_result(l->k, op, wanted);
        tile_append(l->k, loop->body, op);
    }
    tile_append(l->k, loop->body, tile_op_new(l->k, OP_YIELD, given, loop->count));
    for (int i = 0; i < loop->count; i++)
        results[i] = tile_result(l->k, loop->op, tile_type_of(l->k, loop->carried[i]));
    tile_append(l->k, b, loop->op);
}

lower_sums lower_sums_begin(lowering *l, tile_block *b, value first, value limit, value step, int levels, int64_t block,
                            const value *carried, const fold_kind *folds, int count)
{
    lower_sums loop = {0};
    value start[LOWER_ARRAYS] = {0};
    bool any = false;
    for (int i = 0; i < count; i++) {
        dtype elem = tile_type_of(l->k, carried[i]).elem;
        start[i] = carried[i];
        any |= loop.is_sum[i] = folds[i] == FOLD_SUM && dtype_is_float(elem) && elem != DT_F64;
    }
    loop.levels = any ? levels : 0;
    for (int i = 0; i < loop.levels; i++) {
        int64_t span = loop.levels - i == 2 ? block * block : block;
        value size = lower_op(l, b, OP_MUL, DT_I64, (value[]){step, lower_integer(l, b, span)}, 2, 0);
        lower_for *around = &loop.around[i];
        *around = lower_for_begin(l, first, limit, size, start, count);
        for (int k = 0; k < count; k++) start[k] = loop.is_sum[k] ? carried[k] : around->carried[k];
        b = around->body;
        first = around->index;
        value end = lower_op(l, b, OP_ADD, DT_I64, (value[]){first, size}, 2, 0);
        limit = lower_op(l, b, OP_MIN, DT_I64, (value[]){limit, end}, 2, 0);
    }
    loop.in = lower_for_begin(l, first, limit, step, start, count);
    return loop;
}

void lower_sums_end(lowering *l, tile_block *b, lower_sums *loop, const value *next, value *results)
{
    value now[LOWER_ARRAYS];
    int count = loop->in.count;
    lower_for_end(l, loop->levels ? loop->around[loop->levels - 1].body : b, &loop->in, next, results);
    for (int i = loop->levels - 1; i >= 0; i--) {
        lower_for *around = &loop->around[i];
        for (int k = 0; k < count; k++) {
            dtype elem = tile_type_of(l->k, results[k]).elem;
            now[k] = loop->is_sum[k]
                         ? lower_op(l, around->body, OP_ADD, elem, (value[]){around->carried[k], results[k]}, 2, 0)
                         : results[k];
        }
        lower_for_end(l, i ? loop->around[i - 1].body : b, around, now, results);
    }
}

void lower_phase_launch(lowering *l, int phase, const value *counts, int count)
{
    tile_op *op = tile_op_new(l->k, OP_LAUNCH, counts, count);
    op->attr.index = phase;
    tile_append(l->k, l->k->head, op);
}

void lower_phase(lowering *l)
{
    tile_kernel *k = l->k;
    tile_block **grown = ARENA_ARRAY(k->memory, tile_block *, k->phase_count + 1);
    if (k->phase_count) memcpy(grown, k->phases, sizeof(tile_block *) * (size_t)k->phase_count);
    k->phases = grown;
    l->phase = k->phases[k->phase_count++] = tile_block_new(k);
    for (int i = 0; i < l->axis_count; i++) l->phase_extents[i] = argument(l, l->phase, l->extent_param[i]);
}

/* ---- frames ---- */

frame *lower_frame(lowering *l, frame *outer, tile_block *block)
{
    frame *f = ARENA_NEW(l->memory, frame);
    f->outer = outer;
    f->block = block ? block : l->phase;
    f->values = ARENA_ARRAY(l->memory, value, l->t->term_count);
    if (outer) memcpy(f->axes, outer->axes, sizeof(f->axes));
    return f;
}

void frame_scalar(frame *f, int axis, value coordinate)
{
    f->axes[axis] = (lower_axis){.set = true, .start = coordinate};
}

void frame_tile(frame *f, int axis, int tile_axis, value start, bool outside)
{
    f->axes[axis] = (lower_axis){.set = true, .tile = true, .tile_axis = tile_axis, .start = start, .outside = outside};
}

tile_type frame_type(const frame *f, dtype elem, unsigned tile_axes)
{
    tile_type type = scalar_type(elem);
    if (!tile_axes) return type;
    type.rank = f->rank;
    for (int i = 0; i < f->rank; i++) type.dims[i] = tile_axes >> i & 1 ? f->dims[i] : 1;
    return type;
}

unsigned frame_axes(const lowering *l, const frame *f, unsigned space_axes)
{
    unsigned axes = 0;
    for (int i = 0; i < l->t->space.axis_count; i++) {
        const lower_axis *a = &f->axes[l->axis_of[i]];
        if (space_axes >> i & 1 && a->set && a->tile) axes |= 1u << a->tile_axis;
    }
    return axes;
}

/* ---- arrays ---- */

/* The parameter for these axes (kernel axes, or -1 with an extent of its own) of a base. */
int lower_array(lowering *l, param_kind kind, node base, const fuse_argument *view, const int *axes,
                const param_digits *digits)
{
    tile_kernel *k = l->k;
    for (int p = 0; p < k->param_count; p++) {
        if (!l->is_argument[p] || k->params[p].kind != kind || memcmp(&l->arguments[p], view, sizeof(*view))) continue;
        const param_digits *other = k->params[p].digits;
        bool same = !digits == !other && (!digits || !memcmp(digits, other, sizeof(*digits)));
        for (int i = 0; i < view->rank && same; i++)
            same = axes[i] < 0 ? k->params[p].extent_param[i] >= l->axis_count
                               : k->params[p].extent_param[i] == l->extent_param[axes[i]];
        if (same) return p;
    }
    int count = 0;
    for (int p = 0; p < k->param_count; p++) count += l->is_argument[p];
    if (count == LOWER_ARRAYS) {
        l->why = "it would touch too many arrays";
        return -1;
    }
    tile_param param = {.name = arena_print(l->memory, "%s%d", kind == PARAM_OUT ? "y" : "x", count),
                        .kind = kind,
                        .elem = graph_get(l->t->g, base)->elem,
                        .rank = view->rank,
                        .digits = digits};
    for (int i = 0; i < MAX_RANK; i++) param.extent_param[i] = -1;
    for (int i = 0; i < view->rank; i++) {
        if (axes[i] >= 0) {
            param.extent_param[i] = l->extent_param[axes[i]];
            continue;
        }
        tile_param extent = {
            .name = arena_print(l->memory, "m%d", k->param_count), .kind = PARAM_EXTENT, .elem = DT_I64};
        param.extent_param[i] = param_add(l, extent);
    }
    int p = param_add(l, param);
    l->arguments[p] = *view;
    l->is_argument[p] = true;
    return p;
}

int lower_scratch(lowering *l, const char *name, dtype elem, const value *extents, int rank)
{
    tile_param param = {.name = name, .kind = PARAM_SCRATCH, .elem = elem, .rank = rank};
    for (int i = 0; i < MAX_RANK; i++) param.extent_param[i] = -1;
    for (int i = 0; i < rank; i++) param.extents[i] = extents[i];
    int p = param_add(l, param);
    for (int i = 0; i < rank; i++) {
        tile_op *op = tile_op_new(l->k, OP_EXTENT, &extents[i], 1);
        op->attr.index = p;
        op->attr.axes[0] = i;
        op->attr.words = "parts";
        tile_append(l->k, l->k->head, op);
    }
    return p;
}

/* ---- the end ---- */

static const char *node_name(const graph_node *x)
{
    if (x->code == GRAPH_MAP) return ops[x->attr.map].text;
    return x->code == GRAPH_REDUCE ? fold_names[x->attr.fold] : graph_ops[x->code].text;
}

static const char *kernel_name(const lowering *l)
{
    text name = {0};
    const char *before = "";
    int parts = 0;
    for (int i = 0; i < l->node_count; i++) {
        const graph_node *x = graph_get(l->t->g, l->nodes[i]);
        const char *word = node_name(x);
        bool quiet = x->code == GRAPH_MAP && x->attr.map == OP_CONVERT && l->node_count > 1;
        if (quiet || !strcmp(word, before)) continue;
        if (parts == 6) {
            text_add(&name, "_more");
            break;
        }
        text_print(&name, "%s%s", parts++ ? "_" : "", word);
        before = word;
    }
    if (!parts) text_add(&name, "copy");
    if (parts < 2) text_add(&name, "_kernel");
    const char *words = arena_copy_text(l->memory, text_get(&name), name.length);
    text_free(&name);
    return words;
}

static void comment_lines(lowering *l)
{
    l->k->source_line_count = l->node_count;
    l->k->source_lines = ARENA_ARRAY(l->memory, const char *, l->node_count + 1);
    for (int i = 0; i < l->node_count; i++) {
        const graph_node *x = graph_get(l->t->g, l->nodes[i]);
        const char *name = node_name(x), *label = x->label && strcmp(x->label, name) ? x->label : NULL;
        text words = {0};
        text_print(&words, "%s%s%s", label ? label : "", label ? ": " : "", name);
        if (x->site.file) text_print(&words, " (%s:%d)", x->site.file, x->site.line);
        l->k->source_lines[i] = arena_copy_text(l->memory, text_get(&words), words.length);
        text_free(&words);
    }
}

/* Extents that no array has are scalars. */
static void settle_extents(lowering *l)
{
    tile_kernel *k = l->k;
    for (int i = 0; i < l->axis_count; i++) {
        int q = l->extent_param[i];
        bool bound = false;
        for (int p = 0; p < k->param_count && !bound; p++)
            for (int axis = 0; l->is_argument[p] && axis < k->params[p].rank; axis++)
                bound |= k->params[p].extent_param[axis] == q;
        if (bound) continue;
        k->params[q].kind = PARAM_SCALAR;
        l->numbers[q] = (number){.i = l->extents[i]};
    }
}

qn_status lower_finish(lowering *l, fuse_kernel *out, qn_error *error)
{
    tile_kernel *k = l->k;
    if (l->why) return error_set(error, QN_FAILED, "a fused kernel cannot be built: %s", l->why);
    settle_extents(l);
    comment_lines(l);
    k->name = kernel_name(l);
    out->name = k->name;
    out->kernel = k;
    out->arguments = ARENA_ARRAY(l->memory, fuse_argument, k->param_count);
    out->scalars = ARENA_ARRAY(l->memory, number, k->param_count);
    out->argument_count = out->scalar_count = 0;
    for (int p = 0; p < k->param_count; p++) {
        if (l->is_argument[p]) out->arguments[out->argument_count++] = l->arguments[p];
        if (k->params[p].kind == PARAM_SCALAR) out->scalars[out->scalar_count++] = l->numbers[p];
    }
    return tile_verify(k, error);
}
