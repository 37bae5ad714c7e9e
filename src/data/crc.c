/*
 * CRC-32 as gzip and Parquet's pages use it, eight bytes at a time with tables that are computed once.
 * SPDX-License-Identifier: MIT
 */
#include "data/parquet.h"

#include <pthread.h>
#include <string.h>

static uint32_t tables[8][256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void fill_tables(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++) c = c & 1 ? 0xedb88320u ^ c >> 1 : c >> 1;
        tables[0][i] = c;
    }
    for (int t = 1; t < 8; t++)
        for (int i = 0; i < 256; i++) tables[t][i] = tables[0][tables[t - 1][i] & 255] ^ tables[t - 1][i] >> 8;
}

uint32_t crc32_of(const void *data, size_t size)
{
    pthread_once(&once, fill_tables);
    const uint8_t *at = data;
    uint32_t crc = ~0u;
    for (; size >= 8; size -= 8, at += 8) {
        crc ^= (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
        crc = tables[7][crc & 255] ^ tables[6][crc >> 8 & 255] ^ tables[5][crc >> 16 & 255] ^ tables[4][crc >> 24] ^
              tables[3][at[4]] ^ tables[2][at[5]] ^ tables[1][at[6]] ^ tables[0][at[7]];
    }
    for (; size; size--, at++) crc = tables[0][(crc ^ *at) & 255] ^ crc >> 8;
    return ~crc;
}
