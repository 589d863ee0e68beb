/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/core/select.c - the choice of algorithm and chunk, from sizes and ranks.
 *
 * Small payloads ride in the entries (one cache-line exchange). Where some
 * ranks share memory and others do not, hierarchical crosses the network as
 * seldom as can be. Else all-reduces of which everybody can read everything
 * cheaply are exchanged in one hop. Beyond, direct, pairwise and uneven, each
 * for its own collectives, move each byte once and reduce at its owner; they
 * have up to 2 (n - 1) chunks staged, so chunks shrink as ranks grow.
 */
#include "comm/core/select.h"

#include "base/error.h"
#include "comm/fabric/shared.h"
#include "comm/pattern/shape.h"
#include "kernels/wire/fold.h"

enum {
    ONESHOT_LIMIT_BYTES = 4096,
    ONESHOT_READ_BYTES = 32 << 10, /* what a rank may read in all */
    CHUNK_BYTES = 128 << 10,
    EXCHANGE_READ_BYTES = 16 << 10 /* of all peers together; measured */
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

const char *wefti_choice_name(uint8_t digest)
{
    const char *name = wefti_algorithm_name(digest);
    return name                          ? name
           : digest == WEFTI_CHOICE_NCCL ? "nccl"
                                         : "an unknown algorithm";
}

const char *wefti_choice_text(const wefti_choice *choice)
{
    return choice->refused ? "refused" : wefti_choice_name(choice->digest);
}

bool wefti_select_is_flat(const wefti_tuning *tuning, const weft_op *op)
{
    /* Integers, minima and maxima are the same in any order. */
    bool ordered = weft_dtype_kind(op->dtype) == WEFT_KIND_FLOAT &&
                   op->redop != WEFT_REDOP_MIN && op->redop != WEFT_REDOP_MAX;
    return wefti_redop_is_user(op->redop) || (tuning->sum_flat && ordered);
}

/* What WEFT_ALGO allows; 0: all. One rank has nobody to exchange with, and one
 * way is as good as another. */
static wefti_algorithms allowed_of(const wefti_tuning *tuning, int nranks,
                                   const weft_op *op)
{
    return nranks > 1 ? tuning->allowed[op->collective] : 0;
}

static bool is_allowed(wefti_algorithms allowed, int bit)
{
    return !allowed || (allowed >> bit & 1);
}

static wefti_problem problem_of(const wefti_tuning *tuning, int nranks,
                                const wefti_grouping *grouping,
                                const weft_op *op)
{
    return (wefti_problem){.collective = op->collective,
                           .nranks = nranks,
                           .root = op->root,
                           .count = op->count,
                           .chunk_elems = 1,
                           .grouping = grouping,
                           .flat = wefti_select_is_flat(tuning, op)};
}

/* The first that can, but for what one hop is best for; NULL: none. */
static const wefti_pattern *pick(const wefti_problem *problem,
                                 wefti_algorithms allowed, const weft_op *op)
{
    bool short_way =
        !problem->grouping && is_cheap_to_exchange(problem->nranks, op) &&
        wefti_pattern_exchange.supports(problem) &&
        is_allowed(allowed, wefti_algorithm_bit(&wefti_pattern_exchange));
    if (short_way) {
        return &wefti_pattern_exchange;
    }
    for (int i = 0; wefti_patterns[i]; i++) {
        if (is_allowed(allowed, WEFTI_ALGORITHM_PATTERN + i) &&
            wefti_patterns[i]->supports(problem)) {
            return wefti_patterns[i];
        }
    }
    return NULL;
}

wefti_choice wefti_select(const wefti_tuning *tuning, int nranks,
                          const wefti_grouping *grouping, const weft_op *op,
                          const wefti_role *role)
{
    wefti_choice choice = {.chunk_elems = 1};
    wefti_algorithms allowed = allowed_of(tuning, nranks, op);
    bool may = is_allowed(allowed, WEFTI_ALGORITHM_ONESHOT) || op->count == 0;
    if (may && fits_oneshot(nranks, op, role)) {
        return choice;
    }
    wefti_problem problem = problem_of(tuning, nranks, grouping, op);
    const wefti_pattern *pattern = pick(&problem, allowed, op);
    choice.refused = allowed && !pattern;
    if (pattern) { /* else a barrier: nothing to move */
        bool levels = pattern == &wefti_pattern_hierarchical;
        choice.pattern = pattern;
        choice.digest = (uint8_t)wefti_algorithm_bit(pattern);
        choice.chunk_elems = chunk_elems(
            chunk_bytes(tuning, nranks, levels ? grouping : NULL), op->dtype);
    }
    return choice;
}

weft_status wefti_select_refuse(const wefti_tuning *tuning, int nranks,
                                const wefti_grouping *grouping,
                                const weft_op *op, const wefti_role *role)
{
    char asked[WEFTI_ALGORITHMS_ROOM], able[WEFTI_ALGORITHMS_ROOM];
    wefti_problem problem = problem_of(tuning, nranks, grouping, op);
    wefti_algorithms set = wefti_algorithms_supporting(&problem);
    if (fits_oneshot(nranks, op, role)) {
        set |= 1U << WEFTI_ALGORITHM_ONESHOT;
    }
    wefti_algorithms_list(tuning->allowed[op->collective], '/', asked,
                          sizeof(asked));
    wefti_algorithms_list(set, '|', able, sizeof(able));
    const char *name = weft_collective_text(op->collective);
    return wefti_error(
        WEFT_ERR_INVALID,
        "WEFT_ALGO=%s:%s: %s of %zu %s among %d ranks %s cannot take that way: "
        "allowed is %s, or several with / between",
        name, asked, name, op->count, weft_dtype_text(op->dtype), nranks,
        grouping ? "on several hosts" : "of one level", able);
}

/* Where WEFT_ALGO leaves a choice at all. */
static const char *why_allowed(wefti_algorithms allowed)
{
    bool one = (allowed & (allowed - 1)) == 0;
    return one ? "WEFT_ALGO asks for it"
               : "the first that can of those that WEFT_ALGO asks for";
}

const char *wefti_select_why(const wefti_tuning *tuning, int nranks,
                             const wefti_grouping *grouping, const weft_op *op)
{
    wefti_role role = wefti_role_of(op->collective, op->dtype, op->root, 0);
    wefti_choice choice = wefti_select(tuning, nranks, grouping, op, &role);
    wefti_algorithms allowed = allowed_of(tuning, nranks, op);
    if (choice.refused) {
        return "WEFT_ALGO asks for what cannot carry it out: a post is refused";
    }
    if (!choice.pattern && op->count == 0) {
        return "nothing to move: ranks only meet";
    }
    if (allowed) {
        return why_allowed(allowed);
    }
    if (!choice.pattern) {
        return "it fits into the entries by which ranks meet: no second "
               "message";
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
