/*
 * `-` for an option that names a file to write. In: the options. Out: a file aside in its place, whose bytes are the
 * standard output when the command has ended; tables and notes go to stderr, so that a pipe holds the data alone.
 * SPDX-License-Identifier: MIT
 */
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_dash(const char *word)
{
    return word && !strcmp(word, "-");
}

static char made[64]; /* the path while the file is there, for a signal's handler */

void pipe_forget(void)
{
    if (*made) (void)unlink(made);
}

const char *pipe_shown(const char *path)
{
    return *made && !strcmp(path, made) ? "the standard output" : path;
}

bool pipe_begin(pipe_out *s, arguments *given)
{
    const char **paths[] = {&given->json,   &given->csv,    &given->plot,  &given->trace,
                            &given->folded, &given->report, &given->output};
    const char **found = NULL;
    int count = 0;
    *s = (pipe_out){.saved = -1};
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        if (is_dash(*paths[i])) found = paths[i], count++;
    for (int i = 0; i < given->outputs.count; i++) {
        const char *equals = strchr(given->outputs.items[i], '=');
        if (equals && is_dash(equals + 1)) found = &given->outputs.items[i], count++;
    }
    if (!count) return true;
    if (count > 1) return complain("only one of the files can be - (the standard output)"), false;
    const char *folder = getenv("TMPDIR");
    snprintf(s->path, sizeof(s->path), "%.40s/quern-XXXXXX", folder && strlen(folder) <= 40 ? folder : "/tmp");
    int file = mkstemp(s->path);
    if (file >= 0) memcpy(made, s->path, sizeof(made));
    fflush(stdout);
    s->saved = dup(STDOUT_FILENO);
    if (file < 0 || s->saved < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        return complain("cannot write to the standard output: %s", strerror(errno)), false;
    close(file);
    const char *equals = is_dash(*found) ? NULL : strchr(*found, '=');
    if (equals) snprintf(s->setting, sizeof(s->setting), "%.*s=%s", (int)(equals - *found), *found, s->path);
    *found = equals ? s->setting : s->path;
    return true;
}

bool pipe_end(pipe_out *s)
{
    if (s->saved < 0) return true;
    char part[1 << 14];
    size_t got;
    fflush(stdout);
    bool good = dup2(s->saved, STDOUT_FILENO) >= 0;
    FILE *file = fopen(s->path, "rb");
    while (good && file && (got = fread(part, 1, sizeof(part), file)) > 0) good = fwrite(part, 1, got, stdout) == got;
    if (file) fclose(file);
    good = fflush(stdout) == 0 && good && file;
    unlink(s->path);
    *made = 0;
    close(s->saved);
    if (!good) complain("the standard output could not be written: %s", strerror(errno));
    return good;
}
