/*
 * The table of a model's parameters. In: a tree. Out: text: each parameter and buffer with its layer, shape, type, count
 * and size, then the totals.
 * SPDX-License-Identifier: MIT
 */
#include "model/model.h"
#include "profile/profile.h"

#include <stdlib.h>
#include <string.h>

typedef struct totals {
    qn_model *model;
    table *table;
    int parameters, buffers;
    int64_t trained, frozen, size_bytes;
} totals;

static void add_row(void *user, model_tensor *t)
{
    totals *all = user;
    qn_shape s = qn_tensor_shape(t->value);
    int64_t count = qn_tensor_count(t->value);
    int64_t size_bytes = count * (int64_t)qn_dtype_size_bytes(qn_tensor_dtype(t->value));
    text words = {0};
    table_cell(all->table, "%s", model_relative(all->model, t->path));
    table_cell(all->table, "%s", t->owner->label);
    text_add(&words, "[");
    for (int k = 0; k < s.rank; k++) text_print(&words, "%s%lld", k ? ", " : "", (long long)s.extents[k]);
    text_add(&words, "]");
    table_cell(all->table, "%s", text_get(&words));
    table_cell(all->table, "%s", qn_dtype_name(qn_tensor_dtype(t->value)));
    table_cell(all->table, "%lld", (long long)count);
    text_clear(&words);
    text_add_size(&words, (double)size_bytes);
    table_cell(all->table, "%s", text_get(&words));
    table_cell(all->table, "%s", t->buffer ? "buffer" : t->frozen ? "frozen" : "trained");
    text_free(&words);
    *(t->buffer ? &all->buffers : &all->parameters) += 1;
    if (!t->buffer) *(t->frozen ? &all->frozen : &all->trained) += count;
    all->size_bytes += size_bytes;
}

char *qn_model_text(qn_model *model)
{
    static const char *const heads[] = {"parameter", "layer", "shape", "type", "count", "size", "state"};
    table rows;
    text out = {0};
    table_open(&rows, COUNT(heads));
    rows.left[1] = rows.left[2] = true;
    for (int i = 0; i < COUNT(heads); i++) table_cell(&rows, "%s", heads[i]);
    totals all = {.model = model, .table = &rows};
    if (model) model_each(model, add_row, &all);
    table_print(&rows, false, &out);
    table_close(&rows);
    text_print(&out, "%d parameters, %d buffers, ", all.parameters, all.buffers);
    text_add_size(&out, (double)all.size_bytes);
    text_print(&out, "; %lld numbers are trained, %lld frozen\n", (long long)all.trained, (long long)all.frozen);
    return text_hand_over(&out);
}

void qn_model_print(qn_model *model)
{
    char *words = qn_model_text(model);
    fputs(words ? words : "no memory for the table of parameters\n", stdout);
    free(words);
}
