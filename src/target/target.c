/*
 * The rows of targets.def and the questions about them.
 * SPDX-License-Identifier: MIT
 */
#include "target/target.h"

#include <string.h>

enum { MEMORY_OWN, MEMORY_HOST, TIMES_NOT, TIMES_MEANT, TEAMS_ONE, TEAMS_THREADS };

const target targets[] = {
#define TARGET(name, language, memory, times, teams)                                         \
    {#name, TARGET_##language, MEMORY_##memory == MEMORY_HOST, TIMES_##times == TIMES_MEANT, \
     TEAMS_##teams == TEAMS_THREADS},
#include "target/targets.def"
#undef TARGET
};
const int target_count = COUNT(targets);

const target *target_find(const char *device)
{
    static const target none = {.name = "", .host_memory = true};
    size_t length = device ? strcspn(device, ":") : 0;
    for (int i = 0; i < COUNT(targets); i++)
        if (strlen(targets[i].name) == length && !strncmp(targets[i].name, device, length)) return &targets[i];
    return &none;
}

bool target_runs_cuda(const char *device)
{
    return target_find(device)->language == TARGET_CUDA;
}

bool target_is_gpu(const char *device)
{
    const target *t = target_find(device);
    return t->threads && !t->host_memory;
}

bool target_runs_raw(const target *t, const char *language)
{
    return t->language == (strcmp(language, "c") ? TARGET_CUDA : TARGET_C);
}

const char *target_text_ending(const target *t)
{
    return t->language == TARGET_CUDA ? "cu" : t->language == TARGET_C ? "c" : "tile";
}
