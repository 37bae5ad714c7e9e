/*
 * A tensor as text, in NumPy's form. In: any tensor. Out: nested brackets, columns aligned, long axes cut to their ends.
 * One notation serves all elements that are shown: fixed, or scientific where they differ too much in size.
 * SPDX-License-Identifier: MIT
 */
#include "model/model.h"
#include "ir/view.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct printer {
    qn_dtype type;
    qn_shape shape;
    const char *data;
    int precision, edge, width, cell; /* cell: characters of an element */
    bool cut, scientific;
    int64_t strides[QN_TENSOR_RANK];
    text out;
} printer;

static bool is_float(const printer *p)
{
    return dtype_is_float((dtype)p->type);
}

static void add_element(const printer *p, int64_t at, text *out)
{
    number x = element_read((dtype)p->type, p->data + (size_t)at * qn_dtype_size_bytes(p->type));
    char words[400];
    if (p->type == QN_BOOL) {
        text_add(out, x.i ? "true" : "false");
        return;
    }
    if (!is_float(p)) {
        text_print(out, p->type == QN_U64 ? "%llu" : "%lld", (long long)x.i);
        return;
    }
    if (!isfinite(x.f)) {
        text_add(out, isnan(x.f) ? "nan" : x.f > 0 ? "inf" : "-inf");
        return;
    }
    if (p->scientific)
        plain_print(words, sizeof(words), "%.*e", p->precision, x.f);
    else
        plain_print(words, sizeof(words), "%.*f", p->precision, x.f);
    size_t length = strlen(words);
    if (!p->scientific && strchr(words, '.')) /* zeros at the end become blanks: 1.5, 2. */
        for (size_t i = length; i > 0 && words[i - 1] == '0'; i--) words[i - 1] = ' ';
    text_add(out, words);
}

/* Every position that is shown, row by row: `visit` gets the offset. */
typedef void shown(printer *p, int64_t offset, void *user);
static void each_shown(printer *p, int axis, int64_t offset, shown *visit, void *user)
{
    if (axis == p->shape.rank) {
        visit(p, offset, user);
        return;
    }
    int64_t extent = p->shape.extents[axis];
    bool cut = p->cut && extent > 2 * p->edge;
    for (int64_t i = 0; i < extent; i++) {
        if (cut && i == p->edge) i = extent - p->edge;
        each_shown(p, axis + 1, offset + i * p->strides[axis], visit, user);
    }
}

typedef struct range {
    double low, high;
} range;

static void widen_range(printer *p, int64_t offset, void *user)
{
    range *r = user;
    double x = fabs(element_read((dtype)p->type, p->data + (size_t)offset * qn_dtype_size_bytes(p->type)).f);
    if (!isfinite(x) || x == 0) return;
    r->low = fmin(r->low, x);
    r->high = fmax(r->high, x);
}

/* Blanks at the end that all elements have are nobody's. */
static void measure(printer *p, int64_t offset, void *user)
{
    text words = {0};
    add_element(p, offset, &words);
    size_t length = words.length;
    while (length && words.data[length - 1] == ' ') length--;
    int *after = user; /* the most characters after the point */
    const char *point = memchr(text_get(&words), '.', length);
    if (point) *after = MAXIMUM(*after, (int)(text_get(&words) + length - point - 1));
    text_free(&words);
}

static void measure_cell(printer *p, int64_t offset, void *user)
{
    (void)user;
    text words = {0};
    add_element(p, offset, &words);
    p->cell = MAXIMUM(p->cell, (int)words.length);
    text_free(&words);
}

static void add_right(printer *p, int64_t offset)
{
    text words = {0};
    add_element(p, offset, &words);
    for (int i = (int)words.length; i < p->cell; i++) text_add(&p->out, " ");
    text_add(&p->out, text_get(&words));
    text_free(&words);
}

static void add_blanks(printer *p, int count)
{
    for (int i = 0; i < count; i++) text_add(&p->out, " ");
}

/* Elements of the last axis, in lines of at most `width`. */
static void add_row(printer *p, int axis, int64_t offset)
{
    int64_t extent = p->shape.extents[axis];
    bool cut = p->cut && extent > 2 * p->edge;
    int column = axis + 1;
    text_add(&p->out, "[");
    for (int64_t i = 0; i < extent; i++) {
        bool gap = cut && i == p->edge;
        int next = gap ? 3 : p->cell;
        if (i && column + 1 + next > p->width) {
            text_add(&p->out, "\n");
            add_blanks(p, axis + 1);
            column = axis + 1;
        } else if (i) {
            text_add(&p->out, " ");
            column++;
        }
        if (gap) {
            text_add(&p->out, "...");
            i = extent - p->edge - 1;
        } else {
            add_right(p, offset + i * p->strides[axis]);
        }
        column += next;
    }
    text_add(&p->out, "]");
}

static void add_axis(printer *p, int axis, int64_t offset)
{
    if (axis == p->shape.rank - 1) {
        add_row(p, axis, offset);
        return;
    }
    int64_t extent = p->shape.extents[axis];
    bool cut = p->cut && extent > 2 * p->edge;
    text_add(&p->out, "[");
    for (int64_t i = 0; i < extent; i++) {
        if (i) { /* a line for each axis that ends here */
            for (int k = axis; k < p->shape.rank - 1; k++) text_add(&p->out, "\n");
            add_blanks(p, axis + 1);
        }
        if (cut && i == p->edge) {
            text_add(&p->out, "...");
            i = extent - p->edge - 1;
        } else {
            add_axis(p, axis + 1, offset + i * p->strides[axis]);
        }
    }
    text_add(&p->out, "]");
}

static void lay_out(printer *p)
{
    range r = {INFINITY, 0};
    strides_set_row_major(p->shape.rank, p->shape.extents, p->strides);
    if (is_float(p)) {
        each_shown(p, 0, 0, widen_range, &r);
        p->scientific = r.high >= 1e8 || (r.high > 0 && (r.low < 1e-4 || r.high / r.low > 1e3));
        int after = 0;
        if (!p->scientific) {
            each_shown(p, 0, 0, measure, &after);
            p->precision = MINIMUM(p->precision, after);
        }
    }
    each_shown(p, 0, 0, measure_cell, NULL);
    if (p->shape.rank)
        add_axis(p, 0, 0);
    else
        add_right(p, 0);
    text_print(&p->out, "\n%s [", qn_dtype_name(p->type));
    for (int k = 0; k < p->shape.rank; k++)
        text_print(&p->out, "%s%lld", k ? ", " : "", (long long)p->shape.extents[k]);
    text_add(&p->out, "]\n");
}

static int or_default(int value, int otherwise)
{
    return value > 0 ? value : otherwise;
}

qn_status qn_tensor_text(qn_tensor t, const qn_print_options *options, char **words, qn_error *error)
{
    if (!words) return error_set(error, QN_BAD_CALL, "qn_tensor_text: the place for the text is NULL");
    *words = NULL;
    qn_print_options o = options ? *options : (qn_print_options){0};
    size_t size_bytes = (size_t)qn_tensor_count(t) * qn_dtype_size_bytes(qn_tensor_dtype(t));
    char *data = malloc(size_bytes + 8);
    if (!data) return error_set(error, QN_NO_MEMORY, "no memory to print a tensor of %zu bytes", size_bytes);
    qn_status status = qn_tensor_read(t, data, size_bytes, error);
    if (!status) {
        printer p = {.type = qn_tensor_dtype(t),
                     .shape = qn_tensor_shape(t),
                     .data = data,
                     .precision = MINIMUM(or_default(o.precision, 4), 17),
                     .edge = or_default(o.edge, 3),
                     .width = or_default(o.width, 100)};
        p.cut = qn_tensor_count(t) > or_default(o.threshold, 1000);
        lay_out(&p);
        *words = text_hand_over(&p.out);
        if (!*words) status = error_set(error, QN_NO_MEMORY, "no memory for the text of a tensor");
    }
    free(data);
    return status;
}

qn_status qn_tensor_print(qn_tensor t, const qn_print_options *options, qn_error *error)
{
    char *words;
    QN_TRY(qn_tensor_text(t, options, &words, error));
    fputs(words, stdout);
    free(words);
    return QN_OK;
}
