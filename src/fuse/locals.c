/*
 * The nodes that a kernel has to do with. In: a group and what is in memory. Out: its ops, what is followed from them,
 * and what they read, each once, oldest first. The work is that of the group, however large the graph around it is.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/group.h"

#include <stdlib.h>
#include <string.h>

enum { TABLE = 4 * KERNEL_MOST_NODES }; /* a power of two */

static int by_node(const void *a, const void *b)
{
    node x = *(const node *)a, y = *(const node *)b;
    return x < y ? -1 : x > y;
}

/* Into the list, once; false: there is no room. */
static bool add(locals *l, node *table, node n)
{
    unsigned at = n * 2654435761u & (TABLE - 1);
    for (; table[at]; at = (at + 1) & (TABLE - 1))
        if (table[at] == n) return true;
    if (l->count == KERNEL_MOST_NODES) return false;
    table[at] = n;
    l->nodes[l->count++] = n;
    return true;
}

bool locals_gather(const builder *b, const group *grp, locals *out)
{
    node table[TABLE] = {0}, nodes[KERNEL_MOST_NODES];
    locals l = {.nodes = nodes};
    for (int i = 0; i < grp->node_count; i++)
        if (!add(&l, table, grp->nodes[i])) return false;
    for (int i = 0; i < l.count; i++) {
        const graph_node *x = graph_get(b->g, l.nodes[i]);
        for (int k = 0; k < x->input_count && !b->in_memory[l.nodes[i]]; k++)
            if (!add(&l, table, x->inputs[k])) return false;
    }
    if (l.count) qsort(l.nodes, (size_t)l.count, sizeof(node), by_node);
    *out = (locals){ARENA_ARRAY(b->memory, node, l.count + 1), l.count};
    memcpy(out->nodes, nodes, sizeof(node) * (size_t)l.count);
    return true;
}

int locals_find(const locals *l, node n)
{
    int low = 0, high = l->count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (l->nodes[middle] < n)
            low = middle + 1;
        else
            high = middle;
    }
    return low < l->count && l->nodes[low] == n ? low : -1;
}
