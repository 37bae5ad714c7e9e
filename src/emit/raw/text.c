/*
 * What raw text says without being compiled. In: C or CUDA text. Out: its functions with their parameters, for the
 * comparison with a declaration (E508: no compiler would say it in the words of the .qn file) and for modules made from
 * CUDA text alone. This reads declarations by their look; text that hides them behind macros is not understood, and the
 * message then says that the function is missing.
 * SPDX-License-Identifier: MIT
 */
#include "emit/raw/raw.h"

#include <ctype.h>
#include <string.h>

const char *raw_skip_blank(const char *c)
{
    for (;;) {
        if (isspace((unsigned char)*c)) {
            c++;
        } else if (c[0] == '/' && c[1] == '/') {
            while (*c && *c != '\n') c++;
        } else if (c[0] == '/' && c[1] == '*') {
            const char *end = strstr(c + 2, "*/");
            if (!end) return c + strlen(c);
            c = end + 2;
        } else {
            return c;
        }
    }
}

static const char *skip_quoted(const char *c)
{
    char quote = *c++;
    while (*c && *c != quote) c += c[0] == '\\' && c[1] ? 2 : 1;
    return *c ? c + 1 : c;
}

bool raw_is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static raw_span read_word(const char *c)
{
    raw_span word = {.start = c};
    while (raw_is_name(c[word.length])) word.length++;
    return word;
}

static bool is_word(raw_span word, const char *words)
{
    return word.length == strlen(words) && !memcmp(word.start, words, word.length);
}

static bool is_one_of(raw_span word, const char *const *list, int count)
{
    for (int i = 0; i < count; i++)
        if (is_word(word, list[i])) return true;
    return false;
}

/* c stands at "(", "[" or "{": one past what closes it. */
static const char *skip_group(const char *c)
{
    int depth = 0;
    for (c = raw_skip_blank(c); *c; c = raw_skip_blank(c)) {
        if (*c == '"' || *c == '\'') {
            c = skip_quoted(c);
            continue;
        }
        if (strchr("([{", *c)) depth++;
        if (strchr(")]}", *c) && --depth <= 0) return c + 1;
        c++;
    }
    return c;
}

/* c stands at the "<" of a template: one past its ">", with the names of its parameters. */
static const char *read_template(const char *c, raw_function *f)
{
    int depth = 0;
    bool has_default = false;
    raw_span last = {0};
    f->template_count = 0;
    for (; *c; c = raw_skip_blank(c)) {
        bool ends = (*c == ',' && depth == 1) || (*c == '>' && depth == 1);
        if (ends) {
            if (f->template_count < COUNT(f->template_names)) f->template_names[f->template_count++] = last;
            last = (raw_span){0};
            has_default = false;
        }
        if (raw_is_name(*c)) {
            raw_span word = read_word(c);
            if (!has_default) last = word;
            c += word.length;
            continue;
        }
        if (*c == '(') {
            c = skip_group(c);
            continue;
        }
        if (*c == '=') has_default = true;
        if (*c == '<') depth++;
        if (*c == '>' && --depth == 0) return c + 1;
        c++;
    }
    return c;
}

bool raw_next_function(const char **at, raw_function *out)
{
    /* Words with parentheses that are no functions. */
    static const char *const attributes[] = {"__launch_bounds__", "__attribute__",    "__align__",     "alignas",
                                             "decltype",          "__cluster_dims__", "static_assert", "asm",
                                             "defined",           "__declspec"};
    raw_function f = {0};
    bool is_open = false; /* namespace or extern "C": its brace is not ours */
    for (const char *c = raw_skip_blank(*at); *c; c = raw_skip_blank(c)) {
        if (*c == '#') {
            while (*c && *c != '\n') c += c[0] == '\\' && c[1] ? 2 : 1;
        } else if (*c == '"' || *c == '\'') {
            c = skip_quoted(c);
        } else if (raw_is_name(*c)) {
            raw_span word = read_word(c);
            c = raw_skip_blank(c + word.length);
            if (is_word(word, "template") && *c == '<') c = read_template(c, &f);
            if (is_word(word, "namespace") || is_word(word, "extern")) is_open = true;
            if (is_word(word, "__global__")) f.global = word;
            if (*c != '(') continue;
            if (!is_one_of(word, attributes, COUNT(attributes))) {
                f.name = word;
                f.parameters = c + 1;
                *at = skip_group(c);
                *out = f;
                return true;
            }
            c = skip_group(c);
            raw_span whole = {word.start, (size_t)(c - word.start)};
            if (is_word(word, "__launch_bounds__")) f.bounds = whole;
            if (is_word(word, "__cluster_dims__")) f.cluster = whole;
        } else if (*c == '{' && !is_open) {
            c = skip_group(c);
            f = (raw_function){0};
        } else {
            bool ends = *c == ';' || *c == '{' || *c == '}';
            if (ends) f = (raw_function){0};
            if (ends) is_open = false;
            c = *c == '(' || *c == '[' ? skip_group(c) : c + 1;
        }
    }
    return false;
}

void raw_read_parameter(const char **at, raw_parameter *out)
{
    static const char *const dropped[] = {"volatile",     "restrict", "__restrict", "__grid_constant__",
                                          "__restrict__", "register", "struct"};
    static const char *const type_words[] = {"unsigned", "signed", "char", "short", "int", "long", "float", "double"};
    raw_span words[16];
    int count = 0, pointers = 0, depth = 0;
    bool has_default = false;
    const char *c = raw_skip_blank(*at);
    out->is_const = false;
    for (; *c && (depth || (*c != ',' && *c != ')')); c = raw_skip_blank(c)) {
        if (raw_is_name(*c) && !depth) {
            raw_span word = read_word(c);
            c += word.length;
            if (is_word(word, "const"))
                out->is_const |= !pointers;
            else if (!has_default && !is_one_of(word, dropped, COUNT(dropped)) && count < COUNT(words))
                words[count++] = word;
            continue;
        }
        if (*c == '=' && !depth) has_default = true;
        if ((*c == '*' || *c == '&') && !depth && !has_default) pointers++;
        if (*c == '[' && !depth++)
            pointers++;
        else if (*c == '(' || (*c == '[' && depth > 1))
            depth++;
        if (*c == ']' || *c == ')') depth--;
        c++;
    }
    bool named = count > 1 && !is_one_of(words[count - 1], type_words, COUNT(type_words));
    out->name = named ? words[count - 1] : (raw_span){0};
    for (int i = 0; i < count - named; i++) {
        if (i) text_add(&out->type, " ");
        text_add_bytes(&out->type, words[i].start, words[i].length);
    }
    if (pointers) text_add(&out->type, " ");
    for (int i = 0; i < pointers; i++) text_add(&out->type, "*");
    *at = c;
}

/* Argument `number` of "gemm<float, 16>". */
static raw_span instance_argument(const char *instance, int number)
{
    const char *c = strchr(instance, '<');
    int depth = 0;
    raw_span part = {.start = c ? raw_skip_blank(c + 1) : instance};
    for (c = part.start; *c; c++) {
        if (*c == '<' || *c == '(') depth++;
        bool ends = depth == 0 && (*c == ',' || *c == '>');
        if (ends && number-- == 0) {
            part.length = (size_t)(c - part.start);
            return part;
        }
        if (ends) part.start = raw_skip_blank(c + 1);
        if (*c == '>' || *c == ')') depth--;
    }
    return (raw_span){0};
}

/* The value of a "#define NAME value" line. */
static raw_span constant_value(const char *constants, raw_span name)
{
    for (const char *c = constants; c && (c = strstr(c, "#define ")); c++) {
        raw_span word = read_word(c + 8);
        if (word.length != name.length || memcmp(word.start, name.start, name.length)) continue;
        const char *value = word.start + word.length + 1;
        return (raw_span){value, strcspn(value, "\n")};
    }
    return (raw_span){0};
}

void raw_substitute(const raw_names *names, raw_span words, text *out)
{
    for (const char *c = words.start, *end = c + words.length; c < end;) {
        if (!raw_is_name(*c)) {
            text_add_bytes(out, c++, 1);
            continue;
        }
        raw_span word = read_word(c), value = constant_value(names->constants, word);
        c += word.length;
        for (int i = 0; names->instance && i < names->function->template_count && !value.length; i++) {
            raw_span parameter = names->function->template_names[i];
            if (parameter.length == word.length && !memcmp(parameter.start, word.start, word.length))
                value = instance_argument(names->instance, i);
        }
        if (!value.length) value = word;
        text_add_bytes(out, value.start, value.length);
    }
}
