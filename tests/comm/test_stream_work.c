/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the work that streams are given (comm/pattern/stream_work.h) ends on
 * all ranks in any order in which they run, moves what the collective says, and
 * nothing is staged in an area that somebody still reads, or read before it is
 * there.
 *
 * Method: all ranks of small worlds run several operations one after another,
 * by chance one piece of work of one rank at a time; where none can go on the
 * test fails. Elements are numbers that say where they come from, sums are of
 * distinct powers: bit r of rank r. Marks must rise; flags, of work that is
 * carried out again and again as graphs are launched, must be down when they
 * are raised, and what is read from an area be of the same launch.
 */
#include "comm/pattern/stream_work.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

enum { RANKS = 5, AREA_MOST = 6144, COUNT = 15000, OPS = 3, WORK = 200000 };
enum { AREAS = WEFTI_STREAM_AREAS };

static size_t area_elems;
static bool flagged;

/* One rank. seen: turns whose marks each has stored for it. */
typedef struct place {
    wefti_work *work;
    uint64_t *turns; /* of each */
    size_t count, next;
    uint32_t send[RANKS * COUNT], recv[RANKS * COUNT];
    uint32_t areas[AREAS][AREA_MOST];
    uint64_t staged[AREAS][AREA_MOST];         /* in which turn */
    uint64_t marks[AREAS][WEFTI_MARKS][RANKS]; /* or flags */
} place;

static place *places;

/* What is being listed. */
typedef struct listing {
    place *own;
    uint64_t turn;
} listing;

static weft_status keep(void *context, const wefti_work *work)
{
    const listing *own = context;
    assert_true(own->own->count < WORK);
    own->own->turns[own->own->count] = own->turn;
    own->own->work[own->own->count++] = *work;
    return WEFT_OK;
}

/* In graphs the area is what it was at the capture. */
static size_t area_of(uint64_t turn)
{
    return turn % AREAS;
}

static bool is_reached(const place *own, const wefti_work *work, uint64_t turn)
{
    const size_t area = area_of(turn);
    if (flagged) {
        return own->marks[area][work->mark][work->peer] != 0;
    }
    if (work->mark == WEFTI_MARK_READ) {
        return turn <= AREAS ||
               own->marks[area][work->mark][work->peer] >= turn - AREAS;
    }
    return own->marks[area][work->mark][work->peer] >= turn;
}

/* What is read from an area must have been staged in the same turn. */
static uint32_t *find(int rank, wefti_work_place where, int peer, uint64_t turn,
                      size_t elem, size_t elems, bool writes)
{
    const size_t area = area_of(turn);
    if (where == WEFTI_WORK_AREA) {
        assert_true(elem + elems <= area_elems);
        for (size_t i = elem; i < elem + elems; i++) {
            assert_true(writes || places[peer].staged[area][i] == turn);
            places[peer].staged[area][i] = turn;
        }
        return places[peer].areas[area] + elem;
    }
    assert_true(elem + elems <= RANKS * COUNT);
    return (where == WEFTI_WORK_SEND ? places[rank].send : places[rank].recv) +
           elem;
}

/* One piece of work of a rank; false: it has to wait. */
static bool run_one(int nranks, int rank)
{
    place *own = &places[rank];
    const wefti_work *work = &own->work[own->next];
    const uint64_t turn = own->turns[own->next];
    switch (work->kind) {
    case WEFTI_WORK_AWAIT:
        if (!is_reached(own, work, turn)) {
            return false;
        }
        if (flagged) {
            own->marks[area_of(turn)][work->mark][work->peer] = 0;
        }
        break;
    case WEFTI_WORK_SIGNAL:
        for (int peer = 0; peer < nranks; peer++) {
            uint64_t *mark =
                &places[peer].marks[area_of(turn)][work->mark][rank];
            if (!flagged || peer != rank) {
                assert_true(flagged ? *mark == 0 : *mark < turn);
                *mark = turn;
            }
        }
        break;
    case WEFTI_WORK_COPY:
        memcpy(find(rank, work->dst, rank, turn, work->dst_elem, work->elems,
                    true),
               find(rank, work->src, work->peer, turn, work->src_elem,
                    work->elems, false),
               work->elems * sizeof(uint32_t));
        break;
    default:
        for (size_t i = 0; i < work->elems; i++) {
            uint32_t sum = 0;
            for (int peer = 0; peer < nranks; peer++) {
                sum += peer == rank ? *find(rank, work->src, rank, turn,
                                            work->src_elem + i, 1, false)
                                    : *find(rank, WEFTI_WORK_AREA, peer, turn,
                                            work->peer_elem + i, 1, false);
            }
            *find(rank, work->dst, rank, turn, work->dst_elem + i, 1, true) =
                sum;
        }
        break;
    }
    own->next++;
    return true;
}

/* What rank sends: of a sum its bit, else where it stands. */
static uint32_t value_of(weft_collective collective, int rank, size_t elem)
{
    const bool sums = collective == WEFT_COLLECTIVE_ALLREDUCE ||
                      collective == WEFT_COLLECTIVE_REDUCE ||
                      collective == WEFT_COLLECTIVE_REDUCESCATTER;
    return sums ? 1u << rank : (uint32_t)((size_t)rank * 1000000 + elem);
}

static void check(const wefti_problem *problem, int rank)
{
    const int nranks = problem->nranks;
    const size_t count = problem->count;
    const weft_collective what = problem->collective;
    const uint32_t *recv = places[rank].recv;
    const bool parts = what == WEFT_COLLECTIVE_ALLGATHER ||
                       what == WEFT_COLLECTIVE_GATHER ||
                       what == WEFT_COLLECTIVE_ALLTOALL;
    const bool root_only =
        what == WEFT_COLLECTIVE_GATHER || what == WEFT_COLLECTIVE_REDUCE;
    if (root_only && rank != problem->root) {
        assert_true(flagged || recv[0] == UINT32_MAX);
        return;
    }
    for (size_t i = 0; i < (parts ? (size_t)nranks : 1) * count; i++) {
        const int from = (int)(i / count);
        const size_t own = (size_t)rank * count;
        const uint32_t wanted = what == WEFT_COLLECTIVE_BROADCAST
                                    ? value_of(what, problem->root, i)
                                : what == WEFT_COLLECTIVE_SCATTER
                                    ? value_of(what, problem->root, own + i)
                                : what == WEFT_COLLECTIVE_ALLTOALL
                                    ? value_of(what, from, own + i % count)
                                : parts ? value_of(what, from, i % count)
                                        : (1u << nranks) - 1;
        assert_int_equal(recv[i], wanted);
    }
}

/* turn: of the first; returns that behind the last. */
static uint64_t list_all(const wefti_problem *problem, int rank, uint64_t turn)
{
    const size_t turns = wefti_work_turns(problem, area_elems);
    for (size_t i = 0; i < turns; i++) {
        listing own = {&places[rank], turn++};
        assert_int_equal(
            wefti_work_list(problem, area_elems, i, flagged, keep, &own),
            WEFT_OK);
    }
    return turn;
}

/* One launch of a graph of ops, which are the captured-th and so on; as above.
 */
static uint64_t list_launch(const wefti_problem *problem, int ops,
                            uint64_t captured, int rank, uint64_t turn)
{
    const size_t turns = (size_t)ops * wefti_work_turns(problem, area_elems);
    for (size_t i = 0; i < turns; i++, turn += AREAS) {
        const uint64_t area = (captured + i) % WEFTI_GRAPH_AREAS;
        listing own = {&places[rank], turn + area};
        assert_int_equal(wefti_work_list(problem, area_elems,
                                         i % (turns / (size_t)ops), true, keep,
                                         &own),
                         WEFT_OK);
    }
    return turn;
}

/* Graphs of this collective and of another, in an order by chance that is the
 * same on all ranks. */
static void list_launches(wefti_problem problem, unsigned seed)
{
    wefti_problem other = problem;
    const uint64_t captured = 1 + wefti_work_turns(&problem, area_elems);
    uint64_t turn = AREAS;
    do {
        other.collective =
            (weft_collective)((other.collective + 1) % WEFT_COLLECTIVE_COUNT);
    } while (!wefti_work_has(other.collective));
    other.count = 3;
    for (int launch = 0; launch < 6; launch++) {
        turn = rand_r(&seed) % 2
                   ? list_launch(&other, 1, captured, problem.rank, turn)
                   : list_launch(&problem, OPS, 1, problem.rank, turn);
    }
    list_launch(&problem, OPS, 1, problem.rank, turn);
}

static void run(wefti_problem problem, unsigned *seed)
{
    const int nranks = problem.nranks;
    const unsigned order = (unsigned)rand_r(seed);
    for (int rank = 0; rank < nranks; rank++) {
        place *own = &places[rank];
        own->count = own->next = 0;
        memset(own->marks, 0, sizeof(own->marks));
        for (int area = 0; flagged && area < AREAS; area++) {
            memset(own->marks[area][WEFTI_MARK_READ], 1,
                   sizeof(own->marks[area][WEFTI_MARK_READ]));
        }
        memset(own->staged, 0, sizeof(own->staged));
        memset(own->recv, 0xff, sizeof(own->recv));
        for (size_t i = 0; i < RANKS * COUNT; i++) {
            own->send[i] = value_of(problem.collective, rank, i);
        }
        uint64_t turn = 1;
        problem.rank = rank;
        for (int op = 0; op < OPS && !flagged; op++) {
            turn = list_all(&problem, rank, turn);
        }
        if (flagged) {
            list_launches(problem, order);
        }
    }
    bool left = true;
    while (left) {
        bool moved = left = false;
        const int first = rand_r(seed) % nranks;
        for (int i = 0; i < nranks; i++) {
            const int rank = (first + i) % nranks;
            size_t most = (size_t)rand_r(seed) % 40;
            left |= places[rank].next < places[rank].count;
            while (most-- > 0 && places[rank].next < places[rank].count &&
                   run_one(nranks, rank)) {
                moved = true;
            }
        }
        for (int rank = 0; left && !moved && rank < nranks; rank++) {
            moved =
                places[rank].next < places[rank].count && run_one(nranks, rank);
        }
        assert_true(moved || !left); /* else all wait for each other */
    }
    for (int rank = 0; rank < nranks; rank++) {
        check(&problem, rank);
        for (int peer = 0; flagged && peer < nranks; peer++) {
            for (int area = 0; area < WEFTI_GRAPH_AREAS && peer != rank;
                 area++) {
                const uint64_t(*marks)[RANKS] = places[rank].marks[area];
                assert_true(marks[WEFTI_MARK_READ][peer]);
                assert_false(marks[WEFTI_MARK_FILLED][peer]);
                assert_false(marks[WEFTI_MARK_SUMMED][peer]);
            }
        }
    }
}

static void run_all(void)
{
    static const size_t counts[] = {1, 5, 19, 96, 97, 1000, 4096, COUNT};
    unsigned seed = 1;
    for (int c = 0; c < WEFT_COLLECTIVE_COUNT; c++) {
        for (int nranks = 2; nranks <= RANKS && wefti_work_has(c); nranks++) {
            for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
                /* Small ones for many turns, large ones for sums of two hops.
                 */
                area_elems = i % 2 || nranks == 2 ? AREA_MOST : 96;
                run((wefti_problem){.collective = (weft_collective)c,
                                    .nranks = nranks,
                                    .root = (int)i % nranks,
                                    .count = counts[i]},
                    &seed);
            }
        }
    }
}

static void test_stream_work_any_order_ends_exact(void **state)
{
    (void)state;
    flagged = false;
    run_all();
}

static void test_stream_work_launched_again_ends_exact(void **state)
{
    (void)state;
    flagged = true;
    run_all();
    flagged = false;
}

/* Large worlds and areas: every rank takes as many turns, of whole areas. */
static weft_status measure(void *context, const wefti_work *work)
{
    size_t *most = context;
    const size_t from = work->src == WEFTI_WORK_AREA   ? work->src_elem
                        : work->dst == WEFTI_WORK_AREA ? work->dst_elem
                                                       : work->peer_elem;
    if (work->kind >= WEFTI_WORK_COPY && from + work->elems > *most) {
        *most = from + work->elems;
    }
    return WEFT_OK;
}

static void test_stream_work_areas_are_kept(void **state)
{
    (void)state;
    enum { ELEMS = 1 << 20 };
    for (int c = 0; c < WEFT_COLLECTIVE_COUNT; c++) {
        for (int rank = 0; rank < 64 && wefti_work_has(c); rank += 21) {
            const wefti_problem problem = {.collective = (weft_collective)c,
                                           .rank = rank,
                                           .nranks = 64,
                                           .root = 21,
                                           .count = 3 * ELEMS + 7};
            const size_t turns = wefti_work_turns(&problem, ELEMS);
            size_t most = 0;
            for (size_t turn = 0; turn < turns; turn++) {
                assert_int_equal(wefti_work_list(&problem, ELEMS, turn, false,
                                                 measure, &most),
                                 WEFT_OK);
            }
            assert_true(most <= ELEMS);
            assert_true(turns >= 4);
        }
    }
}

static weft_status refuse(void *context, const wefti_work *work)
{
    (void)work;
    return --*(int *)context ? WEFT_OK : WEFT_ERR_SYSTEM;
}

static void test_stream_work_refused_ends(void **state)
{
    (void)state;
    const wefti_problem problem = {
        .collective = WEFT_COLLECTIVE_ALLREDUCE, .nranks = 3, .count = 50};
    int left = 4;
    assert_int_equal(wefti_work_list(&problem, 96, 0, false, refuse, &left),
                     WEFT_ERR_SYSTEM);
    assert_int_equal(left, 0);
}

int main(void)
{
    places = calloc(RANKS, sizeof(*places));
    for (int rank = 0; rank < RANKS; rank++) {
        places[rank].work = calloc(WORK, sizeof(wefti_work));
        places[rank].turns = calloc(WORK, sizeof(uint64_t));
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stream_work_any_order_ends_exact),
        cmocka_unit_test(test_stream_work_launched_again_ends_exact),
        cmocka_unit_test(test_stream_work_areas_are_kept),
        cmocka_unit_test(test_stream_work_refused_ends),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (int rank = 0; rank < RANKS; rank++) {
        free(places[rank].work);
        free(places[rank].turns);
    }
    free(places);
    return failed;
}
