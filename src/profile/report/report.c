/*
 * The page put together. In: a profile that was stopped. Out: one HTML file, written aside and renamed.
 *
 * The page forbids itself to load anything (a Content-Security-Policy), has its style and script inside, and its data as
 * JSON in which no `<` stands. It is bounded: the timeline has at most so many slices, and fewer if the data would still
 * be over 20 MB.
 * SPDX-License-Identifier: MIT
 */
#include "profile/report/assets.h"
#include "profile/report/sources.h"
#include "profile/measure/roofs.h"

#include <math.h>
#include <quern/device.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

enum { MOST_DATA_BYTES = 20000000 };
static const int64_t usual_slices = 200000;

/* ---- head and foot ---- */

void page_open(text *out, const char *title)
{
    text_add(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                  "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                  "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
                  "'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n"
                  "<meta name=\"generator\" content=\"Quern\">\n<title>");
    html_text(out, title);
    text_add(out, "</title>\n<style>\n");
    text_add_bytes(out, (const char *)report_css, report_css_bytes);
    text_add(out, "</style>\n</head>\n<body>\n<header>\n<h1>");
    html_text(out, title);
    text_add(out, "</h1>\n<button type=\"button\" id=\"theme\" aria-label=\"light or dark\">light / dark</button>\n");
}

void page_note(text *out, const char *class, const char *words)
{
    if (!words || !*words) return;
    text_print(out, "<p class=\"%s\">", class);
    html_text(out, words);
    text_add(out, "</p>\n");
}

void page_close(text *out, const text *data)
{
    const char *at = text_get(data);
    text_add(out, "<script type=\"application/json\" id=\"data\">");
    while (*at) {
        size_t plain = strcspn(at, "<");
        text_add_bytes(out, at, plain);
        at += plain;
        if (*at) {
            text_add(out, "\\u003c");
            at++;
        }
    }
    text_add(out, "</script>\n<script>\n");
    text_add_bytes(out, (const char *)report_script, report_script_bytes);
    text_add(out, "</script>\n</body>\n</html>\n");
}

/* ---- environment ---- */

static void pair(text *out, const char *name, const char *words)
{
    if (!words || !*words) return;
    text_add(out, "<dt>");
    html_text(out, name);
    text_add(out, "</dt><dd>");
    html_text(out, words);
    text_add(out, "</dd>\n");
}

void page_environment(text *out, qn_context *context, const char *const *devices, int device_count, const char *command)
{
    struct utsname system;
    char words[300];
    time_t now = time(NULL);
    struct tm parts;
    text_add(out, "<details class=\"environment\"><summary>environment</summary><dl>\n");
    pair(out, "command", command);
    if (gmtime_r(&now, &parts) && strftime(words, sizeof(words), "%Y-%m-%d %H:%M:%S UTC", &parts))
        pair(out, "written", words);
    for (int i = 0; context && i < device_count; i++) {
        qn_device_info info;
        qn_error ignored;
        if (qn_device_find(context, devices[i], &info, &ignored) != QN_OK) continue;
        pair(out, info.name, info.description);
        char *details = info.available ? qn_device_details(context, info.name) : NULL;
        for (char *line = details ? strtok(details, "\n") : NULL; line; line = strtok(NULL, "\n")) pair(out, "", line);
        heap_free(details);
    }
    pair(out, "Quern", qn_version());
    snprintf(words, sizeof(words), "%d", cpu_count());
    pair(out, "cores of this process", words);
    if (!uname(&system)) {
        snprintf(words, sizeof(words), "%.60s %.100s %.60s", system.sysname, system.release, system.machine);
        pair(out, "system", words);
    }
    text_add(out, "</dl></details>\n");
}

/* ---- the parts that are of a profile ---- */

/* The run in a sentence or two. */
static void put_verdict(const report_model *m, text *out)
{
    text words = {0};
    for (int i = 0; i < m->device_count; i++)
        text_print(&words, "%s ran kernels %.0f %% of the time. ", m->devices[i].name,
                   100 * (double)m->devices[i].busy_ns / (double)MAXIMUM(m->span_ns, 1));
    if (m->kernel_count) {
        const report_kernel *k = &m->kernels[0];
        text_print(&words, "%s takes %.0f %% of the kernels' time", k->title,
                   100 * (double)k->total_ns / (double)MAXIMUM(m->kernel_ns, 1));
        if (isfinite(k->roof_share))
            text_print(&words, " and reaches %.0f %% of the roof: %s", 100 * k->roof_share,
                       limit_words(k->roof_share, k->bound));
        text_add(&words, ".");
    } else {
        text_add(&words, "No kernel ran while the profile was on.");
    }
    page_note(out, "verdict", text_get(&words));
    text_free(&words);
}

static void put_sources_of_data(const report_model *m, const qn_report_options *options, text *out)
{
    const qn_profile *p = m->profile;
    text words = {0};
    bool host = false;
    for (int64_t i = 0; i < p->kept_count && !host; i++) host = p->kept[i].kind == RECORD_KERNEL;
    text_print(&words, "Times of devices: %s%s%s. ", p->device_source ? p->device_source : "",
               p->device_source && host ? "; " : "",
               host || !p->device_source ? "records of the host's threads around each kernel" : "");
    if (p->device_reason) text_print(&words, "%s. ", p->device_reason);
    if (isfinite(p->device_overhead_share))
        text_print(&words, "Tracing the device took %.1f %% of the time. ", 100 * p->device_overhead_share);
    text_print(&words, "%lld records were kept", (long long)(p->kept_count + p->device_count));
    if (p->lost + p->device_lost) text_print(&words, ", %lld were dropped", (long long)(p->lost + p->device_lost));
    text_add(&words, ". ");
    if (m->left_out)
        text_print(&words, "The timeline leaves out %lld slices shorter than %lld ns%s%s. ", (long long)m->left_out,
                   (long long)m->left_out_below_ns, options->trace_path ? "; all are in " : "",
                   options->trace_path ? options->trace_path : "");
    page_note(out, "about", text_get(&words));
    text_free(&words);
}

static void put_timeline(text *out)
{
    html_open_section(out, "timeline-section", "Timeline",
                      "Drag to move, Ctrl and the wheel (or + and -) to zoom; drag in the ruler, or with Shift, to "
                      "select a time: the table of kernels is then of that time alone. On a touch screen: one finger "
                      "moves, two zoom, and `select` makes a drag select.");
    text_add(out,
             "<div class=\"tools\" id=\"timeline-tools\"><button type=\"button\" data-do=\"in\" aria-label=\"zoom "
             "in\">+</button><button type=\"button\" data-do=\"out\" aria-label=\"zoom out\">&minus;</button>"
             "<button type=\"button\" data-do=\"left\" aria-label=\"to the left\">&larr;</button><button "
             "type=\"button\" data-do=\"right\" aria-label=\"to the right\">&rarr;</button><button type=\"button\" "
             "data-do=\"all\">all</button><button type=\"button\" data-do=\"select\" aria-pressed=\"false\">select"
             "</button><button type=\"button\" data-do=\"clear\">clear</button><input type=\"search\" id=\"find\" "
             "placeholder=\"find\" aria-label=\"find slices by name\"></div>\n"
             "<div id=\"timeline\" tabindex=\"0\" aria-label=\"timeline\"><div id=\"timeline-space\"></div>"
             "<canvas id=\"canvas\"></canvas><div id=\"slice-card\" role=\"tooltip\" hidden></div></div>\n<p "
             "id=\"about-slice\" class=\"about\">No slice is selected.</p>\n"
             "<noscript><p>The timeline needs the page's script.</p></noscript>\n");
    html_close_section(out);
}

static void put_profile(report_model *m, const qn_report_options *options, text *out)
{
    source_list sources = {.memory = m->memory};
    if (!options->no_sources) sources_of_model(m, &sources);
    const char *devices[COUNT(m->devices)];
    for (int i = 0; i < m->device_count; i++) devices[i] = m->devices[i].name;
    put_verdict(m, out);
    page_environment(out, m->profile->context, devices, m->device_count, options->command);
    text_add(out, "</header>\n<main>\n");
    html_open_section(out, "overview", "Where the time went",
                      "Every moment counts once: as a kernel if one runs anywhere, else as a copy, else as time inside "
                      "Quern (launches, waits, compiles, operations), else as loading (a range named load or data), "
                      "else as other.");
    report_cards(m, out);
    put_sources_of_data(m, options, out);
    html_close_section(out);
    report_hints(m, out);
    if (m->profile->kept_count + m->profile->device_count) put_timeline(out);
    if (m->kernel_count) {
        html_open_section(out, "kernels-section", "Kernels", NULL);
        text_add(out, "<p class=\"about\" id=\"kernels-of\">Of the whole time.</p>\n");
        text_add(out, "<p class=\"about\">");
        if (m->device_count == 1) html_print(out, "All of them ran on %s. ", m->devices[0].name);
        if (m->has_shares)
            text_add(out, "A graph was timed as a whole: a kernel's part of it is an estimate, by its bytes and FLOPs; "
                          "--nodes times each.");
        text_add(out, "</p>\n");
        report_kernel_table(m, out);
        html_close_section(out);
    }
    report_range_table(m, out);
    report_counters(options->counters_path, out);
    report_stalls(options->stalls_path, out);
    if (m->kernel_count) report_roofline(m, out);
    report_memory(m, out);
    report_sum_table(m, out);
    sources_put(&sources, out);
    sources_free(&sources);
    text_add(out, "</main>\n");
}

static const qn_report_options *usual(const qn_report_options *options)
{
    static const qn_report_options defaults;
    return options ? options : &defaults;
}

qn_status qn_profile_report(const qn_profile *profile, const char *path, const qn_report_options *options,
                            qn_error *error)
{
    HEAP_ENTER(error);
    const qn_report_options *o = usual(options);
    if (!profile || !path) return error_set(error, QN_BAD_CALL, "qn_profile_report: an argument is NULL");
    if (profile->running)
        return error_set(error, QN_BAD_CALL, "qn_profile_report: the profile is still recording: stop it first");
    text data = {0}, page = {0};
    report_model m;
    int64_t most_slices = o->most_slices > 0 ? o->most_slices : usual_slices;
    for (;; most_slices /= 2) {
        model_build(&m, profile, most_slices);
        report_data(&m, &data);
        bool fits = data.length <= MOST_DATA_BYTES || most_slices < 1000;
        text_clear(&data);
        if (fits) break;
        model_free(&m);
    }
    model_measure(&m, o->no_ceilings ? NULL : profile->context);
    report_data(&m, &data);
    page_open(&page, o->title ? o->title : "Quern profile");
    page_note(&page, "warning", o->note);
    if (profile->interrupted)
        page_note(&page, "warning", "The run was interrupted: this is what was recorded until then.");
    put_profile(&m, o, &page);
    page_close(&page, &data);
    qn_status status = file_write(path, text_get(&page), page.length, error);
    model_free(&m);
    text_free(&data);
    text_free(&page);
    return status;
}
