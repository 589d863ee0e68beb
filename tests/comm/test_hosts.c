/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: where ranks do not all share memory, every rank knows all hosts from
 * the moment its communicator is made, and can have the graph of them without
 * a word from the others; on one host, and where it is off, nobody describes
 * anything and the graph is still to be had.
 * Method: worlds of threads parted by WEFT_DOMAIN on this machine, which so is
 * each of their hosts; one rank alone asks for the graph while the others go on
 * to a barrier: any call that waits for them would be a mismatch. What is seen
 * is compared with this machine, read directly.
 */
#include "comm/cluster/cluster.h"
#include "comm/core/core.h"
#include "comm/make/hosts.h"
#include "tests/comm/world.h"
#include "topo/topo.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int own_devices(void)
{
    wefti_topo *own;
    assert_int_equal(wefti_topo_open_live(NULL, &own), WEFT_OK);
    int count = own->device_count;
    wefti_topo_destroy(own);
    return count;
}

static int run_world(const char *domains, const char *machines, int nranks,
                     world_rank_call call, void *context)
{
    struct world world = {.nranks = nranks,
                          .config = {.size_bytes = sizeof(weft_comm_config)},
                          .call = call,
                          .context = context};
    setenv("WEFT_MACHINES", machines, 1);
    if (domains) {
        setenv("WEFT_DOMAIN", domains, 1);
    }
    int failures = world_run_threads(&world);
    unsetenv("WEFT_DOMAIN");
    return failures;
}

/* hosts[rank], and as many machines as there are of them; counts failures. */
static int check_graph(weft_comm *comm, const int *hosts, int host_count,
                       int devices)
{
    wefti_cluster cluster;
    if (wefti_cluster_open(comm, NULL, &cluster) != WEFT_OK) {
        fprintf(stderr, "%s\n", weft_error_text());
        return 1;
    }
    int failures = cluster.host_count != host_count;
    failures += cluster.topo->device_count != host_count * devices;
    for (int rank = 0; rank < comm->nranks; rank++) {
        failures += cluster.hosts[rank] != hosts[rank];
    }
    wefti_cluster_close(&cluster);
    return failures;
}

static int ask_alone(weft_comm *comm, void *context)
{
    static const int hosts[] = {0, 1, 0, 2};
    const int *devices = context;
    int failures = 0;
    if (comm->rank == 3) {
        failures += check_graph(comm, hosts, 3, *devices);
    }
    failures += weft_barrier(comm, NULL) != WEFT_OK;
    return failures;
}

static void test_hosts_of_a_wide_world_are_known_to_a_rank_alone(void **state)
{
    (void)state;
    int devices = own_devices();
    assert_int_equal(run_world("a,b,a,c", "on", 4, ask_alone, &devices), 0);
}

static int ask_in_group(weft_comm *comm, void *context)
{
    static const int hosts[] = {0, 1};
    const int *devices = context;
    weft_comm *group = NULL;
    int failures = 0;
    /* Ranks 1 and 3 of domains b and c, in the other order; 0 and 2. */
    if (weft_comm_split(comm, comm->rank % 2, -comm->rank, NULL, &group) !=
        WEFT_OK) {
        return 1;
    }
    if (comm->rank == 1) {
        failures += check_graph(group, hosts, 2, *devices);
    }
    failures += weft_barrier(group, NULL) != WEFT_OK;
    weft_comm_destroy(group);
    return failures;
}

static void test_hosts_of_a_group_are_those_of_its_ranks(void **state)
{
    (void)state;
    int devices = own_devices();
    assert_int_equal(run_world("a,b,a,c", "on", 4, ask_in_group, &devices), 0);
}

static int compare_texts(weft_comm *comm, void *context)
{
    (void)context;
    size_t first = 0, second = 0;
    const unsigned char *a = wefti_hosts_find(comm->engine, 0, &first);
    const unsigned char *b = wefti_hosts_find(comm->engine, 1, &second);
    /* Rank 2 speaks for nobody: rank 0 does. */
    return !a + (a != b) + (first != second) + (first == 0) +
           (wefti_hosts_find(comm->engine, 2, &first) != NULL);
}

static void test_hosts_that_say_the_same_are_kept_once(void **state)
{
    (void)state;
    assert_int_equal(run_world("a,b,a", "on", 3, compare_texts, NULL), 0);
}

static int ask_together(weft_comm *comm, void *context)
{
    static const int parted[] = {0, 1, 0, 2}, one[4] = {0};
    const int *devices = context;
    size_t bytes;
    int count = wefti_cluster_is_wide(comm) ? 3 : 1;
    return (wefti_hosts_find(comm->engine, 0, &bytes) != NULL) +
           check_graph(comm, count == 3 ? parted : one, count, *devices);
}

static void test_hosts_off_are_read_when_all_ask(void **state)
{
    (void)state;
    int devices = own_devices();
    assert_int_equal(run_world("a,b,a,c", "off", 4, ask_together, &devices), 0);
}

static void test_hosts_of_one_host_are_not_described(void **state)
{
    (void)state;
    int devices = own_devices();
    assert_int_equal(run_world(NULL, "on", 4, ask_together, &devices), 0);
}

static int expect_refusal(int rank, weft_status status, void *context)
{
    (void)rank;
    (void)context;
    return status != WEFT_ERR_INVALID ||
           !strstr(weft_error_text(), "WEFT_MACHINES=maybe");
}

static void test_hosts_setting_that_is_none_is_refused(void **state)
{
    (void)state;
    struct world world = {.nranks = 2,
                          .config = {.size_bytes = sizeof(weft_comm_config)},
                          .call = ask_together,
                          .refused = expect_refusal};
    setenv("WEFT_MACHINES", "maybe", 1);
    assert_int_equal(world_run_threads(&world), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hosts_of_a_wide_world_are_known_to_a_rank_alone),
        cmocka_unit_test(test_hosts_of_a_group_are_those_of_its_ranks),
        cmocka_unit_test(test_hosts_that_say_the_same_are_kept_once),
        cmocka_unit_test(test_hosts_off_are_read_when_all_ask),
        cmocka_unit_test(test_hosts_of_one_host_are_not_described),
        cmocka_unit_test(test_hosts_setting_that_is_none_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
