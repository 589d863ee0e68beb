/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/core/net_rates.h - what costs are made into time with, and where the
 * figures of the network come from: the usual ones, unless a job has measured
 * its own.
 */
#ifndef COMM_CORE_NET_RATES_H
#define COMM_CORE_NET_RATES_H

#include "comm/pattern/cost.h"

#include <stdint.h>

typedef enum wefti_rates_source {
    WEFTI_RATES_USUAL,    /* of tcp at 10 Gbit/s */
    WEFTI_RATES_MEASURED, /* when the ranks met */
    WEFTI_RATES_FILE,     /* by an earlier job, and found to hold still */
    WEFTI_RATES_TOPOLOGY  /* of hosts that do not run: their NICs' speed */
} wefti_rates_source;

/* "usual", "measured", "file", "topology" */
const char *wefti_rates_source_text(wefti_rates_source source);

/*
 * Of the network, whole numbers so that all ranks and any file have the same:
 * until a message is read, of a rank for each message, and for a byte through
 * a host's link, in picoseconds.
 */
typedef struct wefti_net_figures {
    int64_t latency_ns, message_ns, byte_ps;
} wefti_net_figures;

/* Whether each is one that a network may have. */
bool wefti_net_figures_check(const wefti_net_figures *figures);

/* Two digits of each, no less than 1: the rest is chance. */
wefti_net_figures wefti_net_figures_round(const wefti_net_figures *figures);

/* A communicator's; all zeros are the usual ones. */
typedef struct wefti_known_rates {
    wefti_rates_source source;
    wefti_rates rates; /* unless usual */
} wefti_known_rates;

extern const wefti_rates wefti_rates_usual;

wefti_known_rates wefti_known_rates_of(wefti_rates_source source,
                                       const wefti_net_figures *figures);

/* Of a host whose NICs carry so much together, more than 0: of hops and
 * messages nothing is known, so they take as long as usual. */
wefti_known_rates wefti_known_rates_of_link(double GBps);

/* Never NULL. */
static inline const wefti_rates *
wefti_known_rates_get(const wefti_known_rates *known)
{
    return known->source == WEFTI_RATES_USUAL ? &wefti_rates_usual
                                              : &known->rates;
}

#endif
