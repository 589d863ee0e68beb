/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/server_state.c - what each message of an unauthenticated peer or a
 * member leads to. Nothing here blocks.
 */
#include "comm/oob/server_state.h"

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

enum { WARNINGS_MOST = 8, LINGER_MS = 1000 };

weft_status wefti_server_state_init(wefti_server_state *state,
                                    const wefti_server_config *config)
{
    *state = (wefti_server_state){.config = *config,
                                  .deadline_ns =
                                      wefti_clock_ns() +
                                      config->timeout_ms * INT64_C(1000000)};
    wefti_oob_listener_init(&state->listener, config->listen_fd,
                            &state->config.secret);
    return config->nranks > 0
               ? wefti_roster_init(&state->roster, config->nranks)
               : WEFT_OK;
}

void wefti_server_state_fini(wefti_server_state *state)
{
    wefti_oob_listener_close(&state->listener);
    wefti_roster_fini(&state->roster);
    wefti_secret_fini(&state->config.secret);
}

void wefti_server_state_end(wefti_server_state *state)
{
    state->phase = WEFTI_PHASE_ENDED;
    wefti_oob_listener_close(&state->listener);
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
        /* Before any member knows: a member that returns finds nothing open. */
        wefti_server_state_end(state);
    }
    wefti_roster_send_verdict(&state->roster, status, state->verdict_text);
}

/*
 * Refuse a peer that holds the secret, and send the reason. It is a rank of
 * this job, and will not come again: its reason is the verdict for all.
 */
static void refuse(wefti_server_state *state, wefti_oob_connection *peer,
                   const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void refuse(wefti_server_state *state, wefti_oob_connection *peer,
                   const char *format, ...)
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
    if (wefti_oob_connection_post(peer, &message) == WEFT_OK) {
        (void)shutdown(peer->fd, SHUT_WR);
    }
    wefti_oob_connection_fini(peer);
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

static void warn_about_version(wefti_server_state *state, wefti_version theirs)
{
    const wefti_version own = wefti_version_own();
    char text[64];
    snprintf(text, sizeof(text), "it runs weft %u.%u.%u, not %u.%u.%u",
             theirs.major, theirs.minor, theirs.patch, own.major, own.minor,
             own.patch);
    warn_about_peer(state, text);
}

/* False if it was refused. */
static bool check_join(wefti_server_state *state, wefti_oob_connection *peer,
                       const wefti_oob_message_join *join)
{
    const wefti_roster *roster = &state->roster;
    if ((int)join->nranks != roster->nranks) {
        refuse(state, peer,
               "rank %u says nranks %u, but this job at %s has %d ranks",
               join->rank, join->nranks, state->config.endpoint.text,
               roster->nranks);
    } else if (join->rank >= join->nranks) {
        refuse(state, peer, "rank %u: allowed is 0..%u in a job of %u ranks",
               join->rank, join->nranks - 1, join->nranks);
    } else if (roster->seats[join->rank].pid) {
        refuse(state, peer,
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
static void admit(wefti_server_state *state, wefti_oob_connection *peer,
                  const wefti_oob_message_join *join)
{
    wefti_roster *roster = &state->roster;
    if (join->nranks > WEFTI_JOB_RANKS_MOST) {
        refuse(state, peer, "nranks %u: allowed is 1..%d", join->nranks,
               WEFTI_JOB_RANKS_MOST);
        return;
    }
    if (roster->nranks == 0 &&
        wefti_roster_init(roster, (int)join->nranks) != WEFT_OK) {
        refuse(state, peer, "the rendezvous: %s", weft_error_text());
        return;
    }
    if (!check_join(state, peer, join)) {
        return;
    }
    wefti_seat *seat = &roster->seats[join->rank];
    if (state->phase == WEFTI_PHASE_LINGER) {
        seat->pid = join->pid;
        roster->joined_count++;
        refuse(state, peer, "%s", state->verdict_text);
        return;
    }
    const int64_t now_ns = wefti_clock_ns();
    const wefti_oob_message accepted = {.kind = WEFTI_OOB_ACCEPTED};
    seat->connection = *peer;
    *peer = (wefti_oob_connection){.fd = -1};
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
    if (wefti_oob_connection_post(&seat->connection, &accepted) != WEFT_OK) {
        wefti_server_state_conclude(state, WEFT_ERR_SYSTEM,
                                    "the rendezvous has no memory");
    }
}

/* Only the seal of a JOIN says whether a peer holds the secret. */
void wefti_server_state_read_peer(void *context, wefti_oob_connection *peer)
{
    wefti_server_state *state = context;
    const wefti_oob_message refusal = {.kind = WEFTI_OOB_REFUSAL};
    wefti_oob_message message;
    switch (wefti_oob_connection_next(peer, WEFTI_KIND_BIT(WEFTI_OOB_JOIN),
                                      &message)) {
    case WEFTI_OOB_ARRIVAL_NONE:
        return;
    case WEFTI_OOB_ARRIVAL_MESSAGE:
        admit(state, peer, &message.as.join);
        return; /* a member, or gone */
    case WEFTI_OOB_ARRIVAL_VERSION:
        warn_about_version(state, message.as.hello.version);
        break;
    case WEFTI_OOB_ARRIVAL_UNPROVEN:
        if (wefti_oob_connection_post(peer, &refusal) == WEFT_OK) {
            (void)shutdown(peer->fd, SHUT_WR);
        }
        warn_about_peer(state, "wrong secret");
        break;
    case WEFTI_OOB_ARRIVAL_READY:
    case WEFTI_OOB_ARRIVAL_BAD:
    case WEFTI_OOB_ARRIVAL_ENDED:
        break;
    }
    wefti_oob_connection_fini(peer);
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
    case WEFTI_OUTCOME_UNREACHABLE:
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

/* A member that cannot take part sends its reason, which is the verdict for
 * all. */
static void judge_refusal(wefti_server_state *state, int rank,
                          const wefti_oob_message_verdict *verdict)
{
    weft_status status =
        verdict->status == WEFT_OK ? WEFT_ERR_BOOTSTRAP : verdict->status;
    wefti_server_state_conclude(state, status, "rank %d: %s", rank,
                                verdict->text);
}

static void judge_nonsense(wefti_server_state *state, int rank)
{
    wefti_server_state_conclude(
        state, WEFT_ERR_BOOTSTRAP,
        "rank %d sent what is no message of a bootstrap", rank);
}

static void judge_message(wefti_server_state *state, int rank,
                          const wefti_oob_message *message)
{
    if (message->kind == WEFTI_OOB_VERDICT) {
        judge_refusal(state, rank, &message->as.verdict);
    } else if (message->kind == WEFTI_OOB_REPORT) {
        judge_report(state, rank, &message->as.report);
    } else if (!wefti_roster_keep_info(&state->roster, rank,
                                       &message->as.info)) {
        judge_nonsense(state, rank);
    }
}

void wefti_server_state_read_member(wefti_server_state *state, int rank)
{
    wefti_oob_connection *connection = &state->roster.seats[rank].connection;
    wefti_oob_message message;
    wefti_oob_connection_receive(connection);
    if (state->phase == WEFTI_PHASE_LINGER) {
        wefti_oob_connection_fini(
            connection); /* it has its verdict, and goes */
    }
    while (state->phase < WEFTI_PHASE_LINGER) {
        const unsigned allowed = state->phase == WEFTI_PHASE_HANDOVER
                                     ? WEFTI_KIND_BIT(WEFTI_OOB_REPORT) |
                                           WEFTI_KIND_BIT(WEFTI_OOB_INFO) |
                                           WEFTI_KIND_BIT(WEFTI_OOB_VERDICT)
                                     : WEFTI_KIND_BIT(WEFTI_OOB_VERDICT);
        switch (wefti_oob_connection_next(connection, allowed, &message)) {
        case WEFTI_OOB_ARRIVAL_NONE:
            return;
        case WEFTI_OOB_ARRIVAL_MESSAGE:
            judge_message(state, rank, &message);
            break;
        case WEFTI_OOB_ARRIVAL_ENDED:
            wefti_oob_connection_fini(connection);
            wefti_server_state_conclude(state, WEFT_ERR_BOOTSTRAP,
                                        "rank %d left during bootstrap", rank);
            break;
        case WEFTI_OOB_ARRIVAL_READY:
        case WEFTI_OOB_ARRIVAL_VERSION:
        case WEFTI_OOB_ARRIVAL_UNPROVEN:
        case WEFTI_OOB_ARRIVAL_BAD:
            judge_nonsense(state, rank);
            break;
        }
    }
}

/* The last one has joined. */
static void begin_handover(wefti_server_state *state)
{
    unsigned char job_key[WEFTI_JOB_KEY_BYTES];
    wefti_oob_listener_close(&state->listener);
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

/* The end of a rank that has joined shows in its connection. */
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

/* Send a member which ranks it waits for. */
static void notify(wefti_server_state *state, wefti_seat *seat)
{
    wefti_oob_message message = {.kind = WEFTI_OOB_NOTICE};
    wefti_roster_missing(&state->roster, message.as.verdict.text,
                         sizeof(message.as.verdict.text));
    seat->warn_wait_ns *= 2;
    seat->warn_at_ns += seat->warn_wait_ns;
    if (wefti_oob_connection_post(&seat->connection, &message) != WEFT_OK) {
        wefti_server_state_conclude(state, WEFT_ERR_SYSTEM,
                                    "the rendezvous has no memory");
    }
}

/* Everything that happens because time has passed. */
void wefti_server_state_check_time(wefti_server_state *state, int64_t now_ns)
{
    char missing[WEFTI_OOB_TEXT_MOST];
    wefti_roster *roster = &state->roster;
    wefti_oob_listener_expire(&state->listener, now_ns);
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
    int64_t next = wefti_oob_listener_next_ns(&state->listener);
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
