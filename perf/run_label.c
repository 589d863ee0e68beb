/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/run_label.c - lines in, labelled lines out.
 */
#include "perf/run_label.h"

#include "base/check.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/*
 * Room for what one pump can add: a full line plus one read, each byte of which
 * may end a line and so take a label.
 */
enum { READ_MOST_BYTES = 2048, LABEL_MOST_BYTES = 32 };
enum {
    PUMP_MOST_BYTES =
        RUN_LINE_MOST_BYTES + (READ_MOST_BYTES + 2) * (LABEL_MOST_BYTES + 2)
};

bool run_outlet_has_room(const run_outlet *outlet)
{
    return RUN_OUTLET_BYTES - outlet->used_bytes >= PUMP_MOST_BYTES;
}

bool run_outlet_is_empty(const run_outlet *outlet)
{
    return outlet->used_bytes == 0;
}

static void append(run_outlet *outlet, const char *bytes, size_t count)
{
    WEFTI_ASSERT(count <= RUN_OUTLET_BYTES - outlet->used_bytes);
    memcpy(outlet->bytes + outlet->used_bytes, bytes, count);
    outlet->used_bytes += count;
}

/* At most PIPE_BUF at a time: what poll has promised not to block. */
void run_outlet_flush(run_outlet *outlet)
{
    size_t left = outlet->used_bytes - outlet->sent_bytes;
    ssize_t written = write(outlet->fd, outlet->bytes + outlet->sent_bytes,
                            left < PIPE_BUF ? left : PIPE_BUF);
    if (written >= 0) {
        outlet->sent_bytes += (size_t)written;
    } else if (errno != EINTR && errno != EAGAIN) {
        outlet->sent_bytes = outlet->used_bytes;
        outlet->lost_errno = outlet->lost_errno ? outlet->lost_errno : errno;
    }
    if (outlet->sent_bytes == outlet->used_bytes ||
        outlet->sent_bytes >= RUN_OUTLET_BYTES / 2) {
        outlet->used_bytes -= outlet->sent_bytes;
        memmove(outlet->bytes, outlet->bytes + outlet->sent_bytes,
                outlet->used_bytes);
        outlet->sent_bytes = 0;
    }
}

void run_feed_init(run_feed *feed, int *fd, run_outlet *outlet, int first,
                   int last)
{
    feed->fd = fd;
    feed->outlet = outlet;
    feed->line_bytes = 0;
    if (first == last) {
        snprintf(feed->label, sizeof(feed->label), "[%d] ", first);
    } else {
        snprintf(feed->label, sizeof(feed->label), "[%d-%d] ", first, last);
    }
}

static void end_line(run_feed *feed)
{
    append(feed->outlet, feed->label, strlen(feed->label));
    append(feed->outlet, feed->line, feed->line_bytes);
    append(feed->outlet, "\n", 1);
    feed->line_bytes = 0;
}

void run_feed_pump(run_feed *feed)
{
    char bytes[READ_MOST_BYTES];
    ssize_t got = read(*feed->fd, bytes, sizeof(bytes));
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    for (ssize_t i = 0; i < got; i++) {
        if (bytes[i] == '\n') {
            end_line(feed);
            continue;
        }
        if (feed->line_bytes == RUN_LINE_MOST_BYTES) {
            end_line(feed);
        }
        feed->line[feed->line_bytes++] = bytes[i];
    }
    if (got <= 0) {
        if (feed->line_bytes > 0) {
            end_line(feed);
        }
        close(*feed->fd);
        *feed->fd = -1;
    }
}
