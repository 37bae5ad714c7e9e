/*
 * torch's own tensors, read with no Python in between. In: a tensor of torch's own type. Out: its memory as a view, whether
 * its negative bit is set, whether it requires grad. torch's exchange answers the first, for some 80 ns of which most is
 * the taking of the GIL and of references; Python's attributes answer the rest, for as much again. So torch is asked once
 * where it keeps things: `_cdata` is the address of a tensor's description and `torch._C._dispatch_keys` the word of bits in
 * it, and both are searched for in the memory of tensors made for it, with and without the bit. Everything else comes by
 * functions of torch's own libraries: those of its stable C interface, which are told a tensor by the place of that address,
 * and the one that `requires_grad` calls.
 *
 * What is found must be true of all of them and of the tensor at hand; a tensor is read here only if one with the same word
 * of bits (dense, on such a device) and one with the same element type were exchanged before and read the same. Anything
 * else, or a torch that has these no more, and exchange and attributes are asked at each call. Nothing is guessed, and nothing
 * written.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "python.h"

#include <dlfcn.h>
#include <string.h>

enum { WORDS_OF_OBJECT = 8, WORDS_OF_TENSOR = 24, SAMPLES = 4, MOST_KINDS = 8, MOST_TYPES = 64 };

typedef bool requires_grad_function(const void *tensor);
typedef int32_t question(const void *tensor, void *answer); /* of the stable C interface; 0: answered */

/* Functions of torch's stable C interface and the type of each answer; all or none are there. */
static struct {
    question *data;    /* void * */
    question *rank;    /* int64_t */
    question *extents; /* const int64_t * */
    question *strides; /* const int64_t * */
    question *type;    /* int32_t */
    question *device;  /* int32_t: its number among those of its kind */
} of_tensor;

/* Learnt from tensors that were exchanged: device types by words of bits, element types by torch's numbers. */
static struct {
    struct {
        uint64_t bits;
        int device_type;
    } kinds[MOST_KINDS];
    int kind_count;
    bool has_type[MOST_TYPES];
    qn_dtype types[MOST_TYPES];
} learnt;

static struct {
    bool is_known;
    bool has_questions; /* and tensors are read by them */
    int tries;
    int at, keys;      /* words: of the address in the object, of the bits behind it */
    uint64_t negative; /* the bit */
    requires_grad_function *requires_grad;
} found;

/* ---- asked at each call ---- */

static bool ask(PyObject *tensor, const char *name, bool is_method, bool *answer)
{
    PyObject *given = is_method ? PyObject_CallMethod(tensor, name, NULL) : PyObject_GetAttrString(tensor, name);
    if (!given) return false;
    *answer = given == Py_True;
    Py_DECREF(given);
    return true;
}

/* ---- found once ---- */

typedef struct sample {
    PyObject *tensor; /* owned */
    uint64_t address, bits;
} sample;

/* Takes the reference. */
static bool sample_make(PyObject *tensor, PyTypeObject *type, PyObject *keys_of, sample *out)
{
    if (!tensor) return false;
    out->tensor = tensor;
    if (Py_TYPE(tensor) != type) return false; /* somebody traces */
    PyObject *address = PyObject_GetAttrString(tensor, "_cdata");
    PyObject *keys = PyObject_CallFunctionObjArgs(keys_of, tensor, NULL);
    PyObject *bits = keys ? PyObject_CallMethod(keys, "raw_repr", NULL) : NULL;
    if (address) out->address = PyLong_AsUnsignedLongLong(address);
    if (bits) out->bits = PyLong_AsUnsignedLongLong(bits);
    Py_XDECREF(address);
    Py_XDECREF(keys);
    Py_XDECREF(bits);
    return !PyErr_Occurred() && out->address;
}

/* The one word that is right in all of them; -1: there are none or several. */
static int word_of(const sample *samples, bool of_tensor)
{
    int place = -1;
    for (int i = of_tensor ? 0 : 2; i < (of_tensor ? WORDS_OF_TENSOR : WORDS_OF_OBJECT); i++) {
        bool right = true;
        for (int k = 0; k < SAMPLES; k++) {
            const uint64_t *words = of_tensor ? (const uint64_t *)(uintptr_t)samples[k].address
                                              : (const uint64_t *)(const void *)samples[k].tensor;
            right &= words[i] == (of_tensor ? samples[k].bits : samples[k].address);
        }
        if (!right) continue;
        if (place >= 0) return -1;
        place = i;
    }
    return place;
}

static PyObject *call_named(PyObject *owner, const char *name, PyObject *keywords, PyObject *argument)
{
    PyObject *function = PyObject_GetAttrString(owner, name);
    PyObject *arguments = argument ? PyTuple_Pack(1, argument) : Py_BuildValue("((i))", 3);
    PyObject *made = function && arguments ? PyObject_Call(function, arguments, keywords) : NULL;
    Py_XDECREF(function);
    Py_XDECREF(arguments);
    return made;
}

/* A function of a library that torch has loaded, into a place for its address. */
static bool function_of(const char *library_name, const char *name, void *place)
{
    void *library = dlopen(library_name, RTLD_LAZY | RTLD_NOLOAD), *symbol = NULL;
    if (library) symbol = dlsym(library, name);
    memcpy(place, &symbol, sizeof(symbol));
    if (library) dlclose(library); /* torch keeps it */
    return symbol != NULL;
}

static bool find_questions(void)
{
    static const struct {
        const char *name;
        question **place;
    } all[] = {{"aoti_torch_get_data_ptr", &of_tensor.data}, {"aoti_torch_get_dim", &of_tensor.rank},
               {"aoti_torch_get_sizes", &of_tensor.extents}, {"aoti_torch_get_strides", &of_tensor.strides},
               {"aoti_torch_get_dtype", &of_tensor.type},    {"aoti_torch_get_device_index", &of_tensor.device}};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        if (!function_of("libtorch_cpu.so", all[i].name, all[i].place)) return false;
    return true;
}

/* A plain tensor, a negative view of it, one that requires grad, and the one at hand. */
static void look(PyObject *tensor)
{
    PyObject *torch = imported("torch"), *type = torch ? PyObject_GetAttrString(torch, "Tensor") : NULL;
    PyObject *core = imported("torch._C"), *keys = core ? PyObject_GetAttrString(core, "_dispatch_keys") : NULL;
    PyObject *plain = Py_BuildValue("{ss}", "device", "cpu");
    PyObject *wanting = Py_BuildValue("{sssO}", "device", "cpu", "requires_grad", Py_True);
    sample s[SAMPLES] = {0};
    PyTypeObject *wanted = (PyTypeObject *)type;
    if (type && keys && plain && wanting && sample_make(call_named(torch, "empty", plain, NULL), wanted, keys, &s[0]) &&
        sample_make(call_named(torch, "_neg_view", NULL, s[0].tensor), wanted, keys, &s[1]) &&
        sample_make(call_named(torch, "empty", wanting, NULL), wanted, keys, &s[2]) &&
        sample_make(Py_NewRef(tensor), Py_TYPE(tensor), keys, &s[3])) {
        found.at = word_of(s, false);
        found.keys = word_of(s, true);
        found.negative = s[0].bits ^ s[1].bits;
        bool is_function = function_of("libc10.so", "_ZNK3c1010TensorImpl13requires_gradEv", &found.requires_grad);
        bool is_one_bit = found.negative && !(found.negative & (found.negative - 1)) && (s[1].bits & found.negative);
        const void *first = (const void *)(uintptr_t)s[0].address, *third = (const void *)(uintptr_t)s[2].address;
        found.is_known = found.at >= 0 && found.keys >= 0 && is_one_bit && is_function && !found.requires_grad(first) &&
                         found.requires_grad(third);
        found.has_questions = found.is_known && find_questions();
    }
    PyErr_Clear();
    for (int k = 0; k < SAMPLES; k++) Py_XDECREF(s[k].tensor);
    PyObject *const given[] = {torch, type, core, keys, plain, wanting};
    for (int i = 0; i < 6; i++) Py_XDECREF(given[i]);
}

static const uint64_t *description_of(PyObject *tensor)
{
    return ((const uint64_t *const *)(const void *)tensor)[found.at];
}

bool tensor_bits(PyObject *tensor, bool wants_grad, bool *is_negative, bool *requires_grad)
{
    enum { MOST_TRIES = 4 };
    if (!found.is_known && found.tries < MOST_TRIES) {
        found.tries++;
        look(tensor);
    }
    *requires_grad = false;
    if (found.is_known) {
        const uint64_t *description = description_of(tensor);
        *is_negative = description[found.keys] & found.negative;
        if (wants_grad) *requires_grad = found.requires_grad(description);
        return true;
    }
    return ask(tensor, "is_neg", true, is_negative) &&
           (!wants_grad || ask(tensor, "requires_grad", false, requires_grad));
}

/* ---- memory ---- */

/* Everything but the device's and the element's type, of which torch's numbers are given. */
static bool read_memory(PyObject *tensor, view *out, int32_t *type)
{
    const void *handle = (const uint64_t *)(const void *)tensor + found.at;
    const int64_t *extents, *strides;
    int64_t rank;
    int32_t device = 0;
    if (of_tensor.rank(handle, &rank) || rank > QN_MAX_RANK || of_tensor.type(handle, type)) return false;
    if (of_tensor.extents(handle, &extents) || of_tensor.strides(handle, &strides)) return false;
    if (of_tensor.data(handle, &out->data) || of_tensor.device(handle, &device)) return false;
    int64_t count = 1;
    for (int64_t i = 0; i < rank; i++) {
        out->extents[i] = extents[i];
        out->strides[i] = strides[i];
        count = extents[i] ? count : 0;
    }
    out->rank = (int)rank;
    out->device_id = device > 0 ? device : 0; /* the host has none */
    return *type >= 0 && *type < MOST_TYPES && (out->data || !count);
}

bool tensor_read(PyObject *tensor, bool wants_grad, view *out)
{
    if (!found.has_questions) return false;
    const uint64_t *description = description_of(tensor), bits = description[found.keys];
    int32_t type;
    for (int i = 0; i < learnt.kind_count; i++)
        if (learnt.kinds[i].bits == bits) {
            if (!read_memory(tensor, out, &type) || !learnt.has_type[type]) return false;
            out->type = learnt.types[type];
            out->device_type = learnt.kinds[i].device_type;
            out->wants_grad = wants_grad && dtype_is_float(out->type) && found.requires_grad(description);
            return true;
        }
    return false;
}

void tensor_learn(PyObject *tensor, const view *exchanged)
{
    view v;
    int32_t type;
    if (!found.has_questions) return;
    uint64_t bits = description_of(tensor)[found.keys];
    if ((bits & found.negative) || !read_memory(tensor, &v, &type)) return;
    size_t size_bytes = sizeof(int64_t) * (size_t)exchanged->rank;
    found.has_questions = v.rank == exchanged->rank && v.data == exchanged->data &&
                          v.device_id == exchanged->device_id && !memcmp(v.extents, exchanged->extents, size_bytes) &&
                          !memcmp(v.strides, exchanged->strides, size_bytes) &&
                          (!learnt.has_type[type] || learnt.types[type] == exchanged->type);
    learnt.has_type[type] = true;
    learnt.types[type] = exchanged->type;
    for (int i = 0; i < learnt.kind_count; i++)
        if (learnt.kinds[i].bits == bits) {
            found.has_questions &= learnt.kinds[i].device_type == exchanged->device_type;
            return;
        }
    if (learnt.kind_count == MOST_KINDS) return;
    learnt.kinds[learnt.kind_count].bits = bits;
    learnt.kinds[learnt.kind_count++].device_type = exchanged->device_type;
}

bool tensor_bits_are_found(void)
{
    return found.is_known;
}

bool tensors_are_read(void)
{
    return found.has_questions && learnt.kind_count;
}
