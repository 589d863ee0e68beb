/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/join_request.h - what a rank asks for when it joins a job.
 */
#ifndef COMM_OOB_JOIN_REQUEST_H
#define COMM_OOB_JOIN_REQUEST_H

#include "comm/oob/membership.h"
#include "weft/comm.h"

#include <stddef.h>
#include <stdint.h>

typedef struct wefti_client wefti_client;

/*
 * id           NULL: from WEFT_RENDEZVOUS, WEFT_SECRET or WEFT_SECRET_FILE.
 * rank         with id NULL and nranks 0: from WEFT_RANK, WEFT_NRANKS.
 * tuning       opaque; all receive rank 0's.
 * refused      OK; or why this rank will not take part, whatever the others
 *              bring: it joins only to send them refused_text (borrowed),
 *              and prepare is not called.
 * stay_ms      if not 0, a member's time limit in place of timeout_ms, which
 *              then is for becoming one.
 * cancel_fd    readable once this rank is to be cancelled; NULL: never.
 * foreign_out  set where the server that answers has another secret; NULL: not
 *              asked for.
 * judged_out   set where a server that has the secret sent a verdict; NULL: not
 *              asked for.
 * warn_ms      a rank that waits logs (warn) which ranks are missing.
 * timeout_ms   and fails.
 * prepare      what has to succeed on every rank before any rank returns OK:
 *              called once this rank holds its membership (borrowed); where
 *              one fails, all get its status and its text. client: to exchange
 *              infos with ranks of other domains (comm/oob/client.h); NULL if
 *              there are none. NULL: nothing, and all must be of one domain.
 * context      of prepare
 */
typedef struct wefti_bootstrap_request {
    const weft_unique_id *id;
    int rank;
    int nranks;
    unsigned char tuning[WEFTI_TUNING_BYTES];
    weft_status refused;
    const char *refused_text;
    int64_t stay_ms;
    const int *cancel_fd;
    bool *foreign_out;
    bool *judged_out;
    int64_t warn_ms;
    int64_t timeout_ms;
    weft_status (*prepare)(void *context, const wefti_membership *membership,
                           wefti_client *client);
    void *context;
} wefti_bootstrap_request;

/*
 * wefti_bootstrap_refuse - the request of a rank that cannot take part, which
 * sends the others the reason; reason is borrowed. It tries to reach a server
 * for a moment only: rank 0 may lack the same.
 */
wefti_bootstrap_request
wefti_bootstrap_refuse(const wefti_bootstrap_request *request,
                       weft_status status, const char *reason);

/* Waits, unless request is cancelled; whether it is. Then: ERR_ABORTED. */
bool wefti_bootstrap_pause(const wefti_bootstrap_request *request, int ms);
weft_status wefti_bootstrap_cancelled(const wefti_bootstrap_request *request);

/*
 * wefti_bootstrap_alone - a job of one rank; no socket, no launcher is needed.
 *
 * Returns     OK | ERR_NO_MEMORY | ERR_SYSTEM | what prepare returns.
 */
WEFT_NODISCARD weft_status wefti_bootstrap_alone(
    const wefti_bootstrap_request *request, wefti_membership *membership_out);

#endif
