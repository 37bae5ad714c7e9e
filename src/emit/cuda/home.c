/*
 * Homes of kept tiles in a thread's own registers and slots. In: a kept tile and its place in the loops. Out: the
 * register of an element, and the statements around it.
 *
 * 16-bit floats lie two in a register, and slots are vectors in shared memory that belong to one thread: both are
 * *opened* once a chunk, `bN_now`, and closed after its elements if these were written. Slots are filled by copies in
 * the background. In a loop whose count gives the address of a load, the next trip's copies are asked for when this
 * trip begins: two places in turn (`comes_ahead`). No barrier is needed for any of it.
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/nest.h"

#include <inttypes.h>
#include <string.h>

void home_declare(emitter *e, int number, const char *title)
{
    const kept *k = &e->cuda->spread->kept[number];
    dtype t = e->survey->buffers[number].elem;
    int vector = k->layout->vector;
    if (home_is_packed(e->survey, number))
        put(e, "unsigned b%d[%d][%d]; /* %s, two in each */", number, k->in_registers, vector / 2, title);
    else if (k->in_registers)
        put(e, "%s b%d[%d][%d]; /* %s */", cuda_register_type(t), number, k->in_registers, vector, title);
    if (!home_has_slots(e->cuda->spread, number)) return;
    const char *type = memory_type(t), *ahead = k->comes_ahead ? "_places" : "_slots";
    put(e, "%s *const b%d%s = (%s *)(shared_room + %" PRId64 " + %d * blockDim.x) + threadIdx.x * %d;%s", type, number,
        ahead, type, e->cuda->spread->shared_bytes, k->slots_before, vector,
        k->in_registers ? "" : arena_print(e->memory, " /* %s */", title));
    put(e, "const int b%d_step = blockDim.x * %d;", number, vector);
    if (k->comes_ahead) put(e, "%s *b%d_slots = b%d_places;", type, number, number);
}

/* One statement for repeats in registers, another for those in slots. */
static void put_either(cnest *n, text *to, int number, const char *registers, const char *slots)
{
    const kept *k = &n->c->spread->kept[number];
    if (!home_has_slots(n->c->spread, number))
        text_print(to, "%s;\n", registers);
    else if (!k->in_registers)
        text_print(to, "%s;\n", slots);
    else
        text_print(to, "if (%s < %d) %s;\nelse %s;\n", n->repeat, k->in_registers, registers, slots);
}

/* The registers of this chunk. */
static const char *chunk_registers(cnest *n, int number)
{
    const kept *k = &n->c->spread->kept[number];
    if (!home_has_slots(n->c->spread, number)) return arena_print(n->e->memory, "b%d[%s]", number, n->repeat);
    return arena_print(n->e->memory, "b%d[%s < %d ? %s : 0]", number, n->repeat, k->in_registers, n->repeat);
}

static const char *chunk_slot(cnest *n, int number, const char *base)
{
    int most = n->c->spread->kept[number].in_registers;
    const char *at = most ? arena_print(n->e->memory, "(%s - %d)", n->repeat, most) : n->repeat;
    return arena_print(n->e->memory, "b%d%s + %s * b%d_step", number, base, at, number);
}

static void note_slots(cnest *n, int number)
{
    if (!home_has_slots(n->c->spread, number)) return;
    n->slotted = true;
    n->split = MAXIMUM(n->split, n->c->spread->kept[number].in_registers);
}

/* A chunk of its registers, or of its slot, to an array of elements (takes), or from it. */
static void move_chunk(cnest *n, text *to, int number, const char *elements, bool takes)
{
    emitter *e = n->e;
    const char *m = memory_name(e->survey->buffers[number].elem), *registers = chunk_registers(n, number), *slots = "";
    const char *into = takes ? elements : registers, *from = takes ? registers : elements, *move;
    int vector = n->view.layout->vector;
    if (home_is_packed(e->survey, number))
        move =
            arena_print(e->memory, "%s(%s, %s)", need(e, takes ? "unpack_%sx%d" : "pack_%sx%d", m, vector), into, from);
    else
        move = arena_print(e->memory, "for (int v = 0; v < %d; v++) %s[v] = %s[v]", vector, into, from);
    if (home_has_slots(n->c->spread, number)) {
        const char *slot = chunk_slot(n, number, "_slots");
        into = takes ? elements : slot;
        from = takes ? slot : elements;
        if (vector > 1)
            slots = arena_print(e->memory, "%s(%s, %s)", need(e, takes ? "load_%sx%d" : "store_%sx%d", m, vector), into,
                                from);
        else
            slots = arena_print(e->memory, takes ? "*%s = *(%s)" : "*(%s) = *%s", into, from);
    }
    put_either(n, to, number, move, slots);
}

void home_keep(cnest *n, text *to, int number, const char *from)
{
    move_chunk(n, to, number, from, false);
}

void home_take(cnest *n, text *to, int number, const char *into)
{
    move_chunk(n, to, number, into, true);
}

/* The vector of this chunk comes from registers or from a slot: which of them is known when the loop is unrolled. */
static void open_home(cnest *n, int number, bool writes)
{
    emitter *e = n->e;
    int vector = n->view.layout->vector, at = 0;
    dtype t = e->survey->buffers[number].elem;
    note_slots(n, number);
    while (at < n->opened_count && n->opened[at] != number) at++;
    if (at == n->opened_count) {
        CHECK(at < COUNT(n->opened));
        n->opened[n->opened_count++] = number;
        n->opened_late[at] = false;
        cput(n, LEVEL_CHUNK, "%s b%d_now[%d];", cuda_register_type(t), number, vector);
        if (!writes) home_take(n, &n->level[LEVEL_CHUNK], number, arena_print(e->memory, "b%d_now", number));
    }
    if (!writes || n->opened_late[at]) return;
    n->opened_late[at] = true;
    home_keep(n, &n->late, number, arena_print(e->memory, "b%d_now", number));
}

const char *home_words(cnest *n, int number)
{
    emitter *e = n->e;
    int words = n->view.layout->vector / 2;
    const char *name = arena_print(e->memory, "b%d_words", number);
    if (names_find(&n->names, LEVEL_CHUNK, name)) return name; /* there already */
    names_add(e, &n->names, LEVEL_CHUNK, name, name);
    note_slots(n, number);
    buffer_touch(e, number);
    cput(n, LEVEL_CHUNK, "unsigned %s[%d];", name, words);
    const char *take =
        arena_print(e->memory, "for (int w = 0; w < %d; w++) %s[w] = %s[w]", words, name, chunk_registers(n, number));
    put_either(n, &n->level[LEVEL_CHUNK], number, take,
               home_has_slots(n->c->spread, number)
                   ? arena_print(e->memory, "%s(%s, %s)", need(e, "load_words%d", words), name,
                                 chunk_slot(n, number, "_slots"))
                   : "");
    return name;
}

const char *home_element(cnest *n, value v, place at, bool writes, int *level)
{
    emitter *e = n->e;
    int number = buffer_for(e->survey, v);
    buffer_touch(e, number);
    if (e->cuda->spread->kept[number].kind != HOME_REGISTERS) return NULL;
    CHECK(home_is_here(&n->view, v, &at));
    *level = LEVEL_ELEMENT;
    const char *element = n->view.layout->vector > 1 ? "v" : "0";
    if (!home_is_opened(e->survey, number)) return arena_print(e->memory, "b%d[%s][%s]", number, n->repeat, element);
    open_home(n, number, writes);
    return arena_print(e->memory, "b%d_now[%s]", number, element);
}

/* A copy of the chunk that nobody waits for yet. */
static const char *copy_text(cnest *n, const caddress *a, int number, const char *base, const char *ok)
{
    int bytes = n->view.layout->vector * dtypes[a->elem].size_bytes;
    const char *few = bytes < 16 ? arena_print(n->e->memory, "_few<%d>", bytes) : "";
    const char *real = arena_print(n->e->memory, ok ? "%s ? %d : 0" : "%s%d", ok ? ok : "", bytes);
    need(n->e, "copy_async");
    return arena_print(n->e->memory, "copy_async%s(%s, %s, %s)", few, chunk_slot(n, number, base),
                       element_pointer(n->e, a, false), real);
}

/* Vectors that may reach over an end go by hand. */
creg home_load(cnest *n, const caddress *a, value into)
{
    emitter *e = n->e;
    int number = buffer_for(e->survey, into), vector = n->view.layout->vector;
    const char *m = memory_name(a->elem), *chunk = element_pointer(e, a, false);
    const char *ok = cjoin(e, n->in, "&&", a->ok), *whole = a->whole;
    if (n->element_guard) whole = cjoin(e, whole, "&&", "whole");
    bool loose = a->even && !a->element_ok && a->width == vector;
    bool vectors = loose || (a->width == vector && !a->even && !(whole && home_has_slots(n->c->spread, number)) &&
                             (whole || !a->element_ok));
    vectors &= !a->back;
    n->early_used = true;
    note_slots(n, number);
    buffer_touch(e, number);
    if (vectors) {
        const char *test = whole && !loose ? NULL : ok, *constant = a->read_only ? "_constant" : "", *load = NULL;
        if (home_is_packed(e->survey, number))
            load = need(e, "load_words%d%s%s", vector / 2, constant, test ? "_if" : "");
        else if (vector > 1)
            load = need(e, "load_%sx%d%s%s", m, vector, constant, test ? "_if" : "");
        load = load ? arena_print(e->memory, "%s(%s, %s%s%s)", load, chunk_registers(n, number), chunk,
                                  test ? ", " : "", test ? test : "")
                    : arena_print(e->memory, "%s[0] = %s", chunk_registers(n, number),
                                  or_zero(e, test, address_fetch(e, a, chunk)));
        if (loose)
            text_print(&n->early, "if (%s) {\n", edge_text(e, a));
        else if (whole)
            text_print(&n->early, "if (%s) ", cjoin(e, ok, "&&", whole));
        n->copies |= home_has_slots(n->c->spread, number);
        put_either(n, &n->early, number, load,
                   home_has_slots(n->c->spread, number) ? copy_text(n, a, number, "_slots", test) : "");
        if (loose) text_add(&n->early, "}\n");
    }
    if (!vectors || whole) {
        const char *inside = cjoin(e, ok, "&&", cjoin(e, a->element_ok, "&&", n->element_guard));
        text_print(&n->early, "%s{\n", vectors ? "else " : "");
        text_print(&n->early, "    %s b%d_got[%d];\n", cuda_register_type(a->elem), number, vector);
        text_print(&n->early, "    for (int v = 0; v < %d; v++) b%d_got[v] = %s;\n", vector, number,
                   or_zero(e, inside, address_fetch(e, a, element_pointer(e, a, true))));
        text close = {0};
        home_keep(n, &close, number, arena_print(e->memory, "b%d_got", number));
        add_lines(&n->early, text_get(&close), 1);
        text_add(&n->early, "}\n");
        text_free(&close);
    }
    return (creg){"", LEVEL_ELEMENT, REG_NAME};
}

/* ---- loads a trip ahead ---- */

/* The copies of one trip, to the places of turn `turn`. */
static void put_copies(emitter *e, const value *ahead, int count, const char *turn)
{
    for (int i = 0; i < count; i++) {
        value v = ahead[i];
        tile_type type = tile_type_of(e->k, v);
        int number = buffer_for(e->survey, v);
        pass_layout *l = (pass_layout *)e->cuda->spread->kept[number].layout;
        cnest n = cuda_nest_of(e, l);
        caddress a = cuda_access(&n, tile_def(e->k, v), place_own(&type));
        const char *base = arena_print(e->memory, "_places + %s * %d * b%d_step", turn, l->repeats, number);
        text lines = {0};
        add_lines(&lines, text_get(&n.level[LEVEL_GROUP]), 0);
        add_lines(&lines, text_get(&n.level[LEVEL_ROW]), 0);
        text_add(&lines, "#pragma unroll\n");
        text_print(&lines, "for (int r = 0; r < %d; r++) {\n", l->repeats);
        text positions = {0};
        cuda_positions(&n, &positions);
        add_lines(&lines, text_get(&positions), 1);
        text_print(&lines, "    %s;\n}\n", copy_text(&n, &a, number, base, n.in));
        add_lines(e->out, text_get(&lines), e->depth);
        text_free(&lines);
        text_free(&positions);
        for (int level = 0; level < LEVEL_COUNT; level++) text_free(&n.level[level]);
    }
}

/* for (i = first; ...) with the copies of trip i under the loop's own condition. */
static void put_trip(emitter *e, const tile_op *loop, const char *first, const value *ahead, int count,
                     const char *turn)
{
    const char *i = emit_name(e, loop->regions[0]->args[0]), *limit = emit_name(e, loop->operands[1]);
    const char *step = emit_name(e, loop->operands[2]);
    bool constant = tile_is_constant(e->k, loop->operands[2], NULL);
    put(e, "{");
    e->depth++;
    put(e, "const long trip = %s;", first);
    put(e, "if (%strip < %s) {", constant ? "" : arena_print(e->memory, "%s > 0 && ", step), limit);
    e->depth++;
    put(e, "const long %s = trip;", i);
    put_copies(e, ahead, count, turn);
    e->depth--;
    put(e, "}");
    put(e, "copy_commit();");
    e->depth--;
    put(e, "}");
}

void home_put_loop(emitter *e, const tile_op *loop, text *body, const value *ahead, int count)
{
    const char *turn = fresh_name(e, 0);
    const char *i = emit_name(e, loop->regions[0]->args[0]), *step = emit_name(e, loop->operands[2]);
    if (count) {
        put(e, "int %s = 0; /* loads of the next trip go on during this one */", turn);
        put_trip(e, loop, emit_name(e, loop->operands[0]), ahead, count, turn);
    }
    emit_for_head(e, loop);
    e->depth++;
    for (int k = 0; k < count; k++) {
        int number = buffer_for(e->survey, ahead[k]);
        put(e, "b%d_slots = b%d_places + %s * %d * b%d_step;", number, number, turn,
            e->cuda->spread->kept[number].layout->repeats, number);
    }
    if (count) {
        put(e, "%s ^= 1;", turn);
        put_trip(e, loop, arena_print(e->memory, "%s + %s", i, step), ahead, count, turn);
        put(e, "copy_wait<1>();");
    }
    text_add(e->out, text_get(body));
    e->depth--;
    put(e, "}");
}
