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
 * What is not kept for the backward is made again by nodes that run again, in
 * their order, before the rest of their block (recompute.h).
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
    WEFTI_REGION_SLOT,     /* from one pass to another; of a micro-batch */
    WEFTI_REGION_FORWARD,  /* between steps of F */
    WEFTI_REGION_INPUTS,   /* of I */
    WEFTI_REGION_WEIGHTS,  /* of W */
    WEFTI_REGION_BACKWARD, /* of B, from I to W of a block */
    WEFTI_REGION_SCRATCH,  /* within one step */
    WEFTI_REGIONS
} wefti_region;

/* A step of F, I or W, counted through all three; of BACKWARD, one of B. */
typedef struct wefti_life {
    size_t first, last;
} wefti_life;

/* A named activation, or its gradient. */
typedef struct wefti_value {
    const char *name; /* within its block */
    size_t block;
    size_t width; /* elements */
    bool by_row;  /* of each token; else of all */
    bool of_part; /* of the tokens of this rank's part alone */
    size_t rows;  /* or one for so many rows of a call */
    bool wide;    /* of real: a statistic, or a sum */
    bool outside; /* is written between passes, by others */
    bool again;   /* in place of one that is not kept */
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
    WEFTI_NODE_POST,    /* starts an operation */
    WEFTI_NODE_AWAIT,   /* ends it; may return INPROGRESS unless args->waits */
    WEFTI_NODE_EXCHANGE /* computes, and begins and ends operations of a class
                         */
} wefti_node_kind;

typedef enum wefti_call {
    WEFTI_CALL_FORWARD,
    WEFTI_CALL_INPUTS,
    WEFTI_CALL_WEIGHTS,
    WEFTI_CALLS
} wefti_call;

/* What it costs to make again what a node has made. */
typedef enum wefti_effort {
    WEFTI_EFFORT_MOST, /* products with weights, transfers */
    WEFTI_EFFORT_NORM,
    WEFTI_EFFORT_ELEMENTS, /* a few operations for each element */
    WEFTI_EFFORT_ATTENTION
} wefti_effort;

/* Which nodes run again instead of their values being kept. */
typedef enum wefti_recompute {
    WEFTI_RECOMPUTE_NONE,
    WEFTI_RECOMPUTE_NORMS,
    WEFTI_RECOMPUTE_SELECTIVE, /* all but those of most effort */
    WEFTI_RECOMPUTE_FULL       /* all of a layer, from its input */
} wefti_recompute;

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
    weft_class class_id; /* of all but COMPUTE */
    const char *label;
    wefti_node_fn *calls[WEFTI_CALLS]; /* NULL: it has none */
    const void *context;               /* the block's own */
    /*
     * F and I of such nodes of one block in a row run together, chunk of rows
     * by chunk: a chunk can be used before the next has arrived.
     */
    bool by_rows;
    bool of_part;   /* its rows are those of this rank's part */
    bool of_others; /* it has other ranks' rows, and runs without own ones */
    /*
     * By rows, the rows of a part at a time: where the step posts, this rank's
     * own part last, else first, as other ranks' are on their way longer.
     */
    bool by_parts;
    /* Joins a POST with its AWAIT; 0 where the other is another stage's. */
    size_t operation;
    wefti_operand operands[WEFTI_NODE_OPERANDS];
    size_t operand_count;
    wefti_node_parameter parameters[WEFTI_NODE_PARAMETERS];
    size_t parameter_count;
    wefti_effort effort;
    /* Set by the program: */
    size_t block;
    size_t origin; /* the block whose node it is; another, if it runs again */
    bool again;    /* I and W call what F does */
} wefti_node;

/* The type of values; of one that is wide, or is not. */
static inline weft_dtype wefti_value_dtype(bool narrow, bool wide)
{
    return narrow && !wide ? WEFT_DTYPE_BF16 : WEFTI_REAL_DTYPE;
}

/* What a call of a node is: of POST and AWAIT, in F. */
wefti_node_kind wefti_node_kind_in(const wefti_node *node, wefti_call call);

/* Whether a call, which the node has, posts to a class. */
bool wefti_node_posts(const wefti_node *node, wefti_call call,
                      weft_class class_id);

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
    bool by_rows, of_part, by_parts;
    bool posts; /* of by_parts */
    bool again; /* its nodes run again */
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
    bool goes_on; /* with the block before: FULL makes both again together */
    bool within;  /* a part of the block before: both are always made so */
} wefti_block_mark;

/*
 * Ranks may share the rows of a micro-batch: part p has the p-th run of them,
 * as many as the first part has, or what the parts before have left.
 */
typedef struct wefti_program {
    size_t parts; /* 0 counts as 1 */
    size_t part;  /* this rank's */
    wefti_value *values;
    size_t value_count;
    wefti_node *nodes;
    size_t node_count;
    wefti_block_mark *blocks;
    size_t block_count;
    size_t operation_count;
    weft_status status; /* the first failure */
    bool narrow;        /* values that are not wide are bf16 */
    /* How it is planned: */
    size_t chunk_rows; /* of steps by rows; 0: WEFTI_PROGRAM_CHUNK_ROWS */
    wefti_recompute recompute;
    bool together; /* I and W run as B alone; of recompute NONE no matter */
    bool keeps;    /* what is dead keeps its place */
    /* Of the plan: */
    size_t rows_most;
    wefti_order orders[WEFTI_ORDERS];
    size_t elems[WEFTI_REGIONS];
} wefti_program;

/* Of a program that says no other. */
enum { WEFTI_PROGRAM_CHUNK_ROWS = 128 };

static inline size_t wefti_program_chunk_rows(const wefti_program *program)
{
    return program->chunk_rows > 0 ? program->chunk_rows
                                   : WEFTI_PROGRAM_CHUNK_ROWS;
}

/* The block begun last goes on with the one before it, or is a part of it. */
void wefti_program_go_on(wefti_program *program);
void wefti_program_go_within(wefti_program *program);

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

/* A value has rows of this rank's part alone. Returns it. */
size_t wefti_program_cut_value(wefti_program *program, size_t value);

/* Rows of the first part of so many, and of this rank's. */
size_t wefti_program_part_rows(const wefti_program *program, size_t rows);
size_t wefti_program_own_rows(const wefti_program *program, size_t rows);

/* Others write a value between passes: it is kept. */
void wefti_program_set_outside(wefti_program *program, size_t value);

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
