/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: where a route cannot be used all ranks take weft's own steps, and say
 * why.
 *
 * Method: the stand-in for NCCL does wrong on demand (tests/fake/fake_nccl.h),
 * or is another library; the driver has no kernels, or shares no memory.
 */
#include "tests/comm/carried_scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIMIT_MS = 1500 /* of what never ends */ };

/* ---- where it cannot be used ----------------------------------------------
 */

struct refusal {
    const char *route;
    const char *name, *value; /* of the environment */
    int rank;                 /* whose; -1: all */
    const char *why;          /* part of the cause that all tell */
    bool hosted, shared;
};

static const struct refusal *refusal;

static void set_refusal(int rank, void *context)
{
    (void)context;
    setenv("WEFT_ROUTE", refusal->route, 1);
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
    scene_expect(&own, !comm->twin && !comm->streams, "it has it all the same");
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
        scene_expect(&own, !scene_is_carried(&own, &op),
                     "the route all the same");
        scene_fill(&own, own.room[0], 200);
        scene_expect(&own, weft_op_post(&op, 0, comm, own.stream) == WEFT_OK,
                     "post");
        scene_expect(&own, weft_stream_wait(own.stream) == WEFT_OK, "stream");
        scene_check_sum(&own, own.room[1], 200);
        scene_fini(&own);
    }
    return own.failures;
}

static void test_route_not_possible_steps_are_taken_cause_named(void **state)
{
    (void)state;
    static const struct refusal all[] = {
        {"nccl", "WEFT_NCCL", "/nowhere/libnccl.so.2", -1,
         "rank 0: no NCCL: /nowhere/libnccl.so.2", false, false},
        {"nccl", "WEFT_NCCL", "/nowhere/libnccl.so.2", 1, "rank 1: no NCCL",
         false, false},
        {"nccl", "WEFT_NCCL", FAKE_NCCL_LACKING, 1,
         "has no ncclCommAbort, ncclRedOpDestroy", false, false},
        {"nccl", "WEFT_FAKE_NCCL_VERSION", "21310", -1,
         "is NCCL 2.13.10: needed is 2.14 or later", false, false},
        {"nccl", "WEFT_FAKE_NCCL_VERSION", "22304", 1,
         "rank 0 has NCCL 2.28.9, rank 1 2.23.4", false, false},
        {"nccl", NULL, NULL, -1, "ranks 0 and 1 have one GPU, GPU-", false,
         true},
        {"nccl", "WEFT_NCCL_SHARED_GPU", "on", -1,
         "could not join NCCL: ncclCommInitRankConfig", false, true},
        {"nccl", NULL, NULL, -1, "rank 0: its device is none", true, false},
        {"nccl", "WEFT_FAKE_NCCL_FAULT", "refuse:1", -1,
         "rank 1 could not join NCCL: ncclCommInitRankConfig", false, false},
        {"nccl", "WEFT_FAKE_NCCL_FAULT", "stuck:1", -1,
         "ncclCommInitRankConfig has not ended", false, false},
        {"nccl", "WEFT_FAKE_NCCL_FAULT", "reject@1:1", -1,
         "rank 1 could not use NCCL: a first sum: internal error", false,
         false},
        {"nccl", "WEFT_FAKE_NCCL_FAULT", "wrong@1:1", -1,
         "rank 1 could not use NCCL: a first sum gave", false, false},
        {"nccl", "WEFT_FAKE_NCCL_FAULT", "hang@1:1", -1,
         "a first sum has not ended within", false, false},
        {"nccl", "WEFT_FAKE_NCCL_FAULT", "wrong@2:1", -1,
         "rank 1 could not use NCCL: a first message gave 0 where 1 is right",
         false, false},
        {"nccl", "WEFT_FAKE_NCCL_FAULT", "hang@2:0", -1,
         "a first message has not ended within", false, false},
        {"streams", NULL, NULL, -1,
         "rank 0 could not prepare streams: it was made without a device", true,
         false},
        {"streams", "WEFT_DOMAIN", "a,b", -1,
         "rank 0 could not prepare streams: its ranks are on several hosts",
         false, false},
        {"streams", "WEFT_FAKE_GPU_WRONG", "1", 1,
         "rank 1 could not use streams: a first gathering by streams gave",
         false, false},
        {"streams", "WEFT_FAKE_GPU_NO_PEER", "1", 1,
         "rank 1 could not reach the others' memory: cuda device 1: "
         "cuIpcOpenMemHandle",
         false, false}};
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

static void test_route_setting_unknown_refused_by_name(void **state)
{
    (void)state;
    wefti_tuning tuning;
    setenv("WEFT_ROUTE", "stream", 1);
    assert_int_equal(wefti_tuning_read(&tuning), WEFT_ERR_INVALID);
    assert_string_equal(weft_error_text(),
                        "WEFT_ROUTE=stream: allowed is steps, streams or "
                        "nccl");
    setenv("WEFT_ROUTE", "nccl", 1);
    assert_int_equal(wefti_tuning_read(&tuning), WEFT_OK);
    assert_int_equal(tuning.route, WEFTI_ROUTE_NCCL);
    assert_false(tuning.nccl_shared);
    setenv("WEFT_NCCL_SHARED_GPU", "maybe", 1);
    assert_int_equal(wefti_tuning_read(&tuning), WEFT_ERR_INVALID);
    assert_string_equal(weft_error_text(),
                        "WEFT_NCCL_SHARED_GPU=maybe: allowed is on or off");
    unsetenv("WEFT_NCCL_SHARED_GPU");
    setenv("WEFT_NET_RAILS", "9", 1); /* also where no rank is remote */
    assert_int_equal(wefti_tuning_read(&tuning), WEFT_ERR_INVALID);
    assert_string_equal(weft_error_text(), "WEFT_NET_RAILS=9: allowed is a "
                                           "whole number from 1 to 4");
    unsetenv("WEFT_NET_RAILS");
}

int main(void)
{
    scene_set("nccl");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_route_setting_unknown_refused_by_name),
        cmocka_unit_test(test_route_not_possible_steps_are_taken_cause_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
