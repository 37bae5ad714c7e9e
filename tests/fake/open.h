/*
 * For tests on the driver in tests/fake: its folder, beside the test program's, and its own functions by name. The leak checker
 * is turned off: it cannot read threads that run on stacks of emu, and a lost device keeps what it had, as the real
 * driver's does. The other checks of the sanitizers stay.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_FAKE_OPEN_H
#define QUERN_TESTS_FAKE_OPEN_H

#include "test.h"

#include <dlfcn.h>
#include <libgen.h>
#include <stdlib.h>

__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return 1;
}

/* From now on the device `cuda` is the fake one. Its folder; of static memory. */
static inline const char *fake_take(void)
{
    static char folder[4096];
    char *self = realpath("/proc/self/exe", NULL);
    EXPECT(self != NULL);
    snprintf(folder, sizeof(folder), "%s/fake", self ? dirname(self) : "");
    free(self);
    setenv("QUERN_CUDA_PATH", folder, 1);
    return folder;
}

static inline void *fake_open(void)
{
    char path[4200];
    snprintf(path, sizeof(path), "%s/libcuda.so.1", fake_take());
    void *library = dlopen(path, RTLD_NOW);
    if (!library) printf("%s\n", dlerror());
    EXPECT(library != NULL);
    if (!library) exit(1);
    return library;
}

/* A function of it, into a pointer to one. */
static inline void fake_find(void *library, const char *name, void *function)
{
    void *address = dlsym(library, name);
    EXPECT(address != NULL);
    memcpy(function, &address, sizeof(address));
}

#endif
