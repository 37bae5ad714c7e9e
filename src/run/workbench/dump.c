/*
 * keep_folder, or QUERN_DUMP_DIR: every stage of everything compiled, as files. In: a variant on its way through the compiler. Out: a
 * folder NAME-HASH per text that was made, with the IR as lowered, the IR after each pass that changed it, the text, its
 * assembly and the binary. Without one nothing here does anything.
 *
 * The stages are kept until the text is there, whose hash names the folder: the same kernel dumped twice is one folder.
 * A folder that cannot be written costs one line of the log, never the compilation.
 * SPDX-License-Identifier: MIT
 */
#include "run/workbench/dump.h"

#include <stdlib.h>
#include <string.h>

void dump_begin(dump *d, qn_context *context, const tile_kernel *k)
{
    *d = (dump){.context = context, .wanted = context->dump_folder != NULL};
    if (!d->wanted) return;
    d->memory = arena_new();
    dump_stage(d, k, "lowered", true, 0);
}

void dump_stage(void *context, const tile_kernel *k, const char *name, bool changed, int64_t time_ns)
{
    dump *d = context;
    (void)time_ns;
    if (!d->wanted || !changed) return;
    text words = {0};
    tile_print(k, &words);
    dump_text stage = {.name = arena_print(d->memory, "%02d-%s.tile", d->count, name), .length = words.length};
    stage.words = arena_copy_text(d->memory, text_get(&words), words.length);
    text_free(&words);
    ARENA_PUSH(d->memory, d->texts, d->count, d->capacity, stage);
}

static bool write_one(dump *d, const char *folder, const char *name, const void *bytes, size_t size)
{
    char path[4400];
    qn_error error;
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (file_write(path, bytes, size, &error) == QN_OK) return true;
    context_say(d->context, "cannot keep what is compiled: %s", error.message);
    return false;
}

void dump_end(dump *d, int slot, const char *kernel, const char *source, size_t length, const char *binary_path)
{
    if (!d->wanted) return;
    const device_slot *s = &d->context->slots[slot];
    bool gpu = target_is_gpu(s->driver->name);
    char hex[33], folder[4200];
    qn_error error;
    hash_to_hex(hash_bytes(source, length), hex);
    snprintf(folder, sizeof(folder), "%.3800s/%.200s-%.16s", d->context->dump_folder, kernel, hex);
    bool good = folder_make(folder, &error) == QN_OK;
    if (!good) context_say(d->context, "cannot keep what is compiled: %s", error.message);
    for (int i = 0; i < d->count && good; i++)
        good = write_one(d, folder, d->texts[i].name, d->texts[i].words, d->texts[i].length);
    char name[32];
    snprintf(name, sizeof(name), "kernel.%s", target_text_ending(target_find(s->driver->name)));
    good = good && write_one(d, folder, name, source, length);
    text listing = {0};
    if (good && s->driver->disassemble && s->driver->disassemble(s->device, source, &listing, NULL) == QN_OK)
        good = write_one(d, folder, gpu ? "kernel.ptx" : "kernel.s", text_get(&listing), listing.length);
    text_free(&listing);
    char *bytes = NULL;
    size_t size;
    if (good && binary_path && file_read(binary_path, (size_t)256 << 20, &bytes, &size, NULL) == QN_OK)
        write_one(d, folder, gpu ? "kernel.cubin" : "kernel.so", bytes, size);
    heap_free(bytes);
}

void dump_free(dump *d)
{
    arena_free(d->memory);
    d->memory = NULL;
}
