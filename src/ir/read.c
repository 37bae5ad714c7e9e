/*
 * Text to tile IR. In: the form of docs/tile-ir.md, from anyone. Out: a verified kernel, or an error that names the
 * line. A recursive-descent parser over the tokens of scan.c; a value's number in the text is only a name for it.
 * Everything is checked before it is used: junk of any kind gives an error.
 * SPDX-License-Identifier: MIT
 */
#include "ir/form.h"
#include "ir/scan.h"

#include <string.h>

enum { MOST_RESULTS = 4096 };

/* A parameter's extent is a value of the head, which comes later in the text. */
typedef struct forward {
    int param, axis, number, line;
} forward;

typedef struct reader {
    scanner scan;
    tile_kernel *k;
    value *values; /* by number in the text */
    int number_limit;
    forward *forwards;
    int forward_count, forward_capacity;
    int depth;
    int line; /* where the op being read begins */
} reader;

typedef struct name_list { /* "%5.v, %6": numbers and names of what an op defines */
    int *numbers;
    const char **names;
    int count, numbers_capacity, names_count, names_capacity;
} name_list;

static bool fail(reader *r, const char *message)
{
    return scan_fail(&r->scan, "%s", message);
}

static bool define(reader *r, int number, const char *name, value v)
{
    if (r->values[number]) return scan_fail_at(&r->scan, r->line, "%%%d is defined twice", number);
    r->values[number] = v;
    r->k->values[v].name = name;
    return true;
}

/* %12 or %12.name */
static bool read_number_of_value(reader *r, int *number, const char **name)
{
    token t = r->scan.token;
    if (t.kind != TOKEN_VALUE)
        return scan_fail(&r->scan, "expected a value such as %%3, found %s", scan_describe(&r->scan));
    if (t.integer < 1 || t.integer >= r->number_limit) return fail(r, "this value's number is too large");
    *number = (int)t.integer;
    if (name) *name = t.length ? arena_copy_text(r->k->memory, t.start, t.length) : NULL;
    return scan_next(&r->scan);
}

static bool read_value(reader *r, value *v)
{
    int number = 0;
    if (r->scan.token.kind == TOKEN_VALUE && r->scan.token.integer > 0 && r->scan.token.integer < r->number_limit &&
        !r->values[r->scan.token.integer])
        return scan_fail(&r->scan, "%%%d is not defined above", (int)r->scan.token.integer);
    if (!read_number_of_value(r, &number, NULL)) return false;
    *v = r->values[number];
    return true;
}

/* Values with commas between; none if the next token is no value. */
static bool read_values(reader *r, value **values, int *count, int *capacity)
{
    if (r->scan.token.kind != TOKEN_VALUE) return true;
    do {
        value v;
        if (!read_value(r, &v)) return false;
        ARENA_PUSH(r->k->memory, *values, *count, *capacity, v);
    } while (scan_accept(&r->scan, ","));
    return !r->scan.failed;
}

static bool read_small(reader *r, int *out)
{
    int64_t n = 0;
    if (!scan_integer(&r->scan, -1, 1 << 20, &n)) return false;
    *out = (int)n;
    return true;
}

static bool read_text(reader *r, const char **out)
{
    if (r->scan.token.kind != TOKEN_STRING)
        return scan_fail(&r->scan, "expected a quoted text, found %s", scan_describe(&r->scan));
    *out = scan_unquote(&r->scan, r->k->memory);
    return *out && scan_next(&r->scan);
}

/* A name, bare or quoted. */
static bool read_name(reader *r, const char **out)
{
    if (r->scan.token.kind == TOKEN_STRING) return read_text(r, out);
    if (r->scan.token.kind != TOKEN_NAME)
        return scan_fail(&r->scan, "expected a name, found %s", scan_describe(&r->scan));
    *out = arena_copy_text(r->k->memory, r->scan.token.start, r->scan.token.length);
    return scan_next(&r->scan);
}

static bool read_type(reader *r, tile_type *type)
{
    *type = (tile_type){0};
    if (!scan_elem(&r->scan, &type->elem)) return false;
    if (!scan_accept(&r->scan, "[")) return !r->scan.failed;
    do {
        if (type->rank == MAX_RANK) return scan_fail(&r->scan, "a type has more than %d axes", MAX_RANK);
        int64_t *extent = &type->dims[type->rank++];
        if (r->scan.token.kind == TOKEN_VALUE) {
            value v;
            if (!read_value(r, &v)) return false;
            *extent = -(int64_t)v;
        } else if (!scan_integer(&r->scan, 0, (int64_t)1 << 40, extent)) {
            return false;
        }
    } while (scan_accept(&r->scan, ","));
    return scan_expect(&r->scan, "]");
}

static bool read_param_name(reader *r, int *number)
{
    const char *name = "";
    if (!read_name(r, &name)) return false;
    for (int i = 0; i < r->k->param_count; i++) {
        if (strcmp(r->k->params[i].name, name) != 0) continue;
        *number = i;
        return true;
    }
    return scan_fail(&r->scan, "there is no parameter called %s", name);
}

/* "; 14:5", or nothing; then the line must end. */
static bool read_place(reader *r, int *line, int *column)
{
    if (scan_accept(&r->scan, ";")) {
        if (!read_small(r, line) || !scan_expect(&r->scan, ":") || !read_small(r, column)) return false;
    }
    if (!r->scan.failed && !r->scan.token.first_of_line && r->scan.token.kind != TOKEN_END && !scan_is(&r->scan, "}"))
        return scan_fail(&r->scan, "expected the end of the line, found %s", scan_describe(&r->scan));
    return !r->scan.failed;
}

typedef struct op_parts { /* of one op, while its line is being read */
    value *operands;
    int operand_count, operand_capacity;
    token constant;
} op_parts;

/* x[%1, %2:%3 @0 safe, tile %4] = %5 mask %6: the operands' order in memory is values, indices, masks. */
static bool read_access(reader *r, tile_op *op, op_parts *parts)
{
    access *a = &op->attr.access;
    value *indices = NULL;
    int index_count = 0, index_capacity = 0;
    if (!read_param_name(r, &a->array) || !scan_expect(&r->scan, "[")) return false;
    while (!scan_is(&r->scan, "]")) {
        if (a->rank == MAX_RANK) return scan_fail(&r->scan, "an access has more than %d axes", MAX_RANK);
        int axis = a->rank++;
        value v;
        a->kind[axis] = scan_accept(&r->scan, "tile") ? INDEX_TILE : INDEX_SCALAR;
        if (!read_value(r, &v)) return false;
        ARENA_PUSH(r->k->memory, indices, index_count, index_capacity, v);
        if (a->kind[axis] == INDEX_SCALAR && scan_accept(&r->scan, ":")) {
            a->kind[axis] = INDEX_SLICE;
            if (!read_value(r, &v) || !scan_expect(&r->scan, "@") || !read_small(r, &a->result_axis[axis]))
                return false;
            ARENA_PUSH(r->k->memory, indices, index_count, index_capacity, v);
        }
        a->safe[axis] = scan_accept(&r->scan, "safe");
        if (!scan_accept(&r->scan, ",")) break;
    }
    if (!scan_expect(&r->scan, "]")) return false;
    if (scan_accept(&r->scan, "=") &&
        !read_values(r, &parts->operands, &parts->operand_count, &parts->operand_capacity))
        return false;
    a->first_index = parts->operand_count;
    for (int i = 0; i < index_count; i++)
        ARENA_PUSH(r->k->memory, parts->operands, parts->operand_count, parts->operand_capacity, indices[i]);
    int before = parts->operand_count;
    if (scan_accept(&r->scan, "mask") &&
        !read_values(r, &parts->operands, &parts->operand_count, &parts->operand_capacity))
        return false;
    a->mask_count = parts->operand_count - before;
    return !r->scan.failed;
}

/* "word (1, 0, 2)" */
static bool read_axes(reader *r, const char *word, int axes[MAX_RANK], int *count)
{
    *count = 0;
    if (!scan_expect(&r->scan, word) || !scan_expect(&r->scan, "(")) return false;
    while (!scan_is(&r->scan, ")")) {
        if (*count == MAX_RANK) return scan_fail(&r->scan, "more than %d axes", MAX_RANK);
        if (!read_small(r, &axes[*count])) return false;
        if (axes[*count] < 0 || axes[*count] >= MAX_RANK)
            return scan_fail(&r->scan, "an axis is 0 to %d", MAX_RANK - 1);
        ++*count;
        if (!scan_accept(&r->scan, ",")) break;
    }
    return scan_expect(&r->scan, ")");
}

static bool read_attributes_before(reader *r, tile_op *op, op_parts *parts)
{
    unsigned form = form_of(op->code);
    int choice = 0;
    if (form & FORM_NUMBER && !scan_constant_token(&r->scan, &parts->constant)) return false;
    if (form & FORM_PARAM && !read_param_name(r, &op->attr.index)) return false;
    if (form & FORM_INDEX && !read_small(r, &op->attr.index)) return false;
    if (form & FORM_FOLD) {
        if (!scan_word(&r->scan, fold_names, FOLD_COUNT, "a fold such as sum", &choice)) return false;
        op->attr.fold = (fold_kind)choice;
    }
    if (form & FORM_ATOMIC) {
        if (!scan_word(&r->scan, atomic_names, ATOMIC_COUNT, "an atomic such as add", &choice)) return false;
        op->attr.atomic = (atomic_kind)choice;
    }
    if (form & FORM_WORDS && r->scan.token.kind == TOKEN_STRING && !read_text(r, &op->attr.words)) return false;
    if (form & FORM_COUNT) return scan_expect(&r->scan, "show") && read_small(r, &op->attr.count);
    return true;
}

static bool read_attributes_after(reader *r, tile_op *op)
{
    unsigned form = form_of(op->code);
    int axes[MAX_RANK], count;
    if (form & FORM_AXIS && (!scan_expect(&r->scan, "axis") || !read_small(r, &op->attr.index))) return false;
    if (form & FORM_AXIS_0 && (!scan_expect(&r->scan, "axis") || !read_small(r, &op->attr.axes[0]))) return false;
    if (form & FORM_AXIS_SET) {
        if (!read_axes(r, "axes", axes, &count)) return false;
        for (int i = 0; i < count; i++) op->attr.axis_set |= 1u << axes[i];
    }
    return !(form & FORM_AXES) || read_axes(r, "order", op->attr.axes, &count);
}

static bool read_block(reader *r, tile_block *b);

static bool read_region_args(reader *r, tile_block *b)
{
    do {
        int number = 0;
        const char *name = NULL;
        tile_type type;
        if (b->arg_count == MOST_RESULTS) return fail(r, "a region has too many arguments");
        if (!read_number_of_value(r, &number, &name) || !scan_expect(&r->scan, ":") || !read_type(r, &type))
            return false;
        if (!define(r, number, name, tile_block_arg(r->k, b, type))) return false;
    } while (scan_accept(&r->scan, ","));
    return scan_expect(&r->scan, ")");
}

static bool read_regions(reader *r, tile_op *op)
{
    int count = op->code == OP_IF || op->code == OP_WHILE ? 2 : op->code == OP_FOR || op->code == OP_MAP ? 1 : 0;
    if (count && ++r->depth > NESTING_LIMIT) return fail(r, "regions are nested more than 200 deep");
    for (int i = 0; i < count; i++) {
        tile_block *b = op->regions[op->region_count++] = tile_block_new(r->k);
        if (i && !scan_expect(&r->scan, form_second_region(op->code))) return false;
        bool args = i ? scan_accept(&r->scan, "(") : scan_accept(&r->scan, "with") && scan_expect(&r->scan, "(");
        if (args && !read_region_args(r, b)) return false;
        if (!scan_expect(&r->scan, "{")) return false;
        if (!i && !read_place(r, &op->line, &op->column)) return false;
        if (!read_block(r, b) || !scan_expect(&r->scan, "}")) return false;
    }
    r->depth -= count != 0;
    return !r->scan.failed;
}

static bool read_results(reader *r, name_list *list)
{
    if (r->scan.token.kind != TOKEN_VALUE) return true;
    do {
        int number = 0;
        const char *name = NULL;
        if (list->count == MOST_RESULTS) return fail(r, "an op has too many results");
        if (!read_number_of_value(r, &number, &name)) return false;
        ARENA_PUSH(r->k->memory, list->numbers, list->count, list->numbers_capacity, number);
        ARENA_PUSH(r->k->memory, list->names, list->names_count, list->names_capacity, name);
    } while (scan_accept(&r->scan, ","));
    return scan_expect(&r->scan, "=");
}

static bool read_op_name(reader *r, tile_op *op)
{
    int code = 0, flag = 0;
    const char *names[OP_COUNT];
    for (int i = 0; i < OP_COUNT; i++) names[i] = i ? ops[i].text : "";
    if (!scan_word(&r->scan, names, OP_COUNT, "an op", &code)) return false;
    op->code = (op_code)code;
    while (scan_accept(&r->scan, ".")) {
        if (!scan_word(&r->scan, form_flag_names, COUNT(form_flag_names), "a flag", &flag)) return false;
        op->flags |= 1u << flag;
    }
    return !r->scan.failed;
}

static bool read_op(reader *r, tile_block *b)
{
    name_list results = {0};
    op_parts parts = {0};
    tile_op *op = tile_op_new(r->k, OP_NONE, NULL, 0);
    r->line = r->scan.token.line;
    if (!read_results(r, &results) || !read_op_name(r, op) || !read_attributes_before(r, op, &parts)) return false;
    bool is_access = form_of(op->code) & FORM_ACCESS;
    if (is_access ? !read_access(r, op, &parts)
                  : !read_values(r, &parts.operands, &parts.operand_count, &parts.operand_capacity))
        return false;
    op->operands = parts.operands;
    op->operand_count = parts.operand_count;
    if (!read_attributes_after(r, op)) return false;
    for (int i = 0; i < results.count; i++) {
        tile_type type;
        if (!scan_expect(&r->scan, i ? "," : ":") || !read_type(r, &type)) return false;
        tile_result(r->k, op, type);
    }
    if (op->code == OP_CONST) {
        if (results.count != 1) return fail(r, "const has one result");
        if (!scan_constant(&r->scan, &parts.constant, tile_type_of(r->k, op->results[0]).elem, &op->attr.number))
            return false;
    }
    for (int i = 0; i < results.count; i++) /* before the regions are read, so that a number is not used twice */
        if (!define(r, results.numbers[i], results.names[i], op->results[i])) return false;
    if (!read_regions(r, op)) return false;
    tile_append(r->k, b, op);
    int line = 0, column = 0;
    if (!read_place(r, &line, &column)) return false;
    if (line) {
        op->line = line;
        op->column = column;
    }
    return true;
}

static bool read_block(reader *r, tile_block *b)
{
    while (!r->scan.failed && !scan_is(&r->scan, "}")) {
        if (r->scan.token.kind == TOKEN_END) return fail(r, "the text ends inside a block");
        if (!read_op(r, b)) return false;
    }
    return !r->scan.failed;
}

static bool read_facts(reader *r, tile_param *p)
{
    for (;;) {
        if (scan_accept(&r->scan, "last_unit"))
            p->facts.last_unit = true;
        else if (scan_accept(&r->scan, "contiguous"))
            p->facts.contiguous = true;
        else if (scan_accept(&r->scan, "aligned"))
            p->facts.aligned = true;
        else if (scan_accept(&r->scan, "backwards"))
            p->facts.backwards = true;
        else if (scan_accept(&r->scan, "bulk"))
            p->facts.bulk = true;
        else if (scan_accept(&r->scan, "small"))
            p->facts.small = true;
        else if (scan_accept(&r->scan, "streams"))
            p->facts.streams = true;
        else if (scan_accept(&r->scan, "one"))
            p->facts.one = true;
        else if (scan_accept(&r->scan, "by16"))
            p->facts.by16 = true;
        else if (scan_accept(&r->scan, "by8"))
            p->facts.by8 = true;
        else if (scan_accept(&r->scan, "by4"))
            p->facts.by4 = true;
        else if (scan_accept(&r->scan, "default"))
            p->has_default = true;
        else if (scan_accept(&r->scan, "class")) {
            if (!read_small(r, &p->facts.size_class)) return false;
        } else if (scan_accept(&r->scan, "initial")) {
            token t;
            if (!scan_constant_token(&r->scan, &t) || !scan_constant(&r->scan, &t, p->elem, &p->initial)) return false;
            p->has_initial = true;
        } else {
            return !r->scan.failed;
        }
    }
}

static bool read_numbers(reader *r, int64_t *numbers, int most, int *count)
{
    if (!scan_expect(&r->scan, "(")) return false;
    for (*count = 0; !scan_is(&r->scan, ")"); ++*count) {
        if (*count == most) return scan_fail(&r->scan, "more than %d numbers", most);
        if (!scan_integer(&r->scan, -((int64_t)1 << 50), (int64_t)1 << 50, &numbers[*count])) return false;
        if (!scan_accept(&r->scan, ",")) {
            ++*count;
            break;
        }
    }
    return scan_expect(&r->scan, ")");
}

/* As print.c's print_digits writes them. */
static bool read_digits(reader *r, tile_param *p)
{
    if (!scan_is(&r->scan, "digits")) return true;
    param_digits *d = ARENA_NEW(r->k->memory, param_digits);
    for (int i = 0; i < p->rank; i++) {
        axis_digits *a = &d->axes[i];
        int count, guards = 0;
        if (!scan_expect(&r->scan, "digits") || !read_numbers(r, a->extent, DIGITS_MOST, &a->count)) return false;
        if (!scan_expect(&r->scan, "by") || !read_numbers(r, a->stride, DIGITS_MOST, &count)) return false;
        bool same = count == a->count;
        while (scan_accept(&r->scan, "guards")) {
            if (guards == GUARDS_MOST) return scan_fail(&r->scan, "more than %d guards", GUARDS_MOST);
            if (!read_numbers(r, a->guard[guards++], DIGITS_MOST, &count)) return false;
            same &= count == a->count;
        }
        if (!same) return scan_fail(&r->scan, "an axis has other numbers of digits, strides and factors");
        if (i && guards != d->guard_count) return scan_fail(&r->scan, "every axis has a factor in each guard");
        d->guard_count = guards;
    }
    int one;
    if (scan_accept(&r->scan, "from") && !read_numbers(r, &d->origin, 1, &one)) return false;
    if (d->guard_count) {
        int first, extent;
        if (!scan_expect(&r->scan, "guard") || !read_numbers(r, d->guard_first, GUARDS_MOST, &first)) return false;
        if (!scan_expect(&r->scan, "within") || !read_numbers(r, d->guard_extent, GUARDS_MOST, &extent)) return false;
        if (first != d->guard_count || extent != first)
            return scan_fail(&r->scan, "each guard has a first and an extent");
    }
    p->digits = d;
    return !r->scan.failed;
}

/* The extents of an array; a name may be of a parameter further down, so names wait in `names`. */
static bool read_extents(reader *r, tile_param *p, int number, const char *names[MAX_RANK])
{
    if (!scan_expect(&r->scan, "[")) return false;
    while (!scan_is(&r->scan, "]")) {
        if (p->rank == MAX_RANK) return scan_fail(&r->scan, "an array has more than %d axes", MAX_RANK);
        int axis = p->rank++;
        if (!read_name(r, &names[axis])) return false;
        if (scan_accept(&r->scan, "=")) {
            forward f = {.param = number, .axis = axis, .line = r->scan.token.line};
            if (!read_number_of_value(r, &f.number, NULL)) return false;
            ARENA_PUSH(r->k->memory, r->forwards, r->forward_count, r->forward_capacity, f);
        }
        if (!scan_accept(&r->scan, ",")) break;
    }
    return scan_expect(&r->scan, "]");
}

static bool read_params(reader *r)
{
    const char *names[64][MAX_RANK] = {{0}};
    while (scan_accept(&r->scan, "param")) {
        tile_param p = {.facts.size_class = -1};
        int kind = 0;
        if (r->k->param_count == COUNT(names)) return scan_fail(&r->scan, "more than 64 parameters");
        if (!read_name(r, &p.name)) return false;
        if (!scan_word(&r->scan, form_param_kinds, COUNT(form_param_kinds), "a kind of parameter", &kind)) return false;
        p.kind = (param_kind)kind;
        if (!scan_elem(&r->scan, &p.elem)) return false;
        if (p.kind < PARAM_SCALAR && !read_extents(r, &p, r->k->param_count, names[r->k->param_count])) return false;
        if (!read_digits(r, &p) || !read_facts(r, &p) || !read_place(r, &p.line, &p.column)) return false;
        for (int i = 0; i < MAX_RANK; i++) p.extent_param[i] = -1;
        tile_param_add(r->k, p);
    }
    for (int i = 0; i < r->k->param_count; i++) {
        for (int a = 0; a < r->k->params[i].rank; a++) {
            if (!names[i][a] || !strcmp(names[i][a], "_")) continue;
            for (int j = 0; j < r->k->param_count; j++)
                if (!strcmp(r->k->params[j].name, names[i][a])) r->k->params[i].extent_param[a] = j;
            if (r->k->params[i].extent_param[a] < 0)
                return scan_fail(&r->scan, "there is no parameter called %s", names[i][a]);
        }
    }
    return !r->scan.failed;
}

static bool read_raw(reader *r)
{
    static const char *const words[] = {"constants", "source", "instance", "options"};
    text parts[COUNT(words)] = {0};
    int64_t hidden = 0;
    bool good = read_name(r, &r->k->raw_language);
    r->k->raw_once = good && scan_accept(&r->scan, "once");
    good = good && scan_expect(&r->scan, "{");
    if (good && scan_accept(&r->scan, "hides")) good = scan_integer(&r->scan, 1, 64, &hidden);
    while (good && !scan_is(&r->scan, "}")) {
        const char *line = "";
        int part = 0;
        while (part < COUNT(words) && !scan_is(&r->scan, words[part])) part++;
        if (part == COUNT(words)) good = fail(r, "expected constants, source, instance or options");
        good = good && scan_next(&r->scan) && read_text(r, &line);
        if (good) text_add(&parts[part], line);
    }
    const char *copies[COUNT(words)];
    for (int i = 0; i < COUNT(words); i++) {
        copies[i] = arena_copy_text(r->k->memory, text_get(&parts[i]), parts[i].length);
        text_free(&parts[i]);
    }
    r->k->raw_constants = copies[0];
    r->k->raw_source = copies[1];
    r->k->raw_instance = *copies[2] ? copies[2] : NULL;
    r->k->raw_options = *copies[3] ? copies[3] : NULL;
    r->k->raw_hidden = (int)hidden;
    return good && scan_expect(&r->scan, "}");
}

static bool read_kernel(reader *r)
{
    tile_kernel *k = r->k;
    if (!scan_next(&r->scan) || !scan_expect(&r->scan, "kernel") || !read_name(r, &k->name)) return false;
    k->precise = scan_accept(&r->scan, "precise");
    k->split_loops = scan_accept(&r->scan, "split");
    if (scan_accept(&r->scan, "file") && !read_text(r, &k->file)) return false;
    if (!read_params(r) || !scan_expect(&r->scan, "head") || !scan_expect(&r->scan, "{")) return false;
    if (!read_block(r, k->head) || !scan_expect(&r->scan, "}")) return false;
    for (int i = 0; i < r->forward_count; i++) {
        const forward *f = &r->forwards[i];
        if (!r->values[f->number]) return scan_fail_at(&r->scan, f->line, "%%%d is not defined in the head", f->number);
        k->params[f->param].extents[f->axis] = r->values[f->number];
    }
    int capacity = 0;
    while (scan_accept(&r->scan, "phase")) {
        tile_block *b = tile_block_new(k);
        if (!scan_expect(&r->scan, "{") || !read_block(r, b) || !scan_expect(&r->scan, "}")) return false;
        ARENA_PUSH(k->memory, k->phases, k->phase_count, capacity, b);
    }
    if (scan_accept(&r->scan, "raw") && !read_raw(r)) return false;
    if (!r->scan.failed && r->scan.token.kind != TOKEN_END)
        return scan_fail(&r->scan, "expected the end of the text, found %s", scan_describe(&r->scan));
    return !r->scan.failed;
}

/* Names become those of functions, variables and files: they are made of what names in a source are made of. A raw
 * kernel's parameters keep theirs to themselves, and may have several with dots between. */
static bool is_name(const char *name, bool parts)
{
    for (size_t length;; name += length + 1) {
        length = parts ? strcspn(name, ".") : strlen(name);
        if (!length || length > NAME_LIMIT_BYTES || (name[0] >= '0' && name[0] <= '9')) return false;
        for (size_t i = 0; i < length; i++) {
            char c = name[i];
            bool fits = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
            if (!fits) return false;
        }
        if (!name[length]) return true;
    }
}

static const char *wrong_name(const tile_kernel *k, const char **what)
{
    *what = "kernel";
    if (!is_name(k->name, false)) return k->name;
    *what = "parameter";
    for (int i = 0; i < k->param_count; i++)
        if (!is_name(k->params[i].name, k->raw_language != NULL)) return k->params[i].name;
    *what = "value";
    for (int i = 1; i < k->value_count; i++)
        if (k->values[i].name && !is_name(k->values[i].name, false)) return k->values[i].name;
    return NULL;
}

qn_status tile_read(arena *memory, const char *file, const char *words, size_t length, tile_kernel **out,
                    qn_error *error)
{
    *out = NULL;
    if (length > (size_t)64 << 20) return error_set(error, QN_BAD_FILE, "%s: larger than 64 MiB", file);
    arena *scratch = arena_new();
    reader r = {.scan = {.file = file, .next = words, .end = words + length, .line = 1, .error = error}};
    r.k = tile_kernel_new(memory, "", "");
    r.number_limit = (int)MAXIMUM(length, 65536) + 1;
    r.values = ARENA_ARRAY(scratch, value, r.number_limit);
    bool good = read_kernel(&r);
    arena_free(scratch);
    if (!good) return QN_BAD_FILE;
    const char *what, *wrong = wrong_name(r.k, &what);
    if (wrong)
        return error_set(error, QN_BAD_FILE,
                         "%s: \"%.40s\" is no name of a %s: letters, digits and underscores, at most %d", file, wrong,
                         what, NAME_LIMIT_BYTES);
    qn_error broken;
    if (tile_verify(r.k, &broken) != QN_OK) return error_set(error, QN_BAD_FILE, "%s: %s", file, broken.message);
    *out = r.k;
    return QN_OK;
}
