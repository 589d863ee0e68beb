/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what patterns say they cost is what their lists do, and the choice is
 * what costs least.
 *
 * Method: for each pattern and collective, on hosts of equal size, the steps of
 * all ranks are gone through: messages, bytes copied and added up by the
 * busiest rank, bytes through the busiest host's link. The link's bytes must be
 * those of the cost, the work of the same size. Then choices where they are
 * known: measured thresholds on one host, fewest bytes between hosts, few
 * messages among many.
 */
#include "comm/core/select.h"

#include "base/check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MOST = 512, HOSTS_MOST = 64 };

static const weft_collective collectives[] = {
    WEFT_COLLECTIVE_ALLREDUCE, WEFT_COLLECTIVE_REDUCE,
    WEFT_COLLECTIVE_REDUCESCATTER, WEFT_COLLECTIVE_ALLGATHER,
    WEFT_COLLECTIVE_BROADCAST};

/* What has several patterns somewhere. */
static const weft_collective compared[] = {
    WEFT_COLLECTIVE_ALLREDUCE,     WEFT_COLLECTIVE_REDUCE,
    WEFT_COLLECTIVE_REDUCESCATTER, WEFT_COLLECTIVE_ALLGATHER,
    WEFT_COLLECTIVE_BROADCAST,     WEFT_COLLECTIVE_ALLTOALL,
    WEFT_COLLECTIVE_GATHER,        WEFT_COLLECTIVE_SCATTER};

/* So many hosts of so many ranks; groupings are freed by the caller. */
static wefti_grouping *make_hosts(int hosts, int locals)
{
    static int firsts[RANKS_MOST];
    wefti_grouping *grouping;
    assert_true(hosts * locals <= RANKS_MOST);
    for (int rank = 0; rank < hosts * locals; rank++) {
        firsts[rank] = rank / locals * locals;
    }
    assert_true(wefti_grouping_create(firsts, hosts * locals, &grouping));
    return grouping;
}

/* ---- what lists do --------------------------------------------------------
 */

typedef struct tally {
    double local_messages, network_messages;
    double copied_elems, reduced_elems;
} tally;

static int locals_of_scene; /* ranks of a host */
static double link_out[HOSTS_MOST], link_in[HOSTS_MOST];

static void count_send(const wefti_problem *problem, const wefti_step *step,
                       tally *own)
{
    int host = problem->rank / locals_of_scene, locals = 0;
    for (int i = 0;
         i < wefti_peer_count(problem, step->peer, step->owner, step->round);
         i++) {
        int to =
            wefti_peer_at(problem, step->peer, step->owner, step->round, i);
        if (to / locals_of_scene != host) {
            own->network_messages++;
            link_out[host] += (double)step->elems;
            link_in[to / locals_of_scene] += (double)step->elems;
        } else if (to != problem->rank) {
            locals = 1; /* the host's ranks read one message */
        }
    }
    own->local_messages += locals;
}

/* One message from each of the ranks that the step adds up, or takes. */
static void count_reads(const wefti_problem *problem, const wefti_step *step,
                        int peer, tally *own)
{
    for (int i = 0;
         i < wefti_peer_count(problem, peer, step->owner, step->round); i++) {
        int from = wefti_peer_at(problem, peer, step->owner, step->round, i);
        bool local = from / locals_of_scene == problem->rank / locals_of_scene;
        own->local_messages += local && from != problem->rank;
        own->network_messages += !local;
    }
}

static void count_step(const wefti_problem *problem, const wefti_step *step,
                       tally *own)
{
    double elems = (double)step->elems;
    int sources = wefti_step_sources(problem, step);
    switch (step->kind) {
    case WEFTI_STEP_SEND:
        count_send(problem, step, own);
        own->copied_elems += elems;
        break;
    case WEFTI_STEP_RELAY:
        count_reads(problem, step, sources, own);
        own->reduced_elems +=
            elems *
            wefti_peer_count(problem, sources, step->owner, step->round);
        count_send(problem, step, own);
        own->copied_elems += elems;
        break;
    case WEFTI_STEP_REDUCE:
        count_reads(problem, step, sources, own);
        own->reduced_elems +=
            elems *
            wefti_peer_count(problem, sources, step->owner, step->round);
        break;
    case WEFTI_STEP_COMBINE:
        count_reads(problem, step, step->peer, own);
        own->reduced_elems += elems;
        break;
    case WEFTI_STEP_RECV:
        count_reads(problem, step, step->peer, own);
        own->copied_elems += elems;
        break;
    case WEFTI_STEP_ROUND:
        break;
    default: /* COPY, WIDEN, NARROW */
        own->copied_elems += elems;
        break;
    }
}

/* A message between hosts weighs most, then one inside, then a KiB. */
static double weigh(double local_messages, double network_messages,
                    double copied_bytes, double reduced_bytes)
{
    return 150 * local_messages + 4000 * network_messages +
           0.1 * (copied_bytes + reduced_bytes);
}

/* The most that a rank does; the hosts' links are filled. */
static double weigh_lists(const wefti_pattern *pattern, wefti_problem problem)
{
    double most = 0;
    memset(link_out, 0, sizeof(link_out));
    memset(link_in, 0, sizeof(link_in));
    for (problem.rank = 0; problem.rank < problem.nranks; problem.rank++) {
        tally own = {0};
        for (int list = 0; list < WEFTI_STEP_LISTS; list++) {
            size_t count = pattern->step_count(&problem, list);
            for (size_t i = 0; i < count; i++) {
                wefti_step step;
                pattern->step_at(&problem, list, i, &step);
                count_step(&problem, &step, &own);
            }
        }
        double work = weigh(own.local_messages, own.network_messages,
                            4 * own.copied_elems, 4 * own.reduced_elems);
        most = work > most ? work : most;
    }
    return most;
}

static double fullest_link(void)
{
    double most = 0;
    for (int host = 0; host < HOSTS_MOST; host++) {
        most = link_out[host] > most ? link_out[host] : most;
        most = link_in[host] > most ? link_in[host] : most;
    }
    return 4 * most;
}

static int compare(const wefti_pattern *pattern, const wefti_problem *problem)
{
    wefti_cost cost = {0};
    wefti_sizes sizes = wefti_sizes_of(problem, 4, 4);
    pattern->cost(problem, &sizes, &cost);
    double work = weigh(cost.local_messages, cost.network_messages,
                        cost.copied_bytes, cost.reduced_bytes);
    double really = weigh_lists(pattern, *problem);
    double link = fullest_link();
    bool right = work >= 0.7 * really && work <= 1.4 * really &&
                 fabs(cost.link_bytes - link) <= 0.01 * link;
    if (!right) {
        print_message("%s by %s, %zu elements, %d ranks, %d a host: work %.0f, "
                      "counted %.0f; link %.0f, counted %.0f\n",
                      weft_collective_text(problem->collective), pattern->name,
                      problem->count, problem->nranks, locals_of_scene, work,
                      really, cost.link_bytes, link);
    }
    return !right;
}

static int compare_hosts(int hosts, int locals, size_t bytes)
{
    int failures = 0, nranks = hosts * locals;
    wefti_grouping *grouping = make_hosts(hosts, locals);
    locals_of_scene = locals;
    for (size_t i = 0; i < WEFTI_COUNT_OF(compared); i++) {
        wefti_problem problem = {.collective = compared[i],
                                 .nranks = nranks,
                                 .count = bytes / 4,
                                 .chunk_elems = 4096,
                                 .grouping = grouping,
                                 .apart = locals == 1};
        const wefti_shape *shape = wefti_shape_get(compared[i]);
        if (shape->send_parts || shape->recv_parts) {
            problem.count /= (size_t)nranks;
        }
        for (int p = 0; wefti_patterns[p]; p++) {
            /* A tree over all ranks has hosts of its own only where it splits
             * at them. */
            bool split = wefti_patterns[p] != &wefti_pattern_tree ||
                         shape->reduces || (locals & (locals - 1)) == 0;
            if (split && wefti_patterns[p]->cost &&
                !wefti_patterns[p]->in_entries &&
                wefti_patterns[p]->supports(&problem)) {
                failures += compare(wefti_patterns[p], &problem);
            }
        }
    }
    free(grouping);
    return failures;
}

static void test_cost_is_what_the_lists_do(void **state)
{
    static const int scenes[][2] = {{1, 2}, {1, 4}, {1, 8}, {2, 1},
                                    {4, 1}, {8, 1}, {2, 2}, {2, 4},
                                    {4, 2}, {4, 4}, {8, 4}, {3, 3}};
    static const size_t sizes[] = {18432, 147456, 1179648};
    int failures = 0;
    (void)state;
    for (size_t i = 0; i < WEFTI_COUNT_OF(scenes); i++) {
        for (size_t s = 0; s < WEFTI_COUNT_OF(sizes); s++) {
            failures += compare_hosts(scenes[i][0], scenes[i][1], sizes[s]);
        }
    }
    assert_int_equal(failures, 0);
}

/* ---- choices --------------------------------------------------------------
 */

static void expect(int hosts, int locals, weft_collective collective,
                   size_t bytes, const char *name)
{
    static const wefti_tuning tuning;
    const wefti_shape *shape = wefti_shape_get(collective);
    wefti_grouping *grouping = make_hosts(hosts, locals);
    wefti_scope scope = {.tuning = &tuning,
                         .nranks = hosts * locals,
                         .grouping = grouping,
                         .apart = hosts > 1 && locals == 1};
    weft_op op = {
        .collective = collective, .dtype = WEFT_DTYPE_F32, .count = bytes / 4};
    if (shape->send_parts || shape->recv_parts) {
        op.count /= (size_t)scope.nranks;
    }
    wefti_role role = wefti_role_of(collective, op.dtype, 0, 0);
    wefti_choice choice = wefti_select(&scope, &op, &role);
    if (strcmp(wefti_choice_text(&choice), name) != 0) {
        fail_msg("%s of %zu bytes, %d hosts of %d ranks: %s, and not %s",
                 weft_collective_text(collective), bytes, hosts, locals,
                 wefti_choice_text(&choice), name);
    }
    assert_true(strlen(wefti_select_why(&scope, &op)) > 0);
    free(grouping);
}

static void test_choice_on_one_host_as_measured(void **state)
{
    (void)state;
    expect(1, 2, WEFT_COLLECTIVE_ALLREDUCE, 4 << 10, "oneshot");
    expect(1, 2, WEFT_COLLECTIVE_ALLREDUCE, 32 << 10, "oneshot");
    expect(1, 2, WEFT_COLLECTIVE_ALLREDUCE, 64 << 10, "direct");
    expect(1, 2, WEFT_COLLECTIVE_ALLGATHER, 128 << 10, "oneshot");
    expect(1, 2, WEFT_COLLECTIVE_ALLGATHER, 136 << 10, "direct");
    expect(1, 2, WEFT_COLLECTIVE_REDUCESCATTER, 64 << 10, "oneshot");
    expect(1, 4, WEFT_COLLECTIVE_ALLREDUCE, 8 << 10, "oneshot");
    expect(1, 4, WEFT_COLLECTIVE_ALLREDUCE, 64 << 10, "direct");
    expect(1, 8, WEFT_COLLECTIVE_ALLREDUCE, 16 << 10, "direct");
    for (int nranks = 2; nranks <= 16; nranks *= 2) {
        for (size_t bytes = 256 << 10; bytes <= 64 << 20; bytes *= 8) {
            for (size_t i = 0; i < WEFTI_COUNT_OF(collectives); i++) {
                expect(1, nranks, collectives[i], bytes, "direct");
            }
        }
    }
}

static void test_choice_between_hosts_fewest_bytes(void **state)
{
    (void)state;
    for (int hosts = 2; hosts <= 4; hosts++) {
        for (size_t bytes = 1 << 20; bytes <= 64 << 20; bytes *= 4) {
            for (size_t i = 0; i < WEFTI_COUNT_OF(collectives); i++) {
                /* The root's link carries the data of all other hosts, or of
                 * two: so it was measured, at 200 Mbit/s. */
                bool tree =
                    hosts == 4 && (collectives[i] == WEFT_COLLECTIVE_REDUCE ||
                                   collectives[i] == WEFT_COLLECTIVE_BROADCAST);
                expect(hosts, 2, collectives[i], bytes,
                       tree ? "tree" : "hierarchical");
            }
        }
    }
    expect(64, 8, WEFT_COLLECTIVE_ALLREDUCE, 64 << 20, "hierarchical");
    /* One host's link would carry the data of all others. */
    expect(64, 8, WEFT_COLLECTIVE_BROADCAST, 64 << 20, "tree");
    expect(16, 1, WEFT_COLLECTIVE_REDUCE, 64 << 20, "tree");
}

static void test_choice_among_many_hosts_few_messages(void **state)
{
    (void)state;
    expect(64, 8, WEFT_COLLECTIVE_ALLREDUCE, 8 << 10, "tree");
    expect(64, 1, WEFT_COLLECTIVE_ALLREDUCE, 8 << 10, "tree");
    expect(64, 8, WEFT_COLLECTIVE_BROADCAST, 8 << 10, "tree");
    for (int scatter = 0; scatter < 2; scatter++) { /* bytes of all parts */
        weft_collective rooted =
            scatter ? WEFT_COLLECTIVE_SCATTER : WEFT_COLLECTIVE_GATHER;
        expect(64, 8, rooted, 512 * 4, "binomial");
        expect(64, 8, rooted, 512 * 256, "binomial");
        expect(64, 1, rooted, 64 * 64, "binomial");
        expect(1, 8, rooted, 8 << 20, "pairwise"); /* copies cost more */
        expect(2, 2, rooted, 4 << 20, "pairwise");
        expect(1, 8, rooted, 64, "oneshot");
    }
}

/* bytes of a part: fewer messages while copying costs less, and where ranks
 * share memory alone. */
static void test_choice_alltoall_small_parts_in_two_hops(void **state)
{
    (void)state;
    for (int locals = 2; locals <= 8; locals *= 2) {
        for (int hosts = 2; hosts <= 8; hosts *= 2) {
            size_t ranks = (size_t)(locals * hosts);
            if (ranks > 2) {
                expect(hosts, locals, WEFT_COLLECTIVE_ALLTOALL, 8 << 10,
                       "two_hop");
            }
            expect(hosts, locals, WEFT_COLLECTIVE_ALLTOALL, ranks << 18,
                   "pairwise");
        }
        expect(1, locals, WEFT_COLLECTIVE_ALLTOALL, 16 << 10, "oneshot");
        expect(1, locals, WEFT_COLLECTIVE_ALLTOALL, 128 << 10, "pairwise");
        expect(locals, 1, WEFT_COLLECTIVE_ALLTOALL, 16 << 10, "pairwise");
    }
}

/* v forms: nobody knows how much the others move, so counts choose nothing. */
static void test_choice_of_v_forms_same_for_any_count(void **state)
{
    (void)state;
    for (size_t bytes = 4; bytes <= 64 << 20; bytes *= 16) {
        expect(1, 4, WEFT_COLLECTIVE_ALLGATHERV, bytes, "direct");
        expect(2, 4, WEFT_COLLECTIVE_ALLGATHERV, bytes, "hierarchical");
        expect(2, 4, WEFT_COLLECTIVE_REDUCESCATTERV, bytes, "hierarchical");
        expect(2, 4, WEFT_COLLECTIVE_ALLTOALLV, bytes, "two_hop");
        expect(1, 4, WEFT_COLLECTIVE_ALLTOALLV, bytes, "pairwise");
        expect(4, 1, WEFT_COLLECTIVE_ALLTOALLV, bytes, "pairwise");
    }
}

/* Which parts go by two hops: those that would if all were as long. */
static void test_choice_of_small_parts_by_cost(void **state)
{
    (void)state;
    static wefti_tuning tuning;
    wefti_grouping *grouping = make_hosts(2, 2);
    const int two_hop = wefti_algorithm_bit(&wefti_pattern_two_hop);
    const wefti_scope scope = {
        .tuning = &tuning, .nranks = 4, .grouping = grouping};
    weft_op op = {.collective = WEFT_COLLECTIVE_ALLTOALLV,
                  .dtype = WEFT_DTYPE_F32};
    wefti_role role = wefti_role_of(op.collective, op.dtype, 0, 0);
    wefti_choice choice = wefti_select(&scope, &op, &role);
    weft_op even = op;
    even.collective = WEFT_COLLECTIVE_ALLTOALL;
    even.count = choice.relay_elems;
    wefti_role even_role = wefti_role_of(even.collective, op.dtype, 0, 0);
    assert_ptr_equal(wefti_select(&scope, &even, &even_role).pattern,
                     &wefti_pattern_two_hop);
    even.count++;
    assert_ptr_equal(wefti_select(&scope, &even, &even_role).pattern,
                     &wefti_pattern_pairwise);

    /* Asked for: all that one message has room for, of two ranks at least. */
    tuning.allowed[op.collective] = (wefti_algorithms)(1U << two_hop);
    choice = wefti_select(&scope, &op, &role);
    assert_ptr_equal(choice.pattern, &wefti_pattern_two_hop);
    assert_int_equal(choice.relay_elems, choice.chunk_elems / 2);
    tuning.allowed[op.collective] = 0;

    /* How much there is of deferred counts, no agent can know; and a part with
     * a gate of its own waits for nobody else's. */
    op.deferred_counts = &even.count;
    choice = wefti_select(&scope, &op, &role);
    assert_ptr_equal(choice.pattern, &wefti_pattern_pairwise);
    assert_int_equal(choice.relay_elems, 0);
    op.deferred_counts = NULL;
    op.gate_elems = WEFT_GATE_PER_RANK;
    assert_ptr_equal(wefti_select(&scope, &op, &role).pattern,
                     &wefti_pattern_pairwise);
    free(grouping);
}

static const char *name_of(const wefti_scope *scope, weft_collective collective,
                           size_t count)
{
    weft_op op = {
        .collective = collective, .dtype = WEFT_DTYPE_F32, .count = count};
    wefti_role role = wefti_role_of(collective, op.dtype, 0, 0);
    wefti_choice choice = wefti_select(scope, &op, &role);
    return wefti_choice_text(&choice);
}

/* Announcements carry payload while the link has room for all of them. */
static void test_choice_small_ones_not_to_fill_the_link(void **state)
{
    static const wefti_tuning tuning;
    const wefti_net_figures gigabit = {31000, 4000, 8200};
    const wefti_known_rates known =
        wefti_known_rates_of(WEFTI_RATES_MEASURED, &gigabit);
    wefti_grouping *grouping = make_hosts(2, 2);
    wefti_scope scope = {.tuning = &tuning, .nranks = 4, .grouping = grouping};
    (void)state;
    assert_string_equal(name_of(&scope, WEFT_COLLECTIVE_ALLREDUCE, 1024),
                        "dissemination");
    assert_string_equal(name_of(&scope, WEFT_COLLECTIVE_ALLTOALL, 256),
                        "oneshot");
    scope.rates = &known.rates;
    assert_string_equal(name_of(&scope, WEFT_COLLECTIVE_ALLREDUCE, 1024),
                        "dissemination");
    assert_string_equal(name_of(&scope, WEFT_COLLECTIVE_ALLTOALL, 16),
                        "oneshot");
    assert_string_equal(name_of(&scope, WEFT_COLLECTIVE_ALLTOALL, 256),
                        "pairwise");
    assert_string_equal(name_of(&scope, WEFT_COLLECTIVE_BROADCAST, 64),
                        "oneshot"); /* of one rank alone */
    free(grouping);
    expect(2, 8, WEFT_COLLECTIVE_ALLREDUCE, 8, "dissemination");
    expect(2, 8, WEFT_COLLECTIVE_ALLREDUCE, 2 << 10, "dissemination");
    expect(1, 8, WEFT_COLLECTIVE_ALLREDUCE, 4 << 10, "oneshot");
}

/* Sums along one tree, two hosts of two ranks: as was measured on an emulated
 * link of 1 Gbit/s, and as the usual rates have it. */
static void test_choice_follows_the_rates(void **state)
{
    static const wefti_tuning tuning = {.sum_flat = true};
    const wefti_net_figures gigabit = {31000, 4000, 8200};
    const wefti_known_rates usual = {.source = WEFTI_RATES_USUAL};
    const wefti_known_rates known =
        wefti_known_rates_of(WEFTI_RATES_MEASURED, &gigabit);
    wefti_grouping *grouping = make_hosts(2, 2);
    wefti_scope scope = {.tuning = &tuning, .nranks = 4, .grouping = grouping};
    weft_op op = {.collective = WEFT_COLLECTIVE_ALLREDUCE,
                  .dtype = WEFT_DTYPE_F32,
                  .count = 32768};
    wefti_role role = wefti_role_of(op.collective, op.dtype, 0, 0);
    (void)state;
    for (int turn = 0; turn < 3; turn++) {
        scope.rates = turn == 1   ? wefti_known_rates_get(&known)
                      : turn == 2 ? wefti_known_rates_get(&usual)
                                  : NULL;
        wefti_choice choice = wefti_select(&scope, &op, &role);
        assert_string_equal(wefti_choice_text(&choice),
                            turn == 1 ? "tree" : "direct");
    }
    op.count = 16384;
    scope.rates = wefti_known_rates_get(&known);
    wefti_choice small = wefti_select(&scope, &op, &role);
    assert_string_equal(wefti_choice_text(&small), "tree");
    free(grouping);
}

/* Four ranks on two cores: what has one hop, as long as it copies little. */
static void test_choice_follows_the_ranks_of_a_core(void **state)
{
    static const wefti_tuning tuning = {0};
    static const struct {
        int ranks_per_core;
        size_t bytes;
        const char *chosen;
    } wanted[] = {{0, 8 << 10, "oneshot"},  {1, 16 << 10, "direct"},
                  {2, 16 << 10, "oneshot"}, {2, 32 << 10, "oneshot"},
                  {2, 128 << 10, "direct"}, {8, 64 << 10, "exchange"},
                  {8, 1024 << 10, "direct"}};
    (void)state;
    for (size_t i = 0; i < WEFTI_COUNT_OF(wanted); i++) {
        const wefti_scope scope = {.tuning = &tuning,
                                   .nranks = 4,
                                   .ranks_per_core = wanted[i].ranks_per_core};
        const weft_op op = {.collective = WEFT_COLLECTIVE_ALLREDUCE,
                            .dtype = WEFT_DTYPE_F32,
                            .count = wanted[i].bytes / sizeof(float)};
        const wefti_role role = wefti_role_of(op.collective, op.dtype, 0, 0);
        const wefti_choice choice = wefti_select(&scope, &op, &role);
        assert_string_equal(wefti_choice_text(&choice), wanted[i].chosen);
    }
}

static void test_figures_have_two_digits(void **state)
{
    static const int64_t rounded[][2] = {{-5, 1},
                                         {0, 1},
                                         {1, 1},
                                         {99, 99},
                                         {100, 100},
                                         {104, 100},
                                         {105, 110},
                                         {996, 1000},
                                         {8249, 8200},
                                         {31499, 31000},
                                         {31500, 32000},
                                         {999999999, 1000000000},
                                         {INT64_MAX, 1000000000}};
    (void)state;
    for (size_t i = 0; i < WEFTI_COUNT_OF(rounded); i++) {
        int64_t given = rounded[i][0], wanted = rounded[i][1];
        const wefti_net_figures figures = {given, given, given};
        const wefti_net_figures found = wefti_net_figures_round(&figures);
        assert_int_equal(found.latency_ns, wanted);
        assert_int_equal(found.message_ns, wanted);
        assert_int_equal(found.byte_ps, wanted);
        assert_true(wefti_net_figures_check(&found));
    }
    const wefti_net_figures wrong[] = {{0, 1, 1},
                                       {1, -1, 1},
                                       {1, 1, 0},
                                       {INT64_C(1) << 40, 1, 1},
                                       {1, 1, INT64_C(1) << 40}};
    for (size_t i = 0; i < WEFTI_COUNT_OF(wrong); i++) {
        assert_false(wefti_net_figures_check(&wrong[i]));
    }
}

/* Costs are told for what has rivals. */
static void test_cost_of_an_algorithm_alone(void **state)
{
    static const wefti_tuning tuning;
    wefti_scope scope = {.tuning = &tuning, .nranks = 4};
    weft_op op = {.collective = WEFT_COLLECTIVE_ALLREDUCE,
                  .dtype = WEFT_DTYPE_F32,
                  .count = 1 << 18};
    (void)state;
    double last_ns = 0;
    for (op.count = 1 << 12; op.count <= 1 << 24; op.count *= 4) {
        double ns = wefti_select_cost_ns(
            &scope, &op, wefti_algorithm_bit(&wefti_pattern_direct));
        assert_true(ns > last_ns);
        last_ns = ns;
    }
    const int oneshot = wefti_algorithm_bit(&wefti_pattern_oneshot);
    assert_true(isnan(wefti_select_cost_ns(&scope, &op, oneshot)));
    op.count = 1 << 10;
    assert_true(wefti_select_cost_ns(&scope, &op, oneshot) > 0);
    op.count = 1 << 12;
    op.gate_elems = 1 << 11; /* what gates cut moves in their chunks */
    assert_true(isnan(wefti_select_cost_ns(&scope, &op, oneshot)));
    assert_true(isnan(wefti_select_cost_ns(
        &scope, &op, wefti_algorithm_bit(&wefti_pattern_pairwise))));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cost_is_what_the_lists_do),
        cmocka_unit_test(test_choice_on_one_host_as_measured),
        cmocka_unit_test(test_choice_between_hosts_fewest_bytes),
        cmocka_unit_test(test_choice_among_many_hosts_few_messages),
        cmocka_unit_test(test_choice_alltoall_small_parts_in_two_hops),
        cmocka_unit_test(test_choice_of_v_forms_same_for_any_count),
        cmocka_unit_test(test_choice_of_small_parts_by_cost),
        cmocka_unit_test(test_choice_small_ones_not_to_fill_the_link),
        cmocka_unit_test(test_choice_follows_the_rates),
        cmocka_unit_test(test_choice_follows_the_ranks_of_a_core),
        cmocka_unit_test(test_figures_have_two_digits),
        cmocka_unit_test(test_cost_of_an_algorithm_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
