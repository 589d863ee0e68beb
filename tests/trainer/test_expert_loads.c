/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     What a run says of its experts' loads is so: tokens of all steps and
 *          ranks are counted once, where each expert would be is
 * weft_moe_place's answer, and both ratios are those of the sums of ranks.
 * Method   Loads of which the answer is known; those of a job of two ranks in
 *          its --json, where each token goes to as many experts, and ratios are
 *          computed again from the tokens and slots that are printed.
 */
#include "tests/trainer/job.h"
#include "trainer/report/expert_loads.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>
#include <cmocka.h>

static scratch own;

static int open_scratch(void **state)
{
    (void)state;
    scratch_open(&own);
    job_prepare(&own, 20260103);
    return 0;
}

static int close_scratch(void **state)
{
    (void)state;
    scratch_close(&own);
    return 0;
}

static weft_moe_place_config place_of(int experts, int ranks, int groups,
                                      int hosts)
{
    return (weft_moe_place_config){.size_bytes = sizeof(weft_moe_place_config),
                                   .experts = experts,
                                   .ranks = ranks,
                                   .groups = groups,
                                   .hosts = hosts};
}

/* Two steps; the second layer is the uneven one. */
static const double first[] = {1, 1, 1, 1, 9, 9, 1, 1};
static const double second[] = {1, 1, 1, 1, 1, 1, 1, 1};

static void open_loads(wefti_expert_loads *loads, int groups, int hosts)
{
    const weft_moe_place_config place = place_of(4, 2, groups, hosts);
    assert_int_equal(wefti_expert_loads_init(loads, 2, &place), WEFT_OK);
    wefti_expert_loads_add(loads, first);
    wefti_expert_loads_add(loads, second);
    assert_int_equal(wefti_expert_loads_place(loads), WEFT_OK);
}

static void
test_expert_loads_are_evened_out_where_that_is_possible(void **state)
{
    static const int32_t slots[] = {0, 2, 1, 3};
    wefti_expert_loads loads;
    char text[160] = "";
    (void)state;
    open_loads(&loads, 1, 1);
    const wefti_expert_ratio even = wefti_expert_loads_ratio(&loads, 0);
    const wefti_expert_ratio uneven = wefti_expert_loads_ratio(&loads, 1);
    assert_true(even.now == 1 && even.placed == 1);
    assert_true(uneven.now == 20.0 / 12 && uneven.placed == 1);
    assert_memory_equal(loads.slots + 4, slots, sizeof(slots));
    FILE *file = fmemopen(text, sizeof(text) - 1, "w");
    assert_non_null(file);
    wefti_expert_loads_print(&loads, file);
    assert_int_equal(fclose(file), 0);
    assert_string_equal(text,
                        "tokens to experts     1.67 times the mean on the "
                        "busiest rank, in layer 1; 1.00 if experts were "
                        "placed for these loads\n");
    wefti_expert_loads_fini(&loads);
}

/* What is routed to together stays on a host. */
static void test_expert_loads_keep_groups_on_a_host(void **state)
{
    wefti_expert_loads loads;
    (void)state;
    open_loads(&loads, 2, 2);
    const wefti_expert_ratio uneven = wefti_expert_loads_ratio(&loads, 1);
    assert_true(uneven.now == 20.0 / 12 && uneven.placed == 20.0 / 12);
    wefti_expert_loads_fini(&loads);
}

/* Without any, nothing is said. */
static void test_expert_loads_of_none_are_nothing(void **state)
{
    wefti_expert_loads none = {0};
    char text[16] = "";
    (void)state;
    wefti_expert_loads_add(&none, NULL);
    assert_int_equal(wefti_expert_loads_place(&none), WEFT_OK);
    FILE *file = fmemopen(text, sizeof(text) - 1, "w");
    assert_non_null(file);
    wefti_expert_loads_print(&none, file);
    assert_int_equal(fclose(file), 0);
    assert_string_equal(text, "");
    wefti_expert_loads_fini(&none);
}

/* ---- of a job -------------------------------------------------------------
 */

enum { STEPS = 4, GLOBAL = 16, EXPERTS = 8, SLOTS = 2, RANKS = 2 };

static cJSON *run(int nranks)
{
    const char *path = scratch_path(&own, "summary.json");
    const job what = {
        .nranks = nranks,
        .json = path,
        .settings = {"model.experts=8", "model.experts_per_token=2",
                     "model.ffn_size=64", "model.seq_length=16",
                     "train.steps=4", "train.global_batch_size=16",
                     nranks == 1 ? NULL
                                 : "parallel.expert_model_parallel_size=2"}};
    job_result result = job_run_well(&own, &what);
    job_result_fini(&result);
    char text[16384];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t bytes = fread(text, 1, sizeof(text) - 1, file);
    assert_int_equal(fclose(file), 0);
    text[bytes] = 0;
    cJSON *summary = cJSON_Parse(text);
    assert_non_null(summary);
    return summary;
}

static double number(const cJSON *object, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(object, name)->valuedouble;
}

static double item(const cJSON *object, const char *name, int index)
{
    return cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(object, name),
                              index)
        ->valuedouble;
}

/* The busiest rank's sum over the mean. */
static double ratio_of(const cJSON *layer, bool placed)
{
    double most = 0, all = 0;
    for (int rank = 0; rank < RANKS; rank++) {
        double sum = 0;
        for (int i = 0; i < EXPERTS / RANKS; i++) {
            const int slot = rank * (EXPERTS / RANKS) + i;
            const int expert = placed ? (int)item(layer, "slots", slot) : slot;
            sum += item(layer, "tokens", expert);
        }
        most = fmax(most, sum);
        all += sum;
    }
    assert_true(all == (double)STEPS * GLOBAL * 16 * SLOTS);
    return most / (all / RANKS);
}

static void test_expert_loads_of_a_job_are_in_its_summary(void **state)
{
    (void)state;
    cJSON *summary = run(RANKS);
    const cJSON *said =
        cJSON_GetObjectItemCaseSensitive(summary, "expert_placement");
    assert_true(number(said, "steps") == STEPS);
    assert_true(number(said, "ranks") == RANKS);
    const cJSON *layers = cJSON_GetObjectItemCaseSensitive(said, "layers");
    assert_true(cJSON_GetArraySize(layers) > 0);
    for (int i = 0; i < cJSON_GetArraySize(layers); i++) {
        const cJSON *layer = cJSON_GetArrayItem(layers, i);
        bool seen[EXPERTS] = {false};
        assert_true(number(layer, "layer") == i);
        for (int slot = 0; slot < EXPERTS; slot++) {
            const int expert = (int)item(layer, "slots", slot);
            assert_in_range(expert, 0, EXPERTS - 1);
            assert_false(seen[expert]);
            seen[expert] = true;
        }
        assert_true(fabs(number(layer, "ratio") - ratio_of(layer, false)) <
                    1e-12);
        assert_true(fabs(number(layer, "ratio_placed") -
                         ratio_of(layer, true)) < 1e-12);
    }
    cJSON_Delete(summary);
}

static void test_expert_loads_of_one_rank_are_not_placed(void **state)
{
    (void)state;
    cJSON *summary = run(1);
    assert_true(cJSON_IsNull(
        cJSON_GetObjectItemCaseSensitive(summary, "expert_placement")));
    cJSON_Delete(summary);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            test_expert_loads_are_evened_out_where_that_is_possible),
        cmocka_unit_test(test_expert_loads_keep_groups_on_a_host),
        cmocka_unit_test(test_expert_loads_of_none_are_nothing),
        cmocka_unit_test(test_expert_loads_of_a_job_are_in_its_summary),
        cmocka_unit_test(test_expert_loads_of_one_rank_are_not_placed),
    };
    return cmocka_run_group_tests(tests, open_scratch, close_scratch);
}
