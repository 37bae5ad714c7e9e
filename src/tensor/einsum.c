/*
 * einsum: sums of products told by letters. In: "bij,bjk->bik" and operands. Out: for each further operand one product
 * [batch][left][contracted] x [batch][contracted][right], with permutations and reshapes around it, which fusion reads
 * through; letters of one operand alone that the result lacks are summed first, a letter twice in an operand is its
 * diagonal. `...` stands for axes that all operands may have in front of their other letters, aligned at their end.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/ops.h"

#include <string.h>

enum { OPERANDS = 8, DOTS = 128 /* letters of `...`, from its last axis on */ };

/* A tensor and the letter of each axis. */
typedef struct labelled {
    node x;
    int letters[GRAPH_RANK];
} labelled;

typedef struct equation {
    graph *g;
    const char *words;
    product_way way;
} equation;

static bool fail(const equation *e, const char *why)
{
    return graph_fail(e->g, "einsum", "\"%s\": %s", e->words, why), false;
}

static int place_of(const int *letters, int count, int letter)
{
    for (int k = 0; k < count; k++)
        if (letters[k] == letter) return k;
    return -1;
}

/* Letters from *at on, up to `,` or `-` or the end; dots: how many axes `...` stands for. */
static bool read_letters(const equation *e, const char **at, int *letters, int *count, int dots)
{
    *count = 0;
    for (; **at && **at != ',' && **at != '-'; (*at)++) {
        char c = **at;
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (c == ' ') continue;
        if (c == '.' && !strncmp(*at, "...", 3)) {
            *at += 2;
            for (int k = dots; k > 0; k--) {
                if (*count == GRAPH_RANK) return fail(e, "an operand or the result has more than 8 letters");
                letters[(*count)++] = DOTS + k;
            }
            continue;
        }
        if (!letter) return fail(e, "letters, `,`, `...` and one `->` are what it is made of");
        if (*count == GRAPH_RANK) return fail(e, "an operand or the result has more than 8 letters");
        letters[(*count)++] = c;
    }
    return true;
}

/* Equal letters of one operand become one axis. */
static void take_diagonals(const equation *e, labelled *t)
{
    for (int i = 0; t->x && i < tensor_shape(e->g, t->x)->rank; i++) {
        int rank = tensor_shape(e->g, t->x)->rank, j = i + 1;
        while (j < rank && t->letters[j] != t->letters[i]) j++;
        if (j == rank) continue;
        int letter = t->letters[i], kept = 0;
        const shape *s = tensor_shape(e->g, t->x);
        if (s->extents[i] != s->extents[j]) {
            t->x = 0;
            fail(e, "a letter stands for two extents");
            return;
        }
        t->x = tensor_diagonal(e->g, t->x, 0, i, j);
        for (int k = 0; k < rank; k++)
            if (k != i && k != j) t->letters[kept++] = t->letters[k];
        t->letters[kept] = letter;
        i = -1; /* the diagonal is the last axis now: look again */
    }
}

/* Axes whose letters nobody else has are summed. */
static void sum_alone(const equation *e, labelled *t, const int *wanted, int wanted_count)
{
    unsigned set = 0;
    int rank = tensor_shape(e->g, t->x)->rank, kept = 0;
    for (int k = 0; k < rank; k++) {
        if (place_of(wanted, wanted_count, t->letters[k]) < 0)
            set |= 1u << k;
        else
            t->letters[kept++] = t->letters[k];
    }
    if (set) t->x = tensor_drop(e->g, tensor_sum(e->g, t->x, set), set);
}

/* Axes in the order of `letters`, all of which it has. */
static node ordered(const equation *e, const labelled *t, const int *letters, int count)
{
    int axes[GRAPH_RANK];
    for (int k = 0; k < count; k++) axes[k] = place_of(t->letters, count, letters[k]);
    return graph_permute(e->g, t->x, axes);
}

/* a and b as one: letters of both that are wanted are batches, those not wanted are contracted. */
static bool multiply(const equation *e, labelled *a, const labelled *b, const int *wanted, int wanted_count)
{
    graph *g = e->g;
    enum { BATCH, LEFT, INNER, RIGHT, KINDS };
    int letters[KINDS][GRAPH_RANK], count[KINDS] = {0};
    int64_t extent[KINDS] = {1, 1, 1, 1}, extents[KINDS][GRAPH_RANK];
    const labelled *sides[2] = {a, b};
    for (int side = 0; side < 2; side++) {
        const shape *s = tensor_shape(g, sides[side]->x), *o = tensor_shape(g, sides[!side]->x);
        for (int k = 0; k < s->rank; k++) {
            int letter = sides[side]->letters[k], other = place_of(sides[!side]->letters, o->rank, letter);
            bool kept = place_of(wanted, wanted_count, letter) >= 0;
            int kind = other < 0 ? (side ? RIGHT : LEFT) : kept ? BATCH : INNER;
            if (other >= 0 && s->extents[k] != o->extents[other]) return fail(e, "a letter stands for two extents");
            if (side && other >= 0) continue; /* noted with the other side */
            extents[kind][count[kind]] = s->extents[k];
            letters[kind][count[kind]++] = letter;
            extent[kind] *= s->extents[k];
        }
    }
    static const int forms[2][3] = {{BATCH, LEFT, INNER}, {BATCH, INNER, RIGHT}};
    node matrix[2];
    for (int side = 0; side < 2; side++) {
        int order[GRAPH_RANK], rank = 0;
        shape flat = {3, {extent[forms[side][0]], extent[forms[side][1]], extent[forms[side][2]]}};
        for (int i = 0; i < 3; i++)
            for (int k = 0; k < count[forms[side][i]]; k++) order[rank++] = letters[forms[side][i]][k];
        if (!count[BATCH]) flat = (shape){2, {flat.extents[1], flat.extents[2]}};
        matrix[side] = graph_reshape(g, ordered(e, sides[side], order, rank), &flat);
    }
    if (count[BATCH] + count[LEFT] + count[RIGHT] > GRAPH_RANK)
        return fail(e, "a product on the way has more than 8 axes");
    a->x = tensor_matmul(g, matrix[0], matrix[1], e->way);
    static const int result[3] = {BATCH, LEFT, RIGHT};
    shape s = {0};
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < count[result[i]]; k++) {
            a->letters[s.rank] = letters[result[i]][k];
            s.extents[s.rank++] = extents[result[i]][k];
        }
    a->x = graph_reshape(g, a->x, &s);
    return a->x != 0;
}

/* The letters of the operands and of the result; without `->` those that occur once, in order of the alphabet. */
static bool read_equation(const equation *e, labelled *t, int operand_count, int *out, int *out_count)
{
    const char *at = e->words;
    int most_dots = 0, seen[DOTS] = {0};
    for (int i = 0; i < operand_count; i++) {
        int rank = tensor_shape(e->g, t[i].x)->rank, named = 0, count;
        bool dotted = false;
        for (const char *c = at; *c && *c != ',' && *c != '-'; c++) {
            named += *c != ' ' && *c != '.';
            dotted |= *c == '.';
        }
        int dots = dotted ? MAXIMUM(rank - named, 0) : 0;
        if (!read_letters(e, &at, t[i].letters, &count, dots)) return false;
        if (count != rank) return fail(e, "an operand has other axes than letters");
        for (int k = 0; k < count; k++)
            if (t[i].letters[k] < DOTS) seen[t[i].letters[k]]++;
        most_dots = MAXIMUM(most_dots, dots);
        if (i + 1 < operand_count && *at++ != ',') return fail(e, "there are more operands than letters");
    }
    if (*at == ',') return fail(e, "there are fewer operands than letters");
    if (*at == '-') {
        if (at[1] != '>') return fail(e, "`->` stands before the result");
        at += 2;
        if (!read_letters(e, &at, out, out_count, most_dots)) return false;
        if (*at) return fail(e, "nothing may follow the result");
    } else {
        *out_count = 0;
        for (int k = most_dots; k > 0; k--) out[(*out_count)++] = DOTS + k;
        for (int c = 0; c < DOTS; c++) {
            if (seen[c] != 1) continue;
            if (*out_count == GRAPH_RANK) return fail(e, "an operand or the result has more than 8 letters");
            out[(*out_count)++] = c;
        }
    }
    for (int k = 0; k < *out_count; k++) {
        bool known = false;
        for (int i = 0; i < operand_count; i++)
            known |= place_of(t[i].letters, tensor_shape(e->g, t[i].x)->rank, out[k]) >= 0;
        if (!known) return fail(e, "a letter of the result is in no operand");
        if (place_of(out, k, out[k]) >= 0) return fail(e, "a letter stands twice in the result");
    }
    return true;
}

static node contract(const equation *e, labelled *t, int operand_count)
{
    int out[GRAPH_RANK], out_count;
    if (!read_equation(e, t, operand_count, out, &out_count)) return 0;
    for (int i = 0; i < operand_count; i++) {
        take_diagonals(e, &t[i]);
        if (!t[i].x) return 0;
    }
    for (int i = 0; i < operand_count; i++) {
        /* What somebody still needs: the result, and the operands that are not multiplied yet. */
        int wanted[GRAPH_RANK * (OPERANDS + 1)], wanted_count = 0;
        for (int k = 0; k < out_count; k++) wanted[wanted_count++] = out[k];
        for (int j = i + 1; j < operand_count; j++)
            for (int k = 0; k < tensor_shape(e->g, t[j].x)->rank; k++) wanted[wanted_count++] = t[j].letters[k];
        if (i) {
            int both[GRAPH_RANK * (OPERANDS + 2)], both_count = wanted_count;
            memcpy(both, wanted, sizeof(int) * (size_t)wanted_count);
            for (int k = 0; k < tensor_shape(e->g, t[0].x)->rank; k++) both[both_count++] = t[0].letters[k];
            sum_alone(e, &t[i], both, both_count);
            if (!t[i].x || !multiply(e, &t[0], &t[i], wanted, wanted_count)) return 0;
        }
        sum_alone(e, &t[0], wanted, wanted_count);
        if (!t[0].x) return 0;
    }
    return ordered(e, &t[0], out, out_count);
}

qn_tensor qn_einsum(const char *words, const qn_tensor *operands, int count)
{
    node n[OPERANDS];
    labelled t[OPERANDS];
    if (count < 1) return (qn_tensor){0};
    qn_tape *tape = tape_begin("einsum", operands, MINIMUM(count, OPERANDS), n);
    if (!tape) return tape_failed();
    graph *g = tape->graph;
    if (!words) return graph_fail(g, "einsum", "the equation is NULL"), tape_failed();
    if (count > OPERANDS) return graph_fail(g, "einsum", "%d operands: at most %d", count, OPERANDS), tape_failed();
    dtype elem = tensor_promote(g, "einsum", n, count);
    if (elem == DT_COUNT) return tape_failed();
    for (int i = 0; i < count; i++) t[i].x = tensor_convert(g, n[i], elem);
    equation e = {g, words, tape->products};
    return tape_handle(tape, contract(&e, t, count));
}
