/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/bootstrap/roster.c - seats, and what is said to all of them.
 */
#include "comm/bootstrap/roster.h"

#include "base/error.h"
#include "comm/bootstrap/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

weft_status wefti_roster_init(wefti_roster *roster, int nranks)
{
    *roster = (wefti_roster){.nranks = nranks};
    roster->seats = calloc((size_t)nranks, sizeof(*roster->seats));
    roster->flags = calloc((size_t)nranks, sizeof(*roster->flags));
    if (!roster->seats || !roster->flags) {
        free(roster->seats);
        free(roster->flags);
        *roster = (wefti_roster){0};
        return wefti_error(WEFT_ERR_NO_MEMORY, "roster of %d ranks", nranks);
    }
    for (int rank = 0; rank < nranks; rank++) {
        roster->seats[rank].link.fd = -1;
    }
    return WEFT_OK;
}

void wefti_roster_fini(wefti_roster *roster)
{
    for (int rank = 0; rank < roster->nranks; rank++) {
        wefti_link_fini(&roster->seats[rank].link);
        wefti_session_fini(&roster->seats[rank].session);
    }
    free(roster->seats);
    free(roster->flags);
    *roster = (wefti_roster){0};
}

void wefti_roster_missing(const wefti_roster *roster, char *text_out,
                          size_t text_bytes)
{
    char absent[WEFTI_RANKS_TEXT_BYTES], present[WEFTI_RANKS_TEXT_BYTES];
    const bool gathering = roster->joined_count < roster->nranks;
    if (roster->nranks == 0) {
        snprintf(text_out, text_bytes, "no rank has joined");
        return;
    }
    for (int rank = 0; rank < roster->nranks; rank++) {
        const wefti_seat *seat = &roster->seats[rank];
        roster->flags[rank] = gathering ? seat->pid != 0 : seat->complete;
    }
    int missing =
        wefti_ranks_text(roster->flags, roster->nranks, false, absent);
    int here = wefti_ranks_text(roster->flags, roster->nranks, true, present);
    if (gathering) {
        snprintf(text_out, text_bytes, "%s %s not joined (%s %s here)", absent,
                 missing == 1 ? "has" : "have", present,
                 here > 1 ? "are" : "is");
    } else {
        snprintf(text_out, text_bytes,
                 "%s joined but %s not finished the bootstrap (%s %s)", absent,
                 missing == 1 ? "has" : "have", present,
                 here > 1 ? "have" : "has");
    }
}

void wefti_roster_tell(wefti_roster *roster, weft_status status,
                       const char *text)
{
    wefti_message message = {.kind = WEFTI_MESSAGE_VERDICT,
                             .as.verdict.status = status};
    snprintf(message.as.verdict.text, sizeof(message.as.verdict.text), "%s",
             text);
    for (int rank = 0; rank < roster->nranks; rank++) {
        wefti_seat *seat = &roster->seats[rank];
        if (seat->link.fd >= 0 &&
            wefti_link_post(&seat->link, &seat->session, &message) != WEFT_OK) {
            /* It learns from the closed connection that something is wrong. */
            continue;
        }
    }
}

weft_status
wefti_roster_welcome(wefti_roster *roster,
                     const unsigned char tuning[WEFTI_TUNING_BYTES],
                     const unsigned char socket_name[WEFTI_SOCKET_NAME_BYTES],
                     const unsigned char job_key[WEFTI_JOB_KEY_BYTES])
{
    wefti_message message = {.kind = WEFTI_MESSAGE_WELCOME};
    wefti_message_welcome *welcome = &message.as.welcome;
    welcome->nranks = (uint32_t)roster->nranks;
    for (int rank = 0; rank < roster->nranks; rank++) {
        welcome->pids[rank] = roster->seats[rank].pid;
    }
    memcpy(welcome->tuning, tuning, WEFTI_TUNING_BYTES);
    memcpy(welcome->socket_name, socket_name, WEFTI_SOCKET_NAME_BYTES);
    for (int rank = 0; rank < roster->nranks; rank++) {
        wefti_seat *seat = &roster->seats[rank];
        wefti_session_box(&seat->session, job_key, welcome->box);
        weft_status status =
            wefti_link_post(&seat->link, &seat->session, &message);
        if (status != WEFT_OK) {
            return status;
        }
    }
    return WEFT_OK;
}
