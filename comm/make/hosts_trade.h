/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/hosts_trade.h - hosts tell each other what they are.
 */
#ifndef COMM_MAKE_HOSTS_TRADE_H
#define COMM_MAKE_HOSTS_TRADE_H

#include "comm/core/core.h"

/*
 * wefti_hosts_trade - collective over the first communicator, after its
 * barrier. A fault on the way is the communicator's: its next operation says
 * so.
 *
 * Returns     OK | ERR_NO_MEMORY: this rank cannot go on.
 */
WEFT_NODISCARD weft_status wefti_hosts_trade(weft_comm *world);

#endif
