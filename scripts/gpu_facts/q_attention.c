// SPDX-License-Identifier: BSD-3-Clause
/*
 * Whether cuDNN has an engine for the attention graphs: how many
 * configurations the heuristic returns, the workspace, how long a plan takes to
 * build, and how fast it runs.
 */
#include "cu.h"

#include "sdpa_graph.h"

#ifdef GPU_FACTS_HAS_CUDNN

#include <math.h>
#include <string.h>

#define MOST    8
#define REPEATS 11

typedef cudnnBackendDescriptor_t Desc;

struct plan {
    cudnnHandle_t handle;
    Desc graph, plan, pack;
    int64_t configurations, workspace_bytes;
    double build_ms;
};

/* The first configuration that makes a plan; false leaves G's text to say why
 * there is none. */
static bool make_plan(struct sdpa *g, struct plan *p)
{
    cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    Desc results[MOST];
    double start_us = now_us();
    p->graph = sdpa_create(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    sdpa_set(g, p->graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE,
             1, &p->handle);
    sdpa_set(g, p->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS,
             CUDNN_TYPE_BACKEND_DESCRIPTOR, g->nops, g->ops);
    sdpa_finalise(g, p->graph, "graph");
    Desc heuristic = sdpa_create(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    sdpa_set(g, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
             CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &p->graph);
    sdpa_set(g, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1,
             &mode);
    sdpa_finalise(g, heuristic, "heuristic");
    for (int i = 0; i < MOST; i++)
        results[i] = sdpa_create(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (g->failed[0])
        return false;
    p->configurations = 0;
    dnn.cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST,
                                 &p->configurations, results);
    snprintf(g->failed, sizeof(g->failed), "no configuration");
    for (int i = 0; i < MOST && i < p->configurations; i++) {
        g->failed[0] = 0;
        p->plan = sdpa_create(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
        sdpa_set(g, p->plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
                 CUDNN_TYPE_HANDLE, 1, &p->handle);
        sdpa_set(g, p->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &results[i]);
        sdpa_finalise(g, p->plan, "plan");
        if (!g->failed[0])
            break;
    }
    p->build_ms = (now_us() - start_us) / 1e3;
    return !g->failed[0];
}

static bool is_scalar(int id)
{
    return id == SDPA_SCALE || id == SDPA_MASKED || id == SDPA_ONE;
}

static bool is_column(int id)
{
    return id == SDPA_STATS || id == SDPA_SUM;
}

/* Memory for each tensor of the graph: random inputs; the statistics zero,
 * which costs the same time. */
static void make_pack(struct sdpa *g, struct plan *p)
{
    static float scalars[SDPA_IDS];
    int64_t ids[SDPA_IDS], count = 0;
    void *pointers[SDPA_IDS];
    size_t elems = (size_t)(g->batch * g->heads * g->rows);
    scalars[SDPA_SCALE] = 1 / sqrtf((float)g->width);
    scalars[SDPA_MASKED] = -INFINITY;
    scalars[SDPA_ONE] = 1;
    for (int id = 1; id < SDPA_IDS; id++) {
        size_t bytes = is_column(id) ? 4 * elems : 4 * elems * (size_t)g->width;
        if (!g->used[id])
            continue;
        ids[count] = id;
        if (is_scalar(id)) {
            pointers[count++] = &scalars[id];
            continue;
        }
        CUdeviceptr at = gpu_alloc(bytes);
        if (!is_column(id))
            gpu_fill(at, bytes, (unsigned)id);
        pointers[count++] = (void *)at;
    }
    void *workspace = (void *)gpu_alloc((size_t)p->workspace_bytes + 16);
    p->pack = sdpa_create(g, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    sdpa_set(g, p->pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
             count, ids);
    sdpa_set(g, p->pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
             CUDNN_TYPE_VOID_PTR, count, pointers);
    sdpa_set(g, p->pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR,
             1, &workspace);
    sdpa_finalise(g, p->pack, "variant pack");
    if (g->failed[0])
        give_up("%s", g->failed);
}

static void execute(CUstream stream, void *arg)
{
    struct plan *p = arg;
    (void)stream; /* the handle has it */
    cudnnStatus_t status = dnn.cudnnBackendExecute(p->handle, p->plan, p->pack);
    if (status != CUDNN_STATUS_SUCCESS)
        give_up("cudnnBackendExecute: %s (%d)", dnn.cudnnGetErrorString(status),
                (int)status);
}

static void ask_speed(struct sdpa *g, struct plan *p, enum sdpa_kind kind)
{
    double ms[REPEATS];
    bool causal = kind == COMPOSITE_FORWARD || kind == COMPOSITE_BACKWARD;
    bool forward = kind == COMPOSITE_FORWARD || kind == NODE_FORWARD;
    double rows = (double)g->rows;
    double flop = (forward ? 4.0 : 10.0) * (double)(g->batch * g->heads) *
                  rows * rows * (double)g->width / (causal ? 2 : 1);
    CUstream stream = gpu_stream();
    if (dnn.cudnnSetStream(p->handle, (cudaStream_t)stream) !=
        CUDNN_STATUS_SUCCESS)
        give_up("cudnnSetStream failed");
    make_pack(g, p);
    gpu_time_ms(stream, execute, p, REPEATS, ms);
    fact_number("speed", flop / quantile(ms, REPEATS, 0.5) / 1e9, "TFLOP/s",
                "median of 11 by events: bf16, B 1, H 64, S 4096, D 128");
}

void q_attention(int variant)
{
    struct plan p = {0};
    struct sdpa g = {.batch = 1, .heads = 64, .rows = 4096, .width = 128};
    bool found = false;
    gpu_open();
    cudnn_open();
    fact_number("version", (double)dnn.cudnnGetVersion(), "1",
                "cudnnGetVersion");
    cudnnStatus_t status = dnn.cudnnCreate(&p.handle);
    if (status != CUDNN_STATUS_SUCCESS)
        give_up("cudnnCreate: %s (%d)", dnn.cudnnGetErrorString(status),
                (int)status);
    /* Only the composite backward graph has a gradient of scores. */
    for (int i = 0; i < (variant == COMPOSITE_BACKWARD ? 2 : 1) && !found;
         i++) {
        const char *name = i ? "gradient_of_scores_fp32" : "graph";
        g.gradient = i ? CUDNN_DATA_FLOAT : CUDNN_DATA_BFLOAT16;
        sdpa_build(&g, (enum sdpa_kind)variant);
        found = !g.failed[0] && make_plan(&g, &p);
        if (found)
            fact_text(name, "built, heuristic mode A asked, plan made",
                      "%d operations: an engine", g.nops);
        else
            fact_none(name, "%s", g.failed);
    }
    fact_number("configurations", (double)p.configurations, "1",
                "CUDNN_HEUR_MODE_A, 8 asked for");
    if (!found)
        give_up("there is no plan to run");
    dnn.cudnnBackendGetAttribute(p.plan,
                                 CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                 CUDNN_TYPE_INT64, 1, NULL, &p.workspace_bytes);
    fact_number("workspace", (double)p.workspace_bytes, "bytes",
                "of the first plan that was made");
    fact_number("plan_build", p.build_ms, "ms", "graph to plan, host clock");
    ask_speed(&g, &p, (enum sdpa_kind)variant);
}

#else
void q_attention(int variant)
{
    (void)variant;
    give_up("built without cudnn.h");
}
#endif
