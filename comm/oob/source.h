/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/source.h - where a rank learns its number and where its job
 * gathers. The first source of the table that applies is taken.
 *
 * To add one: a file with its three functions, a row in source.c, a line in
 * docs/launching.md.
 */
#ifndef COMM_OOB_SOURCE_H
#define COMM_OOB_SOURCE_H

#include "comm/oob/join_request.h"

#include <stdbool.h>

/*
 * name      for people
 * sign      what was found that shows it
 * applies   by the request and the environment alone
 * find_rank this rank and how many there are; for a request that leaves them
 *           open (nranks 0)
 * alone_too join is called for one rank too, which else needs no other
 * join      join; rank and nranks of the request are set
 */
typedef struct wefti_launch_source {
    const char *name;
    const char *sign;
    bool alone_too;
    bool (*applies)(const wefti_bootstrap_request *request);
    weft_status (*find_rank)(int *rank_out, int *nranks_out);
    weft_status (*join)(const wefti_bootstrap_request *request,
                        wefti_membership *membership_out);
} wefti_launch_source;

/* One file each. The last one of source.c's table always applies. */
extern const wefti_launch_source wefti_launch_source_unique_id;
extern const wefti_launch_source wefti_launch_source_file;
extern const wefti_launch_source wefti_launch_source_environment;
extern const wefti_launch_source wefti_launch_source_torchrun;
extern const wefti_launch_source wefti_launch_source_pmix;
extern const wefti_launch_source wefti_launch_source_alone;

const wefti_launch_source *
wefti_launch_source_find(const wefti_bootstrap_request *request);

/*
 * wefti_launch_source_find_rank - for programs that must know before the ranks
 * join: which rank this process is and how many ranks there are.
 *
 * Returns     OK | what the source that applies finds wrong.
 */
WEFT_NODISCARD weft_status wefti_launch_source_find_rank(int *rank_out,
                                                         int *nranks_out);

#endif
