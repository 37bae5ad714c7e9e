/*
 * A call of the tensor API from a .qn file: its arguments, and one function `api_run_NAME` for each row of
 * lang/tensor_functions.def. function_api.c takes the arguments and finds the function; function_shape.c has those that
 * make and move tensors, function_layer.c products, layers and losses, function_image.c convolutions, pools and
 * upsampling.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TENSOR_FUNCTION_API_H
#define QUERN_TENSOR_FUNCTION_API_H

#include "tensor/function_trace.h"

enum { API_ARGUMENTS = 64, API_RESULTS = 64 };

typedef struct api_call {
    tracer *t;
    const ast *call;
    const char *name;
    operand values[API_ARGUMENTS]; /* by position */
    const ast *places[API_ARGUMENTS];
    int count;
    const char *asked[16]; /* names that the function looked for */
    int asked_count;
    bool bad;
    unsigned units;              /* of the result */
    qn_tensor more[API_RESULTS]; /* further results */
    int more_count;
} api_call;

typedef qn_tensor api_function(api_call *a);

qn_tensor api_tensor(api_call *a, int i); /* argument i; the empty one if it is not given */
int64_t api_integer(api_call *a, int i);
double api_float(api_call *a, int i);
const ast *api_named(api_call *a, const char *name); /* with one value, or NULL */
int64_t api_named_integer(api_call *a, const char *name, int64_t otherwise);
double api_named_float(api_call *a, const char *name, double otherwise);
bool api_named_bool(api_call *a, const char *name, bool otherwise);
int api_axis(api_call *a, int otherwise);   /* `axis = k`, of the first argument */
qn_axes api_axes(api_call *a, bool *keep);  /* `axis = {j, k}`; keep: some were named, and stay as unit axes */
qn_shape api_shape(api_call *a, int first); /* extents from argument `first` on */
qn_axes api_order(api_call *a, int first);
unsigned api_units(const api_call *a, int i);                              /* unit axes of argument i */
double api_option(api_call *a, int i, const char *name, double otherwise); /* by position or by name */
qn_tensor api_option_tensor(api_call *a, int i, const char *name);         /* the empty one if neither is given */
/* `name = k` for all axes, or `name = {j, k}` for each: `count` numbers into out; false: it is not given. */
bool api_each(api_call *a, const char *name, int64_t *out, int count);
qn_tensor api_list(api_call *a, int count); /* several results: the first of a->more, and the others after it */

#define TENSOR_FUNCTION(name, least, most) api_function api_run_##name;
#define TILE_FUNCTION(name) api_function api_run_##name;
#include "lang/tensor_functions.def"
#undef TENSOR_FUNCTION
#undef TILE_FUNCTION

#endif
