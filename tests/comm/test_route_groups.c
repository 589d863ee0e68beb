/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: routes of what does not run take hosts, and the NUMA nodes in them,
 * from the machine's levels.
 *
 * Method: levels written down; nodes in turns, as GPUs have them.
 */
#include "comm/cluster/route_groups.h"
#include "comm/pattern/grouping.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

enum { PLACES = 6 };

static int nodes[PLACES] = {0, 1, 0, 1, 2, 2};
static int one_host[PLACES], two_hosts[PLACES] = {0, 0, 0, 0, 1, 1};

static void make(int *hosts, const char *inner, wefti_grouping **grouping,
                 wefti_nest **nest)
{
    const wefti_levels levels = {.place_count = PLACES,
                                 .level_count = 2,
                                 .names = {inner, "host"},
                                 .domains = {nodes, hosts},
                                 .hosts = hosts};
    assert_int_equal(wefti_route_groups_create(&levels, grouping, nest),
                     WEFT_OK);
}

static void test_nodes_of_one_host_are_a_level(void **state)
{
    (void)state;
    wefti_grouping *grouping;
    wefti_nest *nest;
    make(one_host, "numa", &grouping, &nest);
    assert_null(grouping);
    assert_non_null(nest);
    assert_int_equal(nest->level_count, 1);
    assert_int_equal(nest->levels[0].group_count, 3);
    assert_int_equal(nest->places[2], 1);
    wefti_nest_free(nest);
}

static void test_nodes_inside_hosts_are_another_level(void **state)
{
    (void)state;
    wefti_grouping *grouping;
    wefti_nest *nest;
    make(two_hosts, "numa", &grouping, &nest);
    assert_int_equal(grouping->host_count, 2);
    assert_non_null(nest);
    assert_int_equal(nest->level_count, 2);
    free(grouping);
    wefti_nest_free(nest);
}

static void test_hosts_alone_are_no_nest(void **state)
{
    (void)state;
    wefti_grouping *grouping;
    wefti_nest *nest;
    make(two_hosts, "nvlink", &grouping, &nest);
    assert_int_equal(grouping->host_count, 2);
    assert_null(nest);
    free(grouping);
    make(one_host, "nvlink", &grouping, &nest);
    assert_null(grouping);
    assert_null(nest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nodes_of_one_host_are_a_level),
        cmocka_unit_test(test_nodes_inside_hosts_are_another_level),
        cmocka_unit_test(test_hosts_alone_are_no_nest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
