/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: ranks that share no memory work as those that do: exact results,
 * however ranks lie in domains; sleepers are woken; the dead are named; the
 * process that loads the network keeps its signal handlers and its mmap.
 *
 * Method: WEFT_DOMAIN parts the ranks of this process, or of processes on this
 * host, so that the network fabric runs over the loopback. Inputs are small
 * integers, expected values a formula, outputs poisoned.
 */
#include "base/clock.h"
#include "tests/comm/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    MOST_ELEMS = 70001,
    MOST_RANKS = 6,
    ATTEMPTS = 5,
    ROUNDS = 60,
    LATE_NS = 15000000
};

static const size_t counts[] = {1, 700, 9001, MOST_ELEMS};

/* Element i of rank's input in a round. */
static float input(int rank, size_t i, int round)
{
    return (float)((int)(i % 13) + 3 * rank + round % 5);
}

static float sum_of(int nranks, size_t i, int round)
{
    float sum = 0;
    for (int rank = 0; rank < nranks; rank++) {
        sum += input(rank, i, round);
    }
    return sum;
}

struct buffers {
    weft_comm *comm;
    int rank, nranks, round, failures;
    float *send, *recv; /* [MOST_RANKS * MOST_ELEMS] */
};

static void begin(struct buffers *all, size_t elems)
{
    all->round++;
    for (size_t i = 0; i < elems; i++) {
        all->send[i] = input(all->rank, i, all->round);
    }
    memset(all->recv, 0xa5, elems * (size_t)all->nranks * sizeof(float));
}

static void expect(struct buffers *all, weft_status status, size_t elem,
                   float wanted, const char *what)
{
    if (all->failures < 3 && (status != WEFT_OK || all->recv[elem] != wanted)) {
        fprintf(stderr, "rank %d: %s, element %zu: %g, not %g: %s\n", all->rank,
                what, elem, (double)all->recv[elem], (double)wanted,
                status == WEFT_OK ? "" : weft_error_text());
    }
    all->failures += status != WEFT_OK || all->recv[elem] != wanted;
}

static void reductions(struct buffers *all, size_t count)
{
    const size_t ranks = (size_t)all->nranks;
    const int root = all->nranks - 1;
    begin(all, count);
    weft_status status =
        weft_allreduce(all->send, all->recv, count, WEFT_DTYPE_F32,
                       WEFT_REDOP_SUM, all->comm, NULL);
    for (size_t i = 0; i < count; i++) {
        expect(all, status, i, sum_of(all->nranks, i, all->round), "allreduce");
    }
    begin(all, count);
    status = weft_reduce(all->send, all->recv, count, WEFT_DTYPE_F32,
                         WEFT_REDOP_SUM, root, all->comm, NULL);
    for (size_t i = 0; i < count && all->rank == root; i++) {
        expect(all, status, i, sum_of(all->nranks, i, all->round), "reduce");
    }
    size_t part = count / ranks ? count / ranks : 1;
    begin(all, part * ranks);
    status = weft_reducescatter(all->send, all->recv, part, WEFT_DTYPE_F32,
                                WEFT_REDOP_SUM, all->comm, NULL);
    for (size_t i = 0; i < part; i++) {
        size_t at = (size_t)all->rank * part + i;
        expect(all, status, i, sum_of(all->nranks, at, all->round),
               "reducescatter");
    }
}

static void movements(struct buffers *all, size_t count)
{
    begin(all, count);
    weft_status status = weft_allgather(all->send, all->recv, count,
                                        WEFT_DTYPE_F32, all->comm, NULL);
    for (size_t i = 0; i < count * (size_t)all->nranks; i++) {
        expect(all, status, i, input((int)(i / count), i % count, all->round),
               "allgather");
    }
    begin(all, count);
    status = weft_broadcast(all->send, all->recv, count, WEFT_DTYPE_F32, 1,
                            all->comm, NULL);
    for (size_t i = 0; i < count; i++) {
        expect(all, status, i, input(1, i, all->round), "broadcast");
    }
    begin(all, count);
    int next = (all->rank + 1) % all->nranks;
    int previous = (all->rank + all->nranks - 1) % all->nranks;
    const weft_p2p ring[] = {{.size_bytes = sizeof(weft_p2p),
                              .kind = WEFT_P2P_SEND,
                              .buffer = all->send,
                              .count = count,
                              .dtype = WEFT_DTYPE_F32,
                              .peer = next},
                             {.size_bytes = sizeof(weft_p2p),
                              .kind = WEFT_P2P_RECV,
                              .buffer = all->recv,
                              .count = count,
                              .dtype = WEFT_DTYPE_F32,
                              .peer = previous}};
    status = weft_p2p_post(ring, 2, all->comm, NULL);
    for (size_t i = 0; i < count; i++) {
        expect(all, status, i, input(previous, i, all->round), "ring");
    }
}

static int all_exact(weft_comm *comm, void *context)
{
    size_t room = (size_t)MOST_RANKS * MOST_ELEMS * sizeof(float);
    struct buffers all = {.comm = comm,
                          .rank = weft_comm_get_rank(comm),
                          .nranks = weft_comm_get_nranks(comm),
                          .send = malloc(room),
                          .recv = malloc(room)};
    (void)context;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        reductions(&all, counts[i]);
        movements(&all, counts[i]);
    }
    /* Halves by parity lie across domains otherwise than the whole. */
    weft_comm *half;
    weft_status status =
        weft_comm_split(comm, all.rank % 2, -all.rank, NULL, &half);
    all.failures += status != WEFT_OK;
    if (status == WEFT_OK) {
        struct buffers part = all;
        part.comm = half;
        part.rank = weft_comm_get_rank(half);
        part.nranks = weft_comm_get_nranks(half);
        reductions(&part, 9001);
        all.failures = part.failures;
        weft_comm_destroy(half);
    }
    free(all.send);
    free(all.recv);
    return all.failures < 63 ? all.failures : 63;
}

static void test_net_ranks_anyhow_in_domains_exact(void **state)
{
    static const struct {
        int nranks;
        const char *domains;
    } cases[] = {{2, "a,b"},     {4, "a,a,b,b"},   {4, "a,b,a,b"},
                 {4, "a,a,a,b"}, {5, "a,b,c,d,e"}, {6, "a,b,b,c,a,a"},
                 {3, "a,b,b"}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct world world = {.nranks = cases[i].nranks, .call = all_exact};
        setenv("WEFT_DOMAIN", cases[i].domains, 1);
        int failures = world_run_threads(&world);
        if (failures) {
            print_message("domains %s\n", cases[i].domains);
        }
        assert_int_equal(failures, 0);
    }
}

static void test_net_processes_exact(void **state)
{
    (void)state;
    struct world world = {.nranks = 4, .call = all_exact};
    setenv("WEFT_DOMAIN", "a,b,b,c", 1);
    assert_int_equal(world_run_processes(&world), 0);
}

/* A thread that sleeps beside the ranks and is woken by a write: where it comes
 * late too, other jobs have the cores, and the round proves nothing. */
static struct {
    int fd;
    _Atomic int64_t woken_ns[ROUNDS];
} beside;

static void *sleep_beside(void *unused)
{
    uint64_t times;
    (void)unused;
    for (int round = 0; round < ROUNDS; round++) {
        if (read(beside.fd, &times, sizeof(times)) != sizeof(times)) {
            break;
        }
        atomic_store(&beside.woken_ns[round], wefti_clock_ns());
    }
    return NULL;
}

/* Rank 0 lets the others fall asleep before it sends the time. */
static int wake_late(weft_comm *comm, void *context)
{
    const uint64_t once = 1;
    int late = 0;
    (void)context;
    for (int round = 0; round < ROUNDS; round++) {
        int64_t sent_ns = 0;
        if (weft_comm_get_rank(comm) == 0) {
            (void)poll(NULL, 0, 5);
            sent_ns = wefti_clock_ns();
            if (write(beside.fd, &once, sizeof(once)) != sizeof(once)) {
                return 62;
            }
        }
        if (weft_broadcast(&sent_ns, &sent_ns, 1, WEFT_DTYPE_I64, 0, comm,
                           NULL) != WEFT_OK) {
            return 63;
        }
        const int64_t took_ns = wefti_clock_ns() - sent_ns;
        const int64_t woken_ns = atomic_load(&beside.woken_ns[round]);
        late +=
            took_ns > LATE_NS && woken_ns && woken_ns - sent_ns < LATE_NS / 4;
    }
    /* Without a wake-up each would last until the bounded sleep is over. */
    return late > ROUNDS / 3 ? late : 0;
}

static void test_net_sleepers_are_woken(void **state)
{
    (void)state;
    struct world world = {.nranks = 3, .call = wake_late};
    setenv("WEFT_DOMAIN", "a,b,b", 1);
    int late = 1;
    for (int i = 0; i < ATTEMPTS && late; i++) {
        pthread_t thread;
        memset(&beside, 0, sizeof(beside));
        beside.fd = eventfd(0, EFD_SEMAPHORE);
        assert_true(beside.fd >= 0);
        assert_int_equal(pthread_create(&thread, NULL, sleep_beside, NULL), 0);
        late = world_run_threads(&world);
        assert_int_equal(eventfd_write(beside.fd, ROUNDS), 0); /* the rest */
        assert_int_equal(pthread_join(thread, NULL), 0);
        close(beside.fd);
    }
    assert_int_equal(late, 0);
}

static int until_failure(weft_comm *comm, void *context)
{
    static float data[30000];
    char wanted[32];
    (void)context;
    weft_status status = WEFT_OK;
    for (int i = 0; i < 1000000 && status == WEFT_OK; i++) {
        if (i == 20 && weft_comm_get_rank(comm) == 2) {
            (void)raise(SIGKILL);
        }
        status = weft_allreduce(data, data, 30000, WEFT_DTYPE_F32,
                                WEFT_REDOP_SUM, comm, NULL);
    }
    weft_fault fault = {.size_bytes = sizeof(fault)};
    snprintf(wanted, sizeof(wanted), "rank 2 has died");
    bool named = status == WEFT_ERR_PEER && strstr(weft_error_text(), wanted) &&
                 strstr(weft_error_text(), "all_reduce #") &&
                 weft_comm_get_fault(comm, &fault) == WEFT_OK &&
                 fault.rank == 2;
    if (!named) {
        fprintf(stderr, "rank %d: %s: %s\n", weft_comm_get_rank(comm),
                weft_status_text(status), weft_error_text());
    }
    return named ? 0 : 1;
}

static void test_net_killed_rank_is_named_by_all(void **state)
{
    static const char *const domains[] = {"a,b,c,d", "a,a,b,b", "a,b,c,c"};
    (void)state;
    for (size_t i = 0; i < sizeof(domains) / sizeof(domains[0]); i++) {
        struct world world = {.nranks = 4, .call = until_failure};
        world_processes started;
        setenv("WEFT_DOMAIN", domains[i], 1);
        const int64_t begun_ns = wefti_clock_ns();
        world_start_processes(&world, &started);
        assert_int_equal(world_finish_survivors(&started, 30), 0);
        for (int rank = 0; rank < 4; rank++) {
            int status = started.exit_status[rank];
            assert_true(rank == 2 ? WIFSIGNALED(status) : status == 0);
        }
        assert_true(wefti_clock_ns() - begun_ns < INT64_C(20000000000));
    }
}

static int abort_one(weft_comm *comm, void *context)
{
    float data = 1;
    (void)context;
    /* Nobody is still on the way into the world when it is aborted. */
    weft_status status = weft_barrier(comm, NULL);
    if (status == WEFT_OK && weft_comm_get_rank(comm) == 1) {
        return weft_comm_abort(comm) != WEFT_OK;
    }
    if (status == WEFT_OK) {
        status = weft_allreduce(&data, &data, 1, WEFT_DTYPE_F32, WEFT_REDOP_SUM,
                                comm, NULL);
    }
    return status != WEFT_ERR_ABORTED ||
           !strstr(weft_error_text(), "rank 1 aborted");
}

static void test_net_abort_reaches_other_domains(void **state)
{
    (void)state;
    struct world world = {.nranks = 3, .call = abort_one};
    setenv("WEFT_DOMAIN", "a,b,c", 1);
    assert_int_equal(world_run_threads(&world), 0);
}

static int dump_counts(weft_comm *comm, void *context)
{
    char text[4096];
    float data[1000];
    const bool sends = weft_comm_get_rank(comm) == 0;
    (void)context;
    memset(data, 0, sizeof(data));
    weft_status status =
        sends ? weft_send(data, 1000, WEFT_DTYPE_F32, 1, comm, NULL)
              : weft_recv(data, 1000, WEFT_DTYPE_F32, 0, comm, NULL);
    if (status == WEFT_OK) {
        status = weft_comm_dump(comm, text, sizeof(text));
    }
    const char *wanted = sends ? "payload sent 4000 received 0 bytes"
                               : "payload sent 0 received 4000 bytes";
    if (status != WEFT_OK || !strstr(text, wanted)) {
        fprintf(stderr, "not \"%s\" in: %s\n", wanted, text);
        return 1;
    }
    return 0;
}

static void test_net_payload_counted_to_the_byte(void **state)
{
    (void)state;
    struct world world = {.nranks = 2, .call = dump_counts};
    setenv("WEFT_DOMAIN", "a,b", 1);
    assert_int_equal(world_run_threads(&world), 0);
}

/* A root may be as many operations ahead of a reader as there are op slots,
 * also of one that has not said of the last few that it has done them. */
static int go_ahead(weft_comm *comm, void *context)
{
    enum { TOGETHER = 7, OP_SLOTS = 16, WAIT_MS = 10000 };
    _Atomic bool *ahead = context;
    const bool reads = weft_comm_get_rank(comm) == 1;
    int32_t word = 7;
    int failures = 0;
    for (int i = 0; i < TOGETHER + OP_SLOTS; i++) {
        bool away = reads && i == TOGETHER;
        for (int ms = 0; away && !atomic_load(ahead) && ms < WAIT_MS; ms++) {
            (void)poll(NULL, 0, 1);
        }
        failures += away && !atomic_load(ahead);
        failures += weft_broadcast(&word, &word, 1, WEFT_DTYPE_I32, 0, comm,
                                   NULL) != WEFT_OK;
    }
    if (!reads) {
        atomic_store(ahead, true);
    }
    return failures + (weft_barrier(comm, NULL) != WEFT_OK);
}

static void test_net_root_goes_ahead_of_absent_reader(void **state)
{
    (void)state;
    _Atomic bool ahead = false;
    struct world world = {.nranks = 2, .call = go_ahead, .context = &ahead};
    setenv("WEFT_DOMAIN", "a,b", 1);
    assert_int_equal(world_run_threads(&world), 0);
}

static int nothing(weft_comm *comm, void *context)
{
    (void)context;
    return weft_barrier(comm, NULL) != WEFT_OK;
}

/* The first world of the process that needs the network loads it. */
static void test_net_loading_leaves_process_as_it_was(void **state)
{
    unsigned char before[16], after[16];
    struct sigaction actions[2];
    (void)state;
    struct world world = {.nranks = 2, .call = nothing};
    void *(*mapper)(void *, size_t, int, int, int, off_t) = mmap;
    memcpy(before, (void *)(uintptr_t)mapper, sizeof(before));
    assert_int_equal(sigaction(SIGSEGV, NULL, &actions[0]), 0);
    setenv("WEFT_DOMAIN", "a,b", 1);
    assert_int_equal(world_run_threads(&world), 0);
    memcpy(after, (void *)(uintptr_t)mapper, sizeof(after));
    assert_memory_equal(before, after, sizeof(before));
    assert_int_equal(sigaction(SIGSEGV, NULL, &actions[1]), 0);
    assert_true(actions[0].sa_handler == actions[1].sa_handler);
}

static int create_refused(weft_status wanted, const char *text)
{
    weft_comm *comm;
    weft_status status = weft_comm_create(NULL, &comm);
    if (status != wanted || !strstr(weft_error_text(), text)) {
        fprintf(stderr, "%s: %s\n", weft_status_text(status),
                weft_error_text());
        return 1;
    }
    return 0;
}

/* As rank 0 or 1 of a job of two domains, which must not come to be. */
static void start_refused(pid_t *pids, const char *program)
{
    for (int rank = 0; rank < 2; rank++) {
        fflush(NULL);
        pids[rank] = fork();
        if (pids[rank] == 0) {
            setenv("WEFT_RANK", rank ? "1" : "0", 1);
            setenv("WEFT_NRANKS", "2", 1);
            setenv("WEFT_SECRET", "a secret of the tests only", 1);
            setenv("WEFT_DOMAIN", "a,b", 1);
            setenv("WEFT_TIMEOUT_MS", "20000", 1);
            execl(program, program, "refused", (char *)NULL);
            _exit(127);
        }
    }
}

/* They meet at a file in folder. */
static void expect_refused(const char *program, const char *folder)
{
    pid_t pids[2];
    char where[64];
    snprintf(where, sizeof(where), "file:%s/meeting", folder);
    setenv("WEFT_RENDEZVOUS", where, 1);
    start_refused(pids, program);
    for (int rank = 0; rank < 2; rank++) {
        int status;
        assert_int_equal(waitpid(pids[rank], &status, 0), pids[rank]);
        assert_int_equal(status, 0);
    }
    (void)unlink(where + strlen("file:")); /* unless rank 0 has */
    unsetenv("WEFT_RENDEZVOUS");
}

static void own_path(char path_out[512])
{
    ssize_t got = readlink("/proc/self/exe", path_out, 511);
    assert_true(got > 0);
    path_out[got] = '\0';
}

static void test_net_unknown_interface_refused_on_all(void **state)
{
    char program[512], folder[] = "/tmp/weft-net-XXXXXX";
    (void)state;
    own_path(program);
    assert_non_null(mkdtemp(folder));
    setenv("WEFT_NET_INTERFACE", "no-such-one", 1);
    expect_refused(program, folder);
    unsetenv("WEFT_NET_INTERFACE");
    assert_int_equal(rmdir(folder), 0);
}

/* A copy of this program in a folder of its own finds no module beside it. */
static void test_net_without_module_refused_on_all(void **state)
{
    char program[512], folder[] = "/tmp/weft-net-XXXXXX", copy[64];
    char command[700];
    (void)state;
    own_path(program);
    assert_non_null(mkdtemp(folder));
    snprintf(copy, sizeof(copy), "%s/test_net", folder);
    snprintf(command, sizeof(command), "cp %s %s", program, copy);
    assert_int_equal(system(command), 0);
    expect_refused(copy, folder);
    assert_int_equal(unlink(copy), 0);
    assert_int_equal(rmdir(folder), 0);
}

int main(int count, char **arguments)
{
    if (count > 1 && strcmp(arguments[1], "refused") == 0) {
        return getenv("WEFT_NET_INTERFACE")
                   ? create_refused(WEFT_ERR_INVALID,
                                    "WEFT_NET_INTERFACE=no-such-one")
                   : create_refused(WEFT_ERR_UNSUPPORTED, "weft_net.so");
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_net_unknown_interface_refused_on_all),
        cmocka_unit_test(test_net_without_module_refused_on_all),
        cmocka_unit_test(test_net_processes_exact),
        cmocka_unit_test(test_net_killed_rank_is_named_by_all),
        cmocka_unit_test(test_net_loading_leaves_process_as_it_was),
        cmocka_unit_test(test_net_ranks_anyhow_in_domains_exact),
        cmocka_unit_test(test_net_sleepers_are_woken),
        cmocka_unit_test(test_net_abort_reaches_other_domains),
        cmocka_unit_test(test_net_payload_counted_to_the_byte),
        cmocka_unit_test(test_net_root_goes_ahead_of_absent_reader),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
