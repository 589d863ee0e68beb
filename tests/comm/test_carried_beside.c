/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: operations by NCCL or by streams and by weft's own steps go side by
 * side, many at once; gates are waited for and raised; what NCCL cannot do is
 * refused by name; communicators made of one that has the route have it too.
 *
 * Method: sums of integers of three ranks. Arguments: nccl or streams; threads
 * or processes.
 */
#include "tests/comm/carried_scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

static bool is_process, by_nccl;

/* One chunk, made by another stream; used once it has arrived. */
static void run_gated(struct own *own, weft_gate *ready, weft_gate *arrived,
                      weft_stream *compute, size_t gate_elems, uint64_t epoch)
{
    const size_t count = 300;
    weft_op op = scene_all_reduce(own, own->room[0], count);
    op.ready = ready;
    op.arrived = arrived;
    op.gate_elems = gate_elems;
    scene_expect(own, scene_is_carried(own, &op) == (gate_elems == 0),
                 "another route for a gated one");
    scene_expect(own,
                 weft_op_post(&op, epoch, own->comm, own->stream) == WEFT_OK,
                 "gated post");
    scene_fill(own, own->room[0], count);
    const size_t chunks = gate_elems ? count / gate_elems : 1;
    for (size_t chunk = 0; chunk < chunks; chunk++) {
        scene_expect(own,
                     weft_gate_signal(ready, chunk, epoch, compute) == WEFT_OK,
                     "signal");
    }
    for (size_t chunk = 0; chunk < chunks; chunk++) {
        scene_expect(own,
                     weft_gate_wait(arrived, chunk, epoch, NULL) == WEFT_OK,
                     "arrived");
    }
    scene_check_sum(own, own->room[1], count);
    scene_expect(own, weft_stream_wait(own->stream) == WEFT_OK, "stream");
}

/* Gates of a v form's parts are refused, for nothing would come part by part.
 */
static void refuse_parts(struct own *own, weft_gate *ready)
{
    size_t counts[SCENE_RANKS] = {2, 2, 2, 2};
    const weft_op op = {.size_bytes = sizeof(op),
                        .collective = WEFT_COLLECTIVE_ALLTOALLV,
                        .send = own->room[0],
                        .recv = own->room[1],
                        .send_counts = counts,
                        .recv_counts = counts,
                        .dtype = WEFT_DTYPE_I32,
                        .ready = ready,
                        .gate_elems = WEFT_GATE_PER_RANK};
    scene_expect(
        own,
        weft_op_post(&op, 1, own->comm, own->stream) == WEFT_ERR_UNSUPPORTED &&
            strstr(weft_error_text(), "WEFT_GATE_PER_RANK in alltoallv"),
        "gates of parts");
}

/* Operations of both routes, many at once, in one order. */
static void run_mixed(struct own *own)
{
    enum { POSTS = 24, COUNT = 64 };
    int32_t host[POSTS][COUNT], sums[POSTS][COUNT];
    weft_request *requests[POSTS];
    const int32_t wanted = own->nranks * (own->nranks + 1) / 2;
    scene_fill(own, own->room[0], COUNT);
    for (int i = 0; i < POSTS; i++) {
        weft_op op = scene_all_reduce(own, own->room[0], COUNT);
        requests[i] = NULL;
        if (i % 3 == 0) {
            for (int e = 0; e < COUNT; e++) {
                host[i][e] = own->rank + 1;
            }
            op.send = host[i];
            op.recv = sums[i];
            scene_expect(own, !scene_is_carried(own, &op),
                         "host memory carried");
            scene_expect(
                own, weft_op_begin(&op, 0, own->comm, &requests[i]) == WEFT_OK,
                "begin");
        } else {
            op.recv = own->room[1] + (size_t)i * COUNT * sizeof(int32_t);
            scene_expect(
                own, weft_op_post(&op, 0, own->comm, own->stream) == WEFT_OK,
                "post");
        }
    }
    scene_expect(own, weft_stream_wait(own->stream) == WEFT_OK, "stream");
    for (int i = 0; i < POSTS; i++) {
        if (i % 3 == 0) {
            scene_expect(own, weft_request_wait(requests[i]) == WEFT_OK,
                         "wait");
            weft_request_destroy(requests[i]);
            scene_expect(own,
                         sums[i][0] == wanted && sums[i][COUNT - 1] == wanted,
                         "wrong sum on the host");
        } else {
            scene_check_sum(
                own, own->room[1] + (size_t)i * COUNT * sizeof(int32_t), COUNT);
        }
    }
    scene_expect(own, weft_barrier(own->comm, NULL) == WEFT_OK, "barrier");
}

static int run_beside(weft_comm *comm, void *context)
{
    struct scene *scene = context;
    struct own own;
    weft_gate *ready, *arrived;
    weft_stream *compute;
    weft_comm *made = NULL;
    scene_init(&own, comm, scene->devices[weft_comm_get_rank(comm)]);
    scene_expect(&own,
                 weft_gate_create(own.device, 8, &ready) == WEFT_OK &&
                     weft_gate_create(own.device, 8, &arrived) == WEFT_OK &&
                     weft_stream_create(own.device, 0, &compute) == WEFT_OK,
                 "gates");
    for (uint64_t epoch = 1; epoch <= 4; epoch++) {
        run_gated(&own, ready, arrived, compute, epoch % 2 ? 0 : 100, epoch);
    }
    if (by_nccl) { /* others carry no v forms out */
        refuse_parts(&own, ready);
    }
    run_mixed(&own);
    scene_expect(&own,
                 weft_comm_split(comm, own.rank % 2, 0, NULL, &made) == WEFT_OK,
                 "split");
    scene_run_made(&own, made);
    run_mixed(&own);
    weft_comm_destroy(made);
    if (own.rank < 2) {
        const int ranks[] = {1, 0};
        scene_expect(
            &own, weft_comm_create_from(comm, ranks, 2, NULL, &made) == WEFT_OK,
            "create_from");
        scene_run_made(&own, made);
        weft_comm_destroy(made);
    }
    weft_gate_destroy(ready);
    weft_gate_destroy(arrived);
    weft_stream_destroy(compute);
    scene_fini(&own);
    return own.failures;
}

static void test_carried_beside_steps_gates_and_made_communicators(void **state)
{
    (void)state;
    struct scene scene = {0};
    assert_int_equal(scene_run(&scene, 3, run_beside, is_process), 0);
}

int main(int count, char **arguments)
{
    by_nccl = count > 1 && strcmp(arguments[1], "nccl") == 0;
    is_process = count > 2 && strcmp(arguments[2], "processes") == 0;
    scene_set(by_nccl ? "nccl" : "streams");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            test_carried_beside_steps_gates_and_made_communicators),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
