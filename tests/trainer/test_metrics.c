/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: each step is one JSON line with every field of the contract, null
 * where it does not apply, on disk as soon as it is written; and a person sees
 * progress that fits a terminal or a pipe.
 * Method: read the file back with cJSON; drive progress by a made-up clock and
 * compare its output.
 */
#include "base/check.h"
#include "base/clock.h"
#include "scratch.h"
#include "trainer/report/metrics.h"
#include "trainer/report/progress.h"
#include "trainer/report/summary.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define SECOND INT64_C(1000000000)

static const char *const fields[] = {"step",
                                     "loss",
                                     "val_loss",
                                     "val_loss_ema",
                                     "grad_norm",
                                     "lr",
                                     "tokens_per_s",
                                     "step_ms",
                                     "step_ms_max",
                                     "compute_ms",
                                     "exposed_ms",
                                     "transfer_ms",
                                     "moved_bytes",
                                     "compute_ms_max",
                                     "bubble_ms",
                                     "bubble_ms_max",
                                     "skew_ms",
                                     "idle_ms",
                                     "recompute_ms",
                                     "checkpoint_ms",
                                     "checkpoint_wait_ms",
                                     "overlap_ratio",
                                     "bubble_ratio",
                                     "wakeups",
                                     "preemptions",
                                     "progress_ms",
                                     "mfu",
                                     "memory_bytes",
                                     "dropped",
                                     "hiding_ratio",
                                     "hiding_ceiling",
                                     "rest_ms",
                                     "bare_cpu_ms",
                                     "bare_hiding_ratio",
                                     "s_C",
                                     "s_M"};
static const char *const classes[] = {"tp", "cp", "ep", "pp", "dp", "mem"};

/* What write, to which the linker sends the code under test, has seen. */
typedef struct watch {
    bool on;
    size_t room; /* bytes until the disk is full */
    int calls, ended_line;
} watch;
static watch watched;

ssize_t __real_write(int fd, const void *bytes, size_t count);
ssize_t __wrap_write(int fd, const void *bytes, size_t count);
ssize_t __wrap_write(int fd, const void *bytes, size_t count)
{
    if (!watched.on) {
        return __real_write(fd, bytes, count);
    }
    if (watched.room == 0) {
        errno = ENOSPC;
        return -1;
    }
    size_t taken = count < watched.room ? count : watched.room;
    watched.room -= taken;
    watched.calls++;
    watched.ended_line += ((const char *)bytes)[taken - 1] == '\n';
    return __real_write(fd, bytes, taken);
}

static double number(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    assert_true(cJSON_IsNumber(item));
    return item->valuedouble;
}

static void test_metrics_line_has_all_fields(void **state)
{
    (void)state;
    scratch own;
    wefti_metrics metrics;
    wefti_metrics_step step;
    char line[4096];
    scratch_open(&own);
    assert_int_equal(wefti_metrics_open(&metrics, scratch_path(&own, "m"), 0),
                     WEFT_OK);
    wefti_metrics_step_init(&step);
    assert_int_equal(wefti_metrics_write(&metrics, &step), WEFT_OK);
    step.step = 7;
    step.loss = 0.1;
    step.exposed_ms[WEFT_CLASS_DP] = 1.0 / 3;
    step.memory_bytes = 123456789;
    assert_int_equal(wefti_metrics_write(&metrics, &step), WEFT_OK);

    /* Before close: a run that is killed now has written both steps. */
    FILE *file = fopen(scratch_path(&own, "m"), "r");
    assert_non_null(file);
    for (int i = 0; i < 2; i++) {
        assert_non_null(fgets(line, sizeof(line), file));
        cJSON *object = cJSON_Parse(line);
        assert_non_null(object);
        for (size_t f = 0; f < WEFTI_COUNT_OF(fields); f++) {
            assert_true(cJSON_HasObjectItem(object, fields[f]));
        }
        const cJSON *exposed =
            cJSON_GetObjectItemCaseSensitive(object, "exposed_ms");
        assert_int_equal(cJSON_GetArraySize(exposed), 6);
        const cJSON *moved =
            cJSON_GetObjectItemCaseSensitive(object, "transfer_ms");
        assert_int_equal(cJSON_GetArraySize(moved), 6);
        for (size_t c = 0; c < WEFTI_COUNT_OF(classes); c++) {
            assert_true(cJSON_HasObjectItem(exposed, classes[c]));
            assert_true(cJSON_HasObjectItem(moved, classes[c]));
        }
        assert_true(
            cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(object, "val_loss")));
        if (i == 1) {
            assert_true(number(object, "step") == 7);
            assert_true(number(object, "loss") == 0.1);
            assert_true(number(exposed, "dp") == 1.0 / 3);
            assert_true(number(object, "memory_bytes") == 123456789);
        }
        cJSON_Delete(object);
    }
    assert_null(fgets(line, sizeof(line), file));
    fclose(file);
    assert_int_equal(wefti_metrics_close(&metrics), WEFT_OK);
    scratch_close(&own);
}

static void test_metrics_unwritable_file_is_reported(void **state)
{
    (void)state;
    wefti_metrics metrics;
    wefti_metrics_step step;
    assert_int_equal(wefti_metrics_open(&metrics, "/nowhere/at/all", 0),
                     WEFT_ERR_SYSTEM);
    assert_non_null(strstr(weft_error_text(), "--metrics /nowhere/at/all: "));
    wefti_metrics_step_init(&step);
    assert_int_equal(wefti_metrics_open(&metrics, "/dev/full", 0), WEFT_OK);
    assert_int_equal(wefti_metrics_write(&metrics, &step), WEFT_ERR_SYSTEM);
    assert_non_null(strstr(weft_error_text(), "--metrics /dev/full: "));
    weft_status status = wefti_metrics_close(&metrics);
    (void)status; /* whether closing fails once more is the system's choice */
}

static void write_steps(const char *path, uint64_t after, uint64_t count)
{
    wefti_metrics metrics;
    wefti_metrics_step step;
    wefti_metrics_step_init(&step);
    assert_int_equal(wefti_metrics_open(&metrics, path, after), WEFT_OK);
    for (uint64_t i = 1; i <= count; i++) {
        step.step = after + i;
        step.loss = (double)after;
        assert_int_equal(wefti_metrics_write(&metrics, &step), WEFT_OK);
    }
    assert_int_equal(wefti_metrics_close(&metrics), WEFT_OK);
}

/* Whether path has the steps 1 .. count, those above after written again. */
static void check_steps(const char *path, uint64_t after, uint64_t count)
{
    char line[4096];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    for (uint64_t i = 1; i <= count; i++) {
        assert_non_null(fgets(line, sizeof(line), file));
        cJSON *object = cJSON_Parse(line);
        assert_non_null(object);
        assert_true(number(object, "step") == (double)i);
        assert_true(number(object, "loss") == (i > after ? (double)after : 0));
        cJSON_Delete(object);
    }
    assert_null(fgets(line, sizeof(line), file));
    fclose(file);
}

static void test_metrics_after_a_step_keeps_the_lines_up_to_it(void **state)
{
    (void)state;
    scratch own;
    scratch_open(&own);
    const char *path = scratch_path(&own, "m");
    write_steps(path, 0, 9);
    FILE *file = fopen(path, "a"); /* killed while it wrote */
    assert_non_null(file);
    fputs("{\"step\": 6, \"lo", file);
    fclose(file);
    write_steps(path, 6, 2);
    check_steps(path, 6, 8);
    write_steps(path, 0, 3); /* begun anew */
    check_steps(path, 0, 3);
    scratch_text(&own, "other", "not a line of ours\n{\"step\": 1}\n");
    path = scratch_path(&own, "other");
    write_steps(path, 4, 0);
    check_steps(path, 0, 0);
    scratch_close(&own);
}

/* A new rank 0 goes on where the old one was killed in the middle of a line. */
static void
test_metrics_continued_after_half_a_line_has_whole_lines(void **state)
{
    (void)state;
    scratch own;
    wefti_metrics metrics;
    wefti_metrics_step step;
    scratch_open(&own);
    const char *path = scratch_path(&own, "m");
    write_steps(path, 0, 4);
    FILE *file = fopen(path, "a");
    assert_non_null(file);
    fputs("{\"step\": 5, \"loss\": 0.2", file);
    fclose(file);
    wefti_metrics_step_init(&step);
    step.step = 5;
    step.loss = 0;
    assert_int_equal(wefti_metrics_continue(&metrics, path), WEFT_OK);
    assert_int_equal(wefti_metrics_write(&metrics, &step), WEFT_OK);
    assert_int_equal(wefti_metrics_close(&metrics), WEFT_OK);
    check_steps(path, 0, 5);
    scratch_close(&own);
}

static void test_metrics_line_is_one_write(void **state)
{
    (void)state;
    scratch own;
    scratch_open(&own);
    const char *path = scratch_path(&own, "m");
    watched = (watch){.room = SIZE_MAX, .on = true};
    write_steps(path, 0, 5);
    watched.on = false;
    assert_int_equal(watched.calls, 5);
    assert_int_equal(watched.ended_line, 5);
    check_steps(path, 0, 5);
    scratch_close(&own);
}

static void test_metrics_line_on_a_full_disk_leaves_no_part(void **state)
{
    (void)state;
    scratch own;
    wefti_metrics metrics;
    wefti_metrics_step step;
    scratch_open(&own);
    const char *path = scratch_path(&own, "m");
    write_steps(path, 0, 2);
    wefti_metrics_step_init(&step);
    step.step = 3;
    assert_int_equal(wefti_metrics_continue(&metrics, path), WEFT_OK);
    watched = (watch){.room = 100, .on = true};
    assert_int_equal(wefti_metrics_write(&metrics, &step), WEFT_ERR_SYSTEM);
    watched.on = false;
    assert_non_null(strstr(weft_error_text(), "No space left"));
    assert_int_equal(wefti_metrics_close(&metrics), WEFT_OK);
    check_steps(path, 0, 2);
    scratch_close(&own);
}

static void test_summary_counts_what_the_ledger_dropped(void **state)
{
    (void)state;
    wefti_summary summary;
    wefti_metrics_step step;
    char *text = NULL;
    size_t bytes = 0;
    wefti_summary_init(&summary);
    wefti_metrics_step_init(&step);
    for (uint64_t i = 0; i < 3; i++) {
        step.dropped = i;
        wefti_summary_add(&summary, &step);
    }
    FILE *file = open_memstream(&text, &bytes);
    assert_non_null(file);
    wefti_summary_print(&summary, file);
    fclose(file);
    assert_non_null(strstr(text, "3 records: the ledger was full"));
    free(text);
}

/* The medians of the terms alone would add up to 4 ms, not to 6. */
static void test_summary_terms_are_those_of_the_median_step(void **state)
{
    (void)state;
    static const double steps[][3] = {/* compute, skew, idle */
                                      {1, 5, 0},
                                      {4, 0, 4},
                                      {2, 1, 1}};
    wefti_summary summary;
    char *text = NULL;
    size_t bytes = 0;
    wefti_summary_init(&summary);
    for (size_t i = 0; i < 3; i++) {
        wefti_metrics_step step;
        wefti_metrics_step_init(&step);
        step.compute_ms = steps[i][0];
        step.skew_ms = steps[i][1];
        step.idle_ms = steps[i][2];
        step.bubble_ms = 0;
        step.step_ms = steps[i][0] + steps[i][1] + steps[i][2];
        wefti_summary_add(&summary, &step);
    }
    FILE *file = open_memstream(&text, &bytes);
    assert_non_null(file);
    wefti_summary_print(&summary, file);
    fclose(file);
    assert_non_null(strstr(text, "6.00 ms = compute 1.00 + exposed 0.00 + "
                                 "bubble 0.00 + skew 5.00 + idle 0.00  (the "
                                 "median one of the last 3, 4.00 to 8.00 ms)"));
    free(text);
}

/* Steps 1 .. 100 at one a second; returns what was shown, to be freed. */
static char *show_steps(bool on_terminal)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    assert_non_null(file);
    wefti_progress progress;
    wefti_progress_init(&progress, file, on_terminal, 1, 100);
    for (uint64_t i = 1; i <= 100; i++) {
        wefti_metrics_step step;
        wefti_metrics_step_init(&step);
        step.step = i;
        step.loss = 2.5;
        step.tokens_per_s = 1000;
        step.overlap_ratio = i > 1 ? 0.875 : (double)NAN;
        step.val_loss = i % 50 == 0 ? 2.25 : (double)NAN;
        /* The first one is cold: it takes 50 s. */
        wefti_progress_show(&progress, &step, (int64_t)(50 + i) * SECOND);
        if (i == 60) {
            wefti_progress_note(&progress, "a note");
        }
    }
    wefti_progress_fini(&progress);
    fclose(file);
    return text;
}

static size_t count_of(const char *text, const char *part)
{
    size_t count = 0;
    for (const char *at = strstr(text, part); at != NULL;
         at = strstr(at + 1, part)) {
        count++;
    }
    return count;
}

/* How many lines of the summary say that anything is hidden, and whether H
 * stands where O does else. */
static size_t count_hidden(double hiding_ratio, double slowed, bool *has_h)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    const wefti_measure_result measured = {.hiding_ratio = hiding_ratio,
                                           .overlap_ratio = 0.97,
                                           .s_C = slowed,
                                           .cpu_share = 1,
                                           .rest.why = "none here"};
    wefti_metrics_step step;
    wefti_summary summary;
    assert_non_null(file);
    wefti_summary_init(&summary);
    wefti_metrics_step_init(&step);
    step.overlap_ratio = 0.95;
    step.cpu_share = 1;
    wefti_summary_add(&summary, &step);
    summary.nranks = 2;
    summary.measured = &measured;
    wefti_summary_print(&summary, file);
    assert_int_equal(fclose(file), 0);
    *has_h = strstr(text, "\nH   ") != NULL;
    assert_int_equal(strstr(text, "\nO   ") != NULL, !*has_h);
    size_t count = count_of(text, "hidden");
    free(text);
    return count;
}

/* A share of time under compute proves nothing where H is known, or where
 * compute is slowed by it. */
static void test_summary_says_hidden_only_as_measured(void **state)
{
    (void)state;
    bool has_h;
    assert_int_equal(count_hidden(0.95, 1.05, &has_h), 1);
    assert_true(has_h);
    assert_int_equal(count_hidden(0.95, 1.15, &has_h), 0);
    assert_true(has_h);
    assert_int_equal(count_hidden(-0.1, 1.0, &has_h), 0);
    assert_true(has_h);
    assert_int_equal(count_hidden(NAN, 1.0, &has_h), 0);
    assert_false(has_h);
}

static void test_progress_plain_lines_come_every_so_often(void **state)
{
    (void)state;
    char *text = show_steps(false);
    /* From the first step it is not known how long the others take. */
    static const char first[] =
        "step 1/100  loss 2.5000 (smoothed)  1000 tokens/s  O n/a\n";
    assert_int_equal(strncmp(text, first, sizeof(first) - 1), 0);
    assert_non_null(
        strstr(text, "\nstep 6/100  loss 2.5000 (smoothed)  1000 tokens/s  "
                     "O 88%  1m34s left\n"));
    assert_null(strstr(text, "step 5/100"));
    assert_non_null(
        strstr(text, "step 50/100  loss 2.5000 (smoothed)  validation 2.2500"
                     "  1000 tokens/s  O 88%  50s left\n"));
    assert_non_null(strstr(text, "\na note\n"));
    assert_non_null(strstr(text, "\nstep 100/100  "));
    assert_int_equal(count_of(text, "\r"), 0);
    assert_int_equal(count_of(text, "step "), 1 + 9 + 1 + 9 + 1);
    free(text);
}

static void test_progress_terminal_line_is_rewritten(void **state)
{
    (void)state;
    char *text = show_steps(true);
    assert_int_equal(count_of(text, "\rstep "), 100);
    /* Ended by two validations and the note. */
    assert_int_equal(count_of(text, "\n"), 2 + 2);
    assert_non_null(strstr(text, "left\x1b[K\na note\n\rstep 61/100"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_metrics_line_has_all_fields),
        cmocka_unit_test(test_metrics_unwritable_file_is_reported),
        cmocka_unit_test(test_metrics_after_a_step_keeps_the_lines_up_to_it),
        cmocka_unit_test(
            test_metrics_continued_after_half_a_line_has_whole_lines),
        cmocka_unit_test(test_metrics_line_is_one_write),
        cmocka_unit_test(test_metrics_line_on_a_full_disk_leaves_no_part),
        cmocka_unit_test(test_summary_counts_what_the_ledger_dropped),
        cmocka_unit_test(test_summary_terms_are_those_of_the_median_step),
        cmocka_unit_test(test_summary_says_hidden_only_as_measured),
        cmocka_unit_test(test_progress_plain_lines_come_every_so_often),
        cmocka_unit_test(test_progress_terminal_line_is_rewritten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
