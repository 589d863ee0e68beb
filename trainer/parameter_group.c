/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/parameter_group.c - the arrays of a group, and its buckets' sets.
 */
#include "trainer/parameter_group.h"

#include "comm/make/explain.h"
#include "trainer/model/storage.h"

/*
 * What the replicas exchange: of the host in memory that they read from each
 * other where they can, as no message is copied on its way then.
 */
static weft_status make_exchanged(wefti_parameter_group *group,
                                  const wefti_model_shape *shape,
                                  real **leaf_out)
{
    const size_t elems = group->plan->flat_elems;
    const size_t line = WEFTI_STORAGE_ALIGN_BYTES / sizeof(real);
    const size_t values = wefti_model_elems(shape, elems);
    const size_t stride = (values + line) / line * line;
    weft_status status;
    if (!group->compute && wefti_comm_reads_mapped(group->comm)) {
        status = weft_mem_create(
            group->comm, (stride + (elems + line) / line * line) * sizeof(real),
            &group->shared);
        real *base = weft_mem_get_base(group->shared);
        group->values = base;
        *leaf_out = base ? base + stride : NULL;
        return status;
    }
    status = wefti_storage_alloc_on(group->device, group->compute, values,
                                    &group->own_values);
    if (status == WEFT_OK) {
        status = wefti_storage_alloc_on(group->device, group->compute, elems,
                                        &group->own_leaf);
    }
    group->values = group->own_values;
    *leaf_out = group->own_leaf;
    return status;
}

static weft_status make_set(const wefti_parameter_group *group,
                            wefti_bucket_run run, bool reduces,
                            weft_bucket_set **set_out)
{
    const weft_bucket_config config = {
        .size_bytes = sizeof(config),
        .comm = group->comm,
        .device = group->device,
        .collective =
            reduces ? WEFT_COLLECTIVE_REDUCESCATTER : WEFT_COLLECTIVE_ALLGATHER,
        .buffer = reduces ? group->gradient.leaf : group->values,
        .dtype = reduces ? WEFTI_REAL_DTYPE : group->dtype,
        .extents = group->plan->buckets + run.first,
        .count = run.end - run.first,
        .backwards = reduces,
        .class_id = WEFT_CLASS_DP,
        .label = reduces ? "gradients" : "parameters",
        .compute = group->compute};
    return weft_bucket_create(&config, set_out);
}

weft_status wefti_parameter_group_reduce(const wefti_parameter_group *group,
                                         wefti_bucket_run run,
                                         weft_bucket_set **set_out)
{
    return make_set(group, run, true, set_out);
}

weft_status
wefti_parameter_group_init(wefti_parameter_group *group,
                           const wefti_parameter_group_config *config)
{
    const wefti_group_plan *plan = &config->plan->groups[config->number];
    real *leaf;
    *group = (wefti_parameter_group){
        .plan = plan,
        .comm = config->comm,
        .device = config->device,
        .compute = config->compute,
        .dtype = wefti_model_dtype(&config->plan->shape),
        .rank = (size_t)weft_comm_get_rank(config->comm)};
    weft_status status = make_exchanged(group, &config->plan->shape, &leaf);
    if (status == WEFT_OK) {
        const wefti_gradient gradient = {.device = group->device,
                                         .compute = group->compute,
                                         .plan = plan,
                                         .leaf = leaf,
                                         .count = config->passes};
        status = wefti_gradient_init(&group->gradient, &gradient);
    }
    if (status == WEFT_OK) {
        const wefti_optimizer optimizer = {.config = config->optimizer,
                                           .device = group->device,
                                           .compute = group->compute,
                                           .plan = config->plan,
                                           .group = config->number,
                                           .rank = group->rank,
                                           .offloads = config->offloads};
        status = wefti_optimizer_init(&group->optimizer, &optimizer);
    }
    if (status == WEFT_OK) {
        status = make_set(group, (wefti_bucket_run){0, plan->bucket_count},
                          false, &group->gather);
    }
    return status;
}

void wefti_parameter_group_fini(wefti_parameter_group *group)
{
    weft_bucket_destroy(group->gather);
    wefti_optimizer_fini(&group->optimizer);
    wefti_gradient_fini(&group->gradient);
    wefti_storage_free_on(group->device, group->own_values);
    wefti_storage_free_on(group->device, group->own_leaf);
    weft_mem_destroy(group->shared);
    *group = (wefti_parameter_group){0};
}

weft_status wefti_parameter_group_begin(wefti_parameter_group *group,
                                        weft_bucket_mode mode)
{
    group->arrived = 0;
    return weft_bucket_begin(group->gather, mode);
}

weft_status wefti_parameter_group_arrive(wefti_parameter_group *group,
                                         bool waits)
{
    weft_status status = waits
                             ? weft_bucket_wait(group->gather, group->arrived)
                             : weft_bucket_test(group->gather, group->arrived);
    if (status == WEFT_OK && group->land) {
        status = group->land(group->land_context, group->arrived, waits);
    }
    group->arrived += status == WEFT_OK;
    return status;
}

weft_status wefti_parameter_group_settle(wefti_parameter_group *group)
{
    weft_status status = WEFT_OK;
    while (group->arrived < group->plan->bucket_count && status == WEFT_OK) {
        status = wefti_parameter_group_arrive(group, true);
    }
    return status;
}
