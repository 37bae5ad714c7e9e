/*
 * Folds inside a pass. In: a fold's operand for each position. Out: a register of each thread, then one result for the
 * row: over the lanes by shuffles, over the warps through shared memory, over the blocks of a cluster or of the grid
 * as far as the team reaches. All threads of a row hold the result.
 * SPDX-License-Identifier: MIT
 */
#include "emit/emit_cuda_nest.h"

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

void cuda_fold_add(cnest *n, const cfold *f, creg r)
{
    emitter *e = n->e;
    const sink *s = f->sink;
    int level = n->has_inner ? LEVEL_ELEMENT : LEVEL_ROW;
    const char *x = creg_words(r);
    if (is_position(s)) {
        bool most = s->op->attr.fold == FOLD_ARGMAX, real = dtype_is_float(f->elem);
        if (r.truth || strpbrk(x, "[(")) x = cuda_define(n, 0, f->elem, level, x).words;
        const char *unordered =
            real ? arena_print(e->memory, " || (%s != %s && %s == %s)", x, x, f->name, f->name) : "";
        const char *in = n->has_inner && n->in ? "in && (" : "";
        cput(n, level, "if (%s%s < 0 || %s %s %s%s%s) { %s = %s; %s = %s; }", in, f->position, x, most ? ">" : "<",
             f->name, unordered, *in ? ")" : "", f->name, x, f->position, fold_position(n, s));
        return;
    }
    if (!n->has_inner) {
        cput(n, level, "%s = %s;", f->name, x);
        return;
    }
    if (n->in && !fold_is_guarded(n))
        x = arena_print(e->memory, "(in ? %s : %s)", x,
                        cuda_number(e, f->elem, fold_identity(s->op->attr.fold, f->elem)));
    cput(n, level, "%s = %s;", f->name, cuda_fold_step(e, s->op->attr.fold, f->elem, f->name, x));
}

/* Threads of one row that lie apart: through shared memory, each thread then folds all of them. */
static void fold_columns(cnest *n, const cfold *f)
{
    emitter *e = n->e;
    const sink *s = f->sink;
    int rows = n->layout->inner_threads;
    if (n->c->team.threads == rows) return;
    n->c->column_room = true;
    const char *type = cuda_register_type(f->elem);
    const char *base = n->c->team.kind == TEAM_LANES ? "threadIdx.x - thread" : "0";
    cput(n, LEVEL_ROW, "{");
    cput(n, LEVEL_ROW, "    ((%s *)column_room)[threadIdx.x] = %s;", type, f->name);
    if (f->position) cput(n, LEVEL_ROW, "    column_places[threadIdx.x] = %s;", f->position);
    cput(n, LEVEL_ROW, "    %s", barrier_text(e));
    cput(n, LEVEL_ROW, "    for (int k = 0; k < part_threads; k++) {");
    cput(n, LEVEL_ROW, "        const int from = %s + k * %d + part;", base, rows);
    cput(n, LEVEL_ROW, "        const %s other = ((%s *)column_room)[from];", type, type);
    if (f->position) {
        bool most = s->op->attr.fold == FOLD_ARGMAX;
        cput(n, LEVEL_ROW, "        const long place = column_places[from];");
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
    const team *team = &n->c->team;
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

/* The place of the result in the loops: the axes of the operand that are left. */
static place result_place(const emitter *e, const sink *s)
{
    tile_type type = tile_type_of(e->k, s->v), result = tile_type_of(e->k, s->result);
    place own = place_own(&type), at = place_nowhere();
    for (int i = 0; i < result.rank; i++)
        if (result.dims[i] != 1) at.axis[i] = own.axis[i];
    return at;
}

static void end_reduce(cnest *n, const cfold *f)
{
    emitter *e = n->e;
    const sink *s = f->sink;
    tile_type result = tile_type_of(e->k, s->result);
    const char *words = f->position ? f->position : f->name;
    bool half = f->elem == DT_F16 || f->elem == DT_BF16;
    if (!f->position && half && (s->op->attr.fold == FOLD_SUM || s->op->attr.fold == FOLD_PROD))
        words = arena_print(e->memory, "%s(%s)", need(e, "convert_f32_%s", memory_name(f->elem)), f->name);
    if (!result.rank) {
        const online *o = online_find(n->c, s->result);
        if (!o || o->top != s->result) cput(n, LEVEL_ROW, "%s = %s;", emit_name(e, s->result), words);
        return;
    }
    place at = result_place(e, s);
    creg r = cuda_define(n, s->result, result.elem, LEVEL_ROW, words);
    cuda_remember(n, s->result, at, r);
    if (!e->force[s->result]) return;
    bool inner = n->has_inner;
    n->has_inner = false;
    int level;
    if (n->c->deciding) (void)home_element(n, s->result, at, true, &level);
    caddress a = cuda_buffer(n, s->result, at);
    hazard_buffer(e, buffer_for(e, s->result), true);
    a.level = LEVEL_ROW;
    cuda_store(n, a, r);
    n->has_inner = inner;
}

void cuda_fold_end(cnest *n, const cfold *f)
{
    emitter *e = n->e;
    if (f->sink->kind == SINK_ASSERT) {
        cuda_failure(e, &n->level[LEVEL_ROW], f->sink->op->line, f->name, false);
        return;
    }
    if (n->has_inner && !online_end(n, f)) {
        const pass_layout *l = n->layout;
        bool lanes = n->c->team.kind == TEAM_LANES;
        if (l->row_fast)
            fold_columns(n, f);
        else if (!l->inner_threads)
            fold_team(n, f);
        else if (l->inner_threads > 1)
            fold_lanes_of(n, f, arena_print(e->memory, "%d", l->inner_threads), lanes ? "team_mask" : "0xffffffffu");
    }
    end_reduce(n, f);
}
