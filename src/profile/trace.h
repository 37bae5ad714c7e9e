/*
 * Traces in the Chrome JSON format, as chrome://tracing, Perfetto, TensorBoard and the tools around PyTorch read it.
 * Records are written as they come; what the file needs at its end is small.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_PROFILE_TRACE_H
#define QUERN_PROFILE_TRACE_H

#include "profile/session.h"

typedef struct trace_writer trace_writer;
/* most_bytes: the file stays below it, 0: 200 MB; events that do not fit are counted. */
qn_status trace_open(const qn_profile *p, const char *path, int64_t most_bytes, trace_writer **out, qn_error *error);
void trace_add(trace_writer *t, const record *r);
void trace_add_device(trace_writer *t, const device_record *r);
/* Every record that ended before this time has been added: memory counters up to it can be written in order. */
void trace_settle(trace_writer *t, int64_t until_ns);
/* The names of rows, the user's ranges as the devices saw them, the end. */
qn_status trace_close(trace_writer *t, const qn_profile *p, bool whole, qn_error *error);

#endif
