/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/port_ucx_admission.h - only ranks of the job reach UCX's tcp.
 *
 * UCX answers to anybody who connects to its port and knows a number that is
 * printed in its source; what follows is believed: it can end the process, or
 * write anywhere in it. So each connection begins with a proof that only the
 * job's ranks have, and UCX hears of a connection once its proof has come. What
 * UCX opens for others in this process is left alone.
 */
#ifndef COMM_NET_PORT_UCX_ADMISSION_H
#define COMM_NET_PORT_UCX_ADMISSION_H

#include "comm/net/port.h"

enum { WEFTI_ADMISSION_PLACE_BYTES = 19 }; /* family 1 | port 2 | address 16 */

/* Of one port. */
typedef struct wefti_admission wefti_admission;

/* NULL: no memory. Owned; closed once UCX's worker is gone. */
wefti_admission *
wefti_admission_open(const unsigned char proof[WEFTI_PORT_PROOF_BYTES]);
void wefti_admission_close(wefti_admission *admission); /* NULL is legal */

/* What UCX listens on from here on, in this thread, is admission's; NULL: what
 * it listens on is its own business. */
void wefti_admission_guard(wefti_admission *admission);

/* Where admission's port listens; at most room places. Returns how many. */
int wefti_admission_list(const wefti_admission *admission, int room,
                         unsigned char *places_out);

/* What connects there from here on shows the proof. False: no memory. */
bool wefti_admission_know(wefti_admission *admission, int count,
                          const unsigned char *places);

#endif
