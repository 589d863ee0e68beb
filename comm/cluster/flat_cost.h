/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/cluster/flat_cost.h - what WEFT_SUM_FLAT costs an operation: the time
 * expected of its sum along one tree over all ranks, and that of the same sum
 * by levels, host by host.
 */
#ifndef COMM_CLUSTER_FLAT_COST_H
#define COMM_CLUSTER_FLAT_COST_H

#include "base/json.h"
#include "comm/core/select.h"

#include <stdio.h>

/* Both algorithms' names live for ever; us, NAN: nobody has counted it. */
typedef struct wefti_flat_cost {
    const char *flat, *levels;
    double flat_us, levels_us;
} wefti_flat_cost;

/* Whether op is a sum that WEFT_SUM_FLAT changes there; else cost_out is left
 * as it is. */
bool wefti_flat_cost_find(const wefti_scope *scope, const weft_op *op,
                          wefti_flat_cost *cost_out);

/* "tree  140.0  hierarchical  70.0  2.00", in columns of 55; no end of line. */
void wefti_flat_cost_print(const wefti_flat_cost *cost, FILE *file);

/* The member "sum_flat"; cost NULL: null, it changes nothing. */
void wefti_flat_cost_write(const wefti_flat_cost *cost, wefti_json *json);

#endif
