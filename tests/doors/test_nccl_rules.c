/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what NCCL says of arguments, handles, configs, reductions and memory
 * holds of the library in its place, and every refusal has a text.
 *
 * Method: a communicator of one rank, and no other rank: what is refused needs
 * none. Configs are those of every size that was published, poisoned behind it.
 */
#include "tests/doors/door_ranks.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { INT32 = 2, F32 = 7, TYPES = 12, SUM = 0, AVG = 4 };

static struct ncclComm *alone(void)
{
    struct ncclComm *comm = NULL;
    assert_int_equal(ncclCommInitAll(&comm, 1, NULL), WEFTI_DOOR_SUCCESS);
    assert_non_null(comm);
    return comm;
}

static void end(struct ncclComm *comm, int failures)
{
    EXPECT_RESULT(SUCCESS, ncclCommDestroy(comm));
    assert_int_equal(failures, 0);
}

static void test_version_and_texts(void **state)
{
    int version = 0, failures = 0;
    (void)state;
    EXPECT_RESULT(SUCCESS, ncclGetVersion(&version));
    EXPECT(version == 22809);
    EXPECT_RESULT(INVALID_ARGUMENT, ncclGetVersion(NULL));
    EXPECT(door_said("version is NULL"));
    EXPECT(strcmp(ncclGetErrorString(0), "no error") == 0);
    for (int result = -3; result < 20; result++) {
        EXPECT(ncclGetErrorString(result) != NULL);
        EXPECT(ncclGetErrorString(result)[0] != '\0');
    }
    EXPECT(ncclGetErrorString(INT_MIN) != NULL);
    ncclResetDebugInit();
    assert_int_equal(failures, 0);
}

static void *ask_for_text(void *argument)
{
    snprintf(argument, 512, "%s", ncclGetLastError(NULL));
    return NULL;
}

/* As of a watchdog. */
static void test_last_error_is_known_to_threads_without_one(void **state)
{
    pthread_t thread;
    char text[512];
    (void)state;
    assert_int_equal(ncclGetUniqueId(NULL), WEFTI_DOOR_INVALID_ARGUMENT);
    assert_int_equal(pthread_create(&thread, NULL, ask_for_text, text), 0);
    pthread_join(thread, NULL);
    assert_string_equal(text, "ncclGetUniqueId: uniqueId is NULL");
}

/* Every call that takes a communicator, and may not. */
static int call_all(struct ncclComm *comm, int wanted)
{
    struct ncclComm *made = NULL;
    struct ncclWindow_vidmem *window;
    void *handle;
    int failures = 0, number = 0, list[1] = {0};
    float data[4] = {0}, out[4];
#define REFUSED(call)                                                          \
    failures += door_check_result(wanted, call, #call, __FILE__, __LINE__);    \
    EXPECT(door_said("comm"))
    REFUSED(ncclCommCount(comm, &number));
    REFUSED(ncclCommUserRank(comm, &number));
    REFUSED(ncclCommCuDevice(comm, &number));
    REFUSED(ncclCommGetAsyncError(comm, &number));
    REFUSED(ncclCommSplit(comm, 0, 0, &made, NULL));
    REFUSED(ncclCommShrink(comm, list, 1, &made, NULL, 0));
    REFUSED(ncclCommRegister(comm, data, sizeof(data), &handle));
    REFUSED(ncclCommDeregister(comm, NULL));
    REFUSED(ncclCommWindowRegister(comm, data, sizeof(data), &window, 0));
    REFUSED(ncclCommWindowDeregister(comm, NULL));
    REFUSED(ncclRedOpCreatePreMulSum(&number, data, F32, 1, comm));
    REFUSED(ncclRedOpDestroy(5, comm));
    REFUSED(ncclAllReduce(data, out, 1, F32, SUM, comm, NULL));
    REFUSED(ncclReduce(data, out, 1, F32, SUM, 0, comm, NULL));
    REFUSED(ncclBcast(data, 1, F32, 0, comm, NULL));
    REFUSED(ncclBroadcast(data, out, 1, F32, 0, comm, NULL));
    REFUSED(ncclAllGather(data, out, 1, F32, comm, NULL));
    REFUSED(ncclReduceScatter(data, out, 1, F32, SUM, comm, NULL));
    REFUSED(ncclAlltoAll(data, out, 1, F32, comm, NULL));
    REFUSED(ncclGather(data, out, 1, F32, 0, comm, NULL));
    REFUSED(ncclScatter(data, out, 1, F32, 0, comm, NULL));
    REFUSED(ncclSend(data, 1, F32, 0, comm, NULL));
    REFUSED(ncclRecv(out, 1, F32, 0, comm, NULL));
    REFUSED(ncclAllReduce(NULL, NULL, 0, F32, SUM, comm, NULL));
#undef REFUSED
    return failures;
}

static void test_null_handle_is_legal_to_end_and_nothing_else(void **state)
{
    int failures = 0;
    (void)state;
    EXPECT_RESULT(SUCCESS, ncclCommDestroy(NULL));
    EXPECT_RESULT(SUCCESS, ncclCommAbort(NULL));
    EXPECT_RESULT(SUCCESS, ncclCommFinalize(NULL));
    EXPECT_RESULT(SUCCESS, ncclCommRevoke(NULL, 0));
    failures += call_all(NULL, WEFTI_DOOR_INVALID_ARGUMENT);
    assert_int_equal(failures, 0);
}

static int end_all(struct ncclComm *comm)
{
    int failures = 0;
    EXPECT_RESULT(INVALID_ARGUMENT, ncclCommDestroy(comm));
    EXPECT_RESULT(INVALID_ARGUMENT, ncclCommAbort(comm));
    EXPECT_RESULT(INVALID_ARGUMENT, ncclCommFinalize(comm));
    EXPECT_RESULT(INVALID_ARGUMENT, ncclCommRevoke(comm, 0));
    EXPECT(door_said("not a weft communicator"));
    return failures;
}

static void test_foreign_and_freed_handles_are_refused(void **state)
{
    long foreign[64] = {0};
    struct ncclComm *comm = alone();
    (void)state;
    int failures = call_all((struct ncclComm *)(void *)foreign,
                            WEFTI_DOOR_INVALID_ARGUMENT);
    failures += end_all((struct ncclComm *)(void *)foreign);
    failures += call_all((struct ncclComm *)(uintptr_t)0x12340,
                         WEFTI_DOOR_INVALID_ARGUMENT); /* not even memory */
    EXPECT_RESULT(SUCCESS, ncclCommDestroy(comm));
    failures += call_all(comm, WEFTI_DOOR_INVALID_ARGUMENT);
    failures += end_all(comm);
    comm = alone();
    EXPECT_RESULT(SUCCESS, ncclCommAbort(comm));
    failures += end_all(comm);
    assert_int_equal(failures, 0);
}

static void test_init_refuses_ranks_out_of_range(void **state)
{
    struct ncclComm *comm = NULL, *comms[3];
    wefti_door_id ids[2];
    const int twice[3] = {0, 1, 0}, negative[1] = {-1};
    int failures = 0;
    (void)state;
    EXPECT_RESULT(SUCCESS, ncclGetUniqueId(&ids[0]));
    ids[1] = ids[0];
    EXPECT_RESULT(INVALID_ARGUMENT, ncclCommInitRank(NULL, 1, ids[0], 0));
    EXPECT_RESULT(INVALID_ARGUMENT, ncclCommInitRank(&comm, 0, ids[0], 0));
    EXPECT_RESULT(INVALID_ARGUMENT, ncclCommInitRank(&comm, 1, ids[0], -1));
    EXPECT_RESULT(INVALID_ARGUMENT, ncclCommInitRank(&comm, 1, ids[0], 1));
    EXPECT(comm == NULL && door_said("rank 1 of 1"));
    EXPECT_RESULT(INVALID_ARGUMENT,
                  ncclCommInitRankScalable(&comm, 1, 0, 0, ids, NULL));
    EXPECT_RESULT(INVALID_ARGUMENT,
                  ncclCommInitRankScalable(&comm, 1, 0, 2, ids, NULL));
    EXPECT_RESULT(INVALID_ARGUMENT,
                  ncclCommInitRankScalable(&comm, 1, 0, 1, NULL, NULL));
    EXPECT_RESULT(INVALID_ARGUMENT, ncclCommInitAll(NULL, 1, NULL));
    EXPECT_RESULT(INVALID_ARGUMENT, ncclCommInitAll(comms, 0, NULL));
    EXPECT_RESULT(INVALID_ARGUMENT, ncclCommInitAll(comms, -1, NULL));
    EXPECT_RESULT(INVALID_ARGUMENT, ncclCommInitAll(comms, 1, negative));
    EXPECT_RESULT(INVALID_USAGE, ncclCommInitAll(comms, 3, twice));
    EXPECT_RESULT(SUCCESS, ncclCommInitRankScalable(&comm, 1, 0, 1, ids, NULL));
    end(comm, failures);
}

static void test_id_that_is_none_is_refused(void **state)
{
    struct ncclComm *comm = NULL;
    wefti_door_id id;
    int failures = 0;
    (void)state;
    memset(&id, 0x31, sizeof(id));
    EXPECT_RESULT(INVALID_ARGUMENT, ncclCommInitRank(&comm, 1, id, 0));
    EXPECT(comm == NULL);
    EXPECT(door_said("not made by"));
    assert_int_equal(failures, 0);
}

/* Inits one rank with it, and ends it. */
static int try_config(const void *config)
{
    struct ncclComm *comm = NULL;
    wefti_door_id id;
    int failures = 0;
    EXPECT_RESULT(SUCCESS, ncclGetUniqueId(&id));
    const int result = ncclCommInitRankConfig(
        &comm, 1, id, 0, (wefti_door_config *)(uintptr_t)config);
    if (result == WEFTI_DOOR_SUCCESS) {
        EXPECT_RESULT(SUCCESS, ncclCommDestroy(comm));
    } else {
        EXPECT(comm == NULL);
    }
    return failures ? -1 : result;
}

/* Fields that a version does not have, and what lies behind its size, are
 * whatever stood there. */
static void test_config_of_every_published_size_is_taken(void **state)
{
    static const struct {
        unsigned version;
        size_t bytes, known_bytes; /* known: without padding */
    } published[] = {{21400, 24, 20}, {21700, 40, 40}, {21800, 48, 44},
                     {22200, 48, 44}, {22500, 48, 44}, {22600, 48, 48},
                     {22700, 72, 72}, {22809, 80, 80}, {22902, 88, 80},
                     {23007, 96, 80}};
    (void)state;
    for (size_t i = 0; i < sizeof(published) / sizeof(published[0]); i++) {
        _Alignas(8) unsigned char given[128];
        wefti_door_config config = door_config();
        config.size = published[i].bytes;
        config.version = published[i].version;
        memset(given, 0x5a, sizeof(given));
        memcpy(given, &config, published[i].known_bytes);
        assert_int_equal(try_config(given), WEFTI_DOOR_SUCCESS);
    }
}

static void test_config_of_no_version_is_refused(void **state)
{
    wefti_door_config config = door_config();
    int failures = 0;
    (void)state;
    config.magic ^= 1;
    EXPECT_RESULT(INVALID_ARGUMENT, try_config(&config));
    EXPECT(door_said("magic"));
    config = door_config();
    config.size = 8;
    EXPECT_RESULT(INVALID_ARGUMENT, try_config(&config));
    EXPECT(door_said("size"));
    EXPECT_RESULT(SUCCESS, try_config(NULL));
    assert_int_equal(failures, 0);
}

static void test_config_fields_have_ranges(void **state)
{
    static const struct {
        size_t field;
        int good, bad[2];
    } ranges[] = {
#define FIELD(name) offsetof(wefti_door_config, name)
        {FIELD(blocking), 1, {2, -1}},
        {FIELD(splitShare), 1, {2, -1}},
        {FIELD(shrinkShare), 1, {2, -1}},
        {FIELD(collnetEnable), 1, {2, -1}},
        {FIELD(nvlinkCentricSched), 1, {2, -1}},
        {FIELD(CTAPolicy), 2, {3, -1}},
        {FIELD(nvlsCTAs), 1, {0, -1}},
        {FIELD(maxCTAs), 1, {0, -1}},
        {FIELD(nChannelsPerNetPeer), 64, {65, 0}},
        {FIELD(trafficClass), 3, {INT_MIN, INT_MIN}}, /* any */
#undef FIELD
    };
    (void)state;
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        wefti_door_config config = door_config();
        int *field = (int *)((char *)&config + ranges[i].field);
        *field = ranges[i].good;
        assert_int_equal(try_config(&config), WEFTI_DOOR_SUCCESS);
        for (int k = 0; k < 2 && ranges[i].bad[k] != INT_MIN; k++) {
            *field = ranges[i].bad[k];
            assert_int_equal(try_config(&config), WEFTI_DOOR_INVALID_ARGUMENT);
            assert_true(door_said("config."));
        }
    }
}

static void test_config_of_ctas_is_a_range(void **state)
{
    wefti_door_config config = door_config();
    int failures = 0;
    (void)state;
    config.minCTAs = 2;
    EXPECT_RESULT(INVALID_ARGUMENT, try_config(&config));
    config.maxCTAs = 1;
    EXPECT_RESULT(INVALID_ARGUMENT, try_config(&config));
    config.maxCTAs = 2;
    EXPECT_RESULT(SUCCESS, try_config(&config));
    config.netName = "Socket";
    config.commName = "a name that is longer than thirty-one characters";
    EXPECT_RESULT(SUCCESS, try_config(&config));
    assert_int_equal(failures, 0);
}

static void test_ops_refuse_numbers_out_of_range(void **state)
{
    struct ncclComm *comm = alone();
    float data[4] = {1, 2, 3, 4}, out[4] = {0};
    int failures = 0;
    (void)state;
    EXPECT_RESULT(INVALID_ARGUMENT,
                  ncclAllReduce(data, out, 4, TYPES, SUM, comm, NULL));
    EXPECT(door_said("datatype is 12"));
    EXPECT_RESULT(INVALID_ARGUMENT,
                  ncclAllGather(data, out, 4, -1, comm, NULL));
    EXPECT_RESULT(INVALID_ARGUMENT,
                  ncclAllReduce(data, out, 4, F32, 5, comm, NULL));
    EXPECT(door_said("op is 5"));
    EXPECT_RESULT(INVALID_ARGUMENT,
                  ncclReduceScatter(data, out, 4, F32, -1, comm, NULL));
    EXPECT_RESULT(INVALID_ARGUMENT,
                  ncclReduce(data, out, 4, F32, SUM, 1, comm, NULL));
    EXPECT(door_said("root is 1"));
    EXPECT_RESULT(INVALID_ARGUMENT, ncclBcast(data, 4, F32, -1, comm, NULL));
    EXPECT_RESULT(INVALID_ARGUMENT,
                  ncclGather(data, out, 4, F32, 1, comm, NULL));
    EXPECT_RESULT(INVALID_ARGUMENT,
                  ncclScatter(data, out, 4, F32, 1, comm, NULL));
    EXPECT_RESULT(INVALID_ARGUMENT, ncclSend(data, 4, F32, 1, comm, NULL));
    EXPECT(door_said("peer is 1"));
    EXPECT_RESULT(INVALID_ARGUMENT, ncclRecv(out, 4, F32, -1, comm, NULL));
    EXPECT_RESULT(INVALID_ARGUMENT, ncclSend(NULL, 4, F32, 0, comm, NULL));
    EXPECT_RESULT(INVALID_ARGUMENT,
                  ncclAllReduce(NULL, out, 4, F32, SUM, comm, NULL));
    EXPECT_RESULT(INVALID_ARGUMENT,
                  ncclAllReduce(data, NULL, 4, F32, SUM, comm, NULL));
    EXPECT_RESULT(INVALID_ARGUMENT,
                  ncclAlltoAll(data, data, 4, F32, comm, NULL));
    EXPECT_RESULT(INVALID_ARGUMENT,
                  ncclAllReduce(data, out, 4, F32, SUM, comm,
                                (struct CUstream_st *)(void *)data));
    EXPECT(door_said("there is no GPU"));
    EXPECT_RESULT(SUCCESS, ncclAllReduce(data, out, 4, F32, AVG, comm, NULL));
    EXPECT(memcmp(data, out, sizeof(data)) == 0);
    end(comm, failures);
}

static void test_ops_of_nothing_do_nothing(void **state)
{
    struct ncclComm *comm = alone();
    int failures = 0;
    (void)state;
    EXPECT_RESULT(SUCCESS, ncclAllReduce(NULL, NULL, 0, F32, SUM, comm, NULL));
    EXPECT_RESULT(SUCCESS, ncclReduce(NULL, NULL, 0, F32, SUM, 0, comm, NULL));
    EXPECT_RESULT(SUCCESS, ncclAllGather(NULL, NULL, 0, F32, comm, NULL));
    EXPECT_RESULT(SUCCESS, ncclAlltoAll(NULL, NULL, 0, F32, comm, NULL));
    EXPECT_RESULT(INVALID_ARGUMENT,
                  ncclAllReduce(NULL, NULL, 0, TYPES, SUM, comm, NULL));
    end(comm, failures);
}

static void test_premulsum_belongs_to_comm_and_type(void **state)
{
    struct ncclComm *comm = alone(), *other = alone();
    float data[2] = {1, 2}, out[2] = {0}, scalar = 3;
    int failures = 0, op = 0, second = 0;
    (void)state;
    EXPECT_RESULT(SUCCESS,
                  ncclRedOpCreatePreMulSum(&op, &scalar, F32,
                                           WEFTI_DOOR_SCALAR_HOST, comm));
    EXPECT(op >= 5);
    scalar = 100; /* it was read by the call */
    EXPECT_RESULT(SUCCESS, ncclAllReduce(data, out, 2, F32, op, comm, NULL));
    EXPECT(out[0] == 3 && out[1] == 6);
    EXPECT_RESULT(INVALID_ARGUMENT,
                  ncclAllReduce(data, out, 2, INT32, op, comm, NULL));
    EXPECT_RESULT(INVALID_ARGUMENT,
                  ncclAllReduce(data, out, 2, F32, op, other, NULL));
    EXPECT_RESULT(SUCCESS,
                  ncclRedOpCreatePreMulSum(&second, &scalar, F32,
                                           WEFTI_DOOR_SCALAR_DEVICE, comm));
    EXPECT(second != op);
    scalar = 5; /* it is read when the operation runs */
    EXPECT_RESULT(SUCCESS,
                  ncclAllReduce(data, out, 2, F32, second, comm, NULL));
    EXPECT(out[0] == 5 && out[1] == 10);
    EXPECT_RESULT(INVALID_ARGUMENT, ncclRedOpDestroy(op, other));
    EXPECT_RESULT(SUCCESS, ncclRedOpDestroy(op, comm));
    EXPECT_RESULT(INVALID_ARGUMENT, ncclRedOpDestroy(op, comm));
    EXPECT_RESULT(INVALID_ARGUMENT, ncclRedOpDestroy(SUM, comm));
    EXPECT_RESULT(INVALID_ARGUMENT,
                  ncclAllReduce(data, out, 2, F32, op, comm, NULL));
    EXPECT_RESULT(INVALID_ARGUMENT,
                  ncclRedOpCreatePreMulSum(NULL, &scalar, F32, 1, comm));
    EXPECT_RESULT(INVALID_ARGUMENT,
                  ncclRedOpCreatePreMulSum(&op, NULL, F32, 1, comm));
    EXPECT_RESULT(INVALID_ARGUMENT,
                  ncclRedOpCreatePreMulSum(&op, &scalar, TYPES, 1, comm));
    EXPECT_RESULT(INVALID_ARGUMENT,
                  ncclRedOpCreatePreMulSum(&op, &scalar, F32, 2, comm));
    EXPECT_RESULT(SUCCESS, ncclCommDestroy(other));
    end(comm, failures);
}

static void test_memory_is_given_and_taken_back(void **state)
{
    void *memory = NULL;
    int failures = 0, foreign = 0;
    (void)state;
    EXPECT_RESULT(SUCCESS, ncclMemAlloc(&memory, 5000));
    EXPECT(memory && (uintptr_t)memory % 4096 == 0);
    memset(memory, 1, 5000);
    EXPECT_RESULT(INVALID_ARGUMENT, ncclMemFree(&foreign));
    EXPECT_RESULT(SUCCESS, ncclMemFree(memory));
    EXPECT_RESULT(INVALID_ARGUMENT, ncclMemFree(memory));
    EXPECT(door_said("ncclMemAlloc"));
    EXPECT_RESULT(SUCCESS, ncclMemFree(NULL));
    EXPECT_RESULT(SUCCESS, ncclMemAlloc(&memory, 0));
    EXPECT_RESULT(SUCCESS, ncclMemFree(memory));
    EXPECT_RESULT(INVALID_ARGUMENT, ncclMemAlloc(NULL, 8));
    EXPECT_RESULT(SYSTEM_ERROR, ncclMemAlloc(&memory, SIZE_MAX - 1));
    EXPECT(memory == NULL);
    assert_int_equal(failures, 0);
}

static void test_buffers_may_be_announced(void **state)
{
    struct ncclComm *comm = alone();
    struct ncclWindow_vidmem *window = (void *)comm;
    void *handle = comm;
    char data[64];
    int failures = 0;
    (void)state;
    EXPECT_RESULT(SUCCESS, ncclCommRegister(comm, data, sizeof(data), &handle));
    EXPECT(handle == NULL);
    EXPECT_RESULT(SUCCESS, ncclCommDeregister(comm, handle));
    EXPECT_RESULT(INVALID_ARGUMENT, ncclCommDeregister(comm, data));
    EXPECT_RESULT(INVALID_ARGUMENT, ncclCommRegister(comm, NULL, 1, &handle));
    EXPECT_RESULT(INVALID_ARGUMENT, ncclCommRegister(comm, data, 0, &handle));
    EXPECT_RESULT(INVALID_ARGUMENT, ncclCommRegister(comm, data, 1, NULL));
    EXPECT_RESULT(SUCCESS, ncclCommWindowRegister(comm, data, 64, &window, 1));
    EXPECT(window == NULL);
    EXPECT_RESULT(SUCCESS, ncclCommWindowDeregister(comm, window));
    EXPECT_RESULT(INVALID_ARGUMENT,
                  ncclCommWindowRegister(comm, data, 64, &window, 2));
    EXPECT_RESULT(INVALID_ARGUMENT,
                  ncclCommWindowDeregister(comm, (void *)data));
    end(comm, failures);
}

static void test_interface_for_kernels_is_refused_with_a_text(void **state)
{
    struct ncclComm *comm = alone();
    int failures = 0;
    (void)state;
    const wefti_door_team world = ncclTeamWorld(comm);
    EXPECT_RESULT(INVALID_USAGE, ncclDevCommCreate(comm, NULL, NULL));
    EXPECT(door_said("nccl_device.h"));
    EXPECT_RESULT(SUCCESS, ncclDevCommDestroy(comm, NULL));
    EXPECT_RESULT(INVALID_USAGE, ncclDevCommDestroy(comm, &world));
    EXPECT_RESULT(INVALID_USAGE,
                  ncclLsaBarrierCreateRequirement(world, 1, NULL, NULL));
    EXPECT_RESULT(INVALID_USAGE,
                  ncclGinBarrierCreateRequirement(comm, world, 1, NULL, NULL));
    EXPECT_RESULT(INVALID_USAGE, ncclLLA2ACreateRequirement(1, 1, NULL, NULL));
    EXPECT(world.nRanks == 1 && world.rank == 0 && world.stride == 1);
    EXPECT(ncclTeamLsa(comm).nRanks == 1 && ncclTeamRail(comm).nRanks == 1);
    EXPECT(ncclTeamRankToWorld(comm, world, 0) == 0);
    EXPECT(ncclTeamRankToLsa(comm, world, 0) == 0);
    EXPECT(ncclLLA2ACalcSlots(8, 8) == 0);
    EXPECT(ncclTeamWorld(NULL).nRanks == 0);
    end(comm, failures);
}

static void test_finalize_is_once(void **state)
{
    struct ncclComm *comm = alone();
    float data = 1;
    int failures = 0, result = -1;
    (void)state;
    EXPECT_RESULT(SUCCESS, ncclCommFinalize(comm));
    EXPECT_RESULT(INVALID_ARGUMENT, ncclCommFinalize(comm));
    EXPECT_RESULT(INVALID_USAGE,
                  ncclAllReduce(&data, &data, 1, F32, SUM, comm, NULL));
    EXPECT(door_said("finalized"));
    EXPECT_RESULT(SUCCESS, ncclCommGetAsyncError(comm, &result));
    EXPECT(result == WEFTI_DOOR_SUCCESS);
    EXPECT_RESULT(INVALID_ARGUMENT, ncclCommGetAsyncError(comm, NULL));
    end(comm, failures);
}

static void test_questions_have_answers(void **state)
{
    const int device = 3;
    struct ncclComm *comm = NULL;
    int failures = 0, number = -1;
    (void)state;
    EXPECT_RESULT(SUCCESS, ncclCommInitAll(&comm, 1, &device));
    EXPECT_RESULT(SUCCESS, ncclCommCount(comm, &number));
    EXPECT(number == 1);
    EXPECT_RESULT(SUCCESS, ncclCommUserRank(comm, &number));
    EXPECT(number == 0);
    EXPECT_RESULT(SUCCESS, ncclCommCuDevice(comm, &number));
    EXPECT(number == 3);
    EXPECT_RESULT(INVALID_ARGUMENT, ncclCommCount(comm, NULL));
    EXPECT_RESULT(INVALID_ARGUMENT, ncclCommUserRank(comm, NULL));
    EXPECT_RESULT(INVALID_ARGUMENT, ncclCommCuDevice(comm, NULL));
    end(comm, failures);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_version_and_texts),
        cmocka_unit_test(test_last_error_is_known_to_threads_without_one),
        cmocka_unit_test(test_null_handle_is_legal_to_end_and_nothing_else),
        cmocka_unit_test(test_foreign_and_freed_handles_are_refused),
        cmocka_unit_test(test_init_refuses_ranks_out_of_range),
        cmocka_unit_test(test_id_that_is_none_is_refused),
        cmocka_unit_test(test_config_of_every_published_size_is_taken),
        cmocka_unit_test(test_config_of_no_version_is_refused),
        cmocka_unit_test(test_config_fields_have_ranges),
        cmocka_unit_test(test_config_of_ctas_is_a_range),
        cmocka_unit_test(test_ops_refuse_numbers_out_of_range),
        cmocka_unit_test(test_ops_of_nothing_do_nothing),
        cmocka_unit_test(test_premulsum_belongs_to_comm_and_type),
        cmocka_unit_test(test_memory_is_given_and_taken_back),
        cmocka_unit_test(test_buffers_may_be_announced),
        cmocka_unit_test(test_interface_for_kernels_is_refused_with_a_text),
        cmocka_unit_test(test_finalize_is_once),
        cmocka_unit_test(test_questions_have_answers)};
    setenv("CUDA_VISIBLE_DEVICES", "", 1); /* host memory */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
