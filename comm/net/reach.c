/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/reach.c - the answering thread, the tries and the choice.
 */
#include "comm/net/reach.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/event.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/thread.h"
#include "comm/oob/cursor.h"
#include "comm/oob/listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    TARGETS_MOST = 4, /* domains that a rank tries */
    TRIES_MOST = TARGETS_MOST * WEFTI_INTERFACES_MOST,
    LIMIT_MS = 3000,
    GRACE_MS = 50 /* for further answers, once every target has given one */
};

/* A domain's lowest rank, and where it says it answers. */
typedef struct target {
    int rank;
    wefti_secret secret; /* the rank's */
    uint16_t port;
    int count;
    wefti_interface addresses[WEFTI_INTERFACES_MOST];
    bool answered;
} target;

/* One connection. own: index of the interface it took. */
typedef struct
try {
    wefti_oob_connection connection;
    int target, address, own;
    bool answered;
    int64_t took_ns;
}
try;

struct wefti_reach {
    const wefti_membership *membership;
    int own_count;
    wefti_interface own[WEFTI_INTERFACES_MOST];
    int target_count;
    target targets[TARGETS_MOST];
    int first_count; /* rank 0's, by which rails are numbered */
    wefti_interface first[WEFTI_INTERFACES_MOST];
    int stop_fd;
    wefti_oob_listener listener;
    wefti_secret secret;
    pthread_t thread;
    bool answering;
};

/* The key that a rank seals its answers with: of the job's, and its number. */
static void derive_secret(const wefti_membership *membership, int rank,
                          wefti_secret *secret_out)
{
    unsigned char seed[WEFTI_JOB_KEY_BYTES + 2];
    memcpy(seed, membership->job_key, WEFTI_JOB_KEY_BYTES);
    seed[WEFTI_JOB_KEY_BYTES] = (unsigned char)rank;
    seed[WEFTI_JOB_KEY_BYTES + 1] = (unsigned char)(rank >> 8);
    wefti_secret_init(secret_out, seed, sizeof(seed));
    sodium_memzero(seed, sizeof(seed));
}

/* Leaves only those that WEFT_NET_INTERFACE names. */
static weft_status keep_named(wefti_reach *reach)
{
    const char *names = wefti_setting_text(WEFTI_SETTING_NET_INTERFACE);
    char known[256] = "";
    int kept = 0;
    wefti_interface found[WEFTI_INTERFACES_MOST];
    for (const char *at = names; *at;) {
        size_t characters = strcspn(at, ",");
        int before = kept;
        for (int i = 0; i < reach->own_count; i++) {
            const char *name = reach->own[i].name;
            if (strlen(name) == characters &&
                memcmp(name, at, characters) == 0) {
                found[kept++] = reach->own[i];
                break;
            }
        }
        if (kept == before || kept == WEFTI_INTERFACES_MOST) {
            for (int i = 0; i < reach->own_count; i++) {
                size_t used = strlen(known);
                snprintf(known + used, sizeof(known) - used, " %s",
                         reach->own[i].name);
            }
            return wefti_error(WEFT_ERR_INVALID,
                               "WEFT_NET_INTERFACE=%s: allowed are interfaces "
                               "that are up and have an IPv4 address:%s",
                               names, known);
        }
        at += characters;
        at += *at == ',';
    }
    memcpy(reach->own, found, (size_t)kept * sizeof(found[0]));
    reach->own_count = kept;
    return WEFT_OK;
}

weft_status wefti_reach_open(const wefti_membership *membership,
                             wefti_reach **reach_out)
{
    wefti_reach *reach = calloc(1, sizeof(*reach));
    if (!reach) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "no memory to look for interfaces");
    }
    reach->membership = membership;
    reach->stop_fd = -1;
    wefti_oob_listener_init(&reach->listener, -1, &reach->secret);
    weft_status status = wefti_interface_list(reach->own, &reach->own_count);
    if (status == WEFT_OK && wefti_setting_given(WEFTI_SETTING_NET_INTERFACE)) {
        status = keep_named(reach);
    }
    if (status != WEFT_OK) {
        free(reach);
        return status;
    }
    *reach_out = reach;
    return WEFT_OK;
}

void wefti_reach_close(wefti_reach *reach)
{
    if (!reach) {
        return;
    }
    if (reach->answering) {
        wefti_event_ring(reach->stop_fd);
        pthread_join(reach->thread, NULL);
    }
    wefti_oob_listener_close(&reach->listener);
    if (reach->stop_fd >= 0) {
        close(reach->stop_fd);
    }
    sodium_memzero(reach, sizeof(*reach)); /* its keys */
    free(reach);
}

/* A sealed message proves this rank; a peer that has greeted gets one. */
static void prove(void *context, wefti_oob_connection *peer)
{
    const wefti_oob_message accepted = {.kind = WEFTI_OOB_ACCEPTED};
    wefti_oob_message message;
    (void)context;
    const wefti_oob_arrival arrival =
        wefti_oob_connection_next(peer, 0, &message);
    if (peer->stage == WEFTI_OOB_STAGE_OPEN) {
        weft_status status = wefti_oob_connection_post(peer, &accepted);
        (void)status; /* without it the peer tries again */
    } else if (arrival == WEFTI_OOB_ARRIVAL_NONE) {
        return;
    }
    wefti_oob_connection_fini(peer);
}

static void *answer(void *argument)
{
    wefti_reach *reach = argument;
    for (;;) {
        struct pollfd polled[1 + WEFTI_OOB_LISTENER_POLLED];
        polled[0] = (struct pollfd){.fd = reach->stop_fd, .events = POLLIN};
        const nfds_t count =
            wefti_oob_listener_watch(&reach->listener, polled + 1);
        const int news = poll(
            polled, 1 + count,
            wefti_clock_poll_ms(wefti_oob_listener_next_ns(&reach->listener)));
        if ((news < 0 && errno != EINTR) || (news > 0 && polled[0].revents)) {
            return NULL;
        }
        wefti_oob_listener_serve(&reach->listener, polled + 1,
                                 news > 0 ? count : 0, prove, NULL);
    }
}

static weft_status start_answering(wefti_reach *reach, uint16_t *port_out)
{
    unsigned char packed[WEFTI_ADDRESS_BYTES];
    wefti_endpoint own;
    int fd;
    derive_secret(reach->membership, reach->membership->rank, &reach->secret);
    reach->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (reach->stop_fd < 0) {
        return wefti_error_system("to be found by others (eventfd)");
    }
    wefti_endpoint_v4("the search for interfaces", htonl(INADDR_ANY), 0, &own);
    weft_status status = wefti_endpoint_listen(&own, &fd);
    if (status != WEFT_OK) {
        return status;
    }
    wefti_oob_listener_init(&reach->listener, fd, &reach->secret);
    wefti_endpoint_pack(&own, packed);
    *port_out = (uint16_t)(packed[1] << 8 | packed[2]);
    reach->answering = wefti_thread_start(answer, reach, &reach->thread) == 0;
    return reach->answering
               ? WEFT_OK
               : wefti_error_system("thread to answer (pthread_create)");
}

/* The port, how many addresses there are, and these. */
static void walk_offer(wefti_oob_cursor *cursor, uint16_t *port,
                       uint32_t *count, wefti_interface *addresses)
{
    wefti_oob_cursor_short(cursor, port);
    wefti_oob_cursor_number(cursor, count, 1);
    for (uint32_t i = 0; i < *count && i < WEFTI_INTERFACES_MOST; i++) {
        wefti_interface *one = &addresses[i];
        wefti_oob_cursor_bytes(cursor, &one->address, sizeof(one->address));
        wefti_oob_cursor_bytes(cursor, &one->mask, sizeof(one->mask));
        wefti_oob_cursor_bytes(cursor, one->name, sizeof(one->name));
        one->name[sizeof(one->name) - 1] = '\0';
    }
}

weft_status wefti_reach_offer(wefti_reach *reach,
                              unsigned char info_out[WEFTI_INFO_BYTES],
                              size_t *info_bytes_out)
{
    const wefti_membership *membership = reach->membership;
    wefti_oob_cursor cursor = {.to = info_out, .left_bytes = WEFTI_INFO_BYTES};
    uint16_t port;
    *info_bytes_out = 0;
    if (membership->members[membership->rank].domain == 0) {
        memcpy(reach->first, reach->own, sizeof(reach->first));
        reach->first_count = reach->own_count;
    }
    if (membership->members[membership->rank].domain != membership->rank) {
        return WEFT_OK;
    }
    weft_status status = start_answering(reach, &port);
    if (status != WEFT_OK) {
        return status;
    }
    uint32_t count = (uint32_t)reach->own_count;
    walk_offer(&cursor, &port, &count, reach->own);
    *info_bytes_out = WEFTI_INFO_BYTES - cursor.left_bytes;
    return WEFT_OK;
}

weft_status wefti_reach_take(wefti_reach *reach, int rank,
                             const unsigned char *info, size_t info_bytes)
{
    target offer = {.rank = rank};
    wefti_oob_cursor cursor = {.from = info, .left_bytes = info_bytes};
    uint32_t count = 0;
    walk_offer(&cursor, &offer.port, &count, offer.addresses);
    offer.count = (int)count;
    if (cursor.bad || cursor.left_bytes || offer.port == 0 ||
        offer.count > WEFTI_INTERFACES_MOST) {
        return wefti_error(WEFT_ERR_BOOTSTRAP,
                           "rank %d's info names no addresses", rank);
    }
    if (rank == 0) {
        memcpy(reach->first, offer.addresses, sizeof(reach->first));
        reach->first_count = offer.count;
    }
    derive_secret(reach->membership, rank, &offer.secret);
    /* The next few in rank order, so that not all try the same ones. */
    int place = reach->target_count;
    if (place == TARGETS_MOST) {
        if (reach->targets[0].rank > reach->membership->rank ||
            rank < reach->membership->rank) {
            return WEFT_OK;
        }
        memmove(reach->targets, reach->targets + 1,
                (TARGETS_MOST - 1) * sizeof(reach->targets[0]));
        place = TARGETS_MOST - 1;
    } else {
        reach->target_count++;
    }
    reach->targets[place] = offer;
    return WEFT_OK;
}

/* Whether it is this host that lacks what a connection needs. */
static bool is_lack(int failure)
{
    return failure == ENOBUFS || failure == ENOMEM || failure == EMFILE ||
           failure == ENFILE;
}

static weft_status begin_try(const wefti_reach *reach, int which, int address,
                             try *out)
{
    const target *to = &reach->targets[which];
    wefti_endpoint where;
    wefti_endpoint_v4(NULL, to->addresses[address].address, to->port, &where);
    *out = (try){.target = which, .address = address, .own = -1};
    weft_status status = wefti_oob_connection_open(
        &out->connection, &where, &to->secret, WEFTI_OOB_CLIENT_MOST);
    if (status == WEFT_OK && is_lack(out->connection.failure)) {
        errno = out->connection.failure;
        status = wefti_error_system("to look for interfaces (%s)",
                                    out->connection.failed_call);
    }
    return status;
}

/* Which of our interfaces a connection has taken; -1: none that we know. */
static int find_own(const wefti_reach *reach, int fd)
{
    struct sockaddr_in address = {0};
    socklen_t address_bytes = sizeof(address);
    if (getsockname(fd, (struct sockaddr *)&address, &address_bytes) != 0) {
        return -1;
    }
    for (int i = 0; i < reach->own_count; i++) {
        if (reach->own[i].address == address.sin_addr.s_addr) {
            return i;
        }
    }
    return -1;
}

/* A connection has news: the proof, something else, or its end. */
static void read_try(wefti_reach *reach, try *self, short revents)
{
    wefti_oob_connection *connection = &self->connection;
    wefti_oob_message message;
    wefti_oob_arrival arrival;
    wefti_oob_connection_serve(connection, revents);
    if (connection->fd < 0) {
        return; /* nothing listens there */
    }
    do {
        arrival = wefti_oob_connection_next(
            connection, WEFTI_KIND_BIT(WEFTI_OOB_ACCEPTED), &message);
    } while (arrival == WEFTI_OOB_ARRIVAL_READY);
    if (arrival == WEFTI_OOB_ARRIVAL_NONE) {
        return;
    }
    if (arrival == WEFTI_OOB_ARRIVAL_MESSAGE) {
        self->own = find_own(reach, connection->fd);
        self->answered = self->own >= 0;
        self->took_ns = wefti_clock_ns() - connection->since_ns;
        reach->targets[self->target].answered |= self->answered;
    }
    wefti_oob_connection_fini(connection);
}

static bool all_answered(const wefti_reach *reach)
{
    for (int i = 0; i < reach->target_count; i++) {
        if (!reach->targets[i].answered) {
            return false;
        }
    }
    return true;
}

/* Until all have answered, and those slower a little longer. */
static void run_tries(wefti_reach *reach, try *tries, int count)
{
    int64_t until_ns = wefti_clock_ns() + LIMIT_MS * INT64_C(1000000);
    bool content = false;
    for (;;) {
        struct pollfd wait[TRIES_MOST];
        int open = 0;
        for (int i = 0; i < count; i++) {
            const wefti_oob_connection *connection = &tries[i].connection;
            wait[i] = (struct pollfd){
                .fd = connection->fd,
                .events = wefti_oob_connection_events(connection)};
            open += connection->fd >= 0;
        }
        if (!content && all_answered(reach)) {
            content = true;
            until_ns = wefti_clock_ns() + GRACE_MS * INT64_C(1000000);
        }
        if (open == 0 || wefti_clock_ns() >= until_ns) {
            return;
        }
        (void)poll(wait, (nfds_t)count, wefti_clock_poll_ms(until_ns));
        for (int i = 0; i < count; i++) {
            if (wait[i].fd >= 0 && wait[i].revents) {
                read_try(reach, &tries[i], wait[i].revents);
            }
        }
    }
}

/* The quickest answer that interface i got; NULL: none. */
static const try *best_try(const try *tries, int count, int i)
{
    const try *best = NULL;
    for (int t = 0; t < count; t++) {
        if (tries[t].answered && tries[t].own == i &&
            (!best || tries[t].took_ns < best->took_ns)) {
            best = &tries[t];
        }
    }
    return best;
}

/* A real one before the loopback, then a faster, then the first. */
static bool is_better(const wefti_interface *a, const wefti_interface *b)
{
    if (a->loopback != b->loopback) {
        return b->loopback;
    }
    return a->mbps > b->mbps;
}

/* Whether all that were tried answered interface i from its own network. */
static bool is_common(const wefti_reach *reach, const try *tries, int count,
                      int i)
{
    bool answered[TARGETS_MOST] = {false};
    bool all = !reach->own[i].loopback && reach->target_count > 0;
    for (int t = 0; t < count; t++) {
        const target *to = &reach->targets[tries[t].target];
        answered[tries[t].target] |=
            tries[t].answered && tries[t].own == i &&
            wefti_interface_is_beside(&reach->own[i],
                                      &to->addresses[tries[t].address]);
    }
    for (int t = 0; t < reach->target_count; t++) {
        all = all && answered[t];
    }
    return all;
}

static bool is_used(const wefti_interface_use *use, const char *name)
{
    const size_t length = strlen(name);
    const char *at = use->names;
    while (*at && (strcspn(at, ",") != length || strncmp(at, name, length))) {
        at += strcspn(at, ",");
        at += *at == ',';
    }
    return *at != '\0';
}

static void explain(const wefti_reach *reach, const try *tries, int count,
                    const wefti_interface_use *use, bool forced)
{
    const size_t first = strcspn(use->names, ",");
    for (int i = 0; i < reach->own_count; i++) {
        const try *best = best_try(tries, count, i);
        const wefti_interface *own = &reach->own[i];
        char address[16];
        wefti_interface_text(own->address, address);
        const bool leads = strlen(own->name) == first &&
                           strncmp(own->name, use->names, first) == 0;
        if (best) {
            wefti_log(WEFTI_LOG_INFO, reach->membership->rank,
                      "net: %s %s: %s, rank %d answered in %.1f ms", own->name,
                      address,
                      forced  ? "used, named by WEFT_NET_INTERFACE"
                      : leads ? "used"
                      : is_used(use, own->name) ? "a rail, if all ranks have it"
                      : is_common(reach, tries, count, i)
                          ? "not used, another is as good or better"
                          : "not used, as it does not lead to all hosts",
                      reach->targets[best->target].rank,
                      (double)best->took_ns / 1e6);
        } else {
            wefti_log(
                WEFTI_LOG_INFO, reach->membership->rank,
                "net: %s %s: %s, nobody answered over it", own->name, address,
                forced ? "used, named by WEFT_NET_INTERFACE" : "not used");
        }
    }
}

static weft_status complain(const wefti_reach *reach)
{
    const target *silent = reach->targets;
    char addresses[160] = "";
    while (silent->answered) {
        silent++;
    }
    for (int i = 0; i < silent->count; i++) {
        size_t used = strlen(addresses);
        char text[16];
        wefti_interface_text(silent->addresses[i].address, text);
        snprintf(addresses + used, sizeof(addresses) - used, " %s", text);
    }
    return wefti_error(WEFT_ERR_BOOTSTRAP,
                       "rank %d answers on none of its addresses:%s (is there "
                       "a firewall, or no route between the hosts?)",
                       silent->rank, addresses);
}

/* The rail that interface i is on: which of rank 0's; -1: none. */
static int find_rail(const wefti_reach *reach, int i)
{
    for (int rail = 0; rail < reach->first_count; rail++) {
        if (!reach->first[rail].loopback &&
            wefti_interface_is_beside(&reach->own[i], &reach->first[rail])) {
            return rail;
        }
    }
    return -1;
}

/* The chosen one, and behind it the others that all tried hosts have, in rank
 * 0's order. */
static void add_rails(const wefti_reach *reach, const try *tries, int count,
                      int chosen, int most, wefti_interface_use *use)
{
    int rail = find_rail(reach, chosen);
    wefti_interface_add(use, reach->own[chosen].name,
                        rail < 0 ? 0 : reach->first[rail].address);
    const int taken = rail;
    for (rail = 0; rail < reach->first_count && taken >= 0; rail++) {
        int i = 0;
        while (i < reach->own_count &&
               (rail == taken || find_rail(reach, i) != rail ||
                !is_common(reach, tries, count, i))) {
            i++;
        }
        if (i < reach->own_count && use->count < most) {
            wefti_interface_add(use, reach->own[i].name,
                                reach->first[rail].address);
        }
    }
}

weft_status wefti_reach_choose(wefti_reach *reach, int most,
                               wefti_interface_use *use_out)
{
    const bool forced = wefti_setting_given(WEFTI_SETTING_NET_INTERFACE);
    try tries[TRIES_MOST];
    int count = 0, chosen = -1;
    weft_status status = WEFT_OK;
    *use_out = (wefti_interface_use){.count = 0};
    for (int t = 0; t < reach->target_count; t++) {
        for (int i = 0; i < reach->targets[t].count && status == WEFT_OK; i++) {
            status = begin_try(reach, t, i, &tries[count++]);
        }
    }
    if (status == WEFT_OK) {
        run_tries(reach, tries, count);
    }
    for (int i = 0; i < count; i++) {
        wefti_oob_connection_fini(&tries[i].connection);
    }
    if (status != WEFT_OK) {
        return status;
    }
    for (int i = 0; i < reach->own_count; i++) {
        bool better =
            best_try(tries, count, i) &&
            (chosen < 0 || is_better(&reach->own[i], &reach->own[chosen]));
        chosen = better ? i : chosen;
        if (forced) {
            wefti_interface_add(use_out, reach->own[i].name, (uint32_t)i + 1);
        }
    }
    if (!forced && chosen >= 0) {
        add_rails(reach, tries, count, chosen, most, use_out);
    }
    explain(reach, tries, count, use_out, forced);
    return all_answered(reach) ? WEFT_OK : complain(reach);
}
