/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: memory that is there already serves as created memory does, beside it
 * too; what cannot be registered is refused by name on all ranks, and nothing
 * is left of it; a peer that dies, or that has gone, ends what is put to it.
 *
 * Method: worlds of threads or processes (argument), and of two hosts
 * (WEFT_DOMAIN), in which one rank's pointer is wrong in each way there is.
 * Passing messages through registered memory is tests/comm/test_mem.c's, and
 * memory of a device tests/comm/test_mem_device.c's.
 */
#include "tests/comm/rank_checks.h"
#include "tests/comm/world.h"

#include "base/clock.h"
#include "comm/core/core.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 3, BYTES = 100003, PAGE = 4096 };

#define KILLED_WITHIN_NS INT64_C(30000000000) /* and its peer knows it */

static const char *mode;

static int run(const struct world *world)
{
    return strcmp(mode, "processes") == 0 ? world_run_processes(world)
                                          : world_run_threads(world);
}

/* Each rank puts its number into everybody's two memories, at its place. */
static int put_beside_created(weft_comm *comm, void *context)
{
    (void)context;
    const int rank = weft_comm_get_rank(comm);
    unsigned char own[RANKS + 2], number = (unsigned char)(rank + 1);
    weft_mem *given, *made;
    memset(own, 0xA5, sizeof(own));
    int failures =
        expect(weft_mem_register(comm, own + 1, RANKS, &given), WEFT_OK, NULL);
    failures += expect(weft_mem_create(comm, RANKS, &made), WEFT_OK, NULL);
    failures += weft_mem_get_base(given) != own + 1;
    failures += weft_mem_get_bytes(given) != RANKS;
    for (int peer = 0; peer < RANKS; peer++) {
        failures +=
            (weft_mem_get_peer_base(given, peer) != NULL) != (peer == rank);
        weft_mem *both[] = {given, made};
        for (int i = 0; i < 2; i++) {
            failures += expect(weft_mem_put(both[i], (size_t)rank, &number, 1,
                                            WEFT_DTYPE_U8, peer, NULL),
                               WEFT_OK, NULL);
            failures += expect(weft_mem_signal(both[i], 0, 1, peer, NULL),
                               WEFT_OK, NULL);
        }
    }
    failures += expect(weft_mem_wait(given, 0, RANKS, WEFT_MEM_ANY_PEER, NULL),
                       WEFT_OK, NULL);
    failures += expect(weft_mem_wait(made, 0, RANKS, WEFT_MEM_ANY_PEER, NULL),
                       WEFT_OK, NULL);
    for (int peer = 0; peer < RANKS; peer++) {
        failures += own[1 + peer] != peer + 1;
        failures +=
            ((unsigned char *)weft_mem_get_base(made))[peer] != peer + 1;
    }
    failures += own[0] != 0xA5 || own[RANKS + 1] != 0xA5;
    failures +=
        expect(weft_mem_put(given, RANKS, &number, 1, WEFT_DTYPE_U8, 0, NULL),
               WEFT_ERR_INVALID, "dst_offset 3 and 1 u8");
    failures += expect(weft_barrier(comm, NULL), WEFT_OK, NULL);
    weft_mem_destroy(given);
    /* It is the program's again, and can be registered anew. */
    failures +=
        expect(weft_mem_register(comm, own, RANKS, &given), WEFT_OK, NULL);
    failures += expect(weft_barrier(comm, NULL), WEFT_OK, NULL);
    weft_mem_destroy(given);
    weft_mem_destroy(made);
    return failures;
}

static void test_register_beside_created_memory_both_serve(void **state)
{
    (void)state;
    struct world world = {.nranks = RANKS, .call = put_beside_created};
    assert_int_equal(run(&world), 0);
    setenv("WEFT_DOMAIN", "a,a,b", 1);
    assert_int_equal(run(&world), 0);
    unsetenv("WEFT_DOMAIN");
}

/* Registers, all but rank 1 a good pointer; it hears what is wrong with its
 * own, the others whose it is. */
static int refuse(weft_comm *comm, void *pointer, size_t bytes,
                  weft_status status, const char *text)
{
    static _Thread_local unsigned char good[BYTES];
    weft_mem *mem = (void *)good;
    const bool wrong = weft_comm_get_rank(comm) == 1;
    int failures =
        expect(weft_mem_register(comm, wrong ? pointer : good, bytes, &mem),
               status, wrong ? text : "rank 1 could not begin");
    return failures + (mem != NULL);
}

static int wrong_pointers(weft_comm *comm, void *context)
{
    (void)context;
    const int rank = weft_comm_get_rank(comm);
    weft_mem *created, *registered, *none;
    static _Thread_local unsigned char own[BYTES];
    unsigned char *pages = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int failures = pages == MAP_FAILED;
    failures += mprotect(pages + 2 * PAGE, PAGE, PROT_READ) != 0;
    failures += munmap(pages + 3 * PAGE, PAGE) != 0;
    failures += expect(weft_mem_create(comm, BYTES, &created), WEFT_OK, NULL);
    failures +=
        expect(weft_mem_register(comm, own, BYTES, &registered), WEFT_OK, NULL);
    failures += refuse(comm, NULL, 8, WEFT_ERR_INVALID, "and bytes 8: allowed");
    failures += refuse(comm, pages, 2 * PAGE + 1, WEFT_ERR_INVALID,
                       "byte 8192 of 8193 is not memory that this process may");
    failures += refuse(comm, pages + 3 * PAGE, 1, WEFT_ERR_INVALID,
                       "byte 0 of 1 is not memory");
    failures += expect(weft_mem_register(comm, pages, SIZE_MAX - 1, &none),
                       WEFT_ERR_INVALID, "allowed is memory of this process");
    failures += refuse(comm, (char *)weft_mem_get_base(created) + 100, 8,
                       WEFT_ERR_INVALID, "overlap memory #1 of \"world\"");
    failures += refuse(comm, own + BYTES - 1, 1, WEFT_ERR_INVALID,
                       "overlap memory #2 of \"world\"");
    failures += expect(weft_mem_register(comm, pages, rank == 2 ? 9 : 8, &none),
                       WEFT_ERR_INVALID, "rank 0 has 8, rank 2 9");
    failures += expect(weft_mem_register(NULL, pages, 8, &none),
                       WEFT_ERR_INVALID, "comm is NULL");
    failures += expect(weft_mem_register(comm, pages, 8, NULL),
                       WEFT_ERR_INVALID, "mem_out is NULL");
    /* None of these has spoilt anything. */
    failures += expect(weft_mem_register(comm, rank ? pages : NULL, 0, &none),
                       WEFT_OK, NULL);
    failures += expect(weft_mem_signal(none, 1, 1, (rank + 1) % RANKS, NULL),
                       WEFT_OK, NULL);
    failures += expect(weft_mem_wait(none, 1, 1, WEFT_MEM_ANY_PEER, NULL),
                       WEFT_OK, NULL);
    failures += expect(weft_barrier(comm, NULL), WEFT_OK, NULL);
    weft_mem_destroy(none);
    weft_mem_destroy(registered);
    weft_mem_destroy(created);
    munmap(pages, 3 * PAGE);
    return failures;
}

static void test_register_wrong_pointer_refused_on_all_ranks(void **state)
{
    (void)state;
    struct world world = {.nranks = RANKS, .call = wrong_pointers};
    assert_int_equal(run(&world), 0);
}

/* Rank 1 registers while rank 0 creates: both calls are named. */
static int other_calls(weft_comm *comm, void *context)
{
    (void)context;
    char own[8];
    weft_mem *mem;
    const weft_status status = weft_comm_get_rank(comm)
                                   ? weft_mem_register(comm, own, 8, &mem)
                                   : weft_mem_create(comm, 8, &mem);
    return expect(status, WEFT_ERR_MISMATCH, "weft_mem_register") +
           expect(status, WEFT_ERR_MISMATCH, "weft_mem_create");
}

static void test_register_against_create_differs_by_name(void **state)
{
    (void)state;
    struct world world = {.nranks = 2, .call = other_calls};
    assert_int_equal(world_run_threads(&world), 0);
}

/* Rank 1 is killed; what rank 0 puts to it is taken by nobody. It takes what
 * comes until then, however many puts that are on a busy machine. */
static int put_to_the_dead(weft_comm *comm, void *context)
{
    (void)context;
    static unsigned char own[BYTES];
    weft_mem *mem;
    int failures =
        expect(weft_mem_register(comm, own, BYTES, &mem), WEFT_OK, NULL);
    if (weft_comm_get_rank(comm) == 1) {
        kill(getpid(), SIGKILL);
    }
    const int64_t until_ns = wefti_clock_ns() + KILLED_WITHIN_NS;
    weft_status status = WEFT_OK;
    while (status == WEFT_OK && wefti_clock_ns() < until_ns) {
        status = weft_mem_put(mem, 0, own + 1, 1, WEFT_DTYPE_U8, 1, NULL);
    }
    failures += expect(status, WEFT_ERR_PEER, "rank 1 has died");
    weft_mem_destroy(mem);
    return failures;
}

static void test_register_put_to_a_killed_rank_names_it(void **state)
{
    (void)state;
    struct world world = {.nranks = 2, .call = put_to_the_dead};
    assert_int_equal(world_run_killed(&world, 1), 0);
}

int main(int argc, char **argv)
{
    mode = argc > 1 ? argv[1] : "threads";
    /* Processes first: a process with threads must not fork. */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_register_put_to_a_killed_rank_names_it),
        cmocka_unit_test(test_register_beside_created_memory_both_serve),
        cmocka_unit_test(test_register_wrong_pointer_refused_on_all_ranks),
        cmocka_unit_test(test_register_against_create_differs_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
