/*
 * What a new plan was made of and why, for QUERN_LOG (graph, fusion, guards) and QUERN_DUMP_DIR (graph.txt, fusion.txt,
 * memory.txt in a folder for each plan; the kernels' own stages lie beside it, written when they are compiled).
 * SPDX-License-Identifier: MIT
 */
#include "run/evaluate/realize.h"

#include <string.h>

static void say(qn_context *context, unsigned kind, const char *title, const plan *p, const text *words)
{
    context_log(context, kind, "%s: plan %d\n%s", title, p->number, text_get(words));
}

/* In what the new key differs from the nearest kept one: the first word of difference tells little to a reader, so the
 * leaves are compared: their number, types and shapes. */
static void explain(const realizer *r, const plan *p, text *out)
{
    const plan *nearest = NULL;
    int most = -1;
    for (int i = 0; i < r->table_size; i++)
        for (const plan *at = r->table[i]; at; at = at->next) {
            int same = 0, limit = MINIMUM(at->key_words, p->key_words);
            for (int w = 0; w < limit; w++) same += at->key[w] == p->key[w];
            if (at->key_words == p->key_words) same += limit; /* the same structure */
            if (same > most) {
                most = same;
                nearest = at;
            }
        }
    if (!nearest) {
        text_add(out, "the first evaluation of this tape");
        return;
    }
    const char *gap = "";
    text_print(out, "unlike plan %d: ", nearest->number);
    if (nearest->node_count != p->node_count)
        text_print(out, "%d nodes instead of %d", p->node_count, nearest->node_count), gap = ", ";
    int limit = MINIMUM(nearest->graph->node_count, p->graph->node_count), told = 0;
    limit = MINIMUM(limit, MINIMUM(nearest->node_count, p->node_count) + 1);
    for (int n = 1; n < limit && told < 4; n++) {
        const graph_node *a = graph_get(p->graph, (node)n), *b = graph_get(nearest->graph, (node)n);
        if (a->code == b->code && a->elem == b->elem && shape_same(&a->shape, &b->shape)) continue;
        text_print(out, "%snode %d is %s %s", gap, n, graph_ops[a->code].text, dtypes[a->elem].text);
        shape_print(&a->shape, out);
        text_print(out, " instead of %s %s", graph_ops[b->code].text, dtypes[b->elem].text);
        shape_print(&b->shape, out);
        gap = ", ";
        told++;
    }
    if (!*gap) text_add(out, "views, constants or what is wanted differ");
}

static void dump(qn_context *context, const plan *p, const char *name, const text *words)
{
    char folder[4200], path[4300], hex[33];
    qn_error error;
    hash_to_hex(hash_bytes(p->key, sizeof(uint32_t) * (size_t)p->key_words), hex);
    snprintf(folder, sizeof(folder), "%.3800s/plan%d-%.16s", context->dump_folder, p->number, hex);
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (folder_make(folder, &error) != QN_OK || file_write(path, text_get(words), words->length, &error) != QN_OK)
        context_say(context, "cannot keep what is compiled: %s", error.message);
}

void realize_log(qn_tape *tape, const plan *p)
{
    qn_context *context = tape->context;
    unsigned wanted = context->dump_folder ? ~0u : context->log;
    text words = {0};
    if (wanted & LOG_GRAPH) {
        graph_print(p->graph, p->roots, p->root_count, &words);
        say(context, LOG_GRAPH, "graph", p, &words);
        if (context->dump_folder) dump(context, p, "graph.txt", &words);
    }
    if (wanted & LOG_FUSION) {
        text_clear(&words);
        fuse_print(p->fused, &words);
        say(context, LOG_FUSION, "fusion", p, &words);
        if (context->dump_folder) dump(context, p, "fusion.txt", &words);
        text_clear(&words);
        fuse_print_memory(p->fused, &words);
        say(context, LOG_FUSION, "memory", p, &words);
        if (context->dump_folder) dump(context, p, "memory.txt", &words);
    }
    if (context->log & LOG_GUARDS) {
        text_clear(&words);
        explain(tape->realizer, p, &words);
        context_log(context, LOG_GUARDS, "guards: plan %d (%d nodes, %d kernels), %s", p->number, p->node_count,
                    p->kernel_count, text_get(&words));
    }
    text_free(&words);
}
