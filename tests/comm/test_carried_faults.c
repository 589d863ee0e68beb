/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: where a route fails, hangs or a rank does, every stream drains, every
 * survivor has the cause by name, and what is left goes on by the route.
 *
 * Method: processes, of which one may be killed, between operations and in the
 * middle of one; the stand-in for NCCL does wrong on demand
 * (tests/fake/fake_nccl.h). Argument: nccl or streams.
 */
#include "base/error.h"
#include "tests/comm/carried_scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

enum { LIMIT_MS = 1500 /* of what never ends */ };

static bool by_nccl;

enum { VICTIM = 1, POSTS = 4, POSTS_MOST = 100000, COUNT = 1000 };

typedef enum strike {
    ABORT,
    KILL,
    KILL_WITHIN, /* while operations run */
    DEVICE,      /* whose demand is of the driver of this rank alone */
    MISMATCH,
    PLACES,
    SILENCE,
    NOTHING
} strike;

/* struck: what rank 1 does in the place of its third operation. The first sum
 * and the first messages are NCCL's first groups; what fails in the last group,
 * no later call tells. */
struct fault {
    const char *name;
    strike struck;
    const char *demand; /* of the stand-in */
    weft_status status;
    const char *part; /* of the text on all survivors */
    int after_us;
};

static const struct fault *fault;

static void die(int number)
{
    (void)number;
    raise(SIGKILL);
}

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
    case KILL_WITHIN: {
        const struct itimerval soon = {.it_value.tv_usec = fault->after_us};
        signal(SIGALRM, die);
        scene_expect(own, setitimer(ITIMER_REAL, &soon, NULL) == 0, "timer");
        return true;
    }
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

static void break_device(int rank, void *context)
{
    (void)context;
    if (fault->struck == DEVICE && rank == VICTIM) {
        setenv("WEFT_FAKE_GPU_ERROR", fault->demand, 1);
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

/* A stream that has all it needs may come past an operation of which another
 * rank wanted something else, before that is found. */
static weft_status find_late(struct own *own)
{
    weft_fault found = {.size_bytes = sizeof(found)};
    await_fault(own);
    weft_status status = weft_comm_get_fault(own->comm, &found);
    return status == WEFT_OK ? wefti_error(found.status, "%s", found.text)
                             : status;
}

static void check_fault(struct own *own, weft_status status)
{
    /* And NCCL may have ended it here before it fails elsewhere. */
    if (status == WEFT_OK && fault->struck == (by_nccl ? NOTHING : MISMATCH)) {
        status = find_late(own);
    }
    if (status != fault->status || !strstr(weft_error_text(), fault->part)) {
        fprintf(stderr, "rank %d, %s: %s: \"%s\"\n", own->rank, fault->name,
                weft_status_text(status), weft_error_text());
        own->failures++;
    }
}

/* What is left goes on by the route: of one rank only NCCL. */
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
    scene_expect(&own, scene_is_carried(&own, &op), "another route");
    scene_fill(&own, own.room[0], COUNT);
    const bool within = fault->struck == KILL_WITHIN || fault->struck == DEVICE;
    const int most = within ? POSTS_MOST : POSTS;
    for (int i = 0; i < most && posts && status == WEFT_OK; i++) {
        if (i == 2 && own.rank == VICTIM) {
            posts = strike_out(&own);
        }
        /* The first two end well, however slow this machine is. */
        op.timeout_ms = i < 2 || within ? 0 : LIMIT_MS;
        status = posts ? weft_op_post(&op, 0, comm, own.stream) : WEFT_OK;
        if ((i == 1 || (within && i % 8 == 7)) && status == WEFT_OK) {
            status = weft_stream_wait(own.stream);
        }
    }
    if (own.rank == VICTIM && silent) {
        await_fault(&own);
    } else if (own.rank == VICTIM &&
               (fault->struck == ABORT || fault->struck == DEVICE)) {
        (void)!weft_stream_wait(own.stream); /* it may hold nothing more */
    } else {
        check_fault(&own,
                    status == WEFT_OK ? weft_stream_wait(own.stream) : status);
    }
    if (fault->struck == KILL || fault->struck == KILL_WITHIN) {
        go_on(&own);
    }
    scene_fini(&own);
    return own.failures;
}

static void run_faulty(const struct fault *given)
{
    struct scene scene = {0};
    const struct world world = {
        .nranks = 3,
        .config = {.timeout_ms = 1000 * SCENE_DEADLINE_S, .warn_ms = 30000},
        .call = run_fault,
        .context = &scene,
        .before = break_device,
        .configure = scene_open_device,
        .after = scene_close_device,
        .deadline_s = SCENE_DEADLINE_S};
    fault = given;
    const bool kills = fault->struck == KILL || fault->struck == KILL_WITHIN;
    if (fault->demand && fault->struck != DEVICE) {
        setenv("WEFT_FAKE_NCCL_FAULT", fault->demand, 1);
    }
    printf("%s\n", fault->name);
    assert_int_equal(world_run_killed(&world, kills ? VICTIM : -1), 0);
    unsetenv("WEFT_FAKE_NCCL_FAULT");
}

static void test_carried_faults_streams_drain_cause_named(void **state)
{
    (void)state;
    const struct fault all[] = {
        {"abort", ABORT, NULL, WEFT_ERR_ABORTED, "rank 1 aborted \"world\"", 0},
        {"kill", KILL, NULL, WEFT_ERR_PEER, "rank 1 has died", 0},
        {"mismatch", MISMATCH, NULL, WEFT_ERR_MISMATCH, "of 1000 f32", 0},
        {"places", PLACES, NULL, WEFT_ERR_MISMATCH,
         by_nccl ? "sum, by nccl" : "sum, by streams", 0},
        {"silence", SILENCE, NULL, WEFT_ERR_TIMEOUT, "all_reduce #", 0}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        run_faulty(&all[i]);
    }
}

static void test_nccl_faults_streams_drain_cause_named(void **state)
{
    (void)state;
    static const struct fault all[] = {
        {"error", NOTHING, "error@6:1", WEFT_ERR_PEER,
         "rank 1's NCCL has failed: ncclCommGetAsyncError: remote", 0},
        {"hang", NOTHING, "hang@5", WEFT_ERR_TIMEOUT,
         "NCCL has not ended it within 1500 ms", 0},
        {"reject", NOTHING, "reject@5:1", WEFT_ERR_SYSTEM,
         "rank 1 could not hand it to NCCL: all_reduce: internal error", 0}};
    for (size_t i = 0; by_nccl && i < sizeof(all) / sizeof(all[0]); i++) {
        run_faulty(&all[i]);
    }
}

static void test_carried_rank_dies_within_streams_drain(void **state)
{
    (void)state;
    static const int after_us[] = {100, 500, 2000, 5000, 20000, 60000};
    /* A sanitizer sees in two moments what it would in six. */
    const size_t by = getenv("WEFT_TEST_FEW") ? 3 : 1;
    for (size_t i = 0; i < sizeof(after_us) / sizeof(after_us[0]); i += by) {
        const struct fault one = {
            "kill within", KILL_WITHIN,       NULL,
            WEFT_ERR_PEER, "rank 1 has died", after_us[i]};
        run_faulty(&one);
    }
}

static void test_carried_device_fails_rank_named(void **state)
{
    (void)state;
    /* At a call that an operation makes: behind all of them its rank alone
     * would know. */
    static const char *const demands[] = {"700@150", "719@230", "700@400"};
    const char *driver = getenv("WEFT_TEST_DRIVER");
    if (driver && strcmp(driver, "system") == 0) {
        print_message("left out: a GPU that fails on demand\n");
        return;
    }
    for (size_t i = 0; i < sizeof(demands) / sizeof(demands[0]); i++) {
        const struct fault one = {"device",        DEVICE,     demands[i],
                                  WEFT_ERR_SYSTEM, "rank 1's", 0};
        run_faulty(&one);
    }
}

/* ---- a stream that comes to its operation when the communicator is gone ----
 */

static weft_gate *held;
static weft_stream *late;

static int run_held(weft_comm *comm, void *context)
{
    struct scene *scene = context;
    struct own own;
    scene_init(&own, comm, scene->devices[weft_comm_get_rank(comm)]);
    weft_op op = scene_all_reduce(&own, own.room[0], COUNT);
    op.timeout_ms = LIMIT_MS;
    scene_expect(&own, scene_is_carried(&own, &op), "another route");
    if (own.rank == VICTIM) {
        scene_expect(&own,
                     weft_gate_create(own.device, 1, &held) == WEFT_OK &&
                         weft_gate_wait(held, 0, 1, own.stream) == WEFT_OK,
                     "gate");
    }
    scene_expect(&own, weft_op_post(&op, 0, comm, own.stream) == WEFT_OK,
                 "post");
    if (own.rank == VICTIM) {
        late = own.stream; /* which uses the rooms, too */
        free(own.image);
        free(own.wanted);
    } else {
        scene_fini(&own);
    }
    return own.failures;
}

static int let_go_late(int rank, void *context)
{
    struct own own = {.rank = rank};
    if (late) { /* with the cause that was found first */
        scene_expect(&own, weft_gate_signal(held, 0, 1, NULL) == WEFT_OK,
                     "signal");
        scene_expect(&own,
                     weft_stream_wait(late) < 0 &&
                         (strstr(weft_error_text(), "rank 1 waits for its") ||
                          strstr(weft_error_text(), "rank 1 destroyed")),
                     "late");
        weft_stream_destroy(late);
        weft_gate_destroy(held);
    }
    return own.failures + scene_close_device(rank, context);
}

static void test_streams_late_stream_passes_what_is_gone(void **state)
{
    (void)state;
    struct scene scene = {0};
    const struct world world = {
        .nranks = 3,
        .config = {.timeout_ms = 1000 * SCENE_DEADLINE_S, .warn_ms = 30000},
        .call = run_held,
        .context = &scene,
        .configure = scene_open_device,
        .after = let_go_late,
        .deadline_s = SCENE_DEADLINE_S};
    if (!by_nccl) {
        assert_int_equal(world_run_processes(&world), 0);
    }
}

int main(int count, char **arguments)
{
    by_nccl = count > 1 && strcmp(arguments[1], "nccl") == 0;
    scene_set(by_nccl ? "nccl" : "streams");
    setenv("WEFT_CHUNK_BYTES", "4096", 0); /* several turns each */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_carried_faults_streams_drain_cause_named),
        cmocka_unit_test(test_nccl_faults_streams_drain_cause_named),
        cmocka_unit_test(test_carried_rank_dies_within_streams_drain),
        cmocka_unit_test(test_carried_device_fails_rank_named),
        cmocka_unit_test(test_streams_late_stream_passes_what_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
