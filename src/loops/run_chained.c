/*
 * Chained products, run on numbers. In: a program (loops/chained.c), arrays and a launch. Out: what it writes, or what is wrong
 * with its order (loops/check.c, which calls back from here).
 *
 * A block a program. As late as the program allows: copies land when their stage is waited for, products read their stage and
 * weights, and write scores or sums, when a wait says that they are over. Values of a pass are computed in the order of its
 * nodes, for one score after the other; who names one that no node has computed yet gets no number.
 * SPDX-License-Identifier: MIT
 */
#include "loops/run.h"
#include "loops/worker.h"

#include <math.h>

enum { MOST_PENDING = 64, MOST_GROUPS = 4, GROUP_ROWS = 64, BOX = 64 };

typedef struct pending_product {
    int group, stage, kind, number;
    bool adds;
} pending_product;

typedef struct chained_group {             /* registers of a group of warps */
    double *scores[CHAINED_MOST_PRODUCTS]; /* [row][column] */
    double *weights[CHAINED_MOST_SUMS];
    double *sums[CHAINED_MOST_SUMS]; /* [row][element] */
    double **rows;                   /* by value: one number a fixed row; NULL: none so far */
    bool **truths;                   /* by value: one a score, drawn before the pass; NULL: none so far */
    bool adds;
} chained_group;

typedef struct chained_sim {
    sim sim;
    const chained *c;
    double *rooms[CHAINED_MOST_OPERANDS]; /* [row][depth], of moving ones [stage][row][depth] */
    chained_group groups[MOST_GROUPS];
    sim_copy copies[MOST_PENDING];
    pending_product products[MOST_PENDING];
    int copy_count, product_count;
    int group;                                         /* whose loops are unrolled, or whose node runs */
    int64_t next, base, whole, whole_from, end, limit; /* steps of that group */
    bool late;
    int row, column;
    cell *elements; /* by value: of the pass at hand */
} chained_sim;

/* ---- as the roles' loops are unrolled ---- */

static void begin_role(void *context, bool fills, int group)
{
    chained_sim *m = context;
    m->group = group;
    m->next = 0;
}

/* Where an upper condition ends for the group, or where a lower one begins. */
static int64_t edge_of(const chained_sim *m, const chained_condition *q, bool last)
{
    const cell *x = m->sim.scalars;
    if (q->limit) return x[q->limit].i;
    bool closed = q->compare == OP_LE || q->compare == OP_GT;
    return x[q->fixed].i + m->group * GROUP_ROWS + q->more + closed + (last ? GROUP_ROWS - 1 : 0);
}

static void compute_scalar(void *context, const loop_node *n)
{
    chained_sim *m = context;
    const chained *c = m->c;
    cell *x = m->sim.scalars;
    if ((n->code == LOOP_LET || n->code == LOOP_LOAD) && n->number[0] == LOOPS_SCALAR) {
        if (n->op->code == OP_LOAD)
            sim_access(&m->sim, n->op);
        else
            sim_scalar(&m->sim, n->op);
    }
    if (n->code == LOOP_SCORES_BEGIN) {
        m->next = x[c->loop->operands[0]].i;
        m->end = m->limit = x[c->loop->operands[1]].i;
    }
    if (n->code == LOOP_RANGE) {
        m->whole = m->limit;
        m->whole_from = m->next;
        for (int i = 0; i < c->condition_count; i++) {
            const chained_condition *q = &c->conditions[i];
            bool below = q->limit || q->compare == OP_LT || q->compare == OP_LE;
            int64_t edge = edge_of(m, q, !below);
            if (below && edge < m->whole) m->whole = edge;
            if (!below && edge > m->whole_from) m->whole_from = edge;
        }
    }
    if (n->code != LOOP_RANGE_END) return;
    if (n->number[0] != LOOPS_FIXED)
        m->end = MINIMUM(m->end, edge_of(m, &c->conditions[n->number[0]], true));
    else if (x[c->fixed_start].i + m->group * GROUP_ROWS >= x[c->fixed_limit].i)
        m->end = 0;
}

static int begin_round(void *context, const loop_node *n, int round)
{
    chained_sim *m = context;
    cell *x = m->sim.scalars;
    int64_t step = n->number[0], first = x[n->op->operands[0]].i, last = x[n->op->operands[1]].i;
    if (round < 0) {
        int64_t at = n->number[1] == LOOPS_ALL_STEPS || n->number[1] == LOOPS_FIRST_STEP ? first : m->next;
        m->base = at;
        switch (n->number[1]) {
        case LOOPS_ALL_STEPS: at += last > at ? (last - at + step - 1) / step * step : 0; break;
        case LOOPS_FIRST_STEP: at += step; break;
        case LOOPS_LOWER_STEPS:
            while (at < m->end && at < m->whole_from) at += step;
            break;
        case LOOPS_WHOLE_STEPS:
            while (at < m->end && at + step <= m->whole) at += step;
            break;
        case LOOPS_LAST_STEPS:
            while (at < m->end) at += step;
            break;
        default:
            while (at < m->limit) at += step;
        }
        m->next = at;
        return (int)((at - m->base) / step);
    }
    x[n->op->regions[0]->args[0]].i = m->base + round * step;
    return 0;
}

static bool happens(void *context, const loop_node *n, int step)
{
    const chained_sim *m = context;
    if (n->code == LOOP_RELEASE && n->number[0] == LOOPS_BEFORE) return step > 0;
    if (n->code != LOOP_WAIT_AHEAD) return true;
    return m->sim.scalars[n->op->regions[0]->args[0]].i + m->c->columns < m->end;
}

static void *note(void *context, const loop_node *n, bool first)
{
    chained_sim *m = context;
    (void)first;
    if (n->code == LOOP_BULK_IN) return sim_note_copy(&m->sim, n);
    bool values = n->code == LOOP_LET || n->code == LOOP_LOAD || n->code == LOOP_PASS || n->code == LOOP_PAIRS ||
                  n->code == LOOP_CARRY || n->code == LOOP_STORE || n->code == LOOP_OUT || n->code == LOOP_TRUTHS;
    if (!values) return NULL;
    int count = m->c->kernel->value_count;
    cell *scalars = ARENA_ARRAY(m->sim.memory, cell, count);
    for (int v = 0; v < count; v++) scalars[v] = m->sim.scalars[v];
    return scalars;
}

/* ---- values ---- */

static double *row_of(chained_sim *m, value v)
{
    double **rows = m->groups[m->group].rows;
    if (!rows[v]) rows[v] = ARENA_ARRAY(m->sim.memory, double, GROUP_ROWS);
    return rows[v];
}

static bool holds(const chained_sim *m, unsigned conditions)
{
    const cell *x = m->sim.scalars;
    bool all = true;
    for (int i = 0; i < m->c->condition_count; i++) {
        const chained_condition *q = &m->c->conditions[i];
        if (!(conditions >> i & 1)) continue;
        int64_t at = x[q->moving].i + m->column;
        int64_t other = q->limit ? x[q->limit].i : x[q->fixed].i + m->group * GROUP_ROWS + m->row + q->more;
        all &= q->limit || q->compare == OP_LT ? at < other
               : q->compare == OP_LE           ? at <= other
               : q->compare == OP_GT           ? at > other
                                               : at >= other;
    }
    return all;
}

/* An element of an array, at this row and column. */
static cell loaded(chained_sim *m, const tile_op *op)
{
    const chained *c = m->c;
    tile_type type = tile_type_of(c->kernel, op->results[0]);
    place own = place_own(&type);
    int moving = c->turned ? 0 : 1;
    chained_kind kind = chained_kind_of(c, op->results[0]);
    for (int i = 0; i < type.rank; i++) {
        bool column = kind == CHAINED_MOVING || (kind == CHAINED_SCORE && i == moving);
        if (own.axis[i] != NO_AXIS)
            m->sim.position[(int)own.axis[i]] = column ? m->column : m->group * GROUP_ROWS + m->row;
    }
    return sim_load(&m->sim, op);
}

static cell element(chained_sim *m, value v)
{
    const chained *c = m->c;
    const chained_group *g = &m->groups[m->group];
    const tile_op *op = tile_def(c->kernel, v);
    int at = m->row * c->columns + m->column, axis;
    value start;
    int64_t more;
    if (v == c->products[0].dot->results[0] || (m->late && v == c->cut)) return (cell){.f = g->scores[0][at]};
    if (c->product_count > 1 && v == c->products[1].dot->results[0]) return (cell){.f = g->scores[1][at]};
    for (int i = 0; i < c->sum_count; i++)
        if (v == c->loop->results[c->sums[i].carried])
            return (cell){.f = g->sums[i][m->row * c->sums[i].width + m->column] * c->sums[i].factor};
    for (int i = 0; i < c->vector_count; i++)
        if (v == c->vectors[i]->results[0]) return loaded(m, c->vectors[i]);
    if (g->truths[v]) return (cell){.i = g->truths[v][at]};
    chained_kind kind = chained_kind_of(c, v);
    if (kind == CHAINED_SCALAR) return m->sim.scalars[v];
    if (chained_is_place(c, v)) {
        chained_find_position(c, v, &axis, &start, &more);
        bool column = axis == (c->turned ? 0 : 1);
        return (cell){.i = m->sim.scalars[start].i + more + (column ? m->column : m->group * GROUP_ROWS + m->row)};
    }
    bool whole = chained_is_truth(c, v) || dtype_is_integer(tile_type_of(c->kernel, v).elem);
    if (kind == CHAINED_FIXED && !whole && g->rows[v]) return (cell){.f = g->rows[v][m->row]};
    if (kind == CHAINED_FIXED && !whole && op) return element(m, op->operands[0]);
    if (op && (op->code == OP_BROADCAST || op->code == OP_RESHAPE)) return element(m, op->operands[0]);
    return m->elements[v];
}

static double scalar_of(const chained_sim *m, const loop_element *e)
{
    return e->scalar ? m->sim.scalars[e->scalar].f : 1;
}

static cell computed(chained_sim *m, const loop_node *n)
{
    static const double log2_of_e = 1.44269504088896340736;
    const loop_element *e = n->element;
    const tile_op *op = n->op;
    const tile_kernel *k = m->c->kernel;
    cell x[3] = {{0}};
    switch (n->number[0]) {
    case LOOPS_POWER:
        if (!holds(m, e->conditions)) return (cell){.f = 0};
        return (cell){.f = exp2(element(m, e->x).f * e->factor * scalar_of(m, e) - element(m, e->below).f * log2_of_e)};
    case LOOPS_MASKED: return element(m, holds(m, e->conditions) ? e->x : e->below);
    case LOOPS_SAME: return element(m, op->operands[0]);
    case LOOPS_LAGGING: {
        value carried = m->c->loop->regions[0]->args[1 + m->c->slack_carried];
        cell old = element(m, carried), step = element(m, op->operands[op->operands[0] == carried]);
        return step.f > old.f + CHAINED_SLACK ? step : old;
    }
    default: break;
    }
    if (op->code == OP_BROADCAST || op->code == OP_RESHAPE) return element(m, op->operands[0]);
    for (int i = 0; i < op->operand_count && i < 3; i++) x[i] = element(m, op->operands[i]);
    return sim_apply(op, tile_type_of(k, op->operands[0]).elem, tile_type_of(k, op->results[0]).elem, x);
}

/* Does a maximum leave its scalar behind the fold? */
static bool is_behind(const chained_sim *m, const loop_element *e)
{
    double scalar = scalar_of(m, e);
    return e->scalar && scalar > 0 && isfinite(scalar);
}

static void fold(chained_sim *m, const loop_node *n)
{
    double *to = &row_of(m, n->op->results[0])[m->row];
    double x = holds(m, n->element->conditions) ? element(m, n->element->x).f : -INFINITY;
    if (n->element->scalar && !is_behind(m, n->element)) x *= scalar_of(m, n->element);
    switch (n->op->attr.fold) {
    case FOLD_SUM: *to += x; break;
    case FOLD_MAX: *to = fmax(*to, x); break;
    case FOLD_MIN: *to = fmin(*to, x); break;
    case FOLD_PROD: *to *= x; break;
    default: CHECK(!"a fold that is not chained");
    }
}

/* One position of a pass: its nodes in order. */
static void run_body(chained_sim *m, const loop_node *n)
{
    chained_group *g = &m->groups[m->group];
    int at = m->row * m->c->columns + m->column;
    for (; n; n = n->next) {
        if (n->code == LOOP_LET && n->number[0] != LOOPS_SCALAR) m->elements[n->op->results[0]] = computed(m, n);
        if (n->code == LOOP_LOAD) m->elements[n->op->results[0]] = loaded(m, n->op);
        if (n->code == LOOP_FOLD) fold(m, n);
        if (n->code != LOOP_KEEP) continue;
        cell x = element(m, n->operand);
        if (n->number[0] >= 0) math_round(m->c->elem, 1, &x);
        (n->number[0] >= 0 ? g->weights[n->number[0]] : g->scores[0])[at] = x.f;
    }
}

static void run_pass(chained_sim *m, const loop_node *n)
{
    m->late = n->code == LOOP_PAIRS && n->number[0];
    for (m->row = 0; m->row < GROUP_ROWS; m->row++)
        for (m->column = 0; m->column < m->c->columns; m->column++) run_body(m, n->body);
    m->late = false;
}

/* A truth of each score, kept until the pass that takes it. */
static void draw_truths(chained_sim *m, const loop_node *n)
{
    value v = n->op->results[0];
    bool *to = ARENA_ARRAY(m->sim.memory, bool, GROUP_ROWS * m->c->columns);
    m->groups[m->group].truths[v] = NULL;
    for (m->row = 0; m->row < GROUP_ROWS; m->row++)
        for (m->column = 0; m->column < m->c->columns; m->column++) {
            run_body(m, n->body);
            to[m->row * m->c->columns + m->column] = element(m, v).i != 0;
        }
    m->groups[m->group].truths[v] = to;
}

/* ---- copies and products ---- */

static double *stage_of(chained_sim *m, int operand, int stage)
{
    const chained_operand *o = &m->c->operands[operand];
    return m->rooms[operand] + (o->moves ? (int64_t)stage * m->c->columns * o->depth : 0);
}

static void land(chained_sim *m, const sim_copy *p)
{
    const chained_operand *o = &m->c->operands[p->operand];
    const array_view *array = &m->sim.arrays[o->load->attr.access.array];
    int lines = o->moves ? m->c->columns : m->c->rows, rank = array->rank;
    for (int line = 0; line < lines; line++)
        for (int i = p->box * BOX; i < (p->box + 1) * BOX && i < o->depth; i++) {
            int64_t offset = 0;
            bool inside = true;
            for (int axis = 0; axis < rank; axis++) {
                int64_t at = axis == rank - 1 ? i : p->start[axis] + (axis == rank - 2 ? line : 0);
                inside &= at >= 0 && at < array->extents[axis];
                offset += at * array->strides[axis];
            }
            cell x = {0};
            if (inside) x = cell_read(array->elem, (char *)array->data + offset * dtypes[array->elem].size_bytes);
            stage_of(m, p->operand, p->stage)[(int64_t)line * o->depth + i] = x.f;
        }
}

static void land_all(chained_sim *m, int operand, int stage)
{
    int kept = 0;
    for (int i = 0; i < m->copy_count; i++) {
        bool moves = m->c->operands[m->copies[i].operand].moves;
        if (operand < 0 ? !moves : m->copies[i].operand == operand && m->copies[i].stage == stage)
            land(m, &m->copies[i]);
        else
            m->copies[kept++] = m->copies[i];
    }
    m->copy_count = kept;
}

static void multiply(chained_sim *m, const pending_product *p)
{
    const chained *c = m->c;
    chained_group *g = &m->groups[p->group];
    for (int row = 0; row < GROUP_ROWS; row++) {
        if (p->kind == LOOPS_SCORE) {
            const chained_product *of = &c->products[p->number];
            int depth = c->operands[of->fixed].depth, other = c->operands[of->moving].depth;
            const double *x = m->rooms[of->fixed] + (int64_t)(p->group * GROUP_ROWS + row) * depth;
            for (int column = 0; column < c->columns; column++) {
                const double *y = stage_of(m, of->moving, p->stage) + (int64_t)column * other;
                double sum = 0;
                for (int i = 0; i < depth; i++) sum += x[i] * y[i];
                g->scores[p->number][row * c->columns + column] = sum;
            }
            continue;
        }
        const chained_sum *of = &c->sums[p->number];
        int depth = c->operands[of->moving].depth;
        for (int i = 0; i < of->width; i++) {
            double sum = p->adds ? g->sums[p->number][row * of->width + i] : 0;
            for (int column = 0; column < c->columns; column++)
                sum += g->weights[p->number][row * c->columns + column] *
                       stage_of(m, of->moving, p->stage)[(int64_t)column * depth + i];
            g->sums[p->number][row * of->width + i] = sum;
        }
    }
}

static void products_over(chained_sim *m, int left)
{
    int own = 0, kept = 0;
    for (int i = 0; i < m->product_count; i++) own += m->products[i].group == m->group;
    for (int i = 0; i < m->product_count; i++) {
        const pending_product p = m->products[i];
        if (p.group == m->group && own-- > left)
            multiply(m, &p);
        else
            m->products[kept++] = p;
    }
    m->product_count = kept;
}

/* ---- as they run ---- */

static void run_rows(chained_sim *m, const loop_node *n)
{
    value v = n->code == LOOP_CARRY ? n->op->regions[0]->args[1 + n->number[0]] : n->op->results[0];
    double numbers[GROUP_ROWS];
    m->column = 0;
    for (m->row = 0; m->row < GROUP_ROWS; m->row++)
        numbers[m->row] = n->code == LOOP_CARRY  ? element(m, n->op->operands[3 + n->number[0]]).f
                          : n->code == LOOP_LOAD ? loaded(m, n->op).f
                                                 : computed(m, n).f;
    for (int row = 0; row < GROUP_ROWS; row++) row_of(m, v)[row] = numbers[row];
}

static void store(chained_sim *m, const loop_node *n, int width)
{
    tile_type type = tile_type_of(m->c->kernel, n->op->operands[0]);
    place own = place_own(&type);
    for (m->row = 0; m->row < GROUP_ROWS; m->row++)
        for (m->column = 0; m->column < width; m->column++) {
            run_body(m, n->body);
            cell x = element(m, n->operand);
            int row = m->group * GROUP_ROWS + m->row;
            for (int i = 0; i < type.rank; i++)
                if (own.axis[i] != NO_AXIS)
                    m->sim.position[(int)own.axis[i]] = i == type.rank - 1 && n->code == LOOP_OUT ? m->column : row;
            sim_store_number(&m->sim, n->op, x);
        }
}

static void run_node(void *context, const loop_node *n, int group, int stage, void *noted)
{
    chained_sim *m = context;
    const chained *c = m->c;
    chained_group *g = &m->groups[group];
    m->group = group;
    if (noted && n->code != LOOP_BULK_IN) m->sim.scalars = noted;
    switch (n->code) {
    case LOOP_BULK_IN:
        CHECK(m->copy_count < MOST_PENDING);
        m->copies[m->copy_count] = *(const sim_copy *)noted;
        m->copies[m->copy_count++].stage = stage;
        break;
    case LOOP_WAIT_AHEAD:
    case LOOP_WAIT:
        if (n->code == LOOP_WAIT_AHEAD || !n->number[0]) land_all(m, n->number[1], stage);
        break;
    case LOOP_MATRIX:
        CHECK(m->product_count < MOST_PENDING);
        m->products[m->product_count++] = (pending_product){group, stage, n->number[0], n->number[1], g->adds};
        break;
    case LOOP_MATRIX_WAIT: products_over(m, n->number[0]); break;
    case LOOP_SUMS_ADD: g->adds = true; break;
    case LOOP_LET:
    case LOOP_LOAD:
        if (n->number[0] == LOOPS_ROW || n->number[0] == LOOPS_LAGGING) run_rows(m, n);
        break;
    case LOOP_CARRY: run_rows(m, n); break;
    case LOOP_FOLD_BEGIN:
        for (int row = 0; row < GROUP_ROWS; row++)
            row_of(m, n->op->results[0])[row] = fold_identity(n->op->attr.fold, DT_F32).f;
        break;
    case LOOP_FOLD_END:
        for (int row = 0; row < GROUP_ROWS && n->element; row++) {
            row_of(m, n->operand)[row] *= n->element->factor;
            if (is_behind(m, n->element)) row_of(m, n->operand)[row] *= scalar_of(m, n->element);
        }
        break;
    case LOOP_PASS:
    case LOOP_PAIRS: run_pass(m, n); break;
    case LOOP_TRUTHS: draw_truths(m, n); break;
    case LOOP_YIELD:
        for (int row = 0; row < GROUP_ROWS; row++)
            row_of(m, c->loop->regions[0]->args[1 + n->number[0]])[row] = row_of(m, n->op->operands[n->number[0]])[row];
        break;
    case LOOP_RESULT:
        for (int row = 0; row < GROUP_ROWS; row++)
            row_of(m, n->op->results[n->number[0]])[row] = row_of(m, n->op->regions[0]->args[1 + n->number[0]])[row];
        break;
    case LOOP_PACK:
        for (int i = 0; i < GROUP_ROWS * c->columns; i++) {
            cell x = {.f = g->scores[0][i]};
            math_round(c->elem, 1, &x);
            g->weights[0][i] = x.f;
        }
        break;
    case LOOP_SCALE:
        for (int i = 0; i < GROUP_ROWS * c->sums[0].width; i++)
            g->sums[0][i] *= row_of(m, n->operand)[i / c->sums[0].width];
        break;
    case LOOP_STORE: store(m, n, 1); break;
    case LOOP_OUT: store(m, n, c->sums[n->number[0]].width); break;
    default: break;
    }
}

static double *registers(arena *memory, int64_t count)
{
    double *x = ARENA_ARRAY(memory, double, count);
    for (int64_t i = 0; i < count; i++) x[i] = NAN;
    return x;
}

static void run_program(chained_sim *m, const loop_program *p, int preferred)
{
    const chained *c = m->c;
    arena *memory = m->sim.memory;
    for (int i = 0; i < c->operand_count; i++) {
        const chained_operand *o = &c->operands[i];
        m->rooms[i] = registers(memory, (int64_t)(o->moves ? c->stages * c->columns : c->rows) * o->depth);
    }
    for (int group = 0; group < c->groups; group++) {
        chained_group *g = &m->groups[group];
        g->adds = false;
        g->rows = ARENA_ARRAY(memory, double *, c->kernel->value_count);
        g->truths = ARENA_ARRAY(memory, bool *, c->kernel->value_count);
        for (int i = 0; i < c->product_count; i++) g->scores[i] = registers(memory, GROUP_ROWS * c->columns);
        for (int i = 0; i < c->sum_count; i++) g->weights[i] = registers(memory, GROUP_ROWS * c->columns);
        for (int i = 0; i < c->sum_count; i++) g->sums[i] = registers(memory, GROUP_ROWS * c->sums[i].width);
    }
    const loop_numbers numbers = {.context = m,
                                  .preferred = preferred % (c->groups + 1),
                                  .role = begin_role,
                                  .round = begin_round,
                                  .scalar = compute_scalar,
                                  .happens = happens,
                                  .note = note,
                                  .run = run_node};
    loops_check_on(p, &numbers, memory, m->sim.why);
}

bool loops_sim_chained(const loop_program *p, const array_view *arrays, const launch_plan *plan, int preferred,
                       arena *memory, text *why)
{
    const chained *c = p->chained;
    const int64_t *programs = plan->programs[p->phase];
    survey e;
    loops_survey(c->kernel, memory, &e);
    survey_open(&e, p->phase);
    loop_program of = *p;
    of.survey = &e;
    chained_sim *m = ARENA_NEW(memory, chained_sim);
    *m = (chained_sim){.c = c, .elements = ARENA_ARRAY(memory, cell, c->kernel->value_count)};
    sim_open(&m->sim, &of, arrays, plan, memory, why);
    cell *scalars = m->sim.scalars;
    int64_t count = programs[0] * programs[1] * programs[2];
    for (int64_t i = 0; i < count && !why->length; i++) {
        m->sim.scalars = scalars;
        m->sim.at[0] = i % programs[0];
        m->sim.at[1] = i / programs[0] % programs[1];
        m->sim.at[2] = i / programs[0] / programs[1];
        run_program(m, p, preferred);
    }
    return true;
}
