/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: large messages that are read from their sender's buffer give the same
 * as staged ones: all collectives and messages, all types, in place too, among
 * threads and among processes, whatever happens to a buffer as soon as its
 * operation is over. Where a rank may not read, all stage and say why; where it
 * may no longer, or there is nothing to read, a fault names it. Nobody ever
 * believes the memory of another process than the one that was meant.
 *
 * Method: buffers are poisoned when an operation returns. A seccomp filter
 * refuses the system call as containers do: before the ranks meet, or after.
 * A sender ends itself while it is read, at many moments.
 */
#include "tests/comm/one_op.h"
#include "tests/comm/world.h"

#include "base/check.h"
#include "comm/core/core.h"
#include "comm/core/live.h"
#include "comm/make/explain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    REDUCED_BYTES = (2 << 20) + 4096,
    MOVED_BYTES = 150000,
    SENT_BYTES = 1 << 20
};

static int run_all(weft_comm *comm, void *context)
{
    const bool single = *(const bool *)context;
    static const weft_dtype some[] = {WEFT_DTYPE_U8, WEFT_DTYPE_BF16,
                                      WEFT_DTYPE_F64};
    int failures = 0;
    for (size_t c = 0; c < ONE_OP_COLLECTIVES; c++) {
        const size_t bytes = wefti_shape_get(one_op_collectives[c])->reduces
                                 ? REDUCED_BYTES
                                 : MOVED_BYTES;
        for (size_t d = 0; d < WEFTI_COUNT_OF(some); d++) {
            const uint64_t before = one_op_unstaged(comm);
            failures += one_op_run(comm, one_op_collectives[c], some[d], bytes,
                                   false, NULL);
            const bool sends =
                wefti_who_has(wefti_shape_get(one_op_collectives[c])->sends,
                              weft_comm_get_rank(comm), ONE_OP_ROOT);
            const bool receives = weft_comm_get_rank(comm) == ONE_OP_ROOT;
            if (sends &&
                !(receives && wefti_shape_get(one_op_collectives[c])->rooted &&
                  wefti_shape_get(one_op_collectives[c])->receives ==
                      WEFTI_WHO_ROOT)) {
                failures += CHECK((one_op_unstaged(comm) > before) == single);
            }
        }
    }
    for (int d = 0; d < WEFT_DTYPE_COUNT; d++) {
        failures += one_op_run(comm, WEFT_COLLECTIVE_ALLREDUCE, (weft_dtype)d,
                               REDUCED_BYTES, true, NULL);
    }
    failures += one_op_run(comm, WEFT_COLLECTIVE_ALLGATHER, WEFT_DTYPE_F32,
                           MOVED_BYTES, true, NULL);
    const uint64_t before = one_op_unstaged(comm);
    failures += one_op_run_messages(comm, NULL);
    failures += CHECK((one_op_unstaged(comm) > before) == single);
    return failures;
}

static void run_everywhere(bool single)
{
    struct world world = {.call = run_all, .context = &single};
    setenv("WEFT_SINGLE_COPY", single ? "on" : "off", 1);
    setenv("WEFT_CHUNK_BYTES", "8192", 1);
    /* Under a sanitizer three: some send to two, and to one. */
    const bool few = getenv("WEFT_TEST_FEW") != NULL;
    for (world.nranks = few ? 3 : 2; world.nranks <= (few ? 3 : 4);
         world.nranks++) {
        assert_int_equal(world_run_processes(&world), 0);
    }
    bool never = false; /* threads' buffers may be gone after a fault */
    world.context = &never;
    for (world.nranks = few ? 3 : 2; world.nranks <= 3; world.nranks++) {
        assert_int_equal(world_run_threads(&world), 0);
    }
    unsetenv("WEFT_CHUNK_BYTES");
    setenv("WEFT_SINGLE_COPY", "on", 1);
}

static void test_all_operations_read_in_place_exact(void **state)
{
    (void)state;
    run_everywhere(true);
}

/* It writes over what it has sent in place only. */
static void test_exchange_read_in_place_exact(void **state)
{
    (void)state;
    setenv("WEFT_ALGO", "all_reduce:exchange", 1);
    run_everywhere(true);
    unsetenv("WEFT_ALGO");
}

static void test_all_operations_forbidden_are_staged(void **state)
{
    (void)state;
    run_everywhere(false);
}

/* From here on this process gets EPERM, as in a container that forbids it. */
static int forbid_reading(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const struct sock_fprog filter = {WEFTI_COUNT_OF(code), code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                   SECCOMP_FILTER_FLAG_TSYNC, &filter) != 0;
}

static void forbid_on_rank_1(int rank, void *context)
{
    (void)context;
    if (rank == 1 && forbid_reading()) {
        abort();
    }
}

static int stages_and_says_why(weft_comm *comm, void *context)
{
    (void)context;
    const char *why = wefti_comm_staged_why(comm);
    int failures =
        CHECK(why && strcmp(why, "rank 1 cannot read the process of rank 0 "
                                 "(process_vm_readv): Operation not "
                                 "permitted") == 0);
    failures += one_op_run(comm, WEFT_COLLECTIVE_ALLGATHER, WEFT_DTYPE_F32,
                           MOVED_BYTES, false, NULL);
    return failures + CHECK(one_op_unstaged(comm) == 0);
}

static void test_one_rank_may_not_read_all_stage(void **state)
{
    (void)state;
    const struct world world = {
        .nranks = 3, .before = forbid_on_rank_1, .call = stages_and_says_why};
    setenv("WEFT_CHUNK_BYTES", "8192", 1);
    assert_int_equal(world_run_processes(&world), 0);
    unsetenv("WEFT_CHUNK_BYTES");
}

/* From rank 2, which wants none of it itself; all get the fault of the rank
 * that could not read. */
static int faults_by_name(weft_comm *comm, const void *send, const char *what)
{
    const bool root = weft_comm_get_rank(comm) == 2;
    unsigned char *recv = root ? NULL : malloc(SENT_BYTES);
    weft_status status = weft_broadcast(root ? send : NULL, recv, SENT_BYTES,
                                        WEFT_DTYPE_U8, 2, comm, NULL);
    if (status == WEFT_OK) { /* this rank had it all before the fault */
        status = weft_barrier(comm, NULL);
    }
    int failures = CHECK(status == WEFT_ERR_SYSTEM);
    failures += CHECK(strstr(weft_error_text(), "(process_vm_readv)") &&
                      strstr(weft_error_text(), what) &&
                      strstr(weft_error_text(), "WEFT_SINGLE_COPY=off"));
    if (failures) {
        fprintf(stderr, "rank %d: status %d, %s\n", weft_comm_get_rank(comm),
                (int)status, weft_error_text());
    }
    free(recv);
    return failures;
}

static int forbids_later(weft_comm *comm, void *context)
{
    (void)context;
    unsigned char *send = calloc(1, SENT_BYTES);
    int failures = weft_comm_get_rank(comm) == 1 && forbid_reading();
    failures += faults_by_name(comm, send, "Operation not permitted");
    free(send);
    return failures;
}

static int has_a_hole(weft_comm *comm, void *context)
{
    (void)context;
    unsigned char *send = mmap(NULL, SENT_BYTES, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int failures = CHECK(send != MAP_FAILED);
    if (weft_comm_get_rank(comm) == 2) { /* the last half of a message too */
        failures +=
            CHECK(mprotect(send + 700 * 1024 + 4096, 8192, PROT_NONE) == 0);
    }
    failures += faults_by_name(comm, send, "Bad address");
    munmap(send, SENT_BYTES);
    return failures;
}

static void test_reading_refused_later_is_a_named_fault(void **state)
{
    (void)state;
    struct world world = {.nranks = 3, .call = forbids_later};
    assert_int_equal(world_run_processes(&world), 0);
    world.call = has_a_hole;
    assert_int_equal(world_run_processes(&world), 0);
}

/* Ends the process after so many turns. */
static void *end_soon(void *argument)
{
    _Atomic unsigned turns = *(const unsigned *)argument;
    while (atomic_fetch_sub(&turns, 1) > 1) {
    }
    kill(getpid(), SIGKILL);
    return NULL;
}

static int reads_who_dies(weft_comm *comm, void *context)
{
    enum { BYTES = 8 << 20 };
    unsigned char *buffer = malloc(BYTES);
    int failures = 0;
    memset(buffer, weft_comm_get_rank(comm) ? 7 : 0xA5, BYTES);
    if (weft_comm_get_rank(comm) == 1) {
        pthread_t thread;
        (void)!pthread_create(&thread, NULL, end_soon, context);
        (void)!weft_send(buffer, BYTES, WEFT_DTYPE_U8, 0, comm, NULL);
        for (;;) {
            pause();
        }
    }
    weft_status status = weft_recv(buffer, BYTES, WEFT_DTYPE_U8, 1, comm, NULL);
    if (status == WEFT_OK) {
        for (size_t i = 0; i < BYTES && !failures; i++) {
            failures += CHECK(buffer[i] == 7);
        }
    } else {
        failures += CHECK(status == WEFT_ERR_PEER &&
                          strstr(weft_error_text(), "rank 1 has died"));
    }
    free(buffer);
    return failures;
}

static void test_sender_dies_while_read_right_data_or_its_name(void **state)
{
    (void)state;
    for (unsigned turns = 1; turns < 2000000; turns = turns * 3 + 1) {
        struct world world = {
            .nranks = 2, .call = reads_who_dies, .context = &turns};
        assert_int_equal(world_run_killed(&world, 1), 0);
    }
}

/* A child has the address, but not the words; nor has whoever gets the pid. */
static void test_read_of_another_process_is_refused(void **state)
{
    (void)state;
    uint64_t *home, data = 42, copy = 0;
    int ways[2], end;
    assert_int_equal(wefti_home_open(&home), WEFT_OK);
    wefti_witness witness = {.pid = getpid(),
                             .address = (uint64_t)(uintptr_t)(home + 1),
                             .words = {home[1], home[2]}};
    assert_int_equal(pipe(ways), 0);
    pid_t child = fork();
    if (child == 0) { /* of the parent it reads what is meant, until told */
        char byte;
        close(ways[1]);
        const bool right =
            wefti_process_read(&witness, &copy, &data, sizeof(data)) == 0 &&
            copy == 42;
        _exit(read(ways[0], &byte, 1) != 0 || !right);
    }
    close(ways[0]);
    witness.pid = child;
    assert_int_equal(wefti_process_read(&witness, &copy, &data, sizeof(data)),
                     ESRCH);
    close(ways[1]);
    assert_int_equal(waitpid(child, &end, 0), child);
    assert_int_equal(end, 0);
    assert_int_equal(wefti_process_read(&witness, &copy, &data, sizeof(data)),
                     ESRCH); /* it has ended */
    wefti_home_close(home);
}

static void test_setting_neither_on_nor_off_is_refused(void **state)
{
    (void)state;
    weft_comm *comm;
    setenv("WEFT_SINGLE_COPY", "maybe", 1);
    assert_int_equal(weft_comm_create(NULL, &comm), WEFT_ERR_INVALID);
    assert_non_null(
        strstr(weft_error_text(),
               "WEFT_SINGLE_COPY=maybe: allowed is on, mapped or off"));
    setenv("WEFT_SINGLE_COPY", "on", 1);
}

int main(void)
{
    setenv("WEFT_SINGLE_COPY", "on", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read_of_another_process_is_refused),
        cmocka_unit_test(test_setting_neither_on_nor_off_is_refused),
        cmocka_unit_test(test_all_operations_read_in_place_exact),
        cmocka_unit_test(test_exchange_read_in_place_exact),
        cmocka_unit_test(test_all_operations_forbidden_are_staged),
        cmocka_unit_test(test_one_rank_may_not_read_all_stage),
        cmocka_unit_test(test_reading_refused_later_is_a_named_fault),
        cmocka_unit_test(test_sender_dies_while_read_right_data_or_its_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
