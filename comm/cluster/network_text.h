/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/cluster/network_text.h - the network between a job's hosts as text and
 * as JSON: the interfaces that messages are spread over, with what each was
 * measured to carry, and the rates that choices are weighed by, with where they
 * come from.
 */
#ifndef COMM_CLUSTER_NETWORK_TEXT_H
#define COMM_CLUSTER_NETWORK_TEXT_H

#include "base/json.h"
#include "comm/core/net_rates.h"
#include "weft/comm.h"

#include <stdio.h>

/* " over eth0 (0.12 GB/s) and eth1 (0.05 GB/s)", or how many there are; nothing
 * where there is one. comm NULL: there is no job. */
void wefti_rails_print(const weft_comm *comm, int rails, FILE *file);

/* The member "rail_rates": of those that were measured. comm: as above. */
void wefti_rails_write(const weft_comm *comm, wefti_json *json);

/* A line of up to 80 characters. */
void wefti_rates_print(const wefti_known_rates *known, FILE *file);

/* The member "network_rates"; known NULL: null, no network is crossed. */
void wefti_rates_write(const wefti_known_rates *known, wefti_json *json);

#endif
