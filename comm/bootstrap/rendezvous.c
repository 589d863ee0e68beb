/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/bootstrap/rendezvous.c - a server beside rank 0, a client in every rank.
 *
 * An invitation: "weft HOST:PORT SECRET", the secret as 64 hex digits.
 */
#include "comm/bootstrap/rendezvous.h"

#include "base/clock.h"
#include "base/error.h"
#include "comm/bootstrap/client.h"
#include "comm/bootstrap/server.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

/* How long rank 0 waits for a port that somebody else holds. */
enum { PORT_WAIT_MS = 5000, RAW_SECRET_BYTES = 32 };

static weft_status start_server(const wefti_bootstrap_request *request,
                                const wefti_secret *secret,
                                wefti_endpoint *endpoint, int listen_fd,
                                wefti_server **server_out)
{
    int64_t wait_ms =
        request->timeout_ms < PORT_WAIT_MS ? request->timeout_ms : PORT_WAIT_MS;
    if (listen_fd < 0) {
        weft_status status = wefti_endpoint_listen(
            endpoint, wefti_clock_ns() + wait_ms * 1000000, &listen_fd);
        if (status != WEFT_OK) {
            return status;
        }
    }
    const wefti_server_config config = {.listen_fd = listen_fd,
                                        .endpoint = *endpoint,
                                        .secret = *secret,
                                        .nranks = request->nranks,
                                        .home_rank = request->rank,
                                        .timeout_ms = request->timeout_ms};
    return wefti_server_start(&config, server_out);
}

weft_status wefti_rendezvous_meet(const wefti_bootstrap_request *request,
                                  wefti_endpoint *endpoint,
                                  const wefti_secret *secret, int listen_fd,
                                  wefti_membership *membership_out)
{
    wefti_server *server = NULL;
    weft_status status = WEFT_OK;
    if (request->rank == 0) {
        status = start_server(request, secret, endpoint, listen_fd, &server);
    }
    if (status == WEFT_OK) {
        status = wefti_client_meet(endpoint, secret, request, membership_out);
    }
    if (server) {
        wefti_server_stop(server);
    }
    return status;
}

weft_status wefti_invitation_create(const char *source, const char *host,
                                    wefti_endpoint *endpoint_out,
                                    wefti_secret *secret_out,
                                    int *listen_fd_out,
                                    char text_out[WEFTI_INVITATION_BYTES])
{
    unsigned char raw[RAW_SECRET_BYTES];
    char digits[2 * RAW_SECRET_BYTES + 1];
    weft_status status = WEFT_OK;
    if (host) {
        status = wefti_endpoint_host(source, host, endpoint_out);
    } else {
        wefti_endpoint_loopback(0, endpoint_out);
    }
    if (status == WEFT_OK) {
        status = wefti_endpoint_listen(endpoint_out, 0, listen_fd_out);
    }
    if (status != WEFT_OK) {
        return status;
    }
    randombytes_buf(raw, sizeof(raw));
    sodium_bin2hex(digits, sizeof(digits), raw, sizeof(raw));
    wefti_secret_init(secret_out, digits, sizeof(digits) - 1);
    snprintf(text_out, WEFTI_INVITATION_BYTES, "weft %s %s", endpoint_out->text,
             digits);
    sodium_memzero(raw, sizeof(raw));
    sodium_memzero(digits, sizeof(digits));
    return WEFT_OK;
}

weft_status wefti_invitation_read(const char *source, const char *text,
                                  wefti_endpoint *endpoint_out,
                                  wefti_secret *secret_out)
{
    char where[80], digits[2 * RAW_SECRET_BYTES + 1];
    int end = 0;
    bool right =
        strlen(text) < WEFTI_INVITATION_BYTES &&
        sscanf(text, "weft %79s %64[0-9a-f]%n", where, digits, &end) == 2 &&
        text[end] == '\0' && strlen(digits) == sizeof(digits) - 1;
    if (right) {
        right = wefti_endpoint_parse(source, where, endpoint_out) == WEFT_OK;
    }
    if (!right) {
        return wefti_error(WEFT_ERR_BOOTSTRAP,
                           "%s holds no invitation of a weft job", source);
    }
    wefti_secret_init(secret_out, digits, sizeof(digits) - 1);
    sodium_memzero(digits, sizeof(digits));
    return WEFT_OK;
}
