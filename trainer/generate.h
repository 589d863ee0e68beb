/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/generate.h - text from a trained model, one byte after the other.
 */
#ifndef TRAINER_GENERATE_H
#define TRAINER_GENERATE_H

#include "trainer/random.h"
#include "trainer/replica.h"

/*
 * prompt        what the text goes on from; borrowed; may be empty
 * temperature   below 1 likely bytes become likelier; 0: only the likeliest
 * top_k         so many of the likeliest bytes are drawn from; 0: all
 * top_p         as few of the likeliest as have this share together; 1: all
 * seed          same seed, same text
 */
typedef struct wefti_generate_config {
    const char *prompt;
    double temperature;
    size_t top_k;
    double top_p;
    uint64_t seed;
} wefti_generate_config;

enum { WEFTI_GENERATE_BYTES = 256 };

/* A byte from softmax(logits / temperature) of those that config leaves. */
unsigned char wefti_generate_draw(const real logits[WEFTI_GENERATE_BYTES],
                                  const wefti_generate_config *config,
                                  wefti_random *random);

/*
 * wefti_generate - bytes_out[0 .. count): what follows the prompt.
 *
 * The model sees at most its sequence length of bytes before each new one. One
 * rank is enough, after wefti_replica_settle. No bytes but those that text
 * holds: 0, which separates files, is never drawn.
 *
 * Returns     OK | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_generate(wefti_replica *replica,
                                          const wefti_generate_config *config,
                                          char *bytes_out, size_t count);

#endif
