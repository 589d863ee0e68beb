/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a communicator is refused by name in a process that was forked from
 * its own, and after it has been destroyed; neither does any harm to it, or to
 * its peers.
 *
 * Method: every public call that takes a communicator, once in a child, once
 * on freed memory (not under sanitizers, for which that read is the finding),
 * while the parent's world goes on.
 */
#include "tests/comm/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NRANKS = 2, MEM_BYTES = 4096 };

/* How many of the calls do not refuse comm with this text. */
static int call_all(weft_comm *comm, weft_plan *plan, weft_mem *mem,
                    const char *text)
{
    enum { CALLS_MOST = 32 };
    static char room[65536];
    const int ranks[] = {0};
    float data[4] = {1, 2, 3, 4};
    weft_p2p part = {.size_bytes = sizeof(part),
                     .kind = WEFT_P2P_SEND,
                     .buffer = data,
                     .count = 1,
                     .dtype = WEFT_DTYPE_F32,
                     .peer = 0};
    weft_fault fault = {.size_bytes = sizeof(fault)};
    weft_comm_bytes bytes = {.size_bytes = sizeof(bytes)};
    const weft_op op = {.size_bytes = sizeof(op),
                        .collective = WEFT_COLLECTIVE_BARRIER,
                        .dtype = WEFT_DTYPE_U8};
    weft_comm *made = NULL;
    weft_plan *other_plan = NULL;
    weft_mem *other_mem = NULL;
    int wrong = 0, calls = 0;
    bool refused[CALLS_MOST];
#define REFUSED(call)                                                          \
    refused[calls++] =                                                         \
        (call) == WEFT_ERR_INVALID && strstr(weft_error_text(), text)
    REFUSED(weft_barrier(comm, NULL));
    REFUSED(weft_op_post(&op, 0, comm, NULL));
    REFUSED(weft_allreduce(data, data, 4, WEFT_DTYPE_F32, WEFT_REDOP_SUM, comm,
                           NULL));
    REFUSED(weft_send(data, 4, WEFT_DTYPE_F32, 0, comm, NULL));
    REFUSED(weft_p2p_post(&part, 1, comm, NULL));
    REFUSED(weft_op_plan(&op, comm, &other_plan));
    REFUSED(weft_p2p_plan(&part, 1, comm, &other_plan));
    REFUSED(weft_comm_split(comm, 0, 0, NULL, &made));
    REFUSED(weft_comm_shrink(comm, &made));
    REFUSED(weft_comm_create_from(comm, ranks, 1, NULL, &made));
    REFUSED(weft_comm_abort(comm));
    REFUSED(weft_comm_get_fault(comm, &fault));
    REFUSED(weft_comm_get_bytes(comm, &bytes));
    REFUSED(weft_comm_dump(comm, room, sizeof(room)));
    REFUSED(weft_comm_get_health(comm, WEFT_COMM_TEXT, room, sizeof(room)));
    REFUSED(weft_mem_create(comm, MEM_BYTES, &other_mem));
    if (plan) {
        REFUSED(weft_plan_post(plan, 0, NULL));
    }
    if (mem) {
        REFUSED(weft_mem_put(mem, 0, data, 1, WEFT_DTYPE_F32, 1, NULL));
        REFUSED(weft_mem_signal(mem, 0, 1, 1, NULL));
        REFUSED(weft_mem_wait(mem, 0, 1, 1, NULL));
        weft_mem_destroy(mem);
    }
#undef REFUSED
    for (int i = 0; i < calls; i++) {
        if (!refused[i]) {
            fprintf(stderr, "call %d: not \"%s\": %s\n", i, text,
                    weft_error_text());
            wrong++;
        }
    }
    wrong += made || other_plan || other_mem;
    wrong += weft_comm_get_rank(comm) != -1 || weft_comm_get_nranks(comm) != -1;
    weft_comm_destroy(comm);
    return wrong;
}

static int post_in_child(weft_comm *comm, void *context)
{
    const weft_op barrier = {.size_bytes = sizeof(barrier),
                             .collective = WEFT_COLLECTIVE_BARRIER,
                             .dtype = WEFT_DTYPE_U8};
    weft_plan *plan = NULL;
    weft_mem *mem = NULL;
    int status = 0, failures = 0;
    (void)context;
    failures += weft_op_plan(&barrier, comm, &plan) != WEFT_OK;
    failures += weft_mem_create(comm, MEM_BYTES, &mem) != WEFT_OK;
    if (weft_comm_get_rank(comm) == 1) {
        pid_t pid = fork();
        if (pid == 0) {
            _exit(call_all(comm, plan, mem, "was forked from"));
        }
        failures += pid < 0 || waitpid(pid, &status, 0) != pid || status != 0;
    }
    /* The other ranks have noticed nothing. */
    failures += weft_plan_post(plan, 0, NULL) != WEFT_OK;
    failures += weft_barrier(comm, NULL) != WEFT_OK;
    weft_plan_destroy(plan);
    weft_mem_destroy(mem);
    return failures;
}

static void test_forked_child_is_refused_parent_goes_on(void **state)
{
    (void)state;
    const struct world world = {.nranks = NRANKS, .call = post_in_child};
    assert_int_equal(world_run_processes(&world), 0);
}

/* What a child does with a world of its own is its own affair. */
static int create_in_child(weft_comm *comm, void *context)
{
    int status = 0, failures = weft_barrier(comm, NULL) != WEFT_OK;
    (void)context;
    pid_t pid = fork();
    if (pid == 0) {
        weft_unique_id id;
        weft_comm_config config = {
            .size_bytes = sizeof(config), .id = &id, .nranks = 1};
        weft_comm *own = NULL;
        int wrong = weft_unique_id_create(&id) != WEFT_OK ||
                    weft_comm_create(&config, &own) != WEFT_OK ||
                    weft_barrier(own, NULL) != WEFT_OK;
        weft_comm_destroy(own);
        _exit(wrong);
    }
    failures += pid < 0 || waitpid(pid, &status, 0) != pid || status != 0;
    return failures + (weft_barrier(comm, NULL) != WEFT_OK);
}

static void test_forked_child_makes_its_own(void **state)
{
    (void)state;
    const struct world world = {.nranks = NRANKS, .call = create_in_child};
    assert_int_equal(world_run_processes(&world), 0);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
static void test_destroyed_comm_is_refused(void **state)
{
    (void)state;
    weft_comm *comm = NULL;
    const weft_op barrier = {.size_bytes = sizeof(barrier),
                             .collective = WEFT_COLLECTIVE_BARRIER,
                             .dtype = WEFT_DTYPE_U8};
    weft_plan *plan = NULL;
    assert_int_equal(weft_comm_create(NULL, &comm), WEFT_OK);
    assert_int_equal(weft_op_plan(&barrier, comm, &plan), WEFT_OK);
    weft_comm_destroy(comm);
    assert_int_equal(call_all(comm, plan, NULL, "or has been destroyed"), 0);
    weft_plan_destroy(plan);
}
#endif

static void test_null_comm_is_refused(void **state)
{
    (void)state;
    assert_int_equal(call_all(NULL, NULL, NULL, "NULL: allowed is a comm"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* Processes first: the parent may not have threads yet. */
        cmocka_unit_test(test_forked_child_is_refused_parent_goes_on),
        cmocka_unit_test(test_forked_child_makes_its_own),
        cmocka_unit_test(test_null_comm_is_refused),
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
        cmocka_unit_test(test_destroyed_comm_is_refused),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
