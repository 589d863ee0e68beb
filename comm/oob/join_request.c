/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/join_request.c - requests that need no other rank: one that is
 * refused already, and a job of one.
 */
#include "comm/oob/join_request.h"

#include "base/error.h"

#include <poll.h>
#include <sodium.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* How long a rank that cannot take part tries to find a server: rank 0 may
 * have the same limit, and then there is none. */
enum { REFUSED_MS = 1000 };

wefti_bootstrap_request
wefti_bootstrap_refuse(const wefti_bootstrap_request *request,
                       weft_status status, const char *reason)
{
    wefti_bootstrap_request refused = *request;
    refused.refused = status;
    refused.refused_text = reason;
    if (refused.stay_ms == 0) {
        refused.stay_ms = request->timeout_ms;
    }
    if (refused.timeout_ms > REFUSED_MS) {
        refused.timeout_ms = REFUSED_MS;
    }
    return refused;
}

bool wefti_bootstrap_pause(const wefti_bootstrap_request *request, int ms)
{
    struct pollfd cancel = {.fd = request->cancel_fd ? *request->cancel_fd : -1,
                            .events = POLLIN};
    return poll(&cancel, 1, ms) > 0;
}

weft_status wefti_bootstrap_cancelled(const wefti_bootstrap_request *request)
{
    return wefti_error(WEFT_ERR_ABORTED, "rank %d: its creation was cancelled",
                       request->rank);
}

/* The membership of a job of one rank. */
static weft_status init_alone(const unsigned char tuning[WEFTI_TUNING_BYTES],
                              wefti_membership *membership_out)
{
    weft_status status = wefti_membership_init(membership_out, 0, 1);
    if (status != WEFT_OK) {
        return status;
    }
    membership_out->members[0].pid = getpid();
    memcpy(membership_out->tuning, tuning, WEFTI_TUNING_BYTES);
    randombytes_buf(membership_out->job_key, WEFTI_JOB_KEY_BYTES);
    membership_out->memory_fd = memfd_create("weft", MFD_CLOEXEC);
    if (membership_out->memory_fd < 0) {
        status = wefti_error_system("memory of the job (memfd_create)");
        wefti_membership_fini(membership_out);
    }
    return status;
}

weft_status wefti_bootstrap_alone(const wefti_bootstrap_request *request,
                                  wefti_membership *membership_out)
{
    if (request->refused != WEFT_OK) {
        return wefti_error(request->refused, "%s", request->refused_text);
    }
    weft_status status = init_alone(request->tuning, membership_out);
    if (status == WEFT_OK && request->prepare) {
        status = request->prepare(request->context, membership_out, NULL);
        if (status != WEFT_OK) {
            wefti_membership_fini(membership_out);
        }
    }
    return status;
}
