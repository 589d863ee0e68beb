/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     however the decoder is cut into stages, and a stage's backward into
 *          I and W, losses and gradients have the bits of the whole model's;
 *          rows may come and go in chunks; pairs run two micro-batches at once;
 *          two stages may share their slots.
 * Method   random models, tied and not, of more tokens than a chunk has, built
 *          over float and over double. Stages hand their rows over through
 *          ports that are poisoned but for what was reported; slots are
 *          poisoned before each use, and outputs too.
 */
#include "tests/trainer/whole_model.h"
#include "trainer/model/storage.h"
#include "trainer/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SEQUENCES = 3, SEQ = 59, LAYERS = 4, TOKENS = SEQUENCES * SEQ };
enum { MICRO = 3, STAGES_MOST = LAYERS, CALLS_MOST = 8 };

static const wefti_model_shape small = {.layers = LAYERS,
                                        .hidden = 24,
                                        .heads = 4,
                                        .kv_heads = 2,
                                        .head_dim = 6,
                                        .ffn = 20,
                                        .vocab = 31,
                                        .seq = SEQ,
                                        .rope_theta = 10000.0};

/* What a micro-batch comes to. */
typedef struct outcome {
    real *gradients; /* flat */
    double losses[SEQUENCES];
} outcome;

typedef struct fixture {
    wefti_parameters plan;
    real *values;
    int32_t tokens[MICRO][TOKENS], targets[MICRO][TOKENS];
    wefti_micro_batch batches[MICRO];
    outcome whole[MICRO], parts[MICRO];
    weft_device *device; /* the host */
    wefti_workspace workspace;
    wefti_stage *stages[STAGES_MOST];
    size_t stage_count;
    real *arenas[STAGES_MOST * MICRO];
    size_t arena_elems;
    bool shares;                            /* two slots for all, by turns */
    real *edges[STAGES_MOST + 1][MICRO][2]; /* rows before a stage; both ways */
} fixture;

static void poison(real *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        values[i] = (real)NAN;
    }
}

static real *alloc(size_t count)
{
    real *values;
    assert_int_equal(wefti_storage_alloc(count, &values), WEFT_OK);
    poison(values, count);
    return values;
}

static void run_whole(fixture *fix)
{
    wefti_model *model;
    assert_int_equal(wefti_model_create(&fix->plan, SEQUENCES, &model),
                     WEFT_OK);
    for (size_t i = 0; i < MICRO; i++) {
        fix->whole[i].gradients = alloc(fix->plan.flat_elems);
        fix->parts[i].gradients = alloc(fix->plan.flat_elems);
        assert_int_equal(wefti_model_train(model, fix->values, &fix->batches[i],
                                           0.25, NULL, fix->whole[i].gradients,
                                           fix->whole[i].losses),
                         WEFT_OK);
    }
    wefti_model_destroy(model);
}

static void make_stages(fixture *fix, const size_t *borders, size_t count)
{
    wefti_stage_config config = {.plan = &fix->plan,
                                 .workspace = &fix->workspace,
                                 .slots = count * MICRO,
                                 .arenas = fix->arenas};
    fix->stage_count = count;
    for (int round = 0; round < 2; round++) { /* sizes; then stages */
        for (size_t s = 0; s < count; s++) {
            config.first_layer = borders[s];
            config.layers_end = borders[s + 1];
            size_t elems = wefti_stage_slot_elems(&config);
            fix->arena_elems =
                elems > fix->arena_elems ? elems : fix->arena_elems;
            if (round == 1) {
                assert_int_equal(wefti_stage_create(&config, &fix->stages[s]),
                                 WEFT_OK);
            }
        }
        for (size_t i = 0; round == 0 && i < config.slots; i++) {
            fix->arenas[i] = alloc(fix->arena_elems);
        }
    }
    assert_int_equal(wefti_workspace_alloc(&fix->workspace), WEFT_OK);
    for (size_t s = 0; s <= count; s++) {
        for (size_t i = 0; i < 2 * MICRO; i++) {
            fix->edges[s][i / 2][i % 2] = alloc(TOKENS * small.hidden);
        }
    }
}

static void set_up(fixture *fix, bool tied, uint64_t seed,
                   const size_t *borders, size_t count)
{
    wefti_random random = wefti_random_make(seed, 3);
    wefti_model_shape shape = small;
    shape.tied = tied;
    *fix = (fixture){0};
    assert_int_equal(wefti_parameters_plan(&shape, 4096, 3, &fix->plan),
                     WEFT_OK);
    fix->values = alloc(fix->plan.flat_elems);
    const wefti_start start = {1, 0.02, 1};
    wefti_parameters_init(&fix->plan, seed, &start, &fix->values);
    assert_int_equal(weft_device_open("host", 0, &fix->device), WEFT_OK);
    assert_int_equal(wefti_workspace_init(&fix->workspace, fix->device, NULL,
                                          &fix->plan.shape, SEQUENCES),
                     WEFT_OK);
    for (size_t i = 0; i < MICRO; i++) {
        for (size_t t = 0; t < TOKENS; t++) {
            fix->tokens[i][t] =
                (int32_t)(wefti_random_next(&random) % shape.vocab);
            fix->targets[i][t] =
                (int32_t)(wefti_random_next(&random) % shape.vocab);
        }
        /* The second one is shorter. */
        fix->batches[i] = (wefti_micro_batch){.tokens = fix->tokens[i],
                                              .targets = fix->targets[i],
                                              .sequences = SEQUENCES - i % 2,
                                              .length = SEQ};
    }
    run_whole(fix);
    make_stages(fix, borders, count);
}

static void tear_down(fixture *fix)
{
    for (size_t s = 0; s <= fix->stage_count; s++) {
        for (size_t i = 0; i < 2 * MICRO; i++) {
            wefti_storage_free(fix->edges[s][i / 2][i % 2]);
        }
    }
    for (size_t i = 0; i < fix->stage_count * MICRO; i++) {
        wefti_storage_free(fix->arenas[i]);
    }
    for (size_t s = 0; s < fix->stage_count; s++) {
        wefti_stage_destroy(fix->stages[s]);
    }
    for (size_t i = 0; i < MICRO; i++) {
        wefti_storage_free(fix->whole[i].gradients);
        wefti_storage_free(fix->parts[i].gradients);
    }
    wefti_workspace_fini(&fix->workspace);
    weft_device_close(fix->device);
    wefti_storage_free(fix->values);
    wefti_parameters_fini(&fix->plan);
}

/* The pass of one stage and micro-batch; F reads up, I and B read down. */
static wefti_stage_pass make_pass(fixture *fix, size_t s, size_t micro,
                                  bool down)
{
    wefti_stage_pass pass = {.batch = &fix->batches[micro],
                             .values = {fix->values},
                             .gradients = {fix->parts[micro].gradients},
                             .slot = fix->shares ? (s + micro) % 2
                                                 : s * MICRO + micro};
    pass.input.rows = fix->edges[s + (down ? 1 : 0)][micro][down ? 1 : 0];
    pass.output.rows = fix->edges[s + (down ? 0 : 1)][micro][down ? 1 : 0];
    return pass;
}

/* After F, as whole_model.c does. */
static void measure(wefti_stage *stage, const wefti_stage_pass *pass,
                    outcome *outcome_out)
{
    const wefti_micro_batch *batch = pass->batch;
    real losses[TOKENS];
    assert_int_equal(wefti_stage_measure(stage, pass, true, 0.25, losses),
                     WEFT_OK);
    for (size_t i = 0; i < batch->sequences; i++) {
        outcome_out->losses[i] = 0;
        for (size_t t = 0; t < batch->length; t++) {
            outcome_out->losses[i] += (double)losses[i * batch->length + t];
        }
    }
}

static void run_forward(fixture *fix, size_t s, size_t micro)
{
    wefti_stage_pass pass = make_pass(fix, s, micro, false);
    poison(fix->arenas[pass.slot], fix->arena_elems);
    assert_int_equal(wefti_stage_forward(fix->stages[s], &pass), WEFT_OK);
    if (wefti_stage_is_last(fix->stages[s])) {
        measure(fix->stages[s], &pass, &fix->parts[micro]);
    }
}

typedef weft_status act(wefti_stage *stage, const wefti_stage_pass *pass);

static void run_backward(fixture *fix, size_t s, size_t micro, act *does)
{
    wefti_stage_pass pass = make_pass(fix, s, micro, true);
    assert_int_equal(does(fix->stages[s], &pass), WEFT_OK);
}

/* By tensor: padding belongs to none. */
static void check_same(const fixture *fix)
{
    for (size_t micro = 0; micro < MICRO; micro++) {
        const outcome *whole = &fix->whole[micro], *parts = &fix->parts[micro];
        assert_memory_equal(whole->losses, parts->losses,
                            fix->batches[micro].sequences * sizeof(double));
        for (size_t i = 0; i < fix->plan.tensor_count; i++) {
            const wefti_tensor *tensor = &fix->plan.tensors[i];
            assert_memory_equal(whole->gradients + tensor->start_elems,
                                parts->gradients + tensor->start_elems,
                                wefti_tensor_elems(&tensor->info) *
                                    sizeof(real));
        }
    }
}

static const size_t cuts[][STAGES_MOST + 1] = {
    {0, 4}, {0, 2, 4}, {0, 1, 4}, {0, 1, 2, 3, 4}};
static const size_t counts[] = {1, 2, 2, 4};

/* All forwards, then I from the last stage down, then W in another order. */
static void check_chain(bool tied, size_t cut, bool splits)
{
    fixture fix;
    set_up(&fix, tied, 7 + cut, cuts[cut], counts[cut]);
    for (size_t micro = 0; micro < MICRO; micro++) {
        for (size_t s = 0; s < fix.stage_count; s++) {
            run_forward(&fix, s, micro);
        }
    }
    for (size_t micro = MICRO; micro > 0; micro--) {
        for (size_t s = fix.stage_count; s > 0; s--) {
            run_backward(&fix, s - 1, micro - 1,
                         splits ? wefti_stage_backward_inputs
                                : wefti_stage_backward);
        }
    }
    for (size_t s = fix.stage_count; splits && s > 0; s--) {
        for (size_t micro = 0; micro < MICRO; micro++) {
            run_backward(&fix, s - 1, micro, wefti_stage_backward_weights);
        }
    }
    check_same(&fix);
    tear_down(&fix);
}

static void test_chain_has_the_bits_of_the_whole(void **state)
{
    (void)state;
    for (size_t cut = 0; cut < sizeof(counts) / sizeof(*counts); cut++) {
        check_chain(false, cut, false);
    }
    check_chain(true, 0, false);
}

static void test_split_backward_has_the_bits_of_the_full_one(void **state)
{
    (void)state;
    for (size_t cut = 0; cut < sizeof(counts) / sizeof(*counts); cut++) {
        check_chain(false, cut, true);
    }
    check_chain(true, 0, true);
}

/* Another stage's slot is in the place where this micro-batch's was. */
static void test_slots_of_two_stages_in_turns_share_memory(void **state)
{
    (void)state;
    fixture fix;
    set_up(&fix, false, 3, cuts[1], counts[1]);
    fix.shares = true;
    for (size_t micro = 0; micro < MICRO; micro++) {
        run_forward(&fix, 0, micro);
        run_forward(&fix, 1, micro);
        run_backward(&fix, 1, micro, wefti_stage_backward);
        run_backward(&fix, 0, micro, wefti_stage_backward);
    }
    check_same(&fix);
    tear_down(&fix);
}

/* F of each micro-batch beside B of the one before, by the same stage. */
static void test_pair_has_the_bits_of_one_after_the_other(void **state)
{
    (void)state;
    for (size_t cut = 0; cut < 3; cut++) {
        fixture fix;
        set_up(&fix, false, 5, cuts[cut], counts[cut]);
        for (size_t micro = 0; micro < MICRO; micro++) {
            run_forward(&fix, 0, micro);
        }
        for (size_t s = 1; s < fix.stage_count; s++) {
            run_forward(&fix, s, 0);
            run_forward(&fix, s, 1);
        }
        size_t last = fix.stage_count - 1;
        wefti_stage_pass down = make_pass(&fix, last, 0, true);
        wefti_stage_pass up = make_pass(&fix, last, 2, false);
        assert_int_equal(
            wefti_stage_pair(fix.stages[last], &up, fix.stages[last], &down),
            WEFT_OK);
        measure(fix.stages[last], &up, &fix.parts[2]);
        run_backward(&fix, last, 2, wefti_stage_backward);
        run_backward(&fix, last, 1, wefti_stage_backward);
        for (size_t micro = 0; last > 0 && micro < MICRO; micro++) {
            run_backward(&fix, 0, micro, wefti_stage_backward);
        }
        check_same(&fix);
        tear_down(&fix);
    }
}

/* Rows on the way: what was there when asked for, and when it was reported. */
typedef struct row_log {
    real *rows;
    const real *source; /* NULL: of an output */
    size_t rows_ends[CALLS_MOST];
    size_t count, limit;
} row_log;

static weft_status note_rows(void *context, size_t rows_end)
{
    row_log *log = context;
    assert_true(log->count < CALLS_MOST);
    size_t before = log->count ? log->rows_ends[log->count - 1] : 0;
    if (log->count == log->limit) {
        return WEFT_ERR_PEER;
    }
    log->rows_ends[log->count++] = rows_end;
    assert_true(rows_end > before);
    for (size_t i = before * small.hidden; i < rows_end * small.hidden; i++) {
        if (log->source) {
            log->rows[i] = log->source[i];
        } else {
            assert_true(isfinite((double)log->rows[i]));
        }
    }
    if (log->source == NULL && rows_end < TOKENS) {
        assert_true(isnan((double)log->rows[rows_end * small.hidden]));
    }
    return WEFT_OK;
}

static void check_calls(const row_log *log)
{
    assert_int_equal(log->count, (TOKENS + WEFTI_LAYER_CHUNK_ROWS - 1) /
                                     WEFTI_LAYER_CHUNK_ROWS);
    assert_int_equal(log->rows_ends[log->count - 1], TOKENS);
}

/* Each of a middle stage's passes, fed row by row. */
static void feed(fixture *fix, bool down, act *does, size_t limit)
{
    wefti_stage_pass pass = make_pass(fix, 1, 0, down);
    real *fed = alloc(TOKENS * small.hidden);
    real *kept = alloc(TOKENS * small.hidden);
    memcpy(kept, pass.output.rows, TOKENS * small.hidden * sizeof(real));
    poison(pass.output.rows, TOKENS * small.hidden);
    row_log in = {.rows = fed, .source = pass.input.rows, .limit = limit};
    row_log out = {.rows = pass.output.rows, .limit = CALLS_MOST};
    pass.input = (wefti_stage_port){fed, {&in, note_rows}};
    pass.output.hook = (wefti_row_hook){&out, note_rows};
    weft_status status = does(fix->stages[1], &pass);
    if (limit < CALLS_MOST) {
        assert_int_equal(status, WEFT_ERR_PEER);
        assert_int_equal(in.count, limit);
        assert_int_equal(out.count, 0);
    } else {
        assert_int_equal(status, WEFT_OK);
        check_calls(&in);
        check_calls(&out);
        assert_memory_equal(kept, pass.output.rows,
                            TOKENS * small.hidden * sizeof(real));
    }
    wefti_storage_free(fed);
    wefti_storage_free(kept);
}

static void test_ports_rows_come_and_go_in_chunks(void **state)
{
    (void)state;
    fixture fix;
    set_up(&fix, false, 9, cuts[3], counts[3]);
    for (size_t s = 0; s < fix.stage_count; s++) {
        run_forward(&fix, s, 0);
    }
    feed(&fix, false, wefti_stage_forward, CALLS_MOST);
    for (size_t s = fix.stage_count; s > 1; s--) {
        run_backward(&fix, s - 1, 0, wefti_stage_backward);
    }
    feed(&fix, false, wefti_stage_forward, CALLS_MOST);
    feed(&fix, true, wefti_stage_backward_inputs, CALLS_MOST);
    feed(&fix, false, wefti_stage_forward, 1);
    tear_down(&fix);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chain_has_the_bits_of_the_whole),
        cmocka_unit_test(test_split_backward_has_the_bits_of_the_full_one),
        cmocka_unit_test(test_slots_of_two_stages_in_turns_share_memory),
        cmocka_unit_test(test_pair_has_the_bits_of_one_after_the_other),
        cmocka_unit_test(test_ports_rows_come_and_go_in_chunks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
