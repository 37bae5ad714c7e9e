/*
 * Reads bytes as a .qn file and takes what checks through the rest of the compiler, to text: kernels to C and CUDA C,
 * tensor functions to their fused kernels. Whatever the program is: text, or an error with words; never a signal. Half
 * of the changes exchange a token for another of its kind (tokens.h), so that many programs still check. Built by
 * tools/fuzz (`tools/fuzz show`). SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "fuzz/tokens.h"

#include <quern/quern.h>
#include <quern/workbench.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

int ftruncate(int file, off_t size); /* unistd.h has an `access`, as the tile IR has */
ssize_t pwrite(int file, const void *bytes, size_t count, off_t at);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
    if (seed % 4 == 0) return LLVMFuzzerMutate(data, size, most);
    text out = {0};
    tokens_seed(seed);
    tokens_swap((const char *)data, size, &out);
    size = MINIMUM(out.length, most);
    if (size) memcpy(data, text_get(&out), size);
    text_free(&out);
    return size;
}

static void ignore(void *user, const char *words, size_t length)
{
    *(size_t *)user += length + (words != NULL);
}

/* Of a tensor function all sizes are needed: those that the message misses are given, one by one. */
static void show(qn_context *context, const char *path, const char *name)
{
    static const char *const stages[] = {"c", "cuda", "fusion"};
    for (int s = 0; s < COUNT(stages); s++) {
        char items[12][80];
        const char *list[12];
        qn_settings settings = {.items = list};
        for (bool again = true; again;) {
            size_t seen = 0;
            qn_error error = {0};
            qn_show_options options = {.stage = stages[s], .bench_sizes = true, .settings = settings};
            again = false;
            if (!qn_show(context, path, name, &options, ignore, &seen, &error)) break;
            CHECK(strlen(error.message) > 0 && !strstr(error.message, "internal"));
            const char *end = strstr(error.message, "` is not given"), *start = end;
            while (start && start > error.message && start[-1] != '`') start--;
            if (!start || end - start > 60 || settings.count == COUNT(list)) break;
            snprintf(items[settings.count], sizeof(items[0]), "%.*s=%d", (int)(end - start), start,
                     2 + 3 * settings.count);
            list[settings.count] = items[settings.count];
            settings.count++;
            again = true;
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static qn_context *context;
    static int file = -1;
    static char path[64];
    qn_error error = {0};
    if (!context) {
        CHECK(!qn_context_open(&(qn_context_options){.no_cache = true, .threads = 1}, &context, &error));
        file = memfd_create("fuzz.qn", MFD_CLOEXEC);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
    }
    if (size > 4096) return 0;
    CHECK(!ftruncate(file, 0) && pwrite(file, data, size, 0) == (ssize_t)size);
    qn_module *module;
    if (qn_module_load_file(context, path, &module, &error)) {
        CHECK(strlen(error.message) > 0);
        return 0;
    }
    for (int i = 0; i < qn_module_kernel_count(module) && i < 3; i++)
        show(context, path, qn_module_kernel_name(module, i));
    qn_module_free(module);
    return 0;
}
