/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/rendezvous.h - bootstrap at an address with a secret, both
 * known to all; and an invitation, which carries both as one line of text.
 */
#ifndef COMM_OOB_RENDEZVOUS_H
#define COMM_OOB_RENDEZVOUS_H

#include "comm/oob/endpoint.h"
#include "comm/oob/join_request.h"
#include "comm/oob/secret.h"

enum { WEFTI_INVITATION_BYTES = 160 };

/*
 * wefti_rendezvous_join - rank 0 serves and takes part, the others take part.
 *
 * listen_fd   rank 0: a socket that listens at the endpoint, taken; -1: one is
 *             opened, waiting a while for a port that another process holds.
 *
 * Returns     as wefti_bootstrap_join.
 */
WEFT_NODISCARD weft_status
wefti_rendezvous_join(const wefti_bootstrap_request *request,
                      wefti_endpoint *endpoint, const wefti_secret *secret,
                      int listen_fd, wefti_membership *membership_out);

/*
 * wefti_rendezvous_ask - whether a process that has come as request's rank
 * serves there already.
 *
 * Returns     OK: not that this one knew | ERR_BOOTSTRAP: it does; the text
 *             names both processes, and all ranks of that bootstrap have it.
 */
WEFT_NODISCARD weft_status wefti_rendezvous_ask(
    const wefti_bootstrap_request *request, const wefti_endpoint *endpoint,
    const wefti_secret *secret);

/*
 * wefti_invitation_create - listen at any port, with a fresh secret.
 *
 * host    of this machine; NULL: loopback. source: what to call it.
 * text    one printable line, for wefti_invitation_read; a secret itself.
 *
 * Returns     OK | ERR_INVALID | ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status wefti_invitation_create(
    const char *source, const char *host, wefti_endpoint *endpoint_out,
    wefti_secret *secret_out, int *listen_fd_out,
    char text_out[WEFTI_INVITATION_BYTES]);

/* Returns     OK | ERR_BOOTSTRAP: text is no invitation. */
WEFT_NODISCARD weft_status wefti_invitation_read(const char *source,
                                                 const char *text,
                                                 wefti_endpoint *endpoint_out,
                                                 wefti_secret *secret_out);

#endif
