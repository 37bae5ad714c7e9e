/*
 * The report: a page that is well formed, needs nothing else and has the data; the model behind it: rows, lanes, kernels,
 * memory, the split of the time; limits; paths that cannot be written.
 * With QUERN_REPORT_FOLDER set the pages stay there, for `make check-report`; with QUERN_REPORT_CHECK that page is checked
 * and nothing else.
 * SPDX-License-Identifier: MIT
 */
#include "html.h"
#include "profile/report/report.h"
#include "test.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static qn_error error;
static char folder[300];

static const char *path_of(const char *name)
{
    static char path[400];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

/* The page at a path; the caller frees it. */
static char *check_page(const char *path)
{
    char *page = NULL;
    size_t size = 0;
    html_page checked;
    EXPECT(file_read(path, (size_t)64 << 20, &page, &size, &error) == QN_OK);
    if (!page) return calloc(1, 1);
    if (!html_check(&checked, page)) {
        printf("%s: %s\n", path, checked.message);
        EXPECT(!"a page that is well formed");
    }
    EXPECT(checked.data);
    return page;
}

/* ---- made-up records ---- */

static const int64_t origin_ns = 1000000000;

static qn_profile *made_up(int64_t capacity)
{
    qn_profile *p = calloc(1, sizeof(*p));
    p->kept = calloc((size_t)capacity, sizeof(*p->kept));
    p->device_kept = calloc((size_t)capacity, sizeof(*p->device_kept));
    p->device_overhead_share = NAN;
    p->start_ns = origin_ns;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    return p;
}

static record *add(qn_profile *p, record_kind kind, const char *name, int64_t from, int64_t to)
{
    record *r = &p->kept[p->kept_count++];
    *r = (record){.start_ns = origin_ns + from, .end_ns = origin_ns + to, .name = name, .kind = (uint16_t)kind};
    return r;
}

static device_record *add_on_device(qn_profile *p, const char *name, int64_t from, int64_t to)
{
    device_record *r = &p->device_kept[p->device_count++];
    *r = (device_record){.start_ns = origin_ns + from, .end_ns = origin_ns + to, .name = name, .grid = {4, 2, 1}};
    return r;
}

TEST(split)
{
    report_model m;
    qn_profile *p = made_up(100);
    add(p, RECORD_RANGE, "load batch", 0, 100);
    add(p, RECORD_LAUNCH, "k", 100, 120)->identity = 7;
    add_on_device(p, "k", 110, 200)->identity = 7;
    add(p, RECORD_COPY, "copy to the device", 190, 230);
    add(p, RECORD_STEP, "step", 0, 150)->a = 3;
    add(p, RECORD_STEP, "step", 150, 300)->a = 4;
    model_build(&m, p, 1000);
    EXPECT(m.span_ns == 300 && m.step_count == 2 && m.kernel_count == 1);
    EXPECT(m.class_ns[SLICE_KERNEL] == 90 && m.class_ns[SLICE_COPY] == 30 && m.class_ns[SLICE_RUNTIME] == 10);
    EXPECT(m.class_ns[SLICE_LOADING] == 100 && m.class_ns[SLICE_OTHER] == 70);
    EXPECT(m.steps[0].class_ns[SLICE_KERNEL] == 40 && m.steps[1].class_ns[SLICE_KERNEL] == 50);
    EXPECT(m.steps[0].class_ns[SLICE_LOADING] == 100 && m.steps[1].class_ns[SLICE_OTHER] == 70);
    EXPECT(m.device_count == 1 && m.devices[0].busy_ns == 90 && m.kernels[0].blocks == 8);
    text data = {0};
    report_data(&m, &data);
    EXPECT(strstr(text_get(&data), "\"arrows\":[") && !strstr(text_get(&data), "\"arrows\":[]"));
    text_free(&data);
    model_free(&m);
    qn_profile_free(p);
}

TEST(lanes)
{
    report_model m;
    qn_profile *p = made_up(100);
    add(p, RECORD_RANGE, "outer", 0, 100);
    add(p, RECORD_RANGE, "inner", 10, 50);
    add(p, RECORD_RANGE, "innermost", 20, 30);
    add(p, RECORD_RANGE, "second", 60, 70);
    add_on_device(p, "a", 0, 50);
    add_on_device(p, "b", 40, 60); /* at the same time, on the same stream: of a graph */
    model_build(&m, p, 1000);
    EXPECT(m.row_count == 2 && m.rows[0].lanes == 3 && m.rows[1].lanes == 2);
    EXPECT_TEXT(m.rows[1].name, "cuda stream 0");
    EXPECT(m.slices[0].lane == 0 && m.slices[1].lane == 1 && m.slices[2].lane == 2 && m.slices[3].lane == 1);
    EXPECT(m.devices[0].busy_ns == 60 && m.kernel_ns == 70);
    model_free(&m);
    qn_profile_free(p);
}

TEST(shortest_are_left_out)
{
    report_model m;
    qn_profile *p = made_up(1000);
    for (int i = 0; i < 1000; i++) add_on_device(p, i % 2 ? "odd" : "even", i * 1000, i * 1000 + 1 + i % 500);
    model_build(&m, p, 100);
    EXPECT(m.slice_count == 100 && m.left_out == 900 && m.left_out_below_ns > 400);
    EXPECT(m.kernel_count == 2 && m.kernels[0].calls == 500 && m.kernels[1].calls == 500); /* sums are of all */
    EXPECT(m.kernels[0].median_ns > 200 && m.kernels[0].median_ns < 300);
    model_free(&m);
    qn_profile_free(p);
}

TEST(memory)
{
    report_model m;
    qn_profile *p = made_up(100);
    const struct {
        record_kind kind;
        int64_t time, bytes, address;
    } events[] = {{RECORD_FREE, 5, 999, 1}, /* of before */
                  {RECORD_ALLOCATE, 10, 100, 2}, {RECORD_ALLOCATE, 20, 50, 3}, {RECORD_FREE, 30, 100, 2},
                  {RECORD_ALLOCATE, 40, 70, 2},  {RECORD_FREE, 50, 50, 3}};
    for (int i = 0; i < COUNT(events); i++) {
        record *r = add(p, events[i].kind, "memory of the device", events[i].time, events[i].time);
        r->a = events[i].bytes;
        r->b = events[i].address;
    }
    model_build(&m, p, 1000);
    EXPECT(m.memory_count == 1 && m.memories[0].count == 5 && m.memories[0].peak_bytes == 150);
    EXPECT(m.memories[0].points[4].bytes == 70 && m.slice_count == 0);
    model_free(&m);
    qn_profile_free(p);
}

TEST(roofs)
{
    const qn_roofline r = {.copy_gb_per_s = 1000,
                           .read_gb_per_s = 800,
                           .fma_f32_gflop_per_s = 10000,
                           .dot_bf16_gflop_per_s = 100000,
                           .dot_tf32_gflop_per_s = 50000};
    const char *bound;
    record_facts f = {.shapes = "x f32[9], y f32[9]", .read_bytes = 4e6, .written_bytes = 4e6, .flops = 1e6};
    EXPECT_NEAR(roof_share(&r, &f, 10000, &bound), 0.8, 1e-9);
    EXPECT_TEXT(bound, "memory");
    f.written_bytes = 0;
    EXPECT_NEAR(roof_share(&r, &f, 10000, &bound), 0.5, 1e-9); /* of reading */
    f.flops = 5e7;
    EXPECT_NEAR(roof_share(&r, &f, 10000, &bound), 0.5, 1e-9);
    f.flops = 9e7;
    EXPECT_NEAR(roof_share(&r, &f, 10000, &bound), 0.9, 1e-9);
    EXPECT_TEXT(bound, "compute");
    f.flops = 4e8; /* more than multiply-adds alone can do */
    EXPECT_NEAR(roof_share(&r, &f, 10000, &bound), 0.8, 1e-9);
    EXPECT_TEXT(bound, "tensor cores");
    f.shapes = "a bf16[9], b bf16[9], c f32[9]";
    f.flops = 6e8;
    EXPECT_NEAR(roof_share(&r, &f, 10000, &bound), 0.6, 1e-9);
    EXPECT(isnan(roof_share(&r, NULL, 10000, &bound)) && !bound);
    EXPECT(isnan(roof_share(&(qn_roofline){0}, &f, 10000, &bound)) && !bound);
}

/* The name of a slope makes way for a dot that lies where it would begin. */
TEST(names_lie_beside_dots)
{
    const roof roofs[] = {{"copy", 100, true, false}, {"multiply-add f32", 1000, false, false}};
    double places[2][2], dot[2];
    for (int on = 0; on < 2; on++) {
        /* at 0.1 operations a byte and the bandwidth, or far below it */
        const roof_dot d = {.name = "k",
                            .flops = 1e6,
                            .bytes = 1e7,
                            .time_ns = on ? 1e5 : 1e7,
                            .share = NAN,
                            .roof_share = NAN,
                            .kernel = -1};
        text out = {0};
        roofline_draw("cpu", roofs, COUNT(roofs), &d, 1, &out);
        const char *name = strstr(text_get(&out), "roof-name\" transform"), *circle = strstr(text_get(&out), "<circle");
        EXPECT(name && sscanf(name, "roof-name\" transform=\"translate(%lf %lf)", &places[on][0], &places[on][1]) == 2);
        EXPECT(circle && sscanf(circle, "<circle class=\"dot\" cx=\"%lf\" cy=\"%lf\"", &dot[0], &dot[1]) == 2);
        text_free(&out);
    }
    EXPECT(fabs(places[1][0] - places[0][0]) > 20 && places[1][0] > dot[0]);
}

/* Nothing is shown above 100 % of what was measured without a word why. */
TEST(shares_above_the_limit)
{
    static const char *const limits[] = {"memory", "compute", "tensor cores", "products", "copy", "read", "fma"};
    for (int i = 0; i < COUNT(limits); i++) {
        EXPECT_TEXT(limit_words(1.0, limits[i]), limits[i]);
        EXPECT_TEXT(limit_words(1.0049, limits[i]), limits[i]); /* shown as 100 */
        EXPECT(strchr(limit_words(1.006, limits[i]), '('));
    }
    EXPECT_TEXT(limit_words(1.2, "memory"), "memory (in cache)");
    EXPECT_TEXT(limit_words(NAN, "memory"), "memory");
    EXPECT(!limit_words(1.2, NULL));
}

/* Names that would break a page which wrote them as they are. */
TEST(hostile_names)
{
    qn_profile *p = made_up(100);
    add(p, RECORD_RANGE, "</script><script>alert(1)</script>", 0, 100);
    add_on_device(p, "twice<float, \"x\" & 'y'>\\ \xff", 0, 50)->facts = record_facts_keep(
        &(record_facts){.kernel = "<b>&amp;", .device = "cuda", .shapes = "<!-- x", .flops = NAN, .occupancy = NAN});
    EXPECT(qn_profile_report(p, path_of("hostile.html"), &(qn_report_options){.title = "<i> & \"t\"", .note = "<&>"},
                             &error) == QN_OK);
    char *page = check_page(path_of("hostile.html"));
    EXPECT(!strstr(page, "alert(1)</script>") && strstr(page, "&lt;i&gt; &amp; &quot;t&quot;"));
    free(page);
    qn_profile_free(p);
}

TEST(nothing_recorded)
{
    qn_profile *p;
    EXPECT(qn_profile_start(NULL, NULL, &p, &error) == QN_OK);
    EXPECT(qn_profile_report(p, path_of("none.html"), NULL, &error) == QN_BAD_CALL);
    EXPECT(strstr(error.message, "stop it first"));
    EXPECT(qn_profile_stop(p, &error) == QN_OK);
    EXPECT(qn_profile_report(p, path_of("none.html"), NULL, &error) == QN_OK);
    char *page = check_page(path_of("none.html"));
    EXPECT(strstr(page, "No kernel ran") && strstr(page, "Where the time went"));
    static const char *const empty[] = {"id=\"timeline-section\"", "id=\"kernels-section\"", "id=\"sums-section\"",
                                        "id=\"roofline\""};
    for (int i = 0; i < COUNT(empty); i++) EXPECT(!strstr(page, empty[i])); /* no tables of heads alone */
    free(page);
    EXPECT(qn_profile_report(NULL, "x.html", NULL, &error) == QN_BAD_CALL);
    EXPECT(qn_profile_report(p, NULL, NULL, &error) == QN_BAD_CALL);
    qn_profile_free(p);
}

/* What a run under counters kept: throughputs first, a share beyond all marked, names that may break. */
TEST(counters_on_the_page)
{
    static const char kept[] =
        "[{\"kernel\": \"k\", \"source\": \"a<b a.c:1\", \"shapes\": \"x f32[4]\", \"counter\": \"compute "
        "throughput\", "
        "\"unit\": \"%\", \"value\": 31.25, \"why\": null},\n"
        " {\"kernel\": \"k\", \"source\": \"a<b a.c:1\", \"shapes\": \"x f32[4]\", \"counter\": \"L1 throughput\", "
        "\"unit\": \"%\", \"value\": 140, \"why\": null}]\n";
    char path[4200];
    qn_profile *p;
    snprintf(path, sizeof(path), "%s", path_of("counters.json"));
    EXPECT(file_write(path, kept, strlen(kept), &error) == QN_OK);
    EXPECT(qn_profile_start(NULL, NULL, &p, &error) == QN_OK && qn_profile_stop(p, &error) == QN_OK);
    qn_report_options options = {.counters_path = path};
    EXPECT(qn_profile_report(p, path_of("counted.html"), &options, &error) == QN_OK);
    char *page = check_page(path_of("counted.html"));
    EXPECT(strstr(page, "id=\"counters-section\"") && strstr(page, "<td class=\"name\">a&lt;b a.c:1</td>"));
    EXPECT(strstr(page, ">compute<") && strstr(page, "31.2%") && strstr(page, "140.0% *"));
    free(page);
    qn_profile_free(p);
    remove(path);
    remove(path_of("counted.html"));
}

/* A page can be made of any results, of none too. */
TEST(results)
{
    static double samples[] = {1000, 1010, 1020, 1100, 990, 4000};
    const qn_bench_variant variants[] = {
        {.label = "a<1>",
         .kernel = "a",
         .message = "",
         .limit = "copy",
         .bytes = 8000,
         .flops = 1000,
         .share_of_limit = 0.5,
         .max_error = 0,
         .hot_ns = NAN,
         .time = {.samples_ns = samples,
                  .sample_count = COUNT(samples),
                  .median_ns = 1015,
                  .interval_low_ns = 1000,
                  .interval_high_ns = 1020,
                  .least_ns = 990,
                  .low_ns = 1000,
                  .high_ns = 1100,
                  .most_ns = 4000,
                  .severe_outliers = 1}},
        {.label = "b", .kernel = "b", .status = QN_VARIANT_WRONG, .message = "y[3] is 2 & not 3", .limit = ""}};
    const qn_bench_point point = {.file = "x.qn",
                                  .bench = "b",
                                  .device = "cpu",
                                  .arguments = "n = 1",
                                  .variants = variants,
                                  .variant_count = COUNT(variants),
                                  .ceilings = {.copy_gb_per_s = 16, .read_gb_per_s = 12, .fma_all_gflop_per_s = 100}};
    qn_bench_results r = {.environment = {.warnings = "busy"}};
    EXPECT(qn_bench_report(NULL, path_of("results.html"), NULL, &error) == QN_BAD_CALL);
    EXPECT(qn_bench_report(&r, path_of("results.html"), NULL, &error) == QN_OK);
    free(check_page(path_of("results.html")));
    r.points = &point;
    r.point_count = 1;
    EXPECT(qn_bench_report(&r, path_of("results.html"), NULL, &error) == QN_OK);
    char *page = check_page(path_of("results.html"));
    const char *const wanted[] = {"a&lt;1&gt; is the fastest, 1.01 us, 50 % of the limit: copy",
                                  "1 variant is wrong",
                                  "y[3] is 2 &amp; not 3",
                                  "1 beyond the picture",
                                  "class=\"dot\"",
                                  "busy"};
    for (int i = 0; i < COUNT(wanted); i++)
        if (!strstr(page, wanted[i])) test_fail(__FILE__, __LINE__, wanted[i]);
    free(page);
}

static bool exists(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0;
}

TEST(paths_that_fail)
{
    qn_profile *p = made_up(10);
    struct stat about;
    EXPECT(qn_profile_report(p, path_of("no/such/folder.html"), NULL, &error) == QN_BAD_FILE);
    EXPECT(strstr(error.message, "cannot write") && !exists(path_of("no/such/folder.html")));
    /* A device is written to, not replaced; a full one says so. */
    if (exists("/dev/full")) {
        EXPECT(qn_profile_report(p, "/dev/full", NULL, &error) == QN_BAD_FILE);
        EXPECT(strstr(error.message, "No space left"));
        EXPECT(stat("/dev/full", &about) == 0 && S_ISCHR(about.st_mode));
    }
    /* What was there stays until the new one is whole. */
    EXPECT(file_write(path_of("kept.html"), "old", 3, &error) == QN_OK);
    EXPECT(qn_profile_report(p, path_of("kept.html"), NULL, &error) == QN_OK);
    free(check_page(path_of("kept.html")));
    qn_profile_free(p);
}

/* ---- a real run, and a large one ---- */

static const char two_kernels[] =
    "kernel twice(in float x[n], out float y[n], const int B = 1024) launch (cdiv(n, B))\n"
    "{\n"
    "    int i = program(0) * B;\n"
    "    y[i : B] = 2 * x[i : B];\n"
    "}\n"
    "kernel bend(in float x[n], out float y[n], const int B = 1024) launch (cdiv(n, B))\n"
    "{\n"
    "    int i = program(0) * B;\n"
    "    tile float v[B] = x[i : B];\n"
    "    for (int k = 0; k < 20; k++)\n"
    "        v = v * v + 0.25;\n"
    "    y[i : B] = v;\n"
    "}\n";

TEST(real_run)
{
    enum { COUNT_OF_NUMBERS = 1 << 20 };
    qn_context *context;
    qn_module *module;
    qn_profile *p;
    float *x = calloc(COUNT_OF_NUMBERS, sizeof(*x)), *y = calloc(COUNT_OF_NUMBERS, sizeof(*y));
    int64_t n = COUNT_OF_NUMBERS;
    EXPECT(qn_context_open(&(qn_context_options){.no_cache = true, .threads = 2}, &context, &error) == QN_OK);
    EXPECT(qn_module_load_text(context, "two.qn", two_kernels, &module, &error) == QN_OK);
    EXPECT(qn_profile_start(context, NULL, &p, &error) == QN_OK);
    const char *const names[] = {"twice", "bend"};
    for (int step = 0; step < 4; step++) {
        QN_RANGE("load") for (int i = 0; i < COUNT_OF_NUMBERS; i += 16) x[i] = (float)(i + step);
        QN_RANGE("compute") for (int k = 0; k < 2; k++)
        {
            qn_call *call;
            EXPECT(qn_call_new(module, names[k], &call, &error) == QN_OK);
            EXPECT(qn_call_set_memory(call, "x", x, QN_F32, 1, &n, NULL, &error) == QN_OK);
            EXPECT(qn_call_set_memory(call, "y", y, QN_F32, 1, &n, NULL, &error) == QN_OK);
            EXPECT(qn_call_run(call, "cpu", &error) == QN_OK);
            qn_call_free(call);
        }
        qn_profile_step(p);
    }
    EXPECT(qn_profile_stop(p, &error) == QN_OK);
    qn_module_free(module); /* the kernels' texts stay */
    qn_report_options options = {.title = "Two kernels", .command = "test_report real_run"};
    EXPECT(qn_profile_report(p, path_of("real.html"), &options, &error) == QN_OK);
    char *page = check_page(path_of("real.html"));
    const char *const wanted[] = {"twice",           "bend",   "f32[1048576]",  "cpu ran kernels",      "of 2 threads",
                                  "Roofline of cpu", "step 3", "class=\"dot\"", "test_report real_run", "% of roof",
                                  "copy as CSV"};
    for (int i = 0; i < COUNT(wanted); i++)
        if (!strstr(page, wanted[i])) test_fail(__FILE__, __LINE__, wanted[i]);
    /* The ranges own the time of the kernels that were asked for inside. */
    const char *ranges = strstr(page, "id=\"ranges\""), *end = ranges ? strstr(ranges, "</table>") : NULL;
    const char *compute = ranges ? strstr(ranges, ">compute<") : NULL, *load = ranges ? strstr(ranges, ">load<") : NULL;
    const char *device = ranges ? strstr(ranges, "Device total") : NULL;
    EXPECT(ranges && end && compute && load && device && compute < end && load < end && device < end);
    free(page);
    qn_profile_free(p);
    qn_context_close(context);
    free(x);
    free(y);
}

/* As a training run on a GPU looks: 100,000 slices, launches tied to kernels, memory. */
TEST(large_run)
{
    enum { STEPS = 250, LAUNCHES = 200 };
    static const char *const names[] = {"matmul", "add_gelu", "layer_norm", "softmax", "dropout_add", "adamw"};
    const record_facts *facts[COUNT(names)];
    qn_profile *p = made_up(2 * STEPS * (LAUNCHES + 4));
    uint64_t state = 1;
    int64_t now = 0, device = 0;
    for (int i = 0; i < COUNT(names); i++)
        facts[i] = record_facts_keep(&(record_facts){.kernel = names[i],
                                                     .device = "cuda",
                                                     .shapes = "x f32[1024, 1024], y f32[1024, 1024]",
                                                     .file = "net.qn",
                                                     .line = 10 * i + 1,
                                                     .programs = 1024,
                                                     .read_bytes = 4e6 * (i + 1),
                                                     .written_bytes = 4e6,
                                                     .flops = i ? 1e7 * i : 2e9,
                                                     .occupancy = 0.25 + 0.1 * i,
                                                     .waves = 1.94,
                                                     .registers = 32 + 8 * i,
                                                     .limit = "registers"});
    for (int step = 0; step < STEPS; step++) {
        int64_t from = now;
        now += 20000;
        add(p, RECORD_RANGE, "load batch", from, now);
        for (int i = 0; i < LAUNCHES; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            int which = (int)((state >> 33) % COUNT(names));
            int64_t cost = 2000 + (int64_t)((state >> 40) % 2000), length = 1500 + 700 * which;
            record *r = add(p, RECORD_LAUNCH, names[which], now, now + cost);
            r->identity = (uint64_t)(step * LAUNCHES + i + 1);
            r->a = (intptr_t)facts[which];
            device = MAXIMUM(device, now + cost);
            device_record *d = add_on_device(p, names[which], device, device + length);
            d->identity = r->identity;
            d->facts = facts[which];
            d->stream = 7;
            device += length;
            now += cost;
            if (i % 40 == 0) {
                record *memory = add(p, i % 80 ? RECORD_FREE : RECORD_ALLOCATE, "memory of the device", now, now);
                memory->a = 1 << 20;
                memory->b = 4096;
            }
        }
        add(p, RECORD_WAIT, "wait for the stream", now, MAXIMUM(now + 100, device));
        now = MAXIMUM(now + 100, device);
        add(p, RECORD_STEP, "step", from, now)->a = step;
    }
    EXPECT(p->kept_count + p->device_count > 100000);
    p->device_source = "CUPTI activity";
    EXPECT(qn_profile_report(p, path_of("large.html"), NULL, &error) == QN_OK);
    char *page = check_page(path_of("large.html"));
    EXPECT(strlen(page) < 8000000);
    EXPECT(strstr(page, "and 190 more steps") && strstr(page, "CUPTI activity"));
    free(page);
    qn_profile_free(p);
}

int main(int argc, char **argv)
{
    const test_case cases[] = {CASE(split),
                               CASE(lanes),
                               CASE(shortest_are_left_out),
                               CASE(memory),
                               CASE(roofs),
                               CASE(names_lie_beside_dots),
                               CASE(shares_above_the_limit),
                               CASE(hostile_names),
                               CASE(nothing_recorded),
                               CASE(counters_on_the_page),
                               CASE(results),
                               CASE(paths_that_fail),
                               CASE(real_run),
                               CASE(large_run)};
    const char *keep = getenv("QUERN_REPORT_FOLDER"), *given = getenv("QUERN_REPORT_CHECK");
    if (given) { /* a page from elsewhere: is it whole? */
        free(check_page(given));
        return test_failures_of_case != 0;
    }
    snprintf(folder, sizeof(folder), "%s", keep ? keep : "/tmp/quern_report_XXXXXX");
    if (!keep && !mkdtemp(folder)) return 1;
    for (int i = 0; i < COUNT(cases); i++) {
        if (argc > 1 && strcmp(argv[1], cases[i].name) != 0) continue;
        test_failures_of_case = 0;
        cases[i].run();
        if (test_failures_of_case) printf("FAILED %s\n", cases[i].name);
        *(test_failures_of_case ? &test_failed : &test_passed) += 1;
    }
    static const char *const pages[] = {"hostile.html", "none.html",  "kept.html",
                                        "real.html",    "large.html", "results.html"};
    for (int i = 0; !keep && i < COUNT(pages); i++) unlink(path_of(pages[i]));
    if (!keep) rmdir(folder);
    printf("%d passed, %d failed\n", test_passed, test_failed);
    return test_failed != 0;
}
