/*
 * Telling what was chosen for a product. In: a kernel with its choice. Out: lines: the recipe and tile that were taken, the
 * others with their estimated times, and where bulk copies do not feed it, why. The estimates are those that chose.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/dot.h"

static void print_tile(const dot_tiles *t, int64_t parts, text *out)
{
    text_print(out, "tile %dx%dx%d", t->rows, t->columns, t->depth);
    if (t->turns) text_add(out, ", in turns");
    if (t->stages) text_print(out, ", %d stages", t->stages);
    if (parts > 1) text_print(out, ", %lld parts of k", (long long)parts);
}

static bool is_same(const dot_tiles *a, const dot_tiles *b)
{
    return a->rows == b->rows && a->columns == b->columns && a->turns == b->turns;
}

void fuse_print_choices(const fuse_options *options, const fuse_kernel *k, text *out)
{
    const struct dot_choice *c = k->choice;
    if (!c) {
        text_print(out, "%s\n", k->note ? k->note : "no product: one recipe");
        return;
    }
    const dot_sizes *size = &c->size;
    text_print(out, "product of %lld x %lld x %lld", (long long)size->rows, (long long)size->columns,
               (long long)size->depth);
    if (size->products > 1) text_print(out, ", %lld of them", (long long)size->products);
    text_print(out, ", %s%s\n", dtypes[c->elem].text,
               size->taken && !size->terms ? " rounded to tf32 as they are read"
               : size->taken ? size->tf32 ? " rounded to two terms of bf16, split as they are read"
                                          : " as terms of bf16, split as they are read"
               : size->terms ? size->tf32 ? " rounded to two terms of bf16" : " as terms of bf16"
               : size->tf32  ? " rounded to tf32"
                             : "");
    const char *why = dot_why_not_fed(options, c->elem, size);
    text_print(out, "taken: %s%s, ", why ? "loads" : "fed", c->gathered ? ", gathered" : "");
    print_tile(&c->tiles, c->parts, out);
    if (why) {
        text_print(out, "\nrefused fed: %s\n", why);
        return;
    }
    dot_candidate all[DOT_CANDIDATES];
    int count = c->gathered && !size->windows ? 0 : dot_fed_candidates(options, size, all);
    text_add(out, "\n");
    for (int i = 0; i < count; i++) {
        text_print(out, "  %s %8.1f us  ", is_same(&all[i].tiles, &c->tiles) ? ">" : " ", all[i].time_ns / 1000);
        print_tile(&all[i].tiles, all[i].tiles.parts, out);
        text_print(out, " (tile=%d)\n", i + 1);
    }
}
