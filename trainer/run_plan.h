/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/run_plan.h - what a configuration comes to, for the code that runs
 * it: the model's shape, the optimizer's settings, the ledger's room.
 */
#ifndef TRAINER_RUN_PLAN_H
#define TRAINER_RUN_PLAN_H

#include "trainer/config/config.h"
#include "trainer/replica.h"

wefti_model_shape wefti_run_shape(const wefti_config *config);

wefti_recompute wefti_run_recompute(const wefti_config *config);

/* Slots that experts are placed in; 0: they stay. */
size_t wefti_run_expert_slots(const wefti_config *config);

/* Without a ledger. */
wefti_replica_config wefti_run_replica(const wefti_config *config,
                                       weft_comm *comm, weft_device *device,
                                       const wefti_data *data,
                                       const weft_schedule *schedule);

/*
 * How many spans and transfers of one step a rank's ledger takes: all, or of
 * very many micro-batches as many as a ledger can; the rest is counted as
 * dropped, with a warning.
 */
size_t wefti_run_spans(const wefti_config *config, int nranks,
                       size_t validation_windows);

#endif
