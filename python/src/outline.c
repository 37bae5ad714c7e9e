/*
 * The guard of traced functions. In: arguments. Out: bytes that are equal for calls that one trace serves: of tensors the
 * type, rank, kind of device and which axes have extent one; of floats that they are there; of other values the value.
 * SPDX-License-Identifier: MIT
 */
#include "python.h"

#include <stdio.h>
#include <string.h>

enum { MOST_BYTES = 2048 };

typedef struct outline {
    char bytes[MOST_BYTES];
    size_t size;
} outline;

static bool add(outline *o, const void *bytes, size_t count)
{
    if (o->size + count > MOST_BYTES) {
        PyErr_SetString(PyExc_ValueError, "quern.fuse: the arguments are too long");
        return false;
    }
    memcpy(o->bytes + o->size, bytes, count);
    o->size += count;
    return true;
}

static bool add_value(outline *o, PyObject *value, int position)
{
    if (PyFloat_Check(value)) return add(o, "f", 2);
    family f = type_facts_of(value)->family;
    if (f == FAMILY_NONE || PyUnicode_Check(value)) {
        PyObject *words = PyObject_Repr(value);
        Py_ssize_t size = 0;
        const char *text = words ? PyUnicode_AsUTF8AndSize(words, &size) : NULL;
        bool good = text && add(o, "v", 1) && add(o, text, (size_t)size + 1);
        Py_XDECREF(words);
        return good;
    }
    view v;
    char name[24];
    snprintf(name, sizeof(name), "%d", position);
    if (!view_get(value, name, false, &v)) return false;
    uint8_t head[4] = {'t', (uint8_t)v.type, (uint8_t)v.rank, (uint8_t)v.device_type};
    uint8_t ones = 0;
    for (int i = 0; i < v.rank; i++) ones |= (uint8_t)((v.extents[i] == 1) << i);
    view_release(&v);
    return add(o, head, sizeof(head)) && add(o, &ones, 1);
}

PyObject *outline_of(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    outline o = {.size = 0};
    PyObject *name, *value;
    Py_ssize_t at = 0;
    (void)self;
    if (count != 2 || !PyTuple_Check(args[0])) return PyErr_Format(PyExc_TypeError, "outline(args, keywords)");
    for (Py_ssize_t i = 0; i < PyTuple_Size(args[0]); i++)
        if (!add_value(&o, PyTuple_GetItem(args[0], i), (int)i)) return NULL;
    while (args[1] != Py_None && PyDict_Next(args[1], &at, &name, &value)) {
        Py_ssize_t size = 0;
        const char *words = PyUnicode_AsUTF8AndSize(name, &size);
        if (!words || !add(&o, words, (size_t)size + 1) || !add_value(&o, value, -1)) return NULL;
    }
    return PyBytes_FromStringAndSize(o.bytes, (Py_ssize_t)o.size);
}
