/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/port_ucx_list.h - part of the module on UCX.
 */
#ifndef COMM_NET_PORT_UCX_LIST_H
#define COMM_NET_PORT_UCX_LIST_H

#include "comm/net/port.h"

/* Tells of each transport on each device, in UCX's order. */
void wefti_port_ucx_list(wefti_port_found *found, void *context);

#endif
