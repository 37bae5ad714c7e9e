/*
 * The text form and the grammar of the tile IR: files of tests/text/ir print as they are written, every rule of the
 * verifier has a text that breaks it, and mutated files give errors and nothing worse.
 * SPDX-License-Identifier: MIT
 */
#include "fuzz/fuzz_tile.c"
#include "test.h"

#include <dirent.h>
#include <stdlib.h>

#define FOLDER QUERN_ROOT "/tests/text/ir/"

static char *read_all(const char *path, size_t *size)
{
    char *data = NULL;
    qn_error error;
    EXPECT(file_read(path, 1 << 20, &data, size, &error) == QN_OK);
    return data;
}

static const char *without_comments(const char *words)
{
    while (*words == '#') words = strchr(words, '\n') + 1;
    return words;
}

TEST(files_print_as_they_are)
{
    static const char *const names[] = {"every-op.tile", "raw.tile"};
    for (int i = 0; i < COUNT(names); i++) {
        char path[500];
        size_t size;
        snprintf(path, sizeof(path), FOLDER "%s", names[i]);
        char *data = read_all(path, &size);
        arena *memory = arena_new();
        tile_kernel *k;
        qn_error error;
        qn_status status = tile_read(memory, names[i], data, size, &k, &error);
        if (status != QN_OK) printf("%s\n", error.message);
        EXPECT(status == QN_OK);
        if (status == QN_OK) {
            text out = {0};
            tile_print(k, &out);
            EXPECT_TEXT(text_get(&out), without_comments(data));
            text_clear(&out);
            tile_print(tile_clone(k, memory), &out);
            EXPECT_TEXT(text_get(&out), without_comments(data));
            text_free(&out);
        }
        arena_free(memory);
        free(data);
    }
}

TEST(every_op_is_in_the_file)
{
    size_t size;
    char *data = read_all(FOLDER "every-op.tile", &size);
    for (int code = 1; code < OP_COUNT; code++) {
        bool found = false;
        size_t length = strlen(ops[code].text);
        for (const char *p = data; !found && (p = strstr(p, ops[code].text)); p += length)
            found = (p[-1] == ' ') && (p[length] == ' ' || p[length] == '.' || p[length] == '\n');
        if (!found) printf("%s is missing\n", ops[code].text);
        EXPECT(found);
    }
    free(data);
}

/* What a kernel's phase would be if it held these lines; `%1` is an i64 argument, `%2` a bool, `%3` and `%4` tiles. */
static const char frame[] = "kernel k\n"
                            "  param x in f32 [n]\n"
                            "  param y out f32 [n]\n"
                            "  param n extent i64\n"
                            "head {\n"
                            "  %%100 = arg n : i64\n"
                            "  launch 0 %%100\n"
                            "}\n"
                            "phase {\n"
                            "  %%1 = arg n : i64\n"
                            "  %%2 = const true : bool\n"
                            "  %%5 = const 2 : i64\n"
                            "  %%3 = iota axis 0 : i64[4]\n"
                            "  %%4 = load x[%%1:%%5 @0] : f32[4]\n"
                            "%s\n"
                            "}\n";

static const struct {
    const char *lines, *message;
} broken[] = {
    {"%9 = add %1, %8 : i64", "line 15: %8 is not defined above"},
    {"%1 = arg n : i64", "line 15: %1 is defined twice"},
    {"%9 = add %1, %2 : i64", "operand 1 has an element type that add does not take"},
    {"%9 = const 1 : i32\n%10 = add %1, %9 : i64", "the operands differ in element type"},
    {"%9 = add %2, %2 : bool", "operand 0 has an element type that add does not take"},
    {"%9 = add %1, %3 : i64", "the result does not have the operands' joint shape"},
    {"%9 = add %1 : i64", "add takes 2 operands, not 1"},
    {"%9 = exp %1 : i64", "operand 0 has an element type that exp does not take"},
    {"%9 = lt %1, %1 : i64", "the result is not bool"},
    {"%9 = neg %1 : i32", "the result does not have the operand's element type"},
    {"%9 = select %1, %1, %1 : i64", "the condition of select is not bool"},
    {"%9 = select %2, %1, %2 : i64", "the arms of select differ in type"},
    {"%9 = shl %1, %2 : i64", "operand 1 has an element type that shl does not take"},
    {"%9 = iota axis 1 : i64[4]", "axis 1 of a tile of rank 1"},
    {"%9 = iota axis 0 : i64[4, 2]", "another axis than 0 is not 1"},
    {"%9 = iota axis 0 : f32[4]", "iota gives integers"},
    {"%9 = iota axis 0 : i64[%2]", "the extent of axis 0 is not an i64 scalar"},
    {"%9 = broadcast %1 : i64[%1, %1]", "a tile has two run-time axes"},
    {"%9 = bound %1, %1, %3 axis 0 : bool[4]", "bound takes integer scalars"},
    {"%9 = bound %1, %1, %1 axis 0 : i64[4]", "the result is not bool"},
    {"%9 = const 1 : i64[4]", "the result is not a scalar"},
    {"%9 = const 300 : u8", "line 15: 300 is no constant of type u8"},
    {"%9 = arg x : f32", "arg does not name a scalar parameter or an extent"},
    {"%9 = arg n : i32", "the result does not have the parameter's type"},
    {"%9 = arg m : i64", "line 15: there is no parameter called m"},
    {"%9 = program 3 : i64", "launch axes are 0 to 2"},
    {"%9 = broadcast %3 : i64[5]", "the operand does not broadcast to the result's shape"},
    {"%9 = reshape %3 : i64[5]", "reshape changes the number of elements"},
    {"%9 = reshape %3 : i64[2, 3]", "reshape changes the number of elements"},
    {"%9 = permute %3 order (1) : i64[4]", "this is not an order of the axes"},
    {"%9 = bitcast %3 : i32[4]", "bitcast changes the width"},
    {"%9 = reduce sum %3 axes (1) : i64[4]", "reduce over axes that are not there"},
    {"%9 = reduce sum %3 axes (0) : f32", "the result has the wrong element type"},
    {"%9 = reduce argmax %4 axes (0) : f32", "the result has the wrong element type"},
    {"%9 = reduce any %3 axes (0) : i64", "any of this element type"},
    {"%9 = reduce sum %3 axes (0) : i64[4]", "the result has not the operand's shape with 1 for the axes that go"},
    {"%9 = scan sum %3 axis 1 : i64[4]", "scan along axis 1 of 1"},
    {"%9 = scan any %3 axis 0 : i64[4]", "scan takes sum, prod, max or min"},
    {"%9 = dot %3, %3 : i64[4]", "dot takes two tiles of rank 2 or 3"},
    {"%9 = broadcast %1 : i64[2, 3]\n%10 = dot %9, %9 : i64[2, 3]", "dot of this element type"},
    {"%9 = const 0 : f32\n%10 = broadcast %9 : f32[2, 3]\n%11 = dot %10, %10 : f32[2, 3]", "the inner extents differ"},
    {"%9 = const 0 : f32\n%10 = broadcast %9 : f32[2, 2]\n%11 = dot %10, %10 : f64[2, 2]",
     "the result has the wrong type"},
    {"%9 = load x[] : f32", "x has 1 axes, the access 0"},
    {"%9 = load x[%1] : f64", "the value does not have the array's element type"},
    {"%9 = load x[%2] : f32", "an index is not an integer"},
    {"%9 = load x[%3] : f32[4]", "an index, start or step is not a scalar"},
    {"%9 = load x[%1] : f32[4]", "no index reaches axis 0"},
    {"%9 = load x[%1:%5 @1] : f32[4]", "a slice stands on axis 1 of 1"},
    {"%9 = load x[tile %3] : f32[5]", "an index tile does not broadcast to the access"},
    {"%9 = load x[%1] mask %1 : f32", "a mask is not bool"},
    {"%9 = load n[%1] : f32", "the access does not name an array"},
    {"%9 = load x[%1] = %1 : f32", "the indices start at operand 1, not 0"},
    {"store x[%1:%5 @0] = %4", "a write to the `in` array x"},
    {"%9 = atomic add y[%1:%5 @0] = %4 : f32", "the old value does not have the value's type"},
    {"for %1, %1 with (%9 : i64) {\nyield\n}", "for takes a first value, a limit and a step"},
    {"for %1, %1, %3 with (%9 : i64) {\nyield\n}", "first, limit and step are integer scalars of one type"},
    {"for %1, %1, %5 {\nyield\n}", "the region of for takes its variable"},
    {"for %1, %1, %5 with (%9 : i32) {\nyield\n}", "the variable does not have the type of the first value"},
    {"%8 = for %1, %1, %5, %1 : i64 with (%9 : i64, %10 : i32) {\nyield %1\n}", "carried value 0 changes its type"},
    {"%8 = for %1, %1, %5, %1 : i64 with (%9 : i64, %10 : i64) {\nyield %2\n}",
     "region 0 yields value 0 in another type than the result's"},
    {"%8 = for %1, %1, %5, %1 : i64 with (%9 : i64, %10 : i64) {\nyield\n}", "region 0 yields 0 values for 1 results"},
    {"for %1, %1, %5 with (%9 : i64) {\n}", "a region does not end in yield"},
    {"for %1, %1, %5 with (%9 : i64) {\nyield\nyield\n}", "yield in the wrong place"},
    {"for %1, %1, %5 with (%9 : i64) {\nyield\n}\n%8 = add %9, %9 : i64",
     "operand 0 is defined in a block that does not enclose this op"},
    {"%9 = add %100, %100 : i64", "operand 0 is defined in a block that does not enclose this op"},
    {"yield", "yield in the wrong place"},
    {"if %4 {\nyield\n} else {\nyield\n}", "operand 0 has an element type that if does not take"},
    {"if %3 {\nyield\n} else {\nyield\n}", "the condition is not a bool or integer scalar"},
    {"while {\nyield\n} do {\nyield\n}", "yield in the wrong place"},
    {"while {\ncondition %1\n} do {\nyield\n}", "condition takes one bool scalar"},
    {"%9 = map %4 : f32[4] with (%10 : i64) {\nyield %10\n}", "argument 0 is not an element of its operand"},
    {"%9 = map %4 : f32 with (%10 : f32) {\nyield %10\n}", "the result does not have the operands' joint shape"},
    {"%9 = map %4 : f32[4] with (%10 : f32) {\n%11 = neg %4 : f32[4]\nyield %10\n}", "operand 0 is a tile inside map"},
    {"%9 = map %4 : f32[4] with (%10 : f32) {\n%11 = load x[%1] : f32\nyield %11\n}", "load inside map"},
    {"launch 0 %1", "launch outside the head"},
    {"print \"{}\" show 2 %1", "print shows 2 values and has 1 operands"},
    {"print show 0", "print has no format"},
    {"assert %1", "the condition is not bool"},
    {"assert", "assert has no condition"},
    {"%9 = philox 4 %1, %1, %1 : u32", "philox takes u64, u64, i64 and gives u32"},
    {"store y[%1] = %4 mask %2", "no index reaches axis 0"},
    {"%9 = add %1, %1 : i64 %3", "line 15: expected the end of the line, found %3"},
    {"%9 = plus %1, %1 : i64", "line 15: expected an op, found plus"},
    {"%9 = add %1, %1", "expected :, found }"},
    {"%99999999999 = arg n : i64", "line 15: this value's number is too large"},
    {"assert \"abc %2", "line 15: a text is not closed on its line"},
    {"assert \"\\q\" %2", "line 15: unknown escape in a text"},
    {"\001", "line 15: unexpected character (byte 1)"},
};

TEST(every_rule_is_kept)
{
    for (int i = 0; i < COUNT(broken); i++) {
        char words[4000];
        snprintf(words, sizeof(words), frame, broken[i].lines);
        arena *memory = arena_new();
        tile_kernel *k;
        qn_error error = {0};
        qn_status status = tile_read(memory, "line", words, strlen(words), &k, &error);
        EXPECT(status == QN_BAD_FILE);
        char *message = error.message;
        for (char *p = message; (p = strstr(p, "line:")); p += 5) p[4] = ' '; /* "line:15" reads as "line 15" */
        if (!strstr(message, broken[i].message)) {
            printf("%s\ngives: %s\nnot:   %s\n", broken[i].lines, message, broken[i].message);
            EXPECT(!"the message");
        }
        arena_free(memory);
    }
}

static const struct {
    const char *words, *message;
} broken_kernels[] = {
    {"", "expected kernel, found the end of the text"},
    {"kernel", "expected a name, found the end of the text"},
    {"kernel k\nhead {", "the text ends inside a block"},
    {"kernel k\nhead {\n}\nphase {\n}", "phase 0 is launched 0 times"},
    {"kernel k\nparam x in f32 [m]\nhead {\n}", "there is no parameter called m"},
    {"kernel k\nparam x in f32 [_ = %7]\nhead {\n}", "%7 is not defined in the head"},
    {"kernel k\nparam x in f32 []\nparam x in f32 []\nhead {\n}", "two parameters are called x"},
    {"kernel k\nparam n extent i32\nhead {\n}", "extent n is not i64"},
    {"kernel k\nparam n extent i64\nhead {\n%1 = program 0 : i64\n}", "program in the head"},
    {"kernel k\nhead {\n}\nhead {\n}", "expected the end of the text, found head"},
    {"kernel k\nhead {\n}\nraw c once {\nsauce\n}", "expected constants, source, instance or options"},
};

TEST(every_kernel_rule_is_kept)
{
    for (int i = 0; i < COUNT(broken_kernels); i++) {
        arena *memory = arena_new();
        tile_kernel *k;
        qn_error error = {0};
        const char *words = broken_kernels[i].words;
        EXPECT(tile_read(memory, "file", words, strlen(words), &k, &error) == QN_BAD_FILE);
        if (!strstr(error.message, broken_kernels[i].message)) {
            printf("%s\ngives: %s\nnot:   %s\n", words, error.message, broken_kernels[i].message);
            EXPECT(!"the message");
        }
        arena_free(memory);
    }
}

TEST(deep_nesting_is_an_error)
{
    text words = {0};
    text_add(&words, "kernel k\nhead {\n");
    for (int i = 0; i < 5000; i++) text_print(&words, "%%%d = const true : bool\nif %%%d {\n", i + 1, i + 1);
    arena *memory = arena_new();
    tile_kernel *k = NULL;
    qn_error error = {0};
    EXPECT(tile_read(memory, "deep.tile", text_get(&words), words.length, &k, &error) != QN_OK);
    EXPECT(strstr(error.message, "nest") != NULL);
    arena_free(memory);
    text_free(&words);
}

static uint64_t random_state = 7;
static uint32_t random_below(uint32_t limit)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % limit;
}

/* Changes a few places: a byte, a line copied elsewhere, a line gone, a piece cut, a number changed. */
static size_t mutate(char *data, size_t size, size_t capacity)
{
    for (int changes = 1 + (int)random_below(4); changes > 0 && size; changes--) {
        size_t at = random_below((uint32_t)size), length = 1 + random_below(60);
        if (length > size - at) length = size - at;
        switch (random_below(5)) {
        case 0: data[at] = (char)random_below(256); break;
        case 1: data[at] = "%0123456789[]{}(),:=\n."[random_below(22)]; break;
        case 2:
            memmove(data + at, data + at + length, size - at - length);
            size -= length;
            break;
        case 3: {
            size_t from = random_below((uint32_t)size);
            if (length > size - from) length = size - from;
            if (size + length > capacity) break;
            char piece[64];
            memcpy(piece, data + from, length);
            memmove(data + at + length, data + at, size - at);
            memcpy(data + at, piece, length);
            size += length;
            break;
        }
        default:
            for (size_t i = at; i < size; i++) {
                if (data[i] < '0' || data[i] > '9') continue;
                data[i] = (char)('0' + random_below(10));
                break;
            }
        }
    }
    return size;
}

TEST(mutated_files_do_no_harm)
{
    char folder[] = QUERN_ROOT "/tests/text";
    int64_t stop = clock_now_ns() + 3000000000;
    char *files[64];
    size_t sizes[64];
    int count = 0, runs = 0;
    DIR *outer = opendir(folder);
    for (struct dirent *o; outer && (o = readdir(outer));) {
        char path[1000];
        snprintf(path, sizeof(path), "%s/%s", folder, o->d_name);
        DIR *inner = o->d_name[0] == '.' ? NULL : opendir(path);
        for (struct dirent *f; inner && (f = readdir(inner));) {
            size_t length = strlen(f->d_name);
            if (length < 5 || strcmp(f->d_name + length - 5, ".tile") || count == COUNT(files)) continue;
            snprintf(path, sizeof(path), "%s/%s/%s", folder, o->d_name, f->d_name);
            files[count] = read_all(path, &sizes[count]);
            if (files[count]) count++;
        }
        if (inner) closedir(inner);
    }
    if (outer) closedir(outer);
    EXPECT(count >= 2);
    for (; clock_now_ns() < stop; runs++) {
        int f = runs % count;
        size_t capacity = sizes[f] + 400;
        char *copy = malloc(capacity);
        memcpy(copy, files[f], sizes[f]);
        size_t size = runs < count ? sizes[f] : mutate(copy, sizes[f], capacity);
        LLVMFuzzerTestOneInput((const uint8_t *)copy, size);
        free(copy);
    }
    EXPECT(runs > 100);
    for (int i = 0; i < count; i++) free(files[i]);
}

TEST_MAIN(CASE(files_print_as_they_are), CASE(every_op_is_in_the_file), CASE(every_rule_is_kept),
          CASE(every_kernel_rule_is_kept), CASE(deep_nesting_is_an_error), CASE(mutated_files_do_no_harm))
