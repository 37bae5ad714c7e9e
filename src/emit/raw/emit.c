/*
 * Raw C kernels: the user's text inside the same ABI as a compiled kernel.
 *
 * In: parameters, a text and a name. Out: the text with its constants as macros, and after it one phase function that
 * calls NAME: arrays as pointers, scalars by value, extents as long, then the program numbers if it has a launch.
 * The text's own parameter list is read and compared with the declaration first (raw/signature.c).
 * SPDX-License-Identifier: MIT
 */
#include "emit/nest.h"
#include "emit/prelude.h"
#include "emit/raw/raw.h"

#include <string.h>

static bool is_array(const tile_param *p)
{
    return p->kind != PARAM_SCALAR && p->kind != PARAM_EXTENT;
}

static int program_numbers(const tile_kernel *k)
{
    return k->raw_once ? 0 : launch_axes(k, 0);
}

qn_status emit_raw_c(const tile_kernel *k, text *out, qn_error *error)
{
    if (strcmp(k->raw_language, "c"))
        return error_set(error, QN_NO_DEVICE, "kernel %s is written in %s: it needs a device that runs that", k->name,
                         k->raw_language);
    raw_function function;
    QN_TRY(raw_check_signature(k, program_numbers(k), &function, error));
    const char *names[] = {"raw_types"}, *unknown;
    emit_add_title(k, "Raw kernel", "", out);
    CHECK(prelude_emit(names, 1, out, &unknown));
    if (k->raw_constants) text_add(out, k->raw_constants);
    raw_put_line(k, out);
    text_print(out, "%s\n#line 1 \"generated C\"\n", k->raw_source);
    raw_put_undefines(k->raw_constants, out);
    text_print(out, "typedef struct { void *data; long extents[%d], strides[%d]; } quern_array;\n", MAX_RANK, MAX_RANK);
    text_add(out,
             "typedef struct { const quern_array *arrays; const long *scalars; long programs[3]; } quern_launch;\n");
    text_print(
        out, "int %s_phase0(const quern_launch *launch, long first, long last, void *scratch)\n{\n    (void)scratch;\n",
        k->name);
    text_add(out, "    for (long program = first; program < last; program++)\n");
    text_print(out, "        %s(", k->name);
    for (int i = 0; i < function.order_count; i++) {
        int p = function.order[i];
        const tile_param *param = &k->params[p];
        if (i) text_add(out, ", ");
        if (is_array(param))
            text_print(out, "launch->arrays[%d].data", p);
        else if (dtype_is_float(param->elem))
            text_print(out, "((union { long bits; double number; }){.bits = launch->scalars[%d]}).number", p);
        else
            text_print(out, "launch->scalars[%d]", p);
    }
    static const char *const programs[] = {"program % launch->programs[0]",
                                           "program / launch->programs[0] % launch->programs[1]",
                                           "program / launch->programs[0] / launch->programs[1]"};
    for (int i = 0; i < program_numbers(k) && i < COUNT(programs); i++) text_print(out, ", %s", programs[i]);
    text_add(out, ");\n    return 0;\n}\n");
    text_print(out,
               "unsigned long %s_scratch_bytes(const quern_launch *launch)\n{\n    (void)launch;\n    return 0;\n}\n",
               k->name);
    return QN_OK;
}
