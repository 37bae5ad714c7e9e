/*
 * Sizes from the file. In: a call with settings and arrays, perhaps not all, and the device it is to run on. Out: the open
 * extents, constants and scalars of the kernel set as the bench that names it says (`on DEVICE` first), so that `run` and
 * `profile` work without --set as `tune` and `show` do. The interpreter and `emu` would not end at such sizes: they get
 * none.
 * SPDX-License-Identifier: MIT
 */
#include "run/workbench/check.h"

#include <string.h>

static bool known_by_array(const qn_call *call, const char *name)
{
    const ast *item = call->kernel->item;
    for (int i = 0; item && i < item->list.count && i < call->kernel->param_count; i++)
        for (int k = 0; call->arguments[i].view.data && k < item->list.items[i]->list.count; k++) {
            const ast *extent = item->list.items[i]->list.items[k];
            if (extent->kind == AST_NAME && !strcmp(extent->name, name)) return true;
        }
    return false;
}

static bool has_default(const kernel_entry *e, int number)
{
    return e->item && number < e->item->list.count && e->item->list.items[number]->left;
}

qn_status qn_call_take_bench(qn_call *call, const char *device, qn_write *told, void *user, qn_error *error)
{
    HEAP_ENTER(error);
    if (!call || !device) return error_set(error, QN_BAD_CALL, "qn_call_take_bench: an argument is NULL");
    const kernel_entry *e = call->kernel;
    if (!e->item || !target_find(device)->timed) return QN_OK;
    arena *memory = arena_new();
    text line = {0};
    qn_status status = QN_OK;
    for (int i = 0; i < e->name_count && status == QN_OK; i++) {
        const char *name = e->names[i];
        int number = 0;
        const parameter *p = entry_param(e, name, &number);
        if ((p && (p->rank >= 0 || has_default(e, number))) || bindings_find(&call->settings, name) ||
            known_by_array(call, name))
            continue;
        const char *words = check_bench_words_on(e->module->file, e->item->name, name, device, cpu_count(), memory);
        if (!words) continue;
        status = qn_call_set_text(call, name, words, error);
        text_print(&line, "%s%s = %s", line.length ? ", " : "", name, words);
    }
    if (status == QN_OK && line.length && told) told(user, text_get(&line), line.length);
    text_free(&line);
    arena_free(memory);
    return status;
}
