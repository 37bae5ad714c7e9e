/*
 * Devices: memory and launch. A driver turns IR into text, text into a binary file, a binary into a loaded program,
 * and runs it; run/compile.c puts the cache between these steps. Drivers are a static list in drivers.c.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_DEVICE_DEVICE_H
#define QUERN_DEVICE_DEVICE_H

#include "emit/emit.h"
#include "ir/interp.h"

typedef struct device device;   /* each driver has its own struct that begins with `const driver *driver` */
typedef struct program program; /* likewise */

typedef struct device_options {
    int threads;                                 /* 0: all */
    void (*print)(void *user, const char *line); /* may be NULL */
    void *print_user;
} device_options;

typedef struct device_about {
    bool available;
    char description[256]; /* or why not, and what to install */
    char note[256];        /* a wish of the environment that was not followed; or empty */
    int units;
} device_about;

typedef struct launch_options { /* for ref; others ignore it */
    const interp_options *interp;
    findings *found;
} launch_options;

typedef struct driver {
    const char *name;
    device *(*open)(const device_options *options); /* never fails: an absent device says so in `about` */
    void (*close)(device *d);
    void (*about)(const device *d, device_about *about);
    /* Facts of a launch that this device specialises on, into k->params[].facts. NULL: none. */
    void (*choose_facts)(const device *d, tile_kernel *k, const array_view *arrays, const launch_plan *plan);
    /* Text of a kernel that went through the pipeline, and what the binary depends on besides (compiler, flags, cpu).
     * NULL: no text. */
    qn_status (*emit)(const device *d, const tile_kernel *k, text *out, qn_error *error);
    void (*tool)(const device *d, text *out); /* identifies compiler, flags and instruction set, for the cache key */
    qn_status (*assemble)(const device *d, const char *source, const char *binary_path, qn_error *error);
    qn_status (*disassemble)(const device *d, const char *source, text *out, qn_error *error); /* show --stage asm */
    /* k is borrowed for the program's life. binary_path: NULL for ref. */
    qn_status (*load)(device *d, const tile_kernel *k, const char *binary_path, program **out, qn_error *error);
    void (*unload)(program *p);
    /* Runs all phases and waits. arrays complete, scratch allocated and initial values filled by the caller. Thread-
     * safe. */
    qn_status (*launch)(program *p, const array_view *arrays, const launch_plan *plan, const launch_options *options,
                        qn_error *error);
} driver;

extern const driver driver_ref, driver_cpu;
extern const driver *const drivers[]; /* in order of preference, best first; NULL-terminated */

#endif
