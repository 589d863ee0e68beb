// SPDX-License-Identifier: BSD-3-Clause
/*
 * See sdpa_graph.h. The engine matches a pattern, so the order and the types of
 * the operations are part of it. Scores are virtual fp32 [B, H, S, S]; K, and V
 * in backward, are passed as transposes by their strides.
 */
#include "cu.h"

#include "sdpa_graph.h"

#ifdef GPU_FACTS_HAS_CUDNN

#include <string.h>

#define LOAD(name) dnn.name = library_function(library, #name);

typedef cudnnBackendDescriptor_t Desc;

struct cudnn_table dnn;

void cudnn_open(void)
{
    static const char *const names[] = {"libcudnn.so.9", "libcudnn.so", NULL};
    void *library = library_open(names);
    CUDNN_FUNCTIONS(LOAD)
}

static void check(struct sdpa *g, cudnnStatus_t status, const char *what)
{
    char text[160] = "";
    if (status == CUDNN_STATUS_SUCCESS || g->failed[0])
        return;
    dnn.cudnnGetLastErrorString(text, sizeof(text));
    snprintf(g->failed, sizeof(g->failed), "operation %d, %s: %s (%d) %s",
             g->nops + 1, what, dnn.cudnnGetErrorString(status), (int)status,
             text);
}

Desc sdpa_create(struct sdpa *g, cudnnBackendDescriptorType_t type)
{
    Desc made = NULL;
    if (!g->failed[0])
        check(g, dnn.cudnnBackendCreateDescriptor(type, &made), "create");
    return made;
}

void sdpa_set(struct sdpa *g, Desc to, cudnnBackendAttributeName_t name,
              cudnnBackendAttributeType_t type, int64_t count,
              const void *values)
{
    char what[40];
    if (g->failed[0])
        return;
    snprintf(what, sizeof(what), "attribute %d", (int)name);
    check(g, dnn.cudnnBackendSetAttribute(to, name, type, count, values), what);
}

void sdpa_finalise(struct sdpa *g, Desc descriptor, const char *what)
{
    if (!g->failed[0])
        check(g, dnn.cudnnBackendFinalize(descriptor), what);
}

static void set_desc(struct sdpa *g, Desc to, cudnnBackendAttributeName_t name,
                     Desc value)
{
    sdpa_set(g, to, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void set_type(struct sdpa *g, Desc to, cudnnBackendAttributeName_t name,
                     cudnnDataType_t value)
{
    sdpa_set(g, to, name, CUDNN_TYPE_DATA_TYPE, 1, &value);
}

static void add_operation(struct sdpa *g, Desc op, const char *what)
{
    sdpa_finalise(g, op, what);
    if (!g->failed[0])
        g->ops[g->nops++] = op;
}

/* --- tensors --- */

/* The last two dimensions, ROWS x COLUMNS; stored by columns if TRANSPOSED. */
struct shape {
    int64_t rows, columns;
    bool transposed;
};

static Desc tensor(struct sdpa *g, int64_t id, cudnnDataType_t type,
                   struct shape shape, bool by_value)
{
    int64_t square = shape.rows * shape.columns, alignment = 16;
    int64_t dims[4] = {g->batch, g->heads, shape.rows, shape.columns};
    int64_t strides[4] = {g->heads * square, square,
                          shape.transposed ? 1 : shape.columns,
                          shape.transposed ? shape.rows : 1};
    int64_t ones[4] = {1, 1, 1, 1};
    bool is_virtual = id == 0;
    Desc t = sdpa_create(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    if (id == 0)
        id = 100 + g->next_virtual++;
    else
        g->used[id] = true;
    set_type(g, t, CUDNN_ATTR_TENSOR_DATA_TYPE, type);
    sdpa_set(g, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4,
             by_value ? ones : dims);
    sdpa_set(g, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4,
             by_value ? ones : strides);
    sdpa_set(g, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    sdpa_set(g, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1,
             &alignment);
    sdpa_set(g, t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1,
             &is_virtual);
    sdpa_set(g, t, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1,
             &by_value);
    sdpa_finalise(g, t, "tensor");
    return t;
}

#define BF16  CUDNN_DATA_BFLOAT16
#define FP32  CUDNN_DATA_FLOAT
#define INT32 CUDNN_DATA_INT32
#define BOOL  CUDNN_DATA_BOOLEAN

static Desc matrix(struct sdpa *g, enum sdpa_id id)
{
    return tensor(g, id, BF16, (struct shape){g->rows, g->width, false}, false);
}

/* The same memory as matrix(ID), as its transpose. */
static Desc transpose(struct sdpa *g, enum sdpa_id id)
{
    return tensor(g, id, BF16, (struct shape){g->width, g->rows, true}, false);
}

static Desc column(struct sdpa *g, int64_t id)
{
    return tensor(g, id, FP32, (struct shape){g->rows, 1, false}, false);
}

static Desc scores(struct sdpa *g, cudnnDataType_t type)
{
    return tensor(g, 0, type, (struct shape){g->rows, g->rows, false}, false);
}

static Desc scalar(struct sdpa *g, enum sdpa_id id)
{
    return tensor(g, id, FP32, (struct shape){1, 1, false}, true);
}

/* --- operations; each returns its output Y --- */

static Desc pointwise_typed(struct sdpa *g, cudnnPointwiseMode_t mode,
                            cudnnDataType_t inside, Desc x, Desc b, Desc t,
                            Desc y)
{
    Desc how = sdpa_create(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    sdpa_set(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1,
             &mode);
    set_type(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, inside);
    sdpa_finalise(g, how, "pointwise");
    Desc op = sdpa_create(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b)
        set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    if (t)
        set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t);
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    add_operation(g, op, "pointwise operation");
    return y;
}

#define POINTWISE(g, mode, x, b, y)                                            \
    pointwise_typed(g, CUDNN_POINTWISE_##mode, FP32, x, b, NULL, y)

static Desc matmul(struct sdpa *g, Desc a, Desc b, Desc c)
{
    Desc how = sdpa_create(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set_type(g, how, CUDNN_ATTR_MATMUL_COMP_TYPE, FP32);
    sdpa_finalise(g, how, "matmul");
    Desc op = sdpa_create(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    add_operation(g, op, "matmul operation");
    return c;
}

static Desc reduce(struct sdpa *g, cudnnReduceTensorOp_t kind, Desc x, Desc y)
{
    Desc how = sdpa_create(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    sdpa_set(g, how, CUDNN_ATTR_REDUCTION_OPERATOR,
             CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &kind);
    set_type(g, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, FP32);
    sdpa_finalise(g, how, "reduction");
    Desc op = sdpa_create(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    add_operation(g, op, "reduction operation");
    return y;
}

static Desc reshape(struct sdpa *g, Desc x, Desc y)
{
    Desc op = sdpa_create(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_desc(g, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_desc(g, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add_operation(g, op, "reshape operation");
    return y;
}

static Desc position(struct sdpa *g, Desc like, int64_t axis)
{
    Desc y = scores(g, INT32);
    cudnnPointwiseMode_t mode = CUDNN_POINTWISE_GEN_INDEX;
    Desc how = sdpa_create(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    sdpa_set(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1,
             &mode);
    set_type(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, INT32);
    sdpa_set(g, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    sdpa_finalise(g, how, "index");
    Desc op = sdpa_create(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, like);
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    add_operation(g, op, "index operation");
    return y;
}

/* X where row >= column, minus infinity elsewhere. */
static Desc mask_causal(struct sdpa *g, Desc x)
{
    Desc row = position(g, x, 2), behind = position(g, x, 3);
    Desc mask = pointwise_typed(g, CUDNN_POINTWISE_CMP_GE, BOOL, row, behind,
                                NULL, scores(g, BOOL));
    return pointwise_typed(g, CUDNN_POINTWISE_BINARY_SELECT, FP32, x,
                           scalar(g, SDPA_MASKED), mask, scores(g, FP32));
}

/* --- the graphs --- */

static void build_forward(struct sdpa *g)
{
    Desc s =
        matmul(g, matrix(g, SDPA_Q), transpose(g, SDPA_K), scores(g, FP32));
    s = POINTWISE(g, MUL, s, scalar(g, SDPA_SCALE), scores(g, FP32));
    s = mask_causal(g, s);
    Desc top = reduce(g, CUDNN_REDUCE_TENSOR_MAX, s, column(g, 0));
    s = POINTWISE(g, SUB, s, top, scores(g, FP32));
    s = POINTWISE(g, EXP, s, NULL, scores(g, FP32));
    Desc sum = reduce(g, CUDNN_REDUCE_TENSOR_ADD, s, column(g, 0));
    Desc log = POINTWISE(g, LOG, sum, NULL, column(g, 0));
    POINTWISE(g, ADD, top, log, column(g, SDPA_STATS));
    s = POINTWISE(g, DIV, s, sum, scores(g, BF16));
    matmul(g, s, matrix(g, SDPA_V), matrix(g, SDPA_O));
}

/* A transpose of scores, written out by a reshape. */
static Desc turned(struct sdpa *g, Desc x)
{
    struct shape shape = {g->rows, g->rows, true};
    return reshape(g, x, tensor(g, 0, BF16, shape, false));
}

static void build_backward(struct sdpa *g)
{
    struct shape wide = {g->rows, g->width, false};
    Desc q = matrix(g, SDPA_Q), d_o = matrix(g, SDPA_DO);
    Desc k_turned = transpose(g, SDPA_K), scale = scalar(g, SDPA_SCALE);
    Desc both = POINTWISE(g, MUL, d_o, matrix(g, SDPA_O),
                          tensor(g, 0, FP32, wide, false));
    Desc sum = reduce(g, CUDNN_REDUCE_TENSOR_ADD, both, column(g, 0));
    sum = POINTWISE(g, MUL, sum, scalar(g, SDPA_ONE), column(g, SDPA_SUM));
    Desc s = matmul(g, q, k_turned, scores(g, FP32));
    s = POINTWISE(g, MUL, s, scale, scores(g, FP32));
    s = POINTWISE(g, SUB, s, column(g, SDPA_STATS), scores(g, FP32));
    s = mask_causal(g, s);
    Desc e = POINTWISE(g, EXP, s, NULL, scores(g, FP32));
    matmul(g, turned(g, e), d_o, matrix(g, SDPA_DV));
    s = matmul(g, d_o, transpose(g, SDPA_V), scores(g, FP32));
    s = POINTWISE(g, SUB, s, sum, scores(g, FP32));
    s = POINTWISE(g, MUL, s, e, scores(g, FP32));
    s = POINTWISE(g, MUL, s, scale, scores(g, g->gradient));
    matmul(g, turned(g, s), q, matrix(g, SDPA_DK));
    Desc k = reshape(g, k_turned, tensor(g, 0, BF16, wide, false));
    Desc dq = matmul(g, s, k, tensor(g, SDPA_DQ_SUM, FP32, wide, false));
    POINTWISE(g, IDENTITY, dq, NULL, matrix(g, SDPA_DQ));
}

#define FORWARD(name)  CUDNN_ATTR_OPERATION_SDPA_FWD_##name##DESC
#define BACKWARD(name) CUDNN_ATTR_OPERATION_SDPA_BWD_##name##DESC

static void build_forward_node(struct sdpa *g)
{
    Desc op = sdpa_create(g, CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR);
    set_desc(g, op, FORWARD(Q), matrix(g, SDPA_Q));
    set_desc(g, op, FORWARD(K), matrix(g, SDPA_K));
    set_desc(g, op, FORWARD(V), matrix(g, SDPA_V));
    set_desc(g, op, FORWARD(O), matrix(g, SDPA_O));
    set_desc(g, op, FORWARD(STATS), column(g, SDPA_STATS));
    set_desc(g, op, FORWARD(SCALE), scalar(g, SDPA_SCALE));
    add_operation(g, op, "SDPA forward operation");
}

static void build_backward_node(struct sdpa *g)
{
    Desc op = sdpa_create(g, CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR);
    set_desc(g, op, BACKWARD(Q), matrix(g, SDPA_Q));
    set_desc(g, op, BACKWARD(K), matrix(g, SDPA_K));
    set_desc(g, op, BACKWARD(V), matrix(g, SDPA_V));
    set_desc(g, op, BACKWARD(O), matrix(g, SDPA_O));
    set_desc(g, op, BACKWARD(STATS), column(g, SDPA_STATS));
    set_desc(g, op, BACKWARD(SCALE), scalar(g, SDPA_SCALE));
    set_desc(g, op, BACKWARD(DOD), matrix(g, SDPA_DO));
    set_desc(g, op, BACKWARD(DQ), matrix(g, SDPA_DQ));
    set_desc(g, op, BACKWARD(DK), matrix(g, SDPA_DK));
    set_desc(g, op, BACKWARD(DV), matrix(g, SDPA_DV));
    add_operation(g, op, "SDPA backward operation");
}

void sdpa_build(struct sdpa *g, enum sdpa_kind kind)
{
    static void (*const builders[])(struct sdpa *) = {
        build_forward, build_backward, build_forward_node, build_backward_node};
    g->nops = 0;
    g->next_virtual = 0;
    g->failed[0] = 0;
    memset(g->used, 0, sizeof(g->used));
    builders[kind](g);
}

#endif
