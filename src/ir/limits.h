/*
 * How many of a thing there may be, where more than one folder has to agree. Each is refused with a sentence where a
 * user can reach it, and CHECKed where only we can. What one file alone needs stands in that file.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_IR_LIMITS_H
#define QUERN_IR_LIMITS_H

#define ARRAY_RANK 8           /* axes of arrays and tiles that a user writes or hands over, and of tensors */
#define MAX_RANK 12            /* ... and of those that fusion makes: the pieces of axes, side by side */
#define MAX_PARAMS 64          /* parameters and extents of a kernel; arguments of a call of a function */
#define MAX_PHASES 16          /* of one kernel: launches one behind the other */
#define TENSOR_PARAM_LIMIT 512 /* parameters of a tensor function; its gradient has a result for each */
#define NAME_LIMIT_BYTES 255
#define NESTING_LIMIT 200 /* of brackets, blocks and regions */

/* Of a GPU, whatever its generation. */
#define GPU_BLOCK_THREADS 1024
#define GPU_GRID_X 0x7fffffff
#define GPU_GRID_YZ 65535

#endif
