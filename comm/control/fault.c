/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/control/fault.c - publishing a fault, and learning of it.
 *
 * The page's state: compare-and-swap 0 -> 1 picks one writer; its store of 2
 * pairs with every rank's load and publishes the text.
 */
#include "comm/control/fault.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/control/channel.h"
#include "comm/core/wake.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    HALF_WRITTEN_NS = 200000000, /* then its writer is taken for dead */
    RIPE_NS = 300000000,         /* nothing has come for so long */
    RIPE_MOST_NS = 1000000000
};

static wefti_fault_page *page_of(weft_comm *comm)
{
    return &comm->fabric.shared.header->fault;
}

static void wake_all(weft_comm *comm)
{
    for (int rank = 0; rank < comm->nranks; rank++) {
        wefti_doorbell_wake(comm->bells[rank]);
    }
    wefti_engine_wake(comm->engine);
}

/* Copies a fault into the page, unless there is one. */
static bool write_page(weft_comm *comm, const wefti_fault_page *fault)
{
    wefti_fault_page *page = page_of(comm);
    uint32_t none = 0;
    if (!atomic_compare_exchange_strong(&page->state, &none, 1)) {
        return false;
    }
    memcpy(page->text, fault->text, sizeof(page->text));
    page->status = fault->status;
    page->rank = fault->rank;
    page->op_number = fault->op_number;
    page->completed = fault->completed;
    atomic_store(&page->state, 2);
    wefti_log(WEFTI_LOG_ERROR, comm->rank, "%s", page->text);
    wake_all(comm);
    return true;
}

void wefti_fault_repeat(weft_comm *comm, const wefti_fault_page *fault)
{
    (void)write_page(comm, fault);
}

void wefti_fault_publish(weft_comm *comm, weft_status status, int rank,
                         uint64_t op_number, const char *format, ...)
{
    wefti_rank_page *own =
        wefti_shared_get_page(&comm->fabric.shared, comm->rank);
    wefti_fault_page fault = {.status = status,
                              .rank = rank,
                              .op_number = op_number,
                              .completed = atomic_load(&own->completed)};
    if (wefti_fault_is_published(comm)) {
        return;
    }
    va_list args;
    va_start(args, format);
    vsnprintf(fault.text, sizeof(fault.text), format, args);
    va_end(args);
    /* Before the page is written: the rank that acts on it must see this. */
    atomic_store(&comm->fault_announced, true);
    (void)write_page(comm, &fault);
}

weft_status wefti_fault_recall(weft_comm *comm)
{
    const wefti_fault_page *page = page_of(comm);
    return atomic_load(&page->state) == 2
               ? wefti_error((weft_status)page->status, "%s", page->text)
               : WEFT_OK;
}

bool wefti_fault_is_published(weft_comm *comm)
{
    return atomic_load(&page_of(comm)->state) != 0;
}

/* Copies the published fault, or makes one up if its writer died writing. */
static bool copy_page(weft_comm *comm)
{
    wefti_fault_page *page = page_of(comm);
    uint32_t state = atomic_load(&page->state);
    if (state == 0) {
        return false;
    }
    weft_fault *fault = &comm->fault;
    fault->size_bytes = sizeof(*fault);
    if (state == 2) {
        fault->status = (weft_status)page->status;
        fault->rank = page->rank;
        fault->op_number = page->op_number;
        memcpy(fault->text, page->text, sizeof(fault->text));
        fault->text[sizeof(fault->text) - 1] = 0;
        return true;
    }
    int64_t now_ns = wefti_clock_ns();
    if (comm->half_fault_ns == 0) {
        comm->half_fault_ns = now_ns;
    }
    if (now_ns - comm->half_fault_ns < HALF_WRITTEN_NS) {
        return false;
    }
    fault->status = WEFT_ERR_PEER;
    fault->rank = -1;
    fault->op_number = comm->completed + 1;
    snprintf(fault->text, sizeof(fault->text),
             "a rank of \"%s\" died while it reported a fault", comm->name);
    return true;
}

/* The highest operation that some rank is known to have reached: all that other
 * ranks had to send for it has arrived or is in flight. */
static uint64_t most_completed(weft_comm *comm)
{
    wefti_fault_page *page = page_of(comm);
    uint64_t most = comm->completed;
    if (atomic_load(&page->state) == 2 && page->completed > most) {
        most = page->completed;
    }
    for (int rank = 0; rank < comm->nranks; rank++) {
        uint64_t theirs = atomic_load(
            &wefti_shared_get_page(&comm->fabric.shared, rank)->completed);
        most = theirs > most ? theirs : most;
    }
    return most;
}

/* Sent by the rank that found the fault and by each domain's first rank, since
 * either may die. */
static void notify_other_domains(weft_comm *comm)
{
    int first = 0;
    while (wefti_fabric_is_remote(&comm->fabric, first)) {
        first++;
    }
    if (first == comm->rank || atomic_load(&comm->fault_announced)) {
        wefti_note note = {.kind = WEFTI_NOTE_FAULT,
                           .status = comm->fault.status,
                           .rank = comm->fault.rank,
                           .op_number = comm->fault.op_number,
                           .completed = most_completed(comm)};
        memcpy(note.text, comm->fault.text, sizeof(note.text));
        wefti_control_notify_all(comm, &note);
    }
}

bool wefti_fault_is_ripe(weft_comm *comm, bool moved)
{
    const int64_t now_ns = wefti_clock_ns();
    if (!comm->fabric.net || comm->completed >= most_completed(comm)) {
        return true;
    }
    if (comm->ripens_ns == 0) {
        comm->ripe_ns = now_ns + RIPE_MOST_NS;
    }
    if (comm->ripens_ns == 0 || moved) {
        comm->ripens_ns = now_ns + RIPE_NS;
    }
    int64_t due_ns =
        comm->ripens_ns < comm->ripe_ns ? comm->ripens_ns : comm->ripe_ns;
    if (due_ns < comm->engine->due_ns) {
        comm->engine->due_ns = due_ns;
    }
    return now_ns >= due_ns;
}

void wefti_fault_blame(weft_comm *comm, int rank)
{
    if (comm->engine->board && rank >= 0 && rank != comm->rank) {
        wefti_board_blame(comm->engine->board, comm->peers[rank].world_rank);
    }
}

bool wefti_fault_learn(weft_comm *comm)
{
    if (!copy_page(comm)) {
        return false;
    }
    comm->failed = comm->fault.status;
    comm->engine->failed = true;
    atomic_store(&comm->fault_seen, 1);
    wefti_fault_blame(comm, comm->fault.rank);
    notify_other_domains(comm);
    return true;
}

weft_status wefti_fault_status(weft_comm *comm)
{
    return wefti_error(comm->fault.status, "%s", comm->fault.text);
}
