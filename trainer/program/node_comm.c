/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/program/node_comm.c - collectives of nodes, and their gates.
 *
 *   compute    ... post --gate 0-->              await -- gate 1 --> ...
 *   beside                wait 0, operation, signal 1
 */
#include "trainer/program/node_comm.h"

#include "base/error.h"
#include "comm/make/explain.h"
#include "weft/op.h"

#include <stdlib.h>

enum { X, DX, Y, DY };
enum { BEGUN, DONE, GATE_CHUNKS };

static const weft_class classes[WEFTI_LINKS] = {
    [WEFTI_LINK_TENSOR] = WEFT_CLASS_TP,
    [WEFTI_LINK_CONTEXT] = WEFT_CLASS_CP,
    [WEFTI_LINK_EXPERTS] = WEFT_CLASS_EP};

static const wefti_node_link *link_of(const wefti_node_args *args)
{
    const wefti_exchange *what = args->node->context;
    return &args->pass->links[what->link];
}

/* The stream beside compute; NULL: what is exchanged has its turn there. */
static weft_stream *beside_of(const wefti_node_args *args)
{
    const wefti_node_link *link = link_of(args);
    return link->mode == WEFT_BUCKET_OVERLAPPED ? link->beside : NULL;
}

static bool exchanges(const wefti_node_args *args)
{
    const wefti_exchange *what = args->node->context;
    return wefti_node_exchanges(args->pass, what->link);
}

static wefti_node_flight *flight_of(const wefti_node_args *args, bool inputs)
{
    return &args->pass->flights[2 * args->node->operation + inputs];
}

/* Of narrow values each part is rounded; the sum of the parts is once. */
static weft_dtype dtype_of(const wefti_node_args *args, size_t operand)
{
    const wefti_program *program = args->pass->program;
    const size_t value = args->node->operands[operand].value;
    return wefti_value_dtype(program->narrow, program->values[value].wide);
}

/* How the operation cuts the rows of a value as wide as operand. */
static weft_op make_op(const wefti_node_args *args, wefti_exchange_kind kind,
                       size_t operand)
{
    static const weft_collective collectives[] = {
        [WEFTI_EXCHANGE_GATHER] = WEFT_COLLECTIVE_ALLGATHER,
        [WEFTI_EXCHANGE_SCATTER] = WEFT_COLLECTIVE_REDUCESCATTER,
        [WEFTI_EXCHANGE_SUM] = WEFT_COLLECTIVE_ALLREDUCE};
    const wefti_micro_batch *batch = args->pass->batch;
    const size_t rows = batch->sequences * batch->length;
    const size_t ranks = (size_t)weft_comm_get_nranks(link_of(args)->comm);
    const size_t part = (rows + ranks - 1) / ranks;
    return (weft_op){.size_bytes = sizeof(weft_op),
                     .collective = collectives[kind],
                     .count = (kind == WEFTI_EXCHANGE_SUM ? rows : part) *
                              args->widths[operand],
                     .dtype = dtype_of(args, operand),
                     .redop = WEFT_REDOP_SUM,
                     .class_id = args->node->class_id,
                     .label = args->node->label};
}

/* Where the thread itself would wait, its compute stops meanwhile. */
static void stop(const wefti_node_link *link)
{
    if (link->stop) {
        link->stop(link->context);
    }
}

static void resume(const wefti_node_link *link)
{
    if (link->resume) {
        link->resume(link->context);
    }
}

void wefti_node_stop(const wefti_program_pass *pass, wefti_node_link_kind link)
{
    stop(&pass->links[link]);
}

void wefti_node_resume(const wefti_program_pass *pass,
                       wefti_node_link_kind link)
{
    resume(&pass->links[link]);
}

static weft_status post_here(const wefti_node_link *link, const weft_op *op,
                             weft_stream *compute)
{
    if (!compute) {
        stop(link);
    }
    weft_status status = weft_op_post(op, 0, link->comm, compute);
    if (!compute) {
        resume(link);
    }
    return status;
}

static weft_status gather(const wefti_program_pass *pass,
                          wefti_node_link_kind link, real *all, size_t elems)
{
    const wefti_node_link *to = &pass->links[link];
    const size_t rank = (size_t)weft_comm_get_rank(to->comm);
    const weft_op op = {.size_bytes = sizeof(op),
                        .collective = WEFT_COLLECTIVE_ALLGATHER,
                        .send = all + rank * elems,
                        .recv = all,
                        .count = elems,
                        .dtype = WEFTI_REAL_DTYPE,
                        .class_id = classes[link],
                        .label = "loss"};
    return post_here(to, &op, pass->compute);
}

weft_status wefti_node_gather(const wefti_program_pass *pass,
                              wefti_node_link_kind link, real *all,
                              size_t elems)
{
    wefti_score *score = pass->links ? pass->links[link].score : NULL;
    wefti_score_begin(score);
    wefti_score_inline(score, classes[link], "loss", all, 0);
    weft_status status = wefti_node_exchanges(pass, link)
                             ? gather(pass, link, all, elems)
                             : WEFT_OK;
    wefti_score_end(score);
    return status;
}

/* The parts are chunks of the gate: of what is gathered, or scattered. */
static void cut(const wefti_node_args *args, wefti_exchange_kind kind,
                const wefti_node_flight *flight, weft_op *op)
{
    const wefti_exchange *what = args->node->context;
    if (what->by_parts) {
        op->gate_elems = op->count;
        op->arrived = kind == WEFTI_EXCHANGE_GATHER ? flight->parts : NULL;
        op->ready = kind == WEFTI_EXCHANGE_SCATTER ? flight->parts : NULL;
    }
}

static weft_status post_beside(const wefti_node_args *args,
                               const wefti_node_link *link, const weft_op *op,
                               wefti_node_flight *flight)
{
    weft_stream *compute = args->pass->compute;
    const uint64_t epoch = ++flight->epoch;
    weft_status status = WEFT_OK;
    if (compute) {
        status = weft_gate_signal(flight->gate, BEGUN, epoch, compute);
        if (status == WEFT_OK) {
            status = weft_gate_wait(flight->gate, BEGUN, epoch, link->beside);
        }
    }
    if (status == WEFT_OK) {
        status = weft_op_post(op, op->gate_elems ? epoch : 0, link->comm,
                              link->beside);
    }
    return status == WEFT_OK
               ? weft_gate_signal(flight->gate, DONE, epoch, link->beside)
               : status;
}

/* A value's first row; a part's rows are the first it has. */
static void *start_of(const wefti_node_args *args, size_t operand)
{
    return wefti_program_at(args->pass, args->node->operands[operand].value);
}

/* Which part the rows of a call are. */
static size_t part_of(const wefti_node_args *args)
{
    const wefti_micro_batch *batch = args->pass->batch;
    return args->first /
           wefti_program_part_rows(args->pass->program,
                                   batch->sequences * batch->length);
}

static weft_status post(const wefti_node_args *args, bool inputs)
{
    const wefti_exchange *what = args->node->context;
    const wefti_node_link *link = link_of(args);
    const size_t from = inputs ? DY : X;
    weft_op op = make_op(args, inputs ? what->inputs : what->forward, from);
    op.send = start_of(args, from);
    op.recv = start_of(args, inputs ? DX : Y);
    const bool parted = args->node->by_parts;
    const bool beside = beside_of(args);
    wefti_node_flight *flight = flight_of(args, inputs);
    weft_status status = WEFT_OK;
    if (beside && (!parted || args->begins)) {
        cut(args, inputs ? what->inputs : what->forward, flight, &op);
        status = post_beside(args, link, &op, flight);
    } else if (!beside && (!parted || args->ends)) {
        status = post_here(link, &op, args->pass->compute);
    }
    return beside && parted && status == WEFT_OK
               ? weft_gate_signal(flight->parts, part_of(args), flight->epoch,
                                  args->pass->compute)
               : status;
}

static weft_status wait_for(const wefti_node_args *args, weft_gate *gate,
                            size_t chunk, uint64_t epoch)
{
    const wefti_node_link *link = link_of(args);
    if (args->pass->compute) {
        return weft_gate_wait(gate, chunk, epoch, args->pass->compute);
    }
    weft_status status = weft_gate_test(gate, chunk, epoch);
    if (status == WEFT_INPROGRESS && args->waits) {
        stop(link);
        status = weft_gate_wait(gate, chunk, epoch, NULL);
        resume(link);
    }
    return wefti_comm_explain_fault(link->comm, status);
}

/* What was sent may be written again when all is done. */
static weft_status await(const wefti_node_args *args, bool inputs)
{
    const wefti_node_flight *flight = flight_of(args, inputs);
    const bool parted = args->node->by_parts;
    weft_status status = WEFT_OK;
    if (!beside_of(args)) {
        return WEFT_OK;
    }
    if (parted) {
        status = wait_for(args, flight->parts, part_of(args), flight->epoch);
    }
    return status == WEFT_OK && (!parted || args->ends)
               ? wait_for(args, flight->gate, DONE, flight->epoch)
               : status;
}

/* ---- what is noted --------------------------------------------------------
 */

static void note(const wefti_node_args *args, wefti_score_kind kind,
                 bool inputs, size_t chunk)
{
    wefti_score_note_down(link_of(args)->score,
                          &(wefti_score_note){.kind = kind,
                                              .class_id = args->node->class_id,
                                              .label = args->node->label,
                                              .of = flight_of(args, inputs),
                                              .chunk = chunk});
}

/* This rank's own part is here: the others' are the chunks. */
static size_t count_chunks(const wefti_node_args *args, bool inputs)
{
    const wefti_exchange *what = args->node->context;
    const wefti_exchange_kind kind = inputs ? what->inputs : what->forward;
    const size_t parts = args->pass->program->parts;
    return what->by_parts && kind != WEFTI_EXCHANGE_SUM && parts > 1 ? parts - 1
                                                                     : 1;
}

/* Which chunk a call's rows are; none: they are this rank's own. Parts leave
 * from the next rank's on, and come from the rank before's on down. */
static bool find_chunk(const wefti_node_args *args, bool comes,
                       size_t *chunk_out)
{
    const wefti_program *program = args->pass->program;
    const size_t parts = program->parts;
    const size_t away = (part_of(args) + parts - program->part) % parts;
    *chunk_out = comes ? parts - 1 - away : away - 1;
    return away > 0;
}

static void note_post(const wefti_node_args *args, bool inputs)
{
    const bool parted = args->node->by_parts;
    const bool beside = link_of(args)->beside;
    size_t chunk;
    if (beside && parted && args->begins) {
        note(args, WEFTI_SCORE_OPEN, inputs, count_chunks(args, inputs));
    }
    if (beside && parted && find_chunk(args, false, &chunk)) {
        note(args, WEFTI_SCORE_READY, inputs, chunk);
    }
    if (beside && !parted) {
        note(args, WEFTI_SCORE_POST, inputs, count_chunks(args, inputs));
    }
    if (!parted || args->ends) {
        if (beside) {
            note(args, WEFTI_SCORE_SERIAL, inputs, WEFTI_SCORE_ALL);
        } else {
            wefti_score_inline(link_of(args)->score, args->node->class_id,
                               args->node->label, flight_of(args, inputs), 0);
        }
    }
}

static void note_await(const wefti_node_args *args, bool inputs)
{
    const bool parted = args->node->by_parts;
    size_t chunk;
    if (!link_of(args)->beside) {
        return;
    }
    if (parted && find_chunk(args, true, &chunk)) {
        note(args, WEFTI_SCORE_AWAIT, inputs, chunk);
    }
    if (!parted || args->ends) {
        note(args, WEFTI_SCORE_AWAIT, inputs, WEFTI_SCORE_ALL);
    }
}

/* ---- calls ----------------------------------------------------------------
 */

static weft_status call(const wefti_node_args *args, bool posts, bool inputs)
{
    wefti_score *score =
        args->pass->links ? link_of(args)->score : NULL; /* else a rehearsal */
    if (score) {
        wefti_score_begin(score);
        if (posts) {
            note_post(args, inputs);
        } else {
            note_await(args, inputs);
        }
    }
    weft_status status = !exchanges(args) ? WEFT_OK
                         : posts          ? post(args, inputs)
                                          : await(args, inputs);
    wefti_score_end(score);
    return status;
}

static weft_status post_forward(const wefti_node_args *args)
{
    return call(args, true, false);
}

static weft_status post_inputs(const wefti_node_args *args)
{
    return call(args, true, true);
}

static weft_status await_forward(const wefti_node_args *args)
{
    return call(args, false, false);
}

static weft_status await_inputs(const wefti_node_args *args)
{
    return call(args, false, true);
}

/* What is under way lives from the one to the other. */
static wefti_node make_node(const char *label, const wefti_exchange *what,
                            const wefti_exchange_values *values)
{
    return (wefti_node){.class_id = classes[what->link],
                        .label = label,
                        .context = what,
                        .operands = {[X] = {values->x, WEFTI_F_READS},
                                     [DX] = {values->dx, WEFTI_I_READS},
                                     [Y] = {values->y, WEFTI_F_READS},
                                     [DY] = {values->dy, WEFTI_I_READS}},
                        .operand_count = 4};
}

size_t wefti_append_post(wefti_program *program, const char *label,
                         const wefti_exchange *what,
                         const wefti_exchange_values *values)
{
    wefti_node node = make_node(label, what, values);
    node.kind = WEFTI_NODE_POST;
    node.by_rows = node.by_parts =
        what->by_parts && what->forward == WEFTI_EXCHANGE_SCATTER;
    node.operation = wefti_program_add_operation(program);
    node.operands[Y].use = WEFTI_F_WRITES;
    if (what->forward != WEFTI_EXCHANGE_NONE) {
        node.calls[WEFTI_CALL_FORWARD] = post_forward;
    }
    if (what->inputs != WEFTI_EXCHANGE_NONE) {
        node.calls[WEFTI_CALL_INPUTS] = await_inputs;
    }
    wefti_program_add_node(program, &node);
    return node.operation;
}

void wefti_append_await(wefti_program *program, const char *label,
                        const wefti_exchange *what,
                        const wefti_exchange_values *values, size_t operation)
{
    wefti_node node = make_node(label, what, values);
    node.kind = WEFTI_NODE_AWAIT;
    node.by_rows = node.by_parts =
        what->by_parts && what->forward == WEFTI_EXCHANGE_GATHER;
    node.operation = operation;
    node.operands[DX].use = WEFTI_I_WRITES;
    if (what->forward != WEFTI_EXCHANGE_NONE) {
        node.calls[WEFTI_CALL_FORWARD] = await_forward;
    }
    if (what->inputs != WEFTI_EXCHANGE_NONE) {
        node.calls[WEFTI_CALL_INPUTS] = post_inputs;
    }
    wefti_program_add_node(program, &node);
}

/* ---- gates ----------------------------------------------------------------
 */

static size_t count_flights(const wefti_program *program)
{
    return 2 * (program->operation_count + 1);
}

weft_status wefti_node_flights_create(const wefti_program *program,
                                      weft_device *device,
                                      wefti_node_flight **flights_out)
{
    const size_t count = count_flights(program);
    weft_status status = WEFT_OK;
    *flights_out = NULL;
    if (program->operation_count == 0) {
        return WEFT_OK;
    }
    wefti_node_flight *flights = calloc(count, sizeof(*flights));
    if (!flights) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %zu operations",
                           count);
    }
    for (size_t i = 0; i < count && status == WEFT_OK; i++) {
        status = weft_gate_create(device, GATE_CHUNKS, &flights[i].gate);
        if (status == WEFT_OK && program->parts > 1) {
            status =
                weft_gate_create(device, program->parts, &flights[i].parts);
        }
    }
    if (status != WEFT_OK) {
        wefti_node_flights_destroy(program, flights);
        return status;
    }
    *flights_out = flights;
    return WEFT_OK;
}

void wefti_node_flights_destroy(const wefti_program *program,
                                wefti_node_flight *flights)
{
    for (size_t i = 0; flights && i < count_flights(program); i++) {
        weft_gate_destroy(flights[i].gate);
        weft_gate_destroy(flights[i].parts);
    }
    free(flights);
}
