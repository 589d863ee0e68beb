/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: NCCL's and RCCL's XML becomes the graph it means; each trap of
 * docs/topology.md is warned of with its device, nothing odd passes in silence,
 * and what went in comes out again. Method: one table of small files, what they
 * must warn of; refused ones with the words their errors must hold; export and
 * import compared.
 */
#include "tests/topo/machine.h"
#include "topo/paths.h"
#include "topo/topo.h"

#include <stdlib.h>

#define CPU                                                                    \
    "<cpu numaid=\"0\" arch=\"x86_64\" vendor=\"AuthenticAMD\" "               \
    "familyid=\"25\" modelid=\"1\" affinity=\"00000000,ffffffff\">"
#define GPU(bus, dev, links)                                                   \
    "<pci busid=\"" bus "\" class=\"0x030200\" vendor=\"0x10de\" "             \
    "device=\"0x20b2\" link_speed=\"16 GT/s\" link_width=\"16\"><gpu "         \
    "dev=\"" dev "\" sm=\"80\" rank=\"" dev "\" gdr=\"1\">" links              \
    "</gpu></pci>"
#define LINK(target, count, tclass)                                            \
    "<nvlink target=\"" target "\" count=\"" count "\" tclass=\"" tclass "\"/" \
    ">"
#define SWITCH(count) LINK("0000:c1:00.0", count, "0x068000")
#define NIC(bus, attributes)                                                   \
    "<pci busid=\"" bus "\" class=\"0x020700\" vendor=\"0x15b3\" "             \
    "device=\"0x101b\" link_speed=\"16 GT/s\" "                                \
    "link_width=\"16\"><nic><net " attributes "/></nic></pci>"
#define SYSTEM(inside) "<system version=\"1\">" inside "</system>"

static wefti_topo *read_text(const char *text)
{
    wefti_topo *topo = NULL;
    weft_status status =
        wefti_topo_read_nccl("m.xml", text, strlen(text), NULL, &topo);
    if (status != WEFT_OK) {
        fail_msg("%s", weft_error_text());
    }
    return topo;
}

static int links_between(const wefti_topo *topo, int a, int b)
{
    int count = 0;
    int x = wefti_topo_find(topo, WEFTI_TOPO_GPU, a);
    int y = wefti_topo_find(topo, WEFTI_TOPO_GPU, b);
    for (int i = 0; i < topo->link_count; i++) {
        const wefti_topo_link *link = &topo->links[i];
        if ((link->a == x && link->b == y) || (link->a == y && link->b == x)) {
            count += link->count;
        }
    }
    return count;
}

static void test_nccl_switched_gpus_are_joined(void **state)
{
    (void)state;
    wefti_topo *topo = read_text(SYSTEM(
        CPU GPU("0000:07:00.0", "0", SWITCH("12"))
            GPU("0000:0A:00.0", "1", SWITCH("12"))
                NIC("0000:0c:00.0", "name=\"mlx5_0\" dev=\"0\" "
                                    "speed=\"200000\" guid=\"0x1\"") "</cpu>"));
    wefti_paths *paths;
    assert_int_equal(topo->kind_counts[WEFTI_TOPO_GPU], 2);
    assert_int_equal(topo->switch_chips, 1);
    assert_int_equal(topo->warning_count, 0);
    assert_int_equal(wefti_paths_create(topo, &paths), WEFT_OK);
    wefti_topo_path path = wefti_path_gpu_gpu(paths, 0, 1);
    assert_int_equal(path.type, WEFTI_PATH_NVL);
    assert_true(path.GBps == 300 && path.nccl_GBps == 240);
    assert_int_equal(wefti_path_gpu_nic(paths, 1, 0).type, WEFTI_PATH_PHB);
    wefti_paths_destroy(paths);
    wefti_topo_destroy(topo);
}

static void test_nccl_pair_listed_by_both_counts_once(void **state)
{
    (void)state;
    wefti_topo *topo = read_text(SYSTEM(
        CPU GPU("0000:07:00.0", "0", LINK("0000:0a:00.0", "4", "0x030200"))
            GPU("0000:0a:00.0", "1",
                LINK("0000:07:00.0", "4", "0x030200")) "</cpu>"));
    assert_int_equal(links_between(topo, 0, 1), 4);
    assert_int_equal(topo->warning_count, 0);
    wefti_topo_destroy(topo);
}

/* What a file must warn of; device is a part of the warning's. */
typedef struct trap {
    int code;
    const char *device, *text, *file;
} trap;

static const trap traps[] = {
    {4, "gpu1", "its twins have 12",
     SYSTEM(CPU GPU("0000:07:00.0", "0", SWITCH("12"))
                GPU("0000:08:00.0", "1", SWITCH("11"))
                    GPU("0000:09:00.0", "2", SWITCH("12")) "</cpu>")},
    {4, "gpu2", "0 links",
     SYSTEM(CPU GPU("0000:07:00.0", "0", SWITCH("12"))
                GPU("0000:08:00.0", "1", SWITCH("12"))
                    GPU("0000:09:00.0", "2", "") "</cpu>")},
    {6, "gpu0 0000:07:00.0", "itself",
     SYSTEM(CPU GPU("0000:07:00.0", "0",
                    LINK("0000:07:00.0", "2", "0x030200")) "</cpu>")},
    {7, "gpu0", "lists 0 back",
     SYSTEM(CPU GPU("0000:07:00.0", "0", LINK("0000:08:00.0", "4", "0x030200"))
                GPU("0000:08:00.0", "1", "") "</cpu>")},
    {7, "gpu1", "lists 2 back: 2 used",
     SYSTEM(CPU GPU("0000:07:00.0", "0", LINK("0000:08:00.0", "2", "0x030200"))
                GPU("0000:08:00.0", "1",
                    LINK("0000:07:00.0", "4", "0x030200")) "</cpu>")},
    {8, "gpu0", "hidden",
     SYSTEM(CPU GPU("0000:07:00.0", "0",
                    LINK("fffffff:ff:ff.0", "12", "0x068000")) "</cpu>")},
    {8, "gpu0", "12 links to a hidden device", /* once for both */
     SYSTEM(CPU GPU("0000:07:00.0", "0",
                    LINK("fffffff:ff:ff.0", "8", "0x068000")
                        LINK("fffffff:ff:ff.0", "4", "0x068000")) "</cpu>")},
    {8, "gpu0", "not in the file",
     SYSTEM(CPU GPU("0000:07:00.0", "0",
                    LINK("0000:99:00.0", "4", "0x030200")) "</cpu>")},
    {9, "gpu0", "\"32.0 GT/s\" read as Gen 5",
     SYSTEM(CPU "<pci busid=\"1:2:3.0\" class=\"0x030200\" link_speed=\"32.0 "
                "GT/s\" link_width=\"16\"><gpu sm=\"90\"/></pci></cpu>")},
    {9, "gpu0", "unknown: Gen 3",
     SYSTEM(CPU "<pci busid=\"1:2:3.0\" class=\"0x030200\" "
                "link_speed=\"Unknown\" link_width=\"16\"><gpu "
                "sm=\"90\"/></pci></cpu>")},
    {10, "gpu0", "x16 assumed",
     SYSTEM(CPU "<pci busid=\"1:2:3.0\" class=\"0x030200\" link_speed=\"16 "
                "GT/s\" link_width=\"0\"><gpu sm=\"80\"/></pci></cpu>")},
    {11, "ffff:ff:01.0", "not believed",
     SYSTEM(CPU "<pci busid=\"ffff:ff:01.0\" class=\"0x060400\" "
                "link_speed=\"2.5 GT/s\" link_width=\"1\">" GPU(
                    "0000:07:00.0", "0", "") "</pci></cpu>")},
    {12, "gpu1", "idle or degraded",
     SYSTEM(CPU GPU(
         "0000:07:00.0", "0",
         "") "<pci busid=\"0000:08:00.0\" class=\"0x030200\" "
             "vendor=\"0x10de\" device=\"0x20b2\" link_speed=\"2.5 GT/s\" "
             "link_width=\"16\"><gpu dev=\"1\" sm=\"80\"/></pci></cpu>")},
    {13, "numa0", "unknown",
     SYSTEM("<cpu numaid=\"-1\" arch=\"x86_64\">" GPU("0000:07:00.0", "0",
                                                      "") "</cpu>")},
    {15, "nic0", "2 ports",
     SYSTEM(CPU NIC("0000:07:00.0", "name=\"mlx5_0\" speed=\"1000\" "
                                    "guid=\"0x5\"")
                NIC("0000:07:00.1", "name=\"mlx5_1\" speed=\"1000\" "
                                    "guid=\"0x5\"") "</cpu>")},
    {17, "nic0 eth9", "assumed 10",
     SYSTEM(CPU "<nic><net name=\"eth9\" speed=\"-1\"/></nic></cpu>")},
    {17, "nic0 mlx5_0", "inferred",
     SYSTEM(CPU NIC("0000:07:00.0", "name=\"mlx5_0\" speed=\"0\"") "</cpu>")},
    {19, "m.xml", "template",
     SYSTEM(CPU "<pci busid=\"1:2:3.0\" class=\"0x030200\"/></cpu>")},
    {21, "m.xml", "NVLinks unknown",
     SYSTEM(CPU "<pci busid=\"1:2:3.0\" class=\"0x030200\"/></cpu>")},
    {19, "m.xml", "1 devices without a class",
     SYSTEM("<cpu numaid=\"0\"><pci busid=\"1:2:3.0\"/></cpu>")},
    {3, "hello", "no PCI address", SYSTEM(CPU GPU("hello", "0", "") "</cpu>")},
    {3, "gpu0 0000:07:00.0", "the same busid",
     SYSTEM(CPU GPU("0000:07:00.0", "0", "")
                GPU("0000:07:00.0", "1", "") "</cpu>")},
    {8, "gpu0", "without a target",
     SYSTEM(CPU GPU("0000:07:00.0", "0",
                    "<nvlink count=\"4\" tclass=\"0x068000\"/>") "</cpu>")},
    {19, "card0 0000:0c:00.0", "without <net>",
     SYSTEM(CPU "<pci busid=\"0000:0c:00.0\" class=\"0x020700\" "
                "link_speed=\"16 GT/s\" link_width=\"16\"><nic/></pci></cpu>")},
    {19, "gpu1", "no rank",
     SYSTEM(CPU GPU("0000:07:00.0", "0",
                    "") "<pci busid=\"0000:08:00.0\" class=\"0x030200\" "
                        "link_speed=\"16 GT/s\" link_width=\"16\"><gpu "
                        "dev=\"1\" sm=\"80\"/></pci></cpu>")},
    {19, "gpu0", "no sm",
     SYSTEM(CPU "<pci busid=\"0000:08:00.0\" class=\"0x030200\" "
                "link_speed=\"16 GT/s\" link_width=\"16\"><gpu "
                "dev=\"0\"/></pci></cpu>")},
    {7, "gpu0", "count \"99999999999\" is no number",
     SYSTEM(CPU GPU("0000:07:00.0", "0", SWITCH("99999999999")) "</cpu>")},
    {7, "gpu0", "count \"abc\" is no number",
     SYSTEM(CPU GPU("0000:07:00.0", "0", SWITCH("abc")) "</cpu>")},
    {7, "gpu0", "without a count, which NCCL refuses",
     SYSTEM(CPU GPU("0000:07:00.0", "0",
                    "<nvlink target=\"0000:c1:00.0\" "
                    "tclass=\"0x068000\"/>") "</cpu>")},
    {7, "gpu0", "64 links listed, its kind has 12 at most",
     SYSTEM(CPU GPU("0000:07:00.0", "0", SWITCH("64")) "</cpu>")},
    {7, "gpu0", "bw \"\" is no bandwidth",
     SYSTEM(CPU GPU("0000:07:00.0", "0", "<c2c count=\"1\"/>") "</cpu>")},
    {7, "gpu0", "bw \"abc\" is no bandwidth",
     SYSTEM(CPU GPU("0000:07:00.0", "0", "<c2c bw=\"abc\"/>") "</cpu>")},
    {7, "gpu0", "bw \"-5\" is no bandwidth",
     SYSTEM(CPU GPU("0000:07:00.0", "0", "<c2c bw=\"-5\"/>") "</cpu>")},
    {17, "nic0 mlx5_0", "\"400Gb\" is no number of Mb/s",
     SYSTEM(CPU NIC("0000:07:00.0",
                    "name=\"mlx5_0\" dev=\"0\" speed=\"400Gb\"") "</cpu>")},
    {17, "nic0 mlx5_0", "\"1\" is below any port",
     SYSTEM(CPU NIC("0000:07:00.0",
                    "name=\"mlx5_0\" dev=\"0\" speed=\"1\"") "</cpu>")},
    {19, "nic0 mlx5_0", "has no dev, which NCCL refuses",
     SYSTEM(
         CPU NIC("0000:07:00.0", "name=\"mlx5_0\" speed=\"100000\"") "</cpu>")},
    {19, "numa0", "line 1: <cpu> modelid \"abc\" is no such number",
     SYSTEM("<cpu numaid=\"0\" arch=\"x86_64\" modelid=\"abc\"/>")},
    {19, "gpu0", "line 1: <gpu> sm \"-90\" is no such number",
     SYSTEM(CPU "<pci busid=\"0000:08:00.0\" class=\"0x030200\"><gpu "
                "dev=\"0\" sm=\"-90\"/></pci></cpu>")},
    {19, "gpu1", "has rank 0 and dev 0, rank 0 is also",
     SYSTEM(CPU GPU("0000:07:00.0", "0", "")
                GPU("0000:08:00.0", "0", "") "</cpu>")},
    {22, "bridge0", "2 GPUs",
     SYSTEM(CPU "<pci busid=\"0000:07:00.0\" class=\"0x030200\"><gpu dev=\"0\" "
                "sm=\"80\"/><gpu dev=\"1\" sm=\"80\"/></pci></cpu>")},
};

static void test_nccl_each_trap_is_warned_of(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(traps) / sizeof(traps[0]); i++) {
        wefti_topo *topo = read_text(traps[i].file);
        assert_warned(topo, traps[i].code, traps[i].device, traps[i].text);
        wefti_topo_destroy(topo);
    }
}

static void test_nccl_link_of_one_end_carries_nothing(void **state)
{
    (void)state;
    wefti_topo *topo = read_text(SYSTEM(
        CPU GPU("0000:07:00.0", "0", LINK("0000:08:00.0", "4", "0x030200"))
            GPU("0000:08:00.0", "1", "") "</cpu>"));
    assert_int_equal(links_between(topo, 0, 1), 0);
    wefti_topo_destroy(topo);
}

/* What is no number of links must not become one link. */
static void test_nccl_links_without_a_count_carry_nothing(void **state)
{
    (void)state;
    wefti_topo *topo = read_text(SYSTEM(
        CPU GPU("0000:07:00.0", "0", LINK("0000:08:00.0", "x", "0x030200"))
            GPU("0000:08:00.0", "1",
                LINK("0000:07:00.0", "x", "0x030200")) "</cpu>"));
    assert_int_equal(links_between(topo, 0, 1), 0);
    wefti_topo_destroy(topo);
}

static void test_nccl_pseudo_bridge_is_no_bottleneck(void **state)
{
    (void)state;
    wefti_topo *topo = read_text(SYSTEM(
        CPU "<pci busid=\"ffff:ff:01.0\" class=\"0x060400\" "
            "link_speed=\"2.5 GT/s\" link_width=\"1\">" GPU(
                "0000:07:00.0", "0",
                "") "</pci>" NIC("0000:0c:00.0",
                                 "name=\"mlx5_0\" speed=\"100000\"") "</cpu>"));
    wefti_paths *paths;
    assert_int_equal(wefti_paths_create(topo, &paths), WEFT_OK);
    assert_true(wefti_path_gpu_nic(paths, 0, 0).GBps == 12.5);
    wefti_paths_destroy(paths);
    wefti_topo_destroy(topo);
}

static void test_nccl_template_of_stated_model_has_links(void **state)
{
    (void)state;
    static const char text[] = SYSTEM(
        CPU "<pci busid=\"1:0:0.0\" class=\"0x030200\" link_speed=\"16 GT/s\" "
            "link_width=\"16\"/><pci busid=\"2:0:0.0\" class=\"0x030200\" "
            "link_speed=\"16 GT/s\" link_width=\"16\"/></cpu>");
    wefti_topo *topo;
    wefti_paths *paths;
    assert_int_equal(
        wefti_topo_read_nccl("m.xml", text, strlen(text), "H100", &topo),
        WEFT_OK);
    assert_false(topo->links_unknown);
    assert_int_equal(wefti_paths_create(topo, &paths), WEFT_OK);
    assert_true(wefti_path_gpu_gpu(paths, 0, 1).GBps == 450);
    wefti_paths_destroy(paths);
    wefti_topo_destroy(topo);
    assert_int_equal(
        wefti_topo_read_nccl("m.xml", text, strlen(text), "Z9", &topo),
        WEFT_ERR_INVALID);
}

/* Cards with bridges, cube meshes and XGMI: the model does not state which GPUs
 * are joined. */
static void test_nccl_template_of_unjoined_model_is_unknown(void **state)
{
    (void)state;
    static const char *const models[] = {"V100", "A100-PCIE", "H100 NVL",
                                         "MI300X"};
    static const char text[] = SYSTEM(
        CPU "<pci busid=\"1:0:0.0\" class=\"0x030200\" link_speed=\"16 GT/s\" "
            "link_width=\"16\"/><pci busid=\"2:0:0.0\" class=\"0x030200\" "
            "link_speed=\"16 GT/s\" link_width=\"16\"/></cpu>");
    wefti_topo *topo;
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        assert_int_equal(
            wefti_topo_read_nccl("m.xml", text, strlen(text), models[i], &topo),
            WEFT_OK);
        assert_true(topo->links_unknown);
        assert_warned(topo, 21, "m.xml", models[i]);
        assert_int_equal(topo->kind_counts[WEFTI_TOPO_NVSWITCH], 0);
        wefti_topo_destroy(topo);
    }
    assert_int_equal(
        wefti_topo_read_nccl("m.xml", text, strlen(text), "L40", &topo),
        WEFT_OK);
    assert_false(topo->links_unknown); /* it has none */
    assert_null(find_warning(topo, 21, "", ""));
    wefti_topo_destroy(topo);
}

static void test_nccl_template_that_lacks_nothing_says_no_lack(void **state)
{
    (void)state;
    wefti_topo *topo = read_text(
        SYSTEM(CPU "<pci busid=\"1:2:3.0\" class=\"0x030200\" link_speed=\"16 "
                   "GT/s\" link_width=\"16\"/></cpu>"));
    assert_warned(topo, 19, "m.xml", "template");
    for (int i = 0; i < topo->warning_count; i++) {
        assert_null(strstr(topo->warnings[i].text, "lacks"));
    }
    wefti_topo_destroy(topo);
}

static void test_nccl_fused_hosts_stay_apart(void **state)
{
    (void)state;
    wefti_topo *topo = read_text(
        SYSTEM("<cpu numaid=\"0\" host_hash=\"0xa\" arch=\"x86_64\">" GPU(
            "0000:07:00.0", "0",
            SWITCH("12")) "</cpu>"
                          "<cpu numaid=\"0\" host_hash=\"0xb\" "
                          "arch=\"x86_64\">" GPU(
                              "0000:07:00.0", "0",
                              SWITCH(
                                  "12")) "</cpu>"
                                         "<cpu numaid=\"1\" host_hash=\"0xa\" "
                                         "arch=\"x86_64\">" GPU(
                                             "0000:08:00.0", "1",
                                             SWITCH("12")) "</cpu>"));
    wefti_paths *paths;
    assert_int_equal(topo->kind_counts[WEFTI_TOPO_HOST], 2);
    assert_int_equal(wefti_paths_create(topo, &paths), WEFT_OK);
    assert_int_equal(wefti_path_gpu_gpu(paths, 0, 1).type, WEFTI_PATH_NVL);
    assert_int_equal(wefti_path_gpu_gpu(paths, 0, 2).type, WEFTI_PATH_DIS);
    wefti_paths_destroy(paths);
    wefti_topo_destroy(topo);
}

static void test_nccl_amd_links_are_xgmi(void **state)
{
    (void)state;
#define AMD(bus, dev, other)                                                   \
    "<pci busid=\"" bus "\" class=\"0x038000\" link_speed=\"16.0 GT/s PCIe\" " \
    "link_width=\"16\"><gpu dev=\"" dev                                        \
    "\" sm=\"104\" gcn=\"910\" rank=\"" dev "\"><xgmi target=\"" other         \
    "\" count=\"1\" tclass=\"0x038000\"/>"                                     \
    "</gpu></pci>"
    wefti_topo *topo = read_text(
        "<!-- r --><system version=\"2\">" CPU AMD("0000:c1:00.0", "0",
                                                   "0000:c5:00.0")
            AMD("0000:c5:00.0", "1", "0000:c1:00.0") "</cpu></system>");
    assert_int_equal(links_between(topo, 0, 1), 1);
    int link = wefti_topo_find_link(
        topo, wefti_topo_find(topo, WEFTI_TOPO_GPU, 0),
        wefti_topo_find(topo, WEFTI_TOPO_GPU, 1), WEFTI_LINK_XGMI);
    assert_true(link >= 0);
    assert_true(topo->links[link].GBps == 50);
    assert_true(topo->links[link].nccl_GBps == 36);
    /* RCCL writes gfx90a as 910. */
    assert_string_equal(
        topo->devices[wefti_topo_find(topo, WEFTI_TOPO_GPU, 0)].name, "gfx90a");
    wefti_topo_destroy(topo);
}

#define DIE(bus, dev, links)                                                   \
    "<pci busid=\"" bus "\" class=\"0x038000\" link_speed=\"16.0 GT/s PCIe\" " \
    "link_width=\"16\"><gpu dev=\"" dev "\" gcn=\"910\" rank=\"" dev           \
    "\">" links "</gpu></pci>"
#define XGMI(target, count)                                                    \
    "<xgmi target=\"" target "\" count=\"" count "\" tclass=\"0x038000\"/>"

/* Two dies of MI250 with three links, two with two: as they are built. */
static void test_nccl_uneven_board_is_no_fault_a_lost_link_is(void **state)
{
    (void)state;
#define DIES_BUT_FIRST_TWO                                                     \
    DIE("0000:03:00.0", "2",                                                   \
        XGMI("0000:01:00.0", "2") XGMI("0000:04:00.0", "1"))                   \
    DIE("0000:04:00.0", "3",                                                   \
        XGMI("0000:03:00.0", "1") XGMI("0000:02:00.0", "1"))
    wefti_topo *topo = read_text(
        "<system version=\"2\">" CPU DIE("0000:01:00.0", "0",
                                         XGMI("0000:02:00.0", "1")
                                             XGMI("0000:03:00.0", "2"))
            DIE("0000:02:00.0", "1",
                XGMI("0000:01:00.0", "1") XGMI("0000:04:00.0", "1"))
                DIES_BUT_FIRST_TWO "</cpu></system>");
    assert_null(find_warning(topo, 4, "", ""));
    wefti_topo_destroy(topo);
    topo = read_text("<system version=\"2\">" CPU DIE("0000:01:00.0", "0",
                                                      XGMI("0000:03:00.0", "2"))
                         DIE("0000:02:00.0", "1", XGMI("0000:04:00.0", "1"))
                             DIES_BUT_FIRST_TWO "</cpu></system>");
    assert_warned(topo, 4, "gpu1", "1 links");
    wefti_topo_destroy(topo);
}

static const struct {
    const char *text, *words[3];
} refused[] = {
    {"", {"m.xml:1", "", ""}},
    {"<system version=\"1\"><cpu", {"m.xml:1", "", ""}},
    {"<system>\n</system>", {"m.xml:1", "<system>", "\"version\""}},
    {"<system version=\"7\"/>", {"m.xml:1", "version \"7\"", "allowed"}},
    {"<system version=\"1\"><cpu numaid=\"0\"/>\n<cpu numaid=\"0\"/></system>",
     {"m.xml:2", "numaid \"0\"", "earlier <cpu>"}},
    {"<system version=\"1\">\n<cpu/></system>",
     {"m.xml:2", "<cpu>", "\"numaid\""}},
    {"<system version=\"1\"><cpu numaid=\"x\"/></system>",
     {"m.xml:1", "numaid", "\"x\""}},
    {"<system version=\"1\"><cpu numaid=\"0\">\n\n<pci class=\"1\"/></cpu>"
     "</system>",
     {"m.xml:3", "<pci>", "\"busid\""}},
    {"<system version=\"1\"/>", {"m.xml:1", "no <cpu>", ""}},
    {"<topology version=\"2\"/>", {"m.xml:1", "<topology>", "<system>"}},
    {"<!DOCTYPE s [<!ENTITY a \"b\">]><system version=\"1\"/>",
     {"m.xml:1", "entities", ""}},
};

static void test_nccl_wrong_files_are_refused_with_their_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        wefti_topo *topo;
        assert_int_equal(wefti_topo_read_nccl("m.xml", refused[i].text,
                                              strlen(refused[i].text), NULL,
                                              &topo),
                         WEFT_ERR_INVALID);
        for (int w = 0; w < 3; w++) {
            if (!strstr(weft_error_text(), refused[i].words[w])) {
                fail_msg("\"%s\" lacks \"%s\"", weft_error_text(),
                         refused[i].words[w]);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nccl_switched_gpus_are_joined),
        cmocka_unit_test(test_nccl_pair_listed_by_both_counts_once),
        cmocka_unit_test(test_nccl_each_trap_is_warned_of),
        cmocka_unit_test(test_nccl_link_of_one_end_carries_nothing),
        cmocka_unit_test(test_nccl_links_without_a_count_carry_nothing),
        cmocka_unit_test(test_nccl_pseudo_bridge_is_no_bottleneck),
        cmocka_unit_test(test_nccl_template_of_stated_model_has_links),
        cmocka_unit_test(test_nccl_template_of_unjoined_model_is_unknown),
        cmocka_unit_test(test_nccl_template_that_lacks_nothing_says_no_lack),
        cmocka_unit_test(test_nccl_fused_hosts_stay_apart),
        cmocka_unit_test(test_nccl_amd_links_are_xgmi),
        cmocka_unit_test(test_nccl_uneven_board_is_no_fault_a_lost_link_is),
        cmocka_unit_test(test_nccl_wrong_files_are_refused_with_their_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
