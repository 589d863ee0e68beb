/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a put or a signal to a peer that has been killed fails within a second
 * and names it, while one to a peer that has left is only lost; who waits for a
 * signal that never comes is told of with its slot, on all ranks, whichever of
 * them finds the fault.
 *
 * Method: worlds of processes of which one kills itself or leaves; worlds of
 * threads in which one rank waits for a signal while the others wait for it in
 * a barrier, again and again, with time limits so close that either may end
 * first.
 */
#include "tests/comm/spread.h"
#include "tests/comm/world.h"

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 3, VICTIM = 2, BIG_ELEMS = 1 << 16, DESTROYED_PUTS = 20 };

/* Counts what is not as it should be, and says it. */
static int expect_text(const char *text, const char *wanted)
{
    bool found = strstr(text, wanted) != NULL;
    if (!found) {
        fprintf(stderr, "wanted \"%s\" in: %s\n", wanted, text);
    }
    return !found;
}

/* Rank 0 puts, rank 1 signals, as often as a program might. */
static int send_on(weft_comm *comm, void *context)
{
    static float data[BIG_ELEMS];
    (void)context;
    weft_mem *mem;
    int rank = weft_comm_get_rank(comm);
    int failures = weft_mem_create(comm, sizeof(data), &mem) != WEFT_OK;
    if (rank == VICTIM) {
        kill(getpid(), SIGKILL);
    }
    int64_t begin_ns = wefti_clock_ns(), end_ns = begin_ns;
    weft_status status = WEFT_OK;
    while (status == WEFT_OK && end_ns - begin_ns < INT64_C(10000000000)) {
        status = rank == 0 ? weft_mem_put(mem, 0, data, BIG_ELEMS,
                                          WEFT_DTYPE_F32, VICTIM, NULL)
                           : weft_mem_signal(mem, 0, 1, VICTIM, NULL);
        usleep(1000);
        end_ns = wefti_clock_ns();
    }
    weft_fault fault = {.size_bytes = sizeof(fault)};
    failures += status != WEFT_ERR_PEER;
    failures += weft_comm_get_fault(comm, &fault) != WEFT_OK;
    failures += fault.rank != VICTIM;
    failures += expect_text(weft_error_text(), "rank 2 has died");
    failures += expect_text(weft_error_text(), "memory #1 of \"world\"");
    failures += (end_ns - begin_ns) / 1000000 >= 1000;
    weft_mem_destroy(mem);
    return failures;
}

static void test_mem_peer_killed_put_and_signal_name_it(void **state)
{
    (void)state;
    struct world world = {.nranks = RANKS, .call = send_on};
    assert_int_equal(world_run_killed(&world, VICTIM), 0);
}

/* The last rank leaves well and ends; the others send to it until they have
 * seen that, and then once more. */
static int send_to_left(weft_comm *comm, void *context)
{
    (void)context;
    weft_mem *mem;
    int one = 1;
    int failures = weft_mem_create(comm, sizeof(one), &mem) != WEFT_OK;
    if (weft_comm_get_rank(comm) == VICTIM) {
        weft_mem_destroy(mem);
        return failures;
    }
    static char text[4096];
    bool left = false;
    for (int look = 0; look < 5000 && !left; look++) {
        failures += weft_comm_get_health(comm, WEFT_COMM_TEXT, text,
                                         sizeof(text)) != WEFT_OK;
        left = strstr(text, "rank 2: left") != NULL;
        usleep(1000);
    }
    failures += !left;
    for (int i = 0; i < 100; i++) { /* it ends meanwhile */
        weft_status put =
            weft_mem_put(mem, 0, &one, 1, WEFT_DTYPE_I32, VICTIM, NULL);
        weft_status signalled = weft_mem_signal(mem, 0, 1, VICTIM, NULL);
        if (put != WEFT_OK || signalled != WEFT_OK) {
            /* Of another host it is known in the end. */
            failures += !spread_parts(0, VICTIM);
            failures += expect_text(weft_error_text(),
                                    "rank 2 has destroyed its communicator");
        }
        usleep(1000);
    }
    weft_mem_destroy(mem);
    return failures;
}

static void test_mem_peer_left_puts_and_signals_are_lost(void **state)
{
    (void)state;
    struct world world = {.nranks = RANKS, .call = send_to_left};
    assert_int_equal(world_run_processes(&world), 0);
}

/* The last rank destroys its memory and keeps the communicator: more than any
 * queue holds is put there and signalled, and none of it waits. */
static int send_to_destroyed(weft_comm *comm, void *context)
{
    static float data[BIG_ELEMS];
    (void)context;
    weft_mem *mem;
    const int rank = weft_comm_get_rank(comm);
    const bool sends = rank != VICTIM;
    int failures = weft_mem_create(comm, RANKS * sizeof(data), &mem) != WEFT_OK;
    if (!sends) {
        weft_mem_destroy(mem);
    }
    failures += weft_barrier(comm, NULL) != WEFT_OK;
    for (int i = 0; sends && i < DESTROYED_PUTS; i++) {
        failures +=
            weft_mem_put(mem, (size_t)rank * sizeof(data), data, BIG_ELEMS,
                         WEFT_DTYPE_F32, VICTIM, NULL) != WEFT_OK;
        failures += weft_mem_signal(mem, 0, 1, VICTIM, NULL) != WEFT_OK;
    }
    failures += weft_barrier(comm, NULL) != WEFT_OK;
    if (sends) {
        weft_mem_destroy(mem);
    }
    return failures;
}

static void test_mem_destroyed_puts_and_signals_are_lost(void **state)
{
    (void)state;
    struct world world = {.nranks = RANKS, .call = send_to_destroyed};
    assert_int_equal(world_run_processes(&world), 0);
    assert_int_equal(world_run_threads(&world), 0);
}

/* The limits are those of a part of the world, so that the ranks have time to
 * meet. */
typedef struct vain {
    int whom;          /* rank 1 waits for */
    int64_t longer_ms; /* rank 1's own limit, and the others' */
    int64_t timeout_ms;
} vain;

/* Rank 1 waits for rank 0, which waits for it in a barrier, as rank 2 does. */
static int wait_in_part(weft_comm *comm, int whom)
{
    weft_mem *mem;
    int rank = weft_comm_get_rank(comm);
    char wanted[64] = "raise slot 7 of memory #1";
    int failures = weft_mem_create(comm, 64, &mem) != WEFT_OK;
    weft_status status = rank == 1 ? weft_mem_wait(mem, 7, 3, whom, NULL)
                                   : weft_barrier(comm, NULL);
    failures += status != WEFT_ERR_TIMEOUT;
    if (rank == 1) {
        failures += expect_text(weft_error_text(), wanted);
    }
    weft_fault fault = {.size_bytes = sizeof(fault)};
    failures += weft_comm_get_fault(comm, &fault) != WEFT_OK;
    if (!strstr(fault.text, wanted)) { /* who waits in the barrier found it */
        snprintf(wanted, sizeof(wanted),
                 "it waits in signal slot 7 from %s to come to 3",
                 whom == 0 ? "rank 0" : "any rank");
        failures += expect_text(fault.text, wanted);
        failures += fault.rank != (whom == 0 ? 0 : 1);
    }
    weft_mem_destroy(mem);
    return failures;
}

static int wait_in_vain(weft_comm *comm, void *context)
{
    const vain *own = context;
    weft_comm *part;
    bool waits = weft_comm_get_rank(comm) == 1;
    weft_comm_config config = {.size_bytes = sizeof(config),
                               .warn_ms = 100,
                               .timeout_ms =
                                   waits ? own->longer_ms : own->timeout_ms};
    if (weft_comm_split(comm, 0, 0, &config, &part) != WEFT_OK) {
        return 1;
    }
    int failures = wait_in_part(part, own->whom);
    weft_comm_destroy(part);
    return failures;
}

static void test_mem_wait_in_vain_all_are_told_its_slot(void **state)
{
    (void)state;
    for (int round = 0; round < 6; round++) {
        vain own = {round % 2 ? WEFT_MEM_ANY_PEER : 0, 250, 250};
        struct world world = {
            .nranks = RANKS, .call = wait_in_vain, .context = &own};
        assert_int_equal(world_run_threads(&world), 0);
    }
}

/* Rank 1 waits longer than the others' limit: they are who find the fault. */
static void test_mem_wait_keeps_rank_away_others_name_its_slot(void **state)
{
    (void)state;
    vain own = {0, 5000, 300};
    struct world world = {
        .nranks = RANKS, .call = wait_in_vain, .context = &own};
    assert_int_equal(world_run_threads(&world), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mem_peer_killed_put_and_signal_name_it),
        cmocka_unit_test(test_mem_peer_left_puts_and_signals_are_lost),
        cmocka_unit_test(test_mem_destroyed_puts_and_signals_are_lost),
        cmocka_unit_test(test_mem_wait_in_vain_all_are_told_its_slot),
        cmocka_unit_test(test_mem_wait_keeps_rank_away_others_name_its_slot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
