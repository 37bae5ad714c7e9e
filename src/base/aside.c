/*
 * Files that are whole or not there: the pieces go into a file beside the place, which is renamed over it; for what must
 * survive a crash (file_finish) it is flushed to the disk before, and the folder after, so that the name is on the disk
 * too. Whatever fails on the way (a full disk above all), the old file stays and nothing is left beside it. A link to a
 * file stays a link, and the rights of the old file stay: one that may not be written is not. What is no plain file (a
 * device, a pipe) is written to as it is, never replaced.
 * SPDX-License-Identifier: MIT
 */
#include "base/base.h"

#include <quern/workbench.h>

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct file_aside {
    char *name, *path, *aside; /* as it was given, where that leads to; aside NULL: the path itself is written */
    int file, leftover;
};

static qn_status failed(const file_aside *f, int reason, qn_error *error)
{
    return error_set(error, QN_BAD_FILE, "cannot write %s: %s", f->name, strerror(reason));
}

static void forget(file_aside *f)
{
    leftover_gone(f->leftover);
    heap_free(f->name);
    heap_free(f->path);
    heap_free(f->aside);
    heap_free(f);
}

/* Where a link leads whose file is not there yet; what is no link stays what it is. An errno, 0: good. */
static int follow(const char *path, char target[PATH_MAX])
{
    char next[PATH_MAX], folder[PATH_MAX];
    if (snprintf(target, PATH_MAX, "%s", path) >= PATH_MAX) return ENAMETOOLONG;
    for (int links = 0; links < 40; links++) {
        ssize_t length = readlink(target, next, sizeof(next) - 1);
        if (length < 0) return 0;
        next[length] = 0;
        snprintf(folder, sizeof(folder), "%s", target);
        int wrote = *next == '/' ? snprintf(target, PATH_MAX, "%s", next)
                                 : snprintf(target, PATH_MAX, "%s/%s", dirname(folder), next);
        if (wrote >= PATH_MAX) return ENAMETOOLONG;
    }
    return ELOOP;
}

qn_status file_begin(const char *path, file_aside **out, qn_error *error)
{
    char target[PATH_MAX];
    struct stat about;
    *out = NULL;
    bool there = stat(path, &about) == 0, plain = !there || S_ISREG(about.st_mode) || S_ISDIR(about.st_mode);
    file_aside *f = heap_new(sizeof(*f));
    f->name = heap_copy_text(path);
    f->leftover = -1;
    int reason = there ? 0 : follow(path, target);
    bool led = there ? plain && realpath(path, target) : !reason;
    f->path = heap_copy_text(led ? target : path);
    if (plain) {
        size_t room = strlen(f->path) + 64;
        f->aside = heap_new(room);
        snprintf(f->aside, room, "%s.%d.%llu.part", f->path, (int)getpid(), number_unique());
    }
    if (there && S_ISDIR(about.st_mode)) reason = EISDIR;
    if (there && plain && !reason && access(path, W_OK)) reason = errno; /* a new one would not ask for its rights */
    f->file = reason  ? -1
              : plain ? open(f->aside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666)
                      : open(f->path, O_WRONLY | O_NOCTTY | O_CLOEXEC);
    if (f->file < 0) {
        qn_status status = failed(f, reason ? reason : errno, error);
        forget(f);
        return status;
    }
    if (plain) f->leftover = leftover_file(f->aside);
    if (there && plain) (void)!fchmod(f->file, about.st_mode & 0777);
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

static qn_status finish(file_aside *f, bool flush, qn_status status, qn_error *error)
{
    flush &= f->aside != NULL;
    if (status == QN_OK && flush && fsync(f->file)) status = failed(f, errno, error);
    if (close(f->file) && status == QN_OK) status = failed(f, errno, error);
    if (status == QN_OK && f->aside && rename(f->aside, f->path)) status = failed(f, errno, error);
    if (flush && status == QN_OK) flush_folder(f->path);
    if (f->aside && status != QN_OK) unlink(f->aside);
    forget(f);
    return status;
}

qn_status file_finish(file_aside *f, qn_status status, qn_error *error)
{
    return finish(f, true, status, error);
}

qn_status file_end(file_aside *f, qn_status status, qn_error *error)
{
    return finish(f, false, status, error);
}

qn_status file_write(const char *path, const void *data, size_t size_bytes, qn_error *error)
{
    file_aside *f;
    QN_TRY(file_begin(path, &f, error));
    return file_end(f, file_append(f, data, size_bytes, error), error);
}

qn_status qn_file_write(const char *path, const void *data, size_t size_bytes, qn_error *error)
{
    HEAP_ENTER(error);
    if (!path || (!data && size_bytes)) return error_set(error, QN_BAD_CALL, "qn_file_write: an argument is NULL");
    return file_write(path, data, size_bytes, error);
}
