/*
 * Ten kernels with a planted fault each (bench/hints.qn) on a GPU. In: nothing. Out: for each its time and what Quern's
 * hints say of it, from the profile of its own launches. bench/hints_ncu.sh puts Nsight Compute's rules beside it.
 *
 * Usage: build/bench_hints [--plain] [--device cuda] [NAME...]. --plain: two launches of each and nothing else, for ncu,
 * which must be the only profiler.
 * SPDX-License-Identifier: MIT
 */
#include "ratios.h"

#include <quern/device.h>
#include <quern/profile.h>
#include <stdbool.h>
#include <string.h>

enum { MOST_ARRAYS = 2, LAUNCHES = 20, SHORT_LAUNCHES = 400 };

typedef struct planted {
    const char *name;
    struct {
        const char *name;
        int rank;
        int64_t extents[2];
    } arrays[MOST_ARRAYS];
    const char *setting, *value; /* or NULL */
    int launches;
} planted;

static const planted kernels[] = {
    {"uncoalesced", {{"x", 1, {1 << 27}}, {"y", 1, {1 << 22}}}, NULL, NULL, LAUNCHES},
    {"bank_conflicts", {{"x", 2, {65536, 1024}}, {"y", 2, {65536, 1024}}}, NULL, NULL, LAUNCHES},
    {"spills", {{"x", 1, {1 << 22}}, {"y", 1, {1 << 22}}}, NULL, NULL, LAUNCHES},
    {"tiny_grid", {{"x", 1, {1 << 22}}, {"y", 1, {4}}}, NULL, NULL, LAUNCHES},
    {"tail", {{"x", 2, {495, 16384}}, {"y", 1, {495}}}, NULL, NULL, LAUNCHES},
    {"shared_occupancy", {{"x", 2, {1024, 32768}}, {"y", 2, {1024, 32768}}}, "warps", "4", LAUNCHES},
    {"register_occupancy", {{"x", 1, {1 << 22}}, {"y", 1, {1 << 22}}}, NULL, NULL, LAUNCHES},
    {"launch_bound", {{"x", 1, {1 << 18}}}, NULL, NULL, SHORT_LAUNCHES},
    {"low_intensity", {{"x", 1, {1 << 28}}, {"y", 1, {1 << 28}}}, NULL, NULL, LAUNCHES},
    {"atomics", {{"x", 1, {1 << 22}}, {"y", 1, {1}}}, NULL, NULL, LAUNCHES},
};

static void to_stdout(void *user, const char *words, size_t length)
{
    (void)user;
    fwrite(words, 1, length, stdout);
}

typedef struct state {
    qn_context *context;
    qn_module *module;
    qn_stream *stream;
    const char *device;
    qn_ceilings ceilings;
    bool plain;
} state;

static void profile(const state *s, const planted *k, qn_call *call)
{
    qn_error error;
    qn_profile *p;
    qn_profile_sum sum;
    const qn_hint_options best = {.most = 3, .ceilings = &s->ceilings};
    TRY(qn_profile_start(s->context, NULL, &p, &error));
    for (int i = 0; i < k->launches; i++) TRY(qn_call_launch(call, s->stream, &error));
    TRY(qn_stream_wait(s->stream, &error));
    TRY(qn_profile_stop(p, &error));
    printf("== %s", k->name);
    if (qn_profile_find(p, k->name, &sum) && sum.device_ns > 0)
        printf(", %.1f us", (double)sum.device_ns * 1e-3 / (double)sum.calls);
    printf("\n");
    TRY(qn_profile_hints(p, &best, to_stdout, NULL, &error));
    fflush(stdout);
    qn_profile_free(p);
}

static void run(const state *s, const planted *k)
{
    qn_error error;
    qn_call *call;
    qn_buffer *buffers[MOST_ARRAYS] = {0};
    TRY(qn_call_new(s->module, k->name, &call, &error));
    for (int i = 0; i < MOST_ARRAYS && k->arrays[i].name; i++) {
        size_t count = (size_t)k->arrays[i].extents[0] * (size_t)(k->arrays[i].rank > 1 ? k->arrays[i].extents[1] : 1);
        TRY(qn_buffer_new_on(s->context, s->device, 4 * count, &buffers[i], &error));
        TRY(qn_call_set_buffer(call, k->arrays[i].name, buffers[i], 0, QN_F32, k->arrays[i].rank, k->arrays[i].extents,
                               NULL, &error));
    }
    if (k->setting) TRY(qn_call_set_text(call, k->setting, k->value, &error));
    for (int i = 0; i < 2; i++) TRY(qn_call_launch(call, s->stream, &error));
    TRY(qn_stream_wait(s->stream, &error));
    if (!s->plain) profile(s, k, call);
    qn_call_free(call);
    for (int i = 0; i < MOST_ARRAYS; i++)
        if (buffers[i]) qn_buffer_release(buffers[i]);
}

int main(int count, char **words)
{
    qn_error error;
    state s = {.device = "cuda"};
    int first = 1;
    for (; first < count && words[first][0] == '-'; first++) {
        if (!strcmp(words[first], "--plain"))
            s.plain = true;
        else if (!strcmp(words[first], "--device") && first + 1 < count)
            s.device = words[++first];
        else
            return fprintf(stderr, "usage: bench_hints [--plain] [--device cuda] [NAME...]\n"), 2;
    }
    TRY(qn_context_open(&(qn_context_options){.allow_raw = true}, &s.context, &error));
    TRY(qn_module_load_file(s.context, "bench/hints.qn", &s.module, &error));
    TRY(qn_stream_new(s.context, s.device, &s.stream, &error));
    if (!s.plain) TRY(qn_measure(s.context, s.device, (size_t)1 << 29, &s.ceilings, &error));
    for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++) {
        bool wanted = first == count;
        for (int k = first; k < count; k++) wanted |= !strcmp(words[k], kernels[i].name);
        if (wanted) run(&s, &kernels[i]);
    }
    qn_stream_free(s.stream);
    qn_module_free(s.module);
    qn_context_close(s.context);
    return 0;
}
