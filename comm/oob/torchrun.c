/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/torchrun.c - under torchrun, or whatever sets its variables:
 * RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT. MASTER_PORT itself is taken by
 * the launcher's own store, so weft's rendezvous is at WEFT_PORT, else one
 * above it. LOCAL_RANK says which device of a machine to use, which is the
 * caller's task.
 *
 * torchrun hands out no secret. On loopback the job's own particulars stand in
 * for one, because only this machine can come and the memory is handed to the
 * same user's processes alone; on other addresses WEFT_SECRET or
 * WEFT_SECRET_FILE must be set.
 */
#include "base/error.h"
#include "base/plain_number.h"
#include "base/settings.h"
#include "comm/oob/rendezvous.h"
#include "comm/oob/source.h"

#include <stdio.h>
#include <string.h>

/* A number that a foreign launcher leaves in the environment. */
static weft_status read_number(const char *name, int least, int most,
                               int *value_out)
{
    const char *text = wefti_setting_foreign(name);
    int64_t value;
    if (!text || !wefti_plain_int(text, &value) || value < least ||
        value > most) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s=%s: allowed is a whole number from %d to %d",
                           name, text ? text : "(not set)", least, most);
    }
    *value_out = (int)value;
    return WEFT_OK;
}

static bool applies(const wefti_bootstrap_request *request)
{
    (void)request;
    return wefti_setting_foreign("RANK") &&
           wefti_setting_foreign("WORLD_SIZE") &&
           wefti_setting_foreign("MASTER_ADDR");
}

static weft_status find_rank(int *rank_out, int *nranks_out)
{
    weft_status status =
        read_number("WORLD_SIZE", 1, WEFTI_JOB_RANKS_MOST, nranks_out);
    return status == WEFT_OK ? read_number("RANK", 0, *nranks_out - 1, rank_out)
                             : status;
}

static weft_status find_port(int *port_out)
{
    if (wefti_setting_given(WEFTI_SETTING_PORT)) {
        int64_t port;
        weft_status status = wefti_setting_int(WEFTI_SETTING_PORT, &port);
        *port_out = (int)port;
        return status;
    }
    weft_status status = read_number("MASTER_PORT", 1, 65534, port_out);
    ++*port_out;
    return status;
}

static weft_status find_endpoint(wefti_endpoint *endpoint_out)
{
    const char *host = wefti_setting_foreign("MASTER_ADDR");
    char text[128];
    int port = 0;
    weft_status status = find_port(&port);
    if (status != WEFT_OK) {
        return status;
    }
    bool bare_v6 = strchr(host, ':') && host[0] != '[';
    snprintf(text, sizeof(text), bare_v6 ? "[%s]:%d" : "%s:%d", host, port);
    return wefti_endpoint_parse("MASTER_ADDR and port", text, endpoint_out);
}

static weft_status find_secret(const wefti_endpoint *endpoint,
                               wefti_secret *secret_out)
{
    if (wefti_setting_given(WEFTI_SETTING_SECRET) ||
        wefti_setting_given(WEFTI_SETTING_SECRET_FILE)) {
        return wefti_secret_load(secret_out);
    }
    if (!wefti_endpoint_is_loopback(endpoint)) {
        return wefti_error(
            WEFT_ERR_INVALID,
            "MASTER_ADDR=%s is not this machine's loopback, and torchrun gives "
            "no secret: set WEFT_SECRET or WEFT_SECRET_FILE to the same on all "
            "ranks",
            wefti_setting_foreign("MASTER_ADDR"));
    }
    const char *run = wefti_setting_foreign("TORCHELASTIC_RUN_ID");
    char text[256];
    int characters = snprintf(text, sizeof(text), "torchrun %s %s",
                              endpoint->text, run ? run : "");
    size_t kept = (size_t)characters < sizeof(text) ? (size_t)characters
                                                    : sizeof(text) - 1;
    wefti_secret_init(secret_out, text, kept);
    return WEFT_OK;
}

static weft_status join(const wefti_bootstrap_request *request,
                        wefti_membership *membership_out)
{
    wefti_endpoint endpoint;
    wefti_secret secret;
    weft_status status = find_endpoint(&endpoint);
    if (status == WEFT_OK) {
        status = find_secret(&endpoint, &secret);
    }
    if (status == WEFT_OK) {
        status = wefti_rendezvous_join(request, &endpoint, &secret, -1,
                                       membership_out);
        wefti_secret_fini(&secret);
    }
    return status;
}

const wefti_launch_source wefti_launch_source_torchrun = {
    .name = "torchrun's variables",
    .sign = "RANK, WORLD_SIZE and MASTER_ADDR are set",
    .applies = applies,
    .find_rank = find_rank,
    .join = join,
};
