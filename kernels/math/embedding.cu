/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rows of a table by token id. Backward has no atomics: a warp owns 32 columns
 * of every n-th row of the table, looks at all ids, 32 at a time, and adds what
 * is its own in order of tokens. Who owns a row does not show in the sum.
 */
#include "kernels/math/math_real.cuh"

template <class Real>
static __device__ inline void
embedding_forward(const wefti_math_embedding_forward &args)
{
    typedef typename Real::memory memory;
    memory *out = static_cast<memory *>(args.out);
    const memory *table = static_cast<const memory *>(args.table);
    row_pieces pieces(args.tokens, args.width);
    pieces.run([&](size_t t, size_t i) {
        if (args.ids[t] < 0) {
            store<Real>(out, t * args.width + i, 0);
        } else {
            out[t * args.width + i] =
                table[(size_t)args.ids[t] * args.width + i];
        }
    });
}

/* Gradients that a lane has under way: of a common token there are many. */
static const unsigned TOKENS_AHEAD = 4;

/* Adds the columns from first on of the tokens whose row is in this share. */
template <class Real>
static __device__ inline void
embedding_share(const wefti_math_embedding_backward &args, size_t first,
                unsigned share, unsigned shares)
{
    typedef typename Real::wide wide;
    wide *dtable = static_cast<wide *>(args.dtable);
    unsigned lane = warp_lane();
    size_t column = first + lane;
    for (size_t t = 0; t < args.tokens; t += WARP) {
        unsigned id = t + lane < args.tokens ? (unsigned)args.ids[t + lane] : 0;
        bool own =
            t + lane < args.tokens && (int)id >= 0 && id % shares == share;
        unsigned left = __ballot_sync(WARP_WHOLE, own);
        while (left != 0) {
            wide slope[TOKENS_AHEAD];
            size_t row[TOKENS_AHEAD];
            bool here[TOKENS_AHEAD];
#pragma unroll
            for (unsigned a = 0; a < TOKENS_AHEAD; a++, left &= left - 1) {
                unsigned next = left != 0 ? (unsigned)__ffs((int)left) - 1 : 0;
                here[a] = left != 0 && column < args.width;
                row[a] = __shfl_sync(WARP_WHOLE, id, next);
                slope[a] = here[a]
                               ? load<Real>(args.dout,
                                            (t + next) * args.width + column)
                               : 0;
            }
#pragma unroll
            for (unsigned a = 0; a < TOKENS_AHEAD; a++) {
                if (here[a]) {
                    dtable[row[a] * args.width + column] += slope[a];
                }
            }
        }
    }
}

template <class Real>
static __device__ inline void
embedding_backward(const wefti_math_embedding_backward &args)
{
    size_t columns = (args.width + WARP - 1) / WARP;
    size_t shares =
        columns && columns < warp_count() ? warp_count() / columns : 1;
    for (size_t n = warp_first(); n < columns * shares; n += warp_count()) {
        embedding_share<Real>(args, n % columns * WARP, (unsigned)(n / columns),
                              (unsigned)shares);
    }
}

#define EMBEDDING_KERNELS(type)                                                \
    MATH_KERNEL(embedding_forward, type) MATH_KERNEL(embedding_backward, type)
REAL_LIST(EMBEDDING_KERNELS)
