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

/* Words that stand behind the command instead of a file; NULL: files do. */
static const char *fixed_words(const command *c)
{
    return !strcmp(c->name, "completion") ? " bash zsh fish" : !strcmp(c->name, "cache") ? " list clear" : NULL;
}

static bool takes_commands(const command *c)
{
    return !strcmp(c->name, "help") || !strcmp(c->name, "man");
}

static void print_commands(void)
{
    for (int i = 0; i < command_count; i++) printf("%s%s", i ? " " : "", commands[i].name);
}

/* Files are offered behind a command that takes some: where a folder is called as a command is, the command is meant. */
static void print_bash(void)
{
    printf("_quern() {\n"
           "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words= files=\n"
           "    if [ \"$COMP_CWORD\" = 1 ]; then\n"
           "        words=\"");
    print_commands();
    printf("\"\n"
           "    elif [ \"$before\" = --device ]; then\n"
           "        words=\"cpu cuda ref emu gpu\"\n"
           "    elif [ \"$before\" = --stage ]; then\n"
           "        words=\"");
    for (int i = 0; i < qn_stage_count(); i++) printf("%s%s", i ? " " : "", qn_stage_name(i, NULL));
    printf("\"\n"
           "    else\n"
           "        case ${COMP_WORDS[1]} in\n");
    for (int i = 0; i < command_count; i++) {
        const command *c = &commands[i];
        printf("        %s) %swords=\"", c->name,
               c->most_words && !fixed_words(c) && !takes_commands(c) ? "files=yes " : "");
        if (takes_commands(c)) print_commands();
        printf("%s", fixed_words(c) ? fixed_words(c) : "");
        options_each(c, add_word, NULL);
        printf("\" ;;\n");
    }
    printf("        esac\n"
           "    fi\n"
           "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n"
           "    if [ -n \"$files\" ] && [ \"${word#-}\" = \"$word\" ]; then\n"
           "        compopt -o filenames 2>/dev/null\n"
           "        mapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n"
           "    fi\n"
           "}\n"
           "complete -F _quern quern\n");
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

/* Lines of a table ("head FILES   the first rows", the next ones indented) as its entries, all others as they run on. */
static void print_about(const char *about)
{
    bool inside = false;
    while (*about) {
        char line[400];
        int length = (int)strcspn(about, "\n"), indent = (int)strspn(about, " ");
        snprintf(line, sizeof(line), "%.*s", length, about);
        about += length + (about[length] == '\n');
        char *gap = indent ? NULL : strstr(line, "  ");
        if (gap) {
            printf(".TP\n\\fB%.*s\\fR\n", (int)(gap - line), line);
            print_roff(gap + strspn(gap, " "));
        } else {
            if (inside && !indent) printf(".PP\n");
            print_roff(line + indent);
        }
        inside = gap || (inside && indent);
        printf("\n");
    }
}

static void print_stages(void)
{
    printf(".SH STAGES\n");
    for (int i = 0; i < qn_stage_count(); i++) {
        const char *summary = NULL, *name = qn_stage_name(i, &summary);
        printf(".TP\n\\fB%s\\fR\n", name);
        print_roff(summary ? summary : "");
        printf("\n");
    }
}

#define EXIT_STATUS "0: success. 1: a finding or a failed check. 2: a wrong call. 130: Ctrl\\-C.\n"

static void print_command_page(const command *c)
{
    char name[64];
    snprintf(name, sizeof(name), "quern-%s", c->name);
    print_head(name, c->summary);
    printf(".SH SYNOPSIS\n.B quern ");
    print_roff(c->usage);
    printf("\n.SH DESCRIPTION\n");
    print_about(c->about);
    printf(".SH OPTIONS\n");
    options_each(c, add_roff, NULL);
    if (has_stages(c)) print_stages();
    printf(".SH EXAMPLES\n.nf\n");
    print_roff(c->examples);
    printf(".fi\n.SH EXIT STATUS\n" EXIT_STATUS ".SH SEE ALSO\n.BR quern (1)\n");
}

static void print_whole_page(void)
{
    static const char *const environment[][2] = {
        {"QUERN_CACHE", "where compiled kernels are kept (else $XDG_CACHE_HOME/quern, else ~/.cache/quern)"},
        {"QUERN_CUDA_PATH", "the folder of CUDA's libraries, where they are not found; none: as if there were no GPU"},
        {"QUERN_LIBRARY",
         "never, tuned, always: which products cuBLASLt computes (tuned: where `quern tune` found it faster)"},
        {"QUERN_LOG", "compile, cache, launch, code, graph, fusion, guards, all: what is told on stderr"},
        {"QUERN_PROFILE",
         "files that any program that uses Quern leaves its profile in: trace=run.json.gz,table=run.txt"},
        {"QUERN_TUNE", "off: what `quern tune` found is not used"},
        {"NO_COLOR", "no colours"}};
    print_head("quern", "write array code and tile kernels once, check them, run them near the hardware's limit");
    printf(".SH SYNOPSIS\n.B quern\n.I COMMAND\n\\&...\n.SH COMMANDS\n");
    for (int i = 0; i < command_count; i++) {
        printf(".TP\n.BR quern\\-%s (1)\n", commands[i].name);
        print_roff(commands[i].summary);
        printf("\n");
    }
    printf(".SH ENVIRONMENT\n");
    for (size_t i = 0; i < sizeof(environment) / sizeof(environment[0]); i++) {
        printf(".TP\n.B %s\n", environment[i][0]);
        print_roff(environment[i][1]);
        printf("\n");
    }
    printf(".SH EXIT STATUS\n" EXIT_STATUS);
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
