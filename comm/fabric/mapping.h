/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/fabric/mapping.h - map a range of a job's shared memory, once per
 * process however many of its threads are ranks.
 *
 * Sharing one mapping is not needed for correctness; it lets the thread
 * sanitizer see both sides of every flag. ARCHITECTURE.md has what else of
 * weft's state belongs to the process and not to a communicator.
 */
#ifndef COMM_FABRIC_MAPPING_H
#define COMM_FABRIC_MAPPING_H

#include "weft/device.h"

#include <stddef.h>
#include <stdint.h>

typedef struct wefti_mapping wefti_mapping;

/*
 * memory_fd < 0: private memory for one rank alone.
 *
 * Returns     OK | ERR_SYSTEM | ERR_NO_MEMORY.  Threads: any.
 */
WEFT_NODISCARD weft_status wefti_mapping_open(int memory_fd, uint64_t offset,
                                              size_t bytes,
                                              wefti_mapping **mapping_out);
wefti_mapping *wefti_mapping_retain(wefti_mapping *mapping);
void wefti_mapping_close(wefti_mapping *mapping); /* NULL is legal */
void *wefti_mapping_get_base(const wefti_mapping *mapping);
size_t wefti_mapping_get_bytes(const wefti_mapping *mapping);

/*
 * wefti_mapping_pin   - make all of it known to a device, and with it to all of
 *                       its kind; ranks that are threads of one process share
 *                       that too.
 * wefti_mapping_unpin - once for each pin, after the last copy; never without
 *                       one, as it would take that of another rank.
 *
 * Returns     OK (also while another thread is still at it) | what
 *             weft_device_register says: unpin is due all the same.
 */
WEFT_NODISCARD weft_status wefti_mapping_pin(wefti_mapping *mapping,
                                             weft_device *device);
void wefti_mapping_unpin(wefti_mapping *mapping, const weft_device *device);

#endif
