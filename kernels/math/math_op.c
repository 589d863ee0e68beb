/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/math_op.c - what each kernel of math_launch.h touches.
 */
#include "kernels/math/math_op.h"

#include "kernels/math/cross_entropy.h"
#include "kernels/math/experts.h"
#include "kernels/math/sumsq.h"

#include <stdio.h>
#include <string.h>

enum { WARPS = WEFTI_MATH_THREADS / 32 };

/* The types of a kernel's arrays. */
typedef enum element { OWN, MIXED, WIDE, DOUBLE, INDEX } element;
typedef enum access { READ = 1, WRITE = 2, UPDATE = 3 } access;

typedef struct list {
    wefti_math_type type;
    const char *args;
    wefti_math_use *uses;
    size_t count;
    wefti_math_cut cut;
} list;

static weft_dtype dtype_of(wefti_math_type type, element of)
{
    static const weft_dtype own[] = {WEFT_DTYPE_F32, WEFT_DTYPE_BF16,
                                     WEFT_DTYPE_F64, WEFT_DTYPE_BF16};
    switch (of) {
    case DOUBLE:
        return WEFT_DTYPE_F64;
    case INDEX:
        return WEFT_DTYPE_I32;
    case WIDE:
        return type == WEFTI_MATH_F64 ? WEFT_DTYPE_F64 : WEFT_DTYPE_F32;
    case MIXED:
        return type == WEFTI_MATH_BF16_F32 ? WEFT_DTYPE_F32 : own[type];
    default:
        return own[type];
    }
}

/* The units that the arrays named next are cut into. */
static void cut(list *l, const size_t *count, size_t per_unit)
{
    l->cut = (wefti_math_cut){.units = (*count + per_unit - 1) / per_unit,
                              .place = (size_t)((const char *)count - l->args),
                              .per_unit = per_unit};
}

/* Rows of width elements, stride apart. */
static void use_rows(list *l, const void *place, element of, access how,
                     size_t rows, size_t width, size_t stride)
{
    l->uses[l->count++] = (wefti_math_use){
        .place = (size_t)((const char *)place - l->args),
        .dtype = dtype_of(l->type, of),
        .reads = (how & READ) != 0,
        .writes = (how & WRITE) != 0,
        .rows = rows,
        .width = width,
        .stride = stride,
        .step = l->cut.units > 0 ? rows / l->cut.units * stride : 0};
}

/* The same for all units. */
static void use_whole(list *l, const void *place, element of, access how,
                      size_t elems)
{
    use_rows(l, place, of, how, 1, elems, elems);
    l->uses[l->count - 1].step = 0;
}

/* Of each unit per_unit elements; the last may have fewer. */
static void use_parts(list *l, const void *place, element of, access how,
                      size_t elems, size_t per_unit)
{
    use_whole(l, place, of, how, elems);
    l->uses[l->count - 1].step = per_unit;
}

static void use(list *l, const void *place, element of, access how,
                size_t elems)
{
    use_parts(l, place, of, how, elems,
              l->cut.units > 0 ? elems / l->cut.units : 0);
}

static void of_fill(list *l, const wefti_math_fill *a)
{
    cut(l, &a->elems, 1);
    use(l, &a->dst, OWN, WRITE, a->elems);
}

static void of_scale(list *l, const wefti_math_scale *a)
{
    cut(l, &a->elems, 1);
    use(l, &a->dst, OWN, WRITE, a->elems);
    use(l, &a->src, OWN, READ, a->elems);
}

static void of_add(list *l, const wefti_math_add *a)
{
    cut(l, &a->elems, 1);
    use(l, &a->dst, OWN, WRITE, a->elems);
    use(l, &a->a, OWN, READ, a->elems);
    use(l, &a->b, OWN, READ, a->elems);
}

static void of_copy_rows(list *l, const wefti_math_copy_rows *a)
{
    cut(l, &a->rows, 1);
    use_rows(l, &a->dst, OWN, a->add ? UPDATE : WRITE, a->rows, a->width,
             a->dst_stride);
    use_rows(l, &a->src, MIXED, READ, a->rows, a->width, a->src_stride);
}

static void of_rmsnorm_forward(list *l, const wefti_math_rmsnorm_forward *a)
{
    cut(l, &a->rows, 1);
    use(l, &a->y, OWN, WRITE, a->rows * a->width);
    use(l, &a->rstd, WIDE, WRITE, a->rows);
    use(l, &a->x, OWN, READ, a->rows * a->width);
    use_whole(l, &a->weight, OWN, READ, a->width);
}

static void of_rmsnorm_backward(list *l, const wefti_math_rmsnorm_backward *a)
{
    cut(l, &a->rows, 1);
    use(l, &a->dx, OWN, a->accumulate ? UPDATE : WRITE, a->rows * a->width);
    use(l, &a->dy, OWN, READ, a->rows * a->width);
    use(l, &a->x, OWN, READ, a->rows * a->width);
    use_whole(l, &a->weight, OWN, READ, a->width);
    use(l, &a->rstd, WIDE, READ, a->rows);
}

static void of_rmsnorm_dweight(list *l, const wefti_math_rmsnorm_dweight *a)
{
    use(l, &a->partials, WIDE, WRITE,
        wefti_math_dweight_partials(a->rows) * a->width);
    use(l, &a->dy, OWN, READ, a->rows * a->width);
    use(l, &a->x, OWN, READ, a->rows * a->width);
    use(l, &a->rstd, WIDE, READ, a->rows);
}

static void of_sum_rows(list *l, const wefti_math_sum_rows *a)
{
    use(l, &a->sum, OWN, UPDATE, a->width);
    use(l, &a->summands, OWN, READ, a->rows * a->width);
}

static void of_rope_table(list *l, const wefti_math_rope_table *a)
{
    use(l, &a->table, OWN, WRITE, a->tokens * a->head_size);
    use(l, &a->positions, INDEX, READ, a->tokens);
}

static void of_rope_turn(list *l, const wefti_math_rope_turn *a)
{
    cut(l, &a->tokens, 1);
    use_rows(l, &a->x, OWN, UPDATE, a->tokens, a->heads * a->head_size,
             a->x_stride);
    use(l, &a->table, WIDE, READ, a->tokens * a->head_size);
}

static void of_swiglu_forward(list *l, const wefti_math_swiglu_forward *a)
{
    cut(l, &a->rows, 1);
    use(l, &a->out, OWN, WRITE, a->rows * a->width);
    use_rows(l, &a->gate, OWN, READ, a->rows, a->width, a->stride);
    use_rows(l, &a->up, OWN, READ, a->rows, a->width, a->stride);
}

static void of_swiglu_backward(list *l, const wefti_math_swiglu_backward *a)
{
    cut(l, &a->rows, 1);
    use_rows(l, &a->dgate, OWN, WRITE, a->rows, a->width, a->stride);
    use_rows(l, &a->dup, OWN, WRITE, a->rows, a->width, a->stride);
    use(l, &a->dout, OWN, READ, a->rows * a->width);
    use_rows(l, &a->gate, OWN, READ, a->rows, a->width, a->stride);
    use_rows(l, &a->up, OWN, READ, a->rows, a->width, a->stride);
}

static void of_embedding_forward(list *l, const wefti_math_embedding_forward *a)
{
    cut(l, &a->tokens, 1);
    use(l, &a->out, OWN, WRITE, a->tokens * a->width);
    use_whole(l, &a->table, OWN, READ, a->vocab * a->width);
    use(l, &a->ids, INDEX, READ, a->tokens);
}

static void of_embedding_backward(list *l,
                                  const wefti_math_embedding_backward *a)
{
    cut(l, &a->tokens, 1);
    use_whole(l, &a->dtable, WIDE, UPDATE, a->vocab * a->width);
    use(l, &a->dout, OWN, READ, a->tokens * a->width);
    use(l, &a->ids, INDEX, READ, a->tokens);
}

static void of_cross_entropy(list *l, const wefti_math_cross_entropy *a)
{
    cut(l, &a->tokens, 1);
    use(l, &a->loss, WIDE, WRITE, a->tokens);
    use(l, &a->dlogits, OWN, WRITE, a->tokens * a->vocab);
    use(l, &a->logits, OWN, READ, a->tokens * a->vocab);
    use(l, &a->targets, INDEX, READ, a->tokens);
}

static void of_softmax_part(list *l, const wefti_math_softmax_part *a)
{
    cut(l, &a->tokens, 1);
    use(l, &a->summary, WIDE, WRITE, a->tokens * WEFTI_CROSS_ENTROPY_SUMMARY);
    use(l, &a->logits, OWN, READ, a->tokens * a->vocab);
    use(l, &a->targets, INDEX, READ, a->tokens);
}

static void of_cross_entropy_part(list *l,
                                  const wefti_math_cross_entropy_part *a)
{
    cut(l, &a->tokens, 1);
    use(l, &a->loss, WIDE, WRITE, a->tokens);
    use(l, &a->dlogits, OWN, WRITE, a->tokens * a->vocab);
    use(l, &a->logits, OWN, READ, a->tokens * a->vocab);
    use(l, &a->targets, INDEX, READ, a->tokens);
    use_rows(l, &a->parts, WIDE, READ, a->part_count,
             a->tokens * WEFTI_CROSS_ENTROPY_SUMMARY, a->part_elems);
    l->uses[l->count - 1].step = WEFTI_CROSS_ENTROPY_SUMMARY;
}

static void of_adamw(list *l, const wefti_math_adamw *a)
{
    cut(l, &a->elems, 1);
    use(l, &a->param, OWN, WRITE, a->elems);
    use(l, &a->master, WIDE, UPDATE, a->elems);
    use(l, &a->m, WIDE, UPDATE, a->elems);
    use(l, &a->v, WIDE, UPDATE, a->elems);
    use(l, &a->grad, MIXED, READ, a->elems);
    use_whole(l, &a->grad_factor, DOUBLE, READ, 1);
}

static void of_sumsq(list *l, const wefti_math_sumsq *a)
{
    cut(l, &a->elems, WEFTI_SUMSQ_BLOCK);
    use_parts(l, &a->partials, DOUBLE, WRITE, wefti_sumsq_blocks(a->elems), 1);
    use_parts(l, &a->x, OWN, READ, a->elems, WEFTI_SUMSQ_BLOCK);
}

static void of_clip(list *l, const wefti_math_clip *a)
{
    use(l, &a->norm, DOUBLE, WRITE, 1);
    use(l, &a->factor, DOUBLE, WRITE, 1);
    use(l, &a->partials, DOUBLE, READ, a->count);
}

static void of_totals(list *l, const wefti_math_totals *a)
{
    cut(l, &a->rows, 1);
    use(l, &a->totals, DOUBLE, WRITE, a->rows);
    use(l, &a->x, OWN, READ, a->rows * a->width);
}

static void use_queries(list *l, const void *place, element of, access how,
                        const wefti_math_attention_shape *s, size_t stride)
{
    use_rows(l, place, of, how, s->sequences * s->q_tokens,
             s->heads * s->head_size, stride);
}

static void use_keys(list *l, const void *place, element of, access how,
                     const wefti_math_attention_shape *s)
{
    use_rows(l, place, of, how, s->sequences * s->kv_tokens,
             s->kv_heads * s->head_size, s->kv_stride);
}

static void of_attention_forward(list *l, const wefti_math_attention_forward *a)
{
    const wefti_math_attention_shape *s = &a->shape;
    access how = a->merge ? UPDATE : WRITE;
    cut(l, &a->shape.sequences, 1);
    use_queries(l, &a->o, MIXED, how, s, s->o_stride);
    use(l, &a->lse, WIDE, how, s->sequences * s->q_tokens * s->heads);
    use_queries(l, &a->q, OWN, READ, s, s->q_stride);
    use_keys(l, &a->k, OWN, READ, s);
    use_keys(l, &a->v, OWN, READ, s);
}

static void of_attention_merge(list *l, const wefti_math_attention_merge *a)
{
    cut(l, &a->tokens, 1);
    size_t width = a->heads * a->head_size;
    use_rows(l, &a->o, OWN, UPDATE, a->tokens, width, a->o_stride);
    use(l, &a->lse, WIDE, UPDATE, a->tokens * a->heads);
    use_rows(l, &a->other_o, OWN, READ, a->tokens, width, a->o_stride);
    use(l, &a->other_lse, WIDE, READ, a->tokens * a->heads);
}

static void of_attention_delta(list *l, const wefti_math_attention_delta *a)
{
    cut(l, &a->tokens, 1);
    size_t width = a->heads * a->head_size;
    use(l, &a->delta, WIDE, WRITE, a->tokens * a->heads);
    use_rows(l, &a->o, MIXED, READ, a->tokens, width, a->o_stride);
    use_rows(l, &a->dout, OWN, READ, a->tokens, width, a->o_stride);
}

/* What both halves of the backward read. */
static void use_backward(list *l, const wefti_math_attention_backward *a)
{
    const wefti_math_attention_shape *s = &a->shape;
    size_t queries = s->sequences * s->q_tokens * s->heads;
    use_queries(l, &a->dout, OWN, READ, s, s->o_stride);
    use_queries(l, &a->q, OWN, READ, s, s->q_stride);
    use_keys(l, &a->k, OWN, READ, s);
    use_keys(l, &a->v, OWN, READ, s);
    use(l, &a->lse, WIDE, READ, queries);
    use(l, &a->delta, WIDE, READ, queries);
}

static void of_attention_dq(list *l, const wefti_math_attention_dq *a)
{
    use_queries(l, &a->dq, MIXED, a->accumulate ? UPDATE : WRITE, &a->shape,
                a->shape.q_stride);
    use_backward(l, a);
}

static void of_attention_dkdv(list *l, const wefti_math_attention_dkdv *a)
{
    access how = a->accumulate ? UPDATE : WRITE;
    use_keys(l, &a->dk, MIXED, how, &a->shape);
    use_keys(l, &a->dv, MIXED, how, &a->shape);
    use_backward(l, a);
}

static void of_attention_backward(list *l,
                                  const wefti_math_attention_backward *a)
{
    cut(l, &a->shape.sequences, 1);
    use_queries(l, &a->dq, MIXED, a->accumulate ? UPDATE : WRITE, &a->shape,
                a->shape.q_stride);
    of_attention_dkdv(l, a);
}

static void of_rmsnorm_gradients(list *l, const wefti_math_rmsnorm_gradients *a)
{
    of_rmsnorm_backward(l, &a->of);
    use_whole(l, &a->dweight, WIDE, UPDATE, a->of.width);
}

static void of_adamw_update(list *l, const wefti_math_adamw_update *a)
{
    of_adamw(l, &a->of);
}

static void of_gemm(list *l, const wefti_math_gemm *a)
{
    bool ta = a->transpose_a != 0, tb = a->transpose_b != 0;
    use_rows(l, &a->c, MIXED, a->beta == 0 ? WRITE : UPDATE, a->m, a->n,
             a->ldc);
    use_rows(l, &a->a, OWN, READ, ta ? a->k : a->m, ta ? a->m : a->k, a->lda);
    use_rows(l, &a->b, OWN, READ, tb ? a->n : a->k, tb ? a->k : a->n, a->ldb);
}

static void of_route_forward(list *l, const wefti_math_route_forward *a)
{
    cut(l, &a->tokens, 1);
    use(l, &a->affinity, WIDE, WRITE, a->tokens * a->experts);
    use(l, &a->expert, INDEX, WRITE, a->tokens * a->slots);
    use(l, &a->weight, WIDE, WRITE, a->tokens * a->slots);
    use(l, &a->logits, WIDE, READ, a->tokens * a->experts);
    use_whole(l, &a->bias, OWN, READ, a->experts);
}

static void of_route_backward(list *l, const wefti_math_route_backward *a)
{
    use(l, &a->dlogits, OWN, WRITE, a->tokens * a->experts);
    use(l, &a->dweight, OWN, READ, a->tokens * a->slots);
    use(l, &a->affinity, OWN, READ, a->tokens * a->experts);
    use(l, &a->expert, INDEX, READ, a->tokens * a->slots);
}

static void of_expert_order(list *l, const wefti_math_expert_order *a)
{
    use(l, &a->counts, INDEX, WRITE, a->experts);
    use(l, &a->place, INDEX, WRITE, a->tokens * a->slots);
    use(l, &a->expert, INDEX, READ, a->tokens * a->slots);
}

static void of_expert_load(list *l, const wefti_math_expert_load *a)
{
    use(l, &a->load, DOUBLE, UPDATE, a->experts);
    use(l, &a->expert, INDEX, READ, a->tokens * a->slots);
}

/* Rows that no slot has stay as they are. */
static void of_expert_spread(list *l, const wefti_math_expert_spread *a)
{
    use(l, &a->rows_at, OWN, UPDATE, a->rows * a->width);
    use(l, &a->x, OWN, READ, a->tokens * a->width);
    use(l, &a->place, INDEX, READ, a->tokens * a->slots);
    use(l, &a->weight, WIDE, READ, a->tokens * a->slots);
}

static void of_expert_collect(list *l, const wefti_math_expert_collect *a)
{
    use(l, &a->x, OWN, WRITE, a->tokens * a->width);
    use(l, &a->rows_at, OWN, READ, a->rows * a->width);
    use(l, &a->place, INDEX, READ, a->tokens * a->slots);
    use(l, &a->weight, WIDE, READ, a->tokens * a->slots);
}

static void of_expert_dots(list *l, const wefti_math_expert_dots *a)
{
    use(l, &a->dweight, WIDE, WRITE, a->tokens * a->slots);
    use(l, &a->rows_at, OWN, READ, a->rows * a->width);
    use(l, &a->dx, OWN, READ, a->tokens * a->width);
    use(l, &a->place, INDEX, READ, a->tokens * a->slots);
}

static void of_expert_gemm(list *l, const wefti_math_expert_gemm *a)
{
    const bool forward = a->product == WEFTI_EXPERT_FORWARD;
    const bool inputs = a->product == WEFTI_EXPERT_INPUTS;
    const bool weights = a->product == WEFTI_EXPERT_WEIGHTS;
    use_rows(l, &a->x, OWN, inputs ? UPDATE : READ, a->rows, a->inputs,
             a->inputs);
    use_rows(l, &a->y, OWN, forward ? UPDATE : READ, a->rows, a->outputs,
             a->outputs);
    use_rows(l, &a->weight, MIXED, weights ? WRITE : READ,
             a->experts * a->outputs, a->inputs, a->inputs);
    use(l, &a->counts, INDEX, READ, a->experts);
}

static void of_expert_gate(list *l, const wefti_math_expert_gate *a)
{
    use(l, &a->out, OWN, UPDATE, a->rows * a->width);
    use(l, &a->gate_up, OWN, READ, a->rows * 2 * a->width);
    use(l, &a->counts, INDEX, READ, a->experts);
}

static void of_expert_gate_backward(list *l,
                                    const wefti_math_expert_gate_backward *a)
{
    use(l, &a->d_gate_up, OWN, UPDATE, a->rows * 2 * a->width);
    use(l, &a->dout, OWN, READ, a->rows * a->width);
    use(l, &a->gate_up, OWN, READ, a->rows * 2 * a->width);
    use(l, &a->counts, INDEX, READ, a->experts);
}

static void describe(wefti_math_op op, const void *args, list *l)
{
    switch (op) {
#define OF(name)                                                               \
    case WEFTI_MATH_OP_##name:                                                 \
        of_##name(l, args);                                                    \
        break;
        WEFTI_MATH_OPS(OF)
        WEFTI_MATH_HOST_OPS(OF)
#undef OF
    case WEFTI_MATH_OP_COUNT:
        break;
    }
}

size_t wefti_math_op_uses(wefti_math_op op, wefti_math_type type,
                          const void *args,
                          wefti_math_use uses[WEFTI_MATH_USES])
{
    list l = {.type = type, .args = args, .uses = uses};
    describe(op, args, &l);
    return l.count;
}

wefti_math_cut wefti_math_op_cut(wefti_math_op op, const void *args)
{
    wefti_math_use uses[WEFTI_MATH_USES];
    list l = {.args = args, .uses = uses};
    describe(op, args, &l);
    return l.cut;
}

size_t wefti_math_use_bytes(const wefti_math_use *used)
{
    return used->rows == 0 || used->width == 0
               ? 0
               : ((used->rows - 1) * used->stride + used->width) *
                     weft_dtype_bytes(used->dtype);
}

size_t wefti_math_op_args_bytes(wefti_math_op op)
{
    static const size_t bytes[] = {
#define BYTES(name) sizeof(wefti_math_##name),
        WEFTI_MATH_OPS(BYTES) WEFTI_MATH_HOST_OPS(BYTES)
#undef BYTES
    };
    return bytes[op];
}

static size_t over(size_t count, size_t by)
{
    return (count + by - 1) / by;
}

static bool is_product(wefti_math_op op)
{
    return op == WEFTI_MATH_OP_gemm || op == WEFTI_MATH_OP_expert_gemm;
}

static bool is_tiled_attention(wefti_math_op op)
{
    return op == WEFTI_MATH_OP_attention_forward ||
           op == WEFTI_MATH_OP_attention_dq ||
           op == WEFTI_MATH_OP_attention_dkdv;
}

/* Of attention a block has a tile's queries or keys of a head; of the others
 * each warp has at least 32 elements, or a row. */
size_t wefti_math_op_blocks(wefti_math_op op, wefti_math_type type,
                            const void *args)
{
    wefti_math_use uses[WEFTI_MATH_USES];
    size_t count = wefti_math_op_uses(op, type, args, uses), blocks = 1;
    for (size_t i = 0; i < count; i++) {
        const wefti_math_use *u = &uses[i];
        size_t here = over(u->rows * u->width, (size_t)32 * WARPS);
        if (is_product(op)) {
            here = u->writes ? over(u->rows, WEFTI_MATH_GEMM_TILE) *
                                   over(u->width, WEFTI_MATH_GEMM_TILE)
                             : 1;
        }
        blocks = here > blocks ? here : blocks;
    }
    if (is_tiled_attention(op)) {
        const wefti_math_attention_shape *shape =
            op == WEFTI_MATH_OP_attention_forward
                ? &((const wefti_math_attention_forward *)args)->shape
                : &((const wefti_math_attention_backward *)args)->shape;
        const bool keys = op == WEFTI_MATH_OP_attention_dkdv;
        blocks = shape->sequences * (keys ? shape->kv_heads : shape->heads) *
                 over(keys ? shape->kv_tokens : shape->q_tokens,
                      wefti_math_attention_tile(
                          weft_dtype_bytes(dtype_of(type, WIDE))));
    }
    return blocks > 0 ? blocks : 1;
}

size_t wefti_math_op_shared_bytes(wefti_math_op op, wefti_math_type type)
{
    size_t wide = weft_dtype_bytes(dtype_of(type, WIDE));
    if (is_product(op)) {
        return wefti_math_gemm_shared_bytes(wide);
    }
    if (!is_tiled_attention(op)) {
        return 0;
    }
    return wefti_math_attention_shared_bytes(wide);
}

static const char *const op_text[] = {
#define TEXT(name) #name,
    WEFTI_MATH_OPS(TEXT) WEFTI_MATH_HOST_OPS(TEXT)
#undef TEXT
};
static const char *const type_text[] = {"f32", "bf16", "f64", "bf16_f32"};

void wefti_math_op_name(wefti_math_op op, wefti_math_type type,
                        char name_out[WEFTI_MATH_NAME_BYTES])
{
    snprintf(name_out, WEFTI_MATH_NAME_BYTES, "wefti_math_%s_%s", op_text[op],
             type_text[type]);
}

bool wefti_math_op_find(const char *name, wefti_math_op *op_out,
                        wefti_math_type *type_out)
{
    for (int op = 0; op < WEFTI_MATH_OP_COUNT; op++) {
        for (int type = 0; type < WEFTI_MATH_TYPE_COUNT; type++) {
            char known[WEFTI_MATH_NAME_BYTES];
            wefti_math_op_name((wefti_math_op)op, (wefti_math_type)type, known);
            if (strcmp(known, name) == 0) {
                *op_out = (wefti_math_op)op;
                *type_out = (wefti_math_type)type;
                return true;
            }
        }
    }
    return false;
}
