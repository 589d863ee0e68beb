/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/expert_hosts.h - which hosts have a layer's experts, where tokens may
 * go to some of them only.
 */
#ifndef TRAINER_EXPERT_HOSTS_H
#define TRAINER_EXPERT_HOSTS_H

#include "trainer/config/config.h"
#include "weft/comm.h"
#include "weft/moe_place.h"

/*
 * wefti_expert_hosts_settle - moe.nodes, where moe.node_limit is above 0 and
 * they are 0: as many as hosts have all experts together. No part of them may
 * be on several hosts; so a token crosses to no more than it may go to.
 *
 * comm      the ranks in the job's order; a host's share memory
 *
 * Returns   OK | ERR_INVALID, on all ranks alike | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_expert_hosts_settle(wefti_config *config,
                                                     const weft_comm *comm);

/* How experts, each once, are placed on the ranks that have all of them
 * together with rank 0: what is routed to together on one host. */
WEFT_NODISCARD weft_status
wefti_expert_hosts_place(const wefti_config *config, const weft_comm *comm,
                         weft_moe_place_config *how_out);

#endif
