/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/staging_job.c - counts, sizes and contents of one case.
 */
#include "tests/comm/staging_job.h"

#include "tests/kernels/reduce_reference.h"
#include "tests/seed.h"

#include <string.h>

/* From rank to peer go so many, of a v form. */
static size_t varied(size_t count, int rank, int peer)
{
    return count + (size_t)((rank + 2 * peer) % 3) * (count > 0);
}

static size_t sum(const size_t *counts, int nranks)
{
    size_t all = 0;
    for (int p = 0; p < nranks; p++) {
        all += counts[p];
    }
    return all;
}

static void plan_varied(staging_job *job, size_t count, int rank, int nranks)
{
    weft_op *op = &job->op;
    const bool is_root = rank == op->root;
    size_t send = 0, recv = 0;
    for (int p = 0; p < nranks; p++) {
        job->counts[p] = op->collective == WEFT_COLLECTIVE_ALLTOALLV
                             ? varied(count, rank, p)
                             : varied(count, p, 0);
        job->from[p] = varied(count, p, rank);
    }
    const size_t own = job->counts[rank];
    const size_t all = sum(job->counts, nranks);
    op->count = own;
    job->in_place_at = sum(job->counts, rank);
    switch (op->collective) {
    case WEFT_COLLECTIVE_ALLTOALLV:
        op->send_counts = job->counts;
        op->recv_counts = job->from;
        send = all;
        recv = sum(job->from, nranks);
        break;
    case WEFT_COLLECTIVE_ALLGATHERV:
        op->recv_counts = job->counts;
        send = own;
        recv = all;
        break;
    case WEFT_COLLECTIVE_GATHERV:
        op->recv_counts = is_root ? job->counts : NULL;
        send = own;
        recv = is_root ? all : 0;
        job->in_place = job->in_place && is_root;
        break;
    case WEFT_COLLECTIVE_SCATTERV:
        op->send_counts = is_root ? job->counts : NULL;
        send = is_root ? all : 0;
        recv = own;
        job->in_place = job->in_place && is_root;
        break;
    default: /* REDUCESCATTERV */
        op->send_counts = job->counts;
        send = all;
        recv = own;
        break;
    }
    job->send_bytes = send;
    job->recv_bytes = recv;
}

static void plan_plain(staging_job *job, size_t count, int rank, int nranks)
{
    weft_op *op = &job->op;
    const size_t all = count * (size_t)nranks;
    const size_t own = count * (size_t)rank;
    const bool is_root = rank == op->root;
    job->send_bytes = job->recv_bytes = op->count = count;
    switch (op->collective) {
    case WEFT_COLLECTIVE_REDUCE:
        job->recv_bytes = is_root ? count : 0;
        job->in_place = job->in_place && is_root;
        break;
    case WEFT_COLLECTIVE_BROADCAST:
        job->send_bytes = is_root ? count : 0;
        job->in_place = job->in_place && is_root;
        break;
    case WEFT_COLLECTIVE_ALLGATHER:
        job->recv_bytes = all;
        job->in_place_at = own;
        break;
    case WEFT_COLLECTIVE_REDUCESCATTER:
        job->send_bytes = all;
        job->in_place_at = own;
        break;
    case WEFT_COLLECTIVE_ALLTOALL:
        job->send_bytes = job->recv_bytes = all;
        break;
    case WEFT_COLLECTIVE_GATHER:
        job->recv_bytes = is_root ? all : 0;
        job->in_place_at = own;
        job->in_place = job->in_place && is_root;
        break;
    case WEFT_COLLECTIVE_SCATTER:
        job->send_bytes = is_root ? all : 0;
        job->in_place_at = own;
        job->in_place = job->in_place && is_root;
        break;
    default:
        break;
    }
}

void staging_job_init(staging_job *job, const staging_case *one, size_t count,
                      int root, int rank, int nranks)
{
    static const int factors = 3;
    *job = (staging_job){.op = {.size_bytes = sizeof(job->op),
                                .collective = one->collective,
                                .dtype = one->dtype,
                                .redop = one->redop,
                                .root = root},
                         .in_place = one->in_place};
    if (one->redop == WEFT_REDOP_PREMULSUM) {
        reference_store(job->scale, 1 + rank % factors, one->dtype);
        job->op.scale = job->scale;
    }
    if (staging_is_varied(one->collective)) {
        plan_varied(job, count, rank, nranks);
    } else {
        plan_plain(job, count, rank, nranks);
    }
    const size_t elem_bytes = weft_dtype_bytes(one->dtype);
    job->send_bytes *= elem_bytes;
    job->recv_bytes *= elem_bytes;
    job->in_place_at *= elem_bytes;
}

void staging_job_point(staging_job *job, unsigned char *const rooms[2])
{
    unsigned char *send = rooms[0], *recv = rooms[1];
    if (job->in_place && job->send_bytes > job->recv_bytes) {
        recv = send + job->in_place_at;
    } else if (job->in_place) {
        send = recv + job->in_place_at;
    }
    job->op.send = job->send_bytes ? send : NULL;
    job->op.recv = job->recv_bytes ? recv : NULL;
}

/* Keeps the sign and the fraction of a float, and of the exponent one bit. */
static void bring_local_one(weft_dtype dtype, unsigned char *at)
{
    switch (dtype) {
    case WEFT_DTYPE_F64:
        at[7] = (at[7] & 0x80) | 0x3F;
        at[6] |= 0xE0;
        break;
    case WEFT_DTYPE_F32:
        at[3] = (at[3] & 0x80) | 0x3F;
        break;
    case WEFT_DTYPE_BF16:
        at[1] = (at[1] & 0x80) | 0x3F;
        break;
    case WEFT_DTYPE_F16:
        at[1] = (at[1] & 0x87) | 0x38;
        break;
    case WEFT_DTYPE_F8E5M2:
        at[0] = (at[0] & 0x87) | 0x38;
        break;
    case WEFT_DTYPE_F8E4M3:
        at[0] = (at[0] & 0x8F) | 0x30;
        break;
    default:
        break;
    }
}

void staging_fill(weft_dtype dtype, uint64_t seed, unsigned char *at,
                  size_t bytes)
{
    const size_t elem_bytes = weft_dtype_bytes(dtype);
    for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
        const uint64_t bits = random_next(&seed);
        const size_t left = bytes - i;
        memcpy(at + i, &bits, left < sizeof(bits) ? left : sizeof(bits));
    }
    for (size_t i = 0; weft_dtype_kind(dtype) == WEFT_KIND_FLOAT && i < bytes;
         i += elem_bytes) {
        bring_local_one(dtype, at + i);
    }
}
