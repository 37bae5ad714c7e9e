/*
 * What the debugger says: places, values, source, memory. In: the state of the stopped interpreter. Out: text.
 * SPDX-License-Identifier: MIT
 */
#include "run/workbench/debug.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

void say(const debugger *d, const char *format, ...)
{
    text words = {0};
    va_list list;
    va_start(list, format);
    text_print_list(&words, format, list);
    va_end(list);
    d->write(d->user, text_get(&words), words.length);
    text_free(&words);
}

static int launch_rank(const tile_kernel *k, int phase)
{
    for (int i = 0; i < k->head->op_count; i++) {
        const tile_op *op = k->head->ops[i];
        if (op->code == OP_LAUNCH && op->attr.index == phase) return op->operand_count;
    }
    return 1;
}

void program_words(const debugger *d, const int64_t program[3], text *out)
{
    int rank = launch_rank(d->kernel, d->phase);
    for (int axis = 0; axis < rank; axis++) text_print(out, axis ? ", %lld" : "%lld", (long long)program[axis]);
}

static const char *source_line(const tile_kernel *k, int line)
{
    return k->source_lines && line >= 1 && line <= k->source_line_count ? k->source_lines[line - 1] : NULL;
}

void show_place(debugger *d)
{
    text program = {0};
    program_words(d, d->program, &program);
    const char *words = source_line(d->kernel, d->line);
    int line = d->line;
    const char *path = tile_place(d->kernel, &line);
    if (d->kernel->phase_count > 1)
        say(d, "phase %d, program %s, %s:%d\n", d->phase, text_get(&program), path, line);
    else
        say(d, "program %s, %s:%d\n", text_get(&program), path, line);
    if (words) say(d, "%5d  %s\n", line, words);
    d->list_from = 0;
    text_free(&program);
}

void show_op(const debugger *d)
{
    text words = {0};
    tile_print_op(d->kernel, d->op, &words);
    const char *shown = text_get(&words);
    size_t length = strcspn(shown, "\n");
    say(d, "  next: %.*s\n", (int)length, shown);
    text_free(&words);
}

void show_results(const debugger *d, const tile_op *op)
{
    for (int i = 0; i < op->result_count; i++) {
        interp_tile t;
        value v = op->results[i];
        const char *name = d->kernel->values[v].name;
        if (!interp_value(d->state, v, &t)) continue;
        text words = {0};
        interp_show_tile(&t, t.valid, &words);
        if (name)
            say(d, "  %%%u.%s = %s\n", v, name, text_get(&words));
        else
            say(d, "  %%%u = %s\n", v, text_get(&words));
        text_free(&words);
    }
}

void show_list(debugger *d, int line)
{
    const tile_kernel *k = d->kernel;
    if (!k->source_lines) {
        say(d, "there is no source text\n");
        return;
    }
    int first = line ? line - 4 : d->list_from ? d->list_from : d->line - 4;
    if (first < 1) first = 1;
    if (first > k->source_line_count) {
        say(d, "the file has %d lines\n", k->source_line_count);
        return;
    }
    int last = MINIMUM(first + 8, k->source_line_count);
    for (int i = first; i <= last; i++) {
        bool stops = false;
        for (int b = 0; b < d->break_count; b++) stops |= d->breaks[b].line == i;
        say(d, "%c%c%4d  %s\n", i == d->line ? '>' : ' ', stops ? '*' : ' ', i, k->source_lines[i - 1]);
    }
    d->list_from = last + 1;
}

/* The ops that hold `op`, outermost first; true when found. */
static bool find_path(const tile_block *b, const tile_op *op, const tile_op **path, int *depth)
{
    for (int i = 0; i < b->op_count; i++) {
        const tile_op *here = b->ops[i];
        if (here == op) return true;
        for (int r = 0; r < here->region_count && *depth < 200; r++) {
            path[(*depth)++] = here;
            if (find_path(here->regions[r], op, path, depth)) return true;
            (*depth)--;
        }
    }
    return false;
}

void show_where(const debugger *d)
{
    const tile_op *path[201];
    int depth = 0;
    text program = {0};
    program_words(d, d->program, &program);
    say(d, "kernel %s, phase %d, program %s\n", d->kernel->name, d->phase, text_get(&program));
    text_free(&program);
    if (!find_path(d->kernel->phases[d->phase], d->op, path, &depth)) depth = 0;
    for (int i = 0; i < depth; i++) {
        const tile_op *op = path[i];
        interp_tile t;
        if (op->code == OP_FOR && interp_value(d->state, op->regions[0]->args[0], &t)) {
            const char *name = d->kernel->values[op->regions[0]->args[0]].name;
            say(d, "  in for (%s = %lld), line %d\n", name ? name : "i", (long long)t.elements[0].i, op->line);
        } else {
            say(d, "  in %s, line %d\n", ops[op->code].text, op->line);
        }
    }
    const char *words = source_line(d->kernel, d->line);
    int line = d->line;
    const char *file = tile_place(d->kernel, &line);
    say(d, "  at %s:%d\n", file, line);
    if (words) say(d, "%5d  %s\n", line, words);
    show_op(d);
}

typedef union cell_bits { /* a scalar of the plan */
    int64_t i;
    double f;
} cell_bits;

static void scalar_words(const debugger *d, int p, text *out)
{
    cell_bits bits = {.i = d->call->plan.scalars_bits[p]};
    if (dtype_is_float(d->kernel->params[p].elem))
        text_print(out, " = %g", bits.f);
    else
        text_print(out, " = %lld", (long long)bits.i);
}

static void show_param(const debugger *d, int p)
{
    static const char *const kinds[] = {"in", "out", "inout", "scratch", "scalar", "extent"};
    const tile_param *param = &d->kernel->params[p];
    text words = {0};
    text_print(&words, "  %s %s %s", kinds[param->kind], dtypes[param->elem].text, param->name);
    if (param->kind == PARAM_SCALAR || param->kind == PARAM_EXTENT) scalar_words(d, p, &words);
    for (int axis = 0; axis < param->rank; axis++)
        text_print(&words, "[%lld]", (long long)d->call->plan.extents[p][axis]);
    say(d, "%s\n", text_get(&words));
    text_free(&words);
}

void show_info(const debugger *d)
{
    const tile_kernel *k = d->kernel;
    say(d, "kernel %s of %s\n", k->name, k->file);
    for (int p = 0; p < k->param_count; p++) show_param(d, p);
    for (int phase = 0; phase < k->phase_count; phase++) {
        const int64_t *counts = d->call->plan.programs[phase];
        text words = {0};
        for (int axis = 0; axis < launch_rank(k, phase); axis++)
            text_print(&words, axis ? ", %lld" : "%lld", (long long)counts[axis]);
        say(d, "  phase %d launches (%s)\n", phase, text_get(&words));
        text_free(&words);
    }
    for (int i = 0; i < d->break_count; i++) {
        const debug_break *b = &d->breaks[i];
        if (b->line) {
            say(d, "  break %d: line %d\n", b->number, b->line);
            continue;
        }
        say(d, "  break %d: program", b->number);
        for (int axis = 0; axis < b->axes; axis++) say(d, axis ? ", %lld" : " %lld", (long long)b->program[axis]);
        say(d, "\n");
    }
    for (int i = 0; i < d->watch_count; i++) say(d, "  watch %s\n", d->watches[i].name);
    say(d, "  memory %s\n", d->memory ? "on" : "off");
}

void show_memory(const debugger *d, const tile_op *op)
{
    interp_touch touch;
    if (!interp_touches(d->state, op, &touch)) return;
    const struct access *access = &op->attr.access;
    text words = {0};
    text_print(&words, "  line %d: %s %s", op->line, ops[op->code].text, d->kernel->params[access->array].name);
    for (int axis = 0; axis < access->rank && touch.touched; axis++) {
        if (touch.low[axis] == touch.high[axis])
            text_print(&words, "[%lld]", (long long)touch.low[axis]);
        else
            text_print(&words, "[%lld .. %lld]", (long long)touch.low[axis], (long long)touch.high[axis]);
    }
    text_print(&words, ": %lld element%s", (long long)touch.touched, touch.touched == 1 ? "" : "s");
    if (touch.untouched) text_print(&words, ", %lld masked off or outside", (long long)touch.untouched);
    say(d, "%s\n", text_get(&words));
    text_free(&words);
}

static void consider(const debugger *d, value v, value *found, int64_t *newest)
{
    int64_t at = interp_set_time(d->state, v);
    if (at <= *newest) return;
    *newest = at;
    *found = v;
}

/* The value with this name that was set last; 0: none has a value now. *known: some value has the name. */
static value latest(const debugger *d, const char *name, bool *known)
{
    value found = 0;
    int64_t newest = 0;
    *known = false;
    for (int v = 1; v < d->kernel->value_count; v++) {
        const char *own = d->kernel->values[v].name;
        if (!own || strcmp(own, name) != 0) continue;
        *known = true;
        consider(d, (value)v, &found, &newest);
    }
    for (int i = 0; i < d->kernel->alias_count; i++) {
        if (strcmp(d->kernel->aliases[i].name, name) != 0) continue;
        *known = true;
        consider(d, d->kernel->aliases[i].v, &found, &newest);
    }
    return found;
}

bool value_words(const debugger *d, const char *name, text *out)
{
    bool known;
    value v = latest(d, name, &known);
    interp_tile t;
    if (!v || !interp_value(d->state, v, &t)) return false;
    interp_show_tile(&t, t.valid, out);
    return true;
}

static int find_param(const debugger *d, const char *name)
{
    for (int p = 0; p < d->kernel->param_count; p++)
        if (!strcmp(d->kernel->params[p].name, name)) return p;
    return -1;
}

/* An array with its first axes fixed, as a tile. */
static void show_array(const debugger *d, int p, const int64_t *fixed, int fixed_count, const char *words)
{
    const array_view *a = &d->call->views[p];
    interp_tile t = {.type = {.elem = a->elem, .rank = a->rank - fixed_count}, .count = 1};
    const char *base = a->data;
    int size = dtypes[a->elem].size_bytes;
    for (int axis = 0; axis < a->rank; axis++) {
        if (axis < fixed_count) {
            if (fixed[axis] < 0 || fixed[axis] >= a->extents[axis]) {
                say(d, "index %lld is outside axis %d of `%s`, whose extent is %lld\n", (long long)fixed[axis], axis,
                    d->kernel->params[p].name, (long long)a->extents[axis]);
                return;
            }
            base += fixed[axis] * a->strides[axis] * size;
        } else {
            t.type.dims[axis - fixed_count] = a->extents[axis];
            t.count *= a->extents[axis];
        }
    }
    t.elements = calloc((size_t)t.count + 1, sizeof(number));
    uint8_t *shown = malloc((size_t)t.count + 1);
    if (!t.elements || !shown) {
        say(d, "no memory to show the %lld elements of `%s`: give an index\n", (long long)t.count, words);
        heap_free(t.elements);
        heap_free(shown);
        return;
    }
    int64_t index[MAX_RANK] = {0};
    for (int axis = 0; axis < fixed_count; axis++) index[axis] = fixed[axis];
    for (int64_t j = 0; j < t.count; j++) {
        int64_t rest = j, at = 0;
        for (int axis = a->rank - 1; axis >= fixed_count; axis--) {
            index[axis] = rest % a->extents[axis];
            at += index[axis] * a->strides[axis];
            rest /= a->extents[axis];
        }
        t.elements[j] = element_read(a->elem, base + at * size);
        shown[j] = interp_written(d->state, p, index);
    }
    text out = {0};
    interp_show_tile(&t, shown, &out);
    heap_free(shown);
    say(d, "%s = %s\n", words, text_get(&out));
    text_free(&out);
    heap_free(t.elements);
}

static void suggest(const debugger *d, const char *name)
{
    const char *names[256];
    int count = 0;
    for (int p = 0; p < d->kernel->param_count && count < COUNT(names); p++) names[count++] = d->kernel->params[p].name;
    for (int v = 1; v < d->kernel->value_count && count < COUNT(names); v++)
        if (d->kernel->values[v].name) names[count++] = d->kernel->values[v].name;
    for (int i = 0; i < d->kernel->alias_count && count < COUNT(names); i++)
        names[count++] = d->kernel->aliases[i].name;
    const char *near = suggest_name(name, names, count);
    if (near)
        say(d, "there is no variable `%s`; did you mean `%s`?\n", name, near);
    else
        say(d, "there is no variable `%s`\n", name);
}

/* "x[3][0]" into the name and its indices; false: not of that form. */
static bool split_name(const char *words, char *name, size_t size, int64_t *indices, int *count)
{
    size_t length = strcspn(words, "[");
    if (length == 0 || length >= size) return false;
    memcpy(name, words, length);
    name[length] = 0;
    *count = 0;
    for (const char *c = words + length; *c;) {
        char *end;
        if (*c != '[' || *count == MAX_RANK) return false;
        indices[(*count)++] = strtoll(c + 1, &end, 10);
        if (end == c + 1 || *end != ']') return false;
        c = end + 1;
    }
    return true;
}

bool show_value(const debugger *d, const char *words)
{
    char name[64];
    int64_t indices[MAX_RANK];
    int count;
    bool known;
    if (!split_name(words, name, sizeof(name), indices, &count)) {
        say(d, "print takes a name, or an array with indices: print v, print x[3]\n");
        return false;
    }
    int p = find_param(d, name);
    bool is_array = p >= 0 && d->kernel->params[p].kind != PARAM_SCALAR && d->kernel->params[p].kind != PARAM_EXTENT;
    if (is_array) {
        if (count > d->kernel->params[p].rank)
            say(d, "`%s` has %d axes\n", name, d->kernel->params[p].rank);
        else
            show_array(d, p, indices, count, words);
        return true;
    }
    if (count) {
        say(d, "only arrays are indexed here; print %s shows all of it\n", name);
        return true;
    }
    value v = latest(d, name, &known);
    if (v) {
        tile_type type = tile_type_of(d->kernel, v);
        text out = {0};
        value_words(d, name, &out);
        say(d, "%s = %s", name, text_get(&out));
        interp_tile t;
        if (type.rank && interp_value(d->state, v, &t)) {
            say(d, "  (%s", dtypes[type.elem].text);
            for (int axis = 0; axis < t.type.rank; axis++) say(d, "[%lld]", (long long)t.type.dims[axis]);
            say(d, ")");
        }
        say(d, "\n");
        text_free(&out);
        return true;
    }
    if (p >= 0) {
        text out = {0};
        scalar_words(d, p, &out);
        say(d, "%s%s\n", name, text_get(&out));
        text_free(&out);
        return true;
    }
    if (known)
        say(d, "`%s` has no value yet\n", name);
    else
        suggest(d, name);
    return known;
}
