/*
 * The kept numbers of a processor. In: the cache's folder. Out: how far text reads ahead, how many bodies of a loop go in
 * step, from what size on results are written around the caches. Measured by ceilings_numbers, when the machine's ceilings
 * are; the file is named after the processor, so that a folder that several machines share has one for each.
 * SPDX-License-Identifier: MIT
 */
#include "device/cpu/numbers.h"
#include "device/cpu/compiler.h"

#include <ctype.h>
#include <string.h>

cpu_numbers cpu_numbers_usual(void)
{
    /* Beyond 64 MB a socket's last cache is shared with others, or slower to write through than memory itself. */
    return (cpu_numbers){.near_bytes = 512,
                         .far_bytes = 8192,
                         .bodies = 4,
                         .stream_bytes = (int64_t)MINIMUM(processor_cache_bytes(3), (size_t)64 << 20)};
}

static void path_of(const char *folder, text *out)
{
    char name[128];
    processor_name(name, sizeof(name));
    for (char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c)) *c = '-';
    text_print(out, "%s/machine-%s.txt", folder, name);
}

static bool is_good(const cpu_numbers *n)
{
    enum { LEAST = 64, MOST = 1 << 16 };
    bool distances = n->near_bytes >= LEAST && n->near_bytes <= MOST && n->far_bytes >= LEAST && n->far_bytes <= MOST &&
                     n->near_bytes % LEAST == 0 && n->far_bytes % LEAST == 0;
    bool bodies = n->bodies == 1 || n->bodies == 2 || n->bodies == 4;
    return distances && bodies && n->stream_bytes >= 1 << 20 && n->stream_bytes <= (int64_t)1 << 40;
}

cpu_numbers cpu_numbers_find(const char *folder)
{
    cpu_numbers usual = cpu_numbers_usual(), kept = {.measured = true};
    if (!folder) return usual;
    text path = {0};
    char *words = NULL;
    size_t size;
    path_of(folder, &path);
    bool good = file_read_own(text_get(&path), 4096, &words, &size, NULL) == QN_OK;
    long long stream = 0;
    good = good && sscanf(words, "near_bytes %d far_bytes %d bodies %d stream_bytes %lld", &kept.near_bytes,
                          &kept.far_bytes, &kept.bodies, &stream) == 4;
    kept.stream_bytes = stream;
    heap_free(words);
    text_free(&path);
    return good && is_good(&kept) ? kept : usual;
}

void cpu_numbers_keep(const char *folder, const cpu_numbers *n)
{
    if (!folder) return;
    text path = {0}, words = {0};
    qn_error ignored; /* a folder that cannot be written only means that they are measured again */
    path_of(folder, &path);
    text_print(&words, "near_bytes %d\nfar_bytes %d\nbodies %d\nstream_bytes %lld\n", n->near_bytes, n->far_bytes,
               n->bodies, (long long)n->stream_bytes);
    (void)!file_write(text_get(&path), text_get(&words), words.length, &ignored);
    text_free(&path);
    text_free(&words);
}
