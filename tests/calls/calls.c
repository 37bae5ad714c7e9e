/*
 * Calls every public function as nobody should; calls.h, made from the headers by calls.awk, has the calls. Each function
 * runs in a process of its own, in several ways: with NULL in the place of every pointer and zero for every number (with
 * nothing else there, without an error to fill, with a context, with a tape, module, call and buffer), and then a number
 * of times with arguments chosen at random among what is there, what is not and what is wrong: handles of every kind, or
 * NULL; tensors that are empty, released, of another tape, of types and shapes that do not fit; numbers at the ends of
 * their types; axes and ranks that are not; words that are paths, escapes, patterns or long. What returns a tensor of few
 * elements has it computed.
 *
 * Expected: no signal, an end in time, and of what returns a status that it and the error agree. Arrays that the calls
 * get are longer than any count that goes with them, since memory that is not there cannot be found out.
 * Usage: calls [ROUNDS [SEED [NAME]]]. SPDX-License-Identifier: MIT
 */
#define QN_NO_CALL_SITES
#include "headers.h"
#include <dirent.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))
#define LIMIT_S 60

static qn_error error, *ERROR = &error;
static qn_status status = QN_OK;
static qn_tensor result;
static qn_context *CONTEXT;
#ifdef __SANITIZE_ADDRESS__
enum { ODD = 8 }; /* that of undefined behaviour tells of results and options that are not aligned before we can */
#else
enum { ODD = 1 };
#endif
static qn_tape *TAPE;
static qn_module *MODULE;
static qn_call *CALL;
static qn_buffer *BUFFER;

/* ---- what is there ---- */

static void *the_qn_context, *the_qn_module, *the_qn_call, *the_qn_buffer, *the_qn_tape, *the_qn_stream, *the_qn_event,
    *the_qn_graph, *the_qn_plan, *the_qn_model, *the_qn_optimizer, *the_qn_dataset, *the_qn_metadata,
    *the_qn_safetensors, *the_qn_loader, *the_qn_meter, *the_qn_dlrm, *the_qn_profile, *the_qn_counting;
static qn_tensor tensors[64];
static int tensor_count;
static _Alignas(64) char memory[1 << 20];
static _Alignas(64) char zeros[1 << 17];

static uint64_t state = 1;

static uint32_t any(uint32_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % below;
}

static void *choose_handle(void **handle)
{
    return any(8) ? *handle : NULL;
}

static int64_t choose_number(void)
{
    static const int64_t numbers[] = {
        0,  1,       2,          3,       4,         7,         -1,           -2,        8,    9,  64,
        99, 100,     INT_MAX,    INT_MIN, INT64_MAX, INT64_MIN, UINT_MAX,     1ll << 40, -100, 12, 5,
        31, 1 << 30, -(1 << 30), 255,     1ll << 62, 1000,      INT64_MAX - 1};
    return numbers[any(any(2) ? 6 : COUNT(numbers))];
}

static int choose_count(void)
{
    static const int counts[] = {0, 1, 2, 3, 4, 5, 8, 9, 16, -1, -2, INT_MIN, -100};
    return counts[any(any(2) ? 5 : COUNT(counts))];
}

static double choose_double(void)
{
    static const double numbers[] = {0, 1, 0.5, 2, -1, NAN, INFINITY, -INFINITY, 1e308, -1e308, 5e-324, 1e19, -0.0};
    return numbers[any(COUNT(numbers))];
}

static bool choose_bool(void)
{
    return any(2);
}

static const char *choose_words(void)
{
    static char many[6000];
    static const char *const words[] = {"k",
                                        "f",
                                        "x",
                                        "y",
                                        "n",
                                        "ref",
                                        "k.qn",
                                        "broken.qn",
                                        "",
                                        "none",
                                        "a b",
                                        "%s%n%d",
                                        "\x1b[31mred",
                                        "\xff\xfe",
                                        "../..",
                                        "/",
                                        "/none/x",
                                        "t.npy",
                                        "t.safetensors",
                                        "cpu:9",
                                        "f32",
                                        "ij,jk->ik",
                                        "linear",
                                        "0.weight",
                                        "1 << 70",
                                        "-1",
                                        "nan",
                                        "1e999",
                                        "*",
                                        "...->",
                                        "[",
                                        "{\"a\": 1}",
                                        "out.file"};
    if (!many[0]) memset(many, 'a', sizeof(many) - 1);
    uint32_t n = any(COUNT(words) + 6);
    return n < COUNT(words) ? words[n] : n == COUNT(words) ? many : n == COUNT(words) + 1 ? NULL : words[any(9)];
}

static const char *const *choose_list(void)
{
    static const char *list[64], *const holes[64];
    if (!any(4)) return any(2) ? holes : NULL;
    for (int i = 0; i < 63; i++) {
        const char *w = i < 8 ? choose_words() : NULL;
        list[i] = w;
    }
    return list;
}

static void *choose_memory(void)
{
    return any(8) ? any(8) ? memory : memory + ODD : NULL;
}

static qn_tensor choose_tensor(void)
{
    return tensors[any((uint32_t)tensor_count)];
}

static qn_tensor *choose_tensors(void)
{
    static qn_tensor some[64];
    for (int i = 0; i < 64; i++) some[i] = choose_tensor();
    if (any(2)) /* a call that would be right but for the rest */
        for (int i = 1; i < 64; i++) some[i] = some[0];
    return any(8) ? some : NULL;
}

/* Of few elements, or of more than there can be: memory is behind those that are possible. */
static qn_shape choose_qn_shape(void)
{
    static const qn_shape shapes[] = {{0, {0}},
                                      {1, {4}},
                                      {2, {2, 2}},
                                      {2, {4, 3}},
                                      {1, {0}},
                                      {3, {2, 0, 3}},
                                      {2, {-1, 2}},
                                      {2, {-1, -1}},
                                      {1, {-5}},
                                      {2, {1ll << 62, 1ll << 62}},
                                      {1, {INT64_MAX}},
                                      {1, {INT64_MIN}},
                                      {3, {INT64_MAX, 0, INT64_MAX}},
                                      {-1, {1}},
                                      {QN_TENSOR_RANK, {1, 1, 1, 1, 1, 1, 1, 2}},
                                      {QN_TENSOR_RANK + 1, {1, 1, 1, 1, 1, 1, 1, 1}},
                                      {1000, {1}},
                                      {INT_MAX, {1}},
                                      {INT_MIN, {1}},
                                      {1, {1}},
                                      {2, {1, 1}},
                                      {4, {1, 2, 1, 3}}};
    return shapes[any(COUNT(shapes))];
}

static qn_axes choose_qn_axes(void)
{
    static const qn_axes axes[] = {
        {0, {0}},       {1, {0}},      {1, {-1}},      {2, {0, 1}}, {2, {1, 0}},
        {2, {0, 0}},    {1, {99}},     {1, {INT_MIN}}, {-1, {0}},   {QN_TENSOR_RANK + 1, {0}},
        {INT_MAX, {0}}, {3, {2, 0, 1}}};
    return axes[any(COUNT(axes))];
}

static qn_position choose_qn_position(void)
{
    qn_position p = the_qn_dataset ? qn_dataset_tell(the_qn_dataset) : (qn_position){0};
    if (any(2)) p.epoch = choose_number();
    if (any(2)) p.row = choose_number();
    if (!any(3)) p.check++;
    return p;
}

static qn_init choose_qn_init(void)
{
    return (qn_init){(qn_init_kind)choose_number(), choose_double(), choose_double(), choose_number(), choose_number()};
}

static qn_tensor same(qn_tensor x)
{
    return x;
}
typedef qn_tensor one_tensor(qn_tensor x);
static one_tensor *choose_activation(void)
{
    return any(4) ? any(2) ? same : qn_gelu : NULL;
}

static void take_text(void *user, const char *text, size_t length)
{
    (void)user;
    size_t kept = length < sizeof(memory) ? length : sizeof(memory);
    memcpy(memory, text, kept);
}
static void delete_nothing(void *user, void *data)
{
    (void)user, (void)data;
}
static qn_tensor forward_first(qn_model *self, const qn_tensor *inputs, int count, void *user)
{
    (void)self, (void)user;
    return count ? inputs[0] : (qn_tensor){0};
}
static bool read_nothing(void *user, const char *prompt, char *line, size_t size)
{
    (void)user, (void)prompt;
    if (size) line[0] = 0;
    return false;
}
static bool go_on(void *user, int64_t rows, int64_t all)
{
    (void)user, (void)rows, (void)all;
    return any(2);
}
static bool take_numbers(void *user, const float *probabilities, int64_t count)
{
    (void)user, (void)probabilities, (void)count;
    return any(2);
}
static void work_a_little(void *user)
{
    (void)user;
}
static qn_status fill_batch(qn_loaded *batch, void *user, qn_error *e)
{
    (void)user, (void)e;
    batch->rows = batch->number < 3 ? 2 : 0;
    return QN_OK;
}
#define CHOOSE(type, function)           \
    static type *choose_##type(void)     \
    {                                    \
        return any(8) ? function : NULL; \
    }
CHOOSE(qn_write, take_text)
CHOOSE(qn_deleter, delete_nothing)
CHOOSE(qn_forward, forward_first)
CHOOSE(qn_read_line, read_nothing)
CHOOSE(qn_data_progress, go_on)
CHOOSE(qn_dlrm_take, take_numbers)
CHOOSE(qn_bench_function, work_a_little)

/* Zeros, which are every structure's defaults; of some, what keeps a run short. */
static void *choose_struct(const char *type)
{
    static qn_dlrm_options train = {.made_rows = 200, .made_limit = 20, .steps = 2, .device = "ref"};
    static qn_dlrm_config config;
    static qn_make_options make = {.rows = 20, .cardinality_limit = 8};
    static qn_time_options time = {.seconds = 0.001};
    static qn_loader_options loader;
    static char chosen[4][1 << 14];
    static int next;
    if (!any(8)) return NULL;
    if (!strcmp(type, "qn_dlrm_options")) return &train;
    if (!strcmp(type, "qn_make_options")) return &make;
    if (!strcmp(type, "qn_time_options")) return &time;
    if (!strcmp(type, "qn_dlrm_config") && any(2)) {
        config = qn_dlrm_defaults();
        return &config;
    }
    if (!strcmp(type, "qn_loader_options")) {
        loader = (qn_loader_options){.fill = any(4) ? fill_batch : NULL, .field_count = choose_count() % 9};
        for (int i = 0; i < QN_LOADER_FIELDS; i++) loader.fields[i] = (qn_field){(qn_dtype)any(15), choose_qn_shape()};
        loader.threads = choose_count();
        loader.slots = choose_count();
        loader.first = choose_number();
        return &loader;
    }
    return memset(chosen[next++ % 4], 0, sizeof(chosen[0]));
}

static void add_tensor(qn_tensor t)
{
    if (tensor_count < COUNT(tensors)) tensors[tensor_count++] = t;
}

static const char text[] = "kernel k(in float x[n], out float y[n]) launch (n) { y[program(0)] = x[program(0)]; }\n"
                           "tensor f(float x[n]) { return x + 1; }\n"
                           "bench b (n = 4) { k }\n";

static bool make_world(void)
{
    qn_context_options options = {.threads = 1};
    qn_context *c;
    qn_tape *t, *other;
    FILE *file = fopen("k.qn", "w");
    if (file) fputs(text, file), fclose(file);
    if ((file = fopen("broken.qn", "w"))) fputs("kernel k(in float", file), fclose(file);
    if (qn_context_open(&options, &c, &error) || qn_tape_new(c, "ref", &t, &error) ||
        qn_tape_new(c, "ref", &other, &error))
        return false;
    the_qn_context = CONTEXT = c;
    the_qn_tape = TAPE = t;
    if (qn_module_load_text(c, "k.qn", text, &MODULE, &error) || qn_call_new(MODULE, "k", &CALL, &error) ||
        qn_buffer_new(c, 64, &BUFFER, &error))
        return false;
    static float x[4] = {1, 2, 3, 4}, y[4];
    int64_t extent = 4;
    if (qn_call_set_memory(CALL, "x", x, QN_F32, 1, &extent, NULL, &error) ||
        qn_call_set_memory(CALL, "y", y, QN_F32, 1, &extent, NULL, &error))
        return false;
    the_qn_module = MODULE;
    the_qn_call = CALL;
    the_qn_buffer = BUFFER;
    if (qn_stream_new(c, "ref", (qn_stream **)&the_qn_stream, &error) ||
        qn_event_new(c, "ref", (qn_event **)&the_qn_event, &error))
        return false;
    qn_tensor w = qn_variable(qn_ones(t, QN_F32, QN_SHAPE(2, 2)));
    add_tensor((qn_tensor){0});
    add_tensor(w);
    add_tensor(qn_ones(t, QN_F32, QN_SHAPE(4)));
    add_tensor(qn_full(t, QN_F32, QN_SHAPE(2, 3), NAN));
    add_tensor(qn_full(t, QN_F32, QN_SHAPE(2, 2), 3));
    add_tensor(qn_arange(t, QN_I64, -3, 9, 1));
    add_tensor(qn_full(t, QN_I32, QN_SHAPE(2, 2), INT_MAX));
    add_tensor(qn_full(t, QN_I64, QN_SHAPE(4), -1));
    add_tensor(qn_zeros(t, QN_I8, QN_SHAPE(2)));
    add_tensor(qn_ones(t, QN_BOOL, QN_SHAPE(2, 2)));
    add_tensor(qn_ones(t, QN_F16, QN_SHAPE(1, 2, 4, 4)));
    add_tensor(qn_ones(t, QN_F32, QN_SHAPE(2, 1, 3, 3)));
    add_tensor(qn_ones(t, QN_F32, QN_SHAPE(1, 1, 1, 1, 1, 1, 1, 1)));
    add_tensor(qn_zeros(t, QN_F32, QN_SHAPE(0)));
    add_tensor(qn_zeros(t, QN_F64, QN_SHAPE(3, 0, 2)));
    add_tensor(qn_scalar(t, QN_F32, 2));
    add_tensor(qn_ones(t, QN_U64, QN_SHAPE(1, 4)));
    add_tensor(qn_empty(t, QN_F32, QN_SHAPE(2, 2)));
    add_tensor(qn_ones(other, QN_F32, QN_SHAPE(2, 2)));
    qn_tensor released = qn_ones(t, QN_F32, QN_SHAPE(2, 2));
    qn_release(released);
    add_tensor(released);
    qn_scope_begin(t);
    qn_tensor left = qn_ones(t, QN_F32, QN_SHAPE(2, 2));
    qn_scope_end(t);
    add_tensor(left);
    qn_tensor nonsense = w;
    for (size_t i = sizeof(void *); i < sizeof(nonsense); i++) ((unsigned char *)&nonsense)[i] ^= 0x5a;
    add_tensor(nonsense);
    add_tensor(qn_zeros(t, QN_F32, QN_SHAPE(1ll << 40)));
    qn_model *m = qn_model_new(t, 1);
    qn_model_linear(m, "linear", 2, 2, true);
    the_qn_model = m;
    the_qn_optimizer = qn_optimizer_new(t, QN_ADAM, NULL, &w, 1);
    the_qn_meter = qn_meter_new(t, 8);
    qn_make_options make = {.rows = 20, .cardinality_limit = 8};
    if (qn_dataset_make(&make, &(qn_dataset_options){.threads = 1}, (qn_dataset **)&the_qn_dataset, &error) ||
        qn_metadata_gather(the_qn_dataset, NULL, NULL, (qn_metadata **)&the_qn_metadata, &error))
        return false;
    qn_dlrm_config config = qn_dlrm_defaults();
    if (qn_dlrm_new(t, &config, the_qn_metadata, 1, (qn_dlrm **)&the_qn_dlrm, &error)) return false;
    if (qn_model_save(m, NULL, NULL, "t.safetensors", &error) ||
        qn_safetensors_open("t.safetensors", (qn_safetensors **)&the_qn_safetensors, &error))
        return false;
    if (qn_tensor_save_npy(w, "t.npy", &error)) return false;
    if (qn_capture_begin(t, &error)) return false;
    qn_tensor sum = qn_add(w, w);
    return !qn_eval(t, &sum, 1, &error) && !qn_capture_end(t, (qn_plan **)&the_qn_plan, &error);
}

/* What has threads of its own is made in the process that uses it. */
static void make_threads(const char *name)
{
    qn_loader_options options = {.fill = fill_batch, .field_count = 1, .fields = {{QN_F32, QN_SHAPE(2, 2)}}};
    if (!strncmp(name, "qn_loader", 9) && qn_loader_new(CONTEXT, &options, (qn_loader **)&the_qn_loader, &error))
        _exit(3);
    if (!strncmp(name, "qn_profile", 10)) {
        if (qn_profile_start(CONTEXT, NULL, (qn_profile **)&the_qn_profile, &error)) _exit(3);
        if (any(2) && (qn_call_run(CALL, "ref", &error) || qn_profile_stop(the_qn_profile, &error))) _exit(3);
    }
    if (!strncmp(name, "qn_counting", 11) && qn_counting_start(CONTEXT, (qn_counting **)&the_qn_counting, &error))
        the_qn_counting = NULL;
}

/* ---- the calls ---- */

#include "calls.h"

static volatile int *shared; /* how far a child came */

static int with_nothing(int number, int mode)
{
    if (mode < 3) TAPE = NULL, MODULE = NULL, CALL = NULL, BUFFER = NULL;
    if (mode < 2) CONTEXT = NULL;
    memset(&error, 0, sizeof(error));
    if (mode == 1) ERROR = NULL;
    int refuses = calls[number].nothing();
    if (mode > 1 || !refuses) return 0;
    if (status == QN_OK) return 1;
    return mode == 0 && (!error.message[0] || error.status != status) ? 2 : 0;
}

/* What takes a handle away ends the process's use of it. */
static bool takes_away(const char *name)
{
    static const char *const ends[] = {"_free", "_close", "_release", "qn_scope_end", "_stop", "qn_buffer_retain"};
    for (int i = 0; i < COUNT(ends); i++)
        if (strstr(name, ends[i])) return true;
    return false;
}

static int with_anything(int number, int rounds, uint64_t seed)
{
    const char *name = calls[number].name;
    for (int round = 0; round < rounds; round++) {
        shared[0] = round;
        state = seed + 1000003u * (uint64_t)(unsigned)round + 7919u * (uint64_t)(unsigned)number;
        any(2);
        if (!round) make_threads(name);
        memset(&error, 0, sizeof(error));
        ERROR = any(16) ? &error : NULL;
        result = (qn_tensor){0};
        bool is_status = calls[number].hostile();
        if (is_status && ERROR && (status == QN_OK) != !error.message[0] && status != QN_OK) return 2;
        if (is_status && ERROR && status != QN_OK && error.status != status) return 2;
        int64_t elements = qn_tensor_valid(result) ? qn_tensor_count(result) : -1;
        size_t bytes = elements < 0 ? 0 : (size_t)elements * qn_dtype_size_bytes(qn_tensor_dtype(result));
        if (elements >= 0 && elements <= 4096) (void)!qn_tensor_read(result, memory, bytes, &error);
        if (takes_away(name)) break; /* the tape, too */
        if (qn_tape_error(TAPE, &error) && !error.message[0]) return 2;
    }
    return 0;
}

static int thread_count(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *d = tasks ? readdir(tasks) : NULL; d; d = readdir(tasks)) count += d->d_name[0] != '.';
    if (tasks) closedir(tasks);
    return count;
}

int main(int argc, char **argv)
{
    static const char *const modes[] = {"nothing", "no error to fill", "a context", "everything but names", "anything"};
    int rounds = argc > 1 ? atoi(argv[1]) : 20;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    int passed = 0, failed = 0, count = (int)(sizeof(calls) / sizeof(calls[0]));
    if (freopen("/dev/null", "r", stdin) == NULL) return 1;
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || !make_world()) {
        printf("FAILED what is to be called with is not made: %s\n0 passed, 1 failed\n", error.message);
        return 1;
    }
    /* A thread that holds a lock while this process divides would hold it for good in the child. */
#ifdef __SANITIZE_THREAD__
    int own = 2; /* this sanitizer has one in the background, which knows of fork */
#else
    int own = 1;
#endif
    if (thread_count() != own) {
        printf("FAILED the calls begin with %d threads\n0 passed, 1 failed\n", thread_count());
        return 1;
    }
    for (int mode = 0; mode < COUNT(modes); mode++)
        for (int i = 0; i < count; i++) {
            if (argc > 3 && strcmp(argv[3], calls[i].name)) continue;
            fflush(stdout);
            shared[0] = 0;
            pid_t child = fork();
            if (!child) {
                alarm(LIMIT_S);
                if (argc < 4 && !freopen("/dev/null", "w", stdout)) _exit(3);
                _exit(mode < 4 ? with_nothing(i, mode) : with_anything(i, rounds, seed));
            }
            int end = 0;
            waitpid(child, &end, 0);
            const char *why = WIFSIGNALED(end)        ? strsignal(WTERMSIG(end))
                              : WEXITSTATUS(end) == 1 ? "says that all is well"
                              : WEXITSTATUS(end) == 2 ? "gives no message, or another status in it"
                              : WEXITSTATUS(end)      ? "ends otherwise"
                                                      : NULL;
            if (why) printf("FAILED %s with %s, round %d: %s\n", calls[i].name, modes[mode], shared[0], why);
            *(why ? &failed : &passed) += 1;
        }
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
