/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/device.h - what is behind weft/device.h for the rest of weft: the one
 * table of functions that host, shadow and CUDA fill, and the hooks by which
 * the engine follows gates.
 *
 * A device is either like the host (WEFT_CAP_NOTIFIES): who raises a gate calls
 * its watchers, and advances the streams that stand waiting at it. Or it is
 * like a GPU: it runs its streams by itself, its signals are plain stores, and
 * whoever waits for one looks.
 */
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

#include "weft/device.h"
#include "weft/types.h"

#include <stdatomic.h>
#include <stdbool.h>

/* What a gate's word holds once it has failed: all epochs are before it. */
#define WEFTI_GATE_FAILED ((uint64_t)1 << 62)

/* The gate that a stream stands waiting at. */
typedef struct wefti_stream_stand {
    const weft_gate *gate; /* to compare: nothing keeps it alive */
    size_t chunk;
    uint64_t epoch;
} wefti_stream_stand;

enum { WEFTI_MARKS_MOST = 8, WEFTI_FLAGS_MOST = 32 }; /* of one batch */

/* One memory operation of a stream: a signal, or a wait. */
typedef struct wefti_mark {
    weft_gate *gate;
    size_t chunk;
    uint64_t epoch;
    bool waits;
} wefti_mark;

/*
 * One memory operation that may be captured into a graph, and is right each
 * time that this is launched: a store of value into the lower half of a gate's
 * word, or a wait until that half is 1 or the gate has failed. No flag stores
 * into the upper half, which a failure sets: it ends all waits for good.
 */
typedef struct wefti_flag {
    weft_gate *gate;
    size_t chunk;
    bool waits;
    uint32_t value; /* 0 or 1 */
} wefti_flag;

/* One launch of a kernel of kernels/wire/launch.h or math/math_launch.h. */
typedef struct wefti_launch {
    const char *kernel; /* its name there */
    unsigned blocks, threads;
    size_t shared_bytes; /* dynamic shared memory of a block */
    const void *args;    /* its structure, copied */
    size_t args_bytes;
} wefti_launch;

/*
 * C = alpha op(A) op(B) + beta C, by rows: m x k times k x n. An array is
 * stored transposed where it says so; lda, ldb and ldc are elements from one
 * stored row to the next. a and b are of f32, f64 or bf16; c of the same, or
 * f32 beside bf16. No extent is 0. c is not read where beta is 0.
 */
typedef struct wefti_product {
    void *c;
    const void *a, *b;
    weft_dtype dtype, c_dtype;
    size_t m, n, k;
    size_t lda, ldb, ldc;
    double alpha, beta;
    bool transpose_a, transpose_b;
} wefti_product;

/*
 * Attention, as kernels/math/attention.h has it, for several sequences of one
 * length in bf16; lse is f32, [tokens][heads]. causal: query i sees keys 0 to
 * i. No extent is 0. Forward, dout being NULL, writes o and lse. Backward reads
 * them and writes dq, dk and dv, laid out as q, k and v, and to delta whatever
 * it likes: f32, [tokens][heads]. dout is laid out as o.
 */
typedef struct wefti_attention_call {
    void *o;
    float *lse;
    const void *q, *k, *v;
    const void *dout;
    void *dq, *dk, *dv;
    float *delta;
    size_t sequences, q_tokens, kv_tokens;
    size_t heads, kv_heads, head_size;
    size_t q_stride, kv_stride, o_stride; /* elements between tokens */
    double scale;
    bool causal;
} wefti_attention_call;

/*
 * wefti_device_table - one kind of device. Slots are set but where it says "or
 * NULL"; none blocks except where it says so; all may be called from any
 * thread, none while a lock of comm is held.
 *
 * caps            WEFT_CAP_*; for what is not set, slots are NULL.
 * open, close     index as in weft_device_open. open may set device->caps to
 *                 less than the table's.
 * look            whether the device works still: OK or why not, and then no
 *                 work on it ends any more; or NULL: it always does.
 * mem_alloc       kind is PINNED, DEVICE or EXPORTABLE.
 * mem_free        what mem_alloc gave; false: it is not, and nothing happened.
 * mem_query       all of *out but size_bytes.
 * mem_register, mem_unregister    or NULL: nothing needs to be done.
 * mem_reach       lets kernels of the device access memory of another of its
 *                 kind that this process has open; or NULL: they can.
 * mem_export, mem_import, mem_unimport    or NULL: no WEFT_CAP_IPC. unimport is
 *                 false as mem_free is.
 * stream_create   config is checked and of this version; native is NULL where
 *                 the kind has no native queues (natives false).
 * stream_destroy  drains, unless the stream was wrapped.
 * stream_copy     the only way that bytes are copied.
 * stream_call, stream_launch, stream_get_native, stream_get_sms    or NULL.
 * stream_multiply, stream_attend    by a library of the device's maker, or
 *                 NULL: there is none.
 * stream_compute  run(arg), the host's own code, in stream order; or NULL: the
 *                 device computes by kernels.
 * mem_place       where that code finds bytes bytes at pointer, which the text
 *                 calls name; or NULL: there.
 * stream_mark     all of marks in their order or none; count is 1 to
 *                 WEFTI_MARKS_MOST. One operation where the device has batches.
 * stream_flag     flags in their order, some of them perhaps where it fails;
 *                 count is 1 to WEFTI_FLAGS_MOST; or NULL: nothing is captured.
 * stream_is_captured   whether what is queued becomes part of a graph; or NULL:
 *                 it never does.
 * stream_drain    blocks; returns the first error that work of the stream met.
 * stream_stand    see wefti_stream_get_stand.
 * event_*         as the public ones, of an event that was posted before.
 *                 event_wait with a NULL stream blocks. event_time or NULL.
 * gate_words      counters of chunks words that host and device both see, all
 *                 zero; gate_words_free gives them back.
 *
 * Arguments have been checked by the caller as far as they can be without
 * knowing the kind: nothing is NULL that may not be, bytes are not 0, epochs
 * and chunks are in range, streams, gates and events are of the same device.
 */
typedef struct wefti_device_table {
    const char *kind;
    uint32_t caps;
    bool natives; /* has native queues to wrap */
    weft_status (*open)(weft_device *device, int index);
    void (*close)(weft_device *device);
    weft_status (*look)(weft_device *device);

    weft_status (*mem_alloc)(weft_device *device, weft_memory_kind kind,
                             size_t bytes, void **out);
    bool (*mem_free)(weft_device *device, void *pointer);
    weft_status (*mem_query)(weft_device *device, const void *pointer,
                             weft_pointer *out);
    weft_status (*mem_register)(weft_device *device, void *pointer,
                                size_t bytes);
    void (*mem_unregister)(weft_device *device, void *pointer);
    weft_status (*mem_reach)(weft_device *device, int index);
    weft_status (*mem_place)(const char *name, const void *pointer,
                             size_t bytes, void **out);
    weft_status (*mem_export)(weft_device *device, const void *pointer,
                              weft_export *out);
    weft_status (*mem_import)(weft_device *device, const weft_export *given,
                              void **out);
    bool (*mem_unimport)(weft_device *device, void *pointer);

    weft_status (*stream_create)(weft_device *device,
                                 const weft_stream_config *config,
                                 weft_stream **out);
    void (*stream_destroy)(weft_stream *stream);
    weft_status (*stream_copy)(weft_stream *stream, void *dst, const void *src,
                               size_t bytes);
    weft_status (*stream_call)(weft_stream *stream, void (*call)(void *),
                               void *arg);
    weft_status (*stream_launch)(weft_stream *stream,
                                 const wefti_launch *launch);
    weft_status (*stream_multiply)(weft_stream *stream,
                                   const wefti_product *product,
                                   bool *queued_out);
    weft_status (*stream_attend)(weft_stream *stream,
                                 const wefti_attention_call *call,
                                 bool *queued_out);
    weft_status (*stream_compute)(weft_stream *stream, void (*run)(void *arg),
                                  void *arg);
    weft_status (*stream_mark)(weft_stream *stream, const wefti_mark *marks,
                               size_t count);
    weft_status (*stream_flag)(weft_stream *stream, const wefti_flag *flags,
                               size_t count);
    weft_status (*stream_is_captured)(weft_stream *stream, bool *captured_out);
    weft_status (*stream_drain)(weft_stream *stream);
    bool (*stream_stand)(weft_device *device, weft_stream *stream,
                         wefti_stream_stand *out);
    void *(*stream_get_native)(const weft_stream *stream);
    int (*stream_get_sms)(const weft_stream *stream);

    weft_status (*event_create)(weft_device *device, weft_event **out);
    void (*event_destroy)(weft_event *event);
    weft_status (*event_post)(weft_event *event, weft_stream *stream);
    weft_status (*event_test)(weft_event *event);
    weft_status (*event_wait)(weft_event *event, weft_stream *stream);
    weft_status (*event_time)(weft_event *event, int64_t *ns_out);

    weft_status (*gate_words)(weft_device *device, size_t chunks,
                              _Atomic uint64_t **out);
    void (*gate_words_free)(weft_device *device, _Atomic uint64_t *words);
} wefti_device_table;

/* The kinds this build knows, ended by NULL. To add one, add it here. */
extern const wefti_device_table *const wefti_device_tables[];
extern const wefti_device_table wefti_device_cuda;
extern const wefti_device_table wefti_device_host;
extern const wefti_device_table wefti_device_shadow;

const wefti_device_table *wefti_device_get_table(const weft_device *device);
int wefti_device_get_index(const weft_device *device);
weft_device *wefti_stream_get_device(const weft_stream *stream);

/* Whether two are the same device, which may have been opened twice. */
bool wefti_device_is_same(const weft_device *one, const weft_device *other);

/* Whether the device can do all of caps. */
bool wefti_device_can(const weft_device *device, uint32_t caps);

/*
 * Whether a stream of device stands waiting at a gate now, and at which. Of a
 * device that does not notify: the first gate that it has not passed and that
 * is not raised, though work before it may still be running; and the stream may
 * have been destroyed meanwhile: then it stands nowhere.
 */
bool wefti_stream_get_stand(weft_device *device, weft_stream *stream,
                            wefti_stream_stand *stand_out);

/*
 * wefti_stream_mark - signals and waits, in this order, all or none; count is
 * at most WEFTI_MARKS_MOST.
 *
 * Returns     as weft_gate_signal.
 */
WEFT_NODISCARD weft_status wefti_stream_mark(weft_stream *stream,
                                             const wefti_mark *marks,
                                             size_t count);

/*
 * wefti_stream_flag - count flags, in this order, on a stream that is captured
 * or not. Streams hold nothing of their gates: these live until no launch of
 * the graph can come to them any more.
 *
 * Returns     OK | ERR_UNSUPPORTED (the device captures nothing) | ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status wefti_stream_flag(weft_stream *stream,
                                             const wefti_flag *flags,
                                             size_t count);

/* Whether its flag is up: the lower half of the word is not 0. */
bool wefti_gate_is_flagged(const weft_gate *gate, size_t chunk);

/*
 * wefti_stream_is_captured - whether what is queued becomes part of a graph,
 * and does not run now. Asks the driver, not under a lock.
 *
 * Returns     OK | ERR_INVALID: something has broken the capture | ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status wefti_stream_is_captured(weft_stream *stream,
                                                    bool *captured_out);

/*
 * wefti_stream_launch - a kernel of kernels/wire or kernels/math, in stream
 * order. The first of kernels/math has these loaded, which may wait for all
 * that is queued on the GPU.
 *
 * Returns     OK | ERR_UNSUPPORTED (no WEFT_CAP_LAUNCHES; this weft was built
 *             without math kernels) | ERR_INVALID (no
 *             such kernel; more shared memory than a block may have) |
 *             ERR_NO_MEMORY | ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status wefti_stream_launch(weft_stream *stream,
                                               const wefti_launch *launch);

/*
 * wefti_stream_multiply - a product, in stream order, by a library of the
 * device's maker: whether it was queued. If not, there is no library, or it
 * does not do this one, nothing has happened, and a kernel is there for it. The
 * first of a shape has the library choose, which may wait for all that is
 * queued on the GPU.
 *
 * Returns     OK | ERR_INVALID (something has broken the capture) | ERR_SYSTEM
 *             (the library has failed, C may be half done).
 */
WEFT_NODISCARD weft_status wefti_stream_multiply(weft_stream *stream,
                                                 const wefti_product *product,
                                                 bool *queued_out);

/* wefti_stream_attend - the same of attention; making a plan for a shape takes
 * about a second. */
WEFT_NODISCARD weft_status wefti_stream_attend(weft_stream *stream,
                                               const wefti_attention_call *call,
                                               bool *queued_out);

/*
 * wefti_stream_compute - run(arg), in stream order, on a device that computes
 * by the host's code: what a launch is elsewhere. It may take its time, and
 * waits for nobody. Memory is where wefti_stream_place finds it.
 *
 * stream      NULL: the calling thread runs it, here and now.
 * arg         borrowed until it has run; it runs whatever the stream has met.
 *
 * Returns     OK | ERR_UNSUPPORTED (the device has kernels instead) |
 *             ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_stream_compute(weft_stream *stream,
                                                void (*run)(void *arg),
                                                void *arg);

/* Whether streams of the device take wefti_stream_compute; NULL does. */
bool wefti_stream_computes(const weft_stream *stream);

/*
 * wefti_stream_place - where run finds bytes bytes at pointer, which the error
 * calls name; with a NULL stream there.
 *
 * Returns     OK | ERR_INVALID (no memory of the device has so many there).
 */
WEFT_NODISCARD weft_status wefti_stream_place(const weft_stream *stream,
                                              const char *name,
                                              const void *pointer, size_t bytes,
                                              void **out);

/*
 * wefti_device_owns - whether pointer is memory that the host must not touch.
 * False for a NULL device and for those whose memory the host reads. Asks the
 * driver: not under a lock.
 */
bool wefti_device_owns(weft_device *device, const void *pointer);

/*
 * wefti_device_reach - let kernels of a device access the memory of another of
 * its kind, by its index, that this process has open.
 *
 * Returns     OK | ERR_UNSUPPORTED: they can not | ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status wefti_device_reach(weft_device *device, int index);

/*
 * wefti_gate_watcher - call woken(context) after each signal that raises a
 * gate, in the signalling thread; it may not block. Signals of a stream whose
 * device does not notify call nobody: look then.
 *
 * Who watches looks at the gate once more after watch has returned: a signal
 * from before then may not have called. Watchers of a gate with the same
 * woken and context are called once for all of them. Calls may come from
 * several threads at once, and may come without cause.
 *
 * Memory is the caller's and zeroed but for woken and context. A watcher is at
 * one gate at a time, there as often as it was watched: n watches need n
 * unwatches. The last unwatch returns when no call for it is running in
 * another thread, so the caller may hold nothing that woken needs; it may be
 * made from inside woken itself. After it the memory is free.
 */
typedef struct wefti_gate_watcher {
    struct wefti_gate_watcher *next;
    void (*woken)(void *context);
    void *context;
    size_t watches;
} wefti_gate_watcher;

void wefti_gate_watch(weft_gate *gate, wefti_gate_watcher *watcher);
void wefti_gate_unwatch(weft_gate *gate, wefti_gate_watcher *watcher);

/*
 * wefti_gate_create_at - weft_gate_create with words that are there already and
 * stay the caller's, known to the device (weft_device_register) until after the
 * gate's end: in memory of several processes, each with a gate of its own
 * there. None of these sees another's failure or watchers.
 */
WEFT_NODISCARD weft_status wefti_gate_create_at(weft_device *device,
                                                _Atomic uint64_t *words,
                                                size_t chunks,
                                                weft_gate **gate_out);

/* Whether a stream has not been seen to be past all its marks of the gate. */
bool wefti_gate_is_held(const weft_gate *gate);

size_t wefti_gate_get_chunks(const weft_gate *gate);
weft_device *wefti_gate_get_device(const weft_gate *gate);

/*
 * wefti_device_abandon - close, now or when the last thing made from the device
 * is gone. No call on the device itself may follow.
 */
void wefti_device_abandon(weft_device *device);

/* The chunk's counter now. No locks, no side effects. */
uint64_t wefti_gate_get(const weft_gate *gate, size_t chunk);

/* Whether a wait for epoch is over; the gate may have failed. Of epoch 0 it
 * always is. */
bool wefti_gate_reached(const weft_gate *gate, size_t chunk, uint64_t epoch);

/*
 * wefti_gate_fail - release everyone who waits at the gate, now and later,
 * with an error: host waits return it, streams go on and keep it as theirs.
 * text is copied: it is what weft_error_text() then says. The first stays.
 * A device's signal that was queued before may still overwrite the word; the
 * streams that wait are released by whoever waits for them, again.
 */
void wefti_gate_fail(weft_gate *gate, weft_status status, const char *text);

/* OK, or what wefti_gate_fail() has put in, and then why in *text_out, which is
 * the gate's. Ask after the wait is over. */
weft_status wefti_gate_get_failure(const weft_gate *gate,
                                   const char **text_out);

#endif
