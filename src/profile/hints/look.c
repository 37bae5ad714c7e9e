/*
 * Looking at a kernel of a profile again. In: the facts of a launch. Out: how its text touches memory (launch_look).
 *
 * Facts have the compiled variant and the shapes of the arrays in words ("x f32[3, 4], y f32[4, 3] by [1, 4]"): enough to
 * plan the launch once more, with scalars at their defaults, and to lay its text out as it was. Nothing is run.
 * SPDX-License-Identifier: MIT
 */
#include "profile/hints/hints.h"

#include "device/cuda/cuda.h"

#include <stdlib.h>
#include <string.h>

static const char *read_numbers(const char *at, int64_t *numbers, int *count)
{
    *count = 0;
    for (at++; *at && *at != ']' && *count < MAX_RANK; at += strspn(at, ", ")) {
        char *end;
        numbers[(*count)++] = strtoll(at, &end, 10);
        if (end == at) return NULL;
        at = end;
    }
    return *at == ']' ? at + 1 : NULL;
}

int shapes_read(const char *shapes, shape_words *out, int most)
{
    int count = 0;
    for (const char *at = shapes ? shapes : ""; *at && count < most; at += strspn(at, ", ")) {
        shape_words *w = &out[count];
        size_t name = strcspn(at, " "), type;
        if (!at[name]) return count;
        type = strcspn(at + name + 1, "[");
        *w = (shape_words){.name = at, .name_length = (int)name};
        char elem[16];
        snprintf(elem, sizeof(elem), "%.*s", (int)MINIMUM(type, sizeof(elem) - 1), at + name + 1);
        at += name + 1 + type;
        if (*at != '[' || !dtype_from_text(elem, &w->view.elem)) return count;
        at = read_numbers(at, w->view.extents, &w->view.rank);
        if (!at) return count;
        strides_set_row_major(w->view.rank, w->view.extents, w->view.strides);
        int rank = w->view.rank;
        if (!strncmp(at, " by [", 5)) at = read_numbers(at + 4, w->view.strides, &rank);
        if (!at || rank != w->view.rank) return count;
        count++;
    }
    return count;
}

double shape_bytes(const shape_words *w)
{
    double bytes = dtypes[w->view.elem].size_bytes;
    for (int axis = 0; axis < w->view.rank; axis++) bytes *= (double)w->view.extents[axis];
    return bytes;
}

static bool target_of(qn_context *context, const char *device, cuda_target *out)
{
    int slot;
    if (!context || !device || context_slot(context, device, &slot, NULL) != QN_OK) return false;
    const device_slot *s = &context->slots[slot];
    bool gpu = target_is_gpu(s->driver->name);
    *out = gpu ? ((const cuda_device *)s->device)->target : cuda_target_default(0);
    return target_runs_cuda(s->driver->name);
}

/* The arrays and the plan as they were at the launch. */
static bool plan_again(const tile_kernel *k, const record_facts *f, const cuda_target *target, array_view *views,
                       launch_plan *plan)
{
    static char nowhere[64] __attribute__((aligned(64)));
    bool given[MAX_PARAMS] = {false};
    number numbers[MAX_PARAMS] = {{0}};
    shape_words words[MAX_PARAMS];
    int count = shapes_read(f->shapes, words, MAX_PARAMS);
    for (int i = 0; i < k->param_count; i++) {
        const tile_param *p = &k->params[i];
        views[i] = (array_view){.elem = p->elem, .rank = p->rank};
        if (p->kind == PARAM_SCALAR && !p->has_default) { /* nobody knows: one */
            given[i] = true;
            numbers[i] = (number){1, 1};
        }
        for (int w = 0; w < count && p->kind < PARAM_SCRATCH; w++) {
            if (strlen(p->name) != (size_t)words[w].name_length || strncmp(p->name, words[w].name, strlen(p->name)))
                continue;
            if (words[w].view.rank != p->rank || words[w].view.elem != p->elem) return false;
            views[i] = words[w].view;
            views[i].data = nowhere;
        }
        if (p->kind < PARAM_SCRATCH && !views[i].data) return false;
    }
    qn_error ignored;
    return interp_head(k, given, numbers, views, target->multiprocessors, plan, &ignored) == QN_OK;
}

const launch_look *look_again(qn_context *context, const record_facts *f, arena *memory)
{
    const variant *v = f->variant;
    cuda_target target;
    array_view views[MAX_PARAMS];
    if (!v || v->kernel->raw_language || !target_of(context, f->device, &target)) return NULL;
    launch_plan *plan = ARENA_NEW(memory, launch_plan);
    *plan = launch_plan_new(memory, v->kernel->param_count);
    if (!plan_again(v->kernel, f, &target, views, plan)) return NULL;
    launch_look *look = ARENA_NEW(memory, launch_look);
    launch_look_make(v->kernel, &target, views, plan, memory, look);
    return look;
}
