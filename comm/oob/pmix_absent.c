/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/pmix_absent.c - in the place of pmix_source.c where weft was
 * built without PMIx's headers: a launcher that speaks it is refused by name.
 */
#include "base/error.h"
#include "base/settings.h"
#include "comm/oob/source.h"

static bool applies(const wefti_bootstrap_request *request)
{
    (void)request;
    return wefti_setting_foreign("PMIX_RANK") != NULL;
}

static weft_status refuse(void)
{
    return wefti_error(WEFT_ERR_UNSUPPORTED,
                       "a launcher has left PMIX_RANK, but this weft was built "
                       "without PMIx (libpmix-dev): set WEFT_RANK, WEFT_NRANKS "
                       "and WEFT_RENDEZVOUS, or give a unique id");
}

static weft_status find_rank(int *rank_out, int *nranks_out)
{
    (void)rank_out;
    (void)nranks_out;
    return refuse();
}

static weft_status join(const wefti_bootstrap_request *request,
                        wefti_membership *membership_out)
{
    return request->nranks == 1 ? wefti_bootstrap_alone(request, membership_out)
                                : refuse();
}

const wefti_launch_source wefti_launch_source_pmix = {
    .name = "PMIx",
    .sign = "PMIX_RANK is set",
    .applies = applies,
    .find_rank = find_rank,
    .join = join,
};
