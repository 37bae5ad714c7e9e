/*
 * The test harness: TEST(name) defines a case, main at the end of the file is TEST_MAIN(case, case, ...).
 * A failed EXPECT prints file, line and what differed, and the case goes on.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_TEST_H
#define QUERN_TESTS_TEST_H

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static int test_failures_of_case, test_passed, test_failed;

#define EXPECT(condition)                                            \
    do {                                                             \
        if (!(condition)) test_fail(__FILE__, __LINE__, #condition); \
    } while (0)
#define EXPECT_TEXT(actual, expected) test_text((actual), (expected), __FILE__, __LINE__)
#define EXPECT_NEAR(actual, expected, tolerance) test_near((actual), (expected), (tolerance), __FILE__, __LINE__)

static inline void test_fail(const char *file, int line, const char *what)
{
    test_failures_of_case++;
    printf("%s:%d: failed: %s\n", file, line, what);
}

static inline void test_text(const char *actual, const char *expected, const char *file, int line)
{
    if (!actual) actual = "(none)";
    if (!strcmp(actual, expected)) return;
    test_failures_of_case++;
    printf("%s:%d: texts differ\n--- expected\n%s\n--- actual\n%s\n---\n", file, line, expected, actual);
}

static inline void test_near(double actual, double expected, double tolerance, const char *file, int line)
{
    if (fabs(actual - expected) <= tolerance || (isnan(actual) && isnan(expected)) || actual == expected) return;
    test_failures_of_case++;
    printf("%s:%d: %.9g is not %.9g within %g\n", file, line, actual, expected, tolerance);
}

/* How often a text has a part. */
static inline int test_count(const char *words, const char *part)
{
    int count = 0;
    for (; (words = strstr(words, part)); words++) count++;
    return count;
}

typedef struct test_case {
    const char *name;
    void (*run)(void);
} test_case;

#define TEST(name) static void name(void)
// clang-format off
#define CASE(name) {#name, name}
// clang-format on
#define TEST_MAIN(...)                                                                                 \
    int main(int argc, char **argv)                                                                    \
    {                                                                                                  \
        const test_case cases[] = {__VA_ARGS__};                                                       \
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {                                \
            if (argc > 1 && strcmp(argv[1], cases[i].name)) continue;                                  \
            test_failures_of_case = 0;                                                                 \
            cases[i].run();                                                                            \
            if (test_failures_of_case) {                                                               \
                test_failed++;                                                                         \
                printf("FAILED %s\n", cases[i].name);                                                  \
            } else {                                                                                   \
                test_passed++;                                                                         \
            }                                                                                          \
        }                                                                                              \
        if (!test_passed && !test_failed) test_failed++; /* no case has the name that was asked for */ \
        printf("%d passed, %d failed\n", test_passed, test_failed);                                    \
        return test_failed != 0;                                                                       \
    }

#endif
