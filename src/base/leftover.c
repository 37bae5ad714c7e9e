/*
 * What a process would leave behind if a signal ended it now. In: children, private folders and files aside, each from when
 * it is there until it is gone. Out: qn_clear_up, which a signal's handler may call: it ends the children and removes the rest.
 *
 * A handler may take no lock and no memory, so they stand in a table of fixed size, each place with one atomic word that says
 * what it holds. What finds no place is as it would be without the table: left behind.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "base/base.h"

#include <quern/workbench.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_LEFTOVERS = 64, LONGEST_PATH = 4096, WAIT_MS = 500 };
enum { FREE, BEING_FILLED, CHILD, ENDING, FILE_ASIDE, FOLDER };

typedef struct leftover {
    atomic_int kind;
    int owner; /* a copy of the process made by fork owns nothing of it */
    pid_t child;
    char path[LONGEST_PATH];
} leftover;

static leftover leftovers[MOST_LEFTOVERS];

static int take(int kind, pid_t child, const char *path)
{
    if (path && strlen(path) >= LONGEST_PATH) return -1;
    for (int i = 0; i < MOST_LEFTOVERS; i++) {
        leftover *l = &leftovers[i];
        int wanted = FREE;
        if (!atomic_compare_exchange_strong(&l->kind, &wanted, BEING_FILLED)) continue;
        l->owner = process_number();
        l->child = child;
        snprintf(l->path, sizeof(l->path), "%s", path ? path : "");
        atomic_store(&l->kind, kind);
        return i;
    }
    return -1;
}

int leftover_child(int child)
{
    return take(CHILD, (pid_t)child, NULL);
}

int leftover_file(const char *path)
{
    return take(FILE_ASIDE, 0, path);
}

/* Whoever ran a child that was ended here waits for the signal to end the process, and does not report a failure first. */
void leftover_gone(int place)
{
    if (place >= 0 && atomic_exchange(&leftovers[place].kind, FREE) == ENDING)
        (void)nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
}

bool folder_make_private(const char *name, char *path, size_t size, int *place)
{
    const char *base = environment_get("TMPDIR");
    if (!base || strlen(base) > 2000) base = "/tmp";
    int length = snprintf(path, size, "%s/%s-XXXXXX", base, name);
    *place = -1;
    if (length < 0 || (size_t)length >= size || !mkdtemp(path)) return false;
    *place = take(FOLDER, 0, path);
    return true;
}

/* What opendir does needs memory; the kernel's own list does not. */
static void empty_folder(int folder)
{
    struct entry {
        uint64_t inode;
        int64_t next;
        unsigned short length;
        unsigned char type;
        char name[];
    };
    _Alignas(struct entry) char entries[4096];
    long got;
    while ((got = syscall(SYS_getdents64, folder, entries, sizeof(entries))) > 0)
        for (long at = 0; at < got;) {
            const struct entry *e = (const struct entry *)(entries + at);
            if (strcmp(e->name, ".") != 0 && strcmp(e->name, "..") != 0) (void)unlinkat(folder, e->name, 0);
            at += e->length;
        }
}

void folder_remove_private(const char *path, int place)
{
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder >= 0) {
        empty_folder(folder);
        close(folder);
    }
    (void)!rmdir(path); /* an empty one needs no descriptor, which there may be none of */
    leftover_gone(place);
}

static bool holds(const leftover *l, int kind)
{
    return atomic_load(&l->kind) == kind && l->owner == process_number();
}

/* They may remove files of their own first; those that do not end are killed. */
static void end_children(void)
{
    for (int i = 0; i < MOST_LEFTOVERS; i++)
        if (holds(&leftovers[i], CHILD)) {
            atomic_store(&leftovers[i].kind, ENDING);
            kill(-leftovers[i].child, SIGTERM);
        }
    for (int waited = 0, left = 1; left; waited += 5) {
        left = 0;
        for (int i = 0; i < MOST_LEFTOVERS; i++) {
            leftover *l = &leftovers[i];
            if (l->child <= 0 || !holds(l, ENDING)) continue;
            if (waited >= WAIT_MS) kill(-l->child, SIGKILL);
            if (waitpid(l->child, NULL, waited >= WAIT_MS ? 0 : WNOHANG) == 0)
                left++;
            else
                l->child = 0;
        }
        if (left) (void)nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
}

void qn_clear_up(void)
{
    int reason = errno;
    end_children();
    for (int i = 0; i < MOST_LEFTOVERS; i++) {
        leftover *l = &leftovers[i];
        if (holds(l, FILE_ASIDE)) (void)unlink(l->path);
        if (holds(l, FOLDER)) folder_remove_private(l->path, i);
    }
    errno = reason;
}
