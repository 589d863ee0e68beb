/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/cluster/host_module.c - weft_host.so. It has base and topo of its own:
 * nothing of it meets the names of whoever opens it.
 */
#include "comm/make/host_module.h"

#include "comm/net/transports.h"
#include "topo/topo.h"

#include <stdio.h>

static weft_status describe(const wefti_port_table *net,
                            unsigned char **bytes_out, size_t *byte_count_out)
{
    wefti_topo *own;
    wefti_transports transports;
    weft_status status = wefti_topo_open_live(NULL, &own);
    if (status == WEFT_OK) {
        if (net) {
            wefti_transports_list(net, &transports);
            wefti_transports_note(&transports, own);
        }
        status = wefti_topo_pack(own, bytes_out, byte_count_out);
        wefti_topo_destroy(own);
    }
    return status;
}

extern wefti_host_module_call wefti_host_describe;

__attribute__((visibility("default"))) int
wefti_host_describe(int version, const wefti_port_table *net,
                    unsigned char **bytes_out, size_t *byte_count_out,
                    char *why_out, size_t why_bytes)
{
    if (version != WEFTI_HOST_MODULE_VERSION) {
        snprintf(why_out, why_bytes, "it is of another weft");
        return -1;
    }
    weft_status status = describe(net, bytes_out, byte_count_out);
    if (status != WEFT_OK) {
        snprintf(why_out, why_bytes, "%s", weft_error_text());
        return -1;
    }
    return 0;
}
