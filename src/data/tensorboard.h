/*
 * TensorBoard's event files: see tensorboard.c.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_DATA_TENSORBOARD_H
#define QUERN_DATA_TENSORBOARD_H

#include "base/base.h"

typedef struct event_file event_file;

/* A new file in the folder, which is made; its name is TensorBoard's. */
qn_status events_open(const char *folder, event_file **out, qn_error *error);
/* Scalars go to the disk at once, so that a killed run loses none. A failure is kept, and told by events_close. */
void events_scalar(event_file *file, const char *tag, int64_t step, double value); /* NULL is fine */
qn_status events_close(event_file *file, qn_error *error);                         /* NULL is fine */
const char *events_path(const event_file *file);

/* The scalars of a file, checksums checked. A last record that was cut off is no error: *whole is false then. */
typedef void events_visit(void *user, const char *tag, int64_t step, double value, double wall_time_s);
qn_status events_read(const char *path, events_visit *visit, void *user, bool *whole, qn_error *error);

uint32_t crc32c_of(const void *data, size_t size_bytes);

#endif
