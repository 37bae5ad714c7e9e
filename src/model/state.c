/*
 * The state of a model as a safetensors file. Out: parameters and buffers by path; with an optimiser its steps, rates and
 * state and the tape's random numbers, under names with `/`, which no path has. In: the same, compared as a whole before
 * the first byte is written, so that a file that does not fit changes nothing. Tensors go one at a time through memory
 * of the largest; matrices [in][out] are turned to PyTorch's [out][in] on the way. A variable that files hold as several
 * tensors (tables in one, rows that only fill up) is several items, one after the other.
 * SPDX-License-Identifier: MIT
 */
#include "data/safetensors.h"
#include "model/model.h"

#include <stdlib.h>
#include <string.h>

#define MESSAGE_TENSORS 8 /* of those that do not fit, by name */

/* What is saved: a variable, or some rows of it, under a name. */
typedef struct item {
    const char *name;
    qn_tensor value;
    int64_t from, rows; /* rows -1: all of it */
    bool turned;
    bool of_optimizer;
} item;

typedef struct state {
    arena *memory;
    qn_model *model;
    qn_optimizer *optimizer;
    const char *adapter; /* of this one alone; NULL: all */
    item *items;
    int count, capacity;
} state;

static void add_part(state *s, item one)
{
    ARENA_PUSH(s->memory, s->items, s->count, s->capacity, one);
}

static void add_item(state *s, const char *name, qn_tensor value, bool turned, bool of_optimizer)
{
    add_part(s, (item){name, value, 0, -1, turned, of_optimizer});
}

/* Its path; of an adapter that is alone in the file, without the adapter's name: in.lora_A.weight. */
static const char *name_in_file(const state *s, const model_tensor *t)
{
    const char *path = model_relative(s->model, t->path);
    if (!s->adapter) return path;
    size_t end = strlen(t->name) + 1, cut = end + strlen(t->adapter) + 1;
    return arena_print(s->memory, "%.*s.%s", (int)(strlen(path) - cut), path, t->name);
}

static void add_tensor(void *user, model_tensor *t)
{
    state *s = user;
    if (s->adapter && (!t->adapter || strcmp(t->adapter, s->adapter) != 0)) return;
    if (!t->part_count) add_item(s, name_in_file(s, t), t->value, t->turned, false);
    int64_t from = 0;
    for (int i = 0; i < t->part_count; from += t->parts[i++].rows)
        add_part(
            s, (item){model_relative(s->model, t->parts[i].path), t->value, from, t->parts[i].rows, t->turned, false});
}

static bool same_value(qn_tensor a, qn_tensor b)
{
    return a.slot == b.slot && a.stamp == b.stamp;
}

/* One state of a parameter, in the parts that the parameter has; false: the parameter is none of the model's. */
static bool add_state(state *s, int parameter, int which, int model_items)
{
    bool met = false;
    qn_tensor of = qn_optimizer_parameter(s->optimizer, parameter);
    const char *kind = qn_optimizer_state_name(s->optimizer, parameter, which);
    for (int i = 0; i < model_items; i++) {
        item one = s->items[i];
        if (!same_value(one.value, of)) continue;
        met = true;
        if (!kind) break;
        one.value = qn_optimizer_state(s->optimizer, parameter, which);
        one.name = arena_print(s->memory, "optimizer/%s/%s", one.name, kind);
        one.turned = one.turned && qn_tensor_rank(one.value) == 2;
        one.of_optimizer = true;
        add_part(s, one);
    }
    return met;
}

static qn_status add_optimizer(state *s, qn_error *error)
{
    qn_optimizer *o = s->optimizer;
    int model_items = s->count;
    add_item(s, "optimizer/steps", qn_optimizer_steps(o), false, true);
    for (int i = 0; i < qn_optimizer_group_count(o); i++)
        add_item(s, arena_print(s->memory, "optimizer/rate/%d", i), qn_optimizer_group_rate(o, i), false, true);
    for (int i = 0; i < qn_optimizer_count(o); i++) {
        if (!add_state(s, i, 0, model_items))
            return error_set(error, QN_BAD_CALL, "parameter %d of the optimizer is none of the model's", i);
        for (int k = 1; qn_optimizer_state_name(o, i, k); k++) add_state(s, i, k, model_items);
    }
    add_item(s, "random/state", qn_random_state(s->model->tape), false, true);
    return QN_OK;
}

static qn_status collect(state *s, qn_model *model, qn_optimizer *optimizer, const char *adapter, qn_error *error)
{
    *s = (state){.memory = arena_new(), .model = model, .optimizer = optimizer, .adapter = adapter};
    model_each(model, add_tensor, s);
    qn_status status = optimizer ? add_optimizer(s, error) : QN_OK;
    for (int i = 0; i < s->count && !status; i++)
        if (!qn_tensor_valid(s->items[i].value))
            status = error_set(error, QN_BAD_CALL, "the tensor `%s` was released", s->items[i].name);
    return status;
}

/* As the file has it; data is not there yet. */
static qn_safetensor described(const item *one)
{
    qn_shape s = qn_tensor_shape(one->value);
    qn_safetensor t = {.name = one->name, .type = qn_tensor_dtype(one->value), .rank = s.rank};
    if (one->rows >= 0) s.extents[0] = one->rows;
    t.size_bytes = qn_dtype_size_bytes(t.type);
    for (int k = 0; k < s.rank; k++) {
        t.extents[k] = s.extents[one->turned ? s.rank - 1 - k : k];
        t.size_bytes *= (size_t)s.extents[k];
    }
    return t;
}

static size_t whole_bytes(const item *one)
{
    return (size_t)qn_tensor_count(one->value) * qn_dtype_size_bytes(qn_tensor_dtype(one->value));
}

/* Where the item begins in its variable. */
static size_t offset_bytes(const item *one)
{
    return one->from ? whole_bytes(one) / (size_t)qn_tensor_extent(one->value, 0) * (size_t)one->from : 0;
}

/* [rows][columns] to [columns][rows], in blocks that stay in the cache. */
static void turn(char *to, const char *from, int64_t rows, int64_t columns, size_t size)
{
    enum { BLOCK = 32 };
    for (int64_t r = 0; r < rows; r += BLOCK)
        for (int64_t c = 0; c < columns; c += BLOCK)
            for (int64_t i = r; i < MINIMUM(r + BLOCK, rows); i++)
                for (int64_t j = c; j < MINIMUM(c + BLOCK, columns); j++)
                    memcpy(to + (size_t)(j * rows + i) * size, from + (size_t)(i * columns + j) * size, size);
}

/* Memory for the largest tensor, twice. */
typedef struct room {
    char *data, *turned;
} room;

static qn_status room_open(room *r, size_t most, qn_error *error)
{
    r->data = malloc(most + 1);
    r->turned = malloc(most + 1);
    if (r->data && r->turned) return QN_OK;
    return error_set(error, QN_NO_MEMORY, "no memory for a tensor of %zu bytes", most);
}

static void room_close(room *r)
{
    heap_free(r->data);
    heap_free(r->turned);
}

/* ---- saving ---- */

static qn_status write_items(const state *s, const qn_safetensor *tensors, const int *order, file_aside *file, room *r,
                             qn_error *error)
{
    for (int i = 0; i < s->count; i++) {
        const item *one = &s->items[order[i]];
        const qn_safetensor *t = &tensors[order[i]];
        if (!i || !same_value(one->value, s->items[order[i - 1]].value))
            QN_TRY(qn_tensor_read(one->value, r->data, whole_bytes(one), error));
        const char *data = r->data + offset_bytes(one);
        if (one->turned) turn(r->turned, data, t->extents[1], t->extents[0], qn_dtype_size_bytes(t->type));
        QN_TRY(file_append(file, one->turned ? r->turned : data, t->size_bytes, error));
    }
    return QN_OK;
}

static qn_status save(const state *s, const char *const *metadata, const char *path, qn_error *error)
{
    qn_safetensor *tensors = ARENA_ARRAY(s->memory, qn_safetensor, s->count + 1);
    int *order = ARENA_ARRAY(s->memory, int, s->count + 1);
    for (int i = 0; i < s->count; i++) tensors[i] = described(&s->items[i]);
    room r = {0};
    size_t most = 0;
    for (int i = 0; i < s->count; i++) most = MAXIMUM(most, whole_bytes(&s->items[i]));
    file_aside *file = NULL;
    qn_status status = room_open(&r, most, error);
    if (!status) status = qn_eval(s->model->tape, NULL, 0, error); /* what is pending belongs to the state */
    if (!status) status = safetensors_begin(path, tensors, s->count, metadata, &file, order, error);
    if (!status) status = write_items(s, tensors, order, file, &r, error);
    if (file) status = file_finish(file, status, error);
    room_close(&r);
    return status;
}

static qn_status save_model(qn_model *model, qn_optimizer *optimizer, const char *adapter, const char *const *metadata,
                            const char *path, qn_error *error)
{
    if (!model || !path) return error_set(error, QN_BAD_CALL, "qn_model_save: an argument is NULL");
    state s;
    qn_status status = collect(&s, model, optimizer, adapter, error);
    if (!status) status = save(&s, metadata, path, error);
    arena_free(s.memory);
    return status;
}

qn_status qn_model_save(qn_model *model, qn_optimizer *optimizer, const char *const *metadata, const char *path,
                        qn_error *error)
{
    HEAP_ENTER(error);
    return save_model(model, optimizer, NULL, metadata, path, error);
}

qn_status model_save_adapter(qn_model *model, const char *adapter, const char *const *metadata, const char *path,
                             qn_error *error)
{
    return save_model(model, NULL, adapter, metadata, path, error);
}

/* ---- loading ---- */

/* Lines about tensors, the first few by name. */
typedef struct complaints {
    text words;
    int count;
} complaints;

static void complain(complaints *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void complain(complaints *c, const char *format, ...)
{
    if (c->count++ >= MESSAGE_TENSORS) return;
    va_list list;
    va_start(list, format);
    text_add(&c->words, "\n  ");
    text_print_list(&c->words, format, list);
    va_end(list);
}

static void add_shape(text *out, const qn_safetensor *t)
{
    text_print(out, "%s [", qn_dtype_name(t->type));
    for (int k = 0; k < t->rank; k++) text_print(out, "%s%lld", k ? ", " : "", (long long)t->extents[k]);
    text_add(out, "]");
}

static bool same_shape(const qn_safetensor *a, const qn_safetensor *b)
{
    bool same = a->rank == b->rank;
    for (int k = 0; k < a->rank && same; k++) same = a->extents[k] == b->extents[k];
    return same;
}

static bool is_float(qn_dtype type)
{
    return dtype_is_float((dtype)type);
}

static void compare_item(const item *one, const qn_safetensor *in_file, const qn_load_options *o, complaints *c)
{
    qn_safetensor wanted = described(one);
    if (!in_file) {
        if (!o->allow_missing) complain(c, "`%s` is missing", one->name);
        return;
    }
    bool types = wanted.type == in_file->type || (o->convert && is_float(wanted.type) && is_float(in_file->type));
    if (types && same_shape(&wanted, in_file)) return;
    text a = {0}, b = {0};
    add_shape(&a, in_file);
    add_shape(&b, &wanted);
    complain(c, "`%s` is %s in the file and %s in the model", one->name, text_get(&a), text_get(&b));
    text_free(&a);
    text_free(&b);
}

/* A tensor of the file that nothing asked for. */
static bool unexpected(const state *s, const char *name)
{
    if (!s->optimizer && (!strncmp(name, "optimizer/", 10) || !strncmp(name, "random/", 7))) return false;
    for (int i = 0; i < s->count; i++)
        if (!strcmp(s->items[i].name, name)) return false;
    return true;
}

static qn_status compare(const state *s, const qn_safetensors *file, const char *path, const qn_load_options *o,
                         qn_error *error)
{
    complaints c = {0};
    for (int i = 0; i < s->count; i++) {
        int at = qn_safetensors_find(file, s->items[i].name);
        compare_item(&s->items[i], at < 0 ? NULL : qn_safetensors_get(file, at), o, &c);
    }
    for (int i = 0; i < qn_safetensors_count(file) && !o->allow_unexpected; i++) {
        const char *name = qn_safetensors_get(file, i)->name;
        if (unexpected(s, name)) complain(&c, "`%.200s` is unexpected: the model has no such tensor", name);
    }
    qn_status status = QN_OK;
    if (c.count > MESSAGE_TENSORS) text_print(&c.words, "\n  and %d more", c.count - MESSAGE_TENSORS);
    if (c.count)
        status = error_set(error, QN_BAD_FILE, "%s does not fit the model, and nothing was loaded:%s", path,
                           text_get(&c.words));
    text_free(&c.words);
    return status;
}

/* Elements of another type of floats, through double. */
static void convert(char *to, qn_dtype to_type, const char *from, qn_dtype from_type, int64_t count)
{
    size_t to_size = qn_dtype_size_bytes(to_type), from_size = qn_dtype_size_bytes(from_type);
    for (int64_t i = 0; i < count; i++) {
        number x = element_read((dtype)from_type, from + (size_t)i * from_size);
        element_write((dtype)to_type, to + (size_t)i * to_size, x);
    }
}

/* One item of the file into `whole`, the memory of its variable. */
static qn_status load_item(const item *one, const qn_safetensors *file, int at, char *whole, qn_error *error)
{
    const qn_safetensor *in_file = qn_safetensors_get(file, at);
    qn_safetensor wanted = described(one);
    room r = {0};
    qn_status status = room_open(&r, MAXIMUM(in_file->size_bytes, wanted.size_bytes), error);
    if (!status) status = qn_safetensors_read(file, at, r.data, in_file->size_bytes, error);
    char *data = r.data;
    size_t size = qn_dtype_size_bytes(wanted.type);
    if (!status && wanted.type != in_file->type) {
        convert(r.turned, wanted.type, data, in_file->type, (int64_t)(wanted.size_bytes / size));
        data = r.turned;
    }
    if (!status && one->turned)
        turn(whole + offset_bytes(one), data, wanted.extents[0], wanted.extents[1], size);
    else if (!status)
        memcpy(whole + offset_bytes(one), data, wanted.size_bytes);
    room_close(&r);
    return status;
}

/* All items of one variable. Rows that no file has are zeros; of what a file lacks, the variable keeps its own. */
static qn_status load_variable(const item *items, int count, const qn_safetensors *file, qn_error *error)
{
    int present = 0;
    for (int i = 0; i < count; i++) present += qn_safetensors_find(file, items[i].name) >= 0;
    if (!present) return QN_OK;
    size_t size = whole_bytes(items);
    char *whole = calloc(size + 1, 1);
    if (!whole) return error_set(error, QN_NO_MEMORY, "no memory for a tensor of %zu bytes", size);
    qn_status status = present < count ? qn_tensor_read(items->value, whole, size, error) : QN_OK;
    for (int i = 0; i < count && !status; i++) {
        int at = qn_safetensors_find(file, items[i].name);
        if (at >= 0) status = load_item(&items[i], file, at, whole, error);
    }
    if (!status) status = qn_tensor_write(items->value, whole, size, error);
    free(whole);
    return status;
}

static qn_status load_model(qn_model *model, qn_optimizer *optimizer, const char *adapter, const char *path,
                            const qn_load_options *options, qn_error *error)
{
    if (!model || !path) return error_set(error, QN_BAD_CALL, "qn_model_load: an argument is NULL");
    qn_load_options o = options ? *options : (qn_load_options){0};
    qn_safetensors *file;
    QN_TRY(qn_tape_error(model->tape, error));
    QN_TRY(qn_safetensors_open(path, &file, error));
    state s;
    qn_status status = collect(&s, model, optimizer, adapter, error);
    if (!status) status = compare(&s, file, path, &o, error);
    for (int i = 0, of; i < s.count && !status; i += of) {
        for (of = 1; i + of < s.count && same_value(s.items[i].value, s.items[i + of].value);) of++;
        status = load_variable(&s.items[i], of, file, error);
    }
    arena_free(s.memory);
    qn_safetensors_close(file);
    return status;
}

qn_status qn_model_load(qn_model *model, qn_optimizer *optimizer, const char *path, const qn_load_options *options,
                        qn_error *error)
{
    HEAP_ENTER(error);
    return load_model(model, optimizer, NULL, path, options, error);
}

qn_status model_load_adapter(qn_model *model, const char *adapter, const char *path, const qn_load_options *options,
                             qn_error *error)
{
    return load_model(model, NULL, adapter, path, options, error);
}
