/*
 * The C emitter, op by op: every elementwise op on every element type it takes, on vectors and on scalars, against the
 * interpreter.
 * SPDX-License-Identifier: MIT
 */
#include "emitted.h"

typedef struct op_case {
    op_code code;
    dtype from, to; /* to: of the result */
} op_case;

static bool op_takes(op_code code, dtype t)
{
    const char *kinds = ops[code].types;
    return strchr(kinds, dtype_is_float(t) ? 'F' : t == DT_BOOL ? 'B' : 'I') != NULL;
}

static int list_ops(op_case *list)
{
    int count = 0;
    for (dtype t = 0; t < DT_COUNT; t++) {
        for (op_code code = OP_NONE; code < OP_COUNT; code++) {
            op_class class = ops[code].class;
            if (class != CLASS_UNARY && class != CLASS_BINARY && class != CLASS_COMPARE && class != CLASS_TERNARY)
                continue;
            bool half = t == DT_F16 || t == DT_BF16;
            if (!op_takes(code, t) || (half && code != OP_CONVERT && code != OP_BITCAST && code != OP_SELECT)) continue;
            if (code == OP_TF32 && t != DT_F32) continue;
            if (code == OP_PHILOX && t != DT_I64) continue;
            for (dtype to = 0; to < DT_COUNT; to++) {
                bool same = dtypes[to].size_bytes == dtypes[t].size_bytes && t != DT_BOOL && to != DT_BOOL;
                bool fits = code == OP_CONVERT                ? to != t
                            : code == OP_BITCAST              ? same && to != t
                            : code == OP_PHILOX               ? to == DT_U32
                            : ops[code].result == RESULT_BOOL ? to == DT_BOOL
                                                              : to == t;
                if (fits) list[count++] = (op_case){code, t, to};
            }
        }
    }
    return count;
}

static tile_param array_param(const char *name, param_kind kind, dtype elem, int extent)
{
    tile_param p = {.name = name, .kind = kind, .elem = elem, .rank = 1};
    p.facts.size_class = -1;
    for (int i = 0; i < MAX_RANK; i++) p.extent_param[i] = -1;
    p.extent_param[0] = extent;
    return p;
}

static value constant(tile_kernel *k, tile_block *b, dtype t, int64_t i, double f)
{
    tile_op *op = tile_op_new(k, OP_CONST, NULL, 0);
    op->attr.number = (number){.i = i, .f = f};
    tile_append(k, b, op);
    return tile_result(k, op, scalar_type(t));
}

/* Loads three inputs of a type, applies one op and stores: on whole arrays, or (scalars) one element a program. */
static tile_kernel *op_kernel(arena *memory, const op_case *list, int count, bool scalars)
{
    tile_kernel *k = tile_kernel_new(memory, "op_matrix", "op_matrix");
    tile_param extent = {.name = "n", .kind = PARAM_EXTENT, .elem = DT_I64, .facts = {.size_class = -1}};
    int n = tile_param_add(k, extent);
    tile_block *b = tile_block_new(k);
    k->phases = ARENA_ARRAY(memory, tile_block *, 1);
    k->phases[0] = b;
    k->phase_count = 1;
    value counts[2];
    for (int i = 0; i < 2; i++) {
        tile_op *arg = tile_op_new(k, OP_ARG, NULL, 0);
        arg->attr.index = n;
        tile_append(k, i ? b : k->head, arg);
        counts[i] = tile_result(k, arg, scalar_type(DT_I64));
    }
    value one = constant(k, k->head, DT_I64, 1, 1);
    tile_op *launch = tile_op_new(k, OP_LAUNCH, scalars ? &counts[0] : &one, 1);
    tile_append(k, k->head, launch);
    value start = constant(k, b, DT_I64, 0, 0), step = constant(k, b, DT_I64, 1, 1);
    if (scalars) {
        tile_op *program = tile_op_new(k, OP_PROGRAM, NULL, 0);
        tile_append(k, b, program);
        start = tile_result(k, program, scalar_type(DT_I64));
    }
    value inputs[DT_COUNT][3] = {{0}};
    for (int c = 0; c < count; c++) {
        int operands = ops[list[c].code].count;
        value values[3];
        for (int i = 0; i < operands; i++) {
            dtype t = list[c].code == OP_SELECT && i == 0  ? DT_BOOL
                      : list[c].code == OP_PHILOX && i < 2 ? DT_U64
                                                           : list[c].from;
            if (!inputs[t][i]) {
                int p = tile_param_add(k, array_param(arena_print(memory, "%s_%d", dtypes[t].text, i), PARAM_IN, t, n));
                value indices[2] = {start, step};
                tile_op *load = tile_op_new(k, OP_LOAD, indices, scalars ? 1 : 2);
                load->attr.access = (struct access){.array = p, .rank = 1};
                load->attr.access.kind[0] = scalars ? INDEX_SCALAR : INDEX_SLICE;
                tile_type type = scalar_type(t);
                if (!scalars) type = (tile_type){.elem = t, .rank = 1, .dims = {-(int64_t)counts[1]}};
                tile_append(k, b, load);
                inputs[t][i] = tile_result(k, load, type);
            }
            values[i] = inputs[t][i];
        }
        if (list[c].code == OP_PHILOX && !scalars) { /* seed and offset are scalars */
            values[0] = constant(k, b, DT_U64, 77, 0);
            values[1] = constant(k, b, DT_U64, 5000000000, 0);
        }
        tile_op *op = tile_op_new(k, list[c].code, values, operands);
        op->attr.index = 2;
        tile_type type = tile_type_of(k, values[operands - 1]);
        type.elem = list[c].to;
        tile_append(k, b, op);
        value result = tile_result(k, op, type);
        int p = tile_param_add(k, array_param(arena_print(memory, "%s_%s_%s", ops[list[c].code].text,
                                                          dtypes[list[c].from].text, dtypes[list[c].to].text),
                                              PARAM_OUT, list[c].to, n));
        value stored[3] = {result, start, step};
        tile_op *store = tile_op_new(k, OP_STORE, stored, scalars ? 2 : 3);
        store->attr.access = (struct access){.array = p, .rank = 1, .first_index = 1};
        store->attr.access.kind[0] = scalars ? INDEX_SCALAR : INDEX_SLICE;
        tile_append(k, b, store);
    }
    return k;
}

static number matrix_input(dtype t, int64_t n, int which)
{
    static const double special[] = {0,    -0.0,  1,     -1,   INFINITY, -INFINITY, NAN, 0.5,   -2.5,
                                     1e30, -1e30, 1e-30, 88.5, -104,     3e9,       300, 70000, -129};
    static const int64_t whole[] = {0,          1,         -1,        2,     3,      7,     -7,        127,
                                    -128,       255,       256,       32767, -32768, 65535, INT32_MAX, INT32_MIN,
                                    UINT32_MAX, INT64_MAX, INT64_MIN, 31,    33,     64};
    int64_t at = which == 0 ? n : which == 1 ? n * 7 + 3 : n * 5 + 11;
    number x = {.f = special[at % COUNT(special)], .i = whole[at % COUNT(whole)]};
    if (n > 150) x.f = (random_unit() - 0.5) * 8;
    if (n > 150) x.i = (int64_t)(random_unit() * 1e6) - 500000;
    x.i = t == DT_BOOL ? x.i & 1 : integer_wrap(t, x.i);
    return x;
}

static void run_matrix(const op_case *list, int count, bool scalars)
{
    arena *memory = arena_new();
    tile_kernel *k = op_kernel(memory, list, count, scalars);
    qn_error error = {0};
    qn_status status = tile_verify(k, &error);
    text source = {0};
    if (status == QN_OK) status = emit_c(k, NULL, &source, &error);
    if (status != QN_OK) printf("%s\n", error.message);
    EXPECT(status == QN_OK);
    compiled code = {0};
    bool ready = status == QN_OK && compile(text_get(&source), &code);
    EXPECT(ready);
    if (ready) {
        launch_plan plan = launch_plan_new(memory, k->param_count);
        enum { SIZE = 250 };
        plan.scalars_bits[0] = SIZE;
        plan.programs[0][0] = scalars ? SIZE : 1;
        plan.programs[0][1] = plan.programs[0][2] = 1;
        array_view arrays[2][64] = {0};
        random_state = 99;
        for (int p = 1; p < k->param_count; p++) {
            dtype t = k->params[p].elem;
            for (int side = 0; side < 2; side++) {
                arrays[side][p] = (array_view){.elem = t, .rank = 1, .extents = {SIZE}, .strides = {1}};
                arrays[side][p].data = calloc(SIZE + 16, 8);
            }
            plan.extents[p][0] = SIZE;
            const char *name = k->params[p].name;
            for (int64_t n = 0; n < SIZE && k->params[p].kind == PARAM_IN; n++) {
                number x = matrix_input(t, n, name[strlen(name) - 1] - '0');
                for (int side = 0; side < 2; side++) element_write(t, element_at(&arrays[side][p], n), x);
            }
        }
        interp_options options = {.units = 2};
        findings found = {0};
        EXPECT(interp_run(k, arrays[0], &plan, &options, &found, &error) == QN_OK);
        findings_free(&found);
        cpu_report report = {0};
        run_compiled(k, &code, arrays[1], &plan, &report);
        for (int p = 1; p < k->param_count; p++) {
            EXPECT(compare(scalars ? "scalars" : "vectors", &k->params[p], &arrays[0][p], &arrays[1][p]));
            free(arrays[0][p].data);
            free(arrays[1][p].data);
        }
        dlclose(code.library);
    }
    text_free(&source);
    arena_free(memory);
}

TEST(every_op_on_every_type)
{
    static op_case list[1000];
    int count = list_ops(list);
    enum { STEP = 44 };
    for (int i = 0; i < count; i += STEP) {
        run_matrix(list + i, MINIMUM(STEP, count - i), false);
        run_matrix(list + i, MINIMUM(STEP, count - i), true);
    }
    EXPECT(count > 400);
    printf("note: %d ops on element types, as vectors and as scalars\n", count);
}

TEST_MAIN(CASE(every_op_on_every_type))
