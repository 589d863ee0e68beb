/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/measure_bare.c - sockets of each class, all ranks' or none's.
 */
#include "trainer/measure_bare.h"

#include "base/clock.h"
#include "trainer/measure_cost.h"
#include "trainer/numbers.h"
#include "weft/op.h"

#include <stdlib.h>
#include <string.h>

enum {
    WARM_ROUNDS = 2, /* alone; not counted */
    ROUNDS = 6,
    MEMORY_BYTES = 1 << 20,
    BYTES_MOST = 64 << 20 /* of a step and class: as much comes into memory */
};

static const char too_many[] =
    "more than 64 MiB a step, which plain sockets are not measured with";
static const char broken[] = "a connection of plain sockets broke";
static const char of_others[] =
    "ranks of another communicator of this class share memory, or cannot "
    "connect";

static void prepare(wefti_measure_bare *bare, weft_class class_id, size_t bytes)
{
    wefti_measure_socket *own = &bare->sockets[class_id];
    const size_t held = bytes < MEMORY_BYTES ? bytes : MEMORY_BYTES;
    own->part = (wefti_bare_part){bare->memory, held, bytes};
    own->round = (wefti_bare_round){&own->part, 1, bytes};
}

static weft_status open_class(const wefti_replica *replica, weft_class class_id,
                              double bytes, wefti_measure_bare *bare)
{
    wefti_measure_socket *own = &bare->sockets[class_id];
    weft_comm *comm;
    size_t agreed;
    bool nothing;
    weft_status status =
        wefti_cost_find_way(replica, class_id, (size_t)bytes, 1, &comm, &agreed,
                            &nothing, &own->why);
    if (status != WEFT_OK || own->why) {
        return status;
    }
    if (agreed > BYTES_MOST) {
        own->why = too_many;
        return WEFT_OK;
    }
    prepare(bare, class_id, agreed);
    status = wefti_bare_open(comm, agreed, &own->bare);
    if (status == WEFT_ERR_SYSTEM || status == WEFT_ERR_NO_MEMORY) {
        own->why = wefti_cost_unconnected;
        status = WEFT_OK;
    }
    return status;
}

static void close_class(wefti_measure_socket *own)
{
    wefti_bare_close(own->bare);
    own->bare = NULL;
}

/* Steps are of all ranks: where some have no sockets, none uses its own. */
static weft_status agree(weft_comm *all, wefti_measure_bare *bare)
{
    int64_t lacks[WEFT_CLASS_COUNT];
    for (int c = 0; c < WEFT_CLASS_COUNT; c++) {
        lacks[c] = !bare->sockets[c].bare;
    }
    weft_status status =
        weft_allreduce(lacks, lacks, WEFT_CLASS_COUNT, WEFT_DTYPE_I64,
                       WEFT_REDOP_SUM, all, NULL);
    for (int c = 0; c < WEFT_CLASS_COUNT && status == WEFT_OK; c++) {
        wefti_measure_socket *own = &bare->sockets[c];
        if (lacks[c] == 0) {
            bare->classes |= 1u << c;
        } else if (own->bare) {
            close_class(own);
            own->why = of_others;
        }
    }
    return status;
}

weft_status wefti_measure_bare_open(const wefti_replica *replica,
                                    const double bytes[WEFT_CLASS_COUNT],
                                    wefti_measure_bare *bare_out)
{
    int64_t failed;
    *bare_out = (wefti_measure_bare){.memory = malloc(MEMORY_BYTES)};
    failed = !bare_out->memory;
    weft_status status =
        weft_allreduce(&failed, &failed, 1, WEFT_DTYPE_I64, WEFT_REDOP_MAX,
                       replica->config.comm, NULL);
    for (int c = 0; c < WEFT_CLASS_COUNT && failed; c++) {
        bare_out->sockets[c].why = wefti_cost_no_memory;
    }
    if (status != WEFT_OK || failed) {
        return status;
    }
    memset(bare_out->memory, 1, MEMORY_BYTES); /* zeros could be one page */
    for (int c = 0; c < WEFT_CLASS_COUNT && status == WEFT_OK; c++) {
        status = open_class(replica, (weft_class)c, bytes[c], bare_out);
    }
    return status == WEFT_OK ? agree(replica->config.comm, bare_out) : status;
}

void wefti_measure_bare_close(wefti_measure_bare *bare)
{
    for (int c = 0; c < WEFT_CLASS_COUNT; c++) {
        close_class(&bare->sockets[c]);
    }
    free(bare->memory);
    bare->memory = NULL;
    bare->classes = 0;
}

void wefti_measure_bare_begin(wefti_measure_bare *bare, unsigned classes)
{
    for (int c = 0; c < WEFT_CLASS_COUNT && !bare->failed; c++) {
        wefti_measure_socket *own = &bare->sockets[c];
        if (bare->classes & classes & 1u << c) {
            wefti_bare_begin(own->bare, &own->round);
            wefti_bare_signal(own->bare);
        }
    }
}

void wefti_measure_bare_wait(wefti_measure_bare *bare, unsigned classes)
{
    bool broke = false;
    for (int c = 0; c < WEFT_CLASS_COUNT && !bare->failed; c++) {
        if (bare->classes & classes & 1u << c) {
            broke = wefti_bare_wait(bare->sockets[c].bare) != WEFT_OK || broke;
        }
    }
    bare->failed = bare->failed || broke;
}

weft_status wefti_measure_bare_alone(wefti_measure_bare *bare, unsigned classes,
                                     weft_comm *all, double *ms_out)
{
    double took_ns[WARM_ROUNDS + ROUNDS];
    weft_status status = WEFT_OK;
    for (int i = 0; i < WARM_ROUNDS + ROUNDS && status == WEFT_OK; i++) {
        status = weft_barrier(all, NULL);
        const int64_t begin_ns = wefti_clock_ns();
        wefti_measure_bare_begin(bare, classes);
        wefti_measure_bare_wait(bare, classes);
        took_ns[i] = (double)(wefti_clock_ns() - begin_ns);
    }
    if (status == WEFT_OK) {
        status = weft_allreduce(took_ns, took_ns, WARM_ROUNDS + ROUNDS,
                                WEFT_DTYPE_F64, WEFT_REDOP_MAX, all, NULL);
    }
    *ms_out = status == WEFT_OK
                  ? wefti_numbers_median(took_ns + WARM_ROUNDS, ROUNDS) * 1e-6
                  : 0;
    return status;
}

weft_status wefti_measure_bare_why(const wefti_measure_bare *bare,
                                   unsigned classes, weft_comm *all,
                                   const char **why_out)
{
    int64_t failed = bare->failed;
    weft_status status = weft_allreduce(&failed, &failed, 1, WEFT_DTYPE_I64,
                                        WEFT_REDOP_MAX, all, NULL);
    *why_out = failed ? broken : NULL;
    for (int c = 0; c < WEFT_CLASS_COUNT; c++) {
        if (classes & ~bare->classes & 1u << c) {
            *why_out = bare->sockets[c].why;
        }
    }
    return status;
}
