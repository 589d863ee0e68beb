/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a graph that was packed comes back the same; bytes that are not a
 * packed graph are refused, whatever they are.
 * Method: pack, unpack, pack again; every length and many changed bytes.
 */
#include "tests/seed.h"
#include "tests/topo/machine.h"
#include "topo/paths.h"
#include "topo/topo.h"

#include <stdlib.h>

static void test_pack_comes_back_the_same(void **state)
{
    (void)state;
    static const char *const texts[] = {"8xV100,4xCX5", "2x(8xH100,8xCX7)",
                                        "4x(1xNUMA)", "8xMI300X"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        wefti_topo *topo, *again;
        unsigned char *bytes, *more;
        size_t byte_count, more_count;
        assert_int_equal(wefti_topo_read_synthetic(texts[i], &topo), WEFT_OK);
        assert_int_equal(wefti_topo_pack(topo, &bytes, &byte_count), WEFT_OK);
        assert_int_equal(wefti_topo_unpack(bytes, byte_count, &again), WEFT_OK);
        assert_int_equal(wefti_topo_pack(again, &more, &more_count), WEFT_OK);
        assert_int_equal(byte_count, more_count);
        assert_memory_equal(bytes, more, byte_count);
        assert_int_equal(topo->device_count, again->device_count);
        assert_int_equal(topo->link_count, again->link_count);
        free(bytes);
        free(more);
        wefti_topo_destroy(topo);
        wefti_topo_destroy(again);
    }
}

static void test_pack_keeps_what_ports_can_use(void **state)
{
    (void)state;
    wefti_topo *topo, *again;
    unsigned char *bytes;
    size_t byte_count;
    assert_int_equal(wefti_topo_read_synthetic("2xH100,2xCX7", &topo), WEFT_OK);
    wefti_topo_note_transport(topo, "mlx5_1:1", "rc_mlx5");
    wefti_topo_note_transport(topo, "mlx5_1:2", "no such port");
    wefti_topo_note_transport(topo, "mlx5_1", "tcp");
    wefti_topo_note_transport(topo, "mlx5_11", "another device");
    wefti_topo_note_transport(topo, "lo", "tcp");
    assert_int_equal(wefti_topo_pack(topo, &bytes, &byte_count), WEFT_OK);
    assert_int_equal(wefti_topo_unpack(bytes, byte_count, &again), WEFT_OK);
    const wefti_device *first = device_of(again, WEFTI_TOPO_NIC, 0);
    const wefti_device *second = device_of(again, WEFTI_TOPO_NIC, 1);
    assert_string_equal(first->nic.transports, "");
    assert_string_equal(second->nic.transports, "rc_mlx5,tcp");
    for (int i = 0; i < 100; i++) { /* more than there is room for */
        wefti_topo_note_transport(topo, "mlx5_0", "dc_mlx5");
    }
    first = device_of(topo, WEFTI_TOPO_NIC, 0);
    assert_true(strlen(first->nic.transports) < sizeof(first->nic.transports));
    free(bytes);
    wefti_topo_destroy(topo);
    wefti_topo_destroy(again);
}

static void test_unpack_damage_is_refused_or_harmless(void **state)
{
    (void)state;
    wefti_topo *topo, *again;
    unsigned char *bytes;
    size_t byte_count;
    uint64_t random = random_seed();
    assert_int_equal(wefti_topo_read_synthetic("2xH100,1xCX7", &topo), WEFT_OK);
    assert_int_equal(wefti_topo_pack(topo, &bytes, &byte_count), WEFT_OK);
    for (size_t cut = 0; cut < byte_count; cut++) {
        assert_int_equal(wefti_topo_unpack(bytes, cut, &again),
                         WEFT_ERR_INVALID);
        assert_non_null(strstr(weft_error_text(), "damaged"));
    }
    for (int round = 0; round < 20000; round++) {
        size_t at = (size_t)(random_next(&random) % byte_count);
        unsigned char was = bytes[at];
        bytes[at] = (unsigned char)random_next(&random);
        if (wefti_topo_unpack(bytes, byte_count, &again) == WEFT_OK) {
            wefti_paths *paths;
            assert_int_equal(wefti_paths_create(again, &paths), WEFT_OK);
            wefti_paths_destroy(paths);
            wefti_topo_destroy(again);
        }
        bytes[at] = was;
    }
    free(bytes);
    wefti_topo_destroy(topo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pack_comes_back_the_same),
        cmocka_unit_test(test_pack_keeps_what_ports_can_use),
        cmocka_unit_test(test_unpack_damage_is_refused_or_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
