/*
 * Safetensors files tensor by tensor: see safetensors.c and safetensors_write.c.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_DATA_SAFETENSORS_H
#define QUERN_DATA_SAFETENSORS_H

#include "base/base.h"

#define QN_NO_CALL_SITES
#include <quern/safetensors.h>

#define SAFETENSORS_TYPES (QN_F8E4M3 + 1)
extern const char *const safetensors_types[SAFETENSORS_TYPES]; /* "F32" */
/* Elements times their size; false: it does not fit. */
bool safetensors_size(const qn_safetensor *t, size_t *size_bytes);

/* A file whose header is known at once and whose data comes tensor by tensor, by file_append, to the end, file_finish.
 * order[k]: which tensor comes k-th; as many as there are. Names and sizes are checked; data is not looked at. */
qn_status safetensors_begin(const char *path, const qn_safetensor *tensors, int count, const char *const *metadata,
                            file_aside **out, int *order, qn_error *error);

/* A header alone, for tests and fuzzing: `data_bytes` is what follows it. */
qn_status safetensors_check(const char *name, const char *header, size_t header_bytes, uint64_t data_bytes,
                            qn_error *error);

#endif
