/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/host_module.h - weft_host.so, which reads this host
 * (topo/topo.h) and hands it over as bytes. A module of its own, opened where
 * ranks live on several hosts: libweft has no need of hwloc, and a job on one
 * host never loads it.
 */
#ifndef COMM_MAKE_HOST_MODULE_H
#define COMM_MAKE_HOST_MODULE_H

#include "comm/net/port.h"

enum { WEFTI_HOST_MODULE_VERSION = 1 };

#define WEFTI_HOST_MODULE_NAME   "weft_host.so"
#define WEFTI_HOST_MODULE_SYMBOL "wefti_host_describe"

/*
 * version      WEFTI_HOST_MODULE_VERSION of the caller.
 * net          the network module, asked what each port can do; may be NULL.
 * bytes_out    as wefti_topo_pack makes them; the caller frees them.
 *
 * Returns      0 | -1 with the reason in why_out.
 */
typedef int wefti_host_module_call(int version, const wefti_port_table *net,
                                   unsigned char **bytes_out,
                                   size_t *byte_count_out, char *why_out,
                                   size_t why_bytes);

#endif
