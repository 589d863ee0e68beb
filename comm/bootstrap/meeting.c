/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/bootstrap/meeting.c - what each message of a stranger or a member
 * leads to. Nothing here blocks.
 */
#include "comm/bootstrap/meeting.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/bootstrap/launcher.h"

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

weft_status wefti_meeting_init(wefti_meeting *meeting,
                               const wefti_server_config *config)
{
    *meeting =
        (wefti_meeting){.config = *config,
                        .deadline_ns = wefti_clock_ns() +
                                       config->timeout_ms * INT64_C(1000000)};
    wefti_strangers_init(&meeting->strangers);
    return config->nranks > 0
               ? wefti_roster_init(&meeting->roster, config->nranks)
               : WEFT_OK;
}

void wefti_meeting_fini(wefti_meeting *meeting)
{
    close_listener(&meeting->config.listen_fd);
    wefti_strangers_fini(&meeting->strangers);
    wefti_roster_fini(&meeting->roster);
    wefti_secret_fini(&meeting->config.secret);
}

void wefti_meeting_end(wefti_meeting *meeting)
{
    meeting->phase = WEFTI_PHASE_ENDED;
    close_listener(&meeting->config.listen_fd);
    wefti_strangers_fini(&meeting->strangers);
}

void wefti_meeting_conclude(wefti_meeting *meeting, weft_status status,
                            const char *format, ...)
{
    va_list args;
    if (meeting->phase >= WEFTI_PHASE_LINGER) {
        return;
    }
    va_start(args, format);
    vsnprintf(meeting->verdict_text, sizeof(meeting->verdict_text), format,
              args);
    va_end(args);
    meeting->verdict = status;
    if (meeting->phase == WEFTI_PHASE_GATHER && status != WEFT_ERR_TIMEOUT) {
        const int64_t until_ns =
            wefti_clock_ns() + LINGER_MS * INT64_C(1000000);
        meeting->phase = WEFTI_PHASE_LINGER;
        if (until_ns < meeting->deadline_ns && !meeting->config.stays) {
            meeting->deadline_ns = until_ns;
        }
    } else {
        /* Before anybody knows: a member that returns finds nothing open. */
        wefti_meeting_end(meeting);
    }
    wefti_roster_tell(&meeting->roster, status, meeting->verdict_text);
}

/*
 * Turn away somebody who holds the secret, and say why. It is a rank of this
 * job, and will not come again: its reason is everybody's verdict.
 */
static void refuse(wefti_meeting *meeting, wefti_stranger *stranger,
                   wefti_session *session, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void refuse(wefti_meeting *meeting, wefti_stranger *stranger,
                   wefti_session *session, const char *format, ...)
{
    wefti_message message = {.kind = WEFTI_MESSAGE_VERDICT,
                             .as.verdict.status = WEFT_ERR_BOOTSTRAP};
    va_list args;
    va_start(args, format);
    vsnprintf(message.as.verdict.text, sizeof(message.as.verdict.text), format,
              args);
    va_end(args);
    wefti_log(meeting->config.stays ? WEFTI_LOG_DEBUG : WEFTI_LOG_WARN,
              meeting->config.home_rank, "refused: %s",
              message.as.verdict.text);
    if (wefti_link_post(&stranger->link, session, &message) == WEFT_OK) {
        (void)shutdown(stranger->link.fd, SHUT_WR);
    }
    wefti_link_fini(&stranger->link);
    wefti_meeting_conclude(meeting, WEFT_ERR_BOOTSTRAP, "%s",
                           message.as.verdict.text);
}

/* Strangers may be many: the log is not. */
static void warn_about_stranger(wefti_meeting *meeting, const char *text)
{
    meeting->warning_count++;
    wefti_log(meeting->warning_count <= WARNINGS_MOST ? WEFTI_LOG_WARN
                                                      : WEFTI_LOG_DEBUG,
              meeting->config.home_rank, "%s: refused a connection: %s%s",
              meeting->config.endpoint.name, text,
              meeting->warning_count == WARNINGS_MOST
                  ? " (further ones only at level debug)"
                  : "");
}

/* HELLO: answer with our version and nonce. */
static void challenge(wefti_meeting *meeting, wefti_stranger *stranger,
                      const wefti_message_hello *hello)
{
    wefti_message message = {.kind = WEFTI_MESSAGE_CHALLENGE};
    message.as.hello.version = wefti_version_own();
    randombytes_buf(message.as.hello.nonce, WEFTI_NONCE_BYTES);
    stranger->hello = *hello;
    stranger->challenge = message.as.hello;
    stranger->challenged = true;
    bool same = wefti_version_is_own(hello->version);
    if (wefti_link_post(&stranger->link, NULL, &message) != WEFT_OK || !same) {
        wefti_link_fini(&stranger->link);
    }
    if (!same) {
        char text[64];
        snprintf(text, sizeof(text), "it runs weft %u.%u.%u, not %u.%u.%u",
                 hello->version.major, hello->version.minor,
                 hello->version.patch, message.as.hello.version.major,
                 message.as.hello.version.minor,
                 message.as.hello.version.patch);
        warn_about_stranger(meeting, text);
    }
}

/* False if it was refused. */
static bool check_join(wefti_meeting *meeting, wefti_stranger *stranger,
                       wefti_session *session, const wefti_message_join *join)
{
    const wefti_roster *roster = &meeting->roster;
    if ((int)join->nranks != roster->nranks) {
        refuse(meeting, stranger, session,
               "rank %u says nranks %u, but this job at %s has %d ranks",
               join->rank, join->nranks, meeting->config.endpoint.text,
               roster->nranks);
    } else if (join->rank >= join->nranks) {
        refuse(meeting, stranger, session,
               "rank %u: allowed is 0..%u in a job of %u ranks", join->rank,
               join->nranks - 1, join->nranks);
    } else if (roster->seats[join->rank].pid) {
        refuse(meeting, stranger, session,
               "rank %u of process %u: process %u has already joined as rank "
               "%u",
               join->rank, join->pid, roster->seats[join->rank].pid,
               join->rank);
    } else {
        return true;
    }
    return false;
}

/* JOIN with a right seal: a stranger becomes a member. */
static void admit(wefti_meeting *meeting, wefti_stranger *stranger,
                  wefti_session *session, const wefti_message_join *join)
{
    wefti_roster *roster = &meeting->roster;
    if (join->nranks > WEFTI_BOOTSTRAP_RANKS_MOST) {
        refuse(meeting, stranger, session, "nranks %u: allowed is 1..%d",
               join->nranks, WEFTI_BOOTSTRAP_RANKS_MOST);
        return;
    }
    if (roster->nranks == 0 &&
        wefti_roster_init(roster, (int)join->nranks) != WEFT_OK) {
        refuse(meeting, stranger, session, "the rendezvous: %s",
               weft_error_text());
        return;
    }
    if (!check_join(meeting, stranger, session, join)) {
        return;
    }
    wefti_seat *seat = &roster->seats[join->rank];
    if (meeting->phase == WEFTI_PHASE_LINGER) {
        seat->pid = join->pid;
        roster->joined_count++;
        refuse(meeting, stranger, session, "%s", meeting->verdict_text);
        return;
    }
    const int64_t now_ns = wefti_clock_ns();
    const wefti_message accepted = {.kind = WEFTI_MESSAGE_ACCEPTED};
    seat->link = stranger->link;
    stranger->link = (wefti_link){.fd = -1};
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
        memcpy(meeting->tuning, join->tuning, sizeof(meeting->tuning));
    }
    if (wefti_link_post(&seat->link, &seat->session, &accepted) != WEFT_OK) {
        wefti_meeting_conclude(meeting, WEFT_ERR_SYSTEM,
                               "the rendezvous has no memory");
    }
}

/* JOIN: only the seal says whether it holds the secret. */
static void judge_join(wefti_meeting *meeting, wefti_stranger *stranger,
                       const unsigned char *frame, size_t frame_bytes,
                       const wefti_message_join *join)
{
    wefti_session session;
    wefti_session_init(&session, WEFTI_SIDE_SERVER, &meeting->config.secret,
                       &stranger->hello, &stranger->challenge);
    if (wefti_session_verify(&session, frame, frame_bytes)) {
        admit(meeting, stranger, &session, join);
    } else {
        const wefti_message refusal = {.kind = WEFTI_MESSAGE_REFUSAL};
        if (wefti_link_post(&stranger->link, NULL, &refusal) == WEFT_OK) {
            (void)shutdown(stranger->link.fd, SHUT_WR);
        }
        wefti_link_fini(&stranger->link);
        warn_about_stranger(meeting, "wrong secret");
    }
    wefti_session_fini(&session);
}

void wefti_meeting_hear_stranger(wefti_meeting *meeting,
                                 wefti_stranger *stranger)
{
    const unsigned char *frame;
    size_t frame_bytes;
    wefti_message message;
    wefti_link_receive(&stranger->link);
    while (stranger->link.fd >= 0) {
        unsigned allowed = WEFTI_KIND_BIT(
            stranger->challenged ? WEFTI_MESSAGE_JOIN : WEFTI_MESSAGE_HELLO);
        wefti_arrival arrival =
            wefti_link_next(&stranger->link, allowed, &frame, &frame_bytes);
        if (arrival == WEFTI_ARRIVAL_NONE) {
            return;
        }
        if (arrival != WEFTI_ARRIVAL_FRAME ||
            !wefti_message_decode(frame, frame_bytes, &message)) {
            wefti_link_fini(&stranger->link);
            return;
        }
        if (message.kind == WEFTI_MESSAGE_HELLO) {
            challenge(meeting, stranger, &message.as.hello);
        } else {
            judge_join(meeting, stranger, frame, frame_bytes, &message.as.join);
            return; /* a member, or gone */
        }
    }
}

static void judge_report(wefti_meeting *meeting, int rank,
                         const wefti_message_report *report)
{
    wefti_seat *seat = &meeting->roster.seats[rank];
    char reason[96];
    switch (report->outcome) {
    case WEFTI_OUTCOME_COMPLETE:
        meeting->roster.complete_count += !seat->complete;
        seat->complete = true;
        break;
    case WEFTI_OUTCOME_ELSEWHERE:
        wefti_meeting_conclude(
            meeting, WEFT_ERR_BOOTSTRAP,
            "rank %d does not reach the memory of rank %d, though both run on "
            "one kernel in one network namespace: give them different "
            "WEFT_DOMAINs",
            rank, wefti_roster_leader(&meeting->roster, rank));
        break;
    case WEFTI_OUTCOME_GONE:
        wefti_meeting_conclude(meeting, WEFT_ERR_BOOTSTRAP,
                               "rank %u left during bootstrap",
                               report->subject);
        break;
    case WEFTI_OUTCOME_REFUSED:
        wefti_meeting_conclude(
            meeting, WEFT_ERR_BOOTSTRAP,
            "rank %u may not have the memory of rank %d: it runs as another "
            "user, or is not the process that joined",
            report->subject, rank);
        break;
    case WEFTI_OUTCOME_SYSTEM:
    case WEFTI_OUTCOME_END:
        wefti_meeting_conclude(
            meeting, WEFT_ERR_SYSTEM,
            "rank %d cannot take the descriptors of the job: %s", rank,
            strerror_r((int)report->error_number, reason, sizeof(reason)));
        break;
    }
}

/* A member that cannot take part says why; it is everybody's verdict. */
static void judge_refusal(wefti_meeting *meeting, int rank,
                          const wefti_message_verdict *verdict)
{
    weft_status status =
        verdict->status == WEFT_OK ? WEFT_ERR_BOOTSTRAP : verdict->status;
    wefti_meeting_conclude(meeting, status, "rank %d: %s", rank, verdict->text);
}

void wefti_meeting_hear_member(wefti_meeting *meeting, int rank)
{
    wefti_seat *seat = &meeting->roster.seats[rank];
    const unsigned char *frame;
    size_t frame_bytes;
    wefti_message message;
    wefti_link_receive(&seat->link);
    if (meeting->phase == WEFTI_PHASE_LINGER) {
        wefti_link_fini(&seat->link); /* it has its verdict, and goes */
    }
    while (meeting->phase < WEFTI_PHASE_LINGER) {
        unsigned allowed = meeting->phase == WEFTI_PHASE_HANDOVER
                               ? WEFTI_KIND_BIT(WEFTI_MESSAGE_REPORT) |
                                     WEFTI_KIND_BIT(WEFTI_MESSAGE_CARD) |
                                     WEFTI_KIND_BIT(WEFTI_MESSAGE_VERDICT)
                               : 0;
        wefti_arrival arrival =
            wefti_link_next(&seat->link, allowed, &frame, &frame_bytes);
        if (arrival == WEFTI_ARRIVAL_NONE) {
            return;
        }
        if (arrival == WEFTI_ARRIVAL_ENDED) {
            wefti_link_fini(&seat->link);
            wefti_meeting_conclude(meeting, WEFT_ERR_BOOTSTRAP,
                                   "rank %d left during bootstrap", rank);
        } else if (arrival == WEFTI_ARRIVAL_BAD ||
                   !wefti_session_verify(&seat->session, frame, frame_bytes) ||
                   !wefti_message_decode(frame, frame_bytes, &message) ||
                   (message.kind == WEFTI_MESSAGE_CARD &&
                    !wefti_roster_keep_card(&meeting->roster, rank,
                                            &message.as.card))) {
            wefti_meeting_conclude(
                meeting, WEFT_ERR_BOOTSTRAP,
                "rank %d sent what is no message of a bootstrap", rank);
        } else if (message.kind == WEFTI_MESSAGE_VERDICT) {
            judge_refusal(meeting, rank, &message.as.verdict);
        } else if (message.kind == WEFTI_MESSAGE_REPORT) {
            judge_report(meeting, rank, &message.as.report);
        }
    }
}

/* The last one has joined. */
static void begin_handover(wefti_meeting *meeting)
{
    unsigned char job_key[WEFTI_JOB_KEY_BYTES];
    close_listener(&meeting->config.listen_fd);
    wefti_strangers_fini(&meeting->strangers);
    randombytes_buf(job_key, sizeof(job_key));
    meeting->phase = WEFTI_PHASE_HANDOVER;
    weft_status status =
        wefti_roster_welcome(&meeting->roster, meeting->tuning, job_key);
    sodium_memzero(job_key, sizeof(job_key));
    if (status != WEFT_OK) {
        wefti_meeting_conclude(meeting, WEFT_ERR_SYSTEM, "%s: %s",
                               meeting->config.endpoint.name,
                               weft_error_text());
    }
}

/*
 * All have what they need. One that died since the others opened its pidfd is
 * seen here: its end came before their reports.
 */
static void finish(wefti_meeting *meeting)
{
    for (int rank = 0; rank < meeting->roster.nranks; rank++) {
        wefti_meeting_hear_member(meeting, rank);
    }
    wefti_meeting_conclude(meeting, WEFT_OK, "complete");
}

bool wefti_meeting_is_gathering(const wefti_meeting *meeting)
{
    return meeting->phase == WEFTI_PHASE_GATHER;
}

static void conclude_ended(wefti_meeting *meeting, int rank, int wait_status)
{
    const bool killed = WIFSIGNALED(wait_status);
    wefti_meeting_conclude(
        meeting, WEFT_ERR_BOOTSTRAP, "rank %d ended (%s %d) before it joined",
        rank, killed ? "signal" : "exit",
        killed ? WTERMSIG(wait_status) : WEXITSTATUS(wait_status));
}

/* Of a rank that has joined, the connection tells. */
void wefti_meeting_hear_launcher(wefti_meeting *meeting)
{
    wefti_ended ended;
    while (wefti_meeting_is_gathering(meeting) &&
           wefti_launcher_next(&meeting->config.launcher_fd, &ended)) {
        for (int i = 0; i < ended.count; i++) {
            const int rank = ended.first + i;
            if (rank >= 0 && rank < meeting->roster.nranks &&
                !meeting->roster.seats[rank].pid) {
                conclude_ended(meeting, rank, ended.wait_status);
                break;
            }
        }
    }
}

void wefti_meeting_advance(wefti_meeting *meeting)
{
    wefti_roster *roster = &meeting->roster;
    if (meeting->phase == WEFTI_PHASE_GATHER && roster->nranks > 0 &&
        roster->joined_count == roster->nranks) {
        begin_handover(meeting);
    }
    if (meeting->phase == WEFTI_PHASE_HANDOVER &&
        wefti_roster_deal_cards(roster) != WEFT_OK) {
        wefti_meeting_conclude(meeting, WEFT_ERR_SYSTEM,
                               "the rendezvous has no memory");
    }
    if (meeting->phase == WEFTI_PHASE_HANDOVER &&
        roster->complete_count == roster->nranks) {
        finish(meeting);
    }
    if (meeting->phase == WEFTI_PHASE_LINGER && roster->nranks > 0 &&
        roster->joined_count == roster->nranks) {
        wefti_meeting_end(meeting);
    }
}

/* Tell a member whom it waits for. */
static void notify(wefti_meeting *meeting, wefti_seat *seat)
{
    wefti_message message = {.kind = WEFTI_MESSAGE_NOTICE};
    wefti_roster_missing(&meeting->roster, message.as.verdict.text,
                         sizeof(message.as.verdict.text));
    seat->warn_wait_ns *= 2;
    seat->warn_at_ns += seat->warn_wait_ns;
    if (wefti_link_post(&seat->link, &seat->session, &message) != WEFT_OK) {
        wefti_meeting_conclude(meeting, WEFT_ERR_SYSTEM,
                               "the rendezvous has no memory");
    }
}

/* Everything that happens because time has passed. */
void wefti_meeting_check_time(wefti_meeting *meeting, int64_t now_ns)
{
    char missing[WEFTI_MESSAGE_TEXT_MOST];
    wefti_roster *roster = &meeting->roster;
    wefti_strangers_expire(&meeting->strangers, now_ns);
    if (meeting->phase == WEFTI_PHASE_LINGER) {
        if (now_ns >= meeting->deadline_ns) {
            wefti_meeting_end(meeting);
        }
        return;
    }
    int64_t limit_ms =
        now_ns >= meeting->deadline_ns ? meeting->config.timeout_ms : -1;
    for (int rank = 0; rank < roster->nranks; rank++) {
        wefti_seat *seat = &roster->seats[rank];
        if (seat->pid && now_ns >= seat->timeout_at_ns) {
            limit_ms = seat->timeout_ms;
        } else if (seat->pid && !seat->complete && now_ns >= seat->warn_at_ns) {
            notify(meeting, seat);
        }
    }
    if (limit_ms >= 0) {
        wefti_roster_missing(roster, missing, sizeof(missing));
        wefti_meeting_conclude(meeting, WEFT_ERR_TIMEOUT, "%s after %lld ms",
                               missing, (long long)limit_ms);
    }
}

int64_t wefti_meeting_next_ns(const wefti_meeting *meeting)
{
    int64_t next = wefti_strangers_next_ns(&meeting->strangers);
    next = next < meeting->deadline_ns ? next : meeting->deadline_ns;
    for (int rank = 0;
         rank < meeting->roster.nranks && meeting->phase != WEFTI_PHASE_LINGER;
         rank++) {
        const wefti_seat *seat = &meeting->roster.seats[rank];
        if (seat->pid && seat->timeout_at_ns < next) {
            next = seat->timeout_at_ns;
        }
        if (seat->pid && !seat->complete && seat->warn_at_ns < next) {
            next = seat->warn_at_ns;
        }
    }
    return next;
}
