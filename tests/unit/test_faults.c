/*
 * Memory that runs out in the middle of calls. Every allocation of a call fails in turn (tests/faults/shim.c, which the
 * program starts itself again with): the call ends with a status and a message or with right results, and the same
 * objects do the same call rightly afterwards. Also: sizes that nobody has.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "quiet.h"
#include "share.h"

#include "base/base.h"

#include <dlfcn.h>
#include <math.h>
#include <quern/dlrm.h>
#include <quern/model.h>
#include <quern/nn.h>
#include <quern/workbench.h>
#include <stdlib.h>
#include <unistd.h>

enum { MEMORY = 1, FILES = 2 };

static void (*fault_arm)(int kind, long at, bool sticky);
static long (*fault_seen)(int kind);

static const char source[] =
    "kernel twice(in float x[n], out float y[n], const int B = 64) launch (cdiv(n, B))\n"
    "{ y[program(0) * B : B] = 2 * x[program(0) * B : B]; }\n"
    "kernel rows(in float x[n], in i64 length[m], out float y[m]) launch (m)\n"
    "{ tile float t = x[0 : length[program(0)]]; t = t * 2; y[program(0)] = sum(t) + max(t); }\n"
    "kernel big(in float x[n], out float y[n], const int B = 16) launch (1)\n"
    "{ tile float t[B] = 1; tile float u[B] = 2; for (int i = 0; i < n; i++) { t = t + u * x[i]; u = u + 1; }\n"
    "  y[:] = sum(t) * 1e-8 + 1; }\n"
    "tensor soft(float x[n]) { return softmax(x * 2) + sum(x); }\n"
    "tensor whole(float x[n]) { return big(x, B = 1 << 24); }\n"
    "tensor twice_function(float x[n]) { return twice(x); }\n";

enum { N = 100 };
static float x[N], y[N], expected[N];
static int64_t length[N];

typedef struct job {
    const char *device, *kernel;
} job;

/* Everything from nothing, so that each stage meets its failure. */
static qn_status from_nothing(const job *j, qn_error *error)
{
    qn_context *context = NULL;
    qn_module *module = NULL;
    qn_call *call = NULL;
    const int64_t n = N, m = N;
    bool rows = !strcmp(j->kernel, "rows");
    qn_status status = qn_context_open(NULL, &context, error);
    if (!status) status = qn_module_load_text(context, "faults.qn", source, &module, error);
    if (!status) status = qn_call_new(module, j->kernel, &call, error);
    if (!status) status = qn_call_set_memory(call, "x", x, QN_F32, 1, &n, NULL, error);
    if (!status && rows) status = qn_call_set_memory(call, "length", length, QN_I64, 1, &m, NULL, error);
    if (!status) status = qn_call_run(call, j->device, error);
    qn_array array;
    if (!status) status = qn_call_get(call, "y", &array, error);
    if (!status) memcpy(y, array.data, sizeof(y));
    qn_call_free(call);
    qn_module_free(module);
    qn_context_close(context);
    return status;
}

static void every_allocation(const char *what, qn_status (*work)(const job *j, qn_error *error), const job *j)
{
    qn_error error;
    memset(y, 0, sizeof(y));
    qn_status status = work(j, &error);
    if (status == QN_NO_DEVICE) return;
    EXPECT(status == QN_OK);
    if (status) fprintf(stderr, "%s: %s\n", what, error.message);
    memcpy(expected, y, sizeof(y));
    for (int sticky = 0; sticky < 2; sticky++) {
        long refused = 0, last = 1;
        long fewest = 0; /* memory that lies otherwise may make another plan once */
        for (int turn = 0; turn < 3; turn++) {
            fault_arm(MEMORY, 0, false);
            (void)work(j, &error);
            last = fault_seen(MEMORY);
            fault_arm(0, 0, false);
            fewest = turn ? MINIMUM(fewest, last) : last;
        }
        for (long at = 1; at <= last; at += share_of_few("allocations that fail") * (1 + at / 40)) {
            memset(y, 0, sizeof(y));
            error.message[0] = 0;
            fault_arm(MEMORY, at, sticky);
            status = work(j, &error);
            fault_arm(0, 0, false);
            if (status) refused++;
            if (status) EXPECT(error.message[0] && error.status == status);
            if (!status && memcmp(y, expected, sizeof(y))) {
                fprintf(stderr, "%s on %s: success without the result when allocation %ld failed\n", what, j->device,
                        at);
                EXPECT(false);
            }
        }
        EXPECT(refused > 0 || fewest < 100); /* a call that was made before allocates hardly anything */
        EXPECT(work(j, &error) == QN_OK && !memcmp(y, expected, sizeof(y)));
    }
}

TEST(kernels_from_nothing)
{
    static const char *const devices[] = {"ref", "cpu", "emu"};
    for (int d = 0; d < 3; d++) {
        every_allocation("twice", from_nothing, &(job){devices[d], "twice"});
        every_allocation("rows", from_nothing, &(job){devices[d], "rows"});
    }
}

/* ---- the same objects go on ---- */

static qn_context *context;
static qn_module *module;

static qn_status again(const job *j, qn_error *error)
{
    static qn_call *call;
    const int64_t n = N;
    const char *kernel = j->kernel ? j->kernel : "";
    if (!j->kernel) {
        qn_call_free(call);
        call = NULL;
        return QN_OK;
    }
    qn_status status = call ? QN_OK : qn_call_new(module, kernel, &call, error);
    if (!status) status = qn_call_set_memory(call, "x", x, QN_F32, 1, &n, NULL, error);
    if (!status) status = qn_call_run(call, j->device, error);
    qn_array array;
    qn_param param;
    if (!status) status = qn_kernel_param(module, kernel, qn_kernel_param_count(module, kernel) - 1, &param, error);
    if (!status) status = qn_call_get(call, !strcmp(kernel, "twice") ? "y" : param.name, &array, error);
    if (!status) memcpy(y, array.data, sizeof(y));
    return status;
}

TEST(same_objects)
{
    static const char *const devices[] = {"ref", "cpu", "emu"}, *const kernels[] = {"twice", "soft", "twice_function"};
    qn_error error;
    EXPECT(qn_context_open(NULL, &context, &error) == QN_OK);
    EXPECT(qn_module_load_text(context, "faults.qn", source, &module, &error) == QN_OK);
    for (int d = 0; d < 3; d++)
        for (int k = 0; k < 3; k++) {
            every_allocation(kernels[k], again, &(job){devices[d], kernels[k]});
            (void)again(&(job){0}, &error);
        }
    qn_module_free(module);
    qn_context_close(context);
}

/* Training: variables, gradients, a tape that lives on. */
static qn_status train(const job *j, qn_error *error)
{
    qn_context *c = NULL;
    qn_tape *tape = NULL;
    qn_status status = qn_context_open(NULL, &c, error);
    if (!status) status = qn_tape_new(c, j->device, &tape, error);
    if (!status) {
        qn_tensor a = qn_from_memory(tape, x, QN_F32, QN_SHAPE(N)), w = qn_variable(a);
        qn_tensor out = qn_sum(qn_mul(qn_tanh(w), a), QN_ALL, false), gradient;
        qn_grad(out, &w, 1, &gradient);
        qn_assign(w, qn_sub(w, gradient));
        status = qn_tape_error(tape, error);
        if (!status) status = qn_tensor_read(w, y, sizeof(y), error);
    }
    qn_tape_free(tape);
    qn_context_close(c);
    return status;
}

TEST(tapes)
{
    every_allocation("train", train, &(job){"cpu", "train"});
    every_allocation("train", train, &(job){"ref", "train"});
}

/* ---- sizes that nobody has ---- */

TEST(huge_sizes)
{
    qn_error error;
    EXPECT(qn_context_open(NULL, &context, &error) == QN_OK);
    EXPECT(qn_module_load_text(context, "faults.qn", source, &module, &error) == QN_OK);
    static const char *const devices[] = {"ref", "cpu"};
    for (int d = 0; d < 2; d++) {
        qn_call *call = NULL;
        const int64_t n = N;
        EXPECT(qn_call_new(module, "big", &call, &error) == QN_OK);
        EXPECT(qn_call_set_memory(call, "x", x, QN_F32, 1, &n, NULL, &error) == QN_OK);
        EXPECT(qn_call_set_int(call, "B", (int64_t)1 << 45, &error) == QN_OK);
        qn_status status = qn_call_run(call, devices[d], &error);
        EXPECT(status != QN_OK && error.message[0]);
        EXPECT(qn_call_set_int(call, "B", 16, &error) == QN_OK);
        EXPECT(qn_call_run(call, devices[d], &error) == QN_OK);
        qn_call_free(call);
    }
    qn_module_free(module);
    qn_context_close(context);
    EXPECT(heap_reserve_most_bytes() < ((size_t)16 << 20));
}

/* ---- more is needed than the reserve has ---- */

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#define MAY_LOSE(on) ((on) ? __lsan_disable() : __lsan_enable())
#else
#define MAY_LOSE(on) (void)(on)
#endif

enum { KERNELS = 1500, STEPS = 1500 };

static qn_status load_many(const char *words, qn_error *error)
{
    qn_module *m = NULL;
    qn_status status = qn_module_load_text(context, "many.qn", words, &m, error);
    EXPECT(status || qn_kernel_param_count(m, "k7") > 0);
    qn_module_free(m);
    return status;
}

static qn_tensor chain(qn_tape *tape, qn_tensor *w)
{
    qn_tensor at = *w = qn_variable(qn_from_memory(tape, x, QN_F32, QN_SHAPE(N)));
    for (int i = 0; i < STEPS; i++) at = qn_tanh(qn_mul(at, *w));
    return at;
}

/* Steps on memory of their own are given up, and the same objects do the same rightly afterwards. */
TEST(steps_are_given_up)
{
    qn_error error;
    text words = {0};
    for (int i = 0; i < KERNELS; i++)
        text_print(&words, "kernel k%d(in float x[n], out float y[n]) launch (1) { y[:] = x[:] * %d + 1; }\n", i, i);
    EXPECT(qn_context_open(NULL, &context, &error) == QN_OK);
    MAY_LOSE(true);
    heap_allow_reserve((size_t)200 << 10);
    fault_arm(MEMORY, 20, true);
    EXPECT(load_many(text_get(&words), &error) == QN_NO_MEMORY && error.message[0]);
    fault_arm(0, 0, false);
    EXPECT(!heap_is_stopped());
    heap_allow_reserve(0);
    EXPECT(load_many(text_get(&words), &error) == QN_OK);

    qn_tape *tape = NULL;
    EXPECT(qn_tape_new(context, "ref", &tape, &error) == QN_OK);
    qn_tensor w, at = chain(tape, &w), gradient;
    heap_allow_reserve((size_t)400 << 10);
    fault_arm(MEMORY, 10, true);
    qn_status status = qn_tensor_read(at, y, sizeof(y), &error);
    fault_arm(0, 0, false);
    EXPECT(status == QN_NO_MEMORY && !heap_is_stopped());
    heap_allow_reserve(0);
    EXPECT(qn_tensor_read(at, y, sizeof(y), &error) == QN_OK && y[0] != 0);

    /* A tape is the one thing that such a step changes: it says what to do. Its scopes end as they always do. */
    for (size_t bytes = 100; bytes < 400; bytes += bytes / 4) {
        qn_scope_begin(tape);
        at = qn_sum(chain(tape, &w), QN_ALL, false);
        heap_allow_reserve(bytes << 10);
        fault_arm(MEMORY, 1, true);
        qn_grad(at, &w, 1, &gradient);
        fault_arm(0, 0, false);
        EXPECT(!heap_is_stopped());
        heap_allow_reserve(0);
        EXPECT(qn_eval(tape, &at, 1, &error) == QN_NO_MEMORY && strstr(error.message, "make it again"));
        EXPECT(qn_eval(tape, &at, 1, &error) == QN_NO_MEMORY);
        qn_scope_end(tape);
        qn_tape_free(tape);
        EXPECT(qn_tape_new(context, "ref", &tape, &error) == QN_OK);
    }
    qn_tape_free(tape);
    MAY_LOSE(false);
    qn_context_close(context);
    text_free(&words);
    EXPECT(train(&(job){"cpu", "train"}, &error) == QN_OK);
}

typedef struct filling {
    hash_index index;
    int count;
} filling;

static uint64_t hash_of(int number)
{
    return (uint64_t)number * 0x9e3779b97f4a7c15u >> 20;
}

static qn_status fill(void *of, qn_error *error)
{
    filling *f = of;
    (void)error;
    for (; f->count < 1 << 24; f->count++) hash_index_add(&f->index, hash_of(f->count), f->count);
    return QN_OK; /* memory has run out before */
}

/* A tape whose gradient was given up still ends its scopes, and takes their nodes out of its index. */
TEST(an_index_without_room_to_grow_is_whole)
{
    qn_error error;
    arena *memory = arena_new();
    filling f = {.index = {.memory = memory}};
    MAY_LOSE(true);
    heap_allow_reserve((size_t)400 << 10);
    fault_arm(MEMORY, 1, true);
    qn_status status = heap_try(fill, &f, &error);
    fault_arm(0, 0, false);
    heap_allow_reserve(0);
    MAY_LOSE(false);
    EXPECT(status == QN_NO_MEMORY && f.count > 100);
    int found = 0;
    for (int i = 0; i < f.count; i++) {
        int at = 0;
        found += hash_index_next(&f.index, hash_of(i), &at) == i;
    }
    EXPECT(found == f.count);
    for (int i = 0; i < f.count && found == f.count; i++) hash_index_remove(&f.index, hash_of(i), i);
    EXPECT(f.index.count == f.count - found);
    arena_free(memory);
}

/* Texts that callers free come from where `free` looks, or there are none; what has no status says that it knows nothing. */
TEST(texts_for_callers)
{
    static const float scores[4] = {1, 2, 3, 4}, labels[4] = {0, 1, 0, 1};
    qn_comparison c = {.count = 3, .rank = 1, .beyond = 1, .worst_ulp = 2};
    qn_dlrm_config config;
    qn_error error;
    EXPECT(qn_dlrm_config_read(QUERN_ROOT "/models/small.json", &config, &error) == QN_OK);
    for (int at = 0; at < 8; at++)
        for (int sticky = 0; sticky < 2; sticky++) {
            if (at) fault_arm(MEMORY, at, sticky);
            char *texts[2] = {qn_comparison_text(&c), qn_dlrm_config_text(&config)};
            double auc = qn_auc(scores, labels, 4);
            fault_arm(0, 0, false);
            EXPECT(auc == 0.75 || (at && isnan(auc)));
            for (int i = 0; i < 2; i++) {
                EXPECT(texts[i] ? strlen(texts[i]) > 20 : at > 0);
                free(texts[i]);
            }
        }
}

/* Whatever the reserve and wherever it ends, the process goes on: calls are refused with a word. */
TEST(reserves_of_any_size)
{
    static const job jobs[] = {{"cpu", "twice"}, {"ref", "rows"}, {"emu", "twice"}};
    qn_error error;
    long stopped = 0, refused = 0;
    MAY_LOSE(true);
    for (int j = 0; j < COUNT(jobs); j++)
        for (size_t bytes = 4096; bytes <= (size_t)256 << 10; bytes *= 4)
            for (long at = 1; at < 3000; at += 1 + at / 3) {
                heap_allow_reserve(bytes);
                fault_arm(MEMORY, at, true);
                error.message[0] = 0;
                qn_status status = from_nothing(&jobs[j], &error);
                bool was = heap_is_stopped();
                qn_status after = from_nothing(&jobs[j], &error);
                fault_arm(0, 0, false);
                EXPECT(!status || error.message[0]);
                EXPECT(!was || after == QN_NO_MEMORY);
                stopped += was;
                refused += status != QN_OK;
            }
    heap_allow_reserve(0);
    EXPECT(refused > 0 && stopped > 0 && stopped < refused);
    EXPECT(from_nothing(&jobs[0], &error) == QN_OK);
    MAY_LOSE(false);
}

/* ---- a full disk ---- */

static size_t bytes_of(const char *path, char *room, size_t size)
{
    FILE *file = fopen(path, "rb");
    size_t count = file ? fread(room, 1, size, file) : 0;
    if (file) fclose(file);
    return count;
}

/* Each operation on files finds the disk full (ENOSPC), alone and with all after it: the old file stays whole, nothing
 * lies beside it, and there is a message. */
TEST(a_full_disk_loses_nothing)
{
    static char before[40000], now[40000];
    char folder[] = "/tmp/quern-full-XXXXXX", path[80], command[200];
    qn_error error;
    qn_tape *tape;
    int refused = 0;
    bool named = false;
    EXPECT(mkdtemp(folder) != NULL);
    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    snprintf(command, sizeof(command), "test \"$(ls -A %s)\" = model.safetensors", folder);
    EXPECT(!qn_context_open(NULL, &context, &error) && !qn_tape_new(context, "ref", &tape, &error));
    qn_model *net = qn_model_new(tape, 1);
    qn_model_linear(net, "fc", 64, 64, true);
    EXPECT(!qn_model_save(net, NULL, NULL, path, &error));
    size_t size = bytes_of(path, before, sizeof(before));
    for (int sticky = 0; sticky < 2; sticky++)
        for (long at = 1; at < 100; at++) {
            fault_arm(FILES, at, sticky);
            error.message[0] = 0;
            qn_status status = qn_model_save(net, NULL, NULL, path, &error);
            bool reached = fault_seen(FILES) >= at;
            fault_arm(0, 0, false);
            EXPECT(status == (status ? QN_BAD_FILE : QN_OK) && (!status || error.message[0]));
            named |= strstr(error.message, "No space left on device") != NULL;
            refused += status != QN_OK;
            EXPECT(bytes_of(path, now, sizeof(now)) == size && !memcmp(before, now, size));
            if (!sticky) EXPECT(system(command) == 0); /* with every later one failing it cannot be taken away */
            if (!reached) break;
        }
    EXPECT(refused >= 4 && named);
    EXPECT(!qn_model_load(net, NULL, path, NULL, &error));
    qn_model_free(net);
    qn_tape_free(tape);
    qn_context_close(context);
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    EXPECT(system(command) == 0);
}

/* Before main: with the library that fails on order. */
__attribute__((constructor)) static void begin(int count, char **words)
{
    (void)count;
    void *arm = dlsym(RTLD_DEFAULT, "fault_arm"), *seen = dlsym(RTLD_DEFAULT, "fault_seen");
    if (!arm) {
        bool tried = getenv("LD_PRELOAD") && !strcmp(getenv("LD_PRELOAD"), FAULT_SHIM);
        setenv("LD_PRELOAD", FAULT_SHIM, 1);
        char options[1000]; /* of a sanitizer, whose malloc comes second then */
        const char *given = getenv("ASAN_OPTIONS");
        snprintf(options, sizeof(options), "%s%sverify_asan_link_order=0:allocator_may_return_null=1",
                 given ? given : "", given ? ":" : "");
        setenv("ASAN_OPTIONS", options, 1);
        if (!tried) execv("/proc/self/exe", words);
        perror("test_faults");
        exit(1);
    }
    memcpy(&fault_arm, &arm, sizeof(arm));
    memcpy(&fault_seen, &seen, sizeof(seen));
    unsetenv("LD_PRELOAD"); /* compilers that are started are left alone */
    for (int i = 0; i < N; i++) {
        x[i] = (float)(i % 7) - 2.5f;
        length[i] = 1 + i % 50;
    }
}

TEST_MAIN(CASE(kernels_from_nothing), CASE(same_objects), CASE(tapes), CASE(huge_sizes), CASE(steps_are_given_up),
          CASE(an_index_without_room_to_grow_is_whole), CASE(texts_for_callers), CASE(reserves_of_any_size),
          CASE(a_full_disk_loses_nothing))
