/*
 * Python objects as views of memory. In: an object and the name of its argument. Out: address, type, extents, strides,
 * device. Three ways, cheapest first: the C exchange table of the object's type (kept by type: the lookup happens once),
 * the buffer protocol, `__dlpack__`. Nothing is copied; what is borrowed lives as long as the object, everything else is
 * given back by view_release.
 *
 * What the exchange does not check is checked here: negative bits, subclasses (fake tensors among them), gradients,
 * element types and ranks that Quern has not, memory that must not be written.
 * SPDX-License-Identifier: MIT
 */
#include "python.h"

#include <string.h>

enum { MOST_TYPES = 64 };
static type_facts types[MOST_TYPES];
static int type_count;

static PyCFunction is_grad_enabled;

/* ---- types ---- */

static const dlpack_exchange *exchange_of(PyObject *type)
{
    PyObject *capsule = PyObject_GetAttrString(type, "__dlpack_c_exchange_api__");
    if (!capsule) {
        PyErr_Clear();
        return NULL;
    }
    const dlpack_header *at = NULL;
    if (PyCapsule_IsValid(capsule, "dlpack_exchange_api")) at = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    Py_DECREF(capsule); /* the table lives as long as the process */
    while (at && at->version.major != DLPACK_MAJOR) at = at->previous;
    return (const dlpack_exchange *)at;
}

static bool is_torch(PyObject *type, bool *exact)
{
    PyObject *torch = imported("torch"), *tensor = torch ? PyObject_GetAttrString(torch, "Tensor") : NULL;
    PyObject *nn = imported("torch.nn"), *parameter = nn ? PyObject_GetAttrString(nn, "Parameter") : NULL;
    bool is = tensor && PyObject_IsSubclass(type, tensor) == 1;
    *exact = type == tensor || (parameter && type == parameter);
    PyErr_Clear();
    Py_XDECREF(torch);
    Py_XDECREF(tensor);
    Py_XDECREF(nn);
    Py_XDECREF(parameter);
    return is;
}

/* Is it one of a library that somebody imported? */
static bool is_instance(PyObject *object, const char *module, const char *class_name)
{
    PyObject *found = imported(module), *type = found ? PyObject_GetAttrString(found, class_name) : NULL;
    bool is = type && PyObject_IsInstance(object, type) == 1;
    PyErr_Clear();
    Py_XDECREF(found);
    Py_XDECREF(type);
    return is;
}

const type_facts *type_facts_of(PyObject *object)
{
    PyObject *type = (PyObject *)Py_TYPE(object);
    for (int i = 0; i < type_count; i++)
        if (types[i].type == type) return &types[i];
    bool exact = false;
    type_facts f = {.type = type, .exchange = exchange_of(type)};
    if (is_torch(type, &exact))
        f.family = exact ? FAMILY_TORCH : FAMILY_REFUSED;
    else if (f.exchange)
        f.family = FAMILY_TABLE;
    else if (is_instance(object, "cupy", "ndarray"))
        f.family = FAMILY_CUPY;
    else if (is_instance(object, "jax", "Array"))
        f.family = FAMILY_JAX;
    else if (PyObject_CheckBuffer(object))
        f.family = FAMILY_NUMPY;
    else if (PyObject_HasAttrString(object, "__dlpack__"))
        f.family = FAMILY_DLPACK;
    if (PyBytes_Check(object) || PyLong_Check(object) || PyFloat_Check(object)) f.family = FAMILY_NONE;
    if (type_count == MOST_TYPES)
        type_count--; /* the last place is for all that come late */
    else
        Py_INCREF(type);
    types[type_count] = f;
    return &types[type_count++];
}

/* ---- element types ---- */

static bool type_from_code(int code, int bits, qn_dtype *out)
{
    static const struct {
        uint8_t code, bits;
        qn_dtype type;
    } known[] = {{CODE_FLOAT, 32, QN_F32},   {CODE_FLOAT, 64, QN_F64},   {CODE_FLOAT, 16, QN_F16},
                 {CODE_BFLOAT, 16, QN_BF16}, {CODE_INT, 8, QN_I8},       {CODE_INT, 16, QN_I16},
                 {CODE_INT, 32, QN_I32},     {CODE_INT, 64, QN_I64},     {CODE_UINT, 8, QN_U8},
                 {CODE_UINT, 16, QN_U16},    {CODE_UINT, 32, QN_U32},    {CODE_UINT, 64, QN_U64},
                 {CODE_BOOL, 8, QN_BOOL},    {CODE_F8E4M3, 8, QN_F8E4M3}};
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
        if (known[i].code == code && known[i].bits == bits) {
            *out = known[i].type;
            return true;
        }
    return false;
}

static bool type_from_format(const char *format, Py_ssize_t size_bytes, qn_dtype *out)
{
    const char *at = format ? format : "B";
    if (*at == '@' || *at == '=' || *at == '<') at++;
    if (strlen(at) != 1) return false;
    if (*at == '?') return type_from_code(CODE_BOOL, 8, out);
    int code = strchr("efd", *at)     ? CODE_FLOAT
               : strchr("bhilq", *at) ? CODE_INT
               : strchr("BHILQ", *at) ? CODE_UINT
                                      : -1;
    return code >= 0 && type_from_code(code, (int)size_bytes * 8, out);
}

bool dtype_from_object(PyObject *object, qn_dtype *type)
{
    static const struct {
        const char *name;
        qn_dtype type;
    } names[] = {{"float32", QN_F32}, {"float64", QN_F64}, {"float16", QN_F16}, {"bfloat16", QN_BF16},
                 {"half", QN_F16},    {"int8", QN_I8},     {"int16", QN_I16},   {"int32", QN_I32},
                 {"int64", QN_I64},   {"long", QN_I64},    {"uint8", QN_U8},    {"uint16", QN_U16},
                 {"uint32", QN_U32},  {"uint64", QN_U64},  {"bool", QN_BOOL},   {"float8_e4m3fn", QN_F8E4M3}};
    PyObject *words = PyType_Check(object) ? PyObject_GetAttrString(object, "__name__") : PyObject_Str(object);
    const char *text = words ? PyUnicode_AsUTF8AndSize(words, NULL) : NULL;
    bool good = false;
    if (text) {
        const char *dot = strrchr(text, '.');
        if (dot) text = dot + 1;
        good = qn_dtype_from_name(text, type);
        for (size_t i = 0; i < sizeof(names) / sizeof(*names) && !good; i++)
            if (!strcmp(names[i].name, text)) {
                *type = names[i].type;
                good = true;
            }
    }
    PyErr_Clear();
    Py_XDECREF(words);
    return good;
}

/* ---- views ---- */

static bool refuse(PyObject *kind, const char *name, const char *words)
{
    PyErr_Format(kind, "argument `%s`: %s", name, words);
    return false;
}

/* What its library said of an object without memory, in one line that names the argument; other exceptions stay. */
static bool name_failure(const char *name)
{
    PyObject *type, *value, *trace;
    if (!PyErr_ExceptionMatches(PyExc_RuntimeError)) return false;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *words = value ? PyObject_Str(value) : NULL, *lines = words ? PyUnicode_Splitlines(words, 0) : NULL;
    PyErr_Clear();
    if (lines && PyList_Size(lines) > 0)
        PyErr_Format(PyExc_TypeError, "argument `%s`: its memory cannot be read: %U", name, PyList_GetItem(lines, 0));
    else
        PyErr_Format(PyExc_TypeError, "argument `%s`: its memory cannot be read", name);
    Py_XDECREF(lines);
    Py_XDECREF(words);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return false;
}

static bool take(const dlpack_tensor *t, const char *name, view *out)
{
    if (t->type.lanes != 1 || !type_from_code(t->type.code, t->type.bits, &out->type)) {
        static const char *const others[] = {
            [CODE_COMPLEX] = "complex", [7] = "float8_e3m4",  [8] = "float8_e4m3",      [9] = "float8_e4m3b11fnuz",
            [11] = "float8_e4m3fnuz",   [12] = "float8_e5m2", [13] = "float8_e5m2fnuz", [14] = "float8_e8m0fnu"};
        const char *word = t->type.code < sizeof(others) / sizeof(*others) ? others[t->type.code] : NULL;
        PyErr_Format(
            PyExc_TypeError,
            "argument `%s`: Quern has no element type like this one (%s%sDLPack code %d, %d bits); it has f32, "
            "f64, f16, bf16, f8e4m3 (float8_e4m3fn), integers of 8 to 64 bits and bool: convert it first",
            name, word ? word : "", word ? ", " : "", t->type.code, t->type.bits * t->type.lanes);
        return false;
    }
    if (t->rank > QN_MAX_RANK || t->rank < 0) {
        PyErr_Format(PyExc_ValueError, "argument `%s` has %d axes; at most %d are possible", name, t->rank,
                     QN_MAX_RANK);
        return false;
    }
    if (t->rank && !t->extents) return refuse(PyExc_ValueError, name, "its DLPack tensor has no shape");
    int64_t count = 1;
    for (int i = 0; i < t->rank; i++)
        if (t->extents[i] < 0 || __builtin_mul_overflow(count, t->extents[i] > 1 ? t->extents[i] : 1, &count))
            return refuse(PyExc_ValueError, name, "the shape of its DLPack tensor is none");
    for (int i = 0; i < t->rank; i++) count = t->extents[i] ? count : 0;
    if (count && !t->data) return refuse(PyExc_ValueError, name, "its DLPack tensor has no memory");
    out->data = t->data ? (char *)t->data + t->offset_bytes : NULL;
    out->rank = t->rank;
    out->device_type = t->device_type;
    out->device_id = t->device_id;
    if (out->device_type == DEVICE_CUDA_MANAGED) out->device_type = DEVICE_CUDA;
    if (out->device_type == DEVICE_CUDA_HOST) out->device_type = DEVICE_HOST, out->device_id = 0;
    int64_t step = 1;
    for (int i = t->rank - 1; i >= 0; i--) {
        out->extents[i] = t->extents[i];
        out->strides[i] = t->strides ? t->strides[i] : step;
        step *= t->extents[i] > 1 ? t->extents[i] : 1;
    }
    if (out->device_type == DEVICE_HOST || out->device_type == DEVICE_CUDA) return true;
    PyErr_Format(PyExc_TypeError,
                 "argument `%s` is on a device (DLPack type %d) that Quern does not know; it knows the host and CUDA",
                 name, out->device_type);
    return false;
}

/* A function or bound method without arguments: the C function behind it. */
static PyCFunction function_behind(PyObject *object, const char *name)
{
    PyObject *bound = object ? PyObject_GetAttrString(object, name) : NULL;
    PyCFunction found = NULL;
    if (bound && PyCFunction_CheckExact(bound) && PyCFunction_GetFlags(bound) == METH_NOARGS)
        found = PyCFunction_GetFunction(bound);
    if (bound && !found) PyErr_Format(PyExc_TypeError, "torch's %s is not what it was", name);
    Py_XDECREF(bound);
    return found;
}

static bool take_buffer(PyObject *object, const char *name, bool writable, view *out)
{
    if (PyObject_GetBuffer(object, &out->buffer, PyBUF_STRIDES | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0))) {
        PyErr_Clear();
        if (!writable || PyObject_GetBuffer(object, &out->buffer, PyBUF_STRIDES | PyBUF_FORMAT))
            return PyErr_Clear(), refuse(PyExc_TypeError, name, "its memory cannot be had by the buffer protocol");
        PyBuffer_Release(&out->buffer);
        return refuse(PyExc_ValueError, name, "it is read-only, and would be written");
    }
    out->has_buffer = true;
    const Py_buffer *b = &out->buffer;
    if (!type_from_format(b->format, b->itemsize, &out->type)) {
        PyErr_Format(PyExc_TypeError,
                     "argument `%s`: Quern has no element type like this one (buffer format `%s`); it has f32, f64, "
                     "f16, integers "
                     "of 8 to 64 bits and bool, in the machine's byte order: convert it first",
                     name, b->format ? b->format : "B");
        return false;
    }
    if (b->ndim > QN_MAX_RANK) {
        PyErr_Format(PyExc_ValueError, "argument `%s` has %d axes; at most %d are possible", name, b->ndim,
                     QN_MAX_RANK);
        return false;
    }
    out->data = b->buf;
    out->rank = b->ndim;
    out->device_type = DEVICE_HOST;
    out->read_only = b->readonly;
    for (int i = 0; i < b->ndim; i++) {
        out->extents[i] = b->shape[i];
        out->strides[i] = b->shape[i] > 1 ? b->strides[i] / b->itemsize : 1;
        if (b->shape[i] > 1 && b->strides[i] % b->itemsize)
            return refuse(PyExc_ValueError, name, "its strides are no multiples of its element size; copy it first");
    }
    return true;
}

/* `__dlpack__` of an object of any library. On CUDA its work is ordered before the legacy default stream, unless we work on
 * its own. */
static bool take_dlpack(PyObject *object, const char *name, bool writable, view *out)
{
    enum { LEGACY_STREAM = 1, NO_ORDER = -1 };
    long wanted_stream = out->facts->family == FAMILY_CUPY ? NO_ORDER : LEGACY_STREAM;
    PyObject *device = PyObject_CallMethod(object, "__dlpack_device__", NULL);
    long kind = DEVICE_HOST;
    if (device && PyTuple_Check(device)) kind = PyLong_AsLong(PyTuple_GetItem(device, 0));
    Py_XDECREF(device);
    PyErr_Clear();
    PyObject *method = PyObject_GetAttrString(object, "__dlpack__"), *none = PyTuple_New(0), *keywords = PyDict_New();
    PyObject *capsule = NULL, *version = Py_BuildValue("(ii)", DLPACK_MAJOR, 0),
             *stream = PyLong_FromLong(wanted_stream);
    if (method && none && keywords && version && stream) {
        PyDict_SetItemString(keywords, "max_version", version);
        if (kind == DEVICE_CUDA) PyDict_SetItemString(keywords, "stream", stream);
        capsule = PyObject_Call(method, none, keywords);
        if (!capsule && PyErr_ExceptionMatches(PyExc_TypeError)) { /* older than DLPack 1.0 */
            PyErr_Clear();
            PyDict_DelItemString(keywords, "max_version");
            capsule = PyObject_Call(method, none, keywords);
        }
    }
    Py_XDECREF(method);
    Py_XDECREF(none);
    Py_XDECREF(keywords);
    Py_XDECREF(version);
    Py_XDECREF(stream);
    if (!capsule) return false;
    bool good = false;
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        out->versioned = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        PyCapsule_SetName(capsule, "used_dltensor_versioned");
        if (out->versioned->version.major != DLPACK_MAJOR) { /* all but the deleter may lie elsewhere */
            refuse(PyExc_ValueError, name, "its capsule is of another major version of DLPack");
        } else {
            out->read_only = out->versioned->flags & DLPACK_READ_ONLY;
            good = take(&out->versioned->tensor, name, out);
        }
    } else if (PyCapsule_IsValid(capsule, "dltensor")) {
        out->managed = PyCapsule_GetPointer(capsule, "dltensor");
        PyCapsule_SetName(capsule, "used_dltensor");
        good = take(&out->managed->tensor, name, out);
    } else {
        refuse(PyExc_TypeError, name, "its __dlpack__ gives no DLPack capsule");
    }
    Py_DECREF(capsule);
    if (good && writable && out->read_only)
        return refuse(PyExc_ValueError, name, "it is read-only, and would be written");
    return good;
}

/* By the table of its type. */
static bool take_table(const type_facts *f, PyObject *object, const char *name, unsigned flags, view *out)
{
    dlpack_tensor t;
    if (!f->exchange || !f->exchange->borrow) return take_dlpack(object, name, flags & VIEW_WRITABLE, out);
    if (f->exchange->borrow(object, &t)) return name_failure(name);
    return take(&t, name, out);
}

/* A tensor of torch's own type that tensor_read has not met yet. */
static bool take_torch(const type_facts *f, PyObject *object, const char *name, unsigned flags, view *out)
{
    bool is_negative;
    out->wants_grad = false; /* whatever reading tried */
    out->device_id = 0;
    if (!take_table(f, object, name, flags, out)) return false;
    if (!(flags & VIEW_TRUSTED) && dtype_is_float(out->type)) { /* only floats have bits and gradients */
        if (!tensor_bits(object, flags & VIEW_GRAD, &is_negative, &out->wants_grad)) return false;
        if (is_negative)
            return refuse(
                PyExc_TypeError, name,
                "a tensor with its negative bit set (such as the imaginary part of a conjugate): its memory has the "
                "other sign; call .resolve_neg() first");
    }
    tensor_learn(object, out);
    return true;
}

/* A subclass of torch.Tensor that torch's compiler has looked through: its memory is a tensor's. */
static bool take_subclass(const type_facts *f, PyObject *object, const char *name, unsigned flags, view *out)
{
    static type_facts as_tensor; /* one for all: they have one table */
    as_tensor = (type_facts){.type = f->type, .family = FAMILY_TORCH, .exchange = f->exchange};
    out->facts = &as_tensor;
    return take_table(&as_tensor, object, name, flags, out);
}

/* Why a subclass of torch.Tensor is not taken. */
static bool refuse_subclass(PyObject *object, const char *name)
{
    PyObject *words = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__name__");
    const char *type = words ? PyUnicode_AsUTF8AndSize(words, NULL) : "?";
    if (type && (strstr(type, "Fake") || strstr(type, "Functional")))
        PyErr_Format(
            PyExc_TypeError,
            "argument `%s` is a %s, which has no memory: PyTorch is tracing; under torch.compile call the function "
            "itself, `q.f(x)`, which traces as an operator",
            name, type);
    else
        PyErr_Format(PyExc_TypeError,
                     "argument `%s` is a %s, a subclass of torch.Tensor whose memory may mean anything; give "
                     "x.as_subclass(torch.Tensor) if it means what it says",
                     name, type ? type : "?");
    Py_XDECREF(words);
    return false;
}

/* Without touching what the rest fills. */
static void view_clear(view *v, const type_facts *f, PyObject *object)
{
    v->facts = f;
    v->object = object;
    v->read_only = v->wants_grad = v->has_buffer = false;
    v->device_id = 0;
    v->versioned = NULL;
    v->managed = NULL;
}

bool view_get(PyObject *object, const char *name, unsigned flags, view *out)
{
    bool writable = flags & VIEW_WRITABLE;
    const type_facts *f = type_facts_of(object);
    view_clear(out, f, object);
    bool good = false;
    switch (f->family) {
    case FAMILY_TORCH:
        good = tensor_read(object, flags & VIEW_GRAD, out) || take_torch(f, object, name, flags, out);
        break;
    case FAMILY_TABLE: good = take_table(f, object, name, flags, out); break;
    case FAMILY_NUMPY: good = take_buffer(object, name, writable, out); break;
    case FAMILY_JAX:
        good = writable ? refuse(PyExc_TypeError, name,
                                 "JAX's arrays cannot be changed: leave it out, and a new one is given")
                        : take_dlpack(object, name, false, out);
        break;
    case FAMILY_CUPY:
    case FAMILY_DLPACK: good = take_dlpack(object, name, writable, out); break;
    case FAMILY_REFUSED:
        good = flags & VIEW_TRUSTED ? take_subclass(f, object, name, flags, out) : refuse_subclass(object, name);
        break;
    default: {
        PyObject *words = PyObject_GetAttrString((PyObject *)f->type, "__name__");
        PyErr_Format(PyExc_TypeError, "argument `%s` must be a tensor or an array, not %U", name,
                     words ? words : object);
        Py_XDECREF(words);
    }
    }
    if (good) return true;
    if (!PyErr_Occurred()) refuse(PyExc_TypeError, name, "its memory cannot be had");
    view_release(out);
    return false;
}

bool view_plain(PyObject *object, view *out)
{
    const type_facts *f = type_facts_of(object);
    dlpack_tensor t;
    if (!f->exchange || !f->exchange->borrow) return view_get(object, "out", 0, out);
    view_clear(out, f, object);
    if (f->family == FAMILY_TORCH && tensor_read(object, false, out)) return true;
    return f->exchange->borrow(object, &t) == 0 && take(&t, "out", out);
}

void view_release(view *v)
{
    if (v->has_buffer) PyBuffer_Release(&v->buffer);
    if (v->versioned && v->versioned->deleter) v->versioned->deleter(v->versioned);
    if (v->managed && v->managed->deleter) v->managed->deleter(v->managed);
    v->has_buffer = false;
    v->versioned = NULL;
    v->managed = NULL;
}

/* cupy.cuda.get_current_stream().ptr */
static bool stream_of_cupy(void **stream)
{
    PyObject *cuda = imported("cupy.cuda"), *ptr = NULL;
    PyObject *current = cuda ? PyObject_CallMethod(cuda, "get_current_stream", NULL) : NULL;
    if (current) ptr = PyObject_GetAttrString(current, "ptr");
    if (ptr) *stream = PyLong_AsVoidPtr(ptr);
    Py_XDECREF(cuda);
    Py_XDECREF(current);
    Py_XDECREF(ptr);
    return !PyErr_Occurred();
}

bool view_stream(const view *v, void **stream, bool *waits)
{
    *stream = NULL; /* the legacy default stream, which is where __dlpack__ put its work in order */
    *waits = false;
    if (v->facts->family == FAMILY_CUPY) return stream_of_cupy(stream);
    if (!v->facts->exchange || !v->facts->exchange->current_stream) return *waits = true;
    if (v->facts->exchange->current_stream(DEVICE_CUDA, v->device_id, stream) == 0) return true;
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "the current CUDA stream cannot be had");
    return false;
}

bool view_same_device(const view *a, const view *b)
{
    return a->device_type == b->device_type && (a->device_type == DEVICE_HOST || a->device_id == b->device_id);
}

bool grad_is_enabled(void)
{
    if (!is_grad_enabled) {
        PyObject *torch = imported("torch");
        if (!torch) return false;
        is_grad_enabled = function_behind(torch, "is_grad_enabled");
        Py_DECREF(torch);
        PyErr_Clear();
        if (!is_grad_enabled) return true; /* asked for too often rather than never */
    }
    PyObject *answer = is_grad_enabled(NULL, NULL);
    bool on = answer == Py_True;
    Py_XDECREF(answer);
    PyErr_Clear();
    return on;
}

PyObject *module_value(const char *module, const char *name, module_place *place)
{
    if (!place->dictionary) {
        PyObject *found = imported(module);
        if (!found) return NULL;
        place->dictionary = PyModule_GetDict(found); /* of the module, which is kept with its reference */
        place->name = PyUnicode_InternFromString(name);
    }
    return place->name ? PyDict_GetItemWithError(place->dictionary, place->name) : NULL;
}

bool forward_mode_is_on(void)
{
    static module_place place;
    PyObject *level = module_value("torch.autograd.forward_ad", "_current_level", &place);
    long number = level ? PyLong_AsLong(level) : -1;
    if (number < 0) PyErr_Clear();
    return number >= 0;
}
