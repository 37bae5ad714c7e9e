/*
 * Prepared calls. In: a binding. Out: the results. The first call of a signature asks for the shapes of results, has the
 * framework make them, compiles (as a job, so that Ctrl-C works) and launches; every later one finds its entry by the key,
 * gives it the new addresses and launches: on the stream of the producer without waiting, or on the host with the GIL
 * released, as a job again where that takes long.
 * SPDX-License-Identifier: MIT
 */
#include "callable.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SLOW_SECONDS 0.05

/* ---- streams of the frameworks, wrapped once each and kept ---- */

typedef struct known_stream {
    struct known_stream *next;
    char device[16];
    void *native;
    qn_stream *stream;
} known_stream;
static known_stream *streams;

static qn_stream *stream_of(const char *device, void *native)
{
    for (known_stream *s = streams; s; s = s->next)
        if (s->native == native && !strcmp(s->device, device)) return s->stream;
    qn_error error;
    known_stream *s = calloc(1, sizeof(*s));
    if (!s) return PyErr_NoMemory(), NULL;
    if (qn_stream_wrap(the_context(), device, native, &s->stream, &error) != QN_OK) {
        free(s);
        raise_error(&error);
        return NULL;
    }
    snprintf(s->device, sizeof(s->device), "%s", device);
    s->native = native;
    s->next = streams;
    streams = s;
    return s->stream;
}

/* ---- entries ---- */

void entry_free(entry *e)
{
    qn_call_free(e->call);
    for (int i = 0; i < e->array_count; i++) output_forget(&e->recipes[i]);
    Py_XDECREF(e->scratch);
    Py_XDECREF(e->held);
    free(e->key);
    free(e);
}

entry *entry_find(binding *b)
{
    entry **at = &b->self->entries;
    for (entry *e; (e = *at); at = &e->next) {
        if (e->busy || e->key_bytes != b->key_bytes || memcmp(e->key, b->key, (size_t)b->key_bytes) != 0) continue;
        if (at != &b->self->entries) { /* to the front */
            *at = e->next;
            e->next = b->self->entries;
            b->self->entries = e;
        }
        return e;
    }
    return NULL;
}

/* The least recently used ones go. */
static void keep(callable *self, entry *e)
{
    e->next = self->entries;
    self->entries = e;
    self->entry_count++;
    if (self->entry_count <= MOST_ENTRIES) return;
    entry **last = NULL;
    for (entry **at = &self->entries->next; *at; at = &(*at)->next)
        if (!(*at)->busy) last = at;
    if (!last) return;
    entry *old = *last;
    *last = old->next;
    self->entry_count--;
    entry_free(old);
}

static bool set_array(qn_call *call, const char *name, const view *v)
{
    qn_error error;
    if (qn_call_set_memory(call, name, v->data, v->type, v->rank, v->extents, v->strides, &error) == QN_OK) return true;
    raise_error(&error);
    return false;
}

/* New tensors for what the caller does not give, into objects[]. */
static bool make_outputs(entry *e, binding *b, PyObject **objects)
{
    for (int i = 0; i < b->array_count; i++) {
        if (b->made[i] && !(objects[i] = output_make(&e->recipes[i], &b->views[i]))) return false;
    }
    return true;
}

static void drop_outputs(binding *b, PyObject **objects, bool keep_objects)
{
    for (int i = 0; i < b->array_count; i++) {
        if (!b->made[i] || !objects[i]) continue;
        view_release(&b->views[i]);
        if (!keep_objects) Py_DECREF(objects[i]);
    }
}

/* What a call returns: its results; without any, what it changed in place. */
static PyObject *results(binding *b, PyObject **objects)
{
    const callable *self = b->self;
    PyObject *found[MOST_ARRAYS];
    int count = 0;
    qn_param_kind wanted = self->output_count ? QN_PARAM_OUT : QN_PARAM_INOUT;
    for (int i = 0; i < b->array_count; i++) {
        if (self->params[b->params[i]].kind != wanted) continue;
        found[count++] = objects[i] ? objects[i] : Py_NewRef(b->values[b->params[i]]);
    }
    if (count == 0) Py_RETURN_NONE;
    if (count == 1) return found[0];
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; i < count; i++) {
        if (tuple)
            PyTuple_SetItem(tuple, i, found[i]);
        else
            Py_DECREF(found[i]);
    }
    return tuple;
}

/* ---- running ---- */

static qn_status run_on_host(void *context, qn_error *error)
{
    entry *e = context;
    return qn_call_run(e->call, e->device, error);
}

static qn_status wait_for_stream(void *context, qn_error *error)
{
    entry *e = context;
    return qn_stream_wait(e->stream, error);
}

/* Everything that a job which nobody waits for any more works on. */
static PyObject *hold(const binding *b, PyObject **objects)
{
    PyObject *list = PyList_New(0);
    for (int i = 0; list && i < b->array_count; i++) {
        PyObject *each = objects[i] ? objects[i] : b->values[b->params[i]];
        if (each) PyList_Append(list, each);
    }
    if (list) PyList_Append(list, (PyObject *)b->self); /* whose entry it is */
    return list;
}

static void end_run(void *context)
{
    entry *e = context;
    PyObject *held = e->held; /* the last reference to the entry's owner may be in it */
    e->busy = false;
    e->held = NULL;
    Py_XDECREF(held);
}

/* Runs or waits, with the GIL released. False: an exception is set, and where that is Ctrl-C, it goes on without us. */
static bool run(entry *e, const binding *b, PyObject **objects, job_function *function)
{
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    e->busy = true;
    if (e->slow) {
        e->held = hold(b, objects);
        if (!job_run(NULL, function, e, end_run)) return false;
        end_run(e);
    } else {
        qn_error error;
        qn_status status;
        Py_BEGIN_ALLOW_THREADS status = function(e, &error);
        Py_END_ALLOW_THREADS e->busy = false;
        if (status != QN_OK) return raise_error(&error), false;
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    e->slow = end.tv_sec - start.tv_sec + (double)(end.tv_nsec - start.tv_nsec) * 1e-9 > SLOW_SECONDS;
    return true;
}

/* On the stream of the producer; where that is not known it is waited for. */
static bool launch(entry *e, const binding *b, PyObject **objects)
{
    qn_error error;
    if (qn_call_launch(e->call, e->stream, &error) != QN_OK) return raise_error(&error), false;
    return !b->waits || run(e, b, objects, wait_for_stream);
}

/* ---- the first launch ---- */

static qn_status prepare_on_device(void *context, qn_error *error)
{
    entry *e = context;
    int64_t ignored;
    return qn_call_scratch(e->call, e->device, &ignored, error);
}

static void abandon(void *context)
{
    entry_free(context);
}

/* In which order of axes the caller of `launch` sees this result; NULL: as Quern writes it. */
static const turned_axis *turn_of(const callable *self, int param)
{
    for (int i = 0; i < self->output_count && self->turns; i++)
        if (self->outputs[i] == param && self->turns[i * QN_MAX_RANK].axis >= 0) return &self->turns[i * QN_MAX_RANK];
    return NULL;
}

static entry *entry_new(binding *b)
{
    qn_error error;
    entry *e = calloc(1, sizeof(*e));
    if (!e) return (entry *)PyErr_NoMemory();
    e->key = malloc((size_t)b->key_bytes + 1);
    if (!e->key) {
        free(e);
        return (entry *)PyErr_NoMemory();
    }
    memcpy(e->key, b->key, (size_t)b->key_bytes);
    e->key_bytes = b->key_bytes;
    e->array_count = b->array_count;
    memcpy(e->params, b->params, sizeof(e->params));
    if (!binding_device(b, e->device)) {
        entry_free(e);
        return NULL;
    }
    if (qn_call_new(b->self->module, b->self->name, &e->call, &error) != QN_OK) {
        raise_error(&error);
        entry_free(e);
        return NULL;
    }
    bool good = binding_apply(b, e->call);
    for (int i = 0; i < b->array_count && good; i++)
        if (!b->made[i]) good = set_array(e->call, b->self->params[b->params[i]].name, &b->views[i]);
    for (int i = 0; i < b->array_count && good; i++) {
        qn_array shape;
        if (!b->made[i]) continue;
        good = qn_call_expect(e->call, e->device, b->self->params[b->params[i]].name, &shape, &error) == QN_OK;
        if (!good) raise_error(&error);
        good = good && output_plan(b->first, &shape, turn_of(b->self, b->params[i]), &e->recipes[i]);
    }
    if (good && b->on_device) good = (e->stream = stream_of(e->device, b->stream)) != NULL;
    if (good) return e;
    entry_free(e);
    return NULL;
}

/* Scratch memory by torch, so that it lies in the pool of a graph that is being recorded. */
static bool give_scratch(entry *e, const binding *b)
{
    int64_t size_bytes = 0;
    qn_error error;
    view v;
    if (qn_call_scratch(e->call, e->device, &size_bytes, &error) != QN_OK) return raise_error(&error), false;
    if (!size_bytes || b->first->facts->family != FAMILY_TORCH) return true; /* others: the call's own */
    e->scratch = output_bytes(b->first, size_bytes + 256, &v);
    if (!e->scratch) return false;
    uintptr_t at = ((uintptr_t)v.data + 255) / 256 * 256;
    view_release(&v);
    if (qn_call_set_scratch(e->call, (void *)at, size_bytes, &error) == QN_OK) return true;
    raise_error(&error);
    return false;
}

/* An entry with everything compiled; on the host that takes a run. Results are in objects[] (new references), their views
 * in the binding. */
static entry *entry_ready(binding *b, PyObject **objects)
{
    entry *e = entry_new(b);
    if (!e) return NULL;
    bool good = make_outputs(e, b, objects);
    for (int i = 0; i < b->array_count && good; i++)
        if (b->made[i]) good = set_array(e->call, b->self->params[b->params[i]].name, &b->views[i]);
    if (!good) {
        entry_free(e);
        return NULL;
    }
    e->held = hold(b, objects);
    if (!job_run(b->self->name, b->on_device ? prepare_on_device : run_on_host, e, abandon)) return NULL;
    Py_CLEAR(e->held);
    e->slow = true;
    if (!b->on_device || give_scratch(e, b)) return e;
    entry_free(e);
    return NULL;
}

PyObject *entry_first(binding *b)
{
    PyObject *objects[MOST_ARRAYS] = {0};
    entry *e = entry_ready(b, objects);
    if (e) keep(b->self, e);
    bool good = e && (!b->on_device || launch(e, b, objects));
    drop_outputs(b, objects, good);
    return good ? results(b, objects) : NULL;
}

bool entry_prepare(binding *b)
{
    PyObject *objects[MOST_ARRAYS] = {0};
    entry *e = entry_ready(b, objects);
    drop_outputs(b, objects, false);
    if (e) keep(b->self, e);
    return e != NULL;
}

/* ---- later ones ---- */

PyObject *entry_again(entry *e, binding *b)
{
    PyObject *objects[MOST_ARRAYS];
    void *addresses[MOST_ARRAYS];
    qn_error error;
    memset(objects, 0, sizeof(*objects) * (size_t)b->array_count);
    if (!make_outputs(e, b, objects)) {
        drop_outputs(b, objects, false);
        return NULL;
    }
    for (int i = 0; i < b->array_count; i++) addresses[i] = b->views[i].data;
    bool good = qn_call_move(e->call, e->params, addresses, b->array_count, &error) == QN_OK;
    if (!good)
        raise_error(&error);
    else
        good = e->stream ? launch(e, b, objects) : run(e, b, objects, run_on_host);
    drop_outputs(b, objects, good);
    if (!good) return NULL;
    return results(b, objects);
}

/* ---- what is known of a call ---- */

static void add_lines(void *user, const char *text, size_t length)
{
    PyObject *list = user;
    for (const char *at = text, *end = text + length; at < end;) {
        const char *line = memchr(at, '\n', (size_t)(end - at)), *equals = memchr(at, '=', (size_t)(end - at));
        if (!line || !equals) return;
        PyObject *pair =
            Py_BuildValue("(s#s#)", at, (Py_ssize_t)(equals - at), equals + 1, (Py_ssize_t)(line - equals - 1));
        if (pair) PyList_Append(list, pair);
        Py_XDECREF(pair);
        at = line + 1;
    }
}

PyObject *entry_known(binding *b)
{
    qn_error error;
    entry *e = entry_new(b);
    PyObject *list = e ? PyList_New(0) : NULL;
    if (list && qn_call_known(e->call, e->device, add_lines, list, &error) != QN_OK) {
        Py_CLEAR(list);
        raise_error(&error);
    }
    if (e) entry_free(e);
    return list;
}

/* ---- shapes alone ---- */

/* arrays: for each parameter by position ("f32", (2, 3)), a number, or None. Gives [("f32", (2, 3)), ...]. */
PyObject *entry_shapes(callable *self, PyObject *arrays, PyObject *keywords)
{
    qn_error error;
    qn_call *call = NULL;
    const char *device = host_device();
    PyObject *list = NULL, *name, *value;
    if (!device) return NULL;
    if (qn_call_new(self->module, self->name, &call, &error) != QN_OK) return raise_error(&error);
    bool good = true;
    for (int i = 0; i < self->input_count && i < PyTuple_Size(arrays) && good; i++) {
        const callable_param *p = &self->params[self->inputs[i]];
        PyObject *each = PyTuple_GetItem(arrays, i);
        if (each == Py_None) continue;
        if (p->kind == QN_PARAM_SCALAR) {
            good = set_value(call, p->name, each);
            continue;
        }
        view v = {.data = (void *)(uintptr_t)((i + 1) << 20)};
        PyObject *extents = PyTuple_Check(each) && PyTuple_Size(each) == 2 ? PyTuple_GetItem(each, 1) : NULL;
        good = extents && PyTuple_Check(extents) && PyTuple_Size(extents) <= QN_MAX_RANK &&
               dtype_from_object(PyTuple_GetItem(each, 0), &v.type);
        if (!good)
            PyErr_Format(PyExc_TypeError, "argument `%s`: a type and extents are wanted, (\"f32\", (2, 3))", p->name);
        v.rank = good ? (int)PyTuple_Size(extents) : 0;
        int64_t step = 1;
        for (int k = v.rank - 1; k >= 0 && good; k--) {
            v.extents[k] = PyLong_AsLongLong(PyTuple_GetItem(extents, k));
            v.strides[k] = step;
            step *= v.extents[k] > 1 ? v.extents[k] : 1;
            good = !PyErr_Occurred();
        }
        good = good && set_array(call, p->name, &v);
    }
    Py_ssize_t at = 0;
    while (good && keywords && PyDict_Next(keywords, &at, &name, &value)) {
        const char *words = PyUnicode_AsUTF8AndSize(name, NULL);
        if (value != Py_None) good = words && set_value(call, words, value);
    }
    if (good) list = PyList_New(0);
    for (int i = 0; i < self->output_count && list; i++) {
        qn_array shape;
        if (qn_call_expect(call, device, self->params[self->outputs[i]].name, &shape, &error) != QN_OK) {
            raise_error(&error);
            Py_CLEAR(list);
            break;
        }
        PyObject *extents = PyTuple_New(shape.rank);
        for (int k = 0; k < shape.rank; k++) PyTuple_SetItem(extents, k, PyLong_FromLongLong(shape.extents[k]));
        PyObject *pair = Py_BuildValue("(sN)", qn_dtype_name(shape.type), extents);
        if (!pair || PyList_Append(list, pair)) Py_CLEAR(list);
        Py_XDECREF(pair);
    }
    qn_call_free(call);
    return list;
}
