/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     activations that are computed again have the bits of those that were
 *          kept: whatever recompute names, with every kind of list, with halves
 *          of the backward apart, together and in pairs; they take less memory,
 *          and programs of nodes that cannot run again keep their values.
 * Method   jobs whose ranks are threads, compared bit by bit with one that
 * keeps all; under a sanitizer each layout with half of the levels, each level
 * with half of the layouts; a program of a few nodes that is planned by hand.
 */
#include "tests/seed.h"
#include "tests/trainer/job.h"
#include "trainer/program/program_check.h"
#include "trainer/program/program_plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static scratch own;

static int open_scratch(void **state)
{
    (void)state;
    scratch_open(&own);
    job_prepare(&own, random_seed());
    return 0;
}

static int close_scratch(void **state)
{
    (void)state;
    scratch_close(&own);
    return 0;
}

/* ---- jobs -----------------------------------------------------------------
 */

typedef struct layout {
    int nranks;
    const char *settings[6];
} layout;

#define PIPE           "parallel.pipeline_model_parallel_size=2"
#define SCHEDULE(name) "parallel.schedule=" #name

/* Micro-batches of 136 tokens: two chunks of rows. */
static job_result run(const layout *cut, const char *memory)
{
    job what = {.nranks = cut->nranks,
                .settings = {"model.layers=4", "model.seq_length=17",
                             "train.micro_batch_size=8",
                             "train.global_batch_size=64", "train.steps=2",
                             "train.validate_every=2", memory}};
    for (size_t i = 0; i < 6; i++) {
        what.settings[7 + i] = cut->settings[i];
    }
    job_result result = job_run(&own, &what);
    if (result.status != WEFT_OK) {
        fail_msg("%s: %s", memory, result.error);
    }
    return result;
}

static void check_same(const job_result *a, const job_result *b)
{
    const size_t bytes = a->parameter_count * sizeof(real);
    assert_int_equal(a->steps, b->steps);
    for (size_t i = 0; i < a->steps; i++) {
        assert_true(a->loss[i] == b->loss[i]);
        assert_true(a->grad_norm[i] == b->grad_norm[i]);
    }
    assert_true(a->val_loss == b->val_loss);
    assert_int_equal(a->parameter_count, b->parameter_count);
    assert_memory_equal(a->parameters, b->parameters, bytes);
    assert_memory_equal(a->gradients, b->gradients, bytes);
}

static bool is_left_out(size_t cut, size_t level)
{
    return job_is_sanitized() && (cut + level) % 2 != 0;
}

static void test_recompute_has_the_bits_of_what_is_kept(void **state)
{
    (void)state;
    static const layout layouts[] = {
        {1, {NULL}},
        {2, {PIPE, SCHEDULE(zb_h1)}},
        {2,
         {PIPE, SCHEDULE(dualpipev),
          "parallel.virtual_pipeline_model_parallel_size=2"}},
        {2, {PIPE, SCHEDULE(1f1b)}},
        {2, {PIPE, SCHEDULE(zbv)}},
        {4, {PIPE, SCHEDULE(dualpipe)}}};
    static const char *const levels[] = {
        "memory.recompute=full", "memory.recompute=selective",
        "memory.recompute=norms", "memory.release_activations=false"};
    const size_t count = job_is_slow() ? 3 : 6;
    job_result wanted = run(&layouts[0], "memory.recompute=none");
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < 4; k++) {
            if (is_left_out(i, k)) {
                continue;
            }
            job_result got = run(&layouts[i], levels[k]);
            check_same(&wanted, &got);
            assert_true(got.peaks_as_planned);
            job_result_fini(&got);
        }
    }
    job_result_fini(&wanted);
}

/* What ranks exchange inside of a block they exchange again. */
static void test_recompute_beside_exchanges_has_the_same_bits(void **state)
{
    (void)state;
    static const layout layouts[] = {
        {2, {"model.seq_length=8", "parallel.tensor_model_parallel_size=2"}},
        {4,
         {"model.seq_length=8", PIPE, SCHEDULE(dualpipev),
          "parallel.virtual_pipeline_model_parallel_size=2",
          "parallel.tensor_model_parallel_size=2",
          "parallel.sequence_parallel=true"}},
        {4,
         {"model.seq_length=8", PIPE, SCHEDULE(zb_h1), "model.dtype=bf16",
          "parallel.tensor_model_parallel_size=2",
          "parallel.sequence_parallel=true"}},
        {2, {"model.seq_length=8", "parallel.context_parallel_size=2"}},
        {2,
         {"model.seq_length=8", "parallel.context_parallel_size=2",
          "model.dtype=bf16"}},
        {2,
         {"model.seq_length=8", "parallel.context_parallel_size=2",
          "parallel.context_parallel=ulysses"}},
        {1, {"model.seq_length=8", "model.experts=4"}},
        {2,
         {"model.seq_length=8", "model.experts=4", "model.shared_experts=1",
          "parallel.expert_model_parallel_size=2", "model.dtype=bf16"}},
        {4,
         {"model.seq_length=8", "model.experts=4", PIPE, SCHEDULE(zbv),
          "parallel.expert_model_parallel_size=2"}}};
    static const char *const levels[] = {"memory.recompute=full",
                                         "memory.recompute=selective",
                                         "memory.recompute=norms"};
    const size_t step = job_is_slow() ? 3 : 1; /* one of each kind */
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i += step) {
        job_result wanted = run(&layouts[i], "memory.recompute=none");
        for (size_t k = 0; k < 3; k++) {
            if (is_left_out(i, k)) {
                continue;
            }
            job_result got = run(&layouts[i], levels[k]);
            check_same(&wanted, &got);
            assert_true(got.peaks_as_planned);
            job_result_fini(&got);
        }
        job_result_fini(&wanted);
    }
}

/* ---- programs -------------------------------------------------------------
 */

static weft_status nothing(const wefti_node_args *args)
{
    (void)args;
    return WEFT_OK;
}

enum { IN, MIDDLE, OUT, VALUES };

/*
 *   in -> cheap -> middle -> product -> out -> change (out in place)
 *
 * W of product reads middle; I of change reads out.
 */
static void append(wefti_program *program, size_t values[VALUES])
{
    wefti_program_begin_block(program, "block", 0);
    values[IN] = wefti_program_add_value(program, "in", 8, true);
    values[MIDDLE] = wefti_program_add_value(program, "middle", 16, true);
    values[OUT] = wefti_program_add_value(program, "out", 32, true);
    const wefti_node nodes[] = {
        {.label = "source",
         .kind = WEFTI_NODE_AWAIT,
         .class_id = WEFT_CLASS_PP,
         .calls = {nothing},
         .operands = {{values[IN], WEFTI_F_WRITES}},
         .operand_count = 1},
        {.label = "cheap",
         .calls = {nothing},
         .effort = WEFTI_EFFORT_ELEMENTS,
         .operands = {{values[IN], WEFTI_F_READS},
                      {values[MIDDLE], WEFTI_F_WRITES}},
         .operand_count = 2},
        {.label = "product",
         .calls = {nothing, nothing, nothing},
         .operands = {{values[MIDDLE], WEFTI_F_READS | WEFTI_W_READS},
                      {values[OUT], WEFTI_F_WRITES}},
         .operand_count = 2},
        {.label = "change",
         .calls = {nothing, nothing},
         .effort = WEFTI_EFFORT_ELEMENTS,
         .operands = {{values[OUT],
                       WEFTI_F_READS | WEFTI_F_WRITES | WEFTI_I_READS}},
         .operand_count = 1}};
    for (size_t i = 0; i < sizeof(nodes) / sizeof(*nodes); i++) {
        wefti_program_add_node(program, &nodes[i]);
    }
}

/* Which nodes run again in I and in W: their first letters. */
static void check_again(const wefti_program *program, wefti_call call,
                        const char *wanted)
{
    char got[8] = "";
    for (size_t i = program->node_count; i-- > 0;) {
        const wefti_node *node = &program->nodes[i];
        if (node->again && node->calls[call]) {
            strncat(got, node->label, 1);
        }
    }
    assert_string_equal(got, wanted);
}

static void test_program_only_what_can_is_made_again(void **state)
{
    (void)state;
    static const struct {
        wefti_recompute recompute;
        bool together;
        const char *in_i, *in_w;
        bool keeps_out;
    } cases[] = {{WEFTI_RECOMPUTE_NORMS, true, "", "", true},
                 {WEFTI_RECOMPUTE_SELECTIVE, true, "", "c", true},
                 {WEFTI_RECOMPUTE_SELECTIVE, false, "", "c", true},
                 {WEFTI_RECOMPUTE_FULL, true, "cpc", "", false},
                 {WEFTI_RECOMPUTE_FULL, false, "cpc", "c", false}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        wefti_program program = {.recompute = cases[i].recompute,
                                 .together = cases[i].together};
        size_t values[VALUES];
        append(&program, values);
        assert_int_equal(wefti_program_plan(&program, 100), WEFT_OK);
        assert_int_equal(wefti_program_check(&program), WEFT_OK);
        check_again(&program, WEFTI_CALL_INPUTS, cases[i].in_i);
        check_again(&program, WEFTI_CALL_WEIGHTS, cases[i].in_w);
        assert_int_equal(program.values[values[OUT]].region ==
                             WEFTI_REGION_SLOT,
                         cases[i].keeps_out);
        wefti_program_fini(&program);
    }
}

/* Others write a value between passes: it is not made again. */
static void test_program_what_others_write_is_kept(void **state)
{
    (void)state;
    wefti_program program = {.recompute = WEFTI_RECOMPUTE_FULL,
                             .together = true};
    size_t values[VALUES];
    append(&program, values);
    wefti_program_set_outside(&program, values[OUT]);
    assert_int_equal(wefti_program_plan(&program, 100), WEFT_OK);
    assert_int_equal(wefti_program_check(&program), WEFT_OK);
    check_again(&program, WEFTI_CALL_INPUTS, "");
    check_again(&program, WEFTI_CALL_WEIGHTS, "c");
    wefti_program_fini(&program);
}

/* Transfers run again as two halves, with a number of their own. */
static void test_program_transfers_run_again_whole(void **state)
{
    (void)state;
    wefti_program program = {.recompute = WEFTI_RECOMPUTE_FULL,
                             .together = true};
    wefti_program_begin_block(&program, "block", 0);
    size_t in = wefti_program_add_value(&program, "in", 8, true);
    size_t all = wefti_program_add_value(&program, "all", 8, true);
    size_t operation = wefti_program_add_operation(&program);
    wefti_program_add_node(&program,
                           &(wefti_node){.label = "source",
                                         .kind = WEFTI_NODE_AWAIT,
                                         .class_id = WEFT_CLASS_PP,
                                         .calls = {nothing},
                                         .operands = {{in, WEFTI_F_WRITES}},
                                         .operand_count = 1});
    wefti_program_add_node(&program,
                           &(wefti_node){.label = "post",
                                         .kind = WEFTI_NODE_POST,
                                         .class_id = WEFT_CLASS_TP,
                                         .operation = operation,
                                         .calls = {nothing},
                                         .operands = {{in, WEFTI_F_READS}},
                                         .operand_count = 1});
    wefti_program_add_node(
        &program,
        &(wefti_node){.label = "await",
                      .kind = WEFTI_NODE_AWAIT,
                      .class_id = WEFT_CLASS_TP,
                      .operation = operation,
                      .calls = {nothing, nothing},
                      .operands = {{all, WEFTI_F_WRITES | WEFTI_I_READS}},
                      .operand_count = 1});
    wefti_program_add_node(&program,
                           &(wefti_node){.label = "back",
                                         .kind = WEFTI_NODE_COMPUTE,
                                         .calls = {NULL, nothing},
                                         .operands = {{all, WEFTI_I_READS}},
                                         .operand_count = 1});
    assert_int_equal(wefti_program_plan(&program, 10), WEFT_OK);
    check_again(&program, WEFTI_CALL_INPUTS, "pa");
    for (size_t i = 0; i < program.node_count; i++) {
        const wefti_node *node = &program.nodes[i];
        if (node->again) {
            assert_int_equal(node->operation, operation + 1);
            assert_int_equal(wefti_node_kind_in(node, WEFTI_CALL_INPUTS),
                             node->label[0] == 'p' ? WEFTI_NODE_POST
                                                   : WEFTI_NODE_AWAIT);
        }
    }
    wefti_program_fini(&program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recompute_has_the_bits_of_what_is_kept),
        cmocka_unit_test(test_recompute_beside_exchanges_has_the_same_bits),
        cmocka_unit_test(test_program_only_what_can_is_made_again),
        cmocka_unit_test(test_program_what_others_write_is_kept),
        cmocka_unit_test(test_program_transfers_run_again_whole),
    };
    return cmocka_run_group_tests(tests, open_scratch, close_scratch);
}
