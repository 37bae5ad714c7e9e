/*
 * A fuzz target for safetensors headers: the first 8 bytes are the length of the data, the rest is the header. Whatever it
 * is, it is accepted or refused with a message, within memory that its own length bounds.
 * SPDX-License-Identifier: MIT
 */
#include "data/safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t data_bytes = 0;
    qn_error error;
    if (size < 8) return 0;
    memcpy(&data_bytes, data, 8);
    /* exactly as long as it is, so that a step beyond its end is seen */
    char *header = malloc(size - 8 + (size == 8));
    memcpy(header, data + 8, size - 8);
    qn_status status = safetensors_check("fuzz", header, size - 8, data_bytes, &error);
    if (status != QN_OK && (status != QN_BAD_FILE || !error.message[0])) __builtin_trap();
    free(header);
    return 0;
}
