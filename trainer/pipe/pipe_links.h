/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/pipe/pipe_links.h - the communicators that nodes of stages post to
 * (trainer/program/node_comm.h), out of the mesh's.
 */
#ifndef TRAINER_PIPE_PIPE_LINKS_H
#define TRAINER_PIPE_PIPE_LINKS_H

#include "trainer/program/program_run.h"

struct wefti_replica;

/*
 * wefti_pipe_links_open - those that the mesh has; beside compute where the
 * pipe's config says so.
 *
 * links_out   [WEFTI_LINKS]; to be closed after an error too
 */
WEFT_NODISCARD weft_status wefti_pipe_links_open(struct wefti_replica *replica,
                                                 wefti_node_link *links_out);
void wefti_pipe_links_close(wefti_node_link *links);

/* How each link's operations go, and messages from stage to stage; all zeros:
 * as the pipe's config says. */
typedef struct wefti_pipe_modes {
    weft_bucket_mode links[WEFTI_LINKS];
    weft_bucket_mode line;
} wefti_pipe_modes;

/*
 * wefti_pipe_links_set - from the next step on; between steps, all ranks alike.
 *
 * replays   values mean nothing: experts get the rows of an earlier step
 */
void wefti_pipe_links_set(struct wefti_replica *replica,
                          const wefti_pipe_modes *modes, bool replays);

#endif
