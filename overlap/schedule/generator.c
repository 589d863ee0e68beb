/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/generator.c - the table of generators.
 */
#include "overlap/schedule/generator.h"

#include "base/check.h"
#include "base/error.h"
#include "base/memory_limit.h"
#include "base/sized.h"
#include "overlap/schedule/places.h"

#include <string.h>

typedef struct generator {
    const char *name;
    wefti_generate *generate;
    int chunks; /* stages that a micro-batch passes on a rank; 0: chosen */
    int pieces; /* actions of a micro-batch on a stage, at most */
    const char *meaning;
} generator;

static const generator generators[] = {
    {"gpipe", wefti_generate_gpipe, 1, 2,
     "all forwards, then all backwards; any P, m"},
    {"1f1b", wefti_generate_1f1b, 1, 2,
     "one forward, one backward in turn; any P, m"},
    {"interleaved", wefti_generate_interleaved, 0, 2,
     "1f1b over V chunks a rank (VPP), groups of N; P <= N <= m, m mod N = 0 "
     "or >= P"},
    {"zb_h1", wefti_generate_zb_h1, 1, 3,
     "backward split in I and W, memory of 1f1b; any P, m"},
    {"zb_h2", wefti_generate_zb_h2, 1, 3,
     "backward split, more memory, no window bubble; any P, m"},
    {"zbv", wefti_generate_zbv, 2, 3,
     "two chunks a rank placed as a V, backward split; any P, m"},
    {"dualpipe", wefti_generate_dualpipe, 1, 3,
     "both directions at once, two copies of the model; P even, m even, "
     "m >= 2P"},
    {"dualpipev", wefti_generate_dualpipev, 2, 3,
     "dualpipe folded to a V, one copy of the model; m >= 2P"},
};

const char *weft_schedule_name(int i)
{
    bool exists = i >= 0 && i < (int)WEFTI_COUNT_OF(generators);
    return exists ? generators[i].name : NULL;
}

const char *weft_schedule_meaning(int i)
{
    bool exists = i >= 0 && i < (int)WEFTI_COUNT_OF(generators);
    return exists ? generators[i].meaning : NULL;
}

weft_status wefti_generate_chunks(const weft_schedule_config *config,
                                  int chunks)
{
    if (config->chunks != 0 && config->chunks != chunks) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s, chunks %d: allowed is %d; only interleaved "
                           "lets it be chosen",
                           config->name, config->chunks, chunks);
    }
    if (config->group != 0 || config->overlap) {
        return wefti_error(WEFT_ERR_INVALID, "%s, %s: only interleaved has one",
                           config->name, config->overlap ? "overlap" : "group");
    }
    return WEFT_OK;
}

static weft_status check_number(const char *what, int value, int most)
{
    if (value < 1 || value > most) {
        return wefti_error(WEFT_ERR_INVALID, "%s %d: allowed is 1 .. %d", what,
                           value, most);
    }
    return WEFT_OK;
}

static weft_status find(const char *name, const generator **found)
{
    for (size_t i = 0; i < WEFTI_COUNT_OF(generators); i++) {
        if (strcmp(generators[i].name, name) == 0) {
            *found = &generators[i];
            return WEFT_OK;
        }
    }
    return wefti_error(WEFT_ERR_INVALID,
                       "schedule \"%s\": allowed is gpipe, 1f1b, interleaved, "
                       "zb_h1, zb_h2, zbv, dualpipe or dualpipev",
                       name);
}

weft_status wefti_generate_line(const weft_schedule_config *config,
                                void (*write)(wefti_action_writer *writer,
                                              int rank, int ranks,
                                              int microbatches),
                                weft_schedule **schedule_out)
{
    weft_status status = wefti_generate_chunks(config, 1);
    if (status == WEFT_OK) {
        status = wefti_schedule_make(config->name, config->ranks, config->ranks,
                                     1, config->microbatches, schedule_out);
    }
    if (status != WEFT_OK) {
        return status;
    }
    for (int r = 0; r < config->ranks; r++) {
        wefti_action_writer writer = {&(*schedule_out)->lists[r], 0};
        write(&writer, r, config->ranks, config->microbatches);
    }
    return WEFT_OK;
}

wefti_schedule_size wefti_schedule_predict(const weft_schedule_config *config)
{
    const generator *found = NULL;
    if (find(config->name, &found) != WEFT_OK) {
        return (wefti_schedule_size){0};
    }
    int own = config->chunks > 0 ? config->chunks : 2; /* as interleaved does */
    int chunks = found->chunks > 0 ? found->chunks : own;
    uint64_t work = (uint64_t)config->ranks * (uint64_t)config->microbatches *
                    (uint64_t)chunks; /* 2^16 * 2^20 * 2^20 at most */
    return (wefti_schedule_size){work, work * (uint64_t)found->pieces};
}

uint64_t wefti_schedule_peak_bytes(wefti_schedule_size size)
{
    /* F and the backward each with a SEND and a RECV */
    uint64_t lowered = size.actions + 4 * size.work;
    uint64_t lists = (size.actions + lowered) * sizeof(weft_action);
    uint64_t checked = lowered * sizeof(weft_action) +
                       WEFTI_PLACES_COUNT * size.work * sizeof(uint32_t);
    uint64_t simulated =
        size.actions * sizeof(weft_action) + 4 * size.work * sizeof(double);
    uint64_t most = lists > checked ? lists : checked;
    return most > simulated ? most : simulated;
}

static weft_status check_size(const weft_schedule_config *config)
{
    wefti_schedule_size size = wefti_schedule_predict(config);
    if (size.actions > WEFT_SCHEDULE_ACTIONS_MOST) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s of ranks %d, microbatches %d: would be %llu "
                           "actions, %.3g GB: allowed are up to %d actions",
                           config->name, config->ranks, config->microbatches,
                           (unsigned long long)size.actions,
                           (double)size.actions * sizeof(weft_action) * 1e-9,
                           WEFT_SCHEDULE_ACTIONS_MOST);
    }
    return wefti_memory_check("the list", size.actions * sizeof(weft_action));
}

weft_status weft_schedule_create(const weft_schedule_config *config,
                                 weft_schedule **schedule_out)
{
    const generator *found = NULL;
    weft_schedule_config own = {0};
    if (!config || !schedule_out) {
        return wefti_error(WEFT_ERR_INVALID, "%s must not be NULL",
                           config ? "schedule_out" : "config");
    }
    weft_status status = wefti_sized_read(
        "config", config, offsetof(weft_schedule_config, chunks), &own,
        sizeof(own));
    config = &own;
    if (status == WEFT_OK && !config->name) {
        status = wefti_error(WEFT_ERR_INVALID, "config: name must not be NULL");
    }
    if (status == WEFT_OK) {
        status = find(config->name, &found);
    }
    if (status == WEFT_OK) {
        status = check_number("ranks", config->ranks, WEFT_SCHEDULE_RANKS_MOST);
    }
    if (status == WEFT_OK) {
        status = check_number("microbatches", config->microbatches,
                              WEFT_SCHEDULE_MICROBATCHES_MOST);
    }
    if (status == WEFT_OK && config->chunks != 0) {
        status = check_number("chunks", config->chunks,
                              WEFT_SCHEDULE_STAGES_MOST / config->ranks);
    }
    if (status == WEFT_OK) {
        status = check_size(config);
    }
    if (status != WEFT_OK) {
        return status;
    }
    weft_schedule *schedule = NULL;
    status = found->generate(config, &schedule);
    if (status == WEFT_OK) {
        status = wefti_schedule_settle(schedule);
    }
    if (status != WEFT_OK) {
        weft_schedule_destroy(schedule);
        return status;
    }
    *schedule_out = schedule;
    return WEFT_OK;
}
