/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     F and B of two programs are woven as the template says, each whole
 *          and in its own order; an AWAIT that is not satisfied lets the other
 *          program run; posts of a class keep the woven order all the same.
 * Method   programs of nodes that write down their names, whose operations are
 *          satisfied after so many other nodes.
 */
#include "trainer/model/model_blocks.h"
#include "trainer/program/program_check.h"
#include "trainer/program/program_plan.h"
#include "trainer/program/weave.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { STEPS_MOST = 200, LOG_BYTES = 1024 };

/* What the nodes of a test do together; nodes point to it. */
typedef struct record {
    char log[LOG_BYTES]; /* labels, in the order of the calls */
    int computed;        /* nodes */
    int needed;          /* so many, until an AWAIT is satisfied */
    int refused;         /* AWAITs that were not */
    weft_status fails;   /* what the node "fail" returns */
} record;

static void note(const wefti_node_args *args)
{
    record *own = (record *)(uintptr_t)args->node->context;
    size_t used = strlen(own->log);
    snprintf(own->log + used, sizeof(own->log) - used, "%s ",
             args->node->label);
}

static weft_status compute(const wefti_node_args *args)
{
    record *own = (record *)(uintptr_t)args->node->context;
    note(args);
    own->computed++;
    return strcmp(args->node->label, "fail") == 0 ? own->fails : WEFT_OK;
}

static weft_status post(const wefti_node_args *args)
{
    note(args);
    return WEFT_OK;
}

static weft_status await(const wefti_node_args *args)
{
    record *own = (record *)(uintptr_t)args->node->context;
    if (own->computed < own->needed) {
        own->refused++;
        return args->waits ? WEFT_ERR_TIMEOUT : WEFT_INPROGRESS;
    }
    note(args);
    return WEFT_OK;
}

/* label: of a node of either direction, alone; "post" and "await" are one. */
static void add(wefti_program *program, record *own, bool backward,
                wefti_node_kind kind, const char *label)
{
    /* In I a POST awaits and an AWAIT posts. */
    wefti_node_kind given = !backward || kind == WEFTI_NODE_COMPUTE ? kind
                            : kind == WEFTI_NODE_POST ? WEFTI_NODE_AWAIT
                                                      : WEFTI_NODE_POST;
    wefti_node node = {.kind = given,
                       .class_id = WEFT_CLASS_CP,
                       .label = label,
                       .context = own,
                       .operation = kind == WEFTI_NODE_COMPUTE ? 0 : 1};
    node.calls[backward ? WEFTI_CALL_INPUTS : WEFTI_CALL_FORWARD] =
        kind == WEFTI_NODE_COMPUTE ? compute
        : kind == WEFTI_NODE_POST  ? post
                                   : await;
    program->operation_count = 1;
    wefti_program_add_node(program, &node);
}

static weft_status run_both(wefti_program *up, wefti_program *down)
{
    wefti_weave_step woven[STEPS_MOST];
    wefti_micro_batch batch = {.sequences = 1, .length = 1};
    wefti_program_pass passes[] = {{.program = up, .batch = &batch},
                                   {.program = down, .batch = &batch}};
    assert_int_equal(wefti_program_plan(up, 1), WEFT_OK);
    assert_int_equal(wefti_program_plan(down, 1), WEFT_OK);
    wefti_weave_plan(up, down, wefti_weave_template, wefti_weave_template_rows,
                     woven);
    weft_status status = wefti_weave_run(&passes[0], &passes[1], woven);
    wefti_program_fini(up);
    wefti_program_fini(down);
    return status;
}

/* ---- the order ------------------------------------------------------------
 */

static const wefti_model_shape shape = {.layers = 5,
                                        .hidden = 8,
                                        .heads = 2,
                                        .kv_heads = 2,
                                        .head_dim = 4,
                                        .ffn = 8,
                                        .vocab = 8,
                                        .seq = 4,
                                        .rope_theta = 10000.0};

static void plan_stage(wefti_program *program, const wefti_parameters *plan,
                       size_t first, size_t end)
{
    size_t logits;
    *program = (wefti_program){0};
    wefti_stage_append(program, plan, first, end, &logits);
    assert_int_equal(wefti_program_plan(program, 4), WEFT_OK);
}

/* Both programs' sections as "F attention0", each once, in woven's order. */
static void print_sections(const wefti_program *const *programs,
                           const wefti_weave_step *woven, size_t count,
                           char *text)
{
    const wefti_order *orders[] = {&programs[0]->orders[WEFTI_CALL_FORWARD],
                                   &programs[1]->orders[WEFTI_ORDER_BACKWARD]};
    char last[64] = "";
    text[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        bool backward = woven[i].backward;
        const wefti_program_step *step =
            &orders[backward]->steps[woven[i].step];
        const wefti_block_mark *block =
            &programs[backward]->blocks[step->block];
        char section[64];
        snprintf(section, sizeof(section), "%s.%s%zu ",
                 wefti_order_text(step->call), block->name, block->layer);
        if (strcmp(section, last) != 0) {
            strcat(text, section);
        }
        snprintf(last, sizeof(last), "%s", section);
    }
}

static void check_whole(const wefti_program *const *programs,
                        const wefti_weave_step *woven, size_t count)
{
    size_t next[2] = {0, 0};
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(woven[i].step, next[woven[i].backward]++);
    }
    assert_int_equal(next[0], programs[0]->orders[WEFTI_CALL_FORWARD].count);
    assert_int_equal(next[1], programs[1]->orders[WEFTI_ORDER_BACKWARD].count);
}

static void check_weave(size_t up_first, size_t up_end, size_t down_first,
                        size_t down_end, const char *expected)
{
    wefti_parameters plan;
    wefti_program up, down;
    const wefti_program *both[] = {&up, &down};
    wefti_weave_step woven[STEPS_MOST];
    char text[2048];
    assert_int_equal(wefti_parameters_plan(&shape, 4096, 1, &plan), WEFT_OK);
    plan_stage(&up, &plan, up_first, up_end);
    plan_stage(&down, &plan, down_first, down_end);
    size_t count = up.orders[WEFTI_CALL_FORWARD].count +
                   down.orders[WEFTI_ORDER_BACKWARD].count;
    assert_true(count <= STEPS_MOST);
    wefti_weave_plan(&up, &down, wefti_weave_template,
                     wefti_weave_template_rows, woven);
    check_whole(both, woven, count);
    print_sections(both, woven, count, text);
    assert_string_equal(text, expected);
    wefti_program_fini(&up);
    wefti_program_fini(&down);
    wefti_parameters_fini(&plan);
}

static void test_weave_decoder_follows_the_template(void **state)
{
    (void)state;
    check_weave(1, 3, 1, 3,
                "F.attention1 I.ffn2 W.ffn2 F.ffn1 I.attention2 W.attention2 "
                "F.attention2 I.ffn1 W.ffn1 F.ffn2 I.attention1 W.attention1 ");
}

/* The ends of the model go along; the longer program goes on alone. */
static void test_weave_stages_of_other_lengths_are_whole(void **state)
{
    (void)state;
    check_weave(0, 1, 3, 5,
                "F.embedding0 F.attention0 I.head0 W.head0 I.ffn4 W.ffn4 "
                "F.ffn0 I.attention4 W.attention4 I.ffn3 W.ffn3 I.attention3 "
                "W.attention3 ");
    check_weave(3, 5, 0, 1,
                "F.attention3 I.ffn0 W.ffn0 F.ffn3 I.attention0 W.attention0 "
                "F.attention4 F.ffn4 F.head0 I.embedding0 W.embedding0 ");
}

/* ---- the run --------------------------------------------------------------
 */

/* F: post, await, f in attention; B (ffn): b b b, then in attention c. */
static void make_pair(wefti_program *up, wefti_program *down, record *own,
                      bool down_posts)
{
    *up = *down = (wefti_program){0};
    wefti_program_begin_block(up, "attention", 0);
    add(up, own, false, WEFTI_NODE_POST, "post");
    add(up, own, false, WEFTI_NODE_AWAIT, "await");
    wefti_program_begin_block(up, "ffn", 0);
    add(up, own, false, WEFTI_NODE_COMPUTE, "f");
    add(up, own, false, WEFTI_NODE_POST, "post2");
    add(up, own, false, WEFTI_NODE_AWAIT, "await2");
    wefti_program_begin_block(down, "attention", 0);
    add(down, own, true, WEFTI_NODE_COMPUTE, "c"); /* backwards from here */
    if (down_posts) {
        add(down, own, true, WEFTI_NODE_AWAIT, "end");
        add(down, own, true, WEFTI_NODE_POST, "begin");
    }
    wefti_program_begin_block(down, "ffn", 0);
    add(down, own, true, WEFTI_NODE_COMPUTE, "b");
    add(down, own, true, WEFTI_NODE_COMPUTE, "a");
}

static void test_run_satisfied_awaits_keep_the_woven_order(void **state)
{
    (void)state;
    record own = {.needed = 0};
    wefti_program up, down;
    make_pair(&up, &down, &own, true);
    assert_int_equal(run_both(&up, &down), WEFT_OK);
    assert_string_equal(own.log, "post await a b f post2 await2 begin end c ");
    assert_int_equal(own.refused, 0);
}

static void test_run_await_lets_the_other_program_go_on(void **state)
{
    (void)state;
    record own = {.needed = 3};
    wefti_program up, down;
    make_pair(&up, &down, &own, false);
    assert_int_equal(run_both(&up, &down), WEFT_OK);
    assert_string_equal(own.log, "post a b c await f post2 await2 ");
    assert_int_equal(own.refused, 3);
}

/*
 * The other program could go on while this one waits, but for its POST, which
 * stands behind post2 in the woven order.
 */
static void test_run_posts_of_a_class_keep_their_order(void **state)
{
    (void)state;
    record own = {.needed = 2};
    wefti_program up, down;
    make_pair(&up, &down, &own, true);
    assert_int_equal(run_both(&up, &down), WEFT_OK);
    assert_string_equal(own.log, "post a b await f post2 await2 begin end c ");
    assert_true(own.refused > 0);
}

/* With nothing else left to run, an AWAIT is told to wait. */
static void test_run_last_await_waits(void **state)
{
    (void)state;
    record own = {.needed = 100};
    wefti_program up, down;
    make_pair(&up, &down, &own, false);
    assert_int_equal(run_both(&up, &down), WEFT_ERR_TIMEOUT);
    assert_string_equal(own.log, "post a b c ");
}

static void test_run_error_ends_both(void **state)
{
    (void)state;
    record own = {.fails = WEFT_ERR_PEER};
    wefti_program up = {0}, down = {0};
    wefti_program_begin_block(&up, "attention", 0);
    add(&up, &own, false, WEFTI_NODE_COMPUTE, "f");
    wefti_program_begin_block(&up, "ffn", 0);
    add(&up, &own, false, WEFTI_NODE_COMPUTE, "g");
    wefti_program_begin_block(&down, "ffn", 0);
    add(&down, &own, true, WEFTI_NODE_COMPUTE, "fail");
    assert_int_equal(run_both(&up, &down), WEFT_ERR_PEER);
    assert_string_equal(own.log, "f fail ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weave_decoder_follows_the_template),
        cmocka_unit_test(test_weave_stages_of_other_lengths_are_whole),
        cmocka_unit_test(test_run_satisfied_awaits_keep_the_woven_order),
        cmocka_unit_test(test_run_await_lets_the_other_program_go_on),
        cmocka_unit_test(test_run_posts_of_a_class_keep_their_order),
        cmocka_unit_test(test_run_last_await_waits),
        cmocka_unit_test(test_run_error_ends_both),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
