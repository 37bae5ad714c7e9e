/*
 * Times of launches by events around them, where nothing better is there (device.h: driver_trace).
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_DEVICE_CUDA_TRACE_H
#define QUERN_DEVICE_CUDA_TRACE_H

#include "device/cuda/cuda.h"

/* Around what is put on a stream; the context is current. begin gives a number for end; -1: it is not traced. Nothing is
 * traced while the stream is being recorded: events would become part of the graph. */
int64_t cuda_trace_begin(cuda_device *d, const device_stream *s);
void cuda_trace_end(cuda_device *d, const device_stream *s, int64_t span);

#endif
