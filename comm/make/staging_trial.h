/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/staging_trial.h - whether what a rank stages is what its peers
 * read: used once, with a pattern, before anything relies on it.
 */
#ifndef COMM_MAKE_STAGING_TRIAL_H
#define COMM_MAKE_STAGING_TRIAL_H

#include "comm/core/core.h"

/*
 * wefti_staging_trial - all ranks of comm, which share memory, show each other
 * a few words by lists of steps; from its device's memory and back into it
 * where the host must not touch that. Nobody returns before all have entered.
 * What is wrong is published as a fault.
 *
 * Returns     OK | as a collective.
 * Allocates   device memory, if comm needs copies.
 */
WEFT_NODISCARD weft_status wefti_staging_trial(weft_comm *comm);

#endif
