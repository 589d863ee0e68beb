/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/control/elsewhere.c - one record per rank and communicator, in its page
 * there; renewed while the wait lasts, as those of comm/control/stuck.c are.
 */
#include "comm/control/elsewhere.h"

#include "base/clock.h"
#include "comm/fabric/remote.h"

#include <stdio.h>
#include <string.h>

enum { RENEW_NS = 100000000 };

static wefti_elsewhere *record_of(weft_comm *comm, int rank)
{
    return &wefti_shared_get_page(&comm->fabric.shared, rank)->elsewhere;
}

static int find_member(const weft_comm *comm, int world_rank)
{
    for (int rank = 0; rank < comm->nranks; rank++) {
        if (comm->peers[rank].world_rank == world_rank) {
            return rank;
        }
    }
    return -1;
}

static void write_name(wefti_elsewhere *record, const char name[32])
{
    for (int i = 0; i < WEFTI_ELSEWHERE_WORDS; i++) {
        uint64_t word;
        memcpy(&word, name + i * (int)sizeof(word), sizeof(word));
        atomic_store(&record->name[i], word);
    }
}

void wefti_elsewhere_note(weft_comm *comm, const wefti_op *op, int peer,
                          int64_t now_ns, bool far)
{
    if (now_ns - comm->elsewhere_ns < RENEW_NS) {
        return;
    }
    comm->elsewhere_ns = now_ns;
    for (weft_comm *other = comm->engine->comms; other; other = other->next) {
        if (other == comm || other->failed != WEFT_OK) {
            continue;
        }
        wefti_elsewhere *own = record_of(other, other->rank);
        int member = find_member(other, comm->peers[peer].world_rank);
        atomic_store(&own->number, op->number);
        atomic_store(&own->what, (uint64_t)op->desc.collective);
        atomic_store(&own->peer, (uint64_t)(member + 1));
        write_name(own, comm->name);
        atomic_store(&own->seen_ns, now_ns);
        if (far) {
            wefti_remote_tell_elsewhere(&other->fabric);
        }
    }
}

wefti_elsewhere_found wefti_elsewhere_get(weft_comm *comm, int rank, char *text,
                                          size_t text_bytes, int *peer_out)
{
    const wefti_elsewhere *record = record_of(comm, rank);
    int64_t seen_ns = atomic_load(&record->seen_ns);
    if (!seen_ns || wefti_clock_coarse_ns() - seen_ns > WEFTI_FRESH_NS) {
        return WEFTI_ELSEWHERE_NO;
    }
    if (text) {
        char name[sizeof(comm->name)];
        for (int i = 0; i < WEFTI_ELSEWHERE_WORDS; i++) {
            uint64_t word = atomic_load(&record->name[i]);
            memcpy(name + i * (int)sizeof(word), &word, sizeof(word));
        }
        name[sizeof(name) - 1] = 0;
        snprintf(
            text, text_bytes, "%s #%llu on \"%s\"",
            weft_collective_text((weft_collective)atomic_load(&record->what)),
            (unsigned long long)atomic_load(&record->number), name);
    }
    const uint64_t peer = atomic_load(&record->peer);
    if (peer == 0 || peer > (uint64_t)comm->nranks) {
        return WEFTI_ELSEWHERE_STRANGE;
    }
    *peer_out = (int)peer - 1;
    return WEFTI_ELSEWHERE_MEMBER;
}
