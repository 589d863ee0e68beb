/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/nccl/door_call.c - a call becomes a post on the program's stream; or,
 * of host memory, a request that the caller waits for.
 *
 * One thread may have several ranks in one group, so that nothing is waited for
 * before all has been begun.
 */
#include "doors/nccl/door_call.h"

#include "doors/nccl/door_aside.h"
#include "doors/nccl/door_device.h"
#include "doors/nccl/door_group.h"
#include "doors/nccl/door_text.h"

#include <stdlib.h>
#include <string.h>

static bool is_message(const wefti_door_call *call)
{
    return call->op.collective == WEFT_COLLECTIVE_SEND ||
           call->op.collective == WEFT_COLLECTIVE_RECV;
}

static weft_p2p to_message(const wefti_door_call *call)
{
    const bool sends = call->op.collective == WEFT_COLLECTIVE_SEND;
    return (weft_p2p){.size_bytes = sizeof(weft_p2p),
                      .kind = sends ? WEFT_P2P_SEND : WEFT_P2P_RECV,
                      .buffer = sends ? (void *)(uintptr_t)call->op.send
                                      : call->op.recv,
                      .count = call->op.count,
                      .dtype = call->op.dtype,
                      .peer = call->op.root};
}

/* The scalar as it stands when the stream comes here: waits for that. */
static weft_status read_scalar(wefti_door_call *call, weft_stream *stream)
{
    wefti_door_comm *comm = call->comm;
    wefti_door_redop *redop = &call->redop;
    const size_t bytes = weft_dtype_bytes(call->op.dtype);
    if (redop->op == 0) {
        return WEFT_OK;
    }
    call->op.scale = redop->value;
    if (redop->residence == WEFTI_DOOR_SCALAR_HOST) {
        return WEFT_OK;
    }
    if (!comm->device) {
        memcpy(redop->value, redop->scalar, bytes);
        return WEFT_OK;
    }
    weft_status status = weft_device_copy(comm->device, redop->value,
                                          redop->scalar, bytes, stream);
    return status == WEFT_OK ? weft_stream_wait(stream) : status;
}

/* The time of a list is that of its first message. */
static void count_calls(const wefti_door_call *call, const weft_p2p *list,
                        size_t length, int64_t since_ns)
{
    wefti_door_report *report = &call->comm->report;
    if (!list) {
        wefti_door_report_add(report, call->op.collective, call->op.count,
                              call->op.dtype, since_ns);
    }
    for (size_t i = 0; list && i < length; i++) {
        wefti_door_report_add(report,
                              list[i].kind == WEFT_P2P_SEND
                                  ? WEFT_COLLECTIVE_SEND
                                  : WEFT_COLLECTIVE_RECV,
                              list[i].count, list[i].dtype, since_ns);
        since_ns = wefti_door_report_now(report);
    }
}

/* request_out: NULL where it goes on without (it is done, or a stream's). */
static int start(wefti_door_call *call, weft_p2p *list, size_t length,
                 bool waits, weft_request **request_out)
{
    weft_comm *weft = wefti_door_get_weft(call->comm);
    weft_stream *stream = NULL;
    const int64_t since_ns = wefti_door_report_now(&call->comm->report);
    *request_out = NULL;
    int result = wefti_door_stream_get(call->comm, call->native, &stream);
    if (result != WEFTI_DOOR_SUCCESS) {
        return result;
    }
    weft_status status = list ? wefti_door_set_aside(call->comm, call->native,
                                                     stream, list, length)
                              : read_scalar(call, stream);
    if (status == WEFT_OK && (stream || waits)) {
        status = list ? weft_p2p_post(list, length, weft, stream)
                      : weft_op_post(&call->op, 0, weft, stream);
    } else if (status == WEFT_OK) {
        status = list ? weft_p2p_begin(list, length, weft, request_out)
                      : weft_op_begin(&call->op, 0, weft, request_out);
    }
    count_calls(call, list, length, since_ns);
    return wefti_door_status(status, call->name);
}

/* What is begun, and by whom it is waited for. */
typedef struct wefti_door_begun {
    weft_request *request;
    wefti_door_call *call;
} wefti_door_begun;

static int finish(const wefti_door_begun *begun)
{
    wefti_door_comm *comm = begun->call->comm;
    if (!comm->wish.blocking && wefti_door_keep(comm, begun->request)) {
        return WEFTI_DOOR_IN_PROGRESS;
    }
    const int64_t since_ns = wefti_door_report_now(&comm->report);
    weft_status status = weft_request_wait(begun->request);
    weft_request_destroy(begun->request);
    wefti_door_report_wait(&comm->report, begun->call->op.collective, since_ns);
    return wefti_door_status(status, begun->call->name);
}

/* An error stays; else what goes on. */
static int join(int result, int next)
{
    if (next == WEFTI_DOOR_SUCCESS) {
        return result;
    }
    return next == WEFTI_DOOR_IN_PROGRESS && result != WEFTI_DOOR_SUCCESS
               ? result
               : next;
}

static int launch_one(wefti_door_call *call)
{
    weft_p2p message = to_message(call);
    wefti_door_begun begun = {.call = call};
    int result = start(call, is_message(call) ? &message : NULL, 1,
                       call->comm->wish.blocking, &begun.request);
    if (begun.request) {
        result = finish(&begun);
    }
    return result;
}

/* All messages of one communicator and stream, which are one list. */
static size_t gather(wefti_door_call *calls, size_t from, size_t count,
                     weft_p2p *list)
{
    size_t length = 0;
    for (size_t i = from; i < count; i++) {
        if (is_message(&calls[i]) && calls[i].comm == calls[from].comm &&
            calls[i].native == calls[from].native) {
            list[length++] = to_message(&calls[i]);
            calls[i].launched = true;
        }
    }
    return length;
}

static int launch_several(wefti_door_call *calls, size_t count, weft_p2p *list,
                          wefti_door_begun *begun)
{
    int result = WEFTI_DOOR_SUCCESS;
    size_t begun_count = 0;
    for (size_t turn = 0; turn < 2 * count; turn++) {
        const size_t i = turn % count;
        const bool messages = turn < count;
        wefti_door_call *call = &calls[i];
        if (call->launched || is_message(call) != messages ||
            result != WEFTI_DOOR_SUCCESS) {
            continue;
        }
        const size_t length = messages ? gather(calls, i, count, list) : 0;
        call->launched = true;
        begun[begun_count].call = call;
        result = start(call, messages ? list : NULL, length, false,
                       &begun[begun_count].request);
        begun_count += begun[begun_count].request != NULL;
    }
    for (size_t i = 0; i < begun_count; i++) {
        result = join(result, finish(&begun[i]));
    }
    return result;
}

static int launch_entered(wefti_door_call *calls, size_t count)
{
    if (count == 1) {
        return launch_one(calls);
    }
    weft_p2p *list = malloc(count * sizeof(*list));
    wefti_door_begun *begun = calloc(count, sizeof(*begun));
    const int result = list && begun
                           ? launch_several(calls, count, list, begun)
                           : wefti_door_error(WEFTI_DOOR_SYSTEM_ERROR,
                                              "a group: out of memory");
    free(list);
    free(begun);
    return result;
}

int wefti_door_launch(wefti_door_call *calls, size_t count)
{
    int result = WEFTI_DOOR_SUCCESS;
    size_t entered = 0;
    while (entered < count && result == WEFTI_DOOR_SUCCESS) {
        wefti_door_call *call = &calls[entered];
        result = wefti_door_enter_ready(call->handle, call->name, &call->comm);
        entered += result == WEFTI_DOOR_SUCCESS;
    }
    if (result == WEFTI_DOOR_SUCCESS && count > 0) {
        result = launch_entered(calls, count);
    }
    for (size_t i = 0; i < entered; i++) {
        wefti_door_leave(calls[i].comm);
    }
    return result;
}

/* ---- checks ---- */

static int check_redop(wefti_door_call *call, wefti_door_comm *comm)
{
    const int op = (int)call->op.redop;
    if (op >= 0 && op < WEFTI_DOOR_BUILT_IN_OPS) {
        return WEFTI_DOOR_SUCCESS;
    }
    pthread_mutex_lock(&comm->lock);
    for (size_t i = 0; op > 0 && i < comm->redop_count; i++) {
        if (comm->redops[i].op == op) {
            call->redop = comm->redops[i];
        }
    }
    pthread_mutex_unlock(&comm->lock);
    if (call->redop.op == 0) {
        return wefti_door_error(WEFTI_DOOR_INVALID_ARGUMENT,
                                "%s: op is %d: allowed are 0 to %d, and what "
                                "ncclRedOpCreatePreMulSum made on this "
                                "communicator and nobody has destroyed",
                                call->name, op, WEFTI_DOOR_BUILT_IN_OPS - 1);
    }
    if (call->redop.dtype != (int)call->op.dtype) {
        return wefti_door_error(WEFTI_DOOR_INVALID_ARGUMENT,
                                "%s: op %d was made for type %d, and datatype "
                                "is %d",
                                call->name, op, call->redop.dtype,
                                (int)call->op.dtype);
    }
    call->op.redop = WEFT_REDOP_PREMULSUM;
    return WEFTI_DOOR_SUCCESS;
}

static bool has_root(weft_collective what)
{
    return what == WEFT_COLLECTIVE_REDUCE ||
           what == WEFT_COLLECTIVE_BROADCAST ||
           what == WEFT_COLLECTIVE_GATHER || what == WEFT_COLLECTIVE_SCATTER ||
           what == WEFT_COLLECTIVE_SEND || what == WEFT_COLLECTIVE_RECV;
}

static int check_numbers(const wefti_door_call *call,
                         const wefti_door_comm *comm)
{
    const weft_op *op = &call->op;
    if ((int)op->dtype < 0 || op->dtype >= WEFT_DTYPE_COUNT) {
        return wefti_door_error(WEFTI_DOOR_INVALID_ARGUMENT,
                                "%s: datatype is %d: allowed is 0 to %d",
                                call->name, (int)op->dtype,
                                WEFT_DTYPE_COUNT - 1);
    }
    if (has_root(op->collective) &&
        (op->root < 0 || op->root >= comm->nranks)) {
        return wefti_door_error(WEFTI_DOOR_INVALID_ARGUMENT,
                                "%s: %s is %d: allowed is 0 to %d", call->name,
                                is_message(call) ? "peer" : "root", op->root,
                                comm->nranks - 1);
    }
    if (is_message(call) && op->count > 0 &&
        !(op->collective == WEFT_COLLECTIVE_SEND ? op->send : op->recv)) {
        return wefti_door_error(WEFTI_DOOR_INVALID_ARGUMENT,
                                "%s: the buffer is NULL, and count %zu",
                                call->name, op->count);
    }
    return WEFTI_DOOR_SUCCESS;
}

/* A buffer that this rank has no use for may be anything. */
static void drop_unused(weft_op *op, int rank)
{
    if (op->collective == WEFT_COLLECTIVE_BROADCAST ||
        op->collective == WEFT_COLLECTIVE_SCATTER) {
        op->send = op->root == rank ? op->send : NULL;
    }
    if (op->collective == WEFT_COLLECTIVE_REDUCE ||
        op->collective == WEFT_COLLECTIVE_GATHER) {
        op->recv = op->root == rank ? op->recv : NULL;
    }
}

static int check_revoked(const wefti_door_call *call, wefti_door_comm *comm)
{
    pthread_mutex_lock(&comm->lock);
    const bool stopped = comm->revoked || comm->finalized;
    const char *how = comm->revoked ? "revoked" : "finalized";
    pthread_mutex_unlock(&comm->lock);
    return stopped ? wefti_door_error(WEFTI_DOOR_INVALID_USAGE,
                                      "%s: the communicator has been %s",
                                      call->name, how)
                   : WEFTI_DOOR_SUCCESS;
}

static bool reduces(weft_collective what)
{
    return what == WEFT_COLLECTIVE_ALLREDUCE ||
           what == WEFT_COLLECTIVE_REDUCE ||
           what == WEFT_COLLECTIVE_REDUCESCATTER;
}

static int check(wefti_door_call *call, wefti_door_comm *comm)
{
    int result = check_revoked(call, comm);
    if (result == WEFTI_DOOR_SUCCESS) {
        result = check_numbers(call, comm);
    }
    if (result == WEFTI_DOOR_SUCCESS && reduces(call->op.collective)) {
        result = check_redop(call, comm);
    }
    drop_unused(&call->op, comm->rank);
    return result;
}

/* In a group an error has to be found before anything is launched: this asks
 * for an order that nobody needs, and is checked like the post. */
static int check_ahead(wefti_door_call *call, wefti_door_comm *comm)
{
    size_t chunks;
    weft_op op = call->op;
    if (is_message(call)) {
        return WEFTI_DOOR_SUCCESS;
    }
    if (call->redop.op != 0) {
        op.scale = call->redop.value;
    }
    weft_status status =
        weft_op_ready_order(&op, wefti_door_get_weft(comm), NULL, 0, &chunks);
    return wefti_door_status(status, call->name);
}

int wefti_door_call_submit(wefti_door_call *call)
{
    wefti_door_comm *comm;
    const bool grouped = wefti_door_group_is_open();
    int result = wefti_door_enter_ready(call->handle, call->name, &comm);
    if (result != WEFTI_DOOR_SUCCESS) {
        return wefti_door_group_note(result);
    }
    call->op.size_bytes = sizeof(call->op);
    result = check(call, comm);
    const bool empty = call->op.count == 0 && !is_message(call);
    if (result == WEFTI_DOOR_SUCCESS && grouped && !empty) {
        result = check_ahead(call, comm);
    }
    if (result == WEFTI_DOOR_SUCCESS && grouped && !empty) {
        result = wefti_door_group_add(call, comm->wish.blocking);
    } else if (result == WEFTI_DOOR_SUCCESS && !empty) {
        call->comm = comm;
        result = launch_one(call);
    }
    wefti_door_leave(comm);
    return wefti_door_group_note(result);
}
