/*
 * A device's ceilings, measured once and kept. In: a context and a device. Out: a qn_roofline.
 *
 * They are kept as text beside the compiled kernels, under a name made of the device, its driver and the version: another
 * driver or GPU is measured anew. A damaged file counts as none.
 * SPDX-License-Identifier: MIT
 */
#include "profile/measure/environment.h"
#include "profile/profile.h"
#include "run/compile/cache.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What is kept, by name. */
#define FIELDS(F)                                                                                       \
    F(read_gb_per_s)                                                                                    \
    F(write_gb_per_s)                                                                                   \
    F(copy_gb_per_s)                                                                                    \
    F(cache_gb_per_s)                                                                                   \
    F(inner_gb_per_s)                                                                                   \
    F(fma_f32_gflop_per_s)                                                                              \
    F(fma_f64_gflop_per_s) F(fma_one_gflop_per_s) F(dot_f16_gflop_per_s) F(dot_bf16_gflop_per_s)        \
        F(dot_tf32_gflop_per_s) F(dot_f8_gflop_per_s) F(dot_i8_gflop_per_s) F(exp_g_per_s) F(launch_ns) \
            F(graph_launch_ns) F(host_to_device_gb_per_s) F(device_to_host_gb_per_s) F(clock_mhz)

static const struct {
    const char *name;
    size_t place;
} fields[] = {
#define FIELD(name) {#name, offsetof(qn_roofline, name)},
    FIELDS(FIELD)
#undef FIELD
};

static double *field(qn_roofline *r, int number)
{
    return (double *)((char *)r + fields[number].place);
}

static void file_of(qn_context *context, int slot, text *path)
{
    arena *memory = arena_new();
    qn_environment here;
    environment_fill(memory, context, slot, &here);
    text_print(path, "%s/roofline-%s-%s-%s.txt", cache_folder(context_cache(context)),
               context->slots[slot].driver->name, here.machine, QN_VERSION);
    arena_free(memory);
}

static bool read_line(const char *line, qn_roofline *out)
{
    size_t length = strcspn(line, " ");
    const char *value = line + length + (line[length] == ' ');
    char *end;
    for (int i = 0; i < COUNT(fields); i++) {
        if (strlen(fields[i].name) != length || strncmp(fields[i].name, line, length) != 0) continue;
        *field(out, i) = number_parse(value, &end);
        return end != value && isfinite(*field(out, i)) && *field(out, i) >= 0;
    }
    if (!strncmp(line, "units ", 6)) return (out->units = (int)strtol(value, NULL, 10)) > 0;
    if (!strncmp(line, "device ", 7)) return snprintf(out->device, sizeof(out->device), "%s", value) > 0;
    if (!strncmp(line, "measured ", 9)) return snprintf(out->measured, sizeof(out->measured), "%s", value) > 0;
    return false;
}

static bool read_kept(const char *path, qn_roofline *out)
{
    char *words, *rest = NULL;
    size_t size;
    if (file_read_own(path, 1 << 16, &words, &size, NULL) != QN_OK) return false;
    memset(out, 0, sizeof(*out));
    bool good = true;
    for (char *line = strtok_r(words, "\n", &rest); line && good; line = strtok_r(NULL, "\n", &rest))
        good = read_line(line, out);
    heap_free(words);
    return good && out->copy_gb_per_s > 0 && out->measured[0];
}

static void keep(const char *path, qn_roofline *r)
{
    text out = {0};
    for (int i = 0; i < COUNT(fields); i++) text_print(&out, "%s %.9g\n", fields[i].name, *field(r, i));
    text_print(&out, "units %d\ndevice %s\nmeasured %s\n", r->units, r->device, r->measured);
    qn_error ignored; /* a cache that cannot be written only means that it is measured again */
    (void)!file_write(path, text_get(&out), out.length, &ignored);
    text_free(&out);
}

static qn_status measure(qn_context *context, int slot, qn_roofline *out, qn_error *error)
{
    const device_slot *s = &context->slots[slot];
    device_health health;
    QN_TRY(roofline_measure(context, slot, out, error));
    if (!s->driver->health)
        out->clock_mhz = processor_clock_mhz();
    else if (s->driver->health(s->device, &health))
        out->clock_mhz = health.clock_mhz;
    if (!isfinite(out->clock_mhz)) out->clock_mhz = 0;
    arena *memory = arena_new();
    snprintf(out->measured, sizeof(out->measured), "%s", time_words(memory));
    arena_free(memory);
    return QN_OK;
}

qn_status qn_roofline_get(qn_context *context, const char *device, bool again, qn_roofline *out, qn_error *error)
{
    HEAP_ENTER(error);
    int slot;
    text path = {0};
    qn_error unread;
    if (!error) error = &unread;
    if (!context || !out) return error_set(error, QN_BAD_CALL, "qn_roofline_get: an argument is NULL");
    QN_TRY(context_slot(context, device ? device : qn_device_best(context), &slot, error));
    file_of(context, slot, &path);
    qn_status status = QN_OK;
    if (again || !read_kept(text_get(&path), out)) {
        status = measure(context, slot, out, error);
        if (status == QN_OK) keep(text_get(&path), out);
    }
    text_free(&path);
    return status;
}

bool qn_roofline_find(qn_context *context, const char *device, qn_roofline *out)
{
    int slot;
    text path = {0};
    if (!context || !out) return false;
    if (context_slot(context, device ? device : qn_device_best(context), &slot, NULL) != QN_OK) return false;
    file_of(context, slot, &path);
    bool found = read_kept(text_get(&path), out);
    text_free(&path);
    return found;
}

void qn_devices_json(qn_context *context, const char *device, qn_write *write, void *user)
{
    json out = {0};
    if (!context || !write) return;
    const char *best = qn_device_best(context);
    for (int i = 0; i < qn_device_count(context); i++) {
        qn_device_info info;
        qn_roofline r;
        qn_device_get(context, i, &info);
        if (device && strcmp(device, info.name) != 0) continue;
        json_open_object(&out);
        json_text(&out, "name", info.name);
        json_truth(&out, "available", info.available);
        json_truth(&out, "default", !strcmp(best, info.name));
        json_text(&out, "description", info.description);
        json_text(&out, "note", info.note);
        if (info.available && qn_roofline_find(context, info.name, &r)) {
            json_text(&out, "measured", r.measured);
            for (int f = 0; f < COUNT(fields); f++) {
                double number = *(const double *)((const char *)&r + fields[f].place);
                if (number > 0) json_number(&out, fields[f].name, number);
            }
        }
        json_close_object(&out);
    }
    const char *list = json_finish(&out);
    write(user, list, strlen(list));
    json_free(&out);
}
