/*
 * Tile IR to C: the translation unit, its phase functions, scalars and control flow.
 *
 * In: a kernel that went through the pipeline. Out: C text without headers: the structs of emit.h's ABI, the parts of
 * the prelude that are used, one function per phase that runs programs first .. last-1, and NAME_scratch_bytes.
 * Scalars are C locals named after the source; tile ops become loop nests (schedule/plan.c, c/nest.c).
 * SPDX-License-Identifier: MIT
 */
#include "emit/c/nest.h"
#include "emit/prelude.h"
#include "emit/raw/raw.h"

#include <string.h>

void put(emitter *e, const char *format, ...)
{
    for (int i = 0; i < e->depth; i++) text_add(e->out, "    ");
    va_list list;
    va_start(list, format);
    text_print_list(e->out, format, list);
    va_end(list);
    text_add(e->out, "\n");
}

/* A line of source without its own comment. */
static void add_comment(text *words, const char *source)
{
    const char *end = source;
    while (*end && *end != '\n' && !(end[0] == '/' && end[1] == '/')) end++;
    text_add_escaped(words, ESCAPE_COMMENT, source, (size_t)(end - source));
    while (words->length && words->data[words->length - 1] == ' ') words->data[--words->length] = 0;
}

void emit_add_title(const tile_kernel *k, const char *what, const char *end, text *out)
{
    const char *name = k->raw_instance ? k->raw_instance : k->name;
    text_print(out, "/* %s ", what);
    text_add_escaped(out, ESCAPE_COMMENT, name, strlen(name));
    if (k->file) text_add(out, " of ");
    if (k->file) text_add_escaped(out, ESCAPE_COMMENT, k->file, strlen(k->file));
    text_print(out, "%s. */\n", end);
}

void emit_add_line(int line, const char *file, text *out)
{
    text_print(out, "#line %d \"", line);
    text_add_escaped(out, ESCAPE_STRING, file, strlen(file));
    text_add(out, "\"\n");
}

void emit_title(const tile_kernel *k, text *out)
{
    emit_add_title(k, "Kernel", ", by Quern", out);
    for (int i = 0; i < k->source_line_count && !k->file; i++) {
        text words = {0};
        add_comment(&words, k->source_lines[i]);
        text_print(out, "/* %d: %s */\n", i + 1, text_get(&words));
        text_free(&words);
    }
}

void emit_directive(const emitter *e, int line, text *out)
{
    if (!e->options->line_directives || !e->k->file || !line) return;
    const char *path = tile_place(e->k, &line);
    emit_add_line(line, path, out);
}

void put_line_comment(emitter *e, const tile_op *op)
{
    const tile_kernel *k = e->k;
    if (!op->line) return;
    if (op->line == e->line) {
        if (e->cuda) emit_directive(e, op->line, e->out); /* what stood between may be of another */
        return;
    }
    e->line = op->line;
    if (!k->source_lines || op->line > k->source_line_count) return;
    const char *source = k->source_lines[op->line - 1];
    source += strspn(source, " \t");
    text words = {0};
    add_comment(&words, source);
    put(e, "/* %d: %s */", op->line, text_get(&words));
    text_free(&words);
    emit_directive(e, op->line, e->out);
}

void emit_failure(emitter *e, int kind, int line)
{
    e->survey->has_assert = true;
    put(e, "if (!__atomic_exchange_n(&launch->report->failed, %d, __ATOMIC_ACQ_REL)) {", kind);
    put(e, "    launch->report->line = %d;", line);
    for (int i = 0; i < 3; i++) put(e, "    launch->report->program[%d] = program%d;", i, i);
    put(e, "}");
    put(e, "goto next_program;");
}

/* ---- scalars ---- */

static const char *argument_text(emitter *e, int parameter)
{
    const tile_param *p = &e->k->params[parameter];
    const char *bits = arena_print(e->memory, "launch->scalars[%d]", parameter);
    if (dtype_is_float(p->elem))
        return arena_print(e->memory, "(%s)((union { long bits; double number; }){.bits = %s}).number",
                           scalar_c_type(p->elem), bits);
    if (p->elem == DT_BOOL) return arena_print(e->memory, "%s != 0", bits);
    return p->elem == DT_I64 ? bits : arena_print(e->memory, "(%s)%s", scalar_c_type(p->elem), bits);
}

/* A load, store or atomic of one element: a nest without loops. */
static void emit_scalar_access(emitter *e, tile_op *op)
{
    nest n = {.e = e, .position = "j"};
    place at;
    for (int i = 0; i < MAX_RANK; i++) at.axis[i] = NO_AXIS;
    value result = op->result_count ? op->results[0] : 0;
    address a = access_address(&n, op, at);
    reg r = {0};
    if (op->code == OP_LOAD) {
        r = address_load(&n, 0, a);
    } else if (op->code == OP_STORE) {
        address_store(&n, a, nest_value(&n, op->operands[0], at), false);
    } else {
        reg expected = op->attr.atomic == ATOMIC_CAS ? nest_value(&n, op->operands[1], at) : r;
        bool kept = e->survey->uses[result] != 0;
        r.words = fresh_name(e, result);
        if (kept) put_at(&n, 0, "%s %s = 0;", scalar_c_type(a.elem), r.words);
        address_atomic(&n, a, op, nest_value(&n, op->operands[0], at), expected, kept, r.words);
        if (!kept) result = 0;
    }
    const char *lines = text_get(&n.level[0]);
    while (*lines) {
        size_t length = strcspn(lines, "\n");
        put(e, "%.*s", (int)length, lines);
        lines += length + (lines[length] == '\n');
    }
    if (result) emit_declare(e, result, r.words);
    text_free(&n.level[0]);
}

void emit_scalar_op(emitter *e, tile_op *op)
{
    value result = op->result_count ? op->results[0] : 0;
    const char *operands[3] = {0};
    for (int i = 0; i < op->operand_count && i < 3; i++) operands[i] = emit_name(e, op->operands[i]);
    if (emit_plain_scalar(e, op, operands)) return;
    switch (op->code) {
    case OP_ARG: emit_declare(e, result, argument_text(e, op->attr.index)); return;
    case OP_LOAD:
    case OP_STORE:
    case OP_ATOMIC: emit_scalar_access(e, op); return;
    case OP_ASSERT: {
        text condition = {0};
        text_print(&condition, "!%s", operands[0]);
        for (int i = 1; i < op->operand_count; i++) text_print(&condition, " && %s", emit_name(e, op->operands[i]));
        put(e, "if (%s) {", text_get(&condition));
        text_free(&condition);
        e->depth++;
        emit_failure(e, CPU_FAILED_ASSERT, op->line);
        e->depth--;
        put(e, "}");
        return;
    }
    default: emit_declare(e, result, expression(e, op, operands, false)); return;
    }
}

/* ---- control flow ---- */

static void emit_for(emitter *e, tile_op *op)
{
    tile_block *body = op->regions[0];
    const value *carried = body->args + 1;
    const tile_op *around = e->loop;
    int begin = e->survey->time;
    emit_declare_variables(e, carried, op->operands + 3, op->result_count);
    emit_for_head(e, op);
    e->depth++;
    e->loop = op;
    emit_block(e, body);
    e->loop = around;
    emit_assign(e, emit_last_op(body), carried);
    buffer_loop_ends(e->survey, begin);
    e->depth--;
    put(e, "}");
    emit_declare_results(e, op, carried);
}

static void emit_while(emitter *e, tile_op *op)
{
    tile_block *test = op->regions[0], *body = op->regions[1];
    int begin = e->survey->time;
    emit_declare_variables(e, test->args, op->operands, op->result_count);
    put(e, "for (;;) {");
    e->depth++;
    emit_block(e, test);
    put(e, "if (!%s) break;", emit_name(e, emit_last_op(test)->operands[0]));
    for (int i = 0; i < body->arg_count; i++)
        if (!emit_is_tile(e, body->args[i])) emit_declare(e, body->args[i], emit_name(e, test->args[i]));
    emit_block(e, body);
    emit_assign(e, emit_last_op(body), test->args);
    buffer_loop_ends(e->survey, begin);
    e->depth--;
    put(e, "}");
    emit_declare_results(e, op, test->args);
}

static void emit_if(emitter *e, tile_op *op)
{
    emit_declare_arms(e, op);
    put(e, "if (%s) {", emit_name(e, op->operands[0]));
    for (int r = 0; r < op->region_count; r++) {
        tile_block *arm = op->regions[r];
        bool empty = arm->op_count == 1 && !op->result_count;
        if (r && empty) break;
        if (r) put(e, "} else {");
        e->depth++;
        emit_block(e, arm);
        emit_assign_arm(e, op, arm);
        e->depth--;
    }
    put(e, "}");
}

static void emit_nodes(emitter *e, const loop_node *n)
{
    for (; n; n = n->next) {
        e->survey->time++;
        if (n->code == LOOP_PRODUCTS && n->number[0]) {
            emit_stored_loop(e, n->items);
            continue;
        }
        tile_op *op = n->items->op;
        op_code code = op ? op->code : OP_NONE;
        if (op && ops[code].class != CLASS_LEAF && code != OP_YIELD && code != OP_CONDITION) put_line_comment(e, op);
        switch (n->code) {
        case LOOP_LET: emit_scalar_op(e, op); break;
        case LOOP_GROUP: emit_group(e, n->items->group); break;
        case LOOP_DOT: emit_dot(e, op); break;
        case LOOP_SCAN: emit_scan(e, op); break;
        case LOOP_FOLD: emit_fold_buffer(e, op); break;
        case LOOP_PRINT: emit_print(e, op); break;
        case LOOP_PRODUCTS: emit_loop_of_products(e, op, loop_is_product(e->survey, op)); break;
        case LOOP_FOR: emit_for(e, op); break;
        case LOOP_WHILE: emit_while(e, op); break;
        case LOOP_IF: emit_if(e, op); break;
        default: CHECK(n->code == LOOP_YIELD);
        }
    }
}

void emit_block(emitter *e, const tile_block *b)
{
    const worker_block *planned = worker_find(e->worker, b);
    if (e->prefetches && e->loop && e->loop->regions[0] == b) ahead_plan(e, &planned->plan);
    emit_nodes(e, planned->first);
}

/* ---- phases and the unit ---- */

static void put_arrays(emitter *e)
{
    const char *own = "0"; /* bytes of the scratch memory that counts take */
    for (int p = 0; p < e->k->param_count; p++) {
        const tile_param *param = &e->k->params[p];
        if (!e->array_used[p]) continue;
        if (e->counted[p].elements)
            counts_begin(e, p, &own);
        else
            put(e, "%s *const restrict %s_array = launch->arrays[%d].data;", memory_type(param->elem), param->name, p);
        for (int i = 0; i < NAMED_COUNT * param->rank; i++) {
            const char *what = i % 2 ? "stride" : "extent";
            if (e->array_named[p][i / 2][i % 2])
                put(e, "const long %s_%s%d = launch->arrays[%d].%ss[%d];", param->name, what, i / 2, p, what, i / 2);
        }
    }
}

/* Linear numbers count axis 0 fastest; they are taken apart once, then counted on. A pipeline takes as many more steps
 * as it has stages to be drained, in which the first stage does nothing. */
static void put_programs(emitter *e, int axes, int stages)
{
    const char *steps =
        arena_print(e->memory, "for (long step = first; first < last && step < last + %d; step++) {", stages - 1);
    if (axes == 1) {
        put(e, "%s", stages ? steps : "for (long program = first; program < last; program++) {");
        put(e, "    const long program0 = %s%s;", stages ? "step < last ? step : last - 1" : "program",
            e->survey->has_assert || e->survey->prints ? ", program1 = 0, program2 = 0" : "");
        return;
    }
    put(e, "long program0 = first %% launch->programs[0];");
    put(e, "long program1 = first / launch->programs[0] %% launch->programs[1];");
    put(e, "long program2 = first / launch->programs[0] / launch->programs[1];");
    put(e, "%s", stages ? steps : "for (long program = first; program < last; program++) {");
}

static void put_next_program(emitter *e, int axes, int stages)
{
    if (e->survey->has_assert) put(e, "next_program:;");
    if (axes > 1) {
        put(e, "    if (%s++program0 == launch->programs[0]) {", stages ? "step + 1 < last && " : "");
        put(e, "        program0 = 0;");
        put(e, "        if (++program1 == launch->programs[1]) {");
        put(e, "            program1 = 0;");
        put(e, "            program2++;");
        put(e, "        }");
        put(e, "    }");
    }
    put(e, "}");
}

static void emit_phase(emitter *e, int phase, text *functions, text *scratch)
{
    const tile_kernel *k = e->k;
    int count = k->value_count;
    e->worker = loops_worker(e->survey, phase, e->memory);
    e->loaded_in = arena_alloc(e->memory, sizeof(*e->loaded_in) * (size_t)count);
    e->ahead_in = ARENA_ARRAY(e->memory, int, count);
    e->prefetches = false;
    for (int p = 0; p < k->param_count; p++) e->prefetches |= k->params[p].facts.streams;
    arrays_forget(e);
    e->counted = counted_arrays(e->survey, phase);
    e->streams = e->overlaps = false;
    e->line = 0;
    e->phase = phase;
    text body = {0}, before = {0};
    e->out = &body;
    e->depth = 2;
    const worker_block *block = worker_find(e->worker, k->phases[phase]);
    int stages = emit_pipeline(e, &block->plan, &before);
    if (!stages) emit_nodes(e, block->first);
    e->prints |= e->survey->prints;
    e->out = functions;
    e->depth = 0;
    put(e, "%sint %s_phase%d(const launch_info *launch, long first, long last, void *scratch)",
        e->overlaps ? arena_print(e->memory, "%s ", need(e, "OVERLAP")) : "", k->name, phase);
    put(e, "{");
    e->depth = 1;
    put_arrays(e);
    buffer_declare_all(e, counts_bytes(e), functions);
    int axes = launch_axes(k, phase);
    text_add(functions, text_get(&before));
    put_programs(e, axes, stages);
    text_add(functions, text_get(&body));
    put_next_program(e, axes, stages);
    for (int i = 1; i < e->survey->buffer_count; i++)
        if (e->survey->buffers[i].run_time) put(e, "free(b%d);", i);
    counts_end(e);
    if (e->streams) put(e, "%s();", need(e, "stream_fence"));
    put(e, "return 0;");
    e->depth = 0;
    put(e, "}");
    put(e, "%s", "");
    e->depth = 2;
    text_add(scratch, "    {\n");
    buffer_scratch(e, counts_bytes(e), scratch);
    text_add(scratch, "        if (bytes > most) most = bytes;\n    }\n");
    text_free(&body);
    text_free(&before);
}

static const char abi_text[] = "typedef struct { long failed, line, program[3]; } report_info;\n"
                               "typedef struct {\n"
                               "    const array_info *arrays;\n"
                               "    const long *scalars;\n"
                               "    long programs[3];\n"
                               "    report_info *report;\n"
                               "    void (*print)(void *context, const char *line);\n"
                               "    void *print_context;\n"
                               "} launch_info;\n"
                               "int snprintf(char *, unsigned long, const char *, ...);\n"
                               "void *realloc(void *, unsigned long);\n"
                               "void free(void *);\n";

static const char lanes_text[] = "static inline int lane_of(long x, long first)\n"
                                 "{\n"
                                 "    long lane;\n"
                                 "    if (__builtin_sub_overflow(x, first, &lane)) return x < first ? -1 : 16;\n"
                                 "    return lane < -1 ? -1 : lane > 16 ? 16 : (int)lane;\n"
                                 "}\n"
                                 "static inline mask16 lanes_between(long first, long last)\n"
                                 "{\n"
                                 "    first = first < 0 ? 0 : first > 16 ? 16 : first;\n"
                                 "    last = last < 0 ? 0 : last > 16 ? 16 : last;\n"
                                 "    return first_mask(last) & ~first_mask(first);\n"
                                 "}\n";

qn_status emit_c(const tile_kernel *k, const emit_options *options, text *out, qn_error *error)
{
    if (k->raw_language) return emit_raw_c(k, out, error);
    static const emit_options standard = {.vector_bytes = 64, .vector_registers = 32};
    emitter e = {.k = k, .options = options ? options : &standard, .memory = arena_new()};
    e.name_set = map_new(e.memory);
    survey survey;
    loops_survey(k, e.memory, &survey);
    e.survey = &survey;
    e.facts = survey.facts;
    text functions = {0}, scratch = {0};
    for (int p = 0; p < k->phase_count; p++) emit_phase(&e, p, &functions, &scratch);
    emit_title(k, out);
    text_print(out, "typedef struct { void *data; long extents[%d], strides[%d]; } array_info;\n", MAX_RANK, MAX_RANK);
    text_add(out, abi_text);
    if (k->precise) text_add(out, "#define PRECISE\n");
    const char *unknown = NULL;
    qn_status status = QN_OK;
    if (!prelude_emit(e.names, e.name_count, out, &unknown))
        status =
            error_set(error, QN_FAILED, "kernel %s: the CPU has no function \"%s\"", k->name, unknown ? unknown : "?");
    if (e.needs_lanes) text_add(out, lanes_text);
    if (e.prints) text_add(out, print_text);
    text_add(out, "\n");
    text_add(out, text_get(&functions));
    text_print(out, "unsigned long %s_scratch_bytes(const launch_info *launch)\n{\n    unsigned long most = 0;\n",
               k->name);
    text_add(out, text_get(&scratch));
    text_add(out, "    return most;\n}\n");
    text_free(&functions);
    text_free(&scratch);
    arena_free(e.memory);
    return status;
}
