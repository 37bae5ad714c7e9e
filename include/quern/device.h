/*
 * Quern on devices: memory there, streams, events, graphs, launches that do not wait. Everything works on every device:
 * where launches wait anyway (cpu, ref) a stream runs its work at once, an event is a time, a graph a list of calls.
 * SPDX-License-Identifier: MIT
 *
 * Example (on the best device; a stream, two launches, the time between two events):
 *     qn_error error;
 *     qn_context *context;
 *     qn_module *module;
 *     qn_call *call;
 *     qn_stream *stream;
 *     qn_event *from, *to;
 *     qn_buffer *x, *y;
 *     float numbers[5] = {1, 2, 3, 4, 5};
 *     double ns;
 *     int64_t extent = 5;
 *     if (qn_context_open(NULL, &context, &error)) return 1;
 *     const char *device = qn_device_best(context);
 *     if (qn_module_load_text(context, "twice.qn",
 *             "kernel twice(in float x[n], out float y[n]) launch (cdiv(n, 64))"
 *             "{ y[program(0) * 64 : 64] = 2 * x[program(0) * 64 : 64]; }", &module, &error)) return 1;
 *     if (qn_buffer_new_on(context, device, sizeof(numbers), &x, &error)) return 1;
 *     if (qn_buffer_new_on(context, device, sizeof(numbers), &y, &error)) return 1;
 *     if (qn_buffer_write(x, 0, numbers, sizeof(numbers), NULL, &error)) return 1;
 *     if (qn_call_new(module, "twice", &call, &error)) return 1;
 *     if (qn_call_set_buffer(call, "x", x, 0, QN_F32, 1, &extent, NULL, &error)) return 1;
 *     if (qn_call_set_buffer(call, "y", y, 0, QN_F32, 1, &extent, NULL, &error)) return 1;
 *     if (qn_stream_new(context, device, &stream, &error)) return 1;
 *     if (qn_event_new(context, device, &from, &error) || qn_event_new(context, device, &to, &error)) return 1;
 *     if (qn_event_record(from, stream, &error)) return 1;
 *     if (qn_call_launch(call, stream, &error) || qn_call_launch(call, stream, &error)) return 1;
 *     if (qn_event_record(to, stream, &error)) return 1;
 *     if (qn_stream_wait(stream, &error)) return 1;
 *     if (qn_event_elapsed(from, to, &ns, &error) || ns < 0) return 1;
 *     if (qn_buffer_read(y, 0, numbers, sizeof(numbers), NULL, &error)) return 1;
 *     if (numbers[4] != 10) return 1;
 *     qn_event_free(from);
 *     qn_event_free(to);
 *     qn_stream_free(stream);
 *     qn_call_free(call);
 *     qn_buffer_release(x);
 *     qn_buffer_release(y);
 *     qn_module_free(module);
 *     qn_context_close(context);
 *
 * Order: work on one stream is done in order. Work on different streams is ordered by events and by waiting. A call is
 * launched on one stream at a time, since its scratch memory is its own. Calls, buffers and modules stay until the
 * stream has been waited for, and as long as a graph that recorded them.
 */
#ifndef QUERN_DEVICE_H
#define QUERN_DEVICE_H

#include <quern/quern.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct qn_stream qn_stream;
typedef struct qn_event qn_event;
typedef struct qn_graph qn_graph;

/* ---- devices ---- */

/* One device by its name; QN_BAD_CALL with a suggestion if there is none of that name. info->available tells whether it
 * can be used. */
QN_API QN_MUST_CHECK qn_status qn_device_find(const qn_context *context, const char *name, qn_device_info *info,
                                              qn_error *error);
/* A few lines of text about an available device: its libraries, versions, caches; malloc'd, freed by the caller; NULL
 * without memory. */
QN_API char *qn_device_details(qn_context *context, const char *name);
/* The host program's own context of the device (a CUcontext) instead of Quern's, before anything ran there. */
QN_API QN_MUST_CHECK qn_status qn_device_adopt(qn_context *context, const char *device, void *native, qn_error *error);
/* Waits for everything on a device. */
QN_API QN_MUST_CHECK qn_status qn_device_wait(qn_context *context, const char *device, qn_error *error);

/* Memory of a device that keeps what is released for the next request. Zeros where memory is the host's. */
typedef struct qn_memory_statistics {
    int64_t used_bytes, kept_bytes, peak_bytes; /* handed out; kept for the next request; most handed out at once */
    int64_t allocations, system_allocations;    /* requests; those that the system had to serve */
    int64_t free_bytes, total_bytes;            /* as the system sees it */
} qn_memory_statistics;
QN_API QN_MUST_CHECK qn_status qn_device_memory(qn_context *context, const char *device, qn_memory_statistics *out,
                                                qn_error *error);
/* Gives back to the system what is kept. */
QN_API QN_MUST_CHECK qn_status qn_device_trim(qn_context *context, const char *device, qn_error *error);

/* ---- buffers ---- */

/* Zeroed memory on a device. qn_buffer_data is an address there: the host must not follow it unless the device's memory
 * is the host's. */
QN_API QN_MUST_CHECK qn_status qn_buffer_new_on(qn_context *context, const char *device, size_t size_bytes,
                                                qn_buffer **buffer, qn_error *error);
/* The caller's memory on a device (a CUdeviceptr as a pointer); the deleter may be NULL. */
QN_API QN_MUST_CHECK qn_status qn_buffer_wrap_on(qn_context *context, const char *device, void *data, size_t size_bytes,
                                                 qn_deleter *deleter, void *user, qn_buffer **buffer, qn_error *error);
QN_API const char *qn_buffer_device(const qn_buffer *buffer); /* "cuda"; "" for host memory; borrowed */
/* Between host memory and a part of a buffer. stream NULL: at once. With a stream: in its order; `write` has taken the
 * host's bytes when it returns, `read` has given them. */
QN_API QN_MUST_CHECK qn_status qn_buffer_write(qn_buffer *buffer, size_t offset_bytes, const void *data,
                                               size_t size_bytes, qn_stream *stream, qn_error *error);
QN_API QN_MUST_CHECK qn_status qn_buffer_read(qn_buffer *buffer, size_t offset_bytes, void *data, size_t size_bytes,
                                              qn_stream *stream, qn_error *error);
/* Between two buffers of one device, in the order of the stream, not waited for. */
QN_API QN_MUST_CHECK qn_status qn_buffer_copy(qn_buffer *to, size_t to_offset_bytes, qn_buffer *from,
                                              size_t from_offset_bytes, size_t size_bytes, qn_stream *stream,
                                              qn_error *error);

/* ---- streams, events, launches ---- */

QN_API QN_MUST_CHECK qn_status qn_stream_new(qn_context *context, const char *device, qn_stream **stream,
                                             qn_error *error);
/* The host program's own stream (a CUstream), which stays its own. NULL is its default stream, as are the handles of the
 * legacy and the per-thread default stream. */
QN_API QN_MUST_CHECK qn_status qn_stream_wrap(qn_context *context, const char *device, void *native, qn_stream **stream,
                                              qn_error *error);
QN_API void qn_stream_free(qn_stream *stream); /* waits; NULL is fine */
QN_API void *
qn_stream_native(const qn_stream *stream); /* the CUstream, for other libraries; NULL: there is none (cpu) */
/* Until all work is done. Failures of launches since the last wait show here: a failed assert with its line (the device
 * goes on), an illegal address with the kernel's name (the device is lost: every later call on it says so at once). */
QN_API QN_MUST_CHECK qn_status qn_stream_wait(qn_stream *stream, qn_error *error);
/* What comes later on this stream waits for the event; the host does not. */
QN_API QN_MUST_CHECK qn_status qn_stream_wait_event(qn_stream *stream, qn_event *event, qn_error *error);

/* As qn_call_run, but does not wait. All arrays are buffers on the stream's device (or its addresses). After the first
 * launch a repeated one allocates nothing and computes nothing again that has not changed. The host program may be
 * recording a graph from the stream: what must be compiled or allocated first is, and the launches become part of the
 * graph; call and scratch memory then stay as long as the graph. */
QN_API QN_MUST_CHECK qn_status qn_call_launch(qn_call *call, qn_stream *stream, qn_error *error);
/* For calls that are repeated: new addresses of `count` arrays that qn_call_set_memory gave, by the number of their
 * parameter (qn_kernel_param), ascending. Their shapes and types stay, and so does where they are, on the host or on the
 * device. Nothing is looked up. */
QN_API QN_MUST_CHECK qn_status qn_call_move(qn_call *call, const int *params, void *const *addresses, int count,
                                            qn_error *error);
/* An array as it will be when the call runs on this device with what is set now: type, extents, row-major strides, no
 * data. Outputs need not be set. */
QN_API QN_MUST_CHECK qn_status qn_call_expect(qn_call *call, const char *device, const char *name, qn_array *array,
                                              qn_error *error);
/* Bytes of scratch memory that a launch of the call needs on this device (0 on one that uses the host's memory);
 * everything must be set. It is planned and compiled here, so that the launch need not. */
QN_API QN_MUST_CHECK qn_status qn_call_scratch(qn_call *call, const char *device, int64_t *size_bytes, qn_error *error);
/* The caller's memory on the device for that, aligned to 256 bytes, instead of the call's own; NULL: the call's own. */
QN_API QN_MUST_CHECK qn_status qn_call_set_scratch(qn_call *call, void *memory, int64_t size_bytes, qn_error *error);

QN_API QN_MUST_CHECK qn_status qn_event_new(qn_context *context, const char *device, qn_event **event, qn_error *error);
QN_API void qn_event_free(qn_event *event); /* NULL is fine */
QN_API QN_MUST_CHECK qn_status qn_event_record(qn_event *event, qn_stream *stream, qn_error *error);
QN_API QN_MUST_CHECK qn_status qn_event_wait(qn_event *event, qn_error *error);
QN_API QN_MUST_CHECK qn_status qn_event_elapsed(qn_event *from, qn_event *to, double *ns, qn_error *error);

/* ---- graphs: a recorded sequence of launches, replayed with one call ---- */

/* From here on launches on the stream are recorded and not run. */
QN_API QN_MUST_CHECK qn_status qn_graph_begin(qn_stream *stream, qn_error *error);
QN_API QN_MUST_CHECK qn_status qn_graph_end(qn_stream *stream, qn_graph **graph, qn_error *error);
/* With the arrays and numbers that the calls had when they were recorded. */
QN_API QN_MUST_CHECK qn_status qn_graph_launch(qn_graph *graph, qn_stream *stream, qn_error *error);
QN_API int64_t qn_graph_node_count(const qn_graph *graph);
QN_API void qn_graph_free(qn_graph *graph); /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
