/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: rates, link layers and states of ports, and what a PCI link can do
 * when awake, are read from sysfs; what is not there changes nothing.
 * Method: a small sysfs made in a temporary folder, then removed.
 */
#include "tests/topo/machine.h"
#include "topo/assemble.h"
#include "topo/interfaces.h"
#include "topo/sysfs.h"
#include "topo/topo.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[] = "/tmp/weft-sysfs-XXXXXX";

static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof(full), "%s/%s", root, path);
    for (char *c = full + strlen(root) + 1; *c; c++) {
        if (*c == '/') {
            *c = '\0';
            mkdir(full, 0700);
            *c = '/';
        }
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    fprintf(file, "%s\n", text);
    fclose(file);
}

static int remove_root(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", root);
    return system(command);
}

static int make_root(void **state)
{
    (void)state;
    return mkdtemp(root) ? 0 : -1;
}

static void test_sysfs_port_is_read(void **state)
{
    (void)state;
    wefti_topo *topo;
    assert_int_equal(wefti_topo_read_synthetic("1xH100,2xCX7", &topo), WEFT_OK);
    put("class/infiniband/mlx5_0/ports/1/rate", "200 Gb/sec (4X HDR)");
    put("class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE");
    put("class/infiniband/mlx5_0/ports/1/link_layer", "Ethernet");
    put("class/infiniband/mlx5_0/sys_image_guid", "506b:4b03:003c:eee8");
    put("class/infiniband/mlx5_1/ports/1/rate", "400 Gb/sec (4X NDR)");
    put("class/infiniband/mlx5_1/ports/1/state", "1: DOWN");
    put("class/infiniband/mlx5_1/ports/1/link_layer", "InfiniBand");
    wefti_sysfs_apply(topo, root);
    const wefti_device *nic = device_of(topo, WEFTI_TOPO_NIC, 0);
    assert_true(nic->nic.gbps == 200);
    assert_int_equal(nic->nic.gbps_origin, WEFTI_ORIGIN_READ);
    assert_int_equal(nic->nic.kind, WEFTI_NIC_ROCE);
    assert_int_equal(nic->nic.state, WEFTI_NIC_ACTIVE);
    assert_true(nic->nic.card_guid == 0x506b4b03003ceee8ull);
    nic = device_of(topo, WEFTI_TOPO_NIC, 1);
    assert_int_equal(nic->nic.state, WEFTI_NIC_DOWN);
    assert_int_equal(nic->nic.kind, WEFTI_NIC_INFINIBAND);
    wefti_topo_destroy(topo);
}

static void test_sysfs_slower_end_of_a_pci_link_counts(void **state)
{
    (void)state;
    wefti_topo *topo;
    char link[512], target[512];
    assert_int_equal(wefti_topo_read_synthetic("1xA100", &topo), WEFT_OK);
    const wefti_device *gpu = device_of(topo, WEFTI_TOPO_GPU, 0);
    put("devices/port/max_link_speed", "8.0 GT/s PCIe");
    put("devices/port/max_link_width", "16");
    put("devices/port/gpu/max_link_speed", "16.0 GT/s PCIe");
    put("devices/port/gpu/max_link_width", "8");
    put("devices/port/gpu/current_link_speed", "2.5 GT/s PCIe");
    put("devices/port/gpu/current_link_width", "4");
    put("bus/pci/devices/none", "");
    snprintf(link, sizeof(link), "%s/bus/pci/devices/%s", root, gpu->pci.bus);
    snprintf(target, sizeof(target), "%s/devices/port/gpu", root);
    assert_int_equal(symlink(target, link), 0);
    wefti_sysfs_apply(topo, root);
    gpu = device_of(topo, WEFTI_TOPO_GPU, 0);
    assert_int_equal(gpu->pci.gen, 3);
    assert_int_equal(gpu->pci.width, 8);
    assert_int_equal(gpu->pci.max_gen, 4);
    assert_int_equal(gpu->pci.max_width, 8);
    assert_int_equal(gpu->pci.now_gen, 1);
    assert_int_equal(gpu->pci.now_width, 4);
    wefti_pcie_doubt(topo);
    assert_warned(topo, 12, "gpu0", "Gen 1 x4 = 1 GB/s now");
    assert_warned(topo, 12, "gpu0", "its slot, riser or port");
    /* A hypervisor's port: 0.25 GB/s is not what the GPU has. */
    put("devices/port/max_link_speed", "2.5 GT/s PCIe");
    put("devices/port/max_link_width", "1");
    wefti_sysfs_apply(topo, root);
    gpu = device_of(topo, WEFTI_TOPO_GPU, 0);
    assert_int_equal(gpu->pci.gen, 4);
    assert_int_equal(gpu->pci.width, 8);
    assert_warned(topo, 11, "port", "not believed");
    wefti_topo_destroy(topo);
}

static void test_sysfs_absent_changes_nothing(void **state)
{
    (void)state;
    wefti_topo *topo;
    assert_int_equal(wefti_topo_read_synthetic("1xH100,1xCX7", &topo), WEFT_OK);
    wefti_sysfs_apply(topo, "/nowhere");
    assert_true(device_of(topo, WEFTI_TOPO_NIC, 0)->nic.gbps == 400);
    wefti_topo_destroy(topo);
}

static void put_interface(const char *name, const char *iflink,
                          const char *state)
{
    char path[256], link[512], target[512];
    static const char *const rest[][2] = {
        {"type", "1"}, {"ifindex", "3"}, {"speed", "10000"}};
    for (size_t i = 0; i < sizeof(rest) / sizeof(rest[0]); i++) {
        snprintf(path, sizeof(path), "devices/virtual/net/%s/%s", name,
                 rest[i][0]);
        put(path, rest[i][1]);
    }
    snprintf(path, sizeof(path), "devices/virtual/net/%s/iflink", name);
    put(path, iflink);
    snprintf(path, sizeof(path), "devices/virtual/net/%s/operstate", name);
    put(path, state);
    put("class/net/none", "");
    snprintf(link, sizeof(link), "%s/class/net/%s", root, name);
    snprintf(target, sizeof(target), "%s/devices/virtual/net/%s", root, name);
    assert_int_equal(symlink(target, link), 0);
}

/* A container's eth0 is one end of a pair whose other is in another
 * namespace. */
static void test_interfaces_that_lead_out_are_ports(void **state)
{
    (void)state;
    wefti_topo *topo;
    assert_int_equal(wefti_topo_read_synthetic("1xH100,1xCX7", &topo), WEFT_OK);
    put_interface("eth7", "9", "up");
    put_interface("idle", "9", "down");
    put_interface("dummy0", "3", "up"); /* its own other end */
    put_interface("vlan5", "9", "up");
    put("devices/virtual/net/vlan5/lower_eth0", "");
    put_interface("veth1", "9", "up");
    put("devices/virtual/net/veth1/master", "");
    put_interface("tap0", "9", "up");
    put("devices/virtual/net/tap0/tun_flags", "1");
    wefti_interfaces_add(topo, root);
    assert_int_equal(topo->kind_counts[WEFTI_TOPO_NIC], 2);
    const wefti_device *nic = device_of(topo, WEFTI_TOPO_NIC, 1);
    assert_string_equal(nic->name, "eth7");
    assert_int_equal(nic->nic.kind, WEFTI_NIC_ETHERNET);
    assert_true(nic->nic.gbps == 10 && nic->nic.gbps_assumed);
    assert_warned(topo, 17, "nic1 eth7", "virtual interface");
    wefti_nic_limit(topo, wefti_topo_find(topo, WEFTI_TOPO_NIC, 1), 0.4);
    nic = device_of(topo, WEFTI_TOPO_NIC, 1);
    assert_true(nic->nic.gbps == 0.4 && nic->nic.limited);
    assert_int_equal(nic->nic.gbps_origin, WEFTI_ORIGIN_READ);
    assert_null(find_warning(topo, 17, "nic1", ""));
    wefti_interfaces_add(topo, root); /* what is known is not added again */
    assert_int_equal(topo->kind_counts[WEFTI_TOPO_NIC], 2);
    assert_int_equal(wefti_topo_check(topo), WEFT_OK);
    wefti_topo_destroy(topo);
}

/* By Linux's folders where the name says nothing, by the name where a file is
 * all there is; neither carries anything. */
static void test_wifi_is_no_ethernet(void **state)
{
    (void)state;
    wefti_topo *topo;
    const wefti_pci card = {.class_code = 0x028000, .vendor = 0x8086};
    const wefti_pci wired = {.class_code = 0x020000, .vendor = 0x8086};
    assert_int_equal(wefti_nic_kind_guess(&card, "wlp2s0"), WEFTI_NIC_WIFI);
    assert_int_equal(wefti_nic_kind_guess(&card, ""), WEFTI_NIC_WIFI);
    assert_int_equal(wefti_nic_kind_guess(&wired, "wlan0"), WEFTI_NIC_WIFI);
    assert_int_equal(wefti_nic_kind_guess(&wired, "eno1"), WEFTI_NIC_ETHERNET);

    assert_int_equal(wefti_topo_read_synthetic("1xH100,1xETH10", &topo),
                     WEFT_OK);
    int port = wefti_topo_find(topo, WEFTI_TOPO_NIC, 0);
    snprintf(topo->devices[port].name, sizeof(topo->devices[port].name),
             "radio0");
    put_interface("radio0", "3", "up");
    put("devices/virtual/net/radio0/phy80211/name", "phy0");
    put_interface("air7", "9", "up");
    put("devices/virtual/net/air7/wireless/status", "0");
    assert_true(wefti_topo_nic_usable(topo, port));
    wefti_sysfs_apply(topo, root);
    wefti_interfaces_add(topo, root);
    assert_int_equal(topo->devices[port].nic.kind, WEFTI_NIC_WIFI);
    assert_false(wefti_topo_nic_usable(topo, port));
    bool added = false;
    for (int i = 0; i < topo->device_count; i++) {
        if (strcmp(topo->devices[i].name, "air7") == 0) {
            added = true;
            assert_int_equal(topo->devices[i].nic.kind, WEFTI_NIC_WIFI);
            assert_true(topo->devices[i].nic.gbps == 0);
        }
    }
    assert_true(added);
    wefti_traps_find(topo);
    assert_warned(topo, 25, "radio0", "Wi-Fi");
    assert_warned(topo, 25, "air7", "Wi-Fi");
    assert_null(find_warning(topo, 17, "air7", ""));
    wefti_topo_destroy(topo);
}

static void test_limits_of_ranks_add_up_by_host(void **state)
{
    (void)state;
    wefti_topo *topo;
    const int ranks[] = {3, 1};
    assert_int_equal(wefti_topo_read_synthetic("2x(1xH100,1xCX7)", &topo),
                     WEFT_OK);
    wefti_nics_limit_ranks(topo, 12.5, ranks);
    assert_true(device_of(topo, WEFTI_TOPO_NIC, 0)->nic.gbps == 300);
    assert_true(device_of(topo, WEFTI_TOPO_NIC, 1)->nic.gbps == 100);
    wefti_nics_limit_ranks(topo, 1000, ranks); /* more than it can do */
    assert_true(device_of(topo, WEFTI_TOPO_NIC, 1)->nic.gbps == 100);
    wefti_topo_destroy(topo);
}

static void test_live_machine_has_a_host_and_cpus(void **state)
{
    (void)state;
    const wefti_live_config config = {root, "libnowhere.so", false};
    wefti_topo *topo;
    assert_int_equal(wefti_topo_open_live(&config, &topo), WEFT_OK);
    assert_int_equal(topo->kind_counts[WEFTI_TOPO_HOST], 1);
    assert_true(topo->kind_counts[WEFTI_TOPO_NUMA] >= 1);
    assert_true(device_of(topo, WEFTI_TOPO_NUMA, 0)->cpu.affinity[0]);
    wefti_topo_destroy(topo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sysfs_port_is_read),
        cmocka_unit_test(test_sysfs_slower_end_of_a_pci_link_counts),
        cmocka_unit_test(test_sysfs_absent_changes_nothing),
        cmocka_unit_test(test_interfaces_that_lead_out_are_ports),
        cmocka_unit_test(test_wifi_is_no_ethernet),
        cmocka_unit_test(test_limits_of_ranks_add_up_by_host),
        cmocka_unit_test(test_live_machine_has_a_host_and_cpus),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
