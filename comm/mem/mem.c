/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/mem/mem.c - making and ending memory that peers write into.
 *
 *   all-gather (status, bytes) -> every rank asked for the same
 *   all-gather offsets         -> one rank of each domain has set it aside
 *   all-gather verdicts        -> all have mapped it, or none has it
 *   all-gather verdicts        -> all see what others write, or it is apart
 */
#include "comm/mem/mem.h"

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/control/fault.h"
#include "comm/core/live.h"
#include "comm/core/reserve.h"
#include "comm/engine/copies.h"
#include "comm/engine/engine.h"
#include "comm/post/consensus.h"

#include <stdlib.h>

enum { PAGE_BYTES = 4096 };

/* What each rank says about its call. */
typedef struct info {
    int32_t status;
    uint64_t bytes;
} info;

/* What a call asks for. own NULL: memory of the job. */
typedef struct request {
    wefti_purpose purpose;
    bool registered;
    unsigned char *own;
    size_t bytes;
} request;

/* The domain's page of a memory. */
typedef struct header {
    _Atomic uint32_t gone; /* fetch-and-add by each that leaves, to the last */
} header;

static size_t round_up(size_t bytes)
{
    return (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

static size_t cells_bytes(const weft_comm *comm)
{
    return round_up((size_t)comm->nranks * WEFT_MEM_SLOTS * sizeof(uint64_t));
}

/* rank: of this domain. */
static unsigned char *get_part(const weft_mem *mem, int rank)
{
    const int place = mem->comm->fabric.shared.places[rank];
    return (unsigned char *)wefti_mapping_get_base(mem->mapping) + PAGE_BYTES +
           (size_t)place * mem->part_bytes;
}

_Atomic uint64_t *wefti_mem_get_cell(const weft_mem *mem, int rank, int source,
                                     int slot)
{
    _Atomic uint64_t *cells = (void *)get_part(mem, rank);
    return cells + (size_t)source * WEFT_MEM_SLOTS + (size_t)slot;
}

unsigned char *wefti_mem_get_data(const weft_mem *mem, int rank)
{
    return mem->registered ? mem->own
                           : get_part(mem, rank) + cells_bytes(mem->comm);
}

bool wefti_mem_is_local(const weft_mem *mem, int peer)
{
    const weft_comm *comm = mem->comm;
    const wefti_membership *job = comm->engine->members;
    return peer == comm->rank || !job ||
           (!mem->apart &&
            wefti_membership_is_local(job, comm->peers[peer].world_rank));
}

/* Whether puts and signals to some peer are messages. */
static bool has_remote(const weft_mem *mem)
{
    return (mem->apart ? 1 : mem->comm->local_count) < mem->comm->nranks;
}

/* Sizes of a memory of so many bytes a rank; a status if that is too much. */
static weft_status plan(const weft_comm *comm, const request *asked,
                        weft_mem *mem)
{
    const size_t bytes = asked->registered ? 0 : asked->bytes;
    mem->bytes = asked->bytes;
    mem->own = asked->own;
    mem->registered = mem->apart = asked->registered;
    if (bytes > WEFTI_MEMORY_REACH_BYTES / 2 / (uint64_t)comm->nranks) {
        return wefti_error(WEFT_ERR_INVALID,
                           "bytes %zu on each of %d ranks: allowed is up to "
                           "%llu on all",
                           bytes, comm->nranks,
                           (unsigned long long)WEFTI_MEMORY_REACH_BYTES / 2);
    }
    mem->part_bytes = cells_bytes(comm) + round_up(bytes);
    mem->total_bytes = PAGE_BYTES + (size_t)comm->local_count * mem->part_bytes;
    return WEFT_OK;
}

/* All ranks see the same and come to the same end. */
static weft_status compare(wefti_consensus *consensus, weft_status refused,
                           size_t bytes)
{
    const info own = {.status = refused, .bytes = bytes};
    weft_status status = wefti_consensus_exchange(consensus, &own, sizeof(own));
    for (int rank = 1; rank < consensus->comm->nranks && status == WEFT_OK;
         rank++) {
        const info *first = wefti_consensus_get(consensus, 0);
        const info *theirs = wefti_consensus_get(consensus, rank);
        if (theirs->bytes != first->bytes) {
            status = wefti_error(WEFT_ERR_INVALID,
                                 "bytes: rank 0 has %llu, rank %d %llu: "
                                 "allowed is the same on all ranks",
                                 (unsigned long long)first->bytes, rank,
                                 (unsigned long long)theirs->bytes);
        }
    }
    return status;
}

static bool shares_memory(const weft_comm *comm)
{
    return comm->engine->members && comm->engine->members->nranks > 1;
}

static weft_status map(weft_comm *comm, weft_mem *mem)
{
    if (mem->offset + mem->total_bytes > (uint64_t)WEFTI_MEMORY_REACH_BYTES) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "no room for %zu bytes on each rank: the job has "
                           "set too much aside",
                           mem->bytes);
    }
    int memory_fd = shares_memory(comm) ? comm->engine->members->memory_fd : -1;
    weft_status status = wefti_mapping_open(memory_fd, mem->offset,
                                            mem->total_bytes, &mem->mapping);
    if (status == WEFT_OK) {
        wefti_copies_pin(comm, mem->mapping);
    }
    if (status == WEFT_OK && has_remote(mem)) {
        status = wefti_engine_start(comm->engine);
    }
    return status;
}

/* Its remote peers' messages keep the engine's thread awake. Lock held. */
static void engage(weft_comm *comm, weft_mem *mem)
{
    if (!mem->engaged && has_remote(mem)) {
        mem->engaged = true;
        comm->mems_engaged++;
        atomic_fetch_add(&comm->engine->pending, 1);
    }
}

/* From here on remote peers' messages find it. */
static void enlist(weft_comm *comm, weft_mem *mem)
{
    pthread_mutex_lock(&comm->engine->lock);
    mem->next = comm->mems;
    comm->mems = mem;
    if (!mem->registered && shares_memory(comm)) {
        wefti_mapped_add(&comm->fabric.mapped, mem->mapped, mem->offset,
                         mem->mapping);
        mem->mapped = NULL;
    }
    engage(comm, mem);
    pthread_mutex_unlock(&comm->engine->lock);
    if (mem->engaged) {
        wefti_engine_wake(comm->engine);
    }
}

static void drop_mapped(weft_comm *comm, const weft_mem *mem)
{
    pthread_mutex_lock(&comm->engine->lock);
    wefti_mapped_drop(&comm->fabric.mapped, mem->offset);
    pthread_mutex_unlock(&comm->engine->lock);
}

/* All ranks: none reaches another's part from here on. */
static weft_status set_apart(weft_comm *comm, weft_mem *mem)
{
    wefti_log(comm->rank == 0 ? WEFTI_LOG_WARN : WEFTI_LOG_INFO, comm->rank,
              "\"%s\", memory #%llu: what is put there goes by messages, and "
              "what is sent from there is staged: %s",
              comm->name, (unsigned long long)mem->id, weft_error_text());
    drop_mapped(comm, mem);
    pthread_mutex_lock(&comm->engine->lock);
    mem->apart = true;
    engage(comm, mem);
    pthread_mutex_unlock(&comm->engine->lock);
    weft_status status = wefti_engine_start(comm->engine);
    wefti_engine_wake(comm->engine);
    return status;
}

/* What all have mapped is used for the first time. */
static weft_status try_out(weft_comm *comm, weft_mem *mem)
{
    wefti_consensus seen = {.comm = comm,
                            .purpose = WEFTI_PURPOSE_MEM_CREATE,
                            .what = "see what others write"};
    weft_status status =
        wefti_consensus_conclude(&seen, wefti_mem_trial_look(mem));
    wefti_mem_trial_end(mem);
    return status == WEFT_OK || wefti_fault_is_published(comm)
               ? status
               : set_apart(comm, mem);
}

static void delist(weft_comm *comm, weft_mem *mem)
{
    pthread_mutex_lock(&comm->engine->lock);
    for (weft_mem **link = &comm->mems; *link; link = &(*link)->next) {
        if (*link == mem) {
            *link = mem->next;
            break;
        }
    }
    if (mem->engaged) {
        comm->mems_engaged--;
        atomic_fetch_sub(&comm->engine->pending, 1);
    }
    pthread_mutex_unlock(&comm->engine->lock);
}

/* The last of the domain gives the range back. */
static void leave(weft_comm *comm, weft_mem *mem)
{
    header *domain = wefti_mapping_get_base(mem->mapping);
    pthread_mutex_lock(&comm->engine->lock);
    wefti_mapped_leave(comm->fabric.mapped, mem->offset);
    pthread_mutex_unlock(&comm->engine->lock);
    int gone = (int)atomic_fetch_add(&domain->gone, 1) + 1;
    if (gone == comm->local_count && shares_memory(comm)) {
        drop_mapped(comm, mem);
        wefti_unreserve(comm->engine, mem->offset, mem->total_bytes);
    }
    wefti_copies_unpin(comm, mem->mapping);
    wefti_mapping_close(mem->mapping);
}

static weft_mem *allocate(void)
{
    weft_mem *mem = calloc(1, sizeof(*mem));
    wefti_mapped *mapped = calloc(1, sizeof(*mapped));
    if (!mem || !mapped) {
        free(mem);
        free(mapped);
        return NULL;
    }
    mem->mapped = mapped;
    return mem;
}

static void deallocate(weft_mem *mem)
{
    if (mem) {
        free(mem->mapped);
        free(mem);
    }
}

/* refused: what this rank's arguments got; the others must learn of it. */
static weft_status make(weft_comm *comm, const request *asked,
                        weft_status refused, weft_mem **mem_out)
{
    weft_mem *mem = allocate();
    if (refused == WEFT_OK) {
        refused =
            mem ? plan(comm, asked, mem)
                : wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a weft_mem");
    }
    wefti_consensus consensus = {.comm = comm,
                                 .purpose = asked->purpose,
                                 .what = "map the memory",
                                 .refused = " could not begin"};
    weft_status status = compare(&consensus, refused, asked->bytes);
    if (status != WEFT_OK) {
        deallocate(mem);
        return status;
    }
    WEFTI_ASSERT(mem); /* else refused */
    mem->comm = comm;
    mem->id = ++comm->mems_made;
    status = wefti_consensus_reserve(
        &consensus, shares_memory(comm) ? mem->total_bytes : 0, &mem->offset);
    if (status != WEFT_OK) {
        deallocate(mem);
        return status;
    }
    const bool tried = !mem->registered && shares_memory(comm);
    weft_status mapped = map(comm, mem);
    if (mapped == WEFT_OK) {
        enlist(comm, mem);
    }
    if (mapped == WEFT_OK && tried) {
        wefti_mem_trial_begin(mem);
    }
    status = wefti_consensus_conclude(&consensus, mapped);
    if (status == WEFT_OK && tried) {
        status = try_out(comm, mem);
    }
    if (status != WEFT_OK) {
        if (mapped == WEFT_OK) {
            delist(comm, mem);
            drop_mapped(comm, mem);
        }
        wefti_copies_unpin(comm, mem->mapping);
        wefti_mapping_close(mem->mapping);
        deallocate(mem);
        return status;
    }
    *mem_out = mem;
    return WEFT_OK;
}

static weft_status check_call(weft_comm *comm, weft_mem **mem_out)
{
    if (!wefti_comm_is_live(comm)) {
        return wefti_comm_refuse(comm, "comm");
    }
    if (!mem_out) {
        return wefti_error(WEFT_ERR_INVALID,
                           "mem_out is NULL: allowed is a place for one");
    }
    *mem_out = NULL;
    return WEFT_OK;
}

weft_status weft_mem_create(weft_comm *comm, size_t bytes, weft_mem **mem_out)
{
    const request asked = {.purpose = WEFTI_PURPOSE_MEM_CREATE, .bytes = bytes};
    weft_status status = check_call(comm, mem_out);
    return status == WEFT_OK ? make(comm, &asked, WEFT_OK, mem_out) : status;
}

weft_status weft_mem_register(weft_comm *comm, void *pointer, size_t bytes,
                              weft_mem **mem_out)
{
    const request asked = {.purpose = WEFTI_PURPOSE_MEM_REGISTER,
                           .registered = true,
                           .own = pointer,
                           .bytes = bytes};
    weft_status status = check_call(comm, mem_out);
    return status == WEFT_OK
               ? make(comm, &asked, wefti_mem_check_range(comm, pointer, bytes),
                      mem_out)
               : status;
}

void weft_mem_destroy(weft_mem *mem)
{
    if (mem && !wefti_comm_is_inherited(mem->comm)) {
        delist(mem->comm, mem);
        leave(mem->comm, mem);
        deallocate(mem);
    }
}

void wefti_mems_fini(weft_comm *comm)
{
    weft_mem *mem = comm->mems;
    while (mem) {
        weft_mem *next = mem->next;
        weft_mem_destroy(mem);
        mem = next;
    }
}

void *weft_mem_get_base(const weft_mem *mem)
{
    return mem ? wefti_mem_get_data(mem, mem->comm->rank) : NULL;
}

void *weft_mem_get_peer_base(const weft_mem *mem, int peer)
{
    return mem && peer >= 0 && peer < mem->comm->nranks &&
                   wefti_mem_is_local(mem, peer)
               ? wefti_mem_get_data(mem, peer)
               : NULL;
}

size_t weft_mem_get_bytes(const weft_mem *mem)
{
    return mem ? mem->bytes : 0;
}
