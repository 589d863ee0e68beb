/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/cluster/rails_text.h - the interfaces that a job's messages are spread
 * over, and what each was measured to carry, as text and as JSON.
 */
#ifndef COMM_CLUSTER_RAILS_TEXT_H
#define COMM_CLUSTER_RAILS_TEXT_H

#include "base/json.h"
#include "weft/comm.h"

#include <stdio.h>

/* " over eth0 (0.12 GB/s) and eth1 (0.05 GB/s)", or how many there are; nothing
 * where there is one. comm NULL: there is no job. */
void wefti_rails_print(const weft_comm *comm, int rails, FILE *file);

/* The member "rail_rates": of those that were measured. comm: as above. */
void wefti_rails_write(const weft_comm *comm, wefti_json *json);

#endif
