/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/staging_run.h - one rank's memory, streams and gates, and running
 * a job with its buffers on the device or the host.
 */
#ifndef TESTS_COMM_STAGING_RUN_H
#define TESTS_COMM_STAGING_RUN_H

#include "tests/comm/staging_job.h"

enum { STAGING_ROOM_BYTES = 1 << 20 };

typedef struct staging_rank {
    weft_comm *comm;
    weft_device *device;
    weft_stream *stream, *compute;
    weft_gate *ready, *arrived;
    int rank, nranks;
    uint64_t epoch;
    /* Of send and recv, all of STAGING_ROOM_BYTES. */
    unsigned char *device_room[2];
    unsigned char *host_room[2];
    unsigned char *image[2]; /* what they hold before */
    unsigned char *input;
    int failures; /* the first few are printed */
} staging_rank;

/* How a job is posted; the same on all ranks. */
typedef struct staging_form {
    bool gated, planned, on_stream;
    size_t lead_bytes; /* of a room before its buffer, which may be odd */
    size_t gate_elems; /* of a chunk, but for v forms */
    uint64_t values;   /* their seed */
} staging_form;

/* device is that of comm; both outlive it. */
void staging_rank_init(staging_rank *own, weft_comm *comm, weft_device *device);
void staging_rank_fini(staging_rank *own);

/*
 * Runs job with its buffers in rooms of the device or the host, whose first
 * room_bytes were poisoned, and copies those to results.
 */
void staging_run(staging_rank *own, const staging_job *job,
                 const staging_form *form, const bool on_device[2],
                 size_t room_bytes, unsigned char *const results[2]);

#endif
