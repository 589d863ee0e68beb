/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/environment.c - which rank this is, where the job gathers, which
 * process listens.
 */
#include "comm/oob/environment.h"

#include "base/error.h"
#include "base/log.h"
#include "base/settings.h"
#include "comm/oob/rendezvous.h"
#include "comm/oob/source.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

weft_status wefti_environment_find_rank(int *rank_out, int *nranks_out)
{
    int64_t rank = 0, nranks = 1;
    if (!wefti_setting_given(WEFTI_SETTING_NRANKS) &&
        wefti_setting_given(WEFTI_SETTING_RENDEZVOUS)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "WEFT_NRANKS=(not set): where WEFT_RENDEZVOUS is "
                           "set, allowed is a whole number of ranks to meet");
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
    *rank_out = (int)rank;
    *nranks_out = (int)nranks;
    return WEFT_OK;
}

/*
 * The socket that a launcher left for rank 0, once: after the first bootstrap
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

/* Several ranks: through the rendezvous. */
static weft_status join_all(const wefti_bootstrap_request *request,
                            wefti_membership *membership_out)
{
    wefti_endpoint endpoint;
    wefti_secret secret;
    int listen_fd = -1;
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
    if (status == WEFT_OK && request->rank == 0) {
        status = take_inherited(&endpoint, &listen_fd);
    }
    if (status == WEFT_OK) {
        status = wefti_rendezvous_join(request, &endpoint, &secret, listen_fd,
                                       membership_out);
        wefti_secret_fini(&secret);
    }
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
    return wefti_bootstrap_alone(request, membership_out);
}

static weft_status join(const wefti_bootstrap_request *request,
                        wefti_membership *membership_out)
{
    return request->nranks == 1 ? join_alone(request, membership_out)
                                : join_all(request, membership_out);
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
 * A part of the variables that torchrun sets is mostly a user's mistake:
 * without this warning each rank would silently be a job of its own.
 */
static weft_status join_unlaunched(const wefti_bootstrap_request *request,
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
    return join(request, membership_out);
}

const wefti_launch_source wefti_launch_source_environment = {
    .name = "WEFT_* variables",
    .sign = "WEFT_RENDEZVOUS, WEFT_NRANKS or WEFT_RANK is set",
    .alone_too = true,
    .applies = has_variables,
    .find_rank = wefti_environment_find_rank,
    .join = join,
};

const wefti_launch_source wefti_launch_source_alone = {
    .name = "no launcher",
    .sign = "no variables of one are set",
    .alone_too = true,
    .applies = always,
    .find_rank = wefti_environment_find_rank,
    .join = join_unlaunched,
};
