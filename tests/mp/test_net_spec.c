/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal    a specification of emulated nodes says what it seems to say, and
 *         what is none is refused with what is allowed.
 * Method  tables of both.
 */
#include "perf/net_emulation.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

static void test_spec_nodes_and_rates_read(void **state)
{
    static const struct {
        const char *text;
        int nodes, first, last, rails;
        int64_t kbit;
    } cases[] = {
        {"2x2,1gbit", 2, 2, 2, 1, 1000000},
        {"3+1,200mbit", 2, 3, 1, 1, 200000},
        {"4x1,1gbit+400mbit", 4, 1, 1, 2, 1000000},
        {"1x5", 1, 5, 5, 1, 0},
        {"1+2+3,64kbit", 3, 1, 3, 1, 64},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        net_spec spec;
        assert_int_equal(net_spec_parse(cases[i].text, &spec), WEFT_OK);
        assert_int_equal(spec.node_count, cases[i].nodes);
        assert_int_equal(spec.ranks[0], cases[i].first);
        assert_int_equal(spec.ranks[spec.node_count - 1], cases[i].last);
        assert_int_equal(spec.rail_count, cases[i].rails);
        assert_int_equal(spec.kbit[0], cases[i].kbit);
    }
}

static void test_spec_nonsense_refused(void **state)
{
    static const char *const cases[] = {"",
                                        "2",
                                        "2x",
                                        "x2",
                                        "0x2",
                                        "2x0",
                                        "33x1",
                                        "2x2,",
                                        "2x2,1",
                                        "2x2,1tbit",
                                        "2x2,0mbit",
                                        "2x2,1gbit+",
                                        "2x2,1gbit ",
                                        "2x2 ,1gbit",
                                        "-2x2",
                                        "1025x1",
                                        "2x2,1gbit+1gbit+1gbit+1gbit+1gbit",
                                        "3+,1gbit",
                                        "32x33",
                                        "2x2,99999999gbit"};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        net_spec spec;
        weft_status status = net_spec_parse(cases[i], &spec);
        /* "2" is one node of two ranks: a list of one. */
        if (strcmp(cases[i], "2") == 0) {
            assert_int_equal(status, WEFT_OK);
            continue;
        }
        assert_int_equal(status, WEFT_ERR_INVALID);
        assert_non_null(strstr(weft_error_text(), "2x2,1gbit"));
    }
}

static void test_spec_ranks_placed_in_every_order(void **state)
{
    static const struct {
        const char *order;
        int node[4];
    } cases[] = {{"block", {0, 0, 0, 1}},
                 {"cyclic", {0, 1, 0, 0}},
                 {"1,0,0,0", {1, 0, 0, 0}}};
    static const char *const refused[] = {
        "", "blocks", "0,0,1", "0,0,1,1", "0,0,0,2", "0,0,0,1,", "0,0,0,-1"};
    net_spec spec;
    int node[NET_RANKS_MOST];
    (void)state;
    assert_int_equal(net_spec_parse("3+1", &spec), WEFT_OK);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(net_spec_place(&spec, cases[i].order, node), WEFT_OK);
        assert_memory_equal(node, cases[i].node, sizeof(cases[i].node));
    }
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        assert_int_equal(net_spec_place(&spec, refused[i], node),
                         WEFT_ERR_INVALID);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spec_nodes_and_rates_read),
        cmocka_unit_test(test_spec_nonsense_refused),
        cmocka_unit_test(test_spec_ranks_placed_in_every_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
