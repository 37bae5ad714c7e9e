/*
 * The type `_quern.Direct`: what is called in Python, `q.softmax(x)`, with no Python in between. In: the arguments of a
 * call. Out: what Callable's `run` gives. The class quern.Function derives from it and says the same in Python
 * (`__call__`), which is what torch's Dynamo traces; whatever is not the plain case goes there: gradients to `_follow`,
 * arguments that cannot be had to `_call_slowly`, which tells why or knows another way.
 * SPDX-License-Identifier: MIT
 */
#include "callable.h"

typedef struct direct {
    PyObject_HEAD PyObject *callable; /* NULL before `_attach` */
} direct;

static PyObject *follow, *slowly; /* names of methods */

static PyObject *go_to(PyObject *self, PyObject *method, PyObject *args, PyObject *keywords)
{
    PyObject *named = keywords ? Py_NewRef(keywords) : PyDict_New();
    PyObject *result = named ? PyObject_CallMethodObjArgs(self, method, args, named, NULL) : NULL;
    Py_XDECREF(named);
    return result;
}

static PyObject *direct_call(PyObject *self, PyObject *args, PyObject *keywords)
{
    callable *c = (callable *)((direct *)self)->callable;
    binding b;
    if (!c) return PyErr_Format(PyExc_TypeError, "this function was not loaded");
    if (!callable_is_ours(c)) return NULL;
    if (binding_fill(&b, c, args, keywords)) {
        bool plain = !binding_forward_mode(&b);
        if (plain && !b.wants_grad) return binding_finish(&b);
        binding_release(&b);
        if (plain) return go_to(self, follow, args, keywords);
    }
    PyErr_Clear();
    return go_to(self, slowly, args, keywords);
}

static PyObject *direct_attach(PyObject *self, PyObject *given)
{
    if ((PyObject *)Py_TYPE(given) != callable_type) return PyErr_Format(PyExc_TypeError, "a Callable is wanted");
    Py_XDECREF(((direct *)self)->callable);
    ((direct *)self)->callable = Py_NewRef(given);
    Py_RETURN_NONE;
}

static void direct_free(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(((direct *)self)->callable);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

/* name_call(type, function): `__call__` of a type, without Python's slot for it in the place of ours. `names` is the
 * dictionary of the type itself. */
static PyObject *name_call(PyObject *self, PyObject *args)
{
    PyObject *type, *names, *function;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!O!O", &PyType_Type, &type, &PyDict_Type, &names, &function)) return NULL;
    if (PyDict_SetItemString(names, "__call__", function)) return NULL;
    PyType_Modified((PyTypeObject *)type);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"_attach", direct_attach, METH_O, "_attach(callable): what it calls"}, {0}};
static PyType_Slot slots[] = {
    {Py_tp_dealloc, direct_free}, {Py_tp_call, direct_call}, {Py_tp_methods, methods}, {0, NULL}};
static PyType_Spec spec = {"_quern.Direct", sizeof(direct), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
static PyMethodDef functions[] = {{"name_call", name_call, METH_VARARGS, "name_call(type, names, function)"}, {0}};

bool direct_open(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&spec);
    follow = PyUnicode_InternFromString("_follow");
    slowly = PyUnicode_InternFromString("_call_slowly");
    bool good = type && follow && slowly && PyModule_AddObjectRef(module, "Direct", type) == 0 &&
                PyModule_AddFunctions(module, functions) == 0;
    Py_XDECREF(type);
    return good;
}
