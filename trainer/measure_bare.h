/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/measure_bare.h - what plain sockets hide: the bytes that a class
 * sends in a step, by two blocking threads (overlap/bare.h) beside the step's
 * own compute, which exchanges nothing of that class meanwhile.
 *
 *   step      compute ........................ | wait |
 *   sockets   [ all the bytes, from the beginning ]
 *
 * Nothing of what they send is needed before the step's end, and nothing is
 * added up, cast or put in its place: so H_bare says what the transfers' cost
 * to compute alone leaves of H.
 */
#ifndef TRAINER_MEASURE_BARE_H
#define TRAINER_MEASURE_BARE_H

#include "overlap/bare.h"
#include "trainer/replica.h"

/* Of one class. */
typedef struct wefti_measure_socket {
    wefti_bare *bare; /* NULL: there is none, and why says so */
    const char *why;  /* a literal */
    wefti_bare_part part;
    wefti_bare_round round;
} wefti_measure_socket;

/* classes: a bit each, of those that have sockets. */
typedef struct wefti_measure_bare {
    wefti_measure_socket sockets[WEFT_CLASS_COUNT];
    unsigned classes;
    unsigned char *memory; /* what is sent, again and again */
    bool failed;           /* a connection broke */
} wefti_measure_bare;

/*
 * wefti_measure_bare_open - all ranks of the job; connects those of each class
 * that sends and whose ranks share no memory.
 *
 * bytes       that this rank sends in a step, of each class; of the ranks that
 *             differ the most counts
 *
 * Returns     OK, also where a class' why says what failed, on all ranks | a
 *             communicator's fault. Close it all the same.
 */
WEFT_NODISCARD weft_status wefti_measure_bare_open(
    const wefti_replica *replica, const double bytes[WEFT_CLASS_COUNT],
    wefti_measure_bare *bare_out);
void wefti_measure_bare_close(wefti_measure_bare *bare);

/* All bytes of these classes may go; until they have gone and come. After a
 * connection has broken: nothing. */
void wefti_measure_bare_begin(wefti_measure_bare *bare, unsigned classes);
void wefti_measure_bare_wait(wefti_measure_bare *bare, unsigned classes);

/*
 * wefti_measure_bare_alone - how long that takes without compute, the slowest
 * rank's, in the median of a few rounds; all ranks of the job.
 *
 * Returns     OK | all's fault.
 */
WEFT_NODISCARD weft_status wefti_measure_bare_alone(wefti_measure_bare *bare,
                                                    unsigned classes,
                                                    weft_comm *all,
                                                    double *ms_out);

/*
 * Why sockets of these classes say nothing; NULL: they do. all ranks of the job
 * have one answer, but for the words.
 */
WEFT_NODISCARD weft_status
wefti_measure_bare_why(const wefti_measure_bare *bare, unsigned classes,
                       weft_comm *all, const char **why_out);

#endif
