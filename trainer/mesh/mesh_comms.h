/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/mesh/mesh_comms.h - a job's communicators, made once and ended here.
 *
 * What has a communicator of its own need not wait for what other groups do,
 * nor be posted in one order with it. How urgent its operations are follows
 * from their class (weft/op.h), which is the communicator's.
 *
 *   LINE      the ranks of one pipeline; the executor's
 *   CHAIN     the same ranks, for messages that are not in its list:
 *             validation, generated text, tied gradients. Of a single rank, the
 *             line itself: neither carries anything.
 *   DATA      the ranks with the same dense parameters: gradients are reduced
 *             and parameters gathered here. Without a pipeline that is all
 *             ranks, on the job's own communicator.
 *   EXPERT_DATA   the ranks with the same experts; their own even where those
 *             of DATA are the same, as the two are reduced beside each other
 *   TENSOR    the ranks that have cut the same matrices
 *   CONTEXT   those that have cut the same sequences
 *   EXPERTS   those that have all experts together; their own even where those
 *             of another axis are the same. These three are there where their
 *             axis has more than one rank.
 */
#ifndef TRAINER_MESH_MESH_COMMS_H
#define TRAINER_MESH_MESH_COMMS_H

#include "trainer/mesh/mesh.h"
#include "weft/comm.h"
#include "weft/ledger.h"

typedef enum wefti_mesh_link {
    WEFTI_MESH_LINE,
    WEFTI_MESH_CHAIN,
    WEFTI_MESH_DATA,
    WEFTI_MESH_EXPERT_DATA, /* follows: by group of parameters */
    WEFTI_MESH_TENSOR,
    WEFTI_MESH_CONTEXT,
    WEFTI_MESH_EXPERTS,
    WEFTI_MESH_LINKS
} wefti_mesh_link;

typedef struct wefti_mesh_comms {
    wefti_mesh mesh;
    wefti_mesh_place at; /* this rank's */
    weft_comm *job;      /* borrowed */
    weft_ledger *ledger; /* of their operations; borrowed; NULL: none */
    weft_comm *comms[WEFTI_MESH_LINKS]; /* NULL: not connected */
} wefti_mesh_comms;

/* The class of what is posted to one. */
weft_class wefti_mesh_class(wefti_mesh_link link);

/*
 * wefti_mesh_connect - collective over job, whose ranks are the mesh's.
 *
 * groups      of parameters that the model has: 1, or 2 with experts
 *
 * Returns     OK | as weft_comm_split, weft_ledger_attach: leave it then.
 */
WEFT_NODISCARD weft_status wefti_mesh_connect(wefti_mesh_comms *comms,
                                              const wefti_mesh *mesh,
                                              weft_comm *job,
                                              weft_ledger *ledger,
                                              size_t groups);

/* After a failure: ranks that wait, on one of these or others, go on. */
void wefti_mesh_abort(wefti_mesh_comms *comms);

/* Also of zeros, and of what is connected in part. */
void wefti_mesh_leave(wefti_mesh_comms *comms);

#endif
