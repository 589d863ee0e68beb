/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/control/channel.h - the control channel between domains: which ranks
 * have died there, whether a host still answers, and what every domain must
 * know.
 *
 * The lowest rank of each domain that lives leads it; leaders are meshed. A
 * leader sees the processes of its domain end, and reports it; a leader's own
 * end closes its connections, and the others then connect to the next rank of
 * its domain. A rank that leaves tells its own leader first, which passes it
 * on, and a leader the others; what refuses a connection and has not said so,
 * its domain is asked about before it counts as dead. Any rank that has a
 * notice for a domain connects to a rank of it, and to another one if that does
 * not acknowledge it. While all is well nothing is sent.
 *
 * One thread per rank, which sleeps; only ranks of jobs of several domains have
 * it.
 */
#ifndef COMM_CONTROL_CHANNEL_H
#define COMM_CONTROL_CHANNEL_H

#include "comm/control/peer_probe.h"
#include "comm/core/core.h"

/*
 * wefti_control_open - listen on address (network order), while ranks join.
 *
 * Returns     OK | ERR_NO_MEMORY | ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status
wefti_control_open(wefti_engine *engine, const wefti_membership *membership,
                   uint32_t address, wefti_control **control_out);

/* Where rank listens, as packed (WEFTI_ADDRESS_BYTES): this one's from open
 * on, those of other domains from their infos, written here before start. */
unsigned char *wefti_control_get_address(wefti_control *control, int rank);

/*
 * wefti_control_start - its thread, which does nothing yet, and may be that of
 * other jobs (comm/control/channel_crew.h).
 *
 * Returns     OK | ERR_NO_MEMORY | ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status wefti_control_start(wefti_control *control,
                                               uint64_t job);

/* The ranks are connected, and the engine has its members and its memory. */
void wefti_control_activate(wefti_control *control, int64_t timeout_ns);

/* Lets go out what was posted, then tells who is to know that this rank leaves:
 * for a second each at most. NULL is legal. */
void wefti_control_close(wefti_control *control);

/*
 * wefti_control_notify - sends note until some rank of comm in peer's domain
 * has acknowledged it. control NULL: nothing happens. Without memory the note
 * is lost, and logged.
 *
 * Threads     any, with or without the engine's lock.
 */
void wefti_control_notify(weft_comm *comm, int peer, const wefti_note *note);

/* The same for each other domain of comm. */
void wefti_control_notify_all(weft_comm *comm, const wefti_note *note);

/* Ask whether peer's host still answers; its outcome shows. */
void wefti_control_ping(weft_comm *comm, int peer);

/* What is known of rank of the job. Threads: any. */
wefti_rank_outcome wefti_control_get_outcome(const wefti_control *control,
                                             int rank);

#endif
