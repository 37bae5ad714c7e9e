/*
 * Profiles. `_quern.Profile` is Quern's own profile with the schedule of torch.profiler; and while torch's profiler records,
 * a call is a range of its, so that Quern's kernels are linked to the function that launched them.
 * SPDX-License-Identifier: MIT
 */
#include "python.h"

#include <quern/profile.h>
#include <stdlib.h>
#include <string.h>

/* ---- ranges of torch's profiler ---- */

PyObject *range_enter(const char *name)
{
    static module_place enabled, fast;
    if (module_value("torch.autograd.profiler", "_is_profiler_enabled", &enabled) != Py_True) return NULL;
    PyObject *type = module_value("torch._C._profiler", "_RecordFunctionFast", &fast);
    PyObject *range = type ? PyObject_CallFunction(type, "s", name) : NULL;
    PyObject *entered = range ? PyObject_CallMethod(range, "__enter__", NULL) : NULL;
    if (!entered) Py_CLEAR(range);
    Py_XDECREF(entered);
    PyErr_Clear();
    return range;
}

void range_leave(PyObject *range)
{
    PyObject *kind, *value, *trace;
    if (!range) return;
    PyErr_Fetch(&kind, &value, &trace); /* of the call, which goes on */
    PyObject *left = PyObject_CallMethod(range, "__exit__", "OOO", Py_None, Py_None, Py_None);
    Py_XDECREF(left);
    PyErr_Clear();
    PyErr_Restore(kind, value, trace);
    Py_DECREF(range);
}

/* ---- Quern's own ---- */

typedef struct profile_object {
    PyObject_HEAD qn_profile *profile;
    PyObject *ready; /* called after each cycle, or NULL */
} profile_object;

static PyObject *profile_type;

static void call_ready(void *user, qn_profile *profile)
{
    profile_object *p = user;
    (void)profile;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *result = p->ready ? PyObject_CallNoArgs(p->ready) : NULL;
    if (!result && PyErr_Occurred()) PyErr_WriteUnraisable(p->ready);
    Py_XDECREF(result);
    PyGILState_Release(state);
}

/* profile_start(wait, warmup, active, repeat, ready) */
static PyObject *profile_start(PyObject *self, PyObject *args)
{
    qn_profile_options options = {0};
    PyObject *ready;
    qn_error error;
    (void)self;
    if (!PyArg_ParseTuple(args, "iiiiO", &options.wait, &options.warmup, &options.active, &options.repeat, &ready))
        return NULL;
    if (!the_context()) return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot((PyTypeObject *)profile_type, Py_tp_alloc);
    profile_object *p = (profile_object *)allocate((PyTypeObject *)profile_type, 0);
    if (!p) return NULL;
    p->ready = ready == Py_None ? NULL : Py_NewRef(ready);
    if (p->ready) options.ready = call_ready, options.user = p;
    if (qn_profile_start(the_context(), &options, &p->profile, &error) == QN_OK) return (PyObject *)p;
    Py_DECREF(p);
    return raise_error(&error);
}

static void profile_free(PyObject *self)
{
    profile_object *p = (profile_object *)self;
    PyTypeObject *type = Py_TYPE(self);
    qn_profile_free(p->profile);
    Py_XDECREF(p->ready);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyObject *profile_step(PyObject *self, PyObject *none)
{
    (void)none;
    qn_profile_step(((profile_object *)self)->profile);
    Py_RETURN_NONE;
}

static PyObject *profile_stop(PyObject *self, PyObject *none)
{
    qn_error error;
    qn_status status;
    (void)none;
    Py_BEGIN_ALLOW_THREADS status = qn_profile_stop(((profile_object *)self)->profile, &error);
    Py_END_ALLOW_THREADS if (status != QN_OK) return raise_error(&error);
    Py_RETURN_NONE;
}

static void add_text(void *user, const char *text, size_t length)
{
    PyObject *piece = PyUnicode_DecodeUTF8(text, (Py_ssize_t)length, "replace");
    if (piece) PyList_Append(user, piece);
    Py_XDECREF(piece);
}

static PyObject *joined(qn_status status, const qn_error *error, PyObject *list)
{
    PyObject *empty = PyUnicode_FromString(""), *text = NULL;
    if (status == QN_OK && empty)
        text = PyUnicode_Join(empty, list);
    else if (status != QN_OK)
        raise_error(error);
    Py_XDECREF(empty);
    Py_DECREF(list);
    return text;
}

/* table(by, format, sort, rows) */
static PyObject *profile_table(PyObject *self, PyObject *args)
{
    int by, format;
    qn_table_options options = {0};
    qn_error error;
    if (!PyArg_ParseTuple(args, "iizi", &by, &format, &options.sort, &options.rows)) return NULL;
    options.by = (qn_table_by)by;
    options.format = (qn_table_format)format;
    PyObject *list = PyList_New(0);
    if (!list) return NULL;
    qn_status status = qn_profile_table(((profile_object *)self)->profile, &options, add_text, list, &error);
    return joined(status, &error, list);
}

static PyObject *profile_hints(PyObject *self, PyObject *none)
{
    qn_hint_options options = {0};
    qn_error error;
    (void)none;
    PyObject *list = PyList_New(0);
    if (!list) return NULL;
    qn_status status = qn_profile_hints(((profile_object *)self)->profile, &options, add_text, list, &error);
    return joined(status, &error, list);
}

/* write(kind, path): "trace", "folded" or "report" */
static PyObject *profile_write(PyObject *self, PyObject *args)
{
    const char *kind, *path;
    const qn_profile *p = ((profile_object *)self)->profile;
    qn_error error;
    qn_status status;
    if (!PyArg_ParseTuple(args, "ss", &kind, &path)) return NULL;
    status = !strcmp(kind, "trace")    ? qn_profile_write_trace(p, path, &error)
             : !strcmp(kind, "folded") ? qn_profile_write_folded(p, path, &error)
                                       : qn_profile_report(p, path, NULL, &error);
    if (status != QN_OK) return raise_error(&error);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"step", profile_step, METH_NOARGS, "step()"},
                                {"stop", profile_stop, METH_NOARGS, "stop()"},
                                {"table", profile_table, METH_VARARGS, "table(by, format, sort, rows)"},
                                {"hints", profile_hints, METH_NOARGS, "hints()"},
                                {"write", profile_write, METH_VARARGS, "write(kind, path)"},
                                {0}};
static PyType_Slot slots[] = {{Py_tp_dealloc, profile_free}, {Py_tp_methods, methods}, {0, NULL}};
static PyType_Spec spec = {"_quern.Profile", sizeof(profile_object), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

static PyObject *range_push(PyObject *self, PyObject *name)
{
    (void)self;
    const char *words = PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    if (!words) return PyErr_Format(PyExc_TypeError, "a name is wanted");
    qn_range_push(words);
    Py_RETURN_NONE;
}

static PyObject *range_pop(PyObject *self, PyObject *none)
{
    (void)self, (void)none;
    qn_range_pop();
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"profile_start", profile_start, METH_VARARGS, "profile_start(wait, warmup, active, repeat, ready)"},
    {"range_push", range_push, METH_O, "range_push(name)"},
    {"range_pop", range_pop, METH_NOARGS, "range_pop()"},
    {0}};

bool profile_open(PyObject *module)
{
    profile_type = PyType_FromSpec(&spec);
    return profile_type && PyModule_AddObjectRef(module, "Profile", profile_type) == 0 &&
           PyModule_AddFunctions(module, functions) == 0;
}
