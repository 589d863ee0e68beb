/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/agreement.h - all ranks run the same: each rank's arguments, input
 * files and build are compared before they are used.
 *
 * What may differ by rank: data.paths and a schedule's file, of which the
 * content is compared (wefti_config_key.by_content); --resume's folder,
 * likewise; where --metrics, --json and --report write; --import-hf's and
 * --export-hf's folder, which are rank 0's.
 */
#ifndef TRAINER_AGREEMENT_H
#define TRAINER_AGREEMENT_H

#include "trainer/config/config.h"
#include "trainer/data/data.h"
#include "trainer/options.h"
#include "weft/comm.h"

/*
 * wefti_agreement_config - compare the configuration, the command line and the
 * build; collective over comm, one small all-gather where all is well.
 *
 * own         what reading this rank's configuration returned, its error text
 *             set; config is read only if it is OK.
 * failed_out  1 + the rank whose own status was not OK, where not all have that
 * everywhere  set where all ranks return the same error
 *
 * Returns     OK | own | ERR_INVALID (the text names the key, both values and
 *             both ranks) | ERR_SYSTEM (another rank's was not OK) | the
 *             communicator's fault.
 */
WEFT_NODISCARD weft_status wefti_agreement_config(
    weft_comm *comm, weft_status own, const wefti_config *config,
    const wefti_options *options, int *failed_out, bool *everywhere);

/* The same of what was read as a key says, and of what --resume has. */
WEFT_NODISCARD weft_status wefti_agreement_data(
    weft_comm *comm, weft_status own, const char *key, const wefti_data *data,
    const wefti_options *options, int *failed_out, bool *everywhere);

#endif
