/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: ranks get CPUs near their device, fairly, nothing that is not allowed,
 * nothing twice while there are enough.
 * Method: synthetic hosts whose NUMA nodes are given CPUs here; random sets of
 * allowed CPUs; one thread that binds itself and looks.
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
    wefti_cpus allowed = cpus_of("0000ffff");
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
    wefti_cpus allowed = cpus_of("0000ffff");
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
        wefti_cpus allowed = {{0}};
        wefti_bound bounds[12];
        int devices[12];
        int ranks = 1 + (int)(random_next(&random) % 12);
        allowed.words[0] =
            random_next(&random) & random_next(&random) & 0xffffff;
        for (int i = 0; i < ranks; i++) {
            devices[i] = random_next(&random) % 3
                             ? wefti_topo_find(topo, WEFTI_TOPO_GPU,
                                               (int)(random_next(&random) % 4))
                             : -1;
        }
        if (allowed.words[0] == 0) {
            assert_int_equal(
                wefti_binding_plan(topo, devices, ranks, &allowed, bounds),
                WEFT_ERR_INVALID);
            continue;
        }
        assert_int_equal(
            wefti_binding_plan(topo, devices, ranks, &allowed, bounds),
            WEFT_OK);
        uint64_t taken = 0;
        for (int i = 0; i < ranks; i++) {
            uint64_t own = bounds[i].cpus.words[0];
            assert_true(own != 0);
            assert_true((own & ~allowed.words[0]) == 0);
            assert_true(bounds[i].shared || (own & taken) == 0);
            taken |= bounds[i].shared ? 0 : own;
        }
    }
    wefti_topo_destroy(topo);
}

/* Hands back what went wrong; NULL: nothing. */
static void *bind_self(void *arg)
{
    static char failed[] = "a call failed", others[] = "other CPUs";
    (void)arg;
    wefti_topo *topo;
    wefti_cpus allowed, now;
    wefti_bound bound;
    const int device = -1;
    if (wefti_topo_read_synthetic("1x(1xNUMA)", &topo) != WEFT_OK ||
        wefti_cpus_allowed(&allowed) != WEFT_OK ||
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
        cmocka_unit_test(test_binding_is_applied_to_the_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
