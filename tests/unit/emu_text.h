/*
 * CUDA text for the engine of `emu`: shared by test_emu.c and test_emu_checked.c.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_EMU_TEXT_H
#define QUERN_TESTS_EMU_TEXT_H

#include "test.h"
#include "device/emu/unit.h"
#include <stdlib.h>
#include <unistd.h>

static compiler cpp;

static emu_engine *engine;

static int serial;

static text printed;

static bool make(const char *source, bool checked, emu_library *l, qn_error *error)
{
    char path[64];
    snprintf(path, sizeof(path), "/tmp/quern-emu-%d-%d.so", (int)getpid(), serial++);
    qn_status status = emu_unit_compile(&cpp, source, checked, path, error);
    if (status == QN_OK) status = emu_library_open(path, l, error);
    if (!checked) unlink(path);
    return status == QN_OK;
}

static void unmake(emu_library *l)
{
    if (l->path) unlink(l->path);
    emu_library_close(l);
}

static void collect(void *context, const char *words)
{
    (void)context;
    text_add(&printed, words);
}

typedef struct shape {
    unsigned grid[3], block[3];
    int cluster;
    bool cooperative;
    size_t shared_bytes;
} shape;

static bool launch(const emu_library *l, const char *kernel, shape s, void *const *arguments, const emu_range *ranges,
                   int range_count, emu_launch *out)
{
    qn_error error;
    *out = (emu_launch){.entry = emu_library_find(l, kernel),
                        .arguments = arguments,
                        .cluster_blocks = s.cluster ? s.cluster : 1,
                        .cooperative = s.cooperative,
                        .shared_bytes = s.shared_bytes,
                        .touch = l->touch,
                        .dynamic = l->dynamic,
                        .library_address = (const void *)l->first,
                        .print = collect,
                        .checked = l->checked,
                        .ranges = ranges,
                        .range_count = range_count};
    memcpy(out->grid, s.grid, sizeof(s.grid));
    memcpy(out->block, s.block, sizeof(s.block));
    EXPECT(out->entry != NULL);
    if (!out->entry) return false;
    qn_status status = emu_engine_run(engine, out, &error);
    if (status != QN_OK) printf("%s\n", error.message);
    return status == QN_OK;
}

TEST(open_engine)
{
    compiler_find_cpp(&cpp);
    EXPECT(cpp.path[0]);
    engine = emu_engine_new(2);
}

TEST(close_engine)
{
    emu_engine_free(engine);
}

#endif
