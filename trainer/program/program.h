/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/program/program.h - the inside of a stage as data: values, and nodes
 * that read and write them, in the order of the forward pass.
 *
 *   blocks:   attention 0            ffn 0                  attention 1
 *   nodes:    norm qkv attend out    norm gate_up .. down   norm qkv ...
 *
 *   F  forward            the nodes in order
 *   I  input gradients    the nodes backwards
 *   W  weight gradients   the nodes backwards, any time after I
 *   B  I and W            block by block: I of its nodes, then W of them
 *
 * A node is left out of a pass for which it has no call. In I a POST awaits and
 * an AWAIT posts: what goes one way in F comes back the other way.
 *
 * Blocks append their values and nodes; wefti_program_plan (program_plan.h)
 * finds from what each call reads and writes how long a value lives, and lays
 * out memory. Nothing here knows a model.
 */
#ifndef TRAINER_PROGRAM_PROGRAM_H
#define TRAINER_PROGRAM_PROGRAM_H

#include "kernels/math/real.h"
#include "weft/status.h"
#include "weft/types.h"

#include <stdbool.h>
#include <stddef.h>

/* ---- values ---------------------------------------------------------------
 */

/* Where a value lies: by how long it lives. */
typedef enum wefti_region {
    WEFTI_REGION_SLOT,    /* from one pass to another; of a micro-batch */
    WEFTI_REGION_FORWARD, /* between steps of F */
    WEFTI_REGION_INPUTS,  /* of I */
    WEFTI_REGION_WEIGHTS, /* of W */
    WEFTI_REGION_SCRATCH, /* within one step */
    WEFTI_REGIONS
} wefti_region;

/* A step of F, I or W, counted through all three. */
typedef struct wefti_life {
    size_t first, last;
} wefti_life;

/* A named activation, or its gradient. */
typedef struct wefti_value {
    const char *name; /* within its block */
    size_t block;
    size_t width; /* elements */
    bool by_row;  /* of each token; else of all */
    size_t rows;  /* or one for so many rows of a call */
    bool wide;    /* of real: a statistic, or a sum */
    /* Of the plan: */
    wefti_region region;
    bool used;
    bool of_chunk;                   /* holds a chunk's rows, not all */
    bool is_taken_over, is_released; /* its place, after its life */
    wefti_life life;
    size_t elems, start_elems; /* in its region, of real */
} wefti_value;

/* ---- nodes ----------------------------------------------------------------
 */

typedef enum wefti_node_kind {
    WEFTI_NODE_COMPUTE,
    WEFTI_NODE_POST, /* starts an operation */
    WEFTI_NODE_AWAIT /* ends it; may return INPROGRESS unless args->waits */
} wefti_node_kind;

typedef enum wefti_call {
    WEFTI_CALL_FORWARD,
    WEFTI_CALL_INPUTS,
    WEFTI_CALL_WEIGHTS,
    WEFTI_CALLS
} wefti_call;

/* How a node's calls use an operand. */
enum {
    WEFTI_F_READS = 1,
    WEFTI_F_WRITES = 2,
    WEFTI_I_READS = 4,
    WEFTI_I_WRITES = 8,
    WEFTI_W_READS = 16,
    WEFTI_W_WRITES = 32,
    /* It may be written where the operand before it was, which ends there. */
    WEFTI_IN_PLACE = 64
};

typedef struct wefti_operand {
    size_t value;
    unsigned use;
} wefti_operand;

typedef struct wefti_node_parameter {
    size_t tensor;
    size_t group;
    size_t start_elems; /* in the group's array */
    bool shared;        /* another node reports it to hooks */
} wefti_node_parameter;

enum { WEFTI_NODE_OPERANDS = 10, WEFTI_NODE_PARAMETERS = 2 };

typedef struct wefti_node_args wefti_node_args; /* program_run.h */
typedef weft_status wefti_node_fn(const wefti_node_args *args);

typedef struct wefti_node {
    wefti_node_kind kind;
    weft_class class_id; /* of POST and AWAIT */
    const char *label;
    wefti_node_fn *calls[WEFTI_CALLS]; /* NULL: it has none */
    const void *context;               /* the block's own */
    /*
     * F and I of such nodes of one block in a row run together, chunk of rows
     * by chunk: a chunk can be used before the next has arrived.
     */
    bool by_rows;
    /* Joins a POST with its AWAIT; 0 where the other is another stage's. */
    size_t operation;
    wefti_operand operands[WEFTI_NODE_OPERANDS];
    size_t operand_count;
    wefti_node_parameter parameters[WEFTI_NODE_PARAMETERS];
    size_t parameter_count;
    size_t block; /* set by the program */
} wefti_node;

/* The type of values; of one that is wide, or is not. */
static inline weft_dtype wefti_value_dtype(bool narrow, bool wide)
{
    return narrow && !wide ? WEFT_DTYPE_BF16 : WEFTI_REAL_DTYPE;
}

/* Whether a call of a node is a COMPUTE, a POST or an AWAIT. */
wefti_node_kind wefti_node_kind_in(const wefti_node *node, wefti_call call);

/* Whether a call of a node uses its i-th operand. */
static inline bool wefti_node_reads(const wefti_node *node, size_t i,
                                    wefti_call call)
{
    return node->operands[i].use >> (2 * call) & WEFTI_F_READS;
}

static inline bool wefti_node_writes(const wefti_node *node, size_t i,
                                     wefti_call call)
{
    return node->operands[i].use >> (2 * call) & WEFTI_F_WRITES;
}

/* ---- the program ----------------------------------------------------------
 */

/* Nodes that run together: one, or several chunk by chunk. */
typedef struct wefti_program_step {
    wefti_call call;
    size_t first, end; /* of the nodes; last to first unless F */
    bool by_rows;
    size_t block;
} wefti_program_step;

typedef struct wefti_order {
    wefti_program_step *steps;
    size_t count;
} wefti_order;

enum { WEFTI_ORDER_BACKWARD = WEFTI_CALLS, WEFTI_ORDERS }; /* or a call */

typedef struct wefti_block_mark {
    const char *name;
    size_t layer;
} wefti_block_mark;

typedef struct wefti_program {
    wefti_value *values;
    size_t value_count;
    wefti_node *nodes;
    size_t node_count;
    wefti_block_mark *blocks;
    size_t block_count;
    size_t operation_count;
    weft_status status; /* the first failure */
    bool narrow;        /* values that are not wide are bf16 */
    /* Of the plan: */
    size_t rows_most;
    wefti_order orders[WEFTI_ORDERS];
    size_t elems[WEFTI_REGIONS];
} wefti_program;

enum { WEFTI_PROGRAM_CHUNK_ROWS = 128 };

/*
 * What is appended belongs to the block begun last. After a failure, no memory,
 * they do nothing, and status stays.
 */
void wefti_program_begin_block(wefti_program *program, const char *name,
                               size_t layer);

/* name is borrowed. Returns the value's number. */
size_t wefti_program_add_value(wefti_program *program, const char *name,
                               size_t width, bool by_row);

/* The same of real, however narrow the others are. */
size_t wefti_program_add_wide(wefti_program *program, const char *name,
                              size_t width, bool by_row);

/* And with a row of width for so many rows of a call: sums of parts. */
size_t wefti_program_add_partials(wefti_program *program, const char *name,
                                  size_t width, size_t rows);

/* A copy of node. */
void wefti_program_add_node(wefti_program *program, const wefti_node *node);

/* A number for a POST and its AWAIT. */
size_t wefti_program_add_operation(wefti_program *program);

/* A step's i-th node, in the step's order; it may lack the call. */
const wefti_node *wefti_program_step_node(const wefti_program *program,
                                          const wefti_program_step *step,
                                          size_t i);

void wefti_program_fini(wefti_program *program);

#endif
