/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/client_state.h - a member's state, for the two files that move it:
 * client.c, which talks to the server, and client_collect.c, which takes what
 * the welcome promises.
 */
#ifndef COMM_OOB_CLIENT_STATE_H
#define COMM_OOB_CLIENT_STATE_H

#include "comm/oob/client.h"
#include "comm/oob/memory_source.h"

struct wefti_client {
    const wefti_endpoint *endpoint;
    const wefti_secret *secret;
    const wefti_bootstrap_request *request;
    int64_t limit_ns;    /* of a member */
    int64_t deadline_ns; /* of what is under way */
    int64_t warn_at_ns;  /* INT64_MAX once warned, or accepted */
    bool challenged;     /* a server has answered at least once */
    bool accepted;
    bool judged;      /* has got a verdict */
    bool cancelled;   /* ends soon */
    bool cancel_sent; /* and has sent the server that */
    int last_failure; /* errno of the last connect, 0: it succeeded */
    wefti_oob_connection connection;
    wefti_memory_source memory_source; /* if this rank leads its domain */
    unsigned char socket_name[WEFTI_SOCKET_NAME_BYTES];
    bool warned_refused;
    int welcomed;              /* members that welcomes have listed */
    int round;                 /* of infos */
    wefti_oob_message message; /* the last one received */
};

/* Readable when this rank is to be cancelled; -1: it need not be polled. */
int wefti_client_cancel_fd(const wefti_client *self);

/* Waits for ms, or until this rank is to be cancelled, which it notes. */
void wefti_client_pause(wefti_client *self, int64_t ms);

/* What only this rank has run into: its own verdict, in place of a report. */
void wefti_client_refuse_part(wefti_oob_message *report, weft_status status);
bool wefti_client_is_complete(const wefti_oob_message *report);

/*
 * wefti_client_note_members - of a WELCOME, which is self->message; *left_out
 * is how many members are still to come.
 *
 * Returns     OK | ERR_BOOTSTRAP: the welcome does not fit.
 */
WEFT_NODISCARD weft_status wefti_client_note_members(
    wefti_client *self, wefti_membership *membership, int *left_out);

/*
 * wefti_client_collect - after the last WELCOME: the memory and the pidfds;
 * what went wrong goes in message.
 *
 * Returns     OK | ERR_BOOTSTRAP: the welcome does not fit.
 */
WEFT_NODISCARD weft_status wefti_client_collect(wefti_client *self,
                                                wefti_membership *membership,
                                                wefti_oob_message *message);

#endif
