/*
 * `show --stage schedule`, `layout` and `loops`: what was chosen for each phase of a kernel that went through the
 * pipeline, and what does not suit it and why.
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/phase.h"

#include <inttypes.h>
#include <string.h>

typedef struct shower { /* a kernel whose phases are looked at one by one */
    emitter e;
    survey survey;
    emit_options options;
    const cuda_target *target;
} shower;

static void shower_open(shower *w, const tile_kernel *k, const cuda_target *target)
{
    arena *memory = arena_new();
    *w = (shower){.e = {.k = k, .memory = memory}, .target = target};
    loops_survey(k, memory, &w->survey);
    w->e.options = &w->options;
    w->e.name_set = map_new(memory);
    w->e.facts = w->survey.facts;
    w->e.survey = &w->survey;
}

static void shower_close(shower *w)
{
    arena_free(w->e.memory);
}

/* A phase whose warps have roles. */
static void print_roles(const loop_program *program, text *out)
{
    const chained *c = program->chained;
    if (c)
        text_print(out,
                   "launch of phase %d: chained products, %d of scores and %d of sums, %d rows a program, %d a step\n",
                   program->phase, c->product_count, c->sum_count, c->rows, c->columns);
    else
        schedule_print(program->schedule, out);
}

/* A phase that is spread over threads, behind its first line. */
static qn_status print_spread(shower *w, int phase, text *out, qn_error *error)
{
    bool joined = false;
    const cuda_state *c = w->e.cuda;
    spread_print(&w->survey, out);
    text_print(out, "  shared memory: %" PRId64 " bytes a program; barriers: %d\n", c->spread->shared_bytes,
               c->program.barriers);
    if (phase + 1 < w->e.k->phase_count) QN_TRY(cuda_phase_join(&w->e, phase + 1, w->target, &joined, error));
    if (joined) text_add(out, "  with few blocks the last of them goes on with the next phase\n");
    return QN_OK;
}

qn_status emit_layout_print(const tile_kernel *k, const cuda_target *target, text *out, qn_error *error)
{
    if (k->raw_language) return error_set(error, QN_BAD_CALL, "raw kernel `%s` has no layout", k->name);
    shower w;
    qn_status status = QN_OK;
    shower_open(&w, k, target);
    for (int p = 0; p < k->phase_count && status == QN_OK; p++) {
        const char *why[2];
        loop_program program;
        const sched_machine machine = cuda_machine(target);
        if (loops_roles(k, p, &machine, w.e.memory, &program, why)) {
            print_roles(&program, out);
            continue;
        }
        status = cuda_phase(&w.e, p, target, error);
        if (status != QN_OK) break;
        text_print(out, "%s, phase %d, sm_%d\n", k->name, p, target->arch);
        status = print_spread(&w, p, out, error);
    }
    shower_close(&w);
    return status;
}

qn_status emit_schedule_print(const tile_kernel *k, const cuda_target *target, bool loops, text *out, qn_error *error)
{
    if (k->raw_language) return error_set(error, QN_BAD_CALL, "raw kernel `%s` has no schedule", k->name);
    shower w;
    qn_status status = QN_OK;
    shower_open(&w, k, target);
    text_print(out, "schedule %s\n", k->name);
    for (int p = 0; p < k->phase_count && status == QN_OK; p++) {
        const char *why[2];
        const sched_machine machine = cuda_machine(target);
        loop_program program = {0};
        if (loops_roles(k, p, &machine, w.e.memory, &program, why)) {
            print_roles(&program, out);
        } else {
            status = cuda_phase(&w.e, p, target, error);
            if (status != QN_OK) break;
            program = w.e.cuda->program; /* before another phase is looked at */
            text_print(out, "launch of phase %d: spread over threads%s%s\n", p,
                       why[1]   ? "; its products are not chained: "
                       : why[0] ? "; its product is not fed: "
                                : "",
                       why[1]   ? why[1]
                       : why[0] ? why[0]
                                : "");
            status = print_spread(&w, p, out, error);
        }
        if (loops) loops_print(&program, out);
    }
    shower_close(&w);
    return status;
}
