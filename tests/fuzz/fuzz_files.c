/*
 * Reads bytes as one of the small files that commands take: the first byte says which. An array (.npy), TensorBoard's
 * events, JSON, a safetensors file as `eval` and `--resume` take it: its header, its state, its configuration, its
 * tensors' bytes. Whatever they are: an error with words, or what was read. Built by tools/fuzz (`tools/fuzz files`).
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "data/tensorboard.h"
#include "model/dlrm.h"
#include "base/json_read.h"

#include <quern/safetensors.h>
#include <quern/workbench.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int ftruncate(int file, off_t size); /* unistd.h has an `access`, as the tile IR has */
ssize_t pwrite(int file, const void *bytes, size_t count, off_t at);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void visit(void *user, const char *tag, int64_t step, double value, double wall_time_s)
{
    *(size_t *)user += strlen(tag) + (step > 0) + (value > 0) + (wall_time_s > 0);
}

static void read_checkpoint(const char *path, qn_error *error)
{
    qn_dlrm_config config;
    dlrm_state state;
    qn_safetensors *file;
    if (dlrm_read_state(path, &config, &state, error)) CHECK(strlen(error->message) > 0);
    if (qn_safetensors_open(path, &file, error)) {
        CHECK(strlen(error->message) > 0);
        return;
    }
    for (int i = 0; i < qn_safetensors_count(file); i++) {
        const qn_safetensor *t = qn_safetensors_get(file, i);
        CHECK(qn_safetensors_find(file, t->name) >= 0);
        char *bytes = malloc(t->size_bytes + 1);
        if (!bytes) continue;
        if (qn_safetensors_read(file, i, bytes, t->size_bytes, error)) CHECK(strlen(error->message) > 0);
        free(bytes);
    }
    qn_safetensors_close(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int file = -1;
    static char path[64];
    if (file < 0) {
        file = memfd_create("fuzz", MFD_CLOEXEC);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
    }
    if (!size) return 0;
    CHECK(!ftruncate(file, 0) && pwrite(file, data + 1, size - 1, 0) == (ssize_t)size - 1);
    qn_error error = {0};
    switch (data[0] % 4) {
    case 0: {
        qn_npy npy;
        if (qn_npy_read(path, &npy, &error))
            CHECK(strlen(error.message) > 0);
        else
            qn_npy_free(&npy);
        break;
    }
    case 1: {
        size_t seen = 0;
        bool whole;
        if (events_read(path, visit, &seen, &whole, &error)) CHECK(strlen(error.message) > 0);
        break;
    }
    case 2: {
        arena *memory = arena_new();
        json_node root;
        char *words = malloc(size);
        memcpy(words, data + 1, size - 1);
        words[size - 1] = 0;
        if (json_read(memory, "fuzz", words, &root, &error)) CHECK(strlen(error.message) > 0);
        free(words);
        arena_free(memory);
        break;
    }
    default: read_checkpoint(path, &error); break;
    }
    return 0;
}
