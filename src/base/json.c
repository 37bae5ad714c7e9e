/*
 * JSON out: strings, numbers, and lists of flat objects (json.h). In: words and numbers of anybody. Out: valid text.
 * SPDX-License-Identifier: MIT
 */
#include "base/json.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* The length of the UTF-8 sequence at `at`, or 0 if it is broken. */
static int sequence_length(const unsigned char *at)
{
    int length = at[0] < 0x80 ? 1 : at[0] >> 5 == 6 ? 2 : at[0] >> 4 == 14 ? 3 : at[0] >> 3 == 30 ? 4 : 0;
    for (int i = 1; i < length; i++)
        if (at[i] >> 6 != 2) return 0;
    return length;
}

void json_add_string(text *out, const char *words)
{
    if (!words) {
        text_add(out, "null");
        return;
    }
    text_add(out, "\"");
    for (const unsigned char *at = (const unsigned char *)words; *at;) {
        const unsigned char *plain = at;
        while (*at >= 0x20 && *at < 0x80 && *at != '"' && *at != '\\') at++;
        if (at > plain) {
            text_add_bytes(out, (const char *)plain, (size_t)(at - plain));
            continue;
        }
        int length = sequence_length(at);
        if (!length) {
            text_add(out, "\\ufffd");
            at++;
        } else if (*at == '"' || *at == '\\') {
            text_print(out, "\\%c", *at++);
        } else if (*at == '\n') {
            text_add(out, "\\n");
            at++;
        } else if (*at < 0x20) {
            text_print(out, "\\u%04x", *at++);
        } else {
            text_add_bytes(out, (const char *)at, (size_t)length);
            at += length;
        }
    }
    text_add(out, "\"");
}

void json_add_number(text *out, double number, int digits)
{
    if (!isfinite(number))
        text_add(out, "null");
    else if (digits)
        text_print(out, "%.*g", digits, number);
    else
        text_add_double(out, number);
}

void json_open_object(json *j)
{
    text_add(&j->out, j->objects++ ? ",\n  {" : "[\n  {");
    j->keys = 0;
}

static void open_key(json *j, const char *key)
{
    if (j->keys++) text_add(&j->out, ", ");
    json_add_string(&j->out, key);
    text_add(&j->out, ": ");
}

void json_text(json *j, const char *key, const char *words)
{
    open_key(j, key);
    json_add_string(&j->out, words);
}

void json_number(json *j, const char *key, double number)
{
    open_key(j, key);
    json_add_number(&j->out, number, 9);
}

void json_whole(json *j, const char *key, int64_t number)
{
    open_key(j, key);
    text_print(&j->out, "%" PRId64, number);
}

void json_truth(json *j, const char *key, bool truth)
{
    open_key(j, key);
    text_add(&j->out, truth ? "true" : "false");
}

void json_numbers(json *j, const char *key, const double *numbers, int count)
{
    open_key(j, key);
    text_add(&j->out, "[");
    for (int i = 0; i < count; i++) {
        if (i) text_add(&j->out, ", ");
        json_add_number(&j->out, numbers[i], 9);
    }
    text_add(&j->out, "]");
}

void json_close_object(json *j)
{
    text_add(&j->out, "}");
}

const char *json_finish(json *j)
{
    text_add(&j->out, j->objects ? "\n]\n" : "[]\n");
    return text_get(&j->out);
}

void json_free(json *j)
{
    text_free(&j->out);
}
