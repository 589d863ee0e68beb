/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/replica_load.c - sequences of the data as micro-batches: this rank's
 * tokens, their targets, and what an encoder reads beside them.
 */
#include "trainer/replica.h"

#include "kernels/math/cross_entropy.h"

void wefti_replica_localize(const wefti_replica *replica, size_t encoded,
                            int32_t *tokens, int32_t *targets, size_t count)
{
    const wefti_tensor_parallel *tensor = &replica->plan.tensor;
    const int32_t bytes = (int32_t)replica->plan.encoder.vocab;
    const int32_t own = (int32_t)replica->plan.own.vocab;
    const int32_t part = (int32_t)tensor->part, first = own * part;
    if (tensor->parts < 2) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const int32_t rows = i < encoded ? bytes : own;
        const int32_t token = tokens[i] - rows * part;
        tokens[i] = token < rows ? token : -1;
        if (targets) {
            int32_t id = targets[i] - first;
            targets[i] = targets[i] < 0        ? WEFTI_CROSS_ENTROPY_NO_TARGET
                         : id >= 0 && id < own ? id
                                               : WEFTI_CROSS_ENTROPY_ELSEWHERE;
        }
    }
}

/* A sequence, in the training or the validation part. */
typedef struct sequence_place {
    size_t at;           /* in the text; targets before first_target do not */
    size_t first_target; /* count */
    size_t encoder_at;   /* in the encoder's bytes */
} sequence_place;

/* What the encoder reads; its positions have no targets. */
static void load_encoder(const wefti_replica *replica, size_t at,
                         int32_t *bytes, int32_t *targets)
{
    const size_t count = replica->config.shape.encoder_seq;
    if (count > 0) {
        wefti_data_read(replica->config.encoder_data, at, count, bytes);
    }
    for (size_t t = 0; t < count; t++) {
        targets[t] = WEFTI_CROSS_ENTROPY_NO_TARGET;
    }
}

/* Of a window this rank's tokens, as one of a micro-batch's sequences, and for
 * each the next one as its target. What the encoder reads of all stands before
 * what the decoder does (wefti_stage_batch). */
static void load_window(const wefti_replica *replica,
                        const sequence_place *place, size_t micro,
                        size_t sequence, size_t sequences)
{
    const wefti_model_shape *shape = &replica->config.shape;
    const wefti_pipe_batch *batch = &replica->pipe.batch;
    const size_t encoded = shape->encoder_seq;
    const size_t length = wefti_replica_length(replica) - encoded;
    int32_t *all = wefti_pipe_batch_tokens(batch, micro);
    int32_t *tokens = all + sequences * encoded + sequence * length;
    int32_t *targets =
        wefti_pipe_batch_targets(batch, micro) + sequence * (encoded + length);
    uint32_t *starts = wefti_pipe_batch_starts(batch, micro, sequence);
    int32_t *window = replica->window;
    wefti_data_read(replica->config.data, place->at, shape->seq + 1, window);
    wefti_context_take(&shape->context, shape->seq, window, tokens);
    if (starts) {
        wefti_documents_find(window, shape->seq, replica->config.document_end,
                             starts);
    }
    for (size_t t = 0; t < place->first_target; t++) {
        window[t + 1] = WEFTI_CROSS_ENTROPY_NO_TARGET;
    }
    load_encoder(replica, place->encoder_at, all + sequence * encoded, targets);
    wefti_context_take(&shape->context, shape->seq, window + 1,
                       targets + encoded);
}

static void localize(const wefti_replica *replica, size_t micro,
                     size_t sequences)
{
    const wefti_pipe_batch *batch = &replica->pipe.batch;
    wefti_replica_localize(replica, sequences * replica->plan.shape.encoder_seq,
                           wefti_pipe_batch_tokens(batch, micro),
                           wefti_pipe_batch_targets(batch, micro),
                           sequences * wefti_replica_length(replica));
}

void wefti_replica_load(const wefti_replica *replica, uint64_t first,
                        size_t micro)
{
    const size_t sequences = replica->config.micro_batch;
    for (size_t i = 0; i < sequences; i++) {
        const sequence_place place = {
            .at = wefti_data_sequence(replica->config.data, first + i),
            .encoder_at = replica->config.encoder_data
                              ? wefti_data_sequence(
                                    replica->config.encoder_data, first + i)
                              : 0};
        load_window(replica, &place, micro, i, sequences);
    }
    localize(replica, micro, sequences);
}

/* The encoder's windows come round, where it has fewer. */
static sequence_place place_validation(const wefti_replica *replica,
                                       size_t index)
{
    const wefti_data *encoder = replica->config.encoder_data;
    sequence_place place = {0};
    size_t ignored;
    place.at =
        wefti_data_validation(replica->config.data, index, &place.first_target);
    if (encoder) {
        place.encoder_at = wefti_data_validation(
            encoder, index % wefti_data_validation_windows(encoder), &ignored);
    }
    return place;
}

wefti_micro_batch wefti_replica_load_windows(const wefti_replica *replica,
                                             size_t first, size_t count)
{
    wefti_micro_batch batch = wefti_pipe_batch_get(&replica->pipe.batch, 0);
    for (size_t i = 0; i < count; i++) {
        const sequence_place place = place_validation(replica, first + i);
        load_window(replica, &place, 0, i, count);
    }
    localize(replica, 0, count);
    batch.sequences = count;
    return batch;
}
