/*
 * Files that are whole or not there, for what must survive a crash: the pieces go into a file beside the place, which is
 * flushed to the disk and renamed over it; then the folder is flushed, so that the name is on the disk too. Whatever
 * fails on the way (a full disk above all), the old file stays and nothing is left beside it.
 * SPDX-License-Identifier: MIT
 */
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct file_aside {
    char *path, *aside;
    int file;
};

static qn_status failed(const file_aside *f, int reason, qn_error *error)
{
    return error_set(error, QN_BAD_FILE, "cannot write %s: %s", f->path, strerror(reason));
}

static void forget(file_aside *f)
{
    heap_free(f->path);
    heap_free(f->aside);
    heap_free(f);
}

qn_status file_begin(const char *path, file_aside **out, qn_error *error)
{
    *out = NULL;
    file_aside *f = heap_new(sizeof(*f));
    size_t room = strlen(path) + 64;
    f->path = heap_copy_text(path);
    f->aside = heap_new(room);
    snprintf(f->aside, room, "%s.%d.%llu.part", path, (int)getpid(), number_unique());
    f->file = open(f->aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (f->file < 0) {
        qn_status status = failed(f, errno, error);
        forget(f);
        return status;
    }
    *out = f;
    return QN_OK;
}

qn_status file_append(file_aside *f, const void *data, size_t size_bytes, qn_error *error)
{
    for (size_t done = 0; done < size_bytes;) {
        ssize_t wrote = write(f->file, (const char *)data + done, MINIMUM(size_bytes - done, (size_t)1 << 30));
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0) return failed(f, errno, error);
        done += (size_t)wrote;
    }
    return QN_OK;
}

/* Some file systems refuse; then the rename must do. */
static void flush_folder(const char *path)
{
    char *copy = heap_copy_text(path);
    int folder = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0) {
        (void)!fsync(folder);
        close(folder);
    }
    heap_free(copy);
}

qn_status file_finish(file_aside *f, qn_status status, qn_error *error)
{
    if (status == QN_OK && fsync(f->file)) status = failed(f, errno, error);
    if (close(f->file) && status == QN_OK) status = failed(f, errno, error);
    if (status == QN_OK && rename(f->aside, f->path)) status = failed(f, errno, error);
    if (status == QN_OK)
        flush_folder(f->path);
    else
        unlink(f->aside);
    forget(f);
    return status;
}
