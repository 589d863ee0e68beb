/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/measure_cost.c - rounds of plain sockets: a step each.
 */
#include "trainer/measure_cost.h"

#include "comm/core/core.h"
#include "overlap/bare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    WARM_ROUNDS = 2, /* not counted */
    ROUNDS = 6,
    /* Of a round, and of a message: a step's bytes may be gigabytes. */
    BYTES_MOST = 64 << 20,
    MESSAGES_MOST = 1 << 16
};

static const char shared[] = "its ranks share memory, nothing crosses a socket";
static const char some_share[] =
    "some of its ranks share memory, where a ring of sockets would cost more";
static const char no_bytes[] = "nothing is sent";
const char wefti_cost_no_memory[] =
    "no memory for the messages of plain sockets";
const char wefti_cost_unconnected[] =
    "plain sockets cannot be opened (WEFT_NET_INTERFACE names another way)";
static const char broken[] = "a connection of plain sockets broke";

/* The communicator of a class: the first that has other ranks; NULL: none. */
static weft_comm *find_comm(const wefti_replica *replica, weft_class class_id)
{
    weft_comm *found = NULL;
    for (int link = 0; link < WEFTI_MESH_LINKS && !found; link++) {
        weft_comm *comm = replica->mesh.comms[link];
        if (comm && weft_comm_get_nranks(comm) > 1 &&
            wefti_mesh_class((wefti_mesh_link)link) == class_id) {
            found = comm;
        }
    }
    return found;
}

static weft_status run_rounds(wefti_bare *bare, const wefti_bare_round *round,
                              double *cpu_ms_out)
{
    weft_status status = WEFT_OK;
    wefti_bare_usage before = {0};
    for (int i = 0; i < WARM_ROUNDS + ROUNDS && status == WEFT_OK; i++) {
        if (i == WARM_ROUNDS) {
            before = wefti_bare_get_usage(bare);
        }
        wefti_bare_begin(bare, round);
        for (size_t k = 0; k < round->count; k++) {
            wefti_bare_signal(bare);
        }
        status = wefti_bare_wait(bare);
    }
    *cpu_ms_out = (double)(wefti_bare_get_usage(bare).cpu_ns - before.cpu_ns) *
                  1e-6 / ROUNDS;
    return status;
}

/* The largest of each over the ranks. */
static weft_status agree(weft_comm *comm, int64_t *values, size_t count)
{
    return weft_allreduce(values, values, count, WEFT_DTYPE_I64, WEFT_REDOP_MAX,
                          comm, NULL);
}

/* Messages as long as a step's are; only so many as a round may have. */
typedef struct messages {
    wefti_bare_part *parts;
    unsigned char *memory;
    wefti_bare_round round;
} messages;

static bool make_messages(size_t bytes, size_t count, messages *out)
{
    const size_t most = BYTES_MOST;
    const size_t each = bytes / count < most ? bytes / count : most;
    count = count < most / each ? count : most / each;
    *out = (messages){.parts = calloc(count, sizeof(*out->parts)),
                      .memory = malloc(each)};
    if (out->memory) {
        memset(out->memory, 1, each); /* zeros could all be one page */
    }
    for (size_t i = 0; out->parts && i < count; i++) {
        out->parts[i] = (wefti_bare_part){out->memory, each, each};
    }
    out->round = (wefti_bare_round){out->parts, count, each * count};
    return out->parts && out->memory;
}

static void free_messages(messages *own)
{
    free(own->parts);
    free(own->memory);
}

/* A rank that finds no way out leaves none waiting: all have one reason. */
static weft_status measure(weft_comm *comm, size_t bytes, const messages *own,
                           wefti_measure_cost *cost_out)
{
    wefti_bare *bare = NULL;
    double sums[2] = {0, 0}; /* CPU time; ranks whose rounds failed */
    weft_status status = wefti_bare_open(comm, own->round.wire_bytes, &bare);
    if (status == WEFT_ERR_SYSTEM || status == WEFT_ERR_NO_MEMORY) {
        cost_out->why = wefti_cost_unconnected;
        return WEFT_OK;
    }
    if (status != WEFT_OK) {
        return status;
    }
    sums[1] = run_rounds(bare, &own->round, &sums[0]) != WEFT_OK;
    wefti_bare_close(bare);
    status = weft_allreduce(sums, sums, 2, WEFT_DTYPE_F64, WEFT_REDOP_AVG, comm,
                            NULL);
    if (sums[1] > 0) {
        cost_out->why = broken;
    } else if (status == WEFT_OK) {
        cost_out->cpu_ms =
            sums[0] * ((double)bytes / (double)own->round.wire_bytes);
    }
    return status;
}

/* bytes: of count messages, which all ranks have. */
static weft_status measure_messages(weft_comm *comm, size_t bytes, size_t count,
                                    wefti_measure_cost *cost_out)
{
    messages own;
    int64_t failed = !make_messages(bytes, count, &own);
    weft_status status = agree(comm, &failed, 1);
    if (failed) {
        cost_out->why = wefti_cost_no_memory;
    } else if (status == WEFT_OK) {
        status = measure(comm, bytes, &own, cost_out);
    }
    free_messages(&own);
    return status;
}

weft_status wefti_cost_find_way(const wefti_replica *replica,
                                weft_class class_id, size_t bytes, size_t least,
                                weft_comm **comm_out, size_t *bytes_out,
                                bool *nothing_out, const char **why_out)
{
    weft_comm *comm = find_comm(replica, class_id);
    *comm_out = comm;
    *bytes_out = 0;
    *nothing_out = true;
    *why_out = no_bytes;
    if (!comm) {
        return WEFT_OK;
    }
    int64_t most[] = {comm->local_count, (int64_t)bytes, (int64_t)least};
    weft_status status = agree(comm, most, sizeof(most) / sizeof(*most));
    if (status != WEFT_OK || most[1] < most[2]) {
        return status;
    }
    const bool all_share = most[0] == weft_comm_get_nranks(comm);
    *bytes_out = (size_t)most[1];
    *nothing_out = all_share;
    *why_out = all_share ? shared : most[0] > 1 ? some_share : NULL;
    return WEFT_OK;
}

weft_status wefti_cost_find(const wefti_replica *replica, weft_class class_id,
                            size_t bytes, size_t operations,
                            wefti_measure_cost *cost_out)
{
    const size_t most = MESSAGES_MOST;
    const size_t bounded = operations < most ? operations : most;
    weft_comm *comm;
    int64_t count = bounded < 1 ? 1 : (int64_t)bounded;
    *cost_out = (wefti_measure_cost){.cpu_ms = (double)NAN};
    weft_status status =
        wefti_cost_find_way(replica, class_id, bytes, (size_t)count, &comm,
                            &bytes, &cost_out->nothing, &cost_out->why);
    if (status == WEFT_OK && !cost_out->why) {
        status = agree(comm, &count, 1);
        if (status == WEFT_OK) {
            status = measure_messages(comm, bytes, (size_t)count, cost_out);
        }
    }
    return status;
}
