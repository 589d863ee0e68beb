/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/core/tuning.c - rank 0's settings, checked.
 */
#include "comm/core/tuning.h"

#include "base/check.h"
#include "base/error.h"
#include "base/settings.h"
#include "comm/pattern/shape.h"

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

static weft_status read_single_copy(uint8_t *copy_out)
{
    const char *text = wefti_setting_text(WEFTI_SETTING_SINGLE_COPY);
    const bool on = strcmp(text, "on") == 0;
    const bool mapped = strcmp(text, "mapped") == 0;
    *copy_out = on       ? WEFTI_SINGLE_COPY_ON
                : mapped ? WEFTI_SINGLE_COPY_MAPPED
                         : WEFTI_SINGLE_COPY_OFF;
    return on || mapped || strcmp(text, "off") == 0
               ? WEFT_OK
               : wefti_error(WEFT_ERR_INVALID,
                             "WEFT_SINGLE_COPY=%.40s: allowed is on, mapped or "
                             "off",
                             text);
}

static weft_status read_route(uint8_t *route_out)
{
    const char *text = wefti_setting_text(WEFTI_SETTING_ROUTE);
    const bool nccl = strcmp(text, "nccl") == 0;
    const bool streams = strcmp(text, "streams") == 0;
    *route_out = nccl      ? WEFTI_ROUTE_NCCL
                 : streams ? WEFTI_ROUTE_STREAMS
                           : WEFTI_ROUTE_STEPS;
    return nccl || streams || strcmp(text, "steps") == 0
               ? WEFT_OK
               : wefti_error(WEFT_ERR_INVALID,
                             "WEFT_ROUTE=%.40s: allowed is steps, streams or "
                             "nccl",
                             text);
}

static weft_status read_net_rates(bool *measure_out)
{
    const char *text = wefti_setting_text(WEFTI_SETTING_NET_RATES);
    *measure_out = strcmp(text, "measured") == 0;
    return *measure_out || strcmp(text, "usual") == 0
               ? WEFT_OK
               : wefti_error(WEFT_ERR_INVALID,
                             "WEFT_NET_RATES=%.40s: allowed is measured or "
                             "usual",
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
        status = read_single_copy(&tuning_out->single_copy);
    }
    if (status == WEFT_OK) {
        status = read_switch(WEFTI_SETTING_SUM_FLAT, "WEFT_SUM_FLAT",
                             &tuning_out->sum_flat);
    }
    if (status == WEFT_OK) {
        status = read_switch(WEFTI_SETTING_NCCL_SHARED_GPU,
                             "WEFT_NCCL_SHARED_GPU", &tuning_out->nccl_shared);
    }
    if (status == WEFT_OK) {
        status = read_route(&tuning_out->route);
    }
    if (status == WEFT_OK) {
        status = wefti_setting_check(WEFTI_SETTING_NET_RAILS);
    }
    if (status == WEFT_OK) {
        tuning_out->names_rails =
            strchr(wefti_setting_text(WEFTI_SETTING_NET_INTERFACE), ',') !=
            NULL;
        status = read_net_rates(&tuning_out->measure_net);
    }
    if (status != WEFT_OK) {
        return status;
    }
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
