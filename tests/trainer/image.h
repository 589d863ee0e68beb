/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/trainer/image.h - a file's bytes, to be damaged and put back.
 */
#ifndef TESTS_TRAINER_IMAGE_H
#define TESTS_TRAINER_IMAGE_H

#include "tests/trainer/scratch.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct image {
    char path[512];
    uint8_t *bytes;
    size_t count;
} image;

static inline image image_load(const scratch *own, const char *name)
{
    image out = {.bytes = NULL};
    snprintf(out.path, sizeof(out.path), "%.250s/%.200s", own->dir, name);
    FILE *file = fopen(out.path, "rb");
    scratch_require(file && fseek(file, 0, SEEK_END) == 0, out.path);
    out.count = (size_t)ftell(file);
    out.bytes = malloc(out.count);
    rewind(file);
    scratch_require(out.bytes &&
                        fread(out.bytes, 1, out.count, file) == out.count,
                    out.path);
    (void)fclose(file);
    return out;
}

static inline void image_store(const image *from, size_t count)
{
    FILE *file = fopen(from->path, "wb");
    scratch_require(file && fwrite(from->bytes, 1, count, file) == count,
                    from->path);
    (void)fclose(file);
}

#endif
