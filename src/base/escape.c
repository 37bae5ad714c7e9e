/*
 * Words of others made harmless. In: bytes from anyone (paths, names, messages, lines of files) and the place they are
 * to stand in. Out: text that cannot leave that place: it neither ends a comment or a string of generated code nor
 * drives a terminal.
 *
 * Whatever reaches generated C or CUDA, a screen, HTML or SVG goes through text_add_escaped; JSON and CSV have their own
 * rules beside their writers, on the same reading of UTF-8.
 * SPDX-License-Identifier: MIT
 */
#include "base/base.h"

#include <string.h>

int utf8_length(const char *bytes, size_t count)
{
    const unsigned char *at = (const unsigned char *)bytes;
    if (!count) return 0;
    if (at[0] < 0x80) return 1;
    int length = at[0] >= 0xc2 && at[0] < 0xe0 ? 2 : at[0] >> 4 == 14 ? 3 : at[0] >= 0xf0 && at[0] < 0xf5 ? 4 : 0;
    if ((size_t)length > count) return 0;
    for (int i = 1; i < length; i++)
        if (at[i] >> 6 != 2) return 0;
    /* Longer than needed, halves of a pair, beyond the last character. */
    if ((at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] >= 0xa0)) return 0;
    if ((at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] >= 0x90)) return 0;
    return length;
}

/* Characters that a terminal or an editor obeys: controls (C0, C1, DEL), changes of direction, line separators. */
static bool drives(const char *bytes, int length)
{
    const unsigned char *at = (const unsigned char *)bytes;
    if (length == 1) return at[0] < 0x20 || at[0] == 0x7f;
    if (length == 2) return (at[0] == 0xc2 && at[1] < 0xa0) || (at[0] == 0xd8 && at[1] == 0x9c);
    if (length != 3) return false;
    unsigned character = (at[0] & 15u) << 12 | (at[1] & 63u) << 6 | (at[2] & 63u);
    return character == 0x200e || character == 0x200f || (character >= 0x2028 && character <= 0x202e) ||
           (character >= 0x2066 && character <= 0x2069) || character == 0xfeff;
}

/* In a string of C a hexadecimal escape takes every digit that follows; an octal one takes three. */
static void add_byte(text *t, escape_place place, unsigned char byte)
{
    if (place == ESCAPE_STRING && (byte == '\n' || byte == '\t'))
        text_add(t, byte == '\n' ? "\\n" : "\\t");
    else if (place == ESCAPE_STRING)
        text_print(t, "\\%03o", byte);
    else
        text_print(t, "\\x%02x", byte);
}

/* Characters that mean something where they are to stand; the second of two question marks could begin a trigraph. */
static bool add_special(text *t, escape_place place, const char *at, char next, char before)
{
    char c = *at;
    if (place == ESCAPE_PAGE) {
        const char *entity = c == '&'    ? "&amp;"
                             : c == '<'  ? "&lt;"
                             : c == '>'  ? "&gt;"
                             : c == '"'  ? "&quot;"
                             : c == '\'' ? "&#39;"
                                         : NULL;
        if (entity) return text_add(t, entity), true;
    }
    if (place == ESCAPE_SCREEN || place == ESCAPE_PAGE)
        return (c == '\n' || c == '\t') && (text_add_bytes(t, at, 1), true);
    if (place == ESCAPE_COMMENT) {
        if (c == '\t') return text_add(t, " "), true;
        bool parts = (c == '*' && next == '/') || (c == '/' && next == '*') || (c == '?' && next == '?');
        return parts && (text_print(t, "%c ", c), true);
    }
    if (c == '"' || c == '\\' || (c == '?' && before == '?')) return text_print(t, "\\%c", c), true;
    return false;
}

void text_add_escaped(text *t, escape_place place, const char *bytes, size_t count)
{
    for (size_t i = 0; i < count;) {
        int length = utf8_length(bytes + i, count - i);
        if (length == 1 && add_special(t, place, bytes + i, i + 1 < count ? bytes[i + 1] : 0, i ? bytes[i - 1] : 0)) {
            i++;
        } else if (!length || drives(bytes + i, length)) {
            for (int n = 0; n < MAXIMUM(length, 1); n++) add_byte(t, place, (unsigned char)bytes[i + (size_t)n]);
            i += (size_t)MAXIMUM(length, 1);
        } else {
            text_add_bytes(t, bytes + i, (size_t)length);
            i += (size_t)length;
        }
    }
}

void escape_in_place(char *words, size_t size)
{
    size_t count = strlen(words), at = 0, used = 0;
    while (at < count) {
        int length = utf8_length(words + at, count - at);
        if (!length || (drives(words + at, length) && words[at] != '\n' && words[at] != '\t')) break;
        at += (size_t)length;
    }
    if (at == count) return;
    char before[ESCAPE_MOST_BYTES];
    count = MINIMUM(count - at, sizeof(before));
    memcpy(before, words + at, count);
    words += at;
    size -= at;
    for (size_t i = 0; i < count;) {
        int length = utf8_length(before + i, count - i), bytes = MAXIMUM(length, 1);
        bool escapes = !length || (drives(before + i, length) && before[i] != '\n' && before[i] != '\t');
        if (used + (size_t)bytes * (escapes ? 4 : 1) + 1 > size) break;
        for (int n = 0; n < bytes; n++, i++) {
            if (escapes)
                used += (size_t)snprintf(words + used, size - used, "\\x%02x", (unsigned char)before[i]);
            else
                words[used++] = before[i];
        }
    }
    words[used] = 0;
}
