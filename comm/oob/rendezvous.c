/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/rendezvous.c - a server beside rank 0, a client in every rank.
 *
 * An invitation: "weft HOST:PORT SECRET", the secret as 64 hex digits.
 */
#include "comm/oob/rendezvous.h"

#include "base/clock.h"
#include "base/error.h"
#include "comm/oob/client.h"
#include "comm/oob/launcher.h"
#include "comm/oob/server.h"

#include <errno.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* How long rank 0 waits for a port that another process holds, and how long for
 * an answer of the one that listens there. */
enum {
    PORT_WAIT_MS = 5000,
    ASK_MS = 500,
    PORT_RETRY_MS = 20,
    RAW_SECRET_BYTES = 32
};

weft_status wefti_rendezvous_ask(const wefti_bootstrap_request *request,
                                 const wefti_endpoint *endpoint,
                                 const wefti_secret *secret)
{
    bool judged = false;
    wefti_endpoint there = *endpoint;
    wefti_bootstrap_request asking = *request;
    wefti_membership membership;
    there.patient = false;
    asking.judged_out = &judged;
    asking.prepare = NULL;
    asking.stay_ms = 0;
    if (asking.timeout_ms > ASK_MS) {
        asking.timeout_ms = ASK_MS;
    }
    weft_status status =
        wefti_client_join(&there, secret, &asking, &membership);
    if (status == WEFT_OK) { /* never: its own rank 0 has been refused */
        wefti_membership_fini(&membership);
    }
    return judged ? status : WEFT_OK;
}

/*
 * Where the address is taken, or is another machine's, another process may have
 * come as rank 0: both get that as their error. Else the process that holds the
 * port for a moment is waited for.
 */
static weft_status listen_as_first(const wefti_bootstrap_request *request,
                                   const wefti_secret *secret,
                                   wefti_endpoint *endpoint, int *fd_out)
{
    const int64_t wait_ms =
        request->timeout_ms < PORT_WAIT_MS ? request->timeout_ms : PORT_WAIT_MS;
    const int64_t until_ns = wefti_clock_ns() + wait_ms * 1000000;
    for (;;) {
        weft_status status = wefti_endpoint_listen(endpoint, fd_out);
        const int cause = errno;
        if (status == WEFT_OK ||
            (cause != EADDRINUSE && cause != EADDRNOTAVAIL)) {
            return status;
        }
        weft_status asked = wefti_rendezvous_ask(request, endpoint, secret);
        if (asked != WEFT_OK) {
            return asked;
        }
        if (cause == EADDRNOTAVAIL || wefti_clock_ns() >= until_ns) {
            errno = cause;
            return wefti_error_system("cannot listen for %s", endpoint->name);
        }
        (void)poll(NULL, 0, PORT_RETRY_MS);
    }
}

/* listen_fd is taken, unless this fails. */
static weft_status start_server(const wefti_bootstrap_request *request,
                                const wefti_secret *secret,
                                const wefti_endpoint *endpoint, int listen_fd,
                                wefti_server **server_out)
{
    const wefti_server_config config = {.listen_fd = listen_fd,
                                        .endpoint = *endpoint,
                                        .secret = *secret,
                                        .nranks = request->nranks,
                                        .home_rank = request->rank,
                                        .launcher_fd = wefti_launcher_find(),
                                        .timeout_ms = request->timeout_ms};
    return wefti_server_start(&config, server_out);
}

/* Rank 0's part: a server beside it. */
static weft_status serve(const wefti_bootstrap_request *request,
                         wefti_endpoint *endpoint, const wefti_secret *secret,
                         int listen_fd, wefti_membership *membership_out)
{
    wefti_bootstrap_request own = *request;
    wefti_server *server;
    char reason[512];
    weft_status status = WEFT_OK;
    if (listen_fd < 0) {
        status = listen_as_first(request, secret, endpoint, &listen_fd);
    }
    if (status != WEFT_OK) {
        return status;
    }
    status = start_server(request, secret, endpoint, listen_fd, &server);
    if (status != WEFT_OK) {
        /* A second listener, if one can be had, warns the others of the
         * first. */
        snprintf(reason, sizeof(reason), "%s", weft_error_text());
        own = wefti_bootstrap_refuse(request, status, reason);
        if (start_server(request, secret, endpoint, listen_fd, &server) !=
            WEFT_OK) {
            close(listen_fd);
            return wefti_error(status, "%s", reason);
        }
    }
    status = wefti_client_join(endpoint, secret, &own, membership_out);
    wefti_server_stop(server);
    return status;
}

weft_status wefti_rendezvous_join(const wefti_bootstrap_request *request,
                                  wefti_endpoint *endpoint,
                                  const wefti_secret *secret, int listen_fd,
                                  wefti_membership *membership_out)
{
    return request->rank == 0
               ? serve(request, endpoint, secret, listen_fd, membership_out)
               : wefti_client_join(endpoint, secret, request, membership_out);
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
        status = wefti_endpoint_listen(endpoint_out, listen_fd_out);
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
