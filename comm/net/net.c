/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/net.c - sending, and what to do with what came.
 *
 * A sender that does not know the job's key is not authenticated: its message
 * is dropped. A message with the key that cannot be right is a broken peer: the
 * communicator fails with its name, and nothing has changed.
 */
#include "comm/net/net.h"

#include "base/clock.h"
#include "base/log.h"
#include "comm/control/channel.h"
#include "comm/control/fault.h"
#include "comm/net/remote.h"
#include "comm/net/rounds.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SKEW_PERIOD_NS = 1000000000,
    LINGER_NS = 1000000000,       /* for the farewells of others */
    LINGER_FAILED_NS = 200000000, /* when some of them may be dead */
    LINGER_LOOK_MS = 5,
    CLOSE_MS = 200,
    PROGRESS_MOST = 64, /* in a row, by who has other things to do */
    UNTOLD_NS = 1000000000,
    LAST_WORDS_NS = 100000000
};

static void learn_skew(wefti_net_peer *peer, int64_t sent_ns, int64_t now_ns)
{
    const int64_t skew_ns = now_ns - sent_ns;
    if (peer->skew_since_ns == 0) {
        peer->skew_ns[0] = peer->skew_ns[1] = skew_ns;
        peer->skew_since_ns = now_ns;
    } else if (now_ns - peer->skew_since_ns > SKEW_PERIOD_NS) {
        peer->skew_ns[1] = peer->skew_ns[0];
        peer->skew_ns[0] = skew_ns;
        peer->skew_since_ns = now_ns;
    } else if (skew_ns < peer->skew_ns[0]) {
        peer->skew_ns[0] = skew_ns;
    }
}

static int64_t skew_of(const wefti_net_peer *peer)
{
    return peer->skew_ns[0] < peer->skew_ns[1] ? peer->skew_ns[0]
                                               : peer->skew_ns[1];
}

static weft_comm *find_comm(const wefti_net *net, uint64_t id)
{
    weft_comm *comm = net->engine->comms;
    while (comm && comm->fabric.id != id) {
        comm = comm->next;
    }
    return comm;
}

static void warn_strange(wefti_net *net)
{
    wefti_log(net->strange ? WEFTI_LOG_DEBUG : WEFTI_LOG_WARN, net->rank,
              "net: dropped a message that is not of this job");
    net->strange = true;
}

/* LEFT counts once all that was sent before it has come. */
static void note_leaving(weft_comm *comm, const wefti_wire *wire)
{
    wefti_line *line = &comm->fabric.lines[wire->from];
    if (wire->kind == WEFTI_WIRE_LEFT && line->leaving == WEFTI_LEAVE_NONE) {
        line->leaving = (wefti_leave)wire->words[0];
        line->leaves_after = wire->before;
    }
    line->got++;
    wefti_rank_page *page =
        wefti_shared_get_page(&comm->fabric.shared, (int)wire->from);
    if (line->leaving != WEFTI_LEAVE_NONE && line->got > line->leaves_after &&
        atomic_load(&page->left) == WEFTI_LEAVE_NONE) {
        line->left_ns = wefti_clock_ns();
        atomic_store(&page->left, line->leaving);
    }
}

/* Whether the message is from a rank that this one reaches by the network. */
static bool is_known(const weft_comm *comm, const wefti_wire *wire)
{
    return wire->from < (uint32_t)comm->nranks &&
           comm->fabric.tables[wire->from] == &wefti_fabric_net;
}

static wefti_wire_view view_of(const weft_comm *comm, const wefti_wire *wire)
{
    const wefti_fabric *fabric = &comm->fabric;
    const wefti_fabric_path path = {.peer = (int)wire->from};
    const size_t first = wefti_fabric_cell(&path);
    return (wefti_wire_view){.shared = &fabric->shared,
                             .inbound = fabric->inbound,
                             .rank = comm->rank,
                             .completed = comm->settled,
                             .posted = fabric->posted + first,
                             .taken = fabric->taken + first,
                             .awaited = fabric->awaited + first};
}

static void deliver(wefti_net *net, weft_comm *comm, const wefti_wire *wire,
                    const void *data, size_t data_bytes)
{
    const wefti_fabric_path path = {.peer = (int)wire->from};
    if (!is_known(comm, wire)) {
        warn_strange(net);
        return;
    }
    const wefti_wire_view view = view_of(comm, wire);
    if (!wefti_wire_check(wire, data_bytes, &view)) {
        wefti_fault_publish(comm, WEFT_ERR_PEER, path.peer, 0,
                            "rank %d got a message of kind %d from rank %d on "
                            "\"%s\" that cannot be right, and dropped it",
                            comm->rank, wire->kind, path.peer, comm->name);
        return;
    }
    wefti_net_peer *peer = &net->peers[comm->peers[path.peer].world_rank];
    const int64_t now_ns = wefti_clock_ns();
    peer->spoken = true;
    atomic_store_explicit(&peer->heard_ns, now_ns, memory_order_relaxed);
    learn_skew(peer, wire->sent_ns, now_ns);
    if (wire->kind == WEFTI_WIRE_MESSAGE || wire->kind == WEFTI_WIRE_ENTRY) {
        net->received_bytes += data_bytes;
    }
    if (!wefti_wire_apply(wire, data, data_bytes, &view, skew_of(peer),
                          now_ns)) {
        wefti_fault_publish(comm, WEFT_ERR_NO_MEMORY, comm->rank, 0,
                            "rank %d has no memory for a message of %zu bytes "
                            "from rank %d on \"%s\"",
                            comm->rank, data_bytes, path.peer, comm->name);
        return;
    }
    wefti_rounds_receive(&comm->fabric, path.peer, wire->all_completed);
    if (wire->kind == WEFTI_WIRE_WAITING) {
        comm->fabric.lines[path.peer].asked = comm->fabric.asked = true;
    }
    note_leaving(comm, wire);
}

void wefti_net_arrived(void *context, const void *header, size_t header_bytes,
                       const void *data, size_t data_bytes)
{
    wefti_net *net = context;
    wefti_wire wire;
    net->news = true;
    if (!wefti_wire_decode(header, header_bytes, &wire) ||
        wire.key != net->key) {
        warn_strange(net);
        return;
    }
    if (wire.kind == WEFTI_WIRE_BYE) {
        if (wire.from < (uint32_t)net->nranks) {
            net->peers[wire.from].farewell = true;
            net->peers[wire.from].spoken = true;
        }
        return;
    }
    net->late_messages += net->hurried && wire.kind == WEFTI_WIRE_MESSAGE;
    weft_comm *comm = find_comm(net, wire.comm);
    if (comm) {
        deliver(net, comm, &wire, data, data_bytes);
    } else { /* one that this rank has destroyed */
        wefti_ended_hear(net, &wire);
    }
}

void *wefti_net_place(void *context, const void *header, size_t header_bytes,
                      size_t data_bytes)
{
    const wefti_net *net = context;
    wefti_wire wire;
    if (!wefti_wire_decode(header, header_bytes, &wire) ||
        wire.key != net->key || wire.kind == WEFTI_WIRE_BYE) {
        return NULL;
    }
    const weft_comm *comm = find_comm(net, wire.comm);
    if (!comm || !is_known(comm, &wire)) {
        return NULL;
    }
    const wefti_wire_view view = view_of(comm, &wire);
    return wefti_wire_check(&wire, data_bytes, &view)
               ? wefti_wire_place(&wire, data_bytes, &view)
               : NULL;
}

void wefti_net_lost(void *context, int peer, const char *why)
{
    wefti_net *net = context;
    net->peers[peer].lost = true;
    atomic_store_explicit(&net->peers[peer].lost_ns, wefti_clock_ns(),
                          memory_order_relaxed);
    atomic_store(&net->peers[peer].ended, net->peers[peer].farewell);
    net->news = true;
    wefti_log(WEFTI_LOG_DEBUG, net->rank, "net: rank %d is lost: %s", peer,
              why);
}

void wefti_net_unreached(void *context, int peer, const char *device,
                         const char *why)
{
    const wefti_net *net = context;
    wefti_log(WEFTI_LOG_WARN, net->rank,
              "net: %s does not lead to rank %d, and is not used to it: %s",
              device, peer, why);
}

void wefti_net_silent(void *context, int peer, const char *device)
{
    wefti_net *net = context;
    wefti_net_peer *other = &net->peers[peer];
    snprintf(other->cut, sizeof(other->cut),
             "does not answer over %s: that link is down", device);
    atomic_store_explicit(&other->is_cut, true, memory_order_release);
    wefti_log(WEFTI_LOG_WARN, net->rank, "net: rank %d %s", peer, other->cut);
}

const char *wefti_net_get_cut(const wefti_net *net, int peer)
{
    const wefti_net_peer *other = &net->peers[peer];
    return atomic_load_explicit(&other->is_cut, memory_order_acquire)
               ? other->cut
               : NULL;
}

void wefti_net_send(wefti_net *net, int peer, const wefti_wire *wire,
                    const wefti_net_load *load)
{
    wefti_port_message message = {.peer = peer,
                                  .header = wire,
                                  .header_bytes = sizeof(*wire),
                                  .memory = WEFTI_PORT_MEMORY_HOST,
                                  .last = wire->kind == WEFTI_WIRE_BYE};
    if (load) {
        message.data = load->data;
        message.data_bytes = load->bytes;
        message.urgent = load->urgent;
        message.lent = load->lent;
    }
    _Static_assert(sizeof(*wire) <= WEFTI_PORT_HEADER_BYTES, "header's room");
    net->peers[peer].spoken = true;
    net->sent_messages++;
    net->table->send(net->port, &message);
}

bool wefti_net_lends(const wefti_net *net)
{
    return net->table->give_back != NULL;
}

void wefti_net_give_back(wefti_net *net, const size_t *lent)
{
    net->table->give_back(net->port, lent);
}

bool wefti_net_has_queued(const wefti_net *net, int peer)
{
    return net->table->queued(net->port, peer) > 0;
}

/* Where nothing counts its messages, forgets peers to which nothing is queued.
 */
static bool is_sent(const wefti_net *net, wefti_net_sent *sent)
{
    if (wefti_net_lends(net)) {
        return sent->unsent == 0;
    }
    const int asked = net->table->unsent(net->port) > 0 ? sent->peer_count : 0;
    int left = 0;
    for (int i = 0; i < asked; i++) {
        if (wefti_net_has_queued(net, sent->peers[i])) {
            sent->peers[left++] = sent->peers[i];
        }
    }
    sent->peer_count = left;
    return left == 0;
}

/* all: there is no port any more. */
static void finish_sent(wefti_net *net, bool all)
{
    wefti_net_sent **link = &net->awaiting;
    while (*link) {
        wefti_net_sent *at = *link;
        if (all || is_sent(net, at)) {
            *link = at->next;
            at->done(at->context);
        } else {
            link = &at->next;
        }
    }
}

bool wefti_net_progress(wefti_net *net)
{
    net->news = false;
    bool moved = net->table->progress(net->port);
    if (net->asked) {
        wefti_ended_answer(net);
    }
    if (net->awaiting) {
        finish_sent(net, false);
    }
    return moved || net->news;
}

bool wefti_net_drain(wefti_net *net)
{
    int moves = 0;
    while (moves < PROGRESS_MOST && wefti_net_progress(net)) {
        moves++;
    }
    return moves > 0;
}

void wefti_net_tell_released(wefti_net *net)
{
    for (weft_comm *comm = net->engine->comms; comm; comm = comm->next) {
        wefti_remote_tell_released(&comm->fabric);
        wefti_remote_tell_due(&comm->fabric);
    }
}

void wefti_net_hold(wefti_net *net, bool on)
{
    net->table->hold(net->port, on);
}

bool wefti_net_when_sent(wefti_net *net, wefti_net_sent *sent)
{
    if (is_sent(net, sent)) {
        return false;
    }
    sent->next = net->awaiting;
    net->awaiting = sent;
    if (atomic_load(&net->engine->drivers) == 0) {
        wefti_net_leave(net, false);
    }
    return true;
}

/* Before a pause: peers may wait for this rank to have come so far. */
static void tell_completed(wefti_net *net)
{
    for (weft_comm *comm = net->engine->comms; comm; comm = comm->next) {
        wefti_remote_tell_completed(&comm->fabric);
    }
}

void wefti_net_expect(wefti_net *net, int peer, wefti_port_expected expected)
{
    if (net->table->expect) {
        expected.bytes += expected.messages * sizeof(wefti_wire);
        net->table->expect(net->port, peer, &expected);
    }
}

void wefti_net_hurry(wefti_net *net)
{
    net->hurried = net->table->hurry && net->table->hurry(net->port);
}

bool wefti_net_arm(wefti_net *net)
{
    net->hurried = false;
    tell_completed(net);
    if (!net->table->arm(net->port)) {
        return false;
    }
    wefti_net_watch_arm(net->watch);
    return true;
}

static void hand_over(wefti_net *net)
{
    tell_completed(net);
    while (!net->table->arm(net->port)) {
        (void)wefti_net_progress(net);
    }
    wefti_net_watch_arm(net->watch);
}

void wefti_net_leave(wefti_net *net, bool long_idle)
{
    wefti_net_hurry(net); /* no thread is left that would know better */
    if (long_idle || net->table->unsent(net->port) > 0) {
        hand_over(net);
    } else {
        wefti_net_watch_leave(net->watch);
    }
}

/*
 * The channel knows who has died, and why. What a peer had sent before may
 * still be on its way, so its connection, if there is one, has the last word;
 * and the first where the channel is silent, because the thread that leads
 * there is stopped.
 */
bool wefti_net_is_lost(wefti_net *net, int peer)
{
    wefti_net_peer *other = &net->peers[peer];
    const wefti_rank_outcome outcome =
        wefti_control_get_outcome(net->engine->control, peer);
    const int64_t now_ns = wefti_clock_ns();
    const int64_t lost_ns =
        atomic_load_explicit(&other->lost_ns, memory_order_relaxed);
    int64_t told_ns =
        atomic_load_explicit(&other->told_ns, memory_order_relaxed);
    if (outcome == WEFTI_RANK_OUTCOME_NONE) {
        return lost_ns &&
               (now_ns - lost_ns > UNTOLD_NS || wefti_net_get_cut(net, peer));
    }
    if (told_ns == 0) {
        atomic_store_explicit(&other->told_ns, now_ns, memory_order_relaxed);
        told_ns = now_ns;
    }
    const int64_t heard_ns =
        atomic_load_explicit(&other->heard_ns, memory_order_relaxed);
    return outcome == WEFTI_RANK_OUTCOME_CUT || lost_ns ||
           (now_ns - told_ns > LAST_WORDS_NS &&
            now_ns - heard_ns > LAST_WORDS_NS);
}

int64_t wefti_net_get_end_ns(wefti_net *net, int peer)
{
    const wefti_net_peer *other = &net->peers[peer];
    if (wefti_control_get_outcome(net->engine->control, peer) ==
        WEFTI_RANK_OUTCOME_LEFT) {
        /* What it sent last may be on its way yet. */
        return wefti_net_is_lost(net, peer)
                   ? atomic_load_explicit(&other->told_ns, memory_order_relaxed)
                   : 0;
    }
    return atomic_load(&other->ended)
               ? atomic_load_explicit(&other->lost_ns, memory_order_relaxed)
               : 0;
}

static bool all_gone(const wefti_net *net)
{
    for (int peer = 0; peer < net->nranks; peer++) {
        const wefti_net_peer *other = &net->peers[peer];
        if (other->spoken && !other->lost && !other->farewell) {
            return false;
        }
    }
    return true;
}

/*
 * A connection that closes on bytes it has not read resets its peer's, with
 * what the peer has not read either. So no rank closes before all have said
 * that they will send no more, or a while has passed.
 */
static void send_farewell(wefti_net *net)
{
    bool failed = false;
    for (int peer = 0; peer < net->nranks; peer++) {
        const wefti_wire bye = {.key = net->key,
                                .version = WEFTI_WIRE_VERSION,
                                .kind = WEFTI_WIRE_BYE,
                                .from = (uint32_t)net->rank,
                                .sent_ns = wefti_clock_ns()};
        const wefti_net_peer *other = &net->peers[peer];
        failed |= other->lost && !other->farewell;
        if (other->spoken && !other->lost) {
            wefti_net_send(net, peer, &bye, NULL);
        }
    }
    wefti_net_hurry(net);
    const int64_t until_ns =
        wefti_clock_ns() +
        (failed || net->engine->failed ? LINGER_FAILED_NS : LINGER_NS);
    while (!all_gone(net) && wefti_clock_ns() < until_ns) {
        if (!wefti_net_progress(net) && net->table->arm(net->port)) {
            struct pollfd news = {.fd = net->table->event_fd(net->port),
                                  .events = POLLIN};
            (void)poll(&news, 1, LINGER_LOOK_MS);
        }
    }
}

void wefti_net_close(wefti_net *net)
{
    if (!net) {
        return;
    }
    wefti_net_settle(net);
    wefti_net_watch_stop(net->watch);
    if (net->port) {
        net->closing = true;
        send_farewell(net);
        net->table->close(net->port, CLOSE_MS);
    }
    for (int peer = 0; peer < net->nranks; peer++) {
        free(net->peers[peer].address);
    }
    finish_sent(net, true);
    wefti_ended_fini(net);
    free(net->peers);
    free(net);
}

void wefti_net_text(const wefti_net *net, char *text_out, size_t text_bytes)
{
    uint64_t sent = 0, received = 0;
    text_out[0] = '\0';
    if (!net) {
        return;
    }
    wefti_interface_count(&net->use, &sent, &received);
    snprintf(text_out, text_bytes,
             "net: %s, payload sent %llu received %llu bytes; %s sent %llu "
             "received %llu bytes since, other traffic included\n",
             net->table->name, (unsigned long long)net->sent_bytes,
             (unsigned long long)net->received_bytes, net->use.names,
             (unsigned long long)sent, (unsigned long long)received);
}
