/*
 * Small parts of the workbench: settings as words, canonical text, the cache from outside.
 * SPDX-License-Identifier: MIT
 */
#include "run/compile/cache.h"
#include "run/compile/tune.h"

#include <string.h>

qn_status call_apply(qn_call *call, const qn_settings *settings, qn_error *error)
{
    for (int i = 0; i < settings->count; i++) {
        const char *item = settings->items[i], *equals = strchr(item, '=');
        char name[256];
        if (!equals || equals == item || equals - item >= (int)sizeof(name))
            return error_set(error, QN_BAD_CALL, "`%s` is not a setting; write NAME=VALUE, such as n=1000", item);
        memcpy(name, item, (size_t)(equals - item));
        name[equals - item] = 0;
        QN_TRY(qn_call_set_text(call, name, equals + 1, error));
    }
    return QN_OK;
}

qn_status qn_call_known(qn_call *call, const char *device, qn_write *write, void *user, qn_error *error)
{
    HEAP_ENTER(error);
    int slot;
    if (!call || !write) return error_set(error, QN_BAD_CALL, "qn_call_known: an argument is NULL");
    QN_TRY(context_slot(call->context, device, &slot, error));
    QN_TRY(call_bind(call, slot, true, error));
    arena *memory = arena_new();
    bindings known = {0};
    text out = {0};
    call_known(call, memory, &known);
    for (int i = 0; i < known.count; i++) {
        const binding *b = &known.items[i];
        if (strchr(b->name, ' ')) continue; /* of the instance's key */
        text_print(&out, "%s=", b->name);
        switch (b->kind) {
        case BIND_TYPE: text_print(&out, "%s\n", dtypes[b->type].text); break;
        case BIND_FLOAT: text_print(&out, "%.17g\n", b->number.f); break;
        case BIND_FUNCTION: text_print(&out, "%s\n", b->function); break;
        default: text_print(&out, "%lld\n", (long long)b->number.i); break;
        }
    }
    write(user, text_get(&out), out.length);
    text_free(&out);
    arena_free(memory);
    return QN_OK;
}

qn_status qn_format_text(const char *name, const char *source, qn_write *write, void *user, qn_error *error)
{
    HEAP_ENTER(error);
    if (!source || !write) return error_set(error, QN_BAD_CALL, "qn_format_text: an argument is NULL");
    arena *memory = arena_new();
    diagnostics d = {.memory = memory};
    ast_file *file = lang_parse(memory, name ? name : "text", source, strlen(source), &d);
    qn_status status = QN_OK;
    text out = {0};
    if (d.errors) {
        status = diagnostics_error(&d, file, QN_BAD_SOURCE, error);
    } else {
        lang_format(file, &out);
        write(user, text_get(&out), out.length);
    }
    text_free(&out);
    arena_free(memory);
    return status;
}

/* The length of "ESC [ 1 ; 31 m" with bold, faint, plain and the colours of tables alone; 0: something else. */
static size_t colour_length(const char *at, size_t length)
{
    size_t i = 2;
    if (length < 3 || at[0] != '\033' || at[1] != '[') return 0;
    for (int number = 0; i < length && i < 12; i++) {
        if (at[i] >= '0' && at[i] <= '9') {
            number = 10 * number + (at[i] - '0');
            continue;
        }
        if (number > 2 && (number < 31 || number > 36)) return 0;
        if (at[i] == 'm') return i + 1;
        if (at[i] != ';') return 0;
        number = 0;
    }
    return 0;
}

void qn_write_safe(const char *words, size_t length, bool colour, qn_write *write, void *user)
{
    if (!words || !write) return;
    text out = {0};
    for (size_t i = 0; i < length;) {
        size_t own = colour ? colour_length(words + i, length - i) : 0, plain = own ? 0 : 1;
        while (plain && i + plain < length && !(colour && words[i + plain] == '\033')) plain++;
        if (own) text_add_bytes(&out, words + i, own);
        text_add_escaped(&out, ESCAPE_SCREEN, words + i, plain);
        i += own + plain;
    }
    write(user, text_get(&out), out.length);
    text_free(&out);
}

const char *qn_cache_note(qn_context *context)
{
    if (!context) return "";
    lock_take(&context->lock);
    const char *note = context->cache ? cache_note(context->cache) : "";
    lock_give(&context->lock);
    return note;
}

qn_status qn_cache_list(qn_context *context, qn_write *write, void *user, qn_error *error)
{
    HEAP_ENTER(error);
    if (!context || !write) return error_set(error, QN_BAD_CALL, "qn_cache_list: an argument is NULL");
    text out = {0};
    lock_take(&context->lock);
    qn_status status = cache_list(context_cache(context), &out, error);
    lock_give(&context->lock);
    if (status == QN_OK) write(user, text_get(&out), out.length);
    text_free(&out);
    return status;
}

qn_status qn_cache_clear(qn_context *context, int64_t *removed_files, int64_t *removed_bytes, qn_error *error)
{
    HEAP_ENTER(error);
    if (!context) return error_set(error, QN_BAD_CALL, "qn_cache_clear: the context is NULL");
    int64_t files = 0, bytes = 0;
    lock_take(&context->lock);
    qn_status status = cache_clear(context_cache(context), &files, &bytes, error);
    if (status == QN_OK) why_forget(context, &files, &bytes);
    if (status == QN_OK) tune_forget(context);
    lock_give(&context->lock);
    if (removed_files) *removed_files = files;
    if (removed_bytes) *removed_bytes = bytes;
    return status;
}
