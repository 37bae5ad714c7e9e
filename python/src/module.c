/*
 * The module `_quern`: exceptions, the one context of the process (opened at the first use, never closed: tensors of other
 * libraries outlive everything), and the type `Module`, a loaded .qn file, text, or CUDA text.
 * SPDX-License-Identifier: MIT
 */
#include "python.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

PyObject *error_type, *call_error, *source_error, *device_error, *finding_error;
static PyObject *memory_error, *module_type;
static qn_context *context;
int fork_count;
static const char *host;

/* Lines of `print` statements and of QUERN_LOG. The thread may be any. */
static void print_line(void *user, const char *line)
{
    (void)user;
    if (strstr(line, "has raw kernels") && strstr(line, "<c ")) return; /* of quern.c, which says so itself */
    fprintf(stderr, "%s\n", line);
}

static void after_fork(void)
{
    fork_count++;
    context = NULL; /* its threads are not here; its memory is left alone */
    host = NULL;
}

qn_context *the_context(void)
{
    qn_error error;
    qn_context_options options = {.allow_raw = true, .print = print_line};
    if (!context && qn_context_open(&options, &context, &error) != QN_OK) raise_error(&error);
    return context;
}

const char *host_device(void)
{
    qn_device_info info;
    qn_error error;
    if (host || !the_context()) return host;
    bool compiles = qn_device_find(context, "cpu", &info, &error) == QN_OK && info.available;
    if (!compiles)
        PyErr_WarnFormat(PyExc_RuntimeWarning, 1,
                         "the device cpu cannot be used: %s; host arrays go through the interpreter, which is slow",
                         info.description);
    if (PyErr_Occurred()) return NULL;
    return host = compiles ? "cpu" : "ref";
}

PyObject *raise_error(const qn_error *error)
{
    PyObject *types[] = {[QN_OK] = error_type,           [QN_FINDING] = finding_error, [QN_BAD_CALL] = call_error,
                         [QN_BAD_SOURCE] = source_error, [QN_BAD_FILE] = error_type,   [QN_NO_DEVICE] = device_error,
                         [QN_NO_MEMORY] = memory_error,  [QN_FAILED] = error_type};
    size_t length = strlen(error->message);
    while (length && error->message[length - 1] == '\n') length--;
    PyObject *words = PyUnicode_DecodeUTF8(error->message, (Py_ssize_t)length, "replace");
    if (words) PyErr_SetObject(types[error->status], words);
    Py_XDECREF(words);
    return NULL;
}

PyObject *imported(const char *name)
{
    PyObject *words = PyUnicode_FromString(name), *found = words ? PyImport_GetModule(words) : NULL;
    Py_XDECREF(words);
    if (!found) PyErr_Clear();
    return found;
}

/* ---- modules ---- */

typedef struct module_object {
    PyObject_HEAD qn_module *module;
    PyObject *source; /* the arguments of `load` or `cuda` that it was made by */
    bool is_text;
    int fork_count;
} module_object;

static PyObject *module_new(qn_module *module, bool is_text, PyObject *source)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot((PyTypeObject *)module_type, Py_tp_alloc);
    module_object *m = (module_object *)allocate((PyTypeObject *)module_type, 0);
    if (!m) {
        qn_module_free(module);
        return NULL;
    }
    m->module = module;
    m->source = Py_NewRef(source);
    m->is_text = is_text;
    m->fork_count = fork_count;
    return (PyObject *)m;
}

static void module_free(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    module_object *m = (module_object *)self;
    if (m->fork_count == fork_count) qn_module_free(m->module);
    Py_XDECREF(m->source);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyObject *module_names(PyObject *self, PyObject *none)
{
    const qn_module *m = ((module_object *)self)->module;
    (void)none;
    PyObject *list = PyList_New(0);
    for (int i = 0; list && i < qn_module_kernel_count(m); i++) {
        PyObject *name = PyUnicode_FromString(qn_module_kernel_name(m, i));
        if (!name || PyList_Append(list, name)) Py_CLEAR(list);
        Py_XDECREF(name);
    }
    return list;
}

static PyObject *module_callable(PyObject *self, PyObject *name)
{
    module_object *m = (module_object *)self;
    const char *words = PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    if (!words) return PyErr_Format(PyExc_TypeError, "a name is wanted");
    if (!module_here(self)) return NULL;
    qn_error error;
    qn_call *call = NULL; /* an unknown name, or an instance of a template that does not compile, is told here */
    if (qn_call_new(m->module, words, &call, &error) != QN_OK) return raise_error(&error);
    qn_call_free(call);
    return callable_new(self, m->module, words, m->is_text);
}

static PyObject *module_warnings(PyObject *self, PyObject *none)
{
    (void)none;
    return PyUnicode_FromString(qn_module_warnings(((module_object *)self)->module));
}

static PyMethodDef module_methods[] = {{"names", module_names, METH_NOARGS, "names(): kernels and tensor functions"},
                                       {"callable", module_callable, METH_O, "callable(name)"},
                                       {"warnings", module_warnings, METH_NOARGS, "warnings(): diagnostics, or empty"},
                                       {0}};
static PyType_Slot module_slots[] = {{Py_tp_dealloc, module_free}, {Py_tp_methods, module_methods}, {0, NULL}};
static PyType_Spec module_spec = {"_quern.Module", sizeof(module_object), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, module_slots};

/* load(name, text): a module from text; name is its file in messages. */
static PyObject *load(PyObject *self, PyObject *args)
{
    const char *name, *text;
    qn_module *module = NULL;
    qn_error error;
    qn_status status;
    (void)self;
    if (!PyArg_ParseTuple(args, "ss", &name, &text) || !the_context()) return NULL;
    Py_BEGIN_ALLOW_THREADS status = qn_module_load_text(context, name, text, &module, &error);
    Py_END_ALLOW_THREADS return status == QN_OK ? module_new(module, false, args) : raise_error(&error);
}

typedef struct cuda_request {
    const char *text, *flags[64];
    qn_cuda_options options;
    PyObject *held; /* the arguments, which have the words */
    qn_module *module;
} cuda_request;

static qn_status compile_cuda(void *user, qn_error *error)
{
    cuda_request *r = user;
    return qn_compile_cuda(context, r->text, &r->options, &r->module, error);
}

static void cuda_request_free(void *user)
{
    cuda_request *r = user;
    qn_module_free(r->module);
    Py_XDECREF(r->held);
    free(r);
}

/* cuda(name, text, flags): a module of CUDA text. */
static PyObject *cuda(PyObject *self, PyObject *args)
{
    PyObject *list;
    (void)self;
    if (!the_context()) return NULL;
    cuda_request *r = calloc(1, sizeof(*r));
    if (!r) return PyErr_NoMemory();
    r->held = Py_NewRef(args);
    r->options.flags = r->flags;
    bool good = PyArg_ParseTuple(args, "ssO", &r->options.name, &r->text, &list);
    for (Py_ssize_t i = 0; good && i < PySequence_Size(list) && i < 64; i++) {
        PyObject *each = PySequence_GetItem(list, i);
        r->flags[i] = each ? PyUnicode_AsUTF8AndSize(each, NULL) : NULL;
        Py_XDECREF(each); /* the list keeps it */
        good = r->flags[i] != NULL;
        r->options.flag_count = (int)i + 1;
    }
    if (!good) {
        cuda_request_free(r);
        return NULL;
    }
    if (!job_run(r->options.name, compile_cuda, r, cuda_request_free)) return NULL;
    PyObject *made = module_new(r->module, true, args);
    r->module = NULL;
    cuda_request_free(r);
    return made;
}

qn_module *module_here(PyObject *owner)
{
    module_object *m = (module_object *)owner;
    if (m->fork_count == fork_count) return m->module;
    PyObject *made = m->is_text ? cuda(NULL, m->source) : load(NULL, m->source);
    if (!made) return NULL;
    m->module = ((module_object *)made)->module;
    m->fork_count = fork_count;
    ((module_object *)made)->module = NULL;
    Py_DECREF(made);
    return m->module;
}

static PyObject *devices(PyObject *self, PyObject *none)
{
    (void)self, (void)none;
    if (!the_context()) return NULL;
    PyObject *list = PyList_New(0);
    int count;
    Py_BEGIN_ALLOW_THREADS count = qn_device_count(context);
    Py_END_ALLOW_THREADS for (int i = 0; list && i < count; i++)
    {
        qn_device_info info;
        qn_device_get(context, i, &info);
        PyObject *each = Py_BuildValue("(sOs)", info.name, info.available ? Py_True : Py_False, info.description);
        if (!each || PyList_Append(list, each)) Py_CLEAR(list);
        Py_XDECREF(each);
    }
    return list;
}

static PyObject *knows_bits(PyObject *self, PyObject *none)
{
    (void)self, (void)none;
    return PyBool_FromLong(tensor_bits_are_found());
}

static PyObject *reads_tensors(PyObject *self, PyObject *none)
{
    (void)self, (void)none;
    return PyBool_FromLong(tensors_are_read());
}

static PyMethodDef functions[] = {
    {"load", load, METH_VARARGS, "load(name, text) -> Module"},
    {"cuda", cuda, METH_VARARGS, "cuda(name, text, flags) -> Module"},
    {"forward", (PyCFunction)(void (*)(void))callable_forward, METH_FASTCALL,
     "forward(ctx, (callable, keywords, ...), *args): of an autograd.Function"},
    {"outline", (PyCFunction)(void (*)(void))outline_of, METH_FASTCALL, "outline(args, keywords) -> bytes"},
    {"knows_bits", knows_bits, METH_NOARGS, "knows_bits(): whether torch tensors' bits are read without asking"},
    {"reads_tensors", reads_tensors, METH_NOARGS,
     "reads_tensors(): whether torch tensors are read without its exchange"},
    {"devices", devices, METH_NOARGS, "devices(): (name, available, description) of each"},
    {0}};

static PyObject *new_error(PyObject *module, const char *name, PyObject *base, PyObject *other)
{
    char full[64];
    snprintf(full, sizeof(full), "quern.%s", name);
    PyObject *bases = other ? PyTuple_Pack(2, base, other) : Py_NewRef(base);
    PyObject *made = bases ? PyErr_NewException(full, bases, NULL) : NULL;
    Py_XDECREF(bases);
    if (made) PyModule_AddObjectRef(module, name, made);
    return made;
}

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_quern", "Quern's C extension.", -1, functions, NULL, NULL, NULL, NULL};

__attribute__((visibility("default"))) PyMODINIT_FUNC PyInit__quern(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (!module) return NULL;
    pthread_atfork(NULL, NULL, after_fork);
    error_type = new_error(module, "Error", PyExc_RuntimeError, NULL);
    if (!error_type) return NULL;
    call_error = new_error(module, "CallError", error_type, PyExc_ValueError);
    source_error = new_error(module, "SourceError", error_type, PyExc_ValueError);
    device_error = new_error(module, "DeviceError", error_type, NULL);
    finding_error = new_error(module, "Finding", error_type, NULL);
    memory_error = new_error(module, "MemoryError", error_type, PyExc_MemoryError);
    module_type = PyType_FromSpec(&module_spec);
    if (PyErr_Occurred() || !module_type || !callable_open(module) || !direct_open(module) || !profile_open(module) ||
        PyModule_AddObjectRef(module, "Module", module_type) || PyModule_AddFunctions(module, workbench_methods) ||
        PyModule_AddStringConstant(module, "version", QN_VERSION)) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
