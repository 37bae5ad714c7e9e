/*
 * A tool that listens to NVTX: it writes down the ranges it is told. SPDX-License-Identifier: MIT
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

typedef void any_function(void);
typedef struct callbacks {
    size_t size;
    int (*get_functions)(int module, any_function ****table, unsigned *size);
} callbacks;

static char heard[4096];

static int push(const char *name)
{
    size_t length = strlen(heard);
    snprintf(heard + length, sizeof(heard) - length, "(%s", name);
    return 0;
}

static int pop(void)
{
    size_t length = strlen(heard);
    snprintf(heard + length, sizeof(heard) - length, ")");
    return 0;
}

EXPORT const char *fake_nvtx_heard(void);
const char *fake_nvtx_heard(void)
{
    return heard;
}

EXPORT int InitializeInjectionNvtx2(const void *(*get_table)(uint32_t number));
int InitializeInjectionNvtx2(const void *(*get_table)(uint32_t number))
{
    const callbacks *c = get_table(1);
    any_function ***table = NULL;
    unsigned size = 0;
    int (*of_push)(const char *) = push, (*of_pop)(void) = pop;
    if (!c || c->size < sizeof(*c) || !c->get_functions(1, &table, &size) || size < 12) return 0;
    for (int module = 2; module <= 6; module++)
        if (!c->get_functions(module, &table, &size) || !table[1] || table[size]) return 0;
    if (c->get_functions(7, &table, &size)) return 0;
    if (!c->get_functions(1, &table, &size)) return 0;
    memcpy(table[9], &of_push, sizeof(of_push));
    memcpy(table[11], &of_pop, sizeof(of_pop));
    return 1;
}
