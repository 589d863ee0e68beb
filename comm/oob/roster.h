/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/roster.h - the ranks of a job as its server sees them: a seat
 * each, taken or not.
 */
#ifndef COMM_OOB_ROSTER_H
#define COMM_OOB_ROSTER_H

#include "comm/oob/connection.h"

/*
 * pid          0: the seat is free, and its connection has no connection
 * complete     has confirmed that it holds every descriptor
 * leader, host the lowest ranks of its domain and host, and of its group on
 * each level inside the domain, from the welcome on info         of the current
 * round and of the one before; used bytes of each; whether the current one has
 * come dealt        of the infos that go to it, those from ranks below have
 * gone warn_at_ns   when it is sent again which ranks it waits for; the wait
 * doubles
 */
typedef struct wefti_seat {
    wefti_oob_connection connection;
    uint32_t pid;
    bool complete;
    wefti_place place;
    int leader, host, inner[WEFTI_PLACE_LEVELS];
    unsigned char socket_name[WEFTI_SOCKET_NAME_BYTES];
    unsigned char *info; /* [2][WEFTI_INFO_BYTES], with several domains */
    size_t info_bytes[2];
    bool info_came;
    int dealt;
    int64_t warn_at_ns, warn_wait_ns;
    int64_t timeout_at_ns, timeout_ms;
} wefti_seat;

/* nranks 0: not known yet. */
typedef struct wefti_roster {
    int nranks;
    int joined_count, complete_count;
    int info_round, info_count; /* the round, and how many came in it */
    int dealing; /* how many ranks still wait for the infos of the last one */
    bool parted; /* several domains */
    wefti_seat *seats; /* [nranks] */
    bool *flags;       /* [nranks], scratch */
} wefti_roster;

/* Returns     OK | ERR_NO_MEMORY. */
WEFT_NODISCARD weft_status wefti_roster_init(wefti_roster *roster, int nranks);
void wefti_roster_fini(wefti_roster *roster);

/*
 * wefti_roster_missing - which ranks have not joined, or, once all have, have
 * not completed: "rank 3 has not joined (ranks 0 1 2 are here)".
 */
void wefti_roster_missing(const wefti_roster *roster, char *text_out,
                          size_t text_bytes);

/*
 * wefti_roster_send_verdict - the verdict to all, as far as they can be
 * reached; the rank that it is about may get it too.
 */
void wefti_roster_send_verdict(wefti_roster *roster, weft_status status,
                               const char *text);

/*
 * wefti_roster_welcome - all have joined: to each, the members and where the
 * memory of its domain can be fetched.
 *
 * Returns     OK | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_roster_welcome(
    wefti_roster *roster, const unsigned char tuning[WEFTI_TUNING_BYTES],
    const unsigned char job_key[WEFTI_JOB_KEY_BYTES]);

/* The lowest rank of rank's domain. Not before the welcome. */
int wefti_roster_leader(const wefti_roster *roster, int rank);

/* False if it is not the info that is due from rank. */
bool wefti_roster_keep_info(wefti_roster *roster, int rank,
                            const wefti_oob_message_info *info);

/*
 * wefti_roster_send_infos - once all infos of a round are here, to each rank
 * those of other domains, in round 0 only their leaders': as much as its
 * connection takes now. To be called again with news.
 *
 * Returns     OK | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_roster_send_infos(wefti_roster *roster);

#endif
