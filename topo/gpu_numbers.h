/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/gpu_numbers.h - by which numbers others call a GPU: its place in the
 * order of PCI addresses, NVML's (nvidia-smi's, rocm-smi's) and CUDA's. Each
 * counts the GPUs of one maker in one host from 0.
 *
 * Source: NVML API, nvmlDeviceGetHandleByIndex: devices are enumerated by PCI
 * bus ID. CUDA programming guide, CUDA_DEVICE_ORDER: PCI_BUS_ID is that order;
 * by default (FASTEST_FIRST) the fastest is 0 and the order of the rest is not
 * specified, so that it is the same only among equals.
 */
#ifndef TOPO_GPU_NUMBERS_H
#define TOPO_GPU_NUMBERS_H

#include "topo/paths.h"

typedef struct wefti_gpu_numbers {
    int pci;          /* -1: no address */
    int smi;          /* -1 unknown */
    bool smi_read;    /* by the source; else it follows from the address */
    int cuda_pci;     /* with CUDA_DEVICE_ORDER=PCI_BUS_ID; -1: not CUDA's */
    int cuda_fastest; /* with FASTEST_FIRST; -1: unknown */
} wefti_gpu_numbers;

/* One for each GPU by ordinal; free() it. Returns OK | ERR_NO_MEMORY. */
WEFT_NODISCARD weft_status wefti_gpu_numbers_list(const wefti_paths *paths,
                                                  wefti_gpu_numbers **out);

#endif
