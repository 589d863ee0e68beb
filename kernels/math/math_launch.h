/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/math_launch.h - the CUDA kernels of kernels/math: their names
 * and arguments, as whoever launches them must know. The formulas, and the
 * shapes of the arrays, are those of the host's headers beside it (rmsnorm.h
 * and so on); what differs is said here.
 *
 * A kernel is called wefti_math_<op>_<type>, its arrays being f32, bf16 or f64.
 * "wide" is what it computes and sums in: float, and double for f64. Arrays are
 * of the kernel's type unless a structure says wide, double or int32_t. bf16 is
 * rounded once, when it is stored, to nearest, ties to even.
 *
 * Launch shape, of all: any grid, in x only; the result does not depend on it,
 * and a kernel does its work however few blocks there are, so the grid is the
 * budget of multiprocessors. Blocks of 32 to WEFTI_MATH_THREADS threads, a
 * multiple of 32, in x only, and no dynamic shared memory, unless it says
 * otherwise.
 *
 * Every kernel takes one argument, its structure below, by value. It is work of
 * a stream: it allocates nothing, waits for nobody, and what one kernel leaves
 * for the next (a clipping factor, partial sums) stays in device memory, so
 * that the host never waits for a value. Pointers are of memory that the device
 * may access, aligned to their element, and no two arrays overlap unless it
 * says so. Empty shapes are legal and do nothing. All sums have a fixed order:
 * the same arguments give the same bits.
 */
#ifndef KERNELS_MATH_MATH_LAUNCH_H
#define KERNELS_MATH_MATH_LAUNCH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    WEFTI_MATH_THREADS = 256,        /* of a block, at most */
    WEFTI_MATH_DWEIGHT_ROWS = 64,    /* rows that one partial sum is of */
    WEFTI_MATH_HEAD_MOST = 256,      /* elements of a head */
    WEFTI_MATH_ATTENTION_EDGE = 16,  /* threads along a side of a tile */
    WEFTI_MATH_ATTENTION_DEPTH = 32, /* elements of a head at a time */
    WEFTI_MATH_GEMM_TILE = 64,
    WEFTI_MATH_GEMM_DEPTH = 16
};

/*
 * wefti_math_rmsnorm_forward_<type> - rmsnorm.h.
 *
 * y may be x. rstd may be NULL.
 */
typedef struct wefti_math_rmsnorm_forward {
    void *y;
    void *rstd; /* wide */
    const void *x;
    const void *weight;
    size_t rows, width;
    double eps;
} wefti_math_rmsnorm_forward;

/*
 * wefti_math_rmsnorm_backward_<type> - dx.
 *
 * dx may be dy unless accumulate; then launch rmsnorm_dweight, which reads dy
 * too, before.
 */
typedef struct wefti_math_rmsnorm_backward {
    void *dx;
    const void *dy;
    const void *x;
    const void *weight;
    const void *rstd; /* wide */
    size_t rows, width;
    int32_t accumulate;
} wefti_math_rmsnorm_backward;

/*
 * wefti_math_rmsnorm_dweight_<type> - sums of WEFTI_MATH_DWEIGHT_ROWS rows
 * each, in order of rows, for wefti_math_sum_rows to add to dweight.
 *
 * partials  wide, [wefti_math_dweight_partials(rows)][width]; written.
 */
typedef struct wefti_math_rmsnorm_dweight {
    void *partials;
    const void *dy;
    const void *x;
    const void *rstd; /* wide */
    size_t rows, width;
} wefti_math_rmsnorm_dweight;

static inline size_t wefti_math_dweight_partials(size_t rows)
{
    return (rows + WEFTI_MATH_DWEIGHT_ROWS - 1) / WEFTI_MATH_DWEIGHT_ROWS;
}

/* wefti_math_sum_rows_f32, _f64 - sum[i] += rows[t][i], in order of t. */
typedef struct wefti_math_sum_rows {
    void *sum;
    const void *summands;
    size_t rows, width;
} wefti_math_sum_rows;

/*
 * wefti_math_rope_table_f32, _f64 - rope.h's table; angles in double.
 *
 * positions   int32_t [tokens], or NULL: token t stands at first + t.
 */
typedef struct wefti_math_rope_table {
    void *table;
    const int32_t *positions;
    int64_t first;
    size_t tokens, head_size;
    double theta;
} wefti_math_rope_table;

/* wefti_math_rope_turn_<type> - forward, or backward. */
typedef struct wefti_math_rope_turn {
    void *x;
    const void *table; /* wide */
    size_t tokens, heads, head_size;
    size_t x_stride;
    int32_t backward;
} wefti_math_rope_turn;

/* wefti_math_swiglu_forward_<type> - swiglu.h. */
typedef struct wefti_math_swiglu_forward {
    void *out;
    const void *gate;
    const void *up;
    size_t rows, width, stride;
} wefti_math_swiglu_forward;

/* wefti_math_swiglu_backward_<type> - dgate and dup may be gate and up. */
typedef struct wefti_math_swiglu_backward {
    void *dgate;
    void *dup;
    const void *dout;
    const void *gate;
    const void *up;
    size_t rows, width, stride;
} wefti_math_swiglu_backward;

/* wefti_math_fill_<type>, _scale_, _add_ - elementwise.h. */
typedef struct wefti_math_fill {
    void *dst;
    double value;
    size_t elems;
} wefti_math_fill;

typedef struct wefti_math_scale {
    void *dst;
    const void *src;
    double factor;
    size_t elems;
} wefti_math_scale;

typedef struct wefti_math_add {
    void *dst;
    const void *a;
    const void *b;
    size_t elems;
} wefti_math_add;

/*
 * wefti_math_copy_rows_<type> - elementwise.h: copy_rows; with add, add_rows.
 * And _bf16_f32: src in f32.
 */
typedef struct wefti_math_copy_rows {
    void *dst;
    const void *src;
    size_t rows, width, dst_stride, src_stride;
    int32_t add;
} wefti_math_copy_rows;

/* wefti_math_embedding_forward_<type> - embedding.h. Kernels do not read vocab,
 * the rows of the table. */
typedef struct wefti_math_embedding_forward {
    void *out;
    const void *table;
    const int32_t *ids;
    size_t tokens, width, vocab;
} wefti_math_embedding_forward;

/*
 * wefti_math_embedding_backward_<type> - adds in order of t, to wide sums: the
 * host's bits.
 */
typedef struct wefti_math_embedding_backward {
    void *dtable; /* wide */
    const void *dout;
    const int32_t *ids;
    size_t tokens, width, vocab;
} wefti_math_embedding_backward;

/*
 * wefti_math_cross_entropy_<type> - cross_entropy.h; logits are read twice and
 * never copied. dlogits may be logits, or NULL.
 */
typedef struct wefti_math_cross_entropy {
    void *loss; /* wide */
    void *dlogits;
    const void *logits;
    const int32_t *targets;
    size_t tokens, vocab;
    double scale;
} wefti_math_cross_entropy;

/* wefti_math_softmax_part_<type> - cross_entropy.h. */
typedef struct wefti_math_softmax_part {
    void *summary; /* wide */
    const void *logits;
    const int32_t *targets;
    size_t tokens, vocab;
} wefti_math_softmax_part;

/* wefti_math_cross_entropy_part_<type> - cross_entropy.h. dlogits may be
 * logits, or NULL. */
typedef struct wefti_math_cross_entropy_part {
    void *loss; /* wide */
    void *dlogits;
    const void *logits;
    const int32_t *targets;
    const void *parts; /* wide */
    size_t part_count, part_elems;
    size_t tokens, vocab;
    double scale;
} wefti_math_cross_entropy_part;

/* What all elements of an AdamW step have in common, by the host. */
typedef struct wefti_math_adamw_step {
    double beta1, rest1, beta2, rest2; /* rest: 1 - beta */
    double grad_scale, eps;
    double decay;    /* lr weight_decay */
    double m_factor; /* lr / (1 - beta1^step) */
    double v_factor; /* 1 / sqrt(1 - beta2^step) */
} wefti_math_adamw_step;

/*
 * wefti_math_adamw_f32, _f64   - adamw.h; gradients of the same type.
 * wefti_math_adamw_bf16        - the same over masters in f32, of which param
 *                                is the rounding; gradients in bf16,
 * wefti_math_adamw_bf16_f32    - or in f32.
 *
 * param        of the kernel's type, written; NULL: there are only masters.
 * master m v   wide, updated.
 * grad_factor  in device memory, as wefti_math_clip leaves it; NULL: 1.
 */
typedef struct wefti_math_adamw {
    void *param;
    void *master;
    void *m;
    void *v;
    const void *grad;
    const double *grad_factor;
    size_t elems;
    wefti_math_adamw_step step;
} wefti_math_adamw;

/* wefti_math_sumsq_<type> - sumsq.h: the host's bits, but for f64. */
typedef struct wefti_math_sumsq {
    double *partials;
    const void *x;
    size_t elems;
} wefti_math_sumsq;

/*
 * wefti_math_clip_f64 - from the partial sums of all of the gradient, in order,
 * its norm, and the factor that brings it down to the largest one allowed.
 *
 * norm      sqrt(sum of partials) scale.
 * factor    most / norm where norm > most > 0, else 1.
 *
 * The sum is by 256 lanes, lane l adding partials l, l + 256 and so on, then
 * warps' lanes as sumsq.h's are, then warps in order; the host's is first to
 * last. It keeps one block busy, whatever the launch.
 */
typedef struct wefti_math_clip {
    double *norm;
    double *factor;
    const double *partials;
    size_t count;
    double scale;
    double most; /* 0: no limit */
} wefti_math_clip;

/*
 * wefti_math_totals_<type> - the sum of each row in double, first to last: the
 * host's bits.
 */
typedef struct wefti_math_totals {
    double *totals; /* [rows] */
    const void *x;
    size_t rows, width;
} wefti_math_totals;

/*
 * attention.h, for several sequences of one length in one launch: sequence s
 * begins at token s q_tokens of q, o and lse, and at s kv_tokens of k and v.
 */
typedef struct wefti_math_attention_shape {
    size_t sequences, q_tokens, kv_tokens;
    size_t heads, kv_heads;
    size_t head_size; /* to WEFTI_MATH_HEAD_MOST; to half of it in f64 */
    size_t q_stride, kv_stride, o_stride;
    double scale;
    int64_t causal_offset;
    int32_t causal;
} wefti_math_attention_shape;

/*
 * Launch shape of attention_forward, _dq and _dkdv: WEFTI_MATH_THREADS threads,
 * this much dynamic shared memory: at most 48 KiB, which needs no attribute.
 * A block has so many queries, or keys, of a head.
 */
static inline size_t wefti_math_attention_tile(size_t wide_bytes)
{
    return WEFTI_MATH_ATTENTION_EDGE * 16 / wide_bytes;
}

static inline size_t wefti_math_attention_shared_bytes(size_t wide_bytes)
{
    const size_t tile = wefti_math_attention_tile(wide_bytes);
    return tile *
           (2 * WEFTI_MATH_ATTENTION_DEPTH + tile + 3 * (16 / wide_bytes)) *
           wide_bytes;
}

/*
 * wefti_math_attention_forward_<type>, and _bf16_f32: o in f32, which is then
 * rounded once however many blocks are merged.
 */
typedef struct wefti_math_attention_forward {
    void *o;
    void *lse; /* wide */
    const void *q;
    const void *k;
    const void *v;
    wefti_math_attention_shape shape;
    int32_t merge;
} wefti_math_attention_forward;

/*
 * wefti_math_attention_merge_<type> - o and lse become those over the keys of
 * both results, which must be different keys; other_o is laid out as o. As
 * kernels with merge = true do, for a result that comes from elsewhere.
 */
typedef struct wefti_math_attention_merge {
    void *o;
    void *lse; /* wide */
    const void *other_o;
    const void *other_lse; /* wide */
    size_t tokens, heads, head_size, o_stride;
} wefti_math_attention_merge;

/* wefti_math_attention_delta_<type>, and _bf16_f32: o in f32. tokens: of all
 * sequences. */
typedef struct wefti_math_attention_delta {
    void *delta; /* wide */
    const void *o;
    const void *dout;
    size_t tokens, heads, head_size, o_stride;
} wefti_math_attention_delta;

/*
 * wefti_math_attention_dq_<type>, wefti_math_attention_dkdv_<type>, and
 * _bf16_f32: gradients in f32, to be added to by many blocks. The two together
 * are the host's backward, in any order; each reads of dq, dk and dv what it
 * writes.
 *
 * accumulate  true: added to what is there; false: written.
 */
typedef struct wefti_math_attention_backward {
    void *dq;
    void *dk;
    void *dv;
    const void *dout;
    const void *q;
    const void *k;
    const void *v;
    const void *lse;   /* wide */
    const void *delta; /* wide */
    wefti_math_attention_shape shape;
    int32_t accumulate;
} wefti_math_attention_backward;

/*
 * wefti_math_gemm_<type> - gemm.h, and _bf16_f32: C in f32, as sums over many
 * products want it. An element's bits depend on its row and column only.
 *
 * Launch shape: WEFTI_MATH_THREADS threads, this much dynamic shared memory.
 */
typedef struct wefti_math_gemm {
    void *c;
    const void *a;
    const void *b;
    size_t m, n, k;
    size_t lda, ldb, ldc;
    double alpha, beta;
    int32_t transpose_a, transpose_b;
} wefti_math_gemm;

static inline size_t wefti_math_gemm_shared_bytes(size_t wide_bytes)
{
    return 2 * (size_t)WEFTI_MATH_GEMM_DEPTH * (WEFTI_MATH_GEMM_TILE + 1) *
           wide_bytes;
}

/* wefti_math_route_forward_<type> - route.h. */
typedef struct wefti_math_route_forward {
    void *affinity; /* wide */
    int32_t *expert;
    void *weight;       /* wide */
    const void *logits; /* wide */
    const void *bias;
    size_t tokens, experts, slots, groups, group_limit;
} wefti_math_route_forward;

/* wefti_math_route_backward_f32, _f64. */
typedef struct wefti_math_route_backward {
    void *dlogits;
    const void *dweight;
    const void *affinity;
    const int32_t *expert;
    size_t tokens, experts, slots;
} wefti_math_route_backward;

/*
 * experts.h; _order and _load, which have no reals, are f64. Weights of slots
 * are wide. Kernels read counts in device memory; rows: how many there is room
 * for.
 */
typedef struct wefti_math_expert_order {
    int32_t *counts;
    int32_t *place;
    const int32_t *expert;
    size_t tokens, slots, experts;
} wefti_math_expert_order;

typedef struct wefti_math_expert_load {
    double *load;
    const int32_t *expert;
    size_t tokens, slots, experts;
} wefti_math_expert_load;

typedef struct wefti_math_expert_spread {
    void *rows_at;
    const void *x;
    const int32_t *place;
    const void *weight; /* or NULL */
    size_t tokens, slots, width, rows;
} wefti_math_expert_spread;

typedef struct wefti_math_expert_collect {
    void *x;
    const void *rows_at;
    const int32_t *place;
    const void *weight; /* or NULL */
    size_t tokens, slots, width, rows;
} wefti_math_expert_collect;

typedef struct wefti_math_expert_dots {
    void *dweight;
    const void *rows_at;
    const void *dx;
    const int32_t *place;
    size_t tokens, slots, width, rows;
} wefti_math_expert_dots;

/* Launch shape: wefti_math_gemm's. product: a wefti_expert_product. And
 * _bf16_f32: the matrix in f32, where it is written. */
typedef struct wefti_math_expert_gemm {
    void *x;
    void *y;
    void *weight;
    const int32_t *counts;
    size_t experts, inputs, outputs, rows;
    int32_t product;
} wefti_math_expert_gemm;

typedef struct wefti_math_expert_gate {
    void *out;
    const void *gate_up;
    const int32_t *counts;
    size_t experts, width, rows;
} wefti_math_expert_gate;

typedef struct wefti_math_expert_gate_backward {
    void *d_gate_up;
    const void *dout;
    const void *gate_up;
    const int32_t *counts;
    size_t experts, width, rows;
} wefti_math_expert_gate_backward;

#ifdef __cplusplus
}
#endif

#endif
