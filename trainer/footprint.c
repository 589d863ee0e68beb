/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/footprint.c - memory as planned, and as the kernel counts it.
 *
 * Source of the kernel's figures: proc(5), /proc/self/smaps_rollup, which looks
 * at each page: the counters of /proc/self/status may lag behind.
 */
#include "trainer/footprint.h"

#include "base/error.h"
#include "base/memory_limit.h"
#include "comm/make/comm_bytes.h"
#include "overlap/ledger.h"
#include "trainer/checkpoint/saver.h"
#include "trainer/ema.h"
#include "trainer/memory_need.h"
#include "trainer/model/expert_exchange.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

static void add_pipe(const wefti_replica *replica, wefti_footprint *sum)
{
    const wefti_pipe *pipe = &replica->pipe;
    const wefti_model_shape *shape = &replica->plan.shape;
    const size_t sequences = replica->config.micro_batch;
    const size_t tokens = sequences * wefti_replica_length(replica);
    sum->activations_bytes +=
        pipe->slots * pipe->slot_bytes + pipe->kept_count * pipe->kept_bytes +
        pipe->workspace.arena_elems * sizeof(real) +
        (size_t)wefti_pipe_expert_bytes(pipe, replica, pipe->slots);
    /* A step's tokens, targets and losses; where the model is cut, two
     * micro-batches of rows sent between stages. */
    sum->buffers_bytes +=
        pipe->buffer_bytes +
        wefti_context_link_bytes(&replica->plan.own, sequences);
    if (pipe->info.stages > 1) {
        sum->buffers_bytes +=
            2 *
            wefti_model_elems(shape, wefti_pipe_rows(replica, tokens) *
                                         shape->hidden) *
            sizeof(real);
    }
    sum->buffers_bytes += wefti_pipe_batch_bytes(&pipe->batch);
    if (pipe->tied) {
        sum->buffers_bytes +=
            replica->plan.own.vocab * shape->hidden * sizeof(real);
    }
}

static size_t count_levels(const wefti_replica *replica)
{
    return wefti_gradient_count_levels(wefti_replica_count_passes(replica));
}

/* Of communicators whose messages are copied, as rows of a micro-batch are: of
 * ranks that share layers, heads of a sequence, or experts, and of stages. */
static size_t count_staging(const wefti_replica *replica)
{
    const wefti_model_shape *shape = &replica->plan.shape;
    const wefti_pipe *pipe = &replica->pipe;
    weft_comm *const *mesh = replica->mesh.comms;
    weft_comm *const comms[] = {
        mesh[WEFTI_MESH_TENSOR], pipe->link.ulysses,
        wefti_experts_here(&replica->plan) ? NULL : mesh[WEFTI_MESH_EXPERTS]};
    const size_t rows =
        replica->config.micro_batch * wefti_replica_length(replica);
    const size_t bytes =
        rows * shape->hidden * weft_dtype_bytes(wefti_model_dtype(shape));
    size_t sum = 0;
    for (size_t i = 0; i < sizeof(comms) / sizeof(comms[0]); i++) {
        sum += comms[i] ? wefti_comm_plan_staging(comms[i], bytes) : 0;
    }
    if (pipe->info.ranks > 1) {
        sum += wefti_comm_plan_messages(mesh[WEFTI_MESH_LINE], bytes);
    }
    /* Validation goes one way: the last of the chain sends nothing. */
    if (pipe->info.ranks > 1 && (pipe->info.stages > pipe->info.ranks ||
                                 pipe->rank < pipe->info.ranks - 1)) {
        sum += wefti_comm_plan_messages(mesh[WEFTI_MESH_CHAIN], bytes);
    }
    return sum;
}

/* Communicators and the ledger are there before anything of the model. */
static size_t count_books(const wefti_replica *replica)
{
    const wefti_replica_config *config = &replica->config;
    const wefti_saver *saver = replica->saver;
    return (size_t)(wefti_comm_count_made(config->comm) -
                    config->before.comms_bytes) +
           (config->ledger ? wefti_ledger_count_bytes(config->ledger) : 0) +
           (saver ? saver->list.count * sizeof(*saver->list.pieces) : 0) +
           count_staging(replica);
}

/* Of a replica that has been opened. */
static wefti_footprint plan_of(const wefti_replica *replica)
{
    const wefti_parameters *plan = &replica->plan;
    const wefti_model_shape *shape = &plan->shape;
    const size_t masters_bytes =
        shape->narrow ? plan->own_elems * sizeof(real) : 0;
    wefti_footprint sum = {
        .parameters_bytes =
            wefti_model_elems(shape, plan->flat_elems) * sizeof(real),
        .gradients_bytes =
            (1 + count_levels(replica)) * plan->flat_elems * sizeof(real),
        .moments_bytes = 2 * plan->own_elems * sizeof(real)};
    /* They are where the moments are. */
    *(replica->config.offload ? &sum.moments_bytes : &sum.parameters_bytes) +=
        masters_bytes;
    add_pipe(replica, &sum);
    for (size_t g = 0; replica->config.offload && g < plan->group_count; g++) {
        sum.buffers_bytes += wefti_optimizer_room_bytes(plan, g);
    }
    sum.average_bytes = wefti_ema_plan_bytes(replica);
    sum.copy_bytes = replica->saver ? replica->saver->copy_bytes : 0;
    sum.books_bytes = count_books(replica);
    return sum;
}

/* ---- before anything is taken ---------------------------------------------
 */

/* In bytes, which may be more than any machine could count. */
typedef struct estimate {
    double parameters, gradients, moments, activations, average, copy, books;
} estimate;

static double total(const estimate *sum)
{
    return sum->parameters + sum->gradients + sum->moments + sum->activations +
           sum->average + sum->copy + sum->books;
}

/* What a layer's activations are at least; in sizes that cannot overflow. */
static double bound_activations(const wefti_replica *replica)
{
    const wefti_parameters *plan = &replica->plan;
    const wefti_model_shape *shape = &plan->shape;
    double layers = 0;
    for (size_t i = 0; i < plan->part_count; i++) {
        layers +=
            (double)(plan->parts[i].layers_end - plan->parts[i].first_layer);
    }
    return (double)replica->config.micro_batch *
           (double)wefti_replica_length(replica) *
           ((double)shape->hidden + 2 * (double)plan->own.ffn) * layers *
           (double)weft_dtype_bytes(wefti_model_dtype(shape));
}

static weft_status make_estimate(wefti_replica *replica, estimate *sum)
{
    const double counts_exactly = 1e16; /* bytes; far from SIZE_MAX */
    const wefti_model_shape *shape = &replica->plan.shape;
    double flat = (double)replica->plan.flat_elems * sizeof(real);
    double own = (double)replica->plan.own_elems * sizeof(real);
    *sum = (estimate){.parameters = shape->narrow ? flat / 2 + own : flat,
                      .gradients = (double)(1 + count_levels(replica)) * flat,
                      .moments = 2 * own,
                      .activations = bound_activations(replica),
                      .average = (double)wefti_ema_plan_bytes(replica),
                      .copy = replica->config.copies ? 3 * own : 0,
                      .books = (double)count_books(replica)};
    if (sum->activations > counts_exactly) {
        return WEFT_OK;
    }
    return wefti_pipe_estimate(&replica->pipe, &replica->config.pipe, replica,
                               &sum->activations);
}

static weft_status report_lack(const estimate *own,
                               const wefti_memory_need *here,
                               const wefti_memory_lack *lack)
{
    const double gb = 1e-9;
    wefti_memory_limit limit;
    char have[512];
    wefti_memory_limit_read("", &limit);
    snprintf(have, sizeof(have), "%s%s%s allows %.1f GB",
             lack->of_group ? "their memory cgroup (" : "it",
             lack->of_group ? limit.file : "", lack->of_group ? ")" : "",
             lack->have_bytes * gb);
    if (!lack->of_group) {
        snprintf(have, sizeof(have), "it has %.1f GB of memory",
                 lack->have_bytes * gb);
    }
    return wefti_error(
        WEFT_ERR_NO_MEMORY,
        "the model does not fit: %zu rank%s of this host need%s %.1f GB (one "
        "%.1f: parameters %.1f, gradients %.1f, moments %.1f, activations "
        "%.1f, average %.1f, copy for checkpoints %.1f, communicators and "
        "records %.1f), and %s with %.1f GB of swap: take a smaller model or "
        "train.micro_batch_size, or more hosts",
        lack->count, lack->count == 1 ? "" : "s", lack->count == 1 ? "s" : "",
        lack->need_bytes * gb, total(own) * gb, own->parameters * gb,
        own->gradients * gb, own->moments * gb, own->activations * gb,
        own->average * gb, own->copy * gb, own->books * gb, have,
        here->swap_bytes * gb);
}

weft_status wefti_footprint_check(wefti_replica *replica)
{
    estimate own;
    wefti_memory_need here;
    wefti_memory_lack lack;
    weft_status status = make_estimate(replica, &own);
    if (status != WEFT_OK) {
        return status;
    }
    wefti_memory_need *needs = calloc(replica->nranks, sizeof(*needs));
    if (!needs) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory to ask %zu ranks",
                           replica->nranks);
    }
    wefti_memory_need_locate("", &here);
    here.bytes = total(&own);
    status = weft_allgather(&here, needs, sizeof(here), WEFT_DTYPE_U8,
                            replica->config.comm, NULL);
    if (status == WEFT_OK &&
        wefti_memory_need_check(needs, replica->nranks, &lack)) {
        replica->failed = 1 + (int)lack.first;
        status = lack.first == replica->rank
                     ? report_lack(&own, &here, &lack)
                     : wefti_error(WEFT_ERR_NO_MEMORY,
                                   "memory: rank %zu has failed, see its "
                                   "message",
                                   lack.first);
    }
    free(needs);
    return status;
}

/* ---- what has been taken --------------------------------------------------
 */

static size_t total_bytes(const wefti_footprint *footprint)
{
    return footprint->parameters_bytes + footprint->gradients_bytes +
           footprint->moments_bytes + footprint->activations_bytes +
           footprint->buffers_bytes + footprint->average_bytes +
           footprint->copy_bytes + footprint->books_bytes;
}

void wefti_footprint_print(const wefti_replica *replica, FILE *file)
{
    wefti_footprint plan = plan_of(replica);
    fprintf(
        file,
        "weft-train: rank 0 plans %.1f MB: parameters %.1f, gradients "
        "%.1f, moments %.1f%s, activations %.1f, buffers %.1f, average %.1f, "
        "copy for checkpoints %.1f, communicators and records %.1f\n",
        (double)total_bytes(&plan) * 1e-6, (double)plan.parameters_bytes * 1e-6,
        (double)plan.gradients_bytes * 1e-6, (double)plan.moments_bytes * 1e-6,
        replica->config.offload ? " (in the host's memory)" : "",
        (double)plan.activations_bytes * 1e-6,
        (double)plan.buffers_bytes * 1e-6, (double)plan.average_bytes * 1e-6,
        (double)plan.copy_bytes * 1e-6, (double)plan.books_bytes * 1e-6);
}

/* This process's private memory. A line such as "Anonymous:   1234 kB". */
static uint64_t count_private(void)
{
    static const char name[] = "Anonymous:";
    char line[256];
    uint64_t kilobytes = 0;
    FILE *file = fopen("/proc/self/smaps_rollup", "re");
    while (file && fgets(line, sizeof(line), file)) {
        if (strncmp(line, name, sizeof(name) - 1) == 0) {
            kilobytes = strtoull(line + sizeof(name) - 1, NULL, 10);
            break;
        }
    }
    if (file) {
        (void)fclose(file); /* it was only read */
    }
    return kilobytes * 1024;
}

uint64_t wefti_footprint_held_bytes(weft_comm *comm)
{
    (void)malloc_trim(0); /* what has been given back is not held */
    const uint64_t bytes = count_private();
    return bytes > 0 ? bytes + wefti_comm_count_part(comm) : 0;
}

void wefti_footprint_compare(const wefti_replica *replica,
                             uint64_t *planned_out, uint64_t *grown_out)
{
    const wefti_replica_config *config = &replica->config;
    const wefti_footprint plan = plan_of(replica);
    const uint64_t held = wefti_footprint_held_bytes(config->comm);
    *planned_out = total_bytes(&plan);
    *grown_out =
        held > config->before.held_bytes ? held - config->before.held_bytes : 0;
}
