/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: whatever happens to a rank between launches of a graph, within one or
 * at the capture, all streams of the others drain, now and at later launches,
 * the cause is named, and no launch that was over without a fault is wrong.
 *
 * Method: processes, of which one does wrong or is killed. Each round's values
 * are others; a round counts as right if its communicator has no fault after
 * it. Argument: a seed.
 */
#include "comm/streams/streams.h"
#include "tests/comm/captured.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

enum {
    VICTIM = 1,
    COUNT = 3000, /* of several turns */
    GOOD_ROUNDS = 3,
    MOST_ROUNDS = 100000,
    LIMIT_MS = 1500
};

typedef enum strike {
    ABORT,       /* while the others' launches wait */
    KILL,        /* between launches */
    KILL_WITHIN, /* after a while, whatever is under way */
    LEAVE,       /* it destroys its communicator */
    LATE,        /* launches only when the others have warned of it */
    OTHER,       /* captures something else */
    POST,        /* posts what the others capture */
    SILENCE      /* does not capture */
} strike;

struct fault {
    const char *name;
    strike struck;
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

static bool has_fault(struct own *own)
{
    weft_fault found = {.size_bytes = sizeof(found)};
    scene_expect(own, weft_comm_get_fault(own->comm, &found) == WEFT_OK,
                 "get fault");
    return found.status != WEFT_OK;
}

static void check_fault(struct own *own)
{
    weft_fault found = {.size_bytes = sizeof(found)};
    scene_expect(own, weft_comm_get_fault(own->comm, &found) == WEFT_OK,
                 "get fault");
    if (found.status != fault->status || !strstr(found.text, fault->part)) {
        fprintf(stderr, "rank %d, %s: %s: \"%s\"\n", own->rank, fault->name,
                weft_status_text(found.status), found.text);
        own->failures++;
    }
}

/* round: what each rank sends, times its number + 1. */
static void fill(struct own *own, int round)
{
    int32_t *image = (void *)own->image;
    for (int i = 0; i < COUNT; i++) {
        image[i] = (own->rank + 1) * round;
    }
    scene_expect(own,
                 weft_device_copy(own->device, own->room[0], image,
                                  COUNT * sizeof(*image), NULL) == WEFT_OK,
                 "input");
}

static void check_sum(struct own *own, int round)
{
    const int32_t wanted = round * own->nranks * (own->nranks + 1) / 2;
    int32_t *image = (void *)own->image;
    bool right = true;
    scene_expect(own,
                 weft_device_copy(own->device, image, own->room[1],
                                  COUNT * sizeof(*image), NULL) == WEFT_OK,
                 "output");
    for (int i = 0; i < COUNT; i++) {
        right = right && image[i] == wanted;
    }
    scene_expect(own, right, "a wrong sum without a fault");
}

/* Until there is a fault, or for so many rounds. */
static void launch_rounds(captured *with, CUgraphExec exec, int rounds)
{
    struct own *own = with->own;
    bool failed = false;
    for (int round = 1; round <= rounds && !failed && !own->failures; round++) {
        fill(own, round);
        captured_launch(with, exec);
        captured_wait(with);
        failed = has_fault(own);
        if (!failed) {
            check_sum(own, round);
        }
    }
}

static bool has_warned(struct own *own)
{
    pthread_mutex_lock(&own->comm->engine->lock);
    const bool warned = own->comm->streams->launches.warned;
    pthread_mutex_unlock(&own->comm->engine->lock);
    return warned;
}

/* A launch that waits for the victim, and is right in the end. */
static void launch_late(captured *with, CUgraphExec exec)
{
    struct own *own = with->own;
    const bool victim = own->rank == VICTIM;
    void *freed = NULL;
    fill(own, GOOD_ROUNDS + 1);
    scene_expect(own, weft_device_alloc(own->device, 64, &freed) == WEFT_OK,
                 "memory");
    if (!victim) {
        captured_launch(with, exec);
        weft_device_free(own->device, freed); /* which waits for no launch */
        while (!has_warned(own)) {
            sched_yield();
        }
    }
    scene_expect(own, weft_barrier(own->comm, NULL) == WEFT_OK, "barrier");
    if (victim) {
        captured_launch(with, exec);
    }
    captured_wait(with);
    if (victim) {
        weft_device_free(own->device, freed);
    }
    scene_expect(own, !has_fault(own), "fault of a late rank");
    check_sum(own, GOOD_ROUNDS + 1);
}

/* What the victim does once all have launched well; whether it goes on. */
static bool strike_out(captured *with, CUgraphExec exec)
{
    const struct itimerval soon = {.it_value.tv_usec = fault->after_us};
    switch (fault->struck) {
    case KILL:
        raise(SIGKILL);
        return false;
    case KILL_WITHIN:
        signal(SIGALRM, die);
        scene_expect(with->own, setitimer(ITIMER_REAL, &soon, NULL) == 0,
                     "timer");
        launch_rounds(with, exec, MOST_ROUNDS);
        return false;
    default:
        return false;
    }
}

/* The survivors' part after that. */
static void survive(captured *with, CUgraphExec exec)
{
    if (fault->struck == ABORT) {
        captured_launch(with, exec);
        captured_launch(with, exec);
        scene_expect(with->own, weft_barrier(with->own->comm, NULL) == WEFT_OK,
                     "barrier");
        captured_wait(with);
    } else {
        launch_rounds(with, exec, MOST_ROUNDS);
    }
    check_fault(with->own);
}

static CUgraphExec capture(captured *with)
{
    struct own *own = with->own;
    weft_op op = scene_all_reduce(own, own->room[0], COUNT);
    const bool victim = own->rank == VICTIM;
    weft_status status = WEFT_OK;
    CUgraphExec exec = NULL;
    op.timeout_ms = LIMIT_MS;
    op.count -= victim && fault->struck == OTHER;
    if (victim && fault->struck == POST) {
        (void)!weft_op_post(&op, 0, own->comm, own->stream);
    } else if (!victim || fault->struck != SILENCE) {
        exec = captured_op(with, &op, &status);
        scene_expect(own,
                     status == WEFT_OK ||
                         (fault->struck >= OTHER && status == fault->status),
                     "capture");
    }
    return exec;
}

/* A new communicator of those that are left, and a graph of its own. */
static void go_on(captured *with)
{
    struct own *own = with->own;
    weft_comm *made = NULL;
    scene_expect(own, weft_comm_shrink(own->comm, &made) == WEFT_OK, "shrink");
    if (made) {
        struct own its = *own;
        captured beside = *with;
        its.comm = made;
        its.rank = weft_comm_get_rank(made);
        its.nranks = weft_comm_get_nranks(made);
        beside.own = &its;
        CUgraphExec exec = capture(&beside);
        launch_rounds(&beside, exec, GOOD_ROUNDS);
        scene_expect(&its, !has_fault(&its), "fault of what is left");
        captured_expect(&beside, cuGraphExecDestroy(exec), "exec");
        own->failures = its.failures;
        weft_comm_destroy(made);
    }
}

static void run_captured(captured *with)
{
    struct own *own = with->own;
    CUgraphExec exec = capture(with);
    const bool captures = fault->struck < OTHER;
    if (captures) {
        launch_rounds(with, exec, GOOD_ROUNDS);
        scene_expect(own, !has_fault(own), "fault of good rounds");
    }
    if (fault->struck == LATE) {
        launch_late(with, exec);
    } else if (own->rank != VICTIM) {
        survive(with, exec);
    } else if (fault->struck == ABORT) {
        scene_expect(own, weft_barrier(own->comm, NULL) == WEFT_OK, "barrier");
        scene_expect(own, weft_comm_abort(own->comm) == WEFT_OK, "abort");
    } else if (captures) {
        (void)strike_out(with, exec);
    } else {
        while (!has_fault(own)) {
        }
    }
    const bool over = fault->struck != LATE && own->rank != VICTIM;
    for (int i = 0; i < 3 && exec && over; i++) {
        captured_launch(with, exec); /* which nothing holds up any more */
    }
    captured_wait(with);
    if (fault->struck == KILL || fault->struck == KILL_WITHIN) {
        go_on(with);
    }
    if (exec) {
        captured_expect(with, cuGraphExecDestroy(exec), "exec");
    }
}

static int run_fault(weft_comm *comm, void *context)
{
    struct scene *scene = context;
    struct own own;
    captured with;
    scene_init(&own, comm, scene->devices[weft_comm_get_rank(comm)]);
    captured_init(&with, &own);
    run_captured(&with);
    captured_fini(&with);
    (void)!weft_stream_wait(own.stream); /* it may have an operation */
    scene_fini(&own);
    return own.failures;
}

static void run_faulty(const struct fault *given)
{
    struct scene scene = {0};
    const struct world world = {
        .nranks = 3,
        .config = {.timeout_ms = 1000 * SCENE_DEADLINE_S,
                   .warn_ms = given->struck == LATE ? 200 : 30000},
        .call = run_fault,
        .context = &scene,
        .configure = scene_open_device,
        .after = scene_close_device,
        .deadline_s = SCENE_DEADLINE_S};
    fault = given;
    const bool kills = fault->struck == KILL || fault->struck == KILL_WITHIN;
    printf("%s %d\n", fault->name, fault->after_us);
    fflush(stdout);
    assert_int_equal(world_run_killed(&world, kills ? VICTIM : -1), 0);
}

static void test_captured_rank_gone_launches_drain(void **state)
{
    (void)state;
    static const struct fault all[] = {
        {"abort", ABORT, WEFT_ERR_ABORTED, "rank 1 aborted \"world\"", 0},
        {"kill", KILL, WEFT_ERR_PEER, "rank 1 has died", 0},
        {"leave", LEAVE, WEFT_ERR_PEER, "rank 1 has destroyed its comm", 0}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        run_faulty(&all[i]);
    }
}

static void test_captured_rank_dies_within_nothing_wrong_is_right(void **state)
{
    (void)state;
    static const int after_us[] = {100, 1000, 3000, 8000, 20000, 50000};
    for (size_t i = 0; i < sizeof(after_us) / sizeof(after_us[0]); i++) {
        const struct fault one = {"kill within", KILL_WITHIN, WEFT_ERR_PEER,
                                  "rank 1 has died", after_us[i]};
        run_faulty(&one);
    }
}

static void test_captured_late_rank_is_warned_of(void **state)
{
    (void)state;
    const struct fault late = {"late", LATE, WEFT_OK, "", 0};
    run_faulty(&late);
}

static void test_captured_disagreement_named_at_the_capture(void **state)
{
    (void)state;
    static const struct fault all[] = {
        {"other", OTHER, WEFT_ERR_MISMATCH, "of 2999 i32", 0},
        {"post", POST, WEFT_ERR_MISMATCH, "by a graph that captures it", 0},
        {"silence", SILENCE, WEFT_ERR_TIMEOUT, "all_reduce #", 0}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        run_faulty(&all[i]);
    }
}

int main(int count, char **arguments)
{
    const char *seed = count > 1 ? arguments[1] : "7";
    setenv("WEFT_FAKE_GPU_SEED", seed, 1);
    printf("seed %s\n", seed);
    scene_set("streams");
    setenv("WEFT_CHUNK_BYTES", "4096", 0); /* several turns each */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_captured_rank_gone_launches_drain),
        cmocka_unit_test(test_captured_rank_dies_within_nothing_wrong_is_right),
        cmocka_unit_test(test_captured_late_rank_is_warned_of),
        cmocka_unit_test(test_captured_disagreement_named_at_the_capture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
