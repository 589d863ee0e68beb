/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/perf_parts.h - the parts in which weft-perf --overlap makes a send
 * buffer, in the order in which the operation wants them.
 *
 * A part is a chunk of the operation's ready gate. weft says in which order it
 * sends these (weft_op_ready_order), and the compute follows, whoever moves the
 * data then: weft, bare sockets or nobody.
 */
#ifndef PERF_PERF_PARTS_H
#define PERF_PERF_PARTS_H

#include "perf/perf_rank.h"

enum { WEFTI_PERF_PARTS = 16 };

/*
 * chunk           of the gate
 * first, elems    of the send buffer
 * wire_bytes      what this rank must send of it to others: nothing of a part
 *                 that it keeps; else its share of what the operation sends
 */
typedef struct wefti_perf_part {
    size_t chunk;
    size_t first, elems;
    size_t wire_bytes;
} wefti_perf_part;

typedef struct wefti_perf_parts {
    size_t part_elems; /* of each but the buffer's last */
    size_t count;
    wefti_perf_part list[WEFTI_PERF_PARTS]; /* in the order of making */
    size_t wire_bytes;                      /* of all */
} wefti_perf_parts;

/*
 * wefti_perf_parts_plan - of one case on the rank's communicator; buffers are
 * those of any call.
 *
 * Returns     OK | as weft_op_ready_order.
 */
WEFT_NODISCARD weft_status wefti_perf_parts_plan(const wefti_perf_case *subject,
                                                 wefti_perf_buffers buffers,
                                                 weft_comm *comm,
                                                 wefti_perf_parts *parts_out);

#endif
