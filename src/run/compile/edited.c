/*
 * Edited schedules. In: text as `show --stage schedule` prints it, with other numbers in the lines of launches. Out: knobs of
 * the kernels it names, when they are compiled.
 *
 * A schedule is made of the kernel, the machine and the numbers of its launches; all other lines follow from them. So the
 * numbers are set as wishes, the schedule is made again, and it is compared with what was asked for: a launch must be the
 * one that was written, any other line one of the schedule before or after. What cannot be is an error that shows what
 * would be, never a schedule that differs from its text.
 * SPDX-License-Identifier: MIT
 */
#include "run/compile/edited.h"

#include "schedule/schedule.h"

#include <quern/workbench.h>
#include <stdatomic.h>
#include <string.h>

typedef struct edited_line {
    const char *words;
    int number; /* in the text */
} edited_line;

struct edited_schedule {
    arena *memory; /* of the first: all are in it */
    const char *kernel;
    edited_line *lines;
    int line_count, line_capacity;
    _Atomic bool used;
    struct edited_schedule *next;
};

/* A line without its comment and with single blanks; NULL: nothing is left. */
static const char *line_words(arena *memory, const char *line, size_t length)
{
    char *words = arena_copy_text(memory, line, length), *to = words;
    for (const char *from = words; *from && *from != ';' && !(from[0] == '/' && from[1] == '/'); from++) {
        bool blank = *from == ' ' || *from == '\t' || *from == '\r';
        if (!blank)
            *to++ = *from;
        else if (to > words && to[-1] != ' ')
            *to++ = ' ';
    }
    while (to > words && to[-1] == ' ') to--;
    *to = 0;
    return *words ? words : NULL;
}

/* All lines of a text. */
static edited_line *split_lines(arena *memory, const char *from, int *count)
{
    edited_line *lines = NULL;
    int capacity = 0, number = 0;
    *count = 0;
    while (*from) {
        size_t length = strcspn(from, "\n");
        const char *words = line_words(memory, from, length);
        edited_line line = {words, ++number};
        if (words) ARENA_PUSH(memory, lines, *count, capacity, line);
        from += length + (from[length] == '\n');
    }
    return lines;
}

static bool is_launch(const char *words)
{
    return !strncmp(words, "launch ", 7);
}

/* ---- reading ---- */

static qn_status read_all(qn_context *context, const char *source, qn_error *error)
{
    static const char begin[] = "schedule ";
    arena *memory = arena_new();
    struct edited_schedule *all = NULL, *open = NULL;
    int count;
    const edited_line *lines = split_lines(memory, source, &count);
    for (int i = 0; i < count; i++) {
        if (!strncmp(lines[i].words, begin, sizeof(begin) - 1)) {
            open = ARENA_NEW(memory, struct edited_schedule);
            *open =
                (struct edited_schedule){.memory = memory, .kernel = lines[i].words + sizeof(begin) - 1, .next = all};
            all = open;
        } else if (open) {
            ARENA_PUSH(memory, open->lines, open->line_count, open->line_capacity, lines[i]);
        } else {
            qn_status status =
                error_set(error, QN_BAD_CALL,
                          "line %d is of no schedule: the text begins with `schedule NAME`, as `quern show FILE NAME "
                          "--stage schedule` prints it",
                          lines[i].number);
            arena_free(memory);
            return status;
        }
    }
    if (!all) {
        arena_free(memory);
        return error_set(error, QN_BAD_CALL, "there is no schedule in the text");
    }
    edited_free(context->edited);
    context->edited = all;
    return QN_OK;
}

qn_status qn_schedule_use(qn_context *context, const char *source, qn_error *error)
{
    HEAP_ENTER(error);
    if (!context) return error_set(error, QN_BAD_CALL, "qn_schedule_use: the context is NULL");
    if (source) return read_all(context, source, error);
    edited_free(context->edited);
    context->edited = NULL;
    return QN_OK;
}

const char *qn_schedule_unused(const qn_context *context)
{
    for (const struct edited_schedule *e = context ? context->edited : NULL; e; e = e->next)
        if (!e->used) return e->kernel;
    return NULL;
}

void edited_free(struct edited_schedule *all)
{
    if (all) arena_free(all->memory);
}

/* ---- following ---- */

static qn_status print_lines(const device_slot *s, const tile_kernel *k, arena *memory, edited_line **lines, int *count,
                             qn_error *error)
{
    text words = {0};
    qn_status status = s->driver->schedule(s->device, k, &words, error);
    if (status == QN_OK) *lines = split_lines(memory, text_get(&words), count);
    text_free(&words);
    return status;
}

static const char *launch_of(const edited_line *lines, int count, int phase)
{
    sched_choice choice;
    int number;
    for (int i = 0; i < count; i++)
        if (schedule_read_choice(lines[i].words, &number, &choice) && number == phase) return lines[i].words;
    return NULL;
}

/* A number that is the rule's own is no wish: knobs are the whole kernel's, and other launches of it have rules too. */
static void wish(tile_kernel *k, tile_knob knob, int usual, int wanted)
{
    if (wanted != usual) k->knobs[knob] = wanted;
}

static void set_wishes(const struct edited_schedule *e, const edited_line *usual, int usual_count, tile_kernel *k)
{
    for (int i = 0; i < e->line_count; i++) {
        sched_choice wanted, rule;
        int phase;
        if (!schedule_read_choice(e->lines[i].words, &phase, &wanted)) continue;
        const char *before = launch_of(usual, usual_count, phase);
        if (!before || !schedule_read_choice(before, &phase, &rule)) continue;
        wish(k, KNOB_STAGES, rule.stages, wanted.stages);
        wish(k, KNOB_GROUP, rule.order, wanted.order);
        wish(k, KNOB_BLOCKS, rule.blocks, wanted.blocks);
        wish(k, KNOB_TURNS, rule.turns, wanted.turns);
    }
}

static bool has_line(const edited_line *lines, int count, const char *words)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(lines[i].words, words)) return true;
    return false;
}

static qn_status compare(const struct edited_schedule *e, const edited_line *usual, int usual_count,
                         const edited_line *made, int made_count, qn_error *error)
{
    for (int i = 0; i < e->line_count; i++) {
        const edited_line *l = &e->lines[i];
        sched_choice choice;
        int phase = -1;
        if (has_line(made, made_count, l->words)) continue;
        if (!is_launch(l->words) && has_line(usual, usual_count, l->words)) continue;
        (void)schedule_read_choice(l->words, &phase, &choice);
        const char *instead = phase >= 0 ? launch_of(made, made_count, phase) : NULL;
        return error_set(error, QN_BAD_CALL,
                         "line %d of the edited schedule of `%s` cannot be: `%s`%s%s%s. Of a fed launch stages, order, "
                         "blocks and `in turns` can be changed; the tile is the kernel's own, the other lines follow",
                         l->number, e->kernel, l->words, instead ? "; what can be is `" : "", instead ? instead : "",
                         instead ? "`" : "");
    }
    return QN_OK;
}

qn_status edited_follow(qn_context *context, int slot, tile_kernel *k, qn_error *error)
{
    const device_slot *s = &context->slots[slot];
    struct edited_schedule *e = context->edited;
    while (e && strcmp(e->kernel, k->name) != 0) e = e->next;
    if (!e) return QN_OK;
    e->used = true;
    if (!s->driver->schedule)
        return error_set(error, QN_BAD_CALL,
                         "kernel `%s` has an edited schedule, and the device %s follows none; cuda "
                         "and emu do",
                         k->name, s->name);
    arena *memory = arena_new();
    edited_line *usual, *made;
    int usual_count, made_count;
    qn_status status = print_lines(s, k, memory, &usual, &usual_count, error);
    if (status == QN_OK) {
        set_wishes(e, usual, usual_count, k);
        status = print_lines(s, k, memory, &made, &made_count, error);
    }
    if (status == QN_OK) status = compare(e, usual, usual_count, made, made_count, error);
    arena_free(memory);
    return status;
}
