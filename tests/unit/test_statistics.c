/*
 * Statistics, tables and JSON of the profile folder.
 * SPDX-License-Identifier: MIT
 */
#include "profile/profile.h"
#include "test.h"

TEST(quantiles_interpolate)
{
    double samples[] = {5, 1, 4, 2, 3};
    EXPECT_NEAR(quantile(samples, 5, 0.5), 3, 0);
    EXPECT_NEAR(quantile(samples, 5, 0), 1, 0);
    EXPECT_NEAR(quantile(samples, 5, 1), 5, 0);
    EXPECT_NEAR(quantile(samples, 5, 0.2), 1.8, 1e-12);
    EXPECT_NEAR(quantile(samples, 5, 0.8), 4.2, 1e-12);
    double even[] = {4, 1, 3, 2};
    EXPECT_NEAR(quantile(even, 4, 0.5), 2.5, 1e-12);
    double one[] = {7};
    EXPECT_NEAR(quantile(one, 1, 0.8), 7, 0);
    EXPECT(isnan(quantile(one, 0, 0.5)));
    EXPECT_NEAR(quantile(one, 1, -3), 7, 0);
}

TEST(one_outlier_moves_no_quantile)
{
    double samples[11] = {10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 100000};
    EXPECT_NEAR(quantile(samples, 11, 0.5), 10, 0);
    EXPECT_NEAR(quantile(samples, 11, 0.2), 10, 0);
    EXPECT_NEAR(quantile(samples, 11, 0.8), 10, 0);
}

TEST(json_is_valid_whatever_comes_in)
{
    json j = {0};
    json_open_object(&j);
    json_text(&j, "a", "quote \" slash \\ line\nbell \a broken \xff\xc3 end \xc3\xa9");
    json_number(&j, "b", 0.1);
    json_number(&j, "c", NAN);
    json_whole(&j, "d", -9007199254740993);
    json_text(&j, "e", NULL);
    json_close_object(&j);
    json_open_object(&j);
    json_close_object(&j);
    EXPECT_TEXT(json_finish(&j),
                "[\n  {\"a\": \"quote \\\" slash \\\\ line\\nbell \\u0007 broken \\ufffd\\ufffd end "
                "\xc3\xa9\", \"b\": 0.1, \"c\": null, \"d\": -9007199254740993, \"e\": null},\n  {}\n]\n");
    json_free(&j);
    json empty = {0};
    EXPECT_TEXT(json_finish(&empty), "[]\n");
    json_free(&empty);
}

TEST(table_aligns_and_marks)
{
    table t;
    text out = {0};
    table_open(&t, 3);
    t.left[2] = true;
    table_cell(&t, "name");
    table_cell(&t, "time");
    table_cell(&t, "status");
    table_cell(&t, "a\xc2\xb7"
                   "b");
    table_cell(&t, "%d", 12345);
    table_cell(&t, "ok");
    table_cell(&t, "long name");
    table_cell(&t, "1");
    table_cell(&t, "wrong");
    table_print(&t, false, &out);
    EXPECT_TEXT(text_get(&out), "name        time  status\na\xc2\xb7"
                                "b        12345  ok\nlong name      1  wrong\n");
    text_clear(&out);
    table_print(&t, true, &out);
    EXPECT(strstr(text_get(&out), "\033[31mlong name      1  wrong\033[0m\n"));
    table_close(&t);
    text_free(&out);
}

static void expect_duration(double time_ns, const char *expected)
{
    text out = {0};
    text_add_duration(&out, time_ns);
    EXPECT_TEXT(text_get(&out), expected);
    text_free(&out);
}

TEST(durations_have_three_digits)
{
    expect_duration(0, "0.00 ns");
    expect_duration(999, "999 ns");
    expect_duration(999.7, "1.00 us");
    expect_duration(12345, "12.3 us");
    expect_duration(3210000, "3.21 ms");
    expect_duration(61e9, "61.0 s");
}

TEST_MAIN(CASE(quantiles_interpolate), CASE(one_outlier_moves_no_quantile), CASE(json_is_valid_whatever_comes_in),
          CASE(table_aligns_and_marks), CASE(durations_have_three_digits))
