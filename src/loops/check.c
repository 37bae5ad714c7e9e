/*
 * The order of a loop program, run: whether its waits and releases are enough. In: a program. Out: true, or what goes wrong.
 *
 * The roles run side by side on no numbers at all: three tiles, a few more steps than the ring has stages, three chunks of
 * each tile. What works in the background is as late as it may be: a copy has landed when its stage is waited for, a
 * product and a copy out are over when a release or a wait says so. A stage that is filled while somebody still reads it, a
 * product of a stage that is not full, a buffer written while a copy reads it, roles that wait for ever: each is told.
 * What each node says about order is here, and nothing of how it is printed, so that a printer, emu and this are three
 * opinions. Each schedule of turns between the roles is tried that prefers one of them.
 * SPDX-License-Identifier: MIT
 */
#include "loops/loops.h"

#include <string.h>

enum { TILES = 3, CHUNKS = 3, MOST_AGENTS = 5, MOST_STAGES = 16, MOST_EVENTS = 6000, MOST_BUFFERS = 8 };

typedef struct event {
    loop_code code;
    int number[2], tile;
} event;

typedef struct agent { /* a role, or one group of the warps that multiply */
    const char *name;
    bool fills;
    int group;
    event *events;
    int count, at;
    int stage, uses[MOST_STAGES];                   /* of each stage: how often it was passed */
    bool waited;                                    /* for this use of the stage */
    int products[MOST_STAGES], product_count, done; /* stages asked for and not released; how many of them are over */
    int asked, there; /* tiles that the epilogue loads: how often it asked for them, how often it saw them there */
    int buffer, sent[MOST_BUFFERS], sent_count; /* copies out on their way, by buffer */
} agent;

typedef struct machine {
    const schedule *schedule;
    arena *memory;
    agent agents[MOST_AGENTS];
    int agent_count, groups, stages, steps;
    struct {
        int expected, got;
        bool told, gathered; /* of the fill at hand; gathered: or taken */
        int fills;           /* that are complete */
        int released[MOST_AGENTS];
    } ring[MOST_STAGES];
    int lagging[MOST_STAGES + 2], lag_count; /* stages whose gathered part is on its way */
    int turn;                                /* the tile whose group may ask for products */
    text *why;
} machine;

/* ---- the events of an agent, in order ---- */

static void add_event(agent *a, const loop_node *n, int tile)
{
    CHECK(a->count < MOST_EVENTS);
    a->events[a->count++] = (event){n->code, {n->number[0], n->number[1]}, tile};
}

static void add_events(machine *m, agent *a, const loop_node *n, int tile)
{
    for (; n; n = n->next) {
        int rounds = n->code == LOOP_STEPS ? m->steps : n->code == LOOP_CHUNKS ? CHUNKS : n->body ? 1 : 0;
        if (!n->body) add_event(a, n, tile);
        if (n->code != LOOP_TILES)
            for (int i = 0; i < rounds; i++) add_events(m, a, n->body, tile);
        for (int t = 0; n->code == LOOP_TILES && t < TILES; t++) {
            bool own = a->fills || !m->schedule->choice.turns || t % m->groups == a->group;
            const loop_node *turn = n->body;
            while (turn && turn->code != LOOP_TURN) turn = turn->next;
            if (own)
                add_events(m, a, n->body, t);
            else if (turn) /* where the other groups leave a tile out */
                add_event(a, turn, t);
        }
    }
}

static agent *add_agent(machine *m, const loop_node *role, bool fills, int group)
{
    agent *a = &m->agents[m->agent_count++];
    *a = (agent){.name = fills ? "fill" : "multiply", .fills = fills, .group = group};
    a->events = ARENA_ARRAY(m->memory, event, MOST_EVENTS);
    add_events(m, a, role->body, 0);
    return a;
}

/* ---- what an event does; false: it has to wait ---- */

static bool fail(machine *m, const agent *a, const char *what)
{
    if (!m->why->length)
        text_print(m->why, "%s (%s, stage %d, event %d: %s)", what, a->name, a->stage, a->at,
                   loop_names[a->events[a->at].code]);
    return true;
}

static int least_released(const machine *m, int stage)
{
    int least = m->ring[stage].released[0];
    for (int g = 1; g < m->groups && !m->schedule->choice.turns; g++)
        if (m->ring[stage].released[g] < least) least = m->ring[stage].released[g];
    return least;
}

static void complete(machine *m, int stage)
{
    bool by_warps = sched_warps_fill(m->schedule);
    if (!m->ring[stage].told || m->ring[stage].got < m->ring[stage].expected) return;
    if (by_warps && !m->ring[stage].gathered) return;
    m->ring[stage].fills++;
    m->ring[stage].told = m->ring[stage].gathered = false;
    m->ring[stage].expected = m->ring[stage].got = 0;
}

/* The stage is written: nobody may still need what it had. */
static void fill(machine *m, const agent *a)
{
    if (least_released(m, a->stage) < a->uses[a->stage]) fail(m, a, "a stage is filled before it is released");
    if (m->ring[a->stage].fills > a->uses[a->stage]) fail(m, a, "a stage is filled twice");
    for (int i = 0; i < m->agent_count; i++)
        for (int p = m->agents[i].done; p < m->agents[i].product_count; p++)
            if (m->agents[i].products[p] == a->stage) fail(m, a, "a stage is filled that a product still reads");
}

/* The first `count` stages that this group asked products of are free again. */
static void release(machine *m, agent *a, int count)
{
    int into = m->schedule->choice.turns ? 0 : a->group;
    for (int i = 0; i < count; i++) m->ring[a->products[i]].released[into]++;
    memmove(a->products, a->products + count, sizeof(*a->products) * (size_t)(a->product_count - count));
    a->product_count -= count;
    a->done = 0;
}

static void pass_stage(const machine *m, agent *a, int stages)
{
    a->uses[a->stage]++;
    a->stage = (a->stage + 1) % stages;
    a->waited = false;
    (void)m;
}

static void out_over(agent *a, int left)
{
    if (a->sent_count <= left) return;
    memmove(a->sent, a->sent + a->sent_count - left, sizeof(*a->sent) * (size_t)left);
    a->sent_count = left;
}

static bool run_event(machine *m, agent *a)
{
    const event *e = &a->events[a->at];
    const schedule *s = m->schedule;
    int stage = a->stage;
    switch (e->code) {
    case LOOP_WAIT:
        if (a->fills && least_released(m, stage) < a->uses[stage]) return false;
        if (!a->fills && m->ring[stage].fills <= a->uses[stage]) return false;
        a->waited = true;
        break;
    case LOOP_EXPECT:
        fill(m, a);
        m->ring[stage].expected += e->number[0];
        m->ring[stage].told = true;
        complete(m, stage);
        break;
    case LOOP_BULK_IN:
        fill(m, a);
        m->ring[stage].got += (int)(s->operands[e->number[1]].ring.stage_bytes / s->operands[e->number[1]].boxes);
        complete(m, stage);
        break;
    case LOOP_GATHER:
    case LOOP_TAKE:
        fill(m, a);
        if (m->lag_count == COUNT(m->lagging)) return fail(m, a, "what is gathered is never there");
        m->lagging[m->lag_count++] = stage;
        break;
    case LOOP_FILLED:
    case LOOP_FILLED_LAST: {
        int left = e->code == LOOP_FILLED && sched_copies_ahead(s) ? s->gather.lag : 0, there = m->lag_count - left;
        for (int i = 0; i < there; i++) {
            m->ring[m->lagging[i]].gathered = true;
            complete(m, m->lagging[i]);
        }
        if (there > 0) memmove(m->lagging, m->lagging + there, sizeof(int) * (size_t)(m->lag_count - there));
        if (there > 0) m->lag_count -= there;
        break;
    }
    case LOOP_RING_NEXT: pass_stage(m, a, e->number[0]); break;
    case LOOP_TURN:
        if (e->tile % m->groups != a->group) { /* another group's tile: its stages are passed over */
            for (int i = 0; i < m->steps; i++) pass_stage(m, a, m->stages);
            break;
        }
        break;
    case LOOP_TURN_WAIT:
        if (m->turn < e->tile) return false;
        break;
    case LOOP_TURN_END: m->turn = e->tile + 1; break;
    case LOOP_MATRIX:
        if (!a->waited || m->ring[stage].fills <= a->uses[stage]) fail(m, a, "a product of a stage that is not full");
        if (m->turn < e->tile && s->choice.turns) fail(m, a, "a product while another group has its turn");
        if (a->product_count == COUNT(a->products)) return fail(m, a, "products that nobody waits for");
        a->products[a->product_count++] = stage;
        break;
    case LOOP_RELEASE:
        a->done = e->number[0] == LOOPS_BEFORE ? a->product_count - 1 : a->product_count;
        release(m, a, MAXIMUM(a->done, 0));
        break;
    case LOOP_IN_ASK: a->asked++; break;
    case LOOP_IN_WAIT:
        if (a->asked == a->there) return false; /* for what nobody asked for */
        a->there++;
        break;
    case LOOP_LOAD:
        if (e->number[0] == LOOPS_ROOM && a->there < a->asked) fail(m, a, "a tile is read before it is there");
        if (e->number[0] == LOOPS_ROOM && !a->asked) fail(m, a, "a tile is read that nobody asked for");
        break;
    case LOOP_ADD_SUMS:
    case LOOP_CHUNKS:
    case LOOP_OUT:
        if (a->product_count) fail(m, a, "sums are read before their products are over");
        for (int i = 0; i < a->sent_count; i++)
            if (e->code == LOOP_OUT && a->sent[i] == a->buffer)
                fail(m, a, "a buffer is written that a copy still reads");
        break;
    case LOOP_OUT_WAIT:
        if (e->number[1]) out_over(a, e->number[0]);
        break;
    case LOOP_OUT_SEND:
        if (!e->number[1]) break;
        if (a->sent_count == COUNT(a->sent)) return fail(m, a, "copies out that nobody waits for");
        a->sent[a->sent_count++] = a->buffer;
        a->buffer = (a->buffer + 1) % MAXIMUM(s->out_buffers, 1);
        break;
    case LOOP_OUT_END: out_over(a, 0); break;
    default: break;
    }
    a->at++;
    return true;
}

static void run_all(machine *m, int preferred)
{
    for (bool moved = true; moved && !m->why->length;) {
        moved = false;
        for (int i = 0; i < m->agent_count && !m->why->length; i++) {
            agent *a = &m->agents[(i + preferred) % m->agent_count];
            while (a->at < a->count && !m->why->length && run_event(m, a)) moved = true;
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

bool loops_check(const loop_program *p, arena *memory, text *why)
{
    const schedule *s = p->schedule;
    const loop_node *roles[2] = {NULL, NULL};
    for (const loop_node *n = p->first; n; n = n->next)
        if (n->code == LOOP_ROLE) roles[n->number[0] != 0] = n;
    size_t before = why->length;
    CHECK(!before && s->choice.stages <= MOST_STAGES && s->choice.groups < MOST_AGENTS);
    if (!roles[0] || !roles[1]) {
        text_add(why, "a role is missing");
        return false;
    }
    int agents = s->choice.groups + 1;
    for (int preferred = 0; preferred < agents && !why->length; preferred++) {
        machine *m = ARENA_NEW(memory, machine);
        *m = (machine){.schedule = s, .memory = memory, .why = why};
        m->groups = s->choice.groups;
        m->stages = s->choice.stages;
        m->steps = s->choice.stages + 1;
        add_agent(m, roles[0], true, 0);
        for (int g = 0; g < m->groups; g++) add_agent(m, roles[1], false, g);
        run_all(m, preferred);
    }
    return !why->length;
}
