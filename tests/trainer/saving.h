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

static inline wefti_checkpoint_header saving_header(uint64_t step,
                                                    uint32_t rank)
{
    wefti_checkpoint_header header = {
        .step = step, .rank = rank, .nranks = SAVING_NRANKS};
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

/* One rank's file: two sections and an empty one. */
static inline weft_status saving_write(const wefti_checkpoint_owner *owner,
                                       uint64_t step, uint32_t rank)
{
    uint64_t state[SAVING_ELEMS];
    wefti_checkpoint_writer *writer = NULL;
    wefti_checkpoint_header header = saving_header(step, rank);
    header.origin = owner->origin;
    weft_status status =
        wefti_checkpoint_writer_open(owner->dir, &header, &writer);
    if (status != WEFT_OK) {
        return status;
    }
    saving_fill(step, rank, state);
    status = wefti_checkpoint_writer_add(writer, "parameters", WEFT_DTYPE_F64,
                                         state, SAVING_ELEMS);
    if (status == WEFT_OK) {
        status = wefti_checkpoint_writer_add(writer, "nothing", WEFT_DTYPE_F32,
                                             NULL, 0);
    }
    if (status == WEFT_OK) {
        status = wefti_checkpoint_writer_add(writer, "moments", WEFT_DTYPE_U8,
                                             state, 100);
    }
    if (status != WEFT_OK) {
        wefti_checkpoint_writer_abort(writer);
        return status;
    }
    return wefti_checkpoint_writer_close(writer);
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
    uint64_t state[SAVING_ELEMS];
    uint64_t expected[SAVING_ELEMS];
    uint8_t moments[100];
    wefti_checkpoint_reader *reader = NULL;
    wefti_checkpoint_header header = saving_header(step, rank);
    wefti_checkpoint_done done;
    weft_status status = wefti_checkpoint_read_done(dir, step, &done);
    if (status == WEFT_OK) {
        header.origin = done.origin;
        status = wefti_checkpoint_reader_open(dir, &header, &reader);
    }
    memset(state, 0xA5, sizeof(state));
    if (status == WEFT_OK) {
        status = wefti_checkpoint_reader_check(reader);
    }
    if (status == WEFT_OK) {
        status = wefti_checkpoint_reader_get(
            reader, "parameters", WEFT_DTYPE_F64, state, SAVING_ELEMS);
    }
    if (status == WEFT_OK) {
        status = wefti_checkpoint_reader_get(reader, "moments", WEFT_DTYPE_U8,
                                             moments, sizeof(moments));
    }
    if (status == WEFT_OK) {
        status = wefti_checkpoint_reader_get(reader, "nothing", WEFT_DTYPE_F32,
                                             NULL, 0);
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
