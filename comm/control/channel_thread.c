/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/control/channel_thread.c - what the channel's thread does: which rank
 * leads, which peers it connects to, and what the end of a connection or of a
 * process means.
 */
#include "comm/control/channel_state.h"

#include "base/clock.h"
#include "base/log.h"

#include <string.h>

enum {
    GLARE_NS = 300000000, /* the lower rank waits to be called so long */
    LOST_PAUSE_NS = 5000000,
    ASK_PAUSE_NS = 20000000,
    ASK_NS = 1000000000,       /* for its domain to say how a rank has ended */
    CLOSING_NS = 1000000000,   /* for notices still on their way */
    FAREWELL_NS = 1000000000,  /* for others to hear of the leave */
    UNANSWERED_NS = 200000000, /* for answers to what has been delivered */
    UNANSWERED_POLL_NS = 20000000
};

/* Then another process listens there. A rank whose thread is kept from its
 * processor for seconds drops who waits to prove himself, and is not dead. */
static const int64_t lost_most_ns = 30 * INT64_C(1000000000);

static const char *outcome_text(wefti_rank_outcome outcome)
{
    return outcome == WEFTI_RANK_OUTCOME_DEAD  ? "has died"
           : outcome == WEFTI_RANK_OUTCOME_CUT ? "does not answer"
                                               : "has left";
}

static void set_outcome(wefti_control *control, int rank,
                        wefti_rank_outcome outcome)
{
    uint8_t none = WEFTI_RANK_OUTCOME_NONE;
    if (atomic_compare_exchange_strong(&control->outcomes[rank], &none,
                                       (uint8_t)outcome)) {
        wefti_log(WEFTI_LOG_INFO, control->self.rank, "control: rank %d %s",
                  rank, outcome_text(outcome));
    }
}

static bool is_local(const wefti_control *control, int rank)
{
    return control->domains[rank] == control->domains[control->self.rank];
}

/* The lowest rank of a domain that has not ended; -1: all have. */
static int find_leader(const wefti_control *control, int domain)
{
    for (int rank = domain; rank < control->self.nranks; rank++) {
        if (control->domains[rank] == domain &&
            wefti_control_get_outcome(control, rank) ==
                WEFTI_RANK_OUTCOME_NONE) {
            return rank;
        }
    }
    return -1;
}

wefti_peer_probe *wefti_control_find_probe(wefti_control *control, int rank)
{
    wefti_peer_probe *found = NULL;
    for (int i = 0; i < control->probe_count; i++) {
        wefti_peer_probe *probe = &control->probes[i];
        if (probe->state != WEFTI_PEER_NONE && probe->peer == rank &&
            !probe->leaving && (!found || probe->state == WEFTI_PEER_OPEN)) {
            found = probe;
        }
    }
    return found;
}

static wefti_peer_probe *find_place(wefti_control *control)
{
    for (int i = 0; i < control->probe_count; i++) {
        if (control->probes[i].state == WEFTI_PEER_NONE) {
            return &control->probes[i];
        }
    }
    return NULL;
}

void wefti_control_connect(wefti_control *control, int rank, int64_t at_ns)
{
    wefti_peer_probe *place = find_place(control);
    if (place) {
        wefti_peer_probe_open(place, rank, control->addresses[rank],
                              &control->self, at_ns, wefti_clock_ns());
    }
}

/* Says how the other ranks of this domain have ended that have. */
static void send_outcomes(wefti_control *control, wefti_peer_probe *probe)
{
    for (int rank = 0; rank < control->self.nranks; rank++) {
        wefti_rank_outcome outcome = wefti_control_get_outcome(control, rank);
        if (is_local(control, rank) && rank != control->self.rank &&
            outcome != WEFTI_RANK_OUTCOME_NONE) {
            const wefti_note note = {.kind = WEFTI_NOTE_RANK_OUTCOME,
                                     .rank = rank,
                                     .outcome = (uint32_t)outcome};
            wefti_peer_probe_send(probe, &note);
        }
    }
}

static void send_outcomes_to_all(wefti_control *control)
{
    for (int i = 0; i < control->probe_count; i++) {
        if (control->probes[i].state == WEFTI_PEER_OPEN) {
            send_outcomes(control, &control->probes[i]);
        }
    }
}

/* Passes on what rank of this domain has said itself. */
static void send_leave_to_all(wefti_control *control, int rank)
{
    const wefti_note note = {.kind = WEFTI_NOTE_RANK_OUTCOME,
                             .rank = rank,
                             .outcome = WEFTI_RANK_OUTCOME_LEFT};
    for (int i = 0; i < control->probe_count; i++) {
        if (control->probes[i].state == WEFTI_PEER_OPEN &&
            control->probes[i].peer != rank) {
            wefti_peer_probe_send(&control->probes[i], &note);
        }
    }
}

/* A host that is cut off takes all its ranks along. */
static void cut_domain(wefti_control *control, int domain)
{
    for (int rank = 0; rank < control->self.nranks; rank++) {
        if (control->domains[rank] == domain) {
            set_outcome(control, rank, WEFTI_RANK_OUTCOME_CUT);
        }
    }
}

/* The lowest rank of a domain of which nothing speaks against its life. */
static int find_answering(const wefti_control *control, int domain)
{
    int rank = find_leader(control, domain);
    while (
        rank >= 0 && rank < control->self.nranks &&
        (control->domains[rank] != domain || control->refused[rank] ||
         wefti_control_get_outcome(control, rank) != WEFTI_RANK_OUTCOME_NONE)) {
        rank++;
    }
    return rank < control->self.nranks ? rank : -1;
}

/*
 * Nothing listens for peer any more: it has died, or left without a word to
 * this domain, as any rank does but the leader. Its domain knows which. If none
 * is left there to say it, the last has died: it would have said that it
 * leaves.
 */
static void ask_about(wefti_control *control, int peer, int64_t now_ns)
{
    const wefti_note ping = {.kind = WEFTI_NOTE_PING};
    const int domain = control->domains[peer];
    const int other = find_answering(control, domain);
    if (control->asked_ns[peer] == 0) {
        control->asked_ns[peer] = now_ns;
    }
    if (other < 0 || now_ns - control->asked_ns[peer] > ASK_NS) {
        for (int rank = 0; rank < control->self.nranks; rank++) {
            if (control->domains[rank] == domain && control->refused[rank] &&
                (other < 0 || now_ns - control->asked_ns[rank] > ASK_NS)) {
                set_outcome(control, rank, WEFTI_RANK_OUTCOME_DEAD);
            }
        }
        return;
    }
    wefti_peer_probe *probe = wefti_control_find_probe(control, other);
    if (!probe) {
        wefti_control_connect(control, other, now_ns);
    } else if (probe->state == WEFTI_PEER_OPEN) {
        wefti_peer_probe_send(probe, &ping);
    }
    wefti_control_connect(control, peer, now_ns + ASK_PAUSE_NS);
}

/*
 * A probe has ended. Closed or reset, its process has most likely ended, but
 * only its kernel's refusal proves that: so it is called once more.
 */
static void lose(wefti_control *control, wefti_peer_probe *probe,
                 wefti_peer_probe_news news, int64_t now_ns)
{
    const int peer = probe->peer;
    if (probe->told && !probe->leaving && probe->connection.failure != 0) {
        /* Who has read BYE closes in good order. This one has died with it
         * unread, maybe: then another of its domain is to hear it. */
        control->told[peer] = false;
    }
    const bool left = probe->leaving || control->told[peer];
    wefti_peer_probe_close(probe);
    wefti_notices_lost(control, peer);
    control->refused[peer] |= news == WEFTI_PEER_REFUSED;
    if (wefti_control_get_outcome(control, peer) != WEFTI_RANK_OUTCOME_NONE ||
        left || is_local(control, peer)) { /* its pidfd says more */
        return;
    }
    if (control->herald != control->self.rank && news == WEFTI_PEER_REFUSED) {
        return; /* this rank leaves: it has no say */
    }
    if (news == WEFTI_PEER_SILENT) {
        cut_domain(control, control->domains[peer]);
        return;
    }
    const bool again = control->lost_ns[peer] != 0;
    if (!again) {
        control->lost_ns[peer] = now_ns;
    }
    if (news == WEFTI_PEER_REFUSED) {
        ask_about(control, peer, now_ns);
    } else if (now_ns - control->lost_ns[peer] > lost_most_ns) {
        set_outcome(control, peer, WEFTI_RANK_OUTCOME_DEAD);
    } else if (!wefti_control_find_probe(control, peer)) {
        wefti_control_connect(control, peer,
                              again ? now_ns + LOST_PAUSE_NS : now_ns);
    }
}

/* It answers. */
static void forget_loss(wefti_control *control, int peer)
{
    control->lost_ns[peer] = control->asked_ns[peer] = 0;
    control->refused[peer] = false;
}

static void read_probe(wefti_control *control, wefti_peer_probe *probe,
                       int64_t now_ns)
{
    wefti_note note;
    while (probe->state != WEFTI_PEER_NONE) {
        wefti_peer_probe_news news =
            wefti_peer_probe_next(probe, &control->self, now_ns, &note);
        switch (news) {
        case WEFTI_PEER_QUIET:
            return;
        case WEFTI_PEER_READY:
            forget_loss(control, probe->peer);
            send_outcomes(control, probe);
            break;
        case WEFTI_PEER_NOTE:
            if (note.kind == WEFTI_NOTE_RANK_OUTCOME &&
                note.rank != probe->peer &&
                control->domains[note.rank] == control->domains[probe->peer]) {
                set_outcome(control, note.rank,
                            (wefti_rank_outcome)note.outcome);
            } else if (note.kind == WEFTI_NOTE_BYE) {
                probe->leaving = true;
                set_outcome(control, probe->peer, WEFTI_RANK_OUTCOME_LEFT);
                if (is_local(control, probe->peer)) {
                    send_leave_to_all(control, probe->peer);
                }
            } else {
                if (note.kind == WEFTI_NOTE_PING) {
                    send_outcomes(control, probe);
                }
                wefti_control_receive(control, probe, &note);
            }
            break;
        case WEFTI_PEER_LOST:
        case WEFTI_PEER_REFUSED:
        case WEFTI_PEER_SILENT:
            lose(control, probe, news, now_ns);
            return;
        }
    }
}

/* A leader holds a probe with each other one. Returns when to check again. */
static int64_t keep_mesh(wefti_control *control, int64_t now_ns)
{
    const int own = control->self.rank;
    int64_t next_ns = INT64_MAX;
    if (find_leader(control, control->domains[own]) != own) {
        return next_ns;
    }
    for (int domain = 0; domain < control->self.nranks; domain++) {
        if (control->domains[domain] != domain || is_local(control, domain)) {
            continue;
        }
        int leader = find_leader(control, domain);
        if (leader < 0 || wefti_control_find_probe(control, leader)) {
            continue;
        }
        /* Of two that may call each other, the higher one does. */
        if (own > leader || now_ns >= control->began_ns + GLARE_NS) {
            wefti_control_connect(control, leader, now_ns);
        } else {
            next_ns = control->began_ns + GLARE_NS;
        }
    }
    return next_ns;
}

static void add(wefti_control *control, int fd, short events,
                wefti_polled_kind kind, int index)
{
    if (fd >= 0 && control->polled_count < control->polled_room) {
        control->polled[control->polled_count] =
            (struct pollfd){.fd = fd, .events = events};
        control->polled_as[control->polled_count++] =
            (wefti_polled){kind, index};
    }
}

size_t wefti_control_room(const wefti_control *control)
{
    return (size_t)control->polled_room + WEFTI_OOB_LISTENER_POLLED;
}

/* Only what is open: poll counts the others against the limit on files. */
nfds_t wefti_control_watch(wefti_control *control, struct pollfd *polled)
{
    control->polled = polled;
    control->polled_count = 0;
    control->listener_polled = 0;
    if (!atomic_load(&control->active)) {
        return 0;
    }
    for (int i = 0; i < control->probe_count; i++) {
        const wefti_peer_probe *probe = &control->probes[i];
        if (probe->state != WEFTI_PEER_NONE) {
            add(control, probe->connection.fd,
                wefti_oob_connection_events(&probe->connection),
                WEFTI_POLLED_PROBE, i);
        }
    }
    for (int rank = 0; rank < control->self.nranks; rank++) {
        if (control->watched[rank]) {
            add(control, control->engine->members->members[rank].pidfd, POLLIN,
                WEFTI_POLLED_PROCESS, rank);
        }
    }
    control->listener_polled = wefti_oob_listener_watch(
        &control->listener, control->polled + control->polled_count);
    return (nfds_t)control->polled_count + control->listener_polled;
}

static void read_peer(void *context, wefti_oob_connection *peer)
{
    wefti_control *control = context;
    wefti_peer_probe *place = find_place(control);
    if (wefti_peer_probe_accept(place, peer, &control->self)) {
        forget_loss(control, place->peer);
        send_outcomes(control, place);
        read_probe(control, place, wefti_clock_ns());
    }
}

void wefti_control_serve(wefti_control *control)
{
    bool ended = false;
    for (int i = 0; i < control->polled_count; i++) {
        const struct pollfd *polled = &control->polled[i];
        const int index = control->polled_as[i].index;
        if (!polled->revents) {
            continue;
        }
        switch (control->polled_as[i].kind) {
        case WEFTI_POLLED_PROBE:
            wefti_oob_connection_serve(&control->probes[index].connection,
                                       polled->revents);
            break;
        case WEFTI_POLLED_PROCESS:
            control->watched[index] = false;
            set_outcome(control, index, WEFTI_RANK_OUTCOME_DEAD);
            ended = true;
            break;
        }
    }
    wefti_oob_listener_serve(&control->listener,
                             control->polled + control->polled_count,
                             control->listener_polled, read_peer, control);
    if (ended) {
        send_outcomes_to_all(control);
    }
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Whether something is to be sent that its kernel has not taken yet. */
static bool has_output(const wefti_control *control)
{
    bool output = false;
    for (int i = 0; i < control->probe_count; i++) {
        const wefti_peer_probe *probe = &control->probes[i];
        output |= probe->state != WEFTI_PEER_NONE &&
                  wefti_oob_connection_has_output(&probe->connection);
    }
    return output;
}

/* Everything that does not wait for poll. Returns when to come again. */
static int64_t advance(wefti_control *control, int64_t now_ns)
{
    int64_t next_ns = INT64_MAX;
    wefti_oob_listener_expire(&control->listener, now_ns);
    for (int i = 0; i < control->probe_count; i++) {
        read_probe(control, &control->probes[i], now_ns);
    }
    if (!atomic_load(&control->closing)) {
        next_ns = keep_mesh(control, now_ns);
    }
    wefti_notices_take(control, now_ns);
    next_ns = least(next_ns, wefti_notices_advance(control, now_ns));
    next_ns = least(next_ns, wefti_oob_listener_next_ns(&control->listener));
    for (int i = 0; i < control->probe_count; i++) {
        wefti_peer_probe *probe = &control->probes[i];
        /* What was just sent may be owed an acknowledgement. */
        read_probe(control, probe, now_ns);
        if (probe->state != WEFTI_PEER_NONE && probe->leaving &&
            !has_output(control)) {
            lose(control, probe, WEFTI_PEER_LOST, now_ns); /* it waits for it */
        }
        if (probe->state != WEFTI_PEER_NONE) {
            next_ns =
                least(next_ns,
                      wefti_peer_probe_next_ns(probe, &control->self, now_ns));
        }
    }
    return next_ns;
}

/*
 * Whether all notices have gone that are going to. A rank that has been stopped
 * does not answer for what lies in its socket; it will find it there. One that
 * is stopped takes no call either, and is mostly the rank that the fault is
 * about.
 */
static bool notices_are_over(wefti_control *control, int64_t since_ns)
{
    return !control->notices || since_ns > CLOSING_NS ||
           (since_ns > UNANSWERED_NS && wefti_notices_may_end(control));
}

/* To all that are connected. Returns whether one has not closed for it: what
 * only lies with its kernel is lost if it dies. */
static bool say_bye(wefti_control *control)
{
    const wefti_note bye = {.kind = WEFTI_NOTE_BYE};
    bool awaited = false;
    for (int i = 0; i < control->probe_count; i++) {
        wefti_peer_probe *probe = &control->probes[i];
        if (probe->state != WEFTI_PEER_OPEN) {
            continue;
        }
        if (!probe->told) {
            send_outcomes(control, probe);
            wefti_peer_probe_send(probe, &bye);
            probe->told = control->told[probe->peer] = true;
        }
        awaited = true;
    }
    return awaited;
}

/*
 * Who of this domain tells the others that this rank leaves: who leads, unless
 * this rank has; -1. Its outcome stands before it looks, so if the other leaves
 * at once, that one sees it, and says so with its own farewell.
 */
static void find_herald(wefti_control *control)
{
    const int own = control->self.rank;
    set_outcome(control, own, WEFTI_RANK_OUTCOME_LEFT);
    const int leader = find_leader(control, control->domains[own]);
    control->herald = leader < own ? leader : -1;
}

/* Of a domain, whom this rank tells that it leaves; -1: nobody. */
static int find_told(const wefti_control *control, int domain)
{
    const bool leads = control->domains[domain] == domain;
    if (control->herald >= 0) {
        return leads && is_local(control, domain) &&
                       wefti_control_get_outcome(control, control->herald) ==
                           WEFTI_RANK_OUTCOME_NONE
                   ? control->herald
                   : -1;
    }
    return leads && !is_local(control, domain) ? find_answering(control, domain)
                                               : -1;
}

/* Where another rank of this domain listens, on this machine too; false: it
 * does not yet. */
static bool find_address(wefti_control *control, int rank)
{
    const uint16_t port = atomic_load(&control->ports[rank]);
    memcpy(control->addresses[rank], control->addresses[control->self.rank],
           WEFTI_ADDRESS_BYTES);
    memcpy(control->addresses[rank] + 1, &port, sizeof(port));
    return port != 0;
}

/* Whether all know that this rank leaves who are to hear it from itself. */
static bool farewell_is_over(wefti_control *control, int64_t since_ns)
{
    if (control->herald == control->self.rank ||
        (control->herald >= 0 &&
         wefti_control_get_outcome(control, control->herald) ==
             WEFTI_RANK_OUTCOME_DEAD)) {
        find_herald(control);
    }
    if (control->herald >= 0 && control->refused[control->herald] &&
        wefti_control_get_outcome(control, control->herald) ==
            WEFTI_RANK_OUTCOME_NONE) {
        control->herald = -1; /* it listens elsewhere */
    }
    bool over = !say_bye(control);
    for (int domain = 0; domain < control->self.nranks; domain++) {
        const int rank = find_told(control, domain);
        if (rank >= 0 && !control->told[rank]) {
            over = false;
            if (!wefti_control_find_probe(control, rank) &&
                (!is_local(control, rank) || find_address(control, rank))) {
                wefti_control_connect(control, rank, wefti_clock_ns());
            }
        }
    }
    return over ||
           since_ns > (control->engine->failed ? UNANSWERED_NS : FAREWELL_NS);
}

bool wefti_control_turn(wefti_control *control, int64_t *next_ns)
{
    const int64_t now_ns = wefti_clock_ns();
    const bool active = atomic_load(&control->active);
    if (active) {
        *next_ns = least(*next_ns, advance(control, now_ns));
    }
    if (!atomic_load(&control->closing)) {
        return true;
    }
    if (control->closing_ns == 0) {
        control->closing_ns = now_ns;
    }
    if (control->farewell_ns == 0 &&
        (!active || notices_are_over(control, now_ns - control->closing_ns))) {
        control->farewell_ns = now_ns;
    }
    if (!active || (control->farewell_ns != 0 &&
                    farewell_is_over(control, now_ns - control->farewell_ns))) {
        return false;
    }
    *next_ns = least(*next_ns, now_ns + UNANSWERED_POLL_NS);
    return true;
}
