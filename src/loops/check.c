/*
 * The order of a loop program, run: whether its waits and releases are enough. In: a program. Out: true, or what goes wrong.
 *
 * The roles run side by side on no numbers at all: three tiles, a few more steps than a ring has stages, three chunks of
 * each tile; of chained products one tile, each kind of step more often than a ring has stages, and a group that ends early. What works in the background is as late as it may be: a copy has landed when its stage is waited for, a
 * product and a copy out are over when a release or a wait says so. A stage that is filled while somebody still reads it, a
 * product of a stage that is not full, registers read while a product writes them, a buffer written while a copy reads it,
 * roles that wait for ever: each is told.
 * What each node says about order is here, and nothing of how it is printed, so that a printer, emu and this are three
 * opinions. Each schedule of turns between the roles is tried that prefers one of them.
 * SPDX-License-Identifier: MIT
 */
#include "loops/loops.h"

#include <string.h>

enum { TILES = 3, CHUNKS = 3, MOST_AGENTS = 5, MOST_STAGES = 16, MOST_BUFFERS = 8 };
enum {
    FIXED_RING = CHAINED_MOST_OPERANDS,
    MOST_RINGS
}; /* of chained products: one a moving operand, and the fixed ones */

typedef struct event {
    loop_code code;
    int number[2], tile;
    const loop_node *node;
    int steps; /* TURN of another group's tile */
    void *noted;
} event;

typedef struct cursor {           /* where an agent is in a ring */
    int stage, uses[MOST_STAGES]; /* of each stage: how often it was passed */
    bool waited;                  /* for this use of the stage */
} cursor;

typedef struct
    work { /* a group of products: the stage it reads; of chained products, LOOPS_SCORE or LOOPS_SUM and its number */
    int ring, stage, kind, number;
} work;

typedef struct agent { /* a role, or one group of the warps that multiply */
    const char *name;
    bool fills;
    int group, step;
    event *events;
    int count, capacity, at;
    cursor rings[MOST_RINGS];
    work products[MOST_STAGES]; /* asked for, and not known to be over */
    int product_count;
    bool met;         /* its warps, since its last product */
    int asked, there; /* tiles that the epilogue loads: how often it asked for them, how often it saw them there */
    int buffer, sent[MOST_BUFFERS], sent_count; /* copies out on their way, by buffer */
} agent;

typedef struct machine {
    const schedule *schedule; /* one of them */
    const chained *chained;
    const loop_numbers *numbers; /* or NULL */
    arena *memory;
    agent agents[MOST_AGENTS];
    int agent_count, groups, stages, steps;
    bool has[LOOPS_OTHERS_STEPS + 1]; /* of chained products: kinds of steps */
    struct {
        int expected, got;
        bool told, gathered; /* of the fill at hand; gathered: or taken */
        int fills;           /* that are complete */
        int released[MOST_AGENTS];
    } ring[MOST_RINGS][MOST_STAGES];
    int lagging[MOST_STAGES + 2], lag_count; /* stages whose gathered part is on its way */
    bool vectors;                            /* numbers of rows were written and not all lanes met since */
    int turn;                                /* the tile whose group may ask for products */
    text *why;
} machine;

static bool takes_turns(const machine *m)
{
    return m->schedule && m->schedule->choice.turns;
}

/* ---- the events of an agent, in order ---- */

static void add_event(const machine *m, agent *a, const loop_node *n, int tile)
{
    event e = {n->code, {n->number[0], n->number[1]}, tile, n, m->steps, NULL};
    const loop_numbers *x = m->numbers;
    if (x && n->code == LOOP_TURN) e.steps = x->round(x->context, n, -1);
    if (x) e.noted = x->note(x->context, n, !a->step);
    ARENA_PUSH(m->memory, a->events, a->count, a->capacity, e);
}

/* How often an agent runs a kind of steps of chained products: in all as often as the others, of which one ends early. */
static int rounds_of_steps(const machine *m, const agent *a, int which)
{
    int each = m->stages + 1, others = m->has[LOOPS_OTHERS_STEPS] && a->group == 0 ? each : 0;
    switch (which) {
    case LOOPS_ALL_STEPS: return m->steps;
    case LOOPS_FIRST_STEP: return 1;
    case LOOPS_OTHERS_STEPS: return others;
    case LOOPS_WHOLE_STEPS: return m->steps - 1 - each - others - (m->has[LOOPS_LOWER_STEPS] ? each : 0);
    default: return each;
    }
}

/* Does this node do anything in this step? */
static bool has_event(const machine *m, const agent *a, const loop_node *n)
{
    if (m->numbers) return !m->numbers->happens || m->numbers->happens(m->numbers->context, n, a->step);
    if (!m->chained) return true;
    int own = m->steps - rounds_of_steps(m, a, LOOPS_OTHERS_STEPS);
    if (n->code == LOOP_WAIT_AHEAD) return a->step + 1 < own;
    return n->code != LOOP_RELEASE || n->number[0] != LOOPS_BEFORE || a->step > 0;
}

static int rounds_of(const machine *m, const agent *a, const loop_node *n)
{
    const loop_numbers *x = m->numbers;
    if (x && n->code == LOOP_CHUNKS) return 0; /* one event for all of it */
    if (x && (n->code == LOOP_STEPS || n->code == LOOP_FOR)) return x->round(x->context, n, -1);
    if (n->code == LOOP_STEPS) return m->chained ? rounds_of_steps(m, a, n->number[1]) : m->steps;
    return n->code == LOOP_CHUNKS ? CHUNKS : n->body ? 1 : 0;
}

static void add_events(machine *m, agent *a, const loop_node *n, int tile);

static void add_tile(machine *m, agent *a, const loop_node *n, int tile)
{
    const loop_numbers *x = m->numbers;
    if (x) x->begin(x->context, tile);
    if (!m->chained) a->step = 0;
    if (a->fills || !takes_turns(m) || tile % m->groups == a->group) {
        add_events(m, a, n->body, tile);
        return;
    }
    for (n = n->body; n && n->code != LOOP_TURN; n = n->next) /* where the other groups leave a tile out */
        if (x) x->scalar(x->context, n);
    if (n) add_event(m, a, n, tile);
}

static void add_events(machine *m, agent *a, const loop_node *n, int tile)
{
    const loop_numbers *x = m->numbers;
    for (; n; n = n->next) {
        if (x) x->scalar(x->context, n);
        int rounds = n->code == LOOP_TILES ? 0 : rounds_of(m, a, n);
        if (has_event(m, a, n)) add_event(m, a, n, tile);
        for (int i = 0; i < rounds; i++) {
            if (x && (n->code == LOOP_STEPS || n->code == LOOP_FOR)) x->round(x->context, n, i);
            add_events(m, a, n->body, tile);
            a->step += n->code == LOOP_STEPS;
        }
        int tiles = n->code != LOOP_TILES ? 0 : x ? x->tiles(x->context) : TILES;
        for (int t = 0; t < tiles; t++) add_tile(m, a, n, t);
    }
}

static void find_steps(machine *m, const loop_node *n)
{
    for (; n; n = n->next) {
        if (n->code == LOOP_STEPS) m->has[n->number[1]] = true;
        find_steps(m, n->body);
    }
}

static agent *add_agent(machine *m, const loop_node *role, bool fills, int group)
{
    agent *a = &m->agents[m->agent_count++];
    *a = (agent){.name = fills ? "fill" : "multiply", .fills = fills, .group = group};
    if (m->numbers && m->numbers->role) m->numbers->role(m->numbers->context, fills, group);
    add_events(m, a, role->body, 0);
    return a;
}

/* ---- what an event does; false: it has to wait ---- */

static int ring_of(const machine *m, const event *e)
{
    if (!m->chained) return 0;
    switch (e->code) {
    case LOOP_WAIT:
    case LOOP_WAIT_AHEAD:
    case LOOP_EXPECT:
    case LOOP_BULK_IN: return e->number[1] < 0 || !m->chained->operands[e->number[1]].moves ? FIXED_RING : e->number[1];
    case LOOP_MATRIX:
        return e->number[0] == LOOPS_SUM ? m->chained->sums[e->number[1]].moving
                                         : m->chained->products[e->number[1]].moving;
    default: return 0;
    }
}

static bool fail(machine *m, const agent *a, const char *what)
{
    const event *e = &a->events[a->at];
    if (!m->why->length)
        text_print(m->why, "%s (%s, stage %d, event %d: %s)", what, a->name, a->rings[ring_of(m, e)].stage, a->at,
                   loop_names[e->code]);
    return true;
}

static int least_released(const machine *m, int ring, int stage)
{
    int least = m->ring[ring][stage].released[0];
    for (int g = 1; g < m->groups && !takes_turns(m); g++)
        if (m->ring[ring][stage].released[g] < least) least = m->ring[ring][stage].released[g];
    return least;
}

static void complete(machine *m, int ring, int stage)
{
    bool by_warps = m->schedule && sched_warps_fill(m->schedule);
    if (!m->ring[ring][stage].told || m->ring[ring][stage].got < m->ring[ring][stage].expected) return;
    if (by_warps && !m->ring[ring][stage].gathered) return;
    m->ring[ring][stage].fills++;
    m->ring[ring][stage].told = m->ring[ring][stage].gathered = false;
    m->ring[ring][stage].expected = m->ring[ring][stage].got = 0;
}

/* The stage is written: nobody may still need what it had. */
static void fill(machine *m, const agent *a, int ring)
{
    const cursor *at = &a->rings[ring];
    if (least_released(m, ring, at->stage) < at->uses[at->stage]) fail(m, a, "a stage is filled before it is released");
    if (m->ring[ring][at->stage].fills > at->uses[at->stage]) fail(m, a, "a stage is filled twice");
    for (int i = 0; i < m->agent_count; i++)
        for (int p = 0; p < m->agents[i].product_count; p++)
            if (m->agents[i].products[p].ring == ring && m->agents[i].products[p].stage == at->stage)
                fail(m, a, "a stage is filled that a product still reads");
}

/* All products but the last `left` are over. */
static void products_over(agent *a, int left)
{
    int done = a->product_count - left;
    if (done <= 0) return;
    memmove(a->products, a->products + done, sizeof(*a->products) * (size_t)left);
    a->product_count = left;
}

/* The first `count` stages that this group asked products of are over, and free again. */
static void release(machine *m, agent *a, int count)
{
    int into = takes_turns(m) ? 0 : a->group;
    for (int i = 0; i < count; i++) m->ring[0][a->products[i].stage].released[into]++;
    products_over(a, a->product_count - count);
}

/* Of chained products: this stage of a ring, or the one before, is free. */
static void release_stage(machine *m, agent *a, int ring, bool before)
{
    cursor *at = &a->rings[ring];
    int stage = before ? (at->stage + m->stages - 1) % m->stages : at->stage;
    if (!before && m->ring[ring][stage].fills <= at->uses[stage]) fail(m, a, "a stage is released before it is full");
    if (!before && !at->waited) fail(m, a, "a stage is released that nobody waited for");
    for (int i = 0; i < a->product_count; i++)
        if (a->products[i].ring == ring && a->products[i].stage == stage)
            fail(m, a, "a stage is released that a product still reads");
    if (m->ring[ring][stage].released[a->group] != at->uses[stage] - before) fail(m, a, "a stage is released twice");
    m->ring[ring][stage].released[a->group]++;
}

static void pass_stage(agent *a, int ring, int stages)
{
    cursor *at = &a->rings[ring];
    at->uses[at->stage]++;
    at->stage = (at->stage + 1) % stages;
    at->waited = false;
}

/* Registers of a product of this kind: nothing may be on its way to them, or be read from them. */
static void use(machine *m, const agent *a, int kind, int number)
{
    for (int i = 0; i < a->product_count; i++)
        if (a->products[i].kind == kind && a->products[i].number == number)
            fail(m, a, "registers are used before their products are over");
}

static bool run_chained(machine *m, agent *a)
{
    const event *e = &a->events[a->at];
    const chained *c = m->chained;
    switch (e->code) {
    case LOOP_RELEASE:
        for (int i = 0; i < c->operand_count; i++)
            if (c->operands[i].moves && (e->number[1] == LOOPS_FIXED || e->number[1] == i))
                release_stage(m, a, i, e->number[0] == LOOPS_BEFORE);
        break;
    case LOOP_RING_NEXT:
        for (int i = 0; i < c->operand_count; i++)
            if (c->operands[i].moves && (e->number[1] == LOOPS_FIXED || e->number[1] == i))
                pass_stage(a, i, e->number[0]);
        break;
    case LOOP_VECTORS:
        fill(m, a, c->products[0].moving);
        m->vectors = true;
        break;
    case LOOP_BARRIER:
        if (e->number[0] == LOOPS_WARP) m->vectors = false;
        a->met = true;
        break;
    case LOOP_MATRIX_WAIT: products_over(a, e->number[0]); break;
    case LOOP_PASS: use(m, a, LOOPS_SCORE, 0); break;
    case LOOP_PAIRS:
        use(m, a, LOOPS_SCORE, e->number[0] ? 1 : 0);
        for (int i = 0; i < c->sum_count; i++)
            if (c->sums[i].late == e->number[0]) use(m, a, LOOPS_SUM, i);
        break;
    case LOOP_PACK:
        use(m, a, LOOPS_SCORE, 0);
        use(m, a, LOOPS_SUM, 0);
        break;
    case LOOP_SCALE: use(m, a, LOOPS_SUM, 0); break;
    case LOOP_OUT:
        use(m, a, LOOPS_SUM, e->number[0]);
        if (!a->met) fail(m, a, "a room is written that other warps of the group still read");
        break;
    case LOOP_OUT_SEND: a->sent[a->sent_count++] = e->number[1]; break;
    case LOOP_OUT_END: a->sent_count = 0; break;
    default: break;
    }
    a->at++;
    return true;
}

static void out_over(agent *a, int left)
{
    if (a->sent_count <= left) return;
    memmove(a->sent, a->sent + a->sent_count - left, sizeof(*a->sent) * (size_t)left);
    a->sent_count = left;
}

static int box_bytes(const machine *m, int operand)
{
    if (m->schedule)
        return (int)(m->schedule->operands[operand].ring.stage_bytes / m->schedule->operands[operand].boxes);
    return (m->chained->operands[operand].moves ? m->chained->columns : m->chained->rows) * SCHED_LINE_BYTES;
}

static bool run_event(machine *m, agent *a)
{
    const event *e = &a->events[a->at];
    const schedule *s = m->schedule;
    int ring = ring_of(m, e), stage = a->rings[ring].stage;
    cursor *at = &a->rings[ring];
    switch (e->code) {
    case LOOP_WAIT:
    case LOOP_WAIT_AHEAD:
        if (a->fills && least_released(m, ring, stage) < at->uses[stage]) return false;
        if (!a->fills && m->ring[ring][stage].fills <= at->uses[stage]) return false;
        at->waited = true;
        break;
    case LOOP_EXPECT:
        fill(m, a, ring);
        if (m->vectors) fail(m, a, "a stage is told of before all lanes have written to it");
        m->ring[ring][stage].expected += e->number[0];
        m->ring[ring][stage].told = true;
        complete(m, ring, stage);
        break;
    case LOOP_BULK_IN:
        fill(m, a, ring);
        m->ring[ring][stage].got += box_bytes(m, e->number[1]);
        complete(m, ring, stage);
        break;
    case LOOP_GATHER:
    case LOOP_TAKE:
        fill(m, a, ring);
        if (m->lag_count == COUNT(m->lagging)) return fail(m, a, "what is gathered is never there");
        m->lagging[m->lag_count++] = stage;
        break;
    case LOOP_FILLED:
    case LOOP_FILLED_LAST: {
        int left = e->code == LOOP_FILLED && sched_copies_ahead(s) ? s->gather.lag : 0, there = m->lag_count - left;
        for (int i = 0; i < there; i++) {
            m->ring[0][m->lagging[i]].gathered = true;
            complete(m, 0, m->lagging[i]);
        }
        if (there > 0) memmove(m->lagging, m->lagging + there, sizeof(int) * (size_t)(m->lag_count - there));
        if (there > 0) m->lag_count -= there;
        break;
    }
    case LOOP_RING_NEXT:
        if (m->chained) return run_chained(m, a);
        pass_stage(a, 0, e->number[0]);
        break;
    case LOOP_TURN:
        if (e->tile % m->groups != a->group) { /* another group's tile: its stages are passed over */
            for (int i = 0; i < e->steps; i++) pass_stage(a, 0, m->stages);
            break;
        }
        break;
    case LOOP_TURN_WAIT:
        if (m->turn < e->tile) return false;
        break;
    case LOOP_TURN_END: m->turn = e->tile + 1; break;
    case LOOP_MATRIX:
        if (!at->waited || m->ring[ring][stage].fills <= at->uses[stage])
            fail(m, a, "a product of a stage that is not full");
        if (m->chained && !a->rings[FIXED_RING].waited) fail(m, a, "a product of fixed rows that are not there");
        if (m->turn < e->tile && takes_turns(m)) fail(m, a, "a product while another group has its turn");
        if (a->product_count == COUNT(a->products)) return fail(m, a, "products that nobody waits for");
        a->products[a->product_count++] = (work){ring, stage, e->number[0], e->number[1]};
        a->met = false;
        break;
    case LOOP_RELEASE:
        if (m->chained) return run_chained(m, a);
        release(m, a, MAXIMUM(a->product_count - (e->number[0] == LOOPS_BEFORE), 0));
        break;
    case LOOP_IN_ASK: a->asked++; break;
    case LOOP_IN_WAIT:
        if (a->asked == a->there) return false; /* for what nobody asked for */
        a->there++;
        break;
    case LOOP_LOAD:
        if (m->chained) break;
        if (e->number[0] == LOOPS_ROOM && a->there < a->asked) fail(m, a, "a tile is read before it is there");
        if (e->number[0] == LOOPS_ROOM && !a->asked) fail(m, a, "a tile is read that nobody asked for");
        break;
    case LOOP_ADD_SUMS:
    case LOOP_CHUNKS:
    case LOOP_OUT:
        if (m->chained) return run_chained(m, a);
        if (a->product_count) fail(m, a, "sums are read before their products are over");
        for (int i = 0; i < a->sent_count; i++)
            if (e->code == LOOP_OUT && a->sent[i] == a->buffer)
                fail(m, a, "a buffer is written that a copy still reads");
        break;
    case LOOP_OUT_WAIT:
        if (e->number[1]) out_over(a, e->number[0]);
        break;
    case LOOP_OUT_SEND:
        if (m->chained) return run_chained(m, a);
        if (!e->number[1]) break;
        if (a->sent_count == COUNT(a->sent)) return fail(m, a, "copies out that nobody waits for");
        a->sent[a->sent_count++] = a->buffer;
        a->buffer = (a->buffer + 1) % MAXIMUM(s->out_buffers, 1);
        break;
    case LOOP_OUT_END: out_over(a, 0); break;
    default:
        if (m->chained) return run_chained(m, a);
        break;
    }
    a->at++;
    return true;
}

static bool run_one(machine *m, agent *a)
{
    const event *e = &a->events[a->at];
    const loop_numbers *x = m->numbers;
    int stage = a->rings[ring_of(m, e)].stage;
    if (!run_event(m, a)) return false;
    if (x && !m->why->length) x->run(x->context, e->node, a->group, stage, e->noted);
    return true;
}

static void run_all(machine *m, int preferred)
{
    for (bool moved = true; moved && !m->why->length;) {
        moved = false;
        for (int i = 0; i < m->agent_count && !m->why->length; i++) {
            agent *a = &m->agents[(i + preferred) % m->agent_count];
            while (a->at < a->count && !m->why->length && run_one(m, a)) moved = true;
            if (moved) break; /* who is preferred goes first again */
        }
    }
    for (int i = 0; i < m->agent_count; i++) {
        const agent *a = &m->agents[i];
        if (a->at < a->count) fail(m, a, "this role waits for ever");
        if (m->why->length) return;
        if (a->sent_count) text_print(m->why, "a group ends with a copy out on its way");
        if (a->product_count) text_print(m->why, "a group ends with products on their way");
    }
}

bool loops_check_on(const loop_program *p, const loop_numbers *numbers, arena *memory, text *why)
{
    const schedule *s = p->schedule;
    const loop_node *roles[2] = {NULL, NULL};
    for (const loop_node *n = p->first; n; n = n->next)
        if (n->code == LOOP_ROLE) roles[n->number[0] != 0] = n;
    int stages = s ? s->choice.stages : p->chained->stages, groups = s ? s->choice.groups : p->chained->groups;
    CHECK(!why->length && stages <= MOST_STAGES && groups < MOST_AGENTS);
    if (!roles[0] || !roles[1]) {
        text_add(why, "a role is missing");
        return false;
    }
    machine *begin = ARENA_NEW(memory, machine), *m = ARENA_NEW(memory, machine);
    *begin = (machine){.schedule = s, .chained = p->chained, .numbers = numbers, .memory = memory, .why = why};
    begin->groups = groups;
    begin->stages = stages;
    begin->steps = s ? stages + 1 : 1 + LOOPS_OTHERS_STEPS * (stages + 1);
    if (p->chained) find_steps(begin, roles[1]);
    add_agent(begin, roles[0], true, 0);
    for (int g = 0; g < groups; g++) add_agent(begin, roles[1], false, g);
    for (int preferred = 0; preferred < groups + 1 && !why->length; preferred++) {
        if (numbers && preferred != numbers->preferred) continue;
        *m = *begin;
        run_all(m, preferred);
    }
    return !why->length;
}

bool loops_check(const loop_program *p, arena *memory, text *why)
{
    return loops_check_on(p, NULL, memory, why);
}
