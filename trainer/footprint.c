/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/footprint.c - memory as planned, and as the kernel counts it.
 *
 * Source of the kernel's figures: proc(5), /proc/self/status.
 */
#include "trainer/footprint.h"

#include "trainer/checkpoint/saver.h"

#include <stdlib.h>
#include <string.h>

static void add_pipe(const wefti_replica *replica, wefti_footprint *sum)
{
    const wefti_pipe *pipe = &replica->pipe;
    const wefti_shape *shape = &replica->plan.shape;
    size_t tokens = replica->config.micro_batch * shape->seq;
    sum->activations_bytes += pipe->slots * pipe->slot_bytes +
                              pipe->kept_count * pipe->kept_bytes +
                              pipe->workspace.arena_elems * sizeof(real);
    /* Two micro-batches each of tokens, targets and the chain's rows. */
    sum->buffers_bytes += pipe->buffer_bytes;
    sum->buffers_bytes += 2 * tokens * shape->hidden * sizeof(real);
    sum->buffers_bytes += 4 * tokens * sizeof(int32_t);
    if (pipe->tied) {
        sum->buffers_bytes += shape->vocab * shape->hidden * sizeof(real);
    }
}

wefti_footprint wefti_footprint_plan(const wefti_replica *replica)
{
    const wefti_parameters *plan = &replica->plan;
    size_t tokens = replica->config.micro_batch * plan->shape.seq;
    wefti_footprint sum = {.parameters_bytes = plan->flat_elems * sizeof(real),
                           .gradients_bytes =
                               (1 + replica->gradient.level_count) *
                               plan->flat_elems * sizeof(real),
                           .moments_bytes = 2 * plan->own_elems * sizeof(real),
                           .buffers_bytes = 2 * tokens * sizeof(int32_t)};
    if (wefti_replica_is_piped(replica)) {
        add_pipe(replica, &sum);
    } else {
        sum.activations_bytes = wefti_model_get_arena_bytes(replica->model);
    }
    sum.copy_bytes = replica->saver ? replica->saver->copy_bytes : 0;
    return sum;
}

size_t wefti_footprint_total_bytes(const wefti_footprint *footprint)
{
    return footprint->parameters_bytes + footprint->gradients_bytes +
           footprint->moments_bytes + footprint->activations_bytes +
           footprint->buffers_bytes + footprint->copy_bytes;
}

void wefti_footprint_tell(const wefti_replica *replica, FILE *file)
{
    wefti_footprint plan = wefti_footprint_plan(replica);
    fprintf(file,
            "weft-train: rank 0 plans %.1f MB: parameters %.1f, gradients "
            "%.1f, moments %.1f, activations %.1f, buffers %.1f, copy for "
            "checkpoints %.1f\n",
            (double)wefti_footprint_total_bytes(&plan) * 1e-6,
            (double)plan.parameters_bytes * 1e-6,
            (double)plan.gradients_bytes * 1e-6,
            (double)plan.moments_bytes * 1e-6,
            (double)plan.activations_bytes * 1e-6,
            (double)plan.buffers_bytes * 1e-6, (double)plan.copy_bytes * 1e-6);
}

/* A line such as "VmRSS:      1234 kB"; 0: there is none. */
static uint64_t read_status_bytes(const char *name)
{
    char line[128];
    uint64_t kilobytes = 0;
    size_t name_bytes = strlen(name);
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof(line), file)) {
        if (strncmp(line, name, name_bytes) == 0) {
            kilobytes = strtoull(line + name_bytes + 1, NULL, 10);
            break;
        }
    }
    if (file) {
        (void)fclose(file);
    }
    return kilobytes * 1024;
}

uint64_t wefti_footprint_resident_bytes(void)
{
    return read_status_bytes("VmRSS");
}

void wefti_footprint_compare(const wefti_replica *replica,
                             uint64_t *planned_out, uint64_t *grown_out)
{
    wefti_footprint plan = wefti_footprint_plan(replica);
    uint64_t peak_bytes = read_status_bytes("VmHWM");
    *planned_out = wefti_footprint_total_bytes(&plan);
    *grown_out = peak_bytes > replica->resident_bytes
                     ? peak_bytes - replica->resident_bytes
                     : 0;
}
