/*
 * The kernel of a stack in CUDA. In: the stack. Out: text of the language around a raw kernel, and the arrays it is called
 * with, in order.
 *
 * A cluster has LAYER_ROWS rows. Its blocks hold all of a layer's input rows in shared memory, element by element for all
 * rows, and compute a part of the columns: a thread one column, by some of the depth, for all rows; threads of a column
 * join their sums in a fixed order, one goes on with the arithmetic of the layer and hands the result to every block. The
 * first elements of the next matrix are asked for before the barrier that ends a layer: memory is awaited beside the others.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/layers.h"

enum { MOST_AHEAD = 64, TURN_AHEAD = 40 }; /* elements of a matrix that a thread asks for at once; in turns */

static const struct {
    op_code code;
    const char *words; /* $0 $1 $2: operands */
} maps[] = {
    {OP_NEG, "-$0"},
    {OP_ABS, "fabsf($0)"},
    {OP_SQRT, "sqrtf($0)"},
    {OP_RSQRT, "1 / sqrtf($0)"},
    {OP_EXP, "expf($0)"},
    {OP_LOG, "logf($0)"},
    {OP_TANH, "tanhf($0)"},
    {OP_ERF, "erff($0)"},
    {OP_SIGMOID, "1 / (1 + expf(-$0))"},
    {OP_RELU, "$0 < 0 ? 0 : $0"},
    {OP_SILU, "$0 / (1 + expf(-$0))"},
    {OP_GELU, "0.5f * $0 * (1 + erff($0 * 0.707106781f))"},
    {OP_ADD, "$0 + $1"},
    {OP_SUB, "$0 - $1"},
    {OP_MUL, "$0 * $1"},
    {OP_DIV, "$0 / $1"},
    {OP_MIN, "$0 != $0 || $0 < $1 ? $0 : $1"},
    {OP_MAX, "$0 != $0 || $0 > $1 ? $0 : $1"},
    {OP_FMA, "fmaf($0, $1, $2)"},
};

static const char *words_of(op_code code)
{
    for (int i = 0; i < COUNT(maps); i++)
        if (maps[i].code == code) return maps[i].words;
    return NULL;
}

bool layers_write(op_code code)
{
    return words_of(code) != NULL;
}

static const char clusters[] =
    "#ifdef QUERN_EMU\n"
    "static __device__ unsigned own_rank() { return emu_cluster_rank(); }\n"
    "static __device__ void arrive() {}\n"
    "static __device__ void wait_all() { emu_cluster_sync(); }\n"
    "static __device__ float *place_in(float *p, unsigned rank) { return emu_cluster_map(p, rank); }\n"
    "#else\n"
    "static __device__ __forceinline__ unsigned own_rank()\n"
    "{\n"
    "    unsigned r;\n"
    "    asm(\"mov.u32 %0, %%cluster_ctarank;\" : \"=r\"(r));\n"
    "    return r;\n"
    "}\n"
    "static __device__ __forceinline__ void arrive() { asm volatile(\"barrier.cluster.arrive.aligned;\" ::: "
    "\"memory\"); }\n"
    "static __device__ __forceinline__ void wait_all() { asm volatile(\"barrier.cluster.wait.aligned;\" ::: "
    "\"memory\"); }\n"
    "static __device__ __forceinline__ float *place_in(float *p, unsigned rank)\n"
    "{\n"
    "    float *q;\n"
    "    asm(\"mapa.u64 %0, %1, %2;\" : \"=l\"(q) : \"l\"(p), \"r\"(rank));\n"
    "    return q;\n"
    "}\n"
    "#endif\n"
    /* K and N of a layer; PART columns of it for each block; LANES threads side by side, one a column, in GROUPS that
     * share the depth; AHEAD elements of the matrix at once. */
    "template <int K, int N> struct layer {\n"
    "    enum { PART = (N + BLOCKS - 1) / BLOCKS,\n"
    "           LANES = PART <= 1 ? 1 : PART <= 2 ? 2 : PART <= 4 ? 4 : PART <= 8 ? 8 : PART <= 16 ? 16 : PART <= 32 ? "
    "32 : PART <= 64 ? 64 : 128,\n"
    "           GROUPS = THREADS / LANES < (K + 3) / 4 ? THREADS / LANES : (K + 3) / 4,\n"
    "           EACH = (K + GROUPS - 1) / GROUPS,\n"
    "           TURNS = (PART * ROWS + THREADS - 1) / THREADS,\n"
    "           TRIPS = EACH <= MOST_AHEAD ? 1 : (EACH + TURN_AHEAD - 1) / TURN_AHEAD, AHEAD = (EACH + TRIPS - 1) / "
    "TRIPS };\n"
    "    static __device__ __forceinline__ void ask(const float *matrix, int trip, float *some)\n"
    "    {\n"
    "        const int lane = threadIdx.x % LANES, group = threadIdx.x / LANES, column = own_rank() * PART + lane;\n"
    "#pragma unroll\n"
    "        for (int i = 0; i < AHEAD; i++) {\n"
    "            const int k = (trip * AHEAD + i) * GROUPS + group;\n"
    "            some[i] = lane < PART && column < N && group < GROUPS && k < K ? matrix[k * N + column] : 0;\n"
    "        }\n"
    "    }\n"
    "    static __device__ __forceinline__ void add(const float *rows, int trip, const float *some, float *sums)\n"
    "    {\n"
    "        const int group = threadIdx.x / LANES;\n"
    "        if (GROUPS * LANES < THREADS && group >= GROUPS) return;\n"
    "#pragma unroll\n"
    "        for (int i = 0; i < AHEAD; i++) {\n"
    "            const int k = (trip * AHEAD + i) * GROUPS + group;\n"
    "            if (K % (GROUPS * AHEAD) && k >= K) continue;\n"
    "#pragma unroll\n"
    "            for (int r = 0; r < ROWS; r += 4) {\n"
    "                const float4 x = *(const float4 *)(rows + k * ROWS + r);\n"
    "                sums[r] += x.x * some[i];\n"
    "                sums[r + 1] += x.y * some[i];\n"
    "                sums[r + 2] += x.z * some[i];\n"
    "                sums[r + 3] += x.w * some[i];\n"
    "            }\n"
    "        }\n"
    "    }\n"
    "    static __device__ __forceinline__ void multiply(const float *matrix, const float *rows, float *some, float "
    "*parts)\n"
    "    {\n"
    "        float sums[ROWS] = {};\n"
    "        float other[TRIPS > 1 ? AHEAD : 1];\n"
    "#pragma unroll 1\n"
    "        for (int trip = 0; trip < TRIPS; trip += 2) { /* one is on its way while the other is added */\n"
    "            if (trip + 1 < TRIPS) ask(matrix, trip + 1, other);\n"
    "            add(rows, trip, some, sums);\n"
    "            if (trip + 2 < TRIPS) ask(matrix, trip + 2, some);\n"
    "            if (trip + 1 < TRIPS) add(rows, trip + 1, other, sums);\n"
    "        }\n"
    "#pragma unroll\n"
    "        for (int r = 0; r < ROWS; r += 4)\n"
    "            *(float4 *)(parts + threadIdx.x * ROWS + r) = make_float4(sums[r], sums[r + 1], sums[r + 2], sums[r + "
    "3]);\n"
    "        __syncthreads();\n"
    "    }\n"
    "    static __device__ __forceinline__ float join(const float *parts, int at)\n"
    "    {\n"
    "        float sum = 0;\n"
    "#pragma unroll 8\n"
    "        for (int g = 0; g < GROUPS; g++) sum += parts[g * LANES * ROWS + at];\n"
    "        return sum;\n"
    "    }\n"
    "};\n";

typedef struct writer {
    arena *memory;
    const graph *g;
    const layer_stack *c;
    node *arrays;
    int array_count;
    text head, parameters, body;
} writer;

static void add_extents(writer *w, const shape *s)
{
    for (int i = 0; i < s->rank; i++) {
        if (i == 0 && s->extents[0] == w->c->row_count)
            text_add(&w->head, "[B]");
        else
            text_print(&w->head, "[%lld]", (long long)s->extents[i]);
    }
}

/* An array that the kernel reads: its name. Vectors and matrices have their own extents, whatever the batch is. */
static const char *add_array(writer *w, node n, bool has_rows)
{
    const char *name = arena_print(w->memory, "x%d", w->array_count);
    const shape *s = &graph_get(w->g, n)->shape;
    text_print(&w->head, "%sin f32 %s", w->array_count ? ", " : "", name);
    text_print(&w->parameters, "%sconst float *%s", w->array_count ? ", " : "", name);
    if (has_rows)
        add_extents(w, s);
    else
        for (int i = 0; i < s->rank; i++) text_print(&w->head, "[%lld]", (long long)s->extents[i]);
    w->arrays[w->array_count++] = n;
    return name;
}

static const char *name_of(const writer *w, const single_layer *l, node n)
{
    for (int i = 0; i < l->operand_count; i++) {
        const layer_operand *o = &l->operands[i];
        if (o->n != n) continue;
        if (o->kind == LAYER_NUMBER) return arena_print(w->memory, "(%.9ef)", graph_get(w->g, o->array)->attr.number.f);
        return arena_print(w->memory, "o%d[turn]", i);
    }
    int at = 0; /* v0: the product */
    for (int i = 0; i < l->node_count; i++)
        if (l->nodes[i] == n) at = i + 1;
    return arena_print(w->memory, "v%d", at);
}

/* Where a thread's element of a turn lies, and whether it has one. */
static void put_place(writer *w, const single_layer *l)
{
    text_print(&w->body,
               "#pragma unroll\n"
               "        for (int turn = 0; turn < own::TURNS; turn++) {\n"
               "            const int at = turn * THREADS + threadIdx.x, n = own_rank() * own::PART + at / ROWS;\n"
               "            const long row = first + at %% ROWS;\n"
               "            const bool mine = at < own::PART * ROWS && n < %d, inside = mine && row < B;\n",
               (int)l->columns);
}

/* What is read beside the product, asked for before it. */
static void put_operands(writer *w, const single_layer *l)
{
    int count = 0;
    for (int i = 0; i < l->operand_count; i++) {
        if (l->operands[i].kind == LAYER_NUMBER) continue;
        text_print(&w->body, "        float o%d[own::TURNS];\n", i);
        count++;
    }
    if (!count) return;
    put_place(w, l);
    text_add(&w->body, "            (void)inside, (void)row;\n");
    for (int i = 0; i < l->operand_count; i++) {
        const layer_operand *o = &l->operands[i];
        if (o->kind == LAYER_NUMBER) continue;
        const char *x = add_array(w, o->array, o->kind == LAYER_ROW || o->kind == LAYER_PLACE);
        text_print(&w->body, "            o%d[turn] = ", i);
        if (o->kind == LAYER_SCALAR) text_print(&w->body, "%s[0];\n", x);
        if (o->kind == LAYER_COLUMN) text_print(&w->body, "mine ? %s[n] : 0;\n", x);
        if (o->kind == LAYER_ROW) text_print(&w->body, "inside ? %s[row] : 0;\n", x);
        if (o->kind == LAYER_PLACE)
            text_print(&w->body, "inside ? %s[row * %lld + n] : 0;\n", x, (long long)l->columns);
    }
    text_add(&w->body, "        }\n");
}

static void put_map(writer *w, const single_layer *l, node n)
{
    const graph_node *x = graph_get(w->g, n);
    text_print(&w->body, "            const float %s = ", name_of(w, l, n));
    const char *words = x->code == GRAPH_RESHAPE ? "$0" : words_of(x->attr.map);
    for (const char *c = words; *c; c++) {
        if (*c == '$')
            text_add(&w->body, name_of(w, l, x->inputs[*++c - '0']));
        else
            text_add_bytes(&w->body, c, 1);
    }
    text_add(&w->body, ";\n");
}

static int output_of(const layer_stack *c, node n)
{
    for (int i = 0; i < c->output_count; i++)
        if (c->outputs[i] == n) return i;
    return -1;
}

static void put_layer(writer *w, int at, const char *matrix, const char *next_matrix)
{
    const single_layer *l = &w->c->layers[at];
    bool last = at + 1 == w->c->layer_count;
    text_print(&w->body, "    {\n        typedef layer<%d, %d> own;\n", (int)l->depth, (int)l->columns);
    put_operands(w, l);
    text_print(&w->body, "        wait_all();\n        own::multiply(%s, rows[%d], some%d, parts);\n", matrix, at % 2,
               at);
    put_place(w, l);
    text_add(&w->body, "            if (!mine) continue;\n            (void)inside, (void)row;\n"
                       "            const float v0 = own::join(parts, at);\n");
    for (int i = 0; i < l->node_count; i++) put_map(w, l, l->nodes[i]);
    for (int i = -1; i < l->node_count; i++) {
        node n = i < 0 ? l->dot : l->nodes[i];
        int output = output_of(w->c, n);
        if (output >= 0)
            text_print(&w->body, "            if (inside) y%d[row * %d + n] = v%d;\n", output, (int)l->columns, i + 1);
    }
    if (!last)
        text_print(
            &w->body,
            "#pragma unroll\n"
            "            for (int b = 0; b < BLOCKS; b++) *place_in(rows[%d] + n * ROWS + at %% ROWS, b) = %s;\n",
            (at + 1) % 2, name_of(w, l, l->result));
    text_add(&w->body, "        }\n    }\n");
    if (last) return;
    const single_layer *next = &w->c->layers[at + 1];
    text_print(&w->body,
               "    arrive();\n    float some%d[layer<%d, %d>::AHEAD];\n    layer<%d, %d>::ask(%s, 0, some%d);\n",
               at + 1, (int)next->depth, (int)next->columns, (int)next->depth, (int)next->columns, next_matrix, at + 1);
}

const char *layers_source(arena *memory, const graph *g, const layer_stack *c, const char *name, node *arrays,
                          int *count)
{
    writer w = {.memory = memory, .g = g, .c = c, .arrays = arrays};
    const single_layer *one = &c->layers[0];
    const char *matrices[LAYERS_MOST + 1] = {0};
    int64_t longest = 0;
    for (int i = 0; i < c->layer_count; i++) longest = MAXIMUM(longest, c->layers[i].depth);
    const char *x = add_array(&w, c->rows, true);
    for (int i = 0; i < c->layer_count; i++) matrices[i] = add_array(&w, c->layers[i].matrix, false);
    text_print(&w.body,
               "    extern __shared__ __align__(16) float shared[];\n"
               "    float *const rows[2] = {shared, shared + %d * ROWS}, *const parts = shared + 2 * %d * ROWS;\n"
               "    const long first = (long)(blockIdx.x / BLOCKS) * ROWS;\n"
               "    for (int i = threadIdx.x; i < %d * ROWS; i += THREADS) {\n"
               "        const int r = i / %d, k = i %% %d;\n"
               "        rows[0][k * ROWS + r] = first + r < B ? %s[(first + r) * %d + k] : 0;\n"
               "    }\n"
               "    arrive();\n"
               "    float some0[layer<%d, %d>::AHEAD];\n    layer<%d, %d>::ask(%s, 0, some0);\n",
               (int)longest, (int)longest, (int)one->depth, (int)one->depth, (int)one->depth, x, (int)one->depth,
               (int)one->depth, (int)one->columns, (int)one->depth, (int)one->columns, matrices[0]);
    for (int i = 0; i < c->layer_count; i++) put_layer(&w, i, matrices[i], matrices[i + 1]);
    for (int i = 0; i < c->output_count; i++) {
        text_print(&w.head, ", out f32 y%d", i);
        add_extents(&w, &graph_get(g, c->outputs[i])->shape);
        text_print(&w.parameters, ", float *y%d", i);
    }
    const char *source = arena_print(
        memory,
        "cuda %s(%s,\n    const int ROWS = %d, const int BLOCKS = %d, const int THREADS = %d, const int MOST_AHEAD = "
        "%d,\n"
        "    const int TURN_AHEAD = %d)\n"
        "    launch (cdiv(B, ROWS) * BLOCKS) block (THREADS) shared ((2 * %d + THREADS) * ROWS * 4)\n\"\"\"\n%s"
        "extern \"C\" __global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(THREADS, 2) %s(%s, long "
        "B)\n{\n%s}\n"
        "\"\"\"\n",
        name, text_get(&w.head), LAYER_ROWS, LAYER_BLOCKS, LAYER_THREADS, MOST_AHEAD, TURN_AHEAD, (int)longest,
        clusters, name, text_get(&w.parameters), text_get(&w.body));
    text_free(&w.head);
    text_free(&w.parameters);
    text_free(&w.body);
    *count = w.array_count;
    return source;
}
