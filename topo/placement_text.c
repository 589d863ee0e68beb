/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/placement_text.c - a placement in words, and a job from words.
 */
#include "topo/placement.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

#define RANKS_SHOWN 64

static void print_map(const wefti_levels *levels, const wefti_placement *p,
                      FILE *file)
{
    fputs("\nRank: place\n", file);
    int shown = p->rank_count < RANKS_SHOWN ? p->rank_count : RANKS_SHOWN;
    for (int rank = 0; rank < shown; rank++) {
        int place = p->places[rank];
        char text[32];
        snprintf(text, sizeof(text), "%d: host%d gpu%d", rank,
                 levels->hosts[place], levels->gpus[place]);
        if (levels->gpus[place] < 0) {
            snprintf(text, sizeof(text), "%d: host%d", rank,
                     levels->hosts[place]);
        }
        fprintf(file, "%-19s%s", text, rank % 4 == 3 ? "\n" : "");
    }
    fprintf(file, "%s", shown % 4 ? "\n" : "");
    if (shown < p->rank_count) {
        fprintf(file, "and %d more ranks\n", p->rank_count - shown);
    }
}

void wefti_placement_print(const wefti_levels *levels,
                           const wefti_place_job *job, const wefti_placement *p,
                           FILE *file)
{
    fputs("\nPlacement, closest first:", file);
    for (int i = 0; i < WEFTI_AXIS_COUNT; i++) {
        if (job->sizes[p->order[i]] > 1) {
            fprintf(file, " %s=%d", wefti_axis_text((wefti_axis)p->order[i]),
                    job->sizes[p->order[i]]);
        }
    }
    fprintf(file, "\n%-10s%12s%14s%14s  %s\n", "level", "GB/s", "before, bytes",
            "after, bytes", "of which");
    for (int level = 0; level < levels->level_count; level++) {
        char GBps[24] = "-"; /* nothing known of CPUs */
        if (levels->GBps[level] > 0) {
            snprintf(GBps, sizeof(GBps), "%.4g", levels->GBps[level]);
        }
        fprintf(file, "%-10s%12s%14.4g%14.4g ", levels->names[level], GBps,
                p->before[level], p->after[level]);
        for (int axis = 0; axis < WEFTI_AXIS_COUNT; axis++) {
            if (p->by_axis[axis][level] > 0) {
                fprintf(file, " %s", wefti_axis_text((wefti_axis)axis));
            }
        }
        fputc('\n', file);
    }
    print_map(levels, p, file);
}

static weft_status read_pair(const char *text, size_t length,
                             wefti_place_job *job)
{
    char pair[64], *end;
    if (length >= sizeof(pair)) {
        return wefti_error(WEFT_ERR_INVALID, "\"%.40s\": too long", text);
    }
    memcpy(pair, text, length);
    pair[length] = '\0';
    char *equals = strchr(pair, '=');
    if (equals) {
        *equals = '\0';
        double value = strtod(equals + 1, &end);
        for (int axis = 0;
             axis < WEFTI_AXIS_COUNT && end != equals + 1 && *end == '\0';
             axis++) {
            const char *name = wefti_axis_text((wefti_axis)axis);
            bool bytes =
                strncmp(pair, name, 2) == 0 && strcmp(pair + 2, "_bytes") == 0;
            bool twice = bytes ? job->bytes[axis] >= 0
                               : strcmp(pair, name) == 0 && job->sizes[axis];
            if (twice) {
                return wefti_error(WEFT_ERR_INVALID,
                                   "\"%s\" is said twice: allowed is once",
                                   pair);
            }
            if (bytes && value >= 0 && value < 1e18) {
                job->bytes[axis] = value;
                return WEFT_OK;
            }
            if (strcmp(pair, name) == 0 && value >= 1 && value <= 1 << 20 &&
                value == (double)(int)value) {
                job->sizes[axis] = (int)value;
                return WEFT_OK;
            }
        }
        *equals = '=';
    }
    return wefti_error(WEFT_ERR_INVALID,
                       "\"%s\": allowed is tp, cp, ep, dp or pp = a number "
                       "from 1, and tp_bytes and so on = bytes a step",
                       pair);
}

weft_status wefti_place_job_read(const char *text, wefti_place_job *job)
{
    job->now = NULL;
    for (int axis = 0; axis < WEFTI_AXIS_COUNT; axis++) {
        job->sizes[axis] = 0;
        job->bytes[axis] = -1;
    }
    while (*text) {
        size_t length = strcspn(text, ",");
        weft_status status = read_pair(text, length, job);
        if (status != WEFT_OK) {
            return status;
        }
        text += length + (text[length] == ',');
    }
    /* What usual jobs send: much in TP, then CP and EP, then DP, then PP. */
    static const double usual[WEFTI_AXIS_COUNT] = {16e9, 4e9, 4e9, 2e9, 1e9};
    for (int axis = 0; axis < WEFTI_AXIS_COUNT; axis++) {
        job->sizes[axis] += job->sizes[axis] == 0;
        if (job->bytes[axis] < 0) {
            job->bytes[axis] = job->sizes[axis] > 1 ? usual[axis] : 0;
        }
    }
    return WEFT_OK;
}
