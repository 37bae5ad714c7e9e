/*
 * Reading cubins. In: the bytes that NVRTC made. Out: the registers, shared and local memory of each kernel, and the
 * occupancy that follows.
 *
 * A cubin is an ELF file: `.text.NAME` is a kernel's code, `.nv.shared.NAME` its static shared memory, `.nv.info` a list
 * of attributes by symbol (registers, stack), `.nv.info.NAME` those of one kernel. Everything is read with bounds
 * checked, since a cubin may come damaged from a cache.
 * SPDX-License-Identifier: MIT
 */
#include "device/cuda/cubin.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#define CUDA_MACHINE 190
#define SYSTEM_SHARED_BYTES 1024 /* of each block, from 8.0 on */

enum { FORMAT_WORDS = 4, ATTRIBUTE_MAX_THREADS = 0x05, ATTRIBUTE_FRAME_SIZE = 0x11, ATTRIBUTE_REGISTERS = 0x2f };

typedef struct elf_view {
    const char *bytes;
    size_t size;
    int section_count;
    uint64_t sections;
    const char *names; /* of sections */
    size_t names_size;
    int symbol_table; /* section number; 0: none */
} elf_view;

static bool section_get(const elf_view *e, int number, Elf64_Shdr *out)
{
    if (number < 0 || number >= e->section_count) return false;
    memcpy(out, e->bytes + e->sections + (size_t)number * sizeof(*out), sizeof(*out));
    return out->sh_type == SHT_NOBITS || (out->sh_offset <= e->size && out->sh_size <= e->size - out->sh_offset);
}

static const char *section_name(const elf_view *e, const Elf64_Shdr *s)
{
    if (s->sh_name >= e->names_size) return "";
    const char *name = e->names + s->sh_name;
    return memchr(name, 0, e->names_size - s->sh_name) ? name : "";
}

static bool elf_open(elf_view *e, const void *bytes, size_t size)
{
    Elf64_Ehdr head;
    Elf64_Shdr names;
    *e = (elf_view){.bytes = bytes, .size = size};
    if (size < sizeof(head)) return false;
    memcpy(&head, bytes, sizeof(head));
    if (memcmp(head.e_ident, ELFMAG, SELFMAG) || head.e_ident[EI_CLASS] != ELFCLASS64 ||
        head.e_machine != CUDA_MACHINE || head.e_shentsize != sizeof(Elf64_Shdr))
        return false;
    e->sections = head.e_shoff;
    e->section_count = head.e_shnum;
    if (head.e_shoff > size || (size_t)head.e_shnum * sizeof(Elf64_Shdr) > size - head.e_shoff) return false;
    if (!section_get(e, head.e_shstrndx, &names) || names.sh_type == SHT_NOBITS) return false;
    e->names = e->bytes + names.sh_offset;
    e->names_size = names.sh_size;
    for (int i = 0; i < e->section_count; i++) {
        Elf64_Shdr s;
        if (section_get(e, i, &s) && s.sh_type == SHT_SYMTAB) e->symbol_table = i;
    }
    return true;
}

static int section_find(const elf_view *e, const char *prefix, const char *name, Elf64_Shdr *out)
{
    size_t length = strlen(prefix);
    for (int i = 0; i < e->section_count; i++) {
        if (!section_get(e, i, out)) continue;
        const char *own = section_name(e, out);
        if (!strncmp(own, prefix, length) && !strcmp(own + length, name)) return i;
    }
    return -1;
}

const char *cubin_symbol(const void *bytes, size_t size_bytes, int number)
{
    elf_view e;
    if (!elf_open(&e, bytes, size_bytes)) return NULL;
    for (int i = 0; i < e.section_count; i++) {
        Elf64_Shdr s;
        if (!section_get(&e, i, &s) || s.sh_type != SHT_PROGBITS) continue;
        const char *name = section_name(&e, &s);
        if (!strncmp(name, ".text.", 6) && number-- == 0) return name + 6;
    }
    return NULL;
}

/* The number of a function in the symbol table; -1 if it is not there. */
static int64_t symbol_number(const elf_view *e, const char *name)
{
    Elf64_Shdr table, strings;
    if (!e->symbol_table || !section_get(e, e->symbol_table, &table) || !section_get(e, (int)table.sh_link, &strings) ||
        strings.sh_type == SHT_NOBITS)
        return -1;
    size_t length = strlen(name);
    for (uint64_t i = 0; (i + 1) * sizeof(Elf64_Sym) <= table.sh_size; i++) {
        Elf64_Sym symbol;
        memcpy(&symbol, e->bytes + table.sh_offset + i * sizeof(symbol), sizeof(symbol));
        if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_name >= strings.sh_size ||
            length >= strings.sh_size - symbol.st_name)
            continue;
        if (!memcmp(e->bytes + strings.sh_offset + symbol.st_name, name, length + 1)) return (int64_t)i;
    }
    return -1;
}

/* Attributes: format, number, size or value; with FORMAT_WORDS that many bytes follow. */
static void read_attributes(const elf_view *e, const Elf64_Shdr *section, int64_t symbol, cubin_usage *out)
{
    const char *p = e->bytes + section->sh_offset, *end = p + section->sh_size;
    while (end - p >= 4) {
        uint8_t format = (uint8_t)p[0], attribute = (uint8_t)p[1];
        uint16_t size;
        memcpy(&size, p + 2, sizeof(size));
        p += 4;
        if (format != FORMAT_WORDS) continue;
        if (size > end - p) return;
        uint32_t words[3] = {0};
        memcpy(words, p, MINIMUM(size, sizeof(words)));
        if (attribute == ATTRIBUTE_REGISTERS && words[0] == symbol) out->registers = (int)words[1];
        if (attribute == ATTRIBUTE_FRAME_SIZE && words[0] == symbol) out->local_bytes = words[1];
        if (attribute == ATTRIBUTE_MAX_THREADS) out->most_threads = (int)(words[0] * words[1] * words[2]);
        p += size;
    }
}

bool cubin_read(const void *bytes, size_t size_bytes, const char *symbol, cubin_usage *out)
{
    elf_view e;
    Elf64_Shdr code, section;
    *out = (cubin_usage){.spill_bytes = -1};
    if (!elf_open(&e, bytes, size_bytes) || section_find(&e, ".text.", symbol, &code) < 0) return false;
    out->code_bytes = (int64_t)code.sh_size;
    int64_t number = symbol_number(&e, symbol);
    if (number < 0) return false;
    if (section_find(&e, ".nv.info", "", &section) >= 0) read_attributes(&e, &section, number, out);
    if (section_find(&e, ".nv.info.", symbol, &section) >= 0) read_attributes(&e, &section, number, out);
    if (section_find(&e, ".nv.shared.", symbol, &section) >= 0) out->shared_bytes = (int64_t)section.sh_size;
    /* From 9.0 on the section counts what the system keeps for itself. */
    if (out->shared_bytes >= SYSTEM_SHARED_BYTES && section_find(&e, ".nv.shared.reserved.0", "", &section) >= 0)
        out->shared_bytes -= SYSTEM_SHARED_BYTES;
    if (!out->local_bytes) out->spill_bytes = 0;
    return out->registers > 0;
}

bool cubin_read_log(const char *log, const char *symbol, cubin_usage *usage)
{
    static const char head[] = "Function properties for ";
    size_t length = strlen(symbol);
    for (const char *p = log; (p = strstr(p, head));) {
        p += sizeof(head) - 1;
        if (strncmp(p, symbol, length) || (p[length] != '\n' && p[length] != '\r')) continue;
        const char *spill = strstr(p, " bytes spill stores");
        if (!spill) return false;
        while (spill > p && spill[-1] >= '0' && spill[-1] <= '9') spill--;
        long long stores = 0, loads = 0;
        if (sscanf(spill, "%lld bytes spill stores, %lld bytes spill loads", &stores, &loads) != 2) return false;
        usage->spill_bytes = stores + loads;
        return true;
    }
    return false;
}

/* ---- occupancy ---- */

typedef struct arch_limits {
    int arch, warps, blocks, shared_kb;
} arch_limits;

/* Of one multiprocessor, by compute capability; a newer one than the last is taken as the last. */
static const arch_limits limits[] = {{75, 32, 16, 64},   {80, 64, 32, 164},  {86, 48, 16, 100},  {87, 48, 16, 164},
                                     {89, 48, 24, 100},  {90, 64, 32, 228},  {100, 64, 32, 228}, {103, 64, 32, 228},
                                     {110, 48, 24, 228}, {120, 48, 24, 100}, {121, 48, 24, 100}};

occupancy occupancy_of(int arch, const cubin_usage *usage, int threads, int64_t dynamic_shared_bytes)
{
    const arch_limits *l = &limits[0];
    for (int i = 1; i < COUNT(limits) && limits[i].arch <= arch; i++) l = &limits[i];
    int warps = MAXIMUM((threads + 31) / 32, 1);
    /* Registers are given to whole warps, 256 at a time, from four equal parts of 16384. */
    int warp_registers = (MAXIMUM(usage->registers, 1) * 32 + 255) / 256 * 256;
    int by_registers = 4 * (16384 / warp_registers) / warps;
    int64_t shared = usage->shared_bytes + dynamic_shared_bytes + (arch >= 80 ? SYSTEM_SHARED_BYTES : 0);
    int by_shared = shared ? (int)MINIMUM((int64_t)l->shared_kb * 1024 / shared, 1024) : 1024;
    occupancy o = {.blocks = l->warps / warps, .most_warps = l->warps, .limit = "threads"};
    const struct {
        int blocks;
        const char *limit;
    } others[] = {{by_registers, "registers"}, {by_shared, "shared memory"}, {l->blocks, "blocks"}};
    for (int i = 0; i < COUNT(others); i++)
        if (others[i].blocks < o.blocks) {
            o.blocks = others[i].blocks;
            o.limit = others[i].limit;
        }
    o.warps = o.blocks * warps;
    return o;
}
