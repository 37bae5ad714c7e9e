/*
 * Where the time went. In: slices. Out: every moment of the span given to the first that holds of: a kernel runs
 * somewhere, data is copied, the host is inside Quern (launches, waits, compiles, operations), the user's program loads
 * data (a range whose name says so), anything else; the same for each step; and how long each device was busy.
 *
 * One walk over the beginnings and ends of slices in the order of time.
 * SPDX-License-Identifier: MIT
 */
#include "profile/report/report.h"

#include <stdlib.h>

const char *const slice_class_names[SLICE_CLASSES] = {"kernels", "copies", "runtime", "loading", "other"};

typedef struct edge {
    int64_t time_ns;
    int16_t change, device; /* device -1: none */
    uint16_t class;
} edge;

static int by_time(const void *left, const void *right)
{
    const edge *a = left, *b = right;
    return a->time_ns < b->time_ns ? -1 : a->time_ns > b->time_ns;
}

static void spend(report_model *m, int64_t from_ns, int64_t to_ns, slice_class class, int *step)
{
    m->class_ns[class] += to_ns - from_ns;
    while (*step < m->step_count && m->steps[*step].end_ns <= from_ns) ++*step;
    for (int i = *step; i < m->step_count && m->steps[i].start_ns < to_ns; i++) {
        report_step *s = &m->steps[i];
        int64_t first = MAXIMUM(from_ns, s->start_ns), last = MINIMUM(to_ns, s->end_ns);
        if (first < last) s->class_ns[class] += last - first;
    }
}

void model_split(report_model *m)
{
    edge *edges = heap_array(2 * (size_t)m->slice_count + 1, sizeof(*edges));
    int64_t count = 0, running[SLICE_CLASSES] = {0}, on_device[COUNT(m->devices)] = {0}, now_ns = 0;
    int step = 0;
    for (int64_t i = 0; i < m->slice_count; i++) {
        const report_slice *s = &m->slices[i];
        if (s->kind == RECORD_WORK) m->thread_busy_ns += s->end_ns - s->start_ns;
        if (s->class == SLICE_KERNEL) m->kernel_ns += s->end_ns - s->start_ns;
        if (s->class == SLICE_OTHER || s->start_ns == s->end_ns) continue;
        int device = s->kernel >= 0 ? m->kernels[s->kernel].device_number : -1;
        edges[count++] = (edge){s->start_ns, 1, (int16_t)device, s->class};
        edges[count++] = (edge){s->end_ns, -1, (int16_t)device, s->class};
    }
    qsort(edges, (size_t)count, sizeof(*edges), by_time);
    for (int64_t i = 0; i <= count; i++) {
        int64_t next_ns = i < count ? edges[i].time_ns : m->span_ns;
        int class = 0;
        while (class < SLICE_OTHER && !running[class]) class ++;
        if (next_ns > now_ns) {
            spend(m, now_ns, next_ns, (slice_class) class, &step);
            for (int d = 0; d < m->device_count; d++)
                if (on_device[d]) m->devices[d].busy_ns += next_ns - now_ns;
            now_ns = next_ns;
        }
        if (i == count) break;
        running[edges[i].class] += edges[i].change;
        if (edges[i].device >= 0) on_device[edges[i].device] += edges[i].change;
    }
    heap_free(edges);
}
