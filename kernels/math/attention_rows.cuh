/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/attention_rows.cuh - the two products that attention is made of,
 * for a block of WARPS warps:
 *
 *     dots   out[r] = sum_d row_r[d] tile[lane][d]
 *     add    sum[r][d] += sum_j weights[r][j] tile[j][d]
 *
 * A warp keeps ROWS rows (queries, or keys) to itself, and their sums in
 * registers; TILE rows of the other side lie in shared memory, a lane each.
 * This is where tensor cores would take over.
 */
#ifndef KERNELS_MATH_ATTENTION_ROWS_CUH
#define KERNELS_MATH_ATTENTION_ROWS_CUH

#include "kernels/math/math_real.cuh"
#include "kernels/wire/dynamic_shared.cuh"

static const unsigned ATTENTION_WARPS = WEFTI_MATH_THREADS / WARP;
static const unsigned ATTENTION_TILE = WARP;
static const unsigned ATTENTION_PARTS = WEFTI_MATH_HEAD_MOST / WARP;

template <class Real> struct attention_rows {
    typedef typename Real::wide wide;
    typedef typename Real::memory memory;
    /* Of a warp, and of a block. */
    static const unsigned ROWS = 16 / sizeof(wide);
    static const unsigned BLOCK_ROWS = ROWS * ATTENTION_WARPS;

    wide *tile;    /* [ATTENTION_TILE][head_size + 1], of the block */
    wide *weights; /* [ROWS][ATTENTION_TILE], of this warp */
    unsigned head_size;

    __device__ inline attention_rows(wide *shared, size_t head_elems)
        : tile(shared + ATTENTION_WARPS * ROWS * ATTENTION_TILE),
          weights(shared + threadIdx.x / WARP * ROWS * ATTENTION_TILE),
          head_size((unsigned)head_elems)
    {
    }

    /* The first row of this warp in a block's rows from first on. */
    static __device__ inline size_t own_row(size_t first)
    {
        return first + threadIdx.x / WARP * ROWS;
    }

    /*
     * Fills the tile with rows [first, first + TILE) of count, zeros past the
     * last; all warps are done with the old one before, and see this one after.
     */
    __device__ inline void fill(const void *from, size_t stride, size_t first,
                                size_t count) const
    {
        __syncthreads();
        for (unsigned j = threadIdx.x / WARP; j < ATTENTION_TILE;
             j += ATTENTION_WARPS) {
            for (unsigned d = warp_lane(); d < head_size; d += WARP) {
                tile[j * (head_size + 1) + d] =
                    first + j < count
                        ? load<Real>(from, (first + j) * stride + d)
                        : 0;
            }
        }
        __syncthreads();
    }

    /* Of rows past the last the last one is taken again. */
    __device__ inline void dots(wide *out, const void *from, size_t stride,
                                size_t first, size_t count) const
    {
        const memory *row[ROWS];
#pragma unroll
        for (unsigned r = 0; r < ROWS; r++) {
            size_t i = own_row(first) + r;
            row[r] = static_cast<const memory *>(from) +
                     (i < count ? i : count - 1) * stride;
            out[r] = 0;
        }
        const wide *column = tile + warp_lane() * (head_size + 1);
        for (unsigned d = 0; d < head_size; d++) {
#pragma unroll
            for (unsigned r = 0; r < ROWS; r++) {
                out[r] += Real::widen(row[r][d]) * column[d];
            }
        }
    }

    /* This lane's weight of each row, for add. */
    __device__ inline void put_weights(const wide *weight) const
    {
        __syncwarp(); /* the last add has read its own */
#pragma unroll
        for (unsigned r = 0; r < ROWS; r++) {
            weights[r * ATTENTION_TILE + warp_lane()] = weight[r];
        }
        __syncwarp();
    }

    __device__ inline void add(wide (*sum)[ATTENTION_PARTS]) const
    {
        for (unsigned j = 0; j < ATTENTION_TILE; j++) {
            wide weight[ROWS];
#pragma unroll
            for (unsigned r = 0; r < ROWS; r++) {
                weight[r] = weights[r * ATTENTION_TILE + j];
            }
#pragma unroll
            for (unsigned part = 0; part < ATTENTION_PARTS; part++) {
                unsigned d = part * WARP + warp_lane();
                if (d < head_size) {
                    wide x = tile[j * (head_size + 1) + d];
#pragma unroll
                    for (unsigned r = 0; r < ROWS; r++) {
                        sum[r][part] += weight[r] * x;
                    }
                }
            }
        }
    }

    /* work(sum, row, d) for each element of this warp's rows below count. */
    template <class Work>
    static __device__ inline void each(wide (*sum)[ATTENTION_PARTS],
                                       size_t head_elems, size_t first,
                                       size_t count, const Work &work)
    {
#pragma unroll
        for (unsigned r = 0; r < ROWS; r++) {
            size_t i = own_row(first) + r;
#pragma unroll
            for (unsigned part = 0; part < ATTENTION_PARTS; part++) {
                unsigned d = part * WARP + warp_lane();
                if (i < count && d < head_elems) {
                    work(sum[r][part], r, i, d);
                }
            }
        }
    }
};

/* A block a band: BLOCK_ROWS of so many tokens of a head of a sequence. call is
 * given the sequence, the head, and the band's first row. */
template <class Real, class Call>
static __device__ inline void attention_bands(size_t tokens, size_t sequences,
                                              size_t heads, Call call)
{
    const size_t rows = attention_rows<Real>::BLOCK_ROWS;
    size_t bands = (tokens + rows - 1) / rows;
    for (size_t n = blockIdx.x; n < bands * sequences * heads; n += gridDim.x) {
        call(n / bands / heads, n / bands % heads, n % bands * rows);
    }
}

/* One sequence's share of the arrays, and one head of it. */
struct attention_head {
    size_t q, kv, o, row; /* offsets; row: of lse and delta */
};

static __device__ inline attention_head
attention_head_at(const wefti_math_attention_shape &shape, size_t sequence,
                  size_t head)
{
    size_t kv_head = head / (shape.heads / shape.kv_heads);
    attention_head at;
    at.q = sequence * shape.q_tokens * shape.q_stride + head * shape.head_size;
    at.kv = sequence * shape.kv_tokens * shape.kv_stride +
            kv_head * shape.head_size;
    at.o = sequence * shape.q_tokens * shape.o_stride + head * shape.head_size;
    at.row = sequence * shape.q_tokens * shape.heads + head;
    return at;
}

/* How many keys query i sees. */
static __device__ inline size_t
attention_visible(const wefti_math_attention_shape &shape, size_t i)
{
    if (!shape.causal) {
        return shape.kv_tokens;
    }
    int64_t seen = (int64_t)i + shape.causal_offset + 1;
    return seen <= 0                        ? 0
           : (size_t)seen < shape.kv_tokens ? (size_t)seen
                                            : shape.kv_tokens;
}

/* Element offset of an array of type Real. */
template <class Real>
static __device__ inline const void *at_elem(const void *array, size_t offset)
{
    return static_cast<const typename Real::memory *>(array) + offset;
}

#endif
