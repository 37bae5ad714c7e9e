/*
 * New tensors for results, by the framework of the inputs: its own allocator, so that memory, streams and graphs stay its
 * business. A recipe (the function and its arguments) is made once for a prepared call; making a tensor from it is one
 * Python call.
 * SPDX-License-Identifier: MIT
 */
#include "python.h"

static const char *const numpy_names[] = {"float32", "float64", "float16", NULL,     "int8",   "int16", "int32",
                                          "int64",   "uint8",   "uint16",  "uint32", "uint64", "bool"};
static const char *const torch_names[] = {"float32", "float64", "float16", "bfloat16", "int8",   "int16", "int32",
                                          "int64",   "uint8",   "uint16",  "uint32",   "uint64", "bool"};

static PyObject *shape_tuple(const qn_array *shape)
{
    PyObject *tuple = PyTuple_New(shape->rank);
    for (int i = 0; tuple && i < shape->rank; i++) PyTuple_SetItem(tuple, i, PyLong_FromLongLong(shape->extents[i]));
    return tuple;
}

static bool plan(const char *module_name, const char *type, PyObject *device, const qn_array *shape, output_recipe *out)
{
    PyObject *module = PyImport_ImportModule(module_name), *element = NULL;
    if (!module) return false;
    out->function = PyObject_GetAttrString(module, "empty");
    element = PyObject_GetAttrString(module, type);
    PyObject *tuple = shape_tuple(shape);
    out->arguments = tuple ? PyTuple_Pack(1, tuple) : NULL;
    out->keywords = PyDict_New();
    bool good = out->function && element && out->arguments && out->keywords &&
                !PyDict_SetItemString(out->keywords, "dtype", element) &&
                (!device || !PyDict_SetItemString(out->keywords, "device", device));
    Py_XDECREF(tuple);
    Py_XDECREF(element);
    Py_DECREF(module);
    return good;
}

bool output_plan(const view *like, const qn_array *shape, output_recipe *out)
{
    *out = (output_recipe){0};
    bool good = false;
    if (like->facts->family == FAMILY_TORCH) {
        PyObject *device = PyObject_GetAttrString(like->object, "device");
        good = device && plan("torch", torch_names[shape->type], device, shape, out);
        Py_XDECREF(device);
    } else if (like->device_type == DEVICE_CUDA) {
        PyObject *cupy = imported("cupy");
        if (cupy && numpy_names[shape->type])
            good = plan("cupy", numpy_names[shape->type], NULL, shape, out);
        else
            PyErr_SetString(PyExc_TypeError,
                            "results cannot be allocated for arrays of this library: give them with out=");
        Py_XDECREF(cupy);
    } else if (!numpy_names[shape->type]) {
        PyErr_SetString(PyExc_TypeError, "NumPy has no bf16: give the result with out=, or use torch tensors");
    } else {
        PyObject *numpy = PyImport_ImportModule("numpy");
        PyErr_Clear();
        good = plan(numpy ? "numpy" : "quern._plain", numpy_names[shape->type], NULL, shape, out);
        Py_XDECREF(numpy);
    }
    if (!good) output_forget(out);
    return good;
}

bool output_is_like(const view *v, const qn_array *shape)
{
    if (v->facts->family != FAMILY_TORCH || v->type != shape->type || v->rank != shape->rank) return false;
    int64_t step = 1;
    for (int i = v->rank - 1; i >= 0; i--) {
        if (v->extents[i] != shape->extents[i] || v->extents[i] < 2 || v->strides[i] != step) return false;
        step *= v->extents[i];
    }
    return true;
}

PyObject *output_make(const output_recipe *recipe, PyObject *like)
{
    if (like) {
        static PyObject *empty_like;
        if (!empty_like) {
            PyObject *torch = imported("torch");
            empty_like = torch ? PyObject_GetAttrString(torch, "empty_like") : NULL;
            Py_XDECREF(torch);
            if (!empty_like) return NULL;
        }
        return PyObject_CallFunctionObjArgs(empty_like, like, NULL);
    }
    return PyObject_Call(recipe->function, recipe->arguments, recipe->keywords);
}

void output_forget(output_recipe *recipe)
{
    Py_CLEAR(recipe->function);
    Py_CLEAR(recipe->arguments);
    Py_CLEAR(recipe->keywords);
}

PyObject *output_bytes(const view *like, int64_t size_bytes)
{
    qn_array shape = {.type = QN_U8, .rank = 1, .extents = {size_bytes}, .strides = {1}};
    output_recipe recipe;
    if (!output_plan(like, &shape, &recipe)) return NULL;
    PyObject *made = output_make(&recipe, NULL);
    output_forget(&recipe);
    return made;
}
