/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/memory_source.c - judging claims. A claim counts only with its
 * rank's token, from the process that joined as that rank, of the same user or
 * root.
 */
#include "comm/oob/memory_source.h"

#include "base/error.h"
#include "comm/oob/handover.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

weft_status
wefti_memory_source_open(wefti_memory_source *memory_source,
                         unsigned char name_out[WEFTI_SOCKET_NAME_BYTES])
{
    memory_source->memory_fd = -1;
    memory_source->refused = -1;
    memory_source->pids = NULL;
    memory_source->domains = NULL;
    wefti_oob_listener_init(&memory_source->listener, -1, NULL);
    wefti_endpoint own;
    randombytes_buf(name_out, WEFTI_SOCKET_NAME_BYTES);
    wefti_endpoint_unix(name_out, &own);
    return wefti_endpoint_listen(&own, &memory_source->listener.fd);
}

void wefti_memory_source_close(wefti_memory_source *memory_source)
{
    wefti_oob_listener_close(&memory_source->listener);
    free(memory_source->pids);
    free(memory_source->domains);
    memory_source->pids = NULL;
    memory_source->domains = NULL;
}

weft_status
wefti_memory_source_start(wefti_memory_source *memory_source, int rank,
                          const unsigned char job_key[WEFTI_JOB_KEY_BYTES],
                          const wefti_oob_message_welcome *welcome,
                          int *memory_fd_out)
{
    const size_t ranks = welcome->nranks;
    memory_source->pids = malloc(ranks * sizeof(*memory_source->pids));
    memory_source->domains = malloc(ranks * sizeof(*memory_source->domains));
    if (!memory_source->pids || !memory_source->domains) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %zu members",
                           ranks);
    }
    memcpy(memory_source->pids, welcome->pids,
           ranks * sizeof(*memory_source->pids));
    memcpy(memory_source->domains, welcome->domains,
           ranks * sizeof(*memory_source->domains));
    memory_source->rank = rank;
    memory_source->nranks = (int)welcome->nranks;
    memory_source->job_key = job_key;
    memory_source->memory_fd = memfd_create("weft", MFD_CLOEXEC);
    *memory_fd_out = memory_source->memory_fd;
    return memory_source->memory_fd < 0
               ? wefti_error_system("memory of the job (memfd_create)")
               : WEFT_OK;
}

static void judge(wefti_memory_source *memory_source,
                  wefti_oob_connection *connection,
                  const wefti_oob_message_claim *claim)
{
    const int rank = (int)claim->rank;
    struct ucred peer = {0};
    socklen_t peer_bytes = sizeof(peer);
    if (rank >= memory_source->nranks ||
        getsockopt(connection->fd, SOL_SOCKET, SO_PEERCRED, &peer,
                   &peer_bytes) != 0) {
        return;
    }
    wefti_tokens tokens =
        wefti_handover_tokens(memory_source->job_key, claim->rank);
    if (sodium_memcmp(claim->token, tokens.claim, WEFTI_TOKEN_BYTES) == 0) {
        bool right = (peer.uid == geteuid() || peer.uid == 0) &&
                     (uint32_t)peer.pid == memory_source->pids[rank] &&
                     memory_source->domains[rank] ==
                         memory_source->domains[memory_source->rank];
        if (right) {
            /* If the answer is lost, the member comes again. */
            (void)wefti_handover_send(connection, claim->rank, &tokens,
                                      memory_source->memory_fd);
        } else if (memory_source->refused < 0) {
            memory_source->refused = rank;
        }
    }
    sodium_memzero(&tokens, sizeof(tokens));
}

static void read_claim(void *context, wefti_oob_connection *peer)
{
    wefti_oob_message message;
    wefti_oob_arrival arrival = wefti_oob_connection_next(
        peer, WEFTI_KIND_BIT(WEFTI_OOB_CLAIM), &message);
    if (arrival == WEFTI_OOB_ARRIVAL_NONE) {
        return;
    }
    if (arrival == WEFTI_OOB_ARRIVAL_MESSAGE) {
        judge(context, peer, &message.as.claim);
    }
    wefti_oob_connection_fini(peer);
}

nfds_t
wefti_memory_source_watch(const wefti_memory_source *memory_source,
                          struct pollfd polled_out[WEFTI_OOB_LISTENER_POLLED])
{
    return memory_source->memory_fd >= 0
               ? wefti_oob_listener_watch(&memory_source->listener, polled_out)
               : 0;
}

void wefti_memory_source_serve(wefti_memory_source *memory_source,
                               const struct pollfd *polled, nfds_t count)
{
    wefti_oob_listener_serve(&memory_source->listener, polled, count,
                             read_claim, memory_source);
}
