/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: ranks get CPUs near their device, fairly, nothing that is not allowed,
 * nothing twice while there are enough.
 * Method: synthetic hosts whose NUMA nodes are given CPUs here; random sets of
 * allowed CPUs; one thread that binds itself and reads its mask.
 */
#include "tests/seed.h"
#include "tests/topo/machine.h"
#include "topo/binding.h"
#include "topo/topo.h"

#include <pthread.h>
#include <sched.h>

/* Two nodes of eight CPUs each. */
static wefti_topo *open_text(const char *text)
{
    wefti_topo *topo;
    assert_int_equal(wefti_topo_read_synthetic(text, &topo), WEFT_OK);
    for (int i = 0; i < topo->device_count; i++) {
        if (topo->devices[i].kind == WEFTI_TOPO_NUMA) {
            snprintf(topo->devices[i].cpu.affinity, 32, "%s",
                     topo->devices[i].os_index == 0 ? "000000ff" : "0000ff00");
        }
    }
    return topo;
}

static wefti_cpus cpus_of(const char *text)
{
    wefti_cpus set;
    wefti_cpus_read(text, &set);
    return set;
}

static wefti_allowance allow(const char *text)
{
    return (wefti_allowance){.cpus = cpus_of(text)};
}

static void test_cpus_text_is_read_highest_word_first(void **state)
{
    (void)state;
    wefti_cpus set = cpus_of("00000001,00000000,80000002");
    assert_int_equal(wefti_cpus_count(&set), 3);
    assert_true(wefti_cpus_has(&set, 1));
    assert_true(wefti_cpus_has(&set, 31));
    assert_true(wefti_cpus_has(&set, 64));
    set = cpus_of("");
    assert_int_equal(wefti_cpus_count(&set), 0);
}

static void test_binding_ranks_sit_by_their_gpus(void **state)
{
    (void)state;
    wefti_topo *topo = open_text("4xH100,4xCX7");
    wefti_allowance allowed = allow("0000ffff");
    wefti_bound bounds[4];
    int devices[4];
    for (int i = 0; i < 4; i++) {
        devices[i] = wefti_topo_find(topo, WEFTI_TOPO_GPU, i);
    }
    assert_int_equal(wefti_binding_plan(topo, devices, 4, &allowed, bounds),
                     WEFT_OK);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(bounds[i].numa, i / 2);
        assert_int_equal(bounds[i].cpu_count, 4);
        assert_false(bounds[i].shared);
        for (int cpu = 0; cpu < 16; cpu++) {
            assert_int_equal(wefti_cpus_has(&bounds[i].cpus, cpu),
                             cpu / 4 == i);
        }
    }
    wefti_topo_destroy(topo);
}

static void test_binding_without_devices_is_fair(void **state)
{
    (void)state;
    wefti_topo *topo = open_text("1x(2xNUMA)");
    wefti_allowance allowed = allow("0000ffff");
    wefti_bound bounds[8];
    const int devices[8] = {-1, -1, -1, -1, -1, -1, -1, -1};
    assert_int_equal(wefti_binding_plan(topo, devices, 8, &allowed, bounds),
                     WEFT_OK);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(bounds[i].cpu_count, 2);
    }
    wefti_topo_destroy(topo);
}

static void test_binding_keeps_to_what_is_allowed(void **state)
{
    (void)state;
    wefti_topo *topo = open_text("4xH100,4xCX7");
    uint64_t random = random_seed();
    for (int round = 0; round < 2000; round++) {
        wefti_allowance allowed = {.quota = 0};
        wefti_bound bounds[12];
        int devices[12];
        int ranks = 1 + (int)(random_next(&random) % 12);
        allowed.quota = (int)(random_next(&random) % 9);
        for (int cpu = 0; cpu < 64; cpu++) { /* threads i and i + 4 */
            allowed.core_of[cpu] = random_next(&random) % 2
                                       ? (uint16_t)(1 + cpu / 8 * 8 + cpu % 4)
                                       : 0;
        }
        allowed.cpus.words[0] =
            random_next(&random) & random_next(&random) & 0xffffff;
        for (int i = 0; i < ranks; i++) {
            devices[i] = random_next(&random) % 3
                             ? wefti_topo_find(topo, WEFTI_TOPO_GPU,
                                               (int)(random_next(&random) % 4))
                             : -1;
        }
        if (allowed.cpus.words[0] == 0) {
            assert_int_equal(
                wefti_binding_plan(topo, devices, ranks, &allowed, bounds),
                WEFT_ERR_INVALID);
            continue;
        }
        assert_int_equal(
            wefti_binding_plan(topo, devices, ranks, &allowed, bounds),
            WEFT_OK);
        uint64_t taken = 0, all = 0;
        for (int i = 0; i < ranks; i++) {
            uint64_t own = bounds[i].cpus.words[0];
            assert_true(own != 0);
            assert_true((own & ~allowed.cpus.words[0]) == 0);
            assert_true(bounds[i].shared || (own & taken) == 0);
            taken |= bounds[i].shared ? 0 : own;
            all |= own;
        }
        /* Three nodes at most have ranks: each keeps one CPU. */
        assert_true(allowed.quota == 0 ||
                    __builtin_popcountll(all) <=
                        (allowed.quota > 3 ? allowed.quota : 3));
    }
    wefti_topo_destroy(topo);
}

/* Two threads a core, i and i + 8, as x86 numbers them. */
static wefti_allowance two_threads(void)
{
    wefti_allowance allowed = allow("0000ffff");
    for (int cpu = 0; cpu < 16; cpu++) {
        allowed.core_of[cpu] = (uint16_t)(1 + cpu % 8);
    }
    return allowed;
}

static void test_binding_ranks_share_no_core(void **state)
{
    (void)state;
    wefti_topo *topo;
    assert_int_equal(wefti_topo_read_synthetic("1x(1xNUMA)", &topo), WEFT_OK);
    wefti_allowance allowed = two_threads();
    const int devices[8] = {-1, -1, -1, -1, -1, -1, -1, -1};
    for (int ranks = 1; ranks <= 8; ranks++) {
        wefti_bound bounds[8];
        unsigned taken = 0;
        assert_int_equal(
            wefti_binding_plan(topo, devices, ranks, &allowed, bounds),
            WEFT_OK);
        for (int i = 0; i < ranks; i++) {
            unsigned own = (unsigned)bounds[i].cpus.words[0];
            assert_int_equal(own & 0xff, own >> 8); /* both threads */
            assert_int_equal(own & taken, 0);
            assert_true(bounds[i].cpu_count >= 16 / ranks - 2);
            taken |= own;
        }
        assert_int_equal(taken, 0xffff);
    }
    wefti_topo_destroy(topo);
}

static void test_binding_gives_out_no_more_than_the_quota(void **state)
{
    (void)state;
    wefti_topo *topo;
    assert_int_equal(wefti_topo_read_synthetic("1x(1xNUMA)", &topo), WEFT_OK);
    wefti_allowance allowed = two_threads();
    const int devices[4] = {-1, -1, -1, -1};
    wefti_bound bounds[4];
    allowed.quota = 4;
    assert_int_equal(wefti_binding_plan(topo, devices, 4, &allowed, bounds),
                     WEFT_OK);
    for (int i = 0; i < 4; i++) { /* a core each, of it one thread */
        assert_int_equal(bounds[i].cpus.words[0], 1u << i);
        assert_false(bounds[i].shared);
    }
    allowed.quota = 2;
    assert_int_equal(wefti_binding_plan(topo, devices, 4, &allowed, bounds),
                     WEFT_OK);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(bounds[i].cpus.words[0], 1u << i / 2);
        assert_true(bounds[i].shared);
    }
    wefti_topo_destroy(topo);
}

static void test_binding_without_gpus_goes_by_ports(void **state)
{
    (void)state;
    wefti_topo *topo = open_text("4xCX7,2xNUMA");
    int devices[6];
    int down = wefti_topo_find(topo, WEFTI_TOPO_NIC, 1);
    topo->devices[down].nic.state = WEFTI_NIC_DOWN;
    wefti_binding_devices(topo, 6, devices);
    static const int ports[6] = {0, 2, 3, 0, 2, 3};
    for (int i = 0; i < 6; i++) {
        assert_int_equal(devices[i],
                         wefti_topo_find(topo, WEFTI_TOPO_NIC, ports[i]));
    }
    wefti_topo_destroy(topo);
    topo = open_text("2xETH10");
    wefti_binding_devices(topo, 2, devices);
    assert_int_equal(devices[0], -1);
    assert_int_equal(devices[1], -1);
    wefti_topo_destroy(topo);
}

/* Hands back what went wrong; NULL: nothing. */
static void *bind_self(void *arg)
{
    static char failed[] = "a call failed", others[] = "other CPUs";
    (void)arg;
    wefti_topo *topo;
    wefti_cpus now;
    wefti_allowance allowed;
    wefti_bound bound;
    const int device = -1;
    if (wefti_topo_read_synthetic("1x(1xNUMA)", &topo) != WEFT_OK ||
        wefti_allowance_read("/proc", "/sys", &allowed) != WEFT_OK ||
        wefti_binding_plan(topo, &device, 1, &allowed, &bound) != WEFT_OK ||
        wefti_binding_apply(&bound) != WEFT_OK ||
        wefti_cpus_allowed(&now) != WEFT_OK) {
        return failed;
    }
    wefti_topo_destroy(topo);
    return memcmp(&now, &bound.cpus, sizeof(now)) == 0 ? NULL : others;
}

static void test_binding_is_applied_to_the_thread(void **state)
{
    (void)state;
    pthread_t thread;
    void *wrong = NULL;
    assert_int_equal(pthread_create(&thread, NULL, bind_self, NULL), 0);
    pthread_join(thread, &wrong);
    assert_null(wrong);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cpus_text_is_read_highest_word_first),
        cmocka_unit_test(test_binding_ranks_sit_by_their_gpus),
        cmocka_unit_test(test_binding_without_devices_is_fair),
        cmocka_unit_test(test_binding_keeps_to_what_is_allowed),
        cmocka_unit_test(test_binding_ranks_share_no_core),
        cmocka_unit_test(test_binding_gives_out_no_more_than_the_quota),
        cmocka_unit_test(test_binding_without_gpus_goes_by_ports),
        cmocka_unit_test(test_binding_is_applied_to_the_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
