/*
 * What `check` says. In: findings, failures, refusals and counts of the kernel at hand. Out: lines for people, each told
 * once, a summary line, and the same as a JSON object where a program asks for it.
 * SPDX-License-Identifier: MIT
 */
#include "base/json.h"
#include "run/workbench/check_state.h"

#include <stdarg.h>
#include <string.h>

void checker_say(checker *c, const char *format, ...)
{
    text line = {0};
    va_list list;
    va_start(list, format);
    text_print_list(&line, format, list);
    va_end(list);
    c->write(c->user, text_get(&line), line.length);
    if (c->options->each) text_add_bytes(&c->told_text, text_get(&line), line.length);
    text_free(&line);
}

void checker_tell(checker *c, const check_case *at, const char *device, const char *words)
{
    text where = {0};
    check_describe(at, &where);
    checker_say(c, "%s on %s with %s:\n%s%s", c->entry->name, device, where.length ? text_get(&where) : "no settings",
                words, *words && words[strlen(words) - 1] == '\n' ? "" : "\n");
    text_free(&where);
    c->findings++;
}

/* A failure of a run, once: the same one at other sizes has the same place and code, or begins with the same words. That
 * there was no memory says nothing about the kernel: the check ends. */
void checker_tell_failure(checker *c, const check_case *at, const char *device, const qn_error *error)
{
    char start[256];
    const char *words = error->message;
    if (error->status == QN_NO_MEMORY) {
        if (c->no_memory.status == QN_OK) c->no_memory = *error;
        c->ended = true;
        return;
    }
    if (at->empty && error->status == QN_FINDING) { /* as in checker_tell_findings */
        text_print(&c->empty, "%s%s=0: %.160s", c->empty_count++ ? "; " : "", at->empty, words);
        return;
    }
    if (error->code)
        snprintf(start, sizeof(start), "%s: %d:%d: %d", device, error->line, error->column, error->code);
    else
        snprintf(start, sizeof(start), "%s: %.60s", device, words);
    for (int i = 0; i < c->told_count; i++)
        if (!strcmp(c->told[i], start)) return;
    if (c->told_count < COUNT(c->told)) memcpy(c->told[c->told_count++], start, sizeof(start));
    checker_tell(c, at, device, words);
}

/* Findings that were not told before. A reduction of nothing or an index into nothing is often the caller's affair:
 * with an empty array that nobody asked for, findings are named in the summary, and do not count. */
void checker_tell_findings(checker *c, const check_case *at, const findings *found, const tile_kernel *k)
{
    for (int i = 0; i < found->count; i++) {
        finding *f = &found->items[i];
        bool known = false;
        if (at->empty) {
            text_print(&c->empty, "%s%s=0: %c%d on line %d", c->empty_count++ ? "; " : "", at->empty,
                       f->code < 700 ? 'E' : 'R', f->code, f->line);
            continue;
        }
        for (int s = 0; s < c->seen_count; s++) known |= c->seen[s].code == f->code && c->seen[s].line == f->line;
        if (known) continue;
        if (c->seen_count < COUNT(c->seen)) {
            c->seen[c->seen_count].code = f->code;
            c->seen[c->seen_count++].line = f->line;
        }
        text words = {0};
        findings one = {.items = f, .count = 1, .capacity = 1};
        findings_print(&one, k, &words);
        checker_tell(c, at, "ref", text_get(&words));
        text_free(&words);
    }
}

/* Why a case was refused: by an `assume`, which is the kernel's right, or because the shapes of a tensor function do not
 * fit at sizes that its extents allow, which is a mistake of the function. */
static void note_refusal(checker *c, const check_case *at, const qn_error *error, const char *where)
{
    /* "file:3:5: error E503: `assume` on line 3 is false: n > 4", or at a launch "... assume is false: n > 4 with n = 1" */
    const char *is_false = error->code == E503 ? strstr(error_words(error), " is false: ") : NULL;
    if (is_false) {
        const char *words = is_false + strlen(" is false: "), *with = strstr(words, " with ");
        int length = (int)strcspn(words, "\n");
        if (with && with - words < length) length = (int)(with - words);
        if (!c->assumed.length) text_print(&c->assumed, "`assume(%.*s)` on line %d", length, words, error->line);
        return;
    }
    bool tensor = c->entry->item && c->entry->item->kind == AST_TENSOR && !at->empty;
    if (!tensor || c->misfit.length || error->code == E510) return;
    text_print(&c->misfit, "%s on ref with %s:\n%s", c->entry->name, *where ? where : "no settings", error->message);
    if (error->code == E301 || error->code == E318) return; /* at no sizes */
    text_add(&c->misfit, "  extents that must agree have one name; what else must hold is said by `assume`, as "
                         "`assume(D % 4 == 0);`\n");
}

void checker_skip(checker *c, const check_case *at, const qn_error *error)
{
    text where = {0};
    check_describe(at, &where);
    if (!c->skipped++) text_add(&c->skip_reason, error->message);
    if (error->status == QN_BAD_SOURCE && !c->broken.length && error->code != E503) {
        text_add(&c->broken, error->message);
        c->broken_code = error->code;
    }
    if (error->status == QN_BAD_SOURCE && !c->refused.length)
        text_print(&c->refused, "%s: %.*s", text_get(&where), (int)strcspn(error->message, "\n"), error->message);
    note_refusal(c, at, error, text_get(&where));
    if (c->options->verbose) checker_say(c, "  skipped %s: %s", text_get(&where), error->message);
    text_free(&where);
}

/* Its name, and of a function of any rank how many axes `[...]` had. */
const char *checker_called(const checker *c)
{
    const kernel_entry *e = c->entry;
    if (e->spread < 0) return e->name;
    return arena_print(c->memory, "%s with %d ax%s for [...]", e->name, e->spread, e->spread == 1 ? "is" : "es");
}

void checker_summary(checker *c)
{
    text devices = {0};
    bool raw = c->truth != c->entry;
    if (!raw) text_add(&devices, "ref");
    for (int slot = 0; slot < c->context->slot_count; slot++)
        if (checker_wants(c, slot) && c->compared)
            text_print(&devices, "%s%s", devices.length ? ", " : "", c->context->slots[slot].name);
    const char *text_ran = c->as_cuda ? "; its CUDA text on emu, 1 case" : "";
    if (raw) text_print(&devices, " against the bench's first variant `%s`", c->truth->name);
    if (c->ran && c->misfit.length) {
        checker_say(c, "%s", text_get(&c->misfit));
        c->findings++;
    }
    if (!c->ran && c->broken.length) {
        bool sized = c->entry->item && c->entry->item->kind == AST_TENSOR && c->broken_code / 100 == 3;
        checker_say(
            c, "%s%s: does not compile%s\n", text_get(&c->broken), c->entry->name,
            sized ? " with sizes that are chosen each for itself; give some that fit with --set, or write what one is "
                    "of the "
                    "others where it is declared: `float w[8 * H][C]`"
                  : "");
        c->findings++;
    } else if (!c->ran && c->assumed.length) {
        checker_say(c, "%s: no size that was tried satisfies %s; give sizes with --set\n", c->entry->name,
                    text_get(&c->assumed));
        c->findings++;
    } else if (!c->ran) {
        checker_say(c, "%s: every case that was tried is refused; give sizes with --set. The first refusal:\n%s",
                    c->entry->name, text_get(&c->skip_reason));
        c->findings++;
    } else if (c->findings) {
        checker_say(c, "%s: %d finding%s in %d cases on %s%s\n", checker_called(c), c->findings,
                    c->findings == 1 ? "" : "s", c->ran, text_get(&devices), text_ran);
    } else {
        checker_say(c, "%s: clean, %d cases on %s%s", checker_called(c), c->ran, text_get(&devices), text_ran);
        if (c->skipped)
            checker_say(c, "; %d refused by %s", c->skipped, c->assumed.length ? text_get(&c->assumed) : "the kernel");
        checker_say(c, "%s\n", c->stopped ? "; stopped at the time limit" : "");
    }
    if (c->empty_count)
        checker_say(c, "  with an empty array ref finds, not counted: %s; --set NAME=0 reports it in full\n",
                    text_get(&c->empty));
    if (c->ran && c->refused.length && !c->misfit.length)
        checker_say(c, "  it does not compile with %s\n", text_get(&c->refused));
    text_free(&devices);
}

/* The kernel as one JSON object: what the summary says, for programs. */
void checker_tell_each(checker *c)
{
    if (!c->options->each) return;
    text out = {0};
    text_add(&out, "{");
    text_add(&out, "\"file\": ");
    json_add_string(&out, c->module->file ? c->module->file->path : "");
    text_add(&out, ", ");
    text_add(&out, "\"kernel\": ");
    json_add_string(&out, c->entry->name);
    text_print(&out, ", \"status\": \"%s\", \"cases\": %d, \"findings\": %d, \"refused\": %d, \"stopped\": %s",
               c->findings ? "found"
               : c->ran    ? "clean"
                           : "skipped",
               c->ran, c->findings, c->skipped, c->stopped ? "true" : "false");
    text_add(&out, ", \"devices\": [");
    int count = 0;
    if (c->truth == c->entry) text_print(&out, "\"ref\""), count++;
    for (int slot = 0; slot < c->context->slot_count; slot++)
        if ((checker_wants(c, slot) && c->compared) || (c->as_cuda && checker_wants_text(c, slot)))
            text_print(&out, "%s\"%s\"", count++ ? ", " : "", c->context->slots[slot].name);
    text_add(&out, "], ");
    text_add(&out, "\"text\": ");
    json_add_string(&out, text_get(&c->told_text));
    text_add(&out, "}");
    c->options->each(c->options->each_user, text_get(&out), out.length);
    text_free(&out);
}
