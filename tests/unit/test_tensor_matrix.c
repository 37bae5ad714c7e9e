/*
 * The matrix of the tensor level: every operation of tests/tensor_ops.h on every type and form of input, through the
 * public calls, on a device against the graph interpreter. `ref` has all of it; the devices that compile have a part in
 * the ordinary run. QUERN_TEST_DEVICE names one device, for which everything is run; QUERN_TEST_TYPE=F32 one type.
 * QUERN_PEERS=FOLDER writes inputs and results as .npy files there, for tests/scripts/tensor_peers.py.
 * SPDX-License-Identifier: MIT
 */
#include "graph_run.h"
#include "share.h"
#include "tensor_ops.h"
#include "test.h"

static qn_context *context;
static int compared;

static void start(void)
{
    qn_error error;
    if (context) return;
    if (qn_context_open(NULL, &context, &error)) {
        printf("%s\n", error.message);
        exit(1);
    }
}

static const void *host_memory(void *user, const graph_node *leaf)
{
    (void)user;
    return qn_buffer_data(((const storage *)leaf->attr.storage)->buffer);
}

/* Builds the group on a new tape; NULL with the failure told. */
static qn_tape *build(const char *device, qn_mode mode, int group, qn_dtype type, ops_form form, ops_outputs *out)
{
    qn_tape *tape;
    qn_error error;
    if (qn_tape_new(context, device, &tape, &error)) {
        test_fail(__FILE__, __LINE__, error.message);
        return NULL;
    }
    qn_tape_set_mode(tape, mode);
    ops_inputs in = ops_inputs_make(tape, type, form);
    out->count = 0;
    ops_groups[group].build(&in, out);
    if (!qn_tape_error(tape, &error)) return tape;
    printf("%s %s %s: %s\n", ops_groups[group].name, dtypes[type].text, ops_form_names[form], error.message);
    test_fail(__FILE__, __LINE__, "a group is not built");
    qn_tape_free(tape);
    return NULL;
}

static void tell(const char *device, int group, qn_dtype type, ops_form form, const char *op, const char *what)
{
    printf("%s, %s of %s %s: %s", device, op, dtypes[type].text, ops_form_names[form], what);
    test_fail(__FILE__, __LINE__, ops_groups[group].name);
}

/* Reads what the device gives and compares it with the truth. One by one where everything at once fails. */
static void compare(const char *device, qn_mode mode, int group, qn_dtype type, ops_form form, const graph *g,
                    const node *nodes, const graph_tensor *exact, const graph_tensor *rounded)
{
    static ops_outputs out;
    qn_tape *tape = build(device, mode, group, type, form, &out);
    if (!tape) return;
    arena *memory = arena_new();
    qn_error error;
    bool together = !qn_eval(tape, out.tensors, out.count, &error);
    if (!together) tell(device, group, type, form, "all together", error.message);
    for (int i = 0; i < out.count; i++) {
        const graph_node *n = graph_get(g, nodes[i]);
        size_t size_bytes = (size_t)graph_size_bytes(g, nodes[i]);
        void *host = arena_alloc(memory, size_bytes + 1);
        if (qn_tensor_read(out.tensors[i], host, size_bytes, &error)) {
            tell(device, group, type, form, out.names[i], error.message);
            continue;
        }
        graph_tensor got = graph_tensor_read(n->elem, &n->shape, host, memory);
        graph_case c = {g, nodes, out.count};
        text words = {0};
        if (!case_close(&c, i, &got, &exact[i], &rounded[i], &words))
            tell(device, group, type, form, out.names[i], text_get(&words));
        text_free(&words);
        compared++;
    }
    arena_free(memory);
    qn_tape_free(tape);
}

static void run_group(const char *const *devices, const qn_mode *modes, int device_count, int group, qn_dtype type,
                      ops_form form)
{
    static ops_outputs out;
    qn_tape *truth = build("ref", QN_EAGER, group, type, form, &out);
    if (!truth) return;
    arena *memory = arena_new();
    node nodes[MOST_OPS];
    graph_tensor exact[MOST_OPS], rounded[MOST_OPS];
    graph_memory where = {.find = host_memory};
    qn_error error;
    for (int i = 0; i < out.count; i++) nodes[i] = tape_slot_of(out.tensors[i])->node;
    if (graph_interpret(truth->graph, nodes, out.count, &where, true, memory, exact, &error) ||
        graph_interpret(truth->graph, nodes, out.count, &where, false, memory, rounded, &error))
        tell("interpreter", group, type, form, "all", error.message);
    else
        for (int i = 0; i < device_count; i++)
            compare(devices[i], modes[i], group, type, form, truth->graph, nodes, exact, rounded);
    arena_free(memory);
    qn_tape_free(truth);
}

static bool wanted_type(dtype elem)
{
    const char *only = environment_get("QUERN_TEST_TYPE");
    if (!only) return true;
    dtype chosen;
    char lower[16] = "";
    for (int i = 0; i < 15 && only[i]; i++)
        lower[i] = (char)(only[i] >= 'A' && only[i] <= 'Z' ? only[i] + 32 : only[i]);
    return dtype_from_text(lower, &chosen) && chosen == elem;
}

static void run_types(const char *device, qn_mode mode, const dtype *types, int type_count, ops_form first,
                      ops_form last)
{
    start();
    static int met;
    int share = share_of("operations by type and form");
    for (int t = 0; t < type_count; t++)
        for (int group = 0; group < COUNT(ops_groups); group++)
            for (int form = (int)first; form <= (int)last; form++) {
                if (!wanted_type(types[t]) || !ops_takes(group, types[t])) continue;
                if (form == FORM_EMPTY && !ops_groups[group].empty) continue;
                if (met++ % share) continue;
                if (test_failures_of_case < 20) run_group(&device, &mode, 1, group, (qn_dtype)types[t], (ops_form)form);
            }
}

static const dtype all_types[] = {DT_F32, DT_F64, DT_F16, DT_BF16, DT_I8,  DT_I16, DT_I32,
                                  DT_I64, DT_U8,  DT_U16, DT_U32,  DT_U64, DT_BOOL};

TEST(ref_has_all_of_it)
{
    if (environment_get("QUERN_TEST_DEVICE")) return;
    const dtype few[] = {DT_F32, DT_BF16, DT_I32, DT_BOOL};
    run_types("ref", QN_FUSED, all_types, COUNT(all_types), FORM_PLAIN, FORM_EMPTY);
    run_types("ref", QN_EAGER, few, COUNT(few), FORM_PLAIN, FORM_EMPTY);
    run_types("ref", QN_FUSED, (dtype[]){DT_F32}, 1, FORM_LARGE, FORM_LARGE);
}

TEST(cpu_has_a_part)
{
    if (environment_get("QUERN_TEST_DEVICE")) return;
    run_types("cpu", QN_FUSED, (dtype[]){DT_F32}, 1, FORM_PLAIN, FORM_PLAIN);
}

TEST(emu_has_a_part)
{
    if (environment_get("QUERN_TEST_DEVICE")) return;
    run_types("emu", QN_FUSED, (dtype[]){DT_F32}, 1, FORM_PLAIN, FORM_PLAIN);
}

TEST(one_device)
{
    const char *device = environment_get("QUERN_TEST_DEVICE");
    if (!device) return;
    run_types(device, QN_FUSED, all_types, COUNT(all_types), FORM_PLAIN, FORM_LARGE);
    printf("%d results of %s compared\n", compared, device);
}

static void save(qn_tensor t, const char *folder, const char *name)
{
    char path[512];
    qn_error error;
    snprintf(path, sizeof(path), "%s/%s.npy", folder, name);
    if (qn_tensor_save_npy(t, path, &error)) {
        printf("%s: %s\n", name, error.message);
        test_fail(__FILE__, __LINE__, "a tensor is not saved");
    }
}

/* Gradients of half the sum of squares by every input that matters: grad-NAME-INPUT.npy. */
static void save_gradients(qn_tensor y, const char *name, const char *folder, const qn_tensor *inputs,
                           const char *const *names, int count)
{
    qn_tensor d[16], seed = qn_detach(y);
    if (qn_tensor_dtype(y) != QN_F64) return;
    qn_grad_from(&y, &seed, 1, inputs, count, d);
    qn_error error;
    if (qn_tape_error(y.tape, &error)) {
        printf("%s: %s\n", name, error.message);
        test_fail(__FILE__, __LINE__, "no gradient");
        return;
    }
    for (int i = 0; i < count; i++) {
        char file[80];
        if (graph_get(y.tape->graph, tape_slot_of(d[i])->node)->code == GRAPH_FULL) continue; /* it does not matter */
        snprintf(file, sizeof(file), "grad-%s-%s", name, names[i] + 3);
        save(d[i], folder, file);
    }
}

/* FOLDER/f32-plain/in-a.npy and FOLDER/f32-plain/sum_0.npy. */
TEST(peers)
{
    const char *folder = environment_get("QUERN_PEERS"), *device = environment_get("QUERN_PEERS_DEVICE");
    static const dtype types[] = {DT_F32, DT_F64, DT_F16, DT_I32, DT_I64, DT_U8, DT_BOOL};
    if (!folder) return;
    start();
    for (int t = 0; t < COUNT(types); t++)
        for (int form = 0; form < FORM_LARGE; form++) {
            qn_error error;
            qn_tape *tape;
            char place[400];
            snprintf(place, sizeof(place), "%s/%s-%s", folder, dtypes[types[t]].text, ops_form_names[form]);
            EXPECT(folder_make(place, &error) == QN_OK);
            EXPECT(qn_tape_new(context, device ? device : "ref", &tape, &error) == QN_OK);
            ops_inputs in = ops_inputs_make(tape, (qn_dtype)types[t], (ops_form)form);
            const struct {
                const char *name;
                qn_tensor t;
            } inputs[] = {{"in-a", in.a},         {"in-b", in.b},           {"in-p", in.p},
                          {"in-mask", in.mask},   {"in-row", in.row},       {"in-one", in.one},
                          {"in-cube", in.cube},   {"in-right", in.right},   {"in-index", in.index},
                          {"in-picks", in.picks}, {"in-image", in.image},   {"in-filter", in.filter},
                          {"in-bias", in.bias},   {"in-labels", in.labels}, {"in-volume", in.volume},
                          {"in-deep", in.deep},   {"in-gain", in.gain}};
            qn_tensor leaves[COUNT(inputs)];
            const char *leaf_names[COUNT(inputs)];
            int leaf_count = 0;
            for (int i = 0; i < COUNT(inputs); i++) {
                save(inputs[i].t, place, inputs[i].name);
                if (qn_tensor_dtype(inputs[i].t) != QN_F64) continue;
                leaf_names[leaf_count] = inputs[i].name;
                leaves[leaf_count++] = inputs[i].t;
            }
            for (int group = 0; group < COUNT(ops_groups); group++) {
                static ops_outputs out;
                if (!ops_takes(group, types[t]) || (form == FORM_EMPTY && !ops_groups[group].empty)) continue;
                out.count = 0;
                ops_groups[group].build(&in, &out);
                for (int i = 0; i < out.count; i++)
                    if (qn_tensor_dtype(out.tensors[i]) != QN_BF16) save(out.tensors[i], place, out.names[i]);
                for (int i = 0; i < out.count && types[t] == DT_F64 && form == FORM_PLAIN; i++)
                    save_gradients(out.tensors[i], out.names[i], place, leaves, leaf_names, leaf_count);
            }
            qn_tape_free(tape);
        }
}

TEST(end)
{
    qn_context_close(context);
}

TEST_MAIN(CASE(ref_has_all_of_it), CASE(cpu_has_a_part), CASE(emu_has_a_part), CASE(one_device), CASE(peers), CASE(end))
