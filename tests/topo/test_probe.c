/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what is measured is plausible, is read back from its file, and no
 * damage, foreign file or racing writer does harm.
 * Method: a temporary folder; every byte of the file changed in turn; eight
 * threads that write and read at once.
 */
#include "tests/topo/machine.h"
#include "topo/cpus.h"
#include "topo/probe.h"
#include "topo/topo.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/weft-probe-XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    return system(command);
}

static wefti_topo *open_text(const char *text)
{
    wefti_topo *topo;
    assert_int_equal(wefti_topo_read_synthetic(text, &topo), WEFT_OK);
    return topo;
}

static void test_probe_measures_once_and_remembers(void **state)
{
    (void)state;
    wefti_topo *topo = open_text("1x(1xNUMA)");
    wefti_probe first, again;
    assert_int_equal(wefti_probe_run(topo, folder, &first), WEFT_OK);
    assert_false(first.from_cache);
    assert_true(first.copy_GBps > 0.05 && first.copy_GBps < 1000);
    assert_true(first.handover_us >= 0 && first.handover_us < 1e6);
    assert_int_equal(wefti_probe_run(topo, folder, &again), WEFT_OK);
    assert_int_equal(again.from_cache, first.steady);
    if (again.from_cache) {
        assert_true(again.copy_GBps > 0.999 * first.copy_GBps &&
                    again.copy_GBps < 1.001 * first.copy_GBps);
    }
    wefti_topo_destroy(topo);
}

static void test_probe_of_another_machine_has_another_name(void **state)
{
    (void)state;
    char a[WEFTI_PROBE_NAME_BYTES], b[WEFTI_PROBE_NAME_BYTES];
    wefti_topo *one = open_text("8xH100"), *other = open_text("8xA100");
    assert_int_equal(wefti_probe_name(one, a), WEFT_OK);
    assert_int_equal(wefti_probe_name(other, b), WEFT_OK);
    assert_string_not_equal(a, b);
    assert_int_equal(wefti_probe_name(one, b), WEFT_OK);
    assert_string_equal(a, b);
    wefti_topo_destroy(one);
    wefti_topo_destroy(other);
}

static void test_probe_file_changed_anywhere_is_not_believed(void **state)
{
    (void)state;
    const wefti_probe probe = {.copy_GBps = 9.5,
                               .handover_us = 0.2,
                               .pair_count = 1,
                               .pairs = {{0, 1}},
                               .pair_GBps = {4.5}};
    wefti_probe out;
    char path[256], text[1024];
    wefti_probe_store(folder, "name", &probe);
    snprintf(path, sizeof(path), "%s/name", folder);
    assert_true(wefti_probe_load(path, "name", &out));
    assert_true(out.pair_GBps[0] == 4.5 && out.pairs[0][1] == 1);
    assert_false(wefti_probe_load(path, "other", &out));
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t bytes = fread(text, 1, sizeof(text), file);
    fclose(file);
    for (size_t i = 0; i + 1 < bytes; i++) {
        char was = text[i];
        text[i] = (char)(was ^ 1);
        file = fopen(path, "w");
        assert_non_null(file);
        fwrite(text, 1, bytes, file);
        fclose(file);
        assert_false(wefti_probe_load(path, "name", &out));
        text[i] = was;
    }
}

static void test_probe_rounds_that_disagree_are_not_steady(void **state)
{
    (void)state;
    double quiet[] = {0.07, 0.066, 0.08, 9.0, 0.069};
    double disturbed[] = {68.0, 0.066, 75.0, 9.0, 0.069};
    bool steady = true;
    assert_true(wefti_probe_settle(quiet, 5, &steady) == 0.066);
    assert_true(steady);
    assert_true(wefti_probe_settle(disturbed, 5, &steady) == 0.066);
    assert_false(steady);
    steady = false; /* of an earlier measurement */
    wefti_probe_settle(quiet, 5, &steady);
    assert_false(steady);
}

/* A lack of the hand-over, kept while there was one core, is not for ever. */
static void test_probe_kept_without_handover_is_measured_anew(void **state)
{
    (void)state;
    const wefti_probe probe = {.copy_GBps = 9.5};
    wefti_topo *topo = open_text("1x(2xNUMA)");
    char name[WEFTI_PROBE_NAME_BYTES];
    wefti_cpus allowed;
    wefti_probe out;
    assert_int_equal(wefti_cpus_allowed(&allowed), WEFT_OK);
    assert_int_equal(wefti_probe_name(topo, name), WEFT_OK);
    wefti_probe_store(folder, name, &probe);
    assert_int_equal(wefti_probe_run(topo, folder, &out), WEFT_OK);
    assert_int_equal(out.from_cache, wefti_cpus_count(&allowed) < 2);
    wefti_topo_destroy(topo);
}

/* Opened as a file, it would wait for a writer. */
static void test_probe_pipe_in_its_place_is_no_file(void **state)
{
    (void)state;
    char path[256];
    wefti_probe out;
    snprintf(path, sizeof(path), "%s/pipe", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    alarm(20);
    assert_false(wefti_probe_load(path, "pipe", &out));
    assert_false(wefti_probe_load(folder, "pipe", &out));
    alarm(0);
}

static void *write_and_read(void *arg)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/race", folder);
    for (int i = 1; i <= 100; i++) {
        const wefti_probe probe = {.copy_GBps = i};
        wefti_probe out;
        wefti_probe_store(folder, "race", &probe);
        if (!wefti_probe_load(path, "race", &out)) {
            return arg;
        }
    }
    return NULL;
}

static void test_probe_racing_writers_leave_a_whole_file(void **state)
{
    (void)state;
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) {
        assert_int_equal(
            pthread_create(&threads[i], NULL, write_and_read, folder), 0);
    }
    for (int i = 0; i < 8; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
}

static void test_probe_without_a_folder_still_measures(void **state)
{
    (void)state;
    wefti_topo *topo = open_text("1x(1xNUMA)");
    wefti_probe probe;
    assert_int_equal(wefti_probe_run(topo, NULL, &probe), WEFT_OK);
    assert_int_equal(wefti_probe_run(topo, "/proc/nowhere", &probe), WEFT_OK);
    assert_false(probe.from_cache);
    wefti_topo_destroy(topo);
}

static void test_probe_measured_links_say_so(void **state)
{
    (void)state;
    wefti_topo *topo = open_text("1x(2xNUMA)");
    const wefti_probe probe = {.copy_GBps = 9,
                               .handover_us = 0.25,
                               .pair_count = 1,
                               .pairs = {{0, 1}},
                               .pair_GBps = {4.5}};
    wefti_probe_apply(&probe, topo);
    int link = wefti_topo_find_link(
        topo, wefti_topo_find(topo, WEFTI_TOPO_NUMA, 0),
        wefti_topo_find(topo, WEFTI_TOPO_NUMA, 1), WEFTI_LINK_SYS);
    assert_true(link >= 0);
    assert_true(topo->links[link].GBps == 4.5);
    assert_int_equal(topo->links[link].origin, WEFTI_ORIGIN_MEASURED);
    assert_int_equal(topo->links[link].latency_origin, WEFTI_ORIGIN_MEASURED);
    wefti_topo_destroy(topo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_probe_measures_once_and_remembers),
        cmocka_unit_test(test_probe_of_another_machine_has_another_name),
        cmocka_unit_test(test_probe_file_changed_anywhere_is_not_believed),
        cmocka_unit_test(test_probe_rounds_that_disagree_are_not_steady),
        cmocka_unit_test(test_probe_kept_without_handover_is_measured_anew),
        cmocka_unit_test(test_probe_pipe_in_its_place_is_no_file),
        cmocka_unit_test(test_probe_racing_writers_leave_a_whole_file),
        cmocka_unit_test(test_probe_without_a_folder_still_measures),
        cmocka_unit_test(test_probe_measured_links_say_so),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
