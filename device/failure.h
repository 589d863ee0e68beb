/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/failure.h - a device that works no more: an illegal access by one
 * kernel ends all that a process has on a GPU.
 *
 * Nothing queued on it runs then, so nothing raises the gates that its streams
 * were to raise. They fail instead, with the device's error; host threads that
 * wait for the device return it, and its streams count as drained.
 */
#ifndef DEVICE_FAILURE_H
#define DEVICE_FAILURE_H

#include "device/device.h"

/* Asks the device, not more often than is cheap, and does what is to be done
 * when it has failed. Calls watchers of gates: not under a lock. */
void wefti_device_look(weft_device *device);

/* OK, or the error, which becomes this thread's. */
weft_status wefti_device_get_failure(const weft_device *device);

#endif
