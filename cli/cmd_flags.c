/*
 * `flags`: what a C compiler must be told to find Quern. In: where this command lies, in a build folder of the source tree or
 * installed. Out: one line with the headers' folder, the static library and what it needs; a library that is not beside the
 * command is said to be missing, never guessed.
 * SPDX-License-Identifier: MIT
 */
#include "cli.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The real path of what lies there, seen from the command's folder; false: nothing does. */
static bool find_beside(const char *folder, const char *name, char out[PATH_MAX])
{
    char path[2 * PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return realpath(path, out) && !access(out, R_OK);
}

int command_flags(const command *self, const arguments *given)
{
    (void)self, (void)given;
    static const char *const libraries[] = {"libquern.a", "../" QN_LIBDIR "/libquern.a", "../lib/libquern.a"};
    char folder[PATH_MAX] = "", header[PATH_MAX], library[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", folder, sizeof(folder) - 1);
    folder[length > 0 ? length : 0] = 0;
    char *slash = strrchr(folder, '/');
    if (slash) *slash = 0;
    bool found = false;
    for (size_t i = 0; i < sizeof(libraries) / sizeof(libraries[0]) && !found; i++)
        found = find_beside(folder, libraries[i], library);
    if (!found || !find_beside(folder, "../include/quern/quern.h", header)) {
        complain("%s is not beside this command (%s): `make install PREFIX=...` puts both in their places",
                 found ? "include/quern" : "libquern.a", folder);
        return EXIT_FINDING;
    }
    header[strlen(header) - strlen("/quern/quern.h")] = 0;
    print_safely(stdout, "-I%s %s -lm -ldl -lpthread\n", header, library);
    return EXIT_OK;
}
