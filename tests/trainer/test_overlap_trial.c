/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     a class of transfers whose overlap loses its trial blocks in the
 *          run, on all ranks; what is learned keeps its bits; the verdict is in
 *          --json, in what is printed and in checkpoints, and a resumed run has
 *          it without a trial unless its layout is another.
 * Method   whole jobs, whose trials have a clock of the test's own, so that who
 *          wins does not depend on the machine; only one rank is slow. The
 *          modes that steps have are seen where they are set (--wrap): a
 *          trial's by its rate of 0.
 */
#include "tests/trainer/job.h"
#include "trainer/run.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cjson/cJSON.h>
#include <cmocka.h>

void __real_wefti_pipe_links_set(wefti_replica *replica,
                                 const wefti_pipe_modes *modes, bool replays);
void __wrap_wefti_pipe_links_set(wefti_replica *replica,
                                 const wefti_pipe_modes *modes, bool replays);
weft_status __real_wefti_pipe_train(wefti_replica *replica,
                                    weft_bucket_mode mode);
weft_status __wrap_wefti_pipe_train(wefti_replica *replica,
                                    weft_bucket_mode mode);
weft_status __real_wefti_replica_init(wefti_replica *replica,
                                      const wefti_replica_config *config);
weft_status __wrap_wefti_replica_init(wefti_replica *replica,
                                      const wefti_replica_config *config);
void __wrap_wefti_flight_blame(weft_comm *comm, int rank);

static scratch own;

/* Steps of all ranks, by how their transfers went. */
static struct {
    atomic_int trial, run;      /* steps */
    atomic_int trial_blocked;   /* of a trial's, those whose link blocked */
    atomic_int links[2];        /* modes set in a run: overlapped, blocking */
    atomic_int reduce[2];       /* of a run's steps */
    atomic_int link_to_look_at; /* a wefti_node_link_kind */
    atomic_int opened;          /* replicas of trials */
    atomic_int misfit;          /* 1 + the rank that they do not fit on */
    atomic_int breaks;          /* a link of each breaks */
    atomic_int blamed[3];       /* ranks, how often */
} seen;

static bool is_trial(const wefti_replica *replica)
{
    return !(replica->config.optimizer.lr > 0);
}

void __wrap_wefti_pipe_links_set(wefti_replica *replica,
                                 const wefti_pipe_modes *modes, bool replays)
{
    const weft_bucket_mode mode =
        modes->links[atomic_load(&seen.link_to_look_at)];
    if (!is_trial(replica) && mode != WEFT_BUCKET_OFF) {
        seen.links[mode == WEFT_BUCKET_BLOCKING]++;
    }
    __real_wefti_pipe_links_set(replica, modes, replays);
}

weft_status __wrap_wefti_pipe_train(wefti_replica *replica,
                                    weft_bucket_mode mode)
{
    if (is_trial(replica)) {
        seen.trial++;
        seen.trial_blocked +=
            replica->pipe.links[atomic_load(&seen.link_to_look_at)].mode ==
            WEFT_BUCKET_BLOCKING;
    } else {
        seen.run++;
        if (mode != WEFT_BUCKET_OFF) {
            seen.reduce[mode == WEFT_BUCKET_BLOCKING]++;
        }
    }
    return __real_wefti_pipe_train(replica, mode);
}

weft_status __wrap_wefti_replica_init(wefti_replica *replica,
                                      const wefti_replica_config *config)
{
    const bool tries = !(config->optimizer.lr > 0);
    seen.opened += tries;
    if (tries && seen.misfit > 0) {
        *replica = (wefti_replica){.failed = seen.misfit};
        return WEFT_ERR_NO_MEMORY;
    }
    if (tries && seen.breaks) {
        *replica = (wefti_replica){
            .fault = {.status = WEFT_ERR_PEER, .text = "a trial's link"}};
        return WEFT_ERR_PEER;
    }
    return __real_wefti_replica_init(replica, config);
}

void __wrap_wefti_flight_blame(weft_comm *comm, int rank)
{
    (void)comm;
    seen.blamed[rank]++;
}

static void forget(wefti_node_link_kind link)
{
    memset(&seen, 0, sizeof(seen));
    seen.link_to_look_at = (int)link;
}

/* ---- clocks: what a step of the last rank takes ---------------------------
 */

static double tensor_loses(void *context, int rank, weft_class class_id,
                           bool blocking, size_t k)
{
    (void)context;
    (void)k;
    const double slow = class_id == WEFT_CLASS_TP ? 17.9 : 8.25;
    return rank == 1 ? (blocking ? 8.5 : slow) : 1;
}

static double all_lose(void *context, int rank, weft_class class_id,
                       bool blocking, size_t k)
{
    (void)context;
    (void)rank;
    (void)class_id;
    (void)k;
    return blocking ? 1 : 2;
}

static double all_win(void *context, int rank, weft_class class_id,
                      bool blocking, size_t k)
{
    return all_lose(context, rank, class_id, !blocking, k);
}

static const char *const tensor[] = {"parallel.tensor_model_parallel_size=2",
                                     "parallel.sequence_parallel=true"};

/* Two of them share each layer, with and without rows. */
static job make_job(const char *third, const char *fourth)
{
    job what = {.nranks = job_is_sanitized() ? 2 : 4,
                .settings = {tensor[0], tensor[1], "model.layers=1",
                             "train.global_batch_size=8", "train.steps=4"}};
    what.settings[5] = third;
    what.settings[6] = third ? fourth : NULL;
    return what;
}

/* ---- what a run says ------------------------------------------------------
 */

static cJSON *read_summary(const char *path)
{
    static char text[1 << 16];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    (void)fclose(file);
    cJSON *summary = cJSON_Parse(text);
    assert_non_null(summary);
    return summary;
}

static const cJSON *find(const cJSON *from, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(from, name);
    if (!item) {
        print_error("no \"%s\"\n", name);
    }
    assert_non_null(item);
    return item;
}

static const cJSON *find_class(const cJSON *summary, const char *name)
{
    return find(find(find(summary, "overlap_trial"), "classes"), name);
}

static void check_verdict(const cJSON *summary, const char *name, bool lost,
                          const char *text)
{
    const cJSON *own_class = find_class(summary, name);
    assert_int_equal(cJSON_IsTrue(find(own_class, "lost")), lost);
    assert_string_equal(find(own_class, "verdict")->valuestring, text);
}

/* ---- a verdict ------------------------------------------------------------
 */

static wefti_overlap_class compare(double overlapped, double blocking,
                                   double noise)
{
    double a[WEFTI_OVERLAP_STEPS], b[WEFTI_OVERLAP_STEPS];
    for (size_t k = 0; k < WEFTI_OVERLAP_STEPS; k++) {
        const double away = noise * ((double)(k % 3) - 1);
        a[k] = overlapped + away;
        b[k] = blocking - away;
    }
    a[4] += 1000; /* one that the machine held up says nothing */
    return wefti_overlap_compare(a, b);
}

static void test_compare_loses_by_more_than_three_spreads(void **state)
{
    (void)state;
    wefti_overlap_class found = compare(17.9, 8.5, 1);
    assert_true(found.tried && found.lost);
    assert_true(fabs(found.blocking_ms - 8.5) < 1e-9);
    assert_true(fabs(found.spread_ms - 1) < 1e-9);
    assert_false(compare(11.4, 8.5, 1).lost);
    assert_true(compare(12.6, 8.5, 1).lost);
    assert_false(compare(8.5, 17.9, 1).lost);
    assert_false(compare(8.5, 8.5, 0).lost);
}

/* ---- a run ----------------------------------------------------------------
 */

static void test_trial_lost_by_one_rank_blocks_on_all(void **state)
{
    (void)state;
    char path[512];
    snprintf(path, sizeof(path), "%.250s/summary", own.dir);
    const job plain = make_job(NULL, NULL);
    job tried = make_job("overlap.trial=true", NULL);
    tried.clock = tensor_loses;
    tried.json = path;
    job_result wanted = job_run_well(&own, &plain);
    forget(WEFTI_LINK_TENSOR);
    job_result got = job_run_well(&own, &tried);
    job_assert_same_bits(&wanted, &got);
    const int classes = tried.nranks > 2 ? 2 : 1;
    assert_int_equal(seen.trial, classes * tried.nranks * 2 *
                                     WEFTI_OVERLAP_ROUNDS *
                                     (1 + WEFTI_OVERLAP_VISIT_STEPS));
    /* Half of tp's own steps, and all of the class behind it. */
    assert_int_equal(seen.trial_blocked, seen.trial - seen.trial / classes / 2);
    assert_int_equal(seen.run, 4 * tried.nranks);
    assert_int_equal(seen.links[0], 0);
    assert_true(seen.links[1] >= 8 * tried.nranks);
    assert_int_equal(seen.reduce[0], 4 * tried.nranks);
    cJSON *summary = read_summary(path);
    const cJSON *trial = find(summary, "overlap_trial");
    assert_true(cJSON_IsFalse(find(trial, "resumed")));
    check_verdict(summary, "tp", true,
                  "tp fell back, overlap lost 17.9 against 8.5 ms");
    if (classes > 1) {
        check_verdict(summary, "dp", false,
                      "dp overlaps, 8.25 ms against 8.5 blocking");
    }
    cJSON_Delete(summary);
    assert_non_null(strstr(
        got.printed, "n/a: tp fell back, overlap lost 17.9 against 8.5 ms"));
    job_result_fini(&wanted);
    job_result_fini(&got);
}

static void test_trial_of_all_classes_changes_no_bit(void **state)
{
    static const struct {
        wefti_node_link_kind link;
        const char *classes[2];
        const char *settings[3];
    } layouts[] = {
        {WEFTI_LINK_CONTEXT,
         {"cp", "dp"},
         {"parallel.context_parallel_size=2"}},
        {WEFTI_LINK_EXPERTS,
         {"ep", "dp"},
         {"parallel.expert_model_parallel_size=2", "model.experts=4"}},
        {WEFTI_LINK_TENSOR,
         {"tp"},
         {"parallel.tensor_model_parallel_size=2",
          "parallel.pipeline_model_parallel_size=2"}}};
    (void)state;
    char path[512];
    snprintf(path, sizeof(path), "%.250s/summary", own.dir);
    const size_t count = job_is_slow() ? 1 : sizeof(layouts) / sizeof(*layouts);
    for (size_t i = 0; i < count; i++) {
        job what = {.nranks = 4,
                    .settings = {"model.layers=2", "train.steps=2",
                                 "train.global_batch_size=8",
                                 "overlap.trial=false", layouts[i].settings[0],
                                 layouts[i].settings[1]},
                    .json = path};
        job_result wanted = job_run_well(&own, &what);
        what.settings[3] = "overlap.trial=true";
        what.clock = all_lose;
        forget(layouts[i].link);
        job_result got = job_run_well(&own, &what);
        job_assert_same_bits(&wanted, &got);
        assert_int_equal(seen.links[0], 0);
        assert_true(seen.links[1] > 0);
        cJSON *summary = read_summary(path);
        for (size_t c = 0; c < 2 && layouts[i].classes[c]; c++) {
            const cJSON *one = find_class(summary, layouts[i].classes[c]);
            assert_true(cJSON_IsTrue(find(one, "lost")));
        }
        if (layouts[i].classes[1]) {
            assert_int_equal(seen.reduce[0], 0);
        }
        cJSON_Delete(summary);
        job_result_fini(&wanted);
        job_result_fini(&got);
    }
}

static void test_trial_of_one_rank_tries_nothing(void **state)
{
    (void)state;
    char path[512];
    snprintf(path, sizeof(path), "%.250s/summary", own.dir);
    const job what = {
        .nranks = 1,
        .settings = {"overlap.trial=true", "train.steps=1", "model.layers=1"},
        .json = path};
    forget(WEFTI_LINK_TENSOR);
    job_result got = job_run_well(&own, &what);
    assert_int_equal(seen.opened, 0);
    cJSON *summary = read_summary(path);
    assert_true(cJSON_IsNull(find(summary, "overlap_trial")));
    cJSON_Delete(summary);
    job_result_fini(&got);
}

/* Both directions of a list: there is one copy, and gradients are shared. */
static void test_trial_of_mirrored_ranks_tries_their_gradients(void **state)
{
    (void)state;
    char path[512];
    snprintf(path, sizeof(path), "%.250s/summary", own.dir);
    const job what = {.nranks = 2,
                      .settings = {"overlap.trial=true", "train.steps=1",
                                   "model.layers=2",
                                   "train.global_batch_size=8",
                                   "parallel.pipeline_model_parallel_size=2",
                                   "parallel.schedule=dualpipe"},
                      .clock = all_lose,
                      .json = path};
    forget(WEFTI_LINK_TENSOR);
    job_result got = job_run_well(&own, &what);
    cJSON *summary = read_summary(path);
    const cJSON *dp = find_class(summary, "dp");
    assert_true(cJSON_IsTrue(find(dp, "lost")));
    cJSON_Delete(summary);
    job_result_fini(&got);
}

static void test_trial_that_does_not_fit_blames_the_rank(void **state)
{
    (void)state;
    job what = {.nranks = 3, .settings = {"overlap.trial=true"}};
    what.settings[1] = "train.global_batch_size=6";
    forget(WEFTI_LINK_TENSOR);
    seen.misfit = 1 + 2;
    job_result got = job_run(&own, &what);
    assert_int_equal(got.status, WEFT_ERR_NO_MEMORY);
    assert_int_equal(seen.opened, 3);
    assert_int_equal(seen.blamed[2], 3);
    forget(WEFTI_LINK_TENSOR); /* others fit */
    job_result_fini(&got);
}

/* Which an elastic run recovers from. */
static void test_trial_hands_out_the_fault_of_its_own_links(void **state)
{
    (void)state;
    const job what = {.nranks = 2, .settings = {"overlap.trial=true"}};
    forget(WEFTI_LINK_TENSOR);
    seen.breaks = true;
    job_result got = job_run(&own, &what);
    assert_non_null(strstr(got.errors, "a trial's link"));
    forget(WEFTI_LINK_TENSOR);
    job_result_fini(&got);
}

static void test_trial_other_value_is_refused(void **state)
{
    (void)state;
    const job what = {.nranks = 1, .settings = {"overlap.trial=maybe"}};
    job_result got = job_run(&own, &what);
    assert_int_equal(got.status, WEFT_ERR_INVALID);
    assert_non_null(strstr(got.error, "overlap.trial"));
    assert_non_null(strstr(got.error, "true or false"));
    job_result_fini(&got);
}

/* ---- on from a checkpoint -------------------------------------------------
 */

static void remove_step(const char *dir, const char *name)
{
    char path[768];
    snprintf(path, sizeof(path), "%.500s/%.100s", dir, name);
    assert_int_equal(access(path, F_OK), 0);
    nftw(path, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Steps 3 and 4 of both, and what was learned. */
static void check_rest(const job_result *whole, const job_result *rest)
{
    assert_int_equal(whole->steps, 4);
    assert_int_equal(rest->steps, 2);
    for (size_t i = 0; i < 2; i++) {
        assert_true(whole->loss[2 + i] == rest->loss[i]);
        assert_true(whole->grad_norm[2 + i] == rest->grad_norm[i]);
    }
    assert_memory_equal(whole->parameters, rest->parameters,
                        whole->parameter_count * sizeof(real));
}

static void test_resume_has_the_verdict_without_a_trial(void **state)
{
    (void)state;
    char path[512], dir[512], setting[600];
    snprintf(path, sizeof(path), "%.250s/summary", own.dir);
    snprintf(dir, sizeof(dir), "%.250s/tried", own.dir);
    snprintf(setting, sizeof(setting), "checkpoint.dir=%.500s", dir);
    const job whole = make_job(NULL, NULL);
    job_result wanted = job_run_well(&own, &whole);
    job what = make_job("overlap.trial=true", setting);
    what.settings[7] = "checkpoint.every=2";
    what.clock = tensor_loses;
    job_result first = job_run_well(&own, &what);
    job_assert_same_bits(&wanted, &first);
    remove_step(dir, "step_00000004");
    what.resume = dir;
    what.json = path;
    what.clock = all_win; /* were it asked */
    /* From what was saved, and from what the resumed run has saved. */
    for (int turn = 0; turn < 2; turn++) {
        what.settings[4] = turn ? "train.steps=5" : "train.steps=4";
        forget(WEFTI_LINK_TENSOR);
        job_result rest = job_run_well(&own, &what);
        assert_int_equal(seen.trial, 0);
        assert_int_equal(seen.links[0], 0);
        assert_true(seen.links[1] > 0);
        cJSON *summary = read_summary(path);
        assert_true(
            cJSON_IsTrue(find(find(summary, "overlap_trial"), "resumed")));
        check_verdict(summary, "tp", true,
                      "tp fell back, overlap lost 17.9 against 8.5 ms");
        if (turn == 0) {
            check_rest(&wanted, &rest);
        }
        cJSON_Delete(summary);
        job_result_fini(&rest);
    }
    job_result_fini(&first);
    job_result_fini(&wanted);
}

static void test_resume_in_another_layout_tries_anew(void **state)
{
    (void)state;
    char path[512], dir[512], setting[600];
    snprintf(path, sizeof(path), "%.250s/summary", own.dir);
    snprintf(dir, sizeof(dir), "%.250s/other", own.dir);
    snprintf(setting, sizeof(setting), "checkpoint.dir=%.500s", dir);
    job what = make_job("overlap.trial=true", setting);
    what.settings[4] = "train.steps=1";
    what.settings[7] = "checkpoint.every=1";
    what.settings[8] = "train.warmup_steps=1";
    what.clock = all_lose;
    what.json = path;
    job_result first = job_run_well(&own, &what);
    job_result_fini(&first);
    what.resume = dir;
    what.settings[4] = "train.steps=2";
    what.settings[1] = "parallel.sequence_parallel=false";
    what.clock = all_win;
    forget(WEFTI_LINK_TENSOR);
    job_result second = job_run_well(&own, &what);
    assert_true(seen.trial > 0);
    assert_int_equal(seen.links[1], 0);
    cJSON *summary = read_summary(path);
    assert_true(cJSON_IsFalse(find(find(summary, "overlap_trial"), "resumed")));
    assert_true(cJSON_IsFalse(find(find_class(summary, "tp"), "lost")));
    cJSON_Delete(summary);
    job_result_fini(&second);
    what.settings[4] = "train.steps=3";
    what.settings[5] = "overlap.trial=false"; /* nor is a verdict kept */
    forget(WEFTI_LINK_TENSOR);
    job_result third = job_run_well(&own, &what);
    assert_int_equal(seen.trial, 0);
    assert_int_equal(seen.links[1], 0);
    job_result_fini(&third);
}

/* ---- beside --measure -----------------------------------------------------
 */

static void test_measure_has_no_hiding_ratio_of_what_fell_back(void **state)
{
    (void)state;
    char path[512];
    snprintf(path, sizeof(path), "%.250s/summary", own.dir);
    if (job_is_sanitized()) { /* which sees measuring in test_same_bits */
        return;
    }
    const job what = {.nranks = 2,
                      .settings = {tensor[0], "model.layers=1",
                                   "train.global_batch_size=2", "train.steps=1",
                                   "overlap.trial=true"},
                      .json = path,
                      .measure = true,
                      .clock = all_lose};
    job_result got = job_run_well(&own, &what);
    assert_true(isnan(got.hiding_ratio));
    cJSON *summary = read_summary(path);
    const cJSON *measured = find(summary, "measured");
    const cJSON *tp = find(find(measured, "classes"), "tp");
    assert_true(cJSON_IsNull(find(tp, "hiding_ratio")));
    assert_true(cJSON_IsNull(find(tp, "hiding_ceiling")));
    assert_true(cJSON_IsFalse(find(tp, "exceeds")));
    assert_string_equal(find(tp, "verdict")->valuestring,
                        "tp fell back, overlap lost 2 against 1 ms");
    assert_true(cJSON_IsNull(find(measured, "hiding_ratio")));
    assert_string_equal(find(measured, "verdict")->valuestring,
                        "overlap fell back in all classes");
    cJSON_Delete(summary);
    job_result_fini(&got);
}

static void test_measure_hints_at_a_trial_where_overlap_lost(void **state)
{
    (void)state;
    static wefti_measure_result measured; /* zeros: no class is there */
    const bool there[WEFT_CLASS_COUNT] = {
        [WEFT_CLASS_TP] = true, [WEFT_CLASS_DP] = true};
    wefti_overlap_verdict verdict = {0};
    char text[512] = "";
    measured.times[WEFTI_MEASURE_OVERLAPPED].median_ms = 17.9;
    measured.times[WEFTI_MEASURE_OVERLAPPED].spread_ms = 1;
    for (int c = 0; c < WEFT_CLASS_COUNT; c++) {
        measured.classes[c].there = true;
        measured.classes[c].serial.median_ms = 8.5;
    }
    measured.classes[WEFT_CLASS_DP].serial.median_ms = 15;
    FILE *file = fmemopen(text, sizeof(text), "w");
    assert_non_null(file);
    wefti_overlap_hint(&verdict, &measured, there, file);
    verdict.there = true;
    wefti_overlap_hint(&verdict, &measured, there, file);
    (void)fclose(file);
    assert_string_equal(text, "  tp  overlap lost 17.9 against 8.5 ms: "
                              "overlap.trial: true would fall back\n");
}

static int open_scratch(void **state)
{
    (void)state;
    scratch_open(&own);
    job_prepare(&own, 7);
    return 0;
}

static int close_scratch(void **state)
{
    (void)state;
    scratch_close(&own);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compare_loses_by_more_than_three_spreads),
        cmocka_unit_test(test_trial_lost_by_one_rank_blocks_on_all),
        cmocka_unit_test(test_trial_of_all_classes_changes_no_bit),
        cmocka_unit_test(test_trial_of_one_rank_tries_nothing),
        cmocka_unit_test(test_trial_of_mirrored_ranks_tries_their_gradients),
        cmocka_unit_test(test_trial_that_does_not_fit_blames_the_rank),
        cmocka_unit_test(test_trial_hands_out_the_fault_of_its_own_links),
        cmocka_unit_test(test_trial_other_value_is_refused),
        cmocka_unit_test(test_resume_has_the_verdict_without_a_trial),
        cmocka_unit_test(test_resume_in_another_layout_tries_anew),
        cmocka_unit_test(test_measure_has_no_hiding_ratio_of_what_fell_back),
        cmocka_unit_test(test_measure_hints_at_a_trial_where_overlap_lost),
    };
    return cmocka_run_group_tests(tests, open_scratch, close_scratch);
}
