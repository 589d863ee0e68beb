/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/cuda_gpu.h - what the files of the cuda device share: one record for
 * each GPU that is open, whatever number of devices it has been opened as.
 *
 *   cuda_api.c     the driver's functions
 *   cuda_gpu.c     GPUs, their contexts, what the driver's errors become
 *   cuda_memory.c  allocations, pointers, registered memory
 *   cuda_ipc.c     memory of other processes
 *   cuda_words.c   gate words in pinned memory
 *   cuda_stream.c  streams, their drains
 *   cuda_mark.c    signals and waits
 *   cuda_copy.c    copies
 *   cuda_event.c   events
 *   cuda_clock.c   when events happened
 *   cuda_green.c   parts of the multiprocessors
 *   cuda_module.c  kernels and their launches
 *   cuda_product.c products of matrices, by cuBLASLt
 *   cuda_attention.c   attention, by cuDNN (attention_graph.c)
 *   cuda_list.c    what there is, for weft-info
 *
 * Every call of the driver stands between wefti_cuda_enter and
 * wefti_cuda_leave, which make the GPU's primary context current and put the
 * caller's own back.
 *
 * An error such as an illegal address ends a context: every call then returns
 * it, nothing queued runs any more. It is noted in `broken` by the first call
 * that returns it; from then on the driver is not asked.
 */
#ifndef DEVICE_CUDA_GPU_H
#define DEVICE_CUDA_GPU_H

#include "device/cuda_api.h"
#include "device/object.h"

typedef struct wefti_cuda_gpu {
    struct wefti_cuda_gpu *next;
    const wefti_cuda_api *api;
    int index, native; /* by weft's count, and the driver's handle */
    unsigned opened;   /* guarded by the list's lock, as is next */
    struct CUctx_st *context;
    uint32_t caps;
    bool flushes;    /* waits order the writes of others before them */
    bool registers;  /* host memory that is there already */
    bool exportable; /* memory with file descriptors */
    int multiprocessors;
    int priority_least, priority_greatest;

    struct CUstream_st *stream; /* of the GPU's own questions; else idle */
    int connections;            /* which all streams share */
    _Atomic int streams;        /* that weft knows */
    _Atomic bool warned;        /* that these are more */

    _Atomic bool said_attention; /* what does it, in the log */

    _Atomic int broken; /* the error that has ended the context; 0: none */

    struct wefti_cuda_memory *memory;     /* cuda_memory.c */
    struct wefti_cuda_imports *imports;   /* cuda_ipc.c */
    struct wefti_cuda_words *words;       /* cuda_words.c */
    struct wefti_cuda_copies *copies;     /* cuda_copy.c */
    struct wefti_cuda_clock *clock;       /* cuda_clock.c */
    struct wefti_cuda_module *module;     /* cuda_module.c */
    struct wefti_cuda_release *release;   /* cuda_release.c */
    struct wefti_cuda_products *products; /* cuda_product.c */
} wefti_cuda_gpu;

/*
 * wefti_cuda_gpu_open - the GPU of an index, as often as it is closed again.
 *
 * Returns     as weft_device_open.
 */
WEFT_NODISCARD weft_status wefti_cuda_gpu_open(int index,
                                               wefti_cuda_gpu **gpu_out);
void wefti_cuda_gpu_close(wefti_cuda_gpu *gpu);

static inline wefti_cuda_gpu *wefti_cuda_gpu_of(const weft_device *device)
{
    return device->own;
}

/*
 * wefti_cuda_enter - makes the context current for the driver calls that
 * follow, and them legal while the program captures streams of its own;
 * wefti_cuda_leave puts back what was. They nest.
 *
 * Returns     OK | ERR_SYSTEM (the GPU has failed): do not leave.
 */
WEFT_NODISCARD weft_status wefti_cuda_enter(wefti_cuda_gpu *gpu);
void wefti_cuda_leave(wefti_cuda_gpu *gpu);

/*
 * wefti_cuda_check - what a result of the driver is to weft: OK |
 * ERR_NO_MEMORY | ERR_INVALID | ERR_UNSUPPORTED | ERR_SYSTEM, the text being
 * what, and the error's name and text. An error that ends the context is noted,
 * and logged once.
 */
WEFT_NODISCARD weft_status wefti_cuda_check(wefti_cuda_gpu *gpu, int result,
                                            const char *what);

/* The same where nothing can be done about it: only notes the end. */
void wefti_cuda_note(wefti_cuda_gpu *gpu, int result);

/* OK, or ERR_SYSTEM and why the GPU has failed. Asks no driver. */
weft_status wefti_cuda_get_failure(wefti_cuda_gpu *gpu);

/* The same, and asks the driver: whether it works still. */
weft_status wefti_cuda_look(wefti_cuda_gpu *gpu);

/* The parts of a GPU: made when it is opened, in its context, and given back
 * when it is closed. */
weft_status wefti_cuda_memory_create(wefti_cuda_gpu *gpu);
void wefti_cuda_memory_destroy(wefti_cuda_gpu *gpu);
weft_status wefti_cuda_imports_create(wefti_cuda_gpu *gpu);
void wefti_cuda_imports_destroy(wefti_cuda_gpu *gpu);
weft_status wefti_cuda_words_create(wefti_cuda_gpu *gpu);
void wefti_cuda_words_destroy(wefti_cuda_gpu *gpu);
weft_status wefti_cuda_copies_create(wefti_cuda_gpu *gpu);
void wefti_cuda_copies_destroy(wefti_cuda_gpu *gpu);
weft_status wefti_cuda_clock_create(wefti_cuda_gpu *gpu);
void wefti_cuda_clock_destroy(wefti_cuda_gpu *gpu);
weft_status wefti_cuda_release_create(wefti_cuda_gpu *gpu);
void wefti_cuda_release_destroy(wefti_cuda_gpu *gpu);
weft_status wefti_cuda_module_create(wefti_cuda_gpu *gpu);
void wefti_cuda_module_destroy(wefti_cuda_gpu *gpu);
weft_status wefti_cuda_products_create(wefti_cuda_gpu *gpu);
void wefti_cuda_products_destroy(wefti_cuda_gpu *gpu);

/* What the driver says about a pointer. */
typedef struct wefti_cuda_pointer {
    bool known; /* else it is memory of the host that the driver never saw */
    bool host, managed, legacy_ipc;
    int ordinal;
    uint64_t base, id, handle_types;
    size_t bytes;
} wefti_cuda_pointer;

WEFT_NODISCARD weft_status wefti_cuda_query(wefti_cuda_gpu *gpu,
                                            const void *pointer,
                                            wefti_cuda_pointer *out);

/* The driver's handle of EXPORTABLE memory of this process, and how many bytes
 * it has; false: the pointer is not in such memory. */
bool wefti_cuda_memory_get_handle(wefti_cuda_gpu *gpu, const void *pointer,
                                  uint64_t *handle_out, void **base_out,
                                  size_t *bytes_out);

/* Puts memory of a handle at addresses of its own, for the GPU to access. */
WEFT_NODISCARD weft_status wefti_cuda_map(wefti_cuda_gpu *gpu, uint64_t handle,
                                          size_t bytes, uint64_t *address_out);
void wefti_cuda_unmap(wefti_cuda_gpu *gpu, uint64_t address, size_t bytes);

/* A green context: of a stream, and of the events posted on it, which may not
 * be asked any more once their context is gone (cuCtxDestroy). */
typedef struct wefti_cuda_green {
    struct CUgreenCtx_st *native;
    _Atomic size_t users;
} wefti_cuda_green;

/* Of a stream: there are so many stores of its progress out at most. */
enum { WEFTI_CUDA_ENDS = 13 };

typedef struct wefti_cuda_stream {
    weft_stream base;
    struct CUstream_st *native;
    struct CUctx_st *context; /* the GPU's own, or that of green */
    wefti_cuda_green *green;  /* NULL: all multiprocessors */
    int multiprocessors;
    bool owned;
    void *workspace;      /* of products; NULL: none has needed it */
    bool lacks_workspace; /* there was no memory for it */
    struct wefti_cuda_attention *attention; /* cuda_attention.c; or NULL */
    struct wefti_holds *holds;
    pthread_mutex_t lock; /* numbers of batches reach the stream in order */
    /* cuda_end.c, guarded by lock: batches, and operations behind the last */
    uint64_t ends[WEFTI_CUDA_ENDS];
    size_t next_end;
    unsigned since_end;
} wefti_cuda_stream;

static inline wefti_cuda_stream *wefti_cuda_stream_of(const weft_stream *stream)
{
    return (wefti_cuda_stream *)stream;
}

/* Whether a stream of weft's own has so much workspace, or gets it now. */
bool wefti_cuda_stream_has_workspace(wefti_cuda_stream *stream, size_t bytes);

/* Gives back what attention has of a stream; entered. NULL there is legal. */
void wefti_cuda_attention_end(wefti_cuda_stream *stream);

/* Enters, makes room for one operation, and refuses a stream that is being
 * captured, which must be named: what would be captured is good for one time
 * only. The second is for what may be captured, unless something has broken the
 * capture (ERR_INVALID). */
WEFT_NODISCARD weft_status wefti_cuda_enter_stream(wefti_cuda_gpu *gpu,
                                                   wefti_cuda_stream *stream,
                                                   const char *what);
WEFT_NODISCARD weft_status wefti_cuda_enter_capture(wefti_cuda_gpu *gpu,
                                                    wefti_cuda_stream *stream,
                                                    const char *what,
                                                    bool *captured_out);
/* Of what is good for one time only. */
WEFT_NODISCARD weft_status wefti_cuda_refuse_capture(const char *what);

/*
 * wefti_cuda_make_room - before so many operations are queued: where the stream
 * has too many that it has not done, waits outside of the driver until it has
 * done some. Entered, of a stream that is not being captured.
 *
 * Returns     OK | the failure of the GPU.
 */
WEFT_NODISCARD weft_status wefti_cuda_make_room(wefti_cuda_gpu *gpu,
                                                wefti_cuda_stream *stream,
                                                unsigned operations);
/* Lets the stream store the number of a batch behind all that is queued, and
 * waits for one, or until the GPU has failed; the first entered. */
WEFT_NODISCARD weft_status wefti_cuda_end_post(wefti_cuda_gpu *gpu,
                                               wefti_cuda_stream *stream,
                                               uint64_t *batch_out);
WEFT_NODISCARD weft_status wefti_cuda_end_await(wefti_cuda_gpu *gpu,
                                                const wefti_cuda_stream *stream,
                                                uint64_t batch);

/* A stream of that many multiprocessors at most, and its green context with
 * one user; entered. */
WEFT_NODISCARD weft_status wefti_cuda_green_create(wefti_cuda_gpu *gpu,
                                                   int sm_budget, int priority,
                                                   wefti_cuda_stream *stream);
/* One user more, and less: the last destroys it. NULL is legal. */
void wefti_cuda_green_hold(wefti_cuda_green *green);
void wefti_cuda_green_drop(wefti_cuda_gpu *gpu, wefti_cuda_green *green);
/* Whether the GPU can be parted at all; entered. */
bool wefti_cuda_green_is_there(wefti_cuda_gpu *gpu);

/* When an event that has happened did so, on the clock of base/clock.h, and by
 * how much that may be wrong (or NULL); entered. */
WEFT_NODISCARD weft_status wefti_cuda_clock_read(wefti_cuda_gpu *gpu,
                                                 struct CUevent_st *event,
                                                 int64_t *ns_out,
                                                 int64_t *error_ns_out);

/* The slots of the table that have files of their own. */
weft_status wefti_cuda_mem_alloc(weft_device *device, weft_memory_kind kind,
                                 size_t bytes, void **out);
bool wefti_cuda_mem_free(weft_device *device, void *pointer);
weft_status wefti_cuda_mem_query(weft_device *device, const void *pointer,
                                 weft_pointer *out);
weft_status wefti_cuda_mem_register(weft_device *device, void *pointer,
                                    size_t bytes);
void wefti_cuda_mem_unregister(weft_device *device, void *pointer);
weft_status wefti_cuda_mem_reach(weft_device *device, int index);
weft_status wefti_cuda_mem_export(weft_device *device, const void *pointer,
                                  weft_export *out);
weft_status wefti_cuda_mem_import(weft_device *device, const weft_export *given,
                                  void **out);
bool wefti_cuda_mem_unimport(weft_device *device, void *pointer);
weft_status wefti_cuda_stream_create(weft_device *device,
                                     const weft_stream_config *config,
                                     weft_stream **out);
void wefti_cuda_stream_destroy(weft_stream *stream);
weft_status wefti_cuda_stream_copy(weft_stream *stream, void *dst,
                                   const void *src, size_t bytes);
weft_status wefti_cuda_stream_launch(weft_stream *stream,
                                     const wefti_launch *launch);
weft_status wefti_cuda_stream_multiply(weft_stream *stream,
                                       const wefti_product *product,
                                       bool *queued_out);
weft_status wefti_cuda_stream_attend(weft_stream *stream,
                                     const wefti_attention_call *call,
                                     bool *queued_out);
weft_status wefti_cuda_stream_mark(weft_stream *stream, const wefti_mark *marks,
                                   size_t count);
weft_status wefti_cuda_stream_flag(weft_stream *stream, const wefti_flag *flags,
                                   size_t count);
weft_status wefti_cuda_stream_is_captured(weft_stream *stream,
                                          bool *captured_out);
weft_status wefti_cuda_stream_drain(weft_stream *stream);
weft_status wefti_cuda_event_create(weft_device *device, weft_event **out);
void wefti_cuda_event_destroy(weft_event *event);
weft_status wefti_cuda_event_post(weft_event *event, weft_stream *stream);
weft_status wefti_cuda_event_test(weft_event *event);
weft_status wefti_cuda_event_wait(weft_event *event, weft_stream *stream);
weft_status wefti_cuda_event_time(weft_event *event, int64_t *ns_out);
weft_status wefti_cuda_gate_words(weft_device *device, size_t chunks,
                                  _Atomic uint64_t **out);
void wefti_cuda_gate_words_free(weft_device *device, _Atomic uint64_t *words);

/* What the driver has allocated; handle and bytes of exportable memory. */
typedef struct wefti_cuda_block {
    uint64_t address, handle;
    size_t bytes;
    weft_memory_kind kind;
} wefti_cuda_block;

/*
 * wefti_cuda_release - frees a block, now, or when no stream of the GPU stands;
 * wefti_cuda_release_tend frees what has been kept, if none does; whether it
 * did. In the context.
 */
void wefti_cuda_release(wefti_cuda_gpu *gpu, const wefti_cuda_block *block);
bool wefti_cuda_release_tend(wefti_cuda_gpu *gpu);

/* Around what lets a stream wait: nothing is freed meanwhile. */
void wefti_cuda_queue_begin(wefti_cuda_gpu *gpu);
void wefti_cuda_queue_end(wefti_cuda_gpu *gpu);

#endif
