/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: where NCCL cannot be used all ranks take weft's own steps, and say why.
 * Where it fails, hangs or a rank does, every stream drains, every survivor
 * has the cause by name, and what is left goes on by NCCL.
 *
 * Method: processes, of which one may be killed; the stand-in for NCCL does
 * wrong on demand (tests/fake/fake_nccl.h), or is another library.
 */
#include "tests/comm/nccl_scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

enum { LIMIT_MS = 1500 /* of what never ends */ };

/* ---- where it cannot be used ----------------------------------------------
 */

struct refusal {
    const char *name, *value; /* of the environment */
    int rank;                 /* whose; -1: all */
    const char *why;          /* part of the cause that all tell */
    bool hosted, shared;
};

static const struct refusal *refusal;

static void set_refusal(int rank, void *context)
{
    (void)context;
    if (refusal->name && (refusal->rank < 0 || refusal->rank == rank)) {
        setenv(refusal->name, refusal->value, 1);
    }
}

static int run_refused(weft_comm *comm, void *context)
{
    struct scene *scene = context;
    struct own own = {.comm = comm,
                      .rank = weft_comm_get_rank(comm),
                      .nranks = weft_comm_get_nranks(comm)};
    int32_t data = own.rank + 1, sum = 0;
    if (!scene->hosted) {
        scene_init(&own, comm, scene->devices[own.rank]);
    }
    scene_expect(&own, comm->twin == NULL, "a twin all the same");
    if (!strstr(comm->route_why, refusal->why)) {
        fprintf(stderr, "rank %d: \"%s\" is not in \"%s\"\n", own.rank,
                refusal->why, comm->route_why);
        own.failures++;
    }
    scene_expect(&own,
                 weft_allreduce(&data, &sum, 1, WEFT_DTYPE_I32, WEFT_REDOP_SUM,
                                comm, NULL) == WEFT_OK &&
                     sum == own.nranks * (own.nranks + 1) / 2,
                 "host memory");
    if (!scene->hosted) {
        const weft_op op = scene_all_reduce(&own, own.room[0], 200);
        scene_expect(&own, strcmp(scene_route(&own, &op), "nccl") != 0, "NCCL");
        scene_fill(&own, own.room[0], 200);
        scene_expect(&own, weft_op_post(&op, 0, comm, own.stream) == WEFT_OK,
                     "post");
        scene_expect(&own, weft_stream_wait(own.stream) == WEFT_OK, "stream");
        scene_check_sum(&own, own.room[1], 200);
        scene_fini(&own);
    }
    return own.failures;
}

static void test_nccl_not_possible_steps_are_taken_cause_named(void **state)
{
    (void)state;
    static const struct refusal all[] = {
        {"WEFT_NCCL", "/nowhere/libnccl.so.2", -1,
         "rank 0: no NCCL: /nowhere/libnccl.so.2", false, false},
        {"WEFT_NCCL", "/nowhere/libnccl.so.2", 1, "rank 1: no NCCL", false,
         false},
        {"WEFT_NCCL", FAKE_NCCL_LACKING, 1,
         "has no ncclCommAbort, ncclRedOpDestroy", false, false},
        {"WEFT_FAKE_NCCL_VERSION", "21310", -1,
         "is NCCL 2.13.10: needed is 2.14 or later", false, false},
        {"WEFT_FAKE_NCCL_VERSION", "22304", 1,
         "rank 0 has NCCL 2.28.9, rank 1 2.23.4", false, false},
        {NULL, NULL, -1, "ranks 0 and 1 have one GPU, GPU-", false, true},
        {NULL, NULL, -1, "rank 0: its device is none", true, false},
        {"WEFT_FAKE_NCCL_FAULT", "refuse:1", -1,
         "rank 1 could not join NCCL: ncclCommInitRankConfig", false, false},
        {"WEFT_FAKE_NCCL_FAULT", "stuck:1", -1,
         "ncclCommInitRankConfig has not ended", false, false},
        {"WEFT_FAKE_NCCL_FAULT", "reject@1:1", -1,
         "rank 1 could not use NCCL: a first sum: ncclAllReduce", false, false},
        {"WEFT_FAKE_NCCL_FAULT", "wrong@1:1", -1,
         "rank 1 could not use NCCL: a first sum gave", false, false},
        {"WEFT_FAKE_NCCL_FAULT", "hang@1:1", -1,
         "a first sum has not ended within", false, false}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct scene scene = {.hosted = all[i].hosted, .shared = all[i].shared};
        struct world world = {.nranks = 2,
                              .config = {.timeout_ms = 4 * LIMIT_MS},
                              .call = run_refused,
                              .context = &scene,
                              .before = set_refusal,
                              .configure = scene_open_device,
                              .after = scene_close_device,
                              .deadline_s = SCENE_DEADLINE_S};
        refusal = &all[i];
        printf("%s\n", refusal->why);
        assert_int_equal(world_run_processes(&world), 0);
    }
}

static void test_nccl_setting_unknown_refused_by_name(void **state)
{
    (void)state;
    wefti_tuning tuning;
    setenv("WEFT_ROUTE", "streams", 1);
    assert_int_equal(wefti_tuning_read(&tuning), WEFT_ERR_INVALID);
    assert_string_equal(weft_error_text(),
                        "WEFT_ROUTE=streams: allowed is steps or nccl");
    setenv("WEFT_ROUTE", "nccl", 1);
    assert_int_equal(wefti_tuning_read(&tuning), WEFT_OK);
    assert_int_equal(tuning.route, WEFTI_ROUTE_NCCL);
}

/* ---- faults ---------------------------------------------------------------
 */

enum { VICTIM = 1, POSTS = 4, COUNT = 1000 };

typedef enum strike { ABORT, KILL, MISMATCH, PLACES, SILENCE, NOTHING } strike;

/* struck: what rank 1 does in the place of its third operation. The first sum
 * counts as NCCL's first group. */
struct fault {
    const char *name;
    strike struck;
    const char *demand; /* of the stand-in */
    weft_status status;
    const char *part; /* of the text on all survivors */
};

static const struct fault *fault;

/* Whether it goes on. */
static bool strike_out(struct own *own)
{
    weft_op op = scene_all_reduce(own, own->room[0], COUNT);
    int32_t *host = (void *)own->image;
    switch (fault->struck) {
    case ABORT:
        scene_expect(own, weft_comm_abort(own->comm) == WEFT_OK, "abort");
        return false;
    case KILL:
        raise(SIGKILL);
        return false;
    case MISMATCH:
        op.dtype = WEFT_DTYPE_F32;
        (void)!weft_op_post(&op, 0, own->comm, own->stream);
        return false;
    case PLACES:
        op.send = host;
        op.recv = own->wanted;
        (void)!weft_op_post(&op, 0, own->comm, own->stream);
        return false;
    case SILENCE:
        return false;
    default:
        return true;
    }
}

/* Until it has failed for this rank too. */
static void await_fault(struct own *own)
{
    weft_fault found = {.size_bytes = sizeof(found)};
    for (int i = 0; i < 1000 * SCENE_DEADLINE_S && found.status == WEFT_OK;
         i++) {
        scene_expect(own, weft_comm_get_fault(own->comm, &found) == WEFT_OK,
                     "fault");
        struct timespec pause = {.tv_nsec = 1000000};
        (void)nanosleep(&pause, NULL);
    }
}

static void check_fault(struct own *own, weft_status status)
{
    if (status != fault->status || !strstr(weft_error_text(), fault->part)) {
        fprintf(stderr, "rank %d, %s: %s: \"%s\"\n", own->rank, fault->name,
                weft_status_text(status), weft_error_text());
        own->failures++;
    }
}

/* What is left goes on by NCCL. */
static void go_on(struct own *own)
{
    weft_comm *made = NULL;
    scene_expect(own, weft_comm_shrink(own->comm, &made) == WEFT_OK, "shrink");
    if (made) {
        weft_stream *stream = own->stream; /* it keeps its error */
        scene_expect(
            own, weft_stream_create(own->device, 0, &own->stream) == WEFT_OK,
            "stream");
        scene_run_made(own, made);
        weft_stream_destroy(own->stream);
        own->stream = stream;
        weft_comm_destroy(made);
    }
}

static int run_fault(weft_comm *comm, void *context)
{
    struct scene *scene = context;
    struct own own;
    scene_init(&own, comm, scene->devices[weft_comm_get_rank(comm)]);
    weft_op op = scene_all_reduce(&own, own.room[0], COUNT);
    const bool silent = fault->struck == SILENCE;
    weft_status status = WEFT_OK;
    bool posts = true;
    scene_expect(&own, strcmp(scene_route(&own, &op), "nccl") == 0,
                 "another route");
    scene_fill(&own, own.room[0], COUNT);
    for (int i = 0; i < POSTS && posts && status == WEFT_OK; i++) {
        if (i == 2 && own.rank == VICTIM) {
            posts = strike_out(&own);
        }
        /* The first two end well, however slow this machine is. */
        op.timeout_ms = i < 2 ? 0 : LIMIT_MS;
        status = posts ? weft_op_post(&op, 0, comm, own.stream) : WEFT_OK;
        if (i == 1 && status == WEFT_OK) {
            status = weft_stream_wait(own.stream);
        }
    }
    if (own.rank == VICTIM && silent) {
        await_fault(&own);
    } else if (own.rank == VICTIM && fault->struck == ABORT) {
        (void)!weft_stream_wait(own.stream); /* it may hold nothing more */
    } else {
        check_fault(&own,
                    status == WEFT_OK ? weft_stream_wait(own.stream) : status);
    }
    if (fault->struck == KILL) {
        go_on(&own);
    }
    scene_fini(&own);
    return own.failures;
}

static void run_faulty(const struct fault *given)
{
    struct scene scene = {0};
    struct world world = {
        .nranks = 3,
        .config = {.timeout_ms = 1000 * SCENE_DEADLINE_S, .warn_ms = 30000},
        .call = run_fault,
        .context = &scene,
        .configure = scene_open_device,
        .after = scene_close_device};
    world_processes started;
    fault = given;
    if (fault->demand) {
        setenv("WEFT_FAKE_NCCL_FAULT", fault->demand, 1);
    }
    printf("%s\n", fault->name);
    world_start_processes(&world, &started);
    assert_int_equal(world_finish_survivors(&started, SCENE_DEADLINE_S), 0);
    unsetenv("WEFT_FAKE_NCCL_FAULT");
    for (int rank = 0; rank < world.nranks; rank++) {
        const int ended = started.exit_status[rank];
        if (fault->struck == KILL && rank == VICTIM) {
            assert_true(WIFSIGNALED(ended));
        } else {
            assert_true(WIFEXITED(ended));
            assert_int_equal(WEXITSTATUS(ended), 0);
        }
    }
}

static void test_nccl_faults_streams_drain_cause_named(void **state)
{
    (void)state;
    static const struct fault all[] = {
        {"abort", ABORT, NULL, WEFT_ERR_ABORTED, "rank 1 aborted \"world\""},
        {"kill", KILL, NULL, WEFT_ERR_PEER, "rank 1 has died"},
        {"mismatch", MISMATCH, NULL, WEFT_ERR_MISMATCH, "of 1000 f32"},
        {"places", PLACES, NULL, WEFT_ERR_MISMATCH, "sum, by nccl"},
        {"silence", SILENCE, NULL, WEFT_ERR_TIMEOUT, "all_reduce #"},
        {"error", NOTHING, "error@4:1", WEFT_ERR_PEER,
         "rank 1's NCCL has failed: ncclCommGetAsyncError: remote"},
        {"hang", NOTHING, "hang@4", WEFT_ERR_TIMEOUT,
         "NCCL has not ended it within 1500 ms"},
        {"reject", NOTHING, "reject@4:1", WEFT_ERR_SYSTEM,
         "rank 1 could not hand it to NCCL: all_reduce: internal error"}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        run_faulty(&all[i]);
    }
}

int main(void)
{
    scene_set();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nccl_setting_unknown_refused_by_name),
        cmocka_unit_test(test_nccl_not_possible_steps_are_taken_cause_named),
        cmocka_unit_test(test_nccl_faults_streams_drain_cause_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
