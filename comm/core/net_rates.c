/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/core/net_rates.c - the usual rates, and those of a network that is
 * known.
 */
#include "comm/core/net_rates.h"

enum { NS_MOST = 1000000000, PS_MOST = 1000000000 };

/*
 * Of shared memory on a server of today: with them one hop is as good as two
 * for 16 KiB of two ranks, as was measured. Of tcp on a link of 10 Gbit/s: a
 * small message there and back between two hosts was measured at 25 us. Between
 * the processors of a server go some 33 GB/s each way.
 */
const wefti_rates wefti_rates_usual = {.local_latency_ns = 600,
                                       .local_message_ns = 150,
                                       .copy_byte_ns = 0.1,
                                       .reduce_byte_ns = 0.1,
                                       .network_latency_ns = 12000,
                                       .network_message_ns = 4000,
                                       .network_byte_ns = 0.8,
                                       .border_byte_ns = 0.03};

const char *wefti_rates_source_text(wefti_rates_source source)
{
    return source == WEFTI_RATES_MEASURED   ? "measured"
           : source == WEFTI_RATES_FILE     ? "file"
           : source == WEFTI_RATES_TOPOLOGY ? "topology"
                                            : "usual";
}

bool wefti_net_figures_check(const wefti_net_figures *figures)
{
    return figures->latency_ns >= 1 && figures->latency_ns <= NS_MOST &&
           figures->message_ns >= 1 && figures->message_ns <= NS_MOST &&
           figures->byte_ps >= 1 && figures->byte_ps <= PS_MOST;
}

static int64_t round_figure(int64_t figure, int64_t most)
{
    int64_t unit = 1;
    if (figure < 1) {
        return 1;
    }
    if (figure > most) {
        return most;
    }
    while (figure / unit >= 100) {
        unit *= 10;
    }
    return (figure + unit / 2) / unit * unit;
}

wefti_net_figures wefti_net_figures_round(const wefti_net_figures *figures)
{
    return (wefti_net_figures){
        .latency_ns = round_figure(figures->latency_ns, NS_MOST),
        .message_ns = round_figure(figures->message_ns, NS_MOST),
        .byte_ps = round_figure(figures->byte_ps, PS_MOST)};
}

wefti_known_rates wefti_known_rates_of(wefti_rates_source source,
                                       const wefti_net_figures *figures)
{
    wefti_known_rates known = {.source = source, .rates = wefti_rates_usual};
    known.rates.network_latency_ns = (double)figures->latency_ns;
    known.rates.network_message_ns = (double)figures->message_ns;
    known.rates.network_byte_ns = (double)figures->byte_ps / 1000;
    return known;
}

wefti_known_rates wefti_known_rates_of_link(double GBps)
{
    wefti_known_rates known = {.source = WEFTI_RATES_TOPOLOGY,
                               .rates = wefti_rates_usual};
    known.rates.network_byte_ns = 1 / GBps;
    return known;
}
