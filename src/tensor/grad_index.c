/*
 * Gradients of access by index: reading adds where it read, adding reads where it added. Indices have no gradient.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/grad_rules.h"

void grad_of_take(grad_step *s)
{
    s->dx[0] = graph_take_add(s->g, grad_number(s->g, s->x[0], 0), s->x[1], s->d, s->n.attr.axis);
}

void grad_of_gather(grad_step *s)
{
    s->dx[0] = graph_gather_add(s->g, grad_number(s->g, s->x[0], 0), s->x[1], s->d, s->n.attr.axis);
}

void grad_of_take_add(grad_step *s)
{
    if (s->wants[0]) s->dx[0] = s->d;
    if (s->wants[2]) s->dx[2] = graph_take(s->g, s->d, s->x[1], s->n.attr.axis);
}

void grad_of_gather_add(grad_step *s)
{
    if (s->wants[0]) s->dx[0] = s->d;
    if (s->wants[2]) s->dx[2] = graph_gather(s->g, s->d, s->x[1], s->n.attr.axis);
}
