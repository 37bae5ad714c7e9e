/*
 * The tree of a model. In: parents and names. Out: nodes with children, parameters and buffers that are found by path,
 * matched by pattern, frozen, counted and run. A name is met once among the children and tensors of one node, so that a
 * path names one thing.
 * SPDX-License-Identifier: MIT
 */
#include "model/model.h"

#include <fnmatch.h>
#include <quern/profile.h>
#include <string.h>

/* ---- names ---- */

static bool name_good(const char *name)
{
    size_t length = strlen(name);
    return length > 0 && length < 200 &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == length;
}

static qn_model *child_named(const qn_model *model, const char *name, size_t length)
{
    for (int i = 0; i < model->child_count; i++)
        if (strlen(model->children[i]->name) == length && !memcmp(model->children[i]->name, name, length))
            return model->children[i];
    return NULL;
}

static model_tensor *tensor_named(const qn_model *model, const char *name)
{
    for (int i = 0; i < model->tensor_count; i++)
        if (!strcmp(model->tensors[i].name, name)) return &model->tensors[i];
    return NULL;
}

static bool name_free(const qn_model *model, const char *label, const char *name)
{
    graph *g = model->tape->graph;
    if (!name_good(name)) return graph_fail(g, label, "`%.100s` is no name: letters, digits, `_` and `-`", name), false;
    if (child_named(model, name, strlen(name)) || tensor_named(model, name))
        return graph_fail(g, label, "`%s` has a `%s` already", *model->path ? model->path : "the model", name), false;
    return true;
}

static const char *path_below(const qn_model *model, const char *name)
{
    return *model->path ? arena_print(model->memory, "%s.%s", model->path, name)
                        : arena_copy_text(model->memory, name, strlen(name));
}

const char *model_relative(const qn_model *model, const char *path)
{
    return *model->path ? path + strlen(model->path) + 1 : path;
}

/* ---- nodes ---- */

static qn_tensor forward_in_order(qn_model *self, const qn_tensor *inputs, int count, void *user)
{
    (void)user;
    if (!self->child_count && count > 0) return inputs[0];
    qn_tensor x = qn_model_forward_many(self->children[0], inputs, count);
    for (int i = 1; i < self->child_count; i++) x = qn_model_forward(self->children[i], x);
    return x;
}

qn_model *qn_model_new(qn_tape *tape, uint64_t seed)
{
    if (!tape_enter(tape, "model")) return NULL;
    arena *memory = arena_new();
    qn_model *self = ARENA_NEW(memory, qn_model);
    *self = (qn_model){.root = self,
                       .memory = memory,
                       .tape = tape,
                       .seed = seed,
                       .name = "",
                       .path = "",
                       .label = "sequential",
                       .type = QN_F32,
                       .training = true,
                       .forward = forward_in_order};
    return self;
}

static void release_tensor(void *user, model_tensor *t)
{
    (void)user;
    tape_forget(t->value);
}

void qn_model_free(qn_model *root)
{
    if (!root || heap_is_stopped()) return;
    root = root->root;
    model_each(root, release_tensor, NULL);
    arena_free(root->memory);
}

qn_model *model_layer(qn_model *parent, const char *name, const char *label, qn_forward *forward, const void *facts,
                      size_t facts_bytes)
{
    if (!parent || !tape_enter(parent->tape, label)) return NULL;
    char number[16];
    snprintf(number, sizeof(number), "%d", parent->child_count);
    if (!name) name = number;
    if (parent->tape->graph->status || !name_free(parent, label, name)) return NULL;
    qn_model *self = ARENA_NEW(parent->memory, qn_model);
    *self = (qn_model){.root = parent->root,
                       .parent = parent,
                       .memory = parent->memory,
                       .tape = parent->tape,
                       .seed = parent->seed,
                       .path = path_below(parent, name),
                       .label = label,
                       .type = parent->type,
                       .training = parent->training,
                       .forward = forward};
    self->name = model_relative(parent, self->path);
    if (facts_bytes) {
        self->user = arena_alloc(parent->memory, facts_bytes);
        memcpy(self->user, facts, facts_bytes);
    }
    ARENA_PUSH(parent->memory, parent->children, parent->child_count, parent->child_capacity, self);
    return self;
}

qn_model *qn_model_child(qn_model *parent, const char *name)
{
    return model_layer(parent, name, "sequential", forward_in_order, NULL, 0);
}

void qn_model_set_forward(qn_model *model, const char *label, qn_forward *forward, void *user)
{
    if (!model || !forward) return;
    model->forward = forward;
    model->user = user;
    model->label = label ? arena_copy_text(model->memory, label, strlen(label)) : "own";
}

void qn_model_set_type(qn_model *model, qn_dtype type)
{
    if (!model || !tape_enter(model->tape, "model")) return;
    if ((unsigned)type < DT_COUNT && dtype_is_float((dtype)type))
        model->type = type;
    else
        graph_fail(model->tape->graph, "model", "parameters are floats, not %s",
                   (unsigned)type < DT_COUNT ? dtypes[type].text : "of that type");
}

qn_model *qn_model_find(qn_model *model, const char *path)
{
    while (model && path && *path) {
        size_t length = strcspn(path, ".");
        model = child_named(model, path, length);
        path += length + (path[length] == '.');
    }
    return model;
}

const char *qn_model_path(const qn_model *model)
{
    return model ? model->path : "";
}

qn_tape *qn_model_tape(const qn_model *model)
{
    return model ? model->tape : NULL;
}

int qn_model_child_count(const qn_model *model)
{
    return model ? model->child_count : 0;
}

qn_model *qn_model_child_at(qn_model *model, int number)
{
    return model && number >= 0 && number < model->child_count ? model->children[number] : NULL;
}

void qn_model_train(qn_model *model, bool training)
{
    if (!model) return;
    model->training = training;
    for (int i = 0; i < model->child_count; i++) qn_model_train(model->children[i], training);
}

bool qn_model_training(const qn_model *model)
{
    return model && model->training;
}

/* ---- running ---- */

qn_tensor qn_model_forward_many(qn_model *model, const qn_tensor *inputs, int count)
{
    if (!model) {
        for (int i = 0; i < count && inputs; i++)
            if (tape_enter(inputs[i].tape, "forward"))
                return graph_fail(inputs[i].tape->graph, "forward", "the model is NULL"), (qn_tensor){0};
        return (qn_tensor){0};
    }
    if (model->tape->graph->status || !tape_array(model->tape, "forward", inputs, count)) return (qn_tensor){0};
    qn_range_push(*model->name ? model->name : "model");
    qn_tensor y = model->forward(model, inputs, count, model->user);
    qn_range_pop();
    return y;
}

qn_tensor qn_model_forward(qn_model *model, qn_tensor x)
{
    return qn_model_forward_many(model, &x, 1);
}

/* ---- tensors ---- */

/* The variable becomes one of the outermost scope, and a tensor of the model. */
static qn_tensor add_tensor(qn_model *model, const char *name, qn_tensor initial, model_tensor facts)
{
    qn_tape *tape = model->tape;
    if (!tape_slot_of(initial)) return (qn_tensor){0};
    int scope = tape->scope;
    tape->scope = 0;
    facts.value = qn_variable(initial);
    tape->scope = scope;
    if (!tape_slot_of(facts.value)) return (qn_tensor){0};
    facts.path = path_below(model, name);
    facts.name = model_relative(model, facts.path);
    facts.owner = model;
    ARENA_PUSH(model->memory, model->tensors, model->tensor_count, model->tensor_capacity, facts);
    return facts.value;
}

qn_tensor model_parameter(qn_model *model, const char *name, qn_shape shape, qn_init init, bool turned)
{
    if (!model || !name || !tape_enter(model->tape, "parameter")) return (qn_tensor){0};
    if (model->tape->graph->status || !name_free(model, "parameter", name)) return (qn_tensor){0};
    qn_tensor initial = model_initial(model->tape, model->seed, path_below(model, name), model->type, shape, init);
    qn_tensor value = add_tensor(model, name, initial, (model_tensor){.init = init, .turned = turned});
    tape_forget(initial);
    return value;
}

qn_tensor qn_model_parameter(qn_model *model, const char *name, qn_shape shape, qn_init init)
{
    return model_parameter(model, name, shape, init, false);
}

qn_tensor qn_model_buffer(qn_model *model, const char *name, qn_tensor initial)
{
    if (!model || !name || !tape_enter(model->tape, "buffer")) return (qn_tensor){0};
    if (model->tape->graph->status || !tape_node(model->tape, "buffer", initial) || !name_free(model, "buffer", name))
        return (qn_tensor){0};
    return add_tensor(model, name, initial, (model_tensor){.buffer = true});
}

void model_set_parts(qn_model *model, const char *name, const model_part *parts, int count)
{
    model_tensor *t = tensor_named(model, name);
    if (!t) return;
    model_part *copies = ARENA_ARRAY(model->memory, model_part, count);
    for (int i = 0; i < count; i++) copies[i] = (model_part){path_below(model, parts[i].path), parts[i].rows};
    t->parts = copies;
    t->part_count = count;
}

qn_tensor model_tensor_of(const qn_model *model, const char *name)
{
    const model_tensor *t = tensor_named(model, name);
    return t ? t->value : (qn_tensor){0};
}

void model_each(qn_model *model, model_visit *visit, void *user)
{
    for (int i = 0; i < model->tensor_count; i++) visit(user, &model->tensors[i]);
    for (int i = 0; i < model->child_count; i++) model_each(model->children[i], visit, user);
}

qn_tensor qn_model_get(qn_model *model, const char *path)
{
    while (model && path) {
        const char *dot = strchr(path, '.');
        if (!dot) return model_tensor_of(model, path);
        model = child_named(model, path, (size_t)(dot - path));
        path = dot + 1;
    }
    return (qn_tensor){0};
}

typedef struct listing {
    qn_model *model;
    qn_parameter *out;
    int count, room;
    int64_t trained, all;
} listing;

static void list_one(void *user, model_tensor *t)
{
    listing *l = user;
    bool trained = !t->buffer && !t->frozen;
    if (l->count < l->room)
        l->out[l->count] =
            (qn_parameter){model_relative(l->model, t->path), t->owner->label, t->value, trained, t->buffer};
    l->count++;
    int64_t count = t->buffer ? 0 : qn_tensor_count(t->value);
    l->all += count;
    if (trained) l->trained += count;
}

int qn_model_list(qn_model *model, qn_parameter *out, int room)
{
    listing l = {.model = model, .out = out, .room = out ? room : 0};
    if (model) model_each(model, list_one, &l);
    return l.count;
}

int64_t qn_model_count(qn_model *model, bool trained_only)
{
    listing l = {.model = model};
    if (model) model_each(model, list_one, &l);
    return trained_only ? l.trained : l.all;
}

/* ---- patterns ---- */

typedef struct matching {
    qn_model *model;
    const char *pattern, *label;
    int met;
    bool freeze, frozen;
    qn_init init;
} matching;

static void match_one(void *user, model_tensor *t)
{
    matching *m = user;
    if (t->buffer || fnmatch(m->pattern, model_relative(m->model, t->path), 0)) return;
    m->met++;
    if (m->freeze) {
        t->frozen = m->frozen;
        return;
    }
    t->init = m->init;
    qn_tensor initial = model_initial(m->model->tape, m->model->seed, t->path, qn_tensor_dtype(t->value),
                                      qn_tensor_shape(t->value), m->init);
    qn_assign(t->value, initial);
    tape_forget(initial);
}

static int match(qn_model *model, matching *m)
{
    if (!model || !tape_enter(model->tape, m->label) || model->tape->graph->status) return 0;
    if (!m->pattern) return graph_fail(model->tape->graph, m->label, "the pattern is NULL"), 0;
    m->model = model;
    model_each(model, match_one, m);
    if (!m->met)
        graph_fail(model->tape->graph, m->label, "no parameter matches `%s`; qn_model_print shows their names",
                   m->pattern);
    return m->met;
}

int qn_model_freeze(qn_model *model, const char *pattern, bool frozen)
{
    return match(model, &(matching){.pattern = pattern, .label = "freeze", .freeze = true, .frozen = frozen});
}

int qn_model_init(qn_model *model, const char *pattern, qn_init init)
{
    return match(model, &(matching){.pattern = pattern, .label = "init", .init = init});
}
