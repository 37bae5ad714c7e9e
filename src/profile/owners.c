/*
 * Time of devices, given to those who called for it. In: kept records of kernels, launches, ranges and shares. Out: parts
 * of kernels, each with an operation and a range.
 *
 * A launch that records of kind SHARE follow belongs to their operations and ranges; one of a captured step has its
 * owners among its facts, and their ranges stand inside the one that replays it; a graph whose kernels the device did not
 * tell apart is its kernels, in order, by their bytes and FLOPs. Any other belongs to what encloses it on the host.
 * SPDX-License-Identifier: MIT
 */
#include "profile/owners.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double flops_a_byte = 8; /* of parts of a graph, as in run/evaluate/shares.c */

typedef struct owners {
    const qn_profile *profile;
    const nesting *nesting;
    owned_take *take;
    void *user;
    int64_t *ranges;        /* by number of a range: its record, plus 1; open addressing */
    int64_t *shares, *next; /* by identity: its last share, plus 1, likewise; by record: the one before, plus 1 */
    uint64_t mask;
    struct piece {
        const char *op, *kernel;
        const range_path *path;
        const record_facts *facts;
        int64_t range;
        double weight;
    } * pieces; /* of one kernel; heap */
    int piece_count, piece_capacity;
    bool no_memory;
} owners;

/* ---- tables ---- */

static uint64_t slot_of(const owners *s, const int64_t *table, uint64_t key, bool range)
{
    uint64_t at = key * 0x9e3779b97f4a7c15u & s->mask;
    for (; table[at]; at = (at + 1) & s->mask) {
        const record *r = &s->profile->kept[table[at] - 1];
        if ((range ? (uint64_t)r->a : r->identity) == key) break;
    }
    return at;
}

static bool make_tables(owners *s)
{
    const qn_profile *p = s->profile;
    uint64_t size = 1024;
    while (size < 2 * (uint64_t)p->kept_count) size *= 2;
    s->mask = size - 1;
    s->ranges = calloc(size, sizeof(int64_t));
    s->shares = calloc(size, sizeof(int64_t));
    s->next = calloc((size_t)p->kept_count + 1, sizeof(int64_t));
    if (!s->ranges || !s->shares || !s->next) return false;
    for (int64_t i = 0; i < p->kept_count; i++) {
        const record *r = &p->kept[i];
        if (r->kind == RECORD_RANGE && r->a) s->ranges[slot_of(s, s->ranges, (uint64_t)r->a, true)] = i + 1;
        if (r->kind != RECORD_SHARE) continue;
        uint64_t at = slot_of(s, s->shares, r->identity, false);
        s->next[i] = s->shares[at];
        s->shares[at] = i + 1;
    }
    return true;
}

/* ---- one kernel ---- */

/* The range that encloses a record of the host; -1: none. */
static int64_t range_around(const owners *s, int64_t host)
{
    while (host >= 0 && s->profile->kept[host].kind != RECORD_RANGE) host = s->nesting->parent[host];
    return host;
}

static void add_piece(owners *s, struct piece one)
{
    if (s->piece_count == s->piece_capacity) {
        int capacity = s->piece_capacity ? 2 * s->piece_capacity : 64;
        struct piece *grown = realloc(s->pieces, sizeof(*grown) * (size_t)capacity);
        s->no_memory |= !grown;
        if (!grown) return;
        s->pieces = grown;
        s->piece_capacity = capacity;
    }
    s->pieces[s->piece_count++] = one;
}

static void add_owners(owners *s, const record_facts *f, int64_t around, double weight)
{
    for (int i = 0; i < f->owner_count; i++)
        add_piece(
            s, (struct piece){f->owners[i].op, f->kernel, f->owners[i].range, f, around, weight * f->owners[i].weight});
    if (!f->owner_count) add_piece(s, (struct piece){NULL, f->kernel, NULL, f, around, weight});
}

double owners_cost(const record_facts *f)
{
    double cost = f->read_bytes + f->written_bytes + (isfinite(f->flops) ? f->flops : 0) / flops_a_byte;
    return isfinite(cost) && cost > 0 ? cost : 1;
}

/* "linear+gelu train.c:25": the operations by the names that the user called, and the last one's place. */
const char *owners_source(arena *memory, const record_facts *f)
{
    enum { MOST = 48 };
    if (!f->ops && !f->file) return NULL;
    text words = {0};
    for (const char *c = f->ops ? f->ops : ""; *c; c += strspn(c, " ")) {
        size_t length = strcspn(c, " ");
        bool known = false; /* each once: `adam+linear` is easier read than adam+linear+adam+linear */
        for (const char *o = f->ops; o < c; o += strcspn(o, " "), o += strspn(o, " "))
            known |= strcspn(o, " ") == length && !strncmp(o, c, length);
        if (!known && words.length < MOST) text_print(&words, "%s%.*s", words.length ? "+" : "", (int)length, c);
        if (!known && words.length + length >= MOST) {
            text_add(&words, "+...");
            break;
        }
        c += length;
    }
    if (!f->ops) text_add(&words, f->kernel);
    const char *slash = f->file ? strrchr(f->file, '/') : NULL;
    if (f->file) text_print(&words, "%s%s:%d", words.length ? " " : "", slash ? slash + 1 : f->file, f->line);
    const char *copy = arena_copy_text(memory, text_get(&words), words.length);
    text_free(&words);
    return copy;
}

static void add_graph(owners *s, const record_facts *f, int64_t around)
{
    double sum = 0;
    for (int i = 0; i < f->part_count; i++) sum += owners_cost(f->parts[i]);
    for (int i = 0; i < f->part_count; i++) add_owners(s, f->parts[i], around, owners_cost(f->parts[i]) / sum);
}

static void add_shares(owners *s, int64_t last, const char *kernel, const record_facts *f, int64_t around)
{
    const qn_profile *p = s->profile;
    for (int64_t at = last; at; at = s->next[at - 1]) {
        const record *r = &p->kept[at - 1];
        int64_t range = r->a == RECORD_WHERE_IT_RAN ? around : -1;
        if (r->a > 0) {
            int64_t found = s->ranges[slot_of(s, s->ranges, (uint64_t)r->a, true)];
            range = found ? found - 1 : around; /* one that is still open, or was not kept */
        }
        add_piece(s, (struct piece){r->name, kernel, NULL, f, range, record_share_weight(r)});
    }
    for (int a = 0, b = s->piece_count - 1; a < b; a++, b--) { /* as they were recorded */
        struct piece swap = s->pieces[a];
        s->pieces[a] = s->pieces[b];
        s->pieces[b] = swap;
    }
}

/* The ranges of a piece by what tells them apart, outermost first. */
static int chain_of(const owners *s, const struct piece *one, const void *chain[RANGE_DEPTH])
{
    int count = 0;
    for (const range_path *at = one->path; at && count < RANGE_DEPTH; at = at->parent) chain[count++] = at;
    for (int64_t at = one->range; at >= 0 && count < RANGE_DEPTH; at = s->nesting->parent[at])
        if (s->profile->kept[at].kind == RECORD_RANGE) chain[count++] = &s->profile->kept[at];
    for (int a = 0, b = count - 1; a < b; a++, b--) {
        const void *swap = chain[a];
        chain[a] = chain[b];
        chain[b] = swap;
    }
    return count;
}

static int common_ranges(const owners *s)
{
    const void *first[RANGE_DEPTH], *other[RANGE_DEPTH];
    int common = chain_of(s, &s->pieces[0], first);
    for (int i = 1; i < s->piece_count && common; i++) {
        int count = chain_of(s, &s->pieces[i], other), same = 0;
        while (same < common && same < count && first[same] == other[same]) same++;
        common = same;
    }
    return common;
}

/* Whole nanoseconds, so that the parts add up: what is left over is the last one's. */
static void give_out(owners *s, int64_t host, int64_t device, int64_t start_ns, int64_t end_ns)
{
    bool ranges = false;
    double done = 0;
    int64_t from = start_ns;
    for (int i = 1; i < s->piece_count; i++)
        ranges |= s->pieces[i].range != s->pieces[0].range || s->pieces[i].path != s->pieces[0].path;
    int common = ranges ? common_ranges(s) : RANGE_DEPTH;
    for (int i = 0; i < s->piece_count; i++) {
        const struct piece *one = &s->pieces[i];
        done += one->weight;
        int64_t to = i == s->piece_count - 1
                         ? end_ns
                         : MINIMUM(start_ns + (int64_t)(done * (double)(end_ns - start_ns)), end_ns);
        s->take(s->user, &(owned){.range = one->range,
                                  .path = one->path,
                                  .op = one->op,
                                  .kernel = one->kernel,
                                  .facts = one->facts,
                                  .start_ns = from,
                                  .end_ns = to,
                                  .host = host,
                                  .device = device,
                                  .shared = s->piece_count > 1,
                                  .shared_between_ranges = ranges,
                                  .common = common});
        from = to;
    }
    s->piece_count = 0;
}

static void visit(owners *s, int64_t host, int64_t device, uint64_t identity, const record_facts *f, const char *name)
{
    int64_t around = range_around(s, host);
    int64_t last = identity ? s->shares[slot_of(s, s->shares, identity, false)] : 0;
    if (f && f->part_count)
        add_graph(s, f, around);
    else if (f && f->owner_count)
        add_owners(s, f, around, 1);
    else if (last)
        add_shares(s, last, name, f, around);
    else
        add_piece(s, (struct piece){NULL, name, NULL, f, around, 1});
    if (device >= 0)
        give_out(s, host, device, s->profile->device_kept[device].start_ns, s->profile->device_kept[device].end_ns);
    else
        give_out(s, host, device, s->profile->kept[host].start_ns, s->profile->kept[host].end_ns);
}

qn_status owners_visit(const qn_profile *p, const nesting *n, owned_take *take, void *user, qn_error *error)
{
    owners s = {.profile = p, .nesting = n, .take = take, .user = user};
    bool good = make_tables(&s);
    for (int64_t i = 0; good && i < n->count; i++)
        if (p->kept[i].kind == RECORD_KERNEL)
            visit(&s, i, -1, p->kept[i].identity, record_facts_of(&p->kept[i]), p->kept[i].name);
    for (int64_t i = 0; good && i < n->device_count; i++) {
        const device_record *d = &p->device_kept[i];
        bool runs = d->kind == DEVICE_KERNEL || d->kind == DEVICE_GRAPH;
        visit(&s, n->host[i], i, runs ? d->identity : 0, d->facts, d->facts ? d->facts->kernel : d->name);
    }
    heap_free(s.ranges);
    heap_free(s.shares);
    heap_free(s.next);
    heap_free(s.pieces);
    return good && !s.no_memory
               ? QN_OK
               : error_set(error, QN_NO_MEMORY, "no memory to find whose %lld records are", (long long)p->kept_count);
}

int owners_ranges(const qn_profile *p, const nesting *n, const owned *o, const char *names[RANGE_DEPTH])
{
    int count = 0;
    for (const range_path *at = o->path; at && count < RANGE_DEPTH; at = at->parent) names[count++] = at->name;
    for (int64_t at = o->range; at >= 0 && count < RANGE_DEPTH; at = n->parent[at])
        if (p->kept[at].kind == RECORD_RANGE) names[count++] = p->kept[at].name;
    for (int a = 0, b = count - 1; a < b; a++, b--) {
        const char *swap = names[a];
        names[a] = names[b];
        names[b] = swap;
    }
    return count;
}
