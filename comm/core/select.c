/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/core/select.c - the choice of algorithm and chunk, from sizes and ranks.
 *
 * Small payloads ride in the entries (one cache-line exchange). Where some
 * ranks share memory and others do not, hierarchical crosses the network as
 * seldom as can be, and two_hop takes all-to-alls of small parts across it in
 * fewer messages. Else all-reduces of which everybody can read everything
 * cheaply are exchanged in one hop. Beyond, direct, pairwise and uneven, each
 * for its own collectives, move each byte once and reduce at its owner; they
 * have up to 2 (n - 1) chunks staged, so chunks shrink as ranks grow.
 */
#include "comm/core/select.h"

#include "comm/fabric/shared.h"
#include "comm/pattern/shape.h"
#include "kernels/wire/fold.h"

enum {
    CHUNK_BYTES = 128 << 10,
    EXCHANGE_READ_BYTES = 16 << 10, /* of all peers together; measured */
    MESSAGE_COPY_BYTES = 16 << 10   /* that are copied as fast as a message's
                                       way into the network and out is made */
};

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
    return op->count == 0 ||
           (bytes <= WEFTI_ENTRIES_BYTES &&
            bytes * (size_t)nranks <= WEFTI_ENTRIES_READ_BYTES);
}

/*
 * Those of levels, hierarchical and two_hop, stage up to 16 chunks inside the
 * host, and two rounds of what one rank sends to others on the network; any
 * other up to 2 (n - 1) on its first channel, which may have half the window.
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

/* levels: of a pattern that knows them, NULL of others. */
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
    return bytes > WEFTI_ENTRIES_READ_BYTES ? (bytes + 63) / 64 * 64
                                            : WEFTI_ENTRIES_READ_BYTES;
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

/*
 * Whether two hops cost less than one between hosts: each part is copied twice
 * more, and of the messages to a rank elsewhere one of each host is left. Hosts
 * count as if all had as many ranks.
 */
static bool is_cheaper_in_two_hops(const wefti_grouping *grouping,
                                   const weft_op *op)
{
    if (!grouping || op->collective != WEFT_COLLECTIVE_ALLTOALL) {
        return false;
    }
    size_t ranks = (size_t)grouping->nranks;
    size_t saved = ranks - (size_t)grouping->host_count;
    return op->count * weft_dtype_bytes(op->dtype) <=
           MESSAGE_COPY_BYTES / 2 * saved / ranks;
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
    return known                         ? wefti_patterns[at - 1]->name
           : digest == WEFTI_CHOICE_NCCL ? "nccl"
                                         : "an unknown algorithm";
}

bool wefti_select_is_flat(const wefti_tuning *tuning, const weft_op *op)
{
    /* Integers, minima and maxima are the same in any order. */
    bool ordered = weft_dtype_kind(op->dtype) == WEFT_KIND_FLOAT &&
                   op->redop != WEFT_REDOP_MIN && op->redop != WEFT_REDOP_MAX;
    return wefti_redop_is_user(op->redop) || (tuning->sum_flat && ordered);
}

/* What WEFT_ALGORITHM asks for; NULL: nothing. */
static const wefti_pattern *forced_by(const wefti_tuning *tuning,
                                      weft_collective collective)
{
    const int forced = tuning->forced[collective];
    return forced ? wefti_patterns[forced - WEFTI_FORCED_PATTERN] : NULL;
}

wefti_choice wefti_select(const wefti_tuning *tuning, int nranks,
                          const wefti_grouping *grouping, const weft_op *op,
                          const wefti_role *role)
{
    const wefti_pattern *forced = forced_by(tuning, op->collective);
    if ((!forced || forced->in_entries) && fits_oneshot(nranks, op, role)) {
        return (wefti_choice){.pattern = &wefti_pattern_oneshot,
                              .digest = digest_of(&wefti_pattern_oneshot),
                              .chunk_elems = 1};
    }
    wefti_choice choice = {.chunk_elems = 1};
    wefti_problem problem = {.collective = op->collective,
                             .nranks = nranks,
                             .root = op->root,
                             .count = op->count,
                             .chunk_elems = 1,
                             .grouping = grouping,
                             .flat = wefti_select_is_flat(tuning, op)};
    const wefti_pattern *pattern = NULL;
    if (forced && !forced->in_entries) {
        pattern = forced;
    } else if (!grouping && is_cheap_to_exchange(nranks, op)) {
        pattern = &wefti_pattern_exchange;
    } else if (is_cheaper_in_two_hops(grouping, op)) {
        pattern = &wefti_pattern_two_hop;
    }
    if (!pattern || !pattern->supports(&problem)) {
        pattern = wefti_pattern_first(&problem);
    }
    if (pattern) { /* else a barrier: nothing to move */
        bool levels = pattern == &wefti_pattern_hierarchical ||
                      pattern == &wefti_pattern_two_hop;
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
    const wefti_pattern *forced = forced_by(tuning, op->collective);
    if (choice.pattern == &wefti_pattern_oneshot) {
        return op->count == 0 ? "nothing to move: ranks only meet"
               : forced       ? "WEFT_ALGORITHM asks for it, and it fits"
                        : "it fits into the entries by which ranks meet: no "
                          "second message";
    }
    if (forced == choice.pattern) {
        return "WEFT_ALGORITHM asks for it";
    }
    if (forced && forced->in_entries) {
        return "WEFT_ALGORITHM asks for oneshot, which carries at most 4 KiB "
               "of each rank and 32 KiB of all: this carries more";
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
    if (choice.pattern == &wefti_pattern_two_hop) {
        return "parts are small: a host's for a rank elsewhere travel in "
               "one message";
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
