/*
 * Windows in CUDA text. In: sets of loads that lie beside each other along the vectors of a pass (schedule/window.c). Out:
 * for each one array of registers, filled with whole vectors of memory and the few elements beside them; a load is then a
 * place in it. A vector is loaded whole where its elements are all inside or all outside.
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/nest.h"

#include <inttypes.h>
#include <string.h>

/* A test of a chunk by name: rows of windows share theirs. */
static const char *guard_name(cnest *n, const char *words)
{
    emitter *e = n->e;
    if (!words) return NULL;
    const char *name = names_find(&n->guards, LEVEL_CHUNK, words);
    if (name) return name;
    name = fresh_name(e, 0);
    text_print(&n->early, "const int %s = %s;\n", name, words);
    names_add(e, &n->guards, LEVEL_CHUNK, words, name);
    return name;
}

/* What a word of memory outside holds: 32 bits, or a pair of 16. */
static unsigned fill_word(const emitter *e, const window *w, dtype elem)
{
    number fill = {0};
    if (!w->fill || !tile_is_constant(e->k, w->fill, &fill)) return 0;
    if (elem == DT_F16) return f16_from_double(fill.f) * 0x10001u;
    if (elem == DT_BF16) return bf16_from_double(fill.f) * 0x10001u;
    float x = (float)fill.f;
    unsigned word;
    memcpy(&word, &x, sizeof(word));
    return word;
}

static int64_t floor_to(int64_t x, int64_t by)
{
    return x >= 0 ? x / by * by : -((-x + by - 1) / by) * by;
}

/* Registers of a chunk's window, before anything else of the chunk. Halves are taken apart after the loads of
 * all windows: whatever touches a register waits for it. */
static void put_window(cnest *n, window *w)
{
    emitter *e = n->e;
    caddress a = cuda_window_address(n, w->load, w->at, w->base);
    const char *m = memory_name(a.elem), *chunk = element_pointer(e, &a, false), *ok = cjoin(e, n->in, "&&", a.ok);
    bool safe = w->load->attr.access.safe[w->axis] && !w->bound;
    int vector = n->view.layout->vector, wide = window_width(&n->view, w);
    int64_t end = w->step * (vector - 1) + w->high + 1;
    constraint c = w->bound ? constraint_of_bound(e, w->bound)
                            : constraint_of_axis(e, w->base, w->load->attr.access.array, w->axis);
    unsigned fill = fill_word(e, w, a.elem);
    const char *first = w->step == 1 ? arena_print(e->memory, "i%d", w->loop)
                                     : arena_print(e->memory, "i%d * %" PRId64, w->loop, w->step);
    if (w->base) first = arena_print(e->memory, "%s + %s", emit_name(e, w->base), first);
    while (w->step * vector % wide) wide /= 2;
    for (int i = 0; i < w->part_count; i++) ok = cjoin(e, ok, "&&", emit_name(e, w->parts[i]));
    w->name = fresh_name(e, 0);
    text_print(&n->arrays, "%s %s[%d][%" PRId64 "];\n", cuda_register_type(a.elem), w->name, n->unroll, end - w->low);
    n->early_used = true;
    bool halves = dtypes[a.elem].size_bytes == 2; /* come as words, and are taken apart when all are there */
    for (int64_t at = w->low; at < end;) {
        int64_t block = floor_to(at, wide), last = MINIMUM(end, block + wide);
        int now = wide;
        if ((last - at) * 2 < wide || wide == 1) { /* few of it: one by one */
            now = halves && wide > 1 ? 2 : 1;
            block = floor_to(at, now);
            last = MINIMUM(end, block + now);
        }
        const char *inside = safe ? NULL
                                  : arena_print(e->memory, "(unsigned long)(%s + %" PRId64 ") < (unsigned long)%s",
                                                first, block, constraint_extent(e, &c));
        const char *test = guard_name(n, cjoin(e, ok, "&&", inside));
        const char *pointer = arena_print(e->memory, "%s + %" PRId64, chunk, block);
        const char *under = !test  ? ""
                            : fill ? arena_print(e->memory, ", %s, %uu", test, fill)
                                   : arena_print(e->memory, ", %s", test);
        const char *kind = !test ? "" : fill ? "_or" : "_if";
        const char *registers = arena_print(e->memory, "%s[%s]", w->name, n->slot);
        if (now == 1) {
            text_print(&n->early, "%s[%" PRId64 "] = %s(%s%s);\n", registers, at - w->low,
                       need(e, "read%s_%s", kind, m), pointer, under);
        } else if (halves) {
            const char *got = fresh_name(e, 0);
            text_print(&n->arrays, "unsigned %s[%d][%d];\n", got, n->unroll, now / 2);
            text_print(&n->early, "%s(%s[%s], %s%s);\n", need(e, "load_words%d_constant%s", now / 2, kind), got,
                       n->slot, pointer, under);
            cput(n, LEVEL_CHUNK,
                 "{ float part[%d]; %s(part, %s[%s]); for (int k = %" PRId64 "; k < %" PRId64
                 "; k++) %s[k] = part[k - (%" PRId64 ")]; }",
                 now, need(e, "unpack_%sx%d", m, now), got, n->slot, at - w->low, last - w->low, registers,
                 block - w->low);
        } else if (at == block && last == block + now) {
            text_print(&n->early, "%s(%s + %" PRId64 ", %s%s);\n", need(e, "load_%sx%d_constant%s", m, now, kind),
                       registers, at - w->low, pointer, under);
        } else {
            text_print(&n->early, "{\n    %s part[%d];\n    %s(part, %s%s);\n", cuda_register_type(a.elem), now,
                       need(e, "load_%sx%d_constant%s", m, now, kind), pointer, under);
            for (int64_t k = at; k < last; k++)
                text_print(&n->early, "    %s[%" PRId64 "] = part[%" PRId64 "];\n", registers, k - w->low, k - block);
            text_add(&n->early, "}\n");
        }
        at = last;
    }
}

bool window_load(cnest *n, const tile_op *load, place at, creg *out)
{
    int64_t offset;
    window *w = n->view.windows ? window_of(&n->view, load, &at, &offset) : NULL;
    if (!w) return false;
    if (!w->name) put_window(n, w);
    *out = (creg){
        arena_print(n->e->memory, "%s[%s][%" PRId64 " * v + %" PRId64 "]", w->name, n->slot, w->step, offset - w->low),
        LEVEL_ELEMENT, REG_ELEMENT};
    return true;
}

/* ---- results that begin between vectors ---- */

/* Neighbouring threads have neighbouring vectors: they exchange elements through shared memory, after which neighbours
 * have neighbouring elements, and each store goes to whole sectors of memory. */
void store_spread(cnest *n, const caddress *a, const char *words)
{
    emitter *e = n->e;
    const pass_layout *l = n->view.layout;
    int vector = l->vector, axis = l->loop_count - 1, size = a->elem == DT_F64 ? 8 : 4;
    int lanes = MINIMUM(n->c->spread->team.threads, 32);
    while (l->loops[axis] % (lanes * vector)) lanes /= 2; /* of one line */
    int at_once = MINIMUM(vector, 16 / size);
    const char *type = cuda_register_type(a->elem), *name = fresh_name(e, 0), *m = size == 8 ? "f64" : "f32";
    const char *ok = cjoin(e, cjoin(e, n->in, "&&", a->ok), "&&", a->element_ok);
    const char *mask =
        lanes == 32 ? "0xffffffff"
                    : arena_print(e->memory, "%uu << threadIdx.x %% 32 / %d * %d", (1u << lanes) - 1, lanes, lanes);
    n->c->spread_bytes = MAXIMUM(n->c->spread_bytes, vector * size);
    cput(n, LEVEL_CHUNK, "%s %s[%d];", type, name, vector);
    cput(n, LEVEL_ELEMENT, "%s[v] = %s;", name, words);
    /* Others may be behind, at a store of another type: what a thread has here begins at the same byte for all stores. */
    text_print(&n->late, "{ %s *const spread = (%s *)(spread_room + threadIdx.x / %d * %d * spread_share);\n", type,
               type, lanes, lanes);
    text_print(&n->late, "const int lane = threadIdx.x %% %d, first = i%d - lane * %d + lane;\n", lanes, axis, vector);
    text_print(&n->late, "__syncwarp(%s);\n", mask);
    for (int v = 0; v < vector; v += at_once)
        text_print(&n->late, "%s(spread + lane * %d + %d, %s + %d);\n", need(e, "store_%sx%d", m, at_once), vector, v,
                   name, v);
    text_print(&n->late, "__syncwarp(%s);\n", mask);
    for (int v = 0; v < vector; v++)
        text_print(&n->late, "{ const int i%d = first + %d, v = 0; %s%s(%s, spread[lane + %d]); }\n", axis, v * lanes,
                   ok ? arena_print(e->memory, "if (%s) ", ok) : "", need(e, "write_%s", memory_name(a->elem)),
                   element_pointer(e, a, true), v * lanes);
    text_add(&n->late, "}\n");
}
