/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/port_library.h - find and open the network module, once a process.
 */
#ifndef COMM_NET_PORT_LIBRARY_H
#define COMM_NET_PORT_LIBRARY_H

#include "comm/net/port.h"
#include "weft/status.h"

/*
 * wefti_port_library_open - the module's table; it stays open.
 *
 * Returns     OK | ERR_UNSUPPORTED: it is not there, or cannot be loaded.
 * Threads     any.
 */
WEFT_NODISCARD weft_status
wefti_port_library_open(const wefti_port_table **table_out);

#endif
