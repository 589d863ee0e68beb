/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/ptx/ptx_file.h - a file's text.
 */
#ifndef TESTS_PTX_PTX_FILE_H
#define TESTS_PTX_PTX_FILE_H

#include <stdio.h>
#include <stdlib.h>

/* The whole text, for free(); NULL: it can not be read. */
static inline char *ptx_file_read(const char *path)
{
    FILE *file = fopen(path, "r");
    size_t used = 0, room = 1 << 20;
    char *text = malloc(room + 1);
    if (!file || !text) {
        free(text);
        if (file) {
            fclose(file);
        }
        return NULL;
    }
    for (size_t now; (now = fread(text + used, 1, room - used, file)) > 0;) {
        used += now;
        if (used == room) {
            room *= 2;
            text = realloc(text, room + 1);
            if (!text) {
                abort();
            }
        }
    }
    text[used] = '\0';
    fclose(file);
    return text;
}

#endif
