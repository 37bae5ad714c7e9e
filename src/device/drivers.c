/*
 * The list of devices, best first.
 * SPDX-License-Identifier: MIT
 */
#include "device/device.h"

const driver *const drivers[] = {&driver_cuda, &driver_cpu, &driver_ref, &driver_emu, NULL};
