/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal    no bytes of the control channel harm their reader, and what is read
 *         is what was written.
 * Method  the input is what a NOTE message carries; a note that comes out of it
 *         has every field within its range, and written again is the same
 *         bytes.
 */
#include "comm/control/note.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes);

static void require(bool condition)
{
    if (!condition) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes)
{
    wefti_oob_message message = {.kind = WEFTI_OOB_NOTE}, again;
    wefti_note note;
    if (data_bytes > WEFTI_NOTE_BYTES) {
        return 0;
    }
    message.as.note.used_bytes = (uint32_t)data_bytes;
    memcpy(message.as.note.bytes, data, data_bytes);
    if (!wefti_note_decode(&message, &note)) {
        return 0;
    }
    require(note.rank >= -1 && note.rank < WEFTI_JOB_RANKS_MOST);
    require(note.status <= 0);
    require(strnlen(note.text, sizeof(note.text)) < sizeof(note.text));
    require(note.place.round < WEFTI_SHRINK_ROUNDS &&
            note.place.question < WEFTI_BALLOT_QUESTIONS &&
            note.place.turn < WEFTI_BALLOT_TURNS);
    wefti_note_encode(&note, &again);
    require(again.as.note.used_bytes == data_bytes &&
            memcmp(again.as.note.bytes, data, data_bytes) == 0);
    return 0;
}
