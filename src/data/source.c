/*
 * Files as sources. In: an open file. Out: the source of its kind, told by its first bytes.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "data/source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

qn_status file_open(data_file *file, const char *path, qn_error *error)
{
    struct stat about;
    /* A pipe that nobody writes to would wait for ever. */
    *file = (data_file){.path = path, .descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    if (file->descriptor < 0) return error_set(error, QN_BAD_FILE, "cannot open %s: %s", path, strerror(errno));
    if (fstat(file->descriptor, &about) || !S_ISREG(about.st_mode)) {
        file_close(file);
        return error_set(error, QN_BAD_FILE,
                         "%s is not a plain file; a data set is read more than once and from its middle", path);
    }
    file->size_bytes = about.st_size;
    return QN_OK;
}

void file_close(data_file *file)
{
    if (file->descriptor >= 0) close(file->descriptor);
    file->descriptor = -1;
}

bool file_wake(data_file *file)
{
    struct stat about;
    if (file->descriptor >= 0 || file->bytes) return true;
    file->descriptor = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file->descriptor < 0) return false;
    if (!fstat(file->descriptor, &about) && about.st_size == file->size_bytes) return true;
    file_close(file);
    return false;
}

bool file_take(const data_file *file, int64_t offset, void *to, size_t size)
{
    if (file->bytes) {
        if (offset < 0 || offset > file->size_bytes || (int64_t)size > file->size_bytes - offset) return false;
        if (size) memcpy(to, file->bytes + offset, size);
        return true;
    }
    for (char *at = to; size;) {
        ssize_t got = pread(file->descriptor, at, size, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        at += got;
        offset += got;
        size -= (size_t)got;
    }
    return true;
}

void source_close(source *s)
{
    if (!s) return;
    char *path = s->path;
    free(s->block_rows);
    s->kind->close(s);
    free(path);
}

qn_status source_open_file(data_file file, const qn_dataset_options *options, pool *workers, source **out,
                           qn_error *error)
{
    uint8_t start[4] = {0};
    *out = NULL;
    if (!file.size_bytes) {
        error_set(error, QN_BAD_FILE, "%s is empty", file.path);
    } else if (!file_take(&file, 0, start, (size_t)MINIMUM(file.size_bytes, (int64_t)4))) {
        error_set(error, QN_BAD_FILE, "%s cannot be read", file.path);
    } else if (!memcmp(start, "PAR1", 4)) {
        return parquet_open(file, options, workers, out, error);
    } else if (!memcmp(start, "PARE", 4)) {
        error_set(error, QN_BAD_FILE, "%s is encrypted; Quern reads plain files", file.path);
    } else {
        return tsv_open(file, start[0] == 0x1f && start[1] == 0x8b, options, workers, out, error);
    }
    file_close(&file);
    return QN_BAD_FILE;
}
