/*
 * Launches that do not wait: three clocks around the same 20 launches. The wall clock without a wait reads how long it
 * takes to hand them over; with a wait at the end how long they take; two events on the stream the same, without the
 * host's share. Where launches wait anyway (cpu) all three agree.
 * Build: cc asynchronous.c $(pkg-config --cflags --libs quern)
 * SPDX-License-Identifier: MIT
 */
#include <quern/device.h>
#include <quern/try.h>
#include <stdio.h>
#include <time.h>

enum { LAUNCHES = 20 };

static const char scale[] = "kernel scale(inout float x[n], const int BLOCK = 1024) launch (cdiv(n, BLOCK))\n"
                            "{ x[program(0) * BLOCK : BLOCK] = 0.5 * x[program(0) * BLOCK : BLOCK] + 1; }\n";

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

int main(void)
{
    const int64_t n = 1 << 22;
    qn_error error;
    qn_context *context;
    qn_module *module;
    qn_call *call;
    qn_stream *stream;
    qn_buffer *x;
    qn_event *from, *to;
    double ns;
    QN_MUST(qn_context_open(NULL, &context, &error), error);
    const char *device = qn_device_best(context);
    QN_MUST(qn_module_load_text(context, "scale.qn", scale, &module, &error), error);
    QN_MUST(qn_buffer_new_on(context, device, sizeof(float) * (size_t)n, &x, &error), error);
    QN_MUST(qn_call_new(module, "scale", &call, &error), error);
    QN_MUST(qn_call_set_buffer(call, "x", x, 0, QN_F32, 1, &n, NULL, &error), error);
    QN_MUST(qn_stream_new(context, device, &stream, &error), error);
    QN_MUST(qn_event_new(context, device, &from, &error), error);
    QN_MUST(qn_event_new(context, device, &to, &error), error);
    QN_MUST(qn_call_launch(call, stream, &error), error); /* warm */
    QN_MUST(qn_stream_wait(stream, &error), error);

    double start = now_us();
    QN_MUST(qn_event_record(from, stream, &error), error);
    for (int i = 0; i < LAUNCHES; i++) QN_MUST(qn_call_launch(call, stream, &error), error);
    QN_MUST(qn_event_record(to, stream, &error), error);
    double handed_over = now_us() - start;
    QN_MUST(qn_stream_wait(stream, &error), error);
    double done = now_us() - start;
    QN_MUST(qn_event_elapsed(from, to, &ns, &error), error);

    printf("%d launches on %s\n", LAUNCHES, device);
    bool waits = handed_over > 0.8 * done;
    printf("wall clock, no wait   %9.1f us   %s\n", handed_over,
           waits ? "right only because launches wait here" : "wrong: the time of the launches, not of the kernels");
    printf("wall clock and a wait %9.1f us\n", done);
    printf("events                %9.1f us\n", ns * 1e-3);
    qn_event_free(from);
    qn_event_free(to);
    qn_stream_free(stream);
    qn_call_free(call);
    qn_buffer_release(x);
    qn_module_free(module);
    qn_context_close(context);
    return done >= handed_over && ns * 1e-3 <= 1.2 * done + 100 ? 0 : 1;
}
