/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/cuda.h - which GPUs the CUDA driver has and what they can do, for
 * weft-info and programs that choose. All else is behind device/device.h.
 */
#ifndef DEVICE_CUDA_H
#define DEVICE_CUDA_H

#include "weft/device.h"
#include "weft/status.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct wefti_cuda_info {
    char name[128];
    char pci[32];  /* 0000:1b:00.0, in lower case as the kernel has it */
    char uuid[48]; /* GPU-..., as nvidia-smi and NVML write it; of an instance
                      of MIG its own, which they begin with MIG- */
    size_t memory_bytes;
    int major, minor; /* compute capability */
    int multiprocessors, copy_engines;
    bool memory_operations; /* of 64 bits, which gates need */
    bool flushes;           /* of remote writes, by waits */
    bool registers;         /* memory of the host that is there already */
    bool exportable;        /* memory by file descriptor */
} wefti_cuda_info;

/*
 * wefti_cuda_count - opens the driver: how many GPUs it shows this process, and
 * the CUDA version it is for (13000: 13.0).
 *
 * Returns     OK | ERR_UNSUPPORTED, ERR_SYSTEM: the text says why there is no
 *             driver or no GPU.
 */
WEFT_NODISCARD weft_status wefti_cuda_count(int *count_out, int *version_out);

/* wefti_cuda_describe - one of them, without a context made on it.
 * Returns OK | ERR_INVALID (no such index) | as wefti_cuda_count. */
WEFT_NODISCARD weft_status wefti_cuda_describe(int index,
                                               wefti_cuda_info *info_out);

/* Whether one of them can access the memory of another (cuDeviceCanAccessPeer).
 * Returns as wefti_cuda_describe. */
WEFT_NODISCARD weft_status wefti_cuda_can_access(int index, int peer,
                                                 bool *can_out);

/*
 * wefti_cuda_device_enter - makes the context of a device of kind cuda current,
 * for calls of libraries; wefti_cuda_device_leave puts back what was.
 *
 * Returns     OK | ERR_SYSTEM (the GPU has failed): do not leave.
 */
WEFT_NODISCARD weft_status wefti_cuda_device_enter(const weft_device *device);
void wefti_cuda_device_leave(const weft_device *device);

/* Graphs that a program may launch wait for other ranks from now on, or (a
 * communicator's end) no more: what is freed beside them is kept. */
void wefti_cuda_note_graphs(const weft_device *device, bool on);

/*
 * wefti_cuda_find_kernels - the file with weft's own kernels, which it opens;
 * no driver is asked.
 *
 * Returns     OK | ERR_UNSUPPORTED (this weft was built without) | ERR_INVALID
 *             (the setting names no file) | ERR_SYSTEM (the file holds none).
 */
WEFT_NODISCARD weft_status wefti_cuda_find_kernels(char path_out[PATH_MAX]);

/*
 * wefti_cuda_find_products - the library that multiplies matrices on GPUs,
 * which it opens: "cuBLASLt 13.1.0"; no driver is asked.
 *
 * Returns     OK | ERR_UNSUPPORTED: weft's own kernel does, and why.
 */
WEFT_NODISCARD weft_status wefti_cuda_find_products(char text_out[64]);

/* wefti_cuda_find_attention - the same of attention: "cuDNN 9.19.0". */
WEFT_NODISCARD weft_status wefti_cuda_find_attention(char text_out[64]);

#endif
