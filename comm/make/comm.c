/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/comm.c - communicators: build, destroy, ask.
 *
 * Every communicator is a range of the memory that the job's ranks share
 * (comm/fabric/shared.h).
 */
#include "comm/make/comm.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/control/fault.h"
#include "comm/core/live.h"
#include "comm/core/reserve.h"
#include "comm/engine/copies.h"
#include "comm/engine/engine.h"
#include "comm/engine/ticket.h"
#include "comm/make/inner_levels.h"
#include "comm/make/key_count.h"
#include "comm/make/remains.h"
#include "comm/make/streams_end.h"
#include "comm/mem/mem.h"
#include "comm/nccl/twin.h"
#include "comm/net/remote.h"
#include "comm/post/collective.h"
#include "comm/post/consensus.h"
#include "comm/post/p2p_queue.h"
#include "comm/steps/reduction.h"
#include "comm/watch/diagnosis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static unsigned char *carve(unsigned char **at, size_t bytes)
{
    unsigned char *piece = *at;
    *at += (bytes + 63) / 64 * 64;
    return piece;
}

/* A wide chunk, then the bounces. */
static size_t list_bytes(const wefti_tuning *tuning, int nranks,
                         const wefti_grouping *grouping)
{
    return (1 + WEFTI_BOUNCES) *
           wefti_select_bounce_bytes(tuning, nranks, grouping);
}

static size_t list_count(bool levels)
{
    return levels ? WEFTI_STEP_LISTS : WEFTI_FLAT_STEP_LISTS;
}

static bool has_levels(const weft_comm *comm)
{
    return comm->grouping || comm->nest;
}

/* No more than steps may need: with a device it is pinned. */
static size_t arena_bytes(const wefti_tuning *tuning, int nranks,
                          const wefti_grouping *grouping, bool levels)
{
    return WEFTI_OP_SLOTS * list_count(levels) *
               list_bytes(tuning, nranks, grouping) +
           WEFTI_P2P_SLOT_BYTES; /* the last for what is put on a remote peer */
}

size_t wefti_comm_map_bytes(const wefti_tuning *tuning, int nranks,
                            int local_ranks, const wefti_grouping *grouping)
{
    const wefti_layout layout = wefti_layout_plan(nranks, local_ranks);
    return wefti_layout_count_bytes(&layout) +
           arena_bytes(tuning, nranks, grouping, grouping != NULL);
}

static void place_list(weft_comm *comm, wefti_step_list *list, size_t number)
{
    const size_t bytes =
        wefti_select_bounce_bytes(&comm->tuning, comm->nranks, comm->grouping);
    unsigned char *at =
        comm->arena +
        number * list_bytes(&comm->tuning, comm->nranks, comm->grouping);
    list->scratch = at;
    for (int way = 0; way < WEFTI_BOUNCES; way++) {
        list->bounces[way] = at + (size_t)(1 + way) * bytes;
    }
}

/* Everything the op slots' pointers point into, in one allocation. */
static weft_status build_ops(weft_comm *comm)
{
    size_t ranks = (size_t)comm->nranks;
    comm->slots_max = 2 * comm->nranks + 8;
    size_t record_bytes = (size_t)comm->slots_max * sizeof(wefti_staged_slot);
    size_t source_bytes = ranks * sizeof(void *);
    size_t begins_bytes = (ranks + 1) * sizeof(int);
    size_t checked_bytes = ranks * sizeof(uint64_t);
    size_t arrived_bytes = WEFTI_GATE_CHUNKS_MAX * sizeof(uint64_t);
    size_t counts_bytes = 4 * ranks * sizeof(size_t);
    size_t moved_bytes = ranks * sizeof(size_t);
    size_t op_slot_bytes =
        counts_bytes + 64 + 2 * (moved_bytes + 64) +
        WEFTI_CHANNELS * (record_bytes + 64) +
        WEFTI_STEP_LISTS * (source_bytes + begins_bytes + 128) + checked_bytes +
        64 + arrived_bytes + 64;
    op_slot_bytes = (op_slot_bytes + 63) / 64 * 64;
    comm->op_arrays = aligned_alloc(64, WEFTI_OP_SLOTS * op_slot_bytes);
    const size_t lists = list_count(has_levels(comm));
    comm->arena_bytes = arena_bytes(&comm->tuning, comm->nranks, comm->grouping,
                                    has_levels(comm));
    comm->arena = mmap(NULL, comm->arena_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (comm->arena == MAP_FAILED) {
        comm->arena = NULL;
        return wefti_error_system("cannot map %zu bytes for operations (mmap)",
                                  comm->arena_bytes);
    }
    if (!comm->op_arrays) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "no memory for operations: %zu bytes",
                           WEFTI_OP_SLOTS * op_slot_bytes);
    }
    memset(comm->op_arrays, 0, WEFTI_OP_SLOTS * op_slot_bytes);
    comm->heap_bytes += WEFTI_OP_SLOTS * op_slot_bytes;
    for (int op_slot = 0; op_slot < WEFTI_OP_SLOTS; op_slot++) {
        wefti_op *op = &comm->ops[op_slot];
        unsigned char *at =
            (unsigned char *)comm->op_arrays + (size_t)op_slot * op_slot_bytes;
        op->op_slot = op_slot;
        op->gate_arrived = (void *)carve(&at, arrived_bytes);
        op->counts = (void *)carve(&at, counts_bytes);
        op->gone = (void *)carve(&at, moved_bytes);
        op->come = (void *)carve(&at, moved_bytes);
        for (int c = 0; c < WEFTI_CHANNELS; c++) {
            op->slot_records[c] = (void *)carve(&at, record_bytes);
        }
        for (int t = 0; t < WEFTI_STEP_LISTS; t++) {
            op->lists[t].sources = (void *)carve(&at, source_bytes);
            op->lists[t].begins = (void *)carve(&at, begins_bytes);
            if ((size_t)t < lists) {
                place_list(comm, &op->lists[t],
                           (size_t)op_slot * lists + (size_t)t);
            }
        }
        op->checked = (void *)carve(&at, checked_bytes);
    }
    return WEFT_OK;
}

static weft_status build_gates(weft_comm *comm)
{
    const wefti_gate_watcher watcher = {.woken = wefti_engine_signalled,
                                        .context = comm->engine};
    for (int op_slot = 0; op_slot < WEFTI_OP_SLOTS; op_slot++) {
        wefti_op *op = &comm->ops[op_slot];
        op->watcher = op->writable_watcher = watcher;
    }
    return wefti_copies_create(comm);
}

/* Where each member is woken: its world's bell; in a mirror, which goes with
 * its communicator, no rank sleeps. It is known who shares memory. */
static void find_bells(weft_comm *comm, const wefti_comm_parts *parts)
{
    for (int peer = 0; peer < comm->nranks; peer++) {
        WEFTI_ASSERT(wefti_fabric_is_remote(&comm->fabric, peer) ==
                     (comm->fabric.shared.places[peer] < 0));
        comm->bells[peer] =
            parts->parent && !wefti_fabric_is_remote(&comm->fabric, peer)
                ? parts->parent->bells[parts->parent_ranks[peer]]
                : &wefti_shared_get_page(&comm->fabric.shared, peer)->bell;
    }
}

/* Only for who asks other domains: it takes a while where ranks are many. */
static void find_firsts(weft_comm *comm, const wefti_member *members)
{
    for (int peer = 0; peer < comm->nranks; peer++) {
        const int domain = members[comm->peers[peer].world_rank].domain;
        int first = 0;
        while (members[comm->peers[first].world_rank].domain != domain) {
            first++;
        }
        comm->peers[peer].first = first;
    }
}

/* What follows for its levels, and the way to other domains. */
static weft_status find_levels(weft_comm *comm, const int *world_ranks)
{
    size_t ranks = (unsigned)comm->nranks;
    int *firsts = calloc(ranks, sizeof(*firsts));
    for (int peer = 0; firsts && peer < comm->nranks; peer++) {
        firsts[peer] = comm->peers[peer].first;
    }
    weft_status status =
        firsts && wefti_grouping_create(firsts, comm->nranks, &comm->grouping)
            ? WEFT_OK
            : wefti_error(WEFT_ERR_NO_MEMORY,
                          "no memory for the levels of %d ranks", comm->nranks);
    if (status == WEFT_OK) {
        status = wefti_remote_init(&comm->fabric, comm->engine->net,
                                   world_ranks, firsts);
    }
    free(firsts);
    return status;
}

/* The members of this domain share its memory; the others have mirrors. */
static weft_status map_memory(weft_comm *comm, const wefti_comm_parts *parts,
                              const bool *remote)
{
    const wefti_layout layout =
        wefti_layout_plan(comm->nranks, comm->local_count);
    comm->memory_offset = parts->memory_offset;
    if (parts->memory_offset + layout.total_bytes > WEFTI_MEMORY_REACH_BYTES) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "no room for another communicator of %d ranks: "
                           "the job has made too many",
                           parts->nranks);
    }
    weft_status status =
        wefti_mapping_open(parts->memory_fd, parts->memory_offset,
                           layout.total_bytes, &comm->mapping);
    if (status == WEFT_OK) {
        status =
            wefti_fabric_init(&comm->fabric, comm->rank, comm->nranks,
                              wefti_mapping_get_base(comm->mapping), remote);
    }
    return status;
}

static weft_status build_memory(weft_comm *comm, const wefti_comm_parts *parts)
{
    bool *remote = calloc((size_t)comm->nranks, sizeof(*remote));
    if (!remote) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %d ranks",
                           comm->nranks);
    }
    for (int peer = 0; peer < comm->nranks; peer++) {
        remote[peer] = !wefti_membership_is_local(parts->members,
                                                  parts->world_ranks[peer]);
        comm->local_count += !remote[peer];
    }
    weft_status status = map_memory(comm, parts, remote);
    free(remote);
    comm->fabric.id = parts->id;
    comm->fabric.bells = comm->bells;
    comm->fabric.link_free_ns = &comm->engine->link_free_ns;
    if (parts->tuning.emulate_gbps > 0) {
        comm->fabric.ns_per_byte = 1.0 / parts->tuning.emulate_gbps;
    }
    return status;
}

/* Undoes build as far as it got. */
static void tear(weft_comm *comm)
{
    wefti_twin_end(comm->twin);
    wefti_copies_destroy(comm);
    wefti_tickets_fini(comm);
    wefti_p2p_queues_fini(comm);
    wefti_remains_free(comm->remains);
    wefti_remote_fini(&comm->fabric);
    wefti_fabric_fini(&comm->fabric);
    wefti_mapping_close(comm->mapping);
    if (comm->arena) {
        munmap(comm->arena, comm->arena_bytes);
    }
    wefti_reductions_fini(comm);
    free(comm->op_arrays);
    free(comm->bells);
    free(comm->peers);
    free(comm->group);
    free(comm->table);
    wefti_choice_cache_destroy(comm->choices);
    free(comm->grouping);
    wefti_nest_free(comm->nest);
    /* Not plain stores: no rank may read them, so a compiler drops those. */
    explicit_bzero(&comm->head_word, sizeof(comm->head_word));
    explicit_bzero(&comm->tail_word, sizeof(comm->tail_word));
    free(comm);
}

/* In the order in which they have their turns. */
static const wefti_request_kind *const kinds[] = {
    &wefti_collective_kind, &wefti_batch_kind, &wefti_mem_op_kind, NULL};

/* What is made once memory and levels are there. */
static weft_status (*const builders[])(weft_comm *comm) = {
    build_ops, wefti_p2p_queues_init, build_gates};

weft_status wefti_comm_build(const wefti_comm_parts *parts,
                             weft_comm **comm_out)
{
    const weft_comm_config *config = parts->config;
    weft_comm *comm = calloc(1, sizeof(*comm));
    if (!comm) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a communicator");
    }
    comm->heap_bytes = sizeof(*comm) + wefti_choice_cache_bytes() +
                       (size_t)parts->nranks *
                           (sizeof(*comm->group) + sizeof(wefti_verdict) +
                            sizeof(*comm->peers) + sizeof(wefti_doorbell *));
    wefti_tickets_init(comm);
    comm->kinds = kinds;
    comm->watch = &wefti_diagnosis;
    comm->head_word = WEFTI_LIVE_WORD;
    comm->tail_word = WEFTI_LIVE_WORD;
    comm->home = parts->engine->home;
    comm->engine = parts->engine;
    comm->rank = parts->rank;
    comm->nranks = parts->nranks;
    comm->device = config->device;
    comm->sm_budget = config->sm_budget;
    comm->warn_ns = config->warn_ms * 1000000;
    comm->timeout_ns = config->timeout_ms * 1000000;
    comm->idle = (wefti_idle){config->idle, config->idle_context};
    comm->ops_in_flight = config->ops_in_flight;
    comm->tuning = parts->tuning;
    comm->rates = parts->rates;
    comm->ranks_per_core = parts->ranks_per_core;
    snprintf(comm->name, sizeof(comm->name), "%s", config->name);
    comm->bells = calloc((size_t)comm->nranks, sizeof(wefti_doorbell *));
    comm->peers = calloc((size_t)comm->nranks, sizeof(*comm->peers));
    comm->group = calloc((size_t)comm->nranks, sizeof(*comm->group));
    comm->table = calloc((size_t)comm->nranks, sizeof(wefti_verdict));
    comm->choices = wefti_choice_cache_create();
    weft_status status =
        comm->bells && comm->peers && comm->group && comm->table &&
                comm->choices
            ? wefti_key_count_prepare(comm->engine)
            : wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %d ranks",
                          comm->nranks);
    if (status == WEFT_OK) {
        status = build_memory(comm, parts);
    }
    if (status == WEFT_OK) {
        for (int peer = 0; peer < comm->nranks; peer++) {
            comm->peers[peer].world_rank = parts->world_ranks[peer];
        }
        if (comm->local_count < comm->nranks) {
            find_firsts(comm, parts->members->members);
            status = find_levels(comm, parts->world_ranks);
            status = status == WEFT_OK ? wefti_remains_prepare(comm) : status;
        }
    }
    if (status == WEFT_OK) {
        status = wefti_inner_levels_find(comm, parts->members);
    }
    if (status == WEFT_OK) {
        find_bells(comm, parts);
    }
    for (size_t i = 0; i < WEFTI_COUNT_OF(builders) && status == WEFT_OK; i++) {
        status = builders[i](comm);
    }
    if (status == WEFT_OK) {
        atomic_store(
            &wefti_shared_get_page(&comm->fabric.shared, comm->rank)->host_only,
            !comm->copies);
    }
    if (status == WEFT_OK && !parts->parent) {
        status = wefti_board_open(comm->rank, &comm->engine->board);
    }
    if (status != WEFT_OK) {
        tear(comm);
        return status;
    }
    pthread_mutex_lock(&comm->engine->lock);
    if (!parts->parent) {
        /* The thread may look at the bell until it has ended. */
        comm->engine->mapping = wefti_mapping_retain(comm->mapping);
        comm->engine->bell = comm->bells[comm->rank];
    }
    comm->next = comm->engine->comms;
    comm->engine->comms = comm;
    pthread_mutex_unlock(&comm->engine->lock);
    *comm_out = comm;
    return WEFT_OK;
}

/* A communicator on its way out. */
typedef struct leaving {
    weft_comm *comm;
    int64_t until_ns;
} leaving;

/* Whether nothing is left to wait for; what takes too long is ended. */
static bool is_quiet(const void *context)
{
    const leaving *own = context;
    weft_comm *comm = own->comm;
    if (comm->inside > 0) {
        return false;
    }
    if (comm->failed != WEFT_OK) {
        return comm->released;
    }
    if (wefti_requests_are_done(comm)) {
        return wefti_copies_are_over(comm);
    }
    if (wefti_clock_ns() > own->until_ns) {
        wefti_fault_publish(comm, WEFT_ERR_ABORTED, comm->rank, 0,
                            "rank %d destroyed \"%s\" while a stream held an "
                            "operation that it did not reach within %lld ms",
                            comm->rank, comm->name,
                            (long long)(comm->timeout_ns / 1000000));
    }
    return false;
}

/* Of the engine's no call for it is under way then. */
static void end_streams(weft_comm *comm)
{
    pthread_mutex_lock(&comm->engine->lock);
    wefti_streams *streams = comm->streams;
    comm->streams = NULL;
    if (streams) {
        wefti_streams_unwatch(streams);
    }
    pthread_mutex_unlock(&comm->engine->lock);
    wefti_streams_end(streams);
}

void weft_comm_destroy(weft_comm *comm)
{
    if (!wefti_comm_is_live(comm)) {
        if (comm && !wefti_comm_is_inherited(comm)) {
            wefti_log(WEFTI_LOG_ERROR, -1,
                      "weft_comm_destroy: comm is no communicator, or has been "
                      "destroyed");
        }
        return;
    }
    wefti_engine *engine = comm->engine;
    leaving own = {comm, wefti_clock_ns() + comm->timeout_ns};
    wefti_engine_drive(engine, is_quiet, &own);
    end_streams(comm);
    wefti_mems_fini(comm);
    pthread_mutex_lock(&engine->lock);
    if (atomic_load(&engine->noted) == comm) {
        /* Its address may be another's soon. */
        atomic_store(&engine->noted, NULL);
    }
    for (weft_comm **link = &engine->comms; *link; link = &(*link)->next) {
        if (*link == comm) {
            *link = comm->next;
            break;
        }
    }
    wefti_copies_await_hands(comm);
    const wefti_leave how =
        comm->failed == WEFT_OK ? WEFTI_LEAVE_WELL : WEFTI_LEAVE_AFTER_FAULT;
    wefti_remote_leave(&comm->fabric, how);
    pthread_mutex_unlock(&engine->lock);
    wefti_rank_page *page =
        wefti_shared_get_page(&comm->fabric.shared, comm->rank);
    atomic_store(&page->left, how);
    for (int peer = 0; peer < comm->nranks; peer++) {
        wefti_doorbell_ring(comm->bells[peer]);
    }
    wefti_remains_leave(comm);
    tear(comm);
    wefti_engine_release(engine);
}

int weft_comm_get_rank(const weft_comm *comm)
{
    return wefti_comm_is_live(comm) ? comm->rank : -1;
}

int weft_comm_get_nranks(const weft_comm *comm)
{
    return wefti_comm_is_live(comm) ? comm->nranks : -1;
}

weft_status wefti_comm_observe(weft_comm *comm, const wefti_observer *observer)
{
    if (!wefti_comm_is_live(comm)) {
        return wefti_comm_refuse(comm, "comm");
    }
    if (observer && comm->observer.moved) {
        return wefti_error(WEFT_ERR_INVALID,
                           "comm has an observer: allowed is one without");
    }
    wefti_shared_header *header = comm->fabric.shared.header;
    pthread_mutex_lock(&comm->engine->lock);
    comm->observer = observer ? *observer : (wefti_observer){NULL, NULL};
    pthread_mutex_unlock(&comm->engine->lock);
    if (observer) {
        atomic_store(&header->observed, 1);
        pthread_mutex_lock(&comm->engine->lock);
        wefti_remote_tell_observed(&comm->fabric);
        pthread_mutex_unlock(&comm->engine->lock);
    }
    return WEFT_OK;
}
