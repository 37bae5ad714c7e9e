/*
 * What cells will take. In: a cell, as it is. Out: its estimate, made once for each shape of the cell: of a loop by its
 * terms, of a product by its operations and bytes, of what stands alone by its bytes. And the memory that kernels of one op
 * each need, beside which that of the plan is held.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/cost.h"
#include "fuse/plan.h"

static double cell_bytes(const planner *p, const cell *c)
{
    double bytes = 0;
    for (int i = 0; i < c->g.write_count; i++) bytes += (double)graph_size_bytes(p->g, c->g.writes[i]);
    for (int i = 0; i < c->read_count; i++) bytes += (double)graph_size_bytes(p->g, c->reads[i]);
    return bytes;
}

const fuse_cost *cell_cost(planner *p, cell *c)
{
    if (c->costed == c->stamp) return &c->cost;
    c->costed = c->stamp;
    c->cost = (fuse_cost){0};
    if (c->g.kind == GROUP_LOOP) {
        arena *scratch = arena_new();
        const char *why = NULL;
        qn_error error = {0};
        bool early = p->early;
        p->early = false;
        if (cell_build(p, c, scratch, NULL, &why, &error)) c->cost = p->built;
        p->early = early;
        arena_free(scratch);
    } else if (c->g.kind == GROUP_DOT) {
        c->cost = cost_of_product(p->g, p->options, c->g.nodes, c->g.node_count, cell_bytes(p, c));
    } else {
        c->cost = cost_of_bytes(p->options, cell_bytes(p, c), 0, 1);
    }
    return &c->cost;
}

/* Arithmetic may write over an input that nothing reads later. */
static bool takes_a_place(const planner *p, const cell *c, const int *last, int at)
{
    node n = c->g.nodes[0];
    if (graph_get(p->g, n)->code != GRAPH_MAP || p->wanted[n]) return false;
    for (int i = 0; i < c->read_count; i++) {
        node from = c->reads[i];
        if (p->is_op[from] && !p->wanted[from] && last[from] == at &&
            graph_size_bytes(p->g, from) == graph_size_bytes(p->g, n))
            return true;
    }
    return false;
}

int64_t cells_peak_bytes(const planner *p)
{
    int *last = ARENA_ARRAY(p->memory, int, p->node_count);
    int64_t live = 0, peak = 0, results = 0;
    for (int i = 0; i < p->cell_count; i++)
        for (int k = 0; k < p->cells[i].read_count; k++) last[p->cells[i].reads[k]] = i;
    for (node n = 1; (int)n < p->node_count; n++)
        if (p->wanted[n] && p->is_op[n]) results += graph_size_bytes(p->g, n);
    for (int i = 0; i < p->cell_count; i++) {
        const cell *c = &p->cells[i];
        bool over = takes_a_place(p, c, last, i);
        int64_t made = 0, gone = 0;
        for (int k = 0; k < c->g.write_count; k++)
            if (!p->wanted[c->g.writes[k]]) made += graph_size_bytes(p->g, c->g.writes[k]);
        for (int k = 0; k < c->read_count; k++) {
            node from = c->reads[k];
            if (p->in_memory[from] && p->is_op[plan_writer(p, from)] && !p->wanted[from] && last[from] == i)
                gone += graph_size_bytes(p->g, from);
        }
        live += made;
        peak = MAXIMUM(peak, live - (over ? made : 0));
        live -= gone;
    }
    return peak + results;
}
