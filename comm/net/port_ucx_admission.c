/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/port_ucx_admission.c - calls of UCX's tcp to its own socket layer,
 * taken on the way.
 *
 *   a rank that connects              a rank that listens
 *   ucs_socket_connect                ucs_async_set_event_handler
 *     to a known place: this socket     for a listening socket: UCX is woken by
 *     owes the proof                    our epoll set, which holds the socket
 *   ucs_socket_is_connected             and all that has connected to it
 *     it is: proof -----------------> attend
 *     then UCX's own bytes ---------->  the proof has come: UCX is told
 *                                     ucs_socket_accept
 *                                       hands out what has shown its proof
 *
 * libuct finds these names here before those of libucs, as the module that was
 * opened is searched first; it does not if something else in the process had
 * loaded UCX before, and then nothing is guarded (comm/net/port_ucx.c says so).
 * UCX calls attend in its own thread.
 *
 * A connection without a proof stays until others need its place: a rank that
 * is slow, or stopped, between connecting and its proof loses nothing. Where it
 * is dropped, UCX's other end connects once more.
 */
#include "comm/net/port_ucx_admission.h"

#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <ucs/async/async_fwd.h>
#include <ucs/sys/sock.h>
#include <unistd.h>

enum {
    PLACES = 64, /* connections to one socket that have shown nothing yet */
    LISTENER = PLACES,
    NEWS_MOST = 16,
    FULL_PAUSE_MS = 1
};

/* A connection that waits to be let in; fd -1: none. */
typedef struct visitor {
    int fd;
    bool proven;
    uint64_t number; /* in the order of coming */
    size_t got_bytes;
    unsigned char proof[WEFTI_PORT_PROOF_BYTES];
} visitor;

/* A socket that UCX listens on. */
typedef struct door {
    struct door *next;
    const wefti_admission *admission;
    int listen_fd, epoll_fd;
    ucs_async_event_cb_t tell; /* UCX's handler, and its argument */
    void *argument;
    uint64_t visitors_seen;
    visitor visitors[PLACES];
} door;

struct wefti_admission {
    wefti_admission *next;
    unsigned char proof[WEFTI_PORT_PROOF_BYTES];
    int place_count;
    unsigned char *places; /* [place_count] of peers */
};

/* A socket of this process that is connecting to a known place. */
typedef struct debtor {
    struct debtor *next;
    int fd;
    unsigned char proof[WEFTI_PORT_PROOF_BYTES];
} debtor;

/* All of the process, as UCX's calls say nothing of the port. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static door *doors;
static wefti_admission *admissions;
static debtor *debtors;
static _Thread_local const wefti_admission *guarding;

/* The function of that name in libucs. */
static bool find_real(const char *name, void *function_out)
{
    void *found = dlsym(RTLD_NEXT, name);
    memcpy(function_out, &found, sizeof(found));
    return found != NULL;
}

/* Zeros: of no family that is known. */
static void pack(const struct sockaddr *address,
                 unsigned char place_out[WEFTI_ADMISSION_PLACE_BYTES])
{
    const struct sockaddr_in *v4 = (const void *)address;
    const struct sockaddr_in6 *v6 = (const void *)address;
    memset(place_out, 0, WEFTI_ADMISSION_PLACE_BYTES);
    if (address->sa_family == AF_INET) {
        place_out[0] = 4;
        memcpy(place_out + 1, &v4->sin_port, 2);
        memcpy(place_out + 3, &v4->sin_addr, 4);
    } else if (address->sa_family == AF_INET6) {
        place_out[0] = 6;
        memcpy(place_out + 1, &v6->sin6_port, 2);
        memcpy(place_out + 3, &v6->sin6_addr, 16);
    }
}

/* ---- letting in ----------------------------------------------------------
 * The lock is held, unless a comment says otherwise.
 */

static void dismiss(visitor *one)
{
    if (one->fd >= 0) {
        close(one->fd);
        one->fd = -1;
    }
}

/* The first that has come of those that have proven, or not; NULL: none. */
static visitor *find_first(door *at, bool proven)
{
    visitor *first = NULL;
    for (int i = 0; i < PLACES; i++) {
        visitor *one = &at->visitors[i];
        if (one->fd >= 0 && one->proven == proven &&
            (!first || one->number < first->number)) {
            first = one;
        }
    }
    return first;
}

/* Room for one more; NULL: all have proven, and UCX is to take them first. */
static visitor *make_room(door *at)
{
    for (int i = 0; i < PLACES; i++) {
        if (at->visitors[i].fd < 0) {
            return &at->visitors[i];
        }
    }
    visitor *first = find_first(at, false);
    if (first) {
        dismiss(first);
    }
    return first;
}

static void accept_some(door *at)
{
    for (int i = 0; i < NEWS_MOST; i++) {
        visitor *room = make_room(at);
        int fd = room ? accept4(at->listen_fd, NULL, NULL,
                                SOCK_CLOEXEC | SOCK_NONBLOCK)
                      : -1;
        if (fd < 0) {
            if (room && (errno == EMFILE || errno == ENFILE)) {
                visitor *first = find_first(at, false);
                if (first) {
                    dismiss(first);
                } else {
                    (void)poll(NULL, 0, FULL_PAUSE_MS);
                }
            }
            return;
        }
        *room = (visitor){.fd = fd, .number = at->visitors_seen++};
        struct epoll_event wanted = {
            .events = EPOLLIN, .data.u32 = (uint32_t)(room - at->visitors)};
        if (epoll_ctl(at->epoll_fd, EPOLL_CTL_ADD, fd, &wanted) != 0) {
            dismiss(room);
        }
    }
}

/* Whether two secrets are equal, in a time that does not tell how far. */
static bool is_equal(const unsigned char *left, const unsigned char *right)
{
    unsigned char differs = 0;
    for (size_t i = 0; i < WEFTI_PORT_PROOF_BYTES; i++) {
        differs |= left[i] ^ right[i];
    }
    return differs == 0;
}

static void hear(door *at, visitor *one)
{
    if (one->fd < 0 || one->proven) {
        return; /* gone since epoll spoke of it */
    }
    ssize_t got = recv(one->fd, one->proof + one->got_bytes,
                       sizeof(one->proof) - one->got_bytes, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (got <= 0) {
        dismiss(one);
        return;
    }
    one->got_bytes += (size_t)got;
    if (one->got_bytes < sizeof(one->proof)) {
        return;
    }
    one->proven = is_equal(one->proof, at->admission->proof);
    memset(one->proof, 0, sizeof(one->proof));
    /* What follows is for UCX, which has a set of its own. */
    if (!one->proven ||
        epoll_ctl(at->epoll_fd, EPOLL_CTL_DEL, one->fd, NULL) != 0) {
        dismiss(one);
    }
}

/* UCX's thread, or the rank that makes progress for it; the lock is not held.
 */
static void attend(int id, ucs_event_set_types_t events, void *argument)
{
    door *at = argument;
    struct epoll_event news[NEWS_MOST];
    (void)id;
    int count = epoll_wait(at->epoll_fd, news, NEWS_MOST, 0);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < count; i++) {
        if (news[i].data.u32 == LISTENER) {
            accept_some(at);
        } else {
            hear(at, &at->visitors[news[i].data.u32]);
        }
    }
    const bool ready = find_first(at, true) != NULL;
    pthread_mutex_unlock(&lock);
    if (ready) {
        at->tell(at->listen_fd, events, at->argument);
    }
}

static void close_door(door *at)
{
    for (int i = 0; i < PLACES; i++) {
        dismiss(&at->visitors[i]);
    }
    if (at->epoll_fd >= 0) {
        close(at->epoll_fd);
    }
    free(at);
}

/* The lock is not held. NULL: no memory, no descriptor. */
static door *open_door(int listen_fd)
{
    door *at = calloc(1, sizeof(*at));
    if (!at) {
        return NULL;
    }
    for (int i = 0; i < PLACES; i++) {
        at->visitors[i].fd = -1;
    }
    at->admission = guarding;
    at->listen_fd = listen_fd;
    at->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event wanted = {.events = EPOLLIN, .data.u32 = LISTENER};
    if (at->epoll_fd < 0 ||
        epoll_ctl(at->epoll_fd, EPOLL_CTL_ADD, listen_fd, &wanted) != 0) {
        close_door(at);
        return NULL;
    }
    return at;
}

static bool is_listening(int fd)
{
    int listens = 0;
    socklen_t bytes = sizeof(listens);
    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) == 0 &&
           listens;
}

/* ---- showing the proof ---------------------------------------------------
 * The lock is held.
 */

static debtor **find_debtor(int fd)
{
    debtor **link = &debtors;
    while (*link && (*link)->fd != fd) {
        link = &(*link)->next;
    }
    return link;
}

static void forgive(int fd)
{
    debtor **link = find_debtor(fd);
    debtor *one = *link;
    if (one) {
        *link = one->next;
        free(one);
    }
}

static const wefti_admission *find_known(const struct sockaddr *address)
{
    unsigned char wanted[WEFTI_ADMISSION_PLACE_BYTES];
    pack(address, wanted);
    for (wefti_admission *one = admissions; one; one = one->next) {
        for (int i = 0; i < one->place_count; i++) {
            if (memcmp(one->places + i * WEFTI_ADMISSION_PLACE_BYTES, wanted,
                       sizeof(wanted)) == 0) {
                return one;
            }
        }
    }
    return NULL;
}

/* A new connection has room for so few bytes. */
static bool show(int fd, const unsigned char proof[WEFTI_PORT_PROOF_BYTES])
{
    return send(fd, proof, WEFTI_PORT_PROOF_BYTES,
                MSG_NOSIGNAL | MSG_DONTWAIT) == WEFTI_PORT_PROOF_BYTES;
}

/* ---- UCX's calls ---------------------------------------------------------
 */

#define TAKEN __attribute__((visibility("default")))

TAKEN ucs_status_t ucs_async_set_event_handler(
    ucs_async_mode_t mode, int event_fd, ucs_event_set_types_t events,
    ucs_async_event_cb_t cb, void *arg, ucs_async_context_t *async)
{
    ucs_status_t (*real)(ucs_async_mode_t, int, ucs_event_set_types_t,
                         ucs_async_event_cb_t, void *, ucs_async_context_t *);
    if (!find_real("ucs_async_set_event_handler", &real)) {
        return UCS_ERR_UNSUPPORTED;
    }
    if (!guarding || !is_listening(event_fd)) {
        return real(mode, event_fd, events, cb, arg, async);
    }
    door *at = open_door(event_fd);
    if (!at) {
        return UCS_ERR_NO_MEMORY;
    }
    at->tell = cb;
    at->argument = arg;
    pthread_mutex_lock(&lock);
    at->next = doors;
    doors = at;
    pthread_mutex_unlock(&lock);
    ucs_status_t status =
        real(mode, at->epoll_fd, UCS_EVENT_SET_EVREAD, attend, at, async);
    if (status != UCS_OK) {
        (void)ucs_async_remove_handler(event_fd, 0);
    }
    return status;
}

TAKEN ucs_status_t ucs_async_remove_handler(int id, int is_sync)
{
    ucs_status_t (*real)(int, int);
    if (!find_real("ucs_async_remove_handler", &real)) {
        return UCS_ERR_UNSUPPORTED;
    }
    pthread_mutex_lock(&lock);
    door **link = &doors;
    while (*link && (*link)->listen_fd != id) {
        link = &(*link)->next;
    }
    door *at = *link;
    if (at) {
        *link = at->next;
    }
    pthread_mutex_unlock(&lock);
    if (!at) {
        return real(id, is_sync);
    }
    ucs_status_t status = real(at->epoll_fd, is_sync);
    close_door(at);
    return status;
}

TAKEN ucs_status_t ucs_socket_accept(int fd, struct sockaddr *addr,
                                     socklen_t *length_ptr, int *accept_fd)
{
    ucs_status_t (*real)(int, struct sockaddr *, socklen_t *, int *);
    if (!find_real("ucs_socket_accept", &real)) {
        return UCS_ERR_UNSUPPORTED;
    }
    ucs_status_t status = UCS_ERR_NO_PROGRESS;
    pthread_mutex_lock(&lock);
    door *at = doors;
    while (at && at->listen_fd != fd) {
        at = at->next;
    }
    visitor *first = at ? find_first(at, true) : NULL;
    if (first) {
        forgive(first->fd); /* an earlier socket of this number */
        *accept_fd = first->fd;
        first->fd = -1;
        /* It may have gone again; UCX learns that when it reads. */
        (void)getpeername(*accept_fd, addr, length_ptr);
        status = UCS_OK;
    }
    pthread_mutex_unlock(&lock);
    return at ? status : real(fd, addr, length_ptr, accept_fd);
}

TAKEN ucs_status_t ucs_socket_connect(int fd, const struct sockaddr *dest_addr)
{
    ucs_status_t (*real)(int, const struct sockaddr *);
    if (!find_real("ucs_socket_connect", &real)) {
        return UCS_ERR_UNSUPPORTED;
    }
    ucs_status_t status = real(fd, dest_addr);
    pthread_mutex_lock(&lock);
    forgive(fd);
    const wefti_admission *known = find_known(dest_addr);
    if (known && status == UCS_OK) {
        status = show(fd, known->proof) ? UCS_OK : UCS_ERR_UNREACHABLE;
    } else if (known && status == UCS_INPROGRESS) {
        debtor *one = malloc(sizeof(*one));
        if (one) {
            *one = (debtor){.next = debtors, .fd = fd};
            memcpy(one->proof, known->proof, sizeof(one->proof));
            debtors = one;
        } else {
            status = UCS_ERR_NO_MEMORY;
        }
    }
    pthread_mutex_unlock(&lock);
    return status;
}

TAKEN int ucs_socket_is_connected(int fd)
{
    int (*real)(int);
    int connected = find_real("ucs_socket_is_connected", &real) && real(fd);
    pthread_mutex_lock(&lock);
    const debtor *one = *find_debtor(fd);
    if (one && connected) {
        connected = show(fd, one->proof);
    }
    if (one) {
        forgive(fd);
    }
    pthread_mutex_unlock(&lock);
    return connected;
}

/* ---- what the port calls -------------------------------------------------
 */

wefti_admission *
wefti_admission_open(const unsigned char proof[WEFTI_PORT_PROOF_BYTES])
{
    wefti_admission *admission = calloc(1, sizeof(*admission));
    if (admission) {
        memcpy(admission->proof, proof, sizeof(admission->proof));
        pthread_mutex_lock(&lock);
        admission->next = admissions;
        admissions = admission;
        pthread_mutex_unlock(&lock);
    }
    return admission;
}

void wefti_admission_close(wefti_admission *admission)
{
    if (!admission) {
        return;
    }
    pthread_mutex_lock(&lock);
    wefti_admission **link = &admissions;
    while (*link != admission) {
        link = &(*link)->next;
    }
    *link = admission->next;
    pthread_mutex_unlock(&lock);
    free(admission->places);
    free(admission);
}

void wefti_admission_guard(wefti_admission *admission)
{
    guarding = admission;
}

int wefti_admission_list(const wefti_admission *admission, int room,
                         unsigned char *places_out)
{
    int count = 0;
    pthread_mutex_lock(&lock);
    for (const door *at = doors; at && count < room; at = at->next) {
        struct sockaddr_storage where = {0};
        socklen_t bytes = sizeof(where);
        if (at->admission == admission &&
            getsockname(at->listen_fd, (struct sockaddr *)&where, &bytes) ==
                0) {
            pack((struct sockaddr *)&where,
                 places_out + count++ * WEFTI_ADMISSION_PLACE_BYTES);
        }
    }
    pthread_mutex_unlock(&lock);
    return count;
}

bool wefti_admission_know(wefti_admission *admission, int count,
                          const unsigned char *places)
{
    const size_t each = WEFTI_ADMISSION_PLACE_BYTES;
    pthread_mutex_lock(&lock);
    const size_t known = (size_t)admission->place_count;
    unsigned char *more =
        realloc(admission->places, (known + (size_t)count + 1) * each);
    if (more) {
        memcpy(more + known * each, places, (size_t)count * each);
        admission->places = more;
        admission->place_count += count;
    }
    pthread_mutex_unlock(&lock);
    return more != NULL;
}
