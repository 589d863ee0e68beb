/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the rank that a fault names is the cause: the one at the end of the
 * chain of waits, whichever rank finds the fault first, with the chain in the
 * text; a gate that stays shut is named with chunk and epoch; and a circle has
 * one name too.
 *
 * Method: worlds of four, as threads and as processes, in which one rank stays
 * away (it looks at the fault until there is one) and the others wait for it
 * directly or through each other. All ranks check the same fault. The worlds
 * run side by side.
 */
#include "tests/comm/spread.h"
#include "tests/comm/world.h"

#include "base/check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 4, CHUNK = 3, EPOCH = 7 };

/*
 * act      what one rank does; which communicator of its has the fault
 * cause    the rank of that communicator that is to be named
 * parts    what the text has
 */
typedef struct scene {
    const char *name;
    weft_comm *(*act)(weft_comm *comm, weft_comm **made);
    int cause;
    const char *parts[3];
} scene;

/* Between two looks at the fault. */
static void nap(void)
{
    const struct timespec ms = {.tv_nsec = 1000000};
    nanosleep(&ms, NULL);
}

static weft_status small(weft_comm *comm, weft_collective collective, int root)
{
    int32_t mine = 1, all[RANKS];
    weft_op op = {.size_bytes = sizeof(op),
                  .collective = collective,
                  .send = &mine,
                  .recv = all,
                  .count = 1,
                  .dtype = WEFT_DTYPE_I32,
                  .root = root};
    return weft_op_post(&op, 0, comm, NULL);
}

static void receive(weft_comm *comm, int peer)
{
    int32_t word;
    (void)!weft_recv(&word, 1, WEFT_DTYPE_I32, peer, comm, NULL);
}

/* Rank 3 stays away from a gather with root 1; 0 and 2 go on to a barrier. */
static weft_comm *gather_late(weft_comm *comm, weft_comm **made)
{
    (void)made;
    if (weft_comm_get_rank(comm) != 3 &&
        small(comm, WEFT_COLLECTIVE_GATHER, 1) == WEFT_OK) {
        (void)!weft_barrier(comm, NULL);
    }
    return comm;
}

/* Small enough to ride in announcements, between hosts from leader to leader.
 */
static weft_comm *sum_late(weft_comm *comm, weft_comm **made)
{
    (void)made;
    if (weft_comm_get_rank(comm) != 3) {
        (void)!small(comm, WEFT_COLLECTIVE_ALLREDUCE, 0);
    }
    return comm;
}

/* 0 and 2 wait for a message of 1, that for one of 3. */
static weft_comm *message_late(weft_comm *comm, weft_comm **made)
{
    (void)made;
    const int rank = weft_comm_get_rank(comm);
    if (rank != 3) {
        receive(comm, rank == 1 ? 3 : 1);
    }
    return comm;
}

/* 0 waits for 2, 2 for 1, 1 for 3; 3 alone is late. */
static weft_comm *long_chain(weft_comm *comm, weft_comm **made)
{
    static const int awaited[] = {2, 3, 1};
    (void)made;
    const int rank = weft_comm_get_rank(comm);
    if (rank != 3) {
        receive(comm, awaited[rank]);
    }
    return comm;
}

/* All wait in a barrier for 1, which waits in the communicator of 1 and 3. */
static weft_comm *other_comm_late(weft_comm *comm, weft_comm **made)
{
    const int rank = weft_comm_get_rank(comm);
    const weft_comm_config config = {
        .size_bytes = sizeof(config), .name = "pair", .timeout_ms = 60000};
    if (weft_comm_split(comm, rank % 2, rank, &config, made) == WEFT_OK &&
        rank != 3) {
        (void)!weft_barrier(rank == 1 ? *made : comm, NULL);
    }
    return comm;
}

/* Each waits for a message of the next. */
static weft_comm *circle(weft_comm *comm, weft_comm **made)
{
    (void)made;
    receive(comm, (weft_comm_get_rank(comm) + 1) % RANKS);
    return comm;
}

/* What holds an operation back. */
typedef enum hold { HOLD_READY, HOLD_WRITABLE, HOLD_STREAM } hold;

/* An operation on a stream; of rank 2 the gate's chunk is never raised. */
static weft_comm *post_gated(weft_comm *comm, size_t count, hold by)
{
    const bool shut = weft_comm_get_rank(comm) == 2;
    weft_device *device;
    weft_stream *stream;
    weft_gate *gate;
    float *data = calloc(count, sizeof(*data));
    weft_op op = {.size_bytes = sizeof(op),
                  .collective = WEFT_COLLECTIVE_ALLREDUCE,
                  .send = data,
                  .recv = data,
                  .count = count,
                  .dtype = WEFT_DTYPE_F32};
    assert_int_equal(weft_device_open("host", 0, &device), WEFT_OK);
    assert_int_equal(weft_stream_create(device, 0, &stream), WEFT_OK);
    assert_int_equal(weft_gate_create(device, CHUNK + 1, &gate), WEFT_OK);
    if (by == HOLD_READY) {
        op.ready = gate;
        op.ready_chunk = CHUNK;
    } else if (by == HOLD_WRITABLE) {
        op.writable = gate;
        op.writable_chunk = CHUNK;
    } else if (shut) {
        assert_int_equal(weft_gate_wait(gate, CHUNK, EPOCH, stream), WEFT_OK);
    }
    assert_int_equal(
        weft_op_post(&op, by == HOLD_STREAM ? 0 : EPOCH, comm, stream),
        WEFT_OK);
    if (!shut) {
        assert_int_equal(weft_gate_signal(gate, CHUNK, EPOCH, NULL), WEFT_OK);
        assert_int_equal(weft_stream_wait(stream), WEFT_ERR_TIMEOUT);
        assert_non_null(strstr(weft_error_text(), "rank 2 waits for "));
    } else {
        /* Once it has acted on the fault, it sends nothing more. */
        assert_int_equal(weft_barrier(comm, NULL), WEFT_ERR_TIMEOUT);
        assert_int_equal(weft_gate_signal(gate, CHUNK, EPOCH, NULL), WEFT_OK);
        assert_int_equal(weft_stream_wait(stream), WEFT_ERR_TIMEOUT);
    }
    weft_stream_destroy(stream);
    weft_gate_destroy(gate);
    weft_device_close(device);
    free(data);
    return comm;
}

static weft_comm *small_gate_shut(weft_comm *comm, weft_comm **made)
{
    (void)made;
    return post_gated(comm, 8, HOLD_READY);
}

static weft_comm *large_gate_shut(weft_comm *comm, weft_comm **made)
{
    (void)made;
    return post_gated(comm, 100000, HOLD_READY);
}

static weft_comm *not_writable(weft_comm *comm, weft_comm **made)
{
    (void)made;
    /* More than is staged, so that no rank ends before rank 2 has read. */
    return post_gated(comm, 4 << 20, HOLD_WRITABLE);
}

static weft_comm *stream_stands(weft_comm *comm, weft_comm **made)
{
    (void)made;
    return post_gated(comm, 8, HOLD_STREAM);
}

/* As it is said of a rank that shows no wait: to ranks of other hosts only what
 * is known of it. */
static const char missing[] = "rank 3 has not entered";

static bool says(const char *text, const char *part)
{
    const char *unknown = "rank 3 is not known to have entered";
    if (part != missing || !spread_is_wide()) {
        return strstr(text, part);
    }
    /* Who tells shares its memory, or does not. */
    return strstr(text, unknown) ||
           (!spread_parts(2, 3) && strstr(text, missing));
}

static const scene scenes[] = {
    {"gather", gather_late, 3, {missing, NULL}},
    {"small sum", sum_late, 3, {missing, NULL}},
    {"message", message_late, 3, {"rank 3 has not ", NULL}},
    {"chain", long_chain, 3, {"rank 3 has not ", NULL}},
    {"other communicator", other_comm_late, 3, {missing, NULL}},
    {"circle", circle, 0, {"waits in recv #1 from rank ", "which waits here"}},
    {"small gate",
     small_gate_shut,
     2,
     {"rank 2 waits for chunk 3 of the ready gate of all_reduce #1 to reach "
      "epoch 7"}},
    {"large gate",
     large_gate_shut,
     2,
     {"rank 2 waits for chunk 3 of the ready gate of all_reduce #1 to reach "
      "epoch 7"}},
    {"writable gate",
     not_writable,
     2,
     {"rank 2 waits for chunk 3 of the writable gate of all_reduce #1 to reach "
      "epoch 7"}},
    {"stream",
     stream_stands,
     2,
     {"rank 2 waits for its stream to come to all_reduce #1: it stands at a "
      "gate, for chunk 3 to reach epoch 7"}},
};

/* The short time limit is that of the scene alone: on a busy machine so many
 * ranks take longer to meet. */
static int play(weft_comm *world, void *context)
{
    const scene *now = context;
    const weft_comm_config limits = {
        .size_bytes = sizeof(limits), .warn_ms = 500, .timeout_ms = 1000};
    weft_comm *comm, *made = NULL;
    weft_fault fault = {.size_bytes = sizeof(fault)};
    if (weft_comm_split(world, 0, 0, &limits, &comm) != WEFT_OK) {
        fprintf(stderr, "%s: %s\n", now->name, weft_error_text());
        return 1;
    }
    weft_comm *failed = now->act(comm, &made);
    bool right = true;
    while (right && fault.status == WEFT_OK) {
        right = weft_comm_get_fault(failed, &fault) == WEFT_OK;
        nap();
    }
    right =
        right && fault.status == WEFT_ERR_TIMEOUT && fault.rank == now->cause;
    for (size_t i = 0; i < WEFTI_COUNT_OF(now->parts) && now->parts[i]; i++) {
        right = right && says(fault.text, now->parts[i]);
    }
    if (!right) {
        fprintf(stderr, "%s: rank %d: fault of rank %d: %s\n", now->name,
                weft_comm_get_rank(comm), fault.rank, fault.text);
    }
    weft_comm_destroy(made);
    weft_comm_destroy(comm);
    return !right;
}

/* All scenes at once, each in a process: they wait most of the time. */
static void run_all(int (*run)(const struct world *world))
{
    pid_t pids[WEFTI_COUNT_OF(scenes)];
    int failures = 0, ended;
    for (size_t i = 0; i < WEFTI_COUNT_OF(scenes); i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            scene now = scenes[i];
            struct world world = {
                .nranks = RANKS, .call = play, .context = &now};
            _exit(run(&world) != 0);
        }
    }
    for (size_t i = 0; i < WEFTI_COUNT_OF(scenes); i++) {
        assert_int_equal(waitpid(pids[i], &ended, 0), pids[i]);
        failures += ended != 0;
    }
    assert_int_equal(failures, 0);
}

static void test_cause_of_threads_is_named(void **state)
{
    (void)state;
    run_all(world_run_threads);
}

static void test_cause_of_processes_is_named(void **state)
{
    (void)state;
    run_all(world_run_processes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cause_of_processes_is_named),
        cmocka_unit_test(test_cause_of_threads_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
