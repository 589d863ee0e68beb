/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/kernels/pair_tokens.h - a case of test_math_devices.c: what takes ids
 * of tokens, whole and in parts of the vocabulary.
 */
#ifndef TESTS_KERNELS_PAIR_TOKENS_H
#define TESTS_KERNELS_PAIR_TOKENS_H

#include "kernels/math/cross_entropy.h"
#include "tests/kernels/device_pair.h"

static inline void case_tokens(device_pair *pair, weft_dtype own,
                               weft_dtype mixed)
{
    enum { TOKENS = 23, VOCAB = 111, WIDTH = 40 };
    enum { SUMMARY = WEFTI_CROSS_ENTROPY_SUMMARY };
    const double near = TOLERANCE(8e-6, 2e-14);
    pair_array *ids = pair_ids(pair, TOKENS, VOCAB);
    pair_array *table = pair_random(pair, own, VOCAB * WIDTH, -1, 1);
    pair_array *dtable =
        pair_random(pair, WEFTI_REAL_DTYPE, VOCAB * WIDTH, -1, 1);
    pair_array *out = pair_poison(pair, own, TOKENS * WIDTH);
    pair_array *logits = pair_random(pair, own, TOKENS * VOCAB, -5, 5);
    pair_array *dlogits = pair_poison(pair, own, TOKENS * VOCAB);
    pair_array *loss = pair_poison(pair, WEFTI_REAL_DTYPE, TOKENS);
    pair_array *again = pair_poison(pair, WEFTI_REAL_DTYPE, TOKENS);
    pair_array *parts =
        pair_random(pair, WEFTI_REAL_DTYPE, 2 * TOKENS * SUMMARY, 1, 5);

    (void)mixed;
    EACH_SIDE(pair)
    {
        weft_stream *stream = pair_stream(pair);
        wefti_math_tensor ti = pair_flat(pair, ids);
        wefti_math_tensor tt = pair_rows(pair, table, VOCAB, WIDTH);
        wefti_math_tensor tdt = pair_rows(pair, dtable, VOCAB, WIDTH);
        wefti_math_tensor to = pair_rows(pair, out, TOKENS, WIDTH);
        wefti_math_tensor tl = pair_rows(pair, logits, TOKENS, VOCAB);
        wefti_math_tensor tdl = pair_rows(pair, dlogits, TOKENS, VOCAB);
        wefti_math_tensor te = pair_flat(pair, loss);
        wefti_math_tensor ta = pair_flat(pair, again);
        wefti_math_tensor ts = pair_rows(pair, parts, TOKENS, SUMMARY);
        wefti_math_tensor tp = pair_rows(pair, parts, 2, TOKENS * SUMMARY);

        pair_ok(wefti_stream_softmax_part(stream, &ts, &tl, &ti));
        pair_ok(wefti_stream_cross_entropy_part(stream, &te, &tdl, &tl, &ti,
                                                &tp, 0.1));
        pair_ok(wefti_stream_embedding_forward(stream, &to, &tt, &ti));
        pair_ok(wefti_stream_embedding_backward(stream, &tdt, &to, &ti));
        pair_ok(wefti_stream_cross_entropy(stream, &te, &tdl, &tl, &ti, 0.1));
        pair_ok(wefti_stream_cross_entropy(stream, &te, NULL, &tl, &ti, 0.1));
        pair_ok(wefti_stream_cross_entropy(stream, &ta, &tl, &tl, &ti, 0.1));
    }
    pair_same(pair, out, "embedding");
    pair_same(pair, dtable, "embedding's gradient");
    pair_near(pair, parts, 4 * near, 1e-6, "summaries");
    pair_near(pair, loss, 2 * near, 0, "loss");
    pair_near(pair, again, 2 * near, 0, "loss, its gradient in place");
    pair_near(pair, dlogits, near * 0.02, 0, "gradient");
    pair_near(pair, logits, near * 0.02, 0, "gradient in place");
}

#endif
