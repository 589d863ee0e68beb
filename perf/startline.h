/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/startline.h - a barrier of its own for the ranks of one host, so that
 * timed calls of any library start together and no library's barrier is part
 * of its own measure. Free of weft, as sample.h.
 *
 * A line is a page of anonymous memory. The opening rank makes it and tells
 * the others its process, descriptor and token by whatever channel there is;
 * they reach it under /proc, so nothing has a name that could be left behind.
 */
#ifndef PERF_STARTLINE_H
#define PERF_STARTLINE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct wefti_startline wefti_startline;

/* Where a line is; process 0: there is none. Plain bytes to be sent. */
typedef struct wefti_startline_place {
    int64_t process;
    int64_t descriptor;
    uint64_t token; /* other memory under that number has another */
} wefti_startline_place;

/*
 * wefti_startline_create - a new line for ranks ranks, entered by this one.
 * wefti_startline_open   - enter the line at place.
 * wefti_startline_close  - leave; the creator only when all have opened.
 *
 * Returns     the line; NULL where there is none or it can not be reached,
 *             with errno.
 */
wefti_startline *wefti_startline_create(int ranks,
                                        wefti_startline_place *place_out);
wefti_startline *wefti_startline_open(const wefti_startline_place *place);
void wefti_startline_close(wefti_startline *line); /* NULL is legal */

/*
 * wefti_startline_wait - come to the line; all go on when the last has come.
 *
 * hopeless    asked every 20 ms of waiting whether somebody will never come;
 *             NULL: nobody knows.
 *
 * Returns     false if that has not happened within 60 s, if there is no hope,
 *             or if someone has cancelled. Then all ranks return false from
 *             this round, and at once from later ones.
 */
bool wefti_startline_wait(wefti_startline *line,
                          bool (*hopeless)(const void *context),
                          const void *context);

/* Release all who wait, now and later. */
void wefti_startline_cancel(wefti_startline *line);

#endif
