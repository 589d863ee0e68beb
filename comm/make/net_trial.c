/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/net_trial.c - the first use of a network, measured and checked.
 *
 * Of each kind the least time counts: what else runs on a host adds to it. The
 * time of a byte is the difference between two sizes, which leaves out what
 * does not grow with them.
 */
#include "comm/make/net_trial.h"

#include "base/clock.h"
#include "base/error.h"
#include "comm/post/post.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BURST_MESSAGES = 16, SIZES_MOST = 6, POISON = 0xa5 };

typedef enum request_kind { END, PING, BURST, DATA, BACK } request_kind;

typedef struct request {
    uint64_t kind, bytes;
} request;

/* One end: room for the largest message. */
typedef struct end {
    weft_comm *comm;
    int peer;
    uint64_t *words;
    wefti_net_trial *trial;
} end;

uint64_t wefti_net_trial_word(int from, size_t at)
{
    const uint64_t number = (uint64_t)at + 1 + ((uint64_t)(unsigned)from << 32);
    return number * UINT64_C(0x9e3779b97f4a7c15);
}

/* A message to the peer, or from it. */
static weft_status move(const end *own, weft_collective collective,
                        const void *send, void *recv, size_t count)
{
    const weft_op op = {.size_bytes = sizeof(op),
                        .collective = collective,
                        .send = send,
                        .recv = recv,
                        .count = count,
                        .dtype = WEFT_DTYPE_U8,
                        .root = own->peer};
    return wefti_post_for(WEFTI_PURPOSE_CREATE, &op, own->comm);
}

static weft_status send_bytes(const end *own, const void *bytes, size_t count)
{
    return move(own, WEFT_COLLECTIVE_SEND, bytes, NULL, count);
}

static weft_status receive_bytes(const end *own, void *bytes, size_t count)
{
    return move(own, WEFT_COLLECTIVE_RECV, NULL, bytes, count);
}

static weft_status ask(const end *own, request_kind kind, size_t bytes)
{
    const request asked = {.kind = kind, .bytes = bytes};
    return send_bytes(own, &asked, sizeof(asked));
}

static weft_status reply(const end *own)
{
    const uint64_t word = 0;
    return send_bytes(own, &word, sizeof(word));
}

static weft_status await_reply(const end *own)
{
    uint64_t word;
    return receive_bytes(own, &word, sizeof(word));
}

/* Up to the reply that says: go on. */
static weft_status prepare(const end *own, request_kind kind, size_t bytes)
{
    weft_status status = ask(own, kind, bytes);
    return status == WEFT_OK ? await_reply(own) : status;
}

static void write_pattern(const end *own, size_t count)
{
    for (size_t at = 0; at < count / sizeof(uint64_t); at++) {
        own->words[at] = wefti_net_trial_word(own->comm->rank, at);
    }
}

/* What the peer has sent; then nothing is left of it. */
static void check_pattern(const end *own, size_t count)
{
    wefti_net_trial *trial = own->trial;
    for (size_t at = 0; at < count / sizeof(uint64_t); at++) {
        const uint64_t sent = wefti_net_trial_word(own->peer, at);
        if (own->words[at] != sent && trial->bad_from < 0) {
            trial->bad_from = own->peer;
            trial->bad_place = (uint32_t)(at * sizeof(sent));
            trial->bad_bytes = (uint32_t)count;
            trial->bad_found = own->words[at];
            trial->bad_sent = sent;
        }
    }
    memset(own->words, POISON, count);
}

/* ---- the leader ---------------------------------------------------------- */

/* The least of some; 0: none yet. */
static void keep_least(int64_t *least_ns, int64_t took_ns)
{
    if (*least_ns == 0 || took_ns < *least_ns) {
        *least_ns = took_ns > 0 ? took_ns : 1;
    }
}

static weft_status ping(const end *own, const wefti_net_effort *effort,
                        int64_t *least_ns)
{
    weft_status status = WEFT_OK;
    const int64_t begin_ns = wefti_clock_ns();
    for (int i = 0; i < effort->pings && status == WEFT_OK; i++) {
        const int64_t sent_ns = wefti_clock_ns();
        if (i > 2 && sent_ns - begin_ns > effort->limit_ns / 4) {
            break;
        }
        status = prepare(own, PING, 0);
        keep_least(least_ns, wefti_clock_ns() - sent_ns);
    }
    return status;
}

static weft_status burst(const end *own, const wefti_net_effort *effort,
                         int64_t *least_ns)
{
    const uint64_t word = 0;
    weft_status status = WEFT_OK;
    for (int i = 0; i < effort->bursts && status == WEFT_OK; i++) {
        status = prepare(own, BURST, 0);
        const int64_t begin_ns = wefti_clock_ns();
        for (int k = 0; k < BURST_MESSAGES && status == WEFT_OK; k++) {
            status = send_bytes(own, &word, sizeof(word));
        }
        status = status == WEFT_OK ? await_reply(own) : status;
        keep_least(least_ns, wefti_clock_ns() - begin_ns);
    }
    return status;
}

static weft_status send_data(const end *own, size_t count, int64_t *least_ns)
{
    weft_status status = prepare(own, DATA, count);
    const int64_t begin_ns = wefti_clock_ns();
    status = status == WEFT_OK ? send_bytes(own, own->words, count) : status;
    status = status == WEFT_OK ? await_reply(own) : status;
    keep_least(least_ns, wefti_clock_ns() - begin_ns);
    return status;
}

/* A shaper may have let through more of the smaller size at once: then the
 * difference is too large, and the whole time is not. Where the smaller size
 * was held up the difference is too small, and what the whole takes beyond a
 * ping is not, unless the pings were held up too: no part of the whole that
 * is as small is believed. */
static int64_t find_byte_ps(const int64_t least_ns[SIZES_MOST], int last,
                            int64_t ping_ns)
{
    const double bytes = (double)((int64_t)WEFTI_TRIAL_LEAST_BYTES << last);
    const double whole_ps = (double)least_ns[last] * 1000 / bytes;
    double byte_ps = whole_ps;
    if (last > 0 && least_ns[last] > least_ns[last - 1]) {
        const int64_t more_ns = least_ns[last] - least_ns[last - 1];
        const int64_t beyond_ns = least_ns[last] - ping_ns;
        byte_ps = fmax((double)more_ns * 1000 / (bytes / 2),
                       (double)beyond_ns * 1000 / bytes);
        byte_ps = fmin(fmax(byte_ps, whole_ps / 8), whole_ps);
    }
    return (int64_t)byte_ps;
}

/* Two sizes at least, if there is time. */
static weft_status measure_bytes(const end *own, const wefti_net_effort *effort,
                                 int64_t ping_ns, int64_t *byte_ps)
{
    int64_t least_ns[SIZES_MOST] = {0};
    const int64_t end_ns = wefti_clock_ns() + effort->limit_ns / 2;
    weft_status status = WEFT_OK;
    int last = 0;
    write_pattern(own, effort->most_bytes);
    for (int i = 0; i < SIZES_MOST && status == WEFT_OK; i++) {
        const size_t count = (size_t)WEFTI_TRIAL_LEAST_BYTES << i;
        if (count > effort->most_bytes ||
            (i > 0 && wefti_clock_ns() + 2 * least_ns[i - 1] > end_ns)) {
            break;
        }
        last = i;
        status = send_data(own, count, &least_ns[i]);
    }
    for (int again = 1; again < effort->repeats; again++) {
        for (int i = last; i >= 0 && i >= last - 1 && status == WEFT_OK; i--) {
            if (wefti_clock_ns() + least_ns[i] < end_ns) {
                status = send_data(own, (size_t)WEFTI_TRIAL_LEAST_BYTES << i,
                                   &least_ns[i]);
            }
        }
    }
    *byte_ps = find_byte_ps(least_ns, last, ping_ns);
    return status;
}

static weft_status take_back(const end *own)
{
    weft_status status = ask(own, BACK, WEFTI_TRIAL_BACK_BYTES);
    memset(own->words, POISON, WEFTI_TRIAL_BACK_BYTES);
    if (status == WEFT_OK) {
        status = receive_bytes(own, own->words, WEFTI_TRIAL_BACK_BYTES);
    }
    if (status == WEFT_OK) {
        check_pattern(own, WEFTI_TRIAL_BACK_BYTES);
    }
    return status;
}

void wefti_net_keep_slower(int64_t *figure, int64_t other)
{
    *figure = other > *figure ? other : *figure;
}

static weft_status lead(const end *own, const wefti_net_effort *effort)
{
    int64_t ping_ns = 0, burst_ns = 0, byte_ps = 0;
    weft_status status = ping(own, effort, &ping_ns);
    if (status == WEFT_OK) {
        status = burst(own, effort, &burst_ns);
    }
    if (status == WEFT_OK) {
        status = measure_bytes(own, effort, ping_ns, &byte_ps);
    }
    if (status == WEFT_OK) {
        status = take_back(own);
    }
    if (status == WEFT_OK) {
        status = ask(own, END, 0);
    }
    if (status == WEFT_OK) {
        const int64_t more_ns = burst_ns - ping_ns;
        wefti_net_figures *figures = &own->trial->figures;
        own->trial->measured = 1;
        wefti_net_keep_slower(&figures->latency_ns, ping_ns / 2);
        wefti_net_keep_slower(&figures->message_ns,
                              more_ns / (BURST_MESSAGES - 1));
        wefti_net_keep_slower(&figures->byte_ps, byte_ps);
    }
    return status;
}

/* ---- the follower -------------------------------------------------------- */

static weft_status take_burst(const end *own)
{
    weft_status status = reply(own);
    for (int k = 0; k < BURST_MESSAGES && status == WEFT_OK; k++) {
        status = await_reply(own);
    }
    return status == WEFT_OK ? reply(own) : status;
}

static weft_status take_data(const end *own, size_t count)
{
    weft_status status = reply(own);
    if (status == WEFT_OK) {
        status = receive_bytes(own, own->words, count);
    }
    if (status == WEFT_OK) {
        status = reply(own);
        check_pattern(own, count);
    }
    return status;
}

static weft_status give_back(const end *own, size_t count)
{
    write_pattern(own, count);
    weft_status status = send_bytes(own, own->words, count);
    memset(own->words, POISON, count);
    return status;
}

static weft_status refuse(const end *own, const request *asked)
{
    return wefti_error(WEFT_ERR_SYSTEM,
                       "rank %d asked rank %d for %llu of %llu bytes when they "
                       "tried the network: it changes what it carries",
                       own->peer, own->comm->rank,
                       (unsigned long long)asked->kind,
                       (unsigned long long)asked->bytes);
}

static weft_status follow(const end *own)
{
    for (;;) {
        request asked;
        weft_status status = receive_bytes(own, &asked, sizeof(asked));
        if (status != WEFT_OK) {
            return status;
        }
        if (asked.kind > BACK || asked.bytes > WEFTI_TRIAL_MOST_BYTES ||
            asked.bytes % sizeof(uint64_t) != 0) {
            return refuse(own, &asked);
        }
        switch ((request_kind)asked.kind) {
        case END:
            return WEFT_OK;
        case PING:
            status = reply(own);
            break;
        case BURST:
            status = take_burst(own);
            break;
        case DATA:
            status = take_data(own, asked.bytes);
            break;
        case BACK:
            status = give_back(own, asked.bytes);
            break;
        }
        if (status != WEFT_OK) {
            return status;
        }
    }
}

weft_status wefti_net_trial_run(weft_comm *comm, int peer,
                                const wefti_net_effort *effort,
                                wefti_net_trial *trial)
{
    end own = {.comm = comm, .peer = peer, .trial = trial};
    own.words = malloc(WEFTI_TRIAL_MOST_BYTES);
    if (!own.words) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "no memory to try the network: %d bytes",
                           WEFTI_TRIAL_MOST_BYTES);
    }
    memset(own.words, POISON, WEFTI_TRIAL_MOST_BYTES);
    weft_status status = effort ? lead(&own, effort) : follow(&own);
    free(own.words);
    return status;
}
