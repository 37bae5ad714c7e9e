/*
 * What torch knows of a tensor beside its memory: is its negative bit set, does it require grad. In: a tensor of torch's
 * own type. Out: two answers. Asked through Python's attributes each costs as much as the whole exchange of the tensor.
 * So torch is asked once where it keeps them: `_cdata` is the address of a tensor's description and
 * `torch._C._dispatch_keys` the word of bits in it, and both are searched for in the memory of tensors made for it, with and
 * without the bit; `requires_grad` is the function of torch's own library that Python's attribute calls. What is found must
 * be true of all of them and of the tensor at hand; anything else, or a torch that has these no more, and the attributes are
 * asked at each call. Nothing is guessed, and nothing written.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "python.h"

#include <dlfcn.h>
#include <string.h>

enum { WORDS_OF_OBJECT = 8, WORDS_OF_TENSOR = 24, SAMPLES = 4 };

typedef bool requires_grad_function(const void *tensor);

static struct {
    bool is_known;
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

static requires_grad_function *function_of_library(void)
{
    void *library = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD), *symbol = NULL;
    if (library) symbol = dlsym(library, "_ZNK3c1010TensorImpl13requires_gradEv");
    requires_grad_function *function = NULL;
    memcpy(&function, &symbol, sizeof(function));
    if (library) dlclose(library); /* torch keeps it */
    return function;
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
        found.requires_grad = function_of_library();
        bool is_one_bit = found.negative && !(found.negative & (found.negative - 1)) && (s[1].bits & found.negative);
        const void *first = (const void *)(uintptr_t)s[0].address, *third = (const void *)(uintptr_t)s[2].address;
        found.is_known = found.at >= 0 && found.keys >= 0 && is_one_bit && found.requires_grad &&
                         !found.requires_grad(first) && found.requires_grad(third);
    }
    PyErr_Clear();
    for (int k = 0; k < SAMPLES; k++) Py_XDECREF(s[k].tensor);
    PyObject *const given[] = {torch, type, core, keys, plain, wanting};
    for (int i = 0; i < 6; i++) Py_XDECREF(given[i]);
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
        const uint64_t *description = ((const uint64_t *const *)(const void *)tensor)[found.at];
        *is_negative = description[found.keys] & found.negative;
        if (wants_grad) *requires_grad = found.requires_grad(description);
        return true;
    }
    return ask(tensor, "is_neg", true, is_negative) &&
           (!wants_grad || ask(tensor, "requires_grad", false, requires_grad));
}

bool tensor_bits_are_found(void)
{
    return found.is_known;
}
