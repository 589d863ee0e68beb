/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/net_rates_file.h - what a network was measured to take, kept for
 * the next job on the same hosts:
 *
 *     weft-net-rates 1 KEY
 *     latency_ns 12000
 *     message_ns 4000
 *     byte_ps 8200
 *
 * A file that cannot be used, or written, is named in the log, and that is all:
 * nothing depends on it but time.
 */
#ifndef COMM_MAKE_NET_RATES_FILE_H
#define COMM_MAKE_NET_RATES_FILE_H

#include "comm/core/net_rates.h"

enum { WEFTI_NET_KEY_BYTES = 33 }; /* 32 hexadecimal digits */

/* Whether there is a file for the key, and figures in it. */
bool wefti_net_rates_file_read(const char key[WEFTI_NET_KEY_BYTES],
                               wefti_net_figures *figures_out);

/* Makes the folder; the file is replaced as a whole. */
void wefti_net_rates_file_write(const char key[WEFTI_NET_KEY_BYTES],
                                const wefti_net_figures *figures);

#endif
