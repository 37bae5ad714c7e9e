/*
 * The extension `_quern`: what its files share. tensor.c turns Python objects into views of memory without copying (torch.c:
 * torch's own with no Python in between), output.c makes new tensors of the framework of the inputs, callable.c is a
 * kernel or tensor function as a callable with its cache of prepared calls, direct.c the way to it from a call in Python,
 * job.c runs what takes long so that Ctrl-C works, workbench.c is showing, checking, benchmarking and tuning, module.c the
 * module and its exceptions.
 *
 * The limited API of Python 3.11 is all that is used. The GIL guards every table here; it is released while Quern compiles,
 * runs on the host or waits, and a prepared call is `busy` meanwhile.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_PYTHON_PYTHON_H
#define QUERN_PYTHON_PYTHON_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "dlpack.h"

#include <quern/device.h>
#include <quern/raw.h>
#include <quern/workbench.h>

enum { MOST_ARRAYS = 64 };

/* ---- module.c ---- */

extern PyObject *error_type, *call_error, *source_error, *device_error, *finding_error;
/* How often the process was forked. Threads do not survive that: a child has a context of its own, and loads again what was
 * loaded before, where it is used. */
extern int fork_count;
qn_module *module_here(PyObject *owner);      /* of a `Module`, in this process; NULL: an exception is set */
qn_context *the_context(void);                /* opened at the first use; NULL: an exception is set */
PyObject *raise_error(const qn_error *error); /* as the exception of its status; returns NULL */
const char *host_device(void);                /* "cpu", or "ref" without a compiler; NULL: an exception is set */
PyObject *imported(const char *name); /* a module that somebody imported: new reference, or NULL without error */

/* ---- tensor.c ---- */

typedef enum family {
    FAMILY_NONE,    /* not a tensor */
    FAMILY_TORCH,   /* torch.Tensor or Parameter itself */
    FAMILY_TABLE,   /* another type with the exchange table */
    FAMILY_NUMPY,   /* or anything else with the buffer protocol */
    FAMILY_CUPY,    /* by __dlpack__, on its current stream */
    FAMILY_JAX,     /* by __dlpack__, never written but when new */
    FAMILY_DLPACK,  /* anything else with __dlpack__ */
    FAMILY_REFUSED, /* a subclass of torch.Tensor */
} family;

typedef struct type_facts {
    PyObject *type; /* kept */
    family family;
    const dlpack_exchange *exchange; /* NULL: none */
} type_facts;

typedef struct view {
    void *data;
    qn_dtype type;
    int rank, device_type, device_id;
    int64_t extents[QN_MAX_RANK], strides[QN_MAX_RANK];
    bool read_only, wants_grad;
    const type_facts *facts;
    PyObject *object; /* borrowed */
    /* What must be given back when the call is over. */
    Py_buffer buffer;
    bool has_buffer;
    dlpack_versioned *versioned;
    dlpack_managed *managed;
} view;

const type_facts *type_facts_of(PyObject *object); /* NULL: an exception is set */
enum {
    VIEW_WRITABLE = 1, /* it will be written */
    VIEW_GRAD = 2,     /* autograd is on: ask whether it requires grad */
    VIEW_TRUSTED = 4,  /* who calls knows that its bits and gradients need no look */
};
/* The object's memory; `name` is the argument in messages. False: an exception is set. */
bool view_get(PyObject *object, const char *name, unsigned flags, view *out);
void view_release(view *v);
/* The stream on which the producer works now, for a CUDA tensor. `waits`: it is not known, and what is launched must be over
 * before anybody else has the arrays. False: an exception is set. */
bool view_stream(const view *v, void **stream, bool *waits);
/* The address and shape of a tensor that the framework just made: nothing to check. */
bool view_plain(PyObject *object, view *out);
bool view_same_device(const view *a, const view *b);
bool grad_is_enabled(void);    /* torch's */
bool forward_mode_is_on(void); /* inside torch.autograd.forward_ad.dual_level() */
/* A global of a module that somebody imported, found once: borrowed, or NULL without error. */
typedef struct module_place {
    PyObject *dictionary, *name;
} module_place;
PyObject *module_value(const char *module, const char *name, module_place *place);
/* "float32", "torch.bfloat16", "f16", a dtype object: the element type. False: it is none. */
bool dtype_from_object(PyObject *object, qn_dtype *type);
static inline bool dtype_is_float(qn_dtype type)
{
    return type <= QN_BF16 || type == QN_F8E4M3;
}

/* ---- torch.c ---- */

/* A tensor of torch's own type as a view, and whether it requires grad where that is wanted. False: it cannot be read here, and
 * the view is in no state; no exception is set. */
bool tensor_read(PyObject *tensor, bool wants_grad, view *out);
/* A tensor that was exchanged: others like it can be read from now on. */
void tensor_learn(PyObject *tensor, const view *exchanged);
bool tensors_are_read(void); /* some are: nothing that was learnt has proved wrong */

/* Of a tensor of torch's own type: its negative bit, and (where that is wanted) whether it requires grad. False: an exception is
 * set. */
bool tensor_bits(PyObject *tensor, bool wants_grad, bool *is_negative, bool *requires_grad);
bool tensor_bits_are_found(void); /* without asking through Python's attributes */

/* ---- output.c ---- */

typedef struct output_recipe {
    PyObject *function, *arguments, *keywords; /* of torch.empty or numpy.empty; all kept */
    PyObject *quick, *quick_arguments;         /* the same with fewer questions where torch has it, or NULL */
    qn_array shape;                            /* as Quern writes it */
    int device_id;
} output_recipe;
/* An axis as the caller of a result sees it. */
typedef struct turned_axis {
    int axis;       /* of the result as Quern writes it */
    int64_t stride; /* promised for one of extent one, where every stride is right; -1: as it comes */
} turned_axis;
/* How the framework of `like` makes a tensor of this shape. turn: NULL, or the axes in the order in which the caller sees
 * them. */
bool output_plan(const view *like, const qn_array *shape, const turned_axis *turn, output_recipe *out);
/* A new tensor, and its memory in `v`. */
PyObject *output_make(const output_recipe *recipe, view *v);
void output_forget(output_recipe *recipe);
/* Bytes on the device of `like`, as a tensor of its framework: scratch memory. */
PyObject *output_bytes(const view *like, int64_t size_bytes, view *v);

/* ---- job.c ---- */

typedef qn_status job_function(void *context, qn_error *error);
/* Runs it without the GIL on a thread of its own while this one waits and listens to signals. Ctrl-C: KeyboardInterrupt at
 * once; the work goes on until it ends by itself, then `abandon` (with the GIL) frees the context. `what`: for the line
 * that is told after a second that it compiles; NULL: none. */
bool job_run(const char *what, job_function *function, void *context, void (*abandon)(void *context));

/* ---- callable.c, callable_entry.c ---- */

extern PyObject *callable_type;
bool callable_open(PyObject *module);
PyObject *callable_new(PyObject *owner, qn_module *module, const char *name, bool is_text);
/* forward(ctx, call, *args) of an autograd.Function: see callable.c. */
PyObject *callable_forward(PyObject *self, PyObject *const *args, Py_ssize_t count);

/* ---- direct.c ---- */

bool direct_open(PyObject *module);

/* ---- profile.c ---- */

bool profile_open(PyObject *module);
/* A range of torch's profiler while that records; NULL: it does not. Neither sets an exception. */
PyObject *range_enter(const char *name);
void range_leave(PyObject *range);

/* ---- outline.c ---- */

PyObject *outline_of(PyObject *self, PyObject *const *args, Py_ssize_t count);

/* ---- workbench.c ---- */

extern PyMethodDef workbench_methods[];

#endif
