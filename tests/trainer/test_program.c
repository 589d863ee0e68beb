/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     a program's plan keeps apart what lives at once and wastes little;
 *          wrong programs are refused by name; the decoder's programs pass, in
 *          no more memory than the same values have laid out by hand.
 * Method   random programs from a printed seed, every pair of values compared;
 *          one program broken in each way that the checker knows.
 */
#include "trainer/model/model_blocks.h"
#include "trainer/model/stage.h"
#include "trainer/program/program_check.h"
#include "trainer/program/program_plan.h"
#include "trainer/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { PROGRAMS = 300, VALUES = 60, NODES = 30, ROWS_MOST = 200 };

static weft_status nothing(const wefti_node_args *args)
{
    (void)args;
    return WEFT_OK;
}

/* ---- the plan -------------------------------------------------------------
 */

static size_t below(wefti_random *random, size_t count)
{
    return (size_t)(wefti_random_next(random) % count);
}

/* W uses what F or I of the node have used: it comes after them in B too. */
static void append_random(wefti_program *program, wefti_random *random)
{
    for (size_t i = 0; i < VALUES; i++) {
        if (i % 4 == 0) {
            wefti_program_begin_block(program, "block", i / 4);
        }
        size_t width = below(random, 2) ? 32 : 1 + below(random, 90);
        (void)wefti_program_add_value(program, "value", width,
                                      below(random, 2));
    }
    for (size_t i = 0; i < NODES; i++) {
        wefti_node node = {.label = "node", .by_rows = below(random, 2)};
        if (i % 5 == 0) {
            wefti_program_begin_block(program, "block", i);
        }
        for (size_t call = 0; call < WEFTI_CALLS; call++) {
            node.calls[call] = below(random, 4) ? nothing : NULL;
        }
        if (below(random, 6) == 0) {
            node.kind = WEFTI_NODE_AWAIT;
            node.operation = wefti_program_add_operation(program);
        }
        node.operand_count = 1 + below(random, 4);
        for (size_t k = 0; k < node.operand_count; k++) {
            unsigned use = (unsigned)below(random, WEFTI_W_READS);
            bool before = (node.calls[WEFTI_CALL_FORWARD] && use & 3) ||
                          (node.calls[WEFTI_CALL_INPUTS] && use & 12);
            use |= before ? (unsigned)below(random, 4) * WEFTI_W_READS : 0;
            node.operands[k] = (wefti_operand){
                below(random, VALUES),
                use | (k && below(random, 3) == 0 ? WEFTI_IN_PLACE : 0)};
        }
        wefti_program_add_node(program, &node);
    }
}

/* Where a value is used, in one pass after the other: F I W, or F B. */
static void find_life(const wefti_program *program, size_t value,
                      const size_t *orders, size_t count, wefti_life *life_out)
{
    size_t at = 0;
    bool used = false;
    for (size_t i = 0; i < count; i++) {
        const wefti_order *order = &program->orders[orders[i]];
        for (size_t s = 0; s < order->count; s++, at++) {
            const wefti_program_step *step = &order->steps[s];
            for (size_t n = step->first; n < step->end; n++) {
                const wefti_node *node = &program->nodes[n];
                for (size_t k = 0; k < node->operand_count; k++) {
                    if (node->operands[k].value == value &&
                        node->calls[step->call] &&
                        (wefti_node_reads(node, k, step->call) ||
                         wefti_node_writes(node, k, step->call))) {
                        life_out->first = used ? life_out->first : at;
                        life_out->last = at;
                        used = true;
                    }
                }
            }
        }
    }
    assert_true(used);
}

/* Whether a begins where b ends, in b's place, as a node allows. */
static bool takes_over(const wefti_program *program, size_t a, size_t b)
{
    for (size_t n = 0; n < program->node_count; n++) {
        const wefti_node *node = &program->nodes[n];
        for (size_t k = 1; k < node->operand_count; k++) {
            if (node->operands[k].value == a &&
                node->operands[k - 1].value == b &&
                node->operands[k].use & WEFTI_IN_PLACE &&
                program->values[a].start_elems ==
                    program->values[b].start_elems &&
                program->values[a].elems == program->values[b].elems) {
                return true;
            }
        }
    }
    return false;
}

static void check_pair(const wefti_program *program, size_t a, size_t b)
{
    static const size_t halves[] = {0, 1, 2}, whole[] = {0, 3};
    const wefti_value *one = &program->values[a], *other = &program->values[b];
    if (!one->used || !other->used || one->region != other->region ||
        one->start_elems >= other->start_elems + other->elems ||
        other->start_elems >= one->start_elems + one->elems) {
        return;
    }
    for (int i = 0; i < 2; i++) {
        wefti_life mine, its;
        const size_t *orders = i ? whole : halves;
        find_life(program, a, orders, i ? 2 : 3, &mine);
        find_life(program, b, orders, i ? 2 : 3, &its);
        if (mine.last < its.first || its.last < mine.first) {
            continue;
        }
        assert_true((mine.first == its.last && takes_over(program, a, b)) ||
                    (its.first == mine.last && takes_over(program, b, a)));
    }
}

static void check_places(const wefti_program *program)
{
    for (size_t a = 0; a < program->value_count; a++) {
        const wefti_value *value = &program->values[a];
        size_t rows = value->by_row ? program->rows_most : 1;
        if (!value->used) {
            continue;
        }
        const size_t chunk = wefti_program_chunk_rows(program);
        if (value->of_chunk && rows > chunk) {
            rows = chunk;
        }
        assert_true(value->elems >=
                    (rows - 1 + value->rows) / value->rows * value->width);
        assert_true(value->start_elems + value->elems <=
                    program->elems[value->region]);
        for (size_t b = 0; b < a; b++) {
            check_pair(program, a, b);
        }
    }
}

static void test_plan_live_values_never_overlap(void **state)
{
    (void)state;
    uint64_t seed = (uint64_t)time(NULL);
    print_message("seed %llu\n", (unsigned long long)seed);
    wefti_random random = wefti_random_make(seed, 1);
    for (size_t i = 0; i < PROGRAMS; i++) {
        wefti_program program = {0};
        append_random(&program, &random);
        program.chunk_rows = below(&random, ROWS_MOST);
        assert_int_equal(
            wefti_program_plan(&program, 1 + below(&random, ROWS_MOST)),
            WEFT_OK);
        check_places(&program);
        wefti_program_fini(&program);
    }
}

static size_t count_taken_over(const wefti_program *program)
{
    size_t count = 0;
    for (size_t i = 0; i < program->value_count; i++) {
        count += program->values[i].is_taken_over;
    }
    return count;
}

/* ---- the decoder ----------------------------------------------------------
 */

static const wefti_model_shape small = {.layers = 3,
                                        .hidden = 32,
                                        .heads = 4,
                                        .kv_heads = 2,
                                        .head_dim = 8,
                                        .ffn = 80,
                                        .vocab = 50,
                                        .seq = 64,
                                        .rope_theta = 10000.0};
enum { TOKENS = 3 * 64 };

static void plan_stage(wefti_program *program, const wefti_parameters *plan,
                       size_t first, size_t end)
{
    size_t logits = 0;
    *program = (wefti_program){0};
    wefti_stage_append(program, plan, first, end, &logits);
    assert_int_equal(wefti_program_plan(program, TOKENS), WEFT_OK);
}

static void plan_model(wefti_parameters *plan, bool tied)
{
    wefti_model_shape shape = small;
    shape.tied = tied;
    assert_int_equal(wefti_parameters_plan(&shape, 4096, 1, plan), WEFT_OK);
}

static void test_decoder_every_stage_is_right(void **state)
{
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        wefti_parameters plan;
        plan_model(&plan, tied);
        for (size_t first = 0; first < small.layers; first++) {
            for (size_t end = first + 1; end <= small.layers; end++) {
                wefti_program program;
                plan_stage(&program, &plan, first, end);
                assert_int_equal(wefti_program_check(&program), WEFT_OK);
                check_places(&program);
                wefti_program_fini(&program);
            }
        }
        wefti_parameters_fini(&plan);
    }
}

/*
 * What the forward leaves for the backward, the last residual's gradient and
 * those of the norms are all there is in a slot: what else the backward leaves
 * takes the place of what it has used up.
 */
static void test_decoder_memory_is_that_of_the_forward(void **state)
{
    (void)state;
    const size_t qkv = (4 + 2 * 2) * 8;
    const size_t layer =
        4 * 32 + 2 * 1 + qkv + 32 + 4 + 2 * 80 + 80; /* of a token */
    wefti_parameters plan;
    wefti_program program;
    plan_model(&plan, false);
    plan_stage(&program, &plan, 0, small.layers);
    assert_true(program.elems[WEFTI_REGION_SLOT] <=
                TOKENS * (small.layers * layer + 2 * 32 + 1 + 50) +
                    (2 * small.layers + 1) * 32);
    assert_int_equal(count_taken_over(&program), 2 * small.layers);
    assert_int_equal(program.elems[WEFTI_REGION_FORWARD], 0);
    assert_int_equal(program.elems[WEFTI_REGION_WEIGHTS], 0);
    assert_true(program.elems[WEFTI_REGION_INPUTS] <= TOKENS * 2 * 32);
    wefti_program_fini(&program);
    plan_stage(&program, &plan, 1, 2);
    assert_true(program.elems[WEFTI_REGION_SLOT] <=
                TOKENS * (layer + 32) + 2 * 32);
    wefti_program_fini(&program);
    wefti_parameters_fini(&plan);
}

/* ---- wrong programs -------------------------------------------------------
 */

enum { X, Y, WRONG_NODES = 4 };

/* posts --> compute --> awaits: X is written, then read. */
static void make_small(wefti_program *program, wefti_node *nodes)
{
    *program = (wefti_program){0};
    wefti_program_begin_block(program, "block", 0);
    (void)wefti_program_add_value(program, "x", 3, true);
    (void)wefti_program_add_value(program, "y", 3, true);
    size_t operation = wefti_program_add_operation(program);
    nodes[0] = (wefti_node){.label = "make",
                            .calls = {nothing, nothing},
                            .operands = {{X, WEFTI_F_WRITES | WEFTI_I_READS}},
                            .operand_count = 1};
    nodes[1] = (wefti_node){.kind = WEFTI_NODE_POST,
                            .class_id = WEFT_CLASS_TP,
                            .label = "post",
                            .calls = {nothing, nothing},
                            .operation = operation,
                            .operands = {{X, WEFTI_F_READS}},
                            .operand_count = 1};
    nodes[2] = (wefti_node){.kind = WEFTI_NODE_AWAIT,
                            .class_id = WEFT_CLASS_TP,
                            .label = "await",
                            .calls = {nothing, nothing},
                            .operation = operation,
                            .operands = {{Y, WEFTI_F_WRITES}},
                            .operand_count = 1};
    nodes[3] = (wefti_node){.label = "use",
                            .calls = {nothing, nothing},
                            .operands = {{Y, WEFTI_F_READS}},
                            .operand_count = 1};
}

static weft_status plan_nodes(wefti_program *program, const wefti_node *nodes,
                              const size_t *order, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        wefti_program_add_node(program, &nodes[order[i]]);
    }
    assert_int_equal(wefti_program_plan(program, 10), WEFT_OK);
    return wefti_program_check(program);
}

typedef void break_fn(wefti_node *nodes);

static void expect(break_fn *breaks, const size_t *order, size_t count,
                   const char *text)
{
    wefti_program program;
    wefti_node nodes[WRONG_NODES];
    make_small(&program, nodes);
    if (breaks) {
        breaks(nodes);
    }
    weft_status status = plan_nodes(&program, nodes, order, count);
    if (text) {
        assert_int_equal(status, WEFT_ERR_INVALID);
        assert_non_null(strstr(weft_error_text(), text));
    } else {
        assert_int_equal(status, WEFT_OK);
    }
    wefti_program_fini(&program);
}

static void read_early(wefti_node *nodes)
{
    nodes[0].operands[0].use = WEFTI_F_READS;
}

static void other_class(wefti_node *nodes)
{
    nodes[2].class_id = WEFT_CLASS_CP;
}

static void no_operation(wefti_node *nodes)
{
    nodes[1].operation = 0;
}

static void forward_post_only(wefti_node *nodes)
{
    nodes[1].calls[WEFTI_CALL_INPUTS] = NULL;
}

static void test_check_refuses_each_wrong_program_by_name(void **state)
{
    (void)state;
    const size_t right[] = {0, 1, 2, 3}, swapped[] = {0, 2, 1, 3};
    const size_t unposted[] = {0, 2, 3}, unawaited[] = {0, 1};
    const size_t twice[] = {0, 1, 1, 2, 3};
    expect(NULL, right, 4, NULL);
    expect(read_early, right, 4, "block.0.make in F: reads before");
    expect(NULL, swapped, 4, "block.0.await in F: awaits what is not posted");
    expect(NULL, unposted, 3, "block.0.await in F: awaits what is not posted");
    expect(NULL, unawaited, 2, "block.0.post in F: is not awaited");
    expect(NULL, twice, 5, "block.0.post in F: posts, before it is awaited");
    expect(other_class, right, 4,
           "block.0.await in F: awaits in another class");
    expect(no_operation, right, 4, "block.0.post in F: has no operation");
    expect(forward_post_only, right, 4, "block.0.await in I: is not awaited");
}

/* A value that is read after its place has gone to another. */
static void test_check_refuses_a_value_read_after_its_life(void **state)
{
    (void)state;
    const size_t right[] = {0, 1, 2, 3};
    wefti_program program;
    wefti_node nodes[WRONG_NODES];
    make_small(&program, nodes);
    assert_int_equal(plan_nodes(&program, nodes, right, 4), WEFT_OK);
    program.values[Y].region = program.values[X].region;
    program.values[Y].start_elems = program.values[X].start_elems;
    assert_int_equal(wefti_program_check(&program), WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_text(),
                           "block.0.make in I: reads before it is "
                           "written, or after its life, x"));
    wefti_program_fini(&program);
}

/* ---- the run ---------------------------------------------------------------
 */

enum { RUNS_MOST = 8 };

typedef struct run_log {
    size_t rows[RUNS_MOST], count;
} run_log;

static weft_status note_run(const wefti_node_args *args)
{
    run_log *log = args->pass->hooks->context;
    assert_true(log->count < RUNS_MOST);
    log->rows[log->count++] = args->rows;
    return WEFT_OK;
}

/* Rows of each call of a node by rows, on a batch of rows. */
static run_log run_by_rows(size_t chunk_rows, size_t rows)
{
    run_log log = {.count = 0};
    wefti_program program = {.chunk_rows = chunk_rows};
    wefti_micro_batch batch = {.sequences = 1, .length = rows};
    const wefti_model_hooks hooks = {.context = &log};
    const wefti_program_pass pass = {
        .program = &program, .batch = &batch, .hooks = &hooks};
    wefti_program_begin_block(&program, "block", 0);
    wefti_program_add_node(
        &program,
        &(wefti_node){.label = "note", .calls = {note_run}, .by_rows = true});
    assert_int_equal(wefti_program_plan(&program, rows), WEFT_OK);
    assert_int_equal(
        wefti_program_run(&pass, &program.orders[WEFTI_CALL_FORWARD]), WEFT_OK);
    wefti_program_fini(&program);
    return log;
}

static void test_run_by_rows_takes_chunks_of_the_program(void **state)
{
    (void)state;
    run_log log = run_by_rows(0, 300);
    assert_int_equal(log.count, 3);
    assert_int_equal(log.rows[0], WEFTI_PROGRAM_CHUNK_ROWS);
    assert_int_equal(log.rows[2], 300 - 2 * WEFTI_PROGRAM_CHUNK_ROWS);
    log = run_by_rows(WEFTI_LAYER_CHUNK_ROWS_OF_GPU, 300);
    assert_int_equal(log.count, 1);
    assert_int_equal(log.rows[0], 300);
    log = run_by_rows(200, 300);
    assert_int_equal(log.count, 2);
    assert_int_equal(log.rows[0], 200);
    assert_int_equal(log.rows[1], 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan_live_values_never_overlap),
        cmocka_unit_test(test_decoder_every_stage_is_right),
        cmocka_unit_test(test_decoder_memory_is_that_of_the_forward),
        cmocka_unit_test(test_check_refuses_each_wrong_program_by_name),
        cmocka_unit_test(test_check_refuses_a_value_read_after_its_life),
        cmocka_unit_test(test_run_by_rows_takes_chunks_of_the_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
