/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/bootstrap.c - the request, checked, and handed to the
 * source that applies.
 */
#include "comm/oob/bootstrap.h"

#include "base/descriptors.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/oob/listener.h"
#include "comm/oob/place.h"
#include "comm/oob/source.h"

#include <sodium.h>
#include <stdio.h>

static weft_status check_limit(const char *name, int64_t limit_ms)
{
    if (limit_ms < 1 || limit_ms > INT32_MAX) {
        return wefti_error(WEFT_ERR_INVALID, "%s %lld: allowed is 1..%d", name,
                           (long long)limit_ms, INT32_MAX);
    }
    return WEFT_OK;
}

static weft_status check_ranks(const wefti_bootstrap_request *request)
{
    if (request->nranks < 0 || request->nranks > WEFTI_JOB_RANKS_MOST ||
        (request->id && request->nranks == 0)) {
        return wefti_error(WEFT_ERR_INVALID, "nranks %d: allowed is 1..%d",
                           request->nranks, WEFTI_JOB_RANKS_MOST);
    }
    int most = request->nranks > 0 ? request->nranks - 1 : 0;
    if (request->rank < 0 || request->rank > most) {
        return wefti_error(WEFT_ERR_INVALID, "rank %d: allowed is 0..%d",
                           request->rank, most);
    }
    return WEFT_OK;
}

/*
 * Every rank asks for what the neediest does, one that serves, so that all of
 * a job with one limit are refused alike, and soon.
 */
static weft_status check_descriptors(int nranks)
{
    /* For each a connection and a pidfd; room for unauthenticated peers, which
     * poll counts whether they are there or not; own files. */
    enum { EACH = 2, OTHERS = 16 + WEFTI_OOB_UNPROVEN_MOST };
    const unsigned long long needed =
        EACH * (unsigned long long)nranks + OTHERS;
    return nranks > 1 ? wefti_descriptors_check("a job", nranks, needed)
                      : WEFT_OK;
}

weft_status wefti_bootstrap_join(const wefti_bootstrap_request *request,
                                 wefti_membership *membership_out)
{
    weft_status status = check_limit("warn_ms", request->warn_ms);
    if (status == WEFT_OK) {
        status = check_limit("timeout_ms", request->timeout_ms);
    }
    if (status == WEFT_OK) {
        status = check_ranks(request);
    }
    if (status != WEFT_OK) {
        return status;
    }
    if (sodium_init() < 0) {
        return wefti_error(WEFT_ERR_SYSTEM, "libsodium: no random numbers");
    }
    const wefti_launch_source *source = wefti_launch_source_find(request);
    wefti_bootstrap_request own = *request;
    if (own.nranks == 0) {
        status = source->find_rank(&own.rank, &own.nranks);
    }
    char reason[512];
    weft_status lacking =
        status == WEFT_OK ? check_descriptors(own.nranks) : WEFT_OK;
    if (status != WEFT_OK || (lacking != WEFT_OK && own.rank == 0)) {
        return status != WEFT_OK ? status
                                 : lacking; /* no other rank could learn it */
    }
    if (lacking != WEFT_OK) {
        snprintf(reason, sizeof(reason), "%s", weft_error_text());
        own = wefti_bootstrap_refuse(&own, lacking, reason);
    }
    if (own.refused == WEFT_OK) {
        own.refused = wefti_place_check(own.nranks);
        if (own.refused != WEFT_OK) {
            snprintf(reason, sizeof(reason), "%s", weft_error_text());
            own.refused_text = reason;
        }
    }
    wefti_log(WEFTI_LOG_INFO, own.rank, "rank %d of %d, by %s: %s", own.rank,
              own.nranks, source->name, source->sign);
    return own.nranks > 1 || source->alone_too
               ? source->join(&own, membership_out)
               : wefti_bootstrap_alone(&own, membership_out);
}
