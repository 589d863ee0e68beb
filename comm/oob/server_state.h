/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/server_state.h - the state of one bootstrap at its server, and the
 * rules by which it moves.
 *
 *     GATHER    unauthenticated peers become members     all here: WELCOME
 *     HANDOVER  members hand out memory, and infos through the server
 *                                            all complete: VERDICT OK
 *     LINGER    failed while gathering: late ranks get the reason, for a moment
 *     ENDED     the verdict is on its way
 *
 * Whatever a member does wrong, its death included, ends the bootstrap for all
 * with its name; whatever an unauthenticated peer does ends its own connection.
 * TCP listening ends before HANDOVER, so that ranks that already join another
 * job at the same port find the next server, not this one.
 */
#ifndef COMM_OOB_SERVER_STATE_H
#define COMM_OOB_SERVER_STATE_H

#include "comm/oob/listener.h"
#include "comm/oob/roster.h"

/*
 * listen_fd    taken, unless start fails
 * nranks       0: as the first member states
 * home_rank    whose lines the server logs; -1: no rank's
 * launcher_fd  where weft-run reports ended ranks, borrowed; -1: it does not
 * timeout_ms   the bootstrap fails then, whatever its members' limits are
 * stays        a verdict from before all have come is sent until then, not only
 *              to those that come within a second, or until wefti_server_stop
 */
typedef struct wefti_server_config {
    int listen_fd;
    wefti_endpoint endpoint;
    wefti_secret secret;
    int nranks;
    int home_rank;
    int launcher_fd;
    int64_t timeout_ms;
    bool stays;
} wefti_server_config;

typedef enum wefti_server_state_phase {
    WEFTI_PHASE_GATHER,
    WEFTI_PHASE_HANDOVER,
    WEFTI_PHASE_LINGER,
    WEFTI_PHASE_ENDED
} wefti_server_state_phase;

/* One thread's. */
typedef struct wefti_server_state {
    wefti_server_config config;
    wefti_server_state_phase phase;
    weft_status verdict; /* from LINGER on, as is the text */
    char verdict_text[WEFTI_OOB_TEXT_MOST + 1];
    int64_t deadline_ns; /* of LINGER, once there */
    int warning_count;   /* about unauthenticated */
    unsigned char tuning[WEFTI_TUNING_BYTES];
    wefti_roster roster;
    wefti_oob_listener listener;
} wefti_server_state;

/* Returns     OK | ERR_NO_MEMORY; config->listen_fd is taken either way. */
WEFT_NODISCARD weft_status wefti_server_state_init(
    wefti_server_state *state, const wefti_server_config *config);
void wefti_server_state_fini(
    wefti_server_state *state); /* closes and wipes all */

/* Read and judge what has come from one of them; state: for the listener. */
void wefti_server_state_read_peer(void *state, wefti_oob_connection *peer);
void wefti_server_state_read_member(wefti_server_state *state, int rank);

/* A rank that has ended and has not joined fails the bootstrap. */
void wefti_server_state_read_launcher(wefti_server_state *state);

bool wefti_server_state_is_gathering(const wefti_server_state *state);

/* To the next phase, if all are ready for it. */
void wefti_server_state_advance(wefti_server_state *state);

/* What is due because time has passed, and when that will be next. */
void wefti_server_state_check_time(wefti_server_state *state, int64_t now_ns);
int64_t wefti_server_state_next_ns(const wefti_server_state *state);

/*
 * The end, for all; the first verdict counts. A bootstrap that has not
 * gathered lingers, unless time is what it lacked.
 */
void wefti_server_state_conclude(wefti_server_state *state, weft_status status,
                                 const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Lingering, if it does, is over. */
void wefti_server_state_end(wefti_server_state *state);

#endif
