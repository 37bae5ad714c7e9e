/*
 * Adapters of low rank on linear layers. In: a layer, names, an index of rows. Out: what the layer adds to its product, as
 * calls of <quern/tensor.h>, so that alpha, bias and activation become the end of a product's kernel. Rows of several
 * adapters go through one product with all their A side by side; what is not a row's own is set to zero before the
 * product with all B, so rows are neither sorted nor gathered. Invariants: a merged layer has one adapter in use and adds
 * nothing; tensors of adapters carry the adapter's name, and freezing the base passes them over.
 * SPDX-License-Identifier: MIT
 */
#include "model/model.h"

#include <fnmatch.h>
#include <math.h>
#include <quern/lora.h>
#include <quern/safetensors.h>
#include <string.h>

typedef struct adapter {
    const char *name;
    qn_tensor a, b;
    int64_t rank;
    double alpha, dropout;
} adapter;

#define MOST_USED 64 /* adapters that one batch may choose from */

struct model_lora {
    adapter *list;
    int count, capacity;
    int used[MOST_USED]; /* numbers in list */
    int used_count;
    bool by_row, merged; /* by_row: index says which of those used */
    qn_tensor index;
};

static adapter *adapter_named(const qn_model *layer, const char *name)
{
    for (int i = 0; layer->lora && i < layer->lora->count; i++)
        if (!strcmp(layer->lora->list[i].name, name)) return &layer->lora->list[i];
    return NULL;
}

/* ---- running ---- */

/* For each row, alpha at the columns of its own adapter and 0 at the others. */
static qn_tensor strengths(const qn_model *self, qn_tensor x)
{
    const struct model_lora *l = self->lora;
    qn_tape *tape = self->tape;
    qn_shape at = qn_tensor_shape(l->index), given = qn_tensor_shape(x);
    bool fits = at.rank < given.rank;
    for (int k = 0; k < at.rank && fits; k++) fits = at.extents[k] == given.extents[k];
    if (!fits)
        return graph_fail(tape->graph, "lora", "`%s`: the index that chooses adapters has not the leading axes of x",
                          self->path),
               (qn_tensor){0};
    for (; at.rank < given.rank; at.rank++) at.extents[at.rank] = 1;
    qn_tensor owners[MOST_USED], alphas[MOST_USED];
    for (int i = 0; i < l->used_count; i++) {
        const adapter *one = &l->list[l->used[i]];
        owners[i] = qn_full(tape, QN_I64, QN_SHAPE(one->rank), i);
        alphas[i] = qn_full(tape, QN_F32, QN_SHAPE(one->rank), one->alpha);
    }
    qn_tensor own = qn_eq(qn_reshape(qn_cast(l->index, QN_I64), at), qn_concat(owners, l->used_count, 0));
    return qn_where(own, qn_concat(alphas, l->used_count, 0), qn_scalar(tape, QN_F32, 0));
}

static qn_tensor add_by_row(const qn_model *self, qn_tensor x, qn_tensor y)
{
    const struct model_lora *l = self->lora;
    if (!tape_slot_of(l->index))
        return graph_fail(self->tape->graph, "lora", "`%s`: the index that chooses adapters was released", self->path),
               (qn_tensor){0};
    qn_tensor as[MOST_USED], bs[MOST_USED];
    for (int i = 0; i < l->used_count; i++) {
        as[i] = l->list[l->used[i]].a;
        bs[i] = l->list[l->used[i]].b;
    }
    qn_tensor low = qn_matmul(x, qn_concat(as, l->used_count, 1)), strength = strengths(self, x);
    if (!tape_slot_of(strength)) return (qn_tensor){0};
    low = qn_cast(qn_mul(low, strength), qn_tensor_dtype(low));
    return qn_add(y, qn_matmul(low, qn_concat(bs, l->used_count, 0)));
}

qn_tensor model_lora_add(const qn_model *self, qn_tensor x, qn_tensor y)
{
    const struct model_lora *l = self->lora;
    if (!l || l->merged || !l->used_count) return y;
    const adapter *one = &l->list[l->used[0]];
    if (self->training && one->dropout > 0) x = qn_dropout(x, one->dropout);
    if (l->by_row) return add_by_row(self, x, y);
    return qn_add(y, qn_mul_scalar(qn_matmul(qn_matmul(x, one->a), one->b), one->alpha));
}

/* ---- adding ---- */

static qn_tensor forward_alone(qn_model *self, const qn_tensor *inputs, int count, void *user)
{
    (void)inputs, (void)count, (void)user;
    return graph_fail(self->tape->graph, "lora", "`%s` runs with its layer, not alone", self->path), (qn_tensor){0};
}

/* layer.SIDE.NAME.weight */
static qn_tensor add_side(qn_model *layer, const char *side, const char *name, qn_shape shape, qn_init init)
{
    qn_model *all = qn_model_find(layer, side);
    if (!all) all = model_layer(layer, side, "lora", forward_alone, NULL, 0);
    qn_model *one = model_layer(all, name, "lora", forward_alone, NULL, 0);
    qn_tensor value = model_parameter(one, "weight", shape, init, true);
    if (tape_slot_of(value)) one->tensors[0].adapter = one->name;
    return value;
}

static void use(struct model_lora *l, const int *numbers, int count)
{
    memcpy(l->used, numbers, sizeof(int) * (size_t)count);
    l->used_count = count;
    l->by_row = false;
}

static bool add_to(qn_model *layer, const char *name, const qn_lora_options *o)
{
    qn_shape weight = qn_tensor_shape(model_tensor_of(layer, "weight"));
    adapter one = {.rank = o->rank, .alpha = o->alpha, .dropout = o->dropout};
    qn_init normal = qn_init_normal(0, 1 / sqrt((double)o->rank));
    one.a = add_side(layer, "lora_A", name, QN_SHAPE(weight.extents[0], o->rank), normal);
    one.b = add_side(layer, "lora_B", name, QN_SHAPE(o->rank, weight.extents[1]), qn_init_constant(0));
    if (!tape_slot_of(one.a) || !tape_slot_of(one.b)) return false;
    one.name = arena_copy_text(layer->memory, name, strlen(name));
    if (!layer->lora) layer->lora = ARENA_NEW(layer->memory, struct model_lora);
    struct model_lora *l = layer->lora;
    ARENA_PUSH(layer->memory, l->list, l->count, l->capacity, one);
    use(l, &(int){l->count - 1}, 1);
    return true;
}

static void freeze_base(void *user, model_tensor *t)
{
    (void)user;
    if (!t->buffer && !t->adapter) t->frozen = true;
}

/* The linear layers below a model. They are found first and changed afterwards. */
typedef struct layers {
    arena *memory;
    qn_model *model, **list;
    int count, capacity;
} layers;

static void find_layers(layers *all, qn_model *model, const char *pattern)
{
    const char *path = model == all->model ? "" : model_relative(all->model, model->path);
    if (model->forward == model_forward_linear && !fnmatch(pattern, path, 0))
        ARENA_PUSH(all->memory, all->list, all->count, all->capacity, model);
    for (int i = 0; i < model->child_count; i++) find_layers(all, model->children[i], pattern);
}

/* false: the model is NULL or its tape has an error; else layers_close. */
static bool layers_open(layers *all, qn_model *model, const char *pattern)
{
    if (!model || !tape_enter(model->tape, "lora") || model->tape->graph->status) return false;
    *all = (layers){.memory = arena_new(), .model = model};
    find_layers(all, model, pattern);
    return true;
}

static int layers_close(layers *all, int result)
{
    arena_free(all->memory);
    return result;
}

/* The error of a call that changes nothing: 0 layers. */
#define FAIL(model, ...) (graph_fail((model)->tape->graph, "lora", __VA_ARGS__), 0)

static bool none_merged(const layers *all)
{
    for (int i = 0; i < all->count; i++)
        if (all->list[i]->lora && all->list[i]->lora->merged)
            return FAIL(all->model, "`%s` has an adapter in its weights: qn_lora_merge(model, false) first",
                        all->list[i]->path);
    return true;
}

static int add_all(const layers *all, const char *pattern, const char *name, qn_lora_options o)
{
    if (!o.rank) o.rank = 8;
    if (o.alpha == 0) o.alpha = 1;
    if (o.rank < 0 || !isfinite(o.alpha) || !(o.dropout >= 0 && o.dropout < 1))
        return FAIL(all->model, "rank %lld, alpha %g, dropout %g: a rank is positive, a dropout below 1",
                    (long long)o.rank, o.alpha, o.dropout);
    if (!name) return FAIL(all->model, "an adapter has a name");
    if (!all->count) return FAIL(all->model, "no linear layer matches `%s`; qn_model_print shows their names", pattern);
    for (int i = 0; i < all->count; i++)
        if (adapter_named(all->list[i], name))
            return FAIL(all->model, "`%s` has an adapter `%s` already", all->list[i]->path, name);
    if (!none_merged(all)) return 0;
    for (int i = 0; i < all->count; i++)
        if (!add_to(all->list[i], name, &o)) return 0;
    model_each(all->model, freeze_base, NULL);
    return all->count;
}

int qn_lora_add(qn_model *model, const char *pattern, const char *name, const qn_lora_options *options)
{
    layers all;
    if (!pattern) pattern = "*";
    if (!layers_open(&all, model, pattern)) return 0;
    return layers_close(&all, add_all(&all, pattern, name, options ? *options : (qn_lora_options){0}));
}

/* ---- choosing ---- */

/* The numbers that a layer has for the names, -1 where it has none. */
static void numbers_of(const qn_model *layer, const char *const *names, int count, int *numbers)
{
    for (int i = 0; i < count; i++) {
        const adapter *one = names[i] ? adapter_named(layer, names[i]) : NULL;
        numbers[i] = one ? (int)(one - layer->lora->list) : -1;
    }
}

/* Without a name, where there are no adapters there is nothing to do. */
static int use_all(const layers *all, const char *name)
{
    int met = 0;
    if (!none_merged(all)) return 0;
    for (int i = 0; i < all->count; i++) met += all->list[i]->lora && (!name || adapter_named(all->list[i], name));
    if (!met) return name ? FAIL(all->model, "no layer has an adapter `%s`", name) : 0;
    for (int i = 0; i < all->count; i++) {
        int number = -1;
        if (!all->list[i]->lora) continue;
        numbers_of(all->list[i], &name, 1, &number);
        use(all->list[i]->lora, &number, number >= 0);
    }
    return met;
}

int qn_lora_use(qn_model *model, const char *name)
{
    layers all;
    if (!layers_open(&all, model, "*")) return 0;
    return layers_close(&all, use_all(&all, name));
}

static int choose_all(const layers *all, const char *const *names, int count, qn_tensor index)
{
    int met = 0, numbers[MOST_USED];
    if (!none_merged(all)) return 0;
    for (int i = 0; i < all->count; i++) {
        const qn_model *layer = all->list[i];
        if (!layer->lora) continue;
        met++;
        numbers_of(layer, names, count, numbers);
        for (int k = 0; k < count; k++) {
            if (numbers[k] < 0) return FAIL(layer, "`%s` has no adapter `%s`", layer->path, names[k] ? names[k] : "");
            if (layer->lora->list[numbers[k]].dropout != layer->lora->list[numbers[0]].dropout)
                return FAIL(layer, "adapters of `%s` with other rates of dropout cannot share a batch", layer->path);
        }
    }
    if (!met) return FAIL(all->model, "no layer has an adapter");
    for (int i = 0; i < all->count; i++) {
        struct model_lora *l = all->list[i]->lora;
        if (!l) continue;
        numbers_of(all->list[i], names, count, numbers);
        use(l, numbers, count);
        l->by_row = true;
        l->index = index;
    }
    return met;
}

int qn_lora_choose(qn_model *model, const char *const *names, int count, qn_tensor index)
{
    layers all;
    if (!model || !tape_enter(model->tape, "lora") || model->tape->graph->status) return 0;
    if (!names || count <= 0 || count > MOST_USED)
        return FAIL(model, "1 to %d adapters are chosen from, not %d", MOST_USED, names ? count : 0);
    if (!tape_node(model->tape, "lora", index)) return 0;
    if (!dtype_is_integer((dtype)qn_tensor_dtype(index)))
        return FAIL(model, "the index that chooses adapters is of integers, not %s",
                    qn_dtype_name(qn_tensor_dtype(index)));
    if (!layers_open(&all, model, "*")) return 0;
    return layers_close(&all, choose_all(&all, names, count, index));
}

/* ---- merging ---- */

static void merge_layer(qn_model *layer, bool merged)
{
    struct model_lora *l = layer->lora;
    const adapter *one = &l->list[l->used[0]];
    qn_tensor weight = model_tensor_of(layer, "weight");
    qn_scope_begin(layer->tape);
    qn_tensor change = qn_mul_scalar(qn_matmul(one->a, one->b), merged ? one->alpha : -one->alpha);
    qn_assign(weight, qn_add(weight, change));
    qn_scope_end(layer->tape);
    l->merged = merged;
}

static int merge_all(const layers *all, bool merged)
{
    int changed = 0;
    for (int i = 0; i < all->count; i++)
        if (all->list[i]->lora && all->list[i]->lora->by_row)
            return FAIL(all->model, "adapters chosen by row cannot be merged: qn_lora_use first");
    for (int i = 0; i < all->count; i++) {
        const struct model_lora *l = all->list[i]->lora;
        if (!l || !l->used_count || l->merged == merged) continue;
        merge_layer(all->list[i], merged);
        changed++;
    }
    return changed;
}

int qn_lora_merge(qn_model *model, bool merged)
{
    layers all;
    if (!layers_open(&all, model, "*")) return 0;
    return layers_close(&all, merge_all(&all, merged));
}

/* ---- files ---- */

static const char *alpha_key(const layers *all, const qn_model *layer)
{
    return layer == all->model ? "alpha"
                               : arena_print(all->memory, "%s.alpha", model_relative(all->model, layer->path));
}

/* Those that have the adapter; the caller closes them. */
static qn_status layers_with(layers *all, qn_model *model, const char *name, qn_error *error)
{
    int met = 0;
    *all = (layers){.memory = arena_new(), .model = model};
    if (!model || !name) return error_set(error, QN_BAD_CALL, "qn_lora: an argument is NULL");
    QN_TRY(qn_tape_error(model->tape, error));
    find_layers(all, model, "*");
    for (int i = 0; i < all->count; i++)
        if (adapter_named(all->list[i], name)) all->list[met++] = all->list[i];
    all->count = met;
    return met ? QN_OK : error_set(error, QN_BAD_CALL, "the model has no adapter `%s`", name);
}

static qn_status save(const layers *all, const char *name, const char *const *metadata, const char *path,
                      qn_error *error)
{
    int count = 0;
    while (metadata && metadata[count]) count++;
    const char **list = ARENA_ARRAY(all->memory, const char *, count + 2 * all->count + 1);
    for (int i = 0; i < count; i++) list[i] = metadata[i];
    for (int i = 0; i < all->count; i++) {
        list[count++] = alpha_key(all, all->list[i]);
        list[count++] = arena_print(all->memory, "%.17g", adapter_named(all->list[i], name)->alpha);
    }
    list[count] = NULL;
    return model_save_adapter(all->model, name, list, path, error);
}

qn_status qn_lora_save(qn_model *model, const char *name, const char *const *metadata, const char *path,
                       qn_error *error)
{
    HEAP_ENTER(error);
    layers all;
    qn_status status = layers_with(&all, model, name, error);
    if (!status) status = save(&all, name, metadata, path, error);
    return layers_close(&all, 0), status;
}

static qn_status load(const layers *all, const char *name, const char *path, const qn_load_options *options,
                      qn_error *error)
{
    qn_safetensors *file;
    for (int i = 0; i < all->count; i++)
        if (all->list[i]->lora->merged)
            return error_set(error, QN_BAD_CALL,
                             "`%s` has an adapter in its weights: qn_lora_merge(model, false) first",
                             all->list[i]->path);
    QN_TRY(qn_safetensors_open(path, &file, error));
    qn_status status = model_load_adapter(all->model, name, path, options, error);
    for (int i = 0; i < all->count && !status; i++) {
        const char *words = qn_safetensors_metadata(file, alpha_key(all, all->list[i]));
        char *end = NULL;
        double alpha = words ? number_parse(words, &end) : 0;
        if (words && end > words && !*end && isfinite(alpha)) adapter_named(all->list[i], name)->alpha = alpha;
    }
    qn_safetensors_close(file);
    return status;
}

qn_status qn_lora_load(qn_model *model, const char *name, const char *path, const qn_load_options *options,
                       qn_error *error)
{
    HEAP_ENTER(error);
    layers all;
    qn_status status = layers_with(&all, model, name, error);
    if (!status) status = load(&all, name, path, options, error);
    return layers_close(&all, 0), status;
}
