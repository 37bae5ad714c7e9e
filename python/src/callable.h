/*
 * A kernel or tensor function of a module, as a callable. An entry is one prepared call: a qn_call for one signature
 * (shapes, types, layouts, numbers, settings, device, stream), found again by the bytes of its key; launching it again
 * costs new addresses and the launch. SPDX-License-Identifier: MIT
 */
#ifndef QUERN_PYTHON_CALLABLE_H
#define QUERN_PYTHON_CALLABLE_H

#include "python.h"

enum { KEY_BYTES = 4096, MOST_ENTRIES = 64, MOST_SETTINGS = 32 };

typedef struct callable_param {
    const char *name;      /* of the module */
    PyObject *name_object; /* interned */
    qn_param_kind kind;
    int rank;
} callable_param;

typedef struct entry {
    struct entry *next; /* most recently used first */
    char *key;
    int key_bytes;
    bool busy; /* a thread is in it with the GIL released */
    bool slow; /* the last run took long, or there was none: the next one is a job, which Ctrl-C leaves */
    qn_call *call;
    char device[16];
    qn_stream *stream;       /* NULL: on the host */
    int params[MOST_ARRAYS]; /* numbers of its arrays, ascending */
    int array_count;
    output_recipe recipes[MOST_ARRAYS]; /* by array; without a function: the caller gives it */
    PyObject *scratch;                  /* or NULL */
    PyObject *held;                     /* while a job runs it: what it works on */
} entry;

typedef struct callable {
    PyObject_HEAD PyObject *owner; /* keeps the module */
    qn_module *module;
    char *name;
    callable_param *params;
    int param_count;
    int inputs[MOST_ARRAYS], input_count;   /* parameters by position */
    int outputs[MOST_ARRAYS], output_count; /* `out` arrays */
    bool has_out;                           /* a parameter of that name */
    bool is_text;                           /* of CUDA text: arrays are flat, and the launch is given */
    turned_axis *turns; /* of `launch`: by result QN_MAX_RANK axes, -1 first: as it is; NULL: all as they are */
    entry *entries;
    int entry_count;
    int fork_count; /* when it was made */
} callable;

/* Everything of one call before it is looked up. */
typedef struct binding {
    callable *self;
    PyObject *values[MOST_ARRAYS]; /* by parameter; borrowed; NULL: not given */
    PyObject *settings[MOST_SETTINGS][2];
    int setting_count;
    PyObject *device, *blocks, *threads, *shared; /* borrowed, or NULL */
    view views[MOST_ARRAYS];                      /* by array, in the order of parameters */
    int params[MOST_ARRAYS];
    bool made[MOST_ARRAYS]; /* to be allocated */
    int array_count;
    const view *first; /* the first array that was given */
    bool wants_grad;   /* and autograd is on: nothing after this was looked at */
    bool trusted;      /* of `launch`: torch's compiler knows its tensors */
    unsigned grad;     /* VIEW_GRAD where autograd is on */
    void *stream;
    bool on_device;
    bool waits; /* nobody else would know when it is over */
    char key[KEY_BYTES];
    int key_bytes;
} binding;

/* callable_bind.c: arguments into a binding, with its key: a tuple and a dict, an array with names of the last ones, or
 * those by position alone. False: an exception is set; views are released. */
bool binding_fill(binding *b, callable *self, PyObject *args, PyObject *keywords);
bool binding_fill_vector(binding *b, callable *self, PyObject *const *args, Py_ssize_t count, PyObject *names);
bool binding_fill_plain(binding *b, callable *self, PyObject *const *args, Py_ssize_t count, bool trusted);
void binding_release(binding *b);
/* The name of the device it runs on. */
bool binding_device(const binding *b, char name[16]);
/* Numbers, types and settings into a call. */
bool binding_apply(const binding *b, qn_call *call);
bool set_value(qn_call *call, const char *name, PyObject *value);

/* callable.c: of this process, loaded again if it was forked since. False: an exception is set. */
bool callable_is_here(callable *self);
bool binding_forward_mode(const binding *b); /* torch's forward mode is on, which has no rules here */
PyObject *binding_finish(binding *b);        /* launches what is bound and gives it back */

/* callable_entry.c: the entry of a binding, made (and its first launch run) if there is none. */
entry *entry_find(binding *b);
/* The results as the caller gets them; launched. NULL: an exception is set. */
PyObject *entry_first(binding *b);
bool entry_prepare(binding *b); /* of arrays on a device: compiled, and not launched */
PyObject *entry_again(entry *e, binding *b);
void entry_free(entry *e);
/* [(name, value), ...]: extents, types, constants and scalars of a call like this one. */
PyObject *entry_known(binding *b);
PyObject *entry_shapes(callable *self, PyObject *arrays, PyObject *keywords);

#endif
