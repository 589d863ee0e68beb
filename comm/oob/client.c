/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/client.c - the member's side of a bootstrap.
 *
 * Until the server has ACCEPTED this rank, a lost connection means only that
 * the server was oversubscribed: try again. From then on it means that the
 * server has died. Every wait ends with the request's time limit; a member
 * waits a second more for the server, which watches the same limit, so that on
 * a busy machine all still get one verdict.
 */
#include "comm/oob/client_state.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/oob/membership.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RETRY_FIRST_MS = 2, RETRY_MOST_MS = 100 };
enum { MARGIN_MOST_MS = 250, VERDICT_GRACE_MS = 1000 };
enum { CANCEL_MS = 500 };

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static weft_status fail_by_time(const wefti_client *self)
{
    if (self->cancelled) {
        return wefti_bootstrap_cancelled(self->request);
    }
    const long long limit_ms = (long long)self->request->timeout_ms;
    char reason[96];
    if (self->last_failure) {
        return wefti_error(
            WEFT_ERR_TIMEOUT, "rank %d: %s cannot be reached: %s, for %lld ms",
            self->request->rank, self->endpoint->name,
            strerror_r(self->last_failure, reason, sizeof(reason)), limit_ms);
    }
    return wefti_error(WEFT_ERR_TIMEOUT, "rank %d: %s %s within %lld ms",
                       self->request->rank, self->endpoint->name,
                       self->accepted ? "fell silent, no verdict"
                                      : "did not answer",
                       limit_ms);
}

static weft_status fail_by_close(const wefti_client *self)
{
    return wefti_error(WEFT_ERR_BOOTSTRAP, "rank %d: %s closed",
                       self->request->rank, self->endpoint->name);
}

static weft_status fail_by_language(const wefti_client *self)
{
    return wefti_error(WEFT_ERR_BOOTSTRAP,
                       "rank %d: what listens at %s does not speak as weft's "
                       "rendezvous does",
                       self->request->rank, self->endpoint->text);
}

/* Warns once that the server is not there, or silent. */
static void warn_if_due(wefti_client *self)
{
    if (wefti_clock_ns() >= self->warn_at_ns) {
        self->warn_at_ns = INT64_MAX;
        wefti_log(WEFTI_LOG_WARN, self->request->rank, "waits for %s",
                  self->endpoint->name);
    }
}

/* A rank that asked for the memory and may not have it: the server decides. */
static weft_status report_refused(wefti_client *self)
{
    wefti_oob_message report = {.kind = WEFTI_OOB_REPORT};
    if (self->memory_source.refused < 0 || self->warned_refused) {
        return WEFT_OK;
    }
    self->warned_refused = true;
    report.as.report.outcome = WEFTI_OUTCOME_REFUSED;
    report.as.report.subject = (uint32_t)self->memory_source.refused;
    return wefti_oob_connection_post(&self->connection, &report);
}

static weft_status fail_by_version(const wefti_client *self)
{
    const wefti_version theirs = self->message.as.hello.version;
    const wefti_version own = wefti_version_own();
    return wefti_error(WEFT_ERR_BOOTSTRAP,
                       "rank %d runs weft %u.%u.%u, %s runs weft %u.%u.%u: all "
                       "ranks must run the same version",
                       self->request->rank, own.major, own.minor, own.patch,
                       self->endpoint->name, theirs.major, theirs.minor,
                       theirs.patch);
}

/* This rank is to be cancelled: the others may still learn that from it. */
static void note_cancel(wefti_client *self)
{
    self->cancelled = true;
    self->deadline_ns = least(self->deadline_ns,
                              wefti_clock_ns() + CANCEL_MS * INT64_C(1000000));
}

int wefti_client_cancel_fd(const wefti_client *self)
{
    const int *fd = self->request->cancel_fd;
    return fd && !self->cancelled ? *fd : -1;
}

void wefti_client_pause(wefti_client *self, int64_t ms)
{
    struct pollfd cancel = {.fd = wefti_client_cancel_fd(self),
                            .events = POLLIN};
    if (poll(&cancel, 1, (int)ms) > 0) {
        note_cancel(self);
    }
}

/* Its own verdict, which becomes that of all. */
static weft_status report_cancel(wefti_client *self)
{
    const wefti_oob_message verdict = {
        .kind = WEFTI_OOB_VERDICT,
        .as.verdict = {.status = WEFT_ERR_ABORTED,
                       .text = "its creation was cancelled"}};
    if (!self->cancelled || !self->accepted || self->cancel_sent) {
        return WEFT_OK;
    }
    self->cancel_sent = true;
    return wefti_oob_connection_post(&self->connection, &verdict);
}

/* Until something has come, or something else is due. */
static void poll_once(wefti_client *self)
{
    enum { SERVER, CANCEL, OTHERS };
    const int64_t until_ns = least(self->deadline_ns, self->warn_at_ns);
    struct pollfd polled[OTHERS + WEFTI_OOB_LISTENER_POLLED];
    polled[SERVER] = (struct pollfd){
        .fd = self->connection.fd,
        .events = wefti_oob_connection_events(&self->connection)};
    polled[CANCEL] =
        (struct pollfd){.fd = wefti_client_cancel_fd(self), .events = POLLIN};
    const nfds_t others =
        wefti_memory_source_watch(&self->memory_source, polled + OTHERS);
    if (poll(polled, OTHERS + others, wefti_clock_poll_ms(until_ns)) > 0) {
        wefti_oob_connection_serve(&self->connection, polled[SERVER].revents);
        wefti_memory_source_serve(&self->memory_source, polled + OTHERS,
                                  others);
        if (polled[CANCEL].revents) {
            note_cancel(self);
        }
    }
}

/*
 * The next message of an allowed kind in self->message, or none if the keys
 * stand now.
 *
 * Returns     OK | ERR_TIMEOUT | INPROGRESS: the connection is gone |
 *             ERR_BOOTSTRAP: what came is not weft's.
 */
static weft_status await_message(wefti_client *self, unsigned allowed)
{
    for (;;) {
        switch (wefti_oob_connection_next(&self->connection, allowed,
                                          &self->message)) {
        case WEFTI_OOB_ARRIVAL_READY:
        case WEFTI_OOB_ARRIVAL_MESSAGE:
            return WEFT_OK;
        case WEFTI_OOB_ARRIVAL_VERSION:
            return fail_by_version(self);
        case WEFTI_OOB_ARRIVAL_UNPROVEN:
            return wefti_error(WEFT_ERR_BOOTSTRAP,
                               "rank %d: %s does not prove that it knows the "
                               "secret",
                               self->request->rank, self->endpoint->name);
        case WEFTI_OOB_ARRIVAL_BAD:
            return fail_by_language(self);
        case WEFTI_OOB_ARRIVAL_ENDED:
            return WEFT_INPROGRESS;
        case WEFTI_OOB_ARRIVAL_NONE:
            break;
        }
        warn_if_due(self);
        if (wefti_clock_ns() >= self->deadline_ns) {
            self->last_failure = 0;
            return fail_by_time(self);
        }
        weft_status sent = report_cancel(self);
        if (sent == WEFT_OK) {
            poll_once(self);
            sent = report_refused(self);
        }
        if (sent != WEFT_OK) {
            return sent;
        }
    }
}

/* The same for a member: notices are logged, a bad verdict is final. */
static weft_status await_as_member(wefti_client *self,
                                   wefti_oob_message_kind kind)
{
    const unsigned allowed = WEFTI_KIND_BIT(WEFTI_OOB_NOTICE) |
                             WEFTI_KIND_BIT(WEFTI_OOB_VERDICT) |
                             WEFTI_KIND_BIT(kind);
    for (;;) {
        weft_status status = await_message(self, allowed);
        if (status == WEFT_INPROGRESS) {
            return fail_by_close(self);
        }
        if (status != WEFT_OK) {
            return status;
        }
        const wefti_oob_message_verdict *verdict = &self->message.as.verdict;
        if (self->message.kind == WEFTI_OOB_NOTICE) {
            wefti_log(WEFTI_LOG_WARN, self->request->rank, "waits: %s",
                      verdict->text);
        } else if (self->message.kind == WEFTI_OOB_VERDICT &&
                   verdict->status != WEFT_OK) {
            self->judged = true;
            return wefti_error(verdict->status, "%s", verdict->text);
        } else if (self->message.kind == kind) {
            return WEFT_OK;
        } else {
            return wefti_error(WEFT_ERR_BOOTSTRAP,
                               "rank %d: %s ended the bootstrap too early",
                               self->request->rank, self->endpoint->name);
        }
    }
}

/* The server decides first, so that all get the same. */
static uint32_t server_limit_ms(const wefti_client *self)
{
    int64_t left_ms = (self->limit_ns - wefti_clock_ns()) / 1000000;
    int64_t margin_ms = least(self->request->timeout_ms / 8, MARGIN_MOST_MS);
    return left_ms > margin_ms ? (uint32_t)(left_ms - margin_ms) : 0;
}

static weft_status ask_to_join(wefti_client *self)
{
    wefti_oob_message message = {.kind = WEFTI_OOB_JOIN};
    wefti_oob_message_join *join = &message.as.join;
    join->rank = (uint32_t)self->request->rank;
    join->nranks = (uint32_t)self->request->nranks;
    join->pid = (uint32_t)getpid();
    join->warn_ms = (uint32_t)self->request->warn_ms;
    join->timeout_ms = server_limit_ms(self);
    memcpy(join->tuning, self->request->tuning, sizeof(join->tuning));
    weft_status status = wefti_place_find(self->request->rank, &join->place);
    if (status != WEFT_OK) {
        return status;
    }
    memcpy(join->socket_name, self->socket_name, sizeof(join->socket_name));
    return wefti_oob_connection_post(&self->connection, &message);
}

/* Over a fresh connection. INPROGRESS: it was lost, try again. */
static weft_status introduce(wefti_client *self)
{
    weft_status status = await_message(self, 0);
    if (status == WEFT_OK) {
        self->challenged = true;
        status = ask_to_join(self);
    }
    if (status == WEFT_OK) {
        status = await_message(self, WEFTI_KIND_BIT(WEFTI_OOB_REFUSAL) |
                                         WEFTI_KIND_BIT(WEFTI_OOB_VERDICT) |
                                         WEFTI_KIND_BIT(WEFTI_OOB_ACCEPTED));
    }
    if (status == WEFT_OK && self->message.kind == WEFTI_OOB_REFUSAL) {
        if (self->request->foreign_out) {
            *self->request->foreign_out = true;
        }
        status = wefti_error(WEFT_ERR_BOOTSTRAP,
                             "rank %d: refused by %s: the secret differs",
                             self->request->rank, self->endpoint->name);
    } else if (status == WEFT_OK && self->message.kind == WEFTI_OOB_VERDICT) {
        self->judged = true;
        status = wefti_error(WEFT_ERR_BOOTSTRAP, "%s",
                             self->message.as.verdict.text);
    }
    return status;
}

/* What a connection that could not be made means. INPROGRESS: try again. */
static weft_status judge_failure(wefti_client *self)
{
    const int failure = self->connection.failure;
    const bool listened_before = self->challenged || !self->endpoint->patient;
    self->last_failure = failure;
    if (failure == ECONNREFUSED && listened_before) {
        return fail_by_close(self);
    }
    return failure == EACCES || failure == EPERM || failure == EMFILE ||
                   failure == ENFILE
               ? wefti_error(WEFT_ERR_SYSTEM, "cannot connect to %s (%s): %s",
                             self->endpoint->name, self->connection.failed_call,
                             strerror(failure))
               : WEFT_INPROGRESS;
}

/* One try. INPROGRESS: another may succeed. */
static weft_status try_once(wefti_client *self)
{
    weft_status status = wefti_oob_connection_open(
        &self->connection, self->endpoint, self->secret, WEFTI_OOB_FRAME_MOST);
    if (status != WEFT_OK) {
        return status;
    }
    if (!wefti_oob_connection_wait(&self->connection, self->deadline_ns,
                                   wefti_client_cancel_fd(self))) {
        return judge_failure(self);
    }
    self->last_failure = 0;
    status = introduce(self);
    if (status != WEFT_OK) {
        wefti_oob_connection_fini(&self->connection);
    }
    return status;
}

static weft_status enter(wefti_client *self)
{
    int64_t pause_ms = RETRY_FIRST_MS;
    for (;;) {
        weft_status status = try_once(self);
        if (status != WEFT_INPROGRESS) {
            return status;
        }
        warn_if_due(self);
        if (wefti_clock_ns() + pause_ms * 1000000 >= self->deadline_ns) {
            return fail_by_time(self);
        }
        wefti_client_pause(self, pause_ms);
        pause_ms = least(2 * pause_ms, RETRY_MOST_MS);
    }
}

/* How many infos of other domains a round brings this rank. */
static int count_infos(const wefti_membership *membership, int round)
{
    int infos = 0;
    for (int rank = 0; rank < membership->nranks; rank++) {
        infos += !wefti_membership_is_local(membership, rank) &&
                 (round > 0 || membership->members[rank].domain == rank);
    }
    return infos;
}

weft_status wefti_client_exchange(wefti_client *self,
                                  const wefti_membership *membership,
                                  const unsigned char *info, size_t info_bytes,
                                  weft_status (*take)(void *context, int rank,
                                                      const unsigned char *info,
                                                      size_t info_bytes),
                                  void *context)
{
    wefti_oob_message message = {
        .kind = WEFTI_OOB_INFO,
        .as.info = {.round = (uint32_t)self->round,
                    .rank = (uint32_t)membership->rank,
                    .used_bytes = (uint32_t)info_bytes}};
    WEFTI_ASSERT(self->round < WEFTI_INFO_ROUNDS &&
                 info_bytes <= WEFTI_INFO_BYTES);
    memcpy(message.as.info.bytes, info, info_bytes);
    weft_status taken = WEFT_OK;
    weft_status status = wefti_oob_connection_post(&self->connection, &message);
    for (int left = count_infos(membership, self->round);
         left > 0 && status == WEFT_OK; left--) {
        status = await_as_member(self, WEFTI_OOB_INFO);
        const wefti_oob_message_info *theirs = &self->message.as.info;
        if (status == WEFT_OK && ((int)theirs->round != self->round ||
                                  (int)theirs->rank >= membership->nranks)) {
            status = fail_by_language(self);
        } else if (status == WEFT_OK && taken == WEFT_OK) {
            taken = take(context, (int)theirs->rank, theirs->bytes,
                         theirs->used_bytes);
        }
    }
    self->round++;
    return status == WEFT_OK ? taken : status;
}

/* A member from here on. */
static weft_status take_part(wefti_client *self, wefti_membership *membership)
{
    const wefti_bootstrap_request *request = self->request;
    wefti_oob_message report = {.kind = WEFTI_OOB_REPORT};
    self->accepted = true;
    if (!self->cancelled) {
        self->deadline_ns =
            self->limit_ns + VERDICT_GRACE_MS * INT64_C(1000000);
    }
    self->warn_at_ns = INT64_MAX; /* the server warns now */
    weft_status status = WEFT_OK;
    for (int left = 1; left > 0 && status == WEFT_OK;) {
        status = await_as_member(self, WEFTI_OOB_WELCOME);
        if (status == WEFT_OK) {
            status = wefti_client_note_members(self, membership, &left);
        }
    }
    if (status == WEFT_OK) {
        status = wefti_client_collect(self, membership, &report);
    }
    if (status == WEFT_OK && wefti_client_is_complete(&report)) {
        const bool parted = count_infos(membership, 1) > 0;
        weft_status prepared =
            request->prepare ? request->prepare(request->context, membership,
                                                parted ? self : NULL)
            : parted
                ? wefti_error(WEFT_ERR_BOOTSTRAP, "not all ranks share memory")
                : WEFT_OK;
        if (self->judged) {
            return prepared;
        }
        wefti_client_refuse_part(&report, prepared);
    }
    if (status == WEFT_OK) {
        status = wefti_oob_connection_post(&self->connection, &report);
    }
    if (status == WEFT_OK) {
        status = await_as_member(self, WEFTI_OOB_VERDICT);
    }
    return status;
}

/* accepted_out: whether the others know, or will know, of this rank. */
static weft_status join_all(const wefti_endpoint *endpoint,
                            const wefti_secret *secret,
                            const wefti_bootstrap_request *request,
                            bool *accepted_out,
                            wefti_membership *membership_out)
{
    const int64_t start_ns = wefti_clock_ns();
    const int64_t stay_ms =
        request->stay_ms ? request->stay_ms : request->timeout_ms;
    wefti_client *self =
        calloc(1, sizeof(*self)); /* too large for small stacks */
    if (!self) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory to join: %zu bytes",
                           sizeof(*self));
    }
    self->endpoint = endpoint;
    self->secret = secret;
    self->request = request;
    self->limit_ns = start_ns + stay_ms * 1000000;
    self->deadline_ns = start_ns + request->timeout_ms * 1000000;
    self->warn_at_ns = start_ns + request->warn_ms * 1000000;
    self->connection.fd = -1;
    wefti_membership membership;
    weft_status status =
        wefti_membership_init(&membership, request->rank, request->nranks);
    weft_status opened =
        wefti_memory_source_open(&self->memory_source, self->socket_name);
    if (status == WEFT_OK) {
        status = opened;
    }
    if (status == WEFT_OK) {
        status = enter(self);
    }
    if (status == WEFT_OK) {
        status = take_part(self, &membership);
    }
    const bool judged = self->judged;
    if (request->judged_out) {
        *request->judged_out = judged;
    }
    *accepted_out = self->accepted || judged;
    wefti_memory_source_close(&self->memory_source);
    wefti_oob_connection_fini(&self->connection);
    free(self);
    if (status != WEFT_OK) {
        wefti_membership_fini(&membership);
        return request->refused != WEFT_OK && !judged
                   ? wefti_error(request->refused, "%s", request->refused_text)
                   : status;
    }
    *membership_out = membership;
    return WEFT_OK;
}

weft_status wefti_client_join(const wefti_endpoint *endpoint,
                              const wefti_secret *secret,
                              const wefti_bootstrap_request *request,
                              wefti_membership *membership_out)
{
    bool accepted = false;
    char reason[512];
    weft_status status =
        join_all(endpoint, secret, request, &accepted, membership_out);
    if (accepted || request->refused != WEFT_OK ||
        (status != WEFT_ERR_NO_MEMORY && status != WEFT_ERR_SYSTEM)) {
        return status;
    }
    /* What it lacked to take part may suffice to send the others the reason. */
    snprintf(reason, sizeof(reason), "%s", weft_error_text());
    const wefti_bootstrap_request telling =
        wefti_bootstrap_refuse(request, status, reason);
    return join_all(endpoint, secret, &telling, &accepted, membership_out);
}
