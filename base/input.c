/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/input.c - a whole file in memory.
 */
#include "base/input.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>

enum { FIRST_BYTES = 1 << 16 };

/* Until its end, into room that doubles; one byte more than most is too much.
 */
static weft_status read_on(FILE *file, const char *path, size_t most_bytes,
                           char **text, size_t *bytes)
{
    size_t room = FIRST_BYTES;
    for (;;) {
        char *grown = realloc(*text, room + 1);
        if (!grown) {
            return wefti_error(WEFT_ERR_NO_MEMORY, "%.200s: no memory for it",
                               path);
        }
        *text = grown;
        *bytes += fread(*text + *bytes, 1, room - *bytes, file);
        if (*bytes > most_bytes) {
            return wefti_error(WEFT_ERR_INVALID,
                               "%.200s: larger than the %zu bytes allowed",
                               path, most_bytes);
        }
        if (*bytes < room) {
            return ferror(file) ? wefti_error_system("reading %.200s", path)
                                : WEFT_OK;
        }
        room *= 2;
    }
}

weft_status wefti_file_read(const char *path, size_t most_bytes,
                            char **text_out, size_t *text_bytes_out)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = fopen(path, "rb");
    if (!file) {
        return wefti_error_system("%.200s", path);
    }
    weft_status status = read_on(file, path, most_bytes, &text, &bytes);
    if (fclose(file) != 0 && status == WEFT_OK) {
        status = wefti_error_system("closing %.200s", path);
    }
    if (status != WEFT_OK) {
        free(text);
        return status;
    }
    text[bytes] = '\0';
    *text_out = text;
    *text_bytes_out = bytes;
    return WEFT_OK;
}
