/*
 * The type `_quern.Direct`: what is called in Python, `q.softmax(x)`, with no Python in between. In: the arguments of a
 * call. Out: what Callable's `run` gives. The class quern.Function derives from it and says the same in Python
 * (`__call__`), which is what torch's Dynamo traces; whatever is not the plain case goes there: gradients to `_follow`,
 * arguments that cannot be had to `_call_slowly`, which tells why or knows another way.
 * SPDX-License-Identifier: MIT
 */
#include "callable.h"

#include <stddef.h>
#include <structmember.h>

/* From 3.12 on a class in Python inherits calls without a tuple and a dict made for each; the names are in the limited API
 * of then, the meaning was the same before. */
typedef PyObject *vector_function(PyObject *self, PyObject *const *args, size_t count, PyObject *names);
#define TYPE_HAS_VECTORCALL (1UL << 11)
#define COUNT_MASK (SIZE_MAX >> 1) /* the top bit says that the place before the first argument may be used */

typedef struct direct {
    PyObject_HEAD PyObject *callable; /* NULL before `_attach` */
    vector_function *vectorcall;
} direct;

static PyObject *follow, *slowly; /* names of methods */

static PyObject *go_to(PyObject *self, PyObject *method, PyObject *args, PyObject *keywords)
{
    PyObject *named = keywords ? Py_NewRef(keywords) : PyDict_New();
    PyObject *result = named ? PyObject_CallMethodObjArgs(self, method, args, named, NULL) : NULL;
    Py_XDECREF(named);
    return result;
}

/* The plain case: what it gives. Otherwise NULL, with the method that goes on, or without one where an exception is set. */
static PyObject *call_plainly(binding *b, bool is_filled, PyObject **method)
{
    *method = slowly;
    if (!is_filled) return PyErr_Clear(), NULL;
    bool plain = !binding_forward_mode(b);
    if (plain && !b->wants_grad) {
        *method = NULL;
        return binding_finish(b);
    }
    binding_release(b);
    if (plain) *method = follow;
    return NULL;
}

static callable *callable_of(PyObject *self)
{
    callable *c = (callable *)((direct *)self)->callable;
    if (!c) return PyErr_Format(PyExc_TypeError, "this function was not loaded"), NULL;
    return callable_is_here(c) ? c : NULL;
}

static PyObject *direct_call(PyObject *self, PyObject *args, PyObject *keywords)
{
    callable *c = callable_of(self);
    PyObject *method;
    binding b;
    if (!c) return NULL;
    PyObject *result = call_plainly(&b, binding_fill(&b, c, args, keywords), &method);
    return method ? go_to(self, method, args, keywords) : result;
}

static PyObject *direct_vector(PyObject *self, PyObject *const *args, size_t flagged_count, PyObject *names)
{
    callable *c = callable_of(self);
    Py_ssize_t count = (Py_ssize_t)(flagged_count & COUNT_MASK), named = names ? PyTuple_Size(names) : 0;
    PyObject *method;
    binding b;
    if (!c) return NULL;
    PyObject *result = call_plainly(&b, binding_fill_vector(&b, c, args, count, names), &method);
    if (!method) return result;
    PyObject *tuple = PyTuple_New(count), *keywords = named ? PyDict_New() : NULL;
    bool good = tuple && (keywords || !named);
    for (Py_ssize_t i = 0; i < count && good; i++) PyTuple_SetItem(tuple, i, Py_NewRef(args[i]));
    for (Py_ssize_t i = 0; i < named && good; i++)
        good = !PyDict_SetItem(keywords, PyTuple_GetItem(names, i), args[count + i]);
    if (good) result = go_to(self, method, tuple, keywords);
    Py_XDECREF(tuple);
    Py_XDECREF(keywords);
    return result;
}

static PyObject *direct_attach(PyObject *self, PyObject *given)
{
    if ((PyObject *)Py_TYPE(given) != callable_type) return PyErr_Format(PyExc_TypeError, "a Callable is wanted");
    Py_XDECREF(((direct *)self)->callable);
    ((direct *)self)->callable = Py_NewRef(given);
    ((direct *)self)->vectorcall = direct_vector;
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
static PyMemberDef members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(direct, vectorcall), READONLY, NULL},
                                {0}};
static PyType_Slot slots[] = {{Py_tp_dealloc, direct_free},
                              {Py_tp_call, direct_call},
                              {Py_tp_methods, methods},
                              {Py_tp_members, members},
                              {0, NULL}};
static PyType_Spec spec = {"_quern.Direct", sizeof(direct), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | TYPE_HAS_VECTORCALL, slots};
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
