/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/select.c - the choice of algorithm and chunk, from sizes and ranks.
 *
 * Small payloads ride in the entries (one cache-line exchange). Where some
 * ranks share memory and others do not, hierarchical crosses the network as
 * seldom as can be. Else all-reduces of which everybody can read everything
 * cheaply are exchanged in one hop. Beyond, direct, pairwise and uneven, each
 * for its own collectives, move each byte once and reduce at its owner; they
 * have up to 2 (n - 1) chunks staged, so chunks shrink as ranks grow.
 */
#include "comm/select.h"

#include "base/check.h"
#include "base/error.h"
#include "base/settings.h"
#include "comm/core.h"
#include "comm/net/net.h"
#include "comm/pattern/shape.h"
#include "comm/reduction.h"
#include "kernels/wire/fold.h"

#include <stdio.h>
#include <string.h>

enum {
    ONESHOT_LIMIT_BYTES = 4096,
    ONESHOT_READ_BYTES = 32 << 10, /* what a rank may read in all */
    CHUNK_BYTES = 128 << 10,
    EXCHANGE_READ_BYTES = 16 << 10, /* of all peers together; measured */
    FORCED_ONESHOT = 1,
    FORCED_PATTERN = 2,
    LIST_BYTES = 64 /* of one collective's algorithms */
};

/* The table begins with what moves each byte once. */
static const wefti_pattern *first_supporting(const wefti_problem *problem)
{
    size_t i = 0;
    while (wefti_patterns[i] && !wefti_patterns[i]->supports(problem)) {
        i++;
    }
    return wefti_patterns[i];
}

/*
 * The choice of that name for the collective; 0: it has no such algorithm. What
 * moves by a pattern, and in parts of one size, may also move in one shot.
 */
static int choice_of(const char *name, weft_collective collective)
{
    static const wefti_grouping some; /* only that there is one counts */
    const wefti_problem problem = {.collective = collective,
                                   .nranks = 3,
                                   .grouping = &some,
                                   .count = 1,
                                   .chunk_elems = 1};
    if (strcmp(name, "oneshot") == 0) {
        return first_supporting(&problem) &&
                       !wefti_shape_get(collective)->varied
                   ? FORCED_ONESHOT
                   : 0;
    }
    for (int i = 0; wefti_patterns[i]; i++) {
        if (strcmp(wefti_patterns[i]->name, name) == 0) {
            return wefti_patterns[i]->supports(&problem) ? FORCED_PATTERN + i
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
    if (choice_of("oneshot", collective)) {
        used = (size_t)snprintf(text, room, "oneshot");
    }
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
        status = read_switch(WEFTI_SETTING_SUM_FLAT, "WEFT_SUM_FLAT",
                             &tuning_out->sum_flat);
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

size_t wefti_oneshot_bytes(int nranks, const weft_op *op,
                           const wefti_role *role)
{
    size_t elems = op->count, bytes;
    if (role->shape->send_parts &&
        __builtin_mul_overflow(elems, (size_t)nranks, &elems)) {
        return SIZE_MAX;
    }
    return __builtin_mul_overflow(elems, role->elem_bytes, &bytes) ? SIZE_MAX
                                                                   : bytes;
}

static bool fits_oneshot(int nranks, const weft_op *op, const wefti_role *role)
{
    if (role->shape->stepwise) {
        return false;
    }
    size_t bytes = wefti_oneshot_bytes(nranks, op, role);
    return op->count == 0 || (bytes <= ONESHOT_LIMIT_BYTES &&
                              bytes * (size_t)nranks <= ONESHOT_READ_BYTES);
}

/*
 * The hierarchical pattern stages up to 16 chunks inside the host, and two
 * rounds of what one rank sends to others on the network; any other up to
 * 2 (n - 1) on its first channel, which may have half the window.
 */
static size_t count_chunks(int nranks, const wefti_grouping *levels)
{
    if (!levels) {
        return 4 * (size_t)nranks;
    }
    size_t least = (size_t)levels->least_ranks;
    size_t others = (size_t)nranks - least;
    return 16 + 2 * (others / least + (others % least != 0) + 1);
}

/* levels: of the hierarchical pattern, NULL of others. */
static size_t chunk_bytes(const wefti_tuning *tuning, int nranks,
                          const wefti_grouping *levels)
{
    size_t bytes = tuning->chunk_bytes ? tuning->chunk_bytes : CHUNK_BYTES;
    size_t share = WEFTI_WINDOW_BYTES / count_chunks(nranks, levels) / 64 * 64;
    if (bytes > share) {
        bytes = share;
    }
    return bytes < 64 ? 64 : bytes;
}

size_t wefti_select_bounce_bytes(const wefti_tuning *tuning, int nranks,
                                 const wefti_grouping *grouping)
{
    size_t bytes = chunk_bytes(tuning, nranks, NULL);
    if (grouping && chunk_bytes(tuning, nranks, grouping) > bytes) {
        bytes = chunk_bytes(tuning, nranks, grouping);
    }
    return bytes > ONESHOT_READ_BYTES ? (bytes + 63) / 64 * 64
                                      : ONESHOT_READ_BYTES;
}

static size_t chunk_elems(size_t bytes, weft_dtype dtype)
{
    /* Narrow floats travel wide in some patterns: count what they become. */
    size_t wide = wefti_wide_bytes(dtype);
    return bytes / wide ? bytes / wide : 1;
}

/* In one hop, while its reads cost less than direct's second hop. */
static bool is_cheap_to_exchange(int nranks, const weft_op *op)
{
    size_t peers = nranks > 1 ? (size_t)nranks - 1 : 1;
    return op->count * weft_dtype_bytes(op->dtype) <=
           EXCHANGE_READ_BYTES / peers;
}

/* 1 + its place in the table. */
static uint8_t digest_of(const wefti_pattern *pattern)
{
    uint8_t digest = 1;
    while (wefti_patterns[digest - 1] != pattern) {
        digest++;
    }
    return digest;
}

const char *wefti_choice_name(uint8_t digest)
{
    uint8_t at = 1;
    while (at < digest && wefti_patterns[at - 1]) {
        at++;
    }
    bool known = digest > 0 && at == digest && wefti_patterns[at - 1];
    return known    ? wefti_patterns[at - 1]->name
           : digest ? "an unknown algorithm"
                    : "oneshot";
}

bool wefti_select_is_flat(const wefti_tuning *tuning, const weft_op *op)
{
    /* Integers, minima and maxima are the same in any order. */
    bool ordered = weft_dtype_kind(op->dtype) == WEFT_KIND_FLOAT &&
                   op->redop != WEFT_REDOP_MIN && op->redop != WEFT_REDOP_MAX;
    return wefti_reduction_is(op->redop) || (tuning->sum_flat && ordered);
}

wefti_choice wefti_select(const wefti_tuning *tuning, int nranks,
                          const wefti_grouping *grouping, const weft_op *op,
                          const wefti_role *role)
{
    wefti_choice choice = {NULL, 1, 0};
    int forced = tuning->forced[op->collective];
    if (forced <= FORCED_ONESHOT && fits_oneshot(nranks, op, role)) {
        return choice;
    }
    wefti_problem problem = {.collective = op->collective,
                             .nranks = nranks,
                             .root = op->root,
                             .count = op->count,
                             .chunk_elems = 1,
                             .grouping = grouping,
                             .flat = wefti_select_is_flat(tuning, op)};
    const wefti_pattern *pattern = NULL;
    if (forced >= FORCED_PATTERN) {
        pattern = wefti_patterns[forced - FORCED_PATTERN];
    } else if (!grouping && is_cheap_to_exchange(nranks, op)) {
        pattern = &wefti_pattern_exchange;
    }
    if (!pattern || !pattern->supports(&problem)) {
        pattern = first_supporting(&problem);
    }
    if (pattern) { /* else a barrier: nothing to move */
        bool levels = pattern == &wefti_pattern_hierarchical;
        choice.pattern = pattern;
        choice.digest = digest_of(pattern);
        choice.chunk_elems = chunk_elems(
            chunk_bytes(tuning, nranks, levels ? grouping : NULL), op->dtype);
    }
    return choice;
}

const char *wefti_select_why(const wefti_tuning *tuning, int nranks,
                             const wefti_grouping *grouping, const weft_op *op)
{
    wefti_role role = wefti_role_of(op->collective, op->dtype, op->root, 0);
    wefti_choice choice = wefti_select(tuning, nranks, grouping, op, &role);
    int forced = tuning->forced[op->collective];
    if (!choice.pattern) {
        return op->count == 0 ? "nothing to move: ranks only meet"
               : forced == FORCED_ONESHOT
                   ? "WEFT_ALGORITHM asks for it, and it fits"
                   : "it fits into the entries by which ranks meet: no second "
                     "message";
    }
    if (forced >= FORCED_PATTERN &&
        choice.pattern == wefti_patterns[forced - FORCED_PATTERN]) {
        return "WEFT_ALGORITHM asks for it";
    }
    if (choice.pattern == &wefti_pattern_hierarchical) {
        return role.shape->reduces
                   ? "a host's sum crosses the network once, by all its ranks, "
                     "in chunks"
                   : "a byte reaches each other host once, by all its ranks, "
                     "in chunks";
    }
    if (grouping && tuning->sum_flat && role.shape->reduces &&
        wefti_select_is_flat(tuning, op)) {
        return "WEFT_SUM_FLAT: one tree over all ranks, so no host's sum "
               "crosses alone";
    }
    if (choice.pattern == &wefti_pattern_exchange) {
        return "one hop: all read all of so little sooner than a second hop "
               "takes";
    }
    return role.shape->reduces
               ? "each byte moves once to whoever reduces it, in chunks that "
                 "overlap"
               : "each byte moves once, straight to whoever wants it, in "
                 "chunks that overlap";
}

const char *wefti_comm_explain(weft_comm *comm, const weft_op *op,
                               const char **fabric_out)
{
    *fabric_out = wefti_fabric_name(&comm->fabric);
    wefti_role role =
        wefti_role_of(op->collective, op->dtype, op->root, comm->rank);
    wefti_choice choice =
        wefti_select(&comm->tuning, comm->nranks, comm->grouping, op, &role);
    return choice.pattern ? choice.pattern->name : "oneshot";
}

const wefti_tuning *wefti_comm_tuning(const weft_comm *comm)
{
    return &comm->tuning;
}

const wefti_grouping *wefti_comm_grouping(const weft_comm *comm)
{
    return comm->grouping;
}

const int *wefti_comm_sum_hosts(const weft_comm *comm, weft_dtype dtype,
                                weft_redop redop)
{
    const weft_op op = {.dtype = dtype, .redop = redop};
    bool levels = comm->grouping && !wefti_select_is_flat(&comm->tuning, &op);
    return levels ? comm->grouping->hosts : NULL;
}

int wefti_comm_rails(const weft_comm *comm)
{
    return comm->fabric.net ? comm->engine->net->use.count : 0;
}

bool wefti_comm_is_crowded(const weft_comm *comm)
{
    return comm->engine->crowded;
}
