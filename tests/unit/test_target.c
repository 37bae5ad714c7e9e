/*
 * Devices by what they can: the rows of targets.def are those of the drivers, and say of each what its driver does.
 * SPDX-License-Identifier: MIT
 */
#include "test.h"

#include "device/device.h"

#include <string.h>

TEST(rows_are_drivers)
{
    int count = 0;
    for (int i = 0; drivers[i]; i++, count++) {
        const target *t = target_find(drivers[i]->name);
        EXPECT_TEXT(t->name, drivers[i]->name);
        EXPECT(t->host_memory == !drivers[i]->memory);
        EXPECT((t->language == TARGET_NONE) == !drivers[i]->emit);
        EXPECT(!t->threads || t->language == TARGET_CUDA);
    }
    EXPECT(count == target_count); /* and there is no row that nobody drives */
}

TEST(questions)
{
    EXPECT(target_find("cuda:1") == target_find("cuda") && target_is_gpu("cuda:12"));
    EXPECT(target_runs_cuda("emu") && !target_is_gpu("emu") && target_find("emu")->host_memory);
    EXPECT(target_find("cpu")->timed && !target_find("ref")->timed && !target_find("emu")->timed);
    EXPECT(target_runs_raw(target_find("cpu"), "c") && !target_runs_raw(target_find("cpu"), "cuda"));
    EXPECT(target_runs_raw(target_find("emu"), "cuda") && !target_runs_raw(target_find("ref"), "c"));
    EXPECT_TEXT(target_text_ending(target_find("emu")), "cu");
    /* A name that is none can nothing, and is no other's beginning. */
    EXPECT(!target_find("cud")->timed && !target_find("cudax")->threads && !target_runs_cuda(NULL) && !target_is_gpu(""));
}

TEST_MAIN(CASE(rows_are_drivers), CASE(questions))
