/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/sched_values.c - what stands behind a flag of weft-sched.
 */
#include "perf/sched_values.h"

#include "base/error.h"
#include "base/plain_number.h"
#include "weft/schedule_cost.h"

#include <stdio.h>
#include <string.h>

/* The range of costs, which the simulator has for all that it adds up. */
weft_status wefti_sched_read_real(const char *flag, const char *text,
                                  double *value_out)
{
    double value;
    if (!wefti_plain_real(text, &value) ||
        (value != 0 && (value < WEFT_SCHEDULE_COST_LEAST ||
                        value > WEFT_SCHEDULE_COST_MOST))) {
        return wefti_error(
            WEFT_ERR_INVALID, "%s %s: allowed is 0, or a number from %g to %g",
            flag, text, WEFT_SCHEDULE_COST_LEAST, WEFT_SCHEDULE_COST_MOST);
    }
    *value_out = value;
    return WEFT_OK;
}

/* ---- lists ----------------------------------------------------------------
 */

/* The next word of a list a,b,c; *list is NULL behind the last. */
static weft_status next_word(const char *flag, const char **list,
                             char word[WEFTI_SCHED_WORD_BYTES])
{
    size_t chars = strcspn(*list, ",");
    if (chars >= WEFTI_SCHED_WORD_BYTES) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s %.20s...: allowed are up to %d characters "
                           "between commas",
                           flag, *list, WEFTI_SCHED_WORD_BYTES - 1);
    }
    memcpy(word, *list, chars);
    word[chars] = '\0';
    *list = (*list)[chars] ? *list + chars + 1 : NULL;
    return WEFT_OK;
}

weft_status wefti_sched_read_ints(const char *flag, const char *list, int least,
                                  int most, int *values, int room,
                                  int *count_out)
{
    char word[WEFTI_SCHED_WORD_BYTES];
    weft_status status = WEFT_OK;
    *count_out = 0;
    while (status == WEFT_OK && list) {
        if (*count_out == room) {
            return wefti_error(WEFT_ERR_INVALID,
                               "%s: allowed are up to %d numbers", flag, room);
        }
        status = next_word(flag, &list, word);
        if (status == WEFT_OK) {
            status = wefti_plain_flag(flag, word, least, most,
                                      &values[(*count_out)++]);
        }
    }
    return status;
}

weft_status wefti_sched_read_name(const char *flag, const char *text,
                                  const char *const *names, size_t name_count,
                                  const char *allowed, int *index_out)
{
    for (size_t k = 0; k < name_count; k++) {
        if (strcmp(names[k], text) == 0) {
            *index_out = (int)k;
            return WEFT_OK;
        }
    }
    return wefti_error(WEFT_ERR_INVALID, "%s%s%s: allowed is %s", flag,
                       *flag ? " " : "", text, allowed);
}

weft_status wefti_sched_read_switches(const char *flag, const char *list,
                                      const wefti_sched_switch *switches,
                                      size_t switch_count, const char *allowed)
{
    char word[WEFTI_SCHED_WORD_BYTES];
    weft_status status = WEFT_OK;
    while (status == WEFT_OK && list) {
        status = next_word(flag, &list, word);
        size_t k = 0;
        while (status == WEFT_OK && k < switch_count &&
               strcmp(switches[k].name, word) != 0) {
            k++;
        }
        if (status == WEFT_OK && k == switch_count) {
            status = wefti_error(WEFT_ERR_INVALID, "%s %s: allowed is %s", flag,
                                 word, allowed);
        } else if (status == WEFT_OK) {
            *switches[k].wanted = true;
        }
    }
    return status;
}

/* KEY=NUMBER; a refusal of the number names the key too. */
static weft_status read_cost(const char *flag, const char *word,
                             const wefti_sched_cost_key *keys, size_t key_count,
                             const char *allowed)
{
    char name[2 * WEFTI_SCHED_WORD_BYTES];
    size_t chars = strcspn(word, "="), k = 0;
    while (k < key_count && (strlen(keys[k].name) != chars ||
                             strncmp(keys[k].name, word, chars) != 0)) {
        k++;
    }
    if (k == key_count || word[chars] != '=') {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s %s: allowed is KEY=NUMBER with %s", flag, word,
                           allowed);
    }
    snprintf(name, sizeof(name), "%s %s", flag, keys[k].name);
    return wefti_sched_read_real(name, word + chars + 1, keys[k].value);
}

weft_status wefti_sched_read_costs(const char *flag, const char *list,
                                   const wefti_sched_cost_key *keys,
                                   size_t key_count, const char *allowed)
{
    char word[WEFTI_SCHED_WORD_BYTES];
    weft_status status = WEFT_OK;
    while (status == WEFT_OK && list) {
        status = next_word(flag, &list, word);
        if (status == WEFT_OK) {
            status = read_cost(flag, word, keys, key_count, allowed);
        }
    }
    return status;
}
