/*
 * The type `_quern.Callable`: a kernel or tensor function of a module. Its method `run(args, keywords)` is the whole of a
 * call; it gives NotImplemented where a gradient is wanted, and the Python side goes through autograd, whose forward pass is
 * `callable_forward`. `launch(*args)` is the same for torch's compiler, which has looked at its tensors already.
 * SPDX-License-Identifier: MIT
 */
#include "callable.h"

#include <stdlib.h>
#include <string.h>

PyObject *callable_type;

static bool read_params(callable *c)
{
    int count = qn_kernel_param_count(c->module, c->name);
    qn_error error;
    if (count < 0 || count > MOST_ARRAYS) {
        PyErr_Format(PyExc_ValueError, "`%s` has %d parameters; at most %d are possible", c->name, count, MOST_ARRAYS);
        return false;
    }
    c->params = calloc((size_t)count + 1, sizeof(*c->params));
    if (!c->params) return PyErr_NoMemory(), false;
    for (int i = 0; i < count; i++) {
        qn_param p;
        if (qn_kernel_param(c->module, c->name, i, &p, &error) != QN_OK) return raise_error(&error), false;
        c->params[i] = (callable_param){.name = p.name, .kind = p.kind, .rank = p.rank};
        c->params[i].name_object = PyUnicode_InternFromString(p.name);
        if (!c->params[i].name_object) return false;
        c->param_count = i + 1;
        c->has_out |= !strcmp(p.name, "out");
        if (p.kind == QN_PARAM_OUT) c->outputs[c->output_count++] = i;
        if (p.kind == QN_PARAM_IN || p.kind == QN_PARAM_INOUT || p.kind == QN_PARAM_SCALAR)
            c->inputs[c->input_count++] = i;
    }
    return true;
}

PyObject *callable_new(PyObject *owner, qn_module *module, const char *name, bool is_text)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot((PyTypeObject *)callable_type, Py_tp_alloc);
    callable *c = (callable *)allocate((PyTypeObject *)callable_type, 0);
    if (!c) return NULL;
    c->owner = Py_NewRef(owner);
    c->module = module;
    c->name = strdup(name);
    c->is_text = is_text;
    c->fork_count = fork_count;
    if (c->name && read_params(c)) return (PyObject *)c;
    if (!PyErr_Occurred()) PyErr_NoMemory();
    Py_DECREF(c);
    return NULL;
}

static void callable_free(PyObject *self)
{
    callable *c = (callable *)self;
    PyTypeObject *type = Py_TYPE(self);
    for (entry *e = c->entries, *next; e && c->fork_count == fork_count; e = next) {
        next = e->next;
        entry_free(e);
    }
    for (int i = 0; i < c->param_count; i++) Py_XDECREF(c->params[i].name_object);
    free(c->params);
    free(c->turns);
    free(c->name);
    Py_XDECREF(c->owner);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

bool callable_is_here(callable *self)
{
    if (self->fork_count == fork_count) return true;
    qn_module *module = module_here(self->owner);
    if (!module) return false;
    self->module = module;
    self->entries = NULL; /* those of the process that it was forked from: left alone, as its context is */
    self->fork_count = fork_count;
    return true;
}

bool binding_forward_mode(const binding *b)
{
    return b->first && b->first->facts->family == FAMILY_TORCH && forward_mode_is_on();
}

PyObject *binding_finish(binding *b)
{
    entry *e = entry_find(b);
    PyObject *range = b->first->facts->family == FAMILY_TORCH ? range_enter(b->self->name) : NULL;
    PyObject *result = e ? entry_again(e, b) : entry_first(b);
    range_leave(range);
    binding_release(b);
    return result;
}

static PyObject *callable_run(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    binding b;
    if (count != 2 || !PyTuple_Check(args[0]) || !(args[1] == Py_None || PyDict_Check(args[1]))) {
        PyErr_SetString(PyExc_TypeError, "run(args, keywords): a tuple, and a dict or None");
        return NULL;
    }
    if (!callable_is_here((callable *)self)) return NULL;
    if (!binding_fill(&b, (callable *)self, args[0], args[1] == Py_None ? NULL : args[1])) return NULL;
    bool forward_mode = binding_forward_mode(&b);
    if (!forward_mode && !b.wants_grad) return binding_finish(&b);
    binding_release(&b);
    if (!forward_mode) return Py_NewRef(Py_NotImplemented);
    return PyErr_Format(call_error, "`%s` has no derivative in forward mode: it would lose the tangents; use backward",
                        b.self->name);
}

static PyObject *callable_launch(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    binding b;
    if (!callable_is_here((callable *)self)) return NULL;
    return binding_fill_plain(&b, (callable *)self, args, count, true) ? binding_finish(&b) : NULL;
}

/* prepare(*args): what the first launch of tensors like these would do before it launches. On a device; elsewhere nothing. */
static PyObject *callable_prepare(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    binding b;
    if (!callable_is_here((callable *)self)) return NULL;
    if (!binding_fill_plain(&b, (callable *)self, args, count, true)) return NULL;
    bool good = !b.on_device || entry_find(&b) || entry_prepare(&b);
    binding_release(&b);
    if (!good) return NULL;
    Py_RETURN_NONE;
}

/* turn([order or None, ...]): in which order of axes `launch` gives each result; an axis of extent one is (axis, stride). */
static PyObject *callable_turn(PyObject *self, PyObject *list)
{
    callable *c = (callable *)self;
    if (!PyList_Check(list) || PyList_Size(list) != c->output_count || c->entries)
        return PyErr_Format(PyExc_TypeError, "turn(orders): one for each result, before the first call");
    turned_axis *turns = malloc(sizeof(*turns) * QN_MAX_RANK * (size_t)(c->output_count + 1));
    if (!turns) return PyErr_NoMemory();
    for (int i = 0; i < c->output_count; i++) {
        PyObject *order = PyList_GetItem(list, i);
        Py_ssize_t rank = order == Py_None ? 0 : PySequence_Size(order);
        turns[i * QN_MAX_RANK].axis = -1;
        for (Py_ssize_t k = 0; k < rank && k < QN_MAX_RANK; k++) {
            PyObject *each = PySequence_GetItem(order, k);
            turned_axis *at = &turns[i * QN_MAX_RANK + k];
            *at = (turned_axis){-1, -1};
            if (each && PyTuple_Check(each) && PyTuple_Size(each) == 2) {
                at->axis = (int)PyLong_AsLong(PyTuple_GetItem(each, 0));
                at->stride = PyLong_AsLongLong(PyTuple_GetItem(each, 1));
            } else if (each) {
                at->axis = (int)PyLong_AsLong(each);
            }
            Py_XDECREF(each);
        }
    }
    free(c->turns);
    c->turns = turns;
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

/* ---- under autograd ---- */

/* Results that are no floats have no gradient. */
static bool mark_whole(PyObject *ctx, PyObject *result)
{
    PyObject *whole = PyList_New(0);
    for (Py_ssize_t i = 0; whole && i < PyTuple_Size(result); i++) {
        view v;
        PyObject *each = PyTuple_GetItem(result, i);
        if (!view_plain(each, &v) || (!dtype_is_float(v.type) && PyList_Append(whole, each))) Py_CLEAR(whole);
    }
    PyObject *tuple = whole ? PyList_AsTuple(whole) : NULL;
    bool good = tuple && (!PyTuple_Size(tuple) || !PyObject_SetAttrString(ctx, "non_differentiable", tuple));
    Py_XDECREF(whole);
    Py_XDECREF(tuple);
    return good;
}

/* What backward needs of the arguments: the tensors, None for the others. */
static PyObject *tensors_of(PyObject *const *args, Py_ssize_t count)
{
    PyObject *tuple = PyTuple_New(count);
    for (Py_ssize_t i = 0; tuple && i < count; i++) {
        family f = type_facts_of(args[i])->family;
        PyTuple_SetItem(tuple, i, Py_NewRef(f == FAMILY_TORCH || f == FAMILY_REFUSED ? args[i] : Py_None));
    }
    return tuple;
}

/* forward(ctx, call, *args): call is (callable, keywords or None, ...) and is left at ctx.call for backward, the tensors
 * among the arguments where save_for_backward would leave them. autograd is off here. */
PyObject *callable_forward(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    static PyObject *name_call, *name_save, *name_materialize;
    binding b;
    (void)self;
    if (count < 2 || !PyTuple_Check(args[1]) || PyTuple_Size(args[1]) < 2 ||
        (PyObject *)Py_TYPE(PyTuple_GetItem(args[1], 0)) != callable_type)
        return PyErr_Format(PyExc_TypeError, "forward(ctx, (callable, keywords, ...), *args)");
    if (!name_call) {
        name_save = PyUnicode_InternFromString("to_save");
        name_materialize = PyUnicode_InternFromString("materialize_grads");
        name_call = PyUnicode_InternFromString("call");
        if (!name_call || !name_save || !name_materialize) return NULL;
    }
    callable *c = (callable *)PyTuple_GetItem(args[1], 0);
    PyObject *keywords = PyTuple_GetItem(args[1], 1), *result = NULL, *saved = NULL;
    if (!callable_is_here(c)) return NULL;
    if (keywords == Py_None) {
        if (binding_fill_plain(&b, c, args + 2, count - 2, false)) result = binding_finish(&b);
    } else {
        PyObject *given = PyTuple_New(count - 2);
        for (Py_ssize_t i = 2; given && i < count; i++) PyTuple_SetItem(given, i - 2, Py_NewRef(args[i]));
        if (given && binding_fill(&b, c, given, keywords)) result = binding_finish(&b);
        Py_XDECREF(given);
    }
    bool good = result && (saved = tensors_of(args + 2, count - 2)) && !PyObject_SetAttr(args[0], name_save, saved) &&
                !PyObject_SetAttr(args[0], name_materialize, Py_False) &&
                !PyObject_SetAttr(args[0], name_call, args[1]) &&
                (!PyTuple_Check(result) || mark_whole(args[0], result));
    Py_XDECREF(saved);
    if (!good) Py_CLEAR(result);
    return result;
}

/* What turning the arguments into views costs, for measurements: everything of a call but the launch. With keywords, or
 * with None those by position alone; with True as the last argument what `launch` does, which asks torch nothing about
 * tensors that its compiler knows. */
static PyObject *callable_convert(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    PyObject *items[MOST_ARRAYS];
    binding b;
    if (count < 2 || !PyTuple_Check(args[0]) || PyTuple_Size(args[0]) > MOST_ARRAYS)
        return PyErr_Format(PyExc_TypeError, "convert(args, keywords[, trusted])");
    bool trusted = count > 2 && args[2] == Py_True, good;
    Py_ssize_t given = PyTuple_Size(args[0]);
    for (int i = 0; i < given; i++) items[i] = PyTuple_GetItem(args[0], i);
    if (args[1] == Py_None)
        good = binding_fill_plain(&b, (callable *)self, items, given, trusted);
    else
        good = binding_fill(&b, (callable *)self, args[0], args[1]);
    if (!good) return NULL;
    long bytes = b.key_bytes;
    binding_release(&b);
    return PyLong_FromLong(bytes);
}

static PyObject *callable_known(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    binding b;
    if (count != 2 || !PyTuple_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "known(args, keywords)");
        return NULL;
    }
    if (!callable_is_here((callable *)self)) return NULL;
    if (!binding_fill(&b, (callable *)self, args[0], args[1] == Py_None ? NULL : args[1])) return NULL;
    PyObject *list =
        b.wants_grad ? PyErr_Format(call_error, "call .detach() on what requires grad first") : entry_known(&b);
    binding_release(&b);
    return list;
}

static PyObject *callable_shapes(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || !PyTuple_Check(args[0]) || !(args[1] == Py_None || PyDict_Check(args[1]))) {
        PyErr_SetString(PyExc_TypeError, "shapes(arrays, keywords): a tuple, and a dict or None");
        return NULL;
    }
    if (!callable_is_here((callable *)self)) return NULL;
    return entry_shapes((callable *)self, args[0], args[1] == Py_None ? NULL : args[1]);
}

static PyObject *callable_params(PyObject *self, PyObject *none)
{
    static const char *const kinds[] = {"in", "out", "inout", "scalar", "const"};
    callable *c = (callable *)self;
    (void)none;
    PyObject *list = PyList_New(0);
    for (int i = 0; list && i < c->param_count; i++) {
        qn_param p;
        qn_error error;
        if (qn_kernel_param(c->module, c->name, i, &p, &error) != QN_OK) return raise_error(&error);
        PyObject *each = Py_BuildValue("(sssi)", p.name, kinds[p.kind], p.type, p.rank);
        if (!each || PyList_Append(list, each)) Py_CLEAR(list);
        Py_XDECREF(each);
    }
    return list;
}

static PyObject *callable_size(PyObject *self, PyObject *none)
{
    (void)none;
    return PyLong_FromLong(((callable *)self)->entry_count);
}

static PyMethodDef methods[] = {
    {"run", (PyCFunction)(void (*)(void))callable_run, METH_FASTCALL, "run(args, keywords): the call"},
    {"convert", (PyCFunction)(void (*)(void))callable_convert, METH_FASTCALL,
     "convert(args, keywords[, trusted]): its views alone"},
    {"launch", (PyCFunction)(void (*)(void))callable_launch, METH_FASTCALL,
     "launch(*args): the call, of tensors that are known to have no gradient"},
    {"prepare", (PyCFunction)(void (*)(void))callable_prepare, METH_FASTCALL, "prepare(*args): compiles for these"},
    {"turn", callable_turn, METH_O, "turn(orders): of the axes of what launch gives"},
    {"shapes", (PyCFunction)(void (*)(void))callable_shapes, METH_FASTCALL, "shapes(arrays, keywords): of the results"},
    {"known", (PyCFunction)(void (*)(void))callable_known, METH_FASTCALL,
     "known(args, keywords): extents and the like"},
    {"params", callable_params, METH_NOARGS, "params(): (name, kind, type, rank) of each"},
    {"prepared", callable_size, METH_NOARGS, "prepared(): how many signatures are ready"},
    {0}};

static PyType_Slot slots[] = {{Py_tp_dealloc, callable_free}, {Py_tp_methods, methods}, {0, NULL}};
static PyType_Spec spec = {"_quern.Callable", sizeof(callable), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

bool callable_open(PyObject *module)
{
    callable_type = PyType_FromSpec(&spec);
    return callable_type && PyModule_AddObjectRef(module, "Callable", callable_type) == 0;
}
