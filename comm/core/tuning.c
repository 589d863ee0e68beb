/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/core/tuning.c - rank 0's settings, checked.
 */
#include "comm/core/tuning.h"

#include "base/check.h"
#include "base/error.h"
#include "base/settings.h"
#include "comm/pattern/shape.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* All that have algorithms to choose from: "all_reduce|reduce|..". */
static void list_operations(char *text, size_t room)
{
    size_t used = 0;
    for (int c = 0; c < WEFT_COLLECTIVE_COUNT; c++) {
        if (wefti_algorithms_of((weft_collective)c)) {
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

/* One "collective:algorithm/algorithm" of length bytes, part of the setting's
 * text. */
static weft_status read_allowed(const char *text, const char *item,
                                size_t length, wefti_tuning *tuning)
{
    char list[256];
    size_t named = strcspn(item, ":,");
    size_t skipped = named + (named < length);
    int c = find_collective(item, named);
    wefti_algorithms all =
        c < WEFT_COLLECTIVE_COUNT ? wefti_algorithms_of((weft_collective)c) : 0;
    if (!all) {
        list_operations(list, sizeof(list));
        return wefti_error(WEFT_ERR_INVALID,
                           "WEFT_ALGO=%.60s: allowed is OPERATION:ALGORITHM, "
                           "separated by commas, OPERATION of %s",
                           text, list);
    }
    const char *name = weft_collective_text((weft_collective)c);
    if (tuning->allowed[c]) {
        return wefti_error(WEFT_ERR_INVALID,
                           "WEFT_ALGO=%.60s: %s is there twice: allowed is "
                           "%s:ALGORITHM/ALGORITHM",
                           text, name, name);
    }
    tuning->allowed[c] = wefti_algorithms_read(
        (weft_collective)c, item + skipped, length - skipped);
    if (tuning->allowed[c]) {
        return WEFT_OK;
    }
    wefti_algorithms_list(all, '|', list, sizeof(list));
    return wefti_error(WEFT_ERR_INVALID,
                       "WEFT_ALGO=%.60s: allowed for %s is %s, or several "
                       "with / between",
                       text, name, list);
}

/* A setting of words, each at the place of its value, which one byte of the
 * tuning gets. */
typedef struct choice {
    wefti_setting setting;
    size_t place;
    const char *words[3], *allowed;
} choice;

static const choice choices[] = {{WEFTI_SETTING_MACHINES,
                                  offsetof(wefti_tuning, machines),
                                  {"off", "on"},
                                  "on or off"},
                                 {WEFTI_SETTING_SINGLE_COPY,
                                  offsetof(wefti_tuning, single_copy),
                                  {"off", "mapped", "on"},
                                  "on, mapped or off"},
                                 {WEFTI_SETTING_SUM_FLAT,
                                  offsetof(wefti_tuning, sum_flat),
                                  {"off", "on"},
                                  "on or off"},
                                 {WEFTI_SETTING_NCCL_SHARED_GPU,
                                  offsetof(wefti_tuning, nccl_shared),
                                  {"off", "on"},
                                  "on or off"},
                                 {WEFTI_SETTING_ROUTE,
                                  offsetof(wefti_tuning, route),
                                  {"steps", "streams", "nccl"},
                                  "steps, streams or nccl"},
                                 {WEFTI_SETTING_NET_RATES,
                                  offsetof(wefti_tuning, measure_net),
                                  {"usual", "measured"},
                                  "measured or usual"}};

static weft_status read_choice(const choice *own, wefti_tuning *tuning)
{
    const char *text = wefti_setting_text(own->setting);
    for (unsigned char i = 0; i < 3 && own->words[i]; i++) {
        if (strcmp(text, own->words[i]) == 0) {
            *((unsigned char *)tuning + own->place) = i;
            return WEFT_OK;
        }
    }
    return wefti_error(WEFT_ERR_INVALID, "%s=%.40s: allowed is %s",
                       wefti_setting_describe(own->setting).name, text,
                       own->allowed);
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
    for (size_t i = 0; i < WEFTI_COUNT_OF(choices) && status == WEFT_OK; i++) {
        status = read_choice(&choices[i], tuning_out);
    }
    if (status == WEFT_OK) {
        status = wefti_setting_check(WEFTI_SETTING_NET_RAILS);
    }
    if (status != WEFT_OK) {
        return status;
    }
    tuning_out->names_rails =
        strchr(wefti_setting_text(WEFTI_SETTING_NET_INTERFACE), ',') != NULL;
    const char *text = wefti_setting_text(WEFTI_SETTING_ALGO);
    for (const char *at = text; *at;) {
        size_t length = strcspn(at, ",");
        status = read_allowed(text, at, length, tuning_out);
        if (status != WEFT_OK) {
            return status;
        }
        at += length;
        at += *at == ',';
    }
    return WEFT_OK;
}
