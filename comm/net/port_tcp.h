/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/port_tcp.h - the port on weft's own TCP sockets, on one interface
 * or several.
 */
#ifndef COMM_NET_PORT_TCP_H
#define COMM_NET_PORT_TCP_H

#include "comm/net/port.h"

extern const wefti_port_table wefti_port_tcp;

#endif
