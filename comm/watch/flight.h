/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/watch/flight.h - for weft's programs: SIGUSR1 prints the flight record
 * of all ranks (weft_comm_dump) on stderr.
 *
 * No handler is installed: the signal is blocked in every thread, and one
 * thread of the program waits for it, so that the dump runs as ordinary code.
 * The library itself never opens one.
 */
#ifndef COMM_WATCH_FLIGHT_H
#define COMM_WATCH_FLIGHT_H

#include "weft/comm.h"

typedef struct wefti_flight wefti_flight;

/*
 * wefti_flight_open - from main, before any other thread: they inherit that the
 * signal is blocked.
 *
 * Returns     OK | ERR_NO_MEMORY | ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status wefti_flight_open(wefti_flight **flight_out);
void wefti_flight_close(wefti_flight *flight); /* NULL is legal */

/*
 * wefti_flight_watch, _unwatch - from now on, until unwatch has returned,
 * SIGUSR1 dumps comm. flight or comm NULL: nothing happens. Threads: any.
 */
void wefti_flight_watch(wefti_flight *flight, weft_comm *comm);
void wefti_flight_unwatch(wefti_flight *flight, weft_comm *comm);

/*
 * wefti_flight_blame - tell weft-run, if it looks on, that this rank fails for
 * what another one did. Nothing where rank is -1, or this one. Threads: any.
 */
void wefti_flight_blame(weft_comm *comm, int rank);

#endif
