/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/bootstrap/environment.c - who am I, where do we meet, who listens.
 */
#include "comm/bootstrap/environment.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/settings.h"
#include "comm/bootstrap/client.h"
#include "comm/bootstrap/membership.h"
#include "comm/bootstrap/server.h"

#include <fcntl.h>
#include <unistd.h>

/* How long rank 0 waits for a port that somebody else holds. */
enum { PORT_WAIT_MS = 5000 };

/* Rank and number of ranks, where the request leaves them open. */
static weft_status learn_ranks(wefti_bootstrap_request *request)
{
    int64_t rank = 0, nranks = 1;
    if (request->nranks > 0) {
        return WEFT_OK;
    }
    if (wefti_setting_given(WEFTI_SETTING_NRANKS)) {
        weft_status status = wefti_setting_int(WEFTI_SETTING_NRANKS, &nranks);
        if (status != WEFT_OK) {
            return status;
        }
    }
    if (wefti_setting_given(WEFTI_SETTING_RANK) || nranks > 1) {
        weft_status status = wefti_setting_int(WEFTI_SETTING_RANK, &rank);
        if (status != WEFT_OK) {
            return status;
        }
    }
    if (rank >= nranks) {
        return wefti_error(WEFT_ERR_INVALID,
                           "WEFT_RANK=%lld: allowed is 0..%lld with "
                           "WEFT_NRANKS=%s",
                           (long long)rank, (long long)nranks - 1,
                           wefti_setting_given(WEFTI_SETTING_NRANKS)
                               ? wefti_setting_text(WEFTI_SETTING_NRANKS)
                               : "(not set: 1)");
    }
    request->rank = (int)rank;
    request->nranks = (int)nranks;
    return WEFT_OK;
}

/*
 * The socket that a launcher left for rank 0, once: after the first meeting
 * the number is free again and may name anything. -1: there is none.
 */
static weft_status take_inherited(const wefti_endpoint *endpoint, int *fd_out)
{
    int64_t fd = -1;
    *fd_out = -1;
    if (!wefti_setting_given(WEFTI_SETTING_RENDEZVOUS_FD)) {
        return WEFT_OK;
    }
    weft_status status = wefti_setting_int(WEFTI_SETTING_RENDEZVOUS_FD, &fd);
    if (status == WEFT_OK && wefti_endpoint_is_listened_by(endpoint, (int)fd)) {
        (void)fcntl((int)fd, F_SETFD, FD_CLOEXEC);
        (void)fcntl((int)fd, F_SETFL, O_NONBLOCK);
        *fd_out = (int)fd;
    }
    return status;
}

static weft_status start_server(const wefti_bootstrap_request *request,
                                const wefti_secret *secret,
                                wefti_endpoint *endpoint,
                                wefti_server **server_out)
{
    int64_t wait_ms =
        request->timeout_ms < PORT_WAIT_MS ? request->timeout_ms : PORT_WAIT_MS;
    int fd;
    weft_status status = take_inherited(endpoint, &fd);
    if (status == WEFT_OK && fd < 0) {
        status = wefti_endpoint_listen(
            endpoint, wefti_clock_ns() + wait_ms * 1000000, &fd);
    }
    if (status != WEFT_OK) {
        return status;
    }
    const wefti_server_config config = {.listen_fd = fd,
                                        .endpoint = *endpoint,
                                        .secret = *secret,
                                        .nranks = request->nranks,
                                        .home_rank = request->rank,
                                        .timeout_ms = request->timeout_ms};
    return wefti_server_start(&config, server_out);
}

/* Several ranks: through the rendezvous. */
static weft_status meet(const wefti_bootstrap_request *request,
                        wefti_membership *membership_out)
{
    wefti_endpoint endpoint;
    wefti_secret secret;
    wefti_server *server = NULL;
    if (!wefti_setting_given(WEFTI_SETTING_RENDEZVOUS)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "WEFT_RENDEZVOUS is not set: %d ranks need a "
                           "host:port to meet at (weft-run sets it)",
                           request->nranks);
    }
    weft_status status = wefti_endpoint_parse(
        "WEFT_RENDEZVOUS", wefti_setting_text(WEFTI_SETTING_RENDEZVOUS),
        &endpoint);
    if (status == WEFT_OK) {
        status = wefti_secret_load(&secret);
    }
    if (status != WEFT_OK) {
        return status;
    }
    if (request->rank == 0) {
        status = start_server(request, &secret, &endpoint, &server);
    }
    if (status == WEFT_OK) {
        status = wefti_client_meet(&endpoint, &secret, request, membership_out);
    }
    if (server) {
        wefti_server_stop(server);
    }
    wefti_secret_fini(&secret);
    return status;
}

/* A launcher's socket is of no use to a single rank: nothing may listen. */
static weft_status join_alone(const wefti_bootstrap_request *request,
                              wefti_membership *membership_out)
{
    wefti_endpoint endpoint;
    int fd = -1;
    if (wefti_setting_given(WEFTI_SETTING_RENDEZVOUS)) {
        weft_status status = wefti_endpoint_parse(
            "WEFT_RENDEZVOUS", wefti_setting_text(WEFTI_SETTING_RENDEZVOUS),
            &endpoint);
        if (status == WEFT_OK) {
            status = take_inherited(&endpoint, &fd);
        }
        if (status != WEFT_OK) {
            return status;
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    weft_status status =
        wefti_membership_alone(request->tuning, membership_out);
    if (status == WEFT_OK && request->prepare) {
        status = request->prepare(request->context, membership_out);
        if (status != WEFT_OK) {
            wefti_membership_fini(membership_out);
        }
    }
    return status;
}

weft_status wefti_environment_join(const wefti_bootstrap_request *request,
                                   wefti_membership *membership_out)
{
    wefti_bootstrap_request own = *request;
    weft_status status = learn_ranks(&own);
    if (status != WEFT_OK) {
        return status;
    }
    return own.nranks == 1 ? join_alone(&own, membership_out)
                           : meet(&own, membership_out);
}
