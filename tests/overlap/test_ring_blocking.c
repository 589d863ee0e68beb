/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     a ring that blocks hides nothing: before a block is used, what can
 *          come beside it has come; any other ring gives the block at once.
 * Method   rank 1 is late until rank 0 has its first block, its own, and
 *          LATE_MS at least: a blocking ring gives that when rank 1 has posted,
 *          any other before.
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

static void test_ring_that_blocks_hides_nothing(void **state)
{
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(weft_device_open("host", 0, &devices[rank]), WEFT_OK);
    }
    for (weft_ring_way way = WEFT_RING_ONE; way <= WEFT_RING_BOTH; way++) {
        const struct world world = {
            .nranks = 2,
            .config = {.size_bytes = sizeof(world.config), .timeout_ms = 20000},
            .call = run_rank,
            .context = &way,
            .configure = set_device};
        assert_int_equal(world_run_threads(&world), 0);
    }
    for (int rank = 0; rank < 2; rank++) {
        weft_device_close(devices[rank]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ring_that_blocks_hides_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
