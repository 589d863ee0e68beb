/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/perf_graph.c - capture, launch and end, by the driver's own functions.
 */
#include "perf/perf_graph.h"

#include "base/error.h"
#include "device/cuda.h"
#include "device/cuda_api.h"
#include "device/device.h"
#include "perf/perf_call.h"

#include <stdio.h>
#include <stdlib.h>

static weft_status check(const wefti_cuda_api *api, int result,
                         const char *what)
{
    const char *name = "an error without a name";
    if (result == WEFTI_CUDA_SUCCESS) {
        return WEFT_OK;
    }
    (void)api->cuGetErrorName(result, &name);
    return wefti_error(WEFT_ERR_SYSTEM, "--graph: %s: %s", what, name);
}

static weft_status find(const wefti_cuda_api **api_out)
{
    weft_status status = wefti_cuda_api_open(api_out);
    const wefti_cuda_api *api = *api_out;
    return status != WEFT_OK ||
                   (api->cuStreamBeginCapture && api->cuStreamEndCapture &&
                    api->cuGraphInstantiateWithFlags && api->cuGraphDestroy &&
                    api->cuGraphLaunch && api->cuGraphExecDestroy)
               ? status
               : wefti_error(WEFT_ERR_UNSUPPORTED,
                             "--graph: the driver has no graphs that are "
                             "captured");
}

/* Entered; ends the capture also where posting was refused. */
static weft_status end(const wefti_cuda_api *api, struct CUstream_st *native,
                       weft_status posted, struct CUgraphExec_st **exec_out)
{
    struct CUgraph_st *graph = NULL;
    char why[256];
    snprintf(why, sizeof(why), "%s",
             posted == WEFT_OK ? "" : weft_error_text());
    weft_status status = check(api, api->cuStreamEndCapture(native, &graph),
                               "cuStreamEndCapture");
    if (status == WEFT_OK && posted == WEFT_OK) {
        status =
            check(api, api->cuGraphInstantiateWithFlags(exec_out, graph, 0),
                  "cuGraphInstantiateWithFlags");
    }
    if (graph) {
        (void)api->cuGraphDestroy(graph);
    }
    return posted == WEFT_OK ? status : wefti_error(posted, "%s", why);
}

/* Entered. */
static weft_status capture(const wefti_cuda_api *api, wefti_perf_pool *pool,
                           wefti_perf_rank *self, int copy)
{
    struct CUstream_st *native = weft_stream_get_native(self->stream);
    weft_status status = check(
        api,
        api->cuStreamBeginCapture(native, WEFTI_CU_STREAM_CAPTURE_MODE_RELAXED),
        "cuStreamBeginCapture");
    if (status == WEFT_OK) {
        status =
            wefti_perf_call_post(pool, (size_t)copy, self->comm, self->stream);
        status = end(api, native, status, &pool->graphs[copy]);
    }
    return status;
}

weft_status wefti_perf_graph_capture(wefti_perf_pool *pool,
                                     wefti_perf_rank *self)
{
    const wefti_cuda_api *api = NULL;
    pool->graphs = calloc((size_t)pool->copies, sizeof(*pool->graphs));
    if (!pool->graphs) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "%d graphs", pool->copies);
    }
    weft_status status = find(&api);
    if (status == WEFT_OK) {
        status = wefti_cuda_device_enter(self->device);
    }
    if (status != WEFT_OK) {
        return status;
    }
    for (int copy = 0; copy < pool->copies && status == WEFT_OK; copy++) {
        status = capture(api, pool, self, copy);
    }
    wefti_cuda_device_leave(self->device);
    return status;
}

weft_status wefti_perf_graph_launch(const wefti_perf_pool *pool, size_t call,
                                    weft_stream *stream)
{
    const wefti_cuda_api *api = NULL;
    const weft_device *device = wefti_stream_get_device(stream);
    weft_status status = find(&api);
    if (status == WEFT_OK) {
        status = wefti_cuda_device_enter(device);
    }
    if (status == WEFT_OK) {
        status =
            check(api,
                  api->cuGraphLaunch(pool->graphs[call % (size_t)pool->copies],
                                     weft_stream_get_native(stream)),
                  "cuGraphLaunch");
        wefti_cuda_device_leave(device);
    }
    return status;
}

void wefti_perf_graph_free(wefti_perf_pool *pool, const wefti_perf_rank *self)
{
    const wefti_cuda_api *api = NULL;
    if (pool->graphs && find(&api) == WEFT_OK &&
        wefti_cuda_device_enter(self->device) == WEFT_OK) {
        for (int copy = 0; copy < pool->copies; copy++) {
            if (pool->graphs[copy]) {
                (void)api->cuGraphExecDestroy(pool->graphs[copy]);
            }
        }
        wefti_cuda_device_leave(self->device);
    }
    free(pool->graphs);
    pool->graphs = NULL;
}
