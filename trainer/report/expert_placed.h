/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/report/expert_placed.h - experts that have moved to other ranks in a
 * run: when, how many bytes, and loads and times of steps on either side.
 */
#ifndef TRAINER_REPORT_EXPERT_PLACED_H
#define TRAINER_REPORT_EXPERT_PLACED_H

#include "base/json.h"
#include "trainer/expert_place.h"

#include <stdio.h>

/* A line for people, if experts have been placed. NULL: nothing. */
void wefti_expert_placed_print(const wefti_expert_place *place, FILE *file);

/* All of it, an object for each placement; null: experts stay. */
void wefti_expert_placed_put(const wefti_expert_place *place, wefti_json *json,
                             const char *name);

#endif
