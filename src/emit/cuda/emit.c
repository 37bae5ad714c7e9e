/*
 * Tile IR to CUDA C: the translation unit and its phases.
 *
 * In: a kernel that went through the pipeline, and a target. Out: text without headers: the parts of the prelude that
 * are used, the frame, one __global__ function per phase that runs all its programs, team by team. Each is printed from its
 * loop program (cuda/loops.c, cuda/chained.c, cuda/phase.c), and what was chosen is noted for the
 * launches (geometry.c), so that nothing is emitted again at load. Scalars are locals named after the source; tile ops
 * become passes (schedule/plan.c, cuda/nest.c).
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/access_notes.h"
#include "emit/cuda/phase.h"
#include "emit/cuda/prelude.h"
#include "emit/raw/raw.h"

#include <inttypes.h>
#include <string.h>

/* ---- text around the body ---- */

static void put_frame(emitter *e)
{
    const tile_kernel *k = e->k;
    put(e, "struct %s_frame {", k->name);
    e->depth++;
    for (int p = 0; p < k->param_count; p++) {
        const tile_param *param = &k->params[p];
        if (param->kind >= PARAM_SCALAR) {
            put(e, "%s %s;", dtype_is_float(param->elem) ? "double" : "long", param->name);
            continue;
        }
        put(e, "%s *%s_array;", memory_type(param->elem), param->name);
        for (int what = 0; what < 2 && param->rank; what++) {
            text names = {0};
            for (int i = 0; i < param->rank; i++)
                text_print(&names, "%s%s_%s%d", i ? ", " : "", param->name, what ? "stride" : "extent", i);
            put(e, "long %s;", text_get(&names));
            text_free(&names);
        }
    }
    put(e, "long programs[3];");
    put(e, "long *report;");
    put(e, "char *scratch;");
    put(e, "unsigned *sync;");
    put(e, "long *print;");
    put(e, "long units;");
    e->depth--;
    put(e, "};");
}

void cuda_put_arrays(emitter *e)
{
    for (int p = 0; p < e->k->param_count; p++) {
        const tile_param *param = &e->k->params[p];
        if (param->kind >= PARAM_SCALAR || !e->array_used[p]) continue;
        put(e, "%s *const __restrict__ %s_array = frame.%s_array;", memory_type(param->elem), param->name, param->name);
        for (int i = 0; i < NAMED_COUNT * param->rank; i++) {
            const char *name = arena_print(e->memory, "%s_%s%d", param->name, i % 2 ? "stride" : "extent", i / 2);
            if (e->array_named[p][i / 2][i % 2]) put(e, "const long %s = frame.%s;", name, name);
        }
    }
}

/* The scalar ops that a run-time size is computed from, once each. */
static void declare_extent(emitter *e, value v, bool *declared)
{
    if (declared[v]) return;
    declared[v] = true;
    const tile_op *op = tile_def(e->k, v);
    for (int i = 0; i < op->operand_count; i++) declare_extent(e, op->operands[i], declared);
    if (op->code != OP_CONST) cuda_scalar_op(e, op);
}

static const char *run_time_bytes(emitter *e, int number)
{
    const buffer *b = &e->survey->buffers[number];
    const char *words = arena_print(e->memory, "%dL", dtypes[b->elem].size_bytes);
    for (int i = 0; i < b->shape.rank; i++) words = cjoin(e, words, "*", extent_text(e, b->shape.dims[i]));
    return arena_print(e->memory, "(%s + 255) / 256 * 256", words);
}

static const char *buffer_title(const emitter *e, int number)
{
    for (int v = 1; v < e->k->value_count; v++)
        if (e->survey->buffer_of[v] == number && e->k->values[v].name) return e->k->values[v].name;
    return "a tile";
}

/* Homes in memory: pointers, before the loop over programs. */
static void put_homes(emitter *e)
{
    cuda_state *c = e->cuda;
    bool scratch = false, lanes = c->spread->team.kind == TEAM_LANES;
    for (int i = 1; i < c->spread->kept_count; i++) {
        const kept *k = &c->spread->kept[i];
        if (!k->touched || k->kind == HOME_REGISTERS) continue;
        const char *type = memory_type(e->survey->buffers[i].elem);
        if (k->kind == HOME_SHARED)
            put(e, "%s *const b%d = (%s *)(shared_room%s + %" PRId64 "); /* %s */", type, i, type,
                lanes ? arena_print(e->memory, " + team_in_block * %" PRId64, c->spread->shared_bytes) : "", k->offset,
                buffer_title(e, i));
        else
            put(e, "%s *b%d; /* %s, in scratch */", type, i, buffer_title(e, i));
        scratch |= k->kind == HOME_SCRATCH;
    }
    if (!scratch) return;
    put(e, "{");
    e->depth++;
    bool *declared = ARENA_ARRAY(e->memory, bool, e->k->value_count);
    for (int i = 1; i < c->spread->kept_count; i++) {
        if (!c->spread->kept[i].touched || c->spread->kept[i].kind != HOME_SCRATCH || c->spread->kept[i].bytes)
            continue;
        for (int axis = 0; axis < e->survey->buffers[i].shape.rank; axis++)
            if (e->survey->buffers[i].shape.dims[axis] < 0)
                declare_extent(e, (value)-e->survey->buffers[i].shape.dims[axis], declared);
    }
    put(e, "long room = 0;");
    for (int pass = 0; pass < 2; pass++) {
        if (pass) put(e, "char *at = frame.scratch + team_index * room;");
        for (int i = 1; i < c->spread->kept_count; i++) {
            const kept *k = &c->spread->kept[i];
            if (!k->touched || k->kind != HOME_SCRATCH) continue;
            const char *bytes =
                k->bytes ? arena_print(e->memory, "%" PRId64 "L", (k->bytes + 255) / 256 * 256) : run_time_bytes(e, i);
            if (pass) put(e, "b%d = (%s *)at;", i, memory_type(e->survey->buffers[i].elem));
            put(e, "%s += %s;", pass ? "at" : "room", bytes);
        }
    }
    e->depth--;
    put(e, "}");
}

/* As many lanes as the row needs: a power of two, as geometry.c counts them. */
static void put_lanes(emitter *e)
{
    const team *t = &e->cuda->spread->team;
    put(e, "int threads = 1;");
    put(e, "while (threads < 32 && threads * %d < frame.%s%s) threads *= 2;", t->share, e->k->params[t->row_param].name,
        t->over ? arena_print(e->memory, " + %d", t->over) : "");
}

static void put_team(emitter *e)
{
    const cuda_state *c = e->cuda;
    const team *t = &c->spread->team;
    bool loops = spread_loops_over_programs(c->spread);
    if (c->spread->before) {
        put(e, "const int threads = %s;", t->threads ? arena_print(e->memory, "%d", t->threads) : "blockDim.x");
        put(e, "const int thread = threadIdx.x;");
        put(e, "(void)threads, (void)thread;");
        return;
    }
    if (t->kind != TEAM_GRID) put(e, "const long block_index = (long)blockIdx.y * gridDim.x + blockIdx.x;");
    if (t->kind != TEAM_GRID && loops) put(e, "const long block_count = (long)gridDim.x * gridDim.y;");
    switch (t->kind) {
    case TEAM_LANES:
        if (t->threads)
            put(e, "const int threads = %d;", t->threads);
        else
            put_lanes(e);
        put(e, "const int thread = threadIdx.x %% threads, team_in_block = threadIdx.x / threads;");
        put(e, "const unsigned team_mask = threads >= 32 ? 0xffffffffu : ((1u << threads) - 1) << (threadIdx.x %% 32 / "
               "threads * threads);");
        put(e, "const long team_index = block_index * (blockDim.x / threads) + team_in_block;");
        if (loops) put(e, "const long team_count = block_count * (blockDim.x / threads);");
        put(e, "(void)team_mask, (void)team_in_block;");
        break;
    case TEAM_BLOCK:
        if (t->threads)
            put(e, "const int threads = %d;", t->threads);
        else
            put(e, "const int threads = blockDim.x;");
        put(e, "const int thread = threadIdx.x;");
        put(e, "const long team_index = block_index;");
        if (loops) put(e, "const long team_count = block_count;");
        break;
    case TEAM_CLUSTER:
        need(e, "cluster_barrier");
        put(e, "const int threads = (int)(cluster_size() * blockDim.x);");
        put(e, "const int thread = (int)(cluster_rank() * blockDim.x + threadIdx.x);");
        put(e, "const long team_index = block_index / cluster_size();");
        put(e, "bool met = false;");
        put(e, "cluster_appear();");
        break;
    case TEAM_GRID:
        if (t->one_team) {
            put(e, "const unsigned team_blocks = gridDim.x;");
        } else { /* as geometry.c counts them */
            put(e, "const long team_row = frame.%s + %d, team_step = %dL * blockDim.x;",
                e->k->params[t->row_param].name, t->over, t->share);
            put(e, "const unsigned team_blocks = team_row > team_step ? (team_row + team_step - 1) / team_step : 1;");
        }
        put(e, "const unsigned team_rank = blockIdx.x %% team_blocks;");
        put(e, "const long team_index = blockIdx.x / team_blocks, team_count = gridDim.x / team_blocks;");
        put(e, "unsigned *const team_word = frame.sync + team_index * 32;");
        put(e, "long *const team_parts = (long *)(frame.sync + 32 * team_count) + team_index * 2 * team_blocks;");
        put(e, "const int threads = (int)(team_blocks * blockDim.x);");
        put(e, "const int thread = (int)(team_rank * blockDim.x + threadIdx.x);");
        put(e, "(void)team_word, (void)team_parts;");
        break;
    }
}

static void put_programs(emitter *e, int axes)
{
    if (e->cuda->spread->before) {
        put(e, "if (frame.sync && %s(frame.sync)) {", need(e, "grid_last"));
        e->depth++;
        put(e, "const long program0 = 0, program1 = 0, program2 = 0;");
        put(e, "(void)program0, (void)program1, (void)program2;");
        return;
    }
    put(e, "const long program_count = frame.programs[0]%s%s;", axes > 1 ? " * frame.programs[1]" : "",
        axes > 2 ? " * frame.programs[2]" : "");
    need(e, "grid_begin");
    if (spread_loops_over_programs(e->cuda->spread)) {
        put(e, "const int thread_of_team = thread;");
        put(e, "for (long program = team_index + grid_begin(); program < program_count; program += team_count) {");
        e->depth++;
        put(e, "int thread = thread_of_team;");
        text_add(e->out, "#ifndef QUERN_EMU\n"); /* or the positions of all programs would be kept in registers */
        put(e, "asm volatile(\"\" : \"+r\"(thread));");
        text_add(e->out, "#endif\n");
    } else { /* as many teams as programs: nothing is carried from one to the next, which saves registers */
        put(e, "const long program = team_index;");
        put(e, "if (grid_begin() == 0 && program < program_count) {");
        e->depth++;
    }
    if (axes == 1) {
        put(e, "const long program0 = program, program1 = 0, program2 = 0;");
    } else if (axes == 2 &&
               e->k->knobs[KNOB_GROUP] > 1) { /* a wish of `tune`: runs along axis 0, each over all of axis 1 */
        put(e, "const long run = program / (%dL * frame.programs[1]), run_first = run * %dL;", e->k->knobs[KNOB_GROUP],
            e->k->knobs[KNOB_GROUP]);
        put(e, "const long run_rows = frame.programs[0] - run_first < %dL ? frame.programs[0] - run_first : %dL;",
            e->k->knobs[KNOB_GROUP], e->k->knobs[KNOB_GROUP]);
        put(e, "const long in_run = program - run_first * frame.programs[1];");
        put(e, "const long program0 = run_first + in_run %% run_rows, program1 = in_run / run_rows, program2 = 0;");
    } else {
        /* 64-bit division takes some hundred instructions, 32-bit some twenty: only where the counts need it. */
        put(e, "const long per_row = frame.programs[0] == 1    ? program");
        put(e, "                     : program_count >> 31 ? program / frame.programs[0]");
        put(e, "                                           : (long)((unsigned)program / (unsigned)frame.programs[0]);");
        put(e, "const long program0 = program - per_row * frame.programs[0];");
        put(e, "const long program2 = %s;",
            axes > 2 ? "frame.programs[1] == 1 ? per_row : program_count >> 31 ? per_row / frame.programs[1] : "
                       "(long)((unsigned)per_row / (unsigned)frame.programs[1])"
                     : "0");
        put(e, "const long program1 = per_row%s;", axes > 2 ? " - program2 * frame.programs[1]" : "");
    }
    put(e, "(void)program0, (void)program1, (void)program2;");
}

static void put_registers(emitter *e)
{
    const cuda_state *c = e->cuda;
    for (int i = 1; i < c->spread->kept_count; i++) {
        const kept *k = &c->spread->kept[i];
        if (!k->touched || k->kind != HOME_REGISTERS) continue;
        home_declare(e, i, buffer_title(e, i));
    }
}

/* All that e->cuda decided, around the statements of the phase. */
static text phase_text(emitter *e, int phase, const char *body)
{
    cuda_state *c = e->cuda;
    text words = {0};
    e->out = &words;
    e->depth = 1;
    if (c->fold_room) put(e, "__shared__ long fold_room[2][64];");
    if (c->fold_room) put(e, "int fold_turn = 0;");
    if (c->online_room)
        put(e, "__shared__ long online_room[2][%d];", c->spread->team.kind == TEAM_CLUSTER ? 32 * MOST_CLUSTER : 32);
    if (c->online_room) put(e, "int online_turn = 0;");
    if (c->column_room)
        put(e, "__shared__ long column_room[%d], column_places[%d];", c->spread->team.block, c->spread->team.block);
    if (c->spread_bytes) {
        put(e, "const int spread_share = %d;", c->spread_bytes);
        put(e, "__shared__ __align__(16) char spread_room[%d];", c->spread_bytes * c->spread->team.block);
    }
    if (c->broadcast_room)
        put(e, "__shared__ long broadcast_room[%d];", c->spread->team.kind == TEAM_LANES ? c->spread->team.block : 1);
    cuda_put_arrays(e);
    put_team(e);
    put_homes(e);
    put_programs(e, launch_axes(e->k, phase));
    put_registers(e);
    put(e, "{");
    text_add(&words, body);
    put(e, "}");
    if (e->survey->has_assert) {
        e->depth--;
        put(e, "%s:;", cuda_leave_label(e));
        e->depth++;
    }
    if (c->program.meets_again) put(e, "%s", barrier_text(e));
    e->depth--;
    put(e, "}");
    /* A fold is over when all have written to all: only another program, or one that was left, could still write. */
    if (c->spread->team.kind == TEAM_CLUSTER)
        put(e, spread_loops_over_programs(c->spread) || e->survey->has_assert ? "cluster_meet(met), cluster_barrier();"
                                                                              : "cluster_meet(met);");
    return words;
}

/* One launch: a phase, and the next one if the launch gives it a ticket. */
static qn_status put_launch(emitter *e, int phase, cuda_layout *layout, text *body, text *functions, qn_error *error)
{
    const tile_kernel *k = e->k;
    const cuda_state *c = e->cuda;
    bool joined = false;
    text words = phase_text(e, phase, text_get(body)), more = {0};
    qn_status status = QN_OK;
    if (phase + 1 < k->phase_count) status = cuda_phase_join(e, phase + 1, c->target, &joined, error);
    if (joined) cuda_layout_note_join(layout, phase, e);
    if (joined) cuda_phase_body(e, phase + 1, body);
    if (joined) more = phase_text(e, phase + 1, text_get(body));
    bool shared = c->spread->shared_bytes || c->spread->slot_bytes ||
                  (joined && (e->cuda->spread->shared_bytes || e->cuda->spread->slot_bytes));
    e->out = functions;
    e->depth = 0;
    size_t start = functions->length;
    /* What is joined must not take registers that the many blocks of the phase before need. */
    int blocks = c->spread->least_blocks;
    if (joined && !c->spread->has_many_places) blocks = MAXIMUM(blocks, MOST_THREADS / c->spread->team.block);
    put(e, "extern \"C\" __global__ void __launch_bounds__(%d, %d) %s_phase%d(const %s_frame frame)",
        c->spread->team.block, blocks, k->name, phase, k->name);
    put(e, "{");
    e->depth = 1;
    if (shared) put(e, "extern __shared__ __align__(16) char shared_room[];");
    put(e, "grid_call();");
    if (joined) put(e, "{");
    add_lines(functions, text_get(&words), joined);
    if (joined) {
        put(e, "}");
        put(e, "/* phase %d: one program, for which the last block stays where there are few */", phase + 1);
        put(e, "{");
        add_lines(functions, text_get(&more), 1);
        put(e, "}");
    }
    e->depth = 0;
    put(e, "}");
    put(e, "%s", "");
    /* Every line of a function says where it comes from: after a #line the compiler counts on. */
    if (e->options->line_directives) text_repeat(functions, start, "#line ");
    text_free(&words);
    text_free(&more);
    return status;
}

/* Of a checked build: a test that was proved to hold, and says so when it does not. */
static const char checked_text[] =
    "INLINE bool checked(bool inside, long *report, long line, long p0, long p1, long p2, long array)\n"
    "{\n"
    "    if (inside) return true;\n"
    "    report_failure(report, 2, line, p0, p1, p2);\n"
    "    report[5] = array;\n"
    "    return false;\n"
    "}\n";

static qn_status emit_unit(const tile_kernel *k, cuda_layout *layout, text *out, qn_error *error)
{
    const cuda_target *target = cuda_layout_target(layout);
    emit_options options = {.line_directives = target->line_directives};
    emitter e = {.k = k, .options = &options, .memory = cuda_layout_memory(layout)};
    e.name_set = map_new(e.memory);
    survey survey;
    loops_survey(k, e.memory, &survey);
    e.survey = &survey;
    e.facts = survey.facts;
    text functions = {0}, body = {0}, frame = {0};
    qn_status status = QN_OK;
    e.out = &frame;
    put_frame(&e);
    if (target->checked) need(&e, "report_failure");
    for (int p = 0; p < k->phase_count && status == QN_OK; p++) {
        const char *why[2];
        const sched_machine machine = cuda_machine(target);
        loop_program program;
        if (loops_roles(k, p, &machine, e.memory, &program, why)) {
            text wrong = {0};
            cuda_layout_note_roles(layout, &program);
            if (!loops_check(&program, e.memory, &wrong))
                status = error_set(error, QN_FAILED,
                                   "kernel `%s`: its program is not in order: %s; this is a mistake of "
                                   "Quern, please report it",
                                   k->name, text_get(&wrong));
            text_free(&wrong);
            emit_cuda_loops(&e, &program, &functions);
            continue;
        }
        status = cuda_phase(&e, p, target, error);
        if (status != QN_OK) break;
        cuda_phase_body(&e, p, &body);
        cuda_layout_note(layout, p, &e);
        status = put_launch(&e, p, layout, &body, &functions, error);
    }
    const char *unknown = NULL;
    if (status == QN_OK) {
        emit_title(k, out);
        if (!prelude_cuda_emit(e.names, e.name_count, out, &unknown))
            status = error_set(error, QN_FAILED, "kernel %s: the GPU has no function \"%s\"", k->name,
                               unknown ? unknown : "?");
        if (target->checked) text_add(out, checked_text);
        text_add(out, "\n");
        text_add(out, text_get(&frame));
        text_add(out, "\n");
        text_add(out, text_get(&functions));
    }
    text_free(&functions);
    text_free(&body);
    text_free(&frame);
    return status;
}

qn_status emit_cuda(const tile_kernel *k, const cuda_target *target, text *out, cuda_layout **layout, qn_error *error)
{
    cuda_layout *l = cuda_layout_open(k, target);
    qn_status status =
        k->raw_language ? emit_raw_cuda(k, cuda_layout_target(l), out, error) : emit_unit(k, l, out, error);
    if (layout && status == QN_OK && !k->raw_language)
        *layout = l;
    else
        cuda_layout_free(l);
    return status;
}
