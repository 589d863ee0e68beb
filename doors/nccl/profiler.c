/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/nccl/profiler.c - libnccl-profiler-weft.so: the tables that NCCL looks
 * for, one for each version, over the same events.
 *
 *   1    numbers for functions and types
 *   2    names
 *   3    channels of kernels, seen from the host
 *   4    and by the GPU's clock; a communicator says its name, rank and size
 *   5    calls of the program
 *
 * Nothing here fails: a profiler must not change what NCCL does.
 */
#include "doors/nccl/door_abi.h"
#include "doors/nccl/profiler_abi.h"
#include "doors/nccl/profiler_events.h"

#include <stdlib.h>
#include <string.h>

static const char plugin_name[] = "weft";

/* Asked for from the version on that has them. */
enum {
    OPERATIONS = WEFTI_PROFILER_COLL | WEFTI_PROFILER_P2P,
    CHANNELS = OPERATIONS | WEFTI_PROFILER_KERNEL_CHANNEL,
    CALLS = CHANNELS | WEFTI_PROFILER_COLL_API | WEFTI_PROFILER_P2P_API
};

static int what_of_number(unsigned function)
{
    static const int what[] = {
        [WEFTI_PROFILER_BROADCAST] = WEFT_COLLECTIVE_BROADCAST,
        [WEFTI_PROFILER_REDUCE] = WEFT_COLLECTIVE_REDUCE,
        [WEFTI_PROFILER_ALLGATHER] = WEFT_COLLECTIVE_ALLGATHER,
        [WEFTI_PROFILER_REDUCESCATTER] = WEFT_COLLECTIVE_REDUCESCATTER,
        [WEFTI_PROFILER_ALLREDUCE] = WEFT_COLLECTIVE_ALLREDUCE,
        [WEFTI_PROFILER_SENDRECV] = WEFTI_PROFILER_OTHER,
        [WEFTI_PROFILER_SEND] = WEFT_COLLECTIVE_SEND,
        [WEFTI_PROFILER_RECV] = WEFT_COLLECTIVE_RECV};
    return function < sizeof(what) / sizeof(what[0]) ? what[function]
                                                     : WEFTI_PROFILER_OTHER;
}

static int what_of_name(const char *function)
{
    static const struct {
        const char *name;
        int what;
    } names[] = {{"AllReduce", WEFT_COLLECTIVE_ALLREDUCE},
                 {"Reduce", WEFT_COLLECTIVE_REDUCE},
                 {"AllGather", WEFT_COLLECTIVE_ALLGATHER},
                 {"ReduceScatter", WEFT_COLLECTIVE_REDUCESCATTER},
                 {"Broadcast", WEFT_COLLECTIVE_BROADCAST},
                 {"AlltoAll", WEFT_COLLECTIVE_ALLTOALL},
                 {"Gather", WEFT_COLLECTIVE_GATHER},
                 {"Scatter", WEFT_COLLECTIVE_SCATTER},
                 {"Send", WEFT_COLLECTIVE_SEND},
                 {"Recv", WEFT_COLLECTIVE_RECV}};
    for (size_t i = 0; function && i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(function, names[i].name) == 0) {
            return names[i].what;
        }
    }
    return WEFTI_PROFILER_OTHER;
}

/* NCCL's numbers of types are weft's. */
static uint64_t bytes_of_number(size_t count, unsigned dtype)
{
    return count * weft_dtype_bytes((weft_dtype)dtype);
}

/* Its names say the bits: ncclFloat8e4m3, ncclUint32. 0: it has no number. */
static uint64_t bytes_of_name(size_t count, const char *dtype)
{
    const char *bits = dtype ? strpbrk(dtype, "123456789") : NULL;
    return bits ? count * (strtoul(bits, NULL, 10) / 8) : 0;
}

static int open_comm(void **context_out, int *mask_out, int mask,
                     const wefti_profiler_name *name)
{
    *context_out = wefti_profiler_open(name);
    *mask_out = *context_out ? mask : 0;
    return WEFTI_DOOR_SUCCESS;
}

static int stop(void *event)
{
    wefti_profiler_stop(event);
    return WEFTI_DOOR_SUCCESS;
}

static int finalize(void *context)
{
    wefti_profiler_close(context);
    return WEFTI_DOOR_SUCCESS;
}

/* Versions 1 to 3 tell nothing at first. */
static const wefti_profiler_name nameless = {.rank = -1};

static int init_v1(void **context_out, int *mask_out)
{
    return open_comm(context_out, mask_out, OPERATIONS, &nameless);
}

static int init_v3(void **context_out, int *mask_out)
{
    return open_comm(context_out, mask_out, CHANNELS, &nameless);
}

static int init_v4(void **context_out, int *mask_out, const char *comm_name,
                   uint64_t comm_hash, int nodes, int nranks, int rank,
                   void *logger)
{
    (void)nodes, (void)logger;
    return open_comm(
        context_out, mask_out, CHANNELS,
        &(wefti_profiler_name){comm_name, comm_hash, rank, nranks});
}

static int init_v5(void **context_out, uint64_t comm_hash, int *mask_out,
                   const char *comm_name, int nodes, int nranks, int rank,
                   void *logger)
{
    (void)nodes, (void)logger;
    return open_comm(
        context_out, mask_out, CALLS,
        &(wefti_profiler_name){comm_name, comm_hash, rank, nranks});
}

static int start_v1(void *context, void **event_out,
                    const wefti_profiler_event_v1 *event)
{
    *event_out = NULL;
    if (event->type == WEFTI_PROFILER_COLL) {
        wefti_profiler_rename(context,
                              &(wefti_profiler_name){event->coll.comm_name,
                                                     event->coll.comm_hash,
                                                     event->rank, 0});
        *event_out = wefti_profiler_operation(
            context, what_of_number(event->coll.function),
            bytes_of_number(event->coll.count, event->coll.dtype), true);
    } else if (event->type == WEFTI_PROFILER_P2P) {
        wefti_profiler_rename(context,
                              &(wefti_profiler_name){event->p2p.comm_name,
                                                     event->p2p.comm_hash,
                                                     event->rank, 0});
        *event_out = wefti_profiler_operation(
            context, what_of_number(event->p2p.function),
            bytes_of_number(event->p2p.count, event->p2p.dtype), true);
    }
    return WEFTI_DOOR_SUCCESS;
}

static int start_v2(void *context, void **event_out,
                    const wefti_profiler_event_v2 *event)
{
    *event_out = NULL;
    if (event->type == WEFTI_PROFILER_COLL) {
        wefti_profiler_rename(context,
                              &(wefti_profiler_name){event->coll.comm_name,
                                                     event->coll.comm_hash,
                                                     event->rank, 0});
        *event_out = wefti_profiler_operation(
            context, what_of_name(event->coll.function),
            bytes_of_name(event->coll.count, event->coll.dtype), true);
    } else if (event->type == WEFTI_PROFILER_P2P) {
        wefti_profiler_rename(context,
                              &(wefti_profiler_name){event->p2p.comm_name,
                                                     event->p2p.comm_hash,
                                                     event->rank, 0});
        *event_out = wefti_profiler_operation(
            context, what_of_name(event->p2p.function),
            bytes_of_name(event->p2p.count, event->p2p.dtype), true);
    } else if (event->type == WEFTI_PROFILER_KERNEL_CHANNEL) {
        *event_out = wefti_profiler_channel(event->parent, 0);
    }
    return WEFTI_DOOR_SUCCESS;
}

/* timed: the time in calls is that of operations, for want of the calls. */
static void *start_body(void *context, uint64_t type, void *parent,
                        const wefti_profiler_body_v4 *body, bool timed)
{
    switch (type) {
    case WEFTI_PROFILER_COLL:
        return wefti_profiler_operation(
            context, what_of_name(body->coll.function),
            bytes_of_name(body->coll.count, body->coll.dtype), timed);
    case WEFTI_PROFILER_P2P:
        return wefti_profiler_operation(
            context, what_of_name(body->p2p.function),
            bytes_of_name(body->p2p.count, body->p2p.dtype), timed);
    case WEFTI_PROFILER_KERNEL_CHANNEL:
        return wefti_profiler_channel(parent, body->kernel_channel.timer_ns);
    case WEFTI_PROFILER_COLL_API:
    case WEFTI_PROFILER_P2P_API:
        return wefti_profiler_call(context, what_of_name(body->api.function));
    default:
        return NULL;
    }
}

static int start_v4(void *context, void **event_out,
                    const wefti_profiler_event_v4 *event)
{
    *event_out =
        start_body(context, event->type, event->parent, &event->body, true);
    return WEFTI_DOOR_SUCCESS;
}

static int start_v5(void *context, void **event_out,
                    const wefti_profiler_event_v5 *event)
{
    *event_out =
        start_body(context, event->type, event->parent, &event->body, false);
    return WEFTI_DOOR_SUCCESS;
}

/* Versions 1 to 3: only of what is not asked for. */
static int record_v1(void *event, int state, const void *arguments)
{
    (void)event, (void)state, (void)arguments;
    return WEFTI_DOOR_SUCCESS;
}

static int record_v4(void *event, int state,
                     const wefti_profiler_state_v4 *arguments)
{
    if (state == WEFTI_PROFILER_KERNEL_CHANNEL_STOP && arguments) {
        wefti_profiler_channel_ended(event, arguments->kernel_channel.timer_ns);
    }
    return WEFTI_DOOR_SUCCESS;
}

const wefti_profiler_v1 ncclProfiler_v1 = {plugin_name, init_v1,   start_v1,
                                           stop,        record_v1, finalize};
const wefti_profiler_v2 ncclProfiler_v2 = {plugin_name, init_v1,   start_v2,
                                           stop,        record_v1, finalize};
const wefti_profiler_v2 ncclProfiler_v3 = {plugin_name, init_v3,   start_v2,
                                           stop,        record_v1, finalize};
const wefti_profiler_v4 ncclProfiler_v4 = {plugin_name, init_v4,   start_v4,
                                           stop,        record_v4, finalize};
const wefti_profiler_v5 ncclProfiler_v5 = {plugin_name, init_v5,   start_v5,
                                           stop,        record_v4, finalize};
