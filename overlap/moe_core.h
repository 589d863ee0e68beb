/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/moe_core.h - the object behind weft/moe.h: staging of each hop, what
 * a batch keeps, and the jobs that streams run between operations.
 *
 *   dispatch   pack | hop 0 | forward | hop 1 | expand      one hop: without
 *   combine    reduce | hop 1 | merge | hop 0 | finish      forward and merge
 *
 * What goes towards experts lies in a hop's out at its sender, in its in at its
 * receiver; what comes back goes from in to out, each row in the place of the
 * one that it answers. So counts and order are known both ways from the
 * dispatch on, and only that sends headers.
 *
 * Calls share the staging: each begins where the one before has ended.
 *
 * Where a device computes by kernels, a job's steps are launches of those of
 * kernels/wire/wire_rows.cu, over one hop (moe_device.c). What they keep is the
 * device's memory; counts, which the engine reads and writes, are pinned.
 */
#ifndef OVERLAP_MOE_CORE_H
#define OVERLAP_MOE_CORE_H

#include "kernels/wire/launch.h"
#include "overlap/moe_layout.h"
#include "weft/moe.h"

/* What a row on its way is. */
typedef enum wefti_moe_row {
    WEFTI_MOE_ROW_TOKEN, /* header, and x as dispatch_dtype says */
    WEFTI_MOE_ROW_PLAIN, /* a row of dtype */
    WEFTI_MOE_ROW_SUM,   /* of combine_dtype */
    WEFTI_MOE_ROW_SLOTS, /* an f32 for each slot */
    WEFTI_MOE_ROW_COUNT
} wefti_moe_row;

/* A part for each rank, one after another. */
typedef struct wefti_moe_side {
    void *memory;          /* the device's */
    unsigned char *placed; /* where the host's code finds it */
    size_t *begins;        /* [nranks + 1] bytes */
    size_t *capacity;      /* [nranks] bytes */
} wefti_moe_side;

typedef struct wefti_moe_hop {
    wefti_moe_side out, in;
    size_t *gone, *come; /* [nranks] bytes of the operation under way */
} wefti_moe_hop;

/* What a batch keeps. Rows that came to this rank are counted part by part.
 * Of a device that computes by kernels all of it but rows is in kernels. */
typedef struct wefti_moe_held {
    bool used;
    size_t number; /* among its object's: the chunk of counted */
    uint64_t epoch;
    size_t tokens;
    int32_t *experts;                      /* [tokens][slots]; none is -1 */
    float *weights;                        /* [tokens][slots] */
    size_t *out_rows[WEFTI_MOE_HOPS_MOST]; /* [nranks] */
    size_t *in_rows[WEFTI_MOE_HOPS_MOST];  /* [nranks] */
    int32_t *relayed;   /* [rows in by hop 0][slots] experts; two hops */
    int32_t *places;    /* [rows in by the last hop][slots] in rows; -1 */
    float *row_weights; /* [rows in by the last hop][slots] */
    void *rows;         /* the device's */
    void *rows_placed;
    int32_t *expert_rows; /* pinned */
    wefti_rows_args kernels;
    void *kept; /* the device's: what kernels points to */
} wefti_moe_held;

struct weft_moe {
    weft_moe_config config;
    wefti_moe_layout layout;
    int rank, nranks;
    int experts_here;
    bool by_kernels;
    size_t elem_bytes;
    size_t row_bytes[WEFTI_MOE_ROW_COUNT];
    size_t stride; /* the largest of these */
    wefti_moe_hop hops[WEFTI_MOE_HOPS_MOST];
    wefti_moe_held *held;     /* [batches] */
    size_t *counts;           /* [experts_here][nranks] of an expand */
    size_t *answered;         /* [nranks] of a merge or finish */
    float *products;          /* [rows in by the last hop][slots] */
    float *sum, *part, *term; /* [hidden] */
    weft_gate *counted;       /* [batches] */
    weft_event *done;         /* of the last call */
    weft_stream *own;         /* for callers without one, where the host cannot
                                 read the device */
    void *tables; /* the device's: what all batches' kernels share */
    uint64_t epoch;
};

typedef enum wefti_moe_step {
    WEFTI_MOE_PACK,
    WEFTI_MOE_FORWARD,
    WEFTI_MOE_EXPAND,
    WEFTI_MOE_EXPAND_GRADIENT,
    WEFTI_MOE_REDUCE,
    WEFTI_MOE_MERGE,
    WEFTI_MOE_FINISH
} wefti_moe_step;

/* A step of a call that some stream, or the caller, runs; it owns itself. */
typedef struct wefti_moe_job {
    wefti_moe_step step;
    weft_moe *moe;
    wefti_moe_held *held;
    wefti_moe_row row;
    bool weighted;
    const void *from; /* rows or tokens, as the host's code finds them */
    const void *other;
    void *to;
    const int32_t *expert; /* pack */
    const float *weight;
} wefti_moe_job;

/*
 * Towards experts; row is TOKEN or PLAIN.
 *
 * pack      from: tokens [tokens][hidden], expert and weight of TOKEN.
 * forward   from hop 0's in to hop 1's out.
 * expand    TOKEN: to the batch's rows. PLAIN: to: rows [..][hidden], weighted;
 *           other: y or NULL, for products.
 */
void wefti_moe_pack(const wefti_moe_job *job);
void wefti_moe_forward(const wefti_moe_job *job);
void wefti_moe_expand(const wefti_moe_job *job);
void wefti_moe_expand_gradient(const wefti_moe_job *job);

/*
 * And back; row is SUM or SLOTS.
 *
 * reduce   from: rows [..][hidden] (SLOTS: products), to the last hop's in.
 * merge    from hop 1's out to hop 0's in.
 * finish   to: [tokens][hidden], SLOTS: [tokens][slots] of f32.
 */
void wefti_moe_reduce(const wefti_moe_job *job);
void wefti_moe_merge(const wefti_moe_job *job);
void wefti_moe_finish(const wefti_moe_job *job);

/* Row number i of a part. */
static inline unsigned char *wefti_moe_at(const weft_moe *moe,
                                          const wefti_moe_side *side, int rank,
                                          size_t i, wefti_moe_row row)
{
    return side->placed + side->begins[rank] + i * moe->row_bytes[row];
}

/* What the next operation of a hop sends: so many rows to each rank. */
static inline void wefti_moe_announce(weft_moe *moe, int hop,
                                      const size_t *rows, wefti_moe_row row)
{
    for (int rank = 0; rank < moe->nranks; rank++) {
        moe->hops[hop].gone[rank] = rows[rank] * moe->row_bytes[row];
        moe->hops[hop].come[rank] = 0;
    }
}

/*
 * wefti_moe_device_make - of an object whose hops are made: what kernels need.
 * wefti_moe_device_held - of a batch, whose rows are made.
 * wefti_moe_device_post - a job, on a stream.
 */
WEFT_NODISCARD weft_status wefti_moe_device_make(weft_moe *moe);
WEFT_NODISCARD weft_status wefti_moe_device_held(weft_moe *moe,
                                                 wefti_moe_held *held);
WEFT_NODISCARD weft_status wefti_moe_device_post(weft_stream *stream,
                                                 const wefti_moe_job *job);

/* Fails the communicator, and with it the batch. */
void wefti_moe_fail(weft_moe *moe, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
