/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/overlap/schedules.h - what the tests of schedules share: short ways to
 * make one, and to say what went wrong.
 */
#ifndef TESTS_OVERLAP_SCHEDULES_H
#define TESTS_OVERLAP_SCHEDULES_H

#include "overlap/schedule/schedule.h"

#include "tests/seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define ASSERT_OK(call)                                                        \
    do {                                                                       \
        weft_status status_ = (call);                                          \
        if (status_ != WEFT_OK) {                                              \
            fail_msg("%s: %s: %s", #call, weft_status_text(status_),           \
                     weft_error_text());                                       \
        }                                                                      \
    } while (0)

static inline weft_schedule_config make_config(const char *name, int ranks,
                                               int microbatches, int chunks)
{
    return (weft_schedule_config){.size_bytes = sizeof(weft_schedule_config),
                                  .name = name,
                                  .ranks = ranks,
                                  .microbatches = microbatches,
                                  .chunks = chunks};
}

static inline weft_schedule *make_schedule(const char *name, int ranks,
                                           int microbatches, int chunks)
{
    weft_schedule_config config =
        make_config(name, ranks, microbatches, chunks);
    weft_schedule *schedule = NULL;
    ASSERT_OK(weft_schedule_create(&config, &schedule));
    return schedule;
}

/* One rank's list as text, in static memory. */
static inline const char *list_text(const weft_schedule *schedule, int rank)
{
    static char text[1 << 16];
    const weft_action *actions;
    size_t count = weft_schedule_get_actions(schedule, rank, &actions);
    size_t used = 0;
    text[0] = '\0';
    for (size_t k = 0; k < count; k++) {
        assert_true(used + WEFT_ACTION_TEXT_BYTES < sizeof(text));
        if (k > 0) {
            text[used++] = ' ';
        }
        used += weft_action_pack(&actions[k], text + used);
    }
    return text;
}

static inline weft_verdict check_schedule(const weft_schedule *schedule,
                                          weft_semantics semantics, int slots)
{
    weft_check_config config = {.size_bytes = sizeof(config),
                                .semantics = semantics,
                                .eager_slots = slots};
    weft_verdict verdict;
    ASSERT_OK(weft_schedule_check(schedule, &config, &verdict));
    return verdict;
}

/* All schedules, those that deadlock more easily behind. */
static const char *const names[]
    __attribute__((unused)) = {"gpipe", "1f1b", "zb_h1",    "interleaved",
                               "zb_h2", "zbv",  "dualpipe", "dualpipev"};
enum { NAMES = 8, INTERLEAVED = 3, DUALPIPE = 6, DUALPIPEV = 7 };

static inline weft_schedule *make_lowered(const char *name, int ranks,
                                          int microbatches,
                                          weft_lowering lowering)
{
    weft_schedule *schedule = make_schedule(name, ranks, microbatches, 0);
    ASSERT_OK(weft_schedule_lower(schedule, lowering));
    return schedule;
}

static inline bool has_rule(const weft_verdict *verdict, weft_rule rule)
{
    for (size_t k = 0; k < verdict->finding_count && k < WEFT_FINDINGS_MOST;
         k++) {
        if (verdict->findings[k].rule == rule) {
            return true;
        }
    }
    return false;
}

/* 0 .. bound-1 */
static inline size_t below(uint64_t *seed, size_t bound)
{
    return (size_t)(random_next(seed) % bound);
}

/* The first action of its kind in a list. */
static inline size_t find_action(const wefti_actions *list,
                                 weft_action_type type, int stage,
                                 int microbatch)
{
    size_t k = 0;
    while (list->items[k].type != type || list->items[k].stage != stage ||
           list->items[k].microbatch != microbatch) {
        k++;
        assert_true(k < list->count);
    }
    return k;
}

static inline void drop_action(wefti_actions *list, size_t index)
{
    memmove(list->items + index, list->items + index + 1,
            (list->count - index - 1) * sizeof(*list->items));
    list->count--;
}

/* Moves the action at from to index to, which lies behind or before it. */
static inline void move_action(wefti_actions *list, size_t from, size_t to)
{
    weft_action moved = list->items[from];
    drop_action(list, from);
    memmove(list->items + to + 1, list->items + to,
            (list->count - to) * sizeof(*list->items));
    list->items[to] = moved;
    list->count++;
}

#endif
