/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/client_collect.c - what a member takes once it is welcome: its
 * domain's memory, and descriptors of the other processes.
 */
#include "comm/oob/client_state.h"

#include "base/error.h"
#include "comm/oob/handover.h"
#include "comm/oob/membership.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void wefti_client_refuse_part(wefti_oob_message *report, weft_status status)
{
    if (status != WEFT_OK) {
        *report = (wefti_oob_message){.kind = WEFTI_OOB_VERDICT,
                                      .as.verdict.status = status};
        snprintf(report->as.verdict.text, WEFTI_OOB_REASON_MOST + 1, "%s",
                 weft_error_text());
    }
}

bool wefti_client_is_complete(const wefti_oob_message *report)
{
    return report->kind == WEFTI_OOB_REPORT &&
           report->as.report.outcome == WEFTI_OUTCOME_COMPLETE;
}

static weft_status refuse_welcome(const wefti_client *self)
{
    return wefti_error(WEFT_ERR_BOOTSTRAP,
                       "rank %d: the welcome of %s does not fit",
                       self->request->rank, self->endpoint->name);
}

/* Whether a rank's leaders are itself, or earlier ones that lead themselves. */
static bool is_led(const wefti_member *members, int rank)
{
    const int domain = members[rank].domain, host = members[rank].host;
    bool led = domain <= rank && host <= rank &&
               members[domain].domain == domain && members[host].host == host;
    for (int level = 0; level < WEFTI_PLACE_LEVELS && led; level++) {
        const int first = members[rank].inner[level];
        led = first <= rank && members[first].inner[level] == first &&
              members[first].domain == domain;
    }
    return led;
}

weft_status wefti_client_note_members(wefti_client *self,
                                      wefti_membership *membership,
                                      int *left_out)
{
    const wefti_oob_message_welcome *welcome = &self->message.as.welcome;
    if ((int)welcome->nranks != membership->nranks ||
        (int)welcome->first != self->welcomed) {
        return refuse_welcome(self);
    }
    for (uint32_t i = 0; i < wefti_welcome_count(welcome); i++) {
        const int rank = self->welcomed++;
        wefti_member *member = &membership->members[rank];
        member->pid = (pid_t)welcome->pids[i];
        member->domain = welcome->domains[i];
        member->host = welcome->hosts[i];
        for (int level = 0; level < WEFTI_PLACE_LEVELS; level++) {
            member->inner[level] = welcome->inner[i][level];
        }
        if (!is_led(membership->members, rank)) {
            return refuse_welcome(self);
        }
    }
    *left_out = membership->nranks - self->welcomed;
    return WEFT_OK;
}

/* The domain's memory: made here, or fetched from the domain's leader. */
static weft_status get_memory(wefti_client *self, wefti_membership *membership,
                              wefti_oob_message_report *report)
{
    const wefti_oob_message_welcome *welcome = &self->message.as.welcome;
    const uint32_t rank = (uint32_t)self->request->rank;
    const char *call = "";
    if (membership->members[rank].domain == (int)rank) {
        return wefti_memory_source_start(&self->memory_source, membership);
    }
    wefti_memory_source_close(&self->memory_source);
    wefti_tokens tokens = wefti_handover_tokens(membership->job_key, rank);
    report->outcome = wefti_handover_fetch(
        welcome->socket_name, rank, &tokens, self->deadline_ns,
        wefti_client_cancel_fd(self), &membership->memory_fd, &call);
    sodium_memzero(&tokens, sizeof(tokens));
    if (report->outcome == WEFTI_OUTCOME_SYSTEM && errno == ECANCELED) {
        wefti_client_pause(self, 0);
        return wefti_bootstrap_cancelled(self->request);
    }
    return report->outcome == WEFTI_OUTCOME_SYSTEM
               ? wefti_error_system("cannot take the descriptors of the job "
                                    "(%s)",
                                    call)
               : WEFT_OK;
}

weft_status wefti_client_collect(wefti_client *self,
                                 wefti_membership *membership,
                                 wefti_oob_message *message)
{
    const wefti_oob_message_welcome *welcome = &self->message.as.welcome;
    wefti_oob_message_report *report = &message->as.report;
    *report = (wefti_oob_message_report){0};
    if (membership->members[membership->rank].pid != getpid() ||
        !wefti_oob_session_unbox(&self->connection.session, welcome->box,
                                 membership->job_key)) {
        return refuse_welcome(self);
    }
    memcpy(membership->tuning, welcome->tuning, sizeof(membership->tuning));
    wefti_client_refuse_part(message, get_memory(self, membership, report));
    if (!wefti_client_is_complete(message)) {
        return WEFT_OK;
    }
    if (self->request->refused != WEFT_OK) {
        wefti_client_refuse_part(message,
                                 wefti_error(self->request->refused, "%s",
                                             self->request->refused_text));
        return WEFT_OK;
    }
    int subject = wefti_membership_watch(membership);
    if (subject >= 0 && errno == ESRCH) {
        report->subject = (uint32_t)subject;
        report->outcome = WEFTI_OUTCOME_GONE;
    } else if (subject >= 0) {
        wefti_client_refuse_part(
            message, wefti_error_system("cannot watch rank %d's process "
                                        "(pidfd_open; a seccomp profile may "
                                        "forbid it)",
                                        subject));
    }
    return WEFT_OK;
}
