/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: an hwloc XML becomes the graph of the machine it shows, with hwloc's
 * own faults corrected, with a warning; what cannot be read is refused with the
 * file, the line and what would be right. Method: small files written by hand
 * in tests/topo/data: four A100 with six links each to two NVSwitches, on two
 * sockets; counted and compared.
 */
#include "tests/topo/machine.h"
#include "topo/paths.h"
#include "topo/topo.h"

#include <stdlib.h>

static wefti_topo *open_machine(const char *name)
{
    char path[512];
    wefti_topo *topo = NULL;
    snprintf(path, sizeof(path), "%s/%s", MACHINES, name);
    weft_status status = wefti_topo_open(path, WEFTI_FORMAT_ANY, NULL, &topo);
    if (status != WEFT_OK) {
        fail_msg("%s", weft_error_text());
    }
    return topo;
}

static double nvlink_GBps(const wefti_topo *topo, int gpu, int *count_out)
{
    int device = wefti_topo_find(topo, WEFTI_TOPO_GPU, gpu);
    double sum = 0;
    *count_out = 0;
    for (int i = 0; i < topo->link_count; i++) {
        const wefti_topo_link *link = &topo->links[i];
        if (link->type == WEFTI_LINK_NVL &&
            (link->a == device || link->b == device)) {
            sum += link->GBps;
            *count_out += link->count;
        }
    }
    return sum;
}

static void test_hwloc_whole_machine_is_counted(void **state)
{
    (void)state;
    wefti_topo *topo = open_machine("hwloc_4gpu.xml");
    int count;
    assert_int_equal(topo->kind_counts[WEFTI_TOPO_HOST], 1);
    assert_int_equal(topo->kind_counts[WEFTI_TOPO_NUMA], 2);
    assert_int_equal(topo->kind_counts[WEFTI_TOPO_GPU], 4);
    assert_int_equal(topo->kind_counts[WEFTI_TOPO_NIC], 2);
    /* Of five bridges a socket, only the switch's upstream port stays. */
    assert_int_equal(topo->kind_counts[WEFTI_TOPO_BRIDGE], 2);
    assert_int_equal(topo->switch_chips, 2);
    assert_true(nvlink_GBps(topo, 0, &count) == 300);
    assert_int_equal(count, 12);
    assert_int_equal(device_of(topo, WEFTI_TOPO_GPU, 3)->gpu.sm, 80);
    assert_int_equal(
        topo->devices[wefti_topo_numa(topo,
                                      wefti_topo_find(topo, WEFTI_TOPO_GPU, 2))]
            .os_index,
        1);
    wefti_topo_destroy(topo);
}

static void test_hwloc_poorer_gpu_is_named(void **state)
{
    (void)state;
    wefti_topo *topo = open_machine("hwloc_4gpu.xml");
    int count;
    assert_true(nvlink_GBps(topo, 3, &count) == 200);
    assert_warned(topo, 4, "gpu3", "8 links");
    assert_null(find_warning(topo, 4, "gpu0", ""));
    wefti_topo_destroy(topo);
}

static void test_hwloc_port_that_is_down_is_left_out(void **state)
{
    (void)state;
    wefti_topo *topo = open_machine("hwloc_4gpu.xml");
    wefti_paths *paths;
    const wefti_device *up = device_of(topo, WEFTI_TOPO_NIC, 0);
    assert_int_equal(up->nic.state, WEFTI_NIC_ACTIVE);
    assert_int_equal(up->nic.kind, WEFTI_NIC_INFINIBAND);
    assert_true(up->nic.gbps == 200 && up->nic.gbps_assumed);
    assert_int_equal(device_of(topo, WEFTI_TOPO_NIC, 1)->nic.state,
                     WEFTI_NIC_DOWN);
    assert_warned(topo, 16, "nic1 mlx5_1", "down");
    assert_int_equal(wefti_paths_create(topo, &paths), WEFT_OK);
    assert_int_equal(wefti_path_gpu_nic(paths, 0, 0).type, WEFTI_PATH_PIX);
    assert_int_equal(wefti_path_gpu_nic(paths, 2, 1).type, WEFTI_PATH_DIS);
    assert_int_equal(wefti_path_gpu_gpu(paths, 0, 3).type, WEFTI_PATH_NVL);
    assert_true(wefti_path_gpu_gpu(paths, 0, 3).GBps == 200);
    wefti_paths_destroy(paths);
    wefti_topo_destroy(topo);
}

static void test_hwloc_doubled_links_are_halved(void **state)
{
    (void)state;
    wefti_topo *topo = open_machine("hwloc_4gpu_doubled.xml");
    int count;
    assert_true(nvlink_GBps(topo, 1, &count) == 300);
    assert_int_equal(count, 12);
    assert_warned(topo, 20, "", "2.9.0");
    wefti_topo_destroy(topo);
}

static void test_hwloc_no_matrix_means_links_unknown(void **state)
{
    (void)state;
    wefti_topo *topo = open_machine("hwloc_4gpu_bare.xml");
    assert_true(topo->links_unknown);
    assert_warned(topo, 21, "", "links unknown");
    wefti_topo_destroy(topo);
}

static void test_hwloc_without_devices_loads_and_says_so(void **state)
{
    (void)state;
    wefti_topo *topo = open_machine("hwloc_no_io.xml");
    assert_int_equal(topo->kind_counts[WEFTI_TOPO_GPU], 0);
    assert_int_equal(topo->kind_counts[WEFTI_TOPO_NUMA], 2);
    assert_warned(topo, 2, "", "no I/O");
    wefti_topo_destroy(topo);
}

static void test_hwloc_version_3_is_refused_with_the_way_out(void **state)
{
    (void)state;
    wefti_topo *topo;
    assert_int_equal(wefti_topo_open(MACHINES "/hwloc_version3.xml",
                                     WEFTI_FORMAT_ANY, NULL, &topo),
                     WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_text(), "hwloc_version3.xml:2"));
    assert_non_null(strstr(weft_error_text(), "3.0"));
    assert_non_null(strstr(weft_error_text(), "v2"));
}

static void test_hwloc_cut_anywhere_is_an_error_with_a_line(void **state)
{
    (void)state;
    FILE *file = fopen(MACHINES "/hwloc_4gpu.xml", "rb");
    static char text[1 << 16];
    assert_non_null(file);
    size_t bytes = fread(text, 1, sizeof(text), file);
    fclose(file);
    for (size_t cut = 0; cut + 2 < bytes; cut += bytes / 40) {
        wefti_topo *topo = NULL;
        weft_status status = wefti_topo_read_hwloc("cut.xml", text, cut, &topo);
        assert_int_equal(status, WEFT_ERR_INVALID);
        assert_non_null(strstr(weft_error_text(), "cut.xml:"));
    }
}

/* The file of whole machines, in which `from` stands as `to`, the first time or
 * wherever it stands. */
static void change(char *text, size_t room, const char *from, const char *to,
                   bool all)
{
    static char old[1 << 16];
    snprintf(old, sizeof(old), "%s", text);
    const char *rest = old, *at = strstr(old, from);
    assert_non_null(at);
    size_t used = 0;
    for (; at; at = all ? strstr(rest, from) : NULL) {
        used += (size_t)snprintf(text + used, room - used, "%.*s%s",
                                 (int)(at - rest), rest, to);
        rest = at + strlen(from);
    }
    snprintf(text + used, room - used, "%s", rest);
}

static void read_whole(char *text, size_t room)
{
    FILE *file = fopen(MACHINES "/hwloc_4gpu.xml", "rb");
    assert_non_null(file);
    size_t bytes = fread(text, 1, room - 1, file);
    text[bytes] = 0;
    fclose(file);
}

static wefti_topo *open_text(const char *text)
{
    wefti_topo *topo = NULL;
    assert_int_equal(wefti_topo_read_hwloc("m.xml", text, strlen(text), &topo),
                     WEFT_OK);
    return topo;
}

static wefti_topo *open_changed(const char *from, const char *to)
{
    static char text[1 << 16];
    read_whole(text, sizeof(text));
    change(text, sizeof(text), from, to, false);
    return open_text(text);
}

static void test_hwloc_shares_of_switches_make_whole_links(void **state)
{
    (void)state;
    wefti_topo *topo = open_changed("0 0 0 150000 150000", "0 0 0 162500 "
                                                           "137500");
    int count;
    assert_true(nvlink_GBps(topo, 0, &count) == 300);
    assert_int_equal(count, 12);
    wefti_topo_destroy(topo);
}

static void test_hwloc_doubling_of_unknown_gpus_is_doubted(void **state)
{
    (void)state;
    static char text[1 << 16];
    read_whole(text, sizeof(text));
    change(text, sizeof(text), "2.8.0", "2.9.0", false);
    change(text, sizeof(text), "NVIDIA A100-SXM4-80GB", "NVIDIA X9", true);
    change(text, sizeof(text), "[10de:20b2]", "[10de:fff0]", true);
    wefti_topo *topo = open_text(text);
    assert_warned(topo, 20, "m.xml", "taken as they are");
    wefti_topo_destroy(topo);
}

/* How often that is written for NCCL. */
static int count_in_export(const wefti_topo *topo, const char *words)
{
    char *text = NULL;
    size_t bytes = 0;
    int count = 0;
    FILE *memory = open_memstream(&text, &bytes);
    assert_non_null(memory);
    assert_int_equal(wefti_topo_write_nccl(topo, memory), WEFT_OK);
    assert_int_equal(fclose(memory), 0);
    for (const char *at = text; (at = strstr(at, words)); at++) {
        count++;
    }
    free(text);
    return count;
}

static void test_hwloc_bridge_without_a_speed_is_no_bottleneck(void **state)
{
    (void)state;
    static char text[1 << 16];
    int bridges = 0;
    read_whole(text, sizeof(text));
    change(text, sizeof(text), "b0\" pci_link_speed=\"31.507692\"",
           "b0\" pci_link_speed=\"0.000000\"", true);
    wefti_topo *topo = open_text(text);
    for (int i = 0; i < topo->link_count; i++) {
        const wefti_topo_link *link = &topo->links[i];
        if (topo->devices[link->b].kind == WEFTI_TOPO_BRIDGE) {
            bridges++;
            assert_true(link->GBps > 63 && link->nccl_GBps == 48);
        }
    }
    assert_int_equal(bridges, 2);
    assert_int_equal(count_in_export(topo, "32.0 GT/s"), 2);
    wefti_topo_destroy(topo);
}

static void test_hwloc_bridge_not_believed_is_none_in_an_export(void **state)
{
    (void)state;
    static char text[1 << 16];
    read_whole(text, sizeof(text));
    /* The first switch and the port above it: Gen 3 x2. */
    for (int i = 0; i < 2; i++) {
        change(text, sizeof(text), "b0\" pci_link_speed=\"31.507692\"",
               "b0\" pci_link_speed=\"1.969231\"", false);
    }
    wefti_topo *topo = open_text(text);
    assert_warned(topo, 11, "bridge0", "not believed");
    assert_int_equal(count_in_export(topo, "link_width=\"2\""), 0);
    assert_int_equal(count_in_export(topo, "\"8.0 GT/s"), 0);
    assert_true(count_in_export(topo, "\"16.0 GT/s") > 2);
    wefti_topo_destroy(topo);
}

static void test_hwloc_matrix_of_another_size_is_named(void **state)
{
    (void)state;
    const char *matrix = "NVLinkBandwidth matrix";
    wefti_topo *topo = open_changed("</u64values>", " 25000</u64values>");
    assert_warned(topo, 21, matrix, "37 numbers, and nbobjs asks for 36");
    wefti_topo_destroy(topo);
    topo = open_changed("150000", "");
    assert_warned(topo, 21, matrix, "35 numbers, and nbobjs asks for 36");
    wefti_topo_destroy(topo);
    topo = open_changed("150000", "many");
    assert_warned(topo, 21, matrix, "35 numbers");
    wefti_topo_destroy(topo);
    topo = open_changed(
        "<indexes", "<indexes length=\"5\">OSDev:999999 </indexes><indexes");
    assert_warned(topo, 21, matrix, "objects of this file");
    wefti_topo_destroy(topo);
    topo = open_machine("hwloc_4gpu.xml");
    assert_null(find_warning(topo, 21, "", ""));
    wefti_topo_destroy(topo);
}

/* A guest's root port says 2.5 GT/s x1 above whatever hangs on it. */
static void test_hwloc_port_of_a_guest_is_named_not_believed(void **state)
{
    (void)state;
    static const struct {
        const char *port, *text;
        double GBps;
    } rows[] = {{"0.250000", "not believed", 63},
                {"8.000000", "not believed", 63},
                {"31.507692", "bottleneck", 31.5}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[2048];
        wefti_topo *topo;
        int bytes =
            snprintf(text, sizeof(text),
                     "<topology version=\"2.0\"><object type=\"Machine\" "
                     "os_index=\"0\" cpuset=\"0x1\" nodeset=\"0x1\">"
                     "<object type=\"NUMANode\" os_index=\"0\" cpuset=\"0x1\" "
                     "nodeset=\"0x1\"/>"
                     "<object type=\"Bridge\" bridge_type=\"0-1\" "
                     "bridge_pci=\"0000:[10-19]\">"
                     "<object type=\"Bridge\" bridge_type=\"1-1\" "
                     "pci_busid=\"0000:10:01.0\" bridge_pci=\"0000:[13-13]\" "
                     "pci_type=\"0604 [1b36:000c] [0000:0000] 00\" "
                     "pci_link_speed=\"%s\">"
                     "<object type=\"PCIDev\" pci_busid=\"0000:13:00.0\" "
                     "pci_type=\"0302 [10de:2330] [10de:16c1] a1\" "
                     "pci_link_speed=\"63.015385\"/>"
                     "</object></object></object></topology>",
                     rows[i].port);
        assert_int_equal(
            wefti_topo_read_hwloc("guest", text, (size_t)bytes, &topo),
            WEFT_OK);
        int gpu = wefti_topo_find(topo, WEFTI_TOPO_GPU, 0);
        assert_true(gpu >= 0);
        int link = wefti_topo_find_link(topo, topo->devices[gpu].parent, gpu,
                                        WEFTI_LINK_PCI);
        double GBps = topo->links[link].GBps;
        assert_true(GBps > rows[i].GBps - 0.1 && GBps < rows[i].GBps + 0.1);
        assert_warned(topo, 11, "0000:10:01.0", rows[i].text);
        wefti_topo_destroy(topo);
    }
}

static void test_hwloc_version_that_is_none_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {"abc",    "",     "2",    "2.x",
                                        "2.0abc", " 2.0", "-2.0", "0.9",
                                        "2.",     "v2.0", "2,0"};
    static const char *const right[] = {"2.0", "2.1", "2.12", "1.0"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]) + 4; i++) {
        bool fits = i < 4;
        const char *version = fits ? right[i] : wrong[i - 4];
        char text[512];
        wefti_topo *topo = NULL;
        int bytes = snprintf(text, sizeof(text),
                             "<?xml version=\"1.0\"?>\n  <topology "
                             "version=\"%s\"><object type=\"Machine\" "
                             "os_index=\"0\" cpuset=\"0x1\"/></topology>",
                             version);
        weft_status status =
            wefti_topo_read_hwloc("m.xml", text, (size_t)bytes, &topo);
        assert_int_equal(status, fits ? WEFT_OK : WEFT_ERR_INVALID);
        if (!fits && (!strstr(weft_error_text(), "m.xml:2:3: ") ||
                      !strstr(weft_error_text(), version))) {
            fail_msg("%s: %s", version, weft_error_text());
        }
        wefti_topo_destroy(topo);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hwloc_whole_machine_is_counted),
        cmocka_unit_test(test_hwloc_poorer_gpu_is_named),
        cmocka_unit_test(test_hwloc_port_that_is_down_is_left_out),
        cmocka_unit_test(test_hwloc_doubled_links_are_halved),
        cmocka_unit_test(test_hwloc_no_matrix_means_links_unknown),
        cmocka_unit_test(test_hwloc_without_devices_loads_and_says_so),
        cmocka_unit_test(test_hwloc_version_3_is_refused_with_the_way_out),
        cmocka_unit_test(test_hwloc_version_that_is_none_is_refused),
        cmocka_unit_test(test_hwloc_cut_anywhere_is_an_error_with_a_line),
        cmocka_unit_test(test_hwloc_matrix_of_another_size_is_named),
        cmocka_unit_test(test_hwloc_shares_of_switches_make_whole_links),
        cmocka_unit_test(test_hwloc_doubling_of_unknown_gpus_is_doubted),
        cmocka_unit_test(test_hwloc_bridge_without_a_speed_is_no_bottleneck),
        cmocka_unit_test(test_hwloc_bridge_not_believed_is_none_in_an_export),
        cmocka_unit_test(test_hwloc_port_of_a_guest_is_named_not_believed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
