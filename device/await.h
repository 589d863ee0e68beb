/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/await.h - how a host thread waits for something that is rung.
 */
#ifndef DEVICE_AWAIT_H
#define DEVICE_AWAIT_H

#include "base/doorbell.h"
#include "device/device.h"

#include <stdbool.h>

/* Whether this process may use several CPUs, so that spinning can pay. */
bool wefti_await_may_spin(void);

/*
 * wefti_await - block until ready(arg).
 *
 * bell    rung after whatever ready() looks at has changed.
 * spins   look at it for some microseconds before giving the CPU away.
 * ready   quick, without side effects; loads are seq_cst (base/doorbell.h).
 */
void wefti_await(wefti_doorbell *bell, bool spins,
                 bool (*ready)(const void *arg), const void *arg);

/*
 * wefti_poll - the same of something that a device does which notifies nobody;
 * the device is tended meanwhile (device/holds.h). It returns without ready()
 * if the device has failed (device/failure.h).
 */
void wefti_poll(weft_device *device, bool (*ready)(const void *arg),
                const void *arg);

#endif
