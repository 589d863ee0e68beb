/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/mem/mem.c - making and ending memory that peers write into.
 *
 *   all-gather (status, bytes) -> every rank asked for the same
 *   all-gather cards           -> of a device's memory: who reaches it
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

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

enum { PAGE_BYTES = 4096 };

/* What each rank says about its call. */
typedef struct info {
    int32_t status;
    bool on_device;
    uint64_t bytes;
} info;

/* What a call asks for. own NULL: memory of the job. */
typedef struct request {
    wefti_purpose purpose;
    bool registered, on_device;
    unsigned char *own;
    size_t bytes;
} request;

/* The domain's page of a memory. */
typedef struct header {
    _Atomic uint32_t gone; /* fetch-and-add by each that leaves, to the last */
    _Atomic uint32_t left[(PAGE_BYTES - sizeof(uint32_t)) / sizeof(uint32_t)];
    /* a bit for each place in the domain: its memory is its program's again */
} header;
_Static_assert(sizeof(header) == PAGE_BYTES, "one page");

static size_t round_up(size_t bytes)
{
    return (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

static size_t cells_bytes(const weft_comm *comm)
{
    return round_up((size_t)comm->nranks * WEFT_MEM_SLOTS * sizeof(uint64_t));
}

unsigned char *wefti_mem_get_part(const weft_mem *mem, int rank)
{
    const int place = mem->comm->fabric.shared.places[rank];
    return (unsigned char *)wefti_mapping_get_base(mem->mapping) + PAGE_BYTES +
           (size_t)place * mem->part_bytes;
}

_Atomic uint64_t *wefti_mem_get_cell(const weft_mem *mem, int rank, int source,
                                     int slot)
{
    _Atomic uint64_t *cells = (void *)wefti_mem_get_part(mem, rank);
    return cells + (size_t)source * WEFT_MEM_SLOTS + (size_t)slot;
}

unsigned char *wefti_mem_get_data(const weft_mem *mem, int rank)
{
    if (!mem->registered) {
        return wefti_mem_get_part(mem, rank) + cells_bytes(mem->comm);
    }
    return rank == mem->comm->rank ? mem->own : mem->reaches[rank].data;
}

bool wefti_mem_is_local(const weft_mem *mem, int peer)
{
    const weft_comm *comm = mem->comm;
    const wefti_membership *job = comm->engine->members;
    if (peer == comm->rank || !job) {
        return true;
    }
    return mem->registered
               ? mem->reaches[peer].data != NULL
               : !mem->apart && wefti_membership_is_local(
                                    job, comm->peers[peer].world_rank);
}

bool wefti_mem_is_on_device(const weft_mem *mem, int peer)
{
    return mem->lent &&
           (peer == mem->comm->rank ? mem->on_device
                                    : mem->reaches[peer].data != NULL);
}

/* The word and the bit of a rank's leaving. */
static _Atomic uint32_t *find_left(const weft_mem *mem, int rank,
                                   uint32_t *bit_out)
{
    const unsigned place = (unsigned)mem->comm->fabric.shared.places[rank];
    header *domain = wefti_mapping_get_base(mem->mapping);
    *bit_out = UINT32_C(1) << place % 32;
    return &domain->left[place / 32];
}

bool wefti_mem_has_left(const weft_mem *mem, int peer)
{
    uint32_t bit;
    return mem->registered && mem->comm->fabric.shared.places[peer] >= 0 &&
           (atomic_load(find_left(mem, peer, &bit)) & bit);
}

/* Whether puts and signals to some peer are messages. */
static bool has_remote(const weft_mem *mem)
{
    const weft_comm *comm = mem->comm;
    return mem->registered
               ? mem->messages && comm->nranks > 1
               : (mem->apart ? 1 : comm->local_count) < comm->nranks;
}

/* Sizes of a memory of so many bytes a rank; a status if that is too much. */
static weft_status plan(const weft_comm *comm, const request *asked,
                        weft_mem *mem)
{
    const size_t bytes = asked->registered ? 0 : asked->bytes;
    mem->bytes = asked->bytes;
    mem->own = asked->own;
    mem->registered = mem->messages = asked->registered;
    mem->on_device = asked->on_device;
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
                           const request *asked, bool *lent_out)
{
    const info own = {.status = refused,
                      .on_device = asked->on_device,
                      .bytes = asked->bytes};
    weft_status status = wefti_consensus_exchange(consensus, &own, sizeof(own));
    *lent_out = false;
    for (int rank = 0; rank < consensus->comm->nranks && status == WEFT_OK;
         rank++) {
        const info *first = wefti_consensus_get(consensus, 0);
        const info *theirs = wefti_consensus_get(consensus, rank);
        *lent_out |= theirs->on_device;
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

/* Remote peers' messages keep the engine's thread awake, also once it is
 * destroyed: what they put then is lost, but takes their slots until it is
 * read. Lock held. */
static void engage(weft_comm *comm, const weft_mem *mem)
{
    if (!comm->mems_engaged && has_remote(mem)) {
        comm->mems_engaged = true;
        atomic_fetch_add(&comm->engine->pending, 1);
    }
}

/* From here on remote peers' messages find it. */
static void enlist(weft_comm *comm, weft_mem *mem)
{
    pthread_mutex_lock(&comm->engine->lock);
    mem->next = comm->mems;
    comm->mems = mem;
    /* A rank may have got a device since it was found out. */
    comm->reading = WEFTI_READING_UNKNOWN;
    if (!mem->registered && shares_memory(comm)) {
        wefti_mapped_add(&comm->fabric.mapped, mem->mapped, mem->offset,
                         mem->mapping);
        mem->mapped = NULL;
    }
    engage(comm, mem);
    const bool engaged = comm->mems_engaged;
    pthread_mutex_unlock(&comm->engine->lock);
    if (engaged) {
        wefti_engine_wake(comm->engine);
    }
}

/* Nor do its parts have it any more. */
static void drop_mapped(weft_comm *comm, const weft_mem *mem)
{
    pthread_mutex_lock(&comm->engine->lock);
    for (weft_comm *each = comm->engine->comms; each; each = each->next) {
        wefti_mapped_drop(&each->fabric.mapped, mem->offset);
    }
    pthread_mutex_unlock(&comm->engine->lock);
}

/* All ranks: none reaches another's part from here on. */
static weft_status set_apart(weft_comm *comm, weft_mem *mem)
{
    wefti_log(comm->rank == 0 ? WEFTI_LOG_WARN : WEFTI_LOG_INFO, comm->rank,
              "\"%s\", memory #%llu: what is put there goes by messages%s: %s",
              comm->name, (unsigned long long)mem->id,
              mem->registered ? "" : ", and what is sent from there is staged",
              weft_error_text());
    drop_mapped(comm, mem);
    wefti_mem_lent_part(mem);
    pthread_mutex_lock(&comm->engine->lock);
    mem->apart = mem->messages = true;
    engage(comm, mem);
    pthread_mutex_unlock(&comm->engine->lock);
    weft_status status = wefti_engine_start(comm->engine);
    wefti_engine_wake(comm->engine);
    return status;
}

static weft_status try_mapped(weft_comm *comm, weft_mem *mem)
{
    wefti_consensus seen = {.comm = comm,
                            .purpose = WEFTI_PURPOSE_MEM_CREATE,
                            .what = "see what others write"};
    weft_status status =
        wefti_consensus_conclude(&seen, wefti_mem_trial_look(mem));
    wefti_mem_trial_end(mem);
    return status;
}

static weft_status try_lent(weft_comm *comm, weft_mem *mem)
{
    wefti_consensus seen = {.comm = comm,
                            .purpose = WEFTI_PURPOSE_MEM_REGISTER,
                            .what = "write to the others' device memory"};
    weft_status status = wefti_consensus_conclude(
        &seen, mem->reached == WEFT_OK
                   ? wefti_mem_lent_write(mem)
                   : wefti_error(mem->reached, "%s", mem->why));
    char why[512];
    snprintf(why, sizeof(why), "%s", weft_error_text());
    weft_status found = status == WEFT_OK ? wefti_mem_lent_look(mem) : WEFT_OK;
    wefti_mem_lent_restore(mem);
    /* Also where none is relied on: nobody puts before all have restored. */
    seen.what = "see what others write";
    found = wefti_consensus_conclude(&seen, found);
    return status == WEFT_OK ? found : wefti_error(status, "%s", why);
}

/* What all have mapped, or reach, is used for the first time. */
static weft_status try_out(weft_comm *comm, weft_mem *mem)
{
    weft_status status = WEFT_OK;
    if (mem->lent) {
        status = try_lent(comm, mem);
    } else if (!mem->registered && shares_memory(comm)) {
        status = try_mapped(comm, mem);
    }
    return status == WEFT_OK || wefti_fault_is_published(comm)
               ? status
               : set_apart(comm, mem);
}

/* Whether a device is still at what a peer has put there, or at what this rank
 * was putting when the communicator broke. Lock held. */
static bool is_at_device(const weft_comm *comm, const weft_mem *mem)
{
    return comm->copies && ((comm->stored == mem &&
                             !wefti_copies_is_over(
                                 comm, wefti_copy_place_of_mem(comm, true))) ||
                            (comm->failed != WEFT_OK &&
                             !wefti_copies_is_over(
                                 comm, wefti_copy_place_of_mem(comm, false))));
}

/* Nothing is written there afterwards by messages. */
static void delist(weft_comm *comm, weft_mem *mem)
{
    pthread_mutex_lock(&comm->engine->lock);
    for (weft_mem **link = &comm->mems; *link; link = &(*link)->next) {
        if (*link == mem) {
            *link = mem->next;
            break;
        }
    }
    while (mem->lent && is_at_device(comm, mem)) {
        wefti_engine_unlock(comm->engine);
        sched_yield();
        pthread_mutex_lock(&comm->engine->lock);
    }
    if (comm->stored == mem) {
        comm->stored = NULL;
    }
    pthread_mutex_unlock(&comm->engine->lock);
}

/* The last of the domain gives the range back. */
static void leave(weft_comm *comm, weft_mem *mem)
{
    header *domain = wefti_mapping_get_base(mem->mapping);
    pthread_mutex_lock(&comm->engine->lock);
    for (weft_comm *each = comm->engine->comms; each; each = each->next) {
        wefti_mapped_leave(each->fabric.mapped, mem->offset);
    }
    pthread_mutex_unlock(&comm->engine->lock);
    int gone = (int)atomic_fetch_add(&domain->gone, 1) + 1;
    if (gone == comm->local_count && shares_memory(comm)) {
        drop_mapped(comm, mem);
        wefti_unreserve(comm->engine, mem->offset, mem->total_bytes);
    }
    wefti_copies_unpin(comm, mem->mapping);
    wefti_mapping_close(mem->mapping);
}

static weft_mem *allocate(weft_comm *comm)
{
    weft_mem *mem = calloc(1, sizeof(*mem));
    wefti_mapped *mapped = calloc(1, sizeof(*mapped));
    wefti_mem_reach *reaches = calloc((size_t)comm->nranks, sizeof(*reaches));
    if (!mem || !mapped || !reaches) {
        free(mem);
        free(mapped);
        free(reaches);
        return NULL;
    }
    mem->comm = comm;
    mem->mapped = mapped;
    mem->reaches = reaches;
    return mem;
}

static void deallocate(weft_mem *mem)
{
    if (mem) {
        wefti_mem_lent_part(mem);
        free(mem->mapped);
        free(mem->reaches);
        free(mem);
    }
}

/* Of what begins to be there, on all ranks; their ways to it are tried after.
 */
static weft_status build(weft_comm *comm, weft_mem *mem)
{
    weft_status status = map(comm, mem);
    if (status == WEFT_OK) {
        enlist(comm, mem);
        if (!mem->registered && shares_memory(comm)) {
            wefti_mem_trial_begin(mem);
        }
        status = mem->lent ? wefti_mem_lent_keep(mem) : WEFT_OK;
    }
    return status;
}

/* After a failure, at any point. */
static void abandon(weft_comm *comm, weft_mem *mem)
{
    wefti_mem_lent_restore(mem);
    delist(comm, mem);
    drop_mapped(comm, mem);
    wefti_copies_unpin(comm, mem->mapping);
    wefti_mapping_close(mem->mapping);
    deallocate(mem);
}

/* refused: what this rank's arguments got; the others must learn of it. */
static weft_status make(weft_comm *comm, const request *asked,
                        weft_status refused, weft_mem **mem_out)
{
    weft_mem *mem = allocate(comm);
    bool lent;
    if (refused == WEFT_OK) {
        refused =
            mem ? plan(comm, asked, mem)
                : wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a weft_mem");
    }
    wefti_consensus consensus = {.comm = comm,
                                 .purpose = asked->purpose,
                                 .what = "map the memory",
                                 .refused = " could not begin"};
    weft_status status = compare(&consensus, refused, asked, &lent);
    if (status != WEFT_OK) {
        deallocate(mem);
        return status;
    }
    WEFTI_ASSERT(mem); /* else refused */
    mem->id = ++comm->mems_made;
    mem->lent = lent;
    if (lent) {
        status = wefti_mem_lent_meet(mem, &consensus);
    }
    if (status == WEFT_OK) {
        status = wefti_consensus_reserve(
            &consensus, shares_memory(comm) ? mem->total_bytes : 0,
            &mem->offset);
    }
    if (status != WEFT_OK) {
        deallocate(mem);
        return status;
    }
    status = wefti_consensus_conclude(&consensus, build(comm, mem));
    if (status == WEFT_OK) {
        status = try_out(comm, mem);
    }
    if (status != WEFT_OK) {
        abandon(comm, mem);
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
    request asked = {.purpose = WEFTI_PURPOSE_MEM_REGISTER,
                     .registered = true,
                     .own = pointer,
                     .bytes = bytes};
    weft_status status = check_call(comm, mem_out);
    if (status != WEFT_OK) {
        return status;
    }
    status = wefti_mem_check_range(comm, pointer, bytes, &asked.on_device);
    return make(comm, &asked, status, mem_out);
}

void weft_mem_destroy(weft_mem *mem)
{
    uint32_t bit;
    if (!mem || wefti_comm_is_inherited(mem->comm)) {
        return;
    }
    if (mem->registered) {
        _Atomic uint32_t *left = find_left(mem, mem->comm->rank, &bit);
        atomic_fetch_or(left, bit);
    }
    delist(mem->comm, mem);
    leave(mem->comm, mem);
    deallocate(mem);
}

void wefti_mems_fini(weft_comm *comm)
{
    weft_mem *mem = comm->mems;
    while (mem) {
        weft_mem *next = mem->next;
        weft_mem_destroy(mem);
        mem = next;
    }
    pthread_mutex_lock(&comm->engine->lock);
    if (comm->mems_engaged) {
        comm->mems_engaged = false;
        atomic_fetch_sub(&comm->engine->pending, 1);
    }
    pthread_mutex_unlock(&comm->engine->lock);
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
