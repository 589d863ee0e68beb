/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what doors/nccl/door_abi.h declares is what programs are compiled
 * against, and a program in C that knows only nccl.h runs on the library.
 *
 * Method: nccl.h beside it; layouts, values and functions are compared when
 * this compiles. Built where nccl.h is installed.
 */
#include "tests/doors/door_program.h" /* first: it has nccl.h */

#include "doors/nccl/door_abi.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#define PLACES(ours, theirs, member)                                           \
    _Static_assert(offsetof(ours, member) == offsetof(theirs, member) &&       \
                       sizeof(((ours *)0)->member) ==                          \
                           sizeof(((theirs *)0)->member),                      \
                   #theirs "." #member)
#define CONFIG(member) PLACES(wefti_door_config, ncclConfig_t, member)
CONFIG(size);
CONFIG(magic);
CONFIG(version);
CONFIG(blocking);
CONFIG(cgaClusterSize);
CONFIG(minCTAs);
CONFIG(maxCTAs);
CONFIG(netName);
CONFIG(splitShare);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
CONFIG(trafficClass);
CONFIG(commName);
CONFIG(collnetEnable);
CONFIG(CTAPolicy);
CONFIG(shrinkShare);
CONFIG(nvlsCTAs);
CONFIG(nChannelsPerNetPeer);
CONFIG(nvlinkCentricSched);
#endif
#define SIMULATION(member) PLACES(wefti_door_simulation, ncclSimInfo_t, member)
SIMULATION(size);
SIMULATION(magic);
SIMULATION(version);
SIMULATION(estimatedTime);
_Static_assert(sizeof(wefti_door_id) == sizeof(ncclUniqueId), "id");

#define SAME(name, theirs, value, ...)                                         \
    _Static_assert((long long)(theirs) == (value), #theirs);
WEFTI_DOOR_RESULT_LIST(SAME)
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
WEFTI_DOOR_CONSTANT_LIST(SAME)
#endif

static void test_values_are_the_headers(void **state)
{
    const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    const ncclSimInfo_t simulation = NCCL_SIM_INFO_INITIALIZER;
    (void)state;
    assert_int_equal(config.magic, WEFTI_DOOR_CONFIG_MAGIC);
    assert_int_equal(simulation.magic, WEFTI_DOOR_SIMULATION_MAGIC);
    assert_int_equal(config.blocking, WEFTI_DOOR_UNDEFINED);
}

static void test_program_in_c_runs(void **state)
{
    (void)state;
    assert_int_equal(door_program(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_are_the_headers),
        cmocka_unit_test(test_program_in_c_runs)};
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
