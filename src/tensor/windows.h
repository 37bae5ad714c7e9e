/*
 * How windows lie over the last axes of a tensor: what convolutions and pools share. convolution.c
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TENSOR_WINDOWS_H
#define QUERN_TENSOR_WINDOWS_H

#include "tensor/ops.h"

enum { WINDOW_AXES = 3 };

typedef struct windows {
    int axes; /* the last ones: 1 to 3 */
    int64_t size[WINDOW_AXES], stride[WINDOW_AXES], padding[WINDOW_AXES], dilation[WINDOW_AXES];
    int64_t after[WINDOW_AXES]; /* more behind the padding: a last window that sticks out */
} windows;

/* What the caller gave for each axis; zeros are the defaults. */
windows windows_make(int axes, const int64_t *size, const int64_t *stride, const int64_t *padding,
                     const int64_t *dilation, bool stride_is_size);
bool windows_fit(graph *g, const char *op, const windows *w); /* else the error is recorded */
/* [..][H][W] -> [..][places][places][rows][columns], what lies outside being `fill` */
node windows_over(graph *g, node x, const windows *w, double fill);

#endif
