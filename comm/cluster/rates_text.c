/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/cluster/rates_text.c - three figures and a word.
 */
#include "comm/cluster/rates_text.h"

void wefti_rates_print(const wefti_known_rates *known, FILE *file)
{
    const wefti_rates *rates = wefti_known_rates_get(known);
    fprintf(file,
            "weighed by %.4g us a hop, %.4g us a message, %.4g Gbit/s a host: "
            "%s\n",
            rates->network_latency_ns / 1e3, rates->network_message_ns / 1e3,
            8 / rates->network_byte_ns, wefti_rates_source_text(known->source));
}

void wefti_rates_write(const wefti_known_rates *known, wefti_json *json)
{
    if (!known) {
        wefti_json_null(json, "network_rates");
        return;
    }
    const wefti_rates *rates = wefti_known_rates_get(known);
    wefti_json_object_open(json, "network_rates");
    wefti_json_text(json, "source", wefti_rates_source_text(known->source));
    wefti_json_real(json, "latency_us", rates->network_latency_ns / 1e3);
    wefti_json_real(json, "message_us", rates->network_message_ns / 1e3);
    wefti_json_real(json, "host_GBps", 1 / rates->network_byte_ns);
    wefti_json_object_close(json);
}
