/*
 * Text to tokens. In: the bytes of a file, not trusted. Out: one token at a time, comments in a side list, the lines
 * for messages.
 *
 * The encoding is checked first: a byte that is not UTF-8, or is NUL, is reported once and becomes a blank, so that
 * everything later may rely on clean text. Every token is a fresh piece of text, so the lexer always moves forward.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "lang/parse.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

static const char *const keywords[] = {"kernel", "tensor", "bench",    "launch",  "tune", "then", "tile",  "const",
                                       "in",     "out",    "inout",    "scratch", "let",  "if",   "else",  "for",
                                       "while",  "break",  "continue", "return",  "void", "true", "false", "import"};
static const char *const types[] = {"float", "f32", "double", "f64", "f16", "bf16", "f8e4m3", "f8e5m2", "i8",  "i16",
                                    "i32",   "i64", "u8",     "u16", "u32", "u64",  "int",    "bool",   "tf32"};
/* Longest first. */
static const char *const operators[] = {"...", "<<=", ">>=", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "+=",
                                        "-=",  "*=",  "/=",  "%=", "&=", "|=", "^=", "++", "--", "+",  "-",  "*",
                                        "/",   "%",   "&",   "|",  "^",  "!",  "~",  "<",  ">",  "=",  "?",  ":",
                                        ";",   ",",   "(",   ")",  "[",  "]",  "{",  "}",  "@"};

static bool name_starts(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool name_goes_on(char c)
{
    return name_starts(c) || digit(c);
}

/* Bytes of the UTF-8 sequence that begins here, 0 if there is none. */
static size_t sequence_length(const unsigned char *s, size_t left)
{
    if (s[0] < 0x80) return 1;
    size_t length = s[0] >= 0xc2 && s[0] < 0xe0 ? 2 : (s[0] & 0xf0) == 0xe0 ? 3 : s[0] >= 0xf0 && s[0] < 0xf5 ? 4 : 0;
    if (!length || length > left) return 0;
    for (size_t i = 1; i < length; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    if (s[0] == 0xe0 && s[1] < 0xa0) return 0; /* longer than needed */
    if (s[0] == 0xed && s[1] > 0x9f) return 0; /* surrogates */
    if (s[0] == 0xf0 && s[1] < 0x90) return 0;
    if (s[0] == 0xf4 && s[1] > 0x8f) return 0;
    return length;
}

/* True if the file is text at all: a few bad places are reported one by one, many mean that it is something else. */
static bool check_encoding(const ast_file *file, int first_line, char *bytes, char *shown, diagnostics *d)
{
    const unsigned char *s = (const unsigned char *)file->text;
    int line = first_line + 1, reported = 0;
    size_t line_start = 0;
    for (size_t i = 0; i < file->length;) {
        size_t length = s[i] ? sequence_length(s + i, file->length - i) : 0;
        if (length) {
            if (s[i] == '\n') {
                line++;
                line_start = i + 1;
            }
            i += length;
            continue;
        }
        place at = {.line = line, .column = (int)(i - line_start) + 1};
        unsigned char first = s[i];
        while (i < file->length && (first ? s[i] && !sequence_length(s + i, file->length - i) : !s[i])) {
            bytes[i] = ' ';
            shown[i++] = '?';
        }
        at.end_column = (int)(i - line_start) + 1;
        if (reported++ >= 10) continue;
        if (first)
            diagnose(d, E101, at, "save the file as UTF-8, or remove the byte", "byte 0x%02x is not UTF-8", first);
        else
            diagnose(d, E101, at, "remove it", "a NUL byte");
    }
    return reported < 10;
}

void lex_start(lexer *x, ast_file *file, int first_line, diagnostics *d)
{
    *x = (lexer){.file = file, .d = d, .line = first_line + 1};
    char *bytes = (char *)file->text; /* our own copy: made by lang_parse */
    char *shown = arena_copy_text(file->memory, file->text, file->length);
    x->stopped = !check_encoding(file, first_line, bytes, shown, d);
    int count = 1;
    for (size_t i = 0; i < file->length; i++) count += bytes[i] == '\n';
    file->lines = ARENA_ARRAY(file->memory, const char *, count);
    size_t start = 0;
    for (size_t i = 0; i <= file->length; i++) {
        if (i < file->length && bytes[i] != '\n') continue;
        file->lines[file->line_count++] = shown + start;
        if (i > start && shown[i - 1] == '\r') shown[i - 1] = 0;
        shown[i] = 0;
        start = i + 1;
    }
    if (file->length >= 3 && !memcmp(bytes, "\xef\xbb\xbf", 3)) x->at = 3; /* a byte order mark */
}

static place place_here(const lexer *x)
{
    return (place){.line = x->line, .column = (int)(x->at - x->line_start) + 1};
}

/* Moves over one byte. */
static void step(lexer *x)
{
    if (x->file->text[x->at++] == '\n') {
        x->line++;
        x->line_start = x->at;
    }
}

static bool starts_with(const lexer *x, const char *word)
{
    size_t length = strlen(word);
    return x->file->length - x->at >= length && !memcmp(x->file->text + x->at, word, length);
}

static void unterminated(lexer *x, place at, const char *what, const char *close)
{
    diagnose(x->d, E102, at, arena_print(x->file->memory, "close it with %s", close), "this %s does not end", what);
}

static void read_comment(lexer *x, bool own_line)
{
    ast_file *file = x->file;
    size_t start = x->at;
    ast_comment comment = {.at = place_here(x), .own_line = own_line};
    comment.blank_before = x->line > x->last_line + 1 && x->last_line > 0;
    if (starts_with(x, "//")) {
        while (x->at < file->length && file->text[x->at] != '\n') step(x);
    } else {
        x->at += 2;
        while (x->at < file->length && !starts_with(x, "*/")) step(x);
        if (x->at < file->length)
            x->at += 2;
        else
            unterminated(x, comment.at, "comment", "`*/`");
    }
    size_t end = x->at;
    while (end > start && isspace((unsigned char)file->text[end - 1])) end--;
    comment.end_line = x->line;
    char *words = arena_copy_text(file->memory, file->text + start, end - start);
    char *to = words; /* lines end in \n alone, here as everywhere */
    for (const char *from = words; *from; from++)
        if (from[0] != '\r' || (from[1] != '\n' && from[1])) *to++ = *from;
    *to = 0;
    comment.text = words;
    x->last_line = x->line;
    ARENA_PUSH(file->memory, file->comments, file->comment_count, file->comment_capacity, comment);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v';
}

static void skip_blanks(lexer *x)
{
    const char *s = x->file->text;
    bool own_line = x->at == x->line_start || x->at == 0;
    while (x->at < x->file->length) {
        if (is_blank(s[x->at])) {
            own_line |= s[x->at] == '\n';
            step(x);
        } else if (starts_with(x, "//") || starts_with(x, "/*")) {
            read_comment(x, own_line);
        } else {
            break;
        }
    }
}

static void number_error(lexer *x, const token *t, size_t end, const char *advice, const char *what)
{
    int length = (int)(end - x->at), shown = MINIMUM(length, 40);
    place at = t->at;
    at.end_column = at.column + length;
    diagnose(x->d, E103, at, advice, "%s: `%.*s%s`", what, shown, x->file->text + x->at, shown < length ? "..." : "");
}

/* Digits of a base; false if the value does not fit 64 bits (decimal: 63). */
static bool read_integer(const char *digits, size_t length, unsigned base, uint64_t *value)
{
    uint64_t limit = base == 10 ? INT64_MAX : UINT64_MAX;
    *value = 0;
    for (size_t i = 0; i < length; i++) {
        unsigned d = digit(digits[i]) ? (unsigned)(digits[i] - '0') : (unsigned)(tolower(digits[i]) - 'a' + 10);
        if (*value > (limit - d) / base) return false;
        *value = *value * base + d;
    }
    return true;
}

static bool digits_fit(const char *s, size_t length, unsigned base)
{
    for (size_t i = 0; i < length; i++) {
        bool good = base == 16 ? isxdigit((unsigned char)s[i]) != 0 : s[i] >= '0' && s[i] < (char)('0' + base);
        if (!good) return false;
    }
    return length > 0;
}

static void read_number(lexer *x, token *t)
{
    const char *s = x->file->text;
    size_t start = x->at, end = start;
    bool hex = s[end] == '0' && (s[end + 1] == 'x' || s[end + 1] == 'X');
    while (name_goes_on(s[end]) || s[end] == '.' ||
           (!hex && (s[end] == '+' || s[end] == '-') && end > start && (s[end - 1] == 'e' || s[end - 1] == 'E')))
        end++;
    size_t length = end - start;
    const char *first = s + start;
    t->kind = TOKEN_NUMBER;
    t->word = arena_copy_text(x->file->memory, first, length);
    uint64_t value = 0;
    const char *forms = "write decimal, `0x` or `0b`";
    if (hex || (first[0] == '0' && (first[1] == 'b' || first[1] == 'B'))) {
        unsigned base = hex ? 16 : 2;
        if (!digits_fit(first + 2, length - 2, base))
            number_error(x, t, end, forms, "bad digit in a number");
        else if (!read_integer(first + 2, length - 2, base, &value))
            number_error(x, t, end, "an integer has at most 64 bits", "number too large");
        t->number.i = (int64_t)value;
    } else if (digits_fit(first, length, 10)) {
        if (length > 1 && first[0] == '0')
            number_error(x, t, end, "there are no octal numbers: write decimal, `0x` or `0b`", "leading zero");
        else if (!read_integer(first, length, 10, &value))
            number_error(x, t, end, "an integer has at most 64 bits; write a float as `1e20`", "number too large");
        t->number.i = (int64_t)value;
    } else {
        size_t whole = 0, i, fraction = 0;
        bool point = false, power = false, good;
        while (digit(first[whole])) whole++;
        i = whole;
        if (first[i] == '.') {
            point = true;
            for (i++; digit(first[i]); i++) fraction++;
        }
        good = whole + fraction > 0 && (!point || fraction > 0);
        if (first[i] == 'e' || first[i] == 'E') {
            size_t digits = 0;
            power = true;
            i++;
            if (first[i] == '+' || first[i] == '-') i++;
            for (; digit(first[i]); i++) digits++;
            good &= digits > 0;
        }
        if (first[i] == 'f' && (point || power)) {
            t->is_typed = true;
            i++;
        }
        t->is_float = true;
        t->number.f = number_parse(t->word, NULL);
        if (!good || i != length)
            number_error(x, t, end,
                         point && !fraction         ? "a digit stands behind the point: `0.0`, `0.0f`"
                         : first[length - 1] == 'j' ? "there are no complex numbers: two floats make one"
                                                    : "write a float as `0.5`, `1e-5` or `0.5f`",
                         "bad digit in a number");
        else if (whole > 1 && first[0] == '0')
            number_error(x, t, end, "write it without the zero", "leading zero");
        else if (isinf(t->number.f) || (t->is_typed && t->number.f > 3.4028235677973366e38))
            number_error(x, t, end, "write `inf` if infinity is meant", "number too large");
    }
    x->at = end;
}

/* Behind `.name.name` that begins here. */
static size_t chain_end(const char *s, size_t end)
{
    while (s[end] == '.' && name_starts(s[end + 1]))
        for (end++; name_goes_on(s[end]);) end++;
    return end;
}

static void read_name(lexer *x, token *t)
{
    const char *s = x->file->text;
    size_t start = x->at, end = start;
    while (name_goes_on(s[end])) end++;
    size_t length = end - start;
    bool dotted = s[end] == '.' && name_starts(s[end + 1]);
    if (dotted) length = (end = chain_end(s, end)) - start;
    x->at = end;
    if (length > NAME_LIMIT_BYTES) {
        place at = t->at;
        diagnose(x->d, E105, at, "shorten it", "a name of %zu bytes; the limit is %d", length, NAME_LIMIT_BYTES);
        length = NAME_LIMIT_BYTES;
        dotted = false; /* the dot may be behind what is left of it */
    }
    for (int i = 0; i < COUNT(keywords); i++) {
        if (strlen(keywords[i]) == length && !memcmp(keywords[i], s + start, length)) {
            t->kind = TOKEN_KEYWORD;
            t->word = keywords[i];
            return;
        }
    }
    for (int i = 0; i < COUNT(types); i++) {
        if (strlen(types[i]) == length && !memcmp(types[i], s + start, length)) {
            t->kind = TOKEN_TYPE;
            t->word = types[i];
            return;
        }
    }
    t->kind = TOKEN_NAME;
    t->word = arena_copy_text(x->file->memory, s + start, length);
    if (!dotted) return;
    const char *dot = strchr(t->word, '.');
    if (name_space_known(x->file, t->word, (size_t)(dot - t->word)) && !strchr(dot + 1, '.')) {
        t->word = arena_print(x->file->memory, "%.*s__%s", (int)(dot - t->word), t->word, dot + 1);
        return;
    }
    place at = t->at;
    at.end_column = at.column + (int)length;
    habit_dotted(x->d, x->file->memory, at, t->word);
}

static void read_raw(lexer *x, token *t)
{
    const char *s = x->file->text;
    x->at += 3;
    size_t start = x->at;
    while (x->at < x->file->length && !starts_with(x, "\"\"\"")) step(x);
    t->kind = TOKEN_RAW;
    t->length = x->at - start;
    t->word = arena_copy_text(x->file->memory, s + start, t->length);
    if (x->at < x->file->length)
        x->at += 3;
    else
        unterminated(x, t->at, "raw text", "`\"\"\"`");
}

static void read_string(lexer *x, token *t)
{
    const char *s = x->file->text;
    size_t end = x->at + 1;
    while (end < x->file->length && s[end] != '"' && s[end] != '\n')
        end += s[end] == '\\' && s[end + 1] != '\n' ? 2 : 1;
    end = MINIMUM(end, x->file->length);
    char *words = arena_alloc(x->file->memory, end - x->at + 1);
    size_t length = 0;
    for (x->at++; x->at < end; x->at++) {
        char c = s[x->at];
        place at = place_here(x);
        if (c == '\\' && x->at + 1 < end) {
            c = s[++x->at];
            at.end_column = at.column + 2;
            if (c == 'n')
                c = '\n';
            else if (c == 't')
                c = '\t';
            else if (c != '\\' && c != '"')
                diagnose(x->d, E101, at, "write \\n, \\t, \\\\ or \\\"", "unknown escape in a string");
        } else if (((unsigned char)c < 32 && c != '\t') || c == 127) {
            if (c == '\r' && x->at + 1 == end) continue;
            diagnose(x->d, E101, at, "remove it", "a control character (0x%02x) in a string", (unsigned char)c);
            c = ' ';
        }
        words[length++] = c;
    }
    t->kind = TOKEN_STRING;
    t->word = words;
    t->length = length;
    if (x->at < x->file->length && s[x->at] == '"')
        x->at++;
    else {
        unterminated(x, t->at, "string", "`\"` on the same line");
        t->kind = TOKEN_BAD;
    }
}

/* What other languages mean by a sign that Quern has not. */
static const char *sign_advice(const char *text, size_t at)
{
    char before = at ? text[at - 1] : ' ', after = text[at] ? text[at + 1] : ' ';
    bool opened = false; /* a quote that stands before it in the line */
    for (size_t i = at; i > 0 && text[i - 1] != '\n'; i--) opened |= text[i - 1] == '\'';
    if (text[at] == '\'' && !opened && (name_goes_on(before) || before == ')' || before == ']'))
        return "write `transpose(x)`; a string is in double quotes";
    if (text[at] == '\'') return "a string is in double quotes; infinity is `inf`";
    if (text[at] == '.' && after && strchr("^*/+-=<>!", after))
        return "operations are element by element as they are: `x * y`, `pow(x, 2)`; a matrix product is `x @ y`";
    return "remove it, or put it in a comment or string";
}

/* A run of characters that begin nothing: one message for all of them. */
static void read_unknown(lexer *x, token *t)
{
    const char *s = x->file->text;
    size_t start = x->at, first = 0;
    while (x->at < x->file->length) {
        char c = s[x->at];
        if (is_blank(c) || name_goes_on(c) || c == '"' || (c > 0 && strchr("+-*/%&|^!~<>=?:;,()[]{}@", c))) break;
        if (c == '.' && digit(s[x->at + 1])) break;
        size_t length = MAXIMUM(sequence_length((const unsigned char *)s + x->at, x->file->length - x->at), 1);
        if (!first) first = length;
        x->at += length;
    }
    t->kind = TOKEN_BAD;
    t->word = "";
    place at = t->at;
    at.end_column = at.column + (int)(x->at - start);
    if ((unsigned char)s[start] < 32 || s[start] == 127)
        diagnose(x->d, E101, at, "remove it, or put it in a comment", "unexpected control character 0x%02x",
                 (unsigned char)s[start]);
    else
        diagnose(x->d, E101, at, sign_advice(s, start), "unexpected character `%.*s`", (int)first, s + start);
}

/* A member or method of an expression, `(a + b).sum`, or a line for a preprocessor: reported, and as if it were not
 * there. */
static bool skip_foreign(lexer *x)
{
    const char *s = x->file->text;
    size_t start = x->at;
    place at = place_here(x);
    bool member = s[start] == '.' && name_starts(s[start + 1]);
    bool directive = s[start] == '#' && (name_starts(s[start + 1]) || s[start + 1] == ' ');
    if (!member && !directive) return false;
    if (member)
        x->at = chain_end(s, start);
    else
        while (x->at < x->file->length && s[x->at] != '\n') x->at++;
    at.end_column = at.column + (int)(x->at - start);
    if (member)
        habit_dotted(x->d, x->file->memory, at, arena_copy_text(x->file->memory, s + start, x->at - start));
    else
        diagnose(x->d, E110, at,
                 "a comment is `// ...`, a constant `const int N = 4;`, another file `import \"name.qn\";`",
                 "there is no preprocessor, and `#` begins no comment");
    return true;
}

token lex_next(lexer *x)
{
    const char *s = x->file->text;
    token t = {.kind = TOKEN_END, .word = ""};
    if (x->d->errors >= ERROR_LIMIT) x->stopped = true;
    if (x->stopped)
        x->at = x->file->length;
    else
        do skip_blanks(x);
        while (x->at < x->file->length && skip_foreign(x));
    t.at = place_here(x);
    t.blank_before = x->line > x->last_line + 1 && x->last_line > 0;
    if (x->at < x->file->length) {
        char c = s[x->at];
        if (name_starts(c))
            read_name(x, &t);
        else if (digit(c) || (c == '.' && digit(s[x->at + 1])))
            read_number(x, &t);
        else if (starts_with(x, "\"\"\""))
            read_raw(x, &t);
        else if (c == '"')
            read_string(x, &t);
        else {
            for (int i = 0; i < COUNT(operators) && t.kind == TOKEN_END; i++) {
                if (!starts_with(x, operators[i])) continue;
                t.kind = TOKEN_OPERATOR;
                t.word = operators[i];
                x->at += strlen(operators[i]);
            }
            if (t.kind == TOKEN_END) read_unknown(x, &t);
        }
    }
    t.end_line = x->line;
    t.end_column = (int)(x->at - x->line_start) + 1;
    if (t.end_line == t.at.line) t.at.end_column = t.end_column;
    if (t.kind != TOKEN_END) x->last_line = x->line;
    return t;
}
