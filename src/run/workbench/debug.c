/*
 * The debugger: steps a kernel under the checking interpreter. In: a call, and commands line by line (a terminal or a
 * script). Out: text.
 *
 * The interpreter calls the hook before each op. The hook decides whether to stop there: at a new source line when
 * stepping, at a breakpoint, at every op; when stopped it reads commands until one of them lets the program run on.
 * The end of the input ends the session, as `quit` does.
 * SPDX-License-Identifier: MIT
 */
#include "run/workbench/debug.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef struct command {
    const char *name, *form, *summary;
    bool (*run)(debugger *d, char **words, int count); /* true: the program runs on */
} command;

static bool run_step(debugger *d, char **words, int count)
{
    d->mode = MODE_STEP_LINE;
    return true;
}

static bool run_next(debugger *d, char **words, int count)
{
    if (count > 1 && strncmp(words[1], "op", strlen(words[1])) != 0) {
        say(d, "next op runs one operation; step runs to the next source line\n");
        return false;
    }
    d->mode = MODE_STEP_OP;
    return true;
}

static bool run_continue(debugger *d, char **words, int count)
{
    d->mode = MODE_CONTINUE;
    return true;
}

static bool run_quit(debugger *d, char **words, int count)
{
    d->quit = true;
    return true;
}

static bool read_number(const char *words, int64_t *out)
{
    char *end;
    *out = strtoll(words, &end, 10);
    return end != words && !*end;
}

/* A line has code if an op of a phase stands on it; `next`: the first such line from `line` on, 0 if none. */
typedef struct line_search {
    int line, next;
} line_search;

/* The source line that runs with this op; 0: none. Constants and arguments are shared by several lines. */
static int line_of(const tile_op *op)
{
    return op->code == OP_CONST || op->code == OP_ARG ? 0 : op->line;
}

static void visit_line(tile_kernel *k, tile_block *b, tile_op *op, void *context)
{
    line_search *search = context;
    if (line_of(op) >= search->line && (!search->next || op->line < search->next)) search->next = op->line;
}

static void visit_place(tile_kernel *k, tile_block *b, tile_op *op, void *context)
{
    debugger *d = context;
    d->places[d->place_count] = (debug_place){op, d->place_count};
    d->place_count++;
}

static void visit_count(tile_kernel *k, tile_block *b, tile_op *op, void *context)
{
    ((debugger *)context)->place_capacity++;
}

static int compare_places(const void *a, const void *b)
{
    uintptr_t left = (uintptr_t)((const debug_place *)a)->op, right = (uintptr_t)((const debug_place *)b)->op;
    return (left > right) - (left < right);
}

static void make_places(debugger *d)
{
    tile_kernel *k = (tile_kernel *)d->kernel; /* the walk changes nothing here */
    for (int phase = 0; phase < k->phase_count; phase++) tile_walk(k, k->phases[phase], visit_count, d);
    d->places = heap_array((size_t)d->place_capacity + 1, sizeof(debug_place));
    for (int phase = 0; phase < k->phase_count; phase++) tile_walk(k, k->phases[phase], visit_place, d);
    qsort(d->places, (size_t)d->place_count, sizeof(debug_place), compare_places);
}

static int order_of(const debugger *d, const tile_op *op)
{
    debug_place key = {op, 0};
    const debug_place *found = bsearch(&key, d->places, (size_t)d->place_count, sizeof(key), compare_places);
    return found ? found->order : 0;
}

static int line_with_code(const tile_kernel *k, int line)
{
    line_search search = {line, 0};
    for (int phase = 0; phase < k->phase_count; phase++)
        tile_walk((tile_kernel *)k, k->phases[phase], visit_line, &search);
    return search.next;
}

static void add_break(debugger *d, debug_break b)
{
    if (d->break_count == MAX_BREAKS) {
        say(d, "there are %d breakpoints already; delete one\n", MAX_BREAKS);
        return;
    }
    b.number = ++d->break_last;
    d->breaks[d->break_count++] = b;
    if (b.line) {
        say(d, "break %d at line %d\n", b.number, b.line);
        return;
    }
    say(d, "break %d at program", b.number);
    for (int axis = 0; axis < b.axes; axis++) say(d, axis ? ", %lld" : " %lld", (long long)b.program[axis]);
    say(d, "\n");
}

static bool run_break(debugger *d, char **words, int count)
{
    debug_break b = {0};
    int64_t number;
    if (count < 2) {
        show_info(d);
        return false;
    }
    if (!strncmp(words[1], "program", strlen(words[1]))) {
        b.axes = count - 2;
        if (b.axes < 1 || b.axes > 3) {
            say(d, "break program takes one to three numbers: break program 3, break program 3 0\n");
            return false;
        }
        for (int axis = 0; axis < b.axes; axis++) {
            if (!read_number(words[2 + axis], &b.program[axis])) {
                say(d, "`%s` is not a number\n", words[2 + axis]);
                return false;
            }
        }
        add_break(d, b);
        return false;
    }
    if (!read_number(words[1], &number) || number < 1) {
        say(d, "break takes a line or a program: break 7, break program 3 0\n");
        return false;
    }
    int line = line_with_code(d->kernel, (int)MINIMUM(number, 1000000000));
    if (!line) {
        say(d, "no code on line %lld or after it\n", (long long)number);
        return false;
    }
    if (line != number) say(d, "no code on line %lld; the next is line %d\n", (long long)number, line);
    b.line = line;
    add_break(d, b);
    return false;
}

static bool run_delete(debugger *d, char **words, int count)
{
    int64_t number = 0;
    if (count < 2) {
        d->break_count = 0;
        say(d, "all breakpoints are gone\n");
        return false;
    }
    if (read_number(words[1], &number)) {
        for (int i = 0; i < d->break_count; i++) {
            if (d->breaks[i].number != number) continue;
            memmove(&d->breaks[i], &d->breaks[i + 1], sizeof(debug_break) * (size_t)(d->break_count - i - 1));
            d->break_count--;
            say(d, "break %lld is gone\n", (long long)number);
            return false;
        }
    }
    say(d, "there is no breakpoint %s; info lists them\n", words[1]);
    return false;
}

#define NAME_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

static bool run_print(debugger *d, char **words, int count)
{
    if (count < 2) say(d, "print takes names: print v, print x[3]\n");
    for (int i = 1; i < count; i++) {
        size_t name = strspn(words[i], NAME_LETTERS);
        if (name && !words[i][name + strspn(words[i] + name, "[]-0123456789")] &&
            (words[i][0] < '0' || words[i][0] > '9'))
            continue;
        say(d, "`%s`: expressions are not supported; print shows a variable or an element: print v, print x[3]\n",
            words[i]);
        return false;
    }
    for (int i = 1; i < count; i++) show_value(d, words[i]);
    return false;
}

static bool run_watch(debugger *d, char **words, int count)
{
    if (count < 2) {
        for (int i = 0; i < d->watch_count; i++) show_value(d, d->watches[i].name);
        if (!d->watch_count) say(d, "watch takes a name: watch v\n");
        return false;
    }
    if (strlen(words[1]) >= sizeof(d->watches[0].name) || !show_value(d, words[1])) return false;
    if (d->watch_count == MAX_WATCHES) {
        say(d, "there are %d watches already; unwatch one\n", MAX_WATCHES);
        return false;
    }
    debug_watch *w = &d->watches[d->watch_count++];
    snprintf(w->name, sizeof(w->name), "%s", words[1]);
    text_clear(&w->last);
    value_words(d, w->name, &w->last);
    return false;
}

static bool run_unwatch(debugger *d, char **words, int count)
{
    for (int i = d->watch_count - 1; i >= 0; i--) {
        if (count > 1 && strcmp(d->watches[i].name, words[1]) != 0) continue;
        text_free(&d->watches[i].last);
        memmove(&d->watches[i], &d->watches[i + 1], sizeof(debug_watch) * (size_t)(d->watch_count - i - 1));
        d->watch_count--;
        memset(&d->watches[d->watch_count], 0, sizeof(debug_watch));
    }
    return false;
}

static bool run_list(debugger *d, char **words, int count)
{
    int64_t line = 0;
    if (count > 1 && (!read_number(words[1], &line) || line < 1))
        say(d, "list takes a line: list 12\n");
    else
        show_list(d, (int)MINIMUM(line, 1000000000));
    return false;
}

static bool run_where(debugger *d, char **words, int count)
{
    show_where(d);
    return false;
}

static bool run_memory(debugger *d, char **words, int count)
{
    if (count > 1 && !strcmp(words[1], "on"))
        d->memory = true;
    else if (count > 1 && !strcmp(words[1], "off"))
        d->memory = false;
    else if (count > 1) {
        say(d, "memory on shows what each load and store touches; memory off stops that\n");
        return false;
    }
    say(d, "memory is %s\n", d->memory ? "on" : "off");
    return false;
}

static bool run_info(debugger *d, char **words, int count)
{
    show_info(d);
    return false;
}

static bool run_help(debugger *d, char **words, int count);

static const command commands[] = {
    {"break", "break LINE | break program P [Q [R]]", "stop there", run_break},
    {"continue", "continue", "run to the next breakpoint", run_continue},
    {"delete", "delete [N]", "remove breakpoint N, or all", run_delete},
    {"help", "help", "this list", run_help},
    {"info", "info", "parameters, launch, breakpoints", run_info},
    {"list", "list [LINE]", "source lines", run_list},
    {"memory", "memory on|off", "show what each load and store touches", run_memory},
    {"next", "next op", "run one operation of the IR", run_next},
    {"print", "print NAME ...", "a variable, a parameter, an array or a part of it: x[3]", run_print},
    {"quit", "quit", "end the session", run_quit},
    {"step", "step", "run to the next source line", run_step},
    {"unwatch", "unwatch [NAME]", "stop watching", run_unwatch},
    {"watch", "watch NAME", "show the variable whenever it changes", run_watch},
    {"where", "where", "program, loops, line, operation", run_where},
};

static bool run_help(debugger *d, char **words, int count)
{
    for (int i = 0; i < COUNT(commands); i++) say(d, "  %-38s %s\n", commands[i].form, commands[i].summary);
    say(d,
        "A command may be shortened (b, c, n, p, s). An empty line repeats step, next and list. # begins a comment.\n");
    return false;
}

/* By its name or the beginning of it: the first of the table that fits. */
static const command *find_command(const char *name)
{
    for (int i = 0; i < COUNT(commands); i++)
        if (!strncmp(commands[i].name, name, strlen(name))) return &commands[i];
    return NULL;
}

static bool run_line(debugger *d, char *line)
{
    char *words[16];
    int count = 0;
    char *rest = NULL;
    for (char *word = strtok_r(line, " \t\r\n", &rest); word && count < COUNT(words);
         word = strtok_r(NULL, " \t\r\n", &rest))
        words[count++] = word;
    if (!count && d->repeat[0]) words[count++] = d->repeat;
    if (!count || words[0][0] == '#') return false;
    const command *c = find_command(words[0]);
    if (!c) {
        const char *names[COUNT(commands)];
        for (int i = 0; i < COUNT(commands); i++) names[i] = commands[i].name;
        const char *near = suggest_name(words[0], names, COUNT(commands));
        if (near)
            say(d, "there is no command `%s`; did you mean `%s`?\n", words[0], near);
        else
            say(d, "there is no command `%s`; help lists them\n", words[0]);
        return false;
    }
    bool repeats = c->run == run_step || c->run == run_next || c->run == run_list;
    snprintf(d->repeat, sizeof(d->repeat), "%s", repeats ? c->name : "");
    return c->run(d, words, count);
}

/* Reads commands until one lets the program run on. */
static void converse(debugger *d)
{
    char line[1024];
    do {
        line[0] = 0;
        if (!d->read_line(d->user, "(quern) ", line, sizeof(line))) {
            d->quit = true;
            return;
        }
    } while (!run_line(d, line));
}

static void show_watches(debugger *d)
{
    for (int i = 0; i < d->watch_count; i++) {
        debug_watch *w = &d->watches[i];
        text now = {0};
        if (value_words(d, w->name, &now) && strcmp(text_get(&now), text_get(&w->last)) != 0) {
            say(d, "  watch %s = %s  (line %d)\n", w->name, text_get(&now), d->previous ? d->previous->line : d->line);
            text_clear(&w->last);
            text_add(&w->last, text_get(&now));
        }
        text_free(&now);
    }
}

static const debug_break *hit_break(const debugger *d, bool new_program, bool new_line)
{
    for (int i = 0; i < d->break_count; i++) {
        const debug_break *b = &d->breaks[i];
        if (b->line ? new_line && b->line == d->line
                    : new_program && !memcmp(b->program, d->program, sizeof(int64_t) * (size_t)b->axes))
            return b;
    }
    return NULL;
}

static bool hook(void *context, interp *state, const tile_op *op, const int64_t program[3])
{
    debugger *d = context;
    int phase = interp_phase(state);
    bool new_program = !d->op || phase != d->phase || memcmp(program, d->program, sizeof(d->program)) != 0;
    int line = line_of(op);
    if (new_program) d->line = 0; /* its first line is new, whatever it is */
    int order = order_of(d, op);
    bool new_line = line && (line != d->line || order <= d->order);
    d->state = state;
    d->previous = new_program ? NULL : d->op;
    d->op = op;
    d->phase = phase;
    memcpy(d->program, program, sizeof(d->program));
    if (line) {
        d->line = line;
        d->order = order;
    }
    if (d->watch_count) show_watches(d);
    if (d->mode == MODE_STEP_OP && d->previous) show_results(d, d->previous);
    if (new_program) d->fresh = true;
    const debug_break *b = hit_break(d, d->fresh && line, new_line);
    if (line) d->fresh = false;
    if (b) say(d, "break %d: ", b->number);
    if (b || d->mode == MODE_STEP_OP || (d->mode == MODE_STEP_LINE && new_line)) {
        if (b || new_line) show_place(d);
        if (d->mode == MODE_STEP_OP) show_op(d);
        converse(d);
    }
    if (d->memory && !d->quit) show_memory(d, op);
    return !d->quit;
}

static void print_line(void *context, const char *line)
{
    say(context, "%s\n", line);
}

qn_status qn_debug(qn_call *call, qn_read_line *read_line, qn_write *write, void *user, qn_error *error)
{
    HEAP_ENTER(error);
    int slot;
    if (!call || !read_line || !write) return error_set(error, QN_BAD_CALL, "qn_debug: an argument is NULL");
    if (call_is_function(call))
        return error_set(
            error, QN_BAD_CALL,
            "`%s` is a tensor function: it has no programs to step through; `quern show` shows its kernels",
            call->kernel->name);
    QN_TRY(context_slot(call->context, "ref", &slot, error));
    QN_TRY(call_bind(call, slot, false, error));
    QN_TRY(variant_get(call, &call->variant, error));
    debugger d = {.call = call, .kernel = call->variant->kernel, .read_line = read_line, .write = write, .user = user};
    make_places(&d);
    findings found = {0};
    interp_options interp = {.check = true,
                             .units = slot_about(call->context, slot)->units,
                             .hook = hook,
                             .hook_context = &d,
                             .print = print_line,
                             .print_context = &d};
    launch_options options = {.interp = &interp, .found = &found};
    qn_error failure = {0};
    qn_status status = call_launch(call, slot, &options, &failure);
    if (!d.quit) {
        text words = {0};
        findings_print(&found, d.kernel, &words);
        if (status != QN_OK && status != QN_NO_MEMORY && !found.count) say(&d, "%s\n", failure.message);
        say(&d, "%s", text_get(&words));
        if (status == QN_OK) say(&d, found.count ? "the kernel ended, with findings\n" : "the kernel ended\n");
        text_free(&words);
    }
    for (int i = 0; i < d.watch_count; i++) text_free(&d.watches[i].last);
    findings_free(&found);
    heap_free(d.places);
    return status == QN_NO_MEMORY ? error_set(error, status, "%s", failure.message) : QN_OK;
}
