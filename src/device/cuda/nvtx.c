/*
 * NVTX, without its headers. In: the marks of records (base/record.h). Out: ranges in the tool that is attached to the
 * process (nsys, ncu), under Quern's names.
 *
 * NVTX is a protocol, not a library: a tool puts the path of its own library into NVTX_INJECTION64_PATH; whoever has marks
 * to give loads it and calls InitializeInjectionNvtx2 with a function that hands out tables; the tool writes the addresses
 * of its functions into those it wants. What stays NULL is not called. There is a table for each module of NVTX, as tools
 * expect; of all their functions, pushing and popping ranges are used. A tool is attached once, for the life of the process.
 * SPDX-License-Identifier: MIT
 */
#include "device/cuda/nvtx.h"

#include "base/record.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

enum { TABLE_CALLBACKS = 1, TABLE_VERSION = 3, MODULE_CORE = 1, CORE_PUSH = 9, CORE_POP = 11 };
enum { MODULES = 7, MOST_FUNCTIONS = 16 };

typedef void any_function(void);

/* By module, with the unused 0: none, core, CUDA, OpenCL, CUDA run time, domains, synchronisation. */
static const unsigned sizes[MODULES] = {0, 16, 9, 15, 7, 16, 7};
/* The tool writes here: a table is an array of pointers to places for functions, with a NULL behind them. */
static any_function *functions[MODULES][MOST_FUNCTIONS];
static any_function **tables[MODULES][MOST_FUNCTIONS + 1];

static int get_functions(int module, any_function ****table, unsigned *size)
{
    if (module < MODULE_CORE || module >= MODULES) return 0;
    if (table) *table = tables[module];
    if (size) *size = sizes[module];
    return 1;
}

static void set_version(uint32_t version)
{
    (void)version;
}

static const struct callbacks_table {
    size_t size;
    int (*get_functions)(int module, any_function ****table, unsigned *size);
} callbacks_table = {sizeof(callbacks_table), get_functions};

static const struct version_table {
    size_t size;
    uint32_t version, reserved;
    void (*set_version)(uint32_t version);
} version_table = {sizeof(version_table), 3, 0, set_version};

static const void *get_table(uint32_t number)
{
    return number == TABLE_CALLBACKS ? (const void *)&callbacks_table
           : number == TABLE_VERSION ? (const void *)&version_table
                                     : NULL;
}

static void push(const char *name)
{
    int (*call)(const char *);
    memcpy(&call, &functions[MODULE_CORE][CORE_PUSH], sizeof(call));
    if (call) call(name);
}

static void pop(void)
{
    int (*call)(void);
    memcpy(&call, &functions[MODULE_CORE][CORE_POP], sizeof(call));
    if (call) call();
}

static void attach(void)
{
    static const record_marks marks = {push, pop};
    const char *path = environment_get("NVTX_INJECTION64_PATH");
    void *library = path ? dlopen(path, RTLD_LAZY) : NULL;
    void *address = library ? dlsym(library, "InitializeInjectionNvtx2") : NULL;
    int (*initialize)(const void *(*)(uint32_t));
    memcpy(&initialize, &address, sizeof(initialize));
    for (int m = 1; m < MODULES; m++)
        for (unsigned i = 1; i < sizes[m]; i++) tables[m][i] = &functions[m][i];
    if (initialize && initialize(get_table)) record_mark_by(&marks);
}

bool nvtx_open(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, attach);
    return functions[MODULE_CORE][CORE_PUSH] != NULL;
}
