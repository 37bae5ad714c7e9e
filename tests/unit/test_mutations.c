/*
 * Every barrier, wait, fence and arrival of a generated text, left out once: emu finds each, as a finding, a program that
 * nobody can go on with, or wrong numbers. The text is that of a product that bulk copies feed (kernels/matmul.qn, bf16),
 * long enough that its ring turns and a block stores more than once. What is left out is chosen from the text itself, so
 * a new kind of wait is tried as well. A few are tried each time; QUERN_MUTATIONS=all tries all of them.
 * SPDX-License-Identifier: MIT
 */
#include "run/run.h"
#include "test.h"

#include <quern/workbench.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 72, COLUMNS = 264, DEPTH = 64 * 6, MOST = 64 };

/* What orders one thread's work before another's. registers_* only ask for room. */
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
    for (; at && *at; at++)
        for (int i = 0; i < COUNT(kinds); i++) {
            if (strncmp(at, kinds[i], strlen(kinds[i])) != 0 || at[-1] == '_') continue;
            if (statement_count++ == victim) blank(at);
            break;
        }
    return QN_OK;
}

typedef struct arrays {
    uint16_t *a, *b;
    uint16_t *c;
} arrays;

static uint16_t *numbers(int64_t count, int seed)
{
    uint16_t *x = aligned_alloc(64, ((size_t)count * 2 + 127) / 64 * 64);
    for (int64_t i = 0; x && i < count; i++) x[i] = bf16_from_double((double)((i * (5 + seed) + i / 3) % 5 - 2));
    return x;
}

/* Runs the product in a context of its own, on one multiprocessor, whose only block takes all tiles; false: it was refused
 * or something was found, the words are in *error. */
static bool run(const arrays *x, bool backwards, qn_error *error)
{
    qn_context *context = NULL;
    qn_module *module = NULL;
    qn_call *call = NULL;
    int slot;
    const int64_t a[] = {ROWS, DEPTH}, b[] = {DEPTH, COLUMNS}, c[] = {ROWS, COLUMNS};
    bool good = qn_context_open(&(qn_context_options){.no_cache = true}, &context, error) == QN_OK &&
                context_slot(context, "emu", &slot, error) == QN_OK;
    if (good) {
        mutated = driver_emu;
        mutated.emit = emit;
        context->slots[slot].driver = &mutated;
        driver_emu.set_checked(context->slots[slot].device, true);
        emu_vary(context->slots[slot].device, 1, backwards);
    }
    memset(x->c, 0, sizeof(uint16_t) * ROWS * COLUMNS);
    good = good && qn_module_load_file(context, QUERN_ROOT "/kernels/matmul.qn", &module, error) == QN_OK &&
           qn_call_new(module, "matmul_tiled", &call, error) == QN_OK &&
           qn_call_set_memory(call, "a", x->a, QN_BF16, 2, a, NULL, error) == QN_OK &&
           qn_call_set_memory(call, "b", x->b, QN_BF16, 2, b, NULL, error) == QN_OK &&
           qn_call_set_memory(call, "c", x->c, QN_BF16, 2, c, NULL, error) == QN_OK &&
           qn_call_run(call, "emu", error) == QN_OK;
    qn_call_free(call);
    qn_module_free(module);
    qn_context_close(context);
    return good;
}

static bool is_right(const arrays *x, const uint16_t *want, bool backwards, qn_error *error)
{
    return run(x, backwards, error) && !memcmp(want, x->c, sizeof(uint16_t) * ROWS * COLUMNS);
}

TEST(each_is_found)
{
    qn_error error = {0};
    arrays x = {numbers(ROWS * DEPTH, 1), numbers(DEPTH * COLUMNS, 2), numbers(ROWS * COLUMNS, 0)};
    uint16_t *want = numbers(ROWS * COLUMNS, 0);
    const char *all = getenv("QUERN_MUTATIONS");
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        double sum = 0; /* of small whole numbers: exact in every order */
        for (int k = 0; k < DEPTH; k++)
            sum += bf16_to_double(x.a[i / COLUMNS * DEPTH + k]) * bf16_to_double(x.b[k * COLUMNS + i % COLUMNS]);
        want[i] = bf16_from_double(sum);
    }
    bool good = true; /* whole, it is right */
    for (int backwards = 0; good && backwards < 2; backwards++) good = is_right(&x, want, backwards, &error);
    if (!good) printf("%s\n", error.message);
    EXPECT(good && statement_count > 10);
    int count = MINIMUM(statement_count, MOST), found = 0, tried = 0;
    for (int i = 0; good && i < count; i++) {
        if (!all && i % 9 != 3) continue; /* 12: the wait of one lane that the others have to hear of */
        victim = i;
        /* The lanes of a warp run one after the other: what the first of them waits for is over for the others too,
         * unless the last one runs first. */
        bool quiet = is_right(&x, want, false, &error) && is_right(&x, want, true, &error);
        if (quiet) printf("nobody misses statement %d: %s\n", i, left_out);
        if (all) printf("note: %d %s: %.150s\n", i, left_out, quiet ? "-" : error.message);
        EXPECT(!quiet);
        found += !quiet;
        tried++;
    }
    victim = -1;
    printf("note: %d of %d statements left out, %d found\n", tried, count, found);
    free(x.a);
    free(x.b);
    free(x.c);
    free(want);
}

TEST_MAIN(CASE(each_is_found))
