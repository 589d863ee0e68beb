/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     a model that is cut for a pipeline trains as the whole one does on
 *          one rank: every schedule, with and without data parallelism, tied
 *          embeddings, validation, generated text, checkpoints. No rank holds
 *          more activations than its list says.
 * Method   jobs whose ranks are threads, over float and over double. Where the
 *          sums have the same order losses, norms, gradients and parameters are
 *          compared bit by bit with a single rank's, else within 1e-6 over 20
 *          steps (float) and gradients within 1e-12 (double). WEFT_TEST_LONG:
 *          all schedules on 4 ranks and more mixtures.
 */
#include "tests/seed.h"
#include "tests/trainer/job.h"
#include "weft/schedule.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static scratch own;

static int open_scratch(void **state)
{
    (void)state;
    scratch_open(&own);
    job_prepare(&own, random_seed());
    return 0;
}

/* One rank's two steps, which many layouts are compared with. */
static job_result reference;

static int close_scratch(void **state)
{
    (void)state;
    job_result_fini(&reference);
    scratch_close(&own);
    return 0;
}

/* A layout; its settings come after the model's. */
typedef struct layout {
    int nranks;
    const char *settings[6];
} layout;

#define PIPE(ranks)    "parallel.pipeline_model_parallel_size=" #ranks
#define CHUNKS(count)  "parallel.virtual_pipeline_model_parallel_size=" #count
#define SCHEDULE(name) "parallel.schedule=" #name
#define STEPS(count)   "train.steps=" #count
#define TIED           "model.tie_embeddings=true"
#define MODEL          "model.layers=8", JOB_TOKENS(17, 5)
#define SMALL          "train.global_batch_size=32"
#define BATCH          "train.micro_batch_size=8", "train.global_batch_size=64"

/* MODEL and BATCH: micro-batches of 136 tokens, two chunks, or of 40; 8 a step.
 */
static job make_job(const layout *cut, const char *steps, const char *more)
{
    job what = {.nranks = cut->nranks,
                .settings = {MODEL, BATCH, steps, "train.validate_every=2"}};
    size_t at = 6;
    for (size_t i = 0; i < 6 && cut->settings[i]; i++) {
        what.settings[at++] = cut->settings[i];
    }
    what.settings[at] = more;
    return what;
}

static job_result run_good(const layout *cut, const char *steps,
                           const char *more)
{
    job what = make_job(cut, steps, more);
    what.generate = "we";
    job_result result = job_run(&own, &what);
    if (result.status != WEFT_OK) {
        fail_msg("%d ranks: %s", cut->nranks, result.error);
    }
    return result;
}

static const layout single = {1, {NULL}};

static void check_same(const job_result *a, const job_result *b)
{
    assert_int_equal(a->steps, b->steps);
    for (size_t i = 0; i < a->steps; i++) {
        assert_true(a->loss[i] == b->loss[i]);
        assert_true(a->grad_norm[i] == b->grad_norm[i]);
    }
    assert_true(a->val_loss == b->val_loss);
    assert_int_equal(a->parameter_count, b->parameter_count);
    size_t bytes = a->parameter_count * sizeof(real);
    assert_memory_equal(a->parameters, b->parameters, bytes);
    assert_memory_equal(a->gradients, b->gradients, bytes);
    assert_int_equal(a->printed_bytes, b->printed_bytes);
    assert_memory_equal(a->printed, b->printed, a->printed_bytes);
}

/* The whole matrix, not what covers each kind once. */
static bool is_long(void)
{
    return getenv("WEFT_TEST_LONG") != NULL;
}

static void check_layouts(const layout *layouts, size_t count)
{
    if (!reference.parameters) {
        reference = run_good(&single, STEPS(2), NULL);
    }
    for (size_t i = 0; i < count; i++) {
        job_result got = run_good(&layouts[i], STEPS(2), NULL);
        check_same(&reference, &got);
        assert_true(got.peaks_as_planned);
        assert_true(got.step_error_ms < 1e-3);
        job_result_fini(&got);
    }
}

static void test_schedule_each_has_the_bits_of_one_rank(void **state)
{
    (void)state;
    const layout layouts[] = {{4, {PIPE(4), SCHEDULE(dualpipe)}},
                              {2, {PIPE(2), SCHEDULE(zbv)}},
                              {4, {PIPE(4), SCHEDULE(1f1b)}},
                              {2, {PIPE(2), SCHEDULE(zb_h2)}},
                              {2, {PIPE(2), SCHEDULE(dualpipev), CHUNKS(2)}},
                              {2, {PIPE(2), SCHEDULE(interleaved), CHUNKS(4)}},
                              {4, {PIPE(4), SCHEDULE(gpipe)}},
                              {4, {PIPE(4), SCHEDULE(zb_h1)}},
                              {4, {PIPE(4), SCHEDULE(zb_h2)}},
                              {4, {PIPE(4), SCHEDULE(zbv)}},
                              {4, {PIPE(4), SCHEDULE(dualpipev)}},
                              {4, {PIPE(4), SCHEDULE(interleaved), CHUNKS(2)}},
                              {2,
                               {PIPE(2), SCHEDULE(interleaved), CHUNKS(4),
                                "parallel.virtual_group_size=4"}}};
    size_t all = sizeof(layouts) / sizeof(*layouts);
    size_t some = sizeof(real) == 8 ? 2 : job_is_slow() ? 3 : 6;
    check_layouts(layouts, is_long() ? all : some);
}

/* 8 layers on 3 stages, and on 6. */
static void test_layers_that_do_not_divide_keep_the_bits(void **state)
{
    (void)state;
    const layout layouts[] = {{3, {PIPE(3), SCHEDULE(zb_h1)}},
                              {2, {PIPE(2), SCHEDULE(interleaved), CHUNKS(3)}}};
    check_layouts(layouts, 2);
}

static void test_data_parallel_beside_pipelines_keeps_the_bits(void **state)
{
    (void)state;
    const layout layouts[] = {
        {4, {PIPE(2), SCHEDULE(zb_h1)}},
        {4, {PIPE(2), SCHEDULE(dualpipe)}},
        {2,
         {PIPE(2), SCHEDULE(gpipe), "overlap.pipeline=false",
          "overlap.grad_reduce=false", "overlap.param_gather=false"}},
        {4, {PIPE(2), SCHEDULE(1f1b)}},
        {4, {PIPE(2), SCHEDULE(zbv)}},
        {8, {PIPE(2), SCHEDULE(zb_h2)}}};
    size_t all = sizeof(layouts) / sizeof(*layouts);
    check_layouts(layouts, is_long() ? all : job_is_slow() ? 2 : 3);
}

static job_result run_tiny(int nranks, const char *gathers)
{
    const char *steps = STEPS(2);
    job what = {.nranks = nranks,
                .settings = {"model.layers=8", "model.seq_length=4",
                             "data.validation_fraction=0.005", steps,
                             "train.micro_batch_size=1",
                             "train.global_batch_size=8", gathers}};
    const char *cut[] = {PIPE(2), SCHEDULE(interleaved), CHUNKS(4)};
    for (size_t i = 0; i < 3 && nranks > 1; i++) {
        what.settings[7 + i] = cut[i];
    }
    job_result result = job_run(&own, &what);
    if (result.status != WEFT_OK) {
        fail_msg("%d ranks: %s", nranks, result.error);
    }
    return result;
}

/* 4 ranks on a link of gbps; they have the bits of one. */
static size_t count_late(const char *gbps, const char *gathers,
                         const job_result *wanted)
{
    setenv("WEFT_EMULATE_GBPS", gbps, 1);
    job_result got = run_tiny(4, gathers);
    unsetenv("WEFT_EMULATE_GBPS");
    assert_true(wanted->loss[1] == got.loss[1]);
    assert_memory_equal(wanted->parameters, got.parameters,
                        wanted->parameter_count * sizeof(real));
    const size_t late = got.late_parameters;
    job_result_fini(&got);
    return late;
}

/*
 * Gathers take many times as long as a forward here; each comes behind those of
 * the stages before, so what has run before its end has not waited for it. On a
 * busy machine a rank may be kept off its core until the gathers have ended: a
 * slower link then outlasts that.
 */
static void test_parameters_come_behind_forwards_of_stages_before(void **state)
{
    (void)state;
    static const char *const links[] = {"0.002", "0.0005", "0.0002"};
    job_result wanted = run_tiny(1, "overlap.param_gather=true");
    size_t late = 0;
    for (size_t i = 0; i < sizeof(links) / sizeof(*links) && late == 0; i++) {
        late = count_late(links[i], "overlap.param_gather=true", &wanted);
    }
    assert_true(late > 0);
    assert_int_equal(
        count_late(links[0], "overlap.param_gather=false", &wanted), 0);
    job_result_fini(&wanted);
}

/*
 * Buckets need not wait for a stage's REDUCE_GRAD where nothing but messages is
 * between it and the last W. Of two interleaved ranks the second one reduces
 * its last part but one a backward later, and two directions never do it early.
 */
static void test_gradients_go_early_where_the_list_allows_it(void **state)
{
    (void)state;
    static const struct {
        layout cut;
        size_t early;
    } cases[] = {{{2, {PIPE(1), SCHEDULE(1f1b), SMALL}}, 2},
                 {{4, {PIPE(2), SCHEDULE(1f1b), SMALL}}, 4},
                 {{2, {PIPE(2), SCHEDULE(zb_h1), SMALL}}, 2},
                 {{2, {PIPE(2), SCHEDULE(interleaved), CHUNKS(2)}}, 3},
                 {{2, {PIPE(2), SCHEDULE(dualpipe), SMALL}}, 0}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        job_result got = run_good(&cases[i].cut, STEPS(1), NULL);
        assert_int_equal(got.early_parts, cases[i].early);
        job_result_fini(&got);
    }
}

/* Errors name ranks by communicator; those of a pipeline number them anew. */
static void test_communicators_say_whose_ranks_they_number(void **state)
{
    (void)state;
    static const struct {
        layout cut;
        const char *line, *group;
    } cases[] = {{{4, {PIPE(2), SCHEDULE(1f1b), SMALL}},
                  "pipeline of copy 0",
                  "data of pipeline rank 0"},
                 {{2, {PIPE(2), SCHEDULE(dualpipe), SMALL}},
                  "pipeline",
                  "data of ranks 0 and 1"}};
    for (size_t i = 0; i < 2; i++) {
        job_result got = run_good(&cases[i].cut, STEPS(1), NULL);
        assert_string_equal(got.comm_names[0], cases[i].line);
        assert_string_equal(got.comm_names[1], cases[i].group);
        job_result_fini(&got);
    }
}

/* Largest distance, in units of the largest value. */
static double distance(const real *a, const real *b, size_t count)
{
    double worst = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        double off = fabs((double)a[i] - (double)b[i]);
        double value = fabs((double)a[i]);
        worst = off > worst || isnan(off) ? off : worst;
        size = value > size ? value : size;
    }
    return worst / size;
}

static void check_near(const job_result *wanted, const job_result *got)
{
    const double most = sizeof(real) == 8 ? 1e-12 : 1e-6;
    assert_int_equal(wanted->steps, got->steps);
    for (size_t i = 0; i < wanted->steps; i++) {
        assert_true(fabs(wanted->loss[i] / got->loss[i] - 1) < most);
    }
    assert_true(
        distance(wanted->gradients, got->gradients, wanted->parameter_count) <
        (sizeof(real) == 8 ? most : 20 * most));
    /* Embedding and head are one tensor, wherever their ranks are. */
    assert_non_null(got->head_copy);
    assert_memory_equal(got->head_copy, got->parameters,
                        got->head_elems * sizeof(real));
}

static void test_tied_embeddings_are_summed_and_stay_equal(void **state)
{
    (void)state;
    const layout layouts[] = {{2, {PIPE(2), SCHEDULE(1f1b), SMALL}},
                              {2, {PIPE(2), SCHEDULE(zbv), SMALL}},
                              {4, {PIPE(2), SCHEDULE(zb_h2), SMALL}},
                              {2, {PIPE(2), SCHEDULE(dualpipe), SMALL}}};
    /* Many steps of small batches. */
    const layout whole = {1, {SMALL}};
    const char *steps =
        sizeof(real) == 8 || job_is_sanitized() ? STEPS(2) : STEPS(20);
    size_t count = is_long() ? 4 : sizeof(real) == 8 ? 2 : 1;
    job_result wanted = run_good(&whole, steps, TIED);
    for (size_t i = 0; i < count; i++) {
        job_result got = run_good(&layouts[i], steps, TIED);
        check_near(&wanted, &got);
        job_result_fini(&got);
    }
    job_result_fini(&wanted);
}

/* Batches that no power of two fits: another tree, the same sums. */
static void test_uneven_batch_agrees_but_for_rounding(void **state)
{
    (void)state;
    const layout cut = {4, {PIPE(2), SCHEDULE(1f1b)}};
    const char *batch = "train.global_batch_size=48";
    job_result wanted = run_good(&single, STEPS(2), batch);
    job_result got = run_good(&cut, STEPS(2), batch);
    for (size_t i = 0; i < wanted.steps; i++) {
        assert_true(fabs(wanted.loss[i] / got.loss[i] - 1) < 1e-6);
    }
    assert_true(distance(wanted.parameters, got.parameters,
                         wanted.parameter_count) < 1e-3);
    job_result_fini(&wanted);
    job_result_fini(&got);
}

/* A list of two ranks in a file. */
static void write_list(const char *name, int microbatches)
{
    weft_schedule *schedule;
    weft_schedule_config config = {.size_bytes = sizeof(config),
                                   .name = "zb_h1",
                                   .ranks = 2,
                                   .microbatches = microbatches};
    assert_int_equal(weft_schedule_create(&config, &schedule), WEFT_OK);
    FILE *file = fopen(scratch_path(&own, name), "w");
    assert_non_null(file);
    assert_int_equal(weft_schedule_write(schedule, 0, file), WEFT_OK);
    (void)fclose(file);
    weft_schedule_destroy(schedule);
}

static void check_refused(const layout *cut, const char *part)
{
    job what = make_job(cut, STEPS(2), NULL);
    job_result result = job_run(&own, &what);
    if (result.status == WEFT_OK || !strstr(result.error, part)) {
        fail_msg("expected \"%s\", got \"%s\"", part, result.error);
    }
    job_result_fini(&result);
}

static void test_file_gives_the_schedule(void **state)
{
    (void)state;
    const layout mine = {2, {PIPE(2), "parallel.schedule=mine.csv"}};
    const layout other = {2, {PIPE(2), "parallel.schedule=other.csv"}};
    const layout none = {2, {PIPE(2), "parallel.schedule=none.csv"}};
    const layout sends = {2, {PIPE(2), "parallel.schedule=sends.csv"}};
    write_list("mine.csv", 8);
    write_list("other.csv", 6);
    scratch_text(&own, "sends.csv", "0F0,0SEND_F0\n1RECV_F0,1F0,1B0\n");
    check_layouts(&mine, 1);
    check_refused(&other, "other.csv: is for 6 micro-batches a step; the "
                          "batch sizes give each pipeline 8");
    check_refused(&none, "No such file");
    check_refused(&sends, "parallel.schedule");
}

/* Most activations of one rank at a time, in stages. */
static int count_slots(const weft_schedule *schedule)
{
    weft_verdict verdict;
    assert_int_equal(weft_schedule_check(schedule, NULL, &verdict), WEFT_OK);
    assert_true(verdict.valid);
    int most = (int)verdict.activations[0];
    weft_verdict_fini(&verdict);
    return most;
}

/* GPipe of two ranks and 8 micro-batches; all but one of rank 0's activations
 * are away, or dropped, until their backward. */
static void write_gpipe(const char *name, const char *away, const char *back)
{
    char text[2048] = "";
    size_t used = 0;
    for (int r = 0; r < 2; r++) {
        for (int i = 0; i < 16; i++) {
            bool f = i < 8;
            const char *put = f ? away : back;
            used += (size_t)snprintf(text + used, sizeof(text) - used,
                                     f ? "%d%c%d," : "", r, 'F', i % 8);
            if (put && r == 0) {
                used += (size_t)snprintf(text + used, sizeof(text) - used,
                                         "%d%s%d,", r, put, i % 8);
            }
            used += (size_t)snprintf(text + used, sizeof(text) - used,
                                     f ? "" : "%d%c%d,", r, 'B', i % 8);
        }
        used += (size_t)snprintf(text + used, sizeof(text) - used, "\n");
    }
    scratch_text(&own, name, text);
    weft_schedule *schedule = NULL;
    assert_int_equal(weft_schedule_read(text, used, 1, 0, &schedule), WEFT_OK);
    assert_int_equal(count_slots(schedule), away || back ? 1 : 8);
    weft_schedule_destroy(schedule);
}

static void test_file_may_put_activations_away(void **state)
{
    (void)state;
    const layout layouts[] = {{2, {PIPE(2), "parallel.schedule=plain.csv"}},
                              {2, {PIPE(2), "parallel.schedule=away.csv"}},
                              {2, {PIPE(2), "parallel.schedule=again.csv"}}};
    write_gpipe("plain.csv", NULL, NULL);
    write_gpipe("away.csv", "OFFLOAD", "RELOAD");
    write_gpipe("again.csv", NULL, "RECOMPUTE");
    check_layouts(layouts, 3);
}

/* As weft-sched writes it: messages, and reductions where they were put. */
static void test_file_with_messages_is_run_as_it_is(void **state)
{
    (void)state;
    const layout cut = {2, {PIPE(2), "parallel.schedule=placed.csv"}};
    weft_schedule *schedule;
    weft_schedule_config config = {.size_bytes = sizeof(config),
                                   .name = "dualpipe",
                                   .ranks = 2,
                                   .microbatches = 8};
    assert_int_equal(weft_schedule_create(&config, &schedule), WEFT_OK);
    assert_int_equal(weft_schedule_reduce(schedule, false), WEFT_OK);
    assert_int_equal(weft_schedule_lower(schedule, WEFT_LOWERING_DUALPIPE),
                     WEFT_OK);
    FILE *file = fopen(scratch_path(&own, "placed.csv"), "w");
    assert_non_null(file);
    assert_int_equal(weft_schedule_write(schedule, 0, file), WEFT_OK);
    (void)fclose(file);
    weft_schedule_destroy(schedule);
    check_layouts(&cut, 1);
}

static void test_file_that_cannot_be_trained_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *more, *error;
    } cases[] = {
        {"0F0,0F1,0B0\n1F0,1F1,1B0,1B1\n", NULL,
         "list.csv: breaks rule complete: row 1, column 2, rank 0, action 1, "
         "0F1: its backward is nowhere"},
        {"0F0,0B0,0F1,0B1\n1F0,1F1,1B1,1B0\n", NULL,
         "list.csv: breaks rule deadlock: row 1, column 2, rank 0, action 1, "
         "0B0"},
        {"0F0,0F1,0OFFLOAD0,0B0,0B1\n1F0,1F1,1B0,1B1\n", NULL,
         "list.csv: breaks rule order: row 1, column 4, rank 0, action 3, 0B0"},
        {"0F0,0F1,0B0,0B1,0OPT\n1F0,1F1,1B0,1B1,1OPT\n", NULL,
         "list.csv: row 1, column 5: 0OPT; allowed is all but"},
        {"0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
         "train.micro_batch_size=16", "but no REDUCE_GRAD"},
        {"0F0,0F1,0B0,0B1\n1F0,1F1,1B1,1B0\n", "train.deterministic=true",
         "does not hold for this list: 1B1 adds its gradients out of turn"},
        {"0F0,0F1,0RECOMPUTE0,0B0,0B1\n1F0,1F1,1B0,1B1\n",
         "checkpoint.inside=1", "does not go with a list that has OFFLOAD"}};
    for (size_t k = 0; k < sizeof(cases) / sizeof(*cases); k++) {
        const layout cut = {2,
                            {PIPE(2), "parallel.schedule=list.csv",
                             "train.global_batch_size=16",
                             "checkpoint.every=1"}};
        job what = make_job(&cut, STEPS(1), cases[k].more);
        scratch_text(&own, "list.csv", cases[k].text);
        job_result result = job_run(&own, &what);
        if (result.status != WEFT_ERR_INVALID ||
            !strstr(result.error, cases[k].error)) {
            fail_msg("expected \"%s\", got \"%s\"", cases[k].error,
                     result.error);
        }
        job_result_fini(&result);
    }
}

static void test_file_in_order_is_deterministic(void **state)
{
    (void)state;
    const layout cut = {
        2, {PIPE(2), "parallel.schedule=mine.csv", "train.deterministic=true"}};
    write_list("mine.csv", 8);
    check_layouts(&cut, 1);
}

static void test_resume_goes_on_in_any_schedule_with_the_same_bits(void **state)
{
    (void)state;
    const layout layouts[] = {{2, {PIPE(2), SCHEDULE(zb_h1)}},
                              {2, {PIPE(2), SCHEDULE(dualpipe)}}};
    const layout others[] = {{2, {PIPE(2), SCHEDULE(zbv)}},
                             {2, {PIPE(2), SCHEDULE(zb_h1)}}};
    char folder[512];
    snprintf(folder, sizeof(folder), "%.250s/ckpt", own.dir);
    check_layouts(NULL, 0);
    for (size_t i = 0; i < (is_long() ? 2 : 1); i++) {
        job half = make_job(&layouts[i], STEPS(2), "checkpoint.every=1");
        job_result saved = job_run(&own, &half);
        assert_int_equal(saved.status, WEFT_OK);
        job_result_fini(&saved);
        /* The newest goes, so that there is a way to go. */
        nftw(scratch_path(&own, "ckpt/step_00000002"), scratch_remove_one, 16,
             FTW_DEPTH | FTW_PHYS);
        for (int other = 0; other < 2; other++) {
            job rest =
                make_job(other ? &others[i] : &layouts[i], STEPS(2), NULL);
            rest.resume = folder;
            job_result got = job_run(&own, &rest);
            assert_int_equal(got.status, WEFT_OK);
            assert_int_equal(got.steps, 1);
            assert_true(got.loss[0] == reference.loss[1]);
            assert_memory_equal(got.parameters, reference.parameters,
                                got.parameter_count * sizeof(real));
            job_result_fini(&got);
        }
        nftw(folder, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
    }
}

int main(void)
{
    if (sizeof(real) == 8) {
        const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_schedule_each_has_the_bits_of_one_rank),
            cmocka_unit_test(test_tied_embeddings_are_summed_and_stay_equal),
        };
        return cmocka_run_group_tests(tests, open_scratch, close_scratch);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schedule_each_has_the_bits_of_one_rank),
        cmocka_unit_test(test_layers_that_do_not_divide_keep_the_bits),
        cmocka_unit_test(test_data_parallel_beside_pipelines_keeps_the_bits),
        cmocka_unit_test(test_parameters_come_behind_forwards_of_stages_before),
        cmocka_unit_test(test_gradients_go_early_where_the_list_allows_it),
        cmocka_unit_test(test_communicators_say_whose_ranks_they_number),
        cmocka_unit_test(test_tied_embeddings_are_summed_and_stay_equal),
        cmocka_unit_test(test_uneven_batch_agrees_but_for_rounding),
        cmocka_unit_test(test_file_gives_the_schedule),
        cmocka_unit_test(test_file_may_put_activations_away),
        cmocka_unit_test(test_file_with_messages_is_run_as_it_is),
        cmocka_unit_test(test_file_that_cannot_be_trained_is_refused),
        cmocka_unit_test(test_file_in_order_is_deterministic),
        cmocka_unit_test(
            test_resume_goes_on_in_any_schedule_with_the_same_bits),
    };
    return cmocka_run_group_tests(tests, open_scratch, close_scratch);
}
