/*
 * Instantiates and lowers a kernel with nothing but defaults: generic types are float, `const int` parameters without a
 * value 16.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_INSTANCE_H
#define QUERN_TESTS_INSTANCE_H

#include "lang/ast.h"

#include <string.h>

static inline bool instance_lower(const ast_file *file, const ast *kernel, arena *memory, diagnostics *d)
{
    lang_given given = {.units = 2};
    for (int i = 0; i < kernel->list.count; i++) {
        const ast *param = kernel->list.items[i];
        bool constant = !strcmp(param->word, "const") && !param->is_function && !param->left;
        if (param->type->is_generic)
            bindings_set(memory, &given.settings,
                         (binding){.name = param->type->word, .kind = BIND_TYPE, .type = DT_F32});
        if (constant && !strcmp(param->type->word, "int"))
            bindings_set(memory, &given.settings,
                         (binding){.name = param->name, .kind = BIND_INT, .type = DT_I64, .number.i = 16});
    }
    bindings constants = {0}, extents = {0};
    tile_kernel *out = NULL;
    return lang_instantiate(file, kernel, &given, d, memory, &constants, &extents) &&
           lang_lower(file, kernel, &constants, memory, d, &out);
}

#endif
