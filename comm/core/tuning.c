/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/core/tuning.c - rank 0's settings, checked.
 */
#include "comm/core/tuning.h"

#include "base/check.h"
#include "base/error.h"
#include "base/settings.h"
#include "comm/pattern/pattern.h"
#include "comm/pattern/shape.h"

#include <stdio.h>
#include <string.h>

enum { LIST_BYTES = 64 /* of one collective's algorithms */ };

/* The choice of that name for the collective; 0: it has no such algorithm. */
static int choice_of(const char *name, weft_collective collective)
{
    static const wefti_grouping some; /* only that there is one counts */
    const wefti_problem problem = {.collective = collective,
                                   .nranks = 3,
                                   .grouping = &some,
                                   .count = 1,
                                   .chunk_elems = 1};
    for (int i = 0; wefti_patterns[i]; i++) {
        if (strcmp(wefti_patterns[i]->name, name) == 0) {
            return wefti_patterns[i]->supports(&problem)
                       ? WEFTI_FORCED_PATTERN + i
                       : 0;
        }
    }
    return 0;
}

/* "oneshot|direct|tree", or "" where nothing can be forced. */
static void list_algorithms(weft_collective collective, char *text, size_t room)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; wefti_patterns[i]; i++) {
        if (choice_of(wefti_patterns[i]->name, collective)) {
            used += (size_t)snprintf(text + used, room - used, "%s%s",
                                     used ? "|" : "", wefti_patterns[i]->name);
        }
    }
    WEFTI_ASSERT(used < room);
}

/* All that something can be forced for: "all_reduce|reduce|..". */
static void list_operations(char *text, size_t room)
{
    size_t used = 0;
    for (int c = 0; c < WEFT_COLLECTIVE_COUNT; c++) {
        char list[LIST_BYTES];
        list_algorithms((weft_collective)c, list, sizeof(list));
        if (list[0]) {
            used += (size_t)snprintf(text + used, room - used, "%s%s",
                                     used ? "|" : "",
                                     weft_collective_text((weft_collective)c));
            WEFTI_ASSERT(used < room);
        }
    }
}

/* The collective that so many bytes name; COUNT: none. */
static int find_collective(const char *name, size_t length)
{
    int c = 0;
    while (c < WEFT_COLLECTIVE_COUNT) {
        const char *text = weft_collective_text((weft_collective)c);
        if (strlen(text) == length && memcmp(text, name, length) == 0) {
            break;
        }
        c++;
    }
    return c;
}

/* One "collective:algorithm" of length bytes, part of the setting's text. */
static weft_status read_forced(const char *text, const char *item,
                               size_t length, wefti_tuning *tuning)
{
    char name[64], allowed[256] = "";
    size_t named = strcspn(item, ":,");
    const char *algorithm = item + named + (named < length);
    size_t rest = (size_t)(item + length - algorithm);
    int c = find_collective(item, named);
    if (c < WEFT_COLLECTIVE_COUNT) {
        list_algorithms((weft_collective)c, allowed, sizeof(allowed));
    }
    if (allowed[0] && rest < sizeof(name)) {
        memcpy(name, algorithm, rest);
        name[rest] = '\0';
        tuning->forced[c] = (uint8_t)choice_of(name, (weft_collective)c);
        if (tuning->forced[c]) {
            return WEFT_OK;
        }
    }
    if (allowed[0]) {
        return wefti_error(WEFT_ERR_INVALID,
                           "WEFT_ALGORITHM=%.60s: allowed for %s is %s", text,
                           weft_collective_text((weft_collective)c), allowed);
    }
    list_operations(allowed, sizeof(allowed));
    return wefti_error(WEFT_ERR_INVALID,
                       "WEFT_ALGORITHM=%.60s: allowed is OPERATION:ALGORITHM, "
                       "separated by commas, OPERATION of %s",
                       text, allowed);
}

static weft_status read_switch(wefti_setting setting, const char *name,
                               bool *on_out)
{
    const char *text = wefti_setting_text(setting);
    *on_out = strcmp(text, "on") == 0;
    return *on_out || strcmp(text, "off") == 0
               ? WEFT_OK
               : wefti_error(WEFT_ERR_INVALID, "%s=%s: allowed is on or off",
                             name, text);
}

static weft_status read_route(uint8_t *route_out)
{
    const char *text = wefti_setting_text(WEFTI_SETTING_ROUTE);
    const bool nccl = strcmp(text, "nccl") == 0;
    *route_out = nccl ? WEFTI_ROUTE_NCCL : WEFTI_ROUTE_STEPS;
    return nccl || strcmp(text, "steps") == 0
               ? WEFT_OK
               : wefti_error(WEFT_ERR_INVALID,
                             "WEFT_ROUTE=%.40s: allowed is steps or nccl",
                             text);
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
    status = read_switch(WEFTI_SETTING_MACHINES, "WEFT_MACHINES",
                         &tuning_out->machines);
    if (status == WEFT_OK) {
        status = read_switch(WEFTI_SETTING_SINGLE_COPY, "WEFT_SINGLE_COPY",
                             &tuning_out->single_copy);
    }
    if (status == WEFT_OK) {
        status = read_switch(WEFTI_SETTING_SUM_FLAT, "WEFT_SUM_FLAT",
                             &tuning_out->sum_flat);
    }
    if (status == WEFT_OK) {
        status = read_route(&tuning_out->route);
    }
    if (status != WEFT_OK) {
        return status;
    }
    const char *text = wefti_setting_text(WEFTI_SETTING_ALGORITHM);
    for (const char *at = text; *at;) {
        size_t length = strcspn(at, ",");
        status = read_forced(text, at, length, tuning_out);
        if (status != WEFT_OK) {
            return status;
        }
        at += length;
        at += *at == ',';
    }
    return WEFT_OK;
}
