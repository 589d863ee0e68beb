/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/core/select.c - the choice of algorithm and chunk, from sizes and ranks.
 *
 * Small payloads ride in the entries (one cache-line exchange; between hosts in
 * rounds where all want all), unless these fill a link between hosts for longer
 * than another takes. All else, and with
 * it payloads that may lie beside the entries, takes the pattern that costs
 * least, by what it counts on each level and the
 * rates of the scope; where two cost the same, the first of the table. Patterns
 * have up to 2 (n - 1) chunks staged, so chunks shrink as ranks grow.
 */
#include "comm/core/select.h"

#include "base/error.h"
#include "comm/fabric/shared.h"
#include "comm/pattern/dissemination.h"
#include "comm/pattern/relay.h"
#include "comm/pattern/shape.h"
#include "kernels/wire/reduce.h"

#include <math.h>

enum {
    CHUNK_BYTES = 128 << 10,
    SWITCH_NS = 6000 /* until a core has given another of its ranks a turn */
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

/* Whether the payloads are for the entries. */
static bool fits_entries(int nranks, const weft_op *op, const wefti_role *role)
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
 * other up to 2 (n - 1) on its first channel, which may have half the staging
 * buffer.
 */
static size_t count_chunks(int nranks, size_t least)
{
    if (least == 0) {
        return 4 * (size_t)nranks;
    }
    size_t others = (size_t)nranks - least;
    return 16 + 2 * (others / least + (others % least != 0) + 1);
}

/* least: ranks that share what one of them handles, of a pattern that knows
 * hosts; 0 of others. */
static size_t chunk_bytes(const wefti_tuning *tuning, int nranks, size_t least)
{
    size_t bytes = tuning->chunk_bytes ? tuning->chunk_bytes : CHUNK_BYTES;
    size_t share = WEFTI_STAGING_BYTES / count_chunks(nranks, least) / 64 * 64;
    if (bytes > share) {
        bytes = share;
    }
    return bytes < 64 ? 64 : bytes;
}

/*
 * Whether oneshot can carry it out at all: among ranks that share memory,
 * payloads may lie beside the entries. All that is read is to fit a bounce, and
 * what gates cut is to move in its chunks.
 */
static bool fits_oneshot(const wefti_scope *scope, const weft_op *op,
                         const wefti_role *role)
{
    const size_t bytes = wefti_oneshot_bytes(scope->nranks, op, role);
    return fits_entries(scope->nranks, op, role) ||
           (!role->shape->stepwise && !scope->grouping && !scope->apart &&
            !wefti_op_is_cut(op) && bytes <= WEFTI_AREA_BYTES &&
            bytes * (size_t)scope->nranks <=
                chunk_bytes(scope->tuning, scope->nranks, 0));
}

static wefti_problem problem_of(const wefti_scope *scope, const weft_op *op)
{
    const bool common = wefti_op_tells_counts(op);
    return (wefti_problem){.send_counts = common ? op->send_counts : NULL,
                           .recv_counts = common ? op->recv_counts : NULL,
                           .collective = op->collective,
                           .nranks = scope->nranks,
                           .root = op->root,
                           .count = op->count,
                           .chunk_elems = 1,
                           .grouping = scope->grouping,
                           .nest = scope->nest,
                           .apart = scope->apart,
                           .flat = wefti_select_is_flat(scope->tuning, op),
                           .deferred = op->deferred_counts != NULL,
                           .gated = op->gate_elems == WEFT_GATE_PER_RANK};
}

/* Whether an algorithm that has no steps can carry it out. */
static bool fits_shot(const wefti_scope *scope, const weft_op *op,
                      const wefti_role *role, const wefti_pattern *pattern)
{
    const wefti_problem problem = problem_of(scope, op);
    return pattern == &wefti_pattern_dissemination
               ? fits_entries(scope->nranks, op, role) &&
                     wefti_dissemination_fits(
                         &problem, wefti_oneshot_bytes(scope->nranks, op, role))
               : fits_oneshot(scope, op, role);
}

size_t wefti_select_bounce_bytes(const wefti_tuning *tuning, int nranks,
                                 const wefti_grouping *grouping)
{
    size_t bytes = chunk_bytes(tuning, nranks, 0);
    size_t levels =
        grouping ? chunk_bytes(tuning, nranks, (size_t)grouping->least_ranks)
                 : 0;
    bytes = levels > bytes ? levels : bytes;
    return bytes > WEFTI_ENTRIES_READ_BYTES ? (bytes + 63) / 64 * 64
                                            : WEFTI_ENTRIES_READ_BYTES;
}

static size_t chunk_elems(size_t bytes, weft_dtype dtype)
{
    /* Narrow floats travel wide in some patterns: count what they become. */
    size_t wide = wefti_wide_bytes(dtype);
    return bytes / wide ? bytes / wide : 1;
}

const char *wefti_choice_name(uint8_t digest)
{
    const char *name = wefti_algorithm_name(digest - 1);
    return name                             ? name
           : digest == WEFTI_CHOICE_NCCL    ? "nccl"
           : digest == WEFTI_CHOICE_STREAMS ? "streams"
           : digest == WEFTI_CHOICE_GRAPH   ? "a graph that captures it"
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

/* What WEFT_ALGO allows; 0: all. One rank has none to exchange with, and one
 * way is as good as another. */
static wefti_algorithms allowed_of(const wefti_scope *scope, const weft_op *op)
{
    return scope->nranks > 1 ? scope->tuning->allowed[op->collective] : 0;
}

static bool is_allowed(wefti_algorithms allowed, int bit)
{
    return !allowed || (allowed >> bit & 1);
}

/* Of what a pattern passes on, two messages a child are staged, which are few:
 * scratch has room for as much. */
static size_t passed_bytes(const wefti_scope *scope)
{
    const size_t asked = scope->tuning->chunk_bytes;
    const size_t most = wefti_select_bounce_bytes(scope->tuning, scope->nranks,
                                                  scope->grouping);
    return asked == 0 || most < asked ? most : asked < 64 ? 64 : asked;
}

/* In chunks of the pattern's. */
static size_t chunk_elems_of(const wefti_scope *scope, const weft_op *op,
                             const wefti_pattern *pattern)
{
    if (pattern->passes_on) {
        return chunk_elems(passed_bytes(scope), op->dtype);
    }
    /* With counts, two_hop stages what goes straight as if there were none, and
     * so does nested the inputs of sums that know no levels. */
    bool sums = pattern == &wefti_pattern_nested_sums;
    bool levels = pattern == &wefti_pattern_hierarchical || sums ||
                  (pattern == &wefti_pattern_nested &&
                   !wefti_select_is_flat(scope->tuning, op)) ||
                  (pattern == &wefti_pattern_two_hop &&
                   op->collective == WEFT_COLLECTIVE_ALLTOALL);
    int least = !scope->grouping || !levels ? 0
                : sums                      ? scope->nest->sums->least_ranks
                                            : scope->grouping->least_ranks;
    return chunk_elems(chunk_bytes(scope->tuning, scope->nranks, (size_t)least),
                       op->dtype);
}

/* share: of the work that is counted, what the busiest rank is held up by. */
static double cost_ns(const wefti_scope *scope, const weft_op *op,
                      const wefti_pattern *pattern, double share)
{
    wefti_cost cost = {0};
    wefti_problem problem = problem_of(scope, op);
    problem.chunk_elems = chunk_elems_of(scope, op, pattern);
    problem.upward = pattern == &wefti_pattern_nested_sums;
    wefti_sizes sizes = wefti_sizes_of(&problem, weft_dtype_bytes(op->dtype),
                                       wefti_wide_bytes(op->dtype));
    if (pattern != &wefti_pattern_nested && !problem.upward) {
        problem.nest = NULL;
    }
    pattern->cost(&problem, &sizes, &cost);
    cost.local_messages *= share;
    cost.network_messages *= share;
    cost.copied_bytes *= share;
    cost.reduced_bytes *= share;
    wefti_rates rates = scope->rates ? *scope->rates : wefti_rates_usual;
    if (scope->ranks_per_core > 1) {
        rates.local_latency_ns = SWITCH_NS * scope->ranks_per_core;
    }
    return wefti_cost_ns(&cost, &rates,
                         wefti_sizes_chunks(&sizes, sizes.bytes));
}

/*
 * What it is weighed by against those before it in the table. Rates are never
 * exact, so what is nearly as good changes nothing. A tree's work is counted at
 * its top alone: the others' holds up the top where they share its cores. The
 * links of other hosts do not.
 */
static double weighed_ns(const wefti_scope *scope, const weft_op *op,
                         const wefti_pattern *pattern)
{
    bool network = scope->grouping || scope->apart;
    if (!pattern->is_tree) {
        return 1.1 * cost_ns(scope, op, pattern, 1);
    }
    return network ? 1.1 * cost_ns(scope, op, pattern, 1.5)
                   : 3 * cost_ns(scope, op, pattern, 1);
}

/*
 * Up to how many elements a part of an all-to-all with counts is to go by two
 * hops; 0: none is. It is what no rank need know of others: as many as where
 * two hops cost less than one if all parts are as long.
 */
static size_t find_relay_elems(const wefti_scope *scope, const weft_op *op,
                               bool asked)
{
    weft_op even = *op;
    size_t most = chunk_elems_of(scope, op, &wefti_pattern_two_hop) / 2;
    size_t low = 0, high;
    most = most < WEFTI_RELAY_ELEMS ? most : WEFTI_RELAY_ELEMS;
    if (asked) {
        return most;
    }
    even.collective = WEFT_COLLECTIVE_ALLTOALL;
    for (high = most + 1; high - low > 1;) {
        even.count = low + (high - low) / 2;
        if (weighed_ns(scope, &even, &wefti_pattern_two_hop) <
            cost_ns(scope, &even, &wefti_pattern_pairwise, 1)) {
            low = even.count;
        } else {
            high = even.count;
        }
    }
    return low;
}

/* The same, where two_hop can carry it out and may. */
static size_t relay_elems_of(const wefti_scope *scope, const weft_op *op,
                             wefti_algorithms allowed)
{
    const int bit = wefti_algorithm_bit(&wefti_pattern_two_hop);
    wefti_problem problem = problem_of(scope, op);
    return op->collective == WEFT_COLLECTIVE_ALLTOALLV &&
                   is_allowed(allowed, bit) &&
                   wefti_pattern_two_hop.supports(&problem)
               ? find_relay_elems(scope, op,
                                  allowed == (wefti_algorithms)(1U << bit))
               : 0;
}

/* Where no rank knows how much the others move, the first will do. */
static bool has_cost(const weft_op *op, const wefti_pattern *pattern)
{
    return pattern->cost && (!wefti_shape_get(op->collective)->varied ||
                             wefti_op_tells_counts(op));
}

/* The cheapest that is allowed and can; NULL: none can. shot: what has no
 * steps is asked too. */
static const wefti_pattern *pick(const wefti_scope *scope, const weft_op *op,
                                 const wefti_role *role,
                                 wefti_algorithms allowed, bool shot)
{
    wefti_problem problem = problem_of(scope, op);
    const wefti_pattern *best = NULL;
    double least_ns = 0;
    for (int i = 0; wefti_patterns[i]; i++) {
        const wefti_pattern *pattern = wefti_patterns[i];
        if (!is_allowed(allowed, i) || !pattern->supports(&problem) ||
            (pattern->in_entries &&
             !(shot && fits_shot(scope, op, role, pattern)))) {
            continue;
        }
        bool counted = has_cost(op, pattern);
        double ns = counted && best ? weighed_ns(scope, op, pattern) : 0;
        if (!best || ns < least_ns) {
            best = pattern;
            least_ns = counted ? cost_ns(scope, op, pattern, 1) : 0;
        }
    }
    return best;
}

double wefti_select_cost_ns(const wefti_scope *scope, const weft_op *op,
                            int bit)
{
    wefti_problem problem = problem_of(scope, op);
    const wefti_pattern *pattern = wefti_patterns[bit];
    wefti_role role = wefti_role_of(op->collective, op->dtype, op->root, 0);
    bool fits = !pattern->in_entries || fits_shot(scope, op, &role, pattern);
    return fits && has_cost(op, pattern) && pattern->supports(&problem)
               ? cost_ns(scope, op, pattern, 1)
               : (double)NAN;
}

/*
 * How entries are to carry it: what all ranks of several hosts need, in rounds,
 * if it fits these; NULL: that is for the costs to say.
 */
static const wefti_pattern *pick_shot(const wefti_scope *scope,
                                      const weft_op *op, const wefti_role *role,
                                      wefti_algorithms allowed)
{
    const wefti_pattern *rounds = &wefti_pattern_dissemination;
    const wefti_pattern *oneshot = &wefti_pattern_oneshot;
    const wefti_problem problem = problem_of(scope, op);
    allowed = op->count ? allowed : 0;
    if (!fits_entries(scope->nranks, op, role)) {
        return NULL;
    }
    if (is_allowed(allowed, wefti_algorithm_bit(rounds)) &&
        rounds->supports(&problem)) {
        return fits_shot(scope, op, role, rounds) ? rounds : NULL;
    }
    return is_allowed(allowed, wefti_algorithm_bit(oneshot)) ? oneshot : NULL;
}

/*
 * Whether the shot's hops and bytes alone take longer than the pattern: of
 * oneshot, every rank sends its payload to every rank of other hosts, through a
 * link that its host shares. A root sends, or gets, alone; one that has a part
 * of each rank has a message with each, one after another.
 */
static bool fills_link(const wefti_scope *scope, const weft_op *op,
                       const wefti_role *role, const wefti_pattern *shot,
                       const wefti_pattern *pattern)
{
    const wefti_rates *rates = scope->rates ? scope->rates : &wefti_rates_usual;
    const double ranks = scope->nranks;
    const double hosts = scope->grouping ? scope->grouping->host_count
                         : scope->apart  ? ranks
                                         : 1;
    const double locals = ranks / hosts, remotes = ranks - locals;
    const wefti_shape *shape = role->shape;
    const bool parts = shape->send_parts || shape->recv_parts;
    double hops = 1, messages = shape->rooted && parts ? remotes : 0;
    double bytes = (double)wefti_oneshot_bytes(scope->nranks, op, role) *
                   remotes * (shape->rooted ? 1 : locals);
    if (shot == &wefti_pattern_dissemination) {
        const wefti_problem problem = problem_of(scope, op);
        wefti_sizes sizes = wefti_sizes_of(
            &problem, weft_dtype_bytes(op->dtype), wefti_wide_bytes(op->dtype));
        wefti_cost cost = {0};
        shot->cost(&problem, &sizes, &cost);
        hops = cost.network_hops;
        bytes = cost.link_bytes;
    }
    return pattern && has_cost(op, pattern) && hosts > 1 &&
           hops * rates->network_latency_ns +
                   messages * rates->network_message_ns +
                   bytes * rates->network_byte_ns >
               weighed_ns(scope, op, pattern);
}

wefti_choice wefti_select(const wefti_scope *scope, const weft_op *op,
                          const wefti_role *role)
{
    wefti_choice choice = {.chunk_elems = 1};
    wefti_algorithms allowed = allowed_of(scope, op);
    const wefti_pattern *shot = pick_shot(scope, op, role, allowed);
    if (shot) {
        const wefti_pattern *steps =
            op->count ? pick(scope, op, role, allowed, false) : NULL;
        choice.pattern =
            fills_link(scope, op, role, shot, steps) ? steps : shot;
    } else {
        choice.relay_elems = relay_elems_of(scope, op, allowed);
        choice.pattern = choice.relay_elems
                             ? &wefti_pattern_two_hop
                             : pick(scope, op, role, allowed, true);
        choice.refused = allowed && !choice.pattern;
    }
    if (choice.pattern) { /* else refused, or a barrier: nothing to move */
        choice.digest = (uint8_t)(1 + wefti_algorithm_bit(choice.pattern));
    }
    if (wefti_choice_has_steps(&choice)) {
        choice.chunk_elems = chunk_elems_of(scope, op, choice.pattern);
    }
    return choice;
}

weft_status wefti_select_refuse(const wefti_scope *scope, const weft_op *op,
                                const wefti_role *role)
{
    char asked[WEFTI_ALGORITHMS_ROOM], able[WEFTI_ALGORITHMS_ROOM];
    wefti_problem problem = problem_of(scope, op);
    wefti_algorithms set = wefti_algorithms_supporting(&problem);
    for (int i = 0; wefti_patterns[i]; i++) {
        if (wefti_patterns[i]->in_entries &&
            !fits_shot(scope, op, role, wefti_patterns[i])) {
            set &= (wefti_algorithms) ~(1U << i);
        }
    }
    wefti_algorithms_list(scope->tuning->allowed[op->collective], '/', asked,
                          sizeof(asked));
    wefti_algorithms_list(set, '|', able, sizeof(able));
    const char *name = weft_collective_text(op->collective);
    return wefti_error(
        WEFT_ERR_INVALID,
        "WEFT_ALGO=%s:%s: %s of %zu %s among %d ranks %s cannot take that way: "
        "allowed is %s, or several with / between",
        name, asked, name, op->count, weft_dtype_text(op->dtype), scope->nranks,
        scope->grouping || scope->apart ? "on several hosts"
        : scope->nest                   ? "of several levels"
                                        : "of one level",
        able);
}

/* ---- why ----------------------------------------------------------------- */

/* Where WEFT_ALGO leaves a choice at all. */
static const char *why_allowed(wefti_algorithms allowed)
{
    bool one = (allowed & (allowed - 1)) == 0;
    return one ? "WEFT_ALGO asks for it"
               : "it costs least of those that WEFT_ALGO asks for";
}

static const char *why_nested(const wefti_scope *scope, bool reduces)
{
    const bool sums = scope->nest->sums != NULL;
    if (reduces && !sums) {
        return "a result enters each level inside a host once; no group there "
               "is a node of the sums' tree, so inputs go straight";
    }
    return scope->grouping
               ? "a byte reaches each other host once, and there each level "
                 "inside, whose ranks pass it on to each other"
               : "a byte enters each level inside the host once: the way there "
                 "is narrower than that to the next rank";
}

static const char *why_pattern(const wefti_scope *scope, const weft_op *op,
                               const wefti_pattern *pattern, bool reduces)
{
    if (pattern == &wefti_pattern_hierarchical) {
        return reduces
                   ? "a host's sum crosses the network once, by all its ranks, "
                     "in chunks"
                   : "a byte reaches each other host once, by all its ranks, "
                     "in chunks";
    }
    if (pattern == &wefti_pattern_nested) {
        return why_nested(scope, reduces);
    }
    if (pattern == &wefti_pattern_nested_sums) {
        return "what ranks of a level inside hosts have leaves it as one sum, "
               "of the same bits: the way out is narrow";
    }
    if (scope->grouping && scope->tuning->sum_flat && reduces &&
        wefti_select_is_flat(scope->tuning, op)) {
        return "WEFT_SUM_FLAT: one tree over all ranks, so no host's sum "
               "crosses alone";
    }
    if (pattern == &wefti_pattern_two_hop) {
        return op->collective == WEFT_COLLECTIVE_ALLTOALLV
                   ? "a host's small parts for a rank elsewhere travel in one "
                     "message"
                   : "parts are small: a host's for a rank elsewhere travel in "
                     "one message";
    }
    if (pattern == &wefti_pattern_exchange) {
        return "one hop: all read all of so little sooner than a second hop "
               "takes";
    }
    if (pattern == &wefti_pattern_binomial) {
        return "few messages: ranks pass parts on, and the root has one with "
               "few of them";
    }
    if (pattern == &wefti_pattern_tree) {
        return "few messages: one to every rank would take longer than a "
               "tree's hops";
    }
    return reduces ? "each byte moves once to whoever reduces it, in chunks "
                     "that overlap"
                   : "each byte moves once, straight to whoever wants it, in "
                     "chunks that overlap";
}

const char *wefti_select_why(const wefti_scope *scope, const weft_op *op)
{
    wefti_role role = wefti_role_of(op->collective, op->dtype, op->root, 0);
    wefti_choice choice = wefti_select(scope, op, &role);
    wefti_algorithms allowed = allowed_of(scope, op);
    if (choice.refused) {
        return "WEFT_ALGO asks for what cannot carry it out: a post is refused";
    }
    if (op->count == 0) {
        return "nothing to move: ranks only meet";
    }
    if (allowed) {
        return why_allowed(allowed);
    }
    if (choice.pattern == &wefti_pattern_dissemination) {
        return "little enough to be there when hosts meet, in rounds of one "
               "message a host";
    }
    if (choice.pattern == &wefti_pattern_oneshot) {
        return "little enough to be there when ranks meet: no second message";
    }
    return why_pattern(scope, op, choice.pattern, role.shape->reduces);
}
