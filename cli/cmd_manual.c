/*
 * `quern completion`: scripts for shells. `quern man`: pages for man. Both are made of the tables of commands and options,
 * so that they cannot be out of date.
 * SPDX-License-Identifier: MIT
 */
#include "cli.h"

#include <ctype.h>
#include <string.h>

/* ---- completion ---- */

static void add_word(void *user, const char *name, const char *value, const char *help)
{
    (void)user, (void)value, (void)help;
    printf(" --%s", name);
}

static void print_bash(void)
{
    printf("_quern() {\n"
           "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words=\n"
           "    if [ \"$COMP_CWORD\" = 1 ]; then\n"
           "        words=\"");
    for (int i = 0; i < command_count; i++) printf("%s%s", i ? " " : "", commands[i].name);
    printf(" version\"\n"
           "    elif [ \"$before\" = --device ]; then\n"
           "        words=\"cpu cuda ref emu gpu\"\n"
           "    else\n"
           "        case ${COMP_WORDS[1]} in\n");
    for (int i = 0; i < command_count; i++) {
        printf("        %s) words=\"", commands[i].name);
        if (!strcmp(commands[i].name, "help") || !strcmp(commands[i].name, "man"))
            for (int k = 0; k < command_count; k++) printf(" %s", commands[k].name);
        if (!strcmp(commands[i].name, "completion")) printf("bash zsh fish");
        if (!strcmp(commands[i].name, "cache")) printf("list clear");
        options_each(&commands[i], add_word, NULL);
        printf("\" ;;\n");
    }
    printf("        esac\n"
           "    fi\n"
           "    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
           "    [ \"${word#-}\" = \"$word\" ] && COMPREPLY+=($(compgen -f -- \"$word\"))\n"
           "}\n"
           "complete -o filenames -F _quern quern\n");
}

/* In single quotes, for zsh and fish. */
static void print_quoted(const char *words)
{
    for (; *words; words++)
        if (*words == '\'')
            printf("'\\''");
        else
            putchar(*words == '[' || *words == ']' ? ' ' : *words);
}

static void add_zsh(void *user, const char *name, const char *value, const char *help)
{
    (void)user;
    printf("            '--%s[", name);
    print_quoted(help);
    printf(value ? "]:%s:_files' \\\n" : "]' \\\n", value);
}

static void print_zsh(void)
{
    printf("#compdef quern\n"
           "_quern() {\n"
           "    local -a commands=(\n");
    for (int i = 0; i < command_count; i++) {
        printf("        '%s:", commands[i].name);
        print_quoted(commands[i].summary);
        printf("'\n");
    }
    printf("    )\n"
           "    if (( CURRENT == 2 )); then _describe command commands; return; fi\n"
           "    case $words[2] in\n");
    for (int i = 0; i < command_count; i++) {
        printf("        %s) _arguments \\\n", commands[i].name);
        options_each(&commands[i], add_zsh, NULL);
        printf("            '*:file:_files' ;;\n");
    }
    printf("    esac\n"
           "}\n"
           "_quern \"$@\"\n");
}

static void add_fish(void *user, const char *name, const char *value, const char *help)
{
    const command *c = user;
    printf("complete -c quern -n '__fish_seen_subcommand_from %s' -l %s%s -d '", c->name, name, value ? " -r" : "");
    print_quoted(help);
    printf("'\n");
}

static void print_fish(void)
{
    for (int i = 0; i < command_count; i++) {
        printf("complete -c quern -n __fish_use_subcommand -a %s -d '", commands[i].name);
        print_quoted(commands[i].summary);
        printf("'\n");
        options_each(&commands[i], add_fish, (void *)&commands[i]);
    }
}

int command_completion(const command *self, const arguments *given)
{
    static const char *const shells[] = {"bash", "zsh", "fish"};
    static void (*const print[])(void) = {print_bash, print_zsh, print_fish};
    for (int i = 0; i < 3; i++)
        if (!strcmp(given->words.items[0], shells[i])) return print[i](), EXIT_OK;
    complain("`quern %s` knows bash, zsh and fish, not `%s`", self->name, given->words.items[0]);
    return EXIT_WRONG_CALL;
}

/* ---- man ---- */

/* Text for roff: backslashes, dashes and a leading dot mean something there. */
static void print_roff(const char *words)
{
    bool start = true;
    for (; *words; words++) {
        if (start && (*words == '.' || *words == '\'')) printf("\\&");
        start = *words == '\n';
        if (*words == '\\')
            printf("\\e");
        else if (*words == '-')
            printf("\\-");
        else
            putchar(*words);
    }
}

static void print_head(const char *name, const char *summary)
{
    printf(".TH \"");
    for (const char *c = name; *c; c++) putchar(toupper((unsigned char)*c));
    printf("\" 1 \"\" \"quern %s\" \"Quern\"\n.SH NAME\n%s \\- ", qn_version(), name);
    print_roff(summary);
    printf("\n");
}

static void add_roff(void *user, const char *name, const char *value, const char *help)
{
    (void)user;
    printf(".TP\n\\fB\\-\\-");
    print_roff(name);
    printf("\\fR");
    if (value) printf(" \\fI%s\\fR", value);
    printf("\n");
    print_roff(help);
    printf("\n");
}

static void print_command_page(const command *c)
{
    char name[64];
    snprintf(name, sizeof(name), "quern-%s", c->name);
    print_head(name, c->summary);
    printf(".SH SYNOPSIS\n.B quern ");
    print_roff(c->usage);
    printf("\n.SH DESCRIPTION\n");
    print_roff(c->about);
    printf(".SH OPTIONS\n");
    options_each(c, add_roff, NULL);
    printf(".SH EXAMPLES\n.nf\n");
    print_roff(c->examples);
    printf(".fi\n.SH EXIT STATUS\n0: success. 1: a finding or a failed check. 2: a wrong call.\n.SH SEE ALSO\n.BR "
           "quern (1)\n");
}

static void print_whole_page(void)
{
    print_head("quern", "write array code and tile kernels once, check them, run them near the hardware's limit");
    printf(".SH SYNOPSIS\n.B quern\n.I COMMAND\n\\&...\n.SH COMMANDS\n");
    for (int i = 0; i < command_count; i++) {
        printf(".TP\n.BR quern\\-%s (1)\n", commands[i].name);
        print_roff(commands[i].summary);
        printf("\n");
    }
    printf(".SH ENVIRONMENT\n.TP\n.B QUERN_CACHE\nwhere compiled kernels are kept\n.TP\n.B QUERN_LOG\n"
           "compile, cache, launch, code, graph, fusion, guards, all: what is told on stderr\n.TP\n.B NO_COLOR\n"
           "no colours\n.SH EXIT STATUS\n0: success. 1: a finding or a failed check. 2: a wrong call.\n");
}

int command_man(const command *self, const arguments *given)
{
    (void)self;
    if (!given->words.count) return print_whole_page(), EXIT_OK;
    for (int i = 0; i < command_count; i++)
        if (!strcmp(commands[i].name, given->words.items[0])) return print_command_page(&commands[i]), EXIT_OK;
    complain("there is no command `%s`; `quern help` lists them", given->words.items[0]);
    return EXIT_WRONG_CALL;
}
