/*
 * The type `_quern.Callable`: a kernel or tensor function of a module. Its method `run(args, keywords)` is the whole of a
 * call; it gives NotImplemented where a gradient is wanted, and the Python side goes through autograd.
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
    free(c->name);
    Py_XDECREF(c->owner);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyObject *callable_run(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    binding b;
    if (count != 2 || !PyTuple_Check(args[0]) || !(args[1] == Py_None || PyDict_Check(args[1]))) {
        PyErr_SetString(PyExc_TypeError, "run(args, keywords): a tuple, and a dict or None");
        return NULL;
    }
    if (((callable *)self)->fork_count != fork_count)
        return PyErr_Format(
            error_type,
            "`%s` was loaded before this process was forked: load it again here, or start processes by spawning",
            ((callable *)self)->name);
    if (!binding_fill(&b, (callable *)self, args[0], args[1] == Py_None ? NULL : args[1])) return NULL;
    PyObject *result;
    if (b.first && b.first->facts->family == FAMILY_TORCH && forward_mode_is_on()) {
        result =
            PyErr_Format(call_error, "`%s` has no derivative in forward mode: it would lose the tangents; use backward",
                         b.self->name);
    } else if (b.wants_grad) {
        result = Py_NewRef(Py_NotImplemented);
    } else {
        entry *e = entry_find(&b);
        PyObject *range = b.first->facts->family == FAMILY_TORCH ? range_enter(b.self->name) : NULL;
        result = e ? entry_again(e, &b) : entry_first(&b);
        range_leave(range);
    }
    binding_release(&b);
    return result;
}

/* What turning the arguments into views costs, for measurements: everything of `run` but the launch. */
static PyObject *callable_convert(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    binding b;
    if (count != 2 || !PyTuple_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "convert(args, keywords)");
        return NULL;
    }
    if (!binding_fill(&b, (callable *)self, args[0], args[1] == Py_None ? NULL : args[1])) return NULL;
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
     "convert(args, keywords): its views alone"},
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
