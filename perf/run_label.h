/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/run_label.h - output of many ranks as whole lines, each with its rank.
 *
 *     pipe of a rank -> run_feed: cut into lines -> run_outlet -> stdout
 *
 * A feed is not read while its outlet is full, and an outlet writes only what
 * the descriptor takes at once, so a slow reader of weft-run slows the ranks
 * down as it would without weft-run, and signals still go through.
 */
#ifndef PERF_RUN_LABEL_H
#define PERF_RUN_LABEL_H

#include <stdbool.h>
#include <stddef.h>

enum { RUN_LINE_MOST_BYTES = 16384, RUN_OUTLET_BYTES = 262144 };

/* What waits to be written to one descriptor. */
typedef struct run_outlet {
    int fd;
    size_t used_bytes, sent_bytes;
    int lost_errno; /* of the first write that failed; 0: none */
    char bytes[RUN_OUTLET_BYTES];
} run_outlet;

/* One rank's stream. */
typedef struct run_feed {
    int *fd; /* -1 once it has ended */
    run_outlet *outlet;
    char label[32];
    size_t line_bytes;
    char line[RUN_LINE_MOST_BYTES];
} run_feed;

/* Whether a feed may be read. */
bool run_outlet_has_room(const run_outlet *outlet);
bool run_outlet_is_empty(const run_outlet *outlet);

/* Write what fd takes now; what can never be written is dropped. */
void run_outlet_flush(run_outlet *outlet);

/* first, last: the ranks of the process. */
void run_feed_init(run_feed *feed, int *fd, run_outlet *outlet, int first,
                   int last);

/*
 * run_feed_pump - read once and pass whole lines on; at the end of the stream
 * also the last one, with a line end. A line that is too long is cut in two.
 */
void run_feed_pump(run_feed *feed);

#endif
