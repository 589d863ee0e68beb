/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: in a cluster a warning names the device it was of, by the name that
 * the cluster has for it, and none is dropped without a word.
 * Method: the same odd host twice and three times, merged, also by way of
 * bytes; more warnings than are kept.
 */
#include "tests/topo/machine.h"
#include "topo/topo.h"

#include <stdlib.h>

/* Two GPUs with unequal links, the second near a node without CPUs; a port
 * without a rate. */
#define GPU(bus, dev, other, count)                                            \
    "<pci busid=\"" bus "\" class=\"0x030200\" link_speed=\"16 GT/s\" "        \
    "link_width=\"16\"><gpu dev=\"" dev "\" sm=\"80\" rank=\"" dev             \
    "\"><nvlink target=\"" other "\" count=\"" count                           \
    "\" tclass=\"0x030200\"/></gpu></pci>"
#define NIC                                                                    \
    "<pci busid=\"0000:20:00.0\" class=\"0x020000\" link_speed=\"16 GT/s\" "   \
    "link_width=\"16\"><nic><net name=\"a0\" dev=\"0\" port=\"1\"/></nic>"     \
    "</pci>"
static const char odd_host[] =
    "<system version=\"1\"><cpu numaid=\"0\" arch=\"x86_64\" "
    "affinity=\"ff\">" GPU("0000:10:00.0", "0", "0000:11:00.0", "4") NIC
    "</cpu><cpu numaid=\"250\" arch=\"x86_64\" affinity=\"00\">" GPU(
        "0000:11:00.0", "1", "0000:10:00.0", "3") "</cpu></system>";

static wefti_topo *read_host(void)
{
    wefti_topo *topo = NULL;
    weft_status status =
        wefti_topo_read_nccl("m.xml", odd_host, strlen(odd_host), NULL, &topo);
    if (status != WEFT_OK) {
        fail_msg("%s", weft_error_text());
    }
    wefti_topo_warn(topo, 11, "0000:01:00.0", "a port that is no device");
    return topo;
}

static wefti_topo *merge_hosts(int count)
{
    wefti_topo *cluster, *part = read_host();
    assert_int_equal(wefti_topo_create(&cluster), WEFT_OK);
    for (int i = 0; i < count; i++) {
        assert_int_equal(wefti_topo_merge(cluster, part), WEFT_OK);
    }
    wefti_topo_destroy(part);
    return cluster;
}

static void test_merge_one_host_keeps_its_words(void **state)
{
    (void)state;
    wefti_topo *one = merge_hosts(1);
    assert_warned(one, 7, "gpu0 0000:10:00.0", "4 links to gpu1 ");
    assert_warned(one, 14, "numa250", "");
    assert_null(find_warning(one, 14, "host", ""));
    assert_null(find_warning(one, 11, "host", ""));
    wefti_topo_destroy(one);
}

static void check_three(const wefti_topo *cluster)
{
    assert_warned(cluster, 7, "gpu0 0000:10:00.0", "4 links to gpu1 0000:11");
    assert_warned(cluster, 7, "gpu2 0000:10:00.0", "4 links to gpu3 0000:11");
    assert_warned(cluster, 7, "gpu5 0000:11:00.0", "3 links to gpu4 0000:10");
    assert_warned(cluster, 17, "nic2 a0 0000:20:00.0", "no rate");
    assert_warned(cluster, 14, "host0.numa250", "");
    assert_warned(cluster, 14, "host1.numa250", "");
    assert_warned(cluster, 14, "host2.numa250", "");
    assert_warned(cluster, 11, "host0 0000:01:00.0", "no device");
    assert_warned(cluster, 11, "host2 0000:01:00.0", "no device");
    for (int i = 0; i < cluster->warning_count; i++) {
        assert_true(cluster->warnings[i].code != 14 ||
                    strncmp(cluster->warnings[i].device, "host", 4) == 0);
    }
}

static void test_merge_warnings_follow_their_devices(void **state)
{
    (void)state;
    wefti_topo *cluster = merge_hosts(3), *again;
    unsigned char *bytes;
    size_t byte_count;
    check_three(cluster);
    assert_int_equal(wefti_topo_pack(cluster, &bytes, &byte_count), WEFT_OK);
    assert_int_equal(wefti_topo_unpack(bytes, byte_count, &again), WEFT_OK);
    check_three(again);
    wefti_topo *both = merge_hosts(1); /* a host, then three at once */
    assert_int_equal(wefti_topo_merge(both, cluster), WEFT_OK);
    assert_warned(both, 14, "host0.numa250", "");
    assert_warned(both, 14, "host3.numa250", "");
    assert_warned(both, 7, "gpu6 ", "4 links to gpu7 ");
    assert_warned(both, 11, "host3 0000:01:00.0", "no device");
    free(bytes);
    wefti_topo_destroy(both);
    wefti_topo_destroy(again);
    wefti_topo_destroy(cluster);
}

static void test_merge_warnings_beyond_the_most_are_counted(void **state)
{
    (void)state;
    enum { WARNINGS = 1500 };
    wefti_topo *topo, *again;
    unsigned char *bytes;
    size_t byte_count;
    assert_int_equal(wefti_topo_create(&topo), WEFT_OK);
    for (int i = 0; i < WARNINGS; i++) {
        wefti_topo_warn(topo, 9, "gpu0", "oddity %d", i);
    }
    assert_true(topo->warning_count >= 1000);
    assert_int_equal(topo->warning_count + topo->warnings_left_out, WARNINGS);
    assert_int_equal(wefti_topo_pack(topo, &bytes, &byte_count), WEFT_OK);
    assert_int_equal(wefti_topo_unpack(bytes, byte_count, &again), WEFT_OK);
    assert_int_equal(again->warnings_left_out, topo->warnings_left_out);
    free(bytes);
    wefti_topo_destroy(again);
    wefti_topo_destroy(topo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merge_one_host_keeps_its_words),
        cmocka_unit_test(test_merge_warnings_follow_their_devices),
        cmocka_unit_test(test_merge_warnings_beyond_the_most_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
