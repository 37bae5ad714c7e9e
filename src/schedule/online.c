/*
 * Which maxima and sums of exponentials are folded with one exchange between threads instead of two (cuda/online.c prints
 * how). In: a block in which m = max(a), z = sum(exp(a - m)), over one long axis, and its plan. Out: a list of them. The
 * exponentials take over the home of `a` where nothing else needs it, so that a row in registers and shared memory is not
 * held twice. The results differ by rounding alone, so precise kernels are left as they are.
 * SPDX-License-Identifier: MIT
 */
#include "schedule/view.h"

enum { SHORT_ROW = 16384, MOST_ONLINE = 8 }; /* shorter ones gain nothing, and have no register to spare */

/* ---- which ---- */

static value through_shapes(const survey *e, value v)
{
    for (;;) {
        const tile_op *op = tile_def(e->k, v);
        if (!op || (op->code != OP_BROADCAST && op->code != OP_RESHAPE)) return v;
        v = op->operands[0];
    }
}

static const tile_op *fold_of(const survey *e, value v, fold_kind fold)
{
    const tile_op *op = tile_def(e->k, v);
    bool right = op && op->code == OP_REDUCE && op->attr.fold == fold && !tile_type_of(e->k, v).rank &&
                 tile_type_of(e->k, v).elem == DT_F32;
    return right ? op : NULL;
}

static bool match(const survey *e, value sum, online *out)
{
    const tile_op *add = fold_of(e, sum, FOLD_SUM);
    const tile_op *exponent = add ? tile_def(e->k, add->operands[0]) : NULL;
    if (!exponent || exponent->code != OP_EXP || exponent->flags & F_PRECISE) return false;
    const tile_op *less = tile_def(e->k, exponent->operands[0]);
    if (!less || less->code != OP_SUB || less->flags & F_PRECISE) return false;
    value from = less->operands[0], top = through_shapes(e, less->operands[1]);
    const tile_op *most = fold_of(e, top, FOLD_MAX);
    if (!most || most->operands[0] != from) return false;
    tile_type type = tile_type_of(e->k, from);
    int64_t loops[MAX_RANK];
    if (loops_of(&type, loops) != 1 || dimension_bound(e, loops[0]) <= SHORT_ROW) return false;
    const tile_op *load = tile_def(e->k, from);
    *out = (online){.top = top, .sum = sum, .exponent = add->operands[0], .from = from, .length = loops[0]};
    out->takes_home = load && load->code == OP_LOAD && e->uses[from] == 2 && e->uses[exponent->operands[0]] == 1 &&
                      e->uses[out->exponent] > 1;
    return true;
}

void online_mark(survey *e, const tile_block *b)
{
    spread *c = e->spread;
    c->online = NULL; /* the caller has those of the block around this one */
    c->online_count = 0;
    if (e->k->precise) return;
    for (int i = 0; i < b->op_count && c->online_count < MOST_ONLINE; i++) {
        const tile_op *op = b->ops[i];
        online found;
        if (op->code != OP_REDUCE || !match(e, op->results[0], &found)) continue;
        if (!c->online) c->online = ARENA_ARRAY(e->memory, online, MOST_ONLINE);
        found.was_kept = e->force[found.exponent];
        if (found.takes_home) e->force[found.exponent] = true;
        c->online[c->online_count++] = found;
    }
}

static const sink *sink_of(const item *it, value result)
{
    const group *g = it->group;
    if (it->kind != ITEM_GROUP || g->outer != 0 || g->pass_count != 1) return NULL;
    for (int i = 0; i < g->passes[0].sink_count; i++)
        if (g->passes[0].sinks[i].kind == SINK_REDUCE && g->passes[0].sinks[i].result == result)
            return &g->passes[0].sinks[i];
    return NULL;
}

static bool is_used(const tile_op *op, value v)
{
    for (int i = 0; i < op->operand_count; i++)
        if (op->operands[i] == v) return true;
    return false;
}

/* Between the folds, and beside the second, nothing may ask for the row's maximum. */
static bool fits(const survey *e, const plan *p, const online *o)
{
    int first = 0, last;
    while (first < p->count && !sink_of(&p->items[first], o->top)) first++;
    for (last = first + 1; last < p->count && !sink_of(&p->items[last], o->sum); last++)
        if (p->items[last].kind != ITEM_SCALAR || is_used(p->items[last].op, o->top)) return false;
    if (last >= p->count) return false;
    const pass_nest *pass = &p->items[last].group->passes[0];
    for (int i = 0; i < pass->sink_count; i++) {
        const sink *s = &pass->sinks[i];
        bool own = (s->kind == SINK_REDUCE && s->result == o->sum) || (s->kind == SINK_KEEP && s->v == o->exponent);
        if (!own) return false;
    }
    return !o->takes_home || e->force[o->from];
}

bool online_check(survey *e, const plan *p)
{
    spread *c = e->spread;
    int kept = 0;
    bool good = true;
    for (int i = 0; i < c->online_count; i++) {
        online o = c->online[i];
        if (fits(e, p, &o)) {
            c->online[kept++] = o;
            if (o.takes_home) e->buffer_of[o.exponent] = buffer_for(e, o.from);
        } else if (o.takes_home && !o.was_kept) {
            e->force[o.exponent] = good = false; /* to be planned again */
        }
    }
    c->online_count = kept;
    return good;
}

const online *online_find(const spread *c, value v)
{
    for (int i = 0; i < c->online_count; i++)
        if (c->online[i].top == v || c->online[i].sum == v || c->online[i].exponent == v) return &c->online[i];
    return NULL;
}

const online *online_is_scaled(const nest_view *n, value v, const tile_op *op)
{
    value exponent = op->operands[0];
    const online *o = op->code == OP_MUL || op->code == OP_DIV ? online_find(n->spread, exponent) : NULL;
    if (!o || o->exponent != exponent || value_is_virtual(n->survey, exponent) || op->flags & F_PRECISE ||
        !n->survey->uses[v])
        return NULL;
    for (int i = 0; i < n->met_count; i++)
        if (n->met[i].v == exponent) return NULL; /* it is there already */
    return o;
}
