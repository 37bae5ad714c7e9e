/*
 * Counters of every kernel that a context launches: of tensor functions, of captured steps, of whole programs. In:
 * launches, each right after it ran. Out: what the hardware counted, once for each kernel with its shapes, as text and as
 * JSON.
 *
 * A launch that is new runs again as often as its counters need, and what it wrote is put back afterwards, so that the
 * program goes on with the values that it had; later launches of the same kernel with the same shapes run once, as ever.
 * One session of the counters serves all kernels of a GPU. Times of such a run mean nothing; it is a run of its own.
 * SPDX-License-Identifier: MIT
 */
#include "profile/measure/counters.h"

#include "device/cuda/cuda.h"
#include "profile/owners.h"
#include "profile/profile.h"
#include "run/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_COUNTED = 256 };

struct qn_counting {
    launch_counter hook; /* first: the context knows it as that */
    qn_context *context;
    pthread_mutex_t lock;
    arena *memory;
    qn_counted items[MOST_COUNTED];
    int count, left_out, refusals; /* left_out: kernels beyond the most */
    qn_error refusal;              /* the first */
    counters_session *session;     /* of the GPU in that slot; NULL: none was counted yet */
    int session_slot;
    counting_teller *tell; /* NULL: nobody waits for it */
    int64_t told_ns;
};

/* ---- what a launch writes ---- */

typedef struct saved {
    char *from, *copy;
    size_t size_bytes;
} saved;

static void release_copy(const device_slot *s, saved *one)
{
    if (s->driver->memory)
        s->driver->memory->release(s->device, one->copy);
    else
        heap_free(one->copy);
    one->copy = NULL;
}

static qn_status copy_bytes(const device_slot *s, char *to, const char *from, size_t size_bytes, qn_error *error)
{
    if (s->driver->memory) return s->driver->memory->copy(s->device, NULL, to, from, size_bytes, error);
    memcpy(to, from, size_bytes);
    return QN_OK;
}

static qn_status save(const device_slot *s, const tile_kernel *k, const array_view *views, saved *out, int *count,
                      qn_error *error)
{
    for (int i = 0; i < k->param_count; i++) {
        int64_t low, high, size = dtypes[k->params[i].elem].size_bytes;
        if (k->params[i].kind != PARAM_OUT && k->params[i].kind != PARAM_INOUT) continue;
        view_reach(&views[i], &low, &high);
        saved one = {.from = (char *)views[i].data + low * size, .size_bytes = (size_t)((high - low) * size)};
        if (!one.size_bytes) continue;
        if (s->driver->memory)
            QN_TRY(s->driver->memory->allocate(s->device, one.size_bytes, (void **)&one.copy, error));
        else if (!(one.copy = malloc(one.size_bytes)))
            return error_set(error, QN_NO_MEMORY, "no memory to keep what the kernel wrote");
        out[(*count)++] = one;
        QN_TRY(copy_bytes(s, one.copy, one.from, one.size_bytes, error));
    }
    return s->driver->memory ? s->driver->memory->settle(s->device, error) : QN_OK;
}

static qn_status put_back(const device_slot *s, saved *all, int count, qn_error *error)
{
    qn_status status = QN_OK;
    for (int i = 0; i < count; i++) {
        qn_status copied = copy_bytes(s, all[i].from, all[i].copy, all[i].size_bytes, status == QN_OK ? error : NULL);
        if (status == QN_OK) status = copied;
    }
    if (s->driver->memory && count && status == QN_OK) status = s->driver->memory->settle(s->device, error);
    for (int i = 0; i < count; i++) release_copy(s, &all[i]);
    return status;
}

/* ---- one launch ---- */

static void end_session(qn_counting *c)
{
    bool pushed;
    if (!c->session) return;
    cuda_device *d = (cuda_device *)c->context->slots[c->session_slot].device;
    if (cuda_enter(d, &pushed, NULL) == QN_OK) { /* else the driver has gone before us, and the session with it */
        counters_session_free(c->session);
        cuda_leave(d, pushed);
    }
    c->session = NULL;
}

static qn_status count_launch(qn_counting *c, int slot, launch_again *again, void *user, qn_counters *out,
                              qn_error *error)
{
    bool pushed;
    const device_slot *s = &c->context->slots[slot];
    if (s->driver != &driver_cuda) return counters_cpu(again, user, out, error);
    cuda_device *d = (cuda_device *)s->device;
    if (c->session_slot != slot) end_session(c);
    QN_TRY(cuda_enter(d, &pushed, error));
    if (!c->session) c->session = counters_session_new(d->context, d->handle);
    c->session_slot = slot;
    qn_status status = counters_session_count(c->session, again, user, out, error);
    cuda_leave(d, pushed);
    return status;
}

/* Now and then, as counting many kernels takes seconds. */
static void tell(qn_counting *c, const char *kernel)
{
    int64_t now_ns = clock_now_ns();
    if (!c->tell || now_ns - c->told_ns < 1000000000) return;
    c->told_ns = now_ns;
    c->tell(c->count, kernel);
}

void counting_tell(qn_counting *c, counting_teller *teller)
{
    c->tell = teller;
    c->told_ns = clock_now_ns();
}

static bool is_known(const qn_counting *c, const record_facts *f)
{
    for (int i = 0; i < c->count; i++)
        if (!strcmp(c->items[i].kernel, f->kernel) && !strcmp(c->items[i].device, f->device) &&
            !strcmp(c->items[i].shapes, f->shapes ? f->shapes : ""))
            return true;
    return false;
}

static const char *kept_words(qn_counting *c, const char *words)
{
    return arena_copy_text(c->memory, words ? words : "", words ? strlen(words) : 0);
}

static void count(launch_counter *hook, int slot, const record_facts *f, const tile_kernel *k, const array_view *views,
                  launch_again *again, void *user)
{
    qn_counting *c = (qn_counting *)hook;
    const device_slot *s = &c->context->slots[slot];
    if (!f) return;
    lock_take(&c->lock);
    bool fresh = !is_known(c, f), room = c->count < MOST_COUNTED;
    if (fresh && !room) c->left_out++;
    if (!fresh || !room || c->refusals > 2) { /* who is refused thrice is refused for good */
        lock_give(&c->lock);
        return;
    }
    qn_counted *one = &c->items[c->count];
    *one = (qn_counted){.kernel = kept_words(c, f->kernel),
                        .source = owners_source(c->memory, f),
                        .shapes = kept_words(c, f->shapes),
                        .device = kept_words(c, f->device)};
    saved *all = heap_array((size_t)k->param_count + 1, sizeof(saved));
    int saved_count = 0;
    qn_error error, other;
    qn_status status = save(s, k, views, all, &saved_count, &error);
    tell(c, f->kernel);
    if (status == QN_OK) status = count_launch(c, slot, again, user, &one->counters, &error);
    qn_status back = put_back(s, all, saved_count, &other);
    if (status == QN_OK && back != QN_OK) {
        status = back;
        error = other;
    }
    heap_free(all);
    if (status == QN_OK)
        c->count++;
    else if (!c->refusals++)
        c->refusal = error;
    lock_give(&c->lock);
}

/* ---- the public side ---- */

qn_status qn_counting_start(qn_context *context, qn_counting **out, qn_error *error)
{
    HEAP_ENTER(error);
    if (!context || !out) return error_set(error, QN_BAD_CALL, "qn_counting_start: an argument is NULL");
    *out = NULL;
    if (context->counter)
        return error_set(error, QN_BAD_CALL, "qn_counting_start: the context's launches are counted already");
    qn_counting *c = heap_new(sizeof(*c));
    *c = (qn_counting){.hook = {record_identity(), count}, .context = context, .memory = arena_new()};
    pthread_mutex_init(&c->lock, NULL);
    context->counter = &c->hook;
    *out = c;
    return QN_OK;
}

qn_status qn_counting_stop(qn_counting *counting, qn_error *error)
{
    if (!counting) return error_set(error, QN_BAD_CALL, "qn_counting_stop: it is NULL");
    if (counting->context && counting->context->counter == &counting->hook) counting->context->counter = NULL;
    end_session(counting);
    counting->context = NULL;
    return counting->refusals ? error_set(error, counting->refusal.status, "%s", counting->refusal.message) : QN_OK;
}

void qn_counting_free(qn_counting *counting)
{
    if (!counting || heap_is_stopped()) return;
    (void)!qn_counting_stop(counting, NULL);
    pthread_mutex_destroy(&counting->lock);
    arena_free(counting->memory);
    heap_free(counting);
}

int qn_counting_count(const qn_counting *counting)
{
    return counting ? counting->count : 0;
}

const qn_counted *qn_counting_get(const qn_counting *counting, int number)
{
    return counting && number >= 0 && number < counting->count ? &counting->items[number] : NULL;
}

/* ---- as text ---- */

/* What the columns of several kernels are; a GPU's, then a processor's. Stalls: the one that most warps wait for. */
static const char *const columns[][2] = {{"time", "Time"},
                                         {"compute throughput", "Compute"},
                                         {"memory throughput", "Memory"},
                                         {"DRAM throughput", "DRAM"},
                                         {"L2 throughput", "L2"},
                                         {"L1 throughput", "L1"},
                                         {"occupancy achieved", "Occupancy"},
                                         {"tensor pipe", "Tensor pipe"},
                                         {"CPU time", "CPU time"},
                                         {"cycles", "Cycles"},
                                         {"instructions", "Instructions"},
                                         {"cache misses", "Cache misses"},
                                         {"branch misses", "Branch misses"},
                                         {"page faults", "Page faults"}};

static bool is_stall(const char *name)
{
    static const char *const quiet[] = {"stall: none: issued", "stall: another warp was chosen"};
    for (int i = 0; i < COUNT(quiet); i++)
        if (!strcmp(name, quiet[i])) return false;
    return !strncmp(name, "stall: ", 7);
}

static const qn_counter *worst_stall(const qn_counters *c)
{
    const qn_counter *worst = NULL;
    for (int i = 0; i < c->count; i++)
        if (is_stall(c->items[i].name) && !isnan(c->items[i].value) && (!worst || c->items[i].value > worst->value))
            worst = &c->items[i];
    return worst;
}

static const char *title_of(const qn_counted *k)
{
    return k->source && *k->source ? k->source : k->kernel;
}

static void print_one(const qn_counted *k, text *out)
{
    const char *why = NULL;
    text_print(out, "counters of one launch of %s (%s, %d run%s)\n", title_of(k), k->counters.source,
               k->counters.launches, k->counters.launches == 1 ? "" : "s");
    for (int i = 0; i < k->counters.count; i++) {
        const qn_counter *c = &k->counters.items[i];
        if (!c->why)
            text_print(out, "  %-32s %14.6g %s%s\n", c->name, c->value, c->unit,
                       counters_is_beyond(c->unit, c->value) ? COUNTERS_BEYOND : "");
        else
            text_print(out, "  %-32s %s\n", c->name, why && !strcmp(why, c->why) ? "likewise" : (why = c->why));
    }
}

static void print_value(table *t, const qn_counters *c, const char *name)
{
    const qn_counter *found = NULL;
    for (int i = 0; i < c->count; i++)
        if (!strcmp(c->items[i].name, name)) found = &c->items[i];
    text words = {0};
    if (!found || isnan(found->value))
        text_add(&words, "--");
    else if (!strcmp(found->unit, "ns"))
        text_add_duration(&words, found->value);
    else
        text_print(&words, found->value < 1e6 ? "%.1f%s%s" : "%.3g%s%s", found->value,
                   !strcmp(found->unit, "%") ? "%" : "", counters_is_beyond(found->unit, found->value) ? "*" : "");
    table_cell(t, "%s", text_get(&words));
    text_free(&words);
}

static void print_several(const qn_counting *c, text *out)
{
    int shown[COUNT(columns)], count = 0;
    bool stalls = false;
    for (int k = 0; k < COUNT(columns); k++) {
        bool any = false;
        for (int i = 0; i < c->count; i++) any |= !isnan(qn_counters_find(&c->items[i].counters, columns[k][0]));
        if (any) shown[count++] = k;
    }
    for (int i = 0; i < c->count; i++) stalls |= worst_stall(&c->items[i].counters) != NULL;
    table t;
    table_open(&t, count + 2 + stalls);
    t.left[count + 1] = t.left[count + 1 + stalls] = true;
    table_cell(&t, "counters of a launch");
    for (int k = 0; k < count; k++) table_cell(&t, "%s", columns[shown[k]][1]);
    if (stalls) table_cell(&t, "Warps wait for");
    table_cell(&t, "Kernel");
    for (int i = 0; i < c->count; i++) {
        const qn_counter *stall = worst_stall(&c->items[i].counters);
        table_cell(&t, "%s", title_of(&c->items[i]));
        for (int k = 0; k < count; k++) print_value(&t, &c->items[i].counters, columns[shown[k]][0]);
        if (stalls) table_cell(&t, "%s", stall ? stall->name + 7 : "--");
        table_cell(&t, "%s", c->items[i].kernel);
    }
    table_print(&t, false, out);
    table_close(&t);
    bool beyond = false;
    for (int i = 0; i < c->count; i++)
        for (int k = 0; k < c->items[i].counters.count; k++)
            beyond |= counters_is_beyond(c->items[i].counters.items[k].unit, c->items[i].counters.items[k].value);
    if (beyond) text_add(out, COUNTERS_BEYOND "\n");
    text_print(out, "%s: of each kernel its first launch with each shape; --counters-json FILE has all of them\n",
               c->items[0].counters.source);
}

static void print_json(const qn_counting *c, text *out)
{
    json j = {0};
    for (int i = 0; i < c->count; i++)
        for (int k = 0; k < c->items[i].counters.count; k++) {
            const qn_counted *one = &c->items[i];
            const qn_counter *counter = &one->counters.items[k];
            json_open_object(&j);
            json_text(&j, "kernel", one->kernel);
            json_text(&j, "source", one->source);
            json_text(&j, "shapes", one->shapes);
            json_text(&j, "device", one->device);
            json_text(&j, "counted_by", one->counters.source);
            json_text(&j, "counter", counter->name);
            json_text(&j, "unit", counter->unit);
            json_number(&j, "value", counter->value);
            json_text(&j, "why", counter->why);
            json_close_object(&j);
        }
    text_add(out, json_finish(&j));
    json_free(&j);
}

void qn_counting_print(const qn_counting *c, bool as_json, qn_write *write, void *user)
{
    if (!c || !write || heap_is_stopped()) return;
    text out = {0};
    if (as_json)
        print_json(c, &out);
    else if (c->refusals && !c->count)
        text_print(&out, "counters\n  %s\n", c->refusal.message);
    else if (!c->count)
        text_add(&out, "counters\n  no kernel of Quern ran\n");
    else if (c->count == 1)
        print_one(&c->items[0], &out);
    else
        print_several(c, &out);
    if (!as_json && c->count && c->refusals)
        text_print(&out, "%d kernel%s could not be counted: %s\n", c->refusals, c->refusals == 1 ? "" : "s",
                   c->refusal.message);
    if (!as_json && c->left_out)
        text_print(&out, "%d more kernels were not counted: at most %d are\n", c->left_out, MOST_COUNTED);
    write(user, text_get(&out), out.length);
    text_free(&out);
}
