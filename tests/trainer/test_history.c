/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a run's history stays within its points however long it is, and loses
 * no peak, no mean and no step; steps that were done again replace themselves.
 *
 * Method: runs of random length with random values, unknown ones among them,
 * against sums over all steps kept apart; then a run that goes back.
 */
#include "tests/seed.h"
#include "trainer/report/history.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static wefti_metrics_step make_step(uint64_t number, uint64_t *seed)
{
    wefti_metrics_step step;
    wefti_metrics_step_init(&step);
    step.step = number;
    step.loss = (double)(random_next(seed) % 1000) / 100;
    step.step_ms = 1 + (double)(random_next(seed) % 5000) / 10;
    step.compute_ms = step.step_ms / 2;
    step.exposed_ms[WEFT_CLASS_DP] = step.step_ms / 4;
    step.idle_ms = step.step_ms / 4;
    if (random_next(seed) % 7 == 0) {
        step.val_loss = (double)(random_next(seed) % 1000) / 100;
    }
    return step;
}

typedef struct total {
    double least, most, sum;
    uint64_t count;
} total;

static void take(total *t, double value)
{
    if (!isnan(value)) {
        t->least = t->count ? fmin(t->least, value) : value;
        t->most = t->count ? fmax(t->most, value) : value;
        t->sum += value;
        t->count++;
    }
}

static void compare(const wefti_history *history, wefti_history_series series,
                    const total *expected)
{
    total found = {0};
    for (size_t k = 0; k < history->count; k++) {
        const wefti_history_value *value = &history->points[k].values[series];
        if (value->count > 0) {
            double mean = value->sum / (double)value->count;
            assert_true(value->least <= mean + 1e-9);
            assert_true(mean <= value->most + 1e-9);
            found.least =
                found.count ? fmin(found.least, value->least) : value->least;
            found.most =
                found.count ? fmax(found.most, value->most) : value->most;
            found.sum += value->sum;
            found.count += value->count;
        }
    }
    assert_int_equal(found.count, expected->count);
    assert_true(found.least == expected->least);
    assert_true(found.most == expected->most);
    assert_true(fabs(found.sum - expected->sum) <= 1e-9 * expected->sum);
}

static void test_history_any_length_keeps_all(void **state)
{
    uint64_t seed = random_seed();
    (void)state;
    for (int run = 0; run < 20; run++) {
        uint64_t steps = 1 + random_next(&seed) % (run < 10 ? 700 : 20000);
        uint64_t first = random_next(&seed) % 100;
        wefti_history history;
        total loss = {0}, val = {0}, ms = {0};
        assert_int_equal(wefti_history_init(&history), WEFT_OK);
        for (uint64_t k = 0; k < steps; k++) {
            wefti_metrics_step step = make_step(first + k, &seed);
            wefti_history_add(&history, &step);
            take(&loss, step.loss);
            take(&val, step.val_loss);
            take(&ms, step.step_ms);
        }
        assert_true(history.count <= WEFTI_HISTORY_POINTS);
        assert_true(steps <= WEFTI_HISTORY_POINTS
                        ? history.stride == 1 && history.count == steps
                        : history.count >= WEFTI_HISTORY_POINTS / 2);
        compare(&history, WEFTI_HISTORY_LOSS, &loss);
        compare(&history, WEFTI_HISTORY_VAL_LOSS, &val);
        compare(&history, WEFTI_HISTORY_STEP, &ms);
        uint64_t next = first;
        for (size_t k = 0; k < history.count; k++) {
            assert_int_equal(history.points[k].first, next);
            assert_true(history.points[k].last - next < history.stride);
            next = history.points[k].last + 1;
        }
        assert_int_equal(next, first + steps);
        wefti_history_fini(&history);
    }
}

static void test_history_step_done_again_replaces(void **state)
{
    uint64_t seed = random_seed();
    wefti_history history;
    total loss = {0};
    (void)state;
    assert_int_equal(wefti_history_init(&history), WEFT_OK);
    for (uint64_t k = 1; k <= 100; k++) {
        wefti_metrics_step step = make_step(k, &seed);
        wefti_history_add(&history, &step);
        if (k <= 60) {
            take(&loss, step.loss);
        }
    }
    for (uint64_t k = 61; k <= 80; k++) {
        wefti_metrics_step step = make_step(k, &seed);
        wefti_history_add(&history, &step);
        take(&loss, step.loss);
    }
    assert_int_equal(history.count, 80);
    assert_int_equal(history.points[79].last, 80);
    compare(&history, WEFTI_HISTORY_LOSS, &loss);
    wefti_history_fini(&history);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_history_any_length_keeps_all),
        cmocka_unit_test(test_history_step_done_again_replaces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
