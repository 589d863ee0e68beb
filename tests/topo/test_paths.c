/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: path types and bandwidths of machines whose answers are known.
 * Method: synthetic machines: NVSwitch box, cube mesh, PCIe only, cluster; what
 * NCCL 2.28.9's own code says of the same, exported.
 */
#include "tests/topo/machine.h"
#include "topo/paths.h"
#include "topo/topo.h"

typedef struct fixture {
    wefti_topo *topo;
    wefti_paths *paths;
} fixture;

static fixture open_text(const char *text)
{
    fixture f;
    assert_int_equal(wefti_topo_read_synthetic(text, &f.topo), WEFT_OK);
    assert_int_equal(wefti_paths_create(f.topo, &f.paths), WEFT_OK);
    return f;
}

static void close_text(fixture f)
{
    wefti_paths_destroy(f.paths);
    wefti_topo_destroy(f.topo);
}

static void test_paths_switched_box_is_all_nvlink(void **state)
{
    (void)state;
    fixture f = open_text("8xH100,8xCX7");
    for (int a = 0; a < 8; a++) {
        for (int b = 0; b < 8; b++) {
            wefti_topo_path path = wefti_path_gpu_gpu(f.paths, a, b);
            assert_int_equal(path.type,
                             a == b ? WEFTI_PATH_LOC : WEFTI_PATH_NVL);
            assert_true(a == b || path.GBps == 450);
            path = wefti_path_gpu_nic(f.paths, a, b);
            assert_int_equal(path.type,
                             a == b ? WEFTI_PATH_PIX : WEFTI_PATH_PXN);
            assert_true(path.GBps == 50);
        }
        assert_int_equal(wefti_paths_nic_of(f.paths, a), a);
    }
    close_text(f);
}

static void test_paths_cube_mesh_has_two_hops(void **state)
{
    (void)state;
    fixture f = open_text("8xV100");
    assert_int_equal(wefti_path_gpu_gpu(f.paths, 0, 3).type, WEFTI_PATH_NVL);
    assert_true(wefti_path_gpu_gpu(f.paths, 0, 3).GBps == 50);
    assert_true(wefti_path_gpu_gpu(f.paths, 0, 1).GBps == 25);
    wefti_topo_path path = wefti_path_gpu_gpu(f.paths, 0, 5);
    assert_int_equal(path.type, WEFTI_PATH_NVB);
    assert_int_equal(path.hops, 2);
    close_text(f);
}

static void test_paths_pcie_box_goes_by_bridges(void **state)
{
    (void)state;
    fixture f = open_text("4xL40,2xCX6,2xNUMA");
    assert_int_equal(wefti_path_gpu_gpu(f.paths, 0, 1).type, WEFTI_PATH_PIX);
    assert_int_equal(wefti_path_gpu_gpu(f.paths, 0, 2).type, WEFTI_PATH_SYS);
    assert_int_equal(wefti_path_gpu_nic(f.paths, 0, 0).type, WEFTI_PATH_PIX);
    assert_int_equal(wefti_path_gpu_nic(f.paths, 0, 1).type, WEFTI_PATH_SYS);
    close_text(f);
}

static void test_paths_two_gpus_at_two_near_nics_take_turns(void **state)
{
    (void)state;
    fixture f = open_text("2xA100,2xCX6,1xNUMA");
    close_text(f);
    f = open_text("4xA100,2xCX6");
    for (int gpu = 0; gpu < 4; gpu++) {
        assert_int_equal(wefti_paths_nic_of(f.paths, gpu), gpu / 2);
    }
    close_text(f);
}

/* The same, where the link to a device is that fast by NCCL's table. */
static fixture open_with_slow(wefti_topo_kind kind, int ordinal, double GBps)
{
    fixture f;
    assert_int_equal(wefti_topo_read_synthetic("4xH100,4xCX7", &f.topo),
                     WEFT_OK);
    int device = wefti_topo_find(f.topo, kind, ordinal);
    int link = wefti_topo_find_link(
        f.topo, f.topo->devices[device].parent, device,
        kind == WEFTI_TOPO_NIC ? WEFTI_LINK_PORT : WEFTI_LINK_PCI);
    assert_true(link >= 0);
    f.topo->links[link].GBps = f.topo->links[link].nccl_GBps = GBps;
    assert_int_equal(wefti_paths_create(f.topo, &f.paths), WEFT_OK);
    return f;
}

/* As NCCL's own paths are: PHB at 48 GB/s, not PXN at 3. */
static void test_paths_slow_gpu_is_no_relay(void **state)
{
    (void)state;
    fixture f = open_with_slow(WEFTI_TOPO_GPU, 1, 3);
    wefti_topo_path path = wefti_path_gpu_nic(f.paths, 0, 1);
    assert_int_equal(path.type, WEFTI_PATH_PHB);
    assert_true(path.nccl_GBps == 48);
    path = wefti_path_gpu_nic(f.paths, 1, 1);
    assert_int_equal(path.type, WEFTI_PATH_PIX);
    assert_true(path.nccl_GBps == 3);
    assert_int_equal(wefti_path_gpu_nic(f.paths, 1, 0).type, WEFTI_PATH_PXN);
    assert_int_equal(wefti_paths_nic_of(f.paths, 1), 1); /* it may be asleep */
    close_text(f);
}

/* A port that its neighbour has a faster one than is reached directly. */
static void test_paths_to_a_slow_port_take_no_relay(void **state)
{
    (void)state;
    fixture f = open_with_slow(WEFTI_TOPO_NIC, 1, 1.25);
    assert_int_equal(wefti_path_gpu_nic(f.paths, 0, 1).type, WEFTI_PATH_PHB);
    assert_int_equal(wefti_path_gpu_nic(f.paths, 0, 2).type, WEFTI_PATH_PXN);
    close_text(f);
}

static void test_paths_between_hosts_go_by_the_nics(void **state)
{
    (void)state;
    fixture f = open_text("2x(2xH100,2xCX7)");
    wefti_topo_path path = wefti_path_gpu_gpu(f.paths, 0, 3);
    assert_int_equal(path.type, WEFTI_PATH_NET);
    assert_true(path.GBps == 50);
    assert_int_equal(wefti_path_gpu_nic(f.paths, 0, 3).type, WEFTI_PATH_DIS);
    close_text(f);
    f = open_text("2x(2xH100)");
    assert_int_equal(wefti_path_gpu_gpu(f.paths, 0, 3).type, WEFTI_PATH_DIS);
    close_text(f);
}

static void test_paths_are_symmetric_and_their_routes_whole(void **state)
{
    (void)state;
    static const char *const texts[] = {"8xV100,4xCX5", "8xMI300X", "16xV100",
                                        "6xL40,3xCX6"};
    for (size_t t = 0; t < sizeof(texts) / sizeof(texts[0]); t++) {
        fixture f = open_text(texts[t]);
        for (int a = 0; a < f.paths->gpu_count; a++) {
            for (int b = 0; b < f.paths->gpu_count; b++) {
                wefti_topo_path go = wefti_path_gpu_gpu(f.paths, a, b);
                wefti_topo_path come = wefti_path_gpu_gpu(f.paths, b, a);
                wefti_route route;
                assert_int_equal(go.type, come.type);
                assert_true(go.GBps == come.GBps);
                wefti_route_gpu_gpu(f.paths, a, b, &route);
                assert_int_equal(route.count, go.hops);
                int at = f.paths->gpus[a];
                for (int i = 0; i < route.count; i++) {
                    const wefti_topo_link *link =
                        &f.topo->links[route.steps[i] / 2];
                    int from = route.steps[i] % 2 ? link->b : link->a;
                    assert_int_equal(from, at);
                    at = route.steps[i] % 2 ? link->a : link->b;
                    assert_true(link->GBps >= go.GBps);
                }
                assert_int_equal(at, f.paths->gpus[b]);
            }
        }
        close_text(f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paths_switched_box_is_all_nvlink),
        cmocka_unit_test(test_paths_cube_mesh_has_two_hops),
        cmocka_unit_test(test_paths_pcie_box_goes_by_bridges),
        cmocka_unit_test(test_paths_two_gpus_at_two_near_nics_take_turns),
        cmocka_unit_test(test_paths_slow_gpu_is_no_relay),
        cmocka_unit_test(test_paths_to_a_slow_port_take_no_relay),
        cmocka_unit_test(test_paths_between_hosts_go_by_the_nics),
        cmocka_unit_test(test_paths_are_symmetric_and_their_routes_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
