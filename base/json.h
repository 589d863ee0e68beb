/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/json.h - writes JSON (RFC 8259) to a stream as it comes: commas,
 * escapes and nesting are kept right here, and nowhere else in weft.
 *
 *     wefti_json json;
 *     wefti_json_init(&json, file);
 *     wefti_json_object_open(&json, NULL);
 *     wefti_json_int(&json, "step", 3);            "step": 3
 *     wefti_json_array_open(&json, "rows");
 *     wefti_json_real(&json, NULL, 0.5);           in an array: no name
 *     wefti_json_array_close(&json);
 *     wefti_json_object_close(&json);
 *     status = wefti_json_fini(&json);
 *
 * Names are given exactly inside objects; anything else, one close too many or
 * a second value at the top is a mistake of the program (WEFTI_ASSERT). A
 * write that fails is remembered and returned by fini.
 *
 * Threads     one per writer.  Allocates: no.
 */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include "weft/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Deepest nesting of objects and arrays. */
#define WEFTI_JSON_DEPTH_MOST 32

typedef struct wefti_json {
    FILE *file;       /* borrowed */
    uint32_t objects; /* bit d: level d is an object, else an array */
    uint32_t filled;  /* bit d: level d has a member, so a comma is due */
    int depth;        /* open objects and arrays */
    bool complete;    /* the top value has been written */
} wefti_json;

void wefti_json_init(wefti_json *json, FILE *file);

void wefti_json_object_open(wefti_json *json, const char *name);
void wefti_json_object_close(wefti_json *json);
void wefti_json_array_open(wefti_json *json, const char *name);
void wefti_json_array_close(wefti_json *json);

/* value NULL writes null; bytes that are not UTF-8 become U+FFFD. */
void wefti_json_text(wefti_json *json, const char *name, const char *value);
void wefti_json_int(wefti_json *json, const char *name, int64_t value);
void wefti_json_uint(wefti_json *json, const char *name, uint64_t value);
/* 17 significant digits; NaN and infinities, which JSON lacks, write null. */
void wefti_json_real(wefti_json *json, const char *name, double value);
void wefti_json_bool(wefti_json *json, const char *name, bool value);
void wefti_json_null(wefti_json *json, const char *name);

/*
 * wefti_json_fini - ends the line and flushes; json may be used again after
 * another init, on the same stream (one value a line).
 *
 * Returns     OK | ERR_SYSTEM (the stream failed at some write).
 */
WEFT_NODISCARD weft_status wefti_json_fini(wefti_json *json);

#endif
