/*
 * Showing, checking, benchmarking and tuning from Python. In: a file and settings as on the command line. Out: the text
 * that the command prints. All of it may take long, so it runs as a job: Ctrl-C works.
 * SPDX-License-Identifier: MIT
 */
#include "python.h"

#include <quern/bench.h>
#include <quern/profile.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ITEMS = 64 };
typedef enum { SHOW, HINTS, CHECK_FILE, BENCH, TUNE, ROOFLINE } kind;

typedef struct request {
    kind kind;
    char *path, *kernel, *device, *stage, *arch;
    char *items[MOST_ITEMS];
    int item_count;
    bool backward, picture, hints;
    double seconds;
    char *text; /* what was written */
    size_t length, capacity;
} request;

static void request_free(void *context)
{
    request *r = context;
    for (int i = 0; i < r->item_count; i++) free(r->items[i]);
    free(r->path);
    free(r->kernel);
    free(r->device);
    free(r->stage);
    free(r->arch);
    free(r->text);
    free(r);
}

static void take(void *user, const char *text, size_t length)
{
    request *r = user;
    if (r->length + length + 1 > r->capacity) {
        size_t capacity = 2 * (r->length + length + 1);
        char *more = realloc(r->text, capacity);
        if (!more) return;
        r->text = more;
        r->capacity = capacity;
    }
    memcpy(r->text + r->length, text, length);
    r->length += length;
    r->text[r->length] = 0;
}

static void ignore(void *user, const char *text, size_t length)
{
    (void)user, (void)text, (void)length;
}

static qn_status perform(void *context, qn_error *error)
{
    request *r = context;
    qn_settings settings = {(const char *const *)r->items, r->item_count};
    switch (r->kind) {
    case SHOW: {
        qn_show_options o = {.stage = r->stage, .device = r->device, .arch = r->arch, .settings = settings};
        o.backward = r->backward;
        o.dot = r->picture;
        return qn_show(the_context(), r->path, r->kernel, &o, take, r, error);
    }
    case HINTS: {
        qn_show_options o = {.arch = r->arch, .settings = settings};
        qn_hint_options format = {0};
        return qn_show_hints(the_context(), r->path, r->kernel, &o, &format, take, r, error);
    }
    case CHECK_FILE: {
        qn_check_options o = {.kernel = r->kernel, .device = r->device, .settings = settings};
        return qn_check_file(the_context(), r->path, &o, take, r, error);
    }
    case ROOFLINE: {
        qn_roofline found;
        char words[512];
        qn_status status = qn_roofline_get(the_context(), r->device, false, &found, error);
        if (status != QN_OK) return status;
        int length = snprintf(words, sizeof(words), "%.9g %.9g %.9g %s", found.copy_gb_per_s, found.read_gb_per_s,
                              found.fma_f32_gflop_per_s, found.device);
        take(r, words, (size_t)length);
        return QN_OK;
    }
    case BENCH: {
        qn_bench_options o = {.bench = r->kernel, .device = r->device, .settings = settings, .seconds = r->seconds};
        o.hints = r->hints;
        return qn_bench_file(the_context(), r->path, &o, take, ignore, r, error);
    }
    default: {
        qn_tune_options o = {.device = r->device, .settings = settings, .budget_s = r->seconds};
        return qn_tune(the_context(), r->path, r->kernel, &o, take, ignore, r, error);
    }
    }
}

static char *copy(const char *words)
{
    return words ? strdup(words) : NULL;
}

/* (path, kernel, device, stage, arch, settings, flags, seconds) */
static PyObject *run(kind which, const char *what, PyObject *args)
{
    const char *path, *kernel, *device, *stage, *arch;
    PyObject *settings;
    int flags;
    double seconds;
    if (!PyArg_ParseTuple(args, "szzzzOid", &path, &kernel, &device, &stage, &arch, &settings, &flags, &seconds))
        return NULL;
    if (!the_context()) return NULL;
    request *r = calloc(1, sizeof(*r));
    if (!r) return PyErr_NoMemory();
    *r = (request){
        .kind = which, .path = copy(path), .kernel = copy(kernel), .device = copy(device), .stage = copy(stage)};
    r->arch = copy(arch);
    r->backward = flags & 1;
    r->picture = flags & 2;
    r->hints = flags & 4;
    r->seconds = seconds;
    for (Py_ssize_t i = 0; i < PySequence_Size(settings) && i < MOST_ITEMS; i++) {
        PyObject *each = PySequence_GetItem(settings, i);
        const char *words = each ? PyUnicode_AsUTF8AndSize(each, NULL) : NULL;
        if (words) r->items[r->item_count++] = copy(words);
        Py_XDECREF(each);
        if (!words) {
            request_free(r);
            return NULL;
        }
    }
    if (!job_run(what, perform, r, request_free)) return NULL;
    PyObject *text = PyUnicode_DecodeUTF8(r->text ? r->text : "", (Py_ssize_t)r->length, "replace");
    request_free(r);
    return text;
}

static PyObject *show(PyObject *self, PyObject *args)
{
    (void)self;
    return run(SHOW, "what is shown", args);
}

static PyObject *hints(PyObject *self, PyObject *args)
{
    (void)self;
    return run(HINTS, "what is looked at", args);
}

static PyObject *check(PyObject *self, PyObject *args)
{
    (void)self;
    return run(CHECK_FILE, "what is checked", args);
}

static PyObject *bench(PyObject *self, PyObject *args)
{
    (void)self;
    return run(BENCH, "the benchmark", args);
}

static PyObject *tune(PyObject *self, PyObject *args)
{
    (void)self;
    return run(TUNE, "what is tuned", args);
}

static PyObject *roofline(PyObject *self, PyObject *args)
{
    (void)self;
    return run(ROOFLINE, "the roofline", args);
}

PyMethodDef workbench_methods[] = {{"show", show, METH_VARARGS, "a stage of a kernel, as text"},
                                   {"hints", hints, METH_VARARGS, "`quern show --stage hints`, as text"},
                                   {"check", check, METH_VARARGS, "`quern check`, as text"},
                                   {"bench", bench, METH_VARARGS, "`quern bench`, as text"},
                                   {"roofline", roofline, METH_VARARGS, "GB/s copied and read, GFLOP/s, the device"},
                                   {"tune", tune, METH_VARARGS, "`quern tune`, as text"},
                                   {0}};
