/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a short text means the machine it seems to mean, or is refused with
 * the column and what was wanted.
 * Method: tables of texts with the counts that must come out.
 */
#include "tests/topo/machine.h"
#include "topo/topo.h"

static void test_synthetic_texts_are_counted(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int hosts, gpus, nics, numas;
    } rows[] = {{"2x(8xH100,8xCX7)", 2, 16, 16, 4},
                {"8xV100", 1, 8, 0, 2},
                {"2xA100,1xCX6", 1, 2, 1, 1},
                {"(1xA100)", 1, 1, 0, 1},
                {"3x(4xCX5)", 3, 0, 12, 6},
                {"4xH100,4xNUMA", 1, 4, 0, 4},
                {"2x(8xH100)+1x(4xA100,2xCX6)", 3, 20, 2, 6},
                {"2x(8xA100,4xROCE200)", 2, 16, 8, 4},
                {"8xH100,8xCX7,2xETH25", 1, 8, 10, 2},
                {"2x(2xCX7,1xCX6,1xETH)", 2, 0, 8, 2},
                {"1x(1xNUMA)", 1, 0, 0, 1}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        wefti_topo *topo;
        assert_int_equal(wefti_topo_read_synthetic(rows[i].text, &topo),
                         WEFT_OK);
        assert_int_equal(topo->kind_counts[WEFTI_TOPO_HOST], rows[i].hosts);
        assert_int_equal(topo->kind_counts[WEFTI_TOPO_GPU], rows[i].gpus);
        assert_int_equal(topo->kind_counts[WEFTI_TOPO_NIC], rows[i].nics);
        assert_int_equal(topo->kind_counts[WEFTI_TOPO_NUMA], rows[i].numas);
        assert_int_equal(topo->warning_count, 0);
        wefti_topo_destroy(topo);
    }
}

static void test_synthetic_nic_rate_may_be_given(void **state)
{
    (void)state;
    wefti_topo *topo;
    assert_int_equal(wefti_topo_read_synthetic("1xH100,1xROCE100", &topo),
                     WEFT_OK);
    const wefti_device *nic = device_of(topo, WEFTI_TOPO_NIC, 0);
    assert_true(nic->nic.gbps == 100);
    assert_int_equal(nic->nic.kind, WEFTI_NIC_ROCE);
    wefti_topo_destroy(topo);
}

static void test_synthetic_nics_of_two_kinds_are_both_there(void **state)
{
    (void)state;
    wefti_topo *topo;
    assert_int_equal(wefti_topo_read_synthetic("8xH100,8xCX7,2xETH25", &topo),
                     WEFT_OK);
    const wefti_device *first = device_of(topo, WEFTI_TOPO_NIC, 0);
    assert_int_equal(first->nic.kind, WEFTI_NIC_INFINIBAND);
    for (int i = 8; i < 10; i++) {
        const wefti_device *nic = device_of(topo, WEFTI_TOPO_NIC, i);
        int at = wefti_topo_find(topo, WEFTI_TOPO_NIC, i);
        assert_int_equal(nic->nic.kind, WEFTI_NIC_ETHERNET);
        assert_true(nic->nic.gbps == 25);
        assert_int_equal(topo->devices[wefti_topo_numa(topo, at)].os_index,
                         i - 8);
    }
    wefti_topo_destroy(topo);
}

static void test_synthetic_nonsense_is_refused_at_its_column(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } rows[] = {{"", "column 1"},
                {"8x", "column 3"},
                {"8xQ7", "column 3"},
                {"2x(8xH100", "column 10"},
                {"8xH100)", "column 7"},
                {"0x(8xH100)", "column 1"},
                {"2x8xH100)", "column 3"},
                {"1025xH100", "column 1"},
                {"9999x(1xH100)", "column"},
                {"8xH100,", "column 8"},
                {"4xH100,4xA100", "one kind of GPUs"},
                {"1xNUMA,2xNUMA", "NUMA once"},
                {"1xCX5,1xCX6,1xCX7,1xCX8,1xETH", "four kinds"},
                {"8xCX7abc", "column 3"},
                {"4xGB200,2xNVL", "multiple of its 4 GPUs"},
                {"4xGB200,6xNVL", "multiple of its 4 GPUs"},
                {"4xCX7,8xNVL", "GPUs"},
                {"4xL40,8xNVL", "NVSwitches"},
                {"4xGB200,8xNVL,8xNVL", "NVL once"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        wefti_topo *topo;
        assert_int_equal(wefti_topo_read_synthetic(rows[i].text, &topo),
                         WEFT_ERR_INVALID);
        if (!strstr(weft_error_text(), rows[i].words)) {
            fail_msg("%s: %s", rows[i].text, weft_error_text());
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_synthetic_texts_are_counted),
        cmocka_unit_test(test_synthetic_nic_rate_may_be_given),
        cmocka_unit_test(test_synthetic_nics_of_two_kinds_are_both_there),
        cmocka_unit_test(test_synthetic_nonsense_is_refused_at_its_column),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
