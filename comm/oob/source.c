/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/source.c - the table of sources, in the order in which they
 * are asked: what is set for weft comes before what is set for others.
 */
#include "comm/oob/source.h"

#include "base/check.h"

static const wefti_launch_source *const sources[] = {
    &wefti_launch_source_unique_id,   &wefti_launch_source_file,
    &wefti_launch_source_environment, &wefti_launch_source_torchrun,
    &wefti_launch_source_pmix,        &wefti_launch_source_alone,
};

const wefti_launch_source *
wefti_launch_source_find(const wefti_bootstrap_request *request)
{
    size_t i = 0;
    while (i + 1 < WEFTI_COUNT_OF(sources) && !sources[i]->applies(request)) {
        i++;
    }
    return sources[i];
}

weft_status wefti_launch_source_find_rank(int *rank_out, int *nranks_out)
{
    const wefti_bootstrap_request open = {0};
    return wefti_launch_source_find(&open)->find_rank(rank_out, nranks_out);
}
