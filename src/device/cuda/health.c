/*
 * How the GPU is doing: clocks, heat, power and what holds the clock back, from NVML. It is asked for by the GPU's place
 * on the bus, since NVML counts GPUs in another order than CUDA. Where NVML is not there, nobody tells.
 * SPDX-License-Identifier: MIT
 */
#include "device/cuda/cuda.h"

#include <math.h>

enum { CLOCK_MULTIPROCESSOR = 1, CLOCK_MEMORY = 2, SENSOR_GPU = 0 };
/* NVML's reasons for a clock below the highest. */
enum {
    REASON_POWER = 0x4,
    REASON_HARDWARE = 0x8,
    REASON_HEAT = 0x20,
    REASON_HARDWARE_HEAT = 0x40,
    REASON_POWER_BRAKE = 0x80
};

static bool open_health(cuda_device *d)
{
    qn_error ignored;
    char bus[64];
    if (d->health_tried) return d->health != NULL;
    d->health_tried = true;
    if (!d->api.cuDeviceGetPCIBusId || d->api.cuDeviceGetPCIBusId(bus, sizeof(bus), d->handle)) return false;
    if (cuda_api_open(&d->api, CUDA_LIBRARY_NVML, &ignored) != QN_OK || d->api.nvmlInit_v2()) return false;
    if (!d->api.nvmlDeviceGetHandleByPciBusId_v2 || d->api.nvmlDeviceGetHandleByPciBusId_v2(bus, &d->health)) {
        d->health = NULL;
        d->api.nvmlShutdown();
    }
    return d->health != NULL;
}

static double ask(void *device, int (*function)(void *device, unsigned *value), double unit)
{
    unsigned value = 0;
    return function && !function(device, &value) ? value * unit : NAN;
}

static double ask_kind(void *device, int (*function)(void *device, int kind, unsigned *value), int kind)
{
    unsigned value = 0;
    return function && !function(device, kind, &value) ? value : NAN;
}

bool cuda_health(device *base, device_health *out)
{
    cuda_device *d = (cuda_device *)base;
    const cuda_api *api = &d->api;
    unsigned long long reasons = 0;
    *out = (device_health){.clock_mhz = NAN};
    lock_take(&d->lock);
    bool there = d->probed && !d->unavailable.status && open_health(d);
    lock_give(&d->lock);
    if (!there) return false;
    out->clock_mhz = ask_kind(d->health, api->nvmlDeviceGetClockInfo, CLOCK_MULTIPROCESSOR);
    out->memory_clock_mhz = ask_kind(d->health, api->nvmlDeviceGetClockInfo, CLOCK_MEMORY);
    out->most_clock_mhz = ask_kind(d->health, api->nvmlDeviceGetMaxClockInfo, CLOCK_MULTIPROCESSOR);
    out->temperature_c = ask_kind(d->health, api->nvmlDeviceGetTemperature, SENSOR_GPU);
    out->power_w = ask(d->health, api->nvmlDeviceGetPowerUsage, 1e-3);
    out->power_limit_w = ask(d->health, api->nvmlDeviceGetEnforcedPowerLimit, 1e-3);
    /* The newer name first. */
    int (*held)(void *device, unsigned long long *reasons) = api->nvmlDeviceGetCurrentClocksEventReasons;
    if (!held) held = api->nvmlDeviceGetCurrentClocksThrottleReasons;
    if (held && !held(d->health, &reasons)) {
        if (reasons & (REASON_POWER | REASON_POWER_BRAKE)) out->held |= HELD_BY_POWER;
        if (reasons & (REASON_HEAT | REASON_HARDWARE_HEAT)) out->held |= HELD_BY_HEAT;
        if (reasons & REASON_HARDWARE) out->held |= HELD_BY_HARDWARE;
    }
    if (!api->nvmlDeviceGetUUID || api->nvmlDeviceGetUUID(d->health, out->identity, sizeof(out->identity)))
        out->identity[0] = 0;
    return true;
}

void cuda_health_close(cuda_device *d)
{
    if (d->health) d->api.nvmlShutdown();
    d->health = NULL;
}
