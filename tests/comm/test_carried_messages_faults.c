/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: where messages that NCCL carries do not go together, NCCL fails or
 * hangs, or a rank does, every stream drains and every survivor has the cause
 * by name.
 *
 * Method: processes in a ring, each sending to the next in one list with what
 * it receives. One of them does something else, or is killed, between lists and
 * in the middle of one; the stand-in does wrong on demand
 * (tests/fake/fake_nccl.h). And threads, of which one lets a list wait for
 * longer than its messages may take.
 */
#include "tests/comm/carried_scene.h"
#include "weft/p2p.h"

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

enum {
    RANKS = 3,
    VICTIM = 1,
    LISTS = 4,
    LISTS_MOST = 100000,
    COUNT = 1000,
    LIMIT_MS = 1500 /* of what never ends */
};

typedef enum strike {
    ABORT,
    KILL,
    KILL_WITHIN, /* while lists run */
    SIZE,
    PLACES, /* its buffers are the host's */
    ORDER,  /* a collective before the list, which the others have after it */
    SILENCE,
    NOTHING
} strike;

/* struck: what rank 1 does in the place of its third list. The first sum and
 * the first messages are NCCL's first groups. */
struct fault {
    const char *name;
    strike struck;
    const char *demand; /* of the stand-in */
    weft_status status;
    const char *part; /* of the text on all survivors */
    int after_us;
};

static const struct fault *fault;
static weft_request *begun; /* a collective, on another stream */

static weft_status post_list(struct own *own, void *send, void *recv,
                             size_t count, uint64_t timeout_ms)
{
    weft_p2p list[2];
    for (int i = 0; i < 2; i++) {
        list[i] = (weft_p2p){.size_bytes = sizeof(list[i]),
                             .kind = i ? WEFT_P2P_RECV : WEFT_P2P_SEND,
                             .buffer = i ? recv : send,
                             .count = count,
                             .dtype = WEFT_DTYPE_I32,
                             .peer = (own->rank + (i ? own->nranks - 1 : 1)) %
                                     own->nranks,
                             .timeout_ms = timeout_ms};
    }
    return weft_p2p_post(list, 2, own->comm, own->stream);
}

static void die(int number)
{
    (void)number;
    raise(SIGKILL);
}

/* Whether it goes on. */
static bool strike_out(struct own *own)
{
    weft_op sum = scene_all_reduce(own, own->room[0], COUNT);
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
    case SIZE:
        (void)!post_list(own, own->room[0], own->room[1], COUNT / 2, 0);
        return false;
    case PLACES:
        (void)!post_list(own, own->image, own->wanted, COUNT, 0);
        return false;
    case ORDER:
        scene_expect(own, weft_op_begin(&sum, 0, own->comm, &begun) == WEFT_OK,
                     "sum");
        (void)!post_list(own, own->room[0], own->room[1], COUNT, 0);
        return false;
    case SILENCE:
        return false;
    default:
        return true;
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

static void check_what_came(struct own *own)
{
    const int32_t from = (own->rank + own->nranks - 1) % own->nranks + 1;
    int32_t *image = (void *)own->image;
    scene_expect(own,
                 weft_device_copy(own->device, image, own->room[1],
                                  COUNT * sizeof(*image), NULL) == WEFT_OK &&
                     image[0] == from && image[COUNT - 1] == from,
                 "wrong message before the fault");
}

static int run_fault(weft_comm *comm, void *context)
{
    struct scene *scene = context;
    struct own own;
    scene_init(&own, comm, scene->devices[weft_comm_get_rank(comm)]);
    const bool within = fault->struck == KILL_WITHIN;
    const int most = within ? LISTS_MOST : LISTS;
    weft_status status = WEFT_OK;
    bool posts = true;
    scene_fill(&own, own.room[0], COUNT);
    for (int i = 0; i < most && posts && status == WEFT_OK; i++) {
        if (i == 2 && own.rank == VICTIM) {
            posts = strike_out(&own);
        }
        /* The first two end well, however slow this machine is. */
        status = posts ? post_list(&own, own.room[0], own.room[1], COUNT,
                                   i < 2 || within ? 0 : LIMIT_MS)
                       : WEFT_OK;
        if ((i == 1 || (within && i % 8 == 7)) && status == WEFT_OK) {
            status = weft_stream_wait(own.stream);
        }
        if (i == 1 && status == WEFT_OK) {
            check_what_came(&own);
        }
    }
    if (own.rank != VICTIM || fault->struck == NOTHING) {
        check_fault(&own,
                    status == WEFT_OK ? weft_stream_wait(own.stream) : status);
    } else {
        weft_fault found = {.size_bytes = sizeof(found)};
        while (weft_comm_get_fault(comm, &found) == WEFT_OK &&
               found.status == WEFT_OK) {
        }
        (void)!weft_stream_wait(own.stream); /* it may hold nothing more */
        weft_request_destroy(begun);
    }
    scene_fini(&own);
    return own.failures;
}

static void run_faulty(const struct fault *given)
{
    struct scene scene = {0};
    const struct world world = {
        .nranks = RANKS,
        .config = {.timeout_ms = 1000 * SCENE_DEADLINE_S, .warn_ms = 30000},
        .call = run_fault,
        .context = &scene,
        .configure = scene_open_device,
        .after = scene_close_device,
        .deadline_s = SCENE_DEADLINE_S};
    fault = given;
    const bool kills = fault->struck == KILL || fault->struck == KILL_WITHIN;
    if (fault->demand) {
        setenv("WEFT_FAKE_NCCL_FAULT", fault->demand, 1);
    }
    printf("%s\n", fault->name);
    assert_int_equal(world_run_killed(&world, kills ? VICTIM : -1), 0);
    unsetenv("WEFT_FAKE_NCCL_FAULT");
}

static void test_messages_that_differ_cause_named(void **state)
{
    (void)state;
    static const struct fault all[] = {
        {"size", SIZE, NULL, WEFT_ERR_MISMATCH, "of 500 i32", 0},
        {"places", PLACES, NULL, WEFT_ERR_MISMATCH, "of 1000 i32, by nccl", 0},
        {"order", ORDER, NULL, WEFT_ERR_MISMATCH,
         "of 1000 i32, by nccl behind 1 collectives", 0},
        {"silence", SILENCE, NULL, WEFT_ERR_TIMEOUT, "rank 1 has not ", 0}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        run_faulty(&all[i]);
    }
}

/* An error is told by the call that is in progress then, or when NCCL is asked.
 */
static void test_messages_nccl_fails_cause_named(void **state)
{
    (void)state;
    static const struct fault all[] = {
        {"error", NOTHING, "error@5:1", WEFT_ERR_PEER,
         "remote process exited or there was a network error", 0},
        {"hang", NOTHING, "hang@5", WEFT_ERR_TIMEOUT,
         "NCCL has not ended it within 1500 ms, though both ranks have", 0},
        {"reject", NOTHING, "reject@5:1", WEFT_ERR_SYSTEM,
         "rank 1 could not hand it to NCCL: messages: internal error", 0}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        run_faulty(&all[i]);
    }
}

static void test_messages_rank_dies_streams_drain(void **state)
{
    (void)state;
    static const int after_us[] = {100, 2000, 20000};
    const struct fault ended[] = {
        {"abort", ABORT, NULL, WEFT_ERR_ABORTED, "rank 1 aborted \"world\"", 0},
        {"kill", KILL, NULL, WEFT_ERR_PEER, "rank 1 has died", 0}};
    for (size_t i = 0; i < sizeof(ended) / sizeof(ended[0]); i++) {
        run_faulty(&ended[i]);
    }
    for (size_t i = 0; i < sizeof(after_us) / sizeof(after_us[0]); i++) {
        const struct fault one = {
            "kill within", KILL_WITHIN,       NULL,
            WEFT_ERR_PEER, "rank 1 has died", after_us[i]};
        run_faulty(&one);
    }
}

/* ---- what another message or a gate holds up ------------------------------
 */

enum { HELD_MS = 4000, HELD_LIMIT_MS = 3000, PATIENT_MS = 60000 };

typedef enum hold { HOLD_PEER, HOLD_READY, HOLD_WRITABLE } hold;

static hold held;

static weft_p2p part_of(const struct own *own, bool sends, int peer, bool hasty)
{
    return (weft_p2p){.size_bytes = sizeof(weft_p2p),
                      .kind = sends ? WEFT_P2P_SEND : WEFT_P2P_RECV,
                      .buffer = own->room[sends ? 0 : 1],
                      .count = COUNT,
                      .dtype = WEFT_DTYPE_I32,
                      .peer = peer,
                      .timeout_ms = hasty ? HELD_LIMIT_MS : PATIENT_MS};
}

static void wait_held(void)
{
    const struct timespec pause = {.tv_sec = HELD_MS / 1000};
    (void)nanosleep(&pause, NULL);
}

/* Rank 0 sends to both others in one list. One message has a limit that is
 * shorter than what holds up the list. */
static int run_held(weft_comm *comm, void *context)
{
    struct scene *scene = context;
    struct own own;
    scene_init(&own, comm, scene->devices[weft_comm_get_rank(comm)]);
    scene_fill(&own, own.room[0], COUNT);
    weft_gate *gate = NULL;
    weft_p2p list[2] = {part_of(&own, true, 1, held != HOLD_WRITABLE),
                        part_of(&own, true, 2, false)};
    weft_p2p *gated = NULL;
    if (own.rank > 0) {
        list[0] =
            part_of(&own, false, 0, own.rank == 1 && held == HOLD_WRITABLE);
    }
    if (held == HOLD_PEER && own.rank == 2) {
        wait_held();
    }
    if ((held == HOLD_READY && own.rank == 0) ||
        (held == HOLD_WRITABLE && own.rank == 1)) {
        gated = &list[own.rank == 0];
        scene_expect(&own, weft_gate_create(own.device, 1, &gate) == WEFT_OK,
                     "gate");
        gated->epoch = 1;
        *(own.rank == 0 ? &gated->ready : &gated->writable) = gate;
    }
    weft_status status =
        weft_p2p_post(list, own.rank == 0 ? 2 : 1, comm, own.stream);
    if (gate) {
        wait_held();
        scene_expect(&own, weft_gate_signal(gate, 0, 1, NULL) == WEFT_OK,
                     "signal");
    }
    status = status == WEFT_OK ? weft_stream_wait(own.stream) : status;
    if (status != WEFT_OK) {
        fprintf(stderr, "rank %d: \"%s\"\n", own.rank, weft_error_text());
        own.failures++;
    }
    scene_fini(&own);
    weft_gate_destroy(gate);
    return own.failures;
}

static void test_messages_held_up_are_not_blamed(void **state)
{
    (void)state;
    static const hold all[] = {HOLD_PEER, HOLD_READY, HOLD_WRITABLE};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct scene scene = {0};
        held = all[i];
        assert_int_equal(scene_run(&scene, RANKS, run_held, false), 0);
    }
}

int main(void)
{
    scene_set("nccl");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_that_differ_cause_named),
        cmocka_unit_test(test_messages_nccl_fails_cause_named),
        cmocka_unit_test(test_messages_rank_dies_streams_drain),
        cmocka_unit_test(test_messages_held_up_are_not_blamed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
