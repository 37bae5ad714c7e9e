/*
 * Running a program. In: its arguments and a time limit. Out: what it printed and how it ended.
 *
 * The program leads a process group of its own, so that what it started ends with it. It is over when it has ended, even
 * if something that it left behind still holds its output; one that is not over in time is killed with its group.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { DEFAULT_LIMIT_S = 600, MOST_LIMIT_S = 1000000, LOOK_MS = 50 };

static double standard_limit_s(void)
{
    const char *words = environment_get("QUERN_COMPILE_LIMIT");
    double limit_s;
    char unit;
    return words && number_amount(words, "", &limit_s, &unit) ? MINIMUM(limit_s, MOST_LIMIT_S) : DEFAULT_LIMIT_S;
}

static int start(const char *const *arguments, int output, pid_t *child)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int failed = posix_spawn_file_actions_init(&actions);
    if (failed) return failed;
    failed = posix_spawnattr_init(&attributes);
    if (!failed) {
        failed = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
        if (!failed) failed = posix_spawn_file_actions_adddup2(&actions, output, 1);
        if (!failed) failed = posix_spawn_file_actions_adddup2(&actions, output, 2);
        if (!failed) failed = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
        if (!failed) failed = posix_spawnattr_setpgroup(&attributes, 0);
        if (!failed)
            failed = posix_spawnp(child, arguments[0], &actions, &attributes, (char *const *)arguments, environ);
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&actions);
    return failed;
}

/* What there is to read now. False: the end of it. */
static bool drain(int from, text *output)
{
    char bytes[4096];
    for (;;) {
        ssize_t got = read(from, bytes, sizeof(bytes));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) return true;
        if (got <= 0) return false;
        if (output) text_add_bytes(output, bytes, (size_t)got);
    }
}

/* How a child ended: -1 is a wait status of none. */
enum { UNKNOWN = -1 };

static bool has_ended(pid_t child, int *state, int flags)
{
    pid_t got;
    while ((got = waitpid(child, state, flags)) < 0 && errno == EINTR) {
    }
    if (got < 0) *state = UNKNOWN; /* somebody else in this process has waited for it */
    return got != 0;
}

/* False: it was killed. */
static bool wait_for(pid_t child, int from, double limit_s, text *output, int *state)
{
    int64_t end_ns = clock_now_ns() + (int64_t)(limit_s * 1e9);
    bool open = true;
    for (;;) {
        struct pollfd ready = {.fd = open ? from : -1, .events = POLLIN};
        (void)poll(&ready, 1, open ? LOOK_MS : 1);
        if (open && ready.revents) open = drain(from, output);
        if (has_ended(child, state, WNOHANG)) {
            if (open) (void)drain(from, output);
            return true;
        }
        if (!(limit_s > 0) || clock_now_ns() < end_ns) continue;
        kill(-child, SIGKILL);
        kill(child, SIGKILL);
        has_ended(child, state, 0);
        return false;
    }
}

qn_status process_run_for(const char *const *arguments, double limit_s, text *output, int *exit_code, qn_error *error)
{
    int ends[2], state = 0;
    pid_t child;
    if (pipe2(ends, O_CLOEXEC)) return error_set(error, QN_FAILED, "cannot make a pipe: %s", strerror(errno));
    int failed = start(arguments, ends[1], &child);
    close(ends[1]);
    if (failed) {
        close(ends[0]);
        return error_set(error, QN_FAILED, "cannot run %s: %s", arguments[0], strerror(failed));
    }
    (void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
    int place = leftover_child(child);
    bool in_time = wait_for(child, ends[0], limit_s, output, &state);
    leftover_gone(place);
    close(ends[0]);
    *exit_code = in_time && state != UNKNOWN && WIFEXITED(state) ? WEXITSTATUS(state) : -1;
    if (in_time && state == UNKNOWN)
        return error_set(error, QN_FAILED,
                         "how %s ended is not known: something else in this process waits for all children, or ignores "
                         "SIGCHLD",
                         arguments[0]);
    if (in_time) return QN_OK;
    return error_set(error, QN_FAILED,
                     "%s had not finished after %g s and was ended; QUERN_COMPILE_LIMIT=SECONDS sets another limit (0: "
                     "none)",
                     arguments[0], limit_s);
}

qn_status process_run(const char *const *arguments, text *output, int *exit_code, qn_error *error)
{
    return process_run_for(arguments, standard_limit_s(), output, exit_code, error);
}
