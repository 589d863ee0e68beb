/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/bootstrap/giver.c - judging claims. A claim counts only with its rank's
 * token, from the process that joined as that rank, of the same user or root.
 */
#include "comm/bootstrap/giver.h"

#include "base/clock.h"
#include "base/error.h"
#include "comm/bootstrap/handover.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

weft_status wefti_giver_open(wefti_giver *giver,
                             unsigned char name_out[WEFTI_SOCKET_NAME_BYTES])
{
    giver->unix_fd = -1;
    giver->memory_fd = -1;
    giver->refused = -1;
    giver->pids = NULL;
    giver->domains = NULL;
    wefti_strangers_init(&giver->strangers);
    return wefti_handover_listen(name_out, &giver->unix_fd);
}

void wefti_giver_close(wefti_giver *giver)
{
    if (giver->unix_fd >= 0) {
        /* A copy that a forked child holds must not listen on either. */
        (void)shutdown(giver->unix_fd, SHUT_RDWR);
        close(giver->unix_fd);
        giver->unix_fd = -1;
    }
    wefti_strangers_fini(&giver->strangers);
    free(giver->pids);
    free(giver->domains);
    giver->pids = NULL;
    giver->domains = NULL;
}

weft_status wefti_giver_start(wefti_giver *giver, int rank,
                              const unsigned char job_key[WEFTI_JOB_KEY_BYTES],
                              const wefti_message_welcome *welcome,
                              int *memory_fd_out)
{
    const size_t ranks = welcome->nranks;
    giver->pids = malloc(ranks * sizeof(*giver->pids));
    giver->domains = malloc(ranks * sizeof(*giver->domains));
    if (!giver->pids || !giver->domains) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %zu members",
                           ranks);
    }
    memcpy(giver->pids, welcome->pids, ranks * sizeof(*giver->pids));
    memcpy(giver->domains, welcome->domains, ranks * sizeof(*giver->domains));
    giver->rank = rank;
    giver->nranks = (int)welcome->nranks;
    giver->job_key = job_key;
    giver->memory_fd = memfd_create("weft", MFD_CLOEXEC);
    *memory_fd_out = giver->memory_fd;
    return giver->memory_fd < 0
               ? wefti_error_system("memory of the job (memfd_create)")
               : WEFT_OK;
}

static void judge(wefti_giver *giver, int fd, const wefti_message_claim *claim)
{
    const int rank = (int)claim->rank;
    struct ucred peer = {0};
    socklen_t peer_bytes = sizeof(peer);
    if (rank >= giver->nranks ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_bytes) != 0) {
        return;
    }
    wefti_tokens tokens = wefti_handover_tokens(giver->job_key, claim->rank);
    if (sodium_memcmp(claim->token, tokens.claim, WEFTI_TOKEN_BYTES) == 0) {
        bool right = (peer.uid == geteuid() || peer.uid == 0) &&
                     (uint32_t)peer.pid == giver->pids[rank] &&
                     giver->domains[rank] == giver->domains[giver->rank];
        if (right) {
            /* If the answer is lost, the member comes again. */
            (void)wefti_handover_give(fd, claim->rank, &tokens,
                                      giver->memory_fd);
        } else if (giver->refused < 0) {
            giver->refused = rank;
        }
    }
    sodium_memzero(&tokens, sizeof(tokens));
}

static void hear(wefti_giver *giver, wefti_link *link)
{
    const unsigned char *frame;
    size_t frame_bytes;
    wefti_message message;
    wefti_link_receive(link);
    wefti_arrival arrival = wefti_link_next(
        link, WEFTI_KIND_BIT(WEFTI_MESSAGE_CLAIM), &frame, &frame_bytes);
    if (arrival == WEFTI_ARRIVAL_NONE) {
        return;
    }
    if (arrival == WEFTI_ARRIVAL_FRAME &&
        wefti_message_decode(frame, frame_bytes, &message)) {
        judge(giver, link->fd, &message.as.claim);
    }
    wefti_link_fini(link);
}

void wefti_giver_watch(const wefti_giver *giver,
                       struct pollfd polled_out[WEFTI_GIVER_POLLED])
{
    const bool gives = giver->memory_fd >= 0;
    polled_out[0] =
        (struct pollfd){.fd = gives ? giver->unix_fd : -1, .events = POLLIN};
    for (int i = 0; i < WEFTI_STRANGERS_MOST; i++) {
        polled_out[1 + i] = (struct pollfd){
            .fd = gives ? giver->strangers.places[i].link.fd : -1,
            .events = POLLIN};
    }
}

void wefti_giver_attend(wefti_giver *giver,
                        const struct pollfd polled[WEFTI_GIVER_POLLED])
{
    for (int i = 0; i < WEFTI_STRANGERS_MOST; i++) {
        wefti_link *link = &giver->strangers.places[i].link;
        if (polled[1 + i].revents && link->fd == polled[1 + i].fd) {
            hear(giver, link);
        }
    }
    if (polled[0].revents && giver->unix_fd >= 0) {
        wefti_strangers_accept(&giver->strangers, giver->unix_fd, true);
    }
    wefti_strangers_expire(&giver->strangers, wefti_clock_ns());
}
