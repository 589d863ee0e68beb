/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/server_state.c - what each message of an unauthenticated peer or a
 * member leads to. Nothing here blocks.
 */
#include "comm/oob/server_state.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/oob/launcher.h"

#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WARNINGS_MOST = 8, LINGER_MS = 1000 };

static void close_once(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

/* A copy that a forked child holds must not listen on either. */
static void close_listener(int *fd)
{
    if (*fd >= 0) {
        (void)shutdown(*fd, SHUT_RDWR);
    }
    close_once(fd);
}

weft_status wefti_server_state_init(wefti_server_state *state,
                                    const wefti_server_config *config)
{
    *state = (wefti_server_state){.config = *config,
                                  .deadline_ns =
                                      wefti_clock_ns() +
                                      config->timeout_ms * INT64_C(1000000)};
    wefti_unauthenticated_init(&state->unauthenticated);
    return config->nranks > 0
               ? wefti_roster_init(&state->roster, config->nranks)
               : WEFT_OK;
}

void wefti_server_state_fini(wefti_server_state *state)
{
    close_listener(&state->config.listen_fd);
    wefti_unauthenticated_fini(&state->unauthenticated);
    wefti_roster_fini(&state->roster);
    wefti_secret_fini(&state->config.secret);
}

void wefti_server_state_end(wefti_server_state *state)
{
    state->phase = WEFTI_PHASE_ENDED;
    close_listener(&state->config.listen_fd);
    wefti_unauthenticated_fini(&state->unauthenticated);
}

void wefti_server_state_conclude(wefti_server_state *state, weft_status status,
                                 const char *format, ...)
{
    va_list args;
    if (state->phase >= WEFTI_PHASE_LINGER) {
        return;
    }
    va_start(args, format);
    vsnprintf(state->verdict_text, sizeof(state->verdict_text), format, args);
    va_end(args);
    state->verdict = status;
    if (state->phase == WEFTI_PHASE_GATHER && status != WEFT_ERR_TIMEOUT) {
        const int64_t until_ns =
            wefti_clock_ns() + LINGER_MS * INT64_C(1000000);
        state->phase = WEFTI_PHASE_LINGER;
        if (until_ns < state->deadline_ns && !state->config.stays) {
            state->deadline_ns = until_ns;
        }
    } else {
        /* Before anybody knows: a member that returns finds nothing open. */
        wefti_server_state_end(state);
    }
    wefti_roster_send_verdict(&state->roster, status, state->verdict_text);
}

/*
 * Turn away somebody who holds the secret, and say why. It is a rank of this
 * job, and will not come again: its reason is everybody's verdict.
 */
static void refuse(wefti_server_state *state, wefti_unauthenticated_peer *peer,
                   wefti_oob_session *session, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void refuse(wefti_server_state *state, wefti_unauthenticated_peer *peer,
                   wefti_oob_session *session, const char *format, ...)
{
    wefti_oob_message message = {.kind = WEFTI_OOB_VERDICT,
                                 .as.verdict.status = WEFT_ERR_BOOTSTRAP};
    va_list args;
    va_start(args, format);
    vsnprintf(message.as.verdict.text, sizeof(message.as.verdict.text), format,
              args);
    va_end(args);
    wefti_log(state->config.stays ? WEFTI_LOG_DEBUG : WEFTI_LOG_WARN,
              state->config.home_rank, "refused: %s", message.as.verdict.text);
    if (wefti_oob_connection_post(&peer->connection, session, &message) ==
        WEFT_OK) {
        (void)shutdown(peer->connection.fd, SHUT_WR);
    }
    wefti_oob_connection_fini(&peer->connection);
    wefti_server_state_conclude(state, WEFT_ERR_BOOTSTRAP, "%s",
                                message.as.verdict.text);
}

/* Unauthenticated peers may be many: the log is not. */
static void warn_about_peer(wefti_server_state *state, const char *text)
{
    state->warning_count++;
    wefti_log(state->warning_count <= WARNINGS_MOST ? WEFTI_LOG_WARN
                                                    : WEFTI_LOG_DEBUG,
              state->config.home_rank, "%s: refused a connection: %s%s",
              state->config.endpoint.name, text,
              state->warning_count == WARNINGS_MOST
                  ? " (further ones only at level debug)"
                  : "");
}

/* HELLO: answer with our version and nonce. */
static void challenge(wefti_server_state *state,
                      wefti_unauthenticated_peer *peer,
                      const wefti_oob_message_hello *hello)
{
    wefti_oob_message message = {.kind = WEFTI_OOB_CHALLENGE};
    message.as.hello.version = wefti_version_own();
    randombytes_buf(message.as.hello.nonce, WEFTI_NONCE_BYTES);
    peer->hello = *hello;
    peer->challenge = message.as.hello;
    peer->challenged = true;
    bool same = wefti_version_is_own(hello->version);
    if (wefti_oob_connection_post(&peer->connection, NULL, &message) !=
            WEFT_OK ||
        !same) {
        wefti_oob_connection_fini(&peer->connection);
    }
    if (!same) {
        char text[64];
        snprintf(text, sizeof(text), "it runs weft %u.%u.%u, not %u.%u.%u",
                 hello->version.major, hello->version.minor,
                 hello->version.patch, message.as.hello.version.major,
                 message.as.hello.version.minor,
                 message.as.hello.version.patch);
        warn_about_peer(state, text);
    }
}

/* False if it was refused. */
static bool check_join(wefti_server_state *state,
                       wefti_unauthenticated_peer *peer,
                       wefti_oob_session *session,
                       const wefti_oob_message_join *join)
{
    const wefti_roster *roster = &state->roster;
    if ((int)join->nranks != roster->nranks) {
        refuse(state, peer, session,
               "rank %u says nranks %u, but this job at %s has %d ranks",
               join->rank, join->nranks, state->config.endpoint.text,
               roster->nranks);
    } else if (join->rank >= join->nranks) {
        refuse(state, peer, session,
               "rank %u: allowed is 0..%u in a job of %u ranks", join->rank,
               join->nranks - 1, join->nranks);
    } else if (roster->seats[join->rank].pid) {
        refuse(state, peer, session,
               "rank %u of process %u: process %u has already joined as rank "
               "%u",
               join->rank, join->pid, roster->seats[join->rank].pid,
               join->rank);
    } else {
        return true;
    }
    return false;
}

/* JOIN with a right seal: an unauthenticated peer becomes a member. */
static void admit(wefti_server_state *state, wefti_unauthenticated_peer *peer,
                  wefti_oob_session *session,
                  const wefti_oob_message_join *join)
{
    wefti_roster *roster = &state->roster;
    if (join->nranks > WEFTI_BOOTSTRAP_RANKS_MOST) {
        refuse(state, peer, session, "nranks %u: allowed is 1..%d",
               join->nranks, WEFTI_BOOTSTRAP_RANKS_MOST);
        return;
    }
    if (roster->nranks == 0 &&
        wefti_roster_init(roster, (int)join->nranks) != WEFT_OK) {
        refuse(state, peer, session, "the rendezvous: %s", weft_error_text());
        return;
    }
    if (!check_join(state, peer, session, join)) {
        return;
    }
    wefti_seat *seat = &roster->seats[join->rank];
    if (state->phase == WEFTI_PHASE_LINGER) {
        seat->pid = join->pid;
        roster->joined_count++;
        refuse(state, peer, session, "%s", state->verdict_text);
        return;
    }
    const int64_t now_ns = wefti_clock_ns();
    const wefti_oob_message accepted = {.kind = WEFTI_OOB_ACCEPTED};
    seat->connection = peer->connection;
    peer->connection = (wefti_oob_connection){.fd = -1};
    seat->session = *session;
    seat->pid = join->pid;
    seat->place = join->place;
    memcpy(seat->socket_name, join->socket_name, sizeof(seat->socket_name));
    seat->warn_wait_ns = join->warn_ms * INT64_C(1000000);
    seat->warn_at_ns = now_ns + seat->warn_wait_ns;
    seat->timeout_ms = join->timeout_ms;
    seat->timeout_at_ns = now_ns + join->timeout_ms * INT64_C(1000000);
    roster->joined_count++;
    if (join->rank == 0) {
        memcpy(state->tuning, join->tuning, sizeof(state->tuning));
    }
    if (wefti_oob_connection_post(&seat->connection, &seat->session,
                                  &accepted) != WEFT_OK) {
        wefti_server_state_conclude(state, WEFT_ERR_SYSTEM,
                                    "the rendezvous has no memory");
    }
}

/* JOIN: only the seal says whether it holds the secret. */
static void judge_join(wefti_server_state *state,
                       wefti_unauthenticated_peer *peer,
                       const unsigned char *frame, size_t frame_bytes,
                       const wefti_oob_message_join *join)
{
    wefti_oob_session session;
    wefti_oob_session_init(&session, WEFTI_SIDE_SERVER, &state->config.secret,
                           &peer->hello, &peer->challenge);
    if (wefti_oob_session_verify(&session, frame, frame_bytes)) {
        admit(state, peer, &session, join);
    } else {
        const wefti_oob_message refusal = {.kind = WEFTI_OOB_REFUSAL};
        if (wefti_oob_connection_post(&peer->connection, NULL, &refusal) ==
            WEFT_OK) {
            (void)shutdown(peer->connection.fd, SHUT_WR);
        }
        wefti_oob_connection_fini(&peer->connection);
        warn_about_peer(state, "wrong secret");
    }
    wefti_oob_session_fini(&session);
}

void wefti_server_state_read_peer(wefti_server_state *state,
                                  wefti_unauthenticated_peer *peer)
{
    const unsigned char *frame;
    size_t frame_bytes;
    wefti_oob_message message;
    wefti_oob_connection_receive(&peer->connection);
    while (peer->connection.fd >= 0) {
        unsigned allowed =
            WEFTI_KIND_BIT(peer->challenged ? WEFTI_OOB_JOIN : WEFTI_OOB_HELLO);
        wefti_oob_arrival arrival = wefti_oob_connection_next(
            &peer->connection, allowed, &frame, &frame_bytes);
        if (arrival == WEFTI_OOB_ARRIVAL_NONE) {
            return;
        }
        if (arrival != WEFTI_OOB_ARRIVAL_FRAME ||
            !wefti_oob_message_decode(frame, frame_bytes, &message)) {
            wefti_oob_connection_fini(&peer->connection);
            return;
        }
        if (message.kind == WEFTI_OOB_HELLO) {
            challenge(state, peer, &message.as.hello);
        } else {
            judge_join(state, peer, frame, frame_bytes, &message.as.join);
            return; /* a member, or gone */
        }
    }
}

static void judge_report(wefti_server_state *state, int rank,
                         const wefti_oob_message_report *report)
{
    wefti_seat *seat = &state->roster.seats[rank];
    char reason[96];
    switch (report->outcome) {
    case WEFTI_OUTCOME_COMPLETE:
        state->roster.complete_count += !seat->complete;
        seat->complete = true;
        break;
    case WEFTI_OUTCOME_ELSEWHERE:
        wefti_server_state_conclude(
            state, WEFT_ERR_BOOTSTRAP,
            "rank %d does not reach the memory of rank %d, though both run on "
            "one kernel in one network namespace: give them different "
            "WEFT_DOMAINs",
            rank, wefti_roster_leader(&state->roster, rank));
        break;
    case WEFTI_OUTCOME_GONE:
        wefti_server_state_conclude(state, WEFT_ERR_BOOTSTRAP,
                                    "rank %u left during bootstrap",
                                    report->subject);
        break;
    case WEFTI_OUTCOME_REFUSED:
        wefti_server_state_conclude(
            state, WEFT_ERR_BOOTSTRAP,
            "rank %u may not have the memory of rank %d: it runs as another "
            "user, or is not the process that joined",
            report->subject, rank);
        break;
    case WEFTI_OUTCOME_SYSTEM:
    case WEFTI_OUTCOME_END:
        wefti_server_state_conclude(
            state, WEFT_ERR_SYSTEM,
            "rank %d cannot take the descriptors of the job: %s", rank,
            strerror_r((int)report->error_number, reason, sizeof(reason)));
        break;
    }
}

/* A member that cannot take part says why; it is everybody's verdict. */
static void judge_refusal(wefti_server_state *state, int rank,
                          const wefti_oob_message_verdict *verdict)
{
    weft_status status =
        verdict->status == WEFT_OK ? WEFT_ERR_BOOTSTRAP : verdict->status;
    wefti_server_state_conclude(state, status, "rank %d: %s", rank,
                                verdict->text);
}

void wefti_server_state_read_member(wefti_server_state *state, int rank)
{
    wefti_seat *seat = &state->roster.seats[rank];
    const unsigned char *frame;
    size_t frame_bytes;
    wefti_oob_message message;
    wefti_oob_connection_receive(&seat->connection);
    if (state->phase == WEFTI_PHASE_LINGER) {
        wefti_oob_connection_fini(
            &seat->connection); /* it has its verdict, and goes */
    }
    while (state->phase < WEFTI_PHASE_LINGER) {
        unsigned allowed = state->phase == WEFTI_PHASE_HANDOVER
                               ? WEFTI_KIND_BIT(WEFTI_OOB_REPORT) |
                                     WEFTI_KIND_BIT(WEFTI_OOB_INFO) |
                                     WEFTI_KIND_BIT(WEFTI_OOB_VERDICT)
                               : 0;
        wefti_oob_arrival arrival = wefti_oob_connection_next(
            &seat->connection, allowed, &frame, &frame_bytes);
        if (arrival == WEFTI_OOB_ARRIVAL_NONE) {
            return;
        }
        if (arrival == WEFTI_OOB_ARRIVAL_ENDED) {
            wefti_oob_connection_fini(&seat->connection);
            wefti_server_state_conclude(state, WEFT_ERR_BOOTSTRAP,
                                        "rank %d left during bootstrap", rank);
        } else if (arrival == WEFTI_OOB_ARRIVAL_BAD ||
                   !wefti_oob_session_verify(&seat->session, frame,
                                             frame_bytes) ||
                   !wefti_oob_message_decode(frame, frame_bytes, &message) ||
                   (message.kind == WEFTI_OOB_INFO &&
                    !wefti_roster_keep_info(&state->roster, rank,
                                            &message.as.info))) {
            wefti_server_state_conclude(
                state, WEFT_ERR_BOOTSTRAP,
                "rank %d sent what is no message of a bootstrap", rank);
        } else if (message.kind == WEFTI_OOB_VERDICT) {
            judge_refusal(state, rank, &message.as.verdict);
        } else if (message.kind == WEFTI_OOB_REPORT) {
            judge_report(state, rank, &message.as.report);
        }
    }
}

/* The last one has joined. */
static void begin_handover(wefti_server_state *state)
{
    unsigned char job_key[WEFTI_JOB_KEY_BYTES];
    close_listener(&state->config.listen_fd);
    wefti_unauthenticated_fini(&state->unauthenticated);
    randombytes_buf(job_key, sizeof(job_key));
    state->phase = WEFTI_PHASE_HANDOVER;
    weft_status status =
        wefti_roster_welcome(&state->roster, state->tuning, job_key);
    sodium_memzero(job_key, sizeof(job_key));
    if (status != WEFT_OK) {
        wefti_server_state_conclude(state, WEFT_ERR_SYSTEM, "%s: %s",
                                    state->config.endpoint.name,
                                    weft_error_text());
    }
}

/*
 * All have what they need. One that died since the others opened its pidfd is
 * seen here: its end came before their reports.
 */
static void finish(wefti_server_state *state)
{
    for (int rank = 0; rank < state->roster.nranks; rank++) {
        wefti_server_state_read_member(state, rank);
    }
    wefti_server_state_conclude(state, WEFT_OK, "complete");
}

bool wefti_server_state_is_gathering(const wefti_server_state *state)
{
    return state->phase == WEFTI_PHASE_GATHER;
}

static void conclude_ended(wefti_server_state *state, int rank, int wait_status)
{
    const bool killed = WIFSIGNALED(wait_status);
    wefti_server_state_conclude(
        state, WEFT_ERR_BOOTSTRAP, "rank %d ended (%s %d) before it joined",
        rank, killed ? "signal" : "exit",
        killed ? WTERMSIG(wait_status) : WEXITSTATUS(wait_status));
}

/* Of a rank that has joined, the connection tells. */
void wefti_server_state_read_launcher(wefti_server_state *state)
{
    wefti_ended ended;
    while (wefti_server_state_is_gathering(state) &&
           wefti_launcher_next(&state->config.launcher_fd, &ended)) {
        for (int i = 0; i < ended.count; i++) {
            const int rank = ended.first + i;
            if (rank >= 0 && rank < state->roster.nranks &&
                !state->roster.seats[rank].pid) {
                conclude_ended(state, rank, ended.wait_status);
                break;
            }
        }
    }
}

void wefti_server_state_advance(wefti_server_state *state)
{
    wefti_roster *roster = &state->roster;
    if (state->phase == WEFTI_PHASE_GATHER && roster->nranks > 0 &&
        roster->joined_count == roster->nranks) {
        begin_handover(state);
    }
    if (state->phase == WEFTI_PHASE_HANDOVER &&
        wefti_roster_send_infos(roster) != WEFT_OK) {
        wefti_server_state_conclude(state, WEFT_ERR_SYSTEM,
                                    "the rendezvous has no memory");
    }
    if (state->phase == WEFTI_PHASE_HANDOVER &&
        roster->complete_count == roster->nranks) {
        finish(state);
    }
    if (state->phase == WEFTI_PHASE_LINGER && roster->nranks > 0 &&
        roster->joined_count == roster->nranks) {
        wefti_server_state_end(state);
    }
}

/* Tell a member whom it waits for. */
static void notify(wefti_server_state *state, wefti_seat *seat)
{
    wefti_oob_message message = {.kind = WEFTI_OOB_NOTICE};
    wefti_roster_missing(&state->roster, message.as.verdict.text,
                         sizeof(message.as.verdict.text));
    seat->warn_wait_ns *= 2;
    seat->warn_at_ns += seat->warn_wait_ns;
    if (wefti_oob_connection_post(&seat->connection, &seat->session,
                                  &message) != WEFT_OK) {
        wefti_server_state_conclude(state, WEFT_ERR_SYSTEM,
                                    "the rendezvous has no memory");
    }
}

/* Everything that happens because time has passed. */
void wefti_server_state_check_time(wefti_server_state *state, int64_t now_ns)
{
    char missing[WEFTI_OOB_TEXT_MOST];
    wefti_roster *roster = &state->roster;
    wefti_unauthenticated_expire(&state->unauthenticated, now_ns);
    if (state->phase == WEFTI_PHASE_LINGER) {
        if (now_ns >= state->deadline_ns) {
            wefti_server_state_end(state);
        }
        return;
    }
    int64_t limit_ms =
        now_ns >= state->deadline_ns ? state->config.timeout_ms : -1;
    for (int rank = 0; rank < roster->nranks; rank++) {
        wefti_seat *seat = &roster->seats[rank];
        if (seat->pid && now_ns >= seat->timeout_at_ns) {
            limit_ms = seat->timeout_ms;
        } else if (seat->pid && !seat->complete && now_ns >= seat->warn_at_ns) {
            notify(state, seat);
        }
    }
    if (limit_ms >= 0) {
        wefti_roster_missing(roster, missing, sizeof(missing));
        wefti_server_state_conclude(state, WEFT_ERR_TIMEOUT, "%s after %lld ms",
                                    missing, (long long)limit_ms);
    }
}

int64_t wefti_server_state_next_ns(const wefti_server_state *state)
{
    int64_t next = wefti_unauthenticated_next_ns(&state->unauthenticated);
    next = next < state->deadline_ns ? next : state->deadline_ns;
    for (int rank = 0;
         rank < state->roster.nranks && state->phase != WEFTI_PHASE_LINGER;
         rank++) {
        const wefti_seat *seat = &state->roster.seats[rank];
        if (seat->pid && seat->timeout_at_ns < next) {
            next = seat->timeout_at_ns;
        }
        if (seat->pid && !seat->complete && seat->warn_at_ns < next) {
            next = seat->warn_at_ns;
        }
    }
    return next;
}
