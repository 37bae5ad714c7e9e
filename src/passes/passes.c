/*
 * The pipeline as a table, and its runner.
 *
 * In: a kernel as lowering made it. Out: the same kernel for a back end. Each pass runs once, in this order; where one
 * undoes what an earlier one had done (`breaks`), that one runs again at once, as part of it. After each the kernel is
 * verified, and the observer sees it.
 * SPDX-License-Identifier: MIT
 */
#include "passes/passes.h"
#include "passes/pass_list.h"

#include <string.h>

#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

const pass passes[] = {
    {"specialise", "arguments that the launch has fixed become constants", pass_specialise, NULL, NULL},
    {"fold", "constants and algebra; decided branches and loops of one trip are opened", pass_fold, NULL, NULL},
    {"cse", "equal computations and equal loads are done once", pass_cse, NULL, NULL},
    {"simplify", "integers and comparisons that ranges and divisors decide", pass_simplify, NAMES("cse"),
     NAMES("fold", "cse")},
    {"licm", "what a loop does not change is computed before it", pass_licm, NAMES("cse"), NAMES("cse")},
    {"split", "loops over blocks become full blocks and one rest", pass_split, NAMES("cse", "licm"),
     NAMES("fold", "cse")},
    {"unmask", "masks and range tests that always hold go", pass_unmask, NAMES("cse", "licm"), NAMES("fold", "cse")},
    {"dce", "what nobody needs goes", pass_dce, NULL, NULL},
    {"carry", "carried tiles that become another shape of each other are copied first", pass_carry, NULL, NULL},
};
const int pass_count = COUNT(passes);

static int find_pass(const char *name, int before)
{
    for (int i = 0; i < before; i++)
        if (!strcmp(passes[i].name, name)) return i;
    return -1;
}

static qn_status verify_after(const tile_kernel *k, const char *name, qn_error *error)
{
    qn_error broken;
    if (tile_verify(k, &broken) == QN_OK) return QN_OK;
    return error_set(error, QN_FAILED, "internal error: pass %s left broken IR: %s", name, broken.message);
}

static qn_status run_one(tile_kernel *k, int number, bool *changed, qn_error *error)
{
    const pass *p = &passes[number];
    for (int i = 0; p->requires_passes && p->requires_passes[i]; i++)
        CHECK(find_pass(p->requires_passes[i], number) >= 0);
    *changed = p->run(k);
    QN_TRY(heap_status(error));
    if (!*changed) return QN_OK;
    QN_TRY(verify_after(k, p->name, error));
    for (int i = 0; p->breaks && p->breaks[i]; i++) {
        int again = find_pass(p->breaks[i], number);
        CHECK(again >= 0);
        if (passes[again].run(k)) QN_TRY(verify_after(k, passes[again].name, error));
    }
    return QN_OK;
}

qn_status passes_run(tile_kernel *k, const char *last, passes_observer *observer, void *context, qn_error *error)
{
    if (last && find_pass(last, pass_count) < 0) {
        const char *names[COUNT(passes)];
        for (int i = 0; i < pass_count; i++) names[i] = passes[i].name;
        const char *near = suggest_name(last, names, pass_count);
        return error_set(error, QN_BAD_CALL, "there is no pass called `%s`%s%s%s", last, near ? "; did you mean `" : "",
                         near ? near : "", near ? "`?" : "");
    }
    for (int i = 0; i < pass_count; i++) {
        bool changed = false;
        int64_t start = clock_now_ns();
        QN_TRY(run_one(k, i, &changed, error));
        int64_t time_ns = clock_now_ns() - start;
        if (observer) observer(context, k, passes[i].name, changed, time_ns);
        if (last && !strcmp(passes[i].name, last)) break;
    }
    return QN_OK;
}
