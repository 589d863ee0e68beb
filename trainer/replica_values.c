/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/replica_values.c - parameters to and from the host, as real: where
 * the model's are bf16, they are the rounding of the masters of their owners.
 */
#include "base/error.h"
#include "base/small_float.h"
#include "trainer/replica.h"

#include <stdlib.h>

static weft_status lack(size_t elems)
{
    return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %zu parameters",
                       elems);
}

void *wefti_replica_values(const wefti_replica *replica,
                           const wefti_tensor *tensor)
{
    return wefti_parameter_group_at(&replica->groups[tensor->info.group],
                                    tensor->start_elems);
}

weft_status wefti_replica_get(const wefti_replica *replica,
                              const wefti_tensor *tensor, real *to)
{
    const size_t elems = wefti_tensor_here_elems(tensor);
    const void *from = wefti_replica_values(replica, tensor);
    if (!replica->plan.shape.narrow) {
        return wefti_replica_copy(replica, to, from, elems * sizeof(*to));
    }
    uint16_t *codes = malloc(elems * sizeof(*codes) + 1);
    if (!codes) {
        return lack(elems);
    }
    weft_status status =
        wefti_replica_copy(replica, codes, from, elems * sizeof(*codes));
    for (size_t i = 0; i < elems && status == WEFT_OK; i++) {
        to[i] = (real)wefti_bf16_widen(codes[i]);
    }
    free(codes);
    return status;
}

/* Values first .. of the group's flat array become the rounding of from. */
static weft_status round_to(const wefti_replica *replica, size_t group,
                            size_t first, const real *from, size_t elems)
{
    uint16_t *codes = malloc(elems * sizeof(*codes) + 1);
    if (!codes) {
        return lack(elems);
    }
    for (size_t i = 0; i < elems; i++) {
        codes[i] = wefti_bf16_narrow((float)from[i]);
    }
    weft_status status = wefti_replica_copy(
        replica, wefti_parameter_group_at(&replica->groups[group], first),
        codes, elems * sizeof(*codes));
    free(codes);
    return status;
}

weft_status wefti_replica_set(const wefti_replica *replica,
                              const wefti_tensor *tensor, const real *from)
{
    const wefti_parameter_group *group = &replica->groups[tensor->info.group];
    const size_t elems = wefti_tensor_here_elems(tensor);
    wefti_tensor_share own;
    if (!replica->plan.shape.narrow) {
        return wefti_replica_copy(replica,
                                  wefti_replica_values(replica, tensor), from,
                                  elems * sizeof(*from));
    }
    weft_status status =
        round_to(replica, tensor->info.group, tensor->start_elems, from, elems);
    return status == WEFT_OK &&
                   wefti_tensor_cut(&replica->plan, tensor, group->rank, &own)
               ? wefti_replica_copy(
                     replica, group->optimizer.masters + own.own_elems,
                     from + (own.start_elems - tensor->start_elems),
                     own.elems * sizeof(*from))
               : status;
}

static weft_status round_share(const wefti_replica *replica,
                               const wefti_tensor *tensor)
{
    const wefti_parameter_group *group = &replica->groups[tensor->info.group];
    wefti_tensor_share own;
    if (!wefti_tensor_cut(&replica->plan, tensor, group->rank, &own)) {
        return WEFT_OK;
    }
    real *masters = malloc(own.elems * sizeof(*masters) + 1);
    if (!masters) {
        return lack(own.elems);
    }
    weft_status status = wefti_replica_copy(
        replica, masters, group->optimizer.masters + own.own_elems,
        own.elems * sizeof(*masters));
    if (status == WEFT_OK) {
        status = round_to(replica, tensor->info.group, own.start_elems, masters,
                          own.elems);
    }
    free(masters);
    return status;
}

weft_status wefti_replica_round(const wefti_replica *replica)
{
    const wefti_parameters *plan = &replica->plan;
    weft_status status = WEFT_OK;
    for (size_t i = 0;
         plan->shape.narrow && i < plan->tensor_count && status == WEFT_OK;
         i++) {
        status = round_share(replica, &plan->tensors[i]);
    }
    return status;
}
