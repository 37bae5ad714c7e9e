/*
 * .npy files. In: a path. Out: an array with its memory, and back. Versions 1 to 3 of the format, every element type
 * that Quern has, either byte order (swapped on reading), Fortran order as strides with no copy, rank 0 to 6. A file is
 * not trusted: the header is read by a small strict parser, sizes are computed with overflow checks and compared with
 * the length of the file before anything is allocated. SPDX-License-Identifier: MIT
 */
#include "ir/tile.h"

#include <errno.h>
#include <quern/workbench.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define HEADER_LIMIT_BYTES ((size_t)1 << 20)
static const char magic[6] = "\x93NUMPY";

/* What the header says. */
typedef struct header {
    dtype elem;
    bool swapped, fortran;
    int rank;
    int64_t extents[ARRAY_RANK];
} header;

/* The header's text: a Python dictionary. `at` moves forward; any fault leaves a message. */
typedef struct reader {
    const char *at, *end;
    const char *path;
    qn_error *error;
} reader;

static qn_status fault(const reader *r, const char *what)
{
    return error_set(r->error, QN_BAD_FILE, "%s: not a .npy file that Quern can read: %s", r->path, what);
}

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

static bool take_word(reader *r, const char *word)
{
    size_t length = strlen(word);
    skip_blanks(r);
    if ((size_t)(r->end - r->at) < length || memcmp(r->at, word, length)) return false;
    r->at += length;
    return true;
}

/* 'words' or "words" without escapes. */
static bool take_string(reader *r, char *out, size_t size)
{
    skip_blanks(r);
    if (r->at == r->end || (*r->at != '\'' && *r->at != '"')) return false;
    char quote = *r->at++;
    size_t length = 0;
    while (r->at < r->end && *r->at != quote && length + 1 < size) out[length++] = *r->at++;
    out[length] = 0;
    return r->at < r->end && *r->at++ == quote && length + 1 < size;
}

static bool take_number(reader *r, int64_t *out)
{
    skip_blanks(r);
    const char *start = r->at;
    int64_t number = 0;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9') {
        if (__builtin_mul_overflow(number, 10, &number) || __builtin_add_overflow(number, *r->at - '0', &number))
            return false;
        r->at++;
    }
    if (r->at < r->end && *r->at == 'L') r->at++; /* files of Python 2 */
    *out = number;
    return r->at > start && *start != 'L';
}

static qn_status read_type(reader *r, header *h)
{
    char words[32];
    if (!take_string(r, words, sizeof(words))) return fault(r, "its type is not a simple one");
    const char *code = words;
    const uint16_t probe = 1;
    bool little_host = *(const unsigned char *)&probe == 1, little = little_host;
    if (*code == '<' || *code == '>' || *code == '=' || *code == '|') {
        little = *code == '<' || (*code != '>' && little_host);
        code++;
    }
    if (!strcmp(code, "?")) code = "b1";
    for (int t = 0; t < DT_COUNT; t++) {
        if (!*dtypes[t].npy_code || strcmp(dtypes[t].npy_code, code)) continue;
        h->elem = (dtype)t;
        h->swapped = dtypes[t].size_bytes > 1 && little != little_host;
        return QN_OK;
    }
    char message[80];
    snprintf(message, sizeof(message), "elements of type '%s' are not supported", words);
    return fault(r, message);
}

static qn_status read_shape(reader *r, header *h)
{
    if (!take(r, '(')) return fault(r, "its shape is not a tuple");
    while (!take(r, ')')) {
        if (h->rank == ARRAY_RANK) return fault(r, "it has more than 8 axes");
        if (!take_number(r, &h->extents[h->rank++])) return fault(r, "its shape has a bad extent");
        if (take(r, ',')) continue;
        if (!take(r, ')')) return fault(r, "its shape is not a tuple");
        break;
    }
    return QN_OK;
}

static qn_status read_header(reader *r, header *h)
{
    bool has_type = false, has_order = false, has_shape = false;
    if (!take(r, '{')) return fault(r, "its header is not a dictionary");
    while (!take(r, '}')) {
        char key[32];
        if (!take_string(r, key, sizeof(key)) || !take(r, ':')) return fault(r, "its header is damaged");
        if (!strcmp(key, "descr") && !has_type) {
            QN_TRY(read_type(r, h));
            has_type = true;
        } else if (!strcmp(key, "fortran_order") && !has_order) {
            h->fortran = take_word(r, "True");
            if (!h->fortran && !take_word(r, "False")) return fault(r, "its fortran_order is neither True nor False");
            has_order = true;
        } else if (!strcmp(key, "shape") && !has_shape) {
            QN_TRY(read_shape(r, h));
            has_shape = true;
        } else {
            return fault(r, "its header has an unknown or repeated key");
        }
        if (take(r, ',')) continue;
        if (!take(r, '}')) return fault(r, "its header is damaged");
        break;
    }
    if (!has_type || !has_order || !has_shape) return fault(r, "its header lacks descr, fortran_order or shape");
    skip_blanks(r);
    return r->at == r->end ? QN_OK : fault(r, "its header has text after the dictionary");
}

/* Elements and bytes, or false if they do not fit. */
static bool size_of(const header *h, int64_t *bytes)
{
    int64_t count = dtypes[h->elem].size_bytes;
    bool empty = false;
    for (int i = 0; i < h->rank; i++) {
        if (h->extents[i] == 0)
            empty = true;
        else if (__builtin_mul_overflow(count, h->extents[i], &count))
            return false;
    }
    *bytes = empty ? 0 : count;
    return true;
}

static void set_strides(const header *h, qn_array *a)
{
    int64_t step = 1;
    for (int i = 0; i < h->rank; i++) {
        int axis = h->fortran ? i : h->rank - 1 - i;
        a->extents[axis] = h->extents[axis];
        a->strides[axis] = step;
        step *= h->extents[axis] ? h->extents[axis] : 1;
    }
}

static void swap_bytes(unsigned char *data, int64_t bytes, int size)
{
    for (int64_t at = 0; at < bytes; at += size)
        for (int i = 0; i < size / 2; i++) {
            unsigned char keep = data[at + i];
            data[at + i] = data[at + size - 1 - i];
            data[at + size - 1 - i] = keep;
        }
}

/* The header's text into `words` (heap), the rest of the file is the data. */
static qn_status read_preamble(FILE *file, reader *r, int64_t file_bytes, char **words, qn_error *error)
{
    unsigned char start[12];
    size_t got = fread(start, 1, 10, file);
    if (got >= 4 && !memcmp(start, "PK\3\4", 4))
        return fault(r, "it is an archive (.npz, .pt): write one array with np.save");
    if (got != 10 || memcmp(start, magic, sizeof(magic))) return fault(r, "it does not begin as one");
    int major = start[6];
    size_t length = start[8] | (size_t)start[9] << 8;
    int64_t before = 10;
    if (major < 1 || major > 3) return fault(r, "its version is not 1, 2 or 3");
    if (major > 1) {
        if (fread(start + 10, 1, 2, file) != 2) return fault(r, "it is cut short");
        length |= (size_t)start[10] << 16 | (size_t)start[11] << 24;
        before = 12;
    }
    if (length > HEADER_LIMIT_BYTES || (int64_t)length > file_bytes - before)
        return fault(r, "its header is longer than the file");
    *words = malloc(length + 1);
    if (!*words) return error_set(error, QN_NO_MEMORY, "no memory for the header of %s", r->path);
    if (fread(*words, 1, length, file) != length) return fault(r, "it is cut short");
    r->at = *words;
    r->end = *words + length;
    return QN_OK;
}

static qn_status read_file(FILE *file, const char *path, qn_npy *npy, char **words, qn_error *error)
{
    reader r = {.path = path, .error = error};
    header h = {0};
    struct stat about;
    if (fstat(fileno(file), &about) || !S_ISREG(about.st_mode)) return fault(&r, "it is not a plain file");
    QN_TRY(read_preamble(file, &r, about.st_size, words, error));
    QN_TRY(read_header(&r, &h));
    int64_t bytes;
    if (!size_of(&h, &bytes) || bytes > (int64_t)about.st_size - ftell(file))
        return fault(&r, "it is shorter than its shape");
    npy->memory = aligned_alloc(64, ((size_t)bytes + 64) & ~(size_t)63);
    if (!npy->memory) return error_set(error, QN_NO_MEMORY, "no memory for %lld bytes of %s", (long long)bytes, path);
    if (fread(npy->memory, 1, (size_t)bytes, file) != (size_t)bytes) return fault(&r, "it is cut short");
    if (h.swapped) swap_bytes(npy->memory, bytes, dtypes[h.elem].size_bytes);
    for (int64_t i = 0; i < bytes && h.elem == DT_BOOL; i++) /* a bool holds 0 or 1 and nothing else */
        ((unsigned char *)npy->memory)[i] = ((unsigned char *)npy->memory)[i] != 0;
    npy->array = (qn_array){.data = npy->memory, .type = (qn_dtype)h.elem, .rank = h.rank};
    set_strides(&h, &npy->array);
    return QN_OK;
}

qn_status qn_npy_read(const char *path, qn_npy *npy, qn_error *error)
{
    HEAP_ENTER(error);
    if (!path || !npy) return error_set(error, QN_BAD_CALL, "qn_npy_read: an argument is NULL");
    memset(npy, 0, sizeof(*npy));
    FILE *file = file_open_plain(path);
    if (!file) return error_set(error, QN_BAD_FILE, "cannot open %s: %s", path, strerror(errno));
    char *words = NULL;
    qn_status status = read_file(file, path, npy, &words, error);
    heap_free(words);
    fclose(file);
    if (status) qn_npy_free(npy);
    return status;
}

void qn_npy_free(qn_npy *npy)
{
    if (!npy) return;
    heap_free(npy->memory);
    memset(npy, 0, sizeof(*npy));
}

/* Copies elements in row-major order to `to`; returns the place after the last. */
static char *pack(const qn_array *a, int axis, const char *from, char *to)
{
    size_t size = (size_t)dtypes[a->type].size_bytes; /* the type was looked at */
    if (axis == a->rank) {
        if (*dtypes[a->type].npy_code) return (char *)memcpy(to, from, size) + size;
        float wide = (float)element_read((dtype)a->type, from).f; /* exact: NumPy has no name for the narrower one */
        return (char *)memcpy(to, &wide, sizeof(wide)) + sizeof(wide);
    }
    if (axis == a->rank - 1 && a->strides[axis] == 1 && *dtypes[a->type].npy_code) {
        size_t bytes = (size_t)a->extents[axis] * size;
        return (char *)memcpy(to, from, bytes) + bytes;
    }
    for (int64_t i = 0; i < a->extents[axis]; i++)
        to = pack(a, axis + 1, from + i * a->strides[axis] * (int64_t)size, to);
    return to;
}

qn_status qn_npy_write(const char *path, const qn_array *array, qn_error *error)
{
    HEAP_ENTER(error);
    if (!path || !array) return error_set(error, QN_BAD_CALL, "qn_npy_write: an argument is NULL");
    if ((int)array->type < 0 || (int)array->type >= DT_COUNT || array->rank < 0 || array->rank > ARRAY_RANK)
        return error_set(error, QN_BAD_CALL, "qn_npy_write: the array has no such type or rank");
    header h = {.elem = *dtypes[array->type].npy_code ? (dtype)array->type : DT_F32, .rank = array->rank};
    memcpy(h.extents, array->extents, sizeof(h.extents));
    int64_t bytes;
    for (int i = 0; i < h.rank; i++)
        if (h.extents[i] < 0) return error_set(error, QN_BAD_CALL, "qn_npy_write: extent %d is negative", i);
    if (!size_of(&h, &bytes) || (bytes && !array->data))
        return error_set(error, QN_BAD_CALL, "qn_npy_write: the array has no memory of that size");
    text out = {0};
    text_add_bytes(&out, magic, sizeof(magic));
    text_add_bytes(&out, "\1\0\0\0", 4);
    const uint16_t probe = 1;
    char order = dtypes[h.elem].size_bytes == 1 ? '|' : *(const unsigned char *)&probe ? '<' : '>';
    text_print(&out, "{'descr': '%c%s', 'fortran_order': False, 'shape': (", order, dtypes[h.elem].npy_code);
    for (int i = 0; i < h.rank; i++)
        text_print(&out, "%s%lld%s", i ? ", " : "", (long long)h.extents[i], h.rank == 1 ? "," : "");
    text_add(&out, "), }");
    while (out.length % 64 != 63) text_add(&out, " ");
    text_add(&out, "\n");
    out.data[8] = (char)((out.length - 10) & 255);
    out.data[9] = (char)((out.length - 10) >> 8);
    char *all = malloc(out.length + (size_t)bytes);
    qn_status status = QN_OK;
    if (!all) {
        status = error_set(error, QN_NO_MEMORY, "no memory to write %lld bytes to %s", (long long)bytes, path);
    } else {
        memcpy(all, out.data, out.length);
        if (bytes) pack(array, 0, array->data, all + out.length);
        status = file_write(path, all, out.length + (size_t)bytes, error);
    }
    heap_free(all);
    text_free(&out);
    return status;
}
