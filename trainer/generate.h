/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/generate.h - text from a trained model, one token after the other:
 * bytes, or ids of a vocabulary.
 */
#ifndef TRAINER_GENERATE_H
#define TRAINER_GENERATE_H

#include "trainer/random.h"
#include "trainer/replica.h"

/*
 * prompt        what the text goes on from, at least one token; borrowed
 * is_text       tokens are bytes, of which 0 separates files and is never
 *               drawn; else each id may be
 * vocab         tokens that there are
 * temperature   below 1 likely tokens become likelier; 0: only the likeliest
 * top_k         so many of the likeliest tokens are drawn from; 0: all
 * top_p         as few of the likeliest as have this share together; 1: all
 * seed          same seed, same text
 */
typedef struct wefti_generate_config {
    const int32_t *prompt;
    size_t prompt_count;
    bool is_text;
    size_t vocab;
    double temperature;
    size_t top_k;
    double top_p;
    uint64_t seed;
} wefti_generate_config;

/* A token that may be drawn, and its share. */
typedef struct wefti_generate_choice {
    double weight;
    int32_t token;
} wefti_generate_choice;

/*
 * A token from softmax(logits / temperature) of those that config leaves;
 * choices: room for config->vocab of them.
 */
int32_t wefti_generate_draw(const real *logits,
                            const wefti_generate_config *config,
                            wefti_generate_choice *choices,
                            wefti_random *random);

/*
 * wefti_generate_parse - "17 4 300" as ids below vocab.
 *
 * ids_out     free() them; NULL where there are none.
 *
 * Returns     OK | ERR_INVALID: the text says which | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_generate_parse(const char *text, size_t vocab,
                                                int32_t **ids_out,
                                                size_t *count_out);

/*
 * wefti_generate - tokens_out[0 .. count): what follows the prompt.
 *
 * The model sees at most its sequence length of tokens before each new one. One
 * rank is enough, after wefti_replica_settle.
 *
 * Returns     OK | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_generate(wefti_replica *replica,
                                          const wefti_generate_config *config,
                                          int32_t *tokens_out, size_t count);

#endif
