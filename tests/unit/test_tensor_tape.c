/*
 * Tapes: scopes, kept and released tensors, variables with pending assignments, collection of what nothing needs,
 * memory that is given back, call sites, and the cost of a call while a graph is built.
 * SPDX-License-Identifier: MIT
 */
#include "quiet.h"
#include "tensor.h"

#include <time.h>

TEST(scopes)
{
    tape_open();
    qn_tensor x = F32(QN_SHAPE(2), 1, 2), kept, inner, twice, deep;
    qn_scope_begin(tape);
    inner = qn_add(x, x);
    kept = qn_keep(qn_mul(x, x));
    qn_scope_begin(tape);
    deep = qn_keep(qn_exp(x));
    twice = qn_keep(qn_keep(qn_neg(x)));
    qn_scope_end(tape);
    EXPECT(qn_tensor_valid(deep));
    qn_scope_end(tape);
    EXPECT(!qn_tensor_valid(inner) && !qn_tensor_valid(deep));
    EXPECT_TENSOR(kept, QN_SHAPE(2), 1, 4);
    EXPECT_TENSOR(twice, QN_SHAPE(2), -1, -2);
    EXPECT_TENSOR(x, QN_SHAPE(2), 1, 2);
    tape_close();
}

TEST(what_was_made_from_a_released_tensor_stays)
{
    tape_open();
    qn_tensor x = F32(QN_SHAPE(2), 1, 2), y = qn_add_scalar(x, 1);
    qn_release(x);
    tape_collect(tape);
    EXPECT_TENSOR(y, QN_SHAPE(2), 2, 3);
    tape_close();
}

TEST(variables)
{
    tape_open();
    qn_tensor w = qn_variable(F32(QN_SHAPE(2), 1, 2)), other = qn_variable(F32(QN_SHAPE(2), 1, 2)), before = qn_neg(w);
    EXPECT(tape->assign_count == 2);
    EXPECT(tape_slot_of(w)->node != tape_slot_of(other)->node);
    qn_assign(w, qn_add_scalar(w, 10));
    EXPECT_TENSOR(w, QN_SHAPE(2), 11, 12);
    EXPECT_TENSOR(qn_neg(w), QN_SHAPE(2), -11, -12);
    EXPECT_TENSOR(before, QN_SHAPE(2), -1, -2);
    EXPECT(tape->assign_count == 2);  /* the newest value alone */
    qn_assign(w, qn_cast(w, QN_F64)); /* converted back */
    EXPECT(qn_tensor_dtype(w) == QN_F32);
    qn_scope_begin(tape);
    qn_tensor inside = qn_variable(w);
    qn_assign(w, qn_mul_scalar(w, 2));
    EXPECT(tape->assign_count == 3);
    qn_scope_end(tape); /* what is assigned inside to a variable of outside stays, a variable of inside goes */
    EXPECT(tape->assign_count == 2 && !qn_tensor_valid(inside));
    EXPECT_TENSOR(w, QN_SHAPE(2), 22, 24);
    tape_collect(tape);
    EXPECT_TENSOR(w, QN_SHAPE(2), 22, 24);
    tape_close();
}

/* Storing an assignment gives the memory a new identity: old readers know that their input is gone. */
TEST(stored_assignments)
{
    tape_open();
    qn_tensor w = qn_variable(F32(QN_SHAPE(2), 1, 2)), x = F32(QN_SHAPE(2), 5, 6), y = qn_neg(x);
    tape_assigned(tape, w.slot);
    const tape_slot *slot = tape_slot_of(w);
    node first = slot->node;
    EXPECT(!tape->assign_count && first == slot->home_leaf);
    qn_tensor old = qn_neg(w);
    qn_assign(w, qn_add_scalar(w, 1));
    tape_assigned(tape, w.slot);
    slot = tape_slot_of(w);
    EXPECT(slot->node == slot->home_leaf && slot->node != first);
    EXPECT(slot->home->buffer == ((storage *)graph_get(tape->graph, first)->attr.storage)->buffer);
    EXPECT(((storage *)graph_get(tape->graph, first)->attr.storage)->overwritten && !slot->home->overwritten);
    EXPECT(tape_slot_of(qn_neg(w))->node != tape_slot_of(old)->node);
    node leaf = tape_slot_of(x)->node;
    tape_overwritten(tape, leaf);
    EXPECT(tape_slot_of(x)->node != leaf && tape_slot_of(qn_neg(x))->node != tape_slot_of(y)->node);
    tape_close();
}

static void count_delete(void *user, void *data)
{
    ++*(int *)user;
}

TEST(memory_is_given_back)
{
    tape_open();
    float data[4] = {1, 2, 3, 4};
    int deleted = 0;
    qn_tensor x = qn_wrap_memory(tape, data, QN_F32, QN_SHAPE(4), NULL, count_delete, &deleted);
    qn_tensor y = qn_reshape(x, QN_SHAPE(2, 2));
    qn_release(x);
    tape_collect(tape);
    EXPECT(!deleted);
    EXPECT_TENSOR(y, QN_SHAPE(2, 2), 1, 2, 3, 4);
    qn_release(y);
    tape_collect(tape);
    EXPECT(deleted == 1);
    qn_scope_begin(tape);
    qn_wrap_memory(tape, data, QN_F32, QN_SHAPE(4), NULL, count_delete, &deleted);
    qn_scope_end(tape); /* at once: it had memory */
    EXPECT(deleted == 2);
    qn_wrap_memory(tape, data, QN_F32, QN_SHAPE(4), NULL, count_delete, &deleted);
    tape_close();
    EXPECT(deleted == 3);
}

/* Steps in a loop: the graph does not grow with their number. */
TEST(loops_stay_small)
{
    tape_open();
    qn_tensor w = qn_variable(qn_ones(tape, QN_F32, QN_SHAPE(3)));
    for (int step = 0; step < 3000; step++) {
        qn_scope_begin(tape);
        qn_tensor x = qn_full(tape, QN_F32, QN_SHAPE(3), step);
        for (int i = 0; i < 10; i++) x = qn_add(qn_exp(x), w);
        qn_scope_end(tape);
    }
    EXPECT(tape->graph->node_count < 10000 && tape->slot_count < 100);
    EXPECT_TENSOR(w, QN_SHAPE(3), 1, 1, 1);
    tape_close();
}

/* Computed integers and computed detached tensors are leaves after a collection; others keep their history. */
TEST(history)
{
    tape_open();
    qn_tensor x = F32(QN_SHAPE(2), 1, 2), places[3] = {qn_detach(qn_exp(x)), qn_cast(x, QN_I64), qn_exp(x)};
    for (int i = 0; i < 3; i++) {
        storage *s = tape_memory(tape, "test", 16);
        placed where = {.storage = s, .strides = {1}};
        tape_place(tape, tape_slot_of(places[i])->node, &where);
        storage_release(s);
    }
    qn_release(x);
    tape_collect(tape);
    for (int i = 0; i < 3; i++) {
        node n = tape_slot_of(places[i])->node;
        EXPECT((graph_get(tape->graph, n)->code == GRAPH_LEAF) == (i < 2));
        EXPECT(tape_placed(tape, n) != NULL);
    }
    tape_close();
}

TEST(sites_and_labels)
{
    tape_open();
    qn_tensor x = F32(QN_SHAPE(2, 2), 1, 2, 3, 4), y = qn_softmax(x, 1);
    int line = __LINE__ - 1;
    const graph_node *n = graph_get(tape->graph, tape_slot_of(y)->node);
    EXPECT_TEXT(n->label, "softmax");
    EXPECT_TEXT(strrchr(n->site.file, '/') + 1, "test_tensor_tape.c");
    EXPECT(n->site.line == line);
    tape_close();
}

/* A tape that has no device builds graphs. */
TEST(graphs_without_a_device)
{
    tape = tape_new(NULL, "", NULL);
    qn_tensor w = qn_variable(qn_ones(tape, QN_F32, QN_SHAPE(3)));
    qn_tensor y = qn_dropout(qn_softmax(qn_add(w, qn_empty(tape, QN_F32, QN_SHAPE(2, 3))), -1), 0.5);
    EXPECT(qn_tensor_count(y) == 6);
    float data[2] = {0};
    EXPECT(!qn_tensor_valid(qn_from_memory(tape, data, QN_F32, QN_SHAPE(2))));
    qn_error error;
    EXPECT(qn_tape_error(tape, &error) == QN_BAD_CALL && strstr(error.message, "the tape has no device"));
    tape_close();
}

/* This thread's own time, whatever else the machine does. */
static int64_t own_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The best of ten rounds of 20,000 calls, in scopes of `step` calls. */
static double call_ns(int step)
{
    int64_t best = INT64_MAX;
    for (int round = 0; round < 10; round++) {
        tape_open();
        qn_tensor x = qn_empty(tape, QN_F32, QN_SHAPE(128, 128));
        int64_t start = own_ns();
        for (int done = 0; done < 20000; done += step) {
            qn_scope_begin(tape);
            qn_tensor y = qn_add_scalar(x, done);
            for (int i = 1; i < step; i++) y = qn_add(y, x);
            EXPECT(qn_tensor_valid(y));
            qn_scope_end(tape);
        }
        int64_t took = own_ns() - start;
        if (took < best) best = took;
        tape_close();
    }
    return (double)best / 2e4;
}

TEST(a_call_costs_less_than_a_microsecond)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    double limit = 20000;
#else
    double limit = 1000;
#endif
    double steps = call_ns(1000), whole = call_ns(20000);
    printf("note: %.0f ns a call in steps of 1,000 calls, %.0f ns in one graph of 20,000\n", steps, whole);
    EXPECT_QUICK(steps < limit && whole < 2 * limit);
}

TEST_MAIN(CASE(scopes), CASE(what_was_made_from_a_released_tensor_stays), CASE(variables), CASE(stored_assignments),
          CASE(memory_is_given_back), CASE(loops_stay_small), CASE(history), CASE(sites_and_labels),
          CASE(graphs_without_a_device), CASE(a_call_costs_less_than_a_microsecond))
