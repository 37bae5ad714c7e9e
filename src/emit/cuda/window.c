/*
 * Windows: loads of a pass that lie beside each other along its vector axis (the elements of a pool, a stencil, a
 * depthwise filter). In: the sinks of a pass. Out: for each set of such loads one array of registers, filled with whole
 * vectors of memory and the few elements beside them; a load is then a place in it.
 *
 * Members of a window read one array with the same indices but for the start along its last axis, where they differ by
 * constants, and under the same tests. A position that the mask leaves out has the value that a `select` would give it,
 * so nothing is asked again for each member. A vector is loaded whole where its elements are all inside or all outside.
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/nest.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { WINDOW_STEP = 4, WINDOW_SPAN = 32, WINDOW_LEAST = 8 };

typedef struct member {
    const tile_op *load;
    place at;
    value fill; /* what a position outside counts as; 0: zero */
    int window; /* -1: none */
    int64_t offset;
} member;

typedef struct window {
    const tile_op *load; /* the first one */
    place at;
    int members;
    int axis, loop;   /* of the array; of the pass */
    value base, fill; /* base: 0 for a constant start */
    int64_t step, low, high;
    value parts[4]; /* tests that do not run along the vector axis */
    int part_count;
    const tile_op *bound; /* the one that does; NULL: none */
    const char *name;     /* of the registers, once they are loaded */
} window;

struct windows {
    member *members;
    int member_count, member_capacity;
    window *items;
    int count, capacity;
    shared *guards; /* of its chunks, by their words */
    int guard_count, guard_capacity;
};

/* start = base + offset */
static void take_apart(const emitter *e, value start, value *base, int64_t *offset)
{
    const tile_op *op = tile_def(e->k, start);
    number n;
    *base = start;
    *offset = 0;
    if (tile_is_constant(e->k, start, &n)) {
        *base = 0;
        *offset = n.i;
    } else if (op && op->code == OP_ADD) {
        for (int i = 0; i < 2; i++) {
            if (!tile_is_constant(e->k, op->operands[i], &n)) continue;
            *base = op->operands[1 - i];
            *offset = n.i;
        }
    }
}

/* The load below a conversion that changes nothing in registers; NULL: something else. */
static const tile_op *load_below(const emitter *e, value v)
{
    const tile_op *op = tile_def(e->k, v);
    if (!op || !value_is_virtual(e, v) || e->uses[v] != 1) return NULL;
    if (op->code == OP_CONVERT && tile_type_of(e->k, v).elem == DT_F32) {
        dtype from = tile_type_of(e->k, op->operands[0]).elem;
        if (from != DT_F16 && from != DT_BF16 && from != DT_F32) return NULL;
        if (!value_is_virtual(e, op->operands[0]) || e->uses[op->operands[0]] != 1) return NULL;
        op = tile_def(e->k, op->operands[0]);
    }
    return op && op->code == OP_LOAD ? op : NULL;
}

/* The load whose elements outside its mask this select replaces by a constant; NULL: it is another select. */
static const tile_op *padded_load(const emitter *e, const tile_op *op)
{
    number n;
    if (op->code != OP_SELECT || !dtype_is_float(tile_type_of(e->k, op->results[0]).elem)) return NULL;
    const tile_op *fill = tile_def(e->k, op->operands[2]), *load = load_below(e, op->operands[1]);
    while (fill && fill->code == OP_BROADCAST) fill = tile_def(e->k, fill->operands[0]);
    if (!load || !fill || !tile_is_constant(e->k, fill->results[0], &n)) return NULL;
    dtype elem = tile_type_of(e->k, load->results[0]).elem;
    if (elem == DT_F64 || isnan(n.f) || round_to_dtype(elem, n.f) != n.f) return NULL; /* no word holds it */
    int count = load->attr.access.mask_count;
    return count == 1 && load->operands[load->operand_count - 1] == op->operands[0] ? load : NULL;
}

/* The conditions of a mask: one that runs along the vector axis, at most, and others. False: something else. */
static bool take_mask(const cnest *n, window *w, value mask, place at)
{
    emitter *e = n->e;
    const tile_op *op = tile_def(e->k, mask);
    number truth;
    if (op && op->code == OP_AND)
        return take_mask(n, w, op->operands[0], place_of_operand(e, op, 0, &at)) &&
               take_mask(n, w, op->operands[1], place_of_operand(e, op, 1, &at));
    while (op && op->code == OP_BROADCAST) {
        mask = op->operands[0];
        op = tile_def(e->k, mask);
    }
    if (op && tile_is_constant(e->k, mask, &truth)) return truth.i != 0;
    if (!e->k->values[mask].type.rank) {
        if (w->part_count == (int)(sizeof(w->parts) / sizeof(w->parts[0]))) return false;
        w->parts[w->part_count++] = mask;
        return true;
    }
    if (!op || op->code != OP_BOUND || at.axis[op->attr.index] != w->loop || w->bound) return false;
    w->bound = op;
    return true;
}

/* The window that a load is of, alone so far. False: of none. */
static bool window_begin(const cnest *n, const tile_op *load, const place *at, window *w)
{
    emitter *e = n->e;
    const struct access *access = &load->attr.access;
    const tile_param *p = &e->k->params[access->array];
    int operand = access->first_index, last = access->rank - 1;
    number step;
    *w = (window){.load = load, .at = *at, .members = 1, .axis = last};
    if (last < 0 || p->digits || e->written[access->array] || !dtype_is_float(p->elem)) return false;
    if (access->kind[last] != INDEX_SLICE || strcmp(stride_text(e, access->array, last), "1")) return false;
    for (int axis = 0; axis < last; axis++) {
        if (access->kind[axis] == INDEX_TILE) return false;
        if (access->kind[axis] == INDEX_SLICE) {
            int loop = at->axis[access->result_axis[axis]];
            if (loop != NO_AXIS && n->role[loop] == ROLE_VECTOR) return false;
        }
        operand += access->kind[axis] == INDEX_SLICE ? 2 : 1;
    }
    w->loop = at->axis[access->result_axis[last]];
    if (w->loop == NO_AXIS || n->role[w->loop] != ROLE_VECTOR) return false;
    if (!tile_is_constant(e->k, load->operands[operand + 1], &step) || step.i < 1 || step.i > WINDOW_STEP) return false;
    w->step = step.i;
    take_apart(e, load->operands[operand], &w->base, &w->low);
    w->high = w->low;
    for (int i = load->operand_count - access->mask_count; i < load->operand_count; i++)
        if (!take_mask(n, w, load->operands[i], place_of_operand(e, load, i, at))) return false;
    if (!w->bound) return true;
    value base;
    int64_t offset;
    number by;
    take_apart(e, w->bound->operands[0], &base, &offset);
    return base == w->base && offset == w->low && access->safe[last] &&
           tile_is_constant(e->k, w->bound->operands[1], &by) && by.i == w->step;
}

static bool window_same(const emitter *e, const window *a, const window *b)
{
    const struct access *x = &a->load->attr.access, *y = &b->load->attr.access;
    if (x->array != y->array || a->base != b->base || a->step != b->step || a->fill != b->fill ||
        a->part_count != b->part_count || !a->bound != !b->bound || x->safe[a->axis] != y->safe[a->axis] ||
        memcmp(a->parts, b->parts, sizeof(a->parts[0]) * (size_t)a->part_count) ||
        memcmp(&a->at, &b->at, sizeof(a->at)))
        return false;
    if (a->bound && a->bound->operands[2] != b->bound->operands[2]) {
        constraint c = constraint_of_bound((emitter *)e, a->bound), d = constraint_of_bound((emitter *)e, b->bound);
        if (c.kind != d.kind || c.number != d.number) return false;
    }
    int i = x->first_index, j = y->first_index;
    for (int axis = 0; axis < a->axis; axis++) {
        if (x->kind[axis] != y->kind[axis] || x->safe[axis] != y->safe[axis]) return false;
        if (x->kind[axis] == INDEX_SLICE && x->result_axis[axis] != y->result_axis[axis]) return false;
        for (int k = x->kind[axis] == INDEX_SLICE ? 2 : 1; k > 0; k--)
            if (a->load->operands[i++] != b->load->operands[j++]) return false;
    }
    return true;
}

static void note_load(emitter *e, value v, const place *at, void *context)
{
    const cnest *n = context;
    struct windows *all = n->windows;
    const tile_op *op = tile_def(e->k, v);
    if (!op || !e->k->values[v].type.rank || !value_is_virtual(e, v)) return;
    const tile_op *padded = padded_load(e, op);
    if (padded) { /* it is met later */
        const tile_op *fill = tile_def(e->k, op->operands[2]);
        while (fill->code == OP_BROADCAST) fill = tile_def(e->k, fill->operands[0]);
        member m = {.load = padded, .at = place_of_operand(e, op, 1, at), .fill = fill->results[0], .window = -2};
        ARENA_PUSH(e->memory, all->members, all->member_count, all->member_capacity, m);
        return;
    }
    if (op->code != OP_LOAD) return;
    member *m = NULL;
    for (int i = 0; i < all->member_count && !m; i++)
        if (all->members[i].load == op && place_same(&all->members[i].at, at, MAX_RANK)) m = &all->members[i];
    if (m && m->window != -2) return;
    if (!m) {
        member new = {.load = op, .at = *at};
        ARENA_PUSH(e->memory, all->members, all->member_count, all->member_capacity, new);
        m = &all->members[all->member_count - 1];
    }
    window w;
    m->window = -1;
    if (!window_begin(n, op, at, &w)) return;
    w.fill = m->fill;
    m->offset = w.low;
    for (m->window = 0; m->window < all->count; m->window++)
        if (window_same(e, &all->items[m->window], &w)) break;
    if (m->window == all->count) {
        ARENA_PUSH(e->memory, all->items, all->count, all->capacity, w);
        return;
    }
    window *to = &all->items[m->window];
    to->members++;
    to->low = MINIMUM(to->low, w.low);
    to->high = MAXIMUM(to->high, w.high);
}

void windows_find(cnest *n)
{
    emitter *e = n->e;
    const pass_layout *l = n->layout;
    n->windows = NULL;
    if (!n->has_inner || n->has_rows || n->c->target->checked || l->row_fast) return;
    for (int axis = 0; axis < l->loop_count; axis++)
        if (l->loops[axis] < 0 || l->loops[axis] % (axis == l->loop_count - 1 ? WINDOW_LEAST : 1)) return;
    n->windows = ARENA_NEW(e->memory, struct windows);
    for (int i = 0; i < n->pass->sink_count; i++) walk_sink(e, &n->pass->sinks[i], note_load, n);
}

/* Elements of a vector of memory that are all inside or all outside; 1: they may differ. */
static int window_width(const cnest *n, const window *w)
{
    emitter *e = n->e;
    const struct access *access = &w->load->attr.access;
    const tile_param *p = &e->k->params[access->array];
    int64_t divisor = w->base ? cuda_power_of_two(facts_of(e->facts, w->base).divisor) : 64;
    constraint c = w->bound ? constraint_of_bound(e, w->bound) : constraint_of_axis(e, w->base, access->array, w->axis);
    divisor = MINIMUM(divisor, cuda_extent_divisor(e, &c));
    return cuda_has_vectors(p) ? (int)MINIMUM(divisor, 16 / dtypes[p->elem].size_bytes) : 1;
}

/* Is there more than one load, and do they read together no more than each for itself would? Far apart and by large steps
 * (dilated, strided windows) a line has more elements than all that is asked for. */
static bool window_shares(const cnest *n, const window *w)
{
    int64_t span = w->high - w->low, vector = window_width(n, w);
    return w->members > 1 && span > 0 && span < WINDOW_SPAN && w->step * (vector - 1) + span + 1 <= w->members * vector;
}

static const member *member_of(const cnest *n, const tile_op *load, const place *at)
{
    const struct windows *all = n->windows;
    for (int i = 0; all && i < all->member_count; i++) {
        const member *m = &all->members[i];
        if (m->load != load || !place_same(&m->at, at, MAX_RANK) || m->window < 0) continue;
        const window *w = &all->items[m->window];
        return window_shares(n, w) ? m : NULL;
    }
    return NULL;
}

int window_vector(const cnest *n, const tile_op *load, const place *at)
{
    const member *m = member_of(n, load, at);
    return m ? window_width(n, &n->windows->items[m->window]) : 0;
}

/* A test of a chunk by name: rows of windows share theirs. */
static const char *guard_name(cnest *n, const char *words)
{
    emitter *e = n->e;
    struct windows *all = n->windows;
    if (!words) return NULL;
    for (int i = 0; i < all->guard_count; i++)
        if (!strcmp(all->guards[i].words, words)) return all->guards[i].name;
    shared guard = {words, fresh_name(e, 0), LEVEL_CHUNK};
    text_print(&n->early, "const int %s = %s;\n", guard.name, words);
    ARENA_PUSH(e->memory, all->guards, all->guard_count, all->guard_capacity, guard);
    return guard.name;
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
    int vector = n->layout->vector, wide = window_width(n, w);
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
                                                first, block, c.extent);
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
    const member *m = n->layout->vector == 1 || n->element_guard || n->layout->shifted ? NULL : member_of(n, load, &at);
    if (!m) return false;
    window *w = &n->windows->items[m->window];
    hazard_access(n, load, at);
    if (!w->name) put_window(n, w);
    *out = (creg){arena_print(n->e->memory, "%s[%s][%" PRId64 " * v + %" PRId64 "]", w->name, n->slot, w->step,
                              m->offset - w->low),
                  LEVEL_ELEMENT};
    return true;
}

bool window_fills(const cnest *n, const tile_op *select, place at)
{
    if (!n->windows || n->layout->vector == 1 || n->element_guard || n->layout->shifted) return false;
    const tile_op *load = padded_load(n->e, select);
    if (!load) return false;
    place of = place_of_operand(n->e, select, 1, &at);
    return member_of(n, load, &of) != NULL;
}

/* ---- results that begin between vectors ---- */

bool store_may_spread(const cnest *n, const tile_op *op)
{
    if (op->code != OP_STORE || !n->windows || op->attr.access.mask_count) return false;
    return !n->e->read[op->attr.access.array] && dtype_is_float(n->e->k->params[op->attr.access.array].elem);
}

bool store_spreads(const cnest *n, const tile_op *op)
{
    return store_may_spread(n, op) && n->layout->spreads && !n->chunk_guard && !n->element_guard && n->c->team.threads;
}

/* Neighbouring threads have neighbouring vectors: they exchange elements through shared memory, after which neighbours
 * have neighbouring elements, and each store goes to whole sectors of memory. */
void store_spread(cnest *n, const caddress *a, const char *words)
{
    emitter *e = n->e;
    const pass_layout *l = n->layout;
    int vector = l->vector, axis = l->loop_count - 1, size = a->elem == DT_F64 ? 8 : 4;
    int lanes = MINIMUM(n->c->team.threads, 32);
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
    text_print(&n->late, "{ %s *const spread = (%s *)spread_room + threadIdx.x / %d * %d;\n", type, type, lanes,
               lanes * vector);
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
