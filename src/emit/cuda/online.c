/*
 * Maximum, exponentials and their sum over a row with one exchange between threads instead of two.
 *
 * In: a block in which m = max(a), z = sum(exp(a - m)), over one long axis. Out: the fold of m ends at the warp; the
 * exponentials are taken relative to that maximum of the warp, and the fold of z exchanges pairs (maximum, sum) and
 * scales each by exp(its maximum - the row's). Afterwards m and z are the row's, and exponentials that were kept are
 * multiplied by the scale of their warp when they are read. They take over the home of `a` where nothing else needs it,
 * so that a row in registers and shared memory is not held twice.
 * The results differ by rounding alone, so precise kernels are left as they are. A row of -inf alone gives NaN, as it
 * should; a warp of -inf alone counts nothing.
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/nest.h"

static const char *least_text(emitter *e)
{
    return cuda_number(e, DT_F32, fold_identity(FOLD_MAX, DT_F32));
}

void online_declare(emitter *e, value top)
{
    const online *o = online_find(e->cuda->spread, top);
    if (o && o->top == top) put(e, "float %s_warp, %s_scale;", emit_name(e, top), emit_name(e, top));
}

/* The maximum of the warp; where that is -inf exponentials are taken of the elements themselves, and are 0. */
static void end_top(cnest *n, const online *o, const cfold *f)
{
    emitter *e = n->e;
    const char *top = emit_name(e, o->top);
    cput(n, LEVEL_ROW, "%s_warp = %s(%s, 32, 0xffffffffu);", top, need(e, "lanes_fold_max_f32"), f->name);
    cput(n, LEVEL_ROW, "%s = %s_warp == %s ? 0.0f : %s_warp;", top, top, least_text(e), top);
}

static void end_sum(cnest *n, const online *o, const cfold *f)
{
    emitter *e = n->e;
    const team *team = &n->c->spread->team;
    const char *top = emit_name(e, o->top), *sum = f->name;
    const char *threads = team->threads ? arena_print(e->memory, "%d", team->threads) : "(int)blockDim.x";
    n->c->online_room = true;
    cput(n, LEVEL_ROW, "online_turn ^= 1;");
    cput(n, LEVEL_ROW, "%s = %s_warp;", top, top);
    if (team->kind == TEAM_CLUSTER) {
        cput(n, LEVEL_ROW, "cluster_meet(met);");
        cput(n, LEVEL_ROW, "%s(&%s, &%s, online_room[online_turn]);", need(e, "cluster_online"), top, sum);
    } else {
        cput(n, LEVEL_ROW, "%s(&%s, &%s, online_room[online_turn], %s);", need(e, "block_online"), top, sum, threads);
    }
    if (team->kind == TEAM_GRID) {
        n->c->fold_room = true;
        cput(n, LEVEL_ROW, "fold_turn ^= 1, online_turn ^= 1;");
        cput(n, LEVEL_ROW,
             "%s(&%s, &%s, team_parts + fold_turn * team_blocks, team_word, team_rank, team_blocks, "
             "online_room[online_turn]);",
             need(e, "grid_online"), top, sum);
    }
    cput(n, LEVEL_ROW, "%s_scale = %s(%s_warp, %s);", top, need(e, "online_scale"), top, top);
    cput(n, LEVEL_ROW, "if (%s == %s && %s > 0) %s = %s - %s;", top, least_text(e), extent_text(e, o->length), sum, top,
         top);
}

bool online_end(cnest *n, const cfold *f)
{
    const online *o = f->sink->kind == SINK_REDUCE ? online_find(n->c->spread, f->sink->result) : NULL;
    if (!o) return false;
    CHECK(n->c->spread->team.kind != TEAM_LANES && !n->view.layout->row_axes);
    if (f->sink->result == o->top)
        end_top(n, o, f);
    else
        end_sum(n, o, f);
    return true;
}

creg online_scaled(cnest *n, value v, creg r)
{
    const online *o = online_find(n->c->spread, v);
    if (!o || o->exponent != v) return r;
    return cuda_define(n, v, DT_F32, r.level,
                       arena_print(n->e->memory, "%s * %s_scale", r.words, emit_name(n->e, o->top)));
}
