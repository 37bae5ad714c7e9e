/*
 * Arguments of a Python call. In: positional and named arguments. Out: views of the arrays in the order of the
 * parameters, numbers and settings, and a key: bytes that are equal for calls that can share one prepared call. Mistakes
 * name the argument.
 * SPDX-License-Identifier: MIT
 */
#include "callable.h"

#include <stdio.h>
#include <string.h>

static void key_add(binding *b, const void *bytes, size_t count)
{
    if (b->key_bytes + (int)count > KEY_BYTES) {
        b->key_bytes = KEY_BYTES + 1; /* told at the end */
        return;
    }
    memcpy(b->key + b->key_bytes, bytes, count);
    b->key_bytes += (int)count;
}

static void key_number(binding *b, int64_t number)
{
    key_add(b, &number, sizeof(number));
}

static int param_named(const callable *self, PyObject *name)
{
    for (int i = 0; i < self->param_count; i++)
        if (self->params[i].name_object == name) return i;
    for (int i = 0; i < self->param_count; i++)
        if (PyUnicode_Compare(self->params[i].name_object, name) == 0) return i;
    return -1;
}

static bool give(binding *b, int param, PyObject *value)
{
    if (b->values[param]) {
        PyErr_Format(PyExc_TypeError, "%s() got several values for `%s`", b->self->name, b->self->params[param].name);
        return false;
    }
    b->values[param] = value;
    return true;
}

/* out=: one tensor, or one for each `out` array. */
static bool give_outputs(binding *b, PyObject *out)
{
    const callable *self = b->self;
    bool many = PyTuple_Check(out) || PyList_Check(out);
    Py_ssize_t count = many ? PySequence_Size(out) : 1;
    if (out == Py_None) return true;
    if (count != self->output_count) {
        PyErr_Format(PyExc_TypeError, "%s() has %d results, and out= has %zd", self->name, self->output_count, count);
        return false;
    }
    for (int i = 0; i < count; i++) {
        PyObject *each = many ? (PyTuple_Check(out) ? PyTuple_GetItem(out, i) : PyList_GetItem(out, i)) : out;
        if (each == Py_None) continue;
        if (!give(b, self->outputs[i], each)) return false;
    }
    return true;
}

static bool is_word(PyObject *name, const char *word)
{
    return PyUnicode_CompareWithASCIIString(name, word) == 0;
}

/* Interned, as the names of keywords in compiled Python are. */
static PyObject *word_out;

static bool give_named(binding *b, PyObject *name, PyObject *value)
{
    if (!word_out) word_out = PyUnicode_InternFromString("out");
    int param = name == word_out && !b->self->has_out ? -1 : param_named(b->self, name);
    if (param >= 0 && b->self->params[param].kind != QN_PARAM_CONST) return give(b, param, value);
    if (param < 0 && (name == word_out || is_word(name, "out"))) return give_outputs(b, value);
    if (value == Py_None) return true;
    PyObject **place = is_word(name, "device")                        ? &b->device
                       : b->self->is_text && is_word(name, "blocks")  ? &b->blocks
                       : b->self->is_text && is_word(name, "threads") ? &b->threads
                       : b->self->is_text && is_word(name, "shared")  ? &b->shared
                                                                      : NULL;
    if (place && param < 0) {
        *place = value;
        return true;
    }
    if (b->setting_count == MOST_SETTINGS) {
        PyErr_Format(PyExc_TypeError, "%s() takes at most %d settings", b->self->name, MOST_SETTINGS);
        return false;
    }
    b->settings[b->setting_count][0] = name;
    b->settings[b->setting_count++][1] = value;
    return true;
}

/* A new reference to a number of any library's as Python's own; NULL, without an error: it is none. */
static PyObject *plain_number(PyObject *value)
{
    PyObject *number = PyIndex_Check(value) ? PyNumber_Index(value) : NULL;
    PyErr_Clear();
    if (!number && PyNumber_Check(value)) number = PyNumber_Float(value);
    PyErr_Clear();
    return number;
}

/* Raises `words`, with the name of what was given and of its type. */
static bool refuse_value(const char *words, const char *name, PyObject *value)
{
    PyObject *type = PyType_GetName(Py_TYPE(value));
    if (type) PyErr_Format(PyExc_TypeError, words, name, type);
    Py_XDECREF(type);
    return false;
}

/* A number or words, as bytes of the key. */
static bool key_value(binding *b, const char *name, PyObject *value)
{
    if (PyFloat_Check(value)) {
        double number = PyFloat_AsDouble(value);
        key_add(b, "f", 1);
        key_add(b, &number, sizeof(number));
        return true;
    }
    if (PyLong_Check(value)) {
        long long number = PyLong_AsLongLong(value);
        key_add(b, "i", 1);
        key_number(b, number);
        if (number != -1 || !PyErr_Occurred()) return true;
        PyErr_Format(PyExc_OverflowError,
                     "argument `%s`: int too big: integers have 64 bits, larger numbers are floats", name);
        return false;
    }
    if (PyTuple_Check(value)) {
        bool good = true;
        for (Py_ssize_t i = 0; i < PyTuple_Size(value) && good; i++)
            good = key_value(b, name, PyTuple_GetItem(value, i));
        return good;
    }
    family f = type_facts_of(value)->family;
    if (f == FAMILY_TORCH || f == FAMILY_REFUSED) {
        PyErr_Format(PyExc_TypeError, "argument `%s` is a number here: give x.item(), which waits for the tensor",
                     name);
        return false;
    }
    PyObject *number = PyUnicode_Check(value) ? NULL : plain_number(value); /* not its words: they may be rounded */
    if (number) {
        bool good = key_value(b, name, number);
        Py_DECREF(number);
        return good;
    }
    PyObject *words = PyObject_Str(value);
    Py_ssize_t size = 0;
    const char *text = words ? PyUnicode_AsUTF8AndSize(words, &size) : NULL;
    if (text) key_add(b, text, (size_t)size + 1);
    Py_XDECREF(words);
    return text != NULL;
}

/* An array that text of CUDA takes: one axis, whatever the tensor has. */
static bool flatten(const char *name, view *v)
{
    int64_t count = 1, step = 1;
    for (int i = v->rank - 1; i >= 0; i--) {
        if (v->extents[i] > 1 && v->strides[i] != step) {
            PyErr_Format(PyExc_ValueError,
                         "argument `%s` is not contiguous, and CUDA text takes pointers: call .contiguous() first",
                         name);
            return false;
        }
        step *= v->extents[i];
        count *= v->extents[i];
    }
    v->rank = 1;
    v->extents[0] = count;
    v->strides[0] = 1;
    return true;
}

static bool add_array(binding *b, int param)
{
    const callable *self = b->self;
    const callable_param *p = &self->params[param];
    PyObject *value = b->values[param];
    view *v = &b->views[b->array_count];
    bool writable = p->kind != QN_PARAM_IN;
    if (!value && p->kind != QN_PARAM_OUT) {
        PyErr_Format(PyExc_TypeError, "%s() is missing the array `%s`", self->name, p->name);
        return false;
    }
    b->params[b->array_count] = param;
    key_number(b, param);
    b->made[b->array_count] = !value;
    b->array_count++;
    if (!value) return true;
    unsigned flags = b->trusted ? VIEW_TRUSTED : b->grad | (writable && !self->is_text ? VIEW_WRITABLE : 0);
    if (!view_get(value, p->name, flags, v)) return false;
    if (b->trusted && !v->rank && p->rank == 1) { /* a parameter without axes would be a number */
        v->rank = 1;
        v->extents[0] = v->strides[0] = 1;
    }
    if (self->is_text && !flatten(p->name, v)) return false;
    if (!b->first) b->first = v;
    if (!view_same_device(b->first, v)) {
        const char *names[] = {b->first->device_type == DEVICE_HOST ? "the host" : "a GPU",
                               v->device_type == DEVICE_HOST ? "the host" : "a GPU"};
        PyErr_Format(PyExc_ValueError,
                     "argument `%s` is on %s (device %d), and `%s` on %s (device %d): move one of them", p->name,
                     names[1], v->device_id, self->params[b->params[b->first - b->views]].name, names[0],
                     b->first->device_id);
        return false;
    }
    if (v->wants_grad && p->kind == QN_PARAM_IN) {
        b->wants_grad = true;
        return true;
    }
    if (v->wants_grad && writable) {
        PyErr_Format(PyExc_ValueError,
                     "argument `%s` requires grad and would be written, which autograd cannot follow: give a tensor "
                     "that does not "
                     "require grad, or call it under torch.no_grad()",
                     p->name);
        return false;
    }
    bool aligned = v->device_type == DEVICE_HOST && (uintptr_t)v->data % 64 == 0;
    /* One word: what is stored in parts and read as one at once waits for the stores. */
    key_number(b, ((int64_t)v->type << 24) | (v->rank << 16) | (v->facts->family << 8) | aligned);
    key_add(b, v->extents, sizeof(int64_t) * (size_t)v->rank);
    key_add(b, v->strides, sizeof(int64_t) * (size_t)v->rank);
    return true;
}

static bool add_number(binding *b, int param)
{
    PyObject *value = b->values[param];
    const char *name = b->self->params[param].name;
    key_number(b, param);
    if (!value || PyFloat_Check(value) || PyLong_Check(value)) return !value || key_value(b, name, value);
    family f = type_facts_of(value)->family;
    bool is_tensor = f == FAMILY_TORCH || f == FAMILY_REFUSED; /* key_value says so */
    PyObject *number = is_tensor ? Py_NewRef(value) : plain_number(value);
    if (!number) return refuse_value("argument `%s` must be a number, not %U", name, value);
    bool good = key_value(b, name, number);
    Py_DECREF(number);
    return good;
}

/* On which device and stream: where the arrays are, or as device= says. */
static bool choose_device(binding *b)
{
    if (!b->first) {
        PyErr_Format(PyExc_TypeError, "%s() got no array", b->self->name);
        return false;
    }
    b->on_device = b->first->device_type == DEVICE_CUDA;
    if (b->on_device && !view_stream(b->first, &b->stream, &b->waits)) return false;
    if (b->on_device && b->device) {
        PyErr_Format(PyExc_ValueError, "device= is for arrays of the host; `%s` runs where its arrays are",
                     b->self->name);
        return false;
    }
    if (b->device && !PyUnicode_Check(b->device))
        return refuse_value("`%s` must be a name, such as \"cpu\" or \"ref\", not %U", "device", b->device);
    key_number(b, ((int64_t)b->first->device_type << 32) | (uint32_t)b->first->device_id);
    key_number(b, (int64_t)(intptr_t)b->stream);
    return !b->device || key_value(b, "device", b->device);
}

bool binding_device(const binding *b, char name[16])
{
    if (b->on_device) {
        snprintf(name, 16, "cuda");
        if (b->first->device_id) snprintf(name, 16, "cuda:%d", b->first->device_id);
        return true;
    }
    const char *words = b->device          ? PyUnicode_AsUTF8AndSize(b->device, NULL)
                        : b->self->is_text ? qn_device_for_cuda(the_context())
                                           : host_device();
    if (!words) return false;
    snprintf(name, 16, "%s", words);
    return true;
}

static bool fill(binding *b)
{
    callable *self = b->self;
    for (int i = 0; i < self->param_count; i++) {
        if (self->params[i].kind == QN_PARAM_CONST) continue;
        if (self->params[i].kind == QN_PARAM_SCALAR ? !add_number(b, i) : !add_array(b, i)) return false;
        if (b->wants_grad) return true;
    }
    for (int i = 0; i < b->setting_count; i++) {
        key_add(b, &b->settings[i][0], sizeof(PyObject *));
        const char *words = PyUnicode_AsUTF8AndSize(b->settings[i][0], NULL);
        if (!words || !key_value(b, words, b->settings[i][1])) return false;
    }
    PyObject *const launch[] = {b->blocks, b->threads, b->shared};
    for (int i = 0; i < 3 && self->is_text; i++) {
        key_add(b, "|", 1);
        if (launch[i] && !key_value(b, "blocks", launch[i])) return false;
    }
    if (!choose_device(b)) return false;
    if (b->key_bytes <= KEY_BYTES) return true;
    PyErr_Format(PyExc_ValueError, "%s(): its arguments are too long", self->name);
    return false;
}

/* Views are filled as they come; the key not at all. */
static bool begin(binding *b, callable *self, Py_ssize_t given)
{
    memset(b->values, 0, sizeof(*b->values) * (size_t)self->param_count);
    b->device = b->blocks = b->threads = b->shared = NULL;
    b->self = self;
    b->array_count = b->key_bytes = b->setting_count = 0;
    b->first = NULL;
    b->wants_grad = b->on_device = b->waits = b->trusted = false;
    b->grad = 0;
    b->stream = NULL;
    if (given <= self->input_count) return true;
    PyErr_Format(PyExc_TypeError, "%s() takes %d arguments by position, got %zd", self->name, self->input_count, given);
    return false;
}

static bool end(binding *b)
{
    if (!b->trusted && grad_is_enabled()) b->grad = VIEW_GRAD;
    if (fill(b)) return true;
    binding_release(b);
    return false;
}

bool binding_fill(binding *b, callable *self, PyObject *args, PyObject *keywords)
{
    Py_ssize_t given = PyTuple_Size(args), at = 0;
    PyObject *name, *value;
    if (!begin(b, self, given)) return false;
    for (int i = 0; i < given; i++) b->values[self->inputs[i]] = PyTuple_GetItem(args, i);
    while (keywords && PyDict_Next(keywords, &at, &name, &value))
        if (!give_named(b, name, value)) return false;
    return end(b);
}

bool binding_fill_vector(binding *b, callable *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    Py_ssize_t named = names ? PyTuple_Size(names) : 0;
    if (!begin(b, self, count)) return false;
    for (int i = 0; i < count; i++) b->values[self->inputs[i]] = args[i];
    for (Py_ssize_t i = 0; i < named; i++)
        if (!give_named(b, PyTuple_GetItem(names, i), args[count + i])) return false;
    return end(b);
}

bool binding_fill_plain(binding *b, callable *self, PyObject *const *args, Py_ssize_t count, bool trusted)
{
    if (!begin(b, self, count)) return false;
    for (int i = 0; i < count; i++) b->values[self->inputs[i]] = args[i];
    b->trusted = trusted;
    return end(b);
}

void binding_release(binding *b)
{
    for (int i = 0; i < b->array_count; i++)
        if (!b->made[i]) view_release(&b->views[i]);
    b->array_count = 0;
}

/* ---- settings of a call ---- */

bool set_value(qn_call *call, const char *name, PyObject *value)
{
    qn_error error;
    qn_dtype type;
    qn_status status;
    if (PyBool_Check(value) || PyLong_Check(value)) {
        long long number = PyLong_AsLongLong(value);
        if (number == -1 && PyErr_Occurred()) return false;
        status = qn_call_set_int(call, name, number, &error);
    } else if (PyFloat_Check(value)) {
        status = qn_call_set_float(call, name, PyFloat_AsDouble(value), &error);
    } else if (PyUnicode_Check(value)) {
        const char *words = PyUnicode_AsUTF8AndSize(value, NULL);
        if (!words) return false;
        status = qn_call_set_text(call, name, words, &error);
    } else if (dtype_from_object(value, &type)) {
        status = qn_call_set_type(call, name, type, &error);
    } else {
        PyObject *number = plain_number(value);
        if (!number) return refuse_value("`%s` must be a number, a type or a name, not %U", name, value);
        bool good = set_value(call, name, number);
        Py_DECREF(number);
        return good;
    }
    if (status == QN_OK) return true;
    raise_error(&error);
    return false;
}

static bool counts_of(PyObject *value, const char *name, int64_t *counts, int *axes)
{
    PyObject *tuple = PyTuple_Check(value) ? Py_NewRef(value) : PyTuple_Pack(1, value);
    *axes = tuple ? (int)PyTuple_Size(tuple) : 0;
    for (int i = 0; i < *axes && i < 3; i++) counts[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
    Py_XDECREF(tuple);
    if (!PyErr_Occurred() && *axes >= 1 && *axes <= 3) return true;
    PyErr_Format(PyExc_TypeError, "`%s` must be an integer, or a tuple of one to three", name);
    return false;
}

static bool set_launch(const binding *b, qn_call *call)
{
    int64_t blocks[3] = {1, 1, 1}, threads[3] = {1, 1, 1}, shared = 0;
    int axes = 1, more = 1;
    qn_error error;
    if (!b->blocks || !b->threads) {
        PyErr_Format(PyExc_TypeError,
                     "%s() is CUDA text: say how it is launched, such as blocks=(n + 255) // 256, threads=256",
                     b->self->name);
        return false;
    }
    if (!counts_of(b->blocks, "blocks", blocks, &axes) || !counts_of(b->threads, "threads", threads, &more))
        return false;
    if (b->shared) shared = PyLong_AsLongLong(b->shared);
    if (PyErr_Occurred()) return refuse_value("`%s` must be a number of bytes, not %U", "shared", b->shared);
    if (qn_call_set_launch(call, blocks, threads, axes > more ? axes : more, shared, &error) == QN_OK) return true;
    raise_error(&error);
    return false;
}

bool binding_apply(const binding *b, qn_call *call)
{
    const callable *self = b->self;
    for (int i = 0; i < self->param_count; i++)
        if (self->params[i].kind == QN_PARAM_SCALAR && b->values[i] &&
            !set_value(call, self->params[i].name, b->values[i]))
            return false;
    for (int i = 0; i < b->setting_count; i++) {
        const char *name = PyUnicode_AsUTF8AndSize(b->settings[i][0], NULL);
        if (!name || !set_value(call, name, b->settings[i][1])) return false;
    }
    return !self->is_text || set_launch(b, call);
}
