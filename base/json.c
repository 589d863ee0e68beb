/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/json.c - a streaming JSON writer.
 */
#include "base/json.h"

#include "base/check.h"
#include "base/error.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

void wefti_json_init(wefti_json *json, FILE *file)
{
    *json = (wefti_json){.file = file};
}

static void write_quoted(FILE *file, const char *value)
{
    const unsigned char *at = (const unsigned char *)value;
    size_t left_bytes = strlen(value);
    fputc('"', file);
    while (left_bytes > 0) {
        size_t step = wefti_utf8_step(at, left_bytes);
        if (step == 0) {
            fputs("\xEF\xBF\xBD", file);
            step = 1;
        } else if (*at == '"' || *at == '\\') {
            fprintf(file, "\\%c", *at);
        } else if (*at == '\n') {
            fputs("\\n", file);
        } else if (*at < 0x20 || *at == 0x7F) {
            fprintf(file, "\\u%04x", *at);
        } else {
            fwrite(at, 1, step, file);
        }
        at += step;
        left_bytes -= step;
    }
    fputc('"', file);
}

/* What stands before a value: the comma if one is due, and the name. */
static void begin_value(wefti_json *json, const char *name)
{
    if (json->depth == 0) {
        WEFTI_ASSERT(!json->complete && name == NULL);
        json->complete = true;
        return;
    }
    uint32_t level = UINT32_C(1) << (json->depth - 1);
    if ((json->filled & level) != 0) {
        fputs(", ", json->file);
    }
    json->filled |= level;
    WEFTI_ASSERT(((json->objects & level) != 0) == (name != NULL));
    if (name != NULL) {
        write_quoted(json->file, name);
        fputs(": ", json->file);
    }
}

static void open_level(wefti_json *json, const char *name, bool is_object)
{
    WEFTI_ASSERT(json->depth < WEFTI_JSON_DEPTH_MOST);
    begin_value(json, name);
    uint32_t level = UINT32_C(1) << json->depth;
    json->objects = is_object ? json->objects | level : json->objects & ~level;
    json->filled &= ~level;
    json->depth++;
    fputc(is_object ? '{' : '[', json->file);
}

static void close_level(wefti_json *json, bool is_object)
{
    WEFTI_ASSERT(json->depth > 0);
    json->depth--;
    WEFTI_ASSERT(((json->objects >> json->depth) & 1) == (is_object ? 1 : 0));
    fputc(is_object ? '}' : ']', json->file);
}

void wefti_json_object_open(wefti_json *json, const char *name)
{
    open_level(json, name, true);
}

void wefti_json_object_close(wefti_json *json)
{
    close_level(json, true);
}

void wefti_json_array_open(wefti_json *json, const char *name)
{
    open_level(json, name, false);
}

void wefti_json_array_close(wefti_json *json)
{
    close_level(json, false);
}

void wefti_json_text(wefti_json *json, const char *name, const char *value)
{
    if (value == NULL) {
        wefti_json_null(json, name);
        return;
    }
    begin_value(json, name);
    write_quoted(json->file, value);
}

void wefti_json_int(wefti_json *json, const char *name, int64_t value)
{
    begin_value(json, name);
    fprintf(json->file, "%" PRId64, value);
}

void wefti_json_uint(wefti_json *json, const char *name, uint64_t value)
{
    begin_value(json, name);
    fprintf(json->file, "%" PRIu64, value);
}

void wefti_json_real(wefti_json *json, const char *name, double value)
{
    if (!isfinite(value)) {
        wefti_json_null(json, name);
        return;
    }
    begin_value(json, name);
    fprintf(json->file, "%.17g", value);
}

void wefti_json_bool(wefti_json *json, const char *name, bool value)
{
    begin_value(json, name);
    fputs(value ? "true" : "false", json->file);
}

void wefti_json_null(wefti_json *json, const char *name)
{
    begin_value(json, name);
    fputs("null", json->file);
}

weft_status wefti_json_fini(wefti_json *json)
{
    WEFTI_ASSERT(json->depth == 0 && json->complete);
    fputc('\n', json->file);
    if (fflush(json->file) != 0 || ferror(json->file) != 0) {
        return wefti_error_system("writing JSON");
    }
    return WEFT_OK;
}
