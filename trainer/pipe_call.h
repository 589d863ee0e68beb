/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/pipe_call.h - what the executor calls for the actions of a list; the
 * context is the replica.
 */
#ifndef TRAINER_PIPE_CALL_H
#define TRAINER_PIPE_CALL_H

#include "overlap/pipeline.h"

extern const wefti_pipeline_calls wefti_pipe_calls;

#endif
