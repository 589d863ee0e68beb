/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/measure_cost.c - rounds of plain sockets: a step each.
 */
#include "trainer/measure_cost.h"

#include "base/error.h"
#include "comm/core/core.h"
#include "overlap/bare.h"

#include <stdlib.h>
#include <string.h>

enum {
    WARM_ROUNDS = 2, /* not counted */
    ROUNDS = 6,
    MESSAGES_MOST = 1 << 16
};

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

/* What there is of memory; parts are messages of the same bytes. */
static weft_status make_round(size_t bytes, size_t messages,
                              wefti_bare_round *round_out,
                              wefti_bare_part **parts_out,
                              unsigned char **memory_out)
{
    const size_t each = bytes / messages;
    wefti_bare_part *parts = calloc(messages, sizeof(*parts));
    unsigned char *memory = malloc(each);
    *parts_out = parts;
    *memory_out = memory;
    if (!parts || !memory) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "no memory for messages of %zu bytes", each);
    }
    memset(memory, 0, each);
    for (size_t i = 0; i < messages; i++) {
        parts[i] = (wefti_bare_part){memory, each, each};
    }
    *round_out = (wefti_bare_round){parts, messages, each * messages};
    return WEFT_OK;
}

static weft_status measure(weft_comm *comm, size_t bytes, size_t messages,
                           double *cpu_ms_out)
{
    wefti_bare_round round = {0};
    wefti_bare_part *parts;
    unsigned char *memory;
    wefti_bare *bare = NULL;
    weft_status status = make_round(bytes, messages, &round, &parts, &memory);
    if (status == WEFT_OK) {
        status = wefti_bare_open(comm, round.wire_bytes, &bare);
    }
    if (status == WEFT_OK) {
        status = run_rounds(bare, &round, cpu_ms_out);
    }
    wefti_bare_close(bare);
    free(parts);
    free(memory);
    return status == WEFT_OK
               ? weft_allreduce(cpu_ms_out, cpu_ms_out, 1, WEFT_DTYPE_F64,
                                WEFT_REDOP_AVG, comm, NULL)
               : status;
}

weft_status wefti_cost_find(const wefti_replica *replica, weft_class class_id,
                            size_t bytes, size_t messages,
                            wefti_measure_cost *cost_out)
{
    weft_comm *comm = find_comm(replica, class_id);
    *cost_out = (wefti_measure_cost){0};
    messages = messages < 1               ? 1
               : messages > MESSAGES_MOST ? MESSAGES_MOST
                                          : messages;
    if (!comm || bytes < messages) {
        cost_out->why = "nothing is sent";
        return WEFT_OK;
    }
    if (comm->local_count == weft_comm_get_nranks(comm)) {
        cost_out->why = "its ranks share memory, nothing crosses a socket";
        return WEFT_OK;
    }
    return measure(comm, bytes, messages, &cost_out->cpu_ms);
}
