/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/control/channel_crew.h - the thread of a rank that serves the control
 * channels of all its jobs.
 *
 *   weft_comm_create, job A --- channel --+
 *   weft_comm_create, job B --- channel --+-- one thread, one sleep
 *   weft_comm_create, job C --- channel --+
 *
 * As with progress threads (comm/engine/driver.h), two channels of one job are
 * two ranks', and have a thread each.
 */
#ifndef COMM_CONTROL_CHANNEL_CREW_H
#define COMM_CONTROL_CHANNEL_CREW_H

#include "comm/control/channel.h"

typedef struct wefti_crew wefti_crew;

/*
 * wefti_crew_join - from now on a thread serves the channel (wefti_control_turn
 * and what follows it), until a turn says that it is over.
 *
 * Returns     OK | ERR_NO_MEMORY | ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status wefti_crew_join(wefti_control *control);

/* Waits until a turn of the channel, which is closing, has said so; the last
 * one ends the thread. */
void wefti_crew_leave(wefti_control *control);

/* A turn of each channel follows. Threads: any. */
void wefti_crew_wake(wefti_crew *crew);

#endif
