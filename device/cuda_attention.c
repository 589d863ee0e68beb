/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/cuda_attention.c - attention on a GPU, by cuDNN.
 *
 * A stream of weft's own has a handle and its plans, by shape: a handle is
 * bound to a stream, and plans to a handle. They go with the stream, after its
 * last work; so nothing of them gets into graphs, which may outlive it, and a
 * program's own stream, which is not drained, has none. A plan that needs more
 * workspace than streams have takes memory of its own.
 */
#include "base/error.h"
#include "base/log.h"
#include "device/attention_graph.h"
#include "device/cuda.h"
#include "device/cuda_gpu.h"

#include <stdlib.h>
#include <string.h>

enum {
    PLANS = 16,
    ALIGNMENT = 16,
    HEAD_UNIT = 8,
    MORE_OPERATIONS = 5 /* than one kernel a plan may be */
};

/* What a plan depends on. */
typedef struct key {
    uint64_t sequences, q_tokens, kv_tokens, heads, kv_heads, head_size;
    uint64_t q_stride, kv_stride, o_stride, causal, backward;
} key;

typedef struct kept {
    bool known, refused;
    key of;
    wefti_attention_plan plan;
    void *memory; /* the workspace; NULL: the stream's */
} kept;

struct wefti_cuda_attention {
    const wefti_cudnn_api *api;
    struct cudnnContext *handle; /* NULL: weft's own kernel does it */
    kept plans[PLANS];
    size_t next; /* the place to be used again */
};

static void say_own(wefti_cuda_gpu *gpu, const char *what, const char *why)
{
    if (!atomic_exchange(&gpu->said_attention, true)) {
        wefti_log(WEFTI_LOG_INFO, -1,
                  "cuda device %d: attention by weft's own kernel: %s%s",
                  gpu->index, what, why);
    }
}

/* In the context; may wait for all that is queued on the GPU. */
static void start(wefti_cuda_gpu *gpu, wefti_cuda_stream *stream)
{
    struct wefti_cuda_attention *own = stream->attention;
    char text[40];
    if (wefti_cudnn_api_open(&own->api) < 0) {
        say_own(gpu, weft_error_text(), "");
        return;
    }
    int status = own->api->cudnnCreate(&own->handle);
    if (status != WEFTI_CUDNN_SUCCESS) {
        own->handle = NULL;
        say_own(gpu, "cudnnCreate: ", own->api->cudnnGetErrorString(status));
        return;
    }
    status = own->api->cudnnSetStream(own->handle, stream->native);
    if (status != WEFTI_CUDNN_SUCCESS) {
        (void)own->api->cudnnDestroy(own->handle);
        own->handle = NULL;
        say_own(gpu, "cudnnSetStream: ", own->api->cudnnGetErrorString(status));
    } else if (!atomic_exchange(&gpu->said_attention, true)) {
        wefti_cudnn_version_text(own->api->version, text, sizeof(text));
        wefti_log(WEFTI_LOG_INFO, -1, "cuda device %d: attention by %s",
                  gpu->index, text);
    }
}

static void end_plan(wefti_cuda_stream *stream, kept *ended)
{
    wefti_attention_plan_end(&ended->plan);
    if (ended->memory) {
        (void)wefti_cuda_mem_free(stream->base.device, ended->memory);
        ended->memory = NULL;
    }
}

void wefti_cuda_attention_end(wefti_cuda_stream *stream)
{
    struct wefti_cuda_attention *own = stream->attention;
    for (size_t i = 0; own && i < PLANS; i++) {
        end_plan(stream, &own->plans[i]);
    }
    if (own && own->handle) {
        (void)own->api->cudnnDestroy(own->handle);
    }
    free(own);
    stream->attention = NULL;
}

static key key_of(const wefti_attention_call *call)
{
    return (key){call->sequences, call->q_tokens,    call->kv_tokens,
                 call->heads,     call->kv_heads,    call->head_size,
                 call->q_stride,  call->kv_stride,   call->o_stride,
                 call->causal,    call->dout != NULL};
}

static void log_refusal(const wefti_cuda_gpu *gpu, const kept *made,
                        const char *what, const char *why)
{
    wefti_log(WEFTI_LOG_INFO, -1,
              "cuda device %d: attention's %s, %zu x %zu tokens, heads of "
              "%zu, by weft's own kernel: cuDNN, %s: %s",
              gpu->index, made->of.backward ? "backward" : "forward",
              (size_t)made->of.q_tokens, (size_t)made->of.kv_tokens,
              (size_t)made->of.head_size, what, why);
}

/* Whether there is room for it to work in. */
static bool has_workspace(wefti_cuda_stream *stream, kept *of)
{
    const size_t bytes = (size_t)of->plan.workspace_bytes;
    return wefti_cuda_stream_has_workspace(stream, bytes) ||
           wefti_cuda_mem_alloc(stream->base.device, WEFT_MEMORY_DEVICE, bytes,
                                &of->memory) == WEFT_OK;
}

static kept *find_plan(wefti_cuda_gpu *gpu, wefti_cuda_stream *stream,
                       const wefti_attention_call *call)
{
    struct wefti_cuda_attention *own = stream->attention;
    const key of = key_of(call);
    for (size_t i = 0; i < PLANS; i++) {
        if (own->plans[i].known &&
            memcmp(&own->plans[i].of, &of, sizeof(of)) == 0) {
            return &own->plans[i];
        }
    }
    kept *made = &own->plans[own->next];
    own->next = (own->next + 1) % PLANS;
    end_plan(stream, made);
    *made =
        (kept){.known = true,
               .of = of,
               .plan = {.api = own->api, .handle = own->handle, .of = *call}};
    made->refused = !wefti_attention_plan_make(&made->plan);
    if (made->refused) {
        log_refusal(gpu, made, made->plan.what,
                    own->api->cudnnGetErrorString(made->plan.status));
    } else if (!has_workspace(stream, made)) {
        made->refused = true;
        log_refusal(gpu, made, "its workspace", weft_error_text());
    }
    if (made->refused) {
        end_plan(stream, made);
    }
    return made;
}

/* Of arrays that the graph's descriptors are true of. */
static bool is_aligned(const wefti_attention_call *call)
{
    const void *const all[] = {call->o,   call->q,    call->k,  call->v,
                               call->lse, call->dout, call->dq, call->dk,
                               call->dv,  call->delta};
    const size_t strides[] = {call->q_stride, call->kv_stride, call->o_stride};
    bool aligned = call->head_size % HEAD_UNIT == 0;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        aligned = aligned && (uintptr_t)all[i] % ALIGNMENT == 0;
    }
    for (size_t i = 0; i < sizeof(strides) / sizeof(strides[0]); i++) {
        aligned = aligned && strides[i] % HEAD_UNIT == 0;
    }
    return aligned;
}

static weft_status attend(wefti_cuda_gpu *gpu, wefti_cuda_stream *stream,
                          const wefti_attention_call *call, bool *queued_out)
{
    if (!stream->attention) {
        stream->attention = calloc(1, sizeof(*stream->attention));
        if (!stream->attention) {
            return WEFT_OK; /* weft's own kernel needs no memory */
        }
        start(gpu, stream);
    }
    struct wefti_cuda_attention *own = stream->attention;
    kept *with = own->handle ? find_plan(gpu, stream, call) : NULL;
    if (!with || with->refused) {
        return WEFT_OK;
    }
    const int status = wefti_attention_plan_run(
        &with->plan, call, with->memory ? with->memory : stream->workspace);
    *queued_out = status == WEFTI_CUDNN_SUCCESS;
    return *queued_out
               ? WEFT_OK
               : wefti_error(WEFT_ERR_SYSTEM,
                             "cuda device %d: attention: cudnnBackendExecute: "
                             "%s",
                             gpu->index, own->api->cudnnGetErrorString(status));
}

weft_status wefti_cuda_stream_attend(weft_stream *base,
                                     const wefti_attention_call *call,
                                     bool *queued_out)
{
    wefti_cuda_gpu *gpu = wefti_cuda_gpu_of(base->device);
    wefti_cuda_stream *stream = wefti_cuda_stream_of(base);
    bool captured;
    *queued_out = false;
    if (stream->green || !stream->owned || !is_aligned(call)) {
        return WEFT_OK;
    }
    weft_status status =
        wefti_cuda_enter_capture(gpu, stream, "attention", &captured);
    if (status < 0) {
        return status;
    }
    if (!captured) {
        status = wefti_cuda_make_room(gpu, stream, MORE_OPERATIONS);
    }
    if (status == WEFT_OK && !captured) {
        status = attend(gpu, stream, call, queued_out);
    }
    wefti_cuda_leave(gpu);
    return status;
}

weft_status wefti_cuda_find_attention(char text_out[64])
{
    const wefti_cudnn_api *api;
    weft_status status = wefti_cudnn_api_open(&api);
    if (status == WEFT_OK) {
        wefti_cudnn_version_text(api->version, text_out, 64);
    }
    return status;
}
