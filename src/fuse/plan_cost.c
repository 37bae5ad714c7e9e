/*
 * What cells will take. In: a cell, as it is. Out: its estimate, made once for each shape of the cell: of a loop by its
 * terms, of a product by its operations and bytes, of what stands alone by its bytes.
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
