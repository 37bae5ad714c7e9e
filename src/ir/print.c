/*
 * Tile IR to text. In: a kernel, well formed or not. Out: the form of docs/tile-ir.md, one op a line, which read.c
 * reads back. Values are numbered in the order in which they are defined, so equal kernels print equally whatever
 * their history; a value that nothing defines prints as %?N.
 * SPDX-License-Identifier: MIT
 */
#include "ir/form.h"

#include <string.h>

typedef struct printer {
    const tile_kernel *k;
    text *out;
    int *numbers; /* printed number of each value; 0: not defined; NULL: the kernel's own numbers */
    int count;    /* numbers given so far */
} printer;

static void print_value(const printer *p, value v)
{
    if (!v || v >= (value)p->k->value_count) {
        text_print(p->out, "%%?%u", v);
        return;
    }
    int number = p->numbers ? p->numbers[v] : (int)v;
    text_print(p->out, number ? "%%%d" : "%%?%d", number ? number : (int)v);
    if (number && form_is_name(p->k->values[v].name)) text_print(p->out, ".%s", p->k->values[v].name);
}

static void print_values(const printer *p, const value *values, int count)
{
    for (int i = 0; i < count; i++) {
        if (i) text_add(p->out, ", ");
        print_value(p, values[i]);
    }
}

static void print_type(const printer *p, value v)
{
    if (!v || v >= (value)p->k->value_count) {
        text_add(p->out, "?");
        return;
    }
    tile_type type = p->k->values[v].type;
    text_add(p->out, (int)type.elem >= 0 && type.elem < DT_COUNT ? dtypes[type.elem].text : "?");
    if (!type.rank) return;
    text_add(p->out, "[");
    for (int i = 0; i < type.rank && i < MAX_RANK; i++) {
        if (i) text_add(p->out, ", ");
        if (type.dims[i] < 0)
            print_value(p, (value)-type.dims[i]);
        else
            text_print(p->out, "%lld", (long long)type.dims[i]);
    }
    text_add(p->out, "]");
}

static void print_name(const printer *p, const char *name)
{
    if (form_is_name(name))
        text_add(p->out, name);
    else
        text_add_quoted(p->out, name ? name : "", name ? strlen(name) : 0);
}

static void print_param_name(const printer *p, int number)
{
    if (number >= 0 && number < p->k->param_count)
        print_name(p, p->k->params[number].name);
    else
        text_print(p->out, "?%d", number);
}

static void print_place(const printer *p, int line, int column)
{
    if (line) text_print(p->out, " ; %d:%d", line, column);
}

static void print_access(const printer *p, const tile_op *op)
{
    const access *a = &op->attr.access;
    int next = a->first_index, last = op->operand_count - a->mask_count;
    print_param_name(p, a->array);
    text_add(p->out, "[");
    for (int i = 0; i < a->rank && i < MAX_RANK; i++) {
        if (i) text_add(p->out, ", ");
        if (a->kind[i] == INDEX_TILE) text_add(p->out, "tile ");
        print_value(p, next < last && next >= 0 ? op->operands[next] : 0);
        next++;
        if (a->kind[i] == INDEX_SLICE) {
            text_add(p->out, ":");
            print_value(p, next < last ? op->operands[next] : 0);
            next++;
            text_print(p->out, " @%d", a->result_axis[i]);
        }
        if (a->safe[i]) text_add(p->out, " safe");
    }
    text_add(p->out, "]");
    if (a->first_index > 0) {
        text_add(p->out, " = ");
        print_values(p, op->operands, MINIMUM(a->first_index, op->operand_count));
    }
    if (a->mask_count > 0 && last >= 0) {
        text_add(p->out, " mask ");
        print_values(p, op->operands + last, a->mask_count);
    }
}

static void print_list(const printer *p, const char *word, const int *items, int count)
{
    text_print(p->out, " %s (", word);
    for (int i = 0; i < count; i++) text_print(p->out, "%s%d", i ? ", " : "", items[i]);
    text_add(p->out, ")");
}

/* Everything up to the type and the regions. */
static void print_start(const printer *p, const tile_op *op)
{
    unsigned form = form_of(op->code);
    if (op->result_count) {
        print_values(p, op->results, op->result_count);
        text_add(p->out, " = ");
    }
    text_add(p->out, op->code < OP_COUNT ? ops[op->code].text : "?");
    for (int i = 0; i < COUNT(form_flag_names); i++)
        if (op->flags >> i & 1) text_print(p->out, ".%s", form_flag_names[i]);
    if (form & FORM_NUMBER) {
        dtype elem = op->result_count ? p->k->values[op->results[0]].type.elem : DT_I64;
        text_add(p->out, " ");
        form_print_number(elem, op->attr.number, p->out);
    }
    if (form & FORM_PARAM) {
        text_add(p->out, " ");
        print_param_name(p, op->attr.index);
    }
    if (form & FORM_INDEX) text_print(p->out, " %d", op->attr.index);
    if (form & FORM_FOLD) text_print(p->out, " %s", op->attr.fold < FOLD_COUNT ? fold_names[op->attr.fold] : "?");
    if (form & FORM_ATOMIC)
        text_print(p->out, " %s", op->attr.atomic < ATOMIC_COUNT ? atomic_names[op->attr.atomic] : "?");
    if (form & FORM_WORDS && op->attr.words) {
        text_add(p->out, " ");
        text_add_quoted(p->out, op->attr.words, strlen(op->attr.words));
    }
    if (form & FORM_COUNT) text_print(p->out, " show %d", op->attr.count);
    if (form & FORM_ACCESS) {
        text_add(p->out, " ");
        print_access(p, op);
    } else if (op->operand_count) {
        text_add(p->out, " ");
        print_values(p, op->operands, op->operand_count);
    }
    if (form & FORM_AXIS) text_print(p->out, " axis %d", op->attr.index);
    if (form & FORM_AXIS_0) text_print(p->out, " axis %d", op->attr.axes[0]);
    if (form & FORM_AXIS_SET) {
        int axes[MAX_RANK], count = 0;
        for (int i = 0; i < MAX_RANK; i++)
            if (op->attr.axis_set >> i & 1) axes[count++] = i;
        print_list(p, "axes", axes, count);
    }
    if (form & FORM_AXES) {
        int rank = op->result_count ? p->k->values[op->results[0]].type.rank : 0;
        print_list(p, "order", op->attr.axes, MINIMUM(rank, MAX_RANK));
    }
    for (int i = 0; i < op->result_count; i++) {
        text_add(p->out, i ? ", " : " : ");
        print_type(p, op->results[i]);
    }
}

static void number_values(printer *p, const value *values, int count)
{
    for (int i = 0; i < count; i++)
        if (values[i] && values[i] < (value)p->k->value_count) p->numbers[values[i]] = ++p->count;
}

/* An op's results are numbered before its regions' values, as they are printed. */
static void number_block(printer *p, const tile_block *b)
{
    for (int i = 0; i < b->op_count; i++) {
        const tile_op *op = b->ops[i];
        number_values(p, op->results, op->result_count);
        for (int r = 0; r < op->region_count; r++) {
            number_values(p, op->regions[r]->args, op->regions[r]->arg_count);
            number_block(p, op->regions[r]);
        }
    }
}

static void print_block(const printer *p, const tile_block *b, int depth)
{
    for (int i = 0; i < b->op_count; i++) {
        const tile_op *op = b->ops[i];
        text_print(p->out, "%*s", 2 * depth, "");
        print_start(p, op);
        for (int r = 0; r < op->region_count; r++) {
            const tile_block *region = op->regions[r];
            if (r)
                text_print(p->out, "%*s} %s", 2 * depth, "", form_second_region(op->code));
            else if (region->arg_count)
                text_add(p->out, " with");
            if (region->arg_count) {
                text_add(p->out, " (");
                for (int a = 0; a < region->arg_count; a++) {
                    if (a) text_add(p->out, ", ");
                    print_value(p, region->args[a]);
                    text_add(p->out, " : ");
                    print_type(p, region->args[a]);
                }
                text_add(p->out, ")");
            }
            text_add(p->out, " {");
            if (!r) print_place(p, op->line, op->column);
            text_add(p->out, "\n");
            print_block(p, region, depth + 1);
        }
        if (op->region_count)
            text_print(p->out, "%*s}", 2 * depth, "");
        else
            print_place(p, op->line, op->column);
        text_add(p->out, "\n");
    }
}

static void print_numbers(const printer *p, const char *word, const int64_t *numbers, int count)
{
    text_print(p->out, " %s (", word);
    for (int i = 0; i < count; i++) text_print(p->out, "%s%lld", i ? ", " : "", (long long)numbers[i]);
    text_add(p->out, ")");
}

/* digits (extents) by (strides) [guards (factors)...] for each axis, then [from (origin)] [guard (firsts) within
 * (extents)] */
static void print_digits(const printer *p, const tile_param *param)
{
    const param_digits *d = param->digits;
    for (int i = 0; i < param->rank; i++) {
        const axis_digits *a = &d->axes[i];
        print_numbers(p, "digits", a->extent, a->count);
        print_numbers(p, "by", a->stride, a->count);
        for (int g = 0; g < d->guard_count; g++) print_numbers(p, "guards", a->guard[g], a->count);
    }
    if (d->origin) print_numbers(p, "from", &d->origin, 1);
    if (!d->guard_count) return;
    print_numbers(p, "guard", d->guard_first, d->guard_count);
    print_numbers(p, "within", d->guard_extent, d->guard_count);
}

static void print_param(const printer *p, const tile_param *param)
{
    text_add(p->out, "  param ");
    print_name(p, param->name);
    bool known = (int)param->kind >= 0 && (int)param->kind < COUNT(form_param_kinds);
    text_print(p->out, " %s %s", known ? form_param_kinds[param->kind] : "?", dtypes[param->elem].text);
    if (param->kind < PARAM_SCALAR) {
        text_add(p->out, " [");
        for (int i = 0; i < param->rank && i < MAX_RANK; i++) {
            if (i) text_add(p->out, ", ");
            if (param->extent_param[i] >= 0)
                print_param_name(p, param->extent_param[i]);
            else
                text_add(p->out, "_");
            if (param->extents[i]) {
                text_add(p->out, " = ");
                print_value(p, param->extents[i]);
            }
        }
        text_add(p->out, "]");
    }
    if (param->digits) print_digits(p, param);
    if (param->has_initial) {
        text_add(p->out, " initial ");
        form_print_number(param->elem, param->initial, p->out);
    }
    if (param->has_default) text_add(p->out, " default");
    const tile_facts *f = &param->facts;
    if (f->last_unit) text_add(p->out, " last_unit");
    if (f->contiguous) text_add(p->out, " contiguous");
    if (f->aligned) text_add(p->out, " aligned");
    if (f->bulk) text_add(p->out, " bulk");
    if (f->backwards) text_add(p->out, " backwards");
    if (f->small) text_add(p->out, " small");
    if (f->streams) text_add(p->out, " streams");
    if (f->one) text_add(p->out, " one");
    if (facts_divisor(f) > 1) text_print(p->out, " by%d", facts_divisor(f));
    if (param->kind >= PARAM_SCALAR && f->size_class >= 0) text_print(p->out, " class %d", f->size_class);
    print_place(p, param->line, param->column);
    text_add(p->out, "\n");
}

/* A long text as quoted lines, each with its word. */
static void print_lines(const printer *p, const char *word, const char *words)
{
    while (words && *words) {
        size_t length = strcspn(words, "\n");
        if (words[length]) length++;
        text_print(p->out, "  %s ", word);
        text_add_quoted(p->out, words, length);
        text_add(p->out, "\n");
        words += length;
    }
}

void tile_print(const tile_kernel *k, text *out)
{
    arena *scratch = arena_new();
    printer p = {.k = k, .out = out, .numbers = ARENA_ARRAY(scratch, int, k->value_count)};
    number_block(&p, k->head);
    for (int i = 0; i < k->phase_count; i++) number_block(&p, k->phases[i]);

    text_add(out, "kernel ");
    print_name(&p, k->name);
    if (k->precise) text_add(out, " precise");
    if (k->split_loops) text_add(out, " split");
    if (k->file && *k->file) {
        text_add(out, " file ");
        text_add_quoted(out, k->file, strlen(k->file));
    }
    text_add(out, "\n");
    for (int i = 0; i < k->param_count; i++) print_param(&p, &k->params[i]);
    text_add(out, "head {\n");
    print_block(&p, k->head, 1);
    text_add(out, "}\n");
    for (int i = 0; i < k->phase_count; i++) {
        text_add(out, "phase {\n");
        print_block(&p, k->phases[i], 1);
        text_add(out, "}\n");
    }
    if (k->raw_language) {
        text_print(out, "raw %s%s {\n", k->raw_language, k->raw_once ? " once" : "");
        if (k->raw_hidden) text_print(out, "  hides %d\n", k->raw_hidden);
        print_lines(&p, "instance", k->raw_instance);
        print_lines(&p, "options", k->raw_options);
        print_lines(&p, "constants", k->raw_constants);
        print_lines(&p, "source", k->raw_source);
        text_add(out, "}\n");
    }
    arena_free(scratch);
}

void tile_print_op(const tile_kernel *k, const tile_op *op, text *out)
{
    printer p = {.k = k, .out = out};
    print_start(&p, op);
    print_place(&p, op->line, op->column);
}
