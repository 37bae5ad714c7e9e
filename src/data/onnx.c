/*
 * Reads an ONNX model. In: the bytes of a file, protobuf's wire format. Out: onnx_graph.
 *
 * Only the fields that tell the graph are looked at (model: graph, opset, producer; graph: nodes, initializers without
 * their bytes, inputs, outputs, shapes in between); all others are skipped by their length. Every length is checked against
 * what is left of its message, so a damaged file is refused with the place, and nothing is allocated by a number that the
 * file claims. SPDX-License-Identifier: MIT
 */
#include "data/onnx.h"

#include "data/protobuf.h"

typedef struct reader {
    const char *at, *end;
} reader;

typedef struct field {
    int number, wire;
    uint64_t whole;
    reader inside; /* of WIRE_BYTES */
} field;

typedef struct parse {
    onnx_graph *g;
    const char *path, *begin;
    qn_error *error;
} parse;

static qn_status broken(const parse *p, const reader *r, const char *why)
{
    return error_set(p->error, QN_BAD_FILE, "%s is no ONNX model: %s at byte %lld", p->path, why,
                     (long long)(r->at - p->begin));
}

static bool read_varint(reader *r, uint64_t *out)
{
    *out = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        if (r->at == r->end) return false;
        unsigned char byte = (unsigned char)*r->at++;
        if (shift < 64) *out |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) return true;
    }
    return false;
}

/* The next field of a message; *more is false at its end. */
static qn_status next_field(const parse *p, reader *r, field *f, bool *more)
{
    uint64_t key, length;
    *more = r->at < r->end;
    if (!*more) return QN_OK;
    if (!read_varint(r, &key)) return broken(p, r, "a number has no end");
    *f = (field){.number = key >> 3 > 1 << 28 ? 0 : (int)(key >> 3), .wire = (int)(key & 7)};
    if (!f->number) return broken(p, r, "a field without a number");
    switch (f->wire) {
    case WIRE_VARINT: return read_varint(r, &f->whole) ? QN_OK : broken(p, r, "a number has no end");
    case WIRE_BYTES:
        if (!read_varint(r, &length)) return broken(p, r, "a number has no end");
        break;
    case WIRE_64: length = 8; break;
    case WIRE_32: length = 4; break;
    default: return broken(p, r, "a field of an unknown kind");
    }
    if (length > (uint64_t)(r->end - r->at)) return broken(p, r, "a field is longer than what holds it");
    f->inside = (reader){r->at, r->at + length};
    r->at += length;
    return QN_OK;
}

static const char *words_of(const parse *p, const field *f)
{
    if (f->wire != WIRE_BYTES) return "";
    return arena_copy_text(p->g->memory, f->inside.at, (size_t)(f->inside.end - f->inside.at));
}

static onnx_value *value_of(const parse *p, const char *name)
{
    onnx_value *v = map_get(p->g->values, name);
    if (v) return v;
    v = ARENA_NEW(p->g->memory, onnx_value);
    *v = (onnx_value){.name = name, .rank = -1, .producer = -1};
    map_set(p->g->values, name, v);
    return v;
}

#define EACH_FIELD(p, r, f)                             \
    for (bool more_ = true;;)                           \
        if (next_field((p), (r), (f), &more_) != QN_OK) \
            return QN_BAD_FILE;                         \
        else if (!more_)                                \
            break;                                      \
        else

static qn_status read_node(const parse *p, reader r)
{
    onnx_node n = {.name = "", .op = "", .domain = ""};
    field f;
    EACH_FIELD(p, &r, &f)
    {
        const char *words;
        if (f.number > 7 || f.wire != WIRE_BYTES) continue;
        if (f.number == 5) continue;
        words = words_of(p, &f);
        if (f.number == 1)
            ARENA_PUSH(p->g->memory, n.inputs, n.input_count, n.input_capacity, *words ? value_of(p, words) : NULL);
        if (f.number == 2)
            ARENA_PUSH(p->g->memory, n.outputs, n.output_count, n.output_capacity, *words ? value_of(p, words) : NULL);
        if (f.number == 3) n.name = words;
        if (f.number == 4) n.op = words;
        if (f.number == 7) n.domain = words;
    }
    for (int i = 0; i < n.output_count; i++)
        if (n.outputs[i]) n.outputs[i]->producer = p->g->node_count;
    ARENA_PUSH(p->g->memory, p->g->nodes, p->g->node_count, p->g->node_capacity, n);
    return QN_OK;
}

static void add_axis(onnx_value *v, const char *words)
{
    if (v->rank < ONNX_MOST_AXES) v->axes[v->rank++] = words;
}

static void add_extent(const parse *p, onnx_value *v, uint64_t extent)
{
    add_axis(v, arena_print(p->g->memory, "%lld", (long long)extent));
    bool fits = extent <= INT64_MAX && (!extent || v->count <= INT64_MAX / (int64_t)extent);
    v->count = fits ? v->count * (int64_t)extent : INT64_MAX;
}

static qn_status read_initializer(const parse *p, reader r)
{
    onnx_value v = {.name = "", .is_initializer = true, .producer = -1, .count = 1};
    field f;
    EACH_FIELD(p, &r, &f)
    {
        uint64_t extent;
        if (f.number == 1 && f.wire == WIRE_VARINT) add_extent(p, &v, f.whole);
        if (f.number == 1 && f.wire == WIRE_BYTES)
            while (f.inside.at < f.inside.end) {
                if (!read_varint(&f.inside, &extent)) return broken(p, &f.inside, "a number has no end");
                add_extent(p, &v, extent);
            }
        if (f.number == 2 && f.wire == WIRE_VARINT) v.elem = f.whole < 64 ? (int)f.whole : 0;
        if (f.number == 8) v.name = words_of(p, &f);
        if (f.number == 14 && f.wire == WIRE_VARINT) v.is_outside = f.whole == 1;
    }
    *value_of(p, v.name) = v;
    if (v.count > 0 && p->g->parameter_count <= INT64_MAX - v.count) p->g->parameter_count += v.count;
    return QN_OK;
}

static qn_status read_axis(const parse *p, reader r, onnx_value *v)
{
    field f;
    const char *words = "?";
    EACH_FIELD(p, &r, &f)
    {
        if (f.number == 1 && f.wire == WIRE_VARINT) words = arena_print(p->g->memory, "%lld", (long long)f.whole);
        if (f.number == 2 && f.wire == WIRE_BYTES) words = words_of(p, &f);
    }
    add_axis(v, words);
    return QN_OK;
}

/* TypeProto, its tensor, and the tensor's shape: messages inside each other, three deep. */
static qn_status read_type(const parse *p, reader r, int depth, onnx_value *v)
{
    field f;
    EACH_FIELD(p, &r, &f)
    {
        if (depth == 0 && f.number == 1 && f.wire == WIRE_BYTES) QN_TRY(read_type(p, f.inside, 1, v));
        if (depth == 1 && f.number == 1 && f.wire == WIRE_VARINT) v->elem = f.whole < 64 ? (int)f.whole : 0;
        if (depth == 1 && f.number == 2 && f.wire == WIRE_BYTES) {
            v->rank = 0;
            QN_TRY(read_type(p, f.inside, 2, v));
        }
        if (depth == 2 && f.number == 1 && f.wire == WIRE_BYTES) QN_TRY(read_axis(p, f.inside, v));
    }
    return QN_OK;
}

static qn_status read_value(const parse *p, reader r, onnx_value **out)
{
    onnx_value read = {.name = "", .rank = -1};
    field f;
    EACH_FIELD(p, &r, &f)
    {
        if (f.number == 1) read.name = words_of(p, &f);
        if (f.number == 2 && f.wire == WIRE_BYTES) QN_TRY(read_type(p, f.inside, 0, &read));
    }
    onnx_value *v = *out = value_of(p, read.name);
    if (v->is_initializer) return QN_OK;
    v->elem = read.elem;
    v->rank = read.rank;
    memcpy(v->axes, read.axes, sizeof(v->axes));
    return QN_OK;
}

static qn_status read_graph(const parse *p, reader r)
{
    onnx_graph *g = p->g;
    onnx_value *v;
    field f;
    EACH_FIELD(p, &r, &f)
    {
        if (f.wire != WIRE_BYTES) continue;
        if (f.number == 1) QN_TRY(read_node(p, f.inside));
        if (f.number == 2) g->name = words_of(p, &f);
        if (f.number == 5) QN_TRY(read_initializer(p, f.inside));
        if (f.number < 11 || f.number > 13) continue;
        QN_TRY(read_value(p, f.inside, &v));
        if (f.number == 11) ARENA_PUSH(g->memory, g->inputs, g->input_count, g->input_capacity, v);
        if (f.number == 12) ARENA_PUSH(g->memory, g->outputs, g->output_count, g->output_capacity, v);
    }
    int kept = 0; /* old files name initializers as inputs too */
    for (int i = 0; i < g->input_count; i++)
        if (!g->inputs[i]->is_initializer) g->inputs[kept++] = g->inputs[i];
    g->input_count = kept;
    return QN_OK;
}

static qn_status read_opset(const parse *p, reader r)
{
    field f;
    int64_t version = 0;
    const char *domain = "";
    EACH_FIELD(p, &r, &f)
    {
        if (f.number == 1) domain = words_of(p, &f);
        if (f.number == 2 && f.wire == WIRE_VARINT) version = (int64_t)f.whole;
    }
    if (!*domain) p->g->opset = version;
    return QN_OK;
}

qn_status onnx_read(arena *memory, const char *path, const char *bytes, size_t size, onnx_graph *out, qn_error *error)
{
    *out = (onnx_graph){.memory = memory, .name = "", .producer = "", .values = map_new(memory)};
    parse p = {out, path, bytes, error};
    reader r = {bytes, bytes + size};
    bool has_graph = false;
    field f;
    EACH_FIELD(&p, &r, &f)
    {
        if (f.wire != WIRE_BYTES) continue;
        if (f.number == 2) out->producer = words_of(&p, &f);
        if (f.number == 7) QN_TRY(read_graph(&p, f.inside));
        if (f.number == 8) QN_TRY(read_opset(&p, f.inside));
        has_graph |= f.number == 7;
    }
    return has_graph ? QN_OK : error_set(error, QN_BAD_FILE, "%s is no ONNX model: there is no graph in it", path);
}

const char *onnx_elem_name(int elem)
{
    static const char *const names[] = {"",     "f32", "u8",  "i8",  "u16", "i16",       "i32",        "i64", "string",
                                        "bool", "f16", "f64", "u32", "u64", "complex64", "complex128", "bf16"};
    return elem > 0 && elem < COUNT(names) ? names[elem] : "?";
}
