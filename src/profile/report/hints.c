/*
 * The hints on the page. In: a profile, or what a bench kept. Out: what the rules say, the largest gain first; one line where they
 * say nothing about a profile, and words that fit several variants of a bench once.
 * SPDX-License-Identifier: MIT
 */
#include "profile/hints/hints.h"
#include "profile/report/bench.h"
#include "profile/report/report.h"

#include <math.h>
#include <string.h>

/* label: whose it is; source: number of its text on the page, -1: it has none. */
void html_hint(text *out, const hint *h, const char *label, int source)
{
    text_add(out, "<div class=\"hint\"><b>");
    html_text(out, h->title);
    if (label) html_print(out, ": %s", label);
    text_add(out, "</b>");
    if (isfinite(h->gain_ns) && h->gain_ns > 0) {
        text_add(out, "<span class=\"gain\">up to ");
        text_add_duration(out, h->gain_ns);
        if (isfinite(h->gain_share)) text_print(out, " (%.1f %% of the run)", 100 * h->gain_share);
        text_add(out, "</span> ");
    } else if (h->gain > 0) {
        text_print(out, "<span class=\"gain\">up to %.0f %% of the kernel's time</span> ", 100 * h->gain);
    }
    html_text(out, h->what);
    if (h->advice) html_print(out, ". Try: %s.", h->advice);
    text_add(out, "<small>");
    if (h->evidence) html_print(out, "Seen: %s. ", h->evidence);
    if (h->file) html_print(out, "%s:%d. ", h->file, h->line);
    if (source >= 0) text_print(out, "<a href=\"#source-%d\">its text</a>", source);
    text_add(out, "</small></div>\n");
}

/* Of the GPU if one did anything, else of the first device that was measured. */
static const qn_ceilings *ceilings_for_hints(const report_model *m)
{
    const qn_ceilings *found = NULL;
    for (int i = 0; i < m->device_count; i++) {
        const report_device *d = &m->devices[i];
        if (d->measured && (!found || target_is_gpu(d->name))) found = &d->ceilings;
    }
    return found;
}

static int source_of(const report_model *m, const hint *h)
{
    for (int i = 0; h->of && i < m->kernel_count; i++)
        if (m->kernels[i].facts == h->of->facts) return m->kernels[i].source;
    return -1;
}

void report_hints(const report_model *m, text *out)
{
    hint_list list = {0};
    arena *memory = arena_new();
    hints_of_profile(m->profile, ceilings_for_hints(m), memory, &list);
    html_open_section(out, "hints", "Hints",
                      "What costs time and what to try, the largest gain first. A gain is the most that can be won, "
                      "and gains of several hints do not add up.");
    for (int i = 0; i < list.count; i++)
        html_hint(out, &list.items[i], list.items[i].kernel, source_of(m, &list.items[i]));
    if (!list.count) page_note(out, "about", "Nothing is worth a hint.");
    html_close_section(out);
    arena_free(memory);
}

/* ---- of a bench ---- */

/* Is the same told of a variant before it, whose gain is hardly larger? */
static bool told_before(const bench_extras *extras, int number, int *first)
{
    for (int i = 0; i < number; i++)
        if (extras->hints[i].rule == extras->hints[number].rule &&
            extras->hints[number].gain >= 0.8 * extras->hints[i].gain) {
            *first = i;
            return true;
        }
    return false;
}

/* The words once, then the other variants they fit. */
void bench_hints_put(const bench_extras *extras, text *out)
{
    enum { MOST = 20 };
    int told = 0, more = 0, first;
    html_open_section(out, "hints", "Hints",
                      "The two best about each variant, at the point where they weigh most, the largest gain first.");
    for (int i = 0; i < extras->hint_count; i++) {
        if (told_before(extras, i, &first)) continue;
        if (++told > MOST) {
            more++;
            continue;
        }
        text_add(out, extras->hints[i].words);
        int others = 0;
        for (int k = i + 1; k < extras->hint_count; k++) {
            if (!told_before(extras, k, &first) || first != i) continue;
            text_add(out, others++ ? ", " : "<p class=\"about\">Nearly the same: ");
            html_name(out, extras->hints[k].label);
        }
        if (others) text_add(out, ".</p>\n");
    }
    if (more) text_print(out, "<p class=\"about\">and %d smaller ones</p>\n", more);
    html_close_section(out);
}
