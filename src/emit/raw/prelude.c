/*
 * The prelude of raw CUDA kernels, from the parts of prelude/raw. In: which of the vendor's types the text has itself, and
 * which of its headers it includes. Out: text that stands in for the usual headers, which NVRTC does not have.
 * SPDX-License-Identifier: MIT
 */
#include "emit/prelude_parts.h"
#include "emit/raw/raw.h"

static prelude_part parts[16];
static int part_count;

static void read_parts(void)
{
    part_count = prelude_read((const char *)prelude_raw_files, parts, COUNT(parts));
}

static void add_part(const char *name, text *out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_parts);
    const prelude_part *p = prelude_find(parts, part_count, name);
    CHECK(p);
    text_add_bytes(out, p->text.start, p->text.length);
}

/* instead: what a GPU's text has in their place, NULL: the same. */
static void add_one_type(const char *scalars, const char *pairs, const char *instead, text *out)
{
    if (instead) text_add(out, "#ifdef QUERN_EMU\n");
    add_part(scalars, out);
    add_part(pairs, out);
    if (instead) text_print(out, "#else\n%s#endif\n", instead);
}

void raw_prelude(bool own_half, bool own_brain, bool own_integers, text *out)
{
    if (own_integers) text_add(out, "#ifdef QUERN_EMU\n");
    add_part("integers", out);
    if (own_integers) text_add(out, "#endif\n");
    add_part("basics", out);
    add_part("common", out);
    add_one_type("halves", "half_pairs", own_half ? "" : NULL, out);
    add_one_type("brains", "brain_pairs", own_brain ? "struct __nv_bfloat16;\ntypedef __nv_bfloat16 bfloat;\n" : NULL,
                 out);
}

void raw_prelude_warps(bool has_fragments, bool has_groups, text *out)
{
    if (!has_fragments && !has_groups) return;
    text_add(out, "#ifdef QUERN_EMU\n");
    if (has_fragments) add_part("fragments", out);
    if (has_groups) add_part("groups", out);
    text_add(out, "#endif\n");
}
