/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/reach.h - which interfaces lead to the other domains: by trying.
 *
 * The lowest rank of each domain lists its addresses and answers on them for as
 * long as ranks join, with the seal of a key that is derived from the job's and
 * its number. Every rank connects to all that it knows of, and takes the
 * interface by which it got through. An address that leads elsewhere (every
 * host has a 127.0.0.1) does not answer so.
 */
#ifndef COMM_NET_REACH_H
#define COMM_NET_REACH_H

#include "comm/net/interface.h"
#include "comm/oob/membership.h"

typedef struct wefti_reach wefti_reach;

/*
 * wefti_reach_open - for a meeting of membership's ranks (borrowed).
 *
 * Returns     OK | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_reach_open(const wefti_membership *membership,
                                            wefti_reach **reach_out);
void wefti_reach_close(wefti_reach *reach); /* NULL is legal */

/*
 * wefti_reach_offer - this rank's info: where it answers, from now on. Empty
 * for all but the lowest rank of a domain.
 *
 * Returns     OK | ERR_SYSTEM | ERR_INVALID (WEFT_NET_INTERFACE).
 */
WEFT_NODISCARD weft_status
wefti_reach_offer(wefti_reach *reach, unsigned char info_out[WEFTI_INFO_BYTES],
                  size_t *info_bytes_out);

/* Takes rank's offer. Returns     OK | ERR_BOOTSTRAP: it is none. */
WEFT_NODISCARD weft_status wefti_reach_take(wefti_reach *reach, int rank,
                                            const unsigned char *info,
                                            size_t info_bytes);

/*
 * wefti_reach_choose - try, say what came of it (level info), and choose: at
 * most so many, unless they are named.
 *
 * Returns     OK | ERR_BOOTSTRAP: a domain answers nowhere | ERR_SYSTEM.
 * Blocks      for at most 3 s.
 */
WEFT_NODISCARD weft_status wefti_reach_choose(wefti_reach *reach, int most,
                                              wefti_interface_use *use_out);

#endif
