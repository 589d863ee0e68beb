/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/cluster/network_text.c - of rails a name and a figure each; of rates
 * three figures and a word.
 */
#include "comm/cluster/network_text.h"

#include "comm/make/explain.h"

/* Name of one that was measured; NULL: it was not, or there is none. */
static const char *rail_of(const weft_comm *comm, int rail, double *GBps_out)
{
    return comm ? wefti_comm_rail(comm, rail, GBps_out) : NULL;
}

void wefti_rails_print(const weft_comm *comm, int rails, FILE *file)
{
    double GBps;
    if (rails > 1 && !rail_of(comm, 0, &GBps)) {
        fprintf(file, " over %d rails", rails);
        return;
    }
    const char *name;
    for (int rail = 0; rails > 1 && (name = rail_of(comm, rail, &GBps));
         rail++) {
        fprintf(file, "%s %s (%.2g GB/s)", rail ? " and" : " over", name, GBps);
    }
}

void wefti_rails_write(const weft_comm *comm, wefti_json *json)
{
    const char *name;
    double GBps;
    wefti_json_array_open(json, "rail_rates");
    for (int rail = 0; (name = rail_of(comm, rail, &GBps)) != NULL; rail++) {
        wefti_json_object_open(json, NULL);
        wefti_json_text(json, "name", name);
        wefti_json_real(json, "GBps", GBps);
        wefti_json_object_close(json);
    }
    wefti_json_array_close(json);
}

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
