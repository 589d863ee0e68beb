/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/bootstrap.h - bring the ranks of a job together, once.
 *
 *   rank r                                   server (thread of one process)
 *     | TCP, loopback unless told otherwise      |
 *     |---- hello: magic, version, nonce ------->|
 *     |<--- challenge: version, nonce -----------|
 *     |---- join: rank, nranks, pid, MAC ------->|   ... until all have joined
 *     |<--- welcome: all members, MAC -----------|
 *     |     (the lowest rank of each domain hands its memory to the others
 *     |      of the domain: a token over a unix socket, a descriptor back)
 *     |<--> infos, if there are several domains -|
 *     |---- report: I have built mine, or why not|   ... until all have said so
 *     |<--- verdict: the same for all -----------|
 *
 * Ranks are of one domain if they run on the same kernel, in the same network
 * and process namespaces (and WEFT_DOMAIN does not part them): then they can
 * map the same memory and watch each other's processes.
 *
 * The server is a thread of rank 0's process (environment) or of the process
 * that made the unique id. It accepts only holders of the secret, bounds every
 * message, serves unauthenticated peers without blocking members, and ends when
 * all have met or the time is over; then nothing listens any more.
 */
#ifndef COMM_OOB_BOOTSTRAP_H
#define COMM_OOB_BOOTSTRAP_H

#include "weft/comm.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    WEFTI_TUNING_BYTES = 256,
    WEFTI_JOB_KEY_BYTES = 32,
    WEFTI_INFO_BYTES = 640,
    WEFTI_INFO_ROUNDS = 2
};

typedef struct wefti_membership wefti_membership;

/*
 * How ranks of different domains learn to reach each other, if there are any:
 * in every round each rank makes a info, and takes those of ranks of other
 * domains (in round 0 only of each domain's lowest rank). What make or take
 * refuses ends the bootstrap, for all with its text.
 */
typedef struct wefti_info_exchange {
    weft_status (*make)(void *context, const wefti_membership *membership,
                        int round, unsigned char info_out[WEFTI_INFO_BYTES],
                        size_t *info_bytes_out);
    weft_status (*take)(void *context, int round, int rank,
                        const unsigned char *info, size_t info_bytes);
} wefti_info_exchange;

/*
 * id           NULL: from WEFT_RENDEZVOUS, WEFT_SECRET or WEFT_SECRET_FILE.
 * rank         with id NULL and nranks 0: from WEFT_RANK, WEFT_NRANKS.
 * tuning       opaque; everybody receives rank 0's.
 * refused      OK; or why this rank will not take part, whatever the others
 *              bring: it meets them only to tell them refused_text (borrowed),
 *              and prepare is not called.
 * stay_ms      if not 0, a member's time limit in place of timeout_ms, which
 *              then is for becoming one.
 * foreign_out  set where the server that answers has another secret; NULL: not
 *              asked for.
 * judged_out   set where a server that has the secret gave a verdict; NULL: not
 *              asked for.
 * warn_ms      whoever waits logs (warn) which ranks are missing.
 * timeout_ms   and gives up.
 * prepare      what has to succeed on every rank before any rank returns OK:
 *              called once this rank holds its membership (borrowed); where
 *              one fails, all get its status and its text. NULL: nothing.
 * exchange     before prepare; make NULL: all ranks must be of one domain.
 * context      of prepare, make and take.
 */
typedef struct wefti_bootstrap_request {
    const weft_unique_id *id;
    int rank;
    int nranks;
    unsigned char tuning[WEFTI_TUNING_BYTES];
    weft_status refused;
    const char *refused_text;
    int64_t stay_ms;
    bool *foreign_out;
    bool *judged_out;
    int64_t warn_ms;
    int64_t timeout_ms;
    weft_status (*prepare)(void *context, const wefti_membership *membership);
    wefti_info_exchange exchange;
    void *context;
} wefti_bootstrap_request;

/*
 * wefti_bootstrap_refuse - request as a rank makes it that cannot take part,
 * to tell the others why; reason is borrowed. It looks for a server for a
 * moment only: rank 0 may lack the same.
 */
wefti_bootstrap_request
wefti_bootstrap_refuse(const wefti_bootstrap_request *request,
                       weft_status status, const char *reason);

/*
 * A member of the job. domain: the lowest rank that it shares memory with;
 * host: the lowest rank on its host. pid counts within one domain only. pidfd:
 * readable once the process has ended; -1 for members of this process and of
 * other domains. Owned by the membership.
 */
typedef struct wefti_member {
    pid_t pid;
    int pidfd;
    int domain;
    int host;
} wefti_member;

/*
 * memory_fd    anonymous memory shared by all members of this rank's domain,
 *              empty: the caller sizes it. Owned, close-on-exec.
 * job_key      random, the same on all members, never sent in clear text.
 */
struct wefti_membership {
    int rank;
    int nranks;
    wefti_member *members; /* [nranks] */
    int memory_fd;
    unsigned char tuning[WEFTI_TUNING_BYTES];
    unsigned char job_key[WEFTI_JOB_KEY_BYTES];
};

/* Whether other shares this rank's memory. */
static inline bool wefti_membership_is_near(const wefti_membership *membership,
                                            int other)
{
    return membership->members[other].domain ==
           membership->members[membership->rank].domain;
}

/*
 * wefti_bootstrap_join - meet all other ranks.
 *
 * Returns     OK | ERR_INVALID | ERR_BOOTSTRAP | ERR_TIMEOUT | ERR_SYSTEM |
 *             ERR_NO_MEMORY; the text says which rank is missing, has died, or
 *             differs in what.
 * Threads     any; several ranks of one process at once.
 * Blocks      at most timeout_ms, and a second more for a verdict that is due.
 */
WEFT_NODISCARD weft_status wefti_bootstrap_join(
    const wefti_bootstrap_request *request, wefti_membership *membership_out);
void wefti_membership_fini(wefti_membership *membership);

#endif
