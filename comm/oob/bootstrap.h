/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/bootstrap.h - bring the ranks of a job together, once.
 *
 *   rank r                                   server (thread of one process)
 *     | TCP, loopback unless set otherwise      |
 *     |---- hello: magic, version, nonce ------->|
 *     |<--- challenge: version, nonce -----------|
 *     |---- join: rank, nranks, pid, MAC ------->|   ... until all have joined
 *     |<--- welcome: all members, MAC -----------|
 *     |     (the lowest rank of each domain hands its memory to the others
 *     |      of the domain: a token over a unix socket, a descriptor back)
 *     |<--> infos, if there are several domains -|
 *     |---- report: I have built mine, or why not|   ... until all have
 * reported
 *     |<--- verdict: the same for all -----------|
 *
 * Ranks are of one domain if they run on the same kernel, in the same network
 * and process namespaces (and WEFT_DOMAIN does not part them): then they can
 * map the same memory and watch each other's processes.
 *
 * The server is a thread of rank 0's process (environment) or of the process
 * that made the unique id. It accepts only holders of the secret, bounds every
 * message, serves unauthenticated peers without blocking members, and ends when
 * all have joined or the time is over; then nothing listens any more.
 */
#ifndef COMM_OOB_BOOTSTRAP_H
#define COMM_OOB_BOOTSTRAP_H

#include "comm/oob/join_request.h"

/*
 * wefti_bootstrap_join - join the job, with all other ranks.
 *
 * Returns     OK | ERR_INVALID | ERR_BOOTSTRAP | ERR_TIMEOUT | ERR_SYSTEM |
 *             ERR_NO_MEMORY; the text says which rank is missing, has died, or
 *             differs in what.
 * Threads     any; several ranks of one process at once.
 * Blocks      at most timeout_ms, and a second more for a verdict that is due.
 */
WEFT_NODISCARD weft_status wefti_bootstrap_join(
    const wefti_bootstrap_request *request, wefti_membership *membership_out);

#endif
