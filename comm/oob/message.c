/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/message.c - one walk over the fields per kind, for writing and for
 * reading, and the table of sizes that guards them.
 */
#include "comm/oob/message.h"

#include "base/check.h"
#include "weft/version.h"

static const unsigned char magic[8] = {'w', 'e', 'f', 't', 'm', 'e', 'e', 't'};

enum {
    PROLOGUE_BYTES = 8 + 6, /* magic, version: fixed for ever */
    FOREIGN_HELLO_MOST = 256,
    HELLO_BYTES = PROLOGUE_BYTES + WEFTI_NONCE_BYTES,
    JOIN_BYTES = 5 * 4 + WEFTI_TUNING_BYTES +
                 (2 + WEFTI_PLACE_LEVELS) * WEFTI_PLACE_KEY_BYTES +
                 WEFTI_SOCKET_NAME_BYTES,
    WELCOME_REST_BYTES =
        2 * 4 + WEFTI_TUNING_BYTES + WEFTI_SOCKET_NAME_BYTES + WEFTI_BOX_BYTES,
    CLAIM_BYTES = 4 + WEFTI_TOKEN_BYTES,
    WELCOME_RANK_BYTES = 4 + 2 + 2 + 2 * WEFTI_PLACE_LEVELS,
    REPORT_BYTES = 1 + 4 + 2,
    INFO_REST_BYTES = 1 + 4 + 2,
    VERDICT_REST_BYTES = 1 + 2,
    NOTE_REST_BYTES = 2,
    RANK_LIMIT = 1 << 20,
    ERROR_NUMBER_MOST = 4095
};

typedef struct kind_row {
    size_t least_bytes, most_bytes; /* of the body without MAC */
    bool sealed;
} kind_row;

static const kind_row kinds[WEFTI_OOB_KIND_END] = {
    [WEFTI_OOB_HELLO] = {PROLOGUE_BYTES, FOREIGN_HELLO_MOST, false},
    [WEFTI_OOB_CHALLENGE] = {PROLOGUE_BYTES, FOREIGN_HELLO_MOST, false},
    [WEFTI_OOB_JOIN] = {JOIN_BYTES, JOIN_BYTES, true},
    [WEFTI_OOB_REFUSAL] = {0, 0, false},
    [WEFTI_OOB_ACCEPTED] = {0, 0, true},
    [WEFTI_OOB_NOTICE] = {VERDICT_REST_BYTES,
                          VERDICT_REST_BYTES + WEFTI_OOB_TEXT_MOST, true},
    [WEFTI_OOB_WELCOME] = {WELCOME_REST_BYTES + WELCOME_RANK_BYTES,
                           WELCOME_REST_BYTES +
                               WELCOME_RANK_BYTES *WEFTI_WELCOME_RANKS,
                           true},
    [WEFTI_OOB_CLAIM] = {CLAIM_BYTES, CLAIM_BYTES, false},
    [WEFTI_OOB_HANDED] = {CLAIM_BYTES, CLAIM_BYTES, false},
    [WEFTI_OOB_INFO] = {INFO_REST_BYTES, INFO_REST_BYTES + WEFTI_INFO_BYTES,
                        true},
    [WEFTI_OOB_REPORT] = {REPORT_BYTES, REPORT_BYTES, true},
    [WEFTI_OOB_VERDICT] = {VERDICT_REST_BYTES,
                           VERDICT_REST_BYTES + WEFTI_OOB_TEXT_MOST, true},
    [WEFTI_OOB_NOTE] = {NOTE_REST_BYTES, NOTE_REST_BYTES + WEFTI_NOTE_BYTES,
                        true},
};

_Static_assert(WEFTI_OOB_HEADER_BYTES + WELCOME_REST_BYTES +
                       WELCOME_RANK_BYTES * WEFTI_WELCOME_RANKS +
                       WEFTI_OOB_MAC_BYTES <=
                   WEFTI_OOB_FRAME_MOST,
               "a welcome must fit");
_Static_assert(WEFTI_OOB_HEADER_BYTES + JOIN_BYTES + WEFTI_OOB_MAC_BYTES <=
                   WEFTI_OOB_CLIENT_MOST,
               "a join must fit");
_Static_assert(WEFTI_OOB_HEADER_BYTES + VERDICT_REST_BYTES +
                       WEFTI_OOB_REASON_MOST + WEFTI_OOB_MAC_BYTES <=
                   WEFTI_OOB_CLIENT_MOST,
               "a member's reason must fit");
_Static_assert(WEFTI_OOB_HEADER_BYTES + INFO_REST_BYTES + WEFTI_INFO_BYTES +
                       WEFTI_OOB_MAC_BYTES <=
                   WEFTI_OOB_CLIENT_MOST,
               "a info must fit");
_Static_assert((int)WEFTI_NOTE_BYTES <= (int)WEFTI_INFO_BYTES,
               "a note must fit");

wefti_version wefti_version_own(void)
{
    return (wefti_version){WEFT_VERSION_MAJOR, WEFT_VERSION_MINOR,
                           WEFT_VERSION_PATCH};
}

void wefti_version_walk(wefti_oob_cursor *cursor, wefti_version *version)
{
    wefti_oob_cursor_short(cursor, &version->major);
    wefti_oob_cursor_short(cursor, &version->minor);
    wefti_oob_cursor_short(cursor, &version->patch);
}

bool wefti_version_is_own(wefti_version version)
{
    return version.major == WEFT_VERSION_MAJOR &&
           version.minor == WEFT_VERSION_MINOR &&
           version.patch == WEFT_VERSION_PATCH;
}

/* The statuses that travel, by their number on the wire. */
static const weft_status verdicts[] = {WEFT_OK,
                                       WEFT_ERR_INVALID,
                                       WEFT_ERR_SYSTEM,
                                       WEFT_ERR_BOOTSTRAP,
                                       WEFT_ERR_TIMEOUT,
                                       WEFT_ERR_NO_MEMORY,
                                       WEFT_ERR_UNSUPPORTED,
                                       WEFT_ERR_ABORTED};
enum { VERDICT_SYSTEM = 2 };

/* ---- one walk a kind: writes the fields, or reads them and checks them --- */

static bool walk_hello(wefti_oob_cursor *cursor, wefti_oob_message_hello *hello)
{
    unsigned char found[sizeof(magic)];
    memcpy(found, magic, sizeof(magic));
    wefti_oob_cursor_bytes(cursor, found, sizeof(found));
    wefti_version_walk(cursor, &hello->version);
    if (memcmp(found, magic, sizeof(magic)) != 0) {
        return false;
    }
    if (!cursor->to && !wefti_version_is_own(hello->version)) {
        memset(hello->nonce, 0, sizeof(hello->nonce));
        cursor->left_bytes = 0; /* another version's own affair */
        return true;
    }
    wefti_oob_cursor_bytes(cursor, hello->nonce, sizeof(hello->nonce));
    return true;
}

static bool walk_join(wefti_oob_cursor *cursor, wefti_oob_message_join *join)
{
    wefti_oob_cursor_number(cursor, &join->rank, 4);
    wefti_oob_cursor_number(cursor, &join->nranks, 4);
    wefti_oob_cursor_number(cursor, &join->pid, 4);
    wefti_oob_cursor_number(cursor, &join->warn_ms, 4);
    wefti_oob_cursor_number(cursor, &join->timeout_ms, 4);
    wefti_oob_cursor_bytes(cursor, join->tuning, sizeof(join->tuning));
    wefti_oob_cursor_bytes(cursor, &join->place, sizeof(join->place));
    wefti_oob_cursor_bytes(cursor, join->socket_name,
                           sizeof(join->socket_name));
    return join->rank < RANK_LIMIT && join->nranks >= 1 &&
           join->nranks <= RANK_LIMIT && join->pid >= 1 &&
           join->pid <= INT32_MAX && join->warn_ms >= 1 &&
           join->warn_ms <= INT32_MAX && join->timeout_ms <= INT32_MAX;
}

/* One of the ranks that a welcome lists. */
static bool walk_rank(wefti_oob_cursor *cursor,
                      wefti_oob_message_welcome *welcome, uint32_t i)
{
    const uint32_t rank = welcome->first + i;
    bool inner = true;
    wefti_oob_cursor_number(cursor, &welcome->pids[i], 4);
    wefti_oob_cursor_short(cursor, &welcome->domains[i]);
    wefti_oob_cursor_short(cursor, &welcome->hosts[i]);
    for (int level = 0; level < WEFTI_PLACE_LEVELS; level++) {
        wefti_oob_cursor_short(cursor, &welcome->inner[i][level]);
        inner &= welcome->inner[i][level] <= rank;
    }
    return inner && welcome->pids[i] >= 1 && welcome->pids[i] <= INT32_MAX &&
           welcome->domains[i] <= rank && welcome->hosts[i] <= rank;
}

static bool walk_welcome(wefti_oob_cursor *cursor,
                         wefti_oob_message_welcome *welcome)
{
    wefti_oob_cursor_number(cursor, &welcome->nranks, 4);
    wefti_oob_cursor_number(cursor, &welcome->first, 4);
    if (welcome->nranks < 1 || welcome->nranks > WEFTI_JOB_RANKS_MOST ||
        welcome->first >= welcome->nranks ||
        welcome->first % WEFTI_WELCOME_RANKS != 0) {
        return false;
    }
    for (uint32_t i = 0; i < wefti_welcome_count(welcome); i++) {
        if (!walk_rank(cursor, welcome, i)) {
            return false;
        }
    }
    wefti_oob_cursor_bytes(cursor, welcome->tuning, sizeof(welcome->tuning));
    wefti_oob_cursor_bytes(cursor, welcome->socket_name,
                           sizeof(welcome->socket_name));
    wefti_oob_cursor_bytes(cursor, welcome->box, sizeof(welcome->box));
    return true;
}

static bool walk_claim(wefti_oob_cursor *cursor, wefti_oob_message_claim *claim)
{
    wefti_oob_cursor_number(cursor, &claim->rank, 4);
    wefti_oob_cursor_bytes(cursor, claim->token, sizeof(claim->token));
    return claim->rank < WEFTI_JOB_RANKS_MOST;
}

static bool walk_report(wefti_oob_cursor *cursor,
                        wefti_oob_message_report *report)
{
    wefti_oob_cursor_number(cursor, &report->outcome, 1);
    wefti_oob_cursor_number(cursor, &report->subject, 4);
    wefti_oob_cursor_number(cursor, &report->error_number, 2);
    return report->outcome < WEFTI_OUTCOME_END &&
           report->subject < WEFTI_JOB_RANKS_MOST &&
           report->error_number <= ERROR_NUMBER_MOST;
}

static uint32_t number_of(weft_status status)
{
    uint32_t number = 0;
    while (number < WEFTI_COUNT_OF(verdicts) && verdicts[number] != status) {
        number++;
    }
    return number < WEFTI_COUNT_OF(verdicts) ? number : VERDICT_SYSTEM;
}

static bool walk_verdict(wefti_oob_cursor *cursor,
                         wefti_oob_message_verdict *verdict)
{
    uint32_t number = cursor->to ? number_of(verdict->status) : 0;
    wefti_oob_cursor_number(cursor, &number, 1);
    if (number >= WEFTI_COUNT_OF(verdicts)) {
        return false;
    }
    if (!cursor->to) {
        verdict->status = verdicts[number];
    }
    return wefti_oob_cursor_text(cursor, verdict->text, WEFTI_OOB_TEXT_MOST);
}

/* bytes has room for most of them. */
static bool walk_counted(wefti_oob_cursor *cursor, uint32_t *used_bytes,
                         unsigned char *bytes, uint32_t most)
{
    wefti_oob_cursor_number(cursor, used_bytes, 2);
    if (*used_bytes > most) {
        return false;
    }
    wefti_oob_cursor_bytes(cursor, bytes, *used_bytes);
    return true;
}

static bool walk_info(wefti_oob_cursor *cursor, wefti_oob_message_info *info)
{
    wefti_oob_cursor_number(cursor, &info->round, 1);
    wefti_oob_cursor_number(cursor, &info->rank, 4);
    return info->round < WEFTI_INFO_ROUNDS &&
           info->rank < WEFTI_JOB_RANKS_MOST &&
           walk_counted(cursor, &info->used_bytes, info->bytes,
                        WEFTI_INFO_BYTES);
}

static bool walk_body(wefti_oob_cursor *cursor, wefti_oob_message *message)
{
    switch (message->kind) {
    case WEFTI_OOB_HELLO:
    case WEFTI_OOB_CHALLENGE:
        return walk_hello(cursor, &message->as.hello);
    case WEFTI_OOB_JOIN:
        return walk_join(cursor, &message->as.join);
    case WEFTI_OOB_NOTICE:
    case WEFTI_OOB_VERDICT:
        return walk_verdict(cursor, &message->as.verdict);
    case WEFTI_OOB_WELCOME:
        return walk_welcome(cursor, &message->as.welcome);
    case WEFTI_OOB_CLAIM:
    case WEFTI_OOB_HANDED:
        return walk_claim(cursor, &message->as.claim);
    case WEFTI_OOB_INFO:
        return walk_info(cursor, &message->as.info);
    case WEFTI_OOB_NOTE:
        return walk_counted(cursor, &message->as.note.used_bytes,
                            message->as.note.bytes, WEFTI_NOTE_BYTES);
    case WEFTI_OOB_REPORT:
        return walk_report(cursor, &message->as.report);
    case WEFTI_OOB_REFUSAL:
    case WEFTI_OOB_ACCEPTED:
    case WEFTI_OOB_KIND_END:
        break;
    }
    return true;
}

static size_t mac_bytes(uint32_t kind)
{
    return kinds[kind].sealed ? WEFTI_OOB_MAC_BYTES : 0;
}

size_t wefti_oob_message_encode(const wefti_oob_message *message,
                                unsigned char frame[WEFTI_OOB_FRAME_MOST])
{
    const size_t header_bytes = WEFTI_OOB_HEADER_BYTES;
    const size_t room_bytes = WEFTI_OOB_FRAME_MOST - header_bytes;
    uint32_t kind = message->kind;
    wefti_oob_cursor body = {.to = frame + header_bytes,
                             .left_bytes = room_bytes - mac_bytes(kind)};
    /* A cursor that writes to a frame only reads the message. */
    body.bad |= !walk_body(&body, (wefti_oob_message *)message);
    WEFTI_ASSERT(!body.bad);
    memset(body.to, 0, mac_bytes(kind));
    uint32_t body_bytes = (uint32_t)(room_bytes - body.left_bytes);
    wefti_oob_cursor header = {.to = frame, .left_bytes = header_bytes};
    wefti_oob_cursor_number(&header, &body_bytes, 4);
    wefti_oob_cursor_number(&header, &kind, 1);
    return header_bytes + body_bytes;
}

long wefti_oob_message_measure(const unsigned char *bytes, size_t have_bytes,
                               unsigned allowed)
{
    uint32_t body_bytes = 0, kind = 0;
    if (have_bytes < WEFTI_OOB_HEADER_BYTES) {
        return 0;
    }
    wefti_oob_cursor header = {.from = bytes, .left_bytes = have_bytes};
    wefti_oob_cursor_number(&header, &body_bytes, 4);
    wefti_oob_cursor_number(&header, &kind, 1);
    if (kind < 1 || kind >= WEFTI_OOB_KIND_END ||
        !(allowed & WEFTI_KIND_BIT(kind)) ||
        body_bytes < kinds[kind].least_bytes + mac_bytes(kind) ||
        body_bytes > kinds[kind].most_bytes + mac_bytes(kind)) {
        return -1;
    }
    return WEFTI_OOB_HEADER_BYTES + (long)body_bytes;
}

bool wefti_oob_message_is_sealed(const unsigned char *frame)
{
    return kinds[frame[4]].sealed;
}

bool wefti_oob_message_decode(const unsigned char *frame, size_t frame_bytes,
                              wefti_oob_message *message_out)
{
    long expected = wefti_oob_message_measure(frame, frame_bytes, ~0u);
    if (expected <= 0 || (size_t)expected != frame_bytes) {
        return false;
    }
    message_out->kind = (wefti_oob_message_kind)frame[4];
    wefti_oob_cursor body = {.from = frame + WEFTI_OOB_HEADER_BYTES,
                             .left_bytes = frame_bytes -
                                           WEFTI_OOB_HEADER_BYTES -
                                           mac_bytes(frame[4])};
    return walk_body(&body, message_out) && !body.bad && body.left_bytes == 0;
}
