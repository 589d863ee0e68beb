/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/exchange/json_number.h - whole numbers of JSON that cJSON has read,
 * which it keeps as doubles.
 */
#ifndef TRAINER_EXCHANGE_JSON_NUMBER_H
#define TRAINER_EXCHANGE_JSON_NUMBER_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

/* Whether it is one from 0 to 2^53, where a double has them all. */
static inline bool wefti_json_number_whole(const cJSON *item,
                                           uint64_t *value_out)
{
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0) ||
        item->valuedouble > 9007199254740992.0) {
        return false;
    }
    *value_out = (uint64_t)item->valuedouble;
    return (double)*value_out == item->valuedouble;
}

#endif
