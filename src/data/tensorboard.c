/*
 * TensorBoard's event files. In: scalars by tag and step. Out: a file of records, each a length, the length's checksum, an
 * Event of protobuf, its checksum; and the same read back.
 *
 * Event: `wall_time` 1 (double), step 2, `file_version` 3 (the first record's), summary 5 { value 1 { tag 1, `simple_value` 2
 * (float) } }. Checksums are CRC-32C, turned and shifted by a constant so that a checksum of data with checksums in it
 * keeps its worth. SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "data/tensorboard.h"

#include "data/protobuf.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define FILE_LIMIT_BYTES ((size_t)1 << 30)
#define RECORD_LIMIT_BYTES ((uint64_t)1 << 26)

static uint32_t table[256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void fill_table(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++) c = c & 1 ? 0x82f63b78u ^ c >> 1 : c >> 1;
        table[i] = c;
    }
}

uint32_t crc32c_of(const void *data, size_t size_bytes)
{
    pthread_once(&once, fill_table);
    const uint8_t *at = data;
    uint32_t crc = ~0u;
    for (; size_bytes; size_bytes--, at++) crc = table[(crc ^ *at) & 255] ^ crc >> 8;
    return ~crc;
}

static uint32_t masked(const void *data, size_t size_bytes)
{
    uint32_t crc = crc32c_of(data, size_bytes);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static void begin_event(text *t)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    double wall = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    uint64_t bits;
    memcpy(&bits, &wall, 8);
    proto_key(t, 1, WIRE_64);
    proto_little(t, bits, 8);
}

/* ---- writing ---- */

struct event_file {
    char *path;
    int file, reason; /* errno of the first failure */
};

/* One write for a record: readers never see half of one unless the disk is full. */
static void write_record(event_file *f, const text *payload)
{
    text record = {0};
    proto_little(&record, payload->length, 8);
    proto_little(&record, masked(record.data, 8), 4);
    text_add_bytes(&record, payload->data, payload->length);
    proto_little(&record, masked(payload->data, payload->length), 4);
    ssize_t wrote = f->reason ? 0 : write(f->file, record.data, record.length);
    if (!f->reason && wrote != (ssize_t)record.length) {
        f->reason = wrote < 0 ? errno : ENOSPC;
        off_t end = lseek(f->file, 0, SEEK_CUR); /* what was half written goes away */
        if (wrote > 0 && end >= wrote && ftruncate(f->file, end - wrote)) f->reason = errno;
    }
    text_free(&record);
}

qn_status events_open(const char *folder, event_file **out, qn_error *error)
{
    static _Atomic unsigned counter;
    char host[128] = "host";
    *out = NULL;
    QN_TRY(folder_make(folder, error));
    gethostname(host, sizeof(host) - 1);
    text path = {0};
    text_print(&path, "%s/events.out.tfevents.%lld.%s.%d.%u", folder, (long long)time(NULL), host, process_number(),
               counter++);
    event_file *f = heap_new(sizeof(*f));
    f->path = heap_copy_text(text_get(&path));
    text_free(&path);
    f->file = open(f->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (f->file < 0) f->reason = errno;
    text event = {0};
    begin_event(&event);
    proto_bytes(&event, 3, "brain.Event:2", 13);
    write_record(f, &event);
    text_free(&event);
    if (f->reason) return events_close(f, error);
    *out = f;
    return QN_OK;
}

void events_scalar(event_file *f, const char *tag, int64_t step, double value)
{
    if (!f) return;
    text one = {0}, summary = {0}, event = {0};
    float number = (float)value;
    uint32_t bits;
    memcpy(&bits, &number, 4);
    proto_bytes(&one, 1, tag, strlen(tag));
    proto_key(&one, 2, WIRE_32);
    proto_little(&one, bits, 4);
    proto_bytes(&summary, 1, one.data, one.length);
    begin_event(&event);
    if (step) {
        proto_key(&event, 2, WIRE_VARINT);
        proto_varint(&event, (uint64_t)step);
    }
    proto_bytes(&event, 5, summary.data, summary.length);
    write_record(f, &event);
    text_free(&one);
    text_free(&summary);
    text_free(&event);
}

const char *events_path(const event_file *f)
{
    return f ? f->path : "";
}

qn_status events_close(event_file *f, qn_error *error)
{
    if (!f) return QN_OK;
    qn_status status = QN_OK;
    if (f->file >= 0 && close(f->file) && !f->reason) f->reason = errno;
    if (f->reason) status = error_set(error, QN_BAD_FILE, "cannot write %s: %s", f->path, strerror(f->reason));
    heap_free(f->path);
    heap_free(f);
    return status;
}

/* ---- reading ---- */

typedef struct bytes {
    const uint8_t *at, *end;
} bytes;

typedef struct field {
    int number, wire;
    uint64_t value; /* of a number */
    bytes inside;
} field;

static bool take_varint(bytes *b, uint64_t *out)
{
    *out = 0;
    for (int shift = 0; shift < 64 && b->at < b->end; shift += 7) {
        *out |= (uint64_t)(*b->at & 127) << shift;
        if (!(*b->at++ & 128)) return true;
    }
    return false;
}

static uint64_t little(const uint8_t *at, int count)
{
    uint64_t value = 0;
    for (int i = 0; i < count; i++) value |= (uint64_t)at[i] << (8 * i);
    return value;
}

static bool take_field(bytes *b, field *f)
{
    uint64_t key;
    if (!take_varint(b, &key)) return false;
    *f = (field){.number = (int)(key >> 3), .wire = (int)(key & 7)};
    if (f->wire == WIRE_VARINT) return take_varint(b, &f->value);
    int64_t size = f->wire == WIRE_64 ? 8 : f->wire == WIRE_32 ? 4 : -1;
    if (f->wire == WIRE_BYTES) {
        uint64_t length;
        if (!take_varint(b, &length) || length > (uint64_t)(b->end - b->at)) return false;
        f->inside = (bytes){b->at, b->at + length};
        b->at += length;
        return true;
    }
    if (size < 0 || size > b->end - b->at) return false;
    f->value = little(b->at, (int)size);
    b->at += size;
    return true;
}

static bool read_value(bytes b, int64_t step, double wall, events_visit *visit, void *user)
{
    text tag = {0};
    float number = 0;
    bool good = true, scalar = false;
    for (field f; good && b.at < b.end;) {
        good = take_field(&b, &f);
        if (good && f.number == 1 && f.wire == WIRE_BYTES)
            text_add_bytes(&tag, (const char *)f.inside.at, (size_t)(f.inside.end - f.inside.at));
        if (good && f.number == 2 && f.wire == WIRE_32) {
            uint32_t bits = (uint32_t)f.value;
            memcpy(&number, &bits, 4);
            scalar = true;
        }
    }
    if (good && scalar) visit(user, text_get(&tag), step, number, wall);
    text_free(&tag);
    return good;
}

static bool read_event(bytes b, events_visit *visit, void *user)
{
    bytes summary = {0};
    double wall = 0;
    int64_t step = 0;
    for (field f; b.at < b.end;) {
        if (!take_field(&b, &f)) return false;
        if (f.number == 1 && f.wire == WIRE_64) memcpy(&wall, &f.value, 8);
        if (f.number == 2 && f.wire == WIRE_VARINT) step = (int64_t)f.value;
        if (f.number == 5 && f.wire == WIRE_BYTES) summary = f.inside;
    }
    for (field f; summary.at < summary.end;) {
        if (!take_field(&summary, &f)) return false;
        if (f.number == 1 && f.wire == WIRE_BYTES && !read_value(f.inside, step, wall, visit, user)) return false;
    }
    return true;
}

qn_status events_read(const char *path, events_visit *visit, void *user, bool *whole, qn_error *error)
{
    char *data;
    size_t size, at = 0;
    QN_TRY(file_read(path, FILE_LIMIT_BYTES, &data, &size, error));
    const uint8_t *b = (const uint8_t *)data;
    const char *fault = NULL;
    while (!fault && size - at >= 12) {
        uint64_t length = little(b + at, 8);
        if (little(b + at + 8, 4) != masked(b + at, 8) || length > RECORD_LIMIT_BYTES)
            fault = "the length of a record";
        else if (size - at - 12 < length + 4)
            break;
        else if (little(b + at + 12 + length, 4) != masked(b + at + 12, length))
            fault = "the data of a record";
        else if (!read_event((bytes){b + at + 12, b + at + 12 + length}, visit, user))
            fault = "an event";
        else
            at += 16 + length;
    }
    if (whole) *whole = at == size;
    free(data);
    if (!fault) return QN_OK;
    return error_set(error, QN_BAD_FILE, "%s: %s is damaged at byte %zu", path, fault, at);
}
