/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/control/note.c - one writer and one reader for all kinds of notes.
 */
#include "comm/control/note.h"

#include "base/check.h"
#include "comm/oob/cursor.h"

enum { TEXT_MOST = sizeof(((wefti_note *)0)->text) - 1, STATUS_MOST = 1000 };

static void write_long(wefti_oob_writer *writer, uint64_t value)
{
    wefti_oob_writer_number(writer, (uint32_t)value, 4);
    wefti_oob_writer_number(writer, (uint32_t)(value >> 32), 4);
}

static uint64_t read_long(wefti_oob_reader *reader)
{
    uint64_t low = wefti_oob_reader_number(reader, 4);
    return low | (uint64_t)wefti_oob_reader_number(reader, 4) << 32;
}

static void write_fault(wefti_oob_writer *writer, const wefti_note *note)
{
    size_t characters = strnlen(note->text, TEXT_MOST);
    write_long(writer, note->comm);
    wefti_oob_writer_number(writer, (uint32_t)-note->status, 4);
    wefti_oob_writer_number(writer, (uint32_t)(note->rank + 1), 4);
    write_long(writer, note->op_number);
    write_long(writer, note->completed);
    wefti_oob_writer_number(writer, (uint32_t)characters, 2);
    wefti_oob_writer_bytes(writer, note->text, characters);
}

static bool read_fault(wefti_oob_reader *reader, wefti_note *note)
{
    note->comm = read_long(reader);
    uint32_t status = wefti_oob_reader_number(reader, 4);
    uint32_t rank = wefti_oob_reader_number(reader, 4);
    note->op_number = read_long(reader);
    note->completed = read_long(reader);
    uint32_t characters = wefti_oob_reader_number(reader, 2);
    if (status < 1 || status > STATUS_MOST || rank > WEFTI_JOB_RANKS_MOST ||
        characters > TEXT_MOST) {
        return false;
    }
    note->status = -(int32_t)status;
    note->rank = (int32_t)rank - 1;
    wefti_oob_reader_bytes(reader, note->text, characters);
    note->text[characters] = '\0';
    for (uint32_t i = 0; i < characters; i++) {
        if (note->text[i] < ' ' || note->text[i] > '~') {
            return false;
        }
    }
    return true;
}

static void write_ballot(wefti_oob_writer *writer, const wefti_note *note)
{
    write_long(writer, note->comm);
    wefti_oob_writer_number(writer, note->place.round, 1);
    wefti_oob_writer_number(writer, note->place.question, 1);
    wefti_oob_writer_number(writer, note->place.turn, 1);
    wefti_oob_writer_number(writer, note->place.domain, 4);
    write_long(writer, note->vote.number);
    for (int i = 0; i < WEFTI_VOTE_WORDS; i++) {
        write_long(writer, note->vote.words[i]);
    }
}

static bool read_ballot(wefti_oob_reader *reader, wefti_note *note)
{
    note->comm = read_long(reader);
    note->place.round = wefti_oob_reader_number(reader, 1);
    note->place.question = wefti_oob_reader_number(reader, 1);
    note->place.turn = wefti_oob_reader_number(reader, 1);
    note->place.domain = wefti_oob_reader_number(reader, 4);
    note->vote.number = read_long(reader);
    for (int i = 0; i < WEFTI_VOTE_WORDS; i++) {
        note->vote.words[i] = read_long(reader);
    }
    return note->place.round < WEFTI_SHRINK_ROUNDS &&
           note->place.question < WEFTI_BALLOT_QUESTIONS &&
           note->place.turn < WEFTI_BALLOT_TURNS &&
           note->place.domain < WEFTI_JOB_RANKS_MOST;
}

static bool read_rank(wefti_oob_reader *reader, wefti_note *note)
{
    uint32_t rank = wefti_oob_reader_number(reader, 4);
    note->rank = (int32_t)(rank % WEFTI_JOB_RANKS_MOST);
    return rank < WEFTI_JOB_RANKS_MOST;
}

static void write_fields(wefti_oob_writer *writer, const wefti_note *note)
{
    switch (note->kind) {
    case WEFTI_NOTE_PRESENT:
        wefti_oob_writer_number(writer, (uint32_t)note->rank, 4);
        break;
    case WEFTI_NOTE_ACK:
        wefti_oob_writer_number(writer, note->known, 1);
        break;
    case WEFTI_NOTE_RANK_OUTCOME:
        wefti_oob_writer_number(writer, (uint32_t)note->rank, 4);
        wefti_oob_writer_number(writer, note->outcome, 1);
        break;
    case WEFTI_NOTE_FAULT:
        write_fault(writer, note);
        break;
    case WEFTI_NOTE_BALLOT:
        write_ballot(writer, note);
        break;
    case WEFTI_NOTE_PING:
    case WEFTI_NOTE_BYE:
    case WEFTI_NOTE_KIND_END:
        break;
    }
}

static bool read_fields(wefti_oob_reader *reader, wefti_note *note)
{
    uint32_t word;
    switch (note->kind) {
    case WEFTI_NOTE_PRESENT:
        return read_rank(reader, note);
    case WEFTI_NOTE_ACK:
        word = wefti_oob_reader_number(reader, 1);
        note->known = word == 1;
        return word <= 1;
    case WEFTI_NOTE_RANK_OUTCOME:
        if (!read_rank(reader, note)) {
            return false;
        }
        note->outcome = wefti_oob_reader_number(reader, 1);
        return note->outcome == WEFTI_RANK_OUTCOME_DEAD ||
               note->outcome == WEFTI_RANK_OUTCOME_LEFT;
    case WEFTI_NOTE_FAULT:
        return read_fault(reader, note);
    case WEFTI_NOTE_BALLOT:
        return read_ballot(reader, note);
    case WEFTI_NOTE_PING:
    case WEFTI_NOTE_BYE:
    case WEFTI_NOTE_KIND_END:
        break;
    }
    return true;
}

void wefti_note_encode(const wefti_note *note, wefti_oob_message *message_out)
{
    wefti_oob_message_note *out = &message_out->as.note;
    wefti_oob_writer writer = {out->bytes, WEFTI_NOTE_BYTES, false};
    message_out->kind = WEFTI_OOB_NOTE;
    wefti_oob_writer_number(&writer, (uint32_t)note->kind, 1);
    wefti_oob_writer_number(&writer, note->serial, 4);
    write_fields(&writer, note);
    WEFTI_ASSERT(!writer.bad);
    out->used_bytes = (uint32_t)(WEFTI_NOTE_BYTES - writer.left_bytes);
}

bool wefti_note_decode(const wefti_oob_message *message, wefti_note *note_out)
{
    const wefti_oob_message_note *in = &message->as.note;
    wefti_oob_reader reader = {in->bytes, in->used_bytes, false};
    if (message->kind != WEFTI_OOB_NOTE) {
        return false;
    }
    memset(note_out, 0, sizeof(*note_out));
    uint32_t kind = wefti_oob_reader_number(&reader, 1);
    note_out->serial = wefti_oob_reader_number(&reader, 4);
    if (kind < WEFTI_NOTE_PRESENT || kind >= WEFTI_NOTE_KIND_END) {
        return false;
    }
    note_out->kind = (wefti_note_kind)kind;
    return read_fields(&reader, note_out) && !reader.bad &&
           reader.left_bytes == 0;
}
