/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/sched_values.h - what stands behind a flag of weft-sched: numbers,
 * names, and lists of them, read strictly.
 *
 * Each returns OK | ERR_INVALID, with the flag, the value and what is allowed.
 * Of a refused value nothing is used.
 */
#ifndef PERF_SCHED_VALUES_H
#define PERF_SCHED_VALUES_H

#include "weft/status.h"

#include <stdbool.h>
#include <stddef.h>

/* The longest word of a list, with its NUL. */
enum { WEFTI_SCHED_WORD_BYTES = 64 };

/* 0, or a number that the simulator can add up. */
WEFT_NODISCARD weft_status wefti_sched_read_real(const char *flag,
                                                 const char *text,
                                                 double *value_out);

/* Whole numbers a,b,c: at least one, up to room. */
WEFT_NODISCARD weft_status wefti_sched_read_ints(const char *flag,
                                                 const char *list, int least,
                                                 int most, int *values,
                                                 int room, int *count_out);

/* One of names, as its index; allowed says them all in a text. */
WEFT_NODISCARD weft_status wefti_sched_read_name(
    const char *flag, const char *text, const char *const *names,
    size_t name_count, const char *allowed, int *index_out);

typedef struct wefti_sched_switch {
    const char *name;
    bool *wanted;
} wefti_sched_switch;

/* a,b,c: switches that are wanted; the others stay as they are. */
WEFT_NODISCARD weft_status wefti_sched_read_switches(
    const char *flag, const char *list, const wefti_sched_switch *switches,
    size_t switch_count, const char *allowed);

typedef struct wefti_sched_cost_key {
    const char *name;
    double *value;
} wefti_sched_cost_key;

/* KEY=NUMBER,...; keys that are not in the list stay as they are. */
WEFT_NODISCARD weft_status wefti_sched_read_costs(
    const char *flag, const char *list, const wefti_sched_cost_key *keys,
    size_t key_count, const char *allowed);

#endif
