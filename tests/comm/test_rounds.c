/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what all ranks must know of each other goes from host to host in log2
 * rounds of the hosts' leaders, and reaches all of them.
 *
 * Method: the leaders' tables of many worlds are walked without a network.
 */
#include "comm/net/rounds.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { HOSTS_MOST = 70 };

/* ---- tables ---------------------------------------------------------------
 */

/* Ranks of a host stand `hosts` apart, so that neighbours share no memory. */
static void check_hosts(int hosts, int each)
{
    enum { MOST = 3 * HOSTS_MOST };
    wefti_rounds *rounds[MOST];
    int firsts[MOST];
    bool knows[HOSTS_MOST][HOSTS_MOST] = {{false}};
    const int nranks = hosts * each;
    for (int rank = 0; rank < nranks; rank++) {
        firsts[rank] = rank % hosts;
    }
    for (int rank = 0; rank < nranks; rank++) {
        rounds[rank] = wefti_rounds_create(firsts, nranks, rank);
        assert_non_null(rounds[rank]);
        assert_int_equal(rounds[rank]->leader, rank % hosts);
        assert_int_equal(rounds[rank]->leads, rank < hosts);
        assert_int_equal(rounds[rank]->local_count, each);
        assert_int_equal(rounds[rank]->count,
                         rank < hosts ? rounds[0]->count : 0);
    }
    assert_true(1 << rounds[0]->count >= hosts);
    assert_true(rounds[0]->count == 0 || 1 << rounds[0]->count < 2 * hosts);
    for (int host = 0; host < hosts; host++) {
        knows[host][host] = true;
    }
    for (int k = 0; k < rounds[0]->count; k++) {
        bool before[HOSTS_MOST][HOSTS_MOST];
        memcpy(before, knows, sizeof(before));
        for (int host = 0; host < hosts; host++) {
            const int to = rounds[host]->to[k];
            assert_true(to < hosts && to != host);
            assert_int_equal(rounds[to]->from[k], host);
            assert_int_equal(wefti_rounds_find_to(rounds[host], to), k);
            assert_int_equal(wefti_rounds_find_from(rounds[to], host), k);
            for (int known = 0; known < hosts; known++) {
                knows[to][known] |= before[host][known];
            }
        }
    }
    for (int host = 0; host < hosts; host++) {
        for (int known = 0; known < hosts; known++) {
            assert_true(knows[host][known]);
        }
    }
    for (int rank = 0; rank < nranks; rank++) {
        free(rounds[rank]);
    }
}

static void test_rounds_of_any_number_of_hosts_reach_all(void **state)
{
    (void)state;
    for (int hosts = 1; hosts <= HOSTS_MOST; hosts++) {
        check_hosts(hosts, 1);
        check_hosts(hosts, 3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounds_of_any_number_of_hosts_reach_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
