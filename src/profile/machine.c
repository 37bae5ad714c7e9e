/*
 * What measuring must know of the machine.
 * SPDX-License-Identifier: MIT
 */
#include "profile/profile.h"

#include <unistd.h>

size_t cache_size_bytes(void)
{
    long last = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (last <= 0) last = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return last > 0 ? (size_t)last : (size_t)32 << 20;
}
