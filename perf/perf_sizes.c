/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/perf_sizes.c - sizes as they are written, and the range of them.
 */
#include "perf/perf_sizes.h"

#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

weft_status wefti_perf_size_read(const char *flag, const char *text,
                                 size_t *bytes_out)
{
    const unsigned long long most = 1ull << 40;
    const char *suffixes = "KkMmGg";
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    const char *suffix = *end ? strchr(suffixes, *end) : NULL;
    int shift = suffix ? 10 * ((int)(suffix - suffixes) / 2 + 1) : 0;
    bool clean = text[0] >= '0' && text[0] <= '9' && !errno &&
                 (!*end || (suffix && !end[1]));
    if (!clean || value > most >> shift) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s %s: allowed is a size such as 8, 64K, 16M, 1G",
                           flag, text);
    }
    *bytes_out = (size_t)value << shift;
    return WEFT_OK;
}

enum { SIZES_MOST = 64, SIZE_CHARS = 32 };

static weft_status add_size(wefti_perf_options *options, size_t bytes)
{
    if (!options->sizes) {
        options->sizes = calloc(SIZES_MOST, sizeof(*options->sizes));
    }
    if (!options->sizes) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "the list of sizes");
    }
    if (options->size_count == SIZES_MOST) {
        return wefti_error(WEFT_ERR_INVALID, "allowed is up to %d sizes",
                           SIZES_MOST);
    }
    options->sizes[options->size_count++] = bytes;
    return WEFT_OK;
}

weft_status wefti_perf_sizes_list(const char *list, wefti_perf_options *options)
{
    options->size_count = 0;
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        char text[SIZE_CHARS];
        size_t chars = strcspn(at, ","), bytes = 0;
        /* One too long for text is no size, cut or not. */
        int length = snprintf(text, sizeof(text), "%.*s", (int)chars, at);
        weft_status status =
            length < SIZE_CHARS
                ? wefti_perf_size_read("--sizes", text, &bytes)
                : wefti_error(WEFT_ERR_INVALID,
                              "--sizes %.*s: allowed is a size such as 8, 64K, "
                              "16M, 1G",
                              (int)chars, at);
        if (status == WEFT_OK) {
            status = add_size(options, bytes);
        }
        if (status != WEFT_OK) {
            return status;
        }
    }
    return WEFT_OK;
}

/* The size after one; false: it is beyond -e. */
static bool find_next(const wefti_perf_options *options, size_t *bytes)
{
    const size_t most = options->max_bytes, factor = options->factor;
    if (options->step_bytes > 0) {
        *bytes += options->step_bytes;
        return *bytes <= most;
    }
    bool more = *bytes > 0 ? *bytes <= most / factor : most > 0;
    *bytes = *bytes > 0 ? *bytes * factor : 1;
    return more;
}

weft_status wefti_perf_sizes_make(wefti_perf_options *options)
{
    if (options->op->kind == WEFTI_PERF_BARRIER || options->moe.tokens ||
        options->matrix_path) {
        options->size_count = 0;
        return add_size(options, 0);
    }
    size_t bytes = options->min_bytes;
    weft_status status = WEFT_OK;
    bool more = options->size_count == 0;
    while (more && status == WEFT_OK) {
        status = add_size(options, bytes);
        more = find_next(options, &bytes);
    }
    return status;
}
