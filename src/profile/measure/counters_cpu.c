/*
 * Counters of one launch on the CPU: the kernel's performance events. In: a way to run the launch. Out: cycles,
 * instructions, misses, page faults and the like, summed over the process's threads; what this machine or this user may
 * not count has a reason in its place.
 *
 * Workers are there before the launch, so every thread that exists is counted, one event a thread. Where there are more
 * events than the hardware counts at once the kernel takes turns, and the sum is scaled by the time it counted.
 * SPDX-License-Identifier: MIT
 */
#include "profile/measure/counters.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__linux__)
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

enum { MOST_THREADS_COUNTED = 512 };

typedef struct event {
    const char *name, *unit;
    uint32_t type;
    uint64_t config;
} event;

static const event events[] = {
    {"CPU time", "ns", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK},
    {"page faults", "", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS},
    {"context switches", "", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CONTEXT_SWITCHES},
    {"migrations", "", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_MIGRATIONS},
    {"cycles", "cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES},
    {"instructions", "", PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS},
    {"cache misses", "", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES},
    {"branch misses", "", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_MISSES},
};

static int find_threads(pid_t *threads)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    for (struct dirent *e; folder && (e = readdir(folder)) && count < MOST_THREADS_COUNTED;)
        if (e->d_name[0] != '.') threads[count++] = (pid_t)atoi(e->d_name);
    if (folder) closedir(folder);
    return count;
}

static const char *why_not(int code)
{
    switch (code) {
    case ENOENT:
    case EOPNOTSUPP:
    case ENODEV:
        return "not available: this machine does not count it (a virtual machine without performance counters?)";
    case EACCES:
    case EPERM: return "not available: not allowed; lower /proc/sys/kernel/perf_event_paranoid to 1, or run as root";
    case ENOSYS: return "not available: the kernel has no performance events, or the container forbids them";
    case EMFILE: return "not available: too many open files";
    default: return "not available";
    }
}

/* One event on every thread. Returns how many are open; 0: errno of the first is in *code. */
static int open_event(const event *e, const pid_t *threads, int thread_count, int *files, int *code)
{
    int open = 0;
    struct perf_event_attr attributes = {.type = e->type,
                                         .size = sizeof(attributes),
                                         .config = e->config,
                                         .disabled = 1,
                                         .exclude_kernel = 1,
                                         .exclude_hv = 1,
                                         .read_format =
                                             PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING};
    *code = 0;
    for (int i = 0; i < thread_count; i++) {
        files[open] = (int)syscall(SYS_perf_event_open, &attributes, threads[i], -1, -1, PERF_FLAG_FD_CLOEXEC);
        if (files[open] >= 0)
            open++;
        else if (!*code)
            *code = errno;
    }
    return open;
}

static double read_event(int file)
{
    uint64_t values[3] = {0}; /* the count, the time it was on, the time it counted */
    if (read(file, values, sizeof(values)) != (ssize_t)sizeof(values) || !values[2]) return 0;
    return (double)values[0] * ((double)values[1] / (double)values[2]);
}

qn_status counters_cpu(counters_run *run, void *user, qn_counters *out, qn_error *error)
{
    pid_t threads[MOST_THREADS_COUNTED];
    int thread_count = find_threads(threads), opened[COUNT(events)], codes[COUNT(events)];
    int *files = malloc(sizeof(int) * (size_t)(MOST_THREADS_COUNTED * COUNT(events)));
    if (!files) return error_set(error, QN_NO_MEMORY, "there is no memory for counters");
    out->source = "performance events of the kernel";
    for (int e = 0; e < COUNT(events); e++)
        opened[e] = open_event(&events[e], threads, thread_count, files + e * MOST_THREADS_COUNTED, &codes[e]);
    for (int e = 0; e < COUNT(events); e++)
        for (int i = 0; i < opened[e]; i++) ioctl(files[e * MOST_THREADS_COUNTED + i], PERF_EVENT_IOC_ENABLE, 0);
    qn_status status = run(user, error);
    for (int e = 0; e < COUNT(events); e++) {
        double sum = 0;
        for (int i = 0; i < opened[e]; i++) {
            int file = files[e * MOST_THREADS_COUNTED + i];
            ioctl(file, PERF_EVENT_IOC_DISABLE, 0);
            sum += read_event(file);
            close(file);
        }
        counters_add(out, events[e].name, events[e].unit, opened[e] ? sum : NAN, opened[e] ? NULL : why_not(codes[e]));
    }
    heap_free(files);
    out->launches = 1;
    return status;
}
#else
qn_status counters_cpu(counters_run *run, void *user, qn_counters *out, qn_error *error)
{
    out->source = "performance events of the kernel";
    counters_add(out, "cycles", "cycles", NAN, "not available: only Linux has them");
    out->launches = 1;
    return run(user, error);
}
#endif
