/*
 * Kernels and tensor functions of a module as ops of a tape, from C. In: handles and settings as text. Out: handles of
 * the outputs. A mistake is recorded on the tape with the call's site, as for every other op.
 * SPDX-License-Identifier: MIT
 */
#include "run/module/function.h"

#include <string.h>

/* "BLOCK = 64, n = 5" into the call; values go to the next comma outside parentheses. */
static qn_status apply_settings(qn_call *call, const char *words, qn_error *error)
{
    for (const char *p = words ? words : ""; *p;) {
        p += strspn(p, " ,\t\n");
        size_t name = strcspn(p, "= \t\n,"), blanks = strspn(p + name, " \t\n");
        if (!*p) break;
        const char *value = p + name + blanks;
        if (!name || *value != '=')
            return error_set(error, QN_BAD_CALL, "settings are `name = value, ...`, not `%s`", words);
        value += 1 + strspn(value + 1, " \t\n");
        size_t length = 0;
        for (int depth = 0; value[length] && (depth || value[length] != ','); length++)
            depth += value[length] == '(' ? 1 : value[length] == ')' ? -1 : 0;
        const char *copy = arena_copy_text(call->memory, p, name);
        QN_TRY(qn_call_set_text(call, copy, arena_copy_text(call->memory, value, length), error));
        p = value + length;
    }
    return QN_OK;
}

/* Which parameters the inputs are: arrays that are read in order, then scalars in order. */
static int input_params(const kernel_entry *e, int *order)
{
    int count = 0;
    for (int scalars = 0; scalars < 2; scalars++)
        for (int i = 0; i < e->param_count; i++) {
            const parameter *p = &e->params[i];
            bool array = p->kind == PARAM_IN || p->kind == PARAM_INOUT,
                 scalar = p->kind == PARAM_SCALAR && !p->constant;
            if (scalars ? scalar : array) order[count++] = i;
        }
    return count;
}

static qn_status first_error(const kernel_entry *e, const diagnostics *d, qn_error *error)
{
    return diagnostics_error(d, e->module->file, QN_BAD_CALL, error);
}

static qn_status trace_function(const kernel_entry *e, qn_call *call, qn_tape *tape, const node *nodes, int units,
                                node *results, int *count, qn_error *error)
{
    const graph *g = tape->graph;
    instance shapes = {0};
    bindings known = {0};
    diagnostics d = {.memory = call->memory};
    for (int i = 0; i < e->param_count; i++) {
        if (!nodes[i] || e->params[i].rank < 0) continue;
        const graph_node *x = graph_get(g, nodes[i]);
        array_view *v = &call->arguments[i].view;
        *v = (array_view){.elem = x->elem, .rank = x->shape.rank};
        memcpy(v->extents, x->shape.extents, sizeof(x->shape.extents));
        call->arguments[i].given = true;
    }
    QN_TRY(call_constants(call, &call->settings, units, call->memory, &shapes.constants, &known, error));
    shapes.known = known;
    if (function_in_tape(e, &shapes, &call->settings, tape, nodes, units, &d, results, count)) return QN_OK;
    return first_error(e, &d, error);
}

static qn_status trace_kernel(const kernel_entry *e, qn_call *call, qn_tape *tape, const node *nodes, int units,
                              node *results, int *count, qn_error *error)
{
    diagnostics d = {.memory = call->memory};
    function_kernel_request request = {.file = e->module->file,
                                       .item = e->item,
                                       .inputs = nodes,
                                       .settings = &call->settings,
                                       .module = e->module,
                                       .entry = function_kernel_entry,
                                       .units = units};
    return function_kernel(tape, &request, &d, results, count) ? QN_OK : first_error(e, &d, error);
}

static qn_status run(qn_tape *tape, qn_module *module, const char *kernel, const char *settings,
                     const qn_tensor *inputs, int input_count, qn_tensor *outputs, int output_count, qn_error *error)
{
    kernel_entry *e = module_find(module, kernel, error);
    int order[FUNCTION_PARAMS + FUNCTION_RESULTS], slot, count = 0;
    if (!e) return QN_BAD_CALL;
    if (!e->item) return error_set(error, QN_BAD_CALL, "%s is a tile IR dump: its kernels are no ops", module->path);
    int wanted = input_params(e, order), arrays = 0;
    for (int i = 0; i < wanted; i++) arrays += e->params[order[i]].rank >= 0;
    if (input_count < arrays || input_count > wanted)
        return error_set(error, QN_BAD_CALL, "`%s` takes %d arrays and %d scalars, got %d inputs", kernel, arrays,
                         wanted - arrays, input_count);
    node nodes[FUNCTION_PARAMS + FUNCTION_RESULTS] = {0}, results[FUNCTION_RESULTS];
    for (int i = 0; i < input_count; i++) {
        nodes[order[i]] = tape_node(tape, kernel, inputs[i]);
        if (!nodes[order[i]]) return qn_tape_error(tape, error);
    }
    for (int i = 0, axes = -1; i < input_count && axes < 0; i++) {
        axes = function_spread_axes(e, order[i], graph_get(tape->graph, nodes[order[i]])->shape.rank);
        if (axes >= 0) e = function_spread(e, axes);
    }
    QN_TRY(context_slot(tape->context, tape->device, &slot, error));
    int units = slot_about(tape->context, slot)->units;
    qn_call *call = call_new(e, module->context);
    qn_status status = apply_settings(call, settings, error);
    if (status == QN_OK)
        status = e->item->kind == AST_TENSOR ? trace_function(e, call, tape, nodes, units, results, &count, error)
                                             : trace_kernel(e, call, tape, nodes, units, results, &count, error);
    qn_call_free(call);
    if (status == QN_OK && count != output_count)
        status =
            error_set(error, QN_BAD_CALL, "`%s` has %d outputs, and there is room for %d", kernel, count, output_count);
    for (int i = 0; i < output_count && status == QN_OK; i++) outputs[i] = tape_handle(tape, results[i]);
    return status;
}

void qn_call_kernel(qn_module *module, const char *kernel, const char *settings, const qn_tensor *inputs,
                    int input_count, qn_tensor *outputs, int output_count)
{
    qn_error error = {0};
    qn_tape *tape = NULL;
    for (int i = 0; i < input_count && inputs && !tape; i++) tape = inputs[i].tape;
    if (!tape_array(tape, "call_kernel", outputs, output_count)) return;
    for (int i = 0; i < output_count; i++) outputs[i] = (qn_tensor){.tape = tape};
    if (!tape_array(tape, "call_kernel", inputs, input_count)) return;
    if (!tape_enter(tape, kernel ? kernel : "call_kernel") || tape->graph->status) return;
    if (!module || !kernel) {
        graph_fail(tape->graph, "call_kernel", "the module or the name is NULL");
        return;
    }
    const graph_site site = tape->graph->site;
    const char *label = tape->graph->label;
    qn_status status = run(tape, module, kernel, settings, inputs, input_count, outputs, output_count, &error);
    if (status == QN_OK) return;
    tape->graph->status = QN_OK;
    tape->graph->site = site;
    tape->graph->label = label;
    graph_fail(tape->graph, kernel, "%s", error.message);
}
