/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: with WEFT_ROUTE=streams collectives that were captured into graphs give
 * in every launch what they must, in any order of graphs that all ranks keep,
 * between and beside operations that are posted as ever; what can not be
 * captured is refused by name, and breaks neither capture nor communicator.
 *
 * Method: graphs of one collective each, and one of all; before each round
 * buffers are filled with values of that round, from which all results follow.
 * What is launched in a round is drawn from a seed that all ranks share.
 * Arguments: threads or processes, and a seed.
 */
#include "tests/comm/captured.h"
#include "tests/seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    OPS = 8,
    ROUNDS = 12,
    PLACE_ELEMS = SCENE_ELEMS * SCENE_RANKS,
    LONG_ELEMS = 3 * SCENE_RANKS * 1024, /* a sum of two hops */
    BESIDE_ELEMS = 700
};

static bool is_process;
static uint64_t seed = 1;

static const weft_collective collectives[OPS] = {
    WEFT_COLLECTIVE_ALLREDUCE,     WEFT_COLLECTIVE_REDUCE,
    WEFT_COLLECTIVE_REDUCESCATTER, WEFT_COLLECTIVE_ALLGATHER,
    WEFT_COLLECTIVE_BROADCAST,     WEFT_COLLECTIVE_GATHER,
    WEFT_COLLECTIVE_SCATTER,       WEFT_COLLECTIVE_ALLTOALL};

/* Of one rank: sends from in, receives at places of out. */
typedef struct job {
    struct own own;
    captured with;
    int32_t *in, *out, *image; /* the last of the host */
    weft_op ops[OPS];
    CUgraphExec each[OPS], all;
    int round;
} job;

static int32_t value_of(const job *at, int rank, size_t elem)
{
    return (
        int32_t)(((size_t)at->round * 131 + (size_t)rank * 1009 + elem * 7) %
                 99991);
}

static int32_t sum_of(const job *at, size_t elem)
{
    int32_t sum = 0;
    for (int rank = 0; rank < at->own.nranks; rank++) {
        sum += value_of(at, rank, elem);
    }
    return sum;
}

static bool has_parts(weft_collective collective)
{
    return collective == WEFT_COLLECTIVE_ALLGATHER ||
           collective == WEFT_COLLECTIVE_GATHER ||
           collective == WEFT_COLLECTIVE_ALLTOALL;
}

static int32_t wanted_of(const job *at, const weft_op *op, size_t elem)
{
    const size_t own = (size_t)at->own.rank * op->count;
    const int part = (int)(elem / op->count);
    switch (op->collective) {
    case WEFT_COLLECTIVE_ALLREDUCE:
    case WEFT_COLLECTIVE_REDUCE:
        return sum_of(at, elem);
    case WEFT_COLLECTIVE_REDUCESCATTER:
        return sum_of(at, own + elem);
    case WEFT_COLLECTIVE_BROADCAST:
        return value_of(at, op->root, elem);
    case WEFT_COLLECTIVE_SCATTER:
        return value_of(at, op->root, own + elem);
    case WEFT_COLLECTIVE_ALLTOALL:
        return value_of(at, part, own + elem % op->count);
    default:
        return value_of(at, part, elem % op->count);
    }
}

static void check_op(job *at, int i)
{
    const weft_op *op = &at->ops[i];
    const bool rooted = op->collective == WEFT_COLLECTIVE_REDUCE ||
                        op->collective == WEFT_COLLECTIVE_GATHER;
    const size_t elems =
        op->count *
        (has_parts(op->collective) ? (size_t)at->own.nranks : (size_t)1);
    bool right = true;
    if (rooted && op->root != at->own.rank) {
        return;
    }
    scene_expect(&at->own,
                 weft_device_copy(at->own.device, at->image, op->recv,
                                  elems * sizeof(int32_t), NULL) == WEFT_OK,
                 "output");
    for (size_t elem = 0; right && elem < elems; elem++) {
        right = at->image[elem] == wanted_of(at, op, elem);
    }
    scene_expect(&at->own, right, weft_collective_text(op->collective));
}

static int32_t *alloc(job *at, size_t elems)
{
    void *memory = NULL;
    scene_expect(&at->own,
                 weft_device_alloc(at->own.device, elems * sizeof(int32_t),
                                   &memory) == WEFT_OK,
                 "memory");
    return memory;
}

static void fill(job *at)
{
    const size_t elems = LONG_ELEMS + PLACE_ELEMS;
    for (size_t elem = 0; elem < elems; elem++) {
        at->image[elem] = value_of(at, at->own.rank, elem);
    }
    scene_expect(&at->own,
                 weft_device_copy(at->own.device, at->in, at->image,
                                  elems * sizeof(int32_t), NULL) == WEFT_OK,
                 "input");
}

static void capture_all(job *at)
{
    static const size_t counts[OPS] = {LONG_ELEMS,  77,  SCENE_ELEMS, 1,
                                       SCENE_ELEMS, 900, 1200,        1450};
    weft_status status;
    for (int i = 0; i < OPS; i++) {
        at->ops[i] = (weft_op){.size_bytes = sizeof(weft_op),
                               .collective = collectives[i],
                               .send = at->in,
                               .recv = at->out + i * PLACE_ELEMS +
                                       (i > 0 ? LONG_ELEMS : 0),
                               .count = counts[i],
                               .dtype = WEFT_DTYPE_I32,
                               .root = i % at->own.nranks};
        at->each[i] = captured_op(&at->with, &at->ops[i], &status);
        scene_expect(&at->own, status == WEFT_OK, "capture");
    }
    captured_begin(&at->with);
    for (int i = 0; i < OPS; i++) {
        scene_expect(&at->own,
                     weft_op_post(&at->ops[i], 0, at->own.comm,
                                  at->with.stream) == WEFT_OK,
                     "capture of all");
    }
    at->all = captured_end(&at->with);
    /* A driver may make a graph only when nothing waits on the GPU. */
    scene_expect(&at->own, weft_barrier(at->own.comm, NULL) == WEFT_OK,
                 "barrier");
}

/* Launches of a graph, and posts on its stream between and another beside. */
static void run_round(job *at, uint64_t *draws)
{
    const int i = (int)(random_next(draws) % (OPS + 1));
    const int times = 1 + (int)(random_next(draws) % 3);
    const int between = (int)(random_next(draws) % OPS);
    const bool posts = random_next(draws) % 2, beside = random_next(draws) % 2;
    struct own *own = &at->own;
    weft_op other = scene_all_reduce(own, own->room[0], BESIDE_ELEMS);
    for (int time = 0; time < times; time++) {
        captured_launch(&at->with, i < OPS ? at->each[i] : at->all);
        if (beside) {
            scene_expect(
                own, weft_op_post(&other, 0, own->comm, own->stream) == WEFT_OK,
                "beside");
        }
        if (posts) {
            scene_expect(own,
                         weft_op_post(&at->ops[between], 0, own->comm,
                                      at->with.stream) == WEFT_OK,
                         "between");
        }
    }
    captured_wait(&at->with);
    for (int op = 0; op < OPS; op++) {
        if (op == i || i == OPS || (posts && op == between)) {
            check_op(at, op);
        }
    }
    scene_expect(own, weft_stream_wait(own->stream) == WEFT_OK, "stream");
    if (beside) {
        scene_check_sum(own, own->room[1], BESIDE_ELEMS);
    }
}

static void expect_no_fault(struct own *own)
{
    weft_fault fault = {.size_bytes = sizeof(fault)};
    scene_expect(own,
                 weft_comm_get_fault(own->comm, &fault) == WEFT_OK &&
                     fault.status == WEFT_OK,
                 fault.text);
}

static void close_job(job *at)
{
    struct own *own = &at->own;
    for (int i = 0; i < OPS; i++) {
        captured_expect(&at->with, cuGraphExecDestroy(at->each[i]), "exec");
    }
    captured_expect(&at->with, cuGraphExecDestroy(at->all), "exec of all");
    captured_fini(&at->with);
    weft_device_free(own->device, at->in);
    weft_device_free(own->device, at->out);
    free(at->image);
    scene_fini(own);
}

static int run_values(weft_comm *comm, void *context)
{
    struct scene *scene = context;
    job *at = calloc(1, sizeof(*at));
    assert_non_null(at);
    uint64_t draws = seed;
    scene_init(&at->own, comm, scene->devices[weft_comm_get_rank(comm)]);
    captured_init(&at->with, &at->own);
    at->in = alloc(at, LONG_ELEMS + PLACE_ELEMS);
    at->out = alloc(at, LONG_ELEMS + OPS * PLACE_ELEMS);
    at->image = calloc(LONG_ELEMS + PLACE_ELEMS, sizeof(int32_t));
    assert_non_null(at->image);
    scene_fill(&at->own, at->own.room[0], BESIDE_ELEMS);
    capture_all(at);
    for (at->round = 1; at->round <= ROUNDS && !at->own.failures; at->round++) {
        fill(at);
        run_round(at, &draws);
    }
    expect_no_fault(&at->own);
    close_job(at);
    const int failures = at->own.failures;
    free(at);
    return failures;
}

static void test_captured_launches_exact_values(void **state)
{
    (void)state;
    for (int nranks = 2; nranks <= SCENE_RANKS; nranks++) {
        struct scene scene = {0};
        assert_int_equal(scene_run(&scene, nranks, run_values, is_process), 0);
    }
}

/* ---- what is refused ------------------------------------------------------
 */

static void expect_refused(captured *with, weft_status status, const char *part)
{
    const bool refused = status == WEFT_ERR_UNSUPPORTED &&
                         strstr(weft_error_text(), "being captured") &&
                         strstr(weft_error_text(), part);
    scene_expect(with->own, refused, part);
}

static void refuse_all(captured *with)
{
    struct own *own = with->own;
    weft_comm *comm = own->comm;
    weft_stream *stream = with->stream;
    const size_t counts[SCENE_RANKS] = {3, 3, 3, 3};
    weft_op op = scene_all_reduce(own, own->room[0], 100);
    weft_gate *gate = NULL;
    scene_expect(own, weft_gate_create(own->device, 1, &gate) == WEFT_OK,
                 "gate");
    expect_refused(with, weft_barrier(comm, stream), "ranks only meet");
    expect_refused(with,
                   weft_allgatherv(own->room[0], 3, own->room[1], counts, NULL,
                                   WEFT_DTYPE_I32, comm, stream),
                   "no v forms");
    expect_refused(with,
                   weft_allreduce(own->image, own->wanted, 5, WEFT_DTYPE_I32,
                                  WEFT_REDOP_SUM, comm, stream),
                   "not all in the device's memory");
    expect_refused(with,
                   weft_allreduce(own->room[0], own->room[1], 0, WEFT_DTYPE_I32,
                                  WEFT_REDOP_SUM, comm, stream),
                   "nothing to move");
    expect_refused(with,
                   weft_send(own->room[0], 5, WEFT_DTYPE_I32,
                             (own->rank + 1) % own->nranks, comm, stream),
                   "allowed are collectives");
    op.arrived = gate;
    expect_refused(with, weft_op_post(&op, 1, comm, stream), "gates are good");
    op.arrived = NULL;
    op.ready = gate;
    expect_refused(with, weft_op_post(&op, 1, comm, stream), "gates are good");
    weft_gate_destroy(gate);
}

/* And what is taken beside all that works. */
static int run_refused(weft_comm *comm, void *context)
{
    struct scene *scene = context;
    struct own own;
    captured with;
    scene_init(&own, comm, scene->devices[weft_comm_get_rank(comm)]);
    captured_init(&with, &own);
    weft_op op = scene_all_reduce(&own, own.room[0], 100);
    scene_fill(&own, own.room[0], 100);
    captured_begin(&with);
    refuse_all(&with);
    scene_expect(&own, weft_op_post(&op, 0, comm, with.stream) == WEFT_OK,
                 "capture");
    refuse_all(&with);
    CUgraphExec exec = captured_end(&with);
    expect_no_fault(&own);
    captured_launch(&with, exec);
    captured_wait(&with);
    scene_check_sum(&own, own.room[1], 100);
    scene_expect(&own, weft_barrier(comm, NULL) == WEFT_OK, "barrier");
    captured_expect(&with, cuGraphExecDestroy(exec), "exec");
    captured_fini(&with);
    scene_fini(&own);
    return own.failures;
}

static void test_captured_others_refused_capture_whole(void **state)
{
    (void)state;
    struct scene scene = {0};
    assert_int_equal(scene_run(&scene, 3, run_refused, is_process), 0);
}

int main(int count, char **arguments)
{
    is_process = count > 1 && strcmp(arguments[1], "processes") == 0;
    if (!is_process) {
        captured_mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    }
    if (count > 2) {
        seed = strtoull(arguments[2], NULL, 10);
        setenv("WEFT_FAKE_GPU_SEED", arguments[2], 1);
    }
    printf("seed %llu\n", (unsigned long long)seed);
    scene_set("streams");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_captured_launches_exact_values),
        cmocka_unit_test(test_captured_others_refused_capture_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
