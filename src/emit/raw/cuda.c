/*
 * Raw CUDA kernels inside the ABI of generated ones. In: parameters, a text and a function of it, or a template's
 * instance. Out: options, a small prelude, constants as macros, the user's text, and after it one kernel NAME_phase0
 * that takes the frame and calls the function: arrays as pointers, scalars by value, extents as long.
 *
 * A kernel cannot call a kernel, and the symbol of a template's instance is only known to the compiler. So the word
 * __global__ of the user's function becomes __device__ (as many letters, so columns stay), and its launch bounds go to
 * the kernel around it, into which the function is inlined: nothing is left of the call. The blocks of a cluster go to
 * the launch. The user's own compiler checks what the comparison with the declaration could not.
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/nest.h"
#include "emit/raw/raw.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_SHARED_BYTES = 227 * 1024 };

static bool is_array(const tile_param *p)
{
    return p->kind < PARAM_SCALAR;
}

static bool has_include(const tile_kernel *k, const char *header)
{
    const char *at = strstr(k->raw_source, header);
    return at > k->raw_source && (at[-1] == '<' || at[-1] == '"' || at[-1] == '/') && strchr(">\"", at[strlen(header)]);
}

static void put_blank(raw_span span, char *text)
{
    for (size_t i = 0; i < span.length; i++)
        if (text[i] != '\n') text[i] = ' ';
}

/* The user's text with its function as one that a kernel can call; launch bounds are blanked and given back. */
static void put_source(const tile_kernel *k, const raw_function *function, text *out, text *bounds)
{
    size_t start = out->length;
    text_add(out, k->raw_source);
    raw_names names = {.constants = k->raw_constants, .instance = k->raw_instance};
    raw_function f;
    for (const char *at = k->raw_source; raw_next_function(&at, &f);) {
        if (f.name.length != function->name.length || memcmp(f.name.start, function->name.start, f.name.length) ||
            !f.global.length)
            continue;
        char *copy = out->data + start;
        memcpy(copy + (f.global.start - k->raw_source), "__device__", 10);
        if (f.cluster.length) put_blank(f.cluster, copy + (f.cluster.start - k->raw_source));
        if (!f.bounds.length) continue;
        put_blank(f.bounds, copy + (f.bounds.start - k->raw_source));
        names.function = &f;
        text_clear(bounds);
        raw_substitute(&names, f.bounds, bounds);
    }
}

/* The threads of a block, if they are known now; else 0. */
static int64_t known_threads(const tile_kernel *k)
{
    for (int i = 0; i < k->head->op_count; i++) {
        const tile_op *op = k->head->ops[i];
        if (op->code != OP_LAUNCH || op->attr.index != RAW_BLOCK) continue;
        int64_t threads = 1;
        for (int axis = 0; axis < op->operand_count; axis++) {
            number n;
            if (!tile_is_constant(k, op->operands[axis], &n) || n.i < 1 || n.i > GPU_BLOCK_THREADS) return 0;
            threads *= n.i;
        }
        return threads <= GPU_BLOCK_THREADS ? threads : 0;
    }
    return 0;
}

static void put_argument(const tile_param *p, int word, bool loose, text *out)
{
    const char *type = dtypes[p->elem].c_name;
    if (is_array(p) && loose)
        text_print(out, "quern_pointer{(void *)frame.words[%d]}", word);
    else if (is_array(p))
        text_print(out, "(%s%s *)frame.words[%d]", p->kind == PARAM_IN ? "const " : "", type, word);
    else if (p->elem == DT_F64)
        text_print(out, "quern_number(frame.words[%d])", word);
    else if (p->elem == DT_F32)
        text_print(out, "(float)quern_number(frame.words[%d])", word);
    else if (dtype_is_float(p->elem))
        text_print(out, "(%s)(float)quern_number(frame.words[%d])", type, word);
    else
        text_print(out, "(%s)frame.words[%d]", type, word);
}

static void put_kernel(const tile_kernel *k, const raw_function *function, const char *bounds, text *out)
{
    int words = (int)(sizeof(cuda_tail) / sizeof(int64_t)), starts[64] = {0}, start = 0;
    for (int i = 0; i < k->param_count; i++) {
        int taken = is_array(&k->params[i]) ? 1 + 2 * k->params[i].rank : 1;
        if (i < COUNT(starts)) starts[i] = start;
        start += taken;
        words += taken;
    }
    for (int i = 0; i < function->order_count; i++)
        if (function->loose[i]) {
            text_add(out, "struct quern_pointer { void *to; template <class T> __device__ operator T *() const { "
                          "return (T *)to; } };\n");
            break;
        }
    text_print(out, "struct %s_frame { long long words[%d]; };\n", k->name, words);
    text_print(out, "extern \"C\" __global__ void %s%s%s_phase0(const __grid_constant__ %s_frame frame)\n{\n    %s(",
               bounds, *bounds ? " " : "", k->name, k->name, k->raw_instance ? k->raw_instance : k->name);
    for (int i = 0; i < function->order_count; i++) {
        int which = function->order[i];
        if (i) text_add(out, ", ");
        put_argument(&k->params[which], starts[which], function->loose[i], out);
    }
    text_add(out, ");\n}\n");
}

qn_status emit_raw_cuda(const tile_kernel *k, const cuda_target *target, text *out, qn_error *error)
{
    (void)target; /* the text is the user's, whatever runs it */
    if (strcmp(k->raw_language, "cuda"))
        return error_set(error, QN_NO_DEVICE, "kernel %s is written in %s: it needs a device that runs that", k->name,
                         k->raw_language);
    raw_function function;
    QN_TRY(raw_check_signature(k, 0, &function, error));
    for (const char *option = k->raw_options; option && *option;) {
        size_t length = strcspn(option, "\n");
        text_print(out, "//option %.*s\n", (int)length, option);
        option += length + (option[length] == '\n');
    }
    emit_add_title(k, "Raw kernel", "", out);
    /* The vendor's headers stand in the text only where it names their folder; the narrower include the wider. */
    bool brain = has_include(k, "cuda_bf16.h") || has_include(k, "cuda_fp8.h") || has_include(k, "mma.h") ||
                 has_include(k, "reduce.h");
    bool library = has_include(k, "cooperative_groups.h") || strstr(k->raw_source, "<cub/") ||
                   strstr(k->raw_source, "<cuda/"); /* of C++, with integers of its own */
    raw_prelude(brain || has_include(k, "cuda_fp16.h"), brain, library, out);
    raw_prelude_warps(has_include(k, "mma.h"), has_include(k, "cooperative_groups.h"), out);
    if (k->raw_constants) text_add(out, k->raw_constants);
    raw_put_line(k, out);
    text bounds = {0};
    put_source(k, &function, out, &bounds);
    if (!bounds.length && known_threads(k)) text_print(&bounds, "__launch_bounds__(%d)", (int)known_threads(k));
    text_add(out, "\n#line 1 \"generated CUDA\"\n");
    raw_put_undefines(k->raw_constants, out);
    put_kernel(k, &function, text_get(&bounds), out);
    text_free(&bounds);
    return QN_OK;
}

bool raw_next_option(const char **at, raw_span *option)
{
    static const char mark[] = "//option ";
    if (strncmp(*at, mark, sizeof(mark) - 1)) return false;
    option->start = *at + sizeof(mark) - 1;
    option->length = strcspn(option->start, "\n");
    *at = option->start + option->length;
    if (**at) ++*at;
    return true;
}

/* ---- the shape of a launch ---- */

static qn_status too_much(const tile_kernel *k, raw_launch which, const char *words, qn_error *error)
{
    const tile_op *op = NULL;
    for (int i = 0; i < k->head->op_count; i++)
        if (k->head->ops[i]->code == OP_LAUNCH && k->head->ops[i]->attr.index == (int)which) op = k->head->ops[i];
    return error_diagnose(error, QN_BAD_CALL, E506, k->file ? k->file : k->name, op ? op->line : 0, op ? op->column : 0,
                          "%s", words);
}

/* The blocks of a cluster: "__cluster_dims__(8, 1, 1)" of the kernel's function; 1: it has none. False: no numbers, or a
 * cluster along another axis. */
static bool cluster_of(const tile_kernel *k, int64_t *out)
{
    raw_names names = {.constants = k->raw_constants, .instance = k->raw_instance};
    raw_function f;
    size_t length = strlen(k->name);
    *out = 1;
    for (const char *at = k->raw_source; raw_next_function(&at, &f);) {
        if (f.name.length != length || memcmp(f.name.start, k->name, length) || !f.cluster.length) continue;
        text words = {0};
        names.function = &f;
        raw_substitute(&names, f.cluster, &words);
        long long extents[3] = {0, 1, 1};
        char *c = strchr(text_get(&words), '(');
        for (int i = 0; i < 3 && c && *c && *c != ')'; i++) {
            extents[i] = strtoll(c + 1, &c, 10);
            c += strspn(c, " \t\n");
            if (*c != ',' && *c != ')') extents[0] = 0;
        }
        text_free(&words);
        *out = extents[0];
        return extents[0] >= 1 && extents[0] <= MOST_CLUSTER && extents[1] == 1 && extents[2] == 1;
    }
    return true;
}

qn_status raw_cuda_shape(const tile_kernel *k, const launch_plan *plan, const cuda_target *target, cuda_shape *out,
                         qn_error *error)
{
    const int64_t *grid = plan->programs[RAW_GRID], *block = plan->programs[RAW_BLOCK];
    int64_t shared = plan->programs[RAW_SHARED][0], most = MOST_SHARED_BYTES, threads = 1;
    char words[200];
    if (target && target->shared_bytes) most = target->shared_bytes;
    *out = (cuda_shape){.grid = {grid[0], grid[1], grid[2]}, .cluster = 1, .shared_bytes = shared};
    for (int i = 0; i < 3; i++) threads *= MINIMUM(block[i], (int64_t)1 << 20);
    if (threads < 1 || threads > GPU_BLOCK_THREADS || block[2] > 64) {
        snprintf(words, sizeof(words), "`%s` wants blocks of %lld x %lld x %lld = %lld threads; a block has 1 to %d%s",
                 k->name, (long long)block[0], (long long)block[1], (long long)block[2], (long long)threads,
                 GPU_BLOCK_THREADS, threads > GPU_BLOCK_THREADS ? "" : ", at most 64 on the third axis");
        return too_much(k, RAW_BLOCK, words, error);
    }
    if (grid[0] > GPU_GRID_X || grid[1] > GPU_GRID_YZ || grid[2] > GPU_GRID_YZ) {
        snprintf(words, sizeof(words), "`%s` wants %lld x %lld x %lld blocks; at most %d x %d x %d are possible",
                 k->name, (long long)grid[0], (long long)grid[1], (long long)grid[2], GPU_GRID_X, GPU_GRID_YZ,
                 GPU_GRID_YZ);
        return too_much(k, RAW_GRID, words, error);
    }
    if (shared > most) {
        snprintf(words, sizeof(words), "`%s` wants %lld bytes of shared memory; a block can have %lld", k->name,
                 (long long)shared, (long long)most);
        return too_much(k, RAW_SHARED, words, error);
    }
    int64_t cluster;
    if (!cluster_of(k, &cluster)) {
        snprintf(words, sizeof(words), "`%s`: __cluster_dims__ gives 1 to %d blocks along the first axis, as numbers",
                 k->name, MOST_CLUSTER);
        return too_much(k, RAW_GRID, words, error);
    }
    if (grid[0] % cluster) {
        snprintf(words, sizeof(words), "`%s` wants %lld blocks in clusters of %lld: launch a multiple of that", k->name,
                 (long long)grid[0], (long long)cluster);
        return too_much(k, RAW_GRID, words, error);
    }
    out->cluster = (int)cluster;
    out->threads = (int)threads;
    for (int i = 0; i < 3; i++) out->block[i] = (int)block[i];
    return QN_OK;
}
