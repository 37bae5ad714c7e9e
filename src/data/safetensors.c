/*
 * Safetensors files, reading. In: a path. Out: names, types, shapes, and the bytes of any tensor. The format: a u64 length
 * (little-endian), that many bytes of JSON, the data. The header is read by a strict parser of its own, which makes no
 * tree and whose memory is bounded by the header's; what it accepts is what the reference library accepts: each name
 * once, offsets that fit type and shape, and data without holes or overlaps from the first byte to the last of the file.
 * SPDX-License-Identifier: MIT
 */
#include "data/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER_LIMIT_BYTES ((uint64_t)100 << 20) /* as in the reference library */

const char *const safetensors_types[SAFETENSORS_TYPES] = {
    [QN_F32] = "F32", [QN_F64] = "F64", [QN_F16] = "F16",   [QN_BF16] = "BF16",     [QN_I8] = "I8",
    [QN_I16] = "I16", [QN_I32] = "I32", [QN_I64] = "I64",   [QN_U8] = "U8",         [QN_U16] = "U16",
    [QN_U32] = "U32", [QN_U64] = "U64", [QN_BOOL] = "BOOL", [QN_F8E4M3] = "F8_E4M3"};

typedef struct entry {
    qn_safetensor about;
    uint64_t begin, end;
} entry;

struct qn_safetensors {
    arena *memory;
    const char *path;
    int file;
    uint64_t data_start;
    entry *entries; /* by offset */
    int count, capacity;
    const qn_safetensor **by_name;
    const char **metadata; /* key, value, ... */
    int metadata_count, metadata_capacity;
};

typedef struct reader {
    qn_safetensors *file;
    const char *at, *end;
    const char *tensor; /* the one that is being read; NULL: none */
    qn_error *error;
    qn_status status;
} reader;

static bool fault(reader *r, const char *what)
{
    if (r->status) return false;
    r->status = r->tensor ? error_set(r->error, QN_BAD_FILE, "%s: tensor `%.200s`: %s", r->file->path, r->tensor, what)
                          : error_set(r->error, QN_BAD_FILE, "%s: not a safetensors file: %s", r->file->path, what);
    return false;
}

/* ---- JSON, as much as the header needs ---- */

static void skip_blanks(reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r')) r->at++;
}

static bool take(reader *r, char c)
{
    skip_blanks(r);
    if (r->at == r->end || *r->at != c) return false;
    r->at++;
    return true;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if ((c | 32) >= 'a' && (c | 32) <= 'f') return (c | 32) - 'a' + 10;
    return -1;
}

static bool take_code(reader *r, unsigned *out)
{
    *out = 0;
    for (int i = 0; i < 4; i++) {
        int digit = r->at < r->end ? hex_digit(*r->at++) : -1;
        if (digit < 0) return fault(r, "its header has a \\u without four digits");
        *out = *out * 16 + (unsigned)digit;
    }
    return true;
}

static bool take_escape(reader *r, text *out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char c = r->at < r->end ? *r->at++ : 0;
    const char *place = c ? strchr(from, c) : NULL;
    if (place) return text_add_bytes(out, &to[place - from], 1), true;
    unsigned code, low;
    if (c != 'u' || !take_code(r, &code)) return fault(r, "its header has an unknown escape");
    if (code >= 0xd800 && code < 0xdc00) { /* the first half of a pair */
        if (r->end - r->at < 2 || r->at[0] != '\\' || r->at[1] != 'u')
            return fault(r, "its header has half a surrogate pair");
        r->at += 2;
        if (!take_code(r, &low)) return false;
        if (low < 0xdc00 || low > 0xdfff) return fault(r, "its header has half a surrogate pair");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    if (!code || (code >= 0xdc00 && code < 0xe000)) return fault(r, "its header has a character that no name holds");
    char bytes[4];
    int count = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char marks[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (int i = count - 1; i > 0; i--, code >>= 6) bytes[i] = (char)(0x80 | (code & 0x3f));
    bytes[0] = (char)(marks[count] | code);
    text_add_bytes(out, bytes, (size_t)count);
    return true;
}

/* A text; in the file's arena, or passed over if out is NULL. */
static bool take_text(reader *r, const char **out)
{
    if (!take(r, '"')) return fault(r, "its header lacks a text where one must be");
    text words = {0};
    bool good = true;
    while (good && r->at < r->end && *r->at != '"') {
        const char *plain = r->at;
        while (r->at < r->end && *r->at != '"' && *r->at != '\\' && (unsigned char)*r->at >= 0x20) r->at++;
        text_add_bytes(&words, plain, (size_t)(r->at - plain));
        if (r->at == r->end || *r->at == '"') break;
        if (*r->at == '\\') {
            r->at++;
            good = take_escape(r, &words);
        } else {
            good = fault(r, "its header has a control character in a text");
        }
    }
    if (good && r->at == r->end) good = fault(r, "its header ends within a text");
    if (good) {
        r->at++;
        if (out) *out = arena_copy_text(r->file->memory, text_get(&words), words.length);
    }
    text_free(&words);
    return good;
}

static bool take_number(reader *r, uint64_t *out)
{
    skip_blanks(r);
    const char *start = r->at;
    uint64_t number = 0;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9') {
        if (__builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, (uint64_t)(*r->at - '0'), &number))
            return fault(r, "a number of its header is too large");
        r->at++;
    }
    if (r->at == start || (r->at - start > 1 && *start == '0')) return fault(r, "a whole number was expected");
    if (r->at < r->end && (*r->at == '.' || (*r->at | 32) == 'e')) return fault(r, "a whole number was expected");
    *out = number;
    return true;
}

/* ---- the header ---- */

static bool read_type(reader *r, qn_safetensor *t)
{
    const char *words;
    if (!take_text(r, &words)) return false;
    for (int i = 0; i < SAFETENSORS_TYPES; i++)
        if (!strcmp(safetensors_types[i], words)) return t->type = (qn_dtype)i, true;
    char message[120];
    snprintf(message, sizeof(message), "its type `%.40s` is none that Quern has", words);
    return fault(r, message);
}

static bool read_shape(reader *r, qn_safetensor *t)
{
    if (!take(r, '[')) return fault(r, "its shape is not a list");
    if (take(r, ']')) return true;
    do {
        uint64_t extent;
        if (t->rank == QN_TENSOR_RANK) return fault(r, "it has more than 8 axes");
        if (!take_number(r, &extent)) return false;
        if (extent > INT64_MAX) return fault(r, "an extent is too large");
        t->extents[t->rank++] = (int64_t)extent;
    } while (take(r, ','));
    return take(r, ']') || fault(r, "its shape is not a list");
}

static bool read_offsets(reader *r, entry *e)
{
    if (!take(r, '[') || !take_number(r, &e->begin) || !take(r, ',') || !take_number(r, &e->end) || !take(r, ']'))
        return fault(r, "its data_offsets are not two numbers");
    return true;
}

bool safetensors_size(const qn_safetensor *t, size_t *size_bytes)
{
    size_t size = qn_dtype_size_bytes(t->type);
    bool empty = false;
    for (int k = 0; k < t->rank; k++) {
        if (!t->extents[k])
            empty = true;
        else if (__builtin_mul_overflow(size, (size_t)t->extents[k], &size))
            return false;
    }
    *size_bytes = empty ? 0 : size;
    return true;
}

static bool read_entry(reader *r, const char *name)
{
    entry e = {.about.name = name};
    bool has_type = false, has_shape = false, has_offsets = false, good = true;
    r->tensor = name;
    if (!take(r, '{')) return fault(r, "its entry is not an object");
    while (good) {
        const char *key;
        if (!take_text(r, &key)) return false;
        if (!take(r, ':')) return fault(r, "`:` was expected in its entry");
        if (!strcmp(key, "dtype") && !has_type)
            good = has_type = read_type(r, &e.about);
        else if (!strcmp(key, "shape") && !has_shape)
            good = has_shape = read_shape(r, &e.about);
        else if (!strcmp(key, "data_offsets") && !has_offsets)
            good = has_offsets = read_offsets(r, &e);
        else
            good = fault(r, "its entry has an unknown or repeated key");
        if (!take(r, ',')) break;
    }
    if (!good) return false;
    if (!take(r, '}')) return fault(r, "`}` was expected after its entry");
    if (!has_type || !has_shape || !has_offsets) return fault(r, "its entry lacks dtype, shape or data_offsets");
    if (!safetensors_size(&e.about, &e.about.size_bytes)) return fault(r, "its shape is too large");
    if (e.end < e.begin || e.end - e.begin != e.about.size_bytes)
        return fault(r, "its data_offsets do not fit its type and shape");
    ARENA_PUSH(r->file->memory, r->file->entries, r->file->count, r->file->capacity, e);
    r->tensor = NULL;
    return true;
}

static bool read_metadata(reader *r)
{
    qn_safetensors *f = r->file;
    if (f->metadata) return fault(r, "it has __metadata__ twice");
    f->metadata = ARENA_ARRAY(f->memory, const char *, 1);
    f->metadata_capacity = 1;
    if (!take(r, '{')) return fault(r, "its __metadata__ is not an object");
    if (take(r, '}')) return true;
    do {
        const char *key, *value;
        if (!take_text(r, &key) || !take(r, ':') || !take_text(r, &value))
            return fault(r, "its __metadata__ is not texts by name");
        ARENA_PUSH(f->memory, f->metadata, f->metadata_count, f->metadata_capacity, key);
        ARENA_PUSH(f->memory, f->metadata, f->metadata_count, f->metadata_capacity, value);
    } while (take(r, ','));
    return take(r, '}') || fault(r, "its __metadata__ is not texts by name");
}

static bool read_header(reader *r)
{
    if (!take(r, '{')) return fault(r, "its header is not a JSON object");
    if (!take(r, '}')) {
        do {
            const char *name;
            if (!take_text(r, &name)) return false;
            if (!take(r, ':')) return fault(r, "`:` was expected in its header");
            if (!(strcmp(name, "__metadata__") ? read_entry(r, name) : read_metadata(r))) return false;
        } while (take(r, ','));
        if (!take(r, '}')) return fault(r, "`,` or `}` was expected in its header");
    }
    skip_blanks(r);
    return r->at == r->end || fault(r, "its header has text after the object");
}

static int by_offset(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    return strcmp(x->about.name, y->about.name);
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const qn_safetensor *const *)a)->name, (*(const qn_safetensor *const *)b)->name);
}

/* No name twice; the data is the tensors one after the other, and nothing else. */
static bool check_layout(reader *r, uint64_t data_bytes)
{
    qn_safetensors *f = r->file;
    f->by_name = ARENA_ARRAY(f->memory, const qn_safetensor *, f->count + 1);
    if (f->count) qsort(f->entries, (size_t)f->count, sizeof(entry), by_offset);
    for (int i = 0; i < f->count; i++) f->by_name[i] = &f->entries[i].about;
    if (f->count) qsort(f->by_name, (size_t)f->count, sizeof(*f->by_name), by_name);
    for (int i = 1; i < f->count; i++) {
        r->tensor = f->by_name[i]->name;
        if (!strcmp(f->by_name[i - 1]->name, r->tensor)) return fault(r, "it is in the header twice");
    }
    uint64_t at = 0;
    for (int i = 0; i < f->count; i++) {
        r->tensor = f->entries[i].about.name;
        if (f->entries[i].begin < at) return fault(r, "its data overlaps that of another tensor");
        if (f->entries[i].begin > at) return fault(r, "there is a hole before its data");
        at = f->entries[i].end;
        if (at > data_bytes) return fault(r, "its data is beyond the end of the file");
    }
    r->tensor = NULL;
    return at == data_bytes || fault(r, "there is data after the last tensor");
}

static qn_status parse(qn_safetensors *f, const char *header, size_t header_bytes, uint64_t data_bytes, qn_error *error)
{
    reader r = {.file = f, .at = header, .end = header + header_bytes, .error = error};
    if (read_header(&r)) check_layout(&r, data_bytes);
    return r.status;
}

qn_status safetensors_check(const char *name, const char *header, size_t header_bytes, uint64_t data_bytes,
                            qn_error *error)
{
    qn_safetensors f = {.memory = arena_new(), .path = name, .file = -1};
    qn_status status = parse(&f, header, header_bytes, data_bytes, error);
    arena_free(f.memory);
    return status;
}

/* ---- files ---- */

static bool read_at(int file, void *to, size_t size_bytes, uint64_t offset)
{
    for (size_t done = 0; done < size_bytes;) {
        ssize_t got = pread(file, (char *)to + done, size_bytes - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        done += (size_t)got;
    }
    return true;
}

static qn_status read_preamble(qn_safetensors *f, qn_error *error)
{
    reader r = {.file = f, .error = error};
    struct stat about;
    unsigned char start[8];
    if (fstat(f->file, &about) || !S_ISREG(about.st_mode)) return fault(&r, "it is not a plain file"), r.status;
    uint64_t size = (uint64_t)about.st_size, length = 0;
    if (size < 8 || !read_at(f->file, start, 8, 0)) return fault(&r, "it is shorter than 8 bytes"), r.status;
    for (int i = 7; i >= 0; i--) length = length << 8 | start[i];
    if (length > HEADER_LIMIT_BYTES) return fault(&r, "its header would be longer than 100 MB"), r.status;
    if (length > size - 8) return fault(&r, "its header is longer than the file"), r.status;
    char *header = malloc((size_t)length + 1);
    if (!header) return error_set(error, QN_NO_MEMORY, "no memory for the header of %s", f->path);
    qn_status status = QN_OK;
    f->data_start = 8 + length;
    if (!read_at(f->file, header, (size_t)length, 8))
        status = error_set(error, QN_BAD_FILE, "cannot read %s: %s", f->path, strerror(errno));
    else
        status = parse(f, header, (size_t)length, size - f->data_start, error);
    heap_free(header);
    return status;
}

qn_status qn_safetensors_open(const char *path, qn_safetensors **out, qn_error *error)
{
    HEAP_ENTER(error);
    if (!path || !out) return error_set(error, QN_BAD_CALL, "qn_safetensors_open: an argument is NULL");
    *out = NULL;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* of a pipe nobody is waited for: it is refused */
    if (file < 0) return error_set(error, QN_BAD_FILE, "cannot open %s: %s", path, strerror(errno));
    arena *memory = arena_new();
    qn_safetensors *f = ARENA_NEW(memory, qn_safetensors);
    f->memory = memory;
    f->path = arena_copy_text(memory, path, strlen(path));
    f->file = file;
    qn_status status = read_preamble(f, error);
    if (status) {
        qn_safetensors_close(f);
        return status;
    }
    *out = f;
    return QN_OK;
}

void qn_safetensors_close(qn_safetensors *f)
{
    if (!f) return;
    close(f->file);
    arena_free(f->memory);
}

int qn_safetensors_count(const qn_safetensors *f)
{
    return f ? f->count : 0;
}

const qn_safetensor *qn_safetensors_get(const qn_safetensors *f, int number)
{
    return f && number >= 0 && number < f->count ? &f->entries[number].about : NULL;
}

int qn_safetensors_find(const qn_safetensors *f, const char *name)
{
    if (!f || !name || !f->count) return -1;
    qn_safetensor key = {.name = name};
    const qn_safetensor *wanted = &key;
    const qn_safetensor **met = bsearch(&wanted, f->by_name, (size_t)f->count, sizeof(*f->by_name), by_name);
    return met ? (int)((const entry *)(const void *)*met - f->entries) : -1;
}

qn_status qn_safetensors_read(const qn_safetensors *f, int number, void *host, size_t size_bytes, qn_error *error)
{
    HEAP_ENTER(error);
    const qn_safetensor *t = qn_safetensors_get(f, number);
    if (!t || (!host && size_bytes))
        return error_set(error, QN_BAD_CALL, "qn_safetensors_read: there is no such tensor");
    if (t->size_bytes != size_bytes)
        return error_set(error, QN_BAD_CALL, "qn_safetensors_read: `%s` has %zu bytes, not %zu", t->name, t->size_bytes,
                         size_bytes);
    errno = 0;
    if (!read_at(f->file, host, size_bytes, f->data_start + f->entries[number].begin))
        return error_set(error, QN_BAD_FILE, "%s: cannot read tensor `%s`: %s", f->path, t->name,
                         errno ? strerror(errno) : "the file is cut short");
    for (size_t i = 0; i < size_bytes && t->type == QN_BOOL; i++) /* a bool holds 0 or 1 and nothing else */
        ((unsigned char *)host)[i] = ((unsigned char *)host)[i] != 0;
    return QN_OK;
}

const char *qn_safetensors_metadata(const qn_safetensors *f, const char *key)
{
    for (int i = 0; f && key && i + 1 < f->metadata_count; i += 2)
        if (!strcmp(f->metadata[i], key)) return f->metadata[i + 1];
    return NULL;
}
