/*
 * Every barrier, wait, fence and arrival of a generated text, left out once: emu finds each, as a finding, a program that
 * nobody can go on with, or wrong numbers. The texts are those of a product that bulk copies feed (bf16), of one that
 * takes f32 operands as they come and of attention, long enough that their rings turn and a block stores more than once. What is left out is
 * chosen from the text itself, so a new kind of wait is tried as well. A few of the first text are tried each time;
 * QUERN_MUTATIONS=all tries all of the three.
 * SPDX-License-Identifier: MIT
 */
#include "run/run.h"
#include "test.h"

#include <quern/workbench.h>
#include <stdlib.h>
#include <string.h>

enum { ARRAYS = 5, RANK = 4, SETTINGS = 5 };

typedef struct array_of {
    const char *name;
    qn_dtype elem;
    int rank;
    int64_t extents[RANK];
} array_of;

typedef struct subject {
    const char *file, *kernel;
    int count; /* of arrays; the last one is the output that is compared */
    array_of arrays[ARRAYS];
    const char *settings[SETTINGS][2];
    double within; /* of what ref has; 0: the bits */
} subject;

static const subject subjects[] = {
    {"/kernels/matmul.qn",
     "matmul_tiled",
     3,
     {{"a", QN_BF16, 2, {72, 384}}, {"b", QN_BF16, 2, {384, 264}}, {"c", QN_BF16, 2, {72, 264}}},
     {{0}},
     0},
    {"/tests/data/fed.qn",
     "converted",
     3,
     {{"a", QN_F32, 2, {72, 384}}, {"b", QN_F32, 2, {384, 136}}, {"c", QN_F32, 2, {72, 136}}},
     {{0}},
     0},
    {"/kernels/attention.qn",
     "attention",
     5,
     {{"q", QN_BF16, 4, {1, 1, 136, 64}},
      {"k", QN_BF16, 4, {1, 1, 136, 64}},
      {"v", QN_BF16, 4, {1, 1, 136, 64}},
      {"lse", QN_F32, 3, {1, 1, 136}},
      {"o", QN_BF16, 4, {1, 1, 136, 64}}},
     {{"D", "64"}, {"scale", "0.0625"}, {"CAUSAL", "true"}, {"BM", "128"}, {"BN", "16"}},
     0.02},
};

/* What orders one thread's work before another's. registers_* only ask for room, and a second fence with no wait for
 * products since the first orders nothing that the first did not. */
static const char *const kinds[] = {"phases_ready(",   "__syncthreads(", "phase_wait(",  "phase_expect(",
                                    "matrix_fence(",   "matrix_commit(", "matrix_wait<", "phase_arrive(",
                                    "bulk_wait_read<", "__syncwarp(",    "fence_async(", "bulk_commit("};

static driver mutated; /* emu, with another text */
static int victim = -1, statement_count;
static char left_out[128];

/* The statement that begins at `at`, up to its semicolon, becomes blanks. */
static void blank(char *at)
{
    size_t length = strcspn(at, ";");
    snprintf(left_out, sizeof(left_out), "%.*s", (int)length, at);
    memset(at, ' ', length);
}

static qn_status emit(const device *d, const tile_kernel *k, text *out, struct cuda_layout **layout, qn_error *error)
{
    size_t before = out->length;
    QN_TRY(driver_emu.emit(d, k, out, layout, error));
    char *at = strstr(out->data + before, "extern \"C\"");
    statement_count = 0;
    bool fenced = false;
    for (; at && *at; at++)
        for (int i = 0; i < COUNT(kinds); i++) {
            if (strncmp(at, kinds[i], strlen(kinds[i])) != 0 || at[-1] == '_') continue;
            bool fence = !strcmp(kinds[i], "matrix_fence("), again = fence && fenced;
            fenced = fence || (fenced && strcmp(kinds[i], "matrix_wait<"));
            if (!again && statement_count++ == victim) blank(at);
            break;
        }
    return QN_OK;
}

static size_t bytes_of(const array_of *a)
{
    size_t bytes = (size_t)dtypes[a->elem].size_bytes;
    for (int i = 0; i < a->rank; i++) bytes *= (size_t)a->extents[i];
    return bytes;
}

/* Small whole numbers: sums are exact in every order. */
static void *numbers(const array_of *a, int seed)
{
    size_t bytes = bytes_of(a), size = (size_t)dtypes[a->elem].size_bytes;
    char *x = aligned_alloc(64, (bytes + 127) / 64 * 64);
    for (size_t i = 0; x && i < bytes / size; i++)
        element_write((dtype)a->elem, x + i * size, (number){.f = (double)((i * (size_t)(5 + seed) + i / 3) % 5) - 2});
    return x;
}

/* Runs the kernel in a context of its own, on `ref`, or on emu with one multiprocessor, whose only block takes all tiles;
 * false: it was refused or something was found, the words are in *error. */
static bool run(const subject *s, const char *device, void *const *data, emu_order order, qn_error *error)
{
    qn_context *context = NULL;
    qn_module *module = NULL;
    qn_call *call = NULL;
    int slot;
    char path[512];
    snprintf(path, sizeof(path), "%s%s", QUERN_ROOT, s->file);
    bool good = qn_context_open(&(qn_context_options){.no_cache = true}, &context, error) == QN_OK &&
                context_slot(context, device, &slot, error) == QN_OK;
    if (good && !strcmp(device, "emu")) {
        mutated = driver_emu;
        mutated.emit = emit;
        context->slots[slot].driver = &mutated;
        driver_emu.set_checked(context->slots[slot].device, true);
        emu_vary(context->slots[slot].device, 1, order);
    }
    memset(data[s->count - 1], 0, bytes_of(&s->arrays[s->count - 1]));
    good = good && qn_module_load_file(context, path, &module, error) == QN_OK &&
           qn_call_new(module, s->kernel, &call, error) == QN_OK;
    for (int i = 0; i < s->count && good; i++) {
        const array_of *a = &s->arrays[i];
        good = qn_call_set_memory(call, a->name, data[i], a->elem, a->rank, a->extents, NULL, error) == QN_OK;
    }
    for (int i = 0; i < SETTINGS && s->settings[i][0] && good; i++)
        good = qn_call_set_text(call, s->settings[i][0], s->settings[i][1], error) == QN_OK;
    good = good && qn_call_run(call, device, error) == QN_OK;
    qn_call_free(call);
    qn_module_free(module);
    qn_context_close(context);
    return good;
}

static bool is_near(const subject *s, const void *got, const void *want)
{
    const array_of *a = &s->arrays[s->count - 1];
    size_t bytes = bytes_of(a), size = (size_t)dtypes[a->elem].size_bytes;
    if (s->within == 0) return !memcmp(want, got, bytes);
    for (size_t at = 0; at < bytes; at += size) {
        double x = element_read((dtype)a->elem, (const char *)got + at).f;
        if (!(fabs(x - element_read((dtype)a->elem, (const char *)want + at).f) <= s->within)) return false;
    }
    return true;
}

/* Whoever runs first. */
static bool is_right(const subject *s, void *const *data, const void *want, qn_error *error)
{
    for (int order = 0; order < EMU_ORDERS; order++)
        if (!run(s, "emu", data, (emu_order)order, error) || !is_near(s, data[s->count - 1], want)) return false;
    return true;
}

/* every: how far the statements that are tried are apart. */
static void leave_out(const subject *s, int every, int first)
{
    qn_error error = {0};
    void *data[COUNT(s->arrays)] = {0};
    const array_of *out = &s->arrays[s->count - 1];
    for (int i = 0; i < s->count; i++) data[i] = numbers(&s->arrays[i], i + 1);
    void *want = numbers(out, 0);
    bool good = run(s, "ref", data, EMU_IN_TURN, &error);
    memcpy(want, data[s->count - 1], bytes_of(out));
    good = good && is_right(s, data, want, &error);
    if (!good) printf("%s: %s\n", s->kernel, error.message);
    EXPECT(good && statement_count > 10);
    int count = statement_count, found = 0, tried = 0;
    for (int i = first; good && i < count; i += every) {
        victim = i;
        /* The lanes of a warp run one after the other: what the first of them waits for is over for the others too,
         * unless the last one runs first; warps that fill wait for those that multiply only if they run ahead. */
        bool quiet = is_right(s, data, want, &error);
        if (quiet) printf("%s: nobody misses statement %d: %s\n", s->kernel, i, left_out);
        if (every == 1) printf("note: %d %s: %.150s\n", i, left_out, quiet ? "-" : error.message);
        EXPECT(!quiet);
        found += !quiet;
        tried++;
    }
    victim = -1;
    printf("note: %s: %d of %d statements left out, %d found\n", s->kernel, tried, count, found);
    for (int i = 0; i < s->count; i++) free(data[i]);
    free(want);
}

TEST(each_is_found)
{
    bool all = getenv("QUERN_MUTATIONS");
    /* 12: the wait of one lane that the others have to hear of */
    for (int i = 0; i < COUNT(subjects); i++)
        if (all || i != 1) leave_out(&subjects[i], all ? 1 : 9, all ? 0 : 3);
}

TEST_MAIN(CASE(each_is_found))
