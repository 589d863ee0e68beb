/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/select.c - the choice of algorithm and chunk, from sizes and ranks.
 *
 * Small payloads ride in the entries (one cache-line exchange). All-reduces of
 * which everybody can read everything cheaply are exchanged in one hop. Beyond,
 * direct, pairwise and uneven, each for its own collectives, move each byte
 * once and reduce at its owner; they have up to 2 (n - 1) chunks staged, so
 * chunks shrink as ranks grow.
 */
#include "comm/select.h"

#include "base/error.h"
#include "base/settings.h"
#include "comm/core.h"
#include "comm/pattern/shape.h"
#include "kernels/wire/fold.h"

#include <stdio.h>
#include <string.h>

enum {
    ONESHOT_LIMIT_BYTES = 4096,
    ONESHOT_READ_BYTES = 32 << 10, /* what a rank may read in all */
    CHUNK_BYTES = 128 << 10,
    EXCHANGE_READ_BYTES = 16 << 10, /* of all peers together; measured */
    FORCED_ONESHOT = 1,
    FORCED_PATTERN = 2
};

static weft_status bad_algorithm(const char *text)
{
    char names[128] = "oneshot";
    for (int i = 0; wefti_patterns[i]; i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof(names) - used, " %s",
                 wefti_patterns[i]->name);
    }
    return wefti_error(WEFT_ERR_INVALID,
                       "WEFT_ALGORITHM=%s: allowed is collective:algorithm, "
                       "separated by commas; algorithms are %s",
                       text, names);
}

/* One "collective:algorithm" of length bytes. */
static bool read_forced(const char *text, size_t length, wefti_tuning *tuning)
{
    const char *colon = memchr(text, ':', length);
    if (!colon) {
        return false;
    }
    size_t name_bytes = (size_t)(colon - text);
    const char *wanted = colon + 1;
    size_t wanted_bytes = length - name_bytes - 1;
    int choice = 0;
    if (wanted_bytes == 7 && memcmp(wanted, "oneshot", 7) == 0) {
        choice = FORCED_ONESHOT;
    }
    for (int i = 0; wefti_patterns[i] && !choice; i++) {
        if (strlen(wefti_patterns[i]->name) == wanted_bytes &&
            memcmp(wefti_patterns[i]->name, wanted, wanted_bytes) == 0) {
            choice = FORCED_PATTERN + i;
        }
    }
    for (int c = 0; c < WEFT_COLLECTIVE_COUNT && choice; c++) {
        const char *name = weft_collective_text((weft_collective)c);
        if (strlen(name) == name_bytes && memcmp(name, text, name_bytes) == 0) {
            tuning->forced[c] = (uint8_t)choice;
            return true;
        }
    }
    return false;
}

weft_status wefti_tuning_read(wefti_tuning *tuning_out)
{
    int64_t chunk_bytes;
    memset(tuning_out, 0, sizeof(*tuning_out));
    weft_status status =
        wefti_setting_int(WEFTI_SETTING_CHUNK_BYTES, &chunk_bytes);
    if (status != WEFT_OK) {
        return status;
    }
    tuning_out->chunk_bytes = (uint32_t)chunk_bytes;
    status = wefti_setting_real(WEFTI_SETTING_EMULATE_GBPS,
                                &tuning_out->emulate_gbps);
    if (status != WEFT_OK) {
        return status;
    }
    const char *text = wefti_setting_text(WEFTI_SETTING_ALGORITHM);
    for (const char *at = text; *at;) {
        size_t length = strcspn(at, ",");
        if (!read_forced(at, length, tuning_out)) {
            return bad_algorithm(text);
        }
        at += length;
        at += *at == ',';
    }
    return WEFT_OK;
}

size_t wefti_oneshot_bytes(int nranks, const weft_op *op)
{
    const wefti_shape *shape = wefti_shape_get(op->collective);
    size_t elems = op->count;
    if (shape->send_parts &&
        __builtin_mul_overflow(elems, (size_t)nranks, &elems)) {
        return SIZE_MAX;
    }
    size_t bytes;
    return __builtin_mul_overflow(elems, weft_dtype_bytes(op->dtype), &bytes)
               ? SIZE_MAX
               : bytes;
}

static bool fits_oneshot(int nranks, const weft_op *op)
{
    if (wefti_shape_get(op->collective)->varied) {
        return false; /* its sizes are not everybody's to know */
    }
    size_t limit = ONESHOT_READ_BYTES / (size_t)nranks;
    if (limit > ONESHOT_LIMIT_BYTES) {
        limit = ONESHOT_LIMIT_BYTES;
    }
    return op->count == 0 || wefti_oneshot_bytes(nranks, op) <= limit;
}

static size_t chunk_elems(const wefti_tuning *tuning, int nranks,
                          weft_dtype dtype)
{
    size_t bytes = tuning->chunk_bytes ? tuning->chunk_bytes : CHUNK_BYTES;
    /* Half the window serves each channel, 2 (n - 1) chunks the first. */
    size_t share = WEFTI_WINDOW_BYTES / 2 / (2 * (size_t)nranks);
    if (bytes > share) {
        bytes = share;
    }
    if (bytes < 64) {
        bytes = 64;
    }
    /* Narrow floats travel wide in some patterns: count what they become. */
    size_t wide = wefti_wide_bytes(dtype);
    return bytes / wide ? bytes / wide : 1;
}

/* In one hop, while its reads cost less than direct's second hop. */
static bool is_cheap_to_exchange(int nranks, const weft_op *op)
{
    size_t peers = nranks > 1 ? (size_t)nranks - 1 : 1;
    return op->count * weft_dtype_bytes(op->dtype) <=
           EXCHANGE_READ_BYTES / peers;
}

/* 1 + its place in the table. */
static uint8_t digest_of(const wefti_pattern *pattern)
{
    uint8_t digest = 1;
    while (wefti_patterns[digest - 1] != pattern) {
        digest++;
    }
    return digest;
}

/* The table begins with what moves each byte once. */
static const wefti_pattern *first_supporting(const wefti_problem *problem)
{
    size_t i = 0;
    while (wefti_patterns[i] && !wefti_patterns[i]->supports(problem)) {
        i++;
    }
    return wefti_patterns[i];
}

wefti_choice wefti_select(const wefti_tuning *tuning, int nranks,
                          const weft_op *op)
{
    wefti_choice choice = {NULL, 1, 0};
    int forced = tuning->forced[op->collective];
    if (forced <= FORCED_ONESHOT && fits_oneshot(nranks, op)) {
        return choice;
    }
    choice.chunk_elems = chunk_elems(tuning, nranks, op->dtype);
    wefti_problem problem = {.collective = op->collective,
                             .nranks = nranks,
                             .root = op->root,
                             .count = op->count,
                             .chunk_elems = choice.chunk_elems};
    const wefti_pattern *pattern = NULL;
    if (forced >= FORCED_PATTERN) {
        pattern = wefti_patterns[forced - FORCED_PATTERN];
    } else if (is_cheap_to_exchange(nranks, op)) {
        pattern = &wefti_pattern_exchange;
    }
    if (!pattern || !pattern->supports(&problem)) {
        pattern = first_supporting(&problem);
    }
    if (pattern) { /* else a barrier: nothing to move */
        choice.pattern = pattern;
        choice.digest = digest_of(pattern);
    }
    return choice;
}

const char *wefti_comm_explain(weft_comm *comm, const weft_op *op,
                               const char **fabric_out)
{
    *fabric_out = wefti_fabric_name(&comm->fabric);
    wefti_choice choice = wefti_select(&comm->tuning, comm->nranks, op);
    return choice.pattern ? choice.pattern->name : "oneshot";
}
