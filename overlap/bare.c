/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/bare.c - two blocking threads and two sockets.
 *
 *   compute: part 0 | part 1 | ...        the rank before
 *               |signal  |                     |
 *   sender:     send     send ---> next        v
 *   receiver:                             recv, 256 KiB a wake-up
 *
 * A round begins and ends on the bell: begin stores round, the threads store
 * that they are done with it, and each looks again after it has armed the bell.
 */
#include "overlap/bare.h"

#include "base/doorbell.h"
#include "base/error.h"
#include "base/settings.h"
#include "base/thread.h"
#include "comm/make/explain.h"
#include "comm/net/interface.h"
#include "weft/op.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SLEEP_NS = 1000000000, ACCEPT_S = 30 };

typedef struct worker {
    wefti_bare *bare;
    int fd;
    pthread_t thread;
    bool started;
    wefti_thread_work work;
    _Atomic uint64_t done; /* rounds: thread -> wait; bytes before it */
    _Atomic int failed;    /* errno, before done */
} worker;

struct wefti_bare {
    wefti_bare_round now;
    wefti_doorbell bell;
    _Atomic uint64_t round; /* begin -> threads: now before it */
    _Atomic size_t ready;   /* signal -> sender: parts of this round */
    _Atomic bool stopping;
    worker sender, receiver;
    unsigned char *inbox; /* [inbox_bytes] */
    size_t inbox_bytes;
    uint64_t received_bytes;
};

/* Where a rank listens; network order. */
typedef struct place {
    uint32_t address;
    uint16_t port;
    uint16_t usable;
} place;

/* ---- the threads ----------------------------------------------------------
 */

/* Sleeps until *value is above `least`; false: the end. */
static bool await_above(wefti_bare *bare, const _Atomic uint64_t *value,
                        uint64_t least)
{
    while (atomic_load(value) <= least) {
        if (atomic_load(&bare->stopping)) {
            return false;
        }
        uint32_t seen = wefti_doorbell_arm(&bare->bell);
        if (atomic_load(value) <= least && !atomic_load(&bare->stopping)) {
            wefti_doorbell_sleep(&bare->bell, seen, SLEEP_NS);
        }
        wefti_doorbell_disarm(&bare->bell, seen);
    }
    return true;
}

static bool send_all(int fd, const unsigned char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t sent = send(fd, bytes, count, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR) {
            return false;
        }
        if (sent > 0) {
            bytes += sent;
            count -= (size_t)sent;
        }
    }
    return true;
}

/* What is due of a part; from its begin again where that is more. */
static bool send_part(worker *self, const wefti_bare_part *part)
{
    for (size_t left = part->bytes > 0 ? part->wire_bytes : 0; left > 0;) {
        const size_t count = left < part->bytes ? left : part->bytes;
        if (!send_all(self->fd, part->begin, count)) {
            return false;
        }
        left -= count;
    }
    return true;
}

static bool send_round(worker *self)
{
    wefti_bare *bare = self->bare;
    const wefti_bare_round *round = &bare->now;
    for (size_t i = 0; i < round->count; i++) {
        if (!await_above(bare, &bare->ready, i)) {
            return true;
        }
        if (!send_part(self, &round->parts[i])) {
            return false;
        }
    }
    return true;
}

/*
 * Sleeps until the low mark has come, or all that is left. Not in recv: the
 * kernel wakes its caller only for a whole low mark more, not counting what
 * that call has taken already, so the end of a round might never wake it.
 */
static bool await_bytes(int fd, size_t left_bytes)
{
    const int lowat = left_bytes < WEFTI_BARE_LOWAT_BYTES
                          ? (int)left_bytes
                          : WEFTI_BARE_LOWAT_BYTES;
    struct pollfd news = {.fd = fd, .events = POLLIN};
    return setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &lowat, sizeof(lowat)) ==
               0 &&
           (poll(&news, 1, -1) >= 0 || errno == EINTR);
}

static bool receive_round(worker *self)
{
    wefti_bare *bare = self->bare;
    const size_t wire_bytes = bare->now.wire_bytes;
    for (size_t got = 0; got < wire_bytes;) {
        const size_t left = wire_bytes - got;
        ssize_t count = recv(self->fd, bare->inbox + got, left, MSG_DONTWAIT);
        if (count > 0) {
            got += (size_t)count;
            bare->received_bytes += (uint64_t)count;
        } else if (count == 0) {
            errno = ECONNRESET;
            return false;
        } else if (errno == EAGAIN ? !await_bytes(self->fd, left)
                                   : errno != EINTR) {
            return false;
        }
    }
    return true;
}

static void run(worker *self, bool (*one)(worker *self))
{
    wefti_bare *bare = self->bare;
    wefti_thread_work_begin(&self->work);
    for (uint64_t round = 0; await_above(bare, &bare->round, round); round++) {
        if (!atomic_load(&self->failed) && !one(self)) {
            atomic_store(&self->failed, errno);
        }
        atomic_store(&self->done, round + 1);
        wefti_doorbell_ring(&bare->bell);
    }
}

static void *run_sender(void *argument)
{
    run(argument, send_round);
    return NULL;
}

static void *run_receiver(void *argument)
{
    run(argument, receive_round);
    return NULL;
}

/* ---- rounds ---------------------------------------------------------------
 */

void wefti_bare_begin(wefti_bare *bare, const wefti_bare_round *round)
{
    bare->now = *round;
    atomic_store(&bare->ready, 0);
    atomic_fetch_add(&bare->round, 1);
    wefti_doorbell_ring(&bare->bell);
}

void wefti_bare_signal(wefti_bare *bare)
{
    atomic_fetch_add(&bare->ready, 1);
    wefti_doorbell_ring(&bare->bell);
}

weft_status wefti_bare_wait(wefti_bare *bare)
{
    const uint64_t before = atomic_load(&bare->round) - 1;
    (void)await_above(bare, &bare->sender.done, before);
    (void)await_above(bare, &bare->receiver.done, before);
    errno = atomic_load(&bare->sender.failed);
    errno = errno ? errno : atomic_load(&bare->receiver.failed);
    return errno ? wefti_error_system("bare sockets: a connection broke")
                 : WEFT_OK;
}

wefti_bare_usage wefti_bare_get_usage(const wefti_bare *bare)
{
    return (wefti_bare_usage){.cpu_ns =
                                  wefti_thread_work_ns(&bare->sender.work) +
                                  wefti_thread_work_ns(&bare->receiver.work),
                              .received_bytes = bare->received_bytes};
}

/* ---- setting up -----------------------------------------------------------
 */

/* The first in WEFT_NET_INTERFACE, else the first that leads anywhere. */
static weft_status find_address(uint32_t *address_out)
{
    wefti_interface list[WEFTI_INTERFACES_MOST];
    const char *wanted = wefti_setting_text(WEFTI_SETTING_NET_INTERFACE);
    const size_t length = strcspn(wanted, ",");
    int count;
    weft_status status = wefti_interface_list(list, &count);
    *address_out = htonl(INADDR_LOOPBACK);
    for (int i = 0; status == WEFT_OK && i < count; i++) {
        const bool fits = length ? strlen(list[i].name) == length &&
                                       memcmp(list[i].name, wanted, length) == 0
                                 : !list[i].loopback;
        if (fits) {
            *address_out = list[i].address;
            break;
        }
    }
    return status;
}

/* A socket that the rank before will connect to; -1, and errno. */
static int listen_at(place *at)
{
    struct sockaddr_in own = {.sin_family = AF_INET,
                              .sin_addr.s_addr = at->address};
    socklen_t bytes = sizeof(own);
    const struct timeval limit = {.tv_sec = ACCEPT_S};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) != 0 ||
        bind(fd, (const struct sockaddr *)&own, sizeof(own)) != 0 ||
        listen(fd, 1) != 0 ||
        getsockname(fd, (struct sockaddr *)&own, &bytes) != 0) {
        close(fd);
        return -1;
    }
    at->port = own.sin_port;
    at->usable = 1;
    return fd;
}

/* The connection to the next rank; -1, and errno. */
static int connect_to(const place *next)
{
    const struct sockaddr_in there = {.sin_family = AF_INET,
                                      .sin_addr.s_addr = next->address,
                                      .sin_port = next->port};
    const struct timeval limit = {.tv_sec = ACCEPT_S};
    const int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 &&
        (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) != 0 ||
         setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0 ||
         connect(fd, (const struct sockaddr *)&there, sizeof(there)) != 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

static weft_status start(wefti_bare *bare, worker *self,
                         void *(*thread)(void *))
{
    self->bare = bare;
    errno = wefti_thread_start(thread, self, &self->thread);
    self->started = errno == 0;
    return self->started
               ? WEFT_OK
               : wefti_error_system("bare sockets: a thread (pthread_create)");
}

/* Connects the ring; what this rank could not do is in the status. */
static weft_status join(wefti_bare *bare, const weft_comm *comm, int listening,
                        const place *places)
{
    const int nranks = weft_comm_get_nranks(comm);
    const int after = (weft_comm_get_rank(comm) + 1) % nranks;
    const place *next = &places[after];
    for (int rank = 0; rank < nranks; rank++) {
        if (!places[rank].usable) {
            return wefti_error(
                WEFT_ERR_SYSTEM,
                "bare sockets: rank %d has no socket to listen on", rank);
        }
    }
    bare->sender.fd = connect_to(next);
    if (bare->sender.fd < 0) {
        char text[16];
        wefti_interface_text(next->address, text);
        return wefti_error_system(
            "bare sockets: rank %d at %s cannot be reached "
            "(WEFT_NET_INTERFACE names another way)",
            after, text);
    }
    bare->receiver.fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
    if (bare->receiver.fd < 0) {
        return wefti_error_system(
            "bare sockets: the rank before has not connected");
    }
    weft_status status = start(bare, &bare->sender, run_sender);
    return status == WEFT_OK ? start(bare, &bare->receiver, run_receiver)
                             : status;
}

/* Tells all ranks where this one listens, and joins. */
static weft_status meet(wefti_bare *bare, weft_comm *comm, place *places)
{
    place *own = &places[weft_comm_get_rank(comm)];
    weft_status mine = find_address(&own->address);
    int listening = mine == WEFT_OK ? listen_at(own) : -1;
    weft_status status =
        weft_allgather(own, places, sizeof(*own), WEFT_DTYPE_U8, comm, NULL);
    if (status == WEFT_OK) {
        status = join(bare, comm, listening, places);
    }
    if (listening >= 0) {
        close(listening);
    }
    return status;
}

/* Whether all ranks come here with OK: a rank that fails leaves none waiting.
 */
static weft_status agree(weft_comm *comm, weft_status status)
{
    int64_t failed = status != WEFT_OK;
    const wefti_algorithms asked =
        wefti_comm_allow(comm, WEFT_COLLECTIVE_ALLREDUCE, 0);
    weft_status agreed = weft_allreduce(&failed, &failed, 1, WEFT_DTYPE_I64,
                                        WEFT_REDOP_SUM, comm, NULL);
    (void)wefti_comm_allow(comm, WEFT_COLLECTIVE_ALLREDUCE, asked);
    if (status == WEFT_OK && agreed != WEFT_OK) {
        status = agreed;
    }
    if (status == WEFT_OK && failed) {
        status = wefti_error(
            WEFT_ERR_SYSTEM,
            "bare sockets: another rank, which says why, cannot begin");
    }
    return status;
}

static weft_status check_memory(const wefti_bare *bare, const place *places,
                                int nranks, size_t wire_bytes)
{
    if (!bare || !places) {
        return wefti_error(
            WEFT_ERR_NO_MEMORY,
            "bare sockets: no memory for the addresses of %d ranks", nranks);
    }
    return bare->inbox
               ? WEFT_OK
               : wefti_error(
                     WEFT_ERR_NO_MEMORY,
                     "bare sockets: no memory for the %zu bytes that a rank "
                     "receives",
                     wire_bytes);
}

weft_status wefti_bare_open(weft_comm *comm, size_t wire_bytes,
                            wefti_bare **bare_out)
{
    wefti_bare *bare = calloc(1, sizeof(*bare));
    const int nranks = weft_comm_get_nranks(comm);
    place *places = calloc((size_t)nranks, sizeof(*places));
    if (bare) {
        wefti_doorbell_init(&bare->bell);
        bare->sender.fd = bare->receiver.fd = -1;
        bare->inbox_bytes = wire_bytes;
        bare->inbox = malloc(wire_bytes + 1);
    }
    weft_status status =
        agree(comm, check_memory(bare, places, nranks, wire_bytes));
    if (status == WEFT_OK) {
        memset(bare->inbox, 0, wire_bytes); /* no page is new in a round */
        status = agree(comm, meet(bare, comm, places));
    }
    free(places);
    if (status == WEFT_OK) {
        *bare_out = bare;
    } else {
        wefti_bare_close(bare);
    }
    return status;
}

static void stop(worker *self)
{
    if (self->started) {
        pthread_join(self->thread, NULL);
    }
    if (self->fd >= 0) {
        close(self->fd);
    }
}

void wefti_bare_close(wefti_bare *bare)
{
    if (!bare) {
        return;
    }
    atomic_store(&bare->stopping, true);
    wefti_doorbell_wake(&bare->bell);
    if (bare->receiver.fd >= 0) {
        (void)shutdown(bare->receiver.fd, SHUT_RDWR);
    }
    stop(&bare->sender);
    stop(&bare->receiver);
    free(bare->inbox);
    free(bare);
}
