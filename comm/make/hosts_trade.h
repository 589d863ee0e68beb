/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/hosts_trade.h - hosts tell each other what they are.
 */
#ifndef COMM_MAKE_HOSTS_TRADE_H
#define COMM_MAKE_HOSTS_TRADE_H

#include "comm/make/hosts.h"

/*
 * wefti_hosts_trade - collective over comm, for whose ranks hosts is; then it
 * is complete, unless one is unreadable.
 *
 * Returns     OK | ERR_NO_MEMORY: this rank cannot go on | the communicator's
 *             fault.
 */
WEFT_NODISCARD weft_status wefti_hosts_trade(weft_comm *comm,
                                             wefti_purpose purpose,
                                             wefti_hosts *hosts);

/* The first rank that could not read its host; -1: none. */
int wefti_hosts_find_unreadable(const wefti_hosts *hosts);

#endif
