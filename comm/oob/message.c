/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/message.c - one writer and one reader per kind, and the table
 * of sizes that guards them.
 */
#include "comm/oob/message.h"

#include "base/check.h"
#include "comm/oob/cursor.h"
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

static void write_hello(wefti_oob_writer *writer,
                        const wefti_oob_message_hello *hello)
{
    wefti_oob_writer_bytes(writer, magic, sizeof(magic));
    wefti_oob_writer_number(writer, hello->version.major, 2);
    wefti_oob_writer_number(writer, hello->version.minor, 2);
    wefti_oob_writer_number(writer, hello->version.patch, 2);
    wefti_oob_writer_bytes(writer, hello->nonce, sizeof(hello->nonce));
}

static bool read_hello(wefti_oob_reader *reader, wefti_oob_message_hello *hello)
{
    unsigned char found[sizeof(magic)];
    wefti_oob_reader_bytes(reader, found, sizeof(found));
    hello->version.major = (uint16_t)wefti_oob_reader_number(reader, 2);
    hello->version.minor = (uint16_t)wefti_oob_reader_number(reader, 2);
    hello->version.patch = (uint16_t)wefti_oob_reader_number(reader, 2);
    memset(hello->nonce, 0, sizeof(hello->nonce));
    if (memcmp(found, magic, sizeof(magic)) != 0) {
        return false;
    }
    if (!wefti_version_is_own(hello->version)) {
        reader->left_bytes = 0; /* another version's own affair */
        return true;
    }
    wefti_oob_reader_bytes(reader, hello->nonce, sizeof(hello->nonce));
    return true;
}

static void write_join(wefti_oob_writer *writer,
                       const wefti_oob_message_join *join)
{
    wefti_oob_writer_number(writer, join->rank, 4);
    wefti_oob_writer_number(writer, join->nranks, 4);
    wefti_oob_writer_number(writer, join->pid, 4);
    wefti_oob_writer_number(writer, join->warn_ms, 4);
    wefti_oob_writer_number(writer, join->timeout_ms, 4);
    wefti_oob_writer_bytes(writer, join->tuning, sizeof(join->tuning));
    wefti_oob_writer_bytes(writer, join->place.host, sizeof(join->place.host));
    wefti_oob_writer_bytes(writer, join->place.domain,
                           sizeof(join->place.domain));
    wefti_oob_writer_bytes(writer, join->place.inner,
                           sizeof(join->place.inner));
    wefti_oob_writer_bytes(writer, join->socket_name,
                           sizeof(join->socket_name));
}

static bool read_join(wefti_oob_reader *reader, wefti_oob_message_join *join)
{
    join->rank = wefti_oob_reader_number(reader, 4);
    join->nranks = wefti_oob_reader_number(reader, 4);
    join->pid = wefti_oob_reader_number(reader, 4);
    join->warn_ms = wefti_oob_reader_number(reader, 4);
    join->timeout_ms = wefti_oob_reader_number(reader, 4);
    wefti_oob_reader_bytes(reader, join->tuning, sizeof(join->tuning));
    wefti_oob_reader_bytes(reader, join->place.host, sizeof(join->place.host));
    wefti_oob_reader_bytes(reader, join->place.domain,
                           sizeof(join->place.domain));
    wefti_oob_reader_bytes(reader, join->place.inner,
                           sizeof(join->place.inner));
    wefti_oob_reader_bytes(reader, join->socket_name,
                           sizeof(join->socket_name));
    return join->rank < RANK_LIMIT && join->nranks >= 1 &&
           join->nranks <= RANK_LIMIT && join->pid >= 1 &&
           join->pid <= INT32_MAX && join->warn_ms >= 1 &&
           join->warn_ms <= INT32_MAX && join->timeout_ms <= INT32_MAX;
}

static void write_welcome(wefti_oob_writer *writer,
                          const wefti_oob_message_welcome *welcome)
{
    WEFTI_ASSERT(welcome->nranks <= WEFTI_JOB_RANKS_MOST);
    wefti_oob_writer_number(writer, welcome->nranks, 4);
    wefti_oob_writer_number(writer, welcome->first, 4);
    for (uint32_t i = 0; i < wefti_welcome_count(welcome); i++) {
        wefti_oob_writer_number(writer, welcome->pids[i], 4);
        wefti_oob_writer_number(writer, welcome->domains[i], 2);
        wefti_oob_writer_number(writer, welcome->hosts[i], 2);
        for (int level = 0; level < WEFTI_PLACE_LEVELS; level++) {
            wefti_oob_writer_number(writer, welcome->inner[i][level], 2);
        }
    }
    wefti_oob_writer_bytes(writer, welcome->tuning, sizeof(welcome->tuning));
    wefti_oob_writer_bytes(writer, welcome->socket_name,
                           sizeof(welcome->socket_name));
    wefti_oob_writer_bytes(writer, welcome->box, sizeof(welcome->box));
}

static bool read_welcome(wefti_oob_reader *reader,
                         wefti_oob_message_welcome *welcome)
{
    welcome->nranks = wefti_oob_reader_number(reader, 4);
    welcome->first = wefti_oob_reader_number(reader, 4);
    if (welcome->nranks < 1 || welcome->nranks > WEFTI_JOB_RANKS_MOST ||
        welcome->first >= welcome->nranks ||
        welcome->first % WEFTI_WELCOME_RANKS != 0) {
        return false;
    }
    for (uint32_t i = 0; i < wefti_welcome_count(welcome); i++) {
        welcome->pids[i] = wefti_oob_reader_number(reader, 4);
        welcome->domains[i] = (uint16_t)wefti_oob_reader_number(reader, 2);
        welcome->hosts[i] = (uint16_t)wefti_oob_reader_number(reader, 2);
        bool inner = true;
        for (int level = 0; level < WEFTI_PLACE_LEVELS; level++) {
            welcome->inner[i][level] =
                (uint16_t)wefti_oob_reader_number(reader, 2);
            inner &= welcome->inner[i][level] <= welcome->first + i;
        }
        if (!inner || welcome->pids[i] < 1 || welcome->pids[i] > INT32_MAX ||
            welcome->domains[i] > welcome->first + i ||
            welcome->hosts[i] > welcome->first + i) {
            return false;
        }
    }
    wefti_oob_reader_bytes(reader, welcome->tuning, sizeof(welcome->tuning));
    wefti_oob_reader_bytes(reader, welcome->socket_name,
                           sizeof(welcome->socket_name));
    wefti_oob_reader_bytes(reader, welcome->box, sizeof(welcome->box));
    return true;
}

static void write_claim(wefti_oob_writer *writer,
                        const wefti_oob_message_claim *claim)
{
    wefti_oob_writer_number(writer, claim->rank, 4);
    wefti_oob_writer_bytes(writer, claim->token, sizeof(claim->token));
}

static bool read_claim(wefti_oob_reader *reader, wefti_oob_message_claim *claim)
{
    claim->rank = wefti_oob_reader_number(reader, 4);
    wefti_oob_reader_bytes(reader, claim->token, sizeof(claim->token));
    return claim->rank < WEFTI_JOB_RANKS_MOST;
}

static bool printable(char character)
{
    return character >= ' ' && character <= '~';
}

static void write_text(wefti_oob_writer *writer, const char *text, size_t most)
{
    size_t characters = strnlen(text, most);
    wefti_oob_writer_number(writer, (uint32_t)characters, 2);
    for (size_t i = 0; i < characters; i++) {
        wefti_oob_writer_bytes(writer, printable(text[i]) ? &text[i] : "?", 1);
    }
}

/* text has room for most characters and a zero. */
static bool read_text(wefti_oob_reader *reader, char *text, size_t most)
{
    uint32_t characters = wefti_oob_reader_number(reader, 2);
    if (characters > most) {
        return false;
    }
    wefti_oob_reader_bytes(reader, text, characters);
    text[characters] = '\0';
    for (uint32_t i = 0; i < characters; i++) {
        if (!printable(text[i])) {
            return false;
        }
    }
    return true;
}

static void write_report(wefti_oob_writer *writer,
                         const wefti_oob_message_report *report)
{
    wefti_oob_writer_number(writer, (uint32_t)report->outcome, 1);
    wefti_oob_writer_number(writer, report->subject, 4);
    wefti_oob_writer_number(writer, report->error_number, 2);
}

static bool read_report(wefti_oob_reader *reader,
                        wefti_oob_message_report *report)
{
    uint32_t outcome = wefti_oob_reader_number(reader, 1);
    report->subject = wefti_oob_reader_number(reader, 4);
    report->error_number = wefti_oob_reader_number(reader, 2);
    if (outcome >= WEFTI_OUTCOME_END ||
        report->subject >= WEFTI_JOB_RANKS_MOST ||
        report->error_number > ERROR_NUMBER_MOST) {
        return false;
    }
    report->outcome = (wefti_outcome)outcome;
    return true;
}

static void write_verdict(wefti_oob_writer *writer,
                          const wefti_oob_message_verdict *verdict)
{
    uint32_t number = 0;
    while (number < WEFTI_COUNT_OF(verdicts) &&
           verdicts[number] != verdict->status) {
        number++;
    }
    if (number == WEFTI_COUNT_OF(verdicts)) {
        number = VERDICT_SYSTEM;
    }
    wefti_oob_writer_number(writer, number, 1);
    write_text(writer, verdict->text, WEFTI_OOB_TEXT_MOST);
}

static bool read_verdict(wefti_oob_reader *reader,
                         wefti_oob_message_verdict *verdict)
{
    uint32_t number = wefti_oob_reader_number(reader, 1);
    if (number >= WEFTI_COUNT_OF(verdicts)) {
        return false;
    }
    verdict->status = verdicts[number];
    return read_text(reader, verdict->text, WEFTI_OOB_TEXT_MOST);
}

static void write_info(wefti_oob_writer *writer,
                       const wefti_oob_message_info *info)
{
    WEFTI_ASSERT(info->used_bytes <= WEFTI_INFO_BYTES);
    wefti_oob_writer_number(writer, info->round, 1);
    wefti_oob_writer_number(writer, info->rank, 4);
    wefti_oob_writer_number(writer, info->used_bytes, 2);
    wefti_oob_writer_bytes(writer, info->bytes, info->used_bytes);
}

static bool read_info(wefti_oob_reader *reader, wefti_oob_message_info *info)
{
    info->round = wefti_oob_reader_number(reader, 1);
    info->rank = wefti_oob_reader_number(reader, 4);
    info->used_bytes = wefti_oob_reader_number(reader, 2);
    if (info->round >= WEFTI_INFO_ROUNDS ||
        info->rank >= WEFTI_JOB_RANKS_MOST ||
        info->used_bytes > WEFTI_INFO_BYTES) {
        return false;
    }
    wefti_oob_reader_bytes(reader, info->bytes, info->used_bytes);
    return true;
}

static void write_note(wefti_oob_writer *writer,
                       const wefti_oob_message_note *note)
{
    WEFTI_ASSERT(note->used_bytes <= WEFTI_NOTE_BYTES);
    wefti_oob_writer_number(writer, note->used_bytes, 2);
    wefti_oob_writer_bytes(writer, note->bytes, note->used_bytes);
}

static bool read_note(wefti_oob_reader *reader, wefti_oob_message_note *note)
{
    note->used_bytes = wefti_oob_reader_number(reader, 2);
    if (note->used_bytes > WEFTI_NOTE_BYTES) {
        return false;
    }
    wefti_oob_reader_bytes(reader, note->bytes, note->used_bytes);
    return true;
}

static void write_body(wefti_oob_writer *writer,
                       const wefti_oob_message *message)
{
    switch (message->kind) {
    case WEFTI_OOB_HELLO:
    case WEFTI_OOB_CHALLENGE:
        write_hello(writer, &message->as.hello);
        break;
    case WEFTI_OOB_JOIN:
        write_join(writer, &message->as.join);
        break;
    case WEFTI_OOB_NOTICE:
    case WEFTI_OOB_VERDICT:
        write_verdict(writer, &message->as.verdict);
        break;
    case WEFTI_OOB_WELCOME:
        write_welcome(writer, &message->as.welcome);
        break;
    case WEFTI_OOB_CLAIM:
    case WEFTI_OOB_HANDED:
        write_claim(writer, &message->as.claim);
        break;
    case WEFTI_OOB_INFO:
        write_info(writer, &message->as.info);
        break;
    case WEFTI_OOB_NOTE:
        write_note(writer, &message->as.note);
        break;
    case WEFTI_OOB_REPORT:
        write_report(writer, &message->as.report);
        break;
    case WEFTI_OOB_REFUSAL:
    case WEFTI_OOB_ACCEPTED:
    case WEFTI_OOB_KIND_END:
        break;
    }
}

size_t wefti_oob_message_encode(const wefti_oob_message *message,
                                unsigned char frame[WEFTI_OOB_FRAME_MOST])
{
    const size_t header_bytes = WEFTI_OOB_HEADER_BYTES;
    const size_t room_bytes = WEFTI_OOB_FRAME_MOST - header_bytes;
    wefti_oob_writer body = {frame + header_bytes, room_bytes, false};
    write_body(&body, message);
    if (kinds[message->kind].sealed) {
        static const unsigned char blank[WEFTI_OOB_MAC_BYTES];
        wefti_oob_writer_bytes(&body, blank, sizeof(blank));
    }
    WEFTI_ASSERT(!body.bad);
    size_t body_bytes = room_bytes - body.left_bytes;
    wefti_oob_writer header = {frame, header_bytes, false};
    wefti_oob_writer_number(&header, (uint32_t)body_bytes, 4);
    wefti_oob_writer_number(&header, (uint32_t)message->kind, 1);
    return header_bytes + body_bytes;
}

long wefti_oob_message_measure(const unsigned char *bytes, size_t have_bytes,
                               unsigned allowed)
{
    if (have_bytes < WEFTI_OOB_HEADER_BYTES) {
        return 0;
    }
    wefti_oob_reader header = {bytes, have_bytes, false};
    uint32_t body_bytes = wefti_oob_reader_number(&header, 4);
    uint32_t kind = wefti_oob_reader_number(&header, 1);
    if (kind < 1 || kind >= WEFTI_OOB_KIND_END ||
        !(allowed & WEFTI_KIND_BIT(kind))) {
        return -1;
    }
    size_t mac_bytes = kinds[kind].sealed ? WEFTI_OOB_MAC_BYTES : 0;
    if (body_bytes < kinds[kind].least_bytes + mac_bytes ||
        body_bytes > kinds[kind].most_bytes + mac_bytes) {
        return -1;
    }
    return WEFTI_OOB_HEADER_BYTES + (long)body_bytes;
}

static bool read_body(wefti_oob_reader *reader, wefti_oob_message *message)
{
    switch (message->kind) {
    case WEFTI_OOB_HELLO:
    case WEFTI_OOB_CHALLENGE:
        return read_hello(reader, &message->as.hello);
    case WEFTI_OOB_JOIN:
        return read_join(reader, &message->as.join);
    case WEFTI_OOB_NOTICE:
    case WEFTI_OOB_VERDICT:
        return read_verdict(reader, &message->as.verdict);
    case WEFTI_OOB_WELCOME:
        return read_welcome(reader, &message->as.welcome);
    case WEFTI_OOB_CLAIM:
    case WEFTI_OOB_HANDED:
        return read_claim(reader, &message->as.claim);
    case WEFTI_OOB_INFO:
        return read_info(reader, &message->as.info);
    case WEFTI_OOB_NOTE:
        return read_note(reader, &message->as.note);
    case WEFTI_OOB_REPORT:
        return read_report(reader, &message->as.report);
    case WEFTI_OOB_REFUSAL:
    case WEFTI_OOB_ACCEPTED:
    case WEFTI_OOB_KIND_END:
        break;
    }
    return true;
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
    size_t mac_bytes =
        kinds[message_out->kind].sealed ? WEFTI_OOB_MAC_BYTES : 0;
    wefti_oob_reader body = {frame + WEFTI_OOB_HEADER_BYTES,
                             frame_bytes - WEFTI_OOB_HEADER_BYTES - mac_bytes,
                             false};
    return read_body(&body, message_out) && !body.bad && body.left_bytes == 0;
}
