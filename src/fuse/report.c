/*
 * The report of a plan. In: a plan. Out: a line for each kernel with its ops, bytes and FLOPs and what fusion saved, then
 * its ops with their call sites, then why values went through memory.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/fuse.h"

#include <string.h>

void fuse_add_bytes(text *out, int64_t bytes)
{
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB"};
    double x = (double)bytes;
    int unit = 0;
    while (x >= 1000 && unit < 4) {
        x /= 1000;
        unit++;
    }
    text_print(out, unit && x < 100 ? "%.2f %s" : "%.0f %s", x, units[unit]);
}

const char *fuse_op_text(const graph_node *x)
{
    if (x->code == GRAPH_MAP) return ops[x->attr.map].text;
    return x->code == GRAPH_REDUCE ? fold_names[x->attr.fold] : graph_ops[x->code].text;
}

static bool is_silent(const graph_node *x)
{
    return graph_ops[x->code].class == GRAPH_CLASS_LEAF;
}

static void print_value(const graph *g, node n, text *out)
{
    const graph_node *x = graph_get(g, n);
    text_print(out, "%%%u %s ", n, dtypes[x->elem].text);
    shape_print(&x->shape, out);
}

static void add_time(text *out, double time_ns)
{
    if (time_ns < 1e3)
        text_print(out, "%.0f ns", time_ns);
    else if (time_ns < 1e6)
        text_print(out, "%.3g us", time_ns * 1e-3);
    else if (time_ns < 1e9)
        text_print(out, "%.3g ms", time_ns * 1e-6);
    else
        text_print(out, "%.3g s", time_ns * 1e-9);
}

static void print_cost(const fuse_cost *c, text *out)
{
    if (c->time_ns <= 0) return;
    text_add(out, "  takes about ");
    add_time(out, c->time_ns);
    text_print(out, ", bound by %s: moves ", c->bound ? c->bound : "memory");
    fuse_add_bytes(out, (int64_t)c->bytes);
    text_print(out, ", %.3g operations, %.3g loads\n", c->ops, c->loads);
}

double fuse_plan_ns(const fuse_plan *plan)
{
    double sum = 0;
    for (int i = 0; i < plan->kernel_count; i++) sum += plan->kernels[i].cost.time_ns;
    return sum;
}

static void print_kernel(const fuse_plan *plan, int number, bool why, text *out)
{
    const fuse_kernel *k = &plan->kernels[number];
    const graph *g = plan->graph;
    int count = 0;
    for (int i = 0; i < k->node_count; i++) count += !is_silent(graph_get(g, k->nodes[i]));
    text_print(out, "kernel %d: %s  ops %d  reads ", number, k->name, count);
    fuse_add_bytes(out, k->read_bytes);
    text_add(out, "  writes ");
    fuse_add_bytes(out, k->written_bytes);
    text_print(out, "  FLOPs %lld  saved ", (long long)k->flops);
    fuse_add_bytes(out, k->saved_bytes);
    text_add(out, "\n");
    if (why) print_cost(&k->cost, out);
    for (int i = 0; i < k->node_count; i++) {
        const graph_node *x = graph_get(g, k->nodes[i]);
        if (is_silent(x)) continue;
        text_print(out, "  %-10s ", fuse_op_text(x));
        print_value(g, k->nodes[i], out);
        for (int w = 0; w < k->write_count; w++)
            if (k->writes[w] == k->nodes[i]) text_add(out, " -> memory");
        if (x->label && strcmp(x->label, fuse_op_text(x))) text_print(out, "  ; %s", x->label);
        if (x->site.file)
            text_print(out, "%s%s:%d", x->label && strcmp(x->label, fuse_op_text(x)) ? " " : "  ; ", x->site.file,
                       x->site.line);
        text_add(out, "\n");
    }
}

void fuse_print_ops(const graph *g, const fuse_kernel *k, text *out)
{
    const char *before = "";
    for (int i = 0; i < k->node_count; i++) {
        const graph_node *x = graph_get(g, k->nodes[i]);
        const char *words = x->label ? x->label : fuse_op_text(x);
        if (is_silent(x) || !strcmp(words, before)) continue;
        text_print(out, "%s%s", *before ? " " : "", words);
        before = words;
    }
}

static void print_plan(const fuse_plan *plan, bool why, text *out)
{
    for (int i = 0; i < plan->kernel_count; i++) print_kernel(plan, i, why, out);
    for (int i = 0; i < plan->boundary_count; i++) {
        const fuse_boundary *b = &plan->boundaries[i];
        text_add(out, "boundary ");
        print_value(plan->graph, b->value, out);
        text_add(out, " (");
        fuse_add_bytes(out, b->bytes);
        if (b->consumer < 0)
            text_print(out, ") from kernel %d: %s\n", b->producer, b->why);
        else
            text_print(out, ") from kernel %d to %d: %s\n", b->producer, b->consumer, b->why);
    }
}

void fuse_print(const fuse_plan *plan, text *out)
{
    print_plan(plan, false, out);
}

void fuse_print_why(const fuse_plan *plan, text *out)
{
    print_plan(plan, true, out);
    text_print(out, "plan: %d kernels take about ", plan->kernel_count);
    add_time(out, fuse_plan_ns(plan));
    text_add(out, "; a kernel for each op would take ");
    add_time(out, plan->eager_ns);
    text_add(out, "\n");
}
