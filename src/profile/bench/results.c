/*
 * The results of a bench as data that outlives it. In: points as they are finished, with their samples. Out: a
 * qn_bench_results whose memory is all in one arena; it is whole after every point, for those who write reports as they
 * go.
 * SPDX-License-Identifier: MIT
 */
#include "profile/bench/bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *keep(arena *memory, const char *words)
{
    return arena_copy_text(memory, words, strlen(words));
}

static qn_bench_time keep_time(arena *memory, const qn_bench_time *time)
{
    qn_bench_time copy = *time;
    copy.samples_ns = ARENA_ARRAY(memory, double, time->sample_count + 1);
    copy.sample_rounds = ARENA_ARRAY(memory, int, time->sample_count + 1);
    if (time->sample_count) {
        memcpy(copy.samples_ns, time->samples_ns, sizeof(double) * (size_t)time->sample_count);
        memcpy(copy.sample_rounds, time->sample_rounds, sizeof(int) * (size_t)time->sample_count);
    }
    return copy;
}

static qn_bench_comparison keep_comparison(arena *memory, const qn_bench_comparison *from)
{
    qn_bench_comparison copy = *from;
    copy.against = keep(memory, from->against ? from->against : "");
    if (!copy.verdict) copy.ratio = copy.ratio_low = copy.ratio_high = NAN;
    return copy;
}

static void keep_variant(const bench *b, arena *memory, const bench_variant *v, qn_bench_variant *out)
{
    static const qn_variant_status statuses[] = {[VARIANT_OK] = QN_VARIANT_OK,
                                                 [VARIANT_WRONG] = QN_VARIANT_WRONG,
                                                 [VARIANT_FAILED] = QN_VARIANT_FAILED,
                                                 [VARIANT_SKIPPED] = QN_VARIANT_SKIPPED};
    const char *limit = "";
    *out = (qn_bench_variant){.label = keep(memory, v->label),
                              .kernel = keep(memory, v->kernel),
                              .status = statuses[v->status],
                              .message = keep(memory, v->message),
                              .max_error = v->max_error,
                              .bytes = v->bytes,
                              .read_share = v->read_share,
                              .flops = v->flops,
                              .share_of_limit = share_of_limit(b, v, &limit),
                              .limit = "",
                              .time = v->status == VARIANT_OK ? keep_time(memory, &v->arm.time) : time_unknown(),
                              .hot_ns = v->hot_ns,
                              .first = keep_comparison(memory, &v->first),
                              .baseline = keep_comparison(memory, &v->baseline),
                              .baseline_ns = v->baseline_ns};
    if (isfinite(out->share_of_limit)) out->limit = keep(memory, limit);
}

static bool is_swept(const bench *b, const char *name)
{
    for (int i = 0; i < b->plan->count; i++)
        if (!strcmp(b->plan->items[i].name, name))
            return b->plan->items[i].choice_count > 1 || b->plan->items[i].leader;
    return false;
}

static const qn_bench_setting *keep_settings(const bench *b, arena *memory)
{
    qn_bench_setting *list = ARENA_ARRAY(memory, qn_bench_setting, b->at.count + 1);
    for (int i = 0; i < b->at.count; i++) {
        const point_setting *s = &b->at.items[i];
        double number = s->value.kind == BIND_INT     ? (double)s->value.number.i
                        : s->value.kind == BIND_FLOAT ? s->value.number.f
                                                      : NAN;
        list[i] = (qn_bench_setting){.name = keep(memory, s->name),
                                     .value = keep(memory, s->words),
                                     .number = number,
                                     .swept = is_swept(b, s->name)};
    }
    return list;
}

qn_bench_results *results_new(void)
{
    qn_bench_results *r = heap_new(sizeof(*r));
    r->memory = arena_new();
    return r;
}

void results_add(qn_bench_results *r, const bench *b, const char *path)
{
    arena *memory = r->memory;
    text arguments = {0};
    point_print(&b->at, &arguments);
    qn_bench_variant *variants = ARENA_ARRAY(memory, qn_bench_variant, b->variant_count + 1);
    for (int i = 0; i < b->variant_count; i++) keep_variant(b, memory, &b->variants[i], &variants[i]);
    qn_bench_point p = {.file = keep(memory, path),
                        .bench = keep(memory, b->block->name),
                        .device = keep(memory, b->device),
                        .arguments = keep(memory, text_get(&arguments)),
                        .settings = keep_settings(b, memory),
                        .setting_count = b->at.count,
                        .variants = variants,
                        .variant_count = b->variant_count,
                        .ceilings = b->ceilings,
                        .copies = b->arrays.copy_count,
                        .cache_bytes = (double)bench_cache_bytes(b),
                        .in_cache = b->arrays.in_cache};
    for (int i = 0; i < b->arrays.count; i++)
        p.copies_bytes += (double)b->arrays.items[i].size_bytes * b->arrays.copy_count;
    /* Points are read while more come: the list is copied as it grows, what it points at stays. */
    qn_bench_point *points = ARENA_ARRAY(memory, qn_bench_point, r->point_count + 1);
    if (r->point_count) memcpy(points, r->points, sizeof(p) * (size_t)r->point_count);
    points[r->point_count++] = p;
    r->points = points;
    for (int i = 0; i < p.setting_count && !r->sweep; i++)
        if (p.settings[i].swept && isfinite(p.settings[i].number)) r->sweep = p.settings[i].name;
    text_free(&arguments);
}

void qn_bench_results_free(qn_bench_results *results)
{
    if (!results) return;
    arena_free(results->memory);
    heap_free(results);
}
