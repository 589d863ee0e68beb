/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/message_samples.h - one valid message of every kind, and some of
 * the extremes.
 */
#ifndef TESTS_COMM_MESSAGE_SAMPLES_H
#define TESTS_COMM_MESSAGE_SAMPLES_H

#include "comm/oob/message.h"

#include <string.h>

enum { MESSAGE_SAMPLE_COUNT = 25 };

static inline void sample_hello(wefti_oob_message *message, bool challenge)
{
    message->kind = challenge ? WEFTI_OOB_CHALLENGE : WEFTI_OOB_HELLO;
    message->as.hello.version = wefti_version_own();
    memset(message->as.hello.nonce, challenge ? 0xc1 : 0x1c, WEFTI_NONCE_BYTES);
}

static inline void sample_join(wefti_oob_message *message, uint32_t rank,
                               uint32_t nranks)
{
    message->kind = WEFTI_OOB_JOIN;
    message->as.join.rank = rank;
    message->as.join.nranks = nranks;
    message->as.join.pid = nranks == 1 ? 1 : INT32_MAX;
    message->as.join.warn_ms = 10000;
    message->as.join.timeout_ms = rank == 0 ? 0 : INT32_MAX;
    memset(message->as.join.tuning, 0x70, WEFTI_TUNING_BYTES);
}

static inline void sample_welcome(wefti_oob_message *message, uint32_t nranks)
{
    message->kind = WEFTI_OOB_WELCOME;
    message->as.welcome.nranks = nranks;
    for (uint32_t i = 0; i < wefti_welcome_count(&message->as.welcome); i++) {
        message->as.welcome.pids[i] = 1000 + i;
        message->as.welcome.domains[i] = (uint16_t)(i % 3 ? i / 3 * 3 : i);
        message->as.welcome.hosts[i] = 0;
        message->as.welcome.inner[i][0] = (uint16_t)i;
        message->as.welcome.inner[i][1] = message->as.welcome.domains[i];
    }
    memset(message->as.welcome.tuning, 0x71, WEFTI_TUNING_BYTES);
    memset(message->as.welcome.socket_name, 0x72, WEFTI_SOCKET_NAME_BYTES);
    memset(message->as.welcome.box, 0x73, WEFTI_BOX_BYTES);
}

static inline void sample_claim(wefti_oob_message *message,
                                wefti_oob_message_kind kind)
{
    message->kind = kind;
    message->as.claim.rank = WEFTI_JOB_RANKS_MOST - 1;
    memset(message->as.claim.token, 0x74, WEFTI_TOKEN_BYTES);
}

static inline void sample_report(wefti_oob_message *message,
                                 wefti_outcome outcome)
{
    message->kind = WEFTI_OOB_REPORT;
    message->as.report.outcome = outcome;
    message->as.report.subject = 3;
    message->as.report.error_number = 4095;
}

static inline void sample_card(wefti_oob_message *message, uint32_t round,
                               uint32_t bytes)
{
    message->kind = WEFTI_OOB_INFO;
    message->as.info.round = round;
    message->as.info.rank = WEFTI_JOB_RANKS_MOST - 1;
    message->as.info.used_bytes = bytes;
    memset(message->as.info.bytes, 0x75, bytes);
}

static inline void sample_note(wefti_oob_message *message, uint32_t bytes)
{
    message->kind = WEFTI_OOB_NOTE;
    message->as.note.used_bytes = bytes;
    memset(message->as.note.bytes, 0x76, bytes);
}

static inline void sample_text(wefti_oob_message *message,
                               wefti_oob_message_kind kind, weft_status status,
                               size_t characters)
{
    message->kind = kind;
    message->as.verdict.status = status;
    for (size_t i = 0; i < characters; i++) {
        message->as.verdict.text[i] = (char)(' ' + i % ('~' - ' ' + 1));
    }
}

/* Sample index of MESSAGE_SAMPLE_COUNT. */
static inline void message_sample(int index, wefti_oob_message *message)
{
    memset(message, 0, sizeof(*message));
    switch (index) {
    case 0:
    case 1:
        sample_hello(message, index == 1);
        break;
    case 2:
        sample_join(message, 0, 1);
        break;
    case 3:
        sample_join(message, (1 << 20) - 1, 1 << 20);
        break;
    case 4:
        message->kind = WEFTI_OOB_REFUSAL;
        break;
    case 5:
        message->kind = WEFTI_OOB_ACCEPTED;
        break;
    case 6:
    case 7:
        sample_welcome(message, index == 6 ? 1 : WEFTI_JOB_RANKS_MOST);
        break;
    case 8:
    case 9:
        sample_claim(message, index == 8 ? WEFTI_OOB_CLAIM : WEFTI_OOB_HANDED);
        break;
    case 10:
    case 11:
    case 12:
    case 13:
        sample_report(message, (wefti_outcome)(index - 10));
        break;
    case 20:
        sample_report(message, WEFTI_OUTCOME_REFUSED);
        break;
    case 21:
        sample_card(message, 0, 0);
        break;
    case 22:
        sample_card(message, WEFTI_INFO_ROUNDS - 1, WEFTI_INFO_BYTES);
        break;
    case 23:
        sample_note(message, 0);
        break;
    case 24:
        sample_note(message, WEFTI_NOTE_BYTES);
        break;
    case 14:
        sample_text(message, WEFTI_OOB_NOTICE, WEFT_OK, 40);
        break;
    case 15:
        sample_text(message, WEFTI_OOB_VERDICT, WEFT_OK, 0);
        break;
    case 16:
        sample_text(message, WEFTI_OOB_VERDICT, WEFT_ERR_TIMEOUT,
                    WEFTI_OOB_TEXT_MOST);
        break;
    case 17:
        sample_text(message, WEFTI_OOB_VERDICT, WEFT_ERR_SYSTEM, 1);
        break;
    case 18:
        sample_text(message, WEFTI_OOB_VERDICT, WEFT_ERR_INVALID, 95);
        break;
    default: /* another version: only its beginning is read */
        sample_hello(message, false);
        message->as.hello.version.minor++;
        memset(message->as.hello.nonce, 0, WEFTI_NONCE_BYTES);
        break;
    }
}

#endif
