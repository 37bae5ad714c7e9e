/*
 * Hints of kernels that were only compiled. In: a file and a kernel or tensor function, as for `show`. Out: what the
 * launch's shape, its registers and its accesses say, for each kernel.
 * SPDX-License-Identifier: MIT
 */
#include "profile/hints/hints.h"
#include "run/workbench/show.h"

#include <math.h>
#include <string.h>

typedef struct looked {
    arena *memory;
    hint_machine machine;
    const qn_hint_options *options;
    hint_input all; /* every kernel: for JSON, and for a text that ranks them together */
} looked;

static void take(void *user, const record_facts *facts, const launch_look *look)
{
    looked *l = user;
    record_facts *f = ARENA_NEW(l->memory, record_facts);
    launch_look *own = ARENA_NEW(l->memory, launch_look);
    *f = *facts;
    *own = *look;
    own->accesses = ARENA_ARRAY(l->memory, launch_access, look->access_count + 1);
    for (int i = 0; i < look->access_count; i++) {
        own->accesses[i] = look->accesses[i];
        own->accesses[i].array = arena_print(l->memory, "%s", look->accesses[i].array);
    }
    if (look->rough_array) own->rough_array = arena_print(l->memory, "%s", look->rough_array);
    hint_kernel k = {.facts = f,
                     .calls = 1,
                     .total_ns = NAN,
                     .median_ns = NAN,
                     .look = own,
                     .machine = l->machine,
                     .counters = counters_unknown()};
    ARENA_PUSH(l->memory, l->all.kernels, l->all.kernel_count, l->all.kernel_capacity, k);
}

static int units_of(qn_context *context, const qn_show_options *options)
{
    show_request r = {.stage = "hints"};
    qn_error ignored;
    if (show_cuda_target(context, options->device, options->arch, &r, &ignored) != QN_OK) return 0;
    return r.target.multiprocessors;
}

qn_status qn_show_hints(qn_context *context, const char *path, const char *kernel, const qn_show_options *options,
                        const qn_hint_options *format, qn_write *write, void *user, qn_error *error)
{
    HEAP_ENTER(error);
    const qn_hint_options all = {0};
    qn_show_options asked = {0};
    if (!context || !path || !kernel || !write)
        return error_set(error, QN_BAD_CALL, "qn_show_hints: an argument is NULL");
    if (options) asked = *options;
    if (!format) format = &all;
    asked.stage = "hints";
    looked l = {.memory = arena_new(), .options = format};
    l.machine = (hint_machine){.gpu = true, .units = units_of(context, &asked)};
    l.all = (hint_input){.memory = l.memory, .wall_ns = NAN};
    text heads = {0}, out = {0};
    show_taker taker = {take, &l};
    qn_status status = show_file(context, path, kernel, &asked, &taker, &heads, error);
    if (status == QN_OK) {
        hint_list list;
        hints_find(&l.all, &list);
        if (format->json)
            hints_print_json(&list, &out);
        else
            hints_print(&list, format->most, format->colour, &out);
        if (out.length) write(user, text_get(&out), out.length);
    }
    text_free(&heads);
    text_free(&out);
    arena_free(l.memory);
    return status;
}
