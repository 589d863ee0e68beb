/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a plan does at every post what the plain call does, however often it is
 * posted, on streams and not, several of them interleaved and mixed with plain
 * posts; it is refused, fails and ends by the same rules.
 *
 * Method: threads as ranks; values change with every post, outputs are
 * poisoned first.
 */
#include "tests/comm/rank_checks.h"
#include "tests/comm/world.h"
#include "tests/seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POSTS = 300, MOST = 40000, PLANS = 4 };

/* One plan with its buffers; count elements of i32. */
struct planned {
    weft_plan *plan;
    weft_op op;
    int32_t *send, *recv;
};

static const size_t counts[PLANS] = {1, 700, MOST, 33};

static int make_plans(weft_comm *comm, struct planned *planned)
{
    int failures = 0;
    for (int i = 0; i < PLANS; i++) {
        struct planned *it = &planned[i];
        it->send = calloc(MOST, sizeof(*it->send));
        it->recv = calloc(MOST, sizeof(*it->recv));
        it->op = (weft_op){.size_bytes = sizeof(weft_op),
                           .collective = WEFT_COLLECTIVE_ALLREDUCE,
                           .send = it->send,
                           .recv = it->recv,
                           .count = counts[i],
                           .dtype = WEFT_DTYPE_I32,
                           .redop = i == 3 ? WEFT_REDOP_MAX : WEFT_REDOP_SUM};
        weft_op op = it->op;
        failures += weft_op_plan(&op, comm, &it->plan) != WEFT_OK;
        memset(&op, 0xA5, sizeof(op)); /* the plan has its own */
    }
    return failures;
}

static void end_plans(struct planned *planned)
{
    for (int i = 0; i < PLANS; i++) {
        weft_plan_destroy(planned[i].plan);
        free(planned[i].send);
        free(planned[i].recv);
    }
}

static int check_sum(const struct planned *it, int nranks, int32_t salt)
{
    int32_t base = it->op.redop == WEFT_REDOP_MAX
                       ? nranks - 1 + salt
                       : nranks * (nranks - 1) / 2 + nranks * salt;
    int32_t each = it->op.redop == WEFT_REDOP_MAX ? 1 : nranks;
    for (size_t i = 0; i < it->op.count; i++) {
        if (it->recv[i] != base + each * (int32_t)(i % 97)) {
            return 1;
        }
    }
    return 0;
}

static int interleaved(weft_comm *comm, void *context)
{
    uint64_t seed = *(const uint64_t *)context;
    int rank = weft_comm_get_rank(comm), nranks = weft_comm_get_nranks(comm);
    uint64_t own = seed + (unsigned)rank + 1;
    struct planned planned[PLANS];
    weft_device *device;
    weft_stream *stream;
    int failures = weft_device_open("host", 0, &device) != WEFT_OK ||
                   weft_stream_create(device, 0, &stream) != WEFT_OK;
    failures += make_plans(comm, planned);
    for (int32_t post = 0; post < POSTS && !failures; post++) {
        struct planned *it = &planned[random_next(&seed) % PLANS];
        for (size_t i = 0; i < it->op.count; i++) {
            it->send[i] = rank + post + (int32_t)(i % 97);
        }
        memset(it->recv, 0xA5, it->op.count * sizeof(*it->recv));
        /* Each rank on its own chooses how it posts. */
        uint64_t how = random_next(&own) % 3;
        weft_stream *where = how == 0 ? stream : NULL;
        failures += (how == 2 ? weft_op_post(&it->op, 0, comm, where)
                              : weft_plan_post(it->plan, 0, where)) != WEFT_OK;
        failures += how == 0 && weft_stream_wait(stream) != WEFT_OK;
        failures += check_sum(it, nranks, post);
    }
    end_plans(planned);
    weft_stream_destroy(stream);
    weft_device_close(device);
    return failures;
}

static void test_plan_interleaved_with_plain_posts_exact(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    for (int nranks = 1; nranks <= 4; nranks++) {
        struct world world = {
            .nranks = nranks, .call = interleaved, .context = &seed};
        assert_int_equal(world_run_threads(&world), 0);
    }
}

/* Sixteen posts of one plan in flight, and the plan is gone before they are. */
static int overlapping(weft_comm *comm, void *context)
{
    (void)context;
    enum { ELEMS = 5000, TIMES = 16 };
    int nranks = weft_comm_get_nranks(comm);
    int32_t *data = malloc(ELEMS * sizeof(*data));
    weft_device *device;
    weft_stream *stream;
    weft_plan *plan;
    int failures = weft_device_open("host", 0, &device) != WEFT_OK ||
                   weft_stream_create(device, 0, &stream) != WEFT_OK;
    weft_op op = {.size_bytes = sizeof(op),
                  .collective = WEFT_COLLECTIVE_ALLREDUCE,
                  .send = data,
                  .recv = data,
                  .count = ELEMS,
                  .dtype = WEFT_DTYPE_I32};
    for (int i = 0; i < ELEMS; i++) {
        data[i] = i + 1;
    }
    failures += weft_op_plan(&op, comm, &plan) != WEFT_OK;
    int32_t factor = 1; /* wraps as the sums do */
    for (int i = 0; i < TIMES; i++) {
        factor *= nranks;
        failures += weft_plan_post(plan, 0, stream) != WEFT_OK;
    }
    weft_plan_destroy(plan);
    failures += weft_stream_wait(stream) != WEFT_OK;
    for (int i = 0; i < ELEMS; i++) {
        failures += data[i] != (int32_t)((uint32_t)factor * (uint32_t)(i + 1));
    }
    weft_stream_destroy(stream);
    weft_device_close(device);
    free(data);
    return failures > 63 ? 63 : failures;
}

static void test_plan_destroyed_in_flight_posts_go_on(void **state)
{
    (void)state;
    for (int nranks = 1; nranks <= 3; nranks++) {
        struct world world = {.nranks = nranks, .call = overlapping};
        assert_int_equal(world_run_threads(&world), 0);
    }
}

/* A ring as a planned list, its gates' epoch that of the post. */
static int listed(weft_comm *comm, void *context)
{
    (void)context;
    enum { ELEMS = 3000, CUT = 500 };
    static _Thread_local int32_t out[ELEMS], in[ELEMS];
    int rank = weft_comm_get_rank(comm), nranks = weft_comm_get_nranks(comm);
    int before = (rank + nranks - 1) % nranks;
    weft_device *device;
    weft_stream *stream;
    weft_gate *ready;
    weft_plan *ring, *gated;
    int failures = weft_device_open("host", 0, &device) != WEFT_OK ||
                   weft_stream_create(device, 0, &stream) != WEFT_OK ||
                   weft_gate_create(device, ELEMS / CUT, &ready) != WEFT_OK;
    weft_p2p list[] = {{.size_bytes = sizeof(list[0]),
                        .kind = WEFT_P2P_RECV,
                        .buffer = in,
                        .count = ELEMS,
                        .dtype = WEFT_DTYPE_I32,
                        .peer = before},
                       {.size_bytes = sizeof(list[0]),
                        .kind = WEFT_P2P_SEND,
                        .buffer = out,
                        .count = ELEMS,
                        .dtype = WEFT_DTYPE_I32,
                        .peer = (rank + 1) % nranks}};
    failures += weft_p2p_plan(list, 2, comm, &ring) != WEFT_OK;
    list[0].gate_elems = list[1].gate_elems = CUT;
    list[1].ready = ready;
    failures += weft_p2p_plan(list, 2, comm, &gated) != WEFT_OK;
    failures +=
        expect(weft_plan_post(gated, 0, stream), WEFT_ERR_INVALID, "epoch 0");
    for (int32_t post = 1; post <= 60; post++) {
        for (int i = 0; i < ELEMS; i++) {
            out[i] = rank * 1000 + post + i;
        }
        memset(in, 0xA5, sizeof(in));
        if (post % 2) {
            failures += weft_plan_post(
                            ring, 0, post % 4 == 1 ? stream : NULL) != WEFT_OK;
        } else {
            failures +=
                weft_plan_post(gated, (uint64_t)post, stream) != WEFT_OK;
            for (size_t chunk = 0; chunk < ELEMS / CUT; chunk++) {
                failures += weft_gate_signal(ready, chunk, (uint64_t)post,
                                             NULL) != WEFT_OK;
            }
        }
        failures += weft_stream_wait(stream) != WEFT_OK;
        for (int i = 0; i < ELEMS; i++) {
            failures += in[i] != before * 1000 + post + i;
        }
    }
    weft_plan_destroy(ring);
    weft_plan_destroy(gated);
    weft_gate_destroy(ready);
    weft_stream_destroy(stream);
    weft_device_close(device);
    return failures > 63 ? 63 : failures;
}

static void test_plan_of_list_with_gates_exact(void **state)
{
    (void)state;
    for (int nranks = 1; nranks <= 3; nranks++) {
        struct world world = {.nranks = nranks, .call = listed};
        assert_int_equal(world_run_threads(&world), 0);
    }
}

/* The arrays of a v form are the plan's own once it is made. */
static int uneven(weft_comm *comm, void *context)
{
    (void)context;
    enum { ELEMS = 50 };
    int rank = weft_comm_get_rank(comm), nranks = weft_comm_get_nranks(comm);
    size_t lengths[4], places[4];
    int32_t send[ELEMS], recv[4 * ELEMS];
    for (int p = 0; p < nranks; p++) {
        lengths[p] = (size_t)(p + 1) * 7;
        places[p] = (size_t)p * ELEMS;
    }
    weft_op op = {.size_bytes = sizeof(op),
                  .collective = WEFT_COLLECTIVE_ALLGATHERV,
                  .send = send,
                  .recv = recv,
                  .count = lengths[rank],
                  .recv_counts = lengths,
                  .recv_displs = places,
                  .dtype = WEFT_DTYPE_I32};
    weft_plan *plan;
    int failures = weft_op_plan(&op, comm, &plan) != WEFT_OK;
    memset(lengths, 0xA5, sizeof(lengths));
    memset(places, 0xA5, sizeof(places));
    for (int32_t post = 0; post < 5 && !failures; post++) {
        for (int32_t i = 0; i < ELEMS; i++) {
            send[i] = rank * 100000 + post * 1000 + i;
        }
        memset(recv, 0xA5, sizeof(recv));
        failures += weft_plan_post(plan, 0, NULL) != WEFT_OK;
        for (int p = 0; p < nranks; p++) {
            for (int32_t i = 0; i < (p + 1) * 7; i++) {
                failures += recv[p * ELEMS + i] != p * 100000 + post * 1000 + i;
            }
        }
    }
    weft_plan_destroy(plan);
    return failures > 63 ? 63 : failures;
}

static void test_plan_of_v_form_keeps_its_own_arrays(void **state)
{
    (void)state;
    for (int nranks = 1; nranks <= 4; nranks++) {
        struct world world = {.nranks = nranks, .call = uneven};
        assert_int_equal(world_run_threads(&world), 0);
    }
}

static int refused_and_failed(weft_comm *comm, void *context)
{
    (void)context;
    int32_t data[4] = {0};
    weft_plan *plan, *none;
    weft_op op = {.size_bytes = sizeof(op),
                  .collective = WEFT_COLLECTIVE_ALLREDUCE,
                  .send = data,
                  .recv = data,
                  .count = 4,
                  .dtype = WEFT_DTYPE_I32};
    weft_p2p part = {.size_bytes = sizeof(part),
                     .kind = WEFT_P2P_SEND,
                     .buffer = data,
                     .count = 4,
                     .dtype = WEFT_DTYPE_I32,
                     .peer = 77};
    int failures = weft_op_plan(&op, comm, &plan) != WEFT_OK;
    op.dtype = (weft_dtype)99;
    failures +=
        expect(weft_op_plan(&op, comm, &none), WEFT_ERR_INVALID, "dtype 99");
    failures += none != NULL;
    failures += expect(weft_p2p_plan(&part, 1, comm, &none), WEFT_ERR_INVALID,
                       "list[0]: peer 77");
    failures +=
        expect(weft_op_plan(&op, NULL, &none), WEFT_ERR_INVALID, "comm");
    failures += expect(weft_p2p_plan(&part, 1, comm, NULL), WEFT_ERR_INVALID,
                       "plan_out");
    failures += expect(weft_plan_post(NULL, 0, NULL), WEFT_ERR_INVALID, "plan");
    part.peer = weft_comm_get_rank(comm);
    failures += weft_p2p_plan(&part, 1, comm, &none) != WEFT_OK;
    failures += weft_barrier(comm, NULL) != WEFT_OK;
    if (weft_comm_get_rank(comm) == 1) {
        failures += weft_comm_abort(comm) != WEFT_OK;
    }
    weft_status status;
    do { /* the others hear of it in one of the next */
        status = weft_plan_post(plan, 0, NULL);
    } while (status == WEFT_OK);
    failures += expect(status, WEFT_ERR_ABORTED, "rank 1 aborted");
    failures += expect(weft_plan_post(none, 0, NULL), WEFT_ERR_ABORTED,
                       "rank 1 aborted");
    weft_plan_destroy(plan);
    weft_plan_destroy(none);
    weft_plan_destroy(NULL);
    return failures;
}

static void test_plan_refused_and_failed_by_name(void **state)
{
    (void)state;
    struct world world = {.nranks = 2, .call = refused_and_failed};
    assert_int_equal(world_run_threads(&world), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan_interleaved_with_plain_posts_exact),
        cmocka_unit_test(test_plan_destroyed_in_flight_posts_go_on),
        cmocka_unit_test(test_plan_of_list_with_gates_exact),
        cmocka_unit_test(test_plan_of_v_form_keeps_its_own_arrays),
        cmocka_unit_test(test_plan_refused_and_failed_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
