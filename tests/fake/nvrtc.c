/*
 * The fake NVRTC: a program is its text behind a mark, which the fake driver compiles when it loads it.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "fake/state.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

FAKE(nvrtcVersion, int *major, int *minor)
{
    const char *old = getenv("FAKE_NVRTC_VERSION");
    *major = old ? atoi(old) : 13;
    *minor = 0;
    return 0;
}

FAKE(nvrtcGetNumSupportedArchs, int *count)
{
    *count = 3;
    return 0;
}

FAKE(nvrtcGetSupportedArchs, int *archs)
{
    archs[0] = 75;
    archs[1] = 80;
    archs[2] = 90;
    return 0;
}

FAKE(nvrtcCreateProgram, void **program, const char *source, const char *name, int header_count,
     const char *const *headers, const char *const *include_names)
{
    (void)name, (void)header_count, (void)headers, (void)include_names;
    ASK();
    *program = malloc(strlen(source) + sizeof(MARK));
    if (!*program) return 1;
    sprintf(*program, "%s%s", MARK, source);
    return 0;
}

FAKE(nvrtcDestroyProgram, void **program)
{
    free(*program);
    *program = NULL;
    return 0;
}

FAKE(nvrtcCompileProgram, void *program, int option_count, const char *const *options)
{
    (void)program, (void)option_count, (void)options;
    return fake_ask(__func__);
}

FAKE(nvrtcAddNameExpression, void *program, const char *expression)
{
    (void)program, (void)expression;
    return 0;
}

FAKE(nvrtcGetLoweredName, void *program, const char *expression, const char **name)
{
    (void)program;
    *name = expression;
    return 0;
}

#define SIZE_AND_BYTES(what)                                \
    FAKE(nvrtcGet##what##Size, void *program, size_t *size) \
    {                                                       \
        *size = strlen(program) + 1;                        \
        return 0;                                           \
    }                                                       \
    FAKE(nvrtcGet##what, void *program, char *bytes)        \
    {                                                       \
        memcpy(bytes, program, strlen(program) + 1);        \
        return 0;                                           \
    }
SIZE_AND_BYTES(PTX)
SIZE_AND_BYTES(CUBIN)

FAKE(nvrtcGetProgramLogSize, void *program, size_t *size)
{
    (void)program;
    *size = 1;
    return 0;
}

FAKE(nvrtcGetProgramLog, void *program, char *words)
{
    (void)program;
    *words = 0;
    return 0;
}

EXPORT const char *nvrtcGetErrorString(int result);
const char *nvrtcGetErrorString(int result)
{
    return result ? "NVRTC_ERROR_OF_THE_FAKE" : "NVRTC_SUCCESS";
}
