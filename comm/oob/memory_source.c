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
    memory_source->members = NULL;
    wefti_oob_listener_init(&memory_source->listener, -1, NULL);
    wefti_endpoint own;
    randombytes_buf(name_out, WEFTI_SOCKET_NAME_BYTES);
    wefti_endpoint_unix(name_out, &own);
    return wefti_endpoint_listen(&own, &memory_source->listener.fd);
}

void wefti_memory_source_close(wefti_memory_source *memory_source)
{
    wefti_oob_listener_close(&memory_source->listener);
    memory_source->members = NULL;
}

weft_status wefti_memory_source_start(wefti_memory_source *memory_source,
                                      wefti_membership *members)
{
    memory_source->members = members;
    memory_source->memory_fd = memfd_create("weft", MFD_CLOEXEC);
    members->memory_fd = memory_source->memory_fd;
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
    const wefti_membership *members = memory_source->members;
    if (rank >= members->nranks ||
        getsockopt(connection->fd, SOL_SOCKET, SO_PEERCRED, &peer,
                   &peer_bytes) != 0) {
        return;
    }
    wefti_tokens tokens = wefti_handover_tokens(members->job_key, claim->rank);
    if (sodium_memcmp(claim->token, tokens.claim, WEFTI_TOKEN_BYTES) == 0) {
        bool right = (peer.uid == geteuid() || peer.uid == 0) &&
                     peer.pid == members->members[rank].pid &&
                     wefti_membership_is_local(members, rank);
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
