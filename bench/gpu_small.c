/*
 * Small products in a replayed graph, each waiting for the one before: microseconds a node for several tile sizes, which
 * is what a network of small layers is made of. In: nothing but a GPU. Out: a table; the least time of each row is marked.
 *
 * Usage: build/bench_gpu_small [--bench FOLDER] [--device cuda] [--only WORD]. A node's time is that of a graph of 200
 * launches divided by 200, the least of several replays.
 * SPDX-License-Identifier: MIT
 */
#include <quern/device.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NODES = 200, REPLAYS = 7 };

typedef struct shape {
    int64_t m, n, k;
} shape;

static qn_context *context;
static qn_stream *stream;
static qn_event *events[2];
static qn_module *module;
static const char *device = "cuda";

#define TRY(call)                                                         \
    do {                                                                  \
        if ((call) != 0) fprintf(stderr, "%s\n", error.message), exit(1); \
    } while (0)

/* Microseconds a launch; below 0: this tile cannot be had. */
static double node_us(const char *kernel, qn_dtype type, const shape *s, int bm, int bn, qn_buffer *const *buffers)
{
    qn_error error;
    qn_call *call;
    qn_graph *graph;
    const int64_t a[] = {s->m, s->k}, b[] = {s->k, s->n}, c[] = {s->m, s->n};
    double best = 1e18;
    TRY(qn_call_new(module, kernel, &call, &error));
    TRY(qn_call_set_buffer(call, "a", buffers[0], 0, type, 2, a, NULL, &error));
    TRY(qn_call_set_buffer(call, "b", buffers[1], 0, type, 2, b, NULL, &error));
    TRY(qn_call_set_buffer(call, "c", buffers[2], 0, type, 2, c, NULL, &error));
    TRY(qn_call_set_int(call, "BM", bm, &error));
    TRY(qn_call_set_int(call, "BN", bn, &error));
    if (qn_call_launch(call, stream, &error) != QN_OK || qn_stream_wait(stream, &error) != QN_OK) {
        qn_call_free(call);
        return -1;
    }
    TRY(qn_graph_begin(stream, &error));
    for (int i = 0; i < NODES; i++) TRY(qn_call_launch(call, stream, &error));
    TRY(qn_graph_end(stream, &graph, &error));
    for (int i = 0; i < REPLAYS; i++) {
        double ns;
        TRY(qn_event_record(events[0], stream, &error));
        TRY(qn_graph_launch(graph, stream, &error));
        TRY(qn_event_record(events[1], stream, &error));
        TRY(qn_event_elapsed(events[0], events[1], &ns, &error));
        if (ns < best) best = ns;
    }
    qn_graph_free(graph);
    qn_call_free(call);
    return best * 1e-3 / NODES;
}

int main(int count, char **words)
{
    static const shape shapes[] = {{128, 128, 128},  {128, 128, 512}, {256, 256, 256},
                                   {256, 256, 1024}, {512, 512, 512}, {1024, 1024, 256}};
    static const int tiles[][2] = {{16, 16}, {16, 32}, {32, 16}, {32, 32}, {32, 64}, {64, 32}, {64, 64}, {128, 64}};
    static const struct {
        const char *title, *kernel;
        qn_dtype type;
    } kinds[] = {{"f32", "product", QN_F32}, {"tf32", "product_tf32", QN_F32}, {"bf16", "product", QN_BF16}};
    const char *folder = "bench", *only = "";
    for (int i = 1; i + 1 < count; i += 2) {
        if (!strcmp(words[i], "--bench")) folder = words[i + 1];
        if (!strcmp(words[i], "--device")) device = words[i + 1];
        if (!strcmp(words[i], "--only")) only = words[i + 1];
    }
    qn_error error;
    char path[1024];
    qn_buffer *buffers[3];
    TRY(qn_context_open(&(qn_context_options){.allow_raw = true}, &context, &error));
    TRY(qn_stream_new(context, device, &stream, &error));
    for (int i = 0; i < 2; i++) TRY(qn_event_new(context, device, &events[i], &error));
    snprintf(path, sizeof(path), "%s/gpu.qn", folder);
    TRY(qn_module_load_file(context, path, &module, &error));
    for (int i = 0; i < 3; i++) TRY(qn_buffer_new_on(context, device, 4 << 20, &buffers[i], &error));
    printf("%-22s", "us a node");
    for (size_t t = 0; t < sizeof(tiles) / sizeof(tiles[0]); t++) printf("%7dx%-3d", tiles[t][0], tiles[t][1]);
    printf("\n");
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        if (!strstr(kinds[k].title, only)) continue;
        for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
            double us[sizeof(tiles) / sizeof(tiles[0])], best = 1e18;
            printf("%-4s %4lldx%4lldx%-6lld", kinds[k].title, (long long)shapes[s].m, (long long)shapes[s].n,
                   (long long)shapes[s].k);
            for (size_t t = 0; t < sizeof(tiles) / sizeof(tiles[0]); t++) {
                us[t] = node_us(kinds[k].kernel, kinds[k].type, &shapes[s], tiles[t][0], tiles[t][1], buffers);
                if (us[t] > 0 && us[t] < best) best = us[t];
            }
            for (size_t t = 0; t < sizeof(tiles) / sizeof(tiles[0]); t++)
                printf("%9.2f%c ", us[t], us[t] == best ? '*' : ' ');
            printf("\n");
            fflush(stdout);
        }
    }
    for (int i = 0; i < 3; i++) qn_buffer_release(buffers[i]);
    qn_module_free(module);
    for (int i = 0; i < 2; i++) qn_event_free(events[i]);
    qn_stream_free(stream);
    qn_context_close(context);
    return 0;
}
