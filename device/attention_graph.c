/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/attention_graph.c - the graph of attention and its plan.
 *
 * Scores and what becomes of them are f32 of [sequences, heads, queries, keys],
 * and nowhere in memory. K is passed transposed, by its strides, and so is V in
 * the backward. Each function below does nothing once a call has failed.
 */
#include "device/attention_graph.h"

#include <math.h>

enum {
    DIMENSIONS = 4,
    ALIGNMENT = 16,
    FIRST_ID = 100, /* of tensors that are nowhere */
    CONFIGS = 4     /* asked of the heuristic */
};

typedef wefti_attention_plan plan_of;

static void note(plan_of *p, int status, const char *what)
{
    if (p->status == WEFTI_CUDNN_SUCCESS && status != WEFTI_CUDNN_SUCCESS) {
        p->status = status;
        p->what = what;
    }
}

static void *create(plan_of *p, int kind)
{
    void *made = NULL;
    if (p->status == WEFTI_CUDNN_SUCCESS) {
        note(p, p->api->cudnnBackendCreateDescriptor(kind, &made),
             "a descriptor");
    }
    if (made) {
        p->descs[p->desc_count++] = made;
    }
    return made;
}

static void set(plan_of *p, void *desc, int attribute, int type, int64_t count,
                const void *values)
{
    if (p->status == WEFTI_CUDNN_SUCCESS) {
        note(p,
             p->api->cudnnBackendSetAttribute(desc, attribute, type, count,
                                              values),
             "an attribute");
    }
}

static void set_desc(plan_of *p, void *desc, int attribute, void *value)
{
    set(p, desc, attribute, WEFTI_DNN_TYPE_DESCRIPTOR, 1, &value);
}

static void set_type(plan_of *p, void *desc, int attribute, int value)
{
    set(p, desc, attribute, WEFTI_DNN_TYPE_DATA_TYPE, 1, &value);
}

static void finish(plan_of *p, void *desc, const char *what)
{
    if (p->status == WEFTI_CUDNN_SUCCESS) {
        note(p, p->api->cudnnBackendFinalize(desc), what);
    }
}

/* ---- tensors ---------------------------------------------------------------
 */

static void *tensor(plan_of *p, int64_t id, int type, const int64_t *dims,
                    const int64_t *strides, bool by_value)
{
    const int64_t alignment = ALIGNMENT;
    const bool is_nowhere = id == 0;
    void *made = create(p, WEFTI_DNN_TENSOR);
    id = is_nowhere ? FIRST_ID + p->next_id++ : id;
    set_type(p, made, WEFTI_DNN_TENSOR_TYPE, type);
    set(p, made, WEFTI_DNN_TENSOR_DIMENSIONS, WEFTI_DNN_TYPE_INT64, DIMENSIONS,
        dims);
    set(p, made, WEFTI_DNN_TENSOR_STRIDES, WEFTI_DNN_TYPE_INT64, DIMENSIONS,
        strides);
    set(p, made, WEFTI_DNN_TENSOR_ID, WEFTI_DNN_TYPE_INT64, 1, &id);
    set(p, made, WEFTI_DNN_TENSOR_ALIGNMENT, WEFTI_DNN_TYPE_INT64, 1,
        &alignment);
    set(p, made, WEFTI_DNN_TENSOR_VIRTUAL, WEFTI_DNN_TYPE_BOOLEAN, 1,
        &is_nowhere);
    set(p, made, WEFTI_DNN_TENSOR_BY_VALUE, WEFTI_DNN_TYPE_BOOLEAN, 1,
        &by_value);
    finish(p, made, "a tensor");
    return made;
}

/* Heads of tokens that lie apart by stride; turned: with dimensions swapped. */
static void *tokens(plan_of *p, int64_t id, size_t heads, size_t count,
                    size_t stride, bool turned)
{
    const int64_t size = (int64_t)p->of.head_size, apart = (int64_t)stride;
    const int64_t rows = (int64_t)count;
    const int64_t dims[] = {(int64_t)p->of.sequences, (int64_t)heads,
                            turned ? size : rows, turned ? rows : size};
    const int64_t strides[] = {rows * apart, size, turned ? 1 : apart,
                               turned ? apart : 1};
    return tensor(p, id, WEFTI_CUDNN_BF16, dims, strides, false);
}

static void *queries(plan_of *p, int64_t id, size_t stride)
{
    return tokens(p, id, p->of.heads, p->of.q_tokens, stride, false);
}

static void *keys(plan_of *p, int64_t id, bool turned)
{
    return tokens(p, id, p->of.kv_heads, p->of.kv_tokens, p->of.kv_stride,
                  turned);
}

/* Of all heads, one after the other, and nowhere. */
static void *rows_of_heads(plan_of *p, int type, size_t count)
{
    const int64_t heads = (int64_t)p->of.heads, rows = (int64_t)count;
    const int64_t size = (int64_t)p->of.head_size;
    const int64_t dims[] = {(int64_t)p->of.sequences, heads, rows, size};
    const int64_t strides[] = {heads * rows * size, rows * size, size, 1};
    return tensor(p, 0, type, dims, strides, false);
}

/* [queries][keys], or these dimensions swapped. */
static void *scores_turned(plan_of *p, int type, bool turned)
{
    const int64_t q = (int64_t)p->of.q_tokens, k = (int64_t)p->of.kv_tokens;
    const int64_t heads = (int64_t)p->of.heads;
    const int64_t dims[] = {(int64_t)p->of.sequences, heads, turned ? k : q,
                            turned ? q : k};
    const int64_t strides[] = {heads * q * k, q * k, turned ? 1 : k,
                               turned ? k : 1};
    return tensor(p, 0, type, dims, strides, false);
}

static void *scores(plan_of *p, int type)
{
    return scores_turned(p, type, false);
}

/* One number a query and head: lse as kernels/math has it, else by heads. */
static void *column(plan_of *p, int64_t id)
{
    const int64_t q = (int64_t)p->of.q_tokens;
    const int64_t heads = (int64_t)p->of.heads;
    const int64_t dims[] = {(int64_t)p->of.sequences, heads, q, 1};
    const int64_t by_head[] = {heads * q, q, 1, 1};
    const int64_t by_token[] = {q * heads, 1, heads, 1};
    return tensor(p, id, WEFTI_CUDNN_FLOAT, dims,
                  id == WEFTI_ATTENTION_LSE ? by_token : by_head, false);
}

static void *number(plan_of *p, int64_t id)
{
    const int64_t ones[] = {1, 1, 1, 1};
    return tensor(p, id, WEFTI_CUDNN_FLOAT, ones, ones, true);
}

/* ---- operations; each returns what it makes --------------------------------
 */

static void *add_op(plan_of *p, void *op, void *made)
{
    finish(p, op, "an operation");
    if (p->status == WEFTI_CUDNN_SUCCESS) {
        p->ops[p->op_count++] = op;
    }
    return made;
}

static void *multiply(plan_of *p, void *a, void *b, void *c)
{
    void *how = create(p, WEFTI_DNN_MATMUL);
    set_type(p, how, WEFTI_DNN_MATMUL_TYPE, WEFTI_CUDNN_FLOAT);
    finish(p, how, "a product");
    void *op = create(p, WEFTI_DNN_OP_MATMUL);
    set_desc(p, op, WEFTI_DNN_OP_MATMUL_HOW, how);
    set_desc(p, op, WEFTI_DNN_OP_MATMUL_A, a);
    set_desc(p, op, WEFTI_DNN_OP_MATMUL_B, b);
    set_desc(p, op, WEFTI_DNN_OP_MATMUL_C, c);
    return add_op(p, op, c);
}

static void *reduce_to(plan_of *p, int kind, void *x, void *y)
{
    void *how = create(p, WEFTI_DNN_REDUCTION);
    set(p, how, WEFTI_DNN_REDUCTION_KIND, WEFTI_DNN_TYPE_REDUCTION, 1, &kind);
    set_type(p, how, WEFTI_DNN_REDUCTION_TYPE, WEFTI_CUDNN_FLOAT);
    finish(p, how, "a reduction");
    void *op = create(p, WEFTI_DNN_OP_REDUCTION);
    set_desc(p, op, WEFTI_DNN_OP_REDUCTION_HOW, how);
    set_desc(p, op, WEFTI_DNN_OP_REDUCTION_X, x);
    set_desc(p, op, WEFTI_DNN_OP_REDUCTION_Y, y);
    return add_op(p, op, y);
}

static void *reduce(plan_of *p, int kind, void *x)
{
    return reduce_to(p, kind, x, column(p, 0));
}

static void *reshape(plan_of *p, void *x, void *y)
{
    void *op = create(p, WEFTI_DNN_OP_RESHAPE);
    set_desc(p, op, WEFTI_DNN_OP_RESHAPE_X, x);
    set_desc(p, op, WEFTI_DNN_OP_RESHAPE_Y, y);
    return add_op(p, op, y);
}

/* An element by itself. axis: of an index, else -1; b and mask may be NULL. */
typedef struct pointwise {
    int mode, type;
    int64_t axis;
    void *x, *b, *mask;
} pointwise;

static void *apply(plan_of *p, const pointwise *of, void *y)
{
    void *how = create(p, WEFTI_DNN_POINTWISE);
    set(p, how, WEFTI_DNN_POINTWISE_MODE, WEFTI_DNN_TYPE_POINTWISE_MODE, 1,
        &of->mode);
    set_type(p, how, WEFTI_DNN_POINTWISE_PREC, of->type);
    if (of->axis >= 0) {
        set(p, how, WEFTI_DNN_POINTWISE_AXIS, WEFTI_DNN_TYPE_INT64, 1,
            &of->axis);
    }
    finish(p, how, "an operation's mode");
    void *op = create(p, WEFTI_DNN_OP_POINTWISE);
    set_desc(p, op, WEFTI_DNN_OP_POINTWISE_HOW, how);
    set_desc(p, op, WEFTI_DNN_OP_POINTWISE_X, of->x);
    if (of->b) {
        set_desc(p, op, WEFTI_DNN_OP_POINTWISE_B, of->b);
    }
    if (of->mask) {
        set_desc(p, op, WEFTI_DNN_OP_POINTWISE_T, of->mask);
    }
    set_desc(p, op, WEFTI_DNN_OP_POINTWISE_Y, y);
    return add_op(p, op, y);
}

static void *compute(plan_of *p, int mode, void *x, void *b, void *y)
{
    const pointwise of = {mode, WEFTI_CUDNN_FLOAT, -1, x, b, NULL};
    return apply(p, &of, y);
}

static void *index_of(plan_of *p, void *like, int64_t axis)
{
    const pointwise of = {
        WEFTI_DNN_GEN_INDEX, WEFTI_CUDNN_INT32, axis, like, NULL, NULL};
    return apply(p, &of, scores(p, WEFTI_CUDNN_INT32));
}

static void *hide(plan_of *p, void *x)
{
    void *row = index_of(p, x, 2), *key = index_of(p, x, 3);
    const pointwise sees = {
        WEFTI_DNN_CMP_GE, WEFTI_CUDNN_BOOLEAN, -1, row, key, NULL};
    void *mask = apply(p, &sees, scores(p, WEFTI_CUDNN_BOOLEAN));
    const pointwise choice = {WEFTI_DNN_SELECT,
                              WEFTI_CUDNN_FLOAT,
                              -1,
                              x,
                              number(p, WEFTI_ATTENTION_HIDDEN),
                              mask};
    return apply(p, &choice, scores(p, WEFTI_CUDNN_FLOAT));
}

static void *new_scores(plan_of *p)
{
    return scores(p, WEFTI_CUDNN_FLOAT);
}

/* The order is part of the pattern, here and in the backward. */
static void build_forward(plan_of *p)
{
    void *s = multiply(p, queries(p, WEFTI_ATTENTION_Q, p->of.q_stride),
                       keys(p, WEFTI_ATTENTION_K, true), new_scores(p));
    s = compute(p, WEFTI_DNN_MUL, s, number(p, WEFTI_ATTENTION_SCALE),
                new_scores(p));
    s = p->of.causal ? hide(p, s) : s;
    void *most = reduce(p, WEFTI_DNN_REDUCE_MAX, s);
    s = compute(p, WEFTI_DNN_SUB, s, most, new_scores(p));
    s = compute(p, WEFTI_DNN_EXP, s, NULL, new_scores(p));
    void *sum = reduce(p, WEFTI_DNN_REDUCE_ADD, s);
    void *log = compute(p, WEFTI_DNN_LOG, sum, NULL, column(p, 0));
    (void)compute(p, WEFTI_DNN_ADD, most, log, column(p, WEFTI_ATTENTION_LSE));
    s = compute(p, WEFTI_DNN_DIV, s, sum, scores(p, WEFTI_CUDNN_BF16));
    (void)multiply(p, s, keys(p, WEFTI_ATTENTION_V, false),
                   queries(p, WEFTI_ATTENTION_O, p->of.o_stride));
}

/* id = turned scores times queries, summed over the heads that share keys. */
static void sum_keys(plan_of *p, int64_t id, void *x, void *of_queries)
{
    void *turned = reshape(p, x, scores_turned(p, WEFTI_CUDNN_BF16, true));
    if (p->of.heads == p->of.kv_heads) {
        (void)multiply(p, turned, of_queries, keys(p, id, false));
        return;
    }
    void *each = multiply(p, turned, of_queries,
                          rows_of_heads(p, WEFTI_CUDNN_BF16, p->of.kv_tokens));
    (void)reduce_to(p, WEFTI_DNN_REDUCE_ADD, each, keys(p, id, false));
}

static void *sum_delta(plan_of *p, void *dout)
{
    void *delta = compute(p, WEFTI_DNN_MUL, dout,
                          queries(p, WEFTI_ATTENTION_O, p->of.o_stride),
                          rows_of_heads(p, WEFTI_CUDNN_FLOAT, p->of.q_tokens));
    delta = reduce(p, WEFTI_DNN_REDUCE_ADD, delta);
    return compute(p, WEFTI_DNN_MUL, delta, number(p, WEFTI_ATTENTION_ONE),
                   column(p, WEFTI_ATTENTION_DELTA));
}

static void build_backward(plan_of *p)
{
    void *q = queries(p, WEFTI_ATTENTION_Q, p->of.q_stride);
    void *k_turned = keys(p, WEFTI_ATTENTION_K, true);
    void *dout = queries(p, WEFTI_ATTENTION_DOUT, p->of.o_stride);
    void *scale = number(p, WEFTI_ATTENTION_SCALE);
    void *delta = sum_delta(p, dout);
    void *s = multiply(p, q, k_turned, new_scores(p));
    s = compute(p, WEFTI_DNN_MUL, s, scale, new_scores(p));
    s = compute(p, WEFTI_DNN_SUB, s, column(p, WEFTI_ATTENTION_LSE),
                new_scores(p));
    s = p->of.causal ? hide(p, s) : s;
    void *weights = compute(p, WEFTI_DNN_EXP, s, NULL, new_scores(p));
    sum_keys(p, WEFTI_ATTENTION_DV, weights, dout);
    s = multiply(p, dout, keys(p, WEFTI_ATTENTION_V, true), new_scores(p));
    s = compute(p, WEFTI_DNN_SUB, s, delta, new_scores(p));
    s = compute(p, WEFTI_DNN_MUL, s, weights, new_scores(p));
    s = compute(p, WEFTI_DNN_MUL, s, scale, new_scores(p));
    sum_keys(p, WEFTI_ATTENTION_DK, s, q);
    void *k = reshape(p, k_turned, keys(p, 0, false));
    (void)multiply(p, s, k, queries(p, WEFTI_ATTENTION_DQ, p->of.q_stride));
}

/* ---- the plan --------------------------------------------------------------
 */

static void *make_graph(plan_of *p)
{
    void *graph = create(p, WEFTI_DNN_GRAPH);
    set(p, graph, WEFTI_DNN_GRAPH_HANDLE, WEFTI_DNN_TYPE_HANDLE, 1, &p->handle);
    set(p, graph, WEFTI_DNN_GRAPH_OPS, WEFTI_DNN_TYPE_DESCRIPTOR,
        (int64_t)p->op_count, p->ops);
    finish(p, graph, "the graph");
    return graph;
}

/* How many configurations of engines there are, up to CONFIGS. */
static int64_t ask(plan_of *p, void *graph, void *configs[CONFIGS])
{
    const int mode = WEFTI_DNN_HEUR_MODE_A;
    int64_t count = 0;
    void *heuristic = create(p, WEFTI_DNN_ENGINEHEUR);
    set_desc(p, heuristic, WEFTI_DNN_HEUR_GRAPH, graph);
    set(p, heuristic, WEFTI_DNN_HEUR_MODE, WEFTI_DNN_TYPE_HEUR_MODE, 1, &mode);
    finish(p, heuristic, "the heuristic");
    for (size_t i = 0; i < CONFIGS; i++) {
        configs[i] = create(p, WEFTI_DNN_ENGINECFG);
    }
    if (p->status == WEFTI_CUDNN_SUCCESS) {
        note(p,
             p->api->cudnnBackendGetAttribute(heuristic, WEFTI_DNN_HEUR_RESULTS,
                                              WEFTI_DNN_TYPE_DESCRIPTOR,
                                              CONFIGS, &count, configs),
             "the heuristic's engines");
    }
    return p->status != WEFTI_CUDNN_SUCCESS ? 0
           : count < CONFIGS                ? count
                                            : CONFIGS;
}

static void make_plan(plan_of *p, void *config)
{
    int64_t count = 0;
    void *plan = create(p, WEFTI_DNN_PLAN);
    set(p, plan, WEFTI_DNN_PLAN_HANDLE, WEFTI_DNN_TYPE_HANDLE, 1, &p->handle);
    set_desc(p, plan, WEFTI_DNN_PLAN_CONFIG, config);
    finish(p, plan, "the plan");
    if (p->status == WEFTI_CUDNN_SUCCESS) {
        note(p,
             p->api->cudnnBackendGetAttribute(plan, WEFTI_DNN_PLAN_WORKSPACE,
                                              WEFTI_DNN_TYPE_INT64, 1, &count,
                                              &p->workspace_bytes),
             "the workspace");
    }
    p->plan = p->status == WEFTI_CUDNN_SUCCESS ? plan : NULL;
}

/* Of other keys the backward was wrong before. */
static bool is_known_good(const plan_of *p)
{
    return !p->of.dout || p->of.kv_tokens % 128 == 0 ||
           p->api->version >= 91600;
}

bool wefti_attention_plan_make(wefti_attention_plan *p)
{
    void *configs[CONFIGS];
    if (!is_known_good(p)) {
        note(p, WEFTI_CUDNN_NOT_SUPPORTED,
             "keys that are no multiple of 128 need 9.16");
        return false;
    }
    (p->of.dout ? build_backward : build_forward)(p);
    const int64_t count = ask(p, make_graph(p), configs);
    for (int64_t i = 0; i < count && !p->plan; i++) {
        p->status = WEFTI_CUDNN_SUCCESS; /* the next may do */
        make_plan(p, configs[i]);
    }
    if (!p->plan && p->status == WEFTI_CUDNN_SUCCESS) {
        note(p, WEFTI_CUDNN_NOT_SUPPORTED, "the heuristic knows no engine");
    }
    return p->plan != NULL;
}

void wefti_attention_plan_end(wefti_attention_plan *p)
{
    while (p->desc_count > 0) {
        (void)p->api->cudnnBackendDestroyDescriptor(p->descs[--p->desc_count]);
    }
    p->plan = NULL;
}

/* What a plan is run on; returns how many. */
static int64_t find_arrays(const wefti_attention_call *call,
                           const float numbers[3],
                           int64_t ids[WEFTI_ATTENTION_IDS],
                           const void *at[WEFTI_ATTENTION_IDS])
{
    const struct array {
        const void *at;
        bool is_used;
    } all[WEFTI_ATTENTION_IDS] = {
        [WEFTI_ATTENTION_Q] = {call->q, true},
        [WEFTI_ATTENTION_K] = {call->k, true},
        [WEFTI_ATTENTION_V] = {call->v, true},
        [WEFTI_ATTENTION_O] = {call->o, true},
        [WEFTI_ATTENTION_LSE] = {call->lse, true},
        [WEFTI_ATTENTION_DOUT] = {call->dout, call->dout},
        [WEFTI_ATTENTION_DQ] = {call->dq, call->dout},
        [WEFTI_ATTENTION_DK] = {call->dk, call->dout},
        [WEFTI_ATTENTION_DV] = {call->dv, call->dout},
        [WEFTI_ATTENTION_DELTA] = {call->delta, call->dout},
        [WEFTI_ATTENTION_SCALE] = {&numbers[0], true},
        [WEFTI_ATTENTION_HIDDEN] = {&numbers[1], call->causal},
        [WEFTI_ATTENTION_ONE] = {&numbers[2], call->dout}};
    int64_t count = 0;
    for (int64_t id = 1; id < WEFTI_ATTENTION_IDS; id++) {
        ids[count] = id;
        at[count] = all[id].at;
        count += all[id].is_used;
    }
    return count;
}

int wefti_attention_plan_run(const wefti_attention_plan *p,
                             const wefti_attention_call *call, void *workspace)
{
    const float numbers[3] = {(float)call->scale, -INFINITY, 1};
    int64_t ids[WEFTI_ATTENTION_IDS];
    const void *pointers[WEFTI_ATTENTION_IDS];
    const int64_t count = find_arrays(call, numbers, ids, pointers);
    plan_of run = {.api = p->api};
    void *pack = create(&run, WEFTI_DNN_PACK);
    set(&run, pack, WEFTI_DNN_PACK_IDS, WEFTI_DNN_TYPE_INT64, count, ids);
    set(&run, pack, WEFTI_DNN_PACK_POINTERS, WEFTI_DNN_TYPE_VOID_PTR, count,
        pointers);
    set(&run, pack, WEFTI_DNN_PACK_WORKSPACE, WEFTI_DNN_TYPE_VOID_PTR, 1,
        &workspace);
    finish(&run, pack, "the arrays");
    if (run.status == WEFTI_CUDNN_SUCCESS) {
        run.status = p->api->cudnnBackendExecute(p->handle, p->plan, pack);
    }
    wefti_attention_plan_end(&run);
    return run.status;
}
