/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/roster.c - seats, and what is sent to all of them.
 */
#include "comm/oob/roster.h"

#include "base/error.h"
#include "comm/oob/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEAL_BYTES = 32 << 10 };

weft_status wefti_roster_init(wefti_roster *roster, int nranks)
{
    *roster = (wefti_roster){.nranks = nranks};
    roster->seats = calloc((size_t)nranks, sizeof(*roster->seats));
    roster->flags = calloc((size_t)nranks, sizeof(*roster->flags));
    if (!roster->seats || !roster->flags) {
        free(roster->seats);
        free(roster->flags);
        *roster = (wefti_roster){0};
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "no memory for a roster of %d ranks", nranks);
    }
    for (int rank = 0; rank < nranks; rank++) {
        roster->seats[rank].connection.fd = -1;
    }
    return WEFT_OK;
}

void wefti_roster_fini(wefti_roster *roster)
{
    for (int rank = 0; rank < roster->nranks; rank++) {
        wefti_oob_connection_fini(&roster->seats[rank].connection);
        free(roster->seats[rank].info);
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
    } else if (missing == 0) {
        snprintf(text_out, text_bytes,
                 "all ranks have finished the bootstrap, too late");
    } else {
        snprintf(text_out, text_bytes,
                 "%s joined but %s not finished the bootstrap (%s %s)", absent,
                 missing == 1 ? "has" : "have", present,
                 here > 1 ? "have" : "has");
    }
}

void wefti_roster_send_verdict(wefti_roster *roster, weft_status status,
                               const char *text)
{
    wefti_oob_message message = {.kind = WEFTI_OOB_VERDICT,
                                 .as.verdict.status = status};
    snprintf(message.as.verdict.text, sizeof(message.as.verdict.text), "%s",
             text);
    for (int rank = 0; rank < roster->nranks; rank++) {
        wefti_seat *seat = &roster->seats[rank];
        if (seat->connection.fd >= 0 &&
            wefti_oob_connection_post(&seat->connection, &message) != WEFT_OK) {
            /* It learns from the closed connection that something is wrong. */
            continue;
        }
    }
}

/* The lowest rank whose key equals that of rank. */
static int first_alike(const wefti_roster *roster, int rank, bool domain)
{
    const wefti_place *own = &roster->seats[rank].place;
    for (int first = 0; first < rank; first++) {
        const wefti_place *place = &roster->seats[first].place;
        if (memcmp(domain ? place->domain : place->host,
                   domain ? own->domain : own->host,
                   WEFTI_PLACE_KEY_BYTES) == 0) {
            return first;
        }
    }
    return rank;
}

/* The same of a group inside the rank's domain, whose leader is known. */
static int first_inside(const wefti_roster *roster, int rank, int level)
{
    int first = roster->seats[rank].leader;
    while (memcmp(roster->seats[first].place.inner[level],
                  roster->seats[rank].place.inner[level],
                  WEFTI_PLACE_KEY_BYTES) != 0) {
        first++;
    }
    return first;
}

/* Which ranks share memory; makes room for infos if not all do. */
static weft_status find_leaders(wefti_roster *roster)
{
    for (int rank = 0; rank < roster->nranks; rank++) {
        roster->seats[rank].leader = first_alike(roster, rank, true);
        roster->seats[rank].host = first_alike(roster, rank, false);
        for (int level = 0; level < WEFTI_PLACE_LEVELS; level++) {
            roster->seats[rank].inner[level] =
                first_inside(roster, rank, level);
        }
        roster->parted |= roster->seats[rank].leader != 0;
    }
    for (int rank = 0; rank < roster->nranks && roster->parted; rank++) {
        roster->seats[rank].info = malloc(2 * WEFTI_INFO_BYTES);
        if (!roster->seats[rank].info) {
            return wefti_error(WEFT_ERR_NO_MEMORY,
                               "no memory for the infos of %d ranks",
                               roster->nranks);
        }
    }
    return WEFT_OK;
}

/* The ranks that a welcome lists. */
static void list_ranks(const wefti_roster *roster,
                       wefti_oob_message_welcome *welcome)
{
    for (uint32_t i = 0; i < wefti_welcome_count(welcome); i++) {
        const wefti_seat *seat = &roster->seats[welcome->first + i];
        welcome->pids[i] = seat->pid;
        welcome->domains[i] = (uint16_t)seat->leader;
        welcome->hosts[i] = (uint16_t)seat->host;
        for (int level = 0; level < WEFTI_PLACE_LEVELS; level++) {
            welcome->inner[i][level] = (uint16_t)seat->inner[level];
        }
    }
}

weft_status
wefti_roster_welcome(wefti_roster *roster,
                     const unsigned char tuning[WEFTI_TUNING_BYTES],
                     const unsigned char job_key[WEFTI_JOB_KEY_BYTES])
{
    wefti_oob_message message = {.kind = WEFTI_OOB_WELCOME};
    wefti_oob_message_welcome *welcome = &message.as.welcome;
    weft_status status = find_leaders(roster);
    welcome->nranks = (uint32_t)roster->nranks;
    memcpy(welcome->tuning, tuning, WEFTI_TUNING_BYTES);
    for (; welcome->first < welcome->nranks && status == WEFT_OK;
         welcome->first += WEFTI_WELCOME_RANKS) {
        list_ranks(roster, welcome);
        for (int rank = 0; rank < roster->nranks && status == WEFT_OK; rank++) {
            wefti_seat *seat = &roster->seats[rank];
            memcpy(welcome->socket_name,
                   roster->seats[seat->leader].socket_name,
                   WEFTI_SOCKET_NAME_BYTES);
            wefti_oob_session_box(&seat->connection.session, job_key,
                                  welcome->box);
            status = wefti_oob_connection_post(&seat->connection, &message);
        }
    }
    return status;
}

int wefti_roster_leader(const wefti_roster *roster, int rank)
{
    return roster->seats[rank].leader;
}

/* Of a round: ranks may be in the next while the last is still dealt out. */
static unsigned char *get_info(const wefti_seat *seat, int round)
{
    return seat->info + (size_t)(round % 2) * WEFTI_INFO_BYTES;
}

bool wefti_roster_keep_info(wefti_roster *roster, int rank,
                            const wefti_oob_message_info *info)
{
    wefti_seat *seat = &roster->seats[rank];
    if (!roster->parted || seat->info_came || (int)info->rank != rank ||
        (int)info->round != roster->info_round) {
        return false;
    }
    memcpy(get_info(seat, roster->info_round), info->bytes, info->used_bytes);
    seat->info_bytes[roster->info_round % 2] = info->used_bytes;
    seat->info_came = true;
    roster->info_count++;
    return true;
}

/*
 * The infos for rank of the round that is dealt out, as far as its connection
 * takes them now: of all ranks together, no more than DEAL_BYTES for each wait
 * here. Sent many at a time, as they are small.
 */
static weft_status deal_to(wefti_roster *roster, int rank)
{
    wefti_seat *seat = &roster->seats[rank];
    wefti_oob_connection *connection = &seat->connection;
    const int round = roster->info_round - 1;
    wefti_oob_message message = {.kind = WEFTI_OOB_INFO,
                                 .as.info.round = (uint32_t)round};
    wefti_oob_message_info *info = &message.as.info;
    weft_status status = WEFT_OK;
    while (seat->dealt < roster->nranks && status == WEFT_OK &&
           !wefti_oob_connection_has_output(connection)) {
        while (seat->dealt < roster->nranks && status == WEFT_OK &&
               connection->out_bytes < DEAL_BYTES) {
            const int other = seat->dealt++;
            wefti_seat *from = &roster->seats[other];
            if (from->leader == seat->leader ||
                (round == 0 && from->leader != other)) {
                continue;
            }
            info->rank = (uint32_t)other;
            info->used_bytes = (uint32_t)from->info_bytes[round % 2];
            memcpy(info->bytes, get_info(from, round), info->used_bytes);
            status = wefti_oob_connection_queue(connection, &message);
        }
        wefti_oob_connection_flush(connection);
    }
    roster->dealing -= seat->dealt == roster->nranks;
    return status;
}

weft_status wefti_roster_send_infos(wefti_roster *roster)
{
    weft_status status = WEFT_OK;
    if (roster->parted && !roster->dealing &&
        roster->info_count == roster->nranks) {
        for (int rank = 0; rank < roster->nranks; rank++) {
            roster->seats[rank].info_came = false;
            roster->seats[rank].dealt = 0;
        }
        roster->dealing = roster->nranks;
        roster->info_count = 0;
        roster->info_round++;
    }
    for (int rank = 0;
         rank < roster->nranks && roster->dealing && status == WEFT_OK;
         rank++) {
        if (roster->seats[rank].dealt < roster->nranks) {
            status = deal_to(roster, rank);
        }
    }
    return status;
}
