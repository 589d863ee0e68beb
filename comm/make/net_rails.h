/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/net_rails.h - over which rails the ranks of a new world send,
 * agreed by all.
 *
 * A rail is in common if every rank has it, as comm/net/reach.h says, and the
 * ranks that try the network get through to each other over it. Of those in
 * common each is measured alone, as the first was; then all together. They are
 * used together if that is faster, by half of what it should be, than the
 * fastest alone: two addresses of one cable are not. The slower figure of all
 * pairs counts, so all ranks make the same of it.
 *
 * Where nothing is measured, the rails that were named are taken for equally
 * fast, and no others are used.
 */
#ifndef COMM_MAKE_NET_RAILS_H
#define COMM_MAKE_NET_RAILS_H

#include "comm/core/core.h"
#include "comm/net/rails.h"

/* What the rails take; byte_ps 0: not one of them. */
typedef struct wefti_rail_figures {
    int count;
    wefti_net_figures alone[WEFTI_RAILS_MOST];
} wefti_rail_figures;

/*
 * wefti_net_rails_choose - the rails to be used, of those that were measured
 * alone, if all those that are worth it take `together`: whether it is all, or
 * one. *small_out: the rail of small messages.
 */
bool wefti_net_rails_choose(const wefti_rail_figures *figures,
                            const wefti_net_figures *together,
                            wefti_port_rails *rails_out);

/* What all ranks make of trying the network once, over the rails in use. */
typedef struct wefti_net_try {
    weft_status (*find)(weft_comm *world, int leader_count,
                        wefti_net_figures *figures_out);
    const int *leaders; /* the lowest ranks of the domains, in order */
    int leader_count;
} wefti_net_try;

/* Leaders of which the first tries the network to the second. */
typedef struct wefti_net_pair {
    int first, second;
} wefti_net_pair;

/* The k-th pair, from 0 on while 2 k < count: each leader is in one, the
 * first in two if their number is odd. */
static inline wefti_net_pair wefti_net_pair_get(const int *leaders, int count,
                                                int k)
{
    return 2 * k + 1 < count
               ? (wefti_net_pair){leaders[2 * k], leaders[2 * k + 1]}
               : (wefti_net_pair){leaders[0], leaders[count - 1]};
}

/*
 * wefti_net_rails_agree - by all ranks of the world, once the first rail has
 * been measured; *figures: what it takes, and then what the network does.
 *
 * ask        NULL: nothing is measured
 *
 * Returns     OK | as find | as a collective.
 */
WEFT_NODISCARD weft_status wefti_net_rails_agree(weft_comm *world,
                                                 const wefti_net_try *ask,
                                                 wefti_net_figures *figures);

#endif
