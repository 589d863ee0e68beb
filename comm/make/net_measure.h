/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/net_measure.h - what the network between the ranks of a job takes,
 * measured when they meet, the same on all of them.
 *
 * The lowest rank of each domain tries the network to one other, all pairs at
 * once; with an odd number of domains, the last with the first after that.
 * All ranks are told what each found, so all make the same of it: the slowest
 * figures, for a collective waits for its slowest member.
 *
 *     rank         0        1        2        3        4        5
 *     domain       0 1               2 3               4 5
 *     tries        0 ------------- 2                   then 0 - 4
 *
 * What the first rail takes is kept in a file of rank 0's, named after the
 * hosts, their interfaces and where the ranks lie. A job that finds one looks
 * only whether it still holds: within a factor of 2 for bytes, and 3 for the
 * latency.
 *
 * Further rails are measured each time (comm/make/net_rails.h).
 *
 * On one host nothing is measured; nor with WEFT_NET_RATES=usual, as rank 0 has
 * it.
 */
#ifndef COMM_MAKE_NET_MEASURE_H
#define COMM_MAKE_NET_MEASURE_H

#include "comm/make/net_trial.h"

/*
 * wefti_net_measure - of a new world, by all its ranks; sets its rates.
 *
 * Returns     OK | ERR_SYSTEM: the network changes what it carries, as the text
 *             says of which two ranks | ERR_NO_MEMORY | as a collective.
 */
WEFT_NODISCARD weft_status wefti_net_measure(weft_comm *world);

/*
 * wefti_net_measure_unite - what all ranks make of trials[nranks].
 *
 * Returns     OK: figures_out, rounded | ERR_SYSTEM, as above.
 */
WEFT_NODISCARD weft_status
wefti_net_measure_unite(const wefti_net_trial *trials, int nranks,
                        const char *interfaces, wefti_net_figures *figures_out);

#endif
