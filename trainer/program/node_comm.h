/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/program/node_comm.h - collectives among a program's nodes: one posts
 * what ranks exchange of a value, another waits for it. In I the same two
 * exchange the gradients, the other way round.
 *
 *   F   post x -----------------> await y      such as an all-gather of rows
 *   I   await dx <--------------- post dy      then a reduce-scatter
 *
 * What lies between the two runs meanwhile; x and y live until the second.
 * Neither blocks the host where compute is a stream. Operations of one
 * communicator are posted in the order of the program, which is that of all its
 * ranks (program_check.h).
 */
#ifndef TRAINER_PROGRAM_NODE_COMM_H
#define TRAINER_PROGRAM_NODE_COMM_H

#include "trainer/program/program_run.h"
#include "weft/types.h"

/* What is exchanged in a pass; NONE: nothing. */
typedef enum wefti_exchange_kind {
    WEFTI_EXCHANGE_NONE,
    WEFTI_EXCHANGE_GATHER,  /* own part of the rows -> rows of all parts */
    WEFTI_EXCHANGE_SCATTER, /* all rows -> own part's, summed over ranks */
    WEFTI_EXCHANGE_SUM      /* all rows, summed over ranks, or what there is */
} wefti_exchange_kind;

/*
 * by_parts   of a gather and a scatter: who waits for a gather comes part by
 *            part behind the await, and a scatter's rows are made part by part
 *            before the post (program.h); each goes on its way alone
 */
typedef struct wefti_exchange {
    wefti_exchange_kind forward, inputs;
    wefti_node_link_kind link;
    bool by_parts;
} wefti_exchange;

/*
 * x, y     values: F sends x and gets y
 * dx, dy   their gradients: I sends dy and gets dx
 *
 * In a pass without exchange they are not used. A SUM may be in place.
 */
typedef struct wefti_exchange_values {
    size_t x, dx, y, dy;
} wefti_exchange_values;

/*
 * wefti_append_post, wefti_append_await - the two nodes, with what there may be
 * between them; both get the number that the first returns.
 *
 * what     borrowed by the nodes
 */
size_t wefti_append_post(wefti_program *program, const char *label,
                         const wefti_exchange *what,
                         const wefti_exchange_values *values);
void wefti_append_await(wefti_program *program, const char *label,
                        const wefti_exchange *what,
                        const wefti_exchange_values *values, size_t operation);

/*
 * wefti_node_gather - outside of a program's nodes: of all ranks of a link so
 * many elements, one after the other, in place; in the order of compute.
 */
WEFT_NODISCARD weft_status wefti_node_gather(const wefti_program_pass *pass,
                                             wefti_node_link_kind link,
                                             real *all, size_t elems);

/* Around what this thread waits for on a link: its compute stands still. */
void wefti_node_stop(const wefti_program_pass *pass, wefti_node_link_kind link);
void wefti_node_resume(const wefti_program_pass *pass,
                       wefti_node_link_kind link);

/*
 * wefti_node_flights_create - what a program's operations need, for passes on
 * links. None: OK, and NULL.
 *
 * Returns     OK | ERR_NO_MEMORY | as weft_gate_create.
 */
WEFT_NODISCARD weft_status
wefti_node_flights_create(const wefti_program *program, weft_device *device,
                          wefti_node_flight **flights_out);
void wefti_node_flights_destroy(const wefti_program *program,
                                wefti_node_flight *flights);

#endif
