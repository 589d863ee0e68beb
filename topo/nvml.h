/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/nvml.h - what NVIDIA's management library says of the GPUs here.
 *
 * Opened at run time, with declarations of our own: no library means no
 * NVIDIA GPU, and no error. Every symbol may be missing and every call may be
 * refused; then the rest goes on, with one warning (24) that names the call.
 */
#ifndef TOPO_NVML_H
#define TOPO_NVML_H

#include "topo/assemble.h"

#define WEFTI_NVML_LINKS_MOST 36

typedef enum wefti_nvml_remote {
    WEFTI_NVML_REMOTE_GPU = 0,
    WEFTI_NVML_REMOTE_IBM = 1,
    WEFTI_NVML_REMOTE_SWITCH = 2,
    WEFTI_NVML_REMOTE_UNKNOWN = 255
} wefti_nvml_remote;

typedef struct wefti_nvml_link {
    bool exists, up;
    bool no_peers; /* carries nothing between GPUs */
    wefti_nvml_remote remote;
    char bus[24]; /* of the remote end; "": refused or hidden */
    double GBps;  /* 0 unknown */
} wefti_nvml_link;

typedef struct wefti_nvml_gpu {
    char bus[24], name[64];
    int sm;
    int gen, width, max_gen, max_width; /* PCIe; 0 unknown */
    bool links_unknown; /* the calls that would state them cannot be made */
    int link_count;
    wefti_nvml_link links[WEFTI_NVML_LINKS_MOST];
    double c2c_GBps; /* all that are up; 0 none */
    int c2c_count, c2c_down;
    uint64_t domain; /* as in the graph */
} wefti_nvml_gpu;

/*
 * wefti_nvml_read - all GPUs; free() them. topo receives the warnings.
 *
 * Returns     OK (also without library or GPU) | ERR_NO_MEMORY.
 * Threads     any: one mutex round all calls of the library.
 */
WEFT_NODISCARD weft_status wefti_nvml_read(const char *library,
                                           wefti_topo *topo,
                                           wefti_nvml_gpu **gpus_out,
                                           int *count_out);

/* Puts them into the graph of a host: names, PCIe, and claims for links. */
void wefti_nvml_apply(wefti_topo *topo, const wefti_nvml_gpu *gpus, int count,
                      wefti_claims *claims);

#endif
