/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/pipe/pipe_call.h - what the executor calls for the actions of a list;
 * the context is the replica.
 */
#ifndef TRAINER_PIPE_PIPE_CALL_H
#define TRAINER_PIPE_PIPE_CALL_H

#include "trainer/pipe/pipe.h"

extern const weft_pipeline_calls wefti_pipe_calls;

/* Waits in place of compute: config.pipe.waits (trainer/pipe/pipe_wait.c). */
extern const weft_pipeline_calls wefti_pipe_waits;

/* REDUCE_GRAD of a stage, whatever its gradients are. */
WEFT_NODISCARD weft_status
wefti_pipe_reduce_stage(struct wefti_replica *replica, int stage);

#endif
