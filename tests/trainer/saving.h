/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/trainer/saving.h - saves and verifies checkpoints whose contents
 * follow from their step and rank.
 */
#ifndef TESTS_TRAINER_SAVING_H
#define TESTS_TRAINER_SAVING_H

#include "trainer/checkpoint/checkpoint_owner.h"
#include "trainer/mix.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAVING_NRANKS 2
#define SAVING_ELEMS  3000
#define SAVING_RUN    UINT64_C(0x5A5A)

static inline wefti_checkpoint_header saving_header(uint64_t step)
{
    wefti_checkpoint_header header = {
        .step = step, .nranks = SAVING_NRANKS, .next_sequence = step + 7};
    memset(header.config_digest, 0xC0, sizeof(header.config_digest));
    memset(header.data_hash, 0xDA, sizeof(header.data_hash));
    return header;
}

static inline void saving_fill(uint64_t step, uint32_t rank, uint64_t *state)
{
    for (size_t i = 0; i < SAVING_ELEMS; i++) {
        state[i] = wefti_mix_at(step << 8 | rank, i);
    }
}

/* The run that saves there, in a session of its own. */
static inline weft_status saving_open(wefti_checkpoint_owner *owner,
                                      const char *dir)
{
    *owner = (wefti_checkpoint_owner){.origin = {.run = SAVING_RUN}};
    weft_status status = wefti_checkpoint_make_folders(dir);
    return status == WEFT_OK ? wefti_checkpoint_owner_open(owner, dir) : status;
}

enum { SAVING_PIECES = 2, SAVING_MOMENTS = 100 };

/* A rank's part of a vector, and a matrix of its own. */
static inline void saving_list(uint32_t rank, uint64_t *state,
                               wefti_checkpoint_piece pieces[SAVING_PIECES])
{
    pieces[0] =
        (wefti_checkpoint_piece){.name = "parameters",
                                 .dtype = WEFT_DTYPE_F64,
                                 .columns = SAVING_NRANKS * SAVING_ELEMS,
                                 .offset = rank * SAVING_ELEMS,
                                 .elems = SAVING_ELEMS,
                                 .live = state};
    pieces[1] = (wefti_checkpoint_piece){.dtype = WEFT_DTYPE_U8,
                                         .rows = 5,
                                         .columns = SAVING_MOMENTS / 5,
                                         .elems = SAVING_MOMENTS,
                                         .live = state};
    snprintf(pieces[1].name, sizeof(pieces[1].name), "moments.%u",
             (unsigned)rank);
}

/* One rank's file. */
static inline weft_status saving_write(const wefti_checkpoint_owner *owner,
                                       uint64_t step, uint32_t rank)
{
    uint64_t state[SAVING_ELEMS];
    wefti_checkpoint_piece pieces[SAVING_PIECES];
    wefti_checkpoint_header header = saving_header(step);
    header.origin = owner->origin;
    saving_fill(step, rank, state);
    saving_list(rank, state, pieces);
    return wefti_checkpoint_write(owner->dir, &header, rank, pieces,
                                  SAVING_PIECES, NULL);
}

/* All of a step but its commit, by all ranks in turn. */
static inline weft_status saving_seal(const wefti_checkpoint_owner *owner,
                                      uint64_t step)
{
    weft_status status = wefti_checkpoint_begin(owner, owner->dir, step);
    for (uint32_t rank = 0; status == WEFT_OK && rank < SAVING_NRANKS; rank++) {
        status = saving_write(owner, step, rank);
    }
    return status == WEFT_OK
               ? wefti_checkpoint_seal(owner, owner->dir, step, SAVING_NRANKS)
               : status;
}

/* A session that saves one step. */
static inline weft_status saving_step(const char *dir, uint64_t step,
                                      size_t keep)
{
    wefti_checkpoint_owner owner;
    weft_status status = saving_open(&owner, dir);
    if (status == WEFT_OK) {
        status = saving_seal(&owner, step);
    }
    if (status == WEFT_OK) {
        status = wefti_checkpoint_commit(&owner, owner.dir, step, keep);
    }
    wefti_checkpoint_owner_close(&owner);
    return status;
}

/* Whether one rank's file reads back as it was written. */
static inline weft_status saving_verify_rank(const char *dir, uint64_t step,
                                             uint32_t rank)
{
    uint64_t state[SAVING_ELEMS], expected[SAVING_ELEMS];
    uint8_t moments[SAVING_MOMENTS];
    void *values[SAVING_PIECES] = {state, moments};
    wefti_checkpoint_piece pieces[SAVING_PIECES];
    wefti_checkpoint_reader *reader = NULL;
    wefti_checkpoint_header header = saving_header(step);
    wefti_checkpoint_done done;
    weft_status status = wefti_checkpoint_read_done(dir, step, &done);
    if (status == WEFT_OK) {
        status = wefti_checkpoint_reader_open(dir, &done, &reader);
    }
    if (status == WEFT_OK) {
        status = wefti_checkpoint_reader_match(reader, &header);
    }
    memset(state, 0xA5, sizeof(state));
    saving_list(rank, state, pieces);
    for (int i = 0; status == WEFT_OK && i < 2 * SAVING_PIECES; i++) {
        status = wefti_checkpoint_reader_get(reader, &pieces[i / 2],
                                             i % 2 ? values[i / 2] : NULL);
    }
    if (status == WEFT_OK &&
        wefti_checkpoint_reader_header(reader)->next_sequence != step + 7) {
        fprintf(stderr, "step %llu: wrong data\n", (unsigned long long)step);
        abort();
    }
    wefti_checkpoint_reader_close(reader);
    saving_fill(step, rank, expected);
    if (status == WEFT_OK &&
        (memcmp(state, expected, sizeof(state)) != 0 ||
         memcmp(moments, expected, sizeof(moments)) != 0)) {
        fprintf(stderr, "step %llu: wrong values\n", (unsigned long long)step);
        abort();
    }
    return status;
}

static inline weft_status saving_verify(const char *dir, uint64_t step)
{
    weft_status status = WEFT_OK;
    for (uint32_t rank = 0; status == WEFT_OK && rank < SAVING_NRANKS; rank++) {
        status = saving_verify_rank(dir, step, rank);
    }
    return status;
}

#endif
