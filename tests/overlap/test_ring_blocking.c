/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     a ring that blocks hides nothing: before a block is used, what can
 *          come beside it has come; any other ring gives the block at once. A
 *          sum that is passed on leaves then, not with the next block.
 * Method   rank 1 is late until rank 0 has its first block, its own, and
 *          LATE_MS at least: a blocking ring gives that when rank 1 has posted,
 *          any other before. Of sums, rank 0 passes one on, and asks for the
 *          next only when rank 1 has its own at home; or rank 1 is late with
 *          its part, and a ring that blocks returns when it has passed it on.
 */
#include "overlap/ring.h"
#include "tests/comm/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include <cmocka.h>

enum { ELEMS = 5000, TURNS = 4, LATE_MS = 100, LATE_MOST_MS = 15000 };

static weft_device *devices[2];
static atomic_bool uses_own, has_posted;

/* Counts what is not right, and says what. */
static int check(bool right, const char *what)
{
    if (!right) {
        fprintf(stderr, "%s (%s)\n", what, weft_error_text());
    }
    return !right;
}
#define CHECK(condition) check(condition, #condition)

static void be_late(bool blocking)
{
    for (int ms = 0; ms < LATE_MOST_MS &&
                     (ms < LATE_MS || (!blocking && !atomic_load(&uses_own)));
         ms++) {
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    atomic_store(&has_posted, true);
}

static int run_turn(weft_ring *ring, weft_comm *comm, bool blocking)
{
    static int32_t own[2][ELEMS];
    const int rank = weft_comm_get_rank(comm);
    void *block;
    int owner, wrong = CHECK(weft_barrier(comm, NULL) == WEFT_OK);
    wefti_ring_set_blocking(ring, blocking);
    if (rank == 1) {
        be_late(blocking);
    }
    wrong += CHECK(weft_ring_post(ring, own[rank], NULL) == WEFT_OK);
    do {
        wrong += CHECK(weft_ring_next(ring, NULL, &block, &owner) == WEFT_OK);
        if (rank == 0 && owner == 0) {
            wrong += CHECK(atomic_load(&has_posted) == blocking);
            atomic_store(&uses_own, true);
        }
    } while (wrong == 0 && block);
    wrong += CHECK(weft_barrier(comm, NULL) == WEFT_OK);
    if (rank == 0) {
        atomic_store(&has_posted, false);
        atomic_store(&uses_own, false);
    }
    return wrong;
}

static void wait_for(const atomic_bool *what)
{
    for (int ms = 0; ms < LATE_MOST_MS && !atomic_load(what); ms++) {
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
}

/* Each adds its part to the other's sum and passes it on, twice. */
static int carry(weft_ring *ring, weft_comm *comm, bool blocking)
{
    static int32_t own[2][ELEMS];
    static atomic_bool is_home, passes;
    const int rank = weft_comm_get_rank(comm);
    void *block;
    int owner, wrong = CHECK(weft_barrier(comm, NULL) == WEFT_OK);
    wefti_ring_set_blocking(ring, blocking);
    wrong += CHECK(weft_ring_post(ring, own[rank], NULL) == WEFT_OK) +
             CHECK(wefti_ring_pass_on(ring, NULL) == WEFT_OK) +
             CHECK(weft_ring_next(ring, NULL, &block, &owner) == WEFT_OK) +
             CHECK(owner == 1 - rank);
    for (size_t i = 0; i < ELEMS; i++) {
        ((int32_t *)block)[i] = rank + 1;
    }
    if (rank == 1 && blocking) {
        nanosleep(&(struct timespec){0, LATE_MS * 1000000}, NULL);
        atomic_store(&passes, true);
    }
    wrong += CHECK(wefti_ring_pass_on(ring, NULL) == WEFT_OK) +
             CHECK(wefti_ring_pass_on(ring, NULL) == WEFT_OK);
    if (rank == 0 && blocking) {
        wrong += CHECK(atomic_load(&passes) && own[0][ELEMS - 1] == 2);
    } else if (rank == 0) {
        wait_for(&is_home);
        wrong += CHECK(atomic_load(&is_home));
    }
    wrong += CHECK(weft_ring_next(ring, NULL, &block, &owner) == WEFT_OK) +
             CHECK(!block);
    atomic_store(&is_home, rank == 1);
    wrong +=
        CHECK(own[rank][0] == 2 - rank && own[rank][ELEMS - 1] == 2 - rank) +
        CHECK(weft_barrier(comm, NULL) == WEFT_OK);
    atomic_store(&is_home, false);
    atomic_store(&passes, false);
    own[rank][0] = own[rank][ELEMS - 1] = 0;
    return wrong;
}

static int run_sums(weft_comm *comm, void *context)
{
    const weft_ring_config config = {.size_bytes = sizeof(config),
                                     .comm = comm,
                                     .device =
                                         devices[weft_comm_get_rank(comm)],
                                     .kind = WEFT_RING_CARRY,
                                     .count = ELEMS,
                                     .dtype = WEFT_DTYPE_I32};
    weft_ring *ring = NULL;
    (void)context;
    int wrong = CHECK(weft_ring_create(&config, &ring) == WEFT_OK);
    for (int turn = 0; turn < TURNS && wrong == 0; turn++) {
        wrong += carry(ring, comm, turn % 2 == 0);
    }
    weft_ring_destroy(ring);
    return wrong;
}

static int run_rank(weft_comm *comm, void *context)
{
    const weft_ring_config config = {.size_bytes = sizeof(config),
                                     .comm = comm,
                                     .device =
                                         devices[weft_comm_get_rank(comm)],
                                     .way = *(weft_ring_way *)context,
                                     .count = ELEMS,
                                     .dtype = WEFT_DTYPE_I32};
    weft_ring *ring = NULL;
    int wrong = CHECK(weft_ring_create(&config, &ring) == WEFT_OK);
    for (int turn = 0; turn < TURNS && wrong == 0; turn++) {
        wrong += run_turn(ring, comm, turn % 2 == 0);
    }
    weft_ring_destroy(ring);
    return wrong;
}

static void set_device(int rank, weft_comm_config *config, void *context)
{
    (void)context;
    config->device = devices[rank];
}

static void run_both(world_rank_call call, weft_ring_way way)
{
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(weft_device_open("host", 0, &devices[rank]), WEFT_OK);
    }
    const struct world world = {
        .nranks = 2,
        .config = {.size_bytes = sizeof(world.config), .timeout_ms = 20000},
        .call = call,
        .context = &way,
        .configure = set_device};
    assert_int_equal(world_run_threads(&world), 0);
    for (int rank = 0; rank < 2; rank++) {
        weft_device_close(devices[rank]);
    }
}

static void test_ring_that_blocks_hides_nothing(void **state)
{
    (void)state;
    run_both(run_rank, WEFT_RING_ONE);
    run_both(run_rank, WEFT_RING_BOTH);
}

static void test_sum_passed_on_leaves_at_once(void **state)
{
    (void)state;
    run_both(run_sums, WEFT_RING_ONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ring_that_blocks_hides_nothing),
        cmocka_unit_test(test_sum_passed_on_leaves_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
