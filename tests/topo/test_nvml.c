/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what NVML says becomes GPUs and links; what it refuses or lacks is
 * warned of by the name of the call and stops nothing else. Method: libraries
 * that answer like an eight-GPU box, one with dead links, a guest, broken, mute
 * and old drivers (fake_nvml.c).
 */
#include "tests/topo/machine.h"
#include "topo/nvml.h"
#include "topo/paths.h"
#include "topo/rings.h"
#include "topo/topo.h"

#include <stdlib.h>

typedef struct fixture {
    wefti_topo *topo;
    wefti_paths *paths;
    int count;
} fixture;

/* One NUMA node, then what the library says. bus: a GPU known to hang on the
 * node, or NULL. */
static fixture open_library_with(const char *name, const char *bus)
{
    fixture f;
    char path[512];
    wefti_nvml_gpu *gpus;
    wefti_claims claims = {0};
    snprintf(path, sizeof(path), "%s/%s", LIBRARIES, name);
    assert_int_equal(wefti_topo_create(&f.topo), WEFT_OK);
    wefti_topo_add_device(f.topo, WEFTI_TOPO_HOST, -1, "");
    int numa = wefti_topo_add_device(f.topo, WEFTI_TOPO_NUMA, 0, "");
    f.topo->devices[numa].os_index = 0;
    if (bus) {
        int gpu = wefti_topo_add_device(f.topo, WEFTI_TOPO_GPU, numa, "GPU");
        snprintf(f.topo->devices[gpu].pci.bus, 24, "%s", bus);
    }
    assert_int_equal(wefti_nvml_read(path, f.topo, &gpus, &f.count), WEFT_OK);
    wefti_nvml_apply(f.topo, gpus, f.count, &claims);
    assert_int_equal(wefti_topo_finish(f.topo, &claims), WEFT_OK);
    assert_int_equal(wefti_paths_create(f.topo, &f.paths), WEFT_OK);
    wefti_claims_fini(&claims);
    free(gpus);
    return f;
}

static fixture open_library(const char *name)
{
    return open_library_with(name, NULL);
}

static void close_library(fixture f)
{
    wefti_paths_destroy(f.paths);
    wefti_topo_destroy(f.topo);
}

static void test_nvml_absent_library_is_no_gpu_and_no_error(void **state)
{
    (void)state;
    fixture f = open_library("libnowhere.so");
    assert_int_equal(f.count, 0);
    assert_null(find_warning(f.topo, 24, "", ""));
    close_library(f);
}

static void test_nvml_box_is_joined_by_its_switches(void **state)
{
    (void)state;
    fixture f = open_library("libfake_nvml_box.so");
    assert_int_equal(f.count, 8);
    assert_int_equal(f.topo->switch_chips, 4);
    assert_int_equal(device_of(f.topo, WEFTI_TOPO_GPU, 7)->gpu.sm, 90);
    wefti_topo_path path = wefti_path_gpu_gpu(f.paths, 0, 7);
    assert_int_equal(path.type, WEFTI_PATH_NVL);
    assert_true(path.GBps > 478 && path.GBps < 478.2); /* 18 x 26.562 */
    assert_true(path.nccl_GBps > 370.7 && path.nccl_GBps < 370.9);
    assert_null(find_warning(f.topo, 4, "", ""));
    assert_null(find_warning(f.topo, 24, "", ""));
    close_library(f);
}

static void test_nvml_dead_links_are_named(void **state)
{
    (void)state;
    fixture f = open_library("libfake_nvml_dead.so");
    assert_warned(f.topo, 4, "gpu5", "2 of 18");
    assert_warned(f.topo, 4, "gpu5", "its twins have 18");
    assert_warned(f.topo, 6, "gpu6", "itself");
    assert_true(wefti_path_gpu_gpu(f.paths, 5, 0).GBps <
                wefti_path_gpu_gpu(f.paths, 4, 0).GBps);
    close_library(f);
}

static void test_nvml_guest_has_links_to_a_hidden_switch(void **state)
{
    (void)state;
    fixture f = open_library("libfake_nvml_guest.so");
    assert_int_equal(wefti_path_gpu_gpu(f.paths, 1, 2).type, WEFTI_PATH_NVL);
    assert_warned(f.topo, 8, "gpu0", "hidden");
    close_library(f);
}

static void test_nvml_refused_calls_are_named(void **state)
{
    (void)state;
    fixture f = open_library("libfake_nvml_broken.so");
    assert_int_equal(f.count, 0);
    assert_warned(f.topo, 24, "GPU 0", "nvmlDeviceGetPciInfo_v3 returned 999");
    close_library(f);
    f = open_library("libfake_nvml_driver.so");
    assert_int_equal(f.count, 0);
    assert_warned(f.topo, 24, "NVML", "nvmlInit_v2 returned 9");
    close_library(f);
}

static void test_nvml_old_library_goes_on_without_its_symbols(void **state)
{
    (void)state;
    fixture f = open_library("libfake_nvml_old.so");
    assert_int_equal(f.count, 2);
    int lines = 0;
    for (int i = 0; i < f.topo->warning_count; i++) {
        lines +=
            strstr(f.topo->warnings[i].text,
                   "nvmlDeviceGetCudaComputeCapability is missing") != NULL;
    }
    assert_int_equal(lines, 1); /* for both GPUs */
    wefti_topo_path path = wefti_path_gpu_gpu(f.paths, 0, 1);
    assert_int_equal(path.type, WEFTI_PATH_NVL);
    assert_true(path.GBps == 150);
    close_library(f);
}

static void test_nvml_refused_fields_mean_links_unknown(void **state)
{
    (void)state;
    fixture f = open_library("libfake_nvml_mute.so");
    assert_int_equal(f.count, 8);
    assert_true(f.topo->links_unknown);
    assert_warned(f.topo, 21, "gpu7", "links unknown");
    assert_warned(f.topo, 24, "GPU 7", "nvmlDeviceGetFieldValues returned 3");
    close_library(f);
    f = open_library("libfake_nvml_box.so");
    assert_false(f.topo->links_unknown);
    close_library(f);
}

static void test_nvml_links_are_found_without_the_capability(void **state)
{
    (void)state;
    fixture f = open_library("libfake_nvml_unnamed.so");
    assert_int_equal(wefti_path_gpu_gpu(f.paths, 0, 7).type, WEFTI_PATH_NVL);
    assert_false(f.topo->links_unknown);
    assert_int_equal(device_of(f.topo, WEFTI_TOPO_GPU, 3)->gpu.sm, 90);
    assert_warned(f.topo, 24, "NVML",
                  "nvmlDeviceGetCudaComputeCapability is missing");
    assert_warned(f.topo, 24, "NVML",
                  "nvmlDeviceGetNvLinkRemotePciInfo_v2 is missing");
    close_library(f);
}

static void test_nvml_slow_links_bound_the_plan(void **state)
{
    (void)state;
    wefti_rings rings;
    fixture f = open_library("libfake_nvml_slow.so");
    assert_warned(f.topo, 5, "gpu2", "siblings");
    assert_int_equal(wefti_rings_plan(f.paths, 0, &rings), WEFT_OK);
    assert_true(rings.channels * rings.GBps <= 239.1); /* 18 x 13.281 */
    assert_true(rings.channels * rings.GBps >= 180);
    wefti_rings_fini(&rings);
    close_library(f);
}

static void test_nvml_single_links_are_distinguished(void **state)
{
    (void)state;
    fixture f = open_library_with("libfake_nvml_odd.so", "0000:15:00.0");
    assert_int_equal(f.count, 8);
    assert_warned(f.topo, 5, "0000:13:00.0", "link 7 at 13.281");
    assert_null(find_warning(f.topo, 5, "0000:13:00.0", "link 6"));
    assert_warned(f.topo, 8, "0000:14:00.0", "2 links carry no traffic");
    assert_warned(f.topo, 4, "0000:14:00.0", "16 links");
    assert_warned(f.topo, 4, "0000:15:00.0", "1 of 2 links to its processor");
    double c2c_GBps = 0;
    for (int i = 0; i < f.topo->link_count; i++) {
        if (f.topo->links[i].type == WEFTI_LINK_C2C) {
            assert_int_equal(f.topo->links[i].count, 1);
            c2c_GBps += f.topo->links[i].GBps;
        }
    }
    assert_true(c2c_GBps > 44.7 && c2c_GBps < 44.8);
    close_library(f);
}

/* Hosts as ranks contribute them, put together. */
static wefti_topo_path between_trays(const char *first, const char *second,
                                     int *cliques_out)
{
    fixture hosts[2] = {open_library(first), open_library(second)};
    wefti_topo *all;
    wefti_paths *paths;
    assert_int_equal(wefti_topo_create(&all), WEFT_OK);
    for (int i = 0; i < 2; i++) {
        unsigned char *bytes;
        size_t byte_count;
        wefti_topo *part;
        assert_int_equal(wefti_topo_pack(hosts[i].topo, &bytes, &byte_count),
                         WEFT_OK);
        assert_int_equal(wefti_topo_unpack(bytes, byte_count, &part), WEFT_OK);
        assert_int_equal(wefti_topo_merge(all, part), WEFT_OK);
        wefti_topo_destroy(part);
        free(bytes);
        close_library(hosts[i]);
    }
    assert_int_equal(wefti_paths_create(all, &paths), WEFT_OK);
    wefti_topo_path path = wefti_path_gpu_gpu(paths, 1, 5);
    *cliques_out = paths->clique_count;
    wefti_paths_destroy(paths);
    wefti_topo_destroy(all);
    return path;
}

static void test_nvml_trays_of_a_clique_are_joined(void **state)
{
    (void)state;
    static const struct {
        const char *first, *second;
        int cliques;
        wefti_path_type type;
    } rows[] = {
        {"libfake_nvml_tray.so", "libfake_nvml_tray.so", 1, WEFTI_PATH_NVL},
        {"libfake_nvml_tray.so", "libfake_nvml_tray_old.so", 1, WEFTI_PATH_NVL},
        {"libfake_nvml_tray.so", "libfake_nvml_tray_two.so", 2, WEFTI_PATH_DIS},
        {"libfake_nvml_tray.so", "libfake_nvml_tray_bad.so", 1, WEFTI_PATH_DIS},
        {"libfake_nvml_box.so", "libfake_nvml_box.so", 2, WEFTI_PATH_NVL}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int cliques;
        wefti_topo_path path =
            between_trays(rows[i].first, rows[i].second, &cliques);
        assert_int_equal(cliques, rows[i].cliques);
        assert_int_equal(path.type, rows[i].type);
    }
    fixture f = open_library("libfake_nvml_tray_bad.so");
    assert_warned(f.topo, 21, "NVML GPU 1", "domain over hosts is unknown");
    assert_null(find_warning(f.topo, 21, "NVML GPU 0", ""));
    close_library(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nvml_absent_library_is_no_gpu_and_no_error),
        cmocka_unit_test(test_nvml_box_is_joined_by_its_switches),
        cmocka_unit_test(test_nvml_dead_links_are_named),
        cmocka_unit_test(test_nvml_guest_has_links_to_a_hidden_switch),
        cmocka_unit_test(test_nvml_refused_calls_are_named),
        cmocka_unit_test(test_nvml_old_library_goes_on_without_its_symbols),
        cmocka_unit_test(test_nvml_refused_fields_mean_links_unknown),
        cmocka_unit_test(test_nvml_links_are_found_without_the_capability),
        cmocka_unit_test(test_nvml_slow_links_bound_the_plan),
        cmocka_unit_test(test_nvml_single_links_are_distinguished),
        cmocka_unit_test(test_nvml_trays_of_a_clique_are_joined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
