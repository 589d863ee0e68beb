/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/nccl/profiler_abi.h - NCCL's interface for profilers, versions 1 to 5,
 * in words of our own: what a table of functions holds, and how far into an
 * event this profiler looks.
 *
 * NCCL asks a library for the symbol ncclProfiler_vN of the newest version it
 * knows, and calls init once for each communicator. Of an event's union only
 * the members that are read here are declared, each with its first fields: an
 * event is never copied, and what lies behind them is not touched.
 */
#ifndef DOORS_NCCL_PROFILER_ABI_H
#define DOORS_NCCL_PROFILER_ABI_H

#include <stddef.h>
#include <stdint.h>

/* Kinds of events, which are also the bits of a mask; version 1 has those up
 * to PROXY_CTRL, 3 and 4 the next two, 5 all. */
typedef enum wefti_profiler_kind {
    WEFTI_PROFILER_GROUP = 1 << 0,
    WEFTI_PROFILER_COLL = 1 << 1,
    WEFTI_PROFILER_P2P = 1 << 2,
    WEFTI_PROFILER_PROXY_OP = 1 << 3,
    WEFTI_PROFILER_PROXY_STEP = 1 << 4,
    WEFTI_PROFILER_PROXY_CTRL = 1 << 5,
    WEFTI_PROFILER_KERNEL_CHANNEL = 1 << 6,
    WEFTI_PROFILER_NET_PLUGIN = 1 << 7,
    WEFTI_PROFILER_GROUP_API = 1 << 8,
    WEFTI_PROFILER_COLL_API = 1 << 9,
    WEFTI_PROFILER_P2P_API = 1 << 10,
    WEFTI_PROFILER_KERNEL_LAUNCH = 1 << 11
} wefti_profiler_kind;

/* The one change of state that is looked at: a channel of a kernel has ended,
 * and when by the GPU's clock (versions 4 and 5). */
enum { WEFTI_PROFILER_KERNEL_CHANNEL_STOP = 22 };

/* Functions of version 1, as numbers. */
typedef enum wefti_profiler_function {
    WEFTI_PROFILER_BROADCAST,
    WEFTI_PROFILER_REDUCE,
    WEFTI_PROFILER_ALLGATHER,
    WEFTI_PROFILER_REDUCESCATTER,
    WEFTI_PROFILER_ALLREDUCE,
    WEFTI_PROFILER_SENDRECV,
    WEFTI_PROFILER_SEND,
    WEFTI_PROFILER_RECV
} wefti_profiler_function;

/* What version 1 calls by numbers, later ones call by names. */
typedef struct wefti_profiler_event_v1 {
    uint8_t type;
    void *parent;
    int rank;
    union {
        struct {
            const char *comm_name;
            uint64_t comm_hash, sequence;
            uint8_t function;
            const void *send;
            void *recv;
            size_t count;
            int root;
            uint8_t dtype;
        } coll;
        struct {
            const char *comm_name;
            uint64_t comm_hash;
            uint8_t function;
            void *buffer;
            uint8_t dtype;
            size_t count;
        } p2p;
    };
} wefti_profiler_event_v1;

/* Versions 2 and 3; kernel channels are known from 3 on. */
typedef struct wefti_profiler_event_v2 {
    uint8_t type;
    void *parent;
    int rank;
    union {
        struct {
            const char *comm_name;
            uint64_t comm_hash, sequence;
            const char *function;
            const void *send;
            void *recv;
            size_t count;
            int root;
            const char *dtype;
        } coll;
        struct {
            const char *comm_name;
            uint64_t comm_hash;
            const char *function;
            void *buffer;
            const char *dtype;
            size_t count;
        } p2p;
    };
} wefti_profiler_event_v2;

/* What an event of version 4 says, and of 5, whose type is wider. */
typedef union wefti_profiler_body_v4 {
    struct {
        uint64_t sequence;
        const char *function;
        const void *send;
        void *recv;
        size_t count;
        int root;
        const char *dtype;
    } coll;
    struct {
        const char *function;
        void *buffer;
        const char *dtype;
        size_t count;
    } p2p;
    struct {
        const char *function;
    } api; /* of collectives and of messages, version 5 */
    struct {
        uint8_t channel;
        uint64_t timer_ns; /* of the GPU, when it began */
    } kernel_channel;
} wefti_profiler_body_v4;

typedef struct wefti_profiler_event_v4 {
    uint8_t type;
    void *parent;
    int rank;
    wefti_profiler_body_v4 body;
} wefti_profiler_event_v4;

typedef struct wefti_profiler_event_v5 {
    uint64_t type;
    void *parent;
    int rank;
    wefti_profiler_body_v4 body;
} wefti_profiler_event_v5;

/* What comes with a change of state; versions 4 and 5. */
typedef union wefti_profiler_state_v4 {
    struct {
        uint64_t timer_ns; /* of the GPU, when it ended */
    } kernel_channel;
} wefti_profiler_state_v4;

/* A table: all functions return one of WEFTI_DOOR_RESULT_LIST. State is an
 * enumeration of NCCL's. */
#define WEFTI_PROFILER_TABLE(version, event_type, state_type, ...)             \
    typedef struct wefti_profiler_##version {                                  \
        const char *name;                                                      \
        int (*init)(__VA_ARGS__);                                              \
        int (*start)(void *context, void **event_out,                          \
                     const event_type *event);                                 \
        int (*stop)(void *event);                                              \
        int (*record)(void *event, int state, const state_type *arguments);    \
        int (*finalize)(void *context);                                        \
    } wefti_profiler_##version;

WEFTI_PROFILER_TABLE(v1, wefti_profiler_event_v1, void, void **context_out,
                     int *mask_out)
WEFTI_PROFILER_TABLE(v2, wefti_profiler_event_v2, void, void **context_out,
                     int *mask_out)
WEFTI_PROFILER_TABLE(v4, wefti_profiler_event_v4, wefti_profiler_state_v4,
                     void **context_out, int *mask_out, const char *comm_name,
                     uint64_t comm_hash, int nodes, int nranks, int rank,
                     void *logger)
WEFTI_PROFILER_TABLE(v5, wefti_profiler_event_v5, wefti_profiler_state_v4,
                     void **context_out, uint64_t comm_hash, int *mask_out,
                     const char *comm_name, int nodes, int nranks, int rank,
                     void *logger)
#undef WEFTI_PROFILER_TABLE

#pragma GCC visibility push(default)
extern const wefti_profiler_v1 ncclProfiler_v1;
extern const wefti_profiler_v2 ncclProfiler_v2, ncclProfiler_v3;
extern const wefti_profiler_v4 ncclProfiler_v4;
extern const wefti_profiler_v5 ncclProfiler_v5;
#pragma GCC visibility pop

#endif
