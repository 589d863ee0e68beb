/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/info_devices.h - the GPUs that weft could use here, by its own count:
 * what the CUDA driver says, which is not what the topology says (a process may
 * be shown fewer, in another order).
 */
#ifndef PERF_INFO_DEVICES_H
#define PERF_INFO_DEVICES_H

#include "base/json.h"

#include <stdio.h>

/* The object "cuda"; live false: of a recorded machine nobody can tell. */
void wefti_info_devices_write(bool live, wefti_json *json);
void wefti_info_devices_print(FILE *file);

#endif
