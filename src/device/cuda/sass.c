/*
 * A cubin as the machine's instructions. In: its bytes. Out: what NVIDIA's own disassembler prints: the encoding is not
 * published, so without nvdisasm or cuobjdump there is a message that says what to install.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "device/cuda/cubin.h"

#include <stdlib.h>
#include <unistd.h>

static bool find_tool(const char *name, char *path, size_t size)
{
    const char *own = environment_get("QUERN_CUDA_PATH");
    static const char *const places[] = {"/usr/local/cuda", "/opt/cuda", "/usr/lib/cuda",
                                         "/usr/lib/nvidia-cuda-toolkit"};
    snprintf(path, size, "%s/bin/%s", own ? own : "", name);
    if (own && access(path, X_OK) == 0) return true;
    if (program_find(name, path, size)) return true;
    for (int i = 0; i < COUNT(places); i++) {
        snprintf(path, size, "%s/bin/%s", places[i], name);
        if (access(path, X_OK) == 0) return true;
    }
    return false;
}

qn_status cubin_disassemble(const void *bytes, size_t size_bytes, bool lines, text *out, qn_error *error)
{
    char tool[1024], folder[2100], path[2200];
    int place;
    bool nvdisasm = find_tool("nvdisasm", tool, sizeof(tool));
    if (!nvdisasm && !find_tool("cuobjdump", tool, sizeof(tool)))
        return error_set(error, QN_NO_DEVICE,
                         "the stage `sass` needs NVIDIA's nvdisasm or cuobjdump: install cuda-nvdisasm of the CUDA "
                         "toolkit, or set QUERN_CUDA_PATH to a toolkit that has it; the stage `ptx` needs neither");
    if (!folder_make_private("quern-sass", folder, sizeof(folder), &place))
        return error_set(error, QN_FAILED, "cannot make the folder %s", folder);
    snprintf(path, sizeof(path), "%s/kernel.cubin", folder);
    qn_status status = file_write(path, bytes, size_bytes, error);
    if (status == QN_OK) {
        const char *arguments[6] = {tool};
        int count = 1, code = 1;
        arguments[count++] = nvdisasm ? "--print-code" : "--dump-sass";
        if (nvdisasm && lines) arguments[count++] = "--print-line-info";
        arguments[count++] = path;
        text listing = {0};
        status = process_run(arguments, &listing, &code, error);
        if (status == QN_OK && code) status = error_set(error, QN_FAILED, "%s failed:\n%s", tool, text_get(&listing));
        if (status == QN_OK) text_add_bytes(out, text_get(&listing), listing.length);
        text_free(&listing);
    }
    unlink(path); /* as in cpu/compiler.c */
    folder_remove_private(folder, place);
    return status;
}
