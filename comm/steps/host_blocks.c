/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/host_blocks.c - blocks behind each other, in the order in which
 * rounds bring them.
 *
 * Where the area is stands in the counts of the leader for the ranks of its
 * host; entry.met publishes it and the blocks (comm/steps/meeting.c).
 */
#include "comm/steps/host_blocks.h"

#include "base/check.h"
#include "comm/net/rounds.h"
#include "comm/pattern/dissemination.h"
#include "kernels/wire/reduce.h"

#include <string.h>

bool wefti_host_blocks_are_sums(const wefti_op *op)
{
    return wefti_host_blocks_carry(op) &&
           wefti_dissemination_sums(&op->problem);
}

/* Where no two ranks share memory, each is a host. */
static int count_hosts(const weft_comm *comm)
{
    return comm->grouping ? comm->grouping->host_count : comm->nranks;
}

static int host_of(const weft_comm *comm, int rank)
{
    return comm->grouping ? comm->grouping->hosts[rank] : rank;
}

static size_t count_ranks(const weft_comm *comm, int host)
{
    return comm->grouping ? (size_t)wefti_grouping_ranks(comm->grouping, host)
                          : 1;
}

/* How many hosts before this one that is, going round. */
static int distance_of(const weft_comm *comm, int host)
{
    const int behind = host_of(comm, comm->rank) - host;
    return behind < 0 ? behind + count_hosts(comm) : behind;
}

static size_t shown_bytes(const weft_comm *comm, const wefti_op *op)
{
    return wefti_oneshot_bytes(comm->nranks, &op->desc, &op->role);
}

/* Bytes of the blocks of so many hosts, this one and those before it. */
static size_t count_bytes(const weft_comm *comm, const wefti_op *op, int blocks)
{
    const int hosts = count_hosts(comm);
    size_t payloads = 0;
    if (wefti_host_blocks_are_sums(op)) {
        return (size_t)blocks * shown_bytes(comm, op);
    }
    for (int i = 0; i < blocks; i++) {
        const int host = host_of(comm, comm->rank) - i;
        payloads += count_ranks(comm, host < 0 ? host + hosts : host);
    }
    return payloads * shown_bytes(comm, op);
}

/* How many blocks a leader has before a round, and gets or sends in it. */
static int blocks_before(int round)
{
    return 1 << round;
}

static int blocks_in(const weft_comm *comm, int round)
{
    const int left = count_hosts(comm) - blocks_before(round);
    return left < blocks_before(round) ? left : blocks_before(round);
}

static uint64_t *place_of(const weft_comm *comm, const wefti_op *op, int reader)
{
    return wefti_shared_get_count(
        &comm->fabric.shared, comm->fabric.rounds->leader, reader, op->number);
}

static unsigned char *blocks_of(const weft_comm *comm, const wefti_op *op)
{
    return comm->fabric.shared.regions[comm->fabric.rounds->leader] +
           *place_of(comm, op, comm->rank);
}

void wefti_host_blocks_gather(weft_comm *comm, const wefti_op *op,
                              const void *const *payloads, unsigned char *area)
{
    const wefti_rounds *rounds = comm->fabric.rounds;
    const size_t bytes = shown_bytes(comm, op);
    for (int i = 0; i < rounds->local_count; i++) {
        *place_of(comm, op, rounds->locals[i]) =
            (uint64_t)(area - comm->fabric.shared.regions[comm->rank]);
    }
    if (wefti_host_blocks_are_sums(op)) {
        wefti_reduce_part(area, payloads, (size_t)rounds->local_count,
                          (size_t)comm->nranks, bytes / op->role.elem_bytes,
                          op->desc.dtype,
                          wefti_redop_inner(op->desc.dtype, op->desc.redop));
        return;
    }
    for (int i = 0; i < rounds->local_count && bytes; i++) {
        memcpy(area + (size_t)i * bytes, payloads[i], bytes);
    }
}

const void *wefti_host_blocks_offer(const weft_comm *comm, const wefti_op *op,
                                    int round, size_t *bytes_out)
{
    *bytes_out = count_bytes(comm, op, blocks_in(comm, round));
    WEFTI_ASSERT(*bytes_out <= WEFTI_PAYLOAD_BYTES);
    return blocks_of(comm, op);
}

void wefti_host_blocks_take(weft_comm *comm, const wefti_op *op, int round)
{
    wefti_entry *entry = wefti_shared_get_entry(
        &comm->fabric.shared, comm->fabric.rounds->from[round], op->number);
    const int before = blocks_before(round);
    const size_t begin = count_bytes(comm, op, before);
    const size_t end = count_bytes(comm, op, before + blocks_in(comm, round));
    memcpy(blocks_of(comm, op) + begin, wefti_entry_payload(entry, end - begin),
           end - begin);
}

const unsigned char *wefti_host_blocks_find(const weft_comm *comm,
                                            const wefti_op *op, int rank)
{
    const int host = host_of(comm, rank);
    const size_t before = count_bytes(comm, op, distance_of(comm, host));
    const int place = comm->grouping ? comm->grouping->places[rank] -
                                           comm->grouping->begins[host]
                                     : 0;
    return blocks_of(comm, op) + before + (size_t)place * shown_bytes(comm, op);
}

void wefti_host_blocks_sum(const weft_comm *comm, wefti_op *op, void *result,
                           size_t first_byte)
{
    const void **sources = op->lists[0].sources;
    const int hosts = count_hosts(comm);
    for (int host = 0; host < hosts; host++) {
        sources[host] = blocks_of(comm, op) + first_byte +
                        count_bytes(comm, op, distance_of(comm, host));
    }
    wefti_reduce_part(result, sources, (size_t)hosts, (size_t)comm->nranks,
                      op->desc.count, op->desc.dtype,
                      wefti_redop_outer(op->desc.dtype, op->desc.redop));
}
