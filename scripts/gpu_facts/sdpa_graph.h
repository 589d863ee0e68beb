// SPDX-License-Identifier: BSD-3-Clause
/*
 * cuDNN's operation graphs of attention, built through the backend interface:
 * causal as a composite of simple operations, without a mask as one node. The
 * operations are finalised without a GPU; only plans need one.
 */
#ifndef GPU_FACTS_SDPA_GRAPH_H
#define GPU_FACTS_SDPA_GRAPH_H

#if __has_include(<cudnn.h>)
#define GPU_FACTS_HAS_CUDNN 1
#include <cudnn.h>

#define CUDNN_FUNCTIONS(X)                                                     \
    X(cudnnGetVersion)                                                         \
    X(cudnnCreate)                                                             \
    X(cudnnSetStream)                                                          \
    X(cudnnGetErrorString)                                                     \
    X(cudnnGetLastErrorString)                                                 \
    X(cudnnBackendCreateDescriptor)                                            \
    X(cudnnBackendSetAttribute)                                                \
    X(cudnnBackendGetAttribute)                                                \
    X(cudnnBackendFinalize)                                                    \
    X(cudnnBackendExecute)

#define CUDNN_MEMBER(name) __typeof__(name) *name;
struct cudnn_table {
    CUDNN_FUNCTIONS(CUDNN_MEMBER)
};
extern struct cudnn_table dnn;

/* Real tensors and scalars, by their unique ids. */
enum sdpa_id {
    SDPA_Q = 1,
    SDPA_K,
    SDPA_V,
    SDPA_O,
    SDPA_STATS,
    SDPA_SCALE,
    SDPA_MASKED,
    SDPA_DO,
    SDPA_DQ,
    SDPA_DK,
    SDPA_DV,
    SDPA_SUM,
    SDPA_DQ_SUM,
    SDPA_ONE,
    SDPA_IDS
};

enum sdpa_kind {
    COMPOSITE_FORWARD,
    COMPOSITE_BACKWARD,
    NODE_FORWARD,
    NODE_BACKWARD
};

struct sdpa {
    int64_t batch, heads, rows, width; /* [B, H, S, D] */
    /* The type of the score's gradient before its products, which the pattern
     * may want to be Q's or fp32. */
    cudnnDataType_t gradient;
    cudnnBackendDescriptor_t ops[32];
    int nops;
    int64_t next_virtual;
    bool used[SDPA_IDS];
    char failed[256]; /* the first call that failed, or empty */
};

void cudnn_open(void);
/* Fills G's operations from its sizes; stops at the first that fails. */
void sdpa_build(struct sdpa *g, enum sdpa_kind kind);
void sdpa_set(struct sdpa *g, cudnnBackendDescriptor_t to,
              cudnnBackendAttributeName_t name,
              cudnnBackendAttributeType_t type, int64_t count,
              const void *values);
cudnnBackendDescriptor_t sdpa_create(struct sdpa *g,
                                     cudnnBackendDescriptorType_t type);
void sdpa_finalise(struct sdpa *g, cudnnBackendDescriptor_t descriptor,
                   const char *what);

#endif
#endif
