/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/source.c - the table of sources, in the order in which they
 * are asked: what is said to weft comes before what is said to others.
 */
#include "comm/oob/source.h"

#include "base/check.h"
#include "base/log.h"
#include "base/settings.h"
#include "comm/oob/environment.h"
#include "comm/oob/unique_id.h"

#include <stdlib.h>
#include <string.h>

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

/* ---- the plainest three -------------------------------------------------- */

static bool has_id(const wefti_bootstrap_request *request)
{
    return request->id != NULL;
}

static bool has_variables(const wefti_bootstrap_request *request)
{
    (void)request;
    return wefti_setting_given(WEFTI_SETTING_RENDEZVOUS) ||
           wefti_setting_given(WEFTI_SETTING_NRANKS) ||
           wefti_setting_given(WEFTI_SETTING_RANK);
}

static bool always(const wefti_bootstrap_request *request)
{
    (void)request;
    return true;
}

/*
 * Half of what torchrun sets is no launcher's trace, but mostly somebody's
 * mistake: each rank would be a job of its own without a word.
 */
static weft_status join_nobody(const wefti_bootstrap_request *request,
                               wefti_membership *membership_out)
{
    const char *size = wefti_setting_foreign("WORLD_SIZE");
    const char *rank = wefti_setting_foreign("RANK");
    if (size && strcmp(size, "1") != 0) {
        wefti_log(WEFTI_LOG_WARN, -1,
                  "WORLD_SIZE=%.40s is set, but %s is not: this rank is a job "
                  "of its own; set RANK, WORLD_SIZE and MASTER_ADDR, or "
                  "WEFT_NRANKS=1 to say that it is meant",
                  size, rank ? "MASTER_ADDR" : "RANK");
    }
    return wefti_environment_join(request, membership_out);
}

/* A request with an id is refused earlier unless it says its rank. */
static weft_status look_in_request(int *rank_out, int *nranks_out)
{
    *rank_out = 0;
    *nranks_out = 1;
    return WEFT_OK;
}

const wefti_launch_source wefti_launch_source_unique_id = {
    .name = "a unique id",
    .sign = "the config has one",
    .applies = has_id,
    .find_rank = look_in_request,
    .join = wefti_unique_id_join,
};

const wefti_launch_source wefti_launch_source_environment = {
    .name = "WEFT_* variables",
    .sign = "WEFT_RENDEZVOUS, WEFT_NRANKS or WEFT_RANK is set",
    .applies = has_variables,
    .find_rank = wefti_environment_find_rank,
    .join = wefti_environment_join,
};

const wefti_launch_source wefti_launch_source_alone = {
    .name = "nobody",
    .sign = "no launcher has left a trace",
    .applies = always,
    .find_rank = wefti_environment_find_rank,
    .join = join_nobody,
};
