/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/client.h - a rank's own way into the job.
 */
#ifndef COMM_OOB_CLIENT_H
#define COMM_OOB_CLIENT_H

#include "comm/oob/endpoint.h"
#include "comm/oob/join_request.h"
#include "comm/oob/secret.h"

/*
 * wefti_client_join - find the server, prove which rank this is, and take part
 * until the verdict.
 *
 * request   its id is ignored; rank and nranks are set.
 *
 * Returns     as wefti_bootstrap_join; *membership_out is set by OK only.
 */
WEFT_NODISCARD weft_status wefti_client_join(
    const wefti_endpoint *endpoint, const wefti_secret *secret,
    const wefti_bootstrap_request *request, wefti_membership *membership_out);

/*
 * wefti_client_exchange - for prepare: this rank's endpoint info goes to the
 * ranks of other domains, and theirs are taken; in the first round only those
 * of each domain's lowest rank. All ranks call it alike, at most
 * WEFTI_INFO_ROUNDS times; what take refuses is this call's end.
 *
 * Returns     OK | what take returns | as wefti_bootstrap_join: the bootstrap
 *             has ended, and prepare passes this on.
 */
WEFT_NODISCARD weft_status wefti_client_exchange(
    wefti_client *client, const wefti_membership *membership,
    const unsigned char *info, size_t info_bytes,
    weft_status (*take)(void *context, int rank, const unsigned char *info,
                        size_t info_bytes),
    void *context);

#endif
