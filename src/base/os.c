/*
 * The operating system: time, files, processes. In: names and bytes. Out: statuses with words.
 * Files are written aside and renamed, so that a reader never sees half of one.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "base/base.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int64_t clock_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Closes the file. */
static qn_status read_whole(FILE *file, const char *path, size_t limit_bytes, char **data, size_t *size_bytes,
                            qn_error *error)
{
    char *bytes = NULL;
    size_t used = 0, capacity = 0;
    for (;;) {
        if (used + 1 >= capacity) {
            capacity = capacity ? capacity * 2 : 65536;
            char *more = realloc(bytes, capacity);
            if (!more) {
                heap_free(bytes);
                fclose(file);
                return error_set(error, QN_NO_MEMORY, "no memory for %s", path);
            }
            bytes = more;
        }
        size_t got = fread(bytes + used, 1, capacity - used - 1, file);
        used += got;
        if (used > limit_bytes) {
            heap_free(bytes);
            fclose(file);
            return error_set(error, QN_BAD_FILE, "%s is larger than %zu bytes", path, limit_bytes);
        }
        if (!got) break;
    }
    bool bad = ferror(file);
    fclose(file);
    if (bad) {
        heap_free(bytes);
        return error_set(error, QN_BAD_FILE, "cannot read %s", path);
    }
    bytes[used] = 0;
    *data = bytes;
    *size_bytes = used;
    return QN_OK;
}

/* The file of that folder whose name is nearest to one that is not there; false: none is near. */
static bool nearest_file(const char *path, char *out, size_t size)
{
    enum { MOST_FILES = 256 };
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *near = NULL;
    size_t before = (size_t)(name - path);
    char folder[1024], names[MOST_FILES][64];
    const char *list[MOST_FILES];
    int count = 0;
    if (before >= sizeof(folder)) return false;
    snprintf(folder, sizeof(folder), "%.*s", before ? (int)before : 1, before ? path : ".");
    DIR *files = *name ? opendir(folder) : NULL;
    for (struct dirent *d; files && count < MOST_FILES && (d = readdir(files));) {
        if (d->d_name[0] == '.' || strlen(d->d_name) >= sizeof(names[0])) continue;
        list[count] = strcpy(names[count], d->d_name);
        count++;
    }
    if (files) closedir(files);
    near = suggest_name(name, list, count);
    if (near) snprintf(out, size, "%.*s%s", (int)before, path, near);
    return near != NULL;
}

FILE *file_open_plain(const char *path)
{
    int number = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    FILE *file = number < 0 ? NULL : fdopen(number, "rb");
    int reason = errno;
    if (number >= 0 && !file) close(number);
    errno = reason;
    return file;
}

qn_status file_read(const char *path, size_t limit_bytes, char **data, size_t *size_bytes, qn_error *error)
{
    enum { WRITER_MS = 2000 }; /* a pipe by name waits for whoever writes to it, but not for ever */
    FILE *file = file_open_plain(path);
    struct stat about = {0};
    const char *wrong = NULL;
    if (!file) {
        char near[1200];
        int reason = errno;
        bool found = reason == ENOENT && nearest_file(path, near, sizeof(near));
        return error_set(error, QN_BAD_FILE, "cannot open %s: %s%s%s%s", path, strerror(reason),
                         found ? "; did you mean " : "", found ? near : "", found ? "?" : "");
    }
    int number = fileno(file), flags = fcntl(number, F_GETFL);
    if (fstat(number, &about) == 0 && S_ISDIR(about.st_mode)) wrong = "a folder, not a file";
    if (S_ISFIFO(about.st_mode) && poll(&(struct pollfd){.fd = number, .events = POLLIN}, 1, WRITER_MS) == 0) {
        char byte; /* a writer that says nothing yet is waited for: with one there is no end of the file */
        ssize_t got = read(number, &byte, 1);
        if (got == 0) wrong = "a pipe that nobody writes to";
        if (got == 1) ungetc((unsigned char)byte, file);
    }
    if (wrong) {
        fclose(file);
        return error_set(error, QN_BAD_FILE, "%s is %s", path, wrong);
    }
    if (flags >= 0) (void)!fcntl(number, F_SETFL, flags & ~O_NONBLOCK);
    return read_whole(file, path, limit_bytes, data, size_bytes, error);
}

bool file_may_be_read(const char *path)
{
    struct stat about;
    return stat(path, &about) != 0 || S_ISREG(about.st_mode) || S_ISDIR(about.st_mode);
}

bool file_is_own(int file)
{
    struct stat about;
    return fstat(file, &about) == 0 && S_ISREG(about.st_mode) && about.st_uid == geteuid() &&
           !(about.st_mode & (S_IWGRP | S_IWOTH));
}

/* Never waits (for the other end of a FIFO), never follows a link. -1: not there, or not ours; then errno is of that. */
static int open_own(const char *path, int flags)
{
    int file = open(path, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600);
    if (file < 0 || file_is_own(file)) return file;
    close(file);
    errno = EPERM;
    return -1;
}

qn_status file_read_own(const char *path, size_t limit_bytes, char **data, size_t *size_bytes, qn_error *error)
{
    int number = open_own(path, O_RDONLY);
    FILE *file = number >= 0 ? fdopen(number, "rb") : NULL;
    if (file) return read_whole(file, path, limit_bytes, data, size_bytes, error);
    int reason = errno;
    if (number >= 0) close(number);
    return error_set(error, QN_BAD_FILE, "cannot open %s as a file of this user: %s", path, strerror(reason));
}

bool file_append_own(const char *path, const void *data, size_t size_bytes)
{
    int file = open_own(path, O_WRONLY | O_APPEND | O_CREAT);
    if (file < 0) return false;
    bool good = write(file, data, size_bytes) == (ssize_t)size_bytes;
    return close(file) == 0 && good;
}

unsigned long long number_unique(void)
{
    static _Atomic unsigned long long next;
    unsigned long long none = 0;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    atomic_compare_exchange_strong(&next, &none, (unsigned long long)now.tv_sec * 1000000000 + (unsigned)now.tv_nsec);
    return atomic_fetch_add(&next, 1);
}

qn_status folder_make(const char *path, qn_error *error)
{
    char part[4096];
    if (strlen(path) >= sizeof(part)) return error_set(error, QN_BAD_FILE, "the path is too long: %.100s...", path);
    for (size_t i = 1;; i++) {
        if (path[i] != '/' && path[i]) continue;
        memcpy(part, path, i);
        part[i] = 0;
        struct stat about;
        int reason = mkdir(part, 0700) ? errno : 0;
        if (reason == EEXIST) reason = stat(part, &about) ? errno : S_ISDIR(about.st_mode) ? 0 : ENOTDIR;
        if (reason) return error_set(error, QN_BAD_FILE, "cannot make the folder %s: %s", part, strerror(reason));
        if (!path[i]) return QN_OK;
    }
}

qn_status folder_open(const char *path, qn_error *error)
{
    QN_TRY(folder_make(path, error));
    if (!access(path, W_OK | X_OK)) return QN_OK;
    return error_set(error, QN_BAD_FILE, "cannot write into %s: %s", path, strerror(errno));
}

/* A folder may be "executed", too. */
static bool is_program(const char *path)
{
    struct stat about;
    return access(path, X_OK) == 0 && stat(path, &about) == 0 && S_ISREG(about.st_mode);
}

bool program_find(const char *name, char *path, size_t path_size)
{
    if (strchr(name, '/')) {
        snprintf(path, path_size, "%s", name);
        return is_program(name);
    }
    const char *list = getenv("PATH");
    for (const char *p = list ? list : "/usr/local/bin:/usr/bin:/bin"; *p;) {
        size_t length = strcspn(p, ":");
        snprintf(path, path_size, "%.*s/%s", (int)length, p, name);
        if (length && is_program(path)) return true;
        p += length + (p[length] == ':');
    }
    return false;
}

/* The cgroup's quota in whole cores, or `most`. */
static int quota_cores(int most)
{
    FILE *file = fopen("/sys/fs/cgroup/cpu.max", "r");
    if (!file) return most;
    long long quota = 0, period = 0;
    int got = fscanf(file, "%lld %lld", &quota, &period);
    fclose(file);
    if (got != 2 || period <= 0 || quota < 0) return most;
    int64_t cores = (quota + period / 2) / period;
    return cores < 1 ? 1 : (int)MINIMUM(cores, most);
}

int cpu_count(void)
{
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    return quota_cores(count < 1 ? 1 : count);
}

int process_number(void)
{
    return (int)getpid();
}

const char *environment_get(const char *name)
{
    const char *words = getenv(name);
    return words && *words ? words : NULL;
}

int turn_take(const char *path)
{
    int file = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666) : -1;
    while (file >= 0 && flock(file, LOCK_EX) != 0 && errno == EINTR) continue;
    return file;
}

void turn_leave(int turn)
{
    if (turn >= 0) close(turn);
}
