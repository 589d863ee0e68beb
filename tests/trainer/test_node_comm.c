/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     what a program's nodes exchange arrives in F, and its gradient in I
 *          the other way: gathers, scatters, sums; beside compute and in its
 *          order, on the host and on a device whose memory it cannot touch;
 *          whole, and part by part between nodes that make and use the parts;
 *          rows that do not divide are shared with the first parts in front.
 *          Ranks whose programs post in another order are refused by name.
 * Method   programs of one exchange between what writes and what reads it, on
 *          ranks that are threads; every element is a sum known beforehand.
 */
#include "tests/comm/world.h"
#include "trainer/program/node_comm.h"
#include "trainer/program/node_math.h"
#include "trainer/program/program_check.h"
#include "trainer/program/program_plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WIDTH = 5, ROWS_MOST = 11, RANKS_MOST = 4, TURNS = 3 };
enum { ELEMS = (ROWS_MOST + RANKS_MOST) * WIDTH };

/* One exchange, and where; of all ranks. */
typedef struct exchange_case {
    wefti_exchange what;
    size_t rows;
    const char *device;
    bool beside;
} exchange_case;

/* A rank's, on the host: what it sends and what it gets. */
typedef struct exchange_ends {
    real sent[ELEMS], got[ELEMS];
    weft_device *device;
} exchange_ends;

static weft_status give(const wefti_node_args *args)
{
    const exchange_ends *own = args->node->context;
    return weft_device_copy(
        own->device, args->values[0], own->sent + args->first * WIDTH,
        args->rows * args->widths[0] * sizeof(real), args->pass->compute);
}

static weft_status take(const wefti_node_args *args)
{
    exchange_ends *own = (exchange_ends *)(uintptr_t)args->node->context;
    return weft_device_copy(
        own->device, own->got + args->first * WIDTH, args->values[0],
        args->rows * args->widths[0] * sizeof(real), args->pass->compute);
}

/* F: give x | exchange | take y; I: give dy | exchange | take dx. */
static void append(wefti_program *program, const exchange_case *how,
                   exchange_ends *own)
{
    const bool cut_x = how->what.forward == WEFTI_EXCHANGE_GATHER;
    const bool cut_y = how->what.forward == WEFTI_EXCHANGE_SCATTER;
    size_t v[4];
    wefti_program_begin_block(program, "block", 0);
    for (int i = 0; i < 4; i++) {
        v[i] = wefti_program_add_value(program, "value", WIDTH, true);
        if (i < 2 ? cut_x : cut_y) {
            (void)wefti_program_cut_value(program, v[i]);
        }
    }
    const wefti_exchange_values exchanged = {v[0], v[1], v[2], v[3]};
    wefti_node node = {.label = "first",
                       .calls = {give, take},
                       .context = own,
                       .of_part = cut_x,
                       .by_rows = how->what.by_parts && cut_y,
                       .by_parts = how->what.by_parts && cut_y,
                       .operands = {{v[0], WEFTI_F_WRITES}},
                       .operand_count = 1};
    wefti_node back = node;
    node.calls[WEFTI_CALL_INPUTS] = NULL;
    back.calls[WEFTI_CALL_FORWARD] = NULL;
    back.operands[0] = (wefti_operand){v[1], WEFTI_I_READS};
    wefti_program_add_node(program, &back);
    wefti_program_add_node(program, &node);
    size_t operation =
        wefti_append_post(program, "exchange", &how->what, &exchanged);
    wefti_append_await(program, "exchange", &how->what, &exchanged, operation);
    node = (wefti_node){.label = "last",
                        .calls = {take},
                        .context = own,
                        .of_part = cut_y,
                        .by_rows = how->what.by_parts && cut_x,
                        .by_parts = how->what.by_parts && cut_x,
                        .operands = {{v[2], WEFTI_F_READS}},
                        .operand_count = 1};
    back = node;
    back.calls[WEFTI_CALL_FORWARD] = NULL;
    back.calls[WEFTI_CALL_INPUTS] = give;
    back.operands[0] = (wefti_operand){v[3], WEFTI_I_WRITES};
    wefti_program_add_node(program, &node);
    wefti_program_add_node(program, &back);
}

/* What a rank sends: of each element another number, small and whole. */
static real number(size_t rank, size_t elem, size_t turn)
{
    return (real)((elem * 7 + rank * 13 + turn) % 101);
}

static real summed(size_t ranks, size_t elem, size_t turn)
{
    real sum = 0;
    for (size_t r = 0; r < ranks; r++) {
        sum += number(r, elem, turn);
    }
    return sum;
}

/* How many elements differ from what the exchange gives. */
static int compare(const wefti_program *program, wefti_exchange_kind kind,
                   size_t rows, size_t turn, const exchange_ends *own)
{
    const size_t part = wefti_program_part_rows(program, rows) * WIDTH;
    const bool scatters = kind == WEFTI_EXCHANGE_SCATTER;
    const size_t elems =
        (scatters ? wefti_program_own_rows(program, rows) : rows) * WIDTH;
    int wrong = 0;
    for (size_t i = 0; i < elems; i++) {
        real want = kind == WEFTI_EXCHANGE_GATHER
                        ? number(i / part, i % part, turn)
                        : summed(program->parts,
                                 scatters ? program->part * part + i : i, turn);
        wrong += want != own->got[i];
    }
    return wrong;
}

/*
 * Of parts that are made or used one by one beside compute: the others' are the
 * chunks, and this order of compute makes them, and uses them, in the order in
 * which they leave and come. Once each, in every pass.
 */
static int check_notes(const wefti_score *score, size_t parts)
{
    size_t next = 0, count = 0;
    int wrong = score->full;
    for (size_t i = 0; i < score->note_count; i++) {
        const wefti_score_note *of = &score->notes[i];
        const bool taken =
            of->kind == WEFTI_SCORE_READY ||
            (of->kind == WEFTI_SCORE_AWAIT && of->chunk != WEFTI_SCORE_ALL);
        if (taken) {
            wrong += of->chunk != next;
            next = (next + 1) % (parts - 1);
            count++;
        }
    }
    return wrong + (count != (size_t)TURNS * 2 * (parts - 1));
}

static int run_turns(const wefti_program_pass *pass, const exchange_case *how,
                     size_t rank, exchange_ends *own)
{
    int wrong = 0;
    for (size_t turn = 0; turn < TURNS; turn++) {
        for (int call = 0; call < 2; call++) {
            for (size_t i = 0; i < ELEMS; i++) {
                own->sent[i] = number(rank, i, turn);
            }
            wrong += wefti_program_run(pass, &pass->program->orders[call]) !=
                     WEFT_OK;
            if (pass->compute) {
                wrong += weft_stream_wait(pass->compute) != WEFT_OK;
            }
            wrong += compare(pass->program,
                             call ? how->what.inputs : how->what.forward,
                             how->rows, turn, own);
        }
    }
    return wrong;
}

static int exchange(weft_comm *comm, void *context)
{
    const exchange_case *how = context;
    static const wefti_micro_batch none = {.length = 1};
    wefti_micro_batch batch = none;
    exchange_ends *own = calloc(1, sizeof(*own));
    wefti_node_link links[WEFTI_LINKS] = {{.comm = comm}};
    wefti_score score = {0};
    wefti_program program = {.parts = (size_t)weft_comm_get_nranks(comm),
                             .part = (size_t)weft_comm_get_rank(comm)};
    wefti_program_pass pass = {
        .program = &program, .batch = &batch, .links = links};
    int wrong = weft_device_open(how->device, 0, &pass.device) != WEFT_OK;
    batch.sequences = how->rows;
    own->device = pass.device;
    if (strcmp(how->device, "host") != 0) {
        wrong += weft_stream_create(pass.device, 0, &pass.compute) != WEFT_OK;
    }
    if (how->beside) {
        wrong +=
            weft_stream_create(pass.device, 0, &links[0].beside) != WEFT_OK;
    }
    append(&program, how, own);
    wrong += wefti_program_plan(&program, how->rows) != WEFT_OK;
    wrong += wefti_program_check(&program) != WEFT_OK;
    wrong += wefti_node_flights_create(&program, pass.device, &pass.flights) !=
             WEFT_OK;
    for (size_t i = 0; i < WEFTI_REGIONS; i++) {
        void *region = NULL;
        wrong += weft_device_alloc(pass.device,
                                   (program.elems[i] + 1) * sizeof(real),
                                   &region) != WEFT_OK;
        pass.regions[i] = region;
    }
    links[0].score = &score;
    wrong += wrong ? 0 : run_turns(&pass, how, program.part, own);
    if (how->beside && how->what.by_parts) {
        wrong += check_notes(&score, program.parts);
    }
    wefti_score_fini(&score);
    weft_stream_destroy(links[0].beside);
    weft_stream_destroy(pass.compute);
    for (size_t i = 0; i < WEFTI_REGIONS; i++) {
        weft_device_free(pass.device, pass.regions[i]);
    }
    wefti_node_flights_destroy(&program, pass.flights);
    wefti_program_fini(&program);
    weft_device_close(pass.device);
    free(own);
    return wrong;
}

static void check(int nranks, size_t rows, const char *device, bool beside,
                  bool by_parts)
{
    static const wefti_exchange_kind pairs[][2] = {
        {WEFTI_EXCHANGE_GATHER, WEFTI_EXCHANGE_SCATTER},
        {WEFTI_EXCHANGE_SCATTER, WEFTI_EXCHANGE_GATHER},
        {WEFTI_EXCHANGE_SUM, WEFTI_EXCHANGE_SUM}};
    for (size_t i = 0; i < (by_parts ? 2 : 3); i++) {
        exchange_case how = {
            {pairs[i][0], pairs[i][1], WEFTI_LINK_TENSOR, by_parts},
            rows,
            device,
            beside};
        weft_device *memory;
        assert_int_equal(weft_device_open(device, 0, &memory), WEFT_OK);
        const struct world world = {
            .nranks = nranks,
            .config = {.size_bytes = sizeof(weft_comm_config),
                       .device = memory},
            .call = exchange,
            .context = &how};
        assert_int_equal(world_run_threads(&world), 0);
        weft_device_close(memory);
    }
}

static void test_exchange_in_the_order_of_compute_arrives(void **state)
{
    (void)state;
    check(2, 8, "host", false, false);
    check(3, 11, "host", false, false);
}

static void test_exchange_beside_compute_arrives(void **state)
{
    (void)state;
    check(2, 8, "host", true, false);
    check(4, 9, "host", true, false); /* parts of 3, 3, 3 and 0 */
}

static void test_exchange_on_a_device_arrives(void **state)
{
    (void)state;
    check(2, 7, "shadow", false, false);
    check(2, 7, "shadow", true, false);
}

/* What is made, and used, part by part. */
static void test_exchange_by_parts_arrives(void **state)
{
    (void)state;
    check(2, 8, "host", false, true);
    check(2, 7, "host", true, true);
    check(4, 9, "host", true, true);
    check(3, 11, "shadow", true, true);
    check(2, 3, "shadow", false, true);
}

/* A pass has both nodes of an exchange or none. */
static void test_exchange_of_one_pass_is_in_no_other(void **state)
{
    (void)state;
    static const wefti_exchange gather = {
        WEFTI_EXCHANGE_GATHER, WEFTI_EXCHANGE_NONE, WEFTI_LINK_CONTEXT, false};
    wefti_program program = {.parts = 2};
    wefti_program_begin_block(&program, "block", 0);
    size_t x = wefti_program_cut_value(
        &program, wefti_program_add_value(&program, "x", 1, true));
    size_t y = wefti_program_add_value(&program, "y", 1, true);
    const wefti_exchange_values exchanged = {x, x, y, y};
    size_t operation = wefti_append_post(&program, "rows", &gather, &exchanged);
    wefti_append_await(&program, "rows", &gather, &exchanged, operation);
    assert_int_equal(wefti_program_plan(&program, 5), WEFT_OK);
    assert_int_equal(program.orders[WEFTI_CALL_FORWARD].count, 2);
    assert_int_equal(program.orders[WEFTI_CALL_INPUTS].count, 0);
    assert_int_equal(program.nodes[0].class_id, WEFT_CLASS_CP);
    assert_true(program.values[x].elems * sizeof(real) == 64);
    assert_true(program.values[y].elems * sizeof(real) == 64);
    wefti_program_fini(&program);
}

/* ---- one order on all ranks ------------------------------------------------
 */

enum { ORDER_RANKS = 3 };

/* Two exchanges between ranks of a layer; last rank's may be the other way. */
static void append_two(wefti_program *program, bool swapped)
{
    static const wefti_exchange sum = {WEFTI_EXCHANGE_SUM, WEFTI_EXCHANGE_SUM,
                                       WEFTI_LINK_TENSOR, false};
    wefti_program_begin_block(program, "block", 0);
    for (int i = 0; i < 2; i++) {
        const char *label = (i == 0) == swapped ? "scores" : "rows";
        size_t v[4];
        for (int k = 0; k < 4; k++) {
            v[k] = wefti_program_add_value(program, "value", WIDTH, true);
        }
        const wefti_exchange_values exchanged = {v[0], v[1], v[2], v[3]};
        size_t operation = wefti_append_post(program, label, &sum, &exchanged);
        wefti_append_await(program, label, &sum, &exchanged, operation);
    }
}

static int agree(weft_comm *comm, void *context)
{
    const bool *differs = context;
    const bool last = weft_comm_get_rank(comm) == ORDER_RANKS - 1;
    wefti_program program = {0};
    append_two(&program, *differs && last);
    int wrong = wefti_program_plan(&program, 5) != WEFT_OK;
    weft_status status = wefti_program_agree(&program, comm, WEFT_CLASS_TP);
    if (*differs) {
        wrong += status != WEFT_ERR_INVALID;
        wrong += !strstr(weft_error_text(), "in F rank 2 posts to class tp");
    } else {
        wrong += status != WEFT_OK;
    }
    wrong += wefti_program_agree(&program, comm, WEFT_CLASS_CP) != WEFT_OK;
    wefti_program_fini(&program);
    return wrong;
}

static void test_ranks_that_post_in_another_order_are_named(void **state)
{
    (void)state;
    for (int differs = 0; differs < 2; differs++) {
        bool context = differs;
        const struct world world = {
            .nranks = ORDER_RANKS,
            .config = {.size_bytes = sizeof(weft_comm_config)},
            .call = agree,
            .context = &context};
        assert_int_equal(world_run_threads(&world), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exchange_in_the_order_of_compute_arrives),
        cmocka_unit_test(test_exchange_beside_compute_arrives),
        cmocka_unit_test(test_exchange_on_a_device_arrives),
        cmocka_unit_test(test_exchange_by_parts_arrives),
        cmocka_unit_test(test_exchange_of_one_pass_is_in_no_other),
        cmocka_unit_test(test_ranks_that_post_in_another_order_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
