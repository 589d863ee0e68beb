/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/unstaged.c - who may read from whom, when that pays, and reading.
 */
#include "comm/steps/unstaged.h"

#include "comm/control/fault.h"
#include "comm/engine/op.h"
#include "comm/fabric/process_read.h"
#include "comm/pattern/shape.h"
#include "kernels/wire/reduce.h"

#include <errno.h>
#include <string.h>

enum {
    /* Below, a reduction whose sources are other processes' stages them: the
     * copy before it would cost as much. */
    REDUCE_LEAST_BYTES = 2 << 20,
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
    *why_out = !comm->tuning.single_copy ? "WEFT_SINGLE_COPY=off"
               : comm->nranks == 1       ? "there is one rank"
               : comm->fabric.net        ? "some ranks share no memory"
                                         : NULL;
    for (int peer = 0; !*why_out && peer < comm->nranks; peer++) {
        wefti_rank_page *page =
            wefti_shared_get_page(&comm->fabric.shared, peer);
        if (!atomic_load(&page->host_only)) {
            *why_out = "a rank's device has memory of its own";
        } else if (peer != comm->rank && is_of_this_process(comm, peer)) {
            /* A load of memory that its owner has freed, after a fault that
             * this rank has not yet seen, would end the process. */
            *why_out = "some ranks are threads of one process";
        }
    }
    if (!*why_out && !comm->engine->reads_processes) {
        *why_out = comm->engine->unread_why;
    }
    return *why_out ? WEFTI_READING_STAGED : WEFTI_READING_COPIES;
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

bool wefti_unstaged_suits(weft_comm *comm, const wefti_op *op)
{
    if (op->choice.pattern->rewrites || op->desc.scale || !is_large(op)) {
        return false;
    }
    if (comm->reading == WEFTI_READING_UNKNOWN) {
        const char *why;
        comm->reading = wefti_unstaged_find(comm, &why);
    }
    return comm->reading != WEFTI_READING_STAGED &&
           (!op->role.shape->reduces ||
            (comm->nranks - 1 <= REDUCE_SOURCES_MOST &&
             op->send_elems * op->role.elem_bytes >= REDUCE_LEAST_BYTES));
}

bool wefti_unstaged_is_here(const weft_comm *comm, int peer,
                            const wefti_incoming *message)
{
    return message->place == WEFTI_PLACE_STAGED || peer == comm->rank;
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
    if (peer == comm->rank) {
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
