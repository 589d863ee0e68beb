/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/program/program_check.c - programs refused by name.
 */
#include "trainer/program/program_check.h"

#include "base/error.h"
#include "weft/op.h"

#include <stdlib.h>
#include <string.h>

/* How far a check has come through the passes. */
typedef struct walk {
    const wefti_program *program;
    bool *written;             /* [value] */
    const wefti_node **posted; /* [operation]: not awaited yet */
    const char *pass;
} walk;

const char *wefti_order_text(size_t order)
{
    static const char *const texts[WEFTI_ORDERS] = {"F", "I", "W", "B"};
    return texts[order];
}

static weft_status refuse(const walk *own, const wefti_node *node,
                          const char *what, const char *name)
{
    const wefti_block_mark *block = &own->program->blocks[node->block];
    return wefti_error(WEFT_ERR_INVALID, "program: %s.%zu.%s in %s: %s %s",
                       block->name, block->layer, node->label, own->pass, what,
                       name);
}

static bool overlap(const wefti_value *a, const wefti_value *b)
{
    return a->region == b->region &&
           a->start_elems < b->start_elems + b->elems &&
           b->start_elems < a->start_elems + a->elems;
}

/* What is written now: others in its place are lost. */
static void write_value(walk *own, size_t number)
{
    const wefti_value *values = own->program->values;
    for (size_t i = 0; i < own->program->value_count; i++) {
        if (own->written[i] && i != number &&
            overlap(&values[i], &values[number])) {
            own->written[i] = false;
        }
    }
    own->written[number] = true;
}

static weft_status check_values(walk *own, const wefti_node *node,
                                wefti_call call)
{
    const wefti_value *values = own->program->values;
    for (size_t k = 0; k < node->operand_count; k++) {
        size_t value = node->operands[k].value;
        if (wefti_node_reads(node, k, call) && !own->written[value]) {
            return refuse(own, node,
                          "reads before it is written, or after its life,",
                          values[value].name);
        }
    }
    for (size_t k = 0; k < node->operand_count; k++) {
        if (wefti_node_writes(node, k, call)) {
            write_value(own, node->operands[k].value);
        }
    }
    return WEFT_OK;
}

static weft_status check_operation(walk *own, const wefti_node *node,
                                   wefti_call call)
{
    const wefti_node **posted = &own->posted[node->operation];
    const wefti_node_kind kind = wefti_node_kind_in(node, call);
    const char *class_text = weft_class_text(node->class_id);
    if (kind == WEFTI_NODE_COMPUTE || kind == WEFTI_NODE_EXCHANGE) {
        return WEFT_OK;
    }
    if (node->operation == 0) { /* the other half is another stage's */
        return node->class_id == WEFT_CLASS_PP
                   ? WEFT_OK
                   : refuse(own, node, "has no operation, of class",
                            class_text);
    }
    if (kind == WEFTI_NODE_POST) {
        if (*posted) {
            return refuse(own, node, "posts, before it is awaited,",
                          (*posted)->label);
        }
        *posted = node;
        return WEFT_OK;
    }
    if (!*posted) {
        return refuse(own, node, "awaits what is not posted, of class",
                      class_text);
    }
    if ((*posted)->class_id != node->class_id) {
        return refuse(own, node,
                      "awaits in another class than it is posted in,",
                      class_text);
    }
    *posted = NULL;
    return WEFT_OK;
}

static weft_status check_step(walk *own, const wefti_program_step *step)
{
    const size_t count = step->end - step->first;
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < count && status == WEFT_OK; i++) {
        const wefti_node *node = wefti_program_step_node(own->program, step, i);
        if (node->calls[step->call]) {
            status = check_values(own, node, step->call);
            if (status == WEFT_OK) {
                status = check_operation(own, node, step->call);
            }
        }
    }
    return status;
}

/* Another micro-batch's pass may come between. */
static void forget_pass(walk *own)
{
    for (size_t i = 0; i < own->program->value_count; i++) {
        own->written[i] = own->written[i] &&
                          own->program->values[i].region == WEFTI_REGION_SLOT;
    }
}

static weft_status check_pass(walk *own, size_t order)
{
    const wefti_order *steps = &own->program->orders[order];
    weft_status status = WEFT_OK;
    own->pass = wefti_order_text(order);
    forget_pass(own);
    for (size_t i = 0; i < steps->count && status == WEFT_OK; i++) {
        status = check_step(own, &steps->steps[i]);
    }
    for (size_t i = 1; i <= own->program->operation_count && status == WEFT_OK;
         i++) {
        if (own->posted[i]) {
            status = refuse(own, own->posted[i], "is not awaited, of class",
                            weft_class_text(own->posted[i]->class_id));
        }
    }
    return status;
}

/* Passes of one micro-batch, one after the other. */
static weft_status check_passes(const wefti_program *program,
                                const size_t *orders, size_t count)
{
    walk own = {.program = program,
                .written = calloc(program->value_count + 1, sizeof(bool)),
                .posted = calloc(program->operation_count + 1,
                                 sizeof(const wefti_node *))};
    weft_status status =
        own.written && own.posted
            ? WEFT_OK
            : wefti_error(WEFT_ERR_NO_MEMORY, "no memory to check a program");
    for (size_t i = 0; i < count && status == WEFT_OK; i++) {
        status = check_pass(&own, orders[i]);
    }
    free(own.written);
    free(own.posted);
    return status;
}

weft_status wefti_program_check(const wefti_program *program)
{
    const size_t halves[] = {WEFTI_CALL_FORWARD, WEFTI_CALL_INPUTS,
                             WEFTI_CALL_WEIGHTS};
    const size_t whole[] = {WEFTI_CALL_FORWARD, WEFTI_ORDER_BACKWARD};
    bool apart =
        program->recompute == WEFTI_RECOMPUTE_NONE || !program->together;
    weft_status status = apart ? check_passes(program, halves, 3) : WEFT_OK;
    return status == WEFT_OK ? check_passes(program, whole, 2) : status;
}

static uint64_t mix(uint64_t digest, const void *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) { /* FNV-1a */
        digest =
            (digest ^ ((const uint8_t *)bytes)[i]) * UINT64_C(1099511628211);
    }
    return digest;
}

/* Of the order in which a pass posts to a class: label and kind of block, not
 * which layer. No POST: 0. */
static uint64_t digest_posts(const wefti_program *program,
                             const wefti_order *order, weft_class class_id)
{
    const uint64_t empty = UINT64_C(14695981039346656037);
    uint64_t digest = empty;
    for (size_t i = 0; i < order->count; i++) {
        const wefti_program_step *step = &order->steps[i];
        for (size_t k = 0; k < step->end - step->first; k++) {
            const wefti_node *node = wefti_program_step_node(program, step, k);
            const char *block = program->blocks[node->block].name;
            if (wefti_node_posts(node, step->call, class_id)) {
                digest = mix(digest, block, strlen(block) + 1);
                digest = mix(digest, node->label, strlen(node->label) + 1);
            }
        }
    }
    return digest == empty ? 0 : digest;
}

/* A rank's, pass by pass. */
typedef struct post_digests {
    uint64_t of[WEFTI_ORDERS];
} post_digests;

static weft_status compare_posts(const post_digests *ranks, int nranks,
                                 weft_class class_id)
{
    for (size_t order = 0; order < WEFTI_ORDERS; order++) {
        for (int rank = 1; rank < nranks; rank++) {
            if (ranks[rank].of[order] != ranks[0].of[order]) {
                return wefti_error(
                    WEFT_ERR_INVALID,
                    "program: in %s rank %d posts to class %s in another "
                    "order than rank 0",
                    wefti_order_text(order), rank, weft_class_text(class_id));
            }
        }
    }
    return WEFT_OK;
}

weft_status wefti_program_agree(const wefti_program *program, weft_comm *comm,
                                weft_class class_id)
{
    const int nranks = weft_comm_get_nranks(comm);
    post_digests own, *ranks = calloc((size_t)nranks, sizeof(*ranks));
    if (!ranks) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %d ranks",
                           nranks);
    }
    for (size_t order = 0; order < WEFTI_ORDERS; order++) {
        own.of[order] =
            digest_posts(program, &program->orders[order], class_id);
    }
    weft_status status =
        weft_allgather(&own, ranks, sizeof(own), WEFT_DTYPE_U8, comm, NULL);
    if (status == WEFT_OK) {
        status = compare_posts(ranks, nranks, class_id);
    }
    free(ranks);
    return status;
}
