/*
 * Values of scans of rows; a part of test_rows, which has the kernels, the context and helpers.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_ROWS_SCANS_H
#define QUERN_TESTS_ROWS_SCANS_H

/* What stands before and after a scan is computed with it. */
static void scans_with_arithmetic(void)
{
    static const char *const names[] = {"masked", "before", "backwards", "most"};
    static const row_case cases[] = {{3, 100, 1, 0}, {70, 1000, 1, 0}, {66, 5003, 1, 0}, {2, 7000, 1, 0}};
    static bool mask[MOST];
    for (int k = 0; k < MOST; k++) mask[k] = noise(k + 7) > 0;
    for (int i = 0; i < COUNT(cases) * COUNT(names); i++) {
        const row_case *s = &cases[i / COUNT(names)];
        const char *name = names[i % COUNT(names)];
        int64_t shape[] = {s->a, s->b};
        qn_call *call;
        for (int64_t k = 0; k < s->a * s->b; k++) room[k] = noise(k);
        EXPECT(!qn_call_new(module, name, &call, &error));
        EXPECT(!qn_call_set_memory(call, "x", room, QN_F32, 2, shape, NULL, &error));
        if (!strcmp(name, "masked")) EXPECT(!qn_call_set_memory(call, "m", mask, QN_BOOL, 2, shape, NULL, &error));
        EXPECT(!qn_call_set_memory(call, "result0", results, QN_F32, 2, shape, NULL, &error));
        EXPECT(!qn_call_run(call, where, &error));
        int wrong = 0;
        for (int64_t r = 0; r < s->a; r++) {
            double sum = 0, most = 0;
            for (int64_t c = 0; c < s->b; c++) {
                int64_t at = r * s->b + (!strcmp(name, "backwards") ? s->b - 1 - c : c);
                double x = room[at], want;
                sum += strcmp(name, "masked") || mask[at] ? x : 0;
                most = fmax(most, fmax(x, 0) + 1);
                want = !strcmp(name, "masked") ? 2 * sum : !strcmp(name, "before") ? sum - x : sum + 1;
                if (!strcmp(name, "most")) want = most;
                wrong += !(fabs(results[at] - want) <= 1e-3);
            }
        }
        if (wrong) printf("%s %s: %d wrong\n", where, name, wrong);
        EXPECT(!wrong);
        qn_call_free(call);
    }
}

/* Rows that some lanes of a warp hold, of every length around a vector, a warp and a class of lengths. */
static void short_scans(void)
{
    static const int64_t lengths[] = {1,   2,   3,   4,   5,   8,   31,  32,  33,   64,   100,
                                      127, 128, 129, 255, 256, 257, 511, 512, 1000, 1023, 1024};
    for (int i = 0; i < COUNT(lengths); i++)
        check(i % 2 ? "run" : "top", &(row_case){5, lengths[i], 1, i % 3 ? 0 : i % 4}, i % 5 == 4);
}

/* Scans from the end and behind their own element, of rows that one program holds and of those that it goes through. */
static void turned_scans(void)
{
    static const int64_t lengths[] = {1, 5, 1000, 1024, 4095, 4096, 20001};
    for (int n = 0; n < COUNT(lengths); n++) {
        int64_t b = lengths[n], extents[] = {3, b};
        if (!strcmp(where, "ref") && b > 1000) continue;
        for (int64_t i = 0; i < 3 * b; i++) room[i] = noise(i);
        for (int late = 0; late < 2; late++) {
            int wrong = 0;
            if (!call_of(late ? "late_scan" : "turned_scan", room, 2, extents, results, QN_F32, 2, extents)) continue;
            for (int64_t r = 0; r < 3; r++) {
                double sum = 0;
                for (int64_t i = 0; i < b; i++) {
                    int64_t at = r * b + (late ? i : b - 1 - i);
                    if (!late) sum += room[at];
                    wrong += !(fabs(results[at] - sum) <= 2e-5 * (sqrt((double)b) + 1));
                    if (late) sum += room[at];
                }
            }
            if (wrong) printf("%s of %lld on %s: %d wrong\n", late ? "late" : "turned", (long long)b, where, wrong);
            EXPECT(!wrong);
        }
    }
}

#endif
