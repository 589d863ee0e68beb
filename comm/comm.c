/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/comm.c - communicators: create, destroy, ask.
 *
 * The world's ranks meet through bootstrap, which gives them one memory; every
 * communicator is a range of it (comm/fabric/shared.h). Creation ends with a
 * barrier on the new communicator, so that all ranks succeed or all learn why
 * not.
 */
#include "comm/comm.h"

#include "base/error.h"
#include "base/log.h"
#include "comm/control/fault.h"
#include "comm/engine.h"
#include "comm/letters.h"
#include "comm/op.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Address space of the job's memory file; pages exist once touched. */
static const off_t memory_reach_bytes = (off_t)1 << 44;

static unsigned char *carve(unsigned char **at, size_t bytes)
{
    unsigned char *piece = *at;
    *at += (bytes + 63) / 64 * 64;
    return piece;
}

/* Everything the lanes' pointers point into, in one allocation. */
static weft_status build_ops(weft_comm *comm)
{
    size_t ranks = (size_t)comm->nranks;
    comm->slots_max = 2 * comm->nranks + 8;
    size_t record_bytes = (size_t)comm->slots_max * sizeof(wefti_slot);
    size_t source_bytes = ranks * sizeof(void *);
    size_t checked_bytes = ranks * sizeof(uint64_t);
    size_t arrived_bytes = WEFTI_GATE_CHUNKS_MAX * sizeof(uint64_t);
    size_t lane_bytes = WEFTI_CHANNELS * (record_bytes + 64) +
                        WEFTI_TRACKS * (source_bytes + 64) + checked_bytes +
                        64 + arrived_bytes + 64;
    lane_bytes = (lane_bytes + 63) / 64 * 64;
    comm->op_arrays = aligned_alloc(64, WEFTI_LANES * lane_bytes);
    comm->arena_bytes =
        (size_t)WEFTI_LANES * WEFTI_TRACKS * WEFTI_SCRATCH_BYTES;
    comm->arena = mmap(NULL, comm->arena_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (comm->arena == MAP_FAILED) {
        comm->arena = NULL;
    }
    if (!comm->op_arrays || !comm->arena) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for operations");
    }
    memset(comm->op_arrays, 0, WEFTI_LANES * lane_bytes);
    for (int lane = 0; lane < WEFTI_LANES; lane++) {
        wefti_op *op = &comm->ops[lane];
        unsigned char *at =
            (unsigned char *)comm->op_arrays + (size_t)lane * lane_bytes;
        op->ring = lane;
        op->gate_arrived = (void *)carve(&at, arrived_bytes);
        for (int c = 0; c < WEFTI_CHANNELS; c++) {
            op->slot_records[c] = (void *)carve(&at, record_bytes);
        }
        for (int t = 0; t < WEFTI_TRACKS; t++) {
            op->tracks[t].sources = (void *)carve(&at, source_bytes);
            op->tracks[t].scratch =
                comm->arena +
                ((size_t)lane * WEFTI_TRACKS + (size_t)t) * WEFTI_SCRATCH_BYTES;
        }
        op->checked = (void *)carve(&at, checked_bytes);
    }
    return WEFT_OK;
}

static void attach_watcher(wefti_gate_watcher *watcher, wefti_engine *engine)
{
    watcher->woken = wefti_engine_woken;
    watcher->context = engine;
}

static weft_status build_gates(weft_comm *comm)
{
    size_t chunks = WEFTI_LANES + WEFTI_LETTERS;
    weft_device *device = comm->device ? comm->device : comm->engine->host;
    weft_status status = weft_gate_create(device, chunks, &comm->start);
    if (status == WEFT_OK) {
        status = weft_gate_create(device, chunks, &comm->done);
    }
    if (status == WEFT_OK) {
        status = weft_gate_create(device, chunks * WEFTI_TRACKS, &comm->copied);
    }
    if (status != WEFT_OK) {
        return status;
    }
    attach_watcher(&comm->start_watcher, comm->engine);
    wefti_gate_watch(comm->start, &comm->start_watcher);
    attach_watcher(&comm->copied_watcher, comm->engine);
    wefti_gate_watch(comm->copied, &comm->copied_watcher);
    for (int lane = 0; lane < WEFTI_LANES; lane++) {
        attach_watcher(&comm->ops[lane].watcher, comm->engine);
    }
    for (int letter = 0; letter < WEFTI_LETTERS; letter++) {
        attach_watcher(&comm->letters[letter].watcher, comm->engine);
    }
    if (comm->device && !wefti_device_get_table(comm->device)->host_reads) {
        status = weft_stream_create(comm->device, 0, &comm->copies);
    }
    return status;
}

static void tear_gates(weft_comm *comm)
{
    weft_stream_destroy(comm->copies);
    if (comm->copied && comm->copied_watcher.woken) {
        wefti_gate_unwatch(comm->copied, &comm->copied_watcher);
    }
    if (comm->start && comm->start_watcher.woken) {
        wefti_gate_unwatch(comm->start, &comm->start_watcher);
    }
    weft_gate_destroy(comm->copied);
    weft_gate_destroy(comm->done);
    weft_gate_destroy(comm->start);
}

/* Where each member is woken: its world's bell. */
static void find_bells(weft_comm *comm, const wefti_comm_parts *parts)
{
    for (int peer = 0; peer < comm->nranks; peer++) {
        comm->peers[peer].world_rank = parts->world_ranks[peer];
        comm->bells[peer] =
            parts->parent ? parts->parent->bells[parts->parent_ranks[peer]]
                          : &wefti_shared_get_page(&comm->fabric.layout,
                                                   comm->fabric.base, peer)
                                 ->bell;
    }
}

static weft_status build_memory(weft_comm *comm, const wefti_comm_parts *parts)
{
    wefti_layout layout = wefti_layout_plan(parts->nranks);
    comm->memory_offset = parts->memory_offset;
    if (parts->memory_offset + layout.total_bytes >
        (uint64_t)memory_reach_bytes) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "no room for another communicator of %d ranks: "
                           "the job has made too many",
                           parts->nranks);
    }
    weft_status status =
        wefti_mapping_open(parts->memory_fd, parts->memory_offset,
                           layout.total_bytes, &comm->mapping);
    if (status != WEFT_OK) {
        return status;
    }
    status = wefti_fabric_init(&comm->fabric, comm->rank, comm->nranks,
                               wefti_mapping_get_base(comm->mapping));
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
    tear_gates(comm);
    wefti_letters_fini(comm);
    wefti_fabric_fini(&comm->fabric);
    wefti_mapping_close(comm->mapping);
    if (comm->arena) {
        munmap(comm->arena, comm->arena_bytes);
    }
    free(comm->op_arrays);
    free(comm->bells);
    free(comm->peers);
    free(comm);
}

weft_status wefti_comm_build(const wefti_comm_parts *parts,
                             weft_comm **comm_out)
{
    weft_comm *comm = calloc(1, sizeof(*comm));
    if (!comm) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a communicator");
    }
    comm->engine = parts->engine;
    comm->rank = parts->rank;
    comm->nranks = parts->nranks;
    comm->device = parts->device;
    comm->warn_ns = parts->warn_ms * 1000000;
    comm->timeout_ns = parts->timeout_ms * 1000000;
    comm->ops_in_flight = parts->ops_in_flight;
    comm->tuning = parts->tuning;
    snprintf(comm->name, sizeof(comm->name), "%s", parts->name);
    comm->bells = calloc((size_t)comm->nranks, sizeof(wefti_doorbell *));
    comm->peers = calloc((size_t)comm->nranks, sizeof(*comm->peers));
    weft_status status =
        comm->bells && comm->peers
            ? build_memory(comm, parts)
            : wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %d ranks",
                          comm->nranks);
    if (status == WEFT_OK) {
        find_bells(comm, parts);
        status = build_ops(comm);
    }
    if (status == WEFT_OK) {
        status = wefti_letters_init(comm);
    }
    if (status == WEFT_OK) {
        status = build_gates(comm);
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

/*
 * How many cores the members may use between them. Each is asked by its own
 * mask: bound one to a core, they have a core each, and not one for all.
 */
static int count_cores(const wefti_membership *members)
{
    cpu_set_t all, one;
    CPU_ZERO(&all);
    for (int rank = 0; rank < members->nranks; rank++) {
        if (sched_getaffinity(members->members[rank].pid, sizeof(one), &one) ==
            0) {
            CPU_OR(&all, &all, &one);
        }
    }
    return CPU_COUNT(&all);
}

/* Meets the other ranks; the engine then owns the membership. */
static weft_status meet(wefti_engine *engine, const weft_comm_config *config,
                        wefti_tuning *tuning)
{
    wefti_bootstrap_request request = {.id = config->id,
                                       .rank = config->rank,
                                       .nranks = config->nranks,
                                       .warn_ms = config->warn_ms,
                                       .timeout_ms = config->timeout_ms};
    _Static_assert(sizeof(*tuning) <= sizeof(request.tuning),
                   "tuning must fit into the meeting's message");
    memcpy(request.tuning, tuning, sizeof(*tuning));
    engine->members = calloc(1, sizeof(*engine->members));
    if (!engine->members) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for the members");
    }
    weft_status status = wefti_bootstrap_join(&request, engine->members);
    if (status != WEFT_OK) {
        free(engine->members);
        engine->members = NULL;
        return status;
    }
    memcpy(tuning, engine->members->tuning, sizeof(*tuning));
    int memory_fd = engine->members->memory_fd;
    if (engine->members->nranks > 1 &&
        ftruncate(memory_fd, memory_reach_bytes) != 0) {
        return wefti_error_system("cannot size the shared memory (is there a "
                                  "limit on file sizes?)");
    }
    engine->crowded = engine->members->nranks > count_cores(engine->members);
    return WEFT_OK;
}

static weft_status build_world(wefti_engine *engine,
                               const weft_comm_config *config,
                               const wefti_tuning *tuning, weft_comm **comm_out)
{
    const wefti_membership *members = engine->members;
    int *world_ranks = calloc((size_t)members->nranks, sizeof(*world_ranks));
    if (!world_ranks) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for the members");
    }
    for (int rank = 0; rank < members->nranks; rank++) {
        world_ranks[rank] = rank;
    }
    wefti_comm_parts parts = {
        .engine = engine,
        .rank = members->rank,
        .nranks = members->nranks,
        .world_ranks = world_ranks,
        .memory_fd = members->nranks > 1 ? members->memory_fd : -1,
        .name = config->name,
        .device = config->device,
        .warn_ms = config->warn_ms,
        .timeout_ms = config->timeout_ms,
        .ops_in_flight = config->ops_in_flight,
        .tuning = *tuning,
    };
    weft_status status = wefti_comm_build(&parts, comm_out);
    free(world_ranks);
    return status;
}

/*
 * A peer that had left the barrier may fail in its next operation before this
 * rank has seen that all have entered. The ranks did meet, and all say so;
 * this one hears of the fault in its own next operation.
 */
static bool is_past_first_barrier(weft_comm *comm)
{
    weft_fault fault = {.size_bytes = sizeof(fault)};
    return weft_comm_get_fault(comm, &fault) == WEFT_OK && fault.op_number > 1;
}

weft_status weft_comm_create(const weft_comm_config *config,
                             weft_comm **comm_out)
{
    weft_comm_config full;
    wefti_tuning tuning;
    wefti_engine *engine;
    if (!comm_out) {
        return wefti_error(WEFT_ERR_INVALID,
                           "comm_out is NULL: allowed is a place for the "
                           "communicator");
    }
    *comm_out = NULL;
    weft_status status = wefti_comm_read_config(config, &full);
    if (status == WEFT_OK) {
        status = wefti_tuning_read(&tuning);
    }
    if (status == WEFT_OK) {
        status = wefti_engine_create(&engine);
    }
    if (status != WEFT_OK) {
        return status;
    }
    weft_comm *comm = NULL;
    status = meet(engine, &full, &tuning);
    if (status == WEFT_OK) {
        status = build_world(engine, &full, &tuning, &comm);
    }
    if (status != WEFT_OK && !comm) {
        wefti_engine_release(engine);
        return status;
    }
    if (status == WEFT_OK) {
        status = weft_barrier(comm, NULL);
    }
    if (status != WEFT_OK && is_past_first_barrier(comm)) {
        status = WEFT_OK;
    }
    if (status != WEFT_OK) {
        weft_comm_destroy(comm);
        return status;
    }
    if (tuning.emulate_gbps > 0 && comm->rank == 0) {
        wefti_log(WEFTI_LOG_WARN, comm->rank,
                  "WEFT_EMULATE_GBPS: every rank's sending is limited to %g "
                  "GB/s",
                  tuning.emulate_gbps);
    }
    *comm_out = comm;
    return WEFT_OK;
}

static bool is_quiet(const void *context)
{
    const weft_comm *comm = context;
    if (comm->failed != WEFT_OK) {
        return true;
    }
    for (int lane = 0; lane < WEFTI_LANES; lane++) {
        if (wefti_op_pending(&comm->ops[lane])) {
            return false;
        }
    }
    return comm->letters_pending == 0;
}

/* Gives the memory of a split back when the last member leaves it. */
static void give_back_memory(weft_comm *comm)
{
    wefti_shared_header *header = wefti_shared_get_header(comm->fabric.base);
    int gone = (int)atomic_fetch_add(&header->gone, 1) + 1;
    if (gone == comm->nranks && comm->memory_offset > 0) {
        /* Failure costs memory until the job ends, nothing else. */
        int refused = fallocate(comm->engine->members->memory_fd,
                                FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                (off_t)comm->memory_offset,
                                (off_t)comm->fabric.layout.total_bytes);
        (void)refused;
    }
}

void weft_comm_destroy(weft_comm *comm)
{
    if (!comm) {
        return;
    }
    wefti_engine *engine = comm->engine;
    wefti_engine_drive(engine, is_quiet, comm);
    pthread_mutex_lock(&engine->lock);
    if (engine->noted == comm) {
        engine->noted = NULL; /* its address may be another's soon */
    }
    for (weft_comm **link = &engine->comms; *link; link = &(*link)->next) {
        if (*link == comm) {
            *link = comm->next;
            break;
        }
    }
    pthread_mutex_unlock(&engine->lock);
    wefti_rank_page *page = wefti_shared_get_page(
        &comm->fabric.layout, comm->fabric.base, comm->rank);
    atomic_store(&page->left, 1);
    for (int peer = 0; peer < comm->nranks; peer++) {
        wefti_doorbell_ring(comm->bells[peer]);
    }
    give_back_memory(comm);
    tear(comm);
    wefti_engine_release(engine);
}

int weft_comm_get_rank(const weft_comm *comm)
{
    return comm ? comm->rank : -1;
}

int weft_comm_get_nranks(const weft_comm *comm)
{
    return comm ? comm->nranks : -1;
}

weft_status wefti_comm_observe(weft_comm *comm, const wefti_observer *observer)
{
    if (!comm || (observer && comm->observer.moved)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "comm %s: allowed is one without an observer",
                           comm ? "has an observer" : "is NULL");
    }
    wefti_shared_header *header = wefti_shared_get_header(comm->fabric.base);
    pthread_mutex_lock(&comm->engine->lock);
    comm->observer = observer ? *observer : (wefti_observer){NULL, NULL};
    pthread_mutex_unlock(&comm->engine->lock);
    if (observer) {
        atomic_store(&header->observed, 1);
    }
    return WEFT_OK;
}
