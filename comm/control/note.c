/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/control/note.c - one walk over the fields of each kind, for writing
 * and for reading.
 */
#include "comm/control/note.h"

#include "base/check.h"
#include "comm/oob/cursor.h"

enum { TEXT_MOST = sizeof(((wefti_note *)0)->text) - 1, STATUS_MOST = 1000 };

/* Each false if what was read is out of range. */
static bool walk_rank(wefti_oob_cursor *cursor, wefti_note *note)
{
    uint32_t rank = (uint32_t)note->rank;
    wefti_oob_cursor_number(cursor, &rank, 4);
    note->rank = (int32_t)rank;
    return rank < WEFTI_JOB_RANKS_MOST;
}

static bool walk_fault(wefti_oob_cursor *cursor, wefti_note *note)
{
    uint32_t status = (uint32_t)-note->status;
    uint32_t rank = (uint32_t)(note->rank + 1);
    wefti_oob_cursor_long(cursor, &note->comm);
    wefti_oob_cursor_number(cursor, &status, 4);
    wefti_oob_cursor_number(cursor, &rank, 4);
    wefti_oob_cursor_long(cursor, &note->op_number);
    wefti_oob_cursor_long(cursor, &note->completed);
    if (status < 1 || status > STATUS_MOST || rank > WEFTI_JOB_RANKS_MOST) {
        return false;
    }
    note->status = -(int32_t)status;
    note->rank = (int32_t)rank - 1;
    return wefti_oob_cursor_text(cursor, note->text, TEXT_MOST);
}

static bool walk_ballot(wefti_oob_cursor *cursor, wefti_note *note)
{
    wefti_oob_cursor_long(cursor, &note->comm);
    wefti_oob_cursor_number(cursor, &note->place.round, 1);
    wefti_oob_cursor_number(cursor, &note->place.question, 1);
    wefti_oob_cursor_number(cursor, &note->place.turn, 1);
    wefti_oob_cursor_number(cursor, &note->place.domain, 4);
    wefti_oob_cursor_long(cursor, &note->vote.number);
    for (int i = 0; i < WEFTI_VOTE_WORDS; i++) {
        wefti_oob_cursor_long(cursor, &note->vote.words[i]);
    }
    return note->place.round < WEFTI_SHRINK_ROUNDS &&
           note->place.question < WEFTI_BALLOT_QUESTIONS &&
           note->place.turn < WEFTI_BALLOT_TURNS &&
           note->place.domain < WEFTI_JOB_RANKS_MOST;
}

static bool walk(wefti_oob_cursor *cursor, wefti_note *note)
{
    uint32_t kind = note->kind, known = note->known;
    wefti_oob_cursor_number(cursor, &kind, 1);
    wefti_oob_cursor_number(cursor, &note->serial, 4);
    note->kind = (wefti_note_kind)kind;
    switch (note->kind) {
    case WEFTI_NOTE_PRESENT:
        return walk_rank(cursor, note);
    case WEFTI_NOTE_ACK:
        wefti_oob_cursor_number(cursor, &known, 1);
        note->known = known == 1;
        return known <= 1;
    case WEFTI_NOTE_RANK_OUTCOME:
        if (!walk_rank(cursor, note)) {
            return false;
        }
        wefti_oob_cursor_number(cursor, &note->outcome, 1);
        return note->outcome == WEFTI_RANK_OUTCOME_DEAD ||
               note->outcome == WEFTI_RANK_OUTCOME_LEFT;
    case WEFTI_NOTE_FAULT:
        return walk_fault(cursor, note);
    case WEFTI_NOTE_BALLOT:
        return walk_ballot(cursor, note);
    case WEFTI_NOTE_PING:
    case WEFTI_NOTE_BYE:
        return true;
    case WEFTI_NOTE_KIND_END:
        break;
    }
    return false;
}

void wefti_note_encode(const wefti_note *note, wefti_oob_message *message_out)
{
    wefti_oob_message_note *out = &message_out->as.note;
    wefti_oob_cursor cursor = {.to = out->bytes,
                               .left_bytes = WEFTI_NOTE_BYTES};
    wefti_note own = *note;
    message_out->kind = WEFTI_OOB_NOTE;
    cursor.bad |= !walk(&cursor, &own);
    WEFTI_ASSERT(!cursor.bad);
    out->used_bytes = (uint32_t)(WEFTI_NOTE_BYTES - cursor.left_bytes);
}

bool wefti_note_decode(const wefti_oob_message *message, wefti_note *note_out)
{
    const wefti_oob_message_note *in = &message->as.note;
    wefti_oob_cursor cursor = {.from = in->bytes, .left_bytes = in->used_bytes};
    memset(note_out, 0, sizeof(*note_out));
    return message->kind == WEFTI_OOB_NOTE && walk(&cursor, note_out) &&
           !cursor.bad && cursor.left_bytes == 0;
}
