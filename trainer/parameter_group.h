/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/parameter_group.h - one group of the parameters that a rank has, with
 * the ranks that have the same ones as replicas of each other.
 *
 *   values     flat, all of it, of the model's type; after a step each share
 *              comes from its owner
 *   leaf       flat gradients; after reduction this rank's shares are the sums
 *   moments    of this rank's shares alone
 *
 *   leaf --reduce set--> own share --update--> own share of values
 *   values of all <--gather set---------------------------+
 */
#ifndef TRAINER_PARAMETER_GROUP_H
#define TRAINER_PARAMETER_GROUP_H

#include "trainer/gradient.h"
#include "trainer/optimizer.h"
#include "weft/bucket.h"
#include "weft/mem.h"

typedef struct wefti_parameter_group {
    const wefti_group_plan *plan; /* borrowed */
    weft_comm *comm;              /* the replicas'; borrowed */
    weft_device *device;
    weft_stream *compute; /* as in wefti_replica */
    size_t rank;          /* in comm, whose shares it has */
    weft_dtype dtype;     /* of values */
    void *values;
    wefti_gradient gradient;
    wefti_optimizer optimizer;
    weft_bucket_set *gather; /* over values */
    size_t arrived;          /* buckets known to be here since the last step */
    weft_mem *shared; /* holds values and the leaf; NULL: the two below do */
    real *own_values, *own_leaf;
    /* What comes besides, for a bucket that has arrived: lands it. NULL: none.
     * Returns OK | INPROGRESS (without waits) | a communicator's fault. */
    weft_status (*land)(void *context, size_t bucket, bool waits);
    void *land_context;
} wefti_parameter_group;

/*
 * comm      of plan's groups[number].nranks
 * passes    micro-batches that this rank adds up in a step
 * plan, comm, device, compute   borrowed
 */
typedef struct wefti_parameter_group_config {
    const wefti_parameters *plan;
    size_t number;
    weft_comm *comm;
    weft_device *device;
    weft_stream *compute;
    size_t passes;
    bool offloads; /* as of wefti_optimizer */
    wefti_optimizer_config optimizer;
} wefti_parameter_group_config;

/*
 * wefti_parameter_group_init - all arrays, zero; collective over comm.
 *
 * Returns     OK | ERR_NO_MEMORY | ERR_SYSTEM | the communicator's fault: fini.
 */
WEFT_NODISCARD weft_status wefti_parameter_group_init(
    wefti_parameter_group *group, const wefti_parameter_group_config *config);
/* Also of zeros, and of what is made in part. */
void wefti_parameter_group_fini(wefti_parameter_group *group);

/* A set that reduces some of the gradients, the last bucket first. */
WEFT_NODISCARD weft_status
wefti_parameter_group_reduce(const wefti_parameter_group *group,
                             wefti_bucket_run run, weft_bucket_set **set_out);

/* Where value elems of the flat array is. */
static inline void *wefti_parameter_group_at(const wefti_parameter_group *group,
                                             size_t elems)
{
    return (char *)group->values + elems * weft_dtype_bytes(group->dtype);
}

/* Parameters of a new step are about to come. */
WEFT_NODISCARD weft_status wefti_parameter_group_begin(
    wefti_parameter_group *group, weft_bucket_mode mode);

/* Whether the next bucket that is not known to be here is, or until it is.
 * Returns OK | INPROGRESS (without waits) | as weft_bucket_wait. */
WEFT_NODISCARD weft_status
wefti_parameter_group_arrive(wefti_parameter_group *group, bool waits);

/* Waits until all of them are here. */
WEFT_NODISCARD weft_status
wefti_parameter_group_settle(wefti_parameter_group *group);

#endif
