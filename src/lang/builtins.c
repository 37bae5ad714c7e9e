/*
 * The functions of the language, by name. In: a name. Out: what kind of function it is, how many positional arguments
 * it takes, and the op an elementwise one becomes (OP_NONE: lowering composes it).
 * SPDX-License-Identifier: MIT
 */
#include "lang/ast.h"

#include <string.h>

const builtin builtins[] = {
    {"exp", BUILTIN_ELEMENTWISE, 1, 1, OP_EXP},
    {"exp2", BUILTIN_ELEMENTWISE, 1, 1, OP_EXP2},
    {"expm1", BUILTIN_ELEMENTWISE, 1, 1, OP_EXPM1},
    {"log", BUILTIN_ELEMENTWISE, 1, 1, OP_LOG},
    {"log2", BUILTIN_ELEMENTWISE, 1, 1, OP_LOG2},
    {"log1p", BUILTIN_ELEMENTWISE, 1, 1, OP_LOG1P},
    {"sqrt", BUILTIN_ELEMENTWISE, 1, 1, OP_SQRT},
    {"rsqrt", BUILTIN_ELEMENTWISE, 1, 1, OP_RSQRT},
    {"sin", BUILTIN_ELEMENTWISE, 1, 1, OP_SIN},
    {"cos", BUILTIN_ELEMENTWISE, 1, 1, OP_COS},
    {"tanh", BUILTIN_ELEMENTWISE, 1, 1, OP_TANH},
    {"erf", BUILTIN_ELEMENTWISE, 1, 1, OP_ERF},
    {"sigmoid", BUILTIN_ELEMENTWISE, 1, 1, OP_SIGMOID},
    {"relu", BUILTIN_ELEMENTWISE, 1, 1, OP_RELU},
    {"gelu", BUILTIN_ELEMENTWISE, 1, 1, OP_GELU},
    {"gelu_tanh", BUILTIN_ELEMENTWISE, 1, 1, OP_GELU_TANH},
    {"silu", BUILTIN_ELEMENTWISE, 1, 1, OP_SILU},
    {"softplus", BUILTIN_ELEMENTWISE, 1, 1, OP_SOFTPLUS},
    {"abs", BUILTIN_ELEMENTWISE, 1, 1, OP_ABS},
    {"floor", BUILTIN_ELEMENTWISE, 1, 1, OP_FLOOR},
    {"ceil", BUILTIN_ELEMENTWISE, 1, 1, OP_CEIL},
    {"round", BUILTIN_ELEMENTWISE, 1, 1, OP_ROUND},
    {"sign", BUILTIN_ELEMENTWISE, 1, 1, OP_SIGN},
    {"isnan", BUILTIN_ELEMENTWISE, 1, 1, OP_ISNAN},
    {"isinf", BUILTIN_ELEMENTWISE, 1, 1, OP_ISINF},
    {"pow", BUILTIN_ELEMENTWISE, 2, 2, OP_POW},
    {"fma", BUILTIN_ELEMENTWISE, 3, 3, OP_FMA},
    {"min", BUILTIN_ELEMENTWISE, 1, 2, OP_MIN}, /* with one argument a reduction */
    {"max", BUILTIN_ELEMENTWISE, 1, 2, OP_MAX},
    {"minimum", BUILTIN_ELEMENTWISE, 2, 2, OP_MIN}, /* as the C API calls them */
    {"maximum", BUILTIN_ELEMENTWISE, 2, 2, OP_MAX},
    {"clamp", BUILTIN_ELEMENTWISE, 3, 3, OP_NONE},
    {"where", BUILTIN_ELEMENTWISE, 3, 3, OP_SELECT},
    {"cdiv", BUILTIN_ELEMENTWISE, 2, 2, OP_NONE},
    {"bitcast", BUILTIN_ELEMENTWISE, 2, 2, OP_BITCAST}, /* the first is a type */
    {"tf32", BUILTIN_ELEMENTWISE, 1, 1, OP_TF32},
    {"sum", BUILTIN_REDUCE, 1, 1, OP_NONE},
    {"prod", BUILTIN_REDUCE, 1, 1, OP_NONE},
    {"any", BUILTIN_REDUCE, 1, 1, OP_NONE},
    {"all", BUILTIN_REDUCE, 1, 1, OP_NONE},
    {"argmax", BUILTIN_REDUCE, 1, 1, OP_NONE},
    {"argmin", BUILTIN_REDUCE, 1, 1, OP_NONE},
    {"count", BUILTIN_REDUCE, 1, 1, OP_NONE},
    {"mean", BUILTIN_REDUCE, 1, 1, OP_NONE},
    {"cumsum", BUILTIN_SCAN, 1, 1, OP_NONE},
    {"cumprod", BUILTIN_SCAN, 1, 1, OP_NONE},
    {"cummax", BUILTIN_SCAN, 1, 1, OP_NONE},
    {"cummin", BUILTIN_SCAN, 1, 1, OP_NONE},
    {"transpose", BUILTIN_SHAPE, 1, 1, OP_NONE},
    {"permute", BUILTIN_SHAPE, 2, 1 + ARRAY_RANK, OP_NONE},
    {"reshape", BUILTIN_SHAPE, 2, 1 + ARRAY_RANK, OP_NONE},
    {"iota", BUILTIN_SHAPE, 1, 1, OP_NONE},
    {"dot", BUILTIN_DOT, 2, 3, OP_NONE},
    {"@", BUILTIN_DOT, 2, 2, OP_NONE}, /* `a @ b`: of tiles as `dot`, of tensors as `matmul` */
    {"keep", BUILTIN_VALIDITY, 2, 2, OP_NONE},
    {"fill", BUILTIN_VALIDITY, 2, 2, OP_NONE},
    {"like", BUILTIN_VALIDITY, 2, 2, OP_NONE},
    {"valid", BUILTIN_VALIDITY, 1, 1, OP_NONE},
    {"atomic_add", BUILTIN_ATOMIC, 2, 2, OP_NONE},
    {"atomic_min", BUILTIN_ATOMIC, 2, 2, OP_NONE},
    {"atomic_max", BUILTIN_ATOMIC, 2, 2, OP_NONE},
    {"atomic_and", BUILTIN_ATOMIC, 2, 2, OP_NONE},
    {"atomic_or", BUILTIN_ATOMIC, 2, 2, OP_NONE},
    {"atomic_xor", BUILTIN_ATOMIC, 2, 2, OP_NONE},
    {"atomic_exchange", BUILTIN_ATOMIC, 2, 2, OP_NONE},
    {"atomic_cas", BUILTIN_ATOMIC, 3, 3, OP_NONE},
    {"philox", BUILTIN_RANDOM, 4, 4, OP_NONE},
    {"rand", BUILTIN_RANDOM, 3, 3, OP_NONE},
    {"randn", BUILTIN_RANDOM, 3, 3, OP_NONE},
    {"program", BUILTIN_PROGRAM, 1, 1, OP_NONE},
    {"programs", BUILTIN_PROGRAM, 1, 1, OP_NONE},
    {"units", BUILTIN_HOST, 0, 0, OP_NONE},
    {"rank", BUILTIN_HOST, 1, 1, OP_NONE}, /* of tensors */
    {"extent", BUILTIN_HOST, 2, 2, OP_NONE},
    {"print", BUILTIN_STATEMENT, 1, -1, OP_NONE},
    {"assert", BUILTIN_STATEMENT, 1, 2, OP_NONE},
    {"assume", BUILTIN_STATEMENT, 1, 1, OP_NONE},
    /* Tensor functions only: `grad`, and what tensor/function_api.c calls. */
    {"grad", BUILTIN_TENSOR, 1, -1, OP_NONE},
#define TENSOR_FUNCTION(name, least, most) {#name, BUILTIN_TENSOR, least, most, OP_NONE},
#define TILE_FUNCTION(name)
#include "lang/tensor_functions.def"
#undef TENSOR_FUNCTION
#undef TILE_FUNCTION
};
const int builtin_count = COUNT(builtins);

const builtin *builtin_find(const char *name)
{
    for (int i = 0; i < builtin_count; i++)
        if (!strcmp(builtins[i].name, name)) return &builtins[i];
    return NULL;
}

const ast *ast_find(const ast_file *file, const char *name)
{
    return map_get(file->by_name, name);
}
