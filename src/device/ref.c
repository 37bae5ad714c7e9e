/*
 * The `ref` device: the reference interpreter behind the driver's interface. There is no text and no binary; a program
 * is the kernel itself. Slow, and right by definition.
 * SPDX-License-Identifier: MIT
 */
#include "device/device.h"

#include <stdlib.h>

typedef struct ref_device {
    const driver *driver;
    device_options options;
} ref_device;

typedef struct ref_program {
    const driver *driver;
    const ref_device *device;
    const tile_kernel *kernel;
} ref_program;

static device *ref_open(const device_options *options)
{
    ref_device *d = heap_new(sizeof(*d));
    d->driver = &driver_ref;
    if (options) d->options = *options;
    return (device *)d;
}

static void ref_close(device *d)
{
    heap_free(d);
}

static void ref_about(const device *d, device_about *about)
{
    (void)d;
    *about = (device_about){.available = true, .units = 1};
    snprintf(about->description, sizeof(about->description),
             "reference interpreter: checks everything, one program at a time");
}

static qn_status ref_load(device *d, const tile_kernel *k, const char *binary_path, struct cuda_layout *layout,
                          program **out, qn_error *error)
{
    (void)binary_path;
    if (k->raw_language)
        return error_set(error, QN_NO_DEVICE,
                         "`%s` is a raw kernel: it has no tile IR for the reference interpreter; use another device",
                         k->name);
    ref_program *p = heap_new(sizeof(*p));
    p->driver = &driver_ref;
    p->device = (const ref_device *)d;
    p->kernel = k;
    *out = (program *)p;
    return QN_OK;
}

static void ref_unload(program *p)
{
    heap_free(p);
}

static qn_status ref_launch(program *p, const array_view *arrays, const launch_plan *plan,
                            const launch_options *options, qn_error *error)
{
    const ref_program *program = (const ref_program *)p;
    const device_options *own = &program->device->options;
    interp_options interp = options && options->interp ? *options->interp : (interp_options){0};
    if (!interp.units) interp.units = 1;
    if (!interp.print) {
        interp.print = own->print;
        interp.print_context = own->print_user;
    }
    return interp_run(program->kernel, arrays, plan, &interp, options ? options->found : NULL, error);
}

const driver driver_ref = {
    .name = "ref",
    .open = ref_open,
    .close = ref_close,
    .about = ref_about,
    .load = ref_load,
    .unload = ref_unload,
    .launch = ref_launch,
};
