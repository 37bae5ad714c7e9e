/*
 * Folds inside a pass. In: a fold's operand for each position. Out: a register of each thread, then one result for the
 * row: over the lanes by shuffles, over the warps through shared memory, over the blocks of a cluster or of the grid
 * as far as the team reaches. All threads of a row hold the result.
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/nest.h"

#include <string.h>

/* Bools fold with `any` and `all`, whatever the fold is called. */
static const char *fold_name(fold_kind fold, dtype t)
{
    if (t != DT_BOOL) return fold_names[fold];
    return fold == FOLD_ALL || fold == FOLD_MIN || fold == FOLD_PROD ? "all" : "any";
}

cfold cuda_fold_begin(cnest *n, const sink *s)
{
    emitter *e = n->e;
    cfold f = {.sink = s, .elem = tile_type_of(e->k, s->v).elem};
    f.name = fresh_name(e, s->kind == SINK_REDUCE ? s->result : 0);
    if (s->kind == SINK_ASSERT) {
        cput(n, LEVEL_ROW, "int %s = 0;", f.name);
        return f;
    }
    cput(n, LEVEL_ROW, "%s %s = %s;", cuda_register_type(f.elem), f.name,
         cuda_number(e, f.elem, fold_identity(s->op->attr.fold, f.elem)));
    if (is_position(s)) {
        f.position = fresh_name(e, 0);
        cput(n, LEVEL_ROW, "long %s = -1;", f.position);
    }
    return f;
}

void cuda_fold_pairs(cnest *n, cfold *f)
{
    emitter *e = n->e;
    const sink *s = f->sink;
    const tile_op *op = tile_def(e->k, s->v);
    value v = op && op->code == OP_CONVERT && value_is_virtual(e->survey, s->v) ? op->operands[0] : s->v;
    tile_type type = tile_type_of(e->k, v);
    fold_kind fold = s->op->attr.fold;
    int number = buffer_for(e->survey, v);
    bool bf16 = type.elem == DT_BF16, most = fold == FOLD_MAX;
    const char *none = bf16 ? most ? "0xff80ff80u" : "0x7f807f80u" : most ? "0xfc00fc00u" : "0x7c007c00u";
    f->pairs = fresh_name(e, 0);
    cput(n, LEVEL_ROW, "unsigned %s = %s;", f->pairs, none);
    const char *words = home_words(n, number), *step = need(e, "pairs_%s_%s", fold_names[fold], memory_name(type.elem));
    cput(n, LEVEL_CHUNK, "%sfor (int w = 0; w < %d; w++) %s = %s(%s, %s[w]);",
         n->in ? arena_print(e->memory, "if (%s) ", n->in) : "", n->view.layout->vector / 2, f->pairs, step, f->pairs,
         words);
}

/* Where an element is: along the one folded axis, or over the whole tile in order. */
static const char *fold_position(cnest *n, const sink *s)
{
    emitter *e = n->e;
    tile_type type = tile_type_of(e->k, s->v);
    place own = place_own(&type);
    unsigned folded = s->op->attr.axis_set;
    bool one = folded && !(folded & (folded - 1));
    const char *words = NULL;
    for (int i = 0; i < type.rank; i++) {
        if (one && !(folded >> i & 1)) continue;
        const char *at = own.axis[i] == NO_AXIS ? NULL : position_text(n, own.axis[i]);
        if (words && type.dims[i] != 1)
            words = arena_print(e->memory, "(%s) * %s", words, extent_text(e, type.dims[i]));
        if (at) words = words ? arena_print(e->memory, "%s + %s", words, at) : arena_print(e->memory, "(long)%s", at);
    }
    return words ? words : "0";
}

/* Is it 0 at positions that do not exist? Loads give 0 there. shape: of the fold's operand. */
static bool is_zero_outside(const emitter *e, value v, const tile_type *shape, int *ways)
{
    const tile_op *op = tile_def(e->k, v);
    tile_type type = tile_type_of(e->k, v);
    if (!op || !tile_shape_same(&type, shape) || --*ways < 0) return false;
    if (op->code == OP_LOAD) return true;
    if (!value_is_virtual(e->survey, v)) return false;
    switch (op->code) {
    case OP_CONVERT:
    case OP_NEG: return is_zero_outside(e, op->operands[0], shape, ways);
    case OP_ADD:
    case OP_SUB:
    case OP_MUL:
        return is_zero_outside(e, op->operands[0], shape, ways) && is_zero_outside(e, op->operands[1], shape, ways);
    default: return false;
    }
}

void cuda_fold_add(cnest *n, const cfold *f, creg r)
{
    emitter *e = n->e;
    const sink *s = f->sink;
    int level = n->view.has_inner ? LEVEL_ELEMENT : LEVEL_ROW;
    const char *x = r.words;
    if (is_position(s)) {
        bool most = s->op->attr.fold == FOLD_ARGMAX, real = dtype_is_float(f->elem);
        if (r.form != REG_NAME) x = cuda_define(n, 0, f->elem, level, x).words;
        /* NaN is the extreme, and of equal ones the first stays: two comparisons, where a NaN fails both. */
        const char *open = real ? arena_print(e->memory, "%s == %s && ", f->name, f->name) : "";
        const char *in = n->view.has_inner && n->in ? arena_print(e->memory, "%s && ", element_in(n)) : "";
        cput(n, level, "if (%s%s(%s < 0 || !(%s %s %s))) { %s = %s; %s = %s; }", in, open, f->position, x,
             most ? "<=" : ">=", f->name, f->name, x, f->position, fold_position(n, s));
        return;
    }
    if (!n->view.has_inner) {
        cput(n, level, "%s = %s;", f->name, x);
        return;
    }
    tile_type type = tile_type_of(e->k, s->v);
    int ways = TILE_MOST_WAYS;
    bool plain = s->op->attr.fold == FOLD_SUM && is_zero_outside(e, s->v, &type, &ways);
    if (n->loose || (n->in && !fold_is_guarded(n) && !plain))
        x = arena_print(e->memory, "(%s ? %s : %s)", element_in(n), x,
                        cuda_number(e, f->elem, fold_identity(s->op->attr.fold, f->elem)));
    cput(n, level, "%s = %s;", f->name, cuda_fold_step(e, s->op->attr.fold, f->elem, f->name, x));
}

/* Few rows side by side: each warp has several threads of a row, which exchange by shuffles before the warps do. */
static void fold_warps_of_columns(cnest *n, const cfold *f, int rows)
{
    emitter *e = n->e;
    fold_kind fold = f->sink->op->attr.fold;
    const char *t = register_name(f->elem), *type = cuda_register_type(f->elem);
    bool most = fold == FOLD_ARGMAX;
    cput(n, LEVEL_ROW, "{");
    if (f->position)
        cput(n, LEVEL_ROW, "    %s(&%s, &%s, %d);", need(e, "rows_best_%s_%s", most ? "max" : "min", t), f->name,
             f->position, rows);
    else
        cput(n, LEVEL_ROW, "    %s = %s(%s, %d);", f->name, need(e, "rows_fold_%s_%s", fold_name(fold, f->elem), t),
             f->name, rows);
    cput(n, LEVEL_ROW, "    if ((threadIdx.x & 31) < %d) {", rows);
    cput(n, LEVEL_ROW, "        ((%s *)column_room)[threadIdx.x / 32 * %d + part] = %s;", type, rows, f->name);
    if (f->position) cput(n, LEVEL_ROW, "        column_places[threadIdx.x / 32 * %d + part] = %s;", rows, f->position);
    cput(n, LEVEL_ROW, "    }");
    cput(n, LEVEL_ROW, "    %s", barrier_text(e));
    cput(n, LEVEL_ROW, "    %s = ((%s *)column_room)[part];", f->name, type);
    if (f->position) cput(n, LEVEL_ROW, "    %s = column_places[part];", f->position);
    cput(n, LEVEL_ROW, "    for (int k = 1; k < (int)blockDim.x / 32; k++) {");
    cput(n, LEVEL_ROW, "        const %s other = ((%s *)column_room)[k * %d + part];", type, type, rows);
    if (f->position) {
        cput(n, LEVEL_ROW, "        const long place = column_places[k * %d + part];", rows);
        cput(n, LEVEL_ROW, "        if (%s(other, place, %s, %s)) %s = other, %s = place;",
             need(e, "beats_%s_%s", most ? "max" : "min", t), f->name, f->position, f->name, f->position);
    } else {
        cput(n, LEVEL_ROW, "        %s = %s;", f->name, cuda_fold_step(e, fold, f->elem, f->name, "other"));
    }
    cput(n, LEVEL_ROW, "    }");
    cput(n, LEVEL_ROW, "    %s", barrier_text(e));
    cput(n, LEVEL_ROW, "}");
}

/* Threads of one row that lie apart: through shared memory, each thread then folds all of them. */
static void fold_columns(cnest *n, const cfold *f)
{
    emitter *e = n->e;
    const sink *s = f->sink;
    int rows = n->view.layout->inner_threads;
    if (n->c->spread->team.threads == rows) return;
    n->c->column_room = true;
    const char *type = cuda_register_type(f->elem);
    if (rows < 32 && n->c->spread->team.kind == TEAM_BLOCK) {
        fold_warps_of_columns(n, f, rows);
        return;
    }
    /* Several teams go their own ways: each has its own words, whatever type it puts there. */
    bool several = n->c->spread->team.kind == TEAM_LANES;
    const char *own = several ? " + (threadIdx.x - thread)" : "", *here = several ? "thread" : "threadIdx.x";
    cput(n, LEVEL_ROW, "{");
    cput(n, LEVEL_ROW, "    ((%s *)(column_room%s))[%s] = %s;", type, own, here, f->name);
    if (f->position) cput(n, LEVEL_ROW, "    (column_places%s)[%s] = %s;", own, here, f->position);
    cput(n, LEVEL_ROW, "    %s", barrier_text(e));
    cput(n, LEVEL_ROW, "    for (int k = 0; k < part_threads; k++) {");
    cput(n, LEVEL_ROW, "        const int from = k * %d + part;", rows);
    cput(n, LEVEL_ROW, "        const %s other = ((%s *)(column_room%s))[from];", type, type, own);
    if (f->position) {
        bool most = s->op->attr.fold == FOLD_ARGMAX;
        cput(n, LEVEL_ROW, "        const long place = (column_places%s)[from];", own);
        cput(n, LEVEL_ROW, "        const int nan = other != other, mine = %s != %s;", f->name, f->name);
        cput(
            n, LEVEL_ROW,
            "        if (place >= 0 && (%s < 0 || (nan && !mine) || (!mine && other %s %s) || ((other == %s || (nan && "
            "mine)) && place < %s))) {",
            f->position, most ? ">" : "<", f->name, f->name, f->position);
        cput(n, LEVEL_ROW, "            %s = other; %s = place;", f->name, f->position);
        cput(n, LEVEL_ROW, "        }");
    } else {
        cput(n, LEVEL_ROW, "        if (k != part_thread) %s = %s;", f->name,
             cuda_fold_step(e, s->op->attr.fold, f->elem, f->name, "other"));
    }
    cput(n, LEVEL_ROW, "    }");
    cput(n, LEVEL_ROW, "    %s", barrier_text(e));
    cput(n, LEVEL_ROW, "}");
}

static void fold_lanes_of(cnest *n, const cfold *f, const char *lanes, const char *mask)
{
    emitter *e = n->e;
    fold_kind fold = f->sink->op->attr.fold;
    const char *t = register_name(f->elem);
    if (f->position)
        cput(n, LEVEL_ROW, "%s(&%s, &%s, %s, %s);", need(e, "lanes_best_%s_%s", fold == FOLD_ARGMAX ? "max" : "min", t),
             f->name, f->position, lanes, mask);
    else
        cput(n, LEVEL_ROW, "%s = %s(%s, %s, %s);", f->name, need(e, "lanes_fold_%s_%s", fold_name(fold, f->elem), t),
             f->name, lanes, mask);
}

static void fold_team(cnest *n, const cfold *f)
{
    emitter *e = n->e;
    fold_kind fold = f->sink->op->attr.fold;
    const team *team = &n->c->spread->team;
    const char *t = register_name(f->elem), *name = fold_name(fold, f->elem);
    const char *threads = team->threads ? arena_print(e->memory, "%d", team->threads) : "threads";
    if (team->kind == TEAM_LANES) {
        if (team->threads != 1) fold_lanes_of(n, f, threads, "team_mask");
        return;
    }
    if (team->kind != TEAM_BLOCK) threads = "(int)blockDim.x";
    n->c->fold_room = true;
    cput(n, LEVEL_ROW, "fold_turn ^= 1;");
    if (f->position) {
        cput(n, LEVEL_ROW, "%s(&%s, &%s, fold_room[fold_turn], %s);",
             need(e, "block_best_%s_%s", fold == FOLD_ARGMAX ? "max" : "min", t), f->name, f->position, threads);
        return;
    }
    cput(n, LEVEL_ROW, "%s = %s(%s, fold_room[fold_turn], %s);", f->name, need(e, "block_fold_%s_%s", name, t), f->name,
         threads);
    if (team->kind == TEAM_CLUSTER) {
        cput(n, LEVEL_ROW, "cluster_meet(met);");
        cput(n, LEVEL_ROW, "%s = %s(%s, fold_room[fold_turn] + 32);", f->name, need(e, "cluster_fold_%s_%s", name, t),
             f->name);
    }
    if (team->kind == TEAM_GRID)
        cput(n, LEVEL_ROW,
             "%s = %s(%s, team_parts + fold_turn * team_blocks, team_word, team_rank, team_blocks, "
             "fold_room[fold_turn] + 32);",
             f->name, need(e, "grid_fold_%s_%s", name, t), f->name);
}

static void end_reduce(cnest *n, const cfold *f)
{
    emitter *e = n->e;
    const sink *s = f->sink;
    tile_type result = tile_type_of(e->k, s->result);
    const char *words = f->position ? f->position : f->name;
    bool half = dtype_is_narrow(f->elem);
    if (!f->position && half && (s->op->attr.fold == FOLD_SUM || s->op->attr.fold == FOLD_PROD))
        words = arena_print(e->memory, "%s(%s)", need(e, "convert_f32_%s", memory_name(f->elem)), f->name);
    if (!result.rank) {
        const online *o = online_find(n->c->spread, s->result);
        if (!o || o->top != s->result) cput(n, LEVEL_ROW, "%s = %s;", emit_name(e, s->result), words);
        return;
    }
    place at = fold_result_place(e->survey, s);
    creg r = cuda_define(n, s->result, result.elem, LEVEL_ROW, words);
    cuda_remember(n, s->result, at, r);
    if (!e->survey->force[s->result]) return;
    bool inner = n->view.has_inner;
    n->view.has_inner = false;
    caddress a = cuda_buffer(n, s->result, at);
    a.level = LEVEL_ROW;
    cuda_store(n, a, r);
    n->view.has_inner = inner;
}

static void end_pairs(cnest *n, const cfold *f)
{
    if (!f->pairs) return;
    const tile_op *op = tile_def(n->e->k, f->sink->v);
    dtype t = f->elem == DT_F32 ? tile_type_of(n->e->k, op->operands[0]).elem : f->elem;
    cput(n, LEVEL_ROW, "%s = pairs_last_%s_%s(%s);", f->name, fold_names[f->sink->op->attr.fold], memory_name(t),
         f->pairs);
}

void cuda_folds_join(cnest *n, cfold *folds, const int *members, int found)
{
    emitter *e = n->e;
    const cfold *first = &folds[members[0]];
    const char *t = register_name(first->elem), *name = fold_name(first->sink->op->attr.fold, first->elem);
    const char *all = fresh_name(e, 0), *list = first->name;
    for (int k = 0; k < found; k++) {
        end_pairs(n, &folds[members[k]]);
        if (k) list = cjoin(e, list, ",", folds[members[k]].name);
    }
    n->c->fold_room = true;
    cput(n, LEVEL_ROW, "%s %s[%d] = {%s};", cuda_register_type(first->elem), all, found, list);
    cput(n, LEVEL_ROW, "fold_turn ^= 1;");
    cput(n, LEVEL_ROW, "%s<%d>(%s, fold_room[fold_turn], %s);", need(e, "block_folds_%s_%s", name, t), found, all,
         n->c->spread->team.threads ? arena_print(e->memory, "%d", n->c->spread->team.threads) : "threads");
    for (int k = 0; k < found; k++) {
        cput(n, LEVEL_ROW, "%s = %s[%d];", folds[members[k]].name, all, k);
        folds[members[k]].joined = true;
    }
}

void cuda_fold_end(cnest *n, const cfold *f)
{
    emitter *e = n->e;
    if (!f->joined) end_pairs(n, f);
    if (f->sink->kind == SINK_ASSERT) {
        cuda_failure(e, &n->level[LEVEL_ROW], f->sink->op->line, f->name, false);
        return;
    }
    if (n->view.has_inner && !f->joined && !online_end(n, f)) {
        const pass_layout *l = n->view.layout;
        bool lanes = n->c->spread->team.kind == TEAM_LANES;
        if (l->row_fast)
            fold_columns(n, f);
        else if (!l->inner_threads)
            fold_team(n, f);
        else if (l->inner_threads > 1)
            fold_lanes_of(n, f, arena_print(e->memory, "%d", l->inner_threads), lanes ? "team_mask" : "0xffffffffu");
    }
    end_reduce(n, f);
}
