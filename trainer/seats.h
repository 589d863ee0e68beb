/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/seats.h - which process plays which rank, so that the fewest bytes
 * cross slow links.
 *
 * Launchers number processes as they please: ranks that talk most may sit on
 * different hosts. On several hosts the machines are read, the groups of the
 * job are placed (topo/placement.h), and where that helps the ranks are
 * numbered anew. On one host nothing is read and nothing changes.
 */
#ifndef TRAINER_SEATS_H
#define TRAINER_SEATS_H

#include "topo/placement.h"
#include "trainer/config/config.h"
#include "weft/comm.h"

/*
 * wefti_seats_job - the groups' sizes and what a rank sends in each a step, by
 * the formulas in seats.c; data parallelism has the ranks that are left.
 */
void wefti_seats_job(const wefti_config *config, size_t parameter_count,
                     int nranks, wefti_place_job *job_out);

/*
 * wefti_seats_take - collective over comm.
 *
 * out         where rank 0 prints the map, the bytes that cross each level
 *             before and after, and what must cross; NULL on other ranks.
 * comm_out    the ranks in their new order, the caller's; NULL: they stay.
 *
 * Returns     OK | as wefti_cluster_open, wefti_place_plan, weft_comm_split.
 */
WEFT_NODISCARD weft_status wefti_seats_take(weft_comm *comm,
                                            const wefti_place_job *job,
                                            FILE *out, weft_comm **comm_out);

#endif
