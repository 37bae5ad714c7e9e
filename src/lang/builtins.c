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
    {"print", BUILTIN_STATEMENT, 1, -1, OP_NONE},
    {"assert", BUILTIN_STATEMENT, 1, 2, OP_NONE},
    {"assume", BUILTIN_STATEMENT, 1, 1, OP_NONE},
    /* Tensor functions only; tensor/function_api.c calls them. */
    {"grad", BUILTIN_TENSOR, 1, -1, OP_NONE},
    {"matmul", BUILTIN_TENSOR, 2, 2, OP_NONE},
    {"linear", BUILTIN_TENSOR, 2, 3, OP_NONE},
    {"outer", BUILTIN_TENSOR, 2, 2, OP_NONE},
    {"cdist", BUILTIN_TENSOR, 2, 2, OP_NONE},
    {"softmax", BUILTIN_TENSOR, 1, 1, OP_NONE},
    {"log_softmax", BUILTIN_TENSOR, 1, 1, OP_NONE},
    {"logsumexp", BUILTIN_TENSOR, 1, 1, OP_NONE},
    {"var", BUILTIN_TENSOR, 1, 1, OP_NONE},
    {"std", BUILTIN_TENSOR, 1, 1, OP_NONE},
    {"norm", BUILTIN_TENSOR, 1, 1, OP_NONE},
    {"layer_norm", BUILTIN_TENSOR, 1, 3, OP_NONE},
    {"rms_norm", BUILTIN_TENSOR, 1, 2, OP_NONE},
    {"dropout", BUILTIN_TENSOR, 2, 2, OP_NONE},
    {"mse_loss", BUILTIN_TENSOR, 2, 2, OP_NONE},
    {"cross_entropy", BUILTIN_TENSOR, 2, 2, OP_NONE},
    {"bce_with_logits", BUILTIN_TENSOR, 2, 2, OP_NONE},
    {"scaled_dot_product_attention", BUILTIN_TENSOR, 3, 4, OP_NONE},
    {"embedding", BUILTIN_TENSOR, 2, 2, OP_NONE},
    {"embedding_bag", BUILTIN_TENSOR, 2, 3, OP_NONE},
    {"conv2d", BUILTIN_TENSOR, 2, 3, OP_NONE},
    {"max_pool2d", BUILTIN_TENSOR, 2, 3, OP_NONE},
    {"avg_pool2d", BUILTIN_TENSOR, 2, 3, OP_NONE},
    {"concat", BUILTIN_TENSOR, 1, -1, OP_NONE},
    {"stack", BUILTIN_TENSOR, 1, -1, OP_NONE},
    {"split", BUILTIN_TENSOR, 2, 2, OP_NONE},
    {"flip", BUILTIN_TENSOR, 1, 1, OP_NONE},
    {"pad", BUILTIN_TENSOR, 2, 3, OP_NONE},
    {"window", BUILTIN_TENSOR, 2, 2, OP_NONE},
    {"expand", BUILTIN_TENSOR, 2, -1, OP_NONE},
    {"repeat", BUILTIN_TENSOR, 2, -1, OP_NONE},
    {"gather", BUILTIN_TENSOR, 2, 2, OP_NONE},
    {"index_select", BUILTIN_TENSOR, 2, 2, OP_NONE},
    {"scatter_add", BUILTIN_TENSOR, 3, 3, OP_NONE},
    {"index_add", BUILTIN_TENSOR, 3, 3, OP_NONE},
    {"one_hot", BUILTIN_TENSOR, 2, 2, OP_NONE},
    {"argsort", BUILTIN_TENSOR, 1, 1, OP_NONE},
    {"sort", BUILTIN_TENSOR, 1, 1, OP_NONE},
    {"topk", BUILTIN_TENSOR, 2, 2, OP_NONE},
    {"zeros", BUILTIN_TENSOR, 1, -1, OP_NONE},
    {"ones", BUILTIN_TENSOR, 1, -1, OP_NONE},
    {"full", BUILTIN_TENSOR, 2, -1, OP_NONE},
    {"linspace", BUILTIN_TENSOR, 3, 3, OP_NONE},
    {"eye", BUILTIN_TENSOR, 1, 2, OP_NONE},
    {"square", BUILTIN_TENSOR, 1, 1, OP_NONE},
    {"reciprocal", BUILTIN_TENSOR, 1, 1, OP_NONE},
    {"detach", BUILTIN_TENSOR, 1, 1, OP_NONE},
    {"checkpoint", BUILTIN_TENSOR, 1, 1, OP_NONE},
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
    for (int i = 0; i < file->items.count; i++) {
        const ast *item = file->items.items[i];
        if (item->kind != AST_BENCH && item->name && !strcmp(item->name, name)) return item;
    }
    return NULL;
}
