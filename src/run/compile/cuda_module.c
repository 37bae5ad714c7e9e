/*
 * Modules from CUDA text alone. In: the text. Out: a module with a kernel for each `__global__` function, made from its
 * parameter list: pointers are arrays of one axis, the rest scalars; behind them, and not passed to the function, the
 * lengths of the arrays and the numbers of the launch ("x.length", "grid.x": no name of C has a point). From there on
 * they are raw kernels like those of a .qn file. Instances of templates are made when they are asked for.
 * SPDX-License-Identifier: MIT
 */
#include "emit/raw/raw.h"
#include "run/run.h"

#include <quern/raw.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SOURCE_BYTES ((size_t)16 << 20)
#define MAX_INSTANCES 256 /* of templates in one module */

static const char *const launch_names[] = {"grid.x",  "grid.y",  "grid.z",      "block.x",
                                           "block.y", "block.z", "shared.bytes"};

const char *qn_device_for_cuda(const qn_context *context)
{
    for (int i = 0; context && i < context->slot_count; i++)
        if (target_is_gpu(context->slots[i].driver->name) && context->slots[i].about.available) return "cuda";
    return "emu";
}

/* The parameters of a function as tile parameters. False: one has a type that cannot be passed; *why says which. */
static bool put_parameters(const raw_function *f, const raw_names *names, text *out, int *length_count, text *why)
{
    text lengths = {0}, type = {0};
    raw_parameter p = {0};
    bool good = true;
    int count = 0;
    *length_count = 0;
    for (const char *c = raw_skip_blank(f->parameters); *c && *c != ')' && good;) {
        text_clear(&p.type);
        text_clear(&type);
        raw_read_parameter(&c, &p);
        raw_substitute(names, (raw_span){text_get(&p.type), p.type.length}, &type);
        if (*c == ',') c++;
        if (!strcmp(text_get(&type), "void")) break;
        dtype elem = DT_F32;
        bool array = false;
        good = p.name.length && raw_type_of(text_get(&type), &elem, &array);
        if (!good) {
            text_print(why, "its parameter %d is `%s`%s", count + 1, text_get(&type),
                       p.name.length ? ": pointers to numbers and numbers can be passed" : " and has no name");
            break;
        }
        text_print(out, "  param \"%.*s\" ", (int)p.name.length, p.name.start);
        if (array) {
            text_print(out, "%s %s [\"%.*s.length\"]\n", p.is_const ? "in" : "inout", dtypes[elem].text,
                       (int)p.name.length, p.name.start);
            text_print(&lengths, "  param \"%.*s.length\" extent i64\n", (int)p.name.length, p.name.start);
        } else {
            text_print(out, "scalar %s\n", dtypes[elem].text);
        }
        *length_count += array;
        count++;
    }
    text_add(out, text_get(&lengths));
    text_free(&p.type);
    text_free(&type);
    text_free(&lengths);
    return good;
}

/* Everything but the source, as tile IR. */
static void put_head(text *out, int lengths)
{
    for (int i = 0; i < COUNT(launch_names); i++)
        text_print(out, "  param \"%s\" scalar i64%s\n", launch_names[i], i == 0 || i == 3 ? "" : " default");
    text_add(out, "head {\n  %1 = const 1 : i64\n  %2 = const 0 : i64\n");
    for (int i = 0; i < COUNT(launch_names); i++)
        if (i == 0 || i == 3)
            text_print(out, "  %%%d = arg \"%s\" : i64\n", 3 + i, launch_names[i]);
        else
            text_print(out, "  %%%d = default \"%s\" %%%d : i64\n", 3 + i, launch_names[i], i == 6 ? 2 : 1);
    text_print(out,
               "  launch 0 %%3, %%4, %%5\n  launch 1 %%6, %%7, %%8\n  launch 2 %%9\n}\nraw cuda {\n  hides %d\n}\n",
               lengths + COUNT(launch_names));
}

/* instance: "twice<float>" of a template, else NULL. */
static bool make_kernel(qn_module *m, const raw_function *f, const char *instance, tile_kernel **out, text *why)
{
    raw_names names = {.function = f, .instance = instance};
    text words = {0};
    int lengths = 0;
    text_print(&words, "kernel \"%.*s\" file ", (int)f->name.length, f->name.start);
    text_add_quoted(&words, m->path, strlen(m->path));
    text_add(&words, "\n");
    bool good = put_parameters(f, &names, &words, &lengths, why);
    put_head(&words, lengths);
    qn_error error;
    if (good && tile_read(m->memory, m->path, text_get(&words), words.length, out, &error) != QN_OK) {
        text_add(why, error.message); /* a parameter twice, or too many */
        good = false;
    }
    text_free(&words);
    if (!good) return false;
    tile_kernel *k = *out;
    k->raw_source = m->cuda_source;
    k->raw_options = m->cuda_options;
    k->raw_constants = "";
    k->raw_instance = instance;
    k->raw_path = m->path;
    k->raw_line = 1;
    if (k->param_count <= MAX_PARAMS) return true;
    text_print(why, "it has too many parameters");
    return false;
}

static bool same_name(const raw_function *f, const char *name, size_t length)
{
    return f->name.length == length && !memcmp(f->name.start, name, length);
}

static kernel_entry *add_entry(qn_module *m, tile_kernel *k, const char *name)
{
    kernel_entry *e = &m->kernels[m->kernel_count++];
    e->module = m;
    entry_from_dump(e, k);
    e->name = name;
    return e;
}

kernel_entry *cuda_module_instance(qn_module *m, const char *name, qn_error *error)
{
    const char *at = m->cuda_source;
    size_t length = strcspn(name, "<");
    raw_function f;
    kernel_entry *found = NULL;
    text why = {0};
    bool known = false;
    lock_take(&m->context->lock);
    for (int i = 0; i < m->kernel_count && !found; i++)
        if (!strcmp(m->kernels[i].name, name)) found = &m->kernels[i];
    while (!found && !known && raw_next_function(&at, &f)) {
        if (!f.global.length || !f.template_count || !same_name(&f, name, length)) continue;
        known = true;
        const char *instance = arena_copy_text(m->memory, name, strlen(name));
        tile_kernel *k;
        if (m->kernel_count == m->kernel_capacity)
            text_print(&why, "the module has %d kernels already", m->kernel_count);
        else if (make_kernel(m, &f, instance, &k, &why))
            found = add_entry(m, k, instance);
    }
    lock_give(&m->context->lock);
    if (!found && known)
        error_set(error, QN_BAD_CALL, "%s: kernel `%s` cannot be called: %s", m->path, name, text_get(&why));
    else if (!found)
        error_set(error, QN_BAD_CALL, "%s has no template `%.*s` that is a kernel", m->path, (int)length, name);
    text_free(&why);
    return found;
}

static qn_status find_kernels(qn_module *m, qn_error *error)
{
    int count = 0, templates = 0;
    raw_function f;
    for (const char *at = m->cuda_source; raw_next_function(&at, &f);) count += f.global.length > 0;
    m->kernel_capacity = count + MAX_INSTANCES;
    m->kernels = ARENA_ARRAY(m->memory, kernel_entry, m->kernel_capacity);
    for (const char *at = m->cuda_source; raw_next_function(&at, &f);) {
        bool known = false;
        if (f.template_count && f.global.length) templates++;
        for (int i = 0; i < m->kernel_count; i++)
            known |= same_name(&f, m->kernels[i].name, strlen(m->kernels[i].name));
        if (!f.global.length || f.template_count || known) continue;
        text why = {0};
        tile_kernel *k;
        if (make_kernel(m, &f, NULL, &k, &why))
            add_entry(m, k, k->name);
        else
            text_print(&m->warnings, "%s: warning: kernel `%.*s` cannot be called: %s\n", m->path, (int)f.name.length,
                       f.name.start, text_get(&why));
        text_free(&why);
    }
    if (m->kernel_count || templates) return QN_OK;
    return error_set(error, QN_BAD_SOURCE, "%s: the text has no `__global__` function that can be called%s%s", m->path,
                     m->warnings.length ? "\n" : "", text_get(&m->warnings));
}

/* For one device now, so that mistakes in the text come now. */
static qn_status compile_all(qn_module *m, const char *device, qn_error *error)
{
    int slot;
    if (!device && context_slot(m->context, qn_device_for_cuda(m->context), &slot, error) != QN_OK)
        return error_set(error, QN_NO_DEVICE,
                         "nothing here runs CUDA text: it needs an NVIDIA GPU with its driver, or "
                         "a C++ compiler for the device emu (apt-get install g++)");
    if (device) QN_TRY(context_slot(m->context, device, &slot, error));
    if (!raw_runs_on("cuda", m->context->slots[slot].driver->name))
        return error_set(error, QN_NO_DEVICE, "CUDA text runs on the devices cuda and emu, not on %s", device);
    qn_status status = QN_OK;
    for (int i = 0; i < m->kernel_count && status == QN_OK; i++) {
        qn_call *call;
        variant *made;
        bindings none = {0};
        QN_TRY(qn_call_new(m, m->kernels[i].name, &call, error));
        call->slot = slot;
        status = entry_instance(call->kernel, &none, &call->instance, error);
        if (status == QN_OK) call_make_room(call, call->instance->kernel->param_count);
        if (status == QN_OK) status = variant_get(call, &made, error);
        qn_call_free(call);
    }
    return status;
}

static const char *options_of(arena *memory, const qn_cuda_options *options, bool *has_folder)
{
    text words = {0};
    for (int i = 0; i < options->flag_count; i++) {
        const char *flag = options->flags[i];
        *has_folder |= !strncmp(flag, "-I", 2) || !strncmp(flag, "--include-path", 14);
        text_print(&words, "%.*s\n", (int)strcspn(flag, "\n"), flag);
    }
    const char *copy = words.length ? arena_copy_text(memory, text_get(&words), words.length) : NULL;
    text_free(&words);
    return copy;
}

qn_status qn_compile_cuda(qn_context *context, const char *source, const qn_cuda_options *options, qn_module **module,
                          qn_error *error)
{
    HEAP_ENTER(error);
    const qn_cuda_options defaults = {0};
    if (!context || !source || !module) return error_set(error, QN_BAD_CALL, "qn_compile_cuda: an argument is NULL");
    if (!options) options = &defaults;
    *module = NULL;
    if (options->flag_count < 0 || (options->flag_count && !options->flags))
        return error_set(error, QN_BAD_CALL, "qn_compile_cuda: %d flags, and no list of them", options->flag_count);
    if (strlen(source) > MAX_SOURCE_BYTES)
        return error_set(error, QN_BAD_SOURCE, "qn_compile_cuda: the text has more than 16 MiB");
    qn_module *m = calloc(1, sizeof(*m));
    if (!m) return error_set(error, QN_NO_MEMORY, "no memory for a module");
    const char *name = options->name ? options->name : "cuda text";
    bool has_folder = false;
    m->context = context;
    m->memory = arena_new();
    m->path = arena_copy_text(m->memory, name, strlen(name));
    m->is_trusted = true;
    m->cuda_options = options_of(m->memory, options, &has_folder);
    source = arena_copy_text(m->memory, source, strlen(source));
    m->cuda_source = raw_expand(m->memory, source, options->name ? m->path : NULL, 1, true, !has_folder);
    qn_status status = find_kernels(m, error);
    if (status == QN_OK) status = compile_all(m, options->device, error);
    if (status == QN_OK)
        *module = m;
    else
        qn_module_free(m);
    return status;
}

qn_status qn_call_set_launch(qn_call *call, const int64_t *blocks, const int64_t *threads, int axes,
                             int64_t shared_bytes, qn_error *error)
{
    HEAP_ENTER(error);
    if (!call || !blocks || !threads) return error_set(error, QN_BAD_CALL, "qn_call_set_launch: an argument is NULL");
    if (!call->kernel->module->cuda_source)
        return error_set(error, QN_BAD_CALL,
                         "kernel `%s` says itself what it launches: qn_call_set_launch is for kernels of "
                         "qn_compile_cuda",
                         call->kernel->name);
    if (axes < 1 || axes > 3) return error_set(error, QN_BAD_CALL, "qn_call_set_launch: %d axes, of 1 to 3", axes);
    for (int i = 0; i < 3; i++) {
        QN_TRY(qn_call_set_int(call, launch_names[i], i < axes ? blocks[i] : 1, error));
        QN_TRY(qn_call_set_int(call, launch_names[3 + i], i < axes ? threads[i] : 1, error));
    }
    return qn_call_set_int(call, launch_names[6], shared_bytes, error);
}
