/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/spread.h - which ranks of a world share memory, so that one test
 * runs over memory, over the network, and over both at once.
 *
 *   shared     everybody with everybody, as without a spread
 *   apart      nobody with anybody
 *   pairs      0 1 | 2 3 | 4 5 | ..
 *   uneven     0 1 2 | 3 | 4 5 6 | 7 | ..
 *   shuffled   domains of one to three ranks that are not neighbours
 *
 * "nodes:" before one of these puts each domain on an emulated host of its own
 * (perf/net_emulation.h): processes only, and root and iproute2 are needed.
 *
 * The environment's WEFT_TEST_DOMAINS is the spread of every world.
 */
#ifndef TESTS_COMM_SPREAD_H
#define TESTS_COMM_SPREAD_H

#include <stdbool.h>

/* NULL: the environment names none. Ends the program if it is no such name. */
const char *spread_get(void);

/* Whether some ranks of large worlds share no memory. */
bool spread_is_wide(void);

/* Whether two ranks of this program's worlds share no memory. */
bool spread_parts(int rank, int other);

/* Which domain rank is in, from 0; each has its lowest rank in order. */
int spread_domain(const char *spread, int rank);

/* WEFT_DOMAIN for a world of nranks; nothing if spread is NULL. */
void spread_set_domains(const char *spread, int nranks);
void spread_unset_domains(const char *spread);

/* Whether domains are emulated hosts. */
bool spread_has_nodes(const char *spread);

/* Makes the hosts of a world, or finds that there are enough already. */
void spread_make_nodes(const char *spread, int nranks);

/*
 * Moves the caller's network to the domain's host, and back; where that is
 * known in the hosts' network.
 */
const char *spread_enter_network(int domain);
void spread_leave_network(void);

/* For the process of a rank: all of the host's namespaces. */
void spread_move_in(int domain);

#endif
