/*
 * A case once on every device that is there. The file has a context, an error, and `where`: the device of the round.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_ON_DEVICES_H
#define QUERN_TESTS_ON_DEVICES_H

#include <quern/device.h>

#define ON_EVERY_DEVICE(function)                                                           \
    TEST(on_devices_##function)                                                             \
    {                                                                                       \
        static const char *const names[] = {"ref", "cpu", "emu", "cuda"};                   \
        for (int i = 0; i < COUNT(names); i++) {                                            \
            qn_device_info info;                                                            \
            where = names[i];                                                               \
            if (qn_device_find(context, where, &info, &error) || !info.available) continue; \
            function();                                                                     \
        }                                                                                   \
    }

#endif
