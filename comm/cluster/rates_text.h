/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/cluster/rates_text.h - the network's rates that choices are weighed by,
 * and where they come from, as text and as JSON.
 */
#ifndef COMM_CLUSTER_RATES_TEXT_H
#define COMM_CLUSTER_RATES_TEXT_H

#include "base/json.h"
#include "comm/core/net_rates.h"

#include <stdio.h>

/* A line of up to 80 characters. */
void wefti_rates_print(const wefti_known_rates *known, FILE *file);

/* The member "network_rates"; known NULL: null, no network is crossed. */
void wefti_rates_write(const wefti_known_rates *known, wefti_json *json);

#endif
