/*
 * What timings depend on: the machine, the device, their clocks, who else is working. In: a context and a device. Out: a
 * qn_environment in an arena. Two environments are the same machine if their `machine` words are equal: processor,
 * cores and device, with the GPU's own identity and driver.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "profile/measure/environment.h"
#include "device/cpu/compiler.h"
#include "profile/profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

/* The first line of a small file of the system; "" if there is none. */
static const char *line_of(arena *memory, const char *path)
{
    char line[256];
    FILE *file = fopen(path, "r");
    if (!file) return "";
    const char *words = fgets(line, sizeof(line), file);
    fclose(file);
    if (!words) return "";
    line[strcspn(line, "\n")] = 0;
    return arena_copy_text(memory, line, strlen(line));
}

const char *time_words(arena *memory)
{
    char words[32];
    time_t now = time(NULL);
    struct tm parts;
    gmtime_r(&now, &parts);
    strftime(words, sizeof(words), "%Y-%m-%dT%H:%M:%SZ", &parts);
    return arena_copy_text(memory, words, strlen(words));
}

static void describe_system(arena *memory, qn_environment *out)
{
    struct utsname about;
    out->system = uname(&about) ? "" : arena_print(memory, "%s %s %s", about.sysname, about.release, about.machine);
    out->memory = arena_print(memory, "%.1f GB", machine_memory_bytes() * 1e-9);
    out->governor = line_of(memory, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    double load = 0;
    out->load = getloadavg(&load, 1) == 1 ? load : NAN;
}

/* A GPU is known by its own number where NVML tells it, and always with its driver. */
static void describe_device(arena *memory, qn_context *context, int slot, qn_environment *out, text *identity)
{
    const device_slot *s = &context->slots[slot];
    device_health health;
    out->gpu = out->driver = out->power_limit = "";
    if (!s->driver->health) return;
    const char *words = slot_about(context, slot)->description, *driver = strstr(words, "driver ");
    out->gpu = arena_copy_text(memory, words, strcspn(words, ","));
    if (driver) out->driver = arena_copy_text(memory, driver + 7, strcspn(driver + 7, ","));
    text_print(identity, " %s", words);
    if (!s->driver->health(s->device, &health)) return;
    text_print(identity, " %s", health.identity);
    if (isfinite(health.power_limit_w)) out->power_limit = arena_print(memory, "%.0f W", health.power_limit_w);
}

static void add_warnings(const qn_environment *e, text *out)
{
    if (e->load > 0.5 * e->cores + 0.5)
        text_print(out, "the machine was busy when it began: %.1f processes on %d cores\n", e->load, e->cores);
    if (*e->governor && strcmp(e->governor, "performance") != 0)
        text_print(out, "the processor's governor is `%s`, not `performance`: its clock follows the load\n",
                   e->governor);
}

void environment_fill(arena *memory, qn_context *context, int slot, qn_environment *out)
{
    char name[128], hex[33];
    text identity = {0}, warnings = {0};
    processor_name(name, sizeof(name));
    *out = (qn_environment){.processor = arena_copy_text(memory, name, strlen(name)),
                            .cores = cpu_count(),
                            .version = QN_VERSION,
                            .started = time_words(memory),
                            .throttling = ""};
    describe_system(memory, out);
    const char *host = line_of(memory, "/etc/machine-id");
    text_print(&identity, "%s %s %d", host, name, out->cores);
    describe_device(memory, context, slot, out, &identity);
    hash_to_hex(hash_bytes(text_get(&identity), identity.length), hex);
    hex[16] = 0;
    out->machine = arena_copy_text(memory, hex, 16);
    add_warnings(out, &warnings);
    out->warnings = arena_copy_text(memory, text_get(&warnings), warnings.length);
    text_free(&identity);
    text_free(&warnings);
}

const char *held_words(unsigned held)
{
    static const char *const words[] = {"",
                                        "power limit",
                                        "heat",
                                        "power limit, heat",
                                        "hardware slowdown",
                                        "power limit, hardware slowdown",
                                        "heat, hardware slowdown",
                                        "power limit, heat, hardware slowdown"};
    return words[held & 7];
}
