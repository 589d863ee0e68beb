/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: with WEFT_ROUTE=nccl or streams all collectives of GPU memory that the
 * route has go through it and give what they must: all types, reductions,
 * counts and places, on streams, without, planned, begun.
 *
 * Streams give the bits of weft's own steps.
 *
 * Method: values are small whole numbers, whose sums are exact in any order
 * (tests/comm/values.h). That results come from the stand-in shows in
 * test_carried_faults.c, where it does wrong on demand. Arguments: nccl,
 * streams or shadow (streams, on shadow devices); threads or processes; N: only
 * every N-th case, N being odd.
 */
#include "tests/comm/carried_scene.h"
#include "tests/comm/values.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POISON = 0xA5 };

static bool is_process, by_nccl, on_shadow;
static unsigned share = 1;

typedef enum form { ON_STREAM, AT_ONCE, BEGUN, PLANNED, FORMS } form;

typedef struct test_case {
    weft_collective collective;
    weft_dtype dtype;
    weft_redop redop;
    size_t count;
    bool in_place;
    int root;
    form form;
} test_case;

/* Of a v form rank's part. */
static size_t part_of(const test_case *one, int rank)
{
    return one->count + (size_t)(rank % 3) * (one->count > 0);
}

static size_t sum_parts(const test_case *one, int ranks)
{
    size_t sum = 0;
    for (int rank = 0; rank < ranks; rank++) {
        sum += part_of(one, rank);
    }
    return sum;
}

/* A case as one rank posts it: how much it gives and gets, and where the two
 * meet in place. */
typedef struct layout {
    weft_op op;
    size_t send_elems, recv_elems;
    size_t own_elem; /* of the longer buffer, where the other begins */
    size_t counts[SCENE_RANKS], from[SCENE_RANKS];
} layout;

static void lay_varied(const struct own *own, const test_case *one, layout *out)
{
    weft_op *op = &out->op;
    const bool root = own->rank == one->root;
    const size_t all = sum_parts(one, own->nranks);
    const size_t mine = part_of(one, own->rank);
    for (int p = 0; p < own->nranks; p++) {
        out->counts[p] = part_of(one, p);
        out->from[p] = mine; /* of all to all: by who gets it */
    }
    op->count = mine;
    out->own_elem = sum_parts(one, own->rank);
    switch (one->collective) {
    case WEFT_COLLECTIVE_ALLTOALLV:
        op->send_counts = out->counts;
        op->recv_counts = out->from;
        out->send_elems = all;
        out->recv_elems = mine * (size_t)own->nranks;
        break;
    case WEFT_COLLECTIVE_ALLGATHERV:
        op->recv_counts = out->counts;
        out->send_elems = mine;
        out->recv_elems = all;
        break;
    case WEFT_COLLECTIVE_GATHERV:
        op->recv_counts = root ? out->counts : NULL;
        out->send_elems = mine;
        out->recv_elems = root ? all : 0;
        break;
    case WEFT_COLLECTIVE_SCATTERV:
        op->send_counts = root ? out->counts : NULL;
        out->send_elems = root ? all : 0;
        out->recv_elems = mine;
        break;
    default: /* REDUCESCATTERV */
        op->send_counts = out->counts;
        out->send_elems = all;
        out->recv_elems = mine;
        break;
    }
}

static void lay(const struct own *own, const test_case *one, layout *out)
{
    const wefti_role role =
        wefti_role_of(one->collective, one->dtype, one->root, own->rank);
    *out = (layout){.op = {.size_bytes = sizeof(out->op),
                           .collective = one->collective,
                           .count = one->count,
                           .dtype = one->dtype,
                           .redop = one->redop,
                           .root = role.shape->rooted ? one->root : 0}};
    if (role.shape->varied) {
        lay_varied(own, one, out);
        return;
    }
    out->send_elems =
        role.sends ? wefti_role_send_elems(&role, one->count, own->nranks) : 0;
    out->recv_elems =
        role.receives ? wefti_role_recv_elems(&role, one->count, own->nranks)
                      : 0;
    out->own_elem = role.shape->send_parts || role.shape->recv_parts
                        ? (size_t)own->rank * one->count
                        : 0;
}

/* Puts into wanted what rank must get: its recv_elems elements. */
static void want(const struct own *own, const test_case *one,
                 const values *held, unsigned char *wanted)
{
    const size_t elem = held->elem_bytes, n = (size_t)own->nranks;
    const bool varied = wefti_shape_get(one->collective)->varied;
    const size_t mine = varied ? part_of(one, own->rank) : one->count;
    const size_t before =
        varied ? sum_parts(one, own->rank) : (size_t)own->rank * one->count;
    switch (one->collective) {
    case WEFT_COLLECTIVE_ALLREDUCE:
    case WEFT_COLLECTIVE_REDUCE:
        values_expect(held, wanted, 0, one->count);
        break;
    case WEFT_COLLECTIVE_REDUCESCATTER:
    case WEFT_COLLECTIVE_REDUCESCATTERV:
        values_expect(held, wanted, before, mine);
        break;
    case WEFT_COLLECTIVE_BROADCAST:
        values_fill(held, wanted, one->root, 0, one->count);
        break;
    case WEFT_COLLECTIVE_SCATTER:
    case WEFT_COLLECTIVE_SCATTERV:
        values_fill(held, wanted, one->root, before, mine);
        break;
    case WEFT_COLLECTIVE_ALLTOALL:
    case WEFT_COLLECTIVE_ALLTOALLV:
        for (size_t p = 0; p < n; p++) {
            values_fill(held, wanted + p * mine * elem, (int)p, before, mine);
        }
        break;
    default: /* gathers */
        for (int p = 0; p < own->nranks; p++) {
            const size_t part = varied ? part_of(one, p) : one->count;
            const size_t at =
                varied ? sum_parts(one, p) : (size_t)p * one->count;
            values_fill(held, wanted + at * elem, p, 0, part);
        }
        break;
    }
}

static weft_status post(struct own *own, const weft_op *op, form how)
{
    weft_request *request;
    weft_plan *plan;
    weft_status status;
    switch (how) {
    case AT_ONCE:
        return weft_op_post(op, 0, own->comm, NULL);
    case BEGUN:
        status = weft_op_begin(op, 0, own->comm, &request);
        if (status == WEFT_OK) {
            status = weft_request_wait(request);
            weft_request_destroy(request);
        }
        return status;
    case PLANNED:
        status = weft_op_plan(op, own->comm, &plan);
        if (status == WEFT_OK) {
            status = weft_plan_post(plan, 0, own->stream);
            weft_plan_destroy(plan);
        }
        break;
    default:
        status = weft_op_post(op, 0, own->comm, own->stream);
        break;
    }
    return status == WEFT_OK ? weft_stream_wait(own->stream) : status;
}

/* Where the two buffers are: apart, or one in the other. */
static void point(const struct own *own, const test_case *one, layout *out)
{
    const size_t elem = weft_dtype_bytes(one->dtype);
    unsigned char *send = own->room[0], *recv = own->room[1];
    if (one->in_place && out->send_elems > out->recv_elems) {
        recv = send + out->own_elem * elem;
    } else if (one->in_place) {
        send = recv +
               (out->recv_elems > out->send_elems ? out->own_elem : 0) * elem;
    }
    out->op.send = out->send_elems ? send : NULL;
    out->op.recv = out->recv_elems ? recv : NULL;
}

static void run_case(struct own *own, const test_case *one)
{
    values held;
    layout out;
    lay(own, one, &out);
    point(own, one, &out);
    values_init(&held, one->dtype, one->redop, own->rank, own->nranks, 5);
    const size_t send_bytes = out.send_elems * held.elem_bytes;
    const size_t recv_bytes = out.recv_elems * held.elem_bytes;
    if (one->redop == WEFT_REDOP_PREMULSUM) {
        out.op.scale = held.scale;
    }
    memset(own->image, POISON, SCENE_ROOM_BYTES);
    for (int b = 0; b < 2; b++) {
        scene_expect(own,
                     weft_device_copy(own->device, own->room[b], own->image,
                                      SCENE_ROOM_BYTES, NULL) == WEFT_OK,
                     "poison");
    }
    values_fill(&held, own->image, own->rank, 0, out.send_elems);
    if (send_bytes) {
        scene_expect(own,
                     weft_device_copy(own->device,
                                      (void *)(uintptr_t)out.op.send,
                                      own->image, send_bytes, NULL) == WEFT_OK,
                     "input");
    }
    const bool carried = scene_is_carried(own, &out.op);
    const bool reduces = wefti_shape_get(one->collective)->reduces;
    const bool varied = wefti_shape_get(one->collective)->varied;
    const bool has = one->collective != WEFT_COLLECTIVE_BARRIER &&
                     (by_nccl ? one->redop < WEFT_REDOP_BAND
                              : one->redop != WEFT_REDOP_PREMULSUM);
    /* Of a v form's ranks each knows only its own counts. */
    const bool takes = by_nccl ? varied || one->count > 0
                               : !varied && one->count > 0 && own->nranks > 1 &&
                                     !(on_shadow && reduces);
    scene_expect(own, carried == (has && takes), "another route");
    scene_expect(own, post(own, &out.op, one->form) == WEFT_OK, "post");
    want(own, one, &held, own->wanted);
    if (recv_bytes) {
        scene_expect(own,
                     weft_device_copy(own->device, own->image, out.op.recv,
                                      recv_bytes + 1, NULL) == WEFT_OK,
                     "output");
    }
    const bool right = memcmp(own->image, own->wanted, recv_bytes) == 0;
    const bool apart =
        !recv_bytes || one->in_place || own->image[recv_bytes] == POISON;
    if (!right || !apart) {
        fprintf(stderr, "%s of %zu %s %s%s, root %d, form %d:\n",
                weft_collective_text(one->collective), one->count,
                weft_dtype_text(one->dtype), weft_redop_text(one->redop),
                one->in_place ? " in place" : "", one->root, one->form);
    }
    scene_expect(own, right, "wrong result");
    scene_expect(own, apart, "written beyond the end");
}

static bool may_be_in_place(const test_case *one)
{
    return one->collective != WEFT_COLLECTIVE_ALLTOALL &&
           one->collective != WEFT_COLLECTIVE_ALLTOALLV &&
           one->collective != WEFT_COLLECTIVE_BARRIER;
}

/* An average of floats is scaled before it is summed: exact for powers of 2. */
static bool is_exact(const test_case *one, int nranks)
{
    return one->redop != WEFT_REDOP_AVG || (nranks & (nranks - 1)) == 0 ||
           weft_dtype_kind(one->dtype) != WEFT_KIND_FLOAT;
}

/* All types of one collective with one reduction. */
static void run_types(struct own *own, test_case one, unsigned *turn)
{
    static const size_t counts[] = {1, 37, SCENE_ELEMS, 0};
    for (int d = 0; d < WEFT_DTYPE_COUNT; d++) {
        one.dtype = (weft_dtype)d;
        if (!weft_redop_applies(one.redop, one.dtype) ||
            !is_exact(&one, own->nranks)) {
            continue;
        }
        for (int place = 0; place < 2; place++) {
            one.in_place = place == 1;
            one.count = counts[*turn % 4];
            one.root = (int)(*turn / 2 % (unsigned)own->nranks);
            one.form = (form)(*turn / 3 % FORMS);
            ++*turn;
            /* Two ranks meet all cases, other worlds every fifth. */
            if ((!one.in_place || may_be_in_place(&one)) &&
                *turn % (own->nranks == 2 ? share : 5 * share) == 0) {
                run_case(own, &one);
            }
        }
    }
}

static int run_matrix(weft_comm *comm, void *context)
{
    struct scene *scene = context;
    struct own own;
    unsigned turn = 0;
    scene_init(&own, comm, scene->devices[weft_comm_get_rank(comm)]);
    for (int c = 0; c < WEFT_COLLECTIVE_SEND; c++) {
        const bool reduces = wefti_shape_get((weft_collective)c)->reduces;
        for (int r = 0; r < (reduces ? WEFT_REDOP_COUNT : 1); r++) {
            const test_case one = {.collective = (weft_collective)c,
                                   .redop = (weft_redop)r};
            run_types(&own, one, &turn);
        }
    }
    scene_fini(&own);
    return own.failures;
}

static void test_carried_all_collectives_exact_values(void **state)
{
    (void)state;
    struct scene scene = {0};
    for (int nranks = 1; nranks <= SCENE_RANKS; nranks++) {
        if (!is_process || nranks == 3) {
            scene = (struct scene){0};
            assert_int_equal(scene_run(&scene, nranks, run_matrix, is_process),
                             0);
        }
    }
}

/* Any bits, NaN among them. */
static void run_bits(struct own *own, weft_op op, unsigned *seed)
{
    const size_t parts = op.collective == WEFT_COLLECTIVE_REDUCESCATTER
                             ? (size_t)own->nranks
                             : 1;
    const size_t bytes = op.count * weft_dtype_bytes(op.dtype);
    unsigned mine = *seed * 16 + (unsigned)own->rank;
    for (size_t i = 0; i < parts * bytes; i++) {
        own->image[i] = (unsigned char)rand_r(&mine);
    }
    ++*seed;
    op.size_bytes = sizeof(op);
    op.send = own->image;
    op.recv = own->wanted;
    scene_expect(own, weft_op_post(&op, 0, own->comm, NULL) == WEFT_OK,
                 "on the host");
    scene_expect(own,
                 weft_device_copy(own->device, own->room[0], own->image,
                                  parts * bytes, NULL) == WEFT_OK,
                 "input");
    op.send = own->room[0];
    op.recv = own->room[1];
    scene_expect(own, scene_is_carried(own, &op), "another route");
    scene_expect(own,
                 weft_op_post(&op, 0, own->comm, own->stream) == WEFT_OK &&
                     weft_stream_wait(own->stream) == WEFT_OK,
                 "on the device");
    scene_expect(own,
                 weft_device_copy(own->device, own->image, own->room[1], bytes,
                                  NULL) == WEFT_OK,
                 "output");
    const bool here =
        op.collective != WEFT_COLLECTIVE_REDUCE || own->rank == op.root;
    scene_expect(own, !here || memcmp(own->image, own->wanted, bytes) == 0,
                 "other bits than by steps");
}

static int run_all_bits(weft_comm *comm, void *context)
{
    static const weft_collective sums[] = {WEFT_COLLECTIVE_ALLREDUCE,
                                           WEFT_COLLECTIVE_REDUCE,
                                           WEFT_COLLECTIVE_REDUCESCATTER};
    static const weft_redop redops[] = {WEFT_REDOP_SUM, WEFT_REDOP_PROD,
                                        WEFT_REDOP_AVG};
    struct scene *scene = context;
    struct own own;
    unsigned seed = 1;
    scene_init(&own, comm, scene->devices[weft_comm_get_rank(comm)]);
    for (int d = 0; d < WEFT_DTYPE_COUNT; d++) {
        for (int i = 0; i < 9; i++) {
            run_bits(&own,
                     (weft_op){.collective = sums[i % 3],
                               .dtype = (weft_dtype)d,
                               .redop = redops[i / 3],
                               .root = i % own.nranks,
                               .count = i % 2 ? 77 : SCENE_ELEMS},
                     &seed);
        }
    }
    scene_fini(&own);
    return own.failures;
}

static void test_streams_bits_of_steps(void **state)
{
    (void)state;
    struct scene scene = {0};
    for (int nranks = 2; !by_nccl && !on_shadow && nranks <= SCENE_RANKS;
         nranks++) {
        scene = (struct scene){0};
        assert_int_equal(scene_run(&scene, nranks, run_all_bits, is_process),
                         0);
    }
}

int main(int count, char **arguments)
{
    on_shadow = count > 1 && strcmp(arguments[1], "shadow") == 0;
    by_nccl = count > 1 && strcmp(arguments[1], "nccl") == 0;
    is_process = count > 2 && strcmp(arguments[2], "processes") == 0;
    share = count > 3 ? (unsigned)strtoul(arguments[3], NULL, 10) : 1;
    scene_set(count > 1 ? arguments[1] : "streams");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_carried_all_collectives_exact_values),
        cmocka_unit_test(test_streams_bits_of_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
