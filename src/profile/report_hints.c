/*
 * The hints on the page. In: a profile. Out: what its rules say, the largest gain first; one line where they say nothing.
 * SPDX-License-Identifier: MIT
 */
#include "profile/hints.h"
#include "profile/report.h"

#include <math.h>
#include <string.h>

static void put_hint(const report_model *m, const hint *h, text *out)
{
    text_add(out, "<div class=\"hint\"><b>");
    html_text(out, h->title);
    if (h->kernel) html_print(out, ": %s", h->kernel);
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
    if (h->advice) html_print(out, " %s", h->advice);
    text_add(out, "<small>");
    if (h->evidence) html_print(out, "Seen: %s. ", h->evidence);
    if (h->file) html_print(out, "%s:%d. ", h->file, h->line);
    for (int i = 0; i < m->kernel_count; i++) {
        if (!h->of || m->kernels[i].facts != h->of->facts || m->kernels[i].source < 0) continue;
        text_print(out, "<a href=\"#source-%d\">its text</a>", m->kernels[i].source);
        break;
    }
    text_add(out, "</small></div>\n");
}

/* Of the GPU if one did anything, else of the first device that was measured. */
static const qn_ceilings *ceilings_for_hints(const report_model *m)
{
    const qn_ceilings *found = NULL;
    for (int i = 0; i < m->device_count; i++) {
        const report_device *d = &m->devices[i];
        if (d->measured && (!found || !strncmp(d->name, "cuda", 4))) found = &d->ceilings;
    }
    return found;
}

void report_hints(const report_model *m, text *out)
{
    hint_list list = {0};
    arena *memory = arena_new();
    hints_of_profile(m->profile, ceilings_for_hints(m), memory, &list);
    html_open_section(out, "hints", "Hints",
                      "What costs time and what to try, the largest gain first. A gain is the most that can be won, "
                      "and gains of several hints do not add up.");
    for (int i = 0; i < list.count; i++) put_hint(m, &list.items[i], out);
    if (!list.count) page_note(out, "about", "Nothing is worth a hint.");
    html_close_section(out);
    arena_free(memory);
}
