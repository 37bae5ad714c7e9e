/*
 * New tensors for results, by the framework of the inputs: its own allocator, so that memory, streams and graphs stay its
 * business. A recipe (the function and its arguments) is made once for a prepared call; making a tensor from it is one
 * Python call. torch has a second, quicker function, which its own compiler uses; where that is missing, or gives
 * memory of another device than the inputs', the usual one is called.
 * SPDX-License-Identifier: MIT
 */
#include "python.h"

#include <string.h>

/* By element type, in the words of torch, which are JAX's too. */
static const char *const torch_names[] = {"float32", "float64", "float16", "bfloat16",     "int8",
                                          "int16",   "int32",   "int64",   "uint8",        "uint16",
                                          "uint32",  "uint64",  "bool",    "float8_e4m3fn"};
_Static_assert(sizeof(torch_names) / sizeof(*torch_names) == QN_F8E4M3 + 1, "a type has no name");

/* NumPy's are the same, but for what it has not: NULL. */
static const char *numpy_name(qn_dtype type)
{
    return type == QN_BF16 || type == QN_F8E4M3 ? NULL : torch_names[type];
}

static PyObject *tuple_of(const int64_t *numbers, int count)
{
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; tuple && i < count; i++) PyTuple_SetItem(tuple, i, PyLong_FromLongLong(numbers[i]));
    return tuple;
}

static bool plan(const char *module_name, const char *type, PyObject *device, const qn_array *shape, output_recipe *out)
{
    PyObject *module = PyImport_ImportModule(module_name), *element = NULL;
    if (!module) return false;
    out->function = PyObject_GetAttrString(module, "empty");
    element = PyObject_GetAttrString(module, type);
    PyObject *tuple = tuple_of(shape->extents, shape->rank);
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

/* torch._C._dynamo.guards._empty_strided_cuda(extents, strides, type), which inductor's text calls. */
static bool plan_quick(const view *like, const qn_array *shape, output_recipe *out)
{
    const char *name = like->device_type == DEVICE_CUDA ? "_empty_strided_cuda" : "_empty_strided_cpu";
    PyObject *core = imported("torch._C._dynamo.guards"), *torch = imported("torch");
    out->quick = core ? PyObject_GetAttrString(core, name) : NULL;
    PyErr_Clear();
    if (out->quick) {
        PyObject *type = PyObject_GetAttrString(torch, torch_names[shape->type]);
        PyObject *extents = tuple_of(shape->extents, shape->rank), *strides = tuple_of(shape->strides, shape->rank);
        if (type && extents && strides) out->quick_arguments = PyTuple_Pack(3, extents, strides, type);
        Py_XDECREF(type);
        Py_XDECREF(extents);
        Py_XDECREF(strides);
    }
    Py_XDECREF(core);
    Py_XDECREF(torch);
    return !out->quick || out->quick_arguments;
}

/* The usual function makes row-major memory: axes in another order are a call of torch.empty_strided. */
static bool plan_turned(const view *like, const qn_array *shape, output_recipe *out)
{
    PyObject *strides = tuple_of(shape->strides, shape->rank), *both = NULL;
    PyObject *torch = PyImport_ImportModule("torch");
    Py_XDECREF(out->function);
    out->function = torch ? PyObject_GetAttrString(torch, "empty_strided") : NULL;
    if (strides) both = PyTuple_Pack(2, PyTuple_GetItem(out->arguments, 0), strides);
    Py_XDECREF(out->arguments);
    out->arguments = both;
    Py_XDECREF(strides);
    Py_XDECREF(torch);
    (void)like;
    return out->function && out->arguments;
}

bool output_plan(const view *like, const qn_array *shape, const turned_axis *turn, output_recipe *out)
{
    *out = (output_recipe){.shape = *shape, .device_id = like->device_id};
    bool good = false;
    if (like->facts->family == FAMILY_TORCH) {
        qn_array seen = *shape;
        for (int i = 0; turn && i < shape->rank; i++) {
            seen.extents[i] = shape->extents[turn[i].axis];
            bool is_promised = turn[i].stride >= 0 && seen.extents[i] == 1;
            seen.strides[i] = is_promised ? turn[i].stride : shape->strides[turn[i].axis];
        }
        PyObject *device = PyObject_GetAttrString(like->object, "device");
        good = device && plan("torch", torch_names[shape->type], device, &seen, out) && plan_quick(like, &seen, out) &&
               (!turn || plan_turned(like, &seen, out));
        Py_XDECREF(device);
    } else if (like->facts->family == FAMILY_JAX) {
        PyObject *device = PyObject_GetAttrString(like->object, "device");
        good = device && plan("jax.numpy", torch_names[shape->type], device, shape, out);
        Py_XDECREF(device);
    } else if (like->device_type == DEVICE_CUDA) {
        PyObject *cupy = imported("cupy");
        if (cupy && numpy_name(shape->type))
            good = plan("cupy", numpy_name(shape->type), NULL, shape, out);
        else
            PyErr_SetString(PyExc_TypeError,
                            "results cannot be allocated for arrays of this library: give them with out=");
        Py_XDECREF(cupy);
    } else if (!numpy_name(shape->type)) {
        PyErr_Format(PyExc_TypeError, "NumPy has no %s: give the result with out=, or use torch tensors",
                     qn_dtype_name(shape->type));
    } else {
        PyObject *numpy = PyImport_ImportModule("numpy");
        PyErr_Clear();
        good = plan(numpy ? "numpy" : "quern._plain", numpy_name(shape->type), NULL, shape, out);
        Py_XDECREF(numpy);
    }
    if (!good) output_forget(out);
    return good;
}

static bool memory_of(PyObject *made, const output_recipe *recipe, view *v)
{
    if (!view_plain(made, v)) return false;
    if (v->type != recipe->shape.type) {
        PyErr_Format(PyExc_TypeError, "a result of %s is wanted, and the library of the arguments made one of %s%s",
                     qn_dtype_name(recipe->shape.type), qn_dtype_name(v->type),
                     v->facts->family == FAMILY_JAX ? ": jax.config.update(\"jax_enable_x64\", True) gives it 64 bits"
                                                    : "");
        view_release(v);
        return false;
    }
    v->rank = recipe->shape.rank;
    memcpy(v->extents, recipe->shape.extents, sizeof(*v->extents) * (size_t)v->rank);
    memcpy(v->strides, recipe->shape.strides, sizeof(*v->strides) * (size_t)v->rank);
    return true;
}

PyObject *output_make(const output_recipe *recipe, view *v)
{
    for (int quick = recipe->quick != NULL; quick >= 0; quick--) {
        PyObject *made = quick ? PyObject_Call(recipe->quick, recipe->quick_arguments, NULL)
                               : PyObject_Call(recipe->function, recipe->arguments, recipe->keywords);
        if (made && memory_of(made, recipe, v) && (!quick || v->device_id == recipe->device_id)) return made;
        Py_XDECREF(made);
        if (!quick || (!made && !PyErr_ExceptionMatches(PyExc_TypeError)))
            break; /* no memory is no reason to try again */
        PyErr_Clear();
    }
    return NULL;
}

void output_forget(output_recipe *recipe)
{
    Py_CLEAR(recipe->function);
    Py_CLEAR(recipe->arguments);
    Py_CLEAR(recipe->keywords);
    Py_CLEAR(recipe->quick);
    Py_CLEAR(recipe->quick_arguments);
}

PyObject *output_bytes(const view *like, int64_t size_bytes, view *v)
{
    qn_array shape = {.type = QN_U8, .rank = 1, .extents = {size_bytes}, .strides = {1}};
    output_recipe recipe;
    if (!output_plan(like, &shape, NULL, &recipe)) return NULL;
    PyObject *made = output_make(&recipe, v);
    output_forget(&recipe);
    return made;
}
