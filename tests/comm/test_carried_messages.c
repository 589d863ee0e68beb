/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: with WEFT_ROUTE=nccl messages of GPU memory go by NCCL, alone and in
 * lists, between operations of all kinds, and arrive as they were sent and in
 * their order; what NCCL cannot have goes by weft's own steps beside them.
 *
 * Method: elements say from whom, to whom and which message they are. That they
 * come from the stand-in shows where it does wrong on demand
 * (tests/fake/fake_nccl.h). Arguments: threads or processes.
 */
#include "tests/comm/carried_scene.h"
#include "weft/p2p.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EACH = 2 /* messages to a rank */, PARTS_MOST = 32, BLOCK_ELEMS = 512 };

typedef enum form { ON_STREAM, AT_ONCE, BEGUN, PLANNED, FORMS } form;

static bool is_process;

static int32_t value(int from, int to, int number, size_t elem)
{
    return (((from * 8 + to) * 64) + number) * 4096 + (int32_t)elem;
}

/* Blocks of a room, which is of the device. */
static int32_t *block(const struct own *own, int room, int index)
{
    return (int32_t *)(void *)own->room[room] + (size_t)index * BLOCK_ELEMS;
}

static void fill(struct own *own, int32_t *at, int to, int number, size_t elems)
{
    int32_t *image = (void *)own->image;
    for (size_t i = 0; i < elems; i++) {
        image[i] = value(own->rank, to, number, i);
    }
    scene_expect(own,
                 weft_device_copy(own->device, at, image,
                                  elems * sizeof(*image), NULL) == WEFT_OK,
                 "input");
}

static bool is_right(struct own *own, const int32_t *at, int from, int number,
                     size_t elems)
{
    int32_t *image = (void *)own->image;
    scene_expect(own,
                 weft_device_copy(own->device, image, at,
                                  elems * sizeof(*image), NULL) == WEFT_OK,
                 "output");
    bool right = true;
    for (size_t i = 0; i < elems; i++) {
        right = right && image[i] == value(from, own->rank, number, i);
    }
    return right;
}

static weft_p2p part(weft_p2p_kind kind, void *buffer, size_t count, int peer)
{
    return (weft_p2p){.size_bytes = sizeof(weft_p2p),
                      .kind = kind,
                      .buffer = buffer,
                      .count = count,
                      .dtype = WEFT_DTYPE_I32,
                      .peer = peer};
}

static void post(struct own *own, const weft_p2p *list, size_t count, form how)
{
    weft_request *request = NULL;
    weft_plan *plan = NULL;
    weft_status status = WEFT_OK;
    switch (how) {
    case AT_ONCE:
        status = weft_p2p_post(list, count, own->comm, NULL);
        break;
    case BEGUN:
        status = weft_p2p_begin(list, count, own->comm, &request);
        if (status == WEFT_OK) {
            status = weft_request_wait(request);
            weft_request_destroy(request);
        }
        break;
    case PLANNED:
        status = weft_p2p_plan(list, count, own->comm, &plan);
        if (status == WEFT_OK) {
            status = weft_plan_post(plan, 0, own->stream);
            weft_plan_destroy(plan);
        }
        break;
    default:
        status = weft_p2p_post(list, count, own->comm, own->stream);
        break;
    }
    scene_expect(own, status == WEFT_OK, "post");
    scene_expect(own, weft_stream_wait(own->stream) == WEFT_OK, "stream");
}

/* ---- exchanges ------------------------------------------------------------
 */

static bool is_other(const struct own *own, int peer)
{
    return peer != own->rank;
}

/* All ranks with all others, EACH messages of elems and fewer. */
static void run_exchange(struct own *own, size_t elems, form how)
{
    weft_p2p list[PARTS_MOST];
    size_t count = 0;
    for (int peer = 0; peer < own->nranks; peer++) {
        for (int m = 0; is_other(own, peer) && m < EACH; m++) {
            const int at = peer * EACH + m;
            const size_t few = elems > (size_t)m ? elems - (size_t)m : elems;
            fill(own, block(own, 0, at), peer, m, few);
            list[count++] = part(WEFT_P2P_SEND, block(own, 0, at), few, peer);
            list[count++] = part(WEFT_P2P_RECV, block(own, 1, at), few, peer);
        }
    }
    post(own, list, count, how);
    for (int peer = 0; peer < own->nranks; peer++) {
        for (int m = 0; is_other(own, peer) && m < EACH; m++) {
            const size_t few = elems > (size_t)m ? elems - (size_t)m : elems;
            scene_expect(
                own,
                is_right(own, block(own, 1, peer * EACH + m), peer, m, few),
                "wrong message in a list");
        }
    }
}

/* Posts one by one, on one stream, whose peer has them in one list; sums in
 * between. */
static void run_one_by_one(struct own *own)
{
    enum { MESSAGES = 6, SUM = 40 };
    weft_p2p list[MESSAGES];
    const int peer = own->rank ^ 1;
    weft_op sum = scene_all_reduce(own, own->room[0], SUM);
    unsigned char *sums = (unsigned char *)block(own, 1, MESSAGES);
    scene_fill(own, own->room[0], SUM);
    sum.recv = sums;
    scene_expect(own, weft_op_post(&sum, 0, own->comm, own->stream) == WEFT_OK,
                 "sum");
    for (int m = 0; m < MESSAGES && peer < own->nranks; m++) {
        const size_t elems = (size_t)(m + 1) * 80;
        if (own->rank % 2 == 0) {
            fill(own, block(own, 0, m + 1), peer, m, elems);
            scene_expect(own,
                         weft_send(block(own, 0, m + 1), elems, WEFT_DTYPE_I32,
                                   peer, own->comm, own->stream) == WEFT_OK,
                         "send");
        } else {
            list[m] = part(WEFT_P2P_RECV, block(own, 1, m), elems, peer);
        }
    }
    if (own->rank % 2 == 1) {
        scene_expect(own,
                     weft_p2p_post(list, MESSAGES, own->comm, own->stream) ==
                         WEFT_OK,
                     "list");
    }
    scene_expect(own, weft_op_post(&sum, 0, own->comm, own->stream) == WEFT_OK,
                 "sum");
    scene_expect(own, weft_stream_wait(own->stream) == WEFT_OK, "stream");
    scene_check_sum(own, sums, SUM);
    for (int m = 0; m < MESSAGES && own->rank % 2 == 1; m++) {
        scene_expect(
            own, is_right(own, block(own, 1, m), peer, m, (size_t)(m + 1) * 80),
            "wrong message of several");
    }
}

/* In one list: what NCCL has, host memory, another queue, nothing, and a
 * message to oneself. */
static void run_mixed_list(struct own *own, form how)
{
    enum { ELEMS = 300 };
    const int next = (own->rank + 1) % own->nranks;
    const int last = (own->rank + own->nranks - 1) % own->nranks;
    int32_t out[ELEMS], in[ELEMS] = {0};
    for (size_t i = 0; i < ELEMS; i++) {
        out[i] = value(own->rank, next, 1, i);
    }
    fill(own, block(own, 0, 0), next, 0, ELEMS);
    fill(own, block(own, 0, 1), next, 2, ELEMS);
    fill(own, block(own, 0, 2), own->rank, 3, ELEMS);
    weft_p2p list[] = {part(WEFT_P2P_SEND, block(own, 0, 0), ELEMS, next),
                       part(WEFT_P2P_RECV, block(own, 1, 0), ELEMS, last),
                       part(WEFT_P2P_SEND, out, ELEMS, next),
                       part(WEFT_P2P_RECV, in, ELEMS, last),
                       part(WEFT_P2P_SEND, block(own, 0, 1), ELEMS, next),
                       part(WEFT_P2P_RECV, block(own, 1, 1), ELEMS, last),
                       part(WEFT_P2P_SEND, block(own, 0, 3), 0, next),
                       part(WEFT_P2P_RECV, block(own, 1, 3), 0, last),
                       part(WEFT_P2P_SEND, block(own, 0, 2), ELEMS, own->rank),
                       part(WEFT_P2P_RECV, block(own, 1, 2), ELEMS, own->rank)};
    list[4].queue = list[5].queue = 1;
    post(own, list, sizeof(list) / sizeof(list[0]), how);
    scene_expect(own, is_right(own, block(own, 1, 0), last, 0, ELEMS),
                 "wrong message by NCCL");
    scene_expect(own, is_right(own, block(own, 1, 1), last, 2, ELEMS),
                 "wrong message of queue 1");
    scene_expect(own, is_right(own, block(own, 1, 2), own->rank, 3, ELEMS),
                 "wrong message to oneself");
    bool right = true;
    for (size_t i = 0; i < ELEMS; i++) {
        right = right && in[i] == value(last, own->rank, 1, i);
    }
    scene_expect(own, right, "wrong message of host memory");
}

/* The send waits for its bytes, which come after the post, and the receiver is
 * told of them. */
static void run_gated(struct own *own, weft_gate *ready, weft_gate *arrived,
                      weft_stream *compute, uint64_t epoch)
{
    enum { ELEMS = 200 };
    const int next = (own->rank + 1) % own->nranks;
    const int last = (own->rank + own->nranks - 1) % own->nranks;
    weft_p2p list[] = {part(WEFT_P2P_SEND, block(own, 0, 0), ELEMS, next),
                       part(WEFT_P2P_RECV, block(own, 1, 0), ELEMS, last)};
    list[0].ready = ready;
    list[1].arrived = arrived;
    list[0].epoch = list[1].epoch = epoch;
    scene_expect(own, weft_p2p_post(list, 2, own->comm, own->stream) == WEFT_OK,
                 "gated post");
    fill(own, block(own, 0, 0), next, (int)epoch, ELEMS);
    scene_expect(own, weft_gate_signal(ready, 0, epoch, compute) == WEFT_OK,
                 "signal");
    scene_expect(own, weft_gate_wait(arrived, 0, epoch, NULL) == WEFT_OK,
                 "arrived");
    scene_expect(own, is_right(own, block(own, 1, 0), last, (int)epoch, ELEMS),
                 "wrong gated message");
    scene_expect(own, weft_stream_wait(own->stream) == WEFT_OK, "stream");
}

static void check_explained(struct own *own)
{
    const weft_op other = {.size_bytes = sizeof(other),
                           .collective = WEFT_COLLECTIVE_SEND,
                           .send = own->room[0],
                           .count = 1,
                           .dtype = WEFT_DTYPE_I32,
                           .root = (own->rank + 1) % own->nranks};
    weft_op self = other, cut = other;
    self.root = own->rank;
    cut.gate_elems = 1;
    scene_expect(own, scene_is_carried(own, &other), "not by NCCL");
    scene_expect(own, !scene_is_carried(own, &self), "to oneself by NCCL");
    scene_expect(own, !scene_is_carried(own, &cut), "in chunks by NCCL");
}

static int run_messages(weft_comm *comm, void *context)
{
    static const size_t sizes[] = {1, 37, BLOCK_ELEMS};
    struct scene *scene = context;
    struct own own;
    weft_gate *ready = NULL, *arrived = NULL;
    weft_stream *compute = NULL;
    scene_init(&own, comm, scene->devices[weft_comm_get_rank(comm)]);
    scene_expect(&own,
                 weft_gate_create(own.device, 1, &ready) == WEFT_OK &&
                     weft_gate_create(own.device, 1, &arrived) == WEFT_OK &&
                     weft_stream_create(own.device, 0, &compute) == WEFT_OK,
                 "gates");
    check_explained(&own);
    for (int i = 0; i < 3 * FORMS; i++) {
        run_exchange(&own, sizes[i % 3], (form)(i % FORMS));
    }
    run_one_by_one(&own);
    for (int how = 0; how < FORMS; how++) {
        run_mixed_list(&own, (form)how);
    }
    for (uint64_t epoch = 1; epoch <= 3; epoch++) {
        run_gated(&own, ready, arrived, compute, epoch);
    }
    weft_gate_destroy(ready);
    weft_gate_destroy(arrived);
    weft_stream_destroy(compute);
    scene_fini(&own);
    return own.failures;
}

static void test_messages_by_nccl_arrive_in_order(void **state)
{
    (void)state;
    for (int nranks = 2; nranks <= SCENE_RANKS; nranks++) {
        struct scene scene = {0};
        assert_int_equal(scene_run(&scene, nranks, run_messages, is_process),
                         0);
    }
}

/* ---- that NCCL carries them -----------------------------------------------
 */

static int run_wrong(weft_comm *comm, void *context)
{
    struct scene *scene = context;
    struct own own;
    scene_init(&own, comm, scene->devices[weft_comm_get_rank(comm)]);
    const int peer = 1 - own.rank;
    int32_t byte = 0;
    fill(&own, block(&own, 0, 0), peer, 0, 100);
    const weft_p2p list[] = {part(WEFT_P2P_SEND, block(&own, 0, 0), 100, peer),
                             part(WEFT_P2P_RECV, block(&own, 1, 0), 100, peer)};
    post(&own, list, 2, ON_STREAM);
    scene_expect(&own,
                 weft_device_copy(own.device, &byte, block(&own, 1, 0),
                                  sizeof(byte), NULL) == WEFT_OK,
                 "output");
    scene_expect(&own, byte == (value(peer, own.rank, 0, 0) ^ 1),
                 "the stand-in did not carry it");
    scene_fini(&own);
    return own.failures;
}

static void test_messages_by_nccl_are_what_nccl_gives(void **state)
{
    (void)state;
    struct scene scene = {0};
    setenv("WEFT_FAKE_NCCL_FAULT", "wrong@3", 1);
    assert_int_equal(scene_run(&scene, 2, run_wrong, is_process), 0);
    unsetenv("WEFT_FAKE_NCCL_FAULT");
}

int main(int count, char **arguments)
{
    is_process = count > 1 && strcmp(arguments[1], "processes") == 0;
    scene_set("nccl");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_by_nccl_arrive_in_order),
        cmocka_unit_test(test_messages_by_nccl_are_what_nccl_gives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
