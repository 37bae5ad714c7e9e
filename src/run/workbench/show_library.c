/*
 * Of the stage `choices`: whether a product of whole arrays is left to the library of the device's maker. In: a kernel that
 * went through the pipeline, with the launch's sizes where they are known. Out: one line that says what was taken, and why.
 * SPDX-License-Identifier: MIT
 */
#include "ir/whole.h"
#include "run/workbench/show.h"

static void find_dot(tile_kernel *k, tile_block *block, tile_op *op, void *context)
{
    (void)k, (void)block;
    *(bool *)context |= op->code == OP_DOT;
}

void show_library(const show_request *r, const tile_kernel *k, text *out)
{
    const qn_context *context = r->call->context;
    const device_slot *s = &context->slots[r->slot];
    int wish = k->knobs[KNOB_LIBRARY];
    bool product = false, always = context->library == LIBRARY_ALWAYS;
    const char *why = NULL;
    whole_numbers numbers;
    qn_error missing = {0};
    text name = {0};
    for (int i = 0; i < k->phase_count; i++) tile_walk((tile_kernel *)k, k->phases[i], find_dot, &product);
    if (!product) return;
    arena *memory = arena_new();
    const whole_product *w = whole_find(k, memory, &why);
    if (w && r->planned) why = whole_numbers_of(w, r->call->views, &r->call->plan, &numbers);
    if (w && r->planned && !why) whole_print(w, &numbers, &name);
    if (context->library == LIBRARY_NEVER)
        text_add(out, "library: not taken: QUERN_LIBRARY=never\n");
    else if (!wish && !always)
        text_add(out,
                 "library: not taken: nobody asked for it; `quern tune` tries it, the setting library=1 takes it\n");
    else if (why)
        text_print(out, "library: cannot take it: %s\n", why);
    else if (!s->driver->library || !s->driver->library(s->device, &missing))
        text_print(out, "library: not taken: %s\n",
                   s->driver->library ? missing.message : "there is no device with one");
    else
        text_print(out, "library: taken for %s, its way %d: %s\n",
                   name.length ? text_get(&name) : "all sizes that it knows", wish ? wish : 1,
                   always                                                        ? "QUERN_LIBRARY=always"
                   : bindings_find(&r->call->settings, tile_knobs[KNOB_LIBRARY]) ? "the setting library"
                   : r->fused ? "the setting library of the function, or its record of tuning"
                              : "the record of `quern tune`");
    text_free(&name);
    arena_free(memory);
}
