/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: levels are what they say, and a placement puts the most talkative
 * groups closest, counts the bytes right, and is quick for large clusters.
 * Method: synthetic clusters with answers known by hand; a cluster of 512
 * hosts packed, unpacked, merged and placed against the clock.
 */
#include "base/clock.h"
#include "tests/topo/machine.h"
#include "topo/placement.h"
#include "topo/topo.h"

#include <stdlib.h>

typedef struct fixture {
    wefti_topo *topo;
    wefti_paths *paths;
    wefti_levels *levels;
} fixture;

static fixture open_text(const char *text)
{
    fixture f;
    assert_int_equal(wefti_topo_read_synthetic(text, &f.topo), WEFT_OK);
    assert_int_equal(wefti_paths_create(f.topo, &f.paths), WEFT_OK);
    assert_int_equal(wefti_levels_create(f.paths, 2, &f.levels), WEFT_OK);
    return f;
}

static void close_text(fixture f)
{
    wefti_levels_destroy(f.levels);
    wefti_paths_destroy(f.paths);
    wefti_topo_destroy(f.topo);
}

static void test_levels_are_named_by_what_joins(void **state)
{
    (void)state;
    static const struct {
        const char *text, *names;
    } rows[] = {{"2x(8xH100,8xCX7)", "nvlink network "},
                {"2x(4xL40,2xCX6)", "numa host network "},
                {"8xL40", "numa host "},
                {"3x(1xNUMA)", "host network "},
                {"8xH100", "nvlink "}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        fixture f = open_text(rows[i].text);
        char names[64] = "";
        for (int level = 0; level < f.levels->level_count; level++) {
            strcat(names, f.levels->names[level]);
            strcat(names, " ");
        }
        assert_string_equal(names, rows[i].names);
        close_text(f);
    }
}

static void test_levels_of_a_job_follow_its_ranks(void **state)
{
    (void)state;
    fixture f = open_text("3x(2xH100,2xCX7)");
    static const int hosts[6] = {0, 0, 0, 2, 2, 2};
    static const int gpus[6] = {0, 1, 0, 4, 5, 4}; /* in turn */
    wefti_levels *levels;
    assert_int_equal(wefti_levels_create_of(f.paths, hosts, 6, &levels),
                     WEFT_OK);
    assert_int_equal(levels->place_count, 6);
    assert_memory_equal(levels->gpus, gpus, sizeof(gpus));
    assert_string_equal(levels->names[0], "nvlink");
    assert_int_equal(wefti_levels_common(levels, 0, 2), 0);
    assert_int_equal(wefti_levels_common(levels, 2, 3),
                     levels->level_count - 1);
    wefti_levels_destroy(levels);
    static const int falls[2] = {1, 0}, absent[1] = {3}, negative[1] = {-1};
    assert_int_equal(wefti_levels_create_of(f.paths, falls, 2, &levels),
                     WEFT_ERR_INVALID);
    assert_int_equal(wefti_levels_create_of(f.paths, absent, 1, &levels),
                     WEFT_ERR_INVALID);
    assert_int_equal(wefti_levels_create_of(f.paths, negative, 1, &levels),
                     WEFT_ERR_INVALID);
    close_text(f);
}

/* Two trays of a rack are one level, a third of another rack is not. */
static void test_levels_of_a_domain_span_its_hosts(void **state)
{
    (void)state;
    fixture f = open_text("3x(4xGB200,4xCX7,8xNVL)");
    wefti_levels *levels = f.levels;
    assert_int_equal(levels->place_count, 12);
    assert_int_equal(levels->level_count, 2);
    assert_string_equal(levels->names[0], "nvlink");
    assert_string_equal(levels->names[1], "network");
    assert_true(levels->GBps[0] > 899 && levels->GBps[0] < 901);
    assert_int_equal(wefti_levels_common(levels, 0, 7), 0);
    assert_int_equal(wefti_levels_common(levels, 3, 4), 0);
    assert_int_equal(wefti_levels_common(levels, 7, 8), 1);
    static const int hosts[3] = {0, 1, 2}; /* one rank each */
    wefti_levels *few;
    assert_int_equal(wefti_levels_create_of(f.paths, hosts, 3, &few), WEFT_OK);
    assert_int_equal(wefti_levels_common(few, 0, 1), 0);
    assert_int_equal(wefti_levels_common(few, 0, 2), 1);
    wefti_levels_destroy(few);
    close_text(f);
}

static void test_place_begins_where_ranks_are(void **state)
{
    (void)state;
    fixture f = open_text("2x(2xH100,2xCX7)");
    static const int cyclic[4] = {0, 2, 1, 3};
    wefti_place_job job;
    wefti_placement p;
    assert_int_equal(
        wefti_place_job_read("tp=2,dp=2,tp_bytes=8,dp_bytes=0", &job), WEFT_OK);
    job.now = cyclic;
    assert_int_equal(wefti_place_plan(f.levels, &job, &p), WEFT_OK);
    int top = f.levels->level_count - 1;
    assert_true(p.before[top] == 4 * 8 && p.after[top] == 0);
    wefti_placement_fini(&p);
    close_text(f);
}

static void test_place_tensor_parallelism_stays_in_a_host(void **state)
{
    (void)state;
    fixture f = open_text("4x(8xH100,8xCX7)");
    wefti_place_job job;
    wefti_placement p;
    assert_int_equal(wefti_place_job_read("pp=4,tp=8", &job), WEFT_OK);
    assert_int_equal(wefti_place_plan(f.levels, &job, &p), WEFT_OK);
    int top = f.levels->level_count - 1;
    assert_true(p.by_axis[WEFTI_AXIS_TP][top] == 0);
    assert_true(p.by_axis[WEFTI_AXIS_PP][top] > 0);
    wefti_placement_fini(&p);
    close_text(f);
}

static void
test_place_data_parallelism_goes_inside_where_it_talks_most(void **state)
{
    (void)state;
    /* Two groups of four hosts' worth: with pp inside, dp would cross with
     * all it has; dp sends ten times as much. */
    fixture f = open_text("2x(4xA100,4xCX6)");
    wefti_place_job job;
    wefti_placement p;
    assert_int_equal(
        wefti_place_job_read("dp=4,pp=2,dp_bytes=1e10,pp_bytes=1e9", &job),
        WEFT_OK);
    assert_int_equal(wefti_place_plan(f.levels, &job, &p), WEFT_OK);
    int top = f.levels->level_count - 1;
    assert_true(p.by_axis[WEFTI_AXIS_DP][top] == 0);
    assert_true(p.after[top] == 4 * 1e9); /* four chains cross once */
    wefti_placement_fini(&p);
    assert_int_equal(
        wefti_place_job_read("dp=2,pp=4,dp_bytes=1e8,pp_bytes=1e9", &job),
        WEFT_OK);
    assert_int_equal(wefti_place_plan(f.levels, &job, &p), WEFT_OK);
    assert_true(p.by_axis[WEFTI_AXIS_PP][top] == 0);
    assert_true(p.after[top] == 4 * 2 * 1e8); /* rings of two */
    assert_true(p.after[top] < p.before[top] || p.before[top] == p.after[top]);
    wefti_placement_fini(&p);
    close_text(f);
}

static void test_place_every_rank_has_a_place_of_its_own(void **state)
{
    (void)state;
    static const struct {
        const char *text, *job;
    } rows[] = {{"2x(8xH100,8xCX7)", "tp=2,cp=2,ep=2,pp=2"},
                {"3x(2xA100,1xCX6)", "tp=3,dp=2"},
                {"1x(4xA100)+1x(2xA100)", "tp=2,pp=3"},
                {"4x(1xNUMA)", "dp=8"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        fixture f = open_text(rows[i].text);
        wefti_place_job job;
        wefti_placement p;
        uint64_t seen = 0;
        assert_int_equal(wefti_place_job_read(rows[i].job, &job), WEFT_OK);
        assert_int_equal(wefti_place_plan(f.levels, &job, &p), WEFT_OK);
        for (int rank = 0; rank < p.rank_count; rank++) {
            seen |= 1ull << p.places[rank];
        }
        assert_int_equal(seen, (1ull << p.rank_count) - 1);
        for (int level = f.levels->level_count - 1; level >= 0; level--) {
            assert_true(p.after[level] <= p.before[level] * (1 + 1e-9) ||
                        level + 1 < f.levels->level_count);
        }
        wefti_placement_fini(&p);
        close_text(f);
    }
}

static void test_place_impossible_jobs_are_refused(void **state)
{
    (void)state;
    fixture f = open_text("2x(8xH100)");
    wefti_place_job job;
    wefti_placement p;
    assert_int_equal(wefti_place_job_read("tp=3", &job), WEFT_OK);
    assert_int_equal(wefti_place_plan(f.levels, &job, &p), WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_text(), "16 places"));
    static const char *const wrong[] = {"tp",   "tp=0",  "tp=1.5",
                                        "xp=2", "tp=2x", "tp_bytes=-1"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(wefti_place_job_read(wrong[i], &job),
                         WEFT_ERR_INVALID);
        assert_non_null(strstr(weft_error_text(), "allowed"));
    }
    close_text(f);
}

static void test_place_512_hosts_are_merged_and_placed_soon(void **state)
{
    (void)state;
    wefti_topo *one, *cluster;
    unsigned char *bytes;
    size_t byte_count;
    assert_int_equal(wefti_topo_read_synthetic("8xH100,8xCX7", &one), WEFT_OK);
    int64_t begin = wefti_clock_thread_ns();
    assert_int_equal(wefti_topo_pack(one, &bytes, &byte_count), WEFT_OK);
    assert_int_equal(wefti_topo_create(&cluster), WEFT_OK);
    for (int host = 0; host < 512; host++) {
        wefti_topo *part;
        assert_int_equal(wefti_topo_unpack(bytes, byte_count, &part), WEFT_OK);
        assert_int_equal(wefti_topo_merge(cluster, part), WEFT_OK);
        wefti_topo_destroy(part);
    }
    fixture f = {.topo = cluster};
    wefti_place_job job;
    wefti_placement p;
    assert_int_equal(wefti_paths_create(cluster, &f.paths), WEFT_OK);
    assert_int_equal(wefti_levels_create(f.paths, 1, &f.levels), WEFT_OK);
    assert_int_equal(f.levels->place_count, 4096);
    assert_int_equal(wefti_place_job_read("tp=4,cp=2,ep=16,dp=4,pp=8", &job),
                     WEFT_OK);
    assert_int_equal(wefti_place_plan(f.levels, &job, &p), WEFT_OK);
    double ms = (double)(wefti_clock_thread_ns() - begin) / 1e6;
    print_message("512 hosts of 8 GPUs: %.0f ms, %zu bytes a host\n", ms,
                  byte_count);
    int top = f.levels->level_count - 1;
    assert_true(p.by_axis[WEFTI_AXIS_TP][top] == 0);
    assert_true(p.by_axis[WEFTI_AXIS_CP][top] == 0);
    assert_true(p.after[top] <= p.before[top]);
#ifdef NDEBUG
    assert_true(ms < 2000);
#endif
    wefti_placement_fini(&p);
    free(bytes);
    wefti_topo_destroy(one);
    close_text(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_levels_are_named_by_what_joins),
        cmocka_unit_test(test_levels_of_a_job_follow_its_ranks),
        cmocka_unit_test(test_levels_of_a_domain_span_its_hosts),
        cmocka_unit_test(test_place_begins_where_ranks_are),
        cmocka_unit_test(test_place_tensor_parallelism_stays_in_a_host),
        cmocka_unit_test(
            test_place_data_parallelism_goes_inside_where_it_talks_most),
        cmocka_unit_test(test_place_every_rank_has_a_place_of_its_own),
        cmocka_unit_test(test_place_impossible_jobs_are_refused),
        cmocka_unit_test(test_place_512_hosts_are_merged_and_placed_soon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
