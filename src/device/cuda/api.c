/*
 * Opening NVIDIA's libraries. In: a library of the list. Out: its functions by name. Tried in turn: $QUERN_CUDA_PATH,
 * the loader's own search, $CUDA_HOME and $CUDA_PATH, the usual folders of the toolkit and of a distribution, each with
 * every soname from new to old. The message of a failure lists what was looked for and says what to install.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "device/cuda/api.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/stat.h>

typedef struct library_names {
    const char *title;
    const char *sonames[8];
    const char *advice;
} library_names;

static const library_names names[CUDA_LIBRARY_COUNT] = {
    [CUDA_LIBRARY_DRIVER] = {"the NVIDIA driver (libcuda)",
                             {"libcuda.so.1", "libcuda.so", NULL},
                             "install the NVIDIA driver; in a container, pass the GPU on (such as --gpus all)"},
    [CUDA_LIBRARY_NVRTC] = {"NVRTC, the CUDA run-time compiler",
                            {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so", NULL},
                            "install it (Debian and Ubuntu: cuda-nvrtc of NVIDIA's repository, or pip install "
                            "nvidia-cuda-nvrtc) and point QUERN_CUDA_PATH at its folder if it is not found"},
    [CUDA_LIBRARY_NVML] = {"NVML", {"libnvidia-ml.so.1", NULL}, "it comes with the NVIDIA driver"},
    [CUDA_LIBRARY_CUPTI] = {"CUPTI, the CUDA tracing library",
                            {"libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8", "libcupti.so", NULL},
                            "install it (Debian and Ubuntu: cuda-cupti of NVIDIA's repository, or pip install "
                            "nvidia-cuda-cupti) and point QUERN_CUDA_PATH at its folder if it is not found"},
    [CUDA_LIBRARY_CUBLASLT] = {"cuBLASLt, NVIDIA's matrix products",
                               {"libcublasLt.so.13", "libcublasLt.so.12", NULL},
                               "Quern does without it; to let `quern tune` try it install libcublas (of NVIDIA's "
                               "repository, or pip install nvidia-cublas) and point QUERN_CUDA_PATH at its folder if "
                               "it is not found"},
};

static const char *const folders[] = {"/usr/local/cuda/lib64",
                                      "/usr/local/cuda/targets/x86_64-linux/lib",
                                      "/usr/local/cuda/targets/sbsa-linux/lib",
                                      "/usr/local/cuda/extras/CUPTI/lib64",
                                      "/opt/cuda/lib64",
                                      "/usr/lib/cuda/lib64",
                                      "/usr/lib/x86_64-linux-gnu",
                                      "/usr/lib/aarch64-linux-gnu",
                                      "/usr/lib64",
                                      "/usr/lib/wsl/lib"};

typedef struct symbol {
    cuda_library library;
    const char *name;
    bool needed;
    size_t offset;
} symbol;

static const symbol symbols[] = {
#define CUDA_FUNCTION(library, name, needed, parameters) \
    {CUDA_LIBRARY_##library, #name, needed, offsetof(cuda_api, name)},
#define CUDA_WORDS(library, name, needed, parameters) {CUDA_LIBRARY_##library, #name, needed, offsetof(cuda_api, name)},
#include "device/cuda/api.def"
};

static void *try_path(cuda_api *api, cuda_library library, const char *folder, const char *soname)
{
    char path[512];
    int length = snprintf(path, sizeof(path), "%s%s%s", folder ? folder : "", folder ? "/" : "", soname);
    if (length >= (int)sizeof(path)) return NULL;
    /* Never unmapped: the driver has threads of its own. */
    void *handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
    if (handle) memcpy(api->paths[library], path, sizeof(path));
    return handle;
}

static void *try_folder(cuda_api *api, cuda_library library, const char *folder)
{
    static const char *const below[] = {
        "", "/lib64", "/lib", "/targets/x86_64-linux/lib", "/targets/sbsa-linux/lib", "/extras/CUPTI/lib64"};
    for (int b = 0; b < COUNT(below); b++) {
        char path[512];
        struct stat info;
        if (snprintf(path, sizeof(path), "%s%s", folder, below[b]) >= (int)sizeof(path)) continue;
        if (stat(path, &info) || !S_ISDIR(info.st_mode)) continue;
        for (int s = 0; names[library].sonames[s]; s++) {
            void *handle = try_path(api, library, path, names[library].sonames[s]);
            if (handle) return handle;
        }
    }
    return NULL;
}

static void *find(cuda_api *api, cuda_library library)
{
    const char *wanted = environment_get("QUERN_CUDA_PATH");
    void *handle = NULL;
    if (wanted && !strcmp(wanted, "none")) return NULL;
    if (wanted) {
        const char *file = strrchr(wanted, '/');
        bool is_this = false;
        for (int s = 0; names[library].sonames[s]; s++) {
            size_t stem = strcspn(names[library].sonames[s], ".");
            is_this |= !strncmp(file ? file + 1 : wanted, names[library].sonames[s], stem);
        }
        handle = is_this ? try_path(api, library, NULL, wanted) : try_folder(api, library, wanted);
    }
    for (int s = 0; !handle && names[library].sonames[s]; s++)
        handle = try_path(api, library, NULL, names[library].sonames[s]);
    static const char *const variables[] = {"CUDA_HOME", "CUDA_PATH"};
    for (int v = 0; !handle && v < COUNT(variables); v++)
        if (environment_get(variables[v])) handle = try_folder(api, library, environment_get(variables[v]));
    for (int f = 0; !handle && f < COUNT(folders); f++) handle = try_folder(api, library, folders[f]);
    return handle;
}

static void forget(cuda_api *api, cuda_library library)
{
    if (api->libraries[library]) dlclose(api->libraries[library]);
    api->libraries[library] = NULL;
    api->paths[library][0] = 0;
    void *nothing = NULL;
    for (int i = 0; i < COUNT(symbols); i++)
        if (symbols[i].library == library) memcpy((char *)api + symbols[i].offset, &nothing, sizeof(nothing));
}

qn_status cuda_api_open(cuda_api *api, cuda_library library, qn_error *error)
{
    if (api->libraries[library]) return QN_OK;
    const library_names *n = &names[library];
    void *handle = find(api, library);
    if (!handle) {
        text tried = {0};
        const char *wanted = environment_get("QUERN_CUDA_PATH");
        bool none = wanted && !strcmp(wanted, "none");
        if (none) text_add(&tried, "QUERN_CUDA_PATH is `none`");
        for (int s = 0; n->sonames[s] && !none; s++) text_print(&tried, "%s%s", s ? ", " : "", n->sonames[s]);
        error_set(error, QN_NO_DEVICE, "%s is not there (%s%s): %s", n->title, text_get(&tried),
                  none ? "" : " not found", n->advice);
        text_free(&tried);
        return QN_NO_DEVICE;
    }
    api->libraries[library] = handle;
    for (int i = 0; i < COUNT(symbols); i++) {
        if (symbols[i].library != library) continue;
        void *address = dlsym(handle, symbols[i].name);
        memcpy((char *)api + symbols[i].offset, &address, sizeof(address));
        if (address || !symbols[i].needed) continue;
        error_set(error, QN_NO_DEVICE, "%s is too old: %s has no %s; %s", n->title, api->paths[library],
                  symbols[i].name, n->advice);
        forget(api, library);
        return QN_NO_DEVICE;
    }
    return QN_OK;
}

void cuda_api_close(cuda_api *api)
{
    for (int i = 0; i < CUDA_LIBRARY_COUNT; i++) forget(api, (cuda_library)i);
}
