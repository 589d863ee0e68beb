/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/select.c - the choice of algorithm and chunk, from sizes and ranks.
 *
 * Small payloads ride in the entries (one cache-line exchange). All-reduces of
 * which everybody can read everything cheaply are exchanged in one hop. Beyond,
 * direct, pairwise and uneven, each for its own collectives, move each byte
 * once and reduce at its owner; they have up to 2 (n - 1) chunks staged, so
 * chunks shrink as ranks grow.
 */
#include "comm/select.h"

#include "base/check.h"
#include "base/error.h"
#include "base/settings.h"
#include "comm/core.h"
#include "comm/net/net.h"
#include "comm/pattern/shape.h"
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
    const wefti_problem problem = {
        .collective = collective, .nranks = 2, .count = 1, .chunk_elems = 1};
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
}

/* The names of all collectives from c on that have c's list, and the list. */
static size_t tell_alike(char (*lists)[LIST_BYTES], int c, char *text,
                         size_t room)
{
    size_t used = 0;
    for (int also = c; also < WEFT_COLLECTIVE_COUNT; also++) {
        if (strcmp(lists[c], lists[also]) == 0) {
            used += (size_t)snprintf(
                text + used, room - used, "%s%s", also > c ? "," : "",
                weft_collective_text((weft_collective)also));
        }
    }
    return used + (size_t)snprintf(text + used, room - used, ":%s", lists[c]);
}

static weft_status bad_algorithm(const char *text)
{
    char lists[WEFT_COLLECTIVE_COUNT][LIST_BYTES];
    char allowed[320] = "";
    size_t used = 0;
    for (int c = 0; c < WEFT_COLLECTIVE_COUNT; c++) {
        list_algorithms((weft_collective)c, lists[c], LIST_BYTES);
    }
    for (int c = 0; c < WEFT_COLLECTIVE_COUNT; c++) {
        int first = 0;
        while (strcmp(lists[first], lists[c]) != 0) {
            first++;
        }
        if (lists[c][0] && first == c) {
            used += (size_t)snprintf(allowed + used, sizeof(allowed) - used,
                                     "%s", used ? "; " : "");
            used +=
                tell_alike(lists, c, allowed + used, sizeof(allowed) - used);
            WEFTI_ASSERT(used < sizeof(allowed));
        }
    }
    return wefti_error(WEFT_ERR_INVALID,
                       "WEFT_ALGORITHM=%.60s: allowed is OPERATION:ALGORITHM, "
                       "separated by commas, of %s",
                       text, allowed);
}

/* One "collective:algorithm" of length bytes. */
static bool read_forced(const char *text, size_t length, wefti_tuning *tuning)
{
    char name[64];
    if (length >= sizeof(name)) {
        return false;
    }
    memcpy(name, text, length);
    name[length] = 0;
    char *colon = strchr(name, ':');
    if (!colon) {
        return false;
    }
    *colon = 0;
    for (int c = 0; c < WEFT_COLLECTIVE_COUNT; c++) {
        if (strcmp(weft_collective_text((weft_collective)c), name) == 0) {
            int choice = choice_of(colon + 1, (weft_collective)c);
            tuning->forced[c] = (uint8_t)choice;
            return choice != 0;
        }
    }
    return false;
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
    const char *machines = wefti_setting_text(WEFTI_SETTING_MACHINES);
    tuning_out->machines = strcmp(machines, "on") == 0;
    if (!tuning_out->machines && strcmp(machines, "off") != 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "WEFT_MACHINES=%s: allowed is on or off", machines);
    }
    const char *text = wefti_setting_text(WEFTI_SETTING_ALGORITHM);
    for (const char *at = text; *at;) {
        size_t length = strcspn(at, ",");
        if (!read_forced(at, length, tuning_out)) {
            return bad_algorithm(text);
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

static size_t chunk_bytes(const wefti_tuning *tuning, int nranks)
{
    size_t bytes = tuning->chunk_bytes ? tuning->chunk_bytes : CHUNK_BYTES;
    /* Half the window serves each channel, 2 (n - 1) chunks the first. */
    size_t share = WEFTI_WINDOW_BYTES / 2 / (2 * (size_t)nranks);
    if (bytes > share) {
        bytes = share;
    }
    return bytes < 64 ? 64 : bytes;
}

size_t wefti_select_bounce_bytes(const wefti_tuning *tuning, int nranks)
{
    const size_t bytes = chunk_bytes(tuning, nranks);
    return bytes > ONESHOT_READ_BYTES ? (bytes + 63) / 64 * 64
                                      : ONESHOT_READ_BYTES;
}

static size_t chunk_elems(const wefti_tuning *tuning, int nranks,
                          weft_dtype dtype)
{
    const size_t bytes = chunk_bytes(tuning, nranks);
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

wefti_choice wefti_select(const wefti_tuning *tuning, int nranks,
                          const weft_op *op, const wefti_role *role)
{
    wefti_choice choice = {NULL, 1, 0};
    int forced = tuning->forced[op->collective];
    if (forced <= FORCED_ONESHOT && fits_oneshot(nranks, op, role)) {
        return choice;
    }
    choice.chunk_elems = chunk_elems(tuning, nranks, op->dtype);
    wefti_problem problem = {.collective = op->collective,
                             .nranks = nranks,
                             .root = op->root,
                             .count = op->count,
                             .chunk_elems = choice.chunk_elems};
    const wefti_pattern *pattern = NULL;
    if (forced >= FORCED_PATTERN) {
        pattern = wefti_patterns[forced - FORCED_PATTERN];
    } else if (is_cheap_to_exchange(nranks, op)) {
        pattern = &wefti_pattern_exchange;
    }
    if (!pattern || !pattern->supports(&problem)) {
        pattern = first_supporting(&problem);
    }
    if (pattern) { /* else a barrier: nothing to move */
        choice.pattern = pattern;
        choice.digest = digest_of(pattern);
    }
    return choice;
}

const char *wefti_select_why(const wefti_tuning *tuning, int nranks,
                             const weft_op *op)
{
    wefti_role role = wefti_role_of(op->collective, op->dtype, op->root, 0);
    wefti_choice choice = wefti_select(tuning, nranks, op, &role);
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
    wefti_choice choice = wefti_select(&comm->tuning, comm->nranks, op, &role);
    return choice.pattern ? choice.pattern->name : "oneshot";
}

const wefti_tuning *wefti_comm_tuning(const weft_comm *comm)
{
    return &comm->tuning;
}

int wefti_comm_rails(const weft_comm *comm)
{
    return comm->fabric.net ? comm->engine->net->use.count : 0;
}

bool wefti_comm_is_crowded(const weft_comm *comm)
{
    return comm->engine->crowded;
}
