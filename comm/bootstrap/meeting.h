/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/bootstrap/meeting.h - the state of one meeting at its server, and the
 * rules by which it moves.
 *
 *     GATHER    strangers become members     all here: WELCOME
 *     HANDOVER  members hand out memory, and cards through the server
 *                                            all complete: VERDICT OK
 *     LINGER    failed while gathering: late ranks hear why, for a moment
 *     ENDED     the verdict is on its way
 *
 * Whatever a member does wrong, its death included, ends the meeting for all
 * with its name; whatever a stranger does ends its own connection. TCP
 * listening ends before HANDOVER, so that ranks that already meet anew at the
 * same port find the next server, not this one.
 */
#ifndef COMM_BOOTSTRAP_MEETING_H
#define COMM_BOOTSTRAP_MEETING_H

#include "comm/bootstrap/roster.h"
#include "comm/bootstrap/server.h"
#include "comm/bootstrap/stranger.h"

typedef enum wefti_meeting_phase {
    WEFTI_PHASE_GATHER,
    WEFTI_PHASE_HANDOVER,
    WEFTI_PHASE_LINGER,
    WEFTI_PHASE_ENDED
} wefti_meeting_phase;

/* One thread's. */
typedef struct wefti_meeting {
    wefti_server_config config;
    wefti_meeting_phase phase;
    weft_status verdict; /* from LINGER on, as is the text */
    char verdict_text[WEFTI_MESSAGE_TEXT_MOST + 1];
    int64_t deadline_ns; /* of LINGER, once there */
    int warning_count;   /* about strangers */
    unsigned char tuning[WEFTI_TUNING_BYTES];
    wefti_roster roster;
    wefti_strangers strangers;
} wefti_meeting;

/* Returns     OK | ERR_NO_MEMORY; config->listen_fd is taken either way. */
WEFT_NODISCARD weft_status
wefti_meeting_init(wefti_meeting *meeting, const wefti_server_config *config);
void wefti_meeting_fini(wefti_meeting *meeting); /* closes and wipes all */

/* Read and judge what has come from one of them. */
void wefti_meeting_hear_stranger(wefti_meeting *meeting,
                                 wefti_stranger *stranger);
void wefti_meeting_hear_member(wefti_meeting *meeting, int rank);

/* A rank that has ended and has not joined fails the meeting. */
void wefti_meeting_hear_launcher(wefti_meeting *meeting);

bool wefti_meeting_is_gathering(const wefti_meeting *meeting);

/* To the next phase, if everybody is ready for it. */
void wefti_meeting_advance(wefti_meeting *meeting);

/* What is due because time has passed, and when that will be next. */
void wefti_meeting_check_time(wefti_meeting *meeting, int64_t now_ns);
int64_t wefti_meeting_next_ns(const wefti_meeting *meeting);

/*
 * The end, for everybody; the first verdict counts. A meeting that has not
 * gathered lingers, unless time is what it lacked.
 */
void wefti_meeting_conclude(wefti_meeting *meeting, weft_status status,
                            const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Lingering, if it does, is over. */
void wefti_meeting_end(wefti_meeting *meeting);

#endif
