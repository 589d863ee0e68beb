/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/unstaged.c - who may read from whom, when that pays, and reading.
 */
#include "comm/steps/unstaged.h"

#include "comm/control/fault.h"
#include "comm/engine/op.h"
#include "comm/fabric/process_read.h"
#include "comm/net/net.h"
#include "comm/pattern/shape.h"
#include "comm/steps/slot.h"
#include "kernels/wire/reduce.h"

#include <errno.h>
#include <string.h>

enum {
    /* Below, a reduction whose sources are other processes' stages them: the
     * copy before it would cost as much. */
    REDUCE_LEAST_BYTES = 2 << 20,
    /* Here loads take as long as staging; at twice of it they take less. */
    MAPPED_LEAST_BYTES = 4 << 10,
    /* To other hosts: below, it is not worth another look at the end. */
    LENT_LEAST_BYTES = 64 << 10,
    /* Of one element of a reduction, that a list has room for. */
    REDUCE_SOURCES_MOST = 1 + WEFTI_BOUNCES
};

static bool is_of_this_process(const weft_comm *comm, int peer)
{
    const wefti_membership *job = comm->engine->members;
    return !job || job->members[comm->peers[peer].world_rank].pid ==
                       job->members[job->rank].pid;
}

wefti_reading wefti_unstaged_find(weft_comm *comm, const char **why_out)
{
    const uint8_t setting = comm->tuning.single_copy;
    *why_out = setting == WEFTI_SINGLE_COPY_OFF ? "WEFT_SINGLE_COPY=off"
               : comm->nranks == 1              ? "there is one rank"
               : comm->fabric.net               ? "some ranks share no memory"
                                                : NULL;
    for (int peer = 0; !*why_out && peer < comm->nranks; peer++) {
        if (!atomic_load(&wefti_shared_get_page(&comm->fabric.shared, peer)
                              ->host_only)) {
            *why_out = "a rank's device has memory of its own";
        }
    }
    if (*why_out) {
        return WEFTI_READING_STAGED;
    }
    if (setting == WEFTI_SINGLE_COPY_MAPPED) {
        *why_out = "WEFT_SINGLE_COPY=mapped";
    }
    for (int peer = 0; !*why_out && peer < comm->nranks; peer++) {
        if (peer != comm->rank && is_of_this_process(comm, peer)) {
            /* A load of memory that its owner has freed, after a fault that
             * this rank has not yet seen, would end the process. */
            *why_out = "some ranks are threads of one process";
        }
    }
    if (!*why_out && !comm->engine->reads_processes) {
        *why_out = comm->engine->unread_why;
    }
    return *why_out ? WEFTI_READING_LOADS : WEFTI_READING_COPIES;
}

/* More than its slots hold: with them it would wait for its readers too. */
static bool is_large(const wefti_op *op)
{
    size_t slots = 0;
    for (int channel = 0; channel < WEFTI_CHANNELS; channel++) {
        slots += (size_t)op->slots[channel];
    }
    return op->role.sends && slots > 0 &&
           op->send_elems / slots > op->problem.chunk_elems;
}

static bool is_mapped(const weft_comm *comm, const void *bytes_at, size_t bytes)
{
    uint64_t offset;
    return bytes_at &&
           wefti_mapped_locate(comm->fabric.mapped, bytes_at, bytes, &offset);
}

/* Whether it pays, and op may wait for its readers: it needs their part in it
 * anyway, or would wait for room. */
static bool suits_loads(const weft_comm *comm, const wefti_op *op)
{
    return ((op->role.receives && !op->role.shape->rooted &&
             !wefti_op_slot_is_p2p(op->op_slot)) ||
            is_large(op)) &&
           op->send_elems * op->role.elem_bytes >= MAPPED_LEAST_BYTES &&
           (is_mapped(comm, op->desc.send, 1) ||
            is_mapped(comm, op->desc.recv, 1));
}

static bool suits_copies(const weft_comm *comm, const wefti_op *op)
{
    return is_large(op) &&
           (!op->role.shape->reduces ||
            (comm->nranks - 1 <= REDUCE_SOURCES_MOST &&
             op->send_elems * op->role.elem_bytes >= REDUCE_LEAST_BYTES));
}

static bool suits_network(const weft_comm *comm, const wefti_op *op)
{
    return comm->fabric.net && wefti_net_lends(comm->fabric.net) &&
           op->send_elems * op->role.elem_bytes >= LENT_LEAST_BYTES;
}

wefti_bytes_place wefti_unstaged_choose(weft_comm *comm, const wefti_op *op)
{
    const bool in_place = op->desc.send == op->desc.recv;
    if (!op->role.sends || op->desc.scale ||
        (in_place && op->choice.pattern->rewrites)) {
        return WEFTI_PLACE_STAGED;
    }
    if (suits_network(comm, op)) {
        return WEFTI_PLACE_LENT;
    }
    if (!is_large(op) &&
        op->send_elems * op->role.elem_bytes < MAPPED_LEAST_BYTES) {
        return WEFTI_PLACE_STAGED; /* also before it is known who reads what */
    }
    if (comm->reading == WEFTI_READING_UNKNOWN) {
        const char *why;
        comm->reading = wefti_unstaged_find(comm, &why);
    }
    return comm->reading == WEFTI_READING_COPIES && suits_copies(comm, op)
               ? WEFTI_PLACE_PROCESS
           : comm->reading >= WEFTI_READING_LOADS && suits_loads(comm, op)
               ? WEFTI_PLACE_MAPPED
               : WEFTI_PLACE_STAGED;
}

static bool all_are_remote(const weft_comm *comm)
{
    for (int peer = 0; peer < comm->nranks; peer++) {
        if (peer != comm->rank &&
            !wefti_fabric_is_remote(&comm->fabric, peer)) {
            return false;
        }
    }
    return true;
}

/* Whether host memory goes to other hosts alone. */
static bool is_lent(const weft_comm *comm, const wefti_op *op,
                    const wefti_step *step)
{
    const bool on_device =
        step->src == WEFTI_BUFFER_SEND ? op->places.send : op->places.recv;
    return !on_device &&
           (step->peer >= 0 ? wefti_fabric_is_remote(&comm->fabric, step->peer)
                            : all_are_remote(comm));
}

wefti_bytes_place wefti_unstaged_place(const weft_comm *comm,
                                       const wefti_op *op,
                                       const wefti_step *step, const void *src,
                                       size_t bytes)
{
    if (op->unstaged == WEFTI_PLACE_STAGED || step->kind != WEFTI_STEP_SEND ||
        step->src == WEFTI_BUFFER_SCRATCH) {
        return WEFTI_PLACE_STAGED;
    }
    if (op->unstaged == WEFTI_PLACE_LENT) {
        return is_lent(comm, op, step) ? WEFTI_PLACE_LENT : WEFTI_PLACE_STAGED;
    }
    return is_mapped(comm, src, bytes)           ? WEFTI_PLACE_MAPPED
           : op->unstaged == WEFTI_PLACE_PROCESS ? WEFTI_PLACE_PROCESS
                                                 : WEFTI_PLACE_STAGED;
}

bool wefti_unstaged_is_read(weft_comm *comm, const wefti_op *op)
{
    return op->unstaged == WEFTI_PLACE_LENT ? op->lent > 0
           : op->unstaged ? wefti_slots_find_reader(comm, op) >= 0
                          : false;
}

bool wefti_unstaged_is_here(const weft_comm *comm, int peer,
                            const wefti_incoming *message)
{
    return message->place != WEFTI_PLACE_PROCESS || peer == comm->rank;
}

/*
 * A read-modify-write, as it comes behind the loads of the data: a rank's
 * buffers change only after it has seen the fault.
 */
bool wefti_unstaged_holds(weft_comm *comm)
{
    wefti_fault_page *page = &comm->fabric.shared.header->fault;
    return atomic_fetch_or(&page->state, 0) == 0;
}

/* Of an ended process this says nothing: its death is looked for where ranks
 * wait (comm/watch). */
static void report(weft_comm *comm, const wefti_op *op, int peer, size_t bytes,
                   int error)
{
    char text[96];
    if (error == ESRCH) {
        return;
    }
    wefti_op_text(comm, op, text, sizeof(text));
    wefti_fault_publish(comm, WEFT_ERR_SYSTEM, peer, op->number,
                        "%s: rank %d cannot read %zu bytes of rank %d's buffer "
                        "(process_vm_readv): %s; WEFT_SINGLE_COPY=off avoids "
                        "it",
                        text, comm->rank, bytes, peer, strerror(error));
}

bool wefti_unstaged_copy(weft_comm *comm, const wefti_op *op, int peer,
                         void *dst, const wefti_incoming *message)
{
    if (wefti_unstaged_is_here(comm, peer, message)) {
        size_t whole_bytes = wefti_op_recv_elems(op) * op->role.elem_bytes;
        wefti_copy_part(dst, message->data, message->bytes, whole_bytes);
        return wefti_unstaged_holds(comm);
    }
    const wefti_witness *witness =
        &comm->engine->witnesses[comm->peers[peer].world_rank];
    int error = wefti_process_read(witness, dst, message->data, message->bytes);
    if (error) {
        report(comm, op, peer, message->bytes, error);
    }
    return !error && wefti_unstaged_holds(comm);
}
