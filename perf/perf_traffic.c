/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/perf_traffic.c - experts of tokens as arithmetic. A matrix' tokens stand
 * by the rank that they go to, and take turns among its experts.
 */
#include "perf/perf_traffic.h"

#include "base/error.h"
#include "weft/moe.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a matrix -------------------------------------------------------------
 */

typedef struct matrix_unit {
    double scale;
    size_t row_bytes;
} matrix_unit;

/* Numbers of a line, to rows where it counts; how many there are. */
static weft_status read_line(const char *path, int line, char *text,
                             const matrix_unit *of, size_t room, size_t *rows,
                             size_t *count_out)
{
    size_t count = 0;
    char *rest = text;
    for (char *word; (word = strtok_r(rest, " \t\r\n", &rest)); count++) {
        char *end;
        errno = 0;
        const double bytes = strtod(word, &end);
        if (errno || *end || !(bytes >= 0 && bytes <= 1e12)) {
            return wefti_error(WEFT_ERR_INVALID,
                               "%s:%d: %s: allowed are bytes, 0 to 1e12", path,
                               line, word);
        }
        if (count < room) {
            rows[count] = (size_t)(bytes * of->scale) / of->row_bytes;
        }
    }
    *count_out = count;
    return WEFT_OK;
}

/* All lines have as many numbers as there are lines. */
static weft_status read_file(wefti_perf_traffic *traffic, const char *path,
                             FILE *file, const matrix_unit *of)
{
    const size_t nranks = (size_t)traffic->nranks;
    size_t lines = 0, width = 0, room = 0;
    char *text = NULL;
    weft_status status = WEFT_OK;
    for (int line = 1; status == WEFT_OK && getline(&text, &room, file) >= 0;
         line++) {
        size_t count;
        const bool counts = lines < nranks;
        status =
            read_line(path, line, text, of, counts ? nranks : 0,
                      traffic->rows + (counts ? lines * nranks : 0), &count);
        if (status == WEFT_OK && count > 0) {
            width = lines++ == 0 ? count : width;
            if (count != width) {
                status = wefti_error(WEFT_ERR_INVALID,
                                     "%s:%d: %zu numbers: allowed is %zu, as "
                                     "above",
                                     path, line, count, width);
            }
        }
    }
    free(text);
    if (status == WEFT_OK && (lines != width || lines < nranks)) {
        status = wefti_error(WEFT_ERR_INVALID,
                             "%s: %zu lines of %zu numbers: allowed is a "
                             "square of %zu or more",
                             path, lines, width, nranks);
    }
    return status;
}

weft_status wefti_perf_traffic_read(wefti_perf_traffic *traffic,
                                    const char *path, double scale,
                                    size_t row_bytes)
{
    const size_t nranks = (size_t)traffic->nranks;
    traffic->rows = calloc(nranks * nranks, sizeof(*traffic->rows));
    if (!traffic->rows) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "a matrix of %zu ranks", nranks);
    }
    const matrix_unit of = {scale, row_bytes};
    FILE *file = fopen(path, "r");
    weft_status status =
        file ? read_file(traffic, path, file, &of)
             : wefti_error(WEFT_ERR_SYSTEM, "%s: %s", path, strerror(errno));
    if (file) {
        fclose(file);
    }
    if (status != WEFT_OK) {
        wefti_perf_traffic_fini(traffic);
    }
    return status;
}

void wefti_perf_traffic_fini(wefti_perf_traffic *traffic)
{
    free(traffic->rows);
    traffic->rows = NULL;
}

/* ---- tokens ---------------------------------------------------------------
 */

size_t wefti_perf_traffic_tokens(const wefti_perf_traffic *traffic, int rank)
{
    const size_t nranks = (size_t)traffic->nranks;
    size_t tokens = traffic->rows ? 0 : traffic->tokens;
    for (size_t to = 0; traffic->rows && to < nranks; to++) {
        tokens += traffic->rows[(size_t)rank * nranks + to];
    }
    return tokens;
}

/* Of a rank and a token, the same everywhere and always (splitmix64). */
static uint64_t draw(int rank, size_t token)
{
    uint64_t mixed = ((uint64_t)rank << 40) + (uint64_t)token;
    mixed += 0x9e3779b97f4a7c15u;
    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebu;
    return mixed ^ mixed >> 31;
}

static bool shares_factor(uint64_t a, uint64_t b)
{
    while (b > 0) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a > 1;
}

/* Experts at equal steps round all: all different. */
static void draw_experts(const wefti_perf_traffic *traffic, int rank,
                         size_t token, int32_t *experts_out)
{
    const uint64_t drawn = draw(rank, token);
    const uint64_t experts = (uint64_t)traffic->experts;
    uint64_t step = 1 + (drawn >> 32) % experts;
    while (shares_factor(step, experts)) {
        step++;
    }
    for (int slot = 0; slot < traffic->slots; slot++) {
        experts_out[slot] =
            (int32_t)((drawn % experts + (uint64_t)slot * step) % experts);
    }
}

void wefti_perf_traffic_experts(const wefti_perf_traffic *traffic, int rank,
                                size_t token, int32_t *experts_out)
{
    if (!traffic->rows) {
        draw_experts(traffic, rank, token, experts_out);
        return;
    }
    const size_t nranks = (size_t)traffic->nranks;
    const size_t *rows = traffic->rows + (size_t)rank * nranks;
    const int here = traffic->experts / traffic->nranks;
    int to = 0;
    while (token >= rows[to]) {
        token -= rows[to++];
    }
    experts_out[0] = (int32_t)(to * here + (int)(token % (size_t)here));
}

size_t wefti_perf_traffic_most(const wefti_perf_traffic *traffic)
{
    size_t most = 0;
    for (int rank = 0; rank < traffic->nranks; rank++) {
        const size_t tokens = wefti_perf_traffic_tokens(traffic, rank);
        most = tokens > most ? tokens : most;
    }
    return most;
}

/* Slots of a token that name experts of a rank. */
static size_t slots_at(const wefti_perf_traffic *traffic,
                       const int32_t *experts, int rank)
{
    const int here = traffic->experts / traffic->nranks;
    size_t count = 0;
    for (int slot = 0; slot < traffic->slots; slot++) {
        count += experts[slot] / here == rank;
    }
    return count;
}

/* Over all tokens: slots that name experts of the rank, or with every the
 * (token, rank) pairs. */
static size_t count(const wefti_perf_traffic *traffic, int rank, bool every)
{
    int32_t experts[WEFT_MOE_SLOTS_MOST];
    size_t sum = 0;
    for (int from = 0; from < traffic->nranks; from++) {
        const size_t tokens = wefti_perf_traffic_tokens(traffic, from);
        for (size_t token = 0; token < tokens; token++) {
            wefti_perf_traffic_experts(traffic, from, token, experts);
            sum += every ? 0 : slots_at(traffic, experts, rank);
            for (int to = 0; every && to < traffic->nranks; to++) {
                sum += slots_at(traffic, experts, to) > 0;
            }
        }
    }
    return sum;
}

size_t wefti_perf_traffic_rows(const wefti_perf_traffic *traffic, int rank)
{
    return count(traffic, rank, false);
}

size_t wefti_perf_traffic_pairs(const wefti_perf_traffic *traffic)
{
    return count(traffic, 0, true);
}
