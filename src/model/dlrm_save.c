/*
 * Checkpoints. In: a model, its optimiser and the place of its training. Out: FOLDER/step_N.safetensors, whole or not
 * there, which holds all that is needed to go on: parameters, tokens and means, the optimiser's state, random numbers, and as
 * JSON in its metadata the configuration and the place in the data. The last two are kept. state.json beside them says
 * the same in a form that people and scripts read; nothing depends on it.
 * SPDX-License-Identifier: MIT
 */
#include "model/dlrm.h"

#include "base/json_read.h"

#include <quern/safetensors.h>

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define KEPT 2
#define NAME_FORMAT "step_%09lld.safetensors"

/* The step of a checkpoint's name; -1: it is none. */
static int64_t step_of(const char *name)
{
    long long step;
    int used = 0;
    if (sscanf(name, "step_%lld.safetensors%n", &step, &used) != 1 || !used || name[used] || step < 0) return -1;
    return step;
}

/* Steps of the checkpoints in a folder, the newest first. */
static int list_steps(const char *folder, int64_t *steps, int room)
{
    int count = 0;
    DIR *open = opendir(folder);
    for (struct dirent *e; open && (e = readdir(open));) {
        int64_t step = step_of(e->d_name);
        if (step < 0 || count == room) continue;
        int at = count++;
        for (; at > 0 && steps[at - 1] < step; at--) steps[at] = steps[at - 1];
        steps[at] = step;
    }
    if (open) closedir(open);
    return count;
}

static void name_checkpoint(const char *folder, int64_t step, char *path, size_t size)
{
    snprintf(path, size, "%s/" NAME_FORMAT, folder, (long long)step);
}

/* What an earlier process left when it was killed while writing. */
static void remove_leftovers(const char *folder)
{
    char mark[32], path[QN_DLRM_PATH];
    snprintf(mark, sizeof(mark), ".safetensors.%d.", process_number());
    DIR *open = opendir(folder);
    for (struct dirent *e; open && (e = readdir(open));) {
        size_t length = strlen(e->d_name);
        bool ours = !strncmp(e->d_name, "step_", 5) && length > 5 && !strcmp(e->d_name + length - 5, ".part");
        if (!ours || strstr(e->d_name, mark)) continue;
        if (snprintf(path, sizeof(path), "%s/%s", folder, e->d_name) < (int)sizeof(path)) remove(path);
    }
    if (open) closedir(open);
}

static void keep_last(const char *folder)
{
    int64_t steps[256];
    char path[QN_DLRM_PATH];
    int count = list_steps(folder, steps, COUNT(steps));
    for (int i = KEPT; i < count; i++) {
        name_checkpoint(folder, steps[i], path, sizeof(path));
        remove(path);
    }
    remove_leftovers(folder);
}

static void add_state(text *t, const dlrm_state *s)
{
    /* 64 bits do not fit into a number of JSON: those are texts. */
    text_print(t,
               "{\"step\": %lld, \"epoch\": %lld, \"batch_in_epoch\": %lld, \"position\": {\"epoch\": %lld, \"row\": "
               "%lld, \"check\": \"%llu\"}, \"seed\": \"%llu\"}",
               (long long)s->step, (long long)s->place.epoch, (long long)s->place.in_epoch,
               (long long)s->place.after.epoch, (long long)s->place.after.row, (unsigned long long)s->place.after.check,
               (unsigned long long)s->seed);
}

static qn_status write_state(const char *folder, const char *path, const char *state, qn_error *error)
{
    text t = {0}, place = {0};
    const char *name = strrchr(path, '/');
    text_print(&t, "{\"checkpoint\": \"%s\", \"state\": %s}\n", name ? name + 1 : path, state);
    text_print(&place, "%s/state.json", folder);
    qn_status status = file_write(text_get(&place), t.data, t.length, error);
    text_free(&t);
    text_free(&place);
    return status;
}

qn_status dlrm_save(qn_dlrm *d, qn_optimizer *optimizer, const dlrm_state *state, const char *folder, char *path,
                    size_t path_size, qn_error *error)
{
    char place[QN_DLRM_PATH];
    if (strlen(folder) + 40 > sizeof(place)) return error_set(error, QN_BAD_CALL, "the folder's name is too long");
    QN_TRY(folder_make(folder, error));
    name_checkpoint(folder, state->step, place, sizeof(place));
    char *config = qn_dlrm_config_text(&d->config);
    if (!config) return error_set(error, QN_NO_MEMORY, "no memory for the configuration of a checkpoint");
    text words = {0};
    add_state(&words, state);
    const char *metadata[] = {"format", "pt", "quern", "dlrm", "config", config, "state", text_get(&words), NULL};
    qn_status status = qn_model_save(d->root, optimizer, metadata, place, error);
    if (!status) status = write_state(folder, place, text_get(&words), error);
    if (!status) {
        keep_last(folder);
        snprintf(path, path_size, "%s", place);
    }
    free(config);
    text_free(&words);
    return status;
}

bool dlrm_find_checkpoint(const char *place, char *path, size_t size, qn_error *damaged)
{
    struct stat about;
    *damaged = (qn_error){0};
    if (stat(place, &about)) return false;
    if (!S_ISDIR(about.st_mode)) return snprintf(path, size, "%s", place) < (int)size;
    int64_t steps[256];
    int count = list_steps(place, steps, COUNT(steps));
    for (int i = 0; i < count; i++) {
        qn_safetensors *file;
        qn_error error;
        name_checkpoint(place, steps[i], path, size);
        if (qn_safetensors_open(path, &file, &error)) {
            if (!damaged->message[0]) *damaged = error;
            continue;
        }
        qn_safetensors_close(file);
        return true;
    }
    return false;
}

qn_status dlrm_need_checkpoint(const char *place, char *path, size_t size, qn_error *error)
{
    qn_error damaged;
    if (dlrm_find_checkpoint(place, path, size, &damaged)) return QN_OK;
    if (damaged.message[0])
        return error_set(error, QN_BAD_FILE, "no checkpoint in %s can be opened: %s", place, damaged.message);
    return error_set(error, QN_BAD_FILE, "there is no checkpoint in %s: `quern train dlrm --out FOLDER` writes them",
                     place);
}

static bool read_state(const char *words, dlrm_state *out)
{
    arena *memory = arena_new();
    json_node root;
    bool good = !json_read(memory, "state", words, &root, NULL) && root.kind == JSON_OBJECT;
    const json_node *position = good ? json_find(&root, "position") : NULL;
    const char *seed = good ? json_find_words(&root, "seed") : NULL;
    const char *check = position ? json_find_words(position, "check") : NULL;
    good = good && position && seed && check;
    if (good) {
        double step = json_find_number(&root, "step"), epoch = json_find_number(&root, "epoch");
        double in_epoch = json_find_number(&root, "batch_in_epoch");
        double at = json_find_number(position, "epoch"), row = json_find_number(position, "row");
        good = step >= 0 && epoch >= 0 && in_epoch >= 0 && at >= 0 && row >= 0 && step < 9e15 && row < 9e15 &&
               epoch < 9e15 && in_epoch < 9e15 && at < 9e15;
        if (good)
            *out = (dlrm_state){
                (int64_t)step,
                {{(int64_t)at, (int64_t)row, strtoull(check, NULL, 10)}, (int64_t)epoch, (int64_t)in_epoch},
                strtoull(seed, NULL, 10)};
    }
    arena_free(memory);
    return good;
}

qn_status dlrm_read_state(const char *path, qn_dlrm_config *config, dlrm_state *state, qn_error *error)
{
    qn_safetensors *file;
    QN_TRY(qn_safetensors_open(path, &file, error));
    const char *kind = qn_safetensors_metadata(file, "quern"), *words = qn_safetensors_metadata(file, "config");
    const char *place = qn_safetensors_metadata(file, "state");
    qn_status status = QN_OK;
    *config = qn_dlrm_defaults();
    if (!kind || strcmp(kind, "dlrm") || !words || !place || !read_state(place, state))
        status = error_set(error, QN_BAD_FILE, "%s is no checkpoint of a DLRM", path);
    if (!status) status = qn_dlrm_config_parse(path, words, config, error);
    if (!status) status = qn_dlrm_config_check(config, error);
    qn_safetensors_close(file);
    return status;
}

/* i64 [count] of a file, malloc'd. */
static qn_status read_whole(const qn_safetensors *file, const char *path, const char *name, int64_t **out,
                            int64_t *count, qn_error *error)
{
    int at = qn_safetensors_find(file, name);
    const qn_safetensor *t = at < 0 ? NULL : qn_safetensors_get(file, at);
    *out = NULL;
    if (!t || t->type != QN_I64 || t->rank != 1)
        return error_set(error, QN_BAD_FILE, "%s has no tensor `%s` of i64", path, name);
    *count = t->extents[0];
    *out = malloc(t->size_bytes + 1);
    if (!*out) return error_set(error, QN_NO_MEMORY, "no memory for `%s` of %s", name, path);
    return qn_safetensors_read(file, at, *out, t->size_bytes, error);
}

/* Facts of columns with the sizes and tokens of the file; the rest is loaded later. */
static qn_status like_file(qn_tape *tape, const qn_safetensors *file, const char *path, const qn_dlrm_config *c,
                           uint64_t seed, int64_t **sizes, int64_t **tokens, qn_dlrm **out, qn_error *error)
{
    int64_t size_count = 0, token_count = 0, all = 0;
    QN_TRY(read_whole(file, path, "sparse_arch.sizes", sizes, &size_count, error));
    if (c->map == QN_MAP_EXACT) QN_TRY(read_whole(file, path, "sparse_arch.tokens", tokens, &token_count, error));
    bool good = size_count == c->sparse_count;
    for (int64_t i = 0; good && i < size_count; i++)
        good = (*sizes)[i] >= 0 && !__builtin_add_overflow(all, (*sizes)[i], &all) && all < (int64_t)1 << 40;
    if (!good || (c->map == QN_MAP_EXACT && all != token_count))
        return error_set(error, QN_BAD_FILE, "%s: the sizes of its tables do not fit", path);
    qn_metadata m = {.dense_count = c->dense_count, .sparse_count = c->sparse_count};
    m.dense = heap_array((size_t)m.dense_count, sizeof(*m.dense));
    m.sparse = heap_array((size_t)m.sparse_count, sizeof(*m.sparse));
    for (int64_t i = 0, at = 0; i < size_count; at += (*sizes)[i++])
        m.sparse[i] = (qn_sparse_facts){(*sizes)[i], *tokens ? *tokens + at : NULL, 0};
    qn_status status = qn_dlrm_new(tape, c, &m, seed, out, error);
    heap_free(m.dense);
    heap_free(m.sparse);
    return status;
}

qn_status dlrm_new_like(qn_tape *tape, const char *path, const qn_dlrm_config *config, uint64_t seed, qn_dlrm **out,
                        qn_error *error)
{
    qn_safetensors *file;
    int64_t *sizes = NULL, *tokens = NULL;
    *out = NULL;
    QN_TRY(qn_safetensors_open(path, &file, error));
    qn_status status = like_file(tape, file, path, config, seed, &sizes, &tokens, out, error);
    free(sizes);
    free(tokens);
    qn_safetensors_close(file);
    return status;
}

qn_status qn_dlrm_open(qn_tape *tape, const char *checkpoint, qn_dlrm_config *config, qn_dlrm **model, qn_error *error)
{
    HEAP_ENTER(error);
    if (!tape || !checkpoint || !model) return error_set(error, QN_BAD_CALL, "qn_dlrm_open: an argument is NULL");
    *model = NULL;
    char path[QN_DLRM_PATH];
    qn_dlrm_config c;
    dlrm_state state;
    QN_TRY(dlrm_need_checkpoint(checkpoint, path, sizeof(path), error));
    QN_TRY(dlrm_read_state(path, &c, &state, error));
    QN_TRY(dlrm_new_like(tape, path, &c, 0, model, error));
    qn_status status = qn_model_load((*model)->root, NULL, path, NULL, error);
    if (status) {
        qn_dlrm_free(*model);
        *model = NULL;
        return status;
    }
    if (config) *config = c;
    return QN_OK;
}
