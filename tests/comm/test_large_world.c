/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what a rank maps for a communicator grows with the ranks it shares
 * memory with, and little with all others: 512 ranks on 64 hosts take less than
 * 0.8 GiB of address space each. What is staged for a rank of another host
 * takes none before something is sent to it, and then 16 messages go out before
 * one has been read. 4096 ranks can have a communicator; no collective is
 * refused there.
 *
 * Method: one rank's end of a large world is built by the library's own
 * function, on real memory, over a network that swallows what is sent, and the
 * kernel is asked how much is mapped (VmSize). In a world of processes that can
 * be run, a second communicator is made and the kernel asked likewise.
 */
#include "base/clock.h"
#include "comm/core/reserve.h"
#include "comm/engine/engine.h"
#include "comm/make/comm.h"
#include "comm/net/net.h"
#include "comm/post/op_check.h"
#include "tests/comm/world.h"

#include <fcntl.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB ((size_t)1 << 20)

/* What allocators map beyond what is asked of them. */
enum { SLACK_MIB = 48 };

static size_t read_vm_bytes(void)
{
    char line[128];
    size_t kib = 0;
    FILE *status = fopen("/proc/self/status", "re");
    while (status && fgets(line, sizeof(line), status)) {
        if (sscanf(line, "VmSize: %zu kB", &kib) == 1) {
            break;
        }
    }
    if (status) {
        fclose(status);
    }
    return kib << 10;
}

/* ---- a network that swallows all ------------------------------------------
 */

static size_t swallowed;

static void swallow(wefti_port *port, const wefti_port_message *message)
{
    (void)port;
    (void)message;
    swallowed++;
}

static void hold(wefti_port *port, bool on)
{
    (void)port;
    (void)on;
}

static bool progress(wefti_port *port)
{
    (void)port;
    return false;
}

static bool arm(wefti_port *port)
{
    (void)port;
    return true;
}

static size_t count_unsent(wefti_port *port)
{
    (void)port;
    return 0;
}

static void close_port(wefti_port *port, int linger_ms)
{
    (void)port;
    (void)linger_ms;
}

static const wefti_port_table silent_port = {.version = WEFTI_PORT_VERSION,
                                             .name = "silent",
                                             .send = swallow,
                                             .hold = hold,
                                             .progress = progress,
                                             .arm = arm,
                                             .unsent = count_unsent,
                                             .close = close_port};

static wefti_net *make_net(wefti_engine *engine, int rank, int nranks)
{
    static char port;
    wefti_net *net = calloc(1, sizeof(*net));
    assert_non_null(net);
    net->library = net->table = &silent_port;
    net->port = (void *)&port;
    net->engine = engine;
    net->rank = rank;
    net->nranks = nranks;
    net->peers = calloc((size_t)nranks, sizeof(*net->peers));
    assert_non_null(net->peers);
    for (int peer = 0; peer < nranks; peer++) {
        net->peers[peer].farewell = true; /* so that the end waits for none */
    }
    return net;
}

/* ---- one rank's end of a large world ---------------------------------------
 */

/* As ranks would have it that have joined: so many to a host, in order. */
static wefti_membership *make_members(int rank, int nranks, int host_ranks)
{
    wefti_membership *members = calloc(1, sizeof(*members));
    assert_non_null(members);
    assert_int_equal(wefti_membership_init(members, rank, nranks), WEFT_OK);
    for (int i = 0; i < nranks; i++) {
        const int first = i / host_ranks * host_ranks;
        members->members[i].domain = members->members[i].host = first;
        members->members[i].pid = getpid();
    }
    members->memory_fd = memfd_create("large_world", MFD_CLOEXEC);
    assert_true(members->memory_fd >= 0);
    assert_int_equal(
        ftruncate(members->memory_fd, (off_t)WEFTI_MEMORY_REACH_BYTES), 0);
    return members;
}

static weft_comm *build_end(int rank, int nranks, int host_ranks)
{
    wefti_engine *engine;
    weft_comm *comm;
    int *world_ranks = calloc((size_t)nranks, sizeof(*world_ranks));
    assert_non_null(world_ranks);
    for (int i = 0; i < nranks; i++) {
        world_ranks[i] = i;
    }
    assert_int_equal(wefti_engine_create(&engine), WEFT_OK);
    engine->members = make_members(rank, nranks, host_ranks);
    engine->net = make_net(engine, rank, nranks);
    const weft_comm_config config = {.name = "world",
                                     .warn_ms = 10000,
                                     .timeout_ms = 20000,
                                     .ops_in_flight = 16};
    const wefti_comm_parts parts = {.engine = engine,
                                    .rank = rank,
                                    .nranks = nranks,
                                    .members = engine->members,
                                    .id = 1,
                                    .world_ranks = world_ranks,
                                    .memory_fd = engine->members->memory_fd,
                                    .config = &config};
    assert_int_equal(wefti_comm_build(&parts, &comm), WEFT_OK);
    free(world_ranks);
    return comm;
}

static void check_shape(const weft_comm *comm, int host_ranks)
{
    const wefti_shared *shared = &comm->fabric.shared;
    assert_int_equal(comm->local_count, host_ranks);
    assert_int_equal(shared->layout.local_ranks, host_ranks);
    assert_int_equal(comm->grouping->host_count, comm->nranks / host_ranks);
    for (int peer = 0; peer < comm->nranks; peer++) {
        const bool local = peer / host_ranks == comm->rank / host_ranks;
        assert_int_equal(shared->places[peer], local ? peer % host_ranks : -1);
        assert_int_equal(wefti_fabric_is_remote(&comm->fabric, peer), !local);
    }
}

/* Every collective finds an algorithm; the v forms are refused at no size. */
static void check_collectives(const weft_comm *comm)
{
    const size_t ranks = (size_t)comm->nranks;
    size_t *counts = calloc(2 * ranks, sizeof(*counts));
    static unsigned char bytes[2];
    assert_non_null(counts);
    for (int c = 0; c < WEFT_COLLECTIVE_SEND; c++) {
        weft_op op = {.size_bytes = sizeof(op),
                      .collective = (weft_collective)c,
                      .send = &bytes[0],
                      .recv = &bytes[1],
                      .dtype = WEFT_DTYPE_U8,
                      .send_counts = counts,
                      .recv_counts = counts + ranks};
        wefti_role role;
        wefti_op_places places;
        assert_int_equal(wefti_check_op(&op, 1, comm, &role, &places), WEFT_OK);
        op.count = MIB;
        wefti_scope scope = wefti_comm_scope(comm, &comm->tuning);
        wefti_choice choice = wefti_select(&scope, &op, &role);
        assert_true(choice.pattern || c == WEFT_COLLECTIVE_BARRIER);
        assert_true(choice.chunk_elems > 0);
    }
    free(counts);
}

static void check_end(int rank, int nranks, int host_ranks, size_t most_bytes)
{
    const size_t before = read_vm_bytes();
    const int64_t begin_ns = wefti_clock_ns();
    weft_comm *comm = build_end(rank, nranks, host_ranks);
    const int64_t built_ns = wefti_clock_ns() - begin_ns;
    const size_t mapped = read_vm_bytes() - before;
    const size_t planned =
        wefti_comm_map_bytes(&comm->tuning, nranks, host_ranks, comm->grouping);
    print_message("rank %d of %d, %d to a host: %zu MiB planned, %zu MiB "
                  "mapped, built in %.1f ms\n",
                  rank, nranks, host_ranks, planned / MIB, mapped / MIB,
                  (double)built_ns / 1e6);
    assert_true(mapped >= planned);
    assert_true(mapped <= planned + comm->heap_bytes + SLACK_MIB * MIB);
    assert_true(mapped < most_bytes);
    check_shape(comm, host_ranks);
    check_collectives(comm);
    weft_comm_destroy(comm);
    assert_true(read_vm_bytes() <= before + SLACK_MIB * MIB);
}

static void test_map_512_ranks_on_64_hosts_is_under_800_mib(void **state)
{
    (void)state;
    check_end(0, 512, 8, 800 * MIB);
    check_end(511, 512, 8, 800 * MIB);
}

static void test_build_4096_ranks_has_an_end(void **state)
{
    (void)state;
    swallowed = 0;
    check_end(2049, 4096, 8, 2048 * MIB);
    /* No rank was sent anything, so none is told that it leaves. */
    assert_int_equal(swallowed, 0);
}

/* Begins as many messages as peer, which reads none, is sent, and one more. */
static weft_request *fill(weft_comm *comm, int peer)
{
    static unsigned char bytes[8];
    const weft_p2p part = {.size_bytes = sizeof(part),
                           .kind = WEFT_P2P_SEND,
                           .buffer = bytes,
                           .count = sizeof(bytes),
                           .dtype = WEFT_DTYPE_U8,
                           .peer = peer};
    for (int i = 0; i < WEFTI_P2P_REMOTE_SLOTS; i++) {
        assert_int_equal(weft_p2p_post(&part, 1, comm, NULL), WEFT_OK);
    }
    weft_request *request;
    assert_int_equal(weft_p2p_begin(&part, 1, comm, &request), WEFT_OK);
    assert_int_equal(weft_request_test(request), WEFT_INPROGRESS);
    return request;
}

static void test_staging_is_made_for_whom_is_sent_to(void **state)
{
    enum { PEERS = 5 };
    (void)state;
    weft_request *requests[PEERS];
    weft_comm *comm = build_end(0, 512, 8);
    assert_int_equal(wefti_engine_start(comm->engine), WEFT_OK);
    const size_t before = read_vm_bytes();
    for (int i = 0; i < PEERS; i++) {
        const size_t sent = swallowed;
        requests[i] = fill(comm, 100 + i * 80);
        assert_int_equal(swallowed - sent, WEFTI_P2P_REMOTE_SLOTS);
    }
    const size_t grown = read_vm_bytes() - before;
    print_message("%zu KiB more to send to %d ranks\n", grown >> 10, PEERS);
    assert_true(grown >= PEERS * MIB);
    assert_true(grown <= (PEERS + 1) * MIB);
    for (int peer = 0; peer < comm->nranks; peer++) {
        const bool sent_to =
            peer >= 100 && peer < 100 + PEERS * 80 && peer % 80 == 20;
        assert_int_equal(
            wefti_fabric_get_outgoing(&comm->fabric, peer, 0) != NULL, sent_to);
    }
    assert_int_equal(weft_comm_abort(comm), WEFT_OK);
    for (int i = 0; i < PEERS; i++) {
        assert_int_equal(weft_request_wait(requests[i]), WEFT_ERR_ABORTED);
        weft_request_destroy(requests[i]);
    }
    weft_comm_destroy(comm);
}

static void test_map_remote_ranks_take_little_each(void **state)
{
    (void)state;
    const wefti_layout few = wefti_layout_plan(2048, 8);
    const wefti_layout many = wefti_layout_plan(4096, 8);
    const size_t more =
        wefti_layout_count_bytes(&many) - wefti_layout_count_bytes(&few);
    print_message("%zu KiB for each rank more\n", more / 2048 >> 10);
    assert_true(more / 2048 < 1 << 20);
}

/* ---- a world that runs ------------------------------------------------------
 */

/* To the rank that stands across, of another domain, and from it. */
static int exchange(weft_comm *comm)
{
    const int across = comm->nranks - 1 - comm->rank;
    const uint64_t mine = (uint64_t)comm->rank * 1000003;
    uint64_t theirs = 0;
    const weft_p2p list[] = {{.size_bytes = sizeof(list[0]),
                              .kind = WEFT_P2P_SEND,
                              .buffer = (void *)(uintptr_t)&mine,
                              .count = 1,
                              .dtype = WEFT_DTYPE_U64,
                              .peer = across},
                             {.size_bytes = sizeof(list[0]),
                              .kind = WEFT_P2P_RECV,
                              .buffer = &theirs,
                              .count = 1,
                              .dtype = WEFT_DTYPE_U64,
                              .peer = across}};
    return (weft_p2p_post(list, 2, comm, NULL) != WEFT_OK) +
           (theirs != (uint64_t)across * 1000003);
}

static int measure_second(weft_comm *comm, void *context)
{
    const weft_comm_config config = {.size_bytes = sizeof(config),
                                     .name = "second"};
    weft_comm *second;
    (void)context;
    const size_t before = read_vm_bytes();
    if (weft_comm_split(comm, 0, comm->rank, &config, &second) != WEFT_OK) {
        return 1;
    }
    const size_t mapped = read_vm_bytes() - before;
    const size_t planned = wefti_comm_map_bytes(
        &comm->tuning, comm->nranks, comm->local_count, comm->grouping);
    const size_t most = planned + second->heap_bytes + SLACK_MIB * MIB;
    int failures = comm->local_count != 2;
    failures += mapped > most;
    failures += exchange(second);
    if (failures || comm->rank == 0) {
        fprintf(stderr, "rank %d: %zu MiB planned, %zu mapped, %d failures\n",
                comm->rank, planned / MIB, mapped / MIB, failures);
    }
    weft_comm_destroy(second);
    return failures;
}

static void test_map_of_processes_is_what_was_planned(void **state)
{
    (void)state;
    const struct world world = {.nranks = 8, .call = measure_second};
    assert_int_equal(world_run_processes(&world), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_map_of_processes_is_what_was_planned),
        cmocka_unit_test(test_map_remote_ranks_take_little_each),
        cmocka_unit_test(test_map_512_ranks_on_64_hosts_is_under_800_mib),
        cmocka_unit_test(test_staging_is_made_for_whom_is_sent_to),
        cmocka_unit_test(test_build_4096_ranks_has_an_end),
    };
    (void)setenv("WEFT_TEST_DOMAINS", "pairs", 1);
    (void)mallopt(M_ARENA_MAX, 1); /* a thread's own would be 64 MiB more */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
