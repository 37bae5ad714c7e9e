/*
 * .npy files: round trips of every type, files as other programs write them (versions, byte orders, Fortran order), and
 * hostile ones: every refusal by its words, then thousands of mutations that must never crash or allocate by their say.
 * SPDX-License-Identifier: MIT
 */
#include "quiet.h"

#include <quern/workbench.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char path[64];

static void write_bytes(const void *bytes, size_t count)
{
    FILE *file = fopen(path, "wb");
    fwrite(bytes, 1, count, file);
    fclose(file);
}

/* A file with this header text, padded as the format asks, and data. */
static size_t make_file(unsigned char *to, int version, const char *words, const void *data, size_t bytes)
{
    size_t before = version == 1 ? 10 : 12, length = strlen(words);
    memcpy(to, "\x93NUMPY", 6);
    to[6] = (unsigned char)version;
    to[7] = 0;
    for (size_t i = 0; i < before - 8; i++) to[8 + i] = (unsigned char)(length >> 8 * i);
    memcpy(to + before, words, length);
    if (bytes) memcpy(to + before + length, data, bytes);
    return before + length + bytes;
}

static qn_status read_words(int version, const char *words, const void *data, size_t bytes, qn_npy *npy,
                            qn_error *error)
{
    unsigned char file[1024];
    write_bytes(file, make_file(file, version, words, data, bytes));
    return qn_npy_read(path, npy, error);
}

TEST(round_trip_of_every_type)
{
    qn_error error;
    for (int t = QN_F32; t <= QN_BOOL; t++) {
        unsigned char data[48], packed[48];
        for (int i = 0; i < 48; i++) data[i] = t == QN_BOOL ? (i & 1) : (unsigned char)(i * 5 + 1);
        qn_array a = {.data = data, .type = (qn_dtype)t, .rank = 2, .extents = {2, 3}, .strides = {3, 1}};
        EXPECT(qn_npy_write(path, &a, &error) == QN_OK);
        qn_npy back;
        EXPECT(qn_npy_read(path, &back, &error) == QN_OK);
        EXPECT(back.array.type == (t == QN_BF16 ? QN_F32 : (qn_dtype)t));
        EXPECT(back.array.rank == 2 && back.array.extents[0] == 2 && back.array.extents[1] == 3);
        EXPECT(back.array.strides[0] == 3 && back.array.strides[1] == 1);
        if (t != QN_BF16) {
            memcpy(packed, data, sizeof(packed));
            EXPECT(!memcmp(packed, back.array.data, 6 * qn_dtype_size_bytes((qn_dtype)t)));
        }
        qn_npy_free(&back);
    }
}

TEST(bf16_becomes_f4)
{
    qn_error error;
    uint16_t data[3] = {0x3f80, 0xc000, 0x3e80}; /* 1, -2, 0.25 */
    qn_array a = {.data = data, .type = QN_BF16, .rank = 1, .extents = {3}, .strides = {1}};
    EXPECT(qn_npy_write(path, &a, &error) == QN_OK);
    qn_npy back;
    EXPECT(qn_npy_read(path, &back, &error) == QN_OK);
    const float *f = back.array.data;
    EXPECT(f[0] == 1 && f[1] == -2 && f[2] == 0.25f);
    qn_npy_free(&back);
}

TEST(strided_views_are_packed)
{
    qn_error error;
    int32_t data[12];
    for (int i = 0; i < 12; i++) data[i] = i;
    qn_array a = {.data = data + 11, .type = QN_I32, .rank = 2, .extents = {3, 2}, .strides = {-1, -6}};
    EXPECT(qn_npy_write(path, &a, &error) == QN_OK);
    qn_npy back;
    EXPECT(qn_npy_read(path, &back, &error) == QN_OK);
    const int32_t expected[] = {11, 5, 10, 4, 9, 3};
    EXPECT(!memcmp(expected, back.array.data, sizeof(expected)));
    qn_npy_free(&back);
}

TEST(ranks_and_empty_arrays)
{
    qn_error error;
    double one = 3.5;
    qn_array a = {.data = &one, .type = QN_F64, .rank = 0};
    EXPECT(qn_npy_write(path, &a, &error) == QN_OK);
    qn_npy back;
    EXPECT(qn_npy_read(path, &back, &error) == QN_OK);
    EXPECT(back.array.rank == 0 && *(double *)back.array.data == 3.5);
    qn_npy_free(&back);
    qn_array none = {.type = QN_F32, .rank = 2, .extents = {0, 5}, .strides = {5, 1}};
    EXPECT(qn_npy_write(path, &none, &error) == QN_OK);
    EXPECT(qn_npy_read(path, &back, &error) == QN_OK);
    EXPECT(back.array.extents[0] == 0 && back.array.extents[1] == 5 && back.array.data != NULL);
    qn_npy_free(&back);
}

TEST(files_of_other_programs)
{
    qn_error error;
    qn_npy npy;
    const float f[6] = {0, 1, 2, 3, 4, 5};
    for (int version = 1; version <= 3; version++) {
        EXPECT(read_words(version, "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }   \n", f, sizeof(f),
                          &npy, &error) == QN_OK);
        EXPECT(npy.array.strides[0] == 1 && npy.array.strides[1] == 2);
        qn_npy_free(&npy);
    }
    const unsigned char big[8] = {0x3f, 0x80, 0, 0, 0xc0, 0, 0, 0}; /* 1, -2 */
    EXPECT(read_words(1, "{\"shape\":(2,),\"fortran_order\":False,\"descr\":\">f4\"}", big, 8, &npy, &error) == QN_OK);
    EXPECT(((float *)npy.array.data)[0] == 1 && ((float *)npy.array.data)[1] == -2);
    qn_npy_free(&npy);
    const unsigned char half[2] = {0x3c, 0x00};
    EXPECT(read_words(1, "{'descr': '>f2', 'fortran_order': False, 'shape': (1L,)}", half, 2, &npy, &error) == QN_OK);
    EXPECT(*(uint16_t *)npy.array.data == 0x3c00);
    qn_npy_free(&npy);
    const unsigned char odd_bools[3] = {0, 7, 255};
    EXPECT(read_words(1, "{'descr': '|b1', 'fortran_order': False, 'shape': (3,)}", odd_bools, 3, &npy, &error) ==
           QN_OK);
    EXPECT(!memcmp(npy.array.data, "\0\1\1", 3));
    qn_npy_free(&npy);
}

static void refused(int version, const char *words, size_t bytes, const char *reason)
{
    static const char zeros[256];
    qn_error error;
    qn_npy npy;
    EXPECT(read_words(version, words, zeros, bytes, &npy, &error) == QN_BAD_FILE);
    EXPECT(npy.memory == NULL);
    char expected[300];
    snprintf(expected, sizeof(expected), "%s: not a .npy file that Quern can read: %s", path, reason);
    EXPECT_TEXT(error.message, expected);
}

TEST(refusals)
{
    char pipe[] = "/tmp/quern-pipe-XXXXXX/p"; /* nobody writes to it: it is not waited for */
    qn_npy waits;
    qn_error why;
    pipe[22] = 0;
    EXPECT(mkdtemp(pipe) != NULL);
    pipe[22] = '/';
    EXPECT(mkfifo(pipe, 0600) == 0);
    EXPECT(qn_npy_read(pipe, &waits, &why) == QN_BAD_FILE && strstr(why.message, "not a plain file"));
    unlink(pipe);
    pipe[22] = 0;
    rmdir(pipe);

    refused(4, "{}", 0, "its version is not 1, 2 or 3");
    refused(1, "[]", 0, "its header is not a dictionary");
    refused(1, "{}", 0, "its header lacks descr, fortran_order or shape");
    refused(1, "{'descr' '<f4'}", 0, "its header is damaged");
    refused(1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", 4, "its type is not a simple one");
    refused(1, "{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}", 8,
            "elements of type '<c8' are not supported");
    refused(1, "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", 8, "elements of type '|O' are not supported");
    refused(1, "{'descr': '', 'fortran_order': False, 'shape': (1,)}", 8, "elements of type '' are not supported");
    refused(1, "{'descr': '<f4', 'fortran_order': 1, 'shape': (1,)}", 4, "its fortran_order is neither True nor False");
    refused(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", 4, "its shape has a bad extent");
    refused(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", 4,
            "its shape has a bad extent");
    refused(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}", 4, "it has more than 8 axes");
    refused(1, "{'descr': '<f4', 'fortran_order': False, 'shape': 3}", 12, "its shape is not a tuple");
    refused(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", 4,
            "it is shorter than its shape");
    refused(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904,)}", 4,
            "it is shorter than its shape");
    refused(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", 11, "it is shorter than its shape");
    refused(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x", 4,
            "its header has text after the dictionary");
    refused(1, "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", 4,
            "its header has an unknown or repeated key");
    qn_error error;
    qn_npy npy;
    write_bytes("PK\3\4 and more of it", 19);
    EXPECT(qn_npy_read(path, &npy, &error) == QN_BAD_FILE);
    write_bytes("\x93NUMPY\1\0\xff\xff{", 11);
    EXPECT(qn_npy_read(path, &npy, &error) == QN_BAD_FILE);
    EXPECT(strstr(error.message, "its header is longer than the file") != NULL);
    EXPECT(qn_npy_read(absent_path("file.npy"), &npy, &error) == QN_BAD_FILE);
    EXPECT(qn_npy_read("/tmp", &npy, &error) == QN_BAD_FILE);
    EXPECT(qn_npy_write(absent_path("file.npy"), &(qn_array){.data = &error, .type = QN_F32}, &error) == QN_BAD_FILE);
}

/* Mutations of good files: any answer is fine but a crash, a hang, or memory beyond the file's own size. */
TEST(mutations)
{
    const char *const seeds[] = {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }          \n",
                                 "{'descr': '>i8', 'fortran_order': True, 'shape': (), }\n",
                                 "{'descr': '|b1', 'fortran_order': False, 'shape': (24,), }\n"};
    const char data[24] = {1, 2, 3};
    unsigned state = 12345;
    int good = 0;
    for (int round = 0; round < 6000; round++) {
        unsigned char file[1024];
        size_t length = make_file(file, 1 + round % 3, seeds[round % 7 % 3], data, sizeof(data));
        int changes = 1 + round % 4;
        while (changes--) {
            state = state * 1664525 + 1013904223;
            size_t at = (state >> 8) % length;
            switch (state >> 28 & 3) {
            case 0: file[at] = (unsigned char)(state >> 4); break;
            case 1: file[at] = (unsigned char)"0123456789,()'{}<>-"[(state >> 20) % 19]; break;
            case 2: length = at + 1; break;
            default: memmove(file + at + 1, file + at, length - at); length++;
            }
        }
        write_bytes(file, length);
        qn_error error;
        qn_npy npy;
        if (qn_npy_read(path, &npy, &error) != QN_OK) continue;
        good++;
        EXPECT(npy.array.rank >= 0 && npy.array.rank <= QN_MAX_RANK);
        int64_t count = 1;
        for (int i = 0; i < npy.array.rank; i++) count *= npy.array.extents[i];
        EXPECT(count >= 0 && count * (int64_t)qn_dtype_size_bytes(npy.array.type) <= (int64_t)length);
        qn_npy_free(&npy);
    }
    EXPECT(good > 0);
}

TEST(setup)
{
    snprintf(path, sizeof(path), "/tmp/quern-npy-%d.npy", (int)getpid());
}

TEST(cleanup)
{
    EXPECT(unlink(path) == 0);
}

TEST_MAIN(CASE(setup), CASE(round_trip_of_every_type), CASE(bf16_becomes_f4), CASE(strided_views_are_packed),
          CASE(ranks_and_empty_arrays), CASE(files_of_other_programs), CASE(refusals), CASE(mutations), CASE(cleanup))
