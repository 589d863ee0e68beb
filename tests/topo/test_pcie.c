/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: PCIe below what a device could do is warned of for every generation and
 * width, also where all of a machine are alike; what may be an idle GPU is not
 * blamed; what is as it should be causes no warning. Method: machines from a
 * text, whose PCIe links are then set to what a bad slot, an idle GPU or a card
 * with too many ports would show.
 */
#include "tests/topo/machine.h"
#include "topo/assemble.h"
#include "topo/rates.h"
#include "topo/topo.h"

static wefti_topo *open_machine(const char *text)
{
    wefti_topo *topo;
    assert_int_equal(wefti_topo_read_synthetic(text, &topo), WEFT_OK);
    assert_int_equal(topo->warning_count, 0);
    return topo;
}

static int ends_here(const wefti_topo *topo)
{
    int count = topo->warning_count;
    wefti_topo_destroy((wefti_topo *)(uintptr_t)topo);
    return count;
}

/* What a file says of the link above the device of that kind and ordinal. */
static wefti_device *set_link(wefti_topo *topo, wefti_topo_kind kind,
                              int ordinal, int gen, int width)
{
    int device = wefti_topo_find(topo, kind, ordinal);
    wefti_device *d = &topo->devices[device];
    int link = wefti_topo_find_link(topo, d->parent, device, WEFTI_LINK_PCI);
    assert_true(link >= 0);
    d->pci.gen = gen;
    d->pci.width = width;
    topo->links[link].GBps = wefti_rate_pci(gen, width).GBps;
    topo->links[link].origin = WEFTI_ORIGIN_READ;
    topo->links[link].assumed = false;
    return d;
}

static void test_gpus_all_below_their_model_are_warned_of(void **state)
{
    (void)state;
    static const struct {
        const char *machine;
        int gen, width;
        const char *words;
    } cases[] = {
        {"8xH100", 4, 16, "Gen 4 x16 = 31.5 GB/s, the H100 does Gen 5 x16"},
        {"8xH100", 3, 16, "Gen 3 x16"},
        {"8xH100", 5, 8, "Gen 5 x8 = 31.5 GB/s"},
        {"8xH100", 5, 1, "Gen 5 x1"},
        {"4xV100", 3, 2, "Gen 3 x2 = 1.97 GB/s, the V100"},
        {"4xV100", 1, 16, "Gen 1 x16 = 4 GB/s"},
        {"8xA100", 3, 16, "Gen 4 x16 = 31.5"},
        {"8xB200", 4, 16, "Gen 5 x16 = 63"},
        {"8xMI300X", 4, 16, "the MI300X does Gen 5"},
        {"2xL40", 4, 4, "Gen 4 x4"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        wefti_topo *topo = open_machine(cases[i].machine);
        int gpus = topo->kind_counts[WEFTI_TOPO_GPU];
        for (int g = 0; g < gpus; g++) {
            set_link(topo, WEFTI_TOPO_GPU, g, cases[i].gen, cases[i].width);
        }
        wefti_pcie_doubt(topo);
        assert_warned(topo, 12, "gpu0", cases[i].words);
        assert_warned(topo, 12, "gpu1", "idle or degraded");
        assert_int_equal(ends_here(topo), gpus);
    }
}

static void test_an_idle_gpu_is_not_accused(void **state)
{
    (void)state;
    wefti_topo *topo = open_machine("8xH100");
    set_link(topo, WEFTI_TOPO_GPU, 3, 1, 16);
    wefti_pcie_doubt(topo);
    assert_warned(topo, 12, "gpu3", "lowers its generation to save power");
    assert_int_equal(ends_here(topo), 1);

    /* Live: what both ends can do is known, and what runs now. */
    topo = open_machine("8xH100");
    wefti_device *gpu = set_link(topo, WEFTI_TOPO_GPU, 3, 5, 16);
    gpu->pci.max_gen = 5;
    gpu->pci.max_width = gpu->pci.now_width = 16;
    gpu->pci.now_gen = 1;
    wefti_pcie_doubt(topo);
    assert_warned(topo, 12, "gpu3", "Gen 1 x16 = 4 GB/s now");
    assert_warned(topo, 12, "gpu3", "ask again under load");
    assert_int_equal(ends_here(topo), 1);
}

static void test_a_slot_that_does_less_is_named_as_the_cause(void **state)
{
    (void)state;
    wefti_topo *topo = open_machine("1xH100");
    wefti_device *gpu = set_link(topo, WEFTI_TOPO_GPU, 0, 4, 16);
    gpu->pci.max_gen = 5; /* by sysfs: the port is the lesser of the two */
    gpu->pci.max_width = 16;
    wefti_pcie_doubt(topo);
    assert_warned(topo, 12, "gpu0", "its slot, riser or port");
    assert_int_equal(ends_here(topo), 1);
    /* A model that the table has wrong, or a variant: its own word counts. */
    topo = open_machine("1xH100");
    gpu = set_link(topo, WEFTI_TOPO_GPU, 0, 4, 16);
    gpu->pci.max_gen = 4;
    gpu->pci.max_width = 16;
    wefti_pcie_doubt(topo);
    assert_int_equal(ends_here(topo), 0);
}

static void
test_gpus_known_by_nothing_are_held_against_their_twins(void **state)
{
    (void)state;
    wefti_topo *topo = open_machine("4xL40");
    for (int g = 0; g < 4; g++) {
        wefti_device *gpu =
            set_link(topo, WEFTI_TOPO_GPU, g, 3, g == 2 ? 8 : 16);
        gpu->pci.device = 0;
        gpu->gpu.sm = 0;
        snprintf(gpu->name, sizeof(gpu->name), "Unheard-of");
    }
    wefti_pcie_doubt(topo);
    assert_warned(topo, 12, "gpu2", "its twins have Gen 3 x16");
    assert_int_equal(ends_here(topo), 1);
}

static void test_gpus_on_a_board_with_their_cpu_may_have_any(void **state)
{
    (void)state;
    wefti_topo *topo = open_machine("1xGH200");
    set_link(topo, WEFTI_TOPO_GPU, 0, 4, 1);
    wefti_pcie_doubt(topo);
    assert_int_equal(ends_here(topo), 0);
}

/* A second port on the card of the first. */
static void add_port(wefti_topo *topo, double gbps)
{
    int first = wefti_topo_find(topo, WEFTI_TOPO_NIC, 0);
    int card = topo->devices[first].parent;
    int port = wefti_topo_add_device(topo, WEFTI_TOPO_NIC, card, "mlx5_1");
    assert_true(port >= 0);
    topo->devices[port].pci = topo->devices[first].pci;
    topo->devices[port].nic = topo->devices[first].nic;
    topo->devices[first].nic.gbps = topo->devices[port].nic.gbps = gbps;
}

static void
test_nics_with_too_little_for_their_ports_are_warned_of(void **state)
{
    (void)state;
    static const struct {
        const char *machine;
        int gen, width, ports;
        double gbps;
        const char *words; /* NULL: no warning */
    } cases[] = {
        {"1xH100,1xCX5", 3, 8, 2, 100,
         "Gen 3 x8 = 7.88 GB/s is too little for "
         "its 2 ports of 25 GB/s"},
        {"1xH100,1xCX5", 3, 8, 2, 100, "the ConnectX-5 does up to Gen 3 x16"},
        {"1xH100,1xCX5", 3, 8, 1, 100, "its 1 port of 12.5 GB/s"},
        {"1xH100,1xCX5", 3, 16, 1, 100, NULL},
        {"1xH100,1xCX5", 3, 16, 2, 100, "2 ports of 25 GB/s"},
        {"1xH100,1xCX6", 3, 16, 1, 200, "Gen 3 x16 = 15.8"},
        {"1xH100,1xCX6", 4, 16, 1, 200, NULL},
        {"1xH100,1xCX7", 4, 16, 1, 400, "up to Gen 5 x16"},
        {"1xH100,1xCX7", 5, 16, 1, 200, NULL},
        {"1xH100,1xCX7", 5, 16, 1, 400, NULL},
        {"1xH100,1xCX8", 5, 16, 1, 800, "Gen 6 x16"},
        {"1xH100,1xETH10", 1, 1, 1, 10, "Gen 1 x1 = 0.25 GB/s"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        wefti_topo *topo = open_machine(cases[i].machine);
        set_link(topo, WEFTI_TOPO_CARD, 0, cases[i].gen, cases[i].width);
        int nic = wefti_topo_find(topo, WEFTI_TOPO_NIC, 0);
        topo->devices[nic].nic.gbps = cases[i].gbps;
        if (cases[i].ports == 2) {
            add_port(topo, cases[i].gbps);
        }
        wefti_pcie_doubt(topo);
        if (cases[i].words) {
            assert_warned(topo, 12, "nic0", cases[i].words);
        }
        assert_int_equal(ends_here(topo), cases[i].words ? 1 : 0);
    }
}

static void test_nics_below_their_model_with_enough_are_noted(void **state)
{
    (void)state;
    static const struct {
        const char *machine;
        int gen, width;
        double gbps;
        const char *words;
    } cases[] = {
        {"1xH100,1xCX7", 4, 16, 200, "Gen 4 x16 = 31.5 GB/s; the ConnectX-7"},
        {"1xH100,1xCX7", 5, 8, 200, "enough for its 1 port of 25 GB/s"},
        {"1xH100,1xCX6", 3, 16, 100, "up to Gen 4 x16"},
        {"1xH100,1xCX5", 2, 16, 40, "up to Gen 3 x16"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        wefti_topo *topo = open_machine(cases[i].machine);
        set_link(topo, WEFTI_TOPO_CARD, 0, cases[i].gen, cases[i].width);
        int nic = wefti_topo_find(topo, WEFTI_TOPO_NIC, 0);
        topo->devices[nic].nic.gbps = cases[i].gbps;
        wefti_pcie_doubt(topo);
        assert_warned(topo, 26, "nic0", cases[i].words);
        assert_int_equal(ends_here(topo), 1);
    }
}

static void test_a_rate_inferred_through_a_narrow_slot_hides_nothing(void **s)
{
    (void)s;
    wefti_topo *topo = open_machine("1xH100,1xCX5");
    set_link(topo, WEFTI_TOPO_CARD, 0, 3, 4);
    wefti_device *nic =
        &topo->devices[wefti_topo_find(topo, WEFTI_TOPO_NIC, 0)];
    nic->nic.gbps = 31; /* as wefti_nic_rate_infer caps it */
    nic->nic.gbps_assumed = true;
    wefti_pcie_doubt(topo);
    assert_warned(topo, 12, "nic0", "12.5 GB/s");
    assert_int_equal(ends_here(topo), 1);
}

static void test_a_nic_below_its_twin_is_warned_of(void **state)
{
    (void)state;
    wefti_topo *topo = open_machine("2xH100,2xROCE25");
    set_link(topo, WEFTI_TOPO_CARD, 0, 4, 16);
    set_link(topo, WEFTI_TOPO_CARD, 1, 4, 8);
    wefti_pcie_doubt(topo);
    assert_warned(topo, 12, "nic1", "its twins have Gen 4 x16");
    assert_int_equal(ends_here(topo), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpus_all_below_their_model_are_warned_of),
        cmocka_unit_test(test_an_idle_gpu_is_not_accused),
        cmocka_unit_test(test_a_slot_that_does_less_is_named_as_the_cause),
        cmocka_unit_test(
            test_gpus_known_by_nothing_are_held_against_their_twins),
        cmocka_unit_test(test_gpus_on_a_board_with_their_cpu_may_have_any),
        cmocka_unit_test(
            test_nics_with_too_little_for_their_ports_are_warned_of),
        cmocka_unit_test(test_nics_below_their_model_with_enough_are_noted),
        cmocka_unit_test(
            test_a_rate_inferred_through_a_narrow_slot_hides_nothing),
        cmocka_unit_test(test_a_nic_below_its_twin_is_warned_of),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
