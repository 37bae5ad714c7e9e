/*
 * The machine: its memory, and its processor's clock, measured: a chain of multiplications, each of which needs the one before, takes a known number
 * of cycles. The best of a few tries counts, since an interrupt only makes one longer.
 * SPDX-License-Identifier: MIT
 */
#include "profile/profile.h"

#include <math.h>
#include <unistd.h>

double machine_memory_bytes(void)
{
    return (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
}

#if defined(__x86_64__) || defined(__aarch64__)
enum {
    STEPS = 256,
    PER_STEP = 16,
    TRIES = 4,
    CYCLES = 3
}; /* a 64-bit product: 3 cycles since Nehalem, Zen, Neoverse */

static uint64_t chain(uint64_t x)
{
    for (int i = 0; i < STEPS; i++) {
#if defined(__x86_64__)
#define PRODUCT "imul %0, %0\n\t"
        __asm__ volatile(PRODUCT PRODUCT PRODUCT PRODUCT PRODUCT PRODUCT PRODUCT PRODUCT PRODUCT PRODUCT PRODUCT PRODUCT
                             PRODUCT PRODUCT PRODUCT PRODUCT
                         : "+r"(x));
#else
#define PRODUCT "mul %0, %0, %0\n\t"
        __asm__ volatile(PRODUCT PRODUCT PRODUCT PRODUCT PRODUCT PRODUCT PRODUCT PRODUCT PRODUCT PRODUCT PRODUCT PRODUCT
                             PRODUCT PRODUCT PRODUCT PRODUCT
                         : "+r"(x));
#endif
    }
    return x;
}

double processor_clock_mhz(void)
{
    int64_t least = INT64_MAX;
    uint64_t x = 3;
    for (int i = 0; i < TRIES; i++) {
        int64_t start_ns = clock_now_ns();
        x = chain(x);
        int64_t ns = clock_now_ns() - start_ns;
        if (ns > 0 && ns < least) least = ns;
    }
    return (double)CYCLES * STEPS * PER_STEP / (double)least * 1e3;
}
#else
double processor_clock_mhz(void)
{
    return NAN;
}
#endif
